//! The encoder: takes a column, fills an [`EncodedChunk`].
//!
//! Invariants: the same values at the same level give the same bytes, whatever was encoded before;
//! nothing is allocated per page once the buffers have grown.

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain, ElementType, LastStage};
use crate::chunk::{EncodedChunk, MAX_CHUNK_ROWS};
use crate::element::{Element, Offset};
use crate::error::EncodeError;
use crate::page;

/// How much work an encoder puts into a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// For the path of fresh rows: cheap codecs only.
    Fast,
    /// For background rewrites: slower codecs too.
    Dense,
}

/// Encodes columns; holds the buffers that encoding reuses.
#[derive(Debug)]
pub struct Encoder {
    level: Level,
    lengths: Vec<u32>,
}

impl Encoder {
    /// An encoder that works at `level`.
    pub fn new(level: Level) -> Self {
        Self {
            level,
            lengths: Vec::new(),
        }
    }

    /// The level it works at.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Encodes fixed-width values into `out`, whose contents are replaced.
    ///
    /// # Errors
    /// When there are more than [`MAX_CHUNK_ROWS`] values.
    pub fn encode<T: Element>(
        &mut self,
        values: &[T],
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        begin(out, T::TYPE, values.len(), size_of_val(values))?;
        for page_values in values.chunks(PAGE_ROWS) {
            page::encode_plain(page_values, &mut out.bytes);
            end_page(out)?;
        }
        Ok(())
    }

    /// Encodes variable-length values into `out`, whose contents are replaced. `offsets` has one
    /// entry more than there are rows, as in Arrow, and need not start at zero.
    ///
    /// # Errors
    /// When offsets fall or leave the data, or the chunk would pass 4 GiB.
    pub fn encode_bytes<O: Offset>(
        &mut self,
        offsets: &[O],
        data: &[u8],
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        let (start, end) = self.read_lengths(offsets, data)?;
        let rows = self.lengths.len();
        begin(out, ElementType::Bytes, rows, end - start)?;
        let mut rest = &data[start..end];
        for lengths in self.lengths.chunks(PAGE_ROWS) {
            let page_bytes = lengths.iter().map(|&length| length as usize).sum();
            let (page_data, behind) = rest.split_at(page_bytes);
            rest = behind;
            page::encode_plain(lengths, &mut out.bytes);
            out.bytes.extend_from_slice(page_data);
            end_page(out)?;
        }
        Ok(())
    }

    /// Encodes `rows` bits, lowest bit of each byte first, into `out`, whose contents are replaced.
    ///
    /// # Errors
    /// When `bits` is too short or there are more than [`MAX_CHUNK_ROWS`] rows.
    pub fn encode_bits(
        &mut self,
        bits: &[u8],
        rows: usize,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        if bits.len() < rows.div_ceil(8) {
            return Err(EncodeError::ShortBitmap {
                bytes: bits.len(),
                rows,
            });
        }
        begin(out, ElementType::Bits, rows, rows.div_ceil(8))?;
        let bits = &bits[..rows.div_ceil(8)];
        for (index, page_bits) in bits.chunks(PAGE_ROWS / 8).enumerate() {
            page::encode_plain_bits(
                page_bits,
                crate::chunk::page_rows(rows, index),
                &mut out.bytes,
            );
            end_page(out)?;
        }
        Ok(())
    }

    /// Checks the offsets and keeps the lengths; returns where the data starts and ends.
    fn read_lengths<O: Offset>(
        &mut self,
        offsets: &[O],
        data: &[u8],
    ) -> Result<(usize, usize), EncodeError> {
        self.lengths.clear();
        let Some(first) = offsets.first() else {
            return Ok((0, 0));
        };
        let start = first
            .to_index()
            .ok_or(EncodeError::BadOffsets { index: 0 })?;
        let mut end = start;
        for (index, offset) in offsets.iter().enumerate().skip(1) {
            let next = offset
                .to_index()
                .filter(|&next| next >= end && next <= data.len());
            let next = next.ok_or(EncodeError::BadOffsets { index })?;
            let length = u32::try_from(next - end).map_err(|_| EncodeError::TooManyBytes {
                limit_bytes: u32::MAX as usize,
            })?;
            self.lengths.push(length);
            end = next;
        }
        if start > data.len() {
            return Err(EncodeError::BadOffsets { index: 0 });
        }
        Ok((start, end))
    }
}

/// Empties `out` for a chunk of `rows` rows.
fn begin(
    out: &mut EncodedChunk,
    element: ElementType,
    rows: usize,
    raw_bytes: usize,
) -> Result<(), EncodeError> {
    if rows > MAX_CHUNK_ROWS {
        return Err(EncodeError::TooManyRows {
            rows,
            limit_rows: MAX_CHUNK_ROWS,
        });
    }
    out.codec = CodecChain {
        kind: ChunkKind::Pages,
        element,
        last_stage: LastStage::None,
    };
    out.rows = rows;
    out.prelude_bytes = 0;
    out.page_ends.clear();
    out.bytes.clear();
    out.raw_bytes = raw_bytes as u64;
    Ok(())
}

/// Notes that the page now being written ends here.
fn end_page(out: &mut EncodedChunk) -> Result<(), EncodeError> {
    let end_bytes = u32::try_from(out.bytes.len()).map_err(|_| EncodeError::TooManyBytes {
        limit_bytes: u32::MAX as usize,
    })?;
    out.page_ends.push(end_bytes);
    Ok(())
}
