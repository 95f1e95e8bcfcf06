//! Pages of floats: ALP, ALP-RD, or their bits as integers.
//!
//! Invariants: a value counts as encoded only when decoding it, with the very same operations,
//! gives its bits back; all others are stored as they are. Both follow the published algorithms;
//! the powers of ten and the choice of ALP-RD's dictionary come from the `alp` crate, the loops
//! from [`crate::wide`], since those of the crate allocate for each call and do not use wide
//! registers.

use zerocopy::{FromBytes, IntoBytes};

use crate::PAGE_ROWS;
use crate::choose::Sample;
use crate::error::{DecodeError, ensure};
use crate::inner;
use crate::input::Input;
use crate::integers::{self, IntegerPlan, IntegerScratch, exception_of, put_exceptions, small};
use crate::mode::PageMode;
use crate::number::Number;
use crate::packing::{PageBuffer, block_bytes, pack, unpack, value_of};
use crate::wide::{
    GROUP_ROWS, GROUPS, LEFT_PARTS, Lane, Scale, Scaled, alp_decode, alp_encode, alp_misses,
    left_part, rd_join, rd_misses, rd_split,
};

/// A float type with both algorithms' constants.
pub(crate) trait Float:
    Scaled + alp::ALPRDFloat + Number<Lane = <Self as Scaled>::Bits>
{
    /// The `e` whose inverse power of ten is closest to the true one, so that fewest decimals come
    /// out one bit off (up to 1 % of them; with the others 10 to 50 %).
    const BEST_EXPONENT: u8;
}

impl Float for f32 {
    const BEST_EXPONENT: u8 = 6;
}

impl Float for f64 {
    const BEST_EXPONENT: u8 = 14;
}

/// The plan for float pages that follows from a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatPlan {
    way: Way,
    /// For the integers the way ends in.
    integers: IntegerPlan,
    /// Pages that still have to disappoint before another sample is taken.
    patience_pages: u32,
    /// Patience after the next vain sample.
    next_patience_pages: u32,
    forced: bool,
    /// Whether no sample was taken yet.
    unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As integers with the same bits.
    Bits,
    /// Scaled by ten to the power of `e` less `f`.
    Alp { e: u8, f: u8 },
    /// Cut in two.
    Rd(Cut),
}

/// Where ALP-RD cuts, and the front parts it has codes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    cut_bits: u32,
    code_bits: u32,
    parts: [u16; LEFT_PARTS],
}

/// A way the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForcedWay {
    Bits,
    Alp,
    Rd,
}

/// Buffers that pages share.
#[derive(Debug)]
pub(crate) struct FloatScratch {
    integers: PageBuffer,
    codes: PageBuffer,
    sample: PageBuffer,
    positions: Box<[u16; PAGE_ROWS]>,
}

impl FloatScratch {
    /// Room for a scaled sample.
    pub(crate) fn room(&mut self) -> &mut PageBuffer {
        &mut self.integers
    }
}

impl Default for FloatScratch {
    fn default() -> Self {
        Self {
            integers: PageBuffer::default(),
            codes: PageBuffer::default(),
            sample: PageBuffer::default(),
            positions: Box::new([0; PAGE_ROWS]),
        }
    }
}

/// The floats with these bits.
pub(crate) fn floats_of<F: Float>(bits: &[F::Bits]) -> &[F] {
    match <[F]>::ref_from_bytes(bits.as_bytes()) {
        Ok(floats) => floats,
        // A float has the size and alignment of its bits.
        Err(_) => unreachable!("floats differ from their bits"),
    }
}

/// The bits of these floats.
fn bits_of<F: Float>(floats: &[F]) -> &[F::Bits] {
    match <[F::Bits]>::ref_from_bytes(floats.as_bytes()) {
        Ok(bits) => bits,
        // A float has the size and alignment of its bits.
        Err(_) => unreachable!("floats differ from their bits"),
    }
}

impl FloatPlan {
    fn new(way: Way, integers: IntegerPlan) -> Self {
        Self {
            way,
            integers,
            patience_pages: 0,
            next_patience_pages: 1,
            forced: false,
            unknown: false,
        }
    }

    /// For chunks without a full page: the first page is the sample.
    pub(crate) const UNKNOWN: Self = Self {
        way: Way::Bits,
        integers: IntegerPlan::UNKNOWN,
        patience_pages: 0,
        next_patience_pages: 1,
        forced: false,
        unknown: true,
    };

    /// The expected bytes of a full page.
    pub(crate) fn page_bytes<F: Float>(&self) -> usize {
        match self.way {
            Way::Rd(cut) => block_bytes(PAGE_ROWS, cut.cut_bits + cut.code_bits),
            _ => self.integers.page_bytes,
        }
    }

    /// The plan to go one way, as a sample shows it.
    pub(crate) fn forced<F: Float>(
        sample: &[F::Bits],
        way: ForcedWay,
        integers: IntegerPlan,
    ) -> Self {
        let floats = floats_of::<F>(sample);
        let way = match way {
            ForcedWay::Bits => Way::Bits,
            ForcedWay::Alp => {
                let (e, f) = find_exponents(floats).map_or((0, 0), |found| (found.e, found.f));
                Way::Alp { e, f }
            }
            ForcedWay::Rd => Way::Rd(find_cut(floats).0),
        };
        Self {
            forced: true,
            ..Self::new(way, integers)
        }
    }

    /// The smallest way for values like those of the sample.
    pub(crate) fn of_sample<F: Float>(
        sample: &Sample<'_, F::Bits>,
        buffer: &mut PageBuffer,
    ) -> Self {
        let plain_bytes = 1 + PAGE_ROWS * F::Bits::BYTES;
        let floats = floats_of::<F>(sample.values);
        let mut best = Self::new(Way::Bits, IntegerPlan::UNKNOWN);
        let mut best_bytes = plain_bytes;
        if let Some(found) = find_exponents(floats) {
            let integers = &mut buffer.lanes::<F::Bits>()[..floats.len()];
            if let Some(misses) = scale_sample(floats, found, integers) {
                let scaled = Sample {
                    values: integers,
                    page_rows: sample.page_rows,
                };
                let plan = scaled.plan_integers(F::Bits::SIGN);
                let exceptions = misses * PAGE_ROWS / floats.len();
                best_bytes = 6 + plan.page_bytes + exceptions * (2 + F::Bits::BYTES);
                let (e, f) = (found.e, found.f);
                best = Self::new(Way::Alp { e, f }, plan);
            }
        }
        // Integers that pack well, or run, are seldom beaten by their floats' bits.
        if best_bytes > plain_bytes / 4 || best.integers.mode == Some(PageMode::RunLength) {
            let bits = sample.plan_integers(F::Bits::default());
            if bits.page_bytes <= best_bytes {
                best_bytes = bits.page_bytes;
                best = Self::new(Way::Bits, bits);
            }
        }
        if best_bytes > plain_bytes / 2 {
            let (cut, exceptions) = find_cut(floats);
            let bytes = 21 + block_bytes(PAGE_ROWS, cut.cut_bits + cut.code_bits) + exceptions * 4;
            // Cutting is slow to write: it must save a tenth.
            if bytes + bytes / 10 < best_bytes {
                best = Self::new(Way::Rd(cut), IntegerPlan::UNKNOWN);
            }
        }
        best
    }
}

/// A pair of exponents, and how many sampled values they miss.
#[derive(Debug, Clone, Copy)]
struct Exponents {
    e: u8,
    f: u8,
    misses: usize,
}

/// Values tried with each pair of exponents.
const TRIED_ROWS: usize = 32;

/// The exponents for values like these; `None` when more than a quarter would be exceptions.
///
/// First the number of decimals is found, each tried with the `e` that loses least to rounding;
/// then `e` for that number, since large values leave it no room. The exhaustive search
/// over all pairs finds nothing better on decimals, and costs more than encoding a chunk.
fn find_exponents<F: Float>(values: &[F]) -> Option<Exponents> {
    let mut tried = [F::from_lane(F::Bits::default()); TRIED_ROWS];
    let rows = values.len().min(TRIED_ROWS);
    for (index, value) in tried[..rows].iter_mut().enumerate() {
        *value = values[index * values.len() / rows];
    }
    let tried = &tried[..rows];
    let mut best: Option<Exponents> = None;
    for decimals in 0..=F::MAX_EXPONENT {
        // Whole numbers need no scaling, so they lose nothing without.
        let e = if decimals == 0 {
            0
        } else {
            F::BEST_EXPONENT.max(decimals)
        };
        let found = try_exponents(tried, e, decimals)?;
        if best.is_none_or(|best| found.misses < best.misses) {
            best = Some(found);
        }
        if found.misses * 8 <= rows {
            break;
        }
    }
    let mut best = best.filter(|best| best.misses * 4 <= rows)?;
    let decimals = best.e - best.f;
    for e in decimals..=F::MAX_EXPONENT {
        if best.misses == 0 {
            break;
        }
        let found = try_exponents(tried, e, decimals)?;
        if found.misses < best.misses {
            best = found;
        }
    }
    Some(best)
}

fn try_exponents<F: Float>(values: &[F], e: u8, decimals: u8) -> Option<Exponents> {
    let mut integers = [F::Bits::default(); TRIED_ROWS];
    let f = e - decimals;
    let misses = count_misses(values, Scale::new(e, f)?, &mut integers[..values.len()]);
    Some(Exponents { e, f, misses })
}

/// Scales values and counts those that it misses.
fn count_misses<F: Float>(values: &[F], scale: Scale<F>, integers: &mut [F::Bits]) -> usize {
    let mut misses = [0; GROUPS];
    alp_encode(values, scale, integers, &mut misses);
    misses.iter().sum::<u32>() as usize
}

/// Scales a sample, with neighbours in the place of exceptions, and counts these; `None` when
/// nothing is left.
fn scale_sample<F: Float>(
    values: &[F],
    found: Exponents,
    integers: &mut [F::Bits],
) -> Option<usize> {
    let scale = Scale::new(found.e, found.f)?;
    let misses = count_misses(values, scale, integers);
    if misses == 0 {
        return Some(0);
    }
    let mut positions = [0; PAGE_ROWS];
    let count = alp_misses(values, scale, integers, &mut positions, 0);
    fill_exceptions(&positions[..count], integers).then_some(count)
}

/// Puts a neighbour's integer in the place of each exception, so that it does not widen the page;
/// `false` when all are exceptions.
fn fill_exceptions<L: Lane>(positions: &[u16], integers: &mut [L]) -> bool {
    // Positions rise, so the first row that is not where it would be in a full list is exact.
    let leading = positions
        .iter()
        .zip(0_u16..)
        .take_while(|&(&position, index)| position == index)
        .count();
    let Some(&first) = integers.get(leading) else {
        return false;
    };
    for &position in positions {
        let position = usize::from(position);
        integers[position] = if position < leading {
            first
        } else {
            integers[position - 1]
        };
    }
    true
}

/// Values that decide where ALP-RD cuts.
const CUT_ROWS: usize = 96;

/// ALP-RD's cut for values like these, and how many values of a page will miss its parts.
fn find_cut<F: Float>(values: &[F]) -> (Cut, usize) {
    let mut sample = [F::from_lane(F::Bits::default()); CUT_ROWS];
    let rows = values.len().min(CUT_ROWS);
    for (index, value) in sample[..rows].iter_mut().enumerate() {
        *value = values[index * values.len() / rows];
    }
    let values = &sample[..rows];
    let encoder = alp::RDEncoder::new(values);
    let cut_bits = u32::from(encoder.right_bit_width());
    let mut parts = [0; LEFT_PARTS];
    for (part, &code) in parts.iter_mut().zip(encoder.codes()) {
        *part = code;
    }
    let count = encoder.codes().len().min(LEFT_PARTS);
    // Unused parts repeat the first, whose code wins.
    let first = parts[0];
    parts[count..].fill(first);
    let code_bits = u32::from(encoder.left_bit_width()).min(3);
    let mut codes = [0; CUT_ROWS];
    let mut rights = [F::Bits::default(); CUT_ROWS];
    let misses = rd_split(
        bits_of(values),
        cut_bits,
        &parts,
        &mut codes[..rows],
        &mut rights[..rows],
    );
    let cut = Cut {
        cut_bits,
        code_bits,
        parts,
    };
    (cut, misses * PAGE_ROWS / rows)
}

/// Appends a page of the floats with these bits.
pub(crate) fn encode<F: Float>(
    bits: &[F::Bits],
    plan: &mut FloatPlan,
    scratch: &mut FloatScratch,
    integers: &mut IntegerScratch,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    if plan.unknown {
        *plan = replan::<F>(bits, plan.way, scratch).unwrap_or(FloatPlan {
            unknown: false,
            ..*plan
        });
    }
    if encode_planned::<F>(bits, plan, scratch, integers, out) {
        return;
    }
    if plan.patience_pages > 0 {
        plan.patience_pages -= 1;
    } else if let Some(better) = replan::<F>(bits, plan.way, scratch) {
        out.truncate(start);
        *plan = better;
        if encode_planned::<F>(bits, plan, scratch, integers, out) {
            return;
        }
    } else {
        plan.patience_pages = plan.next_patience_pages;
        plan.next_patience_pages = (plan.next_patience_pages * 2).min(16);
    }
    if out.len() - start > size_of_val(bits) {
        out.truncate(start);
        integers::write_plain(bits, out);
    }
}

/// A plan for this very page, when it goes another way.
fn replan<F: Float>(bits: &[F::Bits], way: Way, scratch: &mut FloatScratch) -> Option<FloatPlan> {
    if bits.len() == 1 {
        return None;
    }
    let FloatScratch {
        integers, sample, ..
    } = scratch;
    let better = match Sample::of_page(bits, sample) {
        Some(sample) => FloatPlan::of_sample::<F>(&sample, integers),
        // Too few rows for runs: all of them are the sample, and only ALP is worth its header.
        None => {
            let found = find_exponents(floats_of::<F>(bits))?;
            FloatPlan::new(
                Way::Alp {
                    e: found.e,
                    f: found.f,
                },
                IntegerPlan::UNKNOWN,
            )
        }
    };
    (better.way != way).then_some(better)
}

/// Appends a page as planned; returns whether it came out well.
fn encode_planned<F: Float>(
    bits: &[F::Bits],
    plan: &mut FloatPlan,
    scratch: &mut FloatScratch,
    integers: &mut IntegerScratch,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let exceptions = match plan.way {
        Way::Bits => {
            integers::encode(bits, F::Bits::default(), &mut plan.integers, integers, out);
            0
        }
        Way::Alp { e, f } => {
            encode_alp::<F>(bits, (e, f), &mut plan.integers, scratch, integers, out)
        }
        Way::Rd(cut) => encode_rd(bits, &cut, scratch, integers, out),
    };
    let page_bytes = out.len() - start;
    let plain_bytes = size_of_val(bits);
    plan.forced || (exceptions * 8 <= bits.len() && page_bytes < plain_bytes - plain_bytes / 16)
}

/// Appends an ALP page; returns the number of exceptions.
fn encode_alp<F: Float>(
    bits: &[F::Bits],
    (e, f): (u8, u8),
    plan: &mut IntegerPlan,
    scratch: &mut FloatScratch,
    integer_scratch: &mut IntegerScratch,
    out: &mut Vec<u8>,
) -> usize {
    let Some(scale) = Scale::new(e, f) else {
        integers::write_plain(bits, out);
        return bits.len();
    };
    let values = floats_of::<F>(bits);
    let integers = &mut scratch.integers.lanes::<F::Bits>()[..values.len()];
    let mut misses = [0; GROUPS];
    alp_encode(values, scale, integers, &mut misses);
    let count = collect_misses(values, scale, integers, &misses, &mut scratch.positions);
    let positions = &scratch.positions[..count];
    if !fill_exceptions(positions, integers) {
        integers::write_plain(bits, out);
        return bits.len();
    }
    out.extend_from_slice(&[PageMode::Alp.to_byte(), e, f]);
    out.extend_from_slice(&small::<u16>(count).to_le_bytes());
    out.extend_from_slice(positions.as_bytes());
    for &position in positions {
        out.extend_from_slice(bits[usize::from(position)].as_bytes());
    }
    integers::encode(integers, F::Bits::SIGN, plan, integer_scratch, out);
    count
}

/// Collects the positions of exceptions, looking only at groups that have some.
fn collect_misses<F: Float>(
    values: &[F],
    scale: Scale<F>,
    integers: &[F::Bits],
    misses: &[u32; GROUPS],
    positions: &mut [u16; PAGE_ROWS],
) -> usize {
    let mut count = 0;
    let mut found = [0; PAGE_ROWS];
    for (group, _) in misses.iter().enumerate().filter(|&(_, &missed)| missed > 0) {
        let rows = group * GROUP_ROWS..((group + 1) * GROUP_ROWS).min(values.len());
        let first = small(rows.start);
        let here = alp_misses(
            &values[rows.clone()],
            scale,
            &integers[rows],
            &mut found,
            first,
        );
        positions[count..count + here].copy_from_slice(&found[..here]);
        count += here;
    }
    count
}

/// Appends an ALP-RD page; returns the number of exceptions.
fn encode_rd<L: Lane>(
    bits: &[L],
    cut: &Cut,
    scratch: &mut FloatScratch,
    integers: &mut IntegerScratch,
    out: &mut Vec<u8>,
) -> usize {
    let rows = bits.len();
    let codes = &mut scratch.codes.lanes::<u16>()[..rows];
    let rights = &mut scratch.integers.lanes::<L>()[..rows];
    let misses = rd_split(bits, cut.cut_bits, &cut.parts, codes, rights);
    let count = if misses > 0 {
        rd_misses(codes, &mut scratch.positions)
    } else {
        0
    };
    assert!(
        count == misses,
        "counted {misses} exceptions, found {count}"
    );
    let positions = &scratch.positions[..count];
    out.extend_from_slice(&[
        PageMode::AlpRd.to_byte(),
        small(cut.cut_bits as usize),
        small(cut.code_bits as usize),
    ]);
    out.extend_from_slice(&small::<u16>(count).to_le_bytes());
    out.extend_from_slice(cut.parts.as_bytes());
    out.extend_from_slice(positions.as_bytes());
    for &position in positions {
        let part = left_part(bits[usize::from(position)], cut.cut_bits);
        out.extend_from_slice(&part.to_le_bytes());
    }
    pack(cut.code_bits, codes, 0, integers.packed(), out);
    pack(cut.cut_bits, rights, L::default(), integers.packed(), out);
    count
}

/// Reads a float page of one run, after its mode byte, into the floats' bits.
#[inline]
pub(crate) fn decode_mode<F: Float>(
    mode: PageMode,
    mut input: Input<'_>,
    buffers: &mut [PageBuffer; 2],
    out: &mut [F::Bits],
) -> Result<(), DecodeError> {
    integers::check_rows(mode, out.len())?;
    match mode {
        PageMode::Alp => decode_alp::<F>(&mut input, &mut buffers[0], out),
        PageMode::AlpRd => decode_rd(&mut input, buffers, out),
        _ => integers::decode_mode(mode, input, &mut buffers[0], out),
    }
}

fn decode_alp<F: Float>(
    input: &mut Input<'_>,
    buffer: &mut PageBuffer,
    out: &mut [F::Bits],
) -> Result<(), DecodeError> {
    let header = AlpHeader::<F>::read(input, out.len())?;
    inner::decode(input.take_rest(), buffer, out)?;
    alp_decode(out, header.scale);
    put_exceptions(header.positions, header.values, out)
}

/// The header of an ALP page; integers follow.
struct AlpHeader<'a, F: Float> {
    scale: Scale<F>,
    positions: &'a [u8],
    values: &'a [u8],
}

impl<'a, F: Float> AlpHeader<'a, F> {
    fn read(input: &mut Input<'a>, rows: usize) -> Result<Self, DecodeError> {
        let [e, f] = input.read::<[u8; 2]>()?;
        let scale = Scale::<F>::new(e, f);
        let scale = scale.ok_or(DecodeError::new("ALP exponent beyond the tables"))?;
        let count = usize::from(input.read::<u16>()?);
        ensure(count <= rows, "more exceptions than rows")?;
        Ok(Self {
            scale,
            positions: input.take(count * 2)?,
            values: input.take(count * F::Bits::BYTES)?,
        })
    }
}

/// The bits of one float of a page of one run, of `rows` rows, after its mode byte.
pub(crate) fn value<F: Float>(
    mode: PageMode,
    mut input: Input<'_>,
    rows: usize,
    index: usize,
    buffers: &mut [PageBuffer; 2],
) -> Result<F::Bits, DecodeError> {
    integers::check_rows(mode, rows)?;
    match mode {
        PageMode::Alp => {
            let header = AlpHeader::<F>::read(&mut input, rows)?;
            if let Some(exception) = exception_of(header.positions, index) {
                return Input::new(&header.values[exception * F::Bits::BYTES..]).read();
            }
            let mut value = [inner::value(input.take_rest(), rows, index, buffers)?];
            alp_decode(&mut value, header.scale);
            Ok(value[0])
        }
        PageMode::AlpRd => RdHeader::read(&mut input, rows)?.value(input, rows, index),
        _ => integers::value(mode, input, rows, index, buffers),
    }
}

/// The header of an ALP-RD page; codes follow.
struct RdHeader<'a, L> {
    cut_bits: u32,
    code_bits: u32,
    /// Front parts in their place.
    parts: [L; LEFT_PARTS],
    positions: &'a [u8],
    exceptions: &'a [u8],
}

impl<'a, L: Lane> RdHeader<'a, L> {
    fn read(input: &mut Input<'a>, rows: usize) -> Result<Self, DecodeError> {
        let [cut_bits, code_bits] = input.read::<[u8; 2]>()?.map(u32::from);
        let front_bits = L::BITS.saturating_sub(cut_bits);
        ensure((1..=16).contains(&front_bits), "ALP-RD cut beyond 16 bits")?;
        ensure(code_bits <= 3, "ALP-RD codes beyond the parts")?;
        let count = usize::from(input.read::<u16>()?);
        ensure(count <= rows, "more exceptions than rows")?;
        let parts = input.read::<[[u8; 2]; LEFT_PARTS]>()?;
        Ok(Self {
            cut_bits,
            code_bits,
            parts: parts.map(|part| Self::front(part, cut_bits)),
            positions: input.take(count * 2)?,
            exceptions: input.take(count * 2)?,
        })
    }

    /// A front part in its place.
    fn front(part: [u8; 2], cut_bits: u32) -> L {
        L::truncate(u64::from(u16::from_le_bytes(part))) << cut_bits
    }

    /// Decodes the value of row `index`.
    fn value(&self, mut input: Input<'_>, rows: usize, index: usize) -> Result<L, DecodeError> {
        let codes = input.take(block_bytes(rows, self.code_bits))?;
        let rights = input.take(block_bytes(rows, self.cut_bits))?;
        input.finish()?;
        let right: L = value_of(self.cut_bits, rights, rows, index)?;
        let part = match exception_of(self.positions, index) {
            Some(at) => {
                let part = [self.exceptions[at * 2], self.exceptions[at * 2 + 1]];
                Self::front(part, self.cut_bits)
            }
            None => {
                let code: u16 = value_of(self.code_bits, codes, rows, index)?;
                self.parts[usize::from(code) % LEFT_PARTS]
            }
        };
        Ok(part | right)
    }
}

fn decode_rd<L: Lane>(
    input: &mut Input<'_>,
    buffers: &mut [PageBuffer; 2],
    out: &mut [L],
) -> Result<(), DecodeError> {
    let rows = out.len();
    let RdHeader {
        cut_bits,
        code_bits,
        parts,
        positions,
        exceptions,
    } = RdHeader::<L>::read(input, rows)?;
    let [buffer, codes] = buffers;
    let codes = &mut codes.lanes::<u16>()[..rows];
    unpack(
        code_bits,
        input.take(block_bytes(rows, code_bits))?,
        0,
        buffer,
        codes,
    )?;
    unpack(
        cut_bits,
        input.take(block_bytes(rows, cut_bits))?,
        L::default(),
        buffer,
        out,
    )?;
    input.finish()?;
    // Exceptions have the first part's code: take it off and put theirs on.
    rd_join(codes, &parts, out);
    let mask = L::MAX >> (L::BITS - cut_bits);
    for (position, part) in positions.chunks_exact(2).zip(exceptions.chunks_exact(2)) {
        let position = usize::from(u16::from_le_bytes([position[0], position[1]]));
        let row = out
            .get_mut(position)
            .ok_or(DecodeError::new("exception beyond the page"))?;
        let part = L::truncate(u64::from(u16::from_le_bytes([part[0], part[1]])));
        *row = (*row & mask) | (part << cut_bits);
    }
    Ok(())
}
