//! Aggregates over ranges and buckets of time, taken out of the plan and given to the table.
//!
//! Invariants: a node has exactly the schema of the aggregate it replaces; the only filters below it are conditions
//! on time, which the key range holds for exactly; its expressions are constants, so that placeholders in them are
//! filled in like everywhere else. Aggregates are known by their names: the session registers DataFusion's own and no
//! others.

use super::bucket::{TimeGroup, time_group};
use super::finish::Output;
use super::time::{TimeColumn, TimeCondition, constant_type, time_conditions};
use crate::table::StoredTable;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, Extension, LogicalPlan, TableScan, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rule that finds such aggregates.
#[derive(Debug, Default)]
pub(crate) struct AggregatePushdown;

impl OptimizerRule for AggregatePushdown {
    fn name(&self) -> &'static str {
        "thalweg_aggregate_pushdown"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else {
            return Ok(Transformed::no(plan));
        };
        Ok(match AggregateNode::replace(aggregate) {
            Some(node) => Transformed::yes(LogicalPlan::Extension(Extension {
                node: Arc::new(node),
            })),
            None => Transformed::no(plan),
        })
    }
}

/// An aggregate that its table answers.
#[derive(Clone, Debug)]
pub(crate) struct AggregateNode {
    pub(crate) table: Arc<StoredTable>,
    pub(crate) conditions: Vec<TimeCondition>,
    pub(crate) group: Option<TimeGroup>,
    pub(crate) outputs: Vec<Output>,
    /// Places in the schema of the columns that the outputs use.
    pub(crate) columns: Vec<usize>,
    pub(crate) schema: DFSchemaRef,
}

/// Table, conditions, width, origin and factor of groups, outputs, columns.
type Identity<'a> = (
    &'a str,
    &'a [TimeCondition],
    Option<(i64, i64, i64)>,
    &'a [Output],
    &'a [usize],
);

impl AggregateNode {
    /// The node that does the work of `aggregate`, if the table can.
    fn replace(aggregate: &Aggregate) -> Option<Self> {
        let mut renamed = None;
        let scan = scan_below(&aggregate.input, &mut renamed)?;
        let table = Arc::new(StoredTable::of(scan)?);
        let definition = table.definition();
        let time = definition
            .order_column()
            .map(|column| (column.name.clone(), column.data_type.clone()));
        let time = time
            .as_ref()
            .map(|(name, data_type)| TimeColumn { name, data_type });
        let mut conditions = Vec::new();
        for filter in &scan.filters {
            conditions.extend(time_conditions(filter, time?)?);
        }
        let of_scan = |expr| match &renamed {
            None => Some(Cow::Borrowed(expr)),
            Some(sources) => of_scan(expr, aggregate.input.schema(), sources).map(Cow::Owned),
        };
        let group = match aggregate.group_expr.as_slice() {
            [] => None,
            [group] => Some(time_group(&*of_scan(group)?, time?)?),
            _ => return None,
        };
        let mut columns = Vec::new();
        let outputs = aggregate
            .aggr_expr
            .iter()
            .map(|expr| output(&*of_scan(expr)?, &table, &mut columns));
        let outputs = outputs.collect::<Option<Vec<_>>>()?;
        Some(Self {
            table,
            conditions,
            group,
            outputs,
            columns,
            schema: Arc::clone(&aggregate.schema),
        })
    }

    fn constants(&self) -> impl Iterator<Item = &Expr> {
        self.conditions.iter().map(|condition| &condition.constant)
    }

    /// The constants that the time column itself is compared with, without a cast of either.
    pub(crate) fn plain_constants(&self) -> impl Iterator<Item = &Expr> {
        let time = self.table.definition().order_column();
        let type_of_time = time.map(|column| column.data_type.clone());
        self.constants().filter(move |constant| {
            type_of_time.is_some() && constant_type(constant) == type_of_time
        })
    }

    /// The parts that equal nodes agree on.
    fn identity(&self) -> Identity<'_> {
        let group = self
            .group
            .map(|group| (group.bucket.width, group.bucket.origin, group.factor));
        (
            self.table.name(),
            &self.conditions,
            group,
            &self.outputs,
            &self.columns,
        )
    }
}

/// For each column of a plan, that of the scan below which it is, if it is one.
type Sources = Vec<Option<Column>>;

/// The scan all of whose rows, and no others, go into a plan. `renamed` is set where columns may have other names than in the scan, as
/// those of a view and of a query in FROM.
fn scan_below<'a>(plan: &'a LogicalPlan, renamed: &mut Option<Sources>) -> Option<&'a TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() => Some(scan),
        LogicalPlan::SubqueryAlias(alias) => scan_below(&alias.input, renamed),
        LogicalPlan::Projection(projection) => {
            let scan = scan_below(&projection.input, renamed)?;
            let below = renamed.take().unwrap_or_else(|| {
                let columns = scan.projected_schema.columns();
                columns.into_iter().map(Some).collect()
            });
            let source = |expr: &Expr| {
                let expr = match expr {
                    Expr::Alias(alias) => &*alias.expr,
                    expr => expr,
                };
                let Expr::Column(column) = expr else {
                    return None;
                };
                let place = projection.input.schema().maybe_index_of_column(column)?;
                below.get(place).cloned().flatten()
            };
            *renamed = Some(projection.expr.iter().map(source).collect());
            Some(scan)
        }
        _ => None,
    }
}

/// The expression on the columns of a scan instead of those of a plan; `None` where it needs one that is computed.
fn of_scan(expr: &Expr, schema: &DFSchema, sources: &Sources) -> Option<Expr> {
    let mut is_computed = false;
    let rewritten = expr.clone().transform_up(|expr| {
        let Expr::Column(column) = &expr else {
            return Ok(Transformed::no(expr));
        };
        let place = schema.maybe_index_of_column(column);
        Ok(
            match place.and_then(|place| sources.get(place).cloned().flatten()) {
                Some(source) => Transformed::yes(Expr::Column(source)),
                None => {
                    is_computed = true;
                    Transformed::no(expr)
                }
            },
        )
    });
    rewritten
        .ok()
        .filter(|_| !is_computed)
        .map(|rewritten| rewritten.data)
}

/// The output that does the work of one aggregate function; `columns` grows by what it needs.
fn output(expr: &Expr, table: &StoredTable, columns: &mut Vec<usize>) -> Option<Output> {
    let function = match expr {
        Expr::Alias(alias) => return output(&alias.expr, table, columns),
        Expr::AggregateFunction(function) => function,
        _ => return None,
    };
    let AggregateFunction { func, params } = function;
    if params.distinct
        || params.filter.is_some()
        || !params.order_by.is_empty()
        || params.null_treatment.is_some()
    {
        return None;
    }
    let [argument] = params.args.as_slice() else {
        return None;
    };
    let name = func.name();
    if let Expr::Literal(value, _) = argument {
        // COUNT(*) is planned as COUNT(1).
        return (name == "count" && !value.is_null()).then_some(Output::Rows);
    }
    let (position, cast) = column(argument, table)?;
    let data_type = table
        .definition()
        .columns()
        .get(position)
        .map(|column| column.data_type.clone())?;
    if !table.definition().is_summarised(position) || !fits(name, &data_type, cast) {
        return None;
    }
    let at = columns
        .iter()
        .position(|known| *known == position)
        .unwrap_or_else(|| {
            columns.push(position);
            columns.len() - 1
        });
    let variance = |sample, root| Output::Variance {
        column: at,
        sample,
        root,
    };
    Some(match name {
        "count" => Output::Count(at),
        "sum" => Output::Sum(at),
        "avg" => Output::Avg(at),
        "min" => Output::Min(at),
        "max" => Output::Max(at),
        "var" => variance(true, false),
        "var_pop" => variance(false, false),
        "stddev" => variance(true, true),
        "stddev_pop" => variance(false, true),
        _ => return None,
    })
}

/// The column that `expr` is, and what it is cast to.
fn column<'a>(expr: &'a Expr, table: &StoredTable) -> Option<(usize, Option<&'a DataType>)> {
    match expr {
        Expr::Column(column) => Some((
            table.definition().schema().index_of(&column.name).ok()?,
            None,
        )),
        Expr::Cast(Cast { expr, field }) => {
            let (position, None) = column(expr, table)? else {
                return None;
            };
            Some((position, Some(field.data_type())))
        }
        _ => None,
    }
}

/// Whether the summaries of a column of `data_type` have what the function needs, also after a cast that loses
/// nothing that the function looks at.
fn fits(function: &str, data_type: &DataType, cast: Option<&DataType>) -> bool {
    use DataType as T;
    let number = data_type.is_integer() || matches!(data_type, T::Float32 | T::Float64);
    match function {
        "count" => cast.is_none(),
        "min" | "max" => {
            let summarised = number
                || matches!(
                    data_type,
                    T::Boolean | T::Date32 | T::Timestamp(..) | T::Duration(_)
                );
            summarised && cast.is_none()
        }
        "sum" => match cast {
            None => number,
            Some(T::Int64) => data_type.is_signed_integer(),
            Some(T::UInt64) => data_type.is_unsigned_integer(),
            Some(T::Float64) => matches!(data_type, T::Float32),
            Some(_) => false,
        },
        _ => number && cast.is_none_or(|to| *to == T::Float64),
    }
}

impl UserDefinedLogicalNodeCore for AggregateNode {
    fn name(&self) -> &'static str {
        "ThalwegAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.constants().cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThalwegAggregate: {}", self.table.name())?;
        if let Some(group) = &self.group {
            write!(f, ", bucket={}", group.bucket.width)?;
        }
        for condition in &self.conditions {
            write!(
                f,
                ", time {:?} {}",
                condition.comparison, condition.constant
            )?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        if exprs.len() != self.conditions.len() || !inputs.is_empty() {
            return internal_err!("an aggregate of a table has constants only");
        }
        let mut node = self.clone();
        for (condition, constant) in node.conditions.iter_mut().zip(exprs) {
            condition.constant = constant;
        }
        Ok(node)
    }
}

impl PartialEq for AggregateNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.schema == other.schema
    }
}

impl Eq for AggregateNode {}

impl Hash for AggregateNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.schema.hash(state);
    }
}

impl PartialOrd for AggregateNode {
    /// Only equal nodes have an order: DataFusion needs one to sort expressions, not plans.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}
