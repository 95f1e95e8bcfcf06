//! Advisory locks owned by an open file handle, not by the process.
//!
//! Linux has open-file-description locks on byte ranges. Classic `fcntl` locks were rejected: a process
//! loses them when it closes *any* handle of the file. Elsewhere `flock` gives the same ownership, but for
//! the whole file only.

use std::fs::File;
use std::io;
use std::ops::Range;

use crate::storage::LockKind;

pub(super) use imp::{is_locked, try_lock, unlock};

#[cfg(any(target_os = "linux", target_os = "android"))]
#[expect(
    unsafe_code,
    reason = "no safe wrapper we depend on offers F_OFD_SETLK"
)]
mod imp {
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;

    use super::{File, LockKind, Range, io};

    pub(crate) fn try_lock(file: &File, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let lock_type = match kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        };
        match set_lock(file, range, lock_type) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn unlock(file: &File, range: Range<u64>) -> io::Result<()> {
        set_lock(file, range, libc::F_UNLCK)
    }

    pub(crate) fn is_locked(file: &File, range: Range<u64>) -> io::Result<bool> {
        // What would be in the way of an exclusive lock is any lock.
        let mut lock = lock_of(range, libc::F_WRLCK)?;
        call(file, libc::F_OFD_GETLK, &mut lock)?;
        Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn set_lock(file: &File, range: Range<u64>, lock_type: libc::c_int) -> io::Result<()> {
        call(file, libc::F_OFD_SETLK, &mut lock_of(range, lock_type)?)
    }

    fn lock_of(range: Range<u64>, lock_type: libc::c_int) -> io::Result<libc::flock> {
        // A length of zero means "to the end of the file" to fcntl, which no caller here means.
        let len_bytes = range
            .end
            .checked_sub(range.start)
            .filter(|len| *len > 0)
            .ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: `flock` is a plain C struct of integers, for which all zeros is a valid value; `l_pid`
        // must be zero for open-file-description locks, and some targets have padding fields.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::c_short::try_from(lock_type).map_err(io::Error::other)?;
        lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
        lock.l_start = libc::off_t::try_from(range.start).map_err(io::Error::other)?;
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

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    use super::{File, LockKind, Range, io};

    pub(crate) fn try_lock(file: &File, _range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(file, operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn unlock(file: &File, _range: Range<u64>) -> io::Result<()> {
        Ok(flock(file, FlockOperation::Unlock)?)
    }
    pub(crate) fn is_locked(file: &File, range: Range<u64>) -> io::Result<bool> {
        let is_free = try_lock(file, range.clone(), LockKind::Shared)?;
        if is_free {
            unlock(file, range)?;
        }
        Ok(!is_free)
    }
}
