//! The tables that have open rows: what the writer keeps beside their states, and which of them are to be encoded next.
//!
//! Invariants: a table without open rows takes nothing here, so nothing that looks through this collection grows with the
//! number of idle tables. Appending to a table that has open rows costs the same however many others have some: a table
//! moves between size classes only when its bytes double.

use crate::ids::{CommitNo, TableId};
use crate::open_rows::{OpenList, OpenRows, OpenTail};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the writer keeps of one table with open rows.
pub(crate) struct Open {
    tail: OpenTail,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// How many rows make a block; not known before [`OpenTables::set_block_rows`].
    pub(crate) block_rows: u64,
    /// Blocks were committed to the table after its last open row: the next one begins a section.
    pub(crate) has_later_blocks: bool,
    /// (commit, rows, bytes) of what is open, to subtract when it is covered.
    counts: VecDeque<(CommitNo, u32, u32)>,
}

impl Open {
    fn has_room(&self) -> bool {
        self.tail.has_room()
    }

    fn is_full(&self) -> bool {
        self.rows >= self.block_rows
    }

    /// The binary order of magnitude of its bytes.
    fn size_class(&self) -> u32 {
        u64::BITS - self.bytes.leading_zeros()
    }

    /// Rows of the commits up to `covered`.
    pub(crate) fn rows_up_to(&self, covered: CommitNo) -> u64 {
        let covers = |(commit, ..): &&(CommitNo, u32, u32)| *commit <= covered;
        let counts = self.counts.iter().take_while(covers);
        counts.map(|(_, rows, _)| u64::from(*rows)).sum()
    }

    /// The first commit of which rows are open.
    pub(crate) fn first_commit(&self) -> Option<CommitNo> {
        self.counts.front().map(|(commit, ..)| *commit)
    }
}

#[derive(Default)]
pub(crate) struct OpenTables {
    tables: BTreeMap<TableId, Open>,
    /// Raw bytes of all open rows.
    bytes: u64,
    /// Tables with as many open rows as make a block.
    full: BTreeSet<TableId>,
    /// A table has got rows and has a block of them since [`OpenTables::take_filled`].
    filled: bool,
    by_size: BTreeMap<u32, BTreeSet<TableId>>,
    /// Tables whose block size is to be asked for.
    unknown: Vec<TableId>,
}

impl OpenTables {
    pub(crate) fn get(&self, table: TableId) -> Option<&Open> {
        self.tables.get(&table)
    }

    /// The tables that have open rows.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TableId> {
        self.tables.keys().copied()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether [`OpenTables::push`] needs [`OpenTables::extend`] first.
    pub(crate) fn needs_chunk(&self, table: TableId) -> bool {
        !self.tables.get(&table).is_some_and(Open::has_room)
    }

    /// Gives the list of a table another chunk to append to.
    pub(crate) fn extend(&mut self, table: TableId, list: &mut OpenList) {
        match self.tables.get_mut(&table) {
            Some(open) => open.tail = OpenTail::extend(list, open.counts.len()),
            None => {
                let open = Open {
                    tail: OpenTail::extend(list, 0),
                    rows: 0,
                    bytes: 0,
                    block_rows: u64::MAX,
                    has_later_blocks: false,
                    counts: VecDeque::new(),
                };
                self.tables.insert(table, open);
                self.unknown.push(table);
            }
        }
    }

    /// Appends rows to a table whose list has room for them.
    pub(crate) fn push(&mut self, mut rows: OpenRows) {
        let table = rows.part.table;
        let Some(open) = self.tables.get_mut(&table) else {
            unreachable!("a list was made for the table");
        };
        let bytes = crate::fields::len_u32(rows.part.payload.len());
        rows.begins_section |= std::mem::take(&mut open.has_later_blocks);
        let (was_full, class_before) = (open.is_full(), open.size_class());
        let is_first = open.counts.is_empty();
        open.rows += u64::from(rows.part.rows);
        open.bytes += u64::from(bytes);
        open.counts.push_back((rows.commit, rows.part.rows, bytes));
        open.tail.push(rows);
        self.bytes += u64::from(bytes);
        let (is_full, class) = (open.is_full(), open.size_class());
        self.filled |= is_full;
        if is_full && !was_full {
            self.full.insert(table);
        }
        if is_first || class != class_before {
            self.reclassify(table, class_before, class);
        }
    }

    /// Blocks were committed to a table that are not those of its open rows.
    pub(crate) fn note_blocks(&mut self, table: TableId) {
        if let Some(open) = self.tables.get_mut(&table) {
            open.has_later_blocks = true;
        }
    }

    /// Forgets the rows of commits up to `covered`. Returns whether the table has others.
    pub(crate) fn cover(&mut self, table: TableId, covered: CommitNo) -> bool {
        let Some(open) = self.tables.get_mut(&table) else {
            return false;
        };
        let class_before = open.size_class();
        while let Some((_, rows, bytes)) = open.counts.pop_front_if(|(c, ..)| *c <= covered) {
            open.rows -= u64::from(rows);
            open.bytes -= u64::from(bytes);
            self.bytes -= u64::from(bytes);
        }
        let (has_rows, is_full, class) =
            (!open.counts.is_empty(), open.is_full(), open.size_class());
        if !has_rows {
            self.tables.remove(&table);
            self.leave_class(table, class_before);
        } else if class != class_before {
            self.reclassify(table, class_before, class);
        }
        if !(has_rows && is_full) {
            self.full.remove(&table);
        }
        has_rows
    }

    /// Forgets a table.
    pub(crate) fn remove(&mut self, table: TableId) {
        if let Some(open) = self.tables.remove(&table) {
            self.bytes -= open.bytes;
            self.full.remove(&table);
            self.leave_class(table, open.size_class());
        }
    }

    fn reclassify(&mut self, table: TableId, before: u32, class: u32) {
        self.leave_class(table, before);
        self.by_size.entry(class).or_default().insert(table);
    }

    fn leave_class(&mut self, table: TableId, class: u32) {
        if let Some(tables) = self.by_size.get_mut(&class) {
            tables.remove(&table);
            if tables.is_empty() {
                self.by_size.remove(&class);
            }
        }
    }

    /// The definition of a table has changed.
    pub(crate) fn ask_again(&mut self, table: TableId) {
        if self.tables.contains_key(&table) {
            self.unknown.push(table);
        }
    }

    /// Tables with open rows whose block size is not known.
    pub(crate) fn take_unknown(&mut self) -> Vec<TableId> {
        std::mem::take(&mut self.unknown)
    }

    pub(crate) fn set_block_rows(&mut self, table: TableId, block_rows: u64) {
        let Some(open) = self.tables.get_mut(&table) else {
            return;
        };
        open.block_rows = block_rows;
        if open.is_full() {
            self.filled = true;
            self.full.insert(table);
        } else {
            self.full.remove(&table);
        }
    }

    /// Whether rows were appended to a table that has a block of them; asked for once. A table that cannot be encoded stays
    /// full, and calls nobody but by its own appends.
    pub(crate) fn take_filled(&mut self) -> bool {
        std::mem::take(&mut self.filled)
    }

    /// A table with as many open rows as make a block, if there is one besides those of `aside`.
    pub(crate) fn next_full(&self, aside: &[TableId]) -> Option<(TableId, &Open)> {
        let table = self.full.iter().find(|table| !aside.contains(table))?;
        Some((*table, self.tables.get(table)?))
    }

    /// A table with more than half as many open bytes as any other, those of `aside` left out.
    pub(crate) fn next_large(&self, aside: &[TableId]) -> Option<TableId> {
        let tables = self.by_size.values().rev().flatten();
        tables.copied().find(|table| !aside.contains(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::RowsPart;

    /// A collection, and the lists of two tables in it.
    #[derive(Default)]
    struct Tables {
        open: OpenTables,
        lists: BTreeMap<TableId, OpenList>,
        commit: u64,
    }

    impl Tables {
        fn push(&mut self, table: u32, bytes: usize) {
            let table = TableId(table);
            self.commit += 1;
            if self.open.needs_chunk(table) {
                self.open
                    .extend(table, self.lists.entry(table).or_default());
            }
            let part = RowsPart {
                table,
                definition_version: 1,
                rows: 1,
                key_min: 0,
                key_max: 0,
                payload: vec![0; bytes].into(),
            };
            self.open.push(OpenRows {
                commit: CommitNo(self.commit),
                begins_section: false,
                part,
            });
        }

        fn next_large(&self, aside: &[u32]) -> Option<u32> {
            let aside: Vec<TableId> = aside.iter().copied().map(TableId).collect();
            self.open.next_large(&aside).map(|table| table.0)
        }
    }

    #[test]
    fn the_next_table_to_encode_is_full_or_among_the_largest() {
        let mut tables = Tables::default();
        (0..100).for_each(|_| tables.push(1, 10));
        (0..10).for_each(|_| tables.push(2, 1_000));
        tables.push(3, 1);
        assert_eq!(tables.open.bytes(), 1_000 + 10_000 + 1);
        assert_eq!(
            (tables.next_large(&[]), tables.next_large(&[2])),
            (Some(2), Some(1))
        );
        // Nobody knows yet how many rows make a block.
        assert!(tables.open.next_full(&[]).is_none() && !tables.open.take_filled());
        assert_eq!(
            tables.open.take_unknown(),
            [TableId(1), TableId(2), TableId(3)]
        );
        tables.open.set_block_rows(TableId(1), 100);
        tables.open.set_block_rows(TableId(2), 11);
        assert!(tables.open.take_filled() && !tables.open.take_filled());
        assert_eq!(
            tables.open.next_full(&[]).map(|(table, _)| table.0),
            Some(1)
        );
        assert!(tables.open.next_full(&[TableId(1)]).is_none());
        tables.push(2, 1);
        assert!(tables.open.take_filled());
        assert_eq!(
            tables
                .open
                .next_full(&[TableId(1)])
                .map(|(table, _)| table.0),
            Some(2)
        );
        // Some rows of the first are encoded, all of the second, and the third is dropped.
        assert!(tables.open.cover(TableId(1), CommitNo(60)));
        assert!(!tables.open.cover(TableId(2), CommitNo(112)));
        tables.open.remove(TableId(3));
        assert!(tables.open.next_full(&[]).is_none());
        let first = tables
            .open
            .get(TableId(1))
            .map(|open| (open.rows, open.bytes));
        assert_eq!((first, tables.open.bytes()), (Some((40, 400)), 400));
        assert_eq!(
            (tables.next_large(&[]), tables.next_large(&[1])),
            (Some(1), None)
        );
        tables.open.cover(TableId(1), CommitNo(100));
        assert_eq!(
            (tables.open.ids().count(), tables.open.by_size.len()),
            (0, 0)
        );
    }

    #[test]
    fn rows_after_blocks_begin_a_section() {
        let mut tables = Tables::default();
        tables.open.note_blocks(TableId(1));
        (0..2).for_each(|_| tables.push(1, 1));
        tables.open.note_blocks(TableId(1));
        tables.open.note_blocks(TableId(1));
        (0..2).for_each(|_| tables.push(1, 1));
        let list = &tables.lists[&TableId(1)];
        let sections = list.iter(CommitNo(9)).map(|rows| rows.begins_section);
        assert_eq!(sections.collect::<Vec<_>>(), [false, false, true, false]);
    }
}
