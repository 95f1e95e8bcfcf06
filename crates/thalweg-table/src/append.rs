//! Appending rows.
//!
//! Invariants: an append is one commit, whatever its size; what is given is read once, in order, and memory is bounded by
//! what [`crate::intake`] holds and the batches that a lost race would need again.

use crate::append_unique::{Asked, append_unique};
use crate::closed::Closed;
use crate::draft_rows::{add_to_draft, stage_before};
use crate::drafts::{DraftChange, Drafts, abandon};
use crate::error::invalid;
use crate::intake::{commit_of, raw_bytes};
use crate::rows::decode_rows;
use crate::table::{Shape, Table};
use crate::unique::OnDuplicate;
use crate::value::Value;
use arrow_array::RecordBatch;
use thalweg_kernel::masks::MaskEdit;
use thalweg_kernel::{Commit, Durability, Error, ErrorKind, Producer, Result, RowsPart, TableId};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Batches that are kept in case that the definition changes while they are encoded.
const KEPT_BYTES: usize = 64 << 20;

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
        let asked = Asked {
            producer: None,
            durability,
            rule: None,
        };
        append(self, &mut batches.into_iter(), asked, go_on)
    }

    /// Appends as [`Self::append_while`] does, with another rule for rows that have the unique key of another row.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    /// use std::sync::Arc;
    /// use thalweg::{ErrorKind, OnDuplicate};
    ///
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// let options = CreateOptions::stream("ts").with("unique", "ts");
    /// let room = db.create_table("room", &schema, &options)?;
    /// let rows = |temp| RecordBatch::try_from_iter([
    ///     ("ts", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
    ///     ("temp", Arc::new(Float64Array::from(vec![temp, temp]))),
    /// ]).unwrap();
    /// room.append([Ok(rows(20.0))], None)?;
    /// let refused = room.append([Ok(rows(21.0))], None).unwrap_err(); // the rule of the table
    /// assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    /// assert_eq!(room.append_with_rule([Ok(rows(21.0))], OnDuplicate::First, None, &|| true)?, 0);
    /// assert_eq!(room.append_with_rule([Ok(rows(21.0))], OnDuplicate::Last, None, &|| true)?, 2);
    /// assert_eq!(room.view()?.row_count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::append_while`]; `Invalid` for a table without a unique key.
    pub fn append_with_rule(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        rule: OnDuplicate,
        durability: Option<Durability>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<u64> {
        self.engine().closed().check()?;
        if self.shape().definition.unique().is_none() {
            let message = format!("the table \"{}\" has no unique key", self.name());
            return Err(invalid(message));
        }
        let asked = Asked {
            producer: None,
            durability: durability.unwrap_or(self.engine().options().durability),
            rule: Some(rule),
        };
        append(self, &mut batches.into_iter(), asked, go_on)
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
        let asked = Asked {
            producer: Some(producer),
            durability,
            rule: None,
        };
        append(self, &mut batches.into_iter(), asked, go_on)
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
            if is_large || self.is_in_transaction() || shape.definition.unique().is_some() {
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
    asked: Asked,
    go_on: &dyn Fn() -> bool,
) -> Result<u64> {
    if table.shape().definition.unique().is_some() {
        return append_unique(table, batches, asked, go_on);
    }
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
            commit.producer = asked.producer;
            table.engine().kernel().commit(commit, asked.durability)?;
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
