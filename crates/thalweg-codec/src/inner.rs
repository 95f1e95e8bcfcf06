//! Pages of integers within pages of another mode: lengths, codes, halves, scaled floats.
//!
//! Invariants: an inner page has the rows of the page around it; it is an integer page of one of
//! the modes 1 to 5, or runs of these.

use crate::PAGE_ROWS;
use crate::error::DecodeError;
use crate::input::Input;
use crate::integers::{self, IntegerPlan, IntegerScratch};
use crate::mode::PageMode;
use crate::packing::PageBuffer;
use crate::runs::{self, Runs};
use crate::wide::{Lane, min_max};

/// Appends an inner page of any number of rows.
pub(crate) fn encode<L: Lane>(
    values: &[L],
    flip: L,
    plan: &mut IntegerPlan,
    scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) {
    if values.len() <= PAGE_ROWS {
        return integers::encode(values, flip, plan, scratch, out);
    }
    encode_long(values, flip, out, |run, out| {
        integers::encode(run, flip, plan, scratch, out);
    });
}

/// Appends a page of more than one run, each by `encode_run`, or a constant or plain one where that
/// is smaller.
pub(crate) fn encode_long<L: Lane>(
    values: &[L],
    flip: L,
    out: &mut Vec<u8>,
    mut encode_run: impl FnMut(&[L], &mut Vec<u8>),
) {
    let (low, high) = min_max(values, flip);
    if low == high {
        return integers::write_constant(low, out);
    }
    let start = out.len();
    runs::write(values.len(), out, |rows, out| {
        encode_run(&values[rows], out)
    });
    if out.len() - start > size_of_val(values) {
        out.truncate(start);
        integers::write_plain(values, out);
    }
}

/// Reads an inner page, mode byte included.
#[inline]
pub(crate) fn decode<L: Lane>(
    page: &[u8],
    buffer: &mut PageBuffer,
    out: &mut [L],
) -> Result<(), DecodeError> {
    let mut input = Input::new(page);
    match PageMode::from_byte(input.read()?)? {
        PageMode::Runs => decode_long(input, buffer, out),
        mode => integers::decode_mode(mode, input, buffer, out),
    }
}

/// Kept apart, so that the usual page of one run is read without a call.
#[inline(never)]
fn decode_long<L: Lane>(
    input: Input<'_>,
    buffer: &mut PageBuffer,
    out: &mut [L],
) -> Result<(), DecodeError> {
    decode_runs(input, out, |mode, input, out| {
        integers::decode_mode(mode, input, buffer, out)
    })
}

/// Reads runs after the mode byte of their page, each by `decode_run`.
pub(crate) fn decode_runs<T>(
    input: Input<'_>,
    out: &mut [T],
    mut decode_run: impl FnMut(PageMode, Input<'_>, &mut [T]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let runs = Runs::read(input, out.len())?;
    for run in runs.iter() {
        let run = run?;
        decode_run(run.mode, run.input, &mut out[run.rows])?;
    }
    Ok(())
}

/// One value of an inner page of `rows` rows, mode byte included.
pub(crate) fn value<L: Lane>(
    page: &[u8],
    rows: usize,
    index: usize,
    buffers: &mut [PageBuffer; 2],
) -> Result<L, DecodeError> {
    let mut input = Input::new(page);
    match PageMode::from_byte(input.read()?)? {
        PageMode::Runs => {
            let run = Runs::read(input, rows)?.of_row(index)?;
            let at = index - run.rows.start;
            integers::value(run.mode, run.input, run.rows.len(), at, buffers)
        }
        mode => integers::value(mode, input, rows, index, buffers),
    }
}
