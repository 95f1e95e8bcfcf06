//! Stage 3 for the kernel: random histories against a plain model, with snapshots, readers, crashes and mad clocks.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{CommitNo, Durability, ErrorKind, Snapshot};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::{Contents, Effect, Outcome, apply, contents_of, difference, rows_of};
use thalweg_sim::report::{effort, say, seed};
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::Toy;

const SEQUENCES: u32 = 600;
const STEPS: std::ops::Range<usize> = 20..200;
const NAMES: [&str; 3] = ["a", "b", "c"];
const READER_PROCESS: u32 = 5000;

#[derive(Clone, Debug)]
enum Step {
    Create(&'static str),
    Drop(&'static str),
    Rename(&'static str, &'static str),
    Redefine(&'static str),
    Append(&'static str, Vec<i64>, Durability),
    Group(&'static str, Vec<i64>, Durability),
    Fragment(&'static str, Vec<i64>),
    Merge(&'static str),
    Flush,
    Checkpoint,
    Collect,
    TakeSnapshot,
    LookAtSnapshots,
    ForgetSnapshots,
    OpenReader,
    LookAtReader,
    CloseReader,
    Reopen,
    Kill,
    PowerCut(CrashChoice),
    Clock(i64),
    MadClock(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || select(NAMES.as_slice());
    let keys = |most: usize| {
        // In order mostly, late at times, doubled at times.
        (0_i64..1000, prop::collection::vec(-3_i64..10, 1..most)).prop_map(|(start, gaps)| {
            let mut at = start;
            gaps.iter()
                .map(|gap| {
                    at += gap;
                    at
                })
                .collect::<Vec<i64>>()
        })
    };
    let level =
        || select(&[Durability::Memory, Durability::Process, Durability::Disk] as &[Durability]);
    let choice = prop_oneof![
        Just(CrashChoice::DropAll),
        Just(CrashChoice::KeepAll),
        any::<u64>().prop_map(|seed| CrashChoice::Subset { seed }),
        any::<u64>().prop_map(|seed| CrashChoice::Random {
            seed,
            unreadable: false
        }),
        (0_usize..20).prop_map(CrashChoice::Prefix),
    ];
    let step = prop_oneof![
        3 => name().prop_map(Step::Create),
        1 => name().prop_map(Step::Drop),
        1 => (name(), name()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => name().prop_map(Step::Redefine),
        12 => (name(), keys(12), level()).prop_map(|(n, k, l)| Step::Append(n, k, l)),
        6 => (name(), keys(60), level()).prop_map(|(n, k, l)| Step::Group(n, k, l)),
        2 => (name(), keys(200)).prop_map(|(n, k)| Step::Fragment(n, k)),
        2 => name().prop_map(Step::Merge),
        1 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Collect),
        2 => Just(Step::TakeSnapshot),
        2 => Just(Step::LookAtSnapshots),
        1 => Just(Step::ForgetSnapshots),
        1 => Just(Step::OpenReader),
        4 => Just(Step::LookAtReader),
        1 => Just(Step::CloseReader),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => choice.prop_map(Step::PowerCut),
        1 => any::<i64>().prop_map(Step::Clock),
        1 => any::<u32>().prop_map(Step::MadClock),
    ];
    prop::collection::vec(step, STEPS)
}

/// The database, and what it should hold.
struct World {
    db: Driver,
    now: Contents,
    /// Contents by commit, since the last crash.
    history: Vec<(CommitNo, Contents)>,
    /// What a power cut must leave.
    durable: CommitNo,
    snapshots: Vec<(Snapshot, Contents)>,
    reader: Option<Toy>,
    reader_snapshots: Vec<(Snapshot, Contents)>,
}

impl World {
    fn new(shape: Shape) -> Self {
        let sim = SimEnv::new(1);
        Self {
            db: Driver::start(&sim, shape, false),
            now: Contents::new(),
            history: vec![(CommitNo(0), Contents::new())],
            durable: CommitNo(0),
            snapshots: Vec::new(),
            reader: None,
            reader_snapshots: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        let before = self.db.ledger.ops.len();
        match step {
            Step::Create(name) if self.now.contains_key(*name) => {
                let refused = self.db.toy().unwrap().create(name).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            }
            Step::Create(name) => self.db.create(name),
            Step::Drop(name) => self.db.drop_table(name),
            Step::Rename(from, to) if !self.now.contains_key(*to) => self.db.rename(from, to),
            Step::Rename(..) => {}
            Step::Redefine(name) => self.db.redefine(name),
            Step::Append(name, keys, level) => self.db.append(name, keys.iter().copied(), *level),
            Step::Group(name, keys, level) => {
                self.db.append_group(name, keys.iter().copied(), *level);
            }
            Step::Fragment(name, keys) => self.db.append_fragment(name, keys.iter().copied()),
            Step::Merge(name) => self.db.merge(name),
            Step::Flush => self.db.flush(),
            Step::Checkpoint => self.db.checkpoint(),
            Step::Collect => self.db.collect(),
            Step::TakeSnapshot => {
                let snapshot = self.db.toy().unwrap().kernel.snapshot().unwrap();
                self.snapshots.push((snapshot, self.now.clone()));
            }
            Step::LookAtSnapshots => self.look_at_snapshots(),
            Step::ForgetSnapshots => self.snapshots.clear(),
            Step::OpenReader => {
                let env = self.db.sim.env_of_process(READER_PROCESS);
                self.close_reader();
                self.reader = Some(self.db.shape().open_read_only(&env).unwrap());
                self.look_at_reader();
            }
            Step::LookAtReader => self.look_at_reader(),
            Step::CloseReader => self.close_reader(),
            Step::Reopen => {
                self.snapshots.clear();
                self.db.reopen();
            }
            Step::Kill => {
                self.snapshots.clear();
                self.db.kill();
            }
            Step::PowerCut(choice) => self.power_cut(choice),
            Step::Clock(wall_ns) => self.db.sim.set_wall_ns(*wall_ns),
            Step::MadClock(jitter_ns) => self.db.sim.set_wall_jitter_ns(*jitter_ns),
        }
        for op in &self.db.ledger.ops[before..] {
            apply(&mut self.now, &op.effect);
            if let Outcome::Stored(commit, level) = op.outcome {
                if op.effect != Effect::Nothing {
                    self.history.push((commit, self.now.clone()));
                }
                if level == Durability::Disk {
                    self.durable = self.durable.max(commit);
                }
            }
        }
        let found = contents_of(self.db.toy().unwrap()).unwrap();
        assert!(found.1 == self.now, "{}", difference(&self.now, &found.1));
        if matches!(step, Step::Kill | Step::Reopen) {
            // What an opening shows is durable.
            self.durable = found.0;
        }
    }

    fn power_cut(&mut self, choice: &CrashChoice) {
        self.snapshots.clear();
        self.close_reader();
        self.db.power_cut(choice);
        let (commit, found) = contents_of(self.db.toy().unwrap()).unwrap();
        assert!(
            commit >= self.durable,
            "{commit:?} is left, {:?} was durable",
            self.durable
        );
        self.history.retain(|(c, _)| *c <= commit);
        let want = &self.history[self.history.len() - 1].1;
        assert!(found == *want, "{}", difference(want, &found));
        self.now = found;
        self.durable = commit;
    }

    fn look_at_snapshots(&self) {
        for (snapshot, want) in &self.snapshots {
            unchanged(self.db.toy().unwrap(), snapshot, want);
        }
    }

    /// A reader sees all that was acknowledged, and its older snapshots stay as they were.
    fn look_at_reader(&mut self) {
        let Some(reader) = &self.reader else { return };
        for (snapshot, want) in &self.reader_snapshots {
            unchanged(reader, snapshot, want);
        }
        let (_, found) = contents_of(reader).unwrap();
        assert!(
            found == self.now,
            "reader: {}",
            difference(&self.now, &found)
        );
        if self.reader_snapshots.len() < 3 {
            let snapshot = reader.kernel.snapshot().unwrap();
            self.reader_snapshots.push((snapshot, found));
        }
    }

    fn close_reader(&mut self) {
        self.reader_snapshots.clear();
        self.reader = None;
    }
}

fn unchanged(toy: &Toy, snapshot: &Snapshot, want: &Contents) {
    let mut found = Contents::new();
    for table in snapshot.tables() {
        found.insert(table.name.to_string(), rows_of(toy, &table).unwrap());
    }
    assert!(
        found == *want,
        "a snapshot changed: {}",
        difference(want, &found)
    );
}

static RUN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[test]
fn random_histories_agree_with_the_model() {
    let cases = SEQUENCES * u32::try_from(effort()).unwrap();
    let seed = seed();
    println!("THALWEG_SEED={seed}");
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let shapes = select(vec![(4096, 4), (8192, 16), (65536, 50)]);
    proptest!(config, |(steps in steps(), (segment_bytes, block_rows) in shapes)| {
        let mut world = World::new(Shape::new(segment_bytes, block_rows));
        for step in &steps {
            world.step(step);
            RUN[1].fetch_add(1, Ordering::Relaxed);
        }
        RUN[0].fetch_add(1, Ordering::Relaxed);
    });
    let [sequences, steps] = &RUN;
    say(format_args!(
        "model: {} random histories, {} steps, no difference (seed {seed})",
        sequences.load(Ordering::Relaxed),
        steps.load(Ordering::Relaxed)
    ));
}
