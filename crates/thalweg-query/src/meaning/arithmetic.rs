//! Sums, differences, products and negatives of integers that are exact or an error.
//!
//! DataFusion's own start again from the other end of the type. Invariants: what is replaced keeps its type, its nulls and
//! its name; only operators on integers of one type are, as times, intervals and decimals are checked by Arrow anyway.

use crate::error::{query, to_datafusion};
use arrow::array::AsArray;
use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;

/// The operator that `expr` is, as a function that fails where the type ends.
pub(super) fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            match Operation::of(op).zip(common_integer(&left, &right, schema)) {
                Some((operation, data_type)) => {
                    Transformed::yes(call(operation, data_type, vec![*left, *right]))
                }
                None => within_digits(Expr::BinaryExpr(BinaryExpr { left, op, right }), schema),
            }
        }
        Expr::Negative(inner) => match integer_type(&inner, schema) {
            Some(data_type) if data_type.is_signed_integer() => {
                Transformed::yes(call(Operation::Negate, data_type, vec![*inner]))
            }
            _ => Transformed::no(Expr::Negative(inner)),
        },
        other => Transformed::no(other),
    }
}

/// A sum, difference or product of decimals of as many digits as there can be, which fails where it has more: Arrow keeps it, and
/// drops its last digit when it is shown.
fn within_digits(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    // Comparisons are most of all: they need no look at their types.
    let computes = matches!(&expr, Expr::BinaryExpr(binary) if Operation::of(binary.op).is_some());
    if !computes {
        return Transformed::no(expr);
    }
    match expr.get_type(schema) {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, _)) => {
            let function = ScalarUDF::new_from_impl(WithinDigits {
                signature: Signature::any(1, Volatility::Immutable),
            });
            let call = ScalarFunction::new_udf(Arc::new(function), vec![expr]);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        _ => Transformed::no(expr),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithinDigits {
    signature: Signature,
}

impl ScalarUDFImpl for WithinDigits {
    fn name(&self) -> &'static str {
        "within_digits"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [decimal] => Ok(decimal.clone()),
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(decimals) = args.args.pop() else {
            return internal_err!("{} takes one argument", self.name());
        };
        let array = match &decimals {
            ColumnarValue::Array(array) => Arc::clone(array),
            ColumnarValue::Scalar(scalar) => scalar.to_array()?,
        };
        let values = array.as_primitive::<Decimal128Type>();
        if values
            .validate_decimal_precision(DECIMAL128_MAX_PRECISION)
            .is_err()
        {
            return Err(to_datafusion(query(
                "a sum, difference or product has more than the 38 digits that a decimal holds: CAST to DOUBLE first",
            )));
        }
        Ok(decimals)
    }
}

fn call(operation: Operation, data_type: DataType, args: Vec<Expr>) -> Expr {
    let function = ScalarUDF::new_from_impl(Checked {
        operation,
        data_type,
        signature: Signature::variadic_any(Volatility::Immutable),
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args))
}

fn common_integer(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<DataType> {
    let data_type = integer_type(left, schema)?;
    (integer_type(right, schema)? == data_type).then_some(data_type)
}

fn integer_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let data_type = match expr {
        // Known without a walk down a long chain of them.
        Expr::ScalarFunction(function) => match function.func.inner().downcast_ref::<Checked>() {
            Some(checked) => checked.data_type.clone(),
            None => expr.get_type(schema).ok()?,
        },
        _ => expr.get_type(schema).ok()?,
    };
    data_type.is_integer().then_some(data_type)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        Some(match operator {
            Operator::Plus => Self::Add,
            Operator::Minus => Self::Subtract,
            Operator::Multiply => Self::Multiply,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    data_type: DataType,
    signature: Signature,
}

impl Checked {
    fn explained(&self, error: ArrowError) -> DataFusionError {
        match error {
            ArrowError::ArithmeticOverflow(text) => {
                let values = text
                    .rsplit_once(": ")
                    .map_or(text.as_str(), |(_, values)| values);
                to_datafusion(query(format!(
                    "{values} is beyond {}: CAST to DOUBLE or DECIMAL(38, 0) first",
                    sql_type_name(&self.data_type).to_lowercase()
                )))
            }
            other => other.into(),
        }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.data_type.clone(),
            nullable,
        )))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let explain = |error| self.explained(error);
        let binary = match self.operation {
            Operation::Negate => {
                let [inner] = args.args.as_slice() else {
                    return internal_err!("a negative of {} values", args.args.len());
                };
                return Ok(match inner {
                    ColumnarValue::Array(array) => {
                        ColumnarValue::Array(neg(array).map_err(explain)?)
                    }
                    ColumnarValue::Scalar(scalar) => {
                        let negated = neg(&scalar.to_array()?).map_err(explain)?;
                        ColumnarValue::Scalar(ScalarValue::try_from_array(&negated, 0)?)
                    }
                });
            }
            Operation::Add => add,
            Operation::Subtract => sub,
            Operation::Multiply => mul,
        };
        let [left, right] = args.args.as_slice() else {
            return internal_err!("{} of {} values", self.name(), args.args.len());
        };
        apply(left, right, binary).map_err(|error| match error {
            DataFusionError::ArrowError(error, _) => self.explained(*error),
            other => other,
        })
    }
}
