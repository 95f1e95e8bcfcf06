//! Comparisons of times with constants, in the unit of the column.
//!
//! DataFusion compares in nanoseconds whenever a constant is written as text, and so for 1677 to 2262 only; and where a
//! constant lies between two steps of the column, its optimizer cuts it to the one before. Invariants: a comparison is
//! true here for exactly the times for which it is true of instants; it is made without a cast of the column wherever
//! the type of the column allows that.

use super::nodes::is_subquery;
use crate::pushdown::time::ns_since_1970;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, InList};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Case, Cast, Expr, ExprSchemable, Operator, binary_expr, in_list, lit, not,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::sync::Arc;
use thalweg_table::time_units::unit_ns;

/// The comparison that `expr` is, in the unit of the times that are compared with constants.
pub(crate) fn in_columns_unit(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let rewritten = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => compared(left, *op, right, schema)?,
        Expr::Between(between) => ranged(between, schema)?,
        Expr::InList(list) => match listed(list, schema)? {
            Some(listed) => Some(listed),
            None => within_reach(list, schema)?,
        },
        Expr::Case(case) => match cases_in_unit(case, schema)? {
            Some(cases) => Some(cases),
            None => cases_within_reach(case, schema)?,
        },
        _ => None,
    };
    Ok(rewritten.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// Whether this is a cast of something that is no constant to a time.
pub(crate) fn is_cast_time(expr: &Expr) -> bool {
    matches!(cast_type(expr), DataType::Timestamp(..)) && !is_constant(expr)
}

fn compared(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    if !compares(op) {
        return Ok(None);
    }
    if let Some(times) = Times::of(left, schema)?
        && let Some(ns) = worked_out_ns(right)
    {
        return Ok(times.compared(op, ns));
    }
    if let Some(op) = op.swap()
        && let Some(times) = Times::of(right, schema)?
        && let Some(ns) = worked_out_ns(left)
    {
        return Ok(times.compared(op, ns));
    }
    if let Some(ns) = instant_ns(right) {
        return out_of_reach(left, op, ns, schema);
    }
    match (op.swap(), instant_ns(left)) {
        (Some(op), Some(ns)) => out_of_reach(right, op, ns, schema),
        _ => Ok(None),
    }
}

/// The comparison of times in nanoseconds with an instant that these do not reach: `ts < '9999-12-31'`.
fn out_of_reach(times: &Expr, op: Operator, ns: i128, schema: &DFSchema) -> Result<Option<Expr>> {
    use Operator as O;
    if i64::try_from(ns).is_ok() || is_constant(times) {
        return Ok(None);
    }
    if !matches!(
        times.get_type(schema)?,
        DataType::Timestamp(TimeUnit::Nanosecond, _)
    ) {
        return Ok(None);
    }
    let is_late = ns > 0;
    // True of all times, or of none, and null of null. The ends of the type would not do: below a cast to it are times beyond them.
    let (all, none) = (O::Eq, O::NotEq);
    let op = match op {
        O::NotEq => all,
        O::Eq => none,
        O::Lt | O::LtEq if is_late => all,
        O::Gt | O::GtEq if !is_late => all,
        O::Lt | O::LtEq | O::Gt | O::GtEq => none,
        O::IsDistinctFrom => return Ok(Some(lit(true))),
        O::IsNotDistinctFrom => return Ok(Some(lit(false))),
        _ => return Ok(None),
    };
    Ok(Some(binary_expr(times.clone(), op, times.clone())))
}

/// Whether an operator compares the values of both sides.
pub(crate) fn compares(op: Operator) -> bool {
    use Operator as O;
    matches!(
        op,
        O::Eq
            | O::NotEq
            | O::Lt
            | O::LtEq
            | O::Gt
            | O::GtEq
            | O::IsDistinctFrom
            | O::IsNotDistinctFrom
    )
}

fn ranged(between: &Between, schema: &DFSchema) -> Result<Option<Expr>> {
    let Between {
        expr,
        negated,
        low,
        high,
    } = between;
    let above = compared(expr, Operator::GtEq, low, schema)?;
    let below = compared(expr, Operator::LtEq, high, schema)?;
    if above.is_none() && below.is_none() {
        return Ok(None);
    }
    let plain = |op, bound: &Expr| binary_expr((**expr).clone(), op, bound.clone());
    let above = above.unwrap_or_else(|| plain(Operator::GtEq, low));
    let below = below.unwrap_or_else(|| plain(Operator::LtEq, high));
    let both = above.and(below);
    Ok(Some(if *negated { not(both) } else { both }))
}

fn listed(list: &InList, schema: &DFSchema) -> Result<Option<Expr>> {
    let Some(times) = Times::of(&list.expr, schema)? else {
        return Ok(None);
    };
    let (nulls, items): (Vec<_>, Vec<_>) = list.list.iter().partition(|item| is_null(item));
    let (mut instants, mut others) = (Vec::new(), Vec::new());
    for item in items {
        match worked_out_ns(item) {
            Some(ns) => instants.push(ns),
            None => others.push(item.clone()),
        }
    }
    if !others.is_empty() {
        // DataFusion would cut the instants beside them once it takes the list apart.
        if instants.iter().all(|ns| times.is_whole(*ns)) {
            return Ok(None);
        }
        let known = list.list.iter().filter(|item| !others.contains(item));
        let known = InList::new(list.expr.clone(), known.cloned().collect(), list.negated);
        let known = listed(&known, schema)?.unwrap_or_else(|| Expr::InList(known));
        let others = in_list((*list.expr).clone(), others, list.negated);
        return Ok(Some(match list.negated {
            true => known.and(others),
            false => known.or(others),
        }));
    }
    let whole = instants.iter().filter(|ns| times.is_whole(**ns));
    let items = whole.map(|ns| times.step(*ns)).collect::<Option<Vec<_>>>();
    let (Some(mut items), Some(first)) = (items, instants.first()) else {
        return Ok(None);
    };
    if !nulls.is_empty() {
        items.push(times.null());
    }
    if items.is_empty() {
        // None of the items is a step of the column, the first as little as the others.
        let op = if list.negated {
            Operator::NotEq
        } else {
            Operator::Eq
        };
        return Ok(times.compared(op, *first));
    }
    Ok(Some(in_list(times.expr, items, list.negated)))
}

/// The list without instants that times in nanoseconds do not reach, which are none of them.
fn within_reach(list: &InList, schema: &DFSchema) -> Result<Option<Expr>> {
    let (mut items, mut beyond) = (Vec::new(), None);
    for item in &list.list {
        match out_of_reach_of(&list.expr, Operator::Eq, item, schema)? {
            Some(equal) => beyond = Some(equal),
            None => items.push(item.clone()),
        }
    }
    Ok(match beyond {
        None => None,
        Some(equal) if items.is_empty() => Some(match list.negated {
            true => not(equal),
            false => equal,
        }),
        Some(_) => Some(in_list((*list.expr).clone(), items, list.negated)),
    })
}

/// CASE of times that are cast to a finer unit, as comparisons of each of its values with them.
fn cases_in_unit(case: &Case, schema: &DFSchema) -> Result<Option<Expr>> {
    let Some(times) = &case.expr else {
        return Ok(None);
    };
    if Times::of(times, schema)?.is_none()
        || times.is_volatile()
        || times.exists(|part| Ok(is_subquery(part)))?
    {
        return Ok(None);
    }
    let searched = |(when, then): &(Box<Expr>, Box<Expr>)| {
        let equal = match compared(times, Operator::Eq, when, schema)? {
            Some(equal) => equal,
            None => binary_expr((**times).clone(), Operator::Eq, (**when).clone()),
        };
        Ok((Box::new(equal), then.clone()))
    };
    Ok(Some(Expr::Case(Case {
        expr: None,
        when_then_expr: case
            .when_then_expr
            .iter()
            .map(searched)
            .collect::<Result<_>>()?,
        else_expr: case.else_expr.clone(),
    })))
}

/// CASE of times in nanoseconds without instants that these do not reach.
fn cases_within_reach(case: &Case, schema: &DFSchema) -> Result<Option<Expr>> {
    let Some(times) = &case.expr else {
        return Ok(None);
    };
    // Below a cast to nanoseconds may be what they do not reach.
    if let Expr::Cast(Cast { expr, .. }) = &**times
        && !matches!(
            expr.get_type(schema)?,
            DataType::Timestamp(TimeUnit::Nanosecond, _)
        )
    {
        return Ok(None);
    }
    let mut within = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in &case.when_then_expr {
        if out_of_reach_of(times, Operator::Eq, when, schema)?.is_none() {
            within.push((when.clone(), then.clone()));
        }
    }
    if within.len() == case.when_then_expr.len() {
        return Ok(None);
    }
    if let ([], Some((_, then))) = (&*within, case.when_then_expr.first()) {
        let none = || Ok(lit(ScalarValue::try_new_null(&then.get_type(schema)?)?));
        return match &case.else_expr {
            Some(other) => Ok(Some((**other).clone())),
            None => none().map(Some),
        };
    }
    Ok(Some(Expr::Case(Case {
        expr: case.expr.clone(),
        when_then_expr: within,
        else_expr: case.else_expr.clone(),
    })))
}

fn out_of_reach_of(
    times: &Expr,
    op: Operator,
    constant: &Expr,
    schema: &DFSchema,
) -> Result<Option<Expr>> {
    match instant_ns(constant) {
        Some(ns) => out_of_reach(times, op, ns, schema),
        None => Ok(None),
    }
}

/// Times that a comparison casts to a finer unit than they have.
struct Times {
    /// Them, in their own unit.
    expr: Expr,
    unit: TimeUnit,
    zone: Option<Arc<str>>,
}

impl Times {
    fn of(expr: &Expr, schema: &DFSchema) -> Result<Option<Self>> {
        let (DataType::Timestamp(finer, zone), Some(mut inner)) =
            (cast_type(expr), widened(expr, schema))
        else {
            return Ok(None);
        };
        while let Some(next) = widened(inner, schema) {
            inner = next;
        }
        let unit = match inner.get_type(schema) {
            Ok(DataType::Timestamp(unit, _)) => unit,
            Ok(DataType::Date32) => TimeUnit::Second,
            _ => return Ok(None),
        };
        if unit == finer || is_constant(inner) {
            return Ok(None);
        }
        Ok(Some(Self {
            expr: recast(expr.clone(), unit, schema)?,
            unit,
            zone,
        }))
    }

    fn null(&self) -> Expr {
        lit(time(None, self.unit, self.zone.clone()))
    }

    fn step_ns(&self) -> i128 {
        unit_ns(self.unit).into()
    }

    fn is_whole(&self, ns: i128) -> bool {
        ns.rem_euclid(self.step_ns()) == 0
    }

    /// The last step up to an instant.
    fn step(&self, ns: i128) -> Option<Expr> {
        let step = i64::try_from(ns.div_euclid(self.step_ns())).ok()?;
        Some(lit(time(Some(step), self.unit, self.zone.clone())))
    }

    /// The comparison with an instant.
    fn compared(&self, op: Operator, ns: i128) -> Option<Expr> {
        use Operator as O;
        let with = |op, step| binary_expr(self.expr.clone(), op, step);
        let before = self.step(ns)?;
        if self.is_whole(ns) {
            return Some(with(op, before));
        }
        let after = self.step(ns + self.step_ns())?;
        Some(match op {
            O::Lt | O::LtEq => with(O::LtEq, before),
            O::Gt | O::GtEq => with(O::GtEq, after),
            // Of no time, and null of null.
            O::Eq => with(O::Gt, before).and(with(O::Lt, after)),
            O::NotEq => with(O::LtEq, before).or(with(O::GtEq, after)),
            O::IsDistinctFrom => lit(true),
            O::IsNotDistinctFrom => lit(false),
            _ => return None,
        })
    }
}

/// The time at a step of `unit`, or NULL.
pub(super) fn time(step: Option<i64>, unit: TimeUnit, zone: Option<Arc<str>>) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(step, zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(step, zone),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(step, zone),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(step, zone),
    }
}

/// The time that `expr` is cast to; null for what is no such cast.
fn cast_type(expr: &Expr) -> DataType {
    match expr {
        Expr::Cast(Cast { field, .. }) => field.data_type().clone(),
        _ => DataType::Null,
    }
}

/// The expression that is cast to a time of the same or a finer unit.
fn widened<'a>(expr: &'a Expr, schema: &DFSchema) -> Option<&'a Expr> {
    let Expr::Cast(Cast { expr: inner, field }) = expr else {
        return None;
    };
    let DataType::Timestamp(to, _) = field.data_type() else {
        return None;
    };
    let widens = match inner.get_type(schema).ok()? {
        DataType::Timestamp(from, _) => from <= *to,
        DataType::Date32 => true,
        _ => false,
    };
    widens.then_some(inner)
}

/// Casts to times of the same or a finer unit become casts to `unit`.
fn recast(expr: Expr, unit: TimeUnit, schema: &DFSchema) -> Result<Expr> {
    let (DataType::Timestamp(_, zone), Some(inner)) = (cast_type(&expr), widened(&expr, schema))
    else {
        return Ok(expr);
    };
    let to = DataType::Timestamp(unit, zone);
    let inner = recast(inner.clone(), unit, schema)?;
    if inner.get_type(schema)? == to {
        return Ok(inner);
    }
    Ok(Expr::Cast(Cast::new(Box::new(inner), to)))
}

/// Whether this is a text, a date or a time, or casts of one.
pub(super) fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Cast(Cast { expr, .. }) => is_constant(expr),
        _ => false,
    }
}

pub(super) fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(Cast { expr, .. }) => is_null(expr),
        _ => false,
    }
}

/// Whether a value may differ between rows, or between executions of a plan.
pub(super) fn is_open(expr: &Expr) -> bool {
    let is_open = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        ) || part.is_volatile_node()
            || is_subquery(part))
    };
    expr.exists(is_open).unwrap_or(true)
}

/// The instant that a constant stands for, or an expression of constants.
pub(super) fn worked_out_ns(expr: &Expr) -> Option<i128> {
    if is_constant(expr) {
        return instant_ns(expr);
    }
    if is_open(expr) {
        return None;
    }
    // What fails, and what depends on the moment, as now(), is left to the statement when it runs.
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    match simplifier.simplify(expr.clone()) {
        Ok(Expr::Literal(value, _)) => ns_since_1970(&value),
        _ => None,
    }
}

/// The instant that a constant stands for; `None` for what is none, and for times that are not known exactly.
fn instant_ns(expr: &Expr) -> Option<i128> {
    if !is_constant(expr) {
        return None;
    }
    // Microseconds reach further.
    ns_since_1970(&value(expr, TimeUnit::Nanosecond)?).or_else(|| {
        let value = value(expr, TimeUnit::Microsecond)?;
        (!has_nanoseconds(expr))
            .then(|| ns_since_1970(&value))
            .flatten()
    })
}

/// The value of a constant, with `unit` in the place of nanoseconds; null when that cannot hold it.
fn value(expr: &Expr, unit: TimeUnit) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => {
            let value = value(expr, unit)?;
            let to = match field.data_type() {
                DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                    DataType::Timestamp(unit, zone.clone())
                }
                other => other.clone(),
            };
            Some(value.cast_to(&to).unwrap_or(ScalarValue::Null))
        }
        _ => None,
    }
}

/// Whether the text in a constant has more digits of a second than microseconds hold.
fn has_nanoseconds(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(Cast { expr, .. }) => has_nanoseconds(expr),
        Expr::Literal(value, _) => {
            let text = value.try_as_str().flatten().unwrap_or_default();
            let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
            let digits = fraction.bytes().take_while(u8::is_ascii_digit);
            digits.skip(6).any(|digit| digit != b'0')
        }
        _ => false,
    }
}
