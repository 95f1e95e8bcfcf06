//! The database as the inbox sees it: states of its log, and for the writer commits.
//!
//! The kernel will implement both; tests put a plain log in its place.

use crate::error::Result;
use crate::format::{Adopt, Fault, Floor, GroupBody, InboxState, LogCommit, Stamp};

/// Whether an array is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// With the version of its definition.
    There(u32),
    /// It was dropped.
    Dropped,
    /// The log never made it.
    Unknown,
}

/// One state of the log of the database, pinned for as long as it lives.
pub trait State: Clone {
    /// The commit that it is as of.
    fn at(&self) -> LogCommit;
    /// The inbox as the log has it.
    fn inbox(&self) -> &InboxState;
    /// An array.
    fn table(&self, table: u32) -> TableState;
    /// Whether a block or page of the state is in the fragment.
    fn has_fragment(&self, id: u64) -> bool;
    /// Whether cells above the sequence have coordinates of these ones.
    fn meets(&self, above: u64, bodies: &[GroupBody]) -> bool;

    /// The fragments that a list names. It verifies.
    ///
    /// # Errors
    /// A list that does not verify.
    fn fragments(&self, body: &GroupBody) -> std::result::Result<Vec<u64>, Fault>;

    /// Verifies blocks of a body, or the fragments that it names.
    ///
    /// # Errors
    /// A block or fragment that does not verify.
    fn verify(&self, body: &GroupBody) -> std::result::Result<(), Fault>;

    /// Whether two bodies have a coordinate of one array in common.
    fn share_cells(&self, a: &GroupBody, b: &GroupBody) -> bool;
}

/// The calls of every process.
pub trait Database {
    /// A state.
    type State: State;

    /// The newest state that may be shown, pinned. In the writer's process: not older than what others may have seen.
    ///
    /// # Errors
    /// Those of reading the log.
    fn state(&mut self) -> Result<Self::State>;

    /// The commit that `live` shows, if a slot of it verifies.
    ///
    /// # Errors
    /// Those of reading `live`.
    fn live(&mut self) -> Result<Option<LogCommit>>;

    /// Whether files of this state may have been removed.
    ///
    /// # Errors
    /// Those of reading `live`.
    fn is_expired(&mut self, state: &Self::State) -> Result<bool>;
}

/// A part of a commit of the log.
#[derive(Clone, Debug)]
pub enum Change {
    /// Cells of one stamp.
    Cells(Stamp, GroupBody),
    /// Edit 15, action 1.
    Adopt(Adopt),
    /// Edit 15, action 2.
    Stamp(Stamp),
    /// Edit 15, action 3.
    Floor(Floor),
    /// A table with the version of its definition.
    Create(u32, u32),
    /// A new definition of a table.
    Define(u32, u32),
    /// A table goes.
    Drop(u32),
    /// Anything else, as the database knows it.
    Other(Vec<u8>),
}

/// Builds a commit once its number is known, from the state before it.
pub type Build<'a, S> = dyn FnMut(LogCommit, &S) -> Result<Vec<Change>> + 'a;

/// The calls of the writer beside those.
pub trait Log: Database {
    /// Commits what `build` returns, synced, and shows it to others. An empty commit is none.
    ///
    /// # Errors
    /// Those of `build`, after which nothing was written, and those of writing.
    fn commit(&mut self, build: &mut Build<'_, Self::State>) -> Result<()>;

    /// Writes and syncs a commit like [`Log::commit`]; others see it after [`Log::show`] only.
    ///
    /// # Errors
    /// As those of [`Log::commit`].
    fn commit_unshown(&mut self, build: &mut Build<'_, Self::State>) -> Result<()>;

    /// Shows what was committed.
    ///
    /// # Errors
    /// Those of writing `live`.
    fn show(&mut self) -> Result<()>;

    /// Raises the garbage floor; returns whether no snapshot below it is in use.
    ///
    /// # Errors
    /// Those of writing `live` and of looking at pins.
    fn raise_garbage_floor(&mut self, to: LogCommit) -> Result<bool>;
}
