//! What makes commits on a table: statements and jobs prepare them from a snapshot, the leader of the queue builds the
//! frame when the commit has its turn.

use crate::rules::{Rule, Rules};
use crate::table::{Block, ItemMask, Key, Name, Place, Removed, Row, Run, Section, Table};
use std::collections::{BTreeMap, BTreeSet};

/// What somebody does, once.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Appends a row that stays open.
    Open(Row),
    /// Appends a row in a block of its own.
    Encode(Row),
    Delete(&'static [u8]),
    Update(u8, Row),
    /// Updates a row, and then deletes the new version and keeps another new row, in one transaction.
    UpdateAndDelete(u8, Row, Row),
    /// Deletes all rows with keys from the first to the last one.
    DeleteRange(u8, u8),
    /// Encodes the open rows.
    Cover,
    /// Packs the items with keys from the first to the last one into a fragment, byte for byte.
    Pack(u8, u8),
    /// Writes the items with keys from the first to the last one anew, as one block without hidden rows.
    Merge(u8, u8),
    /// Writes each row of these items into a fragment of its own.
    Cut(u8, u8),
    /// Loses all commits that the disk has not, and recovers in place.
    Lose,
    Checkpoint,
}

/// Where each row of what a job takes is afterwards; `None`: left out.
pub(crate) type RowMap = BTreeMap<Place, Option<Place>>;

/// What a statement or a job hands to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Prepared {
    Statement(Statement),
    Job(Job),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Statement {
    pub(crate) seen: u8,
    /// The rows that it deletes, for the specification alone.
    pub(crate) rows: BTreeSet<u8>,
    pub(crate) places: Vec<Place>,
    /// Rows of the items in which these are, as of the snapshot.
    item_rows: BTreeMap<Name, usize>,
    pub(crate) new: Block,
    /// Rows of its own block that it deletes again.
    pub(crate) own: BTreeSet<u8>,
    pub(crate) runs: Vec<Run>,
    /// The items of its runs.
    pub(crate) run_items: BTreeSet<Name>,
    /// Rows that its runs delete.
    pub(crate) run_rows: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) seen: u8,
    pub(crate) source: Source,
    pub(crate) left_out: usize,
    pub(crate) hidden: BTreeSet<Place>,
    pub(crate) map: RowMap,
    stored: BTreeMap<Name, u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Open rows of commits up to this one, and their block.
    Open(u8, Block),
    Items(Vec<Name>, Vec<(Name, Vec<Block>)>),
}

/// Prepares a statement from a snapshot; `None`: it has nothing to do.
pub(crate) fn statement(task: &Task, table: &Table) -> Option<Statement> {
    let visible = table.visible();
    let of = |ids: &[u8]| {
        visible
            .iter()
            .filter(|(_, row)| ids.contains(&row.id))
            .copied()
            .collect::<Vec<_>>()
    };
    let (hit, new, own) = match task {
        Task::Delete(ids) => (of(ids), vec![], BTreeSet::new()),
        Task::Update(id, row) => (of(&[*id]), vec![*row], BTreeSet::new()),
        Task::UpdateAndDelete(id, first, second) => {
            (of(&[*id]), vec![*first, *second], BTreeSet::from([0]))
        }
        Task::DeleteRange(from, to) => return delete_range(*from, *to, table),
        _ => return None,
    };
    let (places, rows): (Vec<_>, Vec<_>) = hit.into_iter().unzip();
    (!places.is_empty()).then(|| Statement {
        seen: table.commit,
        rows: rows.iter().map(|row| row.id).collect(),
        item_rows: item_rows(table),
        places,
        new,
        own,
        runs: vec![],
        run_items: BTreeSet::new(),
        run_rows: 0,
    })
}

fn item_rows(table: &Table) -> BTreeMap<Name, usize> {
    let rows = |blocks: &Vec<Block>| blocks.iter().map(Vec::len).sum();
    table
        .items
        .iter()
        .map(|(name, blocks)| (*name, rows(blocks)))
        .collect()
}

/// Deletes items that lie wholly in the range by runs, and other rows of it by positions.
fn delete_range(from: u8, to: u8, table: &Table) -> Option<Statement> {
    let is_in = |row: &Row| (from..=to).contains(&row.key);
    let is_whole = |name: &Name| table.items[name].iter().flatten().all(is_in);
    let mut runs = Vec::new();
    let mut run_items = BTreeSet::new();
    let mut ends: Option<(Name, Name)> = None;
    for name in table.items.keys() {
        if is_whole(name) {
            run_items.insert(*name);
            ends = Some(ends.map_or((*name, *name), |(first, _)| (first, *name)));
        } else {
            runs.extend(ends.take().map(|(first, last)| run(first, last, table)));
        }
    }
    runs.extend(ends.map(|(first, last)| run(first, last, table)));
    let hit: Vec<_> = table
        .visible()
        .into_iter()
        .filter(|(_, row)| is_in(row))
        .collect();
    let in_run =
        |place: &Place| matches!(place, Place::Item { name, .. } if run_items.contains(name));
    let run_rows = hit.iter().filter(|(place, _)| in_run(place)).count();
    (!hit.is_empty()).then(|| Statement {
        seen: table.commit,
        rows: hit.iter().map(|(_, row)| row.id).collect(),
        places: hit
            .iter()
            .map(|(place, _)| *place)
            .filter(|place| !in_run(place))
            .collect(),
        item_rows: item_rows(table),
        new: vec![],
        own: BTreeSet::new(),
        runs,
        run_items: run_items.clone(),
        run_rows,
    })
}

fn run(first: Name, last: Name, table: &Table) -> Run {
    let (_, blocks, rows) = table.in_run(&(first.key..=last.key));
    Run {
        first,
        last,
        blocks,
        rows,
    }
}

/// Prepares a job from a snapshot; `None`: it has nothing to do.
pub(crate) fn job(task: &Task, table: &Table, file: u8) -> Option<Job> {
    match task {
        Task::Cover => cover(table),
        Task::Pack(from, to) => pack(&sources(*from, *to, table), table, file),
        Task::Cut(from, to) => cut_up(&sources(*from, *to, table), table, file),
        Task::Merge(from, to) => merge(&sources(*from, *to, table), table, file),
        _ => None,
    }
}

fn sources(from: u8, to: u8, table: &Table) -> Vec<Name> {
    let is_in = |name: &&Name| (from..=to).contains(&name.key.key);
    table.items.keys().filter(is_in).copied().collect()
}

/// Puts the visible ones of some rows into one block, in the order of their keys; says where each is in it.
fn rewrite(rows: &[(Place, Row)], table: &Table) -> (Block, Vec<(Place, Option<u8>)>) {
    let mut sorted = rows.to_vec();
    sorted.sort_by_key(|(_, row)| row.key);
    let mut block = Vec::new();
    let mut at = Vec::new();
    for (place, row) in sorted {
        if table.is_hidden(&place) {
            at.push((place, None));
        } else {
            at.push((place, u8::try_from(block.len()).ok()));
            block.push(row);
        }
    }
    (block, at)
}

fn hidden_of(rows: &[(Place, Row)], table: &Table) -> BTreeSet<Place> {
    let places = rows.iter().map(|(place, _)| *place);
    places.filter(|place| table.is_hidden(place)).collect()
}

fn cover(table: &Table) -> Option<Job> {
    let first = *table.open.keys().next()?;
    let mut rows = table.places();
    rows.retain(|(place, _)| matches!(place, Place::Open { .. }));
    let (block, at) = rewrite(&rows, table);
    let name = Name::of(&block, first, 0);
    let hidden = hidden_of(&rows, table);
    let to = |at: Option<u8>| at.map(|at| Place::Item { name, rank: 0, at });
    Some(Job {
        seen: table.commit,
        source: Source::Open(table.commit, block),
        left_out: hidden.len(),
        hidden,
        map: at.into_iter().map(|(place, at)| (place, to(at))).collect(),
        stored: BTreeMap::new(),
    })
}

/// The rows of some items, and the commit that a block made of them has.
fn rows_of(names: &[Name], table: &Table) -> Option<(Vec<(Place, Row)>, u8)> {
    let commit = names.iter().map(|name| name.key.commit).min()?;
    let mut rows = table.places();
    rows.retain(|(place, _)| matches!(place, Place::Item { name, .. } if names.contains(name)));
    Some((rows, commit))
}

fn stored_of(names: &[Name], table: &Table) -> BTreeMap<Name, u8> {
    let is_source = |(name, _): &(&Name, &u8)| names.contains(name);
    table
        .stored
        .iter()
        .filter(is_source)
        .map(|(name, page)| (*name, *page))
        .collect()
}

fn merge(names: &[Name], table: &Table, file: u8) -> Option<Job> {
    let (rows, commit) = rows_of(names, table)?;
    let (block, at) = rewrite(&rows, table);
    let name = Name::of(&block, commit, file);
    let to = |at: Option<u8>| at.map(|at| Place::Item { name, rank: 0, at });
    let hidden = hidden_of(&rows, table);
    Some(Job {
        seen: table.commit,
        source: Source::Items(names.to_vec(), vec![(name, vec![block])]),
        left_out: hidden.len(),
        hidden,
        map: at.into_iter().map(|(place, at)| (place, to(at))).collect(),
        stored: stored_of(names, table),
    })
}

fn cut_up(names: &[Name], table: &Table, file: u8) -> Option<Job> {
    let (rows, commit) = rows_of(names, table)?;
    let hidden = hidden_of(&rows, table);
    let kept = rows.iter().filter(|(place, _)| !hidden.contains(place));
    let to =
        |(file, (place, row)): (u8, &(Place, Row))| (*place, Name::of(&[*row], commit, file), *row);
    let kept: Vec<_> = (file..).zip(kept).map(to).collect();
    let map = rows.iter().map(|(place, _)| (*place, None));
    let places = kept.iter().map(|&(place, name, _)| {
        (
            place,
            Some(Place::Item {
                name,
                rank: 0,
                at: 0,
            }),
        )
    });
    Some(Job {
        seen: table.commit,
        source: Source::Items(
            names.to_vec(),
            kept.iter()
                .map(|&(_, name, row)| (name, vec![vec![row]]))
                .collect(),
        ),
        left_out: hidden.len(),
        hidden,
        map: map.chain(places).collect(),
        stored: stored_of(names, table),
    })
}

fn pack(names: &[Name], table: &Table, file: u8) -> Option<Job> {
    let (rows, _) = rows_of(names, table)?;
    let first = names.first()?;
    let name = Name {
        key: first.key,
        fragment: file,
    };
    let blocks: Vec<Block> = names
        .iter()
        .flat_map(|name| table.items[name].clone())
        .collect();
    let before = |item: &Name| -> usize {
        names
            .iter()
            .take_while(|name| *name != item)
            .map(|name| table.items[name].len())
            .sum()
    };
    let to = |place: &Place| match place {
        Place::Item {
            name: item,
            rank,
            at,
        } => {
            let rank = u8::try_from(before(item)).ok().map(|before| before + rank);
            rank.map(|rank| Place::Item {
                name,
                rank,
                at: *at,
            })
        }
        Place::Open { .. } => None,
    };
    Some(Job {
        seen: table.commit,
        source: Source::Items(names.to_vec(), vec![(name, blocks)]),
        left_out: 0,
        hidden: BTreeSet::new(),
        map: rows.iter().map(|(place, _)| (*place, to(place))).collect(),
        stored: stored_of(names, table),
    })
}

/// Something that came into order 0 or left it since a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) commit: u8,
    pub(crate) name: Name,
    /// Brought by an append or a cover, and still there.
    pub(crate) is_new: bool,
}

/// Why the leader takes no commit.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) String);

/// What the leader keeps while statements are at work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub(crate) maps: Vec<(u8, RowMap)>,
    pub(crate) events: Vec<Event>,
    /// The last commit that removed runs: only where it refuses jobs, which breaks a rule.
    pub(crate) runs_went: u8,
}

impl Leader {
    /// Where a row is now that a statement has found at a place.
    fn follow(&self, seen: u8, place: Place, table: &Table, rules: &Rules) -> Option<Place> {
        let mut place = place;
        let is_there = |name: &Name| table.items.keys().any(|item| item.key == name.key);
        if matches!(&place, Place::Item { name, .. } if !rules.keep(Rule::NamesWhole) && is_there(name))
        {
            return Some(place);
        }
        let later = self
            .maps
            .iter()
            .filter(|(commit, _)| *commit > seen && rules.keep(Rule::CarryOver));
        for (_, map) in later {
            if let Some(to) = map.get(&place) {
                place = (*to)?;
            }
        }
        Some(place)
    }

    /// The sections of a statement's frame.
    pub(crate) fn statement(
        &self,
        wanted: &Statement,
        table: &Table,
        rules: &Rules,
    ) -> Result<Vec<Section>, Refused> {
        let mut sections = Vec::new();
        if !wanted.new.is_empty() {
            sections.push(Section::Group(wanted.new.clone()));
        }
        if !wanted.runs.is_empty() {
            sections.push(self.delete_runs(wanted, table, rules)?);
        }
        let places = wanted
            .places
            .iter()
            .map(|&place| self.follow(wanted.seen, place, table, rules));
        let places: Option<BTreeSet<_>> = places.collect();
        let mut places = places.ok_or_else(|| Refused("a row was left out since".to_owned()))?;
        let masks = mask_with(&places, table, &wanted.item_rows);
        if !wanted.own.is_empty() && !rules.keep(Rule::FoldTransaction) {
            // The second statement looks at the snapshot: it finds the old version, and not the new one.
            sections.extend(masks.clone());
        } else if !wanted.own.is_empty() {
            let name = Name::of(&wanted.new, 0, 0);
            places.extend(
                wanted
                    .own
                    .iter()
                    .map(|&at| Place::Item { name, rank: 0, at }),
            );
            let Section::Group(new) = &sections[0] else {
                return Ok(sections);
            };
            let mut rows = wanted.item_rows.clone();
            rows.insert(name, new.len());
            sections.extend(mask_with(&places, table, &rows));
            return Ok(sections);
        }
        sections.extend(masks);
        Ok(sections)
    }

    fn delete_runs(
        &self,
        wanted: &Statement,
        table: &Table,
        rules: &Rules,
    ) -> Result<Section, Refused> {
        let mut runs = Vec::new();
        for run in &wanted.runs {
            let since =
                |event: &&Event| event.commit > wanted.seen && run.keys().contains(&event.name.key);
            let events: Vec<_> = self.events.iter().filter(since).collect();
            let is_mixed = events.iter().any(|event| !event.is_new);
            let keeps = if is_mixed && rules.keep(Rule::MixedIsCompared) {
                // The maker compares the tree of its snapshot with the present one.
                let are_there = wanted
                    .run_items
                    .iter()
                    .all(|name| table.items.contains_key(name));
                if !are_there {
                    return Err(Refused("an item of a run went".to_owned()));
                }
                let (there, _, _) = table.in_run(&run.keys());
                there
                    .into_iter()
                    .filter(|name| !wanted.run_items.contains(name))
                    .collect()
            } else if rules.keep(Rule::RunsAreCut) {
                events
                    .iter()
                    .filter(|event| event.is_new)
                    .map(|event| event.name)
                    .collect()
            } else {
                BTreeSet::new()
            };
            runs.extend(cut(run, &keeps, table));
        }
        let hidden = |name: &Name| table.masks.get(name).map_or(0, BTreeSet::len);
        let found: Vec<Name> = runs
            .iter()
            .flat_map(|run| table.in_run(&run.keys()).0)
            .collect();
        let left_out = found.iter().map(hidden).sum();
        let rows: usize = runs.iter().map(|run| table.in_run(&run.keys()).2).sum();
        let deleted = rows - left_out;
        if deleted != wanted.run_rows && rules.keep(Rule::DeletedIsNotHidden) {
            return Err(Refused("a row of a run was hidden since".to_owned()));
        }
        let removed = Removed::Runs(runs);
        Ok(Section::Replace {
            removed,
            added: vec![],
            left_out,
            carried: 0,
            deleted,
            stored: BTreeMap::new(),
        })
    }

    /// The sections of a job's frame.
    pub(crate) fn job(&self, job: &Job, table: &Table, rules: &Rules) -> Vec<Section> {
        let sources = job
            .map
            .keys()
            .filter(|place| table.is_hidden(place) && !job.hidden.contains(place));
        let late: Vec<_> = sources.filter(|_| rules.keep(Rule::CarryInto)).collect();
        let to = |place: &&Place| match (job.map[*place], *place) {
            (Some(Place::Item { name, .. }), Place::Item { rank, at, .. })
                if !rules.keep(Rule::CarryByPlace) =>
            {
                Some(Place::Item {
                    name,
                    rank: *rank,
                    at: *at,
                })
            }
            (to, _) => to,
        };
        let places: BTreeSet<Place> = late.iter().filter_map(to).collect();
        let carried = late.len();
        let mut rows = BTreeMap::new();
        let section = match &job.source {
            Source::Open(to, block) => {
                let names = places.iter().filter_map(Place::item);
                rows.extend(names.map(|name| (name, block.len())));
                let (to, block, left_out) = (*to, block.clone(), job.left_out);
                Section::Cover {
                    to,
                    block,
                    left_out,
                    carried,
                }
            }
            Source::Items(names, added) => {
                // A block all of whose rows are left out is not written.
                let has_rows = |(_, blocks): &&(Name, Vec<Block>)| {
                    blocks.iter().any(|block| !block.is_empty())
                };
                let added: Vec<_> = added.iter().filter(has_rows).cloned().collect();
                let measured = added
                    .iter()
                    .map(|(name, blocks)| (*name, blocks.iter().map(Vec::len).sum()));
                rows.extend(measured);
                let removed = Removed::Names(names.clone());
                let (left_out, stored) = (job.left_out, job.stored.clone());
                Section::Replace {
                    removed,
                    added,
                    left_out,
                    carried,
                    deleted: 0,
                    stored,
                }
            }
        };
        let mut sections = vec![section];
        sections.extend(mask_with(&places, table, &rows));
        sections
    }
}

/// What is left of a run without some items that lie in it.
fn cut(run: &Run, keeps: &BTreeSet<Name>, table: &Table) -> Vec<Run> {
    let kept: BTreeSet<Key> = keeps.iter().map(|name| name.key).collect();
    if kept.is_empty() {
        return vec![run.clone()];
    }
    let mut runs = Vec::new();
    let mut ends: Option<(Name, Name)> = None;
    for name in table.in_run(&run.keys()).0 {
        if kept.contains(&name.key) {
            runs.extend(ends.take());
        } else {
            ends = Some(ends.map_or((name, name), |(first, _)| (first, name)));
        }
    }
    runs.extend(ends);
    let measured = |(first, last): (Name, Name)| {
        let (_, blocks, rows) = table.in_run(&(first.key..=last.key));
        Run {
            first,
            last,
            blocks,
            rows,
        }
    };
    runs.into_iter().map(measured).collect()
}

/// An edit 8 that hides these places; `known` are the rows of items that their maker knows.
fn mask_with(
    places: &BTreeSet<Place>,
    table: &Table,
    known: &BTreeMap<Name, usize>,
) -> Option<Section> {
    let mut items: BTreeMap<Name, BTreeSet<(u8, u8)>> = BTreeMap::new();
    let mut parts: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
    for place in places {
        match *place {
            Place::Open { commit, at } => {
                parts.entry(commit).or_default().insert(at);
            }
            Place::Item { name, rank, at } => {
                items.entry(name).or_default().insert((rank, at));
            }
        }
    }
    let rows = |name: &Name| {
        let of_known = known.get(name).copied();
        of_known.unwrap_or_else(|| {
            table
                .items
                .get(name)
                .map_or(0, |blocks| blocks.iter().map(Vec::len).sum())
        })
    };
    let items = items.into_iter().map(|(name, positions)| ItemMask {
        name,
        rows: rows(&name),
        positions,
    });
    let items: Vec<_> = items.collect();
    (!items.is_empty() || !parts.is_empty()).then_some(Section::Mask { items, parts })
}
