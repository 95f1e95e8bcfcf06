//! Open rows become blocks: what the kernel calls when a table has a block of them.
//!
//! Invariants: rows of different *sections* (runs of open rows that no other blocks were committed within) are never in one
//! block, and all blocks of a section carry the commits of the whole section. So the order of blocks by first commit and number is that of arrival wherever
//! keys are equal: inside a section by number and row, because the section was sorted as one; across sections by
//! commit, because nothing else was committed within one. Deleted rows are left out; what rows are late for is the largest
//! key of all rows, deleted ones too.

use crate::column::BlockEncoder;
use crate::definitions::Definitions;
use crate::deleted_rows::{DeletedRows, push_open_rows};
use crate::order::sorted_batch;
use crate::reader::keys_of;
use crate::rows::RowsDecoder;
use crate::stream::write::cutter;
use std::sync::Arc;
use thalweg_codec::Level;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::{OpenRows, Result, RowEncoder, TableSnapshot, TableState};

use crate::definition::TableDefinition;

/// Encodes the open rows of streams.
pub(crate) struct StreamEncoder {
    definitions: Arc<Definitions>,
}

impl StreamEncoder {
    pub(crate) fn new(definitions: Arc<Definitions>) -> Self {
        Self { definitions }
    }

    fn encode_section(
        definition: &TableDefinition,
        table: &TableSnapshot,
        rows: &[OpenRows],
        blocks: &mut Vec<EncodedBlock>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let mut decoder = RowsDecoder::new(definition, None)?;
        let mut deleted = DeletedRows::default();
        for open in rows {
            push_open_rows(table, open, &mut decoder, &mut deleted)?;
        }
        let batch = deleted.taken_out_of(decoder.finish()?)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = keys_of(definition, &batch)?;
        let (batch, keys) = sorted_batch(batch, keys)?;
        let high_key = table.tree.total().map(|total| total.key_max);
        let mut encoder = BlockEncoder::new(Level::Fast);
        let first_block = blocks.len();
        for range in cutter(definition, high_key).blocks(&keys) {
            let part = batch.slice(range.start, range.len());
            encoder.encode(table.id, definition, &part, &keys[range], blocks)?;
        }
        for block in &mut blocks[first_block..] {
            block.entry = block.entry.clone().committed(first.commit, last.commit, 0);
        }
        Ok(())
    }
}

impl RowEncoder for StreamEncoder {
    fn block_rows(&self, table: &TableState) -> Result<u32> {
        Ok(self.definitions.of(table)?.block_rows())
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        let definition = self.definitions.of(table)?;
        let mut blocks = Vec::new();
        for section in rows.chunk_by(|_, next| !next.begins_section) {
            Self::encode_section(&definition, table, section, &mut blocks)?;
        }
        Ok(blocks)
    }
}
