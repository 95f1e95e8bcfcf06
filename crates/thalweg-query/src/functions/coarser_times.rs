//! Times in a coarser unit: the step that they lie in, before 1970 as after it. Arrow's cast goes towards 1970.

use super::applied;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::unit_ns;

/// A time in a coarser unit.
pub(crate) fn coarser(time: Expr, unit: TimeUnit) -> Expr {
    let function = ScalarUDF::new_from_impl(CoarserTime {
        unit,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![time])
}

/// Whether steps of `unit` are longer than those of a type of times.
pub(crate) fn is_coarser(unit: TimeUnit, than: &DataType) -> bool {
    matches!(than, DataType::Timestamp(finer, _) if unit_ns(unit) > unit_ns(*finer))
}

/// Times in a coarser unit.
pub(crate) fn in_unit(times: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef> {
    let DataType::Timestamp(finer, zone) = times.data_type() else {
        return internal_err!("only times have a coarser unit");
    };
    let step = (unit_ns(unit) / unit_ns(*finer)).max(1);
    let keys = cast(times, &DataType::Int64)?;
    let keys = keys.as_primitive::<Int64Type>();
    let coarser: Int64Array = keys.unary(|key| key.div_euclid(step));
    let coarser: ArrayRef = Arc::new(coarser);
    Ok(cast(&coarser, &DataType::Timestamp(unit, zone.clone()))?)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CoarserTime {
    unit: TimeUnit,
    signature: Signature,
}

impl ScalarUDFImpl for CoarserTime {
    fn name(&self) -> &'static str {
        "coarser_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Timestamp(_, zone)] => Ok(DataType::Timestamp(self.unit, zone.clone())),
            _ => internal_err!("{} takes one time", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [times] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            in_unit(times, self.unit)
        })
    }
}
