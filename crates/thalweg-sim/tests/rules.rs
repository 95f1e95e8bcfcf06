//! Experiment 2 of the design, kept as a test: with any one rule of the log broken, the crashes and damages of the other
//! stages find a violation; with all of them kept they find none.

use std::panic::{set_hook, take_hook};
use thalweg_kernel::{Rule, break_rule};
use thalweg_sim::checkpoints::{damage_checkpoints, damage_sectors, with_differences};
use thalweg_sim::crash::{CrashPlan, crash_everywhere};
use thalweg_sim::damage::{
    change_every_byte, damage_of_a_crashed_database, files_of, files_of_a_twin,
    one_slot_of_the_root_lost, specimen,
};
use thalweg_sim::oracle::Violation;
use thalweg_sim::orders::{
    replacement_of_a_key_that_was_used_again, row_deleted_while_it_is_rewritten,
    rows_beside_a_build,
};
use thalweg_sim::report::{say, seed};
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
        Rule::BothSlots => one_slot_of_the_root_lost().violations,
        Rule::TwoBases => {
            damage_checkpoints(&with_differences(9, false), 1 << 20)
                .repaired
                .violations
        }
        Rule::OwnSectors => damage_sectors(&with_differences(3, true)).1,
        Rule::SyncBeforeNext | Rule::SyncNames => crashes(named("rolls")),
        Rule::HideUnsynced => crashes(named("raw rows to disk")),
        Rule::NamedItems => replacement_of_a_key_that_was_used_again(),
        Rule::CompleteRanges => rows_beside_a_build(),
        Rule::HiddenRowsAddUp => row_deleted_while_it_is_rewritten(),
        Rule::LoweredCoverage => crashes(named("indexes")),
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
