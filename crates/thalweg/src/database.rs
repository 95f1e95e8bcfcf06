//! An open database and how it is opened.

use arrow_schema::Schema;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_kernel::verify::VerifyReport;
use thalweg_table::{
    CreateOptions, DatabaseView, Durability, Engine, EngineOptions, JobLimits, JobReport,
    Maintained, MaintenanceMode, NewTable, Result, Table, Transaction,
};
#[cfg(feature = "sql")]
use {
    std::sync::{Arc, OnceLock},
    thalweg_query::{
        ExtraTable, Params, Prepared, QueryOptions, QueryResult, Session, SessionSettings,
        TableScan,
    },
};

/// The path that stands for a database of its own in memory.
const IN_MEMORY: &str = ":memory:";

/// An open database. Clones share it; it is closed by [`Database::close`] or with the last clone, table and view.
///
/// ```
/// # fn main() -> thalweg::Result<()> {
/// use thalweg::{CreateOptions, Database, Value, schema_of_names};
///
/// let db = Database::open(":memory:")?;
/// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// let writer = std::thread::spawn(move || room.put(&[Value::Int(1), Value::Float(20.5)], None));
/// writer.join().unwrap()?;
/// assert_eq!(db.clone().table("room")?.view()?.row_count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    /// Planned for by the first statement: programs without SQL do not pay for it.
    #[cfg(feature = "sql")]
    sql: Arc<OnceLock<Session>>,
    /// The session of this connection, where it has one of its own.
    #[cfg(feature = "sql")]
    own: Option<Arc<OnceLock<Session>>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// How a database is opened: see [`Database::builder`].
///
/// ```
/// # fn main() -> thalweg::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("plant.thal");
/// use thalweg::{CreateOptions, Database, ErrorKind, schema_of_names};
///
/// let missing = Database::builder().must_exist(true).open(&path);
/// assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
/// Database::open(&path)?.close()?;
///
/// let db = Database::builder().read_only(true).threads(2).open(&path)?;
/// let schema = schema_of_names([("ts", "timestamp")])?;
/// let refused = db.create_table("room", &schema, &CreateOptions::stream("ts"));
/// assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is opened before `open`"]
pub struct DatabaseBuilder {
    options: EngineOptions,
}

impl DatabaseBuilder {
    /// Reads only; the database must exist. Works on a folder that cannot be written, and beside a process that
    /// writes: each statement and view sees what was acknowledged before it began.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }

    /// Fails with `NotFound` instead of making a database.
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.options.must_exist = must_exist;
        self
    }

    /// The durability of appends that name none: what they survive when they return. [`Durability::Disk`] unless set.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = durability;
        self
    }

    /// Memory for cached index pages, heads of blocks, and pages of blocks that single rows were read from.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.options.cache_bytes = bytes;
        self
    }

    /// Threads that encode, decode and query; 0, the default, means one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = threads;
        self
    }

    /// Appends of [`Durability::Process`] reach stable storage within this time.
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.options.sync_interval = interval;
        self
    }

    /// How long a snapshot of a reading process keeps the files that nothing else needs: 10 minutes unless set. Beyond that
    /// the writing process may remove them, and reading goes on with the error `SnapshotExpired` until the next statement.
    /// To be set in both. Snapshots of the writing process itself keep their files for as long as they live.
    pub fn max_snapshot_age(mut self, age: Duration) -> Self {
        self.options.max_snapshot_age = age;
        self
    }

    /// Whether late rows are put in order, short blocks joined and the room of deleted rows given back without being asked:
    /// [`MaintenanceMode::Auto`] unless set.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{Database, MaintenanceMode};
    ///
    /// let db = Database::builder().maintenance(MaintenanceMode::Manual).open(":memory:")?;
    /// assert!(db.jobs()?.is_empty()); // only `maintain` puts anything in order
    /// # Ok(())
    /// # }
    /// ```
    pub fn maintenance(mut self, mode: MaintenanceMode) -> Self {
        self.options.maintenance = mode;
        self
    }

    /// How much of the machine that may take.
    pub fn job_limits(mut self, limits: JobLimits) -> Self {
        self.options.job_limits = limits;
        self
    }

    /// Memory that sorts, joins and groups of all queries may take together; unlimited unless set.
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_limit_bytes = Some(bytes);
        self
    }

    /// Opens the database in the folder `path`, making it if it is missing. `:memory:` is a new one in memory.
    ///
    /// # Errors
    /// `Locked` when another process writes, `NotFound`, `Corruption` with file and offset, `Unsupported` for a newer
    /// format, `Invalid` when the path is a file or a folder with other things in it.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let path = path.as_ref();
        let engine = if path == Path::new(IN_MEMORY) {
            Engine::in_memory(self.options)?
        } else {
            Engine::open(Env::os(), path, self.options)?
        };
        Ok(Database {
            engine,
            #[cfg(feature = "sql")]
            sql: Arc::default(),
            #[cfg(feature = "sql")]
            own: None,
        })
    }
}

impl Database {
    /// Opens the database in the folder `path` for reading and writing, making it if it is missing. `:memory:` is a
    /// new one in memory.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("plant.thal");
    /// use thalweg::{Database, ErrorKind};
    ///
    /// let db = Database::open(&path)?;
    /// assert!(db.table_names()?.is_empty());
    /// assert_eq!(Database::open(&path).unwrap_err().kind(), ErrorKind::Locked); // one writer at a time
    /// db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`DatabaseBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// Opens with options.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("plant.thal");
    /// use thalweg::{Database, Durability};
    ///
    /// let writer = Database::builder().durability(Durability::Process).cache_bytes(64 << 20).open(&path)?;
    /// let reader = Database::builder().read_only(true).open(&path)?; // usually in another process
    /// assert_eq!(reader.table_names()?, writer.table_names()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    /// Makes a table.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// let schema = schema_of_names([("ts", "timestamp"), ("host", "varchar"), ("sys", "double")])?;
    /// let options = CreateOptions::stream("ts").with("split", "1 day");
    /// let cpu = db.create_table("cpu", &schema, &options)?;
    /// assert_eq!(cpu.schema().fields().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
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
        self.check_outside("CREATE TABLE")?;
        self.engine.create_table(name, schema, options)
    }

    /// Makes a table that nobody sees until [`NewTable::publish`], so that it appears together with its first rows.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, Value, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// let new = db.begin_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// new.table().put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// assert!(db.table_names()?.is_empty());
    /// let room = new.publish()?;
    /// assert_eq!(room.view()?.row_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::create_table`].
    pub fn begin_table(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<NewTable> {
        self.check_outside("CREATE TABLE")?;
        self.engine.begin_table(name, schema, options)
    }

    /// The table of that name, in any case.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, ErrorKind, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// db.create_table("Air", &schema_of_names([("ts", "timestamp")])?, &CreateOptions::stream("ts"))?;
    /// assert_eq!(db.table("AIR")?.name(), "Air");
    /// let error = db.table("aire").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// assert!(error.message().contains("did you mean \"Air\"?"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<Table> {
        #[cfg(feature = "sql")]
        if let Some(session) = self.session_in_transaction() {
            return session.table(name);
        }
        self.engine.table(name)
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// When a reading process cannot see the newest commit.
    pub fn table_names(&self) -> Result<Vec<String>> {
        self.engine.table_names()
    }

    /// Removes a table and its rows. Views taken before go on seeing it.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// db.create_table("air", &schema_of_names([("ts", "timestamp")])?, &CreateOptions::stream("ts"))?;
    /// let before = db.snapshot()?;
    /// db.drop_table("air")?;
    /// assert!(db.table_names()?.is_empty());
    /// assert_eq!(before.table_names(), ["air"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_outside("DROP TABLE")?;
        self.engine.drop_table(name)
    }

    /// One view of all tables: every commit acknowledged before the call, nothing later.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, Value, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// let schema = schema_of_names([("ts", "bigint"), ("flow", "double")])?;
    /// let inlet = db.create_table("inlet", &schema, &CreateOptions::stream("ts"))?;
    /// let outlet = db.create_table("outlet", &schema, &CreateOptions::stream("ts"))?;
    /// inlet.put(&[Value::Int(1), Value::Float(0.8)], None)?;
    /// let both = db.snapshot()?;
    /// outlet.put(&[Value::Int(1), Value::Float(0.7)], None)?;
    /// assert_eq!(both.table("inlet")?.row_count(), 1);
    /// assert_eq!(both.table("outlet")?.row_count(), 0); // both are as of one commit
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a reading process cannot see the newest commit.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        self.engine.snapshot()
    }

    /// Returns when everything appended so far is on stable storage.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("plant.thal");
    /// use thalweg::{CreateOptions, Database, Durability, Value, schema_of_names};
    ///
    /// let db = Database::open(&path)?;
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// for second in 0..100 {
    ///     room.put(&[Value::Int(second), Value::Float(20.5)], Some(Durability::Process))?;
    /// }
    /// db.flush()?; // one sync for all of them
    /// assert_eq!(room.view()?.row_count(), 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When it cannot get there.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Writes a checkpoint, so that the next open need not replay the log.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// Puts late rows in order and short blocks together, in every table: see [`Table::maintain`].
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, Value, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// for second in [10, 20, 15] {
    ///     room.put(&[Value::Int(second), Value::Float(20.5)], None)?;
    /// }
    /// db.maintain()?;
    /// assert_eq!(room.stats()?.late_rows, 0);
    /// assert_eq!(db.maintain()?.steps, 0); // nothing is left to do
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there; tables before the one that failed are done.
    pub fn maintain(&self) -> Result<Maintained> {
        self.engine.maintain()
    }

    /// Reports of the jobs since the database was opened, by table and kind: the rows of `thalweg_jobs`.
    ///
    /// # Errors
    /// `Unavailable` when the database is closed.
    pub fn jobs(&self) -> Result<Vec<JobReport>> {
        self.engine.jobs()
    }

    /// Pauses jobs, or lets them go on: what is maintained without being asked. One that is at work ends before its next block.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::Database;
    ///
    /// let db = Database::open(":memory:")?;
    /// db.pause_jobs(true)?; // for a measurement, say
    /// assert!(db.jobs()?.is_empty());
    /// db.pause_jobs(false)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` when the database is closed.
    pub fn pause_jobs(&self, is_paused: bool) -> Result<()> {
        self.engine.pause_jobs(is_paused)
    }

    /// Flushes, writes a checkpoint, and releases the files; a database that was opened read-only keeps none any more for its views
    /// and scans. Everything fails from then on, reading from those as well; a second call is fine.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("plant.thal");
    /// use thalweg::{CreateOptions, Database, ErrorKind, Value, schema_of_names};
    ///
    /// let db = Database::open(&path)?;
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// db.close()?;
    /// assert_eq!(room.view().unwrap_err().kind(), ErrorKind::Unavailable);
    ///
    /// let again = Database::open(&path)?;
    /// assert_eq!(again.table("room")?.view()?.row_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }

    /// Reads and checks every byte that the newest snapshot can reach, and changes nothing. `on_bytes` is called from time to time
    /// with the number of bytes checked since.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = thalweg::Database::open(folder.path().join("plant.thal"))?;
    /// let report = db.verify(&mut |_bytes| {})?;
    /// assert!(report.damage.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the check itself cannot run. Damage is not an error but what the report lists.
    pub fn verify(&self, on_bytes: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        self.engine.kernel().verify(on_bytes)
    }

    /// Makes a damaged database in the folder `path` whole again: what can be read stays, and the report lists what is given
    /// up. Damage of the log that stops an opening is repaired as well. A table whose drop or new name is given up is kept under
    /// another name where a later table has its own; the report lists it. Nobody may have the database open for writing.
    /// `on_bytes` is called from time to time with the number of bytes checked since.
    ///
    /// Everything is checked before anything is written. A database without damage is left as it is. Files of which
    /// nothing can be read any more are removed by a later opening for writing: copy the folder before, if they may be
    /// worth something to somebody.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("plant.thal");
    /// # thalweg::Database::open(&path)?.close()?;
    /// let report = thalweg::Database::repair(&path, &mut |_bytes| {})?;
    /// for lost in &report.given_up {
    ///     println!("{lost}");
    /// }
    /// assert!(report.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Locked` while another process writes, `NotFound`, `Corruption` where nothing is left to start from, and whatever
    /// reading and writing lead to: a drive that does not answer is no damage. The database is then as it was.
    pub fn repair(path: impl AsRef<Path>, on_bytes: &mut dyn FnMut(u64)) -> Result<RepairReport> {
        let options = thalweg_kernel::Options::default();
        repair(&Env::os(), path.as_ref(), &options, on_bytes)
    }

    /// Refuses what the transaction of this connection cannot hold.
    fn check_outside(&self, what: &str) -> Result<()> {
        #[cfg(feature = "sql")]
        if self.is_in_transaction() {
            return Err(thalweg_query::not_in_transaction(what));
        }
        let _ = what;
        Ok(())
    }

    /// Begins a transaction: what is done to the tables that it opens is stored by one commit, over one snapshot. With statements of SQL
    /// between, [`Session::begin`](crate::Session::begin) does the same for a session.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{CreateOptions, Database, KeyRange, Value, schema_of_names};
    ///
    /// let db = Database::open(":memory:")?;
    /// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// for name in ["room", "hall"] {
    ///     db.create_table(name, &schema, &CreateOptions::stream("ts"))?;
    /// }
    /// db.table("room")?.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    ///
    /// let transaction = db.transaction()?;
    /// transaction.table("room")?.delete_range(KeyRange::ALL, None)?;
    /// transaction.table("hall")?.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// assert_eq!(db.table("hall")?.view()?.row_count(), 0);
    /// transaction.commit(None)?;
    /// assert_eq!(db.table("room")?.view()?.row_count(), 0);
    /// assert_eq!(db.table("hall")?.view()?.row_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only.
    pub fn transaction(&self) -> Result<Transaction> {
        self.engine.transaction()
    }

    /// The engine below: what it offers is not part of this interface and may change.
    #[doc(hidden)]
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// SQL.
#[cfg(feature = "sql")]
impl Database {
    /// Runs one statement. What changes something is done when this returns, and its result is one row `count`; a
    /// query takes its snapshot now and runs when its rows are pulled.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::Database;
    ///
    /// let db = Database::open(":memory:")?;
    /// db.sql("CREATE TABLE cpu (ts TIMESTAMP, sys DOUBLE) WITH (layout = 'stream', time = 'ts')")?;
    /// db.sql("INSERT INTO cpu VALUES ('2026-01-01T00:00:00', 1.5), ('2026-01-01T00:00:01', 2.5)")?;
    /// let batches = db.sql("SELECT avg(sys) FROM cpu WHERE ts >= '2026-01-01'")?.collect()?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Query` for what cannot be parsed or planned, `Unsupported` for what this version does not offer, and whatever
    /// tables report.
    pub fn sql(&self, text: &str) -> Result<QueryResult> {
        self.sql_with(text, &Params::None, &[])
    }

    /// Runs a statement as [`Self::sql`] does, with values for placeholders, and with tables for this statement alone.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{Database, Params, ScalarValue};
    ///
    /// let db = Database::open(":memory:")?;
    /// let params = Params::Positional(vec![ScalarValue::Int64(Some(40))]);
    /// let batches = db.sql_with("SELECT 2 + ?", &params, &[])?.collect()?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::sql`], and when the values do not fit the placeholders.
    pub fn sql_with(
        &self,
        text: &str,
        params: &Params,
        extra: &[(String, ExtraTable)],
    ) -> Result<QueryResult> {
        self.default_session()?.sql(text, params, extra)
    }

    /// Runs a statement as [`Self::sql_with`] does, for a caller that may cancel it, as on Ctrl-C. An INSERT from a query calls
    /// `go_on` every now and then; if that returns false, it stores nothing and fails. Other statements are done soon, and the rows
    /// of a query are pulled by [`QueryResult::poll_batch`].
    ///
    /// # Errors
    /// As [`Self::sql_with`].
    pub fn sql_while(
        &self,
        text: &str,
        params: &Params,
        extra: &[(String, ExtraTable)],
        go_on: &dyn Fn() -> bool,
    ) -> Result<QueryResult> {
        self.default_session()?
            .sql_while(text, params, extra, go_on)
    }

    /// Rows of one table in the order of time, by a range of time, boxes and a condition in SQL.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::{Database, TableScan};
    ///
    /// let db = Database::open(":memory:")?;
    /// db.sql("CREATE TABLE cpu (ts BIGINT, sys DOUBLE) WITH (time = 'ts')")?;
    /// db.sql("INSERT INTO cpu VALUES (1, 1.5), (2, 2.5), (3, 3.5)")?;
    /// let scan = TableScan { filter: Some("sys > 2".into()), limit: Some(1), ..TableScan::default() };
    /// let batches = db.scan(&db.table("cpu")?, &scan)?.collect()?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` for columns that there are not, `Query` for a condition that cannot be read or planned.
    pub fn scan(&self, table: &Table, scan: &TableScan) -> Result<QueryResult> {
        self.default_session()?.scan(table, scan)
    }

    /// SQL with settings of its own, for one connection of a server or one user. Sessions share plans and threads: another one costs
    /// next to nothing.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use std::time::Duration;
    /// use thalweg::{Database, ErrorKind, Params, SessionSettings};
    ///
    /// let db = Database::open(":memory:")?;
    /// db.sql("CREATE TABLE cpu (ts BIGINT, sys DOUBLE) WITH (time = 'ts')")?;
    /// let guest = db.session(SessionSettings {
    ///     read_only: true,
    ///     timeout: Some(Duration::from_secs(30)),
    ///     max_result_rows: Some(100_000),
    ///     ..SessionSettings::default()
    /// })?;
    /// assert!(guest.sql("SELECT * FROM cpu", &Params::None, &[])?.collect()?.is_empty());
    /// let refused = guest.sql("DROP TABLE cpu", &Params::None, &[]).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unavailable);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for settings that make no sense.
    pub fn session(&self, settings: SessionSettings) -> Result<Session> {
        self.default_session()?.with(settings)
    }

    /// Parses a statement to run it often.
    ///
    /// # Errors
    /// When it cannot be parsed or planned.
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        self.default_session()?.prepare(text)
    }

    /// The names of tables that a statement reads and nobody has: what may be handed in as [`ExtraTable`]s.
    ///
    /// # Errors
    /// When the text cannot be parsed.
    pub fn unknown_tables(&self, text: &str) -> Result<Vec<String>> {
        self.default_session()?.unknown_tables(text)
    }

    /// The same database with a session of its own for statements: a transaction that a BEGIN opens there is none of other
    /// connections. Planning is shared.
    ///
    /// ```
    /// # fn main() -> thalweg::Result<()> {
    /// use thalweg::Database;
    ///
    /// let db = Database::open(":memory:")?;
    /// db.sql("CREATE TABLE t (v BIGINT)")?;
    /// let other = db.connection();
    /// other.sql("BEGIN")?;
    /// other.sql("INSERT INTO t VALUES (1)")?;
    /// let count = |db: &Database| db.sql("SELECT count(*) FROM t").and_then(|rows| rows.collect());
    /// assert_ne!(count(&db)?, count(&other)?);
    /// other.sql("COMMIT")?;
    /// assert_eq!(count(&db)?, count(&other)?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connection(&self) -> Self {
        Self {
            own: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// Whether a BEGIN has opened a transaction that is not over.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.session_in_transaction().is_some()
    }

    fn session_in_transaction(&self) -> Option<&Session> {
        let session = match &self.own {
            Some(own) => own.get(),
            None => self.sql.get(),
        };
        session.filter(|session| session.is_in_transaction())
    }

    fn default_session(&self) -> Result<&Session> {
        let Some(own) = &self.own else {
            return self.common_session();
        };
        if let Some(session) = own.get() {
            return Ok(session);
        }
        let session = self.common_session()?.with(SessionSettings::default())?;
        Ok(own.get_or_init(|| session))
    }

    fn common_session(&self) -> Result<&Session> {
        if let Some(session) = self.sql.get() {
            return Ok(session);
        }
        let session = Session::new(self.engine.clone(), QueryOptions::default())?;
        // Of two threads that come first at once, one throws its session away.
        Ok(self.sql.get_or_init(|| session))
    }
}
