//! Pages of single bits: validity and booleans.
//!
//! Invariants: bits after the last row are zero, in memory and in the page.

use zerocopy::FromBytes;

use crate::PAGE_ROWS;
use crate::chain::CodecChain;
use crate::chunk::EncodedChunk;
use crate::constant;
use crate::encode_scratch::SharedScratch;
use crate::error::{DecodeError, EncodeError, ensure};
use crate::input::Input;
use crate::integers::{check_rows, small};
use crate::mode::PageMode;
use crate::open_page::{DecodeScratch, Source, open_page};
use crate::runs::{self, Runs};
use crate::settings::{Level, Settings, ValueCodec};
use crate::stage::{PageWriter, StageRule};

/// Bytes of a full run's bits.
const RUN_BITS_BYTES: usize = PAGE_ROWS / 8;

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
        constant::write(&[u8::from(bit)], out);
        return Ok(());
    }
    let SharedScratch {
        compressor,
        page,
        plain: page_bits,
        ..
    } = scratch;
    let mut writer = PageWriter::new(out);
    for index in 0..out.planned_pages() {
        let page_rows = out.row_range(index);
        take_bits(bits, page_rows.clone(), page_bits);
        page.clear();
        encode_page(page_bits, page_rows.len(), settings.codec, page);
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

/// Puts the bits of `rows` into `out`, from its lowest bit on; those after the last one are zero.
fn take_bits(bits: &[u8], rows: std::ops::Range<usize>, out: &mut Vec<u8>) {
    let (first, shift) = (rows.start / 8, rows.start % 8);
    let bytes = &bits[first..rows.end.div_ceil(8)];
    out.clear();
    if shift == 0 {
        out.extend_from_slice(bytes);
    } else {
        let next = bytes.iter().skip(1).chain(&[0]);
        out.extend(
            bytes
                .iter()
                .zip(next)
                .map(|(&byte, &next)| byte >> shift | next << (8 - shift)),
        );
    }
    out.truncate(rows.len().div_ceil(8));
    clear_after(out, rows.len());
}

/// Appends a page of bits; those after the last row are zero.
fn encode_page(bits: &[u8], rows: usize, forced: Option<ValueCodec>, out: &mut Vec<u8>) {
    if forced.is_none()
        && let Some(bit) = constant_bit(bits, rows)
    {
        out.extend_from_slice(&[PageMode::Constant.to_byte(), u8::from(bit)]);
        return;
    }
    if rows > PAGE_ROWS {
        return encode_long(bits, rows, forced, out);
    }
    let runs = count_runs(bits, rows);
    if 4 + runs * 2 < bits.len() / 2 && forced != Some(ValueCodec::Plain) {
        return encode_runs(bits, rows, runs, out);
    }
    write_plain(bits, out);
}

fn write_plain(bits: &[u8], out: &mut Vec<u8>) {
    out.push(PageMode::Plain.to_byte());
    out.extend_from_slice(bits);
}

/// Appends a page of several runs, or a plain one where runs save less than a half.
fn encode_long(bits: &[u8], rows: usize, forced: Option<ValueCodec>, out: &mut Vec<u8>) {
    let start = out.len();
    if forced != Some(ValueCodec::Plain) {
        runs::write(rows, out, |run, out| {
            let run_bits = &bits[run.start / 8..run.end.div_ceil(8)];
            encode_page(run_bits, run.len(), forced, out);
        });
        if out.len() - start <= bits.len() / 2 {
            return;
        }
        out.truncate(start);
    }
    write_plain(bits, out);
}

/// Clears the bits after the last row.
fn clear_after(bits: &mut [u8], rows: usize) {
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
    // The cleared bits after the last row end a run of ones.
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
        Source::Page(PageMode::Runs, input) => {
            for run in Runs::read(input, rows)?.iter() {
                let run = run?;
                let bytes = run.rows.start / 8..run.rows.end.div_ceil(8);
                decode_mode(run.mode, run.input, run.rows.len(), &mut out[bytes])?;
            }
        }
        Source::Page(mode, input) => decode_mode(mode, input, rows, out)?,
    }
    clear_after(out, rows);
    Ok(())
}

/// Decodes a page that is not cut into runs, after its mode byte.
fn decode_mode(
    mode: PageMode,
    mut input: Input<'_>,
    rows: usize,
    out: &mut [u8],
) -> Result<(), DecodeError> {
    match mode {
        PageMode::Constant => fill_bits(input, out),
        PageMode::Plain => {
            out.copy_from_slice(input.take(out.len())?);
            input.finish()
        }
        PageMode::RunLength => {
            check_rows(mode, rows)?;
            decode_runs(input, rows, out)
        }
        _ => Err(DecodeError::new("page mode does not fit bits")),
    }
}

/// Decodes the bit at `index` of a page of `rows` bits.
pub(crate) fn decode_value(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    (rows, index): (usize, usize),
    scratch: &mut DecodeScratch,
) -> Result<bool, DecodeError> {
    let mut out = [0; RUN_BITS_BYTES];
    let (mode, input, rows, index) =
        match open_page(codec, prelude, page, &mut scratch.decompressor)? {
            Source::Constant => {
                fill_bits(Input::new(prelude), &mut out[..1])?;
                return Ok(out[0] & 1 == 1);
            }
            Source::Page(PageMode::Runs, input) => {
                let run = Runs::read(input, rows)?.of_row(index)?;
                let at = index - run.rows.start;
                (run.mode, run.input, run.rows.len(), at)
            }
            Source::Page(mode, input) => (mode, input, rows, index),
        };
    match mode {
        PageMode::Plain => {
            let mut input = input;
            let bits = input.take(rows.div_ceil(8))?;
            input.finish()?;
            Ok(bit(bits, index))
        }
        PageMode::Constant => {
            fill_bits(input, &mut out[..1])?;
            Ok(out[0] & 1 == 1)
        }
        _ => {
            check_rows(mode, rows)?;
            decode_mode(mode, input, rows, &mut out[..rows.div_ceil(8)])?;
            Ok(bit(&out, index))
        }
    }
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
