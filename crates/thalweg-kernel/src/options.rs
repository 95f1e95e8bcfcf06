//! Options that whoever opens a database chooses, and the encoder that it hands in.

use crate::block::EncodedBlock;
use crate::error::Result;
use crate::open_rows::OpenRows;
use crate::state::TableSnapshot;
use crate::table_state::TableState;
use std::time::Duration;

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Never write; needs an existing database.
    pub read_only: bool,
    /// Fail when the directory holds no database yet.
    pub must_exist: bool,
    /// Memory for cached index pages, heads of blocks, and pages of blocks that single rows were read from.
    pub cache_bytes: u64,
    /// `Process` commits reach stable storage within this time.
    pub sync_interval: Duration,
    /// Full size of a log segment; the first ones are smaller.
    pub segment_bytes: u64,
    /// Files that only older snapshots of reading processes need may go: those get `SnapshotExpired`. Set it for the writer
    /// and for readers. Snapshots of the writing process itself keep their files for as long as they live.
    pub max_snapshot_age: Duration,
    /// Work in the background on threads of its own. Off: at the end of the commit that calls for it, so that a
    /// simulation is repeatable.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            must_exist: false,
            cache_bytes: 256 << 20,
            sync_interval: Duration::from_millis(200),
            segment_bytes: 64 << 20,
            max_snapshot_age: Duration::from_secs(600),
            background: true,
        }
    }
}

/// Turns open rows into blocks; the layer above knows what rows are.
pub trait RowEncoder: Send + Sync {
    /// How many open rows make a block of this table. Asked for when a table gets open rows, and again when its
    /// definition has changed meanwhile. An error concerns the table alone: encoding its rows fails then, too.
    fn block_rows(&self, table: &TableState) -> Result<u32>;

    /// Encodes all of `rows` as blocks. Rows before and after one with [`OpenRows::begins_section`] are never in one
    /// block. Each block's entry has the commits of its rows. Rows that are hidden ([`TableSnapshot::hidden_in`]) are left out,
    /// and change nothing else.
    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>>;

    /// Encodes as [`Self::encode`] does, and returns where the rows come from: of each row of the blocks, one block after
    /// the other, its number among all of `rows`, hidden ones included. It is asked for where rows are deleted while they
    /// are encoded. An encoder that gives `None` encodes them again and again as long as that goes on.
    fn encode_with_sources(
        &self,
        table: &TableSnapshot,
        rows: &[OpenRows],
    ) -> Result<(Vec<EncodedBlock>, Option<Vec<u32>>)> {
        Ok((self.encode(table, rows)?, None))
    }

    /// Encodes the entries that the indexes of the table get for all of `rows`, those of each index that is on. An index that
    /// is left out covers the rows no longer.
    fn encode_entries(
        &self,
        _table: &TableSnapshot,
        _rows: &[OpenRows],
    ) -> Result<Vec<IndexBlocks>> {
        Ok(Vec::new())
    }
}

/// Entries of an index.
#[derive(Debug)]
pub struct IndexBlocks {
    /// The order.
    pub order: u32,
    /// Its blocks; none where the rows have no entries.
    pub blocks: Vec<EncodedBlock>,
}
