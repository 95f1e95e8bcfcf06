//! Functions of SQL that are Thalweg's own: where DataFusion's would give a wrong answer, or take all memory.

mod bounded;
pub(crate) mod bucket_origin;
mod calendar_groups;
pub(crate) mod carried;
pub(crate) mod clock_steps;
pub(crate) mod coalesced;
pub(crate) mod coarser_times;
pub(crate) mod day_intervals;
pub(crate) mod described;
pub(crate) mod epoch;
mod extreme;
pub(crate) mod floats;
pub(crate) mod fractions;
pub(crate) mod guarded;
pub(crate) mod lengths;
pub(crate) mod list_sum;
pub(crate) mod mode;
pub(crate) mod octets;
pub(crate) mod ordered_values;
pub(crate) mod plain_floats;
pub(crate) mod quantile;
pub(crate) mod scaled;
pub(crate) mod signed;
pub(crate) mod simplified;
mod sliding;
mod time_groups;
pub(crate) mod time_patterns;
pub(crate) mod time_texts;
pub(crate) mod time_zones;
pub(crate) mod times_of_day;
pub(crate) mod total;
pub(crate) mod try_times;
pub(crate) mod unchanged;
pub(crate) mod whole_units;
pub(crate) mod within_floats;

use arrow::array::ArrayRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use std::sync::Arc;

/// The name, aliases and signature of a function that stands in the place of another one: those of `self.base`.
macro_rules! named_as_base {
    () => {
        fn name(&self) -> &str {
            self.base.name()
        }

        fn aliases(&self) -> &[String] {
            self.base.aliases()
        }

        fn signature(&self) -> &Signature {
            self.base.signature()
        }
    };
}
use named_as_base;

/// `functions` with the one of this name replaced by what `make` makes of it.
fn replaced<F: ScalarUDFImpl + 'static>(
    functions: Vec<Arc<ScalarUDF>>,
    name: &str,
    make: impl Fn(Arc<ScalarUDF>) -> F,
) -> Vec<Arc<ScalarUDF>> {
    let replaced = |base: Arc<ScalarUDF>| match base.name() == name {
        true => Arc::new(ScalarUDF::new_from_impl(make(base))),
        false => base,
    };
    functions.into_iter().map(replaced).collect()
}

/// Calls `of_arrays` with the arguments as arrays; of constants alone, with one row of them, and the result is a constant too.
fn applied(
    args: &ScalarFunctionArgs,
    of_arrays: impl FnOnce(&[ArrayRef]) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = args
        .args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args.args.iter().map(|arg| arg.to_array(rows));
    let result = of_arrays(&arrays.collect::<Result<Vec<_>>>()?)?;
    Ok(if is_constant {
        ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
    } else {
        ColumnarValue::Array(result)
    })
}
