//! The unique keys of rows, hashed, and tables of them.
//!
//! Invariants: rows with equal keys have equal hashes; whether keys are equal is decided by their values. Within one call -0 and every
//! NaN are written as one value each, so that equal is what compares as equal. A row with a null in its key has none.

use crate::conform::shown_value;
use crate::definition::TableDefinition;
use crate::nans::with_one_nan;
use crate::unique::UniqueKey;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_schema::{DataType, SortOptions};
use hashbrown::HashTable;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The keys of some rows.
pub(crate) struct Keys {
    columns: Vec<ArrayRef>,
    hashes: Vec<u64>,
    nulls: Option<NullBuffer>,
}

impl Keys {
    /// Of rows whose columns are those of the key, in its order. Hashes of one seed can be compared.
    pub(crate) fn of(rows: &RecordBatch, seed: u64) -> Result<Self> {
        let rows = with_one_nan(rows.clone());
        let columns: Vec<ArrayRef> = rows.columns().iter().map(with_one_zero).collect();
        let mut hashes = vec![seed; rows.num_rows()];
        for column in &columns {
            add_hashes(column, &mut hashes)?;
        }
        let nulls = columns
            .iter()
            .fold(None, |nulls: Option<NullBuffer>, column| {
                NullBuffer::union(nulls.as_ref(), column.nulls())
            });
        Ok(Self {
            columns,
            hashes,
            nulls,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    fn has_key(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Whether rows with equal fingerprints have equal keys.
    pub(crate) fn fingerprints_are_exact(&self) -> bool {
        let [column] = &self.columns[..] else {
            return false;
        };
        { column.data_type().primitive_width() }.is_some_and(|width_bytes| width_bytes <= 8)
    }

    /// The fingerprints of the keys of all rows that have one, by row: of a single column of up to 8 bytes its value, else the hash.
    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = (usize, u64)> {
        let values = self
            .fingerprints_are_exact()
            .then(|| values_of(&self.columns[0]));
        let values = values.unwrap_or_else(|| Cow::Borrowed(&self.hashes));
        let rows = (0..self.len()).filter(|row| self.has_key(*row));
        rows.map(move |row| (row, values[row]))
    }

    /// The key of a row, for messages.
    pub(crate) fn shown(
        &self,
        row: usize,
        definition: &TableDefinition,
        unique: &UniqueKey,
    ) -> String {
        let columns = self.columns.iter().zip(unique.columns());
        let parts = columns.map(|(column, id)| {
            let name = definition.column(*id).map_or("?", |column| &column.name);
            format!("{name} = {}", shown_value(column, row))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Compares the keys of rows of two.
    fn equality(&self, other: &Self) -> Result<Equality> {
        let options = SortOptions::default();
        let columns = self.columns.iter().zip(&other.columns);
        let columns = columns.map(|(own, other)| make_comparator(own, other, options));
        let columns = columns.collect::<Result<_, _>>().map_err(|e| {
            Error::with_source(ErrorKind::Invalid, format!("comparing keys: {e}"), e)
        })?;
        Ok(Equality(columns))
    }
}

struct Equality(Vec<DynComparator>);

impl Equality {
    fn is_equal(&self, row: usize, other: usize) -> bool {
        self.0.iter().all(|compare| compare(row, other).is_eq())
    }
}

/// A table of the rows of [`Keys`] by their keys.
pub(crate) struct KeyTable {
    rows: HashTable<usize>,
    /// Whether each row is in it.
    has: Vec<bool>,
}

/// A row with the key of another one before it.
pub(crate) struct Repeated {
    pub(crate) earlier: usize,
    pub(crate) later: usize,
}

impl KeyTable {
    /// Of all rows that `is_wanted` and have a key. Of those with one key `keep` says whether the later one takes the place of the
    /// earlier one.
    pub(crate) fn of(keys: &Keys, mut keep: impl FnMut(Repeated) -> Result<bool>) -> Result<Self> {
        let equality = keys.equality(keys)?;
        let mut rows = HashTable::with_capacity(keys.len());
        for row in (0..keys.len()).filter(|row| keys.has_key(*row)) {
            let hash = keys.hashes[row];
            let is_equal =
                |other: &usize| keys.hashes[*other] == hash && equality.is_equal(*other, row);
            let entry = rows.entry(hash, is_equal, |other| keys.hashes[*other]);
            match entry {
                hashbrown::hash_table::Entry::Vacant(place) => _ = place.insert(row),
                hashbrown::hash_table::Entry::Occupied(mut known) => {
                    let repeated = Repeated {
                        earlier: *known.get(),
                        later: row,
                    };
                    if keep(repeated)? {
                        *known.get_mut() = row;
                    }
                }
            }
        }
        let mut has = vec![false; keys.len()];
        rows.iter().for_each(|row: &usize| has[*row] = true);
        Ok(Self { rows, has })
    }

    /// Whether a row is in it.
    pub(crate) fn has(&self, row: usize) -> bool {
        self.has[row]
    }

    /// Calls `found` with the row of this table and the row of `others` for each key that both have.
    pub(crate) fn find(
        &self,
        keys: &Keys,
        others: &Keys,
        mut found: impl FnMut(usize, usize),
    ) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let equality = keys.equality(others)?;
        for other in (0..others.len()).filter(|row| others.has_key(*row)) {
            let hash = others.hashes[other];
            let is_equal =
                |row: &usize| keys.hashes[*row] == hash && equality.is_equal(*row, other);
            if let Some(row) = self.rows.find(hash, is_equal) {
                found(*row, other);
            }
        }
        Ok(())
    }
}

/// The bits of values of up to 8 bytes.
fn values_of(column: &ArrayRef) -> Cow<'static, [u64]> {
    let width_bytes = column.data_type().primitive_width().unwrap_or(8);
    let data = column.to_data();
    let values = &data.buffers()[0].as_slice()[data.offset() * width_bytes..];
    let values = values.chunks_exact(width_bytes).take(column.len());
    let bits = |value: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..width_bytes].copy_from_slice(value);
        u64::from_le_bytes(bytes)
    };
    values.map(bits).collect()
}

/// The values with -0 as 0.
fn with_one_zero(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => Arc::new(
            column
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(|v| v + 0.0),
        ),
        DataType::Float32 => Arc::new(
            column
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|v| v + 0.0),
        ),
        _ => Arc::clone(column),
    }
}

/// Takes the values of a column into the hashes of their rows.
fn add_hashes(column: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean().values();
            for (hash, value) in hashes.iter_mut().zip(values) {
                *hash = xxh3_64_with_seed(&[u8::from(value)], *hash);
            }
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            for (row, hash) in hashes.iter_mut().enumerate() {
                *hash = xxh3_64_with_seed(values.value(row).as_bytes(), *hash);
            }
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            for (row, hash) in hashes.iter_mut().enumerate() {
                *hash = xxh3_64_with_seed(values.value(row), *hash);
            }
        }
        other => {
            let width_bytes = other.primitive_width().ok_or_else(|| {
                Error::new(
                    ErrorKind::Invalid,
                    format!("values of {other} have no hash"),
                )
            })?;
            let data = column.to_data();
            let values = &data.buffers()[0].as_slice()[data.offset() * width_bytes..];
            for (hash, value) in hashes.iter_mut().zip(values.chunks_exact(width_bytes)) {
                *hash = xxh3_64_with_seed(value, *hash);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, StringArray,
    };

    fn keys(columns: Vec<(&str, ArrayRef)>) -> Keys {
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        Keys::of(&rows, 7).unwrap()
    }

    fn repeated(keys: &Keys) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        let table = KeyTable::of(keys, |Repeated { earlier, later }| {
            all.push((earlier, later));
            Ok(true)
        });
        table.unwrap();
        all
    }

    #[test]
    fn equal_is_what_compares_as_equal() {
        let nan = f64::from_bits(f64::NAN.to_bits() ^ 1);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![
            0.0,
            -0.0,
            f64::NAN,
            nan,
            -f64::NAN,
            1.0,
        ]));
        assert_eq!(
            repeated(&keys(vec![("f", floats)])),
            [(0, 1), (2, 3), (3, 4)]
        );
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![-0.0, 2.0, 0.0, 2.0]));
        assert_eq!(repeated(&keys(vec![("f", floats)])), [(0, 2), (1, 3)]);
    }

    #[test]
    fn rows_with_a_null_are_like_no_other() {
        let ints: ArrayRef = Arc::new(Int32Array::from(vec![
            Some(1),
            None,
            Some(1),
            None,
            Some(1),
        ]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a"),
            Some("a"),
            None,
            None,
            Some("a"),
        ]));
        assert_eq!(repeated(&keys(vec![("i", ints), ("t", texts)])), [(0, 4)]);
    }

    #[test]
    fn columns_are_kept_apart() {
        let first: ArrayRef = Arc::new(StringArray::from(vec!["ab", "a", "ab", ""]));
        let second: ArrayRef = Arc::new(BinaryArray::from(vec![&b"c"[..], b"bc", b"c", b"abc"]));
        let third: ArrayRef = Arc::new(BooleanArray::from(vec![true, true, true, true]));
        assert_eq!(
            repeated(&keys(vec![("a", first), ("b", second), ("c", third)])),
            [(0, 2)]
        );
    }

    #[test]
    fn keys_of_a_slice_are_those_of_its_rows() {
        let whole = RecordBatch::try_from_iter([
            (
                "i",
                Arc::new(Int32Array::from(vec![9, 8, 7, 8])) as ArrayRef,
            ),
            (
                "b",
                Arc::new(BooleanArray::from(vec![true, false, true, false])) as ArrayRef,
            ),
        ]);
        let whole = whole.unwrap();
        let (all, part) = (
            Keys::of(&whole, 7).unwrap(),
            Keys::of(&whole.slice(1, 3), 7).unwrap(),
        );
        let table = KeyTable::of(&part, |_| Ok(false)).unwrap();
        let mut found = Vec::new();
        table
            .find(&part, &all, |row, other| found.push((row, other)))
            .unwrap();
        assert_eq!(found, [(0, 1), (1, 2), (0, 3)]);
    }
}
