//! Single pages of a block, verified: out of the cache of the store, or read together and kept there.
//!
//! Who wants single values reads the pages that hold them this way, and decodes these values alone. Scans do not: they would push
//! everything else out of the cache ([`BlockReader::read`]).
//!
//! Invariants
//! - Bytes that a [`PageSet`] gives out were verified, now or when they were put into the cache; damaged ones are never cached.
//! - Each page of a set is looked up once, and read and verified at most once.
//! - Pages that a general compressor has made smaller are decompressed once, before they are kept: else each value asked for would
//!   cost all of its page again. What is given out decodes to the same values.
//! - A set holds the pages it gives out, whatever the cache does meanwhile.

use super::chunks::ChunkEntry;
use super::head::BlockHead;
use super::read::{BlockReader, page_runs};
use super::role::Role;
use crate::error::{Error, Result};
use crate::index::Address;
use crate::wire::is_sound;
use bytes::Bytes;
use std::ops::Range;
use thalweg_codec::{CodecChain, Decompressor};

/// The least that has a checksum of its own: a page of a chunk, what comes before its pages, or a whole chunk of one page.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its chunk.
    at: usize,
    /// From the end of the head.
    start: usize,
    end: usize,
    crc: u32,
    /// Bytes of it that are no page: all of a prelude, and in a chunk of one page what comes before that.
    prelude_bytes: usize,
    /// Rows of the page.
    rows: usize,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    fn is_intact(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.end - self.start && is_sound(crc32c::crc32c(bytes), self.crc)
    }
}

/// Pages of one block that are wanted, and then their bytes. Used again from one block to the next.
#[derive(Debug, Default)]
pub struct PageSet {
    decompressor: Decompressor,
    pieces: Vec<Piece>,
    /// As many as there are pieces, once they were loaded.
    bytes: Vec<Bytes>,
    /// Places of those that are not in memory.
    missing: Vec<usize>,
}

/// Pages of one chunk in a [`PageSet`].
#[derive(Clone, Copy, Debug)]
pub struct PagesOf {
    /// The place of the prelude, if it is a piece by itself.
    prelude: Option<usize>,
    first: usize,
    count: usize,
    prelude_bytes: usize,
    codec: CodecChain,
    chunk_rows: usize,
}

/// Verified pages of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedPages<'a> {
    set: &'a PageSet,
    of: PagesOf,
}

impl PageSet {
    /// Wants nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wants nothing any more, and lets go of all bytes.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
    }

    /// Wants some pages of a chunk: numbers that ascend. `None` if the block has no such chunk.
    ///
    /// # Panics
    /// When the block has no such page, a number comes twice, or the set was loaded already.
    pub fn want(
        &mut self,
        head: &BlockHead,
        column_id: u32,
        role: Role,
        numbers: &[usize],
    ) -> Option<PagesOf> {
        assert!(self.bytes.is_empty(), "the set was loaded");
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "pages that do not ascend: {numbers:?}"
        );
        let at = head.find(column_id, role)?;
        let chunk = &head.chunks[at];
        let prelude = (chunk.pages > 1).then(|| {
            self.pieces.push(head.prelude_piece(at));
            self.pieces.len() - 1
        });
        let first = self.pieces.len();
        for &number in numbers {
            self.pieces.push(head.page_piece(at, number));
        }
        Some(PagesOf {
            prelude,
            first,
            count: numbers.len(),
            prelude_bytes: chunk.prelude_bytes as usize,
            codec: chunk.codec,
            chunk_rows: chunk.rows as usize,
        })
    }

    /// Pages and preludes that it holds.
    #[cfg(test)]
    pub(super) fn pieces_loaded(&self) -> usize {
        self.bytes.len()
    }

    /// Pages of a chunk, in the order they were asked for.
    ///
    /// # Panics
    /// When the set was not loaded since.
    #[must_use]
    pub fn pages(&self, of: PagesOf) -> VerifiedPages<'_> {
        assert_eq!(self.bytes.len(), self.pieces.len(), "pages not loaded");
        assert!(of.first + of.count <= self.pieces.len(), "another set");
        VerifiedPages { set: self, of }
    }
}

impl<'a> VerifiedPages<'a> {
    /// How the chunk is encoded.
    #[must_use]
    pub fn codec(&self) -> CodecChain {
        self.of.codec
    }

    /// Rows of the whole chunk.
    #[must_use]
    pub fn chunk_rows(&self) -> usize {
        self.of.chunk_rows
    }

    /// The bytes that every page needs.
    #[must_use]
    pub fn prelude(&self) -> &'a [u8] {
        match self.of.prelude {
            Some(at) => &self.set.bytes[at],
            None if self.of.count > 0 => &self.set.bytes[self.of.first][..self.of.prelude_bytes],
            None => &[],
        }
    }

    /// The bytes of the `nth` of the wanted pages.
    ///
    /// # Panics
    /// When fewer are wanted.
    #[must_use]
    pub fn page(&self, nth: usize) -> &'a [u8] {
        assert!(nth < self.of.count, "page {nth} of {}", self.of.count);
        let bytes = &self.set.bytes[self.of.first + nth];
        match self.of.prelude {
            Some(_) => bytes,
            None => &bytes[self.of.prelude_bytes..],
        }
    }

    /// Rows of the `nth` of the wanted pages.
    ///
    /// # Panics
    /// When fewer are wanted.
    #[must_use]
    pub fn page_rows(&self, nth: usize) -> usize {
        assert!(nth < self.of.count, "page {nth} of {}", self.of.count);
        self.set.pieces[self.of.first + nth].rows
    }
}

impl BlockHead {
    /// The prelude of a chunk of several pages: the bytes before its pages.
    fn prelude_piece(&self, at: usize) -> Piece {
        let chunk = &self.chunks[at];
        let start = chunk.offset as usize;
        Piece {
            at,
            start,
            end: start + chunk.prelude_bytes as usize,
            crc: chunk.crc,
            prelude_bytes: chunk.prelude_bytes as usize,
            rows: 0,
        }
    }

    /// A page of a chunk; the whole chunk if it has no other.
    fn page_piece(&self, at: usize, number: usize) -> Piece {
        let chunk = &self.chunks[at];
        let pages = chunk.pages as usize;
        assert!(number < pages, "page {number} of {pages}");
        let rows = self.rows_of_page(chunk, number).len();
        let offset = chunk.offset as usize;
        let (range, crc, prelude_bytes) = match self.listed_pages(chunk).get(number) {
            Some(listed) => (self.page_range(chunk, number), listed.crc, 0),
            None => {
                let all = 0..chunk.bytes as usize;
                (all, chunk.crc, chunk.prelude_bytes as usize)
            }
        };
        Piece {
            at,
            start: offset + range.start,
            end: offset + range.end,
            crc,
            prelude_bytes,
            rows,
        }
    }

    pub(super) fn rows_of_page(&self, chunk: &ChunkEntry, number: usize) -> Range<usize> {
        let paging = self.paging();
        paging.rows_of_page(chunk.role(), chunk.rows, number)
    }
}

impl BlockReader<'_> {
    /// Fills a set: pages that are in memory from there; the others are read, those near each other at once, verified and kept.
    ///
    /// # Errors
    /// `Corruption` when a page fails its checksum; whatever reading leads to. The set has no page then.
    pub fn load(&self, set: &mut PageSet) -> Result<()> {
        let loaded = self.load_pieces(set);
        if loaded.is_err() {
            set.clear();
        }
        loaded
    }

    fn load_pieces(&self, set: &mut PageSet) -> Result<()> {
        assert!(set.bytes.is_empty(), "the set was loaded");
        set.missing.clear();
        for (at, piece) in set.pieces.iter().enumerate() {
            let bytes = if piece.start == piece.end {
                self.check(piece, &[])?;
                Some(Bytes::new())
            } else {
                self.known(piece)
            };
            if bytes.is_none() {
                set.missing.push(at);
            }
            set.bytes.push(bytes.unwrap_or_default());
        }
        if set.missing.is_empty() {
            return Ok(());
        }
        let PageSet {
            decompressor,
            pieces,
            bytes,
            missing,
        } = set;
        missing.sort_unstable_by_key(|at| pieces[*at].start);
        let ranges = missing.iter().map(|at| pieces[*at].range());
        let mut left = &missing[..];
        for run in page_runs(ranges, self.gap_bytes()) {
            let read = self.read_range(run.clone())?;
            let count = left.partition_point(|at| pieces[*at].start < run.end);
            let (here, rest) = left.split_at(count);
            left = rest;
            for at in here {
                let piece = &pieces[*at];
                bytes[*at] = self.keep(piece, &read, run.start, decompressor)?;
            }
        }
        assert!(left.is_empty(), "runs that leave out pages");
        Ok(())
    }

    /// A piece that is in memory.
    fn known(&self, piece: &Piece) -> Option<Bytes> {
        let known = self.source().cached_data(self.address(), self.place(piece));
        // Pieces that begin at the same place of the same block are the same.
        known.filter(|bytes| bytes.len() >= piece.prelude_bytes)
    }

    /// Verifies a piece of what was read, and keeps it in memory of its own.
    fn keep(
        &self,
        piece: &Piece,
        read: &Bytes,
        start: usize,
        decompressor: &mut Decompressor,
    ) -> Result<Bytes> {
        let cut = piece.start - start..piece.end - start;
        let stored = &read[cut];
        self.check(piece, stored)?;
        self.source().count_data_pages(1);
        let is_alone = stored.len() == read.len() && !self.has_body();
        let (prelude, page) = stored.split_at(piece.prelude_bytes);
        let codec = self.head().chunks[piece.at].codec;
        let decompressed = match page.is_empty() {
            true => Ok(None),
            false => decompressor.decompressed(codec, prelude, page),
        };
        let bytes = match decompressed {
            Ok(Some(bytes)) => Bytes::from(bytes),
            // A page that cannot be decompressed is reported by whoever decodes it.
            Ok(None) | Err(_) if is_alone => read.clone(),
            Ok(None) | Err(_) => Bytes::copy_from_slice(stored),
        };
        self.source()
            .keep_data(self.address(), self.place(piece), &bytes);
        Ok(bytes)
    }

    fn check(&self, piece: &Piece, bytes: &[u8]) -> Result<()> {
        if piece.is_intact(bytes) {
            return Ok(());
        }
        let chunk = &self.head().chunks[piece.at];
        Err(self.head().damaged(chunk, self.address()))
    }

    /// Where a piece lies in the file.
    fn place(&self, piece: &Piece) -> u64 {
        let Address { offset, .. } = *self.address();
        offset + u64::from(self.head().head_bytes) + piece.start as u64
    }

    /// Reads and verifies some pages of a chunk, numbers that ascend, and hands each to `take` with its place among them, its
    /// rows and its bytes. Pages that lie next to each other are read at once, into `buffer`, which is used again. They are not
    /// kept, and none of them is looked for in memory.
    ///
    /// # Errors
    /// `Corruption` when a page fails its checksum, and `take` has seen those before it; whatever reading and `take` lead to.
    ///
    /// # Panics
    /// When the block has no such page, or a number comes twice.
    pub fn stream_pages(
        &self,
        (column_id, role): (u32, Role),
        numbers: &[usize],
        buffer: &mut Vec<u8>,
        mut take: impl FnMut(usize, &StreamedPage<'_>) -> Result<()>,
    ) -> Result<()> {
        let head = self.head();
        let Some(at) = head.find(column_id, role) else {
            return Ok(());
        };
        let chunk = &head.chunks[at];
        let prelude = self.prelude_of(at)?;
        let ranges = numbers
            .iter()
            .map(|number| head.page_piece(at, *number).range());
        let mut runs = page_runs(ranges, self.gap_bytes()).into_iter();
        let (mut run, mut read) = (0..0, &[][..]);
        for (nth, number) in numbers.iter().enumerate() {
            let piece = head.page_piece(at, *number);
            if piece.start < piece.end && piece.end > run.end {
                run = runs.next().unwrap_or_default();
                assert!(
                    run.start <= piece.start && piece.end <= run.end,
                    "{piece:?} outside of {run:?}"
                );
                read = self.read_range_into(run.clone(), buffer)?;
            }
            let bytes = if piece.start < piece.end {
                &read[piece.start - run.start..piece.end - run.start]
            } else {
                &[]
            };
            self.check(&piece, bytes)?;
            let (prelude, page) = match &prelude {
                Some(prelude) => (&prelude[..], bytes),
                None => bytes.split_at(chunk.prelude_bytes as usize),
            };
            let page = StreamedPage {
                codec: chunk.codec,
                prelude,
                page,
                rows: piece.rows,
            };
            take(nth, &page)?;
        }
        self.source().count_data_pages(numbers.len());
        Ok(())
    }

    /// The prelude of a chunk of several pages, from memory if it is there.
    fn prelude_of(&self, at: usize) -> Result<Option<Bytes>> {
        let piece = self.head().prelude_piece(at);
        if self.head().chunks[at].pages <= 1 {
            return Ok(None);
        }
        if piece.start == piece.end {
            self.check(&piece, &[])?;
            return Ok(Some(Bytes::new()));
        }
        if let Some(known) = self.known(&piece) {
            return Ok(Some(known));
        }
        let read = self.read_range(piece.range())?;
        self.keep(&piece, &read, piece.start, &mut Decompressor::new())
            .map(Some)
    }
}

/// A verified page that was read to be decoded at once.
#[derive(Clone, Copy, Debug)]
pub struct StreamedPage<'a> {
    /// How the chunk is encoded.
    pub codec: CodecChain,
    /// The bytes that every page of the chunk needs.
    pub prelude: &'a [u8],
    /// The bytes of the page.
    pub page: &'a [u8],
    /// Rows of the page.
    pub rows: usize,
}

impl BlockHead {
    /// The error of a chunk whose verified bytes cannot be decoded: whoever wrote them had a bug.
    #[must_use]
    pub fn undecodable(
        &self,
        (column_id, role): (u32, Role),
        address: &Address,
        error: &thalweg_codec::DecodeError,
    ) -> Error {
        let what = format!(
            "column {column_id} ({role:?}) of table {}",
            self.spec().table.0
        );
        Error::corruption(
            address,
            format_args!("{what} cannot be decoded: {}", error.reason()),
        )
    }
}
