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
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// use thalweg::Value;
///
/// let new = db.begin_table("hall", &schema, &CreateOptions::stream("ts"))?;
/// new.table().put(&[Value::Int(1), Value::Float(20.5)], None)?;
/// drop(new); // as an early return does: the table is dropped with its rows
/// assert_eq!(db.table_names()?, ["room"]);
/// # Ok(())
/// # }
/// ```
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
        let (engine, name) = (self.table.engine(), self.table.name());
        engine
            .rename_numbered(self.table.id(), name)
            .map_err(|error| engine.with_kind_of_name(name, error))?;
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
