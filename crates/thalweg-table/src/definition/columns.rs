//! The columns of a table, by their places, ids and names.
//!
//! Invariants: ids rise from column to column and are below the next one; names are unique without regard to case; every type is
//! a stored type.

use crate::constant::Constant;
use crate::error::{limit, schema};
use crate::schema::{MAX_COLUMNS, check_name, fold_name, shown_type, stored_type};
use crate::suggest::did_you_mean;
use crate::system_columns::FIRST_SYSTEM_COLUMN;
use arrow_schema::DataType;
use std::collections::BTreeMap;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Most bytes of the text of a default: rows that are read without it take as many each.
const MAX_DEFAULT_BYTES: usize = 4 * 1024;
/// Columns that a message lists.
const MAX_LISTED: usize = 20;

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
    /// The value of rows that are stored without it; `None`: null.
    pub default: Option<Constant>,
    /// The value of rows that were stored before the column was there; `None`: null.
    pub fill: Option<Constant>,
}

/// The columns of a table, in the order users see, which is that of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    all: Vec<Column>,
    next_id: u32,
    /// Places by folded name.
    places: BTreeMap<String, usize>,
}

impl Columns {
    /// # Errors
    /// When they are none or too many, their ids do not rise or reach the next one, or a name or type cannot be.
    pub(super) fn new(all: Vec<Column>, next_id: u32) -> Result<Self> {
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return Err(schema("a table needs at least one column"));
        };
        if all.len() > MAX_COLUMNS {
            return Err(limit(format!("a table has at most {MAX_COLUMNS} columns")));
        }
        let rising = all.windows(2).all(|pair| pair[0].id < pair[1].id);
        if !rising || first.id == 0 || last.id >= next_id {
            return Err(schema("column ids do not rise from 1 to below the next id"));
        }
        if next_id > FIRST_SYSTEM_COLUMN {
            return Err(limit(format!(
                "a table has had {} columns and takes no more",
                FIRST_SYSTEM_COLUMN - 1
            )));
        }
        let places = index_names(&all)?;
        all.iter().try_for_each(check_column)?;
        Ok(Self {
            all,
            next_id,
            places,
        })
    }

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[Column] {
        &self.all
    }

    /// The id that the next new column gets.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Where the column with this id is.
    #[must_use]
    pub fn position(&self, id: u32) -> Option<usize> {
        self.all.binary_search_by_key(&id, |column| column.id).ok()
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
                self.list()
            );
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// Makes the column at `position` one that may not be null.
    ///
    /// # Panics
    /// When there is no column there.
    pub fn refuse_nulls(&mut self, position: usize) {
        self.all[position].nullable = false;
    }

    /// Sets what rows have that are stored without the column at `position`.
    ///
    /// # Errors
    /// `Schema` for what is no value of its type.
    ///
    /// # Panics
    /// When there is no column there.
    pub(super) fn set_default(&mut self, position: usize, default: Constant) -> Result<()> {
        let column = &mut self.all[position];
        column.default = Some(default);
        check_column(column)
    }

    /// As [`Self::position_named`], without the error.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(&fold_name(name)).copied()
    }

    /// The column that was meant by a name that there is not, for messages.
    pub(crate) fn did_you_mean(&self, name: &str) -> String {
        did_you_mean(name, self.all.iter().map(|column| column.name.as_str()))
    }

    /// The first columns by name, for messages.
    pub(crate) fn list(&self) -> String {
        let names = self.all.iter().map(|column| column.name.as_str());
        let mut list = names.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
        if self.all.len() > MAX_LISTED {
            list.push_str(", ...");
        }
        list
    }
}

fn check_column(column: &Column) -> Result<()> {
    check_name("column", &column.name)?;
    if stored_type(&column.data_type).as_ref() != Some(&column.data_type) {
        let (name, data_type) = (&column.name, shown_type(&column.data_type));
        return Err(schema(format!(
            "column \"{name}\": {data_type} is not a stored type"
        )));
    }
    for constant in column.default.iter().chain(&column.fill) {
        if constant.as_str().len() > MAX_DEFAULT_BYTES {
            let name = &column.name;
            return Err(limit(format!(
                "column \"{name}\": a default has at most {MAX_DEFAULT_BYTES} bytes"
            )));
        }
        if constant.bytes(&column.data_type).is_none() {
            let (name, data_type) = (&column.name, shown_type(&column.data_type));
            return Err(schema(format!(
                "column \"{name}\": a default is no value of {data_type}"
            )));
        }
    }
    Ok(())
}

fn index_names(columns: &[Column]) -> Result<BTreeMap<String, usize>> {
    let mut places = BTreeMap::new();
    for (place, column) in columns.iter().enumerate() {
        if let Some(first) = places.insert(fold_name(&column.name), place) {
            let (first, second) = (&columns[first].name, &column.name);
            return Err(schema(format!(
                "the columns \"{first}\" and \"{second}\" have the same name without regard to case"
            )));
        }
    }
    Ok(places)
}
