//! Opening: the state of the log after a crash (`docs/format/log.md`, invariants 3 to 5).
//!
//! Invariants: nothing is written before everything is decided; frames that a power cut could still take are written again
//! before anybody sees them; what recovery does can be interrupted at any call and done again from the start.

use crate::beside;
use crate::block;
use crate::change::Change;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, LogPosition};
use crate::index::{Address, PageLoader};
use crate::replay::{Frame, Replay};
use crate::root::Root;
use crate::rules::Rule;
use crate::working::Working;
use std::path::Path;
use thalweg_env::Env;

/// The state at the checkpoint, with what was found in the log after it.
pub(crate) struct Recovered {
    /// The checkpoint with all proven frames applied.
    pub(crate) working: Working,
    /// Frames whose sync nothing proves, whole, in order. They verify, blocks and all.
    pub(crate) tail: Vec<(Frame, Vec<u8>)>,
    /// Stands after the last frame.
    pub(crate) replay: Replay,
    /// Frames after the checkpoint.
    pub(crate) frames: u64,
}

/// Facts about a log that are known before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// So much is synced, as far as is known from elsewhere than the log and its root.
    pub(crate) proven: LogPosition,
    /// The last commit that a writer at work has announced; what follows is read where it may be shown once it is written.
    /// `None`: all that is there.
    pub(crate) told: Option<CommitNo>,
    /// There may have been a power cut since it was written.
    pub(crate) may_be_torn: bool,
    /// A second thread may search past its end.
    pub(crate) may_start_threads: bool,
}

/// Reads the checkpoint and the frames after it.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    root: &Root,
    known: &Known,
    pages: &dyn PageLoader,
) -> Result<Recovered> {
    let (mut replay, mut working) = Replay::start(env, dir, root)?;
    if known.may_be_torn {
        replay.expect_torn_end();
    }
    let told = known.told;
    let mut frames = Vec::new();
    let mut proven = root.proven.max(known.proven).max(replay.at());
    while let Some(frame) = replay.next(told.unwrap_or(CommitNo(u64::MAX)))? {
        proven = proven.max(frame.head.id.synced_to);
        frames.push(frame);
    }
    // While a writer is at work the end is where it writes, after all that it has announced.
    let last = { frames.last() }.map_or(root.commit, |frame: &Frame| frame.head.id.commit);
    let is_end = told.is_none_or(|told| last < told) && Rule::Proof.is_kept();
    let search = match is_end {
        true => {
            replay.check_proven(proven)?;
            let search = replay.proof_search();
            let may_start = known.may_start_threads;
            // Nothing is there, most likely, and that takes as long to see as it takes to read all the rest.
            Some(beside::begin(env, may_start, move || search.find()))
        }
        false => None,
    };
    let count = frames.len() as u64;
    let tail = read_tail(frames, proven, &replay, &mut working, pages);
    if let Some(search) = search {
        replay.check_proof(beside::finish(search)??)?;
    }
    let tail = tail?;
    working.settle_pending(pages);
    Ok(Recovered {
        working,
        tail,
        replay,
        frames: count,
    })
}

/// Applies the frames up to `proven`, and returns those after it, whole, up to one that does not verify.
fn read_tail(
    frames: Vec<Frame>,
    proven: LogPosition,
    replay: &Replay,
    working: &mut Working,
    pages: &dyn PageLoader,
) -> Result<Vec<(Frame, Vec<u8>)>> {
    let mut tail = Vec::new();
    for frame in frames {
        if frame.end() <= proven || !Rule::RewriteTail.is_kept() {
            apply(working, frame, pages)?;
            continue;
        }
        let whole = replay.read_whole(&frame)?;
        let intact = blocks_verify(&frame, &whole)?;
        if !intact {
            break;
        }
        tail.push((frame, whole));
    }
    Ok(tail)
}

/// Applies a frame where it stands.
pub(crate) fn apply(working: &mut Working, frame: Frame, pages: &dyn PageLoader) -> Result<()> {
    let at = frame.at;
    apply_at(working, frame, at, pages)
}

/// Applies a frame that now begins at `at`.
pub(crate) fn apply_at(
    working: &mut Working,
    mut frame: Frame,
    at: LogPosition,
    pages: &dyn PageLoader,
) -> Result<()> {
    if !frame.head.is_commit() {
        return Ok(());
    }
    working
        .validate_stored(&frame.changes, pages)
        .map_err(|e| {
            // Bytes that cannot be read prove nothing about the commit.
            if !e.is_misfit() {
                return e;
            }
            let place = format!("segment {:x} at {}", frame.at.segment.0, frame.at.offset);
            Error::corruption(
                place,
                format_args!("a commit that does not fit the state before it: {e}"),
            )
        })?;
    working.apply(frame.head.id.commit, &mut frame.changes, at, pages)
}

/// Whether the blocks of a frame are those of their directory.
///
/// # Errors
/// `Unsupported` when another version of Thalweg wrote one: its content is not known.
pub(crate) fn blocks_verify(frame: &Frame, whole: &[u8]) -> Result<bool> {
    if whole.len() != frame.head.frame_bytes as usize {
        return Ok(false);
    }
    for change in &frame.changes {
        let Change::Group {
            entries,
            blocks_offset,
            ..
        } = change
        else {
            continue;
        };
        for entry in entries.iter() {
            let start = usize::try_from(blocks_offset + entry.address.offset).unwrap_or(usize::MAX);
            let bytes = whole.get(start..start.saturating_add(entry.address.bytes as usize));
            if !bytes.map_or(Ok(false), |bytes| block_verifies(bytes, &entry.address))? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn block_verifies(bytes: &[u8], address: &Address) -> Result<bool> {
    match block::verify(bytes, address) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
        Err(_) => Ok(false),
    }
}
