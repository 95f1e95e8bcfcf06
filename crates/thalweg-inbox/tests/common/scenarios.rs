//! Small models: what a few processes do beside each other.

use std::path::Path;

use thalweg_env::Env;
use thalweg_env::sim::{CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ReadsAfter};
use thalweg_inbox::Limits;

use super::check::{Crashes, crash, recover};
use super::machine;
use super::oracle::LATE_TABLE;
use super::script::{Cells, Op, Script, commit, limits};
use super::world::{Found, Plan, World, explore};

pub const TABLES: u32 = 3;
/// What the clock of the simulated machine shows.
const NOW: i64 = 1_735_689_600_000_000_000;
const REGISTRY: &str = "/db/inbox/registry";

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
    /// A call that fails once.
    pub fault: Option<FaultRule>,
    /// Whether the registry is the one before the last of the processes before.
    pub is_registry_old: bool,
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

/// All of them where `STATES` is large; the usual number is a matter of minutes.
fn max_states() -> usize {
    let given = std::env::var("STATES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(30_000)
}

/// Logs of one frame each.
fn short_logs() -> Limits {
    Limits {
        log_bytes: 4096 + 256,
        first_bytes: 4096 + 256,
        ..limits()
    }
}

/// The sync of a log fails once: through the handle that it was made with under the name of `.new`, or a later one.
fn failing_sync(
    name: &'static str,
    file: &str,
    skip: u64,
    reads: ReadsAfter,
    scripts: &[Script],
) -> Scenario {
    let fault = Fault::FlushError {
        errno: Errno::IO,
        reads,
    };
    let rule = FaultRule::new(fault)
        .on(&[CallKind::SyncData])
        .path_suffix(file);
    Scenario {
        name,
        scripts: scripts.to_vec(),
        kills: 0,
        crashes: Some(USUAL),
        limits: limits(),
        states: max_states(),
        before: Vec::new(),
        fault: Some(rule.skip(skip).once()),
        is_registry_old: false,
        is_reported: true,
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, scripts: &[Script]| Scenario {
        name,
        scripts: scripts.to_vec(),
        kills: 0,
        crashes: None,
        limits: limits(),
        states: max_states(),
        before: Vec::new(),
        fault: None,
        is_registry_old: false,
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
            ..crashing("fragments", &[array(&[staged(1, 1), staged(1, 2)])])
        },
        killing(
            "a killed process and a reader",
            &[
                array(&[commit(1, 1)]),
                array(&[commit(1, 2)]),
                array(&[Op::Snapshot]),
            ],
        ),
        crashing(
            "everything in order",
            &[
                array(&[commit(1, 1), staged(2, 1), commit(3, 1)]),
                Script::writer(&[
                    Op::Settle,
                    commit(1, 1),
                    Op::Adopt,
                    Op::Vacuum {
                        table: 1,
                        time: 1000,
                    },
                    Op::Drop(3),
                    Op::Adopt,
                    Op::Remove,
                ])
                .after(0),
                array(&[commit(1, 2), staged(1, 3), Op::Snapshot]).after(1),
            ],
        ),
        crashing(
            "what a reader was shown",
            &[array(&[commit(1, 1)]), array(&[Op::Snapshot])],
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
                Script::writer(&[commit(1, 1), Op::Remove, Op::Adopt, Op::Remove]),
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
                array(&[at(1, 1, NOW - 70), commit(1, 1)]).clock(&[NOW]),
                Script::writer(&[Op::Vacuum {
                    table: 1,
                    time: NOW - 40,
                }])
                .clock(&[NOW + 10]),
                array(&[Op::Snapshot]),
            ],
        )
        .with_before(&[array(&[
            at(1, 1, NOW - 100),
            at(1, 1, NOW - 50),
            commit(2, 9),
        ])]),
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
                &[array(&[
                    commit(1, 1),
                    commit(1, 2),
                    commit(1, 3),
                    Op::Snapshot,
                ])],
            )
        }
        .with_limits(short_logs()),
        scenario(
            "settling beside a reader",
            &[array(&[commit(1, 1)]), array(&[Op::Snapshot])],
        )
        .after_crash(&[array(&[commit(1, 1), commit(1, 2)])]),
        Scenario {
            kills: 1,
            ..crashing(
                "another boot",
                &[
                    array(&[commit(1, 1)]),
                    Script::writer(&[Op::Settle, Op::Snapshot]).after(0),
                ],
            )
        }
        .after_crash(&[array(&[commit(1, 1)])]),
        Scenario {
            is_registry_old: true,
            crashes: Some(Crashes { fates: 24, ..USUAL }),
            ..scenario("an older registry", &[array(&[commit(1, 3), Op::Snapshot])])
        }
        .with_before(&[array(&[commit(1, 1)]), array(&[commit(1, 2)])]),
        Scenario {
            is_registry_old: true,
            ..crashing(
                "an older registry and another log",
                &[array(&[commit(1, 3), Op::Snapshot])],
            )
        }
        .with_before(&[array(&[commit(1, 1)]), array(&[commit(1, 2)])])
        .with_limits(short_logs()),
        failing_sync(
            "a failed sync",
            ".new",
            2,
            ReadsAfter::New,
            &[array(&[commit(1, 1), commit(1, 2), Op::Snapshot])],
        ),
        failing_sync(
            "a failed sync, settled by the writer",
            ".new",
            1,
            ReadsAfter::New,
            &[
                array(&[commit(1, 1)]),
                Script::writer(&[Op::Settle, Op::Snapshot]).after(0),
            ],
        ),
        failing_sync(
            "a failed sync later",
            ".log",
            0,
            ReadsAfter::New,
            &[array(&[commit(1, 1), commit(1, 2), Op::Snapshot])],
        ),
        failing_sync(
            "a failed sync beside adoption",
            ".new",
            2,
            ReadsAfter::Old,
            &[
                array(&[commit(1, 1), commit(1, 2)]),
                Script::writer(&[Op::Adopt]),
            ],
        ),
        scenario(
            "a new table",
            &[
                array(&[commit(LATE_TABLE, 1)]),
                Script::writer(&[Op::Create(LATE_TABLE)]),
                array(&[Op::Snapshot]),
            ],
        ),
        scenario(
            "a row that tells of cells",
            &[
                array(&[commit(1, 1)]),
                Script::writer(&[Op::Note]),
                array(&[Op::Snapshot]),
            ],
        ),
        killing(
            "a killed writer and what comes after",
            &[
                array(&[commit(1, 1), Op::Snapshot]),
                Script::writer(&[commit(1, 2)]),
            ],
        ),
        scenario(
            "removal of what was dropped, beside a reader",
            &[
                Script::writer(&[Op::Drop(1), Op::Adopt, Op::Remove]),
                array(&[Op::Snapshot]),
            ],
        )
        .with_before(&[array(&[staged(1, 1), commit(2, 1)])]),
        crashing(
            "removal before adoption",
            &[Script::writer(&[Op::Settle, Op::Remove, Op::Snapshot])],
        )
        .with_before(&[array(&[commit(1, 1), commit(1, 2)])])
        .with_limits(short_logs()),
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
        let now_ns = || Env::os().clock().monotonic_ns();
        let began_ns = now_ns();
        let plan = Plan {
            kills: self.kills,
            crashes: self.crashes.is_some(),
            states: self.states,
            limits: self.limits,
            stop_early,
        };
        let mut sim = machine(1, TABLES);
        let mut before = super::oracle::History {
            faulty: if self.fault.is_some() { usize::MAX } else { 0 },
            is_registry_old: self.is_registry_old,
            ..Default::default()
        };
        let mut registries = Vec::new();
        for (at, script) in self.before.iter().enumerate() {
            if script.after == Some(usize::MAX) {
                sim.sync_everything();
                sim = sim.crash_image(&CrashChoice::KeepAll);
                continue;
            }
            let runs = super::check::run_in_order(
                &sim,
                std::slice::from_ref(script),
                30 + at,
                self.limits,
            );
            super::oracle::sequential(&mut before, &runs);
            registries.push(sim.read_file(Path::new(REGISTRY)).unwrap());
        }
        sim.sync_everything();
        if self.is_registry_old {
            let old = &registries[registries.len() - 2];
            sim.overwrite_file(Path::new(REGISTRY), 0, old).unwrap();
        }
        if let Some(rule) = &self.fault {
            sim.set_plan(FaultPlan::none().rule(rule.clone()));
        }
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
                let ended = world.sim.branch();
                ended.set_plan(FaultPlan::none());
                found.extend(recover(&ended, history, TABLES, limits));
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
                (now_ns() - began_ns) / 1_000_000,
                if found.is_cut { ", cut" } else { "" }
            );
        }
        found
    }
}
