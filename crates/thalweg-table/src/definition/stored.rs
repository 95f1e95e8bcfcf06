//! The stored form of a definition: JSON (`docs/format/definition.md`).
//!
//! Invariants: all fields are always written, in the order of the page. What the page does not list is of a newer version,
//! and unsupported; what it lists and this version does not offer is unsupported too, and never read by half.

use super::{Column, Layout, Parts, Summaries};
use crate::schema::{parse_type, type_name};
use crate::time::Split;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;
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

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    version: u32,
    layout: StoredLayout,
    summaries: Summaries,
    unique: Option<Value>,
    indexes: Vec<Value>,
    filters: Vec<Value>,
    retention: Option<Value>,
    next_column_id: u32,
    columns: Vec<StoredColumn>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLayout {
    kind: StoredKind,
    time: Option<u32>,
    split: Option<StoredSplit>,
    block_rows: u32,
}

/// The kinds whose options this version knows.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredKind {
    Stream,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSplit {
    every: i64,
    origin: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredColumn {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    nullable: bool,
    default: Option<Value>,
    fill: Option<Value>,
    codec: Value,
}

fn damaged(reason: impl Display) -> Error {
    Error::corruption("table definition", reason)
}

fn newer(what: impl Display) -> Error {
    let message = format!(
        "the table definition has {what}, which this version of Thalweg does not offer: open the database with a newer one"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// What a field, kind or word that is not listed leads to, and what does not fit the page.
fn classified(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let is_unknown = ["unknown field", "unknown variant"]
        .iter()
        .any(|start| text.starts_with(start));
    if is_unknown {
        newer(format_args!("an {text}"))
    } else {
        damaged(text)
    }
}

impl Stored {
    pub(super) fn of(parts: Parts) -> Self {
        debug_assert_eq!(parts.layout, Layout::Stream, "no other layout is made");
        let split = parts.split.map(|split| StoredSplit {
            every: split.every(),
            origin: split.origin(),
        });
        Self {
            version: VERSION,
            layout: StoredLayout {
                kind: StoredKind::Stream,
                time: parts.time,
                split,
                block_rows: parts.block_rows,
            },
            summaries: parts.summaries,
            unique: None,
            indexes: Vec::new(),
            filters: Vec::new(),
            retention: None,
            next_column_id: parts.next_column_id,
            columns: parts.columns.into_iter().map(StoredColumn::of).collect(),
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let version: StoredVersion = serde_json::from_slice(bytes).map_err(damaged)?;
        if version.version != VERSION {
            let message = format!(
                "the table definition has version {}; this version of Thalweg reads version {VERSION}",
                version.version
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        serde_json::from_slice(bytes).map_err(|error| classified(&error))
    }

    pub(super) fn into_parts(self) -> Result<Parts> {
        let unoffered = [
            ("unique columns", self.unique.is_some()),
            ("indexes", !self.indexes.is_empty()),
            ("filters", !self.filters.is_empty()),
            ("retention", self.retention.is_some()),
        ];
        if let Some((what, _)) = unoffered.into_iter().find(|(_, is_there)| *is_there) {
            return Err(newer(what));
        }
        let layout = self.layout;
        let split = layout
            .split
            .map(|split| Split::new(split.every, split.origin));
        let columns = self.columns.into_iter().map(StoredColumn::into_column);
        Ok(Parts {
            layout: match layout.kind {
                StoredKind::Stream => Layout::Stream,
            },
            time: layout.time,
            split: split.transpose().map_err(damaged)?,
            block_rows: layout.block_rows,
            summaries: self.summaries,
            columns: columns.collect::<Result<_>>()?,
            next_column_id: self.next_column_id,
        })
    }
}

impl StoredColumn {
    fn of(column: Column) -> Self {
        let Column {
            id,
            name,
            data_type,
            nullable,
        } = column;
        Self {
            id,
            name,
            type_name: type_name(&data_type),
            nullable,
            default: None,
            fill: None,
            codec: Value::from(CODEC_AUTO),
        }
    }

    fn into_column(self) -> Result<Column> {
        let unoffered = [
            ("a default", self.default.is_some()),
            (
                "a value for rows that were stored before it",
                self.fill.is_some(),
            ),
            ("a codec", self.codec != CODEC_AUTO),
        ];
        if let Some((what, _)) = unoffered.into_iter().find(|(_, is_there)| *is_there) {
            return Err(newer(format_args!("{what} for column \"{}\"", self.name)));
        }
        let data_type = parse_type(&self.type_name)
            .map_err(|_| newer(format_args!("a column of type \"{}\"", self.type_name)))?;
        Ok(Column {
            id: self.id,
            name: self.name,
            data_type,
            nullable: self.nullable,
        })
    }
}
