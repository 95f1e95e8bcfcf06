//! SQL for Thalweg through Apache DataFusion.
