//! A stored table as DataFusion sees it.
//!
//! Invariants: a stored table has the definition and no rows: plans with it can be kept and run again on any snapshot
//! with the same definition; the rows come from the snapshot of the session that plans the operators. Conditions on
//! time are exact, those on other columns only prune blocks.

use crate::error::to_datafusion;
use crate::planner::Planner;
use crate::pushdown::columns::{column_ranges, holds_for_none, may_prune};
use crate::pushdown::time::{TimeColumn, keys_of, time_conditions};
use crate::scan_exec::TableScanExec;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, config_err, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_table::{DatabaseView, KeyRange, PlacedRows, ScanRequest, TableDefinition, TableView};

/// A stored table, without its rows.
#[derive(Clone, Debug)]
pub(crate) struct StoredTable {
    name: Arc<str>,
    definition: Arc<TableDefinition>,
    /// Set for a scan that was asked for by a handle: its view, and the keys it is limited to.
    pinned: Option<(TableView, KeyRange)>,
}

impl StoredTable {
    pub(crate) fn new(name: &str, definition: Arc<TableDefinition>) -> Self {
        Self {
            name: name.into(),
            definition,
            pinned: None,
        }
    }

    /// A table whose rows are those of `view` with `keys`, whatever session asks.
    pub(crate) fn pinned(view: TableView, keys: KeyRange) -> Self {
        let table = Self::new(view.name(), Arc::clone(view.definition()));
        Self {
            pinned: Some((view, keys)),
            ..table
        }
    }

    /// Whether a scan reads a stored table.
    pub(crate) fn is_in(scan: &TableScan) -> bool {
        source_as_provider(&scan.source).is_ok_and(|provider| provider.is::<Self>())
    }

    /// The stored table that a scan reads.
    pub(crate) fn of(scan: &TableScan) -> Option<Self> {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<Self>().cloned()
    }

    fn pinned_view(&self) -> Option<&TableView> {
        self.pinned.as_ref().map(|(view, _)| view)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn definition(&self) -> &Arc<TableDefinition> {
        &self.definition
    }

    fn time(&self) -> Option<TimeColumn<'_>> {
        let column = self.definition.order_column()?;
        Some(TimeColumn {
            name: &column.name,
            data_type: &column.data_type,
        })
    }

    pub(crate) fn pushdown(&self, filter: &Expr) -> TableProviderFilterPushDown {
        if self
            .time()
            .and_then(|time| time_conditions(filter, time))
            .is_some()
        {
            return TableProviderFilterPushDown::Exact;
        }
        if may_prune(filter, self.definition.schema()) {
            return TableProviderFilterPushDown::Inexact;
        }
        TableProviderFilterPushDown::Unsupported
    }

    /// The keys of the rows for which conditions hold that the planner has left to the scan, if keys alone decide that.
    pub(crate) fn keys_alone(&self, filters: &[Expr]) -> Result<Option<KeyRange>> {
        let is_exact = |filter: &Expr| {
            matches!(self.pushdown(filter), TableProviderFilterPushDown::Exact)
                || holds_for_none(filter)
        };
        match filters.iter().all(is_exact) {
            true => Ok(Some(self.request(filters)?.keys)),
            false => Ok(None),
        }
    }

    /// The request of a scan with these conditions.
    pub(crate) fn request(&self, filters: &[Expr]) -> Result<ScanRequest> {
        let mut request = ScanRequest::default();
        let mut conditions = Vec::new();
        let mut is_empty = false;
        for filter in filters {
            let schema = self.definition.schema();
            match self.time().and_then(|time| time_conditions(filter, time)) {
                Some(found) => conditions.extend(found),
                None if may_prune(filter, schema) => {
                    column_ranges(filter, schema, &mut request.ranges);
                }
                None => match filter {
                    // Also if it is a condition on time: a parameter may be NULL, and a later pass of the optimizer
                    // makes constants.
                    _ if holds_for_none(filter) => is_empty = true,
                    Expr::Literal(..) => {}
                    // Conditions on other columns only prune blocks, and are evaluated again above the scan.
                    _ if self
                        .time()
                        .is_none_or(|time| !is_of_column(filter, time.name)) => {}
                    _ => {
                        return internal_err!(
                            "a condition that the scan does not know is left to it: {filter}"
                        );
                    }
                },
            }
        }
        if let Some(time) = self.time() {
            request.keys = keys_of(&conditions, time.data_type)?;
        }
        if let Some((_, keys)) = &self.pinned {
            request.keys = request.keys.intersect(*keys);
        }
        if is_empty {
            request.keys = KeyRange::EMPTY;
        }
        Ok(request)
    }
}

/// The stored tables as one execution of a statement reads them.
pub(crate) struct StatementTables {
    /// Plans the views that a system table describes.
    pub(crate) planner: Arc<Planner>,
    pub(crate) snapshot: DatabaseView,
    pub(crate) threads: usize,
    /// Whether the plan may compare floats of its tables.
    pub(crate) compares_floats: bool,
    /// The rows that places lead to, of the one table that is scanned with the places of its rows.
    pub(crate) placed: ScannedRows,
}

/// The rows of a scan with places, once it is planned.
pub(crate) type ScannedRows = Arc<Mutex<Option<Arc<PlacedRows>>>>;

impl StatementTables {
    /// The tables of the session that DataFusion passes to a provider.
    pub(crate) fn of(session: &dyn Session) -> Result<&Self> {
        match session.as_any().downcast_ref() {
            Some(tables) => Ok(tables),
            None => config_err!("a stored table is planned in a session of its database"),
        }
    }

    pub(crate) fn view_of(&self, table: &StoredTable) -> Result<TableView> {
        if let Some(view) = table.pinned_view() {
            return Ok(view.clone());
        }
        self.snapshot.table(table.name()).map_err(to_datafusion)
    }
}

/// Whether a condition refers to this column and no other.
fn is_of_column(condition: &Expr, name: &str) -> bool {
    let columns = condition.column_refs();
    columns.iter().all(|column| column.name == name)
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.definition.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| self.pushdown(filter)).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let tables = StatementTables::of(session)?;
        let view = tables.view_of(self)?;
        let request = ScanRequest {
            projection: projection.cloned(),
            limit,
            one_nan: tables.compares_floats,
            ..self.request(filters)?
        };
        Ok(Arc::new(TableScanExec::new(view, request, tables.threads)?))
    }
}
