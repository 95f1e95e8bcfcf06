//! What the processes of a test do, and what came of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use thalweg_env::Env;
use thalweg_inbox::format::{Draft, Stamp};
use thalweg_inbox::{Change, Commit, Error, Inbox, Limits, Log, Result, State, TableState};

use super::plain::{Cell, FOLDER, ID, Plain, PlainState, blocks, body, cells_of, note, staged};

/// One thing that a process does.
#[derive(Clone, Debug)]
pub enum Op {
    /// Commits one cell each of these tables and coordinates.
    Commit(Cells),
    /// Commits several times with one sync.
    Batch(Vec<Cells>),
    Snapshot,
    Adopt,
    Vacuum {
        table: u32,
        time: i64,
    },
    Drop(u32),
    /// Makes a table.
    Create(u32),
    /// Commits a row outside of arrays that tells what a snapshot showed.
    Note,
    Define(u32, u32),
    Remove,
    Settle,
}

/// The cells of a commit.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    pub places: Vec<(u32, u64)>,
    pub at: Option<i64>,
    pub is_staged: bool,
    /// Depends on what a snapshot right before it shows.
    pub depends: bool,
}

impl Cells {
    pub fn of(places: &[(u32, u64)]) -> Cells {
        Cells {
            places: places.to_vec(),
            ..Cells::default()
        }
    }
}

pub fn commit(table: u32, coordinate: u64) -> Op {
    Op::Commit(Cells::of(&[(table, coordinate)]))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Writer,
    Other,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Script {
    pub role: Role,
    pub ops: Vec<Op>,
    /// What its clock shows, each time it is read.
    pub clock: Vec<i64>,
    /// It starts once this process has ended or was killed.
    pub after: Option<usize>,
}

impl Script {
    pub fn writer(ops: &[Op]) -> Script {
        Script {
            role: Role::Writer,
            ops: ops.to_vec(),
            clock: vec![1000],
            after: None,
        }
    }

    pub fn other(ops: &[Op]) -> Script {
        Script {
            role: Role::Other,
            ..Script::writer(ops)
        }
    }

    pub fn clock(mut self, clock: &[i64]) -> Script {
        self.clock = clock.to_vec();
        self
    }

    pub fn after(mut self, process: usize) -> Script {
        self.after = Some(process);
        self
    }
}

/// What a snapshot showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub cells: Vec<Cell>,
    /// The highest sequence that it knows of.
    pub sequence: u64,
    pub floors: BTreeMap<u32, i64>,
    pub dropped: Vec<u32>,
}

/// What came of an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of each commit of it, its stamp.
    Committed(Vec<std::result::Result<Stamp, String>>),
    Unknown,
    Viewed(View),
    Done,
    Failed(String),
}

/// An op that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub op: usize,
    /// Calls of the process before it.
    pub start: usize,
    /// Calls of the process up to its end.
    pub end: Option<usize>,
    pub outcome: Option<Outcome>,
    /// The highest sequence of what a commit depends on.
    pub read_up_to: Option<u64>,
}

/// The value of the cells of a commit.
pub fn value_of(process: usize, op: usize, part: usize) -> u64 {
    (process * 10_000 + op * 10 + part + 1) as u64
}

/// Small logs, so that tests meet their ends.
pub fn limits() -> Limits {
    Limits {
        log_bytes: 8192,
        first_bytes: 5120,
        reserve_bytes: 0,
        read_bytes: 4096,
        ..Limits::default()
    }
}

/// Runs a process; what it began is in `events`.
pub struct Run<'a> {
    pub process: usize,
    pub env: &'a Env,
    pub limits: Limits,
    pub calls: &'a dyn Fn() -> usize,
    pub is_stopped: &'a dyn Fn() -> bool,
    pub events: Rc<RefCell<Vec<Event>>>,
}

impl Run<'_> {
    pub fn run(&self, script: &Script) {
        let opened = match script.role {
            Role::Writer => Plain::open_writer(self.env),
            Role::Other => Plain::open(self.env),
        };
        let inbox = opened
            .and_then(|plain| Inbox::open(self.env, Path::new(FOLDER), ID, plain, self.limits));
        let mut inbox = match inbox {
            Ok(inbox) => inbox,
            Err(error) => return self.note(0, 0, Outcome::Failed(error.to_string())),
        };
        for (at, op) in script.ops.iter().enumerate() {
            if (self.is_stopped)() {
                return;
            }
            let start = (self.calls)();
            self.events.borrow_mut().push(Event {
                op: at,
                start,
                end: None,
                outcome: None,
                read_up_to: None,
            });
            let outcome = self.op(&mut inbox, script.role, at, op);
            if (self.is_stopped)() {
                return;
            }
            let mut events = self.events.borrow_mut();
            let event = events.last_mut().unwrap();
            event.end = Some((self.calls)());
            event.outcome = Some(outcome);
        }
    }

    fn note(&self, op: usize, start: usize, outcome: Outcome) {
        if !(self.is_stopped)() {
            self.events.borrow_mut().push(Event {
                op,
                start,
                end: Some((self.calls)()),
                outcome: Some(outcome),
                read_up_to: None,
            });
        }
    }

    fn op(&self, inbox: &mut Inbox<Plain>, role: Role, at: usize, op: &Op) -> Outcome {
        let done = match op {
            Op::Commit(cells) => return self.commit(inbox, role, at, std::slice::from_ref(cells)),
            Op::Batch(batch) => return self.commit(inbox, role, at, batch),
            Op::Snapshot => {
                return match view(inbox, self.env) {
                    Ok(view) => Outcome::Viewed(view),
                    Err(error) => Outcome::Failed(error.to_string()),
                };
            }
            Op::Adopt => inbox.adopt().map(drop),
            Op::Vacuum { table, time } => {
                let merge = |state: &PlainState, floor| state.left_out(*table, floor);
                inbox.vacuum(*table, *time, merge)
            }
            Op::Drop(table) => inbox.change_table(&Change::Drop(*table)),
            Op::Define(table, version) => inbox.change_table(&Change::Define(*table, *version)),
            Op::Create(table) => {
                let create = Change::Create(*table, 1);
                inbox
                    .database()
                    .commit(&mut |_, _| Ok(vec![create.clone()]))
            }
            Op::Note => self.note_seen(inbox),
            Op::Remove => inbox.remove().map(drop),
            Op::Settle => inbox.settle().and_then(|()| inbox.find_passed_over()),
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(Error::NotFound { .. }) => Outcome::Done,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    fn note_seen(&self, inbox: &mut Inbox<Plain>) -> Result<()> {
        let seen = view(inbox, self.env)?.sequence;
        inbox.database().commit(&mut |_, _| Ok(vec![note(seen)]))
    }

    fn commit(&self, inbox: &mut Inbox<Plain>, role: Role, op: usize, batch: &[Cells]) -> Outcome {
        let mut commits = Vec::new();
        for (part, cells) in batch.iter().enumerate() {
            match self.encode(inbox, op, part, cells) {
                Ok(commit) => commits.push(commit),
                Err(error) => return Outcome::Failed(error.to_string()),
            }
        }
        let committed = match role {
            Role::Writer => inbox.write(&commits[0]).map(|stamp| vec![Ok(stamp)]),
            Role::Other => inbox.commit(&commits),
        };
        let refusal = |error: Error| match error {
            Error::NotFound { .. } => "not found".to_owned(),
            Error::DefinitionChanged { .. } => "definition".to_owned(),
            Error::Conflict => "conflict".to_owned(),
            Error::SnapshotExpired { .. } => "expired".to_owned(),
            Error::TimeAhead { .. } => "ahead".to_owned(),
            error => format!("failed: {error}"),
        };
        match committed {
            Ok(outcomes) => Outcome::Committed(
                outcomes
                    .into_iter()
                    .map(|outcome| outcome.map_err(refusal))
                    .collect(),
            ),
            Err(Error::OutcomeUnknown { .. }) => Outcome::Unknown,
            Err(error) => Outcome::Committed(vec![Err(refusal(error)); commits.len()]),
        }
    }

    fn encode(
        &self,
        inbox: &mut Inbox<Plain>,
        op: usize,
        part: usize,
        cells: &Cells,
    ) -> Result<Commit> {
        let value = value_of(self.process, op, part);
        let mut by_table: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for (table, coordinate) in &cells.places {
            by_table
                .entry(*table)
                .or_default()
                .push((*coordinate, value));
        }
        let mut draft = Draft::default();
        for (table, cells_of_table) in by_table {
            draft.bodies.push(match cells.is_staged {
                true => {
                    let id = inbox.stage(&blocks(&cells_of_table))?;
                    staged(table, 1, id, &cells_of_table)
                }
                false => body(table, 1, &cells_of_table),
            });
        }
        let read_up_to = match cells.depends {
            true => {
                let read = view(inbox, self.env)?.sequence;
                self.events.borrow_mut().last_mut().unwrap().read_up_to = Some(read);
                Some(read)
            }
            false => None,
        };
        Ok(Commit {
            draft,
            at: cells.at,
            read_up_to,
        })
    }
}

fn wrong(what: &'static str) -> Error {
    Error::Damaged {
        place: "a snapshot".to_owned(),
        what,
    }
}

/// A snapshot as a value.
fn view(inbox: &mut Inbox<Plain>, env: &Env) -> Result<View> {
    let snapshot = inbox.snapshot()?;
    let state = &snapshot.state;
    let damaged = |fault| Error::Damaged {
        place: format!("cells: {fault:?}"),
        what: "a snapshot cannot read its cells",
    };
    let mut cells = state.cells().map_err(damaged)?;
    let mut sequence = state.inbox().newest.sequence;
    for shown in &snapshot.shown {
        sequence = sequence.max(shown.stamp.sequence);
        let table = shown.body.head.table;
        let is_older = shown.stamp.sequence <= state.inbox().newest.sequence && !shown.is_held;
        if is_older {
            return Err(wrong("the inbox has cells that are older than the state"));
        }
        match state.table(table) {
            TableState::Dropped => continue,
            TableState::Unknown => return Err(wrong("cells of a table that is not there")),
            TableState::There(_) => {}
        }
        for (coordinate, value) in cells_of(env, &shown.body).map_err(damaged)? {
            cells.push(Cell {
                table,
                coordinate,
                value,
                stamp: shown.stamp,
            });
        }
    }
    if sequence < state.inner.noted {
        return Err(wrong("a row tells of cells that are not shown"));
    }
    cells.sort();
    let tables = state.inner.tables.iter();
    let dropped = tables.filter(|(_, state)| **state == TableState::Dropped);
    Ok(View {
        cells,
        sequence,
        floors: state.inbox().floors.clone(),
        dropped: dropped.map(|(table, _)| *table).collect(),
    })
}
