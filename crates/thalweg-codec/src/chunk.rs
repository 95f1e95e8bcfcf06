//! A chunk in its two forms: what an encoder fills, and what a decoder reads.
//!
//! Invariants of a [`ChunkView`]: `page_ends` rise, start no lower than `prelude_bytes`, and the
//! last one is the length of `bytes`; there are as many as `rows` needs.

use std::ops::Range;

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain, ElementType, LastStage};
use crate::error::{DecodeError, ensure};

/// The most rows a chunk may hold.
pub const MAX_CHUNK_ROWS: usize = 1 << 24;

/// An encoded chunk. Its buffers are reused when it is passed to an encoder again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// How it is encoded.
    pub codec: CodecChain,
    /// Rows it holds.
    pub rows: usize,
    /// Bytes in front of the first page that every page needs.
    pub prelude_bytes: u32,
    /// Where each page ends in `bytes`; the first starts at `prelude_bytes`.
    pub page_ends: Vec<u32>,
    /// Prelude and pages, without gaps.
    pub bytes: Vec<u8>,
    /// What the values took in memory.
    pub raw_bytes: u64,
}

impl Default for EncodedChunk {
    fn default() -> Self {
        Self {
            codec: CodecChain {
                kind: ChunkKind::Pages,
                element: ElementType::Bits,
                last_stage: LastStage::None,
            },
            rows: 0,
            prelude_bytes: 0,
            page_ends: Vec::new(),
            bytes: Vec::new(),
            raw_bytes: 0,
        }
    }
}

impl EncodedChunk {
    /// An empty chunk to encode into.
    pub fn new() -> Self {
        Self::default()
    }

    /// The chunk as a decoder reads it.
    ///
    /// # Errors
    /// When the public fields were changed to something no encoder writes.
    pub fn view(&self) -> Result<ChunkView<'_>, DecodeError> {
        ChunkView::new(
            self.codec,
            self.rows,
            self.prelude_bytes,
            &self.page_ends,
            &self.bytes,
        )
    }
}

/// A whole chunk, with its metadata checked.
#[derive(Debug, Clone, Copy)]
pub struct ChunkView<'a> {
    codec: CodecChain,
    rows: usize,
    prelude_bytes: u32,
    page_ends: &'a [u32],
    bytes: &'a [u8],
}

impl<'a> ChunkView<'a> {
    /// Checks that the page ends fit the rows and the bytes.
    ///
    /// # Errors
    /// When they do not.
    pub fn new(
        codec: CodecChain,
        rows: usize,
        prelude_bytes: u32,
        page_ends: &'a [u32],
        bytes: &'a [u8],
    ) -> Result<Self, DecodeError> {
        ensure(rows <= MAX_CHUNK_ROWS, "more rows than a chunk may hold")?;
        ensure(
            page_ends.len() == page_count(rows),
            "page count does not fit the rows",
        )?;
        let mut start_bytes = prelude_bytes;
        for &end_bytes in page_ends {
            ensure(start_bytes <= end_bytes, "page ends do not rise")?;
            start_bytes = end_bytes;
        }
        ensure(
            start_bytes as usize == bytes.len(),
            "the last page does not end where the chunk ends",
        )?;
        Ok(Self {
            codec,
            rows,
            prelude_bytes,
            page_ends,
            bytes,
        })
    }

    /// How it is encoded.
    pub fn codec(&self) -> CodecChain {
        self.codec
    }

    /// Rows it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Pages it is cut into.
    pub fn page_count(&self) -> usize {
        self.page_ends.len()
    }

    /// The bytes every page needs.
    pub fn prelude(&self) -> &'a [u8] {
        &self.bytes[..self.prelude_bytes as usize]
    }

    /// Where page `page` lies in the chunk's bytes.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn page_range_bytes(&self, page: usize) -> Range<usize> {
        let start_bytes = if page == 0 {
            self.prelude_bytes
        } else {
            self.page_ends[page - 1]
        };
        start_bytes as usize..self.page_ends[page] as usize
    }

    /// The bytes of page `page`.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn page(&self, page: usize) -> &'a [u8] {
        &self.bytes[self.page_range_bytes(page)]
    }

    /// Rows of page `page`.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn page_rows(&self, page: usize) -> usize {
        assert!(
            page < self.page_count(),
            "page {page} of {}",
            self.page_count()
        );
        page_rows(self.rows, page)
    }
}

/// Pages that `rows` rows need.
pub const fn page_count(rows: usize) -> usize {
    rows.div_ceil(PAGE_ROWS)
}

/// Rows of page `page` in a chunk of `rows` rows.
pub fn page_rows(rows: usize, page: usize) -> usize {
    rows.saturating_sub(page * PAGE_ROWS).min(PAGE_ROWS)
}
