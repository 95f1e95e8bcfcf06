//! The chunks of a block as its head lists them: those of the front, then those of the body, and the ends of their pages.
//!
//! Invariant: each group ascends by column and role, and chunks follow each other without gaps.

use super::paging::Paging;
use super::role::{FILTER_BLOCK_BYTES, MAX_FILTER_BLOCKS, Role};
use super::spec::{BlockSpec, MAX_PAGE_ENTRIES};
use crate::wire::{Fault, Parsed, Reader};
use thalweg_codec::{CodecChain, ElementType};

/// Bytes of a chunk entry in the head.
pub const CHUNK_ENTRY_BYTES: usize = 32;

/// Bytes of an entry of a page table.
pub(super) const PAGE_ENTRY_BYTES: usize = 8;

/// A chunk as the head lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    /// Column id in the upper 24 bits, role in the lower 8: ascending order is that of the chunks of a group.
    pub(super) key: u32,
    pub(super) codec: CodecChain,
    /// From the end of the head.
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) prelude_bytes: u32,
    pub(super) rows: u32,
    pub(super) raw_bytes: u32,
    /// Of the whole chunk if it has one page or none, else of the prelude.
    pub(super) crc: u32,
    /// Its pages; not stored.
    pub(super) pages: u32,
    /// Its first page in the table of all pages; not stored, and of no meaning with one page or none.
    pub(super) first_page: u32,
}

/// The end of a page in its chunk, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageEnd {
    pub(super) end: u32,
    pub(super) crc: u32,
}

/// A chunk as its readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The column.
    pub column_id: u32,
    /// Which data of the column it holds.
    pub role: Role,
    /// How it is encoded.
    pub codec: CodecChain,
    /// Rows it holds: positions of the block, or what its role counts.
    pub rows: u32,
    /// Encoded bytes.
    pub bytes: u32,
    /// Bytes its values take in memory.
    pub raw_bytes: u32,
}

pub(super) fn chunk_key(column_id: u32, role: Role) -> u32 {
    column_id << 8 | u32::from(role as u8)
}

impl ChunkEntry {
    pub(super) fn role(&self) -> Role {
        // Both builder and parser let only known roles in.
        Role::from_byte(self.key.to_le_bytes()[0]).unwrap_or(Role::Values)
    }

    /// Pages of it that are in the page table: none if there is only one.
    pub(super) fn listed_pages(&self) -> usize {
        if self.pages > 1 {
            self.pages as usize
        } else {
            0
        }
    }

    pub(super) fn column_id(&self) -> u32 {
        self.key >> 8
    }

    pub(super) fn info(&self) -> ChunkInfo {
        ChunkInfo {
            column_id: self.column_id(),
            role: self.role(),
            codec: self.codec,
            rows: self.rows,
            bytes: self.bytes,
            raw_bytes: self.raw_bytes,
        }
    }

    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        out.extend_from_slice(&self.codec.to_bytes());
        let fields = [
            self.offset,
            self.bytes,
            self.prelude_bytes,
            self.rows,
            self.raw_bytes,
            self.crc,
        ];
        fields
            .iter()
            .for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
    }
}

/// Whether a chunk of this role can have so many rows of this element in a block.
pub(super) fn has_sound_rows(
    (role, element, rows): (Role, ElementType, u32),
    spec: &BlockSpec,
    paging: &Paging,
) -> bool {
    match role {
        Role::Values => rows == spec.positions,
        Role::Validity | Role::Presence => rows == spec.positions && element == ElementType::Bits,
        Role::ZoneLows | Role::ZoneHighs => rows as usize == paging.pages(spec.positions),
        Role::Filter => {
            let blocks = rows / FILTER_BLOCK_BYTES;
            let is_whole = rows.is_multiple_of(FILTER_BLOCK_BYTES);
            is_whole && (1..=MAX_FILTER_BLOCKS).contains(&blocks) && element == ElementType::U8
        }
    }
}

/// Different columns of chunks whose front and body ascend.
pub(super) fn count_columns(front: &[ChunkEntry], body: &[ChunkEntry]) -> usize {
    let ids = |chunks: &'_ [ChunkEntry]| chunks.iter().map(ChunkEntry::column_id).collect();
    let mut columns: Vec<u32> = ids(front);
    if columns.is_empty() {
        return body.chunk_by(|a, b| a.column_id() == b.column_id()).count();
    }
    let mut others: Vec<u32> = ids(body);
    columns.append(&mut others);
    columns.sort_unstable();
    columns.dedup();
    columns.len()
}

/// Chunks and pages of a head.
pub(super) struct Directory {
    /// Those of the front first.
    pub(super) chunks: Vec<ChunkEntry>,
    pub(super) front_chunks: usize,
    pub(super) pages: Vec<PageEnd>,
}

impl Directory {
    /// Reads the entries of `count` chunks and of their pages, to the end of the head.
    pub(super) fn parse(
        reader: &mut Reader<'_>,
        count: u32,
        spec: &BlockSpec,
        paging: &Paging,
    ) -> Result<Self, Fault> {
        let chunks = parse_chunks(reader, count, spec, paging)?;
        let front_chunks = chunks.partition_point(|chunk| chunk.role().is_front());
        let (front, body) = chunks.split_at(front_chunks);
        check_pairs(front, body, spec, paging)?;
        let pages = parse_pages(reader, &chunks)?;
        Ok(Self {
            chunks,
            front_chunks,
            pages,
        })
    }

    /// Where the chunks of the front end, from the end of the head, and where all do.
    pub(super) fn ends(&self) -> (u64, u64) {
        let end = |chunks: &[ChunkEntry]| {
            let last = chunks.last();
            last.map_or(0, |chunk| u64::from(chunk.offset) + u64::from(chunk.bytes))
        };
        (end(&self.chunks[..self.front_chunks]), end(&self.chunks))
    }
}

fn parse_chunks(
    reader: &mut Reader<'_>,
    count: u32,
    spec: &BlockSpec,
    paging: &Paging,
) -> Result<Vec<ChunkEntry>, Fault> {
    let count = count as usize;
    if count > reader.left_bytes() / CHUNK_ENTRY_BYTES {
        return Err("it ends within its chunk entries".into());
    }
    let mut chunks: Vec<ChunkEntry> = Vec::with_capacity(count);
    let (mut expected_offset, mut first_page) = (0_u32, 0);
    for _ in 0..count {
        let mut chunk = parse_chunk(reader, spec, paging)?;
        if chunks.last().is_some_and(|last| !precedes(last, &chunk)) {
            return Err("its chunks are not in order".into());
        }
        if chunk.offset != expected_offset {
            return Err("a chunk is out of place".into());
        }
        let end = chunk.offset.checked_add(chunk.bytes);
        expected_offset = end.ok_or("a chunk is out of place")?;
        chunk.first_page = u32::try_from(first_page).unwrap_or(u32::MAX);
        first_page += chunk.listed_pages();
        if first_page > MAX_PAGE_ENTRIES {
            return Err("it has too many pages".into());
        }
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn precedes(chunk: &ChunkEntry, next: &ChunkEntry) -> bool {
    match (chunk.role().is_front(), next.role().is_front()) {
        (true, false) => true,
        (false, true) => false,
        _ => chunk.key < next.key,
    }
}

fn parse_chunk(
    reader: &mut Reader<'_>,
    spec: &BlockSpec,
    paging: &Paging,
) -> Result<ChunkEntry, Fault> {
    let key = reader.u32()?;
    let role = Role::parse(key.to_le_bytes()[0])?;
    let codec = reader.u32()?.to_le_bytes();
    let codec = CodecChain::from_bytes(codec)
        .map_err(|_| Fault::OtherVersion(format!("chunks of codec {codec:?}")))?;
    let (offset, bytes, prelude_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (rows, raw_bytes, crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if prelude_bytes > bytes {
        return Err("a chunk is out of place".into());
    }
    if !has_sound_rows((role, codec.element, rows), spec, paging) {
        return Err("a chunk has rows of another number or type".into());
    }
    if role == Role::Presence && key >> 8 != 0 {
        return Err("presence is of a column".into());
    }
    Ok(ChunkEntry {
        key,
        codec,
        offset,
        bytes,
        prelude_bytes,
        rows,
        raw_bytes,
        crc,
        pages: u32::try_from(paging.pages_of_chunk(role, rows)).unwrap_or(u32::MAX),
        first_page: 0,
    })
}

/// Checks how several chunks fit together.
pub(super) fn check_pairs(
    front: &[ChunkEntry],
    body: &[ChunkEntry],
    spec: &BlockSpec,
    paging: &Paging,
) -> Parsed<()> {
    let has = |column_id: u32, role: Role| {
        let key = chunk_key(column_id, role);
        body.binary_search_by_key(&key, |chunk| chunk.key).is_ok()
    };
    if !has(0, Role::Presence) && spec.rows != spec.positions {
        return Err("it has empty positions, and nothing says which");
    }
    if !zones_are_paired(front) {
        return Err("lows of pages without highs, or highs without lows");
    }
    let dimensions = paging.grid().map_or(&[][..], |grid| grid.dimensions());
    if dimensions.iter().any(|d| has(d.column_id, Role::Values)) {
        return Err("a dimension of its grid has values besides");
    }
    Ok(())
}

/// Whether each column with lows has highs of the same element, and the other way round.
fn zones_are_paired(front: &[ChunkEntry]) -> bool {
    let zones = |role: Role| {
        let of_role = front.iter().filter(move |chunk| chunk.role() == role);
        of_role.map(|chunk| (chunk.column_id(), chunk.codec.element))
    };
    zones(Role::ZoneLows).eq(zones(Role::ZoneHighs))
}

fn parse_pages(reader: &mut Reader<'_>, chunks: &[ChunkEntry]) -> Parsed<Vec<PageEnd>> {
    let count = chunks.iter().map(ChunkEntry::listed_pages).sum::<usize>();
    if count != reader.left_bytes() / PAGE_ENTRY_BYTES {
        return Err("it has another number of pages");
    }
    let mut pages = Vec::with_capacity(count);
    for chunk in chunks.iter().filter(|chunk| chunk.listed_pages() > 0) {
        let mut start = chunk.prelude_bytes;
        for _ in 0..chunk.listed_pages() {
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
