//! With appends that keep the encoder busy, checkpoints are still written and closing still ends.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::Path;
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::verify::VerifyReport;
use thalweg_kernel::{
    Commit, Durability, Edit, Error, ErrorKind, Kernel, NEW_TABLE, OpenRows, Options, Result,
    RowEncoder, TableId, TableSnapshot, TableState,
};
use thalweg_sim::toy::{ToyEncoder, rows_part};

const BLOCK_ROWS: u32 = 4;

/// Makes the encoder finish a block only once the rows of the next one are committed, so that it is never idle.
#[derive(Debug, Default)]
struct Gate {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    commits: u64,
    encodings: u64,
    has_ended: bool,
    is_closing: bool,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&Counts) -> bool) {
        let mut counts = self.counts.lock();
        while !is_so(&counts) {
            self.changed.wait(&mut counts);
        }
    }
}

#[derive(Debug)]
struct BusyEncoder(ToyEncoder, Arc<Gate>);

impl RowEncoder for BusyEncoder {
    fn block_rows(&self, table: &TableState) -> Result<u32> {
        self.0.block_rows(table)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        let mut encodings = 0;
        self.1.change(|counts| {
            counts.encodings += 1;
            encodings = counts.encodings;
        });
        self.1
            .wait_until(|counts| counts.commits > encodings || counts.has_ended);
        self.0.encode(table, rows)
    }
}

fn open(sim: &SimEnv, gate: &Arc<Gate>) -> (Arc<Kernel>, TableId) {
    let encoder = ToyEncoder {
        block_rows: BLOCK_ROWS,
    };
    let encoder = Arc::new(BusyEncoder(encoder, Arc::clone(gate)));
    let options = Options {
        background: true,
        ..Options::default()
    };
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &options, encoder).unwrap();
    let create = Edit::CreateTable {
        table: NEW_TABLE,
        name: "t".to_owned(),
        definition: bytes::Bytes::new(),
        indexes: 0,
    };
    let created = Commit {
        edits: vec![create],
        ..Commit::default()
    };
    kernel.commit(created, Durability::Process).unwrap();
    let table = kernel.snapshot().unwrap().table_named("t").unwrap().id;
    (Arc::new(kernel), table)
}

fn verify(sim: &SimEnv) -> VerifyReport {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let encoder = ToyEncoder {
        block_rows: BLOCK_ROWS,
    };
    let reader = Kernel::open(sim.env(), Path::new("/db"), &options, Arc::new(encoder));
    reader.unwrap().verify(&mut |_| {}).unwrap()
}

/// Commits the rows of one block each time the encoder begins with the block before, until a commit fails.
fn feed(kernel: &Kernel, table: TableId, gate: &Gate, most: u64) -> Option<Error> {
    let mut failed = None;
    for block in 0..most {
        let first = i64::try_from(block).unwrap() * i64::from(BLOCK_ROWS);
        let rows: Vec<_> = (first..).take(4).map(|key| (key, key)).collect();
        let commit = Commit {
            rows: vec![rows_part(table, &rows)],
            ..Commit::default()
        };
        failed = kernel.commit(commit, Durability::Process).err();
        if failed.is_some() {
            break;
        }
        gate.change(|counts| counts.commits += 1);
        gate.wait_until(|counts| counts.encodings > block || counts.is_closing);
    }
    gate.change(|counts| counts.has_ended = true);
    failed
}

#[test]
fn checkpoints_are_written_beside_appends_that_keep_the_encoder_busy() {
    let (sim, gate) = (SimEnv::new(3), Arc::new(Gate::default()));
    let (kernel, table) = open(&sim, &gate);
    // Each block is a group of its own, and more than 512 groups are not to be left to a recovery.
    let most = 1_500;
    assert!(feed(&kernel, table, &gate, most).is_none());
    let image = sim.crash_image(&CrashChoice::Kill);
    kernel.close().unwrap();
    let checked = verify(&image);
    assert_eq!(checked.rows, most * u64::from(BLOCK_ROWS));
    assert!(checked.frames < 1_200, "{checked:?}");
}

#[test]
fn closing_ends_beside_appends_that_keep_the_encoder_busy() {
    let (sim, gate) = (SimEnv::new(4), Arc::new(Gate::default()));
    let (kernel, table) = open(&sim, &gate);
    let refused = Arc::new(Mutex::new(None));
    let appending = {
        let (kernel, gate, refused) =
            (Arc::clone(&kernel), Arc::clone(&gate), Arc::clone(&refused));
        let append = move || *refused.lock() = feed(&kernel, table, &gate, 100_000);
        Env::os().spawner().spawn("appending", Box::new(append))
    };
    gate.wait_until(|counts| counts.encodings > 20);
    gate.change(|counts| counts.is_closing = true);
    kernel.close().unwrap();
    appending.unwrap().join().unwrap();
    let refused = refused.lock().as_ref().map(Error::kind);
    assert_eq!(refused, Some(ErrorKind::Unavailable));
    let rows = verify(&sim).rows;
    assert_eq!(rows, gate.counts.lock().commits * u64::from(BLOCK_ROWS));
}
