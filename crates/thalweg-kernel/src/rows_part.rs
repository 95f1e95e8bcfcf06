//! Rows of one table as a commit brings them, and as they lie among open rows.

use crate::ids::TableId;
use bytes::Bytes;

/// A few rows of one table, raw.
#[derive(Clone, Debug)]
pub struct RowsPart {
    /// The table.
    pub table: TableId,
    /// The version of the definition that `payload` was written by.
    pub definition_version: u32,
    /// How many.
    pub rows: u32,
    /// Smallest and largest order key.
    pub key_min: i64,
    /// See `key_min`.
    pub key_max: i64,
    /// The rows; the layer above knows how to read them.
    pub payload: Bytes,
}
