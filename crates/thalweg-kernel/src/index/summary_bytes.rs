//! Summaries of columns as bytes, within a list of entries (docs/format/index.md and summaries.md).
//!
//! Invariants: every summary has exactly one spelling, and parsing accepts no other; a flag that its kind does not have is of a
//! newer version.

use super::SummaryList;
use crate::summary::{ByteBounds, ColumnSummary, MAX_BOUND_BYTES, MAX_SHIFT, SummaryKind};
use crate::wire::{Fault, Parsed, Reader, put_varint, put_zigzag};

const NULLS: u8 = 1;
const NANS: u8 = 2;
const MISSING_ROWS: u8 = 4;
const CONSTANT: u8 = 8;
const LOST: u8 = 16;
const M2: u8 = 32;
/// Set for decimals: the sum and the squares are not known; the bounds are outer ones. Both or neither are set.
const OUTER: u8 = 64 | 128;
/// Set for strings: the low or the high bound is cut.
const LOW_CUT: u8 = 64;
const HIGH_CUT: u8 = 128;

/// Stands in the place of the length of the high bound: there is none.
const NO_HIGH: u8 = 255;

const COUNTS: u8 = NULLS | NANS | MISSING_ROWS;

/// The flags that summaries of a kind can have.
fn known_flags(kind: SummaryKind) -> u8 {
    match kind {
        SummaryKind::Count | SummaryKind::Int | SummaryKind::UInt => {
            NULLS | MISSING_ROWS | CONSTANT | M2
        }
        SummaryKind::Float => COUNTS | CONSTANT | LOST | M2,
        SummaryKind::Bytes => NULLS | MISSING_ROWS | CONSTANT | LOW_CUT | HIGH_CUT,
        SummaryKind::Decimal => NULLS | MISSING_ROWS | CONSTANT | M2 | OUTER,
    }
}

/// Appends the summary of a column of an entry over `entry_rows` rows, with the bounds of strings that have values.
pub(super) fn encode_column(
    column: &ColumnSummary,
    bounds: Option<&ByteBounds>,
    entry_rows: u64,
    out: &mut Vec<u8>,
) {
    let missing_rows = entry_rows - column.rows();
    let flags = flags_of(column, bounds, missing_rows);
    out.push(flags);
    for rows in [column.null_rows, column.nan_rows, missing_rows] {
        if rows > 0 {
            put_varint(u128::from(rows), out);
        }
    }
    if column.value_rows == 0 {
        return;
    }
    match column.kind {
        SummaryKind::Count => {}
        SummaryKind::Int | SummaryKind::UInt => encode_integers(column, flags, out),
        SummaryKind::Bytes => encode_bytes(column, bounds, flags, out),
        SummaryKind::Decimal => encode_decimals(column, flags, out),
        SummaryKind::Float => encode_floats(column, flags, out),
    }
    if flags & M2 != 0 {
        out.extend_from_slice(&column.m2.to_bits().to_le_bytes());
    }
}

fn flags_of(column: &ColumnSummary, bounds: Option<&ByteBounds>, missing_rows: u64) -> u8 {
    let mut flags = 0;
    let mut set = |is_set: bool, flag: u8| flags |= if is_set { flag } else { 0 };
    set(column.null_rows > 0, NULLS);
    set(column.nan_rows > 0, NANS);
    set(missing_rows > 0, MISSING_ROWS);
    if column.value_rows == 0 || column.kind == SummaryKind::Count {
        return flags;
    }
    if let Some(bounds) = bounds {
        set(bounds.is_constant(), CONSTANT);
        set(!bounds.low().1, LOW_CUT);
        set(!bounds.high().1, HIGH_CUT);
        return flags;
    }
    set(column.shift == 0 && column.min == column.max, CONSTANT);
    set(column.shift > 0, OUTER);
    set(
        column.kind == SummaryKind::Float && column.sum >> 64 != 0,
        LOST,
    );
    set(column.m2.to_bits() != 0, M2);
    flags
}

fn encode_integers(column: &ColumnSummary, flags: u8, out: &mut Vec<u8>) {
    let min = column.wide_min().unwrap_or_default();
    put_zigzag(min, out);
    if flags & CONSTANT == 0 {
        put_varint(u128::from(column.max.wrapping_sub(column.min)), out);
    }
    if flags & OUTER == 0 {
        put_varint(column.sum.wrapping_sub(min_sum(min, column)), out);
    }
}

/// The sum of as many values as there are if all were the smallest.
fn min_sum(min: i128, column: &ColumnSummary) -> u128 {
    min.cast_unsigned()
        .wrapping_mul(u128::from(column.value_rows))
}

fn encode_decimals(column: &ColumnSummary, flags: u8, out: &mut Vec<u8>) {
    debug_assert!(
        column.shift == 0 || column.sum == 0 && column.m2 == 0.0,
        "a sum beside outer bounds"
    );
    out.push(column.shift);
    encode_integers(column, flags, out);
}

fn encode_floats(column: &ColumnSummary, flags: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&column.min.to_le_bytes());
    if flags & CONSTANT == 0 {
        out.extend_from_slice(&column.max.to_le_bytes());
    }
    let sum = column.sum.to_le_bytes();
    out.extend_from_slice(&sum[..if flags & LOST == 0 { 8 } else { 16 }]);
}

/// The low bound, and of the high one only what it does not begin with as well.
fn encode_bytes(column: &ColumnSummary, bounds: Option<&ByteBounds>, flags: u8, out: &mut Vec<u8>) {
    let bounds = bounds.unwrap_or(&ByteBounds::UNKNOWN);
    let (low, high) = (bounds.low().0, bounds.high().0);
    let common = bounds.common_bytes();
    put_short(&low[..common], out);
    put_short(&low[common..], out);
    if flags & CONSTANT == 0 {
        match high {
            Some(high) => put_short(&high[common..], out),
            None => out.push(NO_HIGH),
        }
    }
    put_varint(column.sum, out);
}

/// Appends at most [`MAX_BOUND_BYTES`] after their number.
fn put_short(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(bytes.len()).unwrap_or(NO_HIGH));
    out.extend_from_slice(bytes);
}

/// Reads the summary of a column of an entry over `entry_rows` rows, and adds it to those before it.
pub(super) fn parse_column(
    reader: &mut Reader<'_>,
    (column_id, kind): (u32, SummaryKind),
    entry_rows: u64,
    list: &mut SummaryList,
) -> Result<(), Fault> {
    let flags = reader.u8()?;
    if flags & !known_flags(kind) != 0 {
        let what = format_args!("summaries of kind {} with flags {flags:#x}", kind as u8);
        return Err(Fault::unknown(what));
    }
    let mut column = parse_counts(reader, flags, entry_rows)?;
    (column.column_id, column.kind) = (column_id, kind);
    if column.value_rows == 0 || kind == SummaryKind::Count {
        if flags & !COUNTS != 0 {
            return Err("a summary without values has a range".into());
        }
        list.push(column, None);
        return Ok(());
    }
    match kind {
        SummaryKind::Float => parse_floats(reader, flags, &mut column)?,
        SummaryKind::Decimal => parse_decimals(reader, flags, &mut column)?,
        SummaryKind::Bytes => {
            let bounds = parse_bytes(reader, flags, &mut column)?;
            list.push(column, Some(bounds));
            return Ok(());
        }
        _ => parse_integers(reader, flags, &mut column)?,
    }
    if flags & M2 != 0 {
        column.m2 = float(reader.u64()?)?;
        if column.m2.to_bits() == 0 {
            return Err("a summary spells out a zero".into());
        }
    }
    list.push(column, None);
    Ok(())
}

/// A summary of which only the rows are known.
fn parse_counts(reader: &mut Reader<'_>, flags: u8, entry_rows: u64) -> Parsed<ColumnSummary> {
    let mut counts = [0_u64; 3];
    for (count, flag) in counts.iter_mut().zip([NULLS, NANS, MISSING_ROWS]) {
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
    Ok(ColumnSummary {
        null_rows,
        nan_rows,
        value_rows,
        ..ColumnSummary::empty(0, SummaryKind::Count)
    })
}

const OUT_OF_RANGE: &str = "a summarised value is out of range";

fn parse_integers(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    let min = reader.zigzag()?;
    parse_max(reader, flags, min, column)?;
    if flags & OUTER == 0 {
        column.sum = reader.varint()?.wrapping_add(min_sum(min, column));
    }
    Ok(())
}

/// Reads the largest value, less the smallest one, and notes both.
fn parse_max(
    reader: &mut Reader<'_>,
    flags: u8,
    min: i128,
    column: &mut ColumnSummary,
) -> Parsed<()> {
    let span = if flags & CONSTANT == 0 {
        reader.varint_u64()?
    } else {
        0
    };
    // Outer bounds that are equal are not the value of all rows.
    if span == 0 && flags & (CONSTANT | OUTER) == 0 {
        return Err("a summary spells out a zero");
    }
    (column.min, column.max) = if column.kind == SummaryKind::UInt {
        let min = u64::try_from(min).map_err(|_| OUT_OF_RANGE)?;
        (min, min.checked_add(span).ok_or(OUT_OF_RANGE)?)
    } else {
        let min = i64::try_from(min).map_err(|_| OUT_OF_RANGE)?;
        let max = min.checked_add_unsigned(span).ok_or(OUT_OF_RANGE)?;
        (min.cast_unsigned(), max.cast_unsigned())
    };
    Ok(())
}

fn parse_decimals(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    column.shift = reader.u8()?;
    if column.shift > MAX_SHIFT {
        return Err("decimals are shifted too far");
    }
    let outer = if column.shift > 0 { OUTER } else { 0 };
    if flags & OUTER != outer {
        return Err("the shift of decimals does not agree with the flags");
    }
    if outer != 0 && flags & (CONSTANT | M2) != 0 {
        return Err("outer bounds of decimals have flags of exact ones");
    }
    parse_integers(reader, flags, column)
}

/// A float of which there is one spelling.
fn float(bits: u64) -> Parsed<f64> {
    let float = f64::from_bits(bits);
    if float.is_nan() && bits != f64::NAN.to_bits() {
        return Err("a summary has another NaN than the one that is written");
    }
    Ok(float)
}

fn parse_floats(reader: &mut Reader<'_>, flags: u8, column: &mut ColumnSummary) -> Parsed<()> {
    column.min = reader.u64()?;
    column.max = if flags & CONSTANT == 0 {
        reader.u64()?
    } else {
        column.min
    };
    if flags & CONSTANT == 0 && column.min == column.max {
        return Err("a summary spells out a constant twice");
    }
    let (min, max) = (f64::from_bits(column.min), f64::from_bits(column.max));
    if min.is_nan() || max.is_nan() || min.total_cmp(&max).is_gt() {
        return Err("the smallest value of a summary is not the smallest");
    }
    column.sum = u128::from(float(reader.u64()?)?.to_bits());
    if flags & LOST != 0 {
        let lost = float(reader.u64()?)?.to_bits();
        if lost == 0 {
            return Err("a summary spells out a zero");
        }
        column.sum |= u128::from(lost) << 64;
    }
    Ok(())
}

fn parse_bytes<'a>(
    reader: &mut Reader<'a>,
    flags: u8,
    column: &mut ColumnSummary,
) -> Parsed<ByteBounds> {
    const TOO_LONG: &str = "a bound of strings is too long";
    let common = reader.u8()?;
    let most = MAX_BOUND_BYTES.checked_sub(usize::from(common));
    let most = most.ok_or(TOO_LONG)?;
    let common = reader.take(usize::from(common))?;
    let take = |reader: &mut Reader<'a>, bytes: u8| {
        let bytes = { Some(usize::from(bytes)) }.filter(|bytes| *bytes <= most);
        reader.take(bytes.ok_or(TOO_LONG)?)
    };
    let low_bytes = reader.u8()?;
    let low = take(reader, low_bytes)?;
    let high = match flags & CONSTANT {
        0 => match reader.u8()? {
            NO_HIGH => None,
            bytes => Some(take(reader, bytes)?),
        },
        _ => Some(low),
    };
    column.sum = reader.varint()?;
    let (low_is_cut, high_is_cut) = (flags & LOW_CUT != 0, flags & HIGH_CUT != 0);
    let bounds = ByteBounds::from_parts(common, (low, low_is_cut), (high, high_is_cut));
    check_bounds(&bounds, common.len(), low_bytes, flags)?;
    Ok(bounds)
}

/// Whether bounds are spelled as they are written, and a value lies between them.
fn check_bounds(bounds: &ByteBounds, common: usize, low_bytes: u8, flags: u8) -> Parsed<()> {
    if flags & CONSTANT != 0 && (flags & (LOW_CUT | HIGH_CUT) != 0 || low_bytes > 0) {
        return Err("a bound that is cut counts as a value");
    }
    if bounds.high() == (None, true) {
        return Err("there is a largest value and no bound");
    }
    if !bounds.has_room() {
        return Err("no value lies between the bounds of a summary");
    }
    if flags & CONSTANT == 0 && bounds.is_constant() {
        return Err("a summary spells out a constant twice");
    }
    if bounds.common_bytes() != common {
        return Err("bounds of a summary begin with more than they say");
    }
    Ok(())
}
