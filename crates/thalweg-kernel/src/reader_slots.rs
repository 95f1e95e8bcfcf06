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
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
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

/// What the slots said when they were looked at, and since when they have said it.
///
/// A reader moves its pin with each snapshot that it takes. One that has not for too long, because it is stopped, idle or at
/// the same result still, is passed. It finds out by files that are missing.
///
/// A reader gives up snapshots of that age itself when it takes another one, so that its pin keeps the younger ones; it is
/// given a tenth longer for that.
#[derive(Debug)]
pub(crate) struct SlotsSeen {
    most: Duration,
    seen: HashMap<u64, (PinPlace, u64)>,
}

impl SlotsSeen {
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            most: max_age.saturating_add(max_age / 10),
            seen: HashMap::new(),
        }
    }

    /// The oldest place that a living reader of another process pins, apart from those that are passed.
    pub(crate) fn oldest_pin(&mut self, env: &Env, dir: &Path) -> Result<Option<PinPlace>> {
        let pins = pins_of_slots(env, dir)?;
        Ok(self.oldest_of(&pins, env.clock().monotonic_ns()))
    }

    fn oldest_of(&mut self, pins: &[(u64, PinPlace)], now_ns: u64) -> Option<PinPlace> {
        let before = std::mem::take(&mut self.seen);
        let mut oldest = None;
        for (slot, pin) in pins {
            let known = before.get(slot).filter(|(place, _)| place == pin);
            let since_ns = known.map_or(now_ns, |(_, since)| *since);
            self.seen.insert(*slot, (*pin, since_ns));
            let age = Duration::from_nanos(now_ns.saturating_sub(since_ns));
            if age < self.most {
                oldest = Some(oldest.map_or(*pin, |o: PinPlace| o.min(*pin)));
            }
        }
        oldest
    }
}

/// The slots of living readers, and what each pins.
fn pins_of_slots(env: &Env, dir: &Path) -> Result<Vec<(u64, PinPlace)>> {
    let path = dir.join(READERS_NAME);
    let fail = |e| Error::io(format_args!("reading {}", path.display()), e);
    let file = match env.storage().open(&path, OpenMode::ReadWrite) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(fail(e)),
    };
    let slots = (file.len_bytes().map_err(fail)?)
        .div_ceil(SLOT_BYTES as u64)
        .min(SLOTS);
    let mut pins = Vec::new();
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
        pins.push((slot, pin));
    }
    Ok(pins)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(commit: u64) -> PinPlace {
        PinPlace {
            epoch: Epoch(1),
            commit: CommitNo(commit),
        }
    }

    #[test]
    fn a_pin_that_does_not_move_for_too_long_is_passed() {
        let mut seen = SlotsSeen::new(Duration::from_nanos(91));
        assert_eq!(
            seen.oldest_of(&[(0, place(5)), (1, place(7))], 50),
            Some(place(5))
        );
        // The first one stands, the second one moves.
        assert_eq!(
            seen.oldest_of(&[(0, place(5)), (1, place(8))], 149),
            Some(place(5))
        );
        assert_eq!(
            seen.oldest_of(&[(0, place(5)), (1, place(8))], 150),
            Some(place(8))
        );
        // It counts again once it moves, or belongs to another reader.
        assert_eq!(
            seen.oldest_of(&[(0, place(6)), (1, place(8))], 160),
            Some(place(6))
        );
        assert_eq!(seen.oldest_of(&[(1, place(8))], 170), Some(place(8)));
        assert_eq!(
            seen.oldest_of(&[(0, place(6)), (1, place(8))], 265),
            Some(place(6))
        );
        assert_eq!(seen.oldest_of(&[], 1000), None);
    }
}
