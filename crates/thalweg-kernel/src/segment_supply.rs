//! Segments prepared ahead of the log, and the one kept for a full disk.
//!
//! Invariants: at most one spare and one reserve exist; the reserve is only given to commits that free space, to checkpoints
//! and to recovery, and nothing else goes into it. It has room for three checkpoints: what a drop needs before files can go
//! are the edit and two. Once it is used, other commits get a segment only after there is another one, so a drop frees space however
//! often the disk gets full. A spare gets its id when it is used, so ids rise along the log. Taking a segment never waits for the
//! preparing thread for longer than that thread needs for the segment it is making.
//!
//! Copy-on-write file systems (Btrfs, ZFS, bcachefs) take room for writes in place as well: on a full disk the reserve cannot
//! be written into, and neither can the segment in use, `root` or `live`. There it is given back instead: its space serves
//! the writes of the commit that frees space. That a write into a prepared segment, `root` or `live` finds no room is what
//! tells such a file system from others; on those the reserve stays where it is, because another program could take the
//! space first. Segments taken while it is given back count as the reserve: nothing else goes into them.

use crate::error::{Error, ErrorKind, Result};
use crate::frame::NEXT_FRAME_BYTES;
use crate::ids::{FileId, counts_as_used};
use crate::leader::{Failure, Outcome};
use crate::segment::{self, Prepared, Spare};
use std::path::PathBuf;
use thalweg_env::Env;
use thalweg_env::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::sync::{Condvar, Mutex};

/// The reserve is at least this part of a full segment, and takes so many checkpoints as large as the last one: two that
/// removing files needs, one for the edits that call for it.
const RESERVE_SHARE: u64 = 16;
const RESERVE_CHECKPOINTS: u64 = 3;
/// Of a reserve that is given back, a segment for three checkpoints takes half: on a copy-on-write file system its zeros, and
/// what is written over them.
const WRITTEN_TWICE: u64 = 2;
/// So many times as large is a reserve that is known to be given back: it takes what is written twice, and the first
/// checkpoint, which may be larger than the last one was.
const GIVEN_BACK_SHARE: u64 = 4;
/// Takes `root` and `live` in place, and directories.
const IN_PLACE_BYTES: u64 = 32 << 10;
const RESERVE_MIN_BYTES: u64 = 64 << 10;

/// A spare and a reserve are what an earlier process had.
const KEPT_LEFTOVERS: usize = 2;

pub(crate) struct SegmentSupply {
    env: Env,
    dir: PathBuf,
    next_file: AtomicU64,
    limit_bytes: u64,
    /// Of the last checkpoint.
    checkpoint_bytes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    reserve: Option<Spare>,
    /// It was given away or given back, and there is no other yet.
    reserve_is_used: bool,
    /// A write in place has found no room.
    copies_on_write: bool,
    /// The space of the reserve is free for commits that free space.
    is_given_back: bool,
    /// What an earlier process had prepared: taken on a full disk, else removed.
    leftovers: Vec<PathBuf>,
    /// Capacity wanted for the next spare; 0: none.
    wanted_bytes: u64,
    preparing: bool,
}

/// Whoever takes a segment waits for as long; also one that unwinds gives it up.
struct Preparing<'a>(&'a SegmentSupply);

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().preparing = false;
        self.0.changed.notify_all();
    }
}

impl SegmentSupply {
    pub(crate) fn new(env: Env, dir: PathBuf, next_file: FileId, limit_bytes: u64) -> Result<Self> {
        let mut leftovers = segment::list_spares(&env, &dir)?;
        leftovers.retain(|number| counts_as_used(*number, next_file));
        // Spares take numbers from the ids; those that a killed process left are still there.
        let unused = leftovers.last().map_or(0, |number| number.0 + 1);
        let state = State {
            leftovers: leftovers
                .into_iter()
                .map(|number| segment::spare_path(&dir, number))
                .collect(),
            ..State::default()
        };
        Ok(Self {
            env,
            dir,
            next_file: AtomicU64::new(next_file.0.max(unused)),
            limit_bytes,
            checkpoint_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// A file id that was never used.
    pub(crate) fn next_file_id(&self) -> FileId {
        FileId(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Above every id handed out so far.
    pub(crate) fn file_id_bound(&self) -> FileId {
        FileId(self.next_file.load(Ordering::Relaxed))
    }

    /// A segment for a frame of `frame_bytes` after one of `last_bytes`; the reserve if space is out and
    /// `may_use_reserve`. The next spare is wanted from then on.
    pub(crate) fn take(
        &self,
        last_bytes: u64,
        frame_bytes: u64,
        may_use_reserve: bool,
    ) -> Outcome<Prepared> {
        let mut capacity_bytes = segment::next_capacity(last_bytes, self.limit_bytes, frame_bytes);
        let needed_bytes = segment::SEGMENT_HEADER_BYTES as u64 + frame_bytes + NEXT_FRAME_BYTES;
        let mut state = self.state.lock();
        while state.preparing {
            self.changed.wait(&mut state);
        }
        let mut is_reserve = false;
        let was_used = state.reserve_is_used;
        if state.reserve_is_used && !may_use_reserve {
            self.renew_reserve(&mut state).map_err(Failure::Refused)?;
        }
        let is_given_back = state.is_given_back;
        if is_given_back {
            capacity_bytes = self.least_bytes(frame_bytes);
        }
        let fitting = state.spare.take_if(|s| s.capacity_bytes >= needed_bytes);
        let spare = match fitting.map_or_else(|| self.make(capacity_bytes), Ok) {
            // A reserve that cannot be written into is kept, to be given back.
            Err(error)
                if may_use_reserve
                    && error.kind() == ErrorKind::DiskFull
                    && (is_given_back || !state.copies_on_write) =>
            {
                is_reserve = true;
                let reserve = state.reserve.take_if(|r| r.capacity_bytes >= needed_bytes);
                state.reserve_is_used |= reserve.is_some();
                reserve
                    .or_else(|| self.adopt(&mut state.leftovers, needed_bytes))
                    .or_else(|| self.make(self.least_bytes(frame_bytes)).ok())
                    .ok_or(error)
            }
            made => made,
        }
        .map_err(Failure::Refused)?;
        state.wanted_bytes = segment::next_capacity(spare.capacity_bytes, self.limit_bytes, 0);
        let id = self.next_file_id();
        let used = segment::use_spare(&self.env, &self.dir, &spare, id);
        if matches!(&used, Err(Failure::Refused(_))) {
            state.reserve_is_used = was_used && state.reserve_is_used;
            let place = match is_reserve {
                true => &mut state.reserve,
                false => &mut state.spare,
            };
            if !self.is_there(&spare.path) {
                // The rename has happened although it failed: nothing will be written under the new name.
                self.remove(&segment::segment_path(&self.dir, id));
            } else if place.is_none() {
                // It has kept its name, and its room: a full disk has no other.
                *place = Some(spare);
            } else {
                self.remove(&spare.path);
            }
        }
        drop(state);
        self.changed.notify_all();
        let is_reserve = is_reserve || is_given_back;
        used.map(|used| Prepared { is_reserve, ..used })
    }

    /// Another reserve in the place of the one that was used, before there is room for anything else.
    fn renew_reserve(&self, state: &mut State) -> Result<()> {
        if state.reserve.is_none() {
            // A spare in the way is better had as the reserve. One that is only given back has to be larger, if there is room.
            let larger = match state.copies_on_write {
                true => self.make(self.reserve_bytes(false)).ok(),
                false => None,
            };
            state.reserve = Some(match larger.or_else(|| state.spare.take()) {
                Some(spare) => spare,
                None => self.make(self.reserve_bytes(true))?,
            });
        }
        state.reserve_is_used = false;
        state.is_given_back = false;
        Ok(())
    }

    /// How large a reserve is to be; `is_written_in`: a segment in the end, else only given back.
    fn reserve_bytes(&self, is_written_in: bool) -> u64 {
        let checkpoint_bytes = self.checkpoint_bytes.load(Ordering::Relaxed);
        let bytes = (self.limit_bytes / RESERVE_SHARE)
            .max(RESERVE_MIN_BYTES)
            .max((RESERVE_CHECKPOINTS * checkpoint_bytes).next_power_of_two());
        match is_written_in {
            true => bytes.min(self.limit_bytes),
            false => bytes * GIVEN_BACK_SHARE,
        }
    }

    /// As much as a segment must have for a frame, and for a checkpoint behind it. The next one gets a segment of its own: while
    /// each is synced before the next, the room for writing twice is that of one.
    fn least_bytes(&self, frame_bytes: u64) -> u64 {
        let checkpoint_bytes = self.checkpoint_bytes.load(Ordering::Relaxed);
        let more_bytes = checkpoint_bytes + checkpoint_bytes / 8;
        segment::next_capacity(0, 0, frame_bytes + more_bytes + NEXT_FRAME_BYTES)
    }

    /// Learns from a write into a prepared segment, `root` or `live` that failed: elsewhere these have their room.
    pub(crate) fn note_failed_write(&self, error: &Error) {
        if error.kind() == ErrorKind::DiskFull {
            self.state.lock().copies_on_write = true;
        }
    }

    /// Whether there may be no room for what is written in place.
    pub(crate) fn is_short(&self) -> bool {
        let free = self.env.storage().free_bytes(&self.dir);
        free.is_ok_and(|free| free < WRITTEN_TWICE * self.reserve_bytes(true) + IN_PLACE_BYTES)
    }

    /// The same where it is known to matter.
    pub(crate) fn needs_room_in_place(&self) -> bool {
        self.state.lock().copies_on_write && self.is_short()
    }

    /// Whether the space of the reserve is free, and for what.
    pub(crate) fn is_given_back(&self) -> bool {
        self.state.lock().is_given_back
    }

    /// Removes all that is prepared: its space then serves writes in place. Commits that free no space wait until there is
    /// another reserve.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock();
        while state.preparing {
            self.changed.wait(&mut state);
        }
        let prepared = [state.reserve.take(), state.spare.take()];
        let paths = prepared.into_iter().flatten().map(|spare| spare.path);
        paths
            .chain(std::mem::take(&mut state.leftovers))
            .for_each(|path| self.remove(&path));
        (state.reserve_is_used, state.is_given_back) = (true, true);
        state.wanted_bytes = 0;
    }

    /// The first segment of an epoch on a disk where the reserve was given back: no larger than it must be, and for what
    /// frees space.
    pub(crate) fn take_least(&self, frame_bytes: u64) -> Outcome<Prepared> {
        let capacity_bytes = self.least_bytes(frame_bytes);
        let made = self.make(capacity_bytes).map_err(Failure::Refused)?;
        let used = segment::use_spare(&self.env, &self.dir, &made, self.next_file_id());
        used.map(|used| Prepared {
            is_reserve: true,
            ..used
        })
    }

    /// Tells how large a checkpoint is: the reserve takes some of them.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether a segment may be had now: a cheap guess.
    pub(crate) fn may_have_room(&self) -> bool {
        let state = self.state.lock();
        if state.spare.is_some() || state.reserve.is_some() {
            return true;
        }
        let wanted_bytes = match state.is_given_back {
            true => self.least_bytes(0),
            false => segment::next_capacity(0, self.limit_bytes, 0),
        };
        drop(state);
        let free = self.env.storage().free_bytes(&self.dir);
        free.is_ok_and(|free| free >= wanted_bytes)
    }

    /// A segment for the beginning of an epoch, with room for `frame_bytes` and, up to the usual size of segments, for
    /// `more_bytes`; not synced, and, unless the disk is full, not named.
    pub(crate) fn take_first(&self, frame_bytes: u64, more_bytes: u64) -> Outcome<Prepared> {
        self.thin_leftovers();
        let wanted_bytes = (frame_bytes + more_bytes)
            .min(self.limit_bytes / 2)
            .max(frame_bytes);
        let capacity_bytes = segment::next_capacity(0, self.limit_bytes, wanted_bytes);
        let made = segment::make_first(&self.env, &self.dir, self.next_file_id(), capacity_bytes);
        match made {
            // What was prepared in better times can still be had.
            Err(error) if error.kind() == ErrorKind::DiskFull => self.take(0, frame_bytes, true),
            made => {
                let first = made.map_err(Failure::Refused)?;
                self.state.lock().wanted_bytes =
                    segment::next_capacity(first.capacity_bytes, self.limit_bytes, 0);
                self.changed.notify_all();
                Ok(first)
            }
        }
    }

    /// Removes all but the largest leftovers: openings that are killed again and again leave one each.
    fn thin_leftovers(&self) {
        let mut state = self.state.lock();
        if state.leftovers.len() <= KEPT_LEFTOVERS {
            return;
        }
        let storage = self.env.storage();
        let bytes_of = |path: &PathBuf| storage.metadata(path).map_or(0, |found| found.len_bytes);
        state.leftovers.sort_by_key(bytes_of);
        let surplus = state.leftovers.len() - KEPT_LEFTOVERS;
        state
            .leftovers
            .drain(..surplus)
            .for_each(|path| self.remove(&path));
    }

    fn make(&self, capacity_bytes: u64) -> Result<Spare> {
        segment::make_spare(&self.env, &self.dir, self.next_file_id(), capacity_bytes)
    }

    fn adopt(&self, leftovers: &mut Vec<PathBuf>, needed_bytes: u64) -> Option<Spare> {
        while let Some(path) = leftovers.pop() {
            match segment::adopt_spare(&self.env, &path) {
                Ok(Some(spare)) if spare.capacity_bytes >= needed_bytes => return Some(spare),
                // Too small or not whole: it only takes room.
                _ => self.remove(&path),
            }
        }
        None
    }

    /// Whether a file may still have this name.
    fn is_there(&self, path: &std::path::Path) -> bool {
        let found = self.env.storage().metadata(path);
        !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    fn remove(&self, path: &std::path::Path) {
        // A leftover is looked for again by the next open; nothing depends on it.
        let _ = self.env.storage().remove_file(path);
    }

    /// Whether [`SegmentSupply::refill`] has something to do.
    pub(crate) fn wants(&self) -> bool {
        let state = self.state.lock();
        !state.preparing
            && state.wanted_bytes > 0
            && (state.spare.is_none() || self.needs_reserve(&state))
    }

    /// Waits until a segment is wanted or `stop` says so.
    pub(crate) fn wait(&self, stop: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !stop() && (state.preparing || state.wanted_bytes == 0) {
            self.changed.wait(&mut state);
        }
    }

    /// Wakes whoever waits, to look at its `stop`.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Makes the reserve, then the spare. A full disk is no error here: who takes a segment will be told.
    pub(crate) fn refill(&self) {
        let mut state = self.state.lock();
        if state.preparing {
            return;
        }
        let wanted_bytes = std::mem::take(&mut state.wanted_bytes);
        let (new_reserve, no_spare) = (self.needs_reserve(&state), state.spare.is_none());
        // What was given back is not to be taken from those it was given to, not even while it is tried.
        if state.is_given_back && self.is_short() {
            return;
        }
        state.preparing = true;
        let preparing = Preparing(self);
        let leftovers = std::mem::take(&mut state.leftovers);
        let reserve_bytes = self.reserve_bytes(!state.copies_on_write);
        drop(state);
        leftovers.iter().for_each(|path| self.remove(path));
        let reserve = new_reserve.then(|| self.make(reserve_bytes).ok()).flatten();
        let spare = (no_spare && wanted_bytes > 0)
            .then(|| self.make(wanted_bytes).ok())
            .flatten();
        let mut state = self.state.lock();
        let small = reserve.and_then(|reserve| state.reserve.replace(reserve));
        state.reserve_is_used &= state.reserve.is_none();
        state.is_given_back &= state.reserve.is_none();
        state.spare = state.spare.take().or(spare);
        drop(state);
        small.iter().for_each(|spare| self.remove(&spare.path));
        drop(preparing);
    }

    fn needs_reserve(&self, state: &State) -> bool {
        let wanted_bytes = self.reserve_bytes(!state.copies_on_write);
        let reserve = state.reserve.as_ref();
        reserve.is_none_or(|reserve| reserve.capacity_bytes < wanted_bytes)
    }

    /// Gives unused segments back to the file system.
    pub(crate) fn release(&self) {
        self.give_up();
        let leftovers = std::mem::take(&mut self.state.lock().leftovers);
        leftovers.iter().for_each(|path| self.remove(path));
    }

    /// The same of those that this process has prepared: an opening that fails leaves what it found, which a full disk may
    /// need, and no more.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        state.wanted_bytes = 0;
        let unused = [state.spare.take(), state.reserve.take()];
        unused
            .into_iter()
            .flatten()
            .for_each(|spare| self.remove(&spare.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};

    /// A supply with a reserve, on a disk that is full.
    fn on_a_full_disk(sim: &SimEnv) -> SegmentSupply {
        let storage = sim.env();
        storage
            .storage()
            .create_dir_all(Path::new("/db/log"))
            .unwrap();
        let limit_bytes = 256 << 10;
        let supply =
            SegmentSupply::new(sim.env(), PathBuf::from("/db"), FileId(1), limit_bytes).unwrap();
        supply.refill();
        sim.set_quota(Some(0));
        supply
    }

    fn is_full(taken: Outcome<Prepared>) -> bool {
        let error = taken.err().map(Failure::error);
        error.is_some_and(|error| error.kind() == ErrorKind::DiskFull)
    }

    #[test]
    fn what_frees_no_space_gets_a_segment_only_after_there_is_another_reserve() {
        let sim = SimEnv::new(4);
        let supply = on_a_full_disk(&sim);
        let taken = supply.take(0, 1000, true).map_err(Failure::error).unwrap();
        assert!(taken.is_reserve);
        // Room for one segment.
        let used_bytes: u64 = sim.files().iter().map(|(_, bytes)| bytes).sum();
        sim.set_quota(Some(used_bytes + segment::FIRST_SEGMENT_BYTES));
        assert!(is_full(supply.take(0, 1000, false)));
        let taken = supply.take(0, 1000, true).map_err(Failure::error).unwrap();
        assert!(taken.is_reserve);
    }

    #[test]
    fn only_a_leftover_that_is_all_zeros_is_used() {
        for (byte, is_used) in [(0, true), (1, false)] {
            let sim = SimEnv::new(5);
            let env = sim.env();
            let dir = PathBuf::from("/db");
            env.storage().create_dir_all(&dir.join("log")).unwrap();
            let left = segment::spare_path(&dir, FileId(7));
            let mut bytes = vec![0; 64 << 10];
            bytes[40_000] = byte;
            sim.write_file(&left, &bytes).unwrap();
            sim.set_quota(Some(0));
            let supply = SegmentSupply::new(env, dir, FileId(1), 256 << 10).unwrap();
            assert_eq!(is_full(supply.take(0, 1000, true)), !is_used);
        }
    }

    /// The guard of `preparing` takes the lock that the look at the disk is made under.
    #[test]
    fn a_refill_after_the_reserve_was_given_back_ends() {
        let sim = SimEnv::new(6);
        let env = sim.env();
        env.storage().create_dir_all(Path::new("/db/log")).unwrap();
        let limit_bytes = 256 << 10;
        let dir = PathBuf::from("/db");
        let supply = SegmentSupply::new(sim.env(), dir, FileId(1), limit_bytes).unwrap();
        supply.refill();
        supply.give_back();
        sim.set_quota(Some(140 << 10));
        let taken = supply.take(0, 1000, true).map_err(Failure::error).unwrap();
        assert!(taken.is_reserve && supply.is_given_back() && supply.is_short());
        let supply = Arc::new(supply);
        let refills = Arc::clone(&supply);
        let worker = env
            .spawner()
            .spawn("worker", Box::new(move || refills.refill()));
        let worker = worker.unwrap();
        let started_ns = Env::os().clock().monotonic_ns();
        while !worker.is_finished() {
            let waited_ns = Env::os().clock().monotonic_ns() - started_ns;
            assert!(waited_ns < 20_000_000_000, "it waits for itself");
            Env::os().clock().sleep(Duration::from_millis(1));
        }
        worker.join().unwrap();
        assert!(supply.is_given_back());
    }

    #[test]
    fn a_reserve_that_cannot_be_named_stays() {
        let sim = SimEnv::new(3);
        let supply = on_a_full_disk(&sim);
        let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::Rename]);
        sim.set_plan(FaultPlan::none().rule(fails));
        for _ in 0..3 {
            let Err(Failure::Refused(error)) = supply.take(0, 1000, true) else {
                panic!("the reserve got a name");
            };
            assert_eq!(error.kind(), ErrorKind::Io);
        }
        sim.set_plan(FaultPlan::none());
        let taken = supply.take(0, 1000, true).map_err(Failure::error).unwrap();
        assert!(taken.is_reserve);
    }
}
