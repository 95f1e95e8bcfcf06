//! The items that only one of two trees of an order has, found by reading the pages that the trees do not share.
//!
//! Invariants: items come in the order of their keys, of one key the old one before the new one; items of both trees never come; a
//! page that both trees share is never read. Structures that are derived from the index are brought up to date by this, instead of
//! being built again or kept up to date by each commit.

use super::Entry;
use super::page::{Child, Page, PageLoader, page_of};
use crate::error::{Error, Result};
use crate::ids::TableId;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// An item of one of two trees, or with [`Difference::with_pages`] a page of one that is on disk. A block that was moved to another
/// file is removed and added.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemChange {
    /// In the old tree alone.
    Removed(Entry),
    /// In the new tree alone.
    Added(Entry),
}

/// The difference of two trees. See [`super::Tree::difference`].
#[derive(Debug)]
pub struct Difference<L> {
    loader: L,
    table: TableId,
    old: Side,
    new: Side,
    pages: u64,
    /// Whether pages come as well.
    has_pages: bool,
    /// Pages that were opened and come before what is below them.
    opened: VecDeque<ItemChange>,
    /// In the place of all changes.
    refused: Option<Error>,
}

/// How far one tree has been gone through.
#[derive(Debug, Default)]
struct Side {
    /// The root page, before it is opened.
    root: Option<Arc<Child>>,
    /// Open pages, from the root down, each with the number of its next entry.
    open: Vec<(Arc<Page>, usize)>,
}

/// The next entry of a side.
struct Head<'a> {
    child: &'a Arc<Child>,
    /// 0 for an item, the level of the page otherwise. (An item may be the root page of a fragment.)
    level: u8,
}

impl Side {
    /// Closes the pages whose entries all were passed.
    fn close_passed(&mut self) {
        while let Some((page, next)) = self.open.last()
            && *next >= page.children().len()
        {
            self.open.pop();
        }
    }

    fn head(&self) -> Option<Head<'_>> {
        if let Some(child) = &self.root {
            let level = child.entry.level;
            return Some(Head { child, level });
        }
        let (page, next) = self.open.last()?;
        let child = &page.children()[*next];
        let level = page.level() - 1;
        Some(Head { child, level })
    }

    fn pass(&mut self) -> Option<Arc<Child>> {
        if let Some(root) = self.root.take() {
            return Some(root);
        }
        let (page, next) = self.open.last_mut()?;
        let child = page.children().get(*next).cloned();
        *next += 1;
        child
    }
}

/// Whether both are the same item, or pages with the same items below.
fn is_same(old: &Arc<Child>, new: &Arc<Child>) -> bool {
    if Arc::ptr_eq(old, new) {
        return true;
    }
    // What is written is at its address for good: ids of files are used once, and nothing in them is changed.
    let address = old.address();
    address.is_some() && address == new.address()
}

/// Passes the entries that both sides have next; whether there are some.
fn pass_same(old: &mut Side, new: &mut Side) -> bool {
    if let (Some(a), Some(b)) = (&old.root, &new.root) {
        let is_same = is_same(a, b);
        if is_same {
            (old.root, new.root) = (None, None);
        }
        return is_same;
    }
    let (Some((of_old, at_old)), Some((of_new, at_new))) =
        (old.open.last_mut(), new.open.last_mut())
    else {
        return false;
    };
    if old.root.is_some() || new.root.is_some() || of_old.level() != of_new.level() {
        return false;
    }
    let pairs = { of_old.children()[*at_old..].iter() }.zip(&of_new.children()[*at_new..]);
    let same = pairs.take_while(|(a, b)| is_same(a, b)).count();
    *at_old += same;
    *at_new += same;
    same > 0
}

impl<L: PageLoader> Difference<L> {
    pub(super) fn new(
        table: TableId,
        [old, new]: [Option<Arc<Child>>; 2],
        loader: L,
        refused: Option<Error>,
    ) -> Self {
        let side = |root| Side {
            root,
            open: Vec::new(),
        };
        let (old, new) = (side(old), side(new));
        Self {
            loader,
            table,
            old,
            new,
            pages: 0,
            has_pages: false,
            opened: VecDeque::new(),
            refused,
        }
    }

    /// Makes it return pages of the index as well: those that only one of the trees has and that are on disk, each
    /// before what is below it.
    pub(crate) fn with_pages(self) -> Self {
        Self {
            has_pages: true,
            ..self
        }
    }

    /// Pages opened so far, from memory or not.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn advance(&mut self) -> Result<Option<ItemChange>> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        loop {
            if let Some(page) = self.opened.pop_front() {
                return Ok(Some(page));
            }
            self.old.close_passed();
            self.new.close_passed();
            if pass_same(&mut self.old, &mut self.new) {
                continue;
            }
            let (old, new) = match (self.old.head(), self.new.head()) {
                (None, None) => return Ok(None),
                (Some(old), None) => (Some(old.level), None),
                (None, Some(new)) => (None, Some(new.level)),
                // All that comes after an entry has keys from its own on.
                (Some(old), Some(new)) => match old.child.entry.key().cmp(&new.child.entry.key()) {
                    Ordering::Less => (Some(old.level), None),
                    Ordering::Greater => (None, Some(new.level)),
                    Ordering::Equal => match old.level.cmp(&new.level) {
                        Ordering::Less => (None, Some(new.level)),
                        Ordering::Greater => (Some(old.level), None),
                        // Of two items of one key the old one first.
                        Ordering::Equal if old.level == 0 => (Some(0), None),
                        Ordering::Equal => (Some(old.level), Some(new.level)),
                    },
                },
            };
            if let Some(level) = old
                && let Some(child) = self.old.pass()
            {
                if level == 0 {
                    return Ok(Some(ItemChange::Removed(child.entry.clone())));
                }
                let page = self.open(&child, ItemChange::Removed)?;
                self.old.open.push((page, 0));
            }
            if let Some(level) = new
                && let Some(child) = self.new.pass()
            {
                if level == 0 {
                    return Ok(Some(ItemChange::Added(child.entry.clone())));
                }
                let page = self.open(&child, ItemChange::Added)?;
                self.new.open.push((page, 0));
            }
        }
    }

    fn open(&mut self, child: &Child, change: fn(Entry) -> ItemChange) -> Result<Arc<Page>> {
        if self.has_pages {
            self.opened.extend(child.addressed().map(change));
        }
        self.pages += 1;
        page_of(self.table, child, &self.loader)
    }
}

impl<L: PageLoader> Iterator for Difference<L> {
    type Item = Result<ItemChange>;

    fn next(&mut self) -> Option<Result<ItemChange>> {
        let next = self.advance();
        if !matches!(next, Ok(Some(_))) {
            (self.old, self.new) = (Side::default(), Side::default());
            self.opened.clear();
        }
        next.transpose()
    }
}
