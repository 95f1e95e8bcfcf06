//! System tables: what there is, as rows.

use crate::error::{from_arrow, from_datafusion};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use std::sync::Arc;
use thalweg_table::time::key_to_text;
use thalweg_table::{DatabaseView, Result, TableStats, TableView};

/// The system table of that name.
pub(crate) fn table(name: &str, view: &DatabaseView) -> Result<Option<Arc<dyn TableProvider>>> {
    let batch = match name.to_ascii_lowercase().as_str() {
        "thalweg_tables" => tables(view)?,
        _ => return Ok(None),
    };
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(from_datafusion)?;
    Ok(Some(Arc::new(table)))
}

/// Names of system tables begin with this; nobody else's do.
pub(crate) const PREFIX: &str = "thalweg_";

/// One row per stored table.
fn tables(view: &DatabaseView) -> Result<RecordBatch> {
    let names = view.table_names();
    let views = names
        .iter()
        .map(|name| view.table(name))
        .collect::<Result<Vec<_>>>()?;
    let stats = views
        .iter()
        .map(TableView::stats)
        .collect::<Result<Vec<_>>>()?;
    let number = |of: fn(&TableStats) -> u64| -> ArrayRef {
        Arc::new(stats.iter().map(of).collect::<UInt64Array>())
    };
    let text = |values: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let of_view = |of: &dyn Fn(&TableView) -> Option<String>| text(views.iter().map(of).collect());
    let time = |key: fn(&TableStats) -> Option<i64>| {
        text(
            views
                .iter()
                .zip(&stats)
                .map(|(view, stats)| show(view, key(stats)))
                .collect(),
        )
    };
    RecordBatch::try_from_iter([
        ("name", text(names.into_iter().map(Some).collect())),
        (
            "layout",
            of_view(&|view| Some(view.definition().layout().name().to_owned())),
        ),
        (
            "time",
            of_view(&|view| {
                view.definition()
                    .time_column()
                    .map(|column| column.name.clone())
            }),
        ),
        ("rows", number(|stats| stats.rows)),
        ("bytes", number(|stats| stats.bytes)),
        ("blocks", number(|stats| stats.blocks)),
        ("fragments", number(|stats| stats.fragments)),
        ("open_rows", number(|stats| stats.open_rows)),
        ("late_rows", number(|stats| stats.late_rows)),
        ("min_time", time(|stats| stats.min_key)),
        ("max_time", time(|stats| stats.max_key)),
    ])
    .map_err(from_arrow)
}

fn show(view: &TableView, key: Option<i64>) -> Option<String> {
    let time = view.definition().time_column()?;
    key.map(|key| key_to_text(&time.data_type, key))
}
