//! SQL statements: `thalweg sql`, and what the shell shares with it.

use crate::arguments::SqlCall;
use crate::counts::counted;
use crate::failure::Failure;
use crate::interrupt::Listening;
use crate::output::{Format, Limits, Printer};
use crate::{files, opening, statements};
use std::cell::Cell;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::time::Duration;
use thalweg::{Database, Error, Fetched, Params, QueryResult};
use thalweg_env::Env;

/// How often a running query checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// How long rows that are not printed are counted, in nanoseconds.
const MAX_COUNTING_NS: u64 = 500_000_000;

/// `thalweg sql`.
pub(crate) fn run(call: &SqlCall) -> Result<(), Failure> {
    let text = text_of(call)?;
    let statements = statements::split(&text);
    if statements.is_empty() {
        return Err(Failure::usage("there is no statement to run"));
    }
    let format = Format::or_default(call.format).check()?;
    let only_reads = statements
        .iter()
        .all(|placed| statements::only_reads(placed.statement));
    let db = open(&call.database, only_reads)?;
    let mut last = None;
    for placed in &statements {
        let outcome = execute(
            &db,
            placed.statement,
            format,
            Limits::of_terminal(),
            &mut BufWriter::new(io::stdout().lock()),
        );
        last = Some(outcome.map_err(|failure| match failure {
            Failure::Engine(error) if statements.len() > 1 => {
                Error::new(error.kind(), statements::in_text(placed, error.message())).into()
            }
            other => other,
        })?);
    }
    let whole = last.filter(|outcome| !outcome.is_cut && format == Format::Table);
    if let Some(outcome) = whole.filter(|_| io::stderr().is_terminal()) {
        report!("{}", counted(outcome.rows, "row"));
    }
    close(&db)?;
    Ok(())
}

/// Closes a database; fails where a transaction was left open, of which nothing is stored.
pub(crate) fn close(db: &Database) -> Result<(), Failure> {
    let is_open = db.is_in_transaction();
    db.close()?;
    match is_open {
        true => Err(Failure::Other(
            "the transaction was not committed: nothing of it is stored".to_owned(),
        )),
        false => Ok(()),
    }
}

/// The statements that were given, in one of three ways.
fn text_of(call: &SqlCall) -> Result<String, Failure> {
    let fail = |name: &str, error: io::Error| Failure::Other(format!("reading {name}: {error}"));
    match (&call.statements, &call.file) {
        (Some(text), _) if text != "-" => match text.trim_start() {
            command if command.starts_with(['.', '\\']) => Err(Failure::usage(format!(
                "{} is a command of the shell, thalweg DATABASE; in SQL: SHOW TABLES, DESCRIBE a_table, SUMMARIZE a_table",
                command.split_whitespace().next().unwrap_or_default()
            ))),
            _ => Ok(text.clone()),
        },
        (_, Some(path)) if path != Path::new("-") => {
            let mut text = String::new();
            let mut file = files::open(path)?;
            file.read_to_string(&mut text)
                .map_err(|error| fail(&path.display().to_string(), error))?;
            Ok(text)
        }
        (_, None) if io::stdin().is_terminal() => Err(Failure::usage(
            "name a statement, as in thalweg sql DATABASE \"SELECT 1\", or --file FILE; thalweg DATABASE is a shell",
        )),
        _ => io::read_to_string(io::stdin()).map_err(|error| fail("standard input", error)),
    }
}

/// Opens a database; one that is only read may be open elsewhere for writing, and is not created if
/// it is missing.
pub(crate) fn open(path: &Path, only_reads: bool) -> Result<Database, Failure> {
    if path == Path::new(":memory:") {
        // Always new, and gone with this call.
        return Ok(Database::builder().open(path)?);
    }
    if only_reads {
        opening::for_reading(path)
    } else {
        opening::for_writing(path)
    }
}

/// The outcome of a statement.
pub(crate) struct Outcome {
    /// Rows that were printed.
    pub(crate) rows: u64,
    /// There are more than a terminal shows.
    pub(crate) is_cut: bool,
}

/// Runs a statement and prints its rows; Ctrl-C stops it.
pub(crate) fn execute(
    db: &Database,
    statement: &str,
    format: Format,
    limits: Limits,
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    let listening = Listening::start();
    let mut result = start(db, statement, &listening)?;
    let schema = result.schema().clone();
    let mut printer = Printer::new(format, &schema, limits, out)?;
    let (env, mut cut_ns) = (Env::os(), None);
    loop {
        let fetched = result.poll_batch(LOOK)?;
        listening
            .check()
            .inspect_err(|_| result.cancel_handle().cancel())?;
        match fetched {
            Fetched::Batch(batch) => printer.write(&batch)?,
            Fetched::Pending => {}
            Fetched::End => break,
        }
        if printer.is_cut() {
            let clock = env.clock();
            let began_ns = *cut_ns.get_or_insert_with(|| clock.monotonic_ns());
            if !limits.counts_others() || clock.monotonic_ns() - began_ns > MAX_COUNTING_NS {
                printer.leave_uncounted();
                result.cancel_handle().cancel();
                break;
            }
        }
    }
    let is_cut = printer.is_cut();
    Ok(Outcome {
        rows: printer.finish()?,
        is_cut,
    })
}

/// Runs a statement as far as its first rows; a statement that changes something is finished by
/// then.
fn start(db: &Database, statement: &str, listening: &Listening) -> Result<QueryResult, Failure> {
    let interrupted = Cell::new(None);
    let go_on = || match listening.check() {
        Ok(()) => true,
        Err(failure) => {
            interrupted.set(Some(failure));
            false
        }
    };
    let result = db.sql_while(statement, &Params::None, &[], &go_on);
    match interrupted.take() {
        Some(failure) => Err(failure),
        None => Ok(result?),
    }
}
