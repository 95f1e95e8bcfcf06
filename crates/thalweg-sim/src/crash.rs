//! Crashes at every storage call of a workload, in every way, and again inside the recovery.
//!
//! Invariants: a state is one (call, choice of what survives); states whose files are the same bytes under the same
//! demands are opened once and counted as what they are, states and distinct images apart. What is checked of an image
//! does not change it for the next check: each check has its own copy. Whatever opens an image has a bounded number of
//! storage calls: what neither returns nor fails by then makes no progress.

use crate::checkpoint_frames::CheckpointCounts;
use crate::oracle::{Bounds, Contents, Prefixes, Violation, check_prefix, contents_of, difference};
use crate::report::{Dice, panic_text};
use crate::resources::{check_closed, check_open_files, check_space_after_drops};
use crate::shape::{DIR, Shape};
use crate::toy::{Toy, columns_of};
use crate::workloads::Workload;
use bytes::Bytes;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, FaultPlan, SimEnv};
use thalweg_kernel::{Commit, CommitNo, Durability, Edit, ErrorKind, FileId, NEW_TABLE};

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct CrashPlan {
    /// Decides everything random.
    pub seed: u64,
    /// Random subsets of the pending changes, per call.
    pub subsets: usize,
    /// Tears of the last write, per call.
    pub tears: usize,
    /// Random fates (torn, size without data, stale bytes), per call.
    pub fates: usize,
    /// Sectors of the last write that cannot be read afterwards, one at a time and all together, per call.
    pub unreadable: usize,
    /// Random fates, sectors that cannot be read among them, of any of the pending changes, per call.
    pub unreadable_fates: usize,
    /// Of so many distinct images one is opened for reading too, written to, closed and opened once more.
    pub deep_every: u64,
    /// Of so many distinct images one crashes again at every call of its recovery.
    pub again_every: u64,
    /// Of so many distinct images of a second crash one crashes a third time.
    pub third_every: u64,
    /// Of so many states inside a recovery one is read by a reader: it must not see what a power cut takes then.
    pub early_every: u64,
    /// Stop at the first violation.
    pub stop_early: bool,
}

impl CrashPlan {
    /// The plan of a usual `cargo test`.
    pub fn usual(seed: u64) -> Self {
        Self {
            seed,
            subsets: 16,
            tears: 24,
            fates: 6,
            unreadable: 3,
            unreadable_fates: 2,
            deep_every: 8,
            again_every: 48,
            third_every: 48,
            early_every: 16,
            stop_early: false,
        }
    }

    /// The plan for a database of the workload's size: every call is crashed at, in fewer ways.
    fn thinned(&self, workload: &Workload) -> Self {
        let one_in = workload.one_in();
        let share = one_in as u64;
        Self {
            subsets: self.subsets.div_ceil(one_in),
            tears: self.tears.div_ceil(one_in),
            fates: self.fates.div_ceil(one_in),
            again_every: self.again_every * share,
            third_every: self.third_every * share,
            ..*self
        }
    }
}

/// The result of a stage: what was done, and what was found.
#[derive(Debug, Default)]
pub struct CrashReport {
    /// Storage calls of the workloads.
    pub calls: u64,
    /// Of them, how many were crashed at.
    pub calls_hit: u64,
    /// (call, choice) pairs.
    pub states: u64,
    /// Images that were opened.
    pub distinct: u64,
    /// Of the states, those of a second crash and of a third.
    pub second: u64,
    /// See `second`.
    pub third: u64,
    /// Images with an unreadable sector of the log that were not opened, or not to the end.
    pub refused: u64,
    /// Images that were written to and opened again.
    pub deep: u64,
    /// Moments at which a reader was compared with what a power cut leaves; of them, those in a recovery.
    pub shown_early: u64,
    /// See `shown_early`.
    pub shown_early_in_recovery: u64,
    /// Images whose files were counted after all tables had been dropped.
    pub emptied: u64,
    /// Largest number of bytes that an opening read.
    pub open_bytes_max: u64,
    /// Most storage calls that a check of an image made.
    pub check_calls_max: u64,
    /// Levels of the highest index.
    pub index_levels: u8,
    /// The checkpoints of the workloads.
    pub checkpoints: CheckpointCounts,
    /// Memory of the database at the end of the workload, and its bound; zeros where nobody counts.
    pub memory_bytes: (u64, u64),
    /// Violations that were found, with the way to repeat each.
    pub violations: Vec<Violation>,
}

impl CrashReport {
    /// Adds another report to this one.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.calls_hit += other.calls_hit;
        self.states += other.states;
        self.distinct += other.distinct;
        self.second += other.second;
        self.third += other.third;
        self.refused += other.refused;
        self.deep += other.deep;
        self.shown_early += other.shown_early;
        self.shown_early_in_recovery += other.shown_early_in_recovery;
        self.emptied += other.emptied;
        self.open_bytes_max = self.open_bytes_max.max(other.open_bytes_max);
        self.check_calls_max = self.check_calls_max.max(other.check_calls_max);
        self.index_levels = self.index_levels.max(other.index_levels);
        self.checkpoints.add(other.checkpoints);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.violations.extend(other.violations);
    }
}

/// Violations kept per workload: the first ones are enough.
const MAX_VIOLATIONS: usize = 5;

/// Values of rows that a check appends: no workload comes so far.
const NEW_VALUE: i64 = 1 << 60;

/// Storage calls of a check of an image, for each of its files and for each call of its workload. The workloads need a third
/// of it.
const CALLS_PER_FILE: u64 = 400;

/// Crashes a workload everywhere.
pub fn crash_everywhere(workload: &Workload, plan: &CrashPlan) -> CrashReport {
    let sim = SimEnv::new(plan.seed);
    sim.record_states(true);
    let mut driver = workload.run(&sim, false);
    let calls = sim.calls();
    let plan = &plan.thinned(workload);
    let prefixes = driver.ledger.prefixes();
    let mut run = Run {
        shape: workload.shape(),
        plan,
        prefixes: &prefixes,
        to_disk: driver.ledger.commits_to_disk(),
        dice: Dice::new(plan.seed),
        seen: HashSet::new(),
        seen_early: HashSet::new(),
        report: CrashReport {
            calls,
            index_levels: driver.index_levels(),
            checkpoints: driver.checkpoints,
            ..CrashReport::default()
        },
    };
    for call in 1..=calls {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        run.report.calls_hit += 1;
        let bounds = driver.ledger.bounds_at(call);
        let place = format!("workload '{}', crash at call {call}", workload.name);
        run.look_early(&state, &place, 1);
        run.crash(&state, &place, bounds, 1);
        if run.is_done() {
            break;
        }
    }
    run.report.memory_bytes = driver.memory().unwrap_or_default();
    let (memory, most) = run.report.memory_bytes;
    if memory > most {
        driver.violations.push(format!(
            "the open database held {memory} bytes of memory, at most {most} may be"
        ));
    }
    for violation in std::mem::take(&mut driver.violations) {
        run.note(&format!("workload '{}'", workload.name), &violation);
    }
    let seed = plan.seed;
    for violation in &mut run.report.violations {
        violation.push_str(&format!("\n  (repeat with THALWEG_SEED={seed})"));
    }
    run.report
}

struct Run<'a> {
    shape: Shape,
    plan: &'a CrashPlan,
    prefixes: &'a Prefixes,
    /// Commits that asked for level `disk`.
    to_disk: Vec<CommitNo>,
    dice: Dice,
    seen: HashSet<(u64, Bounds, bool, u32)>,
    /// Pairs of what a reader saw and what a power cut left, by their files.
    seen_early: HashSet<(u64, u64)>,
    report: CrashReport,
}

/// The demands on an image.
#[derive(Clone, Copy)]
struct Demand {
    least: CommitNo,
    submitted: usize,
    /// The same boot: readers are bound by `live`.
    killed: bool,
}

impl Run<'_> {
    fn is_done(&self) -> bool {
        let found = self.report.violations.len();
        found >= MAX_VIOLATIONS || (self.plan.stop_early && found > 0)
    }

    fn choices(&mut self, state: &SimEnv, depth: u32) -> Vec<CrashChoice> {
        let plan = self.plan;
        let (subsets, tears, fates, unreadable) = match depth {
            1 => (plan.subsets, plan.tears, plan.fates, plan.unreadable),
            2 => (6, 4, 2, 1),
            _ => (3, 2, 1, 1),
        };
        let unreadable_fates = match depth {
            1 => plan.unreadable_fates,
            _ => plan.unreadable_fates.min(1),
        };
        let pending = state.pending_items().len();
        let mut choices = state.crash_choices(subsets, tears, self.dice.draw());
        choices.extend(state.unreadable_choices(unreadable));
        choices.push(CrashChoice::Kill);
        if pending > 1 && depth == 1 {
            choices.extend((1..pending).map(CrashChoice::Prefix));
        }
        if pending > 0 {
            choices.extend((0..fates + unreadable_fates).map(|at| CrashChoice::Random {
                seed: self.dice.draw(),
                unreadable: at >= fates,
            }));
        }
        choices
    }

    /// Crashes a state in every way; the state is one of a machine that is then left alone.
    fn crash(&mut self, state: &SimEnv, place: &str, bounds: Bounds, depth: u32) {
        for choice in self.choices(state, depth) {
            self.report.states += 1;
            match depth {
                1 => {}
                2 => self.report.second += 1,
                _ => self.report.third += 1,
            }
            let killed = choice == CrashChoice::Kill;
            let image = state.crash_image(&choice);
            if !self
                .seen
                .insert((image.content_hash(), bounds, killed, depth.min(2)))
            {
                continue;
            }
            self.report.distinct += 1;
            let demand = Demand {
                least: if killed { bounds.process } else { bounds.disk },
                submitted: bounds.submitted,
                killed,
            };
            let deep = self.dice.below(self.plan.deep_every) == 0;
            let checked = catch_unwind(AssertUnwindSafe(|| self.check(&image, demand, deep)));
            let place = format!("{place}, {choice:?}");
            match checked {
                Ok(Ok(())) => {}
                Ok(Err(error)) if may_refuse(&image, &error) => self.report.refused += 1,
                Ok(Err(violation)) => self.note(&place, &violation),
                Err(panic) => self.note(&place, &panic_text(&*panic)),
            }
            let every = match depth {
                1 => self.plan.again_every,
                2 => self.plan.third_every,
                _ => 0,
            };
            if every > 0 && self.dice.below(every) == 0 {
                let after = Bounds {
                    process: demand.least,
                    ..bounds
                };
                self.crash_recovery(&state.crash_image(&choice), &place, after, depth + 1);
            }
            if self.is_done() {
                return;
            }
        }
    }

    /// Crashes at every call of the recovery of an image.
    fn crash_recovery(&mut self, image: &SimEnv, place: &str, bounds: Bounds, depth: u32) {
        image.record_states(true);
        let opened = self.shape.open(&image.env());
        let calls = image.calls();
        let Ok(toy) = opened else {
            return; // Noted by the check of the image.
        };
        let Ok((served, _)) = contents_of(&toy) else {
            return;
        };
        for call in 1..=calls {
            let Some(state) = image.state_at(call) else {
                continue;
            };
            let place = format!("{place}; again at call {call} of the recovery");
            self.look_early(&state, &place, depth);
            self.crash(&state, &place, bounds, depth);
            if self.is_done() {
                return;
            }
        }
        // What an opening has shown must not go any more, though nobody wrote anything since.
        let bounds = Bounds {
            disk: served,
            process: served,
            ..bounds
        };
        let place = format!("{place}; again after the recovery");
        self.look_early(image, &place, depth);
        self.crash(&image.clone(), &place, bounds, 3);
        drop(toy);
    }

    fn note(&mut self, place: &str, violation: &str) {
        self.report.violations.push(format!("{place}: {violation}"));
    }

    /// Checks that no power cut may take back what another process sees while a database is written or recovered.
    fn look_early(&mut self, state: &SimEnv, place: &str, depth: u32) {
        let reader = state.crash_image(&CrashChoice::Kill);
        let cut = state.crash_image(&CrashChoice::DropAll);
        let files = (reader.content_hash(), cut.content_hash());
        if !self.seen_early.insert(files) {
            return;
        }
        self.report.shown_early += 1;
        self.report.shown_early_in_recovery += u64::from(depth > 1);
        let looked = AssertUnwindSafe(|| self.check_shown_early(&reader, &cut));
        match catch_unwind(looked) {
            Ok(Ok(())) => {}
            Ok(Err(violation)) => self.note(place, &violation),
            Err(panic) => self.note(place, &panic_text(&*panic)),
        }
    }

    /// Opens the image of a crash and checks everything, within a bounded number of storage calls.
    fn check(&mut self, image: &SimEnv, demand: Demand, deep: bool) -> Result<(), Violation> {
        let most = CALLS_PER_FILE * (image.files().len() as u64 + 8) + 4 * self.report.calls;
        image.set_plan(FaultPlan::crash_at(most));
        let checked = self.check_image(image, demand, deep);
        let calls = image.calls();
        self.report.check_calls_max = self.report.check_calls_max.max(calls);
        if image.is_crashed() {
            return Err(format!("{calls} storage calls and no end: {checked:?}"));
        }
        checked
    }

    /// Opens the image of a crash and checks everything.
    fn check_image(&mut self, image: &SimEnv, demand: Demand, deep: bool) -> Result<(), Violation> {
        if deep {
            self.report.deep += 1;
            let copy = image.crash_image(&CrashChoice::Kill);
            self.check_read_only(&copy, demand)?;
        }
        let before: Vec<(PathBuf, u64)> = image.files();
        let toy = self
            .shape
            .open(&image.env())
            .map_err(|e| format!("opening: {e:?}"))?;
        let read = image.stats().bytes_read;
        // Around a sector that cannot be read, frame by frame is read.
        if image.unreadable_files().is_empty() {
            self.check_open_bytes(&before, read)?;
        }
        let found = contents_of(&toy)?;
        check_prefix(&found, self.prefixes, demand.least, demand.submitted)?;
        let process_id = image.process_id();
        check_open_files(image, process_id)?;
        if !deep {
            // One that outlives the database keeps no file open.
            let _snapshot = toy.kernel.snapshot();
            drop(toy);
            return check_closed(image, process_id);
        }
        let served = image.crash_image(&CrashChoice::DropAll);
        let again = self.reread(&served, "after a power cut behind the recovery")?;
        same(&found, &again, "after a power cut behind the recovery")?;
        self.check_goes_on(image, toy, found, &before)
    }

    /// Checks that opening reads the log after the checkpoint a bounded number of times, and nothing else.
    fn check_open_bytes(&mut self, files: &[(PathBuf, u64)], read: u64) -> Result<(), Violation> {
        self.report.open_bytes_max = self.report.open_bytes_max.max(read);
        let log: u64 = files
            .iter()
            .filter(|(path, _)| path.starts_with(Path::new(DIR).join("log")))
            .map(|(_, bytes)| bytes)
            .sum();
        // Root, `live` and headers are read several times, however small the log is.
        if read > 3 * log + (64 << 10) {
            return Err(format!("opening read {read} bytes of a log of {log}"));
        }
        Ok(())
    }

    fn reread(&self, image: &SimEnv, when: &str) -> Result<(CommitNo, Contents), Violation> {
        let toy = self
            .shape
            .open(&image.env())
            .map_err(|e| format!("opening {when}: {e:?}"))?;
        contents_of(&toy)
    }

    /// Checks that a power cut now does not take back commits to disk that another process sees now.
    fn check_shown_early(&self, reader: &SimEnv, cut: &SimEnv) -> Result<(), Violation> {
        let toy = match self.shape.open_read_only(&reader.env()) {
            Ok(toy) => toy,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(format!("reading while it is written: {e:?}")),
        };
        let (shown, _) = contents_of(&toy)?;
        let promised = self.to_disk.iter().rev().find(|commit| **commit <= shown);
        let (left, _) = self.reread(cut, "after a power cut")?;
        match promised {
            Some(promised) if left < *promised => Err(format!(
                "a reader was shown commit {} to disk, a power cut leaves {}",
                promised.0, left.0
            )),
            _ => Ok(()),
        }
    }

    /// A reader sees the same, and writes nothing but its slot.
    fn check_read_only(&self, image: &SimEnv, demand: Demand) -> Result<(), Violation> {
        let before = files_but_readers(image);
        let toy = match self.shape.open_read_only(&image.env()) {
            Ok(toy) => toy,
            Err(e) if e.kind() == ErrorKind::NotFound && demand.least == CommitNo(0) => {
                return unchanged(&before, &files_but_readers(image));
            }
            Err(e) => return Err(format!("opening read-only: {e:?}")),
        };
        let found = contents_of(&toy).map_err(|e| format!("read-only: {e}"))?;
        check_prefix(&found, self.prefixes, demand.least, demand.submitted)
            .map_err(|e| format!("read-only: {e}"))?;
        let _snapshot = toy.kernel.snapshot();
        drop(toy);
        check_closed(image, image.process_id())?;
        unchanged(&before, &files_but_readers(image))?;
        let writer = image.crash_image(&CrashChoice::Kill);
        let (commit, _) = self.reread(&writer, "for writing")?;
        // A reader of the same boot stops at what was acknowledged; else it recovers what a writer would.
        if commit < found.0 || (commit > found.0 && !demand.killed) {
            return Err(format!(
                "a reader sees commit {}, a writer {}",
                found.0.0, commit.0
            ));
        }
        Ok(())
    }

    /// New appends work and survive a clean close; numbers never go back.
    fn check_goes_on(
        &mut self,
        image: &SimEnv,
        toy: Toy,
        (commit, mut contents): (CommitNo, Contents),
        before: &[(PathBuf, u64)],
    ) -> Result<(), Violation> {
        let doing = |what: &str| {
            let what = format!("{what} after the recovery");
            move |e: thalweg_kernel::Error| format!("{what}: {e:?}")
        };
        let first = {
            let snapshot = toy.kernel.snapshot().map_err(doing("a snapshot"))?;
            let mut tables = snapshot.tables();
            tables
                .next()
                .map(|table| (table.name.to_string(), table.id))
        };
        let (name, id) = match first {
            Some(table) => table,
            None => {
                let edit = Edit::CreateTable {
                    table: NEW_TABLE,
                    name: "new".into(),
                    definition: Bytes::from_static(b"toy"),
                    indexes: 0,
                };
                let create = Commit {
                    edits: vec![edit],
                    ..Commit::default()
                };
                let created = toy.kernel.commit(create, Durability::Disk);
                created.map_err(doing("creating a table"))?;
                let snapshot = toy.kernel.snapshot().map_err(doing("a snapshot"))?;
                let new = snapshot.table_named("new").ok_or("no new table")?;
                contents.insert("new".into(), Vec::new());
                ("new".to_owned(), new.id)
            }
        };
        let snapshot = toy.kernel.snapshot().map_err(doing("a snapshot"))?;
        let table = snapshot.table(id).ok_or("the table is gone")?;
        drop(snapshot);
        let version = table.definition_version;
        // A table of one column has no keys.
        let key = if columns_of(&table.definition) == 1 {
            0
        } else {
            1000
        };
        drop(table);
        let rows = [(-key, NEW_VALUE), (key, NEW_VALUE + 1)];
        let mut part = crate::toy::rows_part(id, &rows);
        part.definition_version = version;
        let append = Commit {
            rows: vec![part],
            ..Commit::default()
        };
        let stored = toy
            .kernel
            .commit(append, Durability::Disk)
            .map_err(doing("an append"))?;
        if stored <= commit {
            return Err(format!(
                "commit numbers went back: {} after {}",
                stored.0, commit.0
            ));
        }
        let all = contents.get_mut(&name).ok_or("the table is gone")?;
        all.extend(rows);
        all.sort_by_key(|row| row.0);
        let now = contents_of(&toy)?;
        same_contents(&contents, &now.1, "after an append")?;
        check_whole(&toy)?;
        toy.kernel
            .collect_garbage()
            .map_err(doing("collecting garbage"))?;
        check_no_orphans(image, &toy)?;
        check_whole(&toy)?;
        toy.kernel.close().map_err(doing("closing"))?;
        check_closed(image, image.process_id())?;
        drop(toy);
        let again = self.reread(image, "a second time")?;
        same_contents(&contents, &again.1, "after closing and opening again")?;
        if again.0 < stored {
            return Err("the append after the recovery is gone".into());
        }
        ids_rise(before, &image.files())?;
        self.check_empties(image)
    }
}

/// A database without tables takes no more space than a new one, whatever it went through.
impl Run<'_> {
    fn check_empties(&mut self, image: &SimEnv) -> Result<(), Violation> {
        if self.dice.below(self.plan.deep_every) != 0 {
            return Ok(());
        }
        self.report.emptied += 1;
        let toy = self.shape.open(&image.env());
        let toy = toy.map_err(|e| format!("opening to free space: {e:?}"))?;
        check_space_after_drops(image, &self.shape, &toy)?;
        drop(toy);
        check_closed(image, image.process_id())
    }
}

/// Whether an error is one that a person has to decide about: a sector of the log cannot be read where the log may go on
/// (`docs/decisions/crash-rules.md`). One slot of the root is no reason for it.
fn may_refuse(image: &SimEnv, error: &str) -> bool {
    let log = Path::new(DIR).join("log");
    let of_log = |path: &PathBuf| path.starts_with(&log);
    error.contains("os error 5") && image.unreadable_files().iter().any(of_log)
}

/// The database finds no fault with itself.
fn check_whole(toy: &Toy) -> Result<(), Violation> {
    let report = toy.kernel.verify(&mut |_| {});
    let report = report.map_err(|e| format!("verifying: {e:?}"))?;
    match report.damage.first() {
        None => Ok(()),
        Some(damage) => Err(format!("verify finds damage: {damage}")),
    }
}

/// After one round of garbage collection only files are left that something leads to.
fn check_no_orphans(image: &SimEnv, toy: &Toy) -> Result<(), Violation> {
    let snapshot = toy.kernel.snapshot();
    let snapshot = snapshot.map_err(|e| format!("a snapshot: {e:?}"))?;
    let mut needed = HashSet::new();
    for table in snapshot.tables() {
        for (_, tree) in table.trees() {
            let visited = tree.visit(None, &**toy.kernel.store(), &mut |entry| {
                needed.insert(entry.address.file.0);
                thalweg_kernel::index::Step::Descend
            });
            visited.map_err(|e| format!("walking the index: {e:?}"))?;
        }
    }
    let ids = |extension: &str| -> Vec<u64> {
        let files = image.files();
        let of_kind = files
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == extension));
        of_kind.filter_map(|(path, _)| file_id(path)).collect()
    };
    // Empty ones that a failed writer left go with other garbage: alone they are not worth a checkpoint.
    let is_empty = |id: &u64| {
        let path = toy.kernel.store().fragment_path(FileId(*id));
        image.read_file(&path).is_ok_and(|bytes| bytes.is_empty())
    };
    let orphans: Vec<u64> = ids("frag")
        .into_iter()
        .filter(|id| !needed.contains(id) && !is_empty(id))
        .collect();
    if !orphans.is_empty() {
        return Err(format!(
            "fragments {orphans:x?} are left, and nothing needs them"
        ));
    }
    // The segment of the two checkpoints, the one the log is in, and root pages that visiting does not name.
    let segments = ids("seg");
    let extra = segments.iter().filter(|id| !needed.contains(id)).count();
    if extra > 3 + needed.len() || ids("spare").len() > 2 {
        return Err(format!(
            "{extra} of segments {segments:x?} are left, needed are {needed:x?}"
        ));
    }
    Ok(())
}

/// The id in a file's name.
fn file_id(path: &Path) -> Option<u64> {
    u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()
}

fn same(
    want: &(CommitNo, Contents),
    found: &(CommitNo, Contents),
    when: &str,
) -> Result<(), Violation> {
    if found.0 < want.0 {
        return Err(format!(
            "commit {} was shown, {when} there is {}",
            want.0.0, found.0.0
        ));
    }
    same_contents(&want.1, &found.1, when)
}

fn same_contents(want: &Contents, found: &Contents, when: &str) -> Result<(), Violation> {
    if want == found {
        Ok(())
    } else {
        Err(format!("{when}: {}", difference(want, found)))
    }
}

/// Files that are new have higher ids than any that were there.
fn ids_rise(before: &[(PathBuf, u64)], after: &[(PathBuf, u64)]) -> Result<(), Violation> {
    let id = |path: &Path| {
        let is_id = path.extension().is_some_and(|e| e == "seg" || e == "frag");
        is_id.then(|| file_id(path)).flatten()
    };
    let old: HashSet<&PathBuf> = before.iter().map(|(path, _)| path).collect();
    if !old.contains(&Path::new(DIR).join("root")) {
        return Ok(()); // No database yet: the next one has another id, which seals all its files.
    }
    let highest = before.iter().filter_map(|(path, _)| id(path)).max();
    for (path, _) in after {
        if let (Some(new), Some(highest)) = (id(path), highest)
            && !old.contains(path)
            && new <= highest
        {
            return Err(format!(
                "{} is new, but {highest:x} was used already",
                path.display()
            ));
        }
    }
    Ok(())
}

fn files_but_readers(image: &SimEnv) -> Vec<(PathBuf, Vec<u8>)> {
    let readers = Path::new(DIR).join("readers");
    image
        .files()
        .into_iter()
        .filter(|(path, _)| *path != readers)
        .map(|(path, _)| {
            let bytes = image.read_file(&path).expect("a file that is listed");
            (path, bytes)
        })
        .collect()
}

fn unchanged(before: &[(PathBuf, Vec<u8>)], after: &[(PathBuf, Vec<u8>)]) -> Result<(), Violation> {
    if before == after {
        return Ok(());
    }
    let changed: Vec<_> = after
        .iter()
        .filter(|file| !before.contains(file))
        .map(|(path, _)| path.display().to_string())
        .collect();
    Err(format!("a reader changed {changed:?}"))
}
