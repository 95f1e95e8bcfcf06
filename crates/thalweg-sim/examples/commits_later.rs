//! What many callers cost that each want one durable commit: a thread for each that waits, or one that hands in all of them and is
//! called back.
//!
//! `cargo run --release -p thalweg-sim --example commits_later -- [callers] [directory]`
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a step that fails ends the example, which measures the real machine"
)]

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;
use thalweg_env::Env;
use thalweg_kernel::{Commit, Durability, Options, TableId};
use thalweg_sim::toy::{Toy, rows_part};

const ROUNDS: i64 = 5;

fn commit_of(table: TableId, key: i64) -> Commit {
    Commit {
        rows: vec![rows_part(table, &[(key, key)])],
        ..Commit::default()
    }
}

/// Each caller has a thread.
fn wait(toy: &Toy, table: TableId, callers: i64) -> usize {
    std::thread::scope(|scope| {
        for key in 0..callers {
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, move || {
                    let commit = commit_of(table, key);
                    toy.kernel.commit(commit, Durability::Disk).unwrap();
                })
                .unwrap();
        }
        threads()
    })
}

/// One thread hands in the commits of all callers.
fn hand_in(toy: &Toy, table: TableId, callers: i64) -> usize {
    let (answers, answered) = mpsc::channel();
    for key in 0..callers {
        let answers = answers.clone();
        let answer = move |stored| answers.send(stored).unwrap();
        let commit = commit_of(table, key);
        toy.kernel
            .commit_later(commit, Durability::Disk, answer)
            .unwrap();
    }
    drop(answers);
    let threads = threads();
    for stored in answered {
        stored.unwrap();
    }
    threads
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let callers = arguments
        .next()
        .map_or(10_000, |text| text.parse().unwrap());
    let directory = arguments
        .next()
        .map_or_else(|| std::env::temp_dir().join("thalweg-later"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&directory);
    let path = directory.to_str().unwrap();
    let toy = Toy::open(&Env::os(), path, &Options::default(), 4096).unwrap();
    let table = toy.create("t").unwrap();
    for round in 0..ROUNDS {
        for (name, commit_all) in [
            ("wait", wait as fn(&Toy, TableId, i64) -> usize),
            ("call back", hand_in),
        ] {
            let begun = Instant::now();
            let threads = commit_all(&toy, table, callers);
            let took_ms = begun.elapsed().as_secs_f64() * 1e3;
            println!(
                "round {round}, {callers} durable commits that {name}: {took_ms:.1} ms, {threads} threads"
            );
        }
    }
    let found = toy.rows(table).unwrap().len();
    assert_eq!(i64::try_from(found).unwrap(), 2 * ROUNDS * callers);
    toy.kernel.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
