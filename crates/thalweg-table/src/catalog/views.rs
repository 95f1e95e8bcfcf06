//! Views: queries that are stored under a name and read like tables.
//!
//! Invariants: a view is a table of the kernel with a definition of another kind and without rows, so that views and tables share one
//! space of names, and views survive what tables do. No handle and no [`crate::TableView`] is made of one: nothing writes, maintains
//! or expires rows of it. Only the layer of SQL reads the query.

use super::{DatabaseView, check_table_name, listed, name_taken_by};
use crate::engine::Engine;
use crate::table::MAX_ATTEMPTS;
use crate::unlisted::is_unlisted;
use crate::view_definition::{ViewDefinition, is_view};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_kernel::{Edit, Error, ErrorKind, NEW_TABLE, Result, Snapshot, TableSnapshot};

/// A view as it is at one moment.
#[derive(Clone, Debug)]
pub struct StoredView {
    name: Arc<str>,
    definition: Bytes,
}

impl StoredView {
    /// Its name, as it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its query.
    ///
    /// # Errors
    /// `Unsupported` for what a newer version has written, `Corruption` for what no version writes.
    pub fn definition(&self) -> Result<ViewDefinition> {
        ViewDefinition::decode(&self.definition)
            .map_err(|e| Error::new(e.kind(), format!("view \"{}\": {}", self.name, e.message())))
    }

    /// Whether another moment has it as it is here.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl Engine {
    /// Stores a query under a name.
    ///
    /// # Errors
    /// `AlreadyExists` when a table or another view has the name, in any case; `Schema` for what is no name; `Limit` for a very long
    /// query.
    pub fn create_view(&self, name: &str, definition: &ViewDefinition) -> Result<()> {
        check_table_name(name)?;
        self.commit_view(name, definition.encode()?.into())
    }

    /// Stores a query under a name, in the place of the view that has it.
    ///
    /// # Errors
    /// As [`Self::create_view`], but for views; `Conflict` where others change it again and again.
    pub fn replace_view(&self, name: &str, definition: &ViewDefinition) -> Result<()> {
        check_table_name(name)?;
        let definition: Bytes = definition.encode()?.into();
        for attempt in 1..=MAX_ATTEMPTS {
            let existing = self.newest()?.table_named(name);
            let done = match existing {
                None => self.commit_view(name, definition.clone()),
                Some(table) if !is_view(&table) => return Err(name_taken_by(&table)),
                Some(view) => {
                    let edit = Edit::SetDefinition {
                        table: view.id,
                        expected_version: view.definition_version,
                        definition: definition.clone(),
                    };
                    self.edit(vec![edit], self.options().durability).map(drop)
                }
            };
            match done {
                Err(e) if is_lost_race(&e) && attempt < MAX_ATTEMPTS => {}
                done => return done,
            }
        }
        Ok(())
    }

    fn commit_view(&self, name: &str, definition: Bytes) -> Result<()> {
        let edit = Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition,
            indexes: 0,
        };
        let made = self.edit(vec![edit], self.options().durability);
        made.map(drop).map_err(|e| self.with_kind_of_name(name, e))
    }

    /// Removes the views with these names in one commit.
    ///
    /// # Errors
    /// `NotFound` for a name without a view, `Unsupported` for that of a table; nothing was removed then.
    pub fn drop_views(&self, names: &[&str]) -> Result<()> {
        self.drop_all(names, view_named)
    }
}

/// Whether others have made, changed or dropped a view meanwhile.
fn is_lost_race(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::AlreadyExists
    )
}

/// The view of that name, as the kernel has it.
fn view_named(snapshot: &Snapshot, name: &str) -> Result<TableSnapshot> {
    match snapshot.table_named(name) {
        Some(found) if is_view(&found) => Ok(found),
        Some(found) if !is_unlisted(name) => {
            let message = format!(
                "\"{}\" is a table, not a view: DROP TABLE removes it",
                found.name
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
        _ => {
            let message = format!("there is no view \"{name}\"; {}", listed(snapshot, name));
            Err(Error::new(ErrorKind::NotFound, message))
        }
    }
}

impl DatabaseView {
    /// The view of that name, in any case, if there is one.
    #[must_use]
    pub fn stored_view(&self, name: &str) -> Option<StoredView> {
        let table = self.snapshot.table_named(name)?;
        is_view(&table).then(|| StoredView {
            name: Arc::clone(&table.name),
            definition: table.definition.clone(),
        })
    }

    /// The names of all views, in the order in which they were made: one that reads another follows it, unless that was replaced.
    #[must_use]
    pub fn view_names(&self) -> Vec<String> {
        let views = self.snapshot.tables().filter(|table| is_view(table));
        let mut views: Vec<TableSnapshot> = views.collect();
        views.sort_unstable_by_key(|view| view.id);
        views.iter().map(|view| view.name.to_string()).collect()
    }

    /// The names of all tables and views, in order.
    #[must_use]
    pub fn table_and_view_names(&self) -> Vec<String> {
        let mut names = self.table_names();
        names.extend(self.view_names());
        names.sort_unstable();
        names
    }

    /// Whether there is a view of that name: the error of [`Engine::drop_views`] if not.
    ///
    /// # Errors
    /// As there.
    pub fn check_view(&self, name: &str) -> Result<()> {
        view_named(&self.snapshot, name).map(drop)
    }
}
