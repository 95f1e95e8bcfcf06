//! Tables that appear together with their first rows.
//!
//! A table gets its number with the commit that makes it, and rows name that number: so no commit makes a table and stores rows of
//! it. The table is made under a name that nobody can choose, gets its rows, and is renamed by the commit that others see.
//!
//! Invariants
//! - No list and no lookup shows the table before it has its name, in any process.
//! - The names are a small fixed set, so that those left by a killed process are found without a walk over all tables. They are
//!   dropped when the database is next opened for writing; nobody else can be filling one then.
//! - A table that is given up is dropped; it never had its name.

use crate::engine::Engine;
use crate::table::Table;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Tables of one database that can be filled at the same time.
const MOST_FILLED: usize = 64;

/// Whether a table of this name is still being filled: users' names have no NUL.
pub(crate) fn is_unlisted(name: &str) -> bool {
    name.starts_with('\0')
}

/// All names of tables that are being filled.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..MOST_FILLED).map(|number| format!("\0{number}"))
}

/// Calls `make` with one name after the other until one is free.
pub(crate) fn with_free_name<T>(make: impl Fn(&str) -> Result<T>) -> Result<T> {
    for name in names() {
        match make(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    let message = format!(
        "{MOST_FILLED} tables are being created with their rows at the same time: try again when one of them is done"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// A table that nobody sees until [`NewTable::publish`]; dropped with its rows without that.
#[derive(Debug)]
pub struct NewTable {
    table: Table,
    is_published: bool,
}

impl NewTable {
    pub(crate) fn new(table: Table) -> Self {
        Self {
            table,
            is_published: false,
        }
    }

    /// The table, to append rows to.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Gives the table its name: from then on it is there, with its rows.
    ///
    /// # Errors
    /// `AlreadyExists` when another table has got the name meanwhile; this one is dropped then.
    pub fn publish(mut self) -> Result<Table> {
        self.table
            .engine()
            .rename_numbered(self.table.id(), self.table.name())?;
        self.is_published = true;
        Ok(self.table.clone())
    }
}

impl Drop for NewTable {
    fn drop(&mut self) {
        if !self.is_published {
            // What cannot be dropped now is dropped when the database is opened again.
            let _ = self.table.drop_table();
        }
    }
}

/// Drops the tables that a process was filling when it ended.
pub(crate) fn drop_left_over(engine: &Engine) {
    let Ok(snapshot) = engine.newest() else {
        return;
    };
    for name in names() {
        if let Some(table) = snapshot.table_named(&name) {
            // A full disk, say: nobody sees the table, and the next opening tries again.
            let _ = engine.drop_numbered(table.id, &table.name);
        }
    }
}
