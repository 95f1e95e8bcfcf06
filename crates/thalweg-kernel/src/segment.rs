//! The files of the log: their header, and segments prepared ahead.
//!
//! Invariants: a segment is written from front to back and never again once the next one has begun. Space is filled with
//! zeros and synced before the first frame goes into it, so that a sync of a frame writes data and no metadata (147 us
//! against 209 us for a small one) and a full disk shows here, where nothing is at stake.

use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Failure, Outcome, fatal};
use crate::fields::{Fields, PutFields};
use crate::frame::{FRAME_ALIGN, NEXT_FRAME_BYTES, SECTOR_BYTES};
use crate::free_space::FreeSpace;
use crate::ids::{DatabaseId, Epoch, FileId, LogPosition};
use crate::paths::{list_ids, list_segments, log_dir, segment_path};
use crate::rules::Rule;
use crate::wire::{Fault, is_sound_le};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::{Dir, Env, File, OpenMode, is_unreadable};

pub(crate) const SEGMENT_MAGIC: &[u8; 8] = b"THWLOG01";
pub(crate) const SEGMENT_HEADER_BYTES: usize = 128;
pub(crate) const FORMAT_VERSION: u32 = 6;
/// Size of the first segment of an epoch; each next one is twice as large, up to the option.
pub(crate) const FIRST_SEGMENT_BYTES: u64 = 64 << 10;
/// How much is filled by one write. Linux caches what one write brings as one folio, and ext4 walks all blocks of a folio
/// at each later write into it: after fills of 1 MiB the write of a row takes 1.8 us, after these 0.8 us.
const ZERO_FILL_BYTES: usize = 64 << 10;
/// How much of a spare is filled before it is synced. Commits meanwhile wait for what one sync writes: with one sync for 64 MiB some of
/// 10,000 rows took 35 to 50 ms, and the slowest one in a hundred took 9 ms; with these it takes 3 ms.
const SYNCED_FILL_BYTES: u64 = 1 << 20;
const COMPARE_BYTES: usize = 64 << 10;
const SPARE_SUFFIX: &str = ".spare";

/// The content of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) database: DatabaseId,
    pub(crate) file: FileId,
    pub(crate) epoch: Epoch,
    /// Where the frames of the previous segment end; `None` for the first of an epoch.
    pub(crate) previous: Option<LogPosition>,
    /// CRC of the last frame's header there.
    pub(crate) previous_crc: u32,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(self.epoch.0);
        out.extend_from_slice(&self.database.0);
        out.put_u64(self.file.0);
        let previous = self.previous.unwrap_or_default();
        out.put_u64(previous.segment.0);
        out.put_u64(previous.offset);
        out.put_u32(self.previous_crc);
        out.resize(SEGMENT_HEADER_BYTES - 4, 0);
        out.put_u32(crc32c::crc32c(&out));
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }

    /// `Ok(None)`: a segment that nothing was written to.
    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES], place: &Path) -> Result<Option<Self>> {
        if bytes.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let damage = |what: &str| Error::corruption(format_args!("{} at 0", place.display()), what);
        if bytes[..8] != *SEGMENT_MAGIC {
            return Err(damage("not a log segment"));
        }
        let (front, crc) = bytes.split_at(SEGMENT_HEADER_BYTES - 4);
        if !is_sound_le(crc32c::crc32c(front), crc) {
            return Err(damage("checksum of the segment header"));
        }
        let mut wire = Fields::new(&front[8..], "segment header");
        let version = wire.u32()?;
        if version != FORMAT_VERSION {
            let fault = Fault::version(version, FORMAT_VERSION);
            return Err(fault.at(format_args!("{} at 0", place.display()), "the log segment"));
        }
        let epoch = Epoch(wire.u32()?);
        let database = DatabaseId(wire.id()?);
        let file = FileId(wire.u64()?);
        let previous = LogPosition {
            segment: FileId(wire.u64()?),
            offset: wire.u64()?,
        };
        let previous_crc = wire.u32()?;
        wire.reserved(64)
            .map_err(|e| e.in_bytes_at(format_args!("{} at 0", place.display())))?;
        let previous = (previous != LogPosition::default()).then_some(previous);
        Ok(Some(Self {
            database,
            file,
            epoch,
            previous,
            previous_crc,
        }))
    }
}

/// Reads the header of a segment.
pub(crate) fn read_header(file: &dyn File, place: &Path) -> Result<Option<SegmentHeader>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => SegmentHeader::decode(&bytes, place),
        // Cut short while it was prepared: nothing was in it.
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(Error::io(format_args!("reading {}", place.display()), e)),
    }
}

/// Reads the header; one that does not verify proves no more than none: its first write was torn, or it is damaged.
pub(crate) fn whole_header(file: &dyn File, place: &Path) -> Result<Option<SegmentHeader>> {
    match read_header(file, place) {
        Err(e) if e.kind() == ErrorKind::Corruption => Ok(None),
        read => read,
    }
}

/// Opens a segment that must be there, to read it.
pub(crate) fn open_segment(env: &Env, path: &Path) -> Result<Arc<dyn File>> {
    let missing = || Error::corruption(path.display(), "the file is missing");
    find_segment(env, path)?.ok_or_else(missing)
}

/// Opens a segment to read it, if it is there.
pub(crate) fn find_segment(env: &Env, path: &Path) -> Result<Option<Arc<dyn File>>> {
    match env.storage().open(path, OpenMode::Read) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(format_args!("opening {}", path.display()), e)),
    }
}

/// Whether the file at `place` holds all that another segment does that is still there, and no more.
///
/// A beginning that both share proves nothing: a file that was named empty may show, after a power cut, bytes that the disk
/// held before, and of a segment that has grown since or was cut it may have held an earlier version.
pub(crate) fn is_copy(env: &Env, file: &dyn File, place: &Path, other: &Path) -> Result<bool> {
    let comparing = format_args!("comparing {} with {}", place.display(), other.display());
    let reading = |e| Error::io(comparing, e);
    let other = match env.storage().open(other, OpenMode::Read) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(reading)?,
    };
    let lens = [file.len_bytes(), other.len_bytes()];
    let [len_bytes, other_bytes] = lens.map(|len| len.map_err(reading));
    let (len_bytes, other_bytes) = (len_bytes?, other_bytes?);
    if len_bytes != other_bytes {
        return Ok(false);
    }
    let (mut here, mut there) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut at = 0;
    while at < len_bytes {
        let piece = COMPARE_BYTES.min(usize::try_from(len_bytes - at).unwrap_or(COMPARE_BYTES));
        file.read_exact_at(&mut here[..piece], at)
            .map_err(reading)?;
        other
            .read_exact_at(&mut there[..piece], at)
            .map_err(reading)?;
        if here[..piece] != there[..piece] {
            return Ok(false);
        }
        at += piece as u64;
    }
    Ok(true)
}

/// A file of zeros that is on disk, durable, and not yet part of the log.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity_bytes: u64,
}

/// A spare that got its id, and with it its place after all segments before it.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) id: FileId,
    /// Its path as long as it has no name of a segment: [`name_first`] gives it that.
    pub(crate) unnamed: Option<PathBuf>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity_bytes: u64,
    /// Kept for a full disk: what does not free space is to go elsewhere.
    pub(crate) is_reserve: bool,
}

/// Makes a spare and syncs it. It gets its id when it is used, so that ids rise along the log. Where the disk has reported more
/// room than it had, it must have room for `beside_bytes` more.
pub(crate) fn make_spare(
    env: &Env,
    database: &Path,
    number: FileId,
    (capacity_bytes, beside_bytes): (u64, u64),
    free: &FreeSpace,
) -> Result<Spare> {
    let path = spare_path(database, number);
    let file = create(env, &path, capacity_bytes, free, |file| {
        if free.was_overstated() && capacity_bytes > 0 {
            // Else each refused attempt writes zeros over all the room that there is, and others find none meanwhile. It is
            // given back: where every write takes new room, the zeros would take as much again.
            file.allocate(0, capacity_bytes + beside_bytes)?;
            file.set_len(0)?;
        }
        let mut at = 0;
        while capacity_bytes - at > SYNCED_FILL_BYTES {
            fill_with_zeros(file, at..at + SYNCED_FILL_BYTES)?;
            at += SYNCED_FILL_BYTES;
            // All of it, as below: its size is new, so that a sync of its data alone would cost the same.
            file.sync_all()?;
        }
        fill_with_zeros(file, at..capacity_bytes)?;
        file.sync_all()
    })?;
    Ok(Spare {
        path,
        file,
        capacity_bytes,
    })
}

/// Makes the first segment of an epoch, under the name of a spare and not synced: the one sync of its frames does for the
/// zeros as well, and [`name_first`] then names it. Under its own name what a power cut leaves of it could be bytes that
/// the disk held before: of a segment with the same id and epoch, where the name of that one was lost.
///
/// All of it gets its space, and the part after `front_bytes` its zeros: what is before that is written before the
/// first sync.
pub(crate) fn make_first(
    env: &Env,
    database: &Path,
    id: FileId,
    (front_bytes, capacity_bytes): (u64, u64),
    free: &FreeSpace,
) -> Result<Prepared> {
    let path = spare_path(database, id);
    let file = create(env, &path, capacity_bytes, free, |file| {
        if front_bytes > 0 {
            file.allocate(0, capacity_bytes)?;
        }
        fill_with_zeros(file, front_bytes..capacity_bytes)
    })?;
    Ok(Prepared {
        id,
        unnamed: Some(path),
        file,
        capacity_bytes,
        is_reserve: false,
    })
}

fn create(
    env: &Env,
    path: &Path,
    capacity_bytes: u64,
    free: &FreeSpace,
    fill: impl FnOnce(&dyn File) -> std::io::Result<()>,
) -> Result<Arc<dyn File>> {
    let fail = |e| Error::io(format_args!("preparing log segment {}", path.display()), e);
    let file = env
        .storage()
        .open(path, OpenMode::CreateNew)
        .map_err(fail)?;
    match fill(&*file) {
        Ok(()) => Ok(file),
        Err(e) => {
            let error = fail(e);
            free.note_refused(&error, capacity_bytes);
            // It holds nothing, so nothing is lost with it; if even this fails, the next open removes it.
            let _ = env.storage().remove_file(path);
            Err(error)
        }
    }
}

/// A spare that an earlier process left behind, if it is whole and still all zeros.
pub(crate) fn adopt_spare(env: &Env, path: &Path) -> Result<Option<Spare>> {
    let fail = |e| Error::io(format_args!("reading {}", path.display()), e);
    let file = env
        .storage()
        .open(path, OpenMode::ReadWrite)
        .map_err(fail)?;
    let capacity_bytes = file.len_bytes().map_err(fail)?;
    if end_of_bytes(&*file, path, 0..capacity_bytes)? > 0 {
        return Ok(None);
    }
    file.sync_all().map_err(fail)?;
    Ok(Some(Spare {
        path: path.to_owned(),
        file,
        capacity_bytes,
    }))
}

/// Writes zeros over all of a spare, where zeros are; returns whether there was room for that. A copy-on-write file system puts
/// them elsewhere, so that what is written there later finds room as well, unless somebody takes it before.
pub(crate) fn overwrite(spare: &Spare) -> Result<bool> {
    let fail = |e| Error::io(format_args!("writing {}", spare.path.display()), e);
    let written = fill_with_zeros(&*spare.file, 0..spare.capacity_bytes).map_err(fail);
    let lacks_room = is_full(&written);
    if !lacks_room {
        written?;
    }
    // Where there was no room, too: it gives back to the file system what was written, or what that has replaced.
    let synced = spare.file.sync_data().map_err(fail);
    if lacks_room || is_full(&synced) {
        return Ok(false);
    }
    synced.map(|()| true)
}

/// Whether something failed because the disk is full.
pub(crate) fn is_full<T>(done: &Result<T>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::DiskFull)
}

/// Cuts off what is not written yet of the segments from the end of a log to the first one of another, so that its space is free.
/// They read the same: where a segment ends, nothing was written. What is not zeros stays, such as the end of a torn write, and
/// what cannot be cut.
pub(crate) fn cut_unwritten(
    env: &Env,
    database: &Path,
    end: LogPosition,
    next: Option<FileId>,
) -> Result<()> {
    let is_behind = |id: &FileId| *id >= end.segment && next.is_none_or(|next| *id < next);
    for id in list_segments(env, database)?.into_iter().filter(is_behind) {
        let from = match id == end.segment {
            true => end.offset,
            false => 0,
        };
        let path = segment_path(database, id);
        let opened = env.storage().open(&path, OpenMode::ReadWrite);
        let file = opened.map_err(|e| Error::io(format_args!("opening {}", path.display()), e))?;
        let len_bytes = file.len_bytes();
        let len_bytes =
            len_bytes.map_err(|e| Error::io(format_args!("reading {}", path.display()), e))?;
        let end = match end_of_bytes(&*file, &path, from.min(len_bytes)..len_bytes)? {
            end if end == from => end,
            // A torn write is left as it is, to the end of its sector.
            end => end.next_multiple_of(SECTOR_BYTES).min(len_bytes),
        };
        if end < len_bytes {
            // On some full disks even this takes room; then it stays as it is.
            let _ = file.set_len(end);
        }
    }
    Ok(())
}

/// Where the zeros begin with which a range of a file ends.
fn end_of_bytes(file: &dyn File, path: &Path, range: std::ops::Range<u64>) -> Result<u64> {
    let fail = |e| Error::io(format_args!("reading {}", path.display()), e);
    let mut piece = vec![0; ZERO_FILL_BYTES];
    let mut end = range.end;
    while end > range.start {
        let bytes = usize::try_from(end - range.start)
            .unwrap_or(ZERO_FILL_BYTES)
            .min(ZERO_FILL_BYTES);
        let at = end - bytes as u64;
        match file.read_exact_at(&mut piece[..bytes], at) {
            // A power cut may have torn it so: it is no zeros.
            Err(error) if is_unreadable(&error) => return Ok(end),
            read => read.map_err(fail)?,
        }
        if let Some(last) = piece[..bytes].iter().rposition(|byte| *byte != 0) {
            return Ok(at + last as u64 + 1);
        }
        end = at;
    }
    Ok(range.start)
}

fn name_segment(env: &Env, database: &Path, from: &Path, id: FileId) -> Result<()> {
    let path = segment_path(database, id);
    let renamed = env.storage().rename(from, &path);
    renamed.map_err(|e| Error::io(format_args!("naming log segment {}", path.display()), e))
}

/// The open folder of the log.
///
/// Opened before a segment is named: where that fails, for want of descriptors or memory, nothing has happened yet, and the next
/// commit tries again. After the renaming only the sync itself can fail, and it is not known what that has lost.
#[derive(Debug)]
pub(crate) struct LogFolder {
    path: PathBuf,
    open: Arc<dyn Dir>,
}

impl LogFolder {
    pub(crate) fn open(env: &Env, database: &Path) -> Result<Self> {
        let path = log_dir(database);
        let open = env.storage().open_dir(&path);
        let open = open.map_err(|e| Error::io(format_args!("opening {}", path.display()), e))?;
        Ok(Self { path, open })
    }

    /// Makes the names in it durable.
    fn sync(&self) -> Result<()> {
        if !Rule::SyncNames.is_kept() {
            return Ok(());
        }
        let synced = self.open.sync();
        synced.map_err(|e| Error::io(format_args!("syncing {}", self.path.display()), e))
    }
}

/// Gives the first segment of an epoch its name, if [`make_first`] made it, once all of it is synced; the names of the
/// epoch's segments are then durable.
pub(crate) fn name_first(
    env: &Env,
    database: &Path,
    folder: &LogFolder,
    id: FileId,
    unnamed: Option<&Path>,
) -> Result<()> {
    if let Some(path) = unnamed {
        name_segment(env, database, path, id)?;
    }
    folder.sync()
}

/// Makes a spare the segment of an id; its name is durable before anything goes into it.
pub(crate) fn use_spare(
    env: &Env,
    database: &Path,
    spare: &Spare,
    id: FileId,
) -> Outcome<Prepared> {
    let folder = LogFolder::open(env, database).map_err(Failure::Refused)?;
    name_segment(env, database, &spare.path, id).map_err(Failure::Refused)?;
    folder.sync().map_err(fatal)?;
    Ok(Prepared {
        id,
        unnamed: None,
        file: Arc::clone(&spare.file),
        capacity_bytes: spare.capacity_bytes,
        is_reserve: false,
    })
}

/// Spares in the folder of the log, this process's and others'.
pub(crate) fn list_spares(env: &Env, database: &Path) -> Result<Vec<FileId>> {
    list_ids(env, &log_dir(database), SPARE_SUFFIX)
}

/// The path of a spare.
pub(crate) fn spare_path(database: &Path, number: FileId) -> PathBuf {
    log_dir(database).join(format!("{:016x}{SPARE_SUFFIX}", number.0))
}

fn fill_with_zeros(file: &dyn File, range: std::ops::Range<u64>) -> std::io::Result<()> {
    let piece_bytes = |bytes: u64| {
        usize::try_from(bytes)
            .unwrap_or(ZERO_FILL_BYTES)
            .min(ZERO_FILL_BYTES)
    };
    let mut at = range.start;
    let zeros = vec![0; piece_bytes(range.end.saturating_sub(at))];
    while at < range.end {
        let n = piece_bytes(range.end - at).min(zeros.len());
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// The capacity that holds a frame of `frame_bytes`, growing from `last_bytes` up to `limit_bytes`.
pub(crate) fn next_capacity(last_bytes: u64, limit_bytes: u64, frame_bytes: u64) -> u64 {
    let needed = SEGMENT_HEADER_BYTES as u64 + frame_bytes + NEXT_FRAME_BYTES;
    (last_bytes * 2)
        .clamp(FIRST_SEGMENT_BYTES.min(limit_bytes), limit_bytes)
        .max(needed)
        .next_multiple_of(4096)
}

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(FRAME_ALIGN));

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        database: DatabaseId([3; 16]),
        file: FileId(9),
        epoch: Epoch(2),
        previous: Some(LogPosition {
            segment: FileId(8),
            offset: 4096,
        }),
        previous_crc: 77,
    };

    #[test]
    fn every_byte_of_the_header_is_guarded() {
        let bytes = HEADER.encode();
        let place = Path::new("log/9");
        assert_eq!(SegmentHeader::decode(&bytes, place).unwrap(), Some(HEADER));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert!(SegmentHeader::decode(&bad, place).is_err(), "byte {at}");
        }
        assert_eq!(
            SegmentHeader::decode(&[0; SEGMENT_HEADER_BYTES], place).unwrap(),
            None
        );
    }

    #[test]
    fn segments_grow() {
        assert_eq!(next_capacity(0, 64 << 20, 100), 64 << 10);
        assert_eq!(next_capacity(64 << 10, 64 << 20, 100), 128 << 10);
        assert_eq!(next_capacity(64 << 20, 64 << 20, 100), 64 << 20);
        assert_eq!(next_capacity(0, 64 << 20, 1 << 20), (1 << 20) + 4096);
        assert_eq!(next_capacity(0, 8192, 100), 8192);
    }

    #[test]
    fn only_zeros_from_the_end_of_the_log_on_are_cut() {
        let sim = thalweg_env::sim::SimEnv::new(1);
        let (env, dir) = (sim.env(), Path::new("/db"));
        env.storage().create_dir_all(&log_dir(dir)).unwrap();
        let path = |id| segment_path(dir, FileId(id));
        for id in 1..=5 {
            // A frame may end in zeros.
            let mut bytes = vec![0; 70_000];
            bytes[..9].fill(1);
            if id == 3 {
                bytes[69_000] = 1;
            }
            if id == 4 {
                bytes.fill(0);
            }
            if id == 5 {
                bytes[20..40].fill(1);
            }
            sim.write_file(&path(id), &bytes).unwrap();
        }
        let len_of = |id| sim.read_file(&path(id)).unwrap().len();
        let end = |id, offset| LogPosition {
            segment: FileId(id),
            offset,
        };
        // What is not zeros stays to the end of its sector: a write that was torn is to be seen.
        let cut = [70_000, 16, 69_632, 0, 4096];
        cut_unwritten(&env, dir, end(2, 16), None).unwrap();
        assert_eq!([1, 2, 3, 4, 5].map(len_of), cut);
        cut_unwritten(&env, dir, end(2, 16), None).unwrap();
        assert_eq!([1, 2, 3, 4, 5].map(len_of), cut);
    }
}
