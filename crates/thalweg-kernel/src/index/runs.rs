//! Runs of items under their names, and how they are found in a tree.
//!
//! Invariants: a run is all items with keys from that of its first to that of its last one, so whatever lies between two items
//! of a run belongs to it; pages that lie in a run as a whole are not read, except on the paths to its ends.

use super::changes::Run;
use super::page::{Child, PageLoader, page_of};
use super::{Entry, EntryKey, ItemName, Tree};
use crate::error::Result;
use crate::fields::PutFields;
use crate::ids::TableId;
use crate::wire::{Fault, Reader};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// All items of an order with keys from that of the first one to that of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRun {
    /// The first item.
    pub first: ItemName,
    /// The last item, which may be the first one.
    pub last: ItemName,
    /// Blocks below all of them.
    pub blocks: u64,
    /// Rows below them.
    pub rows: u64,
}

impl ItemRun {
    /// Bytes of a run.
    pub(crate) const BYTES: usize = 80;

    /// Whether an item with this key is one of it.
    #[must_use]
    pub fn contains(&self, key: EntryKey) -> bool {
        (self.first.key..=self.last.key).contains(&key)
    }

    /// The same run by keys.
    pub(crate) fn by_keys(&self) -> Run {
        Run {
            first: self.first.key,
            last: self.last.key,
            blocks: self.blocks,
            rows: self.rows,
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.first.put(out);
        self.last.put(out);
        out.put_u64(self.blocks);
        out.put_u64(self.rows);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (first, last) = (ItemName::read(reader)?, ItemName::read(reader)?);
        let (blocks, rows) = (reader.u64()?, reader.u64()?);
        Ok(Self {
            first,
            last,
            blocks,
            rows,
        })
    }

    pub(crate) fn is_sound(&self) -> bool {
        let is_one = self.first.key == self.last.key;
        self.first.key <= self.last.key
            && (!is_one || self.first == self.last)
            && self.blocks >= 1
            && self.rows >= self.blocks
    }
}

/// How much of what lies below an entry is to be in runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    None,
    Some,
    All,
}

/// Which items are to be in runs.
enum Wanted<'a> {
    /// Those all of whose rows have order keys of a range.
    Within(RangeInclusive<i64>),
    /// Those with keys of a run, without some.
    Of(&'a ItemRun, &'a BTreeSet<EntryKey>),
}

impl Wanted<'_> {
    /// How much of an item is to be in runs, or of a page whose items all have keys below `end`.
    fn share(&self, entry: &Entry, is_item: bool, end: Option<EntryKey>) -> Share {
        match self {
            Self::Within(keys) => {
                let is_whole = *keys.start() <= entry.key_min && entry.key_max <= *keys.end();
                let is_before = end.is_some_and(|end| end.key_min < *keys.start());
                match (is_whole, is_item) {
                    (true, _) => Share::All,
                    (false, true) => Share::None,
                    _ if is_before || entry.key_min > *keys.end() => Share::None,
                    _ => Share::Some,
                }
            }
            Self::Of(run, without) => {
                let key = entry.key();
                if is_item {
                    return match run.contains(key) && !without.contains(&key) {
                        true => Share::All,
                        false => Share::None,
                    };
                }
                let is_outside = key > run.last.key || end.is_some_and(|end| end <= run.first.key);
                let Some(end) = end else {
                    return if is_outside { Share::None } else { Share::Some };
                };
                let is_whole = key >= run.first.key
                    && end <= run.last.key
                    && without.range(key..end).next().is_none();
                match (is_outside, is_whole) {
                    (true, _) => Share::None,
                    (false, true) => Share::All,
                    (false, false) => Share::Some,
                }
            }
        }
    }
}

/// Runs as they are found, from the left to the right.
struct Finding<'a> {
    table: TableId,
    loader: &'a dyn PageLoader,
    wanted: Wanted<'a>,
    runs: Vec<ItemRun>,
    /// The run that may go on, and the page that its last item lies below.
    open: Option<(ItemRun, Option<Arc<Child>>)>,
}

impl Finding<'_> {
    fn below(&mut self, page: &Child, end: Option<EntryKey>) -> Result<()> {
        let page = page_of(self.table, page, self.loader)?;
        let are_items = page.level() <= 1;
        let children = page.children();
        for (at, child) in children.iter().enumerate() {
            let next = children.get(at + 1).map(|next| next.entry.key());
            let end = next.or(end);
            match self.wanted.share(&child.entry, are_items, end) {
                Share::None => self.end_run()?,
                Share::Some => self.below(child, end)?,
                Share::All => self.add(child, are_items)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, child: &Arc<Child>, is_item: bool) -> Result<()> {
        let below = (!is_item).then(|| Arc::clone(child));
        if self.open.is_none() {
            let first = match is_item {
                true => ItemName::of(&child.entry),
                false => self.outermost(child, false)?,
            };
            let none = ItemRun {
                first,
                last: first,
                blocks: 0,
                rows: 0,
            };
            self.open = Some((none, None));
        }
        if let Some((run, last)) = &mut self.open {
            run.blocks += child.entry.blocks;
            run.rows += child.entry.rows;
            if is_item {
                run.last = ItemName::of(&child.entry);
            }
            *last = below;
        }
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        let Some((mut run, last)) = self.open.take() else {
            return Ok(());
        };
        if let Some(page) = last {
            run.last = self.outermost(&page, true)?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// The first or the last item below a page.
    fn outermost(&self, page: &Arc<Child>, is_last: bool) -> Result<ItemName> {
        let mut next = Arc::clone(page);
        loop {
            let page = page_of(self.table, &next, self.loader)?;
            let child = match is_last {
                true => page.children().last(),
                false => page.children().first(),
            };
            // A page has entries.
            let Some(child) = child else {
                return Ok(ItemName::of(&next.entry));
            };
            if page.level() <= 1 {
                return Ok(ItemName::of(&child.entry));
            }
            next = Arc::clone(child);
        }
    }
}

impl Tree {
    /// The items all of whose rows have order keys of a range, as runs: an item between two of them that reaches out of the range
    /// ends one. Pages that lie in the range as a whole are read only on the paths to both ends of a run.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn runs_within(
        &self,
        keys: RangeInclusive<i64>,
        loader: &dyn PageLoader,
    ) -> Result<Vec<ItemRun>> {
        self.find_runs(Wanted::Within(keys), loader)
    }

    /// A run without some of the items that are in it by now, which makes several of it.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub(crate) fn run_without(
        &self,
        run: &ItemRun,
        items: &BTreeSet<EntryKey>,
        loader: &dyn PageLoader,
    ) -> Result<Vec<ItemRun>> {
        self.find_runs(Wanted::Of(run, items), loader)
    }

    fn find_runs(&self, wanted: Wanted<'_>, loader: &dyn PageLoader) -> Result<Vec<ItemRun>> {
        let tree = self.settled(loader)?;
        let mut finding = Finding {
            table: self.table(),
            loader,
            wanted,
            runs: Vec::new(),
            open: None,
        };
        if let Some(root) = &tree.root {
            finding.below(root, None)?;
        }
        finding.end_run()?;
        Ok(finding.runs)
    }
}
