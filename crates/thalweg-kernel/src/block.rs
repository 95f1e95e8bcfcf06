//! A block: rows of one table, one encoded chunk per column and role, in one piece (docs/format/block.md).
//!
//! Invariants
//! - A block does not know where it lies: it can be copied. Its head carries a plain checksum that whoever refers to
//!   the block repeats, and that covers the checksums of everything else.
//! - Chunks ascend by column and role and follow each other without gaps.
//! - Every page of every chunk, and every prelude, can be read, verified and decoded without the others.
//! - A [`BlockHead`] is verified; bytes of chunks are handed out verified only ([`ChunkPages`]).

mod read;

pub(crate) use read::WHOLE_BLOCK_BYTES;
pub use read::{BlockReader, ChunkPages, Wanted};

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, TableId};
use crate::index::{Address, Entry, MAX_SUMMARIES};
use crate::summary::ColumnSummary;
use crate::wire::{Parsed, Reader, is_sound};
use thalweg_codec::{CodecChain, EncodedChunk, MAX_CHUNK_ROWS, page_count};

const MAGIC: [u8; 4] = *b"TBLK";
const VERSION: u16 = 1;

/// Bytes of the fixed part of a head.
pub const BLOCK_HEADER_BYTES: usize = 64;

/// Bytes of a chunk entry in the head.
pub const CHUNK_ENTRY_BYTES: usize = 32;

/// Bytes of an entry of a page table.
const PAGE_ENTRY_BYTES: usize = 8;

/// Largest block.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;

/// Most columns of a block.
pub const MAX_BLOCK_COLUMNS: usize = 65_536;

/// Column ids are below this: an entry has 24 bits for them.
pub const MAX_COLUMN_ID: u32 = (1 << 24) - 1;

/// Where the id of the table lies in the head.
const TABLE_AT: usize = 16;

/// Where the checksum of the head lies in it.
const CRC_AT: usize = 60;

/// What a chunk holds of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// The values themselves; those of null rows are arbitrary.
    Values = 1,
    /// One bit per row: whether it is not null. Absent when no row is null.
    Validity = 2,
    /// Lengths of variable-length values that lie elsewhere, or of lists.
    Lengths = 3,
    /// Coordinates of cells along a dimension.
    Coordinates = 4,
    /// A packed search tree over the rows.
    Tree = 5,
}

impl Role {
    /// The word for it in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Validity => "nulls",
            Self::Lengths => "lengths",
            Self::Coordinates => "coordinates",
            Self::Tree => "search tree",
        }
    }

    /// The role of a byte read from a file.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Values,
            Self::Validity,
            Self::Lengths,
            Self::Coordinates,
            Self::Tree,
        ];
        all.into_iter().find(|&role| role as u8 == byte)
    }
}

/// How the rows of a block are arranged. The kernel keeps it for the layout, which gives it its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// The table.
    pub table: TableId,
    /// The layout that wrote the block; not 0.
    pub layout: u8,
    /// How often its rows were rewritten: 0 for fresh ones.
    pub level: u8,
    /// Which of the table's orders its rows are in.
    pub order_id: u32,
    /// Rows.
    pub rows: u32,
    /// Sensor or tile, where the layout keeps it out of the rows.
    pub key: u64,
    /// Rows ascend by the order key.
    pub sorted: bool,
    /// The order key is not stored but computed from `key` and the row number.
    pub implicit_key: bool,
}

const FLAG_SORTED: u32 = 1;
const FLAG_IMPLICIT_KEY: u32 = 2;
const FLAGS: u32 = 3;

impl BlockSpec {
    fn flags(&self) -> u32 {
        (if self.sorted { FLAG_SORTED } else { 0 })
            | (if self.implicit_key {
                FLAG_IMPLICIT_KEY
            } else {
                0
            })
    }
}

/// An encoded block and what the index is to know of it.
#[derive(Clone, Debug)]
pub struct EncodedBlock {
    /// Head and chunks.
    pub bytes: Vec<u8>,
    /// Its entry; where it lies and its commit are filled in by the kernel.
    pub entry: Entry,
}

impl EncodedBlock {
    /// Refuses a block of another table: whatever reads it would take its rows for rows of this one.
    pub(crate) fn check_table(&self, table: TableId) -> Result<()> {
        let stored = self.bytes.get(TABLE_AT..TABLE_AT + 4);
        let own = stored.and_then(|bytes| Reader::new(bytes).u32().ok());
        if own == Some(table.0) {
            return Ok(());
        }
        let own = own.map_or("no table".to_owned(), |own| format!("table {own}"));
        let message = format!("a block of {own} does not belong to table {}", table.0);
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

/// Puts encoded chunks together.
#[derive(Debug)]
pub struct BlockBuilder {
    spec: BlockSpec,
    chunks: Vec<ChunkEntry>,
    pages: Vec<PageEnd>,
    /// Room for the head, then the chunks.
    bytes: Vec<u8>,
    room_bytes: usize,
}

/// A chunk as the head lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkEntry {
    /// Column id in the upper 24 bits, role in the lower 8: ascending order is that of the chunks.
    key: u32,
    codec: CodecChain,
    /// From the end of the head.
    offset: u32,
    bytes: u32,
    prelude_bytes: u32,
    rows: u32,
    raw_bytes: u32,
    /// Of the whole chunk if it has one page or none, else of the prelude.
    crc: u32,
    /// Its first page in the table of all pages; not stored, and of no meaning with one page or none.
    first_page: u32,
}

/// The end of a page in its chunk, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageEnd {
    end: u32,
    crc: u32,
}

fn chunk_key(column_id: u32, role: Role) -> u32 {
    column_id << 8 | u32::from(role as u8)
}

/// Pages of a chunk that are in the page table: none if there is only one.
fn listed_pages(rows: u32) -> usize {
    let pages = page_count(rows as usize);
    if pages > 1 { pages } else { 0 }
}

impl BlockBuilder {
    /// A builder for a block of about `chunks` chunks; a wrong guess costs a copy of the block.
    ///
    /// # Panics
    /// When the block is to have no rows or no layout.
    #[must_use]
    pub fn new(spec: BlockSpec, chunks: usize) -> Self {
        assert!(
            spec.rows > 0 && spec.layout > 0,
            "a block without rows or layout: {spec:?}"
        );
        let pages = chunks * listed_pages(spec.rows);
        let room_bytes = BLOCK_HEADER_BYTES + chunks * CHUNK_ENTRY_BYTES + pages * PAGE_ENTRY_BYTES;
        let bytes = vec![0; room_bytes];
        Self {
            spec,
            chunks: Vec::with_capacity(chunks),
            pages: Vec::with_capacity(pages),
            bytes,
            room_bytes,
        }
    }

    /// Reserves memory for chunks of so many bytes in all.
    pub fn reserve_bytes(&mut self, chunk_bytes: usize) {
        self.bytes.reserve(chunk_bytes);
    }

    /// Appends a chunk. Chunks come in ascending order of column and role.
    ///
    /// # Errors
    /// `Limit` when the block grows beyond [`MAX_BLOCK_BYTES`] or the column id beyond [`MAX_COLUMN_ID`].
    ///
    /// # Panics
    /// When chunks come in another order, or the encoder's page ends contradict its bytes.
    pub fn add_chunk(&mut self, column_id: u32, role: Role, chunk: &EncodedChunk) -> Result<()> {
        if column_id > MAX_COLUMN_ID {
            let limit = format!(
                "column {column_id} of table {}: ids end at {MAX_COLUMN_ID}",
                self.spec.table.0
            );
            return Err(Error::new(ErrorKind::Limit, limit));
        }
        let offset = self.bytes.len() - self.room_bytes;
        if self.bytes.len() + chunk.bytes.len() > MAX_BLOCK_BYTES
            || chunk.raw_bytes > u64::from(u32::MAX)
        {
            return Err(self.too_large(&format!(
                "column {column_id} has {} encoded bytes",
                chunk.bytes.len()
            )));
        }
        let key = chunk_key(column_id, role);
        assert!(
            self.chunks.last().is_none_or(|last| last.key < key),
            "chunk {column_id}/{role:?} is out of order"
        );
        let prelude_bytes = chunk.prelude_bytes as usize;
        assert_eq!(
            chunk.page_ends.len(),
            page_count(chunk.rows),
            "a page table for another number of rows"
        );
        let end = chunk
            .page_ends
            .last()
            .map_or(prelude_bytes, |&end| end as usize);
        assert_eq!(
            end,
            chunk.bytes.len(),
            "pages that do not end where the chunk does"
        );

        let paged = chunk.page_ends.len() > 1;
        let first_page = to_u32(self.pages.len());
        let crc = crc32c::crc32c(if paged {
            &chunk.bytes[..prelude_bytes]
        } else {
            &chunk.bytes
        });
        if paged {
            let mut start = prelude_bytes;
            for &end in &chunk.page_ends {
                let crc = crc32c::crc32c(&chunk.bytes[start..end as usize]);
                self.pages.push(PageEnd { end, crc });
                start = end as usize;
            }
        }
        self.chunks.push(ChunkEntry {
            key,
            codec: chunk.codec,
            offset: to_u32(offset),
            bytes: to_u32(chunk.bytes.len()),
            prelude_bytes: chunk.prelude_bytes,
            rows: to_u32(chunk.rows),
            raw_bytes: u32::try_from(chunk.raw_bytes).unwrap_or(u32::MAX),
            crc,
            first_page,
        });
        self.bytes.extend_from_slice(&chunk.bytes);
        Ok(())
    }

    /// The block. `keys` are its smallest and largest order key, `columns` its summaries in ascending order.
    ///
    /// # Errors
    /// `Limit` when it is too large, has too many columns or too many summaries.
    ///
    /// # Panics
    /// When the keys or summaries contradict the rows.
    pub fn finish(mut self, keys: (i64, i64), columns: Vec<ColumnSummary>) -> Result<EncodedBlock> {
        let column_count = self
            .chunks
            .chunk_by(|a, b| a.key >> 8 == b.key >> 8)
            .count();
        if column_count > MAX_BLOCK_COLUMNS || columns.len() > MAX_SUMMARIES {
            return Err(self.too_large(&format!(
                "{column_count} columns, {} of them summarised",
                columns.len()
            )));
        }
        let table_bytes =
            self.chunks.len() * CHUNK_ENTRY_BYTES + self.pages.len() * PAGE_ENTRY_BYTES;
        let head_bytes = BLOCK_HEADER_BYTES + table_bytes;
        if head_bytes != self.room_bytes {
            self.bytes
                .splice(..self.room_bytes, std::iter::repeat_n(0, head_bytes));
        }
        if self.bytes.len() > MAX_BLOCK_BYTES {
            return Err(self.too_large(&format!("{} bytes", self.bytes.len())));
        }
        let block_bytes = to_u32(self.bytes.len());
        let head = self.head(head_bytes, block_bytes, column_count);
        assert_eq!(head.len(), head_bytes, "a head of another length");
        let head_crc = head_crc(&head);
        self.bytes[..head_bytes].copy_from_slice(&head);
        self.bytes[CRC_AT..BLOCK_HEADER_BYTES].copy_from_slice(&head_crc.to_le_bytes());

        let entry = Entry {
            level: 0,
            sorted: self.spec.sorted,
            rows: u64::from(self.spec.rows),
            blocks: 1,
            block_bytes: u64::from(block_bytes),
            key_min: keys.0,
            key_max: keys.1,
            commit_min: CommitNo(0),
            commit_max: CommitNo(0),
            first_commit: CommitNo(0),
            ordinal: 0,
            address: Address {
                bytes: block_bytes,
                head_bytes: to_u32(head_bytes),
                head_crc,
                ..Address::default()
            },
            columns: columns.into(),
        };
        if let Err(what) = entry.check() {
            refuse(&entry, what);
        }
        Ok(EncodedBlock {
            bytes: self.bytes,
            entry,
        })
    }

    /// The head with zeros for its checksum.
    fn head(&self, head_bytes: usize, block_bytes: u32, columns: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(head_bytes);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.spec.layout, self.spec.level]);
        for field in [
            to_u32(head_bytes),
            block_bytes,
            self.spec.table.0,
            self.spec.order_id,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [
            to_u32(self.chunks.len()),
            to_u32(columns),
            self.spec.rows,
            self.spec.flags(),
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.spec.key.to_le_bytes());
        out.resize(BLOCK_HEADER_BYTES, 0);
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.key.to_le_bytes());
            out.extend_from_slice(&chunk.codec.to_bytes());
            let fields = [
                chunk.offset,
                chunk.bytes,
                chunk.prelude_bytes,
                chunk.rows,
                chunk.raw_bytes,
                chunk.crc,
            ];
            fields
                .iter()
                .for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        }
        for page in &self.pages {
            out.extend_from_slice(&page.end.to_le_bytes());
            out.extend_from_slice(&page.crc.to_le_bytes());
        }
        out
    }

    fn too_large(&self, what: &str) -> Error {
        let BlockSpec { table, rows, .. } = self.spec;
        let limits = format!(
            "{MAX_BLOCK_BYTES} bytes, {MAX_BLOCK_COLUMNS} columns and {MAX_SUMMARIES} summaries"
        );
        let message = format!(
            "a block of {rows} rows of table {} would be too large ({what}): it holds {limits}",
            table.0
        );
        Error::new(ErrorKind::Limit, message)
    }
}

#[expect(
    clippy::panic,
    reason = "an invariant: whoever summarised the rows has a bug, which must not reach a file"
)]
fn refuse(entry: &Entry, what: &str) -> ! {
    panic!("{what}: {entry:?}")
}

/// A length within [`MAX_BLOCK_BYTES`].
fn to_u32(length: usize) -> u32 {
    debug_assert!(u32::try_from(length).is_ok(), "a length of {length}");
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The checksum over a head without the four bytes it is stored in.
fn head_crc(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), &head[BLOCK_HEADER_BYTES..])
}

/// Checks every byte of a block.
///
/// # Errors
/// `Corruption` with the place when it is not the block that `address` vouches for.
pub fn verify(bytes: &[u8], address: &Address) -> Result<BlockHead> {
    let head = BlockHead::parse(bytes, address)?;
    head.verify_body(&bytes[address.head_bytes as usize..], address)?;
    Ok(head)
}

/// The verified head of a block: which chunks it has, and where their pages lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHead {
    spec: BlockSpec,
    head_bytes: u32,
    block_bytes: u32,
    chunks: Vec<ChunkEntry>,
    pages: Vec<PageEnd>,
}

/// What the head says of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The column.
    pub column_id: u32,
    /// What it holds of the column.
    pub role: Role,
    /// How it is encoded.
    pub codec: CodecChain,
    /// Rows it holds.
    pub rows: u32,
    /// Encoded bytes.
    pub bytes: u32,
    /// Bytes its values take in memory.
    pub raw_bytes: u32,
}

impl BlockHead {
    /// Verifies and reads a head. `bytes` may go on behind it; `address` is what leads to the block.
    ///
    /// # Errors
    /// `Corruption` with the place when it is not the head that `address` vouches for.
    pub fn parse(bytes: &[u8], address: &Address) -> Result<Self> {
        Self::parse_at(bytes, address).map_err(|what| {
            Error::corruption(
                address,
                format_args!("the head of a block is damaged: {what}"),
            )
        })
    }

    fn parse_at(bytes: &[u8], address: &Address) -> Parsed<Self> {
        let head_bytes = address.head_bytes as usize;
        let head = bytes
            .get(..head_bytes)
            .filter(|head| head.len() >= BLOCK_HEADER_BYTES);
        let head = head.ok_or("it ends too early")?;
        if head[..4] != MAGIC {
            return Err("no block begins here");
        }
        let stored_crc = Reader::new(&head[CRC_AT..]).u32()?;
        if !is_sound(head_crc(head), stored_crc) {
            return Err("its checksum does not match");
        }
        if !is_sound(stored_crc, address.head_crc) {
            return Err("it is not the block that was written here");
        }
        let mut reader = Reader::new(&head[4..]);
        if reader.u16()? != VERSION {
            return Err("it has an unknown version");
        }
        let (layout, level) = (reader.u8()?, reader.u8()?);
        let (stored_head_bytes, block_bytes) = (reader.u32()?, reader.u32()?);
        let (table, order_id) = (TableId(reader.u32()?), reader.u32()?);
        let (chunks, columns, rows, flags) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let key = reader.u64()?;
        reader.zeros(CRC_AT - 48)?;
        let _crc = reader.u32()?;
        if flags & !FLAGS != 0 || layout == 0 || rows == 0 {
            return Err("it has unknown flags, no layout or no rows");
        }
        let lengths = (stored_head_bytes, block_bytes);
        if lengths != (address.head_bytes, address.bytes) || block_bytes as usize > MAX_BLOCK_BYTES
        {
            return Err("it has another length");
        }
        let (sorted, implicit_key) = (flags & FLAG_SORTED != 0, flags & FLAG_IMPLICIT_KEY != 0);
        let spec = BlockSpec {
            table,
            layout,
            level,
            order_id,
            rows,
            key,
            sorted,
            implicit_key,
        };
        let chunks = parse_chunks(&mut reader, chunks)?;
        let pages = parse_pages(&mut reader, &chunks)?;
        reader.end()?;
        let end = chunks
            .last()
            .map_or(0, |chunk| u64::from(chunk.offset) + u64::from(chunk.bytes));
        if end + u64::from(stored_head_bytes) != u64::from(block_bytes) {
            return Err("its chunks do not end where the block does");
        }
        let found_columns = chunks.chunk_by(|a, b| a.key >> 8 == b.key >> 8).count();
        if found_columns != columns as usize || found_columns > MAX_BLOCK_COLUMNS {
            return Err("it has another number of columns");
        }
        Ok(Self {
            spec,
            head_bytes: stored_head_bytes,
            block_bytes,
            chunks,
            pages,
        })
    }

    /// How its rows are arranged.
    #[must_use]
    pub fn spec(&self) -> &BlockSpec {
        &self.spec
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.spec.rows as usize
    }

    /// Its chunks in order.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkInfo> {
        self.chunks.iter().map(ChunkEntry::info)
    }

    /// A chunk, if the block has it.
    #[must_use]
    pub fn chunk(&self, column_id: u32, role: Role) -> Option<ChunkInfo> {
        self.find(column_id, role).map(|at| self.chunks[at].info())
    }

    /// About what it takes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.chunks[..]) + size_of_val(&self.pages[..])
    }

    fn find(&self, column_id: u32, role: Role) -> Option<usize> {
        if column_id > MAX_COLUMN_ID {
            return None;
        }
        self.chunks
            .binary_search_by_key(&chunk_key(column_id, role), |chunk| chunk.key)
            .ok()
    }

    /// The page table of a chunk of more than one page, else nothing.
    fn listed_pages(&self, chunk: &ChunkEntry) -> &[PageEnd] {
        &self.pages[chunk.first_page as usize..][..listed_pages(chunk.rows)]
    }

    /// Checks every byte of the block behind its head. `body` is all of it.
    ///
    /// # Errors
    /// `Corruption` with the place and the column.
    pub fn verify_body(&self, body: &[u8], address: &Address) -> Result<()> {
        if body.len() != (self.block_bytes - self.head_bytes) as usize {
            return Err(Error::corruption(address, "a block has another length"));
        }
        for chunk in &self.chunks {
            let bytes = &body[chunk.offset as usize..][..chunk.bytes as usize];
            let pages = self.listed_pages(chunk);
            let first = if pages.is_empty() {
                bytes
            } else {
                &bytes[..chunk.prelude_bytes as usize]
            };
            let mut intact = is_sound(crc32c::crc32c(first), chunk.crc);
            let mut start = chunk.prelude_bytes as usize;
            for page in pages {
                let page_crc = crc32c::crc32c(&bytes[start..page.end as usize]);
                intact &= is_sound(page_crc, page.crc);
                start = page.end as usize;
            }
            if !intact {
                return Err(self.damaged(chunk, address));
            }
        }
        Ok(())
    }

    fn damaged(&self, chunk: &ChunkEntry, address: &Address) -> Error {
        let ChunkInfo {
            column_id, role, ..
        } = chunk.info();
        let offset = address.offset + u64::from(self.head_bytes) + u64::from(chunk.offset);
        let place = Address { offset, ..*address };
        let what = format!(
            "column {column_id} ({}) of a block of table {} is damaged",
            role.name(),
            self.spec.table.0
        );
        Error::corruption(place, format_args!("{what}: its checksum does not match"))
    }
}

impl ChunkEntry {
    fn info(&self) -> ChunkInfo {
        // Both builder and parser let only known roles in.
        let role = self.key.to_le_bytes()[0];
        ChunkInfo {
            column_id: self.key >> 8,
            role: Role::from_byte(role).unwrap_or(Role::Values),
            codec: self.codec,
            rows: self.rows,
            bytes: self.bytes,
            raw_bytes: self.raw_bytes,
        }
    }
}

fn parse_chunks(reader: &mut Reader<'_>, count: u32) -> Parsed<Vec<ChunkEntry>> {
    let count = count as usize;
    if count > reader.left_bytes() / CHUNK_ENTRY_BYTES {
        return Err("it ends within its chunk entries");
    }
    let mut chunks: Vec<ChunkEntry> = Vec::with_capacity(count);
    let (mut expected_offset, mut first_page) = (0_u32, 0_u32);
    for _ in 0..count {
        let key = reader.u32()?;
        let [role, ..] = key.to_le_bytes();
        let codec = reader.u32()?.to_le_bytes();
        let codec = CodecChain::from_bytes(codec).map_err(|_| "a chunk has an unknown codec")?;
        let (offset, bytes, prelude_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (rows, raw_bytes, crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if Role::from_byte(role).is_none() || chunks.last().is_some_and(|last| last.key >= key) {
            return Err("its chunks are not in order");
        }
        if offset != expected_offset || prelude_bytes > bytes || rows as usize > MAX_CHUNK_ROWS {
            return Err("a chunk is out of place");
        }
        expected_offset = offset.checked_add(bytes).ok_or("a chunk is out of place")?;
        chunks.push(ChunkEntry {
            key,
            codec,
            offset,
            bytes,
            prelude_bytes,
            rows,
            raw_bytes,
            crc,
            first_page,
        });
        first_page = first_page
            .checked_add(to_u32(listed_pages(rows)))
            .ok_or("it has too many pages")?;
    }
    Ok(chunks)
}

fn parse_pages(reader: &mut Reader<'_>, chunks: &[ChunkEntry]) -> Parsed<Vec<PageEnd>> {
    let count = chunks
        .iter()
        .map(|chunk| listed_pages(chunk.rows))
        .sum::<usize>();
    if count != reader.left_bytes() / PAGE_ENTRY_BYTES {
        return Err("it has another number of pages");
    }
    let mut pages = Vec::with_capacity(count);
    for chunk in chunks.iter().filter(|chunk| listed_pages(chunk.rows) > 0) {
        let mut start = chunk.prelude_bytes;
        for _ in 0..listed_pages(chunk.rows) {
            let (end, crc) = (reader.u32()?, reader.u32()?);
            if end < start {
                return Err("the pages of a chunk are not in order");
            }
            pages.push(PageEnd { end, crc });
            start = end;
        }
        if start != chunk.bytes {
            return Err("the pages of a chunk do not end where the chunk does");
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests;
