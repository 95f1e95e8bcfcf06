//! Appending: conform, sort, cut, encode, commit.
//!
//! Invariants: an append is one commit, whatever its size; what is given is read once, in order, and memory is bounded by
//! what is gathered for sorting, the encoded blocks of a commit, and the batches that a lost race would need again.
//! Rows of a batch reach the table in order of arrival: the kernel orders equal keys by commit, block and row.
//!
//! Few rows are committed raw and become blocks later, together with others; more are encoded here, in the threads of
//! the caller and the pool; a large append goes to files of its own, which one small frame makes part of the table.

use crate::closed::Closed;
use crate::conform::conform_after;
use crate::definition::TableDefinition;
use crate::deleted_rows::{DeletedRows, push_open_rows};
use crate::drafts::{DraftChange, Drafts, abandon, roots_of};
use crate::engine::{AppendLimits, Engine};
use crate::error::invalid;
use crate::order::{Cutter, sorted_batch};
use crate::pool::Ticket;
use crate::rows::{RowsDecoder, decode_rows, encode_rows};
use crate::table::{Shape, Table};
use crate::value::Value;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::fragment::FragmentWriter;
use thalweg_kernel::index::{Entry, MAX_LIST_ENTRIES, MAX_LIST_SUMMARIES, encode_entries};
use thalweg_kernel::masks::MaskEdit;
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, FRAME_LIMIT_BYTES, GroupPart, GroupRoom,
    Producer, Result, RowsPart, TableId, TableSnapshot, are_few_pages,
};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Batches that are kept in case that the definition changes while they are encoded.
const KEPT_BYTES: usize = 64 << 20;

/// Most bytes of the entries of all files of a commit: the rest of its frame.
const DIRECTORY_LIMIT_BYTES: u64 = FRAME_LIMIT_BYTES - (64 << 10);
/// How often the size at which a file ends with its split doubles until half of that is used: 64-fold.
const SPLIT_DOUBLINGS: u64 = 6;

/// Rows that a statement adds to a transaction stay raw up to so many times the bytes of raw rows of a commit; more go to files of
/// their own. All raw rows of a table together get into files at this many times the bytes.
const DRAFT_RAW: usize = 16;
const DRAFT_RAW_TOGETHER: usize = 64;

/// Bytes of rows between two checks for cancellation: some 30 ms.
const CHECK_BYTES: usize = 32 << 20;

impl Table {
    /// Appends all batches in one commit, whole or not at all, however many there are, and returns how many rows they had.
    /// Columns are matched by name; rows may be in any order. `None` takes the durability of the engine.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double"), ("note", "varchar")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    /// use std::sync::Arc;
    ///
    /// let batch = RecordBatch::try_from_iter([
    ///     ("temp", Arc::new(Float64Array::from(vec![21.0, 20.5])) as ArrayRef),
    ///     ("ts", Arc::new(Int64Array::from(vec![2, 1]))),
    /// ]).unwrap();
    /// assert_eq!(room.append([Ok(batch)], None)?, 2); // `note`, which is missing, is null
    /// let rows = room.view()?.scan(&Default::default())?.next().unwrap()?;
    /// assert_eq!(rows.column(0).as_ref(), &Int64Array::from(vec![1, 2]));
    /// assert_eq!(rows.column(2).null_count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first error of `batches`; `Schema`, `OutOfDomain` and `Limit` when rows do not fit the table. Nothing was
    /// stored then.
    pub fn append(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
    ) -> Result<u64> {
        self.append_while(batches, durability, &|| true)
    }

    /// Appends as [`Self::append`] does; cancelled when `go_on` returns false. That is called once for every 32 MiB of rows or so,
    /// before the commit; the commit itself is not cancelled.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    /// use std::sync::Arc;
    ///
    /// let times = Arc::new(Int64Array::from_iter_values(0..1_000_000)) as ArrayRef;
    /// let batch = RecordBatch::try_from_iter([("ts", times)]).unwrap();
    /// let endless = std::iter::repeat_with(|| Ok(batch.clone()));
    /// let result = room.append_while(endless, None, &|| false); // as a handler of Ctrl-C would say
    /// assert_eq!(result.unwrap_err().kind(), thalweg::ErrorKind::Query);
    /// assert_eq!(room.view()?.row_count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::append`]; `Query` when it was cancelled, and nothing was stored then.
    pub fn append_while(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<u64> {
        self.engine().closed().check()?;
        let durability = durability.unwrap_or(self.engine().options().durability);
        append(self, &mut batches.into_iter(), (None, durability), go_on)
    }

    /// Appends as [`Self::append_while`] does, once: a program that does not know whether an append was stored sends it again with the
    /// same number. What was sent with this number of the producer, or with a lower one after it, is taken for stored, and nothing is
    /// stored then.
    ///
    /// Each table remembers its producers: those of all tables whose last appends are the newest, 65,536 of them. Of a producer
    /// that is forgotten every append is new.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    /// use std::sync::Arc;
    /// use thalweg::Numbered;
    ///
    /// let times = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    /// let batch = RecordBatch::try_from_iter([("ts", times)]).unwrap();
    /// let number = Numbered { producer: "gateway 7", sequence: 41 };
    /// for _ in 0..3 {
    ///     room.append_once([Ok(batch.clone())], number, None, &|| true)?;
    /// }
    /// assert_eq!(room.view()?.row_count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::append_while`]; `Invalid` for a producer without a name.
    pub fn append_once(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        number: Numbered<'_>,
        durability: Option<Durability>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<u64> {
        self.engine().closed().check()?;
        self.check_outside("an append with a number of its producer")?;
        let durability = durability.unwrap_or(self.engine().options().durability);
        let producer = number.of_table(self.id())?;
        append(
            self,
            &mut batches.into_iter(),
            (Some(producer), durability),
            go_on,
        )
    }

    /// Appends one row, its values in the order of the schema.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "timestamp(ms)"), ("level", "smallint")])?;
    /// # let tank = db.create_table("tank", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{Durability, ErrorKind, Value};
    ///
    /// tank.put(&[Value::Text("2026-03-01T12:00:00"), Value::Int(870)], None)?; // survives a power cut
    /// tank.put(&[Value::Int(1_772_366_401_000), Value::Null], Some(Durability::Process))?; // survives a kill
    /// let too_large = tank.put(&[Value::Int(0), Value::Int(40_000)], None);
    /// assert_eq!(too_large.unwrap_err().kind(), ErrorKind::Schema);
    /// assert_eq!(tank.view()?.row_count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Schema`, `OutOfDomain` and `Limit` when it does not fit the table.
    pub fn put(&self, row: &[Value<'_>], durability: Option<Durability>) -> Result<()> {
        let durability = durability.unwrap_or(self.engine().options().durability);
        self.with_newest_shape(|shape| {
            let mut payload = Vec::with_capacity(shape.writer.usual_bytes());
            let key = shape
                .key_of_written(row, &mut payload)
                .map_err(|e| self.name_error(e))?;
            let is_large = payload.len() >= self.engine().options().append_limits.raw_bytes;
            if is_large || self.is_in_transaction() {
                let batch = decode_rows(&shape.definition, [&payload[..]])?;
                return self.append([Ok(batch)], Some(durability)).map(|_| ());
            }
            let part = RowsPart {
                table: self.id(),
                definition_version: shape.version,
                rows: 1,
                key_min: key,
                key_max: key,
                payload: payload.into(),
            };
            let commit = Commit {
                rows: vec![part],
                ..Commit::default()
            };
            self.engine()
                .kernel()
                .commit(commit, durability)
                .map(|_| ())
        })
    }
}

impl Shape {
    /// Appends the payload of one row, and returns its order key.
    fn key_of_written(&self, row: &[Value<'_>], payload: &mut Vec<u8>) -> Result<i64> {
        let value = self.writer.write(row, payload)?;
        let has_value = self.definition.order_position().is_some();
        if has_value || self.definition.key_ids().is_empty() {
            return Ok(value);
        }
        let row = decode_rows(&self.definition, [&payload[..]])?;
        Ok(self.definition.keys_of(&row)?[0])
    }
}

/// The number that a program gives one of its appends to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// The name of the program, or of the device: one that no other program uses for this table.
    pub producer: &'a str,
    /// Rises from append to append of the producer.
    pub sequence: u64,
}

impl Numbered<'_> {
    /// The producer as the kernel knows it: its name in one table, so that it may number its appends to each table alike.
    fn of_table(self, table: TableId) -> Result<Producer> {
        if self.producer.is_empty() {
            return Err(invalid("a producer needs a name"));
        }
        let seed = u64::from(table.0);
        Ok(Producer {
            id: xxh3_128_with_seed(self.producer.as_bytes(), seed).to_le_bytes(),
            sequence: self.sequence,
        })
    }
}

/// Appends all batches in one commit, unless `go_on` returns false before it.
fn append(
    table: &Table,
    batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
    (producer, durability): (Option<Producer>, Durability),
    go_on: &dyn Fn() -> bool,
) -> Result<u64> {
    if let Some(drafts) = table.drafts() {
        return append_to_draft(table, drafts, batches, go_on);
    }
    let mut input = Input {
        closed: table.engine().closed(),
        batches,
        kept: Vec::new(),
        kept_bytes: 0,
        next: 0,
        complete: true,
    };
    table.with_newest_shape(|shape| {
        input.rewind().map_err(|e| table.name_error(e))?;
        let batches = std::iter::from_fn(|| input.next().transpose());
        let (mut commit, rows) = commit_of(table, shape, batches, go_on)?;
        if rows > 0 {
            commit.producer = producer;
            table.engine().kernel().commit(commit, durability)?;
        }
        Ok(rows)
    })
}

/// Appends all batches to the draft of a transaction.
fn append_to_draft(
    table: &Table,
    drafts: &Drafts,
    batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
    go_on: &dyn Fn() -> bool,
) -> Result<u64> {
    table.refresh()?;
    let (added, rows) = commit_of(table, &table.shape(), batches, go_on)?;
    if rows == 0 {
        return Ok(0);
    }
    let change = DraftChange::new(MaskEdit::nothing(table.id()), added);
    let roots = change.roots.clone();
    let added =
        stage_before(table, drafts, &change).and_then(|()| add_to_draft(table, drafts, 0, change));
    added
        .map(|()| rows)
        .inspect_err(|_| abandon(table.engine(), &roots))
}

/// Makes the change of a statement in the draft of its transaction. `seen`: as often had raw rows gone to files before it was planned.
pub(crate) fn add_to_draft(
    table: &Table,
    drafts: &Drafts,
    seen: u64,
    change: DraftChange,
) -> Result<()> {
    let store = table.engine().kernel().store();
    drafts.change((table.id(), seen), change, &**store)
}

/// Puts the raw rows of a draft into files before rows of a statement that are in files already: so they stay in the order in which
/// they came. Else only if they are many.
pub(crate) fn stage_before(table: &Table, drafts: &Drafts, change: &DraftChange) -> Result<()> {
    match change.roots.is_empty() {
        true => stage_many(table, drafts),
        false => stage(table, drafts, 1),
    }
}

/// Puts the raw rows of a draft into files if they are many.
pub(crate) fn stage_many(table: &Table, drafts: &Drafts) -> Result<()> {
    let limits = table.engine().options().append_limits;
    stage(table, drafts, DRAFT_RAW_TOGETHER * limits.raw_bytes)
}

/// Puts the raw rows of a draft into files if they have so many bytes.
fn stage(table: &Table, drafts: &Drafts, min_bytes: usize) -> Result<()> {
    let engine = table.engine();
    let limits = engine.options().append_limits;
    while let Some((view, base, seen)) = drafts.raw_rows(table.id(), min_bytes)? {
        let commit = commit_of_new_rows(table, (&view, base), limits.staged())?;
        let roots = roots_of(&commit.edits);
        let store = engine.kernel().store();
        let replaced = drafts.replace_raw_rows((table.id(), seen), roots.clone(), &**store);
        if matches!(replaced, Ok(true)) {
            break;
        }
        abandon(engine, &roots);
        replaced?;
    }
    Ok(())
}

/// The raw rows of commits after one, without those that are hidden, as a commit that stores them.
pub(crate) fn commit_of_new_rows(
    table: &Table,
    (view, after): (&TableSnapshot, CommitNo),
    limits: AppendLimits,
) -> Result<Commit> {
    let shape = table.shape();
    let mut intake = Intake::new(table, &shape, &|| true);
    intake.limits = limits;
    let named = |error| table.name_error(error);
    for open in view.open_rows().filter(|open| open.commit > after) {
        let mut decoder = RowsDecoder::new(&shape.definition, None)?;
        let mut deleted = DeletedRows::default();
        push_open_rows(open, view.hidden_in(open), &mut decoder, &mut deleted)?;
        let rows = deleted.taken_out_of(decoder.finish()?)?;
        intake.push(&rows).map_err(named)?;
    }
    let (commit, _) = intake.finish().map_err(named)?;
    Ok(commit)
}

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
pub struct NewRows<'a>(Intake<'a>);

impl<'a> NewRows<'a> {
    pub(crate) fn new(table: &'a Table, shape: &'a Shape) -> Self {
        // Who hands them over can break off itself.
        Self(Intake::new(table, shape, &|| true))
    }

    /// Adds rows, with columns as [`Table::append`] takes them.
    ///
    /// # Errors
    /// As [`Table::append`].
    pub fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let pushed = self.0.push(rows);
        pushed.map_err(|error| self.0.table.name_error(error))
    }

    pub(crate) fn rows(&self) -> u64 {
        self.0.rows
    }

    /// The commit that stores them and how many they are. `beside_bytes` more are to fit its frame.
    pub(crate) fn finish(mut self, beside_bytes: u64) -> Result<(Commit, u64)> {
        self.0.limits.group_bytes = self.0.limits.group_bytes.saturating_sub(beside_bytes);
        self.0.finish()
    }
}

/// The batches of an append, for as long as they are few to be read more than once.
struct Input<'a> {
    closed: &'a Closed,
    batches: &'a mut dyn Iterator<Item = Result<RecordBatch>>,
    kept: Vec<RecordBatch>,
    kept_bytes: usize,
    next: usize,
    complete: bool,
}

impl Input<'_> {
    fn rewind(&mut self) -> Result<()> {
        if !self.complete {
            let message = "the definition of the table changed during a large append, of which nothing was stored: append again";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.next = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.kept.get(self.next) {
            self.next += 1;
            return Ok(Some(batch.clone()));
        }
        let next = self.batches.next().transpose();
        // The caller's code may have forked. In the child nothing is encoded: it lacks the threads of the pool.
        self.closed.check()?;
        let Some(batch) = next? else {
            return Ok(None);
        };
        self.kept_bytes += raw_bytes(&batch);
        // A single batch is in memory anyway.
        if self.complete && (self.kept_bytes <= KEPT_BYTES || self.kept.is_empty()) {
            self.kept.push(batch.clone());
            self.next += 1;
        } else {
            self.complete = false;
            self.kept.clear();
        }
        Ok(Some(batch))
    }
}

/// The state of an append: the rows taken in so far, held or being encoded.
struct Intake<'a> {
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
    fn new(table: &'a Table, shape: &'a Shape, go_on: &'a dyn Fn() -> bool) -> Self {
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

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conform_after(self.rows, &self.shape.definition, batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows() as u64;
        self.held_bytes += raw_bytes(&batch);
        self.held.push(batch);
        if self.held_bytes >= self.limits.gather_bytes {
            self.encode_held()
        } else {
            Ok(())
        }
    }

    /// The commit and how many rows it has.
    fn finish(mut self) -> Result<(Commit, u64)> {
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
