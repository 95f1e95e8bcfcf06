//! Changes of definitions: columns that come, go and get other names, wider types and defaults; options with other values.
//!
//! Invariants: no block is rewritten for a change. A column keeps its id, under which blocks and raw rows have it; an id is never given
//! again, so that a new column does not show values of one that was dropped. The columns that keys are computed from stay.

use super::columns::Columns;
use super::create::new_column;
use super::{Summaries, TableDefinition};
use crate::constant::Constant;
use crate::error::schema;
use crate::schema::{element_type, shown_type, stored_type, widens};
use arrow_schema::{DataType, Field};
use thalweg_kernel::{Error, ErrorKind, Result};

/// A change of the columns or the options of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// A new column, the last one. Rows that are there have its default.
    AddColumn {
        /// Its name, its type and whether it may be null.
        field: Field,
        /// The value of rows that are stored without it; `None`: null.
        default: Option<Constant>,
        /// Whether to do nothing, instead of an error, if a column of this name exists.
        if_not_exists: bool,
    },
    /// A column that goes, with its values.
    DropColumn {
        /// Its name, in any case.
        name: String,
        /// Without a column of this name there is nothing to do.
        if_exists: bool,
    },
    /// Another name for a column.
    RenameColumn {
        /// Its name, in any case.
        name: String,
        /// Its name from then on.
        to: String,
    },
    /// A wider type of the same kind: of integers with a sign, of those without, of floats.
    WidenColumn {
        /// Its name, in any case.
        name: String,
        /// The type.
        data_type: DataType,
    },
    /// Another value for rows that are stored without the column from then on; `None`: null.
    SetDefault {
        /// Its name, in any case.
        name: String,
        /// The value.
        default: Option<Constant>,
        /// The type that it is a value of: a column of another type is refused.
        data_type: DataType,
    },
    /// The column may be null from then on.
    AllowNulls {
        /// Its name, in any case.
        name: String,
    },
    /// Another value of an option of the table.
    SetOption {
        /// The name of the option, in any case.
        name: String,
        /// Its value, as in [`crate::CreateOptions`]; `None`: the default.
        value: Option<String>,
    },
}

impl TableDefinition {
    /// The definition after some changes, one after the other; `None`: they change nothing.
    ///
    /// # Errors
    /// `NotFound` for a column that there is not, `AlreadyExists` for a name that is taken; `Schema` for what a column cannot become,
    /// and for columns that the layout needs; `Limit` for too many columns.
    pub fn altered(&self, alterations: &[Alteration]) -> Result<Option<Self>> {
        let mut altered: Option<Self> = None;
        for alteration in alterations {
            let now = altered.as_ref().unwrap_or(self);
            if let Some(next) = now.altered_once(alteration)? {
                altered = Some(next);
            }
        }
        Ok(altered.filter(|altered| altered != self))
    }

    fn altered_once(&self, alteration: &Alteration) -> Result<Option<Self>> {
        let mut columns = self.columns().to_vec();
        let mut next_id = self.next_column_id();
        match alteration {
            Alteration::AddColumn {
                field,
                default,
                if_not_exists,
            } => {
                if self.find(field.name()).is_some() {
                    return match if_not_exists {
                        true => Ok(None),
                        false => Err(taken(field.name())),
                    };
                }
                let mut column = new_column(next_id, field)?;
                if default.is_none() && !column.nullable {
                    return Err(schema(format!(
                        "column \"{}\": rows that are there have no value for it: give a DEFAULT, or let it be null",
                        column.name
                    )));
                }
                column.default.clone_from(default);
                column.fill.clone_from(default);
                columns.push(column);
                next_id += 1;
            }
            Alteration::DropColumn { name, if_exists } => {
                if *if_exists && self.find(name).is_none() {
                    return Ok(None);
                }
                let position = self.position_named(name)?;
                self.refuse_keys(position, "dropped")?;
                self.refuse_unique(position, "dropped")?;
                if columns.len() == 1 {
                    return Err(schema(format!(
                        "the column \"{}\" is the only one: a table needs at least one column",
                        columns[position].name
                    )));
                }
                columns.remove(position);
            }
            Alteration::RenameColumn { name, to } => {
                let position = self.position_named(name)?;
                if self.find(to).is_some_and(|other| other != position) {
                    return Err(taken(to));
                }
                columns[position].name.clone_from(to);
            }
            Alteration::WidenColumn { name, data_type } => {
                let position = self.position_named(name)?;
                let column = &mut columns[position];
                let wider =
                    stored_type(data_type).filter(|wider| is_wider(&column.data_type, wider));
                let Some(wider) = wider else {
                    return Err(schema(format!(
                        "the column \"{}\" is {} and does not become {}: integers with a sign, integers without and floats become wider ones \
                         of their kind; for others store the rows in another table, by CREATE TABLE AS",
                        column.name,
                        shown_type(&column.data_type),
                        shown_type(data_type)
                    )));
                };
                if column.data_type != wider {
                    self.refuse_keys(position, "of another type")?;
                }
                column.data_type = wider;
            }
            Alteration::SetDefault {
                name,
                default,
                data_type,
            } => {
                let position = self.position_named(name)?;
                if default.is_some() && columns[position].data_type != *data_type {
                    let name = &columns[position].name;
                    let message =
                        format!("the column \"{name}\" changed meanwhile: set its default again");
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                columns[position].default.clone_from(default);
            }
            Alteration::AllowNulls { name } => {
                let position = self.position_named(name)?;
                self.refuse_keys(position, "null")?;
                self.refuse_unique(position, "null")?;
                columns[position].nullable = true;
            }
            Alteration::SetOption { name, value } => {
                return self.with_option(name, value.as_deref()).map(Some);
            }
        }
        let columns = Columns::new(columns, next_id)?;
        let arrangement = self.layout().read(&self.arrangement.stored(), &columns)?;
        let summaries = match &self.summaries {
            Summaries::Columns(ids) => {
                let left = ids.iter().filter(|id| columns.position(**id).is_some());
                Summaries::Columns(left.copied().collect())
            }
            other => other.clone(),
        };
        // The column of its times is one that keys are computed from, and stays as it is.
        let kept = (self.retention, self.unique.clone());
        Self::new(columns, arrangement, summaries, kept).map(Some)
    }

    /// Refuses a change of a column of the unique key: the others need not be unique without it, and those of a primary key are not null.
    fn refuse_unique(&self, position: usize, change: &str) -> Result<()> {
        let column = &self.columns()[position];
        let unique = self.unique.as_ref();
        if !unique.is_some_and(|unique| unique.columns().contains(&column.id)) {
            return Ok(());
        }
        Err(schema(format!(
            "the column \"{}\" belongs to the unique key of the table and cannot be {change}",
            column.name
        )))
    }

    /// Refuses a change of a column that keys are computed from.
    fn refuse_keys(&self, position: usize, change: &str) -> Result<()> {
        if !self.arrangement.key_columns().contains(&position) {
            return Ok(());
        }
        let name = &self.columns()[position].name;
        let role = self
            .arrangement
            .role(position)
            .unwrap_or("a column that rows lie in order of");
        Err(schema(format!(
            "\"{name}\" is {role} and cannot be {change}"
        )))
    }
}

fn taken(name: &str) -> Error {
    let message = format!("there is a column \"{name}\" already");
    Error::new(ErrorKind::AlreadyExists, message)
}

/// Returns whether `to` is the type `from` or a wider one of the same kind, so that blocks written with `from` can be read as `to`.
fn is_wider(from: &DataType, to: &DataType) -> bool {
    let is_number = |data_type: &DataType| data_type.is_integer() || data_type.is_floating();
    from == to
        || (is_number(from)
            && is_number(to)
            && element_type(from)
                .zip(element_type(to))
                .is_some_and(|(from, to)| widens(from, to)))
}
