//! Unique keys: columns whose values together belong to one row of the table alone.
//!
//! Invariants: a key has 1 to [`MAX_COLUMNS`] columns, each once, in the order in which they were named. Rows are kept apart when they
//! are stored ([`crate::duplicates`]), not when they are read.

use crate::definition::columns::Columns;
use crate::error::{invalid, schema};
use serde::{Deserialize, Serialize};
use thalweg_kernel::Result;

/// Most columns of a unique key.
const MAX_COLUMNS: usize = 16;

pub(crate) const NO_KEY: &str =
    "on_duplicate needs a unique key: give unique, the columns that no two rows share, as well";

/// Which of two rows with one key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// The one that is stored last: it replaces the other one.
    Last,
    /// The one that was stored first: the other one is left out.
    First,
    /// Neither is stored: an error names the key.
    Error,
}

impl OnDuplicate {
    /// Its name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::First => "first",
            Self::Error => "error",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let all = [Self::Last, Self::First, Self::Error];
        let named = all
            .into_iter()
            .find(|rule| rule.name().eq_ignore_ascii_case(text.trim()));
        named.ok_or_else(|| {
            invalid(format!(
                "on_duplicate is \"{text}\"; it must be \"last\", \"first\" or \"error\""
            ))
        })
    }
}

/// The unique key of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniqueKey {
    /// The ids of its columns.
    columns: Vec<u32>,
    on_duplicate: OnDuplicate,
}

impl UniqueKey {
    /// Of columns by their names.
    pub(crate) fn of_names(
        names: &[String],
        on_duplicate: Option<&str>,
        columns: &Columns,
    ) -> Result<Option<Self>> {
        if names.is_empty() {
            return match on_duplicate {
                None => Ok(None),
                Some(_) => Err(invalid(NO_KEY)),
            };
        }
        let id = |name: &String| {
            columns
                .position_named(name)
                .map(|at| columns.as_slice()[at].id)
        };
        let key = Self {
            columns: names.iter().map(id).collect::<Result<_>>()?,
            on_duplicate: OnDuplicate::Error,
        };
        let key = key.with_rule(on_duplicate)?;
        key.check(columns)?;
        Ok(Some(key))
    }

    /// The key with another rule, as users write it.
    pub(crate) fn with_rule(self, rule: Option<&str>) -> Result<Self> {
        // What refuses is what SQL means by a unique key, and loses nothing unasked.
        let on_duplicate = rule.map_or(Ok(OnDuplicate::Error), OnDuplicate::parse)?;
        Ok(Self {
            on_duplicate,
            ..self
        })
    }

    /// Refuses what is no unique key of these columns.
    pub(crate) fn check(&self, columns: &Columns) -> Result<()> {
        let count = self.columns.len();
        if count == 0 || count > MAX_COLUMNS {
            return Err(schema(format!(
                "a unique key has 1 to {MAX_COLUMNS} columns, not {count}"
            )));
        }
        for (at, id) in self.columns.iter().enumerate() {
            let Some(position) = columns.position(*id) else {
                return Err(schema("a column of the unique key does not exist"));
            };
            if self.columns[..at].contains(id) {
                let name = &columns.as_slice()[position].name;
                return Err(schema(format!(
                    "the unique key names the column \"{name}\" twice"
                )));
            }
        }
        Ok(())
    }

    /// The ids of its columns.
    #[must_use]
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Which of two rows with one key is kept.
    #[must_use]
    pub fn on_duplicate(&self) -> OnDuplicate {
        self.on_duplicate
    }
}
