//! Where a repair starts from: the checkpoint that the root names, or else the newest whole one in the log, or else the first
//! commit of all.
//!
//! Invariants: nothing is written. A checkpoint of an epoch that may not have begun (no root or `live` names it, and nothing
//! follows its only checkpoint: its recovery may have been cut short) counts only if there is no other; the epoch before it
//! says the same.

use super::{RepairReport, file_damage};
use crate::checkpoint::index_section;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::FrameHead;
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition};
use crate::live::{Live, LiveFile};
use crate::open::unfinished_epochs;
use crate::replay::{Replay, find_frame};
use crate::root::{ROOT_NAME, Root, RootFile};
use crate::segment::{self, SEGMENT_HEADER_BYTES, list_segments, log_dir, segment_path};
use crate::store::segment_name;
use crate::verify::log_damage;
use crate::working::Working;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, OpenMode};

/// What a repair starts from.
pub(crate) struct Start {
    /// The root, if one of its slots can be read.
    pub(crate) root: Option<RootFile>,
    /// The checkpoint that counts, as a root would name it.
    pub(crate) from: Root,
    pub(crate) replay: Replay,
    pub(crate) working: Working,
    /// Up to here the log is known to have been synced.
    pub(crate) proven: LogPosition,
    /// The last commit that is known to have been shown, by whatever tells.
    pub(crate) told: CommitNo,
    /// The same, of epochs that are lost as a whole, or of a checkpoint that is.
    pub(crate) told_elsewhere: CommitNo,
    /// The highest epoch that ever began, or was to.
    pub(crate) last_epoch: Epoch,
}

/// Finds it. What is wrong with the root and its checkpoint goes into the report.
pub(crate) fn find_start(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<Start> {
    let live = match LiveFile::open_reader(env, dir)? {
        Some(live) => live.read()?,
        None => None,
    };
    let mut segments = Segments::read(env, dir)?;
    let root = match RootFile::open(env, dir, true) {
        Ok(root) => Some(root),
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
            report.mended.push(file_damage(ROOT_NAME, &e));
            None
        }
        Err(e) => return Err(e),
    };
    let database = match &root {
        Some(root) => root.current.database,
        None => segments.database(dir)?,
    };
    let live = live.filter(|live| live.database == database);
    let named = root.as_ref().map(|root| root.current);
    let found = match named {
        Some(root) => start_from(env, dir, &root, live, report)?,
        None => None,
    };
    let begun = [live.map(|live| live.epoch), named.map(|root| root.epoch)];
    segments.epochs.extend(begun.into_iter().flatten());
    let (from, replay, working) = match found {
        Some(found) => found,
        None => {
            segments.newest_checkpoint(env, dir, database, begun.into_iter().max().flatten())?
        }
    };
    let slots = root.iter().flat_map(|r| [Some(r.current), r.other]);
    let slots: Vec<Root> = slots.flatten().collect();
    let roots = slots.iter().filter(|root| root.epoch == from.epoch);
    let synced = live.filter(|live| live.epoch == from.epoch);
    let proven = roots
        .map(|root| root.proven)
        .chain(synced.map(|l| l.synced));
    let told = |live: Option<Live>| {
        let checkpoints = slots.iter().map(|root| root.commit);
        let told = checkpoints.chain(live.map(|live| live.visible)).max();
        told.unwrap_or_default()
    };
    Ok(Start {
        proven: proven.max().unwrap_or_default().max(replay.at()),
        told: told(live),
        told_elsewhere: told(live.filter(|live| live.epoch > from.epoch)),
        last_epoch: segments.epochs.last().copied().unwrap_or(from.epoch),
        root,
        from,
        replay,
        working,
    })
}

/// The checkpoint that a root names, if it is whole and nothing says that the root is an old one.
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

/// What the headers of the segments say.
struct Segments {
    ids: Vec<FileId>,
    databases: BTreeSet<[u8; 16]>,
    epochs: BTreeSet<Epoch>,
}

impl Segments {
    fn read(env: &Env, dir: &Path) -> Result<Self> {
        let mut segments = Self {
            ids: list_segments(env, dir)?,
            databases: BTreeSet::new(),
            epochs: BTreeSet::new(),
        };
        for id in &segments.ids {
            // Those that do not verify tell nothing; what they say is not needed.
            let file = open(env, dir, *id)?;
            if let Ok(Some(header)) = segment::read_header(&*file, &segment_path(dir, *id))
                && header.file == *id
            {
                segments.databases.insert(header.database.0);
                segments.epochs.insert(header.epoch);
            }
        }
        Ok(segments)
    }

    /// Whose they are, where no root tells.
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

    /// The newest checkpoint that is whole.
    fn newest_checkpoint(
        &mut self,
        env: &Env,
        dir: &Path,
        database: DatabaseId,
        begun: Option<Epoch>,
    ) -> Result<(Root, Replay, Working)> {
        let mut found: Vec<Root> = Vec::new();
        let mut first_commit = None;
        let mut last_frames: BTreeMap<Epoch, LogPosition> = BTreeMap::new();
        for id in &self.ids {
            let start = LogPosition {
                segment: *id,
                offset: SEGMENT_HEADER_BYTES as u64,
            };
            let note = |at, head: &FrameHead| {
                last_frames.insert(head.id.epoch, at);
                if head.is_commit() && head.id.commit == CommitNo(1) {
                    first_commit = Some((at, head.clone()));
                }
                if !head.is_commit() && index_section(head).is_some() {
                    found.push(as_root(database, at, head));
                }
                false
            };
            find_frame(
                &*open(env, dir, *id)?,
                start,
                database,
                &mut u64::MAX.clone(),
                note,
            )?;
        }
        // Headers may be damaged, but frames tell of their epochs as well.
        self.epochs.extend(last_frames.keys());
        let may_be_unfinished = |root: &Root| {
            let is_first = found
                .iter()
                .all(|other| other.epoch != root.epoch || other.checkpoint >= root.checkpoint);
            Some(root.epoch) > begun
                && is_first
                && last_frames.get(&root.epoch) == Some(&root.checkpoint)
        };
        let mut by_worth: Vec<&Root> = found.iter().collect();
        by_worth.sort_by_key(|root| (!may_be_unfinished(root), root.epoch, root.checkpoint));
        for root in by_worth.into_iter().rev() {
            match Replay::behind_checkpoint(env, dir, root) {
                Ok((replay, working)) => return Ok((*root, replay, working)),
                Err(error) if error.kind() == ErrorKind::Corruption => {}
                Err(error) => return Err(error),
            }
        }
        let (at, head) =
            first_commit.ok_or_else(|| nothing_left(dir, "no checkpoint in the log is whole"))?;
        let replay = Replay::from_first_commit(env, dir, database, at, &head)?;
        let nothing = Root {
            commit: CommitNo(0),
            ..as_root(database, at, &head)
        };
        Ok((nothing, replay, Working::empty()))
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
    }
}

fn open(env: &Env, dir: &Path, id: FileId) -> Result<Arc<dyn File>> {
    let opened = env.storage().open(&segment_path(dir, id), OpenMode::Read);
    opened.map_err(|e| Error::io(format_args!("opening {}", segment_name(id).display()), e))
}
