//! The interface of a layout: a way to order the rows of a table into blocks, and to find them again.
//!
//! Invariants: the order key of a row follows from its values alone, and never changes. Rows lie in blocks, are merged and scanned by
//! key and, where keys are equal, by arrival, whatever the layout. So a layout defines what keys are, where blocks end, and which
//! questions they answer; how rows are taken in, read, deleted and rewritten is the same for all.

use crate::definition::columns::Columns;
use crate::error::invalid;
use crate::range::KeyRange;
use crate::time::Split;
use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use thalweg_kernel::Result;
use thalweg_kernel::summary::ValueRange;

/// Rows of a full block, where an arrangement has no other default.
pub const DEFAULT_BLOCK_ROWS: u32 = 4_096;
/// The accepted numbers of rows of a full block.
pub const BLOCK_ROWS_RANGE: RangeInclusive<u32> = 64..=1 << 20;

/// A way to order rows into blocks. Tables choose one by its name.
pub trait Layout: Debug + Send + Sync {
    /// The name that users give it and that stored definitions have.
    fn name(&self) -> &'static str;

    /// The number that its blocks have; not 0.
    fn number(&self) -> u8;

    /// The names of its options, in the order that messages list them.
    fn option_names(&self) -> &'static [&'static str];

    /// The arrangement of a new table; it may refuse nulls in columns that it needs.
    ///
    /// # Errors
    /// For options that make no sense, and columns that do not suit them.
    fn arrange(
        &self,
        options: &LayoutOptions<'_>,
        columns: &mut Columns,
    ) -> Result<Arc<dyn Arrangement>>;

    /// The arrangement that [`Arrangement::stored`] was written of.
    ///
    /// # Errors
    /// `Unsupported` for what a newer version has written, any other for what no version writes.
    fn read(&self, stored: &str, columns: &Columns) -> Result<Arc<dyn Arrangement>>;
}

/// A layout with what one table has chosen.
pub trait Arrangement: Debug + Send + Sync {
    /// Its layout.
    fn layout(&self) -> &dyn Layout;

    /// The layout part of the stored definition: a JSON object with a field `kind`, the name of the layout.
    fn stored(&self) -> String;

    /// The options that make the same arrangement, without those at their defaults.
    fn options(&self, columns: &Columns) -> Vec<(&'static str, String)>;

    /// Rows of a full block.
    fn block_rows(&self) -> u32;

    /// The same arrangement with so many rows in a full block from then on; `None` where all blocks must be of one size.
    fn with_block_rows(&self, block_rows: u32) -> Option<Arc<dyn Arrangement>>;

    /// The places of the columns that keys are computed from, each once; without any, all keys are equal and rows lie as they
    /// arrived.
    fn key_columns(&self) -> &[usize];

    /// The keys of rows, one for each, given their key columns in the order of [`Self::key_columns`].
    ///
    /// # Errors
    /// When these are of other types than those of the table.
    fn keys(&self, columns: &[ArrayRef], rows: usize) -> Result<ScalarBuffer<i64>>;

    /// The place of the column whose values are the keys, so that rows come in its order, and a range of its values is one of keys.
    fn order(&self) -> Option<usize> {
        None
    }

    /// Cuts of the keys that blocks and fragments do not reach across.
    fn split(&self) -> Option<Split> {
        None
    }

    /// Keys that all rows have whose column at `place` has a value of `values`; `None` where these values do not limit the keys.
    fn keys_of_values(&self, place: usize, values: &ValueRange) -> Option<KeyRange> {
        let _ = (place, values);
        None
    }

    /// The users' name of a column that the arrangement needs, as "the time column".
    fn role(&self, place: usize) -> Option<&'static str> {
        let _ = place;
        None
    }
}

/// The options that a new table was given for its layout.
#[derive(Clone, Copy, Debug)]
pub struct LayoutOptions<'a> {
    given: &'a [(String, String)],
}

impl<'a> LayoutOptions<'a> {
    pub(crate) fn new(given: &'a [(String, String)]) -> Self {
        Self { given }
    }

    /// The value of an option, if it was given.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.given.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Rows of a full block, from the option `block_rows`.
    ///
    /// # Errors
    /// `Invalid` for what is no number, or out of [`BLOCK_ROWS_RANGE`].
    pub fn block_rows(&self) -> Result<u32> {
        let Some(value) = self.get("block_rows") else {
            return Ok(DEFAULT_BLOCK_ROWS);
        };
        let rows = value.replace('_', "").parse();
        let rows = rows.map_err(|_| invalid(format!("block_rows is \"{value}\", not a number")))?;
        check_block_rows(rows)?;
        Ok(rows)
    }
}

/// # Errors
/// `Invalid` for rows of a full block that are out of [`BLOCK_ROWS_RANGE`].
pub fn check_block_rows(block_rows: u32) -> Result<()> {
    if BLOCK_ROWS_RANGE.contains(&block_rows) {
        return Ok(());
    }
    let (least, most) = (BLOCK_ROWS_RANGE.start(), BLOCK_ROWS_RANGE.end());
    Err(invalid(format!(
        "block_rows is {block_rows}; it must lie in {least} to {most}"
    )))
}
