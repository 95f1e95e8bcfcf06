//! Columns of batches as chunks of blocks, and back.
//!
//! Invariants
//! - Every column of a block has a *values* chunk; one that has nulls also a *validity* chunk. A column that is null
//!   throughout has the validity chunk alone. A column without chunks did not exist when the block was written.
//! - What lies in null rows says nothing and costs little: the value before (so that runs and slopes go on), an empty
//!   string, false. So equal rows are equal bytes.
//! - Values are decoded where they stay: a full page of the column's own type is written once, into the memory of the
//!   array. Only cut pages and widened columns go through a scratch page.

use crate::assemble::{ColumnBuilder, project};
use crate::definition::{Column, Layout, TableDefinition};
use crate::error::{damaged, invalid, limit, schema};
use crate::schema::{element_type, widens};
use crate::time::order_keys;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef};
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::{
    DecodeError, Decoder, Element, ElementType, EncodeError, EncodedChunk, Encoder, Level,
    PAGE_ROWS,
};
use thalweg_kernel::bitmap::Bitmap;
use thalweg_kernel::block::{
    BlockBuilder, BlockHead, BlockSpec, ChunkPages, EncodedBlock, Role, Wanted,
};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{Error, ErrorKind, Result, TableId};

/// Rows whose values take more than this are cut into several blocks: a block may have 64 MiB, encoded.
const MAX_RAW_BYTES: usize = 32 << 20;
/// Strings of one batch: as many more rows as fit.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Runs `$body` with `$native` as the type of the elements of `$element`, a number of at most 64 bits.
macro_rules! with_number {
    ($element:expr, $native:ident => $body:expr) => {
        with_number!(@ $element, $native, $body,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64)
    };
    (@ $element:expr, $native:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $element {
            $(ElementType::$variant => {
                type $native = $type;
                $body
            })*
            other => unreachable!("a bug: {other:?} is not a number of 64 bits"),
        }
    };
}

/// Encodes batches into blocks; holds what can be reused from one to the next.
#[derive(Debug)]
pub struct BlockEncoder {
    encoder: Encoder,
    chunk: EncodedChunk,
    filled: MutableBuffer,
    offsets: Vec<i32>,
    data: Vec<u8>,
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
        }
    }

    /// Appends one block with the rows of `batch` to `blocks`, or several if their values take more than 32 MiB;
    /// nothing for no rows. The batch has the table's schema; `keys` are its order keys, which ascend.
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
        if rows > 1 && raw_bytes(batch) > MAX_RAW_BYTES {
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
        debug_assert!(keys.is_sorted(), "rows of a block are in key order");
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
            layout: layout_byte(definition.layout()),
            level: 0,
            order_id: 0,
            rows,
            key: 0,
            sorted: true,
            implicit_key: false,
        };
        let chunks = batch
            .columns()
            .iter()
            .map(|array| if array.null_count() > 0 { 2 } else { 1 })
            .sum();
        let mut builder = BlockBuilder::new(spec, chunks);
        let mut summaries = Vec::new();
        for (position, (column, array)) in
            definition.columns().iter().zip(batch.columns()).enumerate()
        {
            let summary = definition.is_summarised(position);
            let summary = self.encode_column(column, array, summary, &mut builder);
            let summary = summary.map_err(|e| {
                Error::with_source(e.kind(), format!("column \"{}\": {e}", column.name), e)
            })?;
            summaries.extend(summary);
        }
        builder.finish(keys, summaries)
    }

    /// Adds the chunks of a column and returns its summary if one is asked for.
    fn encode_column(
        &mut self,
        column: &Column,
        array: &ArrayRef,
        summarise: bool,
        builder: &mut BlockBuilder,
    ) -> Result<Option<ColumnSummary>> {
        let element = element_type(&column.data_type).ok_or_else(|| schema("not a stored type"))?;
        let (rows, id) = (array.len(), column.id);
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let all_null = nulls.is_some_and(|nulls| nulls.null_count() == rows);
        let counts = || ColumnSummary::of_counts(id, rows as u64, array.null_count() as u64);
        let validity = nulls.map(|nulls| bitmap(nulls.inner()));
        let summary = match element {
            ElementType::Bits => {
                let values = array.as_boolean().values();
                if !all_null {
                    let masked = nulls.map(|nulls| values & nulls.inner());
                    self.encode_bits(masked.as_ref().unwrap_or(values))?;
                }
                summarise.then(|| ColumnSummary::of_bools(id, bitmap(values), validity))
            }
            ElementType::Bytes => {
                if !all_null {
                    self.encode_bytes(array, nulls)?;
                }
                summarise.then(counts)
            }
            ElementType::I128 => {
                if !all_null {
                    self.encode_fixed(&native_values::<i128>(array), nulls)?;
                }
                summarise.then(counts)
            }
            number => with_number!(number, Native => {
                let values = native_values::<Native>(array);
                if !all_null {
                    self.encode_fixed(&values, nulls)?;
                }
                summarise.then(|| ColumnSummary::of_values(id, &values, validity))
            }),
        };
        if !all_null {
            builder.add_chunk(id, Role::Values, &self.chunk)?;
        }
        if let Some(nulls) = nulls {
            self.encode_bits(nulls.inner())?;
            builder.add_chunk(id, Role::Validity, &self.chunk)?;
        }
        Ok(summary)
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
        let (offsets, data) = match array.data_type() {
            DataType::Utf8 => (
                array.as_string::<i32>().offsets(),
                array.as_string::<i32>().value_data(),
            ),
            _ => (
                array.as_binary::<i32>().offsets(),
                array.as_binary::<i32>().value_data(),
            ),
        };
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

/// How blocks name the layout that wrote them.
fn layout_byte(layout: Layout) -> u8 {
    match layout {
        Layout::Stream => 1,
        Layout::Points => 2,
        Layout::Series => 3,
        Layout::Array => 4,
    }
}

/// What the rows take in memory, nearly: bits and validity are left out.
fn raw_bytes(batch: &RecordBatch) -> usize {
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
    if let Some(time) = definition.time_position() {
        let edge = |row: usize| order_keys(&batch.column(time).slice(row, 1)).map(|keys| keys[0]);
        assert_eq!(
            (edge(0)?, edge(batch.num_rows() - 1)?),
            keys,
            "the order keys of the time column"
        );
    }
    Ok(())
}

/// The values of a fixed-width array: its own memory.
fn native_values<T: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<T> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

fn bitmap(bits: &BooleanBuffer) -> Bitmap<'_> {
    Bitmap::new(bits.values(), bits.offset(), bits.len())
}

fn too_much(error: EncodeError) -> Error {
    Error::with_source(ErrorKind::Limit, error.to_string(), error)
}

/// Collects rows of blocks into batches of some columns of a table.
#[derive(Debug)]
pub struct BlockDecoder {
    schema: SchemaRef,
    columns: Vec<DecodedColumn>,
    rows: usize,
    string_bytes: usize,
    scratch: Scratch,
    /// What is to be read of a block: reused.
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct DecodedColumn {
    column: Column,
    element: ElementType,
    builder: ColumnBuilder,
}

#[derive(Debug)]
struct Scratch {
    decoder: Decoder,
    /// A page of which only some rows are wanted, or of a narrower type.
    page: MutableBuffer,
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl BlockDecoder {
    /// A decoder of all columns, or of those with the ids in `projection`, in that order.
    ///
    /// # Errors
    /// When a projected column does not exist.
    pub fn new(definition: &TableDefinition, projection: Option<&[u32]>) -> Result<Self> {
        let (schema, chosen) = project(definition, projection)?;
        let decoded = |column: &Column| {
            let element = element_type(&column.data_type)
                .ok_or_else(|| crate::error::schema("not a stored type"))?;
            Ok(DecodedColumn {
                column: column.clone(),
                element,
                builder: ColumnBuilder::new(element),
            })
        };
        let columns = chosen.into_iter().map(decoded).collect::<Result<_>>()?;
        let scratch = Scratch {
            decoder: Decoder::new(),
            page: MutableBuffer::new(0),
            offsets: Vec::new(),
            data: Vec::new(),
        };
        Ok(Self {
            schema,
            columns,
            rows: 0,
            string_bytes: 0,
            scratch,
            wanted: Vec::new(),
        })
    }

    /// The schema of its batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows collected so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the batch has collected so many bytes of strings that it should be finished before more rows are added.
    pub fn is_full(&self) -> bool {
        self.string_bytes > MAX_BATCH_BYTES
    }

    /// Makes room for as many rows, which are to be added.
    pub fn reserve(&mut self, rows: usize) {
        self.columns
            .iter_mut()
            .for_each(|decoded| decoded.builder.reserve(rows));
    }

    /// Adds the rows `rows` of a block, all of them for `0..usize::MAX`. Only the pages they lie in are read. After an
    /// error the decoder must not be used again.
    ///
    /// # Errors
    /// `Corruption` when the block is damaged or is not one of this table; whatever reading leads to.
    pub fn push(&mut self, store: &Store, address: &Address, rows: Range<usize>) -> Result<()> {
        let block = store.block(address)?;
        let block_rows = block.head().rows();
        let rows = rows.start.min(block_rows)..rows.end.min(block_rows);
        if rows.is_empty() {
            return Ok(());
        }
        let pages = rows.start / PAGE_ROWS..rows.end.div_ceil(PAGE_ROWS);
        self.wanted.clear();
        for DecodedColumn { column, .. } in &self.columns {
            for role in [Role::Values, Role::Validity] {
                self.wanted.push(Wanted {
                    column_id: column.id,
                    role,
                    pages: pages.clone(),
                });
            }
        }
        self.check_strings(block.head())?;
        let chunks = block.read(&self.wanted)?;
        for (decoded, chunks) in self.columns.iter_mut().zip(chunks.chunks_exact(2)) {
            let source = Source {
                address,
                block_rows,
                rows: rows.clone(),
            };
            decoded.append(
                &source,
                chunks[0].as_ref(),
                chunks[1].as_ref(),
                &mut self.scratch,
            )?;
        }
        self.rows += rows.len();
        self.string_bytes = self
            .columns
            .iter()
            .map(|decoded| decoded.builder.string_bytes())
            .sum();
        Ok(())
    }

    /// Refuses strings beyond the reach of 32 bit offsets before they are decoded.
    fn check_strings(&self, head: &BlockHead) -> Result<()> {
        for DecodedColumn {
            column,
            element,
            builder,
        } in &self.columns
        {
            if *element == ElementType::Bytes
                && let Some(chunk) = head.chunk(column.id, Role::Values)
                && i32::try_from(builder.string_bytes() as u64 + u64::from(chunk.raw_bytes))
                    .is_err()
            {
                return Err(limit(format!(
                    "column \"{}\" holds more than 2 GiB in one batch",
                    column.name
                )));
            }
        }
        Ok(())
    }

    /// The batch. The decoder begins anew.
    ///
    /// # Errors
    /// `Corruption` when strings are not UTF-8.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self
            .columns
            .iter_mut()
            .map(DecodedColumn::finish)
            .collect::<Result<Vec<_>>>()?;
        self.string_bytes = 0;
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| Error::with_source(ErrorKind::Corruption, e.to_string(), e))
    }
}

/// The rows `rows` of one block as a batch of all columns, or of those with the ids in `projection`.
///
/// # Errors
/// As [`BlockDecoder::push`].
pub fn decode_block(
    definition: &TableDefinition,
    store: &Store,
    address: &Address,
    projection: Option<&[u32]>,
    rows: Range<usize>,
) -> Result<RecordBatch> {
    let mut decoder = BlockDecoder::new(definition, projection)?;
    decoder.push(store, address, rows)?;
    decoder.finish()
}

/// Where rows come from.
struct Source<'a> {
    address: &'a Address,
    block_rows: usize,
    rows: Range<usize>,
}

impl Source<'_> {
    /// The wanted pages, each with the rows of it that are wanted.
    fn pages(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let rows = self.rows.clone();
        (rows.start / PAGE_ROWS..rows.end.div_ceil(PAGE_ROWS)).map(move |page| {
            let first = page * PAGE_ROWS;
            let start = rows.start.max(first) - first;
            (page, start..rows.end.min(first + PAGE_ROWS) - first)
        })
    }

    fn damaged(&self, column: &Column, what: &str) -> Error {
        damaged(
            self.address,
            format_args!("column \"{}\" of a block {what}", column.name),
        )
    }
}

impl DecodedColumn {
    fn finish(&mut self) -> Result<ArrayRef> {
        let Self {
            column, builder, ..
        } = self;
        builder
            .finish(column)
            .map_err(|e| damaged(format_args!("column \"{}\"", column.name), e))
    }

    fn append(
        &mut self,
        source: &Source<'_>,
        values: Option<&ChunkPages>,
        validity: Option<&ChunkPages>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let rows = source.rows.len();
        if [values, validity]
            .into_iter()
            .flatten()
            .any(|chunk| chunk.chunk_rows() != source.block_rows)
        {
            return Err(source.damaged(&self.column, "has another number of rows"));
        }
        if (values.is_none() || validity.is_some()) && !self.column.nullable {
            return Err(source.damaged(&self.column, "has nulls and may not"));
        }
        let Some(values) = values else {
            self.builder.append_nulls(rows);
            return Ok(());
        };
        match validity {
            None => self.builder.append_valid(rows),
            Some(validity) => self.append_validity(source, validity, scratch)?,
        }
        let found = values.codec().element;
        if !widens(found, self.element) {
            return Err(source.damaged(&self.column, "has another type"));
        }
        for (page, wanted) in source.pages() {
            let result = match found {
                ElementType::Bits => self.append_bits(values, page, wanted, scratch),
                ElementType::Bytes => self.append_bytes(values, page, wanted, scratch),
                ElementType::I128 => self.append_fixed::<i128>(values, page, wanted, scratch),
                number => {
                    with_number!(number, Native => self.append_fixed::<Native>(values, page, wanted, scratch))
                }
            };
            result.map_err(|fault| match fault {
                Fault::Decode(error) => values.undecodable(source.address, &error),
                Fault::TooLong => limit(format!(
                    "column \"{}\" holds more than 2 GiB in one batch",
                    self.column.name
                )),
            })?;
        }
        Ok(())
    }

    fn append_validity(
        &mut self,
        source: &Source<'_>,
        chunk: &ChunkPages,
        scratch: &mut Scratch,
    ) -> Result<()> {
        for (page, wanted) in source.pages() {
            let bits = scratch
                .bits(chunk, page)
                .map_err(|error| chunk.undecodable(source.address, &error))?;
            self.builder.append_validity(bits, wanted);
        }
        Ok(())
    }

    fn append_bits(
        &mut self,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let bits = scratch.bits(chunk, page)?;
        self.builder.append_bits(bits, wanted);
        Ok(())
    }

    fn append_bytes(
        &mut self,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let rows = chunk.page_rows(page);
        let (codec, prelude, bytes) = (chunk.codec(), chunk.prelude(), chunk.page(page));
        let Scratch {
            decoder,
            offsets,
            data,
            ..
        } = scratch;
        if wanted.len() == rows {
            let (offsets, data) = self.builder.strings_mut();
            return Ok(decoder.decode_bytes_page(codec, prelude, bytes, rows, offsets, data)?);
        }
        offsets.clear();
        data.clear();
        decoder.decode_bytes_page(codec, prelude, bytes, rows, offsets, data)?;
        if self
            .builder
            .append_strings_of(&offsets[wanted.start..=wanted.end], data)
        {
            Ok(())
        } else {
            Err(Fault::TooLong)
        }
    }

    fn append_fixed<T: Element + ArrowNativeType>(
        &mut self,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let rows = chunk.page_rows(page);
        let (codec, prelude, bytes) = (chunk.codec(), chunk.prelude(), chunk.page(page));
        if wanted.len() == rows && T::TYPE == self.element {
            return Ok(scratch.decoder.decode_page(
                codec,
                prelude,
                bytes,
                self.builder.grow::<T>(rows),
            )?);
        }
        scratch.page.resize(rows * size_of::<T>(), 0);
        scratch
            .decoder
            .decode_page(codec, prelude, bytes, scratch.page.typed_data_mut::<T>())?;
        let kept = wanted.start * size_of::<T>()..wanted.end * size_of::<T>();
        self.builder
            .append_fixed(T::TYPE, &scratch.page.as_slice()[kept]);
        Ok(())
    }
}

/// Why rows of a page were not added.
enum Fault {
    Decode(DecodeError),
    TooLong,
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Scratch {
    /// A page of bits, those behind the last row zero.
    fn bits(&mut self, chunk: &ChunkPages, page: usize) -> Result<&[u8], DecodeError> {
        let rows = chunk.page_rows(page);
        self.page.resize(rows.div_ceil(8), 0);
        let out = self.page.as_slice_mut();
        self.decoder.decode_bits_page(
            chunk.codec(),
            chunk.prelude(),
            chunk.page(page),
            rows,
            out,
        )?;
        Ok(self.page.as_slice())
    }
}
