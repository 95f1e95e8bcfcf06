//! Which files garbage collection leaves alone, and when it looks at those again that had to stay.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sim::{CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::{Entry, ItemName, Step};
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::paths::segment_name;
use thalweg_kernel::repair::repair;
use thalweg_kernel::{
    Commit, Durability, Edit, Error, ErrorKind, FileId, Kernel, OpenRows, Options, Producer,
    RowEncoder, TableId, TableSnapshot, TableState,
};
use thalweg_sim::toy::{Row, Toy, block, random_rows, rows_part};

fn open(sim: &SimEnv) -> Toy {
    let options = Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

fn rows() -> Vec<Row> {
    (0..2000).map(|k| (k, -k)).collect()
}

fn edit(toy: &Toy, edit: Edit) {
    let commit = Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
}

fn stage(toy: &Toy, table: TableId) -> Entry {
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    for chunk in rows().chunks(100) {
        fragment
            .add_block(&block(table, chunk.to_vec(), None))
            .unwrap();
    }
    fragment.finish().unwrap()
}

fn add(table: TableId, root: Entry) -> Edit {
    Edit::AddFragments {
        head: AddHead::of_rows(table, 1),
        roots: vec![root],
    }
}

fn fragments(sim: &SimEnv) -> Vec<PathBuf> {
    let files = sim.files().into_iter().map(|(path, _)| path);
    files
        .filter(|path| path.starts_with(Path::new("/db/data")))
        .collect()
}

#[test]
fn a_fragment_that_is_staged_stays() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let staged = stage(&toy, table);
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim).len(), 1);
    edit(&toy, add(table, staged));
    assert_eq!(toy.rows(table).unwrap(), rows());
}

#[test]
fn a_fragment_that_is_staged_while_garbage_is_looked_for_stays() {
    let sim = SimEnv::new(2);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    // Between the look at what is staged and the one at what is there.
    let lists_log = FaultRule::new(Fault::Hang)
        .on(&[CallKind::ListDir])
        .path_suffix("log")
        .once();
    sim.set_plan(FaultPlan::none().rule(lists_log));
    let staged = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| toy.kernel.collect_garbage().unwrap());
        while sim.hung_calls() == 0 {
            assert!(!collecting.is_finished(), "nothing hung");
            std::thread::yield_now();
        }
        sim.set_plan(FaultPlan::none());
        let staged = stage(&toy, table);
        sim.release_hung_calls();
        staged
    });
    assert_eq!(fragments(&sim).len(), 1);
    edit(&toy, add(table, staged));
    assert_eq!(toy.rows(table).unwrap(), rows());
}

#[test]
fn snapshots_of_one_commit_keep_its_files_until_the_last_one_goes() {
    let sim = SimEnv::new(3);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append_fragment(table, &rows(), 100).unwrap();
    let (first, second) = (
        toy.kernel.snapshot().unwrap(),
        toy.kernel.snapshot().unwrap(),
    );
    assert_eq!(first.commit(), second.commit());
    edit(&toy, Edit::DropTable { table });
    drop(first);
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    let table = second.table(table).unwrap();
    assert_eq!(toy.rows_of(&table).unwrap(), rows());
    drop((second, table));
    assert!(toy.kernel.collect_garbage().unwrap() > 0);
    assert!(fragments(&sim).is_empty());
    // An open file would keep the space.
    assert_eq!(sim.open_removed_files(sim.process_id()), 0);
}

/// Nobody asks for a collection here: commits do.
#[test]
fn garbage_that_had_to_stay_goes_after_the_next_checkpoint() {
    let sim = SimEnv::new(4);
    let toy = open(&sim);
    let (table, doomed) = (toy.create("t").unwrap(), toy.create("doomed").unwrap());
    toy.append_fragment(doomed, &rows(), 100).unwrap();
    let held = toy.kernel.snapshot().unwrap();
    edit(&toy, Edit::DropTable { table: doomed });
    toy.append(table, &[(1, 1)], Durability::Disk).unwrap();
    assert_eq!(fragments(&sim).len(), 1, "a snapshot needs it");
    drop(held);
    toy.append(table, &[(2, 2)], Durability::Disk).unwrap();
    assert_eq!(fragments(&sim).len(), 1, "nothing calls for another look");
    toy.kernel.checkpoint().unwrap();
    toy.append(table, &[(3, 3)], Durability::Disk).unwrap();
    assert!(fragments(&sim).is_empty());
}

#[test]
fn what_a_killed_writer_has_staged_goes_after_the_next_opening() {
    let sim = SimEnv::new(5);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Durability::Disk).unwrap();
    stage(&toy, table);
    let sim = sim.crash_image(&CrashChoice::Kill);
    assert_eq!(fragments(&sim).len(), 1);
    let toy = open(&sim);
    toy.append(table, &[(2, 2)], Durability::Disk).unwrap();
    assert!(fragments(&sim).is_empty());
    assert_eq!(toy.rows(table).unwrap(), [(1, 1), (2, 2)]);
}

/// All blocks of a table in order, in a fragment that takes their place: it has the key of the first of them.
fn merge(toy: &Toy, table: TableId) {
    let snapshot = toy.kernel.snapshot().unwrap();
    let tree = &snapshot.table(table).unwrap().tree;
    let entries: Vec<Entry> = tree
        .iter(None, &**toy.kernel.store())
        .map(Result::unwrap)
        .collect();
    let commits = |entry: &Entry| [entry.commit_min, entry.commit_max];
    let commits: Vec<_> = entries.iter().flat_map(commits).collect();
    let commits = (
        *commits.iter().min().unwrap(),
        *commits.iter().max().unwrap(),
    );
    let blocks = entries.iter().map(|entry| toy.block_rows(entry).unwrap());
    let mut rows = blocks.collect::<Vec<_>>().concat();
    rows.sort_unstable();
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    let merged = block(table, rows, Some(commits));
    fragment.add_block(&merged).unwrap();
    let replace = Edit::Replace(ReplaceEdit::of_rows(
        table,
        entries.iter().map(ItemName::of).collect(),
        vec![fragment.finish().unwrap()],
    ));
    edit(toy, replace);
}

#[test]
fn a_block_that_is_merged_while_it_is_moved_stays_merged() {
    let sim = SimEnv::new(6);
    let toy = open(&sim);
    let (table, doomed) = (toy.create("t").unwrap(), toy.create("doomed").unwrap());
    let keep = toy.create("keep").unwrap();
    let fill = || {
        for k in 0..16 {
            toy.append_group(keep, &random_rows(k * 400, 400), 100, Durability::Disk)
                .unwrap();
        }
    };
    // The last block lies in a segment of which nearly all is needed: only the first one is moved.
    let rows = rows();
    let (early, late) = rows.split_at(100);
    toy.append_group(table, early, 100, Durability::Disk)
        .unwrap();
    for _ in 0..24 {
        toy.append_group(doomed, &rows, 100, Durability::Disk)
            .unwrap();
    }
    fill();
    toy.append_group(table, late, 100, Durability::Disk)
        .unwrap();
    fill();
    toy.kernel.checkpoint().unwrap();
    toy.append(table, &[(9999, 1)], Durability::Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    let writes = FaultRule::new(Fault::Hang)
        .on(&[CallKind::Write])
        .path_suffix(".frag")
        .once();
    sim.set_plan(FaultPlan::none().rule(writes));
    std::thread::scope(|scope| {
        // The segment of the first block has become sparse.
        let dropping = scope.spawn(|| edit(&toy, Edit::DropTable { table: doomed }));
        while sim.hung_calls() == 0 {
            assert!(!dropping.is_finished(), "nothing was moved");
            std::thread::yield_now();
        }
        let before = toy.kernel.snapshot().unwrap().commit();
        // It cleans up behind its commit, for which it waits.
        let merging = scope.spawn(|| merge(&toy, table));
        let is_merged = || toy.kernel.snapshot().unwrap().commit() > before;
        while !is_merged() && !merging.is_finished() {
            std::thread::yield_now();
        }
        sim.set_plan(FaultPlan::none());
        sim.release_hung_calls();
    });
    let mut want = rows.clone();
    want.push((9999, 1));
    assert_eq!(toy.rows(table).unwrap(), want);
}

#[test]
fn a_block_that_cannot_be_read_keeps_its_own_segment_alone() {
    let log_files = |reads_fail: bool| {
        let sim = SimEnv::new(3);
        let options = Options {
            segment_bytes: 128 << 10,
            background: false,
            cache_bytes: 1 << 20,
            ..Options::default()
        };
        let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
        let keep = toy.create("keep").unwrap();
        for round in 0..30_i64 {
            let scratch = toy.create(&format!("scratch{round}")).unwrap();
            // Ever more rows stay in each segment; the first one, which is emptied first, has the fewest.
            let few: Vec<Row> = (0..20 + round).map(|k| (round * 1000 + k, k)).collect();
            toy.append_group(keep, &few, 64, Durability::Disk).unwrap();
            if round == 0 && reads_fail {
                let snapshot = toy.kernel.snapshot().unwrap();
                let table = snapshot.table(keep).unwrap();
                let store = toy.kernel.store();
                let first = table.tree.iter(None, &**store).next().unwrap().unwrap();
                let (path, at) = (store.segment_path(first.address.file), first.address.offset);
                let bytes = at..at + u64::from(first.address.bytes);
                let fault = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::Read]);
                let rule = fault.path_suffix(path.to_str().unwrap()).bytes(bytes);
                sim.set_plan(FaultPlan::none().rule(rule));
            }
            for _ in 0..4 {
                let much: Vec<Row> = (0..2000_i64)
                    .map(|k| (k, k.wrapping_mul(0x1E37_79B9_7F4A_7C15)))
                    .collect();
                toy.append_group(scratch, &much, 64, Durability::Disk)
                    .unwrap();
            }
            edit(&toy, Edit::DropTable { table: scratch });
            // Both may say that a block could not be read.
            let _ = toy.kernel.run_due_work();
            toy.kernel.checkpoint().unwrap();
            let _ = toy.kernel.run_due_work();
        }
        let files = sim.files();
        let empty = |(path, bytes): &&(PathBuf, u64)| path.starts_with("/db/data") && *bytes == 0;
        assert_eq!(
            files.iter().filter(empty).count(),
            0,
            "fragments begun in vain"
        );
        files
            .iter()
            .filter(|(path, _)| path.starts_with("/db/log"))
            .count()
    };
    let (whole, with_one_bad_block) = (log_files(false), log_files(true));
    assert!(
        with_one_bad_block <= whole + 1,
        "{with_one_bad_block} files of the log, else {whole}"
    );
}

#[test]
fn cleaning_makes_no_garbage_that_calls_for_cleaning() {
    let sim = SimEnv::new(1);
    sim.set_write_back_after(Some(64));
    let options = Options {
        segment_bytes: 256 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let create = |n| toy.create(&format!("sensor{n}")).unwrap();
    let tables: Vec<TableId> = (0..50).map(create).collect();
    let append = |rows: std::ops::Range<i64>| {
        for k in rows {
            let table = tables[usize::try_from(k).unwrap() % tables.len()];
            toy.append(table, &[(k, k)], Durability::Process).unwrap();
        }
    };
    // Two full checkpoints with all open rows take a segment.
    append(0..2500);
    sim.reset_stats();
    append(2500..3000);
    let stats = sim.stats();
    assert!(
        stats.bytes_written < 2 << 20,
        "{} bytes for 500 rows of 16",
        stats.bytes_written
    );
    assert!(stats.syncs < 100, "{} syncs for 500 rows", stats.syncs);
}

fn adds(table: TableId, definition_version: u32, root: &Entry) -> Commit {
    let add = Edit::AddFragments {
        head: AddHead::of_rows(table, definition_version),
        roots: vec![root.clone()],
    };
    Commit {
        edits: vec![add],
        ..Commit::default()
    }
}

/// Two commits name one file: the first is refused, and gives it up while the second makes it part of a table.
#[test]
fn a_refused_commit_cuts_no_file_that_another_commit_has_made_part_of_a_table() {
    let sim = SimEnv::new(4);
    let toy = Arc::new(open(&sim));
    let table = toy.create("t").unwrap();
    let root = stage(&toy, table);
    let second = Arc::new(Mutex::new(None));
    let (own_toy, own_second, own_root) = (Arc::clone(&toy), Arc::clone(&second), root.clone());
    sim.set_watcher(Some(Box::new(move || {
        let good = adds(table, 1, &own_root);
        let done = own_toy.kernel.commit(good, Durability::Disk);
        own_second.lock().replace(done);
    })));
    let open_file = FaultRule::new(Fault::Watched).on(&[CallKind::Open]);
    sim.set_plan(FaultPlan::none().rule(open_file.path_suffix(".frag").once()));
    let refused = toy.kernel.commit(adds(table, 7, &root), Durability::Disk);
    refused.unwrap_err();
    sim.set_watcher(None);
    sim.set_plan(FaultPlan::none());
    let second = second.lock().take().expect("the file was opened");
    let expected = match second {
        Ok(_) => rows(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            Vec::new()
        }
    };
    drop(toy);
    assert_eq!(open(&sim).rows(table).unwrap(), expected);
}

/// Rows of a table that cannot be encoded.
struct Unable;

impl RowEncoder for Unable {
    fn block_rows(&self, _: &TableState) -> thalweg_kernel::Result<u32> {
        Ok(64)
    }

    fn encode(
        &self,
        _: &TableSnapshot,
        _: &[OpenRows],
    ) -> thalweg_kernel::Result<Vec<EncodedBlock>> {
        Err(Error::new(ErrorKind::Corruption, "unable"))
    }
}

#[test]
fn a_commit_that_is_refused_before_it_is_queued_gives_its_files_up_as_well() {
    let sim = SimEnv::new(5);
    let options = Options {
        background: false,
        ..Options::default()
    };
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &options, Arc::new(Unable)).unwrap();
    let toy = Toy { kernel };
    let table = toy.create("t").unwrap();
    // Until its open rows are too many.
    let many: Vec<Row> = (0..20_000).map(|key| (key, key)).collect();
    let appended = (0..40).map(|_| toy.append(table, &many, Durability::Process));
    let stuck = appended
        .filter_map(Result::err)
        .next()
        .expect("it is stuck");
    assert!(stuck.message().contains("unable"), "{stuck}");
    let root = stage(&toy, table);
    let commit = Commit {
        rows: vec![rows_part(table, &many)],
        ..adds(table, 1, &root)
    };
    let refused = toy.kernel.commit(commit, Durability::Process);
    assert!(refused.unwrap_err().message().contains("unable"));
    let files = sim.files().into_iter();
    let data_bytes: u64 = { files.filter(|(path, _)| path.starts_with("/db/data")) }
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(data_bytes, 0, "nobody will need them");
}

/// The same where a full checkpoint takes a segment or most of it: each checkpoint then goes to a segment of its own. Also after
/// an opening, which looks for garbage once.
#[test]
fn cleaning_ends_where_a_checkpoint_takes_a_segment() {
    let sim = SimEnv::new(1);
    let create = |toy: &Toy, n| toy.create(&format!("{}{n}", "a name of some length ".repeat(9)));
    let mut toy = open(&sim);
    let tables: Vec<TableId> = (0..160).map(|n| create(&toy, n).unwrap()).collect();
    for round in 0..30 {
        for table in &tables {
            toy.append(*table, &[(round, 1)], Durability::Process)
                .unwrap();
        }
        if round % 10 == 9 {
            drop(toy);
            toy = open(&sim);
            toy.append(tables[0], &[(round, 1)], Durability::Disk)
                .unwrap();
        }
        for _ in 0..3 {
            toy.kernel.run_due_work().unwrap();
        }
        sim.reset_stats();
        for _ in 0..10 {
            toy.kernel.run_due_work().unwrap();
        }
        let written_bytes = sim.stats().bytes_written;
        assert_eq!(written_bytes, 0, "with nothing to do, after round {round}");
    }
}

/// Rows one by one for many tables: each segment ends with a block or two of every table in it.
#[test]
fn small_blocks_of_many_tables_take_few_files_and_syncs() {
    const TABLES: i64 = 40;
    let sim = SimEnv::new(7);
    sim.set_write_back_after(Some(64));
    let options = Options {
        segment_bytes: 256 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 32).unwrap();
    let create = |n| toy.create(&format!("sensor{n}")).unwrap();
    let tables: Vec<TableId> = (0..TABLES).map(create).collect();
    let log_bytes = || {
        let files = sim.files().into_iter();
        let segments = files.filter(|(path, _)| path.starts_with("/db/log"));
        segments.map(|(_, bytes)| bytes).sum::<u64>()
    };
    let mut max_files = 0;
    for part in 1..=6_i64 {
        sim.reset_stats();
        for k in 0..10_000_i64 {
            let at = (part - 1) * 10_000 + k;
            let (table, _) = { tables.iter().zip(0..) }
                .find(|(_, n)| *n == at % TABLES)
                .unwrap();
            toy.append(*table, &[(at, at)], Durability::Process)
                .unwrap();
            if k % 100 == 0 {
                max_files = max_files.max(fragments(&sim).len());
            }
        }
        let syncs = sim.stats().syncs + sim.stats().dir_syncs;
        assert!(syncs < 400, "{syncs} syncs for 10,000 rows, in part {part}");
        // Eight segments that wait, and those that cannot be emptied yet.
        assert!(
            log_bytes() < 16 * options.segment_bytes,
            "{} bytes of log",
            log_bytes()
        );
    }
    assert!(max_files > 0, "no block has moved");
    // Small ones of each table are few, and grow together.
    assert!(
        max_files < 5 * tables.len(),
        "{max_files} files of {TABLES} tables"
    );
    for (n, table) in (0..).zip(&tables) {
        let want = (0..60_000_i64).filter(|at| at % TABLES == n);
        assert_eq!(
            toy.rows(*table).unwrap(),
            want.map(|at| (at, at)).collect::<Vec<_>>()
        );
    }
}

/// Damages the checkpoint that the newest slot of the root names.
fn damage_newest_checkpoint(sim: &SimEnv) {
    let root = sim.read_file(Path::new("/db/root")).unwrap();
    let number = |slot: &[u8], at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap());
    let newest = root.chunks_exact(4096).max_by_key(|slot| number(slot, 32));
    let slot = newest.unwrap();
    let (segment, begin, bytes) = (number(slot, 48), number(slot, 56), number(slot, 64));
    let path = Path::new("/db").join(segment_name(FileId(segment)));
    let at = begin + (bytes & u64::from(u32::MAX)) - 9;
    let old = sim.read_file(&path).unwrap()[usize::try_from(at).unwrap()];
    sim.overwrite_file(&path, at, &[old ^ 1]).unwrap();
}

/// Removes what a dropped table has left. Whenever the process is killed meanwhile, and the newest checkpoint damaged after that,
/// a repair finds another one.
fn remove_and_damage(sim: &SimEnv, toy: &Toy, keep: TableId) {
    let before = sim.calls();
    sim.record_states(true);
    assert!(toy.kernel.collect_garbage().unwrap() > 2);
    for call in before + 1..=sim.calls() {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        let image = state.crash_image(&CrashChoice::Kill);
        damage_newest_checkpoint(&image);
        let options = Options::default();
        let repaired = repair(&image.env(), Path::new("/db"), &options, &mut |_| {});
        let report = repaired.unwrap_or_else(|e| unreachable!("call {call}: {e}"));
        assert!(report.given_up.is_empty(), "call {call}: {report:?}");
        assert!(open(&image).rows(keep).unwrap() == rows(), "call {call}");
    }
}

/// A database with the tables `keep`, which has some rows, and `big`, which has several segments.
fn keep_and_big() -> (SimEnv, Toy, TableId, TableId) {
    let sim = SimEnv::new(5);
    let toy = open(&sim);
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append_group(keep, &rows(), 64, Durability::Disk)
        .unwrap();
    for k in 0..10 {
        let rows = random_rows(k * 2000, 2000);
        toy.append_group(big, &rows, 64, Durability::Disk).unwrap();
    }
    (sim, toy, keep, big)
}

/// The checkpoint that begins the epoch is in both slots: no file goes behind that one alone.
#[test]
fn a_damaged_checkpoint_can_be_repaired_at_each_call_of_a_removal() {
    let (sim, toy, keep, big) = keep_and_big();
    let held = toy.kernel.snapshot().unwrap();
    edit(&toy, Edit::DropTable { table: big });
    let killed = sim.crash_image(&CrashChoice::Kill);
    drop(held);
    remove_and_damage(&killed, &open(&killed), keep);
}

/// The full disk has one checkpoint in both slots: once there is space, no file goes behind that one alone.
#[test]
fn a_damaged_checkpoint_can_be_repaired_where_files_go_after_a_full_disk() {
    let (sim, toy, keep, big) = keep_and_big();
    sim.set_quota(Some(sim.used_bytes()));
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::RemoveFile]);
    sim.set_plan(FaultPlan::none().rule(fails));
    edit(&toy, Edit::DropTable { table: big });
    let failed = toy.kernel.collect_garbage().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
    sim.set_plan(FaultPlan::none());
    let root = sim.read_file(Path::new("/db/root")).unwrap();
    let checkpoint = |slot: usize| root[slot * 4096 + 48..][..24].to_vec();
    assert_eq!(checkpoint(0), checkpoint(1), "one in both slots");
    sim.set_quota(None);
    remove_and_damage(&sim, &toy, keep);
}

#[test]
fn a_file_that_cannot_be_removed_keeps_no_other() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let stuck = toy.create("stuck").unwrap();
    toy.append_fragment(stuck, &rows(), 100).unwrap();
    let path = fragments(&sim).remove(0);
    let name = path.file_name().unwrap().to_str().unwrap();
    let fails = FaultRule::new(Fault::Error(Errno::ACCESS)).on(&[CallKind::RemoveFile]);
    sim.set_plan(FaultPlan::none().rule(fails.path_suffix(name)));
    toy.drop_table(stuck).unwrap();
    for round in 0..3 {
        let table = toy.create(&format!("t{round}")).unwrap();
        toy.append_fragment(table, &rows(), 100).unwrap();
        toy.drop_table(table).unwrap();
        let error = toy.kernel.collect_garbage().unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(fragments(&sim), std::slice::from_ref(&path));
    }
    sim.set_plan(FaultPlan::none());
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim), [] as [PathBuf; 0]);
}

/// Where a full checkpoint takes a segment, each round begins another one, which calls for a round.
#[test]
fn a_file_that_cannot_be_removed_calls_for_few_rounds() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    for n in 0..300 {
        toy.create(&format!("{}{n}", "a name of some length ".repeat(9)))
            .unwrap();
    }
    let stuck = toy.create("stuck").unwrap();
    let many = random_rows(0, 200_000);
    toy.append_fragment(stuck, &many, 512).unwrap();
    let fails = FaultRule::new(Fault::Error(Errno::ACCESS)).on(&[CallKind::RemoveFile]);
    sim.set_plan(FaultPlan::none().rule(fails.path_suffix(".frag")));
    toy.drop_table(stuck).unwrap();
    let rounds = || (0..10).for_each(|_| _ = toy.kernel.run_due_work());
    rounds();
    sim.reset_stats();
    rounds();
    assert_eq!(sim.stats().bytes_written, 0, "nobody commits");
    sim.set_plan(FaultPlan::none());
    sim.advance(Duration::from_secs(60));
    toy.create("more").unwrap();
    toy.kernel.checkpoint().unwrap();
    rounds();
    assert_eq!(fragments(&sim), [] as [PathBuf; 0]);
}

#[test]
fn free_space_that_cannot_be_told_is_no_full_disk() {
    let sim = SimEnv::new(1);
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::FreeBytes]);
    sim.set_plan(FaultPlan::none().rule(fails));
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append_fragment(table, &rows(), 100).unwrap();
    assert_eq!(toy.rows(table).unwrap(), rows());
    toy.drop_table(table).unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim), [] as [PathBuf; 0]);
}

#[test]
fn fragments_of_a_commit_that_was_stored_before_take_no_space() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let sent = || Commit {
        edits: vec![add(table, stage(&toy, table))],
        producer: Some(Producer {
            id: [7; 16],
            sequence: 1,
        }),
        ..Commit::default()
    };
    let stored = toy.kernel.commit(sent(), Durability::Disk).unwrap();
    let bytes_of_fragments = || -> u64 {
        let files = sim.files().into_iter();
        let of_data = files.filter(|(path, _)| path.starts_with("/db/data"));
        of_data.map(|(_, bytes)| bytes).sum()
    };
    let stored_bytes = bytes_of_fragments();
    assert_eq!(toy.kernel.commit(sent(), Durability::Disk).unwrap(), stored);
    assert_eq!(bytes_of_fragments(), stored_bytes);
    // With the next garbage that is worth it, the empty file goes as well.
    let other = toy.create("other").unwrap();
    toy.append_fragment(other, &rows(), 100).unwrap();
    toy.drop_table(other).unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim).len(), 1);
    assert_eq!(toy.rows(table).unwrap(), rows());
}

/// Its blocks lie in files of their own and in the segment that is written to, which the round that removes the files leaves.
#[test]
fn the_segment_of_a_dropped_table_goes_once_the_log_has_left_it() {
    let sim = SimEnv::new(3);
    let toy = open(&sim);
    let keep = toy.create("keep").unwrap();
    let table = toy.create("dropped").unwrap();
    let mut first = 0;
    let mut append = |table| {
        let rows = random_rows(first, 400);
        first += 400;
        toy.append_group(table, &rows, 64, Durability::Disk)
            .unwrap();
    };
    (0..40).for_each(|_| append(keep));
    toy.append_fragment(table, &random_rows(0, 20_000), 100)
        .unwrap();
    let exists = |wanted: &Path| sim.files().iter().any(|(path, _)| path == wanted);
    let bytes_in = |table, segment: &Path| -> u64 {
        let snapshot = toy.kernel.snapshot().unwrap();
        let tree = &snapshot.table(table).unwrap().tree;
        let store = toy.kernel.store();
        let blocks = tree.iter(None, &**store).map(Result::unwrap);
        let inside = blocks.filter(|block| store.segment_path(block.address.file) == segment);
        inside.map(|block| u64::from(block.address.bytes)).sum()
    };
    // Nearly full, so that no other table has blocks in it.
    let last_segment = loop {
        append(table);
        let logs = sim.files().into_iter().map(|(path, _)| path);
        let full = logs.filter(|path| path.starts_with("/db/log"));
        if let Some(path) = full.max_by_key(|path| bytes_in(table, path))
            && bytes_in(table, &path) > 45 << 10
        {
            break path;
        }
    };
    toy.drop_table(table).unwrap();
    assert_eq!(fragments(&sim), [] as [PathBuf; 0]);
    assert!(exists(&last_segment), "it is written to");
    (0..200).for_each(|_| append(keep));
    assert_eq!(bytes_in(keep, &last_segment), 0);
    assert!(!exists(&last_segment));
}

/// However far the segment is filled that has the full checkpoints which the next ones build on.
#[test]
fn a_round_leaves_what_the_next_checkpoint_builds_on() {
    let options = Options {
        segment_bytes: 256 << 10,
        background: false,
        ..Options::default()
    };
    for filled in 0..40 {
        let sim = SimEnv::new(5);
        let open = |sim: &SimEnv| Toy::open(&sim.env(), "/db", &options, 1 << 20).unwrap();
        let toy = open(&sim);
        for n in 0..150 {
            toy.create(&format!("one of many tables: {n:060}")).unwrap();
        }
        let (keep, doomed) = (toy.create("keep").unwrap(), toy.create("doomed").unwrap());
        let append = |table, rows: &[Row]| {
            toy.append(table, rows, Durability::Disk).unwrap();
        };
        for k in 0..3 {
            append(keep, &[(k, k)]);
            toy.kernel.checkpoint().unwrap();
        }
        // In each checkpoint from now on: longer than a step of what fills the segment, and shorter than a full checkpoint.
        append(keep, &rows()[..600]);
        for k in 0..filled {
            toy.append_group(doomed, &random_rows(k * 400, 400), 64, Durability::Disk)
                .unwrap();
        }
        toy.append_fragment(doomed, &rows(), 100).unwrap();
        toy.drop_table(doomed).unwrap();
        toy.kernel.collect_garbage().unwrap();
        for key in 1..=3 {
            for choice in [CrashChoice::KeepAll, CrashChoice::DropAll] {
                let left = open(&sim.crash_image(&choice));
                let stored = toy.rows(keep).unwrap();
                assert_eq!(left.rows(keep).unwrap(), stored, "{filled}, {key}");
            }
            append(keep, &[(-key, 0)]);
            toy.kernel.checkpoint().unwrap();
        }
    }
}

/// Of a table with a large index it reads the pages that have changed since it looked last, and those once.
#[test]
fn cleaning_reads_the_pages_that_have_changed() {
    let sim = SimEnv::new(8);
    let options = Options {
        segment_bytes: 256 << 10,
        background: false,
        cache_bytes: 0,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let large = toy.create("large").unwrap();
    let append = |first| {
        let rows: Vec<Row> = (0..2000).map(|k| (first + k, k)).collect();
        toy.append_group(large, &rows, 2, Durability::Disk).unwrap();
    };
    (0..20).for_each(|k| append(k * 2000));
    toy.kernel.checkpoint().unwrap();
    let mut index_bytes = 0;
    {
        let table = toy.kernel.snapshot().unwrap().table(large).unwrap();
        let mut count = |entry: &Entry| {
            index_bytes += u64::from(entry.address.bytes) * u64::from(!entry.is_block());
            Step::Descend
        };
        (table.tree)
            .visit(None, &**toy.kernel.store(), &mut count)
            .unwrap();
    }
    assert!(index_bytes > 400 << 10, "{index_bytes} bytes of index");
    let cleaning_reads = || {
        let doomed = toy.create("doomed").unwrap();
        toy.append_fragment(doomed, &rows(), 100).unwrap();
        let of_doomed = {
            let tree = &toy.kernel.snapshot().unwrap().table(doomed).unwrap().tree;
            let block = tree.iter(None, &**toy.kernel.store()).next().unwrap();
            block.unwrap().address.file
        };
        let of_doomed = toy.kernel.store().fragment_path(of_doomed);
        let before = sim.stats().bytes_read;
        toy.drop_table(doomed).unwrap();
        toy.kernel.collect_garbage().unwrap();
        assert!(!fragments(&sim).contains(&of_doomed));
        sim.stats().bytes_read - before
    };
    cleaning_reads();
    for appended in 0..6 {
        if appended % 2 == 1 {
            append((20 + appended) * 2000);
        }
        let read = cleaning_reads();
        assert!(read < index_bytes / 4, "{read} of {index_bytes} bytes");
    }
}

/// Where queries overlap there is a snapshot at any time. What was garbage before the oldest of them goes all the same.
#[test]
fn garbage_goes_beside_snapshots_that_overlap() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let names = ["first", "second", "third"];
    for (name, first) in names.iter().zip([0, 10_000, 20_000]) {
        let table = toy.create(name).unwrap();
        toy.append_fragment(table, &random_rows(first, 4_000), 100)
            .unwrap();
    }
    let before = fragments(&sim);
    assert_eq!(before.len(), 3);
    let drop_table = |name: &str| {
        let table = toy.kernel.snapshot().unwrap().table_named(name).unwrap().id;
        toy.drop_table(table).unwrap();
    };
    let oldest = toy.kernel.snapshot().unwrap();
    drop_table("first");
    let middle = toy.kernel.snapshot().unwrap();
    drop_table("second");
    assert_eq!(fragments(&sim), before);
    drop(oldest);
    drop_table("third");
    // The snapshot in the middle needs the second one.
    assert_eq!(fragments(&sim), before[1..]);
    let youngest = toy.kernel.snapshot().unwrap();
    drop(middle);
    let table = toy.create("other").unwrap();
    toy.append_fragment(table, &random_rows(0, 100), 100)
        .unwrap();
    drop_table("other");
    toy.kernel.checkpoint().unwrap();
    assert!(!fragments(&sim).contains(&before[1]));
    drop(youngest);
}
