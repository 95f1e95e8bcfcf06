//! Filters: split block Bloom filters, as Apache Parquet defines them, over the values of a column of a block.
//!
//! Invariants: a filter never reports a value that the column has as absent; a value has one fingerprint whatever
//! the width of its type, so that a filter stays true when the type of its column widens; nulls are in no filter.

use super::with_number;
use super::zones::WideBits;
use crate::assemble::fixed_values;
use crate::schema::element_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use thalweg_codec::{Decoder, ElementType, PAGE_ROWS};
use thalweg_kernel::block::{BlockReader, FILTER_BLOCK_BYTES, MAX_FILTER_BLOCKS, Role, Wanted};
use thalweg_kernel::{Error, Result};
use xxhash_rust::xxh64::xxh64;

/// Words of a block of a filter.
const WORDS: usize = 8;

/// The factors of the low half of a fingerprint, one for each word.
const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Bits for each value, where all differ: of a hundred absent ones about one seems to be there.
const BITS_PER_VALUE: usize = 11;

/// The hash that stands for a value in filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of a signed integer, a date, a time or a boolean.
    #[must_use]
    pub fn of_i64(value: i64) -> Self {
        Self(xxh64(&value.to_le_bytes(), 0))
    }

    /// The fingerprint of an unsigned integer.
    #[must_use]
    pub fn of_u64(value: u64) -> Self {
        Self(xxh64(&value.to_le_bytes(), 0))
    }

    /// The fingerprint of a float. Floats that are equal have the same one, and so have all NaNs.
    #[must_use]
    pub fn of_f64(value: f64) -> Self {
        Self::of_u64(float_bits(value))
    }

    /// The fingerprint of a decimal, as the integer that is stored.
    #[must_use]
    pub fn of_i128(value: i128) -> Self {
        Self(xxh64(&value.to_le_bytes(), 0))
    }

    /// The fingerprint of a string or a binary value.
    #[must_use]
    pub fn of_bytes(value: &[u8]) -> Self {
        Self(xxh64(value, 0))
    }

    /// The block of a filter of so many that it is in.
    fn block(self, blocks: u32) -> usize {
        let block = ((self.0 >> 32) * u64::from(blocks)) >> 32;
        // Below the number of blocks.
        usize::try_from(block).unwrap_or(0)
    }

    /// The words of its block, with one bit in each.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is asked for")]
    fn mask(self) -> [u32; WORDS] {
        let low = self.0 as u32;
        SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
    }
}

fn float_bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        // Minus zero becomes zero.
        (value + 0.0).to_bits()
    }
}

/// A filter.
///
/// ```
/// use thalweg_table::column::filter::{Filter, Fingerprint};
///
/// let mut filter = Filter::with_room(2);
/// filter.add(Fingerprint::of_bytes(b"pump-1"));
/// filter.add(Fingerprint::of_bytes(b"pump-2"));
/// assert!(filter.may_have(Fingerprint::of_bytes(b"pump-1")));
/// let others = (3..103).filter(|n| filter.may_have(Fingerprint::of_bytes(format!("pump-{n}").as_bytes())));
/// assert!(others.count() < 20); // nearly all of those that were not added are known to be absent
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<u8>);

impl Filter {
    /// An empty filter with room for so many values.
    #[must_use]
    pub fn with_room(values: usize) -> Self {
        let block_bits = FILTER_BLOCK_BYTES as usize * 8;
        let blocks = (values * BITS_PER_VALUE).div_ceil(block_bits);
        let blocks = blocks.clamp(1, MAX_FILTER_BLOCKS as usize);
        Self(vec![0; blocks * FILTER_BLOCK_BYTES as usize])
    }

    /// The filter of the valid values of a column of a stored type.
    #[must_use]
    pub fn of_column(array: &ArrayRef) -> Self {
        let mut filter = Self::with_room(array.len() - array.null_count());
        match element_type(array.data_type()) {
            Some(ElementType::Bits) => {
                let values = array.as_boolean().values();
                filter.add_rows(array, |row| Fingerprint::of_i64(values.value(row).into()));
            }
            Some(ElementType::I128) => {
                let values = fixed_values(array).typed_data::<i128>();
                filter.add_rows(array, |row| Fingerprint::of_i128(values[row]));
            }
            Some(ElementType::F32) => {
                let values = fixed_values(array).typed_data::<f32>();
                filter.add_rows(array, |row| Fingerprint::of_f64(values[row].into()));
            }
            Some(ElementType::F64) => {
                let values = fixed_values(array).typed_data::<f64>();
                filter.add_rows(array, |row| Fingerprint::of_f64(values[row]));
            }
            Some(ElementType::Bytes) if *array.data_type() == DataType::Utf8 => {
                let values = array.as_string::<i32>();
                filter.add_rows(array, |row| {
                    Fingerprint::of_bytes(values.value(row).as_bytes())
                });
            }
            Some(ElementType::Bytes) => {
                let values = array.as_binary::<i32>();
                filter.add_rows(array, |row| Fingerprint::of_bytes(values.value(row)));
            }
            Some(number) => with_number!(number, Native => {
                let values = fixed_values(array).typed_data::<Native>();
                filter.add_rows(array, |row| Fingerprint::of_u64(values[row].wide_bits()));
            }),
            None => {}
        }
        filter
    }

    fn add_rows(&mut self, array: &ArrayRef, fingerprint: impl Fn(usize) -> Fingerprint) {
        for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
            self.add(fingerprint(row));
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: Fingerprint) {
        let block = value.block(self.blocks());
        let words = self.0[block * FILTER_BLOCK_BYTES as usize..].chunks_exact_mut(4);
        for (word, bit) in words.zip(value.mask()) {
            let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&(old | bit).to_le_bytes());
        }
    }

    /// Whether the value may have been added.
    #[must_use]
    pub fn may_have(&self, value: Fingerprint) -> bool {
        let block = value.block(self.blocks());
        may_have(&self.0[block * FILTER_BLOCK_BYTES as usize..], value)
    }

    fn blocks(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(0) / FILTER_BLOCK_BYTES
    }

    /// Its bytes: those of the chunk.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether the block of a filter that `bytes` begin with may have the value.
fn may_have(bytes: &[u8], value: Fingerprint) -> bool {
    let words = bytes.chunks_exact(4);
    words
        .zip(value.mask())
        .all(|(word, bit)| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) & bit != 0)
}

/// Whether the column of a block may have the value. Without a filter it may. One page of the filter is read.
///
/// # Errors
/// `Corruption` when that page is damaged; whatever reading leads to.
pub fn may_have_value(
    block: &mut BlockReader<'_>,
    decoder: &mut Decoder,
    column_id: u32,
    value: Fingerprint,
) -> Result<bool> {
    let Some(filter) = block.head().chunk(column_id, Role::Filter) else {
        return Ok(true);
    };
    let at = value.block(filter.rows / FILTER_BLOCK_BYTES) * FILTER_BLOCK_BYTES as usize;
    let number = at / PAGE_ROWS;
    let found = block.read(&[Wanted {
        column_id,
        role: Role::Filter,
        pages: number..number + 1,
    }])?;
    let Some(Some(chunk)) = found.first() else {
        return Ok(true);
    };
    let mut bytes = vec![0_u8; chunk.page_rows(number)];
    decoder
        .decode_page(
            chunk.codec(),
            chunk.prelude(),
            chunk.page(number),
            &mut bytes,
        )
        .map_err(|error: thalweg_codec::DecodeError| -> Error {
            chunk.undecodable(block.address(), &error)
        })?;
    Ok(may_have(&bytes[at % PAGE_ROWS..], value))
}
