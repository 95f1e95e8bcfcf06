//! Whether values can be written as text.
//!
//! Arrow writes what went wrong in the place of a time that its calendar does not reach, as if that were the value.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, make_array};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::sync::Arc;
use thalweg_table::{Error, ErrorKind, Result};

/// The text that Arrow writes for a length that has no days and seconds.
const INVALID: &str = "<invalid>";

/// Checks all times, dates and lengths of time, those in lists and structs too.
///
/// # Errors
/// [`ErrorKind::OutOfDomain`] when a column has one that has no text.
pub fn check(batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        check_array(field.name(), array)?;
    }
    Ok(())
}

fn check_array(name: &str, array: &ArrayRef) -> Result<()> {
    match array.data_type() {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Duration(_) => {
            let no_text = |why: &dyn std::fmt::Display| {
                let message = format!("a value of the column \"{name}\" has no text: {why}");
                Error::new(ErrorKind::OutOfDomain, message)
            };
            let ends = ends(array).map_err(|e| no_text(&e))?;
            let options = FormatOptions::new().with_display_error(false);
            let shown = ArrayFormatter::try_new(&*ends, &options).map_err(|e| no_text(&e))?;
            for row in 0..ends.len() {
                let text = shown.value(row).try_to_string();
                if text.map_err(|e| no_text(&e))? == INVALID {
                    let number = cast(&ends, &DataType::Int64).map_err(|e| no_text(&e))?;
                    let number = number.as_primitive::<Int64Type>().value(row);
                    return Err(no_text(&format!("it is {number} as {}", ends.data_type())));
                }
            }
            Ok(())
        }
        _ => {
            let data = array.to_data();
            let mut within = data.child_data().iter();
            within.try_for_each(|child| check_array(name, &make_array(child.clone())))
        }
    }
}

/// The smallest and the largest of an array of numbers in time: where they have texts, all between them have.
fn ends(array: &ArrayRef) -> std::result::Result<ArrayRef, arrow::error::ArrowError> {
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let ends: Int64Array = [min(numbers), max(numbers)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .into();
    let ends: ArrayRef = Arc::new(ends);
    cast(&ends, array.data_type())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema, TimeUnit};

    fn checked(data_type: &DataType, values: &[Option<i64>]) -> Result<()> {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let array = cast(&values, data_type).unwrap();
        let schema = Schema::new(vec![Field::new("t", data_type.clone(), true)]);
        check(&RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap())
    }

    #[test]
    fn times_beyond_the_calendar_have_no_text() {
        let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
        for data_type in [
            DataType::Timestamp(TimeUnit::Second, None),
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            DataType::Duration(TimeUnit::Second),
            DataType::Date64,
            list(DataType::Timestamp(TimeUnit::Microsecond, None)),
        ] {
            checked(&data_type, &[]).unwrap();
            checked(&data_type, &[Some(1), None, Some(-86_400_000_000)]).unwrap();
            for beyond in [i64::MAX, i64::MIN] {
                let error =
                    checked(&data_type, &[Some(1), None, Some(beyond), Some(2)]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::OutOfDomain, "{data_type}");
                assert!(error.message().contains("\"t\""), "{error}");
            }
        }
        checked(
            &DataType::Timestamp(TimeUnit::Nanosecond, None),
            &[Some(i64::MAX)],
        )
        .unwrap();
        checked(&DataType::Int64, &[Some(i64::MAX)]).unwrap();
    }
}
