//! Summaries of columns that are in memory: the same ones that blocks carry.
//!
//! Invariants: what a type's summary can say depends on the type alone (counts only for strings, binary and decimals), so
//! that summaries of rows and of blocks merge.

use crate::schema::element_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use thalweg_codec::ElementType;
use thalweg_kernel::bitmap::Bitmap;
use thalweg_kernel::summary::{ColumnSummary, SummaryKind, SummaryValue};

/// What the summaries of a column of a stored type say.
pub(crate) fn summary_kind(data_type: &DataType) -> SummaryKind {
    use ElementType as E;
    match element_type(data_type) {
        Some(E::I8 | E::I16 | E::I32 | E::I64 | E::Bits) => SummaryKind::Int,
        Some(E::U8 | E::U16 | E::U32 | E::U64) => SummaryKind::UInt,
        Some(E::F32 | E::F64) => SummaryKind::Float,
        Some(E::I128 | E::Bytes) | None => SummaryKind::Count,
    }
}

/// The summary of a column of a stored type.
pub(crate) fn summarise(column_id: u32, array: &ArrayRef) -> ColumnSummary {
    use ElementType as E;
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).map(NullBuffer::inner);
    let validity = nulls.map(bitmap);
    match element_type(array.data_type()) {
        Some(E::I8) => numbers::<i8>(column_id, array, validity),
        Some(E::I16) => numbers::<i16>(column_id, array, validity),
        Some(E::I32) => numbers::<i32>(column_id, array, validity),
        Some(E::I64) => numbers::<i64>(column_id, array, validity),
        Some(E::U8) => numbers::<u8>(column_id, array, validity),
        Some(E::U16) => numbers::<u16>(column_id, array, validity),
        Some(E::U32) => numbers::<u32>(column_id, array, validity),
        Some(E::U64) => numbers::<u64>(column_id, array, validity),
        Some(E::F32) => numbers::<f32>(column_id, array, validity),
        Some(E::F64) => numbers::<f64>(column_id, array, validity),
        Some(E::Bits) => ColumnSummary::of_bools(column_id, bitmap(array.as_boolean().values()), validity),
        Some(E::I128 | E::Bytes) | None => {
            ColumnSummary::of_counts(column_id, array.len() as u64, array.null_count() as u64)
        }
    }
}

fn numbers<T: SummaryValue + ArrowNativeType>(
    column_id: u32,
    array: &ArrayRef,
    validity: Option<Bitmap<'_>>,
) -> ColumnSummary {
    let data = array.to_data();
    let values: ScalarBuffer<T> = ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
    ColumnSummary::of_values(column_id, &values, validity)
}

fn bitmap(bits: &BooleanBuffer) -> Bitmap<'_> {
    Bitmap::new(bits.values(), bits.offset(), bits.len())
}
