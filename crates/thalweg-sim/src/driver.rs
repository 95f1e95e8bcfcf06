//! Carries out operations on a database and keeps the ledger of them.
//!
//! Invariants: one operation at a time, but for [`Driver::append_together`]; without faults every operation must succeed;
//! with faults an error is an outcome, and the operations after it are tried all the same.

mod copies;
pub mod deletes;
mod indexes;

use crate::checkpoint_frames::CheckpointCounts;
use crate::follower::Follower;
use crate::oracle::{
    Arrived, Contents, Effect, Ledger, Op, Outcome, Violation, contents_of, hidden_rows,
};
use crate::resources::{check_closed, check_open_files, memory_of};
use crate::shape::{DIR, Shape};
use crate::toy::{Row, Toy, block, columns_of, definition, rows_part, unpack, wide_block};
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv, TraceRecord};
use thalweg_kernel::index::{Entry, ItemName, Place, Step, Tree};
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, GroupPart, NEW_TABLE, Producer, Result,
    TableId, TableSnapshot,
};

/// The process of [`Driver::follow`].
const FOLLOWER: u32 = 77;

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
    /// Any sync failed at any time: what readers see may be gone from the cache.
    any_sync_failed: bool,
    follower: Option<Follower>,
    /// The checkpoints that the root has named, read after each operation.
    pub checkpoints: CheckpointCounts,
    /// Violations that were found already during the run.
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
            any_sync_failed: false,
            follower: None,
            checkpoints: CheckpointCounts::default(),
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

    /// Drops the database without closing it first, as the end of the test does.
    pub fn finish(&mut self) {
        self.stop_following();
        self.drop_database();
    }

    /// Lets go of the database; its process then has no file open.
    fn drop_database(&mut self) {
        if self.toy.take().is_some() {
            let closed = check_closed(&self.sim, self.process_id());
            self.violations.extend(closed.err());
        }
    }

    /// Ends the run, and returns the memory that the database held and what it may have held.
    pub fn memory(&mut self) -> Option<(u64, u64)> {
        self.stop_following();
        let toy = self.toy.take()?;
        match memory_of(toy, &self.sim, self.process_id()) {
            Ok(memory) => memory,
            Err(violation) => {
                self.violations.push(violation);
                None
            }
        }
    }

    /// The levels of the highest index.
    pub fn index_levels(&self) -> u8 {
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let levels = snapshot.iter().flat_map(|snapshot| snapshot.tables());
        let levels = levels.filter_map(|table| table.tree.total().map(|total| total.level));
        levels.max().unwrap_or(0)
    }

    /// Opens the database in another process, which reads after every operation from now on.
    pub fn follow(&mut self) {
        match Follower::open(&self.sim, &self.shape, FOLLOWER) {
            Ok(follower) => self.follower = Some(follower),
            Err(e) if self.faulty => drop(e),
            Err(e) => panic!("opening for reading: {e:?}"),
        }
        self.look(false);
    }

    /// The following process holds a snapshot of now.
    pub fn hold(&mut self) {
        self.look(true);
    }

    /// The following process lets go of all snapshots.
    pub fn release(&mut self) {
        if let Some(follower) = &mut self.follower {
            follower.release();
        }
        self.look(false);
    }

    fn look(&mut self, hold: bool) {
        let Some(follower) = &mut self.follower else {
            return;
        };
        let judged = if !self.faulty {
            follower.look(&self.sim, &self.ledger, hold)
        } else if self.any_sync_failed {
            Ok(())
        } else {
            follower.look_with_faults(&self.ledger)
        };
        // A violation that stays is reported once.
        let new = |violation: &Violation| self.violations.last() != Some(violation);
        let violation = judged.err().filter(new);
        self.violations.extend(violation);
        self.note_failed_syncs();
    }

    /// The following process closes the database.
    pub fn stop_following(&mut self) {
        if let Some(follower) = self.follower.take() {
            let closed = follower.close(&self.sim);
            self.violations.extend(closed.err());
        }
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

    /// The simulator's number of the process whose database this is.
    fn process_id(&self) -> u32 {
        u32::try_from(self.env.clock().process())
            .expect("the simulator counts processes in 32 bits")
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
        self.checkpoints.look(&self.sim);
        let bounded = check_open_files(&self.sim, self.process_id());
        self.violations.extend(bounded.err());
        self.look(false);
        result.ok()
    }

    /// Notes failed syncs: after one of the log, the root or their folders nothing may be acknowledged
    /// any more.
    fn note_failed_syncs(&mut self) {
        if self.faulty {
            let trace = self.sim.take_trace();
            self.sync_failed |= trace.iter().any(is_fatal);
            let failed = |call: &TraceRecord| call.kind.is_sync() && call.error.is_some();
            self.any_sync_failed |= trace.iter().any(failed);
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
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: Bytes::from_static(b"toy"),
            indexes: 0,
        };
        self.edit(Effect::Create(name.to_owned()), edit);
    }

    /// A new table of so many columns.
    pub fn create_wide(&mut self, name: &str, columns: u32) {
        let edit = Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: definition(columns),
            indexes: 0,
        };
        self.edit(Effect::Create(name.to_owned()), edit);
    }

    /// New tables, all in one commit.
    pub fn create_all(&mut self, names: &[String]) {
        let create = |name: &String| Edit::CreateTable {
            table: NEW_TABLE,
            name: name.clone(),
            definition: Bytes::from_static(b"toy"),
            indexes: 0,
        };
        let commit = Commit {
            edits: names.iter().map(create).collect(),
            ..Commit::default()
        };
        let effects = names.iter().cloned().map(Effect::Create).collect();
        self.commit(Effect::Several(effects), commit, Durability::Disk);
    }

    /// Drops tables, all in one commit.
    pub fn drop_all(&mut self, names: &[String]) {
        let tables: Vec<_> = names.iter().filter_map(|name| self.table(name)).collect();
        if tables.len() == names.len() {
            let edits = tables.into_iter().map(|table| Edit::DropTable { table });
            let commit = Commit {
                edits: edits.collect(),
                ..Commit::default()
            };
            let effects = names.iter().cloned().map(Effect::Drop).collect();
            self.commit(Effect::Several(effects), commit, Durability::Disk);
        }
    }

    /// Appends raw to several tables in one commit, the same keys to each.
    pub fn append_to_all(&mut self, names: &[String], keys: &[i64], level: Durability) {
        let (mut effects, mut commit) = (Vec::new(), Commit::default());
        for name in names {
            let Some(table) = self.table(name) else {
                return;
            };
            let rows = self.rows(keys.iter().copied());
            commit.rows.push(rows_part(table, &rows));
            effects.push(Effect::Append(name.clone(), rows));
        }
        self.commit(Effect::Several(effects), commit, level);
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

    fn columns(&self, table: TableId) -> u32 {
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        snapshot
            .and_then(|s| s.table(table))
            .map_or(2, |t| columns_of(&t.definition))
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
        let columns = self.columns(table);
        let blocks = rows
            .chunks(self.shape.block_rows as usize)
            .map(|chunk| wide_block(table, chunk.to_vec(), None, columns))
            .collect();
        let group = GroupPart {
            head: AddHead::of_rows(table, self.version(table)),
            blocks,
        };
        let mut commit = Commit {
            groups: vec![group],
            ..Commit::default()
        };
        commit.groups.extend(self.entry_groups(table, &rows));
        self.commit(Effect::Append(name.to_owned(), rows), commit, level);
    }

    /// Appends as a fragment.
    pub fn append_fragment(&mut self, name: &str, keys: impl IntoIterator<Item = i64>) {
        let keys: Vec<i64> = keys.into_iter().collect();
        let all = keys.len().max(1);
        self.append_fragments(name, keys, all);
    }

    /// Appends as fragments of so many rows, all in one commit.
    pub fn append_fragments(
        &mut self,
        name: &str,
        keys: impl IntoIterator<Item = i64>,
        of_fragment: usize,
    ) {
        let Some(table) = self.table(name) else {
            return;
        };
        let rows = self.rows(keys);
        let (of_block, definition_version) = (self.shape.block_rows as usize, self.version(table));
        let columns = self.columns(table);
        let effect = Effect::Append(name.to_owned(), rows.clone());
        self.submit(effect, Durability::Disk, |toy| {
            let mut roots = Vec::new();
            for part in rows.chunks(of_fragment) {
                roots.push(stage(toy, table, part, of_block, columns)?);
            }
            let edit = Edit::AddFragments {
                head: AddHead::of_rows(table, definition_version),
                roots,
            };
            let mut commit = Commit {
                edits: vec![edit],
                ..Commit::default()
            };
            let entries = Self::stage_entries(toy, table, definition_version, &rows, of_block)?;
            commit.edits.extend(entries);
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Stages a fragment that nobody ever adds.
    pub fn abandon_fragment(&mut self, name: &str, keys: std::ops::Range<i64>) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let rows: Vec<Row> = keys.map(|k| (k, -1)).collect();
        let of_block = self.shape.block_rows as usize;
        let staged = stage(toy, table, &rows, of_block, self.columns(table));
        assert!(staged.is_ok() || self.faulty, "staging: {staged:?}");
        self.note_failed_syncs();
    }

    /// Replaces all blocks of a table by a fragment with the same rows in order.
    pub fn merge(&mut self, name: &str) {
        self.merge_items(name, 0..usize::MAX);
    }

    /// Replaces some items of a table, by their place, by a fragment with the same rows in order. Blocks that came after
    /// rows that are still open stay: in one block with earlier ones they would come before those rows. Items that stay must
    /// not have keys of those that are merged, or be all earlier or all later.
    pub fn merge_items(&mut self, name: &str, places: std::ops::Range<usize>) {
        let Some(table) = self.table(name) else {
            return;
        };
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let state = snapshot.and_then(|snapshot| snapshot.table(table));
        let Some(state) = state else { return };
        let last = (state.open_rows().next()).map_or(CommitNo(u64::MAX), |open| open.commit);
        if state
            .tree
            .total()
            .is_none_or(|total| total.commit_min >= last)
        {
            return;
        }
        let of_block = self.shape.block_rows as usize;
        let columns = columns_of(&state.definition);
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let items = items_of(toy, &state)?;
            let end = places.end.min(items.len());
            let chosen = &items[places.start.min(end)..end];
            let earlier = all_earlier(chosen, last);
            let chosen: Vec<_> = chosen
                .iter()
                .filter(|item| item.commit_max < earlier)
                .collect();
            let Some(first) = chosen.iter().map(|item| item.commit_min).min() else {
                // The ledger takes this commit for durable, and it may be one of level `Memory`.
                return toy.kernel.flush().map(|()| snapshot.commit());
            };
            let behind = chosen.iter().map(|item| item.commit_max).max();
            let commits = (first, behind.unwrap_or(first));
            let mut rows = Vec::new();
            for item in &chosen {
                rows.extend(arrivals_of(toy, &state, item)?);
            }
            rows.sort_unstable();
            let rows: Vec<Row> = rows
                .into_iter()
                .map(|(key, _, value)| (key, value))
                .collect();
            let rows_before: u64 = chosen.iter().map(|item| item.rows).sum();
            let left_out = rows_before - rows.len() as u64;
            let mut fragment = toy.kernel.stage_fragment(table)?;
            for (number, chunk) in (0..).zip(rows.chunks(4 * of_block)) {
                let mut block = wide_block(table, chunk.to_vec(), None, columns);
                block.entry = block.entry.committed(commits.0, commits.1, number);
                fragment.add_block(&block)?;
            }
            let added = vec![fragment.finish()?];
            let removed = chosen.iter().map(|item| ItemName::of(item)).collect();
            let mut commit = replacing(table, removed, added, snapshot.commit());
            if let Some(Edit::Replace(edit)) = commit.edits.first_mut() {
                edit.left_out = left_out;
            }
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
            head: AddHead {
                covers: Some(entry.commit_max),
                ..AddHead::of_rows(table, state.definition_version)
            },
            blocks: vec![again],
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

    /// Makes blocks of all open rows of a table.
    pub fn encode(&mut self, name: &str) {
        let Some(table) = self.table(name) else {
            return;
        };
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let state = snapshot.and_then(|snapshot| snapshot.table(table));
        // Without rows it succeeds and acknowledges nothing, even where nothing can be written any more.
        if state.is_none_or(|state| state.open_rows().next().is_none()) {
            return;
        }
        self.submit(Effect::Nothing, Durability::Memory, |toy| {
            toy.kernel.encode_open_rows(table)?;
            Ok(toy.kernel.snapshot()?.commit())
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
        self.drop_database();
        self.open();
        self.look(false);
    }

    /// Closes the database for good.
    pub fn close(&mut self) {
        if let Some(toy) = &self.toy {
            let closed = toy.kernel.close();
            assert!(closed.is_ok() || self.faulty, "closing: {closed:?}");
        }
        self.drop_database();
    }

    /// Kills the process (the cache stays) and opens the database in another one.
    pub fn kill(&mut self) {
        let process_id = self.process_id();
        self.sim.kill_process(process_id);
        self.drop_database();
        self.look(false);
        self.env = self.sim.env_of_process(process_id + 100);
        self.open();
        self.look(false);
    }

    /// Cuts the power and opens what is left, on the machine that goes on from there.
    pub fn power_cut(&mut self, choice: &CrashChoice) {
        let image = self.sim.crash_image(choice);
        self.stop_following();
        self.drop_database();
        (self.env, self.sim) = (image.env(), image);
        self.open();
    }

    /// The contents that the open database shows now.
    pub fn visible(&self) -> Option<Result<(CommitNo, Contents), Violation>> {
        self.toy.as_ref().map(contents_of)
    }
}

/// Writes a fragment and leaves it staged.
fn stage(toy: &Toy, table: TableId, rows: &[Row], of_block: usize, columns: u32) -> Result<Entry> {
    let mut fragment = toy.kernel.stage_fragment(table)?;
    for chunk in rows.chunks(of_block) {
        fragment.add_block(&wide_block(table, chunk.to_vec(), None, columns))?;
    }
    fragment.finish()
}

/// The items of a table: blocks of the log, and fragments as a whole, whose blocks go with them.
fn items_of(toy: &Toy, state: &TableSnapshot) -> Result<Vec<Entry>> {
    items_below(toy, &state.tree)
}

/// The items of a tree.
fn items_below(toy: &Toy, tree: &Tree) -> Result<Vec<Entry>> {
    let store = &**toy.kernel.store();
    let mut items = Vec::new();
    tree.visit(None, store, &mut |entry| {
        let fragment = store.fragment_path(entry.address.file);
        let in_fragment = store.env().storage().metadata(&fragment).is_ok();
        if entry.is_block() || in_fragment {
            items.push(entry.clone());
            Step::Take
        } else {
            Step::Descend
        }
    })?;
    Ok(items)
}

/// The commit that all rows of an item have to come before, so that the item is earlier than those that stay: those that
/// reach `last` or beyond, and what overlaps them. A fragment that compaction has made may hold blocks of both sides.
fn all_earlier(items: &[Entry], last: CommitNo) -> CommitNo {
    let mut bound = last;
    loop {
        let stay = items.iter().filter(|item| item.commit_max >= bound);
        let first = stay.map(|item| item.commit_min).min();
        match first {
            Some(first) if first < bound => bound = first,
            _ => return bound,
        }
    }
}

/// The rows of an item that are not hidden: key, arrival, value.
fn arrivals_of(toy: &Toy, state: &TableSnapshot, item: &Entry) -> Result<Vec<Arrived>> {
    let blocks: Vec<Entry> = if item.is_block() {
        vec![item.clone()]
    } else {
        let tree = Tree::from_root(state.id, Some(item.clone()));
        tree.iter(None, &**toy.kernel.store())
            .collect::<Result<_>>()?
    };
    let mut rows = Vec::new();
    for (rank, block) in (0..).zip(blocks) {
        let of_block = toy.block_rows(&block)?;
        let place = Place {
            item: ItemName::of(item),
            rank,
        };
        let hidden = hidden_rows(state, &place, of_block.len());
        let arrival = |place| (block.first_commit, block.ordinal, place);
        let of_block = (0_u32..)
            .zip(of_block)
            .filter(|(at, _)| !hidden.contains(at));
        rows.extend(of_block.map(|(at, r)| (r.0, arrival(at as usize), r.1)));
    }
    Ok(rows)
}

/// A commit that puts a fragment in the place of items.
fn replacing(
    table: TableId,
    removed: Vec<ItemName>,
    added: Vec<Entry>,
    prepared_at: CommitNo,
) -> Commit {
    Commit {
        edits: vec![Edit::Replace(ReplaceEdit::of_rows(table, removed, added))],
        prepared_at: Some(prepared_at),
        ..Commit::default()
    }
}

fn gone(table: TableId) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {} is gone", table.0))
}

/// Whether an error means that nothing was stored. `dead`: the database took no more writes before.
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
