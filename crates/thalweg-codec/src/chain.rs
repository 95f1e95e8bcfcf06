//! The four bytes that describe how a chunk is encoded.
//!
//! Invariants: a [`CodecChain`] that exists is valid (its fields are enums, zero parses as none of
//! them); it describes no single pages, which name their own mode in their first byte.

use crate::error::{DecodeError, ensure};

/// Defines an enum of on-disk byte values with a checked conversion from a byte.
macro_rules! byte_enum {
    ($(#[$doc:meta])* $vis:vis enum $name:ident ($reason:literal) { $($(#[$item_doc:meta])* $item:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $vis enum $name { $($(#[$item_doc])* $item = $value,)* }

        impl $name {
            /// The value of a byte read from a file; zero and unknown values are errors.
            $vis fn from_byte(byte: u8) -> Result<Self, DecodeError> {
                match byte {
                    $($value => Ok(Self::$item),)*
                    _ => Err(DecodeError::new($reason)),
                }
            }

            /// The byte that stands for this value in a file.
            $vis const fn to_byte(self) -> u8 {
                self as u8
            }
        }
    };
}
pub(crate) use byte_enum;

byte_enum! {
    /// How the pages of a chunk relate to its prelude.
    pub enum ChunkKind ("unknown chunk kind") {
        /// No prelude; every page describes itself.
        Pages = 1,
        /// The prelude is the one value of all rows; pages are empty.
        Constant = 2,
        /// The prelude is a list of distinct values; pages hold codes, or describe themselves.
        Dictionary = 3,
        /// The prelude is the metadata of a pco chunk; pages are pco pages, or describe themselves.
        Pco = 4,
        /// The prelude is a table of symbols; pages hold FSST codes, or are plain.
        Fsst = 5,
        /// The prelude is a list of bytes; pages hold the index of each byte, or are plain.
        Alphabet = 6,
    }
}

byte_enum! {
    /// The type of a chunk's values.
    pub enum ElementType ("unknown element type") {
        /// `i8`.
        I8 = 1,
        /// `i16`.
        I16 = 2,
        /// `i32`.
        I32 = 3,
        /// `i64`.
        I64 = 4,
        /// `i128`.
        I128 = 5,
        /// `u8`.
        U8 = 6,
        /// `u16`.
        U16 = 7,
        /// `u32`.
        U32 = 8,
        /// `u64`.
        U64 = 9,
        /// `f32`.
        F32 = 10,
        /// `f64`.
        F64 = 11,
        /// Variable-length bytes.
        Bytes = 12,
        /// Single bits, packed with the lowest bit first.
        Bits = 13,
    }
}

byte_enum! {
    /// The general compressor after the value codec, page by page.
    pub enum LastStage ("unknown last stage") {
        /// Pages are stored as the value codec left them.
        None = 1,
        /// LZ4 blocks, where they pay.
        Lz4 = 2,
        /// Zstandard frames, where they pay.
        Zstd = 3,
    }
}

/// How a chunk is encoded: kind, element type, last stage.
///
/// ```
/// use thalweg_codec::{ChunkKind, CodecChain, ElementType, LastStage};
///
/// let chain = CodecChain { kind: ChunkKind::Dictionary, element: ElementType::Bytes, last_stage: LastStage::Lz4 };
/// assert_eq!(CodecChain::from_bytes(chain.to_bytes()), Ok(chain));
/// assert!(CodecChain::from_bytes([0; 4]).is_err()); // zeroed memory is no chain
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodecChain {
    /// How pages relate to the prelude.
    pub kind: ChunkKind,
    /// The type of the values.
    pub element: ElementType,
    /// The general compressor after the value codec.
    pub last_stage: LastStage,
}

impl CodecChain {
    /// The four bytes of a directory entry; the last one is reserved and zero.
    pub const fn to_bytes(self) -> [u8; 4] {
        [
            self.kind.to_byte(),
            self.element.to_byte(),
            self.last_stage.to_byte(),
            0,
        ]
    }

    /// Checks the four bytes of a directory entry.
    pub fn from_bytes(bytes: [u8; 4]) -> Result<Self, DecodeError> {
        ensure(
            bytes[3] == 0,
            "reserved byte of the codec chain is not zero",
        )?;
        Ok(Self {
            kind: ChunkKind::from_byte(bytes[0])?,
            element: ElementType::from_byte(bytes[1])?,
            last_stage: LastStage::from_byte(bytes[2])?,
        })
    }
}
