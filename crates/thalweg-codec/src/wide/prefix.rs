//! Prefix sums in registers of 512 bits.
//!
//! Invariants: unsafe code reads and writes one array of 64 bytes through a reference to it. Sums wrap, as those of one
//! value after the other do.
//!
//! One value after the other takes a cycle each, because each addition waits for the one before: it was a fifth of
//! decoding a table of measurements. Here the sums inside a register are made by shifting and adding, three times for
//! eight values, and only one addition waits for the register before.

use std::arch::x86_64::{
    __m512i, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm512_add_epi32, _mm512_add_epi64,
    _mm512_alignr_epi32, _mm512_alignr_epi64, _mm512_castsi512_si128, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi32,
    _mm512_shuffle_i64x2, _mm512_storeu_si512, _mm512_unpackhi_epi64,
};

macro_rules! prefix_sum {
    (
        $(#[$doc:meta])*
        $name:ident, $lane:ident, $lanes:literal, $add:ident, shift: $shift:ident by [$($by:literal),*],
        first of all: $spread:ident, last of all: $last:ident, first: $first:ident
    ) => {
        $(#[$doc])*
        #[target_feature(enable = "avx512f")]
        pub(super) fn $name(values: &mut [$lane], start: $lane) {
            let zero = _mm512_setzero_si512();
            let mut before = $spread(start.cast_signed());
            let (registers, rest) = values.as_chunks_mut::<$lanes>();
            for register in registers {
                // SAFETY: reads the 64 bytes of the array; any alignment will do.
                let mut sums = unsafe { _mm512_loadu_si512(register.as_ptr().cast()) };
                $(sums = $add(sums, $shift::<$by>(sums, zero));)*
                // SAFETY: writes the 64 bytes of the array; any alignment will do.
                unsafe { _mm512_storeu_si512(register.as_mut_ptr().cast(), $add(sums, before)) };
                before = $add(before, $last(sums));
            }
            let mut sum = $first(_mm512_castsi512_si128(before)).cast_unsigned();
            for value in rest {
                sum = sum.wrapping_add(*value);
                *value = sum;
            }
        }
    };
}

prefix_sum! {
    /// [`Lane::prefix_sum`](super::Lane::prefix_sum) of eight lanes at a time.
    prefix_sum_u64, u64, 8, _mm512_add_epi64, shift: _mm512_alignr_epi64 by [7, 6, 4],
    first of all: _mm512_set1_epi64, last of all: last_of_8, first: _mm_cvtsi128_si64
}

prefix_sum! {
    /// [`Lane::prefix_sum`](super::Lane::prefix_sum) of sixteen lanes at a time.
    prefix_sum_u32, u32, 16, _mm512_add_epi32, shift: _mm512_alignr_epi32 by [15, 14, 12, 8],
    first of all: _mm512_set1_epi32, last of all: last_of_16, first: _mm_cvtsi128_si32
}

/// Copies the last of eight lanes to all of them.
#[inline]
#[target_feature(enable = "avx512f")]
fn last_of_8(lanes: __m512i) -> __m512i {
    let last_pair = _mm512_shuffle_i64x2::<0xFF>(lanes, lanes);
    _mm512_unpackhi_epi64(last_pair, last_pair)
}

/// Copies the last of sixteen lanes to all of them.
#[inline]
#[target_feature(enable = "avx512f")]
fn last_of_16(lanes: __m512i) -> __m512i {
    let last_four = _mm512_shuffle_i64x2::<0xFF>(lanes, lanes);
    _mm512_shuffle_epi32::<0xFF>(last_four)
}
