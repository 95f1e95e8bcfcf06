//! How much of each file the tables use: the bytes of their blocks and index pages.
//!
//! Invariants: what is known of an order is exact, of one tree of it: that of the last checkpoint, which stores it beside the root
//! (`docs/format/manifest.md`), or one that was walked through since. What is known of a later tree is that and the difference of
//! the two, so pages that both share are not read: a round of cleaning reads nothing of tables that have not changed since
//! the checkpoint, also the first round of an opening. A use is never missing: pages that are not on disk yet have no bytes, and
//! count once they have. Fragments are not entered: all of one is used, or nothing. Changes that wait for a page count once
//! they are made; until then it is not known what their table needs.
//!
//! Rejected: counting at every commit. It puts the bookkeeping on the path of each append and must survive recovery exactly.
//! Rejected as well: a walk through the whole index of each table that has changed, at each round: of 10^9 rows that is a hundred
//! thousand entries for the few blocks that came since.

use crate::error::{Error, Result};
use crate::ids::{FileId, TableId};
use crate::index::{Entry, ItemChange, PageLoader, Tree};
use crate::wire::{Parsed, Reader, put_varint};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes of one file that the tree of an order leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileUse {
    pub(crate) file: FileId,
    pub(crate) block_bytes: u64,
    pub(crate) page_bytes: u64,
}

/// The uses of a tree by file, ascending.
pub(crate) type Uses = Vec<FileUse>;

/// Most bytes of a list that a checkpoint stores, enough for about 130,000 files. Uses with a longer one are found by a walk.
const MAX_STORED_BYTES: usize = 1 << 20;

/// About what one file takes in a list.
const BYTES_OF_ONE_FILE: u64 = 8;

/// A list of few files is in what a table and a checkpoint may take more than estimated.
const BYTES_OF_FEW: u64 = 256 * BYTES_OF_ONE_FILE;

/// The uses of one tree of an order.
#[derive(Clone, Debug)]
pub(crate) struct KnownUses {
    /// Without changes that wait. Frozen: what was not on disk then is not shared with later trees.
    tree: Tree,
    uses: Box<[FileUse]>,
}

impl KnownUses {
    pub(crate) fn new(tree: &Tree, uses: Uses) -> Arc<Self> {
        Arc::new(Self {
            tree: tree.without_pending().frozen(),
            uses: uses.into_boxed_slice(),
        })
    }

    /// The uses of the tree below a root page, which is on disk as a whole.
    fn of_root(tree: &Tree, uses: Uses) -> Self {
        Self {
            tree: tree.clone(),
            uses: uses.into_boxed_slice(),
        }
    }

    pub(crate) fn uses(&self) -> &[FileUse] {
        &self.uses
    }

    /// Whether a tree has the same pages, all of them on disk: there will never be others in their place.
    pub(crate) fn is_of(&self, tree: &Tree) -> bool {
        let root_of = |tree: &Tree| tree.root_entry().map(|root| root.address);
        !tree.is_dirty() && !self.tree.is_dirty() && root_of(tree) == root_of(&self.tree)
    }

    /// By how much the uses of a later tree are others, apart from changes that wait.
    pub(crate) fn changes(&self, newer: &Tree, loader: &dyn PageLoader) -> Result<Changes> {
        let mut changes = Changes::default();
        changes.add_difference(&self.tree, &newer.without_pending(), loader)?;
        Ok(changes)
    }
}

/// The uses of an order, as far as they are known.
#[derive(Clone, Debug)]
pub(crate) enum OrderUses {
    /// Nothing: whoever needs them walks through the tree.
    Unknown,
    /// They were found, or decoded and checked.
    Known(Arc<KnownUses>),
    /// A checkpoint has them. Opening neither decodes nor checks them: there may be very many tables.
    Stored(StoredUses),
}

/// The list that a checkpoint has beside a root page.
#[derive(Clone, Debug)]
pub(crate) struct StoredUses {
    /// The tree below the root page.
    tree: Tree,
    list: ListBytes,
}

/// The bytes of a list. Those of a few files, as most tables have them, take no allocation. Rejected: a slice of the
/// checkpoint, all of which would stay in memory with it.
#[derive(Clone, Debug)]
enum ListBytes {
    Short(u8, [u8; SHORT_LIST_BYTES]),
    Long(Arc<[u8]>),
}

const SHORT_LIST_BYTES: usize = 22;

impl ListBytes {
    fn new(list: &[u8]) -> Self {
        let mut short = [0; SHORT_LIST_BYTES];
        match (u8::try_from(list.len()), short.get_mut(..list.len())) {
            (Ok(length), Some(bytes)) => {
                bytes.copy_from_slice(list);
                Self::Short(length, short)
            }
            _ => Self::Long(list.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, short) => &short[..usize::from(*length)],
            Self::Long(list) => list,
        }
    }
}

impl OrderUses {
    /// The uses of an order that is made.
    pub(crate) fn of_nothing(table: TableId) -> Self {
        Self::stored(&Tree::empty(table), &[])
    }

    /// The list that a checkpoint has beside the root of a tree.
    pub(crate) fn stored(tree: &Tree, list: &[u8]) -> Self {
        if list.is_empty() && !tree.is_empty() {
            return Self::Unknown;
        }
        Self::Stored(StoredUses {
            tree: tree.clone(),
            list: ListBytes::new(list),
        })
    }

    /// The uses, decoded and checked; `None`: they are not known.
    ///
    /// # Errors
    /// When a list that is stored cannot be that of the tree below its root.
    pub(crate) fn known(&self) -> Parsed<Option<Cow<'_, KnownUses>>> {
        match self {
            Self::Unknown => Ok(None),
            Self::Known(known) => Ok(Some(Cow::Borrowed(known))),
            Self::Stored(StoredUses { tree, list }) => {
                let uses = get_uses(list.bytes(), tree.root_entry().as_ref())?;
                Ok(uses.map(|uses| Cow::Owned(KnownUses::of_root(tree, uses))))
            }
        }
    }

    /// About as many bytes as they take in a checkpoint beyond those of a few files.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Known(known) => {
                (known.uses().len() as u64 * BYTES_OF_ONE_FILE).saturating_sub(BYTES_OF_FEW)
            }
            Self::Stored(stored) => (stored.list.bytes().len() as u64).saturating_sub(BYTES_OF_FEW),
        }
    }
}

impl From<Option<Arc<KnownUses>>> for OrderUses {
    fn from(known: Option<Arc<KnownUses>>) -> Self {
        known.map_or(Self::Unknown, Self::Known)
    }
}

/// The uses of a tree, and how they were found.
pub(crate) enum Found<'a> {
    /// From what was known of an earlier tree.
    Known(Cow<'a, [FileUse]>),
    /// By a walk through all of it.
    Walked(Uses),
}

impl std::ops::Deref for Found<'_> {
    type Target = [FileUse];

    fn deref(&self) -> &[FileUse] {
        match self {
            Self::Known(uses) => uses,
            Self::Walked(uses) => uses,
        }
    }
}

/// The uses of a tree, from what is known of one before it.
///
/// # Errors
/// When a page cannot be read, or changes of the tree wait for one; with the uses that were found.
pub(crate) fn uses_of<'a>(
    known: Option<&'a KnownUses>,
    tree: &Tree,
    loader: &dyn PageLoader,
) -> Result<Found<'a>, (Error, Uses)> {
    if let Err(error) = tree.check_settled() {
        return Err((error, Uses::new()));
    }
    if let Some(known) = known {
        if known.is_of(tree) {
            return Ok(Found::Known(Cow::Borrowed(known.uses())));
        }
        // Files of the tree before were needed until now. Where one of its pages cannot be read all the same, a walk
        // through the new tree finds everything.
        let changes = known.changes(tree, loader).ok();
        if let Some(uses) = changes.and_then(|changes| changes.added_to(known.uses())) {
            return Ok(Found::Known(Cow::Owned(uses)));
        }
    }
    found_in(tree, loader).map(Found::Walked)
}

/// The uses of a tree, by a walk through all of it.
///
/// # Errors
/// See [`uses_of`].
pub(crate) fn found_in(tree: &Tree, loader: &dyn PageLoader) -> Result<Uses, (Error, Uses)> {
    let mut changes = Changes::default();
    let walked = changes.add_difference(&Tree::empty(tree.table()), tree, loader);
    let uses = changes.added_to(&[]).unwrap_or_default();
    match walked {
        Ok(()) => Ok(uses),
        Err(error) => Err((error, uses)),
    }
}

/// By how much uses change: bytes of blocks and of pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(BTreeMap<FileId, (i128, i128)>);

impl Changes {
    fn add_difference(
        &mut self,
        older: &Tree,
        newer: &Tree,
        loader: &dyn PageLoader,
    ) -> Result<()> {
        for change in older.difference(newer, loader).with_pages() {
            match change? {
                ItemChange::Removed(entry) => self.add(&entry, -1),
                ItemChange::Added(entry) => self.add(&entry, 1),
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry, sign: i128) {
        let bytes = i128::from(entry.address.bytes);
        let (blocks, pages) = match entry {
            block if block.is_block() => (bytes, 0),
            fragment if fragment.fragment => (i128::from(fragment.block_bytes), bytes),
            _ => (0, bytes),
        };
        let change = self.0.entry(entry.address.file).or_default();
        change.0 += sign * blocks;
        change.1 += sign * pages;
    }

    /// Pages are written to a file that were not on disk.
    pub(crate) fn add_pages(&mut self, file: FileId, bytes: u64) {
        self.0.entry(file).or_default().1 += i128::from(bytes);
    }

    /// The uses with these changes, but for files that are not used any more; `None` if there would be less than none of one.
    pub(crate) fn added_to(self, uses: &[FileUse]) -> Option<Uses> {
        let mut changes = self.0;
        for used in uses {
            let change = changes.entry(used.file).or_default();
            change.0 += i128::from(used.block_bytes);
            change.1 += i128::from(used.page_bytes);
        }
        let is_used = |(_, bytes): &(FileId, (i128, i128))| *bytes != (0, 0);
        let uses = changes.into_iter().filter(is_used);
        uses.map(|(file, (block_bytes, page_bytes))| {
            Some(FileUse {
                file,
                block_bytes: u64::try_from(block_bytes).ok()?,
                page_bytes: u64::try_from(page_bytes).ok()?,
            })
        })
        .collect()
    }
}

/// Writes the uses of the tree below a root page; nothing if they are not known, or too many.
pub(crate) fn put_uses(uses: Option<&[FileUse]>, out: &mut Vec<u8>) {
    let (start, mut last) = (out.len(), 0);
    for used in uses.unwrap_or_default() {
        put_varint((used.file.0 - last).into(), out);
        put_varint(used.block_bytes.into(), out);
        put_varint(used.page_bytes.into(), out);
        last = used.file.0;
    }
    if out.len() - start > MAX_STORED_BYTES {
        out.truncate(start);
    }
}

/// Whether uses can be those of the tree below a root page: they have the page, and as many bytes of blocks as it says.
pub(crate) fn may_be_of(uses: &[FileUse], root: Option<&Entry>) -> bool {
    let Some(root) = root else {
        return uses.is_empty();
    };
    let of_root = uses.binary_search_by_key(&root.address.file, |used| used.file);
    let has_root = of_root.is_ok_and(|at| uses[at].page_bytes >= root.address.bytes.into());
    let mut blocks = uses.iter().map(|used| used.block_bytes);
    let sum = blocks.try_fold(0_u64, u64::checked_add);
    // There is no file 0, but a hostile writer may have named it.
    let has_files = uses.first().is_some_and(|used| used.file > FileId(0));
    has_files && has_root && sum == Some(root.block_bytes)
}

/// The only spelling of the uses that these bytes encode, for whoever tries any bytes.
#[doc(hidden)]
#[must_use]
pub fn respelled_uses(bytes: &[u8], root: Option<&Entry>) -> Option<Vec<u8>> {
    let uses = get_uses(bytes, root).ok()?;
    let mut again = Vec::new();
    put_uses(uses.as_deref(), &mut again);
    Some(again)
}

/// Reads the uses of the tree below a root page; `None`: they are not known.
pub(crate) fn get_uses(bytes: &[u8], root: Option<&Entry>) -> Parsed<Option<Uses>> {
    let mut reader = Reader::new(bytes);
    // There may be very many tables: of just as many as there are, three numbers each.
    let numbers = bytes.iter().filter(|byte| **byte < 0x80).count();
    let (mut uses, mut last) = (Uses::with_capacity(numbers / 3), 0_u64);
    while reader.left_bytes() > 0 {
        let step = reader.varint_u64()?;
        let file = last.checked_add(step).filter(|file| *file > last);
        last = file.ok_or("uses of files do not ascend")?;
        let used = FileUse {
            file: FileId(last),
            block_bytes: reader.varint_u64()?,
            page_bytes: reader.varint_u64()?,
        };
        match used.block_bytes.checked_add(used.page_bytes) {
            Some(1..) => {}
            Some(0) => return Err("a file is said to be used, and nothing of it is"),
            None => return Err("more of a file is said to be used than files have"),
        }
        uses.push(used);
    }
    if uses.is_empty() && root.is_some() {
        return Ok(None);
    }
    if !may_be_of(&uses, root) {
        return Err("the uses of files are not those of the index");
    }
    Ok(Some(uses))
}
