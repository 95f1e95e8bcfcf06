//! The memory of buffers that are reused from one chunk to the next.

/// A buffer with more bytes is not kept after a chunk: one of a million rows would keep its memory
/// as long as its encoder lives.
pub(crate) const MAX_KEPT_BYTES: usize = 4 << 20;

/// The memory of a buffer.
pub(crate) fn capacity_bytes<T>(buffer: &Vec<T>) -> usize {
    buffer.capacity() * size_of::<T>()
}

/// Gives the memory of a buffer back if it is more than `limit_bytes`.
pub(crate) fn trim<T>(buffer: &mut Vec<T>, limit_bytes: usize) {
    if capacity_bytes(buffer) > limit_bytes {
        *buffer = Vec::new();
    }
}
