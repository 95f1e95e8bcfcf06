//! Scans without SQL around them: some columns of one table, a range of time, a filter.
//!
//! Invariants: rows come in the order of time; a scan without filter and boxes never meets the planner.

use crate::catalog::Resolver;
use crate::error::from_datafusion;
use crate::names::Names;
use crate::parse::parse_condition;
use crate::planner::Planner;
use crate::rules::{Shape, shape_of};
use crate::table::StoredTable;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;
use thalweg_table::{KeyRange, Result, ScanRequest, TableDefinition, TableView};

/// The columns and rows that are asked of one table.
#[derive(Clone, Debug, Default)]
pub struct TableScan {
    /// Columns by name, in any case; `None` means all.
    pub columns: Option<Vec<String>>,
    /// A condition in SQL, as it stands in WHERE.
    pub filter: Option<String>,
    /// Exactly the rows with these order keys; see [`thalweg_table::key_range()`].
    pub keys: KeyRange,
    /// Columns by name with their least and largest value, both included; null leaves a side open.
    pub boxes: Vec<(String, ScalarValue, ScalarValue)>,
    /// At most so many rows.
    pub limit: Option<usize>,
}

impl TableScan {
    /// Whether the table can do all of it.
    pub(crate) fn is_plain(&self) -> bool {
        self.filter.is_none() && self.boxes.is_empty()
    }

    /// Places of the wanted columns.
    pub(crate) fn positions(&self, definition: &TableDefinition) -> Result<Option<Vec<usize>>> {
        let position = |name: &String| definition.position_named(name);
        let names = self.columns.as_ref();
        names
            .map(|names| names.iter().map(position).collect())
            .transpose()
    }

    /// The request to the table if it can do all.
    pub(crate) fn request(&self, columns: Option<Vec<usize>>) -> ScanRequest {
        ScanRequest {
            projection: columns,
            keys: self.keys,
            limit: self.limit,
            ..ScanRequest::default()
        }
    }

    /// The plan of a scan with conditions.
    pub(crate) fn plan(
        &self,
        view: TableView,
        columns: Option<Vec<usize>>,
        planner: &Planner,
        resolver: &Resolver<'_>,
    ) -> Result<LogicalPlan> {
        let definition = Arc::clone(view.definition());
        let name = view.name().to_owned();
        let table = Arc::new(StoredTable::pinned(view, self.keys));
        let mut plan = LogicalPlanBuilder::scan(qualifier(&name), provider_as_source(table), None)
            .map_err(from_datafusion)?;
        for condition in self.conditions(&name, &definition, &plan, planner, resolver)? {
            plan = plan.filter(condition).map_err(from_datafusion)?;
        }
        let plan = plan.build().map_err(from_datafusion)?;
        let in_order = shape_of(&plan) != Shape::Any;
        let mut plan = LogicalPlanBuilder::new(plan);
        if let Some(time) = definition.order_position().filter(|_| !in_order) {
            // Left out again where the operators keep the order.
            let time = column(&name, &definition, time).sort(true, false);
            plan = plan.sort([time]).map_err(from_datafusion)?;
        }
        if let Some(columns) = columns {
            let wanted = columns
                .iter()
                .map(|position| column(&name, &definition, *position));
            plan = plan.project(wanted).map_err(from_datafusion)?;
        }
        if self.limit.is_some() {
            plan = plan.limit(0, self.limit).map_err(from_datafusion)?;
        }
        plan.build().map_err(from_datafusion)
    }

    fn conditions(
        &self,
        name: &str,
        definition: &TableDefinition,
        plan: &LogicalPlanBuilder,
        planner: &Planner,
        resolver: &Resolver<'_>,
    ) -> Result<Vec<Expr>> {
        let mut conditions = Vec::new();
        for (wanted, low, high) in &self.boxes {
            let column = column(name, definition, definition.position_named(wanted)?);
            let literal = |value: &ScalarValue| Expr::Literal(value.clone(), None);
            if !low.is_null() {
                conditions.push(column.clone().gt_eq(literal(low)));
            }
            if !high.is_null() {
                conditions.push(column.lt_eq(literal(high)));
            }
        }
        if let Some(filter) = &self.filter {
            let mut filter = parse_condition(filter)?;
            let mut names = Names::default();
            names.add_table(name, definition.columns().iter().map(|column| &column.name));
            names.apply_to_condition(name, &mut filter)?;
            let filter = planner.condition(filter, plan.schema(), resolver);
            conditions.push(filter.map_err(from_datafusion)?);
        }
        Ok(conditions)
    }
}

/// The name that columns are qualified with, as SQL folds it.
fn qualifier(name: &str) -> datafusion::common::TableReference {
    datafusion::common::TableReference::bare(thalweg_table::schema::fold_name(name))
}

fn column(name: &str, definition: &TableDefinition, position: usize) -> Expr {
    let column = &definition.columns()[position].name;
    Expr::Column(Column::new(Some(qualifier(name)), column.clone()))
}
