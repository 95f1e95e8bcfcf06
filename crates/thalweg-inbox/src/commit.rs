//! Commits of array processes.
//!
//! Invariants
//! - Nothing is shown before it is synced, and nothing is acknowledged before it is shown.
//! - Everything that may be refused is checked before the registry is set to *appending*.

use std::sync::Arc;

use thalweg_env::File;

use crate::chain::{Located, Place};
use crate::database::{Database, State, TableState};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{Draft, FrameHead, Half, LogCommit, Stamp};
use crate::inbox::{Commit, Inbox};
use crate::registry::Seen;
use crate::rules::Rule;
use crate::settle::{Basis, highest};

/// A wall clock at or beyond this time (the year 2116) is taken for broken and ignored, and no commit may name such a time.
const END_OF_TIME: i64 = 1 << 62;
/// A log doubles, but grows by at most so much.
const MAX_GROWTH: u64 = 4 << 20;

impl<D: Database> Inbox<D> {
    /// Commits cells as an array process: one frame each, all of them with one sync.
    ///
    /// # Errors
    /// The outer error: nothing was committed, or the outcome of all commits is unknown. An inner error: this commit alone was refused.
    pub fn commit(&mut self, batch: &[Commit]) -> Result<Vec<Result<Stamp>>> {
        let lock = self.disk.lock_or_fail()?;
        let result = self.commit_locked(batch);
        self.disk.release(lock);
        let is_refused = |at: usize| match &result {
            Ok(outcomes) => outcomes[at].is_err(),
            Err(error) => !matches!(error, Error::OutcomeUnknown { .. }),
        };
        for (at, commit) in batch.iter().enumerate() {
            if is_refused(at) {
                self.unstage(&commit.draft);
            }
        }
        result
    }

    fn commit_locked(&mut self, batch: &[Commit]) -> Result<Vec<Result<Stamp>>> {
        let (mut seen, mut half) = self.disk.settle(&mut self.database)?;
        let live = self.state_for(&half)?;
        let after_state = self.frames_to_compare(batch, &half)?;
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut drafts: Vec<(&Draft, Stamp)> = Vec::new();
        let mut bound = half.bound;
        for commit in batch {
            let checked = self.check(commit, &half, &after_state, &drafts);
            let stamped = checked.and_then(|state| stamp(&self.disk, &state, bound, commit));
            if let Ok(stamp) = &stamped {
                bound = highest(bound, *stamp);
                drafts.push((&commit.draft, *stamp));
            }
            outcomes.push(stamped);
        }
        if drafts.is_empty() {
            return Ok(outcomes);
        }
        let noted = match Rule::SeenOfProcess.is_kept() {
            true => half.seen.max(self.seen).max(live),
            false => half.seen,
        };
        let bytes = drafts
            .iter()
            .map(|(draft, _)| draft.frame_bytes())
            .sum::<usize>() as u64;
        assert!(bytes <= self.disk.limits.batch_bytes, "a batch too large");
        let file = self.make_room(&mut seen, &mut half, bytes)?;
        self.disk.append(&mut seen, half, &file, &drafts, noted)?;
        Ok(outcomes)
    }

    /// Takes a new state where the registry or `live` call for one; returns what `live` shows.
    fn state_for(&mut self, half: &Half) -> Result<LogCommit> {
        let live = self.database.live()?;
        let is_late = |state: &D::State| {
            let is_required = state.at() < half.required && Rule::RequiredState.is_kept();
            let epoch = live.map_or(u32::MAX, |live| live.epoch);
            is_required || (state.at().epoch < epoch && Rule::EpochOfLive.is_kept())
        };
        if self.state.as_ref().is_none_or(is_late) {
            self.new_state()?;
        }
        Ok(live.unwrap_or(self.seen))
    }

    fn check(
        &mut self,
        commit: &Commit,
        half: &Half,
        after_state: &[Located],
        batch: &[(&Draft, Stamp)],
    ) -> Result<D::State> {
        // Groups that wait: those held in the state, and those in frames after it. Each frame has at least one, so frames are counted.
        let waiting = |state: &D::State| {
            let inbox = state.inbox();
            let frames = half.last_frame.saturating_sub(inbox.position.frame);
            inbox.held.len() as u64 + frames
        };
        let is_full = |state: &D::State| waiting(state) >= self.disk.limits.groups;
        let mut state = self.state.clone();
        if state.as_ref().is_none_or(is_full) {
            state = Some(self.new_state()?);
        }
        let state = state.filter(|state| waiting(state) < self.disk.limits.groups);
        let state = state.ok_or(Error::Limit {
            what: "too many groups of cells",
        })?;
        check_tables(&state, &commit.draft)?;
        if let Some(above) = commit.read_up_to {
            let batch = batch.iter().map(|(draft, _)| *draft);
            check_unchanged(&state, &commit.draft, above, after_state, batch)?;
        }
        Ok(state)
    }

    /// The frames after the state that commits have to be compared with, which must reach up to the registry.
    fn frames_to_compare(&mut self, batch: &[Commit], half: &Half) -> Result<Vec<Located>> {
        let depends = batch.iter().any(|commit| commit.read_up_to.is_some());
        if !depends || Rule::CompareUnderLock.is_broken() {
            return Ok(Vec::new());
        }
        let state = self.new_state()?;
        self.disk.not_in_log(half, state.inbox())
    }

    /// The log, with synced zeros for so many bytes at *visible*.
    fn make_room(&mut self, seen: &mut Seen, half: &mut Half, bytes: u64) -> Result<Arc<dyn File>> {
        let limits = self.disk.limits;
        let is_full =
            half.visible + bytes > limits.log_bytes && half.visible > crate::format::FIRST_FRAME;
        if half.log == 0 || half.is_ended || is_full {
            let state = match &self.state {
                Some(state) => state.clone(),
                None => self.new_state()?,
            };
            let listing = self.disk.list()?;
            let position = state.inbox().position.log;
            if listing.logs.range(position + 1..).count() >= limits.logs {
                return Err(Error::Limit {
                    what: "too many logs",
                });
            }
            let basis = Basis {
                base: Place::of_half(half),
                tail: &[],
                bound: half.bound,
                settled: None,
                highest_log: listing.logs.last().copied().unwrap_or_default(),
            };
            let (begun, file) = self.disk.begin_log(seen, state.inbox(), &basis)?;
            *half = begun;
            self.disk.grow(half, &file, bytes)?;
            return Ok(file);
        }
        let number = half.log;
        let file = self
            .disk
            .open_log(number)?
            .ok_or(Error::Missing { number })?;
        self.disk.grow(half, &file, bytes)?;
        Ok(file)
    }
}

/// Whether the arrays are there, under the definition that the cells were encoded by.
pub(crate) fn check_tables<S: State>(state: &S, draft: &Draft) -> Result<()> {
    for body in &draft.bodies {
        let table = body.head.table;
        match state.table(table) {
            TableState::There(version) if version == body.head.definition => {}
            TableState::There(_) => return Err(Error::DefinitionChanged { table }),
            TableState::Dropped | TableState::Unknown => return Err(Error::NotFound { table }),
        }
    }
    Ok(())
}

/// Whether no cell of a draft was changed above a sequence, in the state, in frames, or in drafts that come before it.
pub(crate) fn check_unchanged<'a, S: State>(
    state: &S,
    draft: &Draft,
    above: u64,
    frames: impl IntoIterator<Item = &'a Located>,
    batch: impl Iterator<Item = &'a Draft>,
) -> Result<()> {
    let frames = frames.into_iter();
    let later = frames.filter(|located| located.frame.head.stamp.sequence > above);
    let drafts = later.map(|located| &located.frame.draft).chain(batch);
    let mut bodies = drafts.flat_map(|draft| &draft.bodies);
    let is_met = |a| draft.bodies.iter().any(|b| state.share_cells(a, b));
    match state.meets(above, &draft.bodies) || bodies.any(is_met) {
        true => Err(Error::Conflict),
        false => Ok(()),
    }
}

/// The stamp of a commit: above all that were given.
pub(crate) fn stamp<S: State>(
    disk: &Disk,
    state: &S,
    bound: Stamp,
    commit: &Commit,
) -> Result<Stamp> {
    let of_registry = match Rule::BoundOfRegistry.is_kept() {
        true => bound,
        false => Stamp::default(),
    };
    let of_state = match Rule::BoundOfState.is_kept() {
        true => state.inbox().newest,
        false => Stamp::default(),
    };
    let newest = highest(of_registry, of_state);
    let now = disk.env.clock().wall_ns();
    let clock = if now < END_OF_TIME { now } else { 0 };
    let time = match commit.at {
        Some(at) => {
            let floors = &state.inbox().floors;
            for body in &commit.draft.bodies {
                let table = body.head.table;
                let floor = floors.get(&table).copied().unwrap_or(i64::MIN);
                if at <= floor && Rule::AboveFloor.is_kept() {
                    return Err(Error::SnapshotExpired { table, floor });
                }
            }
            if at > clock.max(newest.time) || at >= END_OF_TIME {
                return Err(Error::TimeAhead { time: at });
            }
            at
        }
        None if Rule::TimesRise.is_broken() => clock,
        None => clock.max(newest.time.saturating_add(1)),
    };
    Ok(Stamp {
        time,
        sequence: newest.sequence + 1,
    })
}

impl Disk {
    /// Fills the log with synced zeros up to the end of a batch.
    fn grow(&self, half: &mut Half, file: &Arc<dyn File>, bytes: u64) -> Result<()> {
        let needed = half.visible + bytes;
        if needed <= half.prepared || Rule::PrepareBeforeAppend.is_broken() {
            half.prepared = half.prepared.max(needed);
            return Ok(());
        }
        let step = half.prepared.clamp(self.limits.first_bytes, MAX_GROWTH);
        let end = needed.max((half.prepared + step).min(self.limits.log_bytes.max(needed)));
        self.check_space(end - half.prepared)?;
        let zeros = vec![0; usize::try_from(end - half.prepared).unwrap_or(usize::MAX)];
        let grow = || {
            file.write_all_at(&zeros, half.prepared)?;
            file.sync_data()
        };
        grow().map_err(Error::io(self.log_path(half.log).display()))?;
        half.prepared = end;
        Ok(())
    }

    /// Appends frames at *visible*, and shows them once they are synced.
    fn append(
        &mut self,
        seen: &mut Seen,
        half: Half,
        file: &Arc<dyn File>,
        drafts: &[(&Draft, Stamp)],
        noted: LogCommit,
    ) -> Result<()> {
        let appending = Half {
            is_appending: true,
            ..half
        };
        if Rule::SayAppending.is_kept() {
            self.write(seen, appending, false)?;
        }
        let mut end = Place {
            log: half.log,
            offset: half.visible,
            frame: half.last_frame,
            link: half.link,
        };
        let seal = self.seal(half.log);
        let (mut bytes, mut bound) = (Vec::new(), half.bound);
        for (draft, stamp) in drafts {
            let head = FrameHead {
                number: 0,
                stamp: *stamp,
                seen: noted,
                before: 0,
                synced_to: half.visible,
            };
            bytes.extend(end.append(draft, head, &seal));
            bound = highest(bound, *stamp);
        }
        assert!(
            end.offset <= half.prepared,
            "a frame beyond what is prepared"
        );
        let shown = Half {
            visible: end.offset,
            last_frame: end.frame,
            bound,
            seen: noted,
            link: end.link,
            is_appending: false,
            ..half
        };
        let append = || {
            file.write_all_at(&bytes, half.visible)?;
            match Rule::SyncFrames.is_kept() {
                true => file.sync_data(),
                false => Ok(()),
            }
        };
        append().map_err(|source| Error::OutcomeUnknown { source })?;
        match self.write(seen, shown, false) {
            Ok(_) => Ok(()),
            Err(Error::Io { source, .. }) => Err(Error::OutcomeUnknown { source }),
            Err(error) => Err(error),
        }
    }
}
