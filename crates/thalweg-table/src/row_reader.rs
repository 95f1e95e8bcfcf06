//! Rows by their addresses: a row of a block by the place of the block and the position in it, an open row by its commit.
//!
//! Invariants: rows come back in the order they were asked for, one as often as it was; of blocks only the pages that hold them are
//! read, through the cache, each once per call; an address that leads to no row of the view, or to a deleted one, is an error,
//! never another row. So each block is looked up in the index of the view, once per reader: the bytes of a block that left the table
//! may be there for long.

use crate::column::ValueDecoder;
use crate::definition::TableDefinition;
use crate::deleted_rows::Block;
use crate::error::{damaged, invalid};
use crate::reader::column_id;
use crate::rows::RowsDecoder;
use crate::table::TableView;
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use thalweg_kernel::index::{Address, Place};
use thalweg_kernel::masks::{BlockMask, Positions, RunMarks};
use thalweg_kernel::store::Store;
use thalweg_kernel::{CommitNo, Error, ErrorKind, OpenRows, Result};

/// Most blocks that a reader remembers as found, and marks of their masks.
const MAX_FOUND: usize = 1 << 16;

/// Where a row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowAddress {
    /// The rows it is one of.
    pub place: RowPlace,
    /// Its position among them, from 0.
    pub row: u32,
}

/// Where rows lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowPlace {
    /// In a block of the log or of a fragment.
    Block {
        /// Where it lies in the index, which shows whether the table still has it.
        place: Place,
        /// Where its bytes are.
        address: Address,
    },
    /// In no block yet.
    Open {
        /// The commit they came with.
        commit: CommitNo,
        /// Which part of it they are, of those that have rows of the table: from 0.
        part: u32,
    },
}

/// Reads rows of one view of a table by their addresses. Used again from one call to the next.
pub struct RowReader {
    view: TableView,
    store: Arc<Store>,
    ids: Vec<u32>,
    blocks: ValueDecoder,
    /// The parts of the view that are in no block, each with its number in its commit, once one of them was asked for.
    open: Option<Vec<(u32, OpenRows)>>,
    /// The blocks that were found in the index, with marks of their masks.
    found: HashMap<(Place, Address), RunMarks>,
    found_marks: usize,
    /// The order in which the rows of the result are read.
    order: Vec<u32>,
    positions: Vec<u32>,
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

impl TableView {
    /// A reader of single rows by their addresses, of the columns at these places of the schema or of all.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn row_reader(&self, projection: Option<&[usize]>) -> Result<RowReader> {
        self.engine().closed().check()?;
        RowReader::new(self.clone(), projection)
    }
}

impl RowReader {
    /// A reader of the columns at these places of the schema; all of them for `None`.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub(crate) fn new(view: TableView, projection: Option<&[usize]>) -> Result<Self> {
        let definition = Arc::clone(view.definition());
        let ids: Vec<u32> = match projection {
            None => definition.columns().iter().map(|c| c.id).collect(),
            Some(places) => (places.iter())
                .map(|place| column_id(&definition, *place))
                .collect::<Result<_>>()?,
        };
        let blocks = ValueDecoder::new(&definition, Some(&ids))?;
        let store = Arc::clone(view.engine().kernel().store());
        Ok(Self {
            view,
            store,
            ids,
            blocks,
            open: None,
            found: HashMap::new(),
            found_marks: 0,
            order: Vec::new(),
            positions: Vec::new(),
        })
    }

    /// The rows at these addresses, in this order. After an error the reader goes on as before.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use arrow_array::Float64Array;
    /// use thalweg::{RowAddress, RowPlace, Value};
    /// use thalweg_kernel::CommitNo;
    ///
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// let commit = CommitNo(db.snapshot()?.commit()); // the one that the row came with
    /// let address = RowAddress { place: RowPlace::Open { commit, part: 0 }, row: 0 };
    /// let mut reader = room.view()?.row_reader(Some(&[1]))?;
    /// let rows = reader.read(&[address, address])?;
    /// assert_eq!(rows.column(0).as_ref(), &Float64Array::from(vec![20.5, 20.5]));
    /// assert!(reader.read(&[RowAddress { row: 1, ..address }]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an address at which the table has no row in this view; `Corruption` for damage; whatever reading leads to.
    pub fn read(&mut self, rows: &[RowAddress]) -> Result<RecordBatch> {
        self.view.engine().closed().check()?;
        let read = self.read_rows(rows);
        if read.is_err() {
            let definition = self.view.definition();
            self.blocks = ValueDecoder::new(definition, Some(&self.ids))?;
        }
        read.map_err(|error| self.view.named().in_words(error))
    }

    fn read_rows(&mut self, rows: &[RowAddress]) -> Result<RecordBatch> {
        let count = u32::try_from(rows.len()).map_err(|_| invalid("too many rows at once"))?;
        self.order.clear();
        self.order.extend(0..count);
        let key = |at: &u32| sort_key(&rows[*at as usize]);
        let is_in_order = rows.is_sorted_by_key(sort_key);
        if !is_in_order {
            self.order.sort_unstable_by_key(key);
        }
        let order = std::mem::take(&mut self.order);
        let read = self.read_in_order(rows, &order);
        self.order = order;
        let batch = read?;
        if is_in_order {
            return Ok(batch);
        }
        // The place of each wanted row among those that were read.
        let mut came = vec![0; rows.len()];
        for (at, row) in (0_u32..).zip(&self.order) {
            came[*row as usize] = at;
        }
        taken(&batch, &UInt32Array::from(came))
    }

    /// The rows in the order of their places.
    fn read_in_order(&mut self, rows: &[RowAddress], order: &[u32]) -> Result<RecordBatch> {
        let place = |at: &u32| rows[*at as usize].place;
        let is_open = |at: &u32| matches!(place(at), RowPlace::Open { .. });
        let (blocks, open) = order.split_at(order.partition_point(|at| !is_open(at)));
        for group in blocks.chunk_by(|a, b| place(a) == place(b)) {
            if let RowPlace::Block { place, address } = place(&group[0]) {
                self.positions.clear();
                self.positions
                    .extend(group.iter().map(|at| rows[*at as usize].row));
                self.check_kept(place, address)?;
                let block = self.store.block(&address)?;
                self.blocks.push_rows(&block, &self.positions)?;
            }
        }
        let first = self.blocks.finish()?;
        if open.is_empty() {
            return Ok(first);
        }
        let mut batches = vec![first];
        for group in open.chunk_by(|a, b| place(a) == place(b)) {
            let part = self.open_part(place(&group[0]))?;
            let wanted = group.iter().map(|at| rows[*at as usize].row);
            let hidden = self.view.snapshot().hidden_in(&part);
            if let Some(row) = hidden.and_then(|hidden| first_in(hidden, wanted.clone())) {
                let place = format_args!("open rows of commit {}", part.commit.0);
                return Err(deleted(&place, row));
            }
            let wanted = UInt32Array::from_iter_values(wanted);
            batches.push(open_rows(
                self.view.definition(),
                &self.ids,
                &part,
                &wanted,
            )?);
        }
        let schema = batches[0].schema();
        concat_batches(&schema, &batches).map_err(|e| {
            Error::with_source(ErrorKind::Limit, format!("rows by their addresses: {e}"), e)
        })
    }

    /// Refuses a block that the view does not have, and the positions that were asked for where one of them is a deleted row.
    fn check_kept(&mut self, place: Place, address: Address) -> Result<()> {
        let table = self.view.snapshot();
        let hidden = table.hidden_at(&place);
        if !self.found.contains_key(&(place, address)) {
            let block = table.tree.block_at(&place, &*self.store)?;
            let Some(block) = block.filter(|block| block.address == address) else {
                let message = format!("{address}: the table has no such block there in this view");
                return Err(invalid(message));
            };
            let marks = match hidden {
                Some(BlockMask::Rows(hidden)) => {
                    // Rows that the block does not have are damage.
                    Block::found(table, block, Some(place)).hidden()?;
                    hidden.marks()
                }
                _ => RunMarks::default(),
            };
            if self.found.len() + self.found_marks >= MAX_FOUND {
                self.found.clear();
                self.found_marks = 0;
            }
            self.found_marks += marks.count();
            self.found.insert((place, address), marks);
        }
        let mut positions = self.positions.iter().copied();
        let row = match hidden {
            None => None,
            Some(BlockMask::Rows(hidden)) => {
                let marks = &self.found[&(place, address)];
                positions.find(|row| hidden.contains_marked(*row, marks))
            }
            Some(BlockMask::Blocks { .. }) => positions.next(),
        };
        row.map_or(Ok(()), |row| Err(deleted(&address, row)))
    }

    /// The open rows of a place.
    fn open_part(&mut self, place: RowPlace) -> Result<OpenRows> {
        let parts = self.open.get_or_insert_with(|| {
            let mut parts: Vec<(u32, OpenRows)> = Vec::new();
            for rows in self.view.snapshot().open_rows() {
                let number = match parts.last() {
                    Some((number, before)) if before.commit == rows.commit => number + 1,
                    _ => 0,
                };
                parts.push((number, rows.clone()));
            }
            parts
        });
        let wanted = match place {
            RowPlace::Open { commit, part } => (commit, part),
            RowPlace::Block { .. } => unreachable!("a bug: a block among open rows"),
        };
        let found = parts.binary_search_by_key(&wanted, |(number, rows)| (rows.commit, *number));
        match found {
            Ok(at) => Ok(parts[at].1.clone()),
            Err(_) => Err(invalid(format!(
                "part {} of commit {} has no open rows here",
                wanted.1, wanted.0.0
            ))),
        }
    }
}

/// The first of some ascending rows that is hidden.
fn first_in(hidden: &Positions, mut rows: impl Iterator<Item = u32>) -> Option<u32> {
    let mut runs = hidden.runs().peekable();
    rows.find(|row| {
        while runs.next_if(|run| run.end <= *row).is_some() {}
        runs.peek().is_some_and(|run| run.start <= *row)
    })
}

fn deleted(place: &dyn Display, row: u32) -> Error {
    invalid(format!("{place}: row {row} is deleted"))
}

/// Blocks first, those of a file together; rows of a place ascend.
fn sort_key(row: &RowAddress) -> (bool, u64, u64, u32) {
    match row.place {
        RowPlace::Block { address, .. } => (false, address.file.0, address.offset, row.row),
        RowPlace::Open { commit, part } => (true, commit.0, u64::from(part), row.row),
    }
}

/// Some rows of a part that is in no block.
fn open_rows(
    definition: &TableDefinition,
    ids: &[u32],
    part: &OpenRows,
    wanted: &UInt32Array,
) -> Result<RecordBatch> {
    let count = part.part.rows;
    if let Some(beyond) = wanted.values().iter().find(|row| **row >= count) {
        let message = format!("a part of {count} open rows has no row {beyond}");
        return Err(invalid(message));
    }
    let mut decoder = RowsDecoder::new(definition, Some(ids))?;
    decoder.push(&part.part.payload)?;
    let batch = decoder.finish()?;
    if batch.num_rows() != count as usize {
        let what = "their commit says that they are of another number";
        return Err(damaged("raw rows", what));
    }
    taken(&batch, wanted)
}

fn taken(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    let failed =
        |e| Error::with_source(ErrorKind::Limit, format!("rows by their addresses: {e}"), e);
    let columns = batch
        .columns()
        .iter()
        .map(|column| take(column, rows, None))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).map_err(failed)
}
