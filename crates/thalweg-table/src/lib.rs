//! Table layouts over the kernel: schemas, indexes, scans and aggregates as Arrow batches.
