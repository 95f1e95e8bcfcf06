//! Single rows of blocks into batches: only the pages that hold them are read, through the cache, and only their values decoded.
//!
//! Invariants
//! - A page is looked up, and read and verified where it is not in memory, at most once for all rows of a call.
//! - No row takes memory of its own but that of its values: buffers are used again from one call to the next.
//! - Of a page that several rows lie in all values are decoded at once where that is less work.
//! - Each column has a decoder of its own, so that tables which a codec makes of a prelude are made once per chunk.

use super::decode::{check_head, too_long};
use super::with_number;
use crate::assemble::{BatchBuilder, BatchColumn};
use crate::definition::TableDefinition;
use crate::error::{damaged, invalid};
use crate::schema::widens;
use arrow_array::RecordBatch;
use arrow_buffer::{ArrowNativeType, MutableBuffer, ToByteSlice};
use std::ops::Range;
use thalweg_codec::{ChunkKind, CodecChain, DecodeError, Decoder, Element, ElementType};
use thalweg_kernel::block::{
    BlockHead, BlockReader, Dimension, Grid, PageSet, PagesOf, Paging, Role, VerifiedPages,
};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::{Error, Result};

/// The byte by which blocks name the layout of arrays, whose blocks may have a grid and empty positions.
const ARRAY_LAYOUT: u8 = 4;

/// Where decoding of one value costs no more than this part of decoding its page.
const PAGE_PER_VALUE: usize = 128;

/// Collects single rows of blocks into batches of some columns of a table.
#[derive(Debug)]
pub struct ValueDecoder {
    batch: BatchBuilder,
    /// One for each column, and one for presence.
    decoders: Vec<Decoder>,
    set: PageSet,
    /// The pages to be read of each column.
    wanted: Vec<WantedColumn>,
    places: Places,
    scratch: Scratch,
}

/// Where the wanted rows lie.
#[derive(Debug, Default)]
struct Places {
    /// Numbers of the pages, ascending.
    pages: Vec<usize>,
    /// Which of the rows lie in each of them.
    groups: Vec<Range<usize>>,
    /// The place of each row in its page.
    within: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct WantedColumn {
    values: Option<PagesOf>,
    validity: Option<PagesOf>,
}

#[derive(Debug)]
struct Scratch {
    page: MutableBuffer,
    offsets: Vec<i32>,
    data: Vec<u8>,
}

/// Why a value was not added.
enum Fault {
    Decode(DecodeError),
    TooLong,
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl ValueDecoder {
    /// A decoder of all columns, or of those with the ids in `projection`, in that order.
    ///
    /// # Errors
    /// When a projected column does not exist.
    pub fn new(definition: &TableDefinition, projection: Option<&[u32]>) -> Result<Self> {
        let batch = BatchBuilder::new(definition, projection)?;
        let decoders = (0..=batch.columns.len()).map(|_| Decoder::new()).collect();
        Ok(Self {
            batch,
            decoders,
            set: PageSet::new(),
            wanted: Vec::new(),
            places: Places::default(),
            scratch: Scratch {
                page: MutableBuffer::new(0),
                offsets: Vec::new(),
                data: Vec::new(),
            },
        })
    }

    /// Rows collected so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch.rows
    }

    /// Adds some rows of a block by their positions, which ascend; one may come several times. After an error the decoder must not
    /// be used again.
    ///
    /// # Errors
    /// `Corruption` when the block is damaged or is not one of this table, `Unsupported` when it is one of a newer version,
    /// `Invalid` when it has no row at one of the positions; whatever reading leads to.
    ///
    /// # Panics
    /// When the positions do not ascend.
    pub fn push(&mut self, store: &Store, address: &Address, positions: &[u32]) -> Result<()> {
        self.push_rows(&store.block(address)?, positions)
    }

    /// Adds rows of a block whose head was read, as [`Self::push`] does.
    ///
    /// # Errors
    /// As [`Self::push`].
    ///
    /// # Panics
    /// As there.
    pub fn push_rows(&mut self, block: &BlockReader<'_>, positions: &[u32]) -> Result<()> {
        let (head, address) = (block.head(), block.address());
        check_block(head, address)?;
        self.places.find(head, positions)?;
        let presence = self.want(head);
        block.load(&mut self.set)?;
        let added = self.append(head, address, positions, presence);
        self.set.clear();
        added?;
        self.batch.rows += positions.len();
        Ok(())
    }

    /// Notes the pages to be read; returns those of presence.
    fn want(&mut self, head: &BlockHead) -> Option<PagesOf> {
        let (set, pages) = (&mut self.set, &self.places.pages);
        set.clear();
        self.wanted.clear();
        for column in &self.batch.columns {
            self.wanted.push(WantedColumn {
                values: set.want(head, column.id, Role::Values, pages),
                validity: set.want(head, column.id, Role::Validity, pages),
            });
        }
        set.want(head, 0, Role::Presence, pages)
    }

    fn append(
        &mut self,
        head: &BlockHead,
        address: &Address,
        positions: &[u32],
        presence: Option<PagesOf>,
    ) -> Result<()> {
        let source = Source {
            head,
            address,
            positions,
            places: &self.places,
            set: &self.set,
        };
        let decoder = &mut self.decoders[self.batch.columns.len()];
        if let Some(presence) = presence {
            source.check_presence(presence, decoder, &mut self.scratch)?;
        }
        let columns = self.batch.columns.iter_mut();
        for ((column, wanted), decoder) in columns.zip(&self.wanted).zip(&mut self.decoders) {
            source.append(column, *wanted, decoder, &mut self.scratch)?;
        }
        Ok(())
    }

    /// The batch. The decoder begins anew.
    ///
    /// # Errors
    /// `Corruption` when strings are not UTF-8.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.batch.finish("the rows of a block")
    }
}

/// Refuses blocks that this version does not read.
fn check_block(head: &BlockHead, address: &Address) -> Result<()> {
    if head.spec().layout == ARRAY_LAYOUT {
        return Ok(());
    }
    check_head(head, address)
}

impl Places {
    /// Finds the pages of some positions of a block, which ascend.
    fn find(&mut self, head: &BlockHead, positions: &[u32]) -> Result<()> {
        self.pages.clear();
        self.groups.clear();
        self.within.clear();
        assert!(positions.is_sorted(), "positions that do not ascend");
        if let Some(last) = positions.last()
            && *last as usize >= head.positions()
        {
            let count = head.positions();
            let message = format!("a block of {count} positions has no row at position {last}");
            return Err(invalid(message));
        }
        let mut page = 0..0;
        for (row, position) in positions.iter().enumerate() {
            let position = *position as usize;
            if position >= page.end {
                let number;
                (number, page) = page_of(head.paging(), position);
                self.pages.push(number);
                self.groups.push(row..row);
            }
            self.within.push(position - page.start);
            if let Some(group) = self.groups.last_mut() {
                group.end = row + 1;
            }
        }
        Ok(())
    }
}

/// The page of a position, and its positions; of the last page perhaps some that the block does not have.
fn page_of(paging: &Paging, position: usize) -> (usize, Range<usize>) {
    match paging {
        Paging::Even(of_page) => {
            let of_page = *of_page as usize;
            let number = position / of_page;
            (number, number * of_page..(number + 1) * of_page)
        }
        Paging::Grid(grid) => {
            let number = grid.page_of(position);
            (number, grid.page_range(number))
        }
    }
}

/// Whether it is less work to decode all values of a page than some of them one by one.
fn whole_page_pays(codec: CodecChain, wanted: usize, rows: usize) -> bool {
    // Of pco all values up to the wanted one are decoded, for each.
    wanted > 1 && (codec.kind == ChunkKind::Pco || wanted * PAGE_PER_VALUE >= rows)
}

/// Where rows come from.
struct Source<'a> {
    head: &'a BlockHead,
    address: &'a Address,
    positions: &'a [u32],
    places: &'a Places,
    set: &'a PageSet,
}

impl Source<'_> {
    fn damaged(&self, column: &BatchColumn, what: &str) -> Error {
        damaged(
            self.address,
            format_args!("column \"{}\" of a block {what}", column.field.name()),
        )
    }

    fn undecodable(&self, id: u32, role: Role, error: &DecodeError) -> Error {
        self.head.undecodable((id, role), self.address, error)
    }

    /// Hands each of the bits to `take`, in the order of the rows.
    fn bits(
        &self,
        pages: VerifiedPages<'_>,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        mut take: impl FnMut(usize, bool),
    ) -> Result<(), DecodeError> {
        let (codec, prelude) = (pages.codec(), pages.prelude());
        for (nth, group) in self.places.groups.iter().enumerate() {
            let (page, rows) = (pages.page(nth), pages.page_rows(nth));
            let is_whole = whole_page_pays(codec, group.len(), rows);
            if is_whole {
                scratch.page.resize(rows.div_ceil(8), 0);
                let bits = scratch.page.as_slice_mut();
                decoder.decode_bits_page(codec, prelude, page, rows, bits)?;
            }
            for row in group.clone() {
                let within = self.places.within[row];
                let bit = if is_whole {
                    scratch.page.as_slice()[within / 8] >> (within % 8) & 1 == 1
                } else {
                    decoder.decode_bit(codec, prelude, page, rows, within)?
                };
                take(row, bit);
            }
        }
        Ok(())
    }

    /// An error if one of the positions is empty.
    fn check_presence(
        &self,
        of: PagesOf,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut empty = None;
        let take = |row: usize, is_there: bool| {
            if !is_there {
                empty.get_or_insert(self.positions[row]);
            }
        };
        self.bits(self.set.pages(of), decoder, scratch, take)
            .map_err(|error| self.undecodable(0, Role::Presence, &error))?;
        match empty {
            None => Ok(()),
            Some(position) => Err(invalid(format!(
                "position {position} of a block is empty: no row is there"
            ))),
        }
    }

    /// Adds the rows of one column.
    fn append(
        &self,
        column: &mut BatchColumn,
        wanted: WantedColumn,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let rows = self.positions.len();
        if let Some(grid) = self.head.paging().grid()
            && let Some(place) = (grid.dimensions().iter()).position(|d| d.column_id == column.id)
        {
            return self.append_coordinates(column, grid, place);
        }
        if wanted.values.is_none() && wanted.validity.is_none() && column.may_be_missing() {
            return match column.append_missing(rows) {
                true => Ok(()),
                false => Err(too_long(&column.field)),
            };
        }
        if (wanted.values.is_none() || wanted.validity.is_some()) && !column.field.is_nullable() {
            return Err(self.damaged(column, "has nulls and may not"));
        }
        let Some(values) = wanted.values else {
            column.builder.append_nulls(rows);
            return Ok(());
        };
        let values = self.set.pages(values);
        if !widens(values.codec().element, column.element) {
            return Err(self.damaged(column, "has another type"));
        }
        match wanted.validity {
            None => column.builder.append_valid(rows),
            Some(validity) => {
                let builder = &mut column.builder;
                let validity = self.set.pages(validity);
                self.bits(validity, decoder, scratch, |_, is_valid| {
                    builder.append_is_valid(is_valid);
                })
                .map_err(|error| self.undecodable(column.id, Role::Validity, &error))?;
            }
        }
        let added = match values.codec().element {
            ElementType::Bits => self
                .bits(values, decoder, scratch, |_, bit| {
                    column.builder.append_bits(&[u8::from(bit)], 0..1);
                })
                .map_err(Fault::Decode),
            ElementType::Bytes => self.append_strings(column, values, decoder, scratch),
            ElementType::I128 => self.append_fixed::<i128>(column, values, decoder, scratch),
            number => with_number!(
                number, Native => self.append_fixed::<Native>(column, values, decoder, scratch)
            ),
        };
        added.map_err(|fault| match fault {
            Fault::Decode(error) => self.undecodable(column.id, Role::Values, &error),
            Fault::TooLong => too_long(&column.field),
        })
    }

    fn append_fixed<T: Element + ArrowNativeType>(
        &self,
        column: &mut BatchColumn,
        pages: VerifiedPages<'_>,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (codec, prelude) = (pages.codec(), pages.prelude());
        for (nth, group) in self.places.groups.iter().enumerate() {
            let (page, rows) = (pages.page(nth), pages.page_rows(nth));
            let wanted = &self.places.within[group.clone()];
            if whole_page_pays(codec, wanted.len(), rows) {
                scratch.page.resize(rows * size_of::<T>(), 0);
                let values = scratch.page.typed_data_mut::<T>();
                decoder.decode_page(codec, prelude, page, values)?;
                for &within in wanted {
                    let value = &values[within..=within];
                    column.builder.append_fixed(T::TYPE, value.to_byte_slice());
                }
                continue;
            }
            for &within in wanted {
                let value: T = decoder.decode_value(codec, prelude, page, rows, within)?;
                let value = [value];
                column.builder.append_fixed(T::TYPE, value.to_byte_slice());
            }
        }
        Ok(())
    }

    fn append_strings(
        &self,
        column: &mut BatchColumn,
        pages: VerifiedPages<'_>,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (codec, prelude) = (pages.codec(), pages.prelude());
        for (nth, group) in self.places.groups.iter().enumerate() {
            let (page, rows) = (pages.page(nth), pages.page_rows(nth));
            let wanted = &self.places.within[group.clone()];
            if whole_page_pays(codec, wanted.len(), rows) {
                let Scratch { offsets, data, .. } = scratch;
                offsets.clear();
                data.clear();
                decoder.decode_bytes_page(codec, prelude, page, rows, offsets, data)?;
                for &within in wanted {
                    let value = &offsets[within..=within + 1];
                    if !column.builder.append_strings_of(value, data) {
                        return Err(Fault::TooLong);
                    }
                }
                continue;
            }
            let (offsets, data) = column.builder.strings_mut();
            for &within in wanted {
                decoder.decode_bytes_value(codec, prelude, page, rows, within, data)?;
                offsets.push(i32::try_from(data.len()).map_err(|_| Fault::TooLong)?);
            }
        }
        Ok(())
    }

    /// Adds the coordinates of the rows along a dimension of the grid.
    fn append_coordinates(
        &self,
        column: &mut BatchColumn,
        grid: &Grid,
        place: usize,
    ) -> Result<()> {
        let dimensions = grid.dimensions();
        let mut index = [0; thalweg_kernel::block::MAX_DIMENSIONS];
        let index = &mut index[..dimensions.len()];
        column.builder.append_valid(self.positions.len());
        for position in self.positions {
            grid.index(*position as usize, index);
            let added = append_coordinate(column, &dimensions[place], index[place]);
            added.ok_or_else(|| self.damaged(column, "has a coordinate that its type has not"))?;
        }
        Ok(())
    }
}

/// Adds the coordinate of an index; `None` if the column has no such value.
fn append_coordinate(column: &mut BatchColumn, along: &Dimension, index: u32) -> Option<()> {
    let key = along.coordinate(index)?;
    let element = column.element;
    macro_rules! append {
        ($type:ty, $key:expr) => {{
            let value = [<$type>::try_from($key).ok()?];
            column.builder.append_fixed(element, value.to_byte_slice());
        }};
    }
    match element {
        ElementType::I8 => append!(i8, key),
        ElementType::I16 => append!(i16, key),
        ElementType::I32 => append!(i32, key),
        ElementType::I64 => append!(i64, key),
        ElementType::U8 => append!(u8, key),
        ElementType::U16 => append!(u16, key),
        ElementType::U32 => append!(u32, key),
        // As an order key it has its highest bit flipped.
        ElementType::U64 => append!(u64, key.cast_unsigned() ^ 1 << 63),
        _ => return None,
    }
    Some(())
}
