//! Rows that a transaction deletes, where they are by now.
//!
//! Invariants: a row is found in a piece of the newest snapshot that was not in the one of the transaction, or in the same piece and
//! not hidden meanwhile. Rows are told apart by their values in all columns, bit by bit; of equal ones as many are found as are
//! deleted, and it does not matter which. Open rows that came since are left alone; a block may have rows that came since beside
//! older ones, and does not tell them apart.
//!
//! Rejected: to keep maps of what rewrites and covers move. They would have to be kept for as long as the oldest transaction is open,
//! by everything that moves rows, and most transactions lose no race.

use crate::error::query;
use crate::piece::Piece;
use crate::placed_rows::{PickedRows, PlacedRows};
use crate::range::KeyRange;
use crate::scan::ScanRequest;
use crate::table::TableView;
use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use thalweg_kernel::index::{ItemName, Place};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, PartMask, Positions};
use thalweg_kernel::{CommitNo, Error, ErrorKind, Result};

/// Most rows that are looked for by their values.
const MAX_MOVED_ROWS: u64 = 1 << 20;

/// The masks of a transaction over `base`, by where their rows are in `newest`.
///
/// # Errors
/// `Query` where one of the rows is not there any more, or is another one.
pub(super) fn found_again(
    base: &TableView,
    masks: &MaskEdit,
    newest: &TableView,
) -> Result<MaskEdit> {
    let mut found = MaskEdit::nothing(masks.table);
    let mut moved = Moved::default();
    for mask in &masks.items {
        if has_item(newest, mask.name)? {
            found.items.push(mask.clone());
        } else {
            moved.rows += mask.newly;
            moved.items.insert(mask.name, mask.masks.clone());
        }
    }
    let parts = open_parts(newest);
    for mask in &masks.parts {
        let name = (mask.commit, mask.part);
        if parts.contains(&name) {
            found.parts.push(mask.clone());
        } else {
            moved.rows += u64::from(mask.positions.rows());
            moved.parts.insert(name, mask.positions.clone());
        }
    }
    check_not_hidden(&found, newest)?;
    if moved.rows == 0 {
        return Ok(found);
    }
    let elsewhere = moved.found(base, newest)?;
    Ok(united(found, elsewhere))
}

/// Whether an item of order 0 is there.
fn has_item(view: &TableView, item: ItemName) -> Result<bool> {
    let (table, store) = (view.snapshot(), view.engine().kernel().store());
    let first = Place { item, rank: 0 };
    Ok(table.tree.block_at(&first, &**store)?.is_some())
}

/// The parts of open rows.
fn open_parts(view: &TableView) -> HashSet<(CommitNo, u32)> {
    let parts = view.snapshot().open_rows();
    parts.map(|open| (open.commit, open.number)).collect()
}

/// Refuses rows that another commit has hidden meanwhile.
fn check_not_hidden(masks: &MaskEdit, newest: &TableView) -> Result<()> {
    let Some(hidden) = newest.snapshot().masks() else {
        return Ok(());
    };
    let of_items = masks.items.iter().any(|mask| {
        let known = hidden.of_item(&mask.name);
        // A mask of whole blocks hides what is left of them: other rows are left where somebody else has deleted some.
        known.is_some_and(|known| known.clone().add(&mask.masks) != Some(mask.newly))
    });
    let of_parts = masks.parts.iter().any(|mask| {
        let known = hidden.of_part(mask.commit, mask.part);
        known.is_some_and(|known| known.positions.union_of_new(&mask.positions).is_none())
    });
    match of_items || of_parts {
        true => Err(lost()),
        false => Ok(()),
    }
}

fn lost() -> Error {
    query(
        "another transaction changed or deleted a row that this one changes or deletes; this one was rolled back: run it again",
    )
}

/// How many rows have which values, as bytes that compare like them.
type RowCounts = HashMap<Box<[u8]>, u64>;

/// Rows that are not where they were.
#[derive(Default)]
struct Moved {
    items: BTreeMap<ItemName, MaskList>,
    parts: BTreeMap<(CommitNo, u32), Positions>,
    rows: u64,
}

impl Moved {
    /// The masks of these rows in a newer snapshot.
    fn found(&self, base: &TableView, newest: &TableView) -> Result<MaskEdit> {
        if self.rows > MAX_MOVED_ROWS {
            return Err(query(format!(
                "{} rows that the transaction changes or deletes were put into other blocks meanwhile, more than are looked for; it \
                 was rolled back: run it again",
                self.rows
            )));
        }
        let schema = base.schema();
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(of_values)?;
        let (mut wanted, keys) = self.wanted(base, &converter)?;
        let request = ScanRequest {
            keys,
            ..ScanRequest::default()
        };
        let placed = Arc::new(PlacedRows::new(newest, &request)?);
        let reader = placed.reader()?;
        let mut picked = PickedRows::default();
        let mut left = self.rows;
        for (number, piece) in placed.all().iter().enumerate() {
            if left == 0 {
                break;
            }
            let was_there = match piece {
                Piece::Block { place, .. } => has_item(base, place.item)?,
                // Open rows stay what they are until they become a block: others came since.
                Piece::Open(_) => true,
            };
            if was_there {
                continue;
            }
            for (batch, places) in reader.read(number)? {
                let rows = rows_of(&converter, &batch)?;
                let hits = rows.iter().zip(places.values()).filter(|(row, _)| {
                    let Some(count) = wanted.get_mut(row.data()).filter(|count| **count > 0) else {
                        return false;
                    };
                    *count -= 1;
                    left -= 1;
                    true
                });
                picked.add(&hits.map(|(_, place)| *place).collect::<Vec<_>>());
            }
        }
        if left > 0 {
            return Err(lost());
        }
        let (masks, _) = placed.masks_of(picked)?;
        Ok(masks)
    }

    /// How many rows with which values are looked for, and the range of their keys.
    fn wanted(&self, base: &TableView, converter: &RowConverter) -> Result<(RowCounts, KeyRange)> {
        let placed = Arc::new(PlacedRows::new(base, &ScanRequest::default())?);
        let reader = placed.reader()?;
        let mut wanted = RowCounts::new();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for (number, piece) in placed.all().iter().enumerate() {
            let is_wanted: Box<dyn Fn(u32) -> bool> = match piece {
                Piece::Block { place, .. } => {
                    let rank = u32::try_from(place.rank).unwrap_or(u32::MAX);
                    match self
                        .items
                        .get(&place.item)
                        .and_then(|list| list.of_block(rank))
                    {
                        None => continue,
                        Some(BlockMask::Blocks { .. }) => Box::new(|_| true),
                        Some(BlockMask::Rows(positions)) => {
                            Box::new(|position| positions.contains(position))
                        }
                    }
                }
                Piece::Open(open) => match self.parts.get(&(open.commit, open.number)) {
                    None => continue,
                    Some(positions) => Box::new(|position| positions.contains(position)),
                },
            };
            for (batch, places) in reader.read(number)? {
                let rows = rows_of(converter, &batch)?;
                let keys = base.definition().keys_of(&batch)?;
                for ((row, place), key) in rows.iter().zip(places.values()).zip(&keys[..]) {
                    if is_wanted(position_of(*place)) {
                        *wanted.entry(row.data().into()).or_default() += 1;
                        (first, last) = (first.min(*key), last.max(*key));
                    }
                }
            }
        }
        Ok((wanted, KeyRange { first, last }))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of a place")]
fn position_of(place: u64) -> u32 {
    place as u32
}

fn rows_of(converter: &RowConverter, batch: &RecordBatch) -> Result<Rows> {
    converter
        .convert_columns(batch.columns())
        .map_err(of_values)
}

fn of_values(error: arrow_schema::ArrowError) -> Error {
    Error::with_source(ErrorKind::Limit, format!("comparing rows: {error}"), error)
}

/// The rows that two edits hide, which have none in common, as one edit.
fn united(first: MaskEdit, second: MaskEdit) -> MaskEdit {
    let mut items: BTreeMap<ItemName, ItemMask> = BTreeMap::new();
    for mask in first.items.into_iter().chain(second.items) {
        match items.get_mut(&mask.name) {
            Some(known) => {
                known.newly += mask.newly;
                let added = known.masks.add(&mask.masks);
                assert!(added.is_some(), "rows are found once");
            }
            None => _ = items.insert(mask.name, mask),
        }
    }
    let mut parts: Vec<PartMask> = first.parts.into_iter().chain(second.parts).collect();
    parts.sort_unstable_by_key(|part| (part.commit, part.part));
    MaskEdit {
        table: first.table,
        items: items.into_values().collect(),
        parts,
    }
}
