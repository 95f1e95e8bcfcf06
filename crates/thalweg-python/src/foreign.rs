//! Arrow memory that belongs to Python, and that any thread of the engine may be the last to drop.
//!
//! Invariant: it is released within a [`Callback`], or not at all. Its release function may take the interpreter, as that of
//! pyarrow does for memory of NumPy, which a thread must not do once the interpreter ends.
//!
//! Rejected: copying what comes from Python. Rejected: handing it to the next thread that calls this package with the
//! interpreter held, as PyO3 does with references: a table of gigabytes would stay until somebody calls again.

use crate::finalize::Callback;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use bytes::Bytes;
use std::mem::ManuallyDrop;

/// Validates an array and puts all of its buffers under the invariant above. Nothing is copied.
///
/// # Errors
/// When the content of the array is not what its type says: offsets out of bounds, text that is not UTF-8.
pub(crate) fn adopt(array: ArrayData) -> Result<ArrayData, ArrowError> {
    let buffers = array.buffers().iter().map(guarded).collect();
    let nulls = array.nulls().map(|nulls| {
        let bits = BooleanBuffer::new(guarded(nulls.buffer()), nulls.offset(), nulls.len());
        NullBuffer::new(bits)
    });
    let children = array.child_data().iter().cloned().map(adopt);
    let children = children.collect::<Result<Vec<_>, _>>()?;
    let builder = array.into_builder().buffers(buffers).nulls(nulls);
    builder.child_data(children).build()
}

fn guarded(buffer: &Buffer) -> Buffer {
    Buffer::from(Bytes::from_owner(Foreign(Some(buffer.clone()))))
}

/// Drops a value of Python, or leaks it when the interpreter ends.
pub(crate) fn give_back<T>(owned: T) {
    match Callback::begin() {
        Ok(_running) => drop(owned),
        Err(_) => {
            let _leaked = ManuallyDrop::new(owned);
        }
    }
}

/// A buffer of Python; `None` once it is dropped.
struct Foreign(Option<Buffer>);

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        give_back(self.0.take());
    }
}
