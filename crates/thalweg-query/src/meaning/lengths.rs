//! Comparisons of intervals by their lengths.
//!
//! DataFusion compares them field by field, and durations with them as intervals whose days are 0: `INTERVAL '24 hours'` is no
//! day there, and no difference of times longer than one. Invariants: whatever compares, sorts, groups or joins takes the length,
//! [`crate::functions::lengths`]; whatever shows an interval, or adds it to a time, takes the interval as it was written.

use super::nodes::in_one_node;
use super::time_unit::compares;
use crate::functions::lengths::{extreme, length};
use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, JoinConstraint, Result, ScalarValue, TableReference, plan_err,
};
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, BinaryExpr, Case, InList, InSubquery, ScalarFunction, Sort,
    WindowFunction,
};
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
    Projection, Subquery, WindowFrameBound, WindowFrameUnits, binary_expr, cast, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The expression, made to compare lengths.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_interval = |expr: &Expr| is_interval(expr, schema);
    let by = |expr: Expr| by_length(expr, schema);
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && is_interval(&left) && is_interval(&right) =>
        {
            Transformed::yes(binary_expr(by(*left), op, by(*right)))
        }
        Expr::Between(between) if is_interval(&between.expr) => {
            Transformed::yes(Expr::Between(Between {
                expr: Box::new(by(*between.expr)),
                negated: between.negated,
                low: Box::new(by(*between.low)),
                high: Box::new(by(*between.high)),
            }))
        }
        Expr::InList(list) if is_interval(&list.expr) => Transformed::yes(Expr::InList(InList {
            expr: Box::new(by(*list.expr)),
            list: list.list.into_iter().map(by).collect(),
            negated: list.negated,
        })),
        Expr::Case(Case {
            expr: Some(of),
            when_then_expr,
            else_expr,
        }) if is_interval(&of) => Transformed::yes(Expr::Case(Case {
            expr: Some(Box::new(by(*of))),
            when_then_expr: when_then_expr
                .into_iter()
                .map(|(when, then)| (Box::new(by(*when)), then))
                .collect(),
            else_expr,
        })),
        Expr::ScalarFunction(call) => in_call(call, schema)?,
        Expr::AggregateFunction(call) => in_aggregate(call, schema),
        other => Transformed::no(other),
    })
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Literal(value, _) => matches!(value.data_type(), DataType::Interval(_)),
        // What has no type yet is no interval.
        _ => matches!(expr.get_type(schema), Ok(DataType::Interval(_))),
    }
}

/// The length of an interval, or of the duration that was made one to be compared.
fn by_length(expr: Expr, schema: &DFSchema) -> Expr {
    match expr {
        Expr::Cast(Cast { expr: inner, .. })
            if matches!(inner.get_type(schema), Ok(DataType::Duration(_))) =>
        {
            length(*inner)
        }
        other => length(other),
    }
}

fn in_call(call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let longest = match call.func.name() {
        "greatest" => Some(true),
        "least" => Some(false),
        "nullif" => None,
        _ => return Ok(Transformed::no(Expr::ScalarFunction(call))),
    };
    if !call.args.iter().all(|arg| is_interval(arg, schema)) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let ScalarFunction { func, mut args } = call;
    if let Some(longest) = longest {
        return Ok(Transformed::yes(extreme(args, longest)));
    }
    let (Some(other), Some(value), None) = (args.pop(), args.pop(), args.pop()) else {
        return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction {
            func,
            args,
        })));
    };
    let null = ScalarValue::try_from(&value.get_type(schema)?)?;
    let equal = by_length(value.clone(), schema).eq(by_length(other, schema));
    when(equal, lit(null))
        .otherwise(value)
        .map(Transformed::yes)
}

fn in_aggregate(mut call: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let params = &mut call.params;
    if params.distinct {
        if matches!(call.func.name(), "count" | "approx_distinct") {
            return lengths_in(&mut params.args, schema)
                .update_data(|()| Expr::AggregateFunction(call));
        }
        // Must be ordered by their arguments.
        return Transformed::no(Expr::AggregateFunction(call));
    }
    if call.func.supports_within_group_clause() {
        return Transformed::no(Expr::AggregateFunction(call));
    }
    sorted(&mut params.order_by, schema).update_data(|()| Expr::AggregateFunction(call))
}

/// The rule for windows, before types are made to agree: DataFusion refuses to sort windows by intervals and durations then.
#[derive(Debug)]
pub(crate) struct WindowsByLength;

impl AnalyzerRule for WindowsByLength {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let done = plan.transform_up_with_subqueries(|node| {
            if !matches!(node, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(node));
            }
            in_one_node(node, |expr, schema| {
                Ok(match expr {
                    Expr::WindowFunction(call) => {
                        check_range(&call, schema)?;
                        in_window(call, schema)
                    }
                    other => Transformed::no(other),
                })
            })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_windows_by_length"
    }
}

/// Whether an interval goes back.
fn is_negative(interval: &ScalarValue) -> bool {
    match interval {
        ScalarValue::IntervalMonthDayNano(Some(by)) => {
            by.months < 0 || by.days < 0 || by.nanoseconds < 0
        }
        // Not an interval yet.
        ScalarValue::Utf8(Some(text)) => parse_interval_month_day_nano(text)
            .is_ok_and(|by| by.months < 0 || by.days < 0 || by.nanoseconds < 0),
        _ => false,
    }
}

/// Refuses distances in RANGE that cannot be added to the values that rows are sorted by: texts, and a number where these are
/// times. DataFusion answers with windows that nobody asked for.
fn check_range(call: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let frame = &call.params.window_frame;
    let (WindowFrameUnits::Range, [sort]) = (frame.units, &*call.params.order_by) else {
        return Ok(());
    };
    // What has no type yet is for the rules that come later to refuse.
    let Ok(data_type) = sort.expr.get_type(schema) else {
        return Ok(());
    };
    for bound in [&frame.start_bound, &frame.end_bound] {
        let (WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by)) = bound else {
            continue;
        };
        if by.is_null() {
            continue;
        }
        if is_negative(by) {
            return plan_err!(
                "the distance of RANGE is negative: write it without the sign, as in RANGE INTERVAL '1 hour' PRECEDING"
            );
        }
        let is_number = match by.try_as_str() {
            Some(Some(text)) => text.trim().parse::<f64>().is_ok(),
            _ => by.data_type().is_numeric(),
        };
        match &data_type {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 if is_number => {
                return plan_err!(
                    "RANGE {by} cannot be counted back from a time: write an interval, as in RANGE INTERVAL '1 hour' PRECEDING"
                );
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                return plan_err!(
                    "RANGE with a distance takes times with a date to sort by, not times of day: write ROWS"
                );
            }
            data_type
                if data_type.is_numeric()
                    || data_type.is_temporal()
                    || matches!(data_type, DataType::Null | DataType::Interval(_)) => {}
            _ => {
                return plan_err!(
                    "RANGE with a distance takes numbers and times to sort by: write ROWS, or RANGE from UNBOUNDED PRECEDING to CURRENT ROW"
                );
            }
        }
    }
    Ok(())
}

fn in_window(mut call: Box<WindowFunction>, schema: &DFSchema) -> Transformed<Expr> {
    let params = &mut call.params;
    let partitions = lengths_in(&mut params.partition_by, schema).transformed;
    let frame = &params.window_frame;
    let reaches = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    // Such a frame is found by adding to what is sorted by.
    let adds = frame.units == WindowFrameUnits::Range
        && (reaches(&frame.start_bound) || reaches(&frame.end_bound));
    let mut order = false;
    for sort in params.order_by.iter_mut().filter(|_| !adds) {
        match sort.expr.get_type(schema) {
            Ok(DataType::Interval(_) | DataType::Duration(_)) => {
                sort.expr = length(std::mem::take(&mut sort.expr));
                order = true;
            }
            // As numbers, which frames of values take.
            Ok(DataType::Time32(_) | DataType::Time64(_)) => {
                sort.expr = cast(std::mem::take(&mut sort.expr), DataType::Int64);
                order = true;
            }
            _ => {}
        }
    }
    let call = Expr::WindowFunction(call);
    if partitions || order {
        Transformed::yes(call)
    } else {
        Transformed::no(call)
    }
}

/// Puts lengths in the place of those that are intervals.
fn lengths_in(exprs: &mut [Expr], schema: &DFSchema) -> Transformed<()> {
    changed(exprs.iter_mut(), schema)
}

fn sorted(sorts: &mut [Sort], schema: &DFSchema) -> Transformed<()> {
    changed(sorts.iter_mut().map(|sort| &mut sort.expr), schema)
}

fn changed<'a>(exprs: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> Transformed<()> {
    let mut any = false;
    for expr in exprs.filter(|expr| is_interval(expr, schema)) {
        *expr = by_length(std::mem::take(expr), schema);
        any = true;
    }
    if any {
        Transformed::yes(())
    } else {
        Transformed::no(())
    }
}

/// `x IN (SELECT ...)` of intervals as one of lengths.
pub(super) fn in_subqueries(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    plan.map_expressions(|expr| {
        expr.transform_up(|expr| match expr {
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) if is_interval(&expr, &schema) => {
                Ok(Transformed::yes(Expr::InSubquery(InSubquery::new(
                    Box::new(by_length(*expr, &schema)),
                    lengths_of(subquery)?,
                    negated,
                ))))
            }
            other => Ok(Transformed::no(other)),
        })
    })
}

fn lengths_of(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let columns = plan.schema().columns();
    let lengths = columns.into_iter().map(|column| length(column.into()));
    let plan = LogicalPlanBuilder::from(plan).project(lengths)?.build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}

/// The operator, made to sort, join and group by lengths.
pub(super) fn in_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let done = sorted(&mut sort.expr, sort.input.schema());
            Ok(done.update_data(|()| LogicalPlan::Sort(sort)))
        }
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let schema = Arc::clone(on.input.schema());
            let of_on = lengths_in(&mut on.on_expr, &schema).transformed;
            let of_sort = match &mut on.sort_expr {
                Some(sorts) => sorted(sorts, &schema).transformed,
                None => false,
            };
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(if of_on || of_sort {
                Transformed::yes(plan)
            } else {
                Transformed::no(plan)
            })
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_interval(input.schema()) => {
            let columns = input.schema().columns();
            let columns = columns.into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, Vec::new())?)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
            if groups.iter().any(|group| is_interval(group, schema)) {
                grouped(aggregate)
            } else {
                Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)))
            }
        }
        other => Ok(Transformed::no(other)),
    }
}

fn has_interval(schema: &DFSchema) -> bool {
    let mut fields = schema.fields().iter();
    fields.any(|field| matches!(field.data_type(), DataType::Interval(_)))
}

fn joined(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut any = false;
    for (left, right) in &mut join.on {
        let (of_left, of_right) = (join.left.schema(), join.right.schema());
        if is_interval(left, of_left) && is_interval(right, of_right) {
            *left = by_length(std::mem::take(left), of_left);
            *right = by_length(std::mem::take(right), of_right);
            any = true;
        }
    }
    if any {
        // They are no columns any more.
        join.join_constraint = JoinConstraint::On;
        return Ok(Transformed::yes(LogicalPlan::Join(join)));
    }
    Ok(Transformed::no(LogicalPlan::Join(join)))
}

/// Groups of equal lengths, each shown as one of its intervals.
fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let input = Arc::clone(aggregate.input.schema());
    let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let groups: Vec<Expr> = groups.into_iter().cloned().collect();
    let has_sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let shown_name = |at: usize| format!("__interval_{at}");
    let mut aggregates = aggregate.aggr_expr;
    for (at, group) in groups.iter().enumerate() {
        if is_interval(group, &input) {
            aggregates.push(min(group.clone().unalias()).alias(shown_name(at)));
        }
    }
    let keys = aggregate.group_expr.into_iter().map(|group| {
        let keyed = group.transform_down(|expr| {
            Ok(if groups.contains(&expr) && is_interval(&expr, &input) {
                let key = by_length(expr.unalias(), &input);
                Transformed::new(key, true, TreeNodeRecursion::Jump)
            } else {
                Transformed::no(expr)
            })
        });
        keyed.map(|keyed| keyed.data)
    });
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let by_length = Aggregate::try_new(aggregate.input, keys, aggregates)?;
    let column = |(table, name): (Option<&TableReference>, &str)| {
        Expr::Column(Column::new(table.cloned(), name))
    };
    let fields = aggregate.schema.iter().enumerate();
    let shown = fields.map(|(at, (table, field))| {
        if groups
            .get(at)
            .is_none_or(|group| !is_interval(group, &input))
        {
            return Ok(column((table, field.name())));
        }
        let mut interval = column((None, &shown_name(at)));
        if has_sets {
            // Where it is not grouped by, there are intervals too.
            let (table, key) = by_length.schema.qualified_field(at);
            let null = lit(ScalarValue::try_from(field.data_type())?);
            interval = when(column((table, key.name())).is_null(), null).otherwise(interval)?;
        }
        Ok(interval.alias_qualified(table.cloned(), field.name()))
    });
    let shown = shown.collect::<Result<Vec<_>>>()?;
    let by_length = Arc::new(LogicalPlan::Aggregate(by_length));
    let shown = Projection::try_new(shown, by_length)?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}
