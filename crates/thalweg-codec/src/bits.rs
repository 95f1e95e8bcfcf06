//! Pages of single bits: validity and booleans.
//!
//! Invariants: bits behind the last row are zero, in memory and in the page.

use zerocopy::FromBytes;

use crate::PAGE_ROWS;
use crate::chain::CodecChain;
use crate::chunk::{EncodedChunk, page_rows};
use crate::encode::{Level, Settings, ValueCodec};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::input::Input;
use crate::integers::small;
use crate::mode::PageMode;
use crate::stage::{PageWriter, StageRule};
use crate::values::{DecodeScratch, SharedScratch, Source, open_page, write_constant};

/// Bytes of a full page's bits.
const PAGE_BITS_BYTES: usize = PAGE_ROWS / 8;

/// Encodes `rows` bits into a chunk that is empty but for its type.
pub(crate) fn encode(
    bits: &[u8],
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let rows = out.rows;
    if settings.codec.is_none()
        && let Some(bit) = constant_bit(bits, rows)
    {
        write_constant(&[u8::from(bit)], out);
        return Ok(());
    }
    let SharedScratch {
        compressor, page, ..
    } = scratch;
    let mut writer = PageWriter::new(out);
    for (index, page_bits) in bits[..rows.div_ceil(8)].chunks(PAGE_BITS_BYTES).enumerate() {
        page.clear();
        encode_page(page_bits, page_rows(rows, index), settings.codec, page);
        // LZ4 finds nothing in 128 bytes that runs do not.
        let rule = match settings.level {
            Level::Fast => {
                StageRule::Always(settings.last_stage.unwrap_or(crate::chain::LastStage::None))
            }
            Level::Dense => settings.stage_rule(100),
        };
        writer.stage(rule, page, page_bits.len(), compressor);
        writer.push(page, &[], compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// The value of all bits, if there is but one.
fn constant_bit(bits: &[u8], rows: usize) -> Option<bool> {
    let first = bits.first()? & 1;
    let (whole, last_bits) = (rows / 8, rows % 8);
    let fill = if first == 1 { 0xFF } else { 0 };
    let is_same = bits[..whole].iter().all(|&byte| byte == fill);
    let mask = (1_u8 << last_bits) - 1;
    (is_same && (last_bits == 0 || (bits[whole] ^ fill) & mask == 0)).then_some(first == 1)
}

fn encode_page(bits: &[u8], rows: usize, forced: Option<ValueCodec>, out: &mut Vec<u8>) {
    let mut room = [0; PAGE_BITS_BYTES];
    let room = &mut room[..bits.len()];
    room.copy_from_slice(bits);
    clear_behind(room, rows);
    if forced.is_none()
        && let Some(bit) = constant_bit(room, rows)
    {
        out.extend_from_slice(&[PageMode::Constant.to_byte(), u8::from(bit)]);
        return;
    }
    let runs = count_runs(room, rows);
    if 4 + runs * 2 < room.len() / 2 && forced != Some(ValueCodec::Plain) {
        return encode_runs(room, rows, runs, out);
    }
    out.push(PageMode::Plain.to_byte());
    out.extend_from_slice(room);
}

/// Clears the bits behind the last row.
fn clear_behind(bits: &mut [u8], rows: usize) {
    if !rows.is_multiple_of(8)
        && let Some(last) = bits.last_mut()
    {
        *last &= (1 << (rows % 8)) - 1;
    }
}

fn bit(bits: &[u8], row: usize) -> bool {
    bits[row / 8] >> (row % 8) & 1 == 1
}

/// Runs of equal bits.
fn count_runs(bits: &[u8], rows: usize) -> usize {
    let mut runs = 1;
    let mut before = bits[0] & 1;
    for &byte in bits {
        // A bit differs from the one before it.
        runs += (byte ^ (byte << 1 | before)).count_ones() as usize;
        before = byte >> 7;
    }
    // The cleared bits behind the last row end a run of ones.
    runs - usize::from(!rows.is_multiple_of(8) && bit(bits, rows - 1))
}

fn encode_runs(bits: &[u8], rows: usize, runs: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[PageMode::RunLength.to_byte(), bits[0] & 1]);
    out.extend_from_slice(&small::<u16>(runs).to_le_bytes());
    let start = out.len();
    for row in 1..rows {
        if bit(bits, row) != bit(bits, row - 1) {
            out.extend_from_slice(&small::<u16>(row).to_le_bytes());
        }
    }
    out.extend_from_slice(&small::<u16>(rows).to_le_bytes());
    assert!(out.len() - start == runs * 2, "counted {runs} runs");
}

/// Decodes a page of `rows` bits into `out`, which has `rows.div_ceil(8)` bytes.
pub(crate) fn decode_page(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    rows: usize,
    scratch: &mut DecodeScratch,
    out: &mut [u8],
) -> Result<(), DecodeError> {
    match open_page(codec, prelude, page, &mut scratch.decompressor)? {
        Source::Constant => fill_bits(Input::new(prelude), out)?,
        Source::Page(PageMode::Constant, input) => fill_bits(input, out)?,
        Source::Page(PageMode::Plain, mut input) => {
            out.copy_from_slice(input.take(out.len())?);
            input.finish()?;
        }
        Source::Page(PageMode::RunLength, input) => decode_runs(input, rows, out)?,
        Source::Page(..) => return Err(DecodeError::new("page mode does not fit bits")),
    }
    clear_behind(out, rows);
    Ok(())
}

fn fill_bits(mut input: Input<'_>, out: &mut [u8]) -> Result<(), DecodeError> {
    match input.read::<u8>()? {
        0 => out.fill(0),
        1 => out.fill(0xFF),
        _ => return Err(DecodeError::new("a bit is neither zero nor one")),
    }
    input.finish()
}

fn decode_runs(mut input: Input<'_>, rows: usize, out: &mut [u8]) -> Result<(), DecodeError> {
    let mut value = input.read::<u8>()?;
    ensure(value <= 1, "a bit is neither zero nor one")?;
    let runs = usize::from(input.read::<u16>()?);
    let ends = input.take(runs * 2)?;
    input.finish()?;
    out.fill(0);
    let mut start = 0;
    for end in ends.chunks_exact(2) {
        let end = usize::from(
            u16::read_from_bytes(end).map_err(|_| DecodeError::new("page is cut short"))?,
        );
        ensure(
            start < end && end <= rows,
            "ends of runs do not rise to the end of the page",
        )?;
        if value == 1 {
            set_bits(out, start, end);
        }
        value ^= 1;
        start = end;
    }
    ensure(start == rows, "runs end before the page")
}

/// Sets the bits from `start` up to `end`, which is larger.
fn set_bits(bits: &mut [u8], start: usize, end: usize) {
    let (first, last) = (start / 8, (end - 1) / 8);
    let first_mask = 0xFF_u8 << (start % 8);
    let last_mask = 0xFF_u8 >> (7 - (end - 1) % 8);
    if first == last {
        bits[first] |= first_mask & last_mask;
    } else {
        bits[first] |= first_mask;
        bits[first + 1..last].fill(0xFF);
        bits[last] |= last_mask;
    }
}
