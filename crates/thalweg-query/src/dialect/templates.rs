//! Expressions of SQL with places for arguments, which other functions stand for.
//!
//! Invariant: a template names its arguments `a1`, `a2`, ..., and is a constant of the module that fills it: it always parses.

use super::calls::plain_name;
use crate::error::query;
use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, OrderByExpr, Value, VisitorMut,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;
use thalweg_planner::walk_mut;
use thalweg_table::{Error, Result};

/// The aggregates among the functions of the templates.
const AGGREGATES: &[&str] = &[
    "approx_distinct",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "bool_and",
    "count",
    "count_of_rows",
    "first_value",
    "largest_values",
    "last_value",
    "max",
    "min",
    "mode",
    "percentile_cont",
    "regr_r2",
    "regr_sxx",
    "regr_syy",
    "smallest_values",
    "string_agg",
    "value_at_share",
    "value_at_share_from_largest",
    "var_samp",
];

/// A template with its arguments.
pub(super) fn filled(template: &str, args: &[&Expr]) -> Result<Expr> {
    let mut filler = Filler {
        args,
        clauses: None,
        takes_clauses: true,
        refused: false,
    };
    filler.fill(template)
}

/// A filled template, or why its aggregates cannot take the clauses of the call.
pub(super) enum Filled {
    Whole(Box<Expr>),
    /// An aggregate of it has an order of its own, and another one is asked for.
    OwnOrder,
    /// There are clauses, and no aggregate that takes them.
    NoAggregate,
}

/// A template with its arguments, whose aggregates take the clauses.
pub(super) fn filled_with(template: &str, args: &[&Expr], clauses: &Clauses<'_>) -> Result<Filled> {
    let mut filler = Filler {
        args,
        clauses: Some(clauses),
        takes_clauses: clauses.is_empty(),
        refused: false,
    };
    let expr = filler.fill(template)?;
    Ok(match (filler.refused, filler.takes_clauses) {
        (true, _) => Filled::OwnOrder,
        (false, true) => Filled::Whole(Box::new(expr)),
        (false, false) => Filled::NoAggregate,
    })
}

/// Puts arguments in their places, and clauses to the aggregates of a template.
struct Filler<'a> {
    args: &'a [&'a Expr],
    clauses: Option<&'a Clauses<'a>>,
    /// Some aggregate has taken the clauses, or there are none.
    takes_clauses: bool,
    /// An aggregate has an order of its own.
    refused: bool,
}

impl Filler<'_> {
    fn fill(&mut self, template: &str) -> Result<Expr> {
        let parser = Parser::new(&GenericDialect {}).try_with_sql(template);
        let expr = parser.and_then(|mut parser| parser.parse_expr());
        let mut expr = expr.map_err(|error| query(error.to_string()))?;
        match walk_mut(&mut expr, self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(expr),
        }
    }
}

impl VisitorMut for Filler<'_> {
    type Break = Error;

    // After what is inside, so that nothing inside an argument or a clause is taken for a place or an aggregate.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Identifier(name) => {
                if let Some(place) = name.value.strip_prefix('a')
                    && let Ok(place) = place.parse::<usize>()
                    && let Some(arg) = place.checked_sub(1).and_then(|at| self.args.get(at))
                {
                    *expr = (*arg).clone();
                }
            }
            Expr::Function(function) => {
                keep_constants(function);
                if let Some(clauses) = self.clauses
                    && let Some(name) = plain_name(function)
                    && AGGREGATES.contains(&&*name)
                {
                    self.takes_clauses = true;
                    match clauses.give(function) {
                        Ok(taken) => self.refused |= !taken,
                        Err(error) => return ControlFlow::Break(error),
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// DISTINCT, FILTER, ORDER BY and the like of a call, which are handed to the aggregates of its template.
pub(super) struct Clauses<'a> {
    written: &'a Function,
    pub(super) distinct: Option<DuplicateTreatment>,
    pub(super) order_by: &'a [OrderByExpr],
}

impl<'a> Clauses<'a> {
    /// `None` where there are others, which are for the planner to judge.
    pub(super) fn of(function: &'a Function, list: &'a FunctionArgumentList) -> Option<Self> {
        let order_by = match &*list.clauses {
            [] => &*function.within_group,
            [FunctionArgumentClause::OrderBy(order_by)] => order_by,
            _ => return None,
        };
        Some(Self {
            written: function,
            distinct: list.duplicate_treatment,
            order_by,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written.filter.is_none()
            && self.written.over.is_none()
            && self.written.null_treatment.is_none()
            && self.distinct.is_none()
            && self.order_by.is_empty()
    }

    /// Gives them to an aggregate; `false` where it has an order of its own.
    fn give(&self, function: &mut Function) -> Result<bool> {
        function.over.clone_from(&self.written.over);
        function.null_treatment = self.written.null_treatment;
        if let Some(filter) = &self.written.filter {
            let filter = match function.filter.take() {
                Some(own) => filled("(a1) AND (a2)", &[&own, filter])?,
                None => (**filter).clone(),
            };
            function.filter = Some(Box::new(filter));
        }
        if let FunctionArguments::List(list) = &mut function.args {
            list.duplicate_treatment = self.distinct;
            if !self.order_by.is_empty() {
                if !list.clauses.is_empty() {
                    return Ok(false);
                }
                let order_by = FunctionArgumentClause::OrderBy(self.order_by.to_vec());
                list.clauses.push(order_by);
            }
        }
        Ok(true)
    }
}

/// Puts numbers that an aggregate is ordered by in brackets: bare ones the planner takes for positions of columns, and there is no SELECT
/// that they could count.
pub(super) fn keep_constants(call: &mut Function) {
    let keep = |key: &mut OrderByExpr| {
        if matches!(&key.expr, Expr::Value(constant) if matches!(constant.value, Value::Number(..)))
        {
            key.expr = Expr::Nested(Box::new(key.expr.clone()));
        }
    };
    call.within_group.iter_mut().for_each(keep);
    if let FunctionArguments::List(list) = &mut call.args {
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(keys) = clause {
                keys.iter_mut().for_each(keep);
            }
        }
    }
}
