//! Floats made of texts and of wider floats: what lies beyond their type is an error. Arrow makes infinities of it.

use super::applied;
use crate::error::to_datafusion;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;
use thalweg_table::{Error, ErrorKind};

/// Whether a cast may make infinities of finite values.
pub(crate) fn may_be_beyond(from: &DataType, to: &DataType) -> bool {
    let is_text = matches!(
        from,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    match to {
        DataType::Float32 => is_text || *from == DataType::Float64,
        DataType::Float64 => is_text,
        _ => false,
    }
}

/// `float`, which was made of `value`; NULL with `tries`, and an error else, where that lies beyond the type.
pub(crate) fn within(float: Expr, value: Expr, tries: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(WithinFloat {
        tries,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Arc::new(function).call(vec![float, value])
}

/// Whether a text means infinity itself.
pub(crate) fn is_infinity(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['+', '-']);
    text.get(..3)
        .is_some_and(|start| start.eq_ignore_ascii_case("inf"))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithinFloat {
    tries: bool,
    signature: Signature,
}

impl ScalarUDFImpl for WithinFloat {
    fn name(&self) -> &'static str {
        "within_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [float, _] => Ok(float.clone()),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [floats, values] = arrays else {
                return internal_err!("{} takes two arguments", self.name());
            };
            if self.tries {
                return Ok(match beyond(values, floats)? {
                    Some(beyond) => nullif(floats, &beyond)?,
                    None => Arc::clone(floats),
                });
            }
            match first_beyond(values, floats)? {
                None => Ok(Arc::clone(floats)),
                Some(value) => {
                    let message =
                        format!("{value} is beyond {}", sql_type_name(floats.data_type()));
                    Err(to_datafusion(Error::new(ErrorKind::OutOfDomain, message)))
                }
            }
        })
    }
}

/// The first value that became an infinity and is none, as text.
pub(crate) fn first_beyond(
    values: &ArrayRef,
    made: &ArrayRef,
) -> Result<Option<String>, ArrowError> {
    let Some(beyond) = beyond(values, made)? else {
        return Ok(None);
    };
    let texts = cast(values, &DataType::LargeUtf8)?;
    let first = beyond.values().set_indices().next();
    Ok(first.map(|row| texts.as_string::<i64>().value(row).to_owned()))
}

/// In which rows a value became an infinity and is none; `None`: in none.
fn beyond(values: &ArrayRef, made: &ArrayRef) -> Result<Option<BooleanArray>, ArrowError> {
    if !may_be_beyond(values.data_type(), made.data_type()) {
        return Ok(None);
    }
    let wide = cast(made, &DataType::Float64)?;
    let wide = wide.as_primitive::<Float64Type>();
    if !wide.iter().flatten().any(f64::is_infinite) {
        return Ok(None);
    }
    let is_infinite = |row: usize| wide.is_valid(row) && wide.value(row).is_infinite();
    let rows = 0..made.len();
    let beyond: BooleanArray = if values.data_type().is_floating() {
        let values = values.as_primitive::<Float64Type>();
        rows.map(|row| Some(is_infinite(row) && values.value(row).is_finite()))
            .collect()
    } else {
        let values = cast(values, &DataType::LargeUtf8)?;
        let values = values.as_string::<i64>();
        rows.map(|row| Some(is_infinite(row) && !is_infinity(values.value(row))))
            .collect()
    };
    Ok((beyond.true_count() > 0).then_some(beyond))
}
