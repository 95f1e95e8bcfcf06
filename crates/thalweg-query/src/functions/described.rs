//! Functions that go by the type of their argument: `typeof`, and `epoch_ms` and its like.
//!
//! Invariant: while planning, each becomes a constant or the casts that it stands for, so that what knows about those knows it.

use super::coarser_times::{coarser, in_unit, is_coarser};
use crate::error::{query, to_datafusion};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility, cast as cast_to, lit,
};
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;

/// All of them.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let epoch = |name, unit| ScalarUDF::new_from_impl(Epoch::new(name, unit));
    [
        ScalarUDF::new_from_impl(TypeOf {
            signature: Signature::any(1, Volatility::Immutable),
        }),
        epoch("epoch_ms", TimeUnit::Millisecond),
        epoch("epoch_us", TimeUnit::Microsecond),
        epoch("epoch_ns", TimeUnit::Nanosecond),
    ]
    .map(Arc::new)
    .into()
}

/// `typeof(x)`: the name of the type in SQL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &'static str {
        "typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match args.as_slice() {
            [arg] => {
                let name = sql_type_name(&info.get_data_type(arg)?);
                Ok(ExprSimplifyResult::Simplified(lit(name)))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [arg] => {
                let name = sql_type_name(&arg.data_type());
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
            }
            _ => internal_err!("typeof takes one argument"),
        }
    }
}

/// A time as a number since 1970, and a number as the time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Epoch {
    name: &'static str,
    unit: TimeUnit,
    signature: Signature,
}

impl Epoch {
    fn new(name: &'static str, unit: TimeUnit) -> Self {
        Self {
            name,
            unit,
            signature: Signature::new(TypeSignature::UserDefined, Volatility::Immutable),
        }
    }

    /// The type in between and the one of the result.
    fn types(&self, from: &DataType) -> [DataType; 2] {
        let time = DataType::Timestamp(self.unit, None);
        match from {
            number if number.is_integer() => [DataType::Int64, time],
            _ => [time, DataType::Int64],
        }
    }

    fn wrong(&self, types: &[DataType]) -> DataFusionError {
        let types: Vec<String> = types.iter().map(sql_type_name).collect();
        to_datafusion(query(format!(
            "{} takes a time, or an integer that counts since 1970, not ({})",
            self.name,
            types.join(", ").to_lowercase()
        )))
    }
}

impl ScalarUDFImpl for Epoch {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [from] = types else {
            return Err(self.wrong(types));
        };
        Ok(vec![match from {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => from.clone(),
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                DataType::Timestamp(TimeUnit::Nanosecond, None)
            }
            number if number.is_integer() => DataType::Int64,
            _ => return Err(self.wrong(types)),
        }])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [from] => {
                let [_, result] = self.types(from);
                Ok(result)
            }
            _ => Err(self.wrong(types)),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(arg) = args.pop() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let [between, result] = self.types(&info.get_data_type(&arg)?);
        let is_finer = is_coarser(self.unit, &info.get_data_type(&arg)?);
        let time = if is_finer {
            coarser(arg, self.unit)
        } else {
            arg
        };
        let simplified = cast_to(cast_to(time, between), result);
        Ok(ExprSimplifyResult::Simplified(simplified))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return internal_err!("{} takes one argument", self.name);
        };
        let [between, result] = self.types(&value.data_type());
        let mut array = value.to_array(args.number_rows)?;
        if is_coarser(self.unit, array.data_type()) {
            array = in_unit(&array, self.unit)?;
        }
        Ok(ColumnarValue::Array(cast(
            &cast(&array, &between)?,
            &result,
        )?))
    }
}
