//! The last stage: a general compressor after the value codec, page by page.
//!
//! Invariants: a page is stored compressed only where that saves an eighth (LZ4) or a sixteenth
//! (Zstandard); no page claims to grow beyond [`expands_to`] when read.
//!
//! A staged page starts with a tag byte, so that pages that do not compress cost one byte. A chunk
//! in which none does is written without the stage.

use lz4_flex::block::CompressTable;
use zerocopy::{Immutable, IntoBytes};

use crate::chain::{CodecChain, LastStage, byte_enum};
use crate::chunk::EncodedChunk;
use crate::error::{DecodeError, EncodeError, ensure};
use crate::input::Input;
use crate::mode::PageMode;
use crate::shuffle;

byte_enum! {
    /// The first byte of a staged page.
    enum Tag ("unknown tag of a staged page") {
        /// The page follows as it is.
        Stored = 1,
        /// Its length (32 bits) and its compressed bytes follow.
        Compressed = 2,
        /// The same, for a plain page whose bytes were shuffled before.
        Shuffled = 3,
    }
}

/// Bytes before a compressed page.
const HEADER_BYTES: usize = 5;
/// Bytes of the first page that decide whether LZ4 is used.
pub(crate) const TRIED_BYTES: usize = 2048;
/// Pages of as many bytes need a table of 32-bit positions for LZ4.
const LARGE_LZ4_BYTES: usize = u16::MAX as usize;
/// Zstandard's level: the highest whose speed stays near that of the lowest.
const ZSTD_LEVEL: i32 = 3;

/// Whether so many input bytes may decompress to so many output bytes. Encoders keep to this limit, so that decoders
/// can refuse bytes that would fill the memory. Reading a page may expand twice, in the last stage and from a
/// dictionary: together that stays within eight times the input and 16 MiB.
pub(crate) fn expands_to(input_bytes: usize, output_bytes: u64) -> bool {
    output_bytes <= 4 * input_bytes as u64 + (8 << 20)
}

/// Compresses pages; holds the buffers.
pub(crate) struct Compressor {
    lz4_table: CompressTable,
    /// For pages of [`LARGE_LZ4_BYTES`] and more.
    large_lz4_table: Option<CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Default for Compressor {
    fn default() -> Self {
        Self {
            lz4_table: CompressTable::small(),
            large_lz4_table: None,
            zstd: None,
            buffer: Vec::new(),
        }
    }
}

impl Compressor {
    /// Compresses `bytes` into the buffer; returns how many they take.
    fn run(&mut self, stage: LastStage, bytes: &[u8]) -> Option<usize> {
        match stage {
            LastStage::None => None,
            LastStage::Lz4 => {
                self.reserve(lz4_flex::block::get_maximum_output_size(bytes.len()));
                // The hash table for short pages would turn into one for long pages at the first of these, and stay so:
                // it would find other matches in the short pages after it.
                let table = if bytes.len() < LARGE_LZ4_BYTES {
                    &mut self.lz4_table
                } else {
                    self.large_lz4_table
                        .get_or_insert_with(CompressTable::large)
                };
                lz4_flex::block::compress_into_with_table(bytes, &mut self.buffer, table).ok()
            }
            LastStage::Zstd => {
                self.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                let zstd = self.zstd.as_mut()?;
                zstd.compress_to_buffer(bytes, &mut self.buffer[..]).ok()
            }
        }
    }

    /// Returns the compressed form of `page`, if it pays.
    fn compress(&mut self, stage: LastStage, page: &[u8]) -> Option<&[u8]> {
        let written = self.run(stage, page)?;
        let saving_part = if stage == LastStage::Lz4 { 8 } else { 16 };
        let staged_bytes = written + HEADER_BYTES;
        let pays = staged_bytes <= page.len() - page.len() / saving_part;
        (pays && expands_to(staged_bytes, page.len() as u64)).then(|| &self.buffer[..written])
    }

    fn reserve(&mut self, length_bytes: usize) {
        if self.buffer.len() < length_bytes {
            self.buffer.resize(length_bytes, 0);
        }
    }

    /// Returns the size of some bytes when compressed, whether or not it pays.
    pub(crate) fn compressed_bytes(&mut self, stage: LastStage, bytes: &[u8]) -> Option<usize> {
        self.run(stage, bytes)
    }

    /// Bytes that the buffer holds in memory.
    pub(crate) fn buffer_bytes(&self) -> usize {
        crate::memory::capacity_bytes(&self.buffer)
    }

    /// Frees the buffer if it has more than `limit_bytes`.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        crate::memory::trim(&mut self.buffer, limit_bytes);
    }

    /// Appends the smallest staged form of two equivalent pages, without those that may not decompress to `raw_bytes`.
    /// Returns whether it is compressed.
    fn append(
        &mut self,
        stage: LastStage,
        pages: [&[u8]; 2],
        raw_bytes: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let [page, plain] = pages;
        let mut smallest_bytes = page.len();
        let mut compressed = false;
        out.push(Tag::Stored.to_byte());
        out.extend_from_slice(page);
        for candidate in [page, plain] {
            let Ok(length_bytes) = u32::try_from(candidate.len()) else {
                continue;
            };
            let Some(bytes) = self.compress(stage, candidate) else {
                continue;
            };
            let staged_bytes = bytes.len() + HEADER_BYTES;
            let is_smaller = staged_bytes + smallest_bytes / 16 < smallest_bytes;
            if is_smaller && expands_to(staged_bytes, raw_bytes) {
                smallest_bytes = staged_bytes;
                compressed = true;
                out.truncate(start);
                out.push(Tag::Compressed.to_byte());
                out.extend_from_slice(&length_bytes.to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
        compressed
    }
}

/// Appends pages to a chunk.
#[derive(Debug)]
pub(crate) struct PageWriter {
    stage: Option<LastStage>,
    compressed_pages: usize,
}

/// How a chunk decides on its last stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageRule {
    /// Always this stage, whatever it saves.
    Always(LastStage),
    /// LZ4, when the first page shrinks; only tried on pages larger than this part (in percent) of
    /// their values, since packing leaves nothing to find.
    Lz4Above(usize),
    /// Zstandard wherever it pays.
    ZstdWherePaying,
}

impl PageWriter {
    /// A writer of pages after the prelude of `out`.
    pub(crate) fn new(out: &EncodedChunk) -> Self {
        assert!(
            out.page_ends.is_empty() && out.prelude_bytes as usize == out.bytes.len(),
            "no page yet"
        );
        Self {
            stage: None,
            compressed_pages: 0,
        }
    }

    /// The stage that pages go through; decided by the first page.
    pub(crate) fn stage(
        &mut self,
        rule: StageRule,
        page: &[u8],
        raw_bytes: usize,
        compressor: &mut Compressor,
    ) -> LastStage {
        *self.stage.get_or_insert_with(|| match rule {
            StageRule::Always(stage) => stage,
            StageRule::ZstdWherePaying => LastStage::Zstd,
            StageRule::Lz4Above(percent) => {
                let is_worth_a_try = page.len() * 100 > raw_bytes * percent;
                // The beginning of the page decides, at a fraction of the cost.
                let start = &page[..page.len().min(TRIED_BYTES)];
                let pays = is_worth_a_try && compressor.compress(LastStage::Lz4, start).is_some();
                if pays {
                    LastStage::Lz4
                } else {
                    LastStage::None
                }
            }
        })
    }

    /// Decides the stage by a page in two parts, if it is not decided yet.
    pub(crate) fn stage_parts(
        &mut self,
        rule: StageRule,
        header: &[u8],
        data: &[u8],
        compressor: &mut Compressor,
    ) {
        if self.stage.is_none() {
            let start = [header, data].map(|part| &part[..part.len().min(TRIED_BYTES)]);
            let start = start.concat();
            let start = &start[..start.len().min(TRIED_BYTES)];
            self.stage(rule, start, data.len().min(TRIED_BYTES), compressor);
        }
    }

    /// Appends a page in two parts; joins them in `page` first only if it may have to be compressed.
    pub(crate) fn push_parts(
        &mut self,
        page: &mut Vec<u8>,
        data: &[u8],
        compressor: &mut Compressor,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        if matches!(self.stage, None | Some(LastStage::None)) {
            // Avoids a copy.
            out.bytes.extend_from_slice(page);
            out.bytes.extend_from_slice(data);
            return out.end_page();
        }
        page.extend_from_slice(data);
        self.push(page, &[], compressor, out)
    }

    /// Appends a page. `plain` is another form of it that may compress better, or empty.
    pub(crate) fn push(
        &mut self,
        page: &[u8],
        plain: &[u8],
        compressor: &mut Compressor,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        self.push_packed([page, plain], 0, compressor, out)
    }

    /// Appends a page whose forms were packed already from `raw_bytes` bytes: if it is compressed as well, both steps
    /// together must not expand it too far when it is read.
    pub(crate) fn push_packed(
        &mut self,
        pages: [&[u8]; 2],
        raw_bytes: u64,
        compressor: &mut Compressor,
        out: &mut EncodedChunk,
    ) -> Result<(), EncodeError> {
        let [page, _] = pages;
        match self.stage {
            None | Some(LastStage::None) => out.bytes.extend_from_slice(page),
            Some(stage) => {
                self.compressed_pages +=
                    usize::from(compressor.append(stage, pages, raw_bytes, &mut out.bytes));
            }
        }
        out.end_page()
    }

    /// Appends a page of `values`, their bytes shuffled, through `stage`; returns whether that paid. If
    /// not, the chunk is as before. `buffer` is for the shuffled bytes.
    pub(crate) fn push_shuffled<T: IntoBytes + Immutable>(
        &mut self,
        stage: LastStage,
        values: &[T],
        buffer: &mut Vec<u8>,
        compressor: &mut Compressor,
        out: &mut EncodedChunk,
    ) -> Result<bool, EncodeError> {
        self.stage = Some(stage);
        buffer.clear();
        shuffle::write_shuffled(values, buffer);
        let Some(bytes) = compressor.compress(stage, buffer) else {
            return Ok(false);
        };
        out.bytes.push(Tag::Shuffled.to_byte());
        let length_bytes: u32 = crate::integers::small(buffer.len());
        out.bytes.extend_from_slice(&length_bytes.to_le_bytes());
        out.bytes.extend_from_slice(bytes);
        self.compressed_pages += 1;
        out.end_page()?;
        Ok(true)
    }

    /// Completes the chunk; removes the stage from it if it has paid for no page.
    pub(crate) fn finish(self, out: &mut EncodedChunk) {
        out.codec.last_stage = self.stage.unwrap_or(LastStage::None);
        if out.codec.last_stage == LastStage::None || self.compressed_pages > 0 {
            return;
        }
        out.codec.last_stage = LastStage::None;
        let mut start = out.prelude_bytes as usize;
        let mut target = start;
        for end in &mut out.page_ends {
            let page = start + 1..*end as usize;
            start = page.end;
            let page_bytes = page.len();
            out.bytes.copy_within(page, target);
            target += page_bytes;
            // It fits: the chunk was longer before the tags were removed.
            *end = crate::integers::small(target);
        }
        out.bytes.truncate(target);
    }
}

impl EncodedChunk {
    /// Notes that the prelude ends here.
    pub(crate) fn end_prelude(&mut self) -> Result<(), EncodeError> {
        let bytes = u32::try_from(self.bytes.len());
        self.prelude_bytes = bytes.map_err(|_| EncodeError::TooManyBytes {
            limit_bytes: u32::MAX as usize,
        })?;
        Ok(())
    }

    /// Notes that the page now being written ends here.
    pub(crate) fn end_page(&mut self) -> Result<(), EncodeError> {
        let end_bytes = u32::try_from(self.bytes.len()).map_err(|_| EncodeError::TooManyBytes {
            limit_bytes: u32::MAX as usize,
        })?;
        assert!(
            self.page_ends.len() < self.planned_pages(),
            "a page beyond the last row"
        );
        self.page_ends.push(end_bytes);
        Ok(())
    }
}

impl CodecChain {
    /// Whether this page of such a chunk has to be decompressed before a value of it can be decoded.
    #[must_use]
    pub fn compresses(self, page: &[u8]) -> bool {
        self.last_stage != LastStage::None && page.first() != Some(&Tag::Stored.to_byte())
    }
}

/// Undoes the general compressor that pages may have passed last; holds the buffers.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    buffer: Vec<u8>,
    unshuffled: Vec<u8>,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Decompressor {
    /// A decompressor, which takes memory when it meets the first compressed page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same page without its compression, after the bytes `before` it: a decoder finds the same values in it, each without
    /// decompressing the others. `None` if the page is not compressed.
    ///
    /// # Errors
    /// When the bytes are not those of such a page.
    pub fn decompressed(
        &mut self,
        codec: CodecChain,
        before: &[u8],
        page: &[u8],
    ) -> Result<Option<Vec<u8>>, DecodeError> {
        if !codec.compresses(page) {
            return Ok(None);
        }
        let plain = self.open(codec, page)?;
        let mut bytes = Vec::with_capacity(before.len() + 1 + plain.len());
        bytes.extend_from_slice(before);
        bytes.push(Tag::Stored.to_byte());
        bytes.extend_from_slice(plain);
        Ok(Some(bytes))
    }

    /// The page as the value codec left it.
    pub(crate) fn open<'a>(
        &'a mut self,
        codec: CodecChain,
        page: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        let stage = codec.last_stage;
        if stage == LastStage::None {
            return Ok(page);
        }
        let mut input = Input::new(page);
        let tag = Tag::from_byte(input.read()?)?;
        if tag == Tag::Stored {
            return Ok(input.take_rest());
        }
        let length_bytes = input.read::<u32>()? as usize;
        ensure(
            expands_to(page.len(), length_bytes as u64),
            "a page would expand too far",
        )?;
        if self.buffer.len() < length_bytes {
            self.buffer.resize(length_bytes, 0);
        }
        let target = &mut self.buffer[..length_bytes];
        let written = match stage {
            LastStage::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                let zstd = self
                    .zstd
                    .as_mut()
                    .ok_or(DecodeError::new("no memory for Zstandard"))?;
                zstd.decompress_to_buffer(input.take_rest(), target)
                    .map_err(|_| DecodeError::new("Zstandard refuses a page"))?
            }
            _ => lz4_flex::block::decompress_into(input.take_rest(), target)
                .map_err(|_| DecodeError::new("LZ4 refuses a page"))?,
        };
        ensure(
            written == length_bytes,
            "a compressed page has another length than it says",
        )?;
        if tag == Tag::Shuffled {
            return self.unshuffle(codec, length_bytes);
        }
        Ok(&self.buffer[..length_bytes])
    }

    /// Undoes the shuffle of the page in the buffer.
    fn unshuffle(&mut self, codec: CodecChain, page_bytes: usize) -> Result<&[u8], DecodeError> {
        let width_bytes = shuffle::width_bytes(codec.element);
        let width_bytes = width_bytes.ok_or(DecodeError::new("values that are not shuffled"))?;
        let (&mode, shuffled) = self.buffer[..page_bytes]
            .split_first()
            .ok_or(DecodeError::new("page is cut short"))?;
        ensure(
            mode == PageMode::Plain.to_byte() && shuffled.len().is_multiple_of(width_bytes),
            "a shuffled page that is not plain",
        )?;
        if self.unshuffled.len() < page_bytes {
            self.unshuffled.resize(page_bytes, 0);
        }
        self.unshuffled[0] = mode;
        shuffle::unshuffle(shuffled, width_bytes, &mut self.unshuffled[1..page_bytes]);
        Ok(&self.unshuffled[..page_bytes])
    }
}
