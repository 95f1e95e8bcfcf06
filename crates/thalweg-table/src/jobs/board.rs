//! Reports of jobs, and how their thread is stopped and paused.
//!
//! Invariants: the thread has ended once it is stopped; a child of a fork, which does not have it, waits for nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_env::{JoinHandle, Owner};
use thalweg_kernel::TableId;

/// Whether tables are maintained without being asked.
///
/// ```
/// use thalweg_table::MaintenanceMode;
///
/// assert_eq!(MaintenanceMode::default(), MaintenanceMode::Auto);
/// assert_eq!(MaintenanceMode::named("manual"), Some(MaintenanceMode::Manual));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaintenanceMode {
    /// A thread of the database deletes expired rows, puts late rows in order, joins short blocks, and gives the room of deleted rows
    /// back.
    #[default]
    Auto,
    /// Only calls of [`crate::Table::maintain`] do.
    Manual,
}

impl MaintenanceMode {
    /// Its name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Auto, Self::Manual]
            .into_iter()
            .find(|mode| mode.name() == name)
    }
}

/// How much of the machine jobs may take.
///
/// ```
/// use thalweg_table::{Engine, EngineOptions, JobLimits};
/// # fn main() -> thalweg_table::Result<()> {
///
/// let limits = JobLimits { bytes_per_second: Some(1 << 20), ..JobLimits::default() };
/// assert!(limits.loaded_percent < limits.idle_percent); // less while others commit
/// let db = Engine::in_memory(EngineOptions { job_limits: limits, ..EngineOptions::default() })?;
/// assert_eq!(db.options().job_limits, limits);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Percent of the time in which their thread works while others commit, 1 to 100. It decodes with all threads of the database.
    pub loaded_percent: u32,
    /// The same while nobody does, though others may query.
    pub idle_percent: u32,
    /// Bytes a second that they write, if there is a limit.
    pub bytes_per_second: Option<u64>,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            loaded_percent: 25,
            idle_percent: 60,
            bytes_per_second: None,
        }
    }
}

/// The reason for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Deletes rows that are older than the retention of their table.
    ExpiredRows,
    /// Merges blocks that overlap, because rows came late.
    LateRows,
    /// Writes blocks without the rows that were deleted from them.
    DeletedRows,
    /// Makes short neighbours one block, and small files one file.
    ShortBlocks,
}

impl JobKind {
    /// All, the most urgent one first: expired rows need not be put in order any more; late rows cost each scan of their range, deleted
    /// ones memory and room, short blocks least.
    pub const BY_PRIORITY: [Self; 4] = [
        Self::ExpiredRows,
        Self::LateRows,
        Self::DeletedRows,
        Self::ShortBlocks,
    ];
    /// Those that write blocks anew, in the same order.
    pub(super) const REWRITES: [Self; 3] = [Self::LateRows, Self::DeletedRows, Self::ShortBlocks];

    /// Its name in `thalweg_jobs`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ExpiredRows => "expired rows",
            Self::LateRows => "late rows",
            Self::DeletedRows => "deleted rows",
            Self::ShortBlocks => "short blocks",
        }
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It is at work, or rests within its budget.
    Running,
    /// Its last step is done, or there was nothing to do.
    Done,
    /// It was interrupted, and goes on later.
    Interrupted,
    /// It has failed, and is tried again later.
    Failed,
}

impl JobState {
    /// Its name in `thalweg_jobs`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// Counts of one kind of job for one table since the database was opened.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// The name of the table when the job last ran.
    pub table: Arc<str>,
    /// The reason for it.
    pub kind: JobKind,
    /// How it is.
    pub state: JobState,
    /// Commits that it took.
    pub steps: u64,
    /// Rows that were written anew; of expired rows those that were deleted.
    pub rows: u64,
    /// Bytes of the blocks that were written.
    pub bytes: u64,
    /// Time that its steps took, with planning them and the rests within them.
    pub took: Duration,
    /// When it last began, in nanoseconds since 1970 UTC.
    pub began_unix_ns: i64,
    /// Why it has failed, if it has.
    pub error: Option<String>,
}

impl JobReport {
    fn new(table: &Arc<str>, kind: JobKind) -> Self {
        Self {
            table: Arc::clone(table),
            kind,
            state: JobState::Running,
            steps: 0,
            rows: 0,
            bytes: 0,
            took: Duration::ZERO,
            began_unix_ns: 0,
            error: None,
        }
    }
}

/// The state of all jobs of a database.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopping: bool,
    is_paused: bool,
    reports: BTreeMap<(TableId, JobKind), JobReport>,
}

impl Board {
    /// Whether jobs are to end now.
    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Whether a job may go on.
    pub(super) fn goes_on(&self) -> bool {
        let state = self.state.lock();
        !state.is_stopping && !state.is_paused
    }

    fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    pub(crate) fn pause(&self, is_paused: bool) {
        self.state.lock().is_paused = is_paused;
        self.changed.notify_all();
    }

    /// Sleeps for this time, or until jobs are stopped, paused or resumed.
    pub(super) fn sleep(&self, time: Duration) {
        let mut state = self.state.lock();
        if !state.is_stopping {
            self.changed.wait_for(&mut state, time);
        }
    }

    /// The reports by table and kind.
    pub(crate) fn reports(&self) -> Vec<JobReport> {
        self.state.lock().reports.values().cloned().collect()
    }

    /// Changes the report of a job, which is a new one for its first step.
    pub(super) fn report(
        &self,
        table: TableId,
        name: &Arc<str>,
        kind: JobKind,
        change: impl FnOnce(&mut JobReport),
    ) {
        let mut state = self.state.lock();
        let report = state.reports.entry((table, kind));
        let report = report.or_insert_with(|| JobReport::new(name, kind));
        report.table = Arc::clone(name);
        change(report);
    }

    /// Notes that a table needs nothing of some kinds: what was interrupted or has failed was done by somebody else.
    pub(super) fn nothing_left(&self, table: TableId, kinds: &[JobKind]) {
        let mut state = self.state.lock();
        for kind in kinds {
            if let Some(report) = state.reports.get_mut(&(table, *kind)) {
                (report.state, report.error) = (JobState::Done, None);
            }
        }
    }

    /// Forgets the jobs of tables that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        let mut state = self.state.lock();
        state.reports.retain(|(table, _), _| is_there(*table));
    }
}

/// The thread that does jobs. It ends with this.
pub(crate) struct JobThread {
    board: Arc<Board>,
    thread: Mutex<Option<JoinHandle>>,
    owner: Owner,
}

impl fmt::Debug for JobThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobThread").finish_non_exhaustive()
    }
}

impl JobThread {
    pub(super) fn new(board: Arc<Board>, thread: JoinHandle, owner: Owner) -> Self {
        Self {
            board,
            thread: Mutex::new(Some(thread)),
            owner,
        }
    }

    /// Ends the thread, and waits for that.
    pub(crate) fn stop(&self) {
        if !self.owner.is_here() {
            return;
        }
        self.board.stop();
        // Held meanwhile: whoever else stops it waits for the end as well.
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take() {
            // One that panicked does no more jobs; what it had not committed does not count.
            let _ = thread.join();
        }
    }
}

impl Drop for JobThread {
    fn drop(&mut self) {
        self.stop();
    }
}
