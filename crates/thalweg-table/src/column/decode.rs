//! Rows of blocks into batches.

use super::with_number;
use crate::assemble::{BatchBuilder, BatchColumn};
use crate::buffers::Buffers;
use crate::definition::TableDefinition;
use crate::error::{damaged, limit};
use crate::schema::widens;
use crate::system_columns::check_stream_block;
use arrow_array::RecordBatch;
use arrow_buffer::{ArrowNativeType, MutableBuffer};
use arrow_schema::{Field, SchemaRef};
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::{DecodeError, Decoder, Element, ElementType, PAGE_ROWS};
use thalweg_kernel::block::{BlockHead, BlockReader, ChunkPages, Paging, Role, Wanted};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::{Error, ErrorKind, Result};

/// A batch with more bytes of strings than this should be finished before more rows are added.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Collects rows of blocks into batches of some columns of a table.
#[derive(Debug)]
pub struct BlockDecoder {
    batch: BatchBuilder,
    string_bytes: usize,
    read_bytes: u64,
    scratch: Scratch,
    /// The pages to be read of a block; the list is reused.
    wanted: Vec<Wanted>,
    /// Memory of large columns, used again.
    buffers: Option<Arc<Buffers>>,
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
        let scratch = Scratch {
            decoder: Decoder::new(),
            page: MutableBuffer::new(0),
            offsets: Vec::new(),
            data: Vec::new(),
        };
        let batch = BatchBuilder::new(definition, projection)?;
        Ok(Self {
            batch,
            string_bytes: 0,
            read_bytes: 0,
            scratch,
            wanted: Vec::new(),
            buffers: None,
        })
    }

    /// Takes the memory of large columns from `buffers` from now on.
    pub(crate) fn use_again(&mut self, buffers: &Arc<Buffers>) {
        self.buffers = Some(Arc::clone(buffers));
    }

    /// The schema of its batches.
    pub fn schema(&self) -> &SchemaRef {
        self.batch.schema()
    }

    /// Rows collected so far.
    pub fn rows(&self) -> usize {
        self.batch.rows
    }

    /// Whether the batch has collected so many bytes of strings that it should be finished before more rows are added.
    pub fn is_full(&self) -> bool {
        self.string_bytes > MAX_BATCH_BYTES
    }

    /// Makes room for so many rows, which will be added.
    pub fn reserve(&mut self, rows: usize) {
        self.batch
            .columns
            .iter_mut()
            .for_each(|column| column.builder.reserve(rows, self.buffers.as_ref()));
    }

    /// Encoded bytes that were decoded since the last call.
    pub(crate) fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }

    /// Adds the rows `rows` of a block, all of them for `0..usize::MAX`. Only the pages they lie in are read. After an
    /// error the decoder must not be used again.
    ///
    /// # Errors
    /// As [`Self::push_parts`].
    pub fn push(&mut self, store: &Store, address: &Address, rows: Range<usize>) -> Result<()> {
        let mut block = store.block(address)?;
        let block_rows = block.head().rows();
        let rows = rows.start.min(block_rows)..rows.end.min(block_rows);
        self.push_parts(&mut block, &[rows])
    }

    /// Adds some rows of a block: ranges that ascend and do not overlap. Only the pages they lie in are read, together. After an
    /// error the decoder must not be used again.
    ///
    /// # Errors
    /// `Corruption` when the block is damaged or is not one of this table, `Unsupported` when it is one of a newer version;
    /// whatever reading leads to.
    ///
    /// # Panics
    /// When the block does not have these rows.
    pub fn push_parts(
        &mut self,
        block: &mut BlockReader<'_>,
        parts: &[Range<usize>],
    ) -> Result<()> {
        let head = Arc::clone(block.head());
        let address = *block.address();
        check_head(&head, &address)?;
        self.check_strings(&head)?;
        self.wanted.clear();
        for rows in parts.iter().filter(|rows| !rows.is_empty()) {
            assert!(rows.end <= head.rows(), "{rows:?} of {}", head.rows());
            self.want(rows);
        }
        if self.wanted.is_empty() {
            self.batch.rows += parts.iter().map(Range::len).sum::<usize>();
            return Ok(());
        }
        let chunks = block.read(&self.wanted)?;
        self.count_read(&chunks);
        let of_part = 2 * self.batch.columns.len();
        let parts = parts.iter().filter(|rows| !rows.is_empty());
        for (rows, chunks) in parts.zip(chunks.chunks_exact(of_part)) {
            self.append_part(&address, &head, rows, chunks)?;
        }
        let columns = self.batch.columns.iter();
        self.string_bytes = columns.map(|column| column.builder.string_bytes()).sum();
        Ok(())
    }

    /// Notes what is to be read for these rows.
    fn want(&mut self, rows: &Range<usize>) {
        let pages = rows.start / PAGE_ROWS..rows.end.div_ceil(PAGE_ROWS);
        for column in &self.batch.columns {
            for role in [Role::Values, Role::Validity] {
                self.wanted.push(Wanted {
                    column_id: column.id,
                    role,
                    pages: pages.clone(),
                });
            }
        }
    }

    /// Counts encoded bytes; of a chunk that was read in parts its prelude once.
    fn count_read(&mut self, chunks: &[Option<ChunkPages>]) {
        let of_part = 2 * self.batch.columns.len();
        for (at, chunk) in chunks.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            let pages = chunk.pages().map(|number| chunk.page(number).len());
            let prelude_bytes = if at < of_part {
                chunk.prelude().len()
            } else {
                0
            };
            self.read_bytes += (prelude_bytes + pages.sum::<usize>()) as u64;
        }
    }

    /// Adds some rows, given what was read of the chunks that they lie in.
    fn append_part(
        &mut self,
        address: &Address,
        head: &BlockHead,
        rows: &Range<usize>,
        chunks: &[Option<ChunkPages>],
    ) -> Result<()> {
        let source = Source {
            address,
            block_rows: head.rows(),
            rows: rows.clone(),
        };
        for (column, chunks) in self.batch.columns.iter_mut().zip(chunks.chunks_exact(2)) {
            source.append(
                column,
                chunks[0].as_ref(),
                chunks[1].as_ref(),
                &mut self.scratch,
            )?;
        }
        self.batch.rows += rows.len();
        Ok(())
    }

    /// Refuses strings beyond the reach of 32 bit offsets before they are decoded.
    fn check_strings(&self, head: &BlockHead) -> Result<()> {
        for BatchColumn {
            id,
            field,
            element,
            builder,
            ..
        } in &self.batch.columns
        {
            if *element == ElementType::Bytes
                && let Some(chunk) = head.chunk(*id, Role::Values)
                && i32::try_from(builder.string_bytes() as u64 + u64::from(chunk.raw_bytes))
                    .is_err()
            {
                return Err(too_long(field));
            }
        }
        Ok(())
    }

    /// The batch. The decoder begins anew.
    ///
    /// # Errors
    /// `Corruption` when strings are not UTF-8.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.string_bytes = 0;
        self.batch.finish("the rows of a block")
    }
}

/// Refuses blocks that no stream has.
pub(super) fn check_head(head: &BlockHead, address: &Address) -> Result<()> {
    if *head.paging() != Paging::default() {
        let pages = head.paging().page_positions();
        let message = format!(
            "{address}: a block has pages of {pages} positions or a grid, which this version of Thalweg does not read"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if head.rows() != head.positions() {
        return Err(damaged(address, "a block of rows has empty positions"));
    }
    check_stream_block(head, address)
}

pub(super) fn too_long(field: &Field) -> Error {
    limit(format!(
        "column \"{}\" holds more than 2 GiB in one batch",
        field.name()
    ))
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

    fn damaged(&self, column: &BatchColumn, what: &str) -> Error {
        damaged(
            self.address,
            format_args!("column \"{}\" of a block {what}", column.field.name()),
        )
    }

    /// Adds the rows of one column, given what was read of its chunks.
    fn append(
        &self,
        column: &mut BatchColumn,
        values: Option<&ChunkPages>,
        validity: Option<&ChunkPages>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut chunks = [values, validity].into_iter().flatten();
        if chunks.any(|chunk| chunk.chunk_rows() != self.block_rows) {
            return Err(self.damaged(column, "has another number of rows"));
        }
        if values.is_none() && validity.is_none() && column.may_be_missing() {
            return match column.append_missing(self.rows.len()) {
                true => Ok(()),
                false => Err(too_long(&column.field)),
            };
        }
        if (values.is_none() || validity.is_some()) && !column.field.is_nullable() {
            return Err(self.damaged(column, "has nulls and may not"));
        }
        let Some(values) = values else {
            column.builder.append_nulls(self.rows.len());
            return Ok(());
        };
        if !widens(values.codec().element, column.element) {
            return Err(self.damaged(column, "has another type"));
        }
        match validity {
            None => column.builder.append_valid(self.rows.len()),
            Some(validity) => self.append_validity(column, validity, scratch)?,
        }
        for (page, wanted) in self.pages() {
            scratch
                .append_page(column, values, page, wanted)
                .map_err(|fault| match fault {
                    Fault::Decode(error) => values.undecodable(self.address, &error),
                    Fault::TooLong => too_long(&column.field),
                })?;
        }
        Ok(())
    }

    fn append_validity(
        &self,
        column: &mut BatchColumn,
        chunk: &ChunkPages,
        scratch: &mut Scratch,
    ) -> Result<()> {
        for (page, wanted) in self.pages() {
            let bits = scratch
                .bits(chunk, page)
                .map_err(|error| chunk.undecodable(self.address, &error))?;
            column.builder.append_validity(bits, wanted);
        }
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
    /// Adds the values of the rows `wanted` of a page.
    fn append_page(
        &mut self,
        column: &mut BatchColumn,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
    ) -> Result<(), Fault> {
        match chunk.codec().element {
            ElementType::Bits => {
                column.builder.append_bits(self.bits(chunk, page)?, wanted);
                Ok(())
            }
            ElementType::Bytes => self.append_strings(column, chunk, page, wanted),
            ElementType::I128 => Ok(self.append_fixed::<i128>(column, chunk, page, wanted)?),
            number => {
                with_number!(number, Native => Ok(self.append_fixed::<Native>(column, chunk, page, wanted)?))
            }
        }
    }

    fn append_strings(
        &mut self,
        column: &mut BatchColumn,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
    ) -> Result<(), Fault> {
        let rows = chunk.page_rows(page);
        let (codec, prelude, bytes) = (chunk.codec(), chunk.prelude(), chunk.page(page));
        if wanted.len() == rows {
            let (offsets, data) = column.builder.strings_mut();
            return Ok(self
                .decoder
                .decode_bytes_page(codec, prelude, bytes, rows, offsets, data)?);
        }
        let Self {
            decoder,
            offsets,
            data,
            ..
        } = self;
        offsets.clear();
        data.clear();
        decoder.decode_bytes_page(codec, prelude, bytes, rows, offsets, data)?;
        let fits = column
            .builder
            .append_strings_of(&offsets[wanted.start..=wanted.end], data);
        if fits { Ok(()) } else { Err(Fault::TooLong) }
    }

    fn append_fixed<T: Element + ArrowNativeType>(
        &mut self,
        column: &mut BatchColumn,
        chunk: &ChunkPages,
        page: usize,
        wanted: Range<usize>,
    ) -> Result<(), DecodeError> {
        let rows = chunk.page_rows(page);
        let (codec, prelude, bytes) = (chunk.codec(), chunk.prelude(), chunk.page(page));
        if wanted.len() == rows && T::TYPE == column.element {
            return self
                .decoder
                .decode_page(codec, prelude, bytes, column.builder.grow::<T>(rows));
        }
        self.page.resize(rows * size_of::<T>(), 0);
        self.decoder
            .decode_page(codec, prelude, bytes, self.page.typed_data_mut::<T>())?;
        let kept = wanted.start * size_of::<T>()..wanted.end * size_of::<T>();
        column
            .builder
            .append_fixed(T::TYPE, &self.page.as_slice()[kept]);
        Ok(())
    }

    /// Reads a page of bits; those past the last row are zero.
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
