//! The rows of one stored table with their places, as DataFusion sees them: what statements pick from that change rows.
//!
//! Invariants: it is a stored table with one column more, the last, which no name in a statement can mean; conditions only prune pieces,
//! and are evaluated again above; what was scanned is noted in the session, so that places lead back to rows.

use crate::error::to_datafusion;
use crate::placed_exec::PlacedScanExec;
use crate::table::{StatementTables, StoredTable};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{
    Expr, TableProviderFilterPushDown, TableScan, TableScanBuilder, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use thalweg_table::PlacedRows;

/// Before the name of a table: the table with the places of its rows. Neither names nor texts of users have such a character.
pub(crate) const PLACED: &str = "\0";

/// Before the name of a table: the stored table, whatever a WITH calls so.
pub(crate) const STORED: &str = "\0\0";

/// The column of the places. Names of tables and columns have no such character.
pub(crate) const PLACE_COLUMN: &str = "\0place";

/// A stored table with the places of its rows.
#[derive(Debug)]
pub(crate) struct PlacedTable {
    stored: StoredTable,
    schema: SchemaRef,
}

impl PlacedTable {
    /// Whether a scan reads rows with their places.
    pub(crate) fn is_in(scan: &TableScan) -> bool {
        source_as_provider(&scan.source).is_ok_and(|provider| provider.is::<Self>())
    }

    /// A scan of the same rows without their places, which may be read again; others as they are.
    pub(crate) fn without_places(scan: TableScan) -> Result<Transformed<TableScan>> {
        let provider = source_as_provider(&scan.source)?;
        let Some(placed) = provider.downcast_ref::<Self>() else {
            return Ok(Transformed::no(scan));
        };
        let stored = provider_as_source(Arc::new(placed.stored.clone()));
        let scan = TableScanBuilder::new(scan.table_name, stored)
            .with_projection(scan.projection)
            .with_filters(scan.filters)
            .with_fetch(scan.fetch)
            .build()?;
        Ok(Transformed::yes(scan))
    }

    pub(crate) fn new(stored: StoredTable) -> Self {
        let mut fields = stored.definition().schema().fields().to_vec();
        fields.push(Arc::new(Field::new(PLACE_COLUMN, DataType::UInt64, false)));
        Self {
            stored,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

#[async_trait]
impl TableProvider for PlacedTable {
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
        let pushdown = |filter: &&Expr| match self.stored.pushdown(filter) {
            TableProviderFilterPushDown::Unsupported => TableProviderFilterPushDown::Unsupported,
            _ => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(pushdown).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let tables = StatementTables::of(session)?;
        let mut request = self.stored.request(filters)?;
        let place = self.schema.fields().len() - 1;
        let all = (0..=place).collect();
        let wanted = projection.unwrap_or(&all);
        let columns: Vec<usize> = wanted.iter().copied().filter(|at| *at < place).collect();
        let mut fields: Vec<_> = columns
            .iter()
            .map(|at| self.schema.field(*at).clone())
            .collect();
        fields.push(self.schema.field(place).clone());
        let schema = Arc::new(Schema::new(fields));
        // The places come last, whatever was wanted.
        let mut before = 0..;
        let output = wanted.iter().map(|at| match *at == place {
            true => Some(columns.len()),
            false => before.next(),
        });
        let output: Vec<usize> = output.flatten().collect();
        request.projection = Some(columns);
        request.one_nan = tables.compares_floats;
        let view = tables.view_of(&self.stored)?;
        let rows = PlacedRows::new(&view, &request).map_err(to_datafusion)?;
        let rows = Arc::new(rows);
        if tables.placed.lock().replace(Arc::clone(&rows)).is_some() {
            return internal_err!("rows with places are scanned once");
        }
        let scan = PlacedScanExec::new(rows, schema, &output, tables.threads)?;
        Ok(Arc::new(scan))
    }
}
