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

use super::check::{check_child, check_page};
use super::page::{Child, Page, PageLoader, UnsealedPage};
use super::walk::{Blocks, Step, Walk};
use super::{Address, Entry, EntryKey, ItemName, Pending};
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
    /// What is not in the pages yet, because one of them cannot be read.
    pending: Option<Arc<Pending>>,
}

/// One item to be removed, added, or replaced by another one of the same key.
#[derive(Debug)]
struct Change {
    key: EntryKey,
    removes: bool,
    adds: Option<Entry>,
}

/// A page below an inner page that is changed.
struct Sibling {
    child: Arc<Child>,
    /// The change has made it, and left it nearly empty.
    is_small: bool,
}

impl Sibling {
    /// One that the change does not touch.
    fn old(child: &Arc<Child>) -> Self {
        Self {
            child: Arc::clone(child),
            is_small: false,
        }
    }

    /// One that the change has made: it is in memory.
    fn new(child: Arc<Child>) -> Self {
        let is_small = child.page.as_ref().is_some_and(|page| page.is_small());
        Self { child, is_small }
    }
}

/// What all steps of one change share.
struct Update<'a> {
    table: TableId,
    loader: &'a dyn PageLoader,
    freed: &'a mut Vec<Address>,
    removes: bool,
}

impl Tree {
    /// The tree of a table without rows.
    #[must_use]
    pub fn empty(table: TableId) -> Self {
        Self {
            table,
            root: None,
            pending: None,
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
            root: root.map(Child::on_disk),
            pending: None,
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
    pub(crate) fn defer(
        &self,
        commit: CommitNo,
        removed: &[ItemName],
        added: Vec<Entry>,
        cause: Error,
    ) -> Self {
        let mut pending = match self.pending() {
            Some(pending) => pending.clone(),
            None => Pending::new(commit, cause),
        };
        pending.push(removed, added);
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
        let changes = pending.changes().into_iter();
        let settled = { changes }.try_fold(self.without_pending(), |tree, (removed, added)| {
            tree.check_names(removed, loader)?;
            let removed: Vec<EntryKey> = removed.iter().map(|name| name.key).collect();
            tree.replace(&removed, added.to_vec(), loader, &mut Vec::new())
        });
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

    /// The same after another attempt, which is remembered if it fails.
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

    /// What the pages say, of an earlier commit where changes wait.
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
        if self.pending.is_some() {
            let settled = self.settled(loader)?;
            return settled.replace(removed, added, loader, freed);
        }
        let changes = changes_in_order(removed, added)?;
        if changes.is_empty() {
            return Ok(self.clone());
        }
        let mut update = Update {
            table: self.table,
            loader,
            freed,
            removes: !removed.is_empty(),
        };
        let mut pages = match &self.root {
            Some(root) => update.change_page(root, &changes, true)?,
            None => update.pages_of(1, change_items(&[], &changes)?, true),
        };
        while pages.len() > 1 {
            let level = pages[0].entry.level + 1;
            pages = update.pages_of(level, pages, true);
        }
        let root = match pages.pop() {
            Some(root) => Some(update.without_single_pages(root)?),
            None => None,
        };
        Ok(Self {
            table: self.table,
            root,
            pending: None,
        })
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

    /// The same step by step: [`Walk::next`] returns one taken entry after the other. It needs no borrow of the tree.
    pub fn walk<L: PageLoader>(&self, range: Option<RangeInclusive<i64>>, loader: L) -> Walk<L> {
        let refused = self.check_settled().err();
        Walk::new(self.table, self.root.clone(), range, loader, refused)
    }

    /// The blocks that can hold keys of `range`, in order; pages are loaded when they are reached.
    pub fn iter<L: PageLoader>(&self, range: Option<RangeInclusive<i64>>, loader: L) -> Blocks<L> {
        Blocks(self.walk(range, loader))
    }

    /// The items: blocks, and root pages of fragments, in order. `lost` is told of each page that fails its checks, and
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

    /// The same tree, behind a checkpoint, with only the dirty pages in memory: the others come back through the loader. What waits is as
    /// the checkpoint has it.
    #[must_use]
    pub fn trim(&self) -> Self {
        let pending = self.pending().map(Pending::as_one);
        Self {
            table: self.table,
            root: self.root.as_ref().map(trim_child),
            pending: pending.map(Arc::new),
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

/// The changes in the order of their keys, one per key.
fn changes_in_order(removed: &[EntryKey], added: Vec<Entry>) -> Result<Vec<Change>> {
    let removals = removed.iter().map(|&key| Change {
        key,
        removes: true,
        adds: None,
    });
    let mut changes: Vec<Change> = removals.collect();
    for item in added {
        if let Err(what) = item.check() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("the index refuses {}: {what}", item.address),
            ));
        }
        changes.push(Change {
            key: item.key(),
            removes: false,
            adds: Some(item),
        });
    }
    // Stable: of one key the removal stays in front.
    changes.sort_by_key(|change| change.key);
    let mut merged: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match merged.last_mut() {
            Some(last) if last.key == change.key => {
                if last.adds.is_some() || change.removes {
                    return Err(same_key(change.key));
                }
                last.adds = change.adds;
            }
            _ => merged.push(change),
        }
    }
    Ok(merged)
}

fn same_key(key: EntryKey) -> Error {
    let EntryKey {
        key_min,
        commit,
        ordinal,
    } = key;
    Error::new(
        ErrorKind::Invalid,
        format!(
            "two blocks with key {key_min} are number {ordinal} of commit {}",
            commit.0
        ),
    )
}

fn no_such_key(key: EntryKey) -> Error {
    let EntryKey {
        key_min,
        commit,
        ordinal,
    } = key;
    let what = format!(
        "block {ordinal} of commit {} with key {key_min} is not in the table any more",
        commit.0
    );
    Error::new(ErrorKind::Conflict, what)
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

/// The items of a page of level 1 after the changes.
fn change_items(items: &[Arc<Child>], changes: &[Change]) -> Result<Vec<Arc<Child>>> {
    let mut changed = Vec::with_capacity(items.len() + changes.len());
    let mut rest = items;
    for change in changes {
        let before = rest.partition_point(|item| item.entry.key() < change.key);
        changed.extend_from_slice(&rest[..before]);
        rest = &rest[before..];
        let found = rest
            .first()
            .is_some_and(|item| item.entry.key() == change.key);
        if change.removes {
            rest = rest
                .get(1..)
                .filter(|_| found)
                .ok_or_else(|| no_such_key(change.key))?;
        } else if found {
            return Err(same_key(change.key));
        }
        changed.extend(change.adds.iter().cloned().map(Child::on_disk));
    }
    changed.extend_from_slice(rest);
    Ok(changed)
}

/// The page of an entry, from memory if it is there.
fn page_of(table: TableId, child: &Child, loader: &dyn PageLoader) -> Result<Arc<Page>> {
    match &child.page {
        Some(page) => Ok(Arc::clone(page)),
        None => loader.load_page(table, &child.entry),
    }
}

impl Update<'_> {
    fn page(&self, child: &Child) -> Result<Arc<Page>> {
        page_of(self.table, child, self.loader)
    }

    /// The page of an entry that the new tree will not have.
    fn superseded(&mut self, child: &Child) -> Result<Arc<Page>> {
        let page = self.page(child)?;
        self.freed.extend(page.address());
        Ok(page)
    }

    /// The pages (none, one or several) that take the place of `child` after the changes.
    fn change_page(
        &mut self,
        child: &Child,
        changes: &[Change],
        rightmost: bool,
    ) -> Result<Vec<Arc<Child>>> {
        let page = self.superseded(child)?;
        let old = page.children();
        let (children, appends) = if page.level() == 1 {
            let last = old.last().map(|item| item.entry.key());
            (
                change_items(old, changes)?,
                changes.first().map(|change| change.key) > last,
            )
        } else {
            self.change_pages(old, changes, rightmost)?
        };
        if self.removes || children.is_empty() {
            return Ok(self.pages_of(page.level(), children, rightmost && appends));
        }
        let changed = page.with_children(children);
        if !changed.is_within_limits() {
            return Ok(self.pages_of(
                page.level(),
                changed.children().to_vec(),
                rightmost && appends,
            ));
        }
        // Only additions, and still one page: its total is the old one and what was added.
        let mut entry = Entry {
            address: Address::default(),
            ..child.entry.clone()
        };
        for item in changes.iter().filter_map(|change| change.adds.as_ref()) {
            item.merge_into(&mut entry);
        }
        Ok(vec![Arc::new(Child {
            entry,
            page: Some(Arc::new(changed)),
        })])
    }

    /// The children of an inner page after the changes, and whether only the last of them was touched.
    fn change_pages(
        &mut self,
        old: &[Arc<Child>],
        changes: &[Change],
        rightmost: bool,
    ) -> Result<(Vec<Arc<Child>>, bool)> {
        let mut pages = Vec::with_capacity(old.len() + 1);
        let mut rest = changes;
        let mut appends = true;
        for (index, child) in old.iter().enumerate() {
            let next = old.get(index + 1);
            let here = next.map_or(rest.len(), |next| {
                rest.partition_point(|change| change.key < next.entry.key())
            });
            let (mine, later) = rest.split_at(here);
            rest = later;
            if mine.is_empty() {
                pages.push(Sibling::old(child));
                continue;
            }
            appends &= next.is_none();
            let changed = self.change_page(child, mine, rightmost && next.is_none())?;
            pages.extend(changed.into_iter().map(Sibling::new));
        }
        if self.removes {
            pages = self.join_small(pages)?;
        }
        Ok((pages.into_iter().map(|page| page.child).collect(), appends))
    }

    /// Joins each page that this change has left small with the one before it, or else the one behind it, if there is room.
    ///
    /// Which pages are joined depends on the items and the changes alone, never on what is in memory: the trees of the
    /// writer, of a replay and of reading processes must use the same pages, for a file goes once the writer's needs none of
    /// it. A page that was small before and was not touched had its chance then, and is not looked at.
    ///
    /// Rejected: the number of children in each entry, so that no neighbour is loaded for nothing. It costs every entry a byte
    /// and saves a read where a page runs empty between full ones.
    fn join_small(&mut self, pages: Vec<Sibling>) -> Result<Vec<Sibling>> {
        let mut joined: Vec<Sibling> = Vec::with_capacity(pages.len());
        for page in pages {
            joined.push(page);
            while let [.., left, right] = &joined[..]
                && (left.is_small || right.is_small)
            {
                let Some(both) = self.join(left, right)? else {
                    break;
                };
                joined.truncate(joined.len() - 2);
                joined.push(both);
            }
        }
        Ok(joined)
    }

    /// One page in the place of two; `None` if there is no room.
    fn join(&mut self, left: &Sibling, right: &Sibling) -> Result<Option<Sibling>> {
        let (left, right) = (self.page(&left.child)?, self.page(&right.child)?);
        // Room is left, so that the next insertion does not split what was just joined.
        let summaries = left.summaries() + right.summaries();
        let count = left.children().len() + right.children().len();
        if !Page::fits(count * 4 / 3, summaries * 4 / 3) {
            return Ok(None);
        }
        let freed = left.address().into_iter().chain(right.address());
        self.freed.extend(freed);
        let children = left.children().iter().chain(right.children());
        let page = self.new_page(left.level(), children.cloned().collect());
        Ok(Some(Sibling::new(page)))
    }

    /// Pages of `level` over the children: as few as possible if they came in order, else cut in halves.
    fn pages_of(&self, level: u8, children: Vec<Arc<Child>>, in_order: bool) -> Vec<Arc<Child>> {
        let mut pages = Vec::new();
        let mut uncut = vec![&children[..]];
        while let Some(part) = uncut.pop() {
            let full = full_page(part);
            if full == part.len() {
                pages.extend((full > 0).then(|| self.new_page(level, part.to_vec())));
            } else {
                let (left, right) = part.split_at(if in_order { full } else { part.len() / 2 });
                uncut.extend([right, left]);
            }
        }
        pages
    }

    fn new_page(&self, level: u8, children: Vec<Arc<Child>>) -> Arc<Child> {
        let page = Page::new(self.table, level, children);
        Arc::new(Child {
            entry: page.total(),
            page: Some(Arc::new(page)),
        })
    }

    /// The root without inner pages that have only one child.
    fn without_single_pages(&mut self, mut root: Arc<Child>) -> Result<Arc<Child>> {
        while root.entry.level > 1 {
            let page = self.page(&root)?;
            let [only] = page.children() else { break };
            self.freed.extend(page.address());
            root = Arc::clone(only);
        }
        Ok(root)
    }
}

/// How many of the children make a full page.
fn full_page(children: &[Arc<Child>]) -> usize {
    let mut summaries = 0;
    let fits = |(index, child): &(usize, &Arc<Child>)| {
        summaries += child.entry.columns.len();
        Page::fits(index + 1, summaries)
    };
    children.iter().enumerate().take_while(fits).count()
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

fn trim_child(child: &Arc<Child>) -> Arc<Child> {
    let Some(page) = &child.page else {
        return Arc::clone(child);
    };
    if let Some(entry) = child.addressed() {
        return Child::on_disk(entry);
    }
    if page.children().iter().all(|below| below.page.is_none()) {
        return Arc::clone(child);
    }
    let children = page.children().iter().map(trim_child).collect();
    let page = Some(Arc::new(Page::new(page.table(), page.level(), children)));
    Arc::new(Child {
        entry: child.entry.clone(),
        page,
    })
}
