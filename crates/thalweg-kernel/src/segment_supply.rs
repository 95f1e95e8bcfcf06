//! Segments prepared ahead of the log, and the one kept for a full disk.
//!
//! Invariants
//! - At most one spare and one reserve exist. A spare gets its id when it is used, so ids rise along the log. Taking a segment
//!   never waits for the preparing thread for longer than that thread needs for the segment it is making.
//! - The reserve is only given to commits that free space, to checkpoints and to recovery, and nothing else goes into it. It has
//!   room for what dropping a table needs before files can go: the beginning of an epoch, the edit, two checkpoints.
//! - The size of the next checkpoint is estimated after each batch. Commits that free no space get another segment only while
//!   there is a reserve with room for three of them, or one can be made. So a drop frees space however many tables there
//!   are, and however often the disk gets full. Open rows count for each checkpoint, index pages that have changed
//!   for the first one; where there is plenty of space the reserve has room for as many as the last one had.
//! - Copy-on-write file systems (Btrfs, ZFS, bcachefs) take room for writes in place as well. There, on a full disk, the reserve
//!   cannot be written to; it is *given back*: its file is removed, and the free space serves the drop. So the reserve becomes
//!   a segment only after all of it was overwritten in place, which shows that there is room for that.
//! - The reserve also has room for what of the log is not synced, which a recovery writes again first: no more than that is
//!   ever unsynced, and where there is plenty of space it is made large enough not to call for syncs.
//! - While the space of the reserve is free, nothing but commits that free space, their checkpoints and small writes in
//!   place may take it: other commits get a segment only once there is another reserve, fragments and prepared segments
//!   only from what is left above it.
//!
//! Sequences of events that could leave a drop without room, each with a test here or in `--test copy_on_write`:
//! - A checkpoint or a replacement takes the reserve, and its write then finds no room: nothing is left to give back. Hence the
//!   write before the rename.
//! - Another program takes the room between that write and the writes to the segment: what is not written of a segment is cut off
//!   when the reserve is given back ([`segment::cut_unwritten`]), and counts as part of it.
//! - The preparing thread makes a spare out of what was given back, or fills the disk while it tries: it checks the free space
//!   before.
//! - A thread is writing a fragment when the reserve is given back: its next write is refused, and its file cut to nothing.
//! - The reserve was made when there were few tables: see the estimate above.
//! - Drops whose files a snapshot keeps use up the reserve, so that none is left for the checkpoints that remove the files later:
//!   in the reserve, and after a drop whose files are not removed yet, a drop must leave room for two checkpoints.
//! - Drops that free less than these checkpoints take are refused by that rule, a later one that frees much as well, and no
//!   round is worth its checkpoints: once a drop was refused so, they are written whatever they free.
//! - Replacements, the rounds of cleaning after them and ordinary checkpoints use up the reserve, one after the other, and the
//!   process is killed: they leave room in it for the three checkpoints of a drop by the next process, or are refused.
//! - The database is closed on a full disk, and another program takes the reserve: it stays there when space is short.
//! - It is opened on a full disk, and what an earlier process kept is removed before something takes its place: the largest
//!   leftover becomes the reserve.

use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Failure, Outcome};
use crate::frame::NEXT_FRAME_BYTES;
use crate::free_space::FreeSpace;
use crate::ids::{FileId, counts_as_used};
use crate::paths::segment_path;
use crate::segment::{self, Prepared, Spare};
use crate::space_estimates::{CLEANING_CHECKPOINTS, IN_PLACE_BYTES, SpaceEstimates, WRITTEN_TWICE};
use std::path::PathBuf;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_env::sync::{Condvar, Mutex, MutexGuard};

/// The reserve takes no more than this part of the free space where it has room for what is in no checkpoint yet.
const UNSAVED_SHARE: u64 = 8;

/// How long nothing is prepared after an opening.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Most leftovers of an earlier process that are kept: a spare and a reserve.
const KEPT_LEFTOVERS: usize = 2;

#[derive(Debug)]
pub(crate) struct SegmentSupply {
    env: Env,
    dir: PathBuf,
    pub(crate) free: FreeSpace,
    next_file: AtomicU64,
    limit_bytes: u64,
    pub(crate) sizes: SpaceEstimates,
    /// Capacity of the reserve; 0: none.
    reserve_bytes: AtomicU64,
    /// The largest reserve that the preparing thread was called for.
    called_for_bytes: AtomicU64,
    /// See [`SegmentSupply::pause`].
    may_be_paused: AtomicBool,
    /// The space of the reserve is free for commits that free space. Only changed with the state locked.
    is_given_back: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spare: Option<Spare>,
    reserve: Option<Spare>,
    /// It was given away or given back, and there is no other yet.
    reserve_is_used: bool,
    /// A write in place has found no room.
    copies_on_write: bool,
    /// One has, and nothing was given back since.
    write_has_failed: bool,
    /// The spare that was overwritten in place when that was last tried, and the least free space for which that result counts:
    /// with less it is tried again.
    overwritten: Option<(PathBuf, u64)>,
    /// Files that an earlier process had prepared: taken on a full disk, else removed.
    leftovers: Vec<PathBuf>,
    /// Capacity wanted for the next spare; 0: none.
    wanted_bytes: u64,
    /// The reserve is too small for the next checkpoints.
    wants_reserve: bool,
    preparing: bool,
    /// The database was just opened: nothing is prepared before the first job of the leader, or a moment later.
    is_paused: bool,
}

impl State {
    /// Whether there is no spare, or only one that was made when frames were shorter: those of today may not fit into it, and
    /// each commit that begins a segment would make one itself.
    fn lacks_spare(&self, wanted_bytes: u64) -> bool {
        let spare = self.spare.as_ref();
        spare.is_none_or(|spare| spare.capacity_bytes < wanted_bytes)
    }
}

/// The sizes that a new segment, and the reserve beside it, must have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Capacity of the segment before it.
    pub(crate) last_bytes: u64,
    /// The frame that it begins with.
    pub(crate) frame_bytes: u64,
    /// Bytes that a recovery on a full disk would write again for the unsynced end of the log; the reserve has room for them.
    pub(crate) tail_bytes: u64,
    /// Made of what was given back, it has room for so many checkpoints after the frame.
    pub(crate) checkpoints: u64,
    /// After the frame the reserve must have room for so many checkpoints, to be taken for it; `None`: it is not taken.
    pub(crate) kept_checkpoints: Option<u64>,
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
            free: FreeSpace::new(env.clone(), &dir),
            env,
            dir,
            next_file: AtomicU64::new(next_file.0.max(unused)),
            limit_bytes,
            sizes: SpaceEstimates::new(limit_bytes),
            reserve_bytes: AtomicU64::new(0),
            called_for_bytes: AtomicU64::new(0),
            may_be_paused: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
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

    /// Returns a segment for a frame; if space is out, the reserve, or one with just the room that is wanted, for frames that may
    /// go there. The next spare is wanted from then on.
    pub(crate) fn take(&self, wanted: Wanted) -> Outcome<Prepared> {
        let Wanted {
            last_bytes,
            frame_bytes,
            tail_bytes,
            checkpoints,
            kept_checkpoints,
        } = wanted;
        let may_use_reserve = kept_checkpoints.is_some();
        if !may_use_reserve {
            self.look_for_room();
        }
        let mut capacity_bytes = segment::next_capacity(last_bytes, self.limit_bytes, frame_bytes);
        let needed_bytes = segment::SEGMENT_HEADER_BYTES as u64 + frame_bytes + NEXT_FRAME_BYTES;
        let kept_bytes = match kept_checkpoints {
            None | Some(0) => 0,
            Some(kept) => {
                self.sizes.room_for_checkpoints(kept) + tail_bytes.saturating_sub(frame_bytes)
            }
        };
        let mut state = self.lock_prepared();
        let was_used = state.reserve_is_used;
        // What must leave room in the reserve goes into no segment that takes its place.
        if state.reserve_is_used && kept_checkpoints != Some(0) {
            let renewed = self.renew_reserve(&mut state, tail_bytes);
            renewed.map_err(Failure::Refused)?;
        }
        let is_given_back = self.is_given_back();
        let min_bytes = self.sizes.min_bytes(frame_bytes, checkpoints);
        if is_given_back {
            capacity_bytes = min_bytes;
        }
        let fitting = state.spare.take_if(|s| s.capacity_bytes >= needed_bytes);
        let mut is_reserve = false;
        let make = |bytes| match is_given_back {
            true => self.make_empty(bytes),
            false => self.make(bytes),
        };
        let mut made = fitting.map_or_else(|| make(capacity_bytes), Ok);
        if !may_use_reserve && segment::is_full(&made) && self.cut_reserve(&mut state, tail_bytes) {
            made = make(capacity_bytes);
        }
        // Segments grow with the log: there may be room for a short one.
        let shortest_bytes = segment::next_capacity(0, self.limit_bytes, frame_bytes);
        if segment::is_full(&made) && shortest_bytes < capacity_bytes {
            made = make(shortest_bytes);
        }
        let spare = match made {
            Err(error) if may_use_reserve && error.kind() == ErrorKind::DiskFull => {
                is_reserve = true;
                let reserve = self.take_reserve(&mut state, needed_bytes + kept_bytes);
                reserve.and_then(|reserve| match reserve {
                    Some(reserve) => Ok(reserve),
                    None if kept_bytes == 0 => make(min_bytes).map_err(|_| error),
                    None => Err(error),
                })
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
                self.remove(&segment_path(&self.dir, id));
            } else if place.is_none() {
                // It has kept its name, and its room: a full disk has no other.
                *place = Some(spare);
            } else {
                self.remove(&spare.path);
            }
        }
        self.note_reserve(&state);
        let reserve_is_used = state.reserve_is_used;
        drop(state);
        self.changed.notify_all();
        // While there is no other one, nothing else goes into what is taken for these commits.
        let is_reserve = is_reserve || is_given_back || reserve_is_used;
        used.map(|used| Prepared { is_reserve, ..used })
    }

    /// Cuts a reserve that was made for more than is in no checkpoint now; returns whether there was one.
    fn cut_reserve(&self, state: &mut State, tail_bytes: u64) -> bool {
        let wanted_bytes = self.sizes.wanted_reserve_bytes(true);
        let wanted_bytes = wanted_bytes.max(self.sizes.kept_bytes() + tail_bytes);
        let Some(reserve) = &mut state.reserve else {
            return false;
        };
        let is_cut =
            reserve.capacity_bytes > wanted_bytes && reserve.file.set_len(wanted_bytes).is_ok();
        if is_cut {
            reserve.capacity_bytes = wanted_bytes;
            self.note_reserve(state);
        }
        is_cut
    }

    /// Locks the state while nothing is being prepared.
    fn lock_prepared(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.preparing {
            self.changed.wait(&mut state);
        }
        state
    }

    /// Takes what is kept for a full disk, to become a segment. `None` where there is nothing of that size, or writes in place
    /// find no room: it is then kept, to be given back.
    fn take_reserve(&self, state: &mut State, needed_bytes: u64) -> Result<Option<Spare>> {
        if state.copies_on_write || self.is_given_back() {
            return Ok(None);
        }
        let reserve = state.reserve.take_if(|r| r.capacity_bytes >= needed_bytes);
        let was_reserve = reserve.is_some();
        let taken = reserve.or_else(|| self.adopt(&mut state.leftovers, needed_bytes));
        let Some(taken) = taken else {
            return Ok(None);
        };
        let overwritten = segment::overwrite(&taken);
        if matches!(overwritten, Ok(true)) {
            state.reserve_is_used |= was_reserve;
            return Ok(Some(taken));
        }
        if overwritten.is_err() {
            // What failed to be synced is never used again.
            self.remove(&taken.path);
            return overwritten.map(|_| None);
        }
        if was_reserve {
            state.reserve = Some(taken);
        } else {
            state.leftovers.push(taken.path);
        }
        self.note_no_room(state);
        Ok(None)
    }

    /// Whether the reserve has room for what is known now, and for a commit that a recovery would write again; also before there
    /// is one, as long as that is little.
    pub(crate) fn has_least_reserve(&self, tail_bytes: u64) -> bool {
        let min_bytes = self.sizes.min_reserve_bytes_now() + tail_bytes;
        min_bytes <= self.reserve_bytes.load(Ordering::Relaxed)
            || min_bytes <= self.sizes.soon_bytes()
    }

    /// How much of the log may be unsynced: the reserve has room for it beside all that a drop needs. Without a reserve any. A
    /// little is always let through, since all else is estimated by sizes in memory, which are larger than those on disk.
    pub(crate) fn tail_room(&self) -> u64 {
        match self.reserve_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            reserve_bytes => self.sizes.tail_room_in(reserve_bytes),
        }
    }

    /// Calls for a reserve with more room for the tail of the log, so that it need not be synced as often.
    pub(crate) fn expect_tail(&self, bytes: u64) {
        if self.sizes.note_tail(bytes) {
            let mut state = self.state.lock();
            // The first one is made with the first spare.
            state.wants_reserve = state.reserve.is_some();
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Makes sure of a reserve for the next checkpoints, before there is room for a commit that frees no space. It has room for
    /// `tail_bytes` as well, which a recovery would write for that.
    pub(crate) fn ensure_reserve(&self, tail_bytes: u64) -> Result<()> {
        let mut state = self.lock_prepared();
        self.renew_reserve(&mut state, tail_bytes)
    }

    /// Puts another reserve in the place of one that was used, or is too small.
    fn renew_reserve(&self, state: &mut State, tail_bytes: u64) -> Result<()> {
        let min_bytes = self.sizes.min_reserve_bytes();
        let min_bytes = min_bytes.max(self.sizes.kept_bytes() + tail_bytes);
        let suffices = |spare: &Spare| spare.capacity_bytes >= min_bytes;
        let unit_bytes = self.sizes.reserve_unit();
        let wanted_bytes = self.sizes.wanted_reserve_bytes(true);
        let wanted_bytes = wanted_bytes.max(min_bytes.next_multiple_of(unit_bytes));
        if !state.reserve.as_ref().is_some_and(suffices) {
            // One that is only given back has to be larger, if there is room. Checked first: trying takes all there is from
            // others meanwhile.
            let larger_bytes = self.sizes.wanted_reserve_bytes(false).max(wanted_bytes);
            // Nor may it take the last room itself: the reserve is renewed for a segment that comes next.
            let is_ample = || self.free.has(larger_bytes + self.sizes.freeing_bytes());
            let larger = match state.copies_on_write && is_ample() {
                true => self.make(larger_bytes).ok(),
                false => None,
            };
            // A spare in the way is better had as the reserve.
            let larger = larger.or_else(|| state.spare.take_if(|spare| suffices(spare)));
            // So is what an earlier process had kept.
            let larger = larger.or_else(|| self.adopt(&mut state.leftovers, min_bytes));
            let renewed = match larger {
                Some(spare) => spare,
                None => {
                    // What was given back is not to be taken from those it was given to. Where it can be written into, another
                    // reserve serves them as well.
                    let is_kept = state.copies_on_write && self.is_given_back();
                    if is_kept && !self.finds_room(self.sizes.freeing_bytes() + wanted_bytes) {
                        return Err(kept_for_freeing());
                    }
                    self.make(wanted_bytes)?
                }
            };
            let small = state.reserve.replace(renewed);
            small.iter().for_each(|spare| self.remove(&spare.path));
        }
        state.reserve_is_used = false;
        self.is_given_back.store(false, Ordering::Relaxed);
        self.note_reserve(state);
        Ok(())
    }

    fn note_reserve(&self, state: &State) {
        let bytes = state.reserve.as_ref().map_or(0, |r| r.capacity_bytes);
        self.reserve_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Learns from a write into a prepared segment, `root` or `live` that failed: elsewhere these have their room.
    pub(crate) fn note_failed_write(&self, error: &Error) {
        if error.kind() == ErrorKind::DiskFull {
            self.free.note_refused(error, self.sizes.freeing_bytes());
            self.note_no_room(&mut self.state.lock());
        }
    }

    fn note_no_room(&self, state: &mut State) {
        (state.copies_on_write, state.write_has_failed) = (true, true);
    }

    /// Whether there may be no room for what is written in place.
    pub(crate) fn is_short(&self) -> bool {
        !self.free.has(self.sizes.freeing_bytes())
    }

    /// Whether there may be no room for writes in place, on a file system that copies on write.
    pub(crate) fn needs_room_in_place(&self) -> bool {
        self.state.lock().copies_on_write && self.is_short()
    }

    /// Whether what is kept has to be given back for a drop. Where space is short it is found out whether it can be written to,
    /// once for each file: every commit waits meanwhile.
    pub(crate) fn must_give_back(&self) -> Result<bool> {
        // Else each drop would overwrite the reserve, though the disk may long have had room again.
        if self.free.is_worth_a_look() {
            self.look_for_room();
        }
        let is_short = self.is_short();
        let mut state = self.lock_prepared();
        if is_short && !state.copies_on_write {
            let kept = state.reserve.as_ref().or(state.spare.as_ref());
            match kept.filter(|kept| !self.is_overwritten(&state, kept)) {
                None => {}
                Some(kept) => match segment::overwrite(kept) {
                    Ok(true) => state.overwritten = Some(self.holds_from(kept)),
                    Ok(false) => self.note_no_room(&mut state),
                    Err(error) => {
                        // What failed to be synced is never used again.
                        let failed = state.reserve.take().or_else(|| state.spare.take());
                        failed.iter().for_each(|spare| self.remove(&spare.path));
                        self.note_reserve(&state);
                        return Err(error);
                    }
                },
            }
        }
        Ok(state.copies_on_write && (is_short || state.write_has_failed))
    }

    /// Whether a spare was overwritten before, and there is no less room now.
    fn is_overwritten(&self, state: &State, spare: &Spare) -> bool {
        let overwritten = state.overwritten.as_ref();
        overwritten
            .is_some_and(|(path, min_bytes)| *path == spare.path && self.free.has(*min_bytes))
    }

    /// For how much free space it holds that a spare could be overwritten. With as much free as it is long it may be copied each
    /// time; with less it is written in place, which does not change, but free space is only reported roughly.
    fn holds_from(&self, spare: &Spare) -> (PathBuf, u64) {
        let free_bytes = self.free.told_bytes();
        let min_bytes = match free_bytes >= spare.capacity_bytes {
            true => spare.capacity_bytes,
            false => free_bytes / 2,
        };
        (spare.path.clone(), min_bytes)
    }

    /// Whether the reserve was given back: its space is then free, for commits that free more.
    pub(crate) fn is_given_back(&self) -> bool {
        self.is_given_back.load(Ordering::Relaxed)
    }

    /// Whether there is room for `bytes`. Where the disk reports more than it has, a file that is as large finds out: only in
    /// the leader, for nobody else finds room meanwhile.
    fn finds_room(&self, bytes: u64) -> bool {
        if !self.free.is_overstated() {
            return self.free.has(bytes);
        }
        let found = self.make(bytes);
        found.iter().for_each(|spare| self.remove(&spare.path));
        found.is_ok()
    }

    /// Checks whether a disk that reports more than it has is still full.
    pub(crate) fn look_for_room(&self) {
        if self.free.is_overstated() {
            self.finds_room(self.sizes.freeing_bytes());
        }
    }

    /// Refuses a write of rows of `bytes` outside of the log that would take what was given back.
    pub(crate) fn check_room_for_rows(&self, bytes: u64) -> Result<()> {
        if !self.is_given_back() || self.free.has(self.sizes.freeing_bytes() + bytes) {
            return Ok(());
        }
        Err(kept_for_freeing())
    }

    /// Refuses a frame that nobody asked for to free space, where it would take what was given back.
    pub(crate) fn check_room_beside(&self, frame_bytes: u64) -> Result<()> {
        let is_kept = self.is_given_back() && self.state.lock().copies_on_write;
        if is_kept && !self.finds_room(self.sizes.freeing_bytes() + frame_bytes) {
            return Err(kept_for_freeing());
        }
        Ok(())
    }

    /// Whether checkpoints that remove files take no room that is kept for what frees more.
    pub(crate) fn may_clean_now(&self) -> bool {
        !self.is_given_back() && self.has_room_to_clean()
    }

    /// The least bytes that a round of removing files writes: two checkpoints, or where space is short a single one, which both
    /// slots of the root name.
    pub(crate) fn min_cleaning_bytes(&self) -> u64 {
        self.sizes.min_cleaning_bytes(match self.is_short() {
            true => 1,
            false => CLEANING_CHECKPOINTS,
        })
    }

    /// Whether there is room for the checkpoints that remove files.
    pub(crate) fn has_room_to_clean(&self) -> bool {
        let bytes = self.sizes.room_for_checkpoints(CLEANING_CHECKPOINTS);
        self.finds_room(WRITTEN_TWICE * bytes + IN_PLACE_BYTES)
    }

    /// Removes all that is prepared: its space then serves writes in place. Commits that free no space wait until there is
    /// another reserve.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock_prepared();
        let prepared = [state.reserve.take(), state.spare.take()];
        let paths = prepared.into_iter().flatten().map(|spare| spare.path);
        paths
            .chain(std::mem::take(&mut state.leftovers))
            .for_each(|path| self.remove(&path));
        (state.reserve_is_used, state.write_has_failed) = (true, false);
        self.is_given_back.store(true, Ordering::Relaxed);
        state.wanted_bytes = 0;
        self.note_reserve(&state);
    }

    /// The first segment of an epoch on a disk where the reserve was given back: no larger than it must be, and for what
    /// frees space.
    pub(crate) fn take_least(&self, frame_bytes: u64) -> Outcome<Prepared> {
        let capacity_bytes = self.sizes.min_bytes(frame_bytes, 1);
        let made = self.make_empty(capacity_bytes).map_err(Failure::Refused)?;
        let used = segment::use_spare(&self.env, &self.dir, &made, self.next_file_id());
        used.map(|used| Prepared {
            is_reserve: true,
            ..used
        })
    }

    /// Notes how much of the next full checkpoint is in each of them, and how much in none yet; calls for a larger reserve if
    /// need be.
    pub(crate) fn expect_checkpoint(&self, repeated_bytes: u64, unsaved_bytes: u64) {
        self.sizes.note_next(repeated_bytes, unsaved_bytes);
        let min_bytes =
            self.sizes.min_reserve_bytes() + CLEANING_CHECKPOINTS * self.sizes.more_bytes();
        if self.reserve_bytes.load(Ordering::Relaxed) >= min_bytes
            || self.called_for_bytes.load(Ordering::Relaxed) >= min_bytes
        {
            return;
        }
        // Once for each size: on a full disk it would be in vain each time.
        let wanted_bytes = self.sizes.ample_reserve_bytes(true);
        self.called_for_bytes.store(wanted_bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        // The first one is made with the first spare.
        state.wants_reserve = state.reserve.is_some();
        drop(state);
        self.changed.notify_all();
    }

    /// Whether a segment may be had now: a cheap guess.
    pub(crate) fn may_have_room(&self) -> bool {
        let state = self.state.lock();
        if state.spare.is_some() || state.reserve.is_some() || !state.leftovers.is_empty() {
            return true;
        }
        drop(state);
        self.free.may_have(match self.is_given_back() {
            true => self.sizes.min_bytes(0, 1),
            false => segment::next_capacity(0, self.limit_bytes, 0),
        })
    }

    /// A segment for the beginning of an epoch, with room for `frame_bytes`, which are written before it is synced, and, up to the
    /// usual size of segments, for `more_bytes`; not synced, and, unless the disk is full, not named.
    pub(crate) fn take_first(&self, frame_bytes: u64, more_bytes: u64) -> Outcome<Prepared> {
        self.thin_leftovers();
        let wanted_bytes = (frame_bytes + more_bytes)
            .min(self.limit_bytes / 2)
            .max(frame_bytes);
        let capacity_bytes = segment::next_capacity(0, self.limit_bytes, wanted_bytes);
        let id = self.next_file_id();
        let front_bytes = match frame_bytes {
            0 => 0,
            frame_bytes => segment::SEGMENT_HEADER_BYTES as u64 + frame_bytes,
        };
        let sizes = (front_bytes, capacity_bytes);
        let made = segment::make_first(&self.env, &self.dir, id, sizes, &self.free);
        match made {
            // What was prepared in better times can still be had.
            Err(error) if error.kind() == ErrorKind::DiskFull => self.take(Wanted {
                frame_bytes,
                checkpoints: 1,
                kept_checkpoints: Some(0),
                ..Wanted::default()
            }),
            made => {
                let first = made.map_err(Failure::Refused)?;
                self.state.lock().wanted_bytes =
                    segment::next_capacity(first.capacity_bytes, self.limit_bytes, 0);
                self.changed.notify_all();
                Ok(first)
            }
        }
    }

    /// Removes all but the largest leftovers, which then come last: openings that are killed again and again leave one each.
    fn thin_leftovers(&self) {
        let mut state = self.state.lock();
        let storage = self.env.storage();
        let bytes_of = |path: &PathBuf| storage.metadata(path).map_or(0, |found| found.len_bytes);
        state.leftovers.sort_by_key(bytes_of);
        let surplus = state.leftovers.len().saturating_sub(KEPT_LEFTOVERS);
        state
            .leftovers
            .drain(..surplus)
            .for_each(|path| self.remove(&path));
    }

    fn make(&self, capacity_bytes: u64) -> Result<Spare> {
        self.make_beside(capacity_bytes, 0)
    }

    /// Makes a spare where the disk has room for `beside_bytes` more, as far as that can be known.
    fn make_beside(&self, capacity_bytes: u64, beside_bytes: u64) -> Result<Spare> {
        // Checked first: who is refused tries again, and each time it would take from others all that there is.
        if !self.free.may_have(capacity_bytes + beside_bytes) {
            let message =
                format!("the disk is full: a segment of the log takes {capacity_bytes} bytes");
            return Err(Error::new(ErrorKind::DiskFull, message));
        }
        let made = self.make_spare(capacity_bytes, beside_bytes)?;
        if capacity_bytes >= self.sizes.freeing_bytes() {
            self.free.note_plenty();
        }
        Ok(made)
    }

    fn make_spare(&self, capacity_bytes: u64, beside_bytes: u64) -> Result<Spare> {
        let (number, sizes) = (self.next_file_id(), (capacity_bytes, beside_bytes));
        segment::make_spare(&self.env, &self.dir, number, sizes, &self.free)
    }

    /// Makes a segment that takes no room before something is written to it: where the reserve was given back, zeros would take as
    /// much again.
    fn make_empty(&self, capacity_bytes: u64) -> Result<Spare> {
        let made = self.make_spare(0, 0)?;
        Ok(Spare {
            capacity_bytes,
            ..made
        })
    }

    fn adopt(&self, leftovers: &mut Vec<PathBuf>, needed_bytes: u64) -> Option<Spare> {
        let mut small = Vec::new();
        let mut fitting = None;
        while let Some(path) = leftovers.pop() {
            match segment::adopt_spare(&self.env, &path) {
                Ok(Some(spare)) if spare.capacity_bytes >= needed_bytes => {
                    fitting = Some(spare);
                    break;
                }
                // Another program would take its room, which can still be given back.
                Ok(Some(_)) => small.push(path),
                // Not whole: it only takes room.
                _ => self.remove(&path),
            }
        }
        leftovers.extend(small.into_iter().rev());
        fitting
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
        let wants_more = state.lacks_spare(state.wanted_bytes) || self.needs_reserve(&state);
        !state.preparing && (state.wants_reserve || (state.wanted_bytes > 0 && wants_more))
    }

    /// Waits until a segment is wanted or `stop` returns true.
    pub(crate) fn wait(&self, stop: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !stop() && (state.preparing || (state.wanted_bytes == 0 && !state.wants_reserve)) {
            self.changed.wait(&mut state);
        }
        if state.is_paused && !stop() {
            self.changed.wait_for(&mut state, PAUSE);
            state.is_paused = false;
        }
    }

    /// Lets a moment pass before something is prepared: the first calls after an opening would wait for that.
    pub(crate) fn pause(&self) {
        self.state.lock().is_paused = true;
        self.may_be_paused.store(true, Ordering::Relaxed);
    }

    /// The log is about to be written to.
    pub(crate) fn end_pause(&self) {
        if self.may_be_paused.load(Ordering::Relaxed) {
            self.may_be_paused.store(false, Ordering::Relaxed);
            self.state.lock().is_paused = false;
            self.changed.notify_all();
        }
    }

    /// Wakes whoever waits, to look at its `stop`.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Makes the reserve, then the spare. A full disk is no error here: who takes a segment will get the error.
    pub(crate) fn refill(&self) {
        let mut state = self.state.lock();
        if state.preparing {
            return;
        }
        let wanted_bytes = std::mem::take(&mut state.wanted_bytes);
        state.wants_reserve = false;
        let copies_on_write = state.copies_on_write;
        let ample_bytes = self.sizes.ample_reserve_bytes(!copies_on_write);
        let reserve_bytes = match self.free.has(UNSAVED_SHARE * ample_bytes) {
            true => ample_bytes,
            false => self.sizes.wanted_reserve_bytes(!copies_on_write),
        };
        // Where writes in place take room, trying must leave it to them: a commit beside it would find none.
        let beside_bytes = match copies_on_write {
            true => self.sizes.freeing_bytes(),
            false => 0,
        };
        let leaves_room = |bytes| !copies_on_write || self.free.has(bytes + beside_bytes);
        let reserve_bytes = match leaves_room(reserve_bytes) {
            true => reserve_bytes,
            false => self.sizes.wanted_reserve_bytes(true),
        };
        let held = state.reserve.as_ref();
        let new_reserve = held.is_none_or(|held| held.capacity_bytes < reserve_bytes)
            && leaves_room(reserve_bytes);
        let lacks_spare = state.lacks_spare(wanted_bytes);
        // What was given back is not to be taken from those it was given to, not even while it is tried.
        if self.is_given_back() && !self.free.has(self.sizes.freeing_bytes() + reserve_bytes) {
            return;
        }
        state.preparing = true;
        let preparing = Preparing(self);
        let mut leftovers = std::mem::take(&mut state.leftovers);
        drop(state);
        // On a disk that is full there may be no room for another reserve but theirs.
        let mut reserve = match new_reserve {
            true => self.adopt(&mut leftovers, 0),
            false => None,
        };
        leftovers.iter().for_each(|path| self.remove(path));
        let suffices = |spare: &Spare| spare.capacity_bytes >= reserve_bytes;
        if new_reserve && !reserve.as_ref().is_some_and(suffices) {
            let small = match self.make_beside(reserve_bytes, beside_bytes) {
                Ok(made) => reserve.replace(made),
                Err(_) => None,
            };
            small.iter().for_each(|spare| self.remove(&spare.path));
        }
        // A spare that fills the disk would leave nothing to writes in place meanwhile.
        let spare = (lacks_spare && wanted_bytes > 0 && leaves_room(wanted_bytes))
            .then(|| self.make_beside(wanted_bytes, beside_bytes).ok())
            .flatten();
        let mut state = self.state.lock();
        let surplus = self.put_reserve(&mut state, reserve);
        let small = spare.and_then(|spare| state.spare.replace(spare));
        drop(state);
        let unused = surplus.iter().chain(&small);
        unused.for_each(|spare| self.remove(&spare.path));
        drop(preparing);
    }

    /// Keeps the larger one of two reserves; returns the other one.
    fn put_reserve(&self, state: &mut State, reserve: Option<Spare>) -> Option<Spare> {
        let bytes_of = |spare: &Option<Spare>| spare.as_ref().map_or(0, |s| s.capacity_bytes);
        let surplus = match bytes_of(&reserve) > bytes_of(&state.reserve) {
            true => std::mem::replace(&mut state.reserve, reserve),
            false => reserve,
        };
        state.reserve_is_used &= state.reserve.is_none();
        if state.reserve.is_some() {
            self.is_given_back.store(false, Ordering::Relaxed);
        }
        self.note_reserve(state);
        surplus
    }

    fn needs_reserve(&self, state: &State) -> bool {
        let wanted_bytes = self.sizes.wanted_reserve_bytes(!state.copies_on_write);
        let reserve = state.reserve.as_ref();
        reserve.is_none_or(|reserve| reserve.capacity_bytes < wanted_bytes)
    }

    /// Gives unused segments back to the file system, but for the reserve where space is short: another program may take it
    /// before the database is opened again.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        if self.is_short() {
            // A leftover of an earlier process for whoever opens the database next.
            state.reserve = None;
            state.leftovers.clear();
        }
        let leftovers = std::mem::take(&mut state.leftovers);
        drop(state);
        self.give_up();
        leftovers.iter().for_each(|path| self.remove(path));
    }

    /// Gives back the unused segments that this process has prepared: an opening that fails leaves what it found, which a
    /// full disk may need, and no more.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        (state.wanted_bytes, state.wants_reserve) = (0, false);
        let unused = [state.spare.take(), state.reserve.take()];
        unused
            .into_iter()
            .flatten()
            .for_each(|spare| self.remove(&spare.path));
        self.note_reserve(&state);
    }
}

fn kept_for_freeing() -> Error {
    let message = "the disk is full: what room there is serves commits that free space";
    Error::new(ErrorKind::DiskFull, message)
}

#[cfg(test)]
mod tests;
