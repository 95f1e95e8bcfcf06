//! What the chooser must achieve on the data that matter most.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "test data"
)]

mod common;

use common::{Bits, Random, round_trip};
use thalweg_codec::{Encoder, Level, PAGE_ROWS};

fn ratio<T: Bits>(values: &[T]) -> f64 {
    let chunk = round_trip(values, &mut Encoder::new(Level::Fast), "ratio");
    size_of_val(values) as f64 / chunk.bytes.len() as f64
}

fn times(rows: usize, random: &mut Random) -> Vec<i64> {
    let mut time_ms = 1_600_000_000_000;
    let mut next = || {
        time_ms += 1 + random.below(9) as i64;
        time_ms
    };
    (0..rows).map(|_| next()).collect()
}

#[test]
fn timestamps_with_jitter_take_four_bits() {
    assert!(ratio(&times(4 * PAGE_ROWS, &mut Random(1))) > 15.0);
}

#[test]
fn a_gap_costs_its_own_rows_only() {
    let mut times = times(4 * PAGE_ROWS, &mut Random(2));
    for gap in [100, 1500, 1501, 3000] {
        times[gap..].iter_mut().for_each(|time| *time += 86_400_000);
    }
    // A clock set back and forth again.
    times[2222] -= 5_000_000_000;
    assert!(ratio(&times) > 14.0);
}

#[test]
fn walks_with_two_decimals() {
    let mut random = Random(3);
    let mut level = 50.0;
    let walk: Vec<f64> = (0..4 * PAGE_ROWS)
        .map(|_| {
            level += random.unit() - 0.5;
            (level * 100.0).round() / 100.0
        })
        .collect();
    // Seven bits of difference.
    assert!(ratio(&walk) > 8.8);
    let narrow: Vec<f32> = walk
        .iter()
        .map(|&value| value.to_string().parse().unwrap())
        .collect();
    assert!(ratio(&narrow) > 3.2);
}

#[test]
fn noise_and_small_numbers() {
    let mut random = Random(4);
    let noise: Vec<f64> = (0..4 * PAGE_ROWS).map(|_| random.unit() * 4.0).collect();
    assert!(ratio(&noise) > 1.08);
    let small: Vec<i64> = (0..4 * PAGE_ROWS)
        .map(|_| random.below(100) as i64)
        .collect();
    assert!(ratio(&small) > 9.0);
    let words: Vec<u64> = (0..4 * PAGE_ROWS).map(|_| random.next()).collect();
    assert!(ratio(&words) > 0.999);
    let states: Vec<f64> = (0..4 * PAGE_ROWS)
        .map(|_| if random.below(3) == 0 { 1.0 / 3.0 } else { 2e9 })
        .collect();
    assert!(ratio(&states) > 50.0);
    let runs: Vec<i32> = (0..4 * PAGE_ROWS)
        .map(|row| (row as i32 / 400).wrapping_mul(0x0901_7733))
        .collect();
    assert!(ratio(&runs) > 100.0);
}

#[test]
fn data_may_change_within_a_chunk() {
    let mut random = Random(5);
    let mut mixed = times(8 * PAGE_ROWS, &mut random);
    for value in &mut mixed[3 * PAGE_ROWS..4 * PAGE_ROWS] {
        *value = random.next() as i64;
    }
    // One page of noise at full size, seven of four bits.
    let expected_bytes = PAGE_ROWS * 8 + 7 * PAGE_ROWS / 2;
    assert!(ratio(&mixed) > 0.97 * (8 * 8 * PAGE_ROWS) as f64 / expected_bytes as f64);
    let mut floats: Vec<f64> = (0..8 * PAGE_ROWS)
        .map(|_| random.below(1000) as f64 / 10.0)
        .collect();
    for value in &mut floats[5 * PAGE_ROWS..] {
        *value = (random.below(1000) as f64) / 1000.0;
    }
    // Ten bits throughout, with one decimal first and three later.
    assert!(ratio(&floats) > 5.5);
}

#[test]
fn small_chunks_stay_small() {
    let mut encoder = Encoder::new(Level::Fast);
    assert_eq!(round_trip(&[42_i64], &mut encoder, "one").bytes.len(), 8);
    assert!(
        round_trip(&[1_i64, 2, 3], &mut encoder, "three")
            .bytes
            .len()
            <= 25
    );
    let times = times(100, &mut Random(6));
    assert!(round_trip(&times, &mut encoder, "hundred").bytes.len() <= 75);
    let decimals: Vec<f64> = (0..100).map(|row| f64::from(row % 50) / 10.0).collect();
    assert!(round_trip(&decimals, &mut encoder, "hundred").bytes.len() <= 100);
}
