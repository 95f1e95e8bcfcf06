//! Experiment 1: what a durable commit costs over the machine's own overwrite + fdatasync.
//!
//! Both sides alternate in short rounds, because the disk of a shared machine drifts within seconds; the figure is the
//! ratio of the medians.

use crate::files::{make_folder, median, now_us, remove};
use std::path::Path;
use thalweg_env::{Env, File, OpenMode};
use thalweg_kernel::{Durability, Options};
use thalweg_sim::toy::{Row, Toy};

const ROUNDS: usize = 12;
const COMMITS_PER_ROUND: usize = 200;

/// Rows of a commit and its name: rows have 16 bytes.
const SIZES: [(&str, usize); 3] = [("136 B", 1), ("7 KB", 440), ("260 KB", 16_250)];

pub(crate) fn run(folder: &Path) {
    let env = Env::os();
    make_folder(&env, folder);
    for (name, rows) in SIZES {
        let (raw, ours) = alternate(&env, folder, rows);
        figure!(
            "commit {name}: raw {:.0} us, kernel {:.0} us, rate ratio {:.2}",
            raw,
            ours,
            raw / ours
        );
    }
    for threads in [1, 2, 4, 8] {
        let rate = threads_rate(&env, folder, threads);
        figure!("durable single rows, {threads} threads: {rate:.0} commits/s");
    }
}

fn open(env: &Env, folder: &Path, name: &str) -> Toy {
    let path = folder.join(name);
    remove(env, &path);
    Toy::open(
        env,
        path.to_str().expect("a UTF-8 path"),
        &Options::default(),
        4096,
    )
    .expect("a new database")
}

/// Median microseconds of a raw overwrite + fdatasync and of a kernel commit of as many bytes.
fn alternate(env: &Env, folder: &Path, rows: usize) -> (f64, f64) {
    let toy = open(env, folder, "commit");
    let table = toy.create("t").expect("a table");
    let batch: Vec<Row> = (0..).take(rows).map(|k| (k, k)).collect();
    let bytes = vec![7_u8; (rows * 16 + 120).next_multiple_of(8)];
    let raw = zero_filled(
        env,
        folder,
        bytes.len() as u64 * (ROUNDS * COMMITS_PER_ROUND) as u64,
    );
    let (mut raw_us, mut our_us) = (Vec::new(), Vec::new());
    let per_round = if rows > 1000 {
        COMMITS_PER_ROUND / 10
    } else {
        COMMITS_PER_ROUND
    };
    let mut offset = 0;
    for _ in 0..ROUNDS {
        for _ in 0..per_round {
            let start = now_us(env);
            raw.write_all_at(&bytes, offset).expect("written");
            raw.sync_data().expect("synced");
            raw_us.push(now_us(env) - start);
            offset += bytes.len() as u64;
        }
        for _ in 0..per_round {
            let start = now_us(env);
            toy.append(table, &batch, Durability::Disk)
                .expect("committed");
            our_us.push(now_us(env) - start);
        }
    }
    (median(raw_us), median(our_us))
}

fn zero_filled(env: &Env, folder: &Path, bytes: u64) -> std::sync::Arc<dyn File> {
    let file = env
        .storage()
        .open(&folder.join("raw"), OpenMode::OpenOrCreate)
        .expect("a file");
    let zeros = vec![0; 1 << 20];
    (0..bytes.div_ceil(1 << 20))
        .for_each(|at| file.write_all_at(&zeros, at << 20).expect("written"));
    file.sync_all().expect("synced");
    file
}

/// Commits a second that only the operating system has.
pub(crate) fn process_rate(folder: &Path) {
    let env = &Env::os();
    make_folder(env, folder);
    let toy = open(env, folder, "process");
    let table = toy.create("t").expect("a table");
    let commits = 1_000_000;
    let start = now_us(env);
    for k in 0..commits {
        toy.append(table, &[(k, k)], Durability::Process)
            .expect("committed");
    }
    let seconds = (now_us(env) - start) / 1e6;
    figure!(
        "process single rows: {:.0} commits/s",
        commits as f64 / seconds
    );
}

fn threads_rate(env: &Env, folder: &Path, threads: i64) -> f64 {
    let toy = open(env, folder, "threads");
    let table = toy.create("t").expect("a table");
    let commits = 3000;
    let start = now_us(env);
    let toy = std::sync::Arc::new(toy);
    let handles: Vec<_> = (0..threads)
        .map(|thread| {
            let toy = std::sync::Arc::clone(&toy);
            let work = move || {
                for k in 0..commits {
                    toy.append(table, &[(k, thread)], Durability::Disk)
                        .expect("committed");
                }
            };
            env.spawner()
                .spawn("committer", Box::new(work))
                .expect("a thread")
        })
        .collect();
    handles
        .into_iter()
        .for_each(|h| h.join().expect("no panic"));
    (commits * threads) as f64 / ((now_us(env) - start) / 1e6)
}
