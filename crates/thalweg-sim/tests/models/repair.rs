//! A repair that has lost frames: what becomes of masks, replacements and covers (`log.md` 29 and 32).
//!
//! Checked of each outcome: no row is there twice; a row whose frame is there is not lost; and a deleted row is back only
//! if the frame that deleted it is lost or reported, and so is each that has left it out since.

use crate::explore::{Model, holds, misses};
use crate::makers::{self, Event, Leader, Task};
use crate::rules::Rules;
use crate::table::{ItemMask, Name, Place, Removed, Row, Run, Section, Table};
use std::collections::{BTreeMap, BTreeSet};

/// A rule of repairs, as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A replacement or cover is applied whatever its sums of hidden rows say.
    SumsDoNotCount,
    /// A mask without an item is reported.
    MasksReported,
    /// A replacement or cover that is left out and has left rows out is reported.
    LeftOutReported,
    /// A deletion is applied to what of it is there.
    DeletesWhatIsThere,
    /// Of a run that does not add up all items go only if no frame with an edit is lost before it.
    RunsNeedEdits,
    /// A mask goes with its item in a repair too.
    MasksGo,
    /// A replacement with rows is applied as a whole or not at all.
    WholeOrNot,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    sections: Vec<Section>,
    brings: BTreeSet<u8>,
    deletes: BTreeSet<u8>,
    /// Rows that it leaves out of what it writes anew.
    leaves_out: BTreeSet<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    table: Table,
    alive: BTreeSet<u8>,
    log: Vec<Frame>,
    tasks: Vec<bool>,
    next_file: u8,
    lost: Option<BTreeSet<usize>>,
}

#[derive(Clone, Debug)]
enum Step {
    Do(usize, Task),
    Repair(BTreeSet<usize>),
}

#[derive(Clone, Debug)]
struct World {
    broken: Option<Rule>,
    tasks: &'static [Task],
}

/// What a repair comes to, and the frames that it reports.
#[derive(Default)]
struct Outcome {
    table: Table,
    removed: BTreeSet<Name>,
    covered_to: u8,
    reported: BTreeSet<usize>,
    edit_is_lost: bool,
}

const A: Row = Row { id: 1, key: 10 };
const A2: Row = Row { id: 2, key: 11 };
const B: Row = Row { id: 3, key: 20 };
const B2: Row = Row { id: 4, key: 21 };
const LATE: Row = Row { id: 5, key: 15 };
const OPEN: Row = Row { id: 6, key: 30 };

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn frame(&self, state: &State, task: &Task) -> Option<Frame> {
        let leader = Leader {
            runs_went: 0,
            maps: vec![],
            events: Vec::<Event>::new(),
        };
        let rules = Rules::all();
        let (table, none) = (&state.table, BTreeSet::new());
        if let Task::Open(row) = task {
            return Some(Frame {
                sections: vec![Section::Rows(vec![*row])],
                brings: [row.id].into(),
                deletes: none.clone(),
                leaves_out: none,
            });
        }
        if let Task::Encode(row) = task {
            return Some(Frame {
                sections: vec![Section::Group(vec![*row])],
                brings: [row.id].into(),
                deletes: none.clone(),
                leaves_out: none,
            });
        }
        if let Some(wanted) = makers::statement(task, table) {
            let sections = leader.statement(&wanted, table, &rules).ok()?;
            let brings = wanted.new.iter().map(|row| row.id).collect();
            return Some(Frame {
                sections,
                brings,
                deletes: wanted.rows,
                leaves_out: none,
            });
        }
        let job = makers::job(task, table, state.next_file)?;
        Some(Frame {
            sections: leader.job(&job, table, &rules),
            brings: none.clone(),
            deletes: none.clone(),
            leaves_out: none,
        })
    }

    fn repair(&self, log: &[Frame], lost: &BTreeSet<usize>) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, frame) in log.iter().enumerate() {
            outcome.table.commit += 1;
            if lost.contains(&at) {
                let is_edit = |section: &Section| {
                    matches!(section, Section::Mask { .. } | Section::Replace { .. })
                };
                outcome.edit_is_lost |= frame.sections.iter().any(is_edit);
                continue;
            }
            for section in &frame.sections {
                self.salvage(&mut outcome, at, section);
            }
        }
        outcome
    }

    fn salvage(&self, outcome: &mut Outcome, at: usize, section: &Section) {
        match section {
            Section::Rows(rows) => {
                outcome
                    .table
                    .open
                    .insert(outcome.table.commit, rows.clone());
            }
            Section::Group(rows) => {
                let name = Name::of(rows, outcome.table.commit, 0);
                outcome.table.items.insert(name, vec![rows.clone()]);
            }
            Section::Cover {
                to,
                block,
                left_out,
                carried,
            } => {
                let parts = outcome.table.open.range(..=to);
                let rows: usize = parts.map(|(_, rows)| rows.len()).sum();
                let hidden: usize = outcome
                    .table
                    .open_hidden
                    .range(..=to)
                    .map(|(_, hidden)| hidden.len())
                    .sum();
                let sums = self.keeps(Rule::SumsDoNotCount) || hidden == left_out + carried;
                if rows == block.len() + left_out && sums {
                    let first = outcome.table.open.keys().next().copied().unwrap_or(0);
                    outcome.table.open.retain(|commit, _| commit > to);
                    outcome.table.open_hidden.retain(|commit, _| commit > to);
                    outcome.covered_to = *to;
                    if !block.is_empty() {
                        outcome
                            .table
                            .items
                            .insert(Name::of(block, first, 0), vec![block.clone()]);
                    }
                } else {
                    self.leave_out(outcome, at, *left_out);
                }
            }
            Section::Mask { items, parts } => {
                for item in items {
                    self.mask(outcome, at, item);
                }
                for (commit, positions) in parts {
                    self.mask_open(outcome, at, *commit, positions);
                }
            }
            Section::Replace {
                removed,
                added,
                left_out,
                deleted,
                ..
            } => {
                self.replace(outcome, at, removed, added, left_out + deleted);
            }
        }
    }

    fn leave_out(&self, outcome: &mut Outcome, at: usize, rows: usize) {
        if rows > 0 && self.keeps(Rule::LeftOutReported) {
            outcome.reported.insert(at);
        }
    }

    fn mask(&self, outcome: &mut Outcome, at: usize, mask: &ItemMask) {
        let table = &mut outcome.table;
        let Some(blocks) = table.items.get(&mask.name) else {
            if !outcome.removed.contains(&mask.name) && self.keeps(Rule::MasksReported) {
                outcome.reported.insert(at);
            }
            return;
        };
        let rows: usize = blocks.iter().map(Vec::len).sum();
        let hidden = table.masks.entry(mask.name).or_default();
        hidden.extend(&mask.positions);
        if hidden.len() == rows {
            table.masks.remove(&mask.name);
            table.items.remove(&mask.name);
            outcome.removed.insert(mask.name);
        }
    }

    fn mask_open(&self, outcome: &mut Outcome, at: usize, commit: u8, positions: &BTreeSet<u8>) {
        if outcome.table.open.contains_key(&commit) {
            outcome
                .table
                .open_hidden
                .entry(commit)
                .or_default()
                .extend(positions);
        } else if commit > outcome.covered_to && self.keeps(Rule::MasksReported) {
            outcome.reported.insert(at);
        }
    }

    fn replace(
        &self,
        outcome: &mut Outcome,
        at: usize,
        removed: &Removed,
        added: &[(Name, Vec<Vec<Row>>)],
        rows: usize,
    ) {
        let names = match removed {
            Removed::Names(names) => names.clone(),
            Removed::Runs(runs) => runs
                .iter()
                .flat_map(|run| self.run(outcome, at, run))
                .collect(),
        };
        let there: Vec<Name> = names
            .iter()
            .copied()
            .filter(|name| outcome.table.items.contains_key(name))
            .collect();
        let is_whole = there.len() == names.len();
        if added.is_empty() {
            let takes = is_whole || self.keeps(Rule::DeletesWhatIsThere);
            if !is_whole || names.is_empty() {
                self.leave_out(outcome, at, rows);
            }
            self.take(outcome, if takes { &there } else { &[] });
            return;
        }
        if !self.keeps(Rule::SumsDoNotCount) {
            let hidden: usize = there
                .iter()
                .filter_map(|name| outcome.table.masks.get(name))
                .map(BTreeSet::len)
                .sum();
            if hidden != rows {
                return;
            }
        }
        if is_whole || !self.keeps(Rule::WholeOrNot) {
            self.take(outcome, &there);
            outcome.table.items.extend(added.iter().cloned());
        } else {
            self.leave_out(outcome, at, rows);
        }
    }

    /// The items that a run takes.
    fn run(&self, outcome: &mut Outcome, at: usize, run: &Run) -> Vec<Name> {
        let ends = [run.first, run.last]
            .iter()
            .all(|name| outcome.table.items.contains_key(name));
        let (found, blocks, rows) = outcome.table.in_run(&run.keys());
        let adds_up = ends && (blocks, rows) == (run.blocks, run.rows);
        if adds_up {
            return found;
        }
        self.leave_out(outcome, at, run.rows);
        let may = !outcome.edit_is_lost || !self.keeps(Rule::RunsNeedEdits);
        if may && self.keeps(Rule::DeletesWhatIsThere) {
            found
        } else {
            vec![]
        }
    }

    fn take(&self, outcome: &mut Outcome, names: &[Name]) {
        for name in names {
            outcome.table.items.remove(name);
            outcome.removed.insert(*name);
            if self.keeps(Rule::MasksGo) {
                outcome.table.masks.remove(name);
            }
        }
    }

    fn check_outcome(&self, state: &State, lost: &BTreeSet<usize>) -> Result<(), String> {
        let outcome = self.repair(&state.log, lost);
        let found: Vec<u8> = outcome
            .table
            .visible()
            .iter()
            .map(|(_, row): &(Place, Row)| row.id)
            .collect();
        let mut times: BTreeMap<u8, usize> = BTreeMap::new();
        for row in found {
            *times.entry(row).or_default() += 1;
        }
        if let Some((row, _)) = times.iter().find(|(_, times)| **times > 1) {
            return Err(format!("row {row} is there twice"));
        }
        let by = |row: u8, of: fn(&Frame) -> &BTreeSet<u8>| {
            state.log.iter().position(|frame| of(frame).contains(&row))
        };
        for &row in times.keys().filter(|row| !state.alive.contains(row)) {
            let deleted_by = by(row, |frame| &frame.deletes);
            let is_known = |at: usize| lost.contains(&at) || outcome.reported.contains(&at);
            let left_out_by = by(row, |frame| &frame.leaves_out);
            if !deleted_by.is_some_and(is_known) || !left_out_by.is_none_or(is_known) {
                return Err(format!(
                    "row {row} is back, and frames {:?} are reported",
                    outcome.reported
                ));
            }
        }
        self.check_runs(state, lost, &outcome)?;
        for &row in state.alive.iter().filter(|row| !times.contains_key(row)) {
            let brought_by = by(row, |frame| &frame.brings);
            if !brought_by.is_some_and(|at| lost.contains(&at)) {
                return Err(format!("row {row} is lost, and its frame is there"));
            }
        }
        let masked = outcome
            .table
            .masks
            .keys()
            .all(|name| outcome.table.items.contains_key(name));
        if masked {
            Ok(())
        } else {
            Err("a mask is left without its item".to_owned())
        }
    }

    /// Where no edit is lost before a run, nothing that it deletes is there.
    #[expect(clippy::unused_self, reason = "it reads as a part of the check")]
    fn check_runs(
        &self,
        state: &State,
        lost: &BTreeSet<usize>,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let is_edit =
            |section: &Section| matches!(section, Section::Mask { .. } | Section::Replace { .. });
        let has_edit = |at: &usize| state.log[*at].sections.iter().any(is_edit);
        let first_lost = lost.iter().copied().find(has_edit).unwrap_or(usize::MAX);
        for (at, frame) in state
            .log
            .iter()
            .enumerate()
            .filter(|(at, _)| *at < first_lost && !lost.contains(at))
        {
            for section in &frame.sections {
                let Section::Replace {
                    removed: Removed::Runs(runs),
                    ..
                } = section
                else {
                    continue;
                };
                let items = runs
                    .iter()
                    .flat_map(|run| outcome.table.in_run(&run.keys()).0);
                let mut rows = items.flat_map(|name| outcome.table.items[&name].iter().flatten());
                if rows.any(|row| frame.deletes.contains(&row.id)) {
                    return Err(format!("frame {at} deletes a row that is there"));
                }
            }
        }
        Ok(())
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let mut state = State {
            table: Table::default(),
            alive: BTreeSet::new(),
            log: vec![],
            tasks: vec![false; self.tasks.len()],
            next_file: 1,
            lost: None,
        };
        for rows in [[A, A2], [B, B2]] {
            let sections = vec![Section::Group(rows.to_vec())];
            state.table = state
                .table
                .apply(&sections, &Rules::all())
                .expect("rows are appended");
            let brings: BTreeSet<u8> = rows.iter().map(|row| row.id).collect();
            state.alive.extend(&brings);
            let none = BTreeSet::new();
            state.log.push(Frame {
                sections,
                brings,
                deletes: none.clone(),
                leaves_out: none,
            });
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        if state.lost.is_some() {
            return vec![];
        }
        let open = state
            .tasks
            .iter()
            .zip(self.tasks)
            .enumerate()
            .filter(|(_, (done, _))| !**done);
        let mut steps: Vec<Step> = open
            .map(|(at, (_, task))| Step::Do(at, task.clone()))
            .collect();
        for first in 0..state.log.len() {
            steps.push(Step::Repair([first].into()));
            steps.extend(
                (first + 1..state.log.len()).map(|second| Step::Repair([first, second].into())),
            );
        }
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        match step {
            Step::Repair(lost) => next.lost = Some(lost.clone()),
            Step::Do(at, task) => {
                next.tasks[*at] = true;
                next.next_file += 4;
                let Some(mut frame) = self.frame(state, task) else {
                    return Ok(next);
                };
                next.table = state.table.apply(&frame.sections, &Rules::all())?;
                let ids = |table: &Table| {
                    table
                        .places()
                        .iter()
                        .map(|(_, row)| row.id)
                        .collect::<BTreeSet<u8>>()
                };
                if matches!(task, Task::Merge(..) | Task::Cover) {
                    frame.leaves_out = ids(&state.table)
                        .difference(&ids(&next.table))
                        .copied()
                        .collect();
                }
                next.alive.extend(&frame.brings);
                next.alive.retain(|row| !frame.deletes.contains(row));
                next.log.push(frame);
            }
        }
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        match &state.lost {
            Some(lost) => self.check_outcome(state, lost),
            None => self.check_outcome(state, &BTreeSet::new()),
        }
    }

    fn is_end(&self, state: &State) -> bool {
        state.lost.is_some()
    }
}

const MASKS: &[Task] = &[
    Task::Delete(&[1]),
    Task::Merge(0, 99),
    Task::Delete(&[2, 3]),
    Task::Pack(0, 99),
];
const RUNS: &[Task] = &[
    Task::Encode(LATE),
    Task::DeleteRange(10, 19),
    Task::Delete(&[3]),
    Task::Merge(0, 99),
    Task::DeleteRange(0, 99),
];
const CUTS: &[Task] = &[
    Task::Cut(20, 29),
    Task::DeleteRange(20, 20),
    Task::Delete(&[4]),
];
const COVERS: &[Task] = &[
    Task::Open(OPEN),
    Task::Open(LATE),
    Task::Delete(&[6]),
    Task::Cover,
    Task::Merge(0, 99),
];

#[test]
fn a_deleted_row_does_not_come_back_unnoticed() {
    for (name, tasks) in [
        ("repair of masks", MASKS),
        ("repair of runs", RUNS),
        ("repair of covers", COVERS),
        ("repair of cuts", CUTS),
    ] {
        holds(
            name,
            &World {
                broken: None,
                tasks,
            },
        );
    }
}

#[test]
fn a_rule_of_repairs_that_is_left_out_is_missed() {
    let cases = [
        (Rule::SumsDoNotCount, MASKS),
        (Rule::MasksReported, MASKS),
        (Rule::LeftOutReported, RUNS),
        (Rule::DeletesWhatIsThere, RUNS),
        (Rule::RunsNeedEdits, CUTS),
        (Rule::MasksGo, MASKS),
        (Rule::WholeOrNot, MASKS),
    ];
    for (rule, tasks) in cases {
        misses(
            rule,
            &World {
                broken: Some(rule),
                tasks,
            },
        );
    }
}
