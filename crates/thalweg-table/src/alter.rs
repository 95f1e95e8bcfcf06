//! Changing the columns, the options and the name of a table.
//!
//! Invariants: a change is one commit of a new definition, made from the newest one; no row is read or written for it.

use crate::catalog::{check_table_name, name_taken_by};
use crate::definition::Alteration;
use crate::table::{MAX_ATTEMPTS, Table};
use thalweg_kernel::{Edit, ErrorKind, Result};

impl Table {
    /// Changes columns and options, in one commit, without a block being rewritten. Views taken before go on seeing the old ones.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{Alteration, Value};
    ///
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// let rename = Alteration::RenameColumn { name: "temp".into(), to: "celsius".into() };
    /// room.alter(&[rename])?;
    /// assert_eq!(room.schema().field(1).name(), "celsius");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`crate::TableDefinition::altered`]; `Conflict` where others change it again and again. Nothing has changed then.
    pub fn alter(&self, alterations: &[Alteration]) -> Result<()> {
        self.engine().closed().check()?;
        self.check_outside("alter")?;
        // Else rows could still leave by a retention that was changed or lifted.
        let sets_option =
            |alteration: &Alteration| matches!(alteration, Alteration::SetOption { .. });
        let sets_options = alterations.iter().any(sets_option);
        let _turn = sets_options.then(|| self.engine().expiry().lock());
        for attempt in 1..=MAX_ATTEMPTS {
            let snapshot = self.snapshot()?;
            let definition = self.engine().definition_of(&snapshot)?;
            let altered = definition
                .altered(alterations)
                .map_err(|e| self.name_error(e))?;
            let Some(altered) = altered else {
                return Ok(());
            };
            let edit = Edit::SetDefinition {
                table: self.id(),
                expected_version: snapshot.definition_version,
                definition: altered.encode().into(),
            };
            match self
                .engine()
                .edit(vec![edit], self.engine().options().durability)
            {
                Err(e) if e.kind() == ErrorKind::Conflict && attempt < MAX_ATTEMPTS => {}
                Err(e) => return Err(self.dropped_or(e)),
                Ok(_) => return self.refresh(),
            }
        }
        Ok(())
    }

    /// Gives the table another name. This handle and those to it go on to work; [`Self::name`] is the one that it was got by.
    ///
    /// # Errors
    /// `AlreadyExists` for the name of another table, `Schema` for what is no name, `NotFound` when it was dropped.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.check_outside("rename")?;
        check_table_name(name)?;
        let taken = self.engine().newest()?.table_named(name);
        if let Some(taken) = taken.filter(|taken| taken.id != self.id()) {
            return Err(name_taken_by(&taken));
        }
        let renamed = self.engine().rename_numbered(self.id(), name);
        renamed.map_err(|e| self.engine().with_kind_of_name(name, self.dropped_or(e)))
    }
}
