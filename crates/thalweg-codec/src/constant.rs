//! Chunks whose values are all the same.
//!
//! Invariants: the value is the prelude, and every page is empty.

use zerocopy::FromBytes;

use crate::chain::ChunkKind;
use crate::chunk::EncodedChunk;
use crate::error::DecodeError;
use crate::integers;

/// Whether there are values, all the same.
pub(crate) fn is_constant<T: PartialEq>(values: &[T]) -> bool {
    values
        .first()
        .is_some_and(|first| values.iter().all(|value| value == first))
}

/// Makes the chunk one value for all rows.
pub(crate) fn write(value: &[u8], out: &mut EncodedChunk) {
    out.codec.kind = ChunkKind::Constant;
    out.bytes.extend_from_slice(value);
    out.prelude_bytes = integers::small(value.len());
    out.page_ends.resize(out.planned_pages(), out.prelude_bytes);
}

/// The value of a constant chunk.
pub(crate) fn read<T: FromBytes>(prelude: &[u8]) -> Result<T, DecodeError> {
    T::read_from_bytes(prelude).map_err(|_| DecodeError::new("constant of the wrong length"))
}
