//! Putting encoded chunks together to a block.

use super::chunks::{
    CHUNK_ENTRY_BYTES, ChunkEntry, PAGE_ENTRY_BYTES, PageEnd, check_pairs, chunk_key,
    count_columns, has_sound_rows,
};
use super::head::{BLOCK_HEADER_BYTES, CRC_AT, MAGIC, TABLE_AT, VERSION, head_crc};
use super::paging::Paging;
use super::role::Role;
use super::spec::{BlockSpec, MAX_BLOCK_BYTES, MAX_BLOCK_COLUMNS, MAX_COLUMN_ID, MAX_PAGE_ENTRIES};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TableId;
use crate::index::{Address, Entry, MAX_SUMMARIES, Summaries};
use crate::wire::Reader;
use thalweg_codec::EncodedChunk;

/// An encoded block and what the index is to know of it.
#[derive(Clone, Debug)]
pub struct EncodedBlock {
    /// Head and chunks.
    pub bytes: Vec<u8>,
    /// Its entry; where it lies and its commit are filled in by the kernel.
    pub entry: Entry,
}

impl EncodedBlock {
    /// Refuses a block of another table or order: whatever reads it would take its rows for rows of this one.
    pub(crate) fn check_order(&self, table: TableId, order: u32) -> Result<()> {
        let field = |at: usize| Reader::new(self.bytes.get(at..at + 4)?).u32().ok();
        let own = field(TABLE_AT).zip(field(TABLE_AT + 4));
        if own == Some((table.0, order)) {
            return Ok(());
        }
        let message = match own {
            None => format!("bytes without a head are no block of table {}", table.0),
            Some((own, _)) if own != table.0 => {
                format!(
                    "a block of table {own} does not belong to table {}",
                    table.0
                )
            }
            Some((own, own_order)) => {
                format!(
                    "a block of order {own_order} does not belong to order {order} of table {own}"
                )
            }
        };
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

/// Puts encoded chunks together.
#[derive(Debug)]
pub struct BlockBuilder {
    spec: BlockSpec,
    paging: Paging,
    front: Group,
    body: Group,
}

/// Chunks that lie together. Offsets and pages are counted from the first one.
#[derive(Debug)]
struct Group {
    chunks: Vec<ChunkEntry>,
    pages: Vec<PageEnd>,
    /// Room for the head (and the front), then the chunks.
    bytes: Vec<u8>,
    /// Bytes of that room.
    room_bytes: usize,
}

impl Group {
    fn with_room(room_bytes: usize) -> Self {
        Self {
            chunks: Vec::new(),
            pages: Vec::new(),
            bytes: vec![0; room_bytes],
            room_bytes,
        }
    }

    fn chunk_bytes(&self) -> usize {
        self.bytes.len() - self.room_bytes
    }

    /// Appends a chunk, whose pages have been counted.
    fn add(&mut self, key: u32, chunk: &EncodedChunk, is_paged: bool) {
        let prelude_bytes = chunk.prelude_bytes as usize;
        let (offset, first_page) = (to_u32(self.chunk_bytes()), to_u32(self.pages.len()));
        let summed = if is_paged {
            &chunk.bytes[..prelude_bytes]
        } else {
            &chunk.bytes
        };
        let crc = crc32c::crc32c(summed);
        if is_paged {
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
            offset,
            bytes: to_u32(chunk.bytes.len()),
            prelude_bytes: chunk.prelude_bytes,
            rows: to_u32(chunk.rows),
            raw_bytes: u32::try_from(chunk.raw_bytes).unwrap_or(u32::MAX),
            crc,
            pages: to_u32(chunk.page_ends.len()),
            first_page,
        });
        self.bytes.extend_from_slice(&chunk.bytes);
    }
}

impl BlockBuilder {
    /// A builder for a block with pages of the usual size, and of about `chunks` chunks; a wrong guess costs a copy of the block.
    ///
    /// # Panics
    /// When the block is to have no rows or no layout.
    #[must_use]
    pub fn new(spec: BlockSpec, chunks: usize) -> Self {
        Self::with_paging(spec, Paging::default(), chunks)
    }

    /// Like `new`, for a block that is cut into pages in another way.
    ///
    /// # Panics
    /// As [`Self::new`], and when the block cannot be cut this way.
    #[must_use]
    pub fn with_paging(spec: BlockSpec, paging: Paging, chunks: usize) -> Self {
        assert!(
            spec.has_sound_counts() && spec.layout > 0,
            "a block without rows or layout: {spec:?}"
        );
        assert!(
            paging.fits(spec.positions),
            "{} positions are not cut into {paging:?}",
            spec.positions
        );
        let pages = match paging.pages(spec.positions) {
            1 => 0,
            of_chunk => chunks * of_chunk,
        };
        let head_bytes = head_bytes(&paging, chunks, pages.min(MAX_PAGE_ENTRIES));
        Self {
            spec,
            paging,
            front: Group::with_room(0),
            body: Group::with_room(head_bytes),
        }
    }

    /// Reserves memory for chunks of so many bytes in all.
    pub fn reserve_bytes(&mut self, chunk_bytes: usize) {
        self.body.bytes.reserve(chunk_bytes);
    }

    /// Appends a chunk. Those of the front come in ascending order of column and role, and so do the others.
    ///
    /// # Errors
    /// `Limit` when the block grows beyond [`MAX_BLOCK_BYTES`] or [`MAX_PAGE_ENTRIES`], or the column id beyond [`MAX_COLUMN_ID`].
    ///
    /// # Panics
    /// When chunks come in another order, or the chunk's rows or page ends contradict the block or its bytes.
    pub fn add_chunk(&mut self, column_id: u32, role: Role, chunk: &EncodedChunk) -> Result<()> {
        if column_id > MAX_COLUMN_ID {
            let limit = format!(
                "column {column_id} of table {}: ids end at {MAX_COLUMN_ID}",
                self.spec.table.0
            );
            return Err(Error::new(ErrorKind::Limit, limit));
        }
        let size = self.front.bytes.len() + self.body.bytes.len() + chunk.bytes.len();
        if size > MAX_BLOCK_BYTES || chunk.raw_bytes > u64::from(u32::MAX) {
            let what = format!("column {column_id} has {} encoded bytes", chunk.bytes.len());
            return Err(self.too_large(&what));
        }
        self.check_chunk((column_id, role), chunk);
        let is_paged = chunk.page_ends.len() > 1;
        let entries = self.front.pages.len() + self.body.pages.len() + chunk.page_ends.len();
        if is_paged && entries > MAX_PAGE_ENTRIES {
            return Err(self.too_large(&format!("{entries} pages")));
        }
        let group = if role.is_front() {
            &mut self.front
        } else {
            &mut self.body
        };
        let key = chunk_key(column_id, role);
        assert!(
            group.chunks.last().is_none_or(|last| last.key < key),
            "chunk {column_id}/{role:?} is out of order"
        );
        group.add(key, chunk, is_paged);
        Ok(())
    }

    /// Whoever encoded the chunk has a bug if it does not fit the block: that must not reach a file.
    fn check_chunk(&self, (column_id, role): (u32, Role), chunk: &EncodedChunk) {
        let rows = to_u32(chunk.rows);
        assert!(
            has_sound_rows((role, chunk.codec.element, rows), &self.spec, &self.paging),
            "chunk {column_id}/{role:?} of {rows} rows of {:?} in {:?}",
            chunk.codec.element,
            self.spec
        );
        assert!(
            role != Role::Presence || column_id == 0,
            "presence of column {column_id}"
        );
        assert_eq!(
            chunk.page_ends.len(),
            self.paging.pages_of_chunk(role, rows),
            "a page table for another number of rows"
        );
        let prelude_bytes = chunk.prelude_bytes as usize;
        let last = chunk.page_ends.last();
        let end = last.map_or(prelude_bytes, |&end| end as usize);
        assert_eq!(
            end,
            chunk.bytes.len(),
            "pages that do not end where the chunk does"
        );
    }

    /// The block. `keys` are its smallest and largest order key, `columns` its summaries in ascending order.
    ///
    /// # Errors
    /// `Limit` when it is too large, has too many columns or too many summaries.
    ///
    /// # Panics
    /// When the keys or summaries contradict the rows, or chunks each other.
    pub fn finish(
        mut self,
        keys: (i64, i64),
        columns: impl Into<Summaries>,
    ) -> Result<EncodedBlock> {
        let columns = columns.into();
        self.check_chunks();
        let column_count = count_columns(&self.front.chunks, &self.body.chunks);
        let of_rows = column_count - usize::from(self.has_presence());
        if of_rows > MAX_BLOCK_COLUMNS || columns.len() > MAX_SUMMARIES {
            let what = format!("{of_rows} columns, {} of them summarised", columns.len());
            return Err(self.too_large(&what));
        }
        let pages = self.front.pages.len() + self.body.pages.len();
        let chunks = self.front.chunks.len() + self.body.chunks.len();
        let head_bytes = head_bytes(&self.paging, chunks, pages);
        let block_bytes = head_bytes + self.front.chunk_bytes() + self.body.chunk_bytes();
        if block_bytes > MAX_BLOCK_BYTES {
            return Err(self.too_large(&format!("{block_bytes} bytes")));
        }
        let head = self.head(head_bytes, block_bytes, column_count);
        assert_eq!(head.len(), head_bytes, "a head of another length");
        let bytes = self.assemble(&head);
        let head_crc = head_crc(&head);
        let entry = self.entry(keys, columns, (head_bytes, head_crc), bytes.len());
        Ok(EncodedBlock { bytes, entry })
    }

    fn has_presence(&self) -> bool {
        let mut chunks = self.body.chunks.iter();
        chunks.any(|chunk| chunk.role() == Role::Presence)
    }

    /// Like [`Self::check_chunk`], of how chunks fit together.
    fn check_chunks(&self) {
        let (front, body) = (&self.front.chunks, &self.body.chunks);
        let checked = check_pairs(front, body, &self.spec, &self.paging);
        assert_eq!(checked, Ok(()), "chunks of {:?}", self.spec);
    }

    /// Head, front and body.
    fn assemble(&mut self, head: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.body.bytes);
        let front = &self.front.bytes;
        let before_body = head.len() + front.len();
        if before_body != self.body.room_bytes {
            bytes.splice(..self.body.room_bytes, std::iter::repeat_n(0, before_body));
        }
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..before_body].copy_from_slice(front);
        bytes[CRC_AT..BLOCK_HEADER_BYTES].copy_from_slice(&head_crc(head).to_le_bytes());
        bytes
    }

    fn entry(
        &self,
        keys: (i64, i64),
        columns: Summaries,
        (head_bytes, head_crc): (usize, u32),
        block_bytes: usize,
    ) -> Entry {
        let block_bytes = to_u32(block_bytes);
        let entry = Entry {
            level: 0,
            sorted: self.spec.sorted,
            rewritten: self.spec.level,
            rows: u64::from(self.spec.rows),
            blocks: 1,
            block_bytes: u64::from(block_bytes),
            key_min: keys.0,
            key_max: keys.1,
            address: Address {
                bytes: block_bytes,
                head_bytes: to_u32(head_bytes),
                head_crc,
                ..Address::default()
            },
            columns,
            ..Entry::unknown()
        };
        if let Err(what) = entry.check() {
            refuse(&entry, what);
        }
        entry
    }

    /// The head with zeros for its checksum.
    fn head(&self, head_bytes: usize, block_bytes: usize, columns: usize) -> Vec<u8> {
        let spec = &self.spec;
        let chunks = self.front.chunks.len() + self.body.chunks.len();
        let mut out = Vec::with_capacity(head_bytes);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[spec.layout, spec.level]);
        let fields = [
            to_u32(head_bytes),
            to_u32(block_bytes),
            spec.table.0,
            spec.order,
            to_u32(chunks),
            to_u32(columns),
            spec.positions,
            spec.flags(self.paging.grid().is_some()),
        ];
        put_all(&fields, &mut out);
        out.extend_from_slice(&spec.key.to_le_bytes());
        let front_bytes = to_u32(self.front.chunk_bytes());
        put_all(
            &[spec.rows, self.paging.page_positions(), front_bytes, 0],
            &mut out,
        );
        if let Some(grid) = self.paging.grid() {
            grid.encode_into(&mut out);
        }
        self.front
            .chunks
            .iter()
            .for_each(|c| c.encode_into(&mut out));
        for chunk in &self.body.chunks {
            let offset = front_bytes + chunk.offset;
            ChunkEntry { offset, ..*chunk }.encode_into(&mut out);
        }
        for page in self.front.pages.iter().chain(&self.body.pages) {
            put_all(&[page.end, page.crc], &mut out);
        }
        out
    }

    fn too_large(&self, what: &str) -> Error {
        let BlockSpec { table, rows, .. } = self.spec;
        let limits = format!(
            "{MAX_BLOCK_BYTES} bytes, {MAX_BLOCK_COLUMNS} columns, {MAX_PAGE_ENTRIES} pages and {MAX_SUMMARIES} summaries"
        );
        let message = format!(
            "a block of {rows} rows of table {} would be too large ({what}): it holds {limits}",
            table.0
        );
        Error::new(ErrorKind::Limit, message)
    }
}

fn head_bytes(paging: &Paging, chunks: usize, pages: usize) -> usize {
    let grid_bytes = paging.grid().map_or(0, |grid| grid.encoded_bytes());
    BLOCK_HEADER_BYTES + grid_bytes + chunks * CHUNK_ENTRY_BYTES + pages * PAGE_ENTRY_BYTES
}

fn put_all(fields: &[u32], out: &mut Vec<u8>) {
    for field in fields {
        out.extend_from_slice(&field.to_le_bytes());
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
