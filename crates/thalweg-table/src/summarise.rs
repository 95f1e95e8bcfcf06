//! Summaries of columns that are in memory: the same ones that blocks carry.
//!
//! Invariants: what a type's summary can say depends on the type alone (counts only for strings and binary), so
//! that summaries of rows and of blocks merge.

use crate::assemble::fixed_values;
use crate::column::with_number;
use crate::schema::element_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use thalweg_codec::ElementType;
use thalweg_kernel::bitmap::Bitmap;
use thalweg_kernel::summary::{ColumnSummary, SUMMARY_CHUNK_ROWS, SummaryKind};

/// What the summaries of a column of a stored type say.
pub(crate) fn summary_kind(data_type: &DataType) -> SummaryKind {
    use ElementType as E;
    match element_type(data_type) {
        Some(E::I8 | E::I16 | E::I32 | E::I64 | E::Bits) => SummaryKind::Int,
        Some(E::U8 | E::U16 | E::U32 | E::U64) => SummaryKind::UInt,
        Some(E::F32 | E::F64) => SummaryKind::Float,
        Some(E::I128) => SummaryKind::Decimal,
        Some(E::Bytes) | None => SummaryKind::Count,
    }
}

/// The summary of a column of a stored type.
pub(crate) fn summarise(column_id: u32, array: &ArrayRef) -> ColumnSummary {
    summarise_pages(column_id, array, None)
}

/// The same; adds the summaries of its pages to `pages`, but for columns of which only nulls are counted.
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
        Some(ElementType::Bytes) | None => {
            ColumnSummary::of_counts(column_id, array.len() as u64, array.null_count() as u64)
        }
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
