//! Pages of more than 1,024 rows as runs of that many: mode 12.
//!
//! Invariants: a run is a page of at most [`PAGE_ROWS`] rows with a mode of its own, and no run has
//! runs; ends rise and the last one is the end of the page.

use std::ops::Range;

use crate::PAGE_ROWS;
use crate::error::{DecodeError, ensure};
use crate::input::Input;
use crate::integers::small;
use crate::mode::PageMode;

/// Bytes of one entry of the table of ends.
const END_BYTES: usize = 4;

/// Appends a page of `rows` rows, each run of it by `write_run`.
pub(crate) fn write(
    rows: usize,
    out: &mut Vec<u8>,
    mut write_run: impl FnMut(Range<usize>, &mut Vec<u8>),
) {
    assert!(rows > PAGE_ROWS, "a page of one run is that run");
    out.push(PageMode::Runs.to_byte());
    let ends = out.len();
    out.resize(ends + rows.div_ceil(PAGE_ROWS) * END_BYTES, 0);
    let start = out.len();
    for (run, first) in (0..rows).step_by(PAGE_ROWS).enumerate() {
        write_run(first..(first + PAGE_ROWS).min(rows), out);
        // 64 runs of at most 16 KiB and a header.
        let end: u32 = small(out.len() - start);
        out[ends + run * END_BYTES..][..END_BYTES].copy_from_slice(&end.to_le_bytes());
    }
}

/// The runs of a page, their ends checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs<'a> {
    ends: &'a [u8],
    bytes: &'a [u8],
    rows: usize,
}

impl<'a> Runs<'a> {
    /// Reads the table of ends after the mode byte.
    pub(crate) fn read(mut input: Input<'a>, rows: usize) -> Result<Self, DecodeError> {
        ensure(rows > PAGE_ROWS, "runs in a page of one run")?;
        let ends = input.take(rows.div_ceil(PAGE_ROWS) * END_BYTES)?;
        let runs = Self {
            ends,
            bytes: input.take_rest(),
            rows,
        };
        let mut start = 0;
        for run in 0..runs.count() {
            let end = runs.end(run);
            ensure(start < end, "ends of runs do not rise")?;
            start = end;
        }
        ensure(start == runs.bytes.len(), "runs do not end with the page")?;
        Ok(runs)
    }

    fn count(&self) -> usize {
        self.ends.len() / END_BYTES
    }

    fn end(&self, run: usize) -> usize {
        let mut end = [0; END_BYTES];
        end.copy_from_slice(&self.ends[run * END_BYTES..][..END_BYTES]);
        u32::from_le_bytes(end) as usize
    }

    /// The run that holds row `index`: its mode, its bytes after the mode byte, its rows.
    pub(crate) fn of_row(&self, index: usize) -> Result<Run<'a>, DecodeError> {
        let run = index / PAGE_ROWS;
        let start = if run == 0 { 0 } else { self.end(run - 1) };
        let mut input = Input::new(&self.bytes[start..self.end(run)]);
        let mode = PageMode::from_byte(input.read()?)?;
        ensure(mode != PageMode::Runs, "runs within a run")?;
        let first = run * PAGE_ROWS;
        Ok(Run {
            mode,
            input,
            rows: first..(first + PAGE_ROWS).min(self.rows),
        })
    }

    /// All runs from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Run<'a>, DecodeError>> + '_ {
        (0..self.count()).map(|run| self.of_row(run * PAGE_ROWS))
    }
}

/// One run of a page.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) mode: PageMode,
    /// The bytes of the run, without its mode byte.
    pub(crate) input: Input<'a>,
    /// Its rows in the page.
    pub(crate) rows: Range<usize>,
}
