//! Pages of integers, which the other codecs end in too.
//!
//! Invariants: a page holds all that is needed to decode it; every mode but `Plain` is used only
//! where it is smaller than `Plain`.
//!
//! The mode comes from a plan made for the chunk by sampling. A page that turns out larger than
//! planned is tried in full, and the plan follows it, so that data may change within a chunk.

use zerocopy::IntoBytes;

use crate::PAGE_ROWS;
use crate::error::{DecodeError, ensure};
use crate::input::Input;
use crate::mode::PageMode;
use crate::packing::{PageBuffer, block_bytes, low_bits, pack, unpack, value_of};
use crate::wide::{Lane, count_changes, count_outside, deltas, min_max};

/// The plan for a chunk's integer pages that follows from its sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntegerPlan {
    /// The mode to try first; `None` tries every page in full.
    pub(crate) mode: Option<PageMode>,
    /// The expected bytes of a full page in that mode.
    pub(crate) page_bytes: usize,
    /// Whether the mode was asked for by the caller and stays.
    pub(crate) forced: bool,
}

impl IntegerPlan {
    /// Tries the first page in full and continues from there.
    pub(crate) const UNKNOWN: Self = Self {
        mode: None,
        page_bytes: 0,
        forced: false,
    };

    /// Always tries `mode`, whatever it costs.
    pub(crate) const fn forced(mode: PageMode) -> Self {
        Self {
            mode: Some(mode),
            page_bytes: usize::MAX,
            forced: true,
        }
    }

    /// Whether a page of `page_bytes` is about what was expected.
    fn accepts(&self, page_bytes: usize) -> bool {
        self.forced || page_bytes <= self.page_bytes + self.page_bytes / 16 + 256
    }
}

/// Buffers that pages share.
#[derive(Debug)]
pub(crate) struct IntegerScratch {
    packed: PageBuffer,
    deltas: PageBuffer,
    positions: Box<[u16; PAGE_ROWS]>,
}

impl IntegerScratch {
    /// Room to pack in.
    pub(crate) fn packed(&mut self) -> &mut PageBuffer {
        &mut self.packed
    }
}

impl Default for IntegerScratch {
    fn default() -> Self {
        Self {
            packed: PageBuffer::default(),
            deltas: PageBuffer::default(),
            positions: Box::new([0; PAGE_ROWS]),
        }
    }
}

/// A way to pack numbers: those within `reference ..= reference + 2^width_bits - 1` by their
/// difference, the others as outliers.
#[derive(Debug, Clone, Copy)]
struct Frame<L> {
    reference: L,
    width_bits: u32,
    outliers: usize,
}

impl<L: Lane> Frame<L> {
    /// The frame of all numbers from `low` to `high`.
    fn covering(low: L, high: L) -> Self {
        Self {
            reference: low,
            width_bits: high.wsub(low).bit_width(),
            outliers: 0,
        }
    }

    fn span(&self) -> L {
        L::truncate(low_bits(self.width_bits))
    }

    /// Bytes of a frame-of-reference page of `rows` rows.
    fn page_bytes(&self, rows: usize) -> usize {
        4 + L::BYTES + block_bytes(rows, self.width_bits) + self.outliers * (2 + L::BYTES)
    }

    /// Bytes of a delta page of `rows` rows.
    fn delta_page_bytes(&self, rows: usize) -> usize {
        self.page_bytes(rows) + L::BYTES
    }
}

fn plain_page_bytes<L: Lane>(rows: usize) -> usize {
    1 + rows * L::BYTES
}

fn run_page_bytes<L: Lane>(runs: usize) -> usize {
    4 + runs * (2 + L::BYTES)
}

/// Appends a page. `flip` is zero for unsigned values and [`Lane::SIGN`] for signed ones; it shapes
/// the bytes but is not needed to read them.
pub(crate) fn encode<L: Lane>(
    values: &[L],
    flip: L,
    plan: &mut IntegerPlan,
    scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) {
    assert!(
        !values.is_empty() && values.len() <= PAGE_ROWS,
        "a page has 1 to 1,024 rows"
    );
    let rows = values.len();
    let planned = plan.mode.filter(|_| plan.forced || rows == PAGE_ROWS);
    match planned {
        Some(PageMode::FrameOfReference) => {
            let (low, high) = min_max(values, flip);
            let frame = Frame::covering(low, high);
            if plan.accepts(frame.page_bytes(rows)) {
                return write_frame(values, frame, scratch, out);
            }
        }
        Some(PageMode::Delta) => {
            let differences = &mut scratch.deltas.lanes::<L>()[..rows];
            let (low, high) = deltas(values, differences);
            let frame = Frame::covering(low, high);
            if plan.accepts(frame.delta_page_bytes(rows)) {
                return write_delta(values, frame, scratch, out);
            }
        }
        Some(PageMode::RunLength) => {
            let runs = count_changes(values) + 1;
            if plan.accepts(run_page_bytes::<L>(runs)) {
                return write_runs(values, out);
            }
        }
        Some(PageMode::Plain) if plan.forced => return write_plain(values, out),
        _ => {}
    }
    let best = encode_smallest(values, flip, scratch, out);
    if rows == PAGE_ROWS && best.mode != Some(PageMode::Constant) && !plan.forced {
        *plan = best;
    }
}

/// Tries every mode and appends the smallest page; returns its mode.
fn encode_smallest<L: Lane>(
    values: &[L],
    flip: L,
    scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) -> IntegerPlan {
    let rows = values.len();
    let (low, high) = min_max(values, flip);
    if low == high {
        write_constant(low, out);
        return IntegerPlan {
            mode: Some(PageMode::Constant),
            page_bytes: 1 + L::BYTES,
            forced: false,
        };
    }
    let frame = with_outliers(values, flip, Frame::covering(low, high));
    let differences = &mut scratch.deltas.lanes::<L>()[..rows];
    let (low, high) = deltas(values, differences);
    let runs = differences
        .iter()
        .filter(|&&difference| difference != L::default())
        .count()
        + 1;
    // The first difference is none: it stands in the row's place only.
    let delta_frame = with_outliers(&differences[1..], L::SIGN, Frame::covering(low, high));

    let plain_bytes = plain_page_bytes::<L>(rows);
    let frame_bytes = frame.page_bytes(rows);
    // Sums are slower to read than frames, runs slower to write: they must save a sixteenth.
    let delta_bytes = delta_frame.delta_page_bytes(rows);
    let run_bytes = run_page_bytes::<L>(runs);
    let mut best = (PageMode::Plain, plain_bytes, plain_bytes);
    for (mode, bytes, weight) in [
        (PageMode::FrameOfReference, frame_bytes, frame_bytes),
        (PageMode::Delta, delta_bytes, delta_bytes + delta_bytes / 16),
        (PageMode::RunLength, run_bytes, run_bytes + run_bytes / 16),
    ] {
        if weight < best.2 {
            best = (mode, bytes, weight);
        }
    }
    match best.0 {
        PageMode::FrameOfReference => write_frame(values, frame, scratch, out),
        PageMode::Delta => write_delta(values, delta_frame, scratch, out),
        PageMode::RunLength => write_runs(values, out),
        _ => write_plain(values, out),
    }
    IntegerPlan {
        mode: Some(best.0),
        page_bytes: best.1,
        forced: false,
    }
}

/// Values sampled to find where most of them lie.
const QUANTILE_SAMPLE: usize = 64;

/// A narrower frame that leaves some values out, where that makes the page smaller.
fn with_outliers<L: Lane>(values: &[L], flip: L, whole: Frame<L>) -> Frame<L> {
    let mut sample = [L::default(); QUANTILE_SAMPLE];
    if values.len() < QUANTILE_SAMPLE || whole.width_bits < 3 {
        return whole;
    }
    for (index, value) in sample.iter_mut().enumerate() {
        *value = values[index * values.len() / QUANTILE_SAMPLE] ^ flip;
    }
    sample.sort_unstable();
    let mut best = whole;
    for trim in [0, 1, 3, 6] {
        let (low, high) = (sample[trim], sample[QUANTILE_SAMPLE - 1 - trim]);
        let width_bits = high.wsub(low).bit_width();
        for width_bits in [width_bits, width_bits + 1] {
            if width_bits + 1 >= best.width_bits {
                continue;
            }
            // The room that rounding up to whole bits leaves goes to both sides.
            let room = L::truncate(low_bits(width_bits)).wsub(high.wsub(low)) >> 1;
            let centred = (low ^ flip).wsub(room);
            for reference in [centred, whole.reference] {
                let mut frame = Frame {
                    reference,
                    width_bits,
                    outliers: 0,
                };
                if frame.page_bytes(values.len()) >= best.page_bytes(values.len()) {
                    continue;
                }
                frame.outliers = count_outside(values, reference, frame.span());
                if frame.page_bytes(values.len()) < best.page_bytes(values.len()) {
                    best = frame;
                }
            }
        }
    }
    best
}

pub(crate) fn write_plain<L: Lane>(values: &[L], out: &mut Vec<u8>) {
    out.push(PageMode::Plain.to_byte());
    out.extend_from_slice(values.as_bytes());
}

pub(crate) fn write_constant<L: Lane>(value: L, out: &mut Vec<u8>) {
    out.push(PageMode::Constant.to_byte());
    out.extend_from_slice(value.as_bytes());
}

/// Appends a frame-of-reference page, or a constant or plain one where that is smaller.
fn write_frame<L: Lane>(
    values: &[L],
    frame: Frame<L>,
    scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) {
    if frame.width_bits == 0 && frame.outliers == 0 {
        return write_constant(frame.reference, out);
    }
    if frame.page_bytes(values.len()) >= plain_page_bytes::<L>(values.len()) {
        return write_plain(values, out);
    }
    write_frame_header(PageMode::FrameOfReference, frame, out);
    write_packed(
        values,
        frame,
        &mut scratch.packed,
        &mut scratch.positions,
        out,
    );
}

/// Appends a delta page of the differences in `scratch`, or a plain one where that is smaller.
fn write_delta<L: Lane>(
    values: &[L],
    frame: Frame<L>,
    scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) {
    let Some(&first) = values.first() else { return };
    if frame.delta_page_bytes(values.len()) >= plain_page_bytes::<L>(values.len()) {
        return write_plain(values, out);
    }
    let differences = &mut scratch.deltas.lanes::<L>()[..values.len()];
    // So that the first row needs no case of its own: the sum starts one reference lower.
    differences[0] = frame.reference;
    write_frame_header(PageMode::Delta, frame, out);
    out.extend_from_slice(first.wsub(frame.reference).as_bytes());
    write_packed(
        differences,
        frame,
        &mut scratch.packed,
        &mut scratch.positions,
        out,
    );
}

fn write_frame_header<L: Lane>(mode: PageMode, frame: Frame<L>, out: &mut Vec<u8>) {
    out.push(mode.to_byte());
    out.push(small::<u8>(frame.width_bits as usize));
    out.extend_from_slice(&small::<u16>(frame.outliers).to_le_bytes());
    out.extend_from_slice(frame.reference.as_bytes());
}

/// A number that a page's row count or a lane's width bounds.
pub(crate) fn small<N: TryFrom<usize> + Default>(number: usize) -> N {
    // Rows, runs and outliers are at most 1,024 and widths at most 64: the assertion is for bugs.
    let converted = N::try_from(number);
    assert!(converted.is_ok(), "{number} does not fit its field");
    converted.unwrap_or_default()
}

/// Appends the packed differences, then the positions and values of the outliers.
fn write_packed<L: Lane>(
    values: &[L],
    frame: Frame<L>,
    buffer: &mut PageBuffer,
    positions: &mut [u16; PAGE_ROWS],
    out: &mut Vec<u8>,
) {
    pack(frame.width_bits, values, frame.reference, buffer, out);
    if frame.outliers == 0 {
        return;
    }
    let span = frame.span();
    let mut count = 0;
    for (position, &value) in (0_u16..).zip(values) {
        positions[count % PAGE_ROWS] = position;
        count += usize::from(value.wsub(frame.reference) > span);
    }
    assert!(
        count == frame.outliers,
        "counted {} outliers, wrote {count}",
        frame.outliers
    );
    out.extend_from_slice(positions[..count].as_bytes());
    for &position in &positions[..count] {
        out.extend_from_slice(values[usize::from(position)].as_bytes());
    }
}

/// Appends a run-length page, or a plain one where that is smaller.
fn write_runs<L: Lane>(values: &[L], out: &mut Vec<u8>) {
    let runs = count_changes(values) + 1;
    if run_page_bytes::<L>(runs) >= plain_page_bytes::<L>(values.len()) {
        return write_plain(values, out);
    }
    out.push(PageMode::RunLength.to_byte());
    out.push(0);
    out.extend_from_slice(&small::<u16>(runs).to_le_bytes());
    for (end, pair) in (1_u16..).zip(values.windows(2)) {
        if pair[0] != pair[1] {
            out.extend_from_slice(&end.to_le_bytes());
        }
    }
    out.extend_from_slice(&small::<u16>(values.len()).to_le_bytes());
    for run in values.chunk_by(|before, value| before == value) {
        out.extend_from_slice(run[0].as_bytes());
    }
}

/// An error unless a page of `rows` rows may have this mode: only those of one value or of values
/// as they are may be longer than a run.
#[inline]
pub(crate) fn check_rows(mode: PageMode, rows: usize) -> Result<(), DecodeError> {
    let is_run = rows <= PAGE_ROWS || matches!(mode, PageMode::Plain | PageMode::Constant);
    ensure(is_run, "more rows than the page mode can have")
}

/// Reads a page of `out.len()` rows after its mode byte.
#[inline]
pub(crate) fn decode_mode<L: Lane>(
    mode: PageMode,
    mut input: Input<'_>,
    buffer: &mut PageBuffer,
    out: &mut [L],
) -> Result<(), DecodeError> {
    check_rows(mode, out.len())?;
    match mode {
        PageMode::Plain => {
            let values = input.take(size_of_val(out))?;
            out.as_mut_bytes().copy_from_slice(values);
        }
        PageMode::Constant => out.fill(input.read()?),
        PageMode::FrameOfReference => {
            let header = FrameHeader::read(&mut input, out.len())?;
            header.decode(&mut input, buffer, out)?;
        }
        PageMode::Delta => {
            let header = FrameHeader::read(&mut input, out.len())?;
            let start = input.read()?;
            header.decode(&mut input, buffer, out)?;
            L::prefix_sum(out, start);
        }
        PageMode::RunLength => decode_runs(&mut input, out)?,
        _ => return Err(DecodeError::new("page mode does not fit integers")),
    }
    input.finish()
}

/// One value of a page of `rows` rows, after its mode byte.
pub(crate) fn value<L: Lane>(
    mode: PageMode,
    mut input: Input<'_>,
    rows: usize,
    index: usize,
    buffers: &mut [PageBuffer; 2],
) -> Result<L, DecodeError> {
    check_rows(mode, rows)?;
    let value = match mode {
        PageMode::Plain => {
            let values = input.take(rows * L::BYTES)?;
            Input::new(&values[index * L::BYTES..]).read()?
        }
        PageMode::Constant => input.read()?,
        PageMode::FrameOfReference => {
            FrameHeader::read(&mut input, rows)?.value(&mut input, rows, index)?
        }
        // A sum, and runs of any length: the whole page.
        _ => {
            let [buffer, values] = buffers;
            let values = &mut values.lanes::<L>()[..rows];
            decode_mode(mode, input, buffer, values)?;
            return Ok(values[index]);
        }
    };
    input.finish()?;
    Ok(value)
}

/// The fields before packed differences.
struct FrameHeader<L> {
    width_bits: u32,
    outliers: usize,
    reference: L,
}

impl<L: Lane> FrameHeader<L> {
    fn read(input: &mut Input<'_>, rows: usize) -> Result<Self, DecodeError> {
        let width_bits = u32::from(input.read::<u8>()?);
        let outliers = usize::from(input.read::<u16>()?);
        ensure(width_bits <= L::BITS, "width above that of the values")?;
        ensure(outliers <= rows, "more outliers than rows")?;
        Ok(Self {
            width_bits,
            outliers,
            reference: input.read()?,
        })
    }

    fn decode(
        &self,
        input: &mut Input<'_>,
        buffer: &mut PageBuffer,
        out: &mut [L],
    ) -> Result<(), DecodeError> {
        let block = input.take(block_bytes(out.len(), self.width_bits))?;
        unpack(self.width_bits, block, self.reference, buffer, out)?;
        let positions = input.take(self.outliers * 2)?;
        let values = input.take(self.outliers * L::BYTES)?;
        put_exceptions(positions, values, out)
    }

    /// Decodes one value, that of row `index`, as [`Self::decode`] does all of them.
    fn value(&self, input: &mut Input<'_>, rows: usize, index: usize) -> Result<L, DecodeError> {
        let block = input.take(block_bytes(rows, self.width_bits))?;
        let positions = input.take(self.outliers * 2)?;
        let values = input.take(self.outliers * L::BYTES)?;
        if let Some(outlier) = exception_of(positions, index) {
            return Input::new(&values[outlier * L::BYTES..]).read();
        }
        let packed: L = value_of(self.width_bits, block, rows, index)?;
        Ok(packed.wadd(self.reference))
    }
}

/// Which of the exceptions at rising `positions` (16-bit numbers) is that of row `index`.
pub(crate) fn exception_of(positions: &[u8], index: usize) -> Option<usize> {
    let position = |at: usize| {
        usize::from(u16::from_le_bytes([
            positions[at * 2],
            positions[at * 2 + 1],
        ]))
    };
    let (mut low, mut high) = (0, positions.len() / 2);
    while low < high {
        let middle = low.midpoint(high);
        if position(middle) < index {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low < positions.len() / 2 && position(low) == index).then_some(low)
}

/// Overwrites the rows at `positions` (16-bit numbers) with `values`.
pub(crate) fn put_exceptions<L: Lane>(
    positions: &[u8],
    values: &[u8],
    out: &mut [L],
) -> Result<(), DecodeError> {
    for (position, value) in positions.chunks_exact(2).zip(values.chunks_exact(L::BYTES)) {
        let position = u16::from_le_bytes([position[0], position[1]]);
        let row = out
            .get_mut(usize::from(position))
            .ok_or(DecodeError::new("outlier beyond the page"))?;
        row.as_mut_bytes().copy_from_slice(value);
    }
    Ok(())
}

fn decode_runs<L: Lane>(input: &mut Input<'_>, out: &mut [L]) -> Result<(), DecodeError> {
    ensure(input.read::<u8>()? == 0, "reserved byte is not zero")?;
    let runs = usize::from(input.read::<u16>()?);
    let ends = input.take(runs * 2)?;
    let values = input.take(runs * L::BYTES)?;
    let mut start = 0;
    for (end, value) in ends.chunks_exact(2).zip(values.chunks_exact(L::BYTES)) {
        let end = usize::from(u16::from_le_bytes([end[0], end[1]]));
        ensure(
            start < end && end <= out.len(),
            "ends of runs do not rise to the end of the page",
        )?;
        let value = L::read_from_bytes(value).map_err(|_| DecodeError::new("page is cut short"))?;
        out[start..end].fill(value);
        start = end;
    }
    ensure(start == out.len(), "runs end before the page")
}
