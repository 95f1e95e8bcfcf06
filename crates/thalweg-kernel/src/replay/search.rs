//! Looking for frames where none is expected to begin: past the end of a log, or after damage.

use super::{UNREADABLE_BYTES, head_at, read_up_to};
use crate::error::{Error, Result};
use crate::frame::{FRAME_ALIGN, FRAME_MAGIC, FrameHead};
use crate::ids::{DatabaseId, Epoch, FileId, LogPosition};
use crate::paths::{list_segments, segment_path};
use crate::rules::Rule;
use crate::segment::{SEGMENT_HEADER_BYTES, open_segment};
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_env::{Env, File, is_unreadable};

/// How much is read at once: so little that it is searched before it has left the nearer caches.
const WINDOW_BYTES: usize = 64 << 10;
/// No frame that proves a lost one begins farther after it than this (invariant 8 of the format page).
const PROOF_WINDOW_BYTES: u64 = 24 << 20;
/// Bytes that were never written to are passed over by so many at once.
const BLANK_BYTES: usize = 4096;

/// A proof that a log went on past its end: the place of the frame, and up to where it proves that the log was synced.
pub(crate) type Proof = (LogPosition, LogPosition);

/// The search past the end of a chain for a frame that proves that more of it was synced.
pub(crate) struct ProofSearch {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) database: DatabaseId,
    pub(super) epoch: Epoch,
    /// The segment in which the chain ends.
    pub(super) file: Arc<dyn File>,
    pub(super) end: LogPosition,
}

impl ProofSearch {
    /// Finds a valid frame past the end of the chain that was built when bytes past that end were synced.
    pub(crate) fn find(&self) -> Result<Option<Proof>> {
        let end = self.end;
        let mut budget_bytes = PROOF_WINDOW_BYTES;
        let mut found = self.find_in(&*self.file, end, &mut budget_bytes)?;
        for id in self.segments_behind()? {
            if found.is_some() || budget_bytes == 0 {
                break;
            }
            let file = open_segment(&self.env, &segment_path(&self.dir, id))?;
            let start = LogPosition {
                segment: id,
                offset: SEGMENT_HEADER_BYTES as u64,
            };
            found = self.find_in(&*file, start, &mut budget_bytes)?;
        }
        Ok(found)
    }

    fn segments_behind(&self) -> Result<impl Iterator<Item = FileId> + use<>> {
        let last = self.end.segment;
        let segments = list_segments(&self.env, &self.dir)?;
        Ok(segments.into_iter().filter(move |id| *id > last))
    }

    /// Finds the frame in one file, from `start` on.
    fn find_in(
        &self,
        file: &dyn File,
        start: LogPosition,
        budget_bytes: &mut u64,
    ) -> Result<Option<Proof>> {
        let is_proof = |at: LogPosition, head: &FrameHead| {
            let is_of_epoch = head.id.epoch == self.epoch || !Rule::Epoch.is_kept();
            at != self.end && is_of_epoch && head.id.synced_to > self.end
        };
        // The frame at the end was read, and is none: it takes a second fault to hide the proof that it was one.
        let found = search(file, start, self.database, budget_bytes, true, is_proof)?;
        Ok(found.map(|(at, head)| (at, head.id.synced_to)))
    }
}

/// The first frame from `start` on in a file that is sealed with its place and that `accept` takes. `budget_bytes`: how
/// much is searched, and what is left of it.
pub(crate) fn find_frame(
    file: &dyn File,
    start: LogPosition,
    database: DatabaseId,
    budget_bytes: &mut u64,
    accept: impl FnMut(LogPosition, &FrameHead) -> bool,
) -> Result<Option<(LogPosition, FrameHead)>> {
    search(file, start, database, budget_bytes, false, accept)
}

/// Like `find_frame`. `skips`: bytes that cannot be read are passed over, as if no frame were there.
fn search(
    file: &dyn File,
    start: LogPosition,
    database: DatabaseId,
    budget_bytes: &mut u64,
    skips: bool,
    mut accept: impl FnMut(LogPosition, &FrameHead) -> bool,
) -> Result<Option<(LogPosition, FrameHead)>> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut at = start;
    while *budget_bytes > 0 {
        let mut wanted_bytes = window.len();
        let mut filled = read_up_to(file, &mut window, at.offset);
        if skips && filled.as_ref().is_err_and(is_unreadable) {
            let next = (at.offset + 1).next_multiple_of(UNREADABLE_BYTES as u64);
            let piece_bytes = next - at.offset;
            wanted_bytes = usize::try_from(piece_bytes).unwrap_or(UNREADABLE_BYTES);
            filled = read_up_to(file, &mut window[..wanted_bytes], at.offset);
            if filled.as_ref().is_err_and(is_unreadable) {
                at.offset += piece_bytes;
                *budget_bytes = budget_bytes.saturating_sub(piece_bytes);
                continue;
            }
        }
        let filled = filled.map_err(|e| {
            Error::io(
                format_args!("looking for frames in segment {:x}", at.segment.0),
                e,
            )
        })?;
        for offset in magics_in(&window[..filled]) {
            let here = LogPosition {
                offset: at.offset + offset as u64,
                ..at
            };
            let head = match head_at(file, here, database) {
                Err(error) if skips && error.is_unreadable() => None,
                head => head?,
            };
            if let Some(head) = head.filter(|head| accept(here, head)) {
                return Ok(Some((here, head)));
            }
        }
        if filled < wanted_bytes {
            break;
        }
        at.offset += filled as u64;
        *budget_bytes = budget_bytes.saturating_sub(filled as u64);
    }
    Ok(None)
}

/// Where frames may begin in a piece of a segment that begins where one may.
fn magics_in(window: &[u8]) -> impl Iterator<Item = usize> {
    let magic = FRAME_MAGIC.to_le_bytes();
    let parts = window.chunks(BLANK_BYTES).enumerate();
    let written = parts.filter(|(_, part)| !is_blank(part));
    written.flat_map(move |(index, part)| {
        let places = part.chunks_exact(FRAME_ALIGN).enumerate();
        let places = places.filter(move |(_, place)| place[..4] == magic);
        places.map(move |(place, _)| index * BLANK_BYTES + place * FRAME_ALIGN)
    })
}

/// Whether there are only zeros. Not byte by byte: most of what is searched was never written to.
fn is_blank(bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<64>();
    let any = |part: &[u8; 64]| part.iter().fold(0, |all, byte| all | byte);
    whole.iter().all(|part| any(part) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_frames_are_found_wherever_they_are() {
        let magic = FRAME_MAGIC.to_le_bytes();
        for len in [0, 3, 8, 100, 4096, 4104, 20_000] {
            let mut window = vec![0; len];
            assert_eq!(magics_in(&window).count(), 0);
            let places: Vec<usize> = [0, 8, 64, 4088, 4096, 8192, 19_992]
                .into_iter()
                .filter(|at| at + 8 <= len)
                .collect();
            for at in &places {
                window[*at..at + 4].copy_from_slice(&magic);
            }
            assert_eq!(magics_in(&window).collect::<Vec<_>>(), places);
        }
        // Elsewhere none begins.
        let mut window = vec![0; 64];
        window[4..8].copy_from_slice(&magic);
        assert_eq!(magics_in(&window).count(), 0);
    }

    #[test]
    fn every_byte_that_was_written_is_seen() {
        for len in [1, 63, 64, 65, 4096] {
            let mut bytes = vec![0; len];
            assert!(is_blank(&bytes));
            for at in 0..len {
                bytes[at] = 1;
                assert!(!is_blank(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
