//! Any bytes as a chunk of any type: an error or arbitrary values, and never more of them than
//! allowed.
//!
//! Input: codec chain (3 bytes), rows of the one page less one (2), prelude length (2), then the
//! bytes. One value is read as well, the one at the number of bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_codec::{ChunkView, CodecChain, Decoder, Element, ElementType, MAX_PAGE_ROWS, Paging};

fuzz_target!(|input: &[u8]| {
    let Some((header, bytes)) = input.split_at_checked(7) else { return };
    let Ok(codec) = CodecChain::from_bytes([header[0], header[1], header[2], 0]) else { return };
    let rows = usize::from(u16::from_le_bytes([header[3], header[4]])) + 1;
    let prelude_bytes = u32::from(u16::from_le_bytes([header[5], header[6]]));
    let ends = [bytes.len() as u32];
    let paging = Paging::Every(MAX_PAGE_ROWS);
    let Ok(view) = ChunkView::with_pages(codec, rows, paging, prelude_bytes, &ends, bytes) else { return };
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
            let (prelude, page) = (view.prelude(), view.page(0));
            let mut decoder = Decoder::new();
            let all = decoder.decode_bits_page(codec, prelude, page, rows, &mut out);
            let index = bytes.len() % rows;
            let one = decoder.decode_bit(codec, prelude, page, rows, index);
            if let (Ok(()), Ok(bit)) = (all, one) {
                assert_eq!(out[index / 8] >> (index % 8) & 1 == 1, bit);
            }
        }
    }
});

fn decode<T: Element>(view: &ChunkView<'_>) {
    let mut out = Vec::<T>::new();
    let mut decoder = Decoder::new();
    let result = decoder.decode(view, 0..1, &mut out);
    assert_eq!(out.len(), if result.is_ok() { view.rows() } else { 0 });
    let index = view.page(0).len() % view.rows();
    let _ = decoder.decode_value::<T>(view.codec(), view.prelude(), view.page(0), view.rows(), index);
}

fn decode_bytes(view: &ChunkView<'_>) {
    let (mut offsets, mut data) = (Vec::<i64>::new(), Vec::new());
    let (codec, prelude, page, rows) = (view.codec(), view.prelude(), view.page(0), view.rows());
    let mut decoder = Decoder::new();
    let result = decoder.decode_bytes_page(codec, prelude, page, rows, &mut offsets, &mut data);
    let limit_bytes = 8 * (prelude.len() + page.len()) + (16 << 20);
    assert!(data.len() <= limit_bytes);
    if result.is_ok() {
        assert_eq!(offsets.last().copied(), i64::try_from(data.len()).ok());
    }
    let mut value = Vec::new();
    let index = page.len() % rows;
    let one = decoder.decode_bytes_value(codec, prelude, page, rows, index, &mut value);
    assert!(value.len() <= limit_bytes && (one.is_ok() || value.is_empty()));
}
