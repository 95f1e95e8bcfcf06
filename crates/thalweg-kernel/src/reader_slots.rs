//! `readers`: what other processes still read (`docs/format/live.md`).
//!
//! Invariants: a slot is owned by whoever holds the lock on its bytes, which the operating system frees when that process
//! ends; a slot without an owner says nothing. A pin counts from the moment it is written: the reader looks at the
//! writer's floor afterwards, the writer at the slots after it has raised its floor, so one of the two sees the other.

use crate::error::{Error, Result};
use crate::fields::{Fields, PutFields};
use crate::ids::{CommitNo, Epoch};
use crate::live::PinPlace;
use crate::open::READERS_NAME;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File, LockKind, OpenMode};

const SLOT_BYTES: usize = 64;
const SLOTS: u64 = 1024;
const SLOT_MAGIC: &[u8; 4] = b"TRDR";

fn bytes_of(slot: u64) -> Range<u64> {
    slot * SLOT_BYTES as u64..(slot + 1) * SLOT_BYTES as u64
}

/// A reader's slot, held for as long as it has the database open.
#[derive(Debug)]
pub(crate) struct ReaderSlot {
    env: Env,
    process_id: u32,
    file: Arc<dyn File>,
    slot: u64,
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        // A child of a fork may hold the file open as well, and with it the lock; and it must not free its parent's.
        if self.env.clock().process_id() == self.process_id {
            // Else the slot stays taken until the process ends.
            let _ = self.file.unlock(bytes_of(self.slot));
        }
    }
}

impl ReaderSlot {
    /// A free slot, pinned at commit 0: everything stays. `None` where the folder cannot be written.
    pub(crate) fn take(env: &Env, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(READERS_NAME);
        let file = match env.storage().open(&path, OpenMode::OpenOrCreate) {
            Ok(file) => file,
            Err(e) => {
                let unpinned = matches!(
                    e.kind(),
                    std::io::ErrorKind::PermissionDenied
                        | std::io::ErrorKind::ReadOnlyFilesystem
                        | std::io::ErrorKind::StorageFull
                );
                return if unpinned {
                    Ok(None)
                } else {
                    Err(Error::io(format_args!("opening {}", path.display()), e))
                };
            }
        };
        for slot in 0..SLOTS {
            let locked = file.try_lock(bytes_of(slot), LockKind::Exclusive);
            if locked.map_err(|e| Error::io(format_args!("locking {}", path.display()), e))? {
                let slot = Self {
                    env: env.clone(),
                    process_id: env.clock().process_id(),
                    file,
                    slot,
                };
                slot.pin(PinPlace::default())?;
                return Ok(Some(slot));
            }
        }
        // More readers than slots: the rest runs unpinned.
        Ok(None)
    }

    /// From now on files that commits from `commit` on need stay.
    pub(crate) fn pin(&self, pin: PinPlace) -> Result<()> {
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(SLOT_MAGIC);
        slot.put_u32(pin.epoch.0);
        slot.put_u64(pin.commit.0);
        let crc = crc32c::crc32c(&slot);
        slot.put_u32(crc);
        slot.resize(SLOT_BYTES, 0);
        self.file
            .write_all_at(&slot, bytes_of(self.slot).start)
            .map_err(|e| Error::io("writing a reader slot", e))
    }
}

/// The oldest commit that a living reader of another process pins.
pub(crate) fn oldest_pin(env: &Env, dir: &Path) -> Result<Option<PinPlace>> {
    let path = dir.join(READERS_NAME);
    let fail = |e| Error::io(format_args!("reading {}", path.display()), e);
    let file = match env.storage().open(&path, OpenMode::ReadWrite) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let slots = (file.len_bytes().map_err(fail)?)
        .div_ceil(SLOT_BYTES as u64)
        .min(SLOTS);
    let mut oldest = None;
    for slot in 0..slots {
        if file
            .try_lock(bytes_of(slot), LockKind::Exclusive)
            .map_err(fail)?
        {
            file.unlock(bytes_of(slot)).map_err(fail)?;
            continue;
        }
        let mut bytes = [0; SLOT_BYTES];
        // A slot that is being written, or not yet, pins everything.
        let pin = match file.read_exact_at(&mut bytes, bytes_of(slot).start) {
            Ok(()) => decode(&bytes).unwrap_or_default(),
            Err(_) => PinPlace::default(),
        };
        oldest = Some(oldest.map_or(pin, |o: PinPlace| o.min(pin)));
    }
    Ok(oldest)
}

fn decode(slot: &[u8]) -> Option<PinPlace> {
    let (front, rest) = slot.split_at_checked(16)?;
    if rest[..4] != crc32c::crc32c(front).to_le_bytes() || front[..4] != *SLOT_MAGIC {
        return None;
    }
    let mut fields = Fields::new(&front[4..], "reader slot");
    let epoch = Epoch(fields.u32().ok()?);
    Some(PinPlace {
        epoch,
        commit: CommitNo(fields.u64().ok()?),
    })
}
