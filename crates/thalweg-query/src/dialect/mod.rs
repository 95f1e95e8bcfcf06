//! SQL of other databases, in terms of the functions that there are.
//!
//! Invariants: translated before a statement is planned, so that pushdown sees one form of each question; a column without a
//! name is called by its expression as it was written; a function that is not known here is left alone.

mod buckets;
mod calls;
mod functions;
mod group_positions;
pub(crate) mod operators;
mod ordered_aggregates;
pub(crate) mod output_names;
mod patterns;
mod rows;
mod templates;
mod time_differences;
mod time_formats;
mod time_parts;
mod types;
mod unnested;
mod using;
mod whole_times;
mod windows;

pub(crate) use rows::{of_subqueries, plain_values, values_of as values_of_row};
pub(crate) use types::type_of;

use crate::error::unsupported;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, ExcludeSelectItem, Expr, Fetch, Function, Ident, JoinOperator,
    LimitClause, ObjectName, ObjectNamePart, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement as SqlStatement, Subscript, TableAlias, TableFactor,
    TableWithJoins, UnaryOperator, Value, Visit, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;
use thalweg_planner::walk_mut;
use thalweg_table::schema::fold_name;
use thalweg_table::{Error, ErrorKind, Result};

/// Translates a statement.
pub(crate) fn translate(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) => {
            let inserts_values = matches!(&**inner, SqlStatement::Insert(insert)
                if insert.source.as_deref().and_then(plain_values).is_some());
            visit(&mut **inner, inserts_values)
        }
        DfStatement::Explain(explain) => translate(&mut explain.statement),
        // Refused by their kind.
        DfStatement::CopyTo(_) | DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => {
            Ok(())
        }
    }
}

/// Translates a condition.
pub(crate) fn translate_condition(condition: &mut Expr) -> Result<()> {
    visit(condition, false)
}

/// A constant of SQL with this text.
pub(crate) fn text(value: &str) -> Expr {
    calls::text(value)
}

/// The name of the function that a call is of, in small letters.
pub(crate) fn function_name(call: &Function) -> Option<String> {
    calls::plain_name(call)
}

/// A call with a list of shares that was a parameter, as what it stands for.
pub(crate) fn quantiles(function: &Function) -> Result<Option<Expr>> {
    functions::quantiles(function)
}

/// A pattern of `to_char`, which may be PostgreSQL's, as one of `strftime`.
pub(crate) fn time_pattern(written: &str) -> Result<String> {
    if written.contains('%') {
        return Ok(functions::with_microseconds(written));
    }
    time_formats::strftime(written)
}

fn visit(node: &mut (impl Visit + VisitMut), inserts_values: bool) -> Result<()> {
    let mut translator = Translator {
        inserts_values,
        names_value: unnested::names_value(node),
        ..Translator::default()
    };
    match walk_mut(node, &mut translator) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Translator {
    /// The names of the items of each SELECT that is being visited, where an item has none of its own.
    names: Vec<Vec<Option<String>>>,
    /// The column of `generate_series` and its like is named as it is called by itself.
    names_value: bool,
    /// The next query is the VALUES of an INSERT, which computes its subqueries value by value and keeps the order of rows.
    inserts_values: bool,
    /// Subqueries in FROM that were given a name.
    named_subqueries: usize,
}

impl Translator {
    /// Gives subqueries a name that stand beside other tables: without one DataFusion takes their columns for those of the tables
    /// inside.
    fn name_subqueries(&mut self, select: &mut Select) {
        let tables = select
            .from
            .iter()
            .map(|from| 1 + from.joins.len())
            .sum::<usize>();
        if tables < 2 {
            return;
        }
        for from in &mut select.from {
            let joined = from.joins.iter_mut().map(|join| &mut join.relation);
            for table in std::iter::once(&mut from.relation).chain(joined) {
                if let TableFactor::Derived {
                    alias: alias @ None,
                    ..
                } = table
                {
                    self.named_subqueries += 1;
                    *alias = Some(TableAlias {
                        explicit: true,
                        name: Ident::new(format!("unnamed_subquery_{}", self.named_subqueries)),
                        columns: Vec::new(),
                        at: None,
                    });
                }
            }
        }
    }
}

impl VisitorMut for Translator {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<Error> {
        let condition = match statement {
            SqlStatement::Delete(delete) => &mut delete.selection,
            SqlStatement::Update(update) => &mut update.selection,
            _ => return ControlFlow::Continue(()),
        };
        match condition.as_mut().map_or(Ok(()), rows::in_subqueries) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        order_by_positions(query);
        if let Err(error) = refuse_fractions(query) {
            return ControlFlow::Break(error);
        }
        fetch_as_limit(query);
        output_names::tell_sides_apart(query);
        let checked = unnested::check_order(query)
            .and_then(|()| match std::mem::take(&mut self.inserts_values) {
                true => Ok(()),
                false => of_subqueries(query),
            })
            .and_then(|()| windows::write_out_order(query));
        if let Err(error) = checked {
            return ControlFlow::Break(error);
        }
        match using::replace_in_order(query).and_then(|()| refuse_replaced(query)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Error> {
        if let Err(error) = unnested::refuse_columns(table) {
            return ControlFlow::Break(error);
        }
        unnested::name_column(table, self.names_value);
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            semi_joins_of_the_left(table_with_joins);
            if let Err(error) = using::refuse_in_brackets(table_with_joins) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        output_names::order_distinct(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if select.projection.is_empty() {
            let tables: Vec<String> = select.from.iter().map(ToString::to_string).collect();
            let tables = tables.join(", ").to_lowercase();
            return ControlFlow::Break(unsupported(format!(
                "SELECT names no columns of {tables}: write SELECT * or count(*)"
            )));
        }
        for item in &mut select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                fold_names(options);
            }
        }
        group_positions::written_out(select);
        self.name_subqueries(select);
        let joined = using::Joined::read(&mut select.from);
        select.from.iter_mut().for_each(semi_joins_of_the_left);
        let joined = match joined.and_then(|all| all.expand_wildcards(select).map(|()| all)) {
            Ok(joined) => joined,
            Err(error) => return ControlFlow::Break(error),
        };
        if let Some(condition) = &mut select.selection
            && let Err(error) = rows::in_subqueries(condition)
        {
            return ControlFlow::Break(error);
        }
        let names = select.projection.iter().map(output_names::of_unnamed);
        self.names.push(names.collect());
        if let Err(error) = windows::write_out(select) {
            return ControlFlow::Break(error);
        }
        joined.replace(select);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        output_names::give(select, self.names.pop().unwrap_or_default());
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Function(function) => windows::take_null_treatment(function),
            Expr::Subquery(query) => output_names::forget_of_value(query),
            // Before a row becomes a call.
            Expr::InSubquery { expr, .. } => {
                if let Err(error) = rows::refuse(expr) {
                    return ControlFlow::Break(error);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let translated = match expr {
            Expr::Function(function) => {
                templates::keep_constants(function);
                windows::refuse(function).and_then(|()| functions::translated(function))
            }
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => functions::at_time_zone(timestamp, time_zone).map(Some),
            Expr::Cast { .. } | Expr::TypedString(_) => types::translated(expr),
            Expr::Interval(interval) => types::interval(interval),
            Expr::Extract { field, expr, .. } => time_parts::of_name(&field.to_string(), expr),
            Expr::CompoundFieldAccess { root, access_chain } => {
                access_chain.iter_mut().for_each(with_both_ends);
                name_fields(root, access_chain);
                Ok(None)
            }
            Expr::Tuple(values) => rows::as_call(values),
            Expr::InList {
                expr,
                list,
                negated,
            } => rows::in_list(expr, list, *negated),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => rows::between(expr, low, high, *negated),
            Expr::BinaryOp { left, op, right } => rows::compared(left, op, right),
            Expr::Value(value) => constant(&value.value),
            Expr::UnaryOp {
                op: UnaryOperator::BitwiseNot,
                expr,
            } => templates::filled("(a1) XOR (-1)", &[expr]).map(Some),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => any_or_all(expr),
            Expr::SimilarTo { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::RLike { .. } => patterns::translated(expr),
            _ => Ok(None),
        };
        match translated {
            Ok(Some(translated)) => *expr = translated,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Names beside a wildcard as SQL takes them; DataFusion compares them as they are written.
fn fold_names(options: &mut WildcardAdditionalOptions) {
    let fold = |name: &mut Ident| {
        if name.quote_style.is_none() {
            *name = Ident::with_quote('"', fold_name(&name.value));
        }
    };
    let fold_last = |name: &mut ObjectName| {
        if let Some(ObjectNamePart::Identifier(name)) = name.0.last_mut() {
            fold(name);
        }
    };
    match &mut options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => fold_last(name),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter_mut().for_each(fold_last),
        None => {}
    }
    if let Some(except) = &mut options.opt_except {
        fold(&mut except.first_element);
        except.additional_elements.iter_mut().for_each(fold);
    }
    let replaced = options
        .opt_replace
        .iter_mut()
        .flat_map(|all| &mut all.items);
    replaced.for_each(|item| fold(&mut item.column_name));
}

/// Constants as other databases write them.
fn constant(value: &Value) -> Result<Option<Expr>> {
    match value {
        Value::UnicodeStringLiteral(text) => Ok(Some(calls::text(text))),
        Value::SingleQuotedByteStringLiteral(text) => {
            let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            Err(unsupported(format!(
                "b'{text}' is not offered: write X'{bytes}' for these bytes"
            )))
        }
        // Rust reads infinity.
        Value::Number(digits, _) if digits.parse().is_ok_and(f64::is_infinite) => {
            let message = format!("{digits} is beyond DOUBLE, which ends at 1.8e308");
            Err(Error::new(ErrorKind::OutOfDomain, message))
        }
        _ => Ok(None),
    }
}

/// `list[2:]` and `list[:2]`, which end with the last item and begin with the first one.
fn with_both_ends(access: &mut AccessExpr) {
    let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
    if let AccessExpr::Subscript(Subscript::Slice {
        lower_bound,
        upper_bound,
        ..
    }) = access
    {
        lower_bound.get_or_insert_with(one);
        upper_bound.get_or_insert_with(|| Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(one()),
        });
    }
}

/// `{'a': 1}.a` and `list[1].a`, fields of what is no column, by texts: the planner takes no names there.
fn name_fields(root: &Expr, access: &mut [AccessExpr]) {
    let mut is_name = matches!(root, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    for access in access {
        match access {
            AccessExpr::Subscript(_) => is_name = false,
            AccessExpr::Dot(Expr::Identifier(name)) if !is_name => {
                *access = AccessExpr::Dot(calls::text(&name.value));
            }
            AccessExpr::Dot(_) => {}
        }
    }
}

/// FETCH FIRST n ROWS ONLY as LIMIT n.
fn fetch_as_limit(query: &mut Query) {
    let plain = |fetch: &Fetch| !fetch.with_ties && !fetch.percent;
    if !query.fetch.as_ref().is_some_and(plain) {
        return;
    }
    let rows = |fetch: Fetch| {
        let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
        fetch.quantity.unwrap_or_else(one)
    };
    match &mut query.limit_clause {
        None => {
            query.limit_clause = query.fetch.take().map(|fetch| LimitClause::LimitOffset {
                limit: Some(rows(fetch)),
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Some(LimitClause::LimitOffset {
            limit: limit @ None,
            ..
        }) => *limit = query.fetch.take().map(rows),
        Some(_) => {}
    }
}

/// Visits the expressions of a part of a SELECT, but not those of queries inside them.
pub(crate) fn outside_queries(
    node: &mut impl VisitMut,
    visit: &mut dyn FnMut(&mut Expr) -> Result<()>,
) -> Result<()> {
    let mut visitor = OutsideQueries { visit, depth: 0 };
    match walk_mut(node, &mut visitor) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct OutsideQueries<'a> {
    visit: &'a mut dyn FnMut(&mut Expr) -> Result<()>,
    /// How many queries inside the part it is in.
    depth: usize,
}

impl VisitorMut for OutsideQueries<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match (self.visit)(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// SEMI JOIN and ANTI JOIN without a side, which mean rows of the left.
fn semi_joins_of_the_left(table: &mut TableWithJoins) {
    for join in &mut table.joins {
        join.join_operator = match &join.join_operator {
            JoinOperator::Semi(on) => JoinOperator::LeftSemi(on.clone()),
            JoinOperator::Anti(on) => JoinOperator::LeftAnti(on.clone()),
            _ => continue,
        };
    }
}

/// `= ANY` and `<> ALL` of a query or a written list as IN and NOT IN. The others of queries are refused: DataFusion takes a column
/// outside for the one inside where both tables have the same name.
fn any_or_all(expr: &Expr) -> Result<Option<Expr>> {
    let (left, op, right, negated) = match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => (left, compare_op, right, false),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => (left, compare_op, right, true),
        _ => return Ok(None),
    };
    let wanted = if negated {
        BinaryOperator::NotEq
    } else {
        BinaryOperator::Eq
    };
    let subquery = match &**right {
        Expr::Subquery(subquery) => subquery,
        Expr::Array(list) if *op == wanted && !list.elem.is_empty() => {
            return Ok(Some(Expr::InList {
                expr: left.clone(),
                list: list.elem.clone(),
                negated,
            }));
        }
        // Of a parameter that is a list, as in `ts = ANY(?)`.
        Expr::Value(value) if *op == wanted && matches!(value.value, Value::Placeholder(_)) => {
            return Ok(Some(Expr::InList {
                expr: left.clone(),
                list: vec![(**right).clone()],
                negated,
            }));
        }
        _ => return Ok(None),
    };
    if *op != wanted {
        let name = if negated { "ALL" } else { "ANY" };
        return Err(unsupported(format!(
            "{op} {name} of a query is not offered: compare with (SELECT max(...)) or (SELECT min(...))"
        )));
    }
    Ok(Some(Expr::InSubquery {
        expr: left.clone(),
        subquery: subquery.clone(),
        negated,
    }))
}

/// Refuses ORDER BY of the column itself, `t.v`, that REPLACE gives another value: DataFusion finds two columns of the name.
fn refuse_replaced(query: &Query) -> Result<()> {
    let (SetExpr::Select(select), Some(order_by)) = (&*query.body, &query.order_by) else {
        return Ok(());
    };
    let options = select.projection.iter().filter_map(|item| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            options.opt_replace.as_ref()
        }
        _ => None,
    });
    let replaced: Vec<&Ident> = options
        .flat_map(|all| &all.items)
        .map(|item| &item.column_name)
        .collect();
    let OrderByKind::Expressions(keys) = &order_by.kind else {
        return Ok(());
    };
    for key in keys {
        let is_replaced = |name: &Ident| replaced.iter().any(|it| using::is_same(it, name));
        if let Expr::CompoundIdentifier(parts) = &key.expr
            && parts.last().is_some_and(is_replaced)
        {
            return Err(unsupported(format!(
                "ORDER BY {} is not offered beside REPLACE, which gives it another value: order by that, without the name of the table, or name \
                 the columns in the place of *",
                key.expr
            )));
        }
    }
    Ok(())
}

/// ORDER BY of a number with a fraction, which is no position of a column, and changes nothing as a value.
fn refuse_fractions(query: &Query) -> Result<()> {
    let Some(OrderBy {
        kind: OrderByKind::Expressions(keys),
        ..
    }) = &query.order_by
    else {
        return Ok(());
    };
    for key in keys {
        if let Expr::Value(constant) = &key.expr
            && let Value::Number(digits, _) = &constant.value
            && digits.parse::<usize>().is_err()
        {
            return Err(crate::error::query(format!(
                "ORDER BY {digits}: a number counts the columns of SELECT from 1; write one of these, or an expression"
            )));
        }
    }
    Ok(())
}

/// ORDER BY ALL as positions, which the parser takes for a column of that name. Where `*` stands for columns DataFusion counts
/// them.
fn order_by_positions(query: &mut Query) {
    let Some(OrderBy { kind, .. }) = &mut query.order_by else {
        return;
    };
    let (OrderByKind::Expressions(exprs), SetExpr::Select(select)) = (&*kind, &*query.body) else {
        return;
    };
    let options = match &**exprs {
        [
            OrderByExpr {
                expr: Expr::Identifier(name),
                options,
                ..
            },
        ] if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") => *options,
        _ => return,
    };
    let is_single = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if select.projection.is_empty() || !select.projection.iter().all(is_single) {
        *kind = OrderByKind::All(options);
        return;
    }
    let position = |position: usize| OrderByExpr {
        expr: Expr::Value(Value::Number(position.to_string(), false).into()),
        options,
        with_fill: None,
    };
    *kind = OrderByKind::Expressions((1..=select.projection.len()).map(position).collect());
}
