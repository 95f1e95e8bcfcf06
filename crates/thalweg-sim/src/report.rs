//! The output of a stage: seeds that repeat it, and figures that show what it did.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use thalweg_env::Env;

/// The seed of this run: `THALWEG_SEED`, else a new one each time.
pub fn seed() -> u64 {
    match std::env::var("THALWEG_SEED") {
        Ok(seed) => seed.parse().expect("THALWEG_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0) >> 32,
    }
}

/// A factor for long runs: `THALWEG_EFFORT`, else 1.
pub fn effort() -> usize {
    match std::env::var("THALWEG_EFFORT") {
        Ok(factor) => factor.parse().expect("THALWEG_EFFORT is a number"),
        Err(_) => 1,
    }
}

/// Prints a line that the test runner does not hold back.
pub fn say(line: impl std::fmt::Display) {
    // Figures are no result: a closed pipe must not fail the test.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Measures real time.
#[derive(Debug)]
pub struct Stopwatch {
    env: Env,
    start_ns: u64,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        let env = Env::os();
        let start_ns = env.clock().monotonic_ns();
        Self { env, start_ns }
    }

    /// Seconds since the start.
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    pub fn seconds(&self) -> f64 {
        (self.env.clock().monotonic_ns() - self.start_ns) as f64 / 1e9
    }
}

/// A small generator of numbers, for choices that a seed decides.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// One of some values.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.below(of.len() as u64));
        of[at.expect("an index of a slice")]
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    format!("panic: {}", text.unwrap_or_default())
}
