//! The decoder: reads pages of a chunk back.
//!
//! Invariants: arbitrary bytes give an error or arbitrary values, never a panic; lengths are
//! checked against the input before memory is taken for them.

use std::ops::Range;

use crate::bytes::{self, TextReaders};
use crate::chain::{CodecChain, ElementType};
use crate::chunk::ChunkView;
use crate::element::Element;
use crate::error::{DecodeError, ensure};
use crate::offset::Offset;
use crate::open_page::DecodeScratch;
use crate::{MAX_PAGE_ROWS, bits};

/// Decodes pages; holds the buffers that decoding reuses.
#[derive(Debug, Default)]
pub struct Decoder {
    scratch: DecodeScratch,
    texts: TextReaders,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes one page into `out`, which is as long as the page has rows, given the prelude of
    /// its chunk. On error `out` holds arbitrary values.
    ///
    /// # Errors
    /// When the bytes are not those of such a page.
    pub fn decode_page<T: Element>(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        out: &mut [T],
    ) -> Result<(), DecodeError> {
        ensure(
            codec.element == T::TYPE,
            "the chunk holds another element type",
        )?;
        ensure(out.len() <= MAX_PAGE_ROWS, "more rows than a page holds")?;
        T::decode(codec, prelude, page, &mut self.scratch, out)
    }

    /// Decodes the value at `index` of a page of `rows` rows, without the others where the mode of
    /// the page allows it (see `docs/format/codecs.md`).
    ///
    /// ```
    /// use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level, PAGE_ROWS};
    ///
    /// let levels: Vec<i32> = (0..3_000).collect();
    /// let mut chunk = EncodedChunk::new();
    /// Encoder::new(Level::Fast).encode(&levels, &mut chunk).unwrap();
    /// let view = chunk.view().unwrap();
    /// let (page, index) = (2_500 / PAGE_ROWS, 2_500 % PAGE_ROWS);
    /// let value: i32 = Decoder::new()
    ///     .decode_value(view.codec(), view.prelude(), view.page(page), view.page_rows(page), index)
    ///     .unwrap();
    /// assert_eq!(value, 2_500);
    /// ```
    ///
    /// # Errors
    /// When the bytes are not those of such a page, or there is no such row. Damage to other values
    /// may pass.
    pub fn decode_value<T: Element>(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        index: usize,
    ) -> Result<T, DecodeError> {
        ensure(
            codec.element == T::TYPE,
            "the chunk holds another element type",
        )?;
        check_place(rows, index)?;
        T::decode_value(codec, prelude, page, (rows, index), &mut self.scratch)
    }

    /// Appends the rows of `pages` to `out`, touching the prelude and those pages only. On error
    /// `out` is as long as before.
    ///
    /// ```
    /// use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
    ///
    /// let times: Vec<i64> = (0..3_000).map(|n| 1_772_366_400_000 + n * 250).collect();
    /// let mut chunk = EncodedChunk::new();
    /// Encoder::new(Level::Dense).encode(&times, &mut chunk).unwrap();
    /// let view = chunk.view().unwrap();
    /// let mut second_page: Vec<i64> = Vec::new();
    /// Decoder::new().decode(&view, 1..2, &mut second_page).unwrap();
    /// assert_eq!(second_page, times[1_024..2_048]);
    /// let mut floats: Vec<f64> = Vec::new();
    /// assert!(Decoder::new().decode(&view, 0..1, &mut floats).is_err()); // the chunk holds integers
    /// ```
    ///
    /// # Errors
    /// When there are no such pages or their bytes are damaged.
    pub fn decode<T: Element>(
        &mut self,
        chunk: &ChunkView<'_>,
        pages: Range<usize>,
        out: &mut Vec<T>,
    ) -> Result<(), DecodeError> {
        ensure(
            pages.end <= chunk.page_count(),
            "page beyond the end of the chunk",
        )?;
        let before = out.len();
        for page in pages {
            // Page by page, so that the zeros are still in the cache when values replace them.
            let start = out.len();
            out.resize(start + chunk.page_rows(page), T::default());
            let result = self.decode_page(
                chunk.codec(),
                chunk.prelude(),
                chunk.page(page),
                &mut out[start..],
            );
            if result.is_err() {
                out.truncate(before);
                return result;
            }
        }
        Ok(())
    }

    /// Appends one page of variable-length values: `rows` offsets after the last one in `offsets`
    /// (the length of `data` is put first when it is empty), and their bytes to `data`. The last
    /// offset must be the length of `data`. On error both may hold part of the page.
    ///
    /// # Errors
    /// When the bytes are not those of such a page, or the data outgrows the offset type.
    pub fn decode_bytes_page<O: Offset>(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        offsets: &mut Vec<O>,
        data: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        ensure(
            codec.element == ElementType::Bytes,
            "the chunk holds another element type",
        )?;
        ensure(rows <= MAX_PAGE_ROWS, "more rows than a page holds")?;
        let scratch = (&mut self.scratch, &mut self.texts);
        bytes::decode_page(codec, prelude, page, rows, scratch, (offsets, data))
    }

    /// Appends the variable-length value at `index` of a page of `rows` rows to `out`. On error
    /// `out` is as long as before.
    ///
    /// # Errors
    /// As [`Self::decode_value`].
    pub fn decode_bytes_value(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        index: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        ensure(
            codec.element == ElementType::Bytes,
            "the chunk holds another element type",
        )?;
        check_place(rows, index)?;
        let before = out.len();
        let place = (rows, index);
        let scratch = (&mut self.scratch, &mut self.texts);
        let result = bytes::decode_value(codec, prelude, page, place, scratch, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    /// Decodes the bit at `index` of a page of `rows` bits.
    ///
    /// # Errors
    /// As [`Self::decode_value`].
    pub fn decode_bit(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        index: usize,
    ) -> Result<bool, DecodeError> {
        ensure(
            codec.element == ElementType::Bits,
            "the chunk holds another element type",
        )?;
        check_place(rows, index)?;
        bits::decode_value(codec, prelude, page, (rows, index), &mut self.scratch)
    }

    /// Decodes one page of bits into `out`, which has `rows.div_ceil(8)` bytes; bits after the
    /// last row are zero. On error `out` holds arbitrary bits.
    ///
    /// # Errors
    /// When the bytes are not those of such a page.
    pub fn decode_bits_page(
        &mut self,
        codec: CodecChain,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        ensure(
            codec.element == ElementType::Bits,
            "the chunk holds another element type",
        )?;
        ensure(
            rows <= MAX_PAGE_ROWS && out.len() == rows.div_ceil(8),
            "output does not fit the rows",
        )?;
        bits::decode_page(codec, prelude, page, rows, &mut self.scratch, out)
    }
}

/// An error unless a page may have `rows` rows, and one at `index`.
fn check_place(rows: usize, index: usize) -> Result<(), DecodeError> {
    ensure(rows <= MAX_PAGE_ROWS, "more rows than a page holds")?;
    ensure(index < rows, "row beyond the page")
}
