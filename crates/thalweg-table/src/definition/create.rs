//! Definitions of new tables, from the columns and options that a caller asks for.
//!
//! Invariants: columns are numbered from 1 in the order of the schema; what cannot be stored is refused with what to do
//! instead.

use super::TableDefinition;
use super::columns::{Column, Columns};
use crate::error::{invalid, limit, schema};
use crate::layout::LayoutOptions;
use crate::layouts::Layouts;
use crate::options::CreateOptions;
use crate::retention::Retention;
use crate::schema::{MAX_COLUMNS, shown_type, stored_type};
use crate::unique::UniqueKey;
use arrow_array::timezone::Tz;
use arrow_schema::{DataType, Field, Schema};
use thalweg_kernel::Result;

impl TableDefinition {
    /// The definition of a new table with the columns of `schema`, in one of these layouts.
    ///
    /// # Errors
    /// When a name or type cannot be stored, the layout or an option is not offered by this version, or the columns do not suit
    /// the layout.
    pub fn create(layouts: &Layouts, schema: &Schema, options: &CreateOptions) -> Result<Self> {
        let layout = options.layout_of(layouts)?;
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
        let next_id = columns.last().map_or(1, |column| column.id + 1);
        let mut columns = Columns::new(columns, next_id)?;
        for (name, default) in &options.defaults {
            let position = columns.position_named(name)?;
            columns.set_default(position, default.clone())?;
        }
        let given = LayoutOptions::new(&options.layout_options);
        let arrangement = layout.arrange(&given, &mut columns)?;
        let summaries = options.summaries.resolve(&columns)?;
        let retention = options.retention.as_deref().map(|text| {
            let time = arrangement.order().ok_or_else(|| {
                invalid("retention needs a time column, by which rows are older than others")
            })?;
            Retention::parse(text, &columns.as_slice()[time].data_type)
        });
        let unique =
            UniqueKey::of_names(&options.unique, options.on_duplicate.as_deref(), &columns)?;
        let kept = (retention.transpose()?, unique);
        Self::new(columns, arrangement, summaries, kept)
    }
}

/// Advice on what to store in place of values of a type that cannot be stored.
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

pub(super) fn new_column(id: u32, field: &Field) -> Result<Column> {
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
        default: None,
        fill: None,
    })
}
