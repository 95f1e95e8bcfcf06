//! Facts about a table that need none of its rows, but for keys beside deleted ones.
//!
//! Invariants: the totals come from the root of the index and the open rows, in the same time however many blocks there are;
//! fragments and late rows take a walk of the index the first time, and what has changed since then; lists of blocks, and the
//! extreme keys where rows are deleted, walk the index each time.

use crate::block_list::BlockList;
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::table::{Table, TableStats, TableView};
use std::collections::BTreeMap;
use thalweg_kernel::index::Entry;
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
    /// Facts about the table. The first call after an opening takes a walk of its index, others what has changed since.
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
        TableTotals {
            rows: table.rows_in_blocks() + open_rows,
            bytes: block_bytes + open_bytes,
            blocks: table.tree.total().map_or(0, |total| total.blocks),
            open_rows,
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
    let engine = view.engine();
    let totals = view.totals();
    let known = engine.known_blocks();
    let (table, store) = (view.snapshot(), engine.kernel().store());
    let (fragments, late_rows) = known.with(table, store, |known| {
        (known.fragments(), known.late_rows(table))
    })?;
    let newest = engine.newest()?;
    if known.len() > newest.table_count() {
        // Some were dropped.
        known.retain(|table| newest.table(table).is_some());
    }
    let keys = match view.snapshot().masks() {
        None => view.key_range(),
        Some(_) => keys_of_kept_rows(view, &BlockList::read(view)?)?,
    };
    Ok(TableStats {
        rows: totals.rows,
        bytes: totals.bytes,
        blocks: totals.blocks,
        fragments,
        open_rows: totals.open_rows,
        late_rows,
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}

/// The smallest and the largest key of the rows that are not deleted. Of the blocks with deleted ones only those are read that
/// could have it.
fn keys_of_kept_rows(view: &TableView, list: &BlockList) -> Result<Option<KeyRange>> {
    let reader = Reader::new(view, Some(&[]), KeyRange::ALL)?;
    let mut found: Option<KeyRange> = None;
    let mut add = |first, last| {
        let (least, most) = found.map_or((first, last), |found| (found.first, found.last));
        found = Some(KeyRange {
            first: least.min(first),
            last: most.max(last),
        });
        found
    };
    let mut known = None;
    for open in reader.open_rows()? {
        if let (Some(first), Some(last)) = (open.keys.first(), open.keys.last()) {
            known = add(*first, *last);
        }
    }
    for (at, block) in list.blocks.iter().enumerate() {
        if !list.masks.contains_key(&at) {
            known = add(block.key_min, block.key_max);
        }
    }
    for at in list.masks.keys() {
        let block = list.block(*at);
        let (first, last) = (block.entry.key_min, block.entry.key_max);
        if known.is_some_and(|known| known.covers(first, last)) {
            continue;
        }
        let rows = reader.sorted_block(&block)?;
        if let (Some(first), Some(last)) = (rows.keys.first(), rows.keys.last()) {
            known = add(*first, *last);
        }
    }
    Ok(known)
}
