//! A chunk in its two forms: what an encoder fills, and what a decoder reads.
//!
//! Invariants of a [`ChunkView`]: `page_ends` rise, start no lower than `prelude_bytes`, and the
//! last one is the length of `bytes`; there are as many as there are pages; each page has 1 to
//! [`MAX_PAGE_ROWS`] rows, together those of the chunk.

use std::ops::Range;

use crate::chain::{ChunkKind, CodecChain, ElementType, LastStage};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::{MAX_PAGE_ROWS, PAGE_ROWS};

/// The most rows a chunk may hold.
pub const MAX_CHUNK_ROWS: usize = 1 << 24;

/// How a chunk is cut into pages.
///
/// ```
/// use thalweg_codec::{EncodedChunk, Encoder, Level, Paging};
///
/// let depths: Vec<f32> = vec![1.5; 100];
/// let mut chunk = EncodedChunk::new();
/// let mut encoder = Encoder::new(Level::Fast);
/// encoder.encode_paged(&depths, Paging::Every(40), &mut chunk).unwrap();
/// assert_eq!(chunk.page_row_ends, [40, 80, 100]);
/// encoder.encode_paged(&depths, Paging::RowEnds(&[10, 100]), &mut chunk).unwrap();
/// assert_eq!(chunk.view().unwrap().row_range(1), 10..100);
/// assert!(encoder.encode_paged(&depths, Paging::RowEnds(&[10, 99]), &mut chunk).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging<'a> {
    /// Pages of so many rows; the last may be short.
    Every(usize),
    /// The row after the last one of each page, rising to the rows of the chunk.
    RowEnds(&'a [u32]),
}

impl Paging<'_> {
    /// Pages of streams.
    pub const STREAM: Self = Self::Every(PAGE_ROWS);

    /// The row after the last one of each page, in the place of what `ends` holds.
    fn write_row_ends(self, rows: usize, ends: &mut Vec<u32>) -> Result<(), EncodeError> {
        const BAD: fn(usize) -> EncodeError = |rows| EncodeError::BadPages {
            rows,
            limit_rows: MAX_PAGE_ROWS,
        };
        ends.clear();
        match self {
            Self::Every(page_rows) => {
                if !(1..=MAX_PAGE_ROWS).contains(&page_rows) {
                    return Err(BAD(rows));
                }
                let mut end = 0;
                while end < rows {
                    end = (end + page_rows).min(rows);
                    ends.push(to_row_end(end));
                }
            }
            Self::RowEnds(given) => {
                check_row_ends(given, rows).map_err(|_| BAD(rows))?;
                ends.extend_from_slice(given);
            }
        }
        Ok(())
    }
}

/// The end of a row as it is stored; at most [`MAX_CHUNK_ROWS`].
fn to_row_end(row: usize) -> u32 {
    crate::integers::small(row)
}

fn check_row_ends(ends: &[u32], rows: usize) -> Result<(), DecodeError> {
    let mut start = 0;
    for &end in ends {
        let page_rows = end.saturating_sub(start) as usize;
        ensure(
            (1..=MAX_PAGE_ROWS).contains(&page_rows),
            "a page without rows or with too many",
        )?;
        start = end;
    }
    ensure(start as usize == rows, "pages of another number of rows")
}

/// An encoded chunk. Its buffers are reused when it is passed to an encoder again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// How it is encoded.
    pub codec: CodecChain,
    /// Rows it holds.
    pub rows: usize,
    /// Bytes in front of the first page that every page needs.
    pub prelude_bytes: u32,
    /// The row after the last one of each page.
    pub page_row_ends: Vec<u32>,
    /// Where each page ends in `bytes`; the first starts at `prelude_bytes`.
    pub page_ends: Vec<u32>,
    /// Prelude and pages, without gaps.
    pub bytes: Vec<u8>,
    /// Bytes that the values took in memory.
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
            page_row_ends: Vec::new(),
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
        ChunkView::with_pages(
            self.codec,
            self.rows,
            Paging::RowEnds(&self.page_row_ends),
            self.prelude_bytes,
            &self.page_ends,
            &self.bytes,
        )
    }

    /// Cuts the rows into pages that are still to be written.
    pub(crate) fn set_paging(&mut self, paging: Paging<'_>) -> Result<(), EncodeError> {
        paging.write_row_ends(self.rows, &mut self.page_row_ends)
    }

    /// Pages that the rows are cut into, written or not.
    pub(crate) fn planned_pages(&self) -> usize {
        self.page_row_ends.len()
    }

    /// The rows of a page.
    pub(crate) fn row_range(&self, page: usize) -> Range<usize> {
        let start = if page == 0 {
            0
        } else {
            self.page_row_ends[page - 1]
        };
        start as usize..self.page_row_ends[page] as usize
    }
}

/// A whole chunk, with its metadata checked.
#[derive(Debug, Clone, Copy)]
pub struct ChunkView<'a> {
    codec: CodecChain,
    rows: usize,
    paging: Paging<'a>,
    prelude_bytes: u32,
    page_ends: &'a [u32],
    bytes: &'a [u8],
}

impl<'a> ChunkView<'a> {
    /// A chunk of pages of [`PAGE_ROWS`] rows: see [`Self::with_pages`].
    ///
    /// # Errors
    /// As there.
    pub fn new(
        codec: CodecChain,
        rows: usize,
        prelude_bytes: u32,
        page_ends: &'a [u32],
        bytes: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let paging = Paging::STREAM;
        Self::with_pages(codec, rows, paging, prelude_bytes, page_ends, bytes)
    }

    /// Checks that the page ends fit the rows and the bytes.
    ///
    /// # Errors
    /// When they do not.
    pub fn with_pages(
        codec: CodecChain,
        rows: usize,
        paging: Paging<'a>,
        prelude_bytes: u32,
        page_ends: &'a [u32],
        bytes: &'a [u8],
    ) -> Result<Self, DecodeError> {
        ensure(rows <= MAX_CHUNK_ROWS, "more rows than a chunk may hold")?;
        let pages = match paging {
            Paging::Every(page_rows) => {
                let fits = (1..=MAX_PAGE_ROWS).contains(&page_rows);
                ensure(fits, "a page without rows or with too many")?;
                rows.div_ceil(page_rows)
            }
            Paging::RowEnds(ends) => {
                check_row_ends(ends, rows)?;
                ends.len()
            }
        };
        ensure(page_ends.len() == pages, "page count does not fit the rows")?;
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
            paging,
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
        self.row_range(page).len()
    }

    /// The rows of page `page`.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn row_range(&self, page: usize) -> Range<usize> {
        match self.paging {
            Paging::Every(page_rows) => page * page_rows..((page + 1) * page_rows).min(self.rows),
            Paging::RowEnds(ends) => {
                let start = if page == 0 { 0 } else { ends[page - 1] };
                start as usize..ends[page] as usize
            }
        }
    }
}

/// Pages of a stream that `rows` rows need.
///
/// ```
/// use thalweg_codec::{page_count, page_rows};
///
/// assert_eq!(page_count(2_500), 3);
/// assert_eq!((page_rows(2_500, 0), page_rows(2_500, 2)), (1_024, 452));
/// ```
pub const fn page_count(rows: usize) -> usize {
    rows.div_ceil(PAGE_ROWS)
}

/// Rows of page `page` of a stream, in a chunk of `rows` rows.
pub fn page_rows(rows: usize, page: usize) -> usize {
    rows.saturating_sub(page * PAGE_ROWS).min(PAGE_ROWS)
}
