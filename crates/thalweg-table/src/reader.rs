//! Rows of blocks and open rows of one table, as a scan or an aggregate wants them. The same for every layout.
//!
//! Invariants: what comes back has exactly the wanted columns in the wanted order, and only rows whose order key lies in
//! the wanted range and that are not deleted. Of a block that lies in the range only wanted columns are read; of one that sticks
//! out the order keys too, and then only the pages with wanted rows; of a block with zones only pages that can have values of the
//! wanted ranges, by one reader of the block that checks each prelude once. A reader keeps the snapshot that its blocks are from,
//! unless they are from a task: who holds one may read them, however late, and whoever planned the scan may be gone by then.

use crate::arrival::Arrival;
use crate::buffers::Buffers;
use crate::closed::Closed;
use crate::column::{BlockDecoder, MIN_PAGES, Zones};
use crate::definition::TableDefinition;
use crate::deleted_rows::{Block, DeletedRows, push_open_rows};
use crate::engine::Engine;
use crate::error::{damaged, invalid};
use crate::nans::{with_one_nan, with_one_nan_in};
use crate::open_parts::OpenParts;
use crate::order::sorted_batch;
use crate::pool::Spare;
use crate::range::KeyRange;
use crate::rows::RowsDecoder;
use crate::scan::merge::Sorted;
use crate::scan::{Counter, ScanMetrics};
use crate::schema::element_type;
use crate::table::TableView;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::{Decoder, PAGE_ROWS};
use thalweg_kernel::block::BlockReader;
use thalweg_kernel::index::Entry;
use thalweg_kernel::store::Store;
use thalweg_kernel::summary::{SummaryKind, ValueRange};
use thalweg_kernel::{CommitNo, Error, ErrorKind, Result};

/// Reads some columns of rows with some keys.
pub(crate) struct Reader {
    store: Arc<Store>,
    open: OpenParts,
    closed: Closed,
    definition: Arc<TableDefinition>,
    /// The wanted columns.
    ids: Vec<u32>,
    schema: SchemaRef,
    keys: KeyRange,
    /// Columns by id, and the values that rows are wanted for: pages without one may be left out.
    ranges: Vec<(u32, ValueRange)>,
    /// Places of the float columns in which there should be one NaN.
    one_nan: Vec<usize>,
    metrics: Arc<ScanMetrics>,
    decoders: Spare<BlockDecoder>,
    key_decoders: Spare<BlockDecoder>,
    buffers: Arc<Buffers>,
}

impl Reader {
    /// A reader of the columns at these places of the schema; all of them for `None`.
    pub(crate) fn new(
        view: &TableView,
        projection: Option<&[usize]>,
        keys: KeyRange,
    ) -> Result<Self> {
        let open = OpenParts::Snapshot(view.snapshot().clone());
        let definition = Arc::clone(view.definition());
        Self::over(view.engine(), definition, open, projection, keys)
    }

    /// A reader of the columns at these places of the schema, with these open rows.
    pub(crate) fn over(
        engine: &Engine,
        definition: Arc<TableDefinition>,
        open: OpenParts,
        projection: Option<&[usize]>,
        keys: KeyRange,
    ) -> Result<Self> {
        let closed = engine.closed().clone();
        closed.check()?;
        let columns = definition.columns();
        let ids = match projection {
            None => columns.iter().map(|column| column.id).collect(),
            Some(places) => places
                .iter()
                .map(|place| column_id(&definition, *place))
                .collect::<Result<Vec<_>>>()?,
        };
        let schema = match projection {
            None => Arc::clone(definition.schema()),
            Some(places) => definition
                .schema()
                .project(places)
                .map(Arc::new)
                .map_err(|e| invalid(e.to_string()))?,
        };
        Ok(Self {
            store: Arc::clone(engine.kernel().store()),
            open,
            closed,
            definition,
            ids,
            schema,
            keys,
            ranges: Vec::new(),
            one_nan: Vec::new(),
            metrics: Arc::default(),
            decoders: Spare::default(),
            key_decoders: Spare::default(),
            buffers: Arc::default(),
        })
    }

    /// The same reader, which gives every NaN the bits of `f64::NAN` or `f32::NAN` if so wanted.
    pub(crate) fn with_one_nan(mut self, is_wanted: bool) -> Self {
        let fields = self.schema.fields().iter().enumerate();
        let floats = fields.filter(|(_, field)| is_wanted && field.data_type().is_floating());
        self.one_nan = floats.map(|(place, _)| place).collect();
        self
    }

    /// The same reader, which may leave out rows that have no value in one of these ranges of columns, by id.
    pub(crate) fn with_ranges(mut self, ranges: Vec<(u32, ValueRange)>) -> Self {
        self.ranges = ranges;
        self
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn keys(&self) -> KeyRange {
        self.keys
    }

    pub(crate) fn metrics(&self) -> &Arc<ScanMetrics> {
        &self.metrics
    }

    /// The values that rows are wanted for, of columns by id.
    pub(crate) fn ranges(&self) -> &[(u32, ValueRange)] {
        &self.ranges
    }

    /// The ids of the wanted columns.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The rows of some blocks, one block after the other: one batch, more if they hold very long strings.
    pub(crate) fn blocks(&self, blocks: &[Block]) -> Result<Vec<RecordBatch>> {
        let rows = self.rows_of(blocks);
        rows.map_err(|error| self.expired(error, blocks))
    }

    fn rows_of(&self, blocks: &[Block]) -> Result<Vec<RecordBatch>> {
        let mut decoder = self.decoder()?;
        let mut batches = Vec::with_capacity(1);
        let mut wanted = Vec::with_capacity(blocks.len());
        for block in blocks {
            wanted.push(self.wanted_rows(&block.entry)?);
        }
        decoder.reserve(wanted.iter().map(WantedRows::len).sum());
        let mut deleted = DeletedRows::default();
        for (block, wanted) in blocks.iter().zip(wanted) {
            if let Some(hidden) = block.hidden()? {
                deleted.note(decoder.rows(), wanted.parts.as_slice(), hidden);
            }
            self.push(&mut decoder, &block.entry, wanted)?;
            if decoder.is_full() {
                batches.push(self.finished(&mut decoder, &mut deleted, blocks)?);
            }
        }
        if decoder.rows() > 0 {
            batches.push(self.finished(&mut decoder, &mut deleted, blocks)?);
        }
        self.decoders.give(decoder);
        batches.retain(|batch| batch.num_rows() > 0);
        Ok(batches)
    }

    /// The rows that a decoder has collected, without those that are deleted.
    fn finished(
        &self,
        decoder: &mut BlockDecoder,
        deleted: &mut DeletedRows,
        blocks: &[Block],
    ) -> Result<RecordBatch> {
        let batch = deleted.taken_out_of(decoder.finish()?)?;
        deleted.clear();
        Ok(self.settled(batch, blocks))
    }

    fn decoder(&self) -> Result<BlockDecoder> {
        self.decoders.take(|| {
            let mut decoder = BlockDecoder::new(&self.definition, Some(&self.ids))?;
            decoder.use_again(&self.buffers);
            Ok(decoder)
        })
    }

    /// The wanted rows of a block.
    fn wanted_rows(&self, entry: &Entry) -> Result<WantedRows<'_>> {
        let all = 0..to_usize(entry.rows);
        let covers = self.covers(entry);
        // Memory is taken for as many rows as the entry says: that of a task may be made up, and is compared with its block first.
        let is_of_task = matches!(self.open, OpenParts::Task(..));
        if covers && !self.may_prune(entry) && !is_of_task {
            return Ok(WantedRows {
                block: None,
                parts: Parts::One(all),
            });
        }
        let mut block = self.open_block(entry)?;
        let rows = if covers {
            all
        } else {
            self.key_rows(&mut block, entry)?.1
        };
        let parts = self.parts(&mut block, entry, rows)?;
        Ok(WantedRows {
            block: Some(Box::new(block)),
            parts,
        })
    }

    fn open_block(&self, entry: &Entry) -> Result<BlockReader<'_>> {
        let block = self.store.block(&entry.address)?;
        if block.head().rows() as u64 != entry.rows {
            let what = "a block has another number of rows than its index says";
            return Err(damaged(entry.address, what));
        }
        Ok(block)
    }

    /// Whether the block is one of those that have zones, and something is looked for.
    fn may_prune(&self, entry: &Entry) -> bool {
        !self.ranges.is_empty() && to_usize(entry.rows).div_ceil(PAGE_ROWS) >= MIN_PAGES
    }

    /// Those of these rows that lie in pages which can have a value of each wanted range.
    fn parts(
        &self,
        block: &mut BlockReader<'_>,
        entry: &Entry,
        rows: Range<usize>,
    ) -> Result<Parts> {
        if rows.is_empty() || !self.may_prune(entry) {
            return Ok(Parts::One(rows));
        }
        let mut decoder = Decoder::new();
        let mut zones = Vec::with_capacity(self.ranges.len());
        for (id, range) in &self.ranges {
            let column = self.definition.position(*id);
            let column = column.map(|position| &self.definition.columns()[position]);
            let element = column.and_then(|column| element_type(&column.data_type));
            if let Some(element) = element
                && let Some(found) = Zones::read(block, &mut decoder, *id, element)?
            {
                zones.push((found, range));
            }
        }
        let is_out = |page: usize| zones.iter().any(|(zones, range)| zones.prunes(page, range));
        Ok(Parts::Several(parts_of(rows, is_out)))
    }

    /// The rows of a block in key order, and their keys.
    pub(crate) fn sorted_block(&self, block: &Block) -> Result<Sorted> {
        let rows = self.sorted_rows_of(block);
        rows.map_err(|error| self.expired(error, std::slice::from_ref(block)))
    }

    /// The error of some blocks that were not read. That a file is missing is no damage where another process has promised to
    /// keep it.
    fn expired(&self, error: Error, blocks: &[Block]) -> Error {
        let is_gone = |block: &Block| self.store.is_fragment(block.entry.address.file).is_err();
        let is_kept_elsewhere = matches!(self.open, OpenParts::Task(_, None));
        if is_kept_elsewhere && error.kind() == ErrorKind::Corruption && blocks.iter().any(is_gone)
        {
            let message =
                "the files of this task are gone: whoever made it has let go of it, or has ended";
            return Error::with_source(ErrorKind::SnapshotExpired, message, error);
        }
        error
    }

    fn sorted_rows_of(&self, found: &Block) -> Result<Sorted> {
        let entry = &found.entry;
        let mut block = self.open_block(entry)?;
        let (keys, rows) = self.key_rows(&mut block, entry)?;
        let parts = if entry.sorted {
            self.parts(&mut block, entry, rows)?
        } else {
            Parts::One(rows)
        };
        let mut deleted = DeletedRows::default();
        if let Some(hidden) = found.hidden()? {
            deleted.note(0, parts.as_slice(), hidden);
        }
        let keys = keys_of_parts(&keys, parts.as_slice());
        let mut decoder = self.decoder()?;
        decoder.reserve(keys.len());
        let keys = deleted.taken_out_of_keys(keys);
        let wanted = WantedRows {
            block: Some(Box::new(block)),
            parts,
        };
        self.push(&mut decoder, entry, wanted)?;
        let batch = self.finished(&mut decoder, &mut deleted, std::slice::from_ref(found))?;
        self.decoders.give(decoder);
        let arrival = entry.arrival();
        if entry.sorted {
            return Ok(Sorted {
                keys,
                batch,
                arrival,
            });
        }
        let (batch, keys) = sorted_batch(batch, keys)?;
        Ok(Sorted {
            keys: self.trim(&keys),
            batch: self.trim_batch(&keys, &batch),
            arrival,
        })
    }

    fn push(
        &self,
        decoder: &mut BlockDecoder,
        entry: &Entry,
        wanted: WantedRows<'_>,
    ) -> Result<()> {
        self.closed.check()?;
        let before = decoder.rows();
        let parts = wanted.parts.as_slice();
        match wanted.block {
            Some(mut block) => decoder.push_parts(&mut block, parts)?,
            None => decoder.push_parts(&mut self.open_block(entry)?, parts)?,
        }
        self.metrics.add(Counter::blocks_read, 1);
        self.metrics
            .add(Counter::rows_decoded, (decoder.rows() - before) as u64);
        self.metrics
            .add(Counter::bytes_read, decoder.take_read_bytes());
        Ok(())
    }

    /// Puts one NaN into a batch of rows of some blocks. Columns in which summaries count no NaN are not searched.
    fn settled(&self, batch: RecordBatch, blocks: &[Block]) -> RecordBatch {
        let has_none = |id: u32, entry: &Entry| {
            let summary = entry.covering_summary(id);
            summary.is_some_and(|found| found.kind == SummaryKind::Float && found.nan_rows == 0)
        };
        let may_hold = |place: &usize| {
            !blocks
                .iter()
                .all(|block| has_none(self.ids[*place], &block.entry))
        };
        let places: Vec<usize> = self.one_nan.iter().copied().filter(may_hold).collect();
        if places.is_empty() {
            return batch;
        }
        with_one_nan_in(batch, |place| places.contains(&place))
    }

    fn covers(&self, entry: &Entry) -> bool {
        self.keys.covers(entry.key_min, entry.key_max)
    }

    /// The keys of all rows of a block, and which of the rows are wanted. Of a block that is not sorted all are.
    fn key_rows(
        &self,
        block: &mut BlockReader<'_>,
        entry: &Entry,
    ) -> Result<(ScalarBuffer<i64>, Range<usize>)> {
        let mut decoder = self
            .key_decoders
            .take(|| BlockDecoder::new(&self.definition, Some(self.definition.key_ids())))?;
        decoder.reserve(to_usize(entry.rows));
        let all = 0..block.head().rows();
        decoder.push_parts(block, std::slice::from_ref(&all))?;
        self.metrics
            .add(Counter::bytes_read, decoder.take_read_bytes());
        let batch = decoder.finish()?;
        self.key_decoders.give(decoder);
        let arrangement = self.definition.arrangement();
        let keys = arrangement.keys(batch.columns(), batch.num_rows())?;
        let rows = if entry.sorted {
            self.keys.positions(&keys)
        } else {
            0..keys.len()
        };
        Ok((keys, rows))
    }

    /// The keys of all rows of a block, deleted ones too, in the order in which they are stored.
    pub(crate) fn block_keys(&self, entry: &Entry) -> Result<ScalarBuffer<i64>> {
        self.closed.check()?;
        let mut block = self.open_block(entry)?;
        Ok(self.key_rows(&mut block, entry)?.0)
    }

    fn trim(&self, keys: &ScalarBuffer<i64>) -> ScalarBuffer<i64> {
        let rows = self.keys.positions(keys);
        keys.slice(rows.start, rows.len())
    }

    fn trim_batch(&self, keys: &[i64], batch: &RecordBatch) -> RecordBatch {
        let rows = self.keys.positions(keys);
        batch.slice(rows.start, rows.len())
    }

    /// The rows that are in no block yet: sorted runs, one for each section of commits that no group comes between, so
    /// that each has one place in the order of arrival.
    pub(crate) fn open_rows(&self) -> Result<Vec<Sorted>> {
        let mut ids = self.ids.clone();
        let key_columns = self.definition.key_ids().iter().map(|key_id| {
            ids.iter().position(|id| id == key_id).unwrap_or_else(|| {
                ids.push(*key_id);
                ids.len() - 1
            })
        });
        let key_columns: Vec<usize> = key_columns.collect();
        let mut number = 0;
        let mut sections: Vec<Sorted> = Vec::new();
        let mut section: Option<OpenSection> = None;
        for (open, hidden) in self.open.iter() {
            // Counted whether or not these rows are in the range: they may be the first of their section.
            number += u64::from(open.begins_section);
            let part_keys = KeyRange {
                first: open.part.key_min,
                last: open.part.key_max,
            };
            if part_keys.intersect(self.keys).is_empty() {
                continue;
            }
            self.metrics
                .add(Counter::open_rows, u64::from(open.part.rows));
            if section.as_ref().is_some_and(|last| last.number != number)
                && let Some(section) = section.take()
            {
                sections.push(self.open_section(section, &key_columns)?);
            }
            let section = match &mut section {
                Some(section) => section,
                none => none.insert(OpenSection {
                    number,
                    commit: open.commit,
                    decoder: RowsDecoder::new(&self.definition, Some(&ids))?,
                    deleted: DeletedRows::default(),
                }),
            };
            push_open_rows(open, hidden, &mut section.decoder, &mut section.deleted)?;
        }
        if let Some(section) = section {
            sections.push(self.open_section(section, &key_columns)?);
        }
        sections.retain(|section| !section.keys.is_empty());
        Ok(sections)
    }

    fn open_section(&self, mut section: OpenSection, key_columns: &[usize]) -> Result<Sorted> {
        let batch = section.deleted.taken_out_of(section.decoder.finish()?)?;
        let of_keys = key_columns.iter().map(|at| Arc::clone(batch.column(*at)));
        let of_keys: Vec<ArrayRef> = of_keys.collect();
        let arrangement = self.definition.arrangement();
        let keys = arrangement.keys(&of_keys, batch.num_rows())?;
        let (batch, keys) = sorted_batch(batch, keys)?;
        let columns: Vec<usize> = (0..self.ids.len()).collect();
        let batch = self.trim_batch(&keys, &batch).project(&columns);
        let batch = batch
            .map_err(|e| Error::with_source(ErrorKind::Corruption, format!("open rows: {e}"), e))?;
        let batch = match self.one_nan[..] {
            [] => batch,
            _ => with_one_nan(batch),
        };
        Ok(Sorted {
            keys: self.trim(&keys),
            batch,
            arrival: Arrival {
                commit: section.commit,
                ordinal: 0,
            },
        })
    }
}

/// Open rows that no other blocks were committed within.
struct OpenSection {
    number: u64,
    /// The first of their commits.
    commit: CommitNo,
    decoder: RowsDecoder,
    deleted: DeletedRows,
}

/// Rows of a block that are to be decoded.
struct WantedRows<'a> {
    /// The block, if it was opened to find out which.
    block: Option<Box<BlockReader<'a>>>,
    parts: Parts,
}

/// Ranges of rows that ascend.
enum Parts {
    One(Range<usize>),
    Several(Vec<Range<usize>>),
}

impl Parts {
    fn as_slice(&self) -> &[Range<usize>] {
        match self {
            Self::One(rows) => std::slice::from_ref(rows),
            Self::Several(parts) => parts,
        }
    }
}

impl WantedRows<'_> {
    fn len(&self) -> usize {
        self.parts.as_slice().iter().map(Range::len).sum()
    }
}

/// The rows that are not in one of the pages that are out, in as few ranges as can be.
fn parts_of(rows: Range<usize>, is_out: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let pages = rows.start / PAGE_ROWS..rows.end.div_ceil(PAGE_ROWS);
    for page in pages.filter(|page| !is_out(*page)) {
        let first = page * PAGE_ROWS;
        let part = rows.start.max(first)..rows.end.min(first + PAGE_ROWS);
        match parts.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => parts.push(part),
        }
    }
    parts
}

/// The keys of some rows of a block.
fn keys_of_parts(keys: &ScalarBuffer<i64>, parts: &[Range<usize>]) -> ScalarBuffer<i64> {
    match parts {
        [rows] => keys.slice(rows.start, rows.len()),
        _ => parts
            .iter()
            .flat_map(|rows| &keys[rows.clone()])
            .copied()
            .collect(),
    }
}

/// The id of the column at a place of the schema.
pub(crate) fn column_id(definition: &TableDefinition, place: usize) -> Result<u32> {
    definition
        .columns()
        .get(place)
        .map(|column| column.id)
        .ok_or_else(|| {
            invalid(format!(
                "there is no column number {place}: the table has {}",
                definition.columns().len()
            ))
        })
}

fn to_usize(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}
