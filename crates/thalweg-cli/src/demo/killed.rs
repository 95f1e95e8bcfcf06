//! A writer that is killed with signal 9 while it appends, and what is there afterwards.
//!
//! The child prints a number on its standard output when the batch of that number is durable, so everything the parent has read
//! must be there. A batch whose number it did not get to print may be there too, but whole.

use super::report::{Report, seconds};
use crate::counts::thousands;
use crate::failure::Failure;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use thalweg::{CreateOptions, Database, schema_of_names};

const TABLE: &str = "killed";
/// Rows of each batch.
const ROWS: i64 = 100;
/// How long the writer works before it is killed.
const WORK_NS: u64 = 1_500_000_000;

/// The child: appends durable batches and prints their numbers, for as long as it lives.
pub(crate) fn write_until_killed(path: &Path) -> Result<(), Failure> {
    let db = Database::open(path)?;
    let schema = schema_of_names([("n", "bigint"), ("value", "double")])?;
    let table = db.create_table(TABLE, &schema, &CreateOptions::stream("n"))?;
    let schema = Arc::new(schema);
    let mut out = std::io::stdout().lock();
    for batch in 0.. {
        let numbers = batch * ROWS..(batch + 1) * ROWS;
        let values: ArrayRef = Arc::new(Float64Array::from_iter_values(numbers.clone().map(value)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        table.append(
            [Ok(RecordBatch::try_new(
                Arc::clone(&schema),
                vec![numbers, values],
            )?)],
            None,
        )?;
        writeln!(out, "{batch}")?;
        out.flush()?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "any value will do")]
fn value(number: i64) -> f64 {
    (number % 1_000) as f64 / 8.0
}

/// The parent.
pub(super) fn run(path: &Path, report: &mut Report) -> Result<(), Failure> {
    report.section("Kill: a process appends durable batches of 100 rows until signal 9 ends it")?;
    let acknowledged = kill_writer(path, report)?;
    let start_ns = report.now_ns();
    let db = Database::open(path)?;
    let opened_ns = report.now_ns() - start_ns;
    let rows = db.table(TABLE)?.view()?.row_count();
    let first_count_ns = report.now_ns() - start_ns;
    let times = format!(
        "open {:.1} ms, first count {:.1} ms",
        seconds(opened_ns) * 1e3,
        seconds(first_count_ns) * 1e3
    );
    report.line("opened again without help", &times)?;
    let wanted = acknowledged * ROWS.unsigned_abs();
    let figures = format!(
        "{} rows, {} acknowledged",
        thousands(rows),
        thousands(wanted)
    );
    report.check(
        "every acknowledged row is there",
        &figures,
        acknowledged > 0 && rows >= wanted,
    )?;
    let question = format!("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM {TABLE}");
    let found = super::numbers(&db, &question)?;
    #[expect(clippy::cast_precision_loss, reason = "rows of a few seconds")]
    let all = rows as f64;
    let once = super::same(&found, &[all, all, 0.0, all - 1.0]);
    report.check(
        "each row is there once, none is missing between",
        &super::shown(&found),
        once,
    )?;
    report.check(
        "no batch is there in part",
        "",
        rows.is_multiple_of(ROWS.unsigned_abs()),
    )?;
    db.close()?;
    Ok(())
}

/// Starts the writer, kills it in the middle of its work, and returns how many batches it acknowledged.
fn kill_writer(path: &Path, report: &Report) -> Result<u64, Failure> {
    let fail = |error: std::io::Error| Failure::Other(format!("the process to be killed: {error}"));
    let program = std::env::current_exe().map_err(fail)?;
    let mut child = Command::new(program)
        .arg("demo-writer")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let lines = child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufReader::lines);
    let (mut acknowledged, mut first_ns) = (0, None);
    for line in lines {
        // A line that the child did not finish is a smaller number.
        let batch: u64 = line.map_err(fail)?.parse().unwrap_or(0);
        acknowledged = acknowledged.max(batch + 1);
        let now_ns = report.now_ns();
        if now_ns - *first_ns.get_or_insert(now_ns) > WORK_NS {
            // Numbers that it had printed before its end are still in the pipe: the loop goes on.
            child.kill().map_err(fail)?;
        }
    }
    child.wait().map_err(fail)?;
    Ok(acknowledged)
}
