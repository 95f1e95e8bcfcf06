//! Tables whose names later commits of a damaged log give to other tables.
//!
//! Invariants
//! - When a commit gave a name to a table, no other table had it. So a table that still has it here was dropped or renamed by a
//!   commit that is given up. The later commit wins: its table gets the name, the older one is kept under another.
//! - Which name that is depends on the commits up to this one, and on the names in the checkpoint that the repair starts from.
//!   A repair that is repeated, or that reads the same log again from an earlier checkpoint, gives each table the name that it
//!   had after the first one. A checkpoint does not distinguish names of a repair from others: a table that a later repair
//!   moves again may get another one, as `name (1) (1)`.
//! - Only tables that have a name of the repair at the end of the log are reported: later commits may rename or drop them.

use super::{RenamedTable, RepairReport};
use crate::catalog::{Catalog, fold_name};
use crate::change::Change;
use crate::commit::Edit;
use crate::error::Result;
use crate::ids::{CommitNo, TableId};
use crate::limits::NAME_LIMIT_BYTES;
use crate::working::Working;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables that have names of the repair.
#[derive(Default)]
pub(super) struct DisplacedTables(BTreeMap<TableId, Displaced>);

struct Displaced {
    /// The last name that a commit gave it.
    name: Arc<str>,
    /// The first commit that gave this name to another table.
    commit: CommitNo,
}

impl DisplacedTables {
    /// Renames the tables that have names which the commit gives to others. Called before it is applied, and only if it is.
    pub(super) fn make_way(
        &mut self,
        commit: CommitNo,
        changes: &[Change],
        working: &mut Working,
    ) -> Result<()> {
        let given: BTreeSet<Cow<'_, str>> = changes
            .iter()
            .filter_map(|change| name_given_by(change).map(|(_, name)| fold_name(name)))
            .collect();
        for (table, name) in changes.iter().filter_map(name_given_by) {
            let holder = working.tables.named(name);
            let Some(holder) = holder.filter(|holder| holder.id != table).cloned() else {
                continue;
            };
            let displaced = self.0.entry(holder.id).or_insert_with(|| Displaced {
                name: Arc::clone(&holder.name),
                commit,
            });
            let free = free_name(&displaced.name, &working.tables, &given);
            working.rename_table(holder.id, free.into())?;
        }
        for change in changes {
            if let Change::Edit(Edit::DropTable { table } | Edit::RenameTable { table, .. }) =
                change
            {
                self.0.remove(table);
            }
        }
        Ok(())
    }

    /// Adds the tables to the report.
    pub(super) fn report(self, working: &Working, report: &mut RepairReport) {
        for (table, displaced) in self.0 {
            if let Some(state) = working.table(table) {
                report.renamed.push(RenamedTable {
                    from: displaced.name.to_string(),
                    to: state.name.to_string(),
                    commit: displaced.commit,
                });
            }
        }
    }
}

/// The table that a change gives a name to, and the name.
fn name_given_by(change: &Change) -> Option<(TableId, &str)> {
    match change {
        Change::Edit(Edit::CreateTable { table, name, .. } | Edit::RenameTable { table, name }) => {
            Some((*table, name))
        }
        _ => None,
    }
}

/// The first of `name (1)`, `name (2)` and so on that no table has, nor gets with the commit: the names in `given`, folded.
fn free_name(name: &str, tables: &Catalog, given: &BTreeSet<Cow<'_, str>>) -> String {
    let mut number = 1_u64;
    loop {
        let derived = numbered(name, number);
        if tables.named(&derived).is_none() && !given.contains(&fold_name(&derived)) {
            return derived;
        }
        number += 1;
    }
}

/// A name followed by a number. It is cut where both together would be longer than a name may be.
fn numbered(name: &str, number: u64) -> String {
    let suffix = format!(" ({number})");
    let end = name.floor_char_boundary(NAME_LIMIT_BYTES - suffix.len());
    format!("{}{suffix}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_cut_between_characters() {
        assert_eq!(numbered("boiler", 1), "boiler (1)");
        assert_eq!(numbered("", 12), " (12)");
        for name in [
            "x".repeat(300),
            "\u{e9}".repeat(150),
            "\u{1f321}".repeat(80),
        ] {
            for number in [1, 10, 123_456] {
                let numbered = numbered(&name, number);
                let suffix = format!(" ({number})");
                let kept = numbered.strip_suffix(&suffix).expect("a number at the end");
                assert!(name.starts_with(kept), "{numbered}");
                let width = name.chars().next().map_or(0, char::len_utf8);
                let most = NAME_LIMIT_BYTES - width;
                assert!((most + 1..=NAME_LIMIT_BYTES).contains(&numbered.len()));
            }
        }
    }
}
