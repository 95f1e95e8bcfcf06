//! The edges of the machine: forks, threads that cannot be started, paths, calls that race, sectors that are lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::{Durability, ErrorKind, Options, TableId};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::shape::Shape;
use thalweg_sim::toy::{Row, Toy};

/// A reader looked while the name of the next segment was half written, and never went on there.
const HALF_WRITTEN_NAME: u64 = 4_009_570_584;

const LEVELS: [Durability; 2] = [Durability::Disk, Durability::Process];

fn shape() -> Shape {
    Shape::new(8192, 4)
}

/// A database with one table of a few rows, and all of it durable.
fn database(sim: &SimEnv) -> (Toy, TableId) {
    let toy = shape().open(&sim.env()).unwrap();
    let table = toy.create("t").unwrap();
    for k in 0..6 {
        toy.append(table, &[(k, k)], Durability::Disk).unwrap();
    }
    (toy, table)
}

#[test]
fn what_a_forked_child_lets_go_of_stays_its_parent_s() {
    let sim = SimEnv::new(1);
    let (toy, table) = database(&sim);
    toy.append(table, &[(7, 7)], Durability::Process).unwrap();
    let files = || (sim.content_hash(), sim.pending_items());
    let before = files();
    let child = sim.fork_process(sim.process_id());
    sim.as_process(child, || {
        let refused = toy.append(table, &[(8, 8)], Durability::Disk).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(toy.kernel.snapshot().is_err());
        toy.kernel.close().unwrap();
        drop(toy);
    });
    sim.kill_process(child);
    assert_eq!(files(), before);
    let second = shape().open(&sim.env_of_process(99)).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Locked, "the parent lives");
}

#[test]
fn a_killed_writer_whose_forked_child_lives_is_followed_by_another() {
    for told_of_forks in [false, true] {
        let sim = SimEnv::new(1);
        sim.set_forks_close_locked(told_of_forks);
        let (toy, table) = database(&sim);
        let child = sim.fork_process(sim.process_id());
        sim.kill_process(sim.process_id());
        let next = sim.env_of_process(99);
        let opened = shape().open(&next);
        // The system alone keeps the lock for the child. An environment that is told of forks gives it up there.
        assert_eq!(opened.as_ref().is_ok(), told_of_forks);
        if let Err(e) = &opened {
            assert_eq!(e.kind(), ErrorKind::Locked);
        }
        drop(opened);
        sim.kill_process(child);
        let toy_of_next = shape().open(&next).unwrap();
        assert_eq!(toy_of_next.rows(table).unwrap().len(), 6);
        drop(toy);
    }
}

/// The processes that could not start all of their threads are gone behind it, as after the error they would be.
#[test]
fn a_database_whose_threads_cannot_be_started_is_as_it_was() {
    let sim = SimEnv::new(1);
    let (toy, table) = database(&sim);
    drop(toy);
    let options = Options {
        background: true,
        ..shape().options
    };
    let mut failed = 0;
    // What helps an opening is done without a thread where that cannot be started.
    for refused in 0..8 {
        let process = 10 + u32::try_from(refused).unwrap();
        sim.set_plan(FaultPlan::refuse_thread(refused));
        let opened = Toy::open(&sim.env_of_process(process), "/db", &options, 4);
        sim.set_plan(FaultPlan::none());
        match &opened {
            Ok(toy) => toy.kernel.close().unwrap(),
            Err(_) => failed += 1,
        }
        drop(opened);
        sim.kill_process(process);
        let toy = shape().open(&sim.env_of_process(process + 100)).unwrap();
        assert_eq!(toy.rows(table).unwrap().len(), 6);
    }
    assert!(failed >= 4, "an open database has threads: {failed}");
}

#[test]
fn a_database_at_a_relative_path_survives_a_power_cut() {
    let sim = SimEnv::new(1);
    sim.write_file(Path::new("/data/mine/notes"), b"").unwrap();
    sim.symlink(Path::new("mine"), Path::new("/data/link"))
        .unwrap();
    sim.set_working_dir(sim.process_id(), Path::new("/data/mine"))
        .unwrap();
    let open = |sim: &SimEnv, path: &str, must_exist| {
        let options = Options {
            must_exist,
            ..shape().options
        };
        Toy::open(&sim.env(), path, &options, 4)
    };
    let mut all = Vec::new();
    for path in ["./db", "../link/other/", "/data/link/../mine/./third"] {
        let toy = open(&sim, path, false).unwrap();
        let table = toy.create("t").unwrap();
        toy.append(table, &[(1, 1)], Durability::Disk).unwrap();
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = open(&image, path, true).unwrap();
        assert_eq!(again.rows(table).unwrap(), [(1, 1)], "{path}");
        all.push(toy);
    }
    // The same folder by another path is the same database.
    let locked = open(&sim, "/data/mine/db", true).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked);
}

/// A writer in small steps, and what of its rows a reader must and may see.
struct Writer {
    toy: Toy,
    table: TableId,
    next: i64,
    acknowledged: Arc<AtomicI64>,
    submitted: Arc<AtomicI64>,
    dice: Dice,
}

impl Writer {
    fn start(sim: &SimEnv, seed: u64) -> Writer {
        let (toy, table) = database(sim);
        Writer {
            toy,
            table,
            next: 6,
            acknowledged: Arc::new(AtomicI64::new(6)),
            submitted: Arc::new(AtomicI64::new(6)),
            dice: Dice::new(seed),
        }
    }

    fn step(&mut self) {
        let level = LEVELS[usize::try_from(self.dice.below(2)).unwrap()];
        let kernel = &self.toy.kernel;
        match self.dice.below(12) {
            0 => kernel.checkpoint().unwrap(),
            1 => kernel.run_due_work().unwrap(),
            2 => _ = kernel.collect_garbage().unwrap(),
            3 => kernel.encode_open_rows(self.table).unwrap(),
            what => {
                let count = if what < 9 { 1 } else { 40 };
                let rows: Vec<Row> = (self.next..self.next + count).map(|k| (k, k)).collect();
                self.next += count;
                self.submitted.store(self.next, Ordering::SeqCst);
                if count == 1 {
                    self.toy.append(self.table, &rows, level).unwrap();
                } else {
                    self.toy.append_group(self.table, &rows, 4, level).unwrap();
                }
                self.acknowledged.store(self.next, Ordering::SeqCst);
            }
        }
    }
}

/// What a reader finds: all that was acknowledged before it looked, nothing that was not asked for until it has looked.
struct Judge {
    table: TableId,
    acknowledged: Arc<AtomicI64>,
    submitted: Arc<AtomicI64>,
    looks: u64,
}

impl Judge {
    fn of(writer: &Writer) -> Judge {
        Judge {
            table: writer.table,
            acknowledged: Arc::clone(&writer.acknowledged),
            submitted: Arc::clone(&writer.submitted),
            looks: 0,
        }
    }

    fn look(&mut self, reader: &Toy, place: &str) {
        let least = self.acknowledged.load(Ordering::SeqCst);
        let rows = reader.rows(self.table);
        let rows = rows.unwrap_or_else(|e| panic!("{place}: {e:?}"));
        let most = self.submitted.load(Ordering::SeqCst);
        let found = i64::try_from(rows.len()).unwrap();
        assert!(
            (least..=most).contains(&found),
            "{place}: {found} rows, {least} to {most} are right"
        );
        let right: Vec<Row> = (0..found).map(|k| (k, k)).collect();
        assert_eq!(rows, right, "{place}");
        self.looks += 1;
    }
}

/// At every call of a writer another process reads while the call is under way: what is written is there in any part, what
/// is renamed under either name, both or none.
#[test]
fn readers_are_right_beside_every_call_of_a_writer() {
    let mut looks = 0;
    let drawn = (0..4 * effort() as u64).map(|round| seed().wrapping_add(round));
    for seed in drawn.chain([HALF_WRITTEN_NAME]) {
        let sim = SimEnv::new(seed);
        let mut writer = Writer::start(&sim, seed);
        let follower = shape().open_read_only(&sim.env_of_process(2)).unwrap();
        let (mut judge, machine, mut dice) = (Judge::of(&writer), sim.clone(), Dice::new(!seed));
        let (sent, counts) = std::sync::mpsc::channel();
        sim.set_watcher(Some(Box::new(move || {
            let place = format!("call {}, seed {seed}", machine.calls());
            judge.look(&follower, &place);
            if dice.below(8) == 0 {
                let fresh = shape().open_read_only(&machine.env_of_process(3)).unwrap();
                judge.look(&fresh, &format!("opened at {place}"));
                let report = fresh.kernel.verify(&mut |_| {}).unwrap();
                assert!(report.damage.is_empty(), "{place}: {:?}", report.damage);
            }
            sent.send(judge.looks).unwrap();
        })));
        sim.set_plan(FaultPlan::none().rule(FaultRule::new(Fault::Watched)));
        for _ in 0..60 {
            writer.step();
        }
        sim.set_plan(FaultPlan::none());
        sim.set_watcher(None);
        looks += counts.try_iter().last().unwrap();
    }
    say(format_args!(
        "edges: {looks} reads beside the calls of a writer"
    ));
    assert!(looks > 1000, "{looks}");
}

/// At the calls of a reader the writer goes on: what is read is of before or after that, each part for itself.
#[test]
fn readers_are_right_while_a_writer_goes_on_at_their_calls() {
    let mut calls = 0;
    for round in 0..40 * effort() as u64 {
        let seed = seed().wrapping_add(round);
        let sim = SimEnv::new(seed);
        let mut writer = Writer::start(&sim, seed);
        let mut judge = Judge::of(&writer);
        let mut dice = Dice::new(!seed);
        let follower = shape().open_read_only(&sim.env_of_process(2)).unwrap();
        // A writer that is quicker than any reader for ever would keep it for ever.
        let mut steps = 0;
        let left = Arc::new(AtomicI64::new(0));
        let budget = Arc::clone(&left);
        sim.set_watcher(Some(Box::new(move || {
            if dice.below(3) == 0 && budget.fetch_sub(1, Ordering::SeqCst) > 0 {
                writer.step();
            }
        })));
        for look in 0..30 {
            let place = format!("look {look}, seed {seed}");
            left.store(5, Ordering::SeqCst);
            let before = sim.calls();
            sim.set_plan(FaultPlan::none().rule(FaultRule::new(Fault::Watched)));
            if look % 5 == 4 {
                let fresh = shape()
                    .open_read_only(&sim.env_of_process(3))
                    .unwrap_or_else(|e| panic!("{place}: {e:?}"));
                judge.look(&fresh, &place);
            } else {
                judge.look(&follower, &place);
            }
            sim.set_plan(FaultPlan::none());
            calls += sim.calls() - before;
            steps += 5 - left.load(Ordering::SeqCst).max(0);
        }
        sim.set_watcher(None);
        assert!(steps > 30, "{steps} steps of the writer");
    }
    say(format_args!(
        "edges: {calls} calls of readers beside a writer that goes on"
    ));
}

/// The writer's own listing for garbage is under way while it gives spares the names of segments.
#[test]
fn garbage_is_found_beside_renames() {
    for round in 0..10 {
        let sim = SimEnv::new(round);
        drop(database(&sim));
        // Threads of its own do what is due: else an append would wait for the listing.
        let options = Options {
            background: true,
            ..shape().options
        };
        let toy = Arc::new(Toy::open(&sim.env(), "/db", &options, 4).unwrap());
        let table = toy.kernel.snapshot().unwrap().table_named("t").unwrap().id;
        let rows =
            |from: i64, count: i64| (from..from + count).map(|k| (k, k)).collect::<Vec<Row>>();
        for k in 0..20 {
            toy.append_group(table, &rows(6 + k * 40, 40), 4, Durability::Disk)
                .unwrap();
        }
        let lingers = FaultRule::new(Fault::Linger)
            .on(&[CallKind::ListDir])
            .once();
        sim.set_plan(FaultPlan::none().rule(lingers));
        let collecting = Arc::clone(&toy);
        let job = move || _ = collecting.kernel.collect_garbage().unwrap();
        let collector = sim
            .env()
            .spawner()
            .spawn("collector", Box::new(job))
            .unwrap();
        while sim.hung_calls() == 0 {
            std::thread::yield_now();
        }
        for k in 20..30 {
            toy.append_group(table, &rows(6 + k * 40, 40), 4, Durability::Disk)
                .unwrap();
        }
        sim.release_hung_calls();
        collector.join().unwrap();
        assert_eq!(toy.rows(table).unwrap(), rows(0, 1206));
        let again = shape()
            .open(&sim.crash_image(&CrashChoice::DropAll).env())
            .unwrap();
        assert_eq!(again.rows(table).unwrap(), rows(0, 1206));
    }
}

/// A reader reads the slots of the root one after the other, and the writer may write a checkpoint into each of them meanwhile.
#[test]
fn a_reader_opens_beside_two_checkpoints_that_tear_both_slots_of_the_root() {
    for seed in 0..60 {
        let sim = SimEnv::new(seed);
        let toy = shape().open(&sim.env()).unwrap();
        let table = toy.create("t").unwrap();
        toy.append(table, &[(0, 0)], Durability::Disk).unwrap();
        // The next checkpoint goes into the slot that is read first, or into the other one.
        if seed % 2 == 1 {
            toy.kernel.checkpoint().unwrap();
        }
        let mut next = 0;
        sim.set_watcher(Some(Box::new(move || {
            next += 1;
            toy.append(table, &[(next, next)], Durability::Disk)
                .unwrap();
            toy.kernel.checkpoint().unwrap();
        })));
        let beside = FaultRule::new(Fault::Watched)
            .on(&[CallKind::Read])
            .path_suffix("root")
            .times(2);
        sim.set_plan(FaultPlan::none().rule(beside));
        let opened = shape().open_read_only(&sim.env_of_process(2));
        sim.set_plan(FaultPlan::none());
        let opened = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(!opened.rows(table).unwrap().is_empty(), "seed {seed}");
    }
}
