//! DELETE FROM and TRUNCATE: the rows of one table for which a condition holds, also beside rows of others, in one commit.
//!
//! Invariants: a condition on the key alone never reads rows; every other one is a query over the rows with their places, as of
//! one snapshot with all that its subqueries read.

use super::{place_of, placed, prefixed, selecting, selecting_distinct};
use crate::error::unsupported;
use crate::parse::table_name;
use crate::placed_table::STORED;
use crate::table::StoredTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    Delete, Expr, FromTable, SelectItem, TableFactor, TableWithJoins, Truncate, Value, With,
};
use thalweg_table::{KeyRange, Result};

/// The rows that a statement deletes.
#[derive(Clone, Debug)]
pub(crate) struct Deleting {
    pub(crate) table: String,
    /// A missing table is fine.
    pub(crate) if_exists: bool,
    /// The table as the statement names it, and the condition; `None`: all rows.
    condition: Option<(TableWithJoins, Expr)>,
    /// The tables of USING.
    others: Vec<TableWithJoins>,
    with: Option<With>,
}

const ONE_TABLE: &str =
    "DELETE takes one table, others after USING: DELETE FROM t USING other WHERE other.id = t.id";

impl Deleting {
    pub(crate) fn of(delete: &Delete, with: Option<&With>) -> Result<Self> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = &from[..] else {
            return Err(unsupported(ONE_TABLE));
        };
        if !delete.tables.is_empty() || !from.joins.is_empty() {
            return Err(unsupported(ONE_TABLE));
        }
        if delete.returning.is_some() || delete.output.is_some() {
            return Err(unsupported(
                "RETURNING is not offered by this version: the result of a DELETE is the number of rows",
            ));
        }
        if !delete.order_by.is_empty() || delete.limit.is_some() {
            return Err(unsupported(
                "DELETE takes no ORDER BY and no LIMIT: WHERE says which rows go",
            ));
        }
        let TableFactor::Table { name, .. } = &from.relation else {
            return Err(unsupported(ONE_TABLE));
        };
        let others = delete.using.clone().unwrap_or_default();
        let every = || Expr::Value(Value::Boolean(true).into());
        let condition = match &delete.selection {
            Some(condition) => Some(condition.clone()),
            // Each row goes, if there is one in the others.
            None => (!others.is_empty()).then(every),
        };
        Ok(Self {
            table: table_name(name)?,
            if_exists: false,
            condition: condition.map(|condition| (from.clone(), condition)),
            others,
            with: with.cloned(),
        })
    }

    pub(crate) fn of_truncate(truncate: &Truncate) -> Result<Self> {
        let has_more = truncate.partitions.is_some()
            || truncate.identity.is_some()
            || truncate.cascade.is_some()
            || truncate.on_cluster.is_some();
        match &truncate.table_names[..] {
            [table] if !has_more => Ok(Self {
                table: table_name(&table.name)?,
                if_exists: truncate.if_exists,
                condition: None,
                others: Vec::new(),
                with: None,
            }),
            _ => Err(unsupported(
                "TRUNCATE takes the name of one table and nothing else",
            )),
        }
    }

    /// The queries for the rows and for their places. `None`: all rows go.
    pub(crate) fn queries(&self) -> Result<Option<(DfStatement, DfStatement)>> {
        let Some((from, condition)) = &self.condition else {
            return Ok(None);
        };
        let select = |what, from| {
            let columns = vec![SelectItem::UnnamedExpr(what)];
            let condition = Some(condition.clone());
            let table = TableWithJoins {
                relation: from,
                joins: Vec::new(),
            };
            let from = std::iter::once(table).chain(self.others.iter().cloned());
            let from = from.collect();
            match self.others.is_empty() {
                true => selecting(self.with.as_ref(), columns, from, condition),
                // A row that goes with many of the others goes once.
                false => selecting_distinct(self.with.as_ref(), columns, from, condition),
            }
        };
        let (stored, _) = prefixed(STORED, &from.relation)?;
        let (placed, alias) = placed(&from.relation)?;
        let rows = select(Expr::Value(Value::Boolean(true).into()), stored)?;
        Ok(Some((rows, select(place_of(&alias), placed)?)))
    }
}

/// The keys of the rows that an optimised query for the rows of a table reads, if these are all it wants to know.
pub(crate) fn keys_alone(plan: &LogicalPlan) -> Result<Option<KeyRange>> {
    match plan {
        LogicalPlan::Projection(projection) => keys_alone(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => keys_alone(&alias.input),
        LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row => Ok(Some(KeyRange::EMPTY)),
        LogicalPlan::TableScan(scan) => match StoredTable::of(scan) {
            Some(table) if scan.fetch.is_none() => table
                .keys_alone(&scan.filters)
                .map_err(crate::error::from_datafusion),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}
