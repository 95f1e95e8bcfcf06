//! Stage 9: every byte of every file changed, every file cut at every length, deleted, replaced by an older copy or by that of
//! a twin, blocks swapped. The answer is an error that names a file, or the right rows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_env::sync::Mutex;
use thalweg_sim::damage::{
    DamageReport, End, change_every_byte, cut_everywhere, damage_of_a_crashed_database,
    files_of_a_twin, older_copies, one_slot_of_the_root_lost, short_name, specimen, swap_blocks,
};
use thalweg_sim::oracle::difference;
use thalweg_sim::report::{Stopwatch, say};

const THREADS: usize = 2;

fn conclude(what: &str, report: &DamageReport) {
    say(format_args!(
        "damage: {what}: {} mutants: {} errors that name the file, {} that name another, {} unaffected, {} violations",
        report.mutants,
        report.errors,
        report.errors_elsewhere,
        report.unaffected,
        report.violations.len()
    ));
    let first: Vec<_> = report.violations.iter().take(12).cloned().collect();
    assert!(first.is_empty(), "{what}:\n{}", first.join("\n"));
}

#[test]
fn every_byte_and_every_length_of_every_file() {
    let specimen = specimen();
    let files: Vec<(PathBuf, u64)> = specimen.sim.files();
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    say(format_args!(
        "damage: a database of {bytes} bytes in {} files",
        files.len()
    ));
    let clock = Stopwatch::start();
    let (next, total) = (
        AtomicUsize::new(0),
        Mutex::new((DamageReport::default(), DamageReport::default())),
    );
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((path, _)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let changed = change_every_byte(&specimen, path, usize::MAX);
                    let cut = cut_everywhere(&specimen, path);
                    let mut total = total.lock();
                    total.0.add(changed);
                    total.1.add(cut);
                }
            });
        }
    });
    let (changed, cut) = total.into_inner();
    say(format_args!(
        "damage: {} databases opened in {:.0} s",
        changed.mutants + cut.mutants,
        clock.seconds()
    ));
    conclude("bytes changed", &changed);
    conclude("files cut, lengthened or deleted", &cut);
    assert!(changed.mutants + cut.mutants > 50_000);
    assert!(changed.errors > 0 && changed.unaffected > 0);
}

#[test]
fn swapped_blocks() {
    let report = swap_blocks(&specimen());
    conclude("blocks swapped", &report);
    assert!(report.mutants > 10);
    assert_eq!(
        report.unaffected, 0,
        "blocks of different rows were swapped"
    );
}

#[test]
fn files_of_a_database_that_went_another_way() {
    let report = files_of_a_twin();
    conclude("files of a twin", &report);
    assert!(report.errors > 1);
}

#[test]
fn a_lost_slot_of_the_root_costs_no_commit() {
    let report = one_slot_of_the_root_lost();
    conclude("a slot of the root lost", &report);
    assert_eq!(report.unaffected, report.mutants);
}

#[test]
fn a_damaged_log_after_a_crash() {
    let report = damage_of_a_crashed_database(1);
    conclude("log damaged after a crash", &report);
    assert!(report.errors > 1000 && report.unaffected > 1000);
}

/// Root and what `live` proves, together, are a database of another time: only who kept a copy could tell.
fn is_whole(names: &[String]) -> bool {
    ["root", "live"]
        .iter()
        .all(|needed| names.iter().any(|name| name == needed))
}

#[test]
fn older_copies_of_files() {
    let specimen = specimen();
    let (mut errors, mut unaffected, mut earlier) = (0, 0, Vec::new());
    let mut violations = Vec::new();
    for copy in older_copies(&specimen) {
        let names: Vec<_> = copy.files.iter().map(|path| short_name(path)).collect();
        let (_, then) = &specimen.earlier[copy.time];
        let place = format!("{names:?} as of close {}", copy.time);
        match copy.end {
            End::Error(_) => errors += 1,
            End::Rows(rows) if rows == specimen.contents => unaffected += 1,
            // The true rows of then: all that says otherwise was put back as well.
            End::Rows(rows) if rows == *then && is_whole(&names) => earlier.push(place),
            End::Rows(rows) => {
                let difference = difference(&specimen.contents, &rows);
                violations.push(format!("{place}: wrong rows: {difference}"));
            }
            End::Panic(text) => violations.push(format!("{place}: {text}")),
        }
    }
    say(format_args!(
        "damage: older copies: {errors} errors, {unaffected} unaffected, {} rolled back unnoticed: {earlier:?}",
        earlier.len()
    ));
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(errors > 0 && unaffected > 0);
}
