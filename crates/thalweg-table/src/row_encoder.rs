//! Open rows become blocks: what the kernel calls when a table has a block of them.
//!
//! Invariants: rows of different *sections* (runs of open rows that no other blocks were committed within) are never in one
//! block, and all blocks of a section carry the commits of the whole section. So the order of blocks by first commit and number is
//! that of arrival wherever keys are equal: inside a section by number and row, because the section was sorted as one; across
//! sections by commit, because nothing else was committed within one. Deleted rows are left out; what rows are late for is the
//! largest key of all rows, deleted ones too.

use crate::column::BlockEncoder;
use crate::definition::TableDefinition;
use crate::definitions::Definitions;
use crate::deleted_rows::{DeletedRows, push_open_rows};
use crate::intake::cutter;
use crate::order::{ascending_positions, sorted_batch};
use crate::rows::RowsDecoder;
use std::sync::Arc;
use thalweg_codec::Level;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::{OpenRows, Result, RowEncoder, TableSnapshot, TableState};

/// Which open row each row of the blocks was, by its number among all of them.
#[derive(Default)]
struct Sources {
    of_rows: Vec<u32>,
    /// Rows of the sections before.
    before: u32,
}

impl Sources {
    /// The numbers of the rows of the next section that are left.
    fn section(&mut self, count: usize, deleted: &DeletedRows) -> Vec<u32> {
        let first = self.before as usize;
        self.before = u32::try_from(first + count).unwrap_or(u32::MAX);
        let kept = deleted.kept(count).flatten();
        let numbers = kept.map(|row| u32::try_from(first + row).unwrap_or(u32::MAX));
        numbers.collect()
    }
}

/// Encodes open rows.
pub(crate) struct OpenRowEncoder {
    definitions: Arc<Definitions>,
}

impl OpenRowEncoder {
    pub(crate) fn new(definitions: Arc<Definitions>) -> Self {
        Self { definitions }
    }

    fn encode_sections(
        &self,
        table: &TableSnapshot,
        rows: &[OpenRows],
        mut sources: Option<&mut Sources>,
    ) -> Result<Vec<EncodedBlock>> {
        let definition = self.definitions.of(table)?;
        let mut blocks = Vec::new();
        for section in rows.chunk_by(|_, next| !next.begins_section) {
            let sources = sources.as_deref_mut();
            Self::encode_section(&definition, table, section, &mut blocks, sources)?;
        }
        Ok(blocks)
    }

    fn encode_section(
        definition: &TableDefinition,
        table: &TableSnapshot,
        rows: &[OpenRows],
        blocks: &mut Vec<EncodedBlock>,
        sources: Option<&mut Sources>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let mut decoder = RowsDecoder::new(definition, None)?;
        let mut deleted = DeletedRows::default();
        for open in rows {
            push_open_rows(open, table.hidden_in(open), &mut decoder, &mut deleted)?;
        }
        let count = decoder.rows();
        let batch = deleted.taken_out_of(decoder.finish()?)?;
        let kept = sources.map(|sources| (sources.section(count, &deleted), sources));
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = definition.keys_of(&batch)?;
        if let Some((kept, sources)) = kept {
            match ascending_positions(&keys) {
                None => sources.of_rows.extend(kept),
                Some(order) => {
                    let kept_at = |at: u32| kept.get(at as usize).copied();
                    sources
                        .of_rows
                        .extend(order.into_iter().filter_map(kept_at));
                }
            }
        }
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

impl RowEncoder for OpenRowEncoder {
    fn block_rows(&self, table: &TableState) -> Result<u32> {
        Ok(self.definitions.of(table)?.block_rows())
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        self.encode_sections(table, rows, None)
    }

    fn encode_with_sources(
        &self,
        table: &TableSnapshot,
        rows: &[OpenRows],
    ) -> Result<(Vec<EncodedBlock>, Option<Vec<u32>>)> {
        let mut sources = Sources::default();
        let blocks = self.encode_sections(table, rows, Some(&mut sources))?;
        Ok((blocks, Some(sources.of_rows)))
    }
}
