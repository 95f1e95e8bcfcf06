//! Segments of which little is needed any more: their last blocks move into fragments, so that the segments can be
//! removed.
//!
//! Invariants: a block is copied byte for byte, with its commits and its place in the order of arrival, and swapped in by a
//! commit that is refused if it is no longer there; so a reader sees the same rows before and after. Only segments that no
//! recovery would replay are considered. A segment is emptied of all tables or left alone: moving some of its blocks frees
//! nothing.
//!
//! Files and syncs are bounded. A round makes one fragment per order of a table, for its blocks of all segments that are
//! emptied. It begins when that frees a 64th of a segment (1 MiB) for each file to be made, or eight segments, or where a
//! quarter of the free space is as much; until then the segments stay. Small fragments of the same table are copied along, each
//! by one that is at least half as long: so a table keeps a number of small ones that grows with the logarithm of their size.
//!
//! Rejected: moving index pages as well. A page that lies in such a segment and leads elsewhere keeps it until the page
//! itself is replaced, which appends and merges of its neighbours do; pages are a thousandth of the data. A segment that only
//! pages keep is left alone. Rejected as well: writing small blocks to the log again. A group only adds blocks, so the format
//! would need one that replaces them, and what is rewritten lies among rows that are soon garbage: it would be moved in each
//! round again.

use crate::block::ROWS_ORDER;
use crate::commit::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::{FragmentWriter, read_to_copy};
use crate::garbage::Marked;
use crate::ids::{FileId, TableId};
use crate::index::{Entry, EntryKey, ItemName, Step, Tree};
use crate::job::{Job, MoveJob};
use crate::limits::are_few_pages;
use crate::masks::MovedBlocks;
use crate::orders::{OrderReplace, ReplaceEdit};
use crate::paths::{list_fragments, list_segments, segment_path};
use crate::writer::Writer;
use std::collections::{BTreeSet, HashSet};

/// A segment with less than this share of it in use is rewritten, in percent.
const MIN_LIVE_PERCENT: u64 = 60;
/// The same share when there is no space left.
const MIN_LIVE_PERCENT_OF_FULL_DISK: u64 = 90;
/// A round frees this part of a full segment for each file that it makes. Fragments with less than that are small.
const SMALL_SHARE: u64 = 64;
/// A round begins in any case, however many files it makes, when it frees as much as this many full segments.
const MAX_SPARSE_SEGMENTS: u64 = 8;
/// A round also begins when it frees this part of the free space of the disk.
const SHARE_OF_FREE_SPACE: u64 = 4;
/// A small fragment is copied along if it is at most so many times as long as what is copied before it.
const COPIED_ALONG: u64 = 2;
/// The folder is synced once for so many fragments.
const FRAGMENTS_PER_SYNC: usize = 64;

/// Most blocks that one commit moves: their keys take a sixth of a frame.
const MAX_MOVED_BLOCKS: usize = 1 << 16;

/// A segment that is worth emptying.
struct Sparse<'a> {
    segment: FileId,
    live_bytes: u64,
    freed_bytes: u64,
    /// With blocks in it.
    orders: &'a [(TableId, u32)],
}

/// Empties segments that have become sparse, if that is worth the files it makes; with `is_full` even if it is not, as
/// far as there is room. Returns whether there were any. A segment with a block that cannot be read stays, and its
/// error is returned once the others are emptied. If the disk reported more room than there was, it is tried again
/// after the next checkpoint.
pub(crate) fn compact_segments(writer: &Writer, marked: &Marked, is_full: bool) -> Result<bool> {
    match compact(writer, marked, is_full) {
        Err(error) if error.kind() == ErrorKind::DiskFull => {
            writer.due.garbage_stays();
            Ok(true)
        }
        compacted => compacted,
    }
}

fn compact(writer: &Writer, marked: &Marked, is_full: bool) -> Result<bool> {
    if !marked.needed.unreadable.is_empty() {
        // All segments stay.
        return Ok(false);
    }
    let mut sparse = sparse_segments(writer, marked, is_full)?;
    if !is_full {
        keep_what_is_worth_it(writer, &mut sparse);
    }
    let live_bytes = sparse.iter().map(|sparse| sparse.live_bytes).sum();
    if is_full || !writer.supply.free.has(room_for(live_bytes)) {
        return empty_one_by_one(writer, sparse);
    }
    if sparse.is_empty() {
        return Ok(false);
    }
    let fragments = list_fragments(&writer.env, &writer.dir)?;
    let mut round = Round::new(writer, fragments.into_iter().collect());
    round.empty(&sparse)?;
    round.first_error.map(|()| true)
}

/// Empties segments one by one, those first that need the least room elsewhere: where there is little room, the ones
/// before stay emptied if there is none for the next.
fn empty_one_by_one(writer: &Writer, mut sparse: Vec<Sparse<'_>>) -> Result<bool> {
    sparse.sort_unstable_by_key(|sparse| (sparse.live_bytes, sparse.segment));
    // A copy is of use only if there is room for the commit that puts it in place.
    if !sparse.is_empty()
        && writer.supply.is_given_back()
        && writer
            .with_leader(|_| writer.supply.ensure_reserve(0))?
            .is_err()
    {
        return Ok(false);
    }
    let mut round = Round::new(writer, HashSet::new());
    for one in &sparse {
        // Else it would be tried in vain, and leave an empty file each time.
        if !writer.supply.free.may_have(room_for(one.live_bytes)) {
            break;
        }
        round.empty(std::slice::from_ref(one))?;
    }
    round.first_error.map(|()| !sparse.is_empty())
}

/// Room for so many bytes of blocks, with an allowance for what is written with them.
fn room_for(bytes: u64) -> u64 {
    bytes + bytes / 16 + 4096
}

fn sparse_segments<'a>(
    writer: &Writer,
    marked: &'a Marked,
    is_full: bool,
) -> Result<Vec<Sparse<'a>>> {
    let min_percent = if is_full {
        MIN_LIVE_PERCENT_OF_FULL_DISK
    } else {
        MIN_LIVE_PERCENT
    };
    let log_floor = writer.with_leader(|leader| leader.oldest_replayed_segment())?;
    let mut sparse = Vec::new();
    for segment in list_segments(&writer.env, &writer.dir)? {
        let Some(live) = marked.needed.files.get(&segment) else {
            continue;
        };
        if segment >= log_floor || live.orders.is_empty() {
            continue;
        }
        let path = segment_path(&writer.dir, segment);
        let found = match writer.env.storage().metadata(&path) {
            // A missing segment is reported by whatever reads it.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            found => found.map_err(|e| Error::io(format_args!("looking at {}", path.display()), e)),
        }?;
        if live.bytes.saturating_mul(100) < found.len_bytes * min_percent {
            sparse.push(Sparse {
                segment,
                live_bytes: live.bytes,
                freed_bytes: found.len_bytes - live.bytes,
                orders: &live.orders,
            });
        }
    }
    Ok(sparse)
}

/// Keeps as many segments as free enough for the files to be made, those first with blocks of the fewest orders.
fn keep_what_is_worth_it(writer: &Writer, sparse: &mut Vec<Sparse<'_>>) {
    sparse.sort_unstable_by_key(|sparse| (sparse.orders.len(), sparse.segment));
    let much_bytes = (MAX_SPARSE_SEGMENTS * writer.segment_bytes)
        .min(writer.supply.free.counted_bytes() / SHARE_OF_FREE_SPACE);
    let (mut freed_bytes, mut orders, mut worth_it) = (0, HashSet::<(TableId, u32)>::new(), 0);
    for (count, sparse) in (1..).zip(&*sparse) {
        freed_bytes += sparse.freed_bytes;
        orders.extend(sparse.orders);
        let needed_bytes = orders.len() as u64 * small_bytes(writer);
        if freed_bytes >= needed_bytes.min(much_bytes) {
            worth_it = count;
        }
    }
    sparse.truncate(worth_it);
}

/// How many bytes a round frees for each file that it makes. Fragments with fewer bytes are small.
fn small_bytes(writer: &Writer) -> u64 {
    writer.segment_bytes / SMALL_SHARE
}

/// One run of compaction: the segments that are emptied, and what was found on the way.
struct Round<'a> {
    writer: &'a Writer,
    segments: HashSet<FileId>,
    /// All existing fragments, to find the small ones; empty if these are not to be copied along.
    fragments: HashSet<FileId>,
    /// Segments with a block that cannot be read: they stay.
    unreadable: HashSet<FileId>,
    /// The first error that did not end the round.
    first_error: Result<()>,
}

/// Fragments that are written, one for each order of a table, with the commit that replaces the copied blocks by them.
struct Move {
    table: TableId,
    job: Box<MoveJob>,
    files: Vec<FileId>,
    /// Number of items that it moves.
    blocks: usize,
    /// Whether blocks of the table may be left for a further commit, because there were too many for one.
    is_partial: bool,
}

/// The blocks of an order of a table that a round moves, and its small fragments.
#[derive(Default)]
struct Found {
    blocks: Vec<Entry>,
    small_fragments: Vec<Entry>,
    is_partial: bool,
}

impl<'a> Round<'a> {
    fn new(writer: &'a Writer, fragments: HashSet<FileId>) -> Self {
        Self {
            writer,
            segments: HashSet::new(),
            fragments,
            unreadable: HashSet::new(),
            first_error: Ok(()),
        }
    }

    /// Moves all blocks out of these segments.
    fn empty(&mut self, sparse: &[Sparse<'_>]) -> Result<()> {
        let mut sparse: Vec<&Sparse<'_>> = sparse.iter().collect();
        let mut tables = self.take_segments(&sparse);
        let unreadable = tables.iter().copied();
        let unreadable: BTreeSet<_> = unreadable
            .filter(|table| self.is_unreadable(*table))
            .collect();
        if !unreadable.is_empty() {
            // A segment is emptied of all tables or left alone. It is tried again after the next checkpoint.
            self.writer.due.garbage_stays();
            sparse.retain(|sparse| {
                { sparse.orders.iter() }.all(|(table, _)| !unreadable.contains(table))
            });
            tables = self.take_segments(&sparse);
        }
        let mut tables: Vec<TableId> = tables.into_iter().collect();
        // Closing waits for this.
        while !tables.is_empty() && !self.writer.is_closing() {
            let first = tables.len().saturating_sub(FRAGMENTS_PER_SYNC);
            let failed_syncs = self.writer.store.failed_data_syncs();
            let mut moves = Vec::new();
            let mut written = Ok(());
            for table in tables.split_off(first) {
                match self.copy_table(table) {
                    Ok(moved) => moves.extend(moved),
                    // All other tables would fail in the same way.
                    Err(error) if error.kind() == ErrorKind::DiskFull => {
                        written = Err(error);
                        break;
                    }
                    Err(error) => self.note_error(error),
                }
            }
            tables.extend(self.commit_all(moves, failed_syncs)?);
            written?;
        }
        Ok(())
    }

    /// Sets the segments that are emptied; returns the tables with blocks in them.
    fn take_segments(&mut self, sparse: &[&Sparse<'_>]) -> BTreeSet<TableId> {
        self.segments = sparse.iter().map(|sparse| sparse.segment).collect();
        let orders = sparse.iter().flat_map(|sparse| sparse.orders);
        orders.map(|(table, _)| *table).collect()
    }

    /// Whether a page of an index of the table cannot be read: then its blocks are not found.
    fn is_unreadable(&self, table: TableId) -> bool {
        let Some(table) = self.writer.snapshot().table(table) else {
            return false;
        };
        let mut trees = table.trees();
        trees.any(|(order, tree)| {
            let waits_without_rows = tree.pending().is_some() && order != ROWS_ORDER;
            let found = || self.find(tree, MAX_MOVED_BLOCKS);
            !waits_without_rows && found().is_err_and(|error| error.is_of_unreadable_bytes())
        })
    }

    /// Replaces what was copied by the fragments; returns the tables with more to be moved. `failed_syncs`: those of
    /// the folder before the first fragment was made.
    fn commit_all(&self, moves: Vec<Move>, failed_syncs: u64) -> Result<Vec<TableId>> {
        let mut partial = Vec::new();
        if moves.is_empty() {
            return Ok(partial);
        }
        let mut failed = self.writer.store.sync_data_folder(failed_syncs);
        for moved in moves {
            if failed.is_err() {
                self.writer.abandon_fragments(moved.files);
                continue;
            }
            match (self.writer).submit(Job::Move(moved.job), Durability::Process) {
                Ok(_) => partial.extend(moved.is_partial.then_some(moved.table)),
                // Merged or dropped meanwhile: the blocks are no longer needed in the segments, or are moved in a later
                // round.
                Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {}
                Err(e) => failed = Err(e),
            }
        }
        failed.map(|()| partial)
    }

    /// Copies the blocks of all orders of a table that lie in the segments, and small fragments of it, into a new fragment for each
    /// order. `None`: there are none, or none that can be read.
    fn copy_table(&mut self, table: TableId) -> Result<Option<Move>> {
        // A snapshot of its own: a replacement is refused if blocks of the table were replaced since.
        let Some(table) = self.writer.snapshot().table(table) else {
            return Ok(None);
        };
        let mut moved = Move {
            table: table.id,
            job: Box::new(MoveJob {
                edit: ReplaceEdit::of_orders(table.id),
                prepared_at: table.commit(),
                blocks: MovedBlocks::default(),
                root: None,
            }),
            files: Vec::new(),
            blocks: 0,
            is_partial: false,
        };
        let copied = table.trees().try_for_each(|(order, tree)| {
            if let Some((replaced, blocks)) = self.copy_order(table.id, order, tree, &mut moved)? {
                if order == ROWS_ORDER {
                    // Masks are of the rows alone.
                    moved.job.root = replaced.added.first().cloned();
                    moved.job.blocks = blocks;
                }
                moved.job.edit.orders.push(replaced);
            }
            Ok(())
        });
        if copied.is_err() {
            self.writer.abandon_fragments(moved.files);
            return copied.map(|()| None);
        }
        Ok((!moved.job.edit.orders.is_empty()).then_some(moved))
    }

    /// Copies as `copy_table` does, for one order.
    fn copy_order(
        &mut self,
        table: TableId,
        order: u32,
        tree: &Tree,
        moved: &mut Move,
    ) -> Result<Option<(OrderReplace, MovedBlocks)>> {
        let mut copied = MovedBlocks::default();
        let max_blocks = MAX_MOVED_BLOCKS - moved.blocks;
        if tree.pending().is_some() && order != 0 {
            // The order waits for a page, and the rows do not depend on it.
            return Ok(None);
        }
        let found = self.find(tree, max_blocks)?;
        let mut fragment: Option<FragmentWriter> = None;
        let (mut removed, mut bytes): (Vec<ItemName>, u64) = (Vec::new(), 0);
        for entry in found.blocks {
            if self.writer.is_closing() {
                return Ok(None);
            }
            if self.unreadable.contains(&entry.address.file) {
                continue;
            }
            let block = match read_to_copy(&self.writer.store, &entry) {
                Ok(block) => block,
                Err(error) => {
                    self.unreadable.insert(entry.address.file);
                    self.note_error(error);
                    continue;
                }
            };
            // Made only with the first block: an empty file stays until the next cleaning.
            let fragment = match &mut fragment {
                Some(fragment) => fragment,
                none => none.insert(self.writer.stage_fragment_anyway((table, order))?),
            };
            fragment.copy_block(&block)?;
            bytes += u64::from(entry.address.bytes);
            let name = ItemName::of(&entry);
            copied.push(&entry, name, 0);
            removed.push(name);
        }
        moved.is_partial |= found.is_partial;
        let Some(mut fragment) = fragment else {
            return Ok(None);
        };
        let room = max_blocks - removed.len();
        let along = self.copy_along(table, found.small_fragments, &mut fragment, bytes, room)?;
        for (small, blocks) in along {
            let name = ItemName::of(&small);
            for (rank, block) in (0..).zip(&blocks) {
                copied.push(block, name, rank);
            }
            removed.push(name);
        }
        moved.blocks += removed.len();
        let file = fragment.id();
        let added = vec![fragment.finish_unnamed()?];
        moved.files.push(file);
        Ok(Some((
            OrderReplace::of_items(order, removed, added),
            copied,
        )))
    }

    /// Walks the tree of an order, but for what is below its fragments, up to so many blocks.
    fn find(&self, tree: &Tree, max_blocks: usize) -> Result<Found> {
        let mut found = Found::default();
        let mut small_fragments = Vec::new();
        let mut is_root = true;
        let mut walk = tree.walk(None, &*self.writer.store);
        while let Some(entry) = walk.next(|entry| {
            // A page that is not written yet has no place.
            let is_written_page = !entry.is_block() && entry.address.bytes > 0;
            let is_item =
                is_written_page && !is_root && self.fragments.contains(&entry.address.file);
            is_root = false;
            if is_item {
                if entry.block_bytes < small_bytes(self.writer) {
                    small_fragments.push(entry.clone());
                }
                return Step::Skip;
            }
            match entry.is_block() {
                false => Step::Descend,
                true if self.segments.contains(&entry.address.file) => Step::Take,
                true => Step::Skip,
            }
        })? {
            if found.blocks.len() == max_blocks {
                found.is_partial = true;
                break;
            }
            found.blocks.push(entry);
        }
        found.small_fragments = small_fragments;
        self.leave_out_pages(tree, &mut found)?;
        Ok(found)
    }

    /// Leaves blocks and small fragments to a later round if they are on more pages of the index than one commit may
    /// change.
    fn leave_out_pages(&self, tree: &Tree, found: &mut Found) -> Result<()> {
        let store = &*self.writer.store;
        let are_few = |found: &Found| {
            let items = found.blocks.iter().chain(&found.small_fragments);
            let keys: Vec<EntryKey> = items.map(Entry::key).collect();
            let added = keys.first().copied();
            tree.changed_bytes(&keys, &[], added, store)
                .map(are_few_pages)
        };
        while !are_few(found)? {
            let (blocks, fragments) = (found.blocks.len(), found.small_fragments.len());
            if fragments > 0 {
                found.small_fragments.truncate(fragments / 2);
            } else if blocks > 1 {
                found.blocks.truncate(blocks / 2);
                found.is_partial = true;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Copies small fragments of a table after the `bytes` that were copied to a new one; returns them, each with its
    /// blocks.
    fn copy_along(
        &self,
        table: TableId,
        mut small_fragments: Vec<Entry>,
        fragment: &mut FragmentWriter,
        mut bytes: u64,
        max_blocks: usize,
    ) -> Result<Vec<(Entry, Vec<Entry>)>> {
        let store = &self.writer.store;
        let mut along = Vec::new();
        let mut max_blocks = max_blocks as u64;
        small_fragments.sort_by_key(|small| small.block_bytes);
        for small in small_fragments {
            if small.block_bytes > COPIED_ALONG * bytes || small.blocks > max_blocks {
                break;
            }
            let tree = Tree::from_root(table, Some(small.clone()));
            let blocks: Result<Vec<_>> = tree
                .iter(None, &**store)
                .map(|block| read_to_copy(store, &block?))
                .collect();
            // One that cannot be read stays where it is, which harms nothing.
            let Ok(blocks) = blocks else { continue };
            for block in &blocks {
                fragment.copy_block(block)?;
            }
            max_blocks -= small.blocks;
            bytes += small.block_bytes;
            let blocks = blocks.into_iter().map(|block| block.entry).collect();
            along.push((small, blocks));
        }
        Ok(along)
    }

    fn note_error(&mut self, error: Error) {
        if self.first_error.is_ok() {
            self.first_error = Err(error);
        }
    }
}
