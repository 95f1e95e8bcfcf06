//! The program from outside: what it prints where, how it ends, and that nothing is stored in part.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "files and processes of tests, which fail by panic"
)]

mod demo;
mod dialects;
mod file_names;
mod hints;
mod import;
mod import_guesses;
mod import_options;
mod killed_imports;
mod shell;
mod sql;
mod terminal;
mod verify;

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder for the databases and files of one test.
struct Place {
    folder: tempfile::TempDir,
    db: PathBuf,
}

/// What a call printed, and how it ended.
#[derive(Debug)]
struct Ended {
    status: i32,
    out: String,
    err: String,
}

impl Ended {
    /// The output of a call that must have succeeded.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.out
    }

    /// The message of a call that must have failed: the last line and no other, without a trace.
    #[track_caller]
    fn fails(self, status: i32) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let lines = self
            .err
            .lines()
            .filter(|line| line.starts_with("thalweg: "));
        assert_eq!(lines.count(), 1, "{self:?}");
        let message = self.err.lines().last().unwrap_or_default();
        assert!(
            message.starts_with("thalweg: ") && !self.err.contains("panicked"),
            "{self:?}"
        );
        format!("{message}\n")
    }
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("a.thal");
        Self { folder, db }
    }

    /// A file with this text.
    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs the program; `db` stands for the path of the database.
    fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ended {
        self.run_with(arguments, "")
    }

    fn run_with<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: impl AsRef<[u8]>,
    ) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        for argument in arguments {
            let argument = argument.as_ref();
            if argument == "db" {
                command.arg(&self.db)
            } else {
                command.arg(argument)
            };
        }
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        // A program that fails early reads no more.
        let _ = child.stdin.take().unwrap().write_all(input.as_ref());
        let ended = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended {
            status: ended.status.code().unwrap_or(-1),
            out: text(ended.stdout),
            err: text(ended.stderr),
        }
    }

    #[track_caller]
    fn sql(&self, statements: &str) -> String {
        self.run(["sql", "db", statements]).ok()
    }
}

#[test]
fn wrong_calls_end_with_2() {
    let place = Place::new();
    for call in [
        &["sql"][..],
        &["sql", "db"],
        &["sql", "db", "SELECT 1", "--format", "xml"],
        &["sql", "db", " ; "],
        &["import", "db", "x.csv"],
        &["import", "db", "-", "--table", "t", "--delimiter", "ab"],
        &["db", "more"],
        &["--nonsense"],
        &[],
    ] {
        let ended = place.run(call);
        assert_eq!(ended.status, 2, "{call:?} {ended:?}");
        assert!(
            ended.out.is_empty() && !ended.err.is_empty(),
            "{call:?} {ended:?}"
        );
    }
    assert!(!place.db.exists(), "a wrong call made a database");
}

#[test]
fn a_mistyped_command_makes_no_database() {
    let place = Place::new();
    for (word, meant) in [
        ("frobnicate", ""),
        ("improt", "\"import\""),
        ("stat", "\"stats\""),
    ] {
        let message = place.run([word]).fails(2);
        assert!(
            message.contains(meant) && message.contains(&format!("{word}.thal")),
            "{message}"
        );
        assert!(!std::path::Path::new(word).exists(), "{word}");
    }
    // A path or an ending is a database, and so is a folder that is there.
    place.run(["db"]).ok();
    assert!(place.db.exists());
}

#[test]
fn a_lock_names_what_to_do() {
    let place = Place::new();
    place.sql("CREATE TABLE t (v BIGINT)");
    let mut writer = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg(&place.db)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writer
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"SELECT 1 AS a;\n")
        .unwrap();
    let mut first = [0];
    std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut first).unwrap();
    let message = place
        .run(["sql", "db", "INSERT INTO t VALUES (1)"])
        .fails(1);
    assert!(
        message.contains("stop the writer; SELECT works meanwhile"),
        "{message}"
    );
    place.sql("SELECT * FROM t");
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
}

#[test]
fn what_this_version_lacks_is_named() {
    let place = Place::new();
    for call in [
        &["export", "db", "--table", "t"][..],
        &["inspect", "db"],
        &["serve", "db"],
        &["sql", "db", "SELECT 1", "--format", "parquet"],
    ] {
        assert!(
            place
                .run(call)
                .fails(1)
                .contains("not offered by this version"),
            "{call:?}"
        );
    }
    // Both say what writes rows to a file.
    let way = "thalweg sql DATABASE \"SELECT * FROM t\" --format csv (or json, arrow) > FILE";
    for call in [&["export", "db"][..], &["export"], &["export", "--help"]] {
        assert!(place.run(call).fails(1).contains(way), "{call:?}");
    }
    assert!(place.run(["help", "export"]).ok().contains(way));
    assert_eq!(
        place.run(["--version"]).ok(),
        format!("thalweg {}\n", env!("CARGO_PKG_VERSION"))
    );
}
