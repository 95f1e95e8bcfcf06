//! The root: the small file that leads to where reading starts (`docs/format/log.md`).
//!
//! Invariants: a slot is written whole, synced, and never touched again before the other one has been; of the valid slots
//! that of the later epoch counts, and of one epoch the one with the higher sequence. A change of epoch is written to both
//! slots before anything of the new epoch is acknowledged, so damage to one slot never leads back to an old epoch.

use crate::bases::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::features::Features;
use crate::fields::{Fields, PutFields};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, UNCOUNTABLE, check_countable};
use crate::paths::{ROOT_NAME, ROOT_TEMPORARY};
use crate::rules::Rule;
use crate::segment::FORMAT_VERSION;
use crate::wire::is_sound_le;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, OpenMode, is_unreadable};

const ROOT_MAGIC: &[u8; 8] = b"THALWEG1";
const SLOT_BYTES: usize = 4096;
pub(crate) const SLOTS: usize = 2;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) database: DatabaseId,
    pub(crate) sequence: u64,
    pub(crate) epoch: Epoch,
    /// The INDEX frame to start from: replay begins after it.
    pub(crate) checkpoint: LogPosition,
    pub(crate) checkpoint_bytes: u32,
    pub(crate) checkpoint_crc: u32,
    pub(crate) commit: CommitNo,
    pub(crate) proven: LogPosition,
    pub(crate) next_file: FileId,
    /// Those of its checkpoint.
    pub(crate) features: Features,
}

impl Root {
    /// Where the log goes on after its checkpoint.
    pub(crate) fn behind_checkpoint(&self) -> LogPosition {
        LogPosition {
            offset: self.checkpoint.offset + u64::from(self.checkpoint_bytes),
            ..self.checkpoint
        }
    }

    /// Where its checkpoint lies.
    pub(crate) fn place(&self) -> Place {
        Place {
            at: self.checkpoint,
            frame_bytes: self.checkpoint_bytes,
            crc: self.checkpoint_crc,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend_from_slice(ROOT_MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(self.features.to_read);
        out.extend_from_slice(&self.database.0);
        out.put_u64(self.sequence);
        out.put_u32(self.epoch.0);
        out.put_u32(self.features.to_write);
        out.put_u64(self.checkpoint.segment.0);
        out.put_u64(self.checkpoint.offset);
        out.put_u32(self.checkpoint_bytes);
        out.put_u32(self.checkpoint_crc);
        out.put_u64(self.commit.0);
        out.put_u64(self.proven.segment.0);
        out.put_u64(self.proven.offset);
        out.put_u64(self.next_file.0);
        out.resize(SLOT_BYTES - 4, 0);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Whether a writer can count on from here.
    fn check_numbers(&self, path: &Path) -> Result<()> {
        check_countable(path, "sequence", self.sequence)?;
        check_countable(path, "commit", self.commit.0)?;
        check_countable(path, "next file id", self.next_file.0)
    }

    fn decode(slot: &[u8]) -> Result<Self> {
        let (front, crc) = slot.split_at(SLOT_BYTES - 4);
        let mut wire = Fields::new(front, "root slot");
        if wire.take(8)? != ROOT_MAGIC {
            return Err(Error::corruption(
                "root slot",
                "this is not a Thalweg database",
            ));
        }
        let version = wire.u32()?;
        if !is_sound_le(crc32c::crc32c(front), crc) {
            return Err(Error::corruption("root slot", "checksum"));
        }
        if version != FORMAT_VERSION {
            let message = format!(
                "the database has format version {version}, this program reads {FORMAT_VERSION}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let to_read = wire.u32()?;
        let database = DatabaseId(wire.id()?);
        let sequence = wire.u64()?;
        let epoch = Epoch(wire.u32()?);
        let to_write = wire.u32()?;
        let features = Features { to_read, to_write };
        features.check_reading("the database")?;
        let checkpoint = LogPosition {
            segment: FileId(wire.u64()?),
            offset: wire.u64()?,
        };
        if checkpoint.offset >= UNCOUNTABLE {
            let what = "its checkpoint lies where no file reaches";
            return Err(Error::corruption("root slot", what));
        }
        let (checkpoint_bytes, checkpoint_crc) = (wire.u32()?, wire.u32()?);
        let commit = CommitNo(wire.u64()?);
        let proven = LogPosition {
            segment: FileId(wire.u64()?),
            offset: wire.u64()?,
        };
        let next_file = FileId(wire.u64()?);
        wire.reserved(SLOT_BYTES - 4 - 104)?;
        wire.finish()?;
        Ok(Self {
            database,
            sequence,
            epoch,
            checkpoint,
            checkpoint_bytes,
            checkpoint_crc,
            commit,
            proven,
            next_file,
            features,
        })
    }
}

/// The open root file.
#[derive(Debug)]
pub(crate) struct RootFile {
    file: Arc<dyn File>,
    /// The slot that counts.
    pub(crate) current: Root,
    /// The other slot, if it can be read.
    pub(crate) other: Option<Root>,
    /// Why the other slot cannot be read, if the device does not return it.
    pub(crate) unreadable_slot: Option<Error>,
    current_slot: usize,
    /// The slot that counts is known to be on disk: this process synced it.
    is_durable: bool,
    /// The highest epoch that a slot names or, where a write failed, may name.
    highest_epoch: Epoch,
}

impl RootFile {
    /// Writes the root of a new database under a temporary name, then renames it: a crash leaves no half a root.
    pub(crate) fn create(env: &Env, database: &Path, root: Root) -> Result<Self> {
        let (path, temporary) = (database.join(ROOT_NAME), database.join(ROOT_TEMPORARY));
        let fail = |e| Error::io(format_args!("creating {}", path.display()), e);
        let storage = env.storage();
        let file = storage
            .open(&temporary, OpenMode::OpenOrCreate)
            .map_err(fail)?;
        let slot = root.encode();
        file.write_all_at(&slot, 0).map_err(fail)?;
        file.write_all_at(&slot, SLOT_BYTES as u64).map_err(fail)?;
        file.set_len((SLOTS * SLOT_BYTES) as u64).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        storage.rename(&temporary, &path).map_err(fail)?;
        if let Err(e) = storage.sync_dir(database) {
            // The name may never reach the disk, and no later sync would report that: this root must not be used.
            let _ = storage.remove_file(&path);
            return Err(fail(e));
        }
        Ok(Self {
            file,
            current: root,
            other: Some(root),
            unreadable_slot: None,
            current_slot: 0,
            is_durable: true,
            highest_epoch: root.epoch,
        })
    }

    /// The file of a root of which no slot can be read, as if one had held `current`. No slot is written yet.
    pub(crate) fn replacing(env: &Env, database: &Path, current: Root) -> Result<Self> {
        let path = database.join(ROOT_NAME);
        // An empty one is of a repair before, and its name may be one whose sync failed, which no later sync would write.
        if env
            .storage()
            .metadata(&path)
            .is_ok_and(|found| found.len_bytes == 0)
        {
            let removed = env.storage().remove_file(&path);
            removed.map_err(|e| Error::io(format_args!("removing {}", path.display()), e))?;
        }
        let file = env
            .storage()
            .open(&path, OpenMode::OpenOrCreate)
            .map_err(|e| Error::io(format_args!("creating {}", path.display()), e))?;
        Ok(Self {
            file,
            current,
            other: None,
            unreadable_slot: None,
            current_slot: SLOTS - 1,
            // No slot holds it, and none is to: what it names is only known to a repair.
            is_durable: true,
            highest_epoch: current.epoch,
        })
    }

    /// Reads the slots. `NotFound` when there is no root.
    pub(crate) fn open(env: &Env, database: &Path, writable: bool) -> Result<Self> {
        let path = database.join(ROOT_NAME);
        let mode = if writable {
            OpenMode::ReadWrite
        } else {
            OpenMode::Read
        };
        let file = env
            .storage()
            .open(&path, mode)
            .map_err(|e| Error::io(format_args!("opening {}", path.display()), e))?;
        let read = Self::read_slots(file, &path)?;
        if writable {
            let slots = std::iter::once(&read.current).chain(&read.other);
            for slot in slots {
                slot.features.check_writing("the database")?;
            }
            read.current.check_numbers(&path)?;
        }
        Ok(read)
    }

    fn read_slots(file: Arc<dyn File>, path: &Path) -> Result<Self> {
        let at_path =
            |e: Error| Error::with_source(e.kind(), format!("{}: {e}", path.display()), e);
        // What fails its checks counts as no slot; a call that fails for want of something else proves nothing about what is there.
        let read = |slot: usize| {
            let mut bytes = [0; SLOT_BYTES];
            match file.read_exact_at(&mut bytes, (slot * SLOT_BYTES) as u64) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Ok(Err(Error::corruption(
                        "root slot",
                        "the file ends before it",
                    )));
                }
                // Nor does one that the device does not return: a power cut may have torn it while it was written. The other
                // one leads to all that was acknowledged.
                Err(e) if is_unreadable(&e) => {
                    return Ok(Err(Error::io(
                        format_args!("reading a slot of {}", path.display()),
                        e,
                    )));
                }
                Err(e) => return Err(Error::io(format_args!("reading {}", path.display()), e)),
            }
            match Root::decode(&bytes) {
                Err(e) if e.kind() != ErrorKind::Corruption => Err(at_path(e)),
                decoded => Ok(decoded),
            }
        };
        let (current, other, current_slot) = match (read(0)?, read(1)?) {
            (Ok(a), Ok(b)) if a.database != b.database => {
                let what = "its slots belong to two databases";
                return Err(Error::corruption(path.display(), what));
            }
            // A slot of a later epoch is the newer one even where a repair has made the file anew, which counts from one again: the
            // other slot may show what lay on the disk before, and that may be a slot of the file that was lost.
            (Ok(a), Ok(b)) if (a.epoch, a.sequence) >= (b.epoch, b.sequence) => (a, Ok(b), 0),
            (Ok(a), Ok(b)) => (b, Ok(a), 1),
            (Ok(a), Err(e)) => (a, Err(e), 0),
            (Err(e), Ok(b)) => (b, Err(e), 1),
            // One that the device does not return may be whole: the root is not lost.
            (Err(_), Err(e)) if e.is_unreadable() => return Err(at_path(e)),
            (Err(e), Err(_)) => return Err(at_path(e)),
        };
        let (other, error) = match other {
            Ok(other) => (Some(other), None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self {
            file,
            current,
            other,
            unreadable_slot: error.filter(Error::is_unreadable),
            current_slot,
            is_durable: false,
            highest_epoch: current.epoch,
        })
    }

    /// The next file id from which an opening goes on that finds only one slot, whichever that is. A file with a lower one can go:
    /// its removal could be undone by a power cut, and an id that was given out anew would name two files.
    pub(crate) fn min_next_file(&self) -> FileId {
        let other = self.other.as_ref().map(|other| other.next_file);
        other.map_or(self.current.next_file, |other| {
            other.min(self.current.next_file)
        })
    }

    /// Whether a slot may name an epoch, of which it was written or was to be.
    pub(crate) fn may_name(&self, epoch: Epoch) -> bool {
        epoch <= self.highest_epoch
    }

    /// The write or sync that makes the slot that counts durable, if it is not known to be. It comes before the other
    /// slot is written, and may be done while something else is.
    pub(crate) fn confirmation(&self) -> Option<Confirmation> {
        // Where the other slot is lost this one is on disk, or the other would not have been written to; and it is all there is:
        // a power cut in the midst of writing it again could leave it unreadable.
        let again = self.other.is_some();
        (!self.is_durable).then(|| Confirmation {
            file: Arc::clone(&self.file),
            again: again.then_some((self.current_slot, self.current)),
        })
    }

    /// The slot that counts was made durable.
    pub(crate) fn note_confirmed(&mut self) {
        self.is_durable = true;
    }

    /// Writes and syncs the slot that does not count, which then counts.
    pub(crate) fn switch(&mut self, mut root: Root) -> Result<()> {
        assert!(root.epoch >= self.current.epoch && root.database == self.current.database);
        root.sequence = self.current.sequence + 1;
        if let Some(confirmation) = self.confirmation() {
            confirmation.write()?;
            self.note_confirmed();
        }
        let slot = SLOTS - 1 - self.current_slot;
        self.highest_epoch = root.epoch;
        self.write_slot(slot, &root)?;
        self.other = Some(self.current);
        self.current = root;
        self.current_slot = slot;
        Ok(())
    }

    /// Writes both slots as they are: a process that was killed may have left them in the cache only.
    pub(crate) fn write_again(&mut self) -> Result<()> {
        let slots = [
            (self.current_slot, Some(self.current)),
            (SLOTS - 1 - self.current_slot, self.other),
        ];
        for (slot, root) in slots {
            if let Some(root) = root {
                self.write_slot(slot, &root)?;
            }
        }
        self.is_durable = true;
        Ok(())
    }
}

impl RootFile {
    fn write_slot(&self, slot: usize, root: &Root) -> Result<()> {
        write_slot(&*self.file, slot, root)
    }
}

fn write_slot(file: &dyn File, slot: usize, root: &Root) -> Result<()> {
    let fail = |e| Error::io("writing the root", e);
    file.write_all_at(&root.encode(), (slot * SLOT_BYTES) as u64)
        .map_err(fail)?;
    file.sync_data().map_err(fail)
}

/// See [`RootFile::confirmation`].
#[derive(Debug)]
pub(crate) struct Confirmation {
    file: Arc<dyn File>,
    /// The slot that counts, and its content, where it is written again.
    again: Option<(usize, Root)>,
}

impl Confirmation {
    /// A process that was killed may have left the slot in the cache only, where a power cut could take it while the other one is
    /// half written. It is written again, not just synced: after a failed sync the cache looks clean.
    pub(crate) fn write(&self) -> Result<()> {
        if !Rule::ConfirmRoot.is_kept() {
            return Ok(());
        }
        match &self.again {
            Some((slot, root)) => write_slot(&*self.file, *slot, root),
            None => {
                let synced = self.file.sync_data();
                synced.map_err(|e| Error::io("syncing the root", e))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(sequence: u64) -> Root {
        Root {
            database: DatabaseId([1; 16]),
            sequence,
            epoch: Epoch(4),
            checkpoint: LogPosition {
                segment: FileId(2),
                offset: 128,
            },
            checkpoint_bytes: 512,
            checkpoint_crc: 99,
            commit: CommitNo(17),
            proven: LogPosition {
                segment: FileId(2),
                offset: 640,
            },
            next_file: FileId(3),
            features: Features::WRITTEN,
        }
    }

    #[test]
    fn every_byte_of_a_slot_is_guarded() {
        let bytes = root(1).encode();
        assert_eq!(bytes.len(), SLOT_BYTES);
        assert_eq!(Root::decode(&bytes).unwrap(), root(1));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(Root::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_newer_valid_slot_counts() {
        let env = thalweg_env::sim::SimEnv::new(1);
        let (env, dir) = (env.env(), Path::new("/db"));
        env.storage().create_dir_all(dir).unwrap();
        let mut file = RootFile::create(&env, dir, root(1)).unwrap();
        file.switch(root(0)).unwrap();
        file.switch(Root {
            commit: CommitNo(18),
            ..root(0)
        })
        .unwrap();
        let again = RootFile::open(&env, dir, true).unwrap();
        assert_eq!(
            (again.current.sequence, again.current.commit),
            (3, CommitNo(18))
        );
        assert_eq!(again.other.unwrap().sequence, 2);
        // A torn newest slot: the other one counts.
        let raw = env
            .storage()
            .open(&dir.join(ROOT_NAME), OpenMode::ReadWrite)
            .unwrap();
        raw.write_all_at(&[0xFF; 512], 8).unwrap();
        let again = RootFile::open(&env, dir, true).unwrap();
        assert_eq!((again.current.sequence, again.other), (2, None));
    }

    #[test]
    fn the_slot_of_the_later_epoch_counts() {
        let env = thalweg_env::sim::SimEnv::new(1);
        let (env, dir) = (env.env(), Path::new("/db"));
        env.storage().create_dir_all(dir).unwrap();
        let later = Root {
            epoch: Epoch(5),
            ..root(1)
        };
        // Of a file that was lost, in a place that nothing was written to yet.
        let mut file = RootFile::create(&env, dir, root(9)).unwrap();
        file.write_slot(0, &later).unwrap();
        let again = RootFile::open(&env, dir, true).unwrap();
        assert_eq!((again.current, again.other), (later, Some(root(9))));
        file = again;
        file.switch(Root { ..later }).unwrap();
        let again = RootFile::open(&env, dir, true).unwrap();
        assert_eq!((again.current.sequence, again.other), (2, Some(later)));
    }

    #[test]
    fn another_format_is_refused_by_name() {
        for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
            let name = &*format!("format version {version}");
            let mut bytes = root(1).encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[..SLOT_BYTES - 4]).to_le_bytes();
            bytes[SLOT_BYTES - 4..].copy_from_slice(&crc);
            let error = Root::decode(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(name), "{error}");

            let env = thalweg_env::sim::SimEnv::new(1);
            let (env, dir) = (env.env(), Path::new("/db"));
            env.storage().create_dir_all(dir).unwrap();
            let made = RootFile::create(&env, dir, root(1)).unwrap();
            for slot in 0..2 {
                let at = slot * SLOT_BYTES as u64;
                made.file.write_all_at(&bytes, at).unwrap();
            }
            let error = RootFile::open(&env, dir, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(name), "{error}");
        }
    }
}
