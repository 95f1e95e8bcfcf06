//! The decoder: reads pages of a chunk back.
//!
//! Invariants: arbitrary bytes give an error or arbitrary values, never a panic; lengths are
//! checked against the input before memory is taken for them.

use std::ops::Range;

use crate::chain::{CodecChain, ElementType};
use crate::chunk::ChunkView;
use crate::element::{Element, Offset};
use crate::error::{DecodeError, ensure};
use crate::{PAGE_ROWS, page};

/// Decodes pages; holds the buffers that decoding reuses.
#[derive(Debug, Default)]
pub struct Decoder {
    lengths: Vec<u32>,
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
        ensure(prelude.is_empty(), "unexpected prelude")?;
        let rest = page::decode_plain(page, out)?;
        ensure(rest.is_empty(), "bytes behind the last value of a page")
    }

    /// Appends the rows of `pages` to `out`, touching the prelude and those pages only. On error
    /// `out` is as long as before.
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

    /// Appends one page of variable-length values: `rows` offsets behind the last one in `offsets`
    /// (a zero is put first when it is empty), and their bytes to `data`. The last offset must be
    /// the length of `data`. On error both may hold part of the page.
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
        ensure(prelude.is_empty(), "unexpected prelude")?;
        ensure(rows <= PAGE_ROWS, "more rows than a page holds")?;
        self.lengths.clear();
        self.lengths.resize(rows, 0);
        let values = page::decode_plain(page, &mut self.lengths)?;
        let total_bytes: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
        ensure(
            total_bytes == values.len() as u64,
            "lengths do not add up to the bytes of a page",
        )?;
        let mut end = data.len();
        if offsets.is_empty() {
            offsets.push(O::from_index(end).ok_or(DecodeError::new("offset type too narrow"))?);
        }
        for &length in &self.lengths {
            end += length as usize;
            offsets.push(O::from_index(end).ok_or(DecodeError::new("offset type too narrow"))?);
        }
        data.extend_from_slice(values);
        Ok(())
    }

    /// Decodes one page of bits into `out`, which has `rows.div_ceil(8)` bytes; bits behind the
    /// last row are zero.
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
        ensure(prelude.is_empty(), "unexpected prelude")?;
        ensure(
            rows <= PAGE_ROWS && out.len() == rows.div_ceil(8),
            "output does not fit the rows",
        )?;
        let rest = page::decode_plain(page, out)?;
        ensure(rest.is_empty(), "bytes behind the last bit of a page")
    }
}
