//! Tables with indexes: several orders of one set of rows.
//!
//! Invariant: entries of an index are those of rows that there are; what it covers is checked whenever contents are read
//! ([`crate::oracle::rows_of`]).

use super::*;
use crate::toy::{LAST_INDEX, block_of_order, entries_of, index_blocks};
use thalweg_kernel::orders::{
    CoverageRange, OrderAction, OrderChange, OrderReplace, OrdersEdit, ReplaceEdit,
};

impl Driver {
    /// A new table with so many indexes.
    pub fn create_indexed(&mut self, name: &str, indexes: u32) {
        let edit = Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: Bytes::from_static(b"toy"),
            indexes,
        };
        self.edit(Effect::Create(name.to_owned()), edit);
    }

    /// The indexes of a table that are on.
    fn indexes_on(&self, table: TableId) -> Vec<u32> {
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let Some(state) = snapshot.and_then(|snapshot| snapshot.table(table)) else {
            return Vec::new();
        };
        let on = state.orders().iter().filter(|order| order.is_on);
        on.map(|order| order.id).collect()
    }

    /// Groups of the entries of new rows in all indexes of their table that are on. Every third commit leaves one out.
    pub(super) fn entry_groups(&self, table: TableId, rows: &[Row]) -> Vec<GroupPart> {
        let (version, of_block) = (self.version(table), self.shape.block_rows as usize);
        let orders = self.indexes_on(table).into_iter();
        let left_out = rows.first().map_or(0, |row| row.1) % 3 == 0;
        let orders = orders.filter(|order| !(left_out && *order == 3));
        let groups = orders.map(|order| GroupPart {
            head: AddHead {
                is_complete: true,
                ..AddHead::of_index(table, order, version)
            },
            blocks: index_blocks(table, order, rows, of_block),
        });
        groups.collect()
    }

    /// Makes an index, which covers nothing yet.
    pub fn make_index(&mut self, name: &str) {
        self.change_orders(name, |state| OrderChange {
            order: state.orders().last().map_or(2, |last| last.id + 1),
            action: OrderAction::Make,
        });
    }

    /// Drops an index.
    pub fn drop_index(&mut self, name: &str, order: u32) {
        self.change_orders(name, |_| OrderChange {
            order,
            action: OrderAction::Drop,
        });
    }

    /// Switches an index off, or on again.
    pub fn switch_index(&mut self, name: &str, order: u32, on: bool) {
        self.change_orders(name, |_| OrderChange {
            order,
            action: match on {
                true => OrderAction::SwitchOn,
                false => OrderAction::SwitchOff {
                    key_min: 10,
                    key_max: 20,
                },
            },
        });
    }

    fn change_orders(&mut self, name: &str, change: impl FnOnce(&TableSnapshot) -> OrderChange) {
        let Some(table) = self.table(name) else {
            return;
        };
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let change = change(&state);
            let is_definition = matches!(change.action, OrderAction::Make | OrderAction::Drop);
            let definition = Edit::SetDefinition {
                table,
                expected_version: state.definition_version,
                definition: state.definition.clone(),
            };
            let orders = Edit::Orders(OrdersEdit {
                table,
                changes: vec![change],
            });
            let edits = is_definition.then_some(definition);
            let commit = Commit {
                edits: edits.into_iter().chain([orders]).collect(),
                ..Commit::default()
            };
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Gives an index the entries of all rows in blocks that it does not cover.
    pub fn build_index(&mut self, name: &str, order: u32) {
        let Some(table) = self.table(name) else {
            return;
        };
        let of_block = self.shape.block_rows as usize;
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let index = state.order(order).ok_or_else(|| gone(table))?;
            let mut rows = Vec::new();
            for block in state.tree.iter(None, &**toy.kernel.store()) {
                let block = block?;
                let (first, last) = (block.key_min, block.key_max);
                if !index.coverage.covers(first, last, block.commit_max) {
                    rows.extend(toy.block_rows(&block)?);
                }
            }
            let head = AddHead {
                coverage: vec![CoverageRange::of_all(snapshot.commit())],
                is_complete: rows.is_empty(),
                ..AddHead::of_index(table, order, state.definition_version)
            };
            let mut commit = Commit {
                prepared_at: Some(snapshot.commit()),
                ..Commit::default()
            };
            if rows.is_empty() {
                let blocks = Vec::new();
                commit.groups.push(GroupPart { head, blocks });
            } else {
                let mut fragment = toy.kernel.stage_fragment_of(table, order)?;
                for block in index_blocks(table, order, &rows, of_block) {
                    fragment.add_block(&block)?;
                }
                let roots = vec![fragment.finish()?];
                commit.edits.push(Edit::AddFragments { head, roots });
            }
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Replaces all items of all orders of a table by one fragment each, in one commit. Does nothing if there are open rows, which a failed
    /// call may have left: the merged blocks would take commits from before and after those rows, and so could not be ordered against them.
    pub fn merge_orders(&mut self, name: &str) {
        let Some(table) = self.table(name) else {
            return;
        };
        let snapshot = self.toy.as_ref().and_then(|toy| toy.kernel.snapshot().ok());
        let state = snapshot.and_then(|snapshot| snapshot.table(table));
        if state.is_none_or(|state| state.open_rows().next().is_some()) {
            return;
        }
        let of_block = 3 * self.shape.block_rows as usize;
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let mut edit = ReplaceEdit::of_orders(table);
            for (order, tree) in state.trees() {
                let items = items_below(toy, tree)?;
                let first = items.iter().map(|item| item.commit_min).min();
                let last = items.iter().map(|item| item.commit_max).max();
                let (Some(first), Some(last)) = (first, last) else {
                    continue;
                };
                let mut rows = Vec::new();
                for item in &items {
                    rows.extend(arrivals_of(toy, &state, item)?);
                }
                rows.sort_unstable();
                let rows: Vec<Row> = rows.into_iter().map(|row| (row.0, row.2)).collect();
                let mut fragment = toy.kernel.stage_fragment_of(table, order)?;
                for (number, chunk) in (0..).zip(rows.chunks(of_block)) {
                    let mut block = block_of_order((table, order), chunk.to_vec(), None, 2);
                    block.entry = block.entry.committed(first, last, number);
                    fragment.add_block(&block)?;
                }
                let names = items.iter().map(ItemName::of).collect();
                let added = vec![fragment.finish()?];
                edit.orders
                    .push(OrderReplace::of_items(order, names, added));
            }
            if edit.orders.is_empty() {
                return toy.kernel.flush().map(|()| snapshot.commit());
            }
            let commit = Commit {
                edits: vec![Edit::Replace(edit)],
                prepared_at: Some(snapshot.commit()),
                ..Commit::default()
            };
            toy.kernel.commit(commit, Durability::Disk)
        });
    }

    /// Stages the entries of new rows of a table as fragments, for all indexes that are on but [`LAST_INDEX`].
    pub(super) fn stage_entries(
        toy: &Toy,
        table: TableId,
        version: u32,
        rows: &[Row],
        of_block: usize,
    ) -> Result<Vec<Edit>> {
        let snapshot = toy.kernel.snapshot()?;
        let state = snapshot.table(table).ok_or_else(|| gone(table))?;
        let on = state.orders().iter().filter(|order| order.is_on);
        let on = on.filter(|order| order.id != LAST_INDEX && !rows.is_empty());
        let staged = on.map(|order| {
            let mut fragment = toy.kernel.stage_fragment_of(table, order.id)?;
            for chunk in entries_of(order.id, rows).chunks(of_block) {
                let block = block_of_order((table, order.id), chunk.to_vec(), None, 2);
                fragment.add_block(&block)?;
            }
            Ok(Edit::AddFragments {
                head: AddHead {
                    is_complete: true,
                    ..AddHead::of_index(table, order.id, version)
                },
                roots: vec![fragment.finish()?],
            })
        });
        staged.collect()
    }
}
