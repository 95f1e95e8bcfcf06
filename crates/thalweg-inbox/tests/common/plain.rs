//! A plain log in place of that of the database: records one after the other, `live` with two slots, pins that are locks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_env::{Env, File, LockKind, OpenMode};
use thalweg_inbox::format::{
    AddHead, Edit, Fault, GroupBody, HeldGroup, InboxState, LogCommit, Stamp,
};
use thalweg_inbox::{Change, Database, Error, Log, Result, State, TableState};

pub const FOLDER: &str = "/db";
pub const ID: [u8; 16] = *b"inbox of arrays!";
/// In place of a table: a row outside of arrays.
const NOTE: u32 = u32::MAX;
const SLOT: usize = 96;
const LOG_ROOM: usize = 1 << 14;

/// One version of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub table: u32,
    pub coordinate: u64,
    pub value: u64,
    pub stamp: Stamp,
}

/// The cells of a body: pairs of coordinate and value, each with a checksum.
pub fn body(table: u32, definition: u32, cells: &[(u64, u64)]) -> GroupBody {
    GroupBody {
        head: AddHead { table, definition },
        list: coordinates(cells),
        blocks: Some(blocks(cells)),
    }
}

/// The same in a fragment.
pub fn staged(table: u32, definition: u32, id: u64, cells: &[(u64, u64)]) -> GroupBody {
    GroupBody {
        head: AddHead { table, definition },
        list: [&id.to_le_bytes()[..], &coordinates(cells)].concat(),
        blocks: None,
    }
}

fn coordinates(cells: &[(u64, u64)]) -> Vec<u8> {
    cells.iter().flat_map(|(at, _)| at.to_le_bytes()).collect()
}

pub fn blocks(cells: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, value) in cells {
        let cell = [at.to_le_bytes(), value.to_le_bytes()].concat();
        bytes.extend_from_slice(&cell);
        bytes.extend_from_slice(&u64::from(crc32c::crc32c(&cell)).to_le_bytes());
    }
    bytes
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn cells_of_blocks(bytes: &[u8]) -> std::result::Result<Vec<(u64, u64)>, Fault> {
    let mut cells = Vec::new();
    if !bytes.len().is_multiple_of(24) || bytes.is_empty() {
        return Err(Fault::Damaged("a block of another length"));
    }
    for cell in bytes.chunks(24) {
        if u64::from(crc32c::crc32c(&cell[..16])) != u64_at(cell, 16) {
            return Err(Fault::Damaged("a block does not verify"));
        }
        cells.push((u64_at(cell, 0), u64_at(cell, 8)));
    }
    Ok(cells)
}

fn list_of(body: &GroupBody) -> &[u8] {
    &body.list[if body.blocks.is_some() { 0 } else { 8 }..]
}

/// The cells of a body, read from its fragment if they are there.
pub fn cells_of(env: &Env, body: &GroupBody) -> std::result::Result<Vec<(u64, u64)>, Fault> {
    match &body.blocks {
        Some(blocks) => cells_of_blocks(blocks),
        None => {
            let id = u64_at(&body.list, 0);
            let path = Path::new(FOLDER).join(format!("data/{id:016x}.frag"));
            let read = || {
                let file = env.storage().open(&path, OpenMode::Read)?;
                let mut bytes = vec![0; 4096];
                let count = file.read_at(&mut bytes, 0)?;
                bytes.truncate(count);
                Ok(bytes)
            };
            let bytes =
                read().map_err(|_: std::io::Error| Fault::Damaged("a fragment is missing"))?;
            cells_of_blocks(&bytes)
        }
    }
}

/// The state of the log as a value.
#[derive(Clone, Debug, Default)]
pub struct Inner {
    pub at: LogCommit,
    pub inbox: InboxState,
    pub tables: BTreeMap<u32, TableState>,
    pub bodies: Vec<(Stamp, GroupBody)>,
    /// Versions that a vacuum left out.
    pub vacuumed: BTreeSet<(u32, u64, Stamp)>,
    pub problems: Vec<String>,
    /// The highest sequence that a row outside of arrays tells of.
    pub noted: u64,
}

/// A snapshot in use, as others see it.
#[derive(Debug)]
struct Pin {
    file: Arc<dyn File>,
    at: u64,
    pins: Rc<RefCell<BTreeMap<u64, usize>>>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.borrow_mut();
        let count = pins.get_mut(&self.at).unwrap();
        *count -= 1;
        if *count == 0 {
            pins.remove(&self.at);
            let _ = self.file.unlock(self.at..self.at + 1);
        }
    }
}

#[derive(Clone, Debug)]
pub struct PlainState {
    pub inner: Rc<Inner>,
    env: Env,
    _pin: Option<Rc<Pin>>,
}

impl State for PlainState {
    fn at(&self) -> LogCommit {
        self.inner.at
    }

    fn inbox(&self) -> &InboxState {
        &self.inner.inbox
    }

    fn table(&self, table: u32) -> TableState {
        self.inner
            .tables
            .get(&table)
            .copied()
            .unwrap_or(TableState::Unknown)
    }

    fn has_fragment(&self, id: u64) -> bool {
        let bodies = self
            .inner
            .bodies
            .iter()
            .filter(|(_, body)| body.blocks.is_none());
        bodies
            .map(|(_, body)| u64_at(&body.list, 0))
            .any(|named| named == id)
    }

    fn meets(&self, above: u64, bodies: &[GroupBody]) -> bool {
        let later = self
            .inner
            .bodies
            .iter()
            .filter(|(stamp, _)| stamp.sequence > above);
        later
            .into_iter()
            .any(|(_, a)| bodies.iter().any(|b| self.share_cells(a, b)))
    }

    fn fragments(&self, body: &GroupBody) -> std::result::Result<Vec<u64>, Fault> {
        match body.blocks {
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![u64_at(&body.list, 0)]),
        }
    }

    fn verify(&self, body: &GroupBody) -> std::result::Result<(), Fault> {
        cells_of(&self.env, body).map(drop)
    }

    fn share_cells(&self, a: &GroupBody, b: &GroupBody) -> bool {
        let of_b: BTreeSet<&[u8]> = list_of(b).chunks(8).collect();
        a.head.table == b.head.table && list_of(a).chunks(8).any(|at| of_b.contains(at))
    }
}

impl PlainState {
    /// The versions of cells of the state, without what is held.
    pub fn cells(&self) -> std::result::Result<Vec<Cell>, Fault> {
        let mut cells = Vec::new();
        for (stamp, body) in &self.inner.bodies {
            let table = body.head.table;
            for (coordinate, value) in cells_of(&self.env, body)? {
                if !self.inner.vacuumed.contains(&(table, coordinate, *stamp)) {
                    cells.push(Cell {
                        table,
                        coordinate,
                        value,
                        stamp: *stamp,
                    });
                }
            }
        }
        Ok(cells)
    }

    /// The versions that a vacuum up to a floor leaves out.
    pub fn left_out(&self, table: u32, floor: i64) -> Option<Vec<u8>> {
        // It may have been stopped in the middle.
        let cells = self.cells().ok()?;
        let of_table = || cells.iter().filter(|cell| cell.table == table);
        let hides = |v: &Cell, w: &Cell| {
            w.coordinate == v.coordinate && w.stamp > v.stamp && w.stamp.time <= floor
        };
        let mut bytes = table.to_le_bytes().to_vec();
        for v in of_table().filter(|v| of_table().any(|w| hides(v, w))) {
            bytes.extend_from_slice(&v.coordinate.to_le_bytes());
            bytes.extend_from_slice(&v.stamp.time.to_le_bytes());
            bytes.extend_from_slice(&v.stamp.sequence.to_le_bytes());
        }
        (bytes.len() > 4).then_some(bytes)
    }
}

/// What `live` says.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    change: u64,
    boot: [u8; 16],
    visible: LogCommit,
    end: u64,
    floor: LogCommit,
}

/// The plain log as one process has it open.
#[derive(Debug)]
pub struct Plain {
    env: Env,
    log: Arc<dyn File>,
    live: Arc<dyn File>,
    readers: Arc<dyn File>,
    pins: Rc<RefCell<BTreeMap<u64, usize>>>,
    writer: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    _lock: Arc<dyn File>,
    current: Rc<Inner>,
    end: u64,
    live: Live,
    has_failed: bool,
}

fn open(env: &Env, name: &str) -> Result<Arc<dyn File>> {
    let path = Path::new(FOLDER).join(name);
    let opened = env.storage().open(&path, OpenMode::ReadWrite);
    opened.map_err(Error::io(name))
}

impl Plain {
    pub fn open(env: &Env) -> Result<Plain> {
        Ok(Plain {
            env: env.clone(),
            log: open(env, "log")?,
            live: open(env, "live")?,
            readers: open(env, "readers")?,
            pins: Rc::default(),
            writer: None,
        })
    }

    /// Opens for writing: recovers the log, and begins an epoch.
    pub fn open_writer(env: &Env) -> Result<Plain> {
        let mut plain = Plain::open(env)?;
        let lock = open(env, "lock")?;
        while !lock
            .try_lock(0..1, LockKind::Exclusive)
            .map_err(Error::io("lock"))?
        {
            env.clock().sleep(Duration::from_millis(1));
        }
        let live = plain.read_live()?;
        let (inner, end) = plain.read_log(u64::MAX)?;
        let mut current = inner;
        current.at.epoch += 1;
        let record = record(current.at, &[]);
        let io = || Error::io("log");
        plain.log.set_len(end).map_err(io())?;
        plain.log.write_all_at(&record, end).map_err(io())?;
        plain.log.sync_data().map_err(io())?;
        plain.writer = Some(Writing {
            _lock: lock,
            current: Rc::new(current),
            end: end + record.len() as u64,
            live,
            has_failed: false,
        });
        plain.show()?;
        Ok(plain)
    }

    fn read_live(&self) -> Result<Live> {
        let mut bytes = [0; 2 * SLOT];
        let read = self.live.read_at(&mut bytes, 0);
        read.map_err(Error::io("live"))?;
        let slots = bytes.chunks(SLOT).filter_map(decode_slot);
        let boot = self.env.clock().boot_id();
        let best = slots.max_by_key(|live| (live.boot == boot, live.change));
        Ok(best.unwrap_or_default())
    }

    fn read_log(&self, until: u64) -> Result<(Inner, u64)> {
        let mut bytes = vec![0; LOG_ROOM];
        let mut read = self.log.read_at(&mut bytes, 0).map_err(Error::io("log"))?;
        while read == bytes.len() {
            bytes = vec![0; 2 * read];
            read = self.log.read_at(&mut bytes, 0).map_err(Error::io("log"))?;
        }
        bytes.truncate(read);
        let (mut inner, mut end) = (Inner::default(), 0);
        while end < until
            && let Some((at, changes, length)) =
                decode_record(&bytes[usize::try_from(end).unwrap()..], inner.at)
        {
            inner.at = at;
            changes
                .into_iter()
                .for_each(|change| apply(&mut inner, change));
            end += length;
        }
        assert!(
            until == u64::MAX || end == until,
            "the log lacks what is shown"
        );
        Ok((inner, end))
    }

    fn pin(&self, at: u64) -> Result<Pin> {
        let known = *self
            .pins
            .borrow_mut()
            .entry(at)
            .and_modify(|count| *count += 1)
            .or_insert(1);
        let pin = Pin {
            file: Arc::clone(&self.readers),
            at,
            pins: Rc::clone(&self.pins),
        };
        if known == 1 {
            let locked = self.readers.try_lock(at..at + 1, LockKind::Shared);
            assert!(
                locked.map_err(Error::io("readers"))?,
                "nobody excludes pins"
            );
        }
        Ok(pin)
    }

    fn state_of(&self, inner: Rc<Inner>, pin: Option<Pin>) -> PlainState {
        PlainState {
            inner,
            env: self.env.clone(),
            _pin: pin.map(Rc::new),
        }
    }
}

fn pin_of(at: LogCommit) -> u64 {
    16 + (u64::from(at.epoch) << 20) + at.commit
}

fn decode_slot(bytes: &[u8]) -> Option<Live> {
    let crc = u64::from(crc32c::crc32c(&bytes[..SLOT - 8]));
    if u64_at(bytes, SLOT - 8) != crc || bytes[..8] == [0; 8] {
        return None;
    }
    let commit = |at| LogCommit {
        epoch: u32::try_from(u64_at(bytes, at)).unwrap(),
        commit: u64_at(bytes, at + 8),
    };
    Some(Live {
        change: u64_at(bytes, 0),
        boot: bytes[8..24].try_into().unwrap(),
        visible: commit(24),
        end: u64_at(bytes, 40),
        floor: commit(48),
    })
}

fn encode_slot(live: &Live) -> Vec<u8> {
    let mut bytes = live.change.to_le_bytes().to_vec();
    bytes.extend_from_slice(&live.boot);
    for value in [
        live.visible.epoch.into(),
        live.visible.commit,
        live.end,
        live.floor.epoch.into(),
        live.floor.commit,
    ] {
        bytes.extend_from_slice(&u64::to_le_bytes(value));
    }
    bytes.resize(SLOT - 8, 0);
    let crc = u64::from(crc32c::crc32c(&bytes));
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn take(bytes: &mut &[u8]) -> Vec<u8> {
    let length = usize::try_from(u64_at(bytes, 0)).unwrap();
    let part = bytes[8..8 + length].to_vec();
    *bytes = &bytes[8 + length..];
    part
}

fn encode_change(change: &Change) -> Vec<u8> {
    let pair =
        |kind: u8, a: u32, b: u32| [&[kind][..], &a.to_le_bytes(), &b.to_le_bytes()].concat();
    match change {
        Change::Cells(stamp, body) => {
            let mut bytes = vec![1];
            put(&mut bytes, &Edit::Stamp(*stamp).encode());
            put(&mut bytes, &body.head.encode());
            put(&mut bytes, &body.list);
            put(&mut bytes, &[u8::from(body.blocks.is_some())]);
            put(&mut bytes, body.blocks.as_deref().unwrap_or_default());
            bytes
        }
        Change::Adopt(adopt) => [&[2][..], &Edit::Adopt(adopt.clone()).encode()].concat(),
        Change::Stamp(stamp) => [&[2][..], &Edit::Stamp(*stamp).encode()].concat(),
        Change::Floor(floor) => [&[2][..], &Edit::Floor(*floor).encode()].concat(),
        Change::Create(table, version) => pair(3, *table, *version),
        Change::Define(table, version) => pair(4, *table, *version),
        Change::Drop(table) => pair(5, *table, 0),
        Change::Other(bytes) => [&[6][..], bytes].concat(),
    }
}

fn decode_change(mut bytes: &[u8]) -> Change {
    let kind = bytes[0];
    bytes = &bytes[1..];
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    match kind {
        1 => {
            let Ok(Edit::Stamp(stamp)) = Edit::decode(&take(&mut bytes)) else {
                panic!("no stamp");
            };
            let head = take(&mut bytes);
            let of_head = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let list = take(&mut bytes);
            let has_blocks = take(&mut bytes) == [1];
            let blocks = take(&mut bytes);
            let head = AddHead {
                table: of_head(0),
                definition: of_head(8),
            };
            let blocks = has_blocks.then_some(blocks);
            Change::Cells(stamp, GroupBody { head, list, blocks })
        }
        2 => match Edit::decode(bytes).unwrap() {
            Edit::Adopt(adopt) => Change::Adopt(adopt),
            Edit::Stamp(stamp) => Change::Stamp(stamp),
            Edit::Floor(floor) => Change::Floor(floor),
        },
        3 => Change::Create(u32_at(0), u32_at(4)),
        4 => Change::Define(u32_at(0), u32_at(4)),
        5 => Change::Drop(u32_at(0)),
        _ => Change::Other(bytes.to_vec()),
    }
}

fn record(at: LogCommit, changes: &[Change]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&u64::from(at.epoch).to_le_bytes());
    body.extend_from_slice(&at.commit.to_le_bytes());
    for change in changes {
        put(&mut body, &encode_change(change));
    }
    let mut bytes = (body.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&u64::from(crc32c::crc32c(&body)).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

fn decode_record(bytes: &[u8], before: LogCommit) -> Option<(LogCommit, Vec<Change>, u64)> {
    let length = usize::try_from(u64_at(bytes.get(..16)?, 0)).ok()?;
    let body = bytes.get(16..16_usize.checked_add(length)?)?;
    if length < 16 || u64::from(crc32c::crc32c(body)) != u64_at(bytes, 8) {
        return None;
    }
    let at = LogCommit {
        epoch: u32::try_from(u64_at(body, 0)).ok()?,
        commit: u64_at(body, 8),
    };
    let mut rest = &body[16..];
    let mut changes = Vec::new();
    while !rest.is_empty() {
        changes.push(decode_change(&take(&mut rest)));
    }
    (at > before).then_some((at, changes, 16 + length as u64))
}

fn apply(inner: &mut Inner, change: Change) {
    let applied = match change {
        Change::Cells(stamp, body) => {
            inner.bodies.push((stamp, body));
            Ok(())
        }
        Change::Adopt(adopt) => inner.inbox.adopt(&adopt),
        Change::Stamp(stamp) => inner.inbox.stamp(stamp),
        Change::Floor(floor) => {
            inner.inbox.raise_floor(floor);
            Ok(())
        }
        Change::Create(table, version) | Change::Define(table, version) => {
            inner.tables.insert(table, TableState::There(version));
            Ok(())
        }
        Change::Drop(table) => {
            inner.tables.insert(table, TableState::Dropped);
            inner.bodies.retain(|(_, body)| body.head.table != table);
            inner.inbox.drop_table(table);
            Ok(())
        }
        Change::Other(bytes) => {
            let table = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            if table == NOTE {
                inner.noted = u64_at(&bytes, 4);
                return;
            }
            for version in bytes[4..].chunks(24) {
                let time = i64::from_le_bytes(version[8..16].try_into().unwrap());
                let sequence = u64_at(version, 16);
                let stamp = Stamp { time, sequence };
                inner.vacuumed.insert((table, u64_at(version, 0), stamp));
            }
            Ok(())
        }
    };
    if let Err(fault) = applied {
        inner
            .problems
            .push(format!("commit {:?}: {fault:?}", inner.at));
    }
}

impl Database for Plain {
    type State = PlainState;

    fn state(&mut self) -> Result<PlainState> {
        if let Some(writer) = &self.writer {
            if writer.has_failed {
                return Err(Error::Unavailable);
            }
            return Ok(self.state_of(Rc::clone(&writer.current), None));
        }
        let everything = self.pin(0)?;
        let (inner, _) = loop {
            let live = self.read_live()?;
            if live.boot == self.env.clock().boot_id() {
                break self.read_log(live.end)?;
            }
            let read = self.read_log(u64::MAX)?;
            if self.read_live()?.change == live.change {
                break read;
            }
        };
        let pin = self.pin(pin_of(inner.at))?;
        drop(everything);
        Ok(self.state_of(Rc::new(inner), Some(pin)))
    }

    fn live(&mut self) -> Result<Option<LogCommit>> {
        let live = self.read_live()?;
        Ok((live.change > 0).then_some(live.visible))
    }

    fn is_expired(&mut self, state: &PlainState) -> Result<bool> {
        Ok(self.read_live()?.floor > state.at())
    }
}

impl Log for Plain {
    fn commit(&mut self, build: &mut thalweg_inbox::Build<'_, PlainState>) -> Result<()> {
        self.commit_unshown(build)?;
        self.show()
    }

    fn commit_unshown(&mut self, build: &mut thalweg_inbox::Build<'_, PlainState>) -> Result<()> {
        let writer = self.writer.as_ref().expect("only the writer commits");
        if writer.has_failed {
            return Err(Error::Unavailable);
        }
        let (current, end) = (Rc::clone(&writer.current), writer.end);
        let mut number = current.at;
        number.commit += 1;
        let changes = build(number, &self.state_of(Rc::clone(&current), None))?;
        if changes.is_empty() {
            return Ok(());
        }
        let record = record(number, &changes);
        let write = || {
            self.log.write_all_at(&record, end)?;
            self.log.sync_data()
        };
        if let Err(source) = write() {
            self.writer.as_mut().unwrap().has_failed = true;
            return Err(Error::OutcomeUnknown { source });
        }
        let mut inner = Inner::clone(&current);
        inner.at = number;
        changes
            .into_iter()
            .for_each(|change| apply(&mut inner, change));
        assert!(inner.problems.is_empty(), "{:?}", inner.problems);
        let writer = self.writer.as_mut().unwrap();
        writer.current = Rc::new(inner);
        writer.end = end + record.len() as u64;
        Ok(())
    }

    fn show(&mut self) -> Result<()> {
        let boot = self.env.clock().boot_id();
        let writer = self.writer.as_mut().unwrap();
        if writer.live.visible == writer.current.at && writer.live.boot == boot {
            return Ok(());
        }
        writer.live = Live {
            change: writer.live.change + 1,
            boot,
            visible: writer.current.at,
            end: writer.end,
            ..writer.live
        };
        let live = writer.live;
        match self.write_live(&live) {
            Err(Error::Io { source, .. }) => {
                self.writer.as_mut().unwrap().has_failed = true;
                Err(Error::OutcomeUnknown { source })
            }
            written => written,
        }
    }

    fn raise_garbage_floor(&mut self, to: LogCommit) -> Result<bool> {
        let writer = self.writer.as_mut().unwrap();
        if writer.live.floor < to {
            writer.live.change += 1;
            writer.live.floor = to;
            let live = writer.live;
            self.write_live(&live)?;
        }
        let pinned = self.readers.is_locked(0..pin_of(to));
        Ok(!pinned.map_err(Error::io("readers"))?)
    }
}

impl Plain {
    fn write_live(&self, live: &Live) -> Result<()> {
        let at = live.change % 2 * SLOT as u64;
        let written = self.live.write_all_at(&encode_slot(live), at);
        written.map_err(Error::io("live"))
    }
}

/// A row outside of arrays, which tells what was seen of them.
pub fn note(sequence: u64) -> Change {
    let note = [&NOTE.to_le_bytes()[..], &sequence.to_le_bytes()].concat();
    Change::Other(note)
}

/// Makes a database with arrays, everything of it on disk.
pub fn create(env: &Env, tables: u32) {
    let storage = env.storage();
    for folder in [FOLDER, "/db/data"] {
        storage.create_dir(Path::new(folder)).unwrap();
    }
    for name in ["log", "live", "readers", "lock"] {
        let path = Path::new(FOLDER).join(name);
        storage.open(&path, OpenMode::CreateNew).unwrap();
    }
    let at = LogCommit {
        epoch: 1,
        commit: 1,
    };
    let changes: Vec<Change> = (1..=tables).map(|table| Change::Create(table, 1)).collect();
    let log = open(env, "log").unwrap();
    log.write_all_at(&record(at, &changes), 0).unwrap();
    thalweg_inbox::create_inbox(env, Path::new(FOLDER), ID, at).unwrap();
}

/// A held group that no test needs to look into.
pub fn is_held(state: &PlainState, frame: u64, table: u32) -> Option<HeldGroup> {
    state.inbox().held.get(&(frame, table)).copied()
}
