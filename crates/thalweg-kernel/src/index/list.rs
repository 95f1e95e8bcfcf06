//! Lists of entries as bytes: the directory of a GROUP and the body of an index page (docs/format/index.md).
//!
//! Invariants: every list has exactly one spelling, and decoding accepts no other; what is decoded satisfies
//! `Entry::check`; memory is taken only for what was already read, within [`MAX_LIST_ENTRIES`] and
//! [`MAX_LIST_SUMMARIES`]. Numbers are differences to what the entry before lets expect, so that a block of the right
//! flank costs some 20 bytes besides its summaries.

use super::{Address, Entry, MAX_SUMMARIES, Summaries};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, FileId};
use crate::summary::{ColumnSummary, MAX_SHIFT, SummaryKind};
use crate::wire::{Parsed, Reader, put_varint, put_zigzag};
use std::sync::Arc;

/// Most entries of one list.
pub const MAX_LIST_ENTRIES: usize = 1 << 16;

/// Most column summaries of one list: 10 MiB in memory.
pub const MAX_LIST_SUMMARIES: usize = 1 << 17;

const ENTRY_SORTED: u8 = 1;
const ENTRY_PAGE: u8 = 2;
const ENTRY_OTHER_COLUMNS: u8 = 4;
const ENTRY_FLAGS: u8 = 7;

const COLUMN_NULLS: u8 = 1;
const COLUMN_NANS: u8 = 2;
const COLUMN_MISSING_ROWS: u8 = 4;
const COLUMN_CONSTANT: u8 = 8;
const COLUMN_LOST: u8 = 16;
const COLUMN_M2: u8 = 32;
const COLUMN_FLAGS: u8 = 63;
/// Of decimals alone: the sum and the squares are not known; the bounds are outer ones. Both or neither are set.
const COLUMN_OUTER: u8 = 64 | 128;

/// The columns that an entry summarises, and how; entries of one list nearly always share one set.
type ColumnSet = Vec<(u32, SummaryKind)>;

/// Splits entries into as many as one list holds each.
pub(crate) fn lists_of(mut entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    std::iter::from_fn(move || {
        let mut summaries = 0;
        let mut fits = |entry: &Entry| {
            summaries += entry.columns.len();
            summaries <= MAX_LIST_SUMMARIES
        };
        let count = entries
            .iter()
            .take(MAX_LIST_ENTRIES)
            .take_while(|entry| fits(entry))
            .count();
        let (list, rest) = entries.split_at(count);
        entries = rest;
        (!list.is_empty()).then_some(list)
    })
}

/// Appends a list of entries.
///
/// # Errors
/// When there are more entries or summaries than a list may hold.
///
/// # Panics
/// When an entry contradicts itself: whoever made it has a bug, which must not reach a file.
pub fn encode_entries(entries: &[Entry], out: &mut Vec<u8>) -> Result<()> {
    let summaries: usize = entries.iter().map(|entry| entry.columns.len()).sum();
    if entries.len() > MAX_LIST_ENTRIES || summaries > MAX_LIST_SUMMARIES {
        return Err(Error::new(
            ErrorKind::Limit,
            format!(
                "{} blocks with {summaries} column summaries in one directory; at most {MAX_LIST_ENTRIES} and \
                 {MAX_LIST_SUMMARIES} fit: write larger blocks or summarise fewer columns",
                entries.len()
            ),
        ));
    }
    let (sets, set_of) = column_sets(entries);
    put_varint(entries.len() as u128, out);
    put_varint(sets.len() as u128, out);
    for set in &sets {
        put_varint(set.len() as u128, out);
        let mut next = 0;
        for &(column_id, kind) in set {
            put_varint(u128::from(column_id - next), out);
            out.push(kind as u8);
            next = column_id.saturating_add(1);
        }
    }
    let mut before = Before::start();
    for (entry, &set) in entries.iter().zip(&set_of) {
        if let Err(what) = entry.check() {
            panic_on_bad_entry(entry, what);
        }
        encode_entry(entry, set, &before, out);
        for column in entry.columns.iter() {
            encode_column(column, entry.rows, out);
        }
        before = Before::of(entry, set);
    }
    Ok(())
}

#[expect(
    clippy::panic,
    reason = "an invariant: entries are checked where they are made"
)]
fn panic_on_bad_entry(entry: &Entry, what: &str) -> ! {
    panic!("{what}: {entry:?}")
}

/// The distinct column sets in order of their first entry, and the set of each entry.
fn column_sets(entries: &[Entry]) -> (Vec<ColumnSet>, Vec<usize>) {
    let same = |set: &ColumnSet, entry: &Entry| {
        set.len() == entry.columns.len()
            && set
                .iter()
                .zip(entry.columns.iter())
                .all(|(set, column)| *set == (column.column_id, column.kind))
    };
    let mut sets: Vec<ColumnSet> = Vec::new();
    let mut set_of: Vec<usize> = Vec::with_capacity(entries.len());
    for entry in entries {
        // The set of the entry before is the first guess, then the younger ones.
        let guess = set_of
            .last()
            .copied()
            .filter(|&set| same(&sets[set], entry));
        let known = guess.or_else(|| sets.iter().rposition(|set| same(set, entry)));
        set_of.push(known.unwrap_or_else(|| {
            sets.push(
                entry
                    .columns
                    .iter()
                    .map(|column| (column.column_id, column.kind))
                    .collect(),
            );
            sets.len() - 1
        }));
    }
    (sets, set_of)
}

/// What the next entry's numbers are differences to.
struct Before {
    key_min: i64,
    commit: u64,
    ordinal: u32,
    file: FileId,
    end: u64,
    set: usize,
}

impl Before {
    fn start() -> Self {
        Self {
            key_min: 0,
            commit: 0,
            ordinal: 0,
            file: FileId(0),
            end: 0,
            set: 0,
        }
    }

    fn of(entry: &Entry, set: usize) -> Self {
        Self {
            key_min: entry.key_min,
            commit: entry.commit_min.0,
            ordinal: entry.ordinal,
            file: entry.address.file,
            end: entry
                .address
                .offset
                .saturating_add(u64::from(entry.address.bytes)),
            set,
        }
    }

    /// Where an entry in `file` is expected: behind the one before it.
    fn expected_offset(&self, file: FileId) -> u64 {
        if file == self.file { self.end } else { 0 }
    }
}

fn encode_entry(entry: &Entry, set: usize, before: &Before, out: &mut Vec<u8>) {
    let mut flags = if entry.sorted { ENTRY_SORTED } else { 0 };
    flags |= if entry.is_block() { 0 } else { ENTRY_PAGE };
    flags |= if set == before.set {
        0
    } else {
        ENTRY_OTHER_COLUMNS
    };
    out.push(flags);
    if !entry.is_block() {
        out.push(entry.level);
        put_varint(u128::from(entry.blocks), out);
        put_varint(u128::from(entry.block_bytes), out);
        put_varint(u128::from(entry.first_commit.0 - entry.commit_min.0), out);
    }
    if set != before.set {
        put_varint(set as u128, out);
    }
    put_varint(u128::from(entry.rows), out);
    put_zigzag(i128::from(entry.key_min) - i128::from(before.key_min), out);
    put_varint(u128::from(entry.key_max.abs_diff(entry.key_min)), out);
    put_zigzag(
        i128::from(entry.commit_min.0) - i128::from(before.commit),
        out,
    );
    put_varint(u128::from(entry.commit_max.0 - entry.commit_min.0), out);
    put_zigzag(i128::from(entry.ordinal) - i128::from(before.ordinal), out);
    put_zigzag(
        i128::from(entry.address.file.0) - i128::from(before.file.0),
        out,
    );
    put_zigzag(
        i128::from(entry.address.offset) - i128::from(before.expected_offset(entry.address.file)),
        out,
    );
    put_varint(u128::from(entry.address.bytes), out);
    put_varint(u128::from(entry.address.head_bytes), out);
    out.extend_from_slice(&entry.address.head_crc.to_le_bytes());
}

fn encode_column(column: &ColumnSummary, entry_rows: u64, out: &mut Vec<u8>) {
    let missing_rows = entry_rows - column.rows();
    let has_values = column.value_rows > 0 && column.kind != SummaryKind::Count;
    let lost = has_values && column.kind == SummaryKind::Float && column.sum >> 64 != 0;
    let mut flags = 0;
    flags |= if column.null_rows > 0 {
        COLUMN_NULLS
    } else {
        0
    };
    flags |= if column.nan_rows > 0 { COLUMN_NANS } else { 0 };
    flags |= if missing_rows > 0 {
        COLUMN_MISSING_ROWS
    } else {
        0
    };
    flags |= if has_values && column.shift == 0 && column.min == column.max {
        COLUMN_CONSTANT
    } else {
        0
    };
    flags |= if column.shift > 0 { COLUMN_OUTER } else { 0 };
    flags |= if lost { COLUMN_LOST } else { 0 };
    flags |= if has_values && column.m2.to_bits() != 0 {
        COLUMN_M2
    } else {
        0
    };
    out.push(flags);
    for rows in [column.null_rows, column.nan_rows, missing_rows] {
        if rows > 0 {
            put_varint(u128::from(rows), out);
        }
    }
    if !has_values {
        return;
    }
    match column.kind {
        SummaryKind::Count => {}
        SummaryKind::Int | SummaryKind::UInt => {
            let min = column.wide_min().unwrap_or_default();
            put_zigzag(min, out);
            if column.min != column.max {
                put_varint(u128::from(column.max.wrapping_sub(column.min)), out);
            }
            let least = min
                .cast_unsigned()
                .wrapping_mul(u128::from(column.value_rows));
            put_varint(column.sum.wrapping_sub(least), out);
        }
        SummaryKind::Decimal => encode_decimals(column, out),
        SummaryKind::Float => {
            out.extend_from_slice(&column.min.to_le_bytes());
            if column.min != column.max {
                out.extend_from_slice(&column.max.to_le_bytes());
            }
            let sum = column.sum.to_le_bytes();
            out.extend_from_slice(&sum[..if lost { 16 } else { 8 }]);
        }
    }
    if flags & COLUMN_M2 != 0 {
        out.extend_from_slice(&column.m2.to_bits().to_le_bytes());
    }
}

fn encode_decimals(column: &ColumnSummary, out: &mut Vec<u8>) {
    debug_assert!(
        column.shift == 0 || column.sum == 0 && column.m2 == 0.0,
        "a sum beside outer bounds"
    );
    out.push(column.shift);
    let min = column.wide_min().unwrap_or_default();
    put_zigzag(min, out);
    if column.shift > 0 || column.min != column.max {
        put_varint(u128::from(column.max.wrapping_sub(column.min)), out);
    }
    if column.shift == 0 {
        let least = min
            .cast_unsigned()
            .wrapping_mul(u128::from(column.value_rows));
        put_varint(column.sum.wrapping_sub(least), out);
    }
}

/// Reads a list of entries; nothing may follow it.
///
/// # Errors
/// `Corruption` when the bytes are not exactly what [`encode_entries`] writes. The message names no place.
pub fn decode_entries(bytes: &[u8]) -> Result<Vec<Entry>> {
    parse_entries(bytes).map_err(|what| Error::corruption("a list of index entries", what))
}

pub(super) fn parse_entries(bytes: &[u8]) -> Parsed<Vec<Entry>> {
    let mut reader = Reader::new(bytes);
    let count = reader.varint_u32()? as usize;
    if count > MAX_LIST_ENTRIES {
        return Err("too many entries");
    }
    let sets = parse_sets(&mut reader, count)?;
    // A guess that no count alone can blow up: an entry takes 14 bytes and more, a summary at least one.
    let mut entries = Vec::with_capacity(count.min(reader.left_bytes() / 14));
    let guess = sets.first().map_or(0, |set| set.len() * count);
    let mut columns = Vec::with_capacity(guess.min(reader.left_bytes()).min(MAX_LIST_SUMMARIES));
    let mut before = Before::start();
    let mut sets_seen = 0;
    for _ in 0..count {
        let (entry, set) = parse_entry(&mut reader, &sets, &before)?;
        if set > sets_seen || sets.is_empty() {
            return Err("column sets are not in the order of their use");
        }
        sets_seen = sets_seen.max(set + 1);
        let start = columns.len();
        if start + sets[set].len() > MAX_LIST_SUMMARIES {
            return Err("too many column summaries");
        }
        for &(column_id, kind) in &sets[set] {
            columns.push(parse_column(&mut reader, column_id, kind, entry.rows)?);
        }
        before = Before::of(&entry, set);
        entries.push(Entry {
            columns: Summaries::part_to_come(start..columns.len()),
            ..entry
        });
    }
    reader.end()?;
    if sets_seen != sets.len() {
        return Err("a column set is not used");
    }
    let shared = Arc::new(columns);
    for entry in &mut entries {
        entry.columns.share(&shared);
    }
    entries.iter().try_for_each(Entry::check)?;
    Ok(entries)
}

fn parse_sets(reader: &mut Reader<'_>, entries: usize) -> Parsed<Vec<ColumnSet>> {
    let count = reader.varint_u32()? as usize;
    if count > entries {
        return Err("more column sets than entries");
    }
    let mut sets: Vec<ColumnSet> = Vec::new();
    for _ in 0..count {
        let columns = reader.varint_u32()? as usize;
        if columns > MAX_SUMMARIES {
            return Err("too many columns are summarised");
        }
        let mut set = ColumnSet::new();
        let mut next = Some(0_u32);
        for _ in 0..columns {
            let step = reader.varint_u32()?;
            let column_id = next
                .and_then(|next| next.checked_add(step))
                .ok_or("a column id is out of range")?;
            let kind = SummaryKind::from_byte(reader.u8()?).ok_or("an unknown kind of summary")?;
            set.push((column_id, kind));
            next = column_id.checked_add(1);
        }
        if sets.contains(&set) {
            return Err("a column set is listed twice");
        }
        sets.push(set);
    }
    Ok(sets)
}

fn parse_entry(
    reader: &mut Reader<'_>,
    sets: &[ColumnSet],
    before: &Before,
) -> Parsed<(Entry, usize)> {
    let flags = reader.u8()?;
    if flags & !ENTRY_FLAGS != 0 {
        return Err("an entry has unknown flags");
    }
    let is_page = flags & ENTRY_PAGE != 0;
    let (mut level, mut blocks, mut block_bytes, mut first_after) = (0, 1, 0, 0);
    if is_page {
        level = reader.u8()?;
        blocks = reader.varint_u64()?;
        block_bytes = reader.varint_u64()?;
        first_after = reader.varint_u64()?;
        if level == 0 {
            return Err("a page is at the level of blocks");
        }
    }
    let mut set = before.set;
    if flags & ENTRY_OTHER_COLUMNS != 0 {
        set = reader.varint_u32()? as usize;
        if set == before.set {
            return Err("the same column set is named again");
        }
    }
    if set >= sets.len() {
        return Err("an entry names no column set");
    }
    let rows = reader.varint_u64()?;
    let key_min = plus(
        i128::from(before.key_min),
        reader.zigzag()?,
        "a key is out of range",
    )?;
    let key_span = reader.varint_u64()?;
    let commit_min: u64 = plus(
        i128::from(before.commit),
        reader.zigzag()?,
        "a commit is out of range",
    )?;
    let commit_span = reader.varint_u64()?;
    let ordinal = plus(
        i128::from(before.ordinal),
        reader.zigzag()?,
        "an ordinal is out of range",
    )?;
    let file = FileId(plus(
        i128::from(before.file.0),
        reader.zigzag()?,
        "a file id is out of range",
    )?);
    let expected = i128::from(before.expected_offset(file));
    let offset: u64 = plus(expected, reader.zigzag()?, "an offset is out of range")?;
    let bytes = reader.varint_u32()?;
    let head_bytes = reader.varint_u32()?;
    let head_crc = reader.u32()?;
    if offset.checked_add(u64::from(bytes)).is_none() {
        return Err("an offset is out of range");
    }
    let commit_after = |after: u64| {
        commit_min
            .checked_add(after)
            .map(CommitNo)
            .ok_or("a commit is out of range")
    };
    let entry = Entry {
        level,
        sorted: flags & ENTRY_SORTED != 0,
        rows,
        blocks,
        block_bytes: if is_page {
            block_bytes
        } else {
            u64::from(bytes)
        },
        key_min,
        key_max: key_min
            .checked_add_unsigned(key_span)
            .ok_or("a key is out of range")?,
        commit_min: CommitNo(commit_min),
        commit_max: commit_after(commit_span)?,
        first_commit: commit_after(first_after)?,
        ordinal,
        address: Address {
            file,
            offset,
            bytes,
            head_bytes,
            head_crc,
        },
        columns: Summaries::default(),
    };
    Ok((entry, set))
}

/// The sum of two numbers if it fits the type of the field.
fn plus<T: TryFrom<i128>>(base: i128, step: i128, what: &'static str) -> Parsed<T> {
    base.checked_add(step)
        .and_then(|sum| T::try_from(sum).ok())
        .ok_or(what)
}

fn parse_column(
    reader: &mut Reader<'_>,
    column_id: u32,
    kind: SummaryKind,
    entry_rows: u64,
) -> Parsed<ColumnSummary> {
    let flags = reader.u8()?;
    let known = if kind == SummaryKind::Decimal {
        COLUMN_FLAGS | COLUMN_OUTER
    } else {
        COLUMN_FLAGS
    };
    if flags & !known != 0 {
        return Err("a summary has unknown flags");
    }
    let mut counts = [0_u64; 3];
    for (count, flag) in counts
        .iter_mut()
        .zip([COLUMN_NULLS, COLUMN_NANS, COLUMN_MISSING_ROWS])
    {
        if flags & flag != 0 {
            *count = reader.varint_u64()?;
            if *count == 0 {
                return Err("a summary counts no rows where it says that there are some");
            }
        }
    }
    let [null_rows, nan_rows, missing_rows] = counts;
    let others = null_rows
        .checked_add(nan_rows)
        .and_then(|rows| rows.checked_add(missing_rows));
    let value_rows = others
        .and_then(|others| entry_rows.checked_sub(others))
        .ok_or("a summary counts too many rows")?;
    let mut column = ColumnSummary {
        null_rows,
        nan_rows,
        value_rows,
        ..ColumnSummary::empty(column_id, kind)
    };
    if nan_rows > 0 && kind != SummaryKind::Float {
        return Err("a column that holds no floats counts NaNs");
    }
    if value_rows == 0 || kind == SummaryKind::Count {
        let only_counts = flags & !(COLUMN_NULLS | COLUMN_NANS | COLUMN_MISSING_ROWS) == 0;
        return if only_counts {
            Ok(column)
        } else {
            Err("a summary without values has a range")
        };
    }
    match kind {
        SummaryKind::Float => parse_floats(reader, flags, &mut column)?,
        SummaryKind::Decimal => parse_decimals(reader, flags, &mut column)?,
        _ => parse_integers(reader, flags, &mut column)?,
    }
    if flags & COLUMN_M2 != 0 {
        column.m2 = f64::from_bits(reader.u64()?);
        if column.m2.to_bits() == 0 {
            return Err("a summary spells out a zero");
        }
    }
    Ok(column)
}

const OUT_OF_RANGE: &str = "a summarised value is out of range";

fn parse_integers(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    if flags & COLUMN_LOST != 0 {
        return Err("a summary of integers has a rounding error");
    }
    let min = reader.zigzag()?;
    let span = if flags & COLUMN_CONSTANT == 0 {
        reader.varint_u64()?
    } else {
        0
    };
    if span == 0 && flags & COLUMN_CONSTANT == 0 {
        return Err("a summary spells out a zero");
    }
    (column.min, column.max) = if column.kind != SummaryKind::UInt {
        let min = i64::try_from(min).map_err(|_| OUT_OF_RANGE)?;
        (
            min.cast_unsigned(),
            min.checked_add_unsigned(span)
                .ok_or(OUT_OF_RANGE)?
                .cast_unsigned(),
        )
    } else {
        let min = u64::try_from(min).map_err(|_| OUT_OF_RANGE)?;
        (min, min.checked_add(span).ok_or(OUT_OF_RANGE)?)
    };
    let least = min
        .cast_unsigned()
        .wrapping_mul(u128::from(column.value_rows));
    column.sum = reader.varint()?.wrapping_add(least);
    Ok(())
}

fn parse_decimals(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    column.shift = reader.u8()?;
    if column.shift > MAX_SHIFT {
        return Err("decimals are shifted too far");
    }
    let outer = if column.shift > 0 { COLUMN_OUTER } else { 0 };
    if flags & COLUMN_OUTER != outer {
        return Err("the shift of decimals does not agree with the flags");
    }
    if outer == 0 {
        return parse_integers(reader, flags, column);
    }
    if flags & (COLUMN_CONSTANT | COLUMN_LOST | COLUMN_M2) != 0 {
        return Err("outer bounds of decimals have flags of exact ones");
    }
    let min = i64::try_from(reader.zigzag()?).map_err(|_| OUT_OF_RANGE)?;
    let max = min
        .checked_add_unsigned(reader.varint_u64()?)
        .ok_or(OUT_OF_RANGE)?;
    (column.min, column.max) = (min.cast_unsigned(), max.cast_unsigned());
    Ok(())
}

fn parse_floats(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    column.min = reader.u64()?;
    column.max = if flags & COLUMN_CONSTANT == 0 {
        reader.u64()?
    } else {
        column.min
    };
    if flags & COLUMN_CONSTANT == 0 && column.min == column.max {
        return Err("a summary spells out a constant twice");
    }
    let (min, max) = (f64::from_bits(column.min), f64::from_bits(column.max));
    if min.is_nan() || max.is_nan() || min > max {
        return Err("the smallest value of a summary is not the smallest");
    }
    column.sum = u128::from(reader.u64()?);
    if flags & COLUMN_LOST != 0 {
        let lost = reader.u64()?;
        if lost == 0 {
            return Err("a summary spells out a zero");
        }
        column.sum |= u128::from(lost) << 64;
    }
    Ok(())
}
