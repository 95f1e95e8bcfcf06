//! Bytes of values, regrouped by their place in the value.
//!
//! Invariants: as in the module above; the length of a shuffled slice is a multiple of the width.

#[cfg(target_arch = "x86_64")]
use super::{Registers, registers};

dispatch! {
    /// Writes byte 0 of each value of `width_bytes` (2, 4, 8 or 16), then byte 1 of each, and so on.
    shuffle_bytes, shuffle_body, <>(values: &[u8], width_bytes: usize, out: &mut [u8])
}

dispatch! {
    /// Undoes [`shuffle_bytes`].
    unshuffle_bytes, unshuffle_body, <>(shuffled: &[u8], width_bytes: usize, out: &mut [u8])
}

#[inline(always)]
fn shuffle_body(values: &[u8], width_bytes: usize, out: &mut [u8]) {
    assert!(
        values.len() == out.len() && values.len().is_multiple_of(width_bytes),
        "whole values"
    );
    match width_bytes {
        2 => shuffle::<2>(values, out),
        4 => shuffle::<4>(values, out),
        8 => shuffle::<8>(values, out),
        16 => shuffle::<16>(values, out),
        _ => assert!(values.is_empty(), "values of {width_bytes} bytes"),
    }
}

#[inline(always)]
fn shuffle<const WIDTH: usize>(values: &[u8], out: &mut [u8]) {
    let (values, _) = values.as_chunks::<WIDTH>();
    for byte in 0..WIDTH {
        let plane = &mut out[byte * values.len()..][..values.len()];
        for (value, out) in values.iter().zip(plane) {
            *out = value[byte];
        }
    }
}

#[inline(always)]
fn unshuffle_body(shuffled: &[u8], width_bytes: usize, out: &mut [u8]) {
    assert!(
        shuffled.len() == out.len() && shuffled.len().is_multiple_of(width_bytes),
        "whole values"
    );
    match width_bytes {
        2 => unshuffle::<2>(shuffled, out),
        4 => unshuffle::<4>(shuffled, out),
        8 => unshuffle::<8>(shuffled, out),
        16 => unshuffle::<16>(shuffled, out),
        _ => assert!(shuffled.is_empty(), "values of {width_bytes} bytes"),
    }
}

#[inline(always)]
fn unshuffle<const WIDTH: usize>(shuffled: &[u8], out: &mut [u8]) {
    let (values, _) = out.as_chunks_mut::<WIDTH>();
    let rows = values.len();
    let planes: [&[u8]; WIDTH] = std::array::from_fn(|byte| &shuffled[byte * rows..][..rows]);
    for (row, value) in values.iter_mut().enumerate() {
        for (byte, plane) in value.iter_mut().zip(planes) {
            *byte = plane[row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_bytes_come_back() {
        for width in [2, 4, 8, 16] {
            for rows in [0, 1, 7, 64, 100] {
                let values: Vec<u8> = (0..width * rows)
                    .map(|byte| u8::try_from(byte * 7 % 251).unwrap())
                    .collect();
                let mut shuffled = vec![0; values.len()];
                shuffle_bytes(&values, width, &mut shuffled);
                for row in 0..rows {
                    for byte in 0..width {
                        assert_eq!(shuffled[byte * rows + row], values[row * width + byte]);
                    }
                }
                let mut back = vec![0; values.len()];
                unshuffle_bytes(&shuffled, width, &mut back);
                assert_eq!(back, values);
            }
        }
    }
}
