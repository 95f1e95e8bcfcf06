//! Jobs: what a database does for its tables without being asked, on one thread of its own.
//!
//! Invariants
//! - A job is a step of maintenance, which is stored whole or not at all; one that is stopped, paused or killed leaves a table as its
//!   last step has left it.
//! - Whoever waits for an answer comes first: a step ends for a call that maintains a table, work is followed by rest ([`pace`]), and a
//!   job that rests holds nothing that appends, queries or deletions wait for. A step that rests keeps the files of its view.
//! - Of the tables that may have something to do, the one whose last step was of the most urgent kind comes first
//!   ([`JobKind::BY_PRIORITY`]), and of several such tables the one that has waited longest. A table of which no kind is known
//!   counts as one with the most urgent kind.
//! - A table is planned for when it has changed, when its rows have settled ([`SETTLES_AFTER`]) and when they have lain for long
//!   ([`LIES_LONG_AFTER`]), and then no more until it changes. Planning counts as work.
//! - Expired rows are deleted once the clock says so, and before anything else ([`expiries`]): nothing that is about to leave is put in
//!   order.
//! - What fails is tried again later and later; other tables do not wait for it.
//!
//! Rejected: a thread for each kind, which would share one budget by a lock; jobs at the end of the appends that make them
//! due, which would take the time of whoever appends.

pub(crate) mod board;
mod expiries;
pub(crate) mod pace;

use crate::engine::Engine;
use crate::expired_rows::{Expiry, delete_expired};
use crate::jobs::board::{Board, JobKind, JobReport, JobState, JobThread, MaintenanceMode};
use crate::jobs::expiries::Expiries;
use crate::jobs::pace::{Budget, Pace, Unlimited};
use crate::maintain::due::Due;
use crate::maintain::{Work, put_in_order};
use crate::table::{Maintained, Table};
use crate::unlisted::is_unlisted;
use crate::view_definition::is_view;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::{Clock, Env, Panicked};
use thalweg_kernel::index::Entry;
use thalweg_kernel::{CommitNo, Error, ErrorKind, Result, Snapshot, TableId, TableSnapshot};

/// How often the tables are looked at while commits come; longer and longer while none does.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// The ages at which rows have settled, and have lain for long: see [`Due`].
const SETTLES_AFTER: Duration = Duration::from_secs(30);
const LIES_LONG_AFTER: Duration = Duration::from_secs(3_600);
/// After this time of work the tables are checked again for changes.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// At so many points in time, at most, the newest commit is remembered.
const KEPT_COMMITS: usize = 256;
/// A job that has failed is tried again after this time, after twice as long the next time, and so on up to `MAX_RETRY`.
const FIRST_RETRY: Duration = Duration::from_secs(30);
const MAX_RETRY: Duration = Duration::from_secs(3_600);
/// How often a job that rests asks whether somebody waits for it.
const ASKS_EACH: Duration = Duration::from_millis(10);

impl Engine {
    /// Starts the thread of the jobs, if tables are to be maintained without being asked. Where that thread cannot be started there
    /// are no jobs, just as rows are decoded by the caller where no thread of the pool can be started.
    pub(crate) fn with_jobs(self, env: &Env) -> Self {
        let options = self.options();
        let is_auto = options.maintenance == MaintenanceMode::Auto;
        if !is_auto || !options.background || !self.kernel().is_writer() {
            return self;
        }
        let Ok(opened_at) = self.newest().map(|newest| newest.commit()) else {
            return self;
        };
        let board = Arc::clone(self.board());
        let (own_engine, own_env, own_board) = (self.share(), env.clone(), Arc::clone(&board));
        let run = move || {
            let clock = own_env.clock().as_ref();
            Runner::new(&own_engine, &own_board, clock, opened_at).run();
        };
        match env.spawner().spawn("thalweg-jobs", Box::new(run)) {
            Ok(thread) => self.with_job_thread(JobThread::new(board, thread, env.owner())),
            Err(_) => self,
        }
    }

    /// Reports of the jobs since the database was opened, by table and kind.
    ///
    /// # Errors
    /// `Unavailable` when it is closed.
    pub fn jobs(&self) -> Result<Vec<JobReport>> {
        self.closed().check()?;
        Ok(self.board().reports())
    }

    /// Pauses jobs, or lets them go on. One that is at work ends before its next block, and what it had not committed is done again.
    ///
    /// # Errors
    /// `Unavailable` when the database is closed.
    pub fn pause_jobs(&self, is_paused: bool) -> Result<()> {
        self.closed().check()?;
        self.board().pause(is_paused);
        Ok(())
    }

    /// Does in this thread, without rests, what the thread of the jobs would do in the end if nothing came any more. For databases
    /// without threads of their own.
    ///
    /// # Errors
    /// As [`crate::Table::maintain`]; what was done before stays so.
    pub fn run_jobs(&self) -> Result<Maintained> {
        let newest = self.newest()?;
        let due = Due {
            settled: newest.commit(),
            long_settled: newest.commit(),
        };
        let has_rows = |table: &TableSnapshot| !is_unlisted(&table.name) && !is_view(table);
        let listed = newest.tables().filter(has_rows);
        let tables = listed.map(|table| Table::new(self.clone(), &table));
        let tables = tables.collect::<Result<Vec<_>>>()?;
        // The snapshot would keep the files that a step replaces.
        drop(newest);
        let mut done = Maintained::default();
        for table in &tables {
            match delete_expired(table, Expiry::AfterSlack, &Unlimited) {
                Ok(ran) => done.steps += ran.steps,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            }
            loop {
                match put_in_order(table, &Work::of_job(due, &Unlimited), &|| true) {
                    Ok(ran) if ran.steps == 0 => break,
                    Ok(ran) => {
                        done.steps += ran.steps;
                        done.rows += ran.rows;
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(done)
    }
}

/// Facts about a table that change when there may be something to do for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    definition_version: u32,
    rows: u64,
    blocks: u64,
    block_bytes: u64,
    commit: CommitNo,
    hidden_open_rows: u64,
}

impl Mark {
    fn of(table: &TableSnapshot) -> Self {
        let total = table.tree.total();
        let of_total = |of: fn(&Entry) -> u64| total.map_or(0, of);
        Self {
            definition_version: table.definition_version,
            rows: table.rows_in_blocks(),
            blocks: of_total(|total| total.blocks),
            block_bytes: of_total(|total| total.block_bytes),
            commit: total.map_or(CommitNo(0), |total| total.commit_max),
            hidden_open_rows: table.hidden_open_rows(),
        }
    }
}

/// The state of a table as the runner knows it.
struct Known {
    mark: Mark,
    /// The newest commit when the mark was taken.
    changed_at: CommitNo,
    /// The stage of its rows up to which nothing is left to do for it: 0 none, 1 fresh, 2 settled, 3 long settled.
    looks: u8,
    /// The kind of its last step, if there may be more of it.
    kind: Option<JobKind>,
    /// When it was last worked for.
    worked_ns: u64,
    /// Not to be looked at sooner.
    not_before_ns: u64,
    failures: u32,
}

impl Known {
    /// The stage that its rows have reached.
    fn stage(&self, due: &Due) -> u8 {
        1 + u8::from(self.changed_at <= due.settled) + u8::from(self.changed_at <= due.long_settled)
    }
}

/// Does the jobs of a database.
struct Runner<'a> {
    engine: &'a Engine,
    board: &'a Board,
    clock: &'a dyn Clock,
    budget: Budget<'a>,
    /// The newest commit when the database was opened.
    opened_at: CommitNo,
    known: HashMap<TableId, Known>,
    expiries: Expiries,
    /// The newest commits at some times, oldest first.
    commits: VecDeque<(u64, CommitNo)>,
}

/// How a look at all tables has ended.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// There was nothing to do.
    Idle,
    /// All is done that was due.
    Worked,
    /// There is more to do.
    HasMore,
}

/// How a look at a table has ended.
enum Ran {
    /// With a step.
    Step,
    /// There is nothing to do.
    Nothing,
    /// Somebody else needs what it holds, or jobs were stopped or paused.
    Interrupted,
    Failed(Error),
    /// The table was dropped.
    Gone,
}

impl<'a> Runner<'a> {
    fn new(
        engine: &'a Engine,
        board: &'a Board,
        clock: &'a dyn Clock,
        opened_at: CommitNo,
    ) -> Self {
        Self {
            engine,
            board,
            clock,
            opened_at,
            budget: Budget::new(clock, engine.options().job_limits),
            known: HashMap::new(),
            expiries: Expiries::default(),
            commits: VecDeque::new(),
        }
    }

    fn run(&mut self) {
        let mut pause = MIN_PAUSE;
        let mut last_commit = None;
        while !self.board.is_stopping() {
            self.board.sleep(pause);
            if !self.board.goes_on() {
                pause = MIN_PAUSE;
                continue;
            }
            let Ok(newest) = self.engine.newest() else {
                // It was closed, or its directory is gone.
                pause = MAX_PAUSE;
                continue;
            };
            let has_changed = last_commit.replace(newest.commit()) != Some(newest.commit());
            pause = match self.look(newest, has_changed) {
                Looked::HasMore => Duration::ZERO,
                Looked::Idle if !has_changed => (pause * 2).clamp(MIN_PAUSE, MAX_PAUSE),
                Looked::Idle | Looked::Worked => MIN_PAUSE,
            };
        }
    }

    /// Does what is due, for some seconds.
    fn look(&mut self, newest: Snapshot, has_changed: bool) -> Looked {
        let began = self.clock.monotonic_ns();
        let due = self.note_commit(began, newest.commit());
        if has_changed {
            self.note_changes(&newest);
            self.board.retain(|table| newest.table(table).is_some());
        }
        // The snapshot would keep the files that a step replaces.
        drop(newest);
        self.budget.begins();
        let mut has_worked = false;
        while self.board.goes_on() && self.clock.monotonic_ns() - began < nanos(LOOKS_AGAIN_AFTER) {
            if let Some(table) = self.next_to_expire() {
                let ran = self.expire(table);
                has_worked |= matches!(ran, Ran::Step);
                self.note_expired(table, ran);
                continue;
            }
            let Some(table) = self.most_urgent(&due) else {
                return match has_worked {
                    true => Looked::Worked,
                    false => Looked::Idle,
                };
            };
            let (ran, kind) = self.step(table, due);
            has_worked |= matches!(ran, Ran::Step);
            self.note_end(table, ran, kind, &due);
        }
        Looked::HasMore
    }

    /// The table to look at next.
    fn most_urgent(&self, due: &Due) -> Option<TableId> {
        let now = self.clock.monotonic_ns();
        let is_due = |known: &Known| known.looks < known.stage(due) && known.not_before_ns <= now;
        let due = self.known.iter().filter(|(_, known)| is_due(known));
        // One of which no kind is known may have the most urgent one.
        let kind = |known: &Known| known.kind.unwrap_or(JobKind::LateRows);
        due.min_by_key(|(table, known)| (kind(known), known.worked_ns, **table))
            .map(|(table, _)| *table)
    }

    fn note_end(&mut self, table: TableId, ran: Ran, kind: Option<JobKind>, due: &Due) {
        let now = self.clock.monotonic_ns();
        let Some(known) = self.known.get_mut(&table) else {
            return;
        };
        known.worked_ns = now;
        match ran {
            Ran::Step => (known.kind, known.failures) = (kind, 0),
            Ran::Nothing => {
                known.looks = known.stage(due);
                (known.kind, known.failures) = (None, 0);
            }
            Ran::Interrupted => known.not_before_ns = now + nanos(MIN_PAUSE),
            Ran::Failed(_) => {
                known.not_before_ns = now + retry_ns(known.failures);
                known.failures = known.failures.saturating_add(1);
            }
            Ran::Gone => _ = self.known.remove(&table),
        }
    }

    /// The table to delete expired rows of next.
    fn next_to_expire(&self) -> Option<TableId> {
        let (now_ns, now_unix_ns) = (self.clock.monotonic_ns(), self.clock.wall_ns());
        self.expiries.next_due(now_ns, now_unix_ns)
    }

    fn note_expired(&mut self, table: TableId, ran: Ran) {
        let now = self.clock.monotonic_ns();
        match ran {
            Ran::Step | Ran::Nothing => self.expiries.note_done(table, now),
            Ran::Interrupted => self.expiries.put_off(table, now + nanos(MIN_PAUSE)),
            Ran::Failed(_) => self.expiries.note_failure(table, now, retry_ns),
            Ran::Gone => self.expiries.remove(table),
        }
    }

    /// Notes the newest commit. Returns up to which commits rows have settled, and have lain for long.
    fn note_commit(&mut self, now: u64, newest: CommitNo) -> Due {
        let is_same = self
            .commits
            .back()
            .is_some_and(|(_, commit)| *commit == newest);
        if !is_same {
            self.commits.push_back((now, newest));
        }
        let last_before = |age: Duration| {
            let at_most = now.checked_sub(nanos(age))?;
            let commits = self.commits.iter().rev();
            let mut old = commits.skip_while(|(at, _)| *at > at_most);
            old.next().map(|(_, commit)| *commit)
        };
        let due = Due {
            settled: last_before(SETTLES_AFTER).unwrap_or(CommitNo(0)),
            long_settled: last_before(LIES_LONG_AFTER).unwrap_or(CommitNo(0)),
        };
        if self.commits.len() > KEPT_COMMITS {
            self.forget_a_commit(now);
        }
        due
    }

    /// Forgets one of the commits: the one whose neighbours are closest in time, compared with their age.
    fn forget_a_commit(&mut self, now: u64) {
        let closeness = |at: usize| {
            let ((before, _), (after, _)) = (self.commits[at - 1], self.commits[at + 1]);
            (after - before) as f64 / (now - before).max(1) as f64
        };
        let places = 1..self.commits.len() - 1;
        if let Some(at) = places.min_by(|a, b| closeness(*a).total_cmp(&closeness(*b))) {
            self.commits.remove(at);
        }
    }

    fn note_changes(&mut self, newest: &Snapshot) {
        let commit = newest.commit();
        self.known.retain(|table, _| newest.table(*table).is_some());
        for table in newest.tables() {
            let mark = Mark::of(&table);
            let known = self.known.get_mut(&table.id);
            let version = known.as_ref().map(|known| known.mark.definition_version);
            if let Some(known) = known {
                if known.mark != mark {
                    (known.mark, known.changed_at, known.looks) = (mark, commit, 0);
                    known.kind = None;
                }
            } else if is_unlisted(&table.name) || is_view(&table) {
                continue;
            } else {
                let known = Known {
                    mark,
                    changed_at: commit,
                    // What an earlier process has left can wait until it has settled.
                    looks: u8::from(mark.commit <= self.opened_at),
                    kind: None,
                    worked_ns: 0,
                    not_before_ns: 0,
                    failures: 0,
                };
                self.known.insert(table.id, known);
            }
            if version != Some(mark.definition_version) {
                let definition = self.engine.definition_of(&table).ok();
                let retention = definition.and_then(|definition| definition.retention());
                // A clock that is set soon after the start of the machine has time for that.
                let not_before_ns = match version.is_none() && table.created <= self.opened_at {
                    true => self.clock.monotonic_ns() + nanos(SETTLES_AFTER),
                    false => 0,
                };
                self.expiries
                    .note_retention(table.id, retention, not_before_ns);
            }
        }
        self.expiries.note_changes(newest);
    }

    /// Deletes the expired rows of a table.
    fn expire(&self, id: TableId) -> Ran {
        let expire =
            |table: &Table, job: &RunningJob<'_>| delete_expired(table, Expiry::AfterSlack, job);
        self.run_job(id, &[JobKind::ExpiredRows], &expire).0
    }

    /// Does a step for a table. Returns how it ended, and of what kind it was.
    fn step(&self, id: TableId, due: Due) -> (Ran, Option<JobKind>) {
        let step = |table: &Table, job: &RunningJob<'_>| {
            put_in_order(table, &Work::of_job(due, job), &|| job.goes_on())
        };
        self.run_job(id, &JobKind::REWRITES, &step)
    }

    /// Runs a job of one of some kinds for a table. Returns how it ended, and of what kind it was.
    fn run_job(
        &self,
        id: TableId,
        kinds: &[JobKind],
        run: &dyn Fn(&Table, &RunningJob<'_>) -> Result<Maintained>,
    ) -> (Ran, Option<JobKind>) {
        let newest = self.engine.newest();
        let Some(snapshot) = newest.ok().and_then(|newest| newest.table(id)) else {
            return (Ran::Gone, None);
        };
        let name = Arc::clone(&snapshot.name);
        let table = Table::new(self.engine.share(), &snapshot);
        // The snapshot would keep the files that a step replaces.
        drop(snapshot);
        let job = RunningJob {
            runner: self,
            table: id,
            name,
            kinds,
            kind: Cell::new(None),
            was_stopped: Cell::new(false),
            began_ns: self.clock.monotonic_ns(),
        };
        let ended = table.and_then(|table| {
            let run = || run(&table, &job);
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let what = Panicked::from_payload(&*panic);
                Err(Error::new(ErrorKind::Unavailable, what.to_string()))
            })
        });
        let is_gone = || {
            let newest = self.engine.newest();
            newest.is_ok_and(|newest| newest.table(id).is_none())
        };
        let ran = match ended {
            Ok(done) if done.steps > 0 => Ran::Step,
            Ok(_) => Ran::Nothing,
            Err(_) if is_gone() => Ran::Gone,
            Err(_) if job.was_stopped.get() || self.engine.closed().check().is_err() => {
                Ran::Interrupted
            }
            Err(e) => Ran::Failed(e),
        };
        job.report_end(&ran);
        // The view of the step is gone by now: this rest keeps no files.
        job.rest();
        (ran, job.kind.get())
    }

    /// Notes whether others have committed since the last call, in which time jobs have made `own_commits` commits.
    fn note_load(&self, own_commits: u64) {
        if let Ok(newest) = self.engine.newest() {
            self.budget.note_commit(newest.commit(), own_commits);
        }
    }
}

/// A step that is planned or run.
struct RunningJob<'a> {
    runner: &'a Runner<'a>,
    table: TableId,
    name: Arc<str>,
    /// The kinds of job that it may turn out to be, the most urgent first.
    kinds: &'a [JobKind],
    /// Why the step is taken, once that is known.
    kind: Cell<Option<JobKind>>,
    /// It was told not to go on.
    was_stopped: Cell<bool>,
    began_ns: u64,
}

impl RunningJob<'_> {
    fn goes_on(&self) -> bool {
        let maintenance = self.runner.engine.maintenance();
        let goes_on = self.runner.board.goes_on() && !maintenance.is_waited_for();
        self.was_stopped.set(self.was_stopped.get() || !goes_on);
        goes_on
    }

    fn report(&self, change: impl FnOnce(&mut JobReport)) {
        if let Some(kind) = self.kind.get() {
            self.runner
                .board
                .report(self.table, &self.name, kind, change);
        }
    }

    fn report_end(&self, ran: &Ran) {
        if matches!(ran, Ran::Failed(_)) && self.kind.get().is_none() {
            // Planning has failed, which looks for the most urgent kind first.
            self.kinds
                .iter()
                .take(1)
                .for_each(|kind| self.begins(*kind));
        }
        let (state, error) = match ran {
            Ran::Step | Ran::Nothing | Ran::Gone => (JobState::Done, None),
            Ran::Interrupted => (JobState::Interrupted, None),
            Ran::Failed(error) => (JobState::Failed, Some(error.to_string())),
        };
        let now = self.runner.clock.monotonic_ns();
        let took = Duration::from_nanos(now.saturating_sub(self.began_ns));
        self.report(|report| {
            (report.state, report.error) = (state, error);
            report.took += took;
        });
        if matches!(ran, Ran::Nothing) {
            self.runner.board.nothing_left(self.table, self.kinds);
        }
    }
}

impl Pace for RunningJob<'_> {
    fn begins(&self, kind: JobKind) {
        self.kind.set(Some(kind));
        let began_unix_ns = self.runner.clock.wall_ns();
        self.report(|report| {
            (report.state, report.error) = (JobState::Running, None);
            report.began_unix_ns = began_unix_ns;
        });
    }

    fn wrote(&self, bytes: u64) {
        self.runner.budget.wrote(bytes);
        self.report(|report| report.bytes += bytes);
    }

    fn stepped(&self, rows: u64) {
        // Its own commit is no load.
        self.runner.note_load(1);
        self.report(|report| {
            report.steps += 1;
            report.rows += rows;
        });
    }

    fn rest(&self) {
        let runner = self.runner;
        runner.note_load(0);
        let Some(rest) = runner.budget.rest_due() else {
            return;
        };
        let until = runner.clock.monotonic_ns().saturating_add(nanos(rest));
        while self.goes_on() {
            let left = until.saturating_sub(runner.clock.monotonic_ns());
            if left == 0 {
                break;
            }
            runner
                .board
                .sleep(Duration::from_nanos(left).min(ASKS_EACH));
        }
        runner.budget.rested();
    }
}

/// How long a job waits that has failed, by the failures before.
fn retry_ns(failures: u32) -> u64 {
    let time = FIRST_RETRY * (1 << failures.min(16));
    nanos(time.min(MAX_RETRY))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, EngineOptions};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use std::path::Path;
    use thalweg_env::sim::SimEnv;

    /// A database whose runner checks the tables only when a test calls it, with a clock that only the test moves.
    struct Database {
        sim: SimEnv,
        engine: Engine,
        table: Table,
        board: Board,
    }

    impl Database {
        fn new() -> Self {
            Self::with_limits(crate::AppendLimits {
                raw_bytes: 1,
                ..crate::AppendLimits::default()
            })
        }

        fn with_limits(append_limits: crate::AppendLimits) -> Self {
            let sim = SimEnv::new(4);
            sim.set_tick_ns(0);
            let options = EngineOptions {
                background: false,
                append_limits,
                ..EngineOptions::default()
            };
            let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
            let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
            let options = CreateOptions::stream("ts").with("block_rows", 1_024);
            let table = engine.create_table("t", &schema, &options).unwrap();
            Self {
                sim,
                engine,
                table,
                board: Board::default(),
            }
        }

        /// One that begins now.
        fn runner<'a>(&'a self, env: &'a Env) -> Runner<'a> {
            let opened_at = self.engine.newest().unwrap().commit();
            Runner::new(&self.engine, &self.board, env.clock().as_ref(), opened_at)
        }

        fn append(&self, times: impl Iterator<Item = i64>) {
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(times));
            let batch = RecordBatch::try_new(self.table.schema(), vec![times]).unwrap();
            self.table.append([Ok(batch)], None).unwrap();
        }

        /// Lets so many seconds pass, with a look in each.
        fn looks(&self, runner: &mut Runner<'_>, seconds: u64) {
            for _ in 0..seconds {
                self.sim.advance(Duration::from_secs(1));
                runner.look(self.engine.newest().unwrap(), true);
            }
        }

        /// 1,000 rows in order, then 100 late ones.
        fn append_late(&self) {
            self.append(0..1_000);
            self.append((0..100).map(|at| at * 10));
        }

        fn late_rows(&self) -> u64 {
            self.table.stats().unwrap().late_rows
        }

        /// How often the bytes of the table were written anew.
        fn rewritten(&self) -> f64 {
            let reports = self.board.reports();
            let written: u64 = reports.iter().map(|report| report.bytes).sum();
            written as f64 / self.table.stats().unwrap().bytes as f64
        }
    }

    /// A row is written anew about as often as its file doubles in size, however rows arrive.
    #[test]
    fn little_is_written_anew_for_each_row_however_rows_arrive() {
        let arrivals: [fn(i64) -> Vec<i64>; 4] = [
            // Each block begins a little before the last one ends.
            |round| (round * 1_000 - 3..round * 1_000 + 1_000).collect(),
            // One row is far ahead of its time.
            |round| {
                { (round * 1_000..round * 1_000 + 1_000).chain((round == 0).then_some(1 << 60)) }
                    .collect()
            },
            // A few rows at a time.
            |round| (round * 10..round * 10 + 10).collect(),
            // A few rows are late by much.
            |round| {
                { (round * 1_000..round * 1_000 + 1_000).chain((0..9).map(|at| at * round * 100)) }
                    .collect()
            },
        ];
        let arrivals = arrivals.iter().enumerate();
        for ((number, times), seconds) in arrivals.flat_map(|of| [(of, 1), (of, 40)]) {
            let db = Database::new();
            let env = db.sim.env();
            let mut runner = db.runner(&env);
            db.looks(&mut runner, 1);
            for round in 0..400 {
                db.append(times(round).into_iter());
                db.sim.advance(Duration::from_secs(seconds - 1));
                db.looks(&mut runner, 1);
            }
            db.looks(&mut runner, 60);
            let (rewritten, case) = (
                db.rewritten(),
                format!("arrivals {number} each {seconds} s"),
            );
            assert!(rewritten < 13.0, "{case}: written {rewritten:.1} times");
            // After an hour no more is left than what would not be worth it.
            db.sim.advance(LIES_LONG_AFTER);
            db.looks(&mut runner, 60);
            let stats = db.table.stats().unwrap();
            assert!(stats.late_rows * 10_000 <= stats.rows, "{case}: {stats:?}");
            assert!(
                stats.blocks < 2 * stats.rows / 1_024 + 12,
                "{case}: {stats:?}"
            );
        }
    }

    #[test]
    fn small_files_become_one() {
        let db = Database::with_limits(crate::AppendLimits {
            raw_bytes: 1,
            group_bytes: 1,
            ..crate::AppendLimits::default()
        });
        let env = db.sim.env();
        let mut runner = db.runner(&env);
        db.looks(&mut runner, 1);
        for round in 0..100 {
            db.append(round * 1_024..(round + 1) * 1_024);
        }
        assert_eq!(db.table.stats().unwrap().fragments, 100);
        db.looks(&mut runner, 60);
        let stats = db.table.stats().unwrap();
        assert!(stats.fragments < 8 && stats.blocks == 100, "{stats:?}");
        let rewritten = db.rewritten();
        assert!(rewritten < 2.0, "written {rewritten:.1} times");
    }

    #[test]
    fn what_is_due_is_done_at_the_next_look_and_the_rest_once_it_has_settled() {
        let db = Database::new();
        let env = db.sim.env();
        let mut runner = db.runner(&env);
        db.looks(&mut runner, 1);
        db.append_late();
        assert_eq!(db.late_rows(), 100);
        db.looks(&mut runner, 2);
        assert_eq!(db.late_rows(), 0);
        db.append(20_000..21_000);
        db.append((0..20).map(|at| 20_000 + at * 10));
        db.looks(&mut runner, 20);
        assert_eq!(db.late_rows(), 20, "few, and not settled");
        db.looks(&mut runner, 12);
        assert_eq!(db.late_rows(), 0);
        let [late, ..] = &db.board.reports()[..] else {
            panic!("nothing reported");
        };
        assert_eq!((late.kind, late.state), (JobKind::LateRows, JobState::Done));
        assert_eq!((&*late.table, late.steps), ("t", 2));
        assert!(late.rows >= 1_100 && late.bytes > 0 && late.error.is_none());
        db.engine.drop_table("t").unwrap();
        db.looks(&mut runner, 1);
        assert!(db.board.reports().is_empty());
    }

    #[test]
    fn tables_that_were_there_at_the_opening_wait_until_they_have_settled() {
        let db = Database::new();
        db.append_late();
        let env = db.sim.env();
        let mut runner = db.runner(&env);
        db.looks(&mut runner, 30);
        assert_eq!(db.late_rows(), 100);
        db.looks(&mut runner, 2);
        assert_eq!(db.late_rows(), 0);
    }

    #[test]
    fn nothing_is_done_while_jobs_are_paused() {
        let db = Database::new();
        let env = db.sim.env();
        let mut runner = db.runner(&env);
        db.looks(&mut runner, 1);
        db.append_late();
        db.board.pause(true);
        db.looks(&mut runner, 60);
        assert_eq!(db.late_rows(), 100);
        db.board.pause(false);
        db.looks(&mut runner, 2);
        assert_eq!(db.late_rows(), 0);
    }

    #[test]
    fn what_fails_is_reported_and_tried_again_later() {
        use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule};
        let db = Database::new();
        let env = db.sim.env();
        let mut runner = db.runner(&env);
        db.looks(&mut runner, 1);
        db.append_late();
        let full =
            FaultRule::new(Fault::Error(Errno::NOSPC)).on(&[CallKind::Write, CallKind::Allocate]);
        db.sim
            .set_plan(FaultPlan::none().rule(full.path_suffix(".frag")));
        db.looks(&mut runner, 2);
        let state = |db: &Database| db.board.reports().first().map(|report| report.state);
        assert_eq!((db.late_rows(), state(&db)), (100, Some(JobState::Failed)));
        assert!(db.board.reports()[0].error.is_some());
        db.sim.set_plan(FaultPlan::none());
        db.looks(&mut runner, 20);
        assert_eq!(db.late_rows(), 100);
        db.looks(&mut runner, 20);
        assert_eq!((db.late_rows(), state(&db)), (0, Some(JobState::Done)));
    }

    #[test]
    fn what_comes_late_again_is_due_again() {
        let engine = Engine::in_memory(EngineOptions {
            background: false,
            ..EngineOptions::default()
        })
        .unwrap();
        for (name, split) in [("t", None), ("u", Some(86_400))] {
            let schema = Schema::new(vec![
                Field::new("ts", DataType::Int64, false),
                Field::new("number", DataType::Int64, false),
            ]);
            let mut options = CreateOptions::stream("ts");
            if let Some(split) = split {
                options = options.with("split", split);
            }
            let table = engine.create_table(name, &schema, &options).unwrap();
            let append = |rows: &mut dyn Iterator<Item = i64>| {
                let rows: Vec<i64> = rows.collect();
                // Numbers that take their eight bytes each.
                let numbers = rows.iter().map(|at| {
                    at.wrapping_mul(-7_046_029_254_386_353_131)
                        ^ (at << 7)
                        ^ at.wrapping_mul(*at).wrapping_mul(0x1234_5678_9abc_def1)
                });
                let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
                let rows: ArrayRef = Arc::new(Int64Array::from(rows));
                let batch = RecordBatch::try_new(table.schema(), vec![rows, numbers]).unwrap();
                table.append([Ok(batch)], None).unwrap();
            };
            append(&mut (0..1_000_000));
            let fresh = Due {
                settled: CommitNo(0),
                long_settled: CommitNo(0),
            };
            for late in 0..4 {
                append(&mut (late..1_000_000).step_by(5));
                let work = Work::of_job(fresh, &Unlimited);
                let mut steps = 0;
                while put_in_order(&table, &work, &|| true).unwrap().steps > 0 {
                    steps += 1;
                }
                let late_rows = table.stats().unwrap().late_rows;
                assert!(
                    late_rows < 10_000 && steps < 8,
                    "{late}: {late_rows} late rows after {steps} steps"
                );
            }
        }
    }
}
