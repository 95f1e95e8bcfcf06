//! The masks of a table under all interleavings of statements, jobs, recoveries and checkpoints (`masks.md`, `log.md` 18
//! to 26).
//!
//! The specification is the set of rows that are not deleted. Checked in every state: a query finds just these; hidden
//! rows are counted right; each slot and the log after it lead to the same table; a statement takes no row that another
//! one has taken; and nobody is refused for what somebody else has done to other rows.

use crate::explore::{Model, holds, misses};
use crate::makers::{self, Event, Leader, Prepared, Refused, Source, Task};
use crate::rules::{Rule, Rules};
use crate::table::{Name, Place, Removed, Row, Section, Table};
use std::collections::BTreeSet;

/// What a model starts with and who is at work in it.
#[derive(Clone, Debug)]
struct World {
    /// Blocks that are there, each of a commit of its own.
    blocks: &'static [&'static [Row]],
    /// Rows that are open, each of a commit of its own.
    open: &'static [Row],
    tasks: &'static [Task],
    rules: Rules,
    /// A job may be refused for masks: where carrying is left out to see what a check is for.
    may_refuse: bool,
    fault: Fault,
}

/// What a maker or the leader gets wrong, where a check is to notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The leader counts carried rows and does not hide them.
    ForgetsToHide,
    /// An edit 8 says one row less than its item has.
    CountsTooFew,
    /// A cover leaves a row out that no mask hides.
    DropsRow,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waits,
    Ready(Prepared),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    table: Table,
    alive: BTreeSet<u8>,
    phases: Vec<Phase>,
    leader: Leader,
    next_file: u8,
    /// Table of the older and of the newer checkpoint, and the log behind the older one.
    slots: [Table; 2],
    log: Vec<Vec<Section>>,
    checkpoints: u8,
    /// What a recovery finds after a power cut.
    durable: (Table, BTreeSet<u8>),
}

const A: Row = Row { id: 1, key: 10 };
const A2: Row = Row { id: 2, key: 11 };
const B: Row = Row { id: 3, key: 20 };
const B2: Row = Row { id: 4, key: 23 };
const C: Row = Row { id: 5, key: 30 };
const LATE: Row = Row { id: 6, key: 22 };
const NEW: Row = Row { id: 7, key: 40 };
const NEXT: Row = Row { id: 8, key: 41 };
const D: Row = Row { id: 9, key: 50 };

impl World {
    fn first_table(&self) -> Table {
        let mut table = Table::default();
        let blocks = self.blocks.iter().map(|rows| Section::Group(rows.to_vec()));
        let open = self.open.iter().map(|row| Section::Rows(vec![*row]));
        for section in blocks.chain(open) {
            table = table
                .apply(&[section], &Rules::default())
                .expect("rows are appended");
        }
        table
    }

    fn spoil(&self, sections: &mut Vec<Section>) {
        match self.fault {
            Fault::None => {}
            Fault::ForgetsToHide => {
                let is_job = matches!(
                    sections.first(),
                    Some(Section::Cover { .. } | Section::Replace { .. })
                );
                if is_job {
                    sections.truncate(1);
                }
            }
            Fault::CountsTooFew => {
                for section in sections {
                    let Section::Mask { items, .. } = section else {
                        continue;
                    };
                    for item in items {
                        item.rows -= 1;
                    }
                }
            }
            Fault::DropsRow => {
                for section in sections {
                    if let Section::Cover { block, .. } = section {
                        block.pop();
                    }
                }
            }
        }
    }

    fn prepare(&self, state: &State, at: usize) -> State {
        let mut next = state.clone();
        let task = &self.tasks[at];
        let statement = makers::statement(task, &state.table).map(Prepared::Statement);
        let job = makers::job(task, &state.table, state.next_file).map(Prepared::Job);
        next.next_file += u8::from(job.is_some());
        next.phases[at] = statement.or(job).map_or(Phase::Done, Phase::Ready);
        next
    }

    /// Takes a frame into the table and the log, and keeps what carrying needs.
    fn commit(&self, state: &State, sections: Vec<Section>) -> Result<State, String> {
        let mut next = state.clone();
        next.table = state.table.apply(&sections, &self.rules)?;
        let commit = next.table.commit;
        let is_append =
            |section: &Section| matches!(section, Section::Group(_) | Section::Cover { .. });
        let brings_new = sections.iter().any(is_append);
        let (before, after): (BTreeSet<Name>, BTreeSet<Name>) = (
            state.table.items.keys().copied().collect(),
            next.table.items.keys().copied().collect(),
        );
        let came = after.difference(&before).map(|&name| Event {
            commit,
            name,
            is_new: brings_new,
        });
        let went = before.difference(&after).map(|&name| Event {
            commit,
            name,
            is_new: false,
        });
        next.leader.events.extend(came.chain(went));
        let removes_runs = |section: &Section| {
            matches!(
                section,
                Section::Replace {
                    removed: Removed::Runs(_),
                    ..
                }
            )
        };
        if !self.rules.keep(Rule::RunsRefuseNobody) && sections.iter().any(removes_runs) {
            next.leader.runs_went = commit;
        }
        next.log.push(sections);
        Ok(next)
    }

    fn append(
        &self,
        state: &State,
        section: Section,
        row: Row,
        at: usize,
    ) -> Result<State, String> {
        let mut next = self.commit(state, vec![section])?;
        next.alive.insert(row.id);
        next.phases[at] = Phase::Done;
        Ok(next)
    }

    fn finish(&self, state: &State, at: usize, prepared: &Prepared) -> Result<State, String> {
        match prepared {
            Prepared::Statement(wanted) => self.finish_statement(state, at, wanted),
            Prepared::Job(job) => self.finish_job(state, at, job),
        }
    }

    fn finish_statement(
        &self,
        state: &State,
        at: usize,
        wanted: &makers::Statement,
    ) -> Result<State, String> {
        let sections = state.leader.statement(wanted, &state.table, &self.rules);
        let committed = sections
            .map_err(|Refused(why)| why)
            .and_then(|mut sections| {
                self.spoil(&mut sections);
                self.commit(state, sections)
            });
        let were_alive = wanted.rows.is_subset(&state.alive);
        match committed {
            Ok(mut next) => {
                if !were_alive {
                    return Err("a statement takes a row that another one has taken".to_owned());
                }
                next.alive.retain(|id| !wanted.rows.contains(id));
                let kept = (0..)
                    .zip(&wanted.new)
                    .filter(|(at, _)| !wanted.own.contains(at));
                next.alive.extend(kept.map(|(_, row)| row.id));
                next.phases[at] = Phase::Done;
                Ok(next)
            }
            Err(why) => {
                let items_went = wanted
                    .run_items
                    .iter()
                    .any(|name| !state.table.items.contains_key(name));
                if were_alive && !items_went && !self.may_refuse {
                    return Err(format!(
                        "a statement is refused whose rows nobody has touched: {why}"
                    ));
                }
                let mut next = state.clone();
                next.phases[at] = Phase::Waits;
                Ok(next)
            }
        }
    }

    fn finish_job(&self, state: &State, at: usize, job: &makers::Job) -> Result<State, String> {
        let mut sections = state.leader.job(job, &state.table, &self.rules);
        self.spoil(&mut sections);
        let is_late = job.seen < state.leader.runs_went && matches!(job.source, Source::Items(..));
        let committed = match is_late {
            true => Err("a run was deleted since".to_owned()),
            false => self.commit(state, sections),
        };
        match committed {
            Ok(mut next) => {
                next.leader.maps.push((next.table.commit, job.map.clone()));
                next.phases[at] = Phase::Done;
                Ok(next)
            }
            Err(why) => {
                let is_there = match &job.source {
                    Source::Open(..) => job.map.keys().all(|place| match place {
                        Place::Open { commit, .. } => state.table.open.contains_key(commit),
                        Place::Item { .. } => true,
                    }),
                    Source::Items(names, _) => names
                        .iter()
                        .all(|name| state.table.items.contains_key(name)),
                };
                if is_there && !self.may_refuse {
                    return Err(format!("a job is refused whose sources are there: {why}"));
                }
                let mut next = state.clone();
                next.phases[at] = Phase::Done;
                Ok(next)
            }
        }
    }

    fn lose(&self, state: &State, at: usize) -> State {
        let mut next = state.clone();
        (next.table, next.alive) = state.durable.clone();
        next.slots = [next.table.clone(), next.table.clone()];
        next.log.clear();
        next.leader = Leader::default();
        if self.rules.keep(Rule::PreparedGoes) {
            for phase in next
                .phases
                .iter_mut()
                .filter(|phase| matches!(phase, Phase::Ready(_)))
            {
                *phase = Phase::Waits;
            }
        }
        next.phases[at] = Phase::Done;
        next
    }

    fn checkpoint(&self, state: &State, at: usize) -> State {
        let mut next = state.clone();
        next.checkpoints += 1;
        if !self.rules.keep(Rule::NoStoredForm) {
            let masked: Vec<Name> = next.table.masks.keys().copied().collect();
            for name in masked {
                next.table.stored.insert(name, next.checkpoints);
            }
        }
        let older = next.slots[1].commit;
        let kept = usize::from(older - next.slots[0].commit);
        next.log.drain(..kept.min(next.log.len()));
        next.slots = [next.slots[1].clone(), next.table.clone()];
        next.phases[at] = Phase::Done;
        next
    }

    /// Forgets what nobody who is at work needs any more.
    fn forget(&self, state: &mut State) {
        let seen = |phase: &Phase| match phase {
            Phase::Ready(Prepared::Statement(wanted)) => Some(wanted.seen),
            Phase::Ready(Prepared::Job(job)) => Some(job.seen),
            Phase::Waits | Phase::Done => None,
        };
        let oldest = state
            .phases
            .iter()
            .filter_map(seen)
            .min()
            .unwrap_or(u8::MAX);
        state.leader.maps.retain(|(commit, _)| *commit > oldest);
        state.leader.events.retain(|event| event.commit > oldest);
        if !self
            .tasks
            .iter()
            .any(|task| matches!(task, Task::Checkpoint))
        {
            state.log.clear();
        }
    }
}

impl Model for World {
    type State = State;
    type Step = (usize, Task);

    fn start(&self) -> State {
        let table = self.first_table();
        let alive: BTreeSet<u8> = table.visible().iter().map(|(_, row)| row.id).collect();
        State {
            slots: [table.clone(), table.clone()],
            durable: (table.clone(), alive.clone()),
            table,
            alive,
            phases: vec![Phase::Waits; self.tasks.len()],
            leader: Leader::default(),
            next_file: 1,
            log: vec![],
            checkpoints: 0,
        }
    }

    fn steps(&self, state: &State) -> Vec<(usize, Task)> {
        let at_work = state
            .phases
            .iter()
            .enumerate()
            .filter(|(_, phase)| **phase != Phase::Done);
        at_work
            .map(|(at, _)| (at, self.tasks[at].clone()))
            .collect()
    }

    fn take(&self, state: &State, (at, task): &(usize, Task)) -> Result<State, String> {
        let mut next = match (&state.phases[*at], task) {
            (Phase::Ready(prepared), _) => self.finish(state, *at, prepared)?,
            (_, Task::Open(row)) => self.append(state, Section::Rows(vec![*row]), *row, *at)?,
            (_, Task::Encode(row)) => self.append(state, Section::Group(vec![*row]), *row, *at)?,
            (_, Task::Lose) => self.lose(state, *at),
            (_, Task::Checkpoint) => self.checkpoint(state, *at),
            _ => self.prepare(state, *at),
        };
        self.forget(&mut next);
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        state.table.check()?;
        let visible: Vec<u8> = state
            .table
            .visible()
            .iter()
            .map(|(_, row)| row.id)
            .collect();
        let mut sorted = visible.clone();
        sorted.sort_unstable();
        if !sorted.iter().eq(&state.alive) {
            return Err(format!(
                "rows {sorted:?} are found, {:?} were kept",
                state.alive
            ));
        }
        for slot in state.slots.iter().filter(|_| !state.log.is_empty()) {
            let before = usize::from(slot.commit - state.slots[0].commit);
            let frames = &state.log[before..];
            let replayed = frames
                .iter()
                .try_fold(slot.clone(), |table, frame| table.apply(frame, &self.rules));
            let replayed = replayed.map_err(|why| format!("a replay refuses a frame: {why}"))?;
            if replayed.visible() != state.table.visible() {
                return Err("a replay comes to another table".to_owned());
            }
        }
        Ok(())
    }

    fn is_end(&self, state: &State) -> bool {
        state.phases.iter().all(|phase| *phase == Phase::Done)
    }
}

const fn world(
    blocks: &'static [&'static [Row]],
    open: &'static [Row],
    tasks: &'static [Task],
) -> World {
    let rules = Rules::all();
    World {
        blocks,
        open,
        tasks,
        rules,
        may_refuse: false,
        fault: Fault::None,
    }
}

/// Two statements on one block, and what rewrites it.
const REWRITES: World = world(
    &[&[A, A2], &[B]],
    &[],
    &[
        Task::Delete(&[1]),
        Task::Update(2, NEW),
        Task::Merge(0, 29),
        Task::Pack(0, 29),
        Task::Delete(&[1, 3]),
    ],
);
/// Rows that are open, hidden and covered.
const COVERS: World = world(
    &[&[C]],
    &[A, B],
    &[
        Task::Delete(&[1]),
        Task::Update(3, NEW),
        Task::Cover,
        Task::Open(LATE),
        Task::Merge(0, 99),
    ],
);
/// A range of items, and what comes into it.
const RUNS: World = world(
    &[&[A, A2], &[B], &[B2], &[C]],
    &[],
    &[
        Task::DeleteRange(10, 29),
        Task::Encode(LATE),
        Task::Delete(&[3]),
        Task::Pack(0, 15),
        Task::Update(2, NEW),
    ],
);
/// The same without anybody else who deletes.
const RUNS_ALONE: World = world(
    &[&[A, A2], &[B], &[B2], &[C]],
    &[],
    &[
        Task::DeleteRange(10, 29),
        Task::Encode(LATE),
        Task::Pack(0, 15),
    ],
);
/// A range into which a merge brings rows of after its snapshot.
const MERGED_RUNS: World = world(
    &[&[A], &[B, B2], &[C]],
    &[],
    &[
        Task::DeleteRange(10, 35),
        Task::Delete(&[3]),
        Task::Encode(LATE),
        Task::Merge(20, 29),
    ],
);
/// A range that takes some items of one merge, hides a row of another one, and leaves the third alone.
const RUNS_BESIDE_MERGES: World = world(
    &[&[A, A2], &[B], &[B2], &[C], &[D]],
    &[],
    &[
        Task::DeleteRange(11, 22),
        Task::Merge(0, 15),
        Task::Merge(16, 29),
        Task::Merge(30, 99),
    ],
);
/// Commits that are lost, and whose numbers are given again.
const LOST: World = world(
    &[&[D]],
    &[],
    &[
        Task::Open(A),
        Task::Open(B),
        Task::Cover,
        Task::Lose,
        Task::Delete(&[1]),
    ],
);
/// The same of a block, whose name is given again with its commit.
const LOST_NAMES: World = world(
    &[&[D]],
    &[],
    &[
        Task::Encode(B),
        Task::Lose,
        Task::Encode(Row { id: 10, key: 20 }),
        Task::Delete(&[3]),
        Task::Merge(0, 99),
    ],
);
/// Several changes in one commit.
const TRANSACTIONS: World = world(
    &[&[A, A2]],
    &[B],
    &[
        Task::UpdateAndDelete(1, NEW, NEXT),
        Task::Merge(0, 99),
        Task::Update(2, LATE),
        Task::Cover,
    ],
);
/// Checkpoints between commits, whose slots are lost in turn.
const SLOTS: World = world(
    &[&[A, A2], &[B]],
    &[],
    &[
        Task::Delete(&[1]),
        Task::Checkpoint,
        Task::Merge(0, 29),
        Task::Checkpoint,
        Task::Update(3, NEW),
    ],
);

#[test]
fn every_row_is_found_that_was_not_deleted_and_no_other() {
    let worlds = [
        ("rewrites", REWRITES),
        ("covers", COVERS),
        ("runs", RUNS),
        ("merged runs", MERGED_RUNS),
        ("runs beside merges", RUNS_BESIDE_MERGES),
        ("lost", LOST),
        ("lost names", LOST_NAMES),
        ("transactions", TRANSACTIONS),
        ("slots", SLOTS),
    ];
    for (name, world) in worlds {
        holds(name, &world);
    }
}

#[test]
fn a_rule_that_is_left_out_is_missed() {
    use Rule::*;
    let cases = [
        (NamesWhole, REWRITES),
        (MasksGo, REWRITES),
        (MasksGo, COVERS),
        (CarryInto, REWRITES),
        (CarryInto, COVERS),
        (CarryOver, REWRITES),
        (CarryOver, COVERS),
        (CarryByPlace, REWRITES),
        (PositionsAreNew, REWRITES),
        (EmptyItemsLeave, REWRITES),
        (RunsAreCut, RUNS),
        (MixedIsCompared, MERGED_RUNS),
        (DeletedIsNotHidden, RUNS),
        (RunsRefuseNobody, RUNS_BESIDE_MERGES),
        (CarryInto, RUNS_BESIDE_MERGES),
        (CarryOver, RUNS_BESIDE_MERGES),
        (PreparedGoes, LOST),
        (PreparedGoes, LOST_NAMES),
        (FoldTransaction, TRANSACTIONS),
        (NoStoredForm, SLOTS),
        (WhatGoesFirst, REWRITES),
    ];
    for (rule, world) in cases {
        misses(
            rule,
            &World {
                rules: Rules::without(&[rule]),
                ..world
            },
        );
    }
}

/// Checks that others make unnecessary as long as nobody makes a mistake: each is needed where somebody does.
#[test]
fn a_check_that_is_left_out_lets_a_mistake_pass() {
    use Rule::*;
    let cases: [(Rule, &[Rule], Fault, World); 8] = [
        (SumOfHidden, &[CarryInto], Fault::None, REWRITES),
        (SumOfHidden, &[CarryInto], Fault::None, RUNS_BESIDE_MERGES),
        (SumOfHidden, &[CarryInto], Fault::None, COVERS),
        (CarriedAreHidden, &[], Fault::ForgetsToHide, REWRITES),
        (CarriedAreHidden, &[], Fault::ForgetsToHide, COVERS),
        (RowsOfItem, &[], Fault::CountsTooFew, REWRITES),
        (CoverAddsUp, &[], Fault::DropsRow, COVERS),
        (
            RunAddsUp,
            &[RunsAreCut, DeletedIsNotHidden],
            Fault::None,
            RUNS_ALONE,
        ),
    ];
    for (check, mistakes, fault, world) in cases {
        let with = |broken: &[Rule]| World {
            rules: Rules::without(broken),
            may_refuse: true,
            fault,
            ..world.clone()
        };
        holds(
            &format!("{check:?} notices {mistakes:?} {fault:?}"),
            &with(mistakes),
        );
        misses(check, &with(&[mistakes, &[check]].concat()));
    }
}
