//! A real disk that gets full, with all threads of an open database.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "a real folder and another process"
)]

use std::process::Command;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_kernel::{Commit, Durability, Edit, ErrorKind, Options, TableId};
use thalweg_sim::report::{Stopwatch, say};
use thalweg_sim::toy::{Row, Toy};

const FOLDER: &str = "THALWEG_SMALL_DISK";
const NO_MOUNT: i32 = 99;
const ROUNDS: i64 = 50;
/// Space comes back in the background.
const STUCK_SECONDS: f64 = 20.0;

/// Runs this test again where a file system of 2 MiB is mounted on a folder, which nobody else sees.
#[test]
fn fifty_rounds_on_a_small_disk() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return rounds(folder.to_str().unwrap());
    }
    let folder = std::env::temp_dir().join(format!("thalweg-small-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let script = "mount -t tmpfs -o size=2m none \"$1\" || exit 99; exec \"$0\" --exact fifty_rounds_on_a_small_disk --nocapture";
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .args([std::env::current_exe().unwrap(), folder.clone()])
        .env(FOLDER, &folder)
        .output();
    std::fs::remove_dir_all(&folder).unwrap();
    match ran {
        Ok(ran) if ran.status.success() => say(String::from_utf8_lossy(&ran.stderr).trim()),
        Ok(ran) if ran.status.code() == Some(NO_MOUNT) || ran.stdout.is_empty() => {
            say(format_args!(
                "small disk: skipped, no file system may be mounted here: {}",
                String::from_utf8_lossy(&ran.stderr)
            ))
        }
        Ok(ran) => unreachable!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        ),
        Err(e) => say(format_args!("small disk: skipped, no unshare: {e}")),
    }
}

/// Rows that take their room: the values have no pattern.
fn rows(first: i64) -> Vec<Row> {
    let value = |key: i64| key.wrapping_mul(0x1E37_79B9_7F4A_7C15);
    (first..first + 400).map(|key| (key, value(key))).collect()
}

/// Appends until the disk is full.
fn fill(toy: &Toy, table: TableId) -> Vec<Row> {
    let mut stored = Vec::new();
    for k in 0..100_000 {
        let rows = rows(k * 400);
        match toy.append_group(table, &rows, 64, Durability::Process) {
            Ok(_) => stored.extend(rows),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "{e:?}");
                return stored;
            }
        }
    }
    unreachable!("the disk never gets full");
}

fn rounds(folder: &str) {
    let options = Options {
        segment_bytes: 128 << 10,
        sync_interval: Duration::from_millis(20),
        ..Options::default()
    };
    let folder = format!("{folder}/db");
    let toy = Toy::open(&Env::os(), &folder, &options, 64).unwrap();
    let keep = toy.create("keep").unwrap();
    toy.append(keep, &rows(0), Durability::Disk).unwrap();
    let mut kept = rows(0);
    let mut stored_rows = 0;
    for round in 1..=ROUNDS {
        let table = toy.create(&format!("round {round}")).unwrap();
        let stored = fill(&toy, table);
        assert_eq!(toy.rows(table).unwrap(), stored, "round {round}");
        assert_eq!(toy.rows(keep).unwrap(), kept, "round {round}");
        stored_rows += stored.len();
        let drop_table = Commit {
            edits: vec![Edit::DropTable { table }],
            ..Commit::default()
        };
        toy.kernel.commit(drop_table, Durability::Disk).unwrap();
        let clock = Stopwatch::start();
        let more = rows(round * 400);
        while let Err(e) = toy.append_group(keep, &more, 64, Durability::Disk) {
            assert_eq!(e.kind(), ErrorKind::DiskFull, "round {round}: {e:?}");
            assert!(clock.seconds() < STUCK_SECONDS, "round {round} is stuck");
            Env::os().clock().sleep(Duration::from_millis(5));
        }
        kept.extend(more);
    }
    assert!(toy.kernel.poison().is_none());
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = Toy::open(&Env::os(), &folder, &options, 64).unwrap();
    assert_eq!(toy.rows(keep).unwrap(), kept);
    say(format_args!(
        "small disk: {ROUNDS} rounds, {stored_rows} rows stored in them, 0 lost, 0 stuck"
    ));
}
