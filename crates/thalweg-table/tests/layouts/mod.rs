//! The layouts that tests run over: those of this version and one more, which nothing but tests knows.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod by_hash;

use by_hash::ByHash;
use thalweg_table::{CreateOptions, Layouts};

/// What orders the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The values of a column of times.
    Time,
    /// When they came.
    Arrival,
    /// The hash of another column.
    Hash,
}

/// All that tests run over.
pub(crate) const ORDERS: [Order; 3] = [Order::Time, Order::Arrival, Order::Hash];

/// What databases of tests know.
pub(crate) fn known() -> Layouts {
    Layouts::default().with(&ByHash)
}

impl Order {
    /// The options of a table with a column of times and another one of 64-bit integers or texts.
    pub(crate) fn options(self, time: &str, other: &str) -> CreateOptions {
        match self {
            Self::Time => CreateOptions::stream(time),
            Self::Arrival => CreateOptions::default(),
            Self::Hash => CreateOptions {
                layout: Some("By_Hash".to_owned()),
                ..CreateOptions::default().with("column", other)
            },
        }
    }
}
