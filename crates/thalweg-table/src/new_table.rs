//! Tables that appear together with their first rows.
//!
//! A table gets its number with the commit that makes it, and rows name that number: so no commit makes a table and stores rows of
//! it. The table is made under a name that nobody can choose ([`crate::unlisted`]), gets its rows, and is renamed by the commit
//! that others see.
//!
//! Invariant: a table that is given up is dropped; it never had its name. Where a killed process has left one, it is dropped
//! when the database is next opened for writing; nobody else can be filling one then.

use crate::table::Table;
use thalweg_kernel::Result;

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
