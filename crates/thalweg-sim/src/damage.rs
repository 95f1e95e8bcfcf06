//! Databases whose files were changed by somebody else.
//!
//! Invariants: a damaged database gives an error that names a file, or the rows it always gave; never other rows, never a
//! panic. Damage that no checksum can show, because every file is a true older one of the same moment, is named by a test.

use crate::driver::Driver;
use crate::files::{Files, files_of};
use crate::oracle::{Contents, Violation, contents_of, contents_of_repaired, difference};
use crate::report::{Dice, panic_text};
use crate::shape::{DIR, Shape};
use crate::toy::Toy;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::Address;

/// How opening and reading a damaged database ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// An error with this text.
    Error(String),
    /// These rows.
    Rows(Contents),
    /// A panic with this text.
    Panic(String),
}

/// Counts of mutants by how they ended.
#[derive(Debug, Default)]
pub struct DamageReport {
    /// Databases opened.
    pub mutants: u64,
    /// Errors that name the damaged file.
    pub errors: u64,
    /// Errors that name another file of the database.
    pub errors_elsewhere: u64,
    /// Databases that gave all their rows.
    pub unaffected: u64,
    /// Everything else.
    pub violations: Vec<Violation>,
}

impl DamageReport {
    /// Adds another report to this one.
    pub fn add(&mut self, other: Self) {
        self.mutants += other.mutants;
        self.errors += other.errors;
        self.errors_elsewhere += other.errors_elsewhere;
        self.unaffected += other.unaffected;
        self.violations.extend(other.violations);
    }
}

/// A closed database of a few files with everything in it, and how it looked at earlier closes.
pub struct Specimen {
    /// Its shape.
    pub shape: Shape,
    /// The machine it lies on, closed.
    pub sim: SimEnv,
    /// Its rows.
    pub contents: Contents,
    /// Its files and rows at earlier times, each cleanly closed, oldest first.
    pub earlier: Vec<(Files, Contents)>,
    /// Where its blocks lie.
    pub blocks: Vec<Address>,
}

/// Makes the specimen.
pub fn specimen() -> Specimen {
    let shape = Shape::new(4096, 16);
    let sim = SimEnv::new(11);
    let mut earlier = Vec::new();
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.create("u");
    // Values of many shapes, so that several codecs are chosen.
    db.append_group("t", (0..32).map(|k| k * 1_000), Process);
    db.append_group("u", (0..20).map(|k| k * k * 7919 % 104_729), Process);
    let keep = |db: &mut Driver, earlier: &mut Vec<_>| {
        db.reopen();
        let contents = db.visible().expect("open").expect("whole").1;
        let image = db.sim.crash_image(&CrashChoice::KeepAll);
        earlier.push((files_of(&image), contents));
    };
    keep(&mut db, &mut earlier);
    db.append_fragment("t", 5_000..5_040);
    keep(&mut db, &mut earlier);
    db.append_group("t", [7, 7, 7, 500, 31_000], Process);
    db.append("t", [40_000, 3], Disk);
    keep(&mut db, &mut earlier);
    db.append("u", [1, 1, 99], Process);
    drop(shape.open_read_only(&sim.env()).expect("a reader"));
    let contents = db.visible().expect("open").expect("whole").1;
    let blocks = blocks_of(&db);
    let toy = db.toy().expect("open");
    toy.kernel.close().expect("no faults");
    db.finish();
    Specimen {
        shape,
        sim: sim.crash_image(&CrashChoice::KeepAll),
        contents,
        earlier,
        blocks,
    }
}

fn blocks_of(db: &Driver) -> Vec<Address> {
    let toy = db.toy().expect("open");
    let snapshot = toy.kernel.snapshot().expect("a snapshot");
    let mut blocks = Vec::new();
    for table in snapshot.tables() {
        for entry in table.tree.iter(None, &**toy.kernel.store()) {
            blocks.push(entry.expect("whole").address);
        }
    }
    blocks
}

/// Opens a database, for writing or reading, and reads everything.
pub fn open_and_read(shape: &Shape, image: &SimEnv, read_only: bool) -> End {
    open_and_read_by(shape, image, read_only, |toy| {
        contents_of(toy).map(|(_, contents)| contents)
    })
}

/// Opens and reads a database that was repaired, as `open_and_read` does.
pub fn open_and_read_repaired(shape: &Shape, image: &SimEnv, read_only: bool) -> End {
    open_and_read_by(shape, image, read_only, contents_of_repaired)
}

fn open_and_read_by(
    shape: &Shape,
    image: &SimEnv,
    read_only: bool,
    contents_of: impl Fn(&Toy) -> Result<Contents, Violation>,
) -> End {
    let read = || {
        let env = image.env();
        let opened = if read_only {
            shape.open_read_only(&env)
        } else {
            shape.open(&env)
        };
        let toy = opened.map_err(|e| format!("{:?}: {e}", e.kind()))?;
        contents_of(&toy)
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(contents)) => End::Rows(contents),
        Ok(Err(error)) => End::Error(error),
        Err(panic) => End::Panic(panic_text(&*panic)),
    }
}

/// Counts the end of a mutant whose file `path` was changed.
pub fn judge(report: &mut DamageReport, end: End, want: &Contents, path: &Path, what: &str) {
    report.mutants += 1;
    let place = format!("{}: {what}", path.display());
    match end {
        End::Rows(rows) if rows == *want => report.unaffected += 1,
        End::Rows(rows) => report
            .violations
            .push(format!("{place}: wrong rows: {}", difference(want, &rows))),
        End::Panic(text) => report.violations.push(format!("{place}: {text}")),
        End::Error(text) if names(&text, path) => report.errors += 1,
        End::Error(text) if names_any(&text) => report.errors_elsewhere += 1,
        End::Error(text) => report
            .violations
            .push(format!("{place}: an error that names no file: {text}")),
    }
}

/// Whether an error text names a file: by its name, or by its id.
fn names(text: &str, path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("?");
    let id = name.split('.').next().unwrap_or(name);
    let short = id.trim_start_matches('0');
    text.contains(id) || text.contains(&format!("segment {short}"))
}

fn names_any(text: &str) -> bool {
    [
        ".seg", ".frag", "/root", "/live", "/log", "/data", "file 0", "segment ",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Changes every byte of a file: one bit flipped, all bits set, zero. Changes nothing where the byte is so already.
pub fn change_every_byte(specimen: &Specimen, path: &Path, stop_after: usize) -> DamageReport {
    let bytes = specimen
        .sim
        .read_file(path)
        .expect("a file of the specimen");
    let mut report = DamageReport::default();
    for (at, old) in bytes.iter().enumerate() {
        let flipped = old ^ (1 << (at % 8));
        for new in [flipped, 0xFF, 0] {
            if new == *old || (new == flipped && [0, 0xFF].contains(&new)) {
                continue;
            }
            let image = specimen.sim.crash_image(&CrashChoice::KeepAll);
            let changed = image.overwrite_file(path, at as u64, &[new]);
            changed.expect("a file of the specimen");
            let end = open_and_read(&specimen.shape, &image, (at + usize::from(new)) % 5 == 0);
            let what = format!("byte {at} set to {new:#04x}");
            judge(&mut report, end, &specimen.contents, path, &what);
            if report.violations.len() >= stop_after {
                return report;
            }
        }
    }
    report
}

/// Cuts a file at every length, makes it longer, and deletes it.
pub fn cut_everywhere(specimen: &Specimen, path: &Path) -> DamageReport {
    let length = specimen.sim.read_file(path).expect("a file").len() as u64;
    let mut report = DamageReport::default();
    for len_bytes in (0..length).chain([length + 1, length + 5000]) {
        let image = specimen.sim.crash_image(&CrashChoice::KeepAll);
        image
            .set_file_len(path, len_bytes)
            .expect("a file of the specimen");
        let end = open_and_read(&specimen.shape, &image, len_bytes % 5 == 0);
        let what = format!("length {len_bytes}");
        judge(&mut report, end, &specimen.contents, path, &what);
    }
    let image = specimen.sim.crash_image(&CrashChoice::KeepAll);
    image.remove_file(path).expect("a file of the specimen");
    let end = open_and_read(&specimen.shape, &image, false);
    judge(&mut report, end, &specimen.contents, path, "deleted");
    report
}

/// Swaps every two blocks, up to the length of the shorter one.
pub fn swap_blocks(specimen: &Specimen) -> DamageReport {
    let mut report = DamageReport::default();
    for (index, a) in specimen.blocks.iter().enumerate() {
        for b in &specimen.blocks[index + 1..] {
            let image = specimen.sim.crash_image(&CrashChoice::KeepAll);
            let length = a.bytes.min(b.bytes) as usize;
            let (path_a, bytes_a) = block_bytes(&image, a, length);
            let (path_b, bytes_b) = block_bytes(&image, b, length);
            let swapped = image
                .overwrite_file(&path_a, a.offset, &bytes_b)
                .and_then(|()| image.overwrite_file(&path_b, b.offset, &bytes_a));
            swapped.expect("files of the specimen");
            let end = open_and_read(&specimen.shape, &image, false);
            let what = format!("the blocks at {a} and {b} swapped");
            judge(&mut report, end, &specimen.contents, &path_a, &what);
        }
    }
    report
}

fn block_bytes(image: &SimEnv, block: &Address, length: usize) -> (PathBuf, Vec<u8>) {
    let id = format!("{:016x}", block.file.0);
    let has_id = |path: &Path| path.file_stem().is_some_and(|stem| stem == id.as_str());
    let files = image.files();
    let (path, _) = files
        .iter()
        .find(|(path, _)| has_id(path))
        .expect("the file of a block");
    let bytes = image.read_file(path).expect("a file that is listed");
    let start = usize::try_from(block.offset).expect("a small file");
    (path.clone(), bytes[start..start + length].to_vec())
}

/// A set of files put back as they were at an earlier time.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// Which of the earlier times.
    pub time: usize,
    /// The files, by their names.
    pub files: Vec<PathBuf>,
    /// How it ended.
    pub end: End,
}

/// Puts every set of files back as they were at each earlier time; files that were not there then are removed.
pub fn older_copies(specimen: &Specimen) -> Vec<Rollback> {
    let now = files_of(&specimen.sim);
    let mut ends = Vec::new();
    for (time, (then, _)) in specimen.earlier.iter().enumerate() {
        let paths: BTreeSet<&PathBuf> = then.keys().chain(now.keys()).collect();
        let changed: Vec<&PathBuf> = paths
            .into_iter()
            .filter(|path| then.get(*path) != now.get(*path))
            .collect();
        for set in 1..1_u32 << changed.len() {
            let image = specimen.sim.crash_image(&CrashChoice::KeepAll);
            let mut put_back = Vec::new();
            for (bit, path) in changed.iter().enumerate() {
                if set >> bit & 1 == 0 {
                    continue;
                }
                let done = match then.get(*path) {
                    Some(bytes) => image.write_file(path, bytes),
                    None => image.remove_file(path),
                };
                done.expect("a file of the specimen");
                put_back.push((*path).clone());
            }
            let end = open_and_read(&specimen.shape, &image, false);
            ends.push(Rollback {
                time,
                files: put_back,
                end,
            });
        }
    }
    ends
}

/// Two databases that were one up to some time and then went on apart, neither closed: single segments of one replaced
/// by those of the other. What opens must show the rows of the first one.
pub fn files_of_a_twin() -> DamageReport {
    let shape = Shape::new(4096, 16);
    let sim = SimEnv::new(12);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append_group("t", 0..20, Disk);
    db.reopen();
    let go_on = |value: i64| {
        let image = db.sim.crash_image(&CrashChoice::KeepAll);
        let toy = shape.open(&image.env()).expect("no faults");
        let snapshot = toy.kernel.snapshot().expect("a snapshot");
        let table = snapshot.table_named("t").expect("created").id;
        for k in 0..12 {
            let rows: Vec<_> = (0..40)
                .map(|i| (k * 100 + i, value + k * 100 + i))
                .collect();
            toy.append(table, &rows, Process).expect("no faults");
        }
        let contents = contents_of(&toy).expect("whole").1;
        (image.crash_image(&CrashChoice::KeepAll), contents)
    };
    let ((first, contents), (second, _)) = (go_on(1_000_000), go_on(2_000_000));
    let mut report = DamageReport::default();
    for (path, bytes) in files_of(&second) {
        if path.extension().is_none_or(|e| e != "seg") || first.read_file(&path).is_err() {
            continue;
        }
        let image = first.crash_image(&CrashChoice::KeepAll);
        image.write_file(&path, &bytes).expect("a file of the twin");
        let end = open_and_read(&shape, &image, false);
        judge(&mut report, end, &contents, &path, "that of a twin");
    }
    report
}

/// A database that was not closed, whose log is damaged: one bit in every `one_in`-th byte of its segments. After a
/// power cut that took `live` too, only the last commit can pass for a torn one.
pub fn damage_of_a_crashed_database(one_in: usize) -> DamageReport {
    let shape = Shape::new(8192, 16);
    let sim = SimEnv::new(13);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    for k in 0..6 {
        db.append("t", k * 10..k * 10 + 10, Disk);
    }
    db.append_group("t", 0..40, Disk);
    db.append("t", [1000], Disk);
    let whole = db.visible().expect("open").expect("whole").1;
    let mut torn = whole.clone();
    torn.get_mut("t")
        .expect("the table")
        .retain(|row| row.0 != 1000);
    let mut report = DamageReport::default();
    for choice in [CrashChoice::DropAll, CrashChoice::KeepAll] {
        let crashed = sim.crash_image(&choice);
        for (path, bytes) in files_of(&crashed) {
            if path.extension().is_none_or(|e| e != "seg") {
                continue;
            }
            for at in (0..bytes.len()).step_by(one_in) {
                let image = crashed.crash_image(&CrashChoice::KeepAll);
                let flipped = bytes[at] ^ (1 << (at % 8));
                let changed = image.overwrite_file(&path, at as u64, &[flipped]);
                changed.expect("a file of the database");
                let end = open_and_read(&shape, &image, at % 4 == 0);
                let may_be_torn = choice == CrashChoice::DropAll;
                let end = match end {
                    End::Rows(rows) if may_be_torn && rows == torn => End::Rows(whole.clone()),
                    end => end,
                };
                let what = format!("bit of byte {at} flipped after {choice:?}");
                judge(&mut report, end, &whole, &path, &what);
                if report.violations.len() >= 5 {
                    return report;
                }
            }
        }
    }
    report
}

/// A database that was not closed, with one slot of its root lost: it costs time, but no commit and no opening.
pub fn one_slot_of_the_root_lost() -> DamageReport {
    let shape = Shape::new(8192, 16);
    let sim = SimEnv::new(14);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..10, Disk);
    db.reopen();
    // A snapshot keeps files from being removed: the checkpoints of that would write both slots again.
    let in_use = db.toy().map(|toy| toy.kernel.snapshot());
    db.append("t", 10..20, Disk);
    let want = db.visible().expect("open").expect("whole").1;
    let root = Path::new(DIR).join("root");
    let mut report = DamageReport::default();
    for slot in [0, 4096] {
        for choice in [CrashChoice::DropAll, CrashChoice::KeepAll] {
            let image = sim.crash_image(&choice);
            let lost = image.overwrite_file(&root, slot, &[0xAA; 4096]);
            lost.expect("a root");
            let end = open_and_read(&shape, &image, false);
            if let End::Error(text) = &end {
                let what = format!("slot at {slot} of the root lost: {text}");
                report.violations.push(what);
            }
            judge(
                &mut report,
                end,
                &want,
                &root,
                &format!("slot at {slot} lost"),
            );
        }
    }
    drop(in_use);
    report
}

/// The short name of a path of a database.
pub fn short_name(path: &Path) -> String {
    let short = path.strip_prefix(DIR).unwrap_or(path);
    short.display().to_string()
}

/// The results of databases whose bytes are wrong under right checksums.
#[derive(Debug, Default)]
pub struct HostileReport {
    /// Databases opened.
    pub mutants: u64,
    /// Of them, those that gave an error.
    pub errors: u64,
    /// Those that gave rows, right or wrong.
    pub rows: u64,
    /// Panics.
    pub violations: Vec<Violation>,
}

/// Changes bytes of a file, one in `one_in`, alone or with others near it, while every checksum counts as right.
/// Opening, reading, verifying, writing and repairing must give errors or any rows, and never panic.
pub fn lie(
    sim: &SimEnv,
    shape: &Shape,
    path: &Path,
    one_in: u64,
    dice: &mut Dice,
) -> HostileReport {
    let bytes = sim.read_file(path).expect("a file of the database");
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let mut report = HostileReport::default();
    for at in 0..(used + 16).min(bytes.len()) {
        if dice.below(one_in) != 0 {
            continue;
        }
        let image = sim.crash_image(&CrashChoice::KeepAll);
        let what = change_near(&image, path, &bytes, at, dice);
        report.mutants += 1;
        let way = dice.below(4);
        let used = catch_unwind(AssertUnwindSafe(|| use_any(shape, &image, way)));
        match used {
            Ok(Ok(())) => report.rows += 1,
            Ok(Err(_)) => report.errors += 1,
            Err(panic) => {
                let text = panic_text(&*panic);
                let violation = format!("{}:{what}, way {way}: {text}", path.display());
                report.violations.push(violation);
            }
        }
        if report.violations.len() >= 5 {
            break;
        }
    }
    report
}

/// Changes one to three bytes of a file, at an offset or shortly after it; returns a description. `bytes`: its
/// contents.
pub fn change_near(
    image: &SimEnv,
    path: &Path,
    bytes: &[u8],
    at: usize,
    dice: &mut Dice,
) -> String {
    let mut what = String::new();
    for _ in 0..=dice.below(3) {
        let at = (at + usize::try_from(dice.below(24)).expect("small")).min(bytes.len() - 1);
        let old = bytes[at];
        let new = match dice.below(6) {
            0 => 0,
            1 => 0xFF,
            2 => 0x7F,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            _ => old ^ (1 << dice.below(8)),
        };
        let changed = image.overwrite_file(path, at as u64, &[new]);
        changed.expect("a file of the database");
        what.push_str(&format!(" {at}={new:#04x}"));
    }
    what
}

/// Uses a database in one of four ways, whatever it returns.
fn use_any(shape: &Shape, image: &SimEnv, way: u64) -> thalweg_kernel::Result<()> {
    let env = image.env();
    let toy = match way {
        0 => shape.open_read_only(&env)?,
        1 => {
            let options = &shape.options;
            thalweg_kernel::repair::repair(&env, Path::new(DIR), options, &mut |_| {})?;
            shape.open(&env)?
        }
        _ => shape.open(&env)?,
    };
    let verified = toy.kernel.verify(&mut |_| {}).map(|_| ());
    let snapshot = toy.kernel.snapshot()?;
    let mut read = Ok(());
    for table in snapshot.tables() {
        for entry in table.tree.iter(None, &**toy.kernel.store()) {
            let rows = entry.and_then(|entry| toy.block_rows(&entry));
            read = read.and(rows.map(|_| ()));
            if read.is_err() {
                break;
            }
        }
    }
    if way == 0 {
        return verified.and(read);
    }
    let tables: Vec<_> = snapshot.tables().map(|table| table.id).collect();
    drop(snapshot);
    let mut written = Ok(());
    for table in tables {
        let appended = toy.append(table, &[(7, 7)], Disk);
        written = written.and(appended.map(|_| ()));
    }
    let kept = toy.kernel.checkpoint().map(|_| ());
    let collected = toy.kernel.collect_garbage().map(|_| ());
    verified.and(read).and(written).and(kept).and(collected)
}
