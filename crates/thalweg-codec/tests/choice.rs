//! What encoders choose by their samples, and that they keep no memory of large chunks.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "test data"
)]

mod common;

use common::{Random, round_trip};
use thalweg_codec::{ChunkKind, EncodedChunk, Encoder, LastStage, Level, PAGE_ROWS};

const ROWS: usize = 4 * PAGE_ROWS;

fn encode_texts(
    level: Level,
    mut make: impl FnMut(usize, &mut Random) -> String,
) -> (EncodedChunk, usize) {
    let mut random = Random(1);
    let (mut offsets, mut data) = (vec![0_i32], Vec::new());
    for row in 0..ROWS {
        data.extend_from_slice(make(row, &mut random).as_bytes());
        offsets.push(data.len() as i32);
    }
    let mut chunk = EncodedChunk::new();
    Encoder::new(level)
        .encode_bytes(&offsets, &data, &mut chunk)
        .unwrap();
    (chunk, data.len())
}

#[test]
fn digits_take_four_bits() {
    for level in [Level::Fast, Level::Dense] {
        let (chunk, raw_bytes) = encode_texts(level, |_, random| format!("{:016x}", random.next()));
        assert_eq!(chunk.codec.kind, ChunkKind::Alphabet, "{level:?}");
        assert!(chunk.bytes.len() < raw_bytes / 2 + 100);
        assert_eq!(chunk.codec.last_stage, LastStage::None);
    }
}

#[test]
fn other_texts_go_where_they_went_before() {
    let (chunk, _) = encode_texts(Level::Fast, |_, random| format!("n{}", random.below(9)));
    assert_eq!(chunk.codec.kind, ChunkKind::Dictionary, "few names");
    let (chunk, _) = encode_texts(Level::Fast, |row, _| format!("device-{row:08}"));
    assert_eq!(chunk.codec.kind, ChunkKind::Pages, "counted names");
    assert_eq!(chunk.codec.last_stage, LastStage::Lz4);
    let letters = |_: usize, random: &mut Random| -> String {
        let letter = |_| char::from(b'!' + random.below(90) as u8);
        (0..20).map(letter).collect()
    };
    let (chunk, _) = encode_texts(Level::Fast, letters);
    assert_eq!(chunk.codec.kind, ChunkKind::Pages, "any letters");
    assert_eq!(chunk.codec.last_stage, LastStage::None);
}

/// Texts of which most are digits: the sample sees them, the pages have others.
#[test]
fn an_alphabet_that_does_not_hold_is_given_up() {
    let (chunk, raw_bytes) = encode_texts(Level::Fast, |row, random| {
        if row % 1_024 == 700 {
            "other letters".to_owned()
        } else {
            format!("{:016x}", random.next())
        }
    });
    assert!(chunk.bytes.len() < raw_bytes + 1_000);
}

#[test]
fn pieces_that_repeat_are_codes_in_dense_chunks() {
    let hosts = ["alpha", "bravo", "charlie", "delta"];
    let (chunk, raw_bytes) = encode_texts(Level::Dense, |_, random| {
        let host = hosts[random.below(4) as usize];
        format!("{host}.{:04}", random.below(10_000))
    });
    assert!(chunk.bytes.len() < raw_bytes / 2, "{:?}", chunk.codec);
}

#[test]
fn numbers_of_few_bits_that_jump_are_pco_in_dense_chunks() {
    let mut random = Random(2);
    // Small numbers mostly, with a long tail that packing pays for in each row.
    let values: Vec<i64> = (0..16 * ROWS)
        .map(|_| {
            let bits = random.below(20);
            random.below(1 << bits) as i64
        })
        .collect();
    let dense = round_trip(&values, &mut Encoder::new(Level::Dense), "dense");
    assert_eq!(dense.codec.kind, ChunkKind::Pco);
    let fast = round_trip(&values, &mut Encoder::new(Level::Fast), "fast");
    assert_eq!(fast.codec.kind, ChunkKind::Pages, "too slow to read");
    assert!(dense.bytes.len() + dense.bytes.len() / 7 < fast.bytes.len());
}

#[test]
fn floats_of_single_precision_are_shuffled() {
    let mut random = Random(3);
    // Bits that nothing packs: 24 of 64 are noise, in the middle.
    let values: Vec<u64> = (0..ROWS)
        .map(|_| (random.below(1 << 24) << 24) | (random.below(2) * (0xAB << 56)))
        .collect();
    for (level, stage) in [
        (Level::Fast, LastStage::Lz4),
        (Level::Dense, LastStage::Zstd),
    ] {
        let chunk = round_trip(&values, &mut Encoder::new(level), "gaps");
        assert_eq!(chunk.codec.last_stage, stage, "{level:?}");
        assert!(
            chunk.bytes.len() < ROWS * 8 * 6 / 10,
            "{}",
            chunk.bytes.len()
        );
    }
    let noise: Vec<f64> = (0..ROWS).map(|_| random.unit()).collect();
    let chunk = round_trip(&noise, &mut Encoder::new(Level::Fast), "noise");
    assert_eq!(chunk.codec.last_stage, LastStage::None);
}

#[test]
fn wide_numbers_that_repeat_have_a_dictionary() {
    let mut random = Random(4);
    let values: Vec<i128> = (0..ROWS)
        .map(|_| i128::from(random.below(20) * 0x1234_5678_9ABC) << 40)
        .collect();
    let chunk = round_trip(&values, &mut Encoder::new(Level::Fast), "wide");
    assert_eq!(chunk.codec.kind, ChunkKind::Dictionary);
    assert!(chunk.bytes.len() < ROWS);
}

#[test]
fn no_memory_of_a_large_chunk_is_kept() {
    let mut random = Random(5);
    for level in [Level::Fast, Level::Dense] {
        let mut encoder = Encoder::new(level);
        let mut chunk = EncodedChunk::new();
        let values: Vec<u64> = (0..5 << 20).map(|_| random.below(900) << 40).collect();
        encoder.encode(&values, &mut chunk).unwrap();
        let wide: Vec<i128> = values[..1 << 20].iter().map(|&v| i128::from(v)).collect();
        encoder.encode(&wide, &mut chunk).unwrap();
        let data = vec![b'x'; 64 << 20];
        let offsets: Vec<i64> = (0..=1_024).map(|row| row << 16).collect();
        encoder.encode_bytes(&offsets, &data, &mut chunk).unwrap();
        let data: Vec<u8> = (0..64 << 20).map(|_| random.next() as u8).collect();
        encoder.encode_bytes(&offsets, &data, &mut chunk).unwrap();
        let offsets: Vec<i64> = (0..=3 << 20).collect();
        encoder.encode_bytes(&offsets, &data, &mut chunk).unwrap();
        let kept_bytes = encoder.buffer_bytes();
        assert!(kept_bytes < 16 << 20, "{level:?}: {kept_bytes}");
    }
}
