//! The stored form of a definition: JSON (`docs/format/definition.md`).
//!
//! Invariants: all fields are always written, in the order of the page. What the page lists and this version does not offer is
//! unsupported, and never read by half. What the layout stores is read by the layout.

use super::columns::{Column, Columns};
use super::{Summaries, TableDefinition};
use crate::constant::Constant;
use crate::json::{self, damaged, newer};
use crate::layouts::Layouts;
use crate::retention::Retention;
use crate::schema::{parse_type, type_name};
use crate::unique::UniqueKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The version of the stored form that this code writes, and the only one it reads.
const VERSION: u32 = 1;
/// The level that the writer of a block chooses.
const CODEC_AUTO: &str = "auto";

/// Only the version, whatever else is there.
#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    layout: Box<RawValue>,
    summaries: Summaries,
    unique: Option<UniqueKey>,
    indexes: Vec<Value>,
    filters: Vec<Value>,
    retention: Option<StoredRetention>,
    next_column_id: u32,
    columns: Vec<StoredColumn>,
}

/// Only the name of the layout, whatever else is there.
#[derive(Deserialize)]
struct StoredKind {
    kind: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRetention {
    /// The column of times.
    column: u32,
    /// The period in its unit.
    age: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredColumn {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    nullable: bool,
    default: Option<String>,
    fill: Option<String>,
    codec: Value,
}

/// The stored form of a definition.
pub(super) fn write(definition: &TableDefinition) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "that it is JSON is what the trait asks of layouts"
    )]
    let layout = RawValue::from_string(definition.arrangement.stored()).expect("it is JSON");
    let retention = definition.retention.zip(definition.order_column());
    let stored = Stored {
        version: VERSION,
        layout,
        summaries: definition.summaries.clone(),
        unique: definition.unique.clone(),
        indexes: Vec::new(),
        filters: Vec::new(),
        retention: retention.map(|(retention, column)| StoredRetention {
            column: column.id,
            age: retention.age(),
        }),
        next_column_id: definition.columns.next_id(),
        columns: definition.columns().iter().map(StoredColumn::of).collect(),
    };
    json::write(&stored).into_bytes()
}

/// Reads what [`write()`] wrote, for the layouts of a database.
pub(super) fn read(layouts: &Layouts, bytes: &[u8]) -> Result<TableDefinition> {
    let text = std::str::from_utf8(bytes).map_err(damaged)?;
    let version: StoredVersion = serde_json::from_str(text).map_err(damaged)?;
    if version.version != VERSION {
        let message = format!(
            "the table definition has version {}; this version of Thalweg reads version {VERSION}",
            version.version
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let stored: Stored = json::read(text)?;
    let layout = stored.layout.get();
    let StoredKind { kind } = serde_json::from_str(layout).map_err(damaged)?;
    let known = layouts.stored(&kind);
    let known = known.ok_or_else(|| newer(format_args!("the layout \"{kind}\"")))?;
    let unoffered = [
        ("indexes", !stored.indexes.is_empty()),
        ("filters", !stored.filters.is_empty()),
    ];
    if let Some((what, _)) = unoffered.into_iter().find(|(_, is_there)| *is_there) {
        return Err(newer(what));
    }
    let columns = stored.columns.into_iter().map(StoredColumn::into_column);
    let columns = columns.collect::<Result<_>>()?;
    let columns = Columns::new(columns, stored.next_column_id).map_err(damaged)?;
    let arrangement = known.read(layout, &columns).map_err(as_damage)?;
    let retention = stored.retention.map(|retention| {
        let time = arrangement.order().map(|place| &columns.as_slice()[place]);
        retention.into_retention(time, &columns)
    });
    let (summaries, retention) = (stored.summaries, retention.transpose()?);
    let kept = (retention, stored.unique);
    TableDefinition::new(columns, arrangement, summaries, kept).map_err(damaged)
}

/// Makes errors of a layout ones of damage, but for those of a newer version.
fn as_damage(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::Corruption => error,
        _ => damaged(error),
    }
}

impl StoredRetention {
    /// The retention of a table whose rows are in order of `time`.
    fn into_retention(self, time: Option<&Column>, columns: &Columns) -> Result<Retention> {
        if columns.position(self.column).is_none() || self.age <= 0 {
            return Err(damaged("a retention without its column, or of no time"));
        }
        let time = time.filter(|time| time.id == self.column);
        let retention = time.and_then(|time| Retention::new(self.age, &time.data_type).ok());
        retention.ok_or_else(|| newer("retention by a column without a unit of time"))
    }
}

impl StoredColumn {
    fn of(column: &Column) -> Self {
        Self {
            id: column.id,
            name: column.name.clone(),
            type_name: type_name(&column.data_type),
            nullable: column.nullable,
            default: { column.default.as_ref() }.map(|default| default.as_str().to_owned()),
            fill: column.fill.as_ref().map(|fill| fill.as_str().to_owned()),
            codec: Value::from(CODEC_AUTO),
        }
    }

    fn into_column(self) -> Result<Column> {
        if self.codec != CODEC_AUTO {
            return Err(newer(format_args!("a codec for column \"{}\"", self.name)));
        }
        let data_type = parse_type(&self.type_name)
            .map_err(|_| newer(format_args!("a column of type \"{}\"", self.type_name)))?;
        Ok(Column {
            id: self.id,
            name: self.name,
            data_type,
            nullable: self.nullable,
            default: self.default.map(Constant::of_text),
            fill: self.fill.map(Constant::of_text),
        })
    }
}
