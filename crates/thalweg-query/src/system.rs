//! System tables: what there is, as rows.

use crate::error::{from_arrow, from_datafusion};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::MemTable;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;
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

/// `information_schema.tables` and `.columns`, with the columns of the standard that mean something here.
pub(crate) fn of_information_schema(
    name: &TableReference,
    view: &DatabaseView,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let TableReference::Partial { schema, table } = name else {
        return Ok(None);
    };
    if !schema.eq_ignore_ascii_case("information_schema") {
        return Ok(None);
    }
    let batch = match table.to_ascii_lowercase().as_str() {
        "tables" => standard_tables(view)?,
        "columns" => standard_columns(view)?,
        _ => return Ok(None),
    };
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(from_datafusion)?;
    Ok(Some(Arc::new(table)))
}

fn standard_tables(view: &DatabaseView) -> Result<RecordBatch> {
    let names = view.table_names();
    let all = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; names.len()])) };
    let (schemas, types) = (all("main"), all("BASE TABLE"));
    let tables: ArrayRef = Arc::new(StringArray::from(names));
    RecordBatch::try_from_iter([
        ("table_schema", schemas),
        ("table_name", tables),
        ("table_type", types),
    ])
    .map_err(from_arrow)
}

fn standard_columns(view: &DatabaseView) -> Result<RecordBatch> {
    let (mut tables, mut columns, mut types, mut nullable) = (vec![], vec![], vec![], vec![]);
    let mut places = Vec::new();
    for table in view.table_names() {
        let view = view.table(&table)?;
        for (place, column) in (1_u64..).zip(view.definition().columns()) {
            tables.push(table.clone());
            columns.push(column.name.clone());
            types.push(sql_type_name(&column.data_type));
            nullable.push(if column.nullable { "YES" } else { "NO" });
            places.push(place);
        }
    }
    let schemas: ArrayRef = Arc::new(StringArray::from(vec!["main"; tables.len()]));
    let text = |values: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    RecordBatch::try_from_iter([
        ("table_schema", schemas),
        ("table_name", text(tables)),
        ("column_name", text(columns)),
        ("ordinal_position", Arc::new(UInt64Array::from(places))),
        ("data_type", text(types)),
        ("is_nullable", Arc::new(StringArray::from(nullable))),
    ])
    .map_err(from_arrow)
}

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
                    .order_column()
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
    let time = view.definition().order_column()?;
    key.map(|key| key_to_text(&time.data_type, key))
}
