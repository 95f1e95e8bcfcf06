//! Commits that call back: stored in order, answered once, whatever happens meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use bytes::Bytes;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;
use thalweg_env::sim::{Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SYNCS, SimEnv};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, Kernel, NEW_TABLE, OpenRows, Options,
    Producer, Result, RowEncoder, TableId, TableSnapshot, TableState,
};
use thalweg_sim::toy::{Row, Toy, rows_part};

const SEGMENT_BYTES: u64 = 64 << 10;

fn options(background: bool) -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        sync_interval: Duration::from_millis(1),
        background,
        ..Options::default()
    }
}

fn open(sim: &SimEnv, background: bool) -> (Arc<Toy>, TableId) {
    let toy = Toy::open(&sim.env(), "/db", &options(background), 4).unwrap();
    let table = toy.create("t").unwrap();
    (Arc::new(toy), table)
}

fn commit_of(table: TableId, rows: &[Row]) -> Commit {
    Commit {
        rows: vec![rows_part(table, rows)],
        ..Commit::default()
    }
}

/// Some rows of a producer, with keys of their own.
fn of_producer(table: TableId, id: u8, sequence: u64, count: i64) -> Commit {
    let key = 1_000 * i64::from(id) + 100 * sequence.cast_signed();
    let rows: Vec<Row> = (key..key + count).map(|key| (key, key)).collect();
    let producer = Producer {
        id: [id; 16],
        sequence,
    };
    Commit {
        producer: Some(producer),
        ..commit_of(table, &rows)
    }
}

/// Hands in one row; its answer comes with its key.
fn later(
    toy: &Toy,
    table: TableId,
    key: i64,
    level: Durability,
    answers: &mpsc::Sender<(i64, Result<CommitNo>)>,
) -> Result<()> {
    let answers = answers.clone();
    let answer = move |result| answers.send((key, result)).unwrap();
    let commit = commit_of(table, &[(key, key)]);
    toy.kernel.commit_later(commit, level, answer)
}

/// Hands in a commit whose answer does not end, and waits until it is being given; it ends once the barrier was waited for.
fn hold(toy: &Toy, commit: Commit) -> Arc<Barrier> {
    let (begun, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let barriers = (Arc::clone(&begun), Arc::clone(&goes_on));
    let answer = move |_| {
        barriers.0.wait();
        barriers.1.wait();
    };
    toy.kernel
        .commit_later(commit, Durability::Process, answer)
        .unwrap();
    begun.wait();
    goes_on
}

/// Waits for all answers: none comes after the last sender is gone.
fn all(answers: mpsc::Receiver<(i64, Result<CommitNo>)>) -> Vec<(i64, Result<CommitNo>)> {
    answers.into_iter().collect()
}

fn keys(toy: &Toy, table: TableId) -> Vec<i64> {
    toy.rows(table).unwrap().into_iter().map(|r| r.0).collect()
}

/// Three threads hand in commits of both levels, a fourth one commits and waits.
#[test]
fn they_are_stored_in_order_and_answered_once() {
    const EACH: i64 = 400;
    for background in [false, true] {
        let sim = SimEnv::new(1);
        let (toy, table) = open(&sim, background);
        let (sender, answers) = mpsc::channel();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (toy, sender) = (&toy, sender.clone());
                scope.spawn(move || {
                    for at in 0..EACH {
                        let level = match at % 3 {
                            0 => Durability::Disk,
                            _ => Durability::Process,
                        };
                        later(toy, table, thread * 10_000 + at, level, &sender).unwrap();
                    }
                });
            }
            for at in 0..EACH {
                let row = [(90_000 + at, at)];
                toy.append(table, &row, Durability::Disk).unwrap();
            }
        });
        drop(sender);
        let answers = all(answers);
        assert_eq!(answers.len(), 3 * usize::try_from(EACH).unwrap());
        for thread in 0..3 {
            let of_thread = answers.iter().filter(|(key, _)| key / 10_000 == thread);
            let (keys, numbers): (Vec<i64>, Vec<CommitNo>) = of_thread
                .map(|(key, result)| (*key, *result.as_ref().unwrap()))
                .unzip();
            assert!(keys.is_sorted(), "answered in another order: {keys:?}");
            assert!(numbers.is_sorted(), "stored in another order: {numbers:?}");
        }
        let before = keys(&toy, table);
        toy.kernel.close().unwrap();
        drop(toy);
        let again = Toy::open(&sim.env(), "/db", &options(false), 4).unwrap();
        assert_eq!(keys(&again, table), before);
        assert_eq!(before.len(), 4 * usize::try_from(EACH).unwrap());
    }
}

/// Sequence 2 of a producer finds no room, or is of a definition that has gone; 3 and 4 were handed in behind it. Stored, they would
/// make 2 look stored, and its rows would be lost when it is sent again.
#[test]
fn behind_a_refused_commit_of_a_producer_none_of_it_is_stored() {
    for finds_no_room in [false, true] {
        let sim = SimEnv::new(1);
        let (toy, table) = open(&sim, true);
        let of_producer = |id, sequence, count| of_producer(table, id, sequence, count);
        toy.kernel
            .commit(of_producer(1, 1, 1), Durability::Disk)
            .unwrap();
        let mut refused = of_producer(1, 2, 90);
        if finds_no_room {
            // Too many bytes for what is left, not for a commit.
            let payload = vec![0; 300 << 10];
            refused.rows[0].payload = payload.into();
            sim.set_quota(Some(sim.used_bytes() + (100 << 10)));
        } else {
            refused.rows[0].definition_version = 7;
        }
        let goes_on = hold(&toy, commit_of(table, &[(-1, -1)]));
        let (sender, answers) = mpsc::channel();
        let commits = [
            (12, refused),
            (13, of_producer(1, 3, 1)),
            (21, of_producer(2, 1, 1)),
            (11, of_producer(1, 1, 1)),
            (14, of_producer(1, 4, 1)),
        ];
        for (name, commit) in commits {
            let sender = sender.clone();
            let answer = move |result: Result<CommitNo>| sender.send((name, result)).unwrap();
            toy.kernel
                .commit_later(commit, Durability::Disk, answer)
                .unwrap();
        }
        drop(sender);
        goes_on.wait();
        let answers: Vec<_> = { answers.into_iter() }
            .map(|(name, result)| (name, result.err().map(|error| error.kind())))
            .collect();
        let behind = Some(ErrorKind::Conflict);
        assert!(answers[0].1.is_some(), "{answers:?}");
        assert_eq!(
            answers[1..],
            [(13, behind), (21, None), (11, None), (14, behind)]
        );
        // Also what was handed in later, by whoever: until 2 is stored, or another commit with its number.
        sim.set_quota(None);
        let error = toy.kernel.commit(of_producer(1, 5, 1), Durability::Disk);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
        let again = of_producer(1, 2, 1);
        toy.kernel.commit(again, Durability::Disk).unwrap();
        let error = toy.kernel.commit(of_producer(1, 4, 1), Durability::Disk);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
        for sequence in [3, 4, 5] {
            let (sender, answers) = mpsc::channel();
            let answer = move |result: Result<CommitNo>| sender.send(result).unwrap();
            toy.kernel
                .commit_later(of_producer(1, sequence, 1), Durability::Disk, answer)
                .unwrap();
            answers.recv().unwrap().unwrap();
            assert!(keys(&toy, table).contains(&(1_000 + 100 * sequence.cast_signed())));
        }
        assert!(keys(&toy, table).contains(&1_200));
        toy.kernel.close().unwrap();
    }
}

/// The sync of a batch finds no room. If the log does not have its commits afterwards, what their producer hands in behind them is not
/// stored before they were sent again; if it has them, nothing keeps it waiting. Nothing is stored twice.
#[test]
fn behind_a_broken_batch_none_of_its_producers_is_stored() {
    for reads in [ReadsAfter::New, ReadsAfter::Old] {
        let sim = SimEnv::new(10);
        let (toy, table) = open(&sim, true);
        let commit = |sequence| {
            let commit = of_producer(table, 1, sequence, 1);
            toy.kernel.commit(commit, Durability::Disk)
        };
        commit(1).unwrap();
        let goes_on = hold(&toy, commit_of(table, &[(-1, -1)]));
        // What was shown must not be lost: that ends writing for good.
        toy.kernel.flush().unwrap();
        let (sender, answers) = mpsc::channel();
        for sequence in [2, 3] {
            let sender = sender.clone();
            let answer = move |result: Result<CommitNo>| sender.send(result).unwrap();
            toy.kernel
                .commit_later(of_producer(table, 1, sequence, 1), Durability::Disk, answer)
                .unwrap();
        }
        drop(sender);
        let errno = Errno::NOSPC;
        let lost = FaultRule::new(Fault::FlushError { errno, reads }).on(SYNCS);
        // Each sync, for others prepare segments meanwhile.
        sim.set_plan(FaultPlan::none().rule(lost));
        goes_on.wait();
        let answers: Vec<_> = answers
            .into_iter()
            .map(|it| it.unwrap_err().kind())
            .collect();
        assert_eq!(answers, [ErrorKind::Unavailable; 2], "{reads:?}");
        sim.set_plan(FaultPlan::none());
        // Recovers the log.
        toy.append(table, &[(-2, -2)], Durability::Disk).unwrap();
        let has_stored = keys(&toy, table).contains(&1_200);
        assert_eq!(has_stored, matches!(reads, ReadsAfter::New));
        if !has_stored {
            for again in [2, 3] {
                let error = commit(4).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                commit(again).unwrap();
            }
        }
        commit(4).unwrap();
        let all_keys = [-2, -1, 1_100, 1_200, 1_300, 1_400];
        assert_eq!(keys(&toy, table), all_keys);
        for again in 2..=4 {
            commit(again).unwrap();
        }
        assert_eq!(keys(&toy, table), all_keys);
        toy.kernel.close().unwrap();
    }
}

/// Those that wait for one sync share the next one.
#[test]
fn those_that_wait_are_synced_together() {
    let sim = SimEnv::new(2);
    let (toy, table) = open(&sim, true);
    let (sender, answers) = mpsc::channel();
    let goes_on = hold(&toy, commit_of(table, &[(0, 0)]));
    for key in 1..=500 {
        later(&toy, table, key, Durability::Disk, &sender).unwrap();
    }
    drop(sender);
    let before = sim.stats().syncs;
    goes_on.wait();
    let answers = all(answers);
    let syncs = sim.stats().syncs - before;
    assert!(answers.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(answers.len(), 500);
    assert!(syncs < 60, "{syncs} syncs for 500 commits");
}

/// Whatever has an answer that is no error is there, and nothing else.
#[test]
fn closing_answers_what_waits() {
    for round in 0..30 {
        let sim = SimEnv::new(3);
        let (toy, table) = open(&sim, true);
        let (sender, answers) = mpsc::channel();
        let handed_in = std::thread::scope(|scope| {
            let toy = &toy;
            let hands_in = scope.spawn(move || {
                let mut handed_in = 0;
                for key in 0..100_000 {
                    if let Err(error) = later(toy, table, key, Durability::Process, &sender) {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        break;
                    }
                    handed_in += 1;
                }
                handed_in
            });
            while toy.rows(table).is_ok_and(|rows| rows.len() < round) {
                std::thread::yield_now();
            }
            toy.kernel.close().unwrap();
            hands_in.join().unwrap()
        });
        let answers = all(answers);
        assert_eq!(answers.len(), handed_in);
        let is_refused = |error: &Error| error.kind() == ErrorKind::Unavailable;
        let is_well = |result: &Result<_>| result.as_ref().err().is_none_or(is_refused);
        assert!(answers.iter().all(|(_, result)| is_well(result)));
        let stored = answers.iter().filter(|(_, result)| result.is_ok());
        let mut stored: Vec<i64> = stored.map(|(key, _)| *key).collect();
        stored.sort_unstable();
        drop(toy);
        let again = Toy::open(&sim.env(), "/db", &options(false), 4).unwrap();
        assert_eq!(keys(&again, table), stored);
    }
}

/// An answer may use the database, which then belongs to the thread that gives it.
#[test]
fn an_answer_may_commit_and_let_go_of_the_database() {
    let sim = SimEnv::new(4);
    let (toy, table) = open(&sim, true);
    let (sender, answers) = mpsc::channel();
    let (begun, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let barriers = (Arc::clone(&begun), Arc::clone(&goes_on));
    let own = Arc::clone(&toy);
    let answer = move |result: Result<CommitNo>| {
        result.unwrap();
        own.append(table, &[(2, 2)], Durability::Disk).unwrap();
        later(&own, table, 3, Durability::Disk, &sender).unwrap();
        barriers.0.wait();
        barriers.1.wait();
        // The last handle: closes the database, and refuses what waits.
        assert_eq!(Arc::strong_count(&own), 1);
        drop(own);
    };
    let first = commit_of(table, &[(1, 1)]);
    toy.kernel
        .commit_later(first, Durability::Disk, answer)
        .unwrap();
    begun.wait();
    drop(toy);
    goes_on.wait();
    let answers = all(answers);
    let [(3, refused)] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    let kind = refused.as_ref().map_err(Error::kind);
    assert_eq!(kind, Err(ErrorKind::Unavailable));
    let again = loop {
        match Toy::open(&sim.env(), "/db", &options(false), 4) {
            Err(error) if error.kind() == ErrorKind::Locked => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(keys(&again, table), [1, 2]);
}

#[test]
fn an_answer_that_panics_keeps_no_other_and_ends_nothing() {
    for background in [false, true] {
        let sim = SimEnv::new(5);
        let (toy, table) = open(&sim, background);
        let (sender, answers) = mpsc::channel();
        for key in 0..10 {
            later(&toy, table, 2 * key, Durability::Process, &sender).unwrap();
            let commit = commit_of(table, &[(2 * key + 1, 0)]);
            let panics = |_| panic!("an answer panics, as this test wants");
            toy.kernel
                .commit_later(commit, Durability::Process, panics)
                .unwrap();
        }
        drop(sender);
        assert_eq!(all(answers).len(), 10);
        toy.append(table, &[(100, 0)], Durability::Disk).unwrap();
        assert_eq!(keys(&toy, table).len(), 21);
    }
}

/// A table whose definition has 1 MiB.
fn of_table(name: &str) -> Commit {
    Commit {
        edits: vec![Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: Bytes::from(vec![b'd'; 1 << 20]),
            indexes: 0,
        }],
        ..Commit::default()
    }
}

/// Where no more may wait, sequence 2 is refused at once, and a shorter 3 would be taken.
#[test]
fn behind_a_commit_that_found_no_room_to_wait_none_of_its_producer_is_stored() {
    let sim = SimEnv::new(11);
    let (toy, table) = open(&sim, true);
    let later = |commit| {
        let (sender, answers) = mpsc::channel();
        let answer = move |result: Result<CommitNo>| sender.send(result).unwrap();
        let taken = toy.kernel.commit_later(commit, Durability::Disk, answer);
        taken.map(|()| answers)
    };
    let goes_on = hold(&toy, commit_of(table, &[(-1, -1)]));
    let mut waiting = Vec::new();
    let large = |name: usize| of_table(&format!("t{name}"));
    while let Ok(answers) = later(large(waiting.len())) {
        waiting.push(answers);
    }
    let second = || Commit {
        edits: of_table("second").edits,
        ..of_producer(table, 1, 2, 1)
    };
    assert_eq!(later(second()).unwrap_err().kind(), ErrorKind::Limit);
    // Neither has one without content anything to lose.
    let empty = Commit {
        rows: Vec::new(),
        ..of_producer(table, 2, 1, 1)
    };
    let answers = [
        empty,
        of_producer(table, 1, 3, 1),
        of_producer(table, 2, 2, 1),
    ]
    .map(later);
    goes_on.wait();
    let answers = answers.map(|answers| answers.unwrap().recv().unwrap());
    let kinds = answers.map(|answer| answer.err().map(|error| error.kind()));
    let (invalid, behind) = (Some(ErrorKind::Invalid), Some(ErrorKind::Conflict));
    assert_eq!(kinds, [invalid, behind, None]);
    { waiting.into_iter() }.for_each(|answers| assert!(answers.recv().unwrap().is_ok()));
    for commit in [second(), of_producer(table, 1, 3, 1)] {
        later(commit).unwrap().recv().unwrap().unwrap();
    }
    assert!(keys(&toy, table).contains(&1_300));
}

/// Hands in commits behind an answer that does not end, until one is refused; returns how many were taken and stored.
fn taken(commit: impl Fn(TableId, usize) -> Commit) -> usize {
    let sim = SimEnv::new(6);
    let (toy, table) = open(&sim, true);
    let goes_on = hold(&toy, commit_of(table, &[(0, 0)]));
    let answered = Arc::new(AtomicUsize::new(0));
    let refused = (0..2000).find(|at| {
        let answered = Arc::clone(&answered);
        let answer = move |result: Result<CommitNo>| {
            result.unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
        };
        let commit = commit(table, *at);
        let taken = toy.kernel.commit_later(commit, Durability::Process, answer);
        taken.is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
            true
        })
    });
    let taken = refused.unwrap();
    goes_on.wait();
    while answered.load(Ordering::SeqCst) < taken {
        std::thread::yield_now();
    }
    let (sender, answers) = mpsc::channel();
    later(&toy, table, -1, Durability::Disk, &sender).unwrap();
    drop(sender);
    all(answers)[0].1.as_ref().unwrap();
    taken
}

/// Who hands in more than is stored learns that it is too much: of rows, and of what else a commit has.
#[test]
fn what_waits_is_bounded() {
    let rows: Vec<Row> = (0..8192).map(|key| (key, key)).collect();
    let of_rows = taken(|table, _| commit_of(table, &rows));
    // 128 KiB each.
    assert_eq!(of_rows, 511);
    let of_definitions = taken(|_, at| of_table(&format!("t{at}")));
    assert_eq!(of_definitions, 63);
}

/// Says that the disk is full, and counts how often.
struct Full(Arc<AtomicUsize>);

impl RowEncoder for Full {
    fn block_rows(&self, _: &TableState) -> Result<u32> {
        Ok(4096)
    }

    fn encode(&self, _: &TableSnapshot, _: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(Error::new(ErrorKind::DiskFull, "no room for blocks"))
    }
}

/// Where there is no room for open rows, one round of encoding refuses all that wait, and what has no rows is stored before that.
#[test]
fn those_without_room_are_refused_together() {
    let sim = SimEnv::new(9);
    let rounds = Arc::new(AtomicUsize::new(0));
    let encoder = Arc::new(Full(Arc::clone(&rounds)));
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &options(true), encoder).unwrap();
    let toy = Toy { kernel };
    let table = toy.create("t").unwrap();
    let rows: Vec<Row> = (0..8192).map(|key| (key, key)).collect();
    while toy.append(table, &rows, Durability::Process).is_ok() {}
    let create = |name: &str| Commit {
        edits: vec![Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: Bytes::new(),
            indexes: 0,
        }],
        ..Commit::default()
    };
    let (kernel, level) = (&toy.kernel, Durability::Process);
    let goes_on = hold(&toy, create("first"));
    let (sender, answers) = mpsc::channel();
    let own = sender.clone();
    let answer = move |result| own.send((-1, result)).unwrap();
    kernel
        .commit_later(create("second"), level, answer)
        .unwrap();
    for key in 0..1000 {
        later(&toy, table, key, level, &sender).unwrap();
    }
    drop(sender);
    let before = rounds.load(Ordering::SeqCst);
    goes_on.wait();
    let answers = all(answers);
    let after = rounds.load(Ordering::SeqCst);
    assert!(answers[0].0 == -1 && answers[0].1.is_ok());
    let kinds = answers[1..]
        .iter()
        .map(|(_, result)| result.as_ref().map_err(Error::kind));
    assert!(
        kinds
            .into_iter()
            .all(|kind| kind == Err(ErrorKind::DiskFull))
    );
    assert_eq!(answers.len(), 1001);
    assert!(after - before < 50, "{} rounds", after - before);
}

#[test]
fn a_failed_sync_is_the_error_of_those_that_wanted_it() {
    let sim = SimEnv::new(7);
    let (toy, table) = open(&sim, true);
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(SYNCS);
    sim.set_plan(FaultPlan::none().rule(fails));
    let (sender, answers) = mpsc::channel();
    for key in 0..20 {
        // Writing may have ended before the last ones are handed in.
        let _ = later(&toy, table, key, Durability::Disk, &sender);
    }
    drop(sender);
    let answers = all(answers);
    assert!(!answers.is_empty());
    assert!(answers.iter().all(|(_, result)| result.is_err()));
    let (sender, _answers) = mpsc::channel();
    let refused = later(&toy, table, 20, Durability::Disk, &sender).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[test]
fn a_reader_takes_none() {
    let sim = SimEnv::new(8);
    let (_toy, table) = open(&sim, true);
    let read_only = Options {
        read_only: true,
        ..options(false)
    };
    let reader = Toy::open(&sim.env_of_process(2), "/db", &read_only, 4).unwrap();
    let (sender, _answers) = mpsc::channel();
    let refused = later(&reader, table, 0, Durability::Disk, &sender).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}
