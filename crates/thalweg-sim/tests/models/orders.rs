//! Ids of the orders of a table, where a commit that makes one is lost by a power cut or given up by a repair (`log.md`,
//! *Orders* and 9, 30).
//!
//! Checked in every state: an order holds entries of none but its own making.

use crate::explore::{Model, holds, misses};
use std::collections::BTreeMap;

/// What keeps entries of one order out of another one, as switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// What was prepared goes where numbers of commits are given again.
    PreparedGoes,
    /// A checkpoint holds the next id also where no order is left.
    NextIdKept,
    /// Entries name the definition version that they were made with.
    VersionChecked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Commit {
    /// The version of the definition that it was made for.
    version: u8,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Make {
        order: u8,
        making: u8,
    },
    Drop {
        order: u8,
    },
    /// Drops an order and makes another one, in one frame.
    Change {
        order: u8,
        new: u8,
        making: u8,
    },
    Add {
        order: u8,
        making: u8,
    },
}

/// The orders of a table: which making each is of, and the making of each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Table {
    version: u8,
    next_order: u8,
    orders: BTreeMap<u8, (u8, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    table: Table,
    checkpoint: Table,
    log: Vec<Commit>,
    synced: usize,
    prepared: Option<Commit>,
    next_making: u8,
    left: u8,
    repaired: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Make,
    Drop(u8),
    Change(u8),
    Prepare(u8),
    Add,
    Sync,
    Checkpoint,
    /// A recovery in place that does not find what was not synced.
    Lose,
    /// A repair that cannot read one frame.
    Repair(usize),
}

#[derive(Clone, Debug)]
struct World {
    broken: &'static [Rule],
}

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        !self.broken.contains(&rule)
    }

    /// Applies a commit; whether it fits: one that does not is left out.
    fn apply(&self, table: &mut Table, commit: Commit) -> bool {
        let is_add = matches!(commit.what, What::Add { .. });
        let is_checked = self.keeps(Rule::VersionChecked) || !is_add;
        if is_checked && commit.version != table.version {
            return false;
        }
        match commit.what {
            What::Make { order, making } => table.make(order, making),
            What::Drop { order } => {
                table.orders.remove(&order);
            }
            What::Change { order, new, making } => {
                table.orders.remove(&order);
                table.make(new, making);
            }
            What::Add { order, making } => {
                let order = table.orders.get_mut(&order);
                return order.map(|(_, entries)| entries.push(making)).is_some();
            }
        }
        table.version += 1;
        true
    }

    fn commit(&self, state: &mut State, version: u8, what: What) {
        let commit = Commit { version, what };
        if self.apply(&mut state.table, commit) {
            state.log.push(commit);
        }
    }

    fn replay(&self, state: &State, lost: Option<usize>) -> Table {
        let mut table = state.checkpoint.clone();
        for (at, commit) in state.log.iter().enumerate() {
            if lost != Some(at) {
                self.apply(&mut table, *commit);
            }
        }
        table
    }
}

impl Table {
    fn make(&mut self, order: u8, making: u8) {
        self.orders.insert(order, (making, vec![]));
        self.next_order = self.next_order.max(order + 1);
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let table = Table {
            version: 1,
            next_order: 2,
            ..Table::default()
        };
        State {
            checkpoint: table.clone(),
            table,
            log: vec![],
            synced: 0,
            prepared: None,
            next_making: 1,
            left: 7,
            repaired: false,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        if state.left == 0 || state.repaired {
            return vec![];
        }
        let mut steps = vec![Step::Make, Step::Checkpoint];
        steps.extend(
            state
                .table
                .orders
                .keys()
                .flat_map(|&order| [Step::Drop(order), Step::Change(order), Step::Prepare(order)]),
        );
        steps.extend(state.prepared.map(|_| Step::Add));
        steps.extend(
            (state.synced < state.log.len())
                .then_some([Step::Sync, Step::Lose])
                .into_iter()
                .flatten(),
        );
        steps.extend((0..state.log.len()).map(Step::Repair));
        steps
    }

    fn take(&self, state: &State, step: &Step) -> Result<State, String> {
        let mut next = state.clone();
        next.left -= 1;
        let (order, making) = (state.table.next_order, state.next_making);
        let version = state.table.version;
        match *step {
            Step::Make => self.commit(&mut next, version, What::Make { order, making }),
            Step::Change(old) => {
                let new = if self.keeps(Rule::NextIdKept) {
                    order
                } else {
                    old
                };
                self.commit(
                    &mut next,
                    version,
                    What::Change {
                        order: old,
                        new,
                        making,
                    },
                );
            }
            Step::Drop(order) => self.commit(&mut next, version, What::Drop { order }),
            Step::Prepare(order) => {
                let (making, _) = state.table.orders[&order];
                next.prepared = Some(Commit {
                    version,
                    what: What::Add { order, making },
                });
            }
            Step::Add => {
                if let Some(prepared) = next.prepared.take() {
                    self.commit(&mut next, prepared.version, prepared.what);
                }
            }
            Step::Sync => next.synced = next.log.len(),
            Step::Checkpoint => {
                next.checkpoint = next.table.clone();
                next.log.clear();
                next.synced = 0;
                if !self.keeps(Rule::NextIdKept) {
                    let highest = next.table.orders.keys().max().copied();
                    next.table.next_order = highest.map_or(2, |order| order + 1);
                    next.checkpoint.next_order = next.table.next_order;
                }
            }
            Step::Lose => {
                next.log.truncate(next.synced);
                next.table = self.replay(&next, None);
                if self.keeps(Rule::PreparedGoes) {
                    next.prepared = None;
                }
            }
            Step::Repair(lost) => {
                next.table = self.replay(state, Some(lost));
                next.repaired = true;
            }
        }
        next.next_making += u8::from(matches!(step, Step::Make | Step::Change(_)));
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        for (order, (making, entries)) in &state.table.orders {
            if entries.iter().any(|entry| entry != making) {
                return Err(format!(
                    "order {order} has entries of another one with its id"
                ));
            }
        }
        Ok(())
    }

    fn is_end(&self, state: &State) -> bool {
        state.left == 0 || state.repaired
    }
}

#[test]
fn an_order_holds_its_own_entries() {
    holds("orders", &World { broken: &[] });
}

/// Ids that are never used again and versions of the definition do the same; where one fails the other one holds.
#[test]
fn what_keeps_orders_apart_is_missed() {
    misses(
        Rule::PreparedGoes,
        &World {
            broken: &[Rule::PreparedGoes],
        },
    );
    holds(
        "ids alone",
        &World {
            broken: &[Rule::VersionChecked],
        },
    );
    holds(
        "versions alone",
        &World {
            broken: &[Rule::NextIdKept],
        },
    );
    let both = &[Rule::VersionChecked, Rule::NextIdKept];
    misses(both, &World { broken: both });
}
