//! Functions of SQL that are Thalweg's own: where DataFusion's would give a wrong answer, or take all memory.

pub(crate) mod bounded;
pub(crate) mod total;
