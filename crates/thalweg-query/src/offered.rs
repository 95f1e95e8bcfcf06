//! Clauses that the parser knows from other databases and the planner would ignore silently.
//!
//! Invariant: a statement whose rows would be others without such a clause is refused, by the name of the clause.

use crate::error::unsupported;
use crate::unsupported_statements::{PIVOT, UNPIVOT};
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{GroupByExpr, Query, Select, TableFactor, Visitor};
use std::ops::ControlFlow;
use thalweg_planner::walk;
use thalweg_table::{Error, Result};

/// Whether all of a statement is offered, as far as clauses go.
pub(crate) fn check(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) => match walk(&**inner, &mut Clauses) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        },
        DfStatement::Explain(explain) => check(&explain.statement),
        // Refused by their kind.
        DfStatement::CopyTo(_) | DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => {
            Ok(())
        }
    }
}

struct Clauses;

/// Stops at the first clause that is given.
fn refuse(clauses: &[(bool, &str)]) -> ControlFlow<Error> {
    match clauses.iter().find(|(given, _)| *given) {
        Some((_, what)) => ControlFlow::Break(unsupported(format!(
            "{what} is not offered by this version"
        ))),
        None => ControlFlow::Continue(()),
    }
}

impl Visitor for Clauses {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        refuse(&[
            (!query.locks.is_empty(), "FOR UPDATE and FOR SHARE"),
            (query.for_clause.is_some(), "FOR XML, JSON and BROWSE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) =
            &select.group_by;
        refuse(&[
            (select.prewhere.is_some(), "PREWHERE (write WHERE)"),
            (!select.connect_by.is_empty(), "START WITH and CONNECT BY"),
            (
                !modifiers.is_empty(),
                "GROUP BY ... WITH (write rollup(...), cube(...) or GROUPING SETS)",
            ),
            (select.into.is_some(), "SELECT ... INTO"),
            (
                select.value_table_mode.is_some(),
                "SELECT AS STRUCT and AS VALUE",
            ),
            (select.select_modifiers.is_some(), "a modifier of SELECT"),
            (select.top.is_some(), "TOP (write LIMIT)"),
        ])
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Error> {
        match table {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => refuse(&[
                (sample.is_some(), "TABLESAMPLE"),
                (*with_ordinality, "WITH ORDINALITY"),
                (!partitions.is_empty(), "PARTITION"),
                (version.is_some(), "a version of a table"),
                (json_path.is_some(), "a path into a table"),
                (
                    !with_hints.is_empty() || !index_hints.is_empty(),
                    "a hint for a table",
                ),
            ]),
            TableFactor::Derived { sample, .. } => refuse(&[(sample.is_some(), "TABLESAMPLE")]),
            TableFactor::Function {
                with_ordinality, ..
            }
            | TableFactor::UNNEST {
                with_ordinality, ..
            } => refuse(&[(*with_ordinality, "WITH ORDINALITY")]),
            TableFactor::Pivot { .. } => ControlFlow::Break(unsupported(PIVOT)),
            TableFactor::Unpivot { .. } => ControlFlow::Break(unsupported(UNPIVOT)),
            TableFactor::MatchRecognize { .. } => refuse(&[(true, "MATCH_RECOGNIZE")]),
            _ => ControlFlow::Continue(()),
        }
    }
}
