//! The storage kernel: the log is the database.
//!
//! A commit is one *frame* appended to one log; full log segments are data files from then on. The kernel knows
//! tables as ids with opaque definitions, rows as opaque payloads or encoded *blocks* with summaries, and nothing of
//! Arrow or SQL. `docs/format/` describes every byte it writes, `ARCHITECTURE.md` how the modules hang together.
#![forbid(unsafe_code)]

mod announcer;
mod background;
mod bases;
mod beside;
pub mod bitmap;
pub mod block;
mod catalog;
mod change;
mod checkpoint;
pub mod commit;
mod committer;
mod compact;
mod contradictions;
mod draft;
mod dropped;
mod due;
pub mod error;
mod failure;
mod features;
mod fields;
mod file_uses;
mod folders;
pub mod fragment;
mod frame;
mod free_space;
mod full_disk;
mod garbage;
pub mod ids;
pub mod index;
mod job;
pub mod kernel;
mod leader;
mod limits;
mod live;
mod log_writer;
mod lowered;
pub mod masks;
mod open;
mod open_rows;
mod open_tables;
mod options;
pub mod orders;
mod panics;
pub mod paths;
mod pins;
mod producers;
mod purpose;
mod queue;
mod radix_map;
mod reader;
mod reader_slots;
mod recover;
pub mod repair;
mod replay;
mod root;
mod rows_part;
mod rules;
mod segment;
mod segment_supply;
mod since_checkpoint;
mod size_limits;
mod space_estimates;
pub mod state;
pub mod store;
pub mod summary;
mod table_state;
mod unfinished;
mod upkeep;
pub mod verify;
mod view;
pub mod wire;
mod working;
mod writer;

pub use commit::{Commit, Durability, Edit, GroupPart, NEW_TABLE, Producer};
pub use draft::TableDraft;
pub use error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use file_uses::respelled_uses;
pub use ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, TableId};
pub use kernel::Kernel;
pub use limits::{FRAME_LIMIT_BYTES, GroupRoom, MANY_MASKS_BYTES, NAME_LIMIT_BYTES, are_few_pages};
pub use open_rows::OpenRows;
pub use options::{IndexBlocks, Options, RowEncoder};
pub use producers::MAX_PRODUCERS;
#[doc(hidden)]
pub use producers::respelled_producers;
pub use rows_part::RowsPart;
#[cfg(feature = "broken-rules")]
pub use rules::{Rule, break_rule};
#[cfg(feature = "broken-rules")]
pub use size_limits::{limit_changed_bytes, limit_page_entries};
pub use state::{Snapshot, TableSnapshot};
pub use table_state::TableState;
pub use working::name_is_taken;
