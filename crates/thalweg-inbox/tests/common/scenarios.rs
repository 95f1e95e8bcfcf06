//! Small models: what a few processes do beside each other.

use std::time::Instant;

use thalweg_inbox::Limits;

use super::check::{Crashes, crash, recover};
use super::machine;
use super::script::{Cells, Op, Script, commit, limits};
use super::world::{Found, Plan, World, explore};

pub const TABLES: u32 = 3;

/// A model and how far it is tried.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub scripts: Vec<Script>,
    /// Processes that are killed, at any call.
    pub kills: usize,
    /// Whether power is cut at each state of the disk.
    pub crashes: Option<Crashes>,
    pub limits: Limits,
    /// No more states than these are looked at.
    pub states: usize,
    /// What was there before.
    pub before: Vec<Script>,
    /// Whether the counts are printed.
    pub is_reported: bool,
}

const USUAL: Crashes = Crashes {
    subsets: 4,
    tears: 2,
    fates: 1,
};

fn staged(table: u32, coordinate: u64) -> Op {
    Op::Commit(Cells {
        is_staged: true,
        ..Cells::of(&[(table, coordinate)])
    })
}

fn dependent(table: u32, coordinate: u64) -> Op {
    Op::Commit(Cells {
        depends: true,
        ..Cells::of(&[(table, coordinate)])
    })
}

fn at(table: u32, coordinate: u64, time: i64) -> Op {
    Op::Commit(Cells {
        at: Some(time),
        ..Cells::of(&[(table, coordinate)])
    })
}

/// Logs of one frame each.
fn short_logs() -> Limits {
    Limits {
        log_bytes: 4096 + 256,
        first_bytes: 4096 + 256,
        ..limits()
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, scripts: &[Script]| Scenario {
        name,
        scripts: scripts.to_vec(),
        kills: 0,
        crashes: None,
        limits: limits(),
        states: 60_000,
        before: Vec::new(),
        is_reported: true,
    };
    let crashing = |name, scripts: &[Script]| Scenario {
        crashes: Some(USUAL),
        ..scenario(name, scripts)
    };
    let killing = |name, scripts: &[Script]| Scenario {
        kills: 1,
        ..scenario(name, scripts)
    };
    let array = |ops: &[Op]| Script::other(ops);
    vec![
        Scenario {
            kills: 1,
            ..crashing(
                "one array process",
                &[array(&[commit(1, 1), commit(1, 1), Op::Snapshot])],
            )
        },
        Scenario {
            kills: 1,
            ..crashing(
                "two array processes",
                &[array(&[commit(1, 1)]), array(&[commit(1, 1)]).clock(&[900])],
            )
        },
        Scenario {
            kills: 1,
            ..crashing(
                "fragments",
                &[array(&[staged(1, 1), staged(1, 2)])],
            )
        },
        killing(
            "a killed process and a reader",
            &[array(&[commit(1, 1)]), array(&[commit(1, 2)]), array(&[Op::Snapshot])],
        ),
        scenario(
            "a reader",
            &[
                array(&[commit(1, 1)]),
                Script::writer(&[commit(1, 2)]),
                array(&[Op::Snapshot]),
            ],
        ),
        scenario(
            "two snapshots beside adoption",
            &[
                array(&[commit(1, 1)]),
                Script::writer(&[Op::Adopt]),
                array(&[Op::Snapshot, Op::Snapshot]),
            ],
        ),
        killing(
            "a killed writer",
            &[
                array(&[commit(1, 1)]),
                Script::writer(&[commit(1, 1)]),
                Script::writer(&[Op::Snapshot]).after(1),
            ],
        ),
        Scenario {
            kills: 1,
            ..crashing(
                "adoption",
                &[Script::writer(&[
                    Op::Settle,
                    Op::Adopt,
                    commit(1, 1),
                    Op::Adopt,
                    Op::Remove,
                    Op::Snapshot,
                ])],
            )
        }
        .with_before(&[array(&[commit(1, 1), staged(2, 1), commit(1, 2)])]),
        scenario(
            "removal beside a reader",
            &[
                Script::writer(&[Op::Adopt, Op::Remove]),
                array(&[Op::Snapshot]),
            ],
        )
        .with_before(&[array(&[commit(1, 1), commit(1, 2), staged(1, 3)])])
        .with_limits(short_logs()),
        scenario(
            "removal of what is held, beside a reader",
            &[
                Script::writer(&[commit(1, 1), Op::Adopt, Op::Remove]),
                array(&[Op::Snapshot]),
            ],
        )
        .with_before(&[array(&[commit(1, 1), staged(1, 3)])])
        .with_limits(short_logs()),
        killing(
            "removal beside a process with fragments",
            &[Script::writer(&[Op::Remove]), array(&[staged(1, 1)])],
        ),
        scenario(
            "drop",
            &[
                array(&[commit(1, 1), commit(1, 2)]),
                Script::writer(&[Op::Drop(1), Op::Adopt]),
                array(&[Op::Snapshot]),
            ],
        ),
        scenario(
            "definition",
            &[
                array(&[commit(1, 1), commit(1, 2)]),
                Script::writer(&[Op::Define(1, 2)]),
            ],
        ),
        Scenario {
            kills: 1,
            ..crashing(
                "drop of what waits",
                &[Script::writer(&[
                    commit(2, 1),
                    Op::Drop(1),
                    Op::Adopt,
                    Op::Remove,
                ])],
            )
        }
        .with_before(&[array(&[commit(1, 1), staged(1, 1)])]),
        scenario(
            "vacuum",
            &[
                array(&[at(1, 1, 950), commit(1, 1)]).clock(&[1000]),
                Script::writer(&[Op::Vacuum { table: 1, time: 990 }]).clock(&[2000]),
                array(&[Op::Snapshot]),
            ],
        )
        .with_before(&[array(&[commit(1, 1), commit(1, 1)]).clock(&[900, 980])]),
        scenario(
            "cells that depend",
            &[array(&[dependent(1, 1)]), array(&[dependent(1, 1)])],
        ),
        scenario(
            "cells that depend, beside the writer",
            &[
                array(&[dependent(1, 1)]),
                Script::writer(&[dependent(1, 1)]),
            ],
        ),
        scenario(
            "clocks that jump",
            &[
                array(&[commit(1, 1), commit(1, 1)]).clock(&[5000, 10]),
                Script::writer(&[commit(1, 1), Op::Adopt, commit(1, 1)]).clock(&[20, 7000]),
            ],
        ),
        Scenario {
            kills: 1,
            ..crashing(
                "many logs",
                &[array(&[commit(1, 1), commit(1, 2), commit(1, 3), Op::Snapshot])],
            )
        }
        .with_limits(short_logs()),
        scenario(
            "settling beside a reader",
            &[array(&[commit(1, 1)]), array(&[Op::Snapshot])],
        )
        .after_crash(&[array(&[commit(1, 1), commit(1, 2)])]),
    ]
}

impl Scenario {
    fn with_before(self, before: &[Script]) -> Scenario {
        Scenario {
            before: before.to_vec(),
            ..self
        }
    }

    fn with_limits(self, limits: Limits) -> Scenario {
        Scenario { limits, ..self }
    }

    /// What was there before is of another boot.
    fn after_crash(self, before: &[Script]) -> Scenario {
        let cut = Script::writer(&[]).after(usize::MAX);
        let before = before.iter().cloned().chain([cut]).collect();
        Scenario { before, ..self }
    }

    /// Tries it.
    pub fn run(&self, stop_early: bool) -> Found {
        let began = Instant::now();
        let plan = Plan {
            kills: self.kills,
            crashes: self.crashes.is_some(),
            states: self.states,
            limits: self.limits,
            stop_early,
        };
        let mut sim = machine(1, TABLES);
        let mut before = super::oracle::History::default();
        for (at, script) in self.before.iter().enumerate() {
            if script.after == Some(usize::MAX) {
                sim.sync_everything();
                sim = sim.crash_image(&thalweg_env::sim::CrashChoice::KeepAll);
                continue;
            }
            let runs = super::check::run_in_order(&sim, std::slice::from_ref(script), 30 + at, self.limits);
            super::oracle::sequential(&mut before, &runs);
        }
        sim.sync_everything();
        let start = World::new(sim, &self.scripts, self.kills).with_before(before, 0);
        let limits = self.limits;
        let found = explore(start, &self.scripts, &plan, |world, history, is_over| {
            let mut count = 0;
            let mut found = Vec::new();
            if let Some(crashes) = self.crashes {
                let (tried, problems) = crash(&world.sim, history, TABLES, limits, crashes, 7);
                count += tried;
                found.extend(problems);
            }
            if is_over {
                count += 1;
                found.extend(recover(&world.sim.branch(), history, TABLES, limits));
            }
            (count, found)
        });
        if self.is_reported && found.violations.is_empty() {
            eprintln!(
                "{}: {} states, {} ends, {} recoveries, {} ms{}",
                self.name,
                found.states,
                found.ends,
                found.crashes,
                began.elapsed().as_millis(),
                if found.is_cut { ", cut" } else { "" }
            );
        }
        found
    }
}
