//! The fixed-width types a chunk can hold.

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::chain::ElementType;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A fixed-width value: integers of 8 to 128 bits and floats. Sealed.
pub trait Element:
    sealed::Sealed
    + Copy
    + Default
    + Debug
    + PartialEq
    + Send
    + Sync
    + FromBytes
    + IntoBytes
    + Immutable
    + 'static
{
    /// Its tag in a codec chain.
    const TYPE: ElementType;
}

macro_rules! element {
    ($($type:ty => $tag:ident,)*) => {
        $(impl sealed::Sealed for $type {}
        impl Element for $type {
            const TYPE: ElementType = ElementType::$tag;
        })*
    };
}

element! {
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, i128 => I128,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64,
}

/// An offset of variable-length values, as Arrow has them. Sealed.
pub trait Offset: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The offset as an index, unless it is negative.
    fn to_index(self) -> Option<usize>;
    /// The index as an offset, unless it is too large.
    fn from_index(index: usize) -> Option<Self>;
}

macro_rules! offset {
    ($($type:ty),*) => {
        $(impl Offset for $type {
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
