//! Definitions of new tables, from the columns and options that a caller asks for.
//!
//! Invariants: columns are numbered from 1 in the order of the schema; what cannot be stored is refused with what to do
//! instead.

use super::{Column, DEFAULT_BLOCK_ROWS, Layout, Parts, Summaries, TableDefinition};
use crate::error::{invalid, limit, schema};
use crate::options::CreateOptions;
use crate::schema::{MAX_COLUMNS, shown_type, stored_type};
use crate::time::{Split, orders_rows};
use arrow_array::timezone::Tz;
use arrow_schema::{DataType, Field, Schema};
use thalweg_kernel::{Error, ErrorKind, Result};

impl TableDefinition {
    /// The definition of a new table with the columns of `schema`.
    ///
    /// # Errors
    /// When a name or type cannot be stored, the time column does not exist or cannot order rows, or the layout is not
    /// offered by this version.
    pub fn create(schema: &Schema, options: &CreateOptions) -> Result<Self> {
        if options.layout != Layout::Stream {
            let message = format!(
                "the layout \"{}\" is not offered by this version; use \"stream\"",
                options.layout.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if schema.fields().len() > MAX_COLUMNS {
            return Err(limit(format!(
                "a table has at most {MAX_COLUMNS} columns, not {}",
                schema.fields().len()
            )));
        }
        let columns = (1..)
            .zip(schema.fields())
            .map(|(id, field)| new_column(id, field))
            .collect::<Result<Vec<_>>>()?;
        let next_column_id = columns.last().map_or(1, |column| column.id + 1);
        let parts = Parts {
            layout: options.layout,
            time: None,
            split: None,
            block_rows: options.block_rows.unwrap_or(DEFAULT_BLOCK_ROWS),
            summaries: Summaries::Auto,
            columns,
            next_column_id,
        };
        let mut definition = Self::check(parts)?;
        if let Some(time) = &options.time {
            definition.set_time(time)?;
        }
        if let Some(split) = &options.split {
            let time = definition.time_column();
            let time =
                time.ok_or_else(|| invalid("split needs a time column: give time as well"))?;
            definition.split = Some(Split::parse(split, &time.data_type)?);
        }
        definition.summaries = options.summaries.resolve(&definition)?;
        Self::check(definition.into_parts())
    }

    fn set_time(&mut self, name: &str) -> Result<()> {
        let position = self.position_named(name)?;
        let column = &mut self.columns[position];
        if !orders_rows(&column.data_type) {
            return Err(schema(format!(
                "the time column \"{}\" is of type {}; it must be an integer, date or timestamp",
                column.name,
                shown_type(&column.data_type)
            )));
        }
        column.nullable = false;
        self.time = Some(column.id);
        self.time_position = Some(position);
        Ok(())
    }
}

/// What to store in place of values of a type that cannot be.
fn instead_of(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Time32(_) | DataType::Time64(_) => {
            ": make timestamps of them with their dates, or text, as CAST(x AS VARCHAR) does in SQL"
        }
        DataType::Struct(_) => ": give each of its fields a column",
        nested if nested.is_nested() => {
            ": give each of its values a row, as unnest(x) does in SQL, or a column"
        }
        _ => "",
    }
}

fn new_column(id: u32, field: &Field) -> Result<Column> {
    if *field.data_type() == DataType::Null {
        return Err(schema(format!(
            "column \"{}\": all of its values are missing, which says nothing of its type: make the table with types first, or cast the column",
            field.name()
        )));
    }
    let data_type = stored_type(field.data_type()).ok_or_else(|| {
        schema(format!(
            "column \"{}\": the type {} cannot be stored; what can are numbers, decimals, booleans, strings, binaries, dates, \
             times with a date and durations{}",
            field.name(),
            shown_type(field.data_type()),
            instead_of(field.data_type())
        ))
    })?;
    if let DataType::Timestamp(_, Some(zone)) = &data_type
        && zone.parse::<Tz>().is_err()
    {
        return Err(schema(format!(
            "column \"{}\": there is no time zone \"{zone}\": write a name like Europe/Berlin, an offset like +01:00, or UTC",
            field.name()
        )));
    }
    Ok(Column {
        id,
        name: field.name().clone(),
        data_type,
        nullable: field.is_nullable(),
    })
}
