//! Every storage call of a workload fails, once or from then on, in every way it can.
//!
//! Invariants: a case is one run of a workload with one fault; it ends in errors or success, and the ledger must explain
//! what the open database shows, what a kill leaves and what a power cut leaves. No panic, no endless loop.

use crate::checkpoint_frames::CheckpointCounts;
use crate::driver::Driver;
use crate::hooks::allocated_bytes;
use crate::oracle::{Contents, Lost, Outcome, Violation, check_answers, contents_of};
use crate::report::panic_text;
use crate::shape::Shape;
use crate::workloads::Workload;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, MUTATING, ReadsAfter, SYNCS, SimEnv,
};
use thalweg_kernel::{Durability, ErrorKind};

/// The result of a stage: what was done, and what was found.
#[derive(Debug, Default)]
pub struct ErrorReport {
    /// Runs with a fault.
    pub cases: u64,
    /// Of them, how many ended how.
    pub classes: BTreeMap<&'static str, u64>,
    /// Images that were opened afterwards.
    pub images: u64,
    /// The checkpoints of the workloads without faults.
    pub checkpoints: CheckpointCounts,
    /// Memory that the runs of a workload left behind, at most; zero where nobody counts.
    pub leaked_bytes: i64,
    /// Violations that were found, with the way to repeat each.
    pub violations: Vec<Violation>,
}

impl ErrorReport {
    /// Adds another report to this one.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.images += other.images;
        self.checkpoints.add(other.checkpoints);
        self.leaked_bytes = self.leaked_bytes.max(other.leaked_bytes);
        for (class, count) in other.classes {
            *self.classes.entry(class).or_default() += count;
        }
        self.violations.extend(other.violations);
    }
}

const MAX_VIOLATIONS: usize = 8;

/// Memory that all runs of a workload together may leave behind: thread-local buffers, no databases.
const LEAK_BYTES: i64 = 256 << 10;

/// Calls of a workload that all fail in turn, nearly twice as many at most.
const FULL_CALLS: usize = 300;

/// A call that is interrupted for ever is no disk that exists.
const INTERRUPTIONS: u64 = 40;

/// Bytes that one call transfers where the fault is that all calls transfer less than they are asked to.
const SHORT_BYTES: usize = 700;

/// The faults that can befall a call.
fn faults_of(kind: CallKind, call: u64) -> Vec<(&'static str, FaultRule)> {
    let at = |fault| FaultRule::new(fault).at_call(call);
    let from = |fault| FaultRule::new(fault).from_call(call);
    let error = Fault::Error;
    let mut faults = vec![
        ("EIO once", at(error(Errno::IO))),
        ("EIO from then on", from(error(Errno::IO))),
        ("EINTR once", at(error(Errno::INTR))),
        (
            "EINTR many times",
            from(error(Errno::INTR)).times(INTERRUPTIONS),
        ),
    ];
    let syncs = SYNCS.contains(&kind);
    if syncs || MUTATING.contains(&kind) {
        let full = |fault| from(fault).on(&[MUTATING, SYNCS].concat());
        faults.extend([
            ("ENOSPC once", at(error(Errno::NOSPC))),
            ("ENOSPC from then on", full(error(Errno::NOSPC))),
            ("EIO after its effect", at(Fault::ErrorAfter(Errno::IO))),
        ]);
    }
    if syncs {
        let lost = |errno, reads| Fault::FlushError { errno, reads };
        faults.extend([
            (
                "lost by a sync, reads new",
                at(lost(Errno::IO, ReadsAfter::New)),
            ),
            (
                "lost by a sync, reads old",
                at(lost(Errno::IO, ReadsAfter::Old)),
            ),
            (
                "lost by all syncs from then on",
                from(lost(Errno::IO, ReadsAfter::New)).on(SYNCS),
            ),
            (
                "lost by a sync for want of space",
                at(lost(Errno::NOSPC, ReadsAfter::New)),
            ),
        ]);
    }
    if matches!(kind, CallKind::Read | CallKind::Write) {
        faults.extend([
            ("one byte at once", at(Fault::Short(1))),
            ("nothing at once", at(Fault::Short(0))),
            (
                "short from then on",
                from(Fault::Short(SHORT_BYTES)).on(&[kind]),
            ),
        ]);
    }
    faults
}

/// Fails every call of a workload from number `first_call` on, in every way. `watch` is called for each case.
pub fn fail_everywhere(
    workload: &Workload,
    seed: u64,
    first_call: u64,
    watch: &dyn Fn(&str),
) -> ErrorReport {
    let sim = SimEnv::new(seed);
    let mut clean = workload.run(&sim, true);
    clean.finish();
    let mut report = ErrorReport {
        violations: std::mem::take(&mut clean.violations),
        checkpoints: clean.checkpoints,
        ..ErrorReport::default()
    };
    let memory_before = allocated_bytes();
    // Without progress the machine stops after so many calls.
    let bytes = sim.stats().bytes_written + sim.stats().bytes_read;
    let most = 20 * sim.calls() + 10_000 + 2 * bytes / SHORT_BYTES as u64;
    let calls: Vec<_> = clean
        .trace
        .iter()
        .filter(|call| call.call >= first_call)
        .collect();
    // Of the long workloads every so-many-th call, each time others.
    let step = workload.one_in() * (calls.len() / FULL_CALLS).max(1);
    let first = usize::try_from(seed).unwrap_or(0) % step;
    for call in calls.into_iter().skip(first).step_by(step) {
        for (name, rule) in faults_of(call.kind, call.call) {
            let place = format!(
                "workload '{}', {name} at call {} ({:?} of {})",
                workload.name,
                call.call,
                call.kind,
                call.path.display()
            );
            watch(&place);
            report.cases += 1;
            let reads_old = name.ends_with("reads old");
            let case = AssertUnwindSafe(|| run_case(workload, seed, rule, reads_old, most));
            let (class, images, violations) = match catch_unwind(case) {
                Ok(outcome) => outcome,
                Err(panic) => ("panic", 0, vec![panic_text(&*panic)]),
            };
            *report.classes.entry(class).or_default() += 1;
            report.images += images;
            report.violations.extend(
                violations
                    .into_iter()
                    .map(|v| format!("{place}: {v}\n  (repeat with THALWEG_SEED={seed})")),
            );
            if report.violations.len() >= MAX_VIOLATIONS {
                return report;
            }
        }
    }
    let leaked = memory_before.zip(allocated_bytes());
    report.leaked_bytes = leaked.map_or(0, |(before, now)| now - before);
    if report.leaked_bytes > LEAK_BYTES {
        report.violations.push(format!(
            "workload '{}': {} cases left {} bytes of memory behind",
            workload.name, report.cases, report.leaked_bytes
        ));
    }
    report
}

/// How many calls it takes to make a database: the same in each workload.
pub fn creation_calls(workload: &Workload) -> u64 {
    let sim = SimEnv::new(1);
    let opened = workload.shape().open(&sim.env());
    let calls = sim.calls();
    drop(opened.expect("no faults"));
    calls
}

fn run_case(
    workload: &Workload,
    seed: u64,
    rule: FaultRule,
    reads_old: bool,
    max_calls: u64,
) -> (&'static str, u64, Vec<Violation>) {
    let sim = SimEnv::new(seed);
    let stop = FaultRule::new(Fault::Crash).at_call(max_calls);
    sim.set_plan(FaultPlan::none().rule(stop).rule(rule));
    let mut driver = workload.run(&sim, true);
    sim.set_plan(FaultPlan::none());
    let class = class_of(&driver);
    let mut violations = std::mem::take(&mut driver.violations);
    if sim.is_crashed() {
        violations.push(format!("{max_calls} storage calls and no end"));
        return ("no end", 0, violations);
    }
    let lost = |lost| if reads_old { Lost::CacheBefore } else { lost };
    // Bytes that only the cache had, and that a failed sync has thrown away, cannot be read any more.
    if let Some(visible) = driver.visible()
        && !reads_old
    {
        let explained =
            visible.and_then(|(_, found)| check_answers(&driver.ledger, &found, Lost::Nothing));
        violations.extend(explained.err().map(|e| format!("the open database: {e}")));
    }
    let random = CrashChoice::Random {
        seed,
        unreadable: false,
    };
    let choices = [
        (CrashChoice::Kill, Lost::Nothing),
        (CrashChoice::DropAll, Lost::Cache),
        (CrashChoice::KeepAll, Lost::Cache),
        (random, Lost::Cache),
    ];
    for (choice, left) in &choices {
        let image = sim.crash_image(choice);
        if let Err(e) = check_image(&driver, &image, lost(*left)) {
            violations.push(format!("{choice:?} at the end: {e}"));
        }
    }
    if let Err(e) = check_resumes(&mut driver) {
        violations.push(e);
    }
    driver.finish();
    violations.append(&mut driver.violations);
    for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
        let left = if choice == CrashChoice::Kill {
            Lost::Nothing
        } else {
            Lost::Cache
        };
        if let Err(e) = check_image(&driver, &sim.crash_image(&choice), lost(left)) {
            violations.push(format!("{choice:?} after dropping it: {e}"));
        }
    }
    (class, 6, violations)
}

/// An image opens, the ledger explains it, and it takes appends that stay.
fn check_image(driver: &Driver, image: &SimEnv, lost: Lost) -> Result<(), Violation> {
    let shape: &Shape = driver.shape();
    let opened = shape.open(&image.env());
    let toy = opened.map_err(|e| format!("opening: {e:?}"))?;
    let (_, found): (_, Contents) = contents_of(&toy)?;
    check_answers(&driver.ledger, &found, lost)?;
    let name = "after the fault";
    let append = || {
        let table = toy.create(name)?;
        toy.append(table, &[(1, -1)], Durability::Disk)
    };
    append().map_err(|e| format!("an append after reopening: {e:?}"))?;
    let cut = image.crash_image(&CrashChoice::DropAll);
    let toy = shape
        .open(&cut.env())
        .map_err(|e| format!("opening after a power cut behind that: {e:?}"))?;
    let (_, mut again) = contents_of(&toy)?;
    if again.remove(name) != Some(vec![(1, -1)]) {
        return Err("an append after reopening is gone".into());
    }
    if again != found {
        return Err(format!(
            "what was shown is gone after a power cut: {}",
            crate::oracle::difference(&found, &again)
        ));
    }
    Ok(())
}

/// Checks that with the fault gone a database that was not given up takes appends again, without being opened anew.
fn check_resumes(driver: &mut Driver) -> Result<(), Violation> {
    let Some(toy) = driver.toy() else {
        return Ok(());
    };
    if toy.kernel.poison().is_some() {
        let refused = toy.create("behind the poison").map(|_| ());
        return match refused {
            Err(e) if e.kind() == ErrorKind::Unavailable => Ok(()),
            other => Err(format!("a poisoned database answered {other:?}")),
        };
    }
    let before = driver.ledger.ops.len();
    driver.create("resumed");
    driver.append("resumed", [1, 2, 3], Durability::Disk);
    let resumed = driver.ledger.ops[before..]
        .iter()
        .filter(|op| matches!(op.outcome, Outcome::Stored(..)))
        .count();
    if resumed == 2 {
        Ok(())
    } else {
        Err("it is not poisoned, and does not take appends with the fault gone".into())
    }
}

fn class_of(driver: &Driver) -> &'static str {
    let poisoned = driver
        .toy()
        .is_some_and(|toy| toy.kernel.poison().is_some());
    let any = |wanted: fn(&Outcome) -> bool| driver.ledger.ops.iter().any(|op| wanted(&op.outcome));
    match driver.toy() {
        None => "could not be opened",
        Some(_) if poisoned => "gave up writing",
        Some(_) if any(|o| *o == Outcome::Unknown) => "errors, opened again or went on",
        Some(_) if any(|o| *o == Outcome::Refused) => "refused, went on",
        Some(_) => "no error",
    }
}
