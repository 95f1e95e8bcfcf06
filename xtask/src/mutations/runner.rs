//! Runs the tests of the mutated copy, once for each mutation, until the first one fails.
//!
//! Invariants
//! - What is tried first is the binary that the list names, then all others, the quickest first. A test that fails ends its
//!   binary at once; one that takes far longer than without a mutation hangs, which is noticed as well.
//! - A binary counts only once it has passed without a mutation. The slow ones are asked for that when they are first needed: as
//!   long as the list names the right binaries, they hardly are.
//! - What is said to change nothing is held against the quick ones only: to pass takes all of a binary's time.
//! - A binary runs in a process group of its own, which is killed as a whole: tests start processes.
//! - Tests that draw random cases draw the same ones each time, so that a survivor can be looked at again.

use super::copy::VARIABLE;
use super::list::Mutation;
use crate::tidy::Finding;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// As many mutations are tried at once: what the smallest machines have.
const WORKERS: usize = 2;
/// A binary that takes so many times as long as without a mutation, and this much more, hangs.
const HANGS_AFTER_TIMES: u32 = 5;
const HANGS_AFTER_MORE: Duration = Duration::from_secs(60);
/// No binary takes as long without a mutation.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The binaries that take minutes, the quickest first.
const SLOW: [&str; 5] = [
    "thalweg/processes",
    "thalweg-sim/damage",
    "thalweg-sim/crash",
    "thalweg-sim/errors",
    "thalweg-sim/explored",
];
/// How often a running binary is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The environment variable that makes the random cases of the tests the same each time, unless the caller has set it.
const SEED: &str = "THALWEG_SEED";

/// Calls of cargo that build tests; together they hold all tests below SQL.
const BUILDS: [&[&str]; 3] = [
    &[
        "--package",
        "thalweg-kernel",
        "--package",
        "thalweg-table",
        "--package",
        "thalweg-sim",
        "--tests",
    ],
    &[
        "--package",
        "thalweg-sim",
        "--features",
        "thalweg-env/shuttle,thalweg-sim/explored",
        "--test",
        "explored",
    ],
    &["--package", "thalweg", "--no-default-features", "--tests"],
];

/// A test binary.
#[derive(Debug)]
struct Binary {
    name: String,
    executable: PathBuf,
    package: PathBuf,
    /// How long it takes without a mutation, or how it fails; once that was asked for.
    unmutated: Mutex<Option<Result<Duration, String>>>,
}

impl Binary {
    /// Its place among those that take minutes.
    fn slowness(&self) -> Option<usize> {
        SLOW.iter().position(|slow| *slow == self.name)
    }

    /// How long it takes without a mutation.
    fn takes(&self, log: &Path) -> Result<Duration, String> {
        let mut unmutated = lock(&self.unmutated);
        unmutated.get_or_insert_with(|| self.time(log)).clone()
    }

    fn time(&self, log: &Path) -> Result<Duration, String> {
        let started = Instant::now();
        let output = log.join(self.name.replace('/', "."));
        match run_binary(self, 0, LONGEST, &output)? {
            Outcome::Failed(test) => Err(format!("{} fails without a mutation: {test}", self.name)),
            Outcome::Passed => {
                let takes = started.elapsed();
                println!("{:>6.1} s  {}", takes.as_secs_f64(), self.name);
                Ok(takes)
            }
        }
    }
}

/// What tells whether a mutation is noticed, the quickest first.
#[derive(Debug)]
pub(super) struct Suite {
    binaries: Vec<Binary>,
    log: PathBuf,
}

enum Outcome {
    Passed,
    /// By which tests.
    Failed(String),
}

/// Builds the tests of the copy and runs the quick ones once without a mutation.
pub(super) fn build(checkout: &Path, target: &Path) -> Result<Suite, String> {
    let mut binaries = Vec::new();
    for arguments in BUILDS {
        binaries.extend(build_one(checkout, target, arguments)?);
    }
    let log = target.join("output");
    std::fs::create_dir_all(&log)
        .map_err(|error| format!("creating {}: {error}", log.display()))?;
    let (mut slow, quick): (Vec<Binary>, Vec<Binary>) = binaries
        .into_iter()
        .partition(|binary| binary.slowness().is_some());
    slow.sort_by_key(Binary::slowness);
    let mut timed = Vec::new();
    for binary in quick {
        timed.push((binary.takes(&log)?, binary));
    }
    timed.sort_by_key(|(takes, _)| *takes);
    let quick = timed.into_iter().map(|(_, binary)| binary);
    Ok(Suite {
        binaries: quick.chain(slow).collect(),
        log,
    })
}

fn build_one(checkout: &Path, target: &Path, arguments: &[&str]) -> Result<Vec<Binary>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "test",
            "--locked",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(arguments)
        .current_dir(checkout)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the mutated copy does not build".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let binaries = messages.filter_map(|message: serde_json::Value| {
        let executable = message.get("executable")?.as_str()?;
        message
            .get("profile")?
            .get("test")?
            .as_bool()
            .filter(|is_test| *is_test)?;
        let manifest = Path::new(message.get("manifest_path")?.as_str()?);
        let package = manifest.parent()?;
        let crate_name = package.file_name()?.to_str()?;
        let target_name = message.get("target")?.get("name")?.as_str()?;
        Some(Binary {
            name: format!("{crate_name}/{target_name}"),
            executable: executable.into(),
            package: package.into(),
            unmutated: Mutex::default(),
        })
    });
    Ok(binaries.collect())
}

/// Tries mutations, several at once; the survivors.
pub(super) fn run(suite: &Suite, mutations: &[(usize, &Mutation)]) -> Result<Vec<Finding>, String> {
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(unknown_tests(suite, mutations));
    let failure: Mutex<Option<String>> = Mutex::default();
    let caught: Mutex<BTreeMap<String, usize>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((number, mutation)) =
                    mutations.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    match notice(suite, *number, mutation) {
                        Ok(by) => {
                            report(*number, mutation, by.as_ref());
                            if let Some((binary, _)) = &by {
                                *lock(&caught).entry(binary.clone()).or_default() += 1;
                            }
                            lock(&findings).extend(judge(mutation, by));
                        }
                        Err(error) => *lock(&failure) = Some(error),
                    }
                }
            });
        }
    });
    if let Some(error) = lock(&failure).take() {
        return Err(error);
    }
    for (binary, count) in lock(&caught).iter() {
        println!("{count:>4} noticed first by {binary}");
    }
    let survivors = lock(&findings).len();
    println!(
        "{} mutations, {survivors} not as the list says",
        mutations.len()
    );
    let mut all = lock(&findings);
    Ok(std::mem::take(&mut *all))
}

/// Entries that name a test binary which is not there.
fn unknown_tests(suite: &Suite, mutations: &[(usize, &Mutation)]) -> Vec<Finding> {
    let is_known = |test: &str| suite.binaries.iter().any(|binary| binary.name == test);
    let unknown = mutations
        .iter()
        .filter(|(_, mutation)| !mutation.test.is_empty() && !is_known(&mutation.test));
    let finding = |(_, mutation): &(usize, &Mutation)| {
        let message = format!(
            "mutation \"{}\": there is no test binary {}",
            mutation.name, mutation.test
        );
        Finding::new(super::list::PATH, None, message)
    };
    unknown.map(finding).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn report(number: usize, mutation: &Mutation, by: Option<&(String, String)>) {
    let name = &mutation.name;
    match by {
        Some((binary, test)) => println!("{number:>4} {name}: noticed by {binary}, {test}"),
        None => println!("{number:>4} {name}: survives"),
    }
}

fn judge(mutation: &Mutation, by: Option<(String, String)>) -> Option<Finding> {
    let message = match (&mutation.equivalent, by) {
        (None, None) => "no test notices it".to_owned(),
        (Some(_), Some((binary, test))) => {
            format!("it is said to change nothing, but {binary}, {test}, notices it")
        }
        _ => return None,
    };
    Some(Finding::new(
        &mutation.file,
        None,
        format!("mutation \"{}\": {message}", mutation.name),
    ))
}

/// The first binary, with its tests, that fails under a mutation.
fn notice(
    suite: &Suite,
    number: usize,
    mutation: &Mutation,
) -> Result<Option<(String, String)>, String> {
    let is_first = |binary: &&Binary| binary.name == mutation.test;
    let first = suite.binaries.iter().filter(is_first);
    let others = suite.binaries.iter().filter(|binary| !is_first(binary));
    let is_tried = |binary: &&Binary| mutation.equivalent.is_none() || binary.slowness().is_none();
    for binary in first.chain(others).filter(is_tried) {
        let limit = binary.takes(&suite.log)? * HANGS_AFTER_TIMES + HANGS_AFTER_MORE;
        let output = suite.log.join(number.to_string());
        if let Outcome::Failed(test) = run_binary(binary, number, limit, &output)? {
            return Ok(Some((binary.name.clone(), test)));
        }
    }
    Ok(None)
}

/// Runs a binary until it ends, a test of it fails, or `limit` is over. What it prints goes to `output`, its errors beside that.
fn run_binary(
    binary: &Binary,
    mutation: usize,
    limit: Duration,
    output: &Path,
) -> Result<Outcome, String> {
    let fail = |error: std::io::Error| format!("running {}: {error}", binary.name);
    let mut command = Command::new(&binary.executable);
    command
        .current_dir(&binary.package)
        .env(VARIABLE, mutation.to_string())
        .env("CARGO_MANIFEST_DIR", &binary.package)
        .stdin(Stdio::null())
        .stdout(File::create(output).map_err(fail)?)
        // Apart, else it could stand within a line that names a failed test.
        .stderr(File::create(output.with_extension("stderr")).map_err(fail)?)
        .process_group(0);
    if std::env::var_os(SEED).is_none() {
        command.env(SEED, "1");
    }
    let mut child = command.spawn().map_err(fail)?;
    let started = Instant::now();
    loop {
        let ended = child.try_wait().map_err(fail)?;
        let text = std::fs::read(output).map_err(fail)?;
        let failed = failed_tests(&String::from_utf8_lossy(&text));
        match ended {
            Some(status) if status.success() => return Ok(Outcome::Passed),
            Some(status) if failed.is_empty() => return Ok(Outcome::Failed(status.to_string())),
            Some(_) => return Ok(Outcome::Failed(failed)),
            None => {}
        }
        let hangs = started.elapsed() > limit;
        if hangs || !failed.is_empty() {
            kill_group(&mut child).map_err(fail)?;
            let hung = || format!("which hangs for {} s", limit.as_secs());
            return Ok(Outcome::Failed(if hangs { hung() } else { failed }));
        }
        sleep(LOOK_EVERY);
    }
}

/// Kills a child and all that it has started.
fn kill_group(child: &mut Child) -> std::io::Result<()> {
    let group = format!("-{}", child.id());
    Command::new("kill")
        .args(["-KILL", "--", &group])
        .status()?;
    child.wait().map(|_| ())
}

/// The names of the tests that have failed by now, in the output of a test binary.
fn failed_tests(output: &str) -> String {
    let failed = |line: &str| {
        let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        (end == "FAILED").then(|| name.to_owned())
    };
    let names: Vec<String> = output.lines().filter_map(failed).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::failed_tests;

    #[test]
    fn failed_tests_are_named() {
        let output = "test a ... ok\ntest m::b ... FAILED\nnoise\ntest c ... FAILED\n";
        assert_eq!(failed_tests(output), "m::b, c");
        assert_eq!(failed_tests("test a ... \ntest d ... FAIL"), "");
    }
}
