//! Epochs that recoveries have begun and not finished.
//!
//! Invariant: a segment of a later epoch than the root's was never used, unless frames follow its checkpoint: those are only
//! written once both slots of the root name the epoch.

use crate::error::{Error, Result};
use crate::ids::{Epoch, LogPosition};
use crate::paths::{ROOT_NAME, io_at, list_segments, segment_path};
use crate::replay::head_at;
use crate::root::Root;
use crate::segment::{self, SEGMENT_HEADER_BYTES, SegmentHeader};
use std::path::{Path, PathBuf};
use thalweg_env::{Env, File, OpenMode};

/// Segments that recoveries which did not finish have begun, with their epochs; an error if the root is an old one.
pub(crate) fn unfinished_epochs(
    env: &Env,
    dir: &Path,
    root: &Root,
) -> Result<Vec<(Epoch, PathBuf)>> {
    let mut unfinished = Vec::new();
    for id in list_segments(env, dir)?
        .into_iter()
        .filter(|id| *id > root.checkpoint.segment)
    {
        let path = segment_path(dir, id);
        let file = env
            .storage()
            .open(&path, OpenMode::Read)
            .map_err(io_at("opening", &path))?;
        // One that cannot be read is left alone: if the log goes on in it, reading the log ends there.
        let header = match segment::whole_header(&*file, &path) {
            Err(error) if error.is_unreadable() => continue,
            header => header?,
        };
        let is_later =
            |header: &SegmentHeader| header.database == root.database && header.epoch > root.epoch;
        let Some(header) = header.filter(is_later) else {
            continue;
        };
        let follow = match frames_follow_checkpoint(&*file, &header, root) {
            Err(error) if error.is_unreadable() => continue,
            follow => follow?,
        };
        if follow {
            let what = format!(
                "it is of epoch {}, but epoch {} has commits: an old copy?",
                root.epoch.0, header.epoch.0
            );
            return Err(Error::corruption(dir.join(ROOT_NAME).display(), what));
        }
        unfinished.push((header.epoch, path));
    }
    Ok(unfinished)
}

/// An unfinished epoch ends with its checkpoint. That may lie in a second segment, alone, if the first one is full.
fn frames_follow_checkpoint(file: &dyn File, header: &SegmentHeader, root: &Root) -> Result<bool> {
    let mut at = LogPosition {
        segment: header.file,
        offset: SEGMENT_HEADER_BYTES as u64,
    };
    let mut behind_checkpoint = false;
    let mut previous_crc = header.previous_crc;
    loop {
        let Some(head) = head_at(file, at, root.database)? else {
            return Ok(false);
        };
        if head.id.epoch != header.epoch || head.id.previous_crc != previous_crc {
            return Ok(false);
        }
        if behind_checkpoint || (head.is_commit() && header.previous.is_some()) {
            return Ok(true);
        }
        behind_checkpoint = !head.is_commit() && !head.is_padding();
        previous_crc = head.crc;
        at.offset += u64::from(head.frame_bytes);
    }
}
