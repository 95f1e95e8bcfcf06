//! Opening for writing: the lock, a new database, or recovery of an old one.
//!
//! Invariants: a database exists once its root does, and all names that lead to it are durable before that ([`crate::folders`]);
//! whatever a crash leaves before that is removed by the next opening.
//! A folder with anything else in it is never touched. An open database is the folder that had its path when it was opened,
//! whatever has the path later.
//! Recovery is done before the caller gets anything.

use crate::bases::BuildsOn;
use crate::checkpoint::{WrittenTrees, put_checkpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::features::Features;
use crate::folders::{make_database_folder, make_folders};
use crate::frame::{FRAME_MAGIC, FrameBuilder, SectionKind};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, counts_as_used};
use crate::leader::Leader;
use crate::log_writer::LogWriter;
use crate::options::Options;
use crate::paths::{
    DATA_DIR, LIVE_NAME, LOCK_NAME, LOG_DIR, READERS_NAME, ROOT_NAME, ROOT_TEMPORARY, data_dir,
    io_at, list_fragments, list_segments, log_dir, segment_path,
};
use crate::replay::head_at;
use crate::root::{Root, RootFile};
use crate::segment::{self, SEGMENT_HEADER_BYTES};
use crate::segment_supply::{SegmentSupply, Wanted};
use crate::working::Working;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, LockKind, OpenMode};

/// All that a database folder holds.
const KNOWN_NAMES: [&str; 7] = [
    ROOT_NAME,
    ROOT_TEMPORARY,
    LOCK_NAME,
    LIVE_NAME,
    READERS_NAME,
    LOG_DIR,
    DATA_DIR,
];

pub(crate) struct Opened {
    pub(crate) leader: Leader,
    pub(crate) lock: Arc<dyn File>,
}

/// Whether there is a database; an error if the path cannot be one.
pub(crate) fn look_for_database(env: &Env, dir: &Path) -> Result<bool> {
    let storage = env.storage();
    if dir.as_os_str().is_empty() {
        let message = "the path of the database is empty: name a folder";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    match storage.metadata(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io_at("opening", dir)(e)),
        Ok(found) if !found.is_dir => {
            let message = format!("{} is a file; a database is a folder", dir.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(_) => {}
    }
    let is_foreign = |name: &std::ffi::OsStr| {
        let message = format!(
            "{} holds no database but other files ({}): choose an empty or a new folder",
            dir.display(),
            name.to_string_lossy()
        );
        Error::new(ErrorKind::Invalid, message)
    };
    match storage.metadata(&dir.join(ROOT_NAME)) {
        // Systems have a folder of that name in `/`.
        Ok(found) if found.is_dir => return Err(is_foreign(ROOT_NAME.as_ref())),
        Ok(_) => return Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(io_at("opening", &dir.join(ROOT_NAME))(e)),
    }
    let foreign = |dir: &Path, is_known: &dyn Fn(&str) -> bool| -> Result<Option<_>> {
        match storage.list_dir(dir) {
            Ok(entries) => Ok(entries
                .into_iter()
                .filter(|e| !e.name.to_str().is_some_and(is_known))
                .min()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_at("listing", dir)(e)),
        }
    };
    let mut found = foreign(dir, &|name| KNOWN_NAMES.contains(&name))?;
    if found.is_none() {
        found = foreign(&log_dir(dir), &|name| {
            name.ends_with(".seg") || name.ends_with(".spare")
        })?;
    }
    if found.is_none() {
        found = foreign(&data_dir(dir), &|name| name.ends_with(".frag"))?;
    }
    match found {
        None => Ok(false),
        Some(foreign) => Err(is_foreign(&foreign.name)),
    }
}

/// The environment in which the path of a database leads to the folder that it names now. All files of an open database are
/// looked up in it: else a process that changes its working directory, or a folder that is moved or made anew, would have it
/// remove and replace the files of another database.
pub(crate) fn hold_folder(env: &Env, dir: &Path) -> Result<Env> {
    env.holding(dir).map_err(io_at("opening", dir))
}

/// Whether the folders of a database are there: its files without them are damage, not a new database.
pub(crate) fn check_folders(env: &Env, dir: &Path) -> Result<()> {
    for folder in [log_dir(dir), data_dir(dir)] {
        match env.storage().metadata(&folder) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let what = "the folder is missing: restore it from a copy";
                return Err(Error::corruption(folder.display(), what));
            }
            Err(e) => return Err(io_at("looking at", &folder)(e)),
        }
    }
    Ok(())
}

/// Opens or makes the database of a folder.
pub(crate) fn open_writer(env: &Env, dir: &Path, options: &Options) -> Result<Opened> {
    let exists = look_for_database(env, dir)?;
    if !exists {
        if options.must_exist {
            return Err(no_database(env, dir));
        }
        make_database_folder(env, dir)?;
    }
    let env = &hold_folder(env, dir)?;
    if exists {
        // Before the file `lock` is made: what lacks them may be no database.
        check_folders(env, dir)?;
    }
    let lock = take_lock(env, dir)?;
    // Checked again under the lock: another process may have made it meanwhile.
    let exists = look_for_database(env, dir)?;
    let leader = if exists {
        check_folders(env, dir)?;
        recover_leader(env, dir, options)?
    } else {
        create(env, dir, options)?
    };
    Ok(Opened { leader, lock })
}

pub(crate) fn take_lock(env: &Env, dir: &Path) -> Result<Arc<dyn File>> {
    let path = dir.join(LOCK_NAME);
    let lock = env
        .storage()
        .open(&path, OpenMode::OpenOrCreate)
        .map_err(io_at("opening", &path))?;
    if lock
        .try_lock(0..1, LockKind::Exclusive)
        .map_err(io_at("locking", &path))?
    {
        return Ok(lock);
    }
    let message = format!(
        "{} is open for writing in another process or handle: close it there, or open it with read_only",
        dir.display()
    );
    Err(Error::new(ErrorKind::Locked, message))
}

/// Whether a writer holds the lock now.
pub(crate) fn writer_is_alive(env: &Env, dir: &Path) -> Result<bool> {
    let path = dir.join(LOCK_NAME);
    let lock = match env.storage().open(&path, OpenMode::Read) {
        Ok(lock) => lock,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io_at("opening", &path)(e)),
    };
    lock.is_locked(0..1).map_err(io_at("looking at", &path))
}

/// A new database in folders that exist and are locked.
fn create(env: &Env, dir: &Path, options: &Options) -> Result<Leader> {
    make_folders(env, dir)?;
    remove_leftovers(env, dir)?;
    let mut id = [0; 16];
    env.entropy()
        .fill(&mut id)
        .map_err(|e| Error::io("drawing the id of a new database", e))?;
    let database = DatabaseId(id);
    let supply = Arc::new(SegmentSupply::new(
        env.clone(),
        dir.to_owned(),
        FileId(1),
        options.segment_bytes,
    )?);
    let made = create_with(env, dir, options, database, Arc::clone(&supply));
    if made.is_err() {
        // The segment stays, as after a crash; what was prepared would stay once per attempt.
        supply.give_up();
    }
    made
}

fn create_with(
    env: &Env,
    dir: &Path,
    options: &Options,
    database: DatabaseId,
    supply: Arc<SegmentSupply>,
) -> Result<Leader> {
    let prepared = supply.take(Wanted::default()).map_err(Failure::error)?;
    let mut log = LogWriter::begin(env, database, Epoch(1), prepared, None);
    let mut builder = FrameBuilder::default();
    builder.section(SectionKind::Pages, |_| Ok(()))?;
    builder.section(SectionKind::Index, |out| {
        put_checkpoint(
            &Working::empty(),
            BuildsOn::Nothing,
            &WrittenTrees::new(),
            out,
        )
    })?;
    let checkpoint = log.push(CommitNo(0), &builder, Vec::new(), false);
    log.write()?;
    log.sync()?;
    let root = Root {
        database,
        sequence: 1,
        epoch: Epoch(1),
        checkpoint,
        checkpoint_bytes: crate::fields::len_u32(builder.frame_bytes()),
        checkpoint_crc: log.previous_crc(),
        commit: CommitNo(0),
        proven: log.synced(),
        next_file: supply.file_id_bound(),
        features: Features::WRITTEN,
    };
    let root = RootFile::create(env, dir, root)?;
    let mut leader = Leader::new(env, dir, options, root, supply, Working::empty())?;
    leader.take_first_log(log)?;
    Ok(leader)
}

/// Why there is no database in a folder without a root.
pub(crate) fn no_database(env: &Env, dir: &Path) -> Error {
    let message = format!("there is no database at {}", dir.display());
    let none = Error::new(ErrorKind::NotFound, message);
    match check_nothing_is_lost(env, dir) {
        // Where there is no folder either, nothing is lost.
        Err(lost) if lost.kind() != ErrorKind::NotFound => {
            // Another process may have made it meanwhile, commits and all.
            let is_made = look_for_database(env, dir);
            if matches!(is_made, Ok(true)) {
                none
            } else {
                lost
            }
        }
        _ => none,
    }
}

/// Without a root there is no database, and no commits either: else the root is lost.
fn check_nothing_is_lost(env: &Env, dir: &Path) -> Result<()> {
    let lost = |what: &str| {
        let message = format!("it is missing, but {what}");
        Err(Error::corruption(dir.join(ROOT_NAME).display(), message))
    };
    let segments = list_segments(env, dir)?;
    // Made once the root and its name are synced. So there was a root, also where damage hides what the log holds.
    let was_opened = match env.storage().metadata(&dir.join(LIVE_NAME)) {
        Ok(_) => true,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(io_at("looking at", &dir.join(LIVE_NAME))(e)),
    };
    if was_opened && segments.is_empty() {
        return lost("there is a `live` of a database: restore it and the log from a backup");
    }
    for id in segments {
        if was_opened || holds_commits(env, dir, id)? {
            // Whether it has one takes a look at all of the log.
            return lost(
                "the log holds commits: `thalweg verify --repair` makes it anew if the log has a checkpoint that is whole; else \
                 restore it from a backup",
            );
        }
    }
    let data = data_dir(dir);
    let files = env.storage().list_dir(&data);
    if !files.map_err(io_at("listing", &data))?.is_empty() {
        // Without the log nothing shows what they are: there is nothing that a repair could start from.
        return lost("there are data files: restore it and the log from a backup");
    }
    Ok(())
}

/// Removes the segments that a crash has left while a database was made: nothing was acknowledged in it.
fn remove_leftovers(env: &Env, dir: &Path) -> Result<()> {
    check_nothing_is_lost(env, dir)?;
    for id in list_segments(env, dir)? {
        let path = segment_path(dir, id);
        env.storage()
            .remove_file(&path)
            .map_err(io_at("removing", &path))?;
    }
    Ok(())
}

/// Whether a segment is more than the first one of a database whose root was never written.
fn holds_commits(env: &Env, dir: &Path, id: FileId) -> Result<bool> {
    let path = segment_path(dir, id);
    let file = env
        .storage()
        .open(&path, OpenMode::Read)
        .map_err(io_at("opening", &path))?;
    let Some(header) = segment::whole_header(&*file, &path)? else {
        return Ok(false);
    };
    if header.epoch != Epoch(1) || header.previous.is_some() {
        return Ok(true);
    }
    let at = LogPosition {
        segment: id,
        offset: SEGMENT_HEADER_BYTES as u64,
    };
    let Some(first) = head_at(&*file, at, header.database)? else {
        return Ok(false);
    };
    let mut magic = [0; 4];
    let next = at.offset + u64::from(first.frame_bytes);
    match file.read_exact_at(&mut magic, next) {
        Ok(()) => Ok(magic == FRAME_MAGIC.to_le_bytes()),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(io_at("reading", &path)(e)),
    }
}

fn recover_leader(env: &Env, dir: &Path, options: &Options) -> Result<Leader> {
    let root = RootFile::open(env, dir, true)?;
    let current = root.current;
    let next_file = free_file_id(env, dir, current.next_file)?;
    let supply = Arc::new(SegmentSupply::new(
        env.clone(),
        dir.to_owned(),
        next_file,
        options.segment_bytes,
    )?);
    let mut leader = Leader::new(env, dir, options, root, supply, Working::empty())?;
    leader.recover_at_opening()?;
    leader.shared().supply.pause();
    Ok(leader)
}

/// An id above `known`, that of the root, and above the names of all segments and fragments: ids are not used twice, even if
/// a newer root that knew them was lost.
pub(crate) fn free_file_id(env: &Env, dir: &Path, known: FileId) -> Result<FileId> {
    let mut ids = list_segments(env, dir)?;
    ids.extend(list_fragments(env, dir)?);
    let used = ids.into_iter().filter(|id| counts_as_used(*id, known));
    Ok(used.map(|id| FileId(id.0 + 1)).fold(known, FileId::max))
}
