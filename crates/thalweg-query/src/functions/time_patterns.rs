//! Patterns of `to_char` that are known only when the statement runs.

use super::applied;
use crate::dialect::time_pattern;
use crate::error::to_datafusion;
use arrow::array::{AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// `time_pattern(text)`: the pattern as one of `strftime`.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(TimePattern {
        signature: Signature::string(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimePattern {
    signature: Signature,
}

impl ScalarUDFImpl for TimePattern {
    fn name(&self) -> &'static str {
        "time_pattern"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [texts] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            let texts = arrow::compute::cast(texts, &DataType::Utf8)?;
            let patterns = texts.as_string::<i32>().iter().map(|text| match text {
                Some(text) => time_pattern(text).map(Some).map_err(to_datafusion),
                None => Ok(None),
            });
            let patterns: StringArray = patterns.collect::<Result<_>>()?;
            Ok(Arc::new(patterns))
        })
    }
}
