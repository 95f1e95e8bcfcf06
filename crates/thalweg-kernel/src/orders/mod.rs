//! Orders of a table: how commits change its trees, and which rows an index covers (`docs/format/log.md`).
//!
//! Invariants
//! - Each structure has one spelling; what is decoded and encoded again gives the same bytes.
//! - What a later version may put in a place (a kind, an action, a flag, a reserved byte) is unsupported; what contradicts
//!   the page is damage. Counts are compared with the bytes that are there before anything is allocated.
//! - Coverage may always be less than it could be, never more.

mod add_head;
mod coverage;
mod edit;
mod replace;
mod state;
#[cfg(test)]
mod tests;

pub use add_head::AddHead;
pub use coverage::{Coverage, CoverageRange, EVERY_COMMIT, MAX_RANGES};
pub(crate) use edit::{FIRST_ORDER, KIND_INDEX};
pub use edit::{OrderAction, OrderChange, OrdersEdit};
pub(crate) use replace::MAX_RUNS;
pub use replace::{OrderReplace, Removed, ReplaceEdit, Run};
pub use state::Order;
pub(crate) use state::{MAX_ORDERS, Orders};
