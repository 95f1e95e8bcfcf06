//! The stream layout: timestamped events, ordered by application time (docs/format/stream.md).
//!
//! Invariants: the order key of a row is its time, in the unit of the column; without a time column all keys are equal, and rows lie
//! as they arrived. The time column is an integer, date or timestamp and never null. Nothing crosses a regular split. Late rows are
//! blocks and open rows like others: what a reader sees is sorted by key, and by arrival where keys are equal, whatever order the
//! rows came in.

use crate::definition::columns::{Column, Columns};
use crate::error::{invalid, schema};
use crate::json;
use crate::layout::{Arrangement, DEFAULT_BLOCK_ROWS, Layout, LayoutOptions, check_block_rows};
use crate::schema::shown_type;
use crate::time::{Split, order_keys, orders_rows};
use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thalweg_kernel::Result;

const NAME: &str = "stream";

/// The layout.
#[derive(Debug)]
pub(crate) struct Stream;

/// How the rows of one table are ordered.
#[derive(Debug)]
struct ByTime {
    /// The place and the id of the time column.
    time: Option<(usize, u32)>,
    /// The place alone, as a list.
    key_columns: Vec<usize>,
    split: Option<Split>,
    block_rows: u32,
}

impl Layout for Stream {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u8 {
        1
    }

    fn option_names(&self) -> &'static [&'static str] {
        &["time", "split", "block_rows"]
    }

    fn arrange(
        &self,
        options: &LayoutOptions<'_>,
        columns: &mut Columns,
    ) -> Result<Arc<dyn Arrangement>> {
        let block_rows = options.block_rows()?;
        let time = options.get("time").map(|name| columns.position_named(name));
        let time = time.transpose()?;
        if let Some(time) = time {
            let column = &columns.as_slice()[time];
            if !orders_rows(&column.data_type) {
                return Err(schema(format!(
                    "the time column \"{}\" is of type {}; it must be an integer, date or timestamp",
                    column.name,
                    shown_type(&column.data_type)
                )));
            }
            columns.refuse_nulls(time);
        }
        let split = options.get("split").map(|split| {
            let time =
                time.ok_or_else(|| invalid("split needs a time column: give time as well"))?;
            Split::parse(split, &columns.as_slice()[time].data_type)
        });
        let time = time.map(|place| (place, columns.as_slice()[place].id));
        Ok(Arc::new(ByTime::new(time, split.transpose()?, block_rows)))
    }

    fn read(&self, stored: &str, columns: &Columns) -> Result<Arc<dyn Arrangement>> {
        let Stored {
            time,
            split,
            block_rows,
            ..
        } = json::read(stored)?;
        check_block_rows(block_rows)?;
        let time = time.map(|id| {
            let place = columns.position(id);
            let place = place.ok_or_else(|| schema("the time column does not exist"))?;
            let column = &columns.as_slice()[place];
            if column.nullable || !orders_rows(&column.data_type) {
                return Err(schema("the time column cannot order rows"));
            }
            Ok((place, id))
        });
        let time = time.transpose()?;
        if split.is_some() && time.is_none() {
            return Err(schema("a split without a time column"));
        }
        let split = split.map(|split| Split::new(split.every, split.origin));
        Ok(Arc::new(ByTime::new(time, split.transpose()?, block_rows)))
    }
}

impl ByTime {
    fn new(time: Option<(usize, u32)>, split: Option<Split>, block_rows: u32) -> Self {
        Self {
            time,
            key_columns: time.iter().map(|(place, _)| *place).collect(),
            split,
            block_rows,
        }
    }
}

impl Arrangement for ByTime {
    fn layout(&self) -> &dyn Layout {
        &Stream
    }

    fn stored(&self) -> String {
        let split = self.split.map(|split| StoredSplit {
            every: split.every(),
            origin: split.origin(),
        });
        json::write(&Stored {
            kind: NAME.to_owned(),
            time: self.time.map(|(_, id)| id),
            split,
            block_rows: self.block_rows,
        })
    }

    fn options(&self, columns: &Columns) -> Vec<(&'static str, String)> {
        let mut options = Vec::new();
        if let Some((place, _)) = self.time {
            let Column {
                name, data_type, ..
            } = &columns.as_slice()[place];
            options.push(("time", name.clone()));
            options.extend(self.split.map(|split| ("split", split.to_text(data_type))));
        }
        if self.block_rows != DEFAULT_BLOCK_ROWS {
            options.push(("block_rows", self.block_rows.to_string()));
        }
        options
    }

    fn block_rows(&self) -> u32 {
        self.block_rows
    }

    fn with_block_rows(&self, block_rows: u32) -> Option<Arc<dyn Arrangement>> {
        let time = self.time;
        Some(Arc::new(Self::new(time, self.split, block_rows)))
    }

    fn key_columns(&self) -> &[usize] {
        &self.key_columns
    }

    fn keys(&self, columns: &[ArrayRef], rows: usize) -> Result<ScalarBuffer<i64>> {
        match columns.first() {
            Some(time) => order_keys(time),
            None => Ok(ScalarBuffer::from(vec![0; rows])),
        }
    }

    fn order(&self) -> Option<usize> {
        self.time.map(|(place, _)| place)
    }

    fn split(&self) -> Option<Split> {
        self.split
    }

    fn role(&self, place: usize) -> Option<&'static str> {
        (self.order() == Some(place)).then_some("the time column")
    }
}

/// The stored form (docs/format/definition.md).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    kind: String,
    time: Option<u32>,
    split: Option<StoredSplit>,
    block_rows: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSplit {
    every: i64,
    origin: i64,
}
