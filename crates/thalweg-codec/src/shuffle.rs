//! Byte shuffle: byte 0 of each value, then byte 1 of each, up to the last, so that the bytes that
//! change little lie together for the last stage.
//!
//! Invariants: only plain pages of values of 2 to 16 bytes are shuffled.

use zerocopy::{Immutable, IntoBytes};

use crate::chain::ElementType;
use crate::mode::PageMode;
use crate::wide::{shuffle_bytes, unshuffle_bytes};

/// Appends a plain page of `values`, its bytes shuffled.
pub(crate) fn write_shuffled<T: IntoBytes + Immutable>(values: &[T], out: &mut Vec<u8>) {
    let start = out.len() + 1;
    out.push(PageMode::Plain.to_byte());
    out.resize(start + size_of_val(values), 0);
    shuffle_bytes(values.as_bytes(), size_of::<T>(), &mut out[start..]);
}

/// Undoes the shuffle of values of `width_bytes`.
pub(crate) fn unshuffle(shuffled: &[u8], width_bytes: usize, out: &mut [u8]) {
    unshuffle_bytes(shuffled, width_bytes, out);
}

/// The bytes of a value that may be shuffled.
pub(crate) fn width_bytes(element: ElementType) -> Option<usize> {
    match element {
        ElementType::I16 | ElementType::U16 => Some(2),
        ElementType::I32 | ElementType::U32 | ElementType::F32 => Some(4),
        ElementType::I64 | ElementType::U64 | ElementType::F64 => Some(8),
        ElementType::I128 => Some(16),
        ElementType::I8 | ElementType::U8 | ElementType::Bytes | ElementType::Bits => None,
    }
}
