//! SQL statements: `thalweg sql`, and what the shell shares with it.

use crate::arguments::SqlCall;
use crate::failure::Failure;
use crate::interrupt::Listening;
use crate::output::{Format, Printer};
use crate::statements;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;
use thalweg::{Database, Fetched};

/// How often a running query looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// `thalweg sql`.
pub(crate) fn run(call: &SqlCall) -> Result<(), Failure> {
    let statements = statements::split(&call.statements);
    if statements.is_empty() {
        return Err(Failure::usage("there is no statement to run"));
    }
    let format = Format::or_default(call.format).check()?;
    let only_reads = statements
        .iter()
        .all(|statement| statements::only_reads(statement));
    let db = open(&call.database, only_reads)?;
    let mut rows = 0;
    for statement in &statements {
        rows = execute(
            &db,
            statement,
            format,
            &mut BufWriter::new(io::stdout().lock()),
        )?
        .rows;
    }
    if format == Format::Table && io::stderr().is_terminal() {
        eprintln!("{}", counted(rows, "row"));
    }
    db.close()?;
    Ok(())
}

/// Opens a database; one that is only read may be open elsewhere for writing, and is not made.
pub(crate) fn open(path: &Path, only_reads: bool) -> Result<Database, Failure> {
    Ok(Database::builder().read_only(only_reads).open(path)?)
}

/// What a statement did.
pub(crate) struct Outcome {
    /// Rows that were printed.
    pub(crate) rows: u64,
}

/// Runs a statement and prints its rows; Ctrl-C stops it.
pub(crate) fn execute(
    db: &Database,
    statement: &str,
    format: Format,
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    let mut result = db.sql(statement)?;
    let listening = Listening::start();
    let schema = result.schema().clone();
    let mut printer = Printer::new(format, &schema, out)?;
    loop {
        match result.poll_batch(LOOK)? {
            Fetched::Batch(batch) => printer.write(&batch)?,
            Fetched::Pending => {}
            Fetched::End => break,
        }
        if listening.pressed() {
            result.cancel_handle().cancel();
            return Err(Failure::Interrupted);
        }
    }
    Ok(Outcome {
        rows: printer.finish()?,
    })
}

/// `1 row`, `2 rows`, `12,000 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        thousands(count),
        if count == 1 { "" } else { "s" }
    )
}

/// A number in groups of three digits.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let shown: Vec<String> = [0, 999, 1_000, 105_120, 1_234_567].map(thousands).into();
        assert_eq!(shown, ["0", "999", "1,000", "105,120", "1,234,567"]);
        assert_eq!(
            [counted(1, "row"), counted(0, "row"), counted(2_000, "row")],
            ["1 row", "0 rows", "2,000 rows"]
        );
    }
}
