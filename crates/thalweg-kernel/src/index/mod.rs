//! The index of one table: a persistent TAB+-tree over its blocks (ChronicleDB, section 5.2).
//!
//! Invariants
//! - Items (blocks, and root pages of fragments) are ordered by [`EntryKey`], and no two have the same key. Order keys
//!   may be equal: the commit and the ordinal decide, which is the order of arrival.
//! - An entry speaks for all rows below it. A column that only some of them summarise has a [`ColumnSummary`] that
//!   covers fewer rows than the entry; only [`Entry::covering_summary`] may be used to answer or to prune.
//! - Pages are immutable and hold entries by value: whoever refers to a page or block vouches for its head by checksum.

mod check;
mod held;
mod list;
mod name;
mod page;
mod pending;
mod tree;
mod walk;

pub(crate) use check::{check_page, unequal_totals};
pub(crate) use held::HeldPages;
pub(crate) use list::lists_of;
pub use list::{MAX_LIST_ENTRIES, MAX_LIST_SUMMARIES, decode_entries, encode_entries};
pub use name::ItemName;
pub use page::{Page, PageLoader, UnsealedPage};
pub(crate) use pending::Pending;
pub use tree::{Tree, WrittenPages};
pub use walk::{Blocks, Place, Step, Walk};

use crate::block::MAX_POSITIONS;
use crate::ids::{CommitNo, FileId};
use crate::summary::{ColumnSummary, ValueRange};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Most entries of a page. (Small in this crate's unit tests, so that few blocks make a high tree.)
pub const MAX_PAGE_ENTRIES: usize = if cfg!(test) { 8 } else { 256 };

/// Column summaries from which on a page counts as full: wide tables have a smaller fan-out.
pub const MAX_PAGE_SUMMARIES: usize = if cfg!(test) { 20 } else { 16_384 };

/// Pages never have fewer entries than this because of their width alone.
pub const MIN_PAGE_FANOUT: usize = if cfg!(test) { 3 } else { 8 };

/// Most columns of a block that may be summarised.
pub const MAX_SUMMARIES: usize = 4_096;

/// Most levels of pages: with at least [`MIN_PAGE_FANOUT`] entries per page far beyond any table.
pub const MAX_LEVEL: u8 = 30;

/// Where a block or an index page lies. `head_bytes` is what must be read to know the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// The segment or fragment.
    pub file: FileId,
    /// From the start of the file.
    pub offset: u64,
    /// All of it.
    pub bytes: u32,
    /// The header and directory at its front (of a page: all of it).
    pub head_bytes: u32,
    /// CRC32C of the head: the parent vouches for the child, so an old child cannot stand in for a newer one.
    pub head_crc: u32,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {:016x}, offset {}", self.file.0, self.offset)
    }
}

/// The place of an item in the order of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// The smallest order key.
    pub key_min: i64,
    /// The first commit; of a page the first commit of its leftmost block.
    pub commit: CommitNo,
    /// The number within the commit.
    pub ordinal: u32,
}

/// What is known of a block, or of all blocks below an index page. Made by `BlockBuilder::finish`; the kernel fills in
/// where it lies and which commit it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// 0 for a block, the level of the page (1 = its entries are items) otherwise.
    pub level: u8,
    /// All rows of the block are in key order (pages: meaningless, false).
    pub sorted: bool,
    /// Rows below.
    pub rows: u64,
    /// Blocks below.
    pub blocks: u64,
    /// Encoded bytes of the blocks below.
    pub block_bytes: u64,
    /// Smallest order key (the time of a stream).
    pub key_min: i64,
    /// Largest order key. Not monotonic in the order of entries: readers sweep by `key_min`.
    pub key_max: i64,
    /// First commit whose rows are in here; 0 in the pages of a fragment that was written before its commit had a
    /// number: the commit of the entry that leads there.
    pub commit_min: CommitNo,
    /// Last commit whose rows are in here.
    pub commit_max: CommitNo,
    /// `commit_min` of the leftmost block below, for the order of pages; of a block its `commit_min`.
    pub first_commit: CommitNo,
    /// The number of the block within its commit; a fragment takes as many numbers as it has blocks.
    pub ordinal: u32,
    /// Where it lies.
    pub address: Address,
    /// Summaries by column, ascending ids; columns without one are absent.
    pub columns: Summaries,
}

impl Entry {
    /// An entry of which only level and address are to be filled in, to load a page of which no more is known.
    pub(crate) fn unknown() -> Self {
        let none = CommitNo(0);
        Self {
            level: 0,
            sorted: false,
            rows: 0,
            blocks: 0,
            block_bytes: 0,
            key_min: i64::MIN,
            key_max: i64::MAX,
            commit_min: none,
            commit_max: none,
            first_commit: none,
            ordinal: 0,
            address: Address::default(),
            columns: Summaries::default(),
        }
    }

    /// Its place in the order of entries.
    #[must_use]
    pub fn key(&self) -> EntryKey {
        EntryKey {
            key_min: self.key_min,
            commit: self.first_commit,
            ordinal: self.ordinal,
        }
    }

    /// Whether it is a block, not a page.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.level == 0
    }

    /// The same entry with rows of the commits from `first` to `last`, as number `ordinal` of `first`.
    #[must_use]
    pub fn committed(mut self, first: CommitNo, last: CommitNo, ordinal: u32) -> Self {
        (self.commit_min, self.commit_max, self.first_commit) = (first, last, first);
        self.ordinal = ordinal;
        self
    }

    /// The summary of a column, if it covers all rows below.
    #[must_use]
    pub fn covering_summary(&self, column_id: u32) -> Option<&ColumnSummary> {
        self.columns
            .of_column(column_id)
            .filter(|summary| summary.rows() == self.rows)
    }

    /// Whether no row below can have a value of the column in `range`.
    #[must_use]
    pub fn prunes(&self, column_id: u32, range: &ValueRange) -> bool {
        self.covering_summary(column_id)
            .is_some_and(|summary| summary.prunes(range))
    }

    /// About how many bytes it takes in a directory or page.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        24 + self.columns.len() * 32
    }

    /// Adds all that lies below this entry to `parent`: counts, ranges, summaries.
    pub fn merge_into(&self, parent: &mut Entry) {
        let mut columns: Vec<ColumnSummary> = parent.columns.to_vec();
        self.merge_counts_into(parent);
        merge_columns(&mut columns, &self.columns);
        parent.columns = columns.into();
    }

    fn merge_counts_into(&self, parent: &mut Entry) {
        if self.key() < parent.key() {
            (parent.first_commit, parent.ordinal) = (self.first_commit, self.ordinal);
        }
        parent.rows += self.rows;
        parent.blocks += self.blocks;
        parent.block_bytes += self.block_bytes;
        parent.key_min = parent.key_min.min(self.key_min);
        parent.key_max = parent.key_max.max(self.key_max);
        parent.commit_min = parent.commit_min.min(self.commit_min);
        parent.commit_max = parent.commit_max.max(self.commit_max);
    }

    /// The entry of a page of `level` over `entries`, which must be in order; its address is still unknown.
    pub(crate) fn of_page<'a>(
        level: u8,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Option<Entry> {
        let mut entries = entries.into_iter();
        let first = entries.next()?;
        let mut page = Entry {
            level,
            sorted: false,
            address: Address::default(),
            ..first.clone()
        };
        let mut columns = first.columns.to_vec();
        for entry in entries {
            entry.merge_counts_into(&mut page);
            merge_columns(&mut columns, &entry.columns);
        }
        page.columns = columns.into();
        Some(page)
    }

    /// What must hold of every entry, from wherever it comes. `Err` says what does not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure =
            |condition: bool, what: &'static str| if condition { Ok(()) } else { Err(what) };
        ensure(self.level <= MAX_LEVEL, "an entry has too high a level")?;
        ensure(self.rows > 0 && self.blocks > 0, "an entry without rows")?;
        ensure(
            self.blocks <= self.rows,
            "an entry has more blocks than rows",
        )?;
        ensure(
            self.level > 0 || self.blocks == 1,
            "a block counts as several",
        )?;
        ensure(
            self.level > 0 || self.rows <= u64::from(MAX_POSITIONS),
            "a block has more rows than positions",
        )?;
        ensure(
            self.level > 0 || self.block_bytes == u64::from(self.address.bytes),
            "a block has two lengths",
        )?;
        ensure(
            self.level == 0 || !self.sorted,
            "a page is marked as sorted",
        )?;
        ensure(
            self.level > 0 || self.first_commit == self.commit_min,
            "a block has two first commits",
        )?;
        ensure(
            self.key_min <= self.key_max,
            "an entry's keys are in the wrong order",
        )?;
        ensure(
            self.commit_min <= self.first_commit,
            "an entry begins before its first commit",
        )?;
        ensure(
            self.first_commit <= self.commit_max,
            "an entry's commits are in the wrong order",
        )?;
        ensure(
            self.address.head_bytes <= self.address.bytes,
            "a head is longer than the whole",
        )?;
        ensure(
            self.columns.len() <= MAX_SUMMARIES,
            "too many columns are summarised",
        )?;
        ensure(
            self.columns
                .windows(2)
                .all(|pair| pair[0].column_id < pair[1].column_id),
            "columns are not in order",
        )?;
        ensure(
            self.columns.iter().all(|column| column.rows() <= self.rows),
            "a summary covers more rows than there are",
        )
    }
}

/// Merges `from` into `into`; both ascend by column id. A column of one side only keeps its summary, which then covers
/// fewer rows than the whole.
fn merge_columns(into: &mut Vec<ColumnSummary>, from: &[ColumnSummary]) {
    let same_columns = into.len() == from.len()
        && into
            .iter()
            .zip(from)
            .all(|(a, b)| a.column_id == b.column_id);
    if same_columns {
        into.iter_mut().zip(from).for_each(|(a, b)| *a = a.merge(b));
        return;
    }
    let mut merged = Vec::with_capacity(into.len().max(from.len()));
    let (mut left, mut right) = (into.iter().peekable(), from.iter().peekable());
    loop {
        merged.push(match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.column_id == b.column_id => a.merge(b),
            (Some(a), Some(b)) if a.column_id > b.column_id => **b,
            (Some(a), _) => **a,
            (None, Some(b)) => **b,
            (None, None) => break,
        });
        let taken = merged.last().map_or(0, |column| column.column_id);
        left.next_if(|column| column.column_id == taken);
        right.next_if(|column| column.column_id == taken);
    }
    // A summary may always be missing; a page over very many different columns keeps those with the lowest ids.
    merged.truncate(MAX_SUMMARIES);
    *into = merged;
}

/// The summaries of one entry: a part of a shared array, so that a page of 256 entries is one allocation.
#[derive(Clone, Default)]
pub struct Summaries {
    /// Not `Arc<[_]>`, which would copy the array once more when a page is read. `None` for no summaries: an entry without
    /// them, or one that gets them later, allocates nothing.
    shared: Option<Arc<Vec<ColumnSummary>>>,
    start: u32,
    len: u32,
}

impl Summaries {
    /// A part of an array that is not whole yet: without summaries until [`Self::share`].
    fn part_to_come(range: std::ops::Range<usize>) -> Self {
        let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            shared: None,
            start: index(range.start),
            len: index(range.len()),
        }
    }

    /// Makes this a part of an array that other entries share.
    ///
    /// # Panics
    /// When the array has no such part.
    fn share(&mut self, shared: &Arc<Vec<ColumnSummary>>) {
        let end = (self.start as usize).saturating_add(self.len as usize);
        let has_part = end <= shared.len() && end < u32::MAX as usize;
        assert!(
            has_part,
            "part {}..{end} of {} summaries",
            self.start,
            shared.len()
        );
        self.shared = Some(Arc::clone(shared));
    }

    /// The summary of a column.
    #[must_use]
    pub fn of_column(&self, column_id: u32) -> Option<&ColumnSummary> {
        let columns: &[ColumnSummary] = self;
        let is_it = |summary: &&ColumnSummary| summary.column_id == column_id;
        // Columns are numbered from 1 on, and mostly all of them have one. A search would touch a cache line for each step.
        let expected = columns.get((column_id as usize).wrapping_sub(1));
        expected.filter(is_it).or_else(|| {
            let at = columns
                .binary_search_by_key(&column_id, |summary| summary.column_id)
                .ok()?;
            columns.get(at)
        })
    }
}

impl Deref for Summaries {
    type Target = [ColumnSummary];

    fn deref(&self) -> &[ColumnSummary] {
        match &self.shared {
            Some(shared) => &shared[self.start as usize..][..self.len as usize],
            None => &[],
        }
    }
}

impl From<Vec<ColumnSummary>> for Summaries {
    fn from(columns: Vec<ColumnSummary>) -> Self {
        let mut all = Self::part_to_come(0..columns.len());
        if !columns.is_empty() {
            all.share(&Arc::new(columns));
        }
        all
    }
}

impl FromIterator<ColumnSummary> for Summaries {
    fn from_iter<I: IntoIterator<Item = ColumnSummary>>(columns: I) -> Self {
        columns.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for Summaries {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Summaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests;
