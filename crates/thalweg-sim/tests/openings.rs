//! Openings behind a killed writer, where a second thread does part of the work: what they show is on disk, whatever either of
//! the two has done when the power goes, and whichever call fails.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::{Options, TableId};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::{Contents, contents_of};
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::Toy;

const SEGMENT_BYTES: u64 = 16 << 10;
/// Rows that are known to be on disk.
const SYNCED: i64 = 5;

fn shape() -> Shape {
    Shape::new(SEGMENT_BYTES, 1000)
}

/// A database whose writer was killed behind a commit of so many rows that only the cache has.
fn killed(rows: i64) -> SimEnv {
    let sim = SimEnv::new(11);
    let mut db = Driver::start(&sim, shape(), false);
    db.create("t");
    db.append("t", 0..SYNCED, Disk);
    db.append_group("t", SYNCED..SYNCED + rows, Process);
    sim.crash_image(&CrashChoice::Kill)
}

fn open(sim: &SimEnv, background: bool) -> thalweg_kernel::Result<Toy> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        background,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 1000)
}

fn contents(image: &SimEnv) -> Contents {
    contents_of(&open(image, false).unwrap()).unwrap().1
}

/// How many rows an image has, unless it cannot be opened.
fn rows_of(image: &SimEnv) -> Option<i64> {
    let found = open(image, false).and_then(|toy| toy.rows(TableId(1)));
    i64::try_from(found.ok()?.len()).ok()
}

#[test]
fn what_an_opening_with_two_threads_shows_is_on_disk() {
    for rows in [1, 60, 600] {
        let killed = killed(rows);
        let shown = contents(&killed.crash_image(&CrashChoice::Kill));
        // Where one of the threads cannot be started, its work is done all the same.
        for refused in [None, Some(0), Some(1)] {
            let struck = killed.crash_image(&CrashChoice::Kill);
            if let Some(number) = refused {
                struck.set_plan(FaultPlan::refuse_thread(number));
            }
            struck.record_states(true);
            let toy = open(&struck, true).unwrap();
            for call in 1..=struck.calls() {
                let Some(state) = struck.state_at(call) else {
                    continue;
                };
                for seed in 0..16 {
                    let unreadable = seed % 4 == 0;
                    let found =
                        rows_of(&state.crash_image(&CrashChoice::Random { seed, unreadable }));
                    // A sector that cannot be read may be one that was acknowledged.
                    let is_whole = found.map_or(unreadable, |found| {
                        found == SYNCED || found == SYNCED + rows
                    });
                    assert!(is_whole, "call {call}, seed {seed}: {found:?}");
                }
            }
            assert_eq!(contents_of(&toy).unwrap().1, shown);
            // From here on none of it may be lost.
            for seed in 0..64 {
                let unreadable = false;
                let image = struck.crash_image(&CrashChoice::Random { seed, unreadable });
                assert_eq!(contents(&image), shown, "{rows} rows, seed {seed}");
            }
        }
    }
}

#[test]
fn an_opening_with_two_threads_takes_no_failed_call_for_a_good_one() {
    let rows = 60;
    let killed = killed(rows);
    let calls = {
        let counted = killed.crash_image(&CrashChoice::Kill);
        let _toy = open(&counted, true).unwrap();
        counted.calls()
    };
    let lost = Fault::FlushError {
        errno: Errno::IO,
        reads: ReadsAfter::New,
    };
    let mut failed = 0;
    for call in 1..=calls {
        for fault in [Fault::ErrorAfter(Errno::IO), lost] {
            let struck = killed.crash_image(&CrashChoice::Kill);
            let rule = FaultRule::new(fault).at_call(call).once();
            struck.set_plan(FaultPlan::none().rule(rule));
            let toy = open(&struck, true);
            let least = match &toy {
                Ok(_) => SYNCED + rows,
                Err(_) => SYNCED,
            };
            failed += u64::from(toy.is_err());
            drop(toy);
            struck.set_plan(FaultPlan::none());
            for seed in 0..8 {
                let unreadable = false;
                let found = rows_of(&struck.crash_image(&CrashChoice::Random { seed, unreadable }));
                let is_kept = found.is_some_and(|found| found >= least);
                assert!(is_kept, "call {call}, seed {seed}: {found:?}");
            }
        }
    }
    assert!(failed > 10, "{failed} openings have failed");
}
