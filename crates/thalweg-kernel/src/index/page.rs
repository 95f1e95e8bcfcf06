//! A page of the index, in memory and on disk (docs/format/index.md).
//!
//! Invariants
//! - The children of a page of level 1 are items: blocks, and root pages of fragments of any level. Those of a page of
//!   level n + 1 are pages of level n.
//! - Children strictly ascend by `EntryKey`.
//! - A page that has an address is *clean*: it lies there, and so do all pages below it. It is never changed.
//! - On disk a page is sealed: its checksum covers database, file and offset. Verified bytes and pages are different
//!   types; only [`Page::decode`] turns the first into the second.

use super::list::{encode_entries, parse_entries};
use super::{Address, Entry, MAX_LEVEL, MAX_PAGE_ENTRIES, MAX_PAGE_SUMMARIES, MIN_PAGE_FANOUT};
use crate::error::Result;
use crate::ids::{DatabaseId, FileId, ROWS_ORDER, TableId};
use crate::size_limits::page_entries;
use crate::wire::{Fault, Parsed, Reader, is_sound, sealing_crc};
use std::sync::{Arc, OnceLock};

const MAGIC: [u8; 4] = *b"TIPG";
const VERSION: u16 = 2;

const PAGE_HEADER_BYTES: usize = 32;

/// Estimated bytes of a set of columns in front of the entries, and of each column in it.
const SET_BYTES: usize = 4;
const SET_COLUMN_BYTES: usize = 2;

/// Where the checksum lies in the header: it covers all other bytes of the page.
const CRC_AT: usize = 28;

/// An entry of a page, and the page it leads to while that is in memory.
#[derive(Debug)]
pub(super) struct Child {
    /// Its address is of no meaning while `page` is there: the page knows its own.
    pub(super) entry: Entry,
    pub(super) page: Option<Arc<Page>>,
    /// Estimated bytes of the entry in its page; exact for an entry that was read, else measured once.
    bytes: u32,
}

impl Child {
    /// A child to be found by its address: a block, or a page that is on disk.
    pub(super) fn on_disk(entry: Entry) -> Arc<Self> {
        Self::new(entry, None)
    }

    /// The root of a tree that is on disk. It is not measured: no page has its entry, and there may be very many tables.
    pub(super) fn root_on_disk(entry: Entry) -> Arc<Self> {
        Self::measured(entry, None, 0)
    }

    /// A child with its page.
    pub(super) fn in_memory(entry: Entry, page: Page) -> Arc<Self> {
        Self::new(entry, Some(Arc::new(page)))
    }

    fn new(entry: Entry, page: Option<Arc<Page>>) -> Arc<Self> {
        let bytes = entry.encoded_bytes();
        Self::measured(entry, page, bytes)
    }

    fn measured(entry: Entry, page: Option<Arc<Page>>, bytes: usize) -> Arc<Self> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::new(Self { entry, page, bytes })
    }

    /// This child with another entry or page of about the same size.
    pub(super) fn with(&self, entry: Entry, page: Option<Page>) -> Arc<Self> {
        Self::measured(entry, page.map(Arc::new), self.bytes as usize)
    }

    /// The bytes of the page that it leads to, or about what they will be if it is not on disk yet.
    pub(super) fn page_bytes(&self) -> u64 {
        let Some(page) = &self.page else {
            return self.entry.address.bytes.into();
        };
        let address = page.address();
        address.map_or_else(|| page.encoded_bytes(), |address| address.bytes.into())
    }

    /// Where the block or the page lies that it leads to, if that is on disk by now.
    pub(super) fn address(&self) -> Option<Address> {
        let written = |page: &Arc<Page>| page.address();
        self.page.as_ref().map_or(Some(self.entry.address), written)
    }

    /// Its entry with the address of its page, if that has one by now.
    pub(super) fn addressed(&self) -> Option<Entry> {
        match &self.page {
            None => Some(self.entry.clone()),
            Some(page) => page.address().map(|address| Entry {
                address,
                ..self.entry.clone()
            }),
        }
    }
}

/// Totals of the children of a page up to one of them.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Their largest `key_max`: rises, so that a range is found by bisection.
    key_max: i64,
    /// How many column summaries they have.
    summaries: usize,
    /// Estimated bytes of their entries in a page.
    bytes: u64,
}

/// One immutable page.
#[derive(Debug)]
pub struct Page {
    table: TableId,
    level: u8,
    children: Vec<Arc<Child>>,
    /// One for each child: the totals of it and of all children before it.
    marks: Vec<Mark>,
    /// The number of children at the front whose rows are in order, and each of which ends before the next one begins.
    in_order: usize,
    /// Set once the page is on disk.
    address: OnceLock<Address>,
}

/// A source of index pages by address: the store, and others in tests.
pub trait PageLoader {
    /// The page that `entry`, which is not a block, leads to.
    ///
    /// # Errors
    /// When it cannot be read or fails its checks.
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>>;

    /// Offers a page that was just written, so that the next caller who needs it finds it in the cache.
    fn keep_page(&self, _page: &Arc<Page>) {}
}

impl<T: PageLoader + ?Sized> PageLoader for &T {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        (**self).load_page(table, entry)
    }

    fn keep_page(&self, page: &Arc<Page>) {
        (**self).keep_page(page);
    }
}

impl<T: PageLoader + ?Sized> PageLoader for Arc<T> {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        (**self).load_page(table, entry)
    }

    fn keep_page(&self, page: &Arc<Page>) {
        (**self).keep_page(page);
    }
}

impl Page {
    /// A page that is not on disk.
    pub(super) fn new(table: TableId, level: u8, children: Vec<Arc<Child>>) -> Self {
        Self::with_marks(table, level, children, Vec::new(), 0)
    }

    /// A page in the place of `self`, with other children.
    pub(super) fn with_children(&self, children: Vec<Arc<Child>>) -> Self {
        // What is unchanged in front is compared by pointer and not read: appending to a page of 256 entries
        // must not fetch all of them from memory.
        let same = self
            .children
            .iter()
            .zip(&children)
            .take_while(|(old, new)| Arc::ptr_eq(old, new))
            .count();
        let mut marks = Vec::with_capacity(children.len());
        marks.extend_from_slice(&self.marks[..same]);
        let in_order = self.in_order.min(same);
        Self::with_marks(self.table, self.level, children, marks, in_order)
    }

    /// `marks` are those of the first children, as many as are known; of these children the first `in_order` are in order.
    fn with_marks(
        table: TableId,
        level: u8,
        children: Vec<Arc<Child>>,
        mut marks: Vec<Mark>,
        mut in_order: usize,
    ) -> Self {
        assert!((1..=MAX_LEVEL).contains(&level), "a page of level {level}");
        assert!(!children.is_empty(), "a page without entries");
        let mut last = marks.last().copied().unwrap_or(Mark {
            key_max: i64::MIN,
            summaries: 0,
            bytes: 0,
        });
        while in_order >= marks.len() && in_order < children.len() {
            let entry = &children[in_order].entry;
            let keeps_order = match in_order.checked_sub(1) {
                None => entry.sorted,
                Some(before) => entry.keeps_order_after(&children[before].entry),
            };
            if !keeps_order {
                break;
            }
            in_order += 1;
        }
        for Child { entry, bytes, .. } in children[marks.len()..].iter().map(AsRef::as_ref) {
            let key_max = last.key_max.max(entry.key_max);
            last = Mark {
                key_max,
                summaries: last.summaries + entry.columns.len(),
                bytes: last.bytes + u64::from(*bytes),
            };
            marks.push(last);
        }
        Self {
            table,
            level,
            children,
            marks,
            in_order,
            address: OnceLock::new(),
        }
    }

    /// Notes in the entry of this page whether all rows below are in order.
    pub(super) fn note_order(&self, entry: &mut Entry) {
        if let Some(last) = self.children.last() {
            entry.note_order(self.in_order == self.children.len(), &last.entry);
        }
    }

    /// The table whose rows are below.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// 1 for a page of items.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Where the page lies, if it is on disk.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.address.get().copied()
    }

    /// Whether it is the page that `entry` leads to.
    pub(crate) fn is_at(&self, table: TableId, entry: &Entry) -> bool {
        (self.table, self.level, self.address()) == (table, entry.level, Some(entry.address))
    }

    /// Its entries.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.children.iter().map(|child| &child.entry)
    }

    /// The entry of this page over all its entries, with its address if it has one.
    #[must_use]
    pub fn total(&self) -> Entry {
        let total = Entry::of_page(self.level, self.entries());
        let address = self.address().unwrap_or_default();
        // `new` and `decode` refuse pages without entries.
        #[expect(clippy::expect_used, reason = "a page has at least one entry")]
        let total = total.expect("a page has at least one entry");
        Entry { address, ..total }
    }

    /// About what the page takes in memory, without the pages below it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let summaries: usize = self
            .entries()
            .map(|entry| entry.columns.memory_bytes())
            .sum();
        summaries + self.children.len() * (size_of::<Child>() + 48) + size_of::<Self>()
    }

    pub(super) fn children(&self) -> &[Arc<Child>] {
        &self.children
    }

    /// The children that can hold keys of `start..=end` lie in this range of indexes.
    pub(super) fn candidates(&self, start: i64, end: i64) -> std::ops::Range<usize> {
        let first = self.marks.partition_point(|mark| mark.key_max < start);
        let behind = self
            .children
            .partition_point(|child| child.entry.key_min <= end);
        first..behind.max(first)
    }

    /// Notes where the page lies; once only.
    pub(super) fn set_address(&self, address: Address) {
        assert!(
            self.address.set(address).is_ok(),
            "a page of the index was written twice"
        );
    }

    /// The same page without the pages below it in memory, which must be clean.
    pub(super) fn detached(self: &Arc<Self>) -> Arc<Self> {
        if self.children.iter().all(|child| child.page.is_none()) {
            return Arc::clone(self);
        }
        let detach = |child: &Arc<Child>| {
            #[expect(clippy::expect_used, reason = "below a clean page all pages are clean")]
            let entry = child
                .addressed()
                .expect("below a clean page all pages are clean");
            child.with(entry, None)
        };
        let page = Self::new(
            self.table,
            self.level,
            self.children.iter().map(detach).collect(),
        );
        if let Some(address) = self.address() {
            page.set_address(address);
        }
        Arc::new(page)
    }

    /// Whether the page is within the limits of entries and summaries.
    pub(super) fn is_within_limits(&self) -> bool {
        Self::fits(self.children.len(), self.summaries())
    }

    /// Whether the page is less than a quarter full.
    pub(super) fn is_small(&self) -> bool {
        Self::fits(self.children.len() * 4, self.summaries() * 4)
    }

    /// Column summaries of all entries.
    pub(super) fn summaries(&self) -> usize {
        self.marks.last().map_or(0, |mark| mark.summaries)
    }

    /// About what the page takes on disk.
    pub(super) fn encoded_bytes(&self) -> u64 {
        let columns = { self.children.first() }.map_or(0, |child| child.entry.columns.len());
        let before = PAGE_HEADER_BYTES + SET_BYTES + SET_COLUMN_BYTES * columns;
        before as u64 + self.marks.last().map_or(0, |mark| mark.bytes)
    }

    /// Whether a page may hold so many entries with so many summaries.
    pub(super) fn fits(entries: usize, summaries: usize) -> bool {
        entries <= page_entries() && (summaries <= MAX_PAGE_SUMMARIES || entries <= MIN_PAGE_FANOUT)
    }

    /// Verifies the bytes of a page and reads them. `expected` is the entry that leads to it, `bytes` what lies there.
    ///
    /// # Errors
    /// `Corruption` with the place when they are not that page, `Unsupported` when another version of Thalweg wrote it.
    pub fn decode(
        database: DatabaseId,
        table: TableId,
        expected: &Entry,
        bytes: &[u8],
    ) -> Result<Self> {
        let address = expected.address;
        let subject = || format!("the index page of table {}", table.0);
        Self::verify(database, &address, bytes)
            .map_err(Fault::from)
            .and_then(|()| Self::parse(table, expected, bytes))
            .map_err(|fault| fault.at(address, subject()))
    }

    /// The first bytes of a page.
    pub(crate) const MAGIC: [u8; 4] = MAGIC;

    /// Bytes of a page in front of its entries.
    pub(crate) const HEADER_BYTES: usize = PAGE_HEADER_BYTES;

    /// An entry that leads to the page with such a header at a place of a file, which was not checked; `None`: no page begins so.
    pub(crate) fn leading_to((file, offset): (FileId, u64), header: &[u8]) -> Option<Entry> {
        let mut fields = Reader::new(header.strip_prefix(&MAGIC)?);
        // The version; then the level, and what comes before the length.
        fields.take(2).ok()?;
        let level = fields.u8().ok()?;
        fields.take(9).ok()?;
        let body_bytes = fields.u32().ok()?;
        fields.take(8).ok()?;
        let head_crc = fields.u32().ok()?;
        let bytes = body_bytes.checked_add(u32::try_from(PAGE_HEADER_BYTES).ok()?)?;
        let address = Address {
            file,
            offset,
            bytes,
            head_bytes: bytes,
            head_crc,
        };
        Some(Entry {
            level,
            address,
            ..Entry::unknown()
        })
    }

    /// Whether the bytes are those of a page that was written there, of whatever version.
    fn verify(database: DatabaseId, address: &Address, bytes: &[u8]) -> Parsed<()> {
        if bytes.len() != address.bytes as usize || bytes.len() < PAGE_HEADER_BYTES {
            return Err("it has another length");
        }
        if bytes[..4] != MAGIC {
            return Err("no page begins here");
        }
        let mut reader = Reader::new(&bytes[CRC_AT..]);
        let stored_crc = reader.u32()?;
        let parts = [&bytes[..CRC_AT], &bytes[PAGE_HEADER_BYTES..]];
        let crc = sealing_crc(database, address.file, address.offset, &parts);
        if !is_sound(crc, stored_crc) {
            return Err("its checksum does not match");
        }
        if !is_sound(stored_crc, address.head_crc) {
            return Err("it is not the page that was written here");
        }
        Ok(())
    }

    /// Reads the bytes of a page that were verified.
    fn parse(table: TableId, expected: &Entry, bytes: &[u8]) -> Result<Self, Fault> {
        let entries = parse_header(table, expected, bytes)?;
        let mut lengths = Vec::new();
        let list = parse_entries(&bytes[PAGE_HEADER_BYTES..], |bytes| lengths.push(bytes))?;
        if list.len() != entries as usize || list.is_empty() || list.len() > MAX_PAGE_ENTRIES {
            return Err("it has another number of entries".into());
        }
        check_children(expected.level, list.iter())?;
        let children = list.into_iter().zip(lengths);
        let children = children
            .map(|(entry, bytes)| Child::measured(entry, None, bytes))
            .collect();
        let page = Self::new(table, expected.level, children);
        page.set_address(expected.address);
        Ok(page)
    }
}

/// Checks the header of a page, and returns how many entries follow.
fn parse_header(table: TableId, expected: &Entry, bytes: &[u8]) -> Result<u32, Fault> {
    let mut reader = Reader::new(&bytes[4..CRC_AT]);
    let version = reader.u16()?;
    if version != VERSION {
        return Err(Fault::version(version, VERSION));
    }
    let level = reader.u8()?;
    reader.reserved(1)?;
    let (page_table, entries, body_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let order = reader.u32()?;
    reader.reserved(4)?;
    if page_table != table.0 {
        return Err("it is of another table".into());
    }
    if order != ROWS_ORDER {
        return Err("it is of another order".into());
    }
    if level != expected.level || level == 0 || level > MAX_LEVEL {
        return Err("it has another level".into());
    }
    if body_bytes as usize != bytes.len() - PAGE_HEADER_BYTES {
        return Err("it has another length".into());
    }
    Ok(entries)
}

/// Checks the entries of a page against each other: their order and their levels.
pub(super) fn check_children<'a>(
    level: u8,
    mut children: impl Iterator<Item = &'a Entry>,
) -> Parsed<()> {
    let mut before = None;
    children.try_for_each(|entry| {
        if before.replace(entry.key()) >= Some(entry.key()) {
            return Err("its entries are not in order");
        }
        let is_in_place = match level {
            1 => entry.is_block() || entry.fragment,
            _ => entry.level == level - 1 && !entry.fragment,
        };
        if is_in_place {
            Ok(())
        } else {
            Err("an entry has the wrong level")
        }
    })
}

/// The page of an entry, from memory if it is there.
pub(super) fn page_of(table: TableId, child: &Child, loader: &dyn PageLoader) -> Result<Arc<Page>> {
    match &child.page {
        Some(page) => Ok(Arc::clone(page)),
        None => loader.load_page(table, &child.entry),
    }
}

/// Bytes that the unwritten pages below an entry will take on disk, its own page included.
pub(super) fn unwritten_below(child: &Child) -> u64 {
    let Some(page) = { child.page.as_ref() }.filter(|page| page.address().is_none()) else {
        return 0;
    };
    let below: u64 = { page.children().iter() }
        .map(|below| unwritten_below(below))
        .sum();
    page.encoded_bytes() + below
}

/// The bytes of a page that does not know yet where it will lie.
#[derive(Debug)]
pub struct UnsealedPage {
    bytes: Vec<u8>,
}

impl UnsealedPage {
    pub(super) fn new(table: TableId, level: u8, entries: &[Entry]) -> Result<Self> {
        let mut bytes = vec![0; PAGE_HEADER_BYTES];
        encode_entries(entries, &mut bytes)?;
        // Limits on entries and summaries keep a page below 16 MiB.
        let field = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
        let body_bytes = bytes.len() - PAGE_HEADER_BYTES;
        assert!(body_bytes < 1 << 24, "an index page of {body_bytes} bytes");
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = level;
        bytes[8..12].copy_from_slice(&table.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&field(entries.len()));
        bytes[16..20].copy_from_slice(&field(body_bytes));
        bytes[20..24].copy_from_slice(&ROWS_ORDER.to_le_bytes());
        Ok(Self { bytes })
    }

    /// Bytes it will take.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the page, sealed for its place, to `out`; what it returns goes into the entry that leads to it.
    pub fn seal_into(
        mut self,
        database: DatabaseId,
        file: FileId,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Address {
        let head_crc = sealing_crc(
            database,
            file,
            offset,
            &[&self.bytes[..CRC_AT], &self.bytes[PAGE_HEADER_BYTES..]],
        );
        self.bytes[CRC_AT..PAGE_HEADER_BYTES].copy_from_slice(&head_crc.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        let bytes = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        Address {
            file,
            offset,
            bytes,
            head_bytes: bytes,
            head_crc,
        }
    }
}
