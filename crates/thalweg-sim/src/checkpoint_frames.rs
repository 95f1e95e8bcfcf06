//! Checkpoints as `docs/format/log.md` describes their bytes, without the kernel's code: where they lie and what they build
//! on.
//!
//! Invariant: bytes that are no checkpoint are none here, whatever they are.

use crate::files::Files;
use crate::shape::DIR;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::FileId;
use thalweg_kernel::paths::segment_name;

const SEGMENT_HEADER_BYTES: usize = 128;
const FRAME_HEADER_BYTES: usize = 64;
const SECTION_ENTRY_BYTES: usize = 16;
/// Where the base of a checkpoint stands in its INDEX section: after the version and the features.
const BASE_AT: usize = 12;
const KIND_INDEX: u8 = 6;
const KIND_PAGES: u8 = 7;

/// The segment and the offset of a frame.
pub type Place = (u64, u64);

/// The frame of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFrame {
    /// Its segment.
    pub path: PathBuf,
    /// Where it lies.
    pub place: Place,
    /// Its header and section table in the segment.
    pub head: Range<usize>,
    /// Its PAGES section.
    pub pages: Range<usize>,
    /// Its INDEX section.
    pub index: Range<usize>,
    /// The full checkpoint that it is a difference from.
    pub base: Option<Place>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(field)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The length of the frame at an offset.
fn frame_bytes(segment: &[u8], at: usize) -> Option<usize> {
    let is_frame = segment.get(at..at + 4)? == b"TFRM";
    u32_at(segment, at + 24).filter(|bytes| is_frame && *bytes >= FRAME_HEADER_BYTES)
}

/// The checkpoint at an offset of a segment, if there is one.
fn checkpoint_at(path: &Path, segment: &[u8], at: usize) -> Option<CheckpointFrame> {
    frame_bytes(segment, at)?;
    let section = |number: usize, kind: u8| {
        let entry = at + FRAME_HEADER_BYTES + number * SECTION_ENTRY_BYTES;
        let start = at + u32_at(segment, entry + 4)?;
        let bytes = u32_at(segment, entry + 8)?;
        (*segment.get(entry)? == kind).then_some(start..start + bytes)
    };
    let (pages, index) = (section(0, KIND_PAGES)?, section(1, KIND_INDEX)?);
    let base = (
        u64_at(segment, index.start + BASE_AT)?,
        u64_at(segment, index.start + BASE_AT + 8)?,
    );
    let id = u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()?;
    Some(CheckpointFrame {
        path: path.to_owned(),
        place: (id, at as u64),
        head: at..at + FRAME_HEADER_BYTES + 2 * SECTION_ENTRY_BYTES,
        pages,
        index,
        base: (base != (0, 0)).then_some(base),
    })
}

/// The checkpoints in the segments of a database, in their order.
pub fn checkpoints_of(files: &Files) -> Vec<CheckpointFrame> {
    let mut found = Vec::new();
    for (path, bytes) in files {
        if path.extension().is_none_or(|kind| kind != "seg") {
            continue;
        }
        let mut at = SEGMENT_HEADER_BYTES;
        while let Some(frame_bytes) = frame_bytes(bytes, at) {
            found.extend(checkpoint_at(path, bytes, at));
            at += frame_bytes;
        }
    }
    found
}

/// The checkpoints that the slots of the root name, the newer one first, each with its sequence.
pub fn named_by_slots(sim: &SimEnv) -> Vec<(u64, Place)> {
    let root = sim.read_file(&Path::new(DIR).join("root"));
    let root = root.unwrap_or_default();
    let slot = |at: usize| {
        Some((
            u64_at(&root, at + 32)?,
            (u64_at(&root, at + 48)?, u64_at(&root, at + 56)?),
        ))
    };
    let mut slots: Vec<_> = [slot(0), slot(4096)].into_iter().flatten().collect();
    slots.sort_unstable();
    slots.reverse();
    slots
}

/// How many checkpoints of which kind a database has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// Full ones.
    pub full: u64,
    /// Differences from a full one.
    pub differences: u64,
    /// Full ones that came after a difference: a base was renewed.
    pub renewed: u64,
    /// The root's sequence when it was last read.
    last_sequence: u64,
}

impl CheckpointCounts {
    /// Counts the checkpoint that the root names now, if it was not counted before.
    pub fn look(&mut self, sim: &SimEnv) {
        let Some((sequence, place)) = named_by_slots(sim).first().copied() else {
            return;
        };
        if sequence <= self.last_sequence {
            return;
        }
        self.last_sequence = sequence;
        let path = Path::new(DIR).join(segment_name(FileId(place.0)));
        let segment = sim.read_file(&path).unwrap_or_default();
        let at = usize::try_from(place.1).unwrap_or(usize::MAX);
        match checkpoint_at(&path, &segment, at) {
            Some(found) if found.base.is_some() => self.differences += 1,
            Some(_) => {
                self.full += 1;
                self.renewed += u64::from(self.differences > 0);
            }
            None => {}
        }
    }

    /// Adds those of another database.
    pub fn add(&mut self, other: Self) {
        self.full += other.full;
        self.differences += other.differences;
        self.renewed += other.renewed;
    }
}
