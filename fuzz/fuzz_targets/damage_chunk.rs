//! Chunks as encoders write them, read back whole; then with some bytes changed: an error or
//! arbitrary values. Reaches what invented bytes seldom do: the metadata of pco, tables of symbols.
//!
//! Input: codec, element, level and rows of a page (4 bytes), damages of a place (2) and a byte
//! each, up to a zero place; then the values.
#![no_main]

#[path = "../../crates/thalweg-codec/tests/common/codecs.rs"]
mod codecs;

use codecs::CODECS;
use libfuzzer_sys::fuzz_target;
use thalweg_codec::{Decoder, Element, EncodedChunk, Encoder, Level, Paging};

fuzz_target!(|input: &[u8]| {
    let Some((&[codec, element, level, page], mut input)) = input.split_first_chunk::<4>() else { return };
    let mut damages = Vec::new();
    while let Some((&[low, high, byte], rest)) = input.split_first_chunk::<3>() {
        input = rest;
        let place = usize::from(u16::from_le_bytes([low, high]));
        if place == 0 {
            break;
        }
        damages.push((place, byte));
    }
    let level = if level % 2 == 0 { Level::Fast } else { Level::Dense };
    let mut encoder = Encoder::new(level);
    if let Some(codec) = CODECS[usize::from(codec) % CODECS.len()] {
        encoder = encoder.with_value_codec(codec);
    }
    // One to 65,281 rows.
    let paging = Paging::Every(usize::from(page) * 256 + 1);
    match element % 5 {
        0 => fixed::<i64, 8>(input, i64::from_le_bytes, paging, &damages, &mut encoder),
        1 => fixed::<u16, 2>(input, u16::from_le_bytes, paging, &damages, &mut encoder),
        2 => fixed::<f64, 8>(input, f64::from_le_bytes, paging, &damages, &mut encoder),
        3 => fixed::<i128, 16>(input, i128::from_le_bytes, paging, &damages, &mut encoder),
        _ => texts(input, paging, &damages, &mut encoder),
    }
});

fn damage(chunk: &mut EncodedChunk, damages: &[(usize, u8)]) {
    let bytes = chunk.bytes.len();
    for &(place, byte) in damages.iter().filter(|_| bytes > 0) {
        chunk.bytes[place % bytes] ^= byte;
    }
}

fn fixed<T: Element, const BYTES: usize>(
    input: &[u8],
    of: fn([u8; BYTES]) -> T,
    paging: Paging<'_>,
    damages: &[(usize, u8)],
    encoder: &mut Encoder,
) {
    let values: Vec<T> = input.as_chunks::<BYTES>().0.iter().map(|bytes| of(*bytes)).collect();
    let mut chunk = EncodedChunk::new();
    encoder.encode_paged(&values, paging, &mut chunk).expect("values are encoded");
    let mut decoder = Decoder::new();
    for round in 0..2 {
        let view = chunk.view().expect("the chunk is whole");
        let mut out: Vec<T> = Vec::new();
        let result = decoder.decode(&view, 0..view.page_count(), &mut out);
        let same = out.iter().zip(&values).all(|(one, other)| one == other || one != one);
        assert!(round > 0 || (result.is_ok() && out.len() == values.len() && same));
        damage(&mut chunk, damages);
    }
}

fn texts(input: &[u8], paging: Paging<'_>, damages: &[(usize, u8)], encoder: &mut Encoder) {
    let mut offsets = vec![0_i64];
    let mut data = Vec::new();
    for text in input.split(|&byte| byte == b'\n') {
        data.extend_from_slice(text);
        offsets.push(data.len() as i64);
    }
    let mut chunk = EncodedChunk::new();
    encoder.encode_bytes_paged(&offsets, &data, paging, &mut chunk).expect("texts are encoded");
    let mut decoder = Decoder::new();
    for round in 0..2 {
        let view = chunk.view().expect("the chunk is whole");
        let (mut offsets_back, mut data_back) = (Vec::<i64>::new(), Vec::new());
        let mut is_ok = true;
        for page in 0..view.page_count() {
            let (bytes, rows) = (view.page(page), view.page_rows(page));
            let (codec, prelude) = (view.codec(), view.prelude());
            is_ok &= decoder
                .decode_bytes_page(codec, prelude, bytes, rows, &mut offsets_back, &mut data_back)
                .is_ok();
            if !is_ok {
                break;
            }
        }
        assert!(round > 0 || (is_ok && offsets_back == offsets && data_back == data));
        damage(&mut chunk, damages);
    }
}
