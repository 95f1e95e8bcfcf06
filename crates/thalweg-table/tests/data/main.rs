//! How data gets in and out of blocks and raw rows, and what definitions accept. One binary, so that Arrow is linked
//! once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "tests"
)]

mod addresses;
mod blocks;
mod bounds;
mod conform;
mod definition;
mod random;
mod regions;
mod rows;
mod time;
mod types;
mod values;
mod zones;
