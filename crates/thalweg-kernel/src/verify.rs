//! Checking everything that the newest snapshot can reach, without changing anything.
//!
//! Invariants
//! - Bytes are read from the files, whatever is in memory: a cached page must not hide a damaged one. Only pages that
//!   were never written are taken as they are.
//! - Damage ends the check of what lies below it and of nothing else; every piece of it is listed with its place.
//! - What a crash may leave is not damage: the torn end of the log, files that nothing leads to.

use crate::block;
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::verify_ends;
use crate::ids::{CommitNo, FileId, LogPosition};
use crate::index::{Address, Entry, Page, Step, unequal_totals};
use crate::kernel::Kernel;
use crate::live::LiveFile;
use crate::open::writer_is_alive;
use crate::replay::Replay;
use crate::root::RootFile;
use crate::segment::read_header;
use crate::state::TableSnapshot;
use crate::store::{Store, fragment_name, segment_name};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// How often the log is read again when it seems damaged and a writer is at work in it: it may have been under its hand.
const ATTEMPTS: usize = 16;

/// What was checked, and what was found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables.
    pub tables: u64,
    /// Rows of the blocks that are whole, and open rows.
    pub rows: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of blocks and index pages.
    pub bytes: u64,
    /// Pages of the index.
    pub pages: u64,
    /// Data files of one table.
    pub fragments: u64,
    /// Segments of the log that hold blocks or pages.
    pub segments: u64,
    /// Frames of the log behind the last checkpoint.
    pub frames: u64,
    /// Everything that failed its checks; empty when all is well.
    pub damage: Vec<Damage>,
}

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, from the database's folder on.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// The table that loses something.
    pub table: Option<String>,
    /// The order keys between which its rows are missing.
    pub keys: Option<(i64, i64)>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, offset {}: {}",
            self.file.display(),
            self.offset,
            self.what
        )
    }
}

impl Kernel {
    /// Reads and checks the log behind the last checkpoint, and every index page, block and fragment of every table of
    /// the newest snapshot. `on_bytes` is told how many more bytes were checked.
    ///
    /// # Errors
    /// When there is no snapshot to check. Damage is not an error but in the report.
    pub fn verify(&self, on_bytes: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        let snapshot = self.snapshot()?;
        let mut check = Check {
            store: self.store(),
            report: VerifyReport::default(),
            seen: HashSet::new(),
            on_bytes,
        };
        check.log()?;
        for table in snapshot.tables() {
            check.table(&table)?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    store: &'a Store,
    report: VerifyReport,
    /// Files whose own headers were checked.
    seen: HashSet<FileId>,
    on_bytes: &'a mut dyn FnMut(u64),
}

impl Check<'_> {
    /// The log from the checkpoint to its end.
    fn log(&mut self) -> Result<()> {
        let (env, dir) = (self.store.env(), self.store.dir());
        for attempt in 1..=ATTEMPTS {
            match check_log(self.store) {
                Ok(frames) => {
                    self.report.frames = frames;
                    return Ok(());
                }
                Err(_) if attempt < ATTEMPTS && writer_is_alive(env, dir)? => {}
                Err(damage) => {
                    self.report.damage.push(damage);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &TableSnapshot) -> Result<()> {
        self.report.tables += 1;
        for open in table.open_rows() {
            self.report.rows += u64::from(open.part.rows);
        }
        let mut walk = table.tree.walk(None, self.store);
        loop {
            let next = walk.next(|entry| self.entry(table, entry));
            match next {
                Ok(Some(block)) => self.block(table, &block),
                Ok(None) => return Ok(()),
                // The page was whole when `entry` looked: it changed since, and the rest of the table is out of reach.
                Err(error) => {
                    let root = table.tree.total().map_or_else(Entry::unknown, Entry::clone);
                    self.damage(table, &root, error.message().to_owned());
                    return Ok(());
                }
            }
        }
    }

    /// Looks at an entry on the way down: below a damaged page there is no way.
    fn entry(&mut self, table: &TableSnapshot, entry: &Entry) -> Step {
        if entry.is_block() {
            return Step::Take;
        }
        self.report.pages += 1;
        if entry.address.bytes == 0 {
            // In memory alone.
            return Step::Descend;
        }
        match self.page(table, entry) {
            Ok(()) => Step::Descend,
            Err(what) => {
                self.damage(table, entry, what);
                Step::Skip
            }
        }
    }

    fn page(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<(), String> {
        let address = entry.address;
        let reason = |error: Error| reason(&error, &address);
        self.file(table, entry)?;
        let bytes = self
            .store
            .read(address.file, address.offset, address.bytes as usize)
            .map_err(reason)?;
        self.count_bytes(address.bytes);
        let page = Page::decode(self.store.database(), table.id, entry, &bytes).map_err(reason)?;
        for below in page.entries() {
            below.check()?;
        }
        unequal_totals(entry, &page.total()).map_or(Ok(()), |what| Err(what.to_owned()))
    }

    fn block(&mut self, table: &TableSnapshot, entry: &Entry) {
        self.report.blocks += 1;
        match self.check_block(table, entry) {
            Ok(()) => self.report.rows += entry.rows,
            Err(what) => self.damage(table, entry, what),
        }
    }

    fn check_block(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<(), String> {
        let address = entry.address;
        let reason = |error: Error| reason(&error, &address);
        self.file(table, entry)?;
        let bytes = self
            .store
            .read(address.file, address.offset, address.bytes as usize)
            .map_err(reason)?;
        self.count_bytes(address.bytes);
        let head = block::verify(&bytes, &address).map_err(reason)?;
        if head.spec().table != table.id {
            return Err(format!("the block is of table {}", head.spec().table.0));
        }
        if head.rows() as u64 != entry.rows {
            return Err(format!(
                "the block has {} rows, its index says {}",
                head.rows(),
                entry.rows
            ));
        }
        Ok(())
    }

    /// Header of the file that an entry lies in, and the footer of a fragment, once per file. Of a fragment the first
    /// entry that leads into it is its root page.
    fn file(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<(), String> {
        let id = entry.address.file;
        if !self.seen.insert(id) {
            return Ok(());
        }
        let reason = |error: Error| error.message().to_owned();
        let storage = self.store.env().storage();
        if storage.metadata(&self.store.fragment_path(id)).is_ok() {
            self.report.fragments += 1;
            return verify_ends(self.store, table.id, entry)
                .map(|_| ())
                .map_err(reason);
        }
        self.report.segments += 1;
        let file = self.store.file(id).map_err(reason)?;
        let header = read_header(&*file, &segment_name(id)).map_err(reason)?;
        let header = header.ok_or("the segment has no header")?;
        if (header.database, header.file) != (self.store.database(), id) {
            return Err("the segment is of another database or has another number".to_owned());
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: u32) {
        self.report.bytes += u64::from(bytes);
        (self.on_bytes)(u64::from(bytes));
    }

    fn damage(&mut self, table: &TableSnapshot, entry: &Entry, what: String) {
        self.report.damage.push(Damage {
            file: self.name(entry.address.file),
            offset: entry.address.offset,
            table: Some(table.name.clone()),
            keys: Some((entry.key_min, entry.key_max)),
            what,
        });
    }

    fn name(&self, id: FileId) -> PathBuf {
        let is_segment = self
            .store
            .env()
            .storage()
            .metadata(&self.store.segment_path(id))
            .is_ok();
        if is_segment {
            segment_name(id)
        } else {
            fragment_name(id)
        }
    }
}

/// The message without the place, which the report names itself.
fn reason(error: &Error, address: &Address) -> String {
    let message = error.message();
    message
        .strip_prefix(&format!("{address}: "))
        .unwrap_or(message)
        .to_owned()
}

/// Reads all frames behind the checkpoint; says how many.
fn check_log(store: &Store) -> Result<u64, Damage> {
    let (env, dir) = (store.env(), store.dir());
    let at_start = |error: Error| log_damage(LogPosition::default(), &error);
    let root = RootFile::open(env, dir, false).map_err(at_start)?.current;
    // Read before the log: what it proves was written before.
    let live =
        LiveFile::open_reader(env, dir).and_then(|live| live.map_or(Ok(None), |live| live.read()));
    let said = live
        .map_err(at_start)?
        .filter(|live| live.database == root.database && live.epoch == root.epoch);
    let (mut replay, _) =
        Replay::start(env, dir, &root).map_err(|error| log_damage(root.checkpoint, &error))?;
    let mut proven = said
        .map_or(root.proven, |live| live.synced.max(root.proven))
        .max(replay.at());
    let mut frames = 0;
    loop {
        let at = replay.at();
        match replay.next(CommitNo(u64::MAX)) {
            Ok(Some(frame)) => proven = proven.max(frame.head.id.synced_to),
            Ok(None) => break,
            Err(error) => return Err(log_damage(at, &error)),
        }
        frames += 1;
    }
    let end = replay.at();
    replay
        .judge_end(proven)
        .map_err(|error| log_damage(end, &error))?;
    Ok(frames)
}

fn log_damage(at: LogPosition, error: &Error) -> Damage {
    let file = if at.segment == FileId(0) {
        PathBuf::from(crate::root::ROOT_NAME)
    } else {
        segment_name(at.segment)
    };
    let what = match error.kind() {
        ErrorKind::Corruption => error.message().to_owned(),
        _ => format!("cannot be read: {}", error.message()),
    };
    Damage {
        file,
        offset: at.offset,
        table: None,
        keys: None,
        what,
    }
}
