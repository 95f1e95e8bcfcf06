//! Pages of plain values.

use zerocopy::IntoBytes;

use crate::element::Element;
use crate::error::{DecodeError, ensure};

/// Mode byte of a page whose values lie in it as they are.
const PLAIN: u8 = 1;

/// Appends a plain page.
pub(crate) fn encode_plain<T: Element>(values: &[T], out: &mut Vec<u8>) {
    out.push(PLAIN);
    out.extend_from_slice(values.as_bytes());
}

/// Appends a plain page of bits, those behind the last row cleared.
pub(crate) fn encode_plain_bits(bits: &[u8], rows: usize, out: &mut Vec<u8>) {
    encode_plain(bits, out);
    if rows % 8 != 0
        && let Some(last) = out.last_mut()
    {
        *last &= (1 << (rows % 8)) - 1;
    }
}

/// Reads `out.len()` values and returns the bytes behind them.
pub(crate) fn decode_plain<'a, T: Element>(
    page: &'a [u8],
    out: &mut [T],
) -> Result<&'a [u8], DecodeError> {
    let (&mode, rest) = page.split_first().ok_or(DecodeError::new("empty page"))?;
    ensure(mode == PLAIN, "unknown page mode")?;
    let (values, rest) = rest
        .split_at_checked(size_of_val(out))
        .ok_or(DecodeError::new("page ends within its values"))?;
    out.as_mut_bytes().copy_from_slice(values);
    Ok(rest)
}
