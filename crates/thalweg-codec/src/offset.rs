//! The types of offsets of variable-length values.
//!
//! Invariants: an offset that fits an index comes back from it unchanged.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// An offset of variable-length values, as Arrow has them. Sealed.
pub trait Offset: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The offset as an index, unless it is negative.
    fn to_index(self) -> Option<usize>;
    /// The index as an offset, unless it is too large.
    fn from_index(index: usize) -> Option<Self>;
    /// The index as an offset; another one if it is too large.
    fn wrapping(index: usize) -> Self;
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
            #[inline(always)]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "checked by the caller, and some types take all"
            )]
            fn wrapping(index: usize) -> Self {
                index as Self
            }
        })*
    };
}

offset!(i32, i64, u32);
