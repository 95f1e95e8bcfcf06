//! Advisory locks on byte ranges, owned by an open file description and not by the process.
//!
//! Invariants
//! - A lock excludes other handles of the same process as well, and goes with the handle. Classic `fcntl` locks were
//!   rejected: a process loses them when it closes *any* handle of the file. So was `flock`: it covers the whole file, so
//!   that two readers could not each own a slot of one. Systems without such locks are refused when this crate is built.
//! - A child of a fork holds no lock of its parent, although it inherits the descriptors and, with them, the open file
//!   descriptions that own the locks: a lock would stay until the last child has ended, however the parent ended.
//!   Before anything else runs in the child, each descriptor of a file is replaced by one of `/dev/null`. The
//!   parent's lock is not touched, and whoever drops the inherited handle later closes a descriptor that is still its own.
//!
//! # Forks while other threads open, lock and close files
//! A lock belongs to the open file description, so what a child must not keep is each description that the parent locks,
//! before the fork *or later*. Therefore every file is listed ([`super::descriptors`]), and not only those that are locked.
//! - A file counts as open once no fork can have come between opening and listing it: [`open_listed`] waits for forks that
//!   are under way, and opens it again if one began meanwhile. (The description that such a child may share is closed here
//!   without ever having had a lock.)
//! - A file gives back its locks, leaves the list and is closed, in this order. So a child that does not find it in the list
//!   inherits a description without a lock. The kernel copies descriptors and memory one after the other, and not both at
//!   one instant: either copy may be the older one, and the rule holds for both.
//!
//! `posix_spawn`, `vfork` and a bare `clone` do not call the handler; the descriptors are close-on-exec, so such a child
//! loses them with its `exec`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{descriptors, process};
use crate::storage::LockKind;

/// The first descriptor after those of the standard streams.
const FIRST_DESCRIPTOR: RawFd = 3;

/// An open file, of which no child of a fork keeps a descriptor.
#[derive(Debug)]
pub(super) struct ListedFile {
    file: File,
    is_listed: bool,
    /// It was locked: its locks are given back before it leaves the list.
    has_locks: AtomicBool,
}

/// Opens a file so that no child of a fork shares its description. `open` is called with whether it opens it for the first time.
pub(super) fn open_listed(open: impl Fn(bool) -> io::Result<File>) -> io::Result<ListedFile> {
    let mut is_first = true;
    loop {
        let forks = process::forks_so_far();
        let file = ListedFile::new(beyond_standard_streams(open(is_first)?)?);
        // The list is written before this is read: a fork that begins later finds the file there.
        if process::is_this_many(forks) {
            return Ok(file);
        }
        is_first = false;
    }
}

/// The file under a descriptor that is none of the standard streams. Where a program has closed these, the next files that are
/// opened get their numbers, and what any library writes to the standard error would go into them.
///
/// # Errors
/// When no descriptor is left.
pub fn beyond_standard_streams(file: File) -> io::Result<File> {
    if file.as_raw_fd() >= FIRST_DESCRIPTOR {
        return Ok(file);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, FIRST_DESCRIPTOR)?.into())
}

impl ListedFile {
    fn new(file: File) -> ListedFile {
        ListedFile {
            is_listed: descriptors::set(file.as_raw_fd(), true),
            file,
            has_locks: AtomicBool::new(false),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let range = range_of(&range)?;
        if !self.is_listed || !process::is_told_of_forks() {
            return Err(io::Error::other(
                "the file cannot be locked: a child of a fork would keep the lock",
            ));
        }
        self.has_locks.store(true, Ordering::Relaxed);
        imp::try_lock(&self.file, range, kind)
    }

    pub(super) fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        imp::unlock(&self.file, range_of(&range)?)
    }

    pub(super) fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        imp::is_locked(&self.file, range_of(&range)?)
    }
}

impl Drop for ListedFile {
    fn drop(&mut self) {
        if *self.has_locks.get_mut() {
            // In a child of a fork this is a descriptor of `/dev/null`.
            let _ = imp::unlock(&self.file, WHOLE_FILE);
        }
        descriptors::set(self.file.as_raw_fd(), false);
    }
}

/// Start and length; a length of zero means "to the end of the file", whatever its length.
type StartAndLen = (u64, u64);

const WHOLE_FILE: StartAndLen = (0, 0);

fn range_of(range: &Range<u64>) -> io::Result<StartAndLen> {
    let len_bytes = range.end.checked_sub(range.start);
    let len_bytes = len_bytes.filter(|len| *len > 0);
    Ok((range.start, len_bytes.ok_or(ErrorKind::InvalidInput)?))
}

#[expect(
    unsafe_code,
    reason = "no safe wrapper we depend on offers F_OFD_SETLK"
)]
mod imp {
    use std::os::fd::AsRawFd;

    use super::{ErrorKind, File, LockKind, StartAndLen, io};

    pub(crate) fn try_lock(file: &File, range: StartAndLen, kind: LockKind) -> io::Result<bool> {
        let lock_type = match kind {
            LockKind::Shared => libc::F_RDLCK.into(),
            LockKind::Exclusive => libc::F_WRLCK.into(),
        };
        match call(file, libc::F_OFD_SETLK, &mut lock_of(range, lock_type)?) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn unlock(file: &File, range: StartAndLen) -> io::Result<()> {
        let mut lock = lock_of(range, libc::F_UNLCK.into())?;
        call(file, libc::F_OFD_SETLK, &mut lock)
    }

    pub(crate) fn is_locked(file: &File, range: StartAndLen) -> io::Result<bool> {
        // What would be in the way of an exclusive lock is any lock.
        let mut lock = lock_of(range, libc::F_WRLCK.into())?;
        call(file, libc::F_OFD_GETLK, &mut lock)?;
        Ok(i64::from(lock.l_type) != i64::from(libc::F_UNLCK))
    }

    fn lock_of((start, len_bytes): StartAndLen, lock_type: i64) -> io::Result<libc::flock> {
        // SAFETY: `flock` is a plain C struct of integers, for which all zeros is a valid value; `l_pid`
        // must be zero for open-file-description locks, and some targets have padding fields.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::c_short::try_from(lock_type).map_err(io::Error::other)?;
        lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
        lock.l_start = libc::off_t::try_from(start).map_err(io::Error::other)?;
        lock.l_len = libc::off_t::try_from(len_bytes).map_err(io::Error::other)?;
        Ok(lock)
    }

    fn call(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open as long as `file` is borrowed, and `lock` is a valid `flock`, borrowed
            // alone, that outlives the call, which reads it and at most writes another valid one.
            let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) };
            if result != -1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}
