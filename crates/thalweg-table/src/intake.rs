//! Rows on their way into a table: conform, sort, cut, encode.
//!
//! Invariants: memory is bounded by what is gathered for sorting and the encoded blocks of a commit. Rows of a batch reach the table in
//! order of arrival: the kernel orders equal keys by commit, block and row.
//!
//! Few rows are committed raw and become blocks later, together with others; more are encoded here, in the threads of
//! the caller and the pool; a large append goes to files of its own, which one small frame makes part of the table.

use crate::conform::conform_after;
use crate::definition::TableDefinition;
use crate::duplicates::key_columns;
use crate::engine::{AppendLimits, Engine};
use crate::error::limit;
use crate::order::{Cutter, sorted_batch};
use crate::pool::Ticket;
use crate::rows::encode_rows;
use crate::table::{Shape, Table};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::fragment::FragmentWriter;
use thalweg_kernel::index::{Entry, MAX_LIST_ENTRIES, MAX_LIST_SUMMARIES, encode_entries};
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::{
    Commit, Edit, Error, ErrorKind, FRAME_LIMIT_BYTES, GroupPart, GroupRoom, Result, RowsPart,
    are_few_pages,
};

/// Most bytes of the entries of all files of a commit: the rest of its frame.
const DIRECTORY_LIMIT_BYTES: u64 = FRAME_LIMIT_BYTES - (64 << 10);
/// How often the size at which a file ends with its split doubles until half of that is used: 64-fold.
const SPLIT_DOUBLINGS: u64 = 6;

/// Rows that a statement adds to a transaction stay raw up to so many times the bytes of raw rows of a commit; more go to files of
/// their own.
const DRAFT_RAW: usize = 16;

/// Most rows of a statement whose unique keys are compared with those of the table: they are all in memory.
const MAX_NEW_KEYS: u64 = 1 << 24;

/// Bytes of rows between two checks for cancellation: some 30 ms.
const CHECK_BYTES: usize = 32 << 20;

/// The commit that stores all batches, and how many rows it has.
pub(crate) fn commit_of(
    table: &Table,
    shape: &Shape,
    batches: impl Iterator<Item = Result<RecordBatch>>,
    go_on: &dyn Fn() -> bool,
) -> Result<(Commit, u64)> {
    let mut intake = Intake::new(table, shape, go_on);
    for batch in batches {
        intake.push(&batch?).map_err(|e| table.name_error(e))?;
    }
    intake.finish().map_err(|e| table.name_error(e))
}

/// Rows that a statement stores together with what it deletes.
pub struct NewRows<'a> {
    intake: Intake<'a>,
    /// The unique keys of the rows so far, where they are to be compared with those of the table.
    keys: Option<Vec<RecordBatch>>,
    key_rows: u64,
}

impl<'a> NewRows<'a> {
    /// `with_keys`: the unique keys of all rows are kept, for [`Self::take_keys`].
    pub(crate) fn new(table: &'a Table, shape: &'a Shape, with_keys: bool) -> Self {
        Self {
            // Who hands them over can break off itself.
            intake: Intake::new(table, shape, &|| true),
            keys: with_keys.then(Vec::new),
            key_rows: 0,
        }
    }

    /// Adds rows, with columns as [`Table::append`] takes them.
    ///
    /// # Errors
    /// As [`Table::append`]; `Limit` for too many rows whose unique keys may change.
    pub fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let table = self.intake.table;
        self.push_rows(rows)
            .map_err(|error| table.name_error(error))
    }

    fn push_rows(&mut self, rows: &RecordBatch) -> Result<()> {
        let definition = &self.intake.shape.definition;
        let rows = self.intake.push(rows)?;
        let (Some(keys), Some(unique)) = (&mut self.keys, definition.unique()) else {
            return Ok(());
        };
        self.key_rows += rows.num_rows() as u64;
        if self.key_rows > MAX_NEW_KEYS {
            return Err(limit(format!(
                "a statement changes or adds the unique keys of at most {MAX_NEW_KEYS} rows; make several of it"
            )));
        }
        keys.push(key_columns(definition, unique, &rows)?);
        Ok(())
    }

    pub(crate) fn rows(&self) -> u64 {
        self.intake.rows
    }

    /// The columns of the unique keys of all rows, if they were kept.
    pub(crate) fn take_keys(&mut self) -> Option<Vec<RecordBatch>> {
        self.keys.take()
    }

    /// The commit that stores them and how many they are. `beside_bytes` more are to fit its frame.
    pub(crate) fn finish(self, beside_bytes: u64) -> Result<(Commit, u64)> {
        let mut intake = self.intake;
        intake.limits.group_bytes = intake.limits.group_bytes.saturating_sub(beside_bytes);
        intake.finish()
    }
}

/// The state of an append: the rows taken in so far, held or being encoded.
pub(crate) struct Intake<'a> {
    table: &'a Table,
    shape: &'a Shape,
    limits: AppendLimits,
    /// Batches that are neither sorted nor encoded.
    held: Vec<RecordBatch>,
    held_bytes: usize,
    rows: u64,
    /// The largest key before the rows that come next.
    high_key: Option<i64>,
    encoding: VecDeque<Ticket<Result<Vec<EncodedBlock>>>>,
    output: Output,
    go_on: &'a dyn Fn() -> bool,
    unchecked_bytes: usize,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(table: &'a Table, shape: &'a Shape, go_on: &'a dyn Fn() -> bool) -> Self {
        let limits = table.engine().options().append_limits;
        let limits = match table.is_in_transaction() {
            false => limits,
            // What is new in a transaction has no place in the log yet.
            true => AppendLimits {
                raw_bytes: DRAFT_RAW * limits.raw_bytes,
                ..limits.staged()
            },
        };
        Self {
            go_on,
            unchecked_bytes: 0,
            table,
            shape,
            limits,
            held: Vec::new(),
            held_bytes: 0,
            rows: 0,
            high_key: None,
            encoding: VecDeque::new(),
            output: Output::default(),
        }
    }

    /// Takes rows, and returns them with the columns of the table.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let batch = conform_after(self.rows, &self.shape.definition, batch)?;
        if batch.num_rows() == 0 {
            return Ok(batch);
        }
        self.rows += batch.num_rows() as u64;
        self.held_bytes += raw_bytes(&batch);
        self.held.push(batch.clone());
        if self.held_bytes >= self.limits.gather_bytes {
            self.encode_held()?;
        }
        Ok(batch)
    }

    /// With other limits than those of its table.
    pub(crate) fn within(mut self, limits: AppendLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The commit and how many rows it has.
    pub(crate) fn finish(mut self) -> Result<(Commit, u64)> {
        let few = self.held_bytes < self.limits.raw_bytes
            && self.encoding.is_empty()
            && self.output.is_empty();
        if few {
            let rows = match self.take_held()? {
                Some(batch) => vec![self.raw_part(&batch)?],
                None => Vec::new(),
            };
            return Ok((
                Commit {
                    rows,
                    ..Commit::default()
                },
                self.rows,
            ));
        }
        self.encode_held()?;
        while self.settle_one()? {}
        let commit = self.output.into_commit(self.table, self.shape)?;
        Ok((commit, self.rows))
    }

    fn raw_part(&self, batch: &RecordBatch) -> Result<RowsPart> {
        let keys = self.shape.definition.keys_of(batch)?;
        let extremes = |(least, most): (i64, i64), key: &i64| (least.min(*key), most.max(*key));
        let (key_min, key_max) = keys.iter().fold((i64::MAX, i64::MIN), extremes);
        let mut payload = Vec::with_capacity(raw_bytes(batch) + 64 + 8 * batch.num_columns());
        encode_rows(&self.shape.definition, batch, &mut payload)?;
        Ok(RowsPart {
            table: self.table.id(),
            definition_version: self.shape.version,
            rows: to_u32(batch.num_rows())?,
            key_min,
            key_max,
            payload: payload.into(),
        })
    }

    /// All that is held as one batch.
    fn take_held(&mut self) -> Result<Option<RecordBatch>> {
        let mut held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        if held.len() > 1 {
            return concat(&self.shape.definition, &held).map(Some);
        }
        Ok(held.pop())
    }

    /// Sorts what is held and starts to encode it.
    fn encode_held(&mut self) -> Result<()> {
        let Some(batch) = self.take_held()? else {
            return Ok(());
        };
        let keys = self.shape.definition.keys_of(&batch)?;
        let (batch, keys) = sorted_batch(batch, keys)?;
        if self.high_key.is_none() {
            self.high_key = self
                .table
                .snapshot()?
                .tree
                .total()
                .map(|total| total.key_max);
        }
        let cutter = cutter(&self.shape.definition, self.high_key);
        let row_bytes = raw_bytes(&batch).div_ceil(batch.num_rows().max(1));
        for rows in cutter.blocks(&keys) {
            self.check(rows.len() * row_bytes)?;
            let part = batch.slice(rows.start, rows.len());
            self.encode(part, keys.slice(rows.start, rows.len()))?;
        }
        self.high_key = self.high_key.max(keys.last().copied());
        Ok(())
    }

    /// Checks for cancellation once in a while.
    fn check(&mut self, bytes: usize) -> Result<()> {
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes < CHECK_BYTES {
            return Ok(());
        }
        self.unchecked_bytes = 0;
        let goes_on = (self.go_on)();
        // It may have forked: the child lacks the threads of the pool.
        self.table.engine().closed().check()?;
        if goes_on {
            return Ok(());
        }
        let message = "the append was interrupted, and nothing was stored";
        Err(Error::new(ErrorKind::Query, message))
    }

    /// Encodes a block, or several if its rows are very large.
    fn encode(&mut self, rows: RecordBatch, keys: ScalarBuffer<i64>) -> Result<()> {
        let engine = self.table.engine();
        let (definition, table) = (Arc::clone(&self.shape.definition), self.table.id());
        let encoders = Arc::clone(engine.encoders());
        let ticket = Ticket::new(move || encoders.encode(table, &definition, &rows, &keys));
        engine.pool().submit(&ticket);
        self.encoding.push_back(ticket);
        if self.encoding.len() > 2 * engine.options().threads {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Takes the next block in order; false if there is none.
    fn settle_one(&mut self) -> Result<bool> {
        let Some(ticket) = self.encoding.pop_front() else {
            return Ok(false);
        };
        for block in ticket.wait_helping(&self.encoding)? {
            let max_bytes = self.limits.group_bytes;
            self.output
                .add(self.table, &self.shape.definition, block, max_bytes)?;
        }
        Ok(true)
    }
}

/// So few blocks are never on more pages of the index than one commit changes, however long the pages are.
const NEVER_SCATTERED_BLOCKS: usize = 16;

/// Encoded blocks: in memory while they are few, else in fragments.
#[derive(Default)]
pub(crate) struct Output {
    blocks: Vec<EncodedBlock>,
    block_bytes: u64,
    room: GroupRoom,
    fragments: Vec<Entry>,
    /// Bytes that the entries of the fragments take in a frame.
    directory_bytes: u64,
    fragment: Option<OpenFragment>,
    /// The engine whose kernel has staged them.
    engine: Option<Engine>,
}

impl Drop for Output {
    fn drop(&mut self) {
        // Finished fragments that are in no commit would take space for nothing.
        if let Some(engine) = self.engine.as_ref().filter(|_| !self.fragments.is_empty()) {
            let _ = engine.kernel().abandon_fragments(&self.fragments);
        }
    }
}

struct OpenFragment {
    writer: FragmentWriter,
    bytes: u64,
    /// The split of its last block.
    split: Option<i64>,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.fragments.is_empty() && self.fragment.is_none()
    }

    /// Takes a block. All stay in memory up to so many bytes.
    fn add(
        &mut self,
        table: &Table,
        definition: &TableDefinition,
        block: EncodedBlock,
        max_group_bytes: u64,
    ) -> Result<()> {
        if self.fragment.is_none() && self.fragments.is_empty() {
            self.block_bytes += block.bytes.len() as u64;
            let fits = self.room.takes(&block);
            self.blocks.push(block);
            if fits && self.block_bytes <= max_group_bytes {
                return Ok(());
            }
            let blocks = std::mem::take(&mut self.blocks);
            return blocks
                .into_iter()
                .try_for_each(|block| self.stage(table, definition, &block));
        }
        self.stage(table, definition, &block)
    }

    /// Writes a block to a fragment.
    pub(crate) fn stage(
        &mut self,
        table: &Table,
        definition: &TableDefinition,
        block: &EncodedBlock,
    ) -> Result<()> {
        let split = definition
            .arrangement()
            .split()
            .map(|split| split.split_of(block.entry.key_min));
        let limits = table.engine().options().append_limits;
        let split_bytes = self.split_fragment_bytes(&limits);
        let is_full = |open: &OpenFragment| {
            open.bytes >= limits.fragment_bytes
                || (open.bytes >= split_bytes && open.split != split)
        };
        if self.fragment.as_ref().is_some_and(is_full) {
            self.finish_fragment()?;
        }
        let open = match &mut self.fragment {
            Some(open) => open,
            none => {
                let writer = table.engine().kernel().stage_fragment(table.id())?;
                self.engine = Some(table.engine().clone());
                none.insert(OpenFragment {
                    writer,
                    bytes: 0,
                    split,
                })
            }
        };
        open.writer.add_block(block)?;
        open.bytes += block.bytes.len() as u64;
        open.split = split;
        Ok(())
    }

    /// A file that has this size ends where the next split begins. One commit names all files of an append, so where they
    /// become many, each holds more splits: the entries of a wide table fill a frame with fewer files than splits.
    fn split_fragment_bytes(&self, limits: &AppendLimits) -> u64 {
        let doublings = 2 * SPLIT_DOUBLINGS * self.directory_bytes / DIRECTORY_LIMIT_BYTES;
        limits.split_fragment_bytes << doublings.min(SPLIT_DOUBLINGS)
    }

    pub(crate) fn finish_fragment(&mut self) -> Result<()> {
        let Some(open) = self.fragment.take() else {
            return Ok(());
        };
        let root = open.writer.finish()?;
        let mut entry = Vec::new();
        encode_entries(std::slice::from_ref(&root), &mut entry)?;
        self.directory_bytes += entry.len() as u64;
        let columns = root.columns.len();
        self.fragments.push(root);
        if self.directory_bytes <= DIRECTORY_LIMIT_BYTES {
            return Ok(());
        }
        let message = format!(
            "nothing of this append was stored: one commit cannot name more than the {} files of it so far, with {columns} \
             summarised columns each; append it in several parts",
            self.fragments.len() - 1
        );
        Err(Error::new(ErrorKind::Limit, message))
    }

    /// The root entries of the fragments, all of them on stable storage.
    pub(crate) fn into_fragments(mut self) -> Result<Vec<Entry>> {
        assert!(self.blocks.is_empty(), "blocks that are in no fragment");
        self.finish_fragment()?;
        Ok(std::mem::take(&mut self.fragments))
    }

    /// Puts blocks into a fragment that lie on more pages of the index than one commit changes.
    fn stage_scattered(&mut self, table: &Table, definition: &TableDefinition) -> Result<()> {
        if self.blocks.len() <= NEVER_SCATTERED_BLOCKS {
            return Ok(());
        }
        let view = table.view()?;
        let keys = self.blocks.iter().map(|block| block.entry.key());
        let (tree, store) = (&view.snapshot().tree, view.engine().kernel().store());
        if are_few_pages(tree.changed_bytes(&[], &[], keys, &**store)?) {
            return Ok(());
        }
        let blocks = std::mem::take(&mut self.blocks);
        { blocks.iter() }.try_for_each(|block| self.stage(table, definition, block))
    }

    fn into_commit(mut self, table: &Table, shape: &Shape) -> Result<Commit> {
        self.stage_scattered(table, &shape.definition)?;
        self.finish_fragment()?;
        let (table, definition_version) = (table.id(), shape.version);
        let add = |roots| Edit::AddFragments {
            head: AddHead::of_rows(table, definition_version),
            roots,
        };
        let roots = std::mem::take(&mut self.fragments);
        let edits = lists(roots).into_iter().map(add).collect();
        let group = GroupPart {
            head: AddHead::of_rows(table, definition_version),
            blocks: std::mem::take(&mut self.blocks),
        };
        let groups = if group.blocks.is_empty() {
            Vec::new()
        } else {
            vec![group]
        };
        Ok(Commit {
            groups,
            edits,
            ..Commit::default()
        })
    }
}

/// Entries in lists that are not too long for an edit.
pub(crate) fn lists(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut lists: Vec<Vec<Entry>> = Vec::new();
    let mut summaries = 0;
    for entry in entries {
        summaries += entry.columns.len();
        match lists.last_mut() {
            Some(list) if list.len() < MAX_LIST_ENTRIES && summaries <= MAX_LIST_SUMMARIES => {
                list.push(entry);
            }
            _ => {
                summaries = entry.columns.len();
                lists.push(vec![entry]);
            }
        }
    }
    lists
}

/// How the rows of a table are cut into blocks.
pub(crate) fn cutter(definition: &TableDefinition, high_key: Option<i64>) -> Cutter {
    Cutter {
        block_rows: definition.block_rows() as usize,
        split: definition.arrangement().split(),
        high_key,
    }
}

pub(crate) fn concat(definition: &TableDefinition, batches: &[RecordBatch]) -> Result<RecordBatch> {
    concat_batches(definition.schema(), batches).map_err(|e| {
        Error::with_source(
            ErrorKind::Limit,
            format!("putting batches together: {e}"),
            e,
        )
    })
}

/// The approximate bytes of the rows, wherever they lie.
pub(crate) fn raw_bytes(batch: &RecordBatch) -> usize {
    use arrow_array::cast::AsArray;
    use arrow_schema::DataType;
    let rows = batch.num_rows();
    let strings = |offsets: &[i32]| (offsets[rows].abs_diff(offsets[0]) as usize) + 4 * rows;
    let column = |array: &Arc<dyn Array>| match array.data_type() {
        DataType::Utf8 => strings(array.as_string::<i32>().value_offsets()),
        DataType::Binary => strings(array.as_binary::<i32>().value_offsets()),
        DataType::Boolean => rows.div_ceil(8),
        other => match other.primitive_width() {
            Some(width_bytes) => rows * width_bytes,
            None => array.get_array_memory_size(),
        },
    };
    batch.columns().iter().map(column).sum()
}

fn to_u32(rows: usize) -> Result<u32> {
    u32::try_from(rows)
        .map_err(|e| Error::with_source(ErrorKind::Limit, format!("{rows} rows in one part"), e))
}
