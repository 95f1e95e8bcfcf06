//! `thalweg demo`: the shipped sample through everything Thalweg does, every answer compared with figures that were worked
//! out without it, and a writer killed in the middle of its work.

mod killed;
mod reference;
mod report;

pub(crate) use killed::write_until_killed;

use crate::arguments::ImportOptions;
use crate::counts::thousands;
use crate::failure::Failure;
use crate::{files, import};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType};
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use reference::{
    JANUARY, JANUARY_WITHOUT_SHUNYI, MONTHS, QUESTIONS, ROWS, SAMPLE, SAMPLE_TEXT_BYTES,
};
use report::{Report, megabytes, per_second};
use std::path::Path;
use thalweg::{CreateOptions, Database, KeyRange, ScanRequest, Table, TimeBound, Value, key_range};

/// Rows of each durable batch.
const BATCH_ROWS: usize = 10_000;
/// Rows that are made durable one by one.
const SINGLE_ROWS: i64 = 200;
/// Relative tolerance for sums of floats that were added in different orders.
const TOLERANCE: f64 = 1e-6;

const JANUARY_QUESTION: &str = "SELECT count(*), count(pm25), sum(pm25) FROM air WHERE ts >= '2017-01-01' AND ts < '2017-02-01'";

/// `thalweg demo`.
pub(crate) fn run() -> Result<(), Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::Other(format!("making a temporary folder: {error}")))?;
    let path = folder.path().join("demo.thal");
    let mut report = Report::start();
    println!(
        "Thalweg {}: a year of hourly readings of twelve air quality stations",
        env!("CARGO_PKG_VERSION")
    );
    let start_ns = report.now_ns();
    let db = Database::open(&path)?;
    let (before, late) = import_sample(&db, &mut report)?;
    append_batches(&db, &before, &mut report)?;
    show_sizes(&db, &path, &report)?;
    append_late(&db, &late, &mut report)?;
    ask(&db, &mut report)?;
    read_range(&db.table("air")?, &mut report)?;
    db.close()?;
    drop(db);
    killed::run(&path, &mut report)?;
    check_everything(&path, &mut report)?;
    report.line(
        "time of it all",
        &format!("{:.1} s", report::seconds(report.now_ns() - start_ns)),
    )?;
    report.finish()
}

/// Imports the file as `thalweg import` does, and splits off the rows of one station in one month, which are appended late.
fn import_sample(
    db: &Database,
    report: &mut Report,
) -> Result<(RecordBatch, RecordBatch), Failure> {
    report.section("Import: types found in the file, one commit")?;
    let options = ImportOptions {
        create: true,
        time: Some("ts".into()),
        ..ImportOptions::default()
    };
    let (imported, took) =
        report.timed(|| import::import_bytes(db, SAMPLE, "imported", &options))?;
    let figures = format!("{} rows/s, {:.2} s", per_second(imported.rows, took), took);
    report.check(
        "105,120 rows of packed CSV",
        &figures,
        imported.rows == ROWS,
    )?;
    let table = db.table("imported")?;
    let batches: Vec<RecordBatch> = table
        .view()?
        .scan(&ScanRequest::default())?
        .collect::<Result<_, _>>()?;
    let rows = concat_batches(&table.schema(), &batches)?;
    let late = is_late(&rows)?;
    let others: BooleanArray = late.iter().map(|late| late.map(|late| !late)).collect();
    Ok((
        filter_record_batch(&rows, &others)?,
        filter_record_batch(&rows, &late)?,
    ))
}

/// Station Shunyi in January 2017.
fn is_late(rows: &RecordBatch) -> Result<BooleanArray, Failure> {
    let january = month_range("2017-01-01", "2017-02-01")?;
    let times = rows.column(0).as_primitive::<TimestampNanosecondType>();
    let stations = rows.column(1).as_string::<i32>();
    let late = |(time, station): (Option<i64>, Option<&str>)| {
        Some(time.is_some_and(|time| january.contains(time)) && station == Some("Shunyi"))
    };
    Ok(times.iter().zip(stations.iter()).map(late).collect())
}

fn month_range(start: &str, end: &str) -> Result<KeyRange, Failure> {
    let time = DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, None);
    Ok(key_range(
        &time,
        Some(TimeBound::Text(start)),
        Some(TimeBound::Text(end)),
    )?
    .into())
}

fn append_batches(db: &Database, rows: &RecordBatch, report: &mut Report) -> Result<(), Failure> {
    report.section("Append: each batch on stable storage when the call returns")?;
    let air = db.create_table("air", &rows.schema(), &CreateOptions::stream("ts"))?;
    let (batches, took) = report.timed(|| {
        let mut batches = 0;
        for start in (0..rows.num_rows()).step_by(BATCH_ROWS) {
            let batch = rows.slice(start, BATCH_ROWS.min(rows.num_rows() - start));
            air.append([Ok(batch)], None)?;
            batches += 1;
        }
        Ok(batches)
    })?;
    let rows = rows.num_rows() as u64;
    let figures = format!("{} rows/s, {:.2} s", per_second(rows, took), took);
    let holds = air.view()?.row_count() == rows;
    report.check(
        &format!("{} rows in {batches} batches", thousands(rows)),
        &figures,
        holds,
    )?;
    let schema = thalweg::schema_of_names([("n", "bigint"), ("value", "double")])?;
    let single = db.create_table("single", &schema, &CreateOptions::stream("n"))?;
    let (_, took) = report.timed(|| {
        (0..SINGLE_ROWS)
            .try_for_each(|n| Ok(single.put(&[Value::Int(n), Value::Float(0.5)], None)?))
    })?;
    let figures = format!("{} rows/s", per_second(SINGLE_ROWS.unsigned_abs(), took));
    report.line(
        &format!("{SINGLE_ROWS} single rows, each durable, one thread"),
        &figures,
    )
}

fn show_sizes(db: &Database, path: &Path, report: &Report) -> Result<(), Failure> {
    let stats = db.table("air")?.stats()?;
    report.section("Size")?;
    report.line("the sample as CSV text, and packed with gzip", &{
        format!(
            "{}, {}",
            megabytes(SAMPLE_TEXT_BYTES),
            megabytes(SAMPLE.len() as u64)
        )
    })?;
    report.line(
        "blocks of table air, every column summarised",
        &megabytes(stats.bytes),
    )?;
    let files = files::bytes_below(path)
        .map_err(|error| Failure::Other(format!("sizes of files: {error}")))?;
    report.line(
        "all files, with three tables and room ahead",
        &megabytes(files),
    )
}

fn append_late(db: &Database, late: &RecordBatch, report: &mut Report) -> Result<(), Failure> {
    report.section("Late rows: 744 readings of one station, a month behind")?;
    let air = db.table("air")?;
    let before = numbers(db, JANUARY_QUESTION)?;
    report.check(
        "January without them",
        &shown(&before),
        same(&before, JANUARY_WITHOUT_SHUNYI),
    )?;
    air.append([Ok(late.clone())], None)?;
    let after = numbers(db, JANUARY_QUESTION)?;
    report.check(
        "January at once after the append",
        &shown(&after),
        same(&after, JANUARY),
    )?;
    let (mut last, mut in_order, mut rows) = (i64::MIN, true, 0);
    for batch in air.view()?.scan(&ScanRequest {
        projection: Some(vec![0]),
        ..ScanRequest::default()
    })? {
        let batch = batch?;
        let times = batch.column(0).as_primitive::<TimestampNanosecondType>();
        in_order &=
            times.values().is_sorted() && times.values().first().is_none_or(|first| *first >= last);
        last = times.values().last().copied().unwrap_or(last);
        rows += batch.num_rows() as u64;
    }
    report.check(
        "a scan returns all rows in order of time",
        &thousands(rows),
        in_order && rows == ROWS,
    )
}

fn ask(db: &Database, report: &mut Report) -> Result<(), Failure> {
    report.section("Answers, compared with the reference figures of the sample")?;
    for (what, question, wanted) in QUESTIONS {
        let (answer, took) = report.timed(|| numbers(db, question))?;
        let figures = format!("{}  ({:.1} ms)", shown(&answer), took * 1e3);
        report.check(what, &figures, same(&answer, wanted))?;
    }
    let question = "SELECT date_trunc('month', ts) AS month, count(*), count(pm25), sum(pm25), avg(pm25), max(pm25), \
                    min(temp), max(temp) FROM air GROUP BY month ORDER BY month";
    let (batches, took) = report.timed(|| Ok(db.sql(question)?.collect()?))?;
    let months: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut right = months == MONTHS.len();
    let mut rows = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    for (month, (batch, row)) in MONTHS.iter().zip(&mut rows) {
        right &= month_is_right(batch, row, month)?;
    }
    report.check(
        "twelve months: 7 figures each",
        &format!("{:.1} ms", took * 1e3),
        right,
    )?;
    let question = "SELECT date_bin(INTERVAL '1 day', ts) AS day, avg(temp) FROM air GROUP BY day ORDER BY 2 DESC LIMIT 1";
    let hottest = db.sql(question)?.collect()?;
    let day = hottest
        .first()
        .map(|batch| cast(batch.column(0), &DataType::Utf8))
        .transpose()?;
    let day = day
        .as_ref()
        .map_or("none", |day| day.as_string::<i32>().value(0));
    report.line("the hottest day of 365, by date_bin", day)
}

fn month_is_right(
    batch: &RecordBatch,
    row: usize,
    month: &reference::Month,
) -> Result<bool, Failure> {
    let name = cast(batch.column(0), &DataType::Utf8)?;
    let found = row_of_numbers(&batch.slice(row, 1), 1)?;
    #[expect(clippy::cast_precision_loss, reason = "sums of a month")]
    let (count, sum) = (month.count as f64, month.sum as f64);
    #[expect(clippy::cast_precision_loss, reason = "rows of a month")]
    let wanted = [
        month.rows as f64,
        count,
        sum,
        sum / count,
        month.max as f64,
        month.coldest,
        month.warmest,
    ];
    Ok(name.as_string::<i32>().value(row).starts_with(month.month) && same(&found, &wanted))
}

fn read_range(air: &Table, report: &mut Report) -> Result<(), Failure> {
    report.section("A range of time: only its blocks are read")?;
    let keys = month_range("2017-01-01", "2017-01-08")?;
    let ((rows, metrics), took) = report.timed(|| {
        let scan = air.view()?.scan(&ScanRequest {
            keys,
            ..ScanRequest::default()
        })?;
        let metrics = scan.metrics().clone();
        let rows = scan
            .map(|batch| batch.map(|batch| batch.num_rows() as u64))
            .sum::<Result<u64, _>>()?;
        Ok((rows, metrics))
    })?;
    let figures = format!(
        "{:.1} ms, {} of {} blocks read",
        took * 1e3,
        metrics.blocks_read(),
        metrics.blocks_total()
    );
    let holds = rows == 2_016 && metrics.blocks_read() < metrics.blocks_total();
    report.check("2,016 rows of the first week of 2017", &figures, holds)
}

fn check_everything(path: &Path, report: &mut Report) -> Result<(), Failure> {
    report.section("Verify: every byte against its checksum")?;
    let db = Database::builder().read_only(true).open(path)?;
    let (found, took) = report.timed(|| Ok(db.verify(&mut |_| {})?))?;
    let figures = format!(
        "{} blocks, {}, {:.2} s",
        thousands(found.blocks),
        megabytes(found.bytes),
        took
    );
    report.check("no damage", &figures, found.damage.is_empty())?;
    let answer = numbers(&db, QUESTIONS[0].1)?;
    report.check(
        "the answers are still the same",
        &shown(&answer),
        same(&answer, QUESTIONS[0].2),
    )
}

/// Runs a query with one row as its result, and returns that row.
fn numbers(db: &Database, question: &str) -> Result<Vec<f64>, Failure> {
    let batches = db.sql(question)?.collect()?;
    let [batch] = batches.as_slice() else {
        return Err(Failure::Other(format!(
            "{question}: not one batch but {}",
            batches.len()
        )));
    };
    row_of_numbers(batch, 0)
}

/// The first row of a batch from a column on, as floats; what is null is NaN.
fn row_of_numbers(batch: &RecordBatch, from: usize) -> Result<Vec<f64>, Failure> {
    let mut numbers = Vec::new();
    for column in &batch.columns()[from..] {
        let column = cast(column, &DataType::Float64)?;
        let column = column.as_primitive::<Float64Type>();
        numbers.push(if column.is_null(0) {
            f64::NAN
        } else {
            column.value(0)
        });
    }
    Ok(numbers)
}

fn same(found: &[f64], wanted: &[f64]) -> bool {
    found.len() == wanted.len()
        && found
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| (found - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0))
}

/// Numbers of an answer, for people.
fn shown(numbers: &[f64]) -> String {
    let text = |number: &f64| {
        let text = format!("{number:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    numbers.iter().map(text).collect::<Vec<_>>().join(", ")
}
