//! Conditions on the time column that become a range of order keys.
//!
//! Invariants: a condition accepted here holds for exactly the rows of its key range, so nothing above needs to check it
//! again; it is accepted by its shape alone, before the values of placeholders are known; what it compares with is
//! a constant of the type that the comparison is made in. All arithmetic is in `i128`: a finer unit than the column's
//! cannot overflow, where DataFusion's own cast would.

use super::comparison::{Comparison, both, comparisons};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{Cast, Expr};
use thalweg_table::time_units::{DAY_NS, is_utc, unit_ns};
use thalweg_table::{KeyRange, TimeBound, key_range};

/// The time column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeColumn<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: &'a DataType,
}

/// `column * factor <comparison> constant`, in units of the constant's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimeCondition {
    pub(crate) comparison: Comparison,
    pub(crate) factor: i64,
    /// A literal, a placeholder, or a cast of one.
    pub(crate) constant: Expr,
}

/// The conditions that `filter` is made of, if the key range can hold for all of it.
pub(crate) fn time_conditions(filter: &Expr, time: TimeColumn<'_>) -> Option<Vec<TimeCondition>> {
    let mut found = Vec::new();
    collect(filter, time, &mut found).then_some(found)
}

fn collect(filter: &Expr, time: TimeColumn<'_>, found: &mut Vec<TimeCondition>) -> bool {
    if let Some((left, right)) = both(filter) {
        return collect(left, time, found) && collect(right, time, found);
    }
    let compared = comparisons(filter);
    let conditions = compared.iter().map(|(left, comparison, right)| {
        condition(left, *comparison, right, time)
            .or_else(|| condition(right, comparison.turned(), left, time))
    });
    let conditions: Option<Vec<_>> = conditions.collect();
    match conditions {
        Some(conditions) if !conditions.is_empty() => {
            found.extend(conditions);
            true
        }
        _ => false,
    }
}

fn condition(
    column: &Expr,
    comparison: Comparison,
    constant: &Expr,
    time: TimeColumn<'_>,
) -> Option<TimeCondition> {
    let (factor, compared_as) = time_expression(column, time)?;
    let constant_type = constant_type(constant)?;
    (constant_type == compared_as).then(|| TimeCondition {
        comparison,
        factor,
        constant: constant.clone(),
    })
}

/// If this is the time column, or a cast of it that only multiplies its values: the factor, and the type of the
/// product.
pub(crate) fn time_expression(expr: &Expr, time: TimeColumn<'_>) -> Option<(i64, DataType)> {
    match expr {
        Expr::Column(column) if column.name == time.name => Some((1, time.data_type.clone())),
        Expr::Cast(Cast { expr, field }) => {
            let (factor, from) = time_expression(expr, time)?;
            let factor = factor.checked_mul(cast_factor(&from, field.data_type())?)?;
            Some((factor, field.data_type().clone()))
        }
        _ => None,
    }
}

/// The factor by which values of `from` are multiplied when they are cast to `to`; `None` when it is not as simple as that.
fn cast_factor(from: &DataType, to: &DataType) -> Option<i64> {
    use DataType as T;
    match (from, to) {
        _ if from == to => Some(1),
        (T::Timestamp(from_unit, from_zone), T::Timestamp(to_unit, to_zone)) => {
            // Between zones instants stay; with and without a zone only UTC leaves the number alone.
            let utc = |zone: &Option<_>| zone.as_deref().is_none_or(is_utc);
            let same_instants =
                from_zone.is_some() == to_zone.is_some() || (utc(from_zone) && utc(to_zone));
            let (from_ns, to_ns) = (unit_ns(*from_unit), unit_ns(*to_unit));
            (same_instants && to_ns <= from_ns).then(|| from_ns / to_ns)
        }
        (T::Timestamp(..), T::Int64) => Some(1),
        (T::Date32, T::Timestamp(unit, zone)) => {
            let utc = zone.as_deref().is_none_or(is_utc);
            utc.then(|| DAY_NS / unit_ns(*unit))
        }
        (T::Date32, T::Int32 | T::Int64) => Some(1),
        _ => widens(from, to).then_some(1),
    }
}

/// Steps of a time since 1970, and the nanoseconds of one; `None` for what is no timestamp.
pub(crate) fn steps_of(time: &ScalarValue) -> Option<(Option<i64>, i64)> {
    let (steps, unit) = match time {
        ScalarValue::TimestampSecond(steps, _) => (steps, TimeUnit::Second),
        ScalarValue::TimestampMillisecond(steps, _) => (steps, TimeUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(steps, _) => (steps, TimeUnit::Microsecond),
        ScalarValue::TimestampNanosecond(steps, _) => (steps, TimeUnit::Nanosecond),
        _ => return None,
    };
    Some((*steps, unit_ns(unit)))
}

/// The nanoseconds of a time since 1970.
pub(crate) fn ns_since_1970(time: &ScalarValue) -> Option<i128> {
    let (steps, step_ns) = steps_of(time)?;
    steps.map(|steps| i128::from(steps) * i128::from(step_ns))
}

/// Whether every integer of `from` is one of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    // Decimal digits that hold every value.
    let digits = match from {
        T::Int8 | T::UInt8 => 3,
        T::Int16 | T::UInt16 => 5,
        T::Int32 | T::UInt32 => 10,
        T::Int64 => 19,
        T::UInt64 => 20,
        _ => return false,
    };
    match to {
        T::Decimal128(precision, 0) => *precision >= digits,
        T::Int16 => matches!(from, T::Int8 | T::UInt8),
        T::Int32 => matches!(from, T::Int8 | T::UInt8 | T::Int16 | T::UInt16),
        T::Int64 => !matches!(from, T::UInt64),
        T::UInt16 => matches!(from, T::UInt8),
        T::UInt32 => matches!(from, T::UInt8 | T::UInt16),
        T::UInt64 => matches!(from, T::UInt8 | T::UInt16 | T::UInt32),
        _ => false,
    }
}

/// The type of a constant whose value is known once placeholders are filled in.
pub(crate) fn constant_type(expr: &Expr) -> Option<DataType> {
    match expr {
        // A filled placeholder keeps its name.
        Expr::Alias(alias) => constant_type(&alias.expr),
        Expr::Literal(value, _) => Some(value.data_type()),
        Expr::Placeholder(placeholder) => placeholder
            .field
            .as_ref()
            .map(|field| field.data_type().clone()),
        Expr::Cast(Cast { expr, field }) => {
            constant_type(expr)?;
            Some(field.data_type().clone())
        }
        _ => None,
    }
}

/// The value of a constant.
fn constant_value(expr: &Expr) -> Result<ScalarValue> {
    match expr {
        Expr::Alias(alias) => constant_value(&alias.expr),
        Expr::Literal(value, _) => Ok(value.clone()),
        Expr::Cast(Cast { expr, field }) => constant_value(expr)?.cast_to(field.data_type()),
        other => internal_err!("{other} was taken for a constant"),
    }
}

/// The keys for which all of `conditions` hold.
pub(crate) fn keys_of<'a>(
    conditions: impl IntoIterator<Item = &'a TimeCondition>,
    data_type: &DataType,
) -> Result<KeyRange> {
    let mut keys = KeyRange::ALL;
    for condition in conditions {
        keys = keys.intersect(keys_of_one(condition, data_type)?);
    }
    Ok(keys)
}

fn keys_of_one(condition: &TimeCondition, data_type: &DataType) -> Result<KeyRange> {
    let value = constant_value(&condition.constant)?;
    if value.is_null() {
        // Nothing compares with null.
        return Ok(KeyRange::EMPTY);
    }
    let Some(value) = integer(&value) else {
        return internal_err!("{value} was taken for a time");
    };
    let factor = i128::from(condition.factor);
    let (floor, whole) = (value.div_euclid(factor), value.rem_euclid(factor) == 0);
    let ceil = if whole { floor } else { floor + 1 };
    // The first value in the range, and the first one after it.
    let (start, end) = match condition.comparison {
        Comparison::Equal if !whole => return Ok(KeyRange::EMPTY),
        Comparison::Equal => (Some(floor), Some(floor + 1)),
        Comparison::Less => (None, Some(ceil)),
        Comparison::LessOrEqual => (None, Some(floor + 1)),
        Comparison::Greater => (Some(floor + 1), None),
        Comparison::GreaterOrEqual => (Some(ceil), None),
    };
    let bound = |value: Option<i128>| value.map(TimeBound::Int);
    key_range(data_type, bound(start), bound(end))
        .map(KeyRange::from)
        .map_err(crate::error::to_datafusion)
}

/// The number that a time or integer is stored as; `None` for every other type and for null.
pub(crate) fn integer(value: &ScalarValue) -> Option<i128> {
    use ScalarValue as S;
    Some(match value {
        S::Int8(value) => (*value)?.into(),
        S::Int16(value) => (*value)?.into(),
        S::Int32(value) | S::Date32(value) => (*value)?.into(),
        S::Int64(value)
        | S::TimestampSecond(value, _)
        | S::TimestampMillisecond(value, _)
        | S::TimestampMicrosecond(value, _)
        | S::TimestampNanosecond(value, _)
        | S::DurationSecond(value)
        | S::DurationMillisecond(value)
        | S::DurationMicrosecond(value)
        | S::DurationNanosecond(value) => (*value)?.into(),
        S::UInt8(value) => (*value)?.into(),
        S::UInt16(value) => (*value)?.into(),
        S::UInt32(value) => (*value)?.into(),
        S::UInt64(value) => (*value)?.into(),
        S::Decimal128(value, _, 0) => (*value)?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};
    use std::sync::Arc;

    const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
    const NS: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

    fn ms(value: i64) -> Expr {
        lit(ScalarValue::TimestampMillisecond(Some(value), None))
    }

    fn ns(value: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(value), None))
    }

    fn cast(expr: Expr, to: DataType) -> Expr {
        Expr::Cast(Cast::new(Box::new(expr), to))
    }

    fn range(filter: &Expr, data_type: &DataType) -> Option<(i64, i64)> {
        let conditions = time_conditions(
            filter,
            TimeColumn {
                name: "ts",
                data_type,
            },
        )?;
        let keys = keys_of(&conditions, data_type).unwrap();
        Some((keys.first, keys.last))
    }

    #[test]
    fn comparisons_become_ranges() {
        let all = (i64::MIN, i64::MAX);
        assert_eq!(range(&col("ts").gt_eq(ms(5)), &MS), Some((5, all.1)));
        assert_eq!(range(&col("ts").gt(ms(5)), &MS), Some((6, all.1)));
        assert_eq!(range(&col("ts").lt_eq(ms(5)), &MS), Some((all.0, 5)));
        assert_eq!(range(&ms(5).gt(col("ts")), &MS), Some((all.0, 4)));
        assert_eq!(range(&col("ts").eq(ms(5)), &MS), Some((5, 5)));
        assert_eq!(range(&col("ts").between(ms(5), ms(9)), &MS), Some((5, 9)));
        assert_eq!(
            range(&col("ts").gt_eq(ms(5)).and(col("ts").lt(ms(9))), &MS),
            Some((5, 8))
        );
    }

    #[test]
    fn the_ends_of_the_type_do_not_overflow() {
        assert_eq!(
            range(&col("ts").gt(ms(i64::MAX)), &MS),
            Some((i64::MAX, i64::MIN))
        );
        assert_eq!(
            range(&col("ts").lt(ms(i64::MIN)), &MS),
            Some((i64::MAX, i64::MIN))
        );
        assert_eq!(
            range(&col("ts").gt_eq(ms(i64::MAX)), &MS),
            Some((i64::MAX, i64::MAX))
        );
        assert_eq!(
            range(&col("ts").lt_eq(ms(i64::MAX)), &MS),
            Some((i64::MIN, i64::MAX))
        );
    }

    #[test]
    fn finer_units_round_to_the_columns_steps() {
        let ts = || cast(col("ts"), NS);
        assert_eq!(range(&ts().gt_eq(ns(5_000_001)), &MS), Some((6, i64::MAX)));
        assert_eq!(range(&ts().gt(ns(5_000_001)), &MS), Some((6, i64::MAX)));
        assert_eq!(range(&ts().gt(ns(5_000_000)), &MS), Some((6, i64::MAX)));
        assert_eq!(range(&ts().lt(ns(5_000_001)), &MS), Some((i64::MIN, 5)));
        assert_eq!(range(&ts().lt(ns(-5_000_001)), &MS), Some((i64::MIN, -6)));
        assert_eq!(range(&ts().lt_eq(ns(5_999_999)), &MS), Some((i64::MIN, 5)));
        assert_eq!(
            range(&ts().eq(ns(5_000_001)), &MS),
            Some((i64::MAX, i64::MIN))
        );
        assert_eq!(
            range(&cast(col("ts"), MS).gt_eq(ms(-1)), &DataType::Date32),
            Some((0, i32::MAX.into()))
        );
    }

    #[test]
    fn a_coarser_unit_or_a_local_zone_is_left_alone() {
        assert_eq!(range(&cast(col("ts"), MS).gt_eq(ms(5)), &NS), None);
        let local = DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::from("Europe/Berlin")));
        let bound = lit(ScalarValue::TimestampMillisecond(
            Some(5),
            Some(Arc::from("Europe/Berlin")),
        ));
        assert_eq!(
            range(&cast(col("ts"), local.clone()).gt_eq(bound.clone()), &MS),
            None
        );
        assert_eq!(range(&col("ts").gt_eq(bound), &local), Some((5, i64::MAX)));
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("+00:00")));
        let now = lit(ScalarValue::TimestampNanosecond(
            Some(5),
            Some(Arc::from("+00:00")),
        ));
        assert_eq!(
            range(&cast(col("ts"), utc).gt_eq(now), &MS),
            Some((1, i64::MAX))
        );
    }

    #[test]
    fn integers_of_every_width_work() {
        let wide = |value: i64| cast(col("ts"), DataType::Int64).lt(lit(value));
        assert_eq!(range(&wide(300), &DataType::UInt8), Some((0, 255)));
        assert_eq!(
            range(&wide(-1), &DataType::UInt8),
            Some((i64::MAX, i64::MIN))
        );
        let big = col("ts").gt_eq(lit(u64::MAX));
        assert_eq!(range(&big, &DataType::UInt64), Some((i64::MAX, i64::MAX)));
        let decimal = cast(col("ts"), DataType::Decimal128(20, 0));
        let below = decimal.lt(lit(ScalarValue::Decimal128(Some(-5), 20, 0)));
        assert_eq!(range(&below, &DataType::UInt64), Some((i64::MAX, i64::MIN)));
    }

    #[test]
    fn null_matches_nothing_and_other_conditions_are_left_alone() {
        let null = lit(ScalarValue::TimestampMillisecond(None, None));
        assert_eq!(
            range(&col("ts").gt_eq(null), &MS),
            Some((i64::MAX, i64::MIN))
        );
        assert_eq!(range(&col("a").gt_eq(ms(5)), &MS), None);
        assert_eq!(range(&col("ts").not_eq(ms(5)), &MS), None);
        assert_eq!(range(&col("ts").not_between(ms(5), ms(6)), &MS), None);
        assert_eq!(
            range(&col("ts").gt(ms(5)).or(col("ts").lt(ms(1))), &MS),
            None
        );
        assert_eq!(range(&col("ts").gt_eq(col("other")), &MS), None);
    }
}
