//! The kernel without faults: what goes in comes out, now and after opening again.
#![expect(clippy::disallowed_methods, reason = "real folders of the tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::{
    Durability, ErrorKind, Kernel, OpenRows, Options, Result, RowEncoder, TableSnapshot, TableState,
};
use thalweg_sim::toy::{Row, Toy, block, unpack};

fn inline() -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

fn range(keys: std::ops::Range<i64>) -> Vec<Row> {
    keys.map(|k| (k, k * 10)).collect()
}

#[test]
fn rows_survive_opening_again_in_every_form() {
    let sim = SimEnv::new(1);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let table = toy.create("t").unwrap();
    for k in 0..200 {
        toy.append(table, &range(k..k + 1), Durability::Disk)
            .unwrap();
    }
    toy.append_group(table, &range(200..1000), 100, Durability::Disk)
        .unwrap();
    toy.append_fragment(table, &range(1000..5000), 100).unwrap();
    toy.append(table, &range(5000..5010), Durability::Process)
        .unwrap();
    assert_eq!(toy.rows(table).unwrap(), range(0..5010));
    drop(toy);
    for round in 0..3 {
        let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
        assert_eq!(
            toy.rows(table).unwrap(),
            range(0..5010 + round),
            "round {round}"
        );
        toy.append(table, &range(5010 + round..5011 + round), Durability::Disk)
            .unwrap();
    }
}

#[test]
fn many_segments_and_checkpoints() {
    let sim = SimEnv::new(2);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let table = toy.create("t").unwrap();
    for k in 0..1_600 {
        toy.append_group(table, &range(k * 50..k * 50 + 50), 50, Durability::Process)
            .unwrap();
    }
    assert_eq!(toy.rows(table).unwrap(), range(0..80_000));
    let before = sim.stats();
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let read = sim.stats().bytes_read - before.bytes_read;
    // The checkpoint, and twice what is prepared behind it: for the next frame, and for proof that one was there.
    assert!(
        read < 3 * inline().segment_bytes,
        "opening a closed database read {read} bytes"
    );
    assert_eq!(toy.rows(table).unwrap(), range(0..80_000));
    // Dropping a table frees its files.
    let bytes_of_files = || sim.files().iter().map(|(_, bytes)| bytes).sum::<u64>();
    let other = toy.create("other").unwrap();
    toy.append(other, &range(0..3), Durability::Disk).unwrap();
    let before = bytes_of_files();
    let drop_table = thalweg_kernel::Edit::DropTable { table };
    let commit = thalweg_kernel::Commit {
        edits: vec![drop_table],
        ..Default::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
    let left = bytes_of_files();
    assert!(left < before * 3 / 4, "{left} of {before} bytes are left");
    assert_eq!(toy.rows(other).unwrap(), range(0..3));
    drop(toy);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    assert_eq!(toy.rows(other).unwrap(), range(0..3));
}

#[test]
fn single_rows_do_not_keep_their_segments() {
    let sim = SimEnv::new(3);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let table = toy.create("t").unwrap();
    let rows = 20_000;
    let mut early = None;
    for k in 0..rows {
        toy.append(table, &range(k..k + 1), Durability::Process)
            .unwrap();
        if k == rows / 4 {
            early = Some(toy.kernel.snapshot().unwrap());
        }
        if k == rows / 2 {
            let early = early.take().unwrap().table(table).unwrap();
            assert_eq!(toy.rows_of(&early).unwrap(), range(0..rows / 4 + 1));
        }
    }
    let log_bytes = || -> u64 {
        let segments = sim.files().into_iter();
        segments
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"))
            .map(|(_, bytes)| bytes)
            .sum()
    };
    let raw_bytes = rows.cast_unsigned() * 136;
    assert!(
        log_bytes() < raw_bytes / 2,
        "{} bytes of segments for {raw_bytes} of frames",
        log_bytes()
    );
    assert_eq!(toy.rows(table).unwrap(), range(0..rows));
    drop(toy);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    assert_eq!(toy.rows(table).unwrap(), range(0..rows));
}

#[test]
fn a_killed_writer_loses_nothing() {
    let sim = SimEnv::new(3);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 1000).unwrap();
    let table = toy.create("t").unwrap();
    for k in 0..100 {
        toy.append(table, &range(k..k + 1), Durability::Disk)
            .unwrap();
    }
    let image = sim.crash_image(&CrashChoice::DropAll);
    let again = Toy::open(&image.env(), "/db", &inline(), 1000).unwrap();
    assert_eq!(again.rows(table).unwrap(), range(0..100));
    let image = image.crash_image(&CrashChoice::DropAll);
    let again = Toy::open(&image.env(), "/db", &inline(), 1000).unwrap();
    assert_eq!(again.rows(table).unwrap(), range(0..100));
}

/// Each of them would keep alive all that was read ahead with it.
#[test]
fn rows_of_a_replay_keep_nothing_else_in_memory() {
    let sim = SimEnv::new(7);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 1000).unwrap();
    let table = toy.create("t").unwrap();
    for k in 0..10 {
        toy.append(table, &range(k..k + 1), Durability::Process)
            .unwrap();
    }
    let killed = sim.crash_image(&CrashChoice::Kill);
    let toy = Toy::open(&killed.env(), "/db", &inline(), 1000).unwrap();
    let table = toy.kernel.snapshot().unwrap().table(table).unwrap();
    assert_eq!(table.open_rows().count(), 10);
    for rows in table.open_rows() {
        assert!(rows.part.payload.is_unique());
    }
}

#[test]
fn a_power_cut_takes_a_few_megabytes_of_what_nobody_syncs() {
    // Segments that are never full: leaving one syncs it.
    let options = Options {
        background: false,
        ..Options::default()
    };
    let open = |sim: &SimEnv| Toy::open(&sim.env(), "/db", &options, 1 << 20).unwrap();
    let sim = SimEnv::new(8);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let rows_each: i64 = 1 << 16;
    let mut max_rows = 0;
    for k in 1..=15 {
        let rows = range((k - 1) * rows_each..k * rows_each);
        toy.append(table, &rows, Durability::Process).unwrap();
        let left = open(&sim.crash_image(&CrashChoice::DropAll));
        let left = i64::try_from(left.rows(table).unwrap().len()).unwrap();
        max_rows = max_rows.max(k * rows_each - left);
    }
    let max_bytes = max_rows * 16;
    assert!(max_bytes <= 5 << 20, "{max_bytes} bytes of rows were lost");
}

#[test]
fn a_second_writer_is_refused_and_readers_follow() {
    let sim = SimEnv::new(4);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let second = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Locked);
    let table = toy.create("t").unwrap();
    let read_only = Options {
        read_only: true,
        ..inline()
    };
    let reader = Toy::open(&sim.env(), "/db", &read_only, 64).unwrap();
    let mut end = 0;
    for round in 0..300 {
        let next = end + 1 + round % 40;
        if round % 3 == 0 {
            toy.append_group(table, &range(end..next), 16, Durability::Disk)
                .unwrap();
        } else {
            toy.append(table, &range(end..next), Durability::Process)
                .unwrap();
        }
        end = next;
        assert_eq!(reader.rows(table).unwrap(), range(0..end), "round {round}");
    }
    assert_eq!(
        reader
            .append(table, &range(0..1), Durability::Disk)
            .unwrap_err()
            .kind(),
        ErrorKind::Unavailable
    );
    drop(toy);
    assert_eq!(reader.rows(table).unwrap(), range(0..end));
}

#[test]
fn several_threads_share_syncs_on_a_real_disk() {
    let folder = tempdir("threads");
    let options = Options {
        sync_interval: Duration::from_millis(5),
        ..Options::default()
    };
    let toy = Toy::open(&Env::os(), folder.to_str().unwrap(), &options, 64).unwrap();
    let table = toy.create("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let toy = &toy;
            scope.spawn(move || {
                for k in 0..200 {
                    let key = thread * 1000 + k;
                    let level = if k % 2 == 0 {
                        Durability::Disk
                    } else {
                        Durability::Process
                    };
                    toy.append(table, &range(key..key + 1), level).unwrap();
                }
            });
        }
    });
    let want: Vec<Row> = (0..8)
        .flat_map(|t| range(t * 1000..t * 1000 + 200))
        .collect();
    assert_eq!(toy.rows(table).unwrap(), want);
    drop(toy);
    let toy = Toy::open(&Env::os(), folder.to_str().unwrap(), &options, 64).unwrap();
    assert_eq!(toy.rows(table).unwrap(), want);
    drop(toy);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Nobody calls for it: no commit, no checkpoint.
#[test]
fn garbage_goes_soon_after_the_snapshot_that_needed_it() {
    let folder = tempdir("pins");
    let path = folder.to_str().unwrap();
    let toy = Toy::open(&Env::os(), path, &Options::default(), 64).unwrap();
    let read_only = Options {
        read_only: true,
        ..Options::default()
    };
    for in_other_handle in [false, true] {
        let table = toy.create("t").unwrap();
        toy.append_fragment(table, &range(0..1000), 100).unwrap();
        let reader = in_other_handle.then(|| Toy::open(&Env::os(), path, &read_only, 64).unwrap());
        let holder = reader.as_ref().unwrap_or(&toy);
        let held = holder.kernel.snapshot().unwrap();
        let drop_table = thalweg_kernel::Commit {
            edits: vec![thalweg_kernel::Edit::DropTable { table }],
            ..Default::default()
        };
        toy.kernel.commit(drop_table, Durability::Disk).unwrap();
        let fragments = || std::fs::read_dir(folder.join("data")).unwrap().count();
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(fragments(), 1, "what a snapshot needs was removed");
        let old = held.table(table).unwrap();
        assert_eq!(holder.rows_of(&old).unwrap(), range(0..1000));
        drop((held, old, reader));
        let mut waited = 0;
        while fragments() > 0 {
            std::thread::sleep(Duration::from_millis(50));
            waited += 1;
            assert!(waited < 200, "nobody looked again");
        }
    }
    toy.kernel.close().unwrap();
    drop(toy);
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempdir(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_check_that_is_cut_short_by_closing_finds_no_damage() {
    let sim = SimEnv::new(3);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    let table = toy.create("t").unwrap();
    for part in 0..20 {
        let rows = range(part * 500..part * 500 + 500);
        toy.append_fragment(table, &rows, 64).unwrap();
    }
    let read_only = Options {
        read_only: true,
        ..inline()
    };
    let reader = Toy::open(&sim.env(), "/db", &read_only, 64).unwrap();
    for toy in [&reader, &toy] {
        let mut told = 0;
        let report = toy.kernel.verify(&mut |_| {
            told += 1;
            if told == 3 {
                toy.kernel.close().unwrap();
            }
        });
        assert_eq!(report.unwrap_err().kind(), ErrorKind::Unavailable);
        let again = toy.kernel.verify(&mut |_| {}).unwrap_err();
        assert_eq!(again.message(), "the database is closed: open it again");
    }
}

/// Leaves the last row out.
struct Forgetful;

impl RowEncoder for Forgetful {
    fn block_rows(&self, _: &TableState) -> Result<u32> {
        Ok(64)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        let mut kept: Vec<Row> = { rows.iter() }
            .flat_map(|rows| unpack(&rows.part.payload))
            .collect();
        kept.pop();
        let commits = (rows[0].commit, rows[rows.len() - 1].commit);
        Ok(vec![block(table.id, kept, Some(commits))])
    }
}

#[test]
fn rows_that_an_encoder_leaves_out_stay_as_they_are() {
    let sim = SimEnv::new(8);
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &inline(), Arc::new(Forgetful));
    let toy = Toy {
        kernel: kernel.unwrap(),
    };
    let table = toy.create("t").unwrap();
    toy.append(table, &range(0..10), Durability::Disk).unwrap();
    let error = toy.kernel.encode_open_rows(table).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(toy.rows(table).unwrap(), range(0..10));
    drop(toy);
    let toy = Toy::open(&sim.env(), "/db", &inline(), 64).unwrap();
    assert_eq!(toy.rows(table).unwrap(), range(0..10));
}
