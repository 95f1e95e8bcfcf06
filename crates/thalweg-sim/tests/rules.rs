//! Experiment 2 of the design, kept as a test: with any one rule of the log broken, the crashes and damages of the other
//! stages find a violation; with all of them kept they find none.

use std::panic::{set_hook, take_hook};
use thalweg_env::OpenMode;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::index::MAX_PAGE_ENTRIES;
use thalweg_kernel::{Durability, Options, Rule, break_rule, limit_page_entries};
use thalweg_sim::checkpoints::{damage_checkpoints, damage_sectors, with_differences};
use thalweg_sim::crash::{CrashPlan, crash_everywhere};
use thalweg_sim::damage::{
    change_every_byte, damage_of_a_crashed_database, files_of_a_twin, one_slot_of_the_root_lost,
    specimen,
};
use thalweg_sim::files::files_of;
use thalweg_sim::masks::{
    border_of_a_range_while_it_is_merged, carried_rows_not_hidden, last_rows_deleted,
    merge_of_blocks_beside_a_range, rewritten_without_deleted_rows, row_deleted_twice,
    rows_that_came_into_a_range,
};
use thalweg_sim::oracle::Violation;
use thalweg_sim::orders::{
    replacement_of_a_key_that_was_used_again, row_deleted_while_it_is_rewritten,
    rows_beside_a_build,
};
use thalweg_sim::report::{say, seed};
use thalweg_sim::toy::Toy;
use thalweg_sim::uses::leaves_in_old_segments;
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
        Rule::NamedItems => replacement_of_a_key_that_was_used_again(),
        Rule::CompleteRanges => rows_beside_a_build(),
        Rule::HiddenRowsAddUp => {
            let violations = row_deleted_while_it_is_rewritten();
            [violations, border_of_a_range_while_it_is_merged()].concat()
        }
        Rule::NewPositions => row_deleted_twice(),
        Rule::LeavingItems => last_rows_deleted(),
        Rule::CarriedHidden => carried_rows_not_hidden(),
        Rule::MasksGo => rewritten_without_deleted_rows(),
        Rule::CountedPages => {
            limit_page_entries(4);
            let found = leaves_in_old_segments();
            limit_page_entries(MAX_PAGE_ENTRIES);
            found
        }
        Rule::RunsOfSnapshot => rows_that_came_into_a_range(),
        Rule::RunsRefuseNobody => merge_of_blocks_beside_a_range(),
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

/// A slot of the root is lost. A writer writes it anew and is killed before its sync. A power cut strikes the next one in each of
/// its syncs of the root, and keeps and tears what was not synced in many ways: one of the slots is whole.
fn killed_before_the_root_was_synced() -> Vec<Violation> {
    let mut violations = Vec::new();
    for (lost, background) in [(0, false), (1, false), (0, true), (1, true)] {
        let sim = SimEnv::new(3);
        let made = sim.opened(background).and_then(|toy| {
            let table = toy.create("t")?;
            toy.append(table, &[(0, 0), (1, 1), (2, 2)], Durability::Disk)?;
            toy.kernel.close()
        });
        violations.extend(made.err().map(|e| e.to_string()));
        lose_slot(&sim, lost);
        for (first, second) in (0..9).map(|n| (n / 3, n % 3)) {
            let killed = sim.struck_in_sync(first, background);
            let killed = killed.crash_image(&CrashChoice::Kill);
            let struck = killed.struck_in_sync(second, background);
            let choices = (0..64).map(|seed| CrashChoice::Random {
                seed,
                unreadable: false,
            });
            for choice in choices {
                match struck
                    .crash_image(&choice)
                    .opened(false)
                    .and_then(|toy| rows_of_t(&toy))
                {
                    Ok(3) => {}
                    other => {
                        violations.push(format!("sync {first}, {second}, {choice:?}: {other:?}"))
                    }
                }
            }
        }
    }
    violations
}

const SLOT_BYTES: usize = 4096;

trait Openings {
    fn opened(&self, background: bool) -> thalweg_kernel::Result<Toy>;

    /// The machine when a writer dies in a sync of the root.
    fn struck_in_sync(&self, skip: u64, background: bool) -> SimEnv;
}

impl Openings for SimEnv {
    fn opened(&self, background: bool) -> thalweg_kernel::Result<Toy> {
        Toy::open(&self.env(), "/db", &options(background), 8)
    }

    fn struck_in_sync(&self, skip: u64, background: bool) -> SimEnv {
        let next = self.crash_image(&CrashChoice::Kill);
        let crash = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
        let crash = crash.path_suffix("root").skip(skip).once();
        next.set_plan(FaultPlan::none().rule(crash));
        // An epoch begins with its first commit, which the power cut may take.
        drop(next.opened(background).and_then(|toy| toy.create("u")));
        next
    }
}

/// Overwrites a slot of the root with zeros, durably.
fn lose_slot(sim: &SimEnv, slot: u64) {
    let path = std::path::Path::new("/db/root");
    let file = sim.env().storage().open(path, OpenMode::ReadWrite);
    let lost = file.and_then(|file| {
        file.write_all_at(&[0; SLOT_BYTES], slot * SLOT_BYTES as u64)?;
        file.sync_data()
    });
    assert!(lost.is_ok(), "nothing hinders it");
}

fn options(background: bool) -> Options {
    Options {
        segment_bytes: 8192,
        background,
        ..Options::default()
    }
}

/// How many rows there are.
fn rows_of_t(toy: &Toy) -> thalweg_kernel::Result<usize> {
    let snapshot = toy.kernel.snapshot()?;
    let table = snapshot.table_named("t");
    table.map_or(Ok(0), |table| Ok(toy.rows_of(&table)?.len()))
}

#[test]
fn every_rule_is_missed_when_it_is_broken() {
    let seed = seed();
    for &rule in Rule::ALL {
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
