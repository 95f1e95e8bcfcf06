//! SQL for Thalweg through Apache DataFusion.
//!
//! [`Session`] runs statements on a [`thalweg_table::Engine`] and hands back [`QueryResult`]s to pull rows from.
//!
//! Invariants
//! - This is the only crate that names DataFusion.
//! - No statement reads or writes a file: tables are those of the database, the system tables, and what a caller
//!   hands in.
//! - What a table can answer itself is asked of it: ranges of time exactly, aggregates over them from its index,
//!   other comparisons to leave blocks out.
#![forbid(unsafe_code)]

mod catalog;
mod column_words;
mod conditions;
mod constant_params;
pub mod csv;
mod ddl;
mod deadline;
mod defaults;
mod dependencies;
mod depths;
mod dialect;
mod edits;
mod error;
mod extra;
mod from_first;
mod functions;
mod guards;
mod hidden;
mod insert;
mod limits;
mod lists;
mod lists_apart;
mod literals;
mod meaning;
mod memory;
mod metrics;
mod names;
mod new_view;
mod number_tokens;
mod offered;
mod options;
mod params;
mod parse;
mod placed_exec;
mod placed_table;
mod planner;
mod plans;
mod powers;
mod precedence;
mod pushdown;
#[cfg(test)]
mod reference;
mod result;
mod reverse;
mod rules;
mod scan;
mod scan_exec;
mod semi_joins;
mod session;
mod settings;
mod several;
mod spill;
mod stack;
mod statement;
mod stop;
mod stream;
mod subquery_orders;
mod summarize;
mod system;
mod table;
mod table_options;
pub mod texts;
mod threads;
mod token_forms;
mod token_places;
mod transactions;
mod unordered;
mod unquoted_dates;
mod unsupported_statements;
mod views;
mod wording;

pub use datafusion::common::ScalarValue;
pub use extra::ExtraTable;
pub use options::QueryOptions;
pub use params::Params;
pub use result::{CancelHandle, Fetched, QueryResult};
pub use scan::TableScan;
#[doc(hidden)]
pub use session::not_in_transaction;
pub use session::{Prepared, Session};
pub use settings::SessionSettings;
pub use several::{PlacedStatement, several_statements};
pub use stream::QueryStream;
