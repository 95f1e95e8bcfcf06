//! The head of a block, verified: which chunks it has, and where their pages lie.

use super::chunks::{ChunkEntry, ChunkInfo, Directory, PageEnd, chunk_key, count_columns};
use super::grid::Grid;
use super::paging::Paging;
use super::role::Role;
use super::spec::{
    BlockSpec, FLAG_GRID, FLAG_IMPLICIT_KEY, FLAG_SORTED, FLAGS, MAX_BLOCK_BYTES,
    MAX_BLOCK_COLUMNS, MAX_COLUMN_ID,
};
use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::index::Address;
use crate::wire::{Fault, Parsed, Reader, is_sound};

pub(super) const MAGIC: [u8; 4] = *b"TBLK";
pub(super) const VERSION: u16 = 2;

/// Bytes of the fixed part of a head.
pub const BLOCK_HEADER_BYTES: usize = 64;

/// Where the id of the table lies in the head; that of the order follows.
pub(super) const TABLE_AT: usize = 16;

/// Where the checksum of the head lies in it.
pub(super) const CRC_AT: usize = 60;

/// The checksum over a head without the four bytes it is stored in.
pub(super) fn head_crc(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), &head[BLOCK_HEADER_BYTES..])
}

/// Checks every byte of a block.
///
/// # Errors
/// As [`BlockHead::parse`].
pub fn verify(bytes: &[u8], address: &Address) -> Result<BlockHead> {
    let head = BlockHead::parse(bytes, address)?;
    head.verify_body(&bytes[address.head_bytes as usize..], address)?;
    Ok(head)
}

/// The verified head of a block: which chunks it has, and where their pages lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHead {
    spec: BlockSpec,
    paging: Paging,
    pub(super) head_bytes: u32,
    pub(super) block_bytes: u32,
    front_bytes: u32,
    pub(super) chunks: Vec<ChunkEntry>,
    /// So many of the chunks are in the front.
    front_chunks: usize,
    pages: Vec<PageEnd>,
}

/// The fixed part of a head.
struct Header {
    spec: BlockSpec,
    flags: u32,
    head_bytes: u32,
    block_bytes: u32,
    front_bytes: u32,
    chunks: u32,
    columns: u32,
    page_positions: u32,
}

impl Header {
    /// Reads the fields after the magic.
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let version = reader.u16()?;
        if version != VERSION {
            return Err(Fault::version(version, VERSION));
        }
        let (layout, level) = (reader.u8()?, reader.u8()?);
        let (head_bytes, block_bytes) = (reader.u32()?, reader.u32()?);
        let (table, order) = (TableId(reader.u32()?), reader.u32()?);
        let (chunks, columns) = (reader.u32()?, reader.u32()?);
        let (positions, flags) = (reader.u32()?, reader.u32()?);
        let key = reader.u64()?;
        let (rows, page_positions) = (reader.u32()?, reader.u32()?);
        let (front_bytes, _crc) = (reader.u32()?, reader.u32()?);
        if flags & !FLAGS != 0 {
            return Err(Fault::OtherVersion(format!("the flags {flags:#x}")));
        }
        let spec = BlockSpec {
            table,
            layout,
            level,
            order,
            positions,
            rows,
            key,
            sorted: flags & FLAG_SORTED != 0,
            implicit_key: flags & FLAG_IMPLICIT_KEY != 0,
        };
        Ok(Self {
            spec,
            flags,
            head_bytes,
            block_bytes,
            front_bytes,
            chunks,
            columns,
            page_positions,
        })
    }

    fn check(&self, address: &Address) -> Parsed<()> {
        if self.spec.layout == 0 || !self.spec.has_sound_counts() {
            return Err("it has no layout or no rows, or more rows than positions");
        }
        let lengths = (self.head_bytes, self.block_bytes);
        let is_small = self.block_bytes as usize <= MAX_BLOCK_BYTES;
        if lengths != (address.head_bytes, address.bytes) || !is_small {
            return Err("it has another length");
        }
        Ok(())
    }

    /// Reads the grid, if there is one.
    fn paging(&self, reader: &mut Reader<'_>) -> Result<Paging, Fault> {
        let paging = if self.flags & FLAG_GRID != 0 {
            Paging::Grid(Grid::parse(reader)?)
        } else {
            Paging::Even(self.page_positions)
        };
        let is_said = paging.page_positions() == self.page_positions;
        if !is_said || !paging.fits(self.spec.positions) {
            return Err("its pages do not fit its positions".into());
        }
        Ok(paging)
    }
}

impl BlockHead {
    /// Verifies and reads a head. `bytes` may go on after it; `address` is the one by which it was found.
    ///
    /// # Errors
    /// `Corruption` with the place when it is not the head that `address` vouches for, `Unsupported` when another version of
    /// Thalweg wrote it.
    pub fn parse(bytes: &[u8], address: &Address) -> Result<Self> {
        let parsed = verified_head(bytes, address)
            .map_err(Fault::from)
            .and_then(|head| Self::parse_verified(head, address));
        parsed.map_err(|fault| fault.at(address, "the head of a block"))
    }

    fn parse_verified(head: &[u8], address: &Address) -> Result<Self, Fault> {
        let mut reader = Reader::new(&head[MAGIC.len()..]);
        let header = Header::parse(&mut reader)?;
        header.check(address)?;
        let paging = header.paging(&mut reader)?;
        let directory = Directory::parse(&mut reader, header.chunks, &header.spec, &paging)?;
        reader.end()?;
        let (front_end, end) = directory.ends();
        if front_end != u64::from(header.front_bytes)
            || end + u64::from(header.head_bytes) != u64::from(header.block_bytes)
        {
            return Err("its chunks do not end where the block does".into());
        }
        let (front, body) = directory.chunks.split_at(directory.front_chunks);
        let columns = count_columns(front, body);
        if columns != header.columns as usize || columns > MAX_BLOCK_COLUMNS + 1 {
            return Err("it has another number of columns".into());
        }
        Ok(Self {
            spec: header.spec,
            paging,
            head_bytes: header.head_bytes,
            block_bytes: header.block_bytes,
            front_bytes: header.front_bytes,
            chunks: directory.chunks,
            front_chunks: directory.front_chunks,
            pages: directory.pages,
        })
    }

    /// How its rows are arranged.
    #[must_use]
    pub fn spec(&self) -> &BlockSpec {
        &self.spec
    }

    /// How its positions are cut into pages.
    #[must_use]
    pub fn paging(&self) -> &Paging {
        &self.paging
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.spec.rows as usize
    }

    /// Positions, each with a row or empty.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.spec.positions as usize
    }

    /// Pages that its positions are cut into.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.paging.pages(self.spec.positions)
    }

    /// Bytes of the front.
    #[must_use]
    pub fn front_bytes(&self) -> u32 {
        self.front_bytes
    }

    /// Its chunks in order: those of the front, then those of the body.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkInfo> {
        self.chunks.iter().map(ChunkEntry::info)
    }

    /// A chunk, if the block has it.
    #[must_use]
    pub fn chunk(&self, column_id: u32, role: Role) -> Option<ChunkInfo> {
        self.find(column_id, role).map(|at| self.chunks[at].info())
    }

    /// The largest column id of its chunks; 0 if it has none.
    #[must_use]
    pub fn last_column(&self) -> u32 {
        let (front, body) = self.chunks.split_at(self.front_chunks);
        let last = |chunks: &[ChunkEntry]| chunks.last().map_or(0, ChunkEntry::column_id);
        last(front).max(last(body))
    }

    /// About what it takes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let dimensions = self
            .paging
            .grid()
            .map_or(0, |grid| size_of_val(grid.dimensions()));
        size_of::<Self>()
            + size_of_val(&self.chunks[..])
            + size_of_val(&self.pages[..])
            + dimensions
    }

    pub(super) fn find(&self, column_id: u32, role: Role) -> Option<usize> {
        if column_id > MAX_COLUMN_ID {
            return None;
        }
        let (front, body) = self.chunks.split_at(self.front_chunks);
        let (group, first) = if role.is_front() {
            (front, 0)
        } else {
            (body, self.front_chunks)
        };
        let key = chunk_key(column_id, role);
        let found = group.binary_search_by_key(&key, |chunk| chunk.key).ok()?;
        Some(first + found)
    }

    /// The page table of a chunk of more than one page, else nothing.
    pub(super) fn listed_pages(&self, chunk: &ChunkEntry) -> &[PageEnd] {
        &self.pages[chunk.first_page as usize..][..chunk.listed_pages()]
    }

    /// Checks every byte of the block after its head. `body` is all of it.
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

    pub(super) fn damaged(&self, chunk: &ChunkEntry, address: &Address) -> Error {
        let offset = address.offset + u64::from(self.head_bytes) + u64::from(chunk.offset);
        let place = Address { offset, ..*address };
        let what = format!(
            "column {} ({}) of a block of table {} is damaged",
            chunk.column_id(),
            chunk.role().name(),
            self.spec.table.0
        );
        Error::corruption(place, format_args!("{what}: its checksum does not match"))
    }
}

/// The head that `address` vouches for, if these are its bytes.
fn verified_head<'a>(bytes: &'a [u8], address: &Address) -> Parsed<&'a [u8]> {
    let head = bytes
        .get(..address.head_bytes as usize)
        .filter(|head| head.len() >= BLOCK_HEADER_BYTES);
    let head = head.ok_or("it ends too early")?;
    if head[..MAGIC.len()] != MAGIC {
        return Err("no block begins here");
    }
    let stored_crc = Reader::new(&head[CRC_AT..]).u32()?;
    if !is_sound(head_crc(head), stored_crc) {
        return Err("its checksum does not match");
    }
    if !is_sound(stored_crc, address.head_crc) {
        return Err("it is not the block that was written here");
    }
    Ok(head)
}
