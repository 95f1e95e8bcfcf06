//! Names of output columns.
//!
//! Invariants: a column without a name of its own is called by its expression as it was written, with the names of functions
//! in lower case; columns of equal names differ in a suffix after [`MARK`], which nobody sees: [`visible`] takes it away
//! from the result.

use super::templates::filled;
use super::types;
use crate::powers;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Projection};
use datafusion_sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, ObjectNamePart, OrderByKind, Query, Select, SelectItem, SetExpr,
    SetOperator, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_planner::walk_mut;
use thalweg_table::schema::fold_name;

/// Stands before the suffix of a name that another column has as well.
const MARK: char = '\u{1}';

/// The name as its user knows it.
pub(crate) fn visible(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(name, _)| name)
}

/// A plan, and what its columns are called where that is not what they are called in it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) plan: LogicalPlan,
    pub(crate) names: Option<Arc<[String]>>,
}

impl Named {
    /// Takes operators from the top that give columns other names and do nothing else: each would be looked at by all rules, and
    /// made and run with each execution, which the shortest statements notice.
    pub(crate) fn new(mut plan: LogicalPlan, mut names: Option<Arc<[String]>>) -> Self {
        while let LogicalPlan::Projection(projection) = &plan
            && renames_only(projection)
            && !is_lateral(&projection.input)
        {
            if names.is_none() {
                let fields = projection.schema.fields().iter();
                names = Some(fields.map(|field| field.name().clone()).collect());
            }
            plan = LogicalPlan::clone(&projection.input);
        }
        let names = with_names_of_fields(&plan, names);
        Self { plan, names }
    }
}

/// The names, where fields of constant structs are called by themselves: DataFusion's `unnest` calls them by the whole struct in its
/// own words.
fn with_names_of_fields(plan: &LogicalPlan, names: Option<Arc<[String]>>) -> Option<Arc<[String]>> {
    let of_field = |name: &String| {
        let is_struct = name.starts_with("named_struct(") || name.starts_with("struct(");
        let field = name.rsplit_once(").").map(|(_, field)| field.to_owned());
        field.filter(|_| is_struct)
    };
    let fields = plan.schema().fields().iter();
    let known: Vec<&String> = match &names {
        Some(names) => names.iter().collect(),
        None => fields.map(|field| field.name()).collect(),
    };
    if known.iter().all(|name| of_field(name).is_none()) {
        return names;
    }
    let shown = known.into_iter();
    Some(
        shown
            .map(|name| of_field(name).unwrap_or_else(|| name.clone()))
            .collect(),
    )
}

/// Whether a plan gets more columns while it is optimised: those that a LATERAL query depends by.
fn is_lateral(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Subquery(_))
        || matches!(
            plan,
            LogicalPlan::Join(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
        ) && plan.inputs().into_iter().any(is_lateral)
}

fn renames_only(projection: &Projection) -> bool {
    let input = projection.input.schema();
    let renames = |(place, expr): (usize, &PlanExpr)| {
        let expr = match expr {
            PlanExpr::Alias(alias) => &*alias.expr,
            expr => expr,
        };
        matches!(expr, PlanExpr::Column(column) if input.maybe_index_of_column(column) == Some(place))
    };
    projection.expr.len() == input.fields().len() && projection.expr.iter().enumerate().all(renames)
}

/// Returns the name for an item without one; `None` for an item that has a name, columns among them.
pub(super) fn of_unnamed(item: &SelectItem) -> Option<String> {
    let SelectItem::UnnamedExpr(expr) = item else {
        return None;
    };
    match without_brackets(expr) {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => None,
        expr => {
            let mut written = expr.clone();
            let _ = walk_mut(&mut written, &mut LowerCase);
            Some(written.to_string())
        }
    }
}

/// Takes the alias of a subquery that stands for a value, where nothing inside can name it: DataFusion would mix it up with a
/// column of that name by which the subquery depends on the rows outside.
pub(super) fn forget_of_value(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else {
        return;
    };
    let is_ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(keys, modifiers)
        if keys.is_empty() && modifiers.is_empty());
    if query.order_by.is_some()
        || !is_ungrouped
        || select.having.is_some()
        || select.qualify.is_some()
        || select.distinct.is_some()
    {
        return;
    }
    if let [item] = &mut *select.projection
        && let SelectItem::ExprWithAlias { expr, .. } = item
    {
        *item = SelectItem::UnnamedExpr(expr.clone());
    }
}

pub(super) fn without_brackets(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_brackets(inner),
        expr => expr,
    }
}

struct LowerCase;

impl VisitorMut for LowerCase {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some(power) = powers::as_written(expr) {
            *expr = power;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Function(function) = expr {
            for part in &mut function.name.0 {
                if let ObjectNamePart::Identifier(name) = part
                    && name.quote_style.is_none()
                {
                    name.value = fold_name(&name.value);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Gives the items of a SELECT their names.
pub(super) fn give(select: &mut Select, names: Vec<Option<String>>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (item, name) in select.projection.iter_mut().zip(names) {
        let (Some(name), SelectItem::UnnamedExpr(expr)) = (name, &mut *item) else {
            continue;
        };
        let times = seen.entry(name.clone()).or_default();
        let alias = marked(&name, *times);
        *times += 1;
        let expr = take(expr);
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
}

/// ORDER BY of a SELECT DISTINCT by the names of its items: DataFusion looks for the expressions themselves among them.
pub(super) fn order_distinct(query: &mut Query) {
    let SetExpr::Select(select) = &*query.body else {
        return;
    };
    let Some(order_by) = query
        .order_by
        .as_mut()
        .filter(|_| select.distinct.is_some())
    else {
        return;
    };
    let OrderByKind::Expressions(exprs) = &mut order_by.kind else {
        return;
    };
    for order in exprs {
        let name = select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if *expr == order.expr => Some(alias),
            _ => None,
        });
        if let Some(name) = name {
            order.expr = Expr::Identifier(name.clone());
        }
    }
}

/// A name that nobody can write, and that is seen as `name`.
pub(crate) fn out_of_reach(name: &str, number: usize) -> Ident {
    marked(name, number + 1)
}

fn marked(name: &str, times: usize) -> Ident {
    match times {
        0 => Ident::with_quote('"', name),
        times => Ident::with_quote('"', format!("{name}{MARK}{times}")),
    }
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

/// Whether planning failed because output columns have equal names.
pub(crate) fn are_equal(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match &**error {
            SchemaError::DuplicateQualifiedField { .. }
            | SchemaError::DuplicateUnqualifiedField { .. } => true,
            // Of a column of a table and one without a table; a name in the statement that may mean several has no relation.
            SchemaError::AmbiguousReference { field } => field.relation.is_some(),
            SchemaError::FieldNotFound { .. } => false,
        },
        DataFusionError::Plan(text) => text.contains("require unique expression names"),
        _ => false,
    }
}

/// Makes equal names of output columns differ, and those of expressions that differ in a cast. ORDER BY means the column that was
/// given its name in this SELECT.
///
/// Done only where a statement cannot be planned otherwise: which columns `*` stands for is not known here, so all named
/// ones beside it get a suffix.
pub(crate) fn tell_apart(statement: &mut impl VisitMut) {
    let _ = walk_mut(statement, &mut TellApart);
}

/// Makes equal names on either side of INTERSECT and EXCEPT differ: DataFusion compares columns of these by name.
pub(super) fn tell_sides_apart(query: &mut Query) {
    let mut sides = 0;
    if matches!(&*query.body, SetExpr::SetOperation { .. }) {
        tell_side_apart(&mut query.body, false, &mut sides);
    }
}

fn tell_side_apart(body: &mut SetExpr, is_compared: bool, sides: &mut usize) {
    match body {
        SetExpr::SetOperation {
            op, left, right, ..
        } => {
            let is_compared = is_compared || *op != SetOperator::Union;
            tell_side_apart(left, is_compared, sides);
            tell_side_apart(right, is_compared, sides);
        }
        SetExpr::Query(query) if is_compared => tell_side_apart(&mut query.body, true, sides),
        SetExpr::Select(select) if is_compared => {
            let has_several = select.from.len() > 1 || select.from.iter().any(has_joins);
            if !has_several || !select.projection.iter().any(is_wildcard) {
                tell_items_apart(select);
                return;
            }
            // Only the planner knows which columns `*` stands for, and tells those of a query in FROM apart.
            *sides += 1;
            if let Some(outer) = in_query(select, &format!("{MARK}{sides}")) {
                *body = outer;
            }
        }
        _ => {}
    }
}

fn has_joins(from: &TableWithJoins) -> bool {
    !from.joins.is_empty()
}

/// `SELECT * FROM (select) AS name`.
fn in_query(select: &Select, name: &str) -> Option<SetExpr> {
    let written = format!("(SELECT * FROM (SELECT 1) AS \"{name}\")");
    let Ok(Expr::Subquery(query)) = filled(&written, &[]) else {
        return None;
    };
    let mut outer = *query.body;
    let SetExpr::Select(all) = &mut outer else {
        return None;
    };
    let TableFactor::Derived { subquery, .. } = &mut all.from.first_mut()?.relation else {
        return None;
    };
    *subquery.body = SetExpr::Select(Box::new(select.clone()));
    Some(outer)
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

struct TellApart;

impl VisitorMut for TellApart {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some(call) = types::as_call(expr) {
            *expr = call;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        let SetExpr::Select(select) = &mut *query.body else {
            return ControlFlow::Continue(());
        };
        let renamed = tell_items_apart(select);
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(exprs) = &mut order_by.kind
        {
            for order in exprs {
                if let Expr::Identifier(name) = &mut order.expr
                    && let Some(alias) = renamed.get(&fold_name(&name.value))
                {
                    *name = alias.clone();
                }
            }
        }
        ControlFlow::Continue(())
    }

    // Of UNION and the like.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        tell_items_apart(select);
        ControlFlow::Continue(())
    }
}

/// The new names of items that were given a name in the statement, by that name.
fn tell_items_apart(select: &mut Select) -> HashMap<String, Ident> {
    let beside_all = usize::from(select.projection.iter().any(is_wildcard));
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut renamed = HashMap::new();
    for item in &mut select.projection {
        let name = match &*item {
            SelectItem::UnnamedExpr(expr) => match without_brackets(expr) {
                Expr::Identifier(name) => name.clone(),
                Expr::CompoundIdentifier(parts) => match parts.last() {
                    Some(name) => name.clone(),
                    None => continue,
                },
                _ => continue,
            },
            SelectItem::ExprWithAlias { alias, .. } if !alias.value.contains(MARK) => alias.clone(),
            _ => continue,
        };
        let shown = if name.quote_style.is_some() {
            name.value.clone()
        } else {
            fold_name(&name.value)
        };
        let times = seen.entry(fold_name(&shown)).or_insert(beside_all);
        let alias = marked(&shown, *times);
        let is_changed = *times > 0;
        *times += 1;
        if !is_changed {
            continue;
        }
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let expr = take(expr);
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            SelectItem::ExprWithAlias { alias: given, .. } => {
                renamed.entry(fold_name(&shown)).or_insert(alias.clone());
                *given = alias;
            }
            _ => {}
        }
    }
    renamed
}
