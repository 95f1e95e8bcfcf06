//! The smallest layer of rows above the kernel: a row is a key and a value, both i64.
//!
//! Invariant: values are drawn from a counter, so a row that is lost, doubled or made up is seen in the set of values.

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
use thalweg_env::Env;
use thalweg_kernel::block::{BlockBuilder, BlockSpec, EncodedBlock, Role, Wanted};
use thalweg_kernel::index::Entry;
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, GroupPart, Kernel, OpenRows, Options, Result, RowEncoder,
    RowsPart, TableId, TableSnapshot, TableState,
};

/// A key and a value.
pub type Row = (i64, i64);

const ROW_BYTES: usize = 16;
/// The column of the keys.
pub const KEY_COLUMN: u32 = 1;
/// The column of the values.
pub const VALUE_COLUMN: u32 = 2;

/// Makes blocks of toy rows.
#[derive(Clone, Copy, Debug)]
pub struct ToyEncoder {
    /// Open rows that make a block.
    pub block_rows: u32,
}

impl RowEncoder for ToyEncoder {
    fn block_rows(&self, _table: &TableState) -> Result<u32> {
        Ok(self.block_rows)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        let mut blocks = Vec::new();
        for section in rows.chunk_by(|_, next| !next.begins_section) {
            let (first, last) = (section[0].commit, section[section.len() - 1].commit);
            let part: Vec<Row> = section
                .iter()
                .flat_map(|r| unpack(&r.part.payload))
                .collect();
            for chunk in part.chunks(self.block_rows as usize) {
                blocks.push(block(table.id, chunk.to_vec(), Some((first, last))));
            }
        }
        Ok(blocks)
    }
}

/// The raw form of rows.
pub fn pack(rows: &[Row]) -> Bytes {
    rows.iter()
        .flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()])
        .flatten()
        .collect()
}

/// Rows of their raw form.
pub fn unpack(payload: &[u8]) -> Vec<Row> {
    let number = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("eight bytes"));
    payload
        .chunks_exact(ROW_BYTES)
        .map(|r| (number(&r[..8]), number(&r[8..])))
        .collect()
}

/// A block of rows.
pub fn block(
    table: TableId,
    mut rows: Vec<Row>,
    commits: Option<(CommitNo, CommitNo)>,
) -> EncodedBlock {
    rows.sort_by_key(|r| r.0);
    let spec = BlockSpec {
        table,
        layout: 1,
        level: 0,
        order_id: 0,
        rows: u32::try_from(rows.len()).expect("a small block"),
        key: 0,
        sorted: true,
        implicit_key: false,
    };
    let mut builder = BlockBuilder::new(spec, 2);
    let mut columns = Vec::new();
    for (column, values) in [
        (KEY_COLUMN, rows.iter().map(|r| r.0).collect::<Vec<i64>>()),
        (VALUE_COLUMN, rows.iter().map(|r| r.1).collect()),
    ] {
        let mut chunk = EncodedChunk::new();
        Encoder::new(Level::Fast)
            .encode(&values, &mut chunk)
            .expect("encodable");
        builder
            .add_chunk(column, Role::Values, &chunk)
            .expect("a chunk of the block's rows");
        columns.push(ColumnSummary::of_values(column, &values, None));
    }
    let keys = (rows[0].0, rows[rows.len() - 1].0);
    let mut block = builder.finish(keys, columns).expect("a block");
    if let Some((first, last)) = commits {
        block.entry = block.entry.committed(first, last, 0);
    }
    block
}

/// A raw part.
pub fn rows_part(table: TableId, rows: &[Row]) -> RowsPart {
    RowsPart {
        table,
        definition_version: 1,
        rows: u32::try_from(rows.len()).expect("few rows"),
        key_min: rows.iter().map(|r| r.0).min().expect("rows"),
        key_max: rows.iter().map(|r| r.0).max().expect("rows"),
        payload: pack(rows),
    }
}

/// An open toy database.
#[derive(Debug)]
pub struct Toy {
    /// The kernel below.
    pub kernel: Kernel,
}

impl Toy {
    /// Opens or makes a database whose blocks have `block_rows` rows.
    pub fn open(env: &Env, path: &str, options: &Options, block_rows: u32) -> Result<Self> {
        let encoder = Arc::new(ToyEncoder { block_rows });
        Ok(Self {
            kernel: Kernel::open(env.clone(), Path::new(path), options, encoder)?,
        })
    }

    /// A new table.
    pub fn create(&self, name: &str) -> Result<TableId> {
        let edit = Edit::CreateTable {
            name: name.to_owned(),
            definition: Bytes::from_static(b"toy"),
        };
        let commit = Commit {
            edits: vec![edit],
            ..Commit::default()
        };
        self.kernel.commit(commit, Durability::Disk)?;
        Ok(self
            .kernel
            .snapshot()?
            .table_named(name)
            .expect("created")
            .id)
    }

    /// Appends raw.
    pub fn append(&self, table: TableId, rows: &[Row], durability: Durability) -> Result<CommitNo> {
        let commit = Commit {
            rows: vec![rows_part(table, rows)],
            ..Commit::default()
        };
        self.kernel.commit(commit, durability)
    }

    /// Appends as blocks of at most `block_rows`.
    pub fn append_group(
        &self,
        table: TableId,
        rows: &[Row],
        block_rows: usize,
        durability: Durability,
    ) -> Result<CommitNo> {
        let blocks = rows
            .chunks(block_rows)
            .map(|chunk| block(table, chunk.to_vec(), None))
            .collect();
        let group = GroupPart {
            table,
            definition_version: 1,
            blocks,
            covers: None,
        };
        self.kernel.commit(
            Commit {
                groups: vec![group],
                ..Commit::default()
            },
            durability,
        )
    }

    /// Appends as a fragment.
    pub fn append_fragment(
        &self,
        table: TableId,
        rows: &[Row],
        block_rows: usize,
    ) -> Result<CommitNo> {
        let mut fragment = self.kernel.stage_fragment(table)?;
        for chunk in rows.chunks(block_rows) {
            fragment.add_block(&block(table, chunk.to_vec(), None))?;
        }
        let edit = Edit::AddFragments {
            table,
            definition_version: 1,
            covers: None,
            roots: vec![fragment.finish()?],
        };
        self.kernel.commit(
            Commit {
                edits: vec![edit],
                ..Commit::default()
            },
            Durability::Disk,
        )
    }

    /// All rows of a table, sorted.
    pub fn rows(&self, table: TableId) -> Result<Vec<Row>> {
        let Some(table) = self.kernel.snapshot()?.table(table) else {
            return Ok(Vec::new());
        };
        self.rows_of(&table)
    }

    /// All rows of a table of a snapshot, sorted.
    pub fn rows_of(&self, table: &TableSnapshot) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = table
            .open_rows()
            .flat_map(|r| unpack(&r.part.payload))
            .collect();
        for entry in table.tree.iter(None, &**self.kernel.store()) {
            rows.extend(self.block_rows(&entry?)?);
        }
        if let Some(total) = table.tree.total() {
            let open: u64 = table.open_rows().map(|r| u64::from(r.part.rows)).sum();
            assert_eq!(
                total.rows + open,
                rows.len() as u64,
                "the summaries count what is there"
            );
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// The rows of a block.
    pub fn block_rows(&self, entry: &Entry) -> Result<Vec<Row>> {
        let reader = self.kernel.store().block(&entry.address)?;
        let chunks =
            reader.read(&[KEY_COLUMN, VALUE_COLUMN].map(|c| Wanted::all(c, Role::Values)))?;
        let mut columns = Vec::new();
        for chunk in chunks {
            let missing =
                || thalweg_kernel::Error::corruption(entry.address, "toy blocks have both columns");
            let chunk = chunk.ok_or_else(missing)?;
            let mut values = Vec::new();
            for page in chunk.pages() {
                let start = values.len();
                values.resize(start + chunk.page_rows(page), 0_i64);
                Decoder::new()
                    .decode_page(
                        chunk.codec(),
                        chunk.prelude(),
                        chunk.page(page),
                        &mut values[start..],
                    )
                    .map_err(|e| chunk.undecodable(&entry.address, &e))?;
            }
            columns.push(values);
        }
        Ok(columns[0]
            .iter()
            .copied()
            .zip(columns[1].iter().copied())
            .collect())
    }
}
