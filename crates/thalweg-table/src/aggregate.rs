//! Aggregates over ranges and buckets of the order key: from summaries where blocks lie inside one bucket, from rows
//! elsewhere. The same for every layout with an order key.

use crate::range::KeyRange;
use crate::scan::ScanMetrics;
use std::sync::Arc;
use thalweg_kernel::summary::ColumnSummary;

/// Which rows are aggregated, and how they are grouped.
#[derive(Clone, Debug, Default)]
pub struct AggregateRequest {
    /// Exactly the rows with these order keys.
    pub keys: KeyRange,
    /// Groups of equal width along the key; `None` makes one group of all rows.
    pub bucket: Option<Bucket>,
    /// Places in the schema of the columns to aggregate; none at all just counts rows. A column of a type that has no
    /// sum (strings, binary, decimals) gets counts only.
    pub columns: Vec<usize>,
}

/// Groups along the order key: group `n` holds the keys from `origin + n * width` up to the next group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Keys of one group; positive.
    pub width: i64,
    /// Where one of the groups begins.
    pub origin: i64,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct AggregateResult {
    /// Groups with at least one row, by ascending key. Without buckets exactly one, even of no rows.
    pub groups: Vec<Group>,
    /// What it took.
    pub metrics: Arc<ScanMetrics>,
}

/// One group of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The first key of the bucket, or of the requested range without buckets. It may lie before the range.
    pub bucket_start: i64,
    /// Its rows.
    pub rows: u64,
    /// Count, nulls, NaNs, minimum, maximum, sum and squared distances of each requested column, in order of request.
    pub columns: Vec<ColumnSummary>,
}
