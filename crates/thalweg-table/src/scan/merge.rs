//! Merging sorted rows by key; rows of equal keys keep the order of their arrival.
//!
//! Invariants: within a piece rows of equal keys are in order of arrival already, and no other piece has rows that arrived
//! between two of its rows with the same key. So (key, arrival of the piece) orders the rows of different pieces.

use crate::arrival::Arrival;
use crate::order::gallop;
use arrow_array::{RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::ScalarBuffer;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, SchemaRef};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Rows in key order.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    pub(crate) keys: ScalarBuffer<i64>,
    pub(crate) batch: RecordBatch,
    pub(crate) arrival: Arrival,
}

impl Sorted {
    /// Some of the rows, without copying.
    pub(crate) fn slice(&self, start: usize, rows: usize) -> Self {
        Self {
            keys: self.keys.slice(start, rows),
            batch: self.batch.slice(start, rows),
            arrival: self.arrival,
        }
    }

    /// How many rows from `start` on come before a row with this key and arrival.
    pub(crate) fn rows_before(&self, start: usize, key: i64, arrival: Arrival) -> usize {
        let rest = &self.keys[start..];
        if self.arrival < arrival {
            gallop(rest, |own| *own <= key)
        } else {
            gallop(rest, |own| *own < key)
        }
    }
}

/// All rows of the pieces in one batch.
pub(crate) fn merge(schema: &SchemaRef, pieces: &[Sorted]) -> Result<RecordBatch> {
    if let [only] = pieces {
        return Ok(only.batch.clone());
    }
    let runs = merged_runs(pieces);
    let rows = pieces.iter().map(|piece| piece.keys.len()).sum();
    let column = |at: usize| {
        let arrays: Vec<_> = pieces
            .iter()
            .map(|piece| piece.batch.column(at).to_data())
            .collect();
        let mut merged = MutableArrayData::new(arrays.iter().collect(), false, rows);
        for run in &runs {
            merged.try_extend(run.piece, run.start, run.start + run.rows)?;
        }
        Ok(make_array(merged.freeze()))
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let columns = (0..schema.fields().len())
        .map(column)
        .collect::<Result<_, ArrowError>>();
    columns
        .and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        })
        .map_err(|e| Error::with_source(ErrorKind::Limit, format!("merging rows: {e}"), e))
}

/// Neighbouring rows of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    piece: usize,
    start: usize,
    rows: usize,
}

fn merged_runs(pieces: &[Sorted]) -> Vec<Run> {
    let head = |piece: usize, start: usize| {
        let sorted: &Sorted = &pieces[piece];
        let key = sorted.keys.get(start)?;
        Some(Reverse((*key, sorted.arrival, piece, start)))
    };
    let mut heads: BinaryHeap<_> = (0..pieces.len())
        .filter_map(|piece| head(piece, 0))
        .collect();
    let mut runs = Vec::with_capacity(pieces.len());
    while let Some(Reverse((_, arrival, piece, start))) = heads.pop() {
        let rest = &pieces[piece].keys[start..];
        let rows = match heads.peek() {
            None => rest.len(),
            Some(Reverse((key, other, second, _))) if (arrival, piece) < (*other, *second) => {
                gallop(rest, |own| own <= key)
            }
            Some(Reverse((key, ..))) => gallop(rest, |own| own < key),
        };
        runs.push(Run { piece, start, rows });
        heads.extend(head(piece, start + rows));
    }
    runs
}

/// Rows for the tests of whatever merges them.
#[cfg(test)]
pub(crate) mod test_rows {
    use super::*;
    use arrow_array::{ArrayRef, StringArray, UInt32Array};
    use arrow_schema::{DataType, Field, Schema};

    pub(crate) fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("n", DataType::UInt32, false),
            Field::new("s", DataType::Utf8, true),
        ]))
    }

    /// Pieces of rows that are numbered by arrival, in key order inside.
    pub(crate) fn pieces(keys: Vec<Vec<i64>>) -> Vec<Sorted> {
        let mut number = 0;
        let piece = |(commit, mut keys): (u64, Vec<i64>)| {
            keys.sort_unstable();
            let numbers: Vec<u32> = keys
                .iter()
                .map(|_| {
                    number += 1;
                    number
                })
                .collect();
            let texts = numbers.iter().map(|n| (n % 3 > 0).then(|| n.to_string()));
            let columns: Vec<ArrayRef> = vec![
                Arc::new(UInt32Array::from(numbers.clone())),
                Arc::new(StringArray::from_iter(texts)),
            ];
            let batch = RecordBatch::try_new(schema(), columns).unwrap();
            Sorted {
                keys: keys.into(),
                batch,
                arrival: Arrival {
                    commit: thalweg_kernel::CommitNo(commit),
                    ordinal: 0,
                },
            }
        };
        (1..).zip(keys).map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::test_rows::{pieces, schema};
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merging_is_a_stable_sort_by_arrival(keys in prop::collection::vec(prop::collection::vec(0_i64..20, 1..40), 1..6)) {
            let mut pieces = pieces(keys);
            let mut expected: Vec<(i64, u32)> = Vec::new();
            for piece in &pieces {
                let numbers = piece.batch.column(0).as_primitive::<UInt32Type>().values();
                expected.extend(piece.keys.iter().copied().zip(numbers.iter().copied()));
            }
            expected.sort_by_key(|(key, _)| *key);
            pieces.reverse();
            let merged = merge(&schema(), &pieces).unwrap();
            let numbers = merged.column(0).as_primitive::<UInt32Type>();
            prop_assert_eq!(numbers.values().to_vec(), expected.iter().map(|(_, n)| *n).collect::<Vec<_>>());
            for (row, text) in merged.column(1).as_string::<i32>().iter().enumerate() {
                let number = numbers.value(row);
                prop_assert_eq!(text.map(str::to_owned), (number % 3 > 0).then(|| number.to_string()));
            }
        }
    }
}
