//! Options of a table that is there: which of them may change, and to what.
//!
//! Invariants: no block is rewritten for a change, so options that say in which order rows lie in blocks, and where blocks end, stay. A
//! change holds for blocks that are written from then on; those that are there may be larger or smaller, and have other summaries:
//! readers take each block as it is.

use super::TableDefinition;
use crate::error::{invalid, schema};
use crate::layout::LayoutOptions;
use crate::options::{COMMON, CreateOptions, check_names};
use crate::retention::Retention;
use crate::unique::NO_KEY;
use thalweg_kernel::Result;

impl TableDefinition {
    /// The definition with another value of an option, or its default.
    pub(super) fn with_option(&self, name: &str, value: Option<&str>) -> Result<Self> {
        let name = name.trim().to_lowercase();
        let (mut arrangement, mut summaries) = (self.arrangement.clone(), self.summaries.clone());
        let (mut retention, mut unique) = (self.retention, self.unique.clone());
        match name.as_str() {
            "retention" => {
                let parse = |text| {
                    let time = self.order_column().ok_or_else(|| {
                        invalid(
                            "retention needs a time column, by which rows are older than others",
                        )
                    })?;
                    Retention::parse(text, &time.data_type)
                };
                retention = value.map(parse).transpose()?;
            }
            "on_duplicate" => {
                let key = unique.ok_or_else(|| invalid(NO_KEY))?;
                unique = Some(key.with_rule(value)?);
            }
            "unique" => {
                return Err(schema(
                    "the unique key cannot change: rows that are there may share other keys; CREATE TABLE ... WITH (unique = ...) \
                     AS SELECT stores the rows in a table with another one",
                ));
            }
            "summaries" => {
                let given = CreateOptions::default().with("summaries", value.unwrap_or_default());
                summaries = given.summaries.resolve(&self.columns)?;
            }
            "block_rows" => {
                let given = value.map(|value| (name.clone(), value.to_owned()));
                let block_rows = LayoutOptions::new(given.as_slice()).block_rows()?;
                let changed = arrangement.with_block_rows(block_rows);
                arrangement = changed.ok_or_else(|| stays(&name))?;
            }
            common if COMMON.contains(&common) => return Err(stays(&name)),
            _ => {
                check_names(self.layout(), &[(name.clone(), String::new())])?;
                return Err(stays(&name));
            }
        }
        let kept = (retention, unique);
        Self::new(self.columns.clone(), arrangement, summaries, kept)
    }
}

fn stays(name: &str) -> thalweg_kernel::Error {
    schema(format!(
        "the option \"{name}\" cannot change: the blocks that are there were written by it; CREATE TABLE ... WITH (...) AS SELECT stores \
         the rows in a table with another value"
    ))
}
