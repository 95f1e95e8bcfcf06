//! What a table is created with, besides its columns.
//!
//! Invariants: an option is known by one name in SQL, Python and here; an unknown one is an error that lists the known.

use crate::definition::{Layout, Summaries, TableDefinition};
use crate::error::invalid;
use crate::suggest::did_you_mean;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The options of this version, in the order that messages list them.
const KNOWN: [&str; 5] = ["layout", "time", "split", "block_rows", "summaries"];
/// Options of layouts and indexes that this version does not offer: asking for one is no typing mistake.
const LATER: [&str; 11] = [
    "index",
    "dimensions",
    "segmentation",
    "chunk_rows",
    "key",
    "interval",
    "dims",
    "attrs",
    "sparse",
    "cell_order",
    "tile_order",
];

/// The options of `create_table` and `WITH (...)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// The layout.
    pub layout: Layout,
    /// The name of the time column; `None` orders rows by arrival.
    pub time: Option<String>,
    /// Regular cuts, as "1 day".
    pub split: Option<String>,
    /// Rows of a full block; 4,096 by default.
    pub block_rows: Option<u32>,
    /// Which columns blocks are summarised by.
    pub summaries: SummaryOption,
}

/// Which columns blocks are summarised by, as users say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SummaryOption {
    /// All columns of a table of up to 64, else the time column alone.
    #[default]
    Auto,
    /// All columns.
    All,
    /// No column.
    None,
    /// These columns, by name.
    Columns(Vec<String>),
}

impl CreateOptions {
    /// A stream ordered by the column `time`.
    pub fn stream(time: impl Into<String>) -> Self {
        Self {
            time: Some(time.into()),
            ..Self::default()
        }
    }

    /// Options as SQL's `WITH (name = 'value', ...)` gives them; names in any case.
    ///
    /// # Errors
    /// For unknown and repeated options and values that make no sense.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref().trim().to_lowercase(), value.as_ref().trim());
            if seen.contains(&name) {
                return Err(invalid(format!("the option \"{name}\" is given twice")));
            }
            options.set(&name, value)?;
            seen.push(name);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "layout" => self.layout = Layout::parse(value)?,
            "time" => self.time = Some(value.to_owned()),
            "split" => self.split = Some(value.to_owned()),
            "block_rows" => {
                let rows = value.replace('_', "").parse();
                self.block_rows =
                    Some(rows.map_err(|_| {
                        invalid(format!("block_rows is \"{value}\", not a number"))
                    })?);
            }
            "summaries" => self.summaries = SummaryOption::parse(value),
            other if LATER.contains(&other) => {
                let message = format!("the option \"{other}\" is not offered by this version");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            other => {
                let known = KNOWN.join(", ");
                return Err(invalid(format!(
                    "there is no option \"{other}\"; {}the options are {known}",
                    did_you_mean(other, KNOWN)
                )));
            }
        }
        Ok(())
    }
}

impl SummaryOption {
    /// `auto`, `all`, `none` or a list of column names.
    fn parse(text: &str) -> Self {
        match text.to_lowercase().as_str() {
            "auto" | "" => Self::Auto,
            "all" => Self::All,
            "none" => Self::None,
            _ => Self::Columns(text.split(',').map(|name| name.trim().to_owned()).collect()),
        }
    }

    /// Names become ids.
    pub(crate) fn resolve(&self, definition: &TableDefinition) -> Result<Summaries> {
        Ok(match self {
            Self::Auto => Summaries::Auto,
            Self::All => Summaries::All,
            Self::None => Summaries::None,
            Self::Columns(names) => {
                let id = |name: &String| {
                    definition
                        .position_named(name)
                        .map(|at| definition.columns()[at].id)
                };
                let mut ids = names.iter().map(id).collect::<Result<Vec<_>>>()?;
                ids.sort_unstable();
                ids.dedup();
                Summaries::Columns(ids)
            }
        })
    }
}
