//! Processes that are killed on a disk that gets full: a table can be dropped after that, and rows can be appended again.
#![allow(
    clippy::unwrap_used,
    unused_qualifications,
    reason = "a step that fails is a test that fails, and `hidden_quotas.rs` has a machine of its own"
)]

use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::index::ItemName;
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, GroupPart, NEW_TABLE, Options, Result,
    TableId,
};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::toy::{Row, Toy, definition, random_rows, wide_block};

#[allow(dead_code, reason = "see `machine`")]
const HIDES_QUOTA: bool = false;

/// Where the disk tells of all free space. `tests/hidden_quotas.rs` runs what is here with another one.
#[allow(dead_code, reason = "that file has its own")]
fn machine(seed: u64) -> SimEnv {
    SimEnv::new(seed)
}

/// Kills per run.
const KILLS: usize = 2000;
const BLOCK_ROWS: usize = 512;
/// What a random row takes in the log, in a block and raw.
const BLOCK_ROW_BYTES: i64 = 9;
const OPEN_ROW_BYTES: i64 = 17;

fn open(sim: &SimEnv, segment_bytes: u64) -> Toy {
    let options = Options {
        segment_bytes,
        background: false,
        ..Options::default()
    };
    Toy::open(
        &sim.env(),
        "/db",
        &options,
        u32::try_from(BLOCK_ROWS).unwrap(),
    )
    .unwrap()
}

/// Drops a table. An attempt may be the one that finds out what the disk is like: four must do.
fn drop_in_the_end(toy: &Toy, table: TableId, what: &str) {
    let mut errors: Vec<Error> = Vec::new();
    loop {
        assert!(
            errors.len() < 4,
            "{what}: no table can be dropped: {errors:?}"
        );
        match toy.drop_table(table) {
            Ok(_) => return,
            // An attempt before it has dropped it, and could not say so.
            Err(e) if e.kind() == ErrorKind::NotFound && !errors.is_empty() => return,
            Err(e) => errors.push(e),
        }
    }
}

/// A database that is used up to the last byte, by steps that are drawn.
struct Filling {
    sim: SimEnv,
    toy: Toy,
    segment_bytes: u64,
    tables: [TableId; 2],
    next_key: i64,
}

impl Filling {
    fn start(number: u64, dice: &mut Dice) -> Self {
        let segment_bytes = dice.pick(&[128_u64 << 10, 512 << 10, 2 << 20]);
        let sim = crate::machine(number);
        let toy = open(&sim, segment_bytes);
        let tables = ["big", "other"].map(|name| toy.create(name).unwrap());
        for more in 0..dice.below(20) {
            toy.create(&format!("small {more}")).unwrap();
        }
        let mut filling = Self {
            sim,
            toy,
            segment_bytes,
            tables,
            next_key: 0,
        };
        while filling.sim.used_bytes() < 5 * segment_bytes {
            let rows = filling.rows(4000);
            let stored = filling
                .toy
                .append_group(tables[0], &rows, BLOCK_ROWS, Durability::Disk);
            stored.unwrap();
        }
        let more_bytes = segment_bytes / 4 + dice.below(3 * segment_bytes);
        let quota_bytes = filling.sim.used_bytes() + more_bytes;
        filling.sim.set_quota(Some(quota_bytes));
        filling
    }

    fn rows(&mut self, count: i64) -> Vec<Row> {
        let first = self.next_key;
        self.next_key += count;
        random_rows(first, count)
    }

    /// One step; `Err`: there was no room for it.
    fn step(&mut self, dice: &mut Dice) -> Result<()> {
        let most = self.segment_bytes.cast_signed() / 4;
        let count = dice.pick(&[20, 300, 2000, 9000, 40_000]).min(most);
        let rows = self.rows(count);
        let table = dice.pick(&self.tables);
        let (toy, level) = (&self.toy, Durability::Process);
        match dice.below(12) {
            0..=3 => toy
                .append(table, &rows[..rows.len().min(3000)], level)
                .map(drop),
            4..=8 => toy.append_group(table, &rows, BLOCK_ROWS, level).map(drop),
            9 => toy.append_fragment(table, &rows, BLOCK_ROWS).map(drop),
            10 => toy.kernel.checkpoint(),
            _ => toy.kernel.flush(),
        }
    }
}

/// The disk as a kill has left it, with no room for more.
fn killed(sim: &SimEnv) -> SimEnv {
    let image = sim.crash_image(&CrashChoice::Kill);
    image.set_quota(Some(image.used_bytes()));
    image
}

#[test]
fn a_kill_anywhere_on_a_full_disk_leaves_room_to_drop() {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let (mut runs, mut kills) = (0, 0);
    while kills < KILLS * effort() {
        runs += 1;
        let mut filling = Filling::start(runs, &mut dice);
        let (mut refused, mut steps) = (0, 0);
        while refused < 3 && steps < 120 {
            steps += 1;
            let before = filling.sim.calls();
            filling.sim.record_states(true);
            refused += u32::from(filling.step(&mut dice).is_err());
            let calls = filling.sim.calls();
            // Those behind the writes of a frame oftener.
            let is_drawn = |call: &u64| dice.below(if call + 3 > calls { 3 } else { 12 }) == 0;
            let calls: Vec<u64> = (before + 1..=calls).filter(is_drawn).collect();
            let sim = &filling.sim;
            let states: Vec<_> = calls
                .iter()
                .filter_map(|call| sim.state_at(*call))
                .collect();
            filling.sim.record_states(false);
            for state in states {
                kills += 1;
                let disk = killed(&state);
                let what = format!("seed {seed}, run {runs}, step {steps}");
                let toy = open(&disk, filling.segment_bytes);
                drop_in_the_end(&toy, filling.tables[0], &what);
            }
        }
        // Also where there is no room for a checkpoint.
        filling.toy.kernel.close().unwrap();
    }
    say(format_args!("full disk: {runs} runs, {kills} kills"));
    assert!(runs > 5, "{runs} runs");
}

/// The log is in the reserve when some space comes back. A large append gets a segment and another reserve then, which has room
/// for all of it that a recovery writes.
#[test]
fn a_kill_in_a_large_append_behind_the_reserve_leaves_room_to_drop() {
    const APPEND: i64 = 100_000;
    let segment_bytes = Options::default().segment_bytes;
    for more_bytes in [10 << 20, 12 << 20] {
        let sim = crate::machine(5);
        let toy = open(&sim, segment_bytes);
        let (big, small) = (toy.create("big").unwrap(), toy.create("small").unwrap());
        let append = |at: i64, count: i64, block_rows, level| {
            toy.append_group(big, &random_rows(at * APPEND, count), block_rows, level)
        };
        toy.append(small, &[(1, 1)], Durability::Disk).unwrap();
        for at in 0..10 {
            append(at, APPEND, 8192, Durability::Disk).unwrap();
            toy.kernel.run_due_work().unwrap();
        }
        sim.set_quota(Some(sim.used_bytes() + (1 << 20)));
        let full = (10..5000).find(|at| append(*at, 500, 512, Durability::Disk).is_err());
        assert!(full.is_some());
        // What it drops is kept.
        let _snapshot = toy.kernel.snapshot().unwrap();
        toy.drop_table(small).unwrap();
        sim.set_quota(Some(sim.used_bytes() + more_bytes));
        let before = sim.calls();
        sim.record_states(true);
        append(1 << 20, 6 * APPEND, 8192, Durability::Process).unwrap();
        let calls = (before + 1..=sim.calls()).rev().take(20);
        let states: Vec<_> = calls.filter_map(|call| sim.state_at(call)).collect();
        assert!(states.len() > 10);
        for state in states {
            let toy = open(&killed(&state), segment_bytes);
            drop_in_the_end(&toy, big, "behind the reserve");
        }
    }
}

/// A database with a table `big` on a full disk: about `left_bytes` of the segment that is written to are left, and behind it
/// there is the reserve and nothing else.
fn with_one_segment_and_reserve(segment_bytes: u64, left_bytes: i64) -> (SimEnv, Toy, TableId) {
    const APPEND_ROWS: i64 = 1000;
    let sim = crate::machine(6);
    let toy = open(&sim, segment_bytes);
    let big = toy.create("big").unwrap();
    let mut next_key = 0;
    let mut append = || {
        let rows = random_rows(next_key, APPEND_ROWS);
        next_key += APPEND_ROWS;
        let stored = toy.append_group(big, &rows, BLOCK_ROWS, Durability::Disk);
        stored.unwrap();
    };
    let has = |suffix: &str| {
        let is_one = |path: &Path| path.extension().is_some_and(|found| found == suffix);
        let files = sim.files();
        let mut found = files.iter();
        found.any(|(path, bytes)| is_one(path) && *bytes == segment_bytes)
    };
    while !has("seg") || !has("spare") {
        append();
    }
    sim.set_quota(Some(sim.used_bytes()));
    while has("spare") {
        append();
    }
    let bytes = segment_bytes.cast_signed() - left_bytes;
    for _ in 0..bytes / (APPEND_ROWS * BLOCK_ROW_BYTES) {
        append();
    }
    (sim, toy, big)
}

/// Drops a table wherever the process is killed from a call on.
fn drop_after_each_kill(sim: &SimEnv, from: u64, segment_bytes: u64, table: TableId, what: &str) {
    let mut kills = 0;
    for call in from + 1..=sim.calls() {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        kills += 1;
        let toy = open(&killed(&state), segment_bytes);
        drop_in_the_end(&toy, table, &format!("{what}, call {call}"));
    }
    assert!(kills > 1, "{what}: {kills} kills");
}

/// A recovery writes them all again, before a table can be dropped.
#[test]
fn commits_that_are_not_synced_have_room_in_the_reserve_together() {
    let segment_bytes = 2 << 20;
    for (first, second) in [(40_000, 100_000), (54_000, 90_000)] {
        let left_bytes = (first + second + 3000) * BLOCK_ROW_BYTES;
        let (sim, toy, big) = with_one_segment_and_reserve(segment_bytes, left_bytes);
        let append = |at: i64, count| {
            let rows = random_rows(at << 32, count);
            toy.append_group(big, &rows, BLOCK_ROWS, Durability::Process)
        };
        append(1, first).unwrap();
        let before = sim.calls();
        sim.record_states(true);
        append(2, second).unwrap();
        let what = format!("{first} and {second} rows");
        drop_after_each_kill(&sim, before, segment_bytes, big, &what);
    }
}

/// A recovery writes them again, and so does each checkpoint behind that.
#[test]
fn open_rows_have_room_in_the_reserve_for_each_checkpoint() {
    let segment_bytes = 2 << 20;
    for (count, is_stored) in [(10_000, true), (40_000, false), (55_000, false)] {
        let left_bytes = (count + 3000) * OPEN_ROW_BYTES;
        let (sim, toy, big) = with_one_segment_and_reserve(segment_bytes, left_bytes);
        let before = sim.calls();
        sim.record_states(true);
        let appended = toy.append(big, &random_rows(1 << 32, count), Durability::Process);
        let what = format!("{count} open rows: {appended:?}");
        drop_after_each_kill(&sim, before, segment_bytes, big, &what);
        assert_eq!(appended.is_ok(), is_stored, "{what}");
    }
}

/// How many leaf pages the index of the wide table has, and how many blocks are in each.
const WIDE: (i64, i64) = (16, 256);
const WIDE_COLUMNS: u32 = 64;

/// A table of many columns, whose index has long pages, and `big`, on a disk that is full but for a part of a segment.
fn wide_and_full(segment_bytes: u64) -> (SimEnv, Toy, TableId, TableId) {
    let sim = crate::machine(3);
    let toy = open(&sim, segment_bytes);
    let big = toy.create("big").unwrap();
    let edit = Edit::CreateTable {
        table: NEW_TABLE,
        name: "wide".to_owned(),
        definition: definition(WIDE_COLUMNS),
        indexes: 0,
    };
    commit(&toy, edit, None).unwrap();
    let wide = toy
        .kernel
        .snapshot()
        .unwrap()
        .table_named("wide")
        .unwrap()
        .id;
    let (pages, blocks) = WIDE;
    for at in (0..pages * blocks).step_by(16) {
        let keys = (at..at + 16).map(|block| block * 100);
        add_wide(&toy, wide, keys, Durability::Process).unwrap();
    }
    for at in 0..20 {
        let rows = random_rows(at * 20_000, 20_000);
        toy.append_fragment(big, &rows, BLOCK_ROWS).unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = open(&sim, segment_bytes);
    sim.set_quota(Some(sim.used_bytes() + (3 << 20)));
    let append = |toy: &Toy, at: i64| {
        let rows = random_rows(1_000_000 + at * 100, 100);
        toy.append_group(big, &rows, BLOCK_ROWS, Durability::Disk)
    };
    // On a copy it is found out how much fits: the last segment keeps room for short commits.
    let copy = sim.crash_image(&CrashChoice::Kill);
    copy.set_quota(Some(copy.used_bytes() + (3 << 20)));
    let full = {
        let toy = open(&copy, segment_bytes);
        (0..100_000).find(|at| append(&toy, *at).is_err()).unwrap()
    };
    for at in 0..full - 100 {
        append(&toy, at).unwrap();
    }
    sim.set_quota(Some(sim.used_bytes()));
    (sim, toy, big, wide)
}

fn commit(toy: &Toy, edit: Edit, prepared_at: Option<CommitNo>) -> Result<CommitNo> {
    let commit = Commit {
        edits: vec![edit],
        prepared_at,
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk)
}

fn add_wide(
    toy: &Toy,
    table: TableId,
    keys: impl Iterator<Item = i64>,
    level: Durability,
) -> Result<CommitNo> {
    let block = |key| wide_block(table, random_rows(key, 64), None, WIDE_COLUMNS);
    let group = GroupPart {
        head: AddHead::of_rows(table, 1),
        blocks: keys.map(block).collect(),
    };
    let commit = Commit {
        groups: vec![group],
        ..Commit::default()
    };
    toy.kernel.commit(commit, level)
}

/// Late rows and replacements are short, and the next checkpoint writes each page that they change.
#[test]
fn short_commits_that_change_many_pages_leave_room_to_drop() {
    let segment_bytes = 2 << 20;
    let (pages, blocks) = WIDE;
    for replaces in [false, true] {
        let (sim, toy, big, wide) = wide_and_full(segment_bytes);
        let mut refused = 0;
        if replaces {
            let snapshot = toy.kernel.snapshot().unwrap();
            let store = toy.kernel.store();
            let entries = snapshot.table(wide).unwrap().tree.iter(None, &**store);
            let keys = entries.map(|entry| ItemName::of(&entry.unwrap()));
            let removed = keys.step_by(usize::try_from(blocks / 2).unwrap()).collect();
            let edit = Edit::Replace(ReplaceEdit::of_rows(wide, removed, Vec::new()));
            refused += i32::from(commit(&toy, edit, Some(snapshot.commit())).is_err());
        } else {
            for page in 0..pages {
                let key = (page * blocks + blocks / 2) * 100 + 80;
                let late = add_wide(&toy, wide, std::iter::once(key), Durability::Disk);
                refused += i32::from(late.is_err());
            }
        }
        assert!(refused > 0, "replaces {replaces}");
        let image = killed(&sim);
        drop(toy);
        let toy = open(&image, segment_bytes);
        drop_in_the_end(&toy, big, "many pages");
        toy.drop_table(wide).unwrap();
        toy.kernel.collect_garbage().unwrap();
        assert!(image.used_bytes() < 64 << 20, "{}", image.used_bytes());
        let table = toy.create("new").unwrap();
        toy.append(table, &[(1, 1)], Durability::Disk).unwrap();
    }
}

/// Others would find no space while it is tried.
#[test]
fn an_append_that_is_refused_fills_no_disk_first() {
    let segment_bytes = 2 << 20;
    // Cleaning leaves more or less room, into which no append fits.
    for free_bytes in [192 << 10, 256 << 10] {
        let (sim, toy, big, _wide) = wide_and_full(segment_bytes);
        sim.set_quota(Some(sim.used_bytes() + free_bytes));
        sim.reset_stats();
        let refused = (0..20).filter(|at| {
            let rows = random_rows(2_000_000 + at * 10_000, 10_000);
            let stored = toy.append_group(big, &rows, BLOCK_ROWS, Durability::Disk);
            stored.is_err_and(|error| error.kind() == ErrorKind::DiskFull)
        });
        assert!(refused.count() > 10);
        let written = sim.stats().bytes_written;
        // What may be had is only found out by trying where it is not told.
        let max_bytes = if crate::HIDES_QUOTA { 4 << 20 } else { 2 << 20 };
        assert!(written < max_bytes, "{written} bytes");
    }
}
