//! Positions of the rows that are hidden in one block, or in the rows of one ROWS section.
//!
//! Invariant: of the two forms a list has the shorter one, of equally long ones the runs; it is never empty, and no position
//! reaches 2^24.

use crate::wire::{Fault, Reader, put_varint};
use std::ops::Range;
use std::sync::Arc;

const FORM_RUNS: u8 = 1;
const FORM_BITMAP: u8 = 2;
/// Of the two numbers of a run.
const MIN_RUN_BYTES: usize = 2;
/// Of the number of runs, of which there are at most 2^23.
const MAX_COUNT_BYTES: usize = 4;
/// No block has a row with this position, or a later one.
const POSITIONS_LIMIT: u32 = 1 << 24;

/// A list of positions in the form in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The bytes after the form.
    bytes: Arc<[u8]>,
    form: Form,
    rows: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Number of runs, then of each where it begins and how long it is.
    Runs,
    /// Length, then one bit for each position.
    Bitmap,
}

/// Places in a list of runs from which reading can begin.
#[derive(Clone, Debug, Default)]
pub struct RunMarks(Box<[Mark]>);

impl RunMarks {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Of the run before it.
    end: u32,
    /// Of the runs after it.
    rest_bytes: usize,
    left: u64,
}

/// Runs between two marks: a search reads this many at most.
const RUNS_PER_MARK: u32 = 64;

/// The positions of a list as ascending runs between which others lie.
#[derive(Clone, Debug)]
struct Runs<'a>(Walk<'a>);

#[derive(Clone, Debug)]
enum Walk<'a> {
    Runs {
        rest: Reader<'a>,
        left: u64,
        end: u32,
        is_first: bool,
    },
    Bits {
        bytes: &'a [u8],
        at: u32,
    },
}

impl Positions {
    /// A list of ascending runs, of which neighbours may touch.
    ///
    /// # Panics
    /// Where they are none, or not ascending, or too high: whoever has read the block knows what is in it.
    #[must_use]
    pub fn of_runs(runs: impl IntoIterator<Item = Range<u32>>) -> Self {
        Self::of_joined(&joined(runs))
    }

    /// A list of ascending runs of which no two touch.
    fn of_joined(runs: &[Range<u32>]) -> Self {
        let end = runs.last().map_or(0, |run| run.end);
        assert!(end > 0, "a mask hides something");
        assert!(
            end <= POSITIONS_LIMIT,
            "a position of {} or more",
            POSITIONS_LIMIT
        );
        let rows = runs.iter().map(|run| run.end - run.start).sum();
        let bitmap_bytes = end.div_ceil(8);
        let mut bytes = Vec::with_capacity(MIN_RUN_BYTES * runs.len() + MAX_COUNT_BYTES);
        let mut form = Form::Runs;
        put_runs(runs, &mut bytes);
        if bytes.len() > bitmap_len(bitmap_bytes) {
            form = Form::Bitmap;
            bytes.clear();
            put_bitmap(runs, bitmap_bytes, &mut bytes);
        }
        Self {
            bytes: bytes.into(),
            form,
            rows,
            end,
        }
    }

    /// A list of ascending positions.
    ///
    /// # Panics
    /// As [`Positions::of_runs`].
    #[must_use]
    pub fn of_rows(rows: impl IntoIterator<Item = u32>) -> Self {
        Self::of_runs(rows.into_iter().map(|row| row..row.saturating_add(1)))
    }

    /// How many rows it hides.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The position after the last one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Its runs, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.all_runs()
    }

    fn all_runs(&self) -> Runs<'_> {
        let mut reader = Reader::new(&self.bytes);
        // It was counted when the list was made.
        let count = reader.varint_u64().unwrap_or(0);
        let rest = &self.bytes[self.bytes.len() - reader.left_bytes()..];
        Runs(match self.form {
            Form::Runs => Walk::Runs {
                rest: reader,
                left: count,
                end: 0,
                is_first: true,
            },
            Form::Bitmap => Walk::Bits { bytes: rest, at: 0 },
        })
    }

    /// The hidden positions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs().flatten()
    }

    /// Whether a position is hidden.
    #[must_use]
    pub fn contains(&self, position: u32) -> bool {
        self.contains_marked(position, &RunMarks::default())
    }

    /// Whether a position is hidden, by the marks of this list: without them all runs before the position are read.
    #[must_use]
    pub fn contains_marked(&self, position: u32, marks: &RunMarks) -> bool {
        if position >= self.end {
            return false;
        }
        if self.form == Form::Bitmap {
            return self.bits()[position as usize / 8] >> (position % 8) & 1 == 1;
        }
        let before = marks.0.partition_point(|mark| mark.end <= position);
        let mut runs = self.runs_behind(before.checked_sub(1).map(|at| marks.0[at]));
        runs.find(|run| run.end > position)
            .is_some_and(|run| run.start <= position)
    }

    /// Marks for this list, where it is long: one for each 64 runs.
    #[must_use]
    pub fn marks(&self) -> RunMarks {
        if self.form == Form::Bitmap {
            return RunMarks::default();
        }
        let mut marks = Vec::new();
        let mut runs = self.runs_behind(None);
        let mut number = 0;
        while let Some(run) = runs.next() {
            number += 1;
            if let Walk::Runs { rest, left, .. } = &runs.0
                && number % RUNS_PER_MARK == 0
            {
                marks.push(Mark {
                    end: run.end,
                    rest_bytes: rest.left_bytes(),
                    left: *left,
                });
            }
        }
        RunMarks(marks.into())
    }

    /// The runs after a mark.
    fn runs_behind(&self, mark: Option<Mark>) -> Runs<'_> {
        match mark {
            None => self.all_runs(),
            Some(Mark {
                end,
                rest_bytes,
                left,
            }) => Runs(Walk::Runs {
                rest: Reader::new(&self.bytes[self.bytes.len() - rest_bytes..]),
                left,
                end,
                is_first: false,
            }),
        }
    }

    /// All positions of both lists; `None` where one position is in both.
    #[must_use]
    pub fn union_of_new(&self, new: &Self) -> Option<Self> {
        if self.form == Form::Bitmap {
            return self.union_of_bits(new);
        }
        let (mut olds, mut news) = (self.runs(), new.runs());
        let (mut old, mut added) = (olds.next(), news.next());
        let mut runs: Vec<Range<u32>> = Vec::with_capacity(self.rows.min(self.end / 2) as usize);
        loop {
            let is_old = match (&old, &added) {
                (Some(old), Some(added)) => old.start <= added.start,
                (old, _) => old.is_some(),
            };
            let next = match is_old {
                true => std::mem::replace(&mut old, olds.next()),
                false => std::mem::replace(&mut added, news.next()),
            };
            let Some(next) = next else {
                return Some(Self::of_joined(&runs));
            };
            match runs.last_mut() {
                Some(last) if next.start < last.end => return None,
                Some(last) if next.start == last.end => last.end = next.end,
                _ => runs.push(next),
            }
        }
    }

    /// The union with a bitmap: copied and added to, without a walk over the runs that it has. A block that rows are taken from
    /// one by one has a bitmap soon.
    fn union_of_bits(&self, new: &Self) -> Option<Self> {
        let end = self.end.max(new.end);
        let bitmap_bytes = end.div_ceil(8);
        let mut bytes = Vec::with_capacity(bitmap_len(bitmap_bytes));
        put_varint(bitmap_bytes.into(), &mut bytes);
        let count_bytes = bytes.len();
        bytes.extend_from_slice(self.bits());
        bytes.resize(count_bytes + bitmap_bytes as usize, 0);
        let bits = &mut bytes[count_bytes..];
        for position in new.iter() {
            let (byte, bit) = (&mut bits[position as usize / 8], 1 << (position % 8));
            if *byte & bit != 0 {
                return None;
            }
            *byte |= bit;
        }
        if !is_shorter_as_bitmap(bits) {
            let runs = Runs(Walk::Bits { bytes: bits, at: 0 });
            return Some(Self::of_joined(&runs.collect::<Vec<_>>()));
        }
        Some(Self {
            bytes: bytes.into(),
            form: Form::Bitmap,
            rows: self.rows + new.rows,
            end,
        })
    }

    /// The bits of a bitmap.
    fn bits(&self) -> &[u8] {
        debug_assert!(self.form == Form::Bitmap, "runs have no bits");
        &self.bytes[self.bytes.len() - self.end.div_ceil(8) as usize..]
    }

    /// Appends the list as it is stored.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(match self.form {
            Form::Runs => FORM_RUNS,
            Form::Bitmap => FORM_BITMAP,
        });
        out.extend_from_slice(&self.bytes);
    }

    /// Bytes that [`Positions::put`] appends.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        1 + self.bytes.len()
    }

    /// Reads a list after its form.
    ///
    /// # Errors
    /// When the bytes are no list in that form.
    pub fn read(form: u8, reader: &mut Reader<'_>) -> Result<Self, Fault> {
        match form {
            FORM_RUNS => Ok(read_runs(reader)?),
            FORM_BITMAP => Ok(read_bitmap(reader)?),
            form => Err(Fault::OtherVersion(format!("positions of form {form}"))),
        }
    }
}

/// Runs of which no two touch.
fn joined(runs: impl IntoIterator<Item = Range<u32>>) -> Vec<Range<u32>> {
    let mut all: Vec<Range<u32>> = Vec::new();
    for run in runs {
        assert!(run.start < run.end, "an empty run");
        match all.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            last => {
                assert!(last.is_none_or(|last| last.end < run.start), "runs ascend");
                all.push(run);
            }
        }
    }
    all
}

fn put_runs(runs: &[Range<u32>], out: &mut Vec<u8>) {
    put_varint(runs.len() as u128, out);
    let mut next = 0;
    for run in runs {
        put_varint(u128::from(run.start - next), out);
        put_varint(u128::from(run.end - run.start - 1), out);
        next = run.end + 1;
    }
}

fn put_bitmap(runs: &[Range<u32>], bytes: u32, out: &mut Vec<u8>) {
    put_varint(bytes.into(), out);
    let start = out.len();
    out.resize(start + bytes as usize, 0);
    for position in runs.iter().cloned().flatten() {
        out[start + position as usize / 8] |= 1 << (position % 8);
    }
}

/// Length of runs after their form.
fn runs_len(runs: impl IntoIterator<Item = Range<u32>>) -> usize {
    let (mut count, mut bytes, mut next) = (0_u64, 0, 0);
    for run in runs {
        count += 1;
        bytes +=
            varint_len((run.start - next).into()) + varint_len((run.end - run.start - 1).into());
        next = run.end + 1;
    }
    varint_len(count) + bytes
}

/// Whether a bitmap takes fewer bytes than its runs.
fn is_shorter_as_bitmap(bits: &[u8]) -> bool {
    let bitmap_bytes = varint_len(bits.len() as u64) + bits.len();
    // Mostly the number of runs shows it. Where it does not, they are measured one by one.
    let count = count_runs(bits);
    varint_len(count as u64) + MIN_RUN_BYTES * count > bitmap_bytes
        || runs_len(Runs(Walk::Bits { bytes: bits, at: 0 })) > bitmap_bytes
}

/// How many runs of positions a bitmap has.
fn count_runs(bits: &[u8]) -> usize {
    let (words, rest) = bits.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let (mut count, mut last) = (0, 0);
    for word in words.iter().chain([&tail]) {
        let word = u64::from_le_bytes(*word);
        count += (word & !(word << 1 | last)).count_ones() as usize;
        last = word >> 63;
    }
    count
}

/// Length of a bitmap of so many bytes after its form.
fn bitmap_len(bytes: u32) -> usize {
    varint_len(bytes.into()) + bytes as usize
}

/// Bytes of a number in base 128.
pub(super) fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

fn read_runs(reader: &mut Reader<'_>) -> Result<Positions, &'static str> {
    let before = reader.clone();
    let count = reader.varint_u64()?;
    if count == 0 {
        return Err("a mask without positions");
    }
    let (mut rows, mut end, mut is_first) = (0, 0, true);
    for _ in 0..count {
        let run = read_run(reader, end, is_first)?;
        rows += run.end - run.start;
        (end, is_first) = (run.end, false);
    }
    let taken = before.left_bytes() - reader.left_bytes();
    if taken > bitmap_len(end.div_ceil(8)) {
        return Err("positions are not in their shorter form");
    }
    let bytes = before.clone().take(taken)?;
    Ok(Positions {
        bytes: bytes.into(),
        form: Form::Runs,
        rows,
        end,
    })
}

/// Reads a run that follows another one, or is the first.
fn read_run(
    reader: &mut Reader<'_>,
    before: u32,
    is_first: bool,
) -> Result<Range<u32>, &'static str> {
    let gap = u64::from(reader.varint_u32()?);
    let start = u64::from(before) + gap + u64::from(!is_first);
    let end = start + u64::from(reader.varint_u32()?) + 1;
    match (u32::try_from(start), u32::try_from(end)) {
        (Ok(start), Ok(end)) if end <= POSITIONS_LIMIT => Ok(start..end),
        _ => Err("a position that no block has"),
    }
}

fn read_bitmap(reader: &mut Reader<'_>) -> Result<Positions, &'static str> {
    let before = reader.clone();
    let bitmap_bytes = reader.varint_u32()?;
    if bitmap_bytes > POSITIONS_LIMIT / 8 {
        return Err("a position that no block has");
    }
    let bits = reader.take(bitmap_bytes as usize)?;
    let last = bits.last().filter(|last| **last != 0);
    let last = last.ok_or("a bitmap of positions ends with zeros")?;
    let end = bitmap_bytes * 8 - last.leading_zeros();
    let rows = bits.iter().map(|byte| byte.count_ones()).sum();
    let taken = before.left_bytes() - reader.left_bytes();
    if !is_shorter_as_bitmap(bits) {
        return Err("positions are not in their shorter form");
    }
    let bytes = before.clone().take(taken)?;
    Ok(Positions {
        bytes: bytes.into(),
        form: Form::Bitmap,
        rows,
        end,
    })
}

impl Iterator for Runs<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        match &mut self.0 {
            Walk::Runs {
                rest,
                left,
                end,
                is_first,
            } => {
                *left = left.checked_sub(1)?;
                let run = read_run(rest, *end, *is_first).ok()?;
                (*end, *is_first) = (run.end, false);
                Some(run)
            }
            Walk::Bits { bytes, at } => {
                let start = next_bit(bytes, *at, true)?;
                let end = next_bit(bytes, start, false).unwrap_or(bits_of(bytes));
                *at = end;
                Some(start..end)
            }
        }
    }
}

/// All bits of a bitmap, which is at most 2 MiB long.
#[expect(
    clippy::cast_possible_truncation,
    reason = "no bitmap reaches 2^24 bits"
)]
fn bits_of(bytes: &[u8]) -> u32 {
    bytes.len() as u32 * 8
}

/// The next bit from `at` on that is set, or is not.
fn next_bit(bytes: &[u8], at: u32, is_set: bool) -> Option<u32> {
    let mut at = at;
    let end = bits_of(bytes);
    while at < end {
        let rest = &bytes[at as usize / 8..];
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        });
        let word = u64::from_le_bytes(word);
        let wanted = if is_set { word } else { !word };
        let wanted = wanted >> (at % 8);
        if wanted != 0 {
            return Some(at + wanted.trailing_zeros()).filter(|found| *found < end);
        }
        at = at / 8 * 8 + u64::BITS;
    }
    None
}
