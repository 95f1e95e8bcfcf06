//! Carries out operations on a database and keeps the ledger of them.
//!
//! Invariants: one operation at a time, but for [`Driver::append_together`]; without faults every operation must succeed;
//! with faults an error is an outcome, and the operations after it are tried all the same.

use crate::oracle::{Contents, Effect, Ledger, Op, Outcome, Violation, contents_of};
use crate::toy::{Row, Toy, block, rows_part};
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv, TraceRecord};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, GroupPart, Options, Producer, Result,
    TableId,
};

/// Where all test databases lie.
pub const DIR: &str = "/db";

/// The shape of a test database.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Open rows that make a block.
    pub block_rows: u32,
    /// Options of every opening.
    pub options: Options,
}

impl Shape {
    /// Everything in the calling thread, small segments.
    pub fn new(segment_bytes: u64, block_rows: u32) -> Self {
        let options = Options {
            segment_bytes,
            background: false,
            cache_bytes: 1 << 20,
            ..Options::default()
        };
        Self {
            block_rows,
            options,
        }
    }

    /// Opens the database of an environment for writing.
    pub fn open(&self, env: &Env) -> Result<Toy> {
        Toy::open(env, DIR, &self.options, self.block_rows)
    }

    /// Opens it for reading.
    pub fn open_read_only(&self, env: &Env) -> Result<Toy> {
        let options = Options {
            read_only: true,
            ..self.options.clone()
        };
        Toy::open(env, DIR, &options, self.block_rows)
    }
}

/// The database under test, and what was asked of it.
pub struct Driver {
    /// The machine.
    pub sim: SimEnv,
    /// The ledger.
    pub ledger: Ledger,
    /// Whether calls fail: then errors are outcomes.
    faulty: bool,
    shape: Shape,
    toy: Option<Toy>,
    env: Env,
    life: u32,
    next_value: i64,
    /// A sync of the log, the root or their folders failed in this life.
    sync_failed: bool,
    /// What went against the rules already during the run.
    pub violations: Vec<Violation>,
    /// The storage calls, where errors are outcomes.
    pub trace: Vec<TraceRecord>,
}

impl Driver {
    /// Opens a new database.
    pub fn start(sim: &SimEnv, shape: Shape, faulty: bool) -> Self {
        let mut driver = Self {
            sim: sim.clone(),
            ledger: Ledger::default(),
            faulty,
            shape,
            toy: None,
            env: sim.env(),
            life: 0,
            next_value: 0,
            sync_failed: false,
            violations: Vec::new(),
            trace: Vec::new(),
        };
        if faulty {
            sim.set_trace(true);
        }
        driver.open();
        driver
    }

    fn open(&mut self) {
        match self.shape.open(&self.env) {
            Ok(toy) => {
                self.toy = Some(toy);
                self.life += 1;
                self.sync_failed = false;
            }
            Err(e) if self.faulty => drop(e),
            Err(e) => panic!("opening: {e:?}"),
        }
        self.note_failed_syncs();
    }

    /// The open database, if it could be opened.
    pub fn toy(&self) -> Option<&Toy> {
        self.toy.as_ref()
    }

    /// The shape it was started with.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Lets go of the database without a word, as the end of the test does.
    pub fn finish(&mut self) {
        self.toy = None;
    }

    /// Rows with these keys and values never used before.
    pub fn rows(&mut self, keys: impl IntoIterator<Item = i64>) -> Vec<Row> {
        let mut rows = Vec::new();
        for key in keys {
            self.next_value += 1;
            rows.push((key, self.next_value));
        }
        rows
    }

    fn table(&self, name: &str) -> Option<TableId> {
        let snapshot = self.toy.as_ref()?.kernel.snapshot().ok()?;
        Some(snapshot.table_named(name)?.id)
    }

    /// Does something, notes it in the ledger.
    fn submit(
        &mut self,
        effect: Effect,
        level: Durability,
        action: impl FnOnce(&Toy) -> Result<CommitNo>,
    ) -> Option<CommitNo> {
        let toy = self.toy.as_ref()?;
        let before_call = self.sim.calls();
        let dead = toy.kernel.poison().is_some();
        let result = action(toy);
        let outcome = match &result {
            Ok(commit) => Outcome::Stored(*commit, level),
            Err(e) if refused(e, dead) => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        };
        if let (Err(e), false) = (&result, self.faulty) {
            panic!("{effect:?}: {e:?}");
        }
        if self.sync_failed && matches!(outcome, Outcome::Stored(..)) {
            let what = format!("{effect:?} was acknowledged after a failed sync");
            self.violations.push(what);
        }
        self.ledger.ops.push(Op {
            effect,
            before_call,
            after_call: self.sim.calls(),
            outcome,
            life: self.life,
        });
        self.note_failed_syncs();
        result.ok()
    }

    /// After a failed sync of the log, the root or their folders nothing may be acknowledged any more.
    fn note_failed_syncs(&mut self) {
        if self.faulty {
            let trace = self.sim.take_trace();
            self.sync_failed |= trace.iter().any(is_fatal);
            self.trace.extend(trace);
        }
    }

    fn commit(&mut self, effect: Effect, commit: Commit, level: Durability) -> Option<CommitNo> {
        self.submit(effect, level, |toy| toy.kernel.commit(commit, level))
    }

    fn edit(&mut self, effect: Effect, edit: Edit) -> Option<CommitNo> {
        let commit = Commit {
            edits: vec![edit],
            ..Commit::default()
        };
        self.commit(effect, commit, Durability::Disk)
    }

    /// A new table.
    pub fn create(&mut self, name: &str) {
        let edit = Edit::CreateTable {
            name: name.to_owned(),
            definition: Bytes::from_static(b"toy"),
        };
        self.edit(Effect::Create(name.to_owned()), edit);
    }

    /// Drops a table.
    pub fn drop_table(&mut self, name: &str) {
        if let Some(table) = self.table(name) {
            self.edit(Effect::Drop(name.to_owned()), Edit::DropTable { table });
        }
    }

    /// Renames a table.
    pub fn rename(&mut self, name: &str, to: &str) {
        if let Some(table) = self.table(name) {
            let edit = Edit::RenameTable {
                table,
                name: to.to_owned(),
            };
            self.edit(Effect::Rename(name.to_owned(), to.to_owned()), edit);
        }
    }

    /// Gives a table the definition it has, as a new version.
    pub fn redefine(&mut self, name: &str) {
        let Some(toy) = &self.toy else { return };
        let Ok(snapshot) = toy.kernel.snapshot() else {
            return;
        };
        if let Some(table) = snapshot.table_named(name) {
            let edit = Edit::SetDefinition {
                table: table.id,
                expected_version: table.definition_version,
                definition: Bytes::from_static(b"toy again"),
            };
            self.edit(Effect::Nothing, edit);
        }
    }

    fn version(&self, table: TableId) -> u32 {
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        snapshot
            .and_then(|s| s.table(table))
            .map_or(1, |t| t.definition_version)
    }

    /// Appends raw.
    pub fn append(&mut self, name: &str, keys: impl IntoIterator<Item = i64>, level: Durability) {
        let Some(table) = self.table(name) else {
            return;
        };
        let rows = self.rows(keys);
        let mut part = rows_part(table, &rows);
        part.definition_version = self.version(table);
        let commit = Commit {
            rows: vec![part],
            ..Commit::default()
        };
        self.commit(Effect::Append(name.to_owned(), rows), commit, level);
    }

    /// Appends raw with a producer's number; sends it again; the second time nothing may change.
    pub fn append_twice(
        &mut self,
        name: &str,
        keys: &[i64],
        sequence: u64,
        levels: [Durability; 2],
    ) {
        let Some(table) = self.table(name) else {
            return;
        };
        let rows = self.rows(keys.iter().copied());
        let commit = || Commit {
            rows: vec![rows_part(table, &rows)],
            producer: Some(Producer {
                id: [7; 16],
                sequence,
            }),
            ..Commit::default()
        };
        let effect = Effect::Append(name.to_owned(), rows.clone());
        let first = self.commit(effect, commit(), levels[0]);
        if first.is_some() || !self.faulty {
            let again = self.commit(Effect::Nothing, commit(), levels[1]);
            if again.is_some() && again != first {
                let what = format!("a resend of {first:?} was stored as {again:?}");
                self.violations.push(what);
            }
        }
    }

    /// Appends as blocks.
    pub fn append_group(
        &mut self,
        name: &str,
        keys: impl IntoIterator<Item = i64>,
        level: Durability,
    ) {
        let Some(table) = self.table(name) else {
            return;
        };
        let rows = self.rows(keys);
        let blocks = rows
            .chunks(self.shape.block_rows as usize)
            .map(|chunk| block(table, chunk.to_vec(), None))
            .collect();
        let group = GroupPart {
            table,
            definition_version: self.version(table),
            blocks,
            covers: None,
        };
        let commit = Commit {
            groups: vec![group],
            ..Commit::default()
        };
        self.commit(Effect::Append(name.to_owned(), rows), commit, level);
    }

    /// Appends as a fragment.
    pub fn append_fragment(&mut self, name: &str, keys: impl IntoIterator<Item = i64>) {
        let Some(table) = self.table(name) else {
            return;
        };
        let rows = self.rows(keys);
        let (of_block, definition_version) = (self.shape.block_rows as usize, self.version(table));
        let effect = Effect::Append(name.to_owned(), rows.clone());
        self.submit(effect, Durability::Disk, |toy| {
            let root = stage(toy, table, &rows, of_block)?;
            let edit = Edit::AddFragments {
                table,
                definition_version,
                covers: None,
                roots: vec![root],
            };
            let commit = Commit {
                edits: vec![edit],
                ..Commit::default()
            };
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Stages a fragment that nobody ever adds.
    pub fn abandon_fragment(&mut self, name: &str, keys: std::ops::Range<i64>) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let rows: Vec<Row> = keys.map(|k| (k, -1)).collect();
        let staged = stage(toy, table, &rows, self.shape.block_rows as usize);
        assert!(staged.is_ok() || self.faulty, "staging: {staged:?}");
        self.note_failed_syncs();
    }

    /// Replaces all blocks of a table by a fragment with the same rows in order.
    pub fn merge(&mut self, name: &str) {
        let Some(table) = self.table(name) else {
            return;
        };
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let state = snapshot.and_then(|snapshot| snapshot.table(table));
        if state.is_none_or(|state| state.tree.is_empty()) {
            return;
        }
        let of_block = self.shape.block_rows as usize;
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let store = &**toy.kernel.store();
            let (mut removed, mut rows) = (Vec::new(), Vec::new());
            let mut commits = (CommitNo(u64::MAX), CommitNo(0));
            // Only blocks that are items themselves: those of fragments go with their fragment.
            state.tree.visit(None, store, &mut |entry| {
                let fragment = store.fragment_path(entry.address.file);
                let in_fragment = store.env().storage().metadata(&fragment).is_ok();
                if entry.is_block() || in_fragment {
                    removed.push(entry.key());
                    commits.0 = commits.0.min(entry.commit_min);
                    commits.1 = commits.1.max(entry.commit_max);
                    thalweg_kernel::index::Step::Take
                } else {
                    thalweg_kernel::index::Step::Descend
                }
            })?;
            for entry in state.tree.iter(None, store) {
                rows.extend(toy.block_rows(&entry?)?);
            }
            rows.sort_unstable();
            let mut fragment = toy.kernel.stage_fragment(table)?;
            for chunk in rows.chunks(4 * of_block) {
                fragment.add_block(&block(table, chunk.to_vec(), Some(commits)))?;
            }
            let edit = Edit::Replace {
                table,
                removed,
                added: vec![fragment.finish()?],
            };
            let commit = Commit {
                edits: vec![edit],
                prepared_at: Some(snapshot.commit()),
                ..Commit::default()
            };
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Sends a cover of rows that are open no longer, as an encoder would that lost a race: it must be refused.
    pub fn cover_again(&mut self, name: &str) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let Some(state) = toy.kernel.snapshot().ok().and_then(|s| s.table(table)) else {
            return;
        };
        let Some(Ok(entry)) = state.tree.iter(None, &**toy.kernel.store()).next() else {
            return;
        };
        let Ok(rows) = toy.block_rows(&entry) else {
            return;
        };
        let commits = Some((entry.commit_min, entry.commit_max));
        let mut again = block(table, rows, commits);
        again.entry.key_min -= 1;
        let group = GroupPart {
            table,
            definition_version: state.definition_version,
            blocks: vec![again],
            covers: Some(entry.commit_max),
        };
        let commit = Commit {
            groups: vec![group],
            ..Commit::default()
        };
        match toy.kernel.commit(commit, Durability::Process) {
            Ok(commit) => {
                let what = format!("rows were covered a second time, by commit {commit:?}");
                self.violations.push(what);
            }
            Err(e) if e.kind() == ErrorKind::Conflict || self.faulty => {}
            Err(e) => panic!("covering twice: {e:?}"),
        }
        self.note_failed_syncs();
    }

    /// Several callers append at once; all but the first wait for its sync and share the next one.
    pub fn append_together(&mut self, name: &str, keys: &[i64]) {
        let (Some(table), false) = (self.table(name), self.faulty) else {
            // Which call of which thread fails would depend on the scheduler.
            keys.iter()
                .for_each(|k| self.append(name, [*k], Durability::Disk));
            return;
        };
        let rows = self.rows(keys.iter().copied());
        let hang = FaultRule::new(Fault::Hang).on(&[CallKind::SyncData]).once();
        self.sim.set_plan(FaultPlan::none().rule(hang));
        let before_call = self.sim.calls();
        let (sim, toy) = (&self.sim, self.toy.as_ref().expect("open"));
        let clock = Env::os();
        let acks: Vec<(CommitNo, u64)> = std::thread::scope(|scope| {
            let append = |row: &Row| {
                let commit = toy.append(table, &[*row], Durability::Disk);
                (commit.expect("no faults"), sim.calls())
            };
            let (first, others) = rows.split_first().expect("callers");
            let mut callers = vec![scope.spawn(move || append(first))];
            while sim.hung_calls() == 0 {
                clock.clock().sleep(Duration::from_micros(100));
            }
            callers.extend(others.iter().map(|row| scope.spawn(move || append(row))));
            // Whoever has not queued by then leads a batch of its own: another order, no less correct.
            clock.clock().sleep(Duration::from_millis(20));
            sim.release_hung_calls();
            callers
                .into_iter()
                .map(|c| c.join().expect("a caller panicked"))
                .collect()
        });
        self.sim.set_plan(FaultPlan::none());
        for (row, (commit, after_call)) in rows.iter().zip(acks) {
            self.ledger.ops.push(Op {
                effect: Effect::Append(name.to_owned(), vec![*row]),
                before_call,
                after_call,
                outcome: Outcome::Stored(commit, Durability::Disk),
                life: self.life,
            });
        }
    }

    /// Flushes.
    pub fn flush(&mut self) {
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let commit = toy.kernel.snapshot()?.commit();
            toy.kernel.flush().map(|()| commit)
        });
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&mut self) {
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let commit = toy.kernel.snapshot()?.commit();
            toy.kernel.checkpoint().map(|()| commit)
        });
    }

    /// Collects garbage, which makes nothing durable where there is none.
    pub fn collect(&mut self) {
        self.submit(Effect::Nothing, Durability::Memory, |toy| {
            let commit = toy.kernel.snapshot()?.commit();
            toy.kernel.collect_garbage().map(|_| commit)
        });
    }

    /// Closes the database and opens it again.
    pub fn reopen(&mut self) {
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let commit = toy.kernel.snapshot()?.commit();
            toy.kernel.close().map(|()| commit)
        });
        self.toy = None;
        self.open();
    }

    /// Closes the database for good.
    pub fn close(&mut self) {
        if let Some(toy) = self.toy.take() {
            let closed = toy.kernel.close();
            assert!(closed.is_ok() || self.faulty, "closing: {closed:?}");
        }
    }

    /// Kills the process (the cache stays) and opens the database in another one.
    pub fn kill(&mut self) {
        let process_id = self.env.clock().process_id();
        self.sim.kill_process(process_id);
        self.toy = None;
        self.env = self.sim.env_of_process(process_id + 100);
        self.open();
    }

    /// Cuts the power and opens what is left, on the machine that goes on from there.
    pub fn power_cut(&mut self, choice: &CrashChoice) {
        let image = self.sim.crash_image(choice);
        self.toy = None;
        (self.env, self.sim) = (image.env(), image);
        self.open();
    }

    /// What the open database shows now.
    pub fn visible(&self) -> Option<Result<(CommitNo, Contents), Violation>> {
        self.toy.as_ref().map(contents_of)
    }
}

/// Writes a fragment and leaves it staged.
fn stage(
    toy: &Toy,
    table: TableId,
    rows: &[Row],
    of_block: usize,
) -> Result<thalweg_kernel::index::Entry> {
    let mut fragment = toy.kernel.stage_fragment(table)?;
    for chunk in rows.chunks(of_block) {
        fragment.add_block(&block(table, chunk.to_vec(), None))?;
    }
    fragment.finish()
}

fn gone(table: TableId) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {} is gone", table.0))
}

/// Whether an error says that nothing was stored. `dead`: the database took no more writes before.
fn refused(error: &Error, dead: bool) -> bool {
    dead || matches!(
        error.kind(),
        ErrorKind::DiskFull
            | ErrorKind::Conflict
            | ErrorKind::AlreadyExists
            | ErrorKind::Limit
            | ErrorKind::Invalid
    )
}

/// Whether a call was a failed sync after which nothing may be acknowledged. For want of space the log is recovered instead.
fn is_fatal(call: &TraceRecord) -> bool {
    let (path, root) = (call.path.to_string_lossy(), Path::new(DIR).join("root"));
    let lasts = |error| error != std::io::ErrorKind::StorageFull;
    call.error.is_some_and(lasts)
        && match call.kind {
            // A segment is known by the name it was opened by, that of the spare it was.
            CallKind::SyncData => path.ends_with(".spare") || call.path == root,
            CallKind::SyncDir => path.ends_with("/log") || call.path == Path::new(DIR),
            _ => false,
        }
}
