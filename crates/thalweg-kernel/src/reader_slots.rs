//! `readers`: the snapshots that other processes still read (`docs/format/live.md`).
//!
//! Invariants: a slot is owned by whoever holds the lock on its bytes, which the operating system frees when that process
//! ends; a slot without an owner does not count. A pin counts from the moment it is written: the reader looks at the
//! writer's floor afterwards, the writer at the slots after it has raised its floor, so one of the two sees the other.
//! No two pins are alike, also at the same place: so how long the writer finds one unchanged is never more than the time
//! since the newest snapshot under it was taken.

use crate::error::{Error, ErrorKind, Result};
use crate::fields::{Fields, PutFields};
use crate::ids::{CommitNo, Epoch};
use crate::live::{PinPlace, SECTOR_BYTES};
use crate::paths::READERS_NAME;
use crate::wire::is_sound_le;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::{Env, File, LockKind, OpenMode, is_unreadable};

const SLOT_BYTES: usize = 64;
const SLOTS: u64 = 1024;
const SLOT_MAGIC: &[u8; 4] = b"TRDR";
/// Bytes of a slot that the checksum after them covers.
const CHECKED_BYTES: usize = 24;

fn bytes_of(slot: u64) -> Range<u64> {
    slot * SLOT_BYTES as u64..(slot + 1) * SLOT_BYTES as u64
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pin {
    place: PinPlace,
    /// Another number with each pin and each owner.
    change: u64,
}

/// A reader's slot, held for as long as it has the database open.
#[derive(Debug)]
pub(crate) struct ReaderSlot {
    file: Arc<dyn File>,
    slot: u64,
    change: u64,
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        // If it fails the slot stays taken until the process ends. In a child of a fork it does, and should.
        let _ = self.file.unlock(bytes_of(self.slot));
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
                        | std::io::ErrorKind::QuotaExceeded
                );
                return if unpinned {
                    Ok(None)
                } else {
                    Err(Error::io(format_args!("opening {}", path.display()), e))
                };
            }
        };
        let mut slots = 0..SLOTS;
        while let Some(slot) = slots.next() {
            let locked = file.try_lock(bytes_of(slot), LockKind::Exclusive);
            if !locked.map_err(|e| Error::io(format_args!("locking {}", path.display()), e))? {
                continue;
            }
            // Where the owner before began to count is not known.
            let change = env.entropy().random_u64();
            let mut taken = Self {
                file: Arc::clone(&file),
                slot,
                change: change.map_err(|e| Error::io("numbering the pins of a reader", e))?,
            };
            match taken.pin(PinPlace::EVERYTHING) {
                // A power cut has torn its sector. A pin there could never change.
                Err(error) if error.is_unreadable() => {
                    let next_sector =
                        (slot + 1).next_multiple_of((SECTOR_BYTES / SLOT_BYTES) as u64);
                    slots = next_sector..SLOTS;
                }
                pinned => return pinned.map(|()| Some(taken)),
            }
        }
        // More readers than slots: the rest runs unpinned.
        Ok(None)
    }

    /// Pins: from now on files that commits from `place` on need stay. On a disk without room for that, and on one that takes no
    /// writes any more, the pin before stays, if there is one: a reader without a pin reads as well, until files that it needs
    /// are removed.
    pub(crate) fn pin(&mut self, place: PinPlace) -> Result<()> {
        self.change = self.change.wrapping_add(1);
        let pin = Pin {
            place,
            change: self.change,
        };
        let written = self
            .file
            .write_all_at(&encode(pin), bytes_of(self.slot).start);
        match written {
            Err(e) if e.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            Err(e) => match Error::io("writing a reader slot", e) {
                e if e.kind() == ErrorKind::DiskFull => Ok(()),
                e => Err(e),
            },
            Ok(()) => Ok(()),
        }
    }
}

/// Which pins are in the writer's way, and since when.
///
/// A reader pins anew with each snapshot that it takes. One that has not for too long since it is in the way, because it is
/// stopped, idle or at the same result still, is passed. It finds out by files that are missing.
///
/// A reader gives up snapshots of that age itself when it takes another one, so that its pin keeps the younger ones.
#[derive(Debug)]
pub(crate) struct SlotsSeen {
    max_age: Duration,
    /// By slot, with the time at which the writer first found it so.
    in_the_way: HashMap<u64, (Pin, u64)>,
}

impl SlotsSeen {
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            in_the_way: HashMap::new(),
        }
    }

    /// Whether a living reader of another process pins a place before `floor`, and is not passed.
    pub(crate) fn is_pinned_before(
        &mut self,
        env: &Env,
        dir: &Path,
        floor: PinPlace,
    ) -> Result<bool> {
        let pins = pins_of_slots(env, dir)?;
        Ok(self.any_counts(&pins, floor, env.clock().monotonic_ns()))
    }

    fn any_counts(&mut self, pins: &[(u64, Pin)], floor: PinPlace, now_ns: u64) -> bool {
        // Whatever is not found in the way now is forgotten.
        let before = std::mem::take(&mut self.in_the_way);
        let mut any_counts = false;
        for (slot, pin) in pins.iter().filter(|(_, pin)| pin.place < floor) {
            let known = before.get(slot).filter(|(known, _)| known == pin);
            let since_ns = known.map_or(now_ns, |(_, since_ns)| *since_ns);
            self.in_the_way.insert(*slot, (*pin, since_ns));
            any_counts |= Duration::from_nanos(now_ns.saturating_sub(since_ns)) < self.max_age;
        }
        any_counts
    }
}

/// Writes anew what a power cut has torn of `readers`, so that it can be neither read nor written in part, where no reader has a
/// slot in it. Sector by sector: a reader that opens meanwhile finds slots in the others.
pub(crate) fn mend_slots(env: &Env, dir: &Path) {
    let path = dir.join(READERS_NAME);
    let Ok(file) = env.storage().open(&path, OpenMode::ReadWrite) else {
        return;
    };
    let len_bytes = file.len_bytes().unwrap_or(0).min(SLOTS * SLOT_BYTES as u64);
    for start in (0..len_bytes).step_by(SECTOR_BYTES) {
        let mut sector = [0; SECTOR_BYTES];
        let is_torn = file.read_at(&mut sector, start);
        let is_torn = is_torn.is_err_and(|error| is_unreadable(&error));
        let slots = start..start + sector.len() as u64;
        if is_torn && matches!(file.try_lock(slots.clone(), LockKind::Exclusive), Ok(true)) {
            // Where this fails readers take slots elsewhere, and the next writer tries again.
            let _ = file.write_all_at(&[0; SECTOR_BYTES], start);
            let _ = file.unlock(slots);
        }
    }
}

/// The slots of living readers, and what each pins. Looks only: a reader of another user may have made the file.
fn pins_of_slots(env: &Env, dir: &Path) -> Result<Vec<(u64, Pin)>> {
    let path = dir.join(READERS_NAME);
    let fail = |e| Error::io(format_args!("reading {}", path.display()), e);
    let file = match env.storage().open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        // Somebody may pin everything, and is passed like others. Files that could never go would fill the disk.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Ok(vec![(SLOTS, Pin::default())]);
        }
        Err(e) => return Err(fail(e)),
    };
    let slots = (file.len_bytes().map_err(fail)?)
        .div_ceil(SLOT_BYTES as u64)
        .min(SLOTS);
    let mut pins = Vec::new();
    for slot in 0..slots {
        if !file.is_locked(bytes_of(slot)).map_err(fail)? {
            continue;
        }
        let mut bytes = [0; SLOT_BYTES];
        // A slot that is being written, or not yet, pins everything.
        let pin = match file.read_exact_at(&mut bytes, bytes_of(slot).start) {
            Ok(()) => decode(&bytes).unwrap_or_default(),
            Err(_) => Pin::default(),
        };
        pins.push((slot, pin));
    }
    // A slot past the end of the file was not written to yet.
    let behind = slots * SLOT_BYTES as u64..SLOTS * SLOT_BYTES as u64;
    if !behind.is_empty() && file.is_locked(behind).map_err(fail)? {
        pins.push((slots, Pin::default()));
    }
    Ok(pins)
}

/// The bytes of a slot.
fn encode(pin: Pin) -> [u8; SLOT_BYTES] {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(SLOT_MAGIC);
    out.put_u32(pin.place.epoch.0);
    out.put_u64(pin.place.commit.0);
    out.put_u64(pin.change);
    out.put_u32(crc32c::crc32c(&out));
    let mut slot = [0; SLOT_BYTES];
    slot[..out.len()].copy_from_slice(&out);
    slot
}

fn decode(slot: &[u8]) -> Option<Pin> {
    let (front, rest) = slot.split_at_checked(CHECKED_BYTES)?;
    if !is_sound_le(crc32c::crc32c(front), rest) || front[..4] != *SLOT_MAGIC {
        return None;
    }
    let mut fields = Fields::new(&front[4..], "reader slot");
    let epoch = Epoch(fields.u32().ok()?);
    let commit = CommitNo(fields.u64().ok()?);
    Some(Pin {
        place: PinPlace { epoch, commit },
        change: fields.u64().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};

    const MAX_AGE_NS: u64 = 100;

    fn place(commit: u64) -> PinPlace {
        PinPlace {
            epoch: Epoch(1),
            commit: CommitNo(commit),
        }
    }

    fn pin(commit: u64, change: u64) -> Pin {
        Pin {
            place: place(commit),
            change,
        }
    }

    fn seen() -> SlotsSeen {
        SlotsSeen::new(Duration::from_nanos(MAX_AGE_NS))
    }

    #[test]
    fn a_pin_that_stands_in_the_way_for_too_long_is_passed() {
        let mut seen = seen();
        let (first, second) = ((0, pin(5, 1)), (1, pin(7, 1)));
        assert!(seen.any_counts(&[first, second], place(9), 50));
        // The first one stands, the second one moves.
        assert!(seen.any_counts(&[first, (1, pin(8, 2))], place(9), 149));
        assert!(!seen.any_counts(&[first], place(9), 150));
        // It counts again once it moves, or belongs to another reader.
        assert!(seen.any_counts(&[(0, pin(6, 2))], place(9), 160));
        assert!(!seen.any_counts(&[], place(9), 170));
        assert!(seen.any_counts(&[(0, pin(6, 2))], place(9), 265));
        // What is wanted may rise meanwhile.
        assert!(!seen.any_counts(&[(0, pin(6, 2))], place(10), 365));
    }

    #[test]
    fn a_pin_has_its_time_from_when_it_is_in_the_way() {
        let mut seen = seen();
        let stands = [(0, pin(5, 1))];
        assert!(!seen.any_counts(&stands, place(5), 0));
        assert!(seen.any_counts(&stands, place(6), 1000));
        assert!(seen.any_counts(&stands, place(6), 1099));
        // Out of the way, and in it again.
        assert!(!seen.any_counts(&stands, place(5), 1100));
        assert!(seen.any_counts(&stands, place(6), 1100));
        assert!(!seen.any_counts(&stands, place(6), 1200));
    }

    #[test]
    fn slots_can_be_looked_at_by_who_may_not_write_them() {
        let sim = SimEnv::new(1);
        let (writing, dir) = (sim.env(), Path::new("/db"));
        writing.storage().create_dir(dir).unwrap();
        let reading = sim.env_of_process(2);
        let mut slot = ReaderSlot::take(&reading, dir).unwrap().unwrap();
        slot.pin(place(5)).unwrap();
        sim.set_read_only(true);
        let pins = pins_of_slots(&writing, dir).unwrap();
        assert_eq!(pins, [(0, pin(5, slot.change))]);
        drop(slot);
        assert_eq!(pins_of_slots(&writing, dir).unwrap(), []);
        // Who may not even read it waits as for a reader that pins everything, and no longer.
        let denied = FaultRule::new(Fault::Error(Errno::ACCESS)).on(&[CallKind::Open]);
        sim.set_plan(FaultPlan::none().rule(denied));
        let mut seen = seen();
        let mut is_pinned = || seen.is_pinned_before(&writing, dir, place(1)).unwrap();
        assert!(is_pinned());
        sim.advance(Duration::from_nanos(MAX_AGE_NS));
        assert!(!is_pinned());
    }

    #[test]
    fn a_new_pin_at_the_place_of_an_old_one_has_all_of_its_time() {
        let mut seen = seen();
        assert!(seen.any_counts(&[(0, pin(5, 1))], place(6), 0));
        assert!(!seen.any_counts(&[(0, pin(5, 1))], place(6), 1000));
        assert!(seen.any_counts(&[(0, pin(5, 2))], place(6), 1001));
    }

    #[test]
    fn no_two_pins_of_a_slot_are_alike() {
        let sim = SimEnv::new(1);
        let env = sim.env();
        let dir = Path::new("/db");
        env.storage().create_dir(dir).unwrap();
        let mut found = Vec::new();
        for _ in 0..3 {
            let mut slot = ReaderSlot::take(&env, dir).unwrap().unwrap();
            for _ in 0..3 {
                slot.pin(place(5)).unwrap();
                let [(0, pin)] = pins_of_slots(&env, dir).unwrap()[..] else {
                    panic!("one reader has one slot");
                };
                assert_eq!(pin.place, place(5));
                assert!(!found.contains(&pin), "{pin:?} again");
                found.push(pin);
            }
        }
        assert_eq!(pins_of_slots(&env, dir).unwrap(), []);
    }

    #[test]
    fn a_reader_that_loads_or_whose_slot_is_torn_pins_everything() {
        let sim = SimEnv::new(2);
        let env = sim.env();
        let dir = Path::new("/db");
        env.storage().create_dir(dir).unwrap();
        let places = || -> Vec<PinPlace> {
            let pins = pins_of_slots(&env, dir).unwrap();
            pins.into_iter().map(|(_, pin)| pin.place).collect()
        };
        let mut slot = ReaderSlot::take(&env, dir).unwrap().unwrap();
        assert_eq!(places(), [PinPlace::EVERYTHING]);
        slot.pin(place(5)).unwrap();
        assert_eq!(places(), [place(5)]);
        sim.overwrite_file(&dir.join(READERS_NAME), 8, &[0xFF])
            .unwrap();
        assert_eq!(places(), [PinPlace::EVERYTHING]);
    }

    #[test]
    fn the_pin_before_stays_on_a_file_system_that_takes_no_writes_any_more() {
        let sim = SimEnv::new(2);
        let env = sim.env();
        let dir = Path::new("/db");
        env.storage().create_dir(dir).unwrap();
        let mut slot = ReaderSlot::take(&env, dir).unwrap().unwrap();
        slot.pin(place(5)).unwrap();
        let fails = FaultRule::new(Fault::Error(Errno::ROFS)).on(&[CallKind::Write]);
        sim.set_plan(FaultPlan::none().rule(fails));
        slot.pin(place(6)).unwrap();
        let pins = pins_of_slots(&env, dir).unwrap();
        assert_eq!(pins.len(), 1);
        assert_eq!(pins[0].1.place, place(5));
    }

    #[test]
    fn a_slot_with_another_bit_in_what_it_says_pins_everything() {
        let slot = encode(pin(5, 7));
        assert_eq!(decode(&slot), Some(pin(5, 7)));
        for bit in 0..(CHECKED_BYTES + 4) * 8 {
            let mut damaged = slot;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Pin::default().place, PinPlace::EVERYTHING);
    }
}
