//! Deleted rows: they lie in their blocks and among open rows, and masks of the table hide them.
//!
//! Invariants: where nothing is hidden, a block costs one check and its rows none; positions are those in which rows are stored,
//! so that hidden rows are taken out before others are sorted or cut; a position that a block does not have is damage, never
//! passed over.

use crate::error::damaged;
use crate::rows::RowsDecoder;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use arrow_select::filter::filter_record_batch;
use std::ops::Range;
use thalweg_kernel::index::{Entry, Place, Step};
use thalweg_kernel::masks::{BlockMask, Positions};
use thalweg_kernel::{Error, ErrorKind, OpenRows, Result, TableSnapshot};

/// A block that is to be read.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) entry: Entry,
    /// Its rows that are hidden; `None`: none are.
    pub(crate) mask: Option<BlockMask>,
}

impl Block {
    /// A block that a walk has found at a place.
    pub(crate) fn found(table: &TableSnapshot, entry: Entry, place: Option<Place>) -> Self {
        let mask = place.and_then(|place| table.hidden_at(&place).cloned());
        Self { entry, mask }
    }

    /// The positions that are hidden of it, if some are.
    ///
    /// # Errors
    /// `Corruption` if they are more than it has.
    pub(crate) fn hidden(&self) -> Result<Option<&Positions>> {
        match &self.mask {
            None => Ok(None),
            Some(BlockMask::Rows(hidden)) if u64::from(hidden.end()) <= self.entry.rows => {
                Ok(Some(hidden))
            }
            // Whoever walks goes into no block that is hidden as a whole.
            Some(_) => {
                let what = "rows are deleted that the block does not have";
                Err(damaged(self.entry.address, what))
            }
        }
    }
}

/// How a walk for rows goes on at an entry: not into blocks of which no row is left.
pub(crate) fn step_into(table: &TableSnapshot, entry: &Entry, place: Option<Place>) -> Step {
    let mask = place.filter(|_| entry.is_block());
    let is_empty = match mask.and_then(|place| table.hidden_at(&place)) {
        None => false,
        Some(BlockMask::Blocks { .. }) => true,
        Some(BlockMask::Rows(hidden)) => {
            // Positions that the block does not have are reported when it is read.
            u64::from(hidden.rows()) == entry.rows && u64::from(hidden.end()) == entry.rows
        }
    };
    match is_empty {
        true => Step::Skip,
        false => Step::Descend,
    }
}

/// Adds open rows of a table to those that were collected, and notes which of them are hidden.
pub(crate) fn push_open_rows(
    open: &OpenRows,
    hidden: Option<&Positions>,
    decoder: &mut RowsDecoder,
    deleted: &mut DeletedRows,
) -> Result<()> {
    let first = decoder.rows();
    decoder.push(&open.part.payload)?;
    let Some(hidden) = hidden else {
        return Ok(());
    };
    let part = 0..open.part.rows as usize;
    if decoder.rows() - first != part.len() {
        let what = "their commit says that they are of another number";
        return Err(damaged("raw rows", what));
    }
    deleted.note(first, std::slice::from_ref(&part), hidden);
    Ok(())
}

/// Which of the rows that were collected are hidden: ranges that ascend.
#[derive(Debug, Default)]
pub(crate) struct DeletedRows(Vec<Range<usize>>);

impl DeletedRows {
    /// Notes what is hidden of some parts of a block, or of open rows: ranges of its rows that ascend, the first of which is
    /// collected as row number `first`.
    pub(crate) fn note(&mut self, first: usize, parts: &[Range<usize>], hidden: &Positions) {
        let runs = hidden.runs();
        let mut runs = runs
            .map(|run| run.start as usize..run.end as usize)
            .peekable();
        let mut first = first;
        for part in parts {
            while let Some(run) = runs.peek().filter(|run| run.start < part.end) {
                let (start, end) = (run.start.max(part.start), run.end.min(part.end));
                if start < end {
                    let number = |row: usize| first + row - part.start;
                    self.0.push(number(start)..number(end));
                }
                if run.end > part.end {
                    break;
                }
                runs.next();
            }
            first += part.len();
        }
    }

    /// The ranges between them, of so many rows.
    pub(crate) fn kept(&self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        let ends = self.0.iter().map(|run| run.end);
        let starts = self.0.iter().map(|run| run.start);
        std::iter::once(0)
            .chain(ends)
            .zip(starts.chain([rows]))
            .map(|(start, end)| start..end)
    }

    /// Which of so many rows are not hidden.
    pub(crate) fn left(&self, rows: usize) -> BooleanArray {
        let mut left = vec![u8::MAX; rows.div_ceil(8)];
        for run in self.0.iter().filter(|run| !run.is_empty()) {
            let (first, last) = (run.start / 8, (run.end - 1) / 8);
            let (head, tail) = (
                u8::MAX << (run.start % 8),
                u8::MAX >> (7 - (run.end - 1) % 8),
            );
            if first == last {
                left[first] &= !(head & tail);
                continue;
            }
            left[first] &= !head;
            left[first + 1..last].fill(0);
            left[last] &= !tail;
        }
        BooleanArray::new(BooleanBuffer::new(left.into(), 0, rows), None)
    }

    /// Whether no row is hidden.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows that are not hidden.
    pub(crate) fn taken_out_of(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.0.is_empty() {
            return Ok(batch);
        }
        filter_record_batch(&batch, &self.left(batch.num_rows())).map_err(|e| {
            Error::with_source(ErrorKind::Limit, format!("taking out deleted rows: {e}"), e)
        })
    }

    /// The keys of the rows that are not hidden.
    pub(crate) fn taken_out_of_keys(&self, keys: ScalarBuffer<i64>) -> ScalarBuffer<i64> {
        if self.0.is_empty() {
            return keys;
        }
        let mut left = Vec::with_capacity(keys.len());
        self.kept(keys.len())
            .for_each(|range| left.extend_from_slice(&keys[range]));
        left.into()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, RecordBatchOptions};
    use arrow_schema::Schema;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn what_is_hidden_of_some_parts_agrees_with_sets(
            blocks in vec((btree_set(0_u32..60, 1..58), btree_set(0_usize..60, 0..12)), 1..4),
        ) {
            let (mut deleted, mut values, mut expected) = (DeletedRows::default(), Vec::new(), Vec::new());
            for (hidden, cuts) in &blocks {
                let cuts: Vec<usize> = cuts.iter().copied().collect();
                let parts: Vec<Range<usize>> = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect();
                deleted.note(values.len(), &parts, &Positions::of_rows(hidden.iter().copied()));
                for row in parts.into_iter().flatten() {
                    let row = u32::try_from(row).unwrap();
                    values.push(i64::from(row));
                    if !hidden.contains(&row) {
                        expected.push(i64::from(row));
                    }
                }
            }
            let keys = deleted.taken_out_of_keys(values.clone().into());
            prop_assert_eq!(&keys[..], &expected[..]);
            let rows = values.len();
            let column: ArrayRef = Arc::new(Int64Array::from(values));
            let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
            let left = deleted.taken_out_of(batch).unwrap();
            prop_assert_eq!(&left.column(0).as_primitive::<Int64Type>().values()[..], &expected[..]);
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let counted = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
            prop_assert_eq!(deleted.taken_out_of(counted.unwrap()).unwrap().num_rows(), expected.len());
        }
    }
}
