//! Changes of a tree that wait for a page which cannot be read, joined by checkpoints (`checkpoint.md`).
//!
//! Checked in every state: made now, what waits comes to the tree that is there where no page was ever lost.

use crate::explore::{Model, holds, misses};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A rule of changes that wait, as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// What removes a waiting item takes it from those that come, at once.
    TakenAtOnce,
    /// In what a checkpoint has joined, names go before runs.
    NamesFirst,
    /// Runs go in the order of their commits.
    RunsInOrder,
    /// What comes, comes last.
    ComesLast,
    /// A run that waits counts the rows that it has to take from the tree.
    RunCountsTree,
}

/// Items by key: which one it is. Each has one row.
type Items = BTreeMap<u8, u8>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    keys: RangeInclusive<u8>,
    rows: usize,
}

/// What one commit, or a joined one, does to the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Change {
    names: Items,
    runs: Vec<Run>,
    comes: Items,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The tree if no page were lost.
    whole: Items,
    /// The tree whose page cannot be read, and what waits for it.
    lost: Items,
    waiting: Vec<Change>,
    next_item: u8,
    left: u8,
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    RemoveRun(RangeInclusive<u8>),
    /// Removes an item and adds another one with its key.
    Replace(u8),
    Checkpoint,
}

#[derive(Clone, Debug)]
struct World {
    broken: Option<Rule>,
}

const KEYS: RangeInclusive<u8> = 1..=4;

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn make(&self, change: &Change, mut tree: Items) -> Result<Items, String> {
        if !self.keeps(Rule::ComesLast) {
            tree.extend(&change.comes);
        }
        let names = |tree: &mut Items| {
            change
                .names
                .iter()
                .try_for_each(|(key, item)| remove(*key, *item, tree))
        };
        if self.keeps(Rule::NamesFirst) {
            names(&mut tree)?;
        }
        for run in &change.runs {
            let before = tree.len();
            tree.retain(|key, _| !run.keys.contains(key));
            if before - tree.len() != run.rows {
                return Err(format!(
                    "a run takes {} rows in the place of {}",
                    before - tree.len(),
                    run.rows
                ));
            }
        }
        if !self.keeps(Rule::NamesFirst) {
            names(&mut tree)?;
        }
        for (key, item) in &change.comes {
            if self.keeps(Rule::ComesLast) && tree.insert(*key, *item).is_some() {
                return Err("two items of one key".to_owned());
            }
        }
        Ok(tree)
    }

    fn made(&self, state: &State) -> Result<Items, String> {
        let mut changes = state.waiting.iter();
        changes.try_fold(state.lost.clone(), |tree, change| self.make(change, tree))
    }

    /// Takes an item from those that wait to come; whether it was one.
    fn take_waiting(&self, state: &mut State, key: u8, item: u8) -> bool {
        let waiting = state
            .waiting
            .iter_mut()
            .filter(|_| self.keeps(Rule::TakenAtOnce));
        let mut takes = waiting.map(|change| {
            change.comes.get(&key) == Some(&item) && change.comes.remove(&key).is_some()
        });
        takes.any(|took| took)
    }

    fn remove_name(&self, state: &mut State, key: u8, change: &mut Change) {
        let Some(item) = state.whole.remove(&key) else {
            return;
        };
        if !self.take_waiting(state, key, item) {
            change.names.insert(key, item);
        }
    }

    fn remove_run(&self, state: &mut State, keys: &RangeInclusive<u8>, change: &mut Change) {
        let mut rows = 0;
        let found: Vec<(u8, u8)> = state
            .whole
            .range(keys.clone())
            .map(|(key, item)| (*key, *item))
            .collect();
        for (key, item) in found {
            state.whole.remove(&key);
            let waits = self.take_waiting(state, key, item);
            rows += usize::from(!waits || !self.keeps(Rule::RunCountsTree));
        }
        change.runs.push(Run {
            keys: keys.clone(),
            rows,
        });
    }

    fn add(state: &mut State, key: u8, change: &mut Change) {
        state.whole.insert(key, state.next_item);
        change.comes.insert(key, state.next_item);
        state.next_item += 1;
    }

    fn join(&self, state: &mut State) {
        let mut joined = Change::default();
        for change in std::mem::take(&mut state.waiting) {
            joined.names.extend(change.names);
            joined.runs.extend(change.runs);
            joined.comes.extend(change.comes);
        }
        if !self.keeps(Rule::RunsInOrder) {
            joined.runs.reverse();
        }
        state.waiting.push(joined);
    }
}

fn remove(key: u8, item: u8, tree: &mut Items) -> Result<(), String> {
    if tree.remove(&key) == Some(item) {
        Ok(())
    } else {
        Err("an item is not there under its name".to_owned())
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let items: Items = [(1, 1), (3, 2), (4, 3)].into();
        State {
            whole: items.clone(),
            lost: items,
            waiting: vec![],
            next_item: 4,
            left: 4,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        if state.left == 0 {
            return vec![];
        }
        let mut steps = vec![
            Step::RemoveRun(1..=3),
            Step::RemoveRun(2..=4),
            Step::RemoveRun(2..=2),
        ];
        steps.retain(|step| matches!(step, Step::RemoveRun(keys) if state.whole.range(keys.clone()).next().is_some()));
        for key in KEYS {
            let is_there = state.whole.contains_key(&key);
            steps.extend(
                is_there
                    .then_some([Step::Remove(key), Step::Replace(key)])
                    .into_iter()
                    .flatten(),
            );
            steps.extend((!is_there).then_some(Step::Add(key)));
        }
        steps.extend((state.waiting.len() > 1).then_some(Step::Checkpoint));
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        let mut change = Change::default();
        match step {
            Step::Add(key) => Self::add(&mut next, *key, &mut change),
            Step::Remove(key) => self.remove_name(&mut next, *key, &mut change),
            Step::Replace(key) => {
                self.remove_name(&mut next, *key, &mut change);
                Self::add(&mut next, *key, &mut change);
            }
            Step::RemoveRun(keys) => self.remove_run(&mut next, keys, &mut change),
            Step::Checkpoint => {
                self.join(&mut next);
                return Ok(next);
            }
        }
        next.left -= 1;
        next.waiting.push(change);
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let made = self.made(state)?;
        if made == state.whole {
            Ok(())
        } else {
            Err(format!("{made:?} in the place of {:?}", state.whole))
        }
    }

    fn is_end(&self, state: &State) -> bool {
        state.left == 0
    }
}

#[test]
fn what_waits_comes_to_the_tree_of_before() {
    holds("waiting changes", &World { broken: None });
}

#[test]
fn a_rule_of_changes_that_wait_is_missed() {
    let rules = [
        Rule::TakenAtOnce,
        Rule::NamesFirst,
        Rule::RunsInOrder,
        Rule::ComesLast,
        Rule::RunCountsTree,
    ];
    for rule in rules {
        misses(rule, &World { broken: Some(rule) });
    }
}
