//! The definition of a table: its columns and how its rows are laid out; what the kernel keeps as opaque bytes.
//!
//! Invariants: a [`TableDefinition`] that exists is sound, whether it was created or decoded (one `check` for both):
//! column ids rise, are below `next_column_id` and never used twice; names are unique without regard to case; the time
//! column can order rows and is not nullable; every type is a stored type. The bytes are described in
//! `docs/format/definition.md`.

mod create;
mod stored;

use crate::error::{invalid, limit, schema};
use crate::schema::{MAX_COLUMNS, check_name, fold_name, shown_type, stored_type};
use crate::suggest::did_you_mean;
use crate::system_columns::FIRST_SYSTEM_COLUMN;
use crate::time::{Split, orders_rows};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stored::Stored;
use thalweg_kernel::index::MAX_SUMMARIES;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Rows of a block of a stream, unless told otherwise.
pub const DEFAULT_BLOCK_ROWS: u32 = 4_096;
/// What `block_rows` may be.
pub const BLOCK_ROWS_RANGE: std::ops::RangeInclusive<u32> = 64..=1 << 20;
/// Tables of more columns are summarised only on request.
pub const MAX_SUMMARISED_COLUMNS: usize = 64;

/// How a table's rows are ordered into blocks and found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Timestamped events, ordered by time.
    #[default]
    Stream,
    /// Records with several numerical dimensions.
    Points,
    /// Readings of many sensors on a clock.
    Series,
    /// Dense or sparse grids.
    Array,
}

impl Layout {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("stream", Self::Stream),
        ("points", Self::Points),
        ("series", Self::Series),
        ("array", Self::Array),
    ];

    /// The name users give it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The layout of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse(text: &str) -> Result<Self> {
        let found = Self::NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
        found.map(|(_, layout)| *layout).ok_or_else(|| {
            invalid(format!(
                "\"{text}\" is not a layout: this version offers \"{}\" alone",
                Self::Stream.name()
            ))
        })
    }
}

/// Which columns blocks are summarised by (count, nulls, minimum, maximum, sum, squares).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summaries {
    /// All columns of a table of up to 64, else the time column alone.
    #[default]
    Auto,
    /// All columns.
    All,
    /// No column.
    None,
    /// The columns with these ids, ascending.
    Columns(Vec<u32>),
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Names it in blocks for the life of the table, whatever it is called.
    pub id: u32,
    /// As the user wrote it.
    pub name: String,
    /// A stored type.
    pub data_type: DataType,
    /// Whether it may be null.
    pub nullable: bool,
}

/// The definition of a table.
#[derive(Clone, Debug)]
pub struct TableDefinition {
    layout: Layout,
    time: Option<u32>,
    split: Option<Split>,
    block_rows: u32,
    summaries: Summaries,
    columns: Vec<Column>,
    next_column_id: u32,
    /// What users see; one for the life of the definition, so that batches can be compared by pointer.
    schema: SchemaRef,
    /// Positions by folded name.
    positions: BTreeMap<String, usize>,
    time_position: Option<usize>,
}

impl PartialEq for TableDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.stored() == other.stored()
    }
}

impl TableDefinition {
    /// Checks every invariant and derives what is looked up often.
    fn check(parts: Parts) -> Result<Self> {
        let Parts {
            layout,
            time,
            split,
            block_rows,
            summaries,
            columns,
            next_column_id,
        } = parts;
        if columns.is_empty() {
            return Err(schema("a table needs at least one column"));
        }
        if columns.len() > MAX_COLUMNS {
            return Err(limit(format!("a table has at most {MAX_COLUMNS} columns")));
        }
        if !BLOCK_ROWS_RANGE.contains(&block_rows) {
            let (least, most) = (BLOCK_ROWS_RANGE.start(), BLOCK_ROWS_RANGE.end());
            return Err(invalid(format!(
                "block_rows is {block_rows}; it must lie in {least} to {most}"
            )));
        }
        let rising = columns.windows(2).all(|pair| pair[0].id < pair[1].id);
        if !rising || columns[0].id == 0 || columns[columns.len() - 1].id >= next_column_id {
            return Err(schema("column ids do not rise from 1 to below the next id"));
        }
        if next_column_id > FIRST_SYSTEM_COLUMN {
            return Err(limit(format!(
                "a table has had {} columns and takes no more",
                FIRST_SYSTEM_COLUMN - 1
            )));
        }
        let positions = index_names(&columns)?;
        for column in &columns {
            check_column(column)?;
        }
        let position_of = |id: u32| columns.binary_search_by_key(&id, |column| column.id).ok();
        let time_position =
            time.map(|id| position_of(id).ok_or_else(|| schema("the time column does not exist")));
        let time_position = time_position.transpose()?;
        if time_position
            .is_some_and(|at| columns[at].nullable || !orders_rows(&columns[at].data_type))
        {
            return Err(schema("the time column cannot order rows"));
        }
        if split.is_some() && time.is_none() {
            return Err(schema("a split without a time column"));
        }
        if let Summaries::Columns(ids) = &summaries
            && !(ids.windows(2).all(|pair| pair[0] < pair[1])
                && ids.iter().all(|id| position_of(*id).is_some()))
        {
            return Err(schema("summarised columns do not exist or do not rise"));
        }
        let summarised = match &summaries {
            Summaries::All => columns.len(),
            Summaries::Columns(ids) => ids.len(),
            Summaries::Auto | Summaries::None => 0,
        };
        if summarised > MAX_SUMMARIES {
            return Err(limit(format!(
                "at most {MAX_SUMMARIES} columns can be summarised, not {summarised}"
            )));
        }
        let fields = columns
            .iter()
            .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self {
            layout,
            time,
            split,
            block_rows,
            summaries,
            columns,
            next_column_id,
            schema,
            positions,
            time_position,
        })
    }

    fn into_parts(self) -> Parts {
        Parts {
            layout: self.layout,
            time: self.time,
            split: self.split,
            block_rows: self.block_rows,
            summaries: self.summaries,
            columns: self.columns,
            next_column_id: self.next_column_id,
        }
    }

    /// How rows are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The id of the time column; `None` orders rows by arrival.
    pub fn time(&self) -> Option<u32> {
        self.time
    }

    /// The time column.
    pub fn time_column(&self) -> Option<&Column> {
        self.time_position.map(|position| &self.columns[position])
    }

    /// Where the time column is in the schema.
    pub fn time_position(&self) -> Option<usize> {
        self.time_position
    }

    /// The regular cuts, if any.
    pub fn split(&self) -> Option<Split> {
        self.split
    }

    /// Rows of a full block.
    pub fn block_rows(&self) -> u32 {
        self.block_rows
    }

    /// The columns in the order users see, which is that of their ids.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The id that the next new column gets.
    pub fn next_column_id(&self) -> u32 {
        self.next_column_id
    }

    /// What users see. The same pointer for the life of this definition.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Where the column with this id is.
    pub fn position(&self, id: u32) -> Option<usize> {
        self.columns
            .binary_search_by_key(&id, |column| column.id)
            .ok()
    }

    /// The column with this id.
    pub fn column(&self, id: u32) -> Option<&Column> {
        self.position(id).map(|position| &self.columns[position])
    }

    /// Replaces the number of a column in a message of the kernel by its name: `column 3 (values)` becomes `column "temp" (values)`.
    pub fn with_column_names(&self, what: &str) -> String {
        const COLUMN: &str = "column ";
        let named = || {
            let start = what.find(COLUMN)? + COLUMN.len();
            let digits = what[start..].bytes().take_while(u8::is_ascii_digit).count();
            let (id, rest) = what[start..].split_at(digits);
            let name = &self.column(id.parse().ok()?)?.name;
            Some(format!("{}\"{name}\"{rest}", &what[..start]))
        };
        named().unwrap_or_else(|| what.to_owned())
    }

    /// Where the column of this name, in any case, is.
    ///
    /// # Errors
    /// `NotFound`, listing the columns.
    pub fn position_named(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| {
            let message = format!(
                "there is no column \"{name}\"; {}the columns are {}",
                self.did_you_mean(name),
                self.column_list()
            );
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// As [`Self::position_named`], without the error.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.positions.get(&fold_name(name)).copied()
    }

    /// Whether blocks are summarised by the column at `position`.
    pub fn is_summarised(&self, position: usize) -> bool {
        let Some(column) = self.columns.get(position) else {
            return false;
        };
        match &self.summaries {
            Summaries::Auto => {
                self.columns.len() <= MAX_SUMMARISED_COLUMNS || self.time_position == Some(position)
            }
            Summaries::All => true,
            Summaries::None => false,
            Summaries::Columns(ids) => ids.binary_search(&column.id).is_ok(),
        }
    }

    /// The column that was meant by a name that there is not, for messages.
    pub(crate) fn did_you_mean(&self, name: &str) -> String {
        did_you_mean(name, self.columns.iter().map(|column| column.name.as_str()))
    }

    /// The first columns by name, for messages.
    pub(crate) fn column_list(&self) -> String {
        let mut list = self
            .columns
            .iter()
            .take(20)
            .map(|column| column.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        if self.columns.len() > 20 {
            list.push_str(", ...");
        }
        list
    }

    /// The bytes that the kernel keeps.
    pub fn encode(&self) -> Vec<u8> {
        #[expect(
            clippy::expect_used,
            reason = "strings, integers and lists always have a JSON form"
        )]
        serde_json::to_vec(&self.stored()).expect("a definition has a JSON form")
    }

    /// Reads the bytes of [`Self::encode`] back.
    ///
    /// # Errors
    /// `Unsupported` for what another version has written, `Corruption` for what no version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let parts = Stored::read(bytes)?.into_parts()?;
        Self::check(parts).map_err(|e| Error::corruption("table definition", e))
    }

    fn stored(&self) -> Stored {
        Stored::of(self.clone().into_parts())
    }
}

/// What a definition is made of, unchecked.
struct Parts {
    layout: Layout,
    time: Option<u32>,
    split: Option<Split>,
    block_rows: u32,
    summaries: Summaries,
    columns: Vec<Column>,
    next_column_id: u32,
}

fn check_column(column: &Column) -> Result<()> {
    check_name("column", &column.name)?;
    if stored_type(&column.data_type).as_ref() != Some(&column.data_type) {
        let (name, data_type) = (&column.name, shown_type(&column.data_type));
        return Err(schema(format!(
            "column \"{name}\": {data_type} is not a stored type"
        )));
    }
    Ok(())
}

fn index_names(columns: &[Column]) -> Result<BTreeMap<String, usize>> {
    let mut positions = BTreeMap::new();
    for (position, column) in columns.iter().enumerate() {
        if let Some(first) = positions.insert(fold_name(&column.name), position) {
            let (first, second) = (&columns[first].name, &column.name);
            return Err(schema(format!(
                "the columns \"{first}\" and \"{second}\" have the same name without regard to case"
            )));
        }
    }
    Ok(positions)
}
