//! `try_strptime`: the time that a text is by a pattern, NULL where it is none.
//!
//! Invariant: what `strptime` takes is read by it, and what it refuses is NULL; a pattern that is none is an error.

use super::applied;
use crate::error::{query, to_datafusion};
use arrow::array::{ArrayRef, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::format::{Item, StrftimeItems};
use datafusion::common::{Result, internal_err};
use datafusion::functions::datetime::to_timestamp;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// `try_strptime(text, pattern)`.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(TryTime {
        signature: Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TryTime {
    signature: Signature,
}

impl ScalarUDFImpl for TryTime {
    fn name(&self) -> &'static str {
        "try_strptime"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(TIME)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(ColumnarValue::Scalar(pattern)) = args.args.get(1)
            && let Some(pattern) = pattern.try_as_str().flatten()
            && StrftimeItems::new(pattern).any(|item| item == Item::Error)
        {
            return Err(to_datafusion(query(format!(
                "\"{pattern}\" is no pattern of strptime, as '%Y-%m-%d %H:%M:%S' would be"
            ))));
        }
        applied(&args, |arrays| match arrays {
            [texts, patterns] => times(&args, texts, patterns),
            _ => internal_err!("{} takes two arguments", self.name()),
        })
    }
}

/// Reads all texts at once, and where one is no time each half by itself.
fn times(call: &ScalarFunctionArgs, texts: &ArrayRef, patterns: &ArrayRef) -> Result<ArrayRef> {
    let rows = texts.len();
    let args = ScalarFunctionArgs {
        args: [texts, patterns]
            .map(|array| ColumnarValue::Array(Arc::clone(array)))
            .into(),
        number_rows: rows,
        arg_fields: call.arg_fields.clone(),
        return_field: Arc::clone(&call.return_field),
        config_options: Arc::clone(&call.config_options),
    };
    let config = &call.config_options;
    match to_timestamp(config).invoke_with_args(args) {
        Ok(times) => times.to_array(rows),
        Err(_) if rows <= 1 => Ok(new_null_array(&TIME, rows)),
        Err(_) => {
            let half = rows / 2;
            let part = |from, length| {
                times(
                    call,
                    &texts.slice(from, length),
                    &patterns.slice(from, length),
                )
            };
            let (first, second) = (part(0, half)?, part(half, rows - half)?);
            Ok(concat(&[&first, &second])?)
        }
    }
}
