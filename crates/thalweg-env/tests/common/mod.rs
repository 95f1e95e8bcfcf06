//! What the tests of the simulated machine share.
#![expect(clippy::expect_used, reason = "helpers of tests fail loudly")]
#![expect(unreachable_pub, reason = "each test file is a crate of its own")]

use std::path::Path;
use std::sync::Arc;

use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::{Env, File, OpenMode};

/// The file most tests look at.
pub const F: &str = "/f";

/// A machine with one durable file of that content.
pub fn with_file(bytes: &[u8]) -> (SimEnv, Env, Arc<dyn File>) {
    let sim = SimEnv::new(1);
    sim.write_file(Path::new(F), bytes)
        .expect("an empty disk takes a file");
    let env = sim.env();
    let file = open(&env, F, OpenMode::ReadWrite);
    (sim, env, file)
}

pub fn open(env: &Env, path: &str, mode: OpenMode) -> Arc<dyn File> {
    env.storage()
        .open(Path::new(path), mode)
        .expect("the file can be opened")
}

pub fn read(sim: &SimEnv, path: &str) -> Vec<u8> {
    sim.read_file(Path::new(path)).expect("the file is there")
}

pub fn paths(sim: &SimEnv) -> Vec<String> {
    sim.files()
        .into_iter()
        .map(|(path, _)| path.display().to_string())
        .collect()
}

pub fn after(sim: &SimEnv, choice: CrashChoice) -> Vec<u8> {
    read(&sim.crash_image(&choice), F)
}
