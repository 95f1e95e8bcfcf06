//! An open database is the folder that had its path when it was opened: it never touches another one that has the path later.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use std::path::{Path, PathBuf};
use thalweg_env::Env;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{Commit, Durability::Disk, Edit, Options, Result, TableId};
use thalweg_sim::toy::{Row, Toy};

fn options() -> Options {
    Options {
        background: false,
        segment_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(env: &Env, path: &Path) -> Result<Toy> {
    Toy::open(env, path.to_str().unwrap(), &options(), 64)
}

fn rows(first: i64, count: i64) -> Vec<Row> {
    (first..first + count).map(|key| (key, key * 7)).collect()
}

/// A database with rows in the log and in a file, and what is in it.
struct Precious {
    path: PathBuf,
    table: TableId,
    rows: Vec<Row>,
}

impl Precious {
    fn make(env: &Env, path: PathBuf) -> Precious {
        let toy = open(env, &path).unwrap();
        let table = toy.create("precious").unwrap();
        for first in [0, 1000, 2000] {
            toy.append_group(table, &rows(first, 500), 64, Disk)
                .unwrap();
        }
        toy.append_fragment(table, &rows(3000, 500), 64).unwrap();
        let rows = toy.rows(table).unwrap();
        Precious { path, table, rows }
    }

    fn check(&self, env: &Env) {
        let toy = open(env, &self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        assert_eq!(toy.rows(self.table).unwrap(), self.rows);
    }
}

/// What makes, replaces and removes files: appends over several segments, drops, and garbage collection.
fn work(toy: &Toy) -> Result<()> {
    for round in 0..3 {
        let table = toy.create(&format!("scratch{round}"))?;
        for first in 0..5 {
            toy.append_group(table, &rows(first * 1000, 500), 64, Disk)?;
        }
        let edits = vec![Edit::DropTable { table }];
        let commit = Commit {
            edits,
            ..Commit::default()
        };
        toy.kernel.commit(commit, Disk)?;
        toy.kernel.collect_garbage()?;
    }
    Ok(())
}

fn remove_all(env: &Env, folder: &Path) {
    for entry in env.storage().list_dir(folder).unwrap() {
        let path = folder.join(entry.name);
        match entry.is_dir {
            true => remove_all(env, &path),
            false => env.storage().remove_file(&path).unwrap(),
        }
    }
    env.storage().remove_dir(folder).unwrap();
}

/// Runs a case on the simulated machine and with files of the operating system.
fn everywhere(case: impl Fn(&Env, &Path)) {
    let sim = SimEnv::new(5);
    let base = Path::new("/base");
    sim.env().storage().create_dir(base).unwrap();
    case(&sim.env(), base);
    let folder = tempfile::tempdir().unwrap();
    case(&Env::os(), folder.path());
}

#[test]
fn another_working_directory_changes_nothing() {
    let sim = SimEnv::new(5);
    let env = sim.env();
    let go_to = |path| {
        sim.set_working_dir(sim.process_id(), Path::new(path))
            .unwrap();
    };
    for folder in ["/a", "/b", "/nothing"] {
        env.storage().create_dir(Path::new(folder)).unwrap();
    }
    let other = Precious::make(&env, "/b/db".into());
    for elsewhere in ["/b", "/nothing"] {
        go_to("/a");
        let toy = open(&env, Path::new("db")).unwrap();
        go_to(elsewhere);
        work(&toy).unwrap();
        let kept = toy.create(&elsewhere[1..]).unwrap();
        toy.append_group(kept, &rows(0, 500), 64, Disk).unwrap();
        drop(toy);
        other.check(&env);
        let own = open(&env, Path::new("/a/db")).unwrap();
        assert_eq!(own.rows(kept).unwrap(), rows(0, 500));
    }
    let nothing = env.storage().list_dir(Path::new("/nothing")).unwrap();
    assert_eq!(nothing, []);
}

#[test]
fn a_folder_that_was_made_anew_belongs_to_whoever_made_it() {
    everywhere(|env, base| {
        let path = base.join("db");
        let old = open(env, &path).unwrap();
        old.create("old").unwrap();
        remove_all(env, &path);
        let new = Precious::make(env, path);
        work(&old).unwrap_err();
        drop(old);
        new.check(env);
    });
}

#[test]
fn closing_a_database_whose_folder_is_gone_leaves_the_new_one_alone() {
    everywhere(|env, base| {
        let path = base.join("db");
        let old = open(env, &path).unwrap();
        old.create("old").unwrap();
        remove_all(env, &path);
        let new = open(env, &path).unwrap();
        let table = new.create("new").unwrap();
        new.append(table, &[(1, 1)], Disk).unwrap();
        drop(old);
        work(&new).unwrap();
        drop(new);
        assert_eq!(open(env, &path).unwrap().rows(table).unwrap(), [(1, 1)]);
    });
}

#[test]
fn a_folder_that_was_moved_stays_what_it_was() {
    everywhere(|env, base| {
        let (path, moved) = (base.join("db"), base.join("moved"));
        let old = open(env, &path).unwrap();
        let table = old.create("old").unwrap();
        let reading = Options {
            read_only: true,
            ..options()
        };
        let reader = Toy::open(env, path.to_str().unwrap(), &reading, 64).unwrap();
        let other = Precious::make(env, base.join("fresh"));
        env.storage().rename(&path, &moved).unwrap();
        env.storage().rename(&other.path, &path).unwrap();
        let other = Precious { path, ..other };
        work(&old).unwrap();
        old.append(table, &[(1, 1)], Disk).unwrap();
        assert_eq!(reader.rows(table).unwrap(), [(1, 1)]);
        drop((old, reader));
        other.check(env);
        assert_eq!(open(env, &moved).unwrap().rows(table).unwrap(), [(1, 1)]);
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "links are made by hand")]
fn a_link_that_leads_elsewhere_is_not_followed_again() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::os();
    let (one, link) = (folder.path().join("one"), folder.path().join("link"));
    let other = Precious::make(&env, folder.path().join("two"));
    drop(open(&env, &one).unwrap());
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let toy = open(&env, &link).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other.path, &link).unwrap();
    work(&toy).unwrap();
    drop(toy);
    other.check(&env);
    open(&env, &one).unwrap();
}
