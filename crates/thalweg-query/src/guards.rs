//! Conditions that would fail for rows which other conditions leave out.
//!
//! DataFusion evaluates the right side of AND for all rows of a batch unless few are left, and so `z <> 0 AND 10 // z > 5` divides
//! by zero where a fifth of the rows or more have another `z`. Trying the fast way first costs nothing where it succeeds; choosing
//! rows each time would copy all columns of each batch.
//!
//! Invariant: the conditions of a filter or a join fail only if in no order they could be evaluated for the rows that those before
//! leave.

use crate::functions::unchanged::is_opaque;
use crate::meaning::cases;
use crate::meaning::time_unit::compares;
use crate::stack::with_room;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::boolean::{and_kleene, or_kleene};
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, Operator};
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_expr_common::utils::scatter;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// DataFusion's rule that computes common parts of expressions once, below them, for all but the conditions that guard one another:
/// a part is not computed for rows that are left out then.
#[derive(Debug, Default)]
pub(crate) struct CommonParts(CommonSubexprEliminate);

impl OptimizerRule for CommonParts {
    fn name(&self) -> &'static str {
        "common_sub_expression_eliminate"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !plan.exists(is_guarding)? {
            return self.0.rewrite(plan, config);
        }
        // The rule goes through the plan itself: meanwhile a placeholder stands in the place of each such condition.
        let mut conditions = Vec::new();
        let plan = plan.transform_down(|node| match node {
            node if !is_guarding(&node)? => Ok(Transformed::no(node)),
            LogicalPlan::Filter(mut filter) => {
                let name = Expr::Placeholder(Placeholder {
                    id: format!("{KEPT}{}", conditions.len()),
                    field: None,
                });
                conditions.push(std::mem::replace(&mut filter.predicate, name));
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            node => Ok(Transformed::no(node)),
        })?;
        let done = self.0.rewrite(plan.data, config)?;
        let kept = |predicate: &Expr| match predicate {
            Expr::Placeholder(name) => {
                let number = name.id.strip_prefix(KEPT)?.parse::<usize>().ok()?;
                conditions.get(number).cloned()
            }
            _ => None,
        };
        done.map_data(|plan| {
            let plan = plan.transform_down(|node| match node {
                LogicalPlan::Filter(mut filter) => {
                    let condition = kept(&filter.predicate);
                    let is_kept = condition.is_some();
                    filter.predicate = condition.unwrap_or(filter.predicate);
                    let node = LogicalPlan::Filter(filter);
                    Ok(Transformed::new(node, is_kept, TreeNodeRecursion::Continue))
                }
                node => Ok(Transformed::no(node)),
            })?;
            Ok(plan.data)
        })
    }
}

/// Whether a node is a filter of several conditions one of which may fail for some values.
fn is_guarding(node: &LogicalPlan) -> Result<bool> {
    match node {
        LogicalPlan::Filter(filter) if matches!(&filter.predicate, Expr::BinaryExpr(_)) => {
            let schema = filter.input.schema();
            { &filter.predicate }.exists(|it| Ok(cases::fails_by_value(it, schema)))
        }
        _ => Ok(false),
    }
}

/// The prefix of the placeholders that stand in the places of conditions. No parameter is called so.
const KEPT: &str = "condition ";

/// The rule that guards them.
#[derive(Debug)]
pub(crate) struct GuardConditions;

impl PhysicalOptimizerRule for GuardConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            Ok(match guarded(&plan)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(plan),
            })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_guard_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The node with guarded conditions, if it has some to guard.
fn guarded(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let Some(predicate) = with_guards(filter.predicate()) else {
            return Ok(None);
        };
        let builder = FilterExecBuilder::from(filter).with_predicate(predicate);
        return Ok(Some(Arc::new(builder.build()?)));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
        && let Some(condition) = with_guards(filter.expression())
    {
        let join = HashJoinExecBuilder::from(join)
            .with_filter(Some(of_join(filter, condition)))
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter().and_then(in_one_piece)
    {
        let builder = NestedLoopJoinExecBuilder::from(join).with_filter(filter);
        return Ok(Some(Arc::new(builder.build()?)));
    }
    Ok(None)
}

/// The condition of a nested loop with guards. DataFusion evaluates below the join, for all rows of a side, what depends on that
/// side alone: a condition with divisions or casts that others guard hides its parts.
fn in_one_piece(filter: &JoinFilter) -> Option<Option<JoinFilter>> {
    let condition = filter.expression();
    let guards = with_guards(condition);
    if !holds(condition, |expr| fails_by_value(expr, filter.schema()))
        || guards.is_none() && !holds(condition, |expr| expr.is::<CaseExpr>())
    {
        return guards.map(|guards| Some(of_join(filter, guards)));
    }
    let condition = guards.unwrap_or_else(|| Arc::clone(condition));
    let mut columns: Vec<_> = collect_columns(&condition).into_iter().collect();
    columns.sort_by_key(Column::index);
    let columns = columns.into_iter();
    let whole = Whole {
        columns: columns.map(|it| Arc::new(it) as _).collect(),
        condition,
    };
    Some(Some(of_join(filter, Arc::new(whole))))
}

/// The filter of a join with another condition of the same columns.
fn of_join(filter: &JoinFilter, condition: Arc<dyn PhysicalExpr>) -> JoinFilter {
    let columns = filter.column_indices().to_vec();
    JoinFilter::new(condition, columns, Arc::clone(filter.schema()))
}

/// Whether this divides by what may be 0, or casts what may have no such value.
fn fails_by_value(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_float = |side: &Arc<dyn PhysicalExpr>| {
        { side.data_type(schema) }.is_ok_and(|data_type| data_type.is_floating())
    };
    let is_string = |from: &Arc<dyn PhysicalExpr>| {
        { from.data_type(schema) }.is_ok_and(|data_type| data_type.is_string())
    };
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return matches!(binary.op(), Operator::Divide | Operator::Modulo)
            && !binary.right().is::<Literal>()
            && !is_float(binary.left());
    }
    expr.downcast_ref::<CastExpr>()
        .is_some_and(|cast| is_string(cast.expr()))
        || expr
            .downcast_ref::<ScalarFunctionExpr>()
            .is_some_and(|call| is_opaque(call.fun()))
}

/// Whether an expression or a part of it is such.
fn holds(expr: &Arc<dyn PhysicalExpr>, is_such: impl Fn(&Arc<dyn PhysicalExpr>) -> bool) -> bool {
    // The closure cannot fail.
    { expr.exists(|part| Ok(is_such(part))) }.unwrap_or(false)
}

/// A condition with guards between its parts, if it needs some.
fn with_guards(predicate: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let conditions = split_conjunction(predicate);
    // Nothing guards a single comparison.
    if let [condition] = conditions.as_slice()
        && condition
            .downcast_ref::<BinaryExpr>()
            .is_none_or(|it| *it.op() != Operator::Or)
    {
        return None;
    }
    let conditions = conditions.into_iter().cloned();
    let (failing, others): (Vec<_>, Vec<_>) = conditions.partition(may_fail);
    if failing.is_empty() {
        return None;
    }
    // Random values are not drawn again: their answers of before count beside those that are evaluated again.
    let (drawn, failing): (Vec<_>, Vec<_>) = failing.into_iter().partition(is_volatile);
    let lasting = others.iter().filter(|it| !is_volatile(it));
    let lasting: Vec<_> = lasting.chain(&failing).cloned().collect();
    // All at once: where several fail, the conditions are evaluated again once.
    let failing = (!failing.is_empty()).then(|| conjunction(failing));
    let guarded = failing.into_iter().chain(drawn).map(|condition| {
        let drawn = is_volatile(&condition).then(|| Arc::clone(&condition));
        let whole = conjunction(lasting.iter().cloned().chain(drawn));
        Arc::new(Guarded { condition, whole }) as Arc<dyn PhysicalExpr>
    });
    Some(conjunction(others.into_iter().chain(guarded)))
}

/// Whether a condition may fail for some values. Of functions, arithmetic and casts nothing is known.
fn may_fail(condition: &Arc<dyn PhysicalExpr>) -> bool {
    holds(condition, |expr| match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) => !compares(*binary.op()) && !binary.op().is_logic_operator(),
        None => {
            !(expr.is::<Column>()
                || expr.is::<Literal>()
                || expr.is::<NotExpr>()
                || expr.is::<IsNullExpr>()
                || expr.is::<IsNotNullExpr>()
                || expr.is::<InListExpr>()
                || expr.is::<LikeExpr>()
                || expr.is::<TryCastExpr>())
        }
    })
}

/// A condition that is evaluated again, with the others, where it fails.
#[derive(Clone, Debug)]
struct Guarded {
    condition: Arc<dyn PhysicalExpr>,
    /// All conditions of the filter, but for others that are drawn.
    whole: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition) && self.whole.eq(&other.whole)
    }
}

impl Eq for Guarded {}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Guarded {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        // A row of which another condition does not hold is left out, whatever the value of this one.
        self.condition.evaluate(batch).or_else(|_| {
            let chosen = row_by_row(&self.whole, batch)?;
            Ok(ColumnarValue::Array(Arc::new(chosen)))
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition, &self.whole]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 2]>::try_from(children) {
            Ok([condition, whole]) => Ok(Arc::new(Self { condition, whole })),
            Err(children) => internal_err!("a guarded condition with {} children", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// A condition whose parts are not seen, but for its columns.
#[derive(Clone, Debug)]
struct Whole {
    condition: Arc<dyn PhysicalExpr>,
    columns: Vec<Arc<dyn PhysicalExpr>>,
}

impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Whole {}

impl Hash for Whole {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Whole {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.condition.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.columns.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = Arc::clone(&self.condition).transform_up(|expr| {
            let column = self.columns.iter().position(|it| it.eq(&expr));
            let new = column.and_then(|at| children.get(at)).cloned();
            Ok(new.map_or_else(|| Transformed::no(expr), Transformed::yes))
        })?;
        Ok(Arc::new(Self {
            condition: condition.data,
            columns: children,
        }))
    }

    fn is_volatile_node(&self) -> bool {
        is_volatile(&self.condition)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// A condition of each row, false in the place of NULL. The parts of AND and OR are evaluated for rows of which the parts before
/// leave it open: first those that do not fail for these, whatever their order, as the optimizer has changed that.
fn row_by_row(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
    let op = condition.downcast_ref::<BinaryExpr>().map(BinaryExpr::op);
    let Some(op @ (Operator::And | Operator::Or)) = op.copied() else {
        let value = condition.evaluate(batch)?.into_array(batch.num_rows())?;
        return Ok(as_boolean_array(&value)?.clone());
    };
    let combine = match op {
        Operator::And => and_kleene,
        _ => or_kleene,
    };
    let mut parts = Vec::new();
    collect_parts(condition, op, &mut parts);
    let mut known = BooleanArray::from(vec![op == Operator::And; batch.num_rows()]);
    while !parts.is_empty() {
        let open: BooleanArray = { known.iter() }
            .map(|value| Some((value == Some(true)) == (op == Operator::And)))
            .collect();
        if !open.has_true() {
            break;
        }
        let rows = filter_record_batch(batch, &open)?;
        let mut failed = None;
        let found = parts.iter().enumerate().find_map(|(at, part)| {
            let answer = row_by_row(part, &rows);
            let answer = answer.map_err(|error| failed.get_or_insert(error));
            Some((at, answer.ok()?))
        });
        let Some((at, answer)) = found else {
            return match failed {
                Some(error) => Err(error),
                None => internal_err!("a condition without parts"),
            };
        };
        parts.remove(at);
        let answer = scatter(&open, &answer)?;
        known = combine(&known, as_boolean_array(&answer)?)?;
    }
    Ok(known)
}

fn collect_parts(
    condition: &Arc<dyn PhysicalExpr>,
    op: Operator,
    parts: &mut Vec<Arc<dyn PhysicalExpr>>,
) {
    match condition.downcast_ref::<BinaryExpr>() {
        Some(binary) if *binary.op() == op => {
            with_room(|| collect_parts(binary.left(), op, parts));
            collect_parts(binary.right(), op, parts);
        }
        _ => parts.push(Arc::clone(condition)),
    }
}
