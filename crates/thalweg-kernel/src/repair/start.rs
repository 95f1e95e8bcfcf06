//! Where a repair starts from: the checkpoint that the root names, or else the newest whole one in the log, or else the empty
//! state before the first commit of all. Where rows would be lost by that, also from other checkpoints in the log.
//!
//! Invariants: nothing is written. A checkpoint of an epoch that may not have begun (no root or `live` names it, and nothing
//! follows its only checkpoint: its recovery, or a repair, may have been cut short) counts only if there is no other, or if
//! the log before it ends too early, and whole: then that was removed since. Else the epoch before it, and what it wrote again
//! of that, give the same state, and show what is lost, which a repair that was cut short has not reported.

use super::{RepairReport, file_damage};
use crate::checkpoint::index_section;
use crate::error::{Error, ErrorKind, Result};
use crate::features::Features;
use crate::frame::FrameHead;
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition};
use crate::live::{Live, LiveFile};
use crate::paths::{LIVE_NAME, ROOT_NAME, list_segments, log_dir, segment_name, segment_path};
use crate::replay::{NamedCheckpoint, ReadFrom, Replay, find_frame};
use crate::root::{Root, RootFile};
use crate::segment::{SEGMENT_HEADER_BYTES, whole_header};
use crate::unfinished::unfinished_epochs;
use crate::verify::{check_other, log_damage};
use crate::working::Working;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, OpenMode};

/// Stands in the place of the last commit that is lost, where it is not known.
pub(crate) const UNKNOWN: CommitNo = CommitNo(u64::MAX);

/// The start of a repair.
pub(crate) struct Start {
    /// The checkpoint that counts, as a root would name it.
    pub(crate) from: Root,
    /// A slot of the root names it: no file was removed that it needs.
    pub(crate) is_named: bool,
    pub(crate) working: Working,
    /// The log of its epoch after it, and of each epoch after that.
    pub(crate) logs: Vec<EpochLog>,
    /// The last commit that is known to have been shown, by whichever source.
    pub(crate) told: CommitNo,
    /// The same, of a checkpoint. Of an epoch that began and of which no frame is left: all that there can be.
    pub(crate) told_elsewhere: CommitNo,
    /// The highest epoch that ever began, or was to.
    pub(crate) last_epoch: Epoch,
}

impl Start {
    /// The last epoch of which the log is read.
    fn last_read(&self) -> Epoch {
        let last = self.logs.last();
        last.map_or(self.from.epoch, |log| log.replay.epoch())
    }
}

/// The frames of an epoch that are to be read.
pub(crate) struct EpochLog {
    pub(crate) replay: Replay,
    /// Where they begin.
    pub(crate) from: LogPosition,
    /// Up to here the log is known to have been synced.
    pub(crate) proven: LogPosition,
    /// The last commit that this epoch took over from the one before it, if it is known.
    pub(crate) taken_over: Option<CommitNo>,
}

/// The sources that are read before the log: the root, `live` and the headers of the segments.
pub(crate) struct Sources {
    /// The root, if one of its slots can be read.
    pub(crate) root: Option<RootFile>,
    pub(crate) database: DatabaseId,
    told: Told,
    segments: Segments,
    /// The notes on the frames of the log, once it was read for them.
    frames: Option<Arc<Frames>>,
}

impl Sources {
    /// Reads them. What is wrong with root and `live` goes into the report.
    pub(crate) fn read(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<Self> {
        let live = match LiveFile::open_reader(env, dir)? {
            Some(live) => {
                let slots = live.read_slots()?;
                if slots.is_damaged {
                    let what = "a slot does not verify: the log says what was stored";
                    let damage = Error::corruption(LIVE_NAME, what);
                    report.mended.push(file_damage(LIVE_NAME, &damage));
                }
                slots.said
            }
            None => None,
        };
        let mut segments = Segments::read(env, dir)?;
        let mut opened = RootFile::open(env, dir, true);
        if matches!(&opened, Ok(root) if root.unreadable_slot.is_some()) {
            // Written over at the end, a slot would be lost for one read that failed: it gets another chance.
            opened = RootFile::open(env, dir, true);
        }
        let root = match opened {
            Ok(root) => Some(root),
            Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
                report.mended.push(file_damage(ROOT_NAME, &e));
                None
            }
            Err(e) => return Err(e),
        };
        // Written anew by the repair: it may be the newer one, and what that leads to damaged.
        if let Some(error) = root.as_ref().and_then(|root| root.unreadable_slot.as_ref()) {
            report.mended.push(file_damage(ROOT_NAME, error));
        }
        let database = match &root {
            Some(root) => root.current.database,
            None => segments.database(dir)?,
        };
        let slots = root.iter().flat_map(|r| [Some(r.current), r.other]);
        let told = Told {
            slots: slots.flatten().collect(),
            live: live.filter(|live| live.database == database),
        };
        segments.epochs.extend(told.begun());
        Ok(Self {
            root,
            database,
            told,
            segments,
            frames: None,
        })
    }

    /// All of the log is read for that, once.
    fn frames(&mut self, env: &Env, dir: &Path) -> Result<Arc<Frames>> {
        if let Some(frames) = &self.frames {
            return Ok(Arc::clone(frames));
        }
        let frames = Arc::new(self.segments.frames(env, dir, self.database)?);
        self.frames = Some(Arc::clone(&frames));
        Ok(frames)
    }

    /// The `live` that was read, if it is of this database.
    pub(crate) fn live(&self) -> Option<Live> {
        self.told.live
    }

    /// The slot that readers go by, if it is not the newest: `live` and the other slot name the epoch before. So an opening or a
    /// repair has left them that was cut short between the two slots.
    pub(crate) fn slot_of_readers(&self) -> Option<Root> {
        let (live, root) = (self.told.live?, self.root.as_ref()?);
        let other = root.other?;
        (other.epoch == live.epoch && other.epoch < root.current.epoch).then_some(other)
    }

    /// The start from the newest checkpoint. What is wrong with the checkpoints that the root names goes into the report.
    pub(crate) fn newest_start(
        &mut self,
        env: &Env,
        dir: &Path,
        report: &mut RepairReport,
    ) -> Result<Start> {
        let named = self.root.as_ref().map(|root| root.current);
        let found = match named {
            Some(root) => start_from(env, dir, &root, self.told.live, report)?,
            None => None,
        };
        if let (Some((.., working)), Some(root)) = (&found, &self.root) {
            match check_other(env, dir, root, &working.bases) {
                Err((at, error)) if error.kind() == ErrorKind::Corruption => {
                    // Nothing is lost yet.
                    report.mended.push(log_damage(at, &error));
                }
                checked => checked.map_err(|(_, error)| error)?,
            }
        }
        if let Some(found) = found {
            return self.start(env, dir, found, LogPosition::default(), Vec::new());
        }
        let frames = self.frames(env, dir)?;
        // Headers may be damaged, but frames name their epochs as well.
        self.segments.epochs.extend(frames.last.keys());
        let found = frames.newest_checkpoint(env, dir, self.database, &self.told)?;
        let ids = &self.segments.ids;
        let logs = frames.logs_behind(env, dir, self.database, &found.0, &self.told, ids)?;
        let proven = frames.proven(found.0.epoch);
        self.start(env, dir, found, proven, logs)
    }

    /// The other checkpoints that a repair may start from instead of `newest`, as they lie in the log, which leads to the same
    /// commits from each of them.
    pub(crate) fn other_checkpoints(
        &mut self,
        env: &Env,
        dir: &Path,
        newest: &Start,
    ) -> Result<Vec<Root>> {
        let frames = self.frames(env, dir)?;
        let taken_over = frames.taken_over(&self.told);
        let counts = |root: &Root| {
            // After a torn end a power cut may have left frames that the next epoch knows nothing of.
            let behind = (Bound::Excluded(root.epoch), Bound::Unbounded);
            let next = taken_over.range(behind).next();
            let next = next.filter(|(epoch, _)| **epoch <= newest.last_read());
            let is_before = root.checkpoint < newest.from.checkpoint;
            let is_behind =
                root.checkpoint > newest.from.checkpoint && root.epoch == newest.from.epoch;
            (is_before || is_behind) && next.is_none_or(|(_, last)| root.commit <= *last)
        };
        let others = frames.checkpoints.iter().copied().filter(counts);
        let mut others: Vec<Root> = others.collect();
        others.sort_by_key(|root| root.checkpoint);
        Ok(others)
    }

    /// The start from one of these, after which the log is read as far as from `newest`; `None` where it is damaged.
    pub(crate) fn start_at(
        &mut self,
        env: &Env,
        dir: &Path,
        root: &Root,
        newest: &Start,
    ) -> Result<Option<Start>> {
        let (replay, working) = match Replay::behind_checkpoint(env, dir, root) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::Corruption => return Ok(None),
            Err(error) => return Err(error),
        };
        let frames = self.frames(env, dir)?;
        let mut logs = Vec::new();
        if newest.last_read() > root.epoch {
            let ids = &self.segments.ids;
            logs = frames.logs_behind(env, dir, self.database, root, &self.told, ids)?;
            logs.retain(|log| log.replay.epoch() <= newest.last_read());
        }
        let found = (*root, replay, working);
        let proven = frames.proven(root.epoch);
        self.start(env, dir, found, proven, logs).map(Some)
    }

    /// `proven`: up to where the frames of the epoch prove that it was synced. `logs_behind`: those of the epochs after it.
    fn start(
        &self,
        env: &Env,
        dir: &Path,
        (from, replay, working): (Root, Replay, Working),
        proven: LogPosition,
        logs_behind: Vec<EpochLog>,
    ) -> Result<Start> {
        let mut proven = self.told.proven(from.epoch).max(proven);
        let is_named = self.told.names(&from);
        if is_named {
            // Any other may be in the cache only: its process was killed before it was synced.
            proven = proven.max(replay.at());
        }
        let mut logs = vec![EpochLog {
            from: replay.at(),
            proven,
            replay,
            taken_over: None,
        }];
        logs.extend(logs_behind);
        let named = self.told.checkpoints(env, dir)?;
        for log in &mut logs {
            log.replay.expect_checkpoints(&named);
        }
        let last_read = logs.last().map_or(from.epoch, |log| log.replay.epoch());
        let checkpoints = self.told.slots.iter().map(|root| root.commit).max();
        let last_epoch = self.segments.epochs.last().copied();
        Ok(Start {
            told: self.told.last_commit(),
            told_elsewhere: if self.told.begun() > Some(last_read) {
                UNKNOWN
            } else {
                checkpoints.unwrap_or_default()
            },
            last_epoch: last_epoch.unwrap_or(from.epoch),
            from,
            is_named,
            working,
            logs,
        })
    }
}

/// The evidence of the log that is no part of it: the slots of the root, and `live`.
struct Told {
    slots: Vec<Root>,
    live: Option<Live>,
}

impl Told {
    /// Whether a slot names this checkpoint, which was synced before.
    fn names(&self, root: &Root) -> bool {
        self.slots.iter().any(|slot| slot.place() == root.place())
    }

    /// The last epoch that is known to have begun.
    fn begun(&self) -> Option<Epoch> {
        let named = self.slots.iter().map(|root| root.epoch);
        named.chain(self.live.map(|live| live.epoch)).max()
    }

    /// The checkpoints that the slots name, and those that these name.
    fn checkpoints(&self, env: &Env, dir: &Path) -> Result<Vec<NamedCheckpoint>> {
        let mut named = Vec::new();
        for root in &self.slots {
            named.push(NamedCheckpoint {
                place: root.place(),
                follows: Some((root.epoch, root.commit)),
            });
            let bases = Replay::bases_of(env, dir, root)?.into_iter();
            named.extend(bases.map(|place| NamedCheckpoint {
                place,
                follows: None,
            }));
        }
        Ok(named)
    }

    /// Up to where an epoch was synced.
    fn proven(&self, epoch: Epoch) -> LogPosition {
        let slots = self.slots.iter().filter(|root| root.epoch == epoch);
        let synced = self.live.filter(|live| live.epoch == epoch);
        let proven = slots.map(|root| root.proven);
        let proven = proven.chain(synced.map(|live| live.synced)).max();
        proven.unwrap_or_default()
    }

    /// The last commit that was shown.
    fn last_commit(&self) -> CommitNo {
        let checkpoints = self.slots.iter().map(|root| root.commit);
        let shown = self.live.map(|live| live.visible);
        checkpoints.chain(shown).max().unwrap_or_default()
    }
}

/// The checkpoint that a root names, if it is whole and nothing shows that the root is an old one.
fn start_from(
    env: &Env,
    dir: &Path,
    root: &Root,
    live: Option<Live>,
    report: &mut RepairReport,
) -> Result<Option<(Root, Replay, Working)>> {
    let found = check_age(root, live)
        .and_then(|()| unfinished_epochs(env, dir, root))
        .and_then(|_| Replay::behind_checkpoint(env, dir, root));
    let (place, error) = match (&found, Replay::check_header(env, dir, root)) {
        (Err(error), _) => (root.checkpoint, error.clone()),
        (Ok(_), Ok(())) => return Ok(found.ok().map(|(replay, working)| (*root, replay, working))),
        (Ok(_), Err(error)) => {
            let segment = root.checkpoint.segment;
            (LogPosition { segment, offset: 0 }, error)
        }
    };
    if error.kind() != ErrorKind::Corruption {
        return Err(error);
    }
    report.mended.push(log_damage(place, &error));
    Ok(found.ok().map(|(replay, working)| (*root, replay, working)))
}

fn check_age(root: &Root, live: Option<Live>) -> Result<()> {
    match live.filter(|live| live.epoch > root.epoch) {
        None => Ok(()),
        Some(live) => {
            let (old, new) = (root.epoch.0, live.epoch.0);
            let what = format!("it is of epoch {old}, but epoch {new} has begun: an old copy?");
            Err(Error::corruption(ROOT_NAME, what))
        }
    }
}

/// The segments, with the databases and epochs in their headers.
struct Segments {
    ids: Vec<FileId>,
    databases: BTreeSet<[u8; 16]>,
    epochs: BTreeSet<Epoch>,
    /// The first segment of each epoch: the last one that claims to be, for recoveries that did not finish begin the same epoch.
    first: BTreeMap<Epoch, FileId>,
}

impl Segments {
    fn read(env: &Env, dir: &Path) -> Result<Self> {
        let mut segments = Self {
            ids: list_segments(env, dir)?,
            databases: BTreeSet::new(),
            epochs: BTreeSet::new(),
            first: BTreeMap::new(),
        };
        for id in &segments.ids {
            // Those that do not verify prove nothing; their fields are not needed.
            let file = open(env, dir, *id)?;
            let header = whole_header(&*file, &segment_path(dir, *id))?;
            let Some(header) = header.filter(|header| header.file == *id) else {
                continue;
            };
            segments.databases.insert(header.database.0);
            segments.epochs.insert(header.epoch);
            if header.previous.is_none() {
                segments.first.insert(header.epoch, *id);
            }
        }
        Ok(segments)
    }

    /// The database that they are of, where no root names it.
    fn database(&self, dir: &Path) -> Result<DatabaseId> {
        let mut databases = self.databases.iter();
        let place = log_dir(dir);
        match (databases.next(), databases.next()) {
            (Some(database), None) => Ok(DatabaseId(*database)),
            (Some(_), Some(_)) => Err(Error::corruption(
                place.display(),
                "the root is damaged, and the segments are of several databases: nothing was changed",
            )),
            (None, _) => Err(nothing_left(
                dir,
                "no segment has a header that can be read",
            )),
        }
    }

    /// Reads the heads of the frames in them.
    fn frames(&self, env: &Env, dir: &Path, database: DatabaseId) -> Result<Frames> {
        let mut frames = Frames::default();
        for id in &self.ids {
            let start = LogPosition {
                segment: *id,
                offset: SEGMENT_HEADER_BYTES as u64,
            };
            let note = |at, head: &FrameHead| {
                if self.first.get(&head.id.epoch) <= Some(id) {
                    frames.note(database, at, head);
                }
                false
            };
            let file = open(env, dir, *id)?;
            find_frame(&*file, start, database, &mut u64::MAX.clone(), note)?;
        }
        Ok(frames)
    }
}

/// Facts that the heads of all frames prove.
#[derive(Default)]
struct Frames {
    checkpoints: Vec<Root>,
    first_commit: Option<(LogPosition, FrameHead)>,
    /// The first and the last frame of each epoch.
    first: BTreeMap<Epoch, (LogPosition, FrameHead)>,
    last: BTreeMap<Epoch, (LogPosition, CommitNo)>,
    /// Up to where each epoch was synced when one of its frames was written.
    synced: BTreeMap<Epoch, LogPosition>,
    /// The least commit that a frame of each epoch follows.
    min_before: BTreeMap<Epoch, CommitNo>,
}

impl Frames {
    fn note(&mut self, database: DatabaseId, at: LogPosition, head: &FrameHead) {
        let epoch = head.id.epoch;
        self.last.insert(epoch, (at, head.id.commit));
        let synced = self.synced.entry(epoch).or_default();
        *synced = head.id.synced_to.max(*synced);
        let before = head.commit_before();
        let least = self.min_before.entry(epoch).or_insert(before);
        *least = before.min(*least);
        self.first
            .entry(epoch)
            .or_insert_with(|| (at, head.clone()));
        if head.is_commit() && head.id.commit == CommitNo(1) {
            self.first_commit = Some((at, head.clone()));
        }
        if !head.is_commit() && index_section(head).is_some() {
            self.checkpoints.push(as_root(database, at, head));
        }
    }

    /// Up to where an epoch was synced, as far as its frames show. What lies before its first frame is of epochs before it, which
    /// a recovery has read: what of that was not known to be synced it has written again.
    fn proven(&self, epoch: Epoch) -> LogPosition {
        let first = self.first.get(&epoch).map(|(at, _)| *at);
        let synced = self.synced.get(&epoch).copied();
        first.max(synced).unwrap_or_default()
    }

    /// The newest checkpoint that is whole.
    fn newest_checkpoint(
        &self,
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        told: &Told,
    ) -> Result<(Root, Replay, Working)> {
        let may_be_unfinished =
            |root: &Root| Some(root.epoch) > told.begun() && self.is_only_frame_behind_tail(root);
        let mut by_worth: Vec<&Root> = self.checkpoints.iter().collect();
        by_worth.sort_by_key(|root| (!may_be_unfinished(root), root.epoch, root.checkpoint));
        let mut whole: Option<(Root, Replay, Working)> = None;
        for root in by_worth.into_iter().rev() {
            if let Some((before, ..)) = &whole
                && (before.epoch > root.epoch
                    || !may_be_unfinished(root)
                    || !self.was_removed(env, dir, before, root, told)?)
            {
                continue;
            }
            match Replay::behind_checkpoint(env, dir, root) {
                Ok((replay, working)) => whole = Some((*root, replay, working)),
                Err(error) if error.kind() == ErrorKind::Corruption => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(whole) = whole {
            return Ok(whole);
        }
        if let Some(start) = self.start_of_all(env, dir, database, told)? {
            return Ok(start);
        }
        let (at, head) = self
            .first_commit
            .as_ref()
            .ok_or_else(|| nothing_left(dir, "no checkpoint in the log is whole"))?;
        let from = ReadFrom::frame(*at, head);
        let replay = Replay::from_middle(env, dir, database, from)?;
        let nothing = Root {
            commit: CommitNo(0),
            ..as_root(database, *at, head)
        };
        Ok((nothing, replay, Working::empty()))
    }

    /// The place of a checkpoint of before the first commit, if a slot of the root names one. It need not be read:
    /// there was nothing yet. And the log after it is all there, because the slot needs it.
    fn start_of_all(
        &self,
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        told: &Told,
    ) -> Result<Option<(Root, Replay, Working)>> {
        let is_empty = |root: &&Root| root.commit == CommitNo(0);
        let empty = told.slots.iter().filter(is_empty);
        let Some(root) = empty.max_by_key(|root| (root.epoch, root.checkpoint)) else {
            return Ok(None);
        };
        let from = ReadFrom::checkpoint(root);
        match Replay::from_middle(env, dir, database, from) {
            Ok(replay) => Ok(Some((*root, replay, Working::empty()))),
            // Its segment is missing.
            Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a checkpoint is the first of its epoch and nothing follows it.
    fn is_only_frame_behind_tail(&self, root: &Root) -> bool {
        let of_epoch = |other: &&Root| other.epoch == root.epoch;
        let first = self.checkpoints.iter().find(of_epoch);
        first.map(|first| first.checkpoint) == Some(root.checkpoint)
            && self.last.get(&root.epoch).map(|(at, _)| *at) == Some(root.checkpoint)
    }

    /// Whether the log between a checkpoint and a later epoch is missing without a trace of damage: that epoch began, and
    /// the segments were removed.
    fn was_removed(
        &self,
        env: &Env,
        dir: &Path,
        from: &Root,
        behind: &Root,
        told: &Told,
    ) -> Result<bool> {
        let before = self.last.range(..behind.epoch).map(|(_, last)| last.1);
        let first = self.first.get(&behind.epoch);
        let is_missing = first.map(|(_, head)| head.commit_before()) > before.max();
        if !is_missing || told.begun() > Some(from.epoch) {
            return Ok(false);
        }
        let (mut replay, _) = Replay::behind_checkpoint(env, dir, from)?;
        let mut proven = told.proven(from.epoch).max(replay.at());
        let ended = loop {
            match replay.next(UNKNOWN) {
                Ok(Some(frame)) => proven = frame.head.id.synced_to.max(proven),
                Ok(None) => break replay.judge_end(proven),
                Err(error) => break Err(error),
            }
        };
        match ended {
            Err(error) if error.kind() == ErrorKind::Corruption => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// The logs of the epochs after the one that a repair starts from. They go on from its end: each begins with what was
    /// written again of the one before it. Where one did not begin at all there is nothing else in it.
    fn logs_behind(
        &self,
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        from: &Root,
        told: &Told,
        segments: &[FileId],
    ) -> Result<Vec<EpochLog>> {
        let mut starts: BTreeMap<Epoch, ReadFrom> = BTreeMap::new();
        for (epoch, (at, head)) in &self.first {
            starts.insert(*epoch, ReadFrom::frame(*at, head));
        }
        for root in &told.slots {
            // The first frame of an epoch may be a checkpoint that is damaged, and the only one.
            let is_first = starts
                .get(&root.epoch)
                .is_none_or(|first| root.checkpoint < first.at);
            if is_first && segments.contains(&root.checkpoint.segment) {
                starts.insert(root.epoch, ReadFrom::checkpoint(root));
            }
        }
        let behind = starts.split_off(&from.epoch).into_iter();
        let logs = behind.filter(|(epoch, _)| *epoch > from.epoch);
        let taken_over = self.taken_over(told);
        let logs = logs.map(|(epoch, start)| {
            Ok(EpochLog {
                from: start.at,
                replay: Replay::from_middle(env, dir, database, start)?,
                proven: told.proven(epoch),
                taken_over: taken_over.get(&epoch).copied(),
            })
        });
        logs.collect()
    }

    /// The last commit that each epoch took over from the one before it, as far as its frames show: it begins with a
    /// checkpoint of that, and has written all after it, or written it again. After it the epoch before may have frames
    /// that a power cut left.
    fn taken_over(&self, told: &Told) -> BTreeMap<Epoch, CommitNo> {
        let mut least = self.min_before.clone();
        for root in &told.slots {
            let first = least.entry(root.epoch).or_insert(root.commit);
            *first = root.commit.min(*first);
        }
        least
    }
}

fn nothing_left(dir: &Path, why: &str) -> Error {
    let what = format!("{why}: nothing is left to start from, and nothing was changed");
    Error::corruption(log_dir(dir).display(), what)
}

/// A root that names a checkpoint which was found.
fn as_root(database: DatabaseId, at: LogPosition, head: &FrameHead) -> Root {
    Root {
        database,
        sequence: 0,
        epoch: head.id.epoch,
        checkpoint: at,
        checkpoint_bytes: head.frame_bytes,
        checkpoint_crc: head.crc,
        commit: head.id.commit,
        proven: LogPosition::default(),
        next_file: FileId(0),
        features: Features::default(),
    }
}

fn open(env: &Env, dir: &Path, id: FileId) -> Result<Arc<dyn File>> {
    let opened = env.storage().open(&segment_path(dir, id), OpenMode::Read);
    opened.map_err(|e| Error::io(format_args!("opening {}", segment_name(id).display()), e))
}
