//! Every entry point once.
#![expect(clippy::unwrap_used, reason = "a test")]

use thalweg_codec::{Decoder, EncodedChunk, Encoder, Level};

#[test]
fn values_come_back() {
    let values: Vec<i64> = (0..2500).map(|row| row * 7 - 3).collect();
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast).encode(&values, &mut chunk).unwrap();
    let view = chunk.view().unwrap();
    let mut out = vec![1, 2];
    Decoder::new().decode(&view, 1..3, &mut out).unwrap();
    assert_eq!(out[2..], values[1024..]);
}

#[test]
fn bytes_come_back() {
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast).encode_bytes(&[1_i32, 3, 3, 6], b"xabcdef", &mut chunk).unwrap();
    let view = chunk.view().unwrap();
    let (mut offsets, mut data) = (Vec::<i32>::new(), Vec::new());
    Decoder::new()
        .decode_bytes_page(view.codec(), view.prelude(), view.page(0), 3, &mut offsets, &mut data)
        .unwrap();
    assert_eq!((offsets.as_slice(), data.as_slice()), ([0, 2, 2, 5].as_slice(), b"abcde".as_slice()));
}

#[test]
fn bits_come_back() {
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast).encode_bits(&[0b1010_0101, 0xFF], 11, &mut chunk).unwrap();
    let view = chunk.view().unwrap();
    let mut out = [0_u8; 2];
    Decoder::new().decode_bits_page(view.codec(), view.prelude(), view.page(0), 11, &mut out).unwrap();
    assert_eq!(out, [0b1010_0101, 0b111]);
}
