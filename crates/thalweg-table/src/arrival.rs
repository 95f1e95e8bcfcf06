//! The arrival of rows: the order in which they were committed.
//!
//! Invariant: rows of equal keys are in the order of their arrival, in blocks, among open rows and across both.

pub(crate) use thalweg_kernel::index::Arrival;
