//! The encoder: takes a column, fills an [`EncodedChunk`].
//!
//! Invariants: the same values at the same level give the same bytes, whatever was encoded before;
//! nothing is allocated per page once the buffers have grown; no buffer of more than
//! [`MAX_KEPT_BYTES`] is kept from one chunk to the next.

use crate::bits;
use crate::bytes::{self, BytesScratch};
use crate::chain::{ChunkKind, CodecChain, ElementType, LastStage};
use crate::chunk::{EncodedChunk, MAX_CHUNK_ROWS, Paging};
use crate::element::Element;
use crate::encode_scratch::EncodeScratch;
use crate::error::EncodeError;
use crate::memory::MAX_KEPT_BYTES;
use crate::offset::Offset;
use crate::settings::{Level, Settings, ValueCodec};

/// Encodes columns; holds the buffers that encoding reuses.
///
/// ```
/// use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
///
/// let temperatures: Vec<f64> = (0..4_096).map(|second| 20.0 + f64::from(second % 60) / 10.0).collect();
/// let mut chunk = EncodedChunk::new();
/// Encoder::new(Level::Fast).encode(&temperatures, &mut chunk).unwrap();
/// assert!(chunk.bytes.len() as u64 * 4 < chunk.raw_bytes);
///
/// let view = chunk.view().unwrap();
/// let mut decoded: Vec<f64> = Vec::new();
/// Decoder::new().decode(&view, 0..view.page_count(), &mut decoded).unwrap();
/// assert_eq!(decoded, temperatures);
/// ```
#[derive(Debug)]
pub struct Encoder {
    settings: Settings,
    scratch: EncodeScratch,
    bytes: BytesScratch,
}

impl Encoder {
    /// An encoder that works at `level`.
    pub fn new(level: Level) -> Self {
        Self {
            settings: Settings {
                level,
                codec: None,
                last_stage: None,
            },
            scratch: EncodeScratch::default(),
            bytes: BytesScratch::default(),
        }
    }

    /// Uses `codec` on every chunk.
    ///
    /// ```
    /// use thalweg_codec::{EncodedChunk, Encoder, Level, ValueCodec};
    ///
    /// let counter: Vec<i64> = (0..1_024).map(|n| n * n).collect();
    /// let bytes_of = |codec| {
    ///     let mut chunk = EncodedChunk::new();
    ///     Encoder::new(Level::Fast).with_value_codec(codec).encode(&counter, &mut chunk).unwrap();
    ///     chunk.bytes.len()
    /// };
    /// assert!(bytes_of(ValueCodec::Delta) < bytes_of(ValueCodec::FrameOfReference));
    /// ```
    #[must_use]
    pub fn with_value_codec(mut self, codec: ValueCodec) -> Self {
        self.settings.codec = Some(codec);
        self
    }

    /// Uses `last_stage` on every chunk, still only on the pages where it pays.
    #[must_use]
    pub fn with_last_stage(mut self, last_stage: LastStage) -> Self {
        self.settings.last_stage = Some(last_stage);
        self
    }

    /// The level it works at.
    pub fn level(&self) -> Level {
        self.settings.level
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
        self.encode_paged(values, Paging::STREAM, out)
    }

    /// Encodes as [`Self::encode`] does, cut into these pages.
    ///
    /// # Errors
    /// As there, and when the pages do not fit the rows.
    pub fn encode_paged<T: Element>(
        &mut self,
        values: &[T],
        paging: Paging<'_>,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        begin(out, T::TYPE, values.len(), size_of_val(values), paging)?;
        if values.is_empty() {
            return Ok(());
        }
        let result = T::encode(values, &self.settings, &mut self.scratch, out);
        self.trim(size_of_val(values));
        result
    }

    /// Encodes variable-length values into `out`, whose contents are replaced. `offsets` has one
    /// entry more than there are rows, as in Arrow, and need not start at zero.
    ///
    /// ```
    /// use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
    ///
    /// let (offsets, data) = ([0_i32, 5, 10, 15], b"northsouthnorth");
    /// let mut chunk = EncodedChunk::new();
    /// Encoder::new(Level::Fast).encode_bytes(&offsets, data, &mut chunk).unwrap();
    ///
    /// let view = chunk.view().unwrap();
    /// let mut last = Vec::new();
    /// let (codec, prelude, page) = (view.codec(), view.prelude(), view.page(0));
    /// Decoder::new().decode_bytes_value(codec, prelude, page, 3, 2, &mut last).unwrap();
    /// assert_eq!(last, b"north");
    /// ```
    ///
    /// # Errors
    /// When offsets fall or leave the data, or the chunk would pass 4 GiB.
    pub fn encode_bytes<O: Offset>(
        &mut self,
        offsets: &[O],
        data: &[u8],
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        self.encode_bytes_paged(offsets, data, Paging::STREAM, out)
    }

    /// Encodes as [`Self::encode_bytes`] does, cut into these pages.
    ///
    /// # Errors
    /// As there, and when the pages do not fit the rows.
    pub fn encode_bytes_paged<O: Offset>(
        &mut self,
        offsets: &[O],
        data: &[u8],
        paging: Paging<'_>,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        let data = self.bytes.values.read(offsets, data)?;
        let rows = self.bytes.values.rows();
        begin(out, ElementType::Bytes, rows, data.len(), paging)?;
        let Self {
            settings,
            scratch,
            bytes,
        } = self;
        let result = bytes::encode(data, settings, bytes, &mut scratch.shared, out);
        self.trim(data.len() + rows * size_of::<u32>());
        result
    }

    /// All values of the last chunk of variable-length values, each once and in no order; `None` where encoding it has not
    /// shown them: it does if the chunk has a dictionary for all of its pages.
    pub fn distinct_texts(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.bytes.all_texts()
    }

    /// Encodes `rows` bits, lowest bit of each byte first, into `out`, whose contents are replaced.
    ///
    /// ```
    /// use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
    ///
    /// let is_open = [0b0000_0101]; // the valve was open in rows 0 and 2
    /// let mut chunk = EncodedChunk::new();
    /// Encoder::new(Level::Fast).encode_bits(&is_open, 4, &mut chunk).unwrap();
    /// let view = chunk.view().unwrap();
    /// let mut bits = [0];
    /// Decoder::new().decode_bits_page(view.codec(), view.prelude(), view.page(0), 4, &mut bits).unwrap();
    /// assert_eq!(bits, is_open);
    /// ```
    ///
    /// # Errors
    /// When `bits` is too short or there are more than [`MAX_CHUNK_ROWS`] rows.
    pub fn encode_bits(
        &mut self,
        bits: &[u8],
        rows: usize,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        self.encode_bits_paged(bits, rows, Paging::STREAM, out)
    }

    /// Encodes as [`Self::encode_bits`] does, cut into these pages.
    ///
    /// # Errors
    /// As there, and when the pages do not fit the rows.
    pub fn encode_bits_paged(
        &mut self,
        bits: &[u8],
        rows: usize,
        paging: Paging<'_>,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        if bits.len() < rows.div_ceil(8) {
            return Err(EncodeError::ShortBitmap {
                bytes: bits.len(),
                rows,
            });
        }
        begin(out, ElementType::Bits, rows, rows.div_ceil(8), paging)?;
        bits::encode(bits, &self.settings, &mut self.scratch.shared, out)
    }

    /// The memory of the buffers that grow with what is encoded.
    pub fn buffer_bytes(&self) -> usize {
        self.scratch.shared.buffer_bytes() + self.bytes.buffer_bytes()
    }

    /// Gives the buffers back that a chunk of `raw_bytes` has made large.
    fn trim(&mut self, raw_bytes: usize) {
        // No buffer is four times as long as what was encoded.
        if raw_bytes > MAX_KEPT_BYTES / 4 {
            self.scratch.shared.trim(MAX_KEPT_BYTES);
            self.bytes.trim(MAX_KEPT_BYTES);
        }
    }
}

/// Empties `out` for a chunk of `rows` rows.
fn begin(
    out: &mut EncodedChunk,
    element: ElementType,
    rows: usize,
    raw_bytes: usize,
    paging: Paging<'_>,
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
    out.set_paging(paging)
}
