//! How a change makes a new tree of an old one (docs/format/index.md, "How a commit changes a tree").
//!
//! Invariants
//! - All that one commit takes out of a tree and puts into it is one change: what goes is first.
//! - Pages to which nothing of it belongs stay as they are, and are not read but where a small page is joined with them.
//! - Pages all of whose items leave by a run go without being read.
//! - Which pages come of it depends on the items and the change alone, never on what is in memory.

use super::changes::{Change, Changes, Part, Run, no_such_key, same_key};
use super::page::{Child, Page, PageLoader, page_of, unwritten_below};
use super::{Address, Entry};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TableId;
use std::borrow::Cow;
use std::sync::Arc;

/// A page below an inner page that is changed.
struct Sibling {
    child: Arc<Child>,
    /// The change has made it, and left it nearly empty.
    is_small: bool,
}

impl Sibling {
    /// A sibling that the change does not touch.
    fn old(child: &Arc<Child>) -> Self {
        Self {
            child: Arc::clone(child),
            is_small: false,
        }
    }

    /// A sibling that the change has made: it is in memory.
    fn new(child: Arc<Child>) -> Self {
        let is_small = child.page.as_ref().is_some_and(|page| page.is_small());
        Self { child, is_small }
    }
}

/// How much of a run was found so far.
#[derive(Clone, Debug)]
struct FoundRun {
    run: Run,
    blocks: u64,
    rows: u64,
    has_first: bool,
    has_last: bool,
}

impl FoundRun {
    /// `has_ends`: whether its first and last item are there is not asked.
    fn new(run: &Run, has_ends: bool) -> Self {
        Self {
            run: *run,
            blocks: 0,
            rows: 0,
            has_first: has_ends,
            has_last: has_ends,
        }
    }

    /// Counts an item, or all items below a page.
    fn add(&mut self, entry: &Entry) {
        self.blocks += entry.blocks;
        self.rows += entry.rows;
        self.has_first |= entry.key() == self.run.first;
        self.has_last |= entry.key() == self.run.last;
    }

    fn is_whole(&self) -> bool {
        let counts = (self.blocks, self.rows);
        self.has_first && self.has_last && counts == (self.run.blocks, self.run.rows)
    }
}

/// State that all steps of one change share.
pub(super) struct Update<'a> {
    table: TableId,
    loader: &'a dyn PageLoader,
    freed: &'a mut Vec<Address>,
    removes: bool,
    runs: Vec<FoundRun>,
    /// Bytes of pages that were made, and of pages that were not on disk and are of no use any more.
    made_bytes: u64,
    unmade_bytes: u64,
}

impl<'a> Update<'a> {
    pub(super) fn new(
        table: TableId,
        loader: &'a dyn PageLoader,
        freed: &'a mut Vec<Address>,
        changes: &Changes,
        has_ends: bool,
    ) -> Self {
        let found = |run: &Run| FoundRun::new(run, has_ends);
        Self {
            table,
            loader,
            freed,
            removes: changes.removes(),
            runs: changes.runs().iter().map(found).collect(),
            made_bytes: 0,
            unmade_bytes: 0,
        }
    }

    /// The root after the changes; `None` without items.
    pub(super) fn change_root(
        &mut self,
        root: Option<&Arc<Child>>,
        changes: &Changes,
    ) -> Result<Option<Arc<Child>>> {
        let whole = changes.whole();
        let mut pages = match root {
            Some(root) => self.change_page(root, &whole, true)?,
            None => {
                let items = self.change_items(&[], &whole)?;
                self.pages_of(1, items, true)
            }
        };
        while pages.len() > 1 {
            let level = pages[0].entry.level + 1;
            pages = self.pages_of(level, pages, true);
        }
        let root = pages.pop();
        root.map(|root| self.without_single_pages(root)).transpose()
    }

    /// Refuses runs whose blocks are no longer those that they name.
    pub(super) fn check_runs(&self) -> Result<()> {
        let Some(found) = self.runs.iter().find(|found| !found.is_whole()) else {
            return Ok(());
        };
        let Run {
            first,
            last,
            blocks,
            rows,
        } = found.run;
        let what = format!(
            "the blocks with keys from {} to {} are not the {blocks} blocks with {rows} rows any more that they were",
            first.key_min, last.key_min
        );
        Err(Error::new(ErrorKind::Conflict, what))
    }

    /// Bytes of all pages that are not on disk, of a tree that had so many before.
    pub(super) fn unwritten_bytes(&self, before: u64) -> u64 {
        (before + self.made_bytes).saturating_sub(self.unmade_bytes)
    }

    fn page(&self, child: &Child) -> Result<Arc<Page>> {
        page_of(self.table, child, self.loader)
    }

    /// Notes that the new tree does not have a page.
    fn leave(&mut self, page: &Page) {
        match page.address() {
            Some(address) => self.freed.push(address),
            None => self.unmade_bytes += page.encoded_bytes(),
        }
    }

    /// The page of an entry that the new tree will not have.
    fn superseded(&mut self, child: &Child) -> Result<Arc<Page>> {
        let page = self.page(child)?;
        self.leave(&page);
        Ok(page)
    }

    /// Counts all items below a page to one run, which takes them out.
    fn take_out(&mut self, child: &Child, run: usize) {
        self.runs[run].add(&child.entry);
        match child.addressed() {
            Some(entry) => self.freed.push(entry.address),
            None => self.unmade_bytes += unwritten_below(child),
        }
    }

    /// The pages (none, one or several) that take the place of `child` after the changes.
    fn change_page(
        &mut self,
        child: &Child,
        part: &Part<'_>,
        rightmost: bool,
    ) -> Result<Vec<Arc<Child>>> {
        let page = self.superseded(child)?;
        let old = page.children();
        let (children, appends) = if page.level() == 1 {
            let last = old.last().map(|item| item.entry.key());
            (self.change_items(old, part)?, part.first_key() > last)
        } else {
            self.change_pages(old, part, rightmost)?
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
        for item in part
            .changes()
            .iter()
            .filter_map(|change| change.adds.as_ref())
        {
            item.merge_into(&mut entry);
        }
        changed.note_order(&mut entry);
        Ok(vec![self.made(entry, changed)])
    }

    /// The items of a page of level 1 after the changes.
    fn change_items(&mut self, items: &[Arc<Child>], part: &Part<'_>) -> Result<Vec<Arc<Child>>> {
        let items = self.without_runs(items, part);
        let mut changed = Vec::with_capacity(items.len() + part.changes().len());
        let mut rest = &items[..];
        for change in part.changes() {
            let before = rest.partition_point(|item| item.entry.key() < change.key);
            changed.extend_from_slice(&rest[..before]);
            rest = &rest[before..];
            rest = without_item(rest, change)?;
            changed.extend(change.adds.iter().cloned().map(Child::on_disk));
        }
        changed.extend_from_slice(rest);
        Ok(changed)
    }

    /// The items that no run takes out.
    fn without_runs<'b>(
        &mut self,
        items: &'b [Arc<Child>],
        part: &Part<'_>,
    ) -> Cow<'b, [Arc<Child>]> {
        if part.runs().is_empty() {
            return Cow::Borrowed(items);
        }
        let stays = |item: &&Arc<Child>| {
            let run = part.run_of(item.entry.key());
            if let Some(run) = run {
                self.runs[run].add(&item.entry);
            }
            run.is_none()
        };
        Cow::Owned(items.iter().filter(stays).cloned().collect())
    }

    /// The children of an inner page after the changes, and whether only the last of them was touched.
    fn change_pages(
        &mut self,
        old: &[Arc<Child>],
        part: &Part<'_>,
        rightmost: bool,
    ) -> Result<(Vec<Arc<Child>>, bool)> {
        let mut pages = Vec::with_capacity(old.len() + 1);
        let (mut appends, mut next) = (true, 0);
        for (at, mine) in part.among(old) {
            pages.extend(old[next..at].iter().map(Sibling::old));
            next = at + 1;
            let is_last = next == old.len();
            appends &= is_last;
            match mine.run_over(&old[at].entry) {
                Some(run) => self.take_out(&old[at], run),
                None => {
                    let changed = self.change_page(&old[at], &mine, rightmost && is_last)?;
                    pages.extend(changed.into_iter().map(Sibling::new));
                }
            }
        }
        pages.extend(old[next..].iter().map(Sibling::old));
        if self.removes {
            pages = self.join_small(pages)?;
        }
        Ok((pages.into_iter().map(|page| page.child).collect(), appends))
    }

    /// Joins each page that this change has left small with the one before it, or else the one after it, if there is room.
    ///
    /// Which pages are joined depends on the items and the changes alone, never on what is in memory: the trees of the
    /// writer, of a replay and of reading processes must use the same pages, for a file goes once the writer's needs none of
    /// it. A page that was small before and was not touched had its chance then, and is left alone.
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
        self.leave(&left);
        self.leave(&right);
        let children = left.children().iter().chain(right.children());
        let page = self.new_page(left.level(), children.cloned().collect());
        Ok(Some(Sibling::new(page)))
    }

    /// Pages of `level` over the children: as few as possible if they came in order, else cut in halves.
    fn pages_of(
        &mut self,
        level: u8,
        children: Vec<Arc<Child>>,
        in_order: bool,
    ) -> Vec<Arc<Child>> {
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

    fn new_page(&mut self, level: u8, children: Vec<Arc<Child>>) -> Arc<Child> {
        let page = Page::new(self.table, level, children);
        self.made(page.total(), page)
    }

    fn made(&mut self, entry: Entry, page: Page) -> Arc<Child> {
        self.made_bytes += page.encoded_bytes();
        Child::in_memory(entry, page)
    }

    /// The root without inner pages that have only one child.
    fn without_single_pages(&mut self, mut root: Arc<Child>) -> Result<Arc<Child>> {
        while root.entry.level > 1 {
            let page = self.page(&root)?;
            let [only] = page.children() else { break };
            self.leave(&page);
            root = Arc::clone(only);
        }
        Ok(root)
    }
}

/// The items from the place of a change on, without the one that it removes.
fn without_item<'a>(items: &'a [Arc<Child>], change: &Change) -> Result<&'a [Arc<Child>]> {
    let found = { items.first() }.is_some_and(|item| item.entry.key() == change.key);
    match (change.removes, found) {
        (true, true) => Ok(&items[1..]),
        (true, false) => Err(no_such_key(change.key)),
        (false, true) => Err(same_key(change.key)),
        (false, false) => Ok(items),
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
