//! Columns of batches as chunks of blocks, and back.
//!
//! Invariants
//! - Every column of a block has a *values* chunk; one that has nulls also a *validity* chunk. A column that is null
//!   throughout has the validity chunk alone. A column without chunks did not exist when the block was written.
//! - The values of null rows have no meaning and cost little: the value before (so that runs and slopes go on), an empty
//!   string, false. So equal rows are equal bytes.
//! - A large block has zones of its summarised columns, so that a scan reads only pages that can have what it looks for.
//! - Values are decoded where they stay: a full page of the column's own type is written once, into the memory of the
//!   array. Only cut pages and widened columns go through a scratch page.

mod decode;
mod encode;
pub mod filter;
mod values;
mod zones;

pub use decode::{BlockDecoder, decode_block};
pub use encode::BlockEncoder;
pub(crate) use encode::{Encoders, MAX_RAW_BYTES, is_long, max_block_rows, raw_bytes};
pub use values::ValueDecoder;
pub(crate) use zones::{MIN_PAGES, Zones};

/// Runs `$body` with `$native` as the type of the elements of `$element`, a number of at most 64 bits.
macro_rules! with_number {
    ($element:expr, $native:ident => $body:expr) => {
        with_number!(@ $element, $native, $body,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64)
    };
    (@ $element:expr, $native:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $element {
            $(ElementType::$variant => {
                type $native = $type;
                $body
            })*
            other => unreachable!("a bug: {other:?} is not a number of 64 bits"),
        }
    };
}
pub(crate) use with_number;
