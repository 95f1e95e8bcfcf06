//! Facts about a table that need none of its rows, except for the smallest and largest key of blocks with deleted rows.
//!
//! Invariants: the totals come from the root of the index and the open rows, in the same time however many blocks there are. Late
//! rows take a walk of the parts of the index that are not in order; the smallest and largest key, where rows are deleted, a walk
//! to the first row that is not; lists of blocks a walk of the whole index.

use crate::block_list::BlockList;
use crate::deleted_rows::{Block, step_into};
use crate::late::{Came, late_open_rows};
use crate::overlap::{high_keys_before, late_rows_in_blocks, ranges_from_right};
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::table::{Table, TableStats, TableView};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, Step};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::{CommitNo, FileId, Result};

/// The sizes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableTotals {
    /// Rows that are not deleted.
    pub rows: u64,
    /// Bytes of its blocks, those of its secondary orders too, and of its open rows.
    pub bytes: u64,
    /// Encoded blocks.
    pub blocks: u64,
    /// Files that hold blocks of this table alone.
    pub fragments: u64,
    /// Rows that are in no block yet.
    pub open_rows: u64,
}

/// A block of a table, as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// The segment of the log or the fragment that it lies in.
    pub file: FileId,
    /// From the start of the file.
    pub offset_bytes: u64,
    /// Encoded.
    pub bytes: u64,
    /// Rows, deleted ones too.
    pub rows: u64,
    /// Rows that are deleted.
    pub deleted_rows: u64,
    /// The smallest order key.
    pub min_key: i64,
    /// The largest order key.
    pub max_key: i64,
    /// The first commit with rows of it.
    pub first_commit: CommitNo,
    /// The last commit with rows of it.
    pub last_commit: CommitNo,
}

/// A file of blocks of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFacts {
    /// The file.
    pub file: FileId,
    /// Encoded bytes of its blocks.
    pub bytes: u64,
    /// Blocks with rows that are not deleted.
    pub blocks: u64,
    /// Rows, deleted ones too.
    pub rows: u64,
    /// The smallest order key.
    pub min_key: i64,
    /// The largest order key.
    pub max_key: i64,
}

impl Table {
    /// Facts about the table as it is now.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::Value;
    ///
    /// for second in [3, 1, 2] {
    ///     room.put(&[Value::Int(second), Value::Float(20.0)], None)?;
    /// }
    /// let stats = room.stats()?;
    /// assert_eq!((stats.rows, stats.min_key, stats.max_key), (3, Some(1), Some(3)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn stats(&self) -> Result<TableStats> {
        self.view()?.stats()
    }
}

impl TableView {
    /// Facts about the table. Takes a walk of those parts of its index where blocks overlap, or have deleted rows.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn stats(&self) -> Result<TableStats> {
        self.engine().closed().check()?;
        stats(self)
    }

    /// The sizes of the table, from memory.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::Value;
    ///
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// let totals = room.view()?.totals();
    /// assert_eq!((totals.rows, totals.open_rows, totals.blocks), (1, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn totals(&self) -> TableTotals {
        let table = self.snapshot();
        let (mut open_rows, mut open_bytes) = (0, 0);
        for open in table.open_rows() {
            let hidden = table.hidden_in(open);
            let hidden = hidden.map_or(0, |hidden| hidden.rows().into());
            open_rows += u64::from(open.part.rows).saturating_sub(hidden);
            open_bytes += open.part.payload.len() as u64;
        }
        let totals = table.trees().filter_map(|(_, tree)| tree.total());
        let block_bytes: u64 = totals.map(|total| total.block_bytes).sum();
        let rows = table.tree.total();
        TableTotals {
            rows: table.rows_in_blocks() + open_rows,
            bytes: block_bytes + open_bytes,
            blocks: rows.map_or(0, |total| total.blocks),
            fragments: rows.map_or(0, Entry::fragment_count).into(),
            open_rows,
        }
    }

    /// Rows that came late and were not put in order yet. Takes a walk of those parts of the index where blocks overlap.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn late_rows(&self) -> Result<u64> {
        self.engine().closed().check()?;
        late_rows(self)
    }

    /// The smallest and the largest order key of the rows that are not deleted; `None` if there are none. Where rows are deleted it takes
    /// a walk of the index up to the first that is not, from both ends.
    ///
    /// # Errors
    /// When the index, or a block with deleted rows, cannot be read.
    pub fn kept_key_range(&self) -> Result<Option<KeyRange>> {
        self.engine().closed().check()?;
        match self.snapshot().masks() {
            None => Ok(self.key_range()),
            Some(_) => keys_of_kept_rows(self),
        }
    }

    /// The blocks with rows that are not deleted, by their smallest keys. Takes a walk of the index.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts").with("split", 60))?;
    /// use thalweg::Value;
    ///
    /// let mut appender = room.appender();
    /// for second in 0..180 {
    ///     appender.put(&[Value::Int(second), Value::Float(20.0)])?;
    /// }
    /// appender.flush()?;
    /// room.maintain()?;
    /// let blocks = room.view()?.blocks()?; // none has rows of two minutes, for `split` is 60
    /// let ranges: Vec<_> = blocks.iter().map(|block| (block.min_key, block.max_key)).collect();
    /// assert_eq!(ranges, [(0, 59), (60, 119), (120, 179)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn blocks(&self) -> Result<Vec<BlockFacts>> {
        self.engine().closed().check()?;
        let list = BlockList::read(self)?;
        let hidden = |at: usize| list.masks.get(&at).map(BlockMask::rows);
        let facts = |(at, block): (usize, &Entry)| BlockFacts {
            file: block.address.file,
            offset_bytes: block.address.offset,
            bytes: block.block_bytes,
            rows: block.rows,
            deleted_rows: hidden(at).unwrap_or(0),
            min_key: block.key_min,
            max_key: block.key_max,
            first_commit: block.commit_min,
            last_commit: block.commit_max,
        };
        Ok(list.blocks.iter().enumerate().map(facts).collect())
    }

    /// The files that hold nothing but blocks of this table. Takes a walk of the index.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn fragments(&self) -> Result<Vec<FragmentFacts>> {
        self.engine().closed().check()?;
        let list = BlockList::read(self)?;
        let mut found: BTreeMap<FileId, FragmentFacts> = BTreeMap::new();
        for block in &list.blocks {
            let file = block.address.file;
            let Some(fragment) = list.fragments.get(&file) else {
                continue;
            };
            let facts = found.entry(file).or_insert(FragmentFacts {
                file,
                bytes: fragment.bytes,
                blocks: 0,
                rows: fragment.rows,
                min_key: block.key_min,
                max_key: block.key_max,
            });
            facts.blocks += 1;
            facts.min_key = facts.min_key.min(block.key_min);
            facts.max_key = facts.max_key.max(block.key_max);
        }
        Ok(found.into_values().collect())
    }
}

fn stats(view: &TableView) -> Result<TableStats> {
    let totals = view.totals();
    let keys = view.kept_key_range()?;
    Ok(TableStats {
        rows: totals.rows,
        bytes: totals.bytes,
        blocks: totals.blocks,
        fragments: totals.fragments,
        open_rows: totals.open_rows,
        late_rows: late_rows(view)?,
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}

/// Rows that came late and were not put in order yet.
fn late_rows(view: &TableView) -> Result<u64> {
    let (table, store) = (view.snapshot(), view.engine().kernel().store());
    let open = table.open_rows().map(|open| {
        let hidden = table.hidden_in(open);
        let hidden = hidden.map_or(0, |hidden| hidden.rows().into());
        let came = Came::of_open_rows(open);
        Came {
            rows: came.rows.saturating_sub(hidden),
            ..came
        }
    });
    let open: Vec<Came> = open.collect();
    let commits: Vec<CommitNo> = open.iter().map(|came| came.arrival.commit).collect();
    let high_keys = high_keys_before(&commits, table, store)?;
    Ok(late_rows_in_blocks(table, store)? + late_open_rows(open.into_iter().zip(high_keys)))
}

/// The smallest and the largest key of the rows that are not deleted. Blocks with deleted rows are read only where they could hold
/// one of the two.
fn keys_of_kept_rows(view: &TableView) -> Result<Option<KeyRange>> {
    let reader = Reader::new(view, Some(&[]), KeyRange::ALL)?;
    let open = reader.open_rows()?;
    let mut first = open
        .iter()
        .filter_map(|rows| rows.keys.first().copied())
        .min();
    let mut last = open
        .iter()
        .filter_map(|rows| rows.keys.last().copied())
        .max();
    if let Some(total) = view.snapshot().tree.total() {
        let all = total.key_min..=total.key_max;
        first = End::First.of_kept_rows(view, &reader, all, first)?;
        // Entries come in the order of their smallest keys: the largest key is searched for in wider and wider ranges from the right.
        for start in ranges_from_right(total) {
            last = End::Last.of_kept_rows(view, &reader, start..=total.key_max, last)?;
            if last.is_some_and(|last| last >= start) {
                break;
            }
        }
    }
    Ok(first
        .zip(last)
        .map(|(first, last)| KeyRange { first, last }))
}

/// An end of a range of keys.
#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl End {
    fn of(self, keys: KeyRange) -> i64 {
        match self {
            Self::First => keys.first,
            Self::Last => keys.last,
        }
    }

    /// Whether keys go beyond the one that was found so far.
    fn is_beyond(self, keys: KeyRange, found: Option<i64>) -> bool {
        found.is_none_or(|found| match self {
            Self::First => keys.first < found,
            Self::Last => keys.last > found,
        })
    }

    /// The key at this end of `found` and of the rows in entries of a range that are not deleted.
    fn of_kept_rows(
        self,
        view: &TableView,
        reader: &Reader,
        range: RangeInclusive<i64>,
        mut found: Option<i64>,
    ) -> Result<Option<i64>> {
        let (table, store) = (view.snapshot(), view.engine().kernel().store());
        let keys_of = |entry: &Entry| KeyRange {
            first: entry.key_min,
            last: entry.key_max,
        };
        let mut walk = table.tree.walk(Some(range), Arc::clone(store));
        while let Some(entry) = walk.next_at(|entry, place| {
            match (
                self.is_beyond(keys_of(entry), found),
                table.hides_below(entry, place.as_ref()),
            ) {
                (false, _) => Step::Skip,
                (true, false) => Step::Take,
                (true, true) => step_into(table, entry, place),
            }
        })? {
            let kept = match table.hides_below(&entry, walk.place().as_ref()) {
                false => Some(keys_of(&entry)),
                true => {
                    let rows = reader.sorted_block(&Block::found(table, entry, walk.place()))?;
                    let ends = rows.keys.first().zip(rows.keys.last());
                    ends.map(|(first, last)| KeyRange {
                        first: *first,
                        last: *last,
                    })
                }
            };
            if let Some(keys) = kept.filter(|keys| self.is_beyond(*keys, found)) {
                found = Some(self.of(keys));
            }
        }
        Ok(found)
    }
}
