//! Numbers of up to 64 bits and the lanes that have their bits.
//!
//! Invariants: a number has the size and alignment of its lane, and every lane is a number.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::wide::Lane;

/// A number of up to 64 bits, with the lane that has its bits.
pub(crate) trait Number:
    pco::data_types::Number + Default + FromBytes + IntoBytes + Immutable
{
    /// The unsigned integer of the same width.
    type Lane: Lane;

    /// The number with the bits of a lane.
    fn of_lane(lane: Self::Lane) -> Self;
}

/// An integer.
pub(crate) trait Integer: Number {
    /// Zero for unsigned integers, [`Lane::SIGN`] for signed ones.
    const FLIP: Self::Lane;
}

macro_rules! numbers {
    ($($type:ty: $lane:ty $(, $flip:expr)?;)*) => {
        $(
            impl Number for $type {
                type Lane = $lane;

                fn of_lane(lane: $lane) -> Self {
                    Self::from_le_bytes(lane.to_le_bytes())
                }
            }
            $(impl Integer for $type {
                const FLIP: $lane = $flip;
            })?
        )*
    };
}

numbers! {
    i8: u8, u8::SIGN;
    i16: u16, u16::SIGN;
    i32: u32, u32::SIGN;
    i64: u64, u64::SIGN;
    u8: u8, 0;
    u16: u16, 0;
    u32: u32, 0;
    u64: u64, 0;
    f32: u32;
    f64: u64;
}
