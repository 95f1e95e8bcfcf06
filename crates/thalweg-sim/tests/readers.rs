//! Reading processes beside writers that recover, checkpoint, merge and remove files: what they show, and what they keep.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a step that fails is a test that fails"
)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ItemFate, PendingItem, ReadsAfter,
    SYNCS, SimEnv,
};
use thalweg_env::{Clock, Env};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::{Entry, ItemName, MAX_PAGE_ENTRIES, Step};
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::paths::segment_name;
use thalweg_kernel::{
    Commit, CommitNo, Edit, ErrorKind, Options, Snapshot, TableId, limit_page_entries,
};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::{Row, Toy, block, random_rows};

const WRITER: u32 = 1;
const READER: u32 = 7;

fn shape() -> Shape {
    Shape::new(8192, 8)
}

/// The last commit that a reading process sees.
fn shown(sim: &SimEnv) -> CommitNo {
    let toy = shape().open_read_only(&sim.env_of_process(READER)).unwrap();
    contents_of(&toy).unwrap().0
}

/// The last commit that an opening finds after a power cut.
fn left(sim: &SimEnv) -> CommitNo {
    let toy = shape().open(&sim.crash_image(&CrashChoice::DropAll).env());
    contents_of(&toy.unwrap()).unwrap().0
}

/// A database whose writer was killed in the sync of its last commit, which nobody was told of.
struct Killed {
    sim: SimEnv,
    acknowledged: CommitNo,
}

fn killed_in_a_sync() -> Killed {
    let sim = SimEnv::new(3);
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let acknowledged = toy.append(table, &[(1, 1)], Disk).unwrap();
    sim.set_plan(FaultPlan::none().rule(FaultRule::new(Fault::Crash).on(&[CallKind::SyncData])));
    toy.append(table, &[(2, 2)], Disk).unwrap_err();
    Killed {
        sim: sim.crash_image(&CrashChoice::Kill),
        acknowledged,
    }
}

/// Holds what readers see of a state against what a power cut in that state leaves.
#[derive(Default)]
struct Judge {
    seen: HashSet<(u64, u64)>,
    readers: usize,
}

impl Judge {
    /// `false`: the state was judged before.
    fn judge(&mut self, state: &SimEnv, acknowledged: CommitNo, place: &str) -> bool {
        let images = [CrashChoice::Kill, CrashChoice::DropAll].map(|c| state.crash_image(&c));
        if !self
            .seen
            .insert((images[0].content_hash(), images[1].content_hash()))
        {
            return false;
        }
        self.readers += 1;
        let (shown, left) = (shown(&images[0]), left(state));
        assert!(
            shown <= left,
            "{place}: commit {} was shown, a power cut leaves {}",
            shown.0,
            left.0
        );
        assert!(shown >= acknowledged, "{place}: only {} is shown", shown.0);
        true
    }

    /// Stops the recovery of a database at each of its calls, and the recovery of what that leaves, and so on.
    fn stop_recoveries(
        &mut self,
        killed: &SimEnv,
        acknowledged: CommitNo,
        place: &str,
        depth: u32,
    ) {
        let run = killed.crash_image(&CrashChoice::Kill);
        run.record_states(true);
        shape().open(&run.env()).unwrap();
        for call in 1..=run.calls() {
            let Some(state) = run.state_at(call) else {
                continue;
            };
            let place = format!("{place}, {call}");
            if self.judge(&state, acknowledged, &place) && depth > 1 {
                let killed = state.crash_image(&CrashChoice::Kill);
                self.stop_recoveries(&killed, acknowledged, &place, depth - 1);
            }
        }
    }
}

#[test]
fn a_reader_beside_recoveries_that_are_killed_shows_nothing_that_a_power_cut_takes_back() {
    let Killed { sim, acknowledged } = killed_in_a_sync();
    assert_eq!(shown(&sim), acknowledged);
    let mut judge = Judge::default();
    judge.stop_recoveries(&sim, acknowledged, "killed at calls", 3);
    println!("{} states with a reader", judge.readers);
    assert!(judge.readers > 50);
}

#[test]
fn a_reader_beside_recoveries_whose_syncs_fail_shows_nothing_that_a_power_cut_takes_back() {
    let Killed { sim, acknowledged } = killed_in_a_sync();
    let mut judge = Judge::default();
    let mut failed = 0;
    for reads in [ReadsAfter::New, ReadsAfter::Old] {
        for sync in 0.. {
            let run = sim.crash_image(&CrashChoice::Kill);
            let lost = Fault::FlushError {
                errno: Errno::IO,
                reads,
            };
            run.set_plan(FaultPlan::none().rule(FaultRule::new(lost).on(SYNCS).skip(sync).once()));
            if shape().open(&run.env()).is_ok() {
                break;
            }
            run.set_plan(FaultPlan::none());
            failed += 1;
            let place = format!("sync {sync} failed, {reads:?}");
            judge.judge(&run, acknowledged, &place);
            let killed = run.crash_image(&CrashChoice::Kill);
            judge.stop_recoveries(&killed, acknowledged, &place, 2);
        }
    }
    println!(
        "{failed} failed syncs, {} states with a reader",
        judge.readers
    );
    assert!(failed >= 8 && judge.readers > 50);
}

/// Lets the hung call go on also where a check fails, which would wait for its thread else.
struct Release<'a>(&'a SimEnv);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set_plan(FaultPlan::none());
        self.0.release_hung_calls();
    }
}

/// Runs `beside` while a thread hangs in one storage call.
fn while_it_hangs(sim: &SimEnv, rule: FaultRule, job: impl FnOnce() + Send, beside: impl FnOnce()) {
    sim.set_plan(FaultPlan::none().rule(rule.once()));
    std::thread::scope(|scope| {
        let running = scope.spawn(job);
        let release = Release(sim);
        while sim.hung_calls() == 0 {
            assert!(!running.is_finished(), "nothing hung");
            std::thread::yield_now();
        }
        beside();
        drop(release);
        running.join().unwrap();
    });
}

/// The calls of a recovery of the database.
fn recovery_calls(sim: &SimEnv) -> u64 {
    let run = sim.crash_image(&CrashChoice::Kill);
    let before = run.calls();
    let toy = shape().open(&run.env()).unwrap();
    let calls = run.calls() - before;
    drop(toy);
    calls
}

#[test]
fn a_reader_that_lives_beside_a_recovery_never_goes_back() {
    let Killed { sim, acknowledged } = killed_in_a_sync();
    for call in 1..=recovery_calls(&sim) {
        let run = sim.crash_image(&CrashChoice::Kill);
        let reader = shape().open_read_only(&run.env_of_process(READER)).unwrap();
        let mut last = contents_of(&reader).unwrap().0;
        assert_eq!(last, acknowledged);
        let mut look = || {
            let (now, _) = contents_of(&reader).unwrap();
            assert!(now >= last, "call {call}: {} after {}", now.0, last.0);
            assert!(now <= left(&run), "call {call}: {} was shown early", now.0);
            assert!(now <= shown(&run), "call {call}: a new reader shows less");
            last = now;
        };
        let rule = FaultRule::new(Fault::Hang).at_call(run.calls() + call);
        let open = || {
            let toy = shape().open(&run.env()).unwrap();
            let table = toy.kernel.snapshot().unwrap().table_named("t").unwrap().id;
            toy.append(table, &[(3, 3)], Disk).unwrap();
        };
        while_it_hangs(&run, rule, open, &mut look);
        look();
        assert_eq!(last, CommitNo(acknowledged.0 + 2));
    }
}

/// A machine whose boots have no id.
#[derive(Debug)]
struct NoBootId(Arc<dyn Clock>);

impl Clock for NoBootId {
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn wall_ns(&self) -> i64 {
        self.0.wall_ns()
    }

    fn boot_id(&self) -> [u8; 16] {
        [0; 16]
    }

    fn process(&self) -> u64 {
        self.0.process()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

fn without_boot_id(env: &Env) -> Env {
    Env::new(
        Arc::clone(env.storage()),
        Arc::new(NoBootId(Arc::clone(env.clock()))),
        Arc::clone(env.entropy()),
        Arc::clone(env.spawner()),
    )
}

/// A database of ten commits on disk, whose `live` was last written back to the disk when there were three.
fn with_an_old_live() -> SimEnv {
    let sim = SimEnv::new(1);
    let toy = shape().open(&without_boot_id(&sim.env())).unwrap();
    let table = toy.create("t").unwrap();
    for key in 0..10 {
        toy.append(table, &[(key, key)], Disk).unwrap();
    }
    let mut lives = 0;
    let fates = sim.pending_items().into_iter().map(|item| {
        let is_live = matches!(item, PendingItem::Write { path, .. } if path.ends_with("live"));
        lives += usize::from(is_live);
        if is_live && lives > 5 {
            ItemFate::Drop
        } else {
            ItemFate::Keep
        }
    });
    let fates = fates.collect();
    assert!(lives > 5);
    sim.crash_image(&CrashChoice::Items(fates))
}

fn rows_shown(env: &Env) -> usize {
    let toy = shape().open_read_only(env).unwrap();
    contents_of(&toy).unwrap().1["t"].len()
}

#[test]
fn without_boot_ids_a_reader_shows_all_that_a_power_cut_left() {
    let image = with_an_old_live();
    let reader = without_boot_id(&image.env_of_process(READER));
    assert_eq!(rows_shown(&reader), 10);
    // Nor does it show less while a writer opens the database.
    for call in 1..=recovery_calls(&image) {
        let run = image.crash_image(&CrashChoice::Kill);
        let rule = FaultRule::new(Fault::Hang).at_call(run.calls() + call);
        let open = || drop(shape().open(&without_boot_id(&run.env())).unwrap());
        let reader = without_boot_id(&run.env_of_process(READER));
        let look = || assert_eq!(rows_shown(&reader), 10, "call {call}");
        while_it_hangs(&run, rule, open, look);
    }
}

#[test]
fn without_boot_ids_a_reader_of_a_living_writer_shows_what_is_acknowledged_and_no_more() {
    let sim = SimEnv::new(2);
    let writer = shape().open(&without_boot_id(&sim.env())).unwrap();
    let table = writer.create("t").unwrap();
    let reader = without_boot_id(&sim.env_of_process(READER));
    let reader = shape().open_read_only(&reader).unwrap();
    let seen = || contents_of(&reader).unwrap().1["t"].len();
    for key in 0..4 {
        writer.append(table, &[(key, key)], Disk).unwrap();
        assert_eq!(seen() as i64, key + 1);
    }
    let rule = FaultRule::new(Fault::Hang).on(&[CallKind::SyncData]);
    let append = || _ = writer.append(table, &[(9, 9)], Disk).unwrap();
    while_it_hangs(&sim, rule, append, || {
        assert_eq!(seen(), 4, "its sync is under way")
    });
    assert_eq!(seen(), 5);
    // It follows: a statement does not read the log anew.
    sim.reset_stats();
    assert_eq!(seen(), 5);
    assert_eq!(sim.stats().opens, 0);
    writer.kernel.close().unwrap();
    assert_eq!(seen(), 5);
}

#[test]
fn a_damaged_slot_of_live_hides_nothing_while_a_writer_opens() {
    let sim = SimEnv::new(4);
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    for key in 0..5 {
        toy.append(table, &[(key, key)], Disk).unwrap();
    }
    let killed = sim.crash_image(&CrashChoice::Kill);
    let live = Path::new("/db/live");
    let bytes = killed.read_file(live).unwrap();
    let sequence =
        |slot: usize| u64::from_le_bytes(bytes[slot * 128 + 24..][..8].try_into().unwrap());
    let newest = usize::from(sequence(1) > sequence(0));
    let at = newest * 128 + 72;
    killed
        .overwrite_file(live, at as u64, &[bytes[at] ^ 1])
        .unwrap();
    let killed = killed.crash_image(&CrashChoice::Kill);
    assert_eq!(rows_shown(&killed.env_of_process(READER)), 5);
    for call in 1..=recovery_calls(&killed) {
        let run = killed.crash_image(&CrashChoice::Kill);
        let rule = FaultRule::new(Fault::Hang).at_call(run.calls() + call);
        let open = || drop(shape().open(&run.env()).unwrap());
        let look = || assert_eq!(rows_shown(&run.env_of_process(READER)), 5, "call {call}");
        while_it_hangs(&run, rule, open, look);
    }
}

#[test]
fn an_old_copy_of_the_root_is_refused_by_readers_as_by_writers() {
    let sim = SimEnv::new(5);
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let root = Path::new("/db/root");
    let old = sim.read_file(root).unwrap();
    let killed = sim.crash_image(&CrashChoice::Kill);
    drop(shape().open(&killed.env()).unwrap());
    killed.overwrite_file(root, 0, &old).unwrap();
    let copied = killed.crash_image(&CrashChoice::Kill);
    let reading = shape().open_read_only(&copied.env_of_process(READER));
    let reading = reading.unwrap_err();
    let writing = shape().open(&copied.env()).unwrap_err();
    for error in [reading, writing] {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains("an old copy?"), "{error}");
    }
}

/// Without `live` only the segments tell that commits of a later epoch were acknowledged.
#[test]
fn an_old_copy_of_the_root_is_refused_if_a_later_epoch_has_commits() {
    let sim = SimEnv::new(6);
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let root = Path::new("/db/root");
    let old = sim.read_file(root).unwrap();
    let killed = sim.crash_image(&CrashChoice::Kill);
    let toy = shape().open(&killed.env()).unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let copied = killed.crash_image(&CrashChoice::Kill);
    copied.overwrite_file(root, 0, &old).unwrap();
    copied.remove_file(Path::new("/db/live")).unwrap();
    let before = copied.files();
    let error = shape().open(&copied.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("an old copy?"), "{error}");
    let is_live = |(path, _): &(PathBuf, u64)| path.ends_with("live");
    let mut after = copied.files();
    after.retain(|file| !is_live(file));
    assert_eq!(after, before);
}

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        cache_bytes: 0,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env_of_process(WRITER), "/db", &options(), 8).unwrap()
}

fn open_reader(sim: &SimEnv) -> Toy {
    let read_only = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env_of_process(READER), "/db", &read_only, 8).unwrap()
}

fn is_fragment(toy: &Toy, entry: &Entry) -> bool {
    let store = toy.kernel.store();
    let path = store.fragment_path(entry.address.file);
    entry.address.bytes > 0 && store.env().storage().metadata(&path).is_ok()
}

/// The items of a table's index, and the pages above them by level and first key, each with its file.
fn items_and_pages(toy: &Toy, snapshot: &Snapshot, table: TableId) -> (Vec<Entry>, Vec<Page>) {
    let (mut items, mut pages) = (Vec::new(), Vec::new());
    let state = snapshot.table(table).unwrap();
    let visited = state.tree.visit(None, &**toy.kernel.store(), &mut |entry| {
        if entry.is_block() || is_fragment(toy, entry) {
            items.push(entry.clone());
            return Step::Take;
        }
        pages.push((entry.level, entry.key_min, entry.blocks));
        Step::Descend
    });
    visited.unwrap();
    (items, pages)
}

type Page = (u8, i64, u64);

fn pages(toy: &Toy, table: TableId) -> Vec<Page> {
    items_and_pages(toy, &toy.kernel.snapshot().unwrap(), table).1
}

/// What maintenance does: neighbouring items become one fragment with the same rows.
fn merge(toy: &Toy, table: TableId, range: std::ops::Range<usize>) {
    toy.kernel.commit(merging(toy, table, range), Disk).unwrap();
}

fn merging(toy: &Toy, table: TableId, range: std::ops::Range<usize>) -> Commit {
    let snapshot = toy.kernel.snapshot().unwrap();
    let (items, _) = items_and_pages(toy, &snapshot, table);
    let part = &items[range];
    let mut rows: Vec<Row> = Vec::new();
    for item in part {
        let below = if item.is_block() {
            vec![item.clone()]
        } else {
            let tree = thalweg_kernel::index::Tree::from_root(table, Some(item.clone()));
            let blocks = tree.iter(None, &**toy.kernel.store());
            blocks.collect::<Result<_, _>>().unwrap()
        };
        rows.extend(
            below
                .iter()
                .flat_map(|entry| toy.block_rows(entry).unwrap()),
        );
    }
    let first = part.iter().map(|item| item.commit_min).min().unwrap();
    let last = part.iter().map(|item| item.commit_max).max().unwrap();
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    fragment
        .add_block(&block(table, rows, Some((first, last))))
        .unwrap();
    let edit = Edit::Replace(ReplaceEdit::of_rows(
        table,
        part.iter().map(ItemName::of).collect(),
        vec![fragment.finish().unwrap()],
    ));
    Commit {
        edits: vec![edit],
        prepared_at: Some(snapshot.commit()),
        ..Commit::default()
    }
}

/// The pages that a replacement needs are loaded before it is stored, so they must be those of the tree before.
#[test]
fn a_replacement_is_the_only_change_of_its_tables_blocks() {
    let sim = SimEnv::new(10);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    for key in 0..9 {
        toy.append_fragment(table, &[(key, key)], 8).unwrap();
    }
    let want = toy.rows(table).unwrap();
    let mut both = merging(&toy, table, 0..3);
    both.edits.extend(merging(&toy, table, 5..8).edits);
    let error = toy.kernel.commit(both, Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    merge(&toy, table, 5..8);
    assert_eq!(toy.rows(table).unwrap(), want);
}

fn log_files(sim: &SimEnv) -> Vec<PathBuf> {
    let files = sim.files().into_iter().map(|(path, _)| path);
    files
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .collect()
}

/// The writer has joined two pages that a reader with other neighbours in memory did not join: the file of one of them goes.
#[test]
fn the_trees_of_a_reader_and_its_writer_use_the_same_pages() {
    let sim = SimEnv::new(5);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    for key in 0..256 + 256 + 170 {
        toy.append_fragment(table, &[(key * 10, key)], 8).unwrap();
    }
    let want = toy.rows(table).unwrap();
    merge(&toy, table, 0..67);
    toy.kernel.checkpoint().unwrap();
    let reader = open_reader(&sim);
    drop(reader.kernel.snapshot().unwrap());
    merge(&toy, table, 190..440);
    drop(reader.kernel.snapshot().unwrap());
    toy.kernel.checkpoint().unwrap();
    merge(&toy, table, 300..302);
    merge(&toy, table, 190..197);
    assert_eq!(pages(&reader, table), pages(&toy, table));
    // Until every segment that the checkpoints above have written is gone.
    let old: Vec<PathBuf> = log_files(&sim);
    let other = toy.create("other").unwrap();
    for round in 0..200 {
        let rows: Vec<Row> = (0..900).map(|key| (key, round * 1000 + key)).collect();
        toy.append(other, &rows, Disk).unwrap();
        merge_first(&toy, table);
        drop(reader.kernel.snapshot().unwrap());
        toy.kernel.collect_garbage().unwrap();
        assert_eq!(reader.rows(table).unwrap(), want, "round {round}");
        if log_files(&sim).iter().all(|path| !old.contains(path)) {
            return;
        }
    }
    panic!("{old:?} never went");
}

/// Writes the first page of the index anew.
fn merge_first(toy: &Toy, table: TableId) {
    let count = items_and_pages(toy, &toy.kernel.snapshot().unwrap(), table)
        .0
        .len();
    if count > 2 {
        merge(toy, table, 0..2);
    }
}

#[test]
fn random_merges_leave_a_reader_with_the_pages_of_its_writer() {
    for seed in 0..4 {
        let mut dice = thalweg_sim::report::Dice::new(seed);
        let sim = SimEnv::new(seed);
        let toy = open(&sim);
        let table = toy.create("t").unwrap();
        for key in 0..900 {
            toy.append_fragment(table, &[(key * 10, key)], 8).unwrap();
        }
        let want = toy.rows(table).unwrap();
        toy.kernel.checkpoint().unwrap();
        let reader = open_reader(&sim);
        for _ in 0..30 {
            let count = items_and_pages(&toy, &toy.kernel.snapshot().unwrap(), table)
                .0
                .len();
            if count < 40 {
                break;
            }
            let start = dice.below(count as u64 - 2) as usize;
            let length = 2 + dice.below(118) as usize;
            merge(&toy, table, start..(start + length).min(count));
            match dice.below(8) {
                0 | 1 => toy.kernel.checkpoint().unwrap(),
                2 => drop(toy.kernel.collect_garbage().unwrap()),
                3 => drop(reader.kernel.snapshot().unwrap()),
                4 => assert_eq!(reader.rows(table).unwrap(), want, "seed {seed}"),
                _ => {}
            }
        }
        assert_eq!(pages(&reader, table), pages(&toy, table), "seed {seed}");
        assert_eq!(reader.rows(table).unwrap(), want, "seed {seed}");
    }
}

#[test]
fn a_reader_starts_from_each_checkpoint_that_the_writer_has_passed() {
    let sim = SimEnv::new(6);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let reader = open_reader(&sim);
    let mut followed_rounds = 0;
    for round in 0..20 {
        let rows: Vec<Row> = (0..80).map(|key| (round * 100 + key, key)).collect();
        toy.append_group(table, &rows, 8, Process).unwrap();
        let followed = reader.kernel.snapshot().unwrap().table(table).unwrap();
        // Unless cleaning has written a checkpoint behind the rows, the pages of both are in memory.
        let appended = toy.kernel.snapshot().unwrap().table(table).unwrap();
        assert_eq!(followed.tree.is_dirty(), appended.tree.is_dirty());
        followed_rounds += usize::from(followed.tree.is_dirty());
        toy.kernel.checkpoint().unwrap();
        let loaded = reader.kernel.snapshot().unwrap().table(table).unwrap();
        let written = toy.kernel.snapshot().unwrap().table(table).unwrap();
        assert!(
            !loaded.tree.is_dirty(),
            "round {round}: pages stay in memory"
        );
        assert_eq!(loaded.tree.root_entry(), written.tree.root_entry());
    }
    assert!(followed_rounds > 10, "{followed_rounds}");
    // Following on from the same checkpoint costs nothing but looking.
    drop(reader.kernel.snapshot().unwrap());
    sim.reset_stats();
    drop(reader.kernel.snapshot().unwrap());
    assert_eq!((sim.stats().opens, sim.stats().writes), (0, 2), "two pins");
}

#[test]
fn a_reader_that_slept_reads_what_lies_behind_the_last_checkpoint_only() {
    let sim = SimEnv::new(7);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let reader = open_reader(&sim);
    drop(reader.kernel.snapshot().unwrap());
    let mut log_bytes = 0;
    for round in 0..40 {
        let rows: Vec<Row> = (0..800).map(|key| (round * 1000 + key, key)).collect();
        toy.append_group(table, &rows, 8, Process).unwrap();
        log_bytes += 800 * 16;
        toy.kernel.checkpoint().unwrap();
    }
    sim.reset_stats();
    let snapshot = reader.kernel.snapshot().unwrap();
    assert_eq!(snapshot.commit(), toy.kernel.snapshot().unwrap().commit());
    let read = sim.stats().bytes_read;
    assert!(
        read < log_bytes / 4,
        "{read} bytes of {log_bytes} were read"
    );
}

#[test]
fn a_reader_closes_files_that_are_removed() {
    let sim = SimEnv::new(8);
    let toy = open(&sim);
    let rows: Vec<Row> = (0..50).map(|key| (key, -key)).collect();
    let tables: Vec<TableId> = (0..20)
        .map(|n| {
            let table = toy.create(&format!("t{n}")).unwrap();
            toy.append_fragment(table, &rows, 8).unwrap();
            table
        })
        .collect();
    let reader = open_reader(&sim);
    for table in &tables {
        assert_eq!(reader.rows(*table).unwrap(), rows);
    }
    let held = reader.kernel.snapshot().unwrap();
    assert!(reader.kernel.store().open_files() >= 20);
    for table in &tables[1..] {
        toy.drop_table(*table).unwrap();
    }
    // What a snapshot needs stays, file and handle.
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    drop(reader.kernel.snapshot().unwrap());
    assert!(reader.kernel.store().open_files() >= 20);
    for table in &tables {
        assert_eq!(reader.rows_of(&held.table(*table).unwrap()).unwrap(), rows);
    }
    drop(held);
    drop(reader.kernel.snapshot().unwrap());
    assert!(toy.kernel.collect_garbage().unwrap() >= 19);
    drop(reader.kernel.snapshot().unwrap());
    assert_eq!(reader.kernel.store().open_files(), 0);
    // What is there is opened again, once: the fragment, and the segment with the page above it.
    for _ in 0..3 {
        assert_eq!(reader.rows(tables[0]).unwrap(), rows);
        assert_eq!(reader.kernel.store().open_files(), 2);
    }
}

#[test]
fn a_snapshot_that_is_too_old_keeps_no_removed_file_open() {
    let sim = SimEnv::new(9);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let rows: Vec<Row> = (0..50).map(|key| (key, -key)).collect();
    toy.append_fragment(table, &rows, 8).unwrap();
    let reader = open_reader(&sim);
    let old = reader.kernel.snapshot().unwrap();
    let old = old.table(table).unwrap();
    assert_eq!(reader.rows_of(&old).unwrap(), rows);
    toy.drop_table(table).unwrap();
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    sim.advance(Duration::from_secs(11 * 60));
    assert!(toy.kernel.collect_garbage().unwrap() >= 1);
    drop(reader.kernel.snapshot().unwrap());
    assert_eq!(reader.kernel.store().open_files(), 0);
    let error = reader.rows_of(&old).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotExpired, "{error}");
    assert!(reader.kernel.snapshot().unwrap().table(table).is_none());
}

/// What a failed sync was to store may read as before the write. The writer then ends, and its own snapshots may show it.
#[test]
fn readers_of_a_log_that_lost_a_sync_read_what_an_opening_would_find() {
    let sim = SimEnv::new(1);
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    let rows: Vec<Row> = (0..100).map(|k| (k, k)).collect();
    for row in &rows {
        toy.append(table, &[*row], Disk).unwrap();
    }
    let read = |process| {
        let env = sim.env_of_process(process);
        shape().open_read_only(&env)
    };
    let early = read(2).unwrap();
    assert_eq!(early.rows(table).unwrap(), rows);
    toy.append(table, &[(100, 100)], Process).unwrap();
    // `live` tells of the commit that this makes, and of those before it.
    toy.kernel.encode_open_rows(table).unwrap();
    assert_eq!(early.rows(table).unwrap().len(), 101);
    let lost = Fault::FlushError {
        errno: Errno::IO,
        reads: ReadsAfter::Old,
    };
    let rule = FaultRule::new(lost).on(&[CallKind::SyncData]).once();
    sim.set_plan(FaultPlan::none().rule(rule));
    toy.kernel.flush().unwrap_err();
    sim.set_plan(FaultPlan::none());
    let refused = toy.append(table, &[(101, 101)], Disk);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    for reader in [read(3).and_then(|late| late.rows(table)), early.rows(table)] {
        let error = reader.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    // It may fail: there is nothing left to store.
    let _ = toy.kernel.close();
    drop(toy);
    for _ in 0..2 {
        assert_eq!(early.rows(table).unwrap(), rows);
        assert_eq!(read(4).unwrap().rows(table).unwrap(), rows);
    }

    let toy = shape().open(&sim.env()).unwrap();
    assert_eq!(toy.rows(table).unwrap(), rows);
    toy.append(table, &[(100, 1)], Disk).unwrap();
    assert_eq!(early.rows(table).unwrap(), toy.rows(table).unwrap());
}

/// A commit of unknown outcome that an opening finds, behind another one that failed at any of its calls: a reading process that
/// has been there all the time shows it as well, as soon as the writer does.
#[test]
fn a_reader_shows_what_an_opening_has_found_behind_one_that_failed() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for call in 0.. {
        let sim = SimEnv::new(9);
        let toy = shape().open(&sim.env()).unwrap();
        let table = toy.create("t").unwrap();
        toy.append(table, &[(1, 1)], Disk).unwrap();
        let reader = shape().open_read_only(&sim.env_of_process(READER)).unwrap();
        assert_eq!(reader.rows(table).unwrap(), [(1, 1)]);
        let fails = Fault::FlushError {
            errno: Errno::IO,
            reads: ReadsAfter::New,
        };
        let syncs = FaultRule::new(fails).on(&[CallKind::SyncData]);
        sim.set_plan(FaultPlan::none().rule(syncs.once()));
        toy.append(table, &[(2, 2)], Disk).unwrap_err();
        drop(toy);
        let at = sim.calls() + call;
        let fault = FaultRule::new(Fault::Error(Errno::IO)).at_call(at);
        sim.set_plan(FaultPlan::none().rule(fault));
        drop(shape().open(&sim.env()));
        sim.set_plan(FaultPlan::none());
        let is_over = sim.calls() < at;
        let toy = shape().open(&sim.env()).unwrap();
        let rows = toy.rows(table).unwrap();
        found += usize::from(rows.len() == 2);
        if reader.rows(table).unwrap() != rows {
            wrong.push(call);
        }
        if is_over {
            break;
        }
    }
    assert!(found > 20, "{found}");
    assert_eq!(wrong, [], "the calls of the opening that failed");
}

/// Blocks of a table, found by their keys, in a fragment of one block that takes their place.
fn replace(toy: &Toy, table: TableId, keys: &[i64], rows: Vec<Row>) {
    let snapshot = toy.kernel.snapshot().unwrap();
    let tree = &snapshot.table(table).unwrap().tree;
    let entries = tree.iter(None, &**toy.kernel.store()).map(Result::unwrap);
    let removed: Vec<Entry> = entries.filter(|e| keys.contains(&e.key_min)).collect();
    let commits = (removed[0].commit_min, removed[0].commit_max);
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    let merged = block(table, rows, Some(commits));
    fragment.add_block(&merged).unwrap();
    let edit = Edit::Replace(ReplaceEdit::of_rows(
        table,
        removed.iter().map(ItemName::of).collect(),
        vec![fragment.finish().unwrap()],
    ));
    let commit = Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Disk).unwrap();
}

/// One that could not read a page of the index for a moment, over two commits, uses the same pages behind them as the writer.
#[test]
fn a_reader_that_could_not_read_a_page_for_a_moment_keeps_its_snapshots() {
    let sim = SimEnv::new(1);
    let mut shape = Shape::new(64 << 10, 1 << 20);
    shape.options.cache_bytes = 0;
    limit_page_entries(4);
    let toy = shape.open(&sim.env()).unwrap();
    let (table, other) = (toy.create("t").unwrap(), toy.create("other").unwrap());
    let rows = |keys: &[i64]| -> Vec<Row> { keys.iter().map(|k| (*k, *k)).collect() };
    let leave_segment = || {
        for k in 0..12 {
            let rows = random_rows(k * 500, 500);
            toy.append(other, &rows, Disk).unwrap();
        }
    };
    let keys: Vec<i64> = (0..16).collect();
    toy.append_group(table, &rows(&keys), 1, Disk).unwrap();
    replace(&toy, table, &[2, 3], rows(&[20, 21]));
    leave_segment();
    toy.kernel.checkpoint().unwrap();
    let root = { toy.kernel.snapshot().unwrap().table(table).unwrap() }
        .tree
        .root_entry();
    let segment = segment_name(root.unwrap().address.file);
    let reader = shape.open_read_only(&sim.env_of_process(READER)).unwrap();
    let first = reader.kernel.snapshot().unwrap();
    leave_segment();
    drop(reader.kernel.snapshot().unwrap());
    // The page of 4 to 7 is joined with the one before it, and grows again. As one change it would not be joined.
    replace(&toy, table, &[5, 6, 7], rows(&[22, 23, 24]));
    let last = rows(&[5, 6, 7, 9, 12]);
    toy.append_group(table, &last, 1, Disk).unwrap();
    let unreadable = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::Read]);
    sim.set_plan(FaultPlan::none().rule(unreadable.path_suffix(segment.to_str().unwrap())));
    let waits = reader.kernel.snapshot().unwrap();
    let read = reader.rows_of(&waits.table(table).unwrap());
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Io);
    sim.set_plan(FaultPlan::none());
    drop((first, waits));
    let held = reader.kernel.snapshot().unwrap();
    toy.kernel.collect_garbage().unwrap();
    let is_there = sim.files().iter().any(|(path, _)| path.ends_with(&segment));
    assert!(!is_there, "nothing needs it");
    // It closes all files that may be removed.
    drop(reader.kernel.snapshot().unwrap());
    let read = reader.rows_of(&held.table(table).unwrap());
    assert_eq!(read.unwrap(), toy.rows(table).unwrap());
    limit_page_entries(MAX_PAGE_ENTRIES);
}
