//! `thalweg verify`: checks every byte, and reports what is damaged and what is lost with it. With `--repair` it makes the
//! database whole without that; what it found still ends it with status 1.

use crate::arguments::VerifyCall;
use crate::counts::{counted, thousands};
use crate::damage_list::{described, lines};
use crate::failure::Failure;
use crate::opening::{self, explain};
use crate::progress;
use std::io::{Write, stdout};
use thalweg::{Database, DatabaseView, VerifyReport};

/// `thalweg verify`.
pub(crate) fn run(call: &VerifyCall) -> Result<(), Failure> {
    if call.repair {
        return repair(call);
    }
    let db = opening::for_reading(&call.database)?;
    let view = db.snapshot()?;
    let bar = progress::bytes("verify", Some(bytes_of(&view)?));
    let report = db.verify(&mut |bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    let mut out = stdout().lock();
    for damage in &report.damage {
        writeln!(out, "{}", described(damage, &view))?;
    }
    let (tables, rows) = listed(&report, view.table_names().len() as u64, rows_of(&view)?);
    writeln!(
        out,
        "checked {} of {}: {}, {} of the index, {}; {} of the log",
        counted(rows, "row"),
        counted(tables, "table"),
        counted(report.blocks, "block"),
        counted(report.pages, "page"),
        counted(report.fragments, "fragment"),
        counted(report.frames, "frame"),
    )?;
    if report.damage.is_empty() {
        match report.bytes {
            // All rows are in the log so far, whose bytes are not counted.
            0 => writeln!(out, "no damage")?,
            bytes => writeln!(out, "no damage in {} bytes", thousands(bytes))?,
        }
        return Ok(());
    }
    out.flush()?;
    report!(
        "thalweg: {path} is damaged in {}: copy the folder, then 'thalweg verify --repair {path}' keeps what is whole and \
         lists what is lost",
        counted(report.damage.len() as u64, "place"),
        path = call.database.display(),
    );
    Err(Failure::Told)
}

fn repair(call: &VerifyCall) -> Result<(), Failure> {
    let bar = progress::bytes("repair", None);
    let report = Database::repair(&call.database, &mut |bytes| bar.inc(bytes))
        .map_err(|error| explain(error, &call.database))?;
    bar.finish_and_clear();
    let mut out = stdout().lock();
    let bytes = thousands(report.checked.bytes);
    if report.is_clean() {
        match report.checked.bytes {
            0 => writeln!(out, "no damage: nothing was changed")?,
            _ => writeln!(out, "no damage in {bytes} bytes: nothing was changed")?,
        }
        return Ok(());
    }
    let db = opening::for_reading(&call.database)?;
    let view = db.snapshot()?;
    for line in lines(&report.given_up, &view, call.details) {
        writeln!(out, "given up: {line}")?;
    }
    for line in lines(&report.mended, &view, call.details) {
        writeln!(out, "mended: {line}")?;
    }
    for table in &report.renamed {
        writeln!(out, "renamed: {table}")?;
    }
    writeln!(
        out,
        "checked {} in {bytes} bytes; {} moved to new files",
        counted(report.checked.rows, "row"),
        counted(report.moved_blocks, "block"),
    )?;
    out.flush()?;
    let lost = match report.given_up.len() as u64 {
        0 => "no row was lost".to_owned(),
        places => format!("without what was given up in {}", counted(places, "place")),
    };
    report!(
        "thalweg: {} was damaged and is whole again, {lost}; the next opening for writing removes files that nothing is left of",
        call.database.display(),
    );
    Err(Failure::Told)
}

/// The tables and rows that were checked, without a table that an interrupted import left: no list shows it, and the next opening for
/// writing drops it.
fn listed(report: &VerifyReport, tables: u64, rows: u64) -> (u64, u64) {
    match report.tables > tables {
        true => (tables, report.rows.min(rows)),
        false => (report.tables, report.rows),
    }
}

fn rows_of(view: &DatabaseView) -> Result<u64, Failure> {
    let mut rows = 0;
    for name in view.table_names() {
        rows += view.table(&name)?.stats().map_or(0, |stats| stats.rows);
    }
    Ok(rows)
}

fn bytes_of(view: &DatabaseView) -> Result<u64, Failure> {
    let mut bytes = 0;
    for name in view.table_names() {
        bytes += view.table(&name)?.stats().map_or(0, |stats| stats.bytes);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_interrupted_imports_are_not_counted() {
        let report = VerifyReport {
            tables: 2,
            rows: 150,
            ..VerifyReport::default()
        };
        assert_eq!(listed(&report, 1, 100), (1, 100));
        assert_eq!(listed(&report, 2, 100), (2, 150));
    }
}
