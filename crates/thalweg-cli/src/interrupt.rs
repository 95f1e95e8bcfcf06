//! Ctrl-C.
//!
//! Work that can stop in good order holds a [`Listening`] and checks it from time to time. Anything else ends at once, and so does
//! work after a second press, or if it does not check for a second: nothing in a database depends on how a process ends.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_env::Env;

/// How long work may go on before it is ended.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

static LISTENERS: AtomicUsize = AtomicUsize::new(0);
static PRESSED: AtomicBool = AtomicBool::new(false);

/// Installs the handler of Ctrl-C.
pub(crate) fn listen() {
    let env = Env::os();
    let handler = move || {
        if LISTENERS.load(Ordering::SeqCst) == 0 || PRESSED.swap(true, Ordering::SeqCst) {
            end();
        }
        // Called on a thread of its own, which may wait.
        let start_ns = env.clock().monotonic_ns();
        while PRESSED.load(Ordering::SeqCst) {
            if u128::from(env.clock().monotonic_ns() - start_ns) > PATIENCE.as_nanos() {
                end();
            }
            env.clock().sleep(LOOK);
        }
    };
    // If no handler can be installed, Ctrl-C ends the process at once, as it does by default.
    let _ = ctrlc::set_handler(handler);
}

fn end() -> ! {
    Failure::Interrupted.report();
    std::process::exit(Failure::Interrupted.status().into())
}

/// Held by work that checks whether Ctrl-C was pressed.
#[derive(Debug)]
pub(crate) struct Listening(());

impl Listening {
    pub(crate) fn start() -> Self {
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Returns an error if Ctrl-C was pressed since the last check.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if PRESSED.swap(false, Ordering::SeqCst) {
            Err(Failure::Interrupted)
        } else {
            Ok(())
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::SeqCst);
        // A press that came after the last check is forgotten: the work is done.
        PRESSED.store(false, Ordering::SeqCst);
    }
}
