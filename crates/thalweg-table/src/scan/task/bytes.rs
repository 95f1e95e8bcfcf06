//! Tasks of scans as bytes (docs/format/task.md).
//!
//! Invariants: what is decoded has the order that a scan relies on, and names columns that its table has; memory is taken only
//! for what was already read.

use super::{ScanTask, check_database, named};
use crate::definition::TableDefinition;
use crate::deleted_rows::Block;
use crate::engine::Engine;
use crate::open_parts::OpenPart;
use crate::range::{ColumnRange, KeyRange};
use crate::scan::ScanRequest;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_kernel::RowsPart;
use thalweg_kernel::ids::DatabaseId;
use thalweg_kernel::index::{Entry, decode_entries, encode_entries, lists_of};
use thalweg_kernel::masks::{BlockMask, Positions};
use thalweg_kernel::summary::{SummaryKind, ValueRange};
use thalweg_kernel::wire::{Fault, Parsed, Reader, put_varint, put_zigzag};
use thalweg_kernel::{CommitNo, Error, OpenRows, Result, TableId};

const MAGIC: [u8; 4] = *b"TSCT";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 32;
const CRC_AT: usize = 8;

const REQUEST_COLUMNS: u8 = 1;
const REQUEST_LIMIT: u8 = 2;
const REQUEST_ONE_NAN: u8 = 4;

const RANGE_FIRST: u8 = 1;
const RANGE_LAST: u8 = 2;
const RANGE_OPEN: u8 = 4;
const RANGE_NAN: u8 = 8;

const PART_BEGINS_SECTION: u8 = 1;
const PART_HIDDEN: u8 = 2;

pub(super) fn encode(task: &ScanTask) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(HEAD_BYTES + 32 * task.blocks.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.resize(HEAD_BYTES - 16, 0);
    out.extend_from_slice(&task.engine.kernel().store().database().0);
    put_varint(task.table.id.into(), &mut out);
    put_text(task.table.name.as_bytes(), &mut out);
    put_text(&task.table.definition.encode(), &mut out);
    put_varint(task.commit.0.into(), &mut out);
    put_request(&task.request, &mut out);
    put_blocks(&task.blocks, &mut out)?;
    put_count(task.open.len(), &mut out);
    for part in &*task.open {
        put_part(part, &mut out);
    }
    let crc = checksum(&out);
    out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(out)
}

/// Of all bytes but its own.
fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CRC_AT]);
    crc32c::crc32c_append(before, &bytes[CRC_AT + 4..])
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    put_varint(count as u128, out);
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_count(text.len(), out);
    out.extend_from_slice(text);
}

fn put_request(request: &ScanRequest, out: &mut Vec<u8>) {
    let flags = [
        (request.projection.is_some(), REQUEST_COLUMNS),
        (request.limit.is_some(), REQUEST_LIMIT),
        (request.one_nan, REQUEST_ONE_NAN),
    ];
    out.push(flags_of(&flags));
    if let Some(places) = &request.projection {
        put_count(places.len(), out);
        places.iter().for_each(|place| put_count(*place, out));
    }
    if let Some(limit) = request.limit {
        put_count(limit, out);
    }
    put_count(request.batch_rows, out);
    put_zigzag(request.keys.first.into(), out);
    put_zigzag(request.keys.last.into(), out);
    put_count(request.ranges.len(), out);
    for wanted in &request.ranges {
        put_count(wanted.column, out);
        put_range(&wanted.range, out);
    }
}

fn flags_of(flags: &[(bool, u8)]) -> u8 {
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |flags, (_, flag)| flags | flag)
}

fn put_range(range: &ValueRange, out: &mut Vec<u8>) {
    let ends = |first: bool, last: bool| flags_of(&[(first, RANGE_FIRST), (last, RANGE_LAST)]);
    match range {
        ValueRange::Int(first, last) => {
            out.extend([
                SummaryKind::Int as u8,
                ends(first.is_some(), last.is_some()),
            ]);
            let ends = [first, last].into_iter().flatten();
            ends.for_each(|end| put_zigzag((*end).into(), out));
        }
        ValueRange::UInt(first, last) => {
            out.extend([
                SummaryKind::UInt as u8,
                ends(first.is_some(), last.is_some()),
            ]);
            let ends = [first, last].into_iter().flatten();
            ends.for_each(|end| put_varint((*end).into(), out));
        }
        ValueRange::Decimal(first, last) => {
            out.extend([
                SummaryKind::Decimal as u8,
                ends(first.is_some(), last.is_some()),
            ]);
            let ends = [first, last].into_iter().flatten();
            ends.for_each(|end| put_zigzag(*end, out));
        }
        ValueRange::Bytes {
            first,
            last,
            is_open,
        } => {
            let flags = ends(first.is_some(), last.is_some()) | flags_of(&[(*is_open, RANGE_OPEN)]);
            out.extend([SummaryKind::Bytes as u8, flags]);
            let ends = [first, last].into_iter().flatten();
            ends.for_each(|end| put_text(end, out));
        }
        ValueRange::Float {
            min,
            max,
            accepts_nan,
        } => {
            let flags = ends(min.is_some(), max.is_some()) | flags_of(&[(*accepts_nan, RANGE_NAN)]);
            out.extend([SummaryKind::Float as u8, flags]);
            let ends = [min, max].into_iter().flatten();
            ends.for_each(|end| out.extend(end.to_le_bytes()));
        }
    }
}

fn put_blocks(blocks: &[Block], out: &mut Vec<u8>) -> Result<()> {
    let entries: Vec<Entry> = blocks.iter().map(|block| block.entry.clone()).collect();
    let lists: Vec<&[Entry]> = lists_of(&entries).collect();
    put_count(lists.len(), out);
    let mut list_bytes = Vec::new();
    for list in lists {
        list_bytes.clear();
        encode_entries(list, &mut list_bytes)?;
        put_text(&list_bytes, out);
    }
    let masked = blocks
        .iter()
        .enumerate()
        .filter_map(|(at, block)| match &block.mask {
            Some(BlockMask::Rows(hidden)) => Some((at, hidden)),
            _ => None,
        });
    let masked: Vec<(usize, &Positions)> = masked.collect();
    put_count(masked.len(), out);
    let mut before = 0;
    for (at, hidden) in masked {
        put_count(at - before, out);
        hidden.put(out);
        before = at;
    }
    Ok(())
}

fn put_part(part: &OpenPart, out: &mut Vec<u8>) {
    let OpenPart { rows, hidden } = part;
    let flags = [
        (rows.begins_section, PART_BEGINS_SECTION),
        (hidden.is_some(), PART_HIDDEN),
    ];
    out.push(flags_of(&flags));
    put_varint(rows.commit.0.into(), out);
    put_varint(rows.part.rows.into(), out);
    put_zigzag(rows.part.key_min.into(), out);
    put_varint(rows.part.key_max.abs_diff(rows.part.key_min).into(), out);
    put_text(&rows.part.payload, out);
    if let Some(hidden) = hidden {
        hidden.put(out);
    }
}

pub(super) fn decode(engine: &Engine, bytes: &[u8]) -> Result<ScanTask> {
    let fault = |fault: Fault| fault.at("a message", "a task of a scan");
    check_head(bytes).map_err(fault)?;
    let mut reader = Reader::new(bytes);
    let database = head(&mut reader).map_err(fault)?;
    check_database(engine, database)?;
    parse(engine, &mut reader).map_err(|error| match error {
        Unread::Fault(found) => fault(found),
        Unread::Error(error) => error,
    })
}

/// Why a task cannot be used.
enum Unread {
    Fault(Fault),
    /// Of a part that is checked elsewhere.
    Error(Error),
}

impl<T: Into<Fault>> From<T> for Unread {
    fn from(fault: T) -> Self {
        Self::Fault(fault.into())
    }
}

fn check_head(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.len() < HEAD_BYTES {
        return Err("it ends too early".into());
    }
    let mut reader = Reader::new(bytes);
    if reader.take(4)? != MAGIC {
        return Err("it does not begin as one".into());
    }
    let version = reader.u16()?;
    if version != VERSION {
        return Err(Fault::version(version, VERSION));
    }
    reader.reserved(2)?;
    if reader.u32()? != checksum(bytes) {
        return Err("its checksum is wrong".into());
    }
    reader.reserved(4)
}

fn head(reader: &mut Reader<'_>) -> Result<DatabaseId, Fault> {
    reader.take(HEAD_BYTES - 16)?;
    let database = reader.take(16)?.first_chunk();
    Ok(DatabaseId(*database.ok_or("it ends too early")?))
}

fn parse(engine: &Engine, reader: &mut Reader<'_>) -> Result<ScanTask, Unread> {
    let table = reader.varint_u32()?;
    let name = std::str::from_utf8(text(reader)?).map_err(|_| "a name is no text")?;
    let definition = TableDefinition::decode(&engine.options().layouts, text(reader)?);
    let definition = definition.map_err(Unread::Error)?;
    let commit = CommitNo(reader.varint_u64()?);
    let request = request(reader, &definition)?;
    let blocks = blocks(reader)?;
    let count = count(reader)?;
    let mut open: Vec<OpenPart> = Vec::new();
    for _ in 0..count {
        let part = part(reader, TableId(table))?;
        if let Some(before) = open.last() {
            let is_after = before.rows.commit < part.rows.commit
                || before.rows.commit == part.rows.commit && !part.rows.begins_section;
            is_after
                .then_some(())
                .ok_or("open rows are not in the order of their commits")?;
        }
        open.push(part);
    }
    reader.end()?;
    Ok(ScanTask {
        engine: engine.clone(),
        table: named(table, name, definition),
        commit,
        request,
        blocks,
        open: open.into(),
        snapshot: None,
    })
}

fn count(reader: &mut Reader<'_>) -> Parsed<usize> {
    usize::try_from(reader.varint_u64()?).map_err(|_| "a number is out of range")
}

fn text<'a>(reader: &mut Reader<'a>) -> Parsed<&'a [u8]> {
    let bytes = count(reader)?;
    reader.take(bytes)
}

fn key(reader: &mut Reader<'_>) -> Parsed<i64> {
    i64::try_from(reader.zigzag()?).map_err(|_| "a key is out of range")
}

/// Flags of which only some are known.
fn flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, Fault> {
    let flags = reader.u8()?;
    match flags & !known {
        0 => Ok(flags),
        _ => Err(Fault::unknown(format_args!("flags {flags:#x}"))),
    }
}

fn request(reader: &mut Reader<'_>, definition: &TableDefinition) -> Result<ScanRequest, Fault> {
    let flags = flags(reader, REQUEST_COLUMNS | REQUEST_LIMIT | REQUEST_ONE_NAN)?;
    let columns = definition.columns().len();
    let place = |reader: &mut Reader<'_>| match count(reader) {
        Ok(place) if place < columns => Ok(place),
        Ok(_) => Err("it asks for a column that the table does not have"),
        Err(what) => Err(what),
    };
    let projection = match flags & REQUEST_COLUMNS {
        0 => None,
        _ => Some(
            (0..count(reader)?)
                .map(|_| place(reader))
                .collect::<Parsed<_>>()?,
        ),
    };
    let limit = match flags & REQUEST_LIMIT {
        0 => None,
        _ => Some(count(reader)?),
    };
    let batch_rows = count(reader)?;
    let keys = KeyRange {
        first: key(reader)?,
        last: key(reader)?,
    };
    let mut ranges = Vec::new();
    for _ in 0..count(reader)? {
        let column = place(reader)?;
        let range = range(reader)?;
        ranges.push(ColumnRange { column, range });
    }
    Ok(ScanRequest {
        projection,
        keys,
        ranges,
        limit,
        batch_rows,
        one_nan: flags & REQUEST_ONE_NAN != 0,
        threads: 0,
    })
}

fn range(reader: &mut Reader<'_>) -> Result<ValueRange, Fault> {
    let kind = reader.u8()?;
    let kind = SummaryKind::from_byte(kind).ok_or_else(|| unknown_kind(kind))?;
    let flags = flags(reader, RANGE_FIRST | RANGE_LAST | RANGE_OPEN | RANGE_NAN)?;
    let has = (flags & RANGE_FIRST != 0, flags & RANGE_LAST != 0);
    match kind {
        SummaryKind::Int => {
            let (first, last) = ends(reader, has, key)?;
            Ok(ValueRange::Int(first, last))
        }
        SummaryKind::UInt => {
            let (first, last) = ends(reader, has, Reader::varint_u64)?;
            Ok(ValueRange::UInt(first, last))
        }
        SummaryKind::Decimal => {
            let (first, last) = ends(reader, has, Reader::zigzag)?;
            Ok(ValueRange::Decimal(first, last))
        }
        SummaryKind::Bytes => {
            let (first, last) = ends(reader, has, |reader| text(reader).map(Arc::from))?;
            Ok(ValueRange::Bytes {
                first,
                last,
                is_open: flags & RANGE_OPEN != 0,
            })
        }
        SummaryKind::Float => {
            let (min, max) = ends(reader, has, |reader| reader.u64().map(f64::from_bits))?;
            Ok(ValueRange::Float {
                min,
                max,
                accepts_nan: flags & RANGE_NAN != 0,
            })
        }
        kind @ SummaryKind::Count => Err(unknown_kind(kind as u8)),
    }
}

/// The ends that a range has.
fn ends<'a, T>(
    reader: &mut Reader<'a>,
    (has_first, has_last): (bool, bool),
    end: impl Fn(&mut Reader<'a>) -> Parsed<T>,
) -> Parsed<(Option<T>, Option<T>)> {
    let first = has_first.then(|| end(reader)).transpose()?;
    Ok((first, has_last.then(|| end(reader)).transpose()?))
}

fn unknown_kind(kind: u8) -> Fault {
    Fault::unknown(format_args!("a range of kind {kind}"))
}

fn blocks(reader: &mut Reader<'_>) -> Result<Vec<Block>, Unread> {
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..count(reader)? {
        let entries = decode_entries(text(reader)?).map_err(Unread::Error)?;
        blocks.extend(entries.into_iter().map(|entry| Block { entry, mask: None }));
    }
    let is_block = |block: &Block| block.entry.is_block();
    if !blocks.iter().all(is_block) {
        return Err("it names an index page as a block".into());
    }
    let ascends = |pair: &[Block]| pair[0].entry.start() < pair[1].entry.start();
    if !blocks.windows(2).all(ascends) {
        return Err("blocks are not in order".into());
    }
    let mut at = 0_usize;
    for number in 0..count(reader)? {
        let step = count(reader)?;
        if step == 0 && number > 0 {
            return Err("a block has two masks".into());
        }
        at = at.checked_add(step).ok_or("a number is out of range")?;
        let block = blocks.get_mut(at).ok_or("a mask is of no block")?;
        block.mask = Some(BlockMask::Rows(positions(reader)?));
    }
    Ok(blocks)
}

fn positions(reader: &mut Reader<'_>) -> Result<Positions, Fault> {
    let form = reader.u8()?;
    Positions::read(form, reader)
}

fn part(reader: &mut Reader<'_>, table: TableId) -> Result<OpenPart, Fault> {
    let flags = flags(reader, PART_BEGINS_SECTION | PART_HIDDEN)?;
    let commit = CommitNo(reader.varint_u64()?);
    let rows = reader.varint_u32()?;
    let key_min = key(reader)?;
    let span = reader.varint_u64()?;
    let key_max = key_min
        .checked_add_unsigned(span)
        .ok_or("a key is out of range")?;
    let payload = Bytes::copy_from_slice(text(reader)?);
    let hidden = match flags & PART_HIDDEN {
        0 => None,
        _ => Some(positions(reader)?),
    };
    Ok(OpenPart {
        rows: OpenRows {
            commit,
            begins_section: flags & PART_BEGINS_SECTION != 0,
            number: 0,
            part: RowsPart {
                table,
                definition_version: 0,
                rows,
                key_min,
                key_max,
                payload,
            },
        },
        hidden,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, EngineOptions, Table};
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use proptest::prelude::*;
    use thalweg_kernel::ErrorKind;

    /// A table with blocks, one of which has deleted rows, and open rows, some of them deleted.
    fn table() -> Table {
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let rows = |times: std::ops::Range<i64>| {
            let floats = times
                .clone()
                .map(|n| if n % 5 == 0 { f64::NAN } else { n as f64 });
            let columns: Vec<(&str, ArrayRef)> = vec![
                ("ts", Arc::new(Int64Array::from_iter_values(times.clone()))),
                ("value", Arc::new(floats.collect::<Float64Array>())),
                (
                    "text",
                    Arc::new(StringArray::from_iter_values(
                        times.map(|n| format!("text {n}")),
                    )),
                ),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let (first, second) = (rows(0..20_000), rows(15_000..15_400));
        let table = engine
            .create_table("air", &first.schema(), &CreateOptions::stream("ts"))
            .unwrap();
        table.append([Ok(first)], None).unwrap();
        table.append([Ok(second)], None).unwrap();
        for keys in [100..=200, 15_100..=15_120] {
            table.delete_range(keys.into(), None).unwrap();
        }
        table
    }

    fn request(accepts_nan: bool, text: Option<&str>) -> ScanRequest {
        let ranges = vec![
            ColumnRange {
                column: 1,
                range: ValueRange::Float {
                    min: Some(f64::NEG_INFINITY),
                    max: None,
                    accepts_nan,
                },
            },
            ColumnRange {
                column: 2,
                range: ValueRange::Bytes {
                    first: text.map(|text| text.as_bytes().into()),
                    last: None,
                    is_open: true,
                },
            },
            ColumnRange {
                column: 0,
                range: ValueRange::Int(Some(i64::MIN), Some(i64::MAX)),
            },
        ];
        ScanRequest {
            projection: Some(vec![2, 1]),
            limit: Some(19_000),
            batch_rows: 77,
            ranges,
            one_nan: true,
            ..ScanRequest::default()
        }
    }

    #[test]
    fn a_request_arrives_as_it_was() {
        let table = table();
        for request in [
            ScanRequest::default(),
            request(true, Some("t")),
            request(false, None),
        ] {
            let task = table
                .view()
                .unwrap()
                .scan_tasks(&request, 1)
                .unwrap()
                .remove(0);
            let arrived = decode(table.engine(), &encode(&task).unwrap()).unwrap();
            assert_eq!(format!("{:?}", arrived.request), format!("{request:?}"));
            assert_eq!(arrived.commit, task.commit);
            assert_eq!(
                format!("{:?}", arrived.blocks),
                format!("{:?}", task.blocks)
            );
            let batches =
                |task: &ScanTask| task.run().unwrap().collect::<Result<Vec<_>>>().unwrap();
            assert_eq!(batches(&arrived), batches(&task));
        }
        let numbers = [
            ValueRange::UInt(None, Some(u64::MAX)),
            ValueRange::Decimal(Some(i128::MIN), Some(i128::MAX)),
            ValueRange::Int(None, None),
        ];
        for wanted in numbers {
            let mut bytes = Vec::new();
            put_range(&wanted, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(range(&mut reader), Ok(wanted));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_no_task_of_this_database_is_refused() {
        let (table, other) = (table(), table());
        let task = table
            .view()
            .unwrap()
            .scan_tasks(&request(true, None), 1)
            .unwrap()
            .remove(0);
        let bytes = encode(&task).unwrap();
        let kind = |engine: &Engine, bytes: &[u8]| decode(engine, bytes).unwrap_err().kind();
        assert_eq!(kind(other.engine(), &bytes), ErrorKind::Invalid);
        for len in 0..bytes.len().min(600) {
            assert_eq!(
                kind(table.engine(), &bytes[..len]),
                ErrorKind::Corruption,
                "{len} bytes"
            );
        }
        for at in 0..bytes.len().min(600) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let found = kind(table.engine(), &damaged);
            let expected = if (4..8).contains(&at) {
                ErrorKind::Unsupported
            } else {
                ErrorKind::Corruption
            };
            assert_eq!(found, expected, "byte {at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// With a checksum that is right: an error, or rows.
        #[test]
        fn made_up_bytes_are_refused_or_run(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            is_cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            thread_local! {
                static TASK: (Table, Vec<u8>) = {
                    let table = table();
                    let tasks = table.view().unwrap().scan_tasks(&request(true, Some("text 1")), 1).unwrap();
                    (table, encode(&tasks[0]).unwrap())
                };
            }
            TASK.with(|(table, bytes)| {
                let mut bytes = bytes.clone();
                for (at, byte) in &changes {
                    let at = HEAD_BYTES + at.index(bytes.len() - HEAD_BYTES);
                    bytes[at] = *byte;
                }
                if let Some(len) = is_cut {
                    bytes.truncate(HEAD_BYTES + len.index(bytes.len() - HEAD_BYTES));
                }
                let crc = checksum(&bytes);
                bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
                if let Ok(task) = decode(table.engine(), &bytes) {
                    let _ = task.run().map(Iterator::last);
                }
            });
        }
    }
}
