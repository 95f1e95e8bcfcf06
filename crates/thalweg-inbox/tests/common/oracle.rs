//! What must hold of everything that processes were told and shown.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_inbox::format::Stamp;

use super::plain::Cell;
use super::script::{Cells, Op, Outcome, Role, Script, View, value_of};

/// A table that is made while others run.
pub const LATE_TABLE: u32 = 9;

/// An op that was begun, and what had ended before.
#[derive(Clone, Debug)]
pub struct Record {
    pub process: usize,
    pub op_index: usize,
    pub role: Role,
    pub op: Op,
    /// Nothing: it did not end.
    pub outcome: Option<Outcome>,
    /// How many records of each process had ended when it began.
    pub before: Vec<usize>,
    /// The highest sequence of what a commit depends on.
    pub read_up_to: Option<u64>,
}

/// Everything that was begun, by process and op.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub records: Vec<Record>,
    /// Calls of processes below this number failed, so that their ops may fail as well.
    pub faulty: usize,
    /// The registry is an older one of this boot: readers may miss frames until somebody settles.
    pub is_registry_old: bool,
}

/// One commit of a record.
struct Attempt<'a> {
    record: &'a Record,
    cells: &'a Cells,
    value: u64,
    /// Nothing: not known.
    outcome: Option<Result<Stamp, String>>,
}

impl Attempt<'_> {
    fn stamp(&self) -> Option<Stamp> {
        self.outcome.clone()?.ok()
    }
}

/// Whether `a` had ended before `b` began.
fn precedes(a: &Record, b: &Record) -> bool {
    let same = a.process == b.process && a.op_index < b.op_index;
    let ended = b
        .before
        .get(a.process)
        .is_some_and(|count| *count > a.op_index);
    a.outcome.is_some() && (same || ended)
}

impl History {
    fn attempts(&self) -> Vec<Attempt<'_>> {
        let mut attempts = Vec::new();
        for record in &self.records {
            let batch: &[Cells] = match &record.op {
                Op::Commit(cells) => std::slice::from_ref(cells),
                Op::Batch(batch) => batch,
                _ => continue,
            };
            for (part, cells) in batch.iter().enumerate() {
                let outcome = match &record.outcome {
                    Some(Outcome::Committed(outcomes)) => Some(outcomes[part].clone()),
                    _ => None,
                };
                attempts.push(Attempt {
                    record,
                    cells,
                    value: value_of(record.process, record.op_index, part),
                    outcome,
                });
            }
        }
        attempts
    }

    fn views(&self) -> Vec<(&Record, &View)> {
        let mut views = Vec::new();
        for record in &self.records {
            if let Some(Outcome::Viewed(view)) = &record.outcome {
                views.push((record, view));
            }
        }
        views
    }

    /// How many ops of each process have ended.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for record in &self.records {
            if counts.len() <= record.process {
                counts.resize(record.process + 1, 0);
            }
            if record.outcome.is_some() {
                counts[record.process] = counts[record.process].max(record.op_index + 1);
            }
        }
        counts
    }

    /// All that does not hold.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for record in &self.records {
            if let Some(Outcome::Failed(error)) = &record.outcome
                && record.process >= self.faulty
            {
                found.push(format!("{} failed: {error}", name(record)));
            }
        }
        let attempts = self.attempts();
        let views = self.views();
        let known = known_stamps(&attempts, &views, &mut found);
        self.check_refusals(&attempts, &mut found);
        check_order(&attempts, &mut found);
        for (record, view) in &views {
            check_view(record, view, &attempts, &known, &mut found);
            self.check_drops(record, view, &mut found);
        }
        for (earlier, first) in &views {
            for (later, second) in &views {
                if precedes(earlier, later) {
                    check_monotonic(earlier, first, later, second, &mut found);
                }
            }
        }
        check_dependent(&attempts, &known, &mut found);
        found
    }

    fn check_refusals(&self, attempts: &[Attempt<'_>], found: &mut Vec<String>) {
        for attempt in attempts {
            let Some(Err(reason)) = &attempt.outcome else {
                continue;
            };
            let has = |is: &dyn Fn(&Op) -> bool| {
                let others = self.records.iter();
                let mut began = others.filter(|other| !precedes(attempt.record, other));
                began.any(|other| is(&other.op))
            };
            let is_justified = match reason.as_str() {
                "not found" => {
                    let is_late = attempt
                        .cells
                        .places
                        .iter()
                        .any(|(table, _)| *table == LATE_TABLE);
                    is_late || has(&|op| matches!(op, Op::Drop(_)))
                }
                "definition" => has(&|op| matches!(op, Op::Define(..))),
                "conflict" => attempt.cells.depends,
                "expired" | "ahead" => attempt.cells.at.is_some(),
                _ => attempt.record.process < self.faulty && reason.starts_with("failed"),
            };
            if !is_justified {
                found.push(format!("{} was refused: {reason}", name(attempt.record)));
            }
        }
        for attempt in attempts.iter().filter(|attempt| attempt.stamp().is_some()) {
            for other in &self.records {
                let is_against = match other.op {
                    Op::Drop(table) => attempt.cells.places.iter().any(|(of, _)| *of == table),
                    Op::Define(table, _) => attempt.cells.places.iter().any(|(of, _)| *of == table),
                    _ => false,
                };
                // The floor is not above the newest time that there was.
                let is_reached = |time: i64| {
                    let mut stamped = attempts.iter().filter_map(|a| Some((a.record, a.stamp()?)));
                    stamped.any(|(record, stamp)| stamp.time >= time && precedes(record, other))
                };
                let is_below = match (&other.op, attempt.cells.at) {
                    (Op::Vacuum { table, time }, Some(at)) => {
                        let is_of_table = attempt.cells.places.iter().any(|(of, _)| of == table);
                        at <= *time && is_of_table && is_reached(*time)
                    }
                    _ => false,
                };
                let done = other.outcome == Some(Outcome::Done);
                if (is_against || is_below) && done && precedes(other, attempt.record) {
                    found.push(format!(
                        "{} came after {}",
                        name(attempt.record),
                        name(other)
                    ));
                }
            }
        }
    }

    fn check_drops(&self, record: &Record, view: &View, found: &mut Vec<String>) {
        for other in &self.records {
            if let Op::Drop(table) = other.op
                && other.outcome == Some(Outcome::Done)
                && precedes(other, record)
                && view.cells.iter().any(|cell| cell.table == table)
            {
                found.push(format!("{} shows the dropped table {table}", name(record)));
            }
        }
    }
}

fn name(record: &Record) -> String {
    format!(
        "op {} of process {} ({:?})",
        record.op_index, record.process, record.op
    )
}

/// The stamp of each value that anybody was told or shown.
fn known_stamps(
    attempts: &[Attempt<'_>],
    views: &[(&Record, &View)],
    found: &mut Vec<String>,
) -> BTreeMap<u64, Stamp> {
    let mut known: BTreeMap<u64, Stamp> = BTreeMap::new();
    let told = attempts
        .iter()
        .filter_map(|attempt| Some((attempt.value, attempt.stamp()?)));
    let shown = views.iter().flat_map(|(_, view)| &view.cells);
    for (value, stamp) in told.chain(shown.map(|cell| (cell.value, cell.stamp))) {
        let before = *known.entry(value).or_insert(stamp);
        if before != stamp {
            found.push(format!(
                "the cells {value} have two stamps: {before:?}, {stamp:?}"
            ));
        }
    }
    let mut by_sequence: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, stamp) in &known {
        if let Some(other) = by_sequence.insert(stamp.sequence, *value) {
            found.push(format!("the cells {value} and {other} have one sequence"));
        }
    }
    known
}

/// Commits one after the other have rising stamps.
fn check_order(attempts: &[Attempt<'_>], found: &mut Vec<String>) {
    for a in attempts {
        for b in attempts {
            let (Some(first), Some(second)) = (a.stamp(), b.stamp()) else {
                continue;
            };
            if !precedes(a.record, b.record) {
                continue;
            }
            let is_later = first.sequence < second.sequence;
            if !is_later || (b.cells.at.is_none() && first.time >= second.time) {
                found.push(format!(
                    "{} {first:?} is not below {} {second:?}",
                    name(a.record),
                    name(b.record)
                ));
            }
        }
    }
}

fn check_view(
    record: &Record,
    view: &View,
    attempts: &[Attempt<'_>],
    known: &BTreeMap<u64, Stamp>,
    found: &mut Vec<String>,
) {
    let mut places = BTreeSet::new();
    for cell in &view.cells {
        if !places.insert((cell.table, cell.coordinate, cell.value)) {
            found.push(format!("{} shows {cell:?} twice", name(record)));
        }
        let attempt = attempts.iter().find(|attempt| attempt.value == cell.value);
        if attempt.is_none_or(|attempt| matches!(attempt.outcome, Some(Err(_)))) {
            found.push(format!(
                "{} shows {cell:?}, which nobody committed",
                name(record)
            ));
        }
    }
    for attempt in attempts {
        let stamp = known.get(&attempt.value);
        let is_told = attempt.stamp().is_some() && precedes(attempt.record, record);
        // A commit of the writer that was not shown when it was killed may come to light later.
        let is_decided = attempt.record.role == Role::Other || attempt.stamp().is_some();
        let is_before = stamp.is_some_and(|stamp| stamp.sequence <= view.sequence) && is_decided;
        if !is_told && !is_before {
            continue;
        }
        for (table, coordinate) in &attempt.cells.places {
            if view.dropped.contains(table) {
                continue;
            }
            let cell = Cell {
                table: *table,
                coordinate: *coordinate,
                value: attempt.value,
                stamp: stamp.copied().unwrap_or_default(),
            };
            if !places.contains(&(*table, *coordinate, attempt.value)) && !is_vacuumed(view, &cell)
            {
                let why = if is_told {
                    "acknowledged before"
                } else {
                    "older than what it shows"
                };
                found.push(format!(
                    "{} lacks {cell:?}, {why}; it shows {:?}",
                    name(record),
                    view.cells
                ));
            }
        }
    }
}

/// Whether nobody can see a version any more.
fn is_vacuumed(view: &View, version: &Cell) -> bool {
    let floor = view.floors.get(&version.table);
    let hides = |cell: &Cell| {
        let is_same = cell.table == version.table && cell.coordinate == version.coordinate;
        is_same
            && cell.stamp > version.stamp
            && floor.is_some_and(|floor| cell.stamp.time <= *floor)
    };
    view.cells.iter().any(hides)
}

fn check_monotonic(
    earlier: &Record,
    first: &View,
    later: &Record,
    second: &View,
    found: &mut Vec<String>,
) {
    let shown: BTreeSet<&Cell> = second.cells.iter().collect();
    for cell in &first.cells {
        let is_gone = second.dropped.contains(&cell.table) || is_vacuumed(second, cell);
        if !shown.contains(cell) && !is_gone {
            found.push(format!(
                "{} shows {cell:?}, {} does not",
                name(earlier),
                name(later)
            ));
        }
    }
}

/// A commit that depends on what was read does not undo what came since.
fn check_dependent(
    attempts: &[Attempt<'_>],
    known: &BTreeMap<u64, Stamp>,
    found: &mut Vec<String>,
) {
    for attempt in attempts.iter().filter(|attempt| attempt.cells.depends) {
        let Some(stamp) = attempt.stamp() else {
            continue;
        };
        let concurrent = attempts.iter().filter(|other| {
            let is_other = other.value != attempt.value;
            is_other && other.stamp().is_some()
        });
        for other in concurrent {
            let meets = other
                .cells
                .places
                .iter()
                .any(|place| attempt.cells.places.contains(place));
            let first = known[&other.value].sequence < stamp.sequence;
            let read = attempt.record.read_up_to.unwrap_or_default();
            let saw = known[&other.value].sequence <= read;
            if meets && first && !saw {
                found.push(format!(
                    "{} undoes {}",
                    name(attempt.record),
                    name(other.record)
                ));
            }
        }
    }
}

/// Records of scripts that were run one after the other, all of which had ended.
pub fn sequential(history: &mut History, scripts: &[(usize, Script, Vec<super::script::Event>)]) {
    for (process, script, events) in scripts {
        let before: Vec<usize> = history.counts();
        for event in events {
            history.records.push(Record {
                process: *process,
                op_index: event.op,
                role: script.role,
                op: script.ops.get(event.op).cloned().unwrap_or(Op::Settle),
                outcome: event.outcome.clone(),
                before: before.clone(),
                read_up_to: event.read_up_to,
            });
        }
    }
}
