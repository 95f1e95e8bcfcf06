//! Batches into blocks.

use super::filter::Filter;
use super::with_number;
use super::zones::{MIN_PAGES, ZoneEncoder};
use crate::assemble::fixed_values;
use crate::definition::{Column, TableDefinition};
use crate::error::{invalid, limit, schema};
use crate::order::is_ascending;
use crate::pool::Spare;
use crate::schema::element_type;
use crate::summarise::{byte_bounds, byte_parts, summarise_pages, summary_kind};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, MutableBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;
use thalweg_codec::{Element, ElementType, EncodeError, EncodedChunk, Encoder, Level};
use thalweg_kernel::block::{
    BLOCK_PAGE_POSITIONS, BlockBuilder, BlockSpec, EncodedBlock, MAX_PAGE_ENTRIES, ROWS_ORDER, Role,
};
use thalweg_kernel::index::SummaryList;
use thalweg_kernel::summary::{ByteBounds, ColumnSummary, SummaryKind};
use thalweg_kernel::{Error, ErrorKind, Result, TableId};

/// Rows whose values take more than this are cut into several blocks: a block may have 64 MiB, encoded.
pub(crate) const MAX_RAW_BYTES: usize = 32 << 20;

/// An encoder with longer buffers is not kept; those of usual blocks are shorter.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Encodes batches into blocks; holds what can be reused from one to the next.
#[derive(Debug)]
pub struct BlockEncoder {
    encoder: Encoder,
    chunk: EncodedChunk,
    filled: MutableBuffer,
    offsets: Vec<i32>,
    data: Vec<u8>,
    zones: ZoneEncoder,
    /// Columns whose blocks get a filter, ascending.
    filters: Vec<u32>,
}

/// Encoders for all who encode blocks of an engine. One is kept for each that is at work at the same time, but for those whose buffers
/// are large: one block of long values would keep its memory as long as the engine is open.
#[derive(Default)]
pub(crate) struct Encoders(Spare<BlockEncoder>);

impl Encoders {
    /// The rows of a batch as blocks: see [`BlockEncoder::encode`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn encode(
        &self,
        table: TableId,
        definition: &TableDefinition,
        batch: &RecordBatch,
        keys: &[i64],
    ) -> Result<Vec<EncodedBlock>> {
        let mut encoder = self.0.take(|| Ok(BlockEncoder::new(Level::Fast)))?;
        let mut blocks = Vec::with_capacity(1);
        encoder.encode(table, definition, batch, keys, &mut blocks)?;
        if encoder.buffer_bytes() <= MAX_KEPT_BYTES {
            self.0.give(encoder);
        }
        Ok(blocks)
    }

    /// Gives their memory back.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}

impl BlockEncoder {
    /// An encoder that works at `level`.
    pub fn new(level: Level) -> Self {
        Self {
            encoder: Encoder::new(level),
            chunk: EncodedChunk::new(),
            filled: MutableBuffer::new(0),
            offsets: Vec::new(),
            data: Vec::new(),
            zones: ZoneEncoder::default(),
            filters: Vec::new(),
        }
    }

    /// The same with filters of the columns with these ids. No definition names any yet.
    #[must_use]
    pub fn with_filters(mut self, mut ids: Vec<u32>) -> Self {
        ids.sort_unstable();
        self.filters = ids;
        self
    }

    /// The memory of its buffers and of those of the codecs.
    fn buffer_bytes(&self) -> usize {
        let offsets_bytes = self.offsets.capacity() * size_of::<i32>();
        let chunk_bytes = self.chunk.bytes.capacity();
        let own_bytes = chunk_bytes + self.filled.capacity() + offsets_bytes + self.data.capacity();
        own_bytes + self.encoder.buffer_bytes()
    }

    /// Appends one block with the rows of `batch` to `blocks`, or several if their values take more than 32 MiB or have more
    /// pages than a block; nothing for no rows. The batch has the table's schema; `keys` are its order keys, which ascend.
    ///
    /// # Errors
    /// `Limit` when a single row is too large for a block.
    ///
    /// # Panics
    /// When the keys contradict the rows.
    pub fn encode(
        &mut self,
        table: TableId,
        definition: &TableDefinition,
        batch: &RecordBatch,
        keys: &[i64],
        blocks: &mut Vec<EncodedBlock>,
    ) -> Result<()> {
        let rows = batch.num_rows();
        assert_eq!(keys.len(), rows, "as many keys as rows");
        if rows > 1 && !fits_one_block(batch, self.filters.len()) {
            let half = rows / 2;
            self.encode(
                table,
                definition,
                &batch.slice(0, half),
                &keys[..half],
                blocks,
            )?;
            return self.encode(
                table,
                definition,
                &batch.slice(half, rows - half),
                &keys[half..],
                blocks,
            );
        }
        let [first, .., last] = keys else {
            let Some(only) = keys.first() else {
                return Ok(());
            };
            blocks.push(self.encode_one(table, definition, batch, (*only, *only))?);
            return Ok(());
        };
        // Rows that were merged by an index which names other keys than its blocks have.
        if !is_ascending(keys) {
            let what = "they are not in the order that the index says";
            return Err(Error::corruption("rows for a block", what));
        }
        blocks.push(self.encode_one(table, definition, batch, (*first, *last))?);
        Ok(())
    }

    fn encode_one(
        &mut self,
        table: TableId,
        definition: &TableDefinition,
        batch: &RecordBatch,
        keys: (i64, i64),
    ) -> Result<EncodedBlock> {
        check_batch(definition, batch, keys)?;
        let rows = u32::try_from(batch.num_rows())
            .map_err(|_| limit("a block of more than 4,294,967,295 rows"))?;
        let spec = BlockSpec {
            table,
            layout: definition.layout().number(),
            level: 0,
            order: ROWS_ORDER,
            positions: rows,
            rows,
            key: 0,
            sorted: true,
            implicit_key: definition.key_ids().is_empty(),
        };
        let mut builder = BlockBuilder::new(spec, chunks_of(batch));
        let mut summaries = SummaryList::default();
        for (position, (column, array)) in
            definition.columns().iter().zip(batch.columns()).enumerate()
        {
            let wants = Wants {
                summary: definition.is_summarised(position),
                zones: definition.is_summarised(position)
                    && definition.order_position() != Some(position),
                filter: self.filters.binary_search(&column.id).is_ok(),
            };
            let summary = self.encode_column(column, array, wants, &mut builder);
            let summary = summary.map_err(|e| {
                Error::with_source(e.kind(), format!("column \"{}\": {e}", column.name), e)
            })?;
            if let Some(summary) = summary {
                let bounds = (summary.kind == SummaryKind::Bytes).then(|| self.byte_bounds(array));
                summaries.push(summary, bounds.flatten());
            }
        }
        builder.finish(keys, summaries)
    }

    /// Bounds of the values of a column of strings or binaries, which was encoded just now.
    fn byte_bounds(&self, array: &ArrayRef) -> Option<ByteBounds> {
        // Nulls are encoded as values.
        let has_values_alone = array.null_count() == 0;
        match self.encoder.distinct_texts() {
            Some(texts) if has_values_alone => ByteBounds::of_values(texts),
            _ => byte_bounds(array),
        }
    }

    /// Adds the chunks of a column and returns its summary if one is asked for.
    fn encode_column(
        &mut self,
        column: &Column,
        array: &ArrayRef,
        wants: Wants,
        builder: &mut BlockBuilder,
    ) -> Result<Option<ColumnSummary>> {
        let element = element_type(&column.data_type).ok_or_else(|| schema("not a stored type"))?;
        let (rows, id) = (array.len(), column.id);
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let all_null = nulls.is_some_and(|nulls| nulls.null_count() == rows);
        let has_zones = wants.zones && !all_null && pages_of(rows) >= MIN_PAGES;
        let pages = has_zones.then(|| self.zones.pages());
        let summary = wants.summary.then(|| summarise_pages(id, array, pages));
        if has_zones {
            self.encode_zones((id, element), builder)?;
        }
        if !all_null {
            self.encode_values(element, array, nulls)?;
            builder.add_chunk(id, Role::Values, &self.chunk)?;
        }
        if wants.filter && !all_null {
            let filter = Filter::of_column(array);
            let encoded = self.encoder.encode(filter.bytes(), &mut self.chunk);
            encoded.map_err(too_much)?;
            builder.add_chunk(id, Role::Filter, &self.chunk)?;
        }
        if let Some(nulls) = nulls {
            self.encode_bits(nulls.inner())?;
            builder.add_chunk(id, Role::Validity, &self.chunk)?;
        }
        // Decimals with too many digits have no summary.
        let is_whole = |summary: &ColumnSummary| summary.kind == summary_kind(array.data_type());
        Ok(summary.filter(is_whole))
    }

    /// Adds bounds of the pages of a column, which were summarised.
    fn encode_zones(
        &mut self,
        (id, element): (u32, ElementType),
        builder: &mut BlockBuilder,
    ) -> Result<()> {
        let zones = self.zones.encode(&mut self.encoder, element);
        if let Some((lows, highs)) = zones.map_err(too_much)? {
            builder.add_chunk(id, Role::ZoneLows, lows)?;
            builder.add_chunk(id, Role::ZoneHighs, highs)?;
        }
        Ok(())
    }

    fn encode_values(
        &mut self,
        element: ElementType,
        array: &ArrayRef,
        nulls: Option<&NullBuffer>,
    ) -> Result<()> {
        match element {
            ElementType::Bits => {
                let values = array.as_boolean().values();
                let masked = nulls.map(|nulls| values & nulls.inner());
                self.encode_bits(masked.as_ref().unwrap_or(values))
            }
            ElementType::Bytes => self.encode_bytes(array, nulls),
            ElementType::I128 => self.encode_fixed(fixed_values(array).typed_data::<i128>(), nulls),
            number => with_number!(number, Native => {
                self.encode_fixed(fixed_values(array).typed_data::<Native>(), nulls)
            }),
        }
    }

    fn encode_fixed<T: Element + ArrowNativeType>(
        &mut self,
        values: &[T],
        nulls: Option<&NullBuffer>,
    ) -> Result<()> {
        let Some(nulls) = nulls else {
            return self
                .encoder
                .encode(values, &mut self.chunk)
                .map_err(too_much);
        };
        self.filled.clear();
        self.filled.extend_from_slice(values);
        let filled = self.filled.typed_data_mut::<T>();
        let first = nulls.valid_indices().next().unwrap_or(0);
        let mut last = values[first];
        for (row, value) in filled.iter_mut().enumerate() {
            if nulls.is_valid(row) {
                last = *value;
            } else {
                *value = last;
            }
        }
        self.encoder
            .encode(filled, &mut self.chunk)
            .map_err(too_much)
    }

    fn encode_bits(&mut self, bits: &BooleanBuffer) -> Result<()> {
        self.encoder
            .encode_bits(bits.sliced().as_slice(), bits.len(), &mut self.chunk)
            .map_err(too_much)
    }

    fn encode_bytes(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let (offsets, data) = byte_parts(array);
        let is_hidden = |nulls: &NullBuffer| {
            (0..nulls.len()).any(|row| nulls.is_null(row) && offsets[row] != offsets[row + 1])
        };
        let Some(nulls) = nulls.filter(|nulls| is_hidden(nulls)) else {
            return self
                .encoder
                .encode_bytes(offsets, data, &mut self.chunk)
                .map_err(too_much);
        };
        self.data.clear();
        self.offsets.clear();
        self.offsets.push(0);
        for row in 0..nulls.len() {
            if nulls.is_valid(row) {
                // Offsets of an Arrow array rise from zero or above.
                self.data.extend_from_slice(
                    &data[offsets[row].unsigned_abs() as usize
                        ..offsets[row + 1].unsigned_abs() as usize],
                );
            }
            self.offsets.push(
                i32::try_from(self.data.len()).map_err(|_| limit("more than 2 GiB of strings"))?,
            );
        }
        self.encoder
            .encode_bytes(&self.offsets, &self.data, &mut self.chunk)
            .map_err(too_much)
    }
}

/// The parts that a block is to have of a column besides its values.
#[derive(Clone, Copy)]
struct Wants {
    summary: bool,
    zones: bool,
    filter: bool,
}

/// Chunks that the rows of a batch become, those of the front left out.
fn chunks_of(batch: &RecordBatch) -> usize {
    let chunks = |array: &ArrayRef| if array.null_count() > 0 { 2 } else { 1 };
    batch.columns().iter().map(chunks).sum()
}

fn pages_of(rows: usize) -> usize {
    rows.div_ceil(BLOCK_PAGE_POSITIONS as usize)
}

/// Rows of which a block has room for the pages, whatever is null in them.
pub(crate) fn max_block_rows(schema: &Schema) -> usize {
    let chunks = |field: &Arc<Field>| if field.is_nullable() { 2 } else { 1 };
    let chunks: usize = schema.fields().iter().map(chunks).sum();
    let pages = MAX_PAGE_ENTRIES / (chunks + 1);
    pages.max(1) * BLOCK_PAGE_POSITIONS as usize
}

/// Whether a block has room for all rows of a batch. A page of rows always fits.
fn fits_one_block(batch: &RecordBatch, filters: usize) -> bool {
    let pages = pages_of(batch.num_rows());
    // Zones have an entry in the page table for every thousand pages, filters one for every thousand bytes: at most two bytes a row.
    let entries = pages * (chunks_of(batch) + 2 * filters + 1);
    raw_bytes(batch) <= MAX_RAW_BYTES && (pages == 1 || entries <= MAX_PAGE_ENTRIES)
}

/// Bytes that the rows take in memory, nearly: bits and validity are left out.
pub(crate) fn raw_bytes(batch: &RecordBatch) -> usize {
    let column = |array: &ArrayRef| {
        let span =
            |offsets: &[i32]| (offsets[offsets.len() - 1] - offsets[0]).unsigned_abs() as usize;
        match array.data_type() {
            DataType::Utf8 => span(array.as_string::<i32>().offsets()),
            DataType::Binary => span(array.as_binary::<i32>().offsets()),
            other => other.primitive_width().unwrap_or(0) * array.len(),
        }
    };
    batch.columns().iter().map(column).sum()
}

/// Whether values of the type may be of any length.
pub(crate) fn is_long(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Binary)
}

fn check_batch(definition: &TableDefinition, batch: &RecordBatch, keys: (i64, i64)) -> Result<()> {
    let columns = definition.columns();
    let matching = columns.len() == batch.num_columns()
        && columns
            .iter()
            .zip(batch.columns())
            .all(|(column, array)| column.data_type == *array.data_type());
    if !matching {
        return Err(invalid("the batch does not have the schema of the table"));
    }
    if !definition.key_ids().is_empty() {
        let arrangement = definition.arrangement();
        let edge = |row: usize| {
            let columns = arrangement.key_columns().iter();
            let columns: Vec<ArrayRef> =
                columns.map(|at| batch.column(*at).slice(row, 1)).collect();
            arrangement.keys(&columns, 1).map(|keys| keys[0])
        };
        assert_eq!(
            (edge(0)?, edge(batch.num_rows() - 1)?),
            keys,
            "the order keys of the rows"
        );
    }
    Ok(())
}

fn too_much(error: EncodeError) -> Error {
    Error::with_source(ErrorKind::Limit, error.to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions};
    use arrow_array::{BinaryArray, Int64Array};
    use std::path::Path;
    use thalweg_env::sim::SimEnv;

    #[test]
    fn an_encoder_with_large_buffers_is_not_kept() {
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let schema = Arc::new(Schema::new(vec![
            Field::new("ts", DataType::Int64, false),
            Field::new("v", DataType::Binary, true),
        ]));
        let stream = CreateOptions::stream("ts");
        let table = engine.create_table("t", &schema, &stream).unwrap();
        let definition = table.definition();
        let encoders = Encoders::default();
        let encode = |value_bytes: usize| {
            let keys = [1, 2, 3, 4];
            let mut dice = 7_u32;
            let mut byte = || {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                dice.to_be_bytes()[0]
            };
            let values = keys.map(|_| (0..value_bytes).map(|_| byte()).collect::<Vec<_>>());
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
            let values: ArrayRef = Arc::new(BinaryArray::from_iter_values(values));
            let rows = RecordBatch::try_new(Arc::clone(&schema), vec![times, values]).unwrap();
            let blocks = encoders.encode(table.id(), &definition, &rows, &keys);
            assert!(!blocks.unwrap().is_empty());
            encoders.0.take(|| Err(())).ok()
        };
        let kept = encode(1_000).expect("an encoder is kept");
        let kept_bytes = kept.buffer_bytes();
        assert!(kept_bytes < MAX_KEPT_BYTES / 10, "{kept_bytes}");
        assert!(encode(1 << 20).is_none());
    }

    /// Their lock may have been held at the fork by a thread that the child does not have.
    #[test]
    fn a_child_of_a_fork_that_closes_leaves_the_encoders_alone() {
        let sim = SimEnv::new(1);
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
        let encoders = Arc::clone(engine.encoders());
        encoders.0.give(BlockEncoder::new(Level::Fast));
        let child = sim.fork_process(sim.process_id());
        sim.as_process(child, || engine.close().unwrap());
        let kept = encoders.0.take(|| Err(())).ok();
        encoders.0.give(kept.expect("the encoder of the parent"));
        engine.close().unwrap();
        assert!(encoders.0.take(|| Err(())).is_err());
    }
}
