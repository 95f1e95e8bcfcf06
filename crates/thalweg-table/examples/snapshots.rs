//! What a snapshot costs, taken and let go by one thread, and by several at a time.
//!
//! `cargo run --release -p thalweg-table --example snapshots -- [snapshots of each thread]`
//!
//! Printed are nanoseconds for one snapshot of one thread, and how many as many threads take in the time in which one takes
//! one: with nothing shared that is the number of threads, as far as the machine has so many processors.

use arrow_schema::{DataType, Field, Schema};
use std::sync::{Arc, Barrier};
use thalweg_env::Env;
use thalweg_table::{CreateOptions, Engine, EngineOptions, Result, Value};

/// The best of so many rounds counts.
const ROUNDS: usize = 7;

fn main() -> Result<()> {
    let snapshots = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let snapshots: u32 = snapshots.unwrap_or(2_000_000);
    let engine = Engine::in_memory(EngineOptions::default())?;
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions {
        time: Some("ts".to_owned()),
        ..CreateOptions::default()
    };
    engine
        .create_table("t", &schema, &options)?
        .put(&[Value::Int(1)], None)?;
    let one_ns = time_ns(&engine, 1, snapshots);
    println!("1 thread   {one_ns:6.1} ns a snapshot");
    for threads in [2, 4, 8] {
        let ns = time_ns(&engine, threads, snapshots);
        let times = f64::from(threads) * one_ns / ns;
        println!(
            "{threads} threads  {ns:6.1} ns a snapshot of each, {times:.2} times the snapshots of one"
        );
    }
    Ok(())
}

fn time_ns(engine: &Engine, threads: u32, snapshots: u32) -> f64 {
    let rounds = (0..ROUNDS).map(|_| round_ns(engine, threads, snapshots));
    rounds.fold(f64::INFINITY, f64::min)
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is a program's own threads"
)]
fn round_ns(engine: &Engine, threads: u32, snapshots: u32) -> f64 {
    let start = Arc::new(Barrier::new(threads as usize));
    let took = (0..threads).map(|_| {
        let (engine, start) = (engine.clone(), Arc::clone(&start));
        std::thread::spawn(move || {
            let clock = Env::os();
            start.wait();
            let begun_ns = clock.clock().monotonic_ns();
            for _ in 0..snapshots {
                std::hint::black_box(engine.snapshot().expect("the database is open"));
            }
            clock.clock().monotonic_ns() - begun_ns
        })
    });
    let took: Vec<_> = took.collect();
    let took = took
        .into_iter()
        .map(|thread| thread.join().expect("no thread panics"));
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let longest_ns = took.max().unwrap_or_default() as f64;
    longest_ns / f64::from(snapshots)
}
