//! The same with the threads of an open database at work: they prepare segments, encode, write checkpoints, clean, sync.

use super::*;

/// Of so many schedules of the smaller models one: there are seven threads and more.
const ONE_IN: usize = 5;

fn with_threads() -> Options {
    Options {
        segment_bytes: 4 << 10,
        background: true,
        ..Options::default()
    }
}

fn open_with_threads(sim: &SimEnv) -> (Arc<Toy>, TableId) {
    let toy = Toy::open(&sim.env(), "/db", &with_threads(), 3).unwrap();
    let table = toy.create("t").unwrap();
    (Arc::new(toy), table)
}

/// Two rows of each of three commits, so that the encoder has blocks to make.
fn appender(
    toy: &Arc<Toy>,
    table: TableId,
    first: i64,
    level: Durability,
    acknowledged: &Acknowledged,
) -> thread::JoinHandle<()> {
    let (toy, acknowledged) = (Arc::clone(toy), Arc::clone(acknowledged));
    thread::spawn(move || {
        for key in (first..first + 6).step_by(2) {
            let rows: [Row; 2] = [(key, key), (key + 1, key + 1)];
            if toy.append(table, &rows, level).is_ok() {
                acknowledged.lock().extend([key, key + 1]);
            }
        }
    })
}

/// A table whose files become garbage while others work.
fn doomed_table(toy: &Toy) -> TableId {
    let doomed = toy.create("doomed").unwrap();
    let rows: Vec<Row> = (0..60).map(|k| (k, k)).collect();
    toy.append_fragment(doomed, &rows, 20).unwrap();
    toy.append_group(doomed, &rows, 20, Durability::Process)
        .unwrap();
    doomed
}

/// What is left once the last owner has let go: all that was acknowledged, no open file.
fn closed_well(sim: &SimEnv, toy: Arc<Toy>, table: TableId, acknowledged: &Acknowledged) {
    assert_eq!(Arc::strong_count(&toy), 1, "nobody else has the database");
    drop(toy);
    assert_eq!(sim.open_handles(1), 0, "files are open behind the close");
    let again = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
    holds(&keys(&again, table), &acknowledged.lock());
}

#[test]
fn a_database_is_closed_while_its_threads_work() {
    static CUT_SHORT: AtomicUsize = AtomicUsize::new(0);
    static ENCODED: AtomicUsize = AtomicUsize::new(0);
    static CLEANED: AtomicUsize = AtomicUsize::new(0);
    explore_share(ONE_IN, || {
        let sim = SimEnv::new(21);
        let (toy, table) = open_with_threads(&sim);
        let doomed = doomed_table(&toy);
        let acknowledged = Acknowledged::default();
        let writers: Vec<_> = [Durability::Process, Durability::Disk]
            .into_iter()
            .zip([0, 10])
            .map(|(level, first)| appender(&toy, table, first, level, &acknowledged))
            .collect();
        let keeper = thread::spawn({
            let toy = Arc::clone(&toy);
            // Whoever comes too late is refused.
            move || drop((toy.drop_table(doomed), toy.kernel.checkpoint()))
        });
        let reader = thread::spawn({
            let (toy, acknowledged) = (Arc::clone(&toy), Arc::clone(&acknowledged));
            move || {
                let known = acknowledged.lock().clone();
                let snapshot = toy.kernel.snapshot().unwrap();
                let state = snapshot.table(table).unwrap();
                let seen = toy.rows_of(&state).unwrap();
                let found: Vec<i64> = seen.iter().map(|r| r.0).collect();
                holds(&found, &known);
                thread::yield_now();
                assert_eq!(toy.rows_of(&state).unwrap(), seen, "a snapshot changed");
                ENCODED.fetch_add(usize::from(!state.tree.is_empty()), Ordering::Relaxed);
            }
        });
        reader.join().unwrap();
        // Threads and callers are anywhere now.
        toy.kernel.close().unwrap();
        let after = acknowledged.lock().len();
        CUT_SHORT.fetch_add(usize::from(after < 12), Ordering::Relaxed);
        for thread in writers.into_iter().chain([keeper]) {
            thread.join().unwrap();
        }
        let fragments =
            |(path, _): &(std::path::PathBuf, u64)| path.extension() == Some("frag".as_ref());
        CLEANED.fetch_add(
            usize::from(!sim.files().iter().any(fragments)),
            Ordering::Relaxed,
        );
        closed_well(&sim, toy, table, &acknowledged);
    });
    let counts = [&CUT_SHORT, &ENCODED, &CLEANED].map(|count| count.load(Ordering::Relaxed));
    println!("closed before the last append, encoded meanwhile, cleaned meanwhile: {counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn threads_encode_checkpoint_and_clean_until_nothing_is_left_to_do() {
    explore_share(ONE_IN, || {
        let sim = SimEnv::new(22);
        let (toy, table) = open_with_threads(&sim);
        let doomed = doomed_table(&toy);
        let acknowledged = Acknowledged::default();
        let writer = appender(&toy, table, 0, Durability::Process, &acknowledged);
        let keeper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                toy.drop_table(doomed).unwrap();
                toy.kernel.checkpoint().unwrap();
            }
        });
        let reader = thread::spawn({
            let (sim, acknowledged) = (sim.clone(), Arc::clone(&acknowledged));
            move || {
                let reader = open_reader(&sim);
                for _ in 0..2 {
                    let known = acknowledged.lock().clone();
                    holds(&keys(&reader, table), &known);
                }
            }
        });
        for thread in [writer, keeper, reader] {
            thread.join().unwrap();
        }
        assert_eq!(acknowledged.lock().len(), 6);
        // Two blocks of three rows: whoever waits for them sees them made.
        let encoded = || {
            let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
            state.tree.total().is_some_and(|total| total.rows >= 3)
        };
        while !encoded() {
            thread::yield_now();
        }
        let image = sim.crash_image(&CrashChoice::Kill);
        let killed = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
        holds(&keys(&killed, table), &acknowledged.lock());
        drop(killed);
        toy.kernel.close().unwrap();
        closed_well(&sim, toy, table, &acknowledged);
    });
}

#[test]
fn a_failed_sync_of_any_thread_leaves_nobody_waiting() {
    static POISONED: AtomicUsize = AtomicUsize::new(0);
    explore_share(ONE_IN, || {
        let sim = SimEnv::new(23);
        let (toy, table) = open_with_threads(&sim);
        let acknowledged = Acknowledged::default();
        let failed = FaultRule::new(Fault::Error(Errno::IO)).on(SYNCS);
        sim.set_plan(FaultPlan::none().rule(failed.skip(1).once()));
        let writers: Vec<_> = [Durability::Process, Durability::Disk]
            .into_iter()
            .zip([0, 10])
            .map(|(level, first)| appender(&toy, table, first, level, &acknowledged))
            .collect();
        let keeper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || drop((toy.kernel.checkpoint(), toy.kernel.flush()))
        });
        for thread in writers.into_iter().chain([keeper]) {
            thread.join().unwrap();
        }
        holds(&keys(&toy, table), &acknowledged.lock());
        POISONED.fetch_add(
            usize::from(toy.kernel.poison().is_some()),
            Ordering::Relaxed,
        );
        sim.set_plan(FaultPlan::none());
        let _ = toy.kernel.close();
        closed_well(&sim, toy, table, &acknowledged);
    });
    let poisoned = POISONED.load(Ordering::Relaxed);
    println!("given up: {poisoned}");
    assert!(poisoned > 0);
}

/// One thread hands in commits and goes on, another one commits and waits, a third one closes the database.
#[test]
fn commits_that_call_back_are_answered_once_where_the_database_is_closed() {
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    static STORED: AtomicUsize = AtomicUsize::new(0);
    explore_share(ONE_IN, || {
        let sim = SimEnv::new(24);
        let (toy, table) = open_with_threads(&sim);
        let (acknowledged, answers) = (Acknowledged::default(), Arc::new(Mutex::new(Vec::new())));
        let hands_in = thread::spawn({
            let (toy, acknowledged) = (Arc::clone(&toy), Arc::clone(&acknowledged));
            let answers = Arc::clone(&answers);
            move || {
                let mut taken = Vec::new();
                for key in 0..3 {
                    let (acknowledged, answers) = (Arc::clone(&acknowledged), Arc::clone(&answers));
                    let commit = Commit {
                        rows: vec![rows_part(table, &[(key, key)])],
                        ..Commit::default()
                    };
                    let answer = move |result: Result<CommitNo, _>| {
                        answers.lock().push(key);
                        if result.is_ok() {
                            acknowledged.lock().insert(key);
                        }
                    };
                    let handed_in = toy.kernel.commit_later(commit, Durability::Disk, answer);
                    taken.extend(handed_in.is_ok().then_some(key));
                }
                taken
            }
        });
        let waits = committer(&toy, table, 10, Durability::Process, &acknowledged);
        thread::yield_now();
        toy.kernel.close().unwrap();
        let taken = hands_in.join().unwrap();
        waits.join().unwrap();
        assert_eq!(*answers.lock(), taken, "each is answered once, in order");
        let stored = acknowledged.lock().range(..10).count();
        STORED.fetch_add(stored, Ordering::Relaxed);
        REFUSED.fetch_add(taken.len() - stored, Ordering::Relaxed);
        closed_well(&sim, toy, table, &acknowledged);
    });
    let counts = [&STORED, &REFUSED].map(|count| count.load(Ordering::Relaxed));
    println!("stored, refused by closing: {counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
