//! The loops over the values of a page, each compiled three times on x86-64: for any processor, for
//! those with AVX2 and for those with AVX-512, chosen at run time.
//!
//! Invariants
//! - With [`prefix`] and [`symbols`] the only module with unsafe code, and its only use is to call a function
//!   compiled for features that [`registers`] has just found. The bodies are safe code which the
//!   compiler vectorises by itself, so all versions compute the same.
//! - No lane is read or written outside its slice: bodies index arrays of a constant length.
//!
//! Alternatives rejected: fastlanes' own `pack` and `unpack` are never inlined, so they would stay
//! at the build's baseline (SSE2: half the speed); its macros expand here instead, inside the
//! functions with features. Intrinsics would be faster still in places, but need one version per
//! architecture: only prefix sums and look-ups of symbols, which the compiler leaves scalar, are written with them. Other
//! architectures use their baseline (NEON on arm64).
#![expect(
    unsafe_code,
    reason = "calls of functions compiled for features the processor has"
)]

use std::ops::{BitAnd, BitOr, BitXor, Shl, Shr};

use fastlanes::FastLanes;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::PAGE_ROWS;

#[cfg(target_arch = "x86_64")]
mod prefix;

/// An unsigned integer that a page is packed as.
pub(crate) trait Lane:
    Copy
    + Default
    + Ord
    + FromBytes
    + IntoBytes
    + Immutable
    + BitXor<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Shr<u32, Output = Self>
    + Shl<u32, Output = Self>
    + Send
    + Sync
    + 'static
{
    /// Its bits.
    const BITS: u32;
    /// Its bytes.
    const BYTES: usize;
    /// Its highest bit alone: the sign of the signed integer with the same bits.
    const SIGN: Self;
    /// Its largest value.
    const MAX: Self;

    /// Sum modulo two to the power of [`Self::BITS`].
    fn wadd(self, other: Self) -> Self;
    /// Difference modulo two to the power of [`Self::BITS`].
    fn wsub(self, other: Self) -> Self;
    /// This number in 64 bits.
    fn widen(self) -> u64;
    /// The low bits of a number.
    fn truncate(value: u64) -> Self;
    /// Bits that the number needs; zero for zero.
    fn bit_width(self) -> u32;

    /// Subtracts `reference` from every value and packs the low `width_bits` of each into the first
    /// `width_bits * 1024 / BITS` lanes of `packed`.
    fn pack(
        width_bits: u32,
        values: &[Self; PAGE_ROWS],
        reference: Self,
        packed: &mut [Self; PAGE_ROWS],
    );
    /// Undoes [`Lane::pack`].
    fn unpack(
        width_bits: u32,
        packed: &[Self; PAGE_ROWS],
        reference: Self,
        values: &mut [Self; PAGE_ROWS],
    );

    /// Replaces each value by the sum of `start` and all values up to it.
    #[inline]
    fn prefix_sum(values: &mut [Self], start: Self) {
        prefix_sum_body(values, start);
    }
}

/// The widest registers that functions may be compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registers {
    /// Those of every processor.
    Baseline,
    /// AVX2 and BMI2.
    Avx2,
    /// AVX-512 as of Ice Lake and Zen 4. Earlier processors clock down for it, by more than pages
    /// of a thousand values can gain.
    Avx512,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registers() -> Registers {
    // Looked up once by the standard library; afterwards loads and tests.
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2")) {
        return Registers::Baseline;
    }
    let is_wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vbmi2");
    if is_wide {
        Registers::Avx512
    } else {
        Registers::Avx2
    }
}

/// The packing kernels of one lane type, with `$feature` on each function.
macro_rules! packing_kernels {
    ($module:ident, $lane:ident, $max_width:literal, #[$feature:meta]) => {
        mod $module {
            use super::*;

            #[$feature]
            fn pack_width<const WIDTH: usize>(
                values: &[$lane; PAGE_ROWS],
                reference: $lane,
                packed: &mut [$lane; PAGE_ROWS],
            ) {
                for lane in 0..<$lane as FastLanes>::LANES {
                    fastlanes::pack!($lane, WIDTH, packed, lane, |$index| {
                        values[$index].wrapping_sub(reference)
                    });
                }
            }

            #[$feature]
            fn unpack_width<const WIDTH: usize>(
                packed: &[$lane; PAGE_ROWS],
                reference: $lane,
                values: &mut [$lane; PAGE_ROWS],
            ) {
                for lane in 0..<$lane as FastLanes>::LANES {
                    fastlanes::unpack!($lane, WIDTH, packed, lane, |$index, $value| {
                        values[$index] = $value.wrapping_add(reference)
                    });
                }
            }

            #[$feature]
            pub(super) fn pack(
                width_bits: u32,
                values: &[$lane; PAGE_ROWS],
                reference: $lane,
                packed: &mut [$lane; PAGE_ROWS],
            ) {
                seq_macro::seq!(WIDTH in 0..=$max_width {
                    match width_bits {
                        #(WIDTH => pack_width::<WIDTH>(values, reference, packed),)*
                        _ => assert!(width_bits <= $max_width, "width {width_bits} above the lane"),
                    }
                });
            }

            #[$feature]
            pub(super) fn unpack(
                width_bits: u32,
                packed: &[$lane; PAGE_ROWS],
                reference: $lane,
                values: &mut [$lane; PAGE_ROWS],
            ) {
                seq_macro::seq!(WIDTH in 0..=$max_width {
                    match width_bits {
                        #(WIDTH => unpack_width::<WIDTH>(packed, reference, values),)*
                        _ => assert!(width_bits <= $max_width, "width {width_bits} above the lane"),
                    }
                });
            }
        }
    };
}

/// A lane type: its arithmetic and its packing kernels.
macro_rules! lane {
    ($lane:ident, $max_width:literal, $portable:ident, $avx2:ident, $avx512:ident, {$($own:tt)*}) => {
        packing_kernels!($portable, $lane, $max_width, #[inline(never)]);
        #[cfg(target_arch = "x86_64")]
        packing_kernels!($avx2, $lane, $max_width, #[target_feature(enable = "avx2,bmi2")]);
        #[cfg(target_arch = "x86_64")]
        packing_kernels!(
            $avx512, $lane, $max_width,
            #[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw,avx512dq")]
        );

        impl Lane for $lane {
            const BITS: u32 = <$lane>::BITS;
            const BYTES: usize = size_of::<$lane>();
            const SIGN: Self = 1 << (<$lane>::BITS - 1);
            const MAX: Self = <$lane>::MAX;

            #[inline(always)]
            fn wadd(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn wsub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "this is what it is for; u64 keeps all")]
            fn truncate(value: u64) -> Self {
                value as $lane
            }

            #[inline(always)]
            fn bit_width(self) -> u32 {
                <$lane>::BITS - self.leading_zeros()
            }

            #[inline]
            fn pack(
                width_bits: u32,
                values: &[Self; PAGE_ROWS],
                reference: Self,
                packed: &mut [Self; PAGE_ROWS],
            ) {
                #[cfg(target_arch = "x86_64")]
                match registers() {
                    // SAFETY: the processor has the features it is compiled for.
                    Registers::Avx512 => return unsafe { $avx512::pack(width_bits, values, reference, packed) },
                    // SAFETY: the same.
                    Registers::Avx2 => return unsafe { $avx2::pack(width_bits, values, reference, packed) },
                    Registers::Baseline => {}
                }
                $portable::pack(width_bits, values, reference, packed);
            }

            #[inline]
            fn unpack(
                width_bits: u32,
                packed: &[Self; PAGE_ROWS],
                reference: Self,
                values: &mut [Self; PAGE_ROWS],
            ) {
                #[cfg(target_arch = "x86_64")]
                match registers() {
                    // SAFETY: the processor has the features it is compiled for.
                    Registers::Avx512 => return unsafe { $avx512::unpack(width_bits, packed, reference, values) },
                    // SAFETY: the same.
                    Registers::Avx2 => return unsafe { $avx2::unpack(width_bits, packed, reference, values) },
                    Registers::Baseline => {}
                }
                $portable::unpack(width_bits, packed, reference, values);
            }

            $($own)*
        }
    };
}

/// The prefix sum of a lane that has one in registers of 512 bits.
macro_rules! prefix_sum_of_lane {
    ($function:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[inline]
        fn prefix_sum(values: &mut [Self], start: Self) {
            if registers() == Registers::Avx512 {
                // SAFETY: the processor has the features it is compiled for.
                unsafe { prefix::$function(values, start) }
            } else {
                prefix_sum_body(values, start);
            }
        }
    };
}

lane!(u8, 8, packing_u8, packing_u8_avx2, packing_u8_avx512, {});
lane!(
    u16,
    16,
    packing_u16,
    packing_u16_avx2,
    packing_u16_avx512,
    {}
);
lane!(
    u32,
    32,
    packing_u32,
    packing_u32_avx2,
    packing_u32_avx512,
    {
        prefix_sum_of_lane!(prefix_sum_u32);
    }
);
lane!(
    u64,
    64,
    packing_u64,
    packing_u64_avx2,
    packing_u64_avx512,
    {
        prefix_sum_of_lane!(prefix_sum_u64);
    }
);

/// Defines `$name` as `$body`, also compiled for wide registers.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $body:ident, <$($generic:ident: $bound:ident)?>
     ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name<$($generic: $bound)?>($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi2")]
                fn avx2<$($generic: $bound)?>($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw,avx512dq")]
                fn avx512<$($generic: $bound)?>($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                match registers() {
                    // SAFETY: the processor has the features it is compiled for.
                    Registers::Avx512 => return unsafe { avx512($($argument),*) },
                    // SAFETY: the same.
                    Registers::Avx2 => return unsafe { avx2($($argument),*) },
                    Registers::Baseline => {}
                }
            }
            $body($($argument),*)
        }
    };
}

mod shuffled;
mod symbols;

pub(crate) use shuffled::{shuffle_bytes, unshuffle_bytes};
pub(crate) use symbols::{Indices, NO_INDEX, Symbols, pack_symbols, packed_bytes, unpack_symbols};

dispatch! {
    /// The smallest and largest value of a slice that is not empty, in the order of
    /// `value ^ flip` (zero for unsigned, [`Lane::SIGN`] for signed numbers).
    min_max, min_max_body, <L: Lane>(values: &[L], flip: L) -> (L, L)
}

#[inline(always)]
fn min_max_body<L: Lane>(values: &[L], flip: L) -> (L, L) {
    let (mut low, mut high) = (L::MAX, L::default());
    for &value in values {
        let value = value ^ flip;
        low = low.min(value);
        high = high.max(value);
    }
    (low ^ flip, high ^ flip)
}

dispatch! {
    /// Writes the difference of each value from the one before it (zero for the first) and
    /// returns the smallest and largest of them as signed numbers, the first left out.
    deltas, deltas_body, <L: Lane>(values: &[L], out: &mut [L]) -> (L, L)
}

#[inline(always)]
fn deltas_body<L: Lane>(values: &[L], out: &mut [L]) -> (L, L) {
    assert!(
        values.len() == out.len() && !values.is_empty(),
        "one delta per value"
    );
    out[0] = L::default();
    let (mut low, mut high) = (L::MAX, L::default());
    for ((&before, &value), delta) in values.iter().zip(&values[1..]).zip(&mut out[1..]) {
        *delta = value.wsub(before);
        let flipped = *delta ^ L::SIGN;
        low = low.min(flipped);
        high = high.max(flipped);
    }
    (low ^ L::SIGN, high ^ L::SIGN)
}

/// [`Lane::prefix_sum`] value by value.
fn prefix_sum_body<L: Lane>(values: &mut [L], start: L) {
    let mut sum = start;
    for value in values {
        sum = sum.wadd(*value);
        *value = sum;
    }
}

dispatch! {
    /// How many values lie outside `reference ..= reference + span`.
    count_outside, count_outside_body, <L: Lane>(values: &[L], reference: L, span: L) -> usize
}

#[inline(always)]
fn count_outside_body<L: Lane>(values: &[L], reference: L, span: L) -> usize {
    values
        .iter()
        .map(|&value| usize::from(value.wsub(reference) > span))
        .sum()
}

dispatch! {
    /// How many values differ from the one before them.
    count_changes, count_changes_body, <L: Lane>(values: &[L]) -> usize
}

#[inline(always)]
fn count_changes_body<L: Lane>(values: &[L]) -> usize {
    let Some(behind) = values.get(1..) else {
        return 0;
    };
    values
        .iter()
        .zip(behind)
        .map(|(before, value)| usize::from(before != value))
        .sum()
}

/// Neighbours in a sampled run.
pub(crate) const RUN_ROWS: usize = 16;

/// Bounds of the values that sampled runs of one page show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds<L> {
    /// The smallest and largest value, in the order of `value ^ flip`.
    pub(crate) low: L,
    pub(crate) high: L,
    /// The smallest and largest difference between neighbours, as signed numbers.
    pub(crate) low_delta: L,
    pub(crate) high_delta: L,
    /// Neighbours that differ.
    pub(crate) changes: usize,
}

dispatch! {
    /// Samples whole runs of [`RUN_ROWS`] values each.
    page_bounds, page_bounds_body, <L: Lane>(values: &[L], flip: L) -> Bounds<L>
}

#[inline(always)]
fn page_bounds_body<L: Lane>(values: &[L], flip: L) -> Bounds<L> {
    let (mut low, mut high) = (L::MAX, L::default());
    let (mut low_delta, mut high_delta) = (L::MAX, L::default());
    let mut changes = L::default();
    for run in values.as_chunks::<RUN_ROWS>().0 {
        for &value in run {
            low = low.min(value ^ flip);
            high = high.max(value ^ flip);
        }
        for row in 1..RUN_ROWS {
            let delta = run[row].wsub(run[row - 1]);
            low_delta = low_delta.min(delta ^ L::SIGN);
            high_delta = high_delta.max(delta ^ L::SIGN);
            // At most 255, the longest sample's neighbours: a lane of 8 bits holds them.
            changes = changes.wadd(L::truncate(u64::from(delta != L::default())));
        }
    }
    Bounds {
        low: low ^ flip,
        high: high ^ flip,
        low_delta: low_delta ^ L::SIGN,
        high_delta: high_delta ^ L::SIGN,
        changes: usize::try_from(changes.widen()).unwrap_or(usize::MAX),
    }
}

/// A float that ALP scales to integers.
pub(crate) trait Scaled: alp::ALPFloat {
    /// The lane with as many bits.
    type Bits: Lane;
    /// The integers ALP may use are those from minus to plus this: a float holds them exactly,
    /// with a bit to spare for rounding.
    const INTEGER_LIMIT: Self::Bits;

    /// The bits of the float.
    fn bits(self) -> Self::Bits;
    /// The float of some bits.
    fn from_lane(bits: Self::Bits) -> Self;
}

macro_rules! scaled {
    ($float:ident, $lane:ident, $limit_bits:literal) => {
        impl Scaled for $float {
            type Bits = $lane;
            const INTEGER_LIMIT: $lane = 1 << $limit_bits;

            #[inline(always)]
            fn bits(self) -> $lane {
                self.to_bits()
            }

            #[inline(always)]
            fn from_lane(bits: $lane) -> Self {
                Self::from_bits(bits)
            }
        }
    };
}

scaled!(f32, u32, 21);
scaled!(f64, u64, 50);

/// The powers of ten of a pair of ALP exponents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale<F> {
    /// Ten to the power of `e`, and its inverse.
    up: (F, F),
    /// Ten to the power of `f`, and its inverse.
    down: (F, F),
}

impl<F: Scaled> Scale<F> {
    /// The powers of `e` and `f`, unless they are beyond the tables.
    pub(crate) fn new(e: u8, f: u8) -> Option<Self> {
        let (e, f) = (usize::from(e), usize::from(f));
        Some(Self {
            up: (*F::F10.get(e)?, *F::IF10.get(e)?),
            down: (*F::F10.get(f)?, *F::IF10.get(f)?),
        })
    }

    /// The integer nearest to the scaled value, as a lane.
    ///
    /// Adding `SWEET` leaves the integer in the low bits of the mantissa, where plain subtraction
    /// finds it: no conversion instruction, of which AVX2 has none for 64 bits.
    #[inline(always)]
    fn to_integer(self, value: F) -> F::Bits {
        (value * self.up.0 * self.down.1 + F::SWEET)
            .bits()
            .wsub(F::SWEET.bits())
    }

    /// The value of an integer; exact for those within the limit.
    #[inline(always)]
    fn to_float(self, integer: F::Bits) -> F {
        (F::from_lane(integer.wadd(F::SWEET.bits())) - F::SWEET) * self.down.0 * self.up.1
    }

    /// Whether `integer` stands for `value`, bit by bit. NaNs never do: which payload arithmetic
    /// leaves in them is not the same everywhere.
    #[inline(always)]
    fn is_exact(self, value: F, integer: F::Bits) -> bool {
        let float = self.to_float(integer);
        let limit = F::INTEGER_LIMIT;
        let within = integer.wadd(limit) <= limit.wadd(limit);
        // One branch-free expression, so that the loop around it vectorises.
        (float.bits() == value.bits()) & !value.is_nan() & within
    }
}

/// Values whose exceptions are counted together.
pub(crate) const GROUP_ROWS: usize = 32;
/// Groups of a page.
pub(crate) const GROUPS: usize = PAGE_ROWS / GROUP_ROWS;

dispatch! {
    /// Writes the integer of every value and counts, per group of [`GROUP_ROWS`] values, those it
    /// does not stand for.
    alp_encode, alp_encode_body, <F: Scaled>(
        values: &[F],
        scale: Scale<F>,
        integers: &mut [F::Bits],
        misses: &mut [u32; GROUPS],
    )
}

#[inline(always)]
fn alp_encode_body<F: Scaled>(
    values: &[F],
    scale: Scale<F>,
    integers: &mut [F::Bits],
    misses: &mut [u32; GROUPS],
) {
    assert!(values.len() == integers.len(), "one integer per value");
    let groups = values
        .chunks(GROUP_ROWS)
        .zip(integers.chunks_mut(GROUP_ROWS));
    for ((values, integers), missed) in groups.zip(misses) {
        *missed = 0;
        for (&value, integer) in values.iter().zip(integers) {
            *integer = scale.to_integer(value);
            *missed += u32::from(!scale.is_exact(value, *integer));
        }
    }
}

dispatch! {
    /// Writes the positions of the values that their integers do not stand for and returns how
    /// many there are.
    alp_misses, alp_misses_body, <F: Scaled>(
        values: &[F],
        scale: Scale<F>,
        integers: &[F::Bits],
        positions: &mut [u16; PAGE_ROWS],
        first_position: u16,
    ) -> usize
}

#[inline(always)]
fn alp_misses_body<F: Scaled>(
    values: &[F],
    scale: Scale<F>,
    integers: &[F::Bits],
    positions: &mut [u16; PAGE_ROWS],
    first_position: u16,
) -> usize {
    let mut count = 0;
    for ((&value, &integer), position) in values.iter().zip(integers).zip(first_position..) {
        // Written always and kept by moving on: no branch to mispredict.
        positions[count % PAGE_ROWS] = position;
        count += usize::from(!scale.is_exact(value, integer));
    }
    count
}

dispatch! {
    /// Turns integers into the values they stand for, bits for bits.
    alp_decode, alp_decode_body, <F: Scaled>(lanes: &mut [F::Bits], scale: Scale<F>)
}

#[inline(always)]
fn alp_decode_body<F: Scaled>(lanes: &mut [F::Bits], scale: Scale<F>) {
    for lane in lanes {
        *lane = scale.to_float(*lane).bits();
    }
}

/// Left parts that an ALP-RD dictionary can hold.
pub(crate) const LEFT_PARTS: usize = alp::MAX_DICT_SIZE as usize;

dispatch! {
    /// Cuts values in two: the bits from `cut_bits` up as `lefts`, replaced by their code in
    /// `parts` (or [`LEFT_PARTS`] when they have none, counted and returned), the others as
    /// `rights`.
    rd_split, rd_split_body, <L: Lane>(
        values: &[L],
        cut_bits: u32,
        parts: &[u16; LEFT_PARTS],
        codes: &mut [u16],
        rights: &mut [L],
    ) -> usize
}

#[inline(always)]
fn rd_split_body<L: Lane>(
    values: &[L],
    cut_bits: u32,
    parts: &[u16; LEFT_PARTS],
    codes: &mut [u16],
    rights: &mut [L],
) -> usize {
    assert!(
        values.len() == codes.len() && values.len() == rights.len(),
        "one code per value"
    );
    let mask = L::MAX >> (L::BITS - cut_bits);
    for ((&value, code), right) in values.iter().zip(codes.iter_mut()).zip(rights) {
        *right = value & mask;
        *code = left_part(value, cut_bits);
    }
    let mut misses = 0_u32;
    for group in codes.chunks_mut(GROUP_ROWS) {
        let mut missed = 0_u16;
        for code in group {
            let mut found = 8_u16;
            // From the last to the first, so that of equal parts the first wins.
            for index in (0..8_u16).rev() {
                found = if *code == parts[usize::from(index)] {
                    index
                } else {
                    found
                };
            }
            *code = found;
            missed += found >> 3;
        }
        misses += u32::from(missed);
    }
    misses as usize
}

dispatch! {
    /// Writes the positions of the codes without a part, gives them code zero, and returns how many
    /// there are.
    rd_misses, rd_misses_body, <>(
        codes: &mut [u16],
        positions: &mut [u16; PAGE_ROWS],
    ) -> usize
}

#[inline(always)]
fn rd_misses_body(codes: &mut [u16], positions: &mut [u16; PAGE_ROWS]) -> usize {
    let mut count = 0;
    for (position, code) in (0_u16..).zip(codes) {
        // Written always and kept by moving on: no branch to mispredict.
        positions[count % PAGE_ROWS] = position;
        count += usize::from(*code >> 3);
        *code &= 7;
    }
    count
}

const _: () = assert!(LEFT_PARTS == 8, "rd_split writes the codes of eight parts");

/// The bits of a value from `cut_bits` up; never more than 16.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "callers cut at most 16 bits off"
)]
pub(crate) fn left_part<L: Lane>(value: L, cut_bits: u32) -> u16 {
    (value >> cut_bits).widen() as u16
}

dispatch! {
    /// Puts the part of each code in front of each right part. Codes wrap at [`LEFT_PARTS`].
    rd_join, rd_join_body, <L: Lane>(codes: &[u16], parts: &[L; LEFT_PARTS], rights: &mut [L])
}

#[inline(always)]
fn rd_join_body<L: Lane>(codes: &[u16], parts: &[L; LEFT_PARTS], rights: &mut [L]) {
    for (&code, right) in codes.iter().zip(rights) {
        *right = *right | parts[usize::from(code) % LEFT_PARTS];
    }
}

#[cfg(test)]
mod tests {
    //! Small enough for Miri: `cargo +nightly miri test -p thalweg-codec --lib`, with
    //! `RUSTFLAGS=-Ctarget-feature=+avx2,+bmi2` for one of the wide versions, and with
    //! `+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512vbmi2` for the other.
    use super::*;

    /// Numbers without a pattern.
    fn numbers<L: Lane>() -> [L; PAGE_ROWS] {
        let mut word = 1_u64;
        std::array::from_fn(|_| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            L::truncate(word ^ (word >> 29))
        })
    }

    /// Widths that take every path: none, some, all bits, and some in between.
    fn widths<L: Lane>() -> impl Iterator<Item = u32> {
        let step = if cfg!(miri) { L::BITS / 4 + 1 } else { 1 };
        (0..=L::BITS).filter(move |width| width % step == 0 || *width == L::BITS)
    }

    macro_rules! packing_test {
        ($name:ident, $lane:ident, $portable:ident) => {
            #[test]
            fn $name() {
                let values = numbers::<$lane>();
                for width_bits in widths::<$lane>() {
                    let reference = 77;
                    let mut packed = [0; PAGE_ROWS];
                    $lane::pack(width_bits, &values, reference, &mut packed);
                    let mut portable = [0; PAGE_ROWS];
                    $portable::pack(width_bits, &values, reference, &mut portable);
                    assert_eq!(packed, portable, "{width_bits} bits");
                    let mut back = [0; PAGE_ROWS];
                    $lane::unpack(width_bits, &packed, reference, &mut back);
                    let mut portable_back = [0; PAGE_ROWS];
                    $portable::unpack(width_bits, &packed, reference, &mut portable_back);
                    assert_eq!(back, portable_back, "{width_bits} bits");
                    let mask = $lane::MAX
                        .checked_shr($lane::BITS - width_bits)
                        .unwrap_or(0);
                    let expected = values.map(|value| {
                        (value.wrapping_sub(reference) & mask).wrapping_add(reference)
                    });
                    assert_eq!(back, expected, "{width_bits} bits");
                }
            }
        };
    }

    packing_test!(packing_of_u8, u8, packing_u8);
    packing_test!(packing_of_u16, u16, packing_u16);
    packing_test!(packing_of_u32, u32, packing_u32);
    packing_test!(packing_of_u64, u64, packing_u64);

    #[test]
    fn both_versions_of_the_loops_compute_the_same() {
        for rows in [1, 2, 31, 33, 100] {
            let numbers = numbers::<u64>();
            let values = &numbers[..rows];
            assert_eq!(min_max(values, u64::SIGN), min_max_body(values, u64::SIGN));
            assert_eq!(count_changes(values), count_changes_body(values));
            assert_eq!(
                count_outside(values, 9, 1 << 60),
                count_outside_body(values, 9, 1 << 60)
            );
            let (mut one, mut other) = (vec![0; rows], vec![0; rows]);
            assert_eq!(deltas(values, &mut one), deltas_body(values, &mut other));
            assert_eq!(one, other);
            u64::prefix_sum(&mut one, values[0]);
            prefix_sum_body(&mut other, values[0]);
            assert_eq!(one, other);
            assert_eq!(one, values);
        }
    }

    #[test]
    fn both_prefix_sums_compute_the_same() {
        fn check<L: Lane + std::fmt::Debug>() {
            let numbers = numbers::<L>();
            let lengths = (0..70).chain([127, 128, 129, PAGE_ROWS - 1, PAGE_ROWS]);
            for rows in lengths.filter(|rows| !cfg!(miri) || rows % 16 < 2) {
                let (mut one, mut other) = (numbers, numbers);
                L::prefix_sum(&mut one[..rows], L::SIGN);
                prefix_sum_body(&mut other[..rows], L::SIGN);
                assert_eq!(one, other, "{rows} rows of {} bits", L::BITS);
            }
        }
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
    }

    #[test]
    fn both_versions_of_the_float_loops_compute_the_same() {
        let scale = Scale::<f64>::new(14, 12).unwrap();
        let values: Vec<f64> = (0..100)
            .map(|row| {
                if row % 9 == 0 {
                    f64::NAN
                } else {
                    f64::from(row) / 100.0
                }
            })
            .collect();
        let (mut one, mut other) = (vec![0; 100], vec![0; 100]);
        let (mut misses, mut other_misses) = ([0; GROUPS], [0; GROUPS]);
        alp_encode(&values, scale, &mut one, &mut misses);
        alp_encode_body(&values, scale, &mut other, &mut other_misses);
        assert_eq!(misses, other_misses);
        assert_eq!(misses.iter().sum::<u32>(), 12, "the NaNs");
        let mut positions = [0; PAGE_ROWS];
        assert_eq!(alp_misses(&values, scale, &one, &mut positions, 5), 12);
        assert_eq!(positions[..3], [5, 14, 23]);
        alp_decode(&mut one, scale);
        for (row, value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| !value.is_nan())
        {
            assert_eq!(one[row], value.to_bits());
        }
        let bits: Vec<u64> = (0..100).map(|row| (row % 11) << 50 | row).collect();
        let parts = [0, 1, 2, 3, 4, 5, 6, 7];
        let (mut codes, mut rights) = (vec![0; 100], vec![0; 100]);
        let misses = rd_split(&bits, 50, &parts, &mut codes, &mut rights);
        assert_eq!(misses, rd_misses(&mut codes, &mut positions));
        assert_eq!(positions[..misses][..4], [8, 9, 10, 19]);
        rd_join(
            &codes,
            &std::array::from_fn(|part| (part as u64) << 50),
            &mut rights,
        );
        for (row, &value) in bits.iter().enumerate().filter(|(row, _)| row % 11 < 8) {
            assert_eq!(rights[row], value);
        }
    }
}
