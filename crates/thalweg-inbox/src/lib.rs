//! The inbox of arrays: several processes append cells to one shared log, and the writer of the database adopts them.
//!
//! A prototype for the simulator: it has the format, the locks, the chain of logs, settling, commits, snapshots, adoption and
//! removal as docs/design/next-format/inbox.md describes them. What belongs to the database (states of its log, commits, pins)
//! is behind [`Database`] and [`Log`]; the kernel takes the place of the plain log that tests put there.
//!
//! Invariants
//! - Everything that changes the registry or a log is done with the commit lock in hand ([`Inbox`] has no other way).
//! - Nothing below *visible* is unsynced; nothing undecided is beyond it once somebody else has the lock.
//! - A snapshot takes no lock, and neither does adoption.
//! - One system call is one call of the environment, so that a test can try all orders of calls.
#![forbid(unsafe_code)]

mod adopt;
mod chain;
mod commit;
mod database;
mod disk;
mod error;
pub mod format;
mod inbox;
mod lock;
mod registry;
mod remove;
mod rules;
mod settle;
mod snapshot;
mod writer;

pub use database::{Build, Change, Database, Log, State, TableState};
pub use disk::Limits;
pub use error::{Error, Result};
pub use inbox::{Commit, Inbox};
pub use remove::Removed;
pub use rules::Rule;
#[cfg(feature = "broken-rules")]
pub use rules::break_rule;
pub use snapshot::{Shown, Snapshot};
pub use writer::create_inbox;
