//! Column encodings over slices, chosen by sampling.
//!
//! A *chunk* is one column of one block. It is cut into *pages* of up to [`MAX_PAGE_ROWS`] rows
//! ([`PAGE_ROWS`] unless the caller chooses otherwise; the last may be short), each of which decodes
//! alone, given the chunk's *prelude*. A page of more than [`PAGE_ROWS`] rows is cut into *runs* of
//! that many. This crate knows slices and bytes: no Arrow, no SQL, no files, no checksums.
//!
//! Invariants
//! - Lossless for every bit pattern: NaN payloads, negative zero, the extremes of every integer.
//! - The same values at the same [`Level`] give the same bytes, whatever was encoded before.
//! - Decoding arbitrary bytes gives an error or arbitrary values; never a panic, undefined
//!   behaviour, or memory beyond the rows asked for plus eight times the input plus 16 MiB.
//!
//! The bytes on disk are described in `docs/format/codecs.md`.

#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the codecs copy little-endian values between memory and files");

mod alphabet;
mod bits;
mod bytes;
mod chain;
mod choose;
mod chunk;
mod constant;
mod decode;
mod dictionary;
mod element;
mod encode;
mod encode_scratch;
mod error;
mod floats;
mod fsst_codes;
mod halves;
mod inner;
mod input;
mod integers;
mod memory;
mod mode;
mod number;
mod offset;
mod open_page;
mod packed_pages;
mod packing;
mod page_coder;
mod pco_pages;
mod runs;
mod settings;
mod shuffle;
mod shuffle_choice;
mod stage;
mod text_choice;
mod values;
mod variable_length;
mod wide;

pub use chain::{ChunkKind, CodecChain, ElementType, LastStage};
pub use chunk::{ChunkView, EncodedChunk, MAX_CHUNK_ROWS, Paging, page_count, page_rows};
pub use decode::Decoder;
pub use element::Element;
pub use encode::Encoder;
pub use error::{DecodeError, EncodeError};
pub use offset::Offset;
pub use settings::{Level, ValueCodec};
pub use stage::Decompressor;

/// Rows of a full page of a stream, and of a run of a longer page.
pub const PAGE_ROWS: usize = 1024;

/// The most rows that a page may have.
pub const MAX_PAGE_ROWS: usize = 1 << 16;
