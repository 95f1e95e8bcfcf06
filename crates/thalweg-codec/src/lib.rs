//! Column encodings over slices, chosen by sampling.
//!
//! A *chunk* is one column of one block. It is cut into *pages* of [`PAGE_ROWS`] rows (the last may
//! be short), each of which decodes alone, given the chunk's *prelude*. This crate knows slices and
//! bytes: no Arrow, no SQL, no files, no checksums.
//!
//! Invariants
//! - Lossless for every bit pattern: NaN payloads, negative zero, the extremes of every integer.
//! - The same values at the same [`Level`] give the same bytes.
//! - Decoding arbitrary bytes gives an error or arbitrary values; never a panic, undefined
//!   behaviour, or memory beyond the rows asked for plus eight times the input plus 16 MiB.
//!
//! The bytes on disk are described in `docs/format/codecs.md`.

#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the codecs copy little-endian values between memory and files");

mod bits;
mod bytes;
mod chain;
mod choose;
mod chunk;
mod decode;
mod dictionary;
mod element;
mod encode;
mod error;
mod floats;
mod input;
mod integers;
mod mode;
mod packing;
mod stage;
mod values;
mod wide;

pub use chain::{ChunkKind, CodecChain, ElementType, LastStage};
pub use chunk::{ChunkView, EncodedChunk, MAX_CHUNK_ROWS, page_count, page_rows};
pub use decode::Decoder;
pub use element::{Element, Offset};
pub use encode::{Encoder, Level, ValueCodec};
pub use error::{DecodeError, EncodeError};

/// Rows of a full page.
pub const PAGE_ROWS: usize = 1024;
