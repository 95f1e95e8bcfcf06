//! Conditions on other columns that show which blocks need not be read.
//!
//! Invariants: a range accepted here holds for every row that satisfies its condition; the reverse need not be, so the
//! filter above stays. In doubt nothing is pruned.

use super::comparison::{Comparison, both, comparisons};
use super::time::integer;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::{Cast, Expr, Operator};
use std::sync::Arc;
use thalweg_table::{ColumnRange, ValueRange};

/// Integers that floats represent one by one.
const EXACT_IN_F64: f64 = 9_007_199_254_740_992.0;

/// Whether [`column_ranges`] might find something in `filter` once placeholders are filled in.
pub(crate) fn may_prune(filter: &Expr, schema: &Schema) -> bool {
    if let Some((left, right)) = both(filter) {
        return may_prune(left, schema) || may_prune(right, schema);
    }
    if let Some(values) = either(filter) {
        let column = |part: &Expr| match part {
            Expr::InList(list) => column_of(&list.expr, schema),
            part => comparisons(part)
                .into_iter()
                .find_map(|(left, _, right)| column_of(left, schema).or(column_of(right, schema))),
        };
        let first = values.first().and_then(|part| column(part));
        return values
            .iter()
            .all(|part| column(part) == first && may_prune(part, schema));
    }
    if holds_for_none(filter) {
        return false;
    }
    let has_column = |expr: &Expr| column_of(expr, schema).is_some();
    // Others are changed by a later pass of the optimizer: `k = k` is `k IS NOT NULL`.
    let is_value = |expr: &Expr| !expr.any_column_refs();
    match filter {
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => has_column(expr) && list.iter().all(is_value),
        _ => comparisons(filter).into_iter().any(|(left, _, right)| {
            has_column(left) && is_value(right) || is_value(left) && has_column(right)
        }),
    }
}

/// The ranges outside which no row satisfies `filter`.
pub(crate) fn column_ranges(filter: &Expr, schema: &Schema, found: &mut Vec<ColumnRange>) {
    if let Some((left, right)) = both(filter) {
        column_ranges(left, schema, found);
        column_ranges(right, schema, found);
    }
    if let Some(values) = either(filter) {
        found.extend(united(&values, schema));
    }
    for (left, comparison, right) in comparisons(filter) {
        let range = compared(left, comparison, right, schema)
            .or_else(|| compared(right, comparison.turned(), left, schema));
        found.extend(range);
    }
    if let Expr::InList(InList {
        expr,
        list,
        negated: false,
    }) = filter
    {
        found.extend(listed(expr, list, schema));
    }
}

/// The parts of a chain of OR that may hold, if all of them are lists or comparisons by `=`, as those that the optimizer makes of
/// short lists.
fn either(filter: &Expr) -> Option<Vec<&Expr>> {
    let Expr::BinaryExpr(BinaryExpr {
        op: Operator::Or, ..
    }) = filter
    else {
        return None;
    };
    let (mut open, mut values) = (vec![filter], Vec::new());
    while let Some(part) = open.pop() {
        match part {
            _ if holds_for_none(part) => {}
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Or => {
                open.extend([&**left, &**right]);
            }
            Expr::BinaryExpr(BinaryExpr { op, .. }) if *op == Operator::Eq => values.push(part),
            Expr::InList(list) if !list.negated => values.push(part),
            _ => return None,
        }
    }
    (!values.is_empty()).then_some(values)
}

/// Whether a condition holds for no row, because what it compares with is NULL.
pub(crate) fn holds_for_none(condition: &Expr) -> bool {
    let is_null = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.is_null());
    match condition {
        Expr::Literal(answer, _) => *answer != ScalarValue::Boolean(Some(true)),
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => is_null(expr) || list.iter().all(is_null),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Or => holds_for_none(left) && holds_for_none(right),
            Operator::And => holds_for_none(left) || holds_for_none(right),
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => is_null(left) || is_null(right),
            _ => false,
        },
        _ => false,
    }
}

/// The range of the one column that all of these lists and comparisons are about.
fn united(values: &[&Expr], schema: &Schema) -> Option<ColumnRange> {
    let mut all: Option<ColumnRange> = None;
    let mut of_part = Vec::new();
    for part in values {
        column_ranges(part, schema, &mut of_part);
        let range = of_part.pop()?;
        all = Some(match all {
            None => range,
            Some(all) if all.column == range.column => ColumnRange {
                column: all.column,
                range: span(all.range, range.range)?,
            },
            Some(_) => return None,
        });
    }
    all
}

/// The column that `expr` is, or widens to floats, and its type.
fn column_of<'a>(expr: &Expr, schema: &'a Schema) -> Option<(usize, &'a DataType)> {
    match expr {
        Expr::Column(column) => {
            let position = schema.index_of(&column.name).ok()?;
            let data_type = schema.field(position).data_type();
            summarised_as(data_type).map(|_| (position, data_type))
        }
        Expr::Cast(Cast { expr, field }) if field.data_type() == &DataType::Float64 => {
            let (position, data_type) = column_of(expr, schema)?;
            (data_type.is_integer() || data_type.is_floating()).then_some((position, data_type))
        }
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    UInt,
    Float,
    Decimal,
    Bytes,
}

fn summarised_as(data_type: &DataType) -> Option<Kind> {
    use DataType as T;
    Some(match data_type {
        T::Int8
        | T::Int16
        | T::Int32
        | T::Int64
        | T::Date32
        | T::Timestamp(..)
        | T::Duration(_) => Kind::Int,
        T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => Kind::UInt,
        T::Float32 | T::Float64 => Kind::Float,
        T::Decimal128(..) => Kind::Decimal,
        T::Utf8 | T::Binary => Kind::Bytes,
        _ => return None,
    })
}

fn compared(
    column: &Expr,
    comparison: Comparison,
    value: &Expr,
    schema: &Schema,
) -> Option<ColumnRange> {
    let (position, data_type) = column_of(column, schema)?;
    let (low, high) = match comparison {
        Comparison::Equal => (true, true),
        Comparison::Less | Comparison::LessOrEqual => (false, true),
        Comparison::Greater | Comparison::GreaterOrEqual => (true, false),
    };
    let range = range_of(literal(value)?, data_type, low, high)?;
    Some(ColumnRange {
        column: position,
        range,
    })
}

fn listed(column: &Expr, list: &[Expr], schema: &Schema) -> Option<ColumnRange> {
    let (position, data_type) = column_of(column, schema)?;
    // A row that is compared with NULL is not in the list by that.
    let is_null = |item: &&Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    let items = list.iter().filter(|item| !is_null(item));
    let ranges = items.map(|item| range_of(literal(item)?, data_type, true, true));
    let range = ranges.reduce(|all, range| span(all?, range?))??;
    Some(ColumnRange {
        column: position,
        range,
    })
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

/// The values of a column of `data_type` from `value` on (`low`), up to it (`high`), or equal to it.
fn range_of(
    value: &ScalarValue,
    data_type: &DataType,
    low: bool,
    high: bool,
) -> Option<ValueRange> {
    let kind = summarised_as(data_type)?;
    if let Some(value) = float(value) {
        return range_of_float(value, kind, low, high);
    }
    if value.data_type() != *data_type {
        return None;
    }
    Some(match kind {
        Kind::Int => {
            let value = i64::try_from(integer(value)?).ok()?;
            ValueRange::Int(low.then_some(value), high.then_some(value))
        }
        Kind::UInt => {
            let value = u64::try_from(integer(value)?).ok()?;
            ValueRange::UInt(low.then_some(value), high.then_some(value))
        }
        Kind::Decimal => {
            let ScalarValue::Decimal128(Some(value), ..) = value else {
                return None;
            };
            ValueRange::Decimal(low.then_some(*value), high.then_some(*value))
        }
        Kind::Bytes => {
            let value: Arc<[u8]> = bytes(value)?.into();
            ValueRange::Bytes {
                first: low.then(|| Arc::clone(&value)),
                last: high.then_some(value),
                is_open: false,
            }
        }
        Kind::Float => return None,
    })
}

/// The bytes of a string or a binary value; strings compare as their bytes do.
fn bytes(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Utf8(Some(value)) => Some(value.as_bytes()),
        ScalarValue::Binary(Some(value)) => Some(value),
        _ => None,
    }
}

fn float(value: &ScalarValue) -> Option<f64> {
    match value {
        ScalarValue::Float64(Some(value)) => Some(*value),
        ScalarValue::Float32(Some(value)) => Some((*value).into()),
        _ => None,
    }
}

fn range_of_float(value: f64, kind: Kind, low: bool, high: bool) -> Option<ValueRange> {
    if value.is_nan() {
        return None;
    }
    if kind == Kind::Float {
        let end = |wanted: bool| wanted.then_some(value);
        // Comparisons order NaN above every number.
        return Some(ValueRange::Float {
            min: end(low),
            max: end(high),
            accepts_nan: true,
        });
    }
    if !matches!(kind, Kind::Int | Kind::UInt) || value.abs() >= EXACT_IN_F64 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let (floor, ceil) = (value.floor() as i64, value.ceil() as i64);
    if kind == Kind::Int {
        return Some(ValueRange::Int(low.then_some(floor), high.then_some(ceil)));
    }
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    Some(ValueRange::UInt(
        low.then_some(unsigned(floor)),
        high.then_some(unsigned(ceil)),
    ))
}

/// The smallest range with both in it.
fn span(a: ValueRange, b: ValueRange) -> Option<ValueRange> {
    Some(match (a, b) {
        (ValueRange::Int(a0, a1), ValueRange::Int(b0, b1)) => {
            ValueRange::Int(a0.min(b0), a1.max(b1))
        }
        (ValueRange::UInt(a0, a1), ValueRange::UInt(b0, b1)) => {
            ValueRange::UInt(a0.min(b0), a1.max(b1))
        }
        (
            ValueRange::Float {
                min: a0, max: a1, ..
            },
            ValueRange::Float {
                min: b0, max: b1, ..
            },
        ) => {
            let both =
                |a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64| Some(choose(a?, b?));
            ValueRange::Float {
                min: both(a0, b0, f64::min),
                max: both(a1, b1, f64::max),
                accepts_nan: true,
            }
        }
        (ValueRange::Decimal(a0, a1), ValueRange::Decimal(b0, b1)) => {
            ValueRange::Decimal(a0.min(b0), a1.max(b1))
        }
        (
            ValueRange::Bytes {
                first: a0,
                last: a1,
                ..
            },
            ValueRange::Bytes {
                first: b0,
                last: b1,
                ..
            },
        ) => ValueRange::Bytes {
            first: a0.min(b0),
            last: a1.max(b1),
            is_open: false,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::prelude::{col, lit};

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("i", DataType::Int32, true),
            Field::new("u", DataType::UInt64, true),
            Field::new("f", DataType::Float32, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("d", DataType::Decimal128(20, 3), true),
        ])
    }

    fn ranges(filter: &Expr) -> Vec<(usize, ValueRange)> {
        let mut found = Vec::new();
        column_ranges(filter, &schema(), &mut found);
        assert!(found.is_empty() || may_prune(filter, &schema()));
        found
            .into_iter()
            .map(|range| (range.column, range.range))
            .collect()
    }

    fn widened(name: &str) -> Expr {
        Expr::Cast(Cast::new(Box::new(col(name)), DataType::Float64))
    }

    #[test]
    fn simple_comparisons_are_found() {
        assert_eq!(
            ranges(&col("i").gt(lit(5_i32))),
            [(0, ValueRange::Int(Some(5), None))]
        );
        assert_eq!(
            ranges(&lit(5_i32).gt_eq(col("i"))),
            [(0, ValueRange::Int(None, Some(5)))]
        );
        assert_eq!(
            ranges(&col("u").eq(lit(7_u64))),
            [(1, ValueRange::UInt(Some(7), Some(7)))]
        );
        let between = col("i").between(lit(2_i32), lit(4_i32));
        assert_eq!(
            ranges(&between),
            [
                (0, ValueRange::Int(Some(2), None)),
                (0, ValueRange::Int(None, Some(4)))
            ]
        );
        let listed = col("i").in_list(vec![lit(9_i32), lit(2_i32), lit(4_i32)], false);
        assert_eq!(ranges(&listed), [(0, ValueRange::Int(Some(2), Some(9)))]);
    }

    #[test]
    fn values_of_one_column_have_a_range() {
        let is = |column: &str, value: i32| col(column).eq(lit(value));
        let range = [(0, ValueRange::Int(Some(2), Some(9)))];
        assert_eq!(ranges(&is("i", 9).or(is("i", 2)).or(is("i", 4))), range);
        let listed = col("i").in_list(vec![lit(2_i32), lit(4_i32)], false);
        assert_eq!(ranges(&listed.or(lit(9_i32).eq(col("i")))), range);
        assert_eq!(
            ranges(&is("i", 9).or(is("i", 2)).and(is("i", 4))),
            [range[0].clone(), (0, ValueRange::Int(Some(4), Some(4)))]
        );
        // No row is equal to NULL.
        let null = || lit(ScalarValue::Int32(None));
        let nine = [(0, ValueRange::Int(Some(9), Some(9)))];
        assert_eq!(ranges(&is("i", 9).or(col("i").eq(null()))), nine);
        assert_eq!(ranges(&is("i", 9).or(null())), nine);
        let listed = col("i").in_list(vec![null(), lit(9_i32)], false);
        assert_eq!(ranges(&listed), nine);
        for open in [
            col("i").in_list(vec![null()], false),
            col("i").eq(null()).or(null().eq(col("i"))),
            is("i", 9).or(col("u").eq(lit(2_u64))),
            is("i", 9).or(col("i").gt(lit(2_i32))),
            is("i", 9).or(col("i").eq(col("i"))),
            is("i", 9).or(col("i").in_list(vec![lit(2_i32)], true)),
        ] {
            assert_eq!(ranges(&open), [], "{open}");
        }
    }

    #[test]
    fn floats_widen() {
        let float = |min, max| ValueRange::Float {
            min,
            max,
            accepts_nan: true,
        };
        assert_eq!(
            ranges(&widened("f").gt(lit(1.5))),
            [(2, float(Some(1.5), None))]
        );
        assert_eq!(
            ranges(&widened("i").gt(lit(-1.5))),
            [(0, ValueRange::Int(Some(-2), None))]
        );
        assert_eq!(
            ranges(&widened("u").lt(lit(1.5))),
            [(1, ValueRange::UInt(None, Some(2)))]
        );
        assert_eq!(
            ranges(&widened("u").lt(lit(-1.5))),
            [(1, ValueRange::UInt(None, Some(0)))]
        );
        assert_eq!(ranges(&widened("i").lt(lit(1e300))), []);
        assert_eq!(ranges(&widened("i").lt(lit(f64::NAN))), []);
    }

    #[test]
    fn strings_and_decimals_have_ranges() {
        let text = |text: &str| Some(Arc::from(text.as_bytes()));
        let range = |first, last| ValueRange::Bytes {
            first,
            last,
            is_open: false,
        };
        assert_eq!(
            ranges(&col("s").eq(lit("x"))),
            [(3, range(text("x"), text("x")))]
        );
        assert_eq!(
            ranges(&col("s").gt(lit("x"))),
            [(3, range(text("x"), None))]
        );
        let listed = col("s").in_list(vec![lit("b"), lit("a")], false);
        assert_eq!(ranges(&listed), [(3, range(text("a"), text("b")))]);
        let decimal = |value, scale| lit(ScalarValue::Decimal128(Some(value), 20, scale));
        assert_eq!(
            ranges(&col("d").lt(decimal(1_500, 3))),
            [(4, ValueRange::Decimal(None, Some(1_500)))]
        );
        // Another scale, and floats.
        assert_eq!(ranges(&col("d").lt(decimal(15, 1))), []);
        assert_eq!(ranges(&col("d").lt(lit(1.5))), []);
        assert_eq!(ranges(&col("s").lt(lit(1.5))), []);
    }

    #[test]
    fn what_is_not_understood_prunes_nothing() {
        assert_eq!(ranges(&col("i").not_eq(lit(5_i32))), []);
        assert_eq!(
            ranges(&col("i").eq(lit(5_i32)).or(col("u").eq(lit(1_u64)))),
            []
        );
        assert_eq!(
            ranges(&col("i").in_list(vec![lit(1_i32), col("u")], false)),
            []
        );
        assert_eq!(ranges(&col("i").in_list(vec![lit(1_i32)], true)), []);
        assert_eq!(ranges(&col("i").gt(lit(ScalarValue::Int32(None)))), []);
    }
}
