//! Appending texts to offsets and bytes.
//!
//! Invariants: the last offset is checked before anything is appended; all others are below it.

use crate::error::DecodeError;
use crate::offset::Offset;

/// The offset type cannot reach the end of the bytes.
pub(super) const BEYOND_OFFSETS: DecodeError =
    DecodeError::new("more bytes than the offset type reaches");

/// Appends the ends of texts whose bytes begin at `start`.
pub(super) fn push_offsets<O: Offset>(
    start: usize,
    lengths: &[u32],
    offsets: &mut Vec<O>,
) -> Result<(), DecodeError> {
    let total_bytes: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let end = usize::try_from(start as u64 + total_bytes).ok();
    end.and_then(O::from_index).ok_or(BEYOND_OFFSETS)?;
    let mut end = start;
    offsets.extend(lengths.iter().map(|&length| {
        // Below the last one, which fits.
        end += length as usize;
        O::wrapping(end)
    }));
    Ok(())
}

/// Appends the same text `rows` times.
pub(super) fn push_constant<O: Offset>(
    text: &[u8],
    rows: usize,
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let start = data.len();
    O::from_index(start + text.len() * rows).ok_or(BEYOND_OFFSETS)?;
    // None exceeds the last one, which fits.
    offsets.extend((1..=rows).map(|row| O::wrapping(start + text.len() * row)));
    if !text.is_empty() {
        (0..rows).for_each(|_| data.extend_from_slice(text));
    }
    Ok(())
}

/// Bytes that are copied at once, of texts that are no longer.
const SHORT_BYTES: usize = 32;

/// Where a text lies in others: its first byte and its length, in one word.
type Span = u64;

/// Appends the texts at these places of `source`, which add up to `total_bytes`.
pub(super) fn push_texts<O: Offset>(
    source: &[u8],
    spans: &[Span],
    total_bytes: usize,
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut end = data.len();
    let last = end + total_bytes;
    O::from_index(last).ok_or(BEYOND_OFFSETS)?;
    // A text and what follows it are copied together where there is room: a copy of a fixed length
    // is two instructions.
    data.resize(last + SHORT_BYTES, 0);
    offsets.extend(spans.iter().map(|&span| {
        let (first, length) = ((span >> 32) as usize, (span & 0xFFFF_FFFF) as usize);
        let whole = source.get(first..first + SHORT_BYTES);
        match (whole, data.get_mut(end..end + SHORT_BYTES)) {
            (Some(source), Some(target)) if length <= SHORT_BYTES => target.copy_from_slice(source),
            _ => data[end..end + length].copy_from_slice(&source[first..first + length]),
        }
        end += length;
        // Below the last one, which fits.
        O::wrapping(end)
    }));
    assert!(end == last, "texts that do not add up");
    data.truncate(last);
    Ok(())
}
