//! Checking everything that the newest snapshot can reach, without changing anything.
//!
//! Invariants
//! - Bytes are read from the files, whatever is in memory: a cached page must not hide a damaged one. Only pages that
//!   were never written are taken as they are.
//! - Damage ends the check of what lies below it and of nothing else; every piece of it is listed with its place. Nothing
//!   lies below the header of a file and the footer of a fragment: reading needs neither. Blocks below a damaged page of a
//!   fragment that a repair can find are checked for it.
//! - What a crash may leave is not damage: the torn end of the log, files that nothing leads to.

use crate::bases::Bases;
use crate::block::{self, ROWS_ORDER};
use crate::error::{Error, ErrorKind, Result};
use crate::file_uses::{KnownUses, OrderUses, found_in};
use crate::fragment::{blocks_below, verify_ends};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{Entry, ItemName, Page, Place, Step, Tree, Walk, check_page};
use crate::kernel::Kernel;
use crate::live::{LiveFile, same_boot};
use crate::masks::{BlockMask, MaskList};
use crate::open::writer_is_alive;
use crate::paths::{LIVE_NAME, ROOT_NAME, fragment_name, segment_name};
use crate::replay::Replay;
use crate::root::RootFile;
use crate::segment::read_header;
use crate::state::TableSnapshot;
use crate::store::Store;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use thalweg_env::Env;

/// How often the log is read again when it seems damaged and a writer is at work: the writer may have changed it
/// meanwhile.
const ATTEMPTS: usize = 16;
/// In how many snapshots a table is checked at most, if each of them expires.
const SNAPSHOTS: usize = 4;

/// The result of a verification: what was checked, and what was found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables.
    pub tables: u64,
    /// Rows of the blocks that are whole, and open rows.
    pub rows: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of blocks and index pages.
    pub bytes: u64,
    /// Pages of the index.
    pub pages: u64,
    /// Data files of one table.
    pub fragments: u64,
    /// Segments of the log that hold blocks or pages.
    pub segments: u64,
    /// Frames of the log after the last checkpoint.
    pub frames: u64,
    /// Everything that failed its checks; empty when all is well.
    pub damage: Vec<Damage>,
}

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, from the database's folder on.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// The table that loses something.
    pub table: Option<String>,
    /// The order keys between which its rows are missing.
    pub keys: Option<(i64, i64)>,
    /// How many rows are missing, where that is known.
    pub rows: Option<u64>,
    /// The first and the last commit that is missing, of damage to the log.
    pub commits: Option<(CommitNo, CommitNo)>,
    /// A description of what is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, offset {}: {}",
            self.file.display(),
            self.offset,
            self.what
        )
    }
}

impl VerifyReport {
    /// The counts alone, without the damage.
    fn counts(&self) -> Self {
        Self {
            damage: Vec::new(),
            ..*self
        }
    }
}

impl Kernel {
    /// Reads and checks the log after the last checkpoint, and every index page, block and fragment of every table of
    /// the newest snapshot. A table whose files went meanwhile, because the snapshot has expired, is checked again in a new one.
    /// `on_bytes` is called with how many more bytes were checked.
    ///
    /// # Errors
    /// When there is no snapshot to check; `SnapshotExpired` when a table takes longer than its snapshot may last, again and
    /// again; when the system has no descriptors or memory for a read. Damage is not an error but in the report.
    pub fn verify(&self, on_bytes: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        self.store().check_open()?;
        let mut snapshot = self.snapshot()?;
        let mut check = Check::new(self.store(), on_bytes);
        check.log()?;
        let tables: Vec<TableId> = snapshot.tables().map(|table| table.id).collect();
        for id in tables {
            let mut attempt = 1;
            // Of a newer snapshot: it may have been dropped.
            while let Some(table) = snapshot.table(id) {
                // Without the damage: to copy that for each table would take time with the square of its
                // length.
                let (counts, damaged) = (check.report.counts(), check.report.damage.len());
                check.table(&table)?;
                // Closed meanwhile: what could not be read any more is no damage.
                self.store().check_open()?;
                match check.failed.take().filter(is_of_the_call) {
                    None => break,
                    Some(error)
                        if error.kind() == ErrorKind::SnapshotExpired && attempt < SNAPSHOTS =>
                    {
                        attempt += 1;
                        check.forget_table(id, counts, damaged);
                        snapshot = self.snapshot()?;
                    }
                    Some(error) => return Err(error),
                }
            }
        }
        Ok(check.report)
    }
}

/// Whether it is of a call that failed rather than of bytes that are missing or damaged.
fn is_of_the_call(error: &Error) -> bool {
    !error.is_of_unreadable_bytes() && error.kind() != ErrorKind::NotFound
}

/// A check under way.
pub(crate) struct Check<'a> {
    store: &'a Store,
    pub(crate) report: VerifyReport,
    /// Files whose own headers were checked.
    seen: HashSet<FileId>,
    /// Those of them that were checked for the last table.
    seen_for_table: Vec<FileId>,
    /// Files whose header or footer is damaged.
    pub(crate) bad_files: HashSet<FileId>,
    /// Blocks and pages that are damaged, each with its table and order.
    pub(crate) bad_entries: Vec<((TableId, u32), Entry)>,
    /// An error that was not damage but a failed call; that of a device that does not return the bytes only if there is
    /// no other one.
    pub(crate) failed: Option<Error>,
    on_bytes: &'a mut dyn FnMut(u64),
    /// Blocks below damaged pages of fragments are looked for.
    finds_blocks: bool,
    /// The order that is checked.
    order: u32,
    /// Rows of the blocks that are hidden as a whole, of the table that is checked: by item and rank of the first one.
    whole_blocks: WholeBlocks,
}

type WholeBlocks = HashMap<(ItemName, u32), u64>;

impl<'a> Check<'a> {
    pub(crate) fn new(store: &'a Store, on_bytes: &'a mut dyn FnMut(u64)) -> Self {
        Self {
            store,
            report: VerifyReport::default(),
            seen: HashSet::new(),
            seen_for_table: Vec::new(),
            bad_files: HashSet::new(),
            bad_entries: Vec::new(),
            failed: None,
            on_bytes,
            finds_blocks: false,
            order: ROWS_ORDER,
            whole_blocks: WholeBlocks::new(),
        }
    }

    /// The same check for a repair, which keeps the blocks that it can find below damaged pages of fragments.
    pub(crate) fn finding_blocks(self) -> Self {
        Self {
            finds_blocks: true,
            ..self
        }
    }
}

impl Check<'_> {
    /// The log from the checkpoint to its end.
    fn log(&mut self) -> Result<()> {
        let (env, dir) = (self.store.env(), self.store.dir());
        for attempt in 1..=ATTEMPTS {
            let newest = || RootFile::open(env, dir, false).map(|root| root.current);
            // Asked for before as well: the writer may close, and another one open and close, while the log is read.
            let (root, is_alive) = (newest(), writer_is_alive(env, dir)?);
            let may_change = || {
                let is_new = matches!((&root, newest()), (Ok(root), Ok(now)) if *root != now);
                Ok::<_, Error>(is_new || is_alive || writer_is_alive(env, dir)?)
            };
            match check_log(self.store) {
                Ok(frames) => {
                    self.report.frames = frames;
                    self.root()?;
                    return self.live();
                }
                Err(_) if attempt < ATTEMPTS && may_change()? => {}
                Err((_, error)) if is_of_the_call(&error) => return Err(error),
                Err((at, error)) => {
                    self.report.damage.push(log_damage(at, &error));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A slot of the root that the device does not return may be the newer one: then what was checked is not all there is.
    fn root(&mut self) -> Result<()> {
        let (env, dir) = (self.store.env(), self.store.dir());
        let unreadable = match RootFile::open(env, dir, false) {
            Ok(file) => file.unreadable_slot,
            // A writer may have been writing both slots: they could be read before.
            Err(_) if writer_is_alive(env, dir)? => None,
            Err(error) => return Err(error),
        };
        if let Some(error) = unreadable
            && !writer_is_alive(env, dir)?
        {
            let what = format!("cannot be read: {}", error.message());
            self.report.damage.push(slot_damage(ROOT_NAME, what));
        }
        Ok(())
    }

    /// Both slots of `live`, unless a writer may be writing one, or was when the power was cut: it is not synced before
    /// the database is closed.
    fn live(&mut self) -> Result<()> {
        let (env, dir) = (self.store.env(), self.store.dir());
        let slots = LiveFile::open_reader(env, dir)?.map(|live| live.read_slots());
        let boot = env.clock().boot_id();
        let is_damaged = slots.transpose()?.is_some_and(|slots| {
            let is_of_this_boot = slots.said.is_none_or(|said| same_boot(said.boot, boot));
            slots.is_damaged && is_of_this_boot
        });
        if is_damaged && !writer_is_alive(env, dir)? {
            let what = "a slot does not verify: the log says what was stored";
            self.report
                .damage
                .push(slot_damage(LIVE_NAME, what.to_owned()));
        }
        Ok(())
    }

    /// All that the index of a table leads to.
    pub(crate) fn table(&mut self, table: &TableSnapshot) -> Result<()> {
        self.report.tables += 1;
        self.seen_for_table.clear();
        for open in table.open_rows() {
            self.report.rows += u64::from(open.part.rows);
        }
        let damage_before = self.report.damage.len();
        for (order, tree) in table.trees() {
            self.order(table, order, tree);
            if self.report.damage.len() == damage_before {
                self.uses(table, order, tree);
            }
        }
        self.masks(table, self.report.damage.len() == damage_before);
        Ok(())
    }

    /// Checks that each mask is of an item or of open rows that are there, and hides no more of them than there is. Masks
    /// of items are not checked where changes wait for a page. `is_whole`: all blocks of the table were seen.
    fn masks(&mut self, table: &TableSnapshot, is_whole: bool) {
        let whole_blocks = std::mem::take(&mut self.whole_blocks);
        let Some(masks) = table.masks() else {
            return;
        };
        let open: HashMap<(CommitNo, u32), u32> = { table.open_rows() }
            .map(|open| ((open.commit, open.number), open.part.rows))
            .collect();
        for (place, mask) in masks.all_parts() {
            if open.get(place) != Some(&mask.rows) {
                let key = table.tree.total().map_or(0, |total| total.key_max);
                let what = "rows are deleted of open rows that are not there";
                self.mask_damage(table, key, what);
            }
        }
        if table.tree.pending().is_some() {
            return;
        }
        for (name, list) in masks.all_items() {
            // A page that cannot be read was found already.
            let Ok(found) = table.tree.item(name.key, self.store) else {
                continue;
            };
            let found = found.filter(|found| ItemName::of(found) == *name);
            let what = match found {
                None => "rows are deleted of a block that is not there",
                Some(found) if list.rows() >= found.rows => {
                    "all rows are deleted of a block that is there"
                }
                Some(found) if list.end() > found.blocks => {
                    "rows are deleted of more blocks than a file has"
                }
                Some(_) if is_whole && !are_their_rows(name, list, &whole_blocks) => {
                    "blocks that are deleted as a whole have other rows"
                }
                Some(_) => continue,
            };
            self.mask_damage(table, name.key.key_min, what);
        }
    }

    fn mask_damage(&mut self, table: &TableSnapshot, key: i64, what: &str) {
        let mut at = Entry::unknown();
        (at.key_min, at.key_max) = (key, key);
        let error = Error::corruption(format_args!("the masks of table {}", table.id.0), what);
        self.note_failure(&error);
        let file = PathBuf::from(ROOT_NAME);
        let damage = entry_damage(file, &table.name, ROWS_ORDER, &at, &error);
        self.report.damage.push(damage);
    }

    /// All that the tree of an order leads to.
    fn order(&mut self, table: &TableSnapshot, order: u32, tree: &Tree) {
        self.order = order;
        let damage_before = self.report.damage.len();
        let pages = tree.without_pending();
        let root = pages.total().map_or_else(Entry::unknown, Entry::clone);
        self.walk(table, root, pages.walk(None, self.store));
        let Some(pending) = tree.pending() else {
            return;
        };
        for item in &pending.added {
            match item.is_block() {
                true => self.block(table, item),
                false => {
                    let fragment = Tree::from_root(table.id, Some(item.clone()));
                    let walk = fragment.walk(None, self.store);
                    self.walk(table, item.clone(), walk.below(ItemName::of(item)));
                }
            }
        }
        // What waits for a page that is whole again is made part of the index by the next commit.
        if let Err(error) = tree.settled(self.store)
            && self.report.damage.len() == damage_before
        {
            let root = tree.total().map_or_else(Entry::unknown, Entry::clone);
            self.damage(table, &root, &error);
        }
    }

    /// Checks that what is known of the uses of files is what a walk finds.
    fn uses(&mut self, table: &TableSnapshot, order: u32, tree: &Tree) {
        let are_right = match table.uses_of(order).map(OrderUses::known) {
            None | Some(Ok(None)) => true,
            Some(Ok(Some(known))) => self.are_right(&known, tree),
            Some(Err(_)) => false,
        };
        if are_right {
            return;
        }
        self.report.damage.push(Damage {
            file: PathBuf::from(ROOT_NAME),
            offset: 0,
            table: Some(table.name.to_string()),
            keys: None,
            rows: Some(0),
            commits: None,
            what: format!(
                "the checkpoint says of files of order {order} that other bytes are used than are"
            ),
        });
    }

    /// Whether what is known of the uses of an earlier tree leads to what a walk through this one finds. What cannot be read
    /// was found already, or is not needed any more.
    fn are_right(&self, known: &KnownUses, tree: &Tree) -> bool {
        // As it is now: pages of it may be written meanwhile.
        let tree = tree.frozen();
        let Ok(changes) = known.changes(&tree, self.store) else {
            return true;
        };
        let found = found_in(&tree, self.store);
        found.is_err() || changes.added_to(known.uses()) == found.ok()
    }

    /// Takes back what was found since the check of this table began, when there were so many `damaged` places.
    fn forget_table(&mut self, table: TableId, counts: VerifyReport, damaged: usize) {
        let mut damage = std::mem::take(&mut self.report.damage);
        damage.truncate(damaged);
        self.report = VerifyReport { damage, ..counts };
        self.bad_entries.retain(|((of, _), _)| *of != table);
        for id in self.seen_for_table.drain(..) {
            self.seen.remove(&id);
            self.bad_files.remove(&id);
        }
    }

    /// All that a walk from a root leads to.
    fn walk(&mut self, table: &TableSnapshot, root: Entry, mut walk: Walk<&Store>) {
        let mut opened = root;
        loop {
            let next = walk.next_at(|entry, place| {
                let step = self.entry(table, entry, place);
                if matches!(step, Step::Descend) {
                    opened = entry.clone();
                }
                step
            });
            match next {
                Ok(Some(block)) => {
                    let place = walk.place();
                    self.block(table, &block);
                    self.mask(table, &block, place);
                }
                Ok(None) => return,
                // The page was whole when `entry` looked: it changed since, and the rest of the table is out of reach.
                Err(error) => return self.damage(table, &opened, &error),
            }
        }
    }

    /// Checks an entry on the way down: below a damaged page there is no way.
    fn entry(&mut self, table: &TableSnapshot, entry: &Entry, place: Option<Place>) -> Step {
        if entry.is_block() {
            return Step::Take;
        }
        self.report.pages += 1;
        if entry.address.bytes == 0 {
            // In memory alone.
            return Step::Descend;
        }
        match self.page(table, entry) {
            Ok(()) => {
                self.file(table, entry);
                Step::Descend
            }
            Err(error) => {
                self.damage(table, entry, &error);
                if let Some(place) = place.filter(|_| self.finds_blocks) {
                    self.find_blocks(table, entry, place);
                }
                Step::Skip
            }
        }
    }

    /// Checks the blocks that are found below a damaged page of a fragment.
    fn find_blocks(&mut self, table: &TableSnapshot, page: &Entry, place: Place) {
        let found = self.blocks_below(table, page, place);
        let found = found.unwrap_or_else(|error| {
            self.note_failure(&error);
            Vec::new()
        });
        // Its root page may be the damaged one: that is listed.
        let file = page.address.file;
        if !found.is_empty() && self.seen.insert(file) {
            self.seen_for_table.push(file);
            self.bad_files.insert(file);
        }
        let rows: u64 = found.iter().map(|block| block.rows).sum();
        if let Some(damage) = self.report.damage.last_mut().filter(|_| rows > 0) {
            let lost = page.rows.saturating_sub(rows);
            damage.rows = damage.rows.map(|rows| rows.min(lost));
            damage.what = match lost {
                0 => format!("{}; what lies below it was found", damage.what),
                _ => format!("{}; {rows} rows below it were found", damage.what),
            };
        }
        for (rank, block) in (place.rank..).zip(&found) {
            self.block(table, block);
            self.mask(table, block, Some(Place { rank, ..place }));
        }
    }

    fn blocks_below(
        &self,
        table: &TableSnapshot,
        page: &Entry,
        place: Place,
    ) -> Result<Vec<Entry>> {
        let is_of_place = |item: &&Entry| ItemName::of(item) == place.item;
        let root = match table.tree_of(self.order) {
            _ if page.fragment => Some(page.clone()),
            None => None,
            Some(tree) => {
                let pending = tree.pending();
                match pending.and_then(|p| p.added.iter().find(is_of_place)) {
                    Some(added) => Some(added.clone()),
                    None => tree.item(place.item.key, self.store)?,
                }
            }
        };
        let masks = table.masks().filter(|_| self.order == ROWS_ORDER);
        let is_masked = masks.is_some_and(|masks| masks.of_item(&place.item).is_some());
        match root {
            Some(root) => blocks_below(self.store, table.id, (&root, page), is_masked),
            None => Ok(Vec::new()),
        }
    }

    fn page(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<()> {
        let address = entry.address;
        let bytes = self
            .store
            .read(address.file, address.offset, address.bytes as usize)?;
        self.count_bytes(address.bytes);
        check_page(
            entry,
            &Page::decode(self.store.database(), table.id, entry, &bytes)?,
        )
    }

    fn block(&mut self, table: &TableSnapshot, entry: &Entry) {
        self.report.blocks += 1;
        match self.check_block(table, entry) {
            Ok(()) => {
                self.file(table, entry);
                if self.order == ROWS_ORDER {
                    self.report.rows += entry.rows;
                }
            }
            Err(error) => self.damage(table, entry, &error),
        }
    }

    /// Checks that the hidden rows of a block are there.
    fn mask(&mut self, table: &TableSnapshot, block: &Entry, place: Option<Place>) {
        let (Some(place), Some(masks)) = (place, table.masks()) else {
            return;
        };
        let rank = u32::try_from(place.rank).ok();
        let list = masks.of_item(&place.item);
        let mask = list.and_then(|list| list.mask_over(rank?));
        let is_there = match mask.filter(|_| self.order == ROWS_ORDER) {
            None => true,
            Some((_, BlockMask::Rows(positions))) => u64::from(positions.end()) <= block.rows,
            Some((first, BlockMask::Blocks { .. })) => {
                let rows = self.whole_blocks.entry((place.item, first)).or_default();
                *rows = rows.saturating_add(block.rows);
                true
            }
        };
        if !is_there {
            let error = Error::corruption(block.address, "rows are deleted that it does not have");
            self.damage(table, block, &error);
        }
    }

    fn check_block(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<()> {
        let address = entry.address;
        let bytes = self
            .store
            .read(address.file, address.offset, address.bytes as usize)?;
        self.count_bytes(address.bytes);
        let head = block::verify(&bytes, &address)?;
        let spec = head.spec();
        if (spec.table, spec.order) != (table.id, self.order) {
            let what = format!(
                "the block is of order {} of table {}",
                spec.order, spec.table.0
            );
            return Err(Error::corruption(address, what));
        }
        if head.rows() as u64 != entry.rows {
            let what = format!(
                "the block has {} rows, its index says {}",
                head.rows(),
                entry.rows
            );
            return Err(Error::corruption(address, what));
        }
        Ok(())
    }

    /// Header of the file that a whole entry lies in, and the footer of a fragment, once per file. Of a fragment the
    /// first entry that leads into it is its root page.
    fn file(&mut self, table: &TableSnapshot, entry: &Entry) {
        let id = entry.address.file;
        if !self.seen.insert(id) {
            return;
        }
        self.seen_for_table.push(id);
        if let Err(error) = self.check_file(table, entry) {
            self.note_failure(&error);
            self.bad_files.insert(id);
            let file = self.name(id);
            self.report.damage.push(Damage {
                what: without_place(&error, &file.display()),
                file,
                offset: 0,
                table: Some(table.name.to_string()),
                keys: None,
                rows: Some(0),
                commits: None,
            });
        }
    }

    fn check_file(&mut self, table: &TableSnapshot, entry: &Entry) -> Result<()> {
        let id = entry.address.file;
        if self.store.is_fragment(id)? {
            self.report.fragments += 1;
            return verify_ends(self.store, table.id, self.order, entry).map(|_| ());
        }
        self.report.segments += 1;
        let name = segment_name(id);
        let damage = |what: &str| Error::corruption(name.display(), what);
        let header = read_header(&*self.store.file(id)?, &name)?;
        let header = header.ok_or_else(|| damage("the segment has no header"))?;
        if (header.database, header.file) != (self.store.database(), id) {
            return Err(damage(
                "the segment is of another database or has another number",
            ));
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: u32) {
        self.report.bytes += u64::from(bytes);
        (self.on_bytes)(u64::from(bytes));
    }

    fn damage(&mut self, table: &TableSnapshot, entry: &Entry, error: &Error) {
        self.note_failure(error);
        self.bad_entries
            .push(((table.id, self.order), entry.clone()));
        let file = self.name(entry.address.file);
        let damage = entry_damage(file, &table.name, self.order, entry, error);
        self.report.damage.push(damage);
    }

    fn note_failure(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Corruption {
            return;
        }
        if is_of_the_call(error) || self.failed.is_none() {
            self.failed = Some(error.clone());
        }
    }

    fn name(&self, id: FileId) -> PathBuf {
        file_name(self.store, id)
    }
}

/// The name of the file of an id, of whichever kind it is.
pub(crate) fn file_name(store: &Store, id: FileId) -> PathBuf {
    match store.is_fragment(id) {
        Ok(false) => segment_name(id),
        _ => fragment_name(id),
    }
}

/// The damage of a block or page, with the rows below it. Those of an index are in order 0 as well.
pub(crate) fn entry_damage(
    file: PathBuf,
    table: &str,
    order: u32,
    entry: &Entry,
    error: &Error,
) -> Damage {
    let what = without_place(error, &entry.address);
    if order != ROWS_ORDER {
        return Damage {
            file,
            offset: entry.address.offset,
            table: Some(table.to_owned()),
            keys: None,
            rows: Some(0),
            commits: None,
            what: format!("{what}; it is of index {order}, which no row depends on"),
        };
    }
    Damage {
        file,
        offset: entry.address.offset,
        table: Some(table.to_owned()),
        keys: Some((entry.key_min, entry.key_max)),
        rows: Some(entry.rows),
        commits: None,
        what,
    }
}

/// Whether the blocks of an item that are hidden as a whole have as many rows as its masks state.
fn are_their_rows(name: &ItemName, list: &MaskList, found: &WholeBlocks) -> bool {
    list.iter().all(|(first, mask)| match mask {
        BlockMask::Rows(_) => true,
        BlockMask::Blocks { rows, .. } => found.get(&(*name, first)) == Some(rows),
    })
}

/// The message without the place, which the report names itself.
fn without_place(error: &Error, place: &dyn fmt::Display) -> String {
    let message = error.message();
    message
        .strip_prefix(&format!("{place}: "))
        .unwrap_or(message)
        .to_owned()
}

/// Reads all frames after the checkpoint, and the checkpoints that count if that is lost; returns how many frames.
fn check_log(store: &Store) -> Result<u64, (LogPosition, Error)> {
    let (env, dir) = (store.env(), store.dir());
    let at_start = |error: Error| (LogPosition::default(), error);
    let file = RootFile::open(env, dir, false).map_err(at_start)?;
    let root = file.current;
    // Read before the log: what it proves was written before.
    let live =
        LiveFile::open_reader(env, dir).and_then(|live| live.map_or(Ok(None), |live| live.read()));
    let said = live
        .map_err(at_start)?
        .filter(|live| live.database == root.database && live.epoch == root.epoch);
    let (mut replay, working) =
        Replay::start(env, dir, &root).map_err(|error| (root.checkpoint, error))?;
    let mut proven = said
        .map_or(root.proven, |live| live.synced.max(root.proven))
        .max(replay.at());
    let mut frames = 0;
    loop {
        let at = replay.at();
        match replay.next(CommitNo(u64::MAX)) {
            Ok(Some(frame)) => proven = proven.max(frame.head.id.synced_to),
            Ok(None) => break,
            Err(error) => return Err((at, error)),
        }
        frames += 1;
    }
    let end = replay.at();
    replay.judge_end(proven).map_err(|error| (end, error))?;
    check_other(env, dir, &file, &working.bases)?;
    Ok(frames)
}

/// Checks what counts if the newest checkpoint is lost, and what the next one builds on: the checkpoint of the other slot
/// with its base, which is the one whose turn it is; or that base alone, where both slots name one checkpoint. Without the
/// other slot neither is known.
pub(crate) fn check_other(
    env: &Env,
    dir: &Path,
    root: &RootFile,
    bases: &Bases,
) -> Result<(), (LogPosition, Error)> {
    let Some(other) = &root.other else {
        return Ok(());
    };
    if other.checkpoint != root.current.checkpoint {
        let found = Replay::behind_checkpoint(env, dir, other);
        return found.map(|_| ()).map_err(|error| (other.checkpoint, error));
    }
    match bases.base(bases.choose(false)) {
        None => Ok(()),
        Some(base) => Replay::check_base(env, dir, other.database, base.place)
            .map_err(|error| (base.place.at, error)),
    }
}

fn slot_damage(file: &str, what: String) -> Damage {
    Damage {
        file: PathBuf::from(file),
        offset: 0,
        table: None,
        keys: None,
        rows: None,
        commits: None,
        what,
    }
}

pub(crate) fn log_damage(at: LogPosition, error: &Error) -> Damage {
    let file = if at.segment == FileId(0) {
        PathBuf::from(ROOT_NAME)
    } else {
        segment_name(at.segment)
    };
    let what = match error.kind() {
        ErrorKind::Corruption => error.message().to_owned(),
        _ => format!("cannot be read: {}", error.message()),
    };
    Damage {
        file,
        offset: at.offset,
        table: None,
        keys: None,
        rows: None,
        commits: None,
        what,
    }
}
