//! The tables that have open rows: what the writer keeps beside their states, and which of them are to be encoded next.
//!
//! Invariants: a table without open rows takes nothing here, so nothing that looks through this collection grows with the
//! number of idle tables. Appending to a table that has open rows costs the same however many others have some: a table
//! moves between size classes only when its bytes double. A table whose encoding has just failed is in none of the
//! collections that the next table to encode is taken from: finding that one costs the same however many tables are set
//! aside.

use crate::ids::{CommitNo, TableId};
use crate::open_rows::{OpenList, OpenRows, OpenTail};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The writer's notes on one table with open rows.
pub(crate) struct Open {
    tail: OpenTail,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// How many rows make a block; not known before [`OpenTables::set_block_rows`].
    pub(crate) block_rows: u64,
    /// Blocks were committed to the table after its last open row: the next one begins a section.
    pub(crate) has_later_blocks: bool,
    /// Encoding these rows has failed.
    is_stuck: bool,
    /// When it failed, while it is not tried again.
    aside_since_ns: Option<u64>,
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

    /// The rows of a part of a commit that is open.
    pub(crate) fn rows_of_part(&self, commit: CommitNo, number: u32) -> Option<u32> {
        let (rows, _) = self.part(commit, number)?;
        Some(rows)
    }

    /// The bytes of a part of a commit that is open.
    pub(crate) fn bytes_of_part(&self, commit: CommitNo, number: u32) -> Option<u32> {
        let (_, bytes) = self.part(commit, number)?;
        Some(bytes)
    }

    /// Rows and bytes of a part of a commit that is open.
    fn part(&self, commit: CommitNo, number: u32) -> Option<(u32, u32)> {
        let first = self.counts.partition_point(|(other, ..)| *other < commit);
        let at = first.checked_add(usize::try_from(number).ok()?)?;
        let (of, rows, bytes) = self.counts.get(at)?;
        (*of == commit).then_some((*rows, *bytes))
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
    /// Tables whose encoding has just failed, by when: they are neither among the full ones nor in a size class.
    aside: BTreeSet<(u64, TableId)>,
    /// Raw bytes of the open rows that could not be encoded.
    stuck_bytes: u64,
    /// Tables of which no rows are stuck any more, since [`OpenTables::take_unstuck`].
    unstuck: Vec<TableId>,
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

    /// Bytes of the tables whose encoding has failed.
    pub(crate) fn stuck_bytes(&self) -> u64 {
        self.stuck_bytes
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
                    is_stuck: false,
                    aside_since_ns: None,
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
        let of_commit = open.counts.iter().rev();
        let of_commit = of_commit.take_while(|(commit, ..)| *commit == rows.commit);
        rows.number = crate::fields::len_u32(of_commit.count());
        open.rows += u64::from(rows.part.rows);
        open.bytes += u64::from(bytes);
        open.counts.push_back((rows.commit, rows.part.rows, bytes));
        open.tail.push(rows);
        self.bytes += u64::from(bytes);
        if open.is_stuck {
            self.stuck_bytes += u64::from(bytes);
        }
        let (is_full, class) = (open.is_full(), open.size_class());
        self.filled |= is_full;
        if open.aside_since_ns.is_some() {
            return;
        }
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
        self.unlist(table);
        let Some(open) = self.tables.get_mut(&table) else {
            return false;
        };
        while let Some((_, rows, bytes)) = open.counts.pop_front_if(|(c, ..)| *c <= covered) {
            open.rows -= u64::from(rows);
            open.bytes -= u64::from(bytes);
            self.bytes -= u64::from(bytes);
            if open.is_stuck {
                self.stuck_bytes -= u64::from(bytes);
            }
        }
        if open.counts.is_empty() {
            self.remove(table);
            return false;
        }
        self.list(table);
        true
    }

    /// Forgets a table.
    pub(crate) fn remove(&mut self, table: TableId) {
        self.unlist(table);
        if let Some(open) = self.tables.remove(&table) {
            self.bytes -= open.bytes;
            if open.is_stuck {
                self.stuck_bytes -= open.bytes;
                self.unstuck.push(table);
            }
        }
    }

    /// Notes that encoding the rows of a table has failed at that time, or was done.
    pub(crate) fn note_encoded(&mut self, table: TableId, failed_ns: Option<u64>) {
        self.unlist(table);
        let Some(open) = self.tables.get_mut(&table) else {
            self.unstuck.push(table);
            return;
        };
        let is_stuck = failed_ns.is_some();
        match (open.is_stuck, is_stuck) {
            (false, true) => self.stuck_bytes += open.bytes,
            (true, false) => self.stuck_bytes -= open.bytes,
            _ => {}
        }
        (open.is_stuck, open.aside_since_ns) = (is_stuck, failed_ns);
        self.list(table);
    }

    /// Tables whose encoding had failed and that have none of those rows any more.
    pub(crate) fn take_unstuck(&mut self) -> Vec<TableId> {
        std::mem::take(&mut self.unstuck)
    }

    /// Lets tables be encoded again whose encoding failed at that time or before.
    pub(crate) fn try_again(&mut self, failed_ns: u64) {
        while let Some((since, table)) = self.aside.first().copied()
            && since <= failed_ns
        {
            self.unlist(table);
            if let Some(open) = self.tables.get_mut(&table) {
                open.aside_since_ns = None;
            }
            self.list(table);
        }
    }

    /// Puts a table where the next one to encode is looked for, or aside.
    fn list(&mut self, table: TableId) {
        let Some(open) = self.tables.get(&table) else {
            return;
        };
        if let Some(since) = open.aside_since_ns {
            self.aside.insert((since, table));
            return;
        }
        if open.is_full() {
            self.full.insert(table);
        }
        let class = open.size_class();
        self.by_size.entry(class).or_default().insert(table);
    }

    /// Takes a table out of all that [`OpenTables::list`] puts it into.
    fn unlist(&mut self, table: TableId) {
        let Some(open) = self.tables.get(&table) else {
            return;
        };
        if let Some(since) = open.aside_since_ns {
            self.aside.remove(&(since, table));
            return;
        }
        let class = open.size_class();
        self.full.remove(&table);
        self.leave_class(table, class);
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

    /// Has the block size of a table asked for again, because its definition has changed.
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
        let (is_full, is_aside) = (open.is_full(), open.aside_since_ns.is_some());
        self.filled |= is_full;
        match is_full && !is_aside {
            true => _ = self.full.insert(table),
            false => _ = self.full.remove(&table),
        }
    }

    /// Whether rows were appended to a table that has a block of them; asked for once. A table that cannot be encoded stays
    /// full, and only its own appends make this true.
    pub(crate) fn take_filled(&mut self) -> bool {
        std::mem::take(&mut self.filled)
    }

    /// A table with as many open rows as make a block, if there is one that is not set aside.
    pub(crate) fn next_full(&self) -> Option<(TableId, &Open)> {
        let table = self.full.first()?;
        Some((*table, self.tables.get(table)?))
    }

    /// A table with more than half as many open bytes as any other, those that are set aside left out.
    pub(crate) fn next_large(&self) -> Option<TableId> {
        let (_, largest) = self.by_size.last_key_value()?;
        largest.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows_part::RowsPart;

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
                number: 0,
                part,
            });
        }

        fn next_large(&self) -> Option<u32> {
            self.open.next_large().map(|table| table.0)
        }

        fn next_full(&self) -> Option<u32> {
            self.open.next_full().map(|(table, _)| table.0)
        }
    }

    #[test]
    fn the_next_table_to_encode_is_full_or_among_the_largest() {
        let mut tables = Tables::default();
        (0..100).for_each(|_| tables.push(1, 10));
        (0..10).for_each(|_| tables.push(2, 1_000));
        tables.push(3, 1);
        assert_eq!(tables.open.bytes(), 1_000 + 10_000 + 1);
        assert_eq!(tables.next_large(), Some(2));
        // It is not known yet how many rows make a block.
        assert!(tables.next_full().is_none() && !tables.open.take_filled());
        assert_eq!(
            tables.open.take_unknown(),
            [TableId(1), TableId(2), TableId(3)]
        );
        tables.open.set_block_rows(TableId(1), 100);
        tables.open.set_block_rows(TableId(2), 11);
        assert!(tables.open.take_filled() && !tables.open.take_filled());
        assert_eq!(tables.next_full(), Some(1));
        tables.push(2, 1);
        assert!(tables.open.take_filled());
        // Some rows of the first are encoded, all of the second, and the third is dropped.
        assert!(tables.open.cover(TableId(1), CommitNo(60)));
        assert_eq!(tables.next_full(), Some(2));
        assert!(!tables.open.cover(TableId(2), CommitNo(112)));
        tables.open.remove(TableId(3));
        assert!(tables.next_full().is_none());
        let first = tables
            .open
            .get(TableId(1))
            .map(|open| (open.rows, open.bytes));
        assert_eq!((first, tables.open.bytes()), (Some((40, 400)), 400));
        assert_eq!(tables.next_large(), Some(1));
        tables.open.cover(TableId(1), CommitNo(100));
        assert_eq!(
            (tables.open.ids().count(), tables.open.by_size.len()),
            (0, 0)
        );
    }

    #[test]
    fn a_table_whose_encoding_fails_is_set_aside_for_a_while() {
        let mut tables = Tables::default();
        (0..4).for_each(|_| tables.push(1, 1_000));
        (0..3).for_each(|_| tables.push(2, 10));
        for table in [1, 2] {
            tables.open.set_block_rows(TableId(table), 3);
        }
        tables.open.note_encoded(TableId(1), Some(50));
        assert_eq!(
            (tables.next_full(), tables.next_large()),
            (Some(2), Some(2))
        );
        assert_eq!(tables.open.stuck_bytes(), 4_000);
        // What it gets meanwhile does not bring it back, nor does another definition.
        assert!(tables.open.take_filled());
        tables.push(1, 500);
        tables.open.set_block_rows(TableId(1), 2);
        assert!(tables.open.take_filled());
        assert_eq!(
            (tables.next_full(), tables.next_large()),
            (Some(2), Some(2))
        );
        assert!(tables.open.cover(TableId(1), CommitNo(2)));
        assert_eq!(tables.open.stuck_bytes(), 2_500);
        tables.open.try_again(49);
        assert_eq!(tables.next_full(), Some(2));
        tables.open.try_again(50);
        assert_eq!(
            (tables.next_full(), tables.next_large()),
            (Some(1), Some(1))
        );
        // It still counts as stuck until it was encoded.
        assert_eq!(tables.open.stuck_bytes(), 2_500);
        tables.open.note_encoded(TableId(1), Some(60));
        tables.open.note_encoded(TableId(1), None);
        assert_eq!(
            (tables.open.stuck_bytes(), tables.next_full()),
            (0, Some(1))
        );
        // Dropped while it is set aside, and gone before the failure is noted.
        tables.open.note_encoded(TableId(2), Some(70));
        tables.open.remove(TableId(2));
        tables.open.note_encoded(TableId(9), Some(70));
        assert_eq!(tables.open.take_unstuck(), [TableId(2), TableId(9)]);
        assert_eq!((tables.open.stuck_bytes(), tables.open.aside.len()), (0, 0));
    }

    #[test]
    fn tables_that_are_set_aside_are_not_searched() {
        let mut tables = Tables::default();
        for table in 1..1_000 {
            tables.push(table, 10);
            tables.open.set_block_rows(TableId(table), 1);
            tables.open.note_encoded(TableId(table), Some(table.into()));
            tables.push(table, 100);
        }
        assert_eq!((tables.next_full(), tables.next_large()), (None, None));
        assert!(tables.open.full.is_empty() && tables.open.by_size.is_empty());
        tables.push(1_000, 1);
        tables.open.set_block_rows(TableId(1_000), 1);
        assert_eq!(
            (tables.next_full(), tables.next_large()),
            (Some(1_000), Some(1_000))
        );
        // Those whose time has come, and no others.
        tables.open.try_again(10);
        assert_eq!((tables.open.full.len(), tables.open.aside.len()), (11, 989));
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
