//! A reading process: it follows the writer through the files alone.
//!
//! Invariants
//! - A statement sees every commit that was acknowledged before it began, and nothing that a power cut could take back but
//!   what was stored to be shown once it is written. Where it reads, and how far, is decided by [`View::of`] alone.
//! - Its trees use only pages that the checkpoint it started from references, and what came since: once the writer has passed
//!   a checkpoint the state is loaded anew. So a reader needs no more memory than the writer, and no page that the writer's
//!   own trees do not need as well.
//! - A snapshot pins its files through a slot in `readers`; where the folder cannot be written, it runs unpinned and meets a
//!   missing file as `SnapshotExpired`. So does one that is older than `max_snapshot_age`: the writer passes a pin that was in
//!   its way for so long. Files are never cut nor written again, so what is read is right or missing, however long this
//!   process was stopped.
//! - A file that the writer may remove is closed by the first snapshot that is taken while no snapshot needs it any more.
//! - Before its first snapshot and once it is closed a reader keeps nothing.

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, DatabaseId, Epoch};
use crate::live::{Live, LiveFile, PinPlace, Told};
use crate::open::{check_folders, hold_folder, look_for_database, no_database};
use crate::options::Options;
use crate::pins::Pins;
use crate::reader_slots::ReaderSlot;
use crate::recover::{Recovered, apply};
use crate::replay::Replay;
use crate::root::{Root, RootFile};
use crate::state::{Published, Snapshot};
use crate::store::Store;
use crate::view::View;
use crate::working::Working;
use arc_swap::ArcSwap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};

/// How often a reader starts over when files vanish under it: each time the writer has moved on by a checkpoint.
const ATTEMPTS: usize = 16;

pub(crate) struct Reader {
    env: Env,
    dir: PathBuf,
    store: Arc<Store>,
    published: Published,
    pins: Arc<Pins>,
    /// `None` once it is closed.
    open: Mutex<Option<Open>>,
    max_age_ns: u64,
    /// A file was missing: the next snapshot is of a state that is loaded anew.
    missed_file: Arc<AtomicBool>,
}

/// State that is given back when the reader is closed.
struct Open {
    following: Following,
    slot: Option<ReaderSlot>,
    /// The garbage floor up to which no removed file is kept open.
    closed_below: PinPlace,
}

/// How far the log was read.
struct Following {
    /// Where the state was loaded from.
    from: Root,
    live: Option<LiveFile>,
    working: Working,
    replay: Replay,
    boot: [u8; 16],
    /// A frame was read and not applied: the state is to be loaded anew.
    is_broken: bool,
}

impl Reader {
    pub(crate) fn open(env: &Env, dir: &Path, options: &Options) -> Result<Self> {
        if !look_for_database(env, dir)? {
            return Err(no_database(env, dir));
        }
        let env = &hold_folder(env, dir)?;
        check_folders(env, dir)?;
        let database = read_root(env, dir)?.current.database;
        let pins = Arc::new(Pins::new(env.owner()));
        // Pins everything while the state is loaded: nothing may go.
        let mut slot = ReaderSlot::take(env, dir)?;
        let has_slot = slot.is_some();
        let missed_file: Arc<AtomicBool> = Arc::default();
        let store = Store::new(env.clone(), dir.to_owned(), database, options.cache_bytes);
        let store = Arc::new(store.whose_files_may_go({
            let (env, dir, pins) = (env.clone(), dir.to_owned(), Arc::clone(&pins));
            let missed_file = Arc::clone(&missed_file);
            move || {
                missed_file.store(true, Ordering::Release);
                too_old(&env, &dir, database, pins.oldest()?, has_slot)
            }
        }));
        let mut following = retry(|| Following::load(env, dir, &store, Epoch(0)))?;
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
            missed_file,
            open: Mutex::new(Some(Open {
                following,
                slot,
                closed_below: PinPlace::EVERYTHING,
            })),
        })
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A snapshot of what is acknowledged now.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let mut open = self.open.lock();
        let Some(open) = open.as_mut() else {
            return Err(Error::closed());
        };
        for _ in 0..ATTEMPTS {
            let snapshot = self.try_snapshot(open)?;
            let floor = open.following.gc_floor()?;
            if floor <= snapshot.place() {
                self.close_files(open, floor);
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

    /// Closes files that may be removed, once no snapshot needs them that is not too old: until then the space of a removed
    /// one would stay taken.
    ///
    /// All are closed, not only those: what is read again is opened again, and this needs no walk over the index to tell which
    /// are needed. Nothing opens one of them again, for what is read from now on is of a state after the floor.
    fn close_files(&self, open: &mut Open, floor: PinPlace) {
        let oldest = self.pins.oldest_since(self.young_ns());
        if floor > open.closed_below && oldest.is_none_or(|oldest| oldest >= floor) {
            self.store.close_files();
            open.closed_below = floor;
        }
    }

    /// Snapshots from before this time are too old: they keep nothing.
    fn young_ns(&self) -> u64 {
        let now_ns = self.env.clock().monotonic_ns();
        now_ns.saturating_sub(self.max_age_ns)
    }

    fn try_snapshot(&self, open: &mut Open) -> Result<Snapshot> {
        let Open {
            following, slot, ..
        } = open;
        let mut pin = |place| slot.as_mut().map_or(Ok(()), |slot| slot.pin(place));
        let now_ns = self.env.clock().monotonic_ns();
        // Snapshots that are too old keep nothing, and nothing from the younger ones.
        let young_ns = now_ns.saturating_sub(self.max_age_ns);
        // Everything from what was shown so far on stays until the new pin is known to count.
        let oldest = self.pins.oldest_since(young_ns);
        following.is_broken |= self.missed_file.swap(false, Ordering::AcqRel);
        pin(oldest.unwrap_or_else(|| following.place()))?;
        let fresh = following.follow(&self.env, &self.dir, &self.store);
        match fresh {
            Ok(()) => {}
            // The writer has moved on and deleted what this reader stood on: start over from the root.
            Err(first) => {
                let shown = following.epoch();
                let loaded = retry(|| Following::load(&self.env, &self.dir, &self.store, shown));
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
                .store(commit, Ordering::Release);
        }
        let snapshot = Snapshot::new(self.pins.pin(&self.published, now_ns));
        let oldest = self.pins.oldest_since(young_ns);
        pin(oldest.unwrap_or_else(|| snapshot.place()))?;
        Ok(snapshot)
    }
}

/// The root, beside a writer that may write both its slots meanwhile: each read of a slot may be torn, so that none can be read.
fn read_root(env: &Env, dir: &Path) -> Result<RootFile> {
    retry(|| RootFile::open(env, dir, false))
}

fn retry<T>(load: impl Fn() -> Result<T>) -> Result<T> {
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
    /// Reads root, checkpoint and the log after it. `shown`: the epoch that was shown before.
    fn load(env: &Env, dir: &Path, store: &Store, shown: Epoch) -> Result<Self> {
        let root = RootFile::open(env, dir, false)?;
        let (database, boot) = (root.current.database, env.clock().boot_id());
        let live = LiveFile::open_reader(env, dir)?;
        let told = what_live_tells(live.as_ref(), database, boot)?;
        let view = View::of(dir, &root, &told, boot, shown)?;
        let Recovered {
            mut working,
            tail,
            replay,
            ..
        } = view.recover(env, dir, store)?;
        for (frame, _) in tail {
            apply(&mut working, frame, store)?;
        }
        let from = view.from;
        let lost = view.limit.filter(|limit| working.commit < *limit);
        if view.limit.is_none() || lost.is_some() {
            // A writer that began its epoch meanwhile may have written commits since that are not acknowledged yet.
            let live = LiveFile::open_reader(env, dir)?;
            if what_live_tells(live.as_ref(), database, boot)? != told {
                return Err(Error::corruption(dir.display(), "a writer is opening it"));
            }
            if let (Some(last), Some(live)) = (lost, live)
                && live.has_writer()?
            {
                return Err(lost_by_a_sync(dir, working.commit, last));
            }
        }
        working.settle_pending(store);
        if let Some(error) = working.pending_error()
            && is_outdated(env, dir, &from)?
        {
            // Its pages may just be gone, with all that needed them.
            return Err(error);
        }
        Ok(Self {
            from,
            live,
            working,
            replay,
            boot,
            // A frame after those that were lost continues nothing.
            is_broken: lost.is_some(),
        })
    }

    /// Reads what was appended since.
    fn follow(&mut self, env: &Env, dir: &Path, store: &Store) -> Result<()> {
        let told = what_live_tells(self.live.as_ref(), self.from.database, self.boot)?;
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let goes_on = |live: &Live| {
            let is_same_checkpoint = live.checkpoint <= self.from.checkpoint;
            told.is_current && live.epoch == self.from.epoch && is_same_checkpoint && !was_broken
        };
        let is_synced = told
            .live
            .is_some_and(|live| live.synced >= self.replay.at());
        let is_whole = is_synced || self.replay.keeps_last()?;
        if let Some(live) = told.live.filter(|live| is_whole && goes_on(live)) {
            if self.replay.may_go_on()? {
                self.replay.refresh();
                while let Some(frame) = self.replay.next(live.visible)? {
                    apply(&mut self.working, frame, store)?;
                }
            }
            self.working.settle_pending(store);
            let may_be_whole =
                !self.working.pending.is_empty() && is_outdated(env, dir, &self.from)?;
            if self.working.commit >= live.visible && !may_be_whole {
                self.is_broken = false;
                return Ok(());
            }
        }
        *self = Self::load(env, dir, store, self.epoch())?;
        Ok(())
    }

    /// Files that only snapshots before this place need may be gone.
    fn gc_floor(&self) -> Result<PinPlace> {
        gc_floor(self.live.as_ref(), self.from.database)
    }

    fn epoch(&self) -> Epoch {
        self.from.epoch
    }

    fn place(&self) -> PinPlace {
        PinPlace {
            epoch: self.epoch(),
            commit: self.working.commit,
        }
    }
}

/// The error for a log that ends before commits that were acknowledged, where nothing proves that the rest was ever
/// synced: some file systems take back what a failed sync was to store. Without a writer the log is shown as one that
/// opens it would find it; as long as one is open, its own snapshots may show what is lost.
fn lost_by_a_sync(dir: &Path, end: CommitNo, last: CommitNo) -> Error {
    let message = format!(
        "{}: the log ends at commit {}, but {} was acknowledged: the writing process has lost commits when a sync failed; \
         close it, or open the database in it again",
        dir.join("log").display(),
        end.0,
        last.0
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether no slot of the root names the checkpoint of a state any more: then its files may be gone.
fn is_outdated(env: &Env, dir: &Path, from: &Root) -> Result<bool> {
    let now = read_root(env, dir)?;
    let mut slots = [Some(now.current), now.other].into_iter().flatten();
    Ok(!slots.any(|slot| slot.checkpoint == from.checkpoint))
}

/// Files that only snapshots before this place need may be gone.
fn gc_floor(live: Option<&LiveFile>, database: DatabaseId) -> Result<PinPlace> {
    let slots = live.map(LiveFile::read_readable_slots).transpose()?;
    let said = slots.and_then(|slots| slots.said);
    let said = said.filter(|live| live.database == database);
    Ok(said.map_or_else(PinPlace::default, |live| live.gc_floor))
}

/// The error for a file that is missing: `SnapshotExpired` if the writer may have removed files of the `oldest` snapshot in use, or
/// the error of reading `live`, which decides that. `None`: the file is lost, which is damage.
fn too_old(
    env: &Env,
    dir: &Path,
    database: DatabaseId,
    oldest: PinPlace,
    has_slot: bool,
) -> Option<Error> {
    let said = LiveFile::open_reader(env, dir).and_then(|live| gc_floor(live.as_ref(), database));
    let floor = match said {
        Ok(floor) => floor,
        Err(error) => return Some(error),
    };
    let why = if has_slot {
        "the snapshot is older than this process or the writing one lets snapshots become (`max_snapshot_age`), or the disk \
         was full when it was taken"
    } else {
        "this process could not keep it, because it may not write to the folder, or too many others read"
    };
    let message = format!("a file of this snapshot is gone: {why}; run the statement again");
    (floor > oldest).then(|| Error::new(ErrorKind::SnapshotExpired, message))
}

fn what_live_tells(live: Option<&LiveFile>, database: DatabaseId, boot: [u8; 16]) -> Result<Told> {
    let told = live.map(|live| live.told(database, boot)).transpose()?;
    Ok(told.unwrap_or_default())
}
