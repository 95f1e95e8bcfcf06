//! A writing process is killed again and again: while it makes the database, recovers it, appends, syncs.

use crate::roles::{Place, TABLE};
use crate::rows::{self, Batches, THREADS, missing};
use crate::{random, setting};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use thalweg::{Database, ErrorKind};

/// Kills of one database, before it gets too large to be read as a whole each time.
const KILLS_OF_ONE: u64 = 10;

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let kills = setting("THALWEG_KILLS", 150);
    let mut random = random("kill");
    let start = Instant::now();
    let (mut acknowledged, mut rows, mut opens_ms) = (0, 0, Vec::new());
    for first in (0..kills).step_by(usize::try_from(KILLS_OF_ONE).unwrap()) {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            database: folder.path().join("killed.thal"),
            largest_rows: 500_000,
            pause_ms: 0,
        };
        let of_one = KILLS_OF_ONE.min(kills - first);
        for kill in 1..=of_one {
            kill_writer(&place, Duration::from_millis(random.u64(1..=500)));
            // Sometimes the next writer is the first to see what is left, and may be killed while it recovers.
            if kill == of_one || random.u8(..4) > 0 {
                check(&place, &mut random, &mut opens_ms);
            }
        }
        place.ledger().assert_no_failure();
        acknowledged += place.ledger().acknowledged().iter().sum::<u64>();
        rows += rows_in(&place);
    }
    opens_ms.sort_unstable_by(f64::total_cmp);
    println!(
        "{kills} kills in {:.0} s: {acknowledged} acknowledged batches and {rows} rows checked, 0 lost, 0 twice; \
         opened in {:.1} ms (median), {:.1} ms (slowest)",
        start.elapsed().as_secs_f64(),
        opens_ms[opens_ms.len() / 2],
        opens_ms[opens_ms.len() - 1],
    );
    assert!(
        acknowledged > 0,
        "no batch was acknowledged: nothing was tested"
    );
}

fn kill_writer(place: &Place, after: Duration) {
    let mut writer = place.start("writer", 0);
    std::thread::sleep(after);
    writer.kill().unwrap();
    let status = writer.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "the writer failed by itself");
}

/// Opens what is left, read-only or for writing, and compares it with the ledger.
fn check(place: &Place, random: &mut fastrand::Rng, opens_ms: &mut Vec<f64>) {
    let acknowledged = place.ledger().acknowledged();
    let read_only = random.bool();
    let start = Instant::now();
    let db = match Database::builder()
        .read_only(read_only)
        .open(&place.database)
    {
        Err(error) if read_only && error.kind() == ErrorKind::NotFound => {
            assert_eq!(acknowledged, [0; THREADS], "the database is gone");
            return;
        }
        opened => opened.unwrap(),
    };
    opens_ms.push(start.elapsed().as_secs_f64() * 1e3);
    let there: Batches = match db.table(TABLE) {
        Err(error) if error.kind() == ErrorKind::NotFound => [0; THREADS],
        table => rows::check(&table.unwrap().view().unwrap(), place.largest_rows).unwrap(),
    };
    if let Some(lost) = missing(&there, &acknowledged) {
        panic!("lost by a kill: {lost}");
    }
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    // Closed or just left: the next one must cope with both.
    if random.bool() {
        db.close().unwrap();
    }
}

fn rows_in(place: &Place) -> u64 {
    let db = Database::open(&place.database).unwrap();
    db.table(TABLE)
        .map_or(0, |table| table.view().unwrap().row_count())
}
