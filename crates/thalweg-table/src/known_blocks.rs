//! Facts about the blocks of a table, kept from one call to the next.
//!
//! Invariants: it is the same as if the whole index had been read; brought up to date by the difference of two trees, so that it
//! costs what has changed, and made anew where a page of the old tree is gone. It keeps no file and no snapshot.
//!
//! Rejected: counts of late rows in the entries of the index. Whether a block is late depends on all blocks that came before it, so
//! that each commit would change entries all over the index.

use crate::late::{Came, LateRows, late_rows};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_kernel::index::{Entry, ItemChange, ItemName, Place, Step, Tree};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::store::Store;
use thalweg_kernel::{CommitNo, Result, TableId, TableSnapshot};

/// Of more blocks nothing is kept: they are read each time. So many take about 100 MB.
const MOST_KNOWN_BLOCKS: usize = 1 << 20;

/// The known blocks of the tables of a database.
#[derive(Debug, Default)]
pub(crate) struct AllKnownBlocks(Mutex<HashMap<TableId, Known>>);

/// Locked by whoever brings it up to date: another who asks for the same table would read the same pages.
type Known = Arc<Mutex<Option<KnownBlocks>>>;

impl AllKnownBlocks {
    /// Calls `use_them` with the blocks of a table, which stay known for the next call unless they are too many or those of an
    /// older commit.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub(crate) fn with<T>(
        &self,
        table: &TableSnapshot,
        store: &Arc<Store>,
        use_them: impl FnOnce(&KnownBlocks) -> T,
    ) -> Result<T> {
        let known = Arc::clone(self.0.lock().entry(table.id).or_default());
        let mut known = known.lock();
        if let Some(newer) = &*known
            && newer.commit > table.commit()
        {
            drop(known);
            return Ok(use_them(&KnownBlocks::read(table, store)?));
        }
        let blocks = match known.take() {
            Some(mut blocks) => {
                blocks.update(table, store)?;
                blocks
            }
            None => KnownBlocks::read(table, store)?,
        };
        let used = use_them(&blocks);
        if blocks.blocks <= MOST_KNOWN_BLOCKS {
            *known = Some(blocks);
        }
        Ok(used)
    }

    /// Forgets all tables but those that are there.
    pub(crate) fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        self.0.lock().retain(|table, _| is_there(*table));
    }

    /// How many tables are known.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// The blocks of one table.
#[derive(Debug)]
pub(crate) struct KnownBlocks {
    /// The tree that they are of.
    tree: Tree,
    commit: CommitNo,
    items: HashMap<ItemName, Item>,
    blocks: usize,
    fragments: u64,
    late: LateRows,
}

/// A block of the log, or the blocks of a fragment by their ranks in it.
#[derive(Debug, PartialEq)]
struct Item {
    is_fragment: bool,
    blocks: Vec<Came>,
}

impl KnownBlocks {
    /// Reads the whole index of a table.
    ///
    /// # Errors
    /// When a page cannot be read.
    fn read(table: &TableSnapshot, store: &Arc<Store>) -> Result<Self> {
        let mut known = Self {
            tree: Tree::empty(table.id),
            commit: CommitNo(0),
            items: HashMap::new(),
            blocks: 0,
            fragments: 0,
            late: LateRows::default(),
        };
        known.apply(table, store)?;
        Ok(known)
    }

    /// Brings it up to date. Where it cannot be, nothing is known any more: it is to be read again.
    ///
    /// # Errors
    /// When a page cannot be read.
    fn update(&mut self, table: &TableSnapshot, store: &Arc<Store>) -> Result<()> {
        if self.apply(table, store).is_err() {
            // A page of the old tree is gone, or one of the new tree cannot be read: then this fails as well.
            *self = Self::read(table, store)?;
        }
        Ok(())
    }

    /// Files that hold nothing but blocks of the table.
    pub(crate) fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Rows that came late and were not put in order yet, of a table as of the same commit.
    pub(crate) fn late_rows(&self, table: &TableSnapshot) -> u64 {
        let open = table.open_rows().map(|open| {
            let hidden = table.hidden_in(open);
            let hidden = hidden.map_or(0, |hidden| hidden.rows().into());
            let came = Came::of_open_rows(open);
            Came {
                rows: came.rows.saturating_sub(hidden),
                ..came
            }
        });
        if table.masks().is_none() {
            return self.late.with_open_rows(open);
        }
        let came = self.kept_blocks(table).map(|(block, hidden_rows)| Came {
            rows: block.rows - hidden_rows,
            ..*block
        });
        late_rows(came.chain(open).collect())
    }

    /// The blocks with rows that are not deleted, each with the number of its rows that are.
    fn kept_blocks(&self, table: &TableSnapshot) -> impl Iterator<Item = (&Came, u64)> {
        self.items.iter().flat_map(move |(name, item)| {
            let masks = table.masks().and_then(|masks| masks.of_item(name));
            let hidden = move |rank, block: &Came| {
                let place = Place { item: *name, rank };
                let mask = masks.and_then(|_| table.hidden_at(&place));
                mask.map_or(0, BlockMask::rows).min(block.rows)
            };
            (0_u64..)
                .zip(&item.blocks)
                .map(move |(rank, block)| (block, hidden(rank, block)))
                .filter(|(block, hidden_rows)| *hidden_rows < block.rows)
        })
    }

    fn apply(&mut self, table: &TableSnapshot, store: &Arc<Store>) -> Result<()> {
        let (mut removed, mut added) = (HashMap::new(), Vec::new());
        for change in self.tree.difference(&table.tree, Arc::clone(store)) {
            match change? {
                ItemChange::Removed(entry) => {
                    let name = ItemName::of(&entry);
                    if let Some(item) = self.items.remove(&name) {
                        self.count(&item, false);
                        removed.insert(name, item);
                    }
                }
                ItemChange::Added(entry) => added.push(entry),
            }
        }
        let mut new_blocks = Vec::new();
        for entry in added {
            let name = ItemName::of(&entry);
            let item = item_of(table.id, store, entry)?;
            self.count(&item, true);
            // One that was moved is the same elsewhere.
            match removed.entry(name) {
                Slot::Occupied(old) if *old.get() == item => _ = old.remove(),
                _ => new_blocks.extend(item.blocks.iter().copied()),
            }
            self.items.insert(name, item);
        }
        new_blocks.sort_unstable_by_key(|block| block.arrival);
        let first = new_blocks.first().map(|block| block.arrival);
        let all_are_later = first.is_none_or(|first| self.late.last_arrival() < Some(first));
        if !removed.is_empty() || !all_are_later {
            let all = self.items.values().flat_map(|item| &item.blocks);
            new_blocks = all.copied().collect();
            new_blocks.sort_unstable_by_key(|block| block.arrival);
            self.late = LateRows::default();
        }
        new_blocks.iter().for_each(|block| self.late.add(block));
        self.tree = table.tree.clone();
        self.commit = table.commit();
        Ok(())
    }

    fn count(&mut self, item: &Item, is_added: bool) {
        let fragments = u64::from(item.is_fragment);
        if is_added {
            self.blocks += item.blocks.len();
            self.fragments += fragments;
        } else {
            self.blocks -= item.blocks.len();
            self.fragments -= fragments;
        }
    }
}

/// The blocks of an item of the tree of a table.
fn item_of(table: TableId, store: &Arc<Store>, entry: Entry) -> Result<Item> {
    if entry.is_block() {
        return Ok(Item {
            is_fragment: false,
            blocks: vec![Came::of_block(&entry)],
        });
    }
    let name = ItemName::of(&entry);
    let tree = Tree::from_root(table, Some(entry));
    let mut walk = tree.walk(None, Arc::clone(store)).below(name);
    let mut blocks = Vec::new();
    while let Some(entry) = walk.next(|_| Step::Descend)? {
        let rank = walk.place().map_or(0, |place| place.rank);
        blocks.push((rank, Came::of_block(&entry)));
    }
    blocks.sort_unstable_by_key(|(rank, _)| *rank);
    Ok(Item {
        is_fragment: true,
        blocks: blocks.into_iter().map(|(_, block)| block).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppendLimits, CreateOptions, Engine, EngineOptions, KeyRange, Table};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    fn append(table: &Table, keys: impl Iterator<Item = i64>) {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        let batch = RecordBatch::try_new(table.schema(), vec![keys]).unwrap();
        table.append([Ok(batch)], None).unwrap();
    }

    /// After each change: what was brought up to date is what is read anew.
    fn check(engine: &Engine, table: &Table) -> (u64, u64) {
        let view = table.view().unwrap();
        let (table, store) = (view.snapshot(), engine.kernel().store());
        let of = |known: &KnownBlocks| (known.fragments(), known.late_rows(table), known.blocks);
        let new = of(&KnownBlocks::read(table, store).unwrap());
        assert_eq!(engine.known_blocks().with(table, store, of).unwrap(), new);
        let stats = view.stats().unwrap();
        assert_eq!((stats.fragments, stats.late_rows), (new.0, new.1));
        (new.0, new.1)
    }

    #[test]
    fn what_is_brought_up_to_date_is_what_is_read_anew() {
        let options = EngineOptions {
            background: false,
            segment_bytes: 64 << 10,
            append_limits: AppendLimits {
                raw_bytes: 400,
                gather_bytes: 16_000,
                group_bytes: 1_500,
                fragment_bytes: 8_000,
                split_fragment_bytes: 500,
            },
            maintain_rows: 1_000,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
        let of_stream = CreateOptions::stream("ts").with("block_rows", 64);
        let table = engine.create_table("t", &schema, &of_stream).unwrap();
        let (mut seen_late, mut seen_fragments) = (0, 0);
        let older = table.view().unwrap();
        for round in 0_i64..60 {
            let first = round * 1_000;
            match round % 6 {
                // In order, late over all, a few open rows, late and open, many in fragments, deleted.
                0 | 1 => append(&table, first..first + 300),
                2 => append(&table, (0..60).map(|at| at * first.max(60) / 60)),
                3 => append(&table, [first / 2, first].into_iter()),
                4 => append(&table, (first..first + 4_000).step_by(2)),
                _ => {
                    let keys = KeyRange {
                        first: first / 3,
                        last: first / 3 + 700,
                    };
                    table.delete_range(keys, None).unwrap();
                }
            }
            let (fragments, late) = check(&engine, &table);
            (seen_late, seen_fragments) = (seen_late.max(late), seen_fragments.max(fragments));
            if round % 13 == 12 {
                engine.run_jobs().unwrap();
                check(&engine, &table);
            }
            if round % 29 == 28 {
                table.maintain().unwrap();
                assert_eq!(check(&engine, &table).1, 0);
                engine.checkpoint().unwrap();
                check(&engine, &table);
            }
            assert_eq!(
                older.stats().unwrap().rows,
                0,
                "an older view is what it was"
            );
        }
        assert!(
            seen_late > 100 && seen_fragments > 1,
            "{seen_late} {seen_fragments}"
        );
        engine.drop_table("t").unwrap();
        let other = engine.create_table("u", &schema, &of_stream).unwrap();
        check(&engine, &other);
        assert_eq!(engine.known_blocks().len(), 1);
    }
}
