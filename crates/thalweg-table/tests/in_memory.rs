//! What a database in memory takes beside its rows. The only test of its process, whose memory it measures.
#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{CreateOptions, Engine, EngineOptions, Table, Value};

/// Rows of 8 bytes, each put by itself: their log is some hundred MiB, of which a few segments are kept.
const ROWS: i64 = 1_000_000;
/// Open rows, three segments of the log, caches, and what the allocator keeps; several times what is seen.
const LIMIT_BYTES: u64 = 200 << 20;

fn resident_bytes() -> u64 {
    let env = Env::os();
    let path = Path::new("/proc/self/statm");
    let file = env.storage().open(path, OpenMode::Read).unwrap();
    let mut text = [0; 256];
    let count = file.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..count]).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

fn fill(engine: &Engine, name: &str, rows: i64) -> Table {
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions::stream("ts");
    let table = engine.create_table(name, &schema, &options).unwrap();
    for row in 0..rows {
        table.put(&[Value::Int(row)], None).unwrap();
    }
    table
}

#[test]
fn memory_holds_the_rows_and_not_their_log() {
    let options = EngineOptions {
        cache_bytes: 8 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let before = resident_bytes();
    let kept = fill(&engine, "kept", ROWS);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < LIMIT_BYTES, "{} MiB", grown >> 20);
    // Nothing is left of tables that were dropped.
    for _ in 0..3 {
        fill(&engine, "dropped", ROWS / 3);
        engine.drop_table("dropped").unwrap();
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < LIMIT_BYTES, "{} MiB", grown >> 20);
    }
    assert_eq!(kept.stats().unwrap().rows, ROWS.unsigned_abs());
}
