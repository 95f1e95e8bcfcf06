//! The image that a crash leaves: every choice a disk has over the changes nobody synced.
//!
//! Invariants
//! - What was durable survives as it is; of the pending items each one meets its own fate, whatever the
//!   order in which they were made, and names independently of the bytes behind them.
//! - Items that survive apply in the order they were made.
//! - The image after a crash has nothing pending, and nothing in it that no name leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::content::{Content, pieces};
use super::state::{ByteChange, DirNode, FileNode, FsState, Ino, Node, ROOT, push_stale};
use super::units::{PAGE_BYTES, SECTOR_BYTES};

/// The pending changes that survive a crash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CrashChoice {
    /// Nothing pending.
    DropAll,
    /// Everything pending: a power cut right after the disk caught up.
    KeepAll,
    /// The first items in the order they were made, as a disk that keeps order would.
    Prefix(usize),
    /// Item `i` if bit `i` is set; items from the 64th on do not.
    Mask(u64),
    /// Each item by the toss of a coin.
    Subset {
        /// Seed of the coin.
        seed: u64,
    },
    /// Each item with a random fate, torn and size without data among them.
    Random {
        /// Seed of the fates.
        seed: u64,
        /// Whether sectors that cannot be read are among them.
        unreadable: bool,
    },
    /// Everything, but the last pending write is torn.
    TearLast {
        /// Edges of the tear: [`SECTOR_BYTES`] or [`PAGE_BYTES`].
        unit_bytes: u64,
        /// The units that survive.
        kept: Kept,
    },
    /// The fate of each item; items without one are dropped.
    Items(Vec<ItemFate>),
    /// Only the processes die (`kill -9`): all stays visible, and what is pending stays so, for a power cut
    /// later. The boot id stays too.
    Kill,
}

/// The fate of one pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemFate {
    /// It never happened.
    Drop,
    /// It survives.
    Keep,
    /// Of a write only some units survive, the rest are old bytes. Other items survive.
    Torn {
        /// Edges of the tear: [`SECTOR_BYTES`] or [`PAGE_BYTES`].
        unit_bytes: u64,
        /// The units that survive.
        kept: Kept,
        /// Whether the file grows as if the write had survived whole (the rest reads as zeros), or only to
        /// the end of the last unit that did.
        grows: bool,
    },
    /// Of a write only some units survive, and of others nothing can be read until they are written again (`EIO`). Such a
    /// unit takes all that lies in it along, also what was durable before. The file grows as if the write had survived
    /// whole. Other items survive.
    Unreadable {
        /// Edges of the units: [`SECTOR_BYTES`] or [`PAGE_BYTES`].
        unit_bytes: u64,
        /// The units that survive, if they can be read.
        kept: Kept,
        /// The units that cannot be read.
        unreadable: Kept,
    },
    /// Of a write only the growth of the file survives, and the new range shows these bytes. Other items
    /// survive.
    SizeOnly(Fill),
}

/// The units of a torn write that survive, counted from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The first so many.
    First(u64),
    /// All but this one.
    AllBut(u64),
    /// Unit `i` if bit `i mod 64` is set.
    Bits(u64),
}

impl Kept {
    fn contains(self, unit: u64) -> bool {
        match self {
            Kept::First(count) => unit < count,
            Kept::AllBut(lost) => unit != lost,
            Kept::Bits(bits) => bits >> (unit % 64) & 1 == 1,
        }
    }
}

/// The bytes of a range whose data never reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// The bytes at the same place of a file removed, cut or lost earlier: 0 is the latest of them, counting
    /// around; zeros if there was none.
    Stale(usize),
}

/// A change that a crash may or may not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingItem {
    /// Bytes of a file.
    Write {
        /// The file.
        path: PathBuf,
        /// The bytes written.
        range: Range<u64>,
        /// Whether the range reaches past the durable end of the file.
        grows: bool,
    },
    /// A change of a file's length.
    SetLen {
        /// The file.
        path: PathBuf,
        /// The new length.
        len_bytes: u64,
    },
    /// Space reserved for a file.
    Allocate {
        /// The file.
        path: PathBuf,
        /// The bytes reserved.
        range: Range<u64>,
    },
    /// Directory entries that change together, each with whether the name exists afterwards.
    Names(Vec<(OsString, bool)>),
}

/// Where a pending item lies in the state.
#[derive(Clone, Copy, Debug)]
enum Place {
    File(Ino, usize),
    Names(usize),
}

/// All pending items in the order they were made.
fn places(fs: &FsState) -> Vec<Place> {
    let mut places: Vec<(u64, Place)> = Vec::new();
    for (ino, node) in &fs.nodes {
        if let Node::File(file) = node {
            places.extend(
                file.pending
                    .iter()
                    .enumerate()
                    .map(|(at, item)| (item.seq, Place::File(*ino, at))),
            );
        }
    }
    places.extend(
        fs.name_changes
            .iter()
            .enumerate()
            .map(|(at, item)| (item.seq, Place::Names(at))),
    );
    places.sort_unstable_by_key(|(seq, _)| *seq);
    places.into_iter().map(|(_, place)| place).collect()
}

/// The pending items in the order they were made.
pub(super) fn pending_items(fs: &FsState) -> Vec<PendingItem> {
    let describe = |place: Place| match place {
        Place::File(ino, at) => fs
            .file(ino)
            .ok()
            .map(|file| describe_bytes(file, &file.pending[at].change)),
        Place::Names(at) => {
            let entries = &fs.name_changes[at].entries;
            Some(PendingItem::Names(
                entries
                    .iter()
                    .map(|e| (e.name.clone(), e.target.is_some()))
                    .collect(),
            ))
        }
    };
    places(fs).into_iter().filter_map(describe).collect()
}

fn describe_bytes(file: &FileNode, change: &ByteChange) -> PendingItem {
    let path = file.path.to_path_buf();
    match change {
        ByteChange::Write { offset, bytes } => {
            let range = *offset..*offset + bytes.len() as u64;
            PendingItem::Write {
                path,
                grows: range.end > file.durable.len_bytes(),
                range,
            }
        }
        ByteChange::SetLen { len_bytes } => PendingItem::SetLen {
            path,
            len_bytes: *len_bytes,
        },
        ByteChange::Allocate { range } => PendingItem::Allocate {
            path,
            range: range.clone(),
        },
    }
}

/// The choices worth trying on a state: drop all, keep all, all subsets or `subsets` random ones, up to
/// `tears` tears of the last write, and growth without data. Without pending items there is one choice.
pub(super) fn crash_choices(
    fs: &FsState,
    subsets: usize,
    tears: usize,
    seed: u64,
) -> Vec<CrashChoice> {
    let items = pending_items(fs);
    if items.is_empty() {
        return vec![CrashChoice::DropAll];
    }
    let mut choices = vec![CrashChoice::DropAll, CrashChoice::KeepAll];
    match u32::try_from(items.len())
        .ok()
        .and_then(|bits| 1_u64.checked_shl(bits))
    {
        Some(all) if all - 2 <= subsets as u64 => {
            choices.extend((1..all - 1).map(CrashChoice::Mask))
        }
        _ => choices.extend((0..subsets as u64).map(|i| CrashChoice::Subset {
            seed: seed.wrapping_add(i),
        })),
    }
    if let Some(last) = items
        .iter()
        .rposition(|item| matches!(item, PendingItem::Write { .. }))
    {
        choices.extend(tears_of(&items[last], tears));
        choices.extend(growth_without_data(&items, last));
    }
    choices
}

/// Tears of a write at sector edges, else at page edges: all of them if few enough, else cuts and holes.
fn tears_of(item: &PendingItem, limit: usize) -> Vec<CrashChoice> {
    let PendingItem::Write { range, .. } = item else {
        return Vec::new();
    };
    let tear = |unit_bytes| move |kept| CrashChoice::TearLast { unit_bytes, kept };
    let sectors = pieces(range.clone(), SECTOR_BYTES).count() as u64;
    if sectors < 32 && (1_usize << sectors) <= limit.saturating_add(2) {
        return (1..(1_u64 << sectors) - 1)
            .map(Kept::Bits)
            .map(tear(SECTOR_BYTES))
            .collect();
    }
    let pages = pieces(range.clone(), PAGE_BYTES).count() as u64;
    let of_unit = |unit_bytes: u64, units: u64| {
        let cuts = (1..units).map(Kept::First);
        let holes = (0..units.saturating_sub(1)).map(Kept::AllBut);
        cuts.chain(holes).map(tear(unit_bytes)).collect::<Vec<_>>()
    };
    let all = [of_unit(PAGE_BYTES, pages), of_unit(SECTOR_BYTES, sectors)].concat();
    let step = all.len().div_ceil(limit.max(1)).max(1);
    all.into_iter().step_by(step).take(limit).collect()
}

/// Everything survives, but of the last pending write one sector that it covers from end to end cannot be read, each one
/// in turn up to `limit` of them; then all of those.
pub(super) fn unreadable_choices(fs: &FsState, limit: usize) -> Vec<CrashChoice> {
    let items = pending_items(fs);
    let is_write = |item: &PendingItem| matches!(item, PendingItem::Write { .. });
    let Some(last) = items.iter().rposition(is_write) else {
        return Vec::new();
    };
    let PendingItem::Write { range, .. } = &items[last] else {
        return Vec::new();
    };
    let is_whole = |piece: &Range<u64>| piece.end - piece.start == SECTOR_BYTES;
    let whole: Vec<u64> = (0..64)
        .zip(pieces(range.clone(), SECTOR_BYTES))
        .filter(|(_, piece)| is_whole(piece))
        .map(|(unit, _)| 1 << unit)
        .collect();
    let step = whole.len().div_ceil(limit.max(1)).max(1);
    let mut chosen: Vec<u64> = whole.iter().copied().step_by(step).collect();
    if whole.len() > 1 {
        chosen.push(whole.iter().sum());
    }
    let with = |bits: u64| {
        let mut fates = vec![ItemFate::Keep; items.len()];
        fates[last] = ItemFate::Unreadable {
            unit_bytes: SECTOR_BYTES,
            kept: Kept::Bits(!bits),
            unreadable: Kept::Bits(bits),
        };
        CrashChoice::Items(fates)
    };
    // Units from the 64th on repeat the bits of the first ones: larger writes are left to choices made by hand.
    let is_small = pieces(range.clone(), SECTOR_BYTES).count() <= 64;
    chosen.into_iter().filter(|_| is_small).map(with).collect()
}

fn growth_without_data(items: &[PendingItem], last: usize) -> Vec<CrashChoice> {
    if !matches!(items[last], PendingItem::Write { grows: true, .. }) {
        return Vec::new();
    }
    let with = |fill| {
        let mut fates = vec![ItemFate::Keep; items.len()];
        fates[last] = ItemFate::SizeOnly(fill);
        CrashChoice::Items(fates)
    };
    vec![with(Fill::Zeros), with(Fill::Stale(0))]
}

/// The state after a crash. (`Kill` changes nothing that a state holds.)
pub(super) fn crash(fs: &FsState, choice: &CrashChoice) -> FsState {
    if *choice == CrashChoice::Kill {
        return fs.clone();
    }
    let places = places(fs);
    let fates = fates(fs, &places, choice);
    let mut of_file: BTreeMap<Ino, Vec<(usize, ItemFate)>> = BTreeMap::new();
    let mut lossy: BTreeSet<Ino> = BTreeSet::new();
    let mut dirs: BTreeMap<Ino, DirNode> = BTreeMap::new();
    for (place, fate) in places.into_iter().zip(fates) {
        if let (Place::File(ino, _), true) = (place, fate != ItemFate::Keep) {
            lossy.insert(ino);
        }
        match place {
            _ if fate == ItemFate::Drop => {}
            Place::File(ino, at) => of_file.entry(ino).or_default().push((at, fate)),
            Place::Names(at) => {
                for entry in &fs.name_changes[at].entries {
                    let Ok(dir) = fs.dir(entry.dir) else { continue };
                    let dir = dirs.entry(entry.dir).or_insert_with(|| dir.clone());
                    entry.apply(Arc::make_mut(&mut dir.durable));
                }
            }
        }
    }
    let survive = |ino: Ino, node: &Node| match node {
        Node::File(file) => Node::File(survivor(
            fs,
            file,
            of_file.get(&ino).map_or(&[], Vec::as_slice),
        )),
        Node::Dir(dir) => {
            let durable = Arc::clone(&dirs.get(&ino).unwrap_or(dir).durable);
            Node::Dir(DirNode {
                visible: Arc::clone(&durable),
                durable,
            })
        }
        Node::Link(target) => Node::Link(Arc::clone(target)),
    };
    keep_reachable(fs, &lossy, survive)
}

/// The fates of all items, in order.
fn fates(fs: &FsState, places: &[Place], choice: &CrashChoice) -> Vec<ItemFate> {
    let count = places.len();
    let keep = |kept: bool| if kept { ItemFate::Keep } else { ItemFate::Drop };
    match choice {
        CrashChoice::DropAll => vec![ItemFate::Drop; count],
        CrashChoice::KeepAll | CrashChoice::Kill => vec![ItemFate::Keep; count],
        CrashChoice::Prefix(first) => (0..count).map(|i| keep(i < *first)).collect(),
        CrashChoice::Mask(bits) => (0..count)
            .map(|i| keep(i < 64 && bits >> i & 1 == 1))
            .collect(),
        CrashChoice::Subset { seed } => {
            let mut random = fastrand::Rng::with_seed(*seed);
            (0..count).map(|_| keep(random.bool())).collect()
        }
        CrashChoice::Random { seed, unreadable } => {
            let mut random = fastrand::Rng::with_seed(*seed);
            (0..count)
                .map(|_| random_fate(&mut random, *unreadable))
                .collect()
        }
        CrashChoice::TearLast { unit_bytes, kept } => {
            let mut fates = vec![ItemFate::Keep; count];
            if let Some(last) = places.iter().rposition(|place| is_write(fs, *place)) {
                fates[last] = ItemFate::Torn {
                    unit_bytes: *unit_bytes,
                    kept: *kept,
                    grows: true,
                };
            }
            fates
        }
        CrashChoice::Items(given) => (0..count)
            .map(|i| given.get(i).copied().unwrap_or(ItemFate::Drop))
            .collect(),
    }
}

fn is_write(fs: &FsState, place: Place) -> bool {
    let Place::File(ino, at) = place else {
        return false;
    };
    fs.file(ino)
        .is_ok_and(|file| matches!(file.pending[at].change, ByteChange::Write { .. }))
}

fn random_fate(random: &mut fastrand::Rng, unreadable: bool) -> ItemFate {
    match random.u8(..if unreadable { 8 } else { 6 }) {
        0 | 1 => ItemFate::Drop,
        2 | 3 => ItemFate::Keep,
        4 => ItemFate::Torn {
            unit_bytes: if random.bool() {
                SECTOR_BYTES
            } else {
                PAGE_BYTES
            },
            kept: Kept::Bits(random.u64(..)),
            grows: random.bool(),
        },
        5 => ItemFate::SizeOnly(if random.bool() {
            Fill::Zeros
        } else {
            Fill::Stale(random.usize(..8))
        }),
        _ => random_unreadable(random),
    }
}

/// The fate of a write of which one of the first sectors cannot be read, or some of all.
fn random_unreadable(random: &mut fastrand::Rng) -> ItemFate {
    let bits = match random.bool() {
        true => 1 << random.u32(..16),
        false => random.u64(..) & random.u64(..) & random.u64(..),
    };
    ItemFate::Unreadable {
        unit_bytes: SECTOR_BYTES,
        kept: Kept::Bits(match random.bool() {
            true => !bits,
            false => random.u64(..),
        }),
        unreadable: Kept::Bits(bits),
    }
}

/// A file with the changes that survive, by their place among the pending ones.
fn survivor(fs: &FsState, file: &FileNode, kept: &[(usize, ItemFate)]) -> FileNode {
    let mut content = Arc::clone(&file.durable);
    for (at, fate) in kept {
        survive(
            fs,
            Arc::make_mut(&mut content),
            &file.pending[*at].change,
            *fate,
        );
    }
    FileNode {
        visible: Arc::clone(&content),
        durable: content,
        pending: Arc::default(),
        ..file.clone()
    }
}

fn survive(fs: &FsState, content: &mut Content, change: &ByteChange, fate: ItemFate) {
    let ByteChange::Write { offset, bytes } = change else {
        return change.apply(content);
    };
    let (old_len, end) = (content.len_bytes(), offset + bytes.len() as u64);
    match fate {
        ItemFate::Drop => {}
        ItemFate::Keep => change.apply(content),
        ItemFate::Torn {
            unit_bytes,
            kept,
            grows,
        } => {
            let mut rest: &[u8] = bytes;
            for (unit, piece) in (0..).zip(pieces(*offset..end, unit_bytes)) {
                let (part, after) = rest.split_at(super::content::index(piece.end - piece.start));
                rest = after;
                if kept.contains(unit) {
                    content.write(piece.start, part);
                }
            }
            if grows && end > content.len_bytes() {
                content.set_len(end);
            }
        }
        ItemFate::Unreadable {
            unit_bytes,
            kept,
            unreadable,
        } => {
            let torn = ItemFate::Torn {
                unit_bytes,
                kept,
                grows: true,
            };
            survive(fs, content, change, torn);
            for (unit, piece) in (0..).zip(pieces(*offset..end, unit_bytes)) {
                if unreadable.contains(unit) {
                    let start = piece.start / unit_bytes * unit_bytes;
                    content.make_unreadable(start..start + unit_bytes);
                }
            }
        }
        ItemFate::SizeOnly(fill) if end > old_len => {
            content.set_len(end);
            if let Fill::Stale(back) = fill
                && let Some(stale) = pick_stale(&fs.stale, back)
            {
                content.copy_from(stale, old_len..end);
            }
        }
        ItemFate::SizeOnly(_) => {}
    }
}

fn pick_stale(stale: &[Arc<Content>], back: usize) -> Option<&Content> {
    let back = back.checked_rem(stale.len())?;
    stale.iter().rev().nth(back).map(Arc::as_ref)
}

/// Builds the state of the nodes that names lead to. The bytes of the others, and of files that lost some,
/// may lie on the disk all the same and turn up again as stale.
fn keep_reachable(
    fs: &FsState,
    lossy: &BTreeSet<Ino>,
    survive: impl Fn(Ino, &Node) -> Node,
) -> FsState {
    let mut nodes = BTreeMap::new();
    let (mut open, mut seen) = (vec![ROOT], BTreeSet::from([ROOT]));
    while let Some(ino) = open.pop() {
        let Some(node) = fs.nodes.get(&ino) else {
            continue;
        };
        let node = survive(ino, node);
        if let Node::Dir(dir) = &node {
            open.extend(
                dir.durable
                    .values()
                    .copied()
                    .filter(|child| seen.insert(*child)),
            );
        }
        nodes.insert(ino, node);
    }
    let mut stale = fs.stale.clone();
    for (ino, node) in &fs.nodes {
        if let (Node::File(file), true) = (node, lossy.contains(ino) || !nodes.contains_key(ino)) {
            push_stale(&mut stale, Arc::clone(&file.visible));
        }
    }
    FsState::from_nodes(nodes, stale)
}
