//! The bytes of a simulated file: chunks shared between copies until one of them changes.
//!
//! Invariants
//! - A chunk that is absent is a hole: it reads as zeros and takes no space of the quota.
//! - A sector is unreadable from [`Content::make_unreadable`] until it is written as a whole or cut off; its bytes stay,
//!   for whoever looks from outside. Reading and writing do not check for it: the machine does.
//! - Bytes of the last chunk past the length are zero, so that growing the file shows zeros.
//! - A copy of a content costs one pointer per chunk, a change one chunk. A flat vector per file was
//!   rejected: each of a million crash images would copy the whole database.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::units::SECTOR_BYTES;

type Bytes = [u8; 4096];

/// Unit of sharing and of space.
pub(super) const CHUNK_BYTES: u64 = size_of::<Bytes>() as u64;

/// Some bytes of a file, and their hash once somebody asked for it: half a million crash images are distinguished by
/// their hashes, and nearly all of their chunks are those of the image before.
#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    hash: OnceLock<u64>,
}

impl Clone for Chunk {
    /// A copy is made in order to be changed.
    fn clone(&self) -> Chunk {
        Chunk {
            bytes: self.bytes,
            hash: OnceLock::new(),
        }
    }
}

impl Chunk {
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| hash_of(&self.bytes))
    }
}

fn hash_of(bytes: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The bytes of a chunk, to change them.
fn bytes_mut(chunk: &mut Arc<Chunk>) -> &mut Bytes {
    let chunk = Arc::make_mut(chunk);
    chunk.hash = OnceLock::new();
    &mut chunk.bytes
}

/// Longest simulated file: the list of chunk pointers has to fit in memory.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 30;

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len_bytes: u64,
    chunks: Vec<Option<Arc<Chunk>>>,
    /// Numbers of sectors.
    unreadable: BTreeSet<u64>,
}

/// A number of bytes or chunks as an index.
#[expect(
    clippy::cast_possible_truncation,
    reason = "files are at most MAX_FILE_BYTES long, and hosts have 64 bits"
)]
pub(super) fn index(value: u64) -> usize {
    debug_assert!(value <= MAX_FILE_BYTES);
    value as usize
}

/// Cuts a range of bytes at multiples of a unit.
pub(super) fn pieces(range: Range<u64>, unit_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((start / unit_bytes + 1) * unit_bytes);
        (start < range.end).then_some(start..at)
    })
}

impl Content {
    pub(super) fn from_bytes(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Space taken, in bytes.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.chunks.iter().flatten().count() as u64 * CHUNK_BYTES
    }

    /// Space that allocating the range would take on top.
    pub(super) fn missing_bytes(&self, range: Range<u64>) -> u64 {
        let missing = |piece: &Range<u64>| self.chunk(piece.start).is_none();
        pieces(range, CHUNK_BYTES).filter(missing).count() as u64 * CHUNK_BYTES
    }

    fn chunk(&self, offset: u64) -> Option<&Arc<Chunk>> {
        self.chunks.get(index(offset / CHUNK_BYTES))?.as_ref()
    }

    /// The slot of the chunk that holds the offset.
    fn slot(&mut self, offset: u64) -> &mut Option<Arc<Chunk>> {
        let at = index(offset / CHUNK_BYTES);
        if self.chunks.len() <= at {
            self.chunks.resize(at + 1, None);
        }
        &mut self.chunks[at]
    }

    /// Lets reads of every sector that the range touches fail.
    pub(super) fn make_unreadable(&mut self, range: Range<u64>) {
        self.unreadable.extend(sectors(&range));
    }

    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// The first byte of a range that cannot be read.
    pub(super) fn first_unreadable(&self, range: Range<u64>) -> Option<u64> {
        let range = range.start..range.end.min(self.len_bytes);
        let first = self.unreadable.range(sectors(&range)).next()?;
        Some(range.start.max(first * SECTOR_BYTES))
    }

    /// Whether a write of the range covers an unreadable sector in part: the rest of it would have to be read.
    pub(super) fn must_read_to_write(&self, range: &Range<u64>) -> bool {
        let covered = whole_sectors(range);
        let mut touched = self.unreadable.range(sectors(range));
        touched.any(|sector| !covered.contains(sector))
    }

    /// Copies bytes out; those past the end are left alone and not counted.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = self.len_bytes.min(offset.saturating_add(buf.len() as u64));
        for piece in pieces(offset..end, CHUNK_BYTES) {
            let target = &mut buf[index(piece.start - offset)..index(piece.end - offset)];
            match self.chunk(piece.start) {
                Some(chunk) => target.copy_from_slice(&chunk.bytes[within_chunk(&piece)]),
                None => target.fill(0),
            }
        }
        index(end.saturating_sub(offset))
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.len_bytes)];
        self.read(0, &mut bytes);
        bytes
    }

    /// Puts bytes in place, growing the file where needed; a gap reads as zeros.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for piece in pieces(offset..end, CHUNK_BYTES) {
            let source = &bytes[index(piece.start - offset)..index(piece.end - offset)];
            let slot = self.slot(piece.start).get_or_insert_with(zero_chunk);
            bytes_mut(slot)[within_chunk(&piece)].copy_from_slice(source);
        }
        if !bytes.is_empty() {
            self.len_bytes = self.len_bytes.max(end);
        }
        if !self.unreadable.is_empty() {
            let covered = whole_sectors(&(offset..end));
            self.unreadable.retain(|sector| !covered.contains(sector));
        }
    }

    /// Cuts or grows the file; new bytes are a hole.
    pub(super) fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.chunks.truncate(index(len_bytes.div_ceil(CHUNK_BYTES)));
            let cut = index(len_bytes % CHUNK_BYTES);
            if cut > 0
                && let Some(Some(last)) = self.chunks.get_mut(index(len_bytes / CHUNK_BYTES))
            {
                bytes_mut(last)[cut..].fill(0);
            }
        }
        self.len_bytes = len_bytes;
        let left = sectors(&(0..len_bytes));
        self.unreadable.retain(|sector| left.contains(sector));
    }

    /// Fills the holes of a range with zeros that take space, and grows the file to its end.
    pub(super) fn allocate(&mut self, range: Range<u64>) {
        let zeros = zero_chunk();
        for piece in pieces(range.clone(), CHUNK_BYTES) {
            self.slot(piece.start)
                .get_or_insert_with(|| Arc::clone(&zeros));
        }
        self.len_bytes = self.len_bytes.max(range.end);
    }

    /// Replaces a range by what another file has at the same place, zeros where it ends before.
    pub(super) fn copy_from(&mut self, other: &Content, range: Range<u64>) {
        for piece in pieces(range, CHUNK_BYTES) {
            let mut bytes = vec![0; index(piece.end - piece.start)];
            other.read(piece.start, &mut bytes);
            self.write(piece.start, &bytes);
        }
    }
}

impl Hash for Content {
    /// Hashes the bytes and the length: a hole is the same as zeros.
    fn hash<H: Hasher>(&self, state: &mut H) {
        static ZEROS: OnceLock<u64> = OnceLock::new();
        self.len_bytes.hash(state);
        for at in 0..index(self.len_bytes.div_ceil(CHUNK_BYTES)) {
            let chunk = self.chunks.get(at).and_then(Option::as_ref);
            let zeros = || *ZEROS.get_or_init(|| hash_of(&zero_chunk().bytes));
            chunk.map_or_else(zeros, |chunk| chunk.hash()).hash(state);
        }
        self.unreadable.hash(state);
    }
}

/// Numbers of the sectors that a range touches.
fn sectors(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

/// Numbers of the sectors that a range covers from end to end.
fn whole_sectors(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(SECTOR_BYTES)..range.end / SECTOR_BYTES
}

fn zero_chunk() -> Arc<Chunk> {
    Arc::new(Chunk {
        bytes: [0; size_of::<Bytes>()],
        hash: OnceLock::new(),
    })
}

/// A piece of one chunk as a range of that chunk.
fn within_chunk(piece: &Range<u64>) -> Range<usize> {
    let start = index(piece.start % CHUNK_BYTES);
    start..start + index(piece.end - piece.start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Allocate(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let at = 0..20_000_u64;
        prop_oneof![
            (at.clone(), prop::collection::vec(any::<u8>(), 0..9000))
                .prop_map(|(at, bytes)| Step::Write(at, bytes)),
            at.clone().prop_map(Step::SetLen),
            (at.clone(), at).prop_map(|(at, len)| Step::Allocate(at, len)),
        ]
    }

    fn apply_to_vec(model: &mut Vec<u8>, step: &Step) {
        match step {
            Step::Write(_, bytes) if bytes.is_empty() => {}
            Step::Write(at, bytes) => {
                let end = index(*at) + bytes.len();
                model.resize(model.len().max(end), 0);
                model[index(*at)..end].copy_from_slice(bytes);
            }
            Step::SetLen(len) => model.resize(index(*len), 0),
            Step::Allocate(at, len) => model.resize(model.len().max(index(at + len)), 0),
        }
    }

    fn hash(content: &Content) -> u64 {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector_and_copies_stay_apart(steps in prop::collection::vec(step(), 1..20)) {
            let mut content = Content::default();
            let mut model = Vec::new();
            for step in steps {
                let (copy, before) = (content.clone(), model.clone());
                // Known from here on: a change must not leave it as it is.
                hash(&content);
                apply_to_vec(&mut model, &step);
                match &step {
                    Step::Write(at, bytes) => content.write(*at, bytes),
                    Step::SetLen(len) => content.set_len(*len),
                    Step::Allocate(at, len) => content.allocate(*at..at + len),
                }
                prop_assert_eq!(content.to_vec(), &model[..]);
                prop_assert_eq!(hash(&content), hash(&Content::from_bytes(&model)));
                prop_assert_eq!(copy.to_vec(), before);
            }
        }
    }

    #[test]
    fn holes_take_no_space() {
        let mut content = Content::default();
        content.set_len(10 * CHUNK_BYTES);
        assert_eq!(content.allocated_bytes(), 0);
        content.write(3 * CHUNK_BYTES + 1, b"x");
        assert_eq!(content.allocated_bytes(), CHUNK_BYTES);
        assert_eq!(
            content.missing_bytes(2 * CHUNK_BYTES..5 * CHUNK_BYTES),
            2 * CHUNK_BYTES
        );
        content.allocate(0..10 * CHUNK_BYTES);
        assert_eq!(content.allocated_bytes(), 10 * CHUNK_BYTES);
    }
}
