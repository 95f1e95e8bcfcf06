//! A commit in the form that is written and applied: its parts with their numbers, and the frame that holds them.
//!
//! Invariants: blocks and fragments of a commit are numbered in the order they came, each table's from 0; a block knows its
//! place in the frame before the frame knows its place in the log.

use crate::change::{Change, changes_of, put_edit, put_group, put_mask, put_producer, put_rows};
use crate::commit::{Commit, Edit, GroupPart};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{FRAME_ALIGN, FrameBuilder, FrameHead, FrameId, SectionKind};
use crate::ids::{CommitNo, Epoch, LogPosition, TableId};
use crate::orders::AddHead;
use bytes::Bytes;

/// A commit in the form that is written and applied.
pub(crate) struct Lowered {
    pub(crate) changes: Vec<Change>,
    /// One list per GROUP.
    pub(crate) blocks: Vec<Vec<Vec<u8>>>,
    /// Does nothing but free space: may use the reserve.
    pub(crate) frees_space: bool,
    /// Whole as soon as it verifies: blocks are written after what verifies.
    pub(crate) is_small: bool,
}

/// Gives the parts of a commit their numbers, new tables those from `next_table` on.
pub(crate) fn lower(
    commit: Commit,
    number: CommitNo,
    mut next_table: u32,
    mut changes: Vec<Change>,
) -> Result<Lowered> {
    if commit.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "a commit without content"));
    }
    let frees_space = commit.frees_space();
    let Commit {
        rows,
        groups,
        edits,
        masks,
        prepared_at: _,
        runs_of: _,
        producer,
        keeps_fragments: _,
    } = commit;
    let mut ordinals = Ordinals::default();
    let is_small = groups.is_empty() && edits.is_empty() && masks.is_empty();
    changes.extend(rows.into_iter().map(Change::Rows));
    for mut edit in edits {
        if let Edit::CreateTable { table, .. } = &mut edit {
            *table = TableId(next_table);
            // Where there are no more, the commit is refused before it is written.
            next_table = next_table.saturating_add(1);
        }
        if let Edit::AddFragments { head, roots } = &mut edit
            && head.covers.is_none()
        {
            for root in roots {
                let blocks = u32::try_from(root.blocks).map_err(|_| too_many_blocks())?;
                let first = ordinals.take(head, blocks)?;
                *root = root.clone().committed(number, number, first);
            }
        }
        changes.push(Change::Edit(edit));
    }
    changes.extend(producer.map(Change::Producer));
    let mut blocks = Vec::with_capacity(groups.len());
    for group in groups {
        let (change, group_blocks) = lower_group(group, number, &mut ordinals)?;
        changes.push(change);
        blocks.push(group_blocks);
    }
    let masks = masks.into_iter().map(|edit| edit.in_frame(number));
    changes.extend(masks.map(Change::Mask));
    Ok(Lowered {
        changes,
        blocks,
        frees_space,
        is_small,
    })
}

fn lower_group(
    group: GroupPart,
    number: CommitNo,
    ordinals: &mut Ordinals,
) -> Result<(Change, Vec<Vec<u8>>)> {
    let GroupPart { head, blocks } = group;
    let mut offset = 0;
    let mut entries = Vec::with_capacity(blocks.len());
    let mut bytes = Vec::with_capacity(blocks.len());
    for block in blocks {
        block.check_order(head.table, head.order)?;
        let mut entry = block.entry;
        let ordinal = ordinals.take(&head, 1)?;
        if head.covers.is_some() {
            entry.ordinal = ordinal;
        } else {
            entry = entry.committed(number, number, ordinal);
        }
        entry.address.offset = offset;
        assert!(
            entry.address.bytes as usize == block.bytes.len(),
            "a block is as long as its entry says"
        );
        offset += block.bytes.len().next_multiple_of(FRAME_ALIGN) as u64;
        entries.push(entry);
        bytes.push(block.bytes);
    }
    let change = Change::Group {
        head,
        entries,
        blocks_offset: 0,
    };
    Ok((change, bytes))
}

/// The numbers that are next among the blocks of a commit, in each order of each table.
#[derive(Default)]
struct Ordinals(Vec<((TableId, u32), u32)>);

impl Ordinals {
    /// Takes so many of them for what is added to an order; returns the first.
    fn take(&mut self, to: &AddHead, count: u32) -> Result<u32> {
        let place = (to.table, to.order);
        let at = self.0.iter().position(|(of, _)| *of == place);
        let at = at.unwrap_or_else(|| {
            self.0.push((place, 0));
            self.0.len() - 1
        });
        let first = self.0[at].1;
        self.0[at].1 = first.checked_add(count).ok_or_else(too_many_blocks)?;
        Ok(first)
    }
}

fn too_many_blocks() -> Error {
    Error::new(
        ErrorKind::Limit,
        "a commit has more than 2^32 blocks: split it",
    )
}

/// Builds the frame of a commit, and sets in its groups where their blocks lie in it.
pub(crate) fn build(builder: &mut FrameBuilder, lowered: &mut Lowered) -> Result<()> {
    builder.clear();
    for change in &lowered.changes {
        match change {
            Change::Rows(part) => builder.section(SectionKind::Rows, |out| {
                put_rows(part, out);
                Ok(())
            })?,
            Change::Edit(edit) => builder.section(SectionKind::Edit, |out| put_edit(edit, out))?,
            Change::Mask(edit) => builder.section(SectionKind::Edit, |out| {
                put_mask(edit, out);
                Ok(())
            })?,
            Change::Producer(producer) => builder.section(SectionKind::Producer, |out| {
                put_producer(producer, out);
                Ok(())
            })?,
            Change::Group { head, entries, .. } => {
                builder.section(SectionKind::Group, |out| put_group(head, entries, out))?;
            }
        }
    }
    for blocks in &lowered.blocks {
        builder.blocks(
            blocks
                .iter()
                .map(|b| b.len().next_multiple_of(FRAME_ALIGN))
                .sum(),
        );
    }
    let mut offsets = builder.blocks_offsets();
    for change in &mut lowered.changes {
        if let Change::Group { blocks_offset, .. } = change {
            *blocks_offset = offsets.next().unwrap_or_default();
        }
    }
    debug_assert!(reads_back(builder), "a commit is read as it was written");
    Ok(())
}

/// Whether the changes of a frame can be read again: every commit of every test is tried.
fn reads_back(builder: &FrameBuilder) -> bool {
    let id = FrameId {
        commit: CommitNo(1),
        epoch: Epoch(1),
        previous_crc: 0,
        synced_to: LogPosition::default(),
        shown_on_write: false,
        time_ns: 0,
    };
    let mut frame = Vec::new();
    builder.finish(&id, 0, &mut frame);
    let head = FrameHead::parse(&frame, 0);
    head.is_ok_and(|head| matches!(changes_of(&head, &Bytes::from(frame)), Ok(Some(_))))
}
