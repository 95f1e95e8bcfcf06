//! Lists of entries as bytes: the directory of a GROUP and the body of an index page (docs/format/index.md).
//!
//! Invariants: every list has exactly one spelling, and decoding accepts no other; what is decoded satisfies
//! `Entry::check`; memory is taken only for what was already read, within [`MAX_LIST_ENTRIES`] and
//! [`MAX_LIST_SUMMARIES`]. Numbers are differences to those expected after the entry before, so that a block of the right
//! flank costs some 20 bytes besides its summaries.

use super::summary_bytes::{encode_column, parse_column};
use super::{Address, Arrival, BlockKeys, Entry, MAX_SUMMARIES, Summaries, SummaryList};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, FileId};
use crate::summary::SummaryKind;
use crate::wire::{Fault, Parsed, Reader, put_varint, put_zigzag};
use std::sync::Arc;

/// Most entries of one list.
pub const MAX_LIST_ENTRIES: usize = 1 << 16;

/// Most column summaries of one list: 10 MiB in memory.
pub const MAX_LIST_SUMMARIES: usize = 1 << 17;

const ENTRY_SORTED: u8 = 1;
const ENTRY_PAGE: u8 = 2;
const ENTRY_OTHER_COLUMNS: u8 = 4;
const ENTRY_FRAGMENT: u8 = 8;
const ENTRY_REWRITTEN: u8 = 16;
const ENTRY_BLOCK_KEYS: u8 = 32;
/// Kept for further flags.
const ENTRY_UNKNOWN: u8 = 64;
const ENTRY_VERSIONS: u8 = 128;

/// The columns that an entry summarises, and how; entries of one list nearly always share one set.
type ColumnSet = Vec<(u32, SummaryKind)>;

/// Splits entries into as many as one list holds each.
pub fn lists_of(mut entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
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
            encode_column(column, entry.columns.bounds_of(column), entry.rows, out);
        }
        before = Before::of(entry, set, &before);
    }
    Ok(())
}

/// About what an entry takes in a list.
pub(super) fn bytes_of(entry: &Entry) -> usize {
    let mut out = Vec::with_capacity(64 + 32 * entry.columns.len());
    encode_entry(entry, 0, &Before::neighbour(entry), &mut out);
    for column in entry.columns.iter() {
        encode_column(
            column,
            entry.columns.bounds_of(column),
            entry.rows,
            &mut out,
        );
    }
    out.len()
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

/// The numbers of the entry before the next one, which is stored as differences to them.
struct Before {
    key_min: i64,
    commit: u64,
    ordinal: u32,
    file: FileId,
    end: u64,
    set: usize,
    block_key: i64,
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
            block_key: 0,
        }
    }

    /// A neighbour in front of an entry, of about as many keys and of the commit before it.
    fn neighbour(entry: &Entry) -> Self {
        let keys = entry.key_max.abs_diff(entry.key_min);
        Self {
            key_min: entry.key_min.saturating_sub_unsigned(keys),
            commit: entry.commit_min.0.saturating_sub(1),
            ordinal: entry.ordinal,
            file: entry.address.file,
            end: entry.address.offset,
            set: 0,
            block_key: { entry.block_keys }.map_or(0, |keys| keys.smallest),
        }
    }

    fn of(entry: &Entry, set: usize, before: &Self) -> Self {
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
            block_key: { entry.block_keys }.map_or(before.block_key, |keys| keys.smallest),
        }
    }

    /// The offset at which an entry in `file` is expected: right after the one before it.
    fn expected_offset(&self, file: FileId) -> u64 {
        if file == self.file { self.end } else { 0 }
    }
}

/// The flags of an entry whose set of columns is another one than that of the entry before.
fn entry_flags(entry: &Entry, has_other_columns: bool) -> u8 {
    let flags = [
        (entry.sorted, ENTRY_SORTED),
        (!entry.is_block(), ENTRY_PAGE),
        (has_other_columns, ENTRY_OTHER_COLUMNS),
        (entry.fragment, ENTRY_FRAGMENT),
        (entry.rewritten > 0, ENTRY_REWRITTEN),
        (entry.block_keys.is_some(), ENTRY_BLOCK_KEYS),
        (entry.versions, ENTRY_VERSIONS),
    ];
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |flags, (_, flag)| flags | flag)
}

fn encode_entry(entry: &Entry, set: usize, before: &Before, out: &mut Vec<u8>) {
    out.push(entry_flags(entry, set != before.set));
    if !entry.is_block() {
        out.push(entry.level);
        put_varint(u128::from(entry.blocks), out);
        put_varint(u128::from(entry.block_bytes), out);
        put_varint(u128::from(entry.first_commit.0 - entry.commit_min.0), out);
        put_varint(u128::from(entry.fragments), out);
    }
    if entry.is_page_in_order() {
        let last = entry.last;
        put_varint(u128::from(last.commit.0 - entry.commit_min.0), out);
        put_zigzag(i128::from(last.ordinal) - i128::from(entry.ordinal), out);
    }
    if set != before.set {
        put_varint(set as u128, out);
    }
    if entry.rewritten > 0 {
        out.push(entry.rewritten);
    }
    if let Some(keys) = entry.block_keys {
        put_zigzag(
            i128::from(keys.smallest) - i128::from(before.block_key),
            out,
        );
        if !entry.is_block() {
            put_varint(u128::from(keys.largest.abs_diff(keys.smallest)), out);
        }
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

/// Reads a list of entries; nothing may follow it.
///
/// # Errors
/// `Corruption` when the bytes are not exactly what [`encode_entries`] writes, `Unsupported` where that is because another
/// version of Thalweg wrote them. The message names no place.
pub fn decode_entries(bytes: &[u8]) -> Result<Vec<Entry>> {
    parse_entries(bytes, |_| ()).map_err(|fault| fault.at("a commit", "a list of index entries"))
}

/// Reads a list of entries; `measured` is called with the bytes that each entry takes.
pub(super) fn parse_entries(
    bytes: &[u8],
    mut measured: impl FnMut(usize),
) -> Result<Vec<Entry>, Fault> {
    let mut reader = Reader::new(bytes);
    let count = reader.varint_u32()? as usize;
    if count > MAX_LIST_ENTRIES {
        return Err("too many entries".into());
    }
    let sets = parse_sets(&mut reader, count)?;
    // A guess that no count alone can blow up: an entry takes 14 bytes and more, a summary at least one.
    let mut entries = Vec::with_capacity(count.min(reader.left_bytes() / 14));
    let guess = sets.first().map_or(0, |set| set.len() * count);
    let guess = guess.min(reader.left_bytes()).min(MAX_LIST_SUMMARIES);
    let mut columns = SummaryList::with_capacity(guess);
    let mut before = Before::start();
    let mut sets_seen = 0;
    for _ in 0..count {
        let left_bytes = reader.left_bytes();
        let (entry, set) = parse_entry(&mut reader, &sets, &before)?;
        if set > sets_seen || sets.is_empty() {
            return Err("column sets are not in the order of their use".into());
        }
        sets_seen = sets_seen.max(set + 1);
        let start = columns.len();
        if start + sets[set].len() > MAX_LIST_SUMMARIES {
            return Err("too many column summaries".into());
        }
        for &column in &sets[set] {
            parse_column(&mut reader, column, entry.rows, &mut columns)?;
        }
        measured(left_bytes - reader.left_bytes());
        before = Before::of(&entry, set, &before);
        entries.push(Entry {
            columns: Summaries::part_to_come(start..columns.len()),
            ..entry
        });
    }
    reader.end()?;
    if sets_seen != sets.len() {
        return Err("a column set is not used".into());
    }
    let shared = Arc::new(columns);
    for entry in &mut entries {
        entry.columns.share(&shared);
    }
    entries.iter().try_for_each(Entry::check)?;
    Ok(entries)
}

fn parse_sets(reader: &mut Reader<'_>, entries: usize) -> Result<Vec<ColumnSet>, Fault> {
    let count = reader.varint_u32()? as usize;
    if count > entries {
        return Err("more column sets than entries".into());
    }
    let mut sets: Vec<ColumnSet> = Vec::new();
    for _ in 0..count {
        let columns = reader.varint_u32()? as usize;
        if columns > MAX_SUMMARIES {
            return Err("too many columns are summarised".into());
        }
        let mut set = ColumnSet::new();
        let mut next = Some(0_u32);
        for _ in 0..columns {
            let step = reader.varint_u32()?;
            let column_id = next
                .and_then(|next| next.checked_add(step))
                .ok_or("a column id is out of range")?;
            let kind = reader.u8()?;
            let kind = SummaryKind::from_byte(kind)
                .ok_or_else(|| Fault::unknown(format_args!("summaries of kind {kind}")))?;
            set.push((column_id, kind));
            next = column_id.checked_add(1);
        }
        if sets.contains(&set) {
            return Err("a column set is listed twice".into());
        }
        sets.push(set);
    }
    Ok(sets)
}

fn parse_entry(
    reader: &mut Reader<'_>,
    sets: &[ColumnSet],
    before: &Before,
) -> Result<(Entry, usize), Fault> {
    let flags = reader.u8()?;
    if flags & ENTRY_UNKNOWN != 0 {
        return Err(Fault::unknown(format_args!(
            "entries with flags {flags:#x}"
        )));
    }
    let has = |flag: u8| flags & flag != 0;
    let is_page = has(ENTRY_PAGE);
    let (mut level, mut blocks, mut block_bytes, mut first_after) = (0, 1, 0, 0);
    let (mut fragments, mut last_after) = (0, None);
    if is_page {
        level = reader.u8()?;
        blocks = reader.varint_u64()?;
        block_bytes = reader.varint_u64()?;
        first_after = reader.varint_u64()?;
        fragments = reader.varint_u32()?;
        if has(ENTRY_SORTED) {
            last_after = Some((reader.varint_u64()?, reader.zigzag()?));
        }
        if level == 0 {
            return Err("a page is at the level of blocks".into());
        }
    }
    let set = parse_set(reader, has(ENTRY_OTHER_COLUMNS), before.set, sets.len())?;
    let rewritten = if has(ENTRY_REWRITTEN) {
        reader.u8()?
    } else {
        0
    };
    if has(ENTRY_REWRITTEN) && rewritten == 0 {
        return Err("an entry spells out a zero".into());
    }
    let block_keys = has(ENTRY_BLOCK_KEYS).then(|| parse_block_keys(reader, is_page, before));
    let block_keys = block_keys.transpose()?;
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
    let ordinal: u32 = plus(
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
        return Err("an offset is out of range".into());
    }
    let commit_after = |after: u64| {
        commit_min
            .checked_add(after)
            .map(CommitNo)
            .ok_or("a commit is out of range")
    };
    let last = last_after.map(|(commit, after)| {
        Ok::<_, &'static str>(Arrival {
            commit: commit_after(commit)?,
            ordinal: plus(i128::from(ordinal), after, "an ordinal is out of range")?,
        })
    });
    let entry = Entry {
        level,
        sorted: has(ENTRY_SORTED),
        last: last.transpose()?.unwrap_or_default(),
        fragments,
        fragment: has(ENTRY_FRAGMENT),
        versions: has(ENTRY_VERSIONS),
        rewritten,
        block_keys,
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

/// The set of columns of an entry.
fn parse_set(
    reader: &mut Reader<'_>,
    is_another: bool,
    before: usize,
    sets: usize,
) -> Parsed<usize> {
    let mut set = before;
    if is_another {
        set = reader.varint_u32()? as usize;
        if set == before {
            return Err("the same column set is named again");
        }
    }
    if set >= sets {
        return Err("an entry names no column set");
    }
    Ok(set)
}

/// The keys of the blocks below an entry.
fn parse_block_keys(reader: &mut Reader<'_>, is_page: bool, before: &Before) -> Parsed<BlockKeys> {
    const OUT_OF_RANGE: &str = "the key of a block is out of range";
    let smallest: i64 = plus(i128::from(before.block_key), reader.zigzag()?, OUT_OF_RANGE)?;
    let span = if is_page { reader.varint_u64()? } else { 0 };
    let largest = smallest.checked_add_unsigned(span).ok_or(OUT_OF_RANGE)?;
    Ok(BlockKeys { smallest, largest })
}

/// The sum of two numbers if it fits the type of the field.
fn plus<T: TryFrom<i128>>(base: i128, step: i128, what: &'static str) -> Parsed<T> {
    base.checked_add(step)
        .and_then(|sum| T::try_from(sum).ok())
        .ok_or(what)
}
