//! What the tests share: forms of data, and reading a chunk back in every way.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "test data"
)]

mod codecs;
mod random;

pub(crate) use codecs::CODECS;
pub(crate) use random::Random;

use thalweg_codec::{
    ChunkView, Decoder, Element, EncodedChunk, Encoder, LastStage, Level, Paging, ValueCodec,
};

/// Ends of pages of random lengths, some longer than a run.
pub(crate) fn random_row_ends(rows: usize, random: &mut Random) -> Vec<u32> {
    let mut ends = Vec::new();
    let mut end = 0;
    while end < rows {
        let most = [3, 1_023, 1_024, 5_000, 65_536][random.below(5) as usize];
        end = (end + 1 + random.below(most) as usize).min(rows);
        ends.push(u32::try_from(end).unwrap());
    }
    ends
}

/// Rows of a page worth reading alone: the first, the last, those around runs and groups.
pub(crate) fn places(rows: usize) -> impl Iterator<Item = usize> {
    let edges = [
        0, 1, 63, 127, 128, 129, 255, 256, 777, 1_023, 1_024, 2_047, 3_000,
    ];
    let near_end = [1, 2, 100].map(|back| rows.wrapping_sub(back));
    edges
        .into_iter()
        .chain(near_end)
        .filter(move |&index| index < rows)
}

pub(crate) const STAGES: [Option<LastStage>; 4] = [
    None,
    Some(LastStage::None),
    Some(LastStage::Lz4),
    Some(LastStage::Zstd),
];

pub(crate) fn encoder(
    level: Level,
    codec: Option<ValueCodec>,
    stage: Option<LastStage>,
) -> Encoder {
    let mut encoder = Encoder::new(level);
    if let Some(codec) = codec {
        encoder = encoder.with_value_codec(codec);
    }
    if let Some(stage) = stage {
        encoder = encoder.with_last_stage(stage);
    }
    encoder
}

/// Values whose bits can be compared.
pub(crate) trait Bits: Element {
    fn bits(self) -> u128;
}

macro_rules! bits {
    ($($type:ty => |$value:ident| $bits:expr;)*) => {
        $(impl Bits for $type {
            fn bits(self) -> u128 {
                let $value = self;
                $bits
            }
        })*
    };
}

bits! {
    i8 => |value| value as u8 as u128;
    i16 => |value| value as u16 as u128;
    i32 => |value| value as u32 as u128;
    i64 => |value| value as u64 as u128;
    i128 => |value| value as u128;
    u8 => |value| value as u128;
    u16 => |value| value as u128;
    u32 => |value| value as u128;
    u64 => |value| value as u128;
    f32 => |value| value.to_bits() as u128;
    f64 => |value| value.to_bits() as u128;
}

pub(crate) fn assert_same<T: Bits>(left: &[T], right: &[T], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}: rows");
    for (row, (left, right)) in left.iter().zip(right).enumerate() {
        assert_eq!(
            left.bits(),
            right.bits(),
            "{what}: row {row}, {left:?} and {right:?}"
        );
    }
}

/// Encodes, checks that a used encoder gives the same bytes, and reads everything, some pages, and
/// each page alone.
pub(crate) fn round_trip<T: Bits>(values: &[T], encoder: &mut Encoder, what: &str) -> EncodedChunk {
    let mut chunk = EncodedChunk::new();
    encoder.encode(values, &mut chunk).unwrap();
    let mut again = EncodedChunk::new();
    encoder.encode(values, &mut again).unwrap();
    assert_eq!(chunk, again, "{what}: same values, same bytes");
    assert_eq!(chunk.raw_bytes, size_of_val(values) as u64);
    let view = chunk.view().unwrap();
    check_pages(&view, values, what);
    chunk
}

/// The same for pages of any lengths.
pub(crate) fn round_trip_paged<T: Bits>(
    values: &[T],
    paging: Paging<'_>,
    encoder: &mut Encoder,
    what: &str,
) -> EncodedChunk {
    let mut chunk = EncodedChunk::new();
    encoder.encode_paged(values, paging, &mut chunk).unwrap();
    check_pages(&chunk.view().unwrap(), values, what);
    chunk
}

fn check_pages<T: Bits>(view: &ChunkView<'_>, values: &[T], what: &str) {
    let mut decoder = Decoder::new();
    let mut out = vec![T::default(); 3];
    decoder
        .decode(view, 0..view.page_count(), &mut out)
        .unwrap();
    assert_same(&out[3..], values, what);
    let (from, to) = (
        view.page_count() / 3,
        view.page_count() - view.page_count() / 4,
    );
    out.clear();
    decoder.decode(view, from..to, &mut out).unwrap();
    if from < to {
        let rows = view.row_range(from).start..view.row_range(to - 1).end;
        assert_same(&out, &values[rows], what);
    }
    for page in 0..view.page_count() {
        let page_values = &values[view.row_range(page)];
        let mut out = vec![T::default(); page_values.len()];
        let (codec, prelude, bytes) = (view.codec(), view.prelude(), view.page(page));
        Decoder::new()
            .decode_page(codec, prelude, bytes, &mut out)
            .unwrap();
        assert_same(&out, page_values, what);
        let rows = page_values.len();
        for index in places(rows) {
            let value: T = decoder
                .decode_value(codec, prelude, bytes, rows, index)
                .unwrap();
            let expected = page_values[index].bits();
            assert_eq!(
                value.bits(),
                expected,
                "{what}: value {index} of page {page}"
            );
        }
    }
}
