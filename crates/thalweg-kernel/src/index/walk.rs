//! The one way through an index: in the order of keys, loading only what is asked for, exact also where equal keys lie on both
//! sides of a page border.
//!
//! Invariants: entries come in ascending `EntryKey`, whatever levels they have. An entry that cannot hold a key of the range never
//! comes; one that can always comes, unless an entry above it was skipped or taken. Fragments overlap their neighbours, so open
//! pages wait in a heap and the one with the smallest next key goes on. (ChronicleDB's stack of nodes is this heap when nothing
//! overlaps.)

use super::page::{Child, Page, PageLoader, page_of};
use super::{Entry, EntryKey, ItemName};
use crate::error::{Error, Result};
use crate::ids::{CommitNo, TableId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Most pages above one another: those of the tree and those of a fragment in it.
const MAX_DEPTH: u32 = 64;

/// The page that an entry leads to, `depth` pages below the root.
///
/// # Errors
/// `Corruption` where pages lead in a circle; when the page cannot be loaded.
pub(super) fn open_page(
    table: TableId,
    child: &Child,
    depth: u32,
    loader: &dyn PageLoader,
) -> Result<Arc<Page>> {
    if depth > MAX_DEPTH {
        return Err(Error::corruption(
            child.entry.address,
            "the pages of the index lead in a circle",
        ));
    }
    page_of(table, child, loader)
}

/// The next step of a walk at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing below it is of interest.
    Skip,
    /// It is an answer as it is: its summaries are enough.
    Take,
    /// Go on with what lies below it. A block is taken.
    Descend,
    /// The walk is over.
    Stop,
}

/// A walk through the entries of a tree. See [`Walk::next`].
#[derive(Debug)]
pub struct Walk<L> {
    loader: L,
    table: TableId,
    start: i64,
    end: i64,
    root: Option<Arc<Child>>,
    /// The page that goes on.
    current: Option<Cursor>,
    waiting: BinaryHeap<Reverse<Cursor>>,
    pages: u64,
    /// The error to return in the place of all entries.
    refused: Option<Error>,
    /// Where the entry lies that was asked about last.
    place: Option<Place>,
    /// The item that the whole tree lies below, if it does: see [`Self::below`].
    item: Option<ItemName>,
}

/// Where an entry lies: below an item, or as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The item.
    pub item: ItemName,
    /// The rank in it of the entry, or of the first block below.
    pub rank: u64,
}

/// An open page and how far the walk came in it.
#[derive(Debug)]
struct Cursor {
    key: EntryKey,
    page: Arc<Page>,
    next: usize,
    behind: usize,
    depth: u32,
    heritage: Option<Heritage>,
    /// The item below which the page lies, and the rank of the first block below the next entry.
    item: Option<ItemName>,
    rank: u64,
}

/// Commit and ordinal that the entries of a fragment inherit from the entry that leads to it, if they were written
/// before their commit had a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heritage {
    commit: CommitNo,
    ordinal: u32,
}

impl Heritage {
    /// The heritage of the entries below `entry`, if that has a commit of its own.
    pub(crate) fn below(entry: &Entry) -> Option<Self> {
        (entry.commit_max.0 > 0).then_some(Self {
            commit: entry.first_commit,
            ordinal: entry.ordinal,
        })
    }

    /// An entry with what it inherits; `None`: it has a commit of its own, or inherits nothing.
    pub(crate) fn give(heritage: Option<Self>, entry: &Entry) -> Option<Entry> {
        let heritage = heritage.filter(|_| entry.commit_max.0 == 0)?;
        let Self { commit, ordinal } = heritage;
        let own_ordinal = ordinal.saturating_add(entry.ordinal);
        let mut given = entry.clone().committed(commit, commit, own_ordinal);
        if given.is_page_in_order() {
            given.last = entry.last.after(commit, ordinal);
        }
        Some(given)
    }
}

impl<L: PageLoader> Walk<L> {
    pub(super) fn new(
        table: TableId,
        root: Option<Arc<Child>>,
        range: Option<RangeInclusive<i64>>,
        loader: L,
        refused: Option<Error>,
    ) -> Self {
        let (start, end) = range.map_or((i64::MIN, i64::MAX), RangeInclusive::into_inner);
        Self {
            loader,
            table,
            start,
            end,
            root,
            current: None,
            waiting: BinaryHeap::new(),
            pages: 0,
            refused,
            place: None,
            item: None,
        }
    }

    /// Asks `decide` about one entry after the other, from the root on, and returns the next one that is taken; `None`
    /// at the end. Errors end the walk as well.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn next(&mut self, mut decide: impl FnMut(&Entry) -> Step) -> Result<Option<Entry>> {
        self.next_at(|entry, _| decide(entry))
    }

    /// Like [`Self::next`]; `decide` gets the place of each entry too, which entries above the items do not have.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn next_at(
        &mut self,
        mut decide: impl FnMut(&Entry, Option<Place>) -> Step,
    ) -> Result<Option<Entry>> {
        let next = self.advance(&mut decide);
        if !matches!(next, Ok(Some(_))) {
            (self.root, self.current, self.waiting) = (None, None, BinaryHeap::new());
        }
        next
    }

    /// Pages opened so far, from memory or not.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The same walk of a tree that lies below an item: places name that one.
    #[must_use]
    pub fn below(mut self, item: ItemName) -> Self {
        self.item = Some(item);
        self
    }

    /// Where the entry that was asked about last lies; `None` above the items.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    fn advance(
        &mut self,
        decide: &mut dyn FnMut(&Entry, Option<Place>) -> Step,
    ) -> Result<Option<Entry>> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if let Some(root) = self.root.take() {
            let inside = root.entry.key_min <= self.end && root.entry.key_max >= self.start;
            let place = self.item.map(|item| Place { item, rank: 0 });
            match if inside {
                decide(&root.entry, place)
            } else {
                Step::Stop
            } {
                Step::Skip | Step::Stop => return Ok(None),
                Step::Take => return Ok(Some(root.entry.clone())),
                Step::Descend => self.open(&root, 1, Heritage::below(&root.entry), place)?,
            }
        }
        while let Some(cursor) = self
            .current
            .take()
            .or_else(|| self.waiting.pop().map(|Reverse(cursor)| cursor))
        {
            if let Some(outcome) = self.advance_in(cursor, decide)? {
                return Ok(outcome);
            }
        }
        Ok(None)
    }

    /// Goes on in one page until an entry is taken (which is returned), the walk is over (`Some(None)`), or another
    /// page is to go on (`None`).
    fn advance_in(
        &mut self,
        mut cursor: Cursor,
        decide: &mut dyn FnMut(&Entry, Option<Place>) -> Step,
    ) -> Result<Option<Option<Entry>>> {
        // Up to the next key of any other page the entries of this one come without asking the heap.
        let limit = self.waiting.peek().map(|Reverse(other)| other.key);
        while let Some(child) = cursor.page.children()[..cursor.behind].get(cursor.next) {
            if child.entry.key_max < self.start {
                cursor.next += 1;
                cursor.rank = cursor.rank.saturating_add(child.entry.blocks);
                continue;
            }
            let given = Heritage::give(cursor.heritage, &child.entry);
            let entry = given.as_ref().unwrap_or(&child.entry);
            if limit.is_some_and(|limit| entry.key() > limit) {
                cursor.key = entry.key();
                self.waiting.push(Reverse(cursor));
                return Ok(None);
            }
            let place = cursor.place_of(entry);
            self.place = place;
            cursor.next += 1;
            cursor.rank = cursor.rank.saturating_add(child.entry.blocks);
            match decide(entry, place) {
                Step::Skip => {}
                Step::Stop => return Ok(Some(None)),
                Step::Descend if !entry.is_block() => {
                    let below = if given.is_some() {
                        cursor.heritage
                    } else {
                        Heritage::below(entry)
                    };
                    let (child, depth) = (Arc::clone(child), cursor.depth + 1);
                    self.wait(cursor);
                    self.open(&child, depth, below, place)?;
                    return Ok(None);
                }
                Step::Take | Step::Descend => {
                    let taken = entry.clone();
                    self.current = Some(cursor);
                    return Ok(Some(Some(taken)));
                }
            }
        }
        Ok(None)
    }

    /// Goes on with the page that `child` leads to: it begins with the smallest key of all that wait.
    fn open(
        &mut self,
        child: &Child,
        depth: u32,
        heritage: Option<Heritage>,
        place: Option<Place>,
    ) -> Result<()> {
        let page = open_page(self.table, child, depth, &self.loader)?;
        self.pages += 1;
        let candidates = page.candidates(self.start, self.end);
        let key = child.entry.key();
        let (next, behind) = (candidates.start, candidates.end);
        let before = page.children()[..next].iter();
        let before: u64 = before.map(|child| child.entry.blocks).sum();
        let rank = place.map_or(0, |place| place.rank).saturating_add(before);
        self.current = Some(Cursor {
            key,
            page,
            next,
            behind,
            depth,
            heritage,
            item: place.map(|place| place.item),
            rank,
        });
        Ok(())
    }

    /// Lets a page wait for its next entry, if it has one.
    fn wait(&mut self, mut cursor: Cursor) {
        let next = cursor.page.children()[..cursor.behind].get(cursor.next);
        if let Some(child) = next {
            let given = Heritage::give(cursor.heritage, &child.entry);
            cursor.key = given.as_ref().unwrap_or(&child.entry).key();
            self.waiting.push(Reverse(cursor));
        }
    }
}

impl Cursor {
    /// Where the next entry lies: entries of a page of level 1 that is below no item are items.
    fn place_of(&self, entry: &Entry) -> Option<Place> {
        match self.item {
            Some(item) => Some(Place {
                item,
                rank: self.rank,
            }),
            None => (self.page.level() == 1).then(|| Place {
                item: ItemName::of(entry),
                rank: 0,
            }),
        }
    }
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Of equal keys (no two items have one) the deeper goes first: the order does not depend on the heap.
        self.key.cmp(&other.key).then(other.depth.cmp(&self.depth))
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor {}

/// All blocks of a range, in order. See [`super::Tree::iter`].
#[derive(Debug)]
pub struct Blocks<L>(pub(super) Walk<L>);

impl<L: PageLoader> Iterator for Blocks<L> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.0.next(|_| Step::Descend).transpose()
    }
}
