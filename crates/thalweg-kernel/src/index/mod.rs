//! The index of one table: a persistent TAB+-tree over its blocks (ChronicleDB, section 5.2).
//!
//! Invariants
//! - Items (blocks, and root pages of fragments) are ordered by [`EntryKey`], and no two have the same key. Order keys
//!   may be equal: the commit and the ordinal decide, which is the order of arrival.
//! - An entry stands for all rows below it. A column that only some of them summarise has a [`ColumnSummary`] that
//!   covers fewer rows than the entry; only [`Entry::covering_summary`] may be used to answer or to prune.
//! - Pages are immutable and hold entries by value: whoever refers to a page or block vouches for its head by checksum.

mod changed;
mod changes;
mod check;
mod difference;
mod held;
mod list;
mod name;
mod nearest;
mod page;
mod pending;
mod runs;
mod summaries;
mod summary_bytes;
mod tree;
mod update;
mod walk;

pub use changes::Run;
pub(crate) use check::{check_page, unequal_totals};
pub use difference::{Difference, ItemChange};
pub(crate) use held::HeldPages;
pub use list::{MAX_LIST_ENTRIES, MAX_LIST_SUMMARIES, decode_entries, encode_entries, lists_of};
pub use name::ItemName;
pub use nearest::Nearest;
pub use page::{Page, PageLoader, UnsealedPage};
pub(crate) use pending::{Pending, Waiting};
pub use runs::ItemRun;
pub use summaries::{Summaries, SummaryList};
pub use tree::{Tree, WrittenPages};
pub(crate) use walk::Heritage;
pub use walk::{Blocks, Place, Step, Walk};

use crate::ids::{CommitNo, FileId};
pub use crate::size_limits::MAX_PAGE_ENTRIES;
use crate::size_limits::MAX_POSITIONS;
use crate::summary::{ByteBounds, ColumnSummary, ValueRange};
use std::fmt;

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

/// When rows came, to be compared with others of their table: by commit, then by number in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival {
    /// The commit.
    pub commit: CommitNo,
    /// The number of the block within the commit.
    pub ordinal: u32,
}

impl Arrival {
    /// Converts a number that counts from `first` to one that counts from 0.
    fn counted_from(self, first: u32) -> Self {
        let ordinal = self.ordinal.saturating_sub(first);
        Self { ordinal, ..self }
    }

    /// Converts a number that counts from 0 to one of `commit` that counts from `first`.
    fn after(self, commit: CommitNo, first: u32) -> Self {
        let ordinal = first.saturating_add(self.ordinal);
        Self { commit, ordinal }
    }
}

/// The smallest and the largest of the keys of blocks, which are not in their rows: tiles, or what else a layout defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockKeys {
    /// Of a block its key.
    pub smallest: i64,
    /// Of a block its key.
    pub largest: i64,
}

impl BlockKeys {
    fn merge(self, other: Self) -> Self {
        Self {
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
        }
    }
}

/// The entry of a block, or of an index page with all blocks below it: what is known without reading them. Made by
/// `BlockBuilder::finish`; the kernel fills in where it lies and which commit it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// 0 for a block, the level of the page (1 = its entries are items) otherwise.
    pub level: u8,
    /// All rows below are in key order: those of each block are, and each block ends before the next one begins.
    pub sorted: bool,
    /// Of a page whose rows are in order: the arrival of the last block below. Of others nothing, all zeros.
    pub last: Arrival,
    /// Fragments among the items below; of an item 0, whether it is a fragment or not.
    pub fragments: u32,
    /// It is the root page of a fragment, an item of the tree like a block, and all below lies in the fragment.
    pub fragment: bool,
    /// Two rows of a block below have the same coordinates (arrays alone).
    pub versions: bool,
    /// How often the rows of the block were rewritten; of a page the smallest of the blocks below. It stays at 255.
    pub rewritten: u8,
    /// The keys of the blocks below, if all have one of their own.
    pub block_keys: Option<BlockKeys>,
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
    /// An entry of which nothing is known: level and address are enough to load a page.
    #[must_use]
    pub fn unknown() -> Self {
        let none = CommitNo(0);
        Self {
            level: 0,
            sorted: false,
            last: Arrival::default(),
            fragments: 0,
            fragment: false,
            versions: false,
            rewritten: 0,
            block_keys: None,
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

    /// When its first rows came; of a page those of the leftmost block.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        Arrival {
            commit: self.first_commit,
            ordinal: self.ordinal,
        }
    }

    /// The place of its first row in the order of its table: the smallest key, and when rows with it came.
    #[must_use]
    pub fn start(&self) -> (i64, Arrival) {
        (self.key_min, self.arrival())
    }

    /// The place of its last row. Of a page whose rows are not in order it has the largest key and the arrival of the first block:
    /// the last row may lie before or after it.
    #[must_use]
    pub fn end(&self) -> (i64, Arrival) {
        let last = match self.is_page_in_order() {
            true => self.last,
            false => self.arrival(),
        };
        (self.key_max, last)
    }

    /// Whether it is a page below which all rows are in order.
    #[must_use]
    pub fn is_page_in_order(&self) -> bool {
        self.sorted && self.level > 0
    }

    /// Fragments at it or among the items below.
    #[must_use]
    pub fn fragment_count(&self) -> u32 {
        match self.fragment {
            true => 1,
            false => self.fragments,
        }
    }

    /// Whether it is a block, not a page.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.level == 0
    }

    /// The same entry as the root of a fragment, which is an item of the tree.
    #[must_use]
    pub(crate) fn into_fragment(self) -> Self {
        Self {
            fragment: true,
            ..self
        }
    }

    /// The same entry with rows of the commits from `first` to `last`, as number `ordinal` of `first`; the blocks of a fragment that
    /// was written before its commit had a number take those from `ordinal` on.
    #[must_use]
    pub fn committed(mut self, first: CommitNo, last: CommitNo, ordinal: u32) -> Self {
        // It may have been given a number before, for a commit that was not written.
        let counts_from = match self.commit_max.0 {
            0 => 0,
            _ => self.ordinal,
        };
        if self.is_page_in_order() {
            self.last = self.last.counted_from(counts_from).after(first, ordinal);
        }
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

    /// The bounds of a column of strings or binaries, if its summary covers all rows below and it has values.
    #[must_use]
    pub fn covering_bounds(&self, column_id: u32) -> Option<&ByteBounds> {
        self.columns.bounds_of(self.covering_summary(column_id)?)
    }

    /// Whether no row below can have a value of the column in `range`.
    #[must_use]
    pub fn prunes(&self, column_id: u32, range: &ValueRange) -> bool {
        self.covering_summary(column_id)
            .is_some_and(|summary| summary.prunes_with(self.columns.bounds_of(summary), range))
    }

    /// Estimates how many bytes it takes in a directory or page, after a neighbour like it. Work it out once.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        list::bytes_of(self)
    }

    /// Adds all that lies below this entry to `parent`: counts, ranges, summaries. Not whether the parent's rows are in order,
    /// which follows only from all of its entries together.
    pub fn merge_into(&self, parent: &mut Entry) {
        let mut columns = SummaryList::from(&parent.columns);
        self.merge_counts_into(parent);
        columns.merge(&self.columns);
        parent.columns = columns.into();
    }

    fn merge_counts_into(&self, parent: &mut Entry) {
        if self.key() < parent.key() {
            (parent.first_commit, parent.ordinal) = (self.first_commit, self.ordinal);
        }
        parent.versions |= self.versions;
        parent.rewritten = parent.rewritten.min(self.rewritten);
        let keys = parent.block_keys.zip(self.block_keys);
        parent.block_keys = keys.map(|(parent, below)| parent.merge(below));
        parent.fragments = parent.fragments.saturating_add(self.fragment_count());
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
            fragment: false,
            fragments: first.fragment_count(),
            address: Address::default(),
            ..first.clone()
        };
        let mut columns = SummaryList::from(&first.columns);
        let (mut last, mut sorted) = (first, first.sorted);
        for entry in entries {
            entry.merge_counts_into(&mut page);
            columns.merge(&entry.columns);
            sorted &= entry.keeps_order_after(last);
            last = entry;
        }
        page.columns = columns.into();
        page.note_order(sorted, last);
        Some(page)
    }

    /// Whether its rows are in order and come after those of an entry that are.
    pub(crate) fn keeps_order_after(&self, before: &Entry) -> bool {
        self.sorted && before.end() < self.start()
    }

    /// Notes in the entry of a page whether all rows below are in order; `last` is the last entry of the page.
    pub(crate) fn note_order(&mut self, sorted: bool, last: &Entry) {
        self.sorted = sorted;
        self.last = match sorted {
            true => last.end().1,
            false => Arrival::default(),
        };
    }

    /// Checks what must hold of every entry, wherever it comes from. `Err` names what does not.
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
        let last = self.last;
        let is_of_its_commits = self.commit_min <= last.commit && last.commit <= self.commit_max;
        ensure(
            match self.is_page_in_order() {
                true => is_of_its_commits,
                false => last == Arrival::default(),
            },
            "a page names a last block that is of none of its commits, or though its rows are not in order",
        )?;
        ensure(
            u64::from(self.fragments) <= self.blocks
                && (self.fragments == 0 || self.level > 0 && !self.fragment),
            "an entry has more fragments below it than blocks",
        )?;
        ensure(
            self.level > 0 || self.first_commit == self.commit_min,
            "a block has two first commits",
        )?;
        ensure(
            self.level > 0 || !self.fragment,
            "a block is marked as a fragment",
        )?;
        let keys = self.block_keys.map(|keys| (keys.smallest, keys.largest));
        ensure(
            keys.is_none_or(|(smallest, largest)| {
                smallest == largest || self.level > 0 && smallest < largest
            }),
            "a block has two keys, or keys are in the wrong order",
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

#[cfg(test)]
mod tests;
