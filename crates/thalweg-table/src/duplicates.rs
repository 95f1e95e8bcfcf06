//! Rows that have the unique key of another row, among those that a call stores and those that the table has.
//!
//! Invariants: what is found are the rows of one snapshot. Whoever stores rows with keys that it may lack keeps everybody else from
//! doing so from that snapshot until its commit ([`crate::engine::Engine::key_turns_of`]): so no two rows get one key. Deletions, and
//! changes that leave keys as they are, need not wait: where they were faster, the commit is refused and planned again.
//!
//! Of a key that holds the column by which the table is ordered, only pieces with one of the wanted times are read: none where
//! all rows are newer than those of the table. Of others those that their summaries do not rule out.

mod in_memory;
pub(crate) mod keys;

use crate::definition::TableDefinition;
use crate::key_index::KeyIndexes;
use crate::order::take_rows;
use crate::piece::{Piece, RowAt};
use crate::placed_rows::{PlacedRows, Wanted};
use crate::range::{ColumnRange, KeyRange};
use crate::scan::ScanRequest;
use crate::summarise::summary_kind;
use crate::table::TableView;
use crate::time::{order_keys, orders_rows};
use crate::unique::{OnDuplicate, UniqueKey};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use keys::{KeyTable, Keys, Repeated};
use std::sync::Arc;
use thalweg_kernel::masks::{BlockMask, MaskEdit};
use thalweg_kernel::summary::{SummaryKind, ValueRange};
use thalweg_kernel::{Error, ErrorKind, Result};

/// The end of the errors for duplicates.
pub(crate) const NOTHING_STORED: &str = "; nothing was stored";

/// Keys of a transaction that are compared with those of its table at once, at least: the rows of a piece stay together.
const MAX_CHECKED_ROWS: usize = 1 << 20;

/// Rows of a table with the keys of new ones: which of the new ones, and the place of that of the table.
type Found = (Arc<PlacedRows>, Vec<(usize, u64)>);

/// The rows of a call that are stored, and those of the table that they replace.
pub(crate) struct Distinct {
    pub(crate) rows: RecordBatch,
    pub(crate) replaced: Option<(Arc<PlacedRows>, Vec<u64>)>,
}

/// Applies a rule to rows that are to be stored: among them, and to those of the table that have their keys.
///
/// # Errors
/// `AlreadyExists` where the rule is an error, with the key.
pub(crate) fn distinct(
    (view, indexes): (&TableView, Option<&KeyIndexes>),
    (unique, rule): (&UniqueKey, OnDuplicate),
    rows: &RecordBatch,
) -> Result<Distinct> {
    let definition = view.definition();
    let mut left_out = vec![false; rows.num_rows()];
    let columns = key_columns(definition, unique, rows)?;
    let new = NewKeys::of(
        view,
        unique,
        &columns,
        |keys, Repeated { earlier, later }| {
            match rule {
                OnDuplicate::Last => left_out[earlier] = true,
                OnDuplicate::First => left_out[later] = true,
                OnDuplicate::Error => {
                    let key = keys.shown(later, definition, unique);
                    return Err(taken_twice(&key));
                }
            }
            Ok(rule == OnDuplicate::Last)
        },
    )?;
    let (placed, found) = new.found((view, indexes), unique)?;
    let mut places = Vec::new();
    match rule {
        OnDuplicate::Last => places.extend(found.iter().map(|(_, place)| *place)),
        OnDuplicate::First => found.iter().for_each(|(row, _)| left_out[*row] = true),
        OnDuplicate::Error => {
            if let Some((row, _)) = found.iter().min() {
                return Err(is_there(&new.keys.shown(*row, definition, unique)));
            }
        }
    }
    let rows = match left_out.contains(&true) {
        false => rows.clone(),
        true => {
            let kept: BooleanArray = left_out.iter().map(|left_out| Some(!left_out)).collect();
            filter_record_batch(rows, &kept).map_err(of_rows)?
        }
    };
    let replaced = (!places.is_empty()).then_some((placed, places));
    Ok(Distinct { rows, replaced })
}

/// Refuses rows, of which it gets the columns of the key, with the key of another one of them, or of a row of the table other than
/// those that `goes` names.
///
/// # Errors
/// `AlreadyExists` with the key.
pub(crate) fn refuse_duplicates(
    (view, indexes): (&TableView, Option<&KeyIndexes>),
    unique: &UniqueKey,
    columns: &RecordBatch,
    goes: &dyn Fn(RowAt) -> bool,
) -> Result<()> {
    let definition = view.definition();
    let new = NewKeys::of(view, unique, columns, |keys, repeated| {
        Err(taken_twice(&keys.shown(repeated.later, definition, unique)))
    })?;
    let (placed, found) = new.found((view, indexes), unique)?;
    let stays = |(_, place): &&(usize, u64)| placed.row_at(*place).is_some_and(|row| !goes(row));
    match found.iter().filter(stays).min() {
        None => Ok(()),
        Some((row, _)) => Err(is_there(&new.keys.shown(*row, definition, unique))),
    }
}

fn is_there(key: &str) -> Error {
    let message = format!("there is a row with the unique key {key} already{NOTHING_STORED}");
    Error::new(ErrorKind::AlreadyExists, message)
}

fn taken_twice(key: &str) -> Error {
    let message = format!("two of the rows to be stored have the unique key {key}{NOTHING_STORED}");
    Error::new(ErrorKind::AlreadyExists, message)
}

/// The columns of a unique key, in its order, of rows with all columns of the table.
pub(crate) fn key_columns(
    definition: &TableDefinition,
    unique: &UniqueKey,
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    rows.project(&positions(definition, unique)?)
        .map_err(of_rows)
}

/// Hands the columns of the unique keys of the rows in some pieces of a table to `check`, a bounded number of rows at once.
pub(crate) fn each_keys(
    view: &TableView,
    unique: &UniqueKey,
    is_wanted: &dyn Fn(&Piece) -> bool,
    check: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let request = key_request(view.definition(), unique)?;
    let placed = Arc::new(PlacedRows::new(view, &request)?);
    let reader = placed.reader()?;
    let (mut keys, mut rows) = (Vec::new(), 0);
    for (number, _) in placed
        .all()
        .iter()
        .enumerate()
        .filter(|(_, piece)| is_wanted(piece))
    {
        for (batch, _) in reader.read(number)? {
            rows += batch.num_rows();
            keys.push(batch);
        }
        if rows >= MAX_CHECKED_ROWS {
            check(concat_keys(&std::mem::take(&mut keys))?)?;
            rows = 0;
        }
    }
    match keys.is_empty() {
        true => Ok(()),
        false => check(concat_keys(&keys)?),
    }
}

/// Columns of keys as one batch.
pub(crate) fn concat_keys(columns: &[RecordBatch]) -> Result<RecordBatch> {
    match columns {
        [one] => Ok(one.clone()),
        [first, ..] => concat_batches(first.schema_ref(), columns).map_err(of_rows),
        [] => Err(Error::new(ErrorKind::Invalid, "no columns of keys")),
    }
}

/// Whether a row is one of those that masks hide.
pub(crate) fn row_is_hidden(masks: &MaskEdit, row: RowAt) -> bool {
    match row {
        RowAt::Block { place, position } => {
            let item = masks
                .items
                .binary_search_by_key(&place.item, |item| item.name);
            let rank = u32::try_from(place.rank).ok();
            let of_block = item
                .ok()
                .zip(rank)
                .and_then(|(at, rank)| masks.items[at].masks.of_block(rank));
            match of_block {
                None => false,
                Some(BlockMask::Blocks { .. }) => true,
                Some(BlockMask::Rows(positions)) => positions.contains(position),
            }
        }
        RowAt::Open {
            commit,
            part,
            position,
        } => {
            let part = masks
                .parts
                .binary_search_by_key(&(commit, part), |mask| (mask.commit, mask.part));
            part.is_ok_and(|at| masks.parts[at].positions.contains(position))
        }
    }
}

/// The request for the columns of a unique key, in its order.
fn key_request(definition: &TableDefinition, unique: &UniqueKey) -> Result<ScanRequest> {
    Ok(ScanRequest {
        projection: Some(positions(definition, unique)?),
        ..ScanRequest::default()
    })
}

/// The places of the columns of a unique key.
fn positions(definition: &TableDefinition, unique: &UniqueKey) -> Result<Vec<usize>> {
    let positions = unique.columns().iter().map(|id| definition.position(*id));
    let positions: Option<Vec<usize>> = positions.collect();
    positions
        .ok_or_else(|| Error::new(ErrorKind::Conflict, "the columns of the unique key changed"))
}

/// The keys of rows that are to be stored.
struct NewKeys {
    positions: Vec<usize>,
    keys: Keys,
    table: KeyTable,
    seed: u64,
    /// The column of the key by which the table is ordered, and the order keys of the rows, each once, ascending.
    times: Option<(usize, Vec<i64>)>,
    ranges: Vec<ColumnRange>,
}

impl NewKeys {
    /// `columns` are those of the key, in its order.
    fn of(
        view: &TableView,
        unique: &UniqueKey,
        columns: &RecordBatch,
        mut repeated: impl FnMut(&Keys, Repeated) -> Result<bool>,
    ) -> Result<Self> {
        let definition = view.definition();
        let positions = positions(definition, unique)?;
        let seed = view.engine().key_indexes().seed();
        let keys = Keys::of(columns, seed)?;
        let table = KeyTable::of(&keys, |row| repeated(&keys, row))?;
        let order = definition.order_position();
        let at = positions
            .iter()
            .position(|position| Some(*position) == order);
        let times = at.map(|at| Ok::<_, Error>((at, each_once(order_keys(columns.column(at))?))));
        let ranges = match at {
            // Pieces that have one of the times are few.
            Some(_) => Vec::new(),
            None => { positions.iter().zip(columns.columns()) }
                .filter_map(|(column, values)| {
                    let range = range_of(values)?;
                    Some(ColumnRange {
                        column: *column,
                        range,
                    })
                })
                .collect(),
        };
        Ok(Self {
            positions,
            keys,
            table,
            seed,
            times: times.transpose()?,
            ranges,
        })
    }

    /// The rows of the table with these keys.
    fn found(
        &self,
        (view, indexes): (&TableView, Option<&KeyIndexes>),
        unique: &UniqueKey,
    ) -> Result<Found> {
        if let Some(indexes) = indexes.filter(|_| self.times.is_none())
            && let Some(found) = indexes.find(view, unique, (&self.keys, &self.table))?
        {
            return Ok(found);
        }
        let known = view.key_range().unwrap_or(KeyRange::EMPTY);
        let times = self
            .times
            .as_ref()
            .map(|(_, times)| &times[known.positions(times)]);
        let keys = match times {
            None => known,
            Some([first, .., last] | [first @ last]) => KeyRange {
                first: *first,
                last: *last,
            },
            Some([]) => KeyRange::EMPTY,
        };
        let request = ScanRequest {
            projection: Some(self.positions.clone()),
            keys,
            ranges: self.ranges.clone(),
            ..ScanRequest::default()
        };
        let is_wanted = |first, last| {
            times.is_none_or(|times| !KeyRange { first, last }.positions(times).is_empty())
        };
        let wanted = Wanted {
            entry: &|entry, _| is_wanted(entry.key_min, entry.key_max),
            open: &|open| is_wanted(open.part.key_min, open.part.key_max),
        };
        let placed = Arc::new(PlacedRows::of_wanted(view, &request, &wanted)?);
        let mut found = Vec::new();
        let reader = placed.reader()?;
        for (number, piece) in placed.all().iter().enumerate() {
            view.engine().closed().check()?;
            for (rows, places) in reader.read(number)? {
                let wanted = match (times, &self.times) {
                    (Some(times), Some((at, _))) => {
                        let is_sorted = matches!(piece, Piece::Block { .. });
                        Some(with_times(times, &order_keys(rows.column(*at))?, is_sorted))
                    }
                    _ => None,
                };
                let (rows, places) = match wanted {
                    None => (rows, places),
                    Some(wanted) => {
                        let of = |position: &u32| places.value(*position as usize);
                        let places: UInt64Array =
                            wanted.iter().map(of).collect::<Vec<u64>>().into();
                        (take_rows(&rows, wanted)?, places)
                    }
                };
                let others = Keys::of(&rows, self.seed)?;
                self.table.find(&self.keys, &others, |row, other| {
                    found.push((row, places.value(other)));
                })?;
            }
        }
        Ok((placed, found))
    }
}

/// The positions of the rows of a piece that have one of these times, which ascend.
fn with_times(times: &[i64], of_rows: &[i64], is_sorted: bool) -> Vec<u32> {
    let positions = 0_u32..;
    if !is_sorted {
        let rows = positions.zip(of_rows);
        let rows = rows.filter(|(_, time)| times.binary_search(time).is_ok());
        return rows.map(|(position, _)| position).collect();
    }
    let [first, .., last] = of_rows else {
        return with_times(times, of_rows, false);
    };
    let piece = KeyRange {
        first: *first,
        last: *last,
    };
    let mut wanted = Vec::new();
    for time in &times[piece.positions(times)] {
        let rows = KeyRange {
            first: *time,
            last: *time,
        }
        .positions(of_rows);
        wanted.extend(rows.filter_map(|row| u32::try_from(row).ok()));
    }
    wanted
}

/// The keys, each once, ascending.
fn each_once(keys: ScalarBuffer<i64>) -> Vec<i64> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The range that values lie in; `None` for types whose summaries are not asked.
fn range_of(values: &ArrayRef) -> Option<ValueRange> {
    match (summary_kind(values.data_type()), values.data_type()) {
        (_, DataType::Utf8) => {
            let texts = values.as_string::<i32>().iter().flatten();
            let (first, last) = extremes(texts.map(str::as_bytes))?;
            Some(ValueRange::Bytes {
                first: Some(first.into()),
                last: Some(last.into()),
                is_open: false,
            })
        }
        (SummaryKind::Int, data_type) if orders_rows(data_type) => {
            let (first, last) = extremes(order_keys(values).ok()?.iter().copied())?;
            Some(ValueRange::Int(Some(first), Some(last)))
        }
        _ => None,
    }
}

fn extremes<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
    let one = values.map(|value| (value, value));
    one.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn of_rows(error: ArrowError) -> Error {
    Error::with_source(
        ErrorKind::Invalid,
        format!("the unique keys of rows: {error}"),
        error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int32Array, StringArray};

    #[test]
    fn rows_with_wanted_times_are_the_same_in_and_out_of_order() {
        let times = [2, 5, 6, 9];
        let rows = [1, 2, 2, 3, 5, 7, 9, 9, 12];
        let wanted = vec![1, 2, 4, 6, 7];
        assert_eq!(with_times(&times, &rows, true), wanted);
        assert_eq!(with_times(&times, &rows, false), wanted);
        assert_eq!(with_times(&times, &[5], true), [0]);
        assert!(with_times(&times, &[], true).is_empty());
        assert!(with_times(&[], &rows, true).is_empty());
    }

    #[test]
    fn ranges_hold_all_values() {
        let ints: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None, Some(-7)]));
        let Some(ValueRange::Int(Some(first), Some(last))) = range_of(&ints) else {
            panic!("no range of integers");
        };
        assert!(first <= -7 && last >= 3);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "", "c"]));
        let Some(ValueRange::Bytes {
            first,
            last,
            is_open: false,
        }) = range_of(&texts)
        else {
            panic!("no range of texts");
        };
        assert_eq!(
            (first.as_deref(), last.as_deref()),
            (Some(&b""[..]), Some(&b"c"[..]))
        );
    }
}
