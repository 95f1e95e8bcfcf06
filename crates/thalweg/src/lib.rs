//! An embedded database for sensor data: one directory is one database, used by a library and without a server.
//!
//! ```
//! use thalweg::arrow_schema::{DataType, Field, Schema, TimeUnit};
//! use thalweg::{AggregateRequest, CreateOptions, Database, Value};
//!
//! # fn main() -> thalweg::Result<()> {
//! let db = Database::open(":memory:")?; // or a path: `Database::open("plant.thal")?`
//! let schema = Schema::new(vec![
//!     Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
//!     Field::new("temp", DataType::Float64, true),
//! ]);
//! let plant = db.create_table("plant", &schema, &CreateOptions::stream("ts"))?;
//!
//! // One row; it is on stable storage when the call returns.
//! plant.put(&[Value::Text("2026-01-01T00:00:00"), Value::Float(20.5)], None)?;
//!
//! // Many rows one by one, committed in batches.
//! let mut appender = plant.appender();
//! for second in 1..100_000 {
//!     appender.put(&[Value::Int(1_767_225_600_000 + second * 1_000), Value::Float(20.0)])?;
//! }
//! appender.flush()?;
//!
//! // An aggregate over everything reads hardly any rows: the time index has sums at every level.
//! let answer = plant.view()?.aggregate(&AggregateRequest { columns: vec![1], ..Default::default() })?;
//! assert_eq!(answer.groups[0].rows, 100_000);
//! assert_eq!(answer.groups[0].columns[0].float_range(), Some((20.0, 20.5)));
//! # Ok(())
//! # }
//! ```
//!
//! Whole batches go in with [`Table::append`], ranges of time come out with [`TableView::scan`]; both speak Arrow
//! ([`arrow_array`], [`arrow_schema`]). With the feature `sql`, which is on by default, `Database::sql` runs statements.
//!
//! Invariants
//! - Everything a program needs is named here; the crates below may change shape.
//! - No logic: what is not a re-export only passes on.
#![forbid(unsafe_code)]

mod database;

pub use arrow_array;
pub use arrow_schema;
pub use database::{Database, DatabaseBuilder};
pub use thalweg_kernel::repair::{RenamedTable, RepairReport};
pub use thalweg_kernel::verify::{Damage, VerifyReport};
pub use thalweg_table::schema::{
    check_name, fold_name, parse_type, schema_of_names, shown_type, sql_type_name, type_name,
};
pub use thalweg_table::suggest::nearest as nearest_name;
pub use thalweg_table::time::{
    TimeBound, key_box, key_range, key_to_text, order_keys, orders_rows,
};
pub use thalweg_table::time_units;
pub use thalweg_table::{
    AggregateRequest, AggregateResult, Alteration, Appender, BlockFacts, Bucket, ColumnRange,
    ColumnSummary, Constant, CreateOptions, DatabaseView, Durability, Error, ErrorKind,
    FragmentFacts, Group, JobKind, JobLimits, JobReport, JobState, KeyRange, Layouts, Maintained,
    MaintenanceMode, NewTable, Numbered, Result, Retention, ScanMetrics, ScanTask, StoredView,
    SummaryKind, SummaryOption, Table, TableDefinition, TableStats, TableTotals, TableView,
    Transaction, Value, ValueRange, ViewDefinition, constant_of, default_in_sql,
};

/// The first rows from a time on, two of their three columns:
///
/// ```
/// # fn main() -> thalweg::Result<()> {
/// use thalweg::{CreateOptions, Database, KeyRange, ScanRequest, Value, schema_of_names};
///
/// let db = Database::open(":memory:")?;
/// let schema = schema_of_names([("ts", "bigint"), ("temp", "double"), ("note", "varchar")])?;
/// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// let mut appender = room.appender();
/// for second in (0..1_000).rev() {
///     appender.put(&[Value::Int(second), Value::Float(20.5), Value::Null])?;
/// }
/// appender.flush()?;
///
/// let request = ScanRequest {
///     projection: Some(vec![0, 1]),
///     keys: KeyRange::half_open(Some(500), None),
///     limit: Some(100),
///     ..ScanRequest::default()
/// };
/// let mut rows = 0;
/// for batch in room.view()?.scan(&request)? {
///     let batch = batch?;
///     assert_eq!(batch.num_columns(), 2);
///     rows += batch.num_rows();
/// }
/// assert_eq!(rows, 100);
/// # Ok(())
/// # }
/// ```
pub use thalweg_table::ScanRequest;

/// All rows, and a counter of the work that the scan was:
///
/// ```
/// # fn main() -> thalweg::Result<()> {
/// use thalweg::{CreateOptions, Database, ScanRequest, Value, schema_of_names};
///
/// let db = Database::open(":memory:")?;
/// let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
///
/// let mut scan = room.view()?.scan(&ScanRequest::default())?;
/// assert_eq!(scan.schema().field(1).name(), "temp");
/// assert_eq!(scan.next().unwrap()?.num_rows(), 1);
/// assert!(scan.next().is_none());
/// assert_eq!(scan.metrics().open_rows(), 1); // the row was in no block yet
/// # Ok(())
/// # }
/// ```
pub use thalweg_table::Scan;

#[cfg(feature = "sql")]
pub use thalweg_query::{
    CancelHandle, ExtraTable, Fetched, Params, PlacedStatement, Prepared, QueryResult, QueryStream,
    ScalarValue, Session, SessionSettings, TableScan, csv, several_statements, texts,
};
