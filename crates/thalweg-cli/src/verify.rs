//! `thalweg verify`: checks every byte, and says what is damaged and what is lost with it.

use crate::arguments::VerifyCall;
use crate::failure::Failure;
use crate::progress;
use crate::sql::{counted, thousands};
use crate::stats::time_text;
use std::io::{Write, stdout};
use thalweg::{Damage, Database, DatabaseView};

/// `thalweg verify`.
pub(crate) fn run(call: &VerifyCall) -> Result<(), Failure> {
    if call.repair {
        return Err(Failure::unsupported("verify --repair"));
    }
    let db = Database::builder().read_only(true).open(&call.database)?;
    let view = db.snapshot()?;
    let bar = progress::bytes("verify", Some(bytes_of(&view)?));
    let report = db.verify(&mut |bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    let mut out = stdout().lock();
    for damage in &report.damage {
        writeln!(out, "{}", describe(damage, &view))?;
    }
    writeln!(
        out,
        "checked {} of {}: {}, {} of the index, {}; {} of the log",
        counted(report.rows, "row"),
        counted(report.tables, "table"),
        counted(report.blocks, "block"),
        counted(report.pages, "page"),
        counted(report.fragments, "fragment"),
        counted(report.frames, "frame"),
    )?;
    if report.damage.is_empty() {
        writeln!(out, "no damage in {} bytes", thousands(report.bytes))?;
        return Ok(());
    }
    out.flush()?;
    eprintln!(
        "thalweg: {} is damaged in {}",
        call.database.display(),
        counted(report.damage.len() as u64, "place")
    );
    Err(Failure::Told)
}

fn bytes_of(view: &DatabaseView) -> Result<u64, Failure> {
    let mut bytes = 0;
    for name in view.table_names() {
        bytes += view.table(&name)?.stats().map_or(0, |stats| stats.bytes);
    }
    Ok(bytes)
}

fn describe(damage: &Damage, view: &DatabaseView) -> String {
    let place = format!("{}, offset {}", damage.file.display(), damage.offset);
    let Some(name) = &damage.table else {
        return format!("{place}: {}", damage.what);
    };
    let rows = match (view.table(name), damage.keys) {
        (Ok(table), Some((first, last))) => {
            format!(
                ", rows from {} to {}",
                time_text(&table, first),
                time_text(&table, last)
            )
        }
        _ => String::new(),
    };
    format!("{place}, table \"{name}\"{rows}: {}", damage.what)
}
