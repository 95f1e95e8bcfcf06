//! Sectors that the device cannot read, as a power cut during their write may leave them.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::ops::Range;
use std::path::PathBuf;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ItemFate, Kept, PendingItem, SimEnv,
};
use thalweg_kernel::{Durability, ErrorKind, Options, Result, TableId};
use thalweg_sim::toy::{Row, Toy};
use thalweg_sim::workloads::{DELETES, WORKLOADS};

const SECTOR_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 64;

fn open(sim: &SimEnv) -> Result<Toy> {
    let options = Options {
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64)
}

fn rows(first: i64, count: usize) -> Vec<Row> {
    // Random values, so that no codec makes them small.
    let value = |key: i64| {
        let mixed = (key ^ (key >> 7)).wrapping_mul(0x2545_F491_4F6C_DD1D);
        (mixed ^ (mixed >> 29)).wrapping_mul(0x1B87_3593_CC9E_2D51)
    };
    (first..).take(count).map(|key| (key, value(key))).collect()
}

/// Reads of these bytes of a file fail.
fn unreadable(sim: &SimEnv, name: &str, bytes: Range<u64>) {
    let fails = FaultRule::new(Fault::Error(Errno::IO))
        .on(&[CallKind::Read])
        .path_suffix(name)
        .bytes(bytes);
    sim.set_plan(FaultPlan::none().rule(fails));
}

/// The segment that was written to last, and where the last frame in it ends.
fn end_of_log(sim: &SimEnv) -> (String, u64) {
    let segments = sim.files().into_iter().map(|(path, _)| path);
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "seg");
    let last = segments.filter(is_segment).max().unwrap();
    let bytes = sim.read_file(&last).unwrap();
    let mut at = 128;
    while bytes[at..].starts_with(b"TFRM") {
        at += u32::from_le_bytes(bytes[at + 24..at + 28].try_into().unwrap()) as usize;
    }
    let name = last.file_name().unwrap().to_str().unwrap();
    (name.to_owned(), at as u64)
}

/// A database with 300 rows that are on disk, and its table.
fn acknowledged() -> (SimEnv, Toy, TableId) {
    let sim = SimEnv::new(21);
    let toy = open(&sim).unwrap();
    let table = toy.create("t").unwrap();
    toy.append_group(table, &rows(0, 200), 64, Durability::Disk)
        .unwrap();
    for row in 200..300 {
        toy.append(table, &rows(row, 1), Durability::Disk).unwrap();
    }
    (sim, toy, table)
}

#[test]
fn what_lies_behind_the_end_of_the_log_stops_no_opening() {
    let (sim, _toy, table) = acknowledged();
    let (segment, end) = end_of_log(&sim);
    for crash in [
        CrashChoice::DropAll,
        CrashChoice::KeepAll,
        CrashChoice::Kill,
    ] {
        for behind in [1, 2, 7] {
            let sim = sim.crash_image(&crash);
            let sector = end.next_multiple_of(SECTOR_BYTES) + behind * SECTOR_BYTES;
            unreadable(&sim, &segment, sector..sector + SECTOR_BYTES);
            let toy = open(&sim).unwrap();
            assert_eq!(toy.rows(table).unwrap(), rows(0, 300));
        }
    }
}

#[test]
fn where_the_log_may_go_on_an_unreadable_sector_is_no_end() {
    let (sim, _toy, table) = acknowledged();
    let (segment, end) = end_of_log(&sim);
    for crash in [
        CrashChoice::DropAll,
        CrashChoice::KeepAll,
        CrashChoice::Kill,
    ] {
        let sim = sim.crash_image(&crash);
        let of_log = || {
            let mut files = sim.files();
            files.retain(|(path, _)| path.starts_with("/db/log"));
            files
        };
        let files = of_log();
        for _ in 0..3 {
            unreadable(&sim, &segment, end..end + HEADER_BYTES);
            let error = open(&sim).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
            assert!(error.to_string().contains("acknowledged"), "{error}");
            assert_eq!(of_log(), files);
        }
        // Read again, it shows what is there.
        sim.set_plan(FaultPlan::none());
        assert_eq!(open(&sim).unwrap().rows(table).unwrap(), rows(0, 300));
    }
}

#[test]
fn an_unreadable_sector_hides_no_acknowledged_commit() {
    let (sim, toy, table) = acknowledged();
    // The last commit, whose sync nothing proves once `live` is that of before.
    let (segment, last) = end_of_log(&sim);
    toy.append(table, &rows(300, 1), Durability::Disk).unwrap();
    let sim = sim.crash_image(&CrashChoice::DropAll);
    for bytes in [
        last..last + HEADER_BYTES,
        last + HEADER_BYTES..last + 2 * HEADER_BYTES,
    ] {
        unreadable(&sim, &segment, bytes);
        assert_eq!(open(&sim).unwrap_err().kind(), ErrorKind::Io);
    }
    sim.set_plan(FaultPlan::none());
    assert_eq!(open(&sim).unwrap().rows(table).unwrap(), rows(0, 301));
}

#[test]
fn a_frame_that_was_torn_inside_is_no_commit_behind_a_power_cut() {
    let (sim, toy, table) = acknowledged();
    let (segment, start) = end_of_log(&sim);
    // Never synced, and large: some sectors hold bytes of this frame alone.
    toy.append_group(table, &rows(1_000, 3_000), 1_000, Durability::Memory)
        .unwrap();
    let (_, end) = end_of_log(&sim);
    assert!(
        end > start + 5 * SECTOR_BYTES,
        "a frame from {start} to {end}"
    );
    let inside = start.next_multiple_of(SECTOR_BYTES) + SECTOR_BYTES;
    let last = end / SECTOR_BYTES * SECTOR_BYTES;
    let cut = sim.crash_image(&CrashChoice::KeepAll);
    unreadable(&cut, &segment, inside..inside + SECTOR_BYTES);
    assert_eq!(open(&cut).unwrap().rows(table).unwrap(), rows(0, 300));
    // The sector at its end may hold the beginning of another one.
    let cut = sim.crash_image(&CrashChoice::KeepAll);
    unreadable(&cut, &segment, last..end);
    assert_eq!(open(&cut).unwrap_err().kind(), ErrorKind::Io);
    // Without a power cut nothing was torn.
    let killed = sim.crash_image(&CrashChoice::Kill);
    unreadable(&killed, &segment, inside..inside + SECTOR_BYTES);
    assert_eq!(open(&killed).unwrap_err().kind(), ErrorKind::Io);
    killed.set_plan(FaultPlan::none());
    let all = [rows(0, 300), rows(1_000, 3_000)].concat();
    assert_eq!(open(&killed).unwrap().rows(table).unwrap(), all);
}

#[test]
fn live_is_made_anew_where_it_cannot_be_read() {
    let (sim, _toy, table) = acknowledged();
    // Once, and until it is written as a whole.
    for times in [1, 3] {
        let sim = sim.crash_image(&CrashChoice::KeepAll);
        let fails = FaultRule::new(Fault::Error(Errno::IO))
            .on(&[CallKind::Read])
            .path_suffix("/live")
            .times(times);
        sim.set_plan(FaultPlan::none().rule(fails));
        let toy = open(&sim).unwrap();
        toy.append(table, &rows(300, 1), Durability::Disk).unwrap();
        assert_eq!(toy.rows(table).unwrap(), rows(0, 301));
        let sim = sim.crash_image(&CrashChoice::DropAll);
        assert_eq!(open(&sim).unwrap().rows(table).unwrap(), rows(0, 301));
    }
}

#[test]
fn one_slot_of_the_root_suffices() {
    let (sim, toy, table) = acknowledged();
    toy.kernel.checkpoint().unwrap();
    toy.append(table, &rows(300, 1), Durability::Disk).unwrap();
    for slot in [0..SECTOR_BYTES, SECTOR_BYTES..2 * SECTOR_BYTES] {
        let sim = sim.crash_image(&CrashChoice::DropAll);
        unreadable(&sim, "/root", slot);
        assert_eq!(open(&sim).unwrap().rows(table).unwrap(), rows(0, 301));
    }
    let sim = sim.crash_image(&CrashChoice::DropAll);
    unreadable(&sim, "/root", 0..2 * SECTOR_BYTES);
    assert_eq!(open(&sim).unwrap_err().kind(), ErrorKind::Io);
}

/// Of a file that is written in place and never synced.
fn torn_in_place(name: &str) -> (SimEnv, TableId) {
    let (sim, toy, table) = acknowledged();
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let reader = Toy::open(&sim.env_of_process(7), "/db", &options, 64).unwrap();
    toy.append(table, &rows(300, 1), Durability::Disk).unwrap();
    assert_eq!(reader.rows(table).unwrap(), rows(0, 301));
    let pending = sim.pending_items();
    let is_of_file = |item: &PendingItem| match item {
        PendingItem::Write { path, .. } => path.ends_with(name),
        _ => false,
    };
    let mut fates = vec![ItemFate::Keep; pending.len()];
    fates[pending.iter().rposition(is_of_file).unwrap()] = ItemFate::Unreadable {
        unit_bytes: 512,
        kept: Kept::Bits(0),
        unreadable: Kept::Bits(1),
    };
    let image = sim.crash_image(&CrashChoice::Items(fates));
    assert_eq!(image.unreadable_files().len(), 1);
    (image, table)
}

#[test]
fn what_processes_tell_each_other_stops_no_reader_when_it_was_torn() {
    for name in ["live", "readers"] {
        let (sim, table) = torn_in_place(name);
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let read = |process_id| {
            let reader = Toy::open(&sim.env_of_process(process_id), "/db", &options, 64);
            reader.unwrap().rows(table).unwrap()
        };
        assert_eq!(read(8), rows(0, 301), "{name}");
        // A writer makes it whole again.
        let toy = open(&sim).unwrap();
        toy.append(table, &rows(301, 1), Durability::Disk).unwrap();
        assert!(sim.unreadable_files().is_empty(), "{name}");
        assert_eq!(read(9), rows(0, 302), "{name}");
    }
}

/// A call of an opening that fails for want of something says nothing of what is stored.
#[test]
fn a_read_that_fails_for_want_of_space_is_no_damage() {
    let mut failed = 0;
    for workload in WORKLOADS.iter().chain(&DELETES) {
        let shape = workload.shape();
        let sim = SimEnv::new(5);
        let _driver = workload.run(&sim, false);
        let image = sim.crash_image(&CrashChoice::KeepAll);
        let whole = image.crash_image(&CrashChoice::KeepAll);
        shape.open(&whole.env()).unwrap();
        for call in 1..=whole.calls() {
            let image = image.crash_image(&CrashChoice::KeepAll);
            let fails = FaultRule::new(Fault::Error(Errno::NOSPC))
                .on(&[CallKind::Read, CallKind::Open])
                .at_call(call);
            image.set_plan(FaultPlan::none().rule(fails));
            let Err(error) = shape.open(&image.env()) else {
                continue;
            };
            failed += 1;
            assert_ne!(error.kind(), ErrorKind::Corruption, "call {call}: {error}");
        }
    }
    assert!(failed > 50, "{failed}");
}
