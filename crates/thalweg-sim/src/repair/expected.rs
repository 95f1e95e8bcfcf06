//! The tables that a repair must leave, given what it has given up.
//!
//! Invariants
//! - Commits name tables by number. So each of those that are not given up changes the table that had its name when it was stored,
//!   whatever that table is called in what is left.
//! - A table that still has the name which a later commit gives to another one has lost the commit that had dropped or renamed it.
//!   It keeps its rows, under the first of the names `name (1)`, `name (2)` and so on that is free with that commit. The
//!   report lists just these tables.

use crate::oracle::{Contents, Effect, Ledger, Outcome, Violation};
use crate::toy::Row;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_kernel::repair::RenamedTable;
use thalweg_kernel::verify::Damage;
use thalweg_kernel::{CommitNo, NAME_LIMIT_BYTES};

/// The number of a table that a commit has made: names are given again.
type Made = usize;

/// The tables that all commits make but those that are given up.
#[derive(Default)]
pub(super) struct Expected {
    tables: BTreeMap<Made, Kept>,
}

/// A table that is left.
struct Kept {
    name: String,
    rows: Vec<Row>,
    /// The name that it would have, and the commit that gave it to another table.
    displaced: Option<(String, CommitNo)>,
}

impl Expected {
    /// The tables as of a commit.
    pub(super) fn after(ledger: &Ledger, given_up: &[Damage], last: CommitNo) -> Self {
        let is_lost = |commit: CommitNo| {
            let lost = given_up.iter().filter_map(|damage| damage.commits);
            lost.into_iter().any(|(a, b)| (a..=b).contains(&commit))
        };
        let mut stored: Vec<(CommitNo, &[Effect])> = Vec::new();
        for op in &ledger.ops {
            if let Outcome::Stored(commit, _) = op.outcome {
                stored.push((commit, op.effect.parts()));
            }
        }
        stored.sort_by_key(|(commit, _)| *commit);
        let mut expected = Self::default();
        // The tables by the names that they had when the commits were stored.
        let (mut named, mut made) = (BTreeMap::<String, Made>::new(), 0);
        for (commit, parts) in stored {
            let is_there = commit <= last && !is_lost(commit);
            let mut changed = Vec::new();
            for part in parts {
                let table = match part {
                    Effect::Create(name) => {
                        made += 1;
                        named.insert(folded(name), made);
                        Some(made)
                    }
                    Effect::Drop(name) => named.remove(&folded(name)),
                    Effect::Rename(from, to) => {
                        let table = named.remove(&folded(from));
                        table.inspect(|table| _ = named.insert(folded(to), *table))
                    }
                    Effect::Append(name, _) => named.get(&folded(name)).copied(),
                    Effect::Delete(name, _) => named.get(&folded(name)).copied(),
                    Effect::Several(_) | Effect::Nothing => None,
                };
                changed.extend(table.map(|table| (table, part)));
            }
            if is_there {
                expected.apply(commit, &changed);
            }
        }
        expected
    }

    /// Carries out a commit.
    fn apply(&mut self, commit: CommitNo, changed: &[(Made, &Effect)]) {
        let given: Vec<(Made, &String)> = changed
            .iter()
            .filter_map(|(table, part)| match part {
                Effect::Create(name) | Effect::Rename(_, name) => Some((*table, name)),
                _ => None,
            })
            .collect();
        self.make_way(commit, &given);
        for (table, part) in changed {
            match part {
                Effect::Create(name) => {
                    let kept = Kept {
                        name: name.clone(),
                        rows: Vec::new(),
                        displaced: None,
                    };
                    self.tables.insert(*table, kept);
                }
                Effect::Drop(_) => _ = self.tables.remove(table),
                Effect::Rename(_, name) => {
                    if let Some(kept) = self.tables.get_mut(table) {
                        (kept.name, kept.displaced) = (name.clone(), None);
                    }
                }
                Effect::Append(_, rows) => {
                    if let Some(kept) = self.tables.get_mut(table) {
                        kept.rows.extend_from_slice(rows);
                        // Stable: what came earlier stays in front of what has the same key.
                        kept.rows.sort_by_key(|row| row.0);
                    }
                }
                Effect::Delete(_, _) | Effect::Several(_) | Effect::Nothing => {}
            }
        }
    }

    /// Gives other names to the tables that have those which a commit gives to others.
    fn make_way(&mut self, commit: CommitNo, given: &[(Made, &String)]) {
        for (table, name) in given {
            let has_it = |(other, kept): &(&Made, &Kept)| {
                *other != table && folded(&kept.name) == folded(name)
            };
            let Some(holder) = self.tables.iter().find(has_it).map(|(other, _)| *other) else {
                continue;
            };
            let mut taken: BTreeSet<String> =
                self.tables.values().map(|t| folded(&t.name)).collect();
            taken.extend(given.iter().map(|(_, name)| folded(name)));
            let kept = self.tables.get_mut(&holder).expect("it was found");
            let displaced = kept.displaced.take();
            let (last_name, since) = displaced.unwrap_or_else(|| (kept.name.clone(), commit));
            let mut names = (1..).map(|number| numbered(&last_name, number));
            let free = names.find(|name| !taken.contains(&folded(name)));
            kept.name = free.expect("one of all numbers");
            kept.displaced = Some((last_name, since));
        }
    }

    /// The rows of all tables.
    pub(super) fn contents(&self) -> Contents {
        let tables = self.tables.values();
        let contents: Contents = tables
            .map(|kept| (kept.name.clone(), kept.rows.clone()))
            .collect();
        assert_eq!(contents.len(), self.tables.len(), "two tables of one name");
        contents
    }

    /// Whether a report lists the tables that have other names now, and no others.
    pub(super) fn check_renamed(&self, listed: &[RenamedTable]) -> Result<(), Violation> {
        let displaced = self.tables.values().filter_map(|kept| {
            let (from, commit) = kept.displaced.clone()?;
            let to = kept.name.clone();
            Some(RenamedTable { from, to, commit })
        });
        let wanted: Vec<RenamedTable> = displaced.collect();
        match wanted == listed {
            true => Ok(()),
            false => Err(format!("{listed:?} are listed as renamed, not {wanted:?}")),
        }
    }
}

fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// The characters of a name that leave room for a number after it, and the number.
fn numbered(name: &str, number: u32) -> String {
    let suffix = format!(" ({number})");
    let mut numbered = String::new();
    for character in name.chars() {
        if numbered.len() + character.len_utf8() + suffix.len() > NAME_LIMIT_BYTES {
            break;
        }
        numbered.push(character);
    }
    numbered + &suffix
}
