//! Summaries of columns that are in memory: the same ones that blocks carry.
//!
//! Invariants: what a type's summary can hold depends on the type alone, so that summaries of rows and of blocks merge. Bounds of
//! strings are beside their summaries, and only blocks have them.

use crate::assemble::fixed_values;
use crate::column::with_number;
use crate::schema::element_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use thalweg_codec::ElementType;
use thalweg_kernel::bitmap::Bitmap;
use thalweg_kernel::summary::{ByteBounds, ColumnSummary, SUMMARY_CHUNK_ROWS, SummaryKind};

/// The kind of the summaries of a column of a stored type.
pub(crate) fn summary_kind(data_type: &DataType) -> SummaryKind {
    use ElementType as E;
    match element_type(data_type) {
        Some(E::I8 | E::I16 | E::I32 | E::I64 | E::Bits) => SummaryKind::Int,
        Some(E::U8 | E::U16 | E::U32 | E::U64) => SummaryKind::UInt,
        Some(E::F32 | E::F64) => SummaryKind::Float,
        Some(E::I128) => SummaryKind::Decimal,
        Some(E::Bytes) => SummaryKind::Bytes,
        None => SummaryKind::Count,
    }
}

/// The summary of a column of a stored type.
pub(crate) fn summarise(column_id: u32, array: &ArrayRef) -> ColumnSummary {
    summarise_pages(column_id, array, None)
}

/// Summarises as [`summarise`] does; adds the summaries of the column's pages to `pages`, but for columns of which only nulls are
/// counted.
pub(crate) fn summarise_pages(
    column_id: u32,
    array: &ArrayRef,
    pages: Option<&mut Vec<ColumnSummary>>,
) -> ColumnSummary {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let validity = nulls.map(|nulls| bitmap(nulls.inner()));
    match element_type(array.data_type()) {
        Some(ElementType::Bits) => {
            let values = array.as_boolean().values();
            if let Some(pages) = pages {
                pages.extend(bool_pages(values, nulls.map(|nulls| nulls.inner())));
            }
            ColumnSummary::of_bools(column_id, bitmap(values), validity)
        }
        Some(ElementType::I128) => {
            let values = fixed_values(array).typed_data::<i128>();
            ColumnSummary::of_values(column_id, values, validity)
        }
        Some(ElementType::Bytes) => {
            let (rows, null_rows) = (array.len() as u64, array.null_count() as u64);
            ColumnSummary::of_byte_counts(column_id, rows, null_rows, value_bytes(array))
        }
        None => ColumnSummary::of_counts(column_id, array.len() as u64, array.null_count() as u64),
        Some(number) => with_number!(number, Native => {
            let values = fixed_values(array).typed_data::<Native>();
            match pages {
                None => ColumnSummary::of_values(column_id, values, validity),
                Some(pages) => {
                    ColumnSummary::of_chunks(column_id, values, validity, |page| pages.push(*page))
                }
            }
        }),
    }
}

/// The offsets and the data of a column of strings or binaries.
pub(crate) fn byte_parts(array: &ArrayRef) -> (&[i32], &[u8]) {
    if let DataType::Utf8 = array.data_type() {
        let strings = array.as_string::<i32>();
        (strings.offsets(), strings.value_data())
    } else {
        let binaries = array.as_binary::<i32>();
        (binaries.offsets(), binaries.value_data())
    }
}

/// Bounds of the values of a column of strings or binaries; `None` without any.
pub(crate) fn byte_bounds(array: &ArrayRef) -> Option<ByteBounds> {
    let (offsets, data) = byte_parts(array);
    let value = |row: usize| &data[offset(offsets[row])..offset(offsets[row + 1])];
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => ByteBounds::of_values((0..array.len()).map(value)),
        Some(nulls) => ByteBounds::of_values(nulls.valid_indices().map(value)),
    }
}

/// The bytes of all values of a column of strings or binaries together.
fn value_bytes(array: &ArrayRef) -> u64 {
    let (offsets, _) = byte_parts(array);
    let bytes = |first: i32, last: i32| (offset(last) - offset(first)) as u64;
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            { offsets.first().zip(offsets.last()) }.map_or(0, |(first, last)| bytes(*first, *last))
        }
        Some(nulls) => { nulls.valid_indices() }
            .map(|row| bytes(offsets[row], offsets[row + 1]))
            .sum(),
    }
}

/// Offsets of an Arrow array rise from zero or above.
fn offset(offset: i32) -> usize {
    offset.unsigned_abs() as usize
}

fn bool_pages(
    values: &BooleanBuffer,
    validity: Option<&BooleanBuffer>,
) -> impl Iterator<Item = ColumnSummary> {
    let starts = (0..values.len()).step_by(SUMMARY_CHUNK_ROWS);
    starts.map(move |start| {
        let validity = validity.map(|validity| page(validity, start));
        ColumnSummary::of_bools(0, page(values, start), validity)
    })
}

fn page(bits: &BooleanBuffer, start: usize) -> Bitmap<'_> {
    let rows = SUMMARY_CHUNK_ROWS.min(bits.len() - start);
    Bitmap::new(bits.values(), bits.offset() + start, rows)
}

fn bitmap(bits: &BooleanBuffer) -> Bitmap<'_> {
    Bitmap::new(bits.values(), bits.offset(), bits.len())
}
