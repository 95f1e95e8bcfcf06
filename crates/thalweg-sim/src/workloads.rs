//! Small histories of a database that between them use every kind of frame, file and edit.
//!
//! Each is as short as it can be and still meet its subject: every storage call of it is a place to crash at.

use crate::driver::Driver;
use crate::shape::Shape;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::Durability::{Disk, Memory, Process};

/// A named history.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name, for reports.
    pub name: &'static str,
    segment_bytes: u64,
    block_rows: u32,
    /// Most entries of an index page, if not as many as there may be.
    page_entries: Option<usize>,
    /// Of so many choices and calls that others get, one: its database is large.
    one_in: usize,
    steps: fn(&mut Driver),
}

impl Workload {
    /// Runs it on a machine; with `faulty`, errors are outcomes.
    pub fn run(&self, sim: &SimEnv, faulty: bool) -> Driver {
        let mut driver = Driver::start(sim, self.shape(), faulty);
        (self.steps)(&mut driver);
        driver
    }

    /// The shape of its database.
    pub fn shape(&self) -> Shape {
        let shape = Shape::new(self.segment_bytes, self.block_rows);
        let page_entries = self.page_entries.unwrap_or(shape.page_entries);
        Shape {
            page_entries,
            ..shape
        }
    }

    /// This workload gets one of so many cases that others get.
    pub fn one_in(&self) -> usize {
        self.one_in
    }

    const fn with_pages(self, entries: usize) -> Self {
        Self {
            page_entries: Some(entries),
            ..self
        }
    }

    const fn large(self, one_in: usize) -> Self {
        Self { one_in, ..self }
    }
}

const fn workload(
    name: &'static str,
    segment_bytes: u64,
    block_rows: u32,
    steps: fn(&mut Driver),
) -> Workload {
    Workload {
        name,
        segment_bytes,
        block_rows,
        page_entries: None,
        one_in: 1,
        steps,
    }
}

/// All of them.
pub const WORKLOADS: [Workload; 37] = [
    // The slow ones first, so that no thread is left with one at the end.
    workload("index levels", 32768, 2, index_levels)
        .with_pages(6)
        .large(3),
    workload("index joins", 32768, 2, index_joins)
        .with_pages(8)
        .large(3),
    workload("reader and index", 16384, 2, reader_and_index)
        .with_pages(4)
        .large(4),
    workload("many tables", 32768, 4, many_tables).large(8),
    workload("4,000 columns", 1 << 20, 8, very_wide).large(32),
    workload("40 columns", 16384, 4, wide).large(2),
    workload("raw rows to disk", 8192, 64, raw_disk),
    workload("raw rows to the cache", 8192, 64, raw_process),
    workload("group commit", 8192, 64, group_commit),
    workload("groups", 16384, 8, groups),
    workload("late groups", 16384, 8, late_groups),
    workload("cover", 16384, 4, cover),
    workload("rolls", 4096, 8, rolls),
    workload("checkpoints", 8192, 8, checkpoints),
    workload("differences", 65536, 8, differences).large(2),
    workload("everything among many", 65536, 4, everything_among_many).large(2),
    workload("fragments", 8192, 8, fragments),
    workload("tables", 8192, 8, tables),
    workload("merge", 8192, 4, merge),
    workload("garbage", 4096, 8, garbage),
    workload("tails", 8192, 8, tails),
    workload("long tail", 4096, 1000, long_tail),
    workload("resend", 8192, 8, resend),
    workload("close and reopen", 8192, 8, close_and_reopen),
    workload("definitions", 8192, 4, definitions),
    workload("everything", 4096, 4, everything),
    workload("one column", 8192, 4, one_column),
    workload("equal keys", 8192, 4, equal_keys),
    workload(
        "equal keys across checkpoints",
        4096,
        6,
        equal_keys_across_checkpoints,
    ),
    workload("many fragments", 8192, 4, many_fragments),
    workload("large groups", 8192, 64, large_groups).large(2),
    workload("reader that follows", 8192, 4, reader_that_follows).large(2),
    workload("reader that holds", 4096, 4, reader_that_holds).large(2),
    workload("drops", 4096, 4, drops).large(2),
    workload("indexes", 8192, 4, indexes).large(2),
    workload("indexes that change", 8192, 4, indexes_that_change).large(2),
    workload("index pages", 16384, 2, index_pages)
        .with_pages(4)
        .large(3),
];

/// Those in which rows are deleted. A repair may bring such rows back where it reports so, which its oracle does not know.
pub const DELETES: [Workload; 3] = [
    workload("deletes", 8192, 4, deletes).large(2),
    workload("deletes and rewrites", 8192, 4, deletes_and_rewrites).large(2),
    workload("deletes of ranges", 8192, 4, deletes_of_ranges)
        .with_pages(4)
        .large(2),
];

/// Rows that are covered once, and nothing after them.
pub const ONE_COVER: Workload = workload("one cover", 8192, 4, one_cover);

/// The workload of a name.
pub fn named(name: &str) -> &'static Workload {
    let mut all = WORKLOADS.iter().chain(&DELETES);
    let found = all.find(|workload| workload.name == name);
    found.expect("a workload of that name")
}

fn one_cover(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Process);
    db.append("t", 3..4, Disk);
}

fn raw_disk(db: &mut Driver) {
    db.create("t");
    for k in 0..6 {
        db.append("t", k * 2..k * 2 + 2, Disk);
    }
}

fn raw_process(db: &mut Driver) {
    db.create("t");
    for k in 0..8 {
        db.append("t", [k], if k % 3 == 2 { Memory } else { Process });
        if k == 5 {
            db.flush();
        }
    }
}

fn group_commit(db: &mut Driver) {
    db.create("t");
    db.append_together("t", &[1, 2, 3, 4]);
    db.append("t", [5], Process);
    db.append_together("t", &[6, 7, 8]);
}

fn groups(db: &mut Driver) {
    db.create("t");
    for k in 0..4 {
        let level = if k % 2 == 0 { Disk } else { Process };
        db.append_group("t", k * 20..k * 20 + 20, level);
    }
}

fn late_groups(db: &mut Driver) {
    db.create("t");
    db.append("t", [100, 101, 102], Process);
    db.append_group("t", 0..12, Process);
    db.append("t", 103..110, Disk);
    db.append_group("t", 90..105, Disk);
    db.append("t", [5, 50, 200], Process);
}

fn cover(db: &mut Driver) {
    db.create("t");
    for k in 0..10 {
        db.append("t", [k], if k % 4 == 3 { Disk } else { Process });
        if k == 4 {
            db.cover_again("t");
        }
    }
    db.flush();
}

fn rolls(db: &mut Driver) {
    db.create("t");
    for k in 0..8 {
        db.append_group(
            "t",
            k * 40..k * 40 + 40,
            if k % 3 == 2 { Disk } else { Process },
        );
    }
}

fn checkpoints(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Process);
    db.checkpoint();
    db.append_group("t", 10..30, Process);
    db.append("t", 3..5, Process);
    db.checkpoint();
    db.append("t", 5..7, Disk);
    db.checkpoint();
    db.append("t", 7..8, Process);
}

/// So many tables and names so long that most checkpoints are differences, and bases are renewed several times.
fn differences(db: &mut Driver) {
    let names = long_names();
    db.create_all(&names);
    for round in 0..5 {
        db.append(&names[3], [round, -round], Process);
        db.checkpoint();
    }
    // So many change that both bases are used up.
    for round in 0..10 {
        db.append_to_all(&names[16..24], &[round], Process);
        db.checkpoint();
    }
    db.rename(&names[1], "renamed");
    db.checkpoint();
    db.drop_table(&names[2]);
    db.create(&names[1]);
    db.append(&names[1], 0..9, Process);
    db.checkpoint();
    db.kill();
    db.append_group(&names[4], 0..20, Disk);
    db.checkpoint();
    db.append("renamed", 0..3, Disk);
    db.checkpoint();
    db.drop_table(&names[4]);
    db.collect();
    for table in [5, 5, 6, 7, 8] {
        db.append(&names[table], [3, 1], Process);
        db.checkpoint();
    }
    db.reopen();
    db.append(&names[5], [2], Disk);
    db.checkpoint();
    db.kill();
    db.append(&names[9], [7], Disk);
}

/// All kinds of changes among many tables that are idle.
fn everything_among_many(db: &mut Driver) {
    db.create_all(&long_names());
    db.checkpoint();
    db.checkpoint();
    everything(db);
    db.checkpoint();
    db.append("t", [2], Disk);
}

/// Names of tables, so many and so long that a checkpoint of all of them is worth to build on.
pub fn long_names() -> Vec<String> {
    let name = |n| {
        format!(
            "plant 7, hall 12, line {n}: a sensor whose name says all that there is to say of it"
        )
    };
    (0..44).map(name).collect()
}

fn fragments(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Process);
    db.append_fragment("t", 10..60);
    db.abandon_fragment("t", 0..20);
    db.append("t", 3..5, Disk);
    db.append_fragment("t", 5..40);
}

fn tables(db: &mut Driver) {
    db.create("a");
    db.append("a", 0..3, Process);
    db.create("b");
    db.append_group("b", 0..10, Process);
    db.rename("a", "c");
    db.append("c", 3..5, Process);
    db.drop_table("b");
    db.create("b");
    db.append("b", 7..9, Disk);
    db.drop_table("c");
}

fn merge(db: &mut Driver) {
    db.create("t");
    db.append_group("t", 0..8, Process);
    db.append_group("t", 4..12, Process);
    db.append("t", 20..22, Process);
    db.merge("t");
    db.append_group("t", 6..10, Disk);
    db.merge("t");
    db.append("t", 22..24, Disk);
}

fn garbage(db: &mut Driver) {
    db.create("t");
    db.create("u");
    db.append_group("t", 0..40, Process);
    db.append_group("u", 0..40, Process);
    db.append_fragment("u", 0..30);
    db.append("t", 50..52, Process);
    db.drop_table("u");
    db.collect();
    db.append_group("t", 20..60, Process);
    db.merge("t");
    db.collect();
    db.append("t", 60..62, Disk);
}

fn tails(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Disk);
    db.append_group("t", 10..30, Process);
    db.append("t", 3..5, Process);
    db.kill();
    db.append_group("t", 30..40, Process);
    db.kill();
    db.append("t", 5..7, Process);
    db.append_fragment("t", 0..10);
    db.append_group("t", 0..20, Process);
    db.kill();
    db.append("t", 7..9, Disk);
}

fn long_tail(db: &mut Driver) {
    db.create("t");
    for k in 0..3 {
        db.append("t", k * 60..k * 60 + 60, Process);
    }
    db.kill();
    db.append("t", 0..100, Process);
    db.append_group("t", 0..20, Process);
    db.kill();
    db.append("t", [7], Disk);
}

fn resend(db: &mut Driver) {
    db.create("t");
    db.append_twice("t", &[1, 2], 1, [Process, Disk]);
    db.append_twice("t", &[3], 2, [Disk, Process]);
    db.checkpoint();
    db.append_twice("t", &[4, 5], 7, [Process, Process]);
    db.kill();
    db.append_twice("t", &[6], 8, [Process, Disk]);
}

fn close_and_reopen(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Process);
    db.reopen();
    db.append_group("t", 3..20, Process);
    db.reopen();
    db.reopen();
    db.append("t", 20..22, Process);
    db.kill();
    db.reopen();
}

fn definitions(db: &mut Driver) {
    db.create("t");
    db.append("t", 0..3, Process);
    db.redefine("t");
    db.append("t", 3..6, Process);
    db.append_group("t", 1..9, Process);
    db.append("t", 6..11, Disk);
}

fn everything(db: &mut Driver) {
    db.create("t");
    db.create("u");
    for k in 0..5 {
        db.append("t", k * 3..k * 3 + 3, Process);
        db.append_group(
            "u",
            k * 9..k * 9 + 12,
            if k % 2 == 0 { Process } else { Disk },
        );
    }
    db.merge("u");
    db.append_fragment("t", 0..30);
    db.kill();
    db.append("u", 0..3, Process);
    db.checkpoint();
    db.drop_table("u");
    db.collect();
    db.reopen();
    db.create("u");
    db.append("u", 0..5, Process);
    db.append_group("t", 10..20, Process);
    db.kill();
    db.append("t", [1], Disk);
}

/// Three levels of pages by a few large commits; then the pages split, in the middle and at the end, between checkpoints.
fn index_levels(db: &mut Driver) {
    db.create("t");
    // 150 blocks fill 25 pages, and these 5.
    db.append_group("t", (0..300).map(|k| k * 10), Process);
    db.checkpoint();
    db.append_group("t", (0..40).map(|k| k * 70 + 5), Process);
    db.append_group("t", (300..330).map(|k| k * 10), Disk);
    db.append("t", [3, 1500, 2999], Process);
    db.checkpoint();
    db.append_group("t", (0..20).map(|k| 1001 + k), Disk);
    db.append_fragment("t", (0..30).map(|k| 2000 + k * 7));
    db.kill();
    db.append_group("t", (0..16).map(|k| 5001 + k * 2), Disk);
}

/// Pages run empty and are joined, some of them known from disk and some dirty.
fn index_joins(db: &mut Driver) {
    db.create("t");
    db.append_group("t", 0..260, Process);
    db.checkpoint();
    // Nearly all blocks of some pages become one item each time; the page after it is then a neighbour.
    db.merge_items("t", 2..15);
    db.merge_items("t", 10..17);
    db.checkpoint();
    db.merge_items("t", 30..53);
    db.append_group("t", 260..300, Process);
    db.merge_items("t", 5..31);
    db.collect();
    db.kill();
    db.merge_items("t", 0..20);
    db.append("t", 300..303, Disk);
    db.merge("t");
    db.append_group("t", 303..330, Disk);
}

/// A reader follows a writer whose pages split and join, through checkpoints, cleaning and recoveries.
fn reader_and_index(db: &mut Driver) {
    db.create("t");
    db.append_group("t", 0..80, Process);
    db.follow();
    db.checkpoint();
    db.append_group("t", 80..120, Process);
    db.merge_items("t", 1..6);
    db.hold();
    db.checkpoint();
    db.merge_items("t", 3..12);
    db.merge_items("t", 0..5);
    db.collect();
    db.append("t", 120..125, Disk);
    db.release();
    db.kill();
    db.merge_items("t", 6..14);
    db.checkpoint();
    db.collect();
    db.append_group("t", 130..150, Disk);
    db.merge("t");
    db.checkpoint();
    db.collect();
}

/// Hundreds of tables, most of them idle.
fn many_tables(db: &mut Driver) {
    let names: Vec<String> = (0..240).map(|n| format!("t{n}")).collect();
    db.create_all(&names[..120]);
    db.append_to_all(&names[..40], &[1, 2, 3], Process);
    db.create_all(&names[120..]);
    db.checkpoint();
    db.append_to_all(&names[100..140], &[5, 4], Disk);
    db.append_to_all(&names[20..60], &[3, 7], Process);
    db.drop_all(&names[10..110]);
    db.kill();
    db.append_to_all(&names[110..150], &[1, 1, 9], Disk);
    db.checkpoint();
    db.collect();
    db.drop_all(&names[200..]);
}

/// Groups, covers and pages of blocks that summarise thousands of columns.
fn very_wide(db: &mut Driver) {
    db.create_wide("t", 4000);
    db.append_group("t", 0..20, Process);
    db.append("t", 20..26, Process);
    db.encode("t");
    db.checkpoint();
    db.append_group("t", 5..14, Disk);
    db.merge("t");
    db.append("t", [7], Disk);
}

fn wide(db: &mut Driver) {
    db.create_wide("t", 40);
    db.append_group("t", 0..60, Process);
    db.append("t", 60..63, Process);
    db.append_group("t", 30..40, Disk);
    db.append("t", 63..70, Process);
    db.checkpoint();
    db.merge("t");
    db.append_fragment("t", 20..50);
    db.kill();
    db.append("t", 70..72, Disk);
}

/// Rows without keys come in the order they arrived, whatever they are stored in.
fn one_column(db: &mut Driver) {
    db.create_wide("t", 1);
    let rows = |count: usize| std::iter::repeat_n(0, count);
    db.append("t", rows(3), Process);
    db.append_group("t", rows(9), Process);
    db.append("t", rows(6), Disk);
    db.append_fragment("t", rows(10));
    db.checkpoint();
    db.append("t", rows(2), Process);
    db.encode("t");
    db.merge("t");
    db.append_group("t", rows(5), Process);
    db.kill();
    db.append("t", rows(3), Disk);
    db.encode("t");
}

/// Rows of equal keys arrive raw, as groups and as fragments in turn: each kind comes between rows of another that are still
/// open.
fn equal_keys(db: &mut Driver) {
    db.create("t");
    for round in 0..3 {
        db.append("t", [7, 8, 7], Process);
        db.append_group("t", [8, 7, 7, 7, 8], Process);
        if round == 1 {
            db.append_fragment("t", [7, 8, 8, 7, 7, 7]);
        }
        db.append("t", [8, 7], if round == 2 { Disk } else { Process });
    }
    db.encode("t");
    db.merge("t");
    db.append("t", [7], Process);
    db.append_group("t", [7, 8], Process);
    db.append("t", [8, 7], Disk);
    db.encode("t");
}

/// Rows of equal keys, with checkpoints and recoveries between the open rows and what came after them.
fn equal_keys_across_checkpoints(db: &mut Driver) {
    db.create("t");
    db.append("t", [1, 1], Process);
    db.append_group("t", [1, 2, 1], Process);
    db.checkpoint();
    db.append("t", [1, 2], Process);
    db.kill();
    db.append_group("t", [2, 1], Process);
    db.append("t", [1], Disk);
    db.reopen();
    db.append("t", [2, 1, 2], Process);
    db.checkpoint();
    db.append_group("t", [1], Process);
    db.kill();
    db.append("t", [1, 2, 1], Process);
    db.encode("t");
    db.append("t", [1], Disk);
}

/// One commit adds a dozen fragments; another one is refused.
fn many_fragments(db: &mut Driver) {
    db.create("t");
    db.append("t", [50], Process);
    db.append_fragments("t", 0..120, 10);
    db.append("t", 5..8, Process);
    db.abandon_fragment("t", 0..20);
    db.append_fragments("t", (0..60).map(|k| 200 + k * 2), 12);
    db.checkpoint();
    db.merge_items("t", 0..3);
    db.drop_table("t");
    db.collect();
}

/// Frames of several times the size of a segment.
fn large_groups(db: &mut Driver) {
    db.create("t");
    let scattered = |k: i64| k.wrapping_mul(0x9E37_79B9) % 100_000;
    db.append_group("t", (0..3000).map(scattered), Process);
    db.append("t", 0..700, Process);
    db.append_group("t", (0..2500).map(|k| scattered(k + 7000)), Disk);
    db.checkpoint();
    db.append("t", (0..900).map(scattered), Disk);
}

fn reader_that_follows(db: &mut Driver) {
    db.create("t");
    db.follow();
    db.append("t", 0..3, Process);
    db.append_group("t", 1..12, Disk);
    db.append("t", 3..6, Disk);
    db.checkpoint();
    db.merge("t");
    db.collect();
    db.kill();
    db.append("t", 6..9, Process);
    db.reopen();
    db.append_fragment("t", 2..9);
    db.create("u");
    db.append("u", [1], Disk);
    db.drop_table("t");
    db.collect();
    db.append("u", 2..8, Disk);
}

/// A reader holds snapshots while what they need is merged, dropped and collected.
fn reader_that_holds(db: &mut Driver) {
    db.create("t");
    db.create("u");
    db.append_group("t", 0..30, Process);
    db.append_fragment("u", 0..20);
    db.follow();
    db.append("t", 30..33, Process);
    db.hold();
    db.append_group("t", 10..20, Disk);
    db.merge("t");
    db.checkpoint();
    db.hold();
    db.drop_table("u");
    db.collect();
    db.append_group("t", 40..60, Process);
    db.checkpoint();
    db.collect();
    db.kill();
    db.append("t", [35], Disk);
    db.collect();
    db.release();
    db.checkpoint();
    db.collect();
    db.stop_following();
}

/// Rows of blocks, of fragments and open ones are deleted, twice in the same blocks; the last rows of an item take it along.
fn deletes(db: &mut Driver) {
    db.create("t");
    db.follow();
    db.append_group("t", 0..12, Disk);
    db.append("t", 12..15, Disk);
    db.delete("t", |row| row.0 % 3 == 1);
    db.checkpoint();
    db.append_fragment("t", 20..44);
    db.delete("t", |row| row.0 % 5 == 2);
    db.kill();
    db.delete("t", |row| (0..4).contains(&row.0));
    db.append("t", 15..18, Disk);
    db.delete("t", |row| row.0 == 16);
    db.encode("t");
    db.delete("t", |row| row.0 == 15);
    db.checkpoint();
    db.delete("t", |row| row.0 == 43);
    db.reopen();
    db.delete("t", |row| row.0 == 17);
}

/// Rewrites, moves and drops items that have hidden rows.
fn deletes_and_rewrites(db: &mut Driver) {
    db.create("t");
    db.create("u");
    db.follow();
    db.append_group("t", 0..24, Disk);
    db.append_group("u", 0..40, Disk);
    db.delete("t", |row| row.0 % 4 == 1);
    db.merge_items("t", 0..3);
    db.delete("t", |row| row.0 % 4 == 2);
    db.drop_table("u");
    db.collect();
    db.checkpoint();
    db.collect();
    db.append("t", 24..27, Disk);
    db.delete("t", |row| row.0 == 25 || row.0 == 20);
    db.kill();
    db.encode("t");
    db.delete_items("t", 1..2);
    db.merge("t");
    db.delete("t", |row| row.0 == 0);
    db.checkpoint();
    db.append_group("t", 1..7, Disk);
    db.delete_items("t", 0..1);
}

/// Ranges of keys are deleted, of many index pages and of few: whole items as runs, rows at the borders and open ones by masks.
/// Late rows make several runs of one, rows come where others were deleted, and what is left is merged.
fn deletes_of_ranges(db: &mut Driver) {
    db.create("t");
    db.follow();
    for k in 0..6 {
        db.append_group("t", k * 20..k * 20 + 20, Disk);
    }
    db.append("t", 120..123, Disk);
    db.delete("t", |row| row.0 % 7 == 1);
    db.checkpoint();
    db.delete_range("t", 30..=69);
    db.append_group("t", 40..52, Disk);
    db.kill();
    db.append_fragment("t", 60..90);
    db.delete_range("t", 42..=65);
    db.collect();
    db.append("t", 35..37, Disk);
    db.delete_range("t", 0..=36);
    db.checkpoint();
    db.append_group("t", 10..22, Disk);
    db.merge_items("t", 0..2);
    db.reopen();
    db.delete_range("t", 15..=121);
    db.encode("t");
    db.delete_range("t", 0..=i64::MAX);
    db.append_group("t", 0..8, Disk);
}

/// Two and three orders: entries come with groups, covers and fragments, or are left out; all orders are merged at once.
fn indexes(db: &mut Driver) {
    db.create_indexed("t", 2);
    db.create_indexed("u", 1);
    db.append_group("t", 0..12, Process);
    db.append("t", 12..15, Process);
    db.append_group("u", 3..9, Disk);
    db.checkpoint();
    db.append("t", 15..19, Disk);
    db.append_fragment("t", 5..20);
    db.kill();
    db.encode("t");
    db.merge_orders("t");
    db.append_group("t", 20..26, Disk);
    db.append("u", [1, 2, 30, 31], Process);
    db.collect();
    db.reopen();
    db.merge_orders("u");
    db.append_group("t", 1..7, Disk);
    db.drop_table("u");
    db.collect();
}

/// Indexes are made, built, switched off and on, and dropped, with checkpoints and recoveries in between.
fn indexes_that_change(db: &mut Driver) {
    db.create("t");
    db.append_group("t", 0..10, Process);
    db.append("t", 10..12, Process);
    db.make_index("t");
    db.append_group("t", 12..18, Disk);
    db.build_index("t", 2);
    db.checkpoint();
    db.append("t", 3..6, Process);
    db.make_index("t");
    db.switch_index("t", 2, false);
    db.append_group("t", 14..30, Process);
    db.build_index("t", 3);
    db.kill();
    db.switch_index("t", 2, true);
    db.make_index("t");
    db.append("t", 30..36, Process);
    db.drop_index("t", 3);
    db.build_index("t", 2);
    db.build_index("t", 4);
    db.checkpoint();
    db.append_group("t", 18..24, Disk);
    db.make_index("t");
    db.drop_index("t", 5);
    db.collect();
    db.append_fragment("t", 0..9);
    db.encode("t");
    db.merge_orders("t");
}

/// Pages of two orders split, join and move, while a reader follows.
fn index_pages(db: &mut Driver) {
    db.create_indexed("t", 2);
    db.append_group("t", 0..40, Process);
    db.follow();
    db.checkpoint();
    db.append_group("t", 30..60, Process);
    db.append_group("t", 10..16, Process);
    db.hold();
    db.merge_orders("t");
    db.checkpoint();
    db.append_group("t", 20..44, Disk);
    db.collect();
    db.release();
    db.kill();
    db.append_group("t", 60..80, Process);
    db.merge_orders("t");
    db.checkpoint();
    db.collect();
    db.append("t", 80..83, Disk);
}

/// A reader reads tables of many files, which are then dropped.
fn drops(db: &mut Driver) {
    db.create("u");
    db.append("u", [1], Disk);
    db.follow();
    for round in 0..2 {
        db.create("t");
        db.append_fragments("t", 0..60, 5);
        db.append_group("t", 0..30, Process);
        db.drop_table("t");
        db.checkpoint();
        db.collect();
        db.append("u", [round], Disk);
    }
    db.checkpoint();
    db.collect();
}
