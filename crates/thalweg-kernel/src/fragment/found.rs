//! Blocks of a fragment below an index page that is damaged, found by reading the file.
//!
//! Invariants
//! - A page that is whole at its place of a fragment's file is part of its index: the file was written once, its id is never used
//!   again, and the page is sealed. So what is found below a page that the file's own pages lead to needs no proof.
//! - But copies of a database that go on apart may give one id to two files. Where the root page is damaged, the file is only
//!   taken for the one that the index means if its footer names that page, or if what is found adds up.
//! - The pages below a page lie before it in the file; of the pages before it, those that are not below it have smaller keys.
//! - Nothing describes the blocks of a damaged page of level 1.

use super::{FRAGMENT_HEADER_BYTES, read_footer};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, ROWS_ORDER, TableId};
use crate::index::{Entry, Heritage, Page, unequal_totals};
use crate::store::Store;

/// How much of the file is looked through at once for the next page, where one is damaged.
const WINDOW_BYTES: u64 = 256 << 10;

/// The blocks below a damaged page of a fragment as far as whole pages of level 1 lead to them, in the order of their ranks.
/// `root` is the entry of the fragment. `needs_ranks`: none where some are missing, for the ranks of those after them are not known.
///
/// # Errors
/// Those of reading that are no damage.
pub(crate) fn blocks_below(
    store: &Store,
    table: TableId,
    (root, page): (&Entry, &Entry),
    needs_ranks: bool,
) -> Result<Vec<Entry>> {
    if page.level < 2 {
        return Ok(Vec::new());
    }
    let heritage = Heritage::below(root);
    let inherit = |entry: &Entry| Heritage::give(heritage, entry).unwrap_or_else(|| entry.clone());
    let mut blocks: Vec<Entry> = Vec::new();
    let mut note = |found: &Page| {
        let is_below = found.level() == 1 && inherit(&found.total()).key() >= page.key();
        if is_below && found.entries().all(|entry| entry.check().is_ok()) {
            blocks.extend(found.entries().map(inherit));
        }
    };
    match each_page(store, table, (root, page), &mut note) {
        Err(error) if error.kind() != ErrorKind::Corruption => return Err(error),
        // The file is missing, or was cut: what was found counts.
        _ => {}
    }
    let adds_up = || {
        let total = Entry::of_page(page.level, &blocks);
        total.is_some_and(|total| unequal_totals(page, &total).is_none())
    };
    let is_complete = blocks.len() as u64 == page.blocks;
    let is_of_index = !page.fragment || is_named_by_footer(store, table, page)? || adds_up();
    if !is_of_index || (needs_ranks && !is_complete) {
        blocks.clear();
    }
    Ok(blocks)
}

/// Whether the footer of the file of a root page is whole and names that page.
fn is_named_by_footer(store: &Store, table: TableId, root: &Entry) -> Result<bool> {
    let footer = read_footer(store, root.address.file, table, ROWS_ORDER);
    match footer {
        Ok(footer) => Ok(footer.root == root.address),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(false),
        Err(error) => Err(error),
    }
}

/// Calls `note` with each whole page of the file between the blocks and `page`.
fn each_page(
    store: &Store,
    table: TableId,
    (root, page): (&Entry, &Entry),
    note: &mut dyn FnMut(&Page),
) -> Result<()> {
    let id = page.address.file;
    let file_bytes = store.file(id)?.len_bytes();
    let file_bytes =
        file_bytes.map_err(|error| Error::io("reading the length of a fragment", error))?;
    let end = page.address.offset.min(file_bytes);
    let mut at = FRAGMENT_HEADER_BYTES as u64 + root.block_bytes;
    while at < end {
        match page_at(store, table, (id, at), end)? {
            Some(found) => {
                let bytes = found.address().map_or(1, |address| address.bytes);
                at += u64::from(bytes);
                note(&found);
            }
            None => at = next_page(store, id, at + 1, end)?,
        }
    }
    Ok(())
}

/// The page that begins at a place and ends before `end`; `None`: none that is whole does.
fn page_at(
    store: &Store,
    table: TableId,
    (id, at): (FileId, u64),
    end: u64,
) -> Result<Option<Page>> {
    if at + Page::HEADER_BYTES as u64 > end {
        return Ok(None);
    }
    let header = store.read(id, at, Page::HEADER_BYTES)?;
    let leading = Page::leading_to((id, at), &header);
    let Some(leading) = leading.filter(|page| at + u64::from(page.address.bytes) <= end) else {
        return Ok(None);
    };
    let bytes = store.read(id, at, leading.address.bytes as usize)?;
    Ok(Page::decode(store.database(), table, &leading, &bytes).ok())
}

/// Where the next page may begin, from a place on; `end` if nowhere.
fn next_page(store: &Store, id: FileId, from: u64, end: u64) -> Result<u64> {
    let magic = &Page::MAGIC;
    let mut at = from;
    while at + magic.len() as u64 <= end {
        let bytes = usize::try_from((end - at).min(WINDOW_BYTES)).unwrap_or(magic.len());
        let window = store.read(id, at, bytes)?;
        let mut places = window.windows(magic.len());
        if let Some(place) = places.position(|bytes| bytes == magic) {
            return Ok(at + place as u64);
        }
        // It may begin with the last bytes of this window.
        at += (bytes - magic.len() + 1) as u64;
    }
    Ok(end)
}
