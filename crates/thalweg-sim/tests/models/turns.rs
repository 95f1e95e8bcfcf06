//! The turn of a table and the room for masks, with statements on several tables and the job that frees room
//! (`masks.md`, *The turn of a table* and 7).
//!
//! Checked in every state: somebody can go on until all are done, and nobody is `Conflict` a third time.

use crate::explore::{Model, holds, misses};

/// A rule of turns, as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Who was refused twice asks for the turn.
    AsksForTurn,
    /// While somebody has the turn, edits and replacements of others wait.
    OthersWait,
    /// The holder takes its snapshot once it has all turns.
    SnapshotAfterTurn,
    /// Turns of several tables are taken ascending.
    Ascending,
    /// The holder waits for no room.
    HolderNeedsNoRoom,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Takes the turns that it needs, so many of them so far.
    Turns(usize),
    /// Has no snapshot.
    Begins,
    /// Has a snapshot, of tables with these versions.
    Ready(Vec<u8>),
    /// Has room as well.
    Roomy(Vec<u8>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Statement {
    refused: u8,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// How often each table was changed.
    versions: [u8; 2],
    /// Who has the turn of each table.
    turns: [Option<usize>; 2],
    /// Masks that are there and room that was given: there is room for one.
    masks: u8,
    given: u8,
    statements: Vec<Statement>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Go(usize),
    /// Gives room back.
    Back(usize),
    /// Rewrites what is masked, on a table.
    Rewrite(usize),
}

/// The tables that each statement changes, in the order in which it names them.
const STATEMENTS: [&[usize]; 4] = [&[0, 1], &[1, 0], &[0], &[0]];
const MAX_ROOM: u8 = 1;

#[derive(Clone, Debug)]
struct World {
    broken: Option<Rule>,
}

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// The tables of a statement in the order in which it takes their turns.
    fn order(&self, at: usize) -> Vec<usize> {
        let mut tables = STATEMENTS[at].to_vec();
        if self.keeps(Rule::Ascending) {
            tables.sort_unstable();
        }
        tables
    }

    fn has_turn(state: &State, at: usize) -> bool {
        STATEMENTS[at]
            .iter()
            .all(|&table| state.turns[table] == Some(at))
    }

    /// Whether a commit on this table has to wait for the turn of somebody else.
    fn waits(&self, state: &State, at: Option<usize>, table: usize) -> bool {
        self.keeps(Rule::OthersWait) && state.turns[table].is_some_and(|holder| Some(holder) != at)
    }

    fn waits_for_any(&self, state: &State, at: usize) -> bool {
        STATEMENTS[at]
            .iter()
            .any(|&table| self.waits(state, Some(at), table))
    }

    fn needs_room(&self, state: &State, at: usize) -> bool {
        !(Self::has_turn(state, at) && self.keeps(Rule::HolderNeedsNoRoom))
    }

    fn can_go(&self, state: &State, at: usize) -> bool {
        let waits = self.waits_for_any(state, at);
        let room = state.masks + state.given < MAX_ROOM;
        match &state.statements[at].phase {
            Phase::Turns(taken) => state.turns[self.order(at)[*taken]].is_none(),
            Phase::Begins => true,
            Phase::Ready(_) if self.needs_room(state, at) => room && !waits,
            Phase::Ready(_) | Phase::Roomy(_) => !waits,
            Phase::Done => false,
        }
    }

    fn go(&self, state: &State, at: usize) -> Result<State, String> {
        let mut next = state.clone();
        let snapshot = || {
            STATEMENTS[at]
                .iter()
                .map(|&table| state.versions[table])
                .collect()
        };
        next.statements[at].phase = match &state.statements[at].phase {
            Phase::Turns(taken) => {
                next.turns[self.order(at)[*taken]] = Some(at);
                let has_all = taken + 1 == STATEMENTS[at].len();
                if !has_all {
                    Phase::Turns(taken + 1)
                } else if self.keeps(Rule::SnapshotAfterTurn) {
                    Phase::Begins
                } else {
                    // As of when it began to wait.
                    Phase::Ready(STATEMENTS[at].iter().map(|_| 0).collect())
                }
            }
            Phase::Begins => Phase::Ready(snapshot()),
            Phase::Ready(seen) if self.needs_room(state, at) => {
                next.given += 1;
                Phase::Roomy(seen.clone())
            }
            Phase::Ready(seen) | Phase::Roomy(seen) => return self.commit(state, at, seen),
            Phase::Done => Phase::Done,
        };
        Ok(next)
    }

    /// Commits; where anything else has changed one of its tables, that hits its rows.
    fn commit(&self, state: &State, at: usize, seen: &[u8]) -> Result<State, String> {
        let mut next = state.clone();
        let was_given = matches!(state.statements[at].phase, Phase::Roomy(_));
        next.given -= u8::from(was_given);
        let is_same = STATEMENTS[at]
            .iter()
            .zip(seen)
            .all(|(&table, seen)| state.versions[table] == *seen);
        for turn in next.turns.iter_mut().filter(|turn| **turn == Some(at)) {
            *turn = None;
        }
        if is_same {
            next.masks += u8::from(was_given);
            for &table in STATEMENTS[at] {
                next.versions[table] += 1;
            }
            next.statements[at].phase = Phase::Done;
            return Ok(next);
        }
        next.statements[at].refused += 1;
        if next.statements[at].refused > 2 {
            return Err(format!("statement {at} is refused a third time"));
        }
        let asks = next.statements[at].refused == 2 && self.keeps(Rule::AsksForTurn);
        next.statements[at].phase = if asks { Phase::Turns(0) } else { Phase::Begins };
        Ok(next)
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let statement = Statement {
            refused: 0,
            phase: Phase::Begins,
        };
        State {
            versions: [1; 2],
            turns: [None; 2],
            masks: 0,
            given: 0,
            statements: vec![statement; STATEMENTS.len()],
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let all = 0..STATEMENTS.len();
        let mut steps: Vec<Step> = all
            .clone()
            .filter(|&at| self.can_go(state, at))
            .map(Step::Go)
            .collect();
        let is_roomy = |at: &usize| matches!(state.statements[*at].phase, Phase::Roomy(_));
        let gives_back = all.filter(|at| is_roomy(at) && self.waits_for_any(state, *at));
        steps.extend(gives_back.map(Step::Back));
        // Masks may lie in either table; the worst case is that both would have to be rewritten.
        let may_rewrite = (0..2).all(|table| !self.waits(state, None, table));
        steps.extend(
            (state.masks > 0 && may_rewrite)
                .then_some([Step::Rewrite(0), Step::Rewrite(1)])
                .into_iter()
                .flatten(),
        );
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        match *step {
            Step::Go(at) => return self.go(state, at),
            Step::Back(at) => {
                if let Phase::Roomy(seen) = &state.statements[at].phase {
                    next.statements[at].phase = Phase::Ready(seen.clone());
                    next.given -= 1;
                }
            }
            Step::Rewrite(table) => {
                next.masks = 0;
                next.versions[table] += 1;
            }
        }
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let is_holder = |&at: &usize| state.statements[at].refused == 2;
        let are_late = state.turns.iter().flatten().all(is_holder);
        if are_late {
            Ok(())
        } else {
            Err("somebody has a turn who was not refused twice".to_owned())
        }
    }

    fn is_end(&self, state: &State) -> bool {
        let is_done = |statement: &Statement| statement.phase == Phase::Done;
        state.statements.iter().all(is_done)
    }
}

#[test]
fn the_third_attempt_passes_and_nobody_waits_for_ever() {
    holds("turns", &World { broken: None });
}

#[test]
fn a_rule_of_turns_that_is_left_out_is_missed() {
    let rules = [
        Rule::AsksForTurn,
        Rule::OthersWait,
        Rule::SnapshotAfterTurn,
        Rule::Ascending,
        Rule::HolderNeedsNoRoom,
    ];
    for rule in rules {
        misses(rule, &World { broken: Some(rule) });
    }
}
