//! Locks, atomics and condition variables for everything above.
//!
//! Native builds get those of the standard library; with the cargo feature `shuttle` the same names come from shuttle, so that
//! a test can explore thread schedules. Only what both offer is here: no poisoning, guards by reference in `Condvar::wait`, no
//! fairness.

pub use std::sync::Arc;

#[cfg(not(feature = "shuttle"))]
mod native;
#[cfg(not(feature = "shuttle"))]
use native::inner;
#[cfg(not(feature = "shuttle"))]
pub use native::*;

#[cfg(feature = "shuttle")]
mod explored;
#[cfg(feature = "shuttle")]
use explored::inner;
#[cfg(feature = "shuttle")]
pub use explored::*;

mod locks;
pub use locks::*;
