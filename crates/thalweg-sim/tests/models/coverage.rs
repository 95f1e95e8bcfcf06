//! The coverage of an index beside appends, late rows, covers of open rows, merges, builds and switches (`log.md`).
//!
//! Checked in every state: each row of a block that counts as covered has its entry in the index.

use crate::explore::{Model, holds, misses};
use std::collections::{BTreeMap, BTreeSet};

/// A rule of coverage, as a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Blocks that come without entries lower the coverage of their keys.
    Lowers,
    /// They lower it to the commit before their first one, not to the one before that of their frame.
    BeforeFirst,
    /// Ranges are not listed where blocks came without entries since their maker looked.
    ListingChecked,
    /// A merged block has the last commit of all of its sources.
    LargestLast,
    /// A block is covered if all keys from its smallest to its largest one are.
    AllKeys,
    /// A bound is compared with the last commit of a block, not with its first one.
    LastCompared,
}

/// A block of order 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Block {
    /// Rows as (key, which one).
    rows: Vec<(u8, u8)>,
    first: u8,
    last: u8,
}

impl Block {
    fn keys(&self) -> std::ops::RangeInclusive<u8> {
        let keys = self.rows.iter().map(|(key, _)| *key);
        keys.clone().min().unwrap_or(0)..=keys.max().unwrap_or(0)
    }
}

/// A build that has read the rows of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Build {
    seen: u8,
    entries: BTreeSet<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    commit: u8,
    next_row: u8,
    open: Vec<(u8, u8, u8)>,
    blocks: Vec<Block>,
    indexed: BTreeSet<u8>,
    /// Up to which commit a key is covered; none: not at all.
    covered: BTreeMap<u8, u8>,
    /// Blocks that came without entries: their commit, first commit and keys.
    bare: Vec<(u8, u8, BTreeSet<u8>)>,
    build: Option<Build>,
    left: u8,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u8),
    /// Appends a block with two keys, with its entries or without.
    Encode(u8, u8, bool),
    Cover(bool),
    Merge,
    StartBuild,
    /// Lists the range of keys up to this one.
    List(u8),
    SwitchOff(u8),
}

const KEYS: std::ops::RangeInclusive<u8> = 1..=3;
const ALL: u8 = u8::MAX;

#[derive(Clone, Debug)]
struct World {
    broken: Option<Rule>,
}

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Brings a block, with its entries in the same commit or without.
    fn add(&self, state: &mut State, block: Block, complete: bool) {
        let keys: BTreeSet<u8> = block.keys().collect();
        if complete {
            state.indexed.extend(block.rows.iter().map(|(_, row)| *row));
        } else {
            state.bare.push((state.commit, block.first, keys.clone()));
            let to = if self.keeps(Rule::BeforeFirst) {
                block.first - 1
            } else {
                state.commit - 1
            };
            for (_, covered) in state
                .covered
                .iter_mut()
                .filter(|(key, _)| keys.contains(key) && self.keeps(Rule::Lowers))
            {
                *covered = (*covered).min(to);
            }
        }
        state.blocks.push(block);
        state.blocks.sort_unstable();
    }

    fn cover(&self, state: &mut State, complete: bool) {
        let open = std::mem::take(&mut state.open);
        let commits = open.iter().map(|(commit, _, _)| *commit);
        let (Some(first), Some(last)) = (commits.clone().min(), commits.max()) else {
            return;
        };
        let rows = open.iter().map(|(_, key, row)| (*key, *row)).collect();
        self.add(state, Block { rows, first, last }, complete);
    }

    fn merge(&self, state: &mut State) {
        let sources = std::mem::take(&mut state.blocks);
        let first = sources.iter().map(|block| block.first).min().unwrap_or(0);
        let lasts = sources.iter().map(|block| block.last);
        let last = if self.keeps(Rule::LargestLast) {
            lasts.max()
        } else {
            lasts.min()
        };
        let rows = sources.into_iter().flat_map(|block| block.rows).collect();
        state.blocks.push(Block {
            rows,
            first,
            last: last.unwrap_or(0),
        });
    }

    fn list(&self, state: &mut State, to_key: u8) {
        let Some(build) = state.build.take() else {
            return;
        };
        let bound = build.seen;
        let meets = |(commit, first, keys): &(u8, u8, BTreeSet<u8>)| {
            *commit > build.seen && *first <= bound && keys.iter().any(|key| *key <= to_key)
        };
        if state.bare.iter().any(meets) && self.keeps(Rule::ListingChecked) {
            return;
        }
        state.indexed.extend(build.entries);
        for key in KEYS.filter(|key| *key <= to_key) {
            let covered = state.covered.entry(key).or_insert(bound);
            *covered = (*covered).max(bound);
        }
    }

    fn is_covered(&self, state: &State, block: &Block) -> bool {
        let commit = if self.keeps(Rule::LastCompared) {
            block.last
        } else {
            block.first
        };
        let is = |key: u8| {
            state
                .covered
                .get(&key)
                .is_some_and(|covered| *covered >= commit)
        };
        if self.keeps(Rule::AllKeys) {
            block.keys().all(is)
        } else {
            block.keys().any(is)
        }
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            commit: 1,
            next_row: 1,
            open: vec![],
            blocks: vec![],
            indexed: BTreeSet::new(),
            covered: KEYS.map(|key| (key, ALL)).collect(),
            bare: vec![],
            build: None,
            left: 5,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        if state.left == 0 {
            return vec![];
        }
        let mut steps = vec![Step::Open(1), Step::Open(3), Step::SwitchOff(2)];
        steps.extend(
            [(1, 1), (1, 3)]
                .into_iter()
                .flat_map(|(a, b)| [Step::Encode(a, b, true), Step::Encode(a, b, false)]),
        );
        steps.extend(
            (!state.open.is_empty())
                .then_some([Step::Cover(true), Step::Cover(false)])
                .into_iter()
                .flatten(),
        );
        steps.extend((state.blocks.len() > 1).then_some(Step::Merge));
        steps.push(if state.build.is_none() {
            Step::StartBuild
        } else {
            Step::List(3)
        });
        steps.extend(state.build.is_some().then_some(Step::List(1)));
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        next.left -= 1;
        match *step {
            Step::StartBuild => {
                let entries = next
                    .blocks
                    .iter()
                    .flat_map(|block| &block.rows)
                    .map(|(_, row)| *row)
                    .collect();
                next.build = Some(Build {
                    seen: next.commit,
                    entries,
                });
                return Ok(next);
            }
            Step::List(to) => {
                self.list(&mut next, to);
                return Ok(next);
            }
            _ => next.commit += 1,
        }
        let row = next.next_row;
        match *step {
            Step::Open(key) => {
                next.open.push((next.commit, key, row));
                next.next_row += 1;
            }
            Step::Encode(low, high, complete) => {
                let (first, last) = (next.commit, next.commit);
                self.add(
                    &mut next,
                    Block {
                        rows: vec![(low, row), (high, row + 1)],
                        first,
                        last,
                    },
                    complete,
                );
                next.next_row += 2;
            }
            Step::Cover(complete) => self.cover(&mut next, complete),
            Step::Merge => self.merge(&mut next),
            Step::SwitchOff(key) => {
                next.covered.remove(&key);
            }
            Step::StartBuild | Step::List(_) => {}
        }
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let covered = state
            .blocks
            .iter()
            .filter(|block| self.is_covered(state, block));
        let lacks = |block: &&Block| {
            block
                .rows
                .iter()
                .any(|(_, row)| !state.indexed.contains(row))
        };
        match covered.into_iter().find(lacks) {
            Some(block) => Err(format!(
                "{block:?} counts as covered, and has rows without entries"
            )),
            None => Ok(()),
        }
    }

    fn is_end(&self, state: &State) -> bool {
        state.left == 0
    }
}

#[test]
fn covered_blocks_have_all_their_entries() {
    holds("coverage", &World { broken: None });
}

#[test]
fn a_rule_of_coverage_that_is_left_out_is_missed() {
    let rules = [
        Rule::Lowers,
        Rule::BeforeFirst,
        Rule::ListingChecked,
        Rule::LargestLast,
        Rule::AllKeys,
        Rule::LastCompared,
    ];
    for rule in rules {
        misses(rule, &World { broken: Some(rule) });
    }
}
