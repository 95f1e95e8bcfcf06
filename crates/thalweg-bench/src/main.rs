//! Measurements that need no Python: `thalweg-bench EXPERIMENT`. Figures go to standard output, one line each.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::expect_used,
    reason = "a measuring program stops where it cannot measure, and its figures are small"
)]

/// Prints a line of figures; ends the program where nobody reads them any more, as with `| head`. `println!` would panic.
macro_rules! figure {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        if writeln!(std::io::stdout(), $($line)*).is_err() {
            std::process::exit(0);
        }
    }};
}

mod commit;
mod edges;
mod files;
mod late;
mod walks;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
struct Arguments {
    /// A folder on the disk to measure.
    #[arg(long, default_value = "bench-data")]
    folder: PathBuf,
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Clone, Subcommand)]
enum Experiment {
    /// Commits of the kernel against overwrite + fdatasync of the same bytes, by size, durability and threads.
    Commit,
    /// Single rows at `process` durability, by one thread.
    Process,
    /// Late rows in place and beside: bytes, blocks and fan-in, counted.
    Late,
    /// 100,000 tables beside one: creation, commits, lookups, bytes at rest, opening.
    Tables,
    /// Memory of 768 MB of appends, without and with a snapshot of before held.
    Snapshot,
    /// Memory and open files of a reader that follows a million commits of 64 columns.
    Reader,
    /// Ten million rows put into a database in memory.
    Memory,
    /// The nearest ten of a million boxes, and the difference of two trees of a million blocks.
    Walks,
    /// The process that `reader` starts.
    #[command(hide = true)]
    Follow { database: PathBuf },
}

fn main() {
    let arguments = Arguments::parse();
    match arguments.experiment {
        Experiment::Commit => commit::run(&arguments.folder),
        Experiment::Process => commit::process_rate(&arguments.folder),
        Experiment::Late => late::run(),
        Experiment::Tables => edges::tables(&arguments.folder),
        Experiment::Snapshot => edges::snapshot(&arguments.folder),
        Experiment::Reader => edges::reader(&arguments.folder),
        Experiment::Memory => edges::memory(),
        Experiment::Walks => walks::run(),
        Experiment::Follow { database } => edges::follow(&database),
    }
}
