//! A reading process that follows a writer for long: its memory and its open files stay as they are, and no answer is wrong.
//!
//! `cargo run --release -p thalweg-table --example reader_follows -- [commits] [directory]`
//!
//! The writer stores commits of one row, of 64 columns; now and then one of 2,048 rows, which travels in blocks, and a row that
//! comes late. It merges, and removes what a second table held. A process of its own reads all the while: each statement counts
//! the rows and adds up a column, and both must be those of a prefix of the commits that lies behind the last one that was
//! acknowledged before. Every tenth of the way the memory and the open files of both are printed.

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{
    AggregateRequest, CreateOptions, Durability, Engine, EngineOptions, ScanRequest,
};

const COLUMNS: usize = 64;
const BULK_ROWS: i64 = 2_048;
/// Of so many commits one is of many rows.
const BULK_EVERY: u64 = 5_000;
/// Of so many commits one row is late.
const LATE_EVERY: u64 = 500;
/// After so many commits the table is put in order, and the second one made anew.
const TIDY_EVERY: u64 = 100_000;
/// After so many commits the reader is told how many rows there are.
const TELL_EVERY: u64 = 1_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "read") {
        return read(Path::new(&arguments[1]));
    }
    let commits = arguments.first().map_or(Ok(1_000_000), |n| n.parse())?;
    let directory = arguments.get(1).map_or_else(
        || std::env::temp_dir().join("thalweg-follows"),
        PathBuf::from,
    );
    write(commits, &directory)
}
