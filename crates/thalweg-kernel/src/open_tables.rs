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
            self.full.insert(table);
        } else {
            self.full.remove(&table);
        }
    }

    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
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
