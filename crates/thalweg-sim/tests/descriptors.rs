//! A process that has no descriptor left for a moment: what needs one is refused, and the next commit tries again.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::{Env, File, OpenMode};
use thalweg_kernel::{Durability, ErrorKind, Options};
use thalweg_sim::toy::{Row, Toy};

fn options() -> Options {
    Options {
        background: false,
        segment_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(env: &Env, path: &str) -> Toy {
    Toy::open(env, path, &options(), 64).unwrap()
}

fn rows(first: i64) -> Vec<Row> {
    (first..first + 500).map(|key| (key, key)).collect()
}

/// The only test here that works with real files: the limit is one of the whole process.
#[test]
fn too_many_open_files_refuse_commits_and_end_nothing() {
    const LIMIT: u64 = 200;
    let hard = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(LIMIT),
        maximum: hard,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for left in 0..6 {
        let path = folder.path().join(format!("db{left}"));
        let path = path.to_str().unwrap();
        // The segment may be prepared before, so that nothing but its folder is opened when it is named.
        let toy = open(&Env::os(), path);
        let table = toy.create("t").unwrap();
        toy.append(table, &rows(-1000), Durability::Disk).unwrap();
        let mut stored = toy.rows(table).unwrap();
        let mut others: Vec<Arc<dyn File>> = Vec::new();
        let os = Env::os();
        let null = || os.storage().open(Path::new("/dev/null"), OpenMode::Read);
        while let Ok(other) = null() {
            others.push(other);
        }
        assert!(others.len() > left);
        others.truncate(others.len() - left);
        for round in 0..60 {
            let more = rows(round * 500);
            match toy.append_group(table, &more, 64, Durability::Disk) {
                Ok(_) => stored.extend(more),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{left} left: {error}");
                    refused += 1;
                }
            }
        }
        drop(others);
        assert!(toy.kernel.poison().is_none());
        let more = rows(100_000);
        toy.append_group(table, &more, 64, Durability::Disk)
            .unwrap();
        stored.extend(more);
        assert_eq!(toy.rows(table).unwrap(), stored, "{left} left");
        drop(toy);
        assert_eq!(open(&Env::os(), path).rows(table).unwrap(), stored);
    }
    assert!(refused > 0, "descriptors suffice");
}

/// Each opening of a folder in turn, in segments that are named and in an epoch that begins, also behind a kill.
#[test]
fn a_folder_that_cannot_be_opened_refuses_one_commit() {
    for errno in [Errno::MFILE, Errno::NOMEM] {
        for skip in 0.. {
            let sim = SimEnv::new(skip);
            let toy = open(&sim.env(), "/db");
            let table = toy.create("t").unwrap();
            let mut stored = rows(0);
            toy.append(table, &stored, Durability::Disk).unwrap();
            let sim = sim.crash_image(&CrashChoice::Kill);
            drop(toy);
            let rule = FaultRule::new(Fault::Error(errno)).on(&[CallKind::OpenDir]);
            sim.set_plan(FaultPlan::none().rule(rule.skip(skip).once()));
            sim.set_trace(true);
            let opened = Toy::open(&sim.env(), "/db", &options(), 64);
            let mut refused = u64::from(opened.is_err());
            let toy = opened.unwrap_or_else(|_| open(&sim.env(), "/db"));
            for round in 1..40 {
                let more = rows(round * 500);
                let done = toy.append_group(table, &more, 64, Durability::Disk);
                match done {
                    Ok(_) => stored.extend(more),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Io, "{skip}: {error}");
                        refused += 1;
                    }
                }
            }
            assert!(refused <= 1 && toy.kernel.poison().is_none(), "{skip}");
            assert_eq!(toy.rows(table).unwrap(), stored, "{skip}");
            let image = sim.crash_image(&CrashChoice::DropAll);
            assert_eq!(open(&image.env(), "/db").rows(table).unwrap(), stored);
            let calls = sim.take_trace().into_iter();
            if calls.filter(|call| call.kind == CallKind::OpenDir).count() as u64 <= skip {
                assert!(skip > 2, "an opening and several segments");
                break;
            }
        }
    }
}
