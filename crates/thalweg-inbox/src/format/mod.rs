//! The bytes of the inbox: registry, logs, frames, and what the log of the database holds of them
//! (docs/design/next-format/inbox.md).
//!
//! Invariants
//! - Arbitrary bytes decode to an error or to a value that encodes to the same bytes, never to a panic.
//! - What this version does not know, under a sound checksum, is unsupported, not damaged.
//! - Lengths are checked before memory is taken for them.

mod edits;
mod fields;
mod frame;
mod half;
mod log_header;
mod part;
mod position;

pub use edits::{Adopt, Edit, Floor};
pub use fields::{Fault, Seal};
pub use frame::{
    ADD_HEAD_BYTES, AddHead, Draft, FRAME_HEADER_BYTES, FRAME_MAGIC, Frame, FrameHead, GroupBody,
    MAX_FRAME_BYTES, MAX_SECTIONS, Section, SectionKind,
};
pub use half::{HALF_BYTES, Half};
pub use log_header::{LOG_HEADER_BYTES, LogHeader};
pub use part::InboxState;
pub use position::{HeldGroup, MAX_HELD, Position};

/// The offset of the first frame of a log.
pub const FIRST_FRAME: u64 = 4096;

/// The order of commits with cells, and what decides between versions of a cell: time first, then sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time: i64,
    /// One more than that of the commit before.
    pub sequence: u64,
}

/// A commit of the log of the database. The epoch is compared first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogCommit {
    /// The life of the writer.
    pub epoch: u32,
    /// The number of the commit.
    pub commit: u64,
}
