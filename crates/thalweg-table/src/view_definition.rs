//! The definition of a view: the text of a query, and names for its columns (`docs/format/definition.md`).
//!
//! Invariant: the first bytes tell a view from a table, so that lists of many tables read no definition.

use crate::json::{self, damaged, newer};
use serde::{Deserialize, Serialize};
use thalweg_kernel::{Error, ErrorKind, Result, TableState};

/// The first bytes of the definition of every view, and of no table.
const BEGINNING: &str = "{\"version\":1,\"kind\":\"view\",";
const VERSION: u32 = 1;
const KIND: &str = "view";

/// Bytes of the query of a view. Definitions are in memory and in each full checkpoint.
pub const MAX_VIEW_BYTES: usize = 1 << 20;

/// A query that is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDefinition {
    /// The text of the query.
    pub query: String,
    /// The names of its first columns; the others are called as in the query.
    pub columns: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    kind: String,
    columns: Vec<String>,
    query: String,
}

impl ViewDefinition {
    /// The bytes that the kernel keeps.
    ///
    /// # Errors
    /// `Limit` for a query of more than [`MAX_VIEW_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        if self.query.len() > MAX_VIEW_BYTES {
            let message = format!(
                "the query of a view has at most {MAX_VIEW_BYTES} bytes, not {}: store long lists of values as a table",
                self.query.len()
            );
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let stored = Stored {
            version: VERSION,
            kind: KIND.to_owned(),
            columns: self.columns.clone(),
            query: self.query.clone(),
        };
        Ok(json::write(&stored).into_bytes())
    }

    /// Reads the bytes of [`Self::encode`] back.
    ///
    /// # Errors
    /// `Unsupported` for what another version has written, `Corruption` for what no version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(damaged)?;
        let stored: Stored = json::read(text)?;
        if stored.version != VERSION || stored.kind != KIND {
            return Err(newer(format_args!("the kind \"{}\"", stored.kind)));
        }
        Ok(Self {
            query: stored.query,
            columns: stored.columns,
        })
    }
}

/// Whether a table of the kernel is a view.
pub(crate) fn is_view(table: &TableState) -> bool {
    table.definition.starts_with(BEGINNING.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::TableDefinition;
    use crate::layouts::Layouts;

    fn view() -> ViewDefinition {
        ViewDefinition {
            query: "SELECT \"a\"\n FROM t -- ü".to_owned(),
            columns: vec!["A \"b\"".to_owned()],
        }
    }

    #[test]
    fn the_stored_form_is_that_of_the_page() {
        let stored = view().encode().unwrap();
        assert_eq!(
            std::str::from_utf8(&stored).unwrap(),
            r#"{"version":1,"kind":"view","columns":["A \"b\""],"query":"SELECT \"a\"\n FROM t -- ü"}"#
        );
        assert!(stored.starts_with(BEGINNING.as_bytes()));
        assert_eq!(ViewDefinition::decode(&stored).unwrap(), view());
    }

    #[test]
    fn programs_that_know_no_views_refuse_them_as_newer() {
        let error =
            TableDefinition::decode(&Layouts::default(), &view().encode().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("newer"), "{error}");
    }

    #[test]
    fn what_a_newer_version_adds_is_unsupported() {
        let stored = String::from_utf8(view().encode().unwrap()).unwrap();
        for (from, to, kind) in [
            (
                "\"columns\"",
                "\"materialized\":true,\"columns\"",
                ErrorKind::Unsupported,
            ),
            ("\"view\"", "\"sketch\"", ErrorKind::Unsupported),
            ("\"version\":1", "\"version\":2", ErrorKind::Unsupported),
            ("\"query\"", "\"columns\"", ErrorKind::Corruption),
            ("}", "", ErrorKind::Corruption),
        ] {
            let error = ViewDefinition::decode(stored.replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), kind, "{from} {to}: {error}");
        }
    }

    #[test]
    fn very_long_queries_are_refused() {
        let of_length = |length| ViewDefinition {
            query: "x".repeat(length),
            columns: Vec::new(),
        };
        assert!(of_length(MAX_VIEW_BYTES).encode().is_ok());
        let error = of_length(MAX_VIEW_BYTES + 1).encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }
}
