//! How long opening takes, and the first round of cleaning behind it; how many bytes both read, and how many a checkpoint writes.
//!
//! `cargo run --release -p thalweg-sim --example first_cleaning -- tables 20000` (of one block each) or
//! `-- blocks 100000` (of one table, in groups of 1,000).
//!
//! On the simulated machine, whose files are in memory: times are those of the processor alone.

use thalweg_env::Env;
use thalweg_env::sim::{SimEnv, Stats};
use thalweg_kernel::{Durability, Options, Result, TableId};
use thalweg_sim::toy::{Row, Toy};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|text| text.parse().ok());
    let sim = SimEnv::new(1);
    let toy = open(&sim)?;
    let last = match arguments.first().map(String::as_str) {
        Some("tables") => make_tables(&toy, count.unwrap_or(20_000))?,
        _ => make_blocks(&toy, count.unwrap_or(100_000))?,
    };
    for number in 1..=6 {
        toy.append_group(last, &rows(1 << 40, 2), 2, Durability::Disk)?;
        let before = sim.stats();
        toy.kernel.checkpoint()?;
        say(&format!("checkpoint {number}"), None, before, sim.stats());
    }
    toy.kernel.close()?;
    drop(toy);
    for round in 0..3 {
        let (before, start) = (sim.stats(), now_ns());
        let toy = open(&sim)?;
        say(
            &format!("opening {round}"),
            Some(start),
            before,
            sim.stats(),
        );
        let (before, start) = (sim.stats(), now_ns());
        let doomed = toy.create("doomed")?;
        toy.append_fragment(doomed, &rows(0, 2_000), 100)?;
        toy.drop_table(doomed)?;
        toy.kernel.collect_garbage()?;
        let what = "a table made and dropped, and cleaning";
        say(what, Some(start), before, sim.stats());
        toy.kernel.close()?;
    }
    Ok(())
}

fn open(sim: &SimEnv) -> Result<Toy> {
    let options = Options {
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64)
}

fn now_ns() -> u64 {
    Env::os().clock().monotonic_ns()
}

fn rows(first: i64, count: i64) -> Vec<Row> {
    (0..count).map(|k| (first + k, k)).collect()
}

fn make_tables(toy: &Toy, count: usize) -> Result<TableId> {
    let mut last = TableId(0);
    for number in 0..count {
        last = toy.create(&format!("sensor {number}"))?;
        toy.append_group(last, &rows(0, 100), 100, Durability::Process)?;
    }
    Ok(last)
}

fn make_blocks(toy: &Toy, count: usize) -> Result<TableId> {
    let table = toy.create("large")?;
    for group in (0..).take(count / 1_000) {
        toy.append_group(table, &rows(2_000 * group, 2_000), 2, Durability::Process)?;
    }
    Ok(table)
}

#[expect(clippy::print_stdout, reason = "what it is for")]
fn say(what: &str, since: Option<u64>, before: Stats, after: Stats) {
    let took_us = since.map_or(0, |start| (now_ns() - start) / 1_000);
    println!(
        "{what}: {took_us} us, {} bytes read, {} written",
        after.bytes_read - before.bytes_read,
        after.bytes_written - before.bytes_written
    );
}
