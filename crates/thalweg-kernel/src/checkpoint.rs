//! Checkpoints: the state at one commit, in one INDEX frame (`docs/format/log.md`).
//!
//! Invariants
//! - With blocks and pages by address, a checkpoint needs nothing that lies before it but its base: uncovered rows are
//!   copied into it. So recovery reads a checkpoint, at most one other, and what follows, whatever the size of the
//!   database, and no quiet table pins an old segment.
//! - A *full* checkpoint has all tables. Any other one has those that have changed since a full one, its *base*, so writing
//!   it costs what has changed, however many tables there are. A base is always full: at most two checkpoints are read.
//! - There are two bases, and checkpoints build on them in turn ([`crate::bases`]): no byte is needed by both of the
//!   checkpoints that the slots of the root name.
//! - Both bases stay for as long as a slot of the root, or the next checkpoint, needs them.
//!
//! Failures to guard against, each with a test in this crate or in `thalweg-sim`:
//! - A table that changed is not in the difference, and comes back old: all changes pass [`Working`]'s `put_table` or
//!   `remove_table`, open rows are taken from the tables that have some, and a checkpoint lists what has changed since the
//!   base of the next one, which an opening that continues from here would not know.
//! - A dropped table comes back: its id is listed, and removed from the base.
//! - A name moves from one table to another: all that changed is removed before anything is added.
//! - A base goes while something needs it: garbage asks for the segments of both slots and both bases, and writes two
//!   checkpoints first that need no older segment.
//! - An epoch that was not finished holds the base of another one: a checkpoint becomes a base when the root names it.
//! - A frame is damaged: a repair takes the checkpoint of the other slot, and the log after it. Where both slots name one,
//!   the first of an epoch, it takes the one before, on the other base, whose log no garbage collection has removed yet.
//! - A sector is lost: checkpoints share none, nor does one share its first with commits before it.
//! - A base is damaged, and checkpoints go on to build on it in their turn: those of the other turn are whole, and an opening
//!   begins its epoch on the base that it has read. `verify` reads what both slots and the next checkpoint need.
//! - The newer slot of the root is lost, and the checkpoint of the older one names a base that went when the newer one was
//!   written: then the next checkpoint builds on none that it names.
//!
//! Rejected: references to the frames of uncovered rows, appended again when a segment is left (engine sketch). It saves
//! the copy, at most 8 MiB for each 8 MiB of raw rows, and costs a second way to find rows and a rule that must never
//! be forgotten. Differences from differences: reading would follow a chain. Full checkpoints at longer intervals: for 100,000
//! tables either the checkpoints take as long as the commits between them, or replaying those takes longer than opening may.

use crate::bases::Place;
use crate::bases::{Base, Bases, BuildsOn};
use crate::change::{get_names, get_rows, put_names, put_rows};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::fields::{Fields, PutFields, len_u32};
use crate::file_uses::{FileUse, OrderUses, Uses, put_uses};
use crate::frame::{FRAME_HEADER_BYTES, FrameHead, SECTION_ENTRY_BYTES, SectionKind};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{self, ItemRun, Pending, Tree, WrittenPages};
use crate::masks::TableMasks;
use crate::open_rows::{OpenList, OpenRows};
use crate::orders::{Coverage, FIRST_ORDER, KIND_INDEX, MAX_ORDERS, Order, Orders};
use crate::producers::Producers;
use crate::rules::Rule;
use crate::table_state::TableState;
use crate::wire::{Fault, Reader};
use crate::working::Working;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

const CHECKPOINT_VERSION: u32 = 2;
/// Flags of a table with orders beside its rows, or that once had some.
const HAS_ORDERS: u8 = 1;
/// Masks of its items, all of them.
const HAS_MASKS: u8 = 4;
/// Masks of its open rows.
const HAS_OPEN_MASKS: u8 = 8;
/// States of an order.
const ORDER_ON: u8 = 1;
const ORDER_OFF: u8 = 2;
/// Bytes of the fields that name a base.
const BASE_BYTES: usize = 40;

/// Sections of an INDEX frame: PAGES, INDEX.
pub(crate) const CHECKPOINT_SECTIONS: usize = 2;

/// The pages that a checkpoint has written of a tree that has changed since the one before.
pub(crate) struct WrittenTree {
    pub(crate) pages: WrittenPages,
    /// The bytes that the tree uses of each file, these pages included; `None`: they are not known.
    pub(crate) uses: Option<Uses>,
}

/// The trees that have changed.
pub(crate) type WrittenTrees = BTreeMap<(TableId, u32), WrittenTree>;

/// Writes the INDEX section: of all tables, or of those that have changed since the base that it builds on. Trees that are
/// not in `written` have all of their pages on disk.
pub(crate) fn put_checkpoint(
    working: &Working,
    builds_on: BuildsOn,
    written: &WrittenTrees,
    out: &mut Vec<u8>,
) -> Result<()> {
    let bases = &working.bases;
    let (base, other) = (bases.base(builds_on), bases.base_after(builds_on));
    out.put_u32(CHECKPOINT_VERSION);
    let features = working.features_written();
    out.put_u32(features.to_read);
    out.put_u32(features.to_write);
    put_base(base, out);
    put_base(other, out);
    put_ids(other.map(|other| bases.changed_since(other)), out);
    out.put_u64(working.commit.0);
    out.put_u32(working.next_table);
    let replaced = base.map(|base| working.replaced_since(base));
    put_ids(replaced.clone(), out);
    let tables: Vec<&Arc<TableState>> = match &replaced {
        Some(replaced) => replaced
            .iter()
            .filter_map(|id| working.table(*id))
            .collect(),
        None => working.tables.iter().collect(),
    };
    let definitions = put_definitions(&tables, out);
    out.put_u32(len_u32(tables.len()));
    for (table, definition) in tables.into_iter().zip(definitions) {
        put_table(table, definition, written, out)?;
        let open = working.open.get(table.id);
        out.put_u8(u8::from(open.is_some_and(|open| open.has_later_blocks)));
    }
    working.producers.put(out);
    // Further parts: none yet.
    out.put_u32(0);
    Ok(())
}

fn put_base(base: Option<&Base>, out: &mut Vec<u8>) {
    let Some(base) = base else {
        out.resize(out.len() + BASE_BYTES, 0);
        return;
    };
    out.put_u64(base.place.at.segment.0);
    out.put_u64(base.place.at.offset);
    out.put_u32(base.place.frame_bytes);
    out.put_u32(base.place.crc);
    out.put_u64(base.bytes);
    out.put_u64(base.difference_bytes);
}

/// Reads a base of a checkpoint that lies at `own`.
fn get_base(wire: &mut Fields<'_>, own: Place) -> Result<Option<Base>> {
    let place = Place {
        at: LogPosition {
            segment: FileId(wire.u64()?),
            offset: wire.u64()?,
        },
        frame_bytes: wire.u32()?,
        crc: wire.u32()?,
    };
    let (bytes, difference_bytes) = (wire.u64()?, wire.u64()?);
    if place.at == LogPosition::default() {
        return Ok(None);
    }
    // What a checkpoint builds on was written before it, so nothing leads round in a circle.
    if place.at >= own.at {
        return Err(Error::corruption("checkpoint", "its base lies behind it"));
    }
    Ok(Some(Base {
        difference_bytes,
        ..Base::new(place, bytes)
    }))
}

fn put_ids(ids: Option<BTreeSet<TableId>>, out: &mut Vec<u8>) {
    let ids = ids.unwrap_or_default();
    out.put_u32(len_u32(ids.len()));
    ids.iter().for_each(|id| out.put_u32(id.0));
}

fn get_ids(wire: &mut Fields<'_>) -> Result<BTreeSet<TableId>> {
    let count = wire.count(4)?;
    (0..count).map(|_| Ok(TableId(wire.u32()?))).collect()
}

/// Writes the definitions, each once; returns the number of each table's one.
fn put_definitions(tables: &[&Arc<TableState>], out: &mut Vec<u8>) -> Vec<u32> {
    let count_at = out.len();
    out.put_u32(0);
    // By where they lie in memory: equal ones are shared there. One that is not is written twice, which harms nothing.
    let mut numbers: HashMap<(*const u8, usize), u32> = HashMap::new();
    let mut number_of = |definition: &Bytes| {
        let next = len_u32(numbers.len());
        *numbers
            .entry((definition.as_ptr(), definition.len()))
            .or_insert_with(|| {
                out.put_bytes(definition);
                next
            })
    };
    let of_tables = tables.iter().map(|table| number_of(&table.definition));
    let of_tables = of_tables.collect();
    let count = len_u32(numbers.len());
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    of_tables
}

fn put_table(
    table: &TableState,
    definition: u32,
    written: &WrittenTrees,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u32(table.id.0);
    out.put_bytes(table.name.as_bytes());
    out.put_u32(definition);
    out.put_u32(table.definition_version);
    out.put_u64(table.created.0);
    let masks = table.masks();
    let orders = table.orders.as_ref().map_or(0, |_| HAS_ORDERS);
    let items = masks.filter(|masks| masks.has_items());
    let open = masks.filter(|masks| masks.has_open());
    let what_else = orders | items.map_or(0, |_| HAS_MASKS) | open.map_or(0, |_| HAS_OPEN_MASKS);
    out.put_u8(what_else);
    put_tree((table.id, 0), (&table.tree, &table.uses), written, out)?;
    if let Some(orders) = &table.orders {
        put_orders(table.id, orders, written, out)?;
    }
    if let Some(masks) = items {
        put_sized(out, |out| {
            masks.put_items(out);
            Ok(())
        })?;
    }
    if let Some(masks) = open {
        masks.put_open(out);
    }
    let count_at = out.len();
    out.put_u32(0);
    let mut count = 0_u32;
    for rows in table.open.iter(CommitNo(u64::MAX)) {
        count += 1;
        out.put_u64(rows.commit.0);
        out.put_u8(u8::from(rows.begins_section));
        put_sized(out, |out| {
            put_rows(&rows.part, out);
            Ok(())
        })?;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    Ok(())
}

/// Writes the root of an order, what waits for a page of it, and the uses of files below the root.
fn put_tree(
    place: (TableId, u32),
    (tree, uses): (&Tree, &OrderUses),
    written: &WrittenTrees,
    out: &mut Vec<u8>,
) -> Result<()> {
    let known;
    let (root, uses): (_, Option<&[FileUse]>) = match written.get(&place) {
        Some(written) => (written.pages.root().cloned(), written.uses.as_deref()),
        None => {
            // Lists of a checkpoint are checked by now: no writer stores a wrong one.
            known = uses.known().ok().flatten();
            let known = known.as_ref().filter(|known| known.is_of(tree));
            (tree.root_entry(), known.map(|known| known.uses()))
        }
    };
    put_sized(out, |out| index::encode_entries(root.as_slice(), out))?;
    put_sized(out, |out| {
        tree.pending().map_or(Ok(()), |p| put_pending(p, out))
    })?;
    put_sized(out, |out| {
        put_uses(uses, out);
        Ok(())
    })
}

fn get_tree(wire: &mut Fields<'_>, table: TableId) -> Result<(Tree, OrderUses)> {
    let wrong = |what: &str| Error::corruption("checkpoint", what);
    let mut roots = index::decode_entries(wire.bytes()?)?.into_iter();
    let (root, None) = (roots.next(), roots.next()) else {
        return Err(wrong("an order has one root"));
    };
    if { root.as_ref() }.is_some_and(|root| root.is_block() || root.fragment) {
        return Err(wrong("the root of an index is a block or a fragment"));
    }
    let pending = get_pending(wire.bytes()?, table)?;
    let tree = Tree::from_root(table, root);
    let uses = OrderUses::stored(&tree, wire.bytes()?);
    Ok((tree.with_pending(pending), uses))
}

/// Writes the orders of a table beside its rows.
fn put_orders(
    table: TableId,
    orders: &Orders,
    written: &WrittenTrees,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u32(orders.next);
    out.put_u32(len_u32(orders.list.len()));
    for order in &orders.list {
        out.put_u32(order.id);
        let state = if order.is_on { ORDER_ON } else { ORDER_OFF };
        out.extend_from_slice(&[KIND_INDEX, state, 0, 0]);
        put_tree((table, order.id), (&order.tree, &order.uses), written, out)?;
        order.coverage.put(out);
    }
    Ok(())
}

fn get_orders(wire: &mut Fields<'_>, table: TableId) -> Result<Orders> {
    let wrong = |what: &str| Error::corruption("checkpoint", what);
    let mut orders = Orders {
        next: wire.u32()?,
        ..Orders::none()
    };
    let mut last = FIRST_ORDER - 1;
    for _ in 0..wire.count(24)? {
        let (id, kind, state) = (wire.u32()?, wire.u8()?, wire.u8()?);
        if kind != KIND_INDEX {
            return Err(wire.unknown(format_args!("an order of kind {kind}")));
        }
        let is_on = match state {
            ORDER_ON => true,
            ORDER_OFF => false,
            _ => return Err(wire.unknown(format_args!("an order in state {state}"))),
        };
        wire.reserved(2)?;
        if id <= last || id >= orders.next {
            return Err(wrong("orders of a table that do not ascend"));
        }
        last = id;
        let (tree, uses) = get_tree(wire, table)?;
        let coverage = wire.read(Coverage::read)?;
        orders.list.push(Order {
            id,
            is_on,
            tree,
            uses,
            coverage,
        });
    }
    if orders.next < FIRST_ORDER || orders.list.len() >= MAX_ORDERS {
        return Err(wrong("more orders of a table than there can be"));
    }
    Ok(orders)
}

/// Appends the changes that could not be made to the index, because a page of it cannot be read.
fn put_pending(pending: &Pending, out: &mut Vec<u8>) -> Result<()> {
    out.put_u64(pending.since.0);
    put_names(&pending.removed, out);
    out.put_u32(len_u32(pending.runs.len()));
    pending.runs.iter().for_each(|run| run.put(out));
    // How much waits has no limit, but the length of a list has one.
    for entries in index::lists_of(&pending.added) {
        put_sized(out, |out| index::encode_entries(entries, out))?;
    }
    Ok(())
}

fn get_runs(wire: &mut Fields<'_>) -> Result<Vec<ItemRun>> {
    let count = wire.count(ItemRun::BYTES)?;
    let mut reader = Reader::new(wire.take(count * ItemRun::BYTES)?);
    let runs = (0..count).map(|_| ItemRun::read(&mut reader));
    let runs = runs.collect::<Result<Vec<_>, Fault>>();
    let runs = runs.map_err(|fault| fault.at("checkpoint", "runs of items"))?;
    let are_apart = runs.is_sorted_by(|a, b| a.last.key < b.first.key);
    let is_sound = |run: &ItemRun| run.first.key <= run.last.key && run.blocks > 0;
    match are_apart && runs.iter().all(is_sound) {
        true => Ok(runs),
        false => Err(Error::corruption(
            "checkpoint",
            "runs of items that are none",
        )),
    }
}

fn get_pending(bytes: &[u8], table: TableId) -> Result<Option<Pending>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut wire = Fields::new(bytes, "changes that wait for a page of an index");
    let since = CommitNo(wire.u64()?);
    let removed = get_names(&mut wire)?;
    let runs = get_runs(&mut wire)?;
    let mut added = Vec::new();
    while !wire.is_at_end() {
        added.extend(index::decode_entries(wire.bytes()?)?);
    }
    wire.finish()?;
    if removed.is_empty() && runs.is_empty() && added.is_empty() {
        return Err(Error::corruption("checkpoint", "nothing waits for a page"));
    }
    // Why the page could not be read is found out again.
    let place = format_args!("the index of table {}", table.0);
    let cause = Error::corruption(place, "a page of it could not be read");
    Ok(Some(Pending {
        since,
        removed,
        runs,
        added,
        steps: Vec::new(),
        cause,
    }))
}

fn put_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let at = out.len();
    out.put_u32(0);
    write(out)?;
    let bytes = len_u32(out.len() - at - 4);
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// The full checkpoint that the one at `own` is a difference from; `None`: it is a full one itself.
pub(crate) fn base_of(section: &[u8], own: Place) -> Result<Option<Place>> {
    let base = get_base(&mut fields_of(section)?.0, own)?;
    Ok(base.map(|base| base.place))
}

/// Both full checkpoints that the one at `own` names: its base, and the one whose turn comes next.
pub(crate) fn bases_of(section: &[u8], own: Place) -> Result<Vec<Place>> {
    let (mut wire, _) = fields_of(section)?;
    let both = [get_base(&mut wire, own)?, get_base(&mut wire, own)?];
    Ok(both.into_iter().flatten().map(|base| base.place).collect())
}

/// The features that a checkpoint names, and the fields after them.
fn fields_of(section: &[u8]) -> Result<(Fields<'_>, Features)> {
    let what = "checkpoint";
    let mut wire = Fields::new(section, what);
    let version = wire.u32()?;
    if version != CHECKPOINT_VERSION {
        return Err(wire.unknown(format_args!("it has version {version}")));
    }
    let (to_read, to_write) = (wire.u32()?, wire.u32()?);
    let features = Features { to_read, to_write };
    features.check_reading(what)?;
    Ok((wire, features))
}

/// Reads the INDEX section of the checkpoint at `own`: `working` is the state of its base, or an empty one.
pub(crate) fn get_checkpoint(section: &[u8], own: Place, mut working: Working) -> Result<Working> {
    let what = "checkpoint";
    let (mut wire, features) = fields_of(section)?;
    let base = get_base(&mut wire, own)?;
    let other = get_base(&mut wire, own)?;
    let changed_since_other = get_ids(&mut wire)?;
    let place_of = |base: &Base| base.place.at;
    if other.is_some()
        && base.as_ref().map(place_of) == other.as_ref().map(place_of)
        && Rule::TwoBases.is_kept()
    {
        return Err(Error::corruption(what, "the next one has the same base"));
    }
    let (base_commit, base_next) = (working.commit, working.next_table);
    working.features = features;
    working.commit = CommitNo(wire.u64()?);
    working.next_table = wire.u32()?;
    if working.next_table == 0 {
        return Err(Error::corruption(what, "table ids begin with 1"));
    }
    if working.commit < base_commit || working.next_table < base_next {
        return Err(Error::corruption(what, "it is older than its base"));
    }
    let replaced = get_ids(&mut wire)?;
    // All of them go before any is added: a table may have the name that another one had.
    for id in &replaced {
        working.remove_table(*id);
    }
    let definitions = (0..wire.count(4)?)
        .map(|_| Ok(working.share_definition(wire.bytes()?)))
        .collect::<Result<Vec<_>>>()?;
    let mut last_id = TableId(0);
    let mut added = Vec::new();
    for _ in 0..wire.count(38)? {
        let table = get_table(&mut wire, &definitions)?;
        let fits = table.id > last_id
            && table.id.0 < working.next_table
            && table.created <= working.commit;
        if !fits {
            return Err(Error::corruption(what, "table ids or commits out of order"));
        }
        last_id = table.id;
        let unnamed = working.add_table(table);
        added.push(unnamed.ok_or_else(|| Error::corruption(what, "two tables have one id"))?);
        get_open_rows(&mut wire, last_id, &mut working)?;
        check_masks(&working, last_id)?;
    }
    if !working.tables.learn_names(added) {
        return Err(Error::corruption(what, "two tables have one name"));
    }
    working.producers = Producers::get(&mut wire, working.commit)?;
    check_parts(&mut wire)?;
    wire.finish()?;
    let last = match base {
        Some(base) => Base {
            difference_bytes: base.difference_bytes.saturating_add(section.len() as u64),
            changed: replaced,
            ..base
        },
        None => Base::new(own, section.len() as u64),
    };
    let other = other.map(|other| Base {
        changed: changed_since_other,
        ..other
    });
    working.bases = Bases::of_checkpoint(last, other);
    working.begin_at_checkpoint();
    Ok(working)
}

/// Refuses further parts of a checkpoint: this version knows none.
fn check_parts(wire: &mut Fields<'_>) -> Result<()> {
    if wire.u32()? == 0 {
        return Ok(());
    }
    let kind = wire.u32()?;
    Err(wire.unknown(format_args!("it has a part of kind {kind}")))
}

fn get_table(wire: &mut Fields<'_>, definitions: &[Bytes]) -> Result<TableState> {
    let wrong = |what: &str| Error::corruption("checkpoint", what);
    let id = TableId(wire.u32()?);
    let name = wire.str()?.into();
    let definition = definitions.get(wire.u32()? as usize);
    let definition = definition.ok_or_else(|| wrong("a table without a definition"))?;
    let definition_version = wire.u32()?;
    let created = CommitNo(wire.u64()?);
    let what_else = wire.u8()?;
    let known = HAS_ORDERS | HAS_MASKS | HAS_OPEN_MASKS;
    if what_else & !known != 0 {
        return Err(wire.unknown(format_args!(
            "what else there is of a table: {what_else:#x}"
        )));
    }
    let (tree, uses) = get_tree(wire, id)?;
    let orders = match what_else & HAS_ORDERS {
        0 => None,
        _ => Some(Arc::new(get_orders(wire, id)?)),
    };
    let masks = get_masks(wire, what_else)?;
    Ok(TableState {
        id,
        name,
        definition: definition.clone(),
        definition_version,
        created,
        tree,
        uses,
        orders,
        masks,
        open: OpenList::default(),
    })
}

fn get_masks(wire: &mut Fields<'_>, what_else: u8) -> Result<Option<Arc<TableMasks>>> {
    let mut masks = TableMasks::default();
    if what_else & HAS_MASKS != 0 {
        masks.read_items(wire.bytes()?)?;
    }
    if what_else & HAS_OPEN_MASKS != 0 {
        wire.read(|reader| masks.read_parts(reader))?;
    }
    let has_none = (what_else & HAS_MASKS != 0 && !masks.has_items())
        || (what_else & HAS_OPEN_MASKS != 0 && !masks.has_open());
    if has_none {
        return Err(Error::corruption("checkpoint", "masks of nothing"));
    }
    Ok((!masks.is_empty()).then(|| Arc::new(masks)))
}

/// Gives a table the open rows that the checkpoint holds of it.
fn get_open_rows(wire: &mut Fields<'_>, table: TableId, working: &mut Working) -> Result<()> {
    let mut last = CommitNo(0);
    for _ in 0..wire.count(45)? {
        let commit = CommitNo(wire.u64()?);
        let begins_section = get_flag(wire)?;
        // Copied: open rows must not keep a whole checkpoint in memory.
        let part = get_rows(&Bytes::copy_from_slice(wire.bytes()?))?;
        if part.table != table || commit < last || commit > working.commit {
            return Err(Error::corruption("checkpoint", "open rows out of order"));
        }
        last = commit;
        working.push_open(OpenRows {
            commit,
            begins_section,
            number: 0,
            part,
        });
    }
    if get_flag(wire)? {
        working.open.note_blocks(table);
    }
    Ok(())
}

/// Compares the masks of a table with what is in memory of it: its open rows, and the root of its blocks. Items are looked up by
/// `verify`, and by whoever reads or changes them. Where changes wait for a page, it is not known what there is.
fn check_masks(working: &Working, table: TableId) -> Result<()> {
    let Some(state) = working.table(table) else {
        return Ok(());
    };
    let Some(masks) = state.masks() else {
        return Ok(());
    };
    let wrong = |what: &str| Err(Error::corruption("checkpoint", what));
    let open = working.open.get(table);
    for ((commit, part), mask) in masks.all_parts() {
        let rows = open.and_then(|open| open.rows_of_part(*commit, *part));
        if rows != Some(mask.rows) {
            return wrong("rows are deleted of open rows that are not there");
        }
    }
    if state.tree.pending().is_some() {
        return Ok(());
    }
    masks.check_below(state.tree.total()).or_else(wrong)
}

fn get_flag(wire: &mut Fields<'_>) -> Result<bool> {
    match wire.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::corruption("checkpoint", "a flag is neither 0 nor 1")),
    }
}

/// Where the INDEX section of a checkpoint frame lies in it.
pub(crate) fn index_section(head: &FrameHead) -> Option<&crate::frame::SectionEntry> {
    let index = head.sections.iter().find(|s| s.kind == SectionKind::Index);
    index.filter(|_| head.sections.len() == CHECKPOINT_SECTIONS)
}

/// Bytes of header and section table of a checkpoint frame.
pub(crate) const CHECKPOINT_HEAD_BYTES: usize =
    FRAME_HEADER_BYTES + CHECKPOINT_SECTIONS * SECTION_ENTRY_BYTES;

#[cfg(test)]
mod tests;
