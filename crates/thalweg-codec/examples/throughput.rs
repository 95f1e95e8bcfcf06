//! Measures every codec on the kinds of data that matter most, on one core:
//! `cargo run --release -p thalweg-codec --example throughput [rows per chunk [part of a row's name]]`.
//!
//! Prints million values per second in and out, and the compression ratio in brackets. Data are
//! seeded; every decoded chunk is compared with its source before anything is timed.
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/common/random.rs"]
mod random;

use random::Random;
use std::hint::black_box;
use std::time::{Duration, Instant};

use thalweg_codec::{Decoder, Element, EncodedChunk, Encoder, LastStage, Level, ValueCodec};

const TOTAL_ROWS: usize = 1 << 20;
const ROUNDS: usize = 15;

fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// A column, and the codecs worth a row in the table.
fn measure_column<T: Element>(
    name: &str,
    values: &[T],
    chunk_rows: usize,
    codecs: &[Option<ValueCodec>],
) {
    for &codec in codecs {
        measure(name, values, chunk_rows, codec, None, Level::Fast);
    }
    measure(
        name,
        values,
        chunk_rows,
        Some(ValueCodec::Plain),
        Some(LastStage::Lz4),
        Level::Fast,
    );
    measure(name, values, chunk_rows, None, None, Level::Dense);
}

fn measure<T: Element>(
    name: &str,
    values: &[T],
    chunk_rows: usize,
    codec: Option<ValueCodec>,
    stage: Option<LastStage>,
    level: Level,
) {
    let chosen = codec.map_or_else(
        || format!("chosen, {level:?}"),
        |codec| format!("{codec:?}"),
    );
    let label = stage.map_or_else(|| chosen.clone(), |stage| format!("{chosen} + {stage:?}"));
    let label = format!("{name:24} {label:18}");
    if !std::env::args()
        .nth(2)
        .is_none_or(|part| label.contains(&part))
    {
        return;
    }
    let mut encoder = Encoder::new(level);
    if let Some(codec) = codec {
        encoder = encoder.with_value_codec(codec);
    }
    if let Some(stage) = stage {
        encoder = encoder.with_last_stage(stage);
    }
    let mut chunks = vec![EncodedChunk::new(); values.len().div_ceil(chunk_rows)];
    let encode = |chunks: &mut [EncodedChunk], encoder: &mut Encoder| {
        for (chunk, values) in chunks.iter_mut().zip(values.chunks(chunk_rows)) {
            encoder.encode(black_box(values), chunk).unwrap();
        }
    };
    encode(&mut chunks, &mut encoder);
    let mut decoder = Decoder::new();
    let mut out: Vec<T> = Vec::with_capacity(chunk_rows);
    for (chunk, values) in chunks.iter().zip(values.chunks(chunk_rows)) {
        out.clear();
        let view = chunk.view().unwrap();
        decoder
            .decode(&view, 0..view.page_count(), &mut out)
            .unwrap();
        assert!(out == values, "{name} does not come back");
    }
    let encode_time = best(|| encode(&mut chunks, &mut encoder));
    let decode_time = best(|| {
        for chunk in &chunks {
            out.clear();
            let view = chunk.view().unwrap();
            decoder
                .decode(&view, 0..view.page_count(), &mut out)
                .unwrap();
            black_box(&out);
        }
    });
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = |time: Duration| values.len() as f64 / time.as_secs_f64() / 1e6;
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let ratio = size_of_val(values) as f64 / bytes as f64;
    println!(
        "{label} in {:6.0}  out {:6.0}  ({ratio:.2})",
        rate(encode_time),
        rate(decode_time)
    );
}

fn best(mut run: impl FnMut()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .unwrap()
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "test data"
)]
fn main() {
    let chunk_rows = std::env::args()
        .nth(1)
        .map_or(4096, |rows| rows.parse().unwrap());
    let mut random = Random(1);
    let mut time_ms = 1_600_000_000_000_i64;
    let times: Vec<i64> = (0..TOTAL_ROWS)
        .map(|_| {
            time_ms += 1 + random.below(9) as i64;
            time_ms
        })
        .collect();
    let small: Vec<i64> = (0..TOTAL_ROWS).map(|_| random.below(100) as i64).collect();
    let words: Vec<i64> = (0..TOTAL_ROWS).map(|_| random.next() as i64).collect();
    let mut level = 50.0;
    let walk: Vec<f64> = (0..TOTAL_ROWS)
        .map(|_| {
            level += normal(&mut random) * 0.1;
            rounded(level, 2)
        })
        .collect();
    let gamma: Vec<f64> = (0..TOTAL_ROWS)
        .map(|_| {
            rounded(
                -10.0 * ((1.0 - random.unit()).ln() + (1.0 - random.unit()).ln()),
                3,
            )
        })
        .collect();
    let noise: Vec<f64> = (0..TOTAL_ROWS).map(|_| normal(&mut random)).collect();
    let states: Vec<f64> = (0..TOTAL_ROWS)
        .map(|_| [0.1, 1.0 / 3.0, 2e9, 7.7][random.below(4) as usize])
        .collect();
    let narrow: Vec<f32> = walk.iter().map(|&value| value as f32).collect();
    let mut status = 0;
    let runs: Vec<i32> = (0..TOTAL_ROWS)
        .map(|_| {
            if random.below(300) == 0 {
                status = (random.below(5) * 1000) as i32;
            }
            status
        })
        .collect();
    let codes: Vec<u8> = (0..TOTAL_ROWS).map(|_| random.below(6) as u8).collect();

    use ValueCodec::{Alp, AlpDelta, AlpRd, Delta, Dictionary, FrameOfReference, Plain, RunLength};
    println!("million values per second, one core, chunks of {chunk_rows} rows");
    let integer_codecs = [None, Some(FrameOfReference), Some(Delta), Some(Plain)];
    measure_column("timestamps, jitter", &times, chunk_rows, &integer_codecs);
    measure_column("small integers", &small, chunk_rows, &integer_codecs);
    measure_column("random integers", &words, chunk_rows, &[None]);
    measure_column(
        "walk, 2 decimals",
        &walk,
        chunk_rows,
        &[None, Some(Alp), Some(AlpDelta)],
    );
    measure_column(
        "gamma, 3 decimals",
        &gamma,
        chunk_rows,
        &[None, Some(Alp), Some(AlpDelta)],
    );
    measure_column(
        "full-precision noise",
        &noise,
        chunk_rows,
        &[None, Some(AlpRd), Some(Plain)],
    );
    measure_column(
        "four float states",
        &states,
        chunk_rows,
        &[None, Some(Dictionary)],
    );
    measure_column("walk, f32", &narrow, chunk_rows, &[None]);
    measure_column(
        "status runs, i32",
        &runs,
        chunk_rows,
        &[None, Some(RunLength)],
    );
    measure_column("codes, u8", &codes, chunk_rows, &[None]);
}
