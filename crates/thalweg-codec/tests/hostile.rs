//! Damaged and invented bytes give an error or arbitrary values; never a panic, and no output
//! beyond what was asked for.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test data"
)]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "test data"
)]

mod common;

use common::{CODECS, Random, encoder};
use thalweg_codec::{
    ChunkKind, ChunkView, CodecChain, Decoder, Element, ElementType, EncodedChunk, Encoder,
    LastStage, Level, MAX_PAGE_ROWS, PAGE_ROWS, Paging, ValueCodec,
};

/// Chunks of every type, codec and stage.
fn chunks() -> Vec<EncodedChunk> {
    let mut random = Random(11);
    let rows = PAGE_ROWS + 100;
    let steps: Vec<i64> = (0..rows as i64)
        .map(|row| row * 10 + (random.below(4)) as i64)
        .collect();
    let small: Vec<u32> = (0..rows).map(|_| random.below(1000) as u32).collect();
    let runs: Vec<u16> = (0..rows).map(|row| (row / 100) as u16).collect();
    let bytes: Vec<i8> = (0..rows).map(|_| random.below(5) as i8).collect();
    let decimals: Vec<f64> = (0..rows)
        .map(|_| random.below(10_000) as f64 / 100.0)
        .collect();
    let noise: Vec<f32> = (0..rows).map(|_| random.unit() as f32).collect();
    let wide: Vec<i128> = steps.iter().map(|&step| i128::from(step) << 50).collect();
    let mut all = Vec::new();
    let paging = Paging::Every(4_096);
    for codec in CODECS {
        for stage in [LastStage::None, LastStage::Lz4, LastStage::Zstd] {
            let mut encoder = encoder(Level::Fast, codec, Some(stage));
            add(&mut all, &mut encoder, &steps);
            add(&mut all, &mut encoder, &small);
            add(&mut all, &mut encoder, &runs);
            add(&mut all, &mut encoder, &bytes);
            add(&mut all, &mut encoder, &decimals);
            add(&mut all, &mut encoder, &noise);
            add(&mut all, &mut encoder, &wide);
            add(&mut all, &mut encoder, &[3_u64; 2000]);
            let mut chunk = EncodedChunk::new();
            encoder.encode_paged(&steps, paging, &mut chunk).unwrap();
            all.push(chunk);
            let values: Vec<String> = (0..rows)
                .map(|_| format!("name {}", random.below(9)))
                .collect();
            let mut offsets = vec![0_i32];
            for value in &values {
                offsets.push(offsets.last().unwrap() + value.len() as i32);
            }
            let mut chunk = EncodedChunk::new();
            encoder
                .encode_bytes(&offsets, values.concat().as_bytes(), &mut chunk)
                .unwrap();
            all.push(chunk);
            let mut chunk = EncodedChunk::new();
            encoder
                .encode_bytes_paged(&offsets, values.concat().as_bytes(), paging, &mut chunk)
                .unwrap();
            all.push(chunk);
            let bits: Vec<u8> = (0..rows)
                .map(|row| if row % 40 == 0 { 0xF0 } else { 0xFF })
                .collect();
            let mut chunk = EncodedChunk::new();
            encoder.encode_bits(&bits, rows * 8, &mut chunk).unwrap();
            all.push(chunk);
        }
    }
    all
}

fn add<T: Element>(all: &mut Vec<EncodedChunk>, encoder: &mut Encoder, values: &[T]) {
    let mut chunk = EncodedChunk::new();
    encoder.encode(values, &mut chunk).unwrap();
    all.push(chunk);
}

/// Decodes all pages of a view as its codec says; any result will do.
fn decode_any(view: &ChunkView<'_>, decoder: &mut Decoder) -> bool {
    match view.codec().element {
        ElementType::I8 => decode_as::<i8>(view, decoder),
        ElementType::I16 => decode_as::<i16>(view, decoder),
        ElementType::I32 => decode_as::<i32>(view, decoder),
        ElementType::I64 => decode_as::<i64>(view, decoder),
        ElementType::I128 => decode_as::<i128>(view, decoder),
        ElementType::U8 => decode_as::<u8>(view, decoder),
        ElementType::U16 => decode_as::<u16>(view, decoder),
        ElementType::U32 => decode_as::<u32>(view, decoder),
        ElementType::U64 => decode_as::<u64>(view, decoder),
        ElementType::F32 => decode_as::<f32>(view, decoder),
        ElementType::F64 => decode_as::<f64>(view, decoder),
        ElementType::Bytes => decode_as_bytes(view, decoder),
        ElementType::Bits => decode_as_bits(view, decoder),
    }
}

fn decode_as<T: Element>(view: &ChunkView<'_>, decoder: &mut Decoder) -> bool {
    for page in 0..view.page_count() {
        let (bytes, rows) = (view.page(page), view.page_rows(page));
        for index in [0, rows / 2, rows - 1] {
            // Any value or error will do.
            let value: Result<T, _> =
                decoder.decode_value(view.codec(), view.prelude(), bytes, rows, index);
            drop(value);
        }
    }
    let mut out: Vec<T> = Vec::new();
    let result = decoder.decode(view, 0..view.page_count(), &mut out);
    assert_eq!(out.len(), if result.is_ok() { view.rows() } else { 0 });
    result.is_ok()
}

fn decode_as_bytes(view: &ChunkView<'_>, decoder: &mut Decoder) -> bool {
    let mut all = true;
    for page in 0..view.page_count() {
        let (mut offsets, mut data) = (Vec::<i32>::new(), Vec::new());
        let (bytes, rows) = (view.page(page), view.page_rows(page));
        let result = decoder.decode_bytes_page(
            view.codec(),
            view.prelude(),
            bytes,
            rows,
            &mut offsets,
            &mut data,
        );
        let limit_bytes = 8 * (view.prelude().len() + bytes.len()) + (16 << 20);
        for index in [0, rows / 2, rows - 1] {
            let mut value = Vec::new();
            let (codec, prelude) = (view.codec(), view.prelude());
            let result = decoder.decode_bytes_value(codec, prelude, bytes, rows, index, &mut value);
            assert!(value.len() <= limit_bytes && (result.is_ok() || value.is_empty()));
        }
        assert!(
            data.len() <= limit_bytes,
            "{} bytes out of {}",
            data.len(),
            bytes.len()
        );
        if result.is_ok() {
            assert_eq!(offsets.len(), rows + 1);
            assert_eq!(offsets.last().copied().unwrap() as usize, data.len());
        }
        all &= result.is_ok();
    }
    all
}

fn decode_as_bits(view: &ChunkView<'_>, decoder: &mut Decoder) -> bool {
    (0..view.page_count()).all(|page| {
        let rows = view.page_rows(page);
        for index in [0, rows / 2, rows - 1] {
            let bytes = view.page(page);
            // Any bit or error will do.
            drop(decoder.decode_bit(view.codec(), view.prelude(), bytes, rows, index));
        }
        let mut out = vec![0; rows.div_ceil(8)];
        decoder
            .decode_bits_page(
                view.codec(),
                view.prelude(),
                view.page(page),
                rows,
                &mut out,
            )
            .is_ok()
    })
}

#[test]
fn mutated_chunks() {
    let mut random = Random(12);
    let mut decoder = Decoder::new();
    let mut refused = 0;
    for chunk in chunks() {
        assert!(
            decode_any(&chunk.view().unwrap(), &mut decoder),
            "undamaged"
        );
        for _ in 0..60 {
            let mut damaged = chunk.clone();
            for _ in 0..=random.below(4) {
                // Half of the hits near the front, where the headers are.
                let reach = if random.below(2) == 0 {
                    damaged.bytes.len().min(24)
                } else {
                    damaged.bytes.len()
                };
                let position = random.below(reach as u64) as usize;
                damaged.bytes[position] = random.next() as u8;
            }
            refused += usize::from(!decode_any(&damaged.view().unwrap(), &mut decoder));
        }
    }
    assert!(
        refused > 1000,
        "most damage to a header is noticed: {refused}"
    );
}

/// Damage to the metadata of pco, whose crate reads it with unsafe code.
#[test]
fn mutated_pco() {
    let mut random = Random(16);
    let mut refused = 0;
    let mut tried = 0;
    for chunk in chunks() {
        if chunk.codec.kind != ChunkKind::Pco {
            continue;
        }
        for _ in 0..3_000 {
            let mut damaged = chunk.clone();
            for _ in 0..=random.below(3) {
                let reach = [8, damaged.prelude_bytes as usize, damaged.bytes.len()];
                let reach = reach[random.below(3) as usize];
                let position = random.below(reach as u64) as usize;
                damaged.bytes[position] ^= 1 << random.below(8);
            }
            tried += 1;
            let mut decoder = Decoder::new();
            refused += usize::from(!decode_any(&damaged.view().unwrap(), &mut decoder));
        }
    }
    assert!(
        tried > 10_000 && refused > tried / 10,
        "{refused} of {tried}"
    );
}

/// Modes and differences of pco whose tables the metadata chooses are refused before pco sees them.
#[test]
fn pco_that_is_not_read() {
    let values: Vec<i64> = (0..3_000).map(|row| row * row % 1_009).collect();
    let mut chunk = EncodedChunk::new();
    encoder(Level::Fast, Some(ValueCodec::Pco), None)
        .encode(&values, &mut chunk)
        .unwrap();
    assert_eq!(chunk.codec.kind, ChunkKind::Pco);
    let reason = |position: usize, byte: u8| {
        let mut other = chunk.clone();
        other.bytes[position] = byte;
        let view = other.view().unwrap();
        let mut out: Vec<i64> = Vec::new();
        let error = Decoder::new().decode(&view, 0..1, &mut out).unwrap_err();
        error.reason()
    };
    assert!(reason(0, 3).contains("version"));
    assert!(reason(1, 2).contains("version"));
    assert!(reason(2, 4).contains("mode"), "a dictionary");
    assert!(reason(2, 2 << 4).contains("differences"), "lookback");
    assert!(reason(2, 3 << 4).contains("differences"), "convolution");
    assert!(reason(2, 9 << 4).contains("differences"), "unknown");
}

/// Pages of texts whose lengths say more than their codes can stand for.
#[test]
fn texts_that_would_fill_the_memory() {
    let mut decoder = Decoder::new();
    for (kind, prelude, mode) in [
        (ChunkKind::Fsst, vec![1, 8, 1, 2, 3, 4, 5, 6, 7, 8], 11),
        (ChunkKind::Alphabet, vec![2, 0, 1], 13),
        (ChunkKind::Pages, vec![], 1),
    ] {
        let codec = CodecChain {
            kind,
            element: ElementType::Bytes,
            last_stage: LastStage::None,
        };
        // Constant lengths of almost 4 GiB each.
        let mut page = vec![mode, 5, 0, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF];
        page.extend_from_slice(&[0; 2_048]);
        for rows in [1, 1_024, MAX_PAGE_ROWS] {
            let (mut offsets, mut data) = (Vec::<i64>::new(), Vec::new());
            let result =
                decoder.decode_bytes_page(codec, &prelude, &page, rows, &mut offsets, &mut data);
            assert!(result.is_err() && data.capacity() <= 1 << 20);
            let mut value = Vec::new();
            let result =
                decoder.decode_bytes_value(codec, &prelude, &page, rows, rows - 1, &mut value);
            assert!(result.is_err() && value.capacity() <= 1 << 20);
        }
    }
}

#[test]
fn tables_of_texts_that_no_encoder_writes() {
    let mut decoder = Decoder::new();
    let mut is_refused = |kind, prelude: &[u8], page: &[u8]| {
        let codec = CodecChain {
            kind,
            element: ElementType::Bytes,
            last_stage: LastStage::None,
        };
        let (mut offsets, mut data) = (Vec::<i32>::new(), Vec::new());
        decoder
            .decode_bytes_page(codec, prelude, page, 1, &mut offsets, &mut data)
            .is_err()
    };
    // One text of two bytes, written as two indices of one bit each: 0 and 1.
    let page = [13, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0b10];
    let alphabet = ChunkKind::Alphabet;
    assert!(!is_refused(alphabet, &[2, 7, 9], &page));
    assert!(is_refused(alphabet, &[2, 9, 7], &page), "not ascending");
    assert!(is_refused(alphabet, &[2, 7, 7], &page), "twice the same");
    assert!(is_refused(alphabet, &[1, 7], &page), "one symbol");
    assert!(
        is_refused(alphabet, &[2, 7, 9, 11], &page),
        "bytes left over"
    );
    assert!(is_refused(alphabet, &[], &page), "none");
    let page = [13, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0b110];
    assert!(is_refused(alphabet, &[2, 7, 9], &page), "bits left over");
    let page = [13, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0b1100];
    assert!(
        is_refused(alphabet, &[3, 7, 9, 11], &page),
        "an index too high"
    );
    // One text of two bytes: a symbol, and an escaped byte.
    let page = [11, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0, 255, 8];
    let fsst = ChunkKind::Fsst;
    assert!(!is_refused(fsst, &[1, 1, 7], &page));
    assert!(is_refused(fsst, &[0], &page), "no symbol");
    assert!(is_refused(fsst, &[1, 0], &page), "an empty symbol");
    assert!(
        is_refused(fsst, &[1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], &page),
        "a long one"
    );
    assert!(is_refused(fsst, &[1, 1, 7, 7], &page), "bytes left over");
    assert!(is_refused(fsst, &[1, 2, 7, 7], &page), "too many bytes");
    let page = [11, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0, 255];
    assert!(is_refused(fsst, &[1, 1, 7], &page), "nothing escaped");
    let page = [11, 5, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    assert!(is_refused(fsst, &[1, 1, 7], &page), "an unknown code");
}

#[test]
fn truncated_pages_are_refused() {
    let mut random = Random(13);
    let mut decoder = Decoder::new();
    for chunk in chunks() {
        if chunk.bytes.len() == chunk.prelude_bytes as usize {
            continue;
        }
        for _ in 0..10 {
            let mut ends = chunk.page_ends.clone();
            let page_end = ends.pop().unwrap();
            let page_start = ends.last().copied().unwrap_or(chunk.prelude_bytes);
            let cut = page_start + random.below(u64::from(page_end - page_start)) as u32;
            ends.push(cut);
            let view = ChunkView::with_pages(
                chunk.codec,
                chunk.rows,
                Paging::RowEnds(&chunk.page_row_ends),
                chunk.prelude_bytes,
                &ends,
                &chunk.bytes[..cut as usize],
            );
            let Ok(view) = view else { continue };
            assert!(
                !decode_any(&view, &mut decoder),
                "{:?} cut at {cut}",
                chunk.codec
            );
        }
    }
}

#[test]
fn a_chunk_read_as_another_type_or_chain() {
    let mut random = Random(14);
    let mut decoder = Decoder::new();
    for chunk in chunks() {
        for _ in 0..20 {
            let mut chain = chunk.codec.to_bytes();
            chain[random.below(3) as usize] = 1 + random.below(13) as u8;
            let Ok(codec) = CodecChain::from_bytes(chain) else {
                continue;
            };
            let mut other = chunk.clone();
            other.codec = codec;
            decode_any(&other.view().unwrap(), &mut decoder);
        }
    }
}

#[test]
fn invented_chunks() {
    let mut random = Random(15);
    let mut decoder = Decoder::new();
    for _ in 0..20_000 {
        let chain = [
            1 + random.below(6) as u8,
            1 + random.below(13) as u8,
            1 + random.below(3) as u8,
            0,
        ];
        let length = random.below(300) as usize;
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| (random.next() as u8) >> random.below(8))
            .collect();
        if let Some(first) = bytes.first_mut() {
            *first = random.below(15) as u8;
        }
        let most = [PAGE_ROWS, MAX_PAGE_ROWS][random.below(2) as usize];
        let rows = 1 + random.below(most as u64) as usize;
        let prelude_bytes = (random.below(2) * random.below(length as u64 + 1)) as u32;
        let ends = [length as u32];
        let codec = CodecChain::from_bytes(chain).unwrap();
        let paging = Paging::Every(MAX_PAGE_ROWS);
        let view = ChunkView::with_pages(codec, rows, paging, prelude_bytes, &ends, &bytes);
        decode_any(&view.unwrap(), &mut decoder);
    }
}

#[test]
fn bad_metadata_is_refused() {
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast)
        .encode(&[1_i64, 2, 3], &mut chunk)
        .unwrap();
    let (codec, rows, bytes) = (chunk.codec, chunk.rows, chunk.bytes.as_slice());
    let end = bytes.len() as u32;
    assert!(ChunkView::new(codec, rows, 0, &[end], bytes).is_ok());
    assert!(ChunkView::new(codec, rows, 0, &[end - 1], bytes).is_err());
    assert!(ChunkView::new(codec, rows, 0, &[end, end], bytes).is_err());
    assert!(ChunkView::new(codec, rows, 0, &[], bytes).is_err());
    assert!(ChunkView::new(codec, rows, end + 1, &[end], bytes).is_err());
    assert!(ChunkView::new(codec, usize::MAX, 0, &[end], bytes).is_err());
    for chain in [
        [0, 1, 1, 0],
        [1, 0, 1, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 1],
        [7, 1, 1, 0],
        [1, 14, 1, 0],
        [1, 1, 4, 0],
    ] {
        assert!(CodecChain::from_bytes(chain).is_err(), "{chain:?}");
    }
    let view = chunk.view().unwrap();
    let mut out: Vec<u64> = Vec::new();
    assert!(
        Decoder::new().decode(&view, 0..1, &mut out).is_err(),
        "signed is not unsigned"
    );
    let mut out: Vec<i64> = Vec::new();
    assert!(
        Decoder::new().decode(&view, 0..2, &mut out).is_err(),
        "no such page"
    );
}

#[test]
fn bad_input_is_refused() {
    let mut chunk = EncodedChunk::new();
    let mut encoder = Encoder::new(Level::Fast);
    assert!(
        encoder
            .encode_bytes(&[0_i32, 5, 3], b"abcdef", &mut chunk)
            .is_err()
    );
    assert!(
        encoder
            .encode_bytes(&[0_i32, 7], b"abcdef", &mut chunk)
            .is_err()
    );
    assert!(
        encoder
            .encode_bytes(&[-1_i32, 3], b"abcdef", &mut chunk)
            .is_err()
    );
    assert!(
        encoder
            .encode_bytes(&[9_i64], b"abcdef", &mut chunk)
            .is_err()
    );
    assert!(encoder.encode_bits(&[0xFF], 9, &mut chunk).is_err());
    assert!(
        encoder
            .encode(&vec![0_u8; thalweg_codec::MAX_CHUNK_ROWS + 1], &mut chunk)
            .is_err()
    );
}

#[test]
fn offsets_that_outgrow_their_type_are_refused() {
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast)
        .encode_bytes(&[0_i32, 3], b"abc", &mut chunk)
        .unwrap();
    let view = chunk.view().unwrap();
    let mut offsets = vec![0_i32];
    let mut data = Vec::new();
    let mut decode = |rows, offsets: &mut Vec<i32>| {
        Decoder::new().decode_bytes_page(
            view.codec(),
            view.prelude(),
            view.page(0),
            rows,
            offsets,
            &mut data,
        )
    };
    assert!(decode(1, &mut offsets).is_ok());
    assert!(
        decode(MAX_PAGE_ROWS + 1, &mut offsets).is_err(),
        "more rows than a page holds"
    );
}
