//! The layouts that a database knows.
//!
//! Invariants: names and numbers are unique. Blocks of regions, which no layout writes yet, have the number 4 of the coming arrays.

use crate::error::invalid;
use crate::layout::Layout;
use crate::stream::Stream;
use crate::suggest::did_you_mean;
use std::fmt;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The layouts of this version.
const OF_THIS_VERSION: [&dyn Layout; 1] = [&Stream];
/// Names that are kept for coming versions: asking for one is no typing mistake.
const LATER: [&str; 3] = ["points", "series", "array"];

/// The layouts that a database knows: by default those of this version.
#[derive(Clone)]
pub struct Layouts(Arc<[&'static dyn Layout]>);

impl Default for Layouts {
    fn default() -> Self {
        Self(Arc::new(OF_THIS_VERSION))
    }
}

impl fmt::Debug for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Layouts {
    /// These layouts and one more.
    ///
    /// # Panics
    /// When one of these has the same name or number.
    #[must_use]
    pub fn with(&self, layout: &'static dyn Layout) -> Self {
        let is_other =
            |own: &&dyn Layout| own.name() != layout.name() && own.number() != layout.number();
        assert!(
            layout.number() > 0 && self.0.iter().all(is_other),
            "two layouts of one name or number: {layout:?}"
        );
        Self(self.0.iter().copied().chain([layout]).collect())
    }

    /// The layout that tables have where none is named.
    #[must_use]
    pub fn usual(&self) -> &'static dyn Layout {
        self.0[0]
    }

    /// The layout of this name, in any case.
    ///
    /// ```
    /// use thalweg_table::{ErrorKind, Layouts};
    ///
    /// let layouts = Layouts::default();
    /// assert_eq!(layouts.named("Stream").unwrap().name(), "stream");
    /// assert_eq!(layouts.named("array").unwrap_err().kind(), ErrorKind::Unsupported); // of a coming version
    /// assert_eq!(layouts.named("heap").unwrap_err().kind(), ErrorKind::Invalid);
    /// ```
    ///
    /// # Errors
    /// `Unsupported` for one that a newer version has, else `Invalid`.
    pub fn named(&self, name: &str) -> Result<&'static dyn Layout> {
        let name = name.trim();
        if let Some(found) = self.stored(&name.to_ascii_lowercase()) {
            return Ok(found);
        }
        let all: Vec<&str> = self.names().collect();
        let offered = all.join("\", \"");
        if let Some(later) = LATER.iter().find(|later| later.eq_ignore_ascii_case(name)) {
            let message =
                format!("the layout \"{later}\" is not offered by this version; use \"{offered}\"");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let meant = did_you_mean(name, all.iter().copied());
        Err(invalid(format!(
            "\"{name}\" is not a layout: {meant}this version offers \"{offered}\" alone"
        )))
    }

    /// The layout that stored definitions name so.
    pub(crate) fn stored(&self, name: &str) -> Option<&'static dyn Layout> {
        self.0.iter().find(|layout| layout.name() == name).copied()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|layout| layout.name())
    }
}
