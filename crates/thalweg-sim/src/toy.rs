//! The smallest layer of rows above the kernel: a row is a key and a value, both i64.
//!
//! Invariants: values are drawn from a counter, so a row that is lost, doubled or made up is seen in the set of values. A
//! wide table stores columns that follow from the value, a table of one column no key: all its keys are 0.

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};
use thalweg_env::Env;
use thalweg_kernel::block::{BlockBuilder, BlockSpec, EncodedBlock, Role, Wanted};
use thalweg_kernel::index::Entry;
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, GroupPart, IndexBlocks, Kernel, NEW_TABLE, OpenRows,
    Options, Result, RowEncoder, RowsPart, TableId, TableSnapshot, TableState,
};

/// A key and a value.
pub type Row = (i64, i64);

/// Rows that no codec makes short.
pub fn random_rows(first: i64, count: i64) -> Vec<Row> {
    let value = |key: i64| {
        let mixed = (key ^ (key >> 7)).wrapping_mul(0x2545_F491_4F6C_DD1D);
        (mixed ^ (mixed >> 29)).wrapping_mul(0x1B87_3593_CC9E_2D51)
    };
    (first..first + count)
        .map(|key| (key, value(key)))
        .collect()
}

const ROW_BYTES: usize = 16;
/// The column of the keys.
pub const KEY_COLUMN: u32 = 1;
/// The column of the values.
pub const VALUE_COLUMN: u32 = 2;

/// The definition of a table with so many columns.
pub fn definition(columns: u32) -> Bytes {
    Bytes::from(format!("toy {columns}"))
}

/// How many columns a definition names: two where it names none.
pub fn columns_of(definition: &[u8]) -> u32 {
    let digits = definition.strip_prefix(b"toy ").unwrap_or_default();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    digits.parse().unwrap_or(2)
}

/// The value of a column after the first two in the row of `value`.
pub fn derived(value: i64, column: u32) -> i64 {
    value.wrapping_add(i64::from(column))
}

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
        Ok(self.encode_with_sources(table, rows)?.0)
    }

    fn encode_with_sources(
        &self,
        table: &TableSnapshot,
        rows: &[OpenRows],
    ) -> Result<(Vec<EncodedBlock>, Option<Vec<u32>>)> {
        let (mut blocks, mut sources) = (Vec::new(), Vec::new());
        let mut number = 0;
        for section in rows.chunk_by(|_, next| !next.begins_section) {
            let (first, last) = (section[0].commit, section[section.len() - 1].commit);
            let mut part: Vec<(u32, Row)> = Vec::new();
            for rows in section {
                part.extend(numbered(table, rows).map(|(at, row)| (number + at, row)));
                number += rows.part.rows;
            }
            for chunk in part.chunks(self.block_rows as usize) {
                let columns = columns_of(&table.definition);
                let commits = Some((first, last));
                let rows = chunk.iter().map(|(_, row)| *row).collect();
                blocks.push(wide_block(table.id, rows, commits, columns));
                // In the order of the block.
                let mut chunk = chunk.to_vec();
                chunk.sort_by_key(|(_, row)| row.0);
                sources.extend(chunk.into_iter().map(|(number, _)| number));
            }
        }
        Ok((blocks, Some(sources)))
    }

    fn encode_entries(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<IndexBlocks>> {
        let rows = rows.iter().flat_map(|rows| kept_of(table, rows));
        let rows: Vec<Row> = rows.collect();
        // Of the last index the encoder knows nothing: its coverage shrinks.
        let on = table.orders().iter().filter(|order| order.is_on);
        let known = on.filter(|order| order.id != LAST_INDEX);
        let entries = known.map(|order| IndexBlocks {
            order: order.id,
            blocks: index_blocks(table.id, order.id, &rows, self.block_rows as usize),
        });
        Ok(entries.collect())
    }
}

/// The rows of a part that are not hidden.
fn kept_of(table: &TableSnapshot, rows: &OpenRows) -> Vec<Row> {
    numbered(table, rows).map(|(_, row)| row).collect()
}

/// The rows of a part that are not hidden, each with its place in the part.
fn numbered(table: &TableSnapshot, rows: &OpenRows) -> impl Iterator<Item = (u32, Row)> {
    let hidden = table.hidden_in(rows);
    let all = (0_u32..).zip(unpack(&rows.part.payload));
    all.filter(move |(at, _)| !hidden.is_some_and(|hidden| hidden.contains(*at)))
}

/// An index to which only appends of blocks bring entries, and builds.
pub const LAST_INDEX: u32 = 4;

/// The key of the value of a row in an index: each has another order.
pub fn index_key(order: u32, value: i64) -> i64 {
    match order % 2 {
        0 => value,
        _ => -value,
    }
}

/// The entries of rows in an index: key and the key of the row. The value of the row follows from the key.
pub fn entries_of(order: u32, rows: &[Row]) -> Vec<Row> {
    let entry = |(key, value): &Row| (index_key(order, *value), *key);
    let mut entries: Vec<Row> = rows.iter().map(entry).collect();
    entries.sort_unstable();
    entries
}

/// Blocks of the entries of rows in an index.
pub fn index_blocks(
    table: TableId,
    order: u32,
    rows: &[Row],
    block_rows: usize,
) -> Vec<EncodedBlock> {
    let entries = entries_of(order, rows);
    let blocks = entries.chunks(block_rows.max(1));
    blocks
        .map(|chunk| block_of_order((table, order), chunk.to_vec(), None, 2))
        .collect()
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

/// A block of rows of a table of two columns.
pub fn block(
    table: TableId,
    rows: Vec<Row>,
    commits: Option<(CommitNo, CommitNo)>,
) -> EncodedBlock {
    wide_block(table, rows, commits, 2)
}

/// A block of rows of a table of so many columns. Rows of equal keys stay in the order they come in.
pub fn wide_block(
    table: TableId,
    rows: Vec<Row>,
    commits: Option<(CommitNo, CommitNo)>,
    columns: u32,
) -> EncodedBlock {
    block_of_order((table, 0), rows, commits, columns)
}

/// A block of rows of an order of a table.
pub fn block_of_order(
    (table, order): (TableId, u32),
    mut rows: Vec<Row>,
    commits: Option<(CommitNo, CommitNo)>,
    columns: u32,
) -> EncodedBlock {
    rows.sort_by_key(|r| r.0);
    let spec = BlockSpec {
        table,
        layout: 1,
        level: 0,
        order,
        positions: u32::try_from(rows.len()).expect("a small block"),
        rows: u32::try_from(rows.len()).expect("a small block"),
        key: 0,
        sorted: true,
        implicit_key: columns == 1,
    };
    let mut builder = BlockBuilder::new(spec, columns as usize);
    let mut summaries = Vec::new();
    let first_column = if columns == 1 {
        VALUE_COLUMN
    } else {
        KEY_COLUMN
    };
    for column in first_column..=columns.max(VALUE_COLUMN) {
        let value = |row: &Row| match column {
            KEY_COLUMN => row.0,
            VALUE_COLUMN => row.1,
            _ => derived(row.1, column),
        };
        let values: Vec<i64> = rows.iter().map(value).collect();
        let mut chunk = EncodedChunk::new();
        Encoder::new(Level::Fast)
            .encode(&values, &mut chunk)
            .expect("encodable");
        builder
            .add_chunk(column, Role::Values, &chunk)
            .expect("a chunk of the block's rows");
        summaries.push(ColumnSummary::of_values(column, &values, None));
    }
    let keys = (rows[0].0, rows[rows.len() - 1].0);
    let mut block = builder.finish(keys, summaries).expect("a block");
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
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: Bytes::from_static(b"toy"),
            indexes: 0,
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

    /// Drops a table, for good once this returns.
    pub fn drop_table(&self, table: TableId) -> Result<CommitNo> {
        let commit = Commit {
            edits: vec![Edit::DropTable { table }],
            ..Commit::default()
        };
        self.kernel.commit(commit, Durability::Disk)
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
            head: AddHead::of_rows(table, 1),
            blocks,
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
            head: AddHead::of_rows(table, 1),
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

    /// The rows of a block. Of a wide table the last column is read as well, and must follow from the values.
    pub fn block_rows(&self, entry: &Entry) -> Result<Vec<Row>> {
        let mut reader = self.kernel.store().block(&entry.address)?;
        let ids = || entry.columns.iter().map(|summary| summary.column_id);
        let last = ids().max().unwrap_or(VALUE_COLUMN);
        let has_keys = !reader.head().spec().implicit_key;
        let mut wanted = vec![VALUE_COLUMN];
        wanted.extend(has_keys.then_some(KEY_COLUMN));
        wanted.extend((last > VALUE_COLUMN).then_some(last));
        let wanted: Vec<Wanted> = wanted
            .into_iter()
            .map(|column| Wanted::all(column, Role::Values))
            .collect();
        let mut columns = Vec::new();
        for chunk in reader.read(&wanted)? {
            let missing =
                || Error::corruption(entry.address, "a toy block has all columns of its entry");
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
        let values = &columns[0];
        if last > VALUE_COLUMN {
            let found = columns.last().into_iter().flatten();
            let follows = values
                .iter()
                .zip(found)
                .all(|(v, f)| derived(*v, last) == *f);
            if !follows {
                let what = format!("column {last} does not follow from the values");
                return Err(Error::corruption(entry.address, what));
            }
        }
        let keys = if has_keys {
            columns[1].clone()
        } else {
            vec![0; values.len()]
        };
        Ok(keys.into_iter().zip(values.iter().copied()).collect())
    }
}
