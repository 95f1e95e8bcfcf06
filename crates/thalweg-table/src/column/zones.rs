//! Zones: for each page of a block bounds of the values of a column, so that a scan reads only pages that can have what it
//! looks for.
//!
//! Invariants: bounds are outer, they prune and never answer; a low above the high means that the page has no value.

use super::decode::check_head;
use super::with_number;
use crate::schema::widens;
use arrow_buffer::ArrowNativeType;
use std::cmp::Ordering;
use thalweg_codec::{
    DecodeError, Decoder, Element, ElementType, EncodeError, EncodedChunk, Encoder,
};
use thalweg_kernel::block::{BLOCK_PAGE_POSITIONS, BlockReader, ChunkPages, Role, Wanted};
use thalweg_kernel::summary::{ColumnSummary, SUMMARY_CHUNK_ROWS, ValueRange};
use thalweg_kernel::{Error, Result};

/// Blocks of fewer pages have no zones.
pub(crate) const MIN_PAGES: usize = 8;

/// Bounds come out of the summary of a column.
const _: () = assert!(SUMMARY_CHUNK_ROWS == BLOCK_PAGE_POSITIONS as usize);

/// The bounds of the pages of a column, ready to be encoded.
#[derive(Debug, Default)]
pub(crate) struct ZoneEncoder {
    pages: Vec<ColumnSummary>,
    lows: EncodedChunk,
    highs: EncodedChunk,
}

impl ZoneEncoder {
    /// Where the summaries of the pages of a column belong, empty.
    pub(crate) fn pages(&mut self) -> &mut Vec<ColumnSummary> {
        self.pages.clear();
        &mut self.pages
    }

    /// Encodes the bounds of the pages that were summarised; `None` for a type whose summaries have none: decimals, strings
    /// and binaries.
    ///
    /// # Errors
    /// Never for the few values that these are.
    pub(crate) fn encode(
        &mut self,
        encoder: &mut Encoder,
        element: ElementType,
    ) -> Result<Option<(&EncodedChunk, &EncodedChunk)>, EncodeError> {
        match element {
            ElementType::I128 | ElementType::Bytes => return Ok(None),
            ElementType::Bits => {
                let bounds = self.pages.iter().map(i8::bounds);
                // Without a value the low is above the high: true and false.
                let bits = bounds.map(|(low, high)| (low > 0, high > 0));
                let (lows, highs): (Vec<bool>, Vec<bool>) = bits.unzip();
                encoder.encode_bits(&packed(&lows), lows.len(), &mut self.lows)?;
                encoder.encode_bits(&packed(&highs), highs.len(), &mut self.highs)?;
            }
            number => with_number!(number, Native => {
                let (lows, highs): (Vec<Native>, Vec<Native>) =
                    self.pages.iter().map(Native::bounds).unzip();
                encoder.encode(&lows, &mut self.lows)?;
                encoder.encode(&highs, &mut self.highs)?;
            }),
        }
        Ok(Some((&self.lows, &self.highs)))
    }
}

/// A number of which pages have bounds.
trait ZoneNumber: Sized {
    /// The bounds of the values of a page: of no value the largest number and the smallest.
    fn bounds(page: &ColumnSummary) -> (Self, Self);
}

macro_rules! integers {
    ($($type:ty => $range:ident),*) => {
        $(impl ZoneNumber for $type {
            fn bounds(page: &ColumnSummary) -> (Self, Self) {
                page.$range().map_or((Self::MAX, Self::MIN), |(low, high)| {
                    // Values of the type, so neither is out of range.
                    let (low, high) = (Self::try_from(low), Self::try_from(high));
                    (low.unwrap_or(Self::MIN), high.unwrap_or(Self::MAX))
                })
            }
        })*
    };
}

integers!(
    i8 => int_range, i16 => int_range, i32 => int_range, i64 => int_range,
    u8 => uint_range, u16 => uint_range, u32 => uint_range, u64 => uint_range
);

impl ZoneNumber for f64 {
    fn bounds(page: &ColumnSummary) -> (Self, Self) {
        let has_nan = page.nan_rows > 0;
        match page.float_range() {
            // Zeros of both signs are one value for a summary.
            Some((low, high)) => (
                if low == 0.0 { -0.0 } else { low },
                if has_nan { Self::NAN } else { high + 0.0 },
            ),
            None if has_nan => (Self::NAN, Self::NAN),
            None => (Self::NAN, Self::NEG_INFINITY),
        }
    }
}

impl ZoneNumber for f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the summary of numbers of this type has them widened"
    )]
    fn bounds(page: &ColumnSummary) -> (Self, Self) {
        let (low, high) = f64::bounds(page);
        let narrow = |bound: f64| {
            if bound.is_nan() {
                Self::NAN
            } else {
                bound as Self
            }
        };
        (narrow(low), narrow(high))
    }
}

fn packed(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| {
        let set = bits.iter().enumerate().filter(|(_, bit)| **bit);
        set.fold(0, |byte, (at, _)| byte | 1 << at)
    };
    bits.chunks(8).map(byte).collect()
}

/// The bounds of the pages of a column of a block.
#[derive(Debug)]
pub(crate) enum Zones {
    Signed(Vec<(i64, i64)>),
    Unsigned(Vec<(u64, u64)>),
    Float(Vec<(f64, f64)>),
    /// Bounds that no range is of yet.
    Other,
}

impl Zones {
    /// Reads the zones of a column, one for each page of a stream; `None` if the block has none.
    ///
    /// # Errors
    /// `Corruption` when they are damaged or of another type, `Unsupported` for a block with other pages; whatever reading
    /// leads to.
    pub(crate) fn read(
        block: &mut BlockReader<'_>,
        decoder: &mut Decoder,
        column_id: u32,
        element: ElementType,
    ) -> Result<Option<Self>> {
        let wanted = [Role::ZoneLows, Role::ZoneHighs].map(|role| Wanted::all(column_id, role));
        let Some(chunk) = block.head().chunk(column_id, Role::ZoneLows) else {
            return Ok(None);
        };
        let address = *block.address();
        check_head(block.head(), &address)?;
        let stored = chunk.codec.element;
        if !widens(stored, element) {
            let what = format!("the zones of column {column_id} have another type");
            return Err(Error::corruption(address, what));
        }
        if matches!(stored, ElementType::Bytes | ElementType::I128) {
            return Ok(Some(Self::Other));
        }
        let found = block.read(&wanted)?;
        let [Some(lows), Some(highs)] = &found[..] else {
            return Ok(None);
        };
        let zones = Self::decode(decoder, stored, lows, highs);
        let zones = zones.map_err(|(error, chunk)| chunk.undecodable(&address, &error))?;
        Ok(Some(zones))
    }

    fn decode<'a>(
        decoder: &mut Decoder,
        stored: ElementType,
        lows: &'a ChunkPages,
        highs: &'a ChunkPages,
    ) -> Result<Self, (DecodeError, &'a ChunkPages)> {
        use ElementType as E;
        let mut both = |wide: Wide| {
            let lows = wide.decode(decoder, lows).map_err(|error| (error, lows))?;
            let highs = wide
                .decode(decoder, highs)
                .map_err(|error| (error, highs))?;
            Ok((lows, highs))
        };
        Ok(match stored {
            E::Bits | E::I8 | E::I16 | E::I32 | E::I64 => {
                let (lows, highs) = both(Wide(stored))?;
                Self::Signed(zip(lows, highs, u64::cast_signed))
            }
            E::U8 | E::U16 | E::U32 | E::U64 => {
                let (lows, highs) = both(Wide(stored))?;
                Self::Unsigned(zip(lows, highs, |bits| bits))
            }
            E::F32 | E::F64 => {
                let (lows, highs) = both(Wide(stored))?;
                Self::Float(zip(lows, highs, f64::from_bits))
            }
            E::I128 | E::Bytes => Self::Other,
        })
    }

    /// Whether no row of the page has a value in the range.
    pub(crate) fn prunes(&self, page: usize, range: &ValueRange) -> bool {
        match (self, range) {
            (Self::Signed(bounds), ValueRange::Int(first, last)) => {
                misses(bounds[page], (*first, *last))
            }
            (Self::Unsigned(bounds), ValueRange::UInt(first, last)) => {
                misses(bounds[page], (*first, *last))
            }
            (
                Self::Float(bounds),
                ValueRange::Float {
                    min,
                    max,
                    accepts_nan,
                },
            ) => misses_floats(bounds[page], (*min, *max), *accepts_nan),
            _ => false,
        }
    }
}

fn zip<T>(lows: Vec<u64>, highs: Vec<u64>, value: impl Fn(u64) -> T) -> Vec<(T, T)> {
    let pairs = lows.into_iter().zip(highs);
    pairs.map(|(low, high)| (value(low), value(high))).collect()
}

fn misses<T: Copy + Ord>((low, high): (T, T), (first, last): (Option<T>, Option<T>)) -> bool {
    low > high || first.is_some_and(|first| high < first) || last.is_some_and(|last| low > last)
}

/// Whether no float between these bounds is wanted. A NaN as the high means that the page has one, and says nothing of its largest
/// number.
fn misses_floats(
    (low, high): (f64, f64),
    (min, max): (Option<f64>, Option<f64>),
    accepts_nan: bool,
) -> bool {
    let has_nan = high.is_nan();
    if has_nan && accepts_nan {
        return false;
    }
    // Without a number: all are NaN, or there is no value at all.
    if low.is_nan() || low.total_cmp(&high) == Ordering::Greater {
        return true;
    }
    min.is_some_and(|min| !has_nan && high < min) || max.is_some_and(|max| low > max)
}

/// Numbers of up to 64 bits, as the 64 bits that they widen to.
#[derive(Clone, Copy)]
struct Wide(ElementType);

impl Wide {
    fn decode(self, decoder: &mut Decoder, chunk: &ChunkPages) -> Result<Vec<u64>, DecodeError> {
        let mut out = Vec::with_capacity(chunk.chunk_rows());
        for page in chunk.pages() {
            match self.0 {
                ElementType::Bits => decode_bits(decoder, chunk, page, &mut out)?,
                number => with_number!(number, Native => {
                    decode_page::<Native>(decoder, chunk, page, &mut out)?;
                }),
            }
        }
        Ok(out)
    }
}

fn decode_bits(
    decoder: &mut Decoder,
    chunk: &ChunkPages,
    page: usize,
    out: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    let rows = chunk.page_rows(page);
    let mut bits = vec![0; rows.div_ceil(8)];
    decoder.decode_bits_page(
        chunk.codec(),
        chunk.prelude(),
        chunk.page(page),
        rows,
        &mut bits,
    )?;
    out.extend((0..rows).map(|row| u64::from(bits[row / 8] >> (row % 8) & 1)));
    Ok(())
}

fn decode_page<T: Element + ArrowNativeType + WideBits>(
    decoder: &mut Decoder,
    chunk: &ChunkPages,
    page: usize,
    out: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    let mut values = vec![T::default(); chunk.page_rows(page)];
    decoder.decode_page(
        chunk.codec(),
        chunk.prelude(),
        chunk.page(page),
        &mut values,
    )?;
    out.extend(values.into_iter().map(WideBits::wide_bits));
    Ok(())
}

/// The bits of a number widened to 64.
pub(super) trait WideBits {
    fn wide_bits(self) -> u64;
}

macro_rules! wide_bits {
    ($($type:ty => $wide:expr;)*) => {
        $(impl WideBits for $type {
            #[inline]
            fn wide_bits(self) -> u64 {
                $wide(self)
            }
        })*
    };
}

wide_bits! {
    i8 => |value| i64::from(value).cast_unsigned();
    i16 => |value| i64::from(value).cast_unsigned();
    i32 => |value| i64::from(value).cast_unsigned();
    i64 => |value: i64| value.cast_unsigned();
    u8 => u64::from;
    u16 => u64::from;
    u32 => u64::from;
    u64 => |value| value;
    f32 => |value| f64::from(value).to_bits();
    f64 => f64::to_bits;
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array};
    use proptest::prelude::*;
    use std::path::Path;
    use std::sync::Arc;
    use thalweg_codec::{CodecChain, Level};
    use thalweg_env::sim::SimEnv;
    use thalweg_kernel::block::{BlockBuilder, BlockSpec, Paging};
    use thalweg_kernel::index::Address;
    use thalweg_kernel::paths::fragment_name;
    use thalweg_kernel::store::Store;
    use thalweg_kernel::{DatabaseId, ErrorKind, FileId, TableId};

    /// The zones of a column of a block that has nothing else, read as a column of `wanted`.
    fn read(array: &ArrayRef, wanted: ElementType) -> Result<Zones> {
        let element = crate::schema::element_type(array.data_type()).unwrap();
        let mut encoder = Encoder::new(Level::Fast);
        let mut zones = ZoneEncoder::default();
        crate::summarise::summarise_pages(1, array, Some(zones.pages()));
        let (lows, highs) = zones.encode(&mut encoder, element).unwrap().unwrap();
        read_chunks((array.len(), Paging::default()), lows, highs, wanted)
    }

    fn read_chunks(
        (rows, paging): (usize, Paging),
        lows: &EncodedChunk,
        highs: &EncodedChunk,
        wanted: ElementType,
    ) -> Result<Zones> {
        let rows = u32::try_from(rows).unwrap();
        let spec = BlockSpec {
            table: TableId(1),
            layout: 1,
            level: 0,
            order: 0,
            positions: rows,
            rows,
            key: 0,
            sorted: true,
            implicit_key: true,
        };
        let mut builder = BlockBuilder::with_paging(spec, paging, 0);
        builder.add_chunk(1, Role::ZoneLows, lows).unwrap();
        builder.add_chunk(1, Role::ZoneHighs, highs).unwrap();
        let block = builder.finish((0, 0), vec![]).unwrap();
        let (sim, file) = (SimEnv::new(1), FileId(1));
        let path = Path::new("db").join(fragment_name(file));
        sim.write_file(&path, &block.bytes).unwrap();
        let store = Store::new(sim.env(), "db", DatabaseId([1; 16]), 1 << 20);
        let address = Address {
            file,
            ..block.entry.address
        };
        let mut block = store.block(&address).unwrap();
        let zones = Zones::read(&mut block, &mut Decoder::new(), 1, wanted)?;
        assert!(Zones::read(&mut block, &mut Decoder::new(), 2, wanted)?.is_none());
        Ok(zones.unwrap())
    }

    proptest! {
        #[test]
        fn hostile_zones_are_an_error_or_bounds(
            codec in (1_u8..7, 1_u8..14, 1_u8..4),
            bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..60),
            prelude_bytes in 0_usize..20,
        ) {
            let chain = CodecChain::from_bytes([codec.0, codec.1, codec.2, 0]);
            let Ok(codec) = chain else { return Ok(()) };
            let chunk = EncodedChunk {
                codec,
                rows: 3,
                prelude_bytes: u32::try_from(prelude_bytes.min(bytes.len())).unwrap(),
                page_row_ends: vec![3],
                page_ends: vec![u32::try_from(bytes.len()).unwrap()],
                bytes,
                raw_bytes: 3,
            };
            match read_chunks((3_000, Paging::default()), &chunk, &chunk, codec.element) {
                Ok(zones) => prop_assert!(!zones.prunes(2, &ValueRange::Int(None, None))),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
            }
        }
    }

    fn array(values: impl arrow_array::Array + 'static) -> ArrayRef {
        Arc::new(values)
    }

    #[test]
    fn zones_of_a_narrower_type_are_those_of_the_column() {
        let values = array(Int8Array::from_iter_values(
            (0..3_000).map(|row: i32| i8::try_from(row / 1_024 - 1).unwrap()),
        ));
        for wanted in [ElementType::I8, ElementType::I64] {
            let zones = read(&values, wanted).unwrap();
            let Zones::Signed(bounds) = &zones else {
                panic!("{zones:?}")
            };
            assert_eq!(bounds, &[(-1, -1), (0, 0), (1, 1)]);
            assert!(zones.prunes(0, &ValueRange::Int(Some(0), None)));
            assert!(!zones.prunes(1, &ValueRange::Int(Some(0), None)));
            assert!(!zones.prunes(0, &ValueRange::UInt(Some(0), None)));
        }
        for wanted in [ElementType::U64, ElementType::F64, ElementType::Bytes] {
            let error = read(&values, wanted).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }

    /// A reader of a stream asks for a zone of every 1,024 rows.
    #[test]
    fn zones_of_other_pages_are_refused() {
        let mut encoder = Encoder::new(Level::Fast);
        let mut bounds = EncodedChunk::new();
        for (page_rows, zones) in [(4_096, 2), (64, 128)] {
            encoder.encode(&vec![1_i64; zones], &mut bounds).unwrap();
            let pages = (8_192, Paging::Even(page_rows));
            let error = read_chunks(pages, &bounds, &bounds, ElementType::I64).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn bounds_of_floats_know_zeros_and_nans() {
        let pages: [&[Option<f64>]; 7] = [
            &[Some(0.0), Some(-0.0)],
            &[Some(1.5), Some(-f64::NAN), Some(-2.0)],
            &[Some(f64::NAN), None],
            &[None],
            &[Some(f64::INFINITY), Some(f64::NEG_INFINITY)],
            &[Some(f64::MIN_POSITIVE), Some(-1e300)],
            &[Some(-f64::NAN)],
        ];
        let rows = |page: &[Option<f64>]| page.iter().copied().cycle().take(1_024).collect();
        let rows: Vec<Vec<Option<f64>>> = pages.iter().map(|page| rows(page)).collect();
        let wide = array(Float64Array::from(rows.concat()));
        let Zones::Float(bounds) = read(&wide, ElementType::F64).unwrap() else {
            panic!("floats")
        };
        let bits: Vec<(u64, u64)> = bounds
            .iter()
            .map(|(low, high)| (low.to_bits(), high.to_bits()))
            .collect();
        let nan = f64::NAN.to_bits();
        let expected = [
            ((-0.0_f64).to_bits(), 0.0_f64.to_bits()),
            ((-2.0_f64).to_bits(), nan),
            (nan, nan),
            (nan, f64::NEG_INFINITY.to_bits()),
            (f64::NEG_INFINITY.to_bits(), f64::INFINITY.to_bits()),
            ((-1e300_f64).to_bits(), f64::MIN_POSITIVE.to_bits()),
            (nan, nan),
        ];
        assert_eq!(bits, expected);
        let numbers = rows[0].iter().map(|value| value.map(|_| -0.5_f32));
        let narrow = array(numbers.collect::<Float32Array>());
        let Zones::Float(bounds) = read(&narrow, ElementType::F64).unwrap() else {
            panic!("floats")
        };
        assert_eq!(bounds, [(-0.5, -0.5)]);
    }

    #[test]
    fn ranges_of_floats_meet_bounds_as_values() {
        let range = |min: f64, max: f64, accepts_nan: bool| ValueRange::Float {
            min: Some(min),
            max: Some(max),
            accepts_nan,
        };
        let zones = Zones::Float(vec![
            (-0.0, -0.0),
            (1.0, f64::NAN),
            (f64::NAN, f64::NAN),
            (f64::NAN, f64::NEG_INFINITY),
        ]);
        assert!(!zones.prunes(0, &range(0.0, 1.0, false)));
        assert!(zones.prunes(0, &range(0.5, 1.0, true)));
        // With a NaN the largest number is not known.
        assert!(!zones.prunes(1, &range(1e300, 1e301, false)));
        assert!(zones.prunes(1, &range(0.0, 0.5, false)));
        assert!(!zones.prunes(1, &range(0.0, 0.5, true)));
        assert!(zones.prunes(2, &range(0.0, 0.5, false)));
        assert!(!zones.prunes(2, &range(0.0, 0.5, true)));
        assert!(zones.prunes(3, &range(f64::NEG_INFINITY, f64::INFINITY, true)));
        // An end that is NaN is open.
        assert!(!zones.prunes(0, &range(f64::NAN, f64::NAN, false)));
    }

    #[test]
    fn bounds_of_booleans() {
        let bools = array(BooleanArray::from(
            [
                vec![Some(true); 1_024],
                vec![None; 1_024],
                vec![Some(false), Some(true)],
            ]
            .concat(),
        ));
        let Zones::Signed(bounds) = read(&bools, ElementType::Bits).unwrap() else {
            panic!("booleans")
        };
        assert_eq!(bounds, [(1, 1), (1, 0), (0, 1)]);
    }
}
