//! Memory that Python hands in, and that threads of the engine drop.
//!
//! Invariant: what belongs to Python is dropped within a [`Callback`], or not at all. Who exports Arrow data may take the
//! interpreter to free it (pyarrow does for memory of NumPy), which a thread must not do once the interpreter ends.

use crate::finalize::Callback;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use bytes::Bytes;
use std::mem::ManuallyDrop;

/// The same array, of buffers that are dropped by these rules. Nothing is copied.
///
/// # Errors
/// When the inside of the array is not what its type says: offsets out of bounds, text that is not UTF-8.
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

/// Drops it, or keeps it for ever when the interpreter ends.
pub(crate) fn give_back<T>(owned: T) {
    match Callback::begin() {
        Ok(_running) => drop(owned),
        Err(_) => {
            let _kept = ManuallyDrop::new(owned);
        }
    }
}

/// A buffer, until it is dropped.
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
