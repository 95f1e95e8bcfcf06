//! All files of a machine at one moment.
//!
//! Invariant: paths ascend, so that whoever walks them does so in the same order each time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use thalweg_env::sim::SimEnv;

/// The files of a database.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// All files of a machine with their bytes.
pub fn files_of(sim: &SimEnv) -> Files {
    sim.files()
        .into_iter()
        .map(|(path, _)| {
            let bytes = sim.read_file(&path).expect("a file that is listed");
            (path, bytes)
        })
        .collect()
}
