//! Whether the pages of a chunk are shuffled before the last stage, decided by a sample.
//!
//! Invariants: shuffling is chosen only where the sample comes out a quarter smaller than in pages
//! that pack; what the choice costs does not grow with the chunk.

use zerocopy::IntoBytes;

use crate::PAGE_ROWS;
use crate::chain::LastStage;
use crate::settings::{Level, Settings, ValueCodec};
use crate::stage::Compressor;
use crate::wide::{Lane, shuffle_bytes};

/// Values of each of the three sampled runs.
const RUN_ROWS: usize = 128;
const RUNS: usize = 3;

/// The last stage that the shuffled pages of a chunk should go through, where they pay. A packed
/// run takes `run_bytes`.
pub(crate) fn choose<L: Lane>(
    values: &[L],
    run_bytes: usize,
    settings: &Settings,
    compressor: &mut Compressor,
) -> Option<LastStage> {
    let stage = match (settings.last_stage, settings.level) {
        (Some(stage), _) => stage,
        (None, Level::Fast) => LastStage::Lz4,
        (None, Level::Dense) => LastStage::Zstd,
    };
    if stage == LastStage::None || L::BYTES < 2 {
        return None;
    }
    if settings.codec == Some(ValueCodec::Shuffle) {
        return Some(stage);
    }
    if settings.codec.is_some() || values.len() < PAGE_ROWS {
        return None;
    }
    // What shuffled runs must stay below: a quarter less than packed ones.
    let limit_bytes = run_bytes - run_bytes / 4;
    let plain_bytes = PAGE_ROWS * L::BYTES;
    // Runs that pack to a third are quicker to read than anything compressed.
    if limit_bytes < plain_bytes / 4 {
        return None;
    }
    // Bytes that change with each value stay as they are.
    if quiet_bytes(values) < L::BYTES - L::BYTES * limit_bytes / plain_bytes {
        return None;
    }
    let mut sample = [0; RUNS * RUN_ROWS * 8];
    let sample = &mut sample[..RUNS * RUN_ROWS * L::BYTES];
    for (index, part) in sample.chunks_exact_mut(RUN_ROWS * L::BYTES).enumerate() {
        let start = index * (values.len() - RUN_ROWS) / (RUNS - 1);
        shuffle_bytes(values[start..start + RUN_ROWS].as_bytes(), L::BYTES, part);
    }
    let sample = regrouped(sample, L::BYTES);
    let packed_bytes = sample.len() * limit_bytes / plain_bytes;
    let shuffled_bytes = compressor.compressed_bytes(stage, &sample)?;
    (shuffled_bytes <= packed_bytes).then_some(stage)
}

/// Shuffled runs as one: byte 0 of all of them, then byte 1.
fn regrouped(runs: &[u8], width_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(runs.len());
    for byte in 0..width_bytes {
        for run in runs.chunks_exact(RUN_ROWS * width_bytes) {
            out.extend_from_slice(&run[byte * RUN_ROWS..][..RUN_ROWS]);
        }
    }
    out
}

/// How many bytes of a value are seldom another one than in the value before: the others are
/// noise to the last stage. Cheap, so that chunks of noise pay little for the question.
fn quiet_bytes<L: Lane>(values: &[L]) -> usize {
    const PAIRS: usize = 32;
    const LOW_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    // Eight counters of a byte each: of at most 64 pairs.
    let mut changes = 0_u64;
    for part in 0..2 {
        let start = part * (values.len() - PAIRS - 1) / 2;
        for pair in values[start..=start + PAIRS].windows(2) {
            let changed = (pair[0] ^ pair[1]).widen();
            // The highest bit of each byte that is not zero.
            let changed = (((changed & LOW_BITS) + LOW_BITS) | changed) & !LOW_BITS;
            changes += changed >> 7;
        }
    }
    let most = 2 * PAIRS / 4;
    let counts = &changes.to_le_bytes()[..L::BYTES];
    counts
        .iter()
        .filter(|&&count| usize::from(count) <= most)
        .count()
}
