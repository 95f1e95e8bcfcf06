//! Functions of SQL that are Thalweg's own: where DataFusion's would give a wrong answer, or take all memory.

mod bounded;
pub(crate) mod described;
mod extreme;
pub(crate) mod floats;
pub(crate) mod guarded;
pub(crate) mod lengths;
pub(crate) mod mode;
pub(crate) mod quantile;
pub(crate) mod scaled;
mod sliding;
mod time_groups;
pub(crate) mod time_texts;
pub(crate) mod time_zones;
pub(crate) mod total;
pub(crate) mod try_times;
