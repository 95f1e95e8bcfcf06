//! The fixed-width types a chunk can hold, each with the codecs for its bits.

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::chain::{CodecChain, ElementType};
use crate::chunk::EncodedChunk;
use crate::encode::{EncodeScratch, Settings};
use crate::error::{DecodeError, EncodeError};
use crate::values::{self, DecodeScratch};
use crate::wide::Lane;

pub(crate) mod sealed {
    use super::*;

    pub trait Sealed {}

    /// What the crate does with the values of a type.
    #[expect(
        private_interfaces,
        reason = "nobody else can name or call what is sealed"
    )]
    pub trait Values: Sized {
        /// Encodes into a chunk that is empty but for its type.
        fn encode(
            values: &[Self],
            settings: &Settings,
            scratch: &mut EncodeScratch,
            out: &mut EncodedChunk,
        ) -> Result<(), EncodeError>;
        /// Decodes a page.
        fn decode(
            codec: CodecChain,
            prelude: &[u8],
            page: &[u8],
            scratch: &mut DecodeScratch,
            out: &mut [Self],
        ) -> Result<(), DecodeError>;
    }
}

/// A fixed-width value: integers of 8 to 128 bits and floats. Sealed.
pub trait Element:
    sealed::Values + Copy + Default + Debug + PartialEq + Send + Sync + 'static
{
    /// Its tag in a codec chain.
    const TYPE: ElementType;
}

/// The bits of some values.
fn lanes<T: IntoBytes + Immutable, L: Lane>(values: &[T]) -> &[L] {
    match <[L]>::ref_from_bytes(values.as_bytes()) {
        Ok(lanes) => lanes,
        // Called with a lane of the same size and alignment only.
        Err(_) => unreachable!("a value differs from its lane"),
    }
}

/// The bits of some values.
fn lanes_mut<T: IntoBytes + FromBytes, L: Lane>(values: &mut [T]) -> &mut [L] {
    match <[L]>::mut_from_bytes(values.as_mut_bytes()) {
        Ok(lanes) => lanes,
        // Called with a lane of the same size and alignment only.
        Err(_) => unreachable!("a value differs from its lane"),
    }
}

/// Implements [`Element`]: how `$values` are encoded and `$out` is decoded.
macro_rules! element {
    ($type:ty, $tag:ident, |$values:ident, $settings:ident, $scratch:ident, $chunk:ident| $encode:expr,
     |$codec:ident, $prelude:ident, $page:ident, $buffers:ident, $out:ident| $decode:expr) => {
        #[expect(
            private_interfaces,
            reason = "nobody else can name or call what is sealed"
        )]
        impl sealed::Values for $type {
            fn encode(
                $values: &[Self],
                $settings: &Settings,
                $scratch: &mut EncodeScratch,
                $chunk: &mut EncodedChunk,
            ) -> Result<(), EncodeError> {
                $encode
            }

            fn decode(
                $codec: CodecChain,
                $prelude: &[u8],
                $page: &[u8],
                $buffers: &mut DecodeScratch,
                $out: &mut [Self],
            ) -> Result<(), DecodeError> {
                $decode
            }
        }

        impl Element for $type {
            const TYPE: ElementType = ElementType::$tag;
        }
    };
}

macro_rules! integers {
    ($($type:ty => $tag:ident, $lane:ty, $flip:expr;)*) => {
        $(element!(
            $type, $tag,
            |values, settings, scratch, chunk| {
                values::encode_integers::<$lane>(lanes(values), $flip, settings, scratch, chunk)
            },
            |codec, prelude, page, buffers, out| {
                values::decode_integers::<$lane>(codec, prelude, page, buffers, lanes_mut(out))
            }
        );)*
    };
}

macro_rules! floats {
    ($($type:ty => $tag:ident;)*) => {
        $(element!(
            $type, $tag,
            |values, settings, scratch, chunk| {
                values::encode_floats::<$type>(lanes(values), settings, scratch, chunk)
            },
            |codec, prelude, page, buffers, out| {
                values::decode_floats::<$type>(codec, prelude, page, buffers, lanes_mut(out))
            }
        );)*
    };
}

integers! {
    i8 => I8, u8, u8::SIGN;
    i16 => I16, u16, u16::SIGN;
    i32 => I32, u32, u32::SIGN;
    i64 => I64, u64, u64::SIGN;
    u8 => U8, u8, 0;
    u16 => U16, u16, 0;
    u32 => U32, u32, 0;
    u64 => U64, u64, 0;
}

floats! {
    f32 => F32;
    f64 => F64;
}

element!(
    i128,
    I128,
    |values, settings, scratch, chunk| values::encode_halves(values, settings, scratch, chunk),
    |codec, prelude, page, buffers, out| values::decode_halves(codec, prelude, page, buffers, out)
);

/// An offset of variable-length values, as Arrow has them. Sealed.
pub trait Offset: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The offset as an index, unless it is negative.
    fn to_index(self) -> Option<usize>;
    /// The index as an offset, unless it is too large.
    fn from_index(index: usize) -> Option<Self>;
}

macro_rules! offset {
    ($($type:ty),*) => {
        $(impl sealed::Sealed for $type {}

        impl Offset for $type {
            fn to_index(self) -> Option<usize> {
                usize::try_from(self).ok()
            }
            fn from_index(index: usize) -> Option<Self> {
                Self::try_from(index).ok()
            }
        })*
    };
}

offset!(i32, i64, u32);
