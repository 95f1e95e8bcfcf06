//! The storage kernel: the log is the database.
//!
//! A commit is one *frame* appended to one log; full log segments are data files from then on. The kernel knows
//! tables as ids with opaque definitions, rows as opaque payloads or encoded *blocks* with summaries, and nothing of
//! Arrow or SQL. `docs/format/` describes every byte it writes, `ARCHITECTURE.md` how the modules hang together.
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod error;
pub mod ids;
pub mod index;
pub mod summary;
mod wire;

pub use error::{Error, ErrorKind, Result};
pub use ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, TableId};
