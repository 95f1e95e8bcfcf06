//! `whole_units`: how many whole units of a length lie between two times, for `date_sub`.
//!
//! Invariants: a time is read in its own unit, not cast to nanoseconds, so that none is out of range and no digit is lost; the
//! result is rounded towards zero, as in DuckDB.

use super::applied;
use crate::error::to_datafusion;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::unit_ns;
use thalweg_table::{Error, ErrorKind};

/// `whole_units(from, to, nanoseconds of a unit)`.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(WholeUnits {
        signature: Signature::new(TypeSignature::UserDefined, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeUnits {
    signature: Signature,
}

impl ScalarUDFImpl for WholeUnits {
    fn name(&self) -> &'static str {
        "whole_units"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [from, to, _] = types else {
            return internal_err!("{} takes three arguments", self.name());
        };
        let time = |given: &DataType| match given {
            DataType::Timestamp(..) => given.clone(),
            DataType::Date32 => DataType::Timestamp(TimeUnit::Second, None),
            // Texts among them: what is no time is for the cast to refuse.
            _ => DataType::Timestamp(TimeUnit::Nanosecond, None),
        };
        Ok(vec![time(from), time(to), DataType::Int64])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(length_ns)))) = args.args.get(2)
        else {
            return internal_err!("{} takes a constant length", self.name());
        };
        if *length_ns <= 0 {
            return plan_err!("{} takes a length above zero", self.name());
        }
        let length_ns = i128::from(*length_ns);
        applied(&args, |arrays| {
            let [from, to, ..] = arrays else {
                return internal_err!("{} takes two times", self.name());
            };
            let (from, from_ns) = steps(from)?;
            let (to, to_ns) = steps(to)?;
            let from = from.as_primitive::<Int64Type>().iter();
            let between = from.zip(to.as_primitive::<Int64Type>()).map(|both| {
                let (Some(from), Some(to)) = both else {
                    return Ok(None);
                };
                let ns = i128::from(to) * to_ns - i128::from(from) * from_ns;
                let units = i64::try_from(ns / length_ns).map_err(|_| too_many())?;
                Ok(Some(units))
            });
            let between: Int64Array = between.collect::<Result<_>>()?;
            Ok(Arc::new(between) as ArrayRef)
        })
    }
}

/// Times as numbers of steps since 1970, and the nanoseconds of one.
fn steps(times: &ArrayRef) -> Result<(ArrayRef, i128)> {
    let DataType::Timestamp(unit, _) = times.data_type() else {
        return internal_err!("only times have a unit");
    };
    let step_ns = i128::from(unit_ns(*unit));
    Ok((cast(times, &DataType::Int64)?, step_ns))
}

fn too_many() -> datafusion::error::DataFusionError {
    let message = "date_sub counts more units than a bigint holds: take a longer unit";
    to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
}
