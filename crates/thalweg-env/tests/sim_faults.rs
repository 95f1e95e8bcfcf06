//! Each fault of the simulated machine, shown by what a caller sees.
#![cfg(not(feature = "shuttle"))]
#![expect(clippy::expect_used, reason = "helpers of tests fail loudly")]

mod common;

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{F, after, open, paths, read, with_file};
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, Fill, ItemFate, Kept, PAGE_BYTES,
    PendingItem, ReadsAfter, SECTOR_BYTES, SYNCS, SimEnv,
};
use thalweg_env::{LockKind, OpenMode};

fn items(fates: &[ItemFate]) -> CrashChoice {
    CrashChoice::Items(fates.to_vec())
}

fn errno(result: io::Result<impl std::fmt::Debug>) -> Option<i32> {
    result.expect_err("the call fails").raw_os_error()
}

fn one(fault: Fault, kind: CallKind) -> FaultPlan {
    FaultPlan::none().rule(FaultRule::new(fault).on(&[kind]).once())
}

#[test]
fn drop_keep_prefix_and_subsets() {
    let (sim, _env, file) = with_file(b"....");
    file.write_all_at(b"a", 0).unwrap();
    file.write_all_at(b"b", 1).unwrap();
    file.write_all_at(b"c", 2).unwrap();
    assert_eq!(sim.pending_items().len(), 3);
    assert_eq!(after(&sim, CrashChoice::DropAll), b"....");
    assert_eq!(after(&sim, CrashChoice::KeepAll), b"abc.");
    assert_eq!(after(&sim, CrashChoice::Prefix(2)), b"ab..");
    assert_eq!(after(&sim, CrashChoice::Mask(0b110)), b".bc.");
    assert_eq!(
        after(&sim, CrashChoice::Subset { seed: 5 }),
        after(&sim, CrashChoice::Subset { seed: 5 })
    );
    assert_eq!(read(&sim, F), b"abc.", "images leave the machine alone");
}

#[test]
fn a_sync_bounds_what_is_pending_of_its_file_alone() {
    let (sim, env, file) = with_file(b"..");
    let other = open(&env, "/g", OpenMode::CreateNew);
    env.storage().sync_dir(Path::new("/")).unwrap();
    file.write_all_at(b"a", 0).unwrap();
    other.write_all_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(b"b", 1).unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(
        (read(&image, F), read(&image, "/g")),
        (b"a.".to_vec(), Vec::new())
    );
}

#[test]
fn names_are_durable_apart_from_bytes() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let file = open(&env, F, OpenMode::CreateNew);
    file.write_all_at(b"data", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(
        paths(&sim.crash_image(&CrashChoice::DropAll)),
        Vec::<String>::new()
    );
    env.storage().sync_dir(Path::new("/")).unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b"data");
    env.storage()
        .rename(Path::new(F), Path::new("/new"))
        .unwrap();
    assert_eq!(
        sim.pending_items(),
        [PendingItem::Names(vec![
            ("f".into(), false),
            ("new".into(), true)
        ])]
    );
    assert_eq!(paths(&sim.crash_image(&CrashChoice::DropAll)), ["/f"]);
    assert_eq!(paths(&sim.crash_image(&CrashChoice::KeepAll)), ["/new"]);
    env.storage().remove_file(Path::new("/new")).unwrap();
    assert_eq!(paths(&sim.crash_image(&CrashChoice::Mask(0b01))), ["/new"]);
    env.storage().sync_dir(Path::new("/")).unwrap();
    assert_eq!(
        paths(&sim.crash_image(&CrashChoice::DropAll)),
        Vec::<String>::new()
    );
    assert_eq!(
        file.len_bytes().unwrap(),
        4,
        "an open handle outlives its name"
    );
}

#[test]
fn a_rename_between_directories_survives_whole_or_not() {
    let (sim, env, _file) = with_file(b"x");
    let storage = env.storage();
    storage.create_dir(Path::new("/d")).unwrap();
    storage.sync_dir(Path::new("/")).unwrap();
    storage.rename(Path::new(F), Path::new("/d/f")).unwrap();
    assert_eq!(paths(&sim.crash_image(&CrashChoice::DropAll)), ["/f"]);
    storage.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(paths(&sim.crash_image(&CrashChoice::DropAll)), ["/d/f"]);
}

#[test]
fn a_chain_of_renames_is_durable_with_its_last_directory() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let storage = env.storage();
    for dir in ["/a", "/b", "/c"] {
        storage.create_dir(Path::new(dir)).unwrap();
    }
    storage.sync_dir(Path::new("/")).unwrap();
    let file = open(&env, "/a/f", OpenMode::CreateNew);
    storage
        .rename(Path::new("/a/f"), Path::new("/b/f"))
        .unwrap();
    storage
        .rename(Path::new("/b/f"), Path::new("/c/f"))
        .unwrap();
    storage.sync_dir(Path::new("/c")).unwrap();
    for choice in [CrashChoice::DropAll, CrashChoice::KeepAll] {
        assert_eq!(paths(&sim.crash_image(&choice)), ["/c/f"]);
    }
    file.set_len(9).unwrap();
    let path = PathBuf::from("/c/f");
    assert_eq!(
        sim.pending_items(),
        [PendingItem::SetLen { path, len_bytes: 9 }]
    );
}

#[test]
fn writes_tear_at_sectors_and_pages() {
    let (sim, _env, file) = with_file(&[b'.'; 8192]);
    file.write_all_at(&[b'x'; 8192], 0).unwrap();
    let kept = |unit_bytes, kept| {
        let bytes = after(&sim, CrashChoice::TearLast { unit_bytes, kept });
        bytes
            .chunks(512)
            .map(|sector| char::from(sector[0]))
            .collect::<String>()
    };
    assert_eq!(kept(SECTOR_BYTES, Kept::First(3)), "xxx.............");
    assert_eq!(kept(SECTOR_BYTES, Kept::AllBut(1)), "x.xxxxxxxxxxxxxx");
    assert_eq!(kept(SECTOR_BYTES, Kept::Bits(0b1010)), ".x.x............");
    assert_eq!(kept(PAGE_BYTES, Kept::First(1)), "xxxxxxxx........");
}

#[test]
fn tears_lie_at_edges_of_the_disk_not_of_the_write() {
    let (sim, _env, file) = with_file(&[b'.'; 1024]);
    file.write_all_at(&[b'x'; 512], 256).unwrap();
    let bytes = after(
        &sim,
        CrashChoice::TearLast {
            unit_bytes: SECTOR_BYTES,
            kept: Kept::First(1),
        },
    );
    assert_eq!(bytes.iter().filter(|byte| **byte == b'x').count(), 256);
}

#[test]
fn a_torn_write_may_grow_the_file_whole_or_in_part() {
    let (sim, _env, file) = with_file(b"");
    file.write_all_at(&[b'x'; 2000], 0).unwrap();
    let torn = |grows| {
        after(
            &sim,
            items(&[ItemFate::Torn {
                unit_bytes: 512,
                kept: Kept::First(1),
                grows,
            }]),
        )
    };
    assert_eq!(torn(false), [b'x'; 512]);
    assert_eq!(torn(true).len(), 2000);
    assert!(torn(true)[512..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_grows_without_data_showing_zeros_or_stale_bytes() {
    let (sim, env, file) = with_file(b"head");
    let old = open(&env, "/old", OpenMode::CreateNew);
    old.write_all_at(b"0123456789", 0).unwrap();
    env.storage().remove_file(Path::new("/old")).unwrap();
    file.write_all_at(b"tail", 4).unwrap();
    let grown = |fill| {
        let fates = [
            ItemFate::Keep,
            ItemFate::Keep,
            ItemFate::Keep,
            ItemFate::SizeOnly(fill),
        ];
        after(&sim, items(&fates))
    };
    assert_eq!(grown(Fill::Zeros), b"head\0\0\0\0");
    assert_eq!(grown(Fill::Stale(0)), b"head4567");
}

#[test]
fn bytes_lost_in_a_crash_may_turn_up_again_in_the_next() {
    let (sim, _env, file) = with_file(b"head");
    file.write_all_at(b"tail", 4).unwrap();
    let second = sim.crash_image(&CrashChoice::DropAll);
    open(&second.env(), F, OpenMode::ReadWrite)
        .write_all_at(b"TAIL", 4)
        .unwrap();
    assert_eq!(
        after(&second, items(&[ItemFate::SizeOnly(Fill::Stale(0))])),
        b"headtail"
    );
}

#[test]
fn a_failed_sync_loses_pages_and_the_next_one_lies() {
    for (reads, seen) in [(ReadsAfter::New, b"ab.."), (ReadsAfter::Old, b"a...")] {
        let (sim, _env, file) = with_file(b"a...");
        file.write_all_at(b"b", 1).unwrap();
        sim.set_plan(one(
            Fault::FlushError {
                errno: Errno::IO,
                reads,
            },
            CallKind::SyncData,
        ));
        assert_eq!(errno(file.sync_data()), Some(Errno::IO.raw_os_error()));
        assert_eq!(read(&sim, F), seen);
        file.sync_data().unwrap();
        file.write_all_at(b"c", 2).unwrap();
        file.sync_data().unwrap();
        assert_eq!(
            after(&sim, CrashChoice::KeepAll),
            b"a.c.",
            "the lost byte stays lost, later ones are safe"
        );
    }
}

#[test]
fn a_failed_sync_of_a_directory_loses_its_names() {
    let (sim, env, _file) = with_file(b"");
    open(&env, "/g", OpenMode::CreateNew);
    sim.set_plan(one(
        Fault::FlushError {
            errno: Errno::IO,
            reads: ReadsAfter::New,
        },
        CallKind::SyncDir,
    ));
    assert_eq!(
        errno(env.storage().sync_dir(Path::new("/"))),
        Some(Errno::IO.raw_os_error())
    );
    env.storage().sync_dir(Path::new("/")).unwrap();
    assert_eq!(paths(&sim), ["/f", "/g"]);
    assert_eq!(paths(&sim.crash_image(&CrashChoice::KeepAll)), ["/f"]);
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let (sim, env, file) = with_file(b"");
    sim.set_quota(Some(8192));
    assert_eq!(env.storage().free_bytes(Path::new("/")).unwrap(), 8192);
    assert_eq!(
        file.write_at(&[1; 10_000], 0).unwrap(),
        8192,
        "what fits is written"
    );
    assert_eq!(
        file.write_at(&[2; 100], 0).unwrap(),
        100,
        "overwriting takes no room"
    );
    assert_eq!(
        errno(file.write_at(&[1], 8192)),
        Some(Errno::NOSPC.raw_os_error())
    );
    assert_eq!(
        errno(file.allocate(8192, 1)),
        Some(Errno::NOSPC.raw_os_error())
    );
    file.set_len(4096).unwrap();
    file.allocate(4096, 4096).unwrap();
    sim.set_quota(None);
    file.write_all_at(&[1; 10_000], 8192).unwrap();
}

#[test]
fn space_of_a_removed_file_comes_back_when_it_is_closed() {
    let (sim, env, file) = with_file(&[1; 8192]);
    sim.set_quota(Some(8192));
    env.storage().remove_file(Path::new(F)).unwrap();
    assert_eq!(env.storage().free_bytes(Path::new("/")).unwrap(), 0);
    drop(file);
    assert_eq!(env.storage().free_bytes(Path::new("/")).unwrap(), 8192);
}

#[test]
fn delayed_allocation_shows_a_full_disk_at_the_sync_only() {
    let (sim, _env, file) = with_file(b"");
    sim.set_quota(Some(4096));
    sim.set_quota_at_sync(true);
    file.write_all_at(&[1; 10_000], 0).unwrap();
    assert_eq!(errno(file.sync_data()), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(after(&sim, CrashChoice::KeepAll), b"");
    sim.set_quota(None);
    file.write_all_at(b"ok", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b"ok");
}

#[test]
fn short_and_interrupted_transfers_are_hidden_by_the_whole_ones() {
    let (sim, _env, file) = with_file(b"");
    let both = [CallKind::Read, CallKind::Write];
    let plan = FaultPlan::none()
        .rule(FaultRule::new(Fault::Error(Errno::INTR)).on(&both).once())
        .rule(FaultRule::new(Fault::Short(3)).on(&both).times(2));
    sim.set_plan(plan.clone());
    let mut slices = [
        IoSlice::new(b"he"),
        IoSlice::new(b""),
        IoSlice::new(b"llo wor"),
        IoSlice::new(b"ld"),
    ];
    file.write_all_vectored_at(&mut slices, 0).unwrap();
    assert_eq!(read(&sim, F), b"hello world");
    assert_eq!(
        sim.calls(),
        1 + 4,
        "open, interrupted, two short ones, the rest"
    );
    sim.set_plan(plan);
    let mut buf = [0; 11];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"hello world");
}

#[test]
fn transfers_of_no_bytes_are_errors_of_their_own() {
    let (sim, _env, file) = with_file(b"abc");
    sim.set_plan(FaultPlan::none().rule(FaultRule::new(Fault::Short(0))));
    assert_eq!(file.write_at(b"x", 0).unwrap(), 0);
    assert_eq!(
        file.write_all_at(b"x", 0).unwrap_err().kind(),
        ErrorKind::WriteZero
    );
    assert_eq!(
        file.read_exact_at(&mut [0; 3], 0).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
}

#[test]
fn reads_fail_or_are_damaged_where_the_rule_says() {
    let content: Vec<u8> = (0..=255).collect();
    let (sim, _env, file) = with_file(&content);
    let reading = |fault, range: std::ops::Range<u64>| {
        sim.set_plan(
            FaultPlan::none().rule(FaultRule::new(fault).on(&[CallKind::Read]).bytes(range)),
        );
        let mut buf = vec![0; 256];
        file.read_exact_at(&mut buf, 0).map(|()| buf)
    };
    assert_eq!(
        errno(reading(Fault::Error(Errno::IO), 10..20)),
        Some(Errno::IO.raw_os_error())
    );
    assert_eq!(reading(Fault::Error(Errno::IO), 256..300).unwrap(), content);
    let differing = |damaged: Vec<u8>| {
        let pairs = damaged.into_iter().zip(&content).enumerate();
        pairs
            .filter(|(_, (new, old))| new != *old)
            .map(|(at, (new, _))| (at, new))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        differing(reading(Fault::FlipBit(8 * 100 + 1), 0..256).unwrap()),
        [(100, 102)]
    );
    assert_eq!(
        differing(reading(Fault::Zeros, 20..22).unwrap()),
        [(20, 0), (21, 0)]
    );
    let moved = reading(Fault::Misdirected { from_offset: 200 }, 50..52).unwrap();
    assert_eq!(differing(moved), [(50, 200), (51, 201)]);
    assert_eq!(read(&sim, F), content, "the disk itself is sound");
}

#[test]
fn a_call_can_fail_though_it_took_effect() {
    let (sim, env, _file) = with_file(b"");
    sim.set_plan(one(Fault::ErrorAfter(Errno::IO), CallKind::Rename));
    assert_eq!(
        errno(env.storage().rename(Path::new(F), Path::new("/g"))),
        Some(Errno::IO.raw_os_error())
    );
    assert_eq!(paths(&sim), ["/g"]);
}

#[test]
fn calls_take_time_and_clocks_can_be_set() {
    let (sim, env, file) = with_file(b"");
    sim.set_tick_ns(0);
    let (start, wall) = (env.clock().monotonic_ns(), env.clock().wall_ns());
    sim.set_call_cost_ns(10);
    sim.set_plan(one(
        Fault::Delay(Duration::from_secs(2)),
        CallKind::SyncData,
    ));
    file.sync_data().unwrap();
    assert_eq!(env.clock().monotonic_ns() - start, 2_000_000_010);
    assert_eq!(env.clock().wall_ns() - wall, 2_000_000_010);
    sim.set_wall_stopped(true);
    env.clock().sleep(Duration::from_secs(1));
    assert_eq!(env.clock().monotonic_ns() - start, 3_000_000_010);
    assert_eq!(env.clock().wall_ns() - wall, 2_000_000_010);
    sim.set_wall_ns(-5);
    assert_eq!(env.clock().wall_ns(), -5);
    sim.set_wall_jitter_ns(100);
    let readings: Vec<i64> = (0..50).map(|_| env.clock().wall_ns()).collect();
    assert!(readings.iter().all(|ns| (-105..=95).contains(ns)));
    assert!(!readings.is_sorted());
}

#[test]
fn a_call_hangs_until_released_while_others_go_on() {
    let (sim, env, file) = with_file(b"....");
    sim.set_plan(one(Fault::Hang, CallKind::SyncData));
    file.write_all_at(b"a", 0).unwrap();
    let syncing = Arc::clone(&file);
    let thread = env
        .spawner()
        .spawn("sync", Box::new(move || syncing.sync_data().unwrap()))
        .unwrap();
    while sim.hung_calls() == 0 {
        std::hint::spin_loop();
    }
    file.write_all_at(b"b", 1).unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b"....");
    sim.release_hung_calls();
    thread.join().unwrap();
    assert_eq!(
        after(&sim, CrashChoice::DropAll),
        b"a...",
        "a sync covers what came before it"
    );
}

#[test]
fn a_hung_sync_of_a_directory_covers_what_came_before_it() {
    let (sim, env, _file) = with_file(b"");
    sim.set_plan(one(Fault::Hang, CallKind::SyncDir));
    open(&env, "/before", OpenMode::CreateNew);
    let storage = Arc::clone(env.storage());
    let job = move || storage.sync_dir(Path::new("/")).unwrap();
    let thread = env.spawner().spawn("sync", Box::new(job)).unwrap();
    while sim.hung_calls() == 0 {
        std::hint::spin_loop();
    }
    open(&env, "/meanwhile", OpenMode::CreateNew);
    sim.release_hung_calls();
    thread.join().unwrap();
    assert_eq!(
        paths(&sim.crash_image(&CrashChoice::DropAll)),
        ["/before", "/f"]
    );
}

#[test]
fn a_crash_ends_hung_calls() {
    let (sim, env, file) = with_file(b"");
    sim.set_plan(one(Fault::Hang, CallKind::SyncData));
    let thread = env
        .spawner()
        .spawn("sync", Box::new(move || assert!(file.sync_data().is_err())))
        .unwrap();
    while sim.hung_calls() == 0 {
        std::hint::spin_loop();
    }
    sim.crash();
    thread.join().unwrap();
}

#[test]
fn after_a_crash_every_call_fails_and_the_last_one_is_in_doubt() {
    let (sim, env, file) = with_file(b".");
    sim.set_plan(FaultPlan::crash_at(3));
    assert!(file.len_bytes().is_ok());
    let error = file.write_all_at(b"x", 0).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Other, "simulated crash")
    );
    assert!(sim.is_crashed());
    assert!(file.read_at(&mut [0], 0).is_err() && env.storage().list_dir(Path::new("/")).is_err());
    assert!(file.try_lock(0..1, LockKind::Shared).is_err());
    assert_eq!(sim.calls(), 3);
    assert_eq!(
        (
            after(&sim, CrashChoice::DropAll),
            after(&sim, CrashChoice::KeepAll)
        ),
        (b".".to_vec(), b"x".to_vec())
    );
}

#[test]
fn a_sync_that_crashes_has_no_effect_of_its_own() {
    let (sim, _env, file) = with_file(b".");
    file.write_all_at(b"x", 0).unwrap();
    sim.set_plan(FaultPlan::none().rule(FaultRule::new(Fault::Crash).on(SYNCS)));
    assert!(file.sync_data().is_err());
    assert_eq!(after(&sim, CrashChoice::DropAll), b".");
}

#[test]
fn images_crash_again_and_again() {
    let (mut sim, _env, _file) = with_file(b"");
    for depth in 0..4_u64 {
        let file = open(&sim.env(), F, OpenMode::ReadWrite);
        file.write_all_at(b"k", depth * 2).unwrap();
        file.write_all_at(b"l", depth * 2 + 1).unwrap();
        sim.crash();
        sim = sim.crash_image(&CrashChoice::Mask(0b01));
    }
    assert_eq!(read(&sim, F), b"k\0k\0k\0k");
}

#[test]
fn a_kill_keeps_the_cache_for_a_later_power_cut() {
    let (sim, env, file) = with_file(b"....");
    file.write_all_at(b"a", 0).unwrap();
    sim.set_plan(one(
        Fault::FlushError {
            errno: Errno::IO,
            reads: ReadsAfter::New,
        },
        CallKind::SyncData,
    ));
    assert!(file.sync_data().is_err());
    file.write_all_at(b"b", 1).unwrap();
    let killed = sim.crash_image(&CrashChoice::Kill);
    assert_eq!(read(&killed, F), b"ab..");
    assert_eq!(killed.env().clock().boot_id(), env.clock().boot_id());
    assert_ne!(killed.env().clock().process(), env.clock().process());
    assert_eq!(after(&killed, CrashChoice::DropAll), b"....");
    assert_eq!(after(&killed, CrashChoice::KeepAll), b".b..");
    let cut = killed.crash_image(&CrashChoice::KeepAll);
    assert_ne!(cut.env().clock().boot_id(), env.clock().boot_id());
}

#[test]
fn recorded_states_equal_those_of_crashes_at_each_call() {
    let workload = |sim: &SimEnv| -> io::Result<()> {
        let env = sim.env();
        let storage = env.storage();
        storage.create_dir(Path::new("/d"))?;
        let file = storage.open(Path::new("/d/tmp"), OpenMode::CreateNew)?;
        file.write_all_at(&[1; 3000], 0)?;
        file.read_exact_at(&mut [0; 10], 0)?;
        file.sync_data()?;
        file.set_len(10)?;
        storage.rename(Path::new("/d/tmp"), Path::new(F))?;
        storage.sync_dir(Path::new("/"))
    };
    let recorded = SimEnv::new(1);
    recorded.record_states(true);
    workload(&recorded).unwrap();
    let mut states = 0;
    for call in 1..=recorded.calls() {
        let crashed = SimEnv::new(1);
        crashed.set_plan(FaultPlan::crash_at(call));
        assert!(workload(&crashed).is_err());
        let state = recorded.state_at(call).expect("recorded");
        assert_eq!(state.pending_items(), crashed.pending_items());
        for choice in crashed.crash_choices(64, 40, 1) {
            let (a, b) = (state.crash_image(&choice), crashed.crash_image(&choice));
            assert_eq!(
                a.content_hash(),
                b.content_hash(),
                "call {call}, {choice:?}"
            );
            states += 1;
        }
    }
    assert!(states > 100, "{states} states");
    assert!(recorded.state_at(recorded.calls() + 1).is_none());
}

#[test]
fn choices_enumerate_small_sets_and_all_tears_of_small_writes() {
    let (sim, _env, file) = with_file(b"");
    file.write_all_at(&[1; 100], 0).unwrap();
    file.write_all_at(&[2; 1536], 512).unwrap();
    let choices = sim.crash_choices(16, 16, 0);
    let count =
        |wanted: fn(&CrashChoice) -> bool| choices.iter().filter(|choice| wanted(choice)).count();
    assert_eq!(count(|choice| matches!(choice, CrashChoice::Mask(_))), 2);
    assert_eq!(
        count(|choice| matches!(choice, CrashChoice::TearLast { .. })),
        6
    );
    assert_eq!(count(|choice| matches!(choice, CrashChoice::Items(_))), 2);
    file.write_all_at(&[2; 100_000], 0).unwrap();
    let tears = sim
        .crash_choices(16, 16, 0)
        .into_iter()
        .filter(|c| matches!(c, CrashChoice::TearLast { .. }));
    assert_eq!(tears.count(), 16);
}

#[test]
fn a_lying_disk_loses_what_it_said_was_safe() {
    let (sim, _env, file) = with_file(b".");
    sim.set_lying_disk(true);
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b".");
}

#[test]
fn unsynced_files_can_be_written_back_in_the_background() {
    let (sim, _env, file) = with_file(b"");
    sim.set_write_back_after(Some(2));
    for at in 0..5 {
        file.write_all_at(b"x", at).unwrap();
    }
    assert_eq!(sim.pending_items().len(), 2);
    assert_eq!(after(&sim, CrashChoice::DropAll), b"xxx");
}
