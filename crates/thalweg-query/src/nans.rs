//! The NaNs of frames that statements read.
//!
//! Invariant: all of them have the bits of `f64::NAN` and `f32::NAN`. DataFusion compares floats by their bits, and the NaN that 0.0 / 0.0
//! gives on some machines is negative there, below all numbers. Rejected for stored tables: a look at
//! all floats of a scan makes a range of 200,000 rows take half as long again.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use std::sync::Arc;

/// The batch with one NaN; nearly every batch has none, and is passed on.
pub(crate) fn with_one_nan(batch: RecordBatch) -> RecordBatch {
    if !batch.columns().iter().any(has_nan) {
        return batch;
    }
    let columns = batch.columns().iter().map(settled).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // The same types and lengths.
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
}

/// Loops without a way out, so that they are vector loops.
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
    use arrow::array::{Float32Array, Float64Array, Int64Array};

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
