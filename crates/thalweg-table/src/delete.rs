//! Deleting rows: all with keys of a range, or some that were picked; and storing others in their place.
//!
//! Invariants
//! - What is deleted are the rows of one snapshot, by one commit; where another one came in between that it cannot stand beside,
//!   it is planned anew from a newer snapshot. What is stored in their place comes with the same commit, of the same columns.
//! - Of a range only what lies at its borders is read: items that lie in it leave as runs, blocks of a fragment that sticks out
//!   of it are hidden as a whole, and of blocks that stick out themselves the keys are read.
//! - What is hidden already is not hidden again: the rows that a call reports are those that it has deleted.

use crate::deleted_rows::Block;
use crate::draft_rows::{add_to_draft, stage_before, stage_many};
use crate::drafts::{DraftChange, Drafts, abandon};
use crate::duplicates::{concat_keys, refuse_duplicates, row_is_hidden};
use crate::intake::NewRows;
use crate::placed_rows::{PickedRows, PlacedRows};
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::rows::RowsDecoder;
use crate::table::{Table, TableView};
use crate::table_turns::CONFLICTS_WITHOUT_TURN;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, ItemName, Place, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, PartMask, Positions};
use thalweg_kernel::orders::{OrderReplace, ReplaceEdit};
use thalweg_kernel::{
    Commit, Durability, Edit, Error, ErrorKind, MANY_MASKS_BYTES, OpenRows, Producer, Result,
};

/// Attempts that may lose a race against another commit. From the third on the deletion has the turn of its table, so that only
/// covers of open rows and moves of blocks are left to lose one against.
const MAX_CONFLICTS: u32 = 64;
/// After an attempt that took so long and lost, the next one has the turn of its table.
const LONG_NS: u64 = 50_000_000;
/// Hidden open rows of a table, in as many commits at least, from which on open rows become blocks if half of all are hidden.
const MANY_HIDDEN_ROWS: u64 = 256;

impl Table {
    /// Deletes all rows with order keys of a range, in one commit, and returns how many there were. It costs what lies at the
    /// borders of the range, however many rows are deleted: none of those between is read. Rows that are appended during the call
    /// stay.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{KeyRange, Value};
    ///
    /// for second in 0..10 {
    ///     room.put(&[Value::Int(second), Value::Float(20.0)], None)?;
    /// }
    /// assert_eq!(room.delete_range(KeyRange::half_open(Some(2), Some(5)), None)?, 3);
    /// assert_eq!(room.delete_range(KeyRange::from(2..=4), None)?, 0); // they are deleted already
    /// assert_eq!(room.view()?.row_count(), 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Limit` where too many blocks reach out of the range, because rows came late: `maintain` puts them in order; `Conflict`
    /// where other commits came in between again and again. Nothing was deleted then.
    pub fn delete_range(&self, keys: KeyRange, durability: Option<Durability>) -> Result<u64> {
        self.delete_picked(durability, &mut || Ok(RowsToDelete::Keys(keys)))
    }

    /// Deletes the rows that `pick` returns, in one commit, and returns how many these were. Where other commits came in between,
    /// it is called again and picks from a newer snapshot: what it returns must not depend on earlier calls.
    ///
    /// # Errors
    /// Those of `pick`; `Limit` where too many rows are picked one by one; `Conflict` where other commits came in between again
    /// and again. Nothing was deleted then.
    pub fn delete_picked(
        &self,
        durability: Option<Durability>,
        pick: &mut dyn FnMut() -> Result<RowsToDelete>,
    ) -> Result<u64> {
        self.edit_rows(durability, AddedKeys::None, &mut |_| pick())
    }

    /// Deletes the rows that `pick` returns and stores those that it hands over, in one commit, and returns how many were deleted. It
    /// is called again as [`Self::delete_picked`] says. Of a table with a unique key `keys` says which keys the stored rows have.
    ///
    /// # Errors
    /// As [`Self::delete_picked`]; those of [`Self::append`] for the rows to be stored; `AlreadyExists` where two rows would have one
    /// unique key. Nothing has changed then.
    pub fn edit_rows(
        &self,
        durability: Option<Durability>,
        keys: AddedKeys,
        pick: &mut dyn FnMut(&mut NewRows<'_>) -> Result<RowsToDelete>,
    ) -> Result<u64> {
        let durability = durability.unwrap_or(self.engine().options().durability);
        let unique = self.shape().definition.unique().is_some();
        let turns = (keys == AddedKeys::Any && unique && !self.is_in_transaction())
            .then(|| self.engine().key_turns_of(self.id()))
            .transpose()?;
        let turn = turns
            .as_ref()
            .map(|turns| turns.wait(self.engine().closed(), &|| true));
        let _turn = turn.transpose()?;
        let rows = self.change_rows((None, durability), keys, pick)?;
        if self.is_in_transaction() {
            return Ok(rows);
        }
        if rows == 0 && durability == Durability::Disk {
            // That they were deleted already is to survive a power cut as well.
            self.engine().kernel().flush()?;
        }
        Ok(rows)
    }

    /// As [`Self::delete_range`], on disk; where nothing is left to delete, nothing is written or synced.
    pub(crate) fn delete_on_disk(&self, keys: KeyRange) -> Result<u64> {
        self.change_rows((None, Durability::Disk), AddedKeys::None, &mut |_| {
            Ok(RowsToDelete::Keys(keys))
        })
    }

    /// As [`Self::edit_rows`]. Where keys may be added, the caller has the turn of the keys; where nothing is changed, nothing is
    /// written or synced.
    pub(crate) fn change_rows(
        &self,
        (producer, durability): (Option<Producer>, Durability),
        keys: AddedKeys,
        pick: &mut dyn FnMut(&mut NewRows<'_>) -> Result<RowsToDelete>,
    ) -> Result<u64> {
        self.engine().closed().check()?;
        let kernel = self.engine().kernel();
        let mut plan = || Change::of_picked(self, keys, pick);
        if let Some(drafts) = self.drafts() {
            return change_draft(self, drafts, &mut plan);
        }
        let rows = change_by(self, &mut plan, &mut |mut commit| {
            commit.producer = producer;
            kernel.commit(commit, durability).map(|_| ())
        })?;
        if rows > 0 {
            self.encode_hidden_rows();
        }
        Ok(rows)
    }

    /// Makes blocks of the open rows of the table where these are of many commits and most of them are hidden: every statement reads
    /// them all until then, and a small table whose rows change one by one would have many more than are left. What fails is done
    /// later, with the others.
    fn encode_hidden_rows(&self) {
        let Ok(view) = self.view() else { return };
        let hidden = view.snapshot().hidden_open_rows();
        if hidden < MANY_HIDDEN_ROWS {
            return;
        }
        let (mut parts, mut rows) = (0, 0);
        for open in view.snapshot().open_rows() {
            parts += 1;
            rows += u64::from(open.part.rows);
        }
        if parts >= MANY_HIDDEN_ROWS && hidden >= rows / 2 {
            let _ = self.engine().kernel().encode_open_rows(self.id());
        }
    }

    /// One attempt of [`Self::change_rows`] outside of transactions, of rows whose keys the caller has compared: `planned` is called
    /// before it is committed. `None`: others change rows of the table, or there is no room, and the caller has to wait its turn.
    pub(crate) fn change_rows_once(
        &self,
        durability: Durability,
        pick: &mut dyn FnMut(&mut NewRows<'_>) -> Result<RowsToDelete>,
        planned: &mut dyn FnMut(),
    ) -> Result<Option<u64>> {
        let engine = self.engine();
        if engine.turns_of(self.id())?.is_taken() {
            return Ok(None);
        }
        let done = Change::of_picked(self, AddedKeys::Checked, pick).and_then(|change| {
            let rows = change.deletion.rows;
            if let Some(commit) = change.into_commit() {
                planned();
                let stored = engine.kernel().commit(commit, durability);
                stored.map_err(|error| self.name_error(error))?;
            }
            if rows > 0 {
                self.encode_hidden_rows();
            }
            Ok(rows)
        });
        match done {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Limit) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The unique keys of rows that a statement stores, as far as the table may lack them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedKeys {
    /// None: each row has the key of one that the statement deletes.
    None,
    /// Any: they are compared with those of the table, and where a row would share one, nothing is stored.
    Any,
    /// Any, which the caller has compared already.
    Checked,
}

/// The rows that a statement deletes.
#[derive(Debug)]
pub enum RowsToDelete {
    /// All with keys of a range.
    Keys(KeyRange),
    /// Those that were picked of a snapshot.
    Picked(Arc<PlacedRows>, PickedRows),
}

/// Makes the change that `plan` finds by one commit, which `commit` makes or refuses, and returns how many rows it has deleted.
fn change_by(
    table: &Table,
    plan: &mut dyn FnMut() -> Result<Change>,
    commit: &mut dyn FnMut(Commit) -> Result<()>,
) -> Result<u64> {
    let engine = table.engine();
    let closed = engine.closed();
    let turns = engine.turns_of(table.id())?;
    let mut turn = turns.none();
    let clock = engine.env().clock();
    let (mut conflicts, mut has_made_room, mut has_encoded) = (0, false, false);
    loop {
        if !turn.wait_if_due(conflicts, &|| closed.check().is_ok()) {
            closed.check()?;
        }
        let began_ns = clock.monotonic_ns();
        let mut rows = 0;
        let done = plan().and_then(|change| {
            rows = change.deletion.rows;
            let done = change.into_commit().map_or(Ok(()), &mut *commit);
            done.map_err(|e| table.name_error(e))
        });
        match done {
            Ok(()) => return Ok(rows),
            Err(e) if e.kind() == ErrorKind::Conflict && conflicts < MAX_CONFLICTS => {
                // What took long is not to be done three times.
                conflicts += match clock.monotonic_ns() - began_ns {
                    ..LONG_NS => 1,
                    _ => CONFLICTS_WITHOUT_TURN,
                };
            }
            // The room for masks is the same for all tables.
            Err(e)
                if e.kind() == ErrorKind::Limit
                    && !has_made_room
                    && engine.kernel().mask_bytes()? > MANY_MASKS_BYTES =>
            {
                has_made_room = true;
                turn.pass_on();
                engine.rewrite_deleted_rows()?;
            }
            // The masks of very many small commits whose rows are open do not fit one frame.
            Err(e) if e.kind() == ErrorKind::Limit && !has_encoded => {
                has_encoded = true;
                engine.kernel().encode_open_rows(table.id())?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Makes the change that `plan` finds in the draft of a transaction, and returns how many rows it has deleted.
fn change_draft(
    table: &Table,
    drafts: &Drafts,
    plan: &mut dyn FnMut() -> Result<Change>,
) -> Result<u64> {
    let mut conflicts = 0;
    loop {
        stage_many(table, drafts)?;
        let seen = drafts.stagings(table.id())?;
        let Change {
            deletion,
            added,
            added_rows,
            ..
        } = plan()?;
        if deletion.rows == 0 && added_rows == 0 {
            return Ok(0);
        }
        let rows = deletion.rows;
        let change = DraftChange::new(deletion.masks, added);
        let roots = change.roots.clone();
        // Raw rows go to files first, and may be among those that the statement changes: then it is planned again.
        let staged = stage_before(table, drafts, &change);
        let changed = staged.and_then(|()| add_to_draft(table, drafts, seen, change));
        match changed {
            Ok(()) => return Ok(rows),
            Err(error) => {
                abandon(table.engine(), &roots);
                if error.kind() != ErrorKind::Conflict || conflicts == MAX_CONFLICTS {
                    return Err(table.name_error(error));
                }
            }
        }
        conflicts += 1;
    }
}

/// A deletion and the rows that are stored with it, as planned from a snapshot.
struct Change {
    view: TableView,
    deletion: Deletion,
    /// The commit of the new rows alone.
    added: Commit,
    added_rows: u64,
}

impl Change {
    /// Of the rows that a statement picks, and of those that it stores.
    fn of_picked(
        table: &Table,
        keys: AddedKeys,
        pick: &mut dyn FnMut(&mut NewRows<'_>) -> Result<RowsToDelete>,
    ) -> Result<Self> {
        // What is stored has the columns of the view that it is made from.
        table.refresh()?;
        let shape = table.shape();
        let mut new = NewRows::new(table, &shape, keys == AddedKeys::Any);
        let named = |error| table.name_error(error);
        let changed = || {
            let message = "the definition of the table changed meanwhile";
            named(Error::new(ErrorKind::Conflict, message))
        };
        let picked = match pick(&mut new) {
            // Rows with columns of a newer snapshot do not fit those that were known before it.
            Err(error) if table.has_newer_than(shape.version, &error) => return Err(changed()),
            picked => picked?,
        };
        let (view, deletion) = Deletion::of_picked(table, picked).map_err(named)?;
        if new.rows() > 0 && view.snapshot().definition_version != shape.version {
            return Err(changed());
        }
        if let Some(keys) = new.take_keys().filter(|keys| !keys.is_empty())
            && let Some(unique) = shape.definition.unique()
        {
            let goes = |row| row_is_hidden(&deletion.masks, row);
            let of_view = (&view, table.key_indexes(&view));
            let checked = concat_keys(&keys)
                .and_then(|keys| refuse_duplicates(of_view, unique, &keys, &goes));
            checked.map_err(named)?;
        }
        let (added, added_rows) = new
            .finish(deletion.masks.len_bytes() as u64)
            .map_err(named)?;
        Ok(Self {
            view,
            deletion,
            added,
            added_rows,
        })
    }

    /// `None`: there is nothing to be deleted or stored.
    fn into_commit(self) -> Option<Commit> {
        match self.deletion.rows {
            0 => (self.added_rows > 0).then_some(self.added),
            _ => Some(self.deletion.with(&self.view, self.added)),
        }
    }
}

/// The runs and masks of one deletion, as planned from a snapshot.
struct Deletion {
    removed: ReplaceEdit,
    masks: MaskEdit,
    rows: u64,
}

impl Deletion {
    /// Of the rows that a statement picked.
    fn of_picked(table: &Table, rows: RowsToDelete) -> Result<(TableView, Self)> {
        let (placed, picked) = match rows {
            RowsToDelete::Keys(keys) => return Self::of_keys(table, keys),
            RowsToDelete::Picked(placed, picked) => (placed, picked),
        };
        let view = placed.view().clone();
        // Its masks name commits that others may have got by now.
        if view.snapshot().is_draft() && !table.is_in_transaction() {
            let message = "the rows were picked within a transaction";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (masks, rows) = placed.masks_of(picked)?;
        let removed = ReplaceEdit::of_orders(view.snapshot().id);
        Ok((
            view,
            Self {
                removed,
                masks,
                rows,
            },
        ))
    }

    /// Of the rows with keys of a range, as of now.
    fn of_keys(table: &Table, keys: KeyRange) -> Result<(TableView, Self)> {
        let view = table.view()?;
        let plan = match keys.is_empty() {
            true => Self {
                removed: ReplaceEdit::of_orders(view.snapshot().id),
                masks: MaskEdit::nothing(view.snapshot().id),
                rows: 0,
            },
            false => Self::plan(&view, keys, table.is_in_transaction())?,
        };
        Ok((view, plan))
    }

    /// `masks_alone`: no items leave as runs. A transaction cannot tell what comes into its runs before it is committed.
    fn plan(view: &TableView, keys: KeyRange, masks_alone: bool) -> Result<Self> {
        let (table, store) = (view.snapshot(), view.engine().kernel().store());
        let runs = match masks_alone {
            true => Vec::new(),
            false => table.tree.runs_within(keys.first..=keys.last, &**store)?,
        };
        let of_runs: u64 = runs.iter().map(|run| run.rows).sum();
        let hidden = table.masks().map_or(0, |masks| {
            runs.iter().map(|run| masks.rows_of_run(run)).sum()
        });
        let runs = OrderReplace::of_runs(0, runs);
        // Before the blocks between the runs are read.
        runs.check_count()?;
        let (items, parts) = (
            border_items(view, keys, masks_alone)?,
            open_parts(view, keys)?,
        );
        let of_items: u64 = items.iter().map(|item| item.newly).sum();
        let of_parts: u64 = { parts.iter() }
            .map(|part| u64::from(part.positions.rows()))
            .sum();
        let removed = ReplaceEdit {
            left_out: hidden,
            deleted: of_runs - hidden,
            orders: vec![runs],
            ..ReplaceEdit::of_orders(table.id)
        };
        Ok(Self {
            rows: removed.deleted + of_items + of_parts,
            removed,
            masks: MaskEdit {
                table: table.id,
                items,
                parts,
            },
        })
    }

    /// A commit with the deletion as well.
    fn with(self, view: &TableView, mut commit: Commit) -> Commit {
        commit.runs_of.push(view.snapshot().clone());
        if self.removed.deleted > 0 {
            commit.edits.push(Edit::Replace(self.removed));
        }
        if !self.masks.is_nothing() {
            commit.masks.push(self.masks);
        }
        commit
    }
}

/// An item that sticks out of the range.
#[derive(Default)]
struct BorderItem {
    rows: u64,
    newly: u64,
    masks: Vec<(u32, BlockMask)>,
}

impl BorderItem {
    /// Hides some blocks as a whole.
    fn hide_blocks(&mut self, rank: u32, blocks: u32, rows: u64, newly: u64) {
        self.newly += newly;
        if let Some((first, BlockMask::Blocks { further, rows: all })) = self.masks.last_mut()
            && *first + *further + 1 == rank
        {
            *further += blocks;
            *all += rows;
            return;
        }
        let further = blocks - 1;
        self.masks.push((rank, BlockMask::Blocks { further, rows }));
    }
}

/// Masks of items that lie partly in the range. `whole`: also of those that lie in it.
fn border_items(view: &TableView, keys: KeyRange, whole: bool) -> Result<Vec<ItemMask>> {
    let (table, store) = (view.snapshot(), view.engine().kernel().store());
    let reader = Reader::new(view, Some(&[]), keys)?;
    let is_whole = |entry: &Entry| keys.covers(entry.key_min, entry.key_max);
    let is_item = |entry: &Entry, place: &Place| place.item == ItemName::of(entry);
    let mut items: BTreeMap<ItemName, BorderItem> = BTreeMap::new();
    let mut walk = table
        .tree
        .walk(Some(keys.first..=keys.last), Arc::clone(store));
    while let Some(entry) = walk.next_at(|entry, place| {
        let Some(place) = place else {
            // Its items leave by runs.
            return if is_whole(entry) && !whole {
                Step::Skip
            } else {
                Step::Descend
            };
        };
        if is_item(entry, &place) {
            if is_whole(entry) && !whole {
                return Step::Skip;
            }
            items.entry(place.item).or_default().rows = entry.rows;
        }
        let hides = table.hides_below(entry, Some(&place));
        match is_whole(entry) && !hides {
            true => Step::Take,
            false => Step::Descend,
        }
    })? {
        let Some(place) = walk.place() else { continue };
        let too_many = || {
            Error::new(
                ErrorKind::Limit,
                "a file has more blocks than masks can name",
            )
        };
        let rank = u32::try_from(place.rank).map_err(|_| too_many())?;
        let blocks = u32::try_from(entry.blocks).map_err(|_| too_many())?;
        let item = items.entry(place.item).or_default();
        let block = Block::found(table, entry, Some(place));
        let hidden = match table.hidden_at(&place) {
            None => None,
            Some(BlockMask::Blocks { .. }) => continue,
            Some(BlockMask::Rows(_)) => block.hidden()?,
        };
        let entry = &block.entry;
        if is_whole(entry) && (whole || !is_item(entry, &place)) {
            let newly = entry.rows - hidden.map_or(0, |hidden| u64::from(hidden.rows()));
            if newly > 0 {
                item.hide_blocks(rank, blocks, entry.rows, newly);
            }
            continue;
        }
        let found = reader.block_keys(entry)?;
        if let Some(positions) = positions(&found, keys, hidden) {
            item.newly += u64::from(positions.rows());
            item.masks.push((rank, BlockMask::Rows(positions)));
        }
    }
    let masks = items.into_iter().filter(|(_, item)| item.newly > 0);
    let masks = masks.map(|(name, item)| {
        let list = MaskList::of(item.masks);
        let list = list.map_err(|what| Error::new(ErrorKind::Invalid, what))?;
        Ok(ItemMask {
            name,
            rows: item.rows,
            newly: item.newly,
            masks: list,
        })
    });
    masks.collect()
}

/// Masks of open rows, which are in no block yet.
fn open_parts(view: &TableView, keys: KeyRange) -> Result<Vec<PartMask>> {
    let table = view.snapshot();
    let mut parts = Vec::new();
    for open in table.open_rows() {
        let (first, last) = (open.part.key_min, open.part.key_max);
        if keys.intersect(KeyRange { first, last }).is_empty() {
            continue;
        }
        let hidden = table.hidden_in(open);
        let positions = match keys.covers(first, last) {
            true => not_hidden(std::iter::once(0..open.part.rows), hidden),
            false => positions(&open_keys(view, open)?, keys, hidden),
        };
        parts.extend(positions.map(|positions| PartMask {
            commit: open.commit,
            part: open.number,
            rows: open.part.rows,
            positions,
        }));
    }
    parts.sort_unstable_by_key(|part| (part.commit, part.part));
    Ok(parts)
}

fn open_keys(view: &TableView, open: &OpenRows) -> Result<arrow_buffer::ScalarBuffer<i64>> {
    let definition = view.definition();
    let mut decoder = RowsDecoder::new(definition, Some(definition.key_ids()))?;
    decoder.push(&open.part.payload)?;
    let batch = decoder.finish()?;
    definition
        .arrangement()
        .keys(batch.columns(), batch.num_rows())
}

/// The positions of the keys that are in the range, without those that are hidden already.
fn positions(found: &[i64], keys: KeyRange, hidden: Option<&Positions>) -> Option<Positions> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (at, _) in (0_u32..).zip(found).filter(|(_, key)| keys.contains(**key)) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    not_hidden(runs.into_iter(), hidden)
}

/// Runs of positions that ascend, without those that are hidden already; `None`: nothing is left.
fn not_hidden(
    runs: impl Iterator<Item = Range<u32>>,
    hidden: Option<&Positions>,
) -> Option<Positions> {
    let mut left = Vec::new();
    let hidden = hidden.into_iter().flat_map(Positions::runs);
    let mut hidden = hidden.peekable();
    for mut run in runs {
        while let Some(other) = hidden.peek().filter(|other| other.start < run.end) {
            if other.start > run.start {
                left.push(run.start..other.start);
            }
            run.start = run.start.max(other.end);
            if other.end > run.end {
                break;
            }
            hidden.next();
        }
        if run.start < run.end {
            left.push(run);
        }
    }
    (!left.is_empty()).then(|| Positions::of_runs(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions, Value};
    use arrow_schema::{DataType, Field, Schema};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_hidden_is_not_hidden_again(
            found in vec(0_i64..10, 0..80),
            hidden in btree_set(0_u32..80, 0..40),
            first in 0_i64..10,
            length in 0_i64..10,
        ) {
            let keys = KeyRange { first, last: first + length };
            let hits = (0_u32..).zip(&found).filter(|(_, key)| keys.contains(**key));
            let wanted: BTreeSet<u32> = hits.map(|(at, _)| at).filter(|at| !hidden.contains(at)).collect();
            let hidden = (!hidden.is_empty()).then(|| Positions::of_rows(hidden));
            let positions = positions(&found, keys, hidden.as_ref());
            let found: BTreeSet<u32> = positions.iter().flat_map(Positions::iter).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_deletion_that_was_refused_waits_for_no_merge_of_another_table() {
        let engine = Engine::in_memory(EngineOptions::default()).unwrap();
        let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
        let options = CreateOptions::stream("ts");
        let table = engine.create_table("t", &schema, &options).unwrap();
        for time in 0..4 {
            table.put(&[Value::Int(time)], None).unwrap();
        }
        // Whoever merges blocks of any table has this.
        let merging = engine.maintenance().wait(&|| true).unwrap();
        let mut attempts = 0;
        let keys = KeyRange { first: 1, last: 2 };
        let mut plan = || {
            Change::of_picked(&table, AddedKeys::None, &mut |_| {
                Ok(RowsToDelete::Keys(keys))
            })
        };
        let deleted = change_by(&table, &mut plan, &mut |commit| {
            attempts += 1;
            if attempts < 8 {
                return Err(Error::new(ErrorKind::Conflict, "somebody else was faster"));
            }
            let done = engine.kernel().commit(commit, Durability::Process);
            done.map(|_| ())
        });
        drop(merging);
        assert_eq!((deleted.unwrap(), attempts), (2, 8));
        assert_eq!(table.view().unwrap().row_count(), 2);
    }
}
