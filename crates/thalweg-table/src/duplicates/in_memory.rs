//! Rows with the unique keys of new ones, by the keys in memory.
//!
//! Invariant: only whoever has the turn of the table's keys looks here, so that snapshots never go back.

use super::keys::{KeyTable, Keys};
use super::{Found, key_request};
use crate::key_index::{Candidates, KeyIndex, KeyIndexes};
use crate::piece::Piece;
use crate::placed_rows::{PlacedRows, Wanted};
use crate::table::TableView;
use crate::unique::UniqueKey;
use arrow_schema::DataType;
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_kernel::index::{ItemChange, ItemName};
use thalweg_kernel::{OpenRows, Result};

impl KeyIndexes {
    /// The rows of a table with the keys of new ones; `None` where it has more rows than the index may hold. The caller has the turn
    /// of the table's keys.
    pub(super) fn find(
        &self,
        view: &TableView,
        unique: &UniqueKey,
        (keys, table): (&Keys, &KeyTable),
    ) -> Result<Option<Found>> {
        let id = view.snapshot().id;
        let index = self.of(id);
        let mut index = index.lock();
        if view.snapshot().commit() < index.commit {
            return Ok(None);
        }
        let mut caught_up = Ok(());
        let may_hold_all = self.may_take(KeyIndex::bytes_of(view.row_count()));
        if may_hold_all {
            caught_up = index.catch_up(view, unique, self.seed());
        }
        let bytes = index.bytes();
        if !may_hold_all || caught_up.is_err() || !self.may_take(bytes) {
            *index = KeyIndex::default();
            return caught_up.map(|()| None);
        }
        self.make_room(id, bytes);
        index
            .rows_of(view, unique, (keys, table), self.seed())
            .map(Some)
    }
}

impl KeyIndex {
    /// Brings it to a newer snapshot.
    fn catch_up(&mut self, view: &TableView, unique: &UniqueKey, seed: u64) -> Result<()> {
        let snapshot = view.snapshot();
        let store = view.engine().kernel().store();
        let columns = unique.columns().iter();
        let columns = columns.filter_map(|id| view.definition().column(*id));
        let types: Vec<DataType> = columns.map(|column| column.data_type.clone()).collect();
        if self.types != types {
            *self = Self::default();
            self.types = types;
        }
        let mut added = HashSet::new();
        let old = self.tree.take();
        if let Some(old) = &old {
            for change in old.difference(&snapshot.tree, Arc::clone(store)) {
                match change {
                    Ok(ItemChange::Removed(entry)) => self.forget_item(&ItemName::of(&entry)),
                    Ok(ItemChange::Added(entry)) => _ = added.insert(ItemName::of(&entry)),
                    // The pages of the older tree may be gone: its files are kept for nobody.
                    Err(_) => {
                        *self = Self::default();
                        return self.catch_up(view, unique, seed);
                    }
                }
            }
        }
        let is_new = old.is_none();
        let open: Vec<&OpenRows> = snapshot.open_rows().collect();
        self.forget_covered(&open);
        let known = self.of_open.last_key_value().map(|(name, _)| *name);
        let wanted = Wanted {
            entry: &|_, place| place.is_none_or(|place| is_new || added.contains(&place.item)),
            open: &|open| known.is_none_or(|known| (open.commit, open.number) > known),
        };
        if is_new || !added.is_empty() || open.last().is_some_and(|open| (wanted.open)(open)) {
            self.take_pieces(view, unique, &wanted, seed)?;
        }
        self.tree = Some(snapshot.tree.clone());
        self.commit = snapshot.commit();
        if self.is_stale(view.row_count()) {
            *self = Self::default();
            return self.catch_up(view, unique, seed);
        }
        Ok(())
    }

    fn take_pieces(
        &mut self,
        view: &TableView,
        unique: &UniqueKey,
        wanted: &Wanted<'_>,
        seed: u64,
    ) -> Result<()> {
        let request = key_request(view.definition(), unique)?;
        let placed = Arc::new(PlacedRows::of_wanted(view, &request, wanted)?);
        let reader = placed.reader()?;
        for (number, piece) in placed.all().iter().enumerate() {
            view.engine().closed().check()?;
            let id = self.add_piece(piece)?;
            for (rows, places) in reader.read(number)? {
                let keys = Keys::of(&rows, seed)?;
                self.insert(&keys, id, places.values(), seed);
            }
        }
        Ok(())
    }

    /// The rows of the snapshot that it was brought to with the keys of new ones.
    fn rows_of(
        &self,
        view: &TableView,
        unique: &UniqueKey,
        (keys, table): (&Keys, &KeyTable),
        seed: u64,
    ) -> Result<Found> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut found = Vec::new();
        for Candidates { piece, rows } in self.candidates(keys, table, seed) {
            let piece = piece.of_snapshot(view.snapshot());
            let left = piece.left_of(view.snapshot(), rows).into_iter();
            let first = found.len();
            let number = (pieces.len() as u64) << u32::BITS;
            found.extend(left.map(|(row, position)| (row, number | u64::from(position))));
            if found.len() > first {
                pieces.push(piece);
            }
        }
        let request = key_request(view.definition(), unique)?;
        let placed = Arc::new(PlacedRows::of_pieces(view, &request, pieces));
        if keys.fingerprints_are_exact() || found.is_empty() {
            return Ok((placed, found));
        }
        let found = placed.with_keys(keys, table, seed, &found)?;
        Ok((placed, found))
    }
}

impl PlacedRows {
    /// Those of some rows whose keys are those of the new rows that they were found for.
    fn with_keys(
        self: &Arc<Self>,
        keys: &Keys,
        table: &KeyTable,
        seed: u64,
        candidates: &[(usize, u64)],
    ) -> Result<Vec<(usize, u64)>> {
        let mut wanted: Vec<u64> = candidates.iter().map(|(_, place)| *place).collect();
        wanted.sort_unstable();
        let mut found = Vec::new();
        let reader = self.reader()?;
        for piece in 0..self.pieces() {
            for (rows, places) in reader.read(piece)? {
                let others = Keys::of(&rows, seed)?;
                table.find(keys, &others, |row, other| {
                    let place = places.value(other);
                    if wanted.binary_search(&place).is_ok() {
                        found.push((row, place));
                    }
                })?;
            }
        }
        Ok(found)
    }
}
