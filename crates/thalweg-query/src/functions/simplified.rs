//! Functions of DataFusion that it simplifies into something else: `log(v, v)` into 1, also where `v` is 1 or -4, of which there is no
//! such logarithm, `array_has([1, NULL], x)` into `x IN (1, NULL)`, which is NULL where the function is false, and `regexp_like` into
//! an operator on which it has rules of its own.
//!
//! Invariants: they are simplified only where the answer stays; what looks for a value in a list finds 0.0 as -0.0, as `=` does.

use super::plain_floats::plain_values;
use super::{named_as_base, replaced};
use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, StringArray};
use arrow::compute::kernels::regexp::regexp_is_match_scalar;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::regex::regexp_like;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    binary_expr, lit,
};
use std::sync::Arc;

/// Others that look for values in lists.
const SEARCHES: [&str; 4] = [
    "array_has_any",
    "array_has_all",
    "array_position",
    "array_positions",
];

/// `functions` with these replaced.
pub(crate) fn with_same_answers(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let functions = replaced(functions, "log", Simplified::of(Rule::Never));
    let functions = replaced(functions, "array_has", Simplified::of(Rule::List));
    let functions = SEARCHES.iter().fold(functions, |functions, name| {
        replaced(functions, name, Simplified::of(Rule::Search))
    });
    replaced(functions, "regexp_like", Simplified::of(Rule::Pattern))
}

/// Whether a text matches a regular expression.
pub(crate) fn matches(text: Expr, pattern: Expr, ignores_case: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(Simplified::of(Rule::Pattern)(regexp_like()));
    let mut args = vec![text, pattern];
    if ignores_case {
        args.push(lit("i"));
    }
    Arc::new(function).call(args)
}

/// A regular expression that matches the same texts, and which no rule turns into something else: DataFusion takes `.*` for "is not
/// NULL", and a backslash for one of LIKE, where it has another meaning.
pub(crate) fn safe_pattern(pattern: &ScalarValue) -> Option<ScalarValue> {
    let text = pattern.try_as_str().flatten()?;
    let writes_backslash = || {
        [r"\\", r"\x", r"\u", r"\U"]
            .iter()
            .any(|it| text.contains(it))
    };
    let safe = match text {
        ".*" => String::new(),
        // An empty group in front is no text that LIKE could look for.
        _ if writes_backslash() => format!("(){text}"),
        _ => return None,
    };
    // Errors show the pattern as it was written.
    let one_text = StringArray::from(vec![""]);
    regexp_is_match_scalar(&one_text, text, None).ok()?;
    ScalarValue::Utf8(Some(safe))
        .cast_to(&pattern.data_type())
        .ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rule {
    Never,
    /// Where no item of the list can be NULL.
    List,
    /// As DataFusion does.
    Search,
    /// Once the pattern is known, with another one where that is not safe.
    Pattern,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Simplified {
    base: Arc<ScalarUDF>,
    rule: Rule,
}

impl Simplified {
    fn of(rule: Rule) -> impl Fn(Arc<ScalarUDF>) -> Self {
        move |base| Self { base, rule }
    }

    /// The operator that a call with this pattern is.
    fn as_operator(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let simplified = self.base.simplify(args.clone(), info)?;
        let ExprSimplifyResult::Simplified(Expr::BinaryExpr(BinaryExpr { left, op, right })) =
            simplified
        else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let right = match *right {
            Expr::Literal(value, metadata) => {
                Expr::Literal(safe_pattern(&value).unwrap_or(value), metadata)
            }
            other if other.any_column_refs() => other,
            // A constant that is not folded yet.
            _ => return Ok(ExprSimplifyResult::Original(args)),
        };
        Ok(ExprSimplifyResult::Simplified(binary_expr(
            *left, op, right,
        )))
    }
}

/// Whether a list may have an item that is NULL, as far as its expression shows.
fn may_have_nulls(list: &Expr, info: &SimplifyContext) -> Result<bool> {
    match list {
        Expr::Literal(list, _) => {
            let items = ScalarValue::convert_array_to_scalar_vec(&*list.to_array()?)?;
            Ok(items
                .into_iter()
                .flatten()
                .flatten()
                .any(|item| item.is_null()))
        }
        Expr::ScalarFunction(call) => {
            for item in &call.args {
                if info.nullable(item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Ok(true),
    }
}

fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => holds_floats(item.data_type()),
        data_type => data_type.is_floating(),
    }
}

fn with_one_zero(value: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(plain_items(array)),
        ColumnarValue::Scalar(scalar) => {
            let plain = plain_items(&scalar.to_array()?);
            ColumnarValue::Scalar(ScalarValue::try_from_array(&plain, 0)?)
        }
    })
}

fn plain_items(array: &ArrayRef) -> ArrayRef {
    fn of_list<O: OffsetSizeTrait>(list: &GenericListArray<O>, item: &FieldRef) -> ArrayRef {
        let offsets = list.offsets().clone();
        let items = plain_items(list.values());
        let list =
            GenericListArray::<O>::new(Arc::clone(item), offsets, items, list.nulls().cloned());
        Arc::new(list)
    }
    match array.data_type() {
        DataType::List(item) => of_list(array.as_list::<i32>(), item),
        DataType::LargeList(item) => of_list(array.as_list::<i64>(), item),
        _ => plain_values(array),
    }
}

impl ScalarUDFImpl for Simplified {
    named_as_base!();

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.base.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.base.coerce_types(types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let stays = match (self.rule, &*args) {
            (Rule::Never, _) => true,
            (Rule::Pattern, _) => return self.as_operator(args, info),
            (Rule::List, [list, ..]) => may_have_nulls(list, info)?,
            (Rule::List, []) => true,
            (Rule::Search, _) => false,
        };
        match stays {
            true => Ok(ExprSimplifyResult::Original(args)),
            false => self.base.simplify(args, info),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if matches!(self.rule, Rule::List | Rule::Search) {
            for arg in &mut args.args {
                if holds_floats(&arg.data_type()) {
                    *arg = with_one_zero(arg)?;
                }
            }
        }
        self.base.invoke_with_args(args)
    }
}
