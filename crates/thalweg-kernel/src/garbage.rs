//! Files that nothing needs any more: found by marking, deleted when no snapshot can miss them.
//!
//! Invariants: what is deleted is not referenced by the snapshot that was marked, is older than the log that either root
//! slot would replay, is not being staged, and is needed by no older snapshot of this or another process. Marking reads
//! index pages only.
//!
//! Rejected: counting live bytes per file at every commit. It puts the bookkeeping on the path of each append and must
//! survive recovery exactly; marking costs one walk over the index, which is a thousandth of the data, and only after
//! something was dropped or rewritten.

use crate::commit::Durability;
use crate::error::{Error, Result};
use crate::ids::FileId;
use crate::index::Step;
use crate::leader::Job;
use crate::open::list_fragments;
use crate::reader_slots::oldest_pin;
use crate::segment::{list_segments, segment_path};
use crate::state::Snapshot;
use crate::store::Store;
use crate::writer::Writer;
use std::collections::HashSet;

/// Deletes what can go; returns how many files.
pub(crate) fn collect(writer: &Writer) -> Result<usize> {
    // In this order: a fragment that becomes part of a table after this line is still listed here, one that did before
    // is in the snapshot.
    let staged: HashSet<FileId> = writer.staged.lock().clone();
    // What is needed before and after the checkpoints: a table that is dropped between them is still in the older root
    // slot, whose replay may read its index.
    let before = writer.snapshot();
    // Two checkpoints, so that neither root slot needs anything old, and no page in memory has an address of its own.
    writer.submit(Job::Checkpoint { always: true }, Durability::Disk)?;
    writer.submit(Job::Checkpoint { always: true }, Durability::Disk)?;
    let after = writer.snapshot();
    let mut needed = mark(&before, &writer.store)?;
    needed.extend(mark(&after, &writer.store)?);
    needed.extend(staged);
    let log_floor = writer.with_leader(|leader| leader.oldest_replayed_segment());
    let segments = list_segments(&writer.env, &writer.dir)?;
    let fragments = list_fragments(&writer.env, &writer.dir)?;
    let unneeded_segments = segments
        .into_iter()
        .filter(|id| *id < log_floor && !needed.contains(id));
    let unneeded: Vec<(FileId, std::path::PathBuf)> = unneeded_segments
        .map(|id| (id, segment_path(&writer.dir, id)))
        .chain(
            fragments
                .into_iter()
                .filter(|id| !needed.contains(id))
                .map(|id| (id, writer.store.fragment_path(id))),
        )
        // Handed out after the marking began: not there yet when the snapshot was taken.
        .filter(|(id, _)| writer.staged.lock().get(id).is_none())
        .collect();
    if unneeded.is_empty() {
        return Ok(0);
    }
    // A drop that only the operating system has could be undone by a power cut, after the files are gone.
    writer.flush()?;
    let commit = before.commit();
    let floor = writer.with_leader(|leader| leader.raise_gc_floor(commit))?;
    drop((before, after));
    let mine = writer.pins.oldest().is_some_and(|pin| pin < commit);
    if mine || oldest_pin(&writer.env, &writer.dir)?.is_some_and(|pin| pin < floor) {
        // A reader may still need them; the next round will see.
        return Ok(0);
    }
    for (id, path) in &unneeded {
        writer.store.forget_file(*id);
        match writer.env.storage().remove_file(path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(format_args!("removing {}", path.display()), e)),
        }
    }
    Ok(unneeded.len())
}

/// The files that blocks and index pages of a snapshot lie in.
fn mark(snapshot: &Snapshot, store: &Store) -> Result<HashSet<FileId>> {
    let mut needed = HashSet::new();
    for table in snapshot.tables() {
        // If something was appended since the checkpoint the root is in memory; what it leads to is marked by the walk.
        if !table.tree.is_dirty() {
            needed.extend(table.tree.root_entry().map(|root| root.address.file));
        }
        table.tree.visit(None, store, &mut |entry| {
            needed.insert(entry.address.file);
            if entry.is_block() {
                Step::Take
            } else {
                Step::Descend
            }
        })?;
    }
    Ok(needed)
}
