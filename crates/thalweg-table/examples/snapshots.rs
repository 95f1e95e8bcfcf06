//! What a snapshot costs, taken and let go by one thread, and by several at a time.
//!
//! `cargo run --release -p thalweg-table --example snapshots -- [snapshots of each thread]`
//!
//! Printed are nanoseconds for one snapshot of one thread, and how many as many threads take in the time in which one takes
//! one: with nothing shared that is the number of threads, as far as the machine has so many processors.

use arrow_schema::{DataType, Field, Schema};
use std::sync::Barrier;
use thalweg_env::Env;
use thalweg_table::{CreateOptions, Engine, EngineOptions, Result, Value};

/// The best of so many rounds counts.
const ROUNDS: usize = 7;

fn main() -> Result<()> {
    let snapshots = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let snapshots: u32 = snapshots.unwrap_or(2_000_000);
    let engine = Engine::in_memory(EngineOptions::default())?;
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions::stream("ts");
    engine
        .create_table("t", &schema, &options)?
        .put(&[Value::Int(1)], None)?;
    let one_ns = time_ns(&engine, 1, snapshots)?;
    println!("1 thread   {one_ns:6.1} ns a snapshot");
    for threads in [2, 4, 8] {
        let ns = time_ns(&engine, threads, snapshots)?;
        let times = f64::from(threads) * one_ns / ns;
        println!(
            "{threads} threads  {ns:6.1} ns a snapshot of each, {times:.2} times the snapshots of one"
        );
    }
    Ok(())
}

fn time_ns(engine: &Engine, threads: u32, snapshots: u32) -> Result<f64> {
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        best_ns = best_ns.min(round_ns(engine, threads, snapshots)?);
    }
    Ok(best_ns)
}

fn round_ns(engine: &Engine, threads: u32, snapshots: u32) -> Result<f64> {
    let start = Barrier::new(threads as usize);
    let took = std::thread::scope(|scope| {
        let take = || {
            let (engine, env) = (engine.clone(), Env::os());
            start.wait();
            let begun_ns = env.clock().monotonic_ns();
            for _ in 0..snapshots {
                std::hint::black_box(engine.snapshot()?);
            }
            Ok(env.clock().monotonic_ns() - begun_ns)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<u64>>>()
    })?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let longest_ns = took.into_iter().max().unwrap_or_default() as f64;
    Ok(longest_ns / f64::from(snapshots))
}
