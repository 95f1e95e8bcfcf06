//! Which of two outcomes of a repair keeps more rows.
//!
//! Invariants
//! - Rows that masks hide, and rows that are back because the commit that deleted them is left out, do not count as kept.
//! - An outcome that lacks no commit but those that another one lacks as well shows how many rows the tables have, those included
//!   that it has lost with damaged pages. The other one keeps no more than that: what it has beyond are deleted rows, and it has
//!   lost their deletion.

use super::RepairReport;
use super::start::Start;
use crate::ids::{CommitNo, TableId};
use crate::table_state::TableState;
use crate::working::Working;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rows of tables, by table.
pub(super) type TableRows = HashMap<TableId, u64>;

/// The rows of an outcome, and which of them count as kept.
pub(super) struct Kept {
    /// The rows that are there.
    pub(super) rows: u64,
    /// Those of them that are hidden, or back.
    deleted: u64,
    /// The others, by table.
    tables: BTreeMap<TableId, u64>,
    /// All rows that a table has, those below damaged pages included.
    all: BTreeMap<TableId, u64>,
}

impl Kept {
    /// Counts the rows of a state with all masks that were found, also those of items that are not there. `back`: rows
    /// whose deletion is left out; `lost`: rows below damaged pages.
    pub(super) fn of(working: &Working, back: &TableRows, lost: &TableRows) -> Self {
        let mut kept = Self {
            rows: 0,
            deleted: 0,
            tables: BTreeMap::new(),
            all: BTreeMap::new(),
        };
        for table in working.tables.iter() {
            let of_table = |rows: &TableRows| rows.get(&table.id).copied().unwrap_or_default();
            let there = rows_of(table, working.commit);
            let hidden = table.masks().map_or(0, |masks| masks.rows());
            let deleted = hidden.saturating_add(of_table(back)).min(there);
            kept.rows = kept.rows.saturating_add(there);
            kept.deleted = kept.deleted.saturating_add(deleted);
            kept.tables.insert(table.id, there - deleted);
            let all = there.saturating_add(of_table(lost));
            kept.all.insert(table.id, all.saturating_sub(hidden));
        }
        kept
    }

    /// Rows that are there though the commits of another outcome have deleted them.
    fn beyond(&self, other: &Self) -> u64 {
        other.all.iter().fold(0, |sum: u64, (table, rows)| {
            let kept = self.tables.get(table).copied().unwrap_or_default();
            sum.saturating_add(kept.saturating_sub(*rows))
        })
    }
}

/// An outcome of a repair as it is compared with another one.
pub(super) struct Compared<'a> {
    pub(super) start: &'a Start,
    pub(super) report: &'a RepairReport,
    /// The rows that are there; fewer than those of `kept` where blocks are damaged.
    pub(super) rows: u64,
    pub(super) kept: &'a Kept,
}

impl Compared<'_> {
    /// Whether more is left than of another outcome. Where the tables are the same, the rows that are kept decide, whatever
    /// was given up by numbers of commits.
    pub(super) fn is_more_than(&self, other: &Self) -> bool {
        let rows = self.rows_beside(other);
        let other_rows = other.rows_beside(self);
        if rows != other_rows && self.tables() == other.tables() {
            return rows > other_rows;
        }
        self.report.loss() < other.report.loss()
    }

    /// Whether no commit is missing here that the other outcome has.
    fn has_all_of(&self, other: &Self) -> bool {
        let missing = |report: &RepairReport| -> Vec<_> {
            report
                .given_up
                .iter()
                .filter_map(|damage| damage.commits)
                .collect()
        };
        let of_other = missing(other.report);
        let is_missing_there = |(first, last): &(CommitNo, CommitNo)| {
            let mut parts = of_other.iter();
            parts.any(|(from, to)| from <= first && last <= to)
        };
        missing(self.report).iter().all(is_missing_there)
    }

    fn rows_beside(&self, other: &Self) -> u64 {
        let beyond = match other.has_all_of(self) {
            true => self.kept.beyond(other.kept),
            false => 0,
        };
        let deleted = self.kept.deleted.saturating_add(beyond);
        self.rows.saturating_sub(deleted)
    }

    fn tables(&self) -> Vec<(TableId, Arc<str>, u32)> {
        let tables = self.start.working.tables.iter();
        let names = tables.map(|t| (t.id, Arc::clone(&t.name), t.definition_version));
        names.collect()
    }
}

/// The rows of a table, hidden ones too.
fn rows_of(table: &TableState, commit: CommitNo) -> u64 {
    let pending = table.tree.pending().map_or(&[][..], |p| &p.added);
    let items = table.tree.total().into_iter().chain(pending);
    let open = table.open.iter(commit);
    let open = open.map(|open| u64::from(open.part.rows));
    items.map(|item| item.rows).chain(open).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::commit::Edit;
    use crate::error::{Error, Result};
    use crate::ids::LogPosition;
    use crate::index::{Entry, Page, PageLoader};
    use crate::masks::{MaskEdit, PartMask, Positions};
    use crate::rows_part::RowsPart;
    use bytes::Bytes;

    /// No table has an index here.
    struct NoPages;

    impl PageLoader for NoPages {
        fn load_page(&self, _: TableId, entry: &Entry) -> Result<Arc<Page>> {
            Err(Error::corruption(entry.address, "there are no pages"))
        }
    }

    /// A table of ten open rows, of which three are hidden.
    fn ten_rows() -> (Working, TableId) {
        let mut working = Working::empty();
        let table = TableId(working.next_table);
        let mut apply = |change: Change| {
            let commit = working.commit.next().unwrap();
            let place = LogPosition::default();
            let applied = working.apply(commit, &mut vec![change], place, &NoPages);
            applied.unwrap();
            commit
        };
        apply(Change::Edit(Edit::CreateTable {
            table,
            name: "t".to_owned(),
            definition: Bytes::new(),
            indexes: 0,
        }));
        let commit = apply(Change::Rows(RowsPart {
            table,
            definition_version: 1,
            rows: 10,
            key_min: 0,
            key_max: 9,
            payload: Bytes::from_static(b"ten rows"),
        }));
        let part = PartMask {
            commit,
            part: 0,
            rows: 10,
            positions: Positions::of_rows([1, 2, 5]),
        };
        apply(Change::Mask(MaskEdit {
            table,
            items: Vec::new(),
            parts: vec![part],
        }));
        (working, table)
    }

    #[test]
    fn rows_that_are_hidden_or_back_do_not_count_as_kept() {
        let (working, table) = ten_rows();
        for (back, deleted) in [(0, 3), (4, 7), (100, 10)] {
            let back = TableRows::from([(table, back)]);
            let lost = TableRows::from([(table, 20)]);
            let kept = Kept::of(&working, &back, &lost);
            assert_eq!((kept.rows, kept.deleted), (10, deleted));
            assert_eq!(kept.tables[&table], 10 - deleted);
            assert_eq!(kept.all[&table], 27);
        }
    }
}
