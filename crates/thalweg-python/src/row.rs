//! One row from Python: the positional arguments of `put`.

use crate::error::raise;
use crate::value::value;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use thalweg::{ErrorKind, Value};

/// Rows up to this width are gathered without an allocation.
const INLINE_COLUMNS: usize = 16;

/// Runs `put` on the values of a row, which are borrowed from it.
#[inline]
pub(crate) fn with_row<T>(
    row: &Bound<'_, PyTuple>,
    table: &str,
    put: impl FnOnce(&[Value<'_>]) -> PyResult<T>,
) -> PyResult<T> {
    let columns = row.len();
    if columns <= INLINE_COLUMNS {
        let mut values = [Value::Null; INLINE_COLUMNS];
        gather(row, table, &mut values[..columns])?;
        put(&values[..columns])
    } else {
        let mut values = vec![Value::Null; columns];
        gather(row, table, &mut values)?;
        put(&values)
    }
}

#[inline]
fn gather<'a>(row: &'a Bound<'_, PyTuple>, table: &str, values: &mut [Value<'a>]) -> PyResult<()> {
    for (place, slot) in values.iter_mut().enumerate() {
        let object = row.get_borrowed_item(place)?;
        *slot = value(object).map_err(|unfit| {
            if object.is_instance_of::<PyDict>() {
                let message = format!(
                    "table \"{table}\": put takes the values of one row, in the order of the columns; append() takes a dict as one row"
                );
                return raise(ErrorKind::Schema, message);
            }
            unfit.into_exception(
                ErrorKind::Schema,
                &format!("table \"{table}\": value {} of the row", place + 1),
            )
        })?;
    }
    Ok(())
}
