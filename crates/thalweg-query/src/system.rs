//! System tables: what there is in a database, as rows.
//!
//! Invariants: rows are made when a statement runs, of its snapshot, not when a name is looked up; what takes a walk of the indexes
//! is done only for columns that the statement names, and only of the tables that it asks for by name.

mod rows;

use crate::error::{from_arrow, to_datafusion};
use crate::planner::Planner;
use crate::table::StatementTables;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableScan, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use thalweg_table::{DatabaseView, StoredView, TableView};

const TEXT: DataType = DataType::Utf8;
const NUMBER: DataType = DataType::UInt64;

/// A kind of system table.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    columns: &'static [(&'static str, DataType)],
    /// The column with the names of tables: a condition on it selects them.
    name_column: Option<&'static str>,
    /// The values of the columns, in their order.
    rows: fn(&Wanted<'_>) -> thalweg_table::Result<Vec<ArrayRef>>,
}

const TABLES: Kind = Kind {
    name: "thalweg_tables",
    columns: &[
        ("name", TEXT),
        ("layout", TEXT),
        ("time", TEXT),
        ("rows", NUMBER),
        ("bytes", NUMBER),
        ("blocks", NUMBER),
        ("fragments", NUMBER),
        ("open_rows", NUMBER),
        ("late_rows", NUMBER),
        ("min_time", TEXT),
        ("max_time", TEXT),
        ("options", TEXT),
    ],
    name_column: Some("name"),
    rows: rows::tables,
};
const FRAGMENTS: Kind = Kind {
    name: "thalweg_fragments",
    columns: &[
        ("table_name", TEXT),
        ("file", TEXT),
        ("rows", NUMBER),
        ("bytes", NUMBER),
        ("blocks", NUMBER),
        ("min_time", TEXT),
        ("max_time", TEXT),
    ],
    name_column: Some("table_name"),
    rows: rows::fragments,
};
const BLOCKS: Kind = Kind {
    name: "thalweg_blocks",
    columns: &[
        ("table_name", TEXT),
        ("file", TEXT),
        ("offset", NUMBER),
        ("rows", NUMBER),
        ("deleted_rows", NUMBER),
        ("bytes", NUMBER),
        ("min_time", TEXT),
        ("max_time", TEXT),
        ("first_commit", NUMBER),
        ("last_commit", NUMBER),
    ],
    name_column: Some("table_name"),
    rows: rows::blocks,
};
const ORDERS: Kind = Kind {
    name: "thalweg_orders",
    columns: &[
        ("table_name", TEXT),
        ("order_id", NUMBER),
        ("rows", NUMBER),
        ("bytes", NUMBER),
        ("blocks", NUMBER),
    ],
    name_column: Some("table_name"),
    rows: rows::orders,
};
const JOBS: Kind = Kind {
    name: "thalweg_jobs",
    columns: &[
        ("table_name", TEXT),
        ("job", TEXT),
        ("state", TEXT),
        ("steps", NUMBER),
        ("rows", NUMBER),
        ("bytes", NUMBER),
        ("seconds", DataType::Float64),
        ("began", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("error", TEXT),
    ],
    name_column: None,
    rows: rows::jobs,
};
const SETTINGS: Kind = Kind {
    name: "thalweg_settings",
    columns: &[("name", TEXT), ("value", TEXT), ("description", TEXT)],
    name_column: None,
    rows: rows::settings,
};
const ALL: [&Kind; 6] = [&TABLES, &FRAGMENTS, &BLOCKS, &ORDERS, &JOBS, &SETTINGS];

/// `information_schema.tables`, with the columns of the standard that mean something here.
const STANDARD_TABLES: Kind = Kind {
    name: "tables",
    columns: &[
        ("table_schema", TEXT),
        ("table_name", TEXT),
        ("table_type", TEXT),
    ],
    name_column: Some("table_name"),
    rows: rows::standard_tables,
};
/// `information_schema.columns`.
const STANDARD_COLUMNS: Kind = Kind {
    name: "columns",
    columns: &[
        ("table_schema", TEXT),
        ("table_name", TEXT),
        ("column_name", TEXT),
        ("ordinal_position", NUMBER),
        ("data_type", TEXT),
        ("is_nullable", TEXT),
        ("column_default", TEXT),
    ],
    name_column: Some("table_name"),
    rows: rows::standard_columns,
};

/// `information_schema.views`.
const STANDARD_VIEWS: Kind = Kind {
    name: "views",
    columns: &[
        ("table_schema", TEXT),
        ("table_name", TEXT),
        ("view_definition", TEXT),
    ],
    name_column: Some("table_name"),
    rows: rows::standard_views,
};

/// The system table of that name.
pub(crate) fn table(name: &str, view: &DatabaseView) -> Option<Arc<dyn TableProvider>> {
    let is_named = |kind: &&&Kind| kind.name.eq_ignore_ascii_case(name);
    ALL.iter()
        .find(is_named)
        .map(|kind| SystemTable::provider(kind, view))
}

/// The table of that name in `information_schema`.
pub(crate) fn of_information_schema(
    name: &TableReference,
    view: &DatabaseView,
) -> Option<Arc<dyn TableProvider>> {
    let TableReference::Partial { schema, table } = name else {
        return None;
    };
    if !schema.eq_ignore_ascii_case("information_schema") {
        return None;
    }
    let is_named = |kind: &&&Kind| kind.name.eq_ignore_ascii_case(table);
    [&STANDARD_TABLES, &STANDARD_COLUMNS, &STANDARD_VIEWS]
        .iter()
        .find(is_named)
        .map(|kind| SystemTable::provider(kind, view))
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    }
}

/// Whether a scan reads a system table. Its rows are made when it is planned, so the values of its conditions must be known by
/// then.
pub(crate) fn is_in(scan: &TableScan) -> bool {
    source_as_provider(&scan.source).is_ok_and(|provider| provider.is::<SystemTable>())
}

/// A system table in one snapshot.
#[derive(Debug)]
struct SystemTable {
    kind: &'static Kind,
    schema: SchemaRef,
    view: DatabaseView,
}

/// The part of a system table that a statement asks for.
struct Wanted<'a> {
    planner: &'a Planner,
    view: &'a DatabaseView,
    /// The names of the columns that it reads.
    columns: Vec<&'static str>,
    /// For each condition on the name of a table, the names that it allows.
    names: Vec<Vec<String>>,
}

impl Wanted<'_> {
    fn has(&self, columns: &[&str]) -> bool {
        columns.iter().any(|column| self.columns.contains(column))
    }

    fn is_named(&self, name: &String) -> bool {
        self.names.iter().all(|wanted| wanted.contains(name))
    }

    /// The views that it asks for.
    fn views(&self) -> Vec<StoredView> {
        let names = self.view.view_names();
        let names = names.iter().filter(|name| self.is_named(name));
        names
            .filter_map(|name| self.view.stored_view(name))
            .collect()
    }

    /// The tables that it asks for.
    fn tables(&self) -> thalweg_table::Result<Vec<TableView>> {
        let mut names = self.view.table_names();
        names.retain(|name| self.is_named(name));
        names.iter().map(|name| self.view.table(name)).collect()
    }
}

impl SystemTable {
    fn provider(kind: &'static Kind, view: &DatabaseView) -> Arc<dyn TableProvider> {
        let fields = kind.columns.iter();
        let fields = fields.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        Arc::new(Self {
            kind,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            view: view.clone(),
        })
    }

    /// The names of tables that a condition allows: `=` and IN of texts.
    fn names_in(&self, condition: &Expr) -> Option<Vec<String>> {
        let is_name = |expr: &Expr| matches!(expr, Expr::Column(column) if Some(column.name.as_str()) == self.kind.name_column);
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Eq => {
                let text = match (is_name(left), is_name(right)) {
                    (true, _) => right,
                    (_, true) => left,
                    _ => return None,
                };
                Some(vec![text_of(text)?])
            }
            // DataFusion rewrites a short IN list as this.
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Or => {
                Some([self.names_in(left)?, self.names_in(right)?].concat())
            }
            Expr::InList(InList {
                expr,
                list,
                negated: false,
            }) if is_name(expr) => list.iter().map(text_of).collect(),
            _ => None,
        }
    }

    fn rows(
        &self,
        planner: &Planner,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<RecordBatch> {
        let all: Vec<usize> = (0..self.kind.columns.len()).collect();
        let wanted = Wanted {
            planner,
            view: &self.view,
            columns: projection
                .unwrap_or(&all)
                .iter()
                .map(|at| self.kind.columns[*at].0)
                .collect(),
            names: filters
                .iter()
                .filter_map(|filter| self.names_in(filter))
                .collect(),
        };
        let columns = (self.kind.rows)(&wanted).map_err(to_datafusion)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        batch.map_err(|e| to_datafusion(from_arrow(e)))
    }
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let pushdown = |filter: &&Expr| match self.names_in(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(pushdown).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = &StatementTables::of(session)?.planner;
        let batch = self.rows(planner, projection, filters)?;
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![vec![batch]])?;
        table.scan(session, projection, &[], limit).await
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_name_all_system_tables() {
        let names = super::ALL.map(|kind| kind.name);
        assert_eq!(names, thalweg_table::schema::SYSTEM_TABLES);
    }
}
