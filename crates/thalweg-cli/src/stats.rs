//! `thalweg stats`: what is known of tables without reading their rows.

use crate::arguments::StatsCall;
use crate::failure::Failure;
use crate::opening;
use crate::output::{Format, Limits, Printer};
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use std::io::{BufWriter, stdout};
use std::sync::Arc;
use thalweg::{TableStats, TableView, key_to_text};

/// `thalweg stats`.
pub(crate) fn run(call: &StatsCall) -> Result<(), Failure> {
    let format = Format::or_default(call.format).check()?;
    let db = opening::for_reading(&call.database)?;
    let view = db.snapshot()?;
    let names = call
        .table
        .as_ref()
        .map_or_else(|| view.table_names(), |name| vec![name.clone()]);
    let tables: Vec<TableView> = names
        .iter()
        .map(|name| view.table(name))
        .collect::<Result<_, _>>()?;
    let batch = batch_of(&tables)?;
    let out = BufWriter::new(stdout().lock());
    let mut printer = Printer::new(format, &batch.schema(), Limits::of_terminal(), out)?;
    printer.write(&batch)?;
    printer.finish()?;
    Ok(())
}

/// One row per table.
fn batch_of(tables: &[TableView]) -> Result<RecordBatch, Failure> {
    let stats: Vec<TableStats> = tables
        .iter()
        .map(TableView::stats)
        .collect::<Result<_, _>>()?;
    let count = |of: fn(&TableStats) -> u64| -> ArrayRef {
        Arc::new(stats.iter().map(of).collect::<UInt64Array>())
    };
    let time = |of: fn(&TableStats) -> Option<i64>| -> ArrayRef {
        let texts = tables.iter().zip(&stats).map(|(table, stats)| {
            let has_times = table.definition().order_column().is_some();
            of(stats)
                .filter(|_| has_times)
                .map(|key| time_text(table, key))
        });
        Arc::new(texts.collect::<StringArray>())
    };
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        tables.iter().map(TableView::name),
    ));
    let layouts = tables
        .iter()
        .map(|table| table.definition().layout().name());
    let layouts: ArrayRef = Arc::new(StringArray::from_iter_values(layouts));
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("table", names, false),
        ("layout", layouts, false),
        ("rows", count(|stats| stats.rows), false),
        ("bytes", count(|stats| stats.bytes), false),
        ("blocks", count(|stats| stats.blocks), false),
        ("fragments", count(|stats| stats.fragments), false),
        ("open_rows", count(|stats| stats.open_rows), false),
        ("late_rows", count(|stats| stats.late_rows), false),
        ("min_time", time(|stats| stats.min_key), true),
        ("max_time", time(|stats| stats.max_key), true),
    ])?)
}

/// An order key as users know it: a time, or the number of a row in a table without one.
pub(crate) fn time_text(table: &TableView, key: i64) -> String {
    match table.definition().order_column() {
        Some(time) => key_to_text(&time.data_type, key),
        None => key.to_string(),
    }
}
