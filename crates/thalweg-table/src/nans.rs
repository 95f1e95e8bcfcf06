//! One NaN for readers that compare floats by their bits, as DataFusion does: the NaN that 0.0 / 0.0 gives on some machines is negative
//! there, below all numbers.
//!
//! Invariant: every NaN that comes out has the bits of `f64::NAN` or `f32::NAN`. Rejected: to settle it where rows are stored, as
//! scans give back every bit; and to look at all values that are read, which makes a range of 200,000 rows take half as long again.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::DataType;
use std::sync::Arc;

/// The batch with one NaN; nearly every batch has none, and is passed on.
///
/// ```
/// # use thalweg_table::with_one_nan;
/// use arrow_array::{Float64Array, RecordBatch, cast::AsArray, types::Float64Type};
/// use std::sync::Arc;
///
/// let temp = Float64Array::from(vec![20.5, -f64::NAN]);
/// let batch = RecordBatch::try_from_iter([("temp", Arc::new(temp) as _)]).unwrap();
/// let batch = with_one_nan(batch);
/// let temp = batch.column(0).as_primitive::<Float64Type>();
/// assert_eq!(temp.value(1).to_bits(), f64::NAN.to_bits());
/// ```
#[must_use]
pub fn with_one_nan(batch: RecordBatch) -> RecordBatch {
    with_one_nan_in(batch, |_| true)
}

/// The batch with one NaN in the columns at these places.
pub(crate) fn with_one_nan_in(
    batch: RecordBatch,
    is_wanted: impl Fn(usize) -> bool,
) -> RecordBatch {
    let columns = batch.columns().iter().enumerate();
    let columns: Vec<_> = columns
        .map(|(place, column)| (is_wanted(place) && has_nan(column)).then(|| settled(column)))
        .collect();
    if columns.iter().all(Option::is_none) {
        return batch;
    }
    let columns = columns.into_iter().zip(batch.columns());
    let columns = columns.map(|(settled, column)| settled.unwrap_or_else(|| Arc::clone(column)));
    let columns = columns.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // The same types and lengths.
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
}

/// Whether a column has a NaN. The loops have no early exit, so that they are vector loops.
fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float64 => {
            let floats = column.as_primitive::<Float64Type>().values().iter();
            floats.fold(false, |found, x| found | x.is_nan())
        }
        DataType::Float32 => {
            let floats = column.as_primitive::<Float32Type>().values().iter();
            floats.fold(false, |found, x| found | x.is_nan())
        }
        _ => false,
    }
}

fn settled(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let floats = column.as_primitive::<Float64Type>();
            Arc::new(floats.unary::<_, Float64Type>(|x| if x.is_nan() { f64::NAN } else { x }))
        }
        DataType::Float32 => {
            let floats = column.as_primitive::<Float32Type>();
            Arc::new(floats.unary::<_, Float32Type>(|x| if x.is_nan() { f32::NAN } else { x }))
        }
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float32Array, Float64Array, Int64Array};

    #[test]
    fn every_nan_is_one_nan() {
        let odd = f64::from_bits(0x7FF0_0000_0000_07A2);
        let columns: [(&str, ArrayRef); 3] = [
            (
                "x",
                Arc::new(Float64Array::from(vec![
                    Some(-f64::NAN),
                    Some(odd),
                    None,
                    Some(-0.0),
                ])),
            ),
            (
                "y",
                Arc::new(Float32Array::from(vec![-f32::NAN, 1.5, -0.0, f32::NAN])),
            ),
            ("n", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let settled = with_one_nan(batch.clone());
        let doubles = settled.column(0).as_primitive::<Float64Type>().iter();
        let doubles: Vec<_> = doubles.map(|x| x.map(f64::to_bits)).collect();
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(doubles, [nan, nan, None, Some((-0.0_f64).to_bits())]);
        let reals = settled.column(1).as_primitive::<Float32Type>().values();
        let reals: Vec<u32> = reals.iter().map(|x| x.to_bits()).collect();
        assert_eq!(reals, [f32::NAN, 1.5, -0.0, f32::NAN].map(f32::to_bits));
        assert!(Arc::ptr_eq(settled.column(2), batch.column(2)));
    }
}
