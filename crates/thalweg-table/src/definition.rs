//! The definition of a table: its columns and how its rows are laid out; what the kernel keeps as opaque bytes.
//!
//! Invariants: a [`TableDefinition`] that exists is sound, whether it was created or decoded: its columns are, its layout has
//! arranged them, the summarised ones and those of a unique key exist, and a retention has a column of times that orders the rows. The bytes are described in `docs/format/definition.md`.

mod alter;
pub(crate) mod columns;
mod create;
mod set_options;
mod stored;

pub use alter::Alteration;
pub use columns::{Column, Columns};

use crate::error::{limit, schema};
use crate::layout::{Arrangement, Layout};
use crate::layouts::Layouts;
use crate::name_lists::list_of;
use crate::retention::Retention;
use crate::unique::UniqueKey;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thalweg_kernel::Result;
use thalweg_kernel::index::MAX_SUMMARIES;

/// Tables of more columns are summarised only on request.
pub const MAX_SUMMARISED_COLUMNS: usize = 64;

/// Which columns blocks are summarised by (count, nulls, minimum, maximum, sum, squares).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summaries {
    /// All columns if the table has at most 64, else only those that keys are computed from.
    #[default]
    Auto,
    /// All columns.
    All,
    /// No column.
    None,
    /// The columns with these ids, ascending.
    Columns(Vec<u32>),
}

/// The definition of a table.
///
/// ```
/// # fn main() -> thalweg_table::Result<()> {
/// use thalweg_table::{CreateOptions, Layouts, TableDefinition, schema::schema_of_names};
///
/// let schema = schema_of_names([("ts", "timestamp"), ("temp", "double"), ("note", "varchar")])?;
/// let options = CreateOptions::stream("ts").with("summaries", "temp");
/// let definition = TableDefinition::create(&Layouts::default(), &schema, &options)?;
/// assert_eq!(definition.order_position(), Some(0));
/// assert!(!definition.columns()[0].nullable); // the time of a row is never null
/// assert!(definition.is_summarised(1) && !definition.is_summarised(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TableDefinition {
    columns: Columns,
    arrangement: Arc<dyn Arrangement>,
    summaries: Summaries,
    retention: Option<Retention>,
    unique: Option<UniqueKey>,
    /// The schema that users see; one for the life of the definition, so that batches can be compared by pointer.
    schema: SchemaRef,
    /// The ids of the columns that keys are computed from.
    key_ids: Vec<u32>,
}

impl PartialEq for TableDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }
}

impl TableDefinition {
    fn new(
        columns: Columns,
        arrangement: Arc<dyn Arrangement>,
        summaries: Summaries,
        (retention, unique): (Option<Retention>, Option<UniqueKey>),
    ) -> Result<Self> {
        if let Some(unique) = &unique {
            unique.check(&columns)?;
        }
        let all = columns.as_slice();
        if let Summaries::Columns(ids) = &summaries
            && !(ids.windows(2).all(|pair| pair[0] < pair[1])
                && ids.iter().all(|id| columns.position(*id).is_some()))
        {
            return Err(schema("summarised columns do not exist or do not rise"));
        }
        let summarised = match &summaries {
            Summaries::All => all.len(),
            Summaries::Columns(ids) => ids.len(),
            Summaries::Auto | Summaries::None => 0,
        };
        if summarised > MAX_SUMMARIES {
            return Err(limit(format!(
                "at most {MAX_SUMMARIES} columns can be summarised, not {summarised}"
            )));
        }
        let fields = all
            .iter()
            .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let key_ids = arrangement.key_columns().iter().map(|at| all[*at].id);
        Ok(Self {
            key_ids: key_ids.collect(),
            schema,
            columns,
            arrangement,
            summaries,
            retention,
            unique,
        })
    }

    /// The layout.
    pub fn layout(&self) -> &dyn Layout {
        self.arrangement.layout()
    }

    /// How the layout orders the rows.
    pub fn arrangement(&self) -> &dyn Arrangement {
        &*self.arrangement
    }

    /// The options that make a table of the same layout, without those at their defaults.
    pub fn layout_options(&self) -> Vec<(&'static str, String)> {
        self.arrangement.options(&self.columns)
    }

    /// The names and values of all options that a table like this is created with, those of its layout included; defaults may be
    /// left out.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![("layout", self.layout().name().to_owned())];
        options.extend(self.layout_options());
        let named = |id: &u32| { self.position(*id) }.map(|at| &*self.columns()[at].name);
        let summaries = match &self.summaries {
            Summaries::Auto => None,
            Summaries::All => Some("all".to_owned()),
            Summaries::None => Some("none".to_owned()),
            Summaries::Columns(ids) => Some(list_of(ids.iter().filter_map(named))),
        };
        options.extend(summaries.map(|summaries| ("summaries", summaries)));
        let retention = self.retention.map(Retention::to_text);
        options.extend(retention.map(|retention| ("retention", retention)));
        if let Some(unique) = &self.unique {
            let names = unique.columns().iter().filter_map(named);
            options.push(("unique", list_of(names)));
            options.push(("on_duplicate", unique.on_duplicate().name().to_owned()));
        }
        options
    }

    /// The column whose values are the order keys, if there is one: rows come in its order.
    pub fn order_column(&self) -> Option<&Column> {
        self.order_position()
            .map(|position| &self.columns()[position])
    }

    /// Where it is in the schema.
    pub fn order_position(&self) -> Option<usize> {
        self.arrangement.order()
    }

    /// For how long rows stay, if not until they are deleted.
    pub fn retention(&self) -> Option<Retention> {
        self.retention
    }

    /// The columns whose values together belong to one row alone, if there are such.
    pub fn unique(&self) -> Option<&UniqueKey> {
        self.unique.as_ref()
    }

    /// The ids of the columns that keys are computed from; none where rows are ordered by arrival alone.
    pub(crate) fn key_ids(&self) -> &[u32] {
        &self.key_ids
    }

    /// The order keys of rows of this table.
    ///
    /// # Errors
    /// When the key columns are of other types than those of the table.
    pub(crate) fn keys_of(&self, batch: &RecordBatch) -> Result<ScalarBuffer<i64>> {
        let columns = self.arrangement.key_columns().iter();
        let columns: Vec<ArrayRef> = columns.map(|at| Arc::clone(batch.column(*at))).collect();
        self.arrangement.keys(&columns, batch.num_rows())
    }

    /// Rows of a full block.
    pub fn block_rows(&self) -> u32 {
        self.arrangement.block_rows()
    }

    /// The columns in the order users see, which is that of their ids.
    pub fn columns(&self) -> &[Column] {
        self.columns.as_slice()
    }

    /// The id that the next new column gets.
    pub fn next_column_id(&self) -> u32 {
        self.columns.next_id()
    }

    /// The schema that users see. The same pointer for the life of this definition.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Where the column with this id is.
    pub fn position(&self, id: u32) -> Option<usize> {
        self.columns.position(id)
    }

    /// The column with this id.
    pub fn column(&self, id: u32) -> Option<&Column> {
        self.position(id).map(|position| &self.columns()[position])
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
        self.columns.position_named(name)
    }

    /// As [`Self::position_named`], without the error.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.columns.find(name)
    }

    /// Whether blocks are summarised by the column at `position`.
    pub fn is_summarised(&self, position: usize) -> bool {
        let Some(column) = self.columns().get(position) else {
            return false;
        };
        match &self.summaries {
            Summaries::Auto => {
                self.columns().len() <= MAX_SUMMARISED_COLUMNS
                    || self.arrangement.key_columns().contains(&position)
            }
            Summaries::All => true,
            Summaries::None => false,
            Summaries::Columns(ids) => ids.binary_search(&column.id).is_ok(),
        }
    }

    /// The column that was meant by a name that there is not, for messages.
    pub(crate) fn did_you_mean(&self, name: &str) -> String {
        self.columns.did_you_mean(name)
    }

    /// The first columns by name, for messages.
    pub(crate) fn column_list(&self) -> String {
        self.columns.list()
    }

    /// The bytes that the kernel keeps.
    pub fn encode(&self) -> Vec<u8> {
        stored::write(self)
    }

    /// Reads the bytes of [`Self::encode`] back.
    ///
    /// # Errors
    /// `Unsupported` for what another version has written, `Corruption` for what no version writes.
    pub fn decode(layouts: &Layouts, bytes: &[u8]) -> Result<Self> {
        stored::read(layouts, bytes)
    }
}
