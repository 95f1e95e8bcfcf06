//! The conditions that must hold after every crash, error or damage: the ledger of what was asked for, and the checks
//! against it.
//!
//! Invariants: the ledger lies outside of the system under test; it has of each operation when it was submitted, when it
//! was answered, and what the answer was. Values of rows are never used twice, so a row that is lost, doubled or made
//! up is seen in the contents. Rows come in the order of their keys, those of equal keys in the order they arrived: by
//! commit, and within a commit as they were given (docs/format/stream.md, invariants 1 to 3).

use crate::toy::{KEY_COLUMN, Row, Toy, VALUE_COLUMN, columns_of, derived, entries_of, unpack};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use thalweg_kernel::index::{Entry, Place, Step};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{CommitNo, Durability, Error, Snapshot, TableSnapshot};

/// All tables by name, each with its rows by key and arrival.
pub type Contents = BTreeMap<String, Vec<Row>>;

/// The effect of an operation on the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A new table.
    Create(String),
    /// A table and its rows go.
    Drop(String),
    /// A new name.
    Rename(String, String),
    /// Rows of a table.
    Append(String, Vec<Row>),
    /// Rows of a table, by their values, are deleted.
    Delete(String, BTreeSet<i64>),
    /// All of these in one commit.
    Several(Vec<Effect>),
    /// No rows change: a flush, a checkpoint, a rewrite.
    Nothing,
}

impl Effect {
    /// Itself, or those it consists of.
    pub fn parts(&self) -> &[Effect] {
        match self {
            Effect::Several(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// The rows that it adds.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.parts().iter().flat_map(|part| match part {
            Effect::Append(_, rows) => rows.as_slice(),
            _ => &[],
        })
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged at a level.
    Stored(CommitNo, Durability),
    /// An error that means that nothing was stored.
    Refused,
    /// An error that leaves it open.
    Unknown,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its effect.
    pub effect: Effect,
    /// Storage calls made before it was submitted.
    pub before_call: u64,
    /// Storage calls made when it was answered.
    pub after_call: u64,
    /// The answer.
    pub outcome: Outcome,
    /// Rises whenever the database is opened anew.
    pub life: u32,
}

/// The operations that were asked for and how they were answered, in order.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The operations.
    pub ops: Vec<Op>,
}

/// The least that a crash must have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The last commit that a power cut must not take.
    pub disk: CommitNo,
    /// The last commit that a kill must not take.
    pub process: CommitNo,
    /// Operations submitted so far.
    pub submitted: usize,
}

/// The contents after a prefix of the commits.
pub struct Prefixes {
    /// (commit of the last operation in it, number of operations submitted until it, contents), ascending.
    states: Vec<(CommitNo, usize, Contents)>,
}

/// Carries out an effect.
pub fn apply(contents: &mut Contents, effect: &Effect) {
    match effect {
        Effect::Create(name) => _ = contents.insert(name.clone(), Vec::new()),
        Effect::Drop(name) => _ = contents.remove(name),
        Effect::Rename(from, to) => {
            if let Some(rows) = contents.remove(from) {
                contents.insert(to.clone(), rows);
            }
        }
        Effect::Append(name, rows) => {
            if let Some(all) = contents.get_mut(name) {
                all.extend_from_slice(rows);
                // Stable: what came earlier stays in front of what has the same key.
                all.sort_by_key(|row| row.0);
            }
        }
        Effect::Delete(name, values) => {
            if let Some(all) = contents.get_mut(name) {
                all.retain(|row| !values.contains(&row.1));
            }
        }
        Effect::Several(parts) => parts.iter().for_each(|part| apply(contents, part)),
        Effect::Nothing => {}
    }
}

impl Ledger {
    /// The least that a crash at storage call `call` must have left: the call was under way, what was answered before
    /// it counts.
    pub fn bounds_at(&self, call: u64) -> Bounds {
        let mut bounds = Bounds {
            disk: CommitNo(0),
            process: CommitNo(0),
            submitted: 0,
        };
        for op in &self.ops {
            bounds.submitted += usize::from(op.before_call < call);
            if let Outcome::Stored(commit, level) = op.outcome
                && op.after_call < call
            {
                bounds.process = bounds.process.max(commit);
                if level == Durability::Disk {
                    bounds.disk = bounds.disk.max(commit);
                }
            }
        }
        bounds
    }

    /// Commits of operations that asked for level `disk`, ascending.
    pub fn commits_to_disk(&self) -> Vec<CommitNo> {
        let mut commits: Vec<CommitNo> = self
            .ops
            .iter()
            .filter(|op| op.effect != Effect::Nothing)
            .filter_map(|op| match op.outcome {
                Outcome::Stored(commit, Durability::Disk) => Some(commit),
                _ => None,
            })
            .collect();
        commits.sort_unstable();
        commits
    }

    /// All contents that the database went through. Every operation must have been stored.
    pub fn prefixes(&self) -> Prefixes {
        let mut stored: Vec<(CommitNo, usize, &Effect)> = self
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.effect != Effect::Nothing)
            .map(|(index, op)| match op.outcome {
                Outcome::Stored(commit, _) => (commit, index + 1, &op.effect),
                other => panic!("operation {op:?} of a run without faults ended with {other:?}"),
            })
            .collect();
        stored.sort_by_key(|(commit, ..)| *commit);
        let mut states = vec![(CommitNo(0), 0, Contents::new())];
        for (commit, submitted, effect) in stored {
            let (last, before, contents) = &states[states.len() - 1];
            assert!(commit > *last, "two operations with commit {commit:?}");
            let (before, mut contents) = (*before, contents.clone());
            apply(&mut contents, effect);
            states.push((commit, before.max(submitted), contents));
        }
        Prefixes { states }
    }
}

impl Prefixes {
    /// Whether contents are those after a prefix that begins with the one that left `from`, of operations that were submitted.
    pub fn go_on(&self, from: &Contents, to: &Contents, submitted: usize) -> bool {
        let behind = self.states.iter().skip_while(|state| state.2 != *from);
        let submitted = behind.take_while(|state| state.1 <= submitted);
        { submitted }.any(|state| state.2 == *to)
    }

    /// The contents as of a commit, and how many operations must have been submitted for it.
    pub fn at(&self, commit: CommitNo) -> (&Contents, usize) {
        let end = self.states.partition_point(|(c, ..)| *c <= commit);
        let (_, submitted, contents) = &self.states[end - 1];
        (contents, *submitted)
    }
}

/// A description of what is wrong.
pub type Violation = String;

fn failed(doing: &str) -> impl Fn(Error) -> Violation + '_ {
    move |e| format!("{doing}: {e:?}")
}

/// Reads everything of an open database, each table in every way there is: they must agree.
pub fn contents_of(toy: &Toy) -> Result<(CommitNo, Contents), Violation> {
    let snapshot = toy.kernel.snapshot().map_err(failed("taking a snapshot"))?;
    Ok((snapshot.commit(), contents_at(toy, &snapshot)?))
}

/// Reads everything of a snapshot.
pub fn contents_at(toy: &Toy, snapshot: &Snapshot) -> Result<Contents, Violation> {
    let mut contents = Contents::new();
    for table in snapshot.tables() {
        contents.insert(table.name.to_string(), rows_of(toy, &table)?);
    }
    Ok(contents)
}

/// Reads everything of a database that was repaired: indexes may have entries of rows that are lost.
pub fn contents_of_repaired(toy: &Toy) -> Result<Contents, Violation> {
    let snapshot = toy.kernel.snapshot().map_err(failed("taking a snapshot"))?;
    let mut contents = Contents::new();
    for table in snapshot.tables() {
        let rows = rows_in_orders(toy, &table, true)?;
        contents.insert(table.name.to_string(), rows);
    }
    Ok(contents)
}

/// Where a row stands among those of its key: its commit or the first one of its block, the number of its block or part in
/// that commit, its place there.
pub type Arrival = (CommitNo, u32, usize);

/// Key, arrival and value of a row: in the order that a table has.
pub type Arrived = (i64, Arrival, i64);

/// The rows of a table by key and arrival. Index, summaries and rows must agree.
pub fn rows_of(toy: &Toy, table: &TableSnapshot) -> Result<Vec<Row>, Violation> {
    rows_in_orders(toy, table, false)
}

/// The rows of a table, as `rows_of` returns them. `has_lost_rows`: indexes may have entries of rows that are not there.
fn rows_in_orders(
    toy: &Toy,
    table: &TableSnapshot,
    has_lost_rows: bool,
) -> Result<Vec<Row>, Violation> {
    let store = &**toy.kernel.store();
    let mut rows: Vec<Arrived> = Vec::new();
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut before = None;
    let mut kept = 0_u64;
    let mut walk = table.tree.walk(None, store);
    while let Some(entry) = { walk.next(|_| Step::Descend) }.map_err(failed("walking the index"))? {
        let place = walk.place().ok_or("a block lies in no item")?;
        let block = toy.block_rows(&entry).map_err(failed("reading a block"))?;
        check_entry(&entry, &block)?;
        if before.replace(entry.key()) >= Some(entry.key()) {
            let what = (before, entry.address);
            return Err(format!("the blocks of the index do not ascend: {what:?}"));
        }
        keys.extend(block.iter().map(|r| r.0));
        values.extend(block.iter().map(|r| r.1));
        let hidden = hidden_rows(table, &place, block.len());
        if hidden
            .last()
            .is_some_and(|last| *last as usize >= block.len())
        {
            return Err(format!(
                "rows are hidden that the block at {place:?} does not have"
            ));
        }
        kept += (block.len() - hidden.len()) as u64;
        let of_block = |place| (entry.first_commit, entry.ordinal, place);
        let block = (0_u32..).zip(block).filter(|(at, _)| !hidden.contains(at));
        rows.extend(block.map(|(at, r)| (r.0, of_block(at as usize), r.1)));
    }
    if table.rows_in_blocks() != kept {
        let said = table.rows_in_blocks();
        return Err(format!(
            "{said} rows are counted in blocks, and {kept} are there"
        ));
    }
    match table.tree.total() {
        None if !rows.is_empty() => return Err("rows below an empty index".into()),
        None => {}
        Some(total) => check_summaries(total, columns_of(&table.definition), &keys, &values)?,
    }
    let mut last = CommitNo(0);
    for (number, open) in (0..).zip(table.open_rows()) {
        let part = unpack(&open.part.payload);
        if part.len() != open.part.rows as usize || open.commit < last {
            return Err(format!(
                "open rows of commit {:?} behind {last:?} are {} and say {}",
                open.commit,
                part.len(),
                open.part.rows
            ));
        }
        last = open.commit;
        let of_part = |place| (open.commit, number, place);
        let hidden = table.hidden_in(open);
        let part = (0_u32..).zip(part);
        let part = part.filter(|(at, _)| !hidden.is_some_and(|hidden| hidden.contains(*at)));
        rows.extend(part.map(|(at, r)| (r.0, of_part(at as usize), r.1)));
    }
    rows.sort_unstable();
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|(key, _, value)| (key, value))
        .collect();
    check_indexes(toy, table, &rows, has_lost_rows)?;
    Ok(rows)
}

/// The positions of a block that are hidden, of so many rows.
pub fn hidden_rows(table: &TableSnapshot, place: &Place, rows: usize) -> BTreeSet<u32> {
    match table.hidden_at(place) {
        None => BTreeSet::new(),
        Some(BlockMask::Rows(positions)) => positions.iter().collect(),
        Some(BlockMask::Blocks { .. }) => (0_u32..).take(rows).collect(),
    }
}

/// The entries of each index are those of rows that there are, and all rows have some in blocks that it covers.
fn check_indexes(
    toy: &Toy,
    table: &TableSnapshot,
    rows: &[Row],
    has_lost_rows: bool,
) -> Result<(), Violation> {
    let store = &**toy.kernel.store();
    for index in table.orders() {
        let known: HashSet<Row> = entries_of(index.id, rows).into_iter().collect();
        let mut entries: Vec<Row> = Vec::new();
        for block in index.tree.iter(None, store) {
            let block = block.map_err(failed("walking another order"))?;
            let of_block = toy.block_rows(&block).map_err(failed("reading entries"))?;
            check_entry(&block, &of_block)?;
            entries.extend(of_block);
        }
        if let Some(total) = index.tree.total() {
            let [keys, values]: [Vec<i64>; 2] = [
                entries.iter().map(|entry| entry.0).collect(),
                entries.iter().map(|entry| entry.1).collect(),
            ];
            check_summaries(total, 2, &keys, &values)?;
        }
        let entries: HashSet<Row> = entries.into_iter().collect();
        let is_made_up = |entry: &&Row| !has_lost_rows && !known.contains(entry);
        if let Some(made_up) = entries.iter().find(is_made_up) {
            let id = index.id;
            return Err(format!("entry {made_up:?} of index {id} is of no row"));
        }
        for block in table.tree.iter(None, store) {
            let block = block.map_err(failed("walking the index"))?;
            let (first, last) = (block.key_min, block.key_max);
            if !index.coverage.covers(first, last, block.commit_max) {
                continue;
            }
            let rows = toy.block_rows(&block).map_err(failed("reading a block"))?;
            let of_rows = entries_of(index.id, &rows);
            if let Some(missing) = of_rows.iter().find(|entry| !entries.contains(entry)) {
                return Err(format!(
                    "index {} covers keys {first} to {last} and lacks the entry {missing:?}",
                    index.id
                ));
            }
        }
    }
    Ok(())
}

/// The total of a table speaks for all columns of all rows in blocks.
fn check_summaries(
    total: &Entry,
    columns: u32,
    keys: &[i64],
    values: &[i64],
) -> Result<(), Violation> {
    if columns > 1 {
        same_summary(total, KEY_COLUMN, keys)?;
    }
    same_summary(total, VALUE_COLUMN, values)?;
    for column in VALUE_COLUMN + 1..=columns {
        let least = values.iter().min().map(|value| derived(*value, column));
        let said = total.covering_summary(column).and_then(|s| s.int_range());
        if said.map(|range| range.0) != least {
            return Err(format!("column {column} begins at {least:?}, not {said:?}"));
        }
    }
    Ok(())
}

fn check_entry(entry: &Entry, rows: &[Row]) -> Result<(), Violation> {
    let keys = rows.iter().map(|r| r.0);
    let want = (keys.clone().min(), keys.max(), rows.len() as u64);
    let said = (Some(entry.key_min), Some(entry.key_max), entry.rows);
    if !rows.is_sorted_by_key(|r| r.0) {
        return Err(format!(
            "the rows of the block at {} do not ascend",
            entry.address
        ));
    }
    if want == said {
        Ok(())
    } else {
        Err(format!(
            "the index says {said:?} of a block with {want:?} at {}",
            entry.address
        ))
    }
}

fn same_summary(total: &Entry, column: u32, values: &[i64]) -> Result<(), Violation> {
    let want = ColumnSummary::of_values(column, values, None);
    let facts = |s: &ColumnSummary| (s.rows(), s.int_range(), s.int_sum());
    match total.covering_summary(column) {
        Some(said) if facts(said) == facts(&want) => Ok(()),
        said => Err(format!(
            "summary {said:?} of column {column}, its rows have {want:?}"
        )),
    }
}

/// Checks what opening the image of a crash shows: the contents after a prefix of the commits, with all that must survive.
pub fn check_prefix(
    found: &(CommitNo, Contents),
    prefixes: &Prefixes,
    least: CommitNo,
    submitted: usize,
) -> Result<(), Violation> {
    let (commit, contents) = found;
    if *commit < least {
        return Err(format!(
            "commit {} was acknowledged, the database ends at {}",
            least.0, commit.0
        ));
    }
    let (want, needed) = prefixes.at(*commit);
    if needed > submitted {
        return Err(format!(
            "it holds commit {} of operation {needed}, but only {submitted} were submitted",
            commit.0
        ));
    }
    if contents == want {
        return Ok(());
    }
    Err(format!(
        "at commit {}: {}",
        commit.0,
        difference(want, contents)
    ))
}

/// The first rows at the same place that are not the same: what shows a wrong order.
fn want_and_found(want: &[Row], found: &[Row]) -> Option<(usize, Row, Row)> {
    let pairs = want.iter().copied().zip(found.iter().copied());
    let mut pairs = (0..)
        .zip(pairs)
        .map(|(at, (want, found))| (at, want, found));
    pairs.find(|(_, want, found)| want != found)
}

/// Where contents differ, in a few words.
pub fn difference(want: &Contents, found: &Contents) -> String {
    let names: BTreeSet<&String> = want.keys().chain(found.keys()).collect();
    let mut out = Vec::new();
    for name in names {
        match (want.get(name), found.get(name)) {
            (Some(want), Some(found)) if want != found => {
                let (w, f): (HashSet<&Row>, HashSet<&Row>) =
                    (want.iter().collect(), found.iter().collect());
                let lost: Vec<_> = want.iter().filter(|r| !f.contains(r)).take(5).collect();
                let made_up: Vec<_> = found.iter().filter(|r| !w.contains(r)).take(5).collect();
                let other = want_and_found(want, found);
                out.push(format!(
                    "table {name}: {} rows, wanted {}; lost {lost:?}, made up {made_up:?}, first other {other:?}",
                    found.len(),
                    want.len()
                ));
            }
            (Some(_), None) => out.push(format!("table {name} is missing")),
            (None, Some(_)) => out.push(format!("table {name} should not be there")),
            _ => {}
        }
    }
    out.join("; ")
}

/// The losses of a run beside its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing: the process still runs, or was killed.
    Nothing,
    /// The cache, at its end: a power cut.
    Cache,
    /// The cache, at some time: a failed sync after which reads show the old bytes.
    CacheBefore,
}

/// After a run in which calls failed: whether the contents can be explained by the answers that were given.
///
/// Rows of appends show by themselves whether they are there; for edits whose outcome is unknown both are tried.
pub fn check_answers(ledger: &Ledger, contents: &Contents, lost: Lost) -> Result<(), Violation> {
    let there: HashSet<i64> = contents.values().flatten().map(|r| r.1).collect();
    let must = must_be_there(ledger, lost);
    let unknown_edits: Vec<usize> = (0..ledger.ops.len())
        .filter(|i| {
            !must[*i]
                && ledger.ops[*i].outcome != Outcome::Refused
                && ledger.ops[*i].effect != Effect::Nothing
                && ledger.ops[*i].effect.rows().next().is_none()
        })
        .collect();
    assert!(
        unknown_edits.len() <= 12,
        "too many edits with unknown ends to try"
    );
    let mut first = None;
    for choice in 0..1_u32 << unknown_edits.len() {
        let present = |index: usize| {
            must[index]
                || ledger.ops[index]
                    .effect
                    .rows()
                    .any(|r| there.contains(&r.1))
                || unknown_edits
                    .iter()
                    .position(|i| *i == index)
                    .is_some_and(|bit| choice >> bit & 1 == 1)
        };
        let explained = explain(ledger, contents, &present);
        match explained {
            Ok(()) => return Ok(()),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    Err(first.unwrap_or_default())
}

/// An operation, its table, the first later operation.
type Missing = (usize, Option<(usize, usize)>, Option<usize>);

/// Whether the contents are those of the operations that are present, in order, and these are a prefix per life.
fn explain(
    ledger: &Ledger,
    contents: &Contents,
    present: &dyn Fn(usize) -> bool,
) -> Result<(), Violation> {
    let mut want = Contents::new();
    // The operation and its part that made a table: names are used again.
    let mut made_by: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    // Acknowledged and not there: (operation, its table, the first operation of its life that came later and is there).
    let mut missing: Vec<Missing> = Vec::new();
    for (index, op) in ledger.ops.iter().enumerate() {
        if op.effect == Effect::Nothing {
            continue;
        }
        if !present(index) {
            if matches!(op.outcome, Outcome::Stored(..)) {
                missing.extend(op.effect.parts().iter().map(|part| {
                    let table = match part {
                        Effect::Append(name, _) => made_by.get(name.as_str()).copied(),
                        _ => None,
                    };
                    (index, table, None)
                }));
            }
            continue;
        }
        if op.outcome == Outcome::Refused {
            return Err(format!(
                "operation {index} was refused and is there: {op:?}"
            ));
        }
        for (lost, _, later) in &mut missing {
            if ledger.ops[*lost].life == op.life {
                *later = later.or(Some(index));
            }
        }
        for (number, part) in op.effect.parts().iter().enumerate() {
            match part {
                Effect::Create(name) => _ = made_by.insert(name, (index, number)),
                Effect::Drop(name) => _ = made_by.remove(name.as_str()),
                Effect::Rename(from, to) => {
                    if let Some(table) = made_by.remove(from.as_str()) {
                        made_by.insert(to, table);
                    }
                }
                _ => {}
            }
        }
        apply(&mut want, &op.effect);
    }
    // Rows of a table that was dropped later show nothing.
    let hole = missing.iter().find_map(|(lost, table, later)| {
        let still_there = table.is_none_or(|t| made_by.values().any(|made| *made == t));
        later.filter(|_| still_there).map(|later| (*lost, later))
    });
    if let Some((lost, later)) = hole {
        return Err(format!(
            "operation {lost} was acknowledged and is gone, {later} came later and is there"
        ));
    }
    if want == *contents {
        Ok(())
    } else {
        Err(difference(&want, contents))
    }
}

/// Decides which operations cannot be gone. What a kill left and the next opening showed is durable from then on.
fn must_be_there(ledger: &Ledger, lost: Lost) -> Vec<bool> {
    let ops = &ledger.ops;
    let last_life = ops.last().map_or(0, |op| op.life);
    let holds = |op: &Op| match op.outcome {
        Outcome::Stored(_, Durability::Disk) => true,
        Outcome::Stored(..) => match lost {
            Lost::Nothing => true,
            Lost::Cache => op.life < last_life,
            Lost::CacheBefore => false,
        },
        _ => false,
    };
    let mut must = vec![false; ops.len()];
    let mut later: BTreeMap<u32, bool> = BTreeMap::new();
    for (index, op) in ops.iter().enumerate().rev() {
        let covered = later.entry(op.life).or_default();
        *covered |= holds(op);
        must[index] = *covered && matches!(op.outcome, Outcome::Stored(..));
    }
    must
}
