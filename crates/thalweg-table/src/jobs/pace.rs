//! How fast jobs work: the part of the time, and the bytes a second, that they may take.
//!
//! Invariants: work is followed by rest in proportion, never preceded by it, so that a short job ends at once; a rest ends early
//! where the job is to stop.

use crate::jobs::board::{JobKind, JobLimits};
use std::cell::Cell;
use std::time::Duration;
use thalweg_env::Clock;
use thalweg_kernel::CommitNo;

/// Work of at least this time is followed by a rest. More frequent ones would cost more than they give.
const SLICE: Duration = Duration::from_millis(20);
/// Longest rest at once: what is owed beyond is forgotten.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Is called for what maintenance has done, and rests where that was much.
pub(crate) trait Pace {
    /// A step for this reason begins.
    fn begins(&self, kind: JobKind);
    /// Is called with the bytes of each block that is written.
    fn wrote(&self, bytes: u64);
    /// A step that has written so many rows anew, or deleted so many that have expired, was committed.
    fn stepped(&self, rows: u64);
    /// Rests if that is due. It ends early for a call that waits for the turn of maintenance; nothing else that others wait for is
    /// held meanwhile.
    fn rest(&self);
}

/// The pace of a call that somebody waits for.
pub(crate) struct Unlimited;

impl Pace for Unlimited {
    fn begins(&self, _: JobKind) {}
    fn wrote(&self, _: u64) {}
    fn stepped(&self, _: u64) {}
    fn rest(&self) {}
}

/// The budget of all jobs of a database.
pub(super) struct Budget<'a> {
    clock: &'a dyn Clock,
    limits: JobLimits,
    /// When the work began that `worked_ns` does not count yet.
    began_ns: Cell<u64>,
    worked_ns: Cell<u64>,
    written_bytes: Cell<u64>,
    /// The newest commit that is known.
    commit: Cell<CommitNo>,
    /// Others have committed since the last rest.
    is_loaded: Cell<bool>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(clock: &'a dyn Clock, limits: JobLimits) -> Self {
        Self {
            clock,
            limits,
            began_ns: Cell::new(clock.monotonic_ns()),
            worked_ns: Cell::new(0),
            written_bytes: Cell::new(0),
            commit: Cell::new(CommitNo(0)),
            is_loaded: Cell::new(false),
        }
    }

    /// Work begins, after a time without any.
    pub(super) fn begins(&self) {
        self.began_ns.set(self.clock.monotonic_ns());
    }

    pub(super) fn wrote(&self, bytes: u64) {
        let bytes = self.written_bytes.get().saturating_add(bytes);
        self.written_bytes.set(bytes);
    }

    /// Notes the newest commit. Of the commits since the one that was noted before, jobs have made `own`.
    pub(super) fn note_commit(&self, newest: CommitNo, own: u64) {
        let before = self.commit.replace(newest);
        let others = newest.0.saturating_sub(before.0) > own;
        self.is_loaded.set(self.is_loaded.get() || others);
    }

    /// How long to rest now, if at all.
    pub(super) fn rest_due(&self) -> Option<Duration> {
        let now = self.clock.monotonic_ns();
        let worked_ns = self.worked_ns.get() + now.saturating_sub(self.began_ns.get());
        self.worked_ns.set(worked_ns);
        self.began_ns.set(now);
        let worked = Duration::from_nanos(worked_ns);
        if worked < SLICE {
            return None;
        }
        let percent = match self.is_loaded.replace(false) {
            true => self.limits.loaded_percent,
            false => self.limits.idle_percent,
        };
        let bytes = self.written_bytes.get();
        Some(rest_after(
            worked,
            bytes,
            percent,
            self.limits.bytes_per_second,
        ))
    }

    /// Notes that the rest is over.
    pub(super) fn rested(&self) {
        self.worked_ns.set(0);
        self.written_bytes.set(0);
        self.begins();
    }
}

/// How long to rest after work of this time that has written so many bytes.
fn rest_after(
    worked: Duration,
    bytes: u64,
    percent: u32,
    bytes_per_second: Option<u64>,
) -> Duration {
    let percent = percent.clamp(1, 100);
    let for_time = worked * (100 - percent) / percent;
    let for_bytes = bytes_per_second.map_or(Duration::ZERO, |most| {
        let taken = u128::from(bytes) * 1_000_000_000 / u128::from(most.max(1));
        let taken = Duration::from_nanos(u64::try_from(taken).unwrap_or(u64::MAX));
        taken.saturating_sub(worked)
    });
    for_time.max(for_bytes).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_quarter_of_the_time_leaves_three_quarters_of_rest() {
        assert_eq!(rest_after(ms(50), 0, 25, None), ms(150));
        assert_eq!(rest_after(ms(50), 0, 100, None), ms(0));
        assert_eq!(rest_after(ms(50), 0, 0, None), ms(50 * 99));
    }

    #[test]
    fn bytes_take_the_time_that_their_budget_gives_them() {
        let most = Some(1 << 20);
        assert_eq!(rest_after(ms(50), 1 << 20, 100, most), ms(950));
        assert_eq!(rest_after(ms(50), 1 << 20, 1, most), ms(50 * 99));
        assert_eq!(rest_after(ms(2_000), 1 << 20, 100, most), ms(0));
        assert_eq!(rest_after(ms(50), u64::MAX, 100, Some(0)), LONGEST_REST);
    }
}
