//! `thalweg import`: the rows of files in one commit, all of them or none.
//!
//! Text becomes rows in steps: a [`source`] reads bytes, a reader cuts them into [`chunk`]s of text by column, types are
//! [`infer`]red from the first chunks, and a [`convert`]er makes batches of the table's types and sets bad rows apart.
//! A new table whose types turn out too narrow is made again with types inferred from all rows.
//!
//! Invariants
//! - No row is lost silently: it is stored, it fails the import with an error that names its line, or it goes to the file
//!   of rejects.
//! - A failed import leaves nothing, not even the table it was to make.
//! - Memory is bounded: a file is read in chunks, and only those that types are inferred from are kept.
//! - Types are inferred again, from all rows, at most once; after that they are final.

mod advice;
mod checks;
mod chunk;
mod column_names;
mod contradictions;
mod convert;
mod csv_lines;
mod csv_records;
mod dialect;
mod digits;
mod file_names;
mod file_set;
mod findings;
mod infer;
mod job;
mod joined_times;
mod json_lines;
mod json_list;
mod kinds;
mod lengths;
mod nulls;
mod numbers;
mod rejects;
mod source;
mod spaced_quotes;
mod times;

use crate::arguments::{ImportCall, ImportOptions};
use crate::counts::counted;
use crate::failure::Failure;
use crate::{files, opening};
use job::Job;
use source::Input;
use std::path::{Path, PathBuf};
use thalweg::{Database, Error, ErrorKind, MaintenanceMode};

/// The outcome of an import.
#[derive(Debug)]
pub(crate) struct Imported {
    table: String,
    pub(crate) rows: u64,
    rejected: u64,
    rejects: Option<PathBuf>,
    is_dry_run: bool,
    /// Lines about stored and rejected rows, for the end of the import.
    notes: Vec<String>,
}

impl Imported {
    /// Prints it on standard error.
    pub(crate) fn tell(&self) {
        let rows = counted(self.rows, "row");
        if self.is_dry_run {
            report!(
                "{rows} could be imported into {}; nothing was stored",
                self.table
            );
            if self.rejected > 0 {
                report!("{} would be rejected", counted(self.rejected, "row"));
            }
            self.notes.iter().for_each(|note| report!("{note}"));
            return;
        }
        report!("imported {rows} into {}", self.table);
        if let Some(path) = &self.rejects {
            report!(
                "rejected {}: see {}",
                counted(self.rejected, "row"),
                path.display()
            );
        }
        self.notes.iter().for_each(|note| report!("{note}"));
    }
}

/// `thalweg import`.
pub(crate) fn run(call: &ImportCall) -> Result<(), Failure> {
    // Opened first, so that a mistyped name of a file does not leave a new database.
    let inputs = open_all(&call.files, &call.options)?;
    if call.options.dry_run {
        return dry_run(call, inputs);
    }
    let was_there = files::exists(&call.database);
    let db = Database::builder()
        .must_exist(!call.options.create)
        // No maintenance during the import; the next process that keeps the database open does it.
        .maintenance(MaintenanceMode::Manual)
        .open(&call.database)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_database(&error),
            _ => opening::explain_lock(error, &call.database),
        })?;
    let imported = Job::new(Some(&db), inputs, &call.table, &call.options).run();
    if imported.is_err() && !was_there && db.table_names().is_ok_and(|names| names.is_empty()) {
        // Safe to remove: the database was made by this import and is empty, and while it is open no other process can add tables.
        files::remove_folder(&call.database);
    }
    let imported = imported?;
    db.close()?;
    imported.tell();
    Ok(())
}

/// Reads everything and stores nothing; the database need not exist.
fn dry_run(call: &ImportCall, inputs: Vec<Input>) -> Result<(), Failure> {
    let db = Database::builder().read_only(true).open(&call.database);
    let db = match db {
        Err(error) if error.kind() == ErrorKind::NotFound => match call.options.create {
            true => None,
            false => return Err(no_database(&error)),
        },
        db => Some(db?),
    };
    Job::new(db.as_ref(), inputs, &call.table, &call.options)
        .run()?
        .tell();
    Ok(())
}

fn no_database(error: &Error) -> Failure {
    Failure::Other(format!(
        "{}: --create makes the database and the table",
        error.message()
    ))
}

fn open_all(files: &[PathBuf], options: &ImportOptions) -> Result<Vec<Input>, Failure> {
    files
        .iter()
        .map(|file| Input::open(file, options))
        .collect()
}

/// Imports a file into an open database.
pub(crate) fn import(
    db: &Database,
    file: &Path,
    table: &str,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let inputs = vec![Input::open(file, options)?];
    Job::new(Some(db), inputs, table, options).run()
}

/// Imports bytes in memory, and prints nothing.
pub(crate) fn import_bytes(
    db: &Database,
    bytes: &'static [u8],
    table: &str,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let inputs = vec![Input::of_bytes(bytes)];
    Job::new(Some(db), inputs, table, options).quiet().run()
}
