//! The unique keys of a table in memory: where the row of a key is, without reading it.
//!
//! Invariants
//! - It is derived from the table, as of one snapshot after the other, by the items and open rows that only one of two snapshots has.
//!   Nothing of it is stored; whoever first needs it after an opening reads the key columns once.
//! - It has an entry for each row that was there and not hidden when its block or its open rows came. What went since, or was hidden,
//!   is found out when it is asked: by the list of pieces, and by the masks of the snapshot.
//! - An entry holds a fingerprint of the key. That of a single column of up to 8 bytes is the value itself; of other keys, rows with
//!   the fingerprint are read before they count.
//! - It is of columns of the types that they have: where one gets a wider type, it is made anew.
//! - Only whoever has the turn of the table's keys uses it, so that snapshots never go back. A transaction has its own for the tables
//!   that it changes: each change of its draft counts as a commit, and whoever comes with an older view reads the table.
//!
//! Rejected for now: an order of hashes on disk with Bloom filters per run. It would serve keys that are more than memory
//! holds, at the price of writing each key several times (docs/decisions/unique.md).

use crate::duplicates::keys::{KeyTable, Keys};
use crate::piece::Piece;
use arrow_schema::DataType;
use hashbrown::HashTable;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_kernel::index::{ItemName, Tree};
use thalweg_kernel::{CommitNo, Error, ErrorKind, OpenRows, Result, TableId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of an entry and of its byte of control.
const ENTRY_BYTES: usize = size_of::<Entry>() + 1;
/// About what a piece takes.
const PIECE_BYTES: usize = 512;
/// Entries of rows that are gone are left out once they are more than the others, and more than so many.
const MIN_STALE: usize = 1 << 16;
/// The indexes of one transaction take so small a part of what those of the engine may take.
const SHARE_OF_TRANSACTION: u64 = 8;

/// The indexes of the tables of an engine.
pub(crate) struct KeyIndexes {
    /// Keys that share their fingerprint are not known to whoever makes up keys.
    seed: u64,
    max_bytes: u64,
    tables: Mutex<HashMap<TableId, Arc<Mutex<KeyIndex>>>>,
}

/// The index of a table.
#[derive(Default)]
pub(crate) struct KeyIndex {
    entries: HashTable<Entry>,
    /// `None`: the block or the open rows are gone.
    pieces: Vec<Option<Piece>>,
    of_items: HashMap<ItemName, Vec<u32>>,
    pub(crate) of_open: BTreeMap<(CommitNo, u32), u32>,
    /// The tree that it is of.
    pub(crate) tree: Option<Tree>,
    pub(crate) commit: CommitNo,
    /// The types of the columns of the key: the fingerprint of a value depends on its type.
    pub(crate) types: Vec<DataType>,
}

#[derive(Clone, Copy)]
struct Entry {
    fingerprint: u64,
    piece: u32,
    position: u32,
}

impl fmt::Debug for KeyIndexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.lock().len();
        f.debug_struct("KeyIndexes")
            .field("tables", &tables)
            .finish_non_exhaustive()
    }
}

impl KeyIndexes {
    /// Indexes that take so many bytes together.
    pub(crate) fn new(seed: u64, max_bytes: u64) -> Self {
        Self {
            seed,
            max_bytes,
            tables: Mutex::default(),
        }
    }

    /// Indexes for one transaction.
    pub(crate) fn of_transaction(&self) -> Self {
        Self::new(self.seed, self.max_bytes / SHARE_OF_TRANSACTION)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether an index may take so many bytes.
    pub(crate) fn may_take(&self, bytes: u64) -> bool {
        bytes <= self.max_bytes
    }

    /// That of a table.
    pub(crate) fn of(&self, table: TableId) -> Arc<Mutex<KeyIndex>> {
        Arc::clone(self.tables.lock().entry(table).or_default())
    }

    /// Lets go of the indexes of tables that are gone.
    pub(crate) fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        self.tables.lock().retain(|table, _| is_there(*table));
    }

    /// Lets go of the indexes of other tables where all together are too large: they are made anew when they are needed.
    pub(crate) fn make_room(&self, table: TableId, bytes: u64) {
        let mut tables = self.tables.lock();
        let others = tables.iter().filter(|(id, _)| **id != table);
        // One that is at work is somebody's.
        let sizes = others.map(|(_, index)| index.try_lock().map_or(0, |index| index.bytes()));
        if bytes + sizes.sum::<u64>() > self.max_bytes {
            tables.retain(|id, _| *id == table);
        }
    }
}

impl KeyIndex {
    /// Whether most entries are those of rows that are gone.
    pub(crate) fn is_stale(&self, rows: u64) -> bool {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        self.entries.len() > MIN_STALE.saturating_add(rows.saturating_mul(2))
    }

    /// About the bytes of one of so many rows.
    pub(crate) fn bytes_of(rows: u64) -> u64 {
        // A table doubles when it is seven eighths full.
        let places = rows.saturating_mul(8).div_ceil(7);
        let places = places.checked_next_power_of_two().unwrap_or(u64::MAX);
        places.saturating_mul(ENTRY_BYTES as u64)
    }

    /// About its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let entries = self.entries.capacity() * ENTRY_BYTES * 8 / 7;
        (entries + self.pieces.len() * PIECE_BYTES) as u64
    }

    /// Takes the rows of a piece at these places.
    pub(crate) fn insert(&mut self, keys: &Keys, piece: u32, places: &[u64], seed: u64) {
        let hasher = |entry: &Entry| hash(entry.fingerprint, seed);
        let is_exact = keys.fingerprints_are_exact();
        for (row, fingerprint) in keys.fingerprints() {
            let entry = Entry {
                fingerprint,
                piece,
                position: position_of(places[row]),
            };
            let pieces = &self.pieces;
            // Of an exact fingerprint there is one row at a time, and this one is newer.
            let is_replaced = |known: &Entry| {
                known.fingerprint == fingerprint
                    && (is_exact || pieces[known.piece as usize].is_none())
            };
            match self.entries.find_mut(hash(fingerprint, seed), is_replaced) {
                Some(known) => *known = entry,
                None => {
                    _ = self
                        .entries
                        .insert_unique(hash(fingerprint, seed), entry, hasher)
                }
            }
        }
    }

    pub(crate) fn forget_item(&mut self, item: &ItemName) {
        for piece in self.of_items.remove(item).unwrap_or_default() {
            self.pieces[piece as usize] = None;
        }
    }

    /// Forgets open rows that are in blocks by now. Both lists ascend.
    pub(crate) fn forget_covered(&mut self, open: &[&OpenRows]) {
        let is_open = |name: &(CommitNo, u32)| {
            let found = open.binary_search_by_key(name, |open| (open.commit, open.number));
            found.is_ok()
        };
        let covered: Vec<(CommitNo, u32)> = match open.first().zip(self.of_open.first_key_value()) {
            // Those that came first are covered first, but for those of a transaction, which become files all at once.
            Some((first, (known, _)))
                if *known == (first.commit, first.number)
                    && self
                        .of_open
                        .last_key_value()
                        .is_none_or(|(last, _)| is_open(last)) =>
            {
                return;
            }
            _ => { self.of_open.keys() }
                .filter(|name| !is_open(name))
                .copied()
                .collect(),
        };
        for name in covered {
            if let Some(piece) = self.of_open.remove(&name) {
                self.pieces[piece as usize] = None;
            }
        }
    }

    /// Takes the number of a new piece.
    pub(crate) fn add_piece(&mut self, piece: &Piece) -> Result<u32> {
        let id = u32::try_from(self.pieces.len()).map_err(|_| too_many_pieces())?;
        match piece {
            Piece::Block { place, .. } => self.of_items.entry(place.item).or_default().push(id),
            Piece::Open(open) => _ = self.of_open.insert((open.commit, open.number), id),
        }
        self.pieces.push(Some(piece.clone()));
        Ok(id)
    }

    /// The entries with the fingerprints of some keys, by pieces: the row of the key, and the position in the piece. Some may be hidden,
    /// and fingerprints that are not exact may be those of other keys.
    pub(crate) fn candidates(
        &self,
        keys: &Keys,
        table: &KeyTable,
        seed: u64,
    ) -> Vec<Candidates<'_>> {
        let mut found: Vec<(usize, Entry)> = Vec::new();
        for (row, fingerprint) in keys.fingerprints().filter(|(row, _)| table.has(*row)) {
            let entries = self.entries.iter_hash(hash(fingerprint, seed));
            let entries = entries.filter(|entry| entry.fingerprint == fingerprint);
            found.extend(entries.map(|entry| (row, *entry)));
        }
        found.sort_unstable_by_key(|(_, entry)| (entry.piece, entry.position));
        let of_pieces = found.chunk_by(|a, b| a.1.piece == b.1.piece);
        let of_piece = |entries: &[(usize, Entry)]| {
            let piece = self.pieces[entries[0].1.piece as usize].as_ref()?;
            let rows = entries.iter().map(|(row, entry)| (*row, entry.position));
            Some(Candidates {
                piece,
                rows: rows.collect(),
            })
        };
        of_pieces.filter_map(of_piece).collect()
    }
}

/// Rows of a piece that may have keys of new rows.
pub(crate) struct Candidates<'a> {
    pub(crate) piece: &'a Piece,
    /// The new row and the position of that of the piece, ascending.
    pub(crate) rows: Vec<(usize, u32)>,
}

fn hash(fingerprint: u64, seed: u64) -> u64 {
    xxh3_64_with_seed(&fingerprint.to_le_bytes(), seed)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of a place")]
fn position_of(place: u64) -> u32 {
    place as u32
}

fn too_many_pieces() -> Error {
    let what = "a table has more blocks than its unique keys can be looked for in";
    Error::new(ErrorKind::Limit, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_of_tables_that_are_gone_or_too_large_are_let_go() {
        let indexes = KeyIndexes::new(1, 1_000_000);
        let tables = [1, 2, 3].map(TableId);
        let first: Vec<_> = tables.iter().map(|table| indexes.of(*table)).collect();
        indexes.retain(|table| table != TableId(2));
        let again: Vec<_> = tables.iter().map(|table| indexes.of(*table)).collect();
        let are_same = first.iter().zip(&again).map(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(are_same.collect::<Vec<_>>(), [true, false, true]);
        indexes.make_room(TableId(1), 1_000_001);
        assert!(Arc::ptr_eq(&indexes.of(TableId(1)), &again[0]));
        assert!(!Arc::ptr_eq(&indexes.of(TableId(3)), &again[2]));
    }
}
