//! Databases that are damaged and then repaired.
//!
//! Invariants: a repair that ends without an error leaves a database that opens, in which `verify` finds nothing and a second
//! repair nothing to do; no row is there that was never committed or was dropped, none twice; and every committed row
//! that is missing lies in something that the report lists. A repair that fails leaves all data as it was.

mod epochs;
mod expected;
mod names;
mod pages;
mod slots;

pub use epochs::{
    damage_only_checkpoint, fail_reads, floors_around_repair, of_one_checkpoint, removed_between,
};
pub use names::{damage_frames_of, names_given_again};
pub use pages::{
    damage_pages, damage_pages_and_frames, damage_pages_beside_another_slot, merged,
    merged_behind_a_lost_page, merged_copies_behind_a_lost_page,
};
pub use slots::lose_slots;

use crate::damage::{End, open_and_read_repaired};
use crate::driver::Driver;
use crate::files::{Files, files_of};
use crate::oracle::{Contents, Effect, Ledger, Op, Outcome, Violation, difference};
use crate::report::{Dice, panic_text};
use crate::shape::{DIR, Shape};
use crate::toy::Row;
use expected::Expected;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use thalweg_env::OpenMode;
use thalweg_env::sim::{CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::index::{Address, Step};
use thalweg_kernel::paths::{fragment_name, segment_name};
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_kernel::verify::Damage;
use thalweg_kernel::{CommitNo, Durability, ErrorKind};

/// A database before it is damaged, and what was ever stored in it.
#[derive(Clone)]
pub struct Patient {
    /// Where it is from.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// The machine it lies on; nobody has it open.
    pub sim: SimEnv,
    /// The operations that made it.
    pub ledger: Ledger,
    /// The contents that it shows, undamaged.
    pub contents: Contents,
    /// The commit that it shows.
    pub commit: CommitNo,
    /// Frames after this commit may be taken for torn if they are damaged.
    pub surely_proven: CommitNo,
    /// Nothing but the log itself shows how far it went: where a file of it is cut, that looks like a torn end.
    pub live_is_lost: bool,
    /// The pages of its index that lie in segments.
    pub pages: Vec<Address>,
    /// Its blocks, each with its table and rows.
    pub blocks: Vec<(Address, String, Vec<Row>)>,
}

impl Patient {
    /// A database as a crash left it, or as it was closed.
    pub fn of(name: &str, driver: &Driver, image: SimEnv, closed: bool, killed: bool) -> Self {
        let opened = image.crash_image(&CrashChoice::KeepAll);
        let toy = driver.shape().open(&opened.env()).expect("undamaged");
        let (commit, contents) = crate::oracle::contents_of(&toy).expect("whole");
        let (mut blocks, mut pages) = (Vec::new(), Vec::new());
        for table in toy.kernel.snapshot().expect("open").tables() {
            for entry in table.tree.iter(None, &**toy.kernel.store()) {
                let entry = entry.expect("whole");
                let rows = toy.block_rows(&entry).expect("whole");
                blocks.push((entry.address, table.name.to_string(), rows));
            }
            let store = &**toy.kernel.store();
            let in_segment = |address: &Address| {
                let path = store.segment_path(address.file);
                opened.read_file(&path).is_ok()
            };
            for (_, tree) in table.trees() {
                let visited = tree.visit(None, store, &mut |entry| {
                    if !entry.is_block() && in_segment(&entry.address) {
                        pages.push(entry.address);
                    }
                    Step::Descend
                });
                visited.expect("whole");
            }
        }
        let ledger = &driver.ledger;
        let last = ledger.commits_to_disk().last().copied();
        let is_last = |op: &&Op| matches!(op.outcome, Outcome::Stored(c, _) if Some(c) == last);
        let last_call = ledger.ops.iter().find(is_last).map(|op| op.before_call);
        let before = ledger.bounds_at(last_call.unwrap_or_default() + 1).disk;
        let last = last.unwrap_or_default();
        Self {
            name: name.to_owned(),
            shape: driver.shape().clone(),
            sim: image,
            ledger: driver.ledger.clone(),
            surely_proven: match (closed, killed) {
                (true, _) => commit,
                (false, true) => last,
                // `live` is lost as well, which knew that the last sync had come back.
                (false, false) => before,
            },
            live_is_lost: !closed && !killed,
            contents,
            commit,
            pages,
            blocks,
        }
    }

    /// A copy to damage.
    pub fn image(&self) -> SimEnv {
        self.sim.crash_image(&CrashChoice::KeepAll)
    }

    /// Copies, each damaged in one of the ways that a repair meets: a block, a page, a header, the log, the root.
    pub fn damaged_everywhere(&self, dice: &mut Dice) -> Vec<SimEnv> {
        let image = self.image();
        let root = Path::new(DIR).join("root");
        image.remove_file(&root).expect("a root");
        let mut images = vec![image];
        for (path, bytes) in files_of(&self.sim) {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let used = bytes
                .iter()
                .rposition(|b| *b != 0)
                .map_or(0, |last| last + 1);
            let places = match path.extension().and_then(|e| e.to_str()) {
                _ if name == "root" => vec![(0, bytes.len())],
                Some("seg" | "frag") if used > 0 => {
                    let somewhere = dice.below(used as u64);
                    let somewhere = usize::try_from(somewhere).expect("a small file");
                    vec![(20, 1), (somewhere, 1), (used - 1, 1)]
                }
                _ => Vec::new(),
            };
            for (at, length) in places {
                let image = self.image();
                let junk: Vec<u8> = bytes[at..at + length].iter().map(|b| b ^ 0x42).collect();
                image
                    .overwrite_file(&path, at as u64, &junk)
                    .expect("a file");
                let probe = image.crash_image(&CrashChoice::KeepAll);
                // Some bytes are not checked: a segment that nothing leads to, the tail of the log.
                if repair_once(&self.shape, &probe).is_ok_and(|report| !report.is_clean()) {
                    images.push(image);
                }
            }
        }
        images
    }

    /// Whether what a repair left can be explained by what it lists.
    fn check_explained(&self, report: &RepairReport, found: &Contents) -> Result<(), Violation> {
        // When it was stored its name was free.
        let of_name = |damage: &&Damage| damage.what.contains("exists already");
        if let Some(damage) = report.given_up.iter().find(of_name) {
            return Err(format!("left out for a name: {damage}"));
        }
        let mut first = None;
        for last in (self.surely_proven.0..=self.commit.0).rev() {
            let best = Expected::after(&self.ledger, &report.given_up, CommitNo(last));
            let explained = check_missing(&best.contents(), &report.given_up, found)
                .and_then(|()| best.check_renamed(&report.renamed));
            match explained {
                Ok(()) => return Ok(()),
                Err(violation) => _ = first.get_or_insert(violation),
            }
        }
        Err(first.unwrap_or_default())
    }
}

fn check_missing(best: &Contents, given_up: &[Damage], found: &Contents) -> Result<(), Violation> {
    let names = |contents: &Contents| contents.keys().cloned().collect::<BTreeSet<_>>();
    if names(best) != names(found) {
        return Err(difference(best, found));
    }
    for (name, want) in best {
        let there: BTreeSet<&Row> = found[name].iter().collect();
        if there.len() < found[name].len() {
            return Err(format!("table {name} has rows twice"));
        }
        let wanted: BTreeSet<&Row> = want.iter().collect();
        if let Some(row) = there.difference(&wanted).next() {
            return Err(format!(
                "table {name} has {row:?}, which should not be there"
            ));
        }
        let is_listed = |row: &Row| {
            let of_table = given_up.iter().filter(|d| d.table.as_ref() == Some(name));
            of_table
                .filter_map(|damage| damage.keys)
                .any(|(first, last)| (first..=last).contains(&row.0))
        };
        if let Some(row) = wanted.difference(&there).find(|row| !is_listed(row)) {
            return Err(format!("{row:?} of table {name} is missing and not listed"));
        }
    }
    Ok(())
}

/// A closed database with everything in it.
pub fn closed() -> Patient {
    let sim = SimEnv::new(21);
    let mut db = Driver::start(&sim, Shape::new(4096, 16), false);
    history(&mut db);
    db.close();
    let image = sim.crash_image(&CrashChoice::KeepAll);
    Patient::of("closed", &db, image, true, true)
}

/// A killed database with the history of `closed`.
pub fn killed() -> Patient {
    let sim = SimEnv::new(22);
    let mut db = Driver::start(&sim, Shape::new(4096, 16), false);
    history(&mut db);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    Patient::of("killed", &db, image, false, true)
}

/// Two tables, raw rows, blocks, fragments, several segments, several epochs, and a log after the last checkpoint.
fn history(db: &mut Driver) {
    use Durability::{Disk, Process};
    db.create("t");
    db.create("u");
    db.append_group("t", (0..64).map(|k| k * 1_000), Process);
    db.append_group("u", (0..20).map(|k| k * k * 7919 % 104_729), Process);
    db.reopen();
    db.append_fragment("t", 5_000..5_080);
    db.append_group("t", [7, 7, 7, 500, 31_000], Process);
    db.append("t", [40_000, 3], Disk);
    db.reopen();
    db.append("u", [1, 1, 99], Process);
    db.create("v");
    db.append("v", 0..20, Disk);
    db.append_group("v", 100..120, Disk);
    db.append_fragment("u", 300..330);
    db.append("u", [2, 3, 4], Disk);
}

/// The results of repairs of damaged databases.
#[derive(Debug, Default)]
pub struct RepairStage {
    /// Databases repaired.
    pub repairs: u64,
    /// Of these, those in which nothing was found.
    pub clean: u64,
    /// Those that lost nothing.
    pub mended: u64,
    /// Those that gave something up.
    pub gave_up: u64,
    /// Those that could not be repaired.
    pub errors: u64,
    /// Violations that were found.
    pub violations: Vec<Violation>,
}

/// How a repair ended.
pub enum Repaired {
    /// With this report and these rows.
    Done(Box<RepairReport>, Contents),
    /// With an error; nothing was changed.
    Error(String),
}

impl RepairStage {
    /// Adds another stage to this one.
    pub fn add(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.clean += other.clean;
        self.mended += other.mended;
        self.gave_up += other.gave_up;
        self.errors += other.errors;
        self.violations.extend(other.violations);
    }

    /// Repairs a damaged copy and checks all that must hold.
    pub fn run(&mut self, patient: &Patient, image: &SimEnv, what: &str) -> Option<Repaired> {
        let ended = self.judge(patient, image, what, |ended| {
            if let Repaired::Done(report, contents) = &ended {
                patient.check_explained(report, contents)?;
            }
            Ok(ended)
        })?;
        match &ended {
            Repaired::Error(_) => self.errors += 1,
            Repaired::Done(report, _) if report.is_clean() => self.clean += 1,
            Repaired::Done(report, _) if report.given_up.is_empty() => self.mended += 1,
            Repaired::Done(..) => self.gave_up += 1,
        }
        Some(ended)
    }

    /// Repairs a copy; `check` decides whether it ended as it must. A panic is a violation.
    fn judge<R>(
        &mut self,
        patient: &Patient,
        image: &SimEnv,
        what: &str,
        check: impl FnOnce(Repaired) -> Result<R, Violation>,
    ) -> Option<R> {
        self.repairs += 1;
        let run = || check(repair_and_check(&patient.shape, image)?);
        let judged = catch_unwind(AssertUnwindSafe(run));
        match judged.unwrap_or_else(|panic| Err(panic_text(&*panic))) {
            Ok(found) => Some(found),
            Err(violation) => {
                self.note(patient, what, &violation);
                None
            }
        }
    }

    /// Judges a repair that must end with these rows.
    fn must_end_with(&mut self, patient: &Patient, image: &SimEnv, want: &Contents, what: &str) {
        self.judge(patient, image, what, |ended| match ended {
            Repaired::Done(_, contents) if contents == *want => Ok(()),
            Repaired::Done(_, contents) => Err(difference(want, &contents)),
            Repaired::Error(error) => Err(error),
        });
    }

    fn note(&mut self, patient: &Patient, what: &str, violation: &str) {
        self.violations
            .push(format!("{}: {what}: {violation}", patient.name));
    }

    /// The first violations are enough.
    fn is_done(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS
    }
}

const MAX_VIOLATIONS: usize = 5;

/// All files but those that any opening may write.
fn data_of(image: &SimEnv) -> Files {
    let mut files = files_of(image);
    files.retain(|path, _| {
        path.file_name()
            .is_none_or(|name| name != "lock" && name != "readers")
    });
    files
}

fn repair_once(shape: &Shape, image: &SimEnv) -> thalweg_kernel::Result<RepairReport> {
    repair(&image.env(), Path::new(DIR), &shape.options, &mut |_| {})
}

/// Repairs a database; it must be whole afterwards.
pub fn repair_and_check(shape: &Shape, image: &SimEnv) -> Result<Repaired, Violation> {
    let before = data_of(image);
    let report = match repair_once(shape, image) {
        Ok(report) => report,
        Err(error) if data_of(image) == before => return Ok(Repaired::Error(format!("{error:?}"))),
        Err(error) => return Err(format!("a repair failed and changed files: {error:?}")),
    };
    if report.is_clean() && data_of(image) != before {
        return Err("a repair found nothing and changed files".to_owned());
    }
    let told = format!("{:?} / {:?}", report.given_up, report.mended);
    let again = repair_once(shape, image).map_err(|e| format!("repairing again: {e:?}"))?;
    if !again.is_clean() {
        let left = format!("{:?} / {:?}", again.given_up, again.mended);
        return Err(format!("a second repair finds: {left}; after {told}"));
    }
    let read_only = rows_of(shape, image, true).map_err(|e| format!("{e}; after {told}"))?;
    // As a process would find it that opens it next: an opening for writing mends some of what it finds.
    for open in [Shape::open_read_only, Shape::open] {
        let toy = open(shape, &image.env());
        let toy = toy.map_err(|e| format!("opening: {e:?}; after {told}"))?;
        let verified = toy.kernel.verify(&mut |_| {});
        let verified = verified.map_err(|e| format!("verifying: {e:?}"))?;
        if let Some(damage) = verified.damage.first() {
            return Err(format!("verify finds {damage}; after {told}"));
        }
    }
    let toy = shape.open(&image.env());
    let toy = toy.map_err(|e| format!("opening: {e:?}; after {told}"))?;
    check_goes_on(&toy)?;
    drop(toy);
    let mut contents = rows_of(shape, image, false)?;
    contents.remove("new");
    if contents != read_only {
        let difference = difference(&read_only, &contents);
        return Err(format!("an opening changed the rows: {difference}"));
    }
    Ok(Repaired::Done(Box::new(report), contents))
}

fn rows_of(shape: &Shape, image: &SimEnv, read_only: bool) -> Result<Contents, Violation> {
    match open_and_read_repaired(shape, image, read_only) {
        End::Rows(rows) => Ok(rows),
        End::Error(text) | End::Panic(text) => Err(format!("opening: {text}")),
    }
}

/// New tables, rows and garbage collection work.
fn check_goes_on(toy: &crate::toy::Toy) -> Result<(), Violation> {
    let failed = |e| format!("going on: {e:?}");
    let table = toy.create("new").map_err(failed)?;
    toy.append(table, &[(1, -1), (2, -2)], Durability::Disk)
        .map_err(failed)?;
    toy.kernel.collect_garbage().map_err(failed)?;
    match toy.rows(table).map_err(failed)?.len() {
        2 => Ok(()),
        rows => Err(format!("a new table has {rows} rows")),
    }
}

/// Flips a bit in one of `one_in` bytes of every file; in the zeros at its end, in one of 20 times as many.
pub fn flip_bytes(patient: &Patient, one_in: u64, dice: &mut Dice) -> RepairStage {
    let mut stage = RepairStage::default();
    for (path, bytes) in files_of(&patient.sim) {
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        for (at, old) in bytes.iter().enumerate() {
            let one_in = if at > used + 8 && one_in > 1 {
                20 * one_in
            } else {
                one_in
            };
            if dice.below(one_in) != 0 {
                continue;
            }
            let image = patient.image();
            let new = old ^ (1 << dice.below(8));
            let changed = image.overwrite_file(&path, at as u64, &[new]);
            changed.expect("a file of the patient");
            let what = format!("byte {at} of {} set to {new:#04x}", path.display());
            let ended = stage.run(patient, &image, &what);
            if let Some(Repaired::Error(error)) = &ended {
                stage.note(patient, &what, error);
            }
            if let Some(Repaired::Done(report, contents)) = &ended {
                let confined = check_confined(patient, &path, at as u64, report, contents);
                if let Err(violation) = confined {
                    stage.note(patient, &what, &violation);
                }
            }
            if stage.is_done() {
                return stage;
            }
        }
    }
    stage
}

/// Damage inside one block costs just its rows.
fn check_confined(
    patient: &Patient,
    path: &Path,
    at: u64,
    report: &RepairReport,
    contents: &Contents,
) -> Result<(), Violation> {
    let is_hit = |address: &Address| {
        let id = format!("{:016x}", address.file.0);
        let inside = address.offset..address.offset + u64::from(address.bytes);
        path.file_stem().is_some_and(|stem| stem == id.as_str()) && inside.contains(&at)
    };
    let Some((_, table, rows)) = patient.blocks.iter().find(|(address, ..)| is_hit(address)) else {
        return Ok(());
    };
    let mut want = patient.contents.clone();
    if let Some(all) = want.get_mut(table) {
        all.retain(|row| !rows.contains(row));
    }
    // Of a frame that nothing proves a torn block is a torn end; and no byte is read twice of one that is moved.
    if *contents == want || *contents == patient.contents && report.is_clean() {
        return Ok(());
    }
    let of_tail = patient.commit > patient.surely_proven;
    if of_tail {
        Ok(())
    } else {
        Err(difference(&want, contents))
    }
}

/// Commits that rest on each other, with nothing but the first checkpoint before them.
pub fn dependent() -> Patient {
    use Durability::Disk;
    let sim = SimEnv::new(24);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 4), false);
    db.create("a");
    db.create("b");
    for k in 0..4 {
        // Each is covered by a commit of its own.
        db.append("a", k * 10..k * 10 + 4, Disk);
        db.append("b", k * 10..k * 10 + 4, Disk);
    }
    db.create("c");
    db.append("c", 0..3, Disk);
    db.rename("a", "d");
    // In use, so that nothing is collected: the checkpoints of that would hold all of this.
    let in_use = db.toy().map(|toy| toy.kernel.snapshot());
    db.merge("d");
    db.append_group("d", 0..8, Disk);
    db.merge("d");
    db.create("e");
    db.drop_table("b");
    db.append("e", 0..3, Disk);
    drop(in_use);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    Patient::of("dependent", &db, image, false, true)
}

/// Overwrites every stretch of some lengths of the log.
pub fn damage_stretches(patient: &Patient, lengths: &[usize], step: usize) -> RepairStage {
    let mut stage = RepairStage::default();
    for (path, bytes) in files_of(&patient.sim) {
        let Some(used) = bytes.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        for length in lengths {
            for at in (0..used).step_by(step) {
                let image = patient.image();
                let length = (*length).min(bytes.len() - at);
                let junk = vec![0x5A; length];
                image
                    .overwrite_file(&path, at as u64, &junk)
                    .expect("a segment");
                let what = format!("{length} bytes at {at} of {}", path.display());
                stage.run(patient, &image, &what);
                if stage.is_done() {
                    return stage;
                }
            }
        }
    }
    stage
}

/// Cuts files, removes them, overwrites stretches of them, and both slots of the root.
pub fn coarse_damage(patient: &Patient, rounds: usize, dice: &mut Dice) -> RepairStage {
    let mut stage = RepairStage::default();
    let mut patient = patient.clone();
    if patient.live_is_lost {
        patient.surely_proven = CommitNo(0);
    }
    let patient = &patient;
    let files = files_of(&patient.sim);
    let data: Vec<(&PathBuf, &Vec<u8>)> = files.iter().filter(|(_, b)| !b.is_empty()).collect();
    for (path, _) in &data {
        let image = patient.image();
        image.remove_file(path).expect("a file");
        stage.run(patient, &image, &format!("{} removed", path.display()));
    }
    let root = Path::new(DIR).join("root");
    let image = patient.image();
    image
        .overwrite_file(&root, 0, &[0xAA; 8192])
        .expect("a root");
    let ended = stage.run(patient, &image, "both slots of the root");
    if let Some(Repaired::Error(error)) = ended {
        stage
            .violations
            .push(format!("both slots of the root: {error}"));
    }
    for _ in 0..rounds {
        let (path, bytes) =
            data[usize::try_from(dice.below(data.len() as u64)).expect("few files")];
        let at = dice.below(bytes.len() as u64);
        let image = patient.image();
        if dice.below(2) == 0 {
            image.set_file_len(path, at).expect("a file");
            let what = format!("{} cut to {at} bytes", path.display());
            stage.run(patient, &image, &what);
        } else {
            let length = (dice.below(600) + 1).min(bytes.len() as u64 - at);
            let junk = vec![0x5A; usize::try_from(length).expect("short")];
            image.overwrite_file(path, at, &junk).expect("a file");
            let what = format!("{length} bytes at {at} of {} overwritten", path.display());
            stage.run(patient, &image, &what);
        }
        if stage.is_done() {
            break;
        }
    }
    stage
}

/// Several damaged places at once: nothing is made up, and what is repaired is whole.
pub fn several_places(patient: &Patient, rounds: usize, dice: &mut Dice) -> RepairStage {
    let mut stage = RepairStage::default();
    let files = files_of(&patient.sim);
    let data: Vec<(&PathBuf, &Vec<u8>)> = files.iter().filter(|(_, b)| !b.is_empty()).collect();
    let ever = ever_stored(&patient.ledger);
    for _ in 0..rounds {
        let image = patient.image();
        let mut what = Vec::new();
        for _ in 0..2 + dice.below(5) {
            let (path, bytes) = data[usize::try_from(dice.below(data.len() as u64)).expect("few")];
            let used = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) as u64 + 1;
            let at = dice.below(used);
            let changed = image.overwrite_file(path, at, &[0xC3]);
            changed.expect("a file");
            what.push(format!("{}:{at}", path.display()));
        }
        stage.judge(patient, &image, &format!("{what:?}"), |ended| match ended {
            Repaired::Done(_, contents) => check_made_up(&ever, &contents),
            Repaired::Error(_) => Ok(()),
        });
        if stage.is_done() {
            break;
        }
    }
    stage
}

fn ever_stored(ledger: &Ledger) -> BTreeSet<Row> {
    let effects = ledger.ops.iter().map(|op| &op.effect);
    effects.flat_map(Effect::rows).copied().collect()
}

fn check_made_up(ever: &BTreeSet<Row>, contents: &Contents) -> Result<(), Violation> {
    let mut seen: BTreeMap<&Row, &String> = BTreeMap::new();
    for (name, rows) in contents {
        for row in rows {
            if !ever.contains(row) {
                return Err(format!("{row:?} of table {name} was never stored"));
            }
            if let Some(other) = seen.insert(row, name) {
                return Err(format!("{row:?} is there twice, in {other} and {name}"));
            }
        }
    }
    Ok(())
}

/// A killed process left the end of the log in the cache alone. What a repair then shows survives a power cut.
pub fn repair_what_is_only_cached() -> RepairStage {
    let sim = SimEnv::new(23);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    db.create("t");
    db.append_group("t", 0..100, Durability::Disk);
    db.append_fragment("t", 100..150);
    for k in 2..5 {
        db.append_group("t", k * 100..k * 100 + 40, Durability::Process);
        db.append("t", k * 100..k * 100 + 9, Durability::Process);
    }
    let kill = sim.crash_image(&CrashChoice::Kill);
    db.finish();
    let patient = Patient::of("cached", &db, kill, false, true);
    let mut stage = RepairStage::default();
    for (address, ..) in &patient.blocks {
        let image = patient.sim.crash_image(&CrashChoice::Kill);
        let Some(path) = [segment_name(address.file), fragment_name(address.file)]
            .map(|name| Path::new(DIR).join(name))
            .into_iter()
            .find(|path| image.read_file(path).is_ok())
        else {
            continue; // Where the opening that listed the blocks has written them again.
        };
        // Through the cache: bytes that a test overwrites without the knowledge of the database are durable, and all
        // that was pending with them.
        let file = image.env().storage().open(&path, OpenMode::ReadWrite);
        let changed = file.and_then(|file| file.write_all_at(&[0x99], address.offset + 70));
        changed.expect("a block");
        assert!(!image.pending_items().is_empty(), "nothing is only cached");
        let cut = || {
            let report = repair_once(&patient.shape, &image).map_err(|e| format!("{e:?}"))?;
            let shown = rows_of(&patient.shape, &image, true)?;
            let cut = image.crash_image(&CrashChoice::DropAll);
            let left = rows_of(&patient.shape, &cut, false)?;
            match report.is_clean() || left == shown {
                true => Ok(report.moved_blocks),
                false => Err(difference(&shown, &left)),
            }
        };
        stage.repairs += 1;
        match cut() {
            Ok(moved) => stage.mended += u64::from(moved > 0),
            Err(violation) => stage.violations.push(format!("{address}: {violation}")),
        }
    }
    stage
}

/// Fails every storage call of the repair of a damaged database, once: a failed read is no damage, and the next repair ends
/// as the first one would have.
pub fn fail_repair(patient: &Patient, damaged: &SimEnv) -> RepairStage {
    let mut stage = RepairStage::default();
    let whole = damaged.crash_image(&CrashChoice::KeepAll);
    let Some(Repaired::Done(_, want)) = stage.run(patient, &whole, "without a failure") else {
        panic!(
            "{}: no repair to fail: {:?}",
            patient.name, stage.violations
        );
    };
    for call in 1.. {
        let image = damaged.crash_image(&CrashChoice::KeepAll);
        let errno = if call % 2 == 0 {
            Errno::IO
        } else {
            Errno::NOSPC
        };
        image.set_plan(FaultPlan::fail_at(call, errno));
        let failed = repair_once(&patient.shape, &image).is_err();
        if image.calls() < call {
            return stage;
        }
        image.set_plan(FaultPlan::none());
        stage.errors += u64::from(failed);
        let what = format!("call {call} of the repair failed with {errno:?}");
        stage.must_end_with(patient, &image, &want, &what);
        if stage.is_done() {
            return stage;
        }
    }
    stage
}

/// Crashes at every storage call of the repair of a damaged database: the next repair ends as the first one would have.
pub fn crash_repair(
    patient: &Patient,
    damaged: &SimEnv,
    subsets: usize,
    dice: &mut Dice,
) -> RepairStage {
    let mut stage = RepairStage::default();
    let whole = damaged.crash_image(&CrashChoice::KeepAll);
    let want = match stage.run(patient, &whole, "without a crash") {
        Some(Repaired::Done(report, contents)) => {
            assert!(!report.is_clean(), "{}: nothing was damaged", patient.name);
            contents
        }
        _ => panic!(
            "{}: no repair to crash: {:?}",
            patient.name, stage.violations
        ),
    };
    let image = damaged.crash_image(&CrashChoice::KeepAll);
    image.record_states(true);
    repair_once(&patient.shape, &image).expect("as before");
    for call in 1..=image.calls() {
        let Some(state) = image.state_at(call) else {
            continue;
        };
        let mut choices = state.crash_choices(subsets, subsets, dice.draw());
        choices.push(CrashChoice::Kill);
        for choice in choices {
            let crashed = state.crash_image(&choice);
            let what = format!("crash at call {call} of the repair, {choice:?}");
            stage.must_end_with(patient, &crashed, &want, &what);
            if stage.is_done() {
                return stage;
            }
        }
    }
    stage
}
