//! New rows of a transaction: raw in its draft, or in files.
//!
//! Invariant: they stay in the order in which they came. Raw rows go to files before rows of a statement that are in files already.

use crate::deleted_rows::{DeletedRows, push_open_rows};
use crate::drafts::{DraftChange, Drafts, abandon, roots_of};
use crate::engine::AppendLimits;
use crate::intake::Intake;
use crate::rows::RowsDecoder;
use crate::table::Table;
use thalweg_kernel::{Commit, CommitNo, Result, TableSnapshot};

/// All raw rows of a table together get into files at so many times the bytes of raw rows of a commit.
const DRAFT_RAW_TOGETHER: usize = 64;

/// Makes the change of a statement in the draft of its transaction. `seen`: as often had raw rows gone to files before it was planned.
pub(crate) fn add_to_draft(
    table: &Table,
    drafts: &Drafts,
    seen: u64,
    change: DraftChange,
) -> Result<()> {
    let store = table.engine().kernel().store();
    drafts.change((table.id(), seen), change, &**store)
}

/// Puts the raw rows of a draft into files before rows of a statement that are in files already: so they stay in the order in which
/// they came. Else only if they are many.
pub(crate) fn stage_before(table: &Table, drafts: &Drafts, change: &DraftChange) -> Result<()> {
    match change.roots.is_empty() {
        true => stage_many(table, drafts),
        false => stage(table, drafts, 1),
    }
}

/// Puts the raw rows of a draft into files if they are many.
pub(crate) fn stage_many(table: &Table, drafts: &Drafts) -> Result<()> {
    let limits = table.engine().options().append_limits;
    stage(table, drafts, DRAFT_RAW_TOGETHER * limits.raw_bytes)
}

/// Puts the raw rows of a draft into files if they have so many bytes.
fn stage(table: &Table, drafts: &Drafts, min_bytes: usize) -> Result<()> {
    let engine = table.engine();
    let limits = engine.options().append_limits;
    while let Some((view, base, seen)) = drafts.raw_rows(table.id(), min_bytes)? {
        let commit = commit_of_new_rows(table, (&view, base), limits.staged())?;
        let roots = roots_of(&commit.edits);
        let store = engine.kernel().store();
        let replaced = drafts.replace_raw_rows((table.id(), seen), roots.clone(), &**store);
        if matches!(replaced, Ok(true)) {
            break;
        }
        abandon(engine, &roots);
        replaced?;
    }
    Ok(())
}

/// The raw rows of commits after one, without those that are hidden, as a commit that stores them.
pub(crate) fn commit_of_new_rows(
    table: &Table,
    (view, after): (&TableSnapshot, CommitNo),
    limits: AppendLimits,
) -> Result<Commit> {
    let shape = table.shape();
    let mut intake = Intake::new(table, &shape, &|| true).within(limits);
    let named = |error| table.name_error(error);
    for open in view.open_rows().filter(|open| open.commit > after) {
        let mut decoder = RowsDecoder::new(&shape.definition, None)?;
        let mut deleted = DeletedRows::default();
        push_open_rows(open, view.hidden_in(open), &mut decoder, &mut deleted)?;
        let rows = deleted.taken_out_of(decoder.finish()?)?;
        intake.push(&rows).map_err(named)?;
    }
    let (commit, _) = intake.finish().map_err(named)?;
    Ok(commit)
}
