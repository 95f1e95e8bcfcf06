//! The tree of a table: immutable, each change makes a new one that shares all untouched pages with the old one.
//!
//! Invariants
//! - Old trees answer as before, whatever is done to newer ones; a reader needs no lock.
//! - The root's entry is the total of the table. It always equals what adding up the blocks gives (sums of floats up to
//!   rounding).
//! - A change copies the pages on the paths to the changed items and no others. In-order appends touch the right flank
//!   only, and need no page from disk while that is in memory.
//! - Pages filled in order stay full; others are split in halves and joined when they run empty.
//! - Which items are on which page is a function of the changes alone, whatever is in memory, trimmed or loaded.
//! - Where a page cannot be read, changes may wait for it ([`Tree::defer`]); until then the tree answers nothing.
//! - A page is marked as written only after its bytes are safe ([`WrittenPages::publish`]).

use super::changed::changed_bytes;
use super::changes::{Changes, Run, no_such_key, same_key};
use super::check::{check_child, check_page};
use super::difference::Difference;
use super::nearest::Nearest;
use super::page::{Child, Page, PageLoader, UnsealedPage, page_of, unwritten_below};
use super::update::Update;
use super::walk::{Blocks, Place, Step, Walk, open_page};
use super::{Address, Entry, EntryKey, ItemName, ItemRun, Pending, Waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, TableId};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The index of one table at one moment. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Tree {
    table: TableId,
    pub(super) root: Option<Arc<Child>>,
    /// Changes that are not in the pages yet, because one of them cannot be read.
    pending: Option<Arc<Pending>>,
    /// About what the pages that are not on disk will take there.
    unwritten_bytes: u64,
}

impl Tree {
    /// The tree of a table without rows.
    #[must_use]
    pub fn empty(table: TableId) -> Self {
        Self {
            table,
            root: None,
            pending: None,
            unwritten_bytes: 0,
        }
    }

    /// The tree below a root page that is on disk; no page is read.
    ///
    /// # Panics
    /// When `root` is a block.
    #[must_use]
    pub fn from_root(table: TableId, root: Option<Entry>) -> Self {
        assert!(
            root.as_ref().is_none_or(|root| !root.is_block()),
            "the root of an index is a page"
        );
        Self {
            table,
            root: root.map(Child::root_on_disk),
            pending: None,
            unwritten_bytes: 0,
        }
    }

    /// The same tree with changes that wait for one of its pages.
    pub(crate) fn with_pending(self, pending: Option<Pending>) -> Self {
        Self {
            pending: pending.map(Arc::new),
            ..self
        }
    }

    /// The changes that wait for a page that cannot be read. Without them the tree is of an earlier commit.
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_deref()
    }

    /// The tree with one more change that waits, of commit `commit`, for a page that cannot be read for this `cause`.
    pub(crate) fn defer(&self, commit: CommitNo, change: Waiting, cause: Error) -> Self {
        let mut pending = match self.pending() {
            Some(pending) => pending.clone(),
            None => Pending::new(commit, cause),
        };
        pending.push(change);
        self.clone().with_pending(Some(pending))
    }

    /// The tree with the changes that waited.
    ///
    /// # Errors
    /// [`Pending::error`] if the page still cannot be read; whatever else changing the tree leads to.
    pub(crate) fn settled(&self, loader: &dyn PageLoader) -> Result<Cow<'_, Self>> {
        let Some(pending) = self.pending() else {
            return Ok(Cow::Borrowed(self));
        };
        let mut settled = Ok(self.without_pending());
        for (at, change) in pending.changes().into_iter().enumerate() {
            settled = settled.and_then(|tree| tree.make(change, at == 0, loader));
        }
        settled.map(Cow::Owned).map_err(|cause| {
            let contradicts = matches!(cause.kind(), ErrorKind::Conflict | ErrorKind::Invalid);
            let cause = if contradicts {
                // These commits were taken: so it is the pages that are not what they were.
                Error::corruption(format_args!("the index of table {}", self.table.0), cause)
            } else {
                cause
            };
            let pending = Pending {
                cause,
                ..pending.clone()
            };
            pending.error()
        })
    }

    /// Makes a change that waited; `is_joined`: a checkpoint may have made it of several.
    fn make(&self, change: Waiting, is_joined: bool, loader: &dyn PageLoader) -> Result<Self> {
        let Waiting {
            removed,
            runs,
            added,
        } = change;
        self.check_names(&removed, loader)?;
        let removed: Vec<EntryKey> = removed.iter().map(|name| name.key).collect();
        let by_keys: Vec<Run> = runs.iter().map(ItemRun::by_keys).collect();
        let mut freed = Vec::new();
        if !is_joined || runs.is_empty() {
            self.check_ends(&runs, loader)?;
            return self.replace_runs(&removed, &by_keys, added, loader, &mut freed);
        }
        // Of several commits, a name may lie in a run that came after it: names are a change of their own.
        let tree = self.replace(&removed, Vec::new(), loader, &mut freed)?;
        tree.change((&[], &by_keys), added, true, loader, &mut freed)
    }

    /// The tree after another attempt to make its changes, which is remembered if it fails.
    pub(crate) fn settled_or_pending(&self, loader: &dyn PageLoader) -> Self {
        match self.settled(loader) {
            Ok(settled) => settled.into_owned(),
            Err(error) => self
                .clone()
                .with_pending(self.pending().map(|pending| Pending {
                    cause: error.cause().clone(),
                    ..pending.clone()
                })),
        }
    }

    /// The tree of the pages alone: that of an earlier commit where changes wait.
    pub(crate) fn without_pending(&self) -> Self {
        self.clone().with_pending(None)
    }

    /// # Errors
    /// [`Pending::error`] where changes wait for a page that cannot be read.
    pub(crate) fn check_settled(&self) -> Result<()> {
        self.pending()
            .map_or(Ok(()), |pending| Err(pending.error()))
    }

    /// The table it indexes.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Counts, ranges and summaries of all rows; `None` without rows. Its address may be out of date, and where changes wait
    /// for a page all of it is.
    #[must_use]
    pub fn total(&self) -> Option<&Entry> {
        self.root.as_ref().map(|root| &root.entry)
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The entry of the root page with its address; `None` without rows.
    ///
    /// # Panics
    /// When the root page is not on disk: see [`Tree::is_dirty`].
    #[must_use]
    pub fn root_entry(&self) -> Option<Entry> {
        self.root.as_ref().map(|root| {
            #[expect(
                clippy::expect_used,
                reason = "documented: asking for the address of a dirty page is a bug"
            )]
            root.addressed()
                .expect("the root page of the index is on disk")
        })
    }

    /// Whether some page is not on disk.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.root
            .as_ref()
            .is_some_and(|root| root.addressed().is_none())
    }

    /// The tree with one more item: a block, or the root page of a fragment.
    ///
    /// `freed` gets the addresses of pages on disk that this tree no longer uses.
    ///
    /// # Errors
    /// `Invalid` when there is an item of the same key; whatever loading pages leads to.
    pub fn insert(
        &self,
        item: Entry,
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        self.insert_many(vec![item], loader, freed)
    }

    /// The tree with more items, in any order.
    ///
    /// # Errors
    /// See [`Tree::insert`].
    pub fn insert_many(
        &self,
        items: Vec<Entry>,
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        self.replace(&[], items, loader, freed)
    }

    /// Loads the pages that inserting items of these keys needs, so that it is known before whether they can be read, and
    /// looks for items of the same keys in them.
    ///
    /// # Errors
    /// `Invalid` when there is an item of such a key; when a page cannot be loaded.
    pub(crate) fn check_new_keys(
        &self,
        keys: impl Iterator<Item = EntryKey>,
        loader: &dyn PageLoader,
    ) -> Result<()> {
        let tree = self.settled(loader)?;
        for key in keys {
            let mut next = tree.root.clone();
            while let Some(child) = next.filter(|child| !child.entry.is_block()) {
                let page = page_of(self.table, &child, loader)?;
                // As in `change_pages`: what lies before the first goes into it.
                let children = page.children();
                let behind = children.partition_point(|child| child.entry.key() <= key);
                let before = children.get(behind.saturating_sub(1));
                next = match page.level() {
                    0 | 1 if before.is_some_and(|item| item.entry.key() == key) => {
                        return Err(same_key(key));
                    }
                    0 | 1 => None,
                    _ => before.cloned(),
                };
            }
        }
        Ok(())
    }

    /// The item of a key, if there is one.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub(crate) fn item(&self, key: EntryKey, loader: &dyn PageLoader) -> Result<Option<Entry>> {
        let mut next = self.root.clone();
        while let Some(child) = next {
            let page = page_of(self.table, &child, loader)?;
            let children = page.children();
            let behind = children.partition_point(|child| child.entry.key() <= key);
            let Some(before) = behind.checked_sub(1).map(|at| &children[at]) else {
                return Ok(None);
            };
            if page.level() <= 1 {
                let found = Some(&before.entry).filter(|item| item.key() == key);
                return Ok(found.cloned());
            }
            next = Some(Arc::clone(before));
        }
        Ok(None)
    }

    /// The block at a place, if there is one: the item itself, or the block of that rank in a fragment.
    ///
    /// # Errors
    /// When a page cannot be loaded, or changes of the tree wait for one.
    pub fn block_at(&self, place: &Place, loader: &dyn PageLoader) -> Result<Option<Entry>> {
        self.check_settled()?;
        let item = self.item(place.item.key, loader)?;
        let Some(item) = item.filter(|item| ItemName::of(item) == place.item) else {
            return Ok(None);
        };
        if item.is_block() {
            return Ok((place.rank == 0).then_some(item));
        }
        let (mut left, mut depth) = (place.rank, 1);
        let mut next = Child::root_on_disk(item);
        loop {
            let page = open_page(self.table, &next, depth, loader)?;
            depth += 1;
            let found = page.children().iter().find(|child| {
                let is_here = left < child.entry.blocks;
                if !is_here {
                    left -= child.entry.blocks;
                }
                is_here
            });
            match found {
                None => return Ok(None),
                Some(child) if child.entry.is_block() => return Ok(Some(child.entry.clone())),
                Some(child) => next = Arc::clone(child),
            }
        }
    }

    /// Whether items are there under their names.
    ///
    /// # Errors
    /// `Conflict` when one is not; when a page cannot be loaded.
    pub(crate) fn check_names(&self, names: &[ItemName], loader: &dyn PageLoader) -> Result<()> {
        let tree = self.settled(loader)?;
        for name in names {
            match tree.item(name.key, loader)? {
                Some(item) if ItemName::of(&item) == *name => {}
                Some(_) => return Err(other_item(name.key)),
                None => return Err(no_such_key(name.key)),
            }
        }
        Ok(())
    }

    /// Whether the first and the last items of runs are there under their names.
    ///
    /// # Errors
    /// As [`Self::check_names`].
    pub(crate) fn check_ends(&self, runs: &[ItemRun], loader: &dyn PageLoader) -> Result<()> {
        let ends = runs.iter().flat_map(|run| [run.first, run.last]);
        self.check_names(&ends.collect::<Vec<_>>(), loader)
    }

    /// The tree without some of its items. They are items as they were inserted: blocks of a fragment go with it.
    ///
    /// # Errors
    /// `Conflict` when there is no item of such a key; whatever loading pages leads to.
    pub fn remove(
        &self,
        keys: &[EntryKey],
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        self.replace(keys, Vec::new(), loader, freed)
    }

    /// The tree with some items in the place of others. An added item may have the key of a removed one.
    ///
    /// # Errors
    /// See [`Tree::insert`] and [`Tree::remove`]. `freed` may then have grown; it is to be dropped.
    pub fn replace(
        &self,
        removed: &[EntryKey],
        added: Vec<Entry>,
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        self.replace_runs(removed, &[], added, loader, freed)
    }

    /// The tree without some items, which are named one by one or by runs, and with others in their place. An added item may
    /// have a key of a removed one, also one within a run. Pages all of whose items leave by a run are not read, and `freed` has
    /// of these only the topmost ones.
    ///
    /// # Errors
    /// As [`Tree::replace`]; `Conflict` when a run no longer has the blocks that it names.
    pub fn replace_runs(
        &self,
        removed: &[EntryKey],
        runs: &[Run],
        added: Vec<Entry>,
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        let tree = self.settled(loader)?;
        tree.change((removed, runs), added, false, loader, freed)
    }

    /// Does the work of `replace_runs` for a tree for which nothing waits. `has_ends`: whether the first and the last item
    /// of a run are there is not asked, its blocks and rows alone count.
    fn change(
        &self,
        (removed, runs): (&[EntryKey], &[Run]),
        added: Vec<Entry>,
        has_ends: bool,
        loader: &dyn PageLoader,
        freed: &mut Vec<Address>,
    ) -> Result<Self> {
        let tree = self;
        let changes = Changes::new(removed, runs, added)?;
        if changes.is_empty() {
            return Ok(tree.clone());
        }
        let mut update = Update::new(self.table, loader, freed, &changes, has_ends);
        let root = update.change_root(tree.root.as_ref(), &changes)?;
        update.check_runs()?;
        Ok(Self {
            table: self.table,
            root,
            pending: None,
            unwritten_bytes: update.unwritten_bytes(tree.unwritten_bytes),
        })
    }

    /// About the bytes of the index pages that a change makes anew, or may: what bounds how much one commit changes
    /// (docs/format/index.md). No page of level 1 is read for it.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn changed_bytes(
        &self,
        removed: &[EntryKey],
        runs: &[Run],
        added: impl IntoIterator<Item = EntryKey>,
        loader: &dyn PageLoader,
    ) -> Result<u64> {
        let tree = self.settled(loader)?;
        changed_bytes(
            self.table,
            tree.root.as_ref(),
            (removed, runs),
            added,
            loader,
        )
    }

    /// About what the pages that are not on disk will take there.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes
    }

    /// Asks `decide` about the entries that can hold keys of `range` (all without one), in order, from the root on.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn visit(
        &self,
        range: Option<RangeInclusive<i64>>,
        loader: &dyn PageLoader,
        decide: &mut dyn FnMut(&Entry) -> Step,
    ) -> Result<()> {
        let mut walk = self.walk(range, loader);
        while walk.next(&mut *decide)?.is_some() {}
        Ok(())
    }

    /// Visits entries step by step: [`Walk::next`] returns one taken entry after the other. It needs no borrow of the tree.
    pub fn walk<L: PageLoader>(&self, range: Option<RangeInclusive<i64>>, loader: L) -> Walk<L> {
        let refused = self.check_settled().err();
        Walk::new(self.table, self.root.clone(), range, loader, refused)
    }

    /// The blocks that can hold keys of `range`, in order; pages are loaded when they are reached.
    pub fn iter<L: PageLoader>(&self, range: Option<RangeInclusive<i64>>, loader: L) -> Blocks<L> {
        Blocks(self.walk(range, loader))
    }

    /// The blocks by a bound, the least first; pages are loaded when they are reached. It needs no borrow of the tree.
    pub fn nearest<L: PageLoader>(&self, loader: L) -> Nearest<L> {
        let refused = self.check_settled().err();
        Nearest::new(self.table, self.root.clone(), loader, refused)
    }

    /// The items that only one of this tree and a later one of the same order has. The iterator borrows neither tree.
    ///
    /// # Panics
    /// When they are trees of two tables.
    pub fn difference<L: PageLoader>(&self, newer: &Self, loader: L) -> Difference<L> {
        assert_eq!(self.table, newer.table, "the difference of two tables");
        let refused = self.check_settled().and_then(|()| newer.check_settled());
        let roots = [self.root.clone(), newer.root.clone()];
        Difference::new(self.table, roots, loader, refused.err())
    }

    /// The items: blocks, and root pages of fragments, in order. `lost` is called with each page that fails its checks, and
    /// what lies below it is left out.
    ///
    /// # Errors
    /// Those of loading that are no damage; changes that wait for a page.
    pub(crate) fn whole_items(
        &self,
        loader: &dyn PageLoader,
        lost: &mut dyn FnMut(&Entry, &Error),
    ) -> Result<Vec<Entry>> {
        self.check_settled()?;
        let mut items = Vec::new();
        if let Some(root) = &self.root {
            collect_items(self.table, root, loader, &mut items, lost)?;
        }
        Ok(items)
    }

    /// Hands every page that is not on disk to `write`, children first, and returns what has to be published once all
    /// of them are safe. `write` places the page (see [`UnsealedPage::seal_into`]) and returns its address.
    ///
    /// Trees that were made from this one share its pages, and learn with it that they are written. Pages that such a
    /// tree replaced before it learned are not in anyone's `freed`; a writer that holds its latch meanwhile has none.
    ///
    /// # Errors
    /// Those of `write`. The tree is as before.
    pub fn write_dirty(
        &self,
        write: &mut dyn FnMut(UnsealedPage) -> Result<Address>,
    ) -> Result<WrittenPages> {
        let mut written = WrittenPages {
            pages: Vec::new(),
            root: None,
        };
        if let Some(root) = &self.root {
            written.root = Some(write_child(self.table, root, write, &mut written.pages)?);
        }
        Ok(written)
    }

    /// The same tree, after a checkpoint, with only the dirty pages in memory: the others come back through the loader.
    /// Changes that wait are as the checkpoint has them.
    #[must_use]
    pub fn trim(&self) -> Self {
        let pending = self.pending().map(Pending::as_one);
        Self {
            table: self.table,
            root: self.root.as_ref().map(trim_child),
            pending: pending.map(Arc::new),
            unwritten_bytes: self.root.as_ref().map_or(0, |root| unwritten_below(root)),
        }
    }

    /// The same tree, with copies of its dirty pages, which stay dirty when those are written: what a [`Difference`] from it
    /// calls new is what is on disk since.
    pub(crate) fn frozen(&self) -> Self {
        Self {
            root: self.root.as_ref().map(frozen_child),
            ..self.clone()
        }
    }

    /// Checks every invariant of the tree and returns how many pages it has, those of fragments included.
    ///
    /// # Errors
    /// `Corruption` that names the page.
    pub fn check_invariants(&self, loader: &dyn PageLoader) -> Result<u64> {
        self.check_settled()?;
        let mut pages = 0;
        if let Some(root) = &self.root {
            check_child(self.table, root, loader, &mut pages)?;
        }
        Ok(pages)
    }
}

/// Pages whose bytes were handed out by [`Tree::write_dirty`] and are not known to be safe yet.
#[derive(Debug)]
#[must_use = "pages count as dirty until they are published"]
pub struct WrittenPages {
    pages: Vec<(Arc<Page>, Address)>,
    root: Option<Entry>,
}

impl WrittenPages {
    /// The entry of the root page, with its address: what [`Tree::from_root`] takes.
    #[must_use]
    pub fn root(&self) -> Option<&Entry> {
        self.root.as_ref()
    }

    /// How many pages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether the tree had no dirty page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Marks the pages as written, in all trees that share them, and offers them to `cache`.
    pub fn publish(self, cache: &dyn PageLoader) {
        // Children come before their parents: below a page with an address all pages have one.
        for (page, address) in self.pages {
            page.set_address(address);
            cache.keep_page(&page.detached());
        }
    }
}

fn other_item(key: EntryKey) -> Error {
    let EntryKey {
        key_min,
        commit,
        ordinal,
    } = key;
    let what = format!(
        "block {ordinal} of commit {} with key {key_min} is another one by now",
        commit.0
    );
    Error::new(ErrorKind::Conflict, what)
}

/// Writes the page of `child` if it is dirty, those below it first; returns its entry with its address.
fn write_child(
    table: TableId,
    child: &Child,
    write: &mut dyn FnMut(UnsealedPage) -> Result<Address>,
    written: &mut Vec<(Arc<Page>, Address)>,
) -> Result<Entry> {
    if let Some(entry) = child.addressed() {
        return Ok(entry);
    }
    let Some(page) = &child.page else {
        return Ok(child.entry.clone());
    };
    let mut entries = Vec::with_capacity(page.children().len());
    for below in page.children() {
        entries.push(write_child(table, below, write, written)?);
    }
    let address = write(UnsealedPage::new(table, page.level(), &entries)?)?;
    written.push((Arc::clone(page), address));
    Ok(Entry {
        address,
        ..child.entry.clone()
    })
}

fn collect_items(
    table: TableId,
    child: &Child,
    loader: &dyn PageLoader,
    items: &mut Vec<Entry>,
    lost: &mut dyn FnMut(&Entry, &Error),
) -> Result<()> {
    let page = match &child.page {
        Some(page) => Arc::clone(page),
        None => {
            let loaded = loader.load_page(table, &child.entry);
            match loaded.and_then(|page| check_page(&child.entry, &page).map(|()| page)) {
                Ok(page) => page,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    lost(&child.entry, &error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    };
    if page.level() == 1 {
        items.extend(page.entries().cloned());
        return Ok(());
    }
    page.children()
        .iter()
        .try_for_each(|below| collect_items(table, below, loader, items, lost))
}

fn frozen_child(child: &Arc<Child>) -> Arc<Child> {
    let Some(page) = &child.page else {
        return Arc::clone(child);
    };
    if let Some(entry) = child.addressed() {
        return child.with(entry, None);
    }
    let children = page.children().iter().map(frozen_child).collect();
    let page = Page::new(page.table(), page.level(), children);
    child.with(child.entry.clone(), Some(page))
}

fn trim_child(child: &Arc<Child>) -> Arc<Child> {
    let Some(page) = &child.page else {
        return Arc::clone(child);
    };
    if let Some(entry) = child.addressed() {
        return child.with(entry, None);
    }
    if page.children().iter().all(|below| below.page.is_none()) {
        return Arc::clone(child);
    }
    let children = page.children().iter().map(trim_child).collect();
    let page = Page::new(page.table(), page.level(), children);
    child.with(child.entry.clone(), Some(page))
}
