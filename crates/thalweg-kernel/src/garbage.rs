//! Files that nothing needs any more: found by marking, deleted when no snapshot can miss them.
//!
//! Invariants: what is deleted is not referenced by the snapshot that was marked, is older than the log that either root
//! slot would replay, is not being staged, and is needed by no older snapshot of this or another process. Marking reads
//! index pages only.
//!
//! Rejected: counting live bytes per file at every commit. It puts the bookkeeping on the path of each append and must
//! survive recovery exactly; marking costs one walk over the index, which is a thousandth of the data, and only after
//! something was dropped or replaced, when the log goes on in a new segment, at opening, and behind the next checkpoint
//! if something could not be removed yet.

use crate::commit::Durability;
use crate::error::{Error, Result};
use crate::ids::{CommitNo, FileId};
use crate::index::{Entry, Step};
use crate::leader::Job;
use crate::live::PinPlace;
use crate::open::list_fragments;
use crate::queue::refusal;
use crate::reader_slots::oldest_pin;
use crate::segment::{list_segments, segment_path};
use crate::state::Snapshot;
use crate::store::Store;
use crate::writer::Writer;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// What was done.
pub(crate) struct Collected {
    /// Files that were removed.
    pub(crate) files: usize,
    /// Nothing is left that a later round could remove.
    pub(crate) all: bool,
}

/// Deletes what can go.
pub(crate) fn collect(writer: &Writer) -> Result<Collected> {
    if let Some(poison) = writer.poison() {
        return Err(refusal(&poison));
    }
    // In this order: a fragment that becomes part of a table after this line is still listed here, one that did before
    // is in the snapshot.
    let staged: HashSet<FileId> = writer.staged.lock().clone();
    // What is needed before and after the checkpoints: a table that is dropped between them is still in the older root
    // slot, whose replay may read its index.
    let before = writer.snapshot();
    let mut needed = staged;
    needed.extend(live_bytes(&before, &writer.store)?.into_keys());
    // Looked for twice: most of the time there is nothing, and no reason for checkpoints.
    let written = writer.with_leader(|leader| leader.written_segment());
    if unneeded(writer, &needed, written, writer.supply.file_id_bound())?.is_empty() {
        return Ok(Collected {
            files: 0,
            all: true,
        });
    }
    let stays = Collected {
        files: 0,
        all: false,
    };
    let commit = before.commit();
    if is_pinned_before(writer, commit)? {
        return Ok(stays);
    }
    // Two checkpoints, so that neither root slot needs anything old, and no page in memory has an address of its own.
    writer.submit(Job::Checkpoint { always: true }, Durability::Disk)?;
    writer.submit(Job::Checkpoint { always: true }, Durability::Disk)?;
    let after = writer.snapshot();
    needed.extend(live_bytes(&after, &writer.store)?.into_keys());
    // A file whose id the root does not lie above stays: its removal could be undone by a power cut, and an id that was
    // given out anew would name two files.
    let (log_floor, next_file) = writer.with_leader(|leader| {
        let next_file = leader.root.current.next_file;
        (leader.oldest_replayed_segment(), next_file)
    });
    let unneeded = unneeded(writer, &needed, log_floor, next_file)?;
    // A drop that only the operating system has could be undone by a power cut, after the files are gone.
    writer.flush()?;
    writer.with_leader(|leader| leader.raise_gc_floor(commit))?;
    drop((before, after));
    if is_pinned_before(writer, commit)? {
        // A reader may still need them; a later round will see.
        return Ok(stays);
    }
    for (id, path) in &unneeded {
        writer.store.forget_file(*id);
        match writer.env.storage().remove_file(path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(format_args!("removing {}", path.display()), e)),
        }
    }
    Ok(Collected {
        files: unneeded.len(),
        all: true,
    })
}

/// Whether a snapshot before `commit` is in use, here or in another process.
fn is_pinned_before(writer: &Writer, commit: CommitNo) -> Result<bool> {
    let epoch = writer.with_leader(|leader| leader.root.current.epoch);
    let here = writer.pins.oldest().is_some_and(|pin| pin < commit);
    let floor = PinPlace { epoch, commit };
    Ok(here || oldest_pin(&writer.env, &writer.dir)?.is_some_and(|pin| pin < floor))
}

/// The files that are not needed and where they lie: of the segments those before `log_floor`, of the fragments those
/// before `next_file`.
fn unneeded(
    writer: &Writer,
    needed: &HashSet<FileId>,
    log_floor: FileId,
    next_file: FileId,
) -> Result<Vec<(FileId, PathBuf)>> {
    let segments = list_segments(&writer.env, &writer.dir)?;
    let segments = segments
        .into_iter()
        .filter(|id| *id < log_floor)
        .map(|id| (id, segment_path(&writer.dir, id)));
    let fragments = list_fragments(&writer.env, &writer.dir)?;
    let fragments = fragments
        .into_iter()
        .filter(|id| *id < next_file)
        .map(|id| (id, writer.store.fragment_path(id)));
    // Staged now: handed out after the marking began, and not there yet when the snapshot was taken.
    let staged = writer.staged.lock();
    Ok(segments
        .chain(fragments)
        .filter(|(id, _)| !needed.contains(id) && !staged.contains(id))
        .collect())
}

/// How many bytes of each file the blocks and index pages of a snapshot take; a file that is not there is not needed.
pub(crate) fn live_bytes(snapshot: &Snapshot, store: &Store) -> Result<HashMap<FileId, u64>> {
    let mut live = HashMap::new();
    for table in snapshot.tables() {
        // If something was appended since the checkpoint the root is in memory; what it leads to is marked by the walk.
        let mut count = |entry: &Entry| {
            *live.entry(entry.address.file).or_default() += u64::from(entry.address.bytes);
        };
        if !table.tree.is_dirty() {
            table.tree.root_entry().iter().for_each(&mut count);
        }
        table.tree.visit(None, store, &mut |entry| {
            count(entry);
            if entry.is_block() {
                Step::Take
            } else {
                Step::Descend
            }
        })?;
    }
    Ok(live)
}
