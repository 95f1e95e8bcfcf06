//! Reading of the database's files: where they are, which are open, and what of them is kept in memory.
//!
//! Invariants
//! - Memory is bounded: index pages, block heads and data pages share one budget in bytes, open files have a limit.
//!   Whatever is in use stays alive through its reference count, evicted or not.
//! - Only verified things are cached. They are keyed by place, and compared with the address that asks for them: a
//!   place of another age is damage, not a hit.
//! - A cached data page has memory of its own, exactly as much as its bytes: it keeps no larger read alive. It lies
//!   there decompressed.
//! - Files are immutable up to their committed length, and ids are never used twice, so that nothing here is ever stale.
//! - A file that an address names and that is missing is damage and an error that names the file; in a reading process it
//!   may also have been removed because its snapshot is too old.

use crate::block::{BlockBytes, BlockHead, BlockReader, WHOLE_BLOCK_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{DatabaseId, FileId, TableId};
use crate::index::{Address, Entry, Page, PageLoader};
use crate::paths::{DATA_DIR, fragment_name, segment_name};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use thalweg_env::sync::Mutex;
use thalweg_env::{Env, File, OpenMode, Owner};

/// Most files that are kept open; more while more are in use.
///
/// Few: a process that has several databases open shares its limit of often 1,024 among them, and of a removed file the space
/// stays taken while it is open. Opening one again takes some microseconds, and scans read many blocks of a file in a row.
const MAX_OPEN_FILES: usize = 40;

/// Bytes of a full page with nine columns. From it the number of cached items is guessed, and with it how finely the cache
/// is divided among threads: a part must hold many of the largest items.
const LARGE_ITEM_BYTES: usize = 256 << 10;

/// The files of one database, for reading.
#[derive(Debug)]
pub struct Store {
    env: Env,
    owner: Owner,
    dir: PathBuf,
    database: DatabaseId,
    files: Cache<FileId, Arc<OpenFile>>,
    cached: Cache<(FileId, u64), Cached, Weigh>,
    counters: Counters,
    missing: Option<Missing>,
    is_closed: AtomicBool,
    /// Fragments that were given up since they were last taken.
    given_up: AtomicUsize,
    data_syncs: DataSyncs,
}

/// Syncs of the folder of fragments.
#[derive(Debug, Default)]
struct DataSyncs {
    /// Held while one is under way, so that nobody's succeeds between another's failure and its being counted.
    syncing: Mutex<()>,
    failed: AtomicU64,
}

/// Returns the error for a missing file, if that may be no damage.
type MayBeGone = dyn Fn() -> Option<Error> + Send + Sync;

struct Missing(Box<MayBeGone>);

impl std::fmt::Debug for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Missing")
    }
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn File>,
    /// From the database's folder on, for messages.
    name: PathBuf,
}

#[derive(Clone, Debug)]
enum Cached {
    Page(Arc<Page>),
    /// With the address it was verified against.
    Head(Address, Arc<BlockHead>),
    /// A page of a chunk, decompressed, or what comes before its pages, with the address of the block.
    Data(Address, Bytes),
}

/// Bytes that the cache takes for a data page beside its content, which may be short.
const DATA_PAGE_OVERHEAD_BYTES: u64 = 160;

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<(FileId, u64), Cached> for Weigh {
    fn weight(&self, _place: &(FileId, u64), cached: &Cached) -> u64 {
        match cached {
            Cached::Page(page) => page.memory_bytes() as u64,
            Cached::Head(_, head) => head.memory_bytes() as u64,
            Cached::Data(_, bytes) => bytes.len() as u64 + DATA_PAGE_OVERHEAD_BYTES,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    files_opened: AtomicU64,
    pages_loaded: AtomicU64,
    page_hits: AtomicU64,
    heads_loaded: AtomicU64,
    head_hits: AtomicU64,
    data_pages_loaded: AtomicU64,
    data_page_hits: AtomicU64,
}

/// Counts of what was read so far. The difference of two of these is the cost of what was done between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Read calls.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Files opened.
    pub files_opened: u64,
    /// Index pages read and verified.
    pub pages_loaded: u64,
    /// Index pages found in memory.
    pub page_hits: u64,
    /// Heads of blocks read and verified.
    pub heads_loaded: u64,
    /// Heads of blocks found in memory.
    pub head_hits: u64,
    /// Pages of chunks, and preludes, that were read and verified for the cache or for a region. Those of scans are not counted.
    pub data_pages_loaded: u64,
    /// Pages of chunks, and preludes, found in memory.
    pub data_page_hits: u64,
}

impl Store {
    /// The store of the database in `dir`, which keeps about `cache_bytes` of index pages, heads and data pages in memory.
    #[must_use]
    pub fn new(env: Env, dir: impl Into<PathBuf>, database: DatabaseId, cache_bytes: u64) -> Self {
        let items = usize::try_from(cache_bytes).unwrap_or(usize::MAX) / LARGE_ITEM_BYTES;
        Self {
            owner: env.owner(),
            env,
            dir: dir.into(),
            database,
            files: Cache::new(MAX_OPEN_FILES),
            cached: Cache::with_weighter(items.max(16), cache_bytes, Weigh),
            counters: Counters::default(),
            missing: None,
            is_closed: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
            data_syncs: DataSyncs::default(),
        }
    }

    /// A store whose files others may remove: `may_be_gone` knows whether a missing one can be one of those.
    pub(crate) fn whose_files_may_go(
        mut self,
        may_be_gone: impl Fn() -> Option<Error> + Send + Sync + 'static,
    ) -> Self {
        self.missing = Some(Missing(Box::new(may_be_gone)));
        self
    }

    /// The database whose files these are.
    #[must_use]
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The environment the files are in.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The process that opened the database.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Others get an error before they wait for a lock, which a thread of that process may have held when it forked.
    pub(crate) fn check_owner(&self) -> Result<()> {
        self.owner.check().map_err(Error::not_owner)
    }

    /// The database's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a segment of the log lies.
    #[must_use]
    pub fn segment_path(&self, id: FileId) -> PathBuf {
        self.dir.join(segment_name(id))
    }

    /// Where a fragment lies.
    #[must_use]
    pub fn fragment_path(&self, id: FileId) -> PathBuf {
        self.dir.join(fragment_name(id))
    }

    /// The file of an id, opened for reading.
    ///
    /// # Errors
    /// `Corruption` when there is none.
    pub fn file(&self, id: FileId) -> Result<Arc<dyn File>> {
        self.open_file(id).map(|open| Arc::clone(&open.file))
    }

    /// Whether the file of an id is a fragment; a segment of the log otherwise, which share their numbers. A file that is open
    /// keeps its kind when another process removes it.
    ///
    /// # Errors
    /// `Corruption` when there is no such file. A look at the folder that fails is an error, too: it leaves the kind open.
    pub fn is_fragment(&self, id: FileId) -> Result<bool> {
        self.check_owner()?;
        if let Some(open) = self.files.get(&id) {
            return Ok(open.name.starts_with(DATA_DIR));
        }
        for (name, is_fragment) in [(fragment_name(id), true), (segment_name(id), false)] {
            match self.env.storage().metadata(&self.dir.join(&name)) {
                Ok(_) => return Ok(is_fragment),
                Err(error) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => {
                    let doing = format_args!("looking at {}", name.display());
                    return Err(Error::io(doing, error));
                }
            }
        }
        Err(self.no_file(id))
    }

    /// Uses a handle that is open already, for example the one the log is written through.
    pub fn keep_file(&self, id: FileId, name: impl Into<PathBuf>, file: Arc<dyn File>) {
        let name = name.into();
        self.keep(id, &Arc::new(OpenFile { file, name }));
    }

    /// Closes a file that is to be deleted, once nobody reads it any more.
    pub fn forget_file(&self, id: FileId) {
        self.files.remove(&id);
    }

    /// Closes all files, each once nobody reads it any more. Those that are needed again are opened again.
    pub(crate) fn close_files(&self) {
        self.files.clear();
    }

    /// Lets go of all files, of the folder and of what is in memory: nothing can be read any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.files.clear();
        self.cached.clear();
        self.env.storage().release();
    }

    /// # Errors
    /// `Unavailable` once it was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.is_closed.load(Ordering::SeqCst) {
            true => Err(Error::closed()),
            false => Ok(()),
        }
    }

    fn open_file(&self, id: FileId) -> Result<Arc<OpenFile>> {
        self.check_owner()?;
        if let Some(open) = self.files.get(&id) {
            return Ok(open);
        }
        self.check_open()?;
        // Two threads may open it at once; both handles read the same.
        let open = Arc::new(self.find_file(id)?);
        self.keep(id, &open);
        Ok(open)
    }

    fn keep(&self, id: FileId, file: &Arc<OpenFile>) {
        self.files.insert(id, Arc::clone(file));
        // Closed meanwhile: a file that was inserted after that would stay.
        if self.is_closed.load(Ordering::SeqCst) {
            self.files.clear();
        }
    }

    /// Frees the space of a fragment that is part of no table. Its name stays until a round of cleaning finds the orphan: a removal
    /// that a power cut undoes would bring the file back under an id that had been given to another.
    pub(crate) fn give_up_fragment(&self, file: &dyn File) {
        // If it cannot be cut, all of it goes with the garbage.
        let _ = file.set_len(0);
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the space of a fragment that is finished.
    pub(crate) fn give_up_file(&self, id: FileId) {
        self.forget_file(id);
        let path = self.fragment_path(id);
        let opened = self.env.storage().open(&path, OpenMode::ReadWrite);
        let _ = opened.map(|file| self.give_up_fragment(&*file));
    }

    /// Fragments that were given up since they were last taken.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up.load(Ordering::Relaxed)
    }

    /// How many were given up, if these are at least so many, else none; counts from zero again if so.
    pub(crate) fn take_given_up(&self, at_least: usize) -> usize {
        let none_left = |count| (count >= at_least).then_some(0);
        let taken = self
            .given_up
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, none_left);
        taken.unwrap_or(0)
    }

    /// Syncs of the folder of fragments that have failed. To be asked for before a file is made there.
    pub(crate) fn failed_data_syncs(&self) -> u64 {
        self.data_syncs.failed.load(Ordering::SeqCst)
    }

    /// Makes the names of fragments durable, which were made when so many syncs of their folder had failed.
    ///
    /// # Errors
    /// Also when another one has failed since: it may have lost these names as well, and after it they look clean in the cache, so
    /// that no later sync would write them.
    pub(crate) fn sync_data_folder(&self, failed_before: u64) -> Result<()> {
        let _one_at_a_time = self.data_syncs.syncing.lock();
        let doing = format_args!("syncing the folder {DATA_DIR}");
        // Opened first: where there is no descriptor for it no name is lost.
        let folder = self.env.storage().open_dir(&self.dir.join(DATA_DIR));
        let folder = folder.map_err(|error| Error::io(doing, error))?;
        if let Err(error) = folder.sync() {
            self.data_syncs.failed.fetch_add(1, Ordering::SeqCst);
            return Err(Error::io(doing, error));
        }
        if self.failed_data_syncs() == failed_before {
            return Ok(());
        }
        let what = format!(
            "a sync of the folder {DATA_DIR} has failed that was to keep the names of these files as well: try again"
        );
        Err(Error::new(ErrorKind::Io, what))
    }

    fn find_file(&self, id: FileId) -> Result<OpenFile> {
        // One id space for both kinds, so an address has none; most bytes are in fragments or recent segments.
        for name in [fragment_name(id), segment_name(id)] {
            let path = self.dir.join(&name);
            match self.env.storage().open(&path, OpenMode::Read) {
                Ok(file) => {
                    count(&self.counters.files_opened, 1);
                    return Ok(OpenFile { file, name });
                }
                Err(error) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::io(format_args!("opening {}", name.display()), error));
                }
            }
        }
        Err(self.no_file(id))
    }

    /// Why there is no file of an id.
    fn no_file(&self, id: FileId) -> Error {
        let may_be_gone = self.missing.as_ref().and_then(|missing| missing.0());
        may_be_gone.unwrap_or_else(|| {
            let what = "the file is missing, and the database needs it";
            Error::corruption(
                fragment_name(id).display(),
                format_args!("{what} (or {})", segment_name(id).display()),
            )
        })
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// `Corruption` when the file is missing or ends before.
    pub fn read(&self, id: FileId, offset: u64, len_bytes: usize) -> Result<Bytes> {
        let mut bytes = vec![0; len_bytes];
        self.read_into(id, offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads into memory that is there already: all of it is filled.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into(&self, id: FileId, offset: u64, into: &mut [u8]) -> Result<()> {
        let open = self.open_file(id)?;
        let len_bytes = into.len();
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, len_bytes as u64);
        match open.file.read_exact_at(into, offset) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == IoErrorKind::UnexpectedEof => {
                let place = format!("{}, offset {offset}", open.name.display());
                Err(Error::corruption(
                    place,
                    format_args!("the file ends within {len_bytes} bytes that belong to it"),
                ))
            }
            Err(error) => {
                let doing = format!(
                    "reading {len_bytes} bytes of {} at {offset}",
                    open.name.display()
                );
                Err(Error::io(doing, error))
            }
        }
    }

    /// A block with its head, from memory if it is there. A small block that is not known is read at once.
    ///
    /// # Errors
    /// `Corruption` when the head fails its checks; whatever reading leads to.
    pub fn block(&self, address: &Address) -> Result<BlockReader<'_>> {
        self.check_owner()?;
        let place = (address.file, address.offset);
        if let Some(Cached::Head(known, head)) = self.cached.get(&place)
            && known == *address
        {
            count(&self.counters.head_hits, 1);
            return Ok(BlockReader::new(self, *address, head, None));
        }
        let at_once = if address.bytes <= WHOLE_BLOCK_BYTES {
            address.bytes
        } else {
            address.head_bytes
        };
        let bytes = self.read(address.file, address.offset, at_once as usize)?;
        let head = Arc::new(BlockHead::parse(&bytes, address)?);
        count(&self.counters.heads_loaded, 1);
        self.cached
            .insert(place, Cached::Head(*address, Arc::clone(&head)));
        let body = (at_once == address.bytes).then(|| bytes.slice(address.head_bytes as usize..));
        Ok(BlockReader::new(self, *address, head, body))
    }

    /// Counts of what was read so far.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReadCounts {
            reads: of(&self.counters.reads),
            read_bytes: of(&self.counters.read_bytes),
            files_opened: of(&self.counters.files_opened),
            pages_loaded: of(&self.counters.pages_loaded),
            page_hits: of(&self.counters.page_hits),
            heads_loaded: of(&self.counters.heads_loaded),
            head_hits: of(&self.counters.head_hits),
            data_pages_loaded: of(&self.counters.data_pages_loaded),
            data_page_hits: of(&self.counters.data_page_hits),
        }
    }

    /// Files that are kept open now.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Bytes of index pages, heads and data pages in memory now, and the most there may be.
    #[must_use]
    pub fn cached_bytes(&self) -> (u64, u64) {
        (self.cached.weight(), self.cached.capacity())
    }
}

impl BlockBytes for Store {
    fn read(&self, block: &Address, offset: u64, len_bytes: usize) -> Result<Bytes> {
        Self::read(self, block.file, offset, len_bytes)
    }

    fn read_into(&self, block: &Address, offset: u64, into: &mut [u8]) -> Result<()> {
        Self::read_into(self, block.file, offset, into)
    }

    fn cached_data(&self, block: &Address, offset: u64) -> Option<Bytes> {
        let Some(Cached::Data(known, bytes)) = self.cached.get(&(block.file, offset)) else {
            return None;
        };
        if known != *block {
            return None;
        }
        count(&self.counters.data_page_hits, 1);
        Some(bytes)
    }

    fn keep_data(&self, block: &Address, offset: u64, bytes: &Bytes) {
        let place = (block.file, offset);
        self.cached
            .insert(place, Cached::Data(*block, bytes.clone()));
    }

    fn count_data_pages(&self, pages: usize) {
        count(&self.counters.data_pages_loaded, pages as u64);
    }
}

impl PageLoader for Store {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        self.check_owner()?;
        let address = entry.address;
        let place = (address.file, address.offset);
        if let Some(Cached::Page(page)) = self.cached.get(&place)
            && page.is_at(table, entry)
        {
            count(&self.counters.page_hits, 1);
            return Ok(page);
        }
        let bytes = self.read(address.file, address.offset, address.bytes as usize)?;
        let page = Arc::new(Page::decode(self.database, table, entry, &bytes)?);
        count(&self.counters.pages_loaded, 1);
        self.cached.insert(place, Cached::Page(Arc::clone(&page)));
        Ok(page)
    }

    fn keep_page(&self, page: &Arc<Page>) {
        if let Some(address) = page.address() {
            self.cached.insert(
                (address.file, address.offset),
                Cached::Page(Arc::clone(page)),
            );
        }
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
