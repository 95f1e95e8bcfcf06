//! `live`: what the writing process tells reading processes, without a sync (`docs/format/live.md`).
//!
//! Invariants: written after everything it speaks of is written, and synced where that was asked for, and before any
//! acknowledgement; two slots are written in turn, so one of them is always whole. It is never needed to recover.

use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields};
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, UNCOUNTABLE};
use crate::wire::is_sound_le;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, OpenMode};

pub(crate) const LIVE_NAME: &str = "live";
const LIVE_MAGIC: &[u8; 8] = b"THWLIVE1";
const SLOT_BYTES: usize = 128;
const SLOTS: usize = 2;
/// How often it is read before it counts as damaged: both slots may be under the hand of a quick writer.
const READ_ATTEMPTS: usize = 4;

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
    /// Behind all that there will be.
    pub(crate) const NOTHING: Self = Self {
        epoch: Epoch(u32::MAX),
        commit: CommitNo(u64::MAX),
    };
}

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) boot: [u8; 16],
    /// Rises with every write: the slot with the higher one counts.
    pub(crate) sequence: u64,
    pub(crate) epoch: Epoch,
    /// Whose file this is: `live` of another database proves nothing.
    pub(crate) database: DatabaseId,
    /// What is known to be on stable storage: a proof, whatever the boot.
    pub(crate) synced: LogPosition,
    /// The last commit that readers may show.
    pub(crate) visible: CommitNo,
    /// Files that only snapshots before this place need may be gone.
    pub(crate) gc_floor: PinPlace,
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
            wire.zeros(4)?;
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
            Ok(Self {
                boot,
                sequence,
                epoch,
                database,
                synced,
                visible,
                gc_floor,
            })
        };
        read(&mut wire).ok()
    }
}

/// What is in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The newest that verifies.
    pub(crate) said: Option<Live>,
    /// One was written and does not verify. While a writer is at work it is under its hand; else it may have been the newer
    /// one, and nothing tells what was acknowledged.
    pub(crate) is_damaged: bool,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct LiveFile {
    file: Arc<dyn File>,
    sequence: u64,
}

impl LiveFile {
    /// Opens it for the writer; made if missing.
    pub(crate) fn open_writer(env: &Env, database: &Path) -> Result<Self> {
        let mut live = Self::open(env, database, OpenMode::OpenOrCreate)?;
        live.sequence = live.read()?.map_or(0, |l| l.sequence);
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
        Ok(Self { file, sequence: 0 })
    }

    /// Tells the readers.
    pub(crate) fn write(&mut self, mut live: Live) -> Result<()> {
        self.sequence += 1;
        live.sequence = self.sequence;
        let slot = self.sequence % 2 * SLOT_BYTES as u64;
        self.file
            .write_all_at(&live.encode(), slot)
            .map_err(|e| Error::io("writing `live`", e))
    }

    /// Makes the file durable: a closed database leaves it so.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| Error::io("syncing `live`", e))
    }

    /// What counts; `None`: there is nothing whole in the file.
    pub(crate) fn read(&self) -> Result<Option<Live>> {
        Ok(self.read_slots()?.said)
    }

    /// The same, and whether a slot does not verify.
    pub(crate) fn read_slots(&self) -> Result<Slots> {
        let mut slots = self.read_once()?;
        for _ in 1..READ_ATTEMPTS {
            if slots.said.is_some() {
                break;
            }
            slots = self.read_once()?;
        }
        Ok(slots)
    }

    /// A slot that is being written does not verify; then the other one is the newest whole one, unless the writer has
    /// come round to it before it was read.
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
