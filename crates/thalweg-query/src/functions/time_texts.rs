//! Texts of times with the digits that Arrow wants.
//!
//! Invariant: a text is changed only where it is a time that lacks seconds or a digit of the hour; what is no time stays as it is, for
//! the cast to refuse.

use super::applied;
use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::full_time_text;

/// A text with those digits.
pub(crate) fn completed(text: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(TimeText {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![text])
}

/// Whether an expression is such a text already.
pub(crate) fn is_completed(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<TimeText>())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeText {
    signature: Signature,
}

impl ScalarUDFImpl for TimeText {
    fn name(&self) -> &'static str {
        "time_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [array] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            // Data frames have texts of other types.
            let array = cast(array, &DataType::Utf8)?;
            let texts = array.as_string::<i32>();
            let lacks = |text: &str| full_time_text(text).is_some();
            if !texts.iter().flatten().any(lacks) {
                return Ok(array);
            }
            let whole = |text: &str| full_time_text(text).unwrap_or_else(|| text.to_owned());
            let whole: StringArray = texts.iter().map(|text| text.map(whole)).collect();
            Ok(Arc::new(whole))
        })
    }
}
