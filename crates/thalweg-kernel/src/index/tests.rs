//! The tree against a sorted list of blocks, and its pages against damage.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of tests are small"
)]

mod bytes;
mod flags;
mod model;
mod runs;
mod texts;
mod uses;
mod walks;

use super::*;
use crate::error::{Error, Result};
use crate::ids::{DatabaseId, TableId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const DATABASE: DatabaseId = DatabaseId([7; 16]);
pub(super) const TABLE: TableId = TableId(3);
pub(super) const FILE: FileId = FileId(9);

/// A disk of one file that holds nothing but pages.
#[derive(Default)]
pub(super) struct Disk {
    bytes: RefCell<Vec<u8>>,
    pub(super) written: RefCell<BTreeMap<u64, Address>>,
    pub(super) loads: Cell<u64>,
}

impl Disk {
    pub(super) fn write(&self, page: UnsealedPage) -> Result<Address> {
        let mut bytes = self.bytes.borrow_mut();
        let offset = bytes.len() as u64;
        let length = page.len_bytes();
        let address = page.seal_into(DATABASE, FILE, offset, &mut bytes);
        assert_eq!(address.bytes as usize, length);
        self.written.borrow_mut().insert(offset, address);
        Ok(address)
    }

    /// Writes the dirty pages of a tree.
    pub(super) fn checkpoint(&self, tree: &Tree) -> Option<Entry> {
        let written = tree.write_dirty(&mut |page| self.write(page)).unwrap();
        let root = written.root().cloned();
        written.publish(self);
        root
    }
}

impl PageLoader for Disk {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        self.loads.set(self.loads.get() + 1);
        let (start, length) = (entry.address.offset as usize, entry.address.bytes as usize);
        let bytes = self.bytes.borrow();
        let bytes = bytes
            .get(start..start + length)
            .ok_or_else(|| Error::corruption(entry.address, "no such page"))?;
        Page::decode(DATABASE, table, entry, bytes).map(Arc::new)
    }
}

/// A column of strings, with a null.
fn strings(value: i64) -> (ColumnSummary, Option<ByteBounds>) {
    let name = |number: i64| match number % 5 {
        0 => String::new(),
        1 => "\u{10FFFF}".to_owned(),
        number => format!("sensor {number} in a room with a name that is cut"),
    };
    let values = [name(value), name(value / 5)];
    let bounds = ByteBounds::of_values(values.iter().map(String::as_bytes));
    let bytes = values.iter().map(String::len).sum::<usize>() as u64;
    (ColumnSummary::of_byte_counts(902, 3, 1, bytes), bounds)
}

/// Three rows with values from `value` on: an integer column, sometimes a float column, a counted one and others.
pub(super) fn block(key_min: i64, key_span: u32, value: i64, columns: usize) -> Entry {
    let ints = [value, value + 1, value + 5];
    let floats = ints.map(|value| value as f64 / 8.0);
    let large = ints.map(|value| i128::from(value) << 40);
    let all = vec![
        ColumnSummary::of_values(1, &ints, None),
        ColumnSummary::of_values(4, &floats, None),
        ColumnSummary::of_counts(5, 3, 1),
        ColumnSummary::of_values(6, &ints.map(i64::unsigned_abs), None),
        ColumnSummary::of_values(900, &[f64::NAN, 1.0, f64::INFINITY], None),
        ColumnSummary::of_values(901, &large.map(|large| large << (value & 63)), None),
    ];
    let all = all.into_iter().map(|column| (column, None));
    let columns: SummaryList = all.chain([strings(value)]).take(columns).collect();
    Entry {
        sorted: value % 2 == 0,
        rows: 3,
        blocks: 1,
        block_bytes: 77,
        key_min,
        key_max: key_min.saturating_add(i64::from(key_span)),
        address: Address {
            file: FileId(2),
            offset: value.unsigned_abs() * 77,
            bytes: 77,
            head_bytes: 70,
            head_crc: 5,
        },
        columns: columns.into(),
        ..Entry::unknown()
    }
}
