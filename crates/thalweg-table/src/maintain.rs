//! Maintenance: blocks that overlap because rows came late are merged into order, short neighbours become one block.
//!
//! Invariants
//! - What is written holds no deleted rows. A step is refused, and planned anew, where rows that it has read were deleted
//!   meanwhile. At the third attempt it holds the turn of the table (`table_turns`), so that it ends however often rows are
//!   deleted.
//! - The rows of a table and their order, by key and by arrival where keys are equal, are the same before and after.
//! - A step prepares fragments from one snapshot, without a lock, and one commit puts them in the place of what they were made of.
//!   Before that commit nothing has changed; a step that fails leaves at most a file that nothing refers to.
//! - Whoever holds an older snapshot goes on seeing the old blocks.
//! - A step does a bounded amount of work, one row at least, however large the table is: so many rows and encoded bytes, so many
//!   blocks, and the rest of the fragments that these are in. Where the rest is much it takes more rows in proportion, so that no
//!   fragment is copied again and again for a few of them. What a step leaves in order is not rewritten again.
//! - Most of what a step writes lies in the range that it puts in order. Where so many blocks overlap that those at the edge of a
//!   range alone are more than a step takes, the blocks of commits that follow each other are merged with each other first, as an
//!   external sort merges its runs in several passes.
//! - A call leaves alone what was committed after it began, so that it also ends while rows arrive: late rows that keep coming
//!   overlap whatever was put in order before them.
//! - One rule says what is due, wherever it lies. Blocks that overlap are. Short neighbours are if each file that is rewritten for
//!   them loses a block for every `split_fragment_bytes` of its size: a small file is rewritten for one short block, a large one
//!   for as many as are worth its size, and blocks in the log need no file to be rewritten. What remains are the few short blocks
//!   of large files in order; a file that is rewritten has none left, so that no file is rewritten again and again.
//! - A block is due for a job once a fifth of its rows is deleted, and a fragment once a fifth of all its rows is. For somebody who
//!   calls `maintain`, and while the masks of all tables take more than half of the room that there is for them, any deleted row is
//!   enough, except in files that the same call has written: else rows that are deleted one by one meanwhile would have these
//!   written again and again.
//! - Blocks are packed only where their rows fit in one block, so that no rows are written for nothing (`sizes`).
//!
//! Arrival. Blocks come in the order of their first commits, and of their numbers where these are equal. A step takes all blocks
//! with keys in a range whose first commits lie between two commits, the last of them at most that of the beginning of the call.
//! New blocks carry the first of these commits and numbers of their own, so that they come after the blocks that came before all
//! that they were made of, and before those that came after it. Parts of blocks that stick out of the range keep the commits and
//! number of their block. Open rows come after all blocks with the same keys, or the range is left alone for now: blocks with one
//! commit number cannot lie on both sides of them.
//!
//! Rejected: an entry for each block that stays of a fragment that is replaced in part, so that these need not be copied. The index
//! of a fragment would no longer be that of its table, and a frame could list thousands of blocks.

mod cost;
pub(crate) mod due;
mod overlaps;
pub(crate) mod raw_sizes;
mod rewrite;
mod sizes;
mod step;
mod stop;

use self::due::Due;
use self::overlaps::StepSize;
use self::sizes::Sizes;
use self::step::{Planned, Scope, Step};
use self::stop::{check, interrupted};
use crate::engine::Maintenance;
use crate::expired_rows::{Expiry, delete_expired};
use crate::jobs::board::JobKind;
use crate::jobs::pace::{Pace, Unlimited};
use crate::table::{Maintained, Table};
use std::collections::HashSet;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Steps in a row that may lose a race against another edit. From the third on deletions of rows of the table wait.
const MAX_CONFLICTS: u32 = 16;

impl Table {
    /// Puts late rows in order and short blocks together, as far as they were committed before the call, so that scans
    /// need not merge them; rows that are in no block yet become blocks, and blocks and files with deleted rows are written anew
    /// without these. Readers and writers go on meanwhile. Of a table with a `retention`, rows that are older are deleted first.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::Value;
    ///
    /// for second in [10, 20, 15] {
    ///     room.put(&[Value::Int(second), Value::Float(20.0)], None)?;
    /// }
    /// assert_eq!(room.stats()?.late_rows, 1);
    /// room.maintain()?;
    /// let stats = room.stats()?;
    /// assert_eq!((stats.late_rows, stats.open_rows, stats.blocks), (0, 0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only; whatever reading and writing leads to. Each step is stored
    /// whole or not at all.
    pub fn maintain(&self) -> Result<Maintained> {
        self.maintain_while(&|| true)
    }

    /// The same, until `go_on` returns false. It is called before each step, and while another thread maintains a table of this
    /// database, which is waited for; it must not call `maintain` itself, which would wait for this call.
    ///
    /// # Errors
    /// As [`Self::maintain`]; `Query` when it was ended, and what was put in order before stays so.
    pub fn maintain_while(&self, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
        self.engine().closed().check()?;
        self.check_outside("maintain")?;
        check_writer(self)?;
        let expired = match expire(self, go_on) {
            // Too many blocks reach out of the range, because rows came late: they are put in order first.
            Err(error) if error.kind() == ErrorKind::Limit => None,
            done => Some(done?),
        };
        let done = maintain(self, &Work::ALL, go_on)?;
        let expired = expired.map_or_else(|| expire(self, go_on), Ok)?;
        Ok(Maintained {
            steps: expired.steps + done.steps,
            rows: done.rows,
        })
    }

    /// As [`Self::maintain`], without deleting anything.
    pub(crate) fn put_in_order(&self) -> Result<Maintained> {
        self.engine().closed().check()?;
        maintain(self, &Work::FOR_ROOM, &|| true)
    }
}

/// # Errors
/// `Unavailable` for a database that was opened read-only.
fn check_writer(table: &Table) -> Result<()> {
    if table.engine().kernel().is_writer() {
        return Ok(());
    }
    let message =
        "a database that was opened read-only is maintained by the process that writes to it";
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Deletes the expired rows of a table.
fn expire(table: &Table, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
    if table.definition().retention().is_none() {
        return Ok(Maintained::default());
    }
    check(go_on).map_err(|e| table.name_error(e))?;
    let expired = delete_expired(table, Expiry::All, &Unlimited)?;
    let engine = table.engine();
    let goes_on = || go_on() && engine.closed().check().is_ok();
    if expired.steps > 0
        && let Some(mut maintenance) = engine.maintenance().wait(&goes_on)
    {
        maintenance.has_garbage = true;
    }
    Ok(expired)
}

/// Puts what was committed before this call in order. Files that are of no use any more are removed in the background, once that
/// frees as much as the checkpoints that it needs take. A checkpoint holds the open rows of all tables: with one for each call,
/// these would be written as often as there are tables.
fn maintain(table: &Table, work: &Work<'_>, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
    // The process may have forked meanwhile: in the child nobody passes the turn on, so the wait has to end.
    let closed = table.engine().closed();
    let done = put_in_order(table, work, &|| go_on() && closed.check().is_ok());
    if done.is_err() {
        closed.check()?;
    }
    done
}

/// How much is put in order, and how fast.
pub(crate) struct Work<'a> {
    /// One step of what is due, the most urgent kind first; else all there is.
    due: Option<Due>,
    /// See [`Scope::any_deleted`].
    any_deleted: bool,
    pace: &'a dyn Pace,
}

impl<'a> Work<'a> {
    /// All there is, for somebody who waits for it.
    const ALL: Work<'static> = Work {
        due: None,
        any_deleted: true,
        pace: &Unlimited,
    };

    /// The same, but blocks with few deleted rows are written anew only while masks take much room.
    const FOR_ROOM: Work<'static> = Work {
        any_deleted: false,
        ..Self::ALL
    };

    /// A step of a job.
    pub(crate) fn of_job(due: Due, pace: &'a dyn Pace) -> Self {
        Self {
            due: Some(due),
            any_deleted: false,
            pace,
        }
    }
}

/// Puts what was committed before this call in order, or a step of it.
///
/// # Errors
/// As [`Table::maintain_while`].
pub(crate) fn put_in_order(
    table: &Table,
    work: &Work<'_>,
    go_on: &dyn Fn() -> bool,
) -> Result<Maintained> {
    let engine = table.engine();
    check_writer(table)?;
    let Some(mut maintenance) = engine.maintenance().wait(go_on) else {
        return Err(table.name_error(interrupted()));
    };
    engine.forget_dropped(&mut maintenance)?;
    let until = table.snapshot()?.commit();
    // A few open rows could keep many rows of blocks from being put in order, so a call encodes them first. Jobs would make short
    // blocks of them time and again: they encode open rows only where these are in the way.
    let mut are_encoded = work.due.is_none();
    if are_encoded {
        engine.kernel().encode_open_rows(table.id())?;
    }
    let mut done = Maintained::default();
    let turns = engine.turns_of(table.id())?;
    let (mut turn, mut conflicts) = (turns.none(), 0);
    let mut size = StepSize::new(&table.view()?);
    let shrinks = maintenance.shrinks.get(&table.id()).copied().unwrap_or(0);
    for _ in 0..shrinks {
        size = size.shrunk().unwrap_or(size);
    }
    let (mut steps_from_here, mut written) = (None, HashSet::new());
    let Maintenance {
        has_garbage,
        raw_sizes,
        shrinks,
    } = &mut *maintenance;
    // What a call has measured is kept even if the call is stopped.
    let sizes = raw_sizes.entry(table.id()).or_default();
    let mut steps = 0;
    loop {
        if !turn.wait_if_due(conflicts, go_on) {
            return Err(table.name_error(interrupted()));
        }
        check(go_on).map_err(|e| table.name_error(e))?;
        // Blocks that are moved out of segments meanwhile would make each attempt lose its race as well.
        let cleaning = turn.is_held().then(|| engine.kernel().pause_cleaning());
        let _cleaning = cleaning.transpose()?;
        let view = table.view()?;
        let scope = Scope {
            until,
            size,
            due: work.due,
            any_deleted: work.any_deleted,
            written: &written,
        };
        let planned = Step::plan(&view, scope, Sizes::new(&view, sizes), go_on);
        let step = match planned.map_err(|e| table.name_error(e))? {
            Planned::Step(step) => step,
            Planned::WaitsForOpenRows if !are_encoded => {
                drop(view);
                are_encoded = true;
                engine.kernel().encode_open_rows(table.id())?;
                continue;
            }
            Planned::WaitsForOpenRows | Planned::Nothing => {
                shrinks.remove(&table.id());
                break;
            }
        };
        work.pace.begins(step.kind);
        let max_steps = *steps_from_here.get_or_insert_with(|| step.max_steps(until));
        if steps >= max_steps {
            let what = "it names other keys than the blocks below it have, so that the rows cannot be put in order";
            return Err(table.name_error(Error::corruption("the index", what)));
        }
        let held;
        let pace = if turn.is_held() {
            held = WithoutRest(work.pace);
            &held
        } else {
            work.pace
        };
        match step.run(table, &view, pace, go_on) {
            Ok(ran) => {
                steps += 1;
                if ran.has_changed {
                    *has_garbage = true;
                    done.steps += 1;
                    work.pace.stepped(ran.rows);
                }
                done.rows += ran.rows;
                written.extend(ran.files);
                for block in ran.left_alone {
                    sizes.leave_alone(block);
                }
                conflicts = 0;
                turn.pass_on();
                if work.due.is_some() && done.steps > 0 {
                    break;
                }
            }
            Err(e) if e.kind() == ErrorKind::Conflict && conflicts < MAX_CONFLICTS => {
                conflicts += 1;
            }
            // Its blocks lie on too many pages of the index for one commit.
            Err(e) if e.kind() == ErrorKind::Limit && size.shrunk().is_some() => {
                size = size.shrunk().unwrap_or(size);
                *shrinks.entry(table.id()).or_default() += 1;
                (steps, steps_from_here) = (0, None);
            }
            Err(e) => return Err(table.name_error(e)),
        }
    }
    if sizes.is_empty() {
        raw_sizes.remove(&table.id());
    }
    Ok(done)
}

/// The pace of somebody whom others wait for.
struct WithoutRest<'a>(&'a dyn Pace);

impl Pace for WithoutRest<'_> {
    fn begins(&self, kind: JobKind) {
        self.0.begins(kind);
    }

    fn wrote(&self, bytes: u64) {
        self.0.wrote(bytes);
    }

    fn stepped(&self, rows: u64) {
        self.0.stepped(rows);
    }

    fn rest(&self) {}
}
