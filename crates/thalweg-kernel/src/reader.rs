//! A reading process: it follows the writer through the files alone.
//!
//! Invariants: a statement sees every commit that was acknowledged before it began, and nothing that a crash could take
//! back: while `live` speaks of this boot and epoch, commits behind its `visible` are shown as far as they were stored to
//! be shown once they are written, and no further. A snapshot pins its
//! files through a slot in `readers`; where the folder cannot be written, it runs unpinned and meets a missing file as
//! `SnapshotExpired`. So does one that is older than `max_snapshot_age`: the writer passes a pin that was in its way for so
//! long. Files are never cut nor written again, so what is read is right or missing, however long this process was stopped.
//! Before its first snapshot and once it is closed a reader keeps nothing.

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, Epoch, LogPosition};
use crate::kernel::{Options, Published};
use crate::live::{LiveFile, PinPlace, Slots};
use crate::open::{check_folders, look_for_database, no_database, writer_is_alive};
use crate::pins::Pins;
use crate::reader_slots::ReaderSlot;
use crate::recover::{Recovered, apply, recover};
use crate::replay::Replay;
use crate::root::RootFile;
use crate::state::Snapshot;
use crate::store::Store;
use crate::working::Working;
use arc_swap::ArcSwap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_env::sync::Mutex;

/// How often a reader starts over when files vanish under it: each time the writer has moved on by a checkpoint.
const ATTEMPTS: usize = 16;
/// Frames behind the last load after which the state is read anew from the root, so that memory stays bounded.
const RELOAD_FRAMES: u64 = 65_536;

pub(crate) struct Reader {
    env: Env,
    dir: PathBuf,
    store: Arc<Store>,
    published: Published,
    pins: Arc<Pins>,
    /// `None` once it is closed.
    open: Mutex<Option<Open>>,
    max_age_ns: u64,
}

/// What is given back when it is closed.
struct Open {
    following: Following,
    slot: Option<ReaderSlot>,
}

/// How far the log was read.
struct Following {
    root: RootFile,
    live: Option<LiveFile>,
    working: Working,
    replay: Replay,
    boot: [u8; 16],
    /// A frame was read and not applied: the state is to be loaded anew.
    broken: bool,
}

impl Reader {
    pub(crate) fn open(env: &Env, dir: &Path, options: &Options) -> Result<Self> {
        if !look_for_database(env, dir)? {
            return Err(no_database(env, dir));
        }
        check_folders(env, dir)?;
        let root = RootFile::open(env, dir, false)?;
        let database = root.current.database;
        let pins = Arc::new(Pins::new(env.owner()));
        // Pins everything while the state is loaded: nothing may go.
        let mut slot = ReaderSlot::take(env, dir)?;
        let has_slot = slot.is_some();
        let store = Store::new(env.clone(), dir.to_owned(), database, options.cache_bytes);
        let store = Arc::new(store.whose_files_may_go({
            let (env, dir, pins) = (env.clone(), dir.to_owned(), Arc::clone(&pins));
            move || too_old(&env, &dir, pins.oldest()?, has_slot)
        }));
        let mut following = retry(|| Following::load(env, dir, &store))?;
        if let Some(slot) = &mut slot {
            // Nobody has a snapshot yet.
            slot.pin(PinPlace::NOTHING)?;
        }
        let published = Arc::new(ArcSwap::new(following.working.publish(following.epoch())));
        Ok(Self {
            env: env.clone(),
            dir: dir.to_owned(),
            store,
            published,
            pins,
            max_age_ns: u64::try_from(options.max_snapshot_age.as_nanos()).unwrap_or(u64::MAX),
            open: Mutex::new(Some(Open { following, slot })),
        })
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What is acknowledged now.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let mut open = self.open.lock();
        let Some(open) = open.as_mut() else {
            return Err(Error::new(ErrorKind::Unavailable, "the database is closed"));
        };
        for _ in 0..ATTEMPTS {
            let snapshot = self.try_snapshot(open)?;
            let floor = gc_floor(open.following.live.as_ref(), open.following.boot)?;
            if floor <= snapshot.place() {
                return Ok(snapshot);
            }
            // A pin that was in the way for long did not count. The one that was just set does.
        }
        let message =
            "the files of this snapshot were deleted while it was taken: run the statement again";
        Err(Error::new(ErrorKind::SnapshotExpired, message))
    }

    /// Keeps nothing any more, whatever snapshots are left. Waits for one that is being taken.
    pub(crate) fn close(&self) {
        drop(self.open.lock().take());
    }

    fn try_snapshot(&self, open: &mut Open) -> Result<Snapshot> {
        let Open { following, slot } = open;
        let mut pin = |place| slot.as_mut().map_or(Ok(()), |slot| slot.pin(place));
        let now_ns = self.env.clock().monotonic_ns();
        // Snapshots that are too old keep nothing, and nothing from the younger ones.
        let young_ns = now_ns.saturating_sub(self.max_age_ns);
        // Everything from what was shown so far on stays until the new pin is known to count.
        let oldest = self.pins.oldest_since(young_ns);
        pin(oldest.unwrap_or_else(|| following.place()))?;
        let fresh = following.follow(&self.env, &self.dir, &self.store);
        match fresh {
            Ok(()) => {}
            // The writer has moved on and deleted what this reader stood on: start over from the root.
            Err(first) => {
                let loaded = retry(|| Following::load(&self.env, &self.dir, &self.store));
                *following = loaded.map_err(|_| first)?;
            }
        }
        if following.working.changed {
            let epoch = following.epoch();
            self.published.store(following.working.publish(epoch));
        } else {
            let commit = following.working.commit.0;
            self.published
                .load()
                .visible
                .store(commit, thalweg_env::sync::atomic::Ordering::Release);
        }
        let snapshot = self.pins.snapshot(&self.published, now_ns);
        let oldest = self.pins.oldest_since(young_ns);
        pin(oldest.unwrap_or_else(|| snapshot.place()))?;
        Ok(snapshot)
    }
}

fn retry(load: impl Fn() -> Result<Following>) -> Result<Following> {
    let mut last = load();
    for _ in 1..ATTEMPTS {
        match &last {
            // A vanished file, or bytes under the hand of the writer.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::SnapshotExpired
                ) =>
            {
                last = load()
            }
            _ => break,
        }
    }
    last
}

impl Following {
    /// Reads root, checkpoint and the log behind it.
    fn load(env: &Env, dir: &Path, store: &Store) -> Result<Self> {
        let root = RootFile::open(env, dir, false)?;
        let (live, slots) = what_live_says(env, dir)?;
        let said = slots.and_then(|slots| slots.said);
        let boot = env.clock().boot_id();
        let limit = visible_limit(env, dir, slots, &root, boot)?;
        // Without a word of this boot all that is valid counts, unless a writer is just recovering it.
        if limit.is_none()
            && writer_is_alive(env, dir)?
            && said.is_some_and(|l| l.epoch > root.current.epoch)
        {
            return Err(Error::corruption(
                dir.display(),
                "the root is older than `live`",
            ));
        }
        let said_of_this =
            said.filter(|l| l.database == root.current.database && l.epoch == root.current.epoch);
        let proven = said_of_this.map_or_else(LogPosition::default, |l| l.synced);
        let may_be_torn = limit.is_none() && said_of_this.is_none_or(|l| l.boot != boot);
        let Recovered {
            mut working,
            tail,
            replay,
            ..
        } = recover(env, dir, &root.current, proven, limit, may_be_torn, store)?;
        for (frame, _) in tail {
            apply(&mut working, frame, store)?;
        }
        match limit {
            Some(limit) if working.commit < limit => {
                let what = format!(
                    "the log ends at commit {}, but {} was acknowledged",
                    working.commit.0, limit.0
                );
                return Err(Error::corruption(dir.join("log").display(), what));
            }
            Some(_) => {}
            // A writer that began its epoch meanwhile may have written commits since that are not acknowledged yet.
            None if said != what_live_says(env, dir)?.1.and_then(|slots| slots.said) => {
                return Err(Error::corruption(dir.display(), "a writer is opening it"));
            }
            None => {}
        }
        working.settle_pending(store);
        if let Some(error) = working.pending_error()
            && is_outdated(env, dir, &root)?
        {
            // Its pages may just be gone, with all that needed them.
            return Err(error);
        }
        Ok(Self {
            broken: false,
            root,
            live,
            working,
            replay,
            boot,
        })
    }

    /// Reads what was appended since.
    fn follow(&mut self, env: &Env, dir: &Path, store: &Store) -> Result<()> {
        let slots = self.live.as_ref().map(LiveFile::read_slots).transpose()?;
        let limit = visible_limit(env, dir, slots, &self.root, self.boot)?;
        let was_broken = std::mem::replace(&mut self.broken, true);
        if let Some(told) = limit
            && !was_broken
            && self.working.since_checkpoint.frames < RELOAD_FRAMES
        {
            if self.replay.may_go_on()? {
                self.replay.refresh();
                while let Some(frame) = self.replay.next(told)? {
                    apply(&mut self.working, frame, store)?;
                }
            }
            self.working.settle_pending(store);
            let may_be_fine_by_now =
                !self.working.pending.is_empty() && is_outdated(env, dir, &self.root)?;
            if self.working.commit >= told && !may_be_fine_by_now {
                self.broken = false;
                return Ok(());
            }
        }
        *self = Self::load(env, dir, store)?;
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        self.root.current.epoch
    }

    fn place(&self) -> PinPlace {
        PinPlace {
            epoch: self.epoch(),
            commit: self.working.commit,
        }
    }
}

/// Whether the root names another checkpoint by now.
fn is_outdated(env: &Env, dir: &Path, root: &RootFile) -> Result<bool> {
    let now = RootFile::open(env, dir, false)?;
    Ok(now.current.sequence != root.current.sequence)
}

/// Files that only snapshots before this place need may be gone.
fn gc_floor(live: Option<&LiveFile>, boot: [u8; 16]) -> Result<PinPlace> {
    let said = live.map(LiveFile::read).transpose()?.flatten();
    Ok(said
        .filter(|l| l.boot == boot)
        .map_or_else(PinPlace::default, |l| l.gc_floor))
}

/// What to say of a file that is missing, if the oldest snapshot in use may have lost some.
fn too_old(env: &Env, dir: &Path, oldest: PinPlace, has_slot: bool) -> Option<Error> {
    let live = LiveFile::open_reader(env, dir).ok()?;
    let floor = gc_floor(live.as_ref(), env.clock().boot_id()).ok()?;
    let why = if has_slot {
        "the snapshot is older than this process or the writing one lets snapshots become (`max_snapshot_age`)"
    } else {
        "this process could not keep it, because it may not write to the folder, or too many others read"
    };
    let message = format!("a file of this snapshot is gone: {why}; run the statement again");
    (floor > oldest).then(|| Error::new(ErrorKind::SnapshotExpired, message))
}

/// `live`, opened anew, and what it says.
fn what_live_says(env: &Env, dir: &Path) -> Result<(Option<LiveFile>, Option<Slots>)> {
    let live = LiveFile::open_reader(env, dir)?;
    let slots = live.as_ref().map(LiveFile::read_slots).transpose()?;
    Ok((live, slots))
}

/// The last commit that may be shown, if `live` knows.
fn visible_limit(
    env: &Env,
    dir: &Path,
    slots: Option<Slots>,
    root: &RootFile,
    boot: [u8; 16],
) -> Result<Option<CommitNo>> {
    let said = slots.and_then(|slots| slots.said);
    let said = said.filter(|l| l.boot == boot && l.epoch == root.current.epoch);
    let Some(said) = said else {
        return Ok(None);
    };
    let is_damaged = slots.is_some_and(|slots| slots.is_damaged);
    Ok((!is_damaged || writer_is_alive(env, dir)?).then_some(said.visible))
}
