//! Fragments with copies of blocks.
//!
//! Invariant: a copy has the key, the commits and the bytes of its block.

use super::*;

impl Driver {
    /// Replaces all items of a table by a fragment with copies of its blocks, as emptying a segment does.
    pub fn copy_blocks(&mut self, name: &str) {
        let Some(table) = self.table(name) else {
            return;
        };
        self.submit(Effect::Nothing, Durability::Disk, |toy| {
            let snapshot = toy.kernel.snapshot()?;
            let state = snapshot.table(table).ok_or_else(|| gone(table))?;
            let columns = columns_of(&state.definition);
            let mut fragment = toy.kernel.stage_fragment(table)?;
            for entry in state.tree.iter(None, &**toy.kernel.store()) {
                let entry = entry?;
                let mut copy = wide_block(table, toy.block_rows(&entry)?, None, columns);
                let (first, last) = (entry.commit_min, entry.commit_max);
                copy.entry = copy.entry.committed(first, last, entry.key().ordinal);
                fragment.add_block(&copy)?;
            }
            let added = vec![fragment.finish()?];
            let removed = items_of(toy, &state)?.iter().map(ItemName::of).collect();
            let commit = replacing(table, removed, added, snapshot.commit());
            toy.kernel.commit(commit, Durability::Disk)
        });
    }
}
