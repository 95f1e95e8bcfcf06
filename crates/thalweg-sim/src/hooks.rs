//! Hooks that only a test binary can give: small index pages, which no library may select, and the memory that is in use.
//!
//! Invariant: without hooks everything works, with pages of full size and without checks of memory.

use std::sync::OnceLock;

/// The hooks of a test binary.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Limits the entries of index pages in this thread (`thalweg_kernel::limit_page_entries`).
    pub limit_page_entries: fn(usize),
    /// Bytes that this thread has allocated less those that it has freed.
    pub allocated_bytes: fn() -> i64,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks of this process; the first ones count.
pub fn set(hooks: Hooks) {
    HOOKS.get_or_init(|| hooks);
}

/// Limits the entries of index pages in this thread.
pub(crate) fn limit_page_entries(entries: usize) {
    if let Some(hooks) = HOOKS.get() {
        (hooks.limit_page_entries)(entries);
    }
}

/// Bytes that this thread holds, where a test binary counts them.
pub fn allocated_bytes() -> Option<i64> {
    HOOKS.get().map(|hooks| (hooks.allocated_bytes)())
}
