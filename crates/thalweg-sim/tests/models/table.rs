//! One table as the log describes it: open rows, items, masks, and what the sections of a commit do to them.
//!
//! Invariant: [`Table::apply`] looks at the table and the sections alone, so that a replay comes to the same table.

use crate::rules::{Rule, Rules};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A row: what it is, which only the specification looks at, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) id: u8,
    pub(crate) key: u8,
}

pub(crate) type Block = Vec<Row>;

/// Key of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) key: u8,
    pub(crate) commit: u8,
    pub(crate) ordinal: u8,
}

/// Name of an item. A commit of 0 is that of the frame; a fragment of 0 is a block of a GROUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) key: Key,
    pub(crate) fragment: u8,
}

impl Name {
    /// The name of an item whose first block is `first`.
    pub(crate) fn of(first: &[Row], commit: u8, fragment: u8) -> Self {
        let key = first.iter().map(|row| row.key).min().unwrap_or(0);
        let ordinal = 0;
        Self {
            key: Key {
                key,
                commit,
                ordinal,
            },
            fragment,
        }
    }

    fn in_commit(mut self, commit: u8) -> Self {
        if self.key.commit == 0 {
            self.key.commit = commit;
        }
        self
    }
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    Open { commit: u8, at: u8 },
    Item { name: Name, rank: u8, at: u8 },
}

impl Place {
    pub(crate) fn item(&self) -> Option<Name> {
        match self {
            Self::Item { name, .. } => Some(*name),
            Self::Open { .. } => None,
        }
    }
}

/// Positions that an edit 8 hides in one item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ItemMask {
    pub(crate) name: Name,
    pub(crate) rows: usize,
    pub(crate) positions: BTreeSet<(u8, u8)>,
}

/// All items with keys from that of the first one to that of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) first: Name,
    pub(crate) last: Name,
    pub(crate) blocks: usize,
    pub(crate) rows: usize,
}

impl Run {
    pub(crate) fn keys(&self) -> RangeInclusive<Key> {
        self.first.key..=self.last.key
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Removed {
    Names(Vec<Name>),
    Runs(Vec<Run>),
}

/// One section of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Section {
    Rows(Block),
    Group(Block),
    Cover {
        to: u8,
        block: Block,
        left_out: usize,
        carried: usize,
    },
    Mask {
        items: Vec<ItemMask>,
        parts: BTreeMap<u8, BTreeSet<u8>>,
    },
    Replace {
        removed: Removed,
        added: Vec<(Name, Vec<Block>)>,
        left_out: usize,
        carried: usize,
        deleted: usize,
        /// Where the masks of the removed items are stored: only where a rule is broken.
        stored: BTreeMap<Name, u8>,
    },
}

/// A table after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    pub(crate) commit: u8,
    pub(crate) open: BTreeMap<u8, Block>,
    pub(crate) open_hidden: BTreeMap<u8, BTreeSet<u8>>,
    pub(crate) items: BTreeMap<Name, Vec<Block>>,
    pub(crate) masks: BTreeMap<Name, BTreeSet<(u8, u8)>>,
    /// What the table counts, from what edits say.
    pub(crate) hidden_rows: usize,
    /// Where a checkpoint has stored the mask of an item.
    pub(crate) stored: BTreeMap<Name, u8>,
}

fn rows_of(blocks: &[Block]) -> usize {
    blocks.iter().map(Vec::len).sum()
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// What a commit has to hide before its end: carried rows, and the items in which they are.
#[derive(Default)]
struct Carried {
    rows: usize,
    added: BTreeSet<Name>,
    hidden: usize,
}

impl Table {
    /// The table after one more commit.
    ///
    /// # Errors
    /// Why the commit is refused as `Conflict`.
    pub(crate) fn apply(&self, sections: &[Section], rules: &Rules) -> Result<Self, String> {
        let mut next = self.clone();
        next.commit += 1;
        let mut carried = Carried::default();
        for section in sections {
            match section {
                Section::Rows(rows) => {
                    next.open.insert(next.commit, rows.clone());
                }
                Section::Group(rows) => {
                    let name = Name::of(rows, next.commit, 0);
                    next.items.insert(name, vec![rows.clone()]);
                }
                Section::Cover { .. } => next.cover(section, &mut carried, rules)?,
                Section::Mask { items, parts } => {
                    for item in items {
                        next.mask(item, &mut carried, rules)?;
                    }
                    for (&commit, positions) in parts {
                        next.mask_open(commit, positions, rules)?;
                    }
                }
                Section::Replace { .. } => next.replace(section, &mut carried, rules)?,
            }
        }
        let is_hidden = carried.hidden >= carried.rows || !rules.keep(Rule::CarriedAreHidden);
        ensure(is_hidden, "carried rows are not hidden")?;
        Ok(next)
    }

    fn cover(
        &mut self,
        cover: &Section,
        carried: &mut Carried,
        rules: &Rules,
    ) -> Result<(), String> {
        let Section::Cover {
            to,
            block,
            left_out,
            carried: carried_rows,
        } = cover
        else {
            return Ok(());
        };
        let later = self.open.split_off(&(to + 1));
        let covered = std::mem::replace(&mut self.open, later);
        let first = covered
            .keys()
            .next()
            .copied()
            .ok_or("no open rows to cover")?;
        let later = self.open_hidden.split_off(&(to + 1));
        let hidden: usize = self.open_hidden.values().map(BTreeSet::len).sum();
        if rules.keep(Rule::MasksGo) {
            self.open_hidden = later;
            self.hidden_rows -= hidden;
        } else {
            self.open_hidden.extend(later);
        }
        let rows = covered.values().map(Vec::len).sum::<usize>();
        let adds_up = block.len() + left_out == rows || !rules.keep(Rule::CoverAddsUp);
        ensure(adds_up, "covered rows do not add up")?;
        self.sums_are_right(hidden, left_out + carried_rows, rules)?;
        if !block.is_empty() {
            let name = Name::of(block, first, 0);
            self.items.insert(name, vec![block.clone()]);
            carried.added.insert(name);
        }
        carried.rows += carried_rows;
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "it reads as a question to the table")]
    fn sums_are_right(&self, hidden: usize, named: usize, rules: &Rules) -> Result<(), String> {
        let are_right = hidden == named || !rules.keep(Rule::SumOfHidden);
        ensure(
            are_right,
            "hidden rows are not those that are left out or carried",
        )
    }

    /// The item that an edit means by a name.
    fn item(&self, name: Name, rules: &Rules) -> Option<Name> {
        if rules.keep(Rule::NamesWhole) {
            return self.items.contains_key(&name).then_some(name);
        }
        self.items.keys().find(|item| item.key == name.key).copied()
    }

    fn mask(
        &mut self,
        mask: &ItemMask,
        carried: &mut Carried,
        rules: &Rules,
    ) -> Result<(), String> {
        let name = mask.name.in_commit(self.commit);
        let name = self
            .item(name, rules)
            .ok_or("the masked item is not there")?;
        let rows = rows_of(&self.items[&name]);
        let is_whole = mask.rows == rows || !rules.keep(Rule::RowsOfItem);
        ensure(is_whole, "the masked item has other rows")?;
        let hidden = self.masks.entry(name).or_default();
        let is_new = hidden.is_disjoint(&mask.positions) || !rules.keep(Rule::PositionsAreNew);
        ensure(is_new, "a row is hidden already")?;
        hidden.extend(&mask.positions);
        self.hidden_rows += mask.positions.len();
        if carried.added.contains(&name) {
            carried.hidden += mask.positions.len();
        }
        if hidden.len() >= mask.rows && rules.keep(Rule::EmptyItemsLeave) {
            self.hidden_rows -= hidden.len();
            self.masks.remove(&name);
            self.items.remove(&name);
        }
        Ok(())
    }

    fn mask_open(
        &mut self,
        commit: u8,
        positions: &BTreeSet<u8>,
        rules: &Rules,
    ) -> Result<(), String> {
        ensure(
            self.open.contains_key(&commit),
            "the masked rows are not open",
        )?;
        let hidden = self.open_hidden.entry(commit).or_default();
        let is_new = hidden.is_disjoint(positions) || !rules.keep(Rule::PositionsAreNew);
        ensure(is_new, "an open row is hidden already")?;
        hidden.extend(positions);
        self.hidden_rows += positions.len();
        Ok(())
    }

    fn replace(
        &mut self,
        section: &Section,
        carried: &mut Carried,
        rules: &Rules,
    ) -> Result<(), String> {
        let Section::Replace {
            removed,
            added,
            left_out,
            carried: carried_rows,
            deleted,
            stored,
        } = section
        else {
            return Ok(());
        };
        for (name, page) in stored {
            ensure(
                self.stored.get(name) == Some(page),
                "a stored mask is not there",
            )?;
        }
        let removed = self.removed(removed, rules)?;
        for (name, blocks) in added.iter().filter(|_| !rules.keep(Rule::WhatGoesFirst)) {
            ensure(
                !self.items.keys().any(|item| item.key == name.key),
                "an item has the added key",
            )?;
            self.items.insert(*name, blocks.clone());
        }
        let mut hidden = 0;
        let mut rows = 0;
        for name in &removed {
            rows += rows_of(&self.items.remove(name).unwrap_or_default());
            self.stored.remove(name);
            hidden += self.masks.get(name).map_or(0, BTreeSet::len);
            if rules.keep(Rule::MasksGo) {
                self.masks.remove(name);
            }
        }
        self.hidden_rows -= hidden;
        self.sums_are_right(hidden, left_out + carried_rows, rules)?;
        let added_rows: usize = added.iter().map(|(_, blocks)| rows_of(blocks)).sum();
        ensure(
            rows == added_rows + left_out + deleted,
            "replaced rows do not add up",
        )?;
        for (name, blocks) in added {
            self.items.insert(*name, blocks.clone());
            carried.added.insert(*name);
        }
        carried.rows += carried_rows;
        Ok(())
    }

    fn removed(&self, removed: &Removed, rules: &Rules) -> Result<Vec<Name>, String> {
        match removed {
            Removed::Names(names) => {
                let found = names.iter().map(|&name| self.item(name, rules));
                let found: Option<Vec<_>> = found.collect();
                found.ok_or_else(|| "a removed item is not there".to_owned())
            }
            Removed::Runs(runs) => {
                let mut all = Vec::new();
                for run in runs {
                    let is_there = [run.first, run.last]
                        .iter()
                        .all(|name| self.items.contains_key(name));
                    ensure(is_there, "an end of a run is not there")?;
                    let (found, blocks, rows) = self.in_run(&run.keys());
                    let adds_up =
                        (blocks, rows) == (run.blocks, run.rows) || !rules.keep(Rule::RunAddsUp);
                    ensure(adds_up, "a run does not add up")?;
                    all.extend(found);
                }
                Ok(all)
            }
        }
    }

    /// The items with keys of a range, their blocks and rows.
    pub(crate) fn in_run(&self, keys: &RangeInclusive<Key>) -> (Vec<Name>, usize, usize) {
        let found = self
            .items
            .iter()
            .filter(|(name, _)| keys.contains(&name.key));
        let (mut names, mut blocks, mut rows) = (Vec::new(), 0, 0);
        for (name, item) in found {
            names.push(*name);
            blocks += item.len();
            rows += rows_of(item);
        }
        (names, blocks, rows)
    }

    /// Every row and its place, hidden ones too.
    pub(crate) fn places(&self) -> Vec<(Place, Row)> {
        let mut all = Vec::new();
        for (&commit, rows) in &self.open {
            all.extend(
                (0..)
                    .zip(rows)
                    .map(|(at, &row)| (Place::Open { commit, at }, row)),
            );
        }
        for (&name, blocks) in &self.items {
            for (rank, block) in (0..).zip(blocks) {
                all.extend(
                    (0..)
                        .zip(block)
                        .map(|(at, &row)| (Place::Item { name, rank, at }, row)),
                );
            }
        }
        all
    }

    pub(crate) fn is_hidden(&self, place: &Place) -> bool {
        match place {
            Place::Open { commit, at } => self
                .open_hidden
                .get(commit)
                .is_some_and(|hidden| hidden.contains(at)),
            Place::Item { name, rank, at } => self
                .masks
                .get(name)
                .is_some_and(|hidden| hidden.contains(&(*rank, *at))),
        }
    }

    /// The rows that a query finds, each as often as it is there.
    pub(crate) fn visible(&self) -> Vec<(Place, Row)> {
        let mut all = self.places();
        all.retain(|(place, _)| !self.is_hidden(place));
        all
    }

    /// Checks what holds after every commit, whatever rows it is about.
    ///
    /// # Errors
    /// What does not hold.
    pub(crate) fn check(&self) -> Result<(), String> {
        let masked = self.masks.iter().all(|(name, hidden)| {
            let item = self.items.get(name);
            let is_row = |&(rank, at): &(u8, u8)| {
                let block = item.and_then(|blocks| blocks.get(usize::from(rank)));
                block.is_some_and(|block| usize::from(at) < block.len())
            };
            item.is_some() && hidden.iter().all(is_row)
        });
        ensure(
            masked,
            "a mask has no item, or hides rows that do not exist",
        )?;
        let open = self
            .open_hidden
            .keys()
            .all(|commit| self.open.contains_key(commit));
        ensure(open, "a mask of rows that are not open")?;
        let hidden = self.masks.values().map(BTreeSet::len).sum::<usize>()
            + self.open_hidden.values().map(BTreeSet::len).sum::<usize>();
        ensure(hidden == self.hidden_rows, "hidden rows are counted wrong")?;
        let has_rows = self
            .items
            .iter()
            .all(|(name, blocks)| rows_of(blocks) > self.masks.get(name).map_or(0, BTreeSet::len));
        ensure(has_rows, "an item without rows is kept")
    }
}
