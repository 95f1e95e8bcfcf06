//! Appends to tables with a unique key.
//!
//! Invariants
//! - They come one after the other: each has the turn of the table's keys from the snapshot that it looks into until its commit, so
//!   that no other one stores one of its keys meanwhile. A durable append of few rows passes the turn on before its commit and is one
//!   of those under way until then ([`crate::key_turns`]); where it loses a race, it is planned again as the others are.
//! - Rows that are put together for sorting at once are planned at once. More go part by part into a draft, as those of a
//!   transaction do: a later part finds the rows of those before it, and memory stays bounded. Within a transaction of the caller an
//!   append is planned at once, however many rows it has.

use crate::conform::conform_after;
use crate::definition::TableDefinition;
use crate::delete::{AddedKeys, RowsToDelete};
use crate::duplicates::distinct;
use crate::duplicates::key_columns;
use crate::duplicates::keys::Keys;
use crate::error::query;
use crate::intake::{NewRows, concat, raw_bytes};
use crate::key_index::KeyIndexes;
use crate::key_turns::{KeyPrints, KeyTurns};
use crate::placed_rows::PickedRows;
use crate::range::KeyRange;
use crate::table::{Table, TableView};
use crate::unique::OnDuplicate;
use arrow_array::RecordBatch;
use std::time::Duration;
use thalweg_kernel::{CommitNo, Durability, Error, ErrorKind, Producer, Result};

/// A part has so many times the bytes that are put together for sorting: each becomes a file of its own at least.
const PART: usize = 4;
/// Rows of an append that lets others pass while it is being stored, at most: these wait for the look at their keys instead.
const MAX_ROWS_UNDER_WAY: usize = 1_000;

/// The wishes of an append beside its rows.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) producer: Option<Producer>,
    pub(crate) durability: Durability,
    /// In the place of the rule of the table.
    pub(crate) rule: Option<OnDuplicate>,
}

/// Appends all batches in one commit, and returns how many rows were stored.
pub(crate) fn append_unique(
    table: &Table,
    batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
    asked: Asked,
    go_on: &dyn Fn() -> bool,
) -> Result<u64> {
    let mut parts = Parts {
        table,
        batches,
        before: 0,
    };
    // Before the turn: whoever hands them over may take long.
    let (mut first, mut is_last) = parts.next()?;
    if table.is_in_transaction() {
        // All at once: a part that is refused must not leave those before it in the draft.
        while !is_last {
            let (part, last) = parts.next()?;
            check(go_on)?;
            first.batches.extend(part.batches);
            is_last = last;
        }
        return Ok(store(table, &first, asked)?.rows);
    }
    let engine = table.engine();
    let turns = engine.key_turns_of(table.id())?;
    if is_last
        && asked.producer.is_none()
        && asked.durability == Durability::Disk
        && let Some(stored) = store_beside_others(table, &first, asked, (&turns, go_on))?
    {
        return Ok(stored);
    }
    let _turn = turns.wait(engine.closed(), go_on)?;
    if let Some(producer) = &asked.producer
        && engine.kernel().has_stored(producer)?
    {
        if !is_last {
            while !parts.next()?.1 {}
        }
        engine.kernel().flush()?;
        return Ok(parts.before);
    }
    if is_last {
        return Ok(store(table, &first, asked)?.rows);
    }
    // However long it takes: its snapshot is one of this process, whose files are kept.
    let transaction = engine.transaction_of(Duration::MAX)?;
    let inside = transaction.inside(table);
    let stored = store_parts(&inside, (first, &mut parts), asked, go_on)?;
    transaction.commit_in_turn(asked.producer, asked.durability)?;
    Ok(stored)
}

/// Stores several parts in a draft that goes with a failure, and returns how many rows of them are left.
fn store_parts(
    table: &Table,
    (first, rest): (Part, &mut Parts<'_>),
    asked: Asked,
    go_on: &dyn Fn() -> bool,
) -> Result<u64> {
    let before = table.snapshot()?.commit();
    let mut stored = store(table, &first, asked)?.rows;
    loop {
        let (part, is_last) = rest.next()?;
        check(go_on)?;
        let of_part = store(table, &part, asked)?;
        // Some may replace rows of an earlier part.
        let replaced = of_part.replaced.iter().filter(|commit| **commit > before);
        stored = (stored + of_part.rows).saturating_sub(replaced.count() as u64);
        if is_last {
            return Ok(stored);
        }
    }
}

fn check(go_on: &dyn Fn() -> bool) -> Result<()> {
    match go_on() {
        true => Ok(()),
        false => Err(query("the append was interrupted, and nothing was stored")),
    }
}

/// Rows that are planned together, as they were handed over.
struct Part {
    /// Rows of the append before these.
    before: u64,
    batches: Vec<RecordBatch>,
}

struct Parts<'a> {
    table: &'a Table,
    batches: &'a mut dyn Iterator<Item = Result<RecordBatch>>,
    before: u64,
}

impl Parts<'_> {
    /// The next part, and whether it is the last one.
    fn next(&mut self) -> Result<(Part, bool)> {
        let engine = self.table.engine();
        let max_bytes = PART * engine.options().append_limits.gather_bytes;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        let before = self.before;
        let is_last = loop {
            if bytes >= max_bytes {
                break false;
            }
            let next = self.batches.next().transpose();
            // The caller's code may have forked. In the child nothing is stored.
            engine.closed().check()?;
            let Some(batch) = next? else { break true };
            bytes += raw_bytes(&batch);
            self.before += batch.num_rows() as u64;
            batches.push(batch);
        };
        Ok((Part { before, batches }, is_last))
    }
}

/// The outcome of a part.
#[derive(Default)]
struct Stored {
    rows: u64,
    /// The commits of the rows that they replace.
    replaced: Vec<CommitNo>,
}

/// Rows in the columns of the table.
fn conformed(definition: &TableDefinition, part: &Part) -> Result<RecordBatch> {
    let mut before = part.before;
    let conformed = part.batches.iter().map(|batch| {
        let conformed = conform_after(before, definition, batch)?;
        before += batch.num_rows() as u64;
        Ok(conformed)
    });
    concat(definition, &conformed.collect::<Result<Vec<_>>>()?)
}

/// Plans as the rule says what is stored, and what of the table goes.
fn plan(
    (view, indexes): (&TableView, Option<&KeyIndexes>),
    part: &Part,
    rule: Option<OnDuplicate>,
    new: &mut NewRows<'_>,
) -> Result<(RowsToDelete, Stored)> {
    let definition = view.definition();
    let rows = conformed(definition, part)?;
    let Some(unique) = definition.unique() else {
        let stored = Stored {
            rows: rows.num_rows() as u64,
            replaced: Vec::new(),
        };
        new.push(&rows)?;
        return Ok((RowsToDelete::Keys(KeyRange::EMPTY), stored));
    };
    let rule = rule.unwrap_or(unique.on_duplicate());
    let kept = distinct((view, indexes), (unique, rule), &rows)?;
    let mut stored = Stored {
        rows: kept.rows.num_rows() as u64,
        replaced: Vec::new(),
    };
    new.push(&kept.rows)?;
    let Some((placed, places)) = kept.replaced else {
        return Ok((RowsToDelete::Keys(KeyRange::EMPTY), stored));
    };
    let commits = places.iter().filter_map(|place| placed.row_at(*place));
    stored.replaced = commits.map(|row| row.commit()).collect();
    let mut picked = PickedRows::default();
    picked.add(&places);
    Ok((RowsToDelete::Picked(placed, picked), stored))
}

/// Stores few rows and lets others plan theirs meanwhile. `None`: there are many, others were faster, or what is wrong with them is
/// to be found out in turn.
fn store_beside_others(
    table: &Table,
    part: &Part,
    asked: Asked,
    (turns, go_on): (&KeyTurns, &dyn Fn() -> bool),
) -> Result<Option<u64>> {
    let rows: usize = part.batches.iter().map(RecordBatch::num_rows).sum();
    if rows > MAX_ROWS_UNDER_WAY {
        return Ok(None);
    }
    table.refresh()?;
    let Ok(Some(keys)) = key_prints(table, part) else {
        return Ok(None);
    };
    let version = keys.version;
    let turn = turns.wait_beside(table.engine().closed(), go_on, &keys)?;
    let mut held = Some((turn, keys));
    let (mut stored, mut entered) = (Stored::default(), None);
    let mut plan = |new: &mut NewRows<'_>| {
        let view = table.view()?;
        if view.snapshot().definition_version != version {
            let message = "the definition of the table changed meanwhile";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let (rows, of_part) = plan((&view, table.key_indexes(&view)), part, asked.rule, new)
            .map_err(|error| table.name_error(error))?;
        stored = of_part;
        Ok(rows)
    };
    let done = table.change_rows_once(asked.durability, &mut plan, &mut || {
        entered = held.take().map(|(turn, keys)| turns.pass_on(turn, keys));
    });
    // The turn too, which is still held where nothing was to be committed: no sync is waited for with it.
    drop((entered, held));
    let done = done?.map(|_| stored.rows);
    if done == Some(0) {
        flush_for_none(table)?;
    }
    Ok(done)
}

/// The fingerprints of the keys of rows, as the definition that is known has them; `None`: it has no unique key.
fn key_prints(table: &Table, part: &Part) -> Result<Option<KeyPrints>> {
    let shape = table.shape();
    let Some(unique) = shape.definition.unique() else {
        return Ok(None);
    };
    let rows = conformed(&shape.definition, part)?;
    let keys = Keys::of(&key_columns(&shape.definition, unique, &rows)?, 0)?;
    Ok(Some(KeyPrints {
        fingerprints: keys.fingerprints().map(|(_, print)| print).collect(),
        version: shape.version,
    }))
}

/// That the keys of all rows were there already is to survive a power cut as well.
fn flush_for_none(table: &Table) -> Result<()> {
    table.engine().kernel().flush()
}

/// Stores rows as the rule says.
fn store(table: &Table, part: &Part, asked: Asked) -> Result<Stored> {
    let mut stored = Stored::default();
    let mut plan = |new: &mut NewRows<'_>| {
        let view = table.view()?;
        let (rows, of_part) = plan((&view, table.key_indexes(&view)), part, asked.rule, new)
            .map_err(|error| table.name_error(error))?;
        stored = of_part;
        Ok(rows)
    };
    table.change_rows(
        (asked.producer, asked.durability),
        AddedKeys::Checked,
        &mut plan,
    )?;
    if stored.rows == 0 && asked.durability == Durability::Disk && !table.is_in_transaction() {
        flush_for_none(table)?;
    }
    Ok(stored)
}
