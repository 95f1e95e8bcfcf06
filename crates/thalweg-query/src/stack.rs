//! Room for recursion.
//!
//! Plans are walked by recursion, as deep as [`crate::parse`] lets chains of operators be. Threads of the caller may have
//! small stacks, so work moves to a larger one where too little is left.

/// Bytes that walking the deepest plan takes, with a margin.
const NEEDED_BYTES: usize = 4 << 20;
/// Size of a stack that is made for it, and of those of the threads of queries. Untouched parts cost nothing.
pub(crate) const STACK_BYTES: usize = 16 << 20;

/// Runs `work` with enough stack.
pub(crate) fn with_room<R>(work: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(NEEDED_BYTES, STACK_BYTES, work)
}
