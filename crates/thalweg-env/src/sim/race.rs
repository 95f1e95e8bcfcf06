//! Calls that are under way while others are made.
//!
//! Invariants
//! - A change that is under way has taken effect for lookups. Whoever reads its bytes or lists its names finds each part of
//!   it, a unit of [`RACE_BYTES`] or a name, done or not, whatever was found before: so a retry may see less than the
//!   first attempt, and never something that neither was there nor will be.
//! - A growing file shows no byte that was not written yet: where a part of the growth is visible, its bytes are new.
//! - A read or listing that is under way returns each part as of before or after what was done meanwhile.
//! - The seed decides all of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use super::content::{Content, index, pieces};
use super::state::{ByteChange, Entries, FsState, Ino, Node};

/// Bytes that reading and writing at the same time never tears: a line of a cache.
pub const RACE_BYTES: u64 = 64;

/// A change that is under way.
#[derive(Clone, Debug)]
enum Flight {
    Bytes {
        ino: Ino,
        range: Range<u64>,
        before: Arc<Content>,
    },
    /// Of a directory, with what the name stood for before.
    Name {
        dir: Ino,
        name: OsString,
        before: Option<Ino>,
    },
}

/// The changes from `before` to `after` by a call whose changes are numbered from `first_seq`.
fn flights_of(before: &FsState, after: &FsState, first_seq: u64) -> Vec<Flight> {
    let mut flights = Vec::new();
    for change in after.name_changes.iter().filter(|c| c.seq >= first_seq) {
        for entry in &change.entries {
            let dir = before.dir(entry.dir);
            flights.push(Flight::Name {
                dir: entry.dir,
                name: entry.name.clone(),
                before: dir
                    .ok()
                    .and_then(|dir| dir.visible.get(&entry.name).copied()),
            });
        }
    }
    for (ino, node) in &after.nodes {
        let Node::File(file) = node else { continue };
        for change in file.pending.iter().filter(|c| c.seq >= first_seq) {
            if let (ByteChange::Write { offset, bytes }, Ok(old)) =
                (&change.change, before.file(*ino))
            {
                flights.push(Flight::Bytes {
                    ino: *ino,
                    range: *offset..*offset + bytes.len() as u64,
                    before: Arc::clone(&old.visible),
                });
            }
        }
    }
    flights
}

/// A coin of the machine's.
fn toss(random: &mut fastrand::Rng) -> bool {
    random.bool()
}

/// Puts parts of an earlier content over those read: `count` bytes at `offset`, of which the range was changed. Returns how
/// many bytes are read: fewer where the file was shorter.
fn mix(
    random: &mut fastrand::Rng,
    before: &Content,
    range: &Range<u64>,
    buf: &mut [u8],
    offset: u64,
    count: usize,
) -> usize {
    let read = offset..offset + count as u64;
    let hit = range.start.max(read.start)..range.end.min(read.end);
    if hit.is_empty() {
        return count;
    }
    let mut old = vec![0; buf.len()];
    for piece in pieces(hit.clone(), RACE_BYTES) {
        let part = index(piece.start - offset)..index(piece.end - offset);
        // Past the end of `before` there is nothing but new bytes.
        if piece.end <= before.len_bytes() && toss(random) {
            before.read(piece.start, &mut old[part.clone()]);
            buf[part.clone()].copy_from_slice(&old[part]);
        }
    }
    let old_end = before.len_bytes().max(read.start);
    if hit.end < read.end || hit.end <= old_end {
        return count;
    }
    let visible = random.u64(old_end.max(hit.start)..=hit.end);
    let end = if visible == hit.end {
        visible
    } else {
        (visible / RACE_BYTES * RACE_BYTES).max(old_end)
    };
    index(end - offset)
}

/// All calls that are under way.
#[derive(Clone, Debug)]
pub(super) struct Races {
    /// Their changes, by the number of the call.
    flights: BTreeMap<u64, Vec<Flight>>,
    /// Decides what is seen of them.
    random: fastrand::Rng,
}

impl Races {
    /// None yet.
    pub(super) fn new(seed: u64) -> Races {
        Races {
            flights: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// A coin of the machine's.
    pub(super) fn toss(&mut self) -> bool {
        toss(&mut self.random)
    }

    /// Begins a call, whose changes are under way from now on: those from `before` on, numbered from `first_seq`.
    pub(super) fn begin(&mut self, call: u64, before: &FsState, after: &FsState, first_seq: u64) {
        self.flights
            .insert(call, flights_of(before, after, first_seq));
    }

    /// The call is no longer under way.
    pub(super) fn end(&mut self, call: u64) {
        self.flights.remove(&call);
    }

    /// Mixes what a read of `buf` has found with changes that are under way, and with the state `before`; returns how
    /// many bytes count.
    pub(super) fn read(
        &mut self,
        ino: Ino,
        buf: &mut [u8],
        offset: u64,
        before: Option<&FsState>,
    ) -> usize {
        let mut count = buf.len();
        if let Some(old) = before.and_then(|fs| fs.file(ino).ok()) {
            let old = Arc::clone(&old.visible);
            count = mix(&mut self.random, &old, &(0..u64::MAX), buf, offset, count);
        }
        for flight in self.flights.values().flatten() {
            if let Flight::Bytes {
                ino: of,
                range,
                before,
            } = flight
                && *of == ino
            {
                count = mix(&mut self.random, before, range, buf, offset, count);
            }
        }
        count
    }

    /// The names that a listing returns beside the changes that are under way, and the state before it was. What a name
    /// stands for is as of now where it is there now.
    pub(super) fn list(&mut self, fs: &FsState, dir: Ino, before: Option<&FsState>) -> Entries {
        let mut names = match fs.dir(dir) {
            Ok(found) => Entries::clone(&found.visible),
            Err(_) => return Entries::new(),
        };
        let mut changed: BTreeMap<OsString, Option<Ino>> = BTreeMap::new();
        if let Some(old) = before.and_then(|fs| fs.dir(dir).ok()) {
            for name in old.visible.keys().chain(names.keys()) {
                let was = old.visible.get(name);
                if was != names.get(name) {
                    changed.insert(name.clone(), was.copied());
                }
            }
        }
        for flight in self.flights.values().flatten() {
            if let Flight::Name {
                dir: of,
                name,
                before,
            } = flight
                && *of == dir
            {
                changed.insert(name.clone(), *before);
            }
        }
        for (name, was) in changed {
            if !toss(&mut self.random) {
                continue;
            }
            match was {
                None => drop(names.remove(&name)),
                Some(ino) => drop(names.entry(name).or_insert(ino)),
            }
        }
        names
    }
}
