//! The errors: two small kinds, one per direction.

use thiserror::Error;

/// The input of an encoder breaks its contract. Nothing was encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// More rows than a chunk may hold.
    #[error("a chunk holds at most {limit_rows} rows, not {rows}")]
    TooManyRows {
        /// Rows asked for.
        rows: usize,
        /// The limit, [`crate::MAX_CHUNK_ROWS`].
        limit_rows: usize,
    },
    /// The encoded chunk would pass 4 GiB, the reach of a page end.
    #[error("the chunk's bytes pass the limit of {limit_bytes}")]
    TooManyBytes {
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// Offsets of variable-length values fall, start below zero or reach beyond the data.
    #[error("offset {index} of variable-length values is out of order or beyond the data")]
    BadOffsets {
        /// Index of the first bad offset.
        index: usize,
    },
    /// The pages asked for do not cover the rows, or one of them has no row or more than [`crate::MAX_PAGE_ROWS`].
    #[error("the pages do not fit {rows} rows, each with 1 to {limit_rows}")]
    BadPages {
        /// Rows of the chunk.
        rows: usize,
        /// The most rows of a page, [`crate::MAX_PAGE_ROWS`].
        limit_rows: usize,
    },
    /// A bitmap is shorter than its row count requires.
    #[error("a bitmap of {bytes} bytes cannot hold {rows} rows")]
    ShortBitmap {
        /// Bytes given.
        bytes: usize,
        /// Rows asked for.
        rows: usize,
    },
}

/// The bytes of a chunk are not what an encoder writes. Whoever read them decides whether that is
/// damage; the output may hold part of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the encoded chunk is damaged: {reason}")]
pub struct DecodeError {
    reason: &'static str,
}

impl DecodeError {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self { reason }
    }

    /// A description of what is wrong, for a log line.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

/// `Ok` when `condition` holds, else a [`DecodeError`] with `reason`.
pub(crate) fn ensure(condition: bool, reason: &'static str) -> Result<(), DecodeError> {
    if condition {
        Ok(())
    } else {
        Err(DecodeError::new(reason))
    }
}
