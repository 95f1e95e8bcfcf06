//! Which process this is, asked for with every commit.
//!
//! Invariant: what is remembered is right: a child of a fork forgets it before it runs anything else.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use imp::id;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use std::process::id;

/// The C library of Linux asks the system each time: 150 ns, a seventh of what storing a row takes.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[expect(
    unsafe_code,
    reason = "only the C library tells a child of a fork that it is one"
)]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Not known yet.
    const UNKNOWN: u32 = 0;
    static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);
    static TOLD_OF_FORKS: OnceLock<bool> = OnceLock::new();

    extern "C" fn forget() {
        KNOWN.store(UNKNOWN, Ordering::Relaxed);
    }

    pub(crate) fn id() -> u32 {
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => learn(),
            id => id,
        }
    }

    #[cold]
    fn learn() -> u32 {
        let told_of_forks = *TOLD_OF_FORKS.get_or_init(|| {
            // SAFETY: the handler is a function of the signature that is asked for, for as long as the process lives,
            // and does nothing but an atomic store, which is allowed between a fork and whatever follows.
            unsafe { libc::pthread_atfork(None, None, Some(forget)) == 0 }
        });
        let id = std::process::id();
        if told_of_forks {
            KNOWN.store(id, Ordering::Relaxed);
        }
        id
    }
}
