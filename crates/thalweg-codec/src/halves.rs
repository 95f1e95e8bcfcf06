//! Chunks of numbers of 128 bits: distinct values and codes, or pages of low and of high halves.
//!
//! Invariants: both halves of a page are inner pages of 64-bit lanes with the rows of the page.

use zerocopy::IntoBytes;

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain};
use crate::choose::distinct_values;
use crate::chunk::EncodedChunk;
use crate::encode_scratch::{EncodeScratch, SharedScratch};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::input::Input;
use crate::integers::{self, IntegerPlan, IntegerScratch};
use crate::mode::PageMode;
use crate::open_page::{DecodeScratch, Source, open_page};
use crate::packing::LongBuffer;
use crate::settings::{Settings, ValueCodec};
use crate::stage::PageWriter;
use crate::wide::Lane;
use crate::{constant, dictionary, inner};

/// How the halves of pages are tried.
struct Plans {
    low: IntegerPlan,
    high: IntegerPlan,
}

/// Encodes numbers of 128 bits into a chunk that is empty but for its type and pages.
pub(crate) fn encode(
    values: &[i128],
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let is_constant = values.iter().all(|value| *value == values[0]);
    if settings.codec.is_none() && is_constant && !values.is_empty() {
        constant::write(values[0].as_bytes(), out);
        return Ok(());
    }
    let plan = settings
        .codec
        .map(ValueCodec::page_mode)
        .map_or(IntegerPlan::UNKNOWN, IntegerPlan::forced);
    let plans = || Plans {
        low: plan,
        high: plan,
    };
    let shared = &mut scratch.shared;
    if is_coded(values, settings, plans(), shared, out) {
        let value = |key: u128| key.cast_signed();
        shared.wide_dictionary.write_prelude(value, out);
    }
    encode_pages(values, settings, plans(), shared, out)
}

/// Numbers the values where that makes the chunk smaller; returns whether it did.
fn is_coded(
    values: &[i128],
    settings: &Settings,
    mut plans: Plans,
    shared: &mut SharedScratch,
    chunk: &EncodedChunk,
) -> bool {
    let SharedScratch {
        integers,
        page,
        lanes,
        wide_dictionary: dictionary,
        ..
    } = shared;
    let mut build = |limit| dictionary.build(values, i128::cast_unsigned, chunk, limit);
    if let Some(codec) = settings.codec {
        return codec == ValueCodec::Dictionary && build(dictionary::VALUES_MAX);
    }
    let Some(distinct) = distinct_values(values).filter(|_| values.len() >= PAGE_ROWS) else {
        return false;
    };
    page.clear();
    write_halves(&values[..PAGE_ROWS], &mut plans, lanes, integers, page);
    let pays = |distinct| dictionary::pays(values.len(), distinct, size_of::<i128>(), page.len());
    let limit = (values.len() / 4).clamp(1, dictionary::VALUES_MAX);
    pays(distinct) && build(limit) && pays(dictionary.len())
}

fn encode_pages(
    values: &[i128],
    settings: &Settings,
    mut plans: Plans,
    shared: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let SharedScratch {
        integers,
        compressor,
        page,
        plain,
        lanes,
        wide_dictionary: dictionary,
        ..
    } = shared;
    let is_coded = out.codec.kind == ChunkKind::Dictionary;
    let rule = settings.stage_rule(50);
    let mut writer = PageWriter::new(out);
    for index in 0..out.planned_pages() {
        let rows = out.row_range(index);
        let page_values = &values[rows.clone()];
        page.clear();
        let codes = if is_coded {
            dictionary.codes_of(index, rows)
        } else {
            None
        };
        match codes {
            Some(codes) => dictionary::encode_codes(codes, integers, page),
            None => write_halves(page_values, &mut plans, lanes, integers, page),
        }
        plain.clear();
        plain.push(PageMode::Plain.to_byte());
        plain.extend_from_slice(page_values.as_bytes());
        if page.len() >= plain.len() {
            std::mem::swap(page, plain);
        }
        writer.stage(rule, page, size_of_val(page_values), compressor);
        writer.push(page, plain, compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// Appends a page of halves.
fn write_halves(
    values: &[i128],
    plans: &mut Plans,
    lanes: &mut LongBuffer,
    integers: &mut IntegerScratch,
    page: &mut Vec<u8>,
) {
    let start = page.len();
    page.extend_from_slice(&[PageMode::Halves.to_byte(), 0, 0, 0, 0]);
    let halves = lanes.lanes::<u64>(values.len());
    split(values, halves, 0);
    inner::encode(halves, 0, &mut plans.low, integers, page);
    let low_bytes: u32 = integers::small(page.len() - start - 5);
    page[start + 1..start + 5].copy_from_slice(&low_bytes.to_le_bytes());
    split(values, halves, 64);
    inner::encode(halves, u64::SIGN, &mut plans.high, integers, page);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "one half is what is asked for"
)]
fn split(values: &[i128], halves: &mut [u64], shift: u32) {
    for (&value, half) in values.iter().zip(halves) {
        *half = (value >> shift) as u64;
    }
}

/// Decodes a page of numbers of 128 bits.
pub(crate) fn decode(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [i128],
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers: [buffer, _],
        lanes,
        ..
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            out.fill(constant::read(prelude)?);
            Ok(())
        }
        Source::Page(PageMode::Codes, input) => {
            dictionary::decode_values(prelude, input, buffer, lanes, out)
        }
        Source::Page(PageMode::Plain, mut input) => {
            let values = input.take(size_of_val(out))?;
            out.as_mut_bytes().copy_from_slice(values);
            input.finish()
        }
        Source::Page(PageMode::Halves, input) => {
            let (low, high) = read_halves(input)?;
            let halves = lanes.lanes::<u64>(out.len());
            inner::decode(low, buffer, halves)?;
            for (value, &half) in out.iter_mut().zip(&*halves) {
                *value = i128::from(half);
            }
            inner::decode(high, buffer, halves)?;
            for (value, &half) in out.iter_mut().zip(&*halves) {
                *value |= i128::from(half) << 64;
            }
            Ok(())
        }
        Source::Page(..) => Err(UNFIT),
    }
}

const UNFIT: DecodeError = DecodeError::new("page mode does not fit numbers of 128 bits");

/// The pages of low and of high halves.
fn read_halves(mut input: Input<'_>) -> Result<(&[u8], &[u8]), DecodeError> {
    let low_bytes = input.read::<u32>()? as usize;
    Ok((input.take(low_bytes)?, input.take_rest()))
}

/// Decodes one value of a page of `rows` rows.
pub(crate) fn decode_value(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    (rows, index): (usize, usize),
    scratch: &mut DecodeScratch,
) -> Result<i128, DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
        ..
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => constant::read(prelude),
        Source::Page(PageMode::Codes, input) => {
            dictionary::value(prelude, input, rows, index, buffers)
        }
        Source::Page(PageMode::Plain, mut input) => {
            let values = input.take_rest();
            let fits = values.len() == rows * size_of::<i128>();
            ensure(fits, "page of another length than its rows")?;
            Input::new(&values[index * size_of::<i128>()..]).read()
        }
        Source::Page(PageMode::Halves, input) => {
            let (low, high) = read_halves(input)?;
            let low: u64 = inner::value(low, rows, index, buffers)?;
            let high: u64 = inner::value(high, rows, index, buffers)?;
            Ok(i128::from(low) | i128::from(high) << 64)
        }
        Source::Page(..) => Err(UNFIT),
    }
}
