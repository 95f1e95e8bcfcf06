//! The fixed-width types a chunk can hold, each with the codecs for its bits.

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::chain::{CodecChain, ElementType};
use crate::chunk::EncodedChunk;
use crate::encode_scratch::EncodeScratch;
use crate::error::{DecodeError, EncodeError};
use crate::halves;
use crate::number::Number;
use crate::open_page::DecodeScratch;
use crate::settings::Settings;
use crate::values::{self, Floats, Integers};
use crate::wide::Lane;

pub(crate) mod sealed {
    use super::*;

    /// Encodes and decodes the values of a type.
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
        /// Decodes the value at `place.1` of a page of `place.0` rows.
        fn decode_value(
            codec: CodecChain,
            prelude: &[u8],
            page: &[u8],
            place: (usize, usize),
            scratch: &mut DecodeScratch,
        ) -> Result<Self, DecodeError>;
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
     |$codec:ident, $prelude:ident, $page:ident, $buffers:ident, $out:ident| $decode:expr,
     |$place:ident| $value:expr) => {
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

            fn decode_value(
                $codec: CodecChain,
                $prelude: &[u8],
                $page: &[u8],
                $place: (usize, usize),
                $buffers: &mut DecodeScratch,
            ) -> Result<Self, DecodeError> {
                $value
            }
        }

        impl Element for $type {
            const TYPE: ElementType = ElementType::$tag;
        }
    };
}

macro_rules! integers {
    ($($type:ty => $tag:ident;)*) => {
        $(element!(
            $type, $tag,
            |values, settings, scratch, chunk| {
                values::encode_integers::<$type>(lanes(values), settings, scratch, chunk)
            },
            |codec, prelude, page, buffers, out| {
                values::decode_page::<Integers<$type>>(codec, prelude, page, buffers, lanes_mut(out))
            },
            |place| {
                let value = values::decode_value::<Integers<$type>>(codec, prelude, page, place, buffers)?;
                Ok(Number::of_lane(value))
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
                values::decode_page::<Floats<$type>>(codec, prelude, page, buffers, lanes_mut(out))
            },
            |place| {
                let value = values::decode_value::<Floats<$type>>(codec, prelude, page, place, buffers)?;
                Ok(Number::of_lane(value))
            }
        );)*
    };
}

integers! {
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
}

floats! {
    f32 => F32;
    f64 => F64;
}

element!(
    i128,
    I128,
    |values, settings, scratch, chunk| halves::encode(values, settings, scratch, chunk),
    |codec, prelude, page, buffers, out| halves::decode(codec, prelude, page, buffers, out),
    |place| halves::decode_value(codec, prelude, page, place, buffers)
);
