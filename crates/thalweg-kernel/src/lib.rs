//! The log that is the database: frames, blocks, fragments, edits, snapshots, recovery.
