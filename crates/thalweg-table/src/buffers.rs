//! The memory of arrays, used again.
//!
//! Invariants: memory comes back when the last array that shares it is dropped, wherever that happens; at most
//! `MAX_KEPT_BYTES` wait to be used again, and only for as long as the scan that they belong to. What is in a
//! buffer that was used before is arbitrary: whoever takes one writes every byte that an array will show.
//!
//! A replay writes its result to memory once. Fresh memory costs more than the decoding itself: the system clears and
//! maps a page for every 4 KiB, and the allocator gives the pages back batch by batch (measured: 2.2 s for 100 million
//! rows of 72 bytes with fresh memory, 1.2 s with the allocator told to keep it).

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use thalweg_env::sync::Mutex;

/// Smaller memory is not worth the detour: the allocator has it at hand.
pub(crate) const MIN_BYTES: usize = 32 << 10;
/// The widest values: memory is handed out in whole ones, whatever lay in it before.
const WIDEST_BYTES: usize = size_of::<i128>();
/// Memory that waits to be used again.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// Memory of one scan that waits to be used again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<MutableBuffer>,
    bytes: usize,
}

/// Memory that an array shows.
struct Lent {
    buffer: MutableBuffer,
    home: Weak<Buffers>,
}

/// Memory for at least so many bytes, aligned to the widest values.
///
/// Arrow aligns to 128 bytes, which is more than any value needs. An allocator may keep no memory of such an alignment at
/// hand: jemalloc's thread caches serve it up to 14 KiB only, and all larger memory then costs a lock and a search.
pub(crate) fn allocate(bytes: usize) -> MutableBuffer {
    Vec::<i128>::with_capacity(bytes.div_ceil(WIDEST_BYTES)).into()
}

impl Buffers {
    /// Memory for at least so many bytes. Its contents are those of its last use, its length whole values of any type.
    pub(crate) fn take(&self, bytes: usize) -> MutableBuffer {
        let mut free = self.free.lock();
        let Some(at) = free
            .buffers
            .iter()
            .rposition(|buffer| buffer.capacity() >= bytes)
        else {
            return allocate(bytes);
        };
        let mut buffer = free.buffers.swap_remove(at);
        free.bytes -= buffer.capacity();
        buffer.truncate(buffer.len() / WIDEST_BYTES * WIDEST_BYTES);
        buffer
    }

    /// The memory for an array, until nobody needs it any more.
    pub(crate) fn lend(self: &Arc<Self>, buffer: MutableBuffer) -> Buffer {
        Bytes::from_owner(Lent {
            buffer,
            home: Arc::downgrade(self),
        })
        .into()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else {
            return;
        };
        let buffer = std::mem::replace(&mut self.buffer, MutableBuffer::new(0));
        // Without waiting for the lock: in a child of a fork it may be held by a thread that is not there.
        if let Some(mut free) = home.free.try_lock()
            && free.bytes + buffer.capacity() <= MAX_KEPT_BYTES
        {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_its_last_reader_is_gone() {
        let buffers = Arc::new(Buffers::default());
        let mut memory = buffers.take(100_000);
        memory.resize(100_000, 7);
        let place = memory.as_ptr();
        let array = buffers.lend(memory);
        let shared = array.slice(50_000);
        drop(array);
        assert_ne!(buffers.take(100_000).as_ptr(), place, "still in use");
        assert!(shared.iter().all(|byte| *byte == 7));
        drop(shared);
        let again = buffers.take(60_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 100_000));
    }

    #[test]
    fn memory_of_narrow_values_is_used_for_wide_ones() {
        let buffers = Arc::new(Buffers::default());
        let mut memory = buffers.take(100_001);
        memory.resize(100_001, 7);
        drop(buffers.lend(memory));
        let mut again = buffers.take(80_000);
        assert_eq!(again.len(), 100_000);
        assert_eq!(again.typed_data_mut::<i128>().len(), 6_250);
    }

    #[test]
    fn memory_outlives_its_home_and_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let lent: Vec<Buffer> = (0..40)
            .map(|_| buffers.lend(buffers.take(1 << 20)))
            .collect();
        drop(lent);
        assert!(buffers.free.lock().bytes <= MAX_KEPT_BYTES);
        let mut memory = MutableBuffer::new(0);
        memory.resize(10, 1);
        let array = buffers.lend(memory);
        drop(buffers);
        assert_eq!(array.as_slice(), [1; 10]);
    }
}
