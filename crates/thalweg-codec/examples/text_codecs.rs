//! Measures the codecs of texts on the kinds that matter most, on one core:
//! `cargo run --release -p thalweg-codec --example text_codecs [rows per chunk [part of a row's name]]`.
//!
//! Prints nanoseconds per value in and out, and bytes per value. Data are seeded; every chunk is
//! compared with its source before anything is timed.
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(clippy::cast_possible_truncation, reason = "test data")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/common/random.rs"]
mod random;

use random::Random;
use std::hint::black_box;
use std::time::Instant;

use thalweg_codec::{Decoder, EncodedChunk, Encoder, LastStage, Level, ValueCodec};

const TOTAL_ROWS: usize = 1 << 18;
const ROUNDS: usize = 15;

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.next() as u8).collect()
}

/// A chunk's worth of texts.
struct Texts {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(4_096, |rows| rows.parse().unwrap());
    let part = arguments.next().unwrap_or_default();
    let mut random = Random(1);
    println!("nanoseconds per value, one core, chunks of {rows} rows");
    let mut column = |name: &str, count: usize, make: &mut dyn FnMut(&mut Random) -> Vec<u8>| {
        if !name.contains(&part) {
            return;
        }
        let chunks = texts(rows, count, || make(&mut random));
        for (label, level, codec, stage) in [
            ("chosen, fast", Level::Fast, None, None),
            ("plain", Level::Fast, Some(ValueCodec::Plain), None),
            (
                "LZ4",
                Level::Fast,
                Some(ValueCodec::Plain),
                Some(LastStage::Lz4),
            ),
            ("alphabet", Level::Fast, Some(ValueCodec::Alphabet), None),
            ("FSST", Level::Fast, Some(ValueCodec::Fsst), None),
            ("chosen, dense", Level::Dense, None, None),
        ] {
            let mut encoder = Encoder::new(level);
            if let Some(codec) = codec {
                encoder = encoder.with_value_codec(codec);
            }
            if let Some(stage) = stage {
                encoder = encoder.with_last_stage(stage);
            }
            measure(&format!("{name:24} {label:14}"), &chunks, &mut encoder);
        }
    };
    let all = TOTAL_ROWS;
    column("device names, 40", all, &mut |random| {
        format!("plant-3/line-{:02}/temperature", random.below(40)).into_bytes()
    });
    column("device names, 2,000", all, &mut |random| {
        format!("plant-3/device-{:05}/temperature", random.below(2_000) * 37).into_bytes()
    });
    column("hex ids, 32 digits", all, &mut |random| {
        format!("{:016x}{:016x}", random.next(), random.next()).into_bytes()
    });
    column("UUIDs", all, &mut |random| {
        let digits = format!("{:016x}{:016x}", random.next(), random.next());
        [0..8, 8..12, 12..16, 16..20, 20..32]
            .map(|part| digits[part].to_owned())
            .join("-")
            .into_bytes()
    });
    column("decimals as text", all, &mut |random| {
        format!("{}.{:03}", random.below(100), random.below(1_000)).into_bytes()
    });
    column("random, 16 B", all, &mut |random| bytes(random, 16));
    column("random, 1 KiB", all / 16, &mut |random| {
        bytes(random, 1_024)
    });
    let mut row = 0;
    column("log lines", all, &mut |random| {
        row += 1;
        let level = ["INFO", "WARN", "ERROR"][random.below(3) as usize];
        let what = [
            "connection accepted from",
            "sensor out of range at",
            "retry after",
        ][random.below(3) as usize];
        format!(
            "2026-11-27T11:{:02}:{:02}.{:03}Z {level} [worker-{}] {what} 10.0.{}.{} in {} us",
            row / 60_000 % 60,
            row / 1_000 % 60,
            row % 1_000,
            random.below(8),
            random.below(256),
            random.below(256),
            random.below(100_000)
        )
        .into_bytes()
    });
    column("empty", all, &mut |_| Vec::new());
}

fn texts(rows: usize, count: usize, mut make: impl FnMut() -> Vec<u8>) -> Vec<Texts> {
    let chunk = |start: usize| {
        let mut texts = Texts {
            offsets: vec![0],
            data: Vec::new(),
        };
        for _ in start..(start + rows).min(count) {
            texts.data.extend_from_slice(&make());
            texts.offsets.push(i32::try_from(texts.data.len()).unwrap());
        }
        texts
    };
    (0..count).step_by(rows).map(chunk).collect()
}

fn measure(label: &str, texts: &[Texts], encoder: &mut Encoder) {
    let mut chunks = vec![EncodedChunk::new(); texts.len()];
    let mut encode = || {
        for (chunk, texts) in chunks.iter_mut().zip(texts) {
            encoder
                .encode_bytes(black_box(&texts.offsets), &texts.data, chunk)
                .unwrap();
        }
    };
    let encode_s = best_s(&mut encode);
    let mut decoder = Decoder::new();
    let (mut offsets, mut data) = (Vec::<i32>::new(), Vec::new());
    let mut decode = |chunk: &EncodedChunk, offsets: &mut Vec<i32>, data: &mut Vec<u8>| {
        offsets.clear();
        data.clear();
        let view = chunk.view().unwrap();
        for page in 0..view.page_count() {
            let (bytes, rows) = (view.page(page), view.page_rows(page));
            decoder
                .decode_bytes_page(view.codec(), view.prelude(), bytes, rows, offsets, data)
                .unwrap();
        }
    };
    for (chunk, texts) in chunks.iter().zip(texts) {
        decode(chunk, &mut offsets, &mut data);
        assert!(offsets == texts.offsets && data == texts.data, "{label}");
    }
    let decode_s = best_s(&mut || {
        for chunk in &chunks {
            decode(chunk, &mut offsets, &mut data);
            black_box(&data);
        }
    });
    let rows: usize = texts.iter().map(|texts| texts.offsets.len() - 1).sum();
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    println!(
        "{label} in {:8.2}  out {:8.2}  ({:.2} bytes)",
        encode_s * 1e9 / rows as f64,
        decode_s * 1e9 / rows as f64,
        bytes as f64 / rows as f64
    );
}

fn best_s(run: &mut dyn FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(once).fold(f64::INFINITY, f64::min)
}
