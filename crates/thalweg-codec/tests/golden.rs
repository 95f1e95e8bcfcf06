//! The bytes of every codec, fixed: a change of the format shows as a change of these files.
//!
//! To accept one, raise the format's version in `docs/format/codecs.md` and run the test with
//! `GOLDEN_WRITE=1`.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::cast_precision_loss, reason = "test data")]
#![expect(clippy::disallowed_methods, reason = "a test reads its own fixtures")]

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{Bits, Random, assert_same, encoder};
use thalweg_codec::{ChunkView, CodecChain, Decoder, EncodedChunk, LastStage, Level, ValueCodec};

/// A chunk as text: its metadata, then its bytes, 32 to a line.
fn to_text(chunk: &EncodedChunk) -> String {
    let mut text = format!(
        "chain {:?}\nrows {}\nprelude {}\nends {:?}\n",
        chunk.codec.to_bytes(),
        chunk.rows,
        chunk.prelude_bytes,
        chunk.page_ends
    );
    for line in chunk.bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn field<'a>(lines: &mut std::str::Lines<'a>, name: &str) -> &'a str {
    lines.next().unwrap().strip_prefix(name).unwrap().trim()
}

fn numbers(text: &str) -> Vec<u32> {
    text.trim_matches(['[', ']'])
        .split(", ")
        .map(|number| number.parse().unwrap())
        .collect()
}

fn from_text(text: &str) -> EncodedChunk {
    let mut lines = text.lines();
    let chain: Vec<u8> = numbers(field(&mut lines, "chain"))
        .iter()
        .map(|&byte| byte.try_into().unwrap())
        .collect();
    let mut chunk = EncodedChunk::new();
    chunk.codec = CodecChain::from_bytes(chain.try_into().unwrap()).unwrap();
    chunk.rows = field(&mut lines, "rows").parse().unwrap();
    chunk.prelude_bytes = field(&mut lines, "prelude").parse().unwrap();
    chunk.page_ends = numbers(field(&mut lines, "ends"));
    for line in lines {
        for start in (0..line.len()).step_by(2) {
            chunk
                .bytes
                .push(u8::from_str_radix(&line[start..start + 2], 16).unwrap());
        }
    }
    chunk
}

/// Compares with the fixture, and reads the fixture back: old files stay readable even where an
/// encoder has learnt to choose better.
fn check(name: &str, chunk: &EncodedChunk, read: impl Fn(&ChunkView<'_>)) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.hex"));
    if std::env::var_os("GOLDEN_WRITE").is_some() {
        std::fs::write(&path, to_text(chunk)).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    read(&from_text(&text).view().unwrap());
    assert_eq!(to_text(chunk), text, "the bytes of {name} changed");
}

fn check_values<T: Bits>(
    name: &str,
    values: &[T],
    codec: Option<ValueCodec>,
    stage: Option<LastStage>,
) {
    let mut chunk = EncodedChunk::new();
    encoder(Level::Fast, codec, stage)
        .encode(values, &mut chunk)
        .unwrap();
    check(name, &chunk, |view| {
        let mut out = Vec::new();
        Decoder::new()
            .decode(view, 0..view.page_count(), &mut out)
            .unwrap();
        assert_same(&out, values, name);
    });
}

#[test]
fn fixed_width() {
    let mut random = Random(1);
    let small: Vec<i32> = (0..1030).map(|row| row % 3 - 1).collect();
    let mut gaps: Vec<i64> = (0..1030)
        .map(|row| 1_600_000_000_000 + row * 10 + row % 3)
        .collect();
    gaps[500..].iter_mut().for_each(|value| *value += 1 << 40);
    let mut outliers: Vec<u16> = (0..1024).map(|row| 7 + row % 2).collect();
    outliers[77] = 60_000;
    let mut decimals: Vec<f64> = (0..1024)
        .map(|row| f64::from(row % 4) / 4.0 + 0.25)
        .collect();
    decimals[9] = f64::from_bits(0x7FF8_0000_0000_1234);
    let noise: Vec<f64> = (0..40).map(|_| random.unit() + 1.0).collect();
    let narrow: Vec<f32> = (0..40).map(|row| row as f32 / 10.0).collect();
    let wide: Vec<i128> = (0..20).map(|row| (i128::from(row) << 70) - 5).collect();
    let repeated: Vec<u64> = (0..1024)
        .map(|row| [u64::MAX, 5, 1 << 33][row % 3])
        .collect();
    check_values("constant_i16", &[-2_i16; 3000], None, None);
    check_values(
        "plain_u8",
        &[3_u8, 200, 0, 255, 17],
        Some(ValueCodec::Plain),
        None,
    );
    check_values(
        "frame_i32",
        &small,
        Some(ValueCodec::FrameOfReference),
        None,
    );
    check_values("frame_outlier_u16", &outliers, None, None);
    check_values("delta_outlier_i64", &gaps, None, None);
    check_values(
        "runs_u32",
        &[[9_u32; 600], [8; 600]].concat(),
        Some(ValueCodec::RunLength),
        None,
    );
    check_values(
        "dictionary_u64",
        &repeated,
        Some(ValueCodec::Dictionary),
        None,
    );
    check_values("alp_f64", &decimals, Some(ValueCodec::Alp), None);
    check_values("alp_delta_f32", &narrow, Some(ValueCodec::AlpDelta), None);
    check_values("alp_rd_f64", &noise, Some(ValueCodec::AlpRd), None);
    check_values("halves_i128", &wide, None, None);
    check_values(
        "lz4_i64",
        &[1_i64, i64::MIN, i64::MAX].repeat(50),
        Some(ValueCodec::Plain),
        Some(LastStage::Lz4),
    );
    check_values(
        "zstd_i64",
        &[1_i64, i64::MIN, i64::MAX].repeat(50),
        Some(ValueCodec::Plain),
        Some(LastStage::Zstd),
    );
}

fn check_bytes(name: &str, values: &[&str], codec: Option<ValueCodec>) {
    let mut offsets = vec![0_i64];
    for value in values {
        offsets.push(offsets.last().unwrap() + i64::try_from(value.len()).unwrap());
    }
    let mut chunk = EncodedChunk::new();
    let stage = codec.map(|_| LastStage::None);
    encoder(Level::Fast, codec, stage)
        .encode_bytes(&offsets, values.concat().as_bytes(), &mut chunk)
        .unwrap();
    check(name, &chunk, |view| {
        let (mut offsets_back, mut data) = (Vec::<i64>::new(), Vec::new());
        for page in 0..view.page_count() {
            let (bytes, rows) = (view.page(page), view.page_rows(page));
            Decoder::new()
                .decode_bytes_page(
                    view.codec(),
                    view.prelude(),
                    bytes,
                    rows,
                    &mut offsets_back,
                    &mut data,
                )
                .unwrap();
        }
        assert_eq!(
            (&offsets_back, data.as_slice()),
            (&offsets, values.concat().as_bytes()),
            "{name}"
        );
    });
}

#[test]
fn variable_length() {
    check_bytes(
        "bytes_plain",
        &["a", "", "thalweg", "0123"],
        Some(ValueCodec::Plain),
    );
    check_bytes(
        "bytes_dictionary",
        &["north", "south", "north", "", "south"],
        Some(ValueCodec::Dictionary),
    );
    check_bytes("bytes_constant", &["same"; 9], None);
}

fn check_bits(name: &str, bits: &[u8], rows: usize) {
    let mut chunk = EncodedChunk::new();
    encoder(Level::Fast, None, None)
        .encode_bits(bits, rows, &mut chunk)
        .unwrap();
    check(name, &chunk, |view| {
        let mut all = Vec::new();
        for page in 0..view.page_count() {
            let rows = view.page_rows(page);
            let mut out = vec![0; rows.div_ceil(8)];
            Decoder::new()
                .decode_bits_page(
                    view.codec(),
                    view.prelude(),
                    view.page(page),
                    rows,
                    &mut out,
                )
                .unwrap();
            all.extend_from_slice(&out);
        }
        assert_eq!(all, bits, "{name}");
    });
}

#[test]
fn single_bits() {
    check_bits("bits_plain", &[0x5A, 0x0F, 0x03], 18);
    let mut gap = vec![0xFF; 256];
    gap[130] = 0xE0;
    check_bits("bits_runs", &gap, 2048);
    check_bits("bits_constant", &[0xFF; 128], 1024);
}
