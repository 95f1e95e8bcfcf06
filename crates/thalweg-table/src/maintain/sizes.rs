//! Sizes of blocks before they are encoded, by which neighbours are chosen that make one block together.
//!
//! Invariants: a size that is known is exact for the definition it was measured with, so that a group of blocks that fits is one
//! block. Only columns of strings are read, one block at a time, and only of blocks that may be packed.
//!
//! Rejected: packing what may not fit and looking at what becomes of it. It takes the memory of all rows, and leaves blocks
//! short that would have fitted with fewer others.

use crate::column::{MAX_RAW_BYTES, is_long, max_block_rows, raw_bytes};
use crate::deleted_rows::Block;
use crate::maintain::raw_sizes::RawSizes;
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::table::TableView;
use arrow_schema::Schema;
use std::collections::HashSet;
use thalweg_kernel::Result;
use thalweg_kernel::index::{Address, Entry};

/// Sizes of the blocks of a view.
pub(super) struct Sizes<'a> {
    view: &'a TableView,
    strings: &'a mut RawSizes,
    row_bytes: u64,
    /// Rows that a block has room for.
    max_rows: u64,
    /// The places of columns of strings.
    long: Vec<usize>,
}

impl<'a> Sizes<'a> {
    pub(super) fn new(view: &'a TableView, strings: &'a mut RawSizes) -> Self {
        let schema: &Schema = view.definition().schema();
        let types = schema.fields().iter().map(|field| field.data_type());
        let widths = types.clone().filter_map(|t| t.primitive_width());
        let long = types.enumerate().filter(|(_, t)| is_long(t));
        Self {
            view,
            strings,
            row_bytes: widths.sum::<usize>() as u64,
            max_rows: max_block_rows(schema) as u64,
            long: long.map(|(place, _)| place).collect(),
        }
    }

    /// Forgets all blocks but these.
    pub(super) fn retain(&mut self, blocks: &[Entry]) {
        if self.strings.is_empty() {
            return;
        }
        let live: HashSet<Address> = blocks.iter().map(|block| block.address).collect();
        self.strings.retain(|block| live.contains(block));
    }

    /// Whether so many rows of so many bytes fit in one block.
    pub(super) fn fit(&self, rows: u64, bytes: u64) -> bool {
        bytes <= MAX_RAW_BYTES as u64 && rows <= self.max_rows
    }

    /// The size of a block; the least that it can be if it was not measured.
    pub(super) fn of(&self, block: &Entry) -> u64 {
        let strings = self.strings.of(&block.address).unwrap_or(0);
        strings.saturating_add(self.row_bytes.saturating_mul(block.rows))
    }

    /// Measures a block; false if its size was known.
    pub(super) fn measure(&mut self, block: &Entry) -> Result<bool> {
        if self.long.is_empty() || self.strings.of(&block.address).is_some() {
            return Ok(false);
        }
        let reader = Reader::new(self.view, Some(&self.long), KeyRange::ALL)?;
        // Deleted rows count as well: without them the block is no larger.
        let block = Block {
            entry: block.clone(),
            mask: None,
        };
        let batches = reader.blocks(std::slice::from_ref(&block))?;
        let bytes: usize = batches.iter().map(raw_bytes).sum();
        self.strings.note(block.entry.address, bytes as u64);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::{CreateOptions, Engine, EngineOptions};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    #[test]
    fn sizes_of_a_dropped_table_are_let_go() {
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let texts = ["a", "b", "c"].map(|name| Field::new(name, DataType::Utf8, false));
        let mut fields = vec![Field::new("ts", DataType::Int64, false)];
        fields.extend(texts);
        let schema = Schema::new(fields);
        let create = |name| {
            let options = CreateOptions::stream("ts");
            engine.create_table(name, &schema, &options).unwrap()
        };
        let (table, other) = (create("t"), create("other"));
        // Two of these are no one block, though each takes the bytes of three texts.
        let text = "a".repeat(1 << 20);
        for part in 0..2 {
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(part * 7..(part + 1) * 7));
            let texts: ArrayRef = Arc::new(StringArray::from_iter_values([&text; 7]));
            let arrays = vec![times, Arc::clone(&texts), Arc::clone(&texts), texts];
            let batch = RecordBatch::try_new(table.schema(), arrays).unwrap();
            table.append([Ok(batch)], None).unwrap();
        }
        table.maintain().unwrap();
        let kept = || engine.maintenance().wait(&|| true).unwrap().raw_sizes.len();
        assert_eq!(kept(), 1);
        other.maintain().unwrap();
        assert_eq!(kept(), 1);
        engine.drop_table("t").unwrap();
        other.maintain().unwrap();
        assert_eq!(kept(), 0);
    }
}
