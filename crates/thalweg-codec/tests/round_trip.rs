//! Every type and codec gives back every bit, whatever the data.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "test data"
)]

mod common;

use common::{
    Bits, CODECS, Random, STAGES, encoder, places, random_row_ends, round_trip, round_trip_paged,
};
use proptest::prelude::*;
use thalweg_codec::{
    ChunkKind, Decoder, EncodedChunk, Encoder, LastStage, Level, PAGE_ROWS, Paging,
};

/// How the values of a test chunk come about.
#[derive(Debug, Clone, Copy)]
enum Form {
    Constant,
    Noise,
    Small,
    Steps,
    Gaps,
    FewValues,
    Runs,
    Extremes,
    Decimals,
    Walk,
    Mixed,
}

const FORMS: [Form; 11] = [
    Form::Constant,
    Form::Noise,
    Form::Small,
    Form::Steps,
    Form::Gaps,
    Form::FewValues,
    Form::Runs,
    Form::Extremes,
    Form::Decimals,
    Form::Walk,
    Form::Mixed,
];

fn words(form: Form, rows: usize, random: &mut Random) -> Vec<u64> {
    let start = random.next();
    let mut sum = start;
    (0..rows)
        .map(|row| match form {
            Form::Constant => start,
            Form::Noise => random.next(),
            Form::Small => random.below(100),
            Form::Steps => {
                sum = sum.wrapping_add(1 + random.below(9));
                sum
            }
            Form::Gaps => {
                let gap = random.below(200) == 0;
                sum = sum.wrapping_add(if gap { random.next() >> 20 } else { 10 });
                if random.below(500) == 0 {
                    random.next()
                } else {
                    sum
                }
            }
            Form::FewValues => start.wrapping_mul(1 + random.below(7)),
            Form::Runs => start.wrapping_mul((row as u64 / 100) | 1),
            Form::Extremes => {
                [0, 1, u64::MAX, i64::MAX as u64, i64::MIN as u64][random.below(5) as usize]
            }
            Form::Decimals => random.below(100_000),
            Form::Walk => {
                sum = sum.wrapping_add(random.below(201)).wrapping_sub(100);
                sum
            }
            Form::Mixed => match row / PAGE_ROWS % 3 {
                0 => random.next(),
                1 => row as u64 * 3,
                _ => random.below(4),
            },
        })
        .collect()
}

fn floats(form: Form, rows: usize, random: &mut Random) -> Vec<f64> {
    let mut sum = 50.0;
    (0..rows)
        .map(|row| match form {
            Form::Constant => -0.0,
            Form::Noise => (random.unit() - 0.5) * 1e3,
            Form::Small => random.below(50) as f64,
            Form::Steps => row as f64 * 0.25,
            Form::Gaps => {
                if random.below(100) == 0 {
                    f64::NAN
                } else {
                    random.below(1000) as f64 / 100.0
                }
            }
            Form::FewValues => [0.1, 0.25, 1e300, -7.5][random.below(4) as usize],
            Form::Runs => (row / 77) as f64 * 1.1,
            Form::Extremes => f64::from_bits(
                [
                    0,
                    1 << 63,
                    1,
                    0x7FF0 << 48,
                    0xFFF0 << 48,
                    0x7FF8 << 48 | 12345,
                    0x7FF0 << 48 | 1,
                    u64::MAX,
                    f64::MAX.to_bits(),
                    f64::MIN_POSITIVE.to_bits(),
                ][random.below(10) as usize],
            ),
            Form::Decimals => (random.unit() * 1e6).round() / 1e3,
            Form::Walk => {
                sum += (random.unit() - 0.5) * 0.2;
                (sum * 100.0).round() / 100.0
            }
            Form::Mixed => match row / PAGE_ROWS % 3 {
                0 => random.unit(),
                1 => random.below(100) as f64 / 10.0,
                _ => f64::from_bits(random.next()),
            },
        })
        .collect()
}

fn check_all<T: Bits>(values: &[T], what: &str) {
    for codec in CODECS {
        for level in [Level::Fast, Level::Dense] {
            let what = format!("{what}, {codec:?}, {level:?}, {} rows", values.len());
            round_trip(values, &mut encoder(level, codec, None), &what);
        }
    }
    for stage in STAGES {
        round_trip(
            values,
            &mut encoder(Level::Fast, None, stage),
            &format!("{what}, {stage:?}"),
        );
    }
}

#[test]
fn every_type_form_and_codec() {
    for form in FORMS {
        for rows in [0, 1, 2, 5, 300, 1023, 1024, 1025, 3 * PAGE_ROWS + 17] {
            let mut random = Random(rows as u64);
            let words = words(form, rows, &mut random);
            let what = format!("{form:?}");
            check_all(&words, &what);
            check_all(
                &words.iter().map(|&word| word as u32).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as u16).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as u8).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as i64).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as i32).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as i16).collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words.iter().map(|&word| word as i8).collect::<Vec<_>>(),
                &what,
            );
            let wide = words
                .iter()
                .map(|&word| i128::from(word as i64) * i128::from(word >> 40));
            check_all(&wide.collect::<Vec<_>>(), &what);
            check_all(
                &words
                    .iter()
                    .map(|&word| f64::from_bits(word))
                    .collect::<Vec<_>>(),
                &what,
            );
            check_all(
                &words
                    .iter()
                    .map(|&word| f32::from_bits(word as u32))
                    .collect::<Vec<_>>(),
                &what,
            );
            let floats = floats(form, rows, &mut random);
            check_all(&floats, &what);
            check_all(
                &floats.iter().map(|&float| float as f32).collect::<Vec<_>>(),
                &what,
            );
        }
    }
}

fn check_bytes(values: &[Vec<u8>], encoder: &mut Encoder, what: &str) -> EncodedChunk {
    check_bytes_paged(values, Paging::STREAM, encoder, what)
}

fn check_bytes_paged(
    values: &[Vec<u8>],
    paging: Paging<'_>,
    encoder: &mut Encoder,
    what: &str,
) -> EncodedChunk {
    let mut offsets = vec![7_i32];
    let mut data = vec![9; 7];
    for value in values {
        data.extend_from_slice(value);
        offsets.push(data.len() as i32);
    }
    data.extend_from_slice(b"behind");
    let mut chunk = EncodedChunk::new();
    encoder
        .encode_bytes_paged(&offsets, &data, paging, &mut chunk)
        .unwrap();
    if let Some(texts) = encoder.distinct_texts() {
        let mut texts: Vec<&[u8]> = texts.collect();
        texts.sort_unstable();
        let mut expected: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(texts, expected, "{what}");
    }
    let view = chunk.view().unwrap();
    let mut decoder = Decoder::new();
    let (mut all_offsets, mut all_data) = (Vec::<i64>::new(), Vec::new());
    for page in 0..view.page_count() {
        let (codec, prelude, rows) = (view.codec(), view.prelude(), view.page_rows(page));
        decoder
            .decode_bytes_page(
                codec,
                prelude,
                view.page(page),
                rows,
                &mut all_offsets,
                &mut all_data,
            )
            .unwrap();
        let (mut offsets, mut data) = (Vec::<i32>::new(), Vec::new());
        decoder
            .decode_bytes_page(
                codec,
                prelude,
                view.page(page),
                rows,
                &mut offsets,
                &mut data,
            )
            .unwrap();
        let back: Vec<_> = offsets
            .windows(2)
            .map(|pair| data[pair[0] as usize..pair[1] as usize].to_vec())
            .collect();
        let page_values = &values[view.row_range(page)];
        assert_eq!(back, page_values, "{what}, page {page}");
        for index in places(rows) {
            let mut value = vec![7];
            let bytes = view.page(page);
            decoder
                .decode_bytes_value(codec, prelude, bytes, rows, index, &mut value)
                .unwrap();
            assert_eq!(value[1..], page_values[index], "{what}, value {index}");
        }
    }
    let back: Vec<_> = all_offsets
        .windows(2)
        .map(|pair| all_data[pair[0] as usize..pair[1] as usize].to_vec())
        .collect();
    assert_eq!(back, values, "{what}");
    chunk
}

/// Hexadecimal digits that an alphabet packs and LZ4 makes a hundredth of: more than 8 MiB a page, which both steps together must
/// not claim of so few bytes. A first page that is plain has LZ4 tried on all.
#[test]
fn long_texts_of_few_letters_expand_no_further_than_is_read() {
    let mut random = Random(77);
    for length in [6_000, 9_000, 14_000] {
        let digits: Vec<u8> = (0..length)
            .map(|at| match at % 40 {
                0..26 => b"0123456789abcdef"[random.below(16) as usize],
                _ => b'0',
            })
            .collect();
        let texts: Vec<Vec<u8>> = (0..2_048)
            .map(|row| {
                let mut text = digits.clone();
                if row == 7 {
                    text[5_000] = b'-';
                }
                text.extend_from_slice(format!("{row:08x}").as_bytes());
                text
            })
            .collect();
        for level in [Level::Fast, Level::Dense] {
            let what = format!("{length} digits, {level:?}");
            check_bytes(&texts, &mut Encoder::new(level), &what);
        }
    }
}

#[test]
fn every_form_of_bytes() {
    let mut random = Random(5);
    for rows in [0, 1, 2, 9, 1024, 2500] {
        let names: Vec<Vec<u8>> = (0..rows)
            .map(|_| format!("sensor-{}", random.below(40)).into_bytes())
            .collect();
        let numbers: Vec<Vec<u8>> = (0..rows)
            .map(|row| format!("reading {row}").into_bytes())
            .collect();
        let empty = vec![Vec::new(); rows];
        let noise: Vec<Vec<u8>> = (0..rows)
            .map(|_| {
                let length = random.below(40);
                (0..length).map(|_| random.next() as u8).collect()
            })
            .collect();
        let mut changing = names.clone();
        changing[rows / 2..].clone_from_slice(&numbers[rows / 2..]);
        for (what, values) in [
            ("names", &names),
            ("numbers", &numbers),
            ("empty", &empty),
            ("noise", &noise),
            ("changing", &changing),
        ] {
            for codec in CODECS {
                for level in [Level::Fast, Level::Dense] {
                    let what = format!("{what}, {rows} rows, {codec:?}, {level:?}");
                    check_bytes(values, &mut encoder(level, codec, None), &what);
                }
            }
            for stage in STAGES {
                check_bytes(
                    values,
                    &mut encoder(Level::Fast, None, stage),
                    &format!("{what}, {stage:?}"),
                );
            }
        }
    }
}

#[test]
fn long_equal_strings_stay_within_the_expansion_limit() {
    let values = vec![vec![b'x'; 40_000]; 1100];
    for codec in [None, Some(thalweg_codec::ValueCodec::Dictionary)] {
        check_bytes(
            &values,
            &mut encoder(Level::Fast, codec, None),
            "long strings",
        );
    }
    check_bytes(
        &values,
        &mut encoder(Level::Dense, None, None),
        "long strings",
    );
}

fn check_bits(bits: &[u8], rows: usize, encoder: &mut Encoder) -> EncodedChunk {
    check_bits_paged(bits, rows, Paging::STREAM, encoder)
}

fn check_bits_paged(
    bits: &[u8],
    rows: usize,
    paging: Paging<'_>,
    encoder: &mut Encoder,
) -> EncodedChunk {
    let mut chunk = EncodedChunk::new();
    encoder
        .encode_bits_paged(bits, rows, paging, &mut chunk)
        .unwrap();
    let view = chunk.view().unwrap();
    let mut decoder = Decoder::new();
    for page in 0..view.page_count() {
        let page_rows = view.page_rows(page);
        let mut out = vec![0xAA; page_rows.div_ceil(8)];
        decoder
            .decode_bits_page(
                view.codec(),
                view.prelude(),
                view.page(page),
                page_rows,
                &mut out,
            )
            .unwrap();
        for row in 0..out.len() * 8 {
            let source = view.row_range(page).start + row;
            let expected = row < page_rows && bits[source / 8] >> (source % 8) & 1 == 1;
            assert_eq!(
                out[row / 8] >> (row % 8) & 1 == 1,
                expected,
                "row {source} of {rows}"
            );
        }
        for index in places(page_rows) {
            let bit = decoder
                .decode_bit(
                    view.codec(),
                    view.prelude(),
                    view.page(page),
                    page_rows,
                    index,
                )
                .unwrap();
            assert_eq!(bit, out[index / 8] >> (index % 8) & 1 == 1, "bit {index}");
        }
    }
    chunk
}

#[test]
fn every_form_of_bits() {
    let mut random = Random(6);
    for rows in [0, 1, 7, 8, 9, 1023, 1024, 1025, 5000] {
        let bytes = usize::div_ceil(rows, 8) + 1;
        let noise: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
        let runs: Vec<u8> = (0..bytes)
            .map(|byte| if byte / 20 % 2 == 0 { 0xFF } else { 0 })
            .collect();
        let mut gap = vec![0xFF; bytes];
        gap[bytes / 2] = 0xEF;
        for bits in [vec![0; bytes], vec![0xFF; bytes], noise, runs, gap] {
            for level in [Level::Fast, Level::Dense] {
                for codec in CODECS {
                    for stage in STAGES {
                        check_bits(&bits, rows, &mut encoder(level, codec, stage));
                    }
                }
            }
        }
    }
}

#[test]
fn constant_chunks_are_their_prelude() {
    let chunk = round_trip(&[7_i64; 5000], &mut Encoder::new(Level::Fast), "constant");
    assert_eq!(
        (chunk.codec.kind, chunk.bytes.len()),
        (ChunkKind::Constant, 8)
    );
    assert_eq!(
        round_trip(&[1.5_f64], &mut Encoder::new(Level::Fast), "one row")
            .bytes
            .len(),
        8
    );
    let valid = check_bits(&[0xFF; 512], 4096, &mut Encoder::new(Level::Fast));
    assert_eq!(
        (valid.codec.kind, valid.bytes.len()),
        (ChunkKind::Constant, 1)
    );
}

/// Long pages, and pages of random lengths as at the far ends of grids.
#[test]
fn pages_of_any_length() {
    let rows = 70_000;
    for form in FORMS {
        let mut random = Random(77);
        let words = words(form, rows, &mut random);
        let floats = floats(form, rows, &mut random);
        let ends = random_row_ends(rows, &mut random);
        for paging in [
            Paging::Every(65_536),
            Paging::Every(4_096),
            Paging::Every(7),
            Paging::RowEnds(&ends),
        ] {
            // Short pages are many, and all alike.
            let short = paging == Paging::Every(7);
            for codec in CODECS.into_iter().filter(|codec| !short || codec.is_none()) {
                let what = format!("{form:?}, {codec:?}, {paging:?}");
                let mut fast = encoder(Level::Fast, codec, None);
                round_trip_paged(&words, paging, &mut fast, &what);
                round_trip_paged(&floats, paging, &mut fast, &what);
                let wide: Vec<i128> = words.iter().map(|&word| i128::from(word) << 9).collect();
                round_trip_paged(&wide, paging, &mut fast, &what);
                let narrow: Vec<i16> = words.iter().map(|&word| word as i16).collect();
                round_trip_paged(&narrow, paging, &mut fast, &what);
            }
            let mut dense = encoder(Level::Dense, None, None);
            round_trip_paged(&words, paging, &mut dense, &format!("{form:?}"));
            round_trip_paged(&floats, paging, &mut dense, &format!("{form:?}"));
        }
    }
}

#[test]
fn pages_of_texts_and_bits_of_any_length() {
    let rows = 70_000;
    let mut random = Random(78);
    let ends = random_row_ends(rows, &mut random);
    let names = |count: u64, random: &mut Random| -> Vec<Vec<u8>> {
        (0..rows)
            .map(|_| format!("line {}", random.below(count)).into_bytes())
            .collect()
    };
    let (few, many) = (names(50, &mut random), names(1 << 40, &mut random));
    let bits: Vec<u8> = (0..rows / 8)
        .map(|byte| {
            if byte / 900 % 2 == 0 {
                0xFF
            } else {
                random.next() as u8
            }
        })
        .collect();
    for paging in [
        Paging::Every(65_536),
        Paging::Every(4_096),
        Paging::Every(7),
        Paging::RowEnds(&ends),
    ] {
        for codec in CODECS {
            let what = format!("{codec:?}, {paging:?}");
            let mut fast = encoder(Level::Fast, codec, None);
            check_bytes_paged(&few, paging, &mut fast, &what);
            check_bytes_paged(&many, paging, &mut fast, &what);
            check_bits_paged(&bits, rows, paging, &mut fast);
        }
        let mut dense = encoder(Level::Dense, None, None);
        check_bytes_paged(&many, paging, &mut dense, "dense");
        check_bits_paged(&bits, rows, paging, &mut dense);
    }
}

#[test]
fn pages_that_do_not_fit_are_refused() {
    let values = [1_i64; 100];
    let mut chunk = EncodedChunk::new();
    let mut encoder = Encoder::new(Level::Fast);
    for paging in [
        Paging::Every(0),
        Paging::Every(65_537),
        Paging::RowEnds(&[]),
        Paging::RowEnds(&[50]),
        Paging::RowEnds(&[50, 50, 100]),
        Paging::RowEnds(&[60, 50, 100]),
        Paging::RowEnds(&[101]),
    ] {
        assert!(
            encoder.encode_paged(&values, paging, &mut chunk).is_err(),
            "{paging:?}"
        );
    }
    let values = vec![1_u8; 65_537];
    let paging = Paging::RowEnds(&[65_537]);
    assert!(encoder.encode_paged(&values, paging, &mut chunk).is_err());
}

/// An encoder is reused: what it wrote before must not show.
#[test]
fn bytes_depend_on_nothing_encoded_before() {
    let mut random = Random(79);
    let chunks: Vec<Vec<u64>> = FORMS
        .iter()
        .map(|&form| words(form, 5_000, &mut random))
        .collect();
    let texts: Vec<Vec<Vec<u8>>> = ["{:x}", "sensor ", "\u{1}\u{ff}"]
        .iter()
        .map(|start| {
            (0..3_000)
                .map(|_| format!("{start}{:x}", random.below(1 << 50)).into_bytes())
                .collect()
        })
        .collect();
    for level in [Level::Fast, Level::Dense] {
        let mut used = Encoder::new(level);
        for _ in 0..30 {
            let values = &chunks[random.below(chunks.len() as u64) as usize];
            let floats: Vec<f64> = values.iter().map(|&word| word as f64 / 8.0).collect();
            let wide: Vec<i128> = values.iter().map(|&word| i128::from(word % 9)).collect();
            let texts = &texts[random.below(3) as usize];
            let mut fresh = Encoder::new(level);
            assert_eq!(
                round_trip(values, &mut used, "used"),
                round_trip(values, &mut fresh, "fresh")
            );
            assert_eq!(
                round_trip(&floats, &mut used, "used"),
                round_trip(&floats, &mut Encoder::new(level), "fresh")
            );
            assert_eq!(
                round_trip(&wide, &mut used, "used"),
                round_trip(&wide, &mut Encoder::new(level), "fresh")
            );
            assert_eq!(
                check_bytes(texts, &mut used, "used"),
                check_bytes(texts, &mut fresh, "fresh")
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_integers(values in prop::collection::vec(any::<i64>(), 0..2100), shift in 0_u32..64, codec in 0..CODECS.len()) {
        let values: Vec<i64> = values.iter().map(|value| value >> shift).collect();
        round_trip(&values, &mut encoder(Level::Fast, CODECS[codec], None), "any");
        round_trip(&values, &mut encoder(Level::Dense, CODECS[codec], None), "any");
    }

    #[test]
    fn any_floats(bits in prop::collection::vec(any::<u64>(), 0..2100), codec in 0..CODECS.len()) {
        let values: Vec<f64> = bits.iter().map(|&bits| f64::from_bits(bits)).collect();
        round_trip(&values, &mut encoder(Level::Fast, CODECS[codec], None), "any");
    }

    #[test]
    fn any_decimals(seed in any::<u64>(), decimals in 0_i32..9, odd in 0_u64..40, codec in 0..CODECS.len(), rows in 1_usize..2500) {
        let mut random = Random(seed);
        let scale = 10_f64.powi(decimals);
        let values: Vec<f64> = (0..rows).map(|_| {
            let value = (random.unit() * 1e4 * scale).round() / scale;
            if random.below(100) < odd { f64::from_bits(random.next()) } else { value }
        }).collect();
        round_trip(&values, &mut encoder(Level::Fast, CODECS[codec], None), "decimals");
        let narrow: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        round_trip(&narrow, &mut encoder(Level::Fast, CODECS[codec], None), "decimals");
    }

    #[test]
    fn any_bytes(values in prop::collection::vec(prop::collection::vec(0_u8..4, 0..6), 0..1300), codec in 0..CODECS.len()) {
        check_bytes(&values, &mut encoder(Level::Fast, CODECS[codec], None), "any");
        check_bytes(&values, &mut encoder(Level::Dense, CODECS[codec], None), "any");
    }

    #[test]
    fn any_texts_of_an_alphabet(
        values in prop::collection::vec("[0-9a-f-]{0,40}", 0..1300),
        codec in 0..CODECS.len(),
        seed in any::<u64>(),
    ) {
        let values: Vec<Vec<u8>> = values.into_iter().map(String::into_bytes).collect();
        let ends = random_row_ends(values.len(), &mut Random(seed));
        check_bytes(&values, &mut encoder(Level::Fast, CODECS[codec], None), "any");
        check_bytes_paged(&values, Paging::RowEnds(&ends), &mut encoder(Level::Dense, CODECS[codec], None), "any");
    }

    #[test]
    fn any_pages(values in prop::collection::vec(any::<i32>(), 1..9000), shift in 0_u32..32, codec in 0..CODECS.len(), seed in any::<u64>()) {
        let values: Vec<i32> = values.iter().map(|value| value >> shift).collect();
        let ends = random_row_ends(values.len(), &mut Random(seed));
        round_trip_paged(&values, Paging::RowEnds(&ends), &mut encoder(Level::Fast, CODECS[codec], None), "any");
    }

    #[test]
    fn any_bits(bits in prop::collection::vec(any::<u8>(), 1..300), spare in 0_usize..8) {
        check_bits(&bits, bits.len() * 8 - spare, &mut Encoder::new(Level::Fast));
    }
}

#[test]
fn texts_of_a_dictionary_or_a_constant_are_known() {
    let mut encoder = Encoder::new(Level::Fast);
    let mut count = |rows: u32, distinct: u32| {
        let texts = (0..rows).map(|row| format!("device-{}", row % distinct).into_bytes());
        check_bytes(&texts.collect::<Vec<_>>(), &mut encoder, "devices");
        encoder.distinct_texts().map(Iterator::count)
    };
    assert_eq!(count(3_000, 40), Some(40));
    assert_eq!(count(3_000, 1), Some(1));
    // Without a dictionary, and without one that is still there.
    assert_eq!(count(3_000, 3_000), None);
    assert_eq!(count(0, 1), None);
}

/// LZ4 keeps a table from page to page, of another kind for pages of 64 KiB and more.
#[test]
fn bytes_do_not_depend_on_long_pages_before() {
    let mut used = Encoder::new(Level::Fast);
    let encode = |encoder: &mut Encoder, rows: usize, padding: usize| {
        let mut random = Random(5);
        let (mut offsets, mut data) = (vec![0_i32], String::new());
        for row in 0..rows {
            let directory = random.below(1_000);
            data += &format!("/var/log/{directory}/host-{row}.log{:padding$}", "");
            offsets.push(i32::try_from(data.len()).unwrap());
        }
        let mut chunk = EncodedChunk::new();
        encoder
            .encode_bytes(&offsets, data.as_bytes(), &mut chunk)
            .unwrap();
        assert_eq!(chunk.codec.last_stage, LastStage::Lz4);
        chunk
    };
    let short = encode(&mut Encoder::new(Level::Fast), 1_000, 0);
    encode(&mut used, PAGE_ROWS, 100);
    assert_eq!(encode(&mut used, 1_000, 0), short);
}
