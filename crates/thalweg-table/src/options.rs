//! The options that a table is created with, besides its columns.
//!
//! Invariants: an option is known by one name in SQL, Python and here; an unknown one is an error that lists the known.

use crate::constant::Constant;
use crate::definition::{Columns, Summaries};
use crate::error::invalid;
use crate::layout::{Layout, LayoutOptions};
use crate::layouts::Layouts;
use crate::name_lists::names;
use crate::suggest::did_you_mean;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The options of all layouts.
pub(crate) const COMMON: [&str; 5] = ["layout", "summaries", "retention", "unique", "on_duplicate"];
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
///
/// ```
/// # use thalweg_table::{self as thalweg, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// use thalweg::{CreateOptions, SummaryOption};
///
/// let schema = schema_of_names([("ts", "timestamp"), ("station", "varchar"), ("pm25", "double")])?;
/// let options = CreateOptions::stream("ts").with("split", "1 day").with("summaries", "pm25");
/// assert_eq!(options.summaries, SummaryOption::Columns(vec!["pm25".to_owned()]));
/// db.create_table("air", &schema, &options)?;
/// let error = db.create_table("air_2", &schema, &options.with("splits", "1 day")).unwrap_err();
/// assert!(error.message().contains("did you mean \"split\"?"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// The name of the layout; `None` is "stream".
    pub layout: Option<String>,
    /// The options of the layout, by name and as users write them: the layout checks them.
    pub layout_options: Vec<(String, String)>,
    /// Which columns blocks are summarised by.
    pub summaries: SummaryOption,
    /// For how long rows stay, as users write it: "90 days". `None`: until they are deleted.
    pub retention: Option<String>,
    /// The columns whose values together belong to one row alone, by name.
    pub unique: Vec<String>,
    /// Which of two rows with one key is kept, as users write it: "last", "first" or "error". `None` is "error".
    pub on_duplicate: Option<String>,
    /// The values of columns, by name, in rows that are stored without them: null for the others.
    pub defaults: Vec<(String, Constant)>,
}

/// Which columns blocks are summarised by, as users write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SummaryOption {
    /// All columns of a table of up to 64, else those alone that keys are computed from.
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
        Self::default().with("time", time.into())
    }

    /// These options and one more, by its name in any case, in the place of an earlier one of that name.
    ///
    /// ```
    /// # use thalweg_table::CreateOptions;
    /// let options = CreateOptions::stream("ts").with("split", "1 day").with("Split", "1 hour");
    /// assert_eq!(options.get("split"), Some("1 hour"));
    /// ```
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        let (name, value) = (name.trim().to_lowercase(), value.to_string());
        match name.as_str() {
            "layout" => self.layout = Some(value),
            "summaries" => self.summaries = SummaryOption::parse(&value),
            "retention" => self.retention = Some(value),
            "unique" => self.unique = names(&value),
            "on_duplicate" => self.on_duplicate = Some(value),
            _ => {
                self.layout_options.retain(|(given, _)| *given != name);
                self.layout_options.push((name, value));
            }
        }
        self
    }

    /// The value of an option of the layout, if it was given.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        LayoutOptions::new(&self.layout_options).get(name)
    }

    /// The layout that the options are for, one of `layouts`.
    ///
    /// # Errors
    /// When there is no such layout, or an option is not one that it has. The values are checked when the table is made.
    pub fn layout_of(&self, layouts: &Layouts) -> Result<&'static dyn Layout> {
        let layout = match &self.layout {
            Some(name) => layouts.named(name)?,
            None => layouts.usual(),
        };
        check_names(layout, &self.layout_options)?;
        Ok(layout)
    }

    /// Options as SQL and the command line give them: names and texts.
    ///
    /// ```
    /// # use thalweg_table::CreateOptions;
    /// let options = CreateOptions::from_pairs([("time", "ts"), ("block_rows", "8192")]).unwrap();
    /// assert_eq!(options, CreateOptions::stream("ts").with("block_rows", 8192));
    /// assert!(CreateOptions::from_pairs([("time", "ts"), ("TIME", "at")]).is_err());
    /// ```
    ///
    /// # Errors
    /// For an option that is given twice. Others are checked when the table is made.
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
            options = options.with(&name, value);
            seen.push(name);
        }
        Ok(options)
    }
}

/// # Errors
/// For options that a layout does not have.
pub(crate) fn check_names(layout: &dyn Layout, given: &[(String, String)]) -> Result<()> {
    let own = layout.option_names();
    let Some((name, _)) = { given.iter() }.find(|(name, _)| !own.contains(&name.as_str())) else {
        return Ok(());
    };
    if LATER.contains(&name.as_str()) {
        let message = format!("the option \"{name}\" is not offered by this version");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let [first, rest @ ..] = COMMON;
    let all: Vec<&str> = [first].iter().chain(own).copied().chain(rest).collect();
    Err(invalid(format!(
        "there is no option \"{name}\"; {}the options are {}",
        did_you_mean(name, all.iter().copied()),
        all.join(", ")
    )))
}

impl SummaryOption {
    /// `auto`, `all`, `none` or a list of column names.
    fn parse(text: &str) -> Self {
        match text.to_lowercase().as_str() {
            "auto" | "" => Self::Auto,
            "all" => Self::All,
            "none" => Self::None,
            _ => Self::Columns(names(text)),
        }
    }

    /// Replaces names by ids.
    pub(crate) fn resolve(&self, columns: &Columns) -> Result<Summaries> {
        Ok(match self {
            Self::Auto => Summaries::Auto,
            Self::All => Summaries::All,
            Self::None => Summaries::None,
            Self::Columns(names) => {
                let id = |name: &String| {
                    columns
                        .position_named(name)
                        .map(|at| columns.as_slice()[at].id)
                };
                let mut ids = names.iter().map(id).collect::<Result<Vec<_>>>()?;
                ids.sort_unstable();
                ids.dedup();
                Summaries::Columns(ids)
            }
        })
    }
}
