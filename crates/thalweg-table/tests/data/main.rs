//! How data gets in and out of blocks and raw rows, and what definitions accept. One binary, so that Arrow is linked
//! once.

mod blocks;
mod conform;
mod definition;
mod random;
mod rows;
mod time;
mod types;
