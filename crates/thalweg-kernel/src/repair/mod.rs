//! `verify --repair`: makes a damaged database whole, without what cannot be read any more.
//!
//! Invariants
//! - Everything is read and decided before anything is written. What is written is new files and at last the root, as by
//!   any opening that begins an epoch: until then the old state stands as it is, and a crash leaves it to the next repair.
//! - No file is changed or removed but the root, `live` and empty spares. Files that nothing leads to any more go with the
//!   garbage of the next opening for writing.
//! - Only bytes that fail their checks, and missing files, are given up. A failed call ends the repair with its error.
//! - What is given up is listed. No row comes back that was dropped or replaced, unless the commit that did it is listed as
//!   given up; none comes twice.

mod find;
mod kept;
mod lost_pages;
mod names;
mod salvage;
mod start;

use crate::block::ROWS_ORDER;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::folders::restore_folders;
use crate::fragment::blocks_below;
use crate::ids::{CommitNo, Epoch, FileId, LogPosition, TableId, check_countable};
use crate::index::{Entry, ItemName, Step, Tree};
use crate::leader::Leader;
use crate::masks::{Masked, MovedBlocks};
use crate::open::{free_file_id, hold_folder, look_for_database, take_lock};
use crate::options::Options;
use crate::paths::{DATA_DIR, ROOT_NAME, data_dir, list_segments};
use crate::root::{Root, RootFile};
use crate::segment_supply::SegmentSupply;
use crate::state::{PinnedState, Snapshot};
use crate::store::Store;
use crate::verify::{Check, Damage, VerifyReport};
use crate::working::Working;
use kept::{Compared, Kept};
use lost_pages::{leave_out_lost_pages, report_masks_without_items};
use salvage::salvage;
use start::{Sources, Start};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::Env;

/// The result of a repair: what it found and did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The result of checking: what was read, and what of it was damaged.
    pub checked: VerifyReport,
    /// Damage with a loss: every committed row that is missing afterwards lies in one of these.
    pub given_up: Vec<Damage>,
    /// Damage by which no row is lost.
    pub mended: Vec<Damage>,
    /// Tables that have other names now, because a commit that dropped or renamed them is given up.
    pub renamed: Vec<RenamedTable>,
    /// Blocks that were copied to new files, because theirs are damaged elsewhere.
    pub moved_blocks: u64,
}

/// A table that a repair kept under another name.
///
/// The commit that dropped or renamed it is given up, and a later one gave its name to another table, which has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedTable {
    /// The last name that is known of it.
    pub from: String,
    /// The name that the repair gave it.
    pub to: String,
    /// The commit that gave `from` to another table.
    pub commit: CommitNo,
}

impl fmt::Display for RenamedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "table \"{}\" is kept as \"{}\": commit {} gave its name to another table, and the commit that dropped or renamed it \
             before is given up",
            self.from, self.to, self.commit.0
        )
    }
}

impl RepairReport {
    /// Whether there was nothing to repair, and nothing was changed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.given_up.is_empty() && self.mended.is_empty()
    }

    /// How much is given up: commits, and rows besides. What is not known counts as more than anything that is.
    fn loss(&self) -> (u64, u64) {
        let commits_of = |damage: &Damage| damage.commits.map(|(first, last)| last.0 - first.0 + 1);
        let (mut commits, mut rows) = (0_u64, 0_u64);
        for damage in &self.given_up {
            match commits_of(damage) {
                Some(count) => commits = commits.saturating_add(count),
                None => rows = rows.saturating_add(damage.rows.unwrap_or(u64::MAX)),
            }
        }
        (commits, rows)
    }

    /// The list that damage belongs to.
    fn list_for(&mut self, damage: &Damage) -> &mut Vec<Damage> {
        match damage.rows {
            Some(0) => &mut self.mended,
            _ => &mut self.given_up,
        }
    }
}

/// Repairs the database of a folder, which nobody may have open for writing. `on_bytes` is called with how many more bytes were
/// checked.
///
/// # Errors
/// `Locked` while another process writes, `NotFound`, `Corruption` where nothing is left to start from, `Unsupported` for
/// a newer format, and those of reading and writing. The database is then as it was; or it is repaired, if the failure comes
/// after the switch of the root.
pub fn repair(
    env: &Env,
    dir: &Path,
    options: &Options,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<RepairReport> {
    // Whatever `on_bytes` does: a child that it forks must not repair what its parent does.
    let env = &env.for_this_process();
    look(env, dir)?;
    let env = &hold_folder(env, dir)?;
    let lock = take_lock(env, dir)?;
    let repaired = repair_locked(env, dir, options, on_bytes);
    let unlocked = lock.unlock(0..1);
    let report = repaired?;
    unlocked.map_err(|e| Error::io("giving back the lock", e))?;
    Ok(report)
}

/// A database is also what has lost its root.
fn look(env: &Env, dir: &Path) -> Result<()> {
    let is_there = look_for_database(env, dir)?
        || match list_segments(env, dir) {
            Ok(segments) => !segments.is_empty(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
    if is_there {
        return Ok(());
    }
    let message = format!("there is no database at {}", dir.display());
    Err(Error::new(ErrorKind::NotFound, message))
}

fn repair_locked(
    env: &Env,
    dir: &Path,
    options: &Options,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<RepairReport> {
    let mut found = RepairReport::default();
    let mut sources = Sources::read(env, dir, &mut found)?;
    let store = Store::new(env.clone(), dir, sources.database, options.cache_bytes);
    let newest = sources.newest_start(env, dir, &mut found)?;
    let newest = Reached::from(newest, &store, found.clone())?;
    let mut outcome = newest.check(&store, on_bytes)?;
    if outcome.may_be_of_its_start() {
        let newest = &outcome.reached;
        let mut others =
            OtherStarts::of(newest, sources.other_checkpoints(env, dir, &newest.start)?);
        while outcome.may_be_of_its_start()
            && let Some(other) = others.next()
        {
            let Some(start) = sources.start_at(env, dir, &other, &outcome.reached.start)? else {
                continue;
            };
            let other = Reached::from(start, &store, found.clone())?;
            others.go_on_from(&other);
            // Else its blocks need not be read.
            if other.is_more_than(&outcome.reached) {
                let other = other.check(&store, on_bytes)?;
                if other.is_more_than(&outcome) {
                    outcome = other.instead_of(outcome);
                }
            }
        }
    }
    let Outcome {
        reached,
        bad,
        mut report,
    } = outcome;
    look_for_folder(env, dir, &mut report)?;
    if report.is_clean()
        && let Some(slot) = sources.slot_of_readers()
        && let Some(damage) = damage_of(env, dir, slot, &mut sources, &store, &reached.start)?
    {
        report.mended.push(damage);
    }
    if !report.is_clean() {
        let repair = Repair {
            bad,
            is_index_unproven: is_in(&reached.unproven, reached.start.from.checkpoint),
            unproven: reached.unproven,
        };
        repair.write(env, dir, options, sources, reached.start, &mut report)?;
    } else if let Some(mut root) = sources.root {
        // Another repair may have made it, and was killed before it reached the disk: what is reported as whole stays so.
        root.write_again()?;
        sync_folder(env, dir)?;
    }
    Ok(report)
}

fn sync_folder(env: &Env, dir: &Path) -> Result<()> {
    let synced = env.storage().sync_dir(dir);
    synced.map_err(|e| Error::io(format_args!("syncing {}", dir.display()), e))
}

/// The damage that readers see in the state that an older slot leads to, if any: a repair was cut short before it wrote
/// that slot too.
fn damage_of(
    env: &Env,
    dir: &Path,
    slot: Root,
    sources: &mut Sources,
    store: &Store,
    newest: &Start,
) -> Result<Option<Damage>> {
    let is_whole = match sources.start_at(env, dir, &slot, newest)? {
        Some(start) => {
            let seen = Reached::from(start, store, RepairReport::default())?;
            seen.check(store, &mut |_| {})?.report.is_clean()
        }
        None => false,
    };
    let what = "a slot leads to damage: a repair was cut short before it was written";
    let damage = file_damage(ROOT_NAME, &Error::corruption(ROOT_NAME, what));
    Ok((!is_whole).then_some(damage))
}

/// The state that one start leads to, with the log applied. Its blocks were not checked.
struct Reached {
    start: Start,
    report: RepairReport,
    kept: Kept,
    /// Losses may depend on the start: index pages of its checkpoint are damaged, or commits could not be applied.
    may_be_of_its_start: bool,
    /// The last of the damaged pages, if rows are lost with it.
    last_lost: Option<LogPosition>,
    /// Where the log may be in the cache only.
    unproven: Vec<Range<LogPosition>>,
}

impl Reached {
    fn from(mut start: Start, store: &Store, mut report: RepairReport) -> Result<Self> {
        let mut lost = leave_out_lost_pages(&mut start.working, store)?;
        let salvaged = salvage(&mut start, store, &mut lost, &mut report)?;
        let may_be_of_its_start = !lost.pages.is_empty() || !report.given_up.is_empty();
        let last_lost = lost.with_rows().map(|lost| lost.at).max();
        let kept = Kept::of(&start.working, &salvaged.back, &lost.missing_rows());
        lost.report(&start, &mut report);
        report_masks_without_items(&mut start.working, store, &mut report)?;
        Ok(Self {
            kept,
            start,
            report,
            may_be_of_its_start,
            last_lost,
            unproven: salvaged.unproven,
        })
    }

    /// A checkpoint that ends before this place leads to none of the last damage here; the first place of all where there is none.
    fn lost_from(&self) -> LogPosition {
        let last_lost = self.last_lost.unwrap_or_default();
        last_lost.min(self.start.from.checkpoint)
    }

    /// Whether more is left than of another state.
    fn is_more_than(&self, other: &Self) -> bool {
        self.compared().is_more_than(&other.compared())
    }

    fn compared(&self) -> Compared<'_> {
        Compared {
            start: &self.start,
            report: &self.report,
            rows: self.kept.rows,
            kept: &self.kept,
        }
    }

    fn check(mut self, store: &Store, on_bytes: &mut dyn FnMut(u64)) -> Result<Outcome> {
        let mut report = self.report.clone();
        let bad = check_tables(&mut self.start.working, store, on_bytes, &mut report)?;
        Ok(Outcome {
            reached: self,
            bad,
            report,
        })
    }
}

/// The checkpoints that are tried where rows would be lost: the last one in the log, which a slot of the root may have
/// named that is lost; and where index pages are damaged, the last one that was written before them, which so leads to the
/// log that has made them.
struct OtherStarts {
    /// In the order of the log.
    checkpoints: Vec<Root>,
    newest: LogPosition,
    /// Those after the newest start were tried, or there are none.
    is_back: bool,
    /// Where the next one lies before.
    before: LogPosition,
    tries: usize,
}

impl OtherStarts {
    /// The log is read for each: wide damage must not take for ever.
    const MOST: usize = 16;

    fn of(newest: &Reached, checkpoints: Vec<Root>) -> Self {
        Self {
            checkpoints,
            newest: newest.start.from.checkpoint,
            is_back: false,
            before: newest.lost_from(),
            tries: 0,
        }
    }

    fn next(&mut self) -> Option<Root> {
        self.tries += 1;
        if self.tries > Self::MOST {
            return None;
        }
        if !std::mem::replace(&mut self.is_back, true)
            && let Some(last) = self
                .checkpoints
                .last()
                .filter(|root| root.checkpoint > self.newest)
        {
            return Some(*last);
        }
        let before = self
            .checkpoints
            .partition_point(|root| root.behind_checkpoint() <= self.before);
        let next = *self.checkpoints.get(before.checked_sub(1)?)?;
        self.before = next.checkpoint;
        Some(next)
    }

    /// Goes on from a start that was tried, which may have damaged pages of its own.
    fn go_on_from(&mut self, tried: &Reached) {
        if tried.start.from.checkpoint < self.newest {
            self.before = tried.lost_from();
        }
    }
}

/// A state that was reached, and what of it is damaged.
struct Outcome {
    reached: Reached,
    bad: Bad,
    report: RepairReport,
}

impl Outcome {
    /// Whether another start may keep more.
    fn may_be_of_its_start(&self) -> bool {
        self.reached.may_be_of_its_start && !self.report.given_up.is_empty()
    }

    /// Whether more is left than of another one.
    fn is_more_than(&self, other: &Self) -> bool {
        self.compared().is_more_than(&other.compared())
    }

    fn compared(&self) -> Compared<'_> {
        Compared {
            report: &self.report,
            rows: self.report.checked.rows,
            ..self.reached.compared()
        }
    }

    /// Reports the damage that the other outcome has met as well: with this one little or nothing is lost by it, but
    /// the root must name another checkpoint.
    fn instead_of(mut self, other: Self) -> Self {
        let place = |damage: &Damage| (damage.file.clone(), damage.offset);
        let told = self.report.given_up.iter().chain(&self.report.mended);
        let told: HashSet<_> = told.map(place).collect();
        let not_needed = other.report.given_up.into_iter().map(|damage| Damage {
            rows: Some(0),
            commits: None,
            what: format!(
                "{}; another checkpoint and the log lead to all of that but what is listed as lost",
                damage.what
            ),
            ..damage
        });
        let met = not_needed.chain(other.report.mended);
        let met = met.filter(|damage| !told.contains(&place(damage)));
        self.report.mended.extend(met);
        self
    }
}

/// Reports a missing folder of the fragments: without it, though it may be empty, nothing opens.
fn look_for_folder(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<()> {
    match env.storage().metadata(&data_dir(dir)) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let missing = Error::corruption(DATA_DIR, "the folder is missing");
            report.mended.push(file_damage(DATA_DIR, &missing));
        }
        Err(e) => return Err(Error::io(format_args!("looking for {DATA_DIR}"), e)),
    }
    Ok(())
}

/// An entry of the report for a file that was damaged.
fn file_damage(name: &str, error: &Error) -> Damage {
    Damage {
        file: PathBuf::from(name),
        offset: 0,
        table: None,
        keys: None,
        rows: Some(0),
        commits: None,
        what: error.message().to_owned(),
    }
}

fn set_items(
    working: &mut Working,
    (table, order): (TableId, u32),
    items: Vec<Entry>,
    store: &Store,
) -> Result<()> {
    let tree = Tree::empty(table).insert_many(items, store, &mut Vec::new())?;
    working.change_tree(table, order, |_| Ok(tree))
}

/// Damage of the files, blocks and pages to which the tables lead.
struct Bad {
    files: HashSet<FileId>,
    /// Blocks and pages, by their places.
    places: HashSet<(FileId, u64)>,
    /// Indexes that lose some of it.
    indexes: HashSet<(TableId, u32)>,
}

fn check_tables(
    working: &mut Working,
    store: &Store,
    on_bytes: &mut dyn FnMut(u64),
    report: &mut RepairReport,
) -> Result<Bad> {
    let snapshot = Snapshot::new(Arc::new(PinnedState {
        state: working.publish(Epoch(0)),
        pin: None,
    }));
    let mut check = Check::new(store, on_bytes).finding_blocks();
    for table in snapshot.tables() {
        check.table(&table)?;
    }
    if let Some(error) = check.failed {
        return Err(error);
    }
    for damage in &check.report.damage {
        let list = report.list_for(damage);
        // The header of the checkpoint's segment was checked before.
        let is_there =
            |other: &Damage| (&other.file, other.offset) == (&damage.file, damage.offset);
        if !list.iter().any(is_there) {
            list.push(damage.clone());
        }
    }
    report.checked = check.report;
    let places = check.bad_entries.iter().map(|(_, entry)| place(entry));
    let indexes = check.bad_entries.iter().map(|(of, _)| *of);
    let indexes = indexes.filter(|(_, order)| *order != ROWS_ORDER);
    Ok(Bad {
        files: check.bad_files,
        places: places.collect(),
        indexes: indexes.collect(),
    })
}

fn position(entry: &Entry) -> LogPosition {
    LogPosition {
        segment: entry.address.file,
        offset: entry.address.offset,
    }
}

fn place(entry: &Entry) -> (FileId, u64) {
    (entry.address.file, entry.address.offset)
}

/// More than the files that can be missing and unknown: none is older than the last checkpoint.
const LOST_FILE_IDS: u64 = 1 << 12;

/// A repair that is decided.
struct Repair {
    bad: Bad,
    /// Where the log may be in the cache only.
    unproven: Vec<Range<LogPosition>>,
    /// So may the checkpoint that it starts from, with the index pages in it.
    is_index_unproven: bool,
}

fn is_in(parts: &[Range<LogPosition>], at: LogPosition) -> bool {
    parts.iter().any(|part| part.contains(&at))
}

impl Repair {
    fn write(
        &self,
        env: &Env,
        dir: &Path,
        options: &Options,
        sources: Sources,
        start: Start,
        report: &mut RepairReport,
    ) -> Result<()> {
        let live = sources.live();
        let epoch = start.last_epoch.next()?;
        check_countable(dir, "last commit", start.working.commit.0)?;
        check_countable(
            dir,
            "segment of a checkpoint",
            start.from.checkpoint.segment.0,
        )?;
        // Whichever slot is torn by a crash: the repair that follows finds the checkpoint in the log that this one starts from.
        let root = match sources.root {
            Some(root) => root,
            None => RootFile::replacing(env, dir, start.from)?,
        };
        restore_folders(env, dir)?;
        let known = root.current.next_file.max(root.current.checkpoint.segment);
        let free = free_file_id(env, dir, known)?;
        // Files that are missing have had ids too, of which nothing may be left. Readers may still know them by these, or
        // somebody puts one of the files back.
        let next_file = FileId(free.0.saturating_add(LOST_FILE_IDS));
        let supply = Arc::new(SegmentSupply::new(
            env.clone(),
            dir.to_owned(),
            next_file,
            options.segment_bytes,
        )?);
        let mut leader = Leader::new(env, dir, options, root, Arc::clone(&supply), start.working)?;
        if let Some(live) = live {
            leader.announcer_mut().raise_floor(live.gc_floor);
        }
        let switched = self.switch(env, dir, &mut leader, epoch);
        if switched.is_err() && !leader.root().may_name(epoch) {
            // Else each repair that finds no room leaves less of it to the next one.
            leader.give_up_staged();
            supply.give_up();
        }
        report.moved_blocks = switched?;
        // Into the other slot as well: both may be damaged.
        leader.write_live()?;
        leader.announcer().live().sync()?;
        supply.release();
        Ok(())
    }

    /// Writes what moves, and makes the new epoch the one that counts. Returns how many blocks were moved.
    fn switch(&self, env: &Env, dir: &Path, leader: &mut Leader, epoch: Epoch) -> Result<u64> {
        let mut moved_blocks = 0;
        for table in leader.working().tables.clone().iter() {
            for (order, tree) in table.trees() {
                moved_blocks += self.renew_tree(leader, (table.id, order), tree)?;
            }
        }
        for (table, order) in &self.bad.indexes {
            leader.working_mut().forget_coverage(*table, *order);
        }
        sync_folder(env, dir)?;
        // What it was read from may be damaged elsewhere, or go: nothing is built on it.
        leader.working_mut().bases.forget();
        leader.working_mut().forget_uses();
        leader
            .begin_epoch(epoch, Vec::new())
            .map_err(Failure::error)?;
        Ok(moved_blocks)
    }

    /// Gives an order a tree without what is damaged. Whole blocks of a file that is damaged elsewhere, and of the log
    /// where it may not be on disk yet, move to a new fragment. Returns how many.
    fn renew_tree(
        &self,
        leader: &mut Leader,
        (table, order): (TableId, u32),
        tree: &Tree,
    ) -> Result<u64> {
        let store = leader.shared().store;
        let mut lost = None;
        let items = tree.whole_items(&*store, &mut |_, error| {
            lost.get_or_insert_with(|| error.clone());
        })?;
        if let Some(error) = lost {
            return Err(error);
        }
        let state = leader.working().table(table);
        let masks = state.and_then(|state| state.masks().cloned());
        let mut masks = masks.filter(|_| order == ROWS_ORDER).unwrap_or_default();
        let old_masks = masks.clone();
        let count = items.len();
        let (mut stay, mut move_out) = (Vec::new(), Vec::new());
        let mut blocks_moved = MovedBlocks::default();
        for item in items {
            let name = ItemName::of(&item);
            if item.is_block() && self.bad.places.contains(&place(&item)) {
                masks.take_item(&name);
                continue;
            }
            if !self.moves(&item) {
                stay.push(item);
                continue;
            }
            let blocks = match item.is_block() {
                true => vec![(item, 0)],
                false => {
                    let is_masked = masks.of_item(&name).is_some();
                    self.whole_blocks(table, &item, &store, is_masked)?
                }
            };
            for (block, rank) in blocks {
                blocks_moved.push(&block, name, rank);
                move_out.push(block);
            }
            masks.take_item(&name);
        }
        // Pages may lie in a segment whose header is damaged.
        if stay.len() == count && self.bad.files.is_empty() && !self.is_index_unproven {
            return Ok(0);
        }
        let moved = move_out.len() as u64;
        if moved > 0 {
            let fragment = leader.stage_fragment((table, order))?;
            let root = fragment.copy_of(&store, &move_out)?;
            let leaves = match blocks_moved.masks_of(&root, &old_masks) {
                Some(mask) => masks.hide(&mask)? == Masked::Leaves,
                None => false,
            };
            stay.extend((!leaves).then_some(root));
        }
        set_items(leader.working_mut(), (table, order), stay, &store)?;
        if !old_masks.is_empty() {
            leader.working_mut().set_masks(table, masks)?;
        }
        Ok(moved)
    }

    /// Whether what is whole of an item cannot stay where it is.
    fn moves(&self, item: &Entry) -> bool {
        let file = item.address.file;
        if item.is_block() {
            return self.bad.files.contains(&file) || is_in(&self.unproven, position(item));
        }
        self.bad.files.contains(&file) || self.bad.places.iter().any(|(bad, _)| *bad == file)
    }

    /// The blocks of a fragment that are not damaged, with their ranks; those below a damaged page as far as they are found.
    fn whole_blocks(
        &self,
        table: TableId,
        root: &Entry,
        store: &Store,
        is_masked: bool,
    ) -> Result<Vec<(Entry, u32)>> {
        let is_bad = |entry: &Entry| self.bad.places.contains(&place(entry));
        let rank_of = |rank: u64| u32::try_from(rank).unwrap_or(u32::MAX);
        let walk = Tree::from_root(table, Some(root.clone())).walk(None, store);
        let mut walk = walk.below(ItemName::of(root));
        let (mut blocks, mut bad_pages) = (Vec::new(), Vec::new());
        while let Some(block) = walk.next_at(|entry, place| match is_bad(entry) {
            false => Step::Descend,
            true => {
                let rank = place.map_or(0, |place| place.rank);
                bad_pages.extend((!entry.is_block()).then(|| (entry.clone(), rank)));
                Step::Skip
            }
        })? {
            let rank = walk.place().map_or(0, |place| place.rank);
            blocks.push((block, rank_of(rank)));
        }
        for (page, first_rank) in bad_pages {
            let found = blocks_below(store, table, (root, &page), is_masked)?;
            let found = (first_rank..).map(rank_of).zip(found);
            let whole = found.filter(|(_, block)| !is_bad(block));
            blocks.extend(whole.map(|(rank, block)| (block, rank)));
        }
        blocks.sort_by_key(|(block, _)| block.key());
        Ok(blocks)
    }
}
