//! Limits of one commit and of one database.
//!
//! Invariants: a commit that the format has no room for is refused as `Limit` before anything is written, begun or numbered
//! for it. What is checked here bounds every count and length that a frame stores in a field of 16 or 32 bits, so that none
//! of them can overflow where it is written.

use crate::block::EncodedBlock;
use crate::commit::{Commit, Edit};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{FRAME_MAX_SECTIONS, SECTION_ENTRY_BYTES};
use crate::index::{Entry, ItemName, ItemRun, MAX_LIST_ENTRIES, MAX_LIST_SUMMARIES};
use crate::masks::MaskEdit;
use crate::orders::OrderReplace;
use crate::size_limits::changed_limit_bytes;

/// Larger commits are staged as fragments by the layer above.
pub const FRAME_LIMIT_BYTES: u64 = 8 << 20;

/// Most open bytes in all tables together; above half of it tables are cut into short blocks.
pub(crate) const OPEN_LIMIT_BYTES: u64 = 8 << 20;

/// Names and definitions of all tables together: a checkpoint holds them all, in one frame.
pub(crate) const CATALOGUE_LIMIT_BYTES: u64 = 1 << 30;

/// Longest name of a table that the layers above take; a repair makes up none that is longer.
pub const NAME_LIMIT_BYTES: usize = 255;

/// Bytes that a table takes of [`CATALOGUE_LIMIT_BYTES`] besides its name and its definition.
pub(crate) const TABLE_BYTES: u64 = 128;

/// Masks of all tables: all of them are in memory and in each full checkpoint.
pub(crate) const MASKS_LIMIT_BYTES: u64 = 32 << 20;

/// Where the masks of all tables take more, items are rewritten however few of their rows are deleted.
pub const MANY_MASKS_BYTES: u64 = MASKS_LIMIT_BYTES / 2;

/// Masks that one cover carries; it may take so much more than there is room for.
pub(crate) const MAX_CARRIED_BYTES: u64 = 1 << 20;

/// Bytes that an order beside the rows takes of [`CATALOGUE_LIMIT_BYTES`]: its coverage may take as much.
pub(crate) const ORDER_BYTES: u64 = 25 << 10;

/// More than an entry takes in the directory of a group, whatever it holds.
const MAX_ENTRY_BYTES: usize = 160;
/// More than the summary of a column adds to that, its place in a set of columns included.
const MAX_SUMMARY_BYTES: usize = 104;
/// Left free of a frame for its header, its section table and the fixed parts of its sections.
const FRAME_RESERVE_BYTES: u64 = 4 << 10;

/// About what a commit holds, and takes in the log.
pub(crate) fn held_bytes(commit: &Commit) -> usize {
    let edits: usize = commit.edits.iter().map(edit_bytes).sum();
    let masks: usize = commit.masks.iter().map(MaskEdit::len_bytes).sum();
    commit.bytes() + edits + masks
}

/// About what a commit takes in memory.
pub(crate) fn memory_bytes(commit: &Commit) -> usize {
    let blocks = { commit.groups.iter() }.flat_map(|group| &group.blocks);
    let blocks = blocks
        .map(|block| size_of::<EncodedBlock>() + block.entry.columns.len() * MAX_SUMMARY_BYTES);
    size_of::<Commit>()
        + held_bytes(commit)
        + size_of_val(&commit.rows[..])
        + size_of_val(&commit.groups[..])
        + size_of_val(&commit.edits[..])
        + size_of_val(&commit.masks[..])
        + blocks.sum::<usize>()
        + { commit.fragments() }
            .map(|(_, root)| size_of::<Entry>() + root.columns.len() * MAX_SUMMARY_BYTES)
            .sum::<usize>()
}

/// Refuses a commit that does not fit one frame.
pub(crate) fn check_commit(commit: &Commit) -> Result<()> {
    let sections = commit.rows.len()
        + commit.edits.len()
        + commit.masks.len()
        + usize::from(commit.producer.is_some())
        + 2 * commit.groups.len();
    if sections > FRAME_MAX_SECTIONS {
        let message = format!(
            "a commit of {sections} parts does not fit one frame, which takes {FRAME_MAX_SECTIONS}: put the rows of a \
             table into one part, or commit in several steps"
        );
        return Err(Error::new(ErrorKind::Limit, message));
    }
    check_frame((held_bytes(commit) + sections * SECTION_ENTRY_BYTES) as u64)?;
    commit.edits.iter().try_for_each(|edit| match edit {
        Edit::Replace(edit) => edit.orders.iter().try_for_each(OrderReplace::check_count),
        _ => Ok(()),
    })
}

/// Refuses a commit whose frame is too long.
pub(crate) fn check_frame(frame_bytes: u64) -> Result<()> {
    if frame_bytes <= FRAME_LIMIT_BYTES {
        return Ok(());
    }
    let message = format!(
        "a commit of {frame_bytes} bytes does not fit one frame, which takes {FRAME_LIMIT_BYTES}: stage its blocks as \
         fragments, or commit in several steps"
    );
    Err(Error::new(ErrorKind::Limit, message))
}

/// Refuses a commit that makes too many index pages anew.
pub(crate) fn check_changed(changed_bytes: u64) -> Result<()> {
    let max_bytes = changed_limit_bytes();
    if changed_bytes <= max_bytes {
        return Ok(());
    }
    let message = format!(
        "a commit that changes {changed_bytes} bytes of index pages is more than the {max_bytes} of one: put its blocks \
         into fragments, or commit in several steps"
    );
    Err(Error::new(ErrorKind::Limit, message))
}

/// Whether a change of so many bytes of index pages fits one commit also where the index grows a little before it is made.
#[must_use]
pub fn are_few_pages(changed_bytes: u64) -> bool {
    changed_bytes <= changed_limit_bytes() / 2
}

/// A lower bound of the bytes that an edit takes in its frame.
fn edit_bytes(edit: &Edit) -> usize {
    match edit {
        Edit::CreateTable {
            name, definition, ..
        } => name.len() + definition.len(),
        Edit::RenameTable { name, .. } => name.len(),
        Edit::SetDefinition { definition, .. } => definition.len(),
        Edit::Replace(edit) => {
            let removed = edit.orders.iter().map(|order| {
                order.removed_items().len() * ItemName::BYTES
                    + order.removed_runs().len() * ItemRun::BYTES
            });
            removed.sum()
        }
        Edit::DropTable { .. } | Edit::AddFragments { .. } | Edit::Orders(_) => 0,
    }
}

/// Adds up blocks as long as they fit one group of a commit of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupRoom {
    blocks: usize,
    summaries: usize,
    bytes: u64,
}

impl GroupRoom {
    /// Adds a block; whether all of them still fit.
    pub fn takes(&mut self, block: &EncodedBlock) -> bool {
        let summaries = block.entry.columns.len();
        let directory = MAX_ENTRY_BYTES + summaries * MAX_SUMMARY_BYTES;
        self.blocks += 1;
        self.summaries += summaries;
        self.bytes += (block.bytes.len().next_multiple_of(8) + directory) as u64;
        self.blocks <= MAX_LIST_ENTRIES
            && self.summaries <= MAX_LIST_SUMMARIES
            && self.bytes + FRAME_RESERVE_BYTES <= FRAME_LIMIT_BYTES
    }
}

/// Whether blocks fit one group of a commit of its own.
pub(crate) fn fit_one_group(blocks: &[EncodedBlock]) -> bool {
    let mut room = GroupRoom::default();
    blocks.iter().all(|block| room.takes(block))
}
