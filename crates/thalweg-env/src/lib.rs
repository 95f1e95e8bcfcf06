//! Files, clock, randomness and threads behind one environment, so that a simulator can crash everything.
//!
//! Invariants
//! - Nothing below the SQL layer touches the operating system except through an [`Env`]; `clippy.toml`
//!   at the root of the workspace bans the calls that would.
//! - [`Env::os`] is the real thing, [`Env::in_memory`] the same with files in memory, [`sim::SimEnv`] a machine for tests
//!   that can lose, tear, delay and refuse. All obey the same trait contracts (`tests/contract.rs`); where they differ, the
//!   simulated one is the stricter.
//! - No trait here knows databases: bytes, names, times and threads only.
//! - The only unsafe code calls the C library for open-file-description locks, and to let go of them in a child of a fork
//!   ([`os`]).
//! - Handles that a process has opened are of no use to a child of its fork ([`Env::for_this_process`]).
//!
//! Durability: bytes of a file are durable after [`File::sync_data`], its name after [`Storage::sync_dir`] of its
//! directory. Neither implies the other.
#![deny(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "thalweg-env supports Unix only: it relies on pread, directory syncs and file locks of POSIX systems"
);

#[cfg(all(
    unix,
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
compile_error!(
    "thalweg-env supports Linux, Android and the systems of Apple only: it relies on locks of byte ranges that belong to an \
     open file (F_OFD_SETLK), which this system does not have"
);

mod beside;
mod memory;
mod os;
mod owner;
mod rules;
mod runtime;
pub mod sim;
mod storage;
pub mod sync;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use beside::Beside;
pub use os::{beyond_standard_streams, start_threads};
pub use owner::{NotOwner, Owner};
pub use runtime::{Clock, Entropy, Join, JoinHandle, Panicked, Spawner};
pub use storage::{
    Dir, DirEntry, File, LockKind, MAX_SLICES, Metadata, OpenMode, Released, Storage, is_unreadable,
};

/// Everything the engine needs from the outside: storage, time, randomness, threads.
///
/// Cloning is cheap; clones share the same underlying environment.
///
/// ```
/// # #[cfg(feature = "shuttle")]
/// # fn main() {} // Runs inside a shuttle execution only.
/// # #[cfg(not(feature = "shuttle"))]
/// # fn main() -> std::io::Result<()> {
/// use std::path::Path;
/// use thalweg_env::{Env, OpenMode};
///
/// let env = Env::in_memory();
/// let file = env.storage().open(Path::new("/readings"), OpenMode::CreateNew)?;
/// file.write_all_at(b"20.5", 0)?;
/// let mut bytes = [0; 4];
/// file.read_exact_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"20.5");
/// assert!(Env::in_memory().storage().metadata(Path::new("/readings")).is_err()); // another memory
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    spawner: Arc<dyn Spawner>,
}

impl Env {
    /// The operating system's files, clocks, random source and threads.
    #[must_use]
    pub fn os() -> Env {
        Env::new(
            Arc::new(os::OsStorage::default()),
            Arc::new(os::OsClock),
            Arc::new(os::OsEntropy),
            Arc::new(os::OsSpawner),
        )
    }

    /// The clocks, random source and threads of the operating system, with files of its own in memory: empty at first, and
    /// gone with the last clone and the last open file.
    #[must_use]
    pub fn in_memory() -> Env {
        Env {
            storage: Arc::new(memory::MemoryStorage::new()),
            ..Env::os()
        }
    }

    /// An environment of the given parts, for example the real storage with a settable clock.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        spawner: Arc<dyn Spawner>,
    ) -> Env {
        Env {
            storage,
            clock,
            entropy,
            spawner,
        }
    }

    /// The same environment for this process alone: in a child of a fork each call for files fails with [`NotOwner`], so
    /// that nothing that was opened here can be read, written, cut, removed or unlocked there.
    ///
    /// ```
    /// use thalweg_env::Env;
    ///
    /// let owner = Env::os().owner();
    /// assert!(owner.is_here());
    /// assert!(owner.check().is_ok()); // in a child of a fork it is the error `NotOwner`
    /// ```
    #[must_use]
    pub fn for_this_process(&self) -> Env {
        let storage = Arc::clone(&self.storage);
        Env {
            storage: Arc::new(owner::OwnedStorage::new(storage, self.owner())),
            ..self.clone()
        }
    }

    /// The same environment, in which paths that begin with `folder` keep leading into the folder that has this name now
    /// ([`Storage::hold`]).
    ///
    /// # Errors
    /// Those of opening the folder.
    pub fn holding(&self, folder: &Path) -> io::Result<Env> {
        Ok(Env {
            storage: self.storage.hold(folder)?,
            ..self.clone()
        })
    }

    /// This process, as the owner of what it is about to make.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(Arc::clone(&self.clock))
    }

    /// The file system.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The clocks.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The source of randomness.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Starts threads.
    #[must_use]
    pub fn spawner(&self) -> &Arc<dyn Spawner> {
        &self.spawner
    }
}
