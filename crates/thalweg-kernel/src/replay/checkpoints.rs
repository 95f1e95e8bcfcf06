//! Checkpoints as they lie in the log, by their place.

use crate::bases::Place;
use crate::checkpoint::{CHECKPOINT_HEAD_BYTES, base_of, get_checkpoint, index_section};
use crate::error::{Error, Result};
use crate::frame::{FrameHead, NotAFrame, seal};
use crate::ids::{DatabaseId, LogPosition};
use crate::paths::segment_path;
use crate::root::Root;
use crate::segment::{self, open_segment};
use crate::wire::is_sound;
use crate::working::Working;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Env, File};

/// Names a place of the log.
pub(super) fn place_of(dir: &Path, at: LogPosition) -> String {
    format!(
        "{} at {}",
        segment_path(dir, at.segment).display(),
        at.offset
    )
}

/// The head and the INDEX section of a checkpoint, and the open segment that it lies in.
pub(super) fn read_checkpoint(
    env: &Env,
    dir: &Path,
    database: DatabaseId,
    checkpoint: Place,
) -> Result<(FrameHead, Vec<u8>, Arc<dyn File>)> {
    let at = checkpoint.at;
    let place = place_of(dir, at);
    let file = open_segment(env, &segment_path(dir, at.segment))?;
    let damage = |what: &str| Error::corruption(&place, what);
    let read = |bytes: usize, offset: u64| {
        let mut out = vec![0; bytes];
        match file.read_exact_at(&mut out, offset) {
            Ok(()) => Ok(out),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(damage("the file ends before it"))
            }
            Err(e) => Err(Error::io(format_args!("reading {place}"), e)),
        }
    };
    let head = FrameHead::parse(&read(CHECKPOINT_HEAD_BYTES, at.offset)?, seal(database, at))
        .map_err(|wrong| match wrong {
            NotAFrame::Newer(what) => Error::newer(&place, what),
            NotAFrame::Short(_) | NotAFrame::Invalid(_) => {
                damage(
                    "the checkpoint that the root names is not there (so looks the copy of a folder that a writer had open)",
                )
            }
        })?;
    if !is_sound(head.crc, checkpoint.crc) || head.frame_bytes != checkpoint.frame_bytes {
        return Err(damage("the checkpoint is not the one that the root names"));
    }
    let entry = index_section(&head).ok_or_else(|| damage("the frame is no checkpoint"))?;
    let section = read(entry.bytes as usize, at.offset + u64::from(entry.offset))?;
    if !is_sound(crc32c::crc32c(&section), entry.crc) {
        return Err(damage("checksum of the checkpoint"));
    }
    Ok((head, section, file))
}

/// The state of the full checkpoint that another one is a difference from.
pub(super) fn read_base(
    env: &Env,
    dir: &Path,
    database: DatabaseId,
    base: Place,
) -> Result<Working> {
    let (_, section, _) = read_checkpoint(env, dir, database, base)?;
    let place = place_of(dir, base.at);
    let of_base = base_of(&section, base).map_err(|e| e.in_bytes_at(&place))?;
    if of_base.is_some() {
        return Err(Error::corruption(
            &place,
            "the base of a checkpoint is not a full one",
        ));
    }
    get_checkpoint(&section, base, Working::empty()).map_err(|e| e.in_bytes_at(&place))
}

/// Whether a segment is the one that the root means.
pub(super) fn check_header(file: &dyn File, path: &Path, root: &Root) -> Result<()> {
    match segment::read_header(file, path)? {
        Some(h)
            if h.database == root.database
                && h.file == root.checkpoint.segment
                && h.epoch == root.epoch =>
        {
            Ok(())
        }
        _ => Err(Error::corruption(
            path.display(),
            "not the segment that the root names",
        )),
    }
}
