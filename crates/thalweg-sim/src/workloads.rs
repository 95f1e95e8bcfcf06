//! Small histories of a database that between them use every kind of frame, file and edit.
//!
//! Each is as short as it can be and still meet its subject: every storage call of it is a place to crash at.

use crate::driver::{Driver, Shape};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::Durability::{Disk, Memory, Process};

/// A named history.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name, for reports.
    pub name: &'static str,
    segment_bytes: u64,
    block_rows: u32,
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
        Shape::new(self.segment_bytes, self.block_rows)
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
        steps,
    }
}

/// All of them.
pub const WORKLOADS: [Workload; 18] = [
    workload("raw rows to disk", 8192, 64, raw_disk),
    workload("raw rows to the cache", 8192, 64, raw_process),
    workload("group commit", 8192, 64, group_commit),
    workload("groups", 16384, 8, groups),
    workload("late groups", 16384, 8, late_groups),
    workload("cover", 16384, 4, cover),
    workload("rolls", 4096, 8, rolls),
    workload("checkpoints", 8192, 8, checkpoints),
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
];

/// Rows that are covered once, and nothing behind them.
pub const ONE_COVER: Workload = workload("one cover", 8192, 4, one_cover);

/// The workload of a name.
pub fn named(name: &str) -> &'static Workload {
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
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
