//! Experiment 2 of the design, kept as a test: with any one rule of the log broken, the crashes and damages of the other
//! stages find a violation; with all of them kept they find none.

use std::panic::{set_hook, take_hook};
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::{Durability, Options, Rule, TableId, break_rule};
use thalweg_sim::checkpoints::{damage_checkpoints, damage_sectors, with_differences};
use thalweg_sim::crash::{CrashPlan, crash_everywhere};
use thalweg_sim::damage::{
    change_every_byte, damage_of_a_crashed_database, files_of_a_twin, one_slot_of_the_root_lost,
    specimen,
};
use thalweg_sim::driver::Driver;
use thalweg_sim::files::files_of;
use thalweg_sim::oracle::Violation;
use thalweg_sim::report::{say, seed};
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::Toy;
use thalweg_sim::workloads::{ONE_COVER, Workload, named};

/// A part of a stage that is there to miss the rule.
fn violations(rule: Rule, seed: u64) -> Vec<Violation> {
    let crashes = |workload: &Workload| {
        let plan = CrashPlan {
            subsets: 6,
            tears: 6,
            fates: 2,
            deep_every: 1,
            again_every: 8,
            third_every: 0,
            early_every: 1,
            stop_early: true,
            ..CrashPlan::usual(seed)
        };
        crash_everywhere(workload, &plan).violations
    };
    match rule {
        Rule::Epoch => crashes(named("tails")),
        Rule::Chain => files_of_a_twin().violations,
        Rule::Proof => damage_of_a_crashed_database(16).violations,
        Rule::CoverDrops => crashes(&ONE_COVER),
        Rule::CoverCounts => crashes(named("cover")),
        Rule::RewriteTail => crashes(named("groups")),
        Rule::ConfirmRoot => killed_before_the_root_was_synced(),
        Rule::BothSlots => one_slot_of_the_root_lost().violations,
        Rule::TwoBases => {
            damage_checkpoints(&with_differences(9, false), 1 << 20)
                .repaired
                .violations
        }
        Rule::OwnSectors => damage_sectors(&with_differences(3, true)).1,
        Rule::SyncBeforeNext | Rule::SyncNames => crashes(named("rolls")),
        Rule::HideUnsynced => crashes(named("raw rows to disk")),
        Rule::Checksum => {
            let specimen = specimen();
            files_of(&specimen.sim)
                .into_keys()
                .filter(|path| path.extension().is_some_and(|kind| kind == "frag"))
                .flat_map(|path| change_every_byte(&specimen, &path, 1).violations)
                .collect()
        }
    }
}

/// A writer is killed when it has written a slot of the root and not synced it. A power cut strikes the next one in each of its
/// calls, and keeps and tears what was not synced in many ways.
fn killed_before_the_root_was_synced() -> Vec<Violation> {
    let shape = Shape::new(8192, 8);
    let sim = SimEnv::new(3);
    let mut db = Driver::start(&sim, shape.clone(), true);
    db.create("t");
    db.append("t", 0..3, Durability::Disk);
    let sync = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
    sim.set_plan(FaultPlan::none().rule(sync.path_suffix("root")));
    db.checkpoint();
    let mut violations = Vec::new();
    for background in [false, true] {
        let next = sim.crash_image(&CrashChoice::Kill);
        next.record_states(true);
        // An epoch begins with its first commit.
        let toy = Toy::open(&next.env(), "/db", &options(background), 8);
        let committed = toy.and_then(|toy| {
            let table = toy.kernel.snapshot()?.table_named("t");
            let table = table.map_or(TableId(1), |table| table.id);
            toy.append(table, &[(3, 3)], Durability::Disk)?;
            toy.kernel.close()
        });
        violations.extend(committed.err().map(|e| e.to_string()));
        for call in 1..=next.calls() {
            let Some(state) = next.state_at(call) else {
                continue;
            };
            for seed in 0..24 {
                let unreadable = false;
                let image = state.crash_image(&CrashChoice::Random { seed, unreadable });
                let rows = shape
                    .open(&image.env())
                    .and_then(|toy| contents_of_table(&toy));
                match rows {
                    Ok(3 | 4) => {}
                    other => violations.push(format!("call {call}, seed {seed}: {other:?}")),
                }
            }
        }
    }
    violations
}

fn options(background: bool) -> Options {
    Options {
        segment_bytes: 8192,
        background,
        ..Options::default()
    }
}

/// How many rows there are.
fn contents_of_table(toy: &Toy) -> thalweg_kernel::Result<usize> {
    let snapshot = toy.kernel.snapshot()?;
    let table = snapshot.table_named("t");
    table.map_or(Ok(0), |table| Ok(toy.rows_of(&table)?.len()))
}

#[test]
fn every_rule_is_missed_when_it_is_broken() {
    let seed = seed();
    for rule in Rule::ALL {
        let kept = violations(rule, seed);
        assert!(kept.is_empty(), "with all rules kept: {}", kept.join("\n"));
        // Panics are violations here, and expected: they need not be printed.
        let hook = take_hook();
        set_hook(Box::new(|_| {}));
        break_rule(Some(rule));
        let broken = violations(rule, seed);
        break_rule(None);
        set_hook(hook);
        let first = broken.first();
        let first = first.unwrap_or_else(|| panic!("nothing misses {rule:?}, seed {seed}"));
        say(format_args!(
            "rules: without {rule:?}: {}",
            first.lines().next().unwrap_or_default()
        ));
    }
}
