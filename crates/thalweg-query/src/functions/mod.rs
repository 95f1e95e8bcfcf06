//! Functions of SQL that are Thalweg's own: where DataFusion's would give a wrong answer.

pub(crate) mod total;
