//! `live`: the writing process's announcements to reading processes, without a sync (`docs/format/live.md`).
//!
//! Invariants
//! - It is written after everything it announces is written, and synced where that was asked for, and before any
//!   acknowledgement. Two slots are written in turn, so one of them is always whole. Recovery never needs it.
//! - It is *current* if it was written since the machine was started and its newest slot is whole. Only then does it show
//!   what was acknowledged. Equal boot ids show that, and so does the lock on its first byte, which a writer takes after
//!   its first write: a lock does not outlive the machine.

use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, UNCOUNTABLE};
use crate::paths::LIVE_NAME;
use crate::wire::is_sound_le;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, LockKind, OpenMode};

const LIVE_MAGIC: &[u8; 8] = b"THWLIVE1";
const SLOT_BYTES: usize = 128;
const SLOTS: usize = 2;
/// As much as any disk writes at once, and a page of the cache.
pub(crate) const SECTOR_BYTES: usize = 4096;
/// How often the writer reads it before it counts as unreadable.
const UNREADABLE_ATTEMPTS: usize = 3;
/// How often it is read while it changes: a quick writer may be at both slots.
const READ_ATTEMPTS: usize = 64;
/// The byte of the file that is locked while a writer is open that has written to it.
const LOCKED: std::ops::Range<u64> = 0..1;

/// A point in the life of a database that pins are compared by. The epoch comes first: recovery may store the same
/// commits elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PinPlace {
    pub(crate) epoch: Epoch,
    pub(crate) commit: CommitNo,
}

impl PinPlace {
    /// Before all that there is.
    pub(crate) const EVERYTHING: Self = Self {
        epoch: Epoch(0),
        commit: CommitNo(0),
    };
    /// After all that there will be.
    pub(crate) const NOTHING: Self = Self {
        epoch: Epoch(u32::MAX),
        commit: CommitNo(u64::MAX),
    };
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) boot: [u8; 16],
    /// Rises with every write: the slot with the higher one counts.
    pub(crate) sequence: u64,
    pub(crate) epoch: Epoch,
    /// Whose file this is: `live` of another database proves nothing.
    pub(crate) database: DatabaseId,
    /// The log up to here is known to be on stable storage: a proof, whatever the boot.
    pub(crate) synced: LogPosition,
    /// The last commit that readers may show.
    pub(crate) visible: CommitNo,
    /// Files that only snapshots before this place need may be gone. True in any boot: what is gone stays so.
    pub(crate) gc_floor: PinPlace,
    /// The checkpoint that the root names: a reader that started from an earlier one starts anew.
    pub(crate) checkpoint: LogPosition,
}

/// Whether two boot ids are known to be those of the same boot. Zeros are no id: the machine has none.
pub(crate) fn same_boot(one: [u8; 16], other: [u8; 16]) -> bool {
    one == other && one != [0; 16]
}

impl Live {
    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend_from_slice(LIVE_MAGIC);
        out.extend_from_slice(&self.boot);
        out.put_u64(self.sequence);
        out.put_u32(self.epoch.0);
        out.put_u32(0);
        out.extend_from_slice(&self.database.0);
        out.put_u64(self.synced.segment.0);
        out.put_u64(self.synced.offset);
        out.put_u64(self.visible.0);
        out.put_u64(self.gc_floor.commit.0);
        out.put_u32(self.gc_floor.epoch.0);
        out.put_u64(self.checkpoint.segment.0);
        out.put_u64(self.checkpoint.offset);
        out.resize(SLOT_BYTES - 4, 0);
        out.put_u32(crc32c::crc32c(&out));
        let mut slot = [0; SLOT_BYTES];
        slot.copy_from_slice(&out);
        slot
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let (front, crc) = slot.split_at_checked(SLOT_BYTES - 4)?;
        if !is_sound_le(crc32c::crc32c(front), crc) || front[..8] != *LIVE_MAGIC {
            return None;
        }
        let mut wire = Fields::new(&front[8..], "live slot");
        let read = |wire: &mut Fields<'_>| -> Result<Self> {
            let boot = wire.id()?;
            let sequence = wire.u64()?;
            let epoch = Epoch(wire.u32()?);
            wire.reserved(4)?;
            let database = DatabaseId(wire.id()?);
            let synced = LogPosition {
                segment: FileId(wire.u64()?),
                offset: wire.u64()?,
            };
            let (visible, floor) = (CommitNo(wire.u64()?), CommitNo(wire.u64()?));
            let gc_floor = PinPlace {
                epoch: Epoch(wire.u32()?),
                commit: floor,
            };
            let checkpoint = LogPosition {
                segment: FileId(wire.u64()?),
                offset: wire.u64()?,
            };
            wire.reserved(16)?;
            Ok(Self {
                boot,
                sequence,
                epoch,
                database,
                synced,
                visible,
                gc_floor,
                checkpoint,
            })
        };
        read(&mut wire).ok()
    }
}

/// The slots of the file, as far as they can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The newest that verifies.
    pub(crate) said: Option<Live>,
    /// One was written and does not verify. While a writer is at work it is under its hand; else it may have been the newer
    /// one, and nothing shows what was acknowledged.
    pub(crate) is_damaged: bool,
}

/// The content of the file as a reading process may use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The newest slot that verifies, if it is of the reader's database.
    pub(crate) live: Option<Live>,
    /// It was written since the machine was started, and no newer slot is lost: it shows what was acknowledged.
    pub(crate) is_current: bool,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct LiveFile {
    file: Arc<dyn File>,
    /// Of the newest slot.
    sequence: u64,
    /// The last one that was given out.
    last_tried: u64,
    /// The writer holds the lock that shows that it has written here.
    is_locked: bool,
}

impl LiveFile {
    /// Opens it for the writer; made if missing.
    pub(crate) fn open_writer(env: &Env, database: &Path) -> Result<Self> {
        let mut live = match Self::open(env, database, OpenMode::ReadWrite) {
            Err(e) if e.kind() == crate::ErrorKind::NotFound => {
                // Who made the root may have been killed before its name was synced. A power cut must not leave `live` alone.
                let synced = env.storage().sync_dir(database);
                synced.map_err(|e| Error::io(format_args!("syncing {}", database.display()), e))?;
                Self::open(env, database, OpenMode::OpenOrCreate)?
            }
            opened => opened?,
        };
        let mut said = live.read();
        for attempt in 1..=UNREADABLE_ATTEMPTS {
            if !said.as_ref().is_err_and(Error::is_unreadable) {
                break;
            }
            if attempt == UNREADABLE_ATTEMPTS {
                // Written in place and never synced, so a power cut may tear it. It takes a write of all of the sector to make
                // that readable: the rest need not be read for it. The file stays, as readers have it open.
                let written = live.file.write_all_at(&[0; SECTOR_BYTES], 0);
                written.map_err(|e| Error::io("writing `live` anew", e))?;
            }
            said = live.read();
        }
        live.sequence = said?.map_or(0, |l| l.sequence);
        live.last_tried = live.sequence;
        if live.sequence >= UNCOUNTABLE {
            let (path, sequence) = (database.join(LIVE_NAME), live.sequence);
            let wrong = format!(
                "its sequence is {sequence}, to which no writer counts: nothing was changed; remove this file, the \
                 database opens without it"
            );
            return Err(Error::corruption(path.display(), wrong));
        }
        Ok(live)
    }

    /// Opens it for a reader; `None` where no writer has made it.
    pub(crate) fn open_reader(env: &Env, database: &Path) -> Result<Option<Self>> {
        match Self::open(env, database, OpenMode::Read) {
            Ok(live) => Ok(Some(live)),
            Err(e) if e.kind() == crate::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open(env: &Env, database: &Path, mode: OpenMode) -> Result<Self> {
        let path = database.join(LIVE_NAME);
        let file = env
            .storage()
            .open(&path, mode)
            .map_err(|e| Error::io(format_args!("opening {}", path.display()), e))?;
        Ok(Self {
            file,
            sequence: 0,
            last_tried: 0,
            is_locked: false,
        })
    }

    /// Announces a state to the readers. A failed write can be followed by others: the newest slot that was written is
    /// never the next one, so that a reader finds it while that is under way.
    pub(crate) fn write(&mut self, mut live: Live) -> Result<()> {
        self.last_tried += 1;
        if self.last_tried % 2 == self.sequence % 2 {
            self.last_tried += 1;
        }
        live.sequence = self.last_tried;
        let slot = live.sequence % 2 * SLOT_BYTES as u64;
        self.file
            .write_all_at(&live.encode(), slot)
            .map_err(|e| Error::io("writing `live`", e))?;
        self.sequence = live.sequence;
        // After the write: a reader that finds the lock finds what this writer wrote. If the lock cannot be had yet,
        // because the handle of a writer before is not closed, is tried for again; without it readers may have to read
        // more.
        self.is_locked = self.is_locked
            || self
                .file
                .try_lock(LOCKED, LockKind::Exclusive)
                .unwrap_or(false);
        Ok(())
    }

    /// Gives back the lock: a child of a fork may hold the file open as well.
    pub(crate) fn unlock(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_locked) {
            let unlocked = self.file.unlock(LOCKED);
            unlocked.map_err(|e| Error::io("giving back the lock of `live`", e))?;
        }
        Ok(())
    }

    /// Makes the file durable: a closed database leaves it so.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| Error::io("syncing `live`", e))
    }

    /// The newest slot that verifies; `None`: there is nothing whole in the file.
    pub(crate) fn read(&self) -> Result<Option<Live>> {
        Ok(self.read_slots()?.said)
    }

    /// Whether a writer is open that has written here.
    pub(crate) fn has_writer(&self) -> Result<bool> {
        let locked = self.file.is_locked(LOCKED);
        locked.map_err(|e| Error::io("looking at the lock of `live`", e))
    }

    /// Reads it for a reader of a database, on a machine that was started as `boot`.
    pub(crate) fn told(&self, database: DatabaseId, boot: [u8; 16]) -> Result<Told> {
        let of_database = |slots: Slots| slots.said.filter(|live| live.database == database);
        let slots = self.read_readable_slots()?;
        let live = of_database(slots);
        if !slots.is_damaged && live.is_some_and(|live| same_boot(live.boot, boot)) {
            let is_current = true;
            return Ok(Told { live, is_current });
        }
        // The lock first, then the slots once more: what is read now was written by whoever holds it, or later.
        if !self.has_writer()? {
            let is_current = false;
            return Ok(Told { live, is_current });
        }
        let live = of_database(self.read_slots()?);
        let is_current = live.is_some();
        Ok(Told { live, is_current })
    }

    /// Reads the slots for a reader: a power cut may have torn the file so that it cannot be read before a writer has opened the
    /// database, and is then worth as little as one without a slot that verifies.
    pub(crate) fn read_readable_slots(&self) -> Result<Slots> {
        match self.read_slots() {
            Err(error) if error.is_unreadable() => Ok(Slots {
                said: None,
                is_damaged: true,
            }),
            slots => slots,
        }
    }

    /// Reads the slots, and whether one does not verify.
    ///
    /// Where both verify, the newer one is no older than what was there when the read began. A slot that is being written
    /// does not verify; the other one may then have been read before the writer came round to it, and its content may be
    /// two writes old. If a second read finds it unchanged, no write was finished between the two.
    pub(crate) fn read_slots(&self) -> Result<Slots> {
        let mut slots = self.read_once()?;
        for _ in 1..READ_ATTEMPTS {
            if !slots.is_damaged {
                break;
            }
            let again = self.read_once()?;
            let is_settled = again.said.is_some() && again.said == slots.said;
            slots = again;
            if is_settled {
                break;
            }
        }
        Ok(slots)
    }

    fn read_once(&self) -> Result<Slots> {
        let mut bytes = [0; SLOTS * SLOT_BYTES];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("reading `live`", e)),
            }
        }
        let (front, back) = bytes.split_at(SLOT_BYTES);
        let (said, other) = match (Live::decode(front), Live::decode(back)) {
            (Some(a), Some(b)) => {
                let said = if a.sequence > b.sequence { a } else { b };
                return Ok(Slots {
                    said: Some(said),
                    is_damaged: false,
                });
            }
            (Some(live), None) => (live, back),
            (None, Some(live)) => (live, front),
            (None, None) => {
                return Ok(Slots {
                    said: None,
                    is_damaged: bytes.iter().any(|byte| *byte != 0),
                });
            }
        };
        // The very first one is alone.
        let is_first = said.sequence == 1 && other.iter().all(|byte| *byte == 0);
        Ok(Slots {
            said: Some(said),
            is_damaged: !is_first,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_env::sim::SimEnv;

    fn live(visible: u64) -> Live {
        Live {
            boot: [1; 16],
            sequence: 0,
            epoch: Epoch(1),
            database: DatabaseId([2; 16]),
            synced: LogPosition::default(),
            visible: CommitNo(visible),
            gc_floor: PinPlace::default(),
            checkpoint: LogPosition::default(),
        }
    }

    #[test]
    fn a_torn_write_leaves_what_was_written_before_it() {
        let sim = SimEnv::new(1);
        let (env, dir) = (sim.env(), Path::new("/db"));
        env.storage().create_dir(dir).unwrap();
        let mut file = LiveFile::open_writer(&env, dir).unwrap();
        file.write(live(1)).unwrap();
        let path = dir.join(LIVE_NAME);
        for visible in 2..=5 {
            let before = sim.read_file(&path).unwrap();
            file.write(live(visible)).unwrap();
            let whole = sim.read_file(&path).unwrap();
            let visible_in = |bytes: &[u8]| {
                sim.write_file(&path, bytes).unwrap();
                let said = LiveFile::open_reader(&env, dir).unwrap().unwrap().read();
                said.unwrap().unwrap().visible
            };
            let changed = |at: &usize| before.get(*at) != Some(&whole[*at]);
            let first = (0..whole.len()).find(changed).unwrap();
            let mut torn = whole.clone();
            torn[first] ^= 0xFF;
            assert_eq!(visible_in(&torn), CommitNo(visible - 1));
            assert_eq!(visible_in(&whole), CommitNo(visible));
        }
    }
}
