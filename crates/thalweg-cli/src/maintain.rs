//! `thalweg maintain`: late rows in order, and short blocks together. Ctrl-C ends it at once: what was done until then stays
//! done.

use crate::arguments::MaintainCall;
use crate::counts::counted;
use crate::failure::Failure;
use crate::opening;
use thalweg::{Database, TableStats};

/// `thalweg maintain`.
pub(crate) fn run(call: &MaintainCall) -> Result<(), Failure> {
    let db = opening::there_for_writing(&call.database)?;
    let before = Sums::of(&db, call)?;
    let done = match &call.table {
        Some(name) => db.table(name)?.maintain()?,
        None => db.maintain()?,
    };
    let after = Sums::of(&db, call)?;
    db.close()?;
    let encoded = before.open_rows.saturating_sub(after.open_rows);
    if encoded > 0 {
        let blocks = after.blocks.saturating_sub(before.blocks);
        let into = if done.steps == 0 && blocks > 0 {
            format!("made into {}", counted(blocks, "block"))
        } else {
            "made into blocks".to_owned()
        };
        report!("{} {into}", counted(encoded, "row"));
    }
    if done.steps > 0 {
        report!(
            "wrote {} anew in {}",
            counted(done.rows, "row"),
            counted(done.steps, "commit")
        );
    }
    if encoded == 0 && done.steps == 0 {
        report!("everything was in order");
    }
    Ok(())
}

/// Counts over the tables of a call.
struct Sums {
    open_rows: u64,
    blocks: u64,
}

impl Sums {
    fn of(db: &Database, call: &MaintainCall) -> Result<Self, Failure> {
        let view = db.snapshot()?;
        let names = call
            .table
            .as_ref()
            .map_or_else(|| view.table_names(), |name| vec![name.clone()]);
        let stats: Vec<TableStats> = names
            .iter()
            .map(|name| view.table(name)?.stats())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            open_rows: stats.iter().map(|stats| stats.open_rows).sum(),
            blocks: stats.iter().map(|stats| stats.blocks).sum(),
        })
    }
}
