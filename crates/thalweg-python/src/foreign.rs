//! Arrow memory that belongs to Python, and that any thread of the engine may be the last to drop.
//!
//! Invariant: it is released within a [`Callback`], or not at all. Its release function may take the interpreter, as that of
//! pyarrow does for memory of NumPy, which a thread must not do once the interpreter ends.
//!
//! Rejected: copying all that comes from Python. Rejected: handing it to the next thread that calls this package with the
//! interpreter held, as PyO3 does with references: a table of gigabytes would stay until somebody calls again.

use crate::finalize::Callback;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, downcast_primitive_array, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use bytes::Bytes;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Buffers of up to this size are copied, which costs less than to guard them: most appends are of few rows.
const COPIED_BYTES: usize = 2048;

/// Validates an array and puts all of its buffers under the invariant above. Large ones are not copied.
///
/// # Errors
/// When the content of the array does not fit its type: offsets out of bounds, text that is not UTF-8.
pub(crate) fn adopt(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let array = array.as_ref();
    downcast_primitive_array!(
        array => adopt_numbers(array),
        _ => adopt_data(array.to_data()).map(make_array),
    )
}

/// Guards an array of numbers. These are any bits, so there is nothing to validate.
fn adopt_numbers<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Result<ArrayRef, ArrowError> {
    let values = ScalarBuffer::from(guarded(array.values().inner()));
    let array = PrimitiveArray::<T>::try_new(values, array.nulls().map(guarded_nulls))?
        .with_data_type(array.data_type().clone());
    Ok(Arc::new(array))
}

fn adopt_data(array: ArrayData) -> Result<ArrayData, ArrowError> {
    let buffers = array.buffers().iter().map(guarded).collect();
    let nulls = array.nulls().map(guarded_nulls);
    let children = array.child_data().iter().cloned().map(adopt_data);
    let children = children.collect::<Result<Vec<_>, _>>()?;
    let builder = array.into_builder().buffers(buffers).nulls(nulls);
    builder.child_data(children).build()
}

fn guarded_nulls(nulls: &NullBuffer) -> NullBuffer {
    let bits = BooleanBuffer::new(guarded(nulls.buffer()), nulls.offset(), nulls.len());
    NullBuffer::new(bits)
}

fn guarded(buffer: &Buffer) -> Buffer {
    if buffer.len() <= COPIED_BYTES {
        return Buffer::from(buffer.as_slice());
    }
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
