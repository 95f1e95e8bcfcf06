//! Latest rows first: windows of time from the end, each read forwards and turned round.
//!
//! Invariants: windows lie side by side, so the whole is in falling order; rows of equal times come in reverse order of
//! arrival; a window is halved until the index counts few rows in it, so that memory stays bounded unless very many rows
//! share one time.

use crate::error::from_arrow;
use crate::metrics::Taken;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use std::collections::VecDeque;
use thalweg_table::{AggregateRequest, KeyRange, Result, ScanRequest, TableView};

/// Rows that the first window is made for when there is no limit.
const FIRST_WINDOW_ROWS: u64 = 4 * 1024;
/// Windows are made for no more than this.
const MAX_WINDOW_ROWS: u64 = 256 * 1024;
/// A window of so many times the rows that it was made for is halved.
const TOO_MANY: u64 = 4;

/// A scan in falling order.
pub(crate) struct Reversed {
    view: TableView,
    request: ScanRequest,
    /// The keys that were not read yet.
    left: KeyRange,
    left_rows: usize,
    window_rows: u64,
    /// Batches of the current window, the last first.
    ready: VecDeque<RecordBatch>,
    taken: Taken,
}

impl Reversed {
    pub(crate) fn new(view: TableView, request: ScanRequest, taken: Taken) -> Self {
        let left = view
            .key_range()
            .map_or(KeyRange::EMPTY, |range| range.intersect(request.keys));
        let left_rows = request.limit.unwrap_or(usize::MAX);
        let request_rows = request.limit.map_or(FIRST_WINDOW_ROWS, |rows| rows as u64);
        let request = ScanRequest {
            limit: None,
            ..request
        };
        Self {
            view,
            request,
            left,
            left_rows,
            window_rows: request_rows.clamp(1, MAX_WINDOW_ROWS),
            ready: VecDeque::new(),
            taken,
        }
    }

    /// The next rows; none after an error.
    pub(crate) fn next(&mut self) -> Option<Result<RecordBatch>> {
        let next = self.next_batch();
        if next.is_err() {
            self.left = KeyRange::EMPTY;
            self.ready.clear();
        }
        next.transpose()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.left_rows > 0 {
            if let Some(batch) = self.ready.pop_front() {
                let rows = batch.num_rows().min(self.left_rows);
                self.left_rows -= rows;
                return turned(&batch.slice(batch.num_rows() - rows, rows)).map(Some);
            }
            if self.left.is_empty() {
                break;
            }
            self.read_window()?;
        }
        Ok(None)
    }

    /// Reads the last window of what is left.
    fn read_window(&mut self) -> Result<()> {
        let mut window = last_part(
            self.left,
            self.view.key_range(),
            self.view.row_count(),
            self.window_rows,
        );
        while window.first < window.last && self.rows_in(window)? > TOO_MANY * self.window_rows {
            window.first = middle(window);
        }
        let scan = self.view.scan(&ScanRequest {
            keys: window,
            ..self.request.clone()
        })?;
        self.taken.add(scan.metrics());
        let batches = scan.collect::<Result<Vec<_>>>()?;
        self.ready.extend(batches.into_iter().rev());
        self.left = before(self.left, window);
        let found: usize = self.ready.iter().map(RecordBatch::num_rows).sum();
        let wanted = self.left_rows.saturating_sub(found) as u64;
        let sparse = found as u64 * 2 < self.window_rows;
        // Where rows are sparse only a longer window finds any.
        let most = if sparse { MAX_WINDOW_ROWS } else { wanted };
        self.window_rows = (self.window_rows * 4).min(most).clamp(1, MAX_WINDOW_ROWS);
        Ok(())
    }

    /// How many rows a window has, mostly from the index.
    fn rows_in(&self, window: KeyRange) -> Result<u64> {
        let request = AggregateRequest {
            keys: window,
            ..AggregateRequest::default()
        };
        let counted = self.view.aggregate(&request)?;
        Ok(counted.groups.iter().map(|group| group.rows).sum())
    }
}

/// The end of `left` that holds about `rows` rows if the table's rows are spread evenly.
fn last_part(left: KeyRange, table: Option<KeyRange>, table_rows: u64, rows: u64) -> KeyRange {
    let Some(table) = table.filter(|_| table_rows > rows) else {
        return left;
    };
    let span = i128::from(table.last) - i128::from(table.first) + 1;
    let width = (span * i128::from(rows) / i128::from(table_rows)).max(1);
    let first = (i128::from(left.last) - width + 1).max(i128::from(left.first));
    KeyRange {
        first: i64::try_from(first).unwrap_or(left.first),
        last: left.last,
    }
}

/// Where the later half of a window of at least two keys begins.
fn middle(window: KeyRange) -> i64 {
    let middle = (i128::from(window.first) + i128::from(window.last)).div_euclid(2) + 1;
    i64::try_from(middle).unwrap_or(window.last)
}

/// The part of `left` before `window`, its end.
fn before(left: KeyRange, window: KeyRange) -> KeyRange {
    match window.first.checked_sub(1) {
        Some(last) if last >= left.first => KeyRange {
            first: left.first,
            last,
        },
        _ => KeyRange::EMPTY,
    }
}

fn turned(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    let indices = UInt32Array::from_iter_values((0..rows).rev());
    take_record_batch(batch, &indices).map_err(from_arrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64) -> KeyRange {
        KeyRange { first, last }
    }

    #[test]
    fn windows_lie_side_by_side() {
        let table = range(0, 999);
        let window = last_part(table, Some(table), 10_000, 1_000);
        assert_eq!(window, range(900, 999));
        assert_eq!(before(table, window), range(0, 899));
        assert_eq!(
            last_part(range(0, 5), Some(table), 10_000, 1_000),
            range(0, 5)
        );
        assert!(before(range(0, 5), range(0, 5)).is_empty());
        assert_eq!(middle(range(0, 1)), 1);
        assert_eq!(middle(range(-3, -2)), -2);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let window = last_part(KeyRange::ALL, Some(KeyRange::ALL), u64::MAX, 1);
        assert_eq!(window.last, i64::MAX);
        assert!(window.first <= window.last);
        assert!(before(KeyRange::ALL, KeyRange::ALL).is_empty());
        assert_eq!(middle(KeyRange::ALL), 0);
    }
}
