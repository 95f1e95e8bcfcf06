//! Reading parts of a block: as few reads as pay, and checksums of exactly what is used.
//!
//! Invariants: what [`ChunkPages`] hands out was verified; nothing is copied after it was read; reads never leave the
//! block, whatever its head says. A reader reads and checks the prelude of a chunk once, however many pages it is asked for.

use super::chunks::{ChunkEntry, PageEnd};
use super::head::{BlockHead, verify};
use super::role::Role;
use crate::error::{Error, Result};
use crate::index::Address;
use crate::wire::is_sound;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::{CodecChain, DecodeError};

/// Blocks up to this size are read at once when their head is not known yet.
pub(crate) const WHOLE_BLOCK_BYTES: u32 = 128 << 10;

/// Bytes that are cheaper to read and drop than to skip with one more read.
const GAP_BYTES: usize = 16 << 10;

/// Where the bytes of blocks come from: the files of a database, and the data pages of them that are in memory.
pub(crate) trait BlockBytes: std::fmt::Debug + Sync {
    /// Bytes of the file that the block is in.
    fn read(&self, block: &Address, offset: u64, len_bytes: usize) -> Result<Bytes>;

    /// Reads into memory that is there already: all of it is filled.
    fn read_into(&self, block: &Address, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Verified bytes at `offset` of the file of a block, if they are in memory.
    fn cached_data(&self, block: &Address, offset: u64) -> Option<Bytes>;

    /// Keeps verified bytes at `offset` of the file of a block.
    fn keep_data(&self, block: &Address, offset: u64, bytes: &Bytes);

    /// Counts pages of chunks that were read and verified.
    fn count_data_pages(&self, pages: usize);
}

/// Pages of one chunk that are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The column.
    pub column_id: u32,
    /// The role of the chunk.
    pub role: Role,
    /// Numbers of the wanted pages; what lies beyond the last page is ignored.
    pub pages: Range<usize>,
}

impl Wanted {
    /// All pages of a chunk.
    #[must_use]
    pub fn all(column_id: u32, role: Role) -> Self {
        Self {
            column_id,
            role,
            pages: 0..usize::MAX,
        }
    }
}

/// A block whose head was read and verified.
#[derive(Debug)]
pub struct BlockReader<'a> {
    source: &'a dyn BlockBytes,
    address: Address,
    head: Arc<BlockHead>,
    /// All bytes after the head, if they were read together with it. Not verified.
    body: Option<Bytes>,
    /// Verified preludes of chunks of several pages, by the place of the chunk.
    preludes: HashMap<usize, Bytes>,
}

/// Verified pages of one chunk, next to each other, and its prelude: slices of what was read.
#[derive(Clone, Debug)]
pub struct ChunkPages {
    head: Arc<BlockHead>,
    at: usize,
    prelude: Bytes,
    pages: Bytes,
    numbers: Range<usize>,
    /// Where `pages` starts, from the start of the chunk.
    start: usize,
}

/// One chunk of a plan: what of it to read, from the start of the chunk.
struct Part {
    at: usize,
    numbers: Range<usize>,
    pages: Range<usize>,
}

impl<'a> BlockReader<'a> {
    /// `body` may hold the bytes after the head.
    pub(crate) fn new(
        source: &'a dyn BlockBytes,
        address: Address,
        head: Arc<BlockHead>,
        body: Option<Bytes>,
    ) -> Self {
        Self {
            source,
            address,
            head,
            body,
            preludes: HashMap::new(),
        }
    }

    /// Where the block lies.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The block's head.
    #[must_use]
    pub fn head(&self) -> &Arc<BlockHead> {
        &self.head
    }

    /// Reads what is wanted, in the order it is asked for; `None` for chunks that the block does not have.
    ///
    /// # Errors
    /// `Corruption` when something wanted fails its checksum; whatever reading leads to.
    pub fn read(&mut self, wanted: &[Wanted]) -> Result<Vec<Option<ChunkPages>>> {
        let parts: Vec<Option<Part>> = wanted.iter().map(|wanted| self.part(wanted)).collect();
        let runs = self.read_runs(parts.iter().flatten())?;
        parts
            .into_iter()
            .map(|part| part.map(|part| self.verified(part, &runs)).transpose())
            .collect()
    }

    /// Reads and checks every byte of the block.
    ///
    /// # Errors
    /// `Corruption` with the place; whatever reading leads to.
    pub fn verify(&self) -> Result<()> {
        let body = self.read_range(0..self.body_bytes())?;
        self.head.verify_body(&body, &self.address)
    }

    /// The block as it is stored, every byte checked: to copy it into another file.
    ///
    /// # Errors
    /// `Corruption` with the place; whatever reading leads to.
    pub fn copy(&self) -> Result<Vec<u8>> {
        let Address { offset, bytes, .. } = self.address;
        let whole = self.source.read(&self.address, offset, bytes as usize)?;
        verify(&whole, &self.address)?;
        Ok(whole.into())
    }

    fn body_bytes(&self) -> usize {
        (self.head.block_bytes - self.head.head_bytes) as usize
    }

    fn part(&self, wanted: &Wanted) -> Option<Part> {
        let at = self.head.find(wanted.column_id, wanted.role)?;
        let chunk = &self.head.chunks[at];
        let count = chunk.pages as usize;
        let numbers = wanted.pages.start.min(count)..wanted.pages.end.min(count);
        let numbers = numbers.start..numbers.end.max(numbers.start);
        // A chunk of one page has one checksum: all of it is read.
        let pages = if count > 1 && numbers.is_empty() {
            chunk.prelude_bytes as usize..chunk.prelude_bytes as usize
        } else if count > 1 {
            self.head.page_range(chunk, numbers.start).start
                ..self.head.page_range(chunk, numbers.end - 1).end
        } else {
            chunk.prelude_bytes as usize..chunk.bytes as usize
        };
        Some(Part { at, numbers, pages })
    }

    /// Reads the ranges of all parts, those near each other at once. Runs ascend and do not overlap.
    fn read_runs<'p>(&self, parts: impl Iterator<Item = &'p Part>) -> Result<Vec<(usize, Bytes)>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for part in parts {
            let chunk = &self.head.chunks[part.at];
            let offset = chunk.offset as usize;
            if !self.preludes.contains_key(&part.at) {
                ranges.push(offset..offset + chunk.prelude_bytes as usize);
            }
            ranges.push(offset + part.pages.start..offset + part.pages.end);
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let runs = page_runs(ranges.into_iter(), self.gap_bytes());
        runs.into_iter()
            .map(|run| Ok((run.start, self.read_range(run)?)))
            .collect()
    }

    /// Bytes between two wanted ranges that are cheaper to read than to skip.
    pub(super) fn gap_bytes(&self) -> usize {
        // Of a small block everything in between is read: a second read costs more.
        if self.head.block_bytes <= WHOLE_BLOCK_BYTES {
            usize::MAX
        } else {
            GAP_BYTES
        }
    }

    pub(super) fn source(&self) -> &'a dyn BlockBytes {
        self.source
    }

    /// Whether all bytes after the head were read together with it.
    pub(super) fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// Bytes after the head, from memory if they are there, else read into `buffer`, which is only filled with zeros
    /// where it grows.
    pub(super) fn read_range_into<'b>(
        &'b self,
        range: Range<usize>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        assert!(
            range.start <= range.end && range.end <= self.body_bytes(),
            "{range:?} of {}",
            self.body_bytes()
        );
        if let Some(body) = &self.body {
            return Ok(&body[range]);
        }
        if buffer.len() < range.len() {
            buffer.resize(range.len(), 0);
        }
        let into = &mut buffer[..range.len()];
        let offset = self.address.offset + u64::from(self.head.head_bytes) + range.start as u64;
        self.source.read_into(&self.address, offset, into)?;
        Ok(into)
    }

    /// Bytes after the head, from memory if they are there.
    pub(super) fn read_range(&self, range: Range<usize>) -> Result<Bytes> {
        assert!(
            range.start <= range.end && range.end <= self.body_bytes(),
            "{range:?} of {}",
            self.body_bytes()
        );
        if let Some(body) = &self.body {
            return Ok(body.slice(range));
        }
        let offset = self.address.offset + u64::from(self.head.head_bytes) + range.start as u64;
        self.source.read(&self.address, offset, range.len())
    }

    /// Cuts a part out of the runs and checks it.
    fn verified(&mut self, part: Part, runs: &[(usize, Bytes)]) -> Result<ChunkPages> {
        let head = Arc::clone(&self.head);
        let chunk = &head.chunks[part.at];
        let cut = |range: Range<usize>| cut(chunk.offset as usize, range, runs);
        let pages = cut(part.pages.clone());
        let listed = head.listed_pages(chunk);
        let prelude_range = 0..chunk.prelude_bytes as usize;
        let prelude = if listed.is_empty() {
            let whole = cut(0..chunk.bytes as usize);
            is_sound(crc32c::crc32c(&whole), chunk.crc).then(|| whole.slice(prelude_range))
        } else {
            self.prelude(part.at, chunk, || cut(prelude_range))
        };
        let is_intact = |(number, page): (usize, &PageEnd)| {
            let range = head.page_range(chunk, number);
            let bytes = &pages[range.start - part.pages.start..range.end - part.pages.start];
            is_sound(crc32c::crc32c(bytes), page.crc)
        };
        let wanted = listed.get(part.numbers.clone()).unwrap_or(&[]);
        let intact = part.numbers.clone().zip(wanted).all(is_intact);
        match prelude {
            Some(prelude) if intact => Ok(ChunkPages {
                at: part.at,
                prelude,
                pages,
                numbers: part.numbers,
                start: part.pages.start,
                head,
            }),
            _ => Err(head.damaged(chunk, &self.address)),
        }
    }

    /// The prelude of a chunk of several pages: as it was verified, or what `read` returns, which is verified now. `None` if it is
    /// damaged.
    fn prelude(
        &mut self,
        at: usize,
        chunk: &ChunkEntry,
        read: impl FnOnce() -> Bytes,
    ) -> Option<Bytes> {
        if let Some(known) = self.preludes.get(&at) {
            return Some(known.clone());
        }
        let prelude = read();
        if !is_sound(crc32c::crc32c(&prelude), chunk.crc) {
            return None;
        }
        if !prelude.is_empty() {
            self.preludes.insert(at, prelude.clone());
        }
        Some(prelude)
    }
}

/// Ranges that ascend, put together where the bytes between two of them are at most `gap_bytes`. Empty ones are left out.
pub(super) fn page_runs(
    ranges: impl Iterator<Item = Range<usize>>,
    gap_bytes: usize,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match runs.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap_bytes) => {
                last.end = last.end.max(range.end)
            }
            _ => runs.push(range),
        }
    }
    runs
}

/// A range of the chunk at `offset`, out of the runs that were read.
fn cut(offset: usize, range: Range<usize>, runs: &[(usize, Bytes)]) -> Bytes {
    if range.is_empty() {
        return Bytes::new();
    }
    let start = offset + range.start;
    let run = runs.partition_point(|(run_start, _)| *run_start <= start) - 1;
    let (run_start, bytes) = &runs[run];
    bytes.slice(start - run_start..start - run_start + range.len())
}

impl BlockHead {
    /// Where a page lies in its chunk.
    pub(super) fn page_range(&self, chunk: &ChunkEntry, number: usize) -> Range<usize> {
        let listed = self.listed_pages(chunk);
        let end = |page: &PageEnd| page.end as usize;
        let start = number
            .checked_sub(1)
            .map_or(chunk.prelude_bytes as usize, |before| end(&listed[before]));
        if listed.is_empty() {
            start..chunk.bytes as usize
        } else {
            start..end(&listed[number])
        }
    }
}

impl ChunkPages {
    fn chunk(&self) -> &ChunkEntry {
        &self.head.chunks[self.at]
    }

    /// How the chunk is encoded.
    #[must_use]
    pub fn codec(&self) -> CodecChain {
        self.chunk().codec
    }

    /// Rows of the whole chunk.
    #[must_use]
    pub fn chunk_rows(&self) -> usize {
        self.chunk().rows as usize
    }

    /// Numbers of the pages that are here.
    #[must_use]
    pub fn pages(&self) -> Range<usize> {
        self.numbers.clone()
    }

    /// Rows of a page.
    ///
    /// # Panics
    /// When the page is not here.
    #[must_use]
    pub fn page_rows(&self, number: usize) -> usize {
        assert!(
            self.numbers.contains(&number),
            "page {number} of {:?}",
            self.numbers
        );
        let chunk = self.chunk();
        let rows = self
            .head
            .paging()
            .rows_of_page(chunk.role(), chunk.rows, number);
        rows.len()
    }

    /// The bytes that every page needs.
    #[must_use]
    pub fn prelude(&self) -> &[u8] {
        &self.prelude
    }

    /// The bytes of a page.
    ///
    /// # Panics
    /// When the page is not here.
    #[must_use]
    pub fn page(&self, number: usize) -> &[u8] {
        assert!(
            self.numbers.contains(&number),
            "page {number} of {:?}",
            self.numbers
        );
        let range = self.head.page_range(self.chunk(), number);
        &self.pages[range.start - self.start..range.end - self.start]
    }

    /// The error for a chunk whose verified bytes cannot be decoded, with its place: whoever wrote them had a bug.
    #[must_use]
    pub fn undecodable(&self, address: &Address, error: &DecodeError) -> Error {
        let info = self.chunk().info();
        let what = format!(
            "column {} ({:?}) of table {}",
            info.column_id,
            info.role,
            self.head.spec().table.0
        );
        Error::corruption(
            address,
            format_args!("{what} cannot be decoded: {}", error.reason()),
        )
    }
}
