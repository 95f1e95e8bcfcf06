//! Sequences that once went wrong, each by its name.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, Fill, ItemFate, Kept, PendingItem,
    ReadsAfter, SECTOR_BYTES, SimEnv,
};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::fragment::FragmentWriter;
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::repair::repair;
use thalweg_kernel::{Commit, Edit, ErrorKind, TableId};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::{Contents, contents_of};
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::{Row, Toy, block, rows_part};

fn crash_at(kind: CallKind, path: &str) -> FaultPlan {
    FaultPlan::none().rule(FaultRule::new(Fault::Crash).on(&[kind]).path_suffix(path))
}

/// Opens an image and reads everything.
fn open(shape: &Shape, image: &SimEnv) -> Contents {
    contents_of(&shape.open(&image.env()).unwrap()).unwrap().1
}

#[test]
fn spares_of_a_killed_process_do_not_block_the_next_one() {
    let sim = SimEnv::new(1);
    let mut db = Driver::start(&sim, Shape::new(8192, 8), false);
    db.create("t");
    for round in 0..3 {
        db.append_group("t", 0..200, Disk);
        let spare = |path: &Path| path.extension().is_some_and(|e| e == "spare");
        assert!(
            sim.files().iter().any(|(path, _)| spare(path)),
            "round {round}"
        );
        db.kill();
    }
    assert_eq!(db.visible().unwrap().unwrap().1["t"].len(), 600);
}

#[test]
fn a_crash_in_a_recovery_whose_checkpoint_needs_a_second_segment() {
    let shape = Shape::new(4096, 1000);
    let sim = SimEnv::new(2);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    for _ in 0..3 {
        db.append("t", 0..60, Disk);
    }
    let first = sim.crash_image(&CrashChoice::DropAll);
    // Tail and checkpoint are on disk, the root still names the old epoch.
    first.set_plan(crash_at(CallKind::Write, "root"));
    shape.open(&first.env()).unwrap_err();
    for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
        assert_eq!(open(&shape, &first.crash_image(&choice))["t"].len(), 180);
    }
}

#[test]
fn openings_that_are_killed_leave_no_more_segments_than_one() {
    let shape = Shape::new(8192, 8);
    let sim = SimEnv::new(2);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..5, Disk);
    let mut killed = sim.crash_image(&CrashChoice::Kill);
    let mut segments = Vec::new();
    for _ in 0..4 {
        // The epoch has begun, and no root names it.
        killed.set_plan(crash_at(CallKind::Write, "root"));
        shape.open(&killed.env()).unwrap_err();
        killed = killed.crash_image(&CrashChoice::Kill);
        let files = killed.files().into_iter();
        let is_segment = |path: &Path| path.extension().is_some_and(|e| e == "seg");
        segments.push(files.filter(|(path, _)| is_segment(path)).count());
    }
    assert_eq!(segments, [2; 4]);
    assert_eq!(open(&shape, &killed)["t"].len(), 5);
}

#[test]
fn an_epoch_whose_root_is_in_the_cache_only_is_begun_again() {
    let shape = Shape::new(8192, 8);
    let sim = SimEnv::new(3);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..3, Process);
    let first = sim.crash_image(&CrashChoice::Kill);
    first.set_plan(crash_at(CallKind::SyncData, "root"));
    shape.open(&first.env()).unwrap_err();
    let second = first.crash_image(&CrashChoice::Kill);
    let shown = open(&shape, &second);
    assert_eq!(shown["t"].len(), 3);
    assert_eq!(
        open(&shape, &second.crash_image(&CrashChoice::DropAll)),
        shown
    );
}

#[test]
fn a_segment_never_shows_the_bytes_of_another_beginning_of_its_epoch() {
    let shape = Shape::new(8192, 8);
    let sim = SimEnv::new(7);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..3, Disk);
    db.append("t", 3..6, Process);
    // A recovery whose segment, and one of the spares before it, lose their names: its bytes lie somewhere on the disk.
    let first = sim.crash_image(&CrashChoice::Kill);
    first.set_plan(crash_at(CallKind::SyncDir, "log"));
    shape.open(&first.env()).unwrap_err();
    let is_spare = |item: &PendingItem| match item {
        PendingItem::Names(names) => names[0].0.to_string_lossy().ends_with(".spare"),
        _ => false,
    };
    let pending = first.pending_items();
    let kept = pending.iter().position(is_spare).unwrap();
    // The next one begins the same epoch, one id lower, and is killed before `live` names it.
    let second = first.crash_image(&CrashChoice::Mask(1 << kept));
    let sync = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
    second.set_plan(FaultPlan::none().rule(sync.path_suffix("root").skip(1)));
    shape.open(&second.env()).unwrap_err();
    // The third one begins the epoch after that, in a file that gets just those bytes.
    let third = second.crash_image(&CrashChoice::Kill);
    third.record_states(true);
    let shown = open(&shape, &third);
    assert_eq!(shown["t"].len(), 3);
    let mut tried = 0;
    for call in 1..=third.calls() {
        let Some(state) = third.state_at(call) else {
            continue;
        };
        for back in 0..8 {
            for item in 0..state.pending_items().len() {
                let mut fates = vec![ItemFate::Keep; state.pending_items().len()];
                fates[item] = ItemFate::SizeOnly(Fill::Stale(back));
                let image = state.crash_image(&CrashChoice::Items(fates));
                assert_eq!(
                    open(&shape, &image),
                    shown,
                    "call {call}, item {item}, {back}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 0, "the third recovery wrote something");
}

#[test]
fn a_database_killed_before_its_name_was_synced_keeps_what_is_appended_later() {
    let shape = Shape::new(8192, 8);
    let first = SimEnv::new(4);
    let renamed = FaultRule::new(Fault::Crash)
        .on(&[CallKind::Rename])
        .path_suffix("root");
    first.set_plan(FaultPlan::none().rule(renamed));
    shape.open(&first.env()).unwrap_err();
    // The rename was under way: it is in the cache.
    let second = first.crash_image(&CrashChoice::Kill);
    assert!(second.read_file(Path::new("/db/root")).is_ok());
    let toy = shape.open(&second.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let third = second.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&shape, &third)["t"], [(1, 1)]);
}

fn fault(kind: CallKind, path: &str, fault: Fault) -> FaultPlan {
    FaultPlan::none().rule(FaultRule::new(fault).on(&[kind]).path_suffix(path).once())
}

fn lost(errno: Errno) -> Fault {
    let reads = ReadsAfter::New;
    Fault::FlushError { errno, reads }
}

#[test]
fn a_sync_that_fails_for_want_of_space_does_not_say_that_nothing_was_stored() {
    let sim = SimEnv::new(5);
    let shape = Shape::new(8192, 8);
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    sim.set_plan(fault(CallKind::SyncData, "", lost(Errno::NOSPC)));
    let error = toy.append(table, &[(1, 1)], Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // The cache has it: a caller that tries again would store it twice.
    assert_eq!(
        open(&shape, &sim.crash_image(&CrashChoice::Kill))["t"],
        [(1, 1)]
    );
    // So has the database once it goes on, and from then on the disk.
    toy.kernel.flush().unwrap();
    assert_eq!(toy.rows(table).unwrap(), [(1, 1)]);
    assert_eq!(
        open(&shape, &sim.crash_image(&CrashChoice::DropAll))["t"],
        [(1, 1)]
    );
    toy.kernel.close().unwrap();
}

#[test]
fn what_fails_behind_a_stored_commit_is_not_its_error() {
    let sim = SimEnv::new(6);
    let toy = Shape::new(4096, 4).open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    // No room for spares, nor for the blocks of open rows once the segment is full.
    let full = FaultRule::new(Fault::Error(Errno::NOSPC)).on(&[CallKind::Write]);
    sim.set_plan(FaultPlan::none().rule(full.path_suffix(".spare").skip(1)));
    let mut stored = Vec::new();
    for k in 0..200 {
        if toy.append(table, &[(k, k)], Disk).is_ok() {
            stored.push((k, k));
        }
        assert_eq!(
            toy.rows(table).unwrap(),
            stored,
            "an append failed and is there"
        );
    }
}

#[test]
fn a_rename_that_happened_although_it_failed_is_paid_for_by_one_append() {
    let sim = SimEnv::new(7);
    let shape = Shape::new(4096, 4);
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let after = Fault::ErrorAfter(Errno::IO);
    sim.set_plan(fault(CallKind::Rename, ".spare", after));
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    for k in 0..400 {
        match toy.append(table, &[(k, k)], Disk) {
            Ok(_) => stored.push((k, k)),
            Err(_) => refused.push(k),
        }
    }
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(toy.rows(table).unwrap(), stored);
    toy.kernel.close().unwrap();
    drop(toy);
    assert_eq!(open(&shape, &sim)["t"], stored);
}

#[test]
fn a_read_that_returns_nothing_is_not_the_end_of_the_log() {
    let sim = SimEnv::new(7);
    let shape = Shape::new(8192, 100);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..20, Process);
    let image = sim.crash_image(&CrashChoice::Kill);
    for skip in 0.. {
        let nothing = FaultRule::new(Fault::Short(0))
            .on(&[CallKind::Read])
            .path_suffix(".seg");
        let copy = image.crash_image(&CrashChoice::Kill);
        copy.set_plan(FaultPlan::none().rule(nothing.skip(skip).once()));
        let reads_before = copy.stats().reads;
        match shape.open(&copy.env()) {
            Ok(toy) => assert_eq!(contents_of(&toy).unwrap().1["t"].len(), 20, "read {skip}"),
            Err(e) => drop(e),
        }
        if copy.stats().reads - reads_before < skip {
            break;
        }
    }
}

#[test]
fn a_folder_whose_sync_failed_is_made_anew() {
    for folder in ["/", "/db"] {
        let (sim, shape) = (SimEnv::new(8), Shape::new(8192, 8));
        sim.set_plan(fault(CallKind::SyncDir, folder, lost(Errno::IO)));
        shape.open(&sim.env()).unwrap_err();
        let toy = shape.open(&sim.env()).unwrap();
        let table = toy.create("t").unwrap();
        toy.append(table, &[(1, 1)], Disk).unwrap();
        let image = sim.crash_image(&CrashChoice::DropAll);
        assert_eq!(open(&shape, &image)["t"], [(1, 1)], "{folder}");
    }
}

#[test]
fn a_close_that_fails_gives_back_no_lock_of_a_database_that_still_writes() {
    let (sim, shape) = (SimEnv::new(9), Shape::new(8192, 8));
    let first = shape.open(&sim.env()).unwrap();
    let table = first.create("t").unwrap();
    sim.set_plan(fault(CallKind::SyncData, "live", Fault::Error(Errno::IO)));
    first.kernel.close().unwrap_err();
    let second = shape.open(&sim.env()).unwrap();
    first.append(table, &[(1, 1)], Disk).unwrap_err();
    second.append(table, &[(2, 2)], Disk).unwrap();
    assert_eq!(second.rows(table).unwrap(), [(2, 2)]);
}

#[test]
fn a_commit_of_several_parts_is_encoded_as_a_whole() {
    let (sim, shape) = (SimEnv::new(10), Shape::new(8192, 3));
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let part = |keys: std::ops::Range<i64>| {
        let rows: Vec<Row> = keys.map(|key| (key, key)).collect();
        rows_part(table, &rows)
    };
    let commit = Commit {
        rows: vec![part(0..2), part(2..4), part(4..5)],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Process).unwrap();
    let snapshot = toy.kernel.snapshot().unwrap();
    let encoded = snapshot.table(table).unwrap();
    assert_eq!(encoded.open_rows().count(), 0);
    assert_eq!(toy.rows(table).unwrap().len(), 5);
}

#[test]
fn a_root_that_only_the_cache_has_is_written_again_before_the_other_slot() {
    let (sim, shape) = (SimEnv::new(11), Shape::new(8192, 8));
    let mut db = Driver::start(&sim, shape.clone(), true);
    db.create("t");
    db.append("t", 0..5, Disk);
    // Killed between the write of a slot and its sync.
    sim.set_plan(fault(CallKind::SyncData, "root", Fault::Crash));
    db.checkpoint();
    let killed = sim.crash_image(&CrashChoice::Kill);
    for skip in 0..3 {
        let image = killed.crash_image(&CrashChoice::Kill);
        let crash = FaultRule::new(Fault::Crash)
            .on(&[CallKind::SyncData])
            .path_suffix("root");
        image.set_plan(FaultPlan::none().rule(crash.skip(skip).once()));
        let again = shape.open(&image.env()).and_then(|toy| toy.create("u"));
        assert!(again.is_err(), "it crashes at sync {skip}");
        for choice in image.crash_choices(64, 64, skip) {
            let after = image.crash_image(&choice);
            assert_eq!(open(&shape, &after)["t"].len(), 5, "{skip} {choice:?}");
        }
    }
}

#[test]
fn an_unfinished_epoch_stays_while_a_slot_that_cannot_be_read_may_name_it() {
    let (sim, shape) = (SimEnv::new(14), Shape::new(8192, 8));
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..5, Disk);
    // A power cut while a recovery names its epoch: one sector of the slot cannot be read, all others are the new ones.
    let first = sim.crash_image(&CrashChoice::DropAll);
    let sync = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
    first.set_plan(FaultPlan::none().rule(sync.path_suffix("root").skip(1)));
    shape.open(&first.env()).unwrap_err();
    let one_sector = Kept::Bits(1 << 3);
    let mut fates = vec![ItemFate::Keep; first.pending_items().len()];
    *fates.last_mut().unwrap() = ItemFate::Unreadable {
        unit_bytes: SECTOR_BYTES,
        kept: Kept::AllBut(3),
        unreadable: one_sector,
    };
    let second = first.crash_image(&CrashChoice::Items(fates));
    assert_eq!(second.unreadable_files(), [Path::new("/db/root")]);
    second.record_states(true);
    assert_eq!(open(&shape, &second)["t"].len(), 5);
    // In the next recovery just that sector is written, with zeros as before: the slot verifies again.
    let mut came_back = 0;
    for call in 1..=second.calls() {
        let Some(state) = second.state_at(call) else {
            continue;
        };
        for item in 0..state.pending_items().len() {
            let mut fates = vec![ItemFate::Keep; state.pending_items().len()];
            fates[item] = ItemFate::Torn {
                unit_bytes: SECTOR_BYTES,
                kept: one_sector,
                grows: true,
            };
            let image = state.crash_image(&CrashChoice::Items(fates));
            came_back += u32::from(image.unreadable_files().is_empty());
            assert_eq!(open(&shape, &image)["t"].len(), 5, "call {call}, {item}");
        }
    }
    assert!(came_back > 0, "the slot was written over");
}

#[test]
fn the_fragment_of_a_commit_that_is_refused_takes_no_room_and_cannot_be_added() {
    let (sim, shape) = (SimEnv::new(12), Shape::new(8192, 8));
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let fragment_bytes = || -> u64 {
        let files = sim.files().into_iter();
        files
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "frag"))
            .map(|(_, bytes)| bytes)
            .sum()
    };
    let stage = || {
        let mut fragment = toy.kernel.stage_fragment(table).unwrap();
        let rows: Vec<Row> = (0..100).map(|key| (key, key)).collect();
        fragment.add_block(&block(table, rows, None)).unwrap();
        fragment.finish().unwrap()
    };
    let commit = |root, definition_version| Commit {
        edits: vec![Edit::AddFragments {
            head: AddHead::of_rows(table, definition_version),
            roots: vec![root],
        }],
        ..Commit::default()
    };
    let root = stage();
    assert!(fragment_bytes() > 0);
    let refused = toy.kernel.commit(commit(root.clone(), 7), Disk);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fragment_bytes(), 0);
    let again = toy.kernel.commit(commit(root, 1), Disk);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Invalid);
    // Nor one that the layer above has let go of, or that is part of a table already.
    let root = stage();
    toy.kernel
        .abandon_fragments(std::slice::from_ref(&root))
        .unwrap();
    assert_eq!(fragment_bytes(), 0);
    assert!(toy.kernel.commit(commit(root, 1), Disk).is_err());
    let root = stage();
    toy.kernel.commit(commit(root.clone(), 1), Disk).unwrap();
    toy.kernel
        .abandon_fragments(std::slice::from_ref(&root))
        .unwrap();
    assert!(toy.kernel.commit(commit(root, 1), Disk).is_err());
    assert_eq!(toy.rows(table).unwrap().len(), 101);
    assert_eq!(
        open(&shape, &sim.crash_image(&CrashChoice::DropAll))["t"].len(),
        101
    );
}

/// A fragment of eight rows, not finished.
fn stage_eight(toy: &Toy, table: TableId, first: i64) -> FragmentWriter {
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    let rows: Vec<Row> = (first..first + 8).map(|key| (key, key)).collect();
    fragment.add_block(&block(table, rows, None)).unwrap();
    fragment
}

#[test]
fn a_sync_that_fails_for_one_fragment_refuses_all_that_were_made_before_it() {
    for errno in [Errno::IO, Errno::NOSPC, Errno::INTR] {
        let (sim, shape) = (SimEnv::new(15), Shape::new(65536, 8));
        let toy = shape.open(&sim.env()).unwrap();
        let table = toy.create("t").unwrap();
        let stage = |first| stage_eight(&toy, table, first);
        let (first, second) = (stage(0), stage(100));
        sim.set_plan(fault(CallKind::SyncDir, "data", lost(errno)));
        assert!(second.finish().is_err());
        // Its name looks clean in the cache now.
        let error = first.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let edit = Edit::AddFragments {
            head: AddHead::of_rows(table, 1),
            roots: vec![stage(200).finish().unwrap()],
        };
        let edits = vec![edit];
        let commit = Commit {
            edits,
            ..Commit::default()
        };
        toy.kernel.commit(commit, Disk).unwrap();
        let image = sim.crash_image(&CrashChoice::DropAll);
        assert_eq!(open(&shape, &image)["t"], toy.rows(table).unwrap());
        assert_eq!(toy.rows(table).unwrap().len(), 8);
    }
}

/// No sync was tried, so no name was lost.
#[test]
fn a_sync_without_a_descriptor_fails_for_its_own_fragment_only() {
    let (sim, shape) = (SimEnv::new(15), Shape::new(65536, 8));
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let (first, second) = (stage_eight(&toy, table, 0), stage_eight(&toy, table, 100));
    let none = Fault::Error(Errno::MFILE);
    sim.set_plan(fault(CallKind::OpenDir, "data", none));
    let error = second.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let edit = Edit::AddFragments {
        head: AddHead::of_rows(table, 1),
        roots: vec![first.finish().unwrap()],
    };
    let commit = Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Disk).unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&shape, &image)["t"], toy.rows(table).unwrap());
    assert_eq!(toy.rows(table).unwrap().len(), 8);
}

#[test]
fn a_folder_that_is_missing_is_damage_that_is_named() {
    for folder in ["log", "data"] {
        let (sim, shape) = (SimEnv::new(13), Shape::new(8192, 8));
        let toy = shape.open(&sim.env()).unwrap();
        toy.create("t").unwrap();
        toy.kernel.close().unwrap();
        drop(toy);
        let path = Path::new("/db").join(folder);
        for (file, _) in sim.files() {
            if file.starts_with(&path) {
                sim.remove_file(&file).unwrap();
            }
        }
        sim.env().storage().remove_dir(&path).unwrap();
        let opened = [
            shape.open(&sim.env()).map(|_| ()),
            shape.open_read_only(&sim.env()).map(|_| ()),
        ];
        for opened in opened {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{folder}: {error}");
            assert!(error.message().contains(folder), "{error}");
        }
    }
}

#[test]
fn a_read_that_fails_is_the_error_of_that_statement_only() {
    let (sim, shape) = (SimEnv::new(14), Shape::new(8192, 8));
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append_group(table, &[(-1, -1)], 1, Disk).unwrap();
    let reader = shape.open_read_only(&sim.env_of_process(7)).unwrap();
    let mut stored = 1;
    for errno in [Errno::MFILE, Errno::NFILE, Errno::IO, Errno::NOMEM] {
        for skip in 0..40 {
            // Rolls and checkpoints happen in between, so that files are opened as well.
            let rows: Vec<Row> = (0..20).map(|key| (key, skip)).collect();
            toy.append_group(table, &rows, 4, Disk).unwrap();
            stored += rows.len();
            let kinds = [
                CallKind::Open,
                CallKind::Read,
                CallKind::Metadata,
                CallKind::Len,
            ];
            let fails = FaultRule::new(Fault::Error(errno)).on(&kinds);
            sim.set_plan(FaultPlan::none().rule(fails.skip(skip.cast_unsigned()).times(3)));
            match reader.rows(table) {
                Ok(rows) => assert_eq!(rows.len(), stored),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Io, "{e}"),
            }
            sim.set_plan(FaultPlan::none());
            assert_eq!(
                reader.rows(table).unwrap().len(),
                stored,
                "{errno:?} {skip}"
            );
        }
    }
}

#[test]
fn an_index_page_that_cannot_be_read_fails_that_commit_only() {
    let (sim, mut shape) = (SimEnv::new(15), Shape::new(64 << 10, 8));
    shape.options.cache_bytes = 0;
    let rows = |first: i64| -> Vec<Row> { (first..first + 1_000).map(|key| (key, key)).collect() };
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let mut stored = rows(0);
    toy.append_group(table, &stored, 8, Disk).unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    for (round, errno) in (1..).zip([Errno::MFILE, Errno::IO]) {
        // Nothing of the index stays in memory, and an epoch has begun.
        let toy = shape.open(&sim.env()).unwrap();
        toy.create(&format!("round {round}")).unwrap();
        let fails = FaultRule::new(Fault::Error(errno)).on(&[CallKind::Open, CallKind::Read]);
        sim.set_plan(FaultPlan::none().rule(fails.path_suffix(".seg").once()));
        let more = rows(round * 1_000);
        let error = toy.append_group(table, &more, 8, Disk).unwrap_err();
        // Refused before anything was written: the outcome is known.
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(toy.kernel.poison().is_none());
        assert_eq!(toy.rows(table).unwrap(), stored);
        toy.append_group(table, &more, 8, Disk).unwrap();
        stored.extend(more);
        assert_eq!(toy.rows(table).unwrap(), stored);
        let after_cut = open(&shape, &sim.crash_image(&CrashChoice::DropAll));
        assert_eq!(after_cut["t"], stored);
        toy.kernel.close().unwrap();
    }
}

#[test]
fn a_database_without_its_root_is_damaged_not_missing() {
    let sim = SimEnv::new(8);
    let shape = Shape::new(8192, 8);
    let empty = SimEnv::new(9);
    let nothing = shape.open_read_only(&empty.env()).map(|_| ()).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::NotFound);
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    toy.kernel.close().unwrap();
    sim.remove_file(Path::new("/db/root")).unwrap();
    for opened in [shape.open(&sim.env()), shape.open_read_only(&sim.env())] {
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains("--repair"), "{error}");
    }
}

/// Without the log a repair has nothing to start from.
#[test]
fn no_repair_is_advised_of_a_database_without_its_log() {
    let sim = SimEnv::new(8);
    let shape = Shape::new(8192, 8);
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append_fragment(table, &[(1, 1), (2, 2)], 8).unwrap();
    toy.kernel.close().unwrap();
    let paths = sim.files().into_iter().map(|(path, _)| path);
    let is_needed = |path: &PathBuf| path.ends_with("root") || path.starts_with("/db/log");
    for path in paths.filter(is_needed) {
        sim.remove_file(&path).unwrap();
    }
    for opened in [shape.open(&sim.env()), shape.open_read_only(&sim.env())] {
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let told = error.to_string();
        assert!(
            told.contains("backup") && !told.contains("--repair"),
            "{told}"
        );
    }
    let repaired = repair(&sim.env(), Path::new("/db"), &shape.options, &mut |_| {});
    assert_eq!(repaired.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_damaged_slot_of_live_hides_nothing_that_was_acknowledged() {
    let shape = Shape::new(8192, 8);
    for commits in 1..6 {
        let sim = SimEnv::new(10);
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create("t");
        for k in 0..commits {
            db.append("t", [k], Disk);
        }
        let want = db.visible().unwrap().unwrap().1;
        let live = Path::new("/db/live");
        for (at, byte) in sim.read_file(live).unwrap().into_iter().enumerate() {
            let killed = sim.crash_image(&CrashChoice::Kill);
            killed.overwrite_file(live, at as u64, &[byte ^ 4]).unwrap();
            let reader = shape.open_read_only(&killed.env()).unwrap();
            assert_eq!(contents_of(&reader).unwrap().1, want, "byte {at}");
            let found = reader.kernel.verify(&mut |_| {}).unwrap().damage;
            assert_eq!(found.len(), 1, "byte {at}: {found:?}");
            assert!(found[0].to_string().contains("live"), "{}", found[0]);
        }
    }
}

#[test]
fn a_copy_of_another_segment_is_no_end_of_the_log() {
    let sim = SimEnv::new(11);
    let mut db = Driver::start(&sim, Shape::new(8192, 8), false);
    db.create("t");
    for k in 0..40 {
        db.append_group("t", k * 50..k * 50 + 50, Disk);
    }
    // The power cut takes `live`, which would tell what was acknowledged.
    let image = sim.crash_image(&CrashChoice::DropAll);
    let _ = image.remove_file(Path::new("/db/live"));
    let paths = image.files().into_iter().map(|(path, _)| path);
    let segments: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .collect();
    let last = segments.last().unwrap();
    for copied in &segments[..segments.len() - 1] {
        let damaged = image.crash_image(&CrashChoice::KeepAll);
        let bytes = damaged.read_file(copied).unwrap();
        damaged.write_file(last, &bytes).unwrap();
        let opened = Shape::new(8192, 8).open(&damaged.env());
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

#[test]
fn a_lost_root_and_a_damaged_log_do_not_pass_for_a_creation_that_was_killed() {
    for at in (0..400).step_by(8) {
        let sim = SimEnv::new(1);
        let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
        let shape = db.shape().clone();
        db.create("t");
        db.append_group("t", 0..64, Disk);
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        image.remove_file(&PathBuf::from("/db/root")).unwrap();
        let files = image.files();
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "seg");
        let segment = files
            .iter()
            .map(|(path, _)| path)
            .find(|path| is_segment(path));
        let segment = segment.unwrap();
        let byte = image.read_file(segment).unwrap()[at];
        image
            .overwrite_file(segment, at as u64, &[byte ^ 0x5a])
            .unwrap();
        let refused = shape.open(&image.env()).err().unwrap();
        assert_eq!(
            refused.kind(),
            ErrorKind::Corruption,
            "byte {at}: {refused}"
        );
        assert_eq!(image.files(), files, "byte {at}");
    }
}

/// The name of the root was not synced when the process was killed that made the database; the next one finds it all the same.
#[test]
fn a_power_cut_behind_a_killed_creation_leaves_no_traces_of_a_database_that_is_lost() {
    let shape = Shape::new(1 << 16, 16);
    let mut images = 0;
    for call in 1..200 {
        let sim = SimEnv::new(1);
        sim.set_plan(FaultPlan::crash_at(call));
        if shape.open(&sim.env()).is_ok() {
            assert!(call > 10 && images > 1_000, "{call} calls, {images} images");
            return;
        }
        let killed = sim.crash_image(&CrashChoice::Kill);
        for call in 1.. {
            let second = killed.crash_image(&CrashChoice::Kill);
            second.set_plan(FaultPlan::crash_at(call));
            let is_done = shape.open(&second.env()).is_ok();
            for choice in second.crash_choices(40, 0, call) {
                let image = second.crash_image(&choice);
                let refused = shape.open_read_only(&image.env()).err();
                let refused = refused.map(|e| (e.kind() != ErrorKind::NotFound).then_some(e));
                assert!(refused.flatten().is_none(), "call {call}, {choice:?}");
                shape.open(&image.env()).unwrap();
                images += 1;
            }
            if is_done {
                break;
            }
        }
    }
    panic!("the creation has not ended");
}

/// A closed database of one row.
fn with_one_row() -> (Shape, SimEnv) {
    let shape = Shape::new(1 << 16, 16);
    let sim = SimEnv::new(1);
    let toy = shape.open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    toy.kernel.close().unwrap();
    (shape, sim)
}

fn flush_error(errno: Errno) -> Fault {
    let reads = ReadsAfter::New;
    Fault::FlushError { errno, reads }
}

/// A fault that befalls one call of these kinds, or of any, behind so many of them.
fn once(fault: Fault, kinds: &[CallKind], skipped: u64) -> FaultPlan {
    let rule = FaultRule::new(fault).on(kinds);
    FaultPlan::none().rule(rule.skip(skipped).once())
}

/// The name of a root whose sync failed would look clean to every later sync, and a power cut would take it.
#[test]
fn a_root_whose_name_could_not_be_synced_is_not_used_by_the_next_opening() {
    let shape = Shape::new(1 << 16, 16);
    let mut failures = 0;
    for skip in 0.. {
        let sim = SimEnv::new(1);
        sim.set_plan(once(flush_error(Errno::IO), &[CallKind::SyncDir], skip));
        if shape.open(&sim.env()).is_ok() {
            break;
        }
        failures += 1;
        sim.set_plan(FaultPlan::none());
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create("t");
        db.append("t", 0..10, Disk);
        db.power_cut(&CrashChoice::DropAll);
        assert_eq!(db.visible().unwrap().unwrap().1["t"].len(), 10, "{skip}");
    }
    assert!(failures > 2, "{failures}");
}

/// The folder of fragments was empty, and a repair that failed took it away.
#[test]
fn a_repair_that_cannot_sync_a_folder_leaves_a_database_that_opens() {
    let (shape, whole) = with_one_row();
    whole
        .overwrite_file(Path::new("/db/live"), 40, &[0xFF; 8])
        .unwrap();
    for errno in [Errno::IO, Errno::NOSPC] {
        let mut failures = 0;
        for skip in 0.. {
            let sim = whole.crash_image(&CrashChoice::Kill);
            sim.set_plan(once(flush_error(errno), &[CallKind::SyncDir], skip));
            let repaired = repair(&sim.env(), Path::new("/db"), &shape.options, &mut |_| {});
            if repaired.is_ok() {
                break;
            }
            failures += 1;
            sim.set_plan(FaultPlan::none());
            for choice in [CrashChoice::Kill, CrashChoice::DropAll] {
                let image = sim.crash_image(&choice);
                assert_eq!(open(&shape, &image)["t"].len(), 1, "{skip}, {choice:?}");
            }
        }
        assert!(failures > 2, "{failures}");
    }
}

/// The repair before it made the root and was killed before that reached the disk.
#[test]
fn what_a_repair_finds_whole_is_there_behind_a_power_cut() {
    let (shape, whole) = with_one_row();
    whole.remove_file(Path::new("/db/root")).unwrap();
    let repaired = |sim: &SimEnv| repair(&sim.env(), Path::new("/db"), &shape.options, &mut |_| {});
    let faults = [
        Fault::Crash,
        Fault::Error(Errno::IO),
        flush_error(Errno::NOSPC),
    ];
    for fault in faults {
        let mut found_whole = 0;
        for call in 0.. {
            let sim = whole.crash_image(&CrashChoice::Kill);
            sim.set_plan(once(fault, &[], call));
            let is_done = repaired(&sim).is_ok();
            let killed = sim.crash_image(&CrashChoice::Kill);
            if let Ok(report) = repaired(&killed) {
                found_whole += usize::from(report.is_clean());
                let image = killed.crash_image(&CrashChoice::DropAll);
                assert_eq!(open(&shape, &image)["t"].len(), 1, "call {call}");
            }
            if is_done {
                break;
            }
        }
        assert!(found_whole > 0, "{fault:?}");
    }
}

/// The root of a creation that failed was removed, perhaps in the cache only; the next creation removes its log.
#[test]
fn a_root_that_was_removed_does_not_come_back_without_its_log() {
    let shape = Shape::new(1 << 16, 16);
    let mut images = 0;
    for skip in 0.. {
        let sim = SimEnv::new(1);
        sim.set_plan(once(Fault::Error(Errno::IO), &[CallKind::SyncDir], skip));
        if shape.open(&sim.env()).is_ok() {
            break;
        }
        for call in 1.. {
            let second = sim.crash_image(&CrashChoice::Kill);
            second.set_plan(FaultPlan::crash_at(call));
            let is_done = shape.open(&second.env()).is_ok();
            for choice in second.crash_choices(20, 0, call) {
                let image = second.crash_image(&choice);
                let opened = shape.open(&image.env()).map(|_| ());
                assert!(
                    opened.is_ok(),
                    "{skip}, call {call}, {choice:?}: {opened:?}"
                );
                images += 1;
            }
            if is_done {
                break;
            }
        }
    }
    assert!(images > 1_000, "{images}");
}
