//! The tables of an open database, by name.
//!
//! Invariants: names are compared without regard to case and keep the case they were created with; a [`DatabaseView`] is
//! one snapshot of all tables; making, finding and dropping a table takes the same time however many others there are. Views have
//! names among those of tables, and are none.

mod views;

pub use views::StoredView;

use crate::definition::TableDefinition;
use crate::drafts::{ChangedTables, Drafts};
use crate::engine::{Engine, dropped_meanwhile};
use crate::new_table::NewTable;
use crate::options::CreateOptions;
use crate::schema::{SYSTEM_TABLES, check_is_no_system_table, check_name, fold_name};
use crate::suggest::did_you_mean;
use crate::table::{Maintained, Table, TableView};
use crate::unlisted::{self, is_unlisted};
use crate::view_definition::is_view;
use arrow_schema::Schema;
use thalweg_kernel::{
    CommitNo, Durability, Edit, Error, ErrorKind, MANY_MASKS_BYTES, NEW_TABLE, Result, Snapshot,
    TableSnapshot, name_is_taken,
};

/// Names of tables that a message lists.
const MAX_LISTED: usize = 20;
/// Tables among which a message looks for the name that was meant.
const MAX_COMPARED: usize = 1_000;

impl Engine {
    /// Makes a table.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a table of that name in any case; `Schema`, `Invalid` and `Unsupported` when the
    /// columns or options cannot be.
    pub fn create_table(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<Table> {
        check_table_name(name)?;
        let durability = self.options().durability;
        let definition = self.definition_of_new(name, schema, options)?;
        let created = self.commit_table(name, &definition, durability)?;
        let table = named(&self.newest()?, name).ok();
        match table.filter(|table| table.created == created) {
            Some(table) => Table::new(self.clone(), &table),
            // Another one of this name is somebody else's.
            None => Err(dropped_meanwhile(name, None)),
        }
    }

    /// Makes a table as [`Engine::create_table`] does, but returns no handle: there is none once somebody else drops the table.
    /// # Errors
    /// As there, but for `NotFound` of the new table.
    pub fn add_table(&self, name: &str, schema: &Schema, options: &CreateOptions) -> Result<()> {
        check_table_name(name)?;
        let definition = self.definition_of_new(name, schema, options)?;
        self.commit_table(name, &definition, self.options().durability)
            .map(|_| ())
    }

    /// Makes a table that nobody sees before [`NewTable::publish`], so that it appears together with its first rows.
    ///
    /// # Errors
    /// As [`Engine::create_table`]; `Unavailable` when very many are being filled at the same time.
    pub fn begin_table(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<NewTable> {
        check_table_name(name)?;
        let definition = self.definition_of_new(name, schema, options)?;
        if let Some(taken) = self.newest()?.table_named(name) {
            return Err(name_taken_by(&taken));
        }
        // The commits that follow come after it in the log, so they reach stable storage no sooner.
        let durability = self.options().durability.min(Durability::Process);
        unlisted::with_free_name(|unlisted| {
            let created = self.commit_table(unlisted, &definition, durability)?;
            let table = self.newest()?.table_named(unlisted);
            match table.filter(|table| table.created == created) {
                Some(table) => Table::called(self.clone(), &table, name).map(NewTable::new),
                None => Err(dropped_meanwhile(name, None)),
            }
        })
    }

    /// The commit that has made the table.
    fn commit_table(
        &self,
        name: &str,
        definition: &TableDefinition,
        durability: Durability,
    ) -> Result<CommitNo> {
        let edit = Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: definition.encode().into(),
            indexes: 0,
        };
        self.edit(vec![edit], durability)
            .map_err(|error| self.with_kind_of_name(name, error))
    }

    /// The error of a commit, which says what has the name that is taken: the kernel knows of no views.
    pub(crate) fn with_kind_of_name(&self, name: &str, error: Error) -> Error {
        if error.kind() != ErrorKind::AlreadyExists {
            return error;
        }
        let taken = self
            .newest()
            .ok()
            .and_then(|newest| newest.table_named(name));
        taken.map_or(error, |taken| name_taken_by(&taken))
    }

    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<Table> {
        Table::new(self.clone(), &named(&self.newest()?, name)?)
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn table_names(&self) -> Result<Vec<String>> {
        Ok(names(&self.newest()?))
    }

    /// Removes a table and its rows. Views taken before go on seeing it.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let table = named(&self.newest()?, name)?.id;
        self.drop_numbered(table, name)
    }

    /// Removes the tables with these names in one commit: after a crash all of them are there, or none is.
    ///
    /// # Errors
    /// `NotFound` for a name without a table; nothing was removed then.
    pub fn drop_tables(&self, names: &[&str]) -> Result<()> {
        self.drop_all(names, named)
    }

    /// Removes what `find` finds by each name, in one commit.
    fn drop_all(
        &self,
        names: &[&str],
        find: fn(&Snapshot, &str) -> Result<TableSnapshot>,
    ) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let newest = self.newest()?;
        let edits = names.iter().map(|name| {
            let table = find(&newest, name)?.id;
            Ok(Edit::DropTable { table })
        });
        self.edit(edits.collect::<Result<_>>()?, self.options().durability)
            .map_err(|error| {
                if error.kind() != ErrorKind::NotFound {
                    return error;
                }
                let newest = self.newest();
                let is_gone = |name: &&&str| {
                    newest
                        .as_ref()
                        .is_ok_and(|newest| newest.table_named(name).is_none())
                };
                let gone = names.iter().find(is_gone).unwrap_or(&names[0]);
                dropped_meanwhile(gone, Some(error))
            })?;
        self.note_dropped();
        Ok(())
    }

    /// One view of all tables: every commit acknowledged before the call, nothing later.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        Ok(DatabaseView {
            engine: self.share(),
            snapshot: self.newest()?,
            changed: ChangedTables::default(),
        })
    }

    /// Maintains every table as [`Table::maintain`] does, then removes files that are not needed any more.
    ///
    /// # Errors
    /// As there; tables before the one that failed are done.
    pub fn maintain(&self) -> Result<Maintained> {
        let mut total = Maintained::default();
        for name in self.table_names()? {
            let done = self.maintain_named(&name, Table::maintain)?;
            total.steps += done.steps;
            total.rows += done.rows;
        }
        let Some(mut maintenance) = self.maintenance().wait(&|| true) else {
            return Ok(total);
        };
        // Nothing is deleted while a snapshot may need it: then the next call does it.
        if maintenance.has_garbage && self.kernel().collect_garbage()? > 0 {
            maintenance.has_garbage = false;
        }
        Ok(total)
    }
}

impl Engine {
    fn definition_of_new(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<TableDefinition> {
        TableDefinition::create(&self.options().layouts, schema, options)
            .map_err(|e| Error::with_source(e.kind(), format!("table \"{name}\": {e}"), e))
    }

    fn maintain_named(
        &self,
        name: &str,
        maintain: fn(&Table) -> Result<Maintained>,
    ) -> Result<Maintained> {
        match self.table(name).and_then(|table| maintain(&table)) {
            // Dropped meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Maintained::default()),
            done => done,
        }
    }

    /// Rewrites blocks without their deleted rows, first in the tables with the most masks, until all masks take no more than half
    /// of the room that there is for them. A failure in a table is not reported: whoever needs the room finds out whether there is
    /// enough.
    pub(crate) fn rewrite_deleted_rows(&self) -> Result<()> {
        let snapshot = self.newest()?;
        let masked = snapshot.tables().filter_map(|table| {
            let bytes = table.masks()?.bytes();
            Some((bytes, table.name.to_string()))
        });
        let mut masked: Vec<(u64, String)> = masked.collect();
        // A snapshot would keep the files that are rewritten.
        drop(snapshot);
        masked.sort_unstable_by(|a, b| b.cmp(a));
        for (_, name) in masked {
            if self.kernel().mask_bytes()? <= MANY_MASKS_BYTES {
                break;
            }
            // Damage in one table must not keep the others from being rewritten.
            let _ = self.maintain_named(&name, Table::put_in_order);
        }
        Ok(())
    }
}

/// An error for a name that no table can have.
pub(crate) fn check_table_name(name: &str) -> Result<()> {
    check_name("table", name)?;
    check_is_no_system_table(name)
}

/// The error for a name that a table or a view has already.
pub(crate) fn name_taken_by(taken: &TableSnapshot) -> Error {
    if !is_view(taken) {
        return name_is_taken(&taken.name);
    }
    let message = format!(
        "view \"{}\" exists already: DROP VIEW removes it, CREATE OR REPLACE VIEW gives it another query",
        taken.name
    );
    Error::new(ErrorKind::AlreadyExists, message)
}

fn named(snapshot: &Snapshot, name: &str) -> Result<TableSnapshot> {
    let table = snapshot.table_named(name);
    if let Some(view) = table.as_ref().filter(|table| is_view(table)) {
        let message = format!(
            "\"{}\" is a view and has no rows of its own: a query reads it (db.sql in Python), INSERT and the like go to the tables that it \
             reads, CREATE OR REPLACE VIEW changes it, DROP VIEW removes it",
            view.name
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    table.filter(|_| !is_unlisted(name)).ok_or_else(|| {
        let others = match check_is_no_system_table(name) {
            Ok(()) => listed(snapshot, name),
            Err(_) => of_system_tables(name),
        };
        let message = format!("there is no table \"{name}\"; {others}");
        Error::new(ErrorKind::NotFound, message)
    })
}

/// The end of a message about a name that only a system table can have.
fn of_system_tables(wanted: &str) -> String {
    let meant = match SYSTEM_TABLES.contains(&fold_name(wanted).as_str()) {
        true => String::new(),
        false => did_you_mean(wanted, SYSTEM_TABLES),
    };
    let names = SYSTEM_TABLES.join(", ");
    format!("{meant}the system tables, which SELECT can read and nothing can change, are {names}")
}

/// The end of a message that lists the tables and views there are: only some of many, so that a failed lookup among them stays cheap.
fn listed(snapshot: &Snapshot, wanted: &str) -> String {
    let some = snapshot.tables().take(MAX_COMPARED);
    let some: Vec<TableSnapshot> = some.filter(|table| !is_unlisted(&table.name)).collect();
    let kinds = match some.iter().any(|table| is_view(table)) {
        true => "tables and views",
        false => "tables",
    };
    let mut names: Vec<String> = { some.iter() }
        .map(|table| table.name.to_string())
        .collect();
    names.sort_unstable();
    let meant = did_you_mean(wanted, names.iter().map(String::as_str));
    names.truncate(MAX_LISTED);
    let names = names.join(", ");
    match snapshot.table_count() {
        _ if names.is_empty() => "there are no tables".to_owned(),
        count if count > MAX_LISTED => format!("{meant}some of the {count} {kinds} are {names}"),
        _ => format!("{meant}the {kinds} are {names}"),
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> = snapshot
        .tables()
        .filter(|table| !is_unlisted(&table.name) && !is_view(table))
        .map(|table| table.name.to_string())
        .collect();
    names.sort_unstable();
    names
}

/// All tables at one moment. Holding it keeps its files.
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// use thalweg::Value;
///
/// let before = db.snapshot()?;
/// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
/// db.drop_table("room")?;
/// assert_eq!(before.table_names(), ["room"]);
/// assert_eq!(before.table("Room")?.row_count(), 0);
/// assert!(db.snapshot()?.commit() > before.commit());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DatabaseView {
    engine: Engine,
    snapshot: Snapshot,
    /// Tables that a transaction sees otherwise.
    changed: ChangedTables,
}

impl DatabaseView {
    /// All tables as a transaction sees them now.
    pub(crate) fn of_transaction(engine: &Engine, drafts: &Drafts) -> Result<Self> {
        engine.closed().check()?;
        let (snapshot, changed) = drafts.view()?;
        Ok(Self {
            engine: engine.share(),
            snapshot,
            changed,
        })
    }

    /// The table of a name, for a transaction that has this view.
    pub(crate) fn handle(&self, name: &str) -> Result<Table> {
        Table::new(self.engine.clone(), &named(&self.snapshot, name)?)
    }

    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<TableView> {
        let table = named(&self.snapshot, name)?;
        let table = self.changed.get(&table.id).cloned().unwrap_or(table);
        TableView::new(self.engine.share(), table)
    }

    /// The names of all tables, in order.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        names(&self.snapshot)
    }

    /// The number of the last commit in it.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.snapshot.commit().0
    }

    /// Its database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
