//! Runs the tests of the mutated copy, once for each mutation, until one of them fails.

use super::copy::VARIABLE;
use super::list::Mutation;
use crate::tidy::Finding;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// As many mutations are tried at once: what the smallest machines have.
const WORKERS: usize = 2;
/// A test that takes so much longer than without a mutation hangs.
const HANGS_AFTER_TIMES: u32 = 8;
const HANGS_AFTER_AT_LEAST: Duration = Duration::from_secs(60);

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
#[derive(Clone, Debug)]
struct Binary {
    name: String,
    executable: PathBuf,
    package: PathBuf,
    /// How long it takes without a mutation.
    takes: Duration,
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

/// Builds the tests of the copy and runs each once without a mutation.
pub(super) fn build(checkout: &Path, target: &Path) -> Result<Suite, String> {
    let mut binaries = Vec::new();
    for (number, arguments) in BUILDS.iter().enumerate() {
        // Another selection of features has a folder of its own, so that neither is built twice.
        let target = target.join(number.to_string());
        binaries.extend(build_one(checkout, &target, arguments)?);
    }
    let log = target.join("output");
    std::fs::create_dir_all(&log)
        .map_err(|error| format!("creating {}: {error}", log.display()))?;
    for binary in &mut binaries {
        let started = Instant::now();
        let output = log.join(format!("{}.unmutated", binary.name));
        if let Outcome::Failed(test) = run_binary(binary, 0, Duration::from_secs(3_600), &output)? {
            return Err(format!("{} fails without a mutation: {test}", binary.name));
        }
        binary.takes = started.elapsed();
        println!("{:>6.1} s  {}", binary.takes.as_secs_f64(), binary.name);
    }
    binaries.sort_by_key(|binary| binary.takes);
    Ok(Suite { binaries, log })
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
            takes: Duration::ZERO,
        })
    });
    Ok(binaries.collect())
}

/// Tries mutations, several at once; the survivors.
pub(super) fn run(suite: &Suite, mutations: &[(usize, &Mutation)]) -> Result<Vec<Finding>, String> {
    let next = AtomicUsize::new(0);
    let findings: Mutex<Vec<Finding>> = Mutex::default();
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
    let is_first =
        |binary: &&Binary| !mutation.test.is_empty() && binary.name.ends_with(&mutation.test);
    let first = suite.binaries.iter().filter(is_first);
    let others = suite.binaries.iter().filter(|binary| !is_first(binary));
    for binary in first.chain(others) {
        let limit = (binary.takes * HANGS_AFTER_TIMES).max(HANGS_AFTER_AT_LEAST);
        let output = suite.log.join(number.to_string());
        if let Outcome::Failed(test) = run_binary(binary, number, limit, &output)? {
            return Ok(Some((binary.name.clone(), test)));
        }
    }
    Ok(None)
}

fn run_binary(
    binary: &Binary,
    mutation: usize,
    limit: Duration,
    output: &Path,
) -> Result<Outcome, String> {
    let fail = |error: std::io::Error| format!("running {}: {error}", binary.name);
    let file = File::create(output).map_err(fail)?;
    let mut child = Command::new(&binary.executable)
        .current_dir(&binary.package)
        .env(VARIABLE, mutation.to_string())
        .env("CARGO_MANIFEST_DIR", &binary.package)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(fail)?)
        .stderr(file)
        .spawn()
        .map_err(fail)?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            break status;
        }
        if started.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).map_err(fail)?;
            return Ok(Outcome::Failed(format!(
                "which hangs for {} s",
                limit.as_secs()
            )));
        }
        sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(Outcome::Passed);
    }
    let text = std::fs::read(output).map_err(fail)?;
    Ok(Outcome::Failed(failed_tests(&String::from_utf8_lossy(
        &text,
    ))))
}

/// The names of failed tests in the output of a test binary.
fn failed_tests(output: &str) -> String {
    let failed = |line: &str| {
        let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        (end == "FAILED").then(|| name.to_owned())
    };
    let names: Vec<String> = output.lines().filter_map(failed).collect();
    if names.is_empty() {
        "which ends abnormally".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::failed_tests;

    #[test]
    fn failed_tests_are_named() {
        let output = "test a ... ok\ntest m::b ... FAILED\nnoise\ntest c ... FAILED\n";
        assert_eq!(failed_tests(output), "m::b, c");
        assert_eq!(failed_tests("abort"), "which ends abnormally");
    }
}
