//! The rows of each system table.

use super::Wanted;
use crate::catalog::Resolver;
use crate::dialect::output_names::visible;
use crate::params::BoundParams;
use crate::views;
use arrow::array::{ArrayRef, Float64Array, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::Schema;
use std::sync::Arc;
use thalweg_table::engine::EngineOptions;
use thalweg_table::schema::sql_type_name;
use thalweg_table::time::key_to_text;
use thalweg_table::{
    Column, JobReport, KeyRange, Result, StoredView, TableTotals, TableView, default_in_sql,
};

fn texts<T: AsRef<str>>(values: impl IntoIterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn all_texts<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> ArrayRef {
    texts(values.into_iter().map(Some))
}

fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<UInt64Array>())
}

/// A key of a table as text; `None` for tables that are not ordered by a column.
fn key_text(view: &TableView, key: Option<i64>) -> Option<String> {
    let column = view.definition().order_column()?;
    key.map(|key| key_to_text(&column.data_type, key))
}

/// An option as WITH of CREATE TABLE takes it.
fn assigned(name: &str, value: &str) -> String {
    format!("{name} = '{}'", value.replace('\'', "''"))
}

/// One row per stored table.
pub(super) fn tables(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let views = wanted.tables()?;
    // These columns may need a walk of parts of each index; the others come from memory.
    let late_rows: Vec<u64> = match wanted.has(&["late_rows"]) {
        true => views
            .iter()
            .map(TableView::late_rows)
            .collect::<Result<_>>()?,
        false => vec![0; views.len()],
    };
    let keys: Vec<Option<KeyRange>> = match wanted.has(&["min_time", "max_time"]) {
        true => views
            .iter()
            .map(TableView::kept_key_range)
            .collect::<Result<_>>()?,
        false => vec![None; views.len()],
    };
    let totals: Vec<TableTotals> = views.iter().map(TableView::totals).collect();
    let total = |of: fn(&TableTotals) -> u64| numbers(totals.iter().map(of));
    let key = |of: fn(KeyRange) -> i64| {
        let keys = views.iter().zip(&keys);
        texts(keys.map(|(view, keys)| key_text(view, keys.map(of))))
    };
    let layout = |view: &TableView| view.definition().layout().name();
    let time = |view: &TableView| Some(view.definition().order_column()?.name.clone());
    let options = |view: &TableView| {
        let options = view.definition().options();
        let options = options.iter().map(|(name, value)| assigned(name, value));
        options.collect::<Vec<_>>().join(", ")
    };
    Ok(vec![
        all_texts(views.iter().map(TableView::name)),
        all_texts(views.iter().map(layout)),
        texts(views.iter().map(time)),
        total(|totals| totals.rows),
        total(|totals| totals.bytes),
        total(|totals| totals.blocks),
        total(|totals| totals.fragments),
        total(|totals| totals.open_rows),
        numbers(late_rows),
        key(|keys| keys.first),
        key(|keys| keys.last),
        all_texts(views.iter().map(options)),
    ])
}

/// The facts of each of some views, with the view that they are of.
fn facts_of<'a, T>(
    views: &'a [TableView],
    facts: impl Fn(&'a TableView) -> Result<Vec<T>>,
) -> Result<Vec<(&'a TableView, T)>> {
    let mut found = Vec::new();
    for view in views {
        found.extend(facts(view)?.into_iter().map(|fact| (view, fact)));
    }
    Ok(found)
}

/// One row per file of blocks of one table; segments of the log are none.
pub(super) fn fragments(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let views = wanted.tables()?;
    let found = facts_of(&views, TableView::fragments)?;
    let facts = || found.iter();
    Ok(vec![
        all_texts(facts().map(|(view, _)| view.name())),
        all_texts(facts().map(|(_, fact)| format!("{:016x}", fact.file.0))),
        numbers(facts().map(|(_, fact)| fact.rows)),
        numbers(facts().map(|(_, fact)| fact.bytes)),
        numbers(facts().map(|(_, fact)| fact.blocks)),
        texts(facts().map(|(view, fact)| key_text(view, Some(fact.min_key)))),
        texts(facts().map(|(view, fact)| key_text(view, Some(fact.max_key)))),
    ])
}

/// One row per block.
pub(super) fn blocks(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let views = wanted.tables()?;
    let found = facts_of(&views, TableView::blocks)?;
    let facts = || found.iter();
    Ok(vec![
        all_texts(facts().map(|(view, _)| view.name())),
        all_texts(facts().map(|(_, fact)| format!("{:016x}", fact.file.0))),
        numbers(facts().map(|(_, fact)| fact.offset_bytes)),
        numbers(facts().map(|(_, fact)| fact.rows)),
        numbers(facts().map(|(_, fact)| fact.deleted_rows)),
        numbers(facts().map(|(_, fact)| fact.bytes)),
        texts(facts().map(|(view, fact)| key_text(view, Some(fact.min_key)))),
        texts(facts().map(|(view, fact)| key_text(view, Some(fact.max_key)))),
        numbers(facts().map(|(_, fact)| fact.first_commit.0)),
        numbers(facts().map(|(_, fact)| fact.last_commit.0)),
    ])
}

/// One row per order of a table: that of its rows first.
pub(super) fn orders(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let views = wanted.tables()?;
    let found = facts_of(&views, |view| {
        let trees = view.snapshot().trees();
        let sizes = trees.map(|(id, tree)| {
            let total = tree.total();
            let of_total = total.map(|total| (total.rows, total.block_bytes, total.blocks));
            (u64::from(id), of_total.unwrap_or_default())
        });
        Ok(sizes.collect())
    })?;
    let facts = || found.iter();
    Ok(vec![
        all_texts(facts().map(|(view, _)| view.name())),
        numbers(facts().map(|(_, (id, _))| *id)),
        numbers(facts().map(|(_, (_, (rows, _, _)))| *rows)),
        numbers(facts().map(|(_, (_, (_, bytes, _)))| *bytes)),
        numbers(facts().map(|(_, (_, (_, _, blocks)))| *blocks)),
    ])
}

/// One row per table and kind of job that has had something to do.
pub(super) fn jobs(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let jobs: Vec<JobReport> = wanted.view.engine().jobs()?;
    let began = jobs.iter().map(|job| job.began_unix_ns / 1_000);
    let seconds = jobs.iter().map(|job| job.took.as_secs_f64());
    Ok(vec![
        all_texts(jobs.iter().map(|job| &*job.table)),
        all_texts(jobs.iter().map(|job| job.kind.name())),
        all_texts(jobs.iter().map(|job| job.state.name())),
        numbers(jobs.iter().map(|job| job.steps)),
        numbers(jobs.iter().map(|job| job.rows)),
        numbers(jobs.iter().map(|job| job.bytes)),
        Arc::new(seconds.collect::<Float64Array>()),
        Arc::new(began.map(Some).collect::<TimestampMicrosecondArray>()),
        texts(jobs.iter().map(|job| job.error.as_deref())),
    ])
}

/// One row per option that the database was opened with.
pub(super) fn settings(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let EngineOptions {
        read_only,
        durability,
        cache_bytes,
        threads,
        sync_interval,
        memory_limit_bytes,
        segment_bytes,
        max_snapshot_age,
        maintenance,
        job_limits,
        ..
    } = wanted.view.engine().options();
    let settings: [(&str, String, &str); 10] = [
        ("read_only", read_only.to_string(), "nothing is written"),
        (
            "durability",
            format!("{durability:?}").to_lowercase(),
            "what an append survives when it returns",
        ),
        (
            "cache_bytes",
            cache_bytes.to_string(),
            "memory for cached parts of the index",
        ),
        (
            "threads",
            threads.to_string(),
            "threads that work on one call",
        ),
        (
            "memory_limit",
            memory_limit_bytes.map_or("none".to_owned(), |bytes| bytes.to_string()),
            "bytes that sorts, joins and groups may take together",
        ),
        (
            "sync_interval",
            format!("{sync_interval:?}"),
            "time within which process appends reach stable storage",
        ),
        (
            "max_snapshot_age",
            format!("{max_snapshot_age:?}"),
            "time for which files are kept for readers in other processes",
        ),
        (
            "maintenance",
            maintenance.name().to_owned(),
            "whether late rows are put in order without being asked",
        ),
        (
            "job_limits",
            format!(
                "{} % of the time beside commits, {} % otherwise, {} bytes a second",
                job_limits.loaded_percent,
                job_limits.idle_percent,
                job_limits
                    .bytes_per_second
                    .map_or("any".to_owned(), |bytes| bytes.to_string()),
            ),
            "how much that may take",
        ),
        (
            "segment_bytes",
            segment_bytes.to_string(),
            "full size of a segment of the log",
        ),
    ];
    Ok(vec![
        all_texts(settings.iter().map(|(name, _, _)| name)),
        all_texts(settings.iter().map(|(_, value, _)| value)),
        all_texts(settings.iter().map(|(_, _, description)| description)),
    ])
}

/// One row per stored table and per view, as the standard has it.
pub(super) fn standard_tables(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let (tables, views) = (wanted.view.table_names(), wanted.view.view_names());
    let of_type = |names: Vec<String>, kind| names.into_iter().map(move |name| (name, kind));
    let mut rows: Vec<(String, &str)> = of_type(tables, "BASE TABLE")
        .chain(of_type(views, "VIEW"))
        .collect();
    rows.sort_unstable();
    Ok(vec![
        all_texts(rows.iter().map(|_| "main")),
        all_texts(rows.iter().map(|(name, _)| name)),
        all_texts(rows.iter().map(|(_, kind)| kind)),
    ])
}

/// One row per view.
pub(super) fn standard_views(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let views = wanted.views();
    let queries = views.iter().map(|view| Ok(view.definition()?.query));
    let queries = queries.collect::<Result<Vec<String>>>()?;
    Ok(vec![
        all_texts(views.iter().map(|_| "main")),
        all_texts(views.iter().map(StoredView::name)),
        all_texts(queries),
    ])
}

/// A column in `information_schema`.
struct StandardColumn {
    table: String,
    place: u64,
    name: String,
    data_type: String,
    nullable: bool,
    default: Option<String>,
}

/// One row per column of a stored table or a view; a view that cannot be read as things are has none.
pub(super) fn standard_columns(wanted: &Wanted<'_>) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::new();
    let mut add = |table: &str, schema: &Schema, of_table: &[Column]| {
        columns.extend((1..).zip(schema.fields()).map(|(place, field)| {
            let column = of_table.iter().find(|column| column.name == *field.name());
            let data_type = sql_type_name(field.data_type());
            StandardColumn {
                table: table.to_owned(),
                place,
                name: visible(field.name()).to_owned(),
                data_type,
                nullable: field.is_nullable(),
                default: column.and_then(default_in_sql),
            }
        }));
    };
    for table in wanted.tables()? {
        let definition = table.definition();
        add(table.name(), definition.schema(), definition.columns());
    }
    let no_params = BoundParams::default();
    for view in wanted.views() {
        let resolver = Resolver::new(wanted.planner, wanted.view, &[], &no_params);
        if let Ok(schema) = views::schema_of(&resolver, &view) {
            add(view.name(), &schema, &[]);
        }
    }
    let columns = || columns.iter();
    let nullable = |nullable| if nullable { "YES" } else { "NO" };
    Ok(vec![
        all_texts(columns().map(|_| "main")),
        all_texts(columns().map(|column| &column.table)),
        all_texts(columns().map(|column| &column.name)),
        numbers(columns().map(|column| column.place)),
        all_texts(columns().map(|column| &column.data_type)),
        all_texts(columns().map(|column| nullable(column.nullable))),
        texts(columns().map(|column| column.default.as_deref())),
    ])
}
