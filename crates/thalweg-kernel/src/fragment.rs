//! A fragment: blocks of one order of a table in a file of their own, with their index (docs/format/fragment.md).
//!
//! Invariants
//! - A fragment is written once, front to back, and synced with its folder before anyone uses it. A writer that is
//!   dropped before that cuts its file to nothing, but not in a child of a fork: the file is its parent's.
//! - It is self-contained: two ranged reads find everything in it. Its root page is an item in the index of its order.
//! - Header, pages and footer are sealed: bytes of another database, file or place are refused.

mod found;

use crate::block::EncodedBlock;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, DatabaseId, FileId, TableId};
use crate::index::{Address, Entry, PageLoader, Tree};
use crate::paths::fragment_name;
use crate::segment_supply::SegmentSupply;
use crate::store::Store;
use crate::wire::{Fault, Parsed, Reader, is_sound, sealing_crc};
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_env::{File, OpenMode};

pub(crate) use found::blocks_below;

const MAGIC: [u8; 8] = *b"THWFRG01";
const FOOTER_MAGIC: [u8; 8] = *b"THWFRGFT";
const VERSION: u32 = 2;

/// Bytes in front of the first block.
pub const FRAGMENT_HEADER_BYTES: usize = 64;

/// Bytes at the end of the file.
pub const FRAGMENT_FOOTER_BYTES: usize = 128;

const HEADER_CRC_AT: usize = FRAGMENT_HEADER_BYTES - 4;
const FOOTER_CRC_AT: usize = FRAGMENT_FOOTER_BYTES - 4;

/// Blocks are collected to writes of this size.
const WRITE_BYTES: usize = 1 << 20;

/// Writes one fragment.
#[derive(Debug)]
pub struct FragmentWriter {
    store: Arc<Store>,
    id: FileId,
    table: TableId,
    order: u32,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    /// Where the buffer goes.
    written_bytes: u64,
    entries: Vec<Entry>,
    finished: bool,
    /// Of the folder, before the file was made.
    failed_syncs: u64,
    /// Where it counts as staged.
    staged: Arc<Mutex<Staged>>,
    /// On a full disk, what keeps the last room for others.
    supply: Option<Arc<SegmentSupply>>,
}

/// The files of fragments that are not part of a table yet, and the table and order that each has blocks of.
pub(crate) type Staged = HashMap<FileId, (TableId, u32)>;

impl FragmentWriter {
    /// Creates the file of a new fragment, under an id of its own that is in `staged` from then on.
    ///
    /// # Errors
    /// See [`Self::create`].
    pub(crate) fn stage(
        store: &Arc<Store>,
        supply: &Arc<SegmentSupply>,
        (table, order): (TableId, u32),
        staged: &Arc<Mutex<Staged>>,
    ) -> Result<Self> {
        supply.check_room_for_rows(0)?;
        // Under the lock, so that nobody sees the id given out and the file not staged.
        let mut files = staged.lock();
        let file = supply.next_file_id();
        files.insert(file, (table, order));
        drop(files);
        let made = Self::create(store, file, (table, order), Arc::clone(staged));
        if made.is_err() {
            staged.lock().remove(&file);
        }
        let mut made = made?;
        made.supply = Some(Arc::clone(supply));
        Ok(made)
    }

    /// Writes copies of blocks ([`Self::copy_block`]); returns the root entry.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(crate) fn copy_of(mut self, store: &Store, blocks: &[Entry]) -> Result<Entry> {
        for entry in blocks {
            self.copy_block(&read_to_copy(store, entry)?)?;
        }
        self.finish()
    }

    /// Creates the file of a new fragment. `id` was never used before, and is in `staged`.
    ///
    /// # Errors
    /// Those of creating the file.
    pub(crate) fn create(
        store: &Arc<Store>,
        id: FileId,
        (table, order): (TableId, u32),
        staged: Arc<Mutex<Staged>>,
    ) -> Result<Self> {
        let path = store.fragment_path(id);
        let failed_syncs = store.failed_data_syncs();
        let file = store.env().storage().open(&path, OpenMode::CreateNew);
        let file = file.map_err(|error| {
            Error::io(
                format_args!("creating {}", fragment_name(id).display()),
                error,
            )
        })?;
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        put_header(store.database(), id, (table, order), &mut buffer);
        Ok(Self {
            store: Arc::clone(store),
            id,
            table,
            order,
            file,
            buffer,
            written_bytes: 0,
            entries: Vec::new(),
            finished: false,
            failed_syncs,
            staged,
            supply: None,
        })
    }

    /// The file's id.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Bytes of blocks so far.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.block_bytes).sum()
    }

    /// Appends a block. Blocks without a commit get that of the fragment, and numbers in the order they come here.
    ///
    /// # Errors
    /// `Invalid` for a block of another table or order; whatever writing leads to, and the writer is to be dropped then.
    ///
    /// # Panics
    /// When the block's entry is not that of its bytes.
    pub fn add_block(&mut self, block: &EncodedBlock) -> Result<()> {
        block.check_order(self.table, self.order)?;
        self.copy_block(block)
    }

    /// Appends a block of the table byte for byte, with its commits and its place in the order of arrival.
    ///
    /// # Errors
    /// Those of writing; the writer is to be dropped then.
    pub(crate) fn copy_block(&mut self, block: &EncodedBlock) -> Result<()> {
        self.store.check_owner()?;
        assert!(
            block.entry.is_block(),
            "a page is not a block of a fragment"
        );
        assert_eq!(
            block.bytes.len(),
            block.entry.address.bytes as usize,
            "the entry of another block"
        );
        let mut entry = block.entry.clone();
        if entry.commit_max == CommitNo(0) {
            entry.ordinal =
                u32::try_from(self.entries.len()).map_err(|_| self.too_many_blocks())?;
        }
        (entry.address.file, entry.address.offset) = (self.id, self.end());
        self.append(&block.bytes)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes index and footer, syncs the file and its folder, and returns the root entry: an item for the table's
    /// index, to which the kernel gives its commit.
    ///
    /// # Errors
    /// `Invalid` without a block; whatever writing and syncing leads to. The file is gone then.
    pub fn finish(mut self) -> Result<Entry> {
        let root = self.write_to_the_end()?;
        self.store.sync_data_folder(self.failed_syncs)?;
        self.finished = true;
        Ok(root)
    }

    /// Finishes it without the sync of the folder: for whoever writes several fragments, calls [`Store::sync_data_folder`] once for
    /// all of them before anyone uses one, and abandons them if that fails.
    ///
    /// # Errors
    /// See [`Self::finish`].
    pub(crate) fn finish_unnamed(mut self) -> Result<Entry> {
        let root = self.write_to_the_end()?;
        self.finished = true;
        Ok(root)
    }

    /// Writes index and footer and syncs the file.
    fn write_to_the_end(&mut self) -> Result<Entry> {
        self.store.check_owner()?;
        if self.entries.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a fragment without blocks"));
        }
        let store = Arc::clone(&self.store);
        let entries = std::mem::take(&mut self.entries);
        let tree = Tree::empty(self.table).insert_many(entries, &*store, &mut Vec::new())?;
        let mut page_bytes = Vec::new();
        let written = tree.write_dirty(&mut |page| {
            page_bytes.clear();
            let address = page.seal_into(store.database(), self.id, self.end(), &mut page_bytes);
            self.append(&page_bytes)?;
            Ok(address)
        })?;
        let Some(root) = written.root().cloned().map(Entry::into_fragment) else {
            return Err(Error::new(ErrorKind::Invalid, "a fragment without blocks"));
        };
        let owner = (self.table, self.order);
        let footer = Footer::new(self.id, owner, self.end(), &root).encode(store.database());
        self.append(&footer)?;
        self.write_buffer()?;
        let name = fragment_name(self.id);
        self.file
            .sync_all()
            .map_err(|error| Error::io(format_args!("syncing {}", name.display()), error))?;
        written.publish(&*store);
        Ok(root)
    }

    fn end(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.buffer.is_empty() && self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.write_buffer()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        if let Some(supply) = &self.supply {
            supply.check_room_for_rows(self.buffer.len() as u64)?;
        }
        let written = self.file.write_all_at(&self.buffer, self.written_bytes);
        let name = fragment_name(self.id);
        let written =
            written.map_err(|error| Error::io(format_args!("writing {}", name.display()), error));
        if let (Err(error), Some(supply)) = (&written, &self.supply) {
            supply.free.note_refused(error, self.buffer.len() as u64);
        }
        written?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn too_many_blocks(&self) -> Error {
        let message = format!(
            "a fragment of table {} with {} blocks",
            self.table.0,
            self.entries.len()
        );
        Error::new(ErrorKind::Limit, message)
    }
}

impl Drop for FragmentWriter {
    fn drop(&mut self) {
        if !self.finished && self.store.owner().is_here() {
            self.store.give_up_fragment(&*self.file);
            self.staged.lock().remove(&self.id);
        }
    }
}

/// Reads a block for [`FragmentWriter::copy_block`], damaged or not: whoever reads the copy finds out.
pub(crate) fn read_to_copy(store: &Store, entry: &Entry) -> Result<EncodedBlock> {
    let address = &entry.address;
    let bytes = store.read(address.file, address.offset, address.bytes as usize)?;
    Ok(EncodedBlock {
        bytes: bytes.into(),
        entry: entry.clone(),
    })
}

fn put_header(database: DatabaseId, id: FileId, (table, order): (TableId, u32), out: &mut Vec<u8>) {
    let mut header = [0; FRAGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&table.0.to_le_bytes());
    header[16..32].copy_from_slice(&database.0);
    header[32..40].copy_from_slice(&id.0.to_le_bytes());
    header[40..44].copy_from_slice(&order.to_le_bytes());
    let crc = sealing_crc(database, id, 0, &[&header[..HEADER_CRC_AT]]);
    header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&header);
}

/// The table of a fragment, by its header; `None`: that cannot be read, or fails its checks.
pub(crate) fn fragment_table(store: &Store, id: FileId) -> Option<TableId> {
    let header = store.read(id, 0, FRAGMENT_HEADER_BYTES).ok()?;
    let table = TableId(Reader::new(&header[12..16]).u32().ok()?);
    let order = Reader::new(&header[40..44]).u32().ok()?;
    let mut expected = Vec::new();
    put_header(store.database(), id, (table, order), &mut expected);
    (header == expected).then_some(table)
}

/// The end of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footer {
    id: FileId,
    table: TableId,
    order: u32,
    /// Where the footer itself begins.
    offset: u64,
    root: Address,
    root_level: u8,
    rows: u64,
    blocks: u64,
    block_bytes: u64,
}

impl Footer {
    fn new(id: FileId, (table, order): (TableId, u32), offset: u64, root: &Entry) -> Self {
        let (rows, blocks, block_bytes) = (root.rows, root.blocks, root.block_bytes);
        Self {
            id,
            table,
            order,
            offset,
            root: root.address,
            root_level: root.level,
            rows,
            blocks,
            block_bytes,
        }
    }

    fn encode(&self, database: DatabaseId) -> [u8; FRAGMENT_FOOTER_BYTES] {
        let mut out = [0; FRAGMENT_FOOTER_BYTES];
        out[..8].copy_from_slice(&FOOTER_MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.table.0.to_le_bytes());
        out[16..32].copy_from_slice(&database.0);
        out[32..40].copy_from_slice(&self.id.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.root.offset.to_le_bytes());
        out[56..60].copy_from_slice(&self.root.bytes.to_le_bytes());
        out[60..64].copy_from_slice(&self.root.head_crc.to_le_bytes());
        out[64] = self.root_level;
        out[68..72].copy_from_slice(&self.order.to_le_bytes());
        out[72..80].copy_from_slice(&self.rows.to_le_bytes());
        out[80..88].copy_from_slice(&self.blocks.to_le_bytes());
        out[88..96].copy_from_slice(&self.block_bytes.to_le_bytes());
        let crc = sealing_crc(database, self.id, self.offset, &[&out[..FOOTER_CRC_AT]]);
        out[FOOTER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Verifies and reads the footer that lies at `offset` of file `id`.
    fn parse(
        database: DatabaseId,
        id: FileId,
        (table, order): (TableId, u32),
        offset: u64,
        bytes: &[u8],
    ) -> Result<Self, Fault> {
        let mut reader = Reader::new(verified_footer(database, id, offset, bytes)?);
        let version = reader.u32()?;
        if version != VERSION {
            return Err(Fault::version(version, VERSION));
        }
        let of_table = TableId(reader.u32()?);
        let of_database = reader.take(16)?;
        let (of_id, of_offset) = (FileId(reader.u64()?), reader.u64()?);
        let (root_offset, root_bytes, root_crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let root_level = reader.u8()?;
        reader.reserved(3)?;
        let of_order = reader.u32()?;
        let (rows, blocks, block_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.reserved(FOOTER_CRC_AT - 96)?;
        if (of_database, of_id, of_offset) != (&database.0[..], id, offset)
            || (of_table, of_order) != (table, order)
        {
            return Err("its footer is that of another database, table, order or file".into());
        }
        if root_offset.checked_add(u64::from(root_bytes)) != Some(offset) || root_level == 0 {
            return Err("its root page is out of place".into());
        }
        let root = Address {
            file: id,
            offset: root_offset,
            bytes: root_bytes,
            head_bytes: root_bytes,
            head_crc: root_crc,
        };
        Ok(Self {
            id,
            table,
            order,
            offset,
            root,
            root_level,
            rows,
            blocks,
            block_bytes,
        })
    }
}

/// The fields of the footer that lies at `offset` of file `id`, from the version on.
fn verified_footer(database: DatabaseId, id: FileId, offset: u64, bytes: &[u8]) -> Parsed<&[u8]> {
    if bytes.len() != FRAGMENT_FOOTER_BYTES || bytes[..8] != FOOTER_MAGIC {
        return Err("no footer of a fragment is at its end");
    }
    let stored_crc = Reader::new(&bytes[FOOTER_CRC_AT..]).u32()?;
    let crc = sealing_crc(database, id, offset, &[&bytes[..FOOTER_CRC_AT]]);
    if !is_sound(crc, stored_crc) {
        return Err("the checksum of its footer does not match");
    }
    Ok(&bytes[8..FOOTER_CRC_AT])
}

/// Opens a fragment from its own bytes, as the index of its table is not needed to find what is in it: reads its footer
/// and its root page, and returns its root entry.
///
/// # Errors
/// `Corruption` when either fails its checks or the file is missing, `Unsupported` when another version of Thalweg wrote it.
pub fn open_fragment(store: &Store, id: FileId, table: TableId, order: u32) -> Result<Entry> {
    let footer = read_footer(store, id, table, order)?;
    let leads = Entry {
        level: footer.root_level,
        address: footer.root,
        ..Entry::unknown()
    };
    let root = store.load_page(table, &leads)?.total().into_fragment();
    if (root.rows, root.blocks, root.block_bytes)
        != (footer.rows, footer.blocks, footer.block_bytes)
    {
        let what = "its footer and its root page contradict each other";
        return Err(Fault::from(what).at(fragment_name(id).display(), subject_of(table)));
    }
    Ok(root)
}

fn subject_of(table: TableId) -> String {
    format!("the fragment of table {}", table.0)
}

/// Reads and verifies the footer of a fragment.
fn read_footer(store: &Store, id: FileId, table: TableId, order: u32) -> Result<Footer> {
    let name = fragment_name(id);
    let damaged = |fault: Fault| fault.at(name.display(), subject_of(table));
    let file_bytes = store.file(id)?.len_bytes().map_err(|error| {
        let doing = format_args!("reading the length of {}", name.display());
        Error::io(doing, error)
    })?;
    let offset = file_bytes.checked_sub(FRAGMENT_FOOTER_BYTES as u64);
    let offset = offset.ok_or_else(|| damaged("it ends too early".into()))?;
    let footer = store.read(id, offset, FRAGMENT_FOOTER_BYTES)?;
    Footer::parse(store.database(), id, (table, order), offset, &footer).map_err(damaged)
}

/// Checks header, footer and root page of a fragment. `root` is its entry.
///
/// # Errors
/// As [`open_fragment`], with the name of the file.
pub(crate) fn verify_ends(
    store: &Store,
    table: TableId,
    order: u32,
    root: &Entry,
) -> Result<Entry> {
    let id = root.address.file;
    let found = open_fragment(store, id, table, order)?;
    let header = store.read(id, 0, FRAGMENT_HEADER_BYTES)?;
    let mut expected = Vec::new();
    put_header(store.database(), id, (table, order), &mut expected);
    if header != expected {
        let what = format!("the header of a fragment of table {} is damaged", table.0);
        return Err(Error::corruption(fragment_name(id).display(), what));
    }
    if found.address != root.address {
        let what = "the index of its table leads to another root page than its footer";
        return Err(Error::corruption(fragment_name(id).display(), what));
    }
    Ok(found)
}

/// Checks every byte of a fragment and returns how many blocks and pages it has. `root` is its entry.
///
/// # Errors
/// As [`open_fragment`], with the place.
pub fn verify_fragment(
    store: &Store,
    table: TableId,
    order: u32,
    root: &Entry,
) -> Result<(u64, u64)> {
    let found = verify_ends(store, table, order, root)?;
    let tree = Tree::from_root(table, Some(found));
    let pages = tree.check_invariants(store)?;
    let mut blocks = 0;
    for entry in tree.iter(None, store) {
        let entry = entry?;
        let block = store.block(&entry.address)?;
        block.verify()?;
        let spec = block.head().spec();
        if (spec.table, spec.order) != (table, order) || u64::from(spec.rows) != entry.rows {
            let what = format!(
                "a block of table {} is of another table or order, or has other rows",
                table.0
            );
            return Err(Error::corruption(entry.address, what));
        }
        blocks += 1;
    }
    Ok((blocks, pages))
}

#[cfg(test)]
mod tests;
