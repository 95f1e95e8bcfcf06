//! Segments of which little is needed any more: their last blocks move into fragments, so that the files can go.
//!
//! Invariants: a block is copied byte for byte, with its commits and its place in the order of arrival, and swapped in by a
//! commit that is refused if it is no longer there; so a reader sees the same rows before and after. Only segments that no
//! recovery would replay are looked at.
//!
//! Rejected: moving index pages as well. A page that lies in such a segment and leads elsewhere keeps it until the page
//! itself is replaced, which appends and merges of its neighbours do; pages are a thousandth of the data. A segment that only
//! pages keep is left alone.

use crate::commit::{Commit, Durability, Edit};
use crate::error::{Error, ErrorKind, Result};
use crate::garbage::Marked;
use crate::ids::{FileId, TableId};
use crate::index::{Entry, Step};
use crate::leader::Job;
use crate::segment::{list_segments, segment_path};
use crate::state::TableSnapshot;
use crate::writer::Writer;

/// A segment with less than this share of it in use is rewritten, in percent.
const LEAST_LIVE_PERCENT: u64 = 60;
/// The same when there is no space left.
const LEAST_LIVE_PERCENT_OF_FULL_DISK: u64 = 90;

/// Most blocks that one commit moves: their keys take a sixth of a frame.
const MOST_MOVED_BLOCKS: usize = 1 << 16;

/// Rewrites all segments that have become sparse, one after the other, those first that need the least room elsewhere. Returns
/// whether there were any. One with a block that cannot be read stays, for which the error is returned, and keeps no other.
pub(crate) fn compact_segments(writer: &Writer, marked: &Marked, is_full: bool) -> Result<bool> {
    if !marked.needed.unreadable.is_empty() {
        // All segments stay.
        return Ok(false);
    }
    let least_percent = if is_full {
        LEAST_LIVE_PERCENT_OF_FULL_DISK
    } else {
        LEAST_LIVE_PERCENT
    };
    let log_floor = writer.with_leader(|leader| leader.oldest_replayed_segment());
    let mut sparse = Vec::new();
    for segment in list_segments(&writer.env, &writer.dir)? {
        let Some(live) = marked.needed.files.get(&segment) else {
            continue;
        };
        if segment >= log_floor || live.tables.is_empty() {
            continue;
        }
        let path = segment_path(&writer.dir, segment);
        let found = match writer.env.storage().metadata(&path) {
            // That it is missing is found out by whoever reads it.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            found => found.map_err(|e| Error::io(format_args!("looking at {}", path.display()), e)),
        }?;
        if live.bytes * 100 < found.len_bytes * least_percent {
            sparse.push((live.bytes, segment, &live.tables));
        }
    }
    sparse.sort_unstable();
    let mut first_error = Ok(());
    for (live_bytes, segment, tables) in &sparse {
        // Else it would be tried in vain, and leave an empty file each time.
        if is_full && !may_hold(writer, *live_bytes) {
            break;
        }
        for table in *tables {
            match empty_segment(writer, *table, *segment) {
                Err(e) if e.kind() == ErrorKind::DiskFull => return Err(e),
                emptied => first_error = first_error.and(emptied),
            }
        }
    }
    first_error.map(|()| !sparse.is_empty())
}

/// Moves all blocks of a table out of a segment.
fn empty_segment(writer: &Writer, table: TableId, segment: FileId) -> Result<()> {
    // A snapshot of its own: what moved out of the segment before is elsewhere by now.
    while let Some(table) = writer.snapshot().table(table)
        && move_blocks(writer, &table, segment)?
    {}
    Ok(())
}

/// Whether the disk seems to have room for so much and what goes with it.
fn may_hold(writer: &Writer, bytes: u64) -> bool {
    let free = writer.env.storage().free_bytes(&writer.dir);
    free.is_ok_and(|free| free >= bytes + bytes / 16 + 4096)
}

/// Moves blocks of a table that lie in a segment into a fragment, as many as one commit names; whether some may be left.
fn move_blocks(writer: &Writer, table: &TableSnapshot, segment: FileId) -> Result<bool> {
    let mut blocks: Vec<Entry> = Vec::new();
    let mut walk = table.tree.walk(None, &*writer.store);
    while let Some(entry) = walk.next(|entry| match entry.is_block() {
        false => Step::Descend,
        true if entry.address.file == segment => Step::Take,
        true => Step::Skip,
    })? {
        blocks.push(entry);
        if blocks.len() == MOST_MOVED_BLOCKS {
            break;
        }
    }
    if blocks.is_empty() {
        return Ok(false);
    }
    let fragment = writer.stage_fragment(table.id)?;
    let replace = Edit::Replace {
        table: table.id,
        removed: blocks.iter().map(Entry::key).collect(),
        added: vec![fragment.copy_of(&writer.store, &blocks)?],
    };
    let commit = Commit {
        edits: vec![replace],
        prepared_at: Some(table.commit()),
        ..Commit::default()
    };
    match writer.submit(Job::Commit(commit), Durability::Process) {
        Ok(_) => Ok(blocks.len() == MOST_MOVED_BLOCKS),
        // Merged or dropped meanwhile: the blocks are gone from the segment anyway.
        Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Ok(false),
        Err(e) => Err(e),
    }
}
