//! Writing the blocks of a step of maintenance anew.
//!
//! Invariants: nothing is changed before the one commit at the end; what was written for a step that ends early goes with its output.

use crate::intake::{Output, concat, cutter, raw_bytes};
use crate::jobs::pace::Pace;
use crate::maintain::step::{Merge, Ran, Step};
use crate::maintain::stop::check;
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::scan::merge::Sorted;
use crate::scan::plan::scan_blocks;
use crate::table::{Table, TableView};
use arrow_array::RecordBatch;
use std::ops::Range;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::masks::MaskList;
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{Commit, Durability, Edit, Result};

/// Blocks that are cut from merged rows at once.
const GATHERED_BLOCKS: usize = 16;
/// Bytes of merged rows that are cut at once.
const GATHERED_BYTES: usize = 32 << 20;

/// A part of the new fragments.
enum Part {
    /// A block as it is, but for deleted rows, because the rest of its fragment is rewritten.
    Copy(usize),
    /// The rows of a block between those that are merged.
    Piece(usize, KeyRange),
    Merge(usize),
    Pack(Range<usize>),
}

impl Step {
    /// Writes the new fragments and puts them in the place of the old blocks.
    pub(super) fn run(
        &self,
        table: &Table,
        view: &TableView,
        pace: &dyn Pace,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Ran> {
        let mut packed = vec![false; self.list.blocks.len()];
        for group in &self.packs {
            packed[group.clone()].fill(true);
        }
        let file_of = |at: usize| self.list.blocks[at].address.file;
        let mut rewritten = self.rewritten_files();
        rewritten.extend(
            (0..packed.len())
                .filter(|at| packed[*at] && self.list.fragments.contains_key(&file_of(*at)))
                .map(file_of),
        );
        rewritten.extend(&self.joined);
        let mut removed: Vec<ItemName> = Vec::new();
        let mut parts: Vec<(i64, Part)> = Vec::new();
        let mut between = Vec::new();
        for (at, block) in self.list.blocks.iter().enumerate() {
            let is_touched = packed[at] || !self.cuts[at].is_empty();
            let in_fragment = self.list.fragments.contains_key(&file_of(at));
            if is_touched && !in_fragment {
                removed.push(ItemName::of(block));
            } else if !is_touched && rewritten.contains(&file_of(at)) {
                if self.merged.contains(&block.first_commit) {
                    parts.push((block.key_min, Part::Copy(at)));
                } else {
                    between.push(at);
                }
            }
            if !self.cuts[at].is_empty() {
                parts.extend(
                    self.pieces(at)
                        .map(|keys| (keys.first, Part::Piece(at, keys))),
                );
            }
        }
        removed.extend(rewritten.iter().map(|file| self.list.fragments[file].item));
        let merges = self.merges.iter().enumerate();
        parts.extend(merges.map(|(number, merge)| (merge.keys.first, Part::Merge(number))));
        let packs = self.packs.iter();
        parts.extend(packs.map(|group| {
            let key = self.list.blocks[group.start].key_min;
            (key, Part::Pack(group.clone()))
        }));
        parts.sort_by_key(|(key, _)| *key);

        let mut writer = Writer {
            step: self,
            table,
            view,
            pace,
            go_on,
            output: Output::default(),
            ran: Ran {
                // Files are fewer, whatever is in them.
                has_changed: !self.joined.is_empty(),
                ..Ran::default()
            },
        };
        for (_, part) in parts {
            writer.write(part)?;
        }
        // In files of their own: their keys may lie between those of the new blocks.
        writer.output.finish_fragment()?;
        let mut between = between.into_iter().map(Part::Copy);
        between.try_for_each(|part| writer.write(part))?;
        if !writer.ran.has_changed {
            return Ok(writer.ran);
        }
        // All that is written was read without the rows that were deleted then.
        let masks = view.snapshot().masks();
        let hidden = { removed.iter() }.filter_map(|item| masks?.of_item(item));
        let left_out = hidden.map(MaskList::rows).sum();
        let roots = writer.output.into_fragments()?;
        writer.ran.files = roots.iter().map(|root| root.address.file).collect();
        let edit = Edit::Replace(ReplaceEdit {
            left_out,
            ..ReplaceEdit::of_rows(table.id(), removed, roots)
        });
        let commit = Commit {
            edits: vec![edit],
            prepared_at: Some(view.snapshot().commit()),
            ..Commit::default()
        };
        table.engine().kernel().commit(commit, Durability::Disk)?;
        Ok(writer.ran)
    }

    /// The keys of a block between and beside the ranges that are merged.
    fn pieces(&self, at: usize) -> impl Iterator<Item = KeyRange> {
        let block = &self.list.blocks[at];
        let mut gaps = Vec::new();
        let mut next = Some(block.key_min);
        for merge in &self.merges[self.cuts[at].clone()] {
            if let Some(first) = next.filter(|first| *first < merge.keys.first) {
                gaps.push(KeyRange {
                    first,
                    last: merge.keys.first - 1,
                });
            }
            next = merge.keys.last.checked_add(1);
        }
        if let Some(first) = next {
            gaps.push(KeyRange {
                first,
                last: block.key_max,
            });
        }
        gaps.into_iter().filter(|keys| !keys.is_empty())
    }
}

/// Writes the parts of a step.
struct Writer<'a> {
    step: &'a Step,
    table: &'a Table,
    view: &'a TableView,
    pace: &'a dyn Pace,
    go_on: &'a dyn Fn() -> bool,
    output: Output,
    ran: Ran,
}

impl Writer<'_> {
    fn write(&mut self, part: Part) -> Result<()> {
        self.pace.rest();
        check(self.go_on)?;
        match part {
            Part::Copy(at) => self.copy(at),
            Part::Piece(at, keys) => self.piece(at, keys),
            Part::Merge(number) => self.merge(number),
            Part::Pack(group) => self.pack(group),
        }
    }

    fn block(&self, at: usize) -> &Entry {
        &self.step.list.blocks[at]
    }

    fn stage(&mut self, block: &EncodedBlock) -> Result<()> {
        self.pace.wrote(block.bytes.len() as u64);
        self.output.stage(self.table, self.view.definition(), block)
    }

    /// A block as it is; one with deleted rows without these.
    fn copy(&mut self, at: usize) -> Result<()> {
        if self.step.list.masks.contains_key(&at) {
            self.ran.has_changed = true;
            return self.piece(at, KeyRange::ALL);
        }
        let entry = self.block(at).clone();
        let store = self.view.engine().kernel().store();
        let bytes = store.block(&entry.address)?.copy()?;
        self.stage(&EncodedBlock { bytes, entry })
    }

    /// A part of a block is told from the others by its keys, and from other blocks as its block was.
    fn piece(&mut self, at: usize, keys: KeyRange) -> Result<()> {
        let block = self.step.list.block(at);
        let rows = Reader::new(self.view, None, keys)?.sorted_block(&block)?;
        let entry = block.entry;
        if rows.keys.is_empty() {
            return Ok(());
        }
        // One block, unless a later definition made the rows longer than a block may be. Such blocks differ in their
        // smallest key, or the kernel refuses the step.
        for mut block in self.encode(&rows)? {
            block.entry = block
                .entry
                .committed(entry.commit_min, entry.commit_max, entry.ordinal);
            self.stage(&block)?;
        }
        Ok(())
    }

    fn encode(&self, rows: &Sorted) -> Result<Vec<EncodedBlock>> {
        let encoders = self.view.engine().encoders();
        let (table, definition) = (self.table.id(), self.view.definition());
        encoders.encode(table, definition, &rows.batch, &rows.keys)
    }

    /// The rows of some blocks, all those of a range that are not later ones.
    fn merge(&mut self, number: usize) -> Result<()> {
        let Merge { keys, blocks } = &self.step.merges[number];
        let entries: Vec<Entry> = blocks.iter().map(|at| self.block(*at).clone()).collect();
        let first = entries.iter().map(|entry| entry.commit_min).min();
        let last = entries.iter().map(|entry| entry.commit_max).max();
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(());
        };
        self.ran.has_changed = true;
        let block_rows = self.view.definition().block_rows() as usize;
        let found = blocks.iter().map(|at| self.step.list.block(*at));
        let mut rows = scan_blocks(self.view, found.collect(), *keys)?;
        let mut gathered: Vec<RecordBatch> = Vec::new();
        let mut ordinal = 0;
        loop {
            let batch = rows.next().transpose()?;
            let at_end = batch.is_none();
            gathered.extend(batch);
            let bytes: usize = gathered.iter().map(raw_bytes).sum();
            let count: usize = gathered.iter().map(RecordBatch::num_rows).sum();
            if !at_end && count < GATHERED_BLOCKS * block_rows && bytes < GATHERED_BYTES {
                continue;
            }
            self.pace.rest();
            check(self.go_on)?;
            if count > 0 {
                let batch = concat(self.view.definition(), &gathered)?;
                let keys = self.view.definition().keys_of(&batch)?;
                let mut cuts = cutter(self.view.definition(), None).blocks(&keys);
                // The last one may go on.
                let kept = if at_end || cuts.len() < 2 {
                    None
                } else {
                    cuts.pop()
                };
                let whole = Sorted {
                    keys,
                    batch,
                    arrival: Default::default(),
                };
                for cut in cuts {
                    for mut block in self.encode(&whole.slice(cut.start, cut.len()))? {
                        block.entry = block.entry.committed(first, last, ordinal);
                        self.ran.rows += block.entry.rows;
                        ordinal += 1;
                        self.stage(&block)?;
                    }
                }
                gathered.clear();
                gathered.extend(kept.map(|kept| whole.batch.slice(kept.start, kept.len())));
            }
            if at_end {
                return Ok(());
            }
        }
    }

    /// Blocks that follow each other become one, in the place of the first.
    fn pack(&mut self, group: Range<usize>) -> Result<()> {
        let entries = &self.step.list.blocks[group.clone()];
        let (first, last) = (
            entries[0].commit_min,
            entries.iter().map(|e| e.commit_max).max(),
        );
        let ordinal = entries[0].ordinal;
        let found = group.clone().map(|at| self.step.list.block(at));
        let batches =
            scan_blocks(self.view, found.collect(), KeyRange::ALL)?.collect::<Result<Vec<_>>>()?;
        let batch = concat(self.view.definition(), &batches)?;
        let rows = Sorted {
            keys: self.view.definition().keys_of(&batch)?,
            batch,
            arrival: Default::default(),
        };
        let blocks = self.encode(&rows)?;
        let Ok([mut block]) = <[EncodedBlock; 1]>::try_from(blocks) else {
            // A later definition made the rows longer since they were measured.
            let addresses = group.clone().map(|at| self.block(at).address);
            self.ran.left_alone.extend(addresses.collect::<Vec<_>>());
            return group.into_iter().try_for_each(|at| self.copy(at));
        };
        self.ran.has_changed = true;
        block.entry = block.entry.committed(first, last.unwrap_or(first), ordinal);
        self.ran.rows += block.entry.rows;
        self.stage(&block)
    }
}
