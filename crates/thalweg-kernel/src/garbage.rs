//! Files that nothing needs any more: found by marking, deleted when no snapshot can miss them.
//!
//! Invariants: what is deleted is not referenced by the snapshot that was marked, is older than the log that either root
//! slot would replay, is not being staged, and is needed by no older snapshot of this or another process, unless that one
//! has been in the way for too long. Of a table whose index cannot be read it is not known what it needs, so all that may be
//! its stays: every segment, and every fragment but those whose headers name another table. So the files named by
//! commits that wait for a page of that index stay as well. No file is cut or written again before it is deleted, and no id is
//! used twice: who comes too late finds a file missing, never other bytes. Marking reads index pages only, and only
//! those that have changed since it was done last ([`crate::file_uses`]). It is done after something was dropped or replaced,
//! when the log goes on in a new segment, at opening, and after the next checkpoint if something could not be removed yet.

use crate::commit::Durability;
use crate::error::{Error, Result};
use crate::failure::refusal;
use crate::file_uses::{FileUse, Found, KnownUses, uses_of};
use crate::fragment::fragment_table;
use crate::ids::{FileId, TableId};
use crate::job::Job;
use crate::live::PinPlace;
use crate::paths::{list_fragments, list_segments, segment_path};
use crate::reader_slots::SlotsSeen;
use crate::root::SLOTS;
use crate::segment;
use crate::space_estimates::CLEANING_CHECKPOINTS;
use crate::state::Snapshot;
use crate::store::Store;
use crate::writer::{EMPTY_FRAGMENTS, Writer};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_env::sync::Mutex;
use thalweg_env::{Env, Metadata};

/// How soon a file that could not be removed calls for another round.
const REMOVE_AGAIN_NS: u64 = 10_000_000_000;

/// Removes files, round by round.
pub(crate) struct Cleaner {
    writer: Arc<Writer>,
    /// The snapshots that reading processes pin, with the times since when they have kept garbage.
    slots: Mutex<SlotsSeen>,
    /// Segments that the last round has left: nothing needs them once there are two more checkpoints.
    left_by_cleaning: Mutex<RangeInclusive<FileId>>,
    /// When the removal of a file failed: it calls for another round some time later.
    not_removed: Mutex<BTreeMap<FileId, u64>>,
    /// Garbage that was left because of snapshots. It stays until they have gone, whatever rounds come after it: each of those
    /// waits for later ones.
    behind_pins: Mutex<Option<Waiting>>,
}

impl Cleaner {
    pub(crate) fn new(writer: Arc<Writer>, max_snapshot_age: Duration) -> Self {
        Self {
            writer,
            slots: Mutex::new(SlotsSeen::new(max_snapshot_age)),
            left_by_cleaning: Mutex::new(FileId(0)..=FileId(0)),
            not_removed: Mutex::default(),
            behind_pins: Mutex::new(None),
        }
    }

    /// Finds the files that can go as of now: they were given out before the first line, are not staged now, and the
    /// snapshot taken after it does not need them. Nothing can need them again: a segment that is left gets no more
    /// frames, a fragment becomes part of a table only from among the staged ones. Runs in the leader, so that no
    /// commit is under way that has taken a fragment out of the staged ones and is not in the snapshot yet.
    pub(crate) fn mark(&self) -> Result<Marked> {
        let writer = &self.writer;
        if let Some(poison) = writer.poison() {
            return Err(refusal(&poison));
        }
        let (staged, written, bound) = writer.with_leader(|leader| {
            // The bound first: what was given out before it is staged by now, or was.
            let bound = writer.supply.file_id_bound();
            let staged = writer.staged.lock().keys().copied().collect();
            (staged, leader.written_segment(), bound)
        })?;
        let snapshot = writer.snapshot();
        let needed = live_files(&snapshot, writer)?;
        Ok(Marked {
            snapshot,
            needed,
            staged,
            written,
            bound,
        })
    }

    /// Removes it; what snapshots may need waits for [`Self::finish_waiting`]. Whether all has gone.
    pub(crate) fn collect(&self, marked: Marked, min_bytes: u64) -> Result<bool> {
        let collected = collect(self, marked, min_bytes)?;
        let Some(waiting) = collected.waiting else {
            return Ok(true);
        };
        self.behind_pins.lock().get_or_insert(waiting);
        Ok(false)
    }

    /// Removes what goes now, for whoever may have seen to what was in the way. How many files.
    pub(crate) fn collect_all(&self) -> Result<usize> {
        self.not_removed.lock().clear();
        let marked = self.mark()?;
        collect(self, marked, 0).map(|collected| collected.files)
    }

    /// Removes the garbage that has waited for snapshots, if they are gone by now; returns whether none waits any more.
    pub(crate) fn finish_waiting(&self) -> Result<bool> {
        let Some(waiting) = self.behind_pins.lock().take() else {
            return Ok(true);
        };
        let done = waiting.finish(self)?;
        let waits = done.waiting.is_some();
        *self.behind_pins.lock() = done.waiting;
        Ok(!waits)
    }

    /// Whether garbage waits for snapshots to go.
    pub(crate) fn waits_for_pins(&self) -> bool {
        self.behind_pins.lock().is_some()
    }

    /// Notes a file that could not be removed.
    fn note_not_removed(&self, file: FileId) {
        let now_ns = self.writer.env.clock().monotonic_ns();
        self.not_removed.lock().insert(file, now_ns);
    }

    /// Files that could not be removed a moment ago.
    fn not_removed_lately(&self) -> BTreeSet<FileId> {
        let now_ns = self.writer.env.clock().monotonic_ns();
        let mut not_removed = self.not_removed.lock();
        not_removed.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < REMOVE_AGAIN_NS);
        not_removed.keys().copied().collect()
    }
}

/// The result of a round.
struct Collected {
    /// Files that were removed.
    files: usize,
    /// Files that were left, because snapshots may need them.
    waiting: Option<Waiting>,
}

impl Collected {
    fn files(files: usize) -> Self {
        Self {
            files,
            waiting: None,
        }
    }
}

/// Files that go once no snapshot before a commit is in use. That is waited for with what was marked then: marked anew, at a later
/// commit, they would wait for the snapshots that were taken meanwhile, and where queries overlap there are always some.
struct Waiting {
    needed: Needed,
    written: FileId,
    /// Of the state that was marked. No commit that was visible is undone while the database is open, so this holds in later
    /// epochs as well.
    at: PinPlace,
    dead: Vec<Dead>,
    dead_bytes: u64,
}

impl Waiting {
    /// Whether snapshots are in the way, here or in another process, that have not been so for too long there.
    fn is_pinned(&self, cleaner: &Cleaner) -> Result<bool> {
        is_pinned_before(cleaner, self.at)
    }

    /// Deletes the files, unless that is for snapshots to wait for.
    fn finish(self, cleaner: &Cleaner) -> Result<Collected> {
        let keeps_waiting =
            (cleaner.writer).with_leader(|leader| leader.dropped().keeps_waiting())?;
        if !keeps_waiting && self.dead.iter().all(|dead| dead.bytes(cleaner) == 0) {
            // A later round has removed them.
            return Ok(Collected::files(0));
        }
        if self.is_pinned(cleaner)? {
            return Ok(Collected {
                files: 0,
                waiting: Some(self),
            });
        }
        remove(cleaner, self)
    }
}

/// The files that a snapshot needs, and others that must not be touched: one walk over the index serves all of a round.
pub(crate) struct Marked {
    pub(crate) snapshot: Snapshot,
    pub(crate) needed: Needed,
    staged: HashSet<FileId>,
    written: FileId,
    bound: FileId,
}

/// The files that a snapshot needs, as far as the index can be read.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    pub(crate) files: HashMap<FileId, Live>,
    /// Tables with an index page that cannot be read.
    pub(crate) unreadable: Vec<TableId>,
}

impl Needed {
    fn add(&mut self, order: (TableId, u32), uses: &[FileUse]) {
        for used in uses {
            let file = self.files.entry(used.file).or_default();
            // Lists of a hostile checkpoint may claim anything of a file, though each of them is checked.
            file.bytes = file
                .bytes
                .saturating_add(used.block_bytes)
                .saturating_add(used.page_bytes);
            if used.block_bytes > 0 {
                file.orders.push(order);
            }
        }
    }

    fn may_need(&self, dead: &Dead, store: &Store) -> bool {
        if self.files.contains_key(&dead.id) {
            return true;
        }
        // No table needs an empty fragment, whatever its index has.
        if self.unreadable.is_empty() || dead.is_empty_fragment(store.env()) {
            return false;
        }
        let of_table = if dead.is_segment {
            None
        } else {
            fragment_table(store, dead.id)
        };
        of_table.is_none_or(|table| self.unreadable.contains(&table))
    }
}

/// How much of a file is needed, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Of blocks and index pages.
    pub(crate) bytes: u64,
    /// Orders of tables with blocks in it.
    pub(crate) orders: Vec<(TableId, u32)>,
}

/// Deletes what can go: empty fragments always, the rest if that is at least `min_bytes`.
fn collect(cleaner: &Cleaner, marked: Marked, min_bytes: u64) -> Result<Collected> {
    let mut dead = unneeded(cleaner, &marked)?;
    let empty_fragments = remove_empty_fragments(cleaner, &mut dead)?;
    let collected = remove_dead(cleaner, marked, dead, min_bytes)?;
    Ok(Collected {
        files: collected.files + empty_fragments,
        ..collected
    })
}

/// Deletes files that hold something, if that is at least `min_bytes`.
fn remove_dead(
    cleaner: &Cleaner,
    marked: Marked,
    dead: Vec<Dead>,
    min_bytes: u64,
) -> Result<Collected> {
    let (awaits_cleaning, keeps_waiting, dropped_in) = cleaner.writer.with_leader(|leader| {
        let dropped = leader.dropped();
        (
            dropped.awaits_cleaning(),
            dropped.keeps_waiting(),
            dropped.last_segment(),
        )
    })?;
    // Segments that the last round has left do not call for another one, which would leave as many. One with what was dropped
    // does, once the log has left it.
    let left = cleaner.left_by_cleaning.lock().clone();
    let is_left =
        |dead: &Dead| dead.is_segment && left.contains(&dead.id) && Some(dead.id) > dropped_in;
    // Files that could not be removed a moment ago call for no round either; nor, while there are any, do the segments that the
    // round for them has left.
    let not_removed = cleaner.not_removed_lately();
    let has_failed = |dead: &Dead| not_removed.contains(&dead.id);
    let takes_all = min_bytes == 0 || (awaits_cleaning && not_removed.is_empty());
    let calls = |dead: &&Dead| !has_failed(dead) && (takes_all || !is_left(dead));
    // Empty leftovers alone are not worth the checkpoints, least of all on the full disk that left them behind. For a drop that
    // waits for these they are written also where nothing can go.
    let dead_bytes: u64 = { dead.iter().filter(calls) }
        .map(|dead| dead.bytes(cleaner))
        .sum();
    if dead_bytes < min_bytes.max(1) && !keeps_waiting {
        return Ok(Collected::files(0));
    }
    let Marked {
        snapshot,
        needed,
        written,
        ..
    } = marked;
    let waiting = Waiting {
        needed,
        written,
        at: PinPlace {
            epoch: snapshot.state().epoch,
            commit: snapshot.commit(),
        },
        dead,
        dead_bytes,
    };
    // It must not be in the way of a round that comes before this one.
    drop(snapshot);
    waiting.finish(cleaner)
}

/// Deletes files that no snapshot needs.
fn remove(cleaner: &Cleaner, mut waiting: Waiting) -> Result<Collected> {
    let writer = &cleaner.writer;
    let (commit, dead_bytes) = (waiting.at.commit, waiting.dead_bytes);
    let (awaits_cleaning, keeps_waiting) = writer.with_leader(|leader| {
        let dropped = leader.dropped();
        (dropped.awaits_cleaning(), dropped.keeps_waiting())
    })?;
    // Two checkpoints, so that neither root slot needs anything old, and no page in memory has an address of its own.
    // Not for what was replaced: that comes by itself, again and again. Nor for a few bytes, unless the next drop waits for that:
    // it may be the one that frees much.
    let usual_bytes = writer
        .supply
        .sizes
        .room_for_checkpoints(CLEANING_CHECKPOINTS);
    let serves_drop = keeps_waiting || (awaits_cleaning && dead_bytes > usual_bytes);
    for _ in 0..CLEANING_CHECKPOINTS {
        let job = match serves_drop {
            true => Job::CheckpointToFree,
            false => Job::Checkpoint { always: true },
        };
        let done = writer.submit(job, Durability::Disk);
        // The last one may have been long, with pages that are in no other: a drop need not wait for as much room again.
        let is_worth_it = || awaits_cleaning && dead_bytes > writer.supply.min_cleaning_bytes();
        match segment::is_full(&done) && !serves_drop && is_worth_it() {
            true => writer.submit(Job::CheckpointToFree, Durability::Disk)?,
            false => done?,
        };
    }
    // The one that was written to when the round began holds what was garbage before, the others its own checkpoints.
    let written = writer.with_leader(|leader| leader.written_segment())?;
    *cleaner.left_by_cleaning.lock() = waiting.written..=written;
    let after = writer.snapshot();
    let still_needed = live_files(&after, writer)?;
    let (log_floor, next_file) = writer.with_leader(|leader| {
        let next_file = leader.root().min_next_file();
        (leader.oldest_needed_segment(), next_file)
    })?;
    if after.commit() == commit {
        // No snapshot lies between the two states: what neither needs goes, also if it was written to until the checkpoints.
        let segments = unneeded_segments(cleaner, &waiting.needed, waiting.written..log_floor)?;
        waiting.dead.extend(segments);
    }
    waiting.dead.retain(|dead| {
        let is_replayed = dead.is_segment && dead.id >= log_floor;
        dead.id < next_file && !is_replayed && !still_needed.may_need(dead, &writer.store)
    });
    // A drop that only the operating system has could be undone by a power cut, after the files are gone.
    writer.flush()?;
    writer.with_leader(|leader| leader.raise_gc_floor(commit))??;
    drop(after);
    if waiting.is_pinned(cleaner)? {
        // A reader may still need them; a later round will see.
        return Ok(Collected {
            files: 0,
            waiting: Some(waiting),
        });
    }
    // One that cannot be removed keeps no other.
    let mut failed = None;
    for Dead { id, path, .. } in &waiting.dead {
        writer.store.forget_file(*id);
        match writer.env.storage().remove_file(path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => {
                cleaner.note_not_removed(*id);
                let doing = format_args!("removing {}", path.display());
                failed.get_or_insert(Error::io(doing, e));
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if !waiting.dead.is_empty() {
        let is_alone = writer.with_leader(|leader| {
            // Not for a table that was dropped meanwhile.
            leader.dropped_mut().was_cleaned(commit);
            leader.both_slots_name_the_state()
        })?;
        if is_alone {
            // There was no room for two. By now there should be; else the next one will do.
            let _ = writer.submit(Job::Checkpoint { always: true }, Durability::Disk);
        }
    }
    Ok(Collected::files(waiting.dead.len()))
}

/// Removes empty fragments, which are left where writing one has failed, and takes them out of `dead`; returns how many have gone.
/// They were never part of a table, so no slot of the root and no snapshot needs them.
fn remove_empty_fragments(cleaner: &Cleaner, dead: &mut Vec<Dead>) -> Result<usize> {
    let writer = &cleaner.writer;
    let min_next_file = || writer.with_leader(|leader| leader.root().min_next_file());
    let empty = dead.extract_if(.., |dead| dead.is_empty_fragment(&writer.env));
    let empty: Vec<Dead> = empty.collect();
    let mut bound = min_next_file()?;
    // Checkpoints raise it: for many of them, and where these do not take the room that others need.
    let is_many = empty.iter().filter(|dead| dead.id >= bound).count() >= EMPTY_FRAGMENTS;
    if is_many && writer.with_leader(|_| writer.supply.may_clean_now())? {
        for _slot in 0..SLOTS {
            let _ = writer.submit(Job::Checkpoint { always: true }, Durability::Disk);
        }
        bound = min_next_file()?;
    }
    let left = empty.iter().filter(|dead| dead.id >= bound).count();
    writer.empty_fragments.store(left, Ordering::Relaxed);
    if left > 0 {
        writer.due.garbage_stays();
    }
    // One that cannot be removed is found again in a later round.
    let is_removed =
        |dead: &&Dead| dead.id < bound && writer.env.storage().remove_file(&dead.path).is_ok();
    let removed = empty.iter().filter(is_removed);
    Ok(removed
        .inspect(|dead| writer.store.forget_file(dead.id))
        .count())
}

/// Whether a snapshot before `floor` is in use, here or in another process, and has not been in the way for too long there.
fn is_pinned_before(cleaner: &Cleaner, floor: PinPlace) -> Result<bool> {
    let writer = &cleaner.writer;
    let here = writer.recent.oldest().is_some_and(|pin| pin < floor);
    let mut slots = cleaner.slots.lock();
    // Checked in any case: for those in the way the time begins now.
    let elsewhere = slots.is_pinned_before(&writer.env, &writer.dir, floor)?;
    Ok(here || elsewhere)
}

/// A file that nothing needs.
struct Dead {
    id: FileId,
    path: PathBuf,
    is_segment: bool,
}

impl Dead {
    /// Whether it is an empty fragment: writing one that fails leaves it. A file whose length cannot be read counts as not empty.
    fn is_empty_fragment(&self, env: &Env) -> bool {
        let is_empty = |found: Metadata| found.len_bytes == 0;
        !self.is_segment && env.storage().metadata(&self.path).is_ok_and(is_empty)
    }

    /// 0 if it is gone.
    fn bytes(&self, cleaner: &Cleaner) -> u64 {
        let found = cleaner.writer.env.storage().metadata(&self.path);
        found.map_or(0, |found| found.len_bytes)
    }
}

/// The segments of a range of ids that are not needed.
fn unneeded_segments(
    cleaner: &Cleaner,
    needed: &Needed,
    ids: Range<FileId>,
) -> Result<impl Iterator<Item = Dead>> {
    let writer = &cleaner.writer;
    let segments = list_segments(&writer.env, &writer.dir)?;
    let segments = segments.into_iter().filter(move |id| ids.contains(id));
    let dead = segments.map(|id| Dead {
        id,
        path: segment_path(&writer.dir, id),
        is_segment: true,
    });
    Ok(dead.filter(|dead| !needed.may_need(dead, &writer.store)))
}

/// The files that are not needed: of the segments those before the written one, of the fragments those below the bound.
fn unneeded(cleaner: &Cleaner, marked: &Marked) -> Result<Vec<Dead>> {
    let writer = &cleaner.writer;
    let segments = unneeded_segments(cleaner, &marked.needed, FileId(0)..marked.written)?;
    let fragments = list_fragments(&writer.env, &writer.dir)?;
    let fragments = fragments
        .into_iter()
        .filter(|id| *id < marked.bound && !marked.staged.contains(id))
        .map(|id| Dead {
            id,
            path: writer.store.fragment_path(id),
            is_segment: false,
        })
        .filter(|dead| !marked.needed.may_need(dead, &writer.store));
    Ok(segments.chain(fragments).collect())
}

/// The bytes of each file that blocks and index pages of a snapshot take; a file that is not listed is not needed. What had to be
/// found by a walk is handed to the leader: checkpoints store it.
fn live_files(snapshot: &Snapshot, writer: &Writer) -> Result<Needed> {
    let mut needed = Needed::default();
    let mut learned = Vec::new();
    for table in snapshot.state().tables.iter() {
        let trees = { table.trees() }.filter(|(_, tree)| !tree.is_empty());
        for (order, tree) in trees {
            let place = (table.id, order);
            let known = table.known_uses(order);
            // As it is now: pages of it may be written meanwhile.
            let tree = tree.frozen();
            match uses_of(known.as_deref(), &tree, &*writer.store) {
                Ok(found) => {
                    needed.add(place, &found);
                    if let Found::Walked(uses) = found {
                        learned.push((place, KnownUses::new(&tree, uses)));
                    }
                }
                // Damaged or not to be read now: what is kept for nothing goes in a later round. What was found counts in any case.
                Err((_, found)) => {
                    needed.add(place, &found);
                    needed.unreadable.push(table.id);
                }
            }
        }
    }
    if !learned.is_empty() {
        writer.with_leader(|leader| leader.learn_uses(learned))?;
    }
    Ok(needed)
}
