//! The lines of the report, each with a mark where something was checked.

use crate::failure::Failure;
use std::io::Write;
use thalweg_env::Env;

/// The commands to try after the demonstration, with the program as it was called.
fn next_commands(program: &str) -> String {
    format!(
        "\nNext, with a file of your own (CSV or JSON lines, plain, .gz or .zst; TIME is its column of times):
    {program} import my.thal FILE --table t --create --time TIME
    {program} sql my.thal \"SELECT * FROM t LIMIT 10\"
    {program} my.thal"
    )
}

/// Prints the report and remembers whether every check held.
pub(super) struct Report {
    env: Env,
    checks: u64,
    failed: u64,
}

impl Report {
    pub(super) fn start() -> Self {
        Self {
            env: Env::os(),
            checks: 0,
            failed: 0,
        }
    }

    /// A line over what follows.
    pub(super) fn section(&self, title: &str) -> Result<(), Failure> {
        Ok(writeln!(std::io::stdout(), "\n{title}")?)
    }

    /// A line about something that was done or measured.
    pub(super) fn line(&self, what: &str, figures: &str) -> Result<(), Failure> {
        Ok(writeln!(std::io::stdout(), "    {what:<46} {figures}")?)
    }

    /// A line about something that must hold.
    pub(super) fn check(&mut self, what: &str, figures: &str, holds: bool) -> Result<(), Failure> {
        self.checks += 1;
        self.failed += u64::from(!holds);
        let mark = if holds { "ok  " } else { "FAIL" };
        Ok(writeln!(std::io::stdout(), "{mark}{what:<46} {figures}")?)
    }

    /// Runs something and returns how long it took, in seconds.
    pub(super) fn timed<T>(
        &self,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, f64), Failure> {
        let start_ns = self.now_ns();
        let done = work()?;
        Ok((done, seconds(self.now_ns() - start_ns)))
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    /// The verdict.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mut out = std::io::stdout();
        if self.failed == 0 {
            writeln!(out, "\nAll {} checks held.", self.checks)?;
            let program = std::env::args().next();
            let program = program.as_deref().unwrap_or("thalweg");
            return Ok(writeln!(out, "{}", next_commands(program))?);
        }
        writeln!(out, "\n{} of {} checks failed.", self.failed, self.checks)?;
        report!("thalweg: the demonstration failed");
        Err(Failure::Told)
    }
}

/// Nanoseconds as seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "far fewer nanoseconds than a float counts exactly"
)]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A count divided by a time, for people.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are rounded for people"
)]
pub(super) fn per_second(count: u64, seconds: f64) -> String {
    crate::counts::thousands((count as f64 / seconds.max(1e-9)) as u64)
}

/// Bytes, for people.
#[expect(clippy::cast_precision_loss, reason = "rounded for people")]
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
