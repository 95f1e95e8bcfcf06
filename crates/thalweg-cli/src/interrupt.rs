//! Ctrl-C.
//!
//! Work that can stop in good order says so by holding a [`Listening`] and looks from time to time. Anything else, and
//! whoever presses twice, ends at once: nothing in a database depends on how a process ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The exit status of a process that was interrupted.
const STATUS: i32 = 130;

static LISTENERS: AtomicUsize = AtomicUsize::new(0);
static PRESSED: AtomicBool = AtomicBool::new(false);

/// Takes Ctrl-C from now on.
pub(crate) fn listen() {
    let handler = || {
        if LISTENERS.load(Ordering::SeqCst) == 0 || PRESSED.swap(true, Ordering::SeqCst) {
            std::process::exit(STATUS);
        }
    };
    // Without a handler Ctrl-C ends the process as ever.
    let _ = ctrlc::set_handler(handler);
}

/// Somebody looks whether Ctrl-C was pressed.
#[derive(Debug)]
pub(crate) struct Listening(());

impl Listening {
    pub(crate) fn start() -> Self {
        PRESSED.store(false, Ordering::SeqCst);
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Whether it was pressed since.
    pub(crate) fn pressed(&self) -> bool {
        PRESSED.load(Ordering::SeqCst)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::SeqCst);
    }
}
