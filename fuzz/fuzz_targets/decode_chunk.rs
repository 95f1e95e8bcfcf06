//! Any bytes as a chunk of any type: an error or arbitrary values, and never more of them than
//! allowed.
//!
//! Input: codec chain (3 bytes), rows of the one page (2), prelude length (2), then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_codec::{ChunkView, CodecChain, Decoder, Element, ElementType, PAGE_ROWS};

fuzz_target!(|input: &[u8]| {
    let Some((header, bytes)) = input.split_at_checked(7) else { return };
    let Ok(codec) = CodecChain::from_bytes([header[0], header[1], header[2], 0]) else { return };
    let rows = usize::from(u16::from_le_bytes([header[3], header[4]])) % PAGE_ROWS + 1;
    let prelude_bytes = u32::from(u16::from_le_bytes([header[5], header[6]]));
    let ends = [bytes.len() as u32];
    let Ok(view) = ChunkView::new(codec, rows, prelude_bytes, &ends, bytes) else { return };
    match codec.element {
        ElementType::I8 => decode::<i8>(&view),
        ElementType::I16 => decode::<i16>(&view),
        ElementType::I32 => decode::<i32>(&view),
        ElementType::I64 => decode::<i64>(&view),
        ElementType::I128 => decode::<i128>(&view),
        ElementType::U8 => decode::<u8>(&view),
        ElementType::U16 => decode::<u16>(&view),
        ElementType::U32 => decode::<u32>(&view),
        ElementType::U64 => decode::<u64>(&view),
        ElementType::F32 => decode::<f32>(&view),
        ElementType::F64 => decode::<f64>(&view),
        ElementType::Bytes => decode_bytes(&view),
        ElementType::Bits => {
            let mut out = vec![0; rows.div_ceil(8)];
            let _ = Decoder::new().decode_bits_page(codec, view.prelude(), view.page(0), rows, &mut out);
        }
    }
});

fn decode<T: Element>(view: &ChunkView<'_>) {
    let mut out = Vec::<T>::new();
    let result = Decoder::new().decode(view, 0..1, &mut out);
    assert_eq!(out.len(), if result.is_ok() { view.rows() } else { 0 });
}

fn decode_bytes(view: &ChunkView<'_>) {
    let (mut offsets, mut data) = (Vec::<i64>::new(), Vec::new());
    let (prelude, page) = (view.prelude(), view.page(0));
    let result =
        Decoder::new().decode_bytes_page(view.codec(), prelude, page, view.rows(), &mut offsets, &mut data);
    assert!(data.len() <= 8 * (prelude.len() + page.len()) + (16 << 20));
    if result.is_ok() {
        assert_eq!(offsets.last().copied(), i64::try_from(data.len()).ok());
    }
}
