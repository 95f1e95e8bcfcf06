//! A layout that only tests have: rows in the order of a hash of one column. Equal values lie together, and a condition that wants
//! one value reads the blocks of its hash alone; no range of values is one of keys.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};
use thalweg_table::{Arrangement, Columns, KeyRange, Layout, LayoutOptions, ValueRange};

/// Few hashes, so that rows of different values have equal keys.
const HASHES: u64 = 1_000;

/// The layout.
#[derive(Debug)]
pub(crate) struct ByHash;

/// The order of one table.
#[derive(Debug)]
struct OfColumn {
    places: [usize; 1],
    id: u32,
    block_rows: u32,
}

impl Layout for ByHash {
    fn name(&self) -> &'static str {
        "by_hash"
    }

    fn number(&self) -> u8 {
        200
    }

    fn option_names(&self) -> &'static [&'static str] {
        &["column", "block_rows"]
    }

    fn arrange(
        &self,
        options: &LayoutOptions<'_>,
        columns: &mut Columns,
    ) -> Result<Arc<dyn Arrangement>> {
        let name = options.get("column").ok_or_else(|| {
            let message = "the layout \"by_hash\" needs the option \"column\"";
            Error::new(ErrorKind::Invalid, message)
        })?;
        let place = columns.position_named(name)?;
        let id = columns.as_slice()[place].id;
        Ok(Arc::new(OfColumn::new(id, options.block_rows()?, columns)?))
    }

    fn read(&self, stored: &str, columns: &Columns) -> Result<Arc<dyn Arrangement>> {
        let damaged = || Error::corruption("table definition", stored);
        let fields = stored.strip_prefix(r#"{"kind":"by_hash","column":"#);
        let fields = fields.and_then(|fields| fields.strip_suffix('}'));
        let (id, rows) = { fields.and_then(|fields| fields.split_once(r#","block_rows":"#)) }
            .ok_or_else(damaged)?;
        let id = id.parse().map_err(|_| damaged())?;
        let block_rows = rows.parse().map_err(|_| damaged())?;
        Ok(Arc::new(OfColumn::new(id, block_rows, columns)?))
    }
}

impl OfColumn {
    fn new(id: u32, block_rows: u32, columns: &Columns) -> Result<Self> {
        let refused = |what: &str| Error::new(ErrorKind::Schema, format!("by_hash: {what}"));
        let place = columns.position(id).ok_or_else(|| refused("no column"))?;
        let data_type = &columns.as_slice()[place].data_type;
        if !matches!(
            data_type,
            DataType::Int64 | DataType::UInt64 | DataType::Utf8
        ) {
            return Err(refused("the column is no number of 64 bits and no text"));
        }
        Ok(Self {
            places: [place],
            id,
            block_rows,
        })
    }
}

impl Arrangement for OfColumn {
    fn layout(&self) -> &dyn Layout {
        &ByHash
    }

    fn stored(&self) -> String {
        let (id, rows) = (self.id, self.block_rows);
        format!(r#"{{"kind":"by_hash","column":{id},"block_rows":{rows}}}"#)
    }

    fn options(&self, columns: &Columns) -> Vec<(&'static str, String)> {
        let name = &columns.as_slice()[self.places[0]].name;
        let block_rows = self.block_rows.to_string();
        vec![("column", name.clone()), ("block_rows", block_rows)]
    }

    fn with_block_rows(&self, _: u32) -> Option<Arc<dyn Arrangement>> {
        None
    }

    fn block_rows(&self) -> u32 {
        self.block_rows
    }

    fn key_columns(&self) -> &[usize] {
        &self.places
    }

    fn keys(&self, columns: &[ArrayRef], rows: usize) -> Result<ScalarBuffer<i64>> {
        let column = &columns[0];
        let hash = |row: usize| match column.data_type() {
            _ if column.is_null(row) => 0,
            DataType::Int64 => hash(&column.as_primitive::<Int64Type>().value(row).to_le_bytes()),
            DataType::UInt64 => hash(&column.as_primitive::<UInt64Type>().value(row).to_le_bytes()),
            _ => hash(column.as_string::<i32>().value(row).as_bytes()),
        };
        Ok((0..rows).map(hash).collect())
    }

    fn keys_of_values(&self, place: usize, values: &ValueRange) -> Option<KeyRange> {
        if place != self.places[0] {
            return None;
        }
        let key = match values {
            ValueRange::Int(Some(first), Some(last)) if first == last => hash(&first.to_le_bytes()),
            ValueRange::UInt(Some(first), Some(last)) if first == last => {
                hash(&first.to_le_bytes())
            }
            ValueRange::Bytes {
                first: Some(first),
                last: Some(last),
                is_open: false,
            } if first == last => hash(first),
            _ => return None,
        };
        Some(KeyRange {
            first: key,
            last: key,
        })
    }
}

/// FNV-1a, from 0 to below [`HASHES`].
pub(crate) fn hash(bytes: &[u8]) -> i64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325, step);
    // The last byte alone changes little of the upper half.
    ((hash ^ (hash >> 29)) % HASHES).cast_signed()
}
