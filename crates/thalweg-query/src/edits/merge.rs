//! MERGE: rows of a source that change, delete or add rows of a table.
//!
//! Invariants: the first clause that fits a row of the join is the only one that acts on it; the values of a clause are computed for
//! its rows alone, and keep their types: values of two clauses never become one type.

use super::{
    Action, EditQuery, Editing, alias_of, assign_keys, assignments, column_of, numbered, place_of,
    placed, selecting, stored, target,
};
use crate::error::{query, unsupported};
use crate::parse::{table_name, written};
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Join, JoinConstraint, JoinOperator, Merge, MergeAction,
    MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, ObjectNamePart, Query,
    SelectItem, SetExpr, Statement as SqlStatement, TableFactor, TableWithJoins, Value, Visitor,
    VisitorMut, With,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use thalweg_planner::{walk, walk_mut};
use thalweg_table::{Result, TableDefinition};

/// The column that is true in each row of the source, and null where a row of the table has no row of the source.
const SOURCE_COLUMN: &str = "\0source";

/// A MERGE.
#[derive(Clone, Debug)]
pub(crate) struct Merging {
    name: String,
    table: TableFactor,
    source: TableFactor,
    on: Expr,
    clauses: Vec<MergeClause>,
    with: Option<With>,
    repeated: &'static str,
}

/// The error where several rows of the source match one of the table.
const REPEATED: &str = "a row of the table matches several rows of the source, and a MERGE changes a row once: let the source have one \
                        for each, as in USING (SELECT DISTINCT ON (id) * FROM other ORDER BY id, ts DESC) AS source";

impl Merging {
    pub(crate) fn of(merge: &Merge, with: Option<&With>) -> Result<Self> {
        if merge.output.is_some() {
            return Err(unsupported(
                "OUTPUT is not offered by this version: the result of a MERGE is the number of rows",
            ));
        }
        let TableFactor::Table { name, .. } = &merge.table else {
            return Err(unsupported(
                "MERGE changes one table: MERGE INTO t USING other ON other.id = t.id WHEN MATCHED THEN UPDATE SET v = other.v",
            ));
        };
        if merge.clauses.is_empty() {
            return Err(query(
                "MERGE needs a clause: WHEN MATCHED THEN UPDATE SET, WHEN MATCHED THEN DELETE or WHEN NOT MATCHED THEN INSERT",
            ));
        }
        for clause in &merge.clauses {
            check(clause)?;
        }
        Ok(Self {
            name: table_name(name)?,
            table: merge.table.clone(),
            source: merge.source.clone(),
            on: (*merge.on).clone(),
            clauses: merge.clauses.clone(),
            with: with.cloned(),
            repeated: REPEATED,
        })
    }

    /// With another error where several rows of the source match one of the table.
    pub(super) fn with_repeated(self, repeated: &'static str) -> Self {
        Self { repeated, ..self }
    }

    /// The source and the table, joined as the clauses want it.
    fn joined(&self, table: TableFactor) -> Result<TableWithJoins> {
        let has = |kinds: &[MergeClauseKind]| {
            let mut clauses = self.clauses.iter();
            clauses.any(|clause| kinds.contains(&clause.clause_kind))
        };
        let on = JoinConstraint::On(self.on.clone());
        let adds = has(&[
            MergeClauseKind::NotMatched,
            MergeClauseKind::NotMatchedByTarget,
        ]);
        let join_operator = match (adds, has(&[MergeClauseKind::NotMatchedBySource])) {
            (true, true) => JoinOperator::FullOuter(on),
            (true, false) => JoinOperator::LeftOuter(on),
            (false, true) => JoinOperator::RightOuter(on),
            (false, false) => JoinOperator::Inner(on),
        };
        Ok(TableWithJoins {
            relation: self.marked_source()?,
            joins: vec![Join {
                relation: table,
                global: false,
                join_operator,
            }],
        })
    }

    fn source_alias(&self) -> Result<Ident> {
        let alias = match &self.source {
            TableFactor::Table { alias, name, .. } => match alias {
                Some(alias) => Some(alias.name.clone()),
                None => name.0.last().and_then(ObjectNamePart::as_ident).cloned(),
            },
            TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
            _ => None,
        };
        alias.ok_or_else(|| {
            query("the source of a MERGE is a table or a query with a name: USING (SELECT ...) AS source")
        })
    }

    /// The source with [`SOURCE_COLUMN`].
    fn marked_source(&self) -> Result<TableFactor> {
        let alias = self.source_alias()?;
        let DfStatement::Statement(mut statement) = written("SELECT * FROM source")? else {
            return Err(query("a MERGE is planned as something else than a query"));
        };
        if let SqlStatement::Query(subquery) = &mut *statement
            && let SetExpr::Select(select) = &mut *subquery.body
        {
            select.projection.push(SelectItem::ExprWithAlias {
                expr: Expr::Value(Value::Boolean(true).into()),
                alias: Ident::with_quote('"', SOURCE_COLUMN),
            });
            select.from = vec![TableWithJoins {
                relation: self.source.clone(),
                joins: Vec::new(),
            }];
            return Ok(TableFactor::Derived {
                lateral: false,
                subquery: subquery.clone(),
                alias: Some(alias_of(alias)),
                sample: None,
            });
        }
        Err(query("a MERGE is planned as something else than a query"))
    }

    /// The number of the clause that acts on a row, from 1; 0 for none.
    fn action(&self, alias: &Ident) -> Result<Expr> {
        let source = self.source_alias()?;
        let is_given = |expr: Expr| Expr::IsNotNull(Box::new(expr));
        let is_missing = |expr: Expr| Expr::IsNull(Box::new(expr));
        let in_source = || column_of(&source, SOURCE_COLUMN);
        let whens = self.clauses.iter().enumerate().map(|(at, clause)| {
            let mut tests = match clause.clause_kind {
                MergeClauseKind::Matched => vec![is_given(place_of(alias)), is_given(in_source())],
                MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
                    vec![is_missing(place_of(alias))]
                }
                MergeClauseKind::NotMatchedBySource => vec![is_missing(in_source())],
            };
            let predicate = clause.predicate.as_ref();
            let predicate = predicate.map(|test| of_side(clause, test, (alias, &source)));
            tests.extend(predicate.map(|predicate| Expr::Nested(Box::new(predicate))));
            (all_of(tests), number(at + 1))
        });
        Ok(case(whens.collect(), Some(number(0))))
    }
}

/// Refuses what a clause does not offer. The parser has refused actions that do not go with their WHEN.
fn check(clause: &MergeClause) -> Result<()> {
    if clause.predicate.as_ref().is_some_and(draws) {
        return Err(query(
            "the condition of a WHEN of a MERGE is to be the same each time it is asked: it draws a random value",
        ));
    }
    match &clause.action {
        MergeAction::Insert(insert) if insert.insert_predicate.is_some() => Err(unsupported(
            "INSERT ... WHERE in a MERGE is not offered: write WHEN NOT MATCHED AND ... THEN INSERT",
        )),
        MergeAction::Insert(insert) => match &insert.kind {
            MergeInsertKind::Values(values) if values.rows.len() == 1 => Ok(()),
            MergeInsertKind::Values(_) => Err(query("INSERT in a MERGE takes one row of VALUES")),
            MergeInsertKind::Row => Err(unsupported(
                "INSERT ROW is not offered: name the values, as in INSERT (ts, v) VALUES (source.ts, source.v)",
            )),
        },
        MergeAction::Update(update)
            if update.update_predicate.is_some() || update.delete_predicate.is_some() =>
        {
            Err(unsupported(
                "UPDATE ... WHERE in a MERGE is not offered: write WHEN MATCHED AND ... THEN UPDATE SET",
            ))
        }
        MergeAction::Update(_) | MergeAction::Delete { .. } => Ok(()),
    }
}

/// Finds a column that a clause has no row for, outside of subqueries.
struct Strangers<'a> {
    /// The table whose columns are none of the clause's.
    absent: &'a str,
    /// The columns that names without a table mean, where that is known.
    known: Option<&'a TableDefinition>,
    queries: usize,
}

impl Visitor for Strangers<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let is_strange = match expr {
            _ if self.queries > 0 => false,
            Expr::CompoundIdentifier(parts) => {
                matches!(&parts[..], [table, _] if table.value.eq_ignore_ascii_case(self.absent))
            }
            Expr::Identifier(name) => {
                { self.known }.is_some_and(|known| known.position_named(&name.value).is_err())
            }
            _ => false,
        };
        match is_strange {
            true => ControlFlow::Break(expr.to_string()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Names without a table mean the side of the join that has a row where a clause acts.
fn of_side(clause: &MergeClause, value: &Expr, (alias, source): (&Ident, &Ident)) -> Expr {
    let side = match clause.clause_kind {
        MergeClauseKind::Matched => return value.clone(),
        MergeClauseKind::NotMatchedBySource => alias,
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => source,
    };
    qualified(value, side)
}

/// An expression whose names without a table mean columns of this one, outside of subqueries.
pub(super) fn qualified(value: &Expr, side: &Ident) -> Expr {
    struct Qualify<'a> {
        side: &'a Ident,
        queries: usize,
    }
    impl VisitorMut for Qualify<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.queries == 0
                && let Expr::Identifier(name) = expr
            {
                *expr = Expr::CompoundIdentifier(vec![self.side.clone(), name.clone()]);
            }
            ControlFlow::Continue(())
        }
    }
    let mut value = value.clone();
    // It never breaks off.
    let _ = walk_mut(&mut value, &mut Qualify { side, queries: 0 });
    value
}

/// Refuses columns of the side of the join that has no row where a clause acts: all of them would be null.
fn check_columns(
    clause: &MergeClause,
    definition: &TableDefinition,
    (alias, source): (&Ident, &Ident),
) -> Result<()> {
    let (absent, known) = match clause.clause_kind {
        MergeClauseKind::Matched => return Ok(()),
        MergeClauseKind::NotMatchedBySource => (&source.value, Some(definition)),
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => (&alias.value, None),
    };
    let mut values: Vec<&Expr> = clause.predicate.iter().collect();
    match &clause.action {
        MergeAction::Update(update) => {
            values.extend(update.assignments.iter().map(|assigned| &assigned.value));
        }
        MergeAction::Insert(insert) => {
            if let MergeInsertKind::Values(rows) = &insert.kind {
                values.extend(rows.rows.iter().flat_map(|row| &row.content));
            }
        }
        MergeAction::Delete { .. } => {}
    }
    for value in values {
        let mut strangers = Strangers {
            absent,
            known,
            queries: 0,
        };
        if let ControlFlow::Break(name) = walk(value, &mut strangers) {
            return Err(query(format!(
                "{name} has no value in WHEN {}: \"{absent}\" has no row there",
                clause.clause_kind
            )));
        }
    }
    Ok(())
}

/// Whether an expression draws a value anew each time.
fn draws(expr: &Expr) -> bool {
    struct Draws;
    impl Visitor for Draws {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let Expr::Function(function) = expr else {
                return ControlFlow::Continue(());
            };
            let name = function.name.to_string().to_lowercase();
            match name.contains("random") || name.contains("uuid") {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    walk(expr, &mut Draws).is_break()
}

impl Editing for Merging {
    fn table(&self) -> &str {
        &self.name
    }

    fn query(&self, definition: &TableDefinition) -> Result<EditQuery> {
        let (table, alias) = placed(&self.table)?;
        let source = self.source_alias()?;
        for clause in &self.clauses {
            check_columns(clause, definition, (&alias, &source))?;
        }
        let action = self.action(&alias)?;
        let mut values = vec![place_of(&alias), action.clone()];
        let mut actions = Vec::with_capacity(self.clauses.len());
        // The columns as they are, which all clauses that change rows share.
        let mut unchanged = vec![None; definition.columns().len()];
        for (at, clause) in self.clauses.iter().enumerate() {
            let assigned = match &clause.action {
                MergeAction::Delete { .. } => {
                    actions.push(Action::Delete);
                    continue;
                }
                MergeAction::Update(update) => {
                    assignments(&update.assignments, definition, &alias)?
                }
                MergeAction::Insert(insert) => inserted(insert, definition, &alias)?,
            };
            let mut stored = Vec::with_capacity(unchanged.len());
            for (position, value) in &assigned {
                let acts = Expr::BinaryOp {
                    left: Box::new(Expr::Nested(Box::new(action.clone()))),
                    op: BinaryOperator::Eq,
                    right: Box::new(number(at + 1)),
                };
                stored.push((values.len(), *position));
                let value = of_side(clause, value, (&alias, &source));
                values.push(case(vec![(acts, value)], None));
            }
            if matches!(clause.action, MergeAction::Update(_)) {
                let changed: BTreeSet<usize> = assigned.iter().map(|(at, _)| *at).collect();
                for (position, column) in definition.columns().iter().enumerate() {
                    if changed.contains(&position) {
                        continue;
                    }
                    let at = *unchanged[position].get_or_insert_with(|| {
                        values.push(column_of(&alias, &column.name));
                        values.len() - 1
                    });
                    stored.push((at, position));
                }
            }
            actions.push(Action::Store(stored));
        }
        let some = Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(action))),
            op: BinaryOperator::NotEq,
            right: Box::new(number(0)),
        };
        let values = values.into_iter().enumerate();
        let values = values.map(|(at, value)| numbered(at, value)).collect();
        Ok(EditQuery {
            query: selecting(
                self.with.as_ref(),
                values,
                vec![self.joined(table)?],
                Some(some),
            )?,
            actions,
        })
    }

    fn read_tables(&self) -> Result<DfStatement> {
        let mut values = Vec::new();
        for clause in &self.clauses {
            values.extend(clause.predicate.clone());
            match &clause.action {
                MergeAction::Update(update) => {
                    values.extend(update.assignments.iter().map(|set| set.value.clone()));
                }
                MergeAction::Insert(insert) => {
                    if let MergeInsertKind::Values(rows) = &insert.kind {
                        values.extend(rows.rows.iter().flat_map(|row| row.content.clone()));
                    }
                }
                MergeAction::Delete { .. } => {}
            }
        }
        let values = values.into_iter().enumerate();
        let values = values.map(|(at, value)| numbered(at, value)).collect();
        let from = vec![self.joined(self.table.clone())?];
        selecting(self.with.as_ref(), values, from, None)
    }

    fn adds_keys(&self, definition: &TableDefinition) -> bool {
        self.clauses.iter().any(|clause| match &clause.action {
            MergeAction::Insert(_) => definition.unique().is_some(),
            MergeAction::Update(update) => assign_keys(&update.assignments, definition),
            MergeAction::Delete { .. } => false,
        })
    }

    fn repeated(&self) -> &'static str {
        self.repeated
    }
}

/// The values of an INSERT of a MERGE and the columns that they go to.
fn inserted(
    insert: &MergeInsertExpr,
    definition: &TableDefinition,
    alias: &Ident,
) -> Result<Vec<(usize, Expr)>> {
    let MergeInsertKind::Values(values) = &insert.kind else {
        return Ok(Vec::new());
    };
    let columns = match insert.columns.is_empty() {
        true => (0..definition.columns().len()).collect(),
        false => {
            let positions = insert.columns.iter();
            let positions = positions.map(|name| definition.position_named(&target(name, alias)?));
            positions.collect::<Result<Vec<_>>>()?
        }
    };
    let distinct: BTreeSet<&usize> = columns.iter().collect();
    if distinct.len() < columns.len() {
        return Err(query("a column is named twice in an INSERT of the MERGE"));
    }
    let row = values.rows.first().map_or(&[][..], |row| &row.content[..]);
    if row.len() != columns.len() {
        return Err(query(format!(
            "{} columns take values, {} are given",
            columns.len(),
            row.len()
        )));
    }
    let values = columns.into_iter().zip(row);
    Ok({ values }
        .map(|(at, value)| (at, stored(value, &definition.columns()[at])))
        .collect())
}

fn number(number: usize) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).into())
}

fn all_of(tests: Vec<Expr>) -> Expr {
    let both = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    let all = tests.into_iter().reduce(both);
    all.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()))
}

fn case(whens: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let when = |(condition, result)| CaseWhen { condition, result };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: whens.into_iter().map(when).collect(),
        else_result: otherwise.map(Box::new),
    }
}
