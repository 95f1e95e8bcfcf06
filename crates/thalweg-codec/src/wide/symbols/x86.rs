//! Four groups of eight at a time, in registers of 256 bits: a look-up is a shuffle within a
//! register, for 16 symbols or 16 bytes each. One function per width, so that shifts are constants.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_adds_epu8, _mm256_and_si256,
    _mm256_castsi128_si256, _mm256_cmpeq_epi8, _mm256_cvtepu8_epi16, _mm256_extract_epi64,
    _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_max_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_slli_epi16, _mm256_slli_epi32, _mm256_slli_epi64, _mm256_srli_epi16, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{Indices, NO_INDEX, Symbols, pack_body, unpack_body};

const GROUPS: usize = 4;
const BYTES: usize = 8 * GROUPS;
/// The index of the first symbol of each table.
const FIRST: [i8; 8] = [0, 16, 32, 48, 64, 80, 96, 112];

#[target_feature(enable = "avx2")]
pub(super) fn unpack(packed: &[u8], symbols: &Symbols, width_bits: u32, out: &mut [u8]) -> u8 {
    match width_bits {
        1 => unpack_width::<1, 1>(packed, symbols, out),
        2 => unpack_width::<2, 1>(packed, symbols, out),
        3 => unpack_width::<3, 1>(packed, symbols, out),
        4 => unpack_width::<4, 1>(packed, symbols, out),
        5 => unpack_width::<5, 2>(packed, symbols, out),
        6 => unpack_width::<6, 4>(packed, symbols, out),
        _ => unpack_width::<7, 8>(packed, symbols, out),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn unpack_width<const WIDTH: usize, const TABLES: usize>(
    packed: &[u8],
    symbols: &Symbols,
    out: &mut [u8],
) -> u8 {
    let tables: [__m256i; TABLES] = std::array::from_fn(|table| table_of(symbols, table * 16));
    let gathered = gather::<WIDTH>();
    // Registers are read whole, beyond the four groups.
    let whole = (packed.len().saturating_sub(2 * BYTES) / (GROUPS * WIDTH)).min(out.len() / BYTES);
    let mut highest = _mm256_setzero_si256();
    let (registers, _) = out[..whole * BYTES].as_chunks_mut::<BYTES>();
    for (index, register) in registers.iter_mut().enumerate() {
        let start = index * GROUPS * WIDTH;
        let indices = if WIDTH == 4 {
            nibbles(&packed[start..start + 16])
        } else {
            let low = &packed[start..start + 16];
            let high = &packed[start + 2 * WIDTH..start + 2 * WIDTH + 16];
            let words = _mm256_castsi128_si256(load(low));
            let words = _mm256_inserti128_si256::<1>(words, load(high));
            spread::<WIDTH>(_mm256_shuffle_epi8(words, gathered))
        };
        highest = _mm256_max_epu8(highest, indices);
        store(look_up(&tables, indices), register);
    }
    let mut seen = [0; BYTES];
    store(highest, &mut seen);
    let highest = seen.into_iter().max().unwrap_or(0);
    let rest = &packed[whole * GROUPS * WIDTH..];
    let width_bits = crate::integers::small::<u8>(WIDTH);
    let (symbols, out) = (symbols, &mut out[whole * BYTES..]);
    highest.max(unpack_body(rest, symbols, u32::from(width_bits), out))
}

/// Sixteen bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8]) -> __m128i {
    assert!(bytes.len() == 16, "half a register");
    // SAFETY: reads the 16 bytes of the slice; any alignment will do.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_whole(bytes: &[u8; BYTES]) -> __m256i {
    // SAFETY: reads the 32 bytes of the array; any alignment will do.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(register: __m256i, bytes: &mut [u8; BYTES]) {
    // SAFETY: writes the 32 bytes of the array; any alignment will do.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), register) }
}

/// Moves two groups of each half into its two words.
#[inline]
#[target_feature(enable = "avx2")]
fn gather<const WIDTH: usize>() -> __m256i {
    // 128 and above give zero.
    let mut from = [0x80; BYTES];
    for (place, from) in from.iter_mut().enumerate() {
        let (word, byte) = (place / 8 % 2, place % 8);
        if byte < WIDTH {
            *from = crate::integers::small(word * WIDTH + byte);
        }
    }
    load_whole(&from)
}

/// Two indices of four bits in each of sixteen bytes, one per byte.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(packed: &[u8]) -> __m256i {
    let words = _mm256_cvtepu8_epi16(load(packed));
    let both = _mm256_or_si256(words, _mm256_slli_epi16::<4>(words));
    _mm256_and_si256(both, _mm256_set1_epi8(0x0F))
}

/// `Steps::spread` of four words.
#[inline]
#[target_feature(enable = "avx2")]
fn spread<const WIDTH: usize>(words: __m256i) -> __m256i {
    let low = |bits: usize| (1_i64 << bits) - 1;
    let mask = |bits: usize| _mm256_set1_epi64x(low(bits));
    let (fours, moved) = (
        mask(4 * WIDTH),
        _mm256_set1_epi64x(low(4 * WIDTH) << (4 * WIDTH)),
    );
    let moved = _mm256_and_si256(words, moved);
    let moved = match WIDTH {
        1 => _mm256_slli_epi64::<28>(moved),
        2 => _mm256_slli_epi64::<24>(moved),
        3 => _mm256_slli_epi64::<20>(moved),
        4 => _mm256_slli_epi64::<16>(moved),
        5 => _mm256_slli_epi64::<12>(moved),
        6 => _mm256_slli_epi64::<8>(moved),
        _ => _mm256_slli_epi64::<4>(moved),
    };
    let words = _mm256_or_si256(_mm256_and_si256(words, fours), moved);
    let low = |bits: usize| (1_i32 << bits) - 1;
    let twos = _mm256_set1_epi32(low(2 * WIDTH));
    let moved = _mm256_and_si256(words, _mm256_set1_epi32(low(2 * WIDTH) << (2 * WIDTH)));
    let moved = match WIDTH {
        1 => _mm256_slli_epi32::<14>(moved),
        2 => _mm256_slli_epi32::<12>(moved),
        3 => _mm256_slli_epi32::<10>(moved),
        4 => _mm256_slli_epi32::<8>(moved),
        5 => _mm256_slli_epi32::<6>(moved),
        6 => _mm256_slli_epi32::<4>(moved),
        _ => _mm256_slli_epi32::<2>(moved),
    };
    let words = _mm256_or_si256(_mm256_and_si256(words, twos), moved);
    let low = |bits: usize| (1_i16 << bits) - 1;
    let ones = _mm256_set1_epi16(low(WIDTH));
    let moved = _mm256_and_si256(words, _mm256_set1_epi16(low(WIDTH) << WIDTH));
    let moved = match WIDTH {
        1 => _mm256_slli_epi16::<7>(moved),
        2 => _mm256_slli_epi16::<6>(moved),
        3 => _mm256_slli_epi16::<5>(moved),
        4 => _mm256_slli_epi16::<4>(moved),
        5 => _mm256_slli_epi16::<3>(moved),
        6 => _mm256_slli_epi16::<2>(moved),
        _ => _mm256_slli_epi16::<1>(moved),
    };
    _mm256_or_si256(_mm256_and_si256(words, ones), moved)
}

/// Sixteen bytes of a table, in both halves of a register.
#[inline]
#[target_feature(enable = "avx2")]
fn table_of(table: &[u8], first: usize) -> __m256i {
    let half = load(&table[first..first + 16]);
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(half), half)
}

/// The symbol of each index. In each table of sixteen the indices of others are moved to 128 or
/// above, for which a shuffle gives zero.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up<const TABLES: usize>(tables: &[__m256i; TABLES], indices: __m256i) -> __m256i {
    if TABLES == 1 {
        return _mm256_shuffle_epi8(tables[0], indices);
    }
    let mut found = _mm256_setzero_si256();
    for (&table, first) in tables.iter().zip(FIRST) {
        let own = _mm256_xor_si256(indices, _mm256_set1_epi8(first));
        let own = _mm256_adds_epu8(own, _mm256_set1_epi8(0x70));
        found = _mm256_or_si256(found, _mm256_shuffle_epi8(table, own));
    }
    found
}

/// Sixteen bytes that share their upper half, and the index of each.
#[derive(Clone, Copy)]
struct Row {
    upper: __m256i,
    indices: __m256i,
}

#[target_feature(enable = "avx2")]
pub(super) fn pack(bytes: &[u8], indices: &Indices, width_bits: u32, out: &mut [u8]) -> bool {
    // Pairs are added with factors of eight bits with a sign.
    if width_bits > 6 {
        return pack_body(bytes, indices, width_bits, out);
    }
    let none = _mm256_setzero_si256();
    let empty = Row {
        upper: none,
        indices: none,
    };
    let mut rows = [empty; 16];
    let mut count = 0;
    for (upper, row) in (0_i8..).zip(indices.chunks_exact(16)) {
        if row.iter().any(|&index| index < NO_INDEX) {
            // One more than the index, so that nothing found is another one than the first.
            rows[count] = Row {
                upper: _mm256_set1_epi8(upper),
                indices: _mm256_add_epi8(table_of(row, 0), _mm256_set1_epi8(1)),
            };
            count += 1;
        }
    }
    let rows = &rows[..count];
    match width_bits {
        1 => pack_width::<1>(bytes, indices, rows, out),
        2 => pack_width::<2>(bytes, indices, rows, out),
        3 => pack_width::<3>(bytes, indices, rows, out),
        4 => pack_width::<4>(bytes, indices, rows, out),
        5 => pack_width::<5>(bytes, indices, rows, out),
        _ => pack_width::<6>(bytes, indices, rows, out),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pack_width<const WIDTH: usize>(
    bytes: &[u8],
    indices: &Indices,
    rows: &[Row],
    out: &mut [u8],
) -> bool {
    let (registers, rest) = bytes.as_chunks::<BYTES>();
    let lower = _mm256_set1_epi8(0x0F);
    let mut others = _mm256_setzero_si256();
    let mut position = 0;
    for register in registers {
        let register = load_whole(register);
        let place = _mm256_and_si256(register, lower);
        let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(register), lower);
        let mut found = _mm256_setzero_si256();
        for row in rows {
            let own = _mm256_cmpeq_epi8(upper, row.upper);
            let own = _mm256_and_si256(own, _mm256_shuffle_epi8(row.indices, place));
            found = _mm256_or_si256(found, own);
        }
        // Less one: 0 to 63, others 128 and above.
        let found = _mm256_add_epi8(found, _mm256_set1_epi8(-1));
        others = _mm256_or_si256(others, found);
        let words = squeeze::<WIDTH>(found);
        let out = &mut out[position..position + 3 * WIDTH + 8];
        for (group, word) in words_of(words).into_iter().enumerate() {
            out[group * WIDTH..group * WIDTH + 8].copy_from_slice(&word.to_le_bytes());
        }
        position += GROUPS * WIDTH;
    }
    let width_bits = crate::integers::small::<u8>(WIDTH);
    let is_whole = pack_body(rest, indices, u32::from(width_bits), &mut out[position..]);
    is_whole && _mm256_movemask_epi8(others) == 0
}

/// The four words of a register.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of(register: __m256i) -> [i64; GROUPS] {
    [
        _mm256_extract_epi64::<0>(register),
        _mm256_extract_epi64::<1>(register),
        _mm256_extract_epi64::<2>(register),
        _mm256_extract_epi64::<3>(register),
    ]
}

/// `Steps::squeeze` of four words: pairs of bytes, then of these, are added with a factor for the
/// upper one.
#[inline]
#[target_feature(enable = "avx2")]
fn squeeze<const WIDTH: usize>(indices: __m256i) -> __m256i {
    let factor = _mm256_set1_epi16(1 << (8 + WIDTH) | 1);
    let pairs = _mm256_maddubs_epi16(indices, factor);
    let factor = _mm256_set1_epi32(1 << (16 + 2 * WIDTH) | 1);
    let fours = _mm256_madd_epi16(pairs, factor);
    let low = _mm256_and_si256(fours, _mm256_set1_epi64x(0xFFFF_FFFF));
    let high = _mm256_srli_epi64::<32>(fours);
    let high = match WIDTH {
        1 => _mm256_slli_epi64::<4>(high),
        2 => _mm256_slli_epi64::<8>(high),
        3 => _mm256_slli_epi64::<12>(high),
        4 => _mm256_slli_epi64::<16>(high),
        5 => _mm256_slli_epi64::<20>(high),
        _ => _mm256_slli_epi64::<24>(high),
    };
    _mm256_or_si256(low, high)
}
