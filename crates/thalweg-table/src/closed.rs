//! Whether a database is still open in this process.
//!
//! Invariant: a database that was closed is never open again.

use std::sync::Arc;
use thalweg_env::Owner;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};
use thalweg_kernel::{Error, Result};

/// Whether the database was closed. Its files may belong to another process from then on, so nothing is read any more. In a
/// child of a fork it is of no use either, and nothing may be waited for there: the lock of a cache or of the pool may be held
/// by a thread that the child does not have.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    is_closed: Arc<AtomicBool>,
    owner: Owner,
}

impl Closed {
    /// A database that is open, in this process.
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            is_closed: Arc::default(),
            owner,
        }
    }

    /// Closes it for everybody.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// The process that has opened it.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// # Errors
    /// `Unavailable` once the database is closed, and in a child of the process that has opened it.
    pub(crate) fn check(&self) -> Result<()> {
        self.owner.check().map_err(Error::not_owner)?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        Ok(())
    }
}
