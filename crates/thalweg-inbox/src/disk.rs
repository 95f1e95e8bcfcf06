//! The files of the inbox of one opening, and what it knows of them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_env::{Env, File, OpenMode};

use crate::error::{Error, Result};
use crate::format::{FIRST_FRAME, Fault, Half, LogHeader, Seal};
use crate::lock::{CommitLock, Patience};
use crate::registry::{Registry, Seen};

/// Highest that the change of a registry rises at once: when somebody settles.
const SETTLING_CHANGE: u64 = 1 << 32;

/// Sizes that tests make small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A log is not made longer.
    pub log_bytes: u64,
    /// Bytes of a new log, beside its tail.
    pub first_bytes: u64,
    /// A batch is not longer, and no tail is.
    pub batch_bytes: u64,
    /// Free bytes of the disk that array processes leave to the writer.
    pub reserve_bytes: u64,
    /// Groups that are held or after the position.
    pub groups: u64,
    /// Logs above that of the position.
    pub logs: usize,
    /// Bytes of a log that are read at once.
    pub read_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            log_bytes: 16 << 20,
            first_bytes: 64 << 10,
            batch_bytes: 4 << 20,
            reserve_bytes: 64 << 20,
            groups: 49_152,
            logs: 256,
            read_bytes: 64 << 10,
        }
    }
}

/// The names in `inbox`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// Numbers of logs.
    pub(crate) logs: BTreeSet<u64>,
    /// Logs that were being made.
    pub(crate) unfinished: Vec<PathBuf>,
}

/// The files of one opening.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) env: Env,
    pub(crate) folder: PathBuf,
    pub(crate) database: [u8; 16],
    pub(crate) boot: [u8; 16],
    pub(crate) limits: Limits,
    pub(crate) registry: Registry,
    /// The highest change that this process has seen in this boot.
    pub(crate) highest_change: u64,
    /// Logs that this process has given up, and not removed.
    pub(crate) given_up: Option<PathBuf>,
}

impl Disk {
    pub(crate) fn open(
        env: &Env,
        folder: &Path,
        database: [u8; 16],
        limits: Limits,
    ) -> Result<Disk> {
        let boot = env.clock().boot_id();
        if boot == [0; 16] {
            return Err(Error::Unsupported {
                place: "inbox".to_owned(),
                what: "no boot id on this system, which array processes need",
            });
        }
        let registry = Registry::open(env, &folder.join("inbox/registry"), database)?;
        Ok(Disk {
            env: env.clone(),
            folder: folder.to_owned(),
            database,
            boot,
            limits,
            registry,
            highest_change: 0,
            given_up: None,
        })
    }

    pub(crate) fn process(&self) -> u32 {
        // Ids of Linux have 22 bits.
        u32::try_from(self.env.clock().process()).unwrap_or(u32::MAX)
    }

    /// The commit lock. If it fails, somebody might wait for a lock that this opening has: it lets go of all.
    pub(crate) fn lock(&mut self, patience: Patience) -> Result<Option<CommitLock>> {
        let taken = CommitLock::take(&self.env, self.registry.file()?, patience);
        if taken.is_err() {
            self.registry.close();
        }
        taken
    }

    /// Lets others commit. What was committed stays so if that fails; the opening is closed then.
    pub(crate) fn release(&mut self, lock: CommitLock) {
        if lock.release().is_err() {
            self.registry.close();
        }
    }

    pub(crate) fn lock_or_fail(&mut self) -> Result<CommitLock> {
        match self.lock(Patience::Usual)? {
            Some(lock) => Ok(lock),
            None => Err(Error::Locked {
                process: self.read()?.process(self.boot),
            }),
        }
    }

    /// Reads the registry.
    pub(crate) fn read(&self) -> Result<Seen> {
        self.registry.read()
    }

    /// Notes the change of a registry that was believed.
    pub(crate) fn note(&mut self, seen: &Seen) {
        let change = seen.current(self.boot).map_or(0, |half| half.change);
        self.highest_change = self.highest_change.max(change);
    }

    /// Writes the registry; `half` has all but its change, boot and process.
    pub(crate) fn write(&mut self, seen: &mut Seen, half: Half, is_settling: bool) -> Result<Half> {
        let current = seen.current(self.boot).map_or(0, |half| half.change);
        let step = if is_settling { SETTLING_CHANGE } else { 1 };
        let half = Half {
            boot: self.boot,
            change: self.highest_change.max(current) + step,
            process: self.process(),
            ..half
        };
        self.highest_change = half.change;
        self.registry.write(seen, half)?;
        Ok(half)
    }

    /// The folder of the inbox.
    pub(crate) fn inbox(&self) -> PathBuf {
        self.folder.join("inbox")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn log_path(&self, number: u64) -> PathBuf {
        self.inbox().join(format!("{number:016x}.log"))
    }

    pub(crate) fn new_path(&self, number: u64) -> PathBuf {
        self.inbox().join(format!("{number:016x}.new"))
    }

    pub(crate) fn fragment_path(&self, id: u64) -> PathBuf {
        self.data().join(format!("{id:016x}.frag"))
    }

    /// The names in `inbox`; others are left alone.
    pub(crate) fn list(&self) -> Result<Listing> {
        let folder = self.inbox();
        let entries = self.env.storage().list_dir(&folder);
        let mut listing = Listing::default();
        for entry in entries.map_err(Error::io(folder.display()))? {
            let Some(name) = entry.name.to_str() else {
                continue;
            };
            if let Some(number) = name.strip_suffix(".log").and_then(number_of) {
                listing.logs.insert(number);
            } else if name.strip_suffix(".new").and_then(number_of).is_some() {
                listing.unfinished.push(folder.join(name));
            }
        }
        Ok(listing)
    }

    /// Ids of the fragments of array processes in `data`.
    pub(crate) fn list_fragments(&self) -> Result<Vec<u64>> {
        let folder = self.data();
        let entries = self.env.storage().list_dir(&folder);
        let entries = entries.map_err(Error::io(folder.display()))?;
        let id = |name: &str| name.strip_suffix(".frag").and_then(number_of);
        let ids = entries.iter().filter_map(|entry| id(entry.name.to_str()?));
        Ok(ids.filter(|id| id >> 63 == 1).collect())
    }

    pub(crate) fn open_log(&self, number: u64) -> Result<Option<Arc<dyn File>>> {
        let path = self.log_path(number);
        match self.env.storage().open(&path, OpenMode::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(Error::io(path.display())),
        }
    }

    /// A log that something names, with its header.
    pub(crate) fn needed_log(&self, number: u64) -> Result<(Arc<dyn File>, LogHeader)> {
        let file = self.open_log(number)?.ok_or(Error::Missing { number })?;
        match self.header(&file, number)? {
            Some(header) => Ok((file, header)),
            None => Err(self.damaged(number, "a log that is needed has no header")),
        }
    }

    /// The header of a log; `None`: the log does not count.
    pub(crate) fn header(&self, file: &Arc<dyn File>, number: u64) -> Result<Option<LogHeader>> {
        let path = self.log_path(number);
        let mut bytes = vec![0; usize::try_from(FIRST_FRAME).unwrap_or(usize::MAX)];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(None);
            }
            Err(error) if thalweg_env::is_unreadable(&error) => return Ok(None),
            read => read.map_err(Error::io(path.display()))?,
        }
        match LogHeader::decode(&bytes, &self.seal(number)) {
            Ok(header) => Ok(Some(header)),
            Err(Fault::Damaged(_)) => Ok(None),
            Err(fault) => Err(Error::of(fault, path.display())),
        }
    }

    pub(crate) fn seal(&self, log: u64) -> Seal {
        Seal {
            database: self.database,
            log,
        }
    }

    /// Refuses an array process the space that is left to the writer.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<()> {
        if self.limits.reserve_bytes == 0 {
            return Ok(());
        }
        let free = self.env.storage().free_bytes(&self.folder);
        let free = free.map_err(Error::io(self.folder.display()))?;
        match free >= self.limits.reserve_bytes.saturating_add(bytes) {
            true => Ok(()),
            false => Err(Error::DiskFull),
        }
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self.env.storage().remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::io(path.display())),
        }
    }
}

fn number_of(text: &str) -> Option<u64> {
    let is_plain = text.len() == 16 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_plain)?;
    (number > 0).then_some(number)
}
