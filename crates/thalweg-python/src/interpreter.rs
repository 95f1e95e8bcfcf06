//! The interpreter, where PyO3 may be wrong about who holds it.
//!
//! PyO3 counts for each thread how often it has attached, and takes one that has for one that holds the interpreter. That is untrue
//! below code that releases it by itself: an append reads a list, which has pyarrow read an item, which releases the interpreter
//! and calls the stream of a result. Detached as if it held the interpreter, the process would be ended by it.
//!
//! Invariant: what such code can call, streams of Arrow and the release of what is in them, attaches below a [`Held`].
#![expect(
    unsafe_code,
    reason = "PyO3 has no call that looks at the interpreter itself"
)]

use crate::finalize::{Callback, Ending};
use pyo3::ffi;
use std::marker::PhantomData;

/// The interpreter is held by this thread for as long as this lives, whoever held it before. Detaching releases it meanwhile.
pub(crate) struct Held {
    before: ffi::PyGILState_STATE,
    /// Of one thread.
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// # Errors
    /// When the interpreter ends.
    pub(crate) fn begin() -> Result<Self, Ending> {
        // The end of the interpreter waits for it, so that it does not come in between.
        let _running = Callback::begin()?;
        // SAFETY: the interpreter runs, or no object of Python would have led here, and it does not end while a callback runs.
        // Threads that hold it already may call this, too.
        let before = unsafe { ffi::PyGILState_Ensure() };
        Ok(Self {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: called once for the call in `begin`, by the same thread, in the reverse order of such calls. It holds the
        // interpreter: who detaches attaches again before it goes on.
        unsafe { ffi::PyGILState_Release(self.before) };
    }
}
