//! The bytes of every codec, fixed: a change of the format shows as a change of these files.
//!
//! To accept one, raise the format's version in `docs/format/codecs.md` and run the test with
//! `GOLDEN_WRITE=1`.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "test data"
)]
#![expect(clippy::disallowed_methods, reason = "a test reads its own fixtures")]

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{Bits, Random, assert_same, encoder};
use thalweg_codec::{
    ChunkView, CodecChain, Decoder, EncodedChunk, LastStage, Level, PAGE_ROWS, Paging, ValueCodec,
};

/// The rows that pages of a stream end with.
fn stream_row_ends(rows: usize) -> Vec<u32> {
    let ends = (0..rows)
        .step_by(PAGE_ROWS)
        .map(|start| (start + PAGE_ROWS).min(rows));
    ends.map(|end| u32::try_from(end).unwrap()).collect()
}

/// A chunk as text: its metadata, then its bytes, 32 to a line. Where its pages end in rows is
/// noted unless they are those of a stream.
fn to_text(chunk: &EncodedChunk) -> String {
    let mut text = format!(
        "chain {:?}\nrows {}\nprelude {}\nends {:?}\n",
        chunk.codec.to_bytes(),
        chunk.rows,
        chunk.prelude_bytes,
        chunk.page_ends
    );
    if chunk.page_row_ends != stream_row_ends(chunk.rows) {
        writeln!(text, "pages {:?}", chunk.page_row_ends).unwrap();
    }
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
    chunk.page_row_ends = stream_row_ends(chunk.rows);
    for line in lines {
        if let Some(ends) = line.strip_prefix("pages ") {
            chunk.page_row_ends = numbers(ends);
            continue;
        }
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
    check_paged(name, values, Paging::STREAM, codec, stage);
}

fn check_paged<T: Bits>(
    name: &str,
    values: &[T],
    paging: Paging<'_>,
    codec: Option<ValueCodec>,
    stage: Option<LastStage>,
) {
    let mut chunk = EncodedChunk::new();
    encoder(Level::Fast, codec, stage)
        .encode_paged(values, paging, &mut chunk)
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

#[test]
fn pco() {
    let mut random = Random(2);
    let steps: Vec<i64> = (0..1_100).map(|row| row * row - 40_000).collect();
    let small: Vec<u8> = (0..300).map(|row| [1, 1, 1, 7, 200][row % 5]).collect();
    let even: Vec<i32> = (0..700).map(|row| row * 7919 % 1_000 * 60).collect();
    let mut decimals: Vec<f64> = (0..800)
        .map(|_| (random.unit() * 1e4).round() / 100.0)
        .collect();
    decimals[3] = f64::from_bits(0xFFF8_0000_0000_0042);
    let short: Vec<f64> = (0..500).map(|_| f64::from(random.unit() as f32)).collect();
    let codec = Some(ValueCodec::Pco);
    check_values("pco_i64", &steps, codec, None);
    check_values("pco_u8", &small, codec, None);
    check_values("pco_int_mult_i32", &even, codec, None);
    check_values("pco_float_mult_f64", &decimals, codec, None);
    check_values("pco_float_quant_f64", &short, codec, None);
}

#[test]
fn shuffle() {
    let values: Vec<i64> = (0..300)
        .map(|row| ((row % 7) << 40) | ((row * 37 % 256) << 8) | 3)
        .collect();
    let codec = Some(ValueCodec::Shuffle);
    check_values("shuffle_lz4_i64", &values, codec, Some(LastStage::Lz4));
    check_values("shuffle_zstd_i64", &values, codec, Some(LastStage::Zstd));
    let narrow: Vec<u16> = (0..300)
        .map(|row| ((row % 3) << 8) | (row * 89 % 256))
        .collect();
    check_values("shuffle_lz4_u16", &narrow, codec, Some(LastStage::Lz4));
}

#[test]
fn long_pages() {
    let paging = Paging::Every(65_536);
    let integers: Vec<i64> = (0..2_100)
        .map(|row| {
            if row < 1_024 {
                5
            } else {
                row * 1_000 + row % 3
            }
        })
        .collect();
    check_paged("long_i64", &integers, paging, None, None);
    let floats: Vec<f64> = (0..1_100).map(|row| f64::from(row % 16) / 4.0).collect();
    check_paged("long_alp_f64", &floats, paging, Some(ValueCodec::Alp), None);
    let repeated: Vec<u64> = (0..1_100).map(|row| [u64::MAX, 5][row / 9 % 2]).collect();
    let codec = Some(ValueCodec::Dictionary);
    check_paged("long_dictionary_u64", &repeated, paging, codec, None);
    let wide: Vec<i128> = (0..1_100).map(|row| i128::from(row % 5) << 70).collect();
    check_paged("long_dictionary_i128", &wide, paging, codec, None);
    let halves = Some(ValueCodec::FrameOfReference);
    check_paged("long_halves_i128", &wide, paging, halves, None);
    let ends = [1, 1_100];
    check_paged(
        "pages_of_1_and_1099",
        &integers[..1_100],
        Paging::RowEnds(&ends),
        None,
        None,
    );
}

fn check_bytes(name: &str, values: &[&str], codec: Option<ValueCodec>) {
    check_bytes_paged(name, values, Paging::STREAM, codec);
}

fn check_bytes_paged(name: &str, values: &[&str], paging: Paging<'_>, codec: Option<ValueCodec>) {
    let mut offsets = vec![0_i64];
    for value in values {
        offsets.push(offsets.last().unwrap() + i64::try_from(value.len()).unwrap());
    }
    let mut chunk = EncodedChunk::new();
    let stage = codec.map(|_| LastStage::None);
    encoder(Level::Fast, codec, stage)
        .encode_bytes_paged(&offsets, values.concat().as_bytes(), paging, &mut chunk)
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
    let digits = ["00ff", "a7", "", "0123456789abcdef", "fedcba9876543210f"];
    check_bytes("alphabet_hex", &digits, Some(ValueCodec::Alphabet));
    let words = ["north", "south", "north by northwest", "", "thorn"];
    check_bytes("alphabet_letters", &words, Some(ValueCodec::Alphabet));
    let lines: Vec<String> = (0..300)
        .map(|row| format!("sensor {} at north gate, \u{fc}ber {row}", row % 7))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    check_bytes("fsst", &lines, Some(ValueCodec::Fsst));
    let long = lines[..40].repeat(30);
    let paging = Paging::Every(65_536);
    check_bytes_paged("long_fsst", &long[..1_100], paging, Some(ValueCodec::Fsst));
    let digits = digits.repeat(220);
    check_bytes_paged("long_alphabet", &digits, paging, Some(ValueCodec::Alphabet));
}

fn check_bits(name: &str, bits: &[u8], rows: usize) {
    check_bits_paged(name, bits, rows, Paging::STREAM);
}

fn check_bits_paged(name: &str, bits: &[u8], rows: usize, paging: Paging<'_>) {
    let mut chunk = EncodedChunk::new();
    encoder(Level::Fast, None, None)
        .encode_bits_paged(bits, rows, paging, &mut chunk)
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
    let mut long = vec![0xFF; 300];
    long[3] = 0;
    long[130..].fill(0);
    long[299] = 0x0F;
    check_bits_paged("long_bits", &long, 2_400, Paging::Every(65_536));
}
