//! Rows that are deleted: by masks of blocks and of open rows, and as whole items.
//!
//! Invariant: what is deleted is read from a snapshot before, so the ledger knows which rows go.

use super::*;
use crate::oracle::hidden_rows;
use std::collections::{BTreeSet, HashMap};
use thalweg_kernel::index::ItemName;
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, PartMask, Positions};
use thalweg_kernel::orders::{OrderReplace, ReplaceEdit};

/// An edit that hides rows, and the values of these.
pub struct Found {
    /// The edit.
    pub edit: MaskEdit,
    /// The values.
    pub values: BTreeSet<i64>,
}

/// The rows of a table that are to be deleted, none of which is hidden yet.
pub fn rows_to_delete(
    toy: &Toy,
    state: &TableSnapshot,
    is_hit: impl Fn(&Row) -> bool,
) -> Result<Found> {
    let mut found = Found {
        edit: MaskEdit {
            table: state.id,
            items: Vec::new(),
            parts: Vec::new(),
        },
        values: BTreeSet::new(),
    };
    let mut hits = |rows: &[Row], hidden: &BTreeSet<u32>| {
        let rows = (0_u32..)
            .zip(rows)
            .filter(|(at, row)| !hidden.contains(at) && is_hit(row));
        let rows: Vec<(u32, i64)> = rows.map(|(at, row)| (at, row.1)).collect();
        found.values.extend(rows.iter().map(|(_, value)| *value));
        rows.into_iter().map(|(at, _)| at).collect::<Vec<u32>>()
    };
    let mut items: Vec<(ItemName, Vec<(u32, BlockMask)>)> = Vec::new();
    let mut rows_of: HashMap<ItemName, u64> = HashMap::new();
    let mut walk = state.tree.walk(None, toy.kernel.store().clone());
    while let Some(block) = walk.next_at(|entry, place| {
        let item = place.filter(|place| place.item == ItemName::of(entry));
        rows_of.extend(item.map(|place| (place.item, entry.rows)));
        Step::Descend
    })? {
        let place = walk.place().expect("a block lies in an item");
        let rows = toy.block_rows(&block)?;
        let positions = hits(&rows, &hidden_rows(state, &place, rows.len()));
        if positions.is_empty() {
            continue;
        }
        let rank = u32::try_from(place.rank).expect("few blocks");
        let mask = (rank, BlockMask::Rows(Positions::of_rows(positions)));
        match items.iter_mut().find(|(name, _)| *name == place.item) {
            Some((_, masks)) => masks.push(mask),
            None => items.push((place.item, vec![mask])),
        }
    }
    for rows in state.open_rows() {
        let of_part = unpack(&rows.part.payload);
        let hidden = state.hidden_in(rows);
        let hidden = hidden.map_or_else(BTreeSet::new, |hidden| hidden.iter().collect());
        let positions = hits(&of_part, &hidden);
        if !positions.is_empty() {
            found.edit.parts.push(PartMask {
                commit: rows.commit,
                part: rows.number,
                rows: rows.part.rows,
                positions: Positions::of_rows(positions),
            });
        }
    }
    for (name, masks) in items {
        let masks = MaskList::of(masks).expect("one mask of each block");
        found.edit.items.push(ItemMask {
            name,
            rows: rows_of[&name],
            newly: masks.rows(),
            masks,
        });
    }
    found.edit.items.sort_by_key(|item| item.name);
    Ok(found)
}

/// The commit that deletes the rows with keys of a range, and their values.
pub fn range_to_delete(
    toy: &Toy,
    state: &TableSnapshot,
    keys: std::ops::RangeInclusive<i64>,
) -> Result<(Commit, BTreeSet<i64>)> {
    let mut found = rows_to_delete(toy, state, |row| keys.contains(&row.0))?;
    let runs = state.tree.runs_within(keys, &**toy.kernel.store())?;
    let is_in_run = |item: &ItemMask| runs.iter().any(|run| run.contains(item.name.key));
    found.edit.items.retain(|item| !is_in_run(item));
    let mut commit = Commit {
        runs_of: vec![state.clone()],
        ..Commit::default()
    };
    if !runs.is_empty() {
        let hidden = |run| state.masks().map_or(0, |masks| masks.rows_of_run(run));
        let left_out = runs.iter().map(hidden).sum();
        let rows: u64 = runs.iter().map(|run| run.rows).sum();
        commit.edits.push(Edit::Replace(ReplaceEdit {
            left_out,
            deleted: rows - left_out,
            orders: vec![OrderReplace::of_runs(0, runs)],
            ..ReplaceEdit::of_orders(state.id)
        }));
    }
    if !(found.edit.items.is_empty() && found.edit.parts.is_empty()) {
        commit.masks.push(found.edit);
    }
    Ok((commit, found.values))
}

impl Driver {
    /// Deletes the rows of a table whose values `is_hit` takes, by one commit that hides them.
    pub fn delete(&mut self, name: &str, is_hit: impl Fn(&Row) -> bool) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let state = toy
            .kernel
            .snapshot()
            .and_then(|snapshot| snapshot.table(table).ok_or_else(|| gone(table)));
        let found = state.and_then(|state| rows_to_delete(toy, &state, is_hit));
        let found = match found {
            Ok(found) if found.values.is_empty() => return,
            Ok(found) => found,
            Err(e) if self.faulty => return drop(e),
            Err(e) => panic!("looking for rows to delete: {e:?}"),
        };
        let commit = Commit {
            masks: vec![found.edit],
            ..Commit::default()
        };
        let effect = Effect::Delete(name.to_owned(), found.values);
        self.commit(effect, commit, Durability::Disk);
    }

    /// Deletes all rows of a table with keys of a range, by one commit: items as runs, and rows of others by masks.
    pub fn delete_range(&mut self, name: &str, keys: std::ops::RangeInclusive<i64>) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let state = toy
            .kernel
            .snapshot()
            .and_then(|snapshot| snapshot.table(table).ok_or_else(|| gone(table)));
        let found = state.and_then(|state| range_to_delete(toy, &state, keys));
        let (commit, values) = match found {
            Ok((_, values)) if values.is_empty() => return,
            Ok(found) => found,
            Err(e) if self.faulty => return drop::<Error>(e),
            Err(e) => panic!("looking for a range to delete: {e:?}"),
        };
        let effect = Effect::Delete(name.to_owned(), values);
        self.commit(effect, commit, Durability::Disk);
    }

    /// Deletes items of a table as a whole, by their places.
    pub fn delete_items(&mut self, name: &str, places: std::ops::Range<usize>) {
        let (Some(table), Some(toy)) = (self.table(name), &self.toy) else {
            return;
        };
        let find = || {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let items = items_of(toy, &state)?;
            let end = places.end.min(items.len());
            let chosen = &items[places.start.min(end)..end];
            let mut values = BTreeSet::new();
            for item in chosen {
                let rows = arrivals_of(toy, &state, item)?;
                values.extend(rows.into_iter().map(|(_, _, value)| value));
            }
            let rows: u64 = chosen.iter().map(|item| item.rows).sum();
            let names = chosen.iter().map(ItemName::of).collect();
            let left = values.len() as u64;
            let edit = ReplaceEdit {
                left_out: rows - left,
                deleted: left,
                orders: vec![OrderReplace::of_items(0, names, Vec::new())],
                ..ReplaceEdit::of_orders(table)
            };
            Ok((edit, values))
        };
        let (edit, values) = match find() {
            Ok((_, values)) if values.is_empty() => return,
            Ok(found) => found,
            Err(e) if self.faulty => return drop::<Error>(e),
            Err(e) => panic!("looking for items to delete: {e:?}"),
        };
        let effect = Effect::Delete(name.to_owned(), values);
        self.edit(effect, Edit::Replace(edit));
    }
}
