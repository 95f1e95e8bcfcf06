//! Table layouts over the kernel: schemas, indexes, scans and aggregates as Arrow batches.
#![forbid(unsafe_code)]

mod assemble;
mod buffers;
mod cast;
mod closed;
pub mod column;
mod conform;
pub mod definition;
mod definitions;
mod deleted_rows;
mod error;
pub mod options;
pub mod rows;
pub mod schema;
pub mod suggest;
pub mod time;
mod value;

pub use column::{BlockDecoder, BlockEncoder, ValueDecoder, decode_block};
pub use conform::{conform, shown_value};
pub use definition::{Column, Layout, Summaries, TableDefinition};
pub use options::{CreateOptions, SummaryOption};
pub use rows::{RowWriter, RowsDecoder, decode_rows, encode_rows};
pub use time::{Split, TimeBound, full_time_text, key_range, order_keys};
pub use value::Value;

pub mod aggregate;
pub mod appender;
mod catalog;
pub mod engine;
mod layouts;
mod merge;
mod nans;
mod new_table;
mod open;
mod order;
mod pool;
pub mod range;
mod raw_sizes;
mod reader;
pub mod region;
pub mod row_reader;
pub mod scan;
mod stream;
mod summarise;
mod sweep;
pub mod system_columns;
pub mod table;
mod table_turns;
mod turns;
mod unlisted;
pub mod wide;

pub use aggregate::{AggregateRequest, AggregateResult, Bucket, Group};
pub use appender::Appender;
pub use catalog::DatabaseView;
pub use engine::{AppendLimits, Engine, EngineOptions};
pub use nans::with_one_nan;
pub use new_table::NewTable;
pub use range::{ColumnRange, KeyRange};
pub use region::{BlockRegion, RegionReader, Strided};
pub use row_reader::{RowAddress, RowPlace, RowReader};
pub use scan::{Scan, ScanMetrics, ScanRequest};
pub use table::{Maintained, Table, TableStats, TableView};
pub use thalweg_kernel::summary::{ColumnSummary, SummaryKind, ValueRange};
pub use thalweg_kernel::{Durability, Error, ErrorKind, Result};
