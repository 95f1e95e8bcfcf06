//! The bytes of a file in memory, in chunks that are allocated with the first byte that is not zero.
//!
//! Invariants
//! - Where there is no chunk, or a chunk ends, the file reads as zeros. So holes, a length that was set, and zeros that are
//!   written where nothing was, take no memory.
//! - No byte of a chunk lies past the end of the file: what is cut off reads as zeros when the file grows again.
//! - The list of chunks is locked for writing only while a chunk is added or the file is cut. A writer holds it for reading,
//!   so a cut waits for it; a reader holds it only to find a chunk. Both then hold the lock of that one chunk for as long as
//!   it takes to copy at most [`CHUNK_BYTES`]: nobody waits longer for anyone.
//! - The length rises after the bytes it covers are there.
//!
//! As with `pread` and `pwrite`, a transfer is not atomic beyond a chunk: a reader may meet half of a larger write.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustix::io::Errno;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Large enough that finding a chunk costs little compared with copying it, small enough that a sparse file stays
/// small.
const CHUNK_BYTES: usize = 64 << 10;
/// The first allocation of a chunk, which is doubled up to [`CHUNK_BYTES`].
const MIN_CHUNK_BYTES: usize = 4 << 10;
/// No file ends after this, as on every POSIX system.
const MAX_LEN_BYTES: u64 = i64::MAX.unsigned_abs();

type Chunk = RwLock<Vec<u8>>;

/// The bytes of a file.
#[derive(Default)]
pub(super) struct Content {
    len_bytes: AtomicU64,
    chunks: RwLock<BTreeMap<u64, Arc<Chunk>>>,
}

impl Content {
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Reads the bytes from an offset on, up to the end of the file or of the buffer; returns how many.
    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        let left = self.len_bytes().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let mut done = 0;
        while done < len {
            let (number, within) = place(offset + done as u64);
            let count = (CHUNK_BYTES - within).min(len - done);
            let piece = &mut buf[done..done + count];
            let chunk = self.chunks.read().get(&number).cloned();
            match chunk {
                Some(chunk) => copy_out(&chunk.read(), within, piece),
                None => piece.fill(0),
            }
            done += count;
        }
        len
    }

    /// Writes all bytes, or as many as there is memory for; returns how many.
    pub(super) fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        end_of(offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (number, within) = place(at);
            let count = (CHUNK_BYTES - within).min(buf.len() - done);
            match self.write_piece(number, within, &buf[done..done + count]) {
                Ok(()) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes into one chunk.
    fn write_piece(&self, number: u64, within: usize, piece: &[u8]) -> io::Result<()> {
        let start = number * CHUNK_BYTES as u64;
        let end = start + (within + piece.len()) as u64;
        // A chunk is allocated in full if the file reaches beyond it.
        let will_be_full = || self.len_bytes() >= start + CHUNK_BYTES as u64;
        let chunks = self.chunks.read();
        match chunks.get(&number) {
            Some(chunk) => copy_in(&mut chunk.write(), within, piece, will_be_full)?,
            None if is_zero(piece) => {}
            None => {
                drop(chunks);
                let mut chunks = self.chunks.write();
                let chunk = chunks.entry(number).or_default();
                copy_in(&mut chunk.write(), within, piece, will_be_full)?;
                self.len_bytes.fetch_max(end, Ordering::Release);
                return Ok(());
            }
        }
        self.len_bytes.fetch_max(end, Ordering::Release);
        Ok(())
    }

    /// Makes the file at least so long that it holds a range.
    pub(super) fn grow(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let end = end_of(offset, len_bytes)?;
        // A cut must not be between its two steps.
        let _chunks = self.chunks.read();
        self.len_bytes.fetch_max(end, Ordering::Release);
        Ok(())
    }

    /// Cuts the file, or grows it.
    pub(super) fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        end_of(len_bytes, 0)?;
        let (number, within) = place(len_bytes);
        let mut chunks = self.chunks.write();
        let mut cut_off = chunks.split_off(&number);
        if within > 0
            && let Some(chunk) = cut_off.remove(&number)
        {
            let mut bytes = chunk.write();
            bytes.truncate(within);
            bytes.shrink_to_fit();
            drop(bytes);
            chunks.insert(number, chunk);
        }
        self.len_bytes.store(len_bytes, Ordering::Release);
        // Freed without the lock, as it may take long.
        drop(chunks);
        drop(cut_off);
        Ok(())
    }

    /// Memory that the chunks take.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let chunks = self.chunks.read();
        chunks.values().map(|chunk| chunk.read().capacity()).sum()
    }
}

/// The number of the chunk that holds an offset, and where in it.
fn place(offset: u64) -> (u64, usize) {
    let chunk_bytes = CHUNK_BYTES as u64;
    // Less than CHUNK_BYTES.
    let within = usize::try_from(offset % chunk_bytes).unwrap_or(0);
    (offset / chunk_bytes, within)
}

fn end_of(offset: u64, len_bytes: u64) -> io::Result<u64> {
    let end = offset.checked_add(len_bytes);
    end.filter(|end| *end <= MAX_LEN_BYTES)
        .ok_or_else(|| Errno::FBIG.into())
}

fn copy_out(bytes: &[u8], within: usize, piece: &mut [u8]) {
    let there = bytes.get(within..).unwrap_or_default();
    let (from_chunk, behind_it) = piece.split_at_mut(there.len().min(piece.len()));
    from_chunk.copy_from_slice(&there[..from_chunk.len()]);
    behind_it.fill(0);
}

fn copy_in(
    bytes: &mut Vec<u8>,
    within: usize,
    piece: &[u8],
    will_be_full: impl FnOnce() -> bool,
) -> io::Result<()> {
    let end = within + piece.len();
    if end > bytes.capacity() {
        let capacity = match will_be_full() {
            true => CHUNK_BYTES,
            false => end.next_power_of_two().clamp(MIN_CHUNK_BYTES, CHUNK_BYTES),
        };
        // The caller gets an error, as of a full disk, where an allocation that cannot fail would end the process.
        bytes
            .try_reserve_exact(capacity - bytes.len())
            .map_err(|error| io::Error::new(ErrorKind::StorageFull, error))?;
    }
    if bytes.len() < within {
        bytes.resize(within, 0);
    }
    let overwritten = (bytes.len() - within).min(piece.len());
    bytes[within..within + overwritten].copy_from_slice(&piece[..overwritten]);
    bytes.extend_from_slice(&piece[overwritten..]);
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    // In parts whose bytes are joined without a branch: a log segment is filled with zeros before it is used.
    let is_zero_part = |part: &[u8]| part.iter().fold(0, |all, byte| all | byte) == 0;
    bytes.chunks(256).all(is_zero_part)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    const CHUNK: u64 = CHUNK_BYTES as u64;

    #[test]
    fn zeros_and_holes_take_no_memory() {
        let content = Content::default();
        let zeros = vec![0; CHUNK_BYTES];
        for at in 0..1_000 {
            assert_eq!(content.write_at(&zeros, at * CHUNK).unwrap(), CHUNK_BYTES);
        }
        content.grow(0, 1 << 40).unwrap();
        assert_eq!((content.memory_bytes(), content.len_bytes()), (0, 1 << 40));
        content.write_at(b"x", 1 << 39).unwrap();
        assert_eq!(content.memory_bytes(), CHUNK_BYTES);
        let mut buf = [1; 3];
        assert_eq!(content.read_at(&mut buf, (1 << 39) - 1), 3);
        assert_eq!(&buf, b"\0x\0");
        content.set_len(0).unwrap();
        assert_eq!((content.memory_bytes(), content.len_bytes()), (0, 0));
    }

    #[test]
    fn small_files_take_little_and_full_ones_no_more_than_their_length() {
        let content = Content::default();
        content.write_at(b"abc", 0).unwrap();
        assert_eq!(content.memory_bytes(), MIN_CHUNK_BYTES);
        for at in 0..4 * CHUNK / 100 {
            content.write_at(&[7; 100], at * 100).unwrap();
        }
        assert!(content.memory_bytes() <= 4 * CHUNK_BYTES);
        content.set_len(10).unwrap();
        assert_eq!(content.memory_bytes(), 10);
    }

    #[test]
    fn what_was_cut_off_reads_as_zeros_afterwards() {
        let content = Content::default();
        content.write_at(&vec![9; 3 * CHUNK_BYTES], 0).unwrap();
        content.set_len(CHUNK + 5).unwrap();
        content.set_len(3 * CHUNK).unwrap();
        content.write_at(b"z", 2 * CHUNK + 1).unwrap();
        let mut buf = vec![1; 3 * CHUNK_BYTES];
        assert_eq!(content.read_at(&mut buf, 0), buf.len());
        let expected: Vec<u8> = (0..3 * CHUNK_BYTES)
            .map(|at| match at {
                _ if at < CHUNK_BYTES + 5 => 9,
                _ if at == 2 * CHUNK_BYTES + 1 => b'z',
                _ => 0,
            })
            .collect();
        assert!(buf == expected);
    }

    #[test]
    fn offsets_that_no_file_has_are_refused() {
        let content = Content::default();
        let refusals = [
            content.write_at(b"x", MAX_LEN_BYTES).map(drop),
            content.write_at(b"x", u64::MAX).map(drop),
            content.grow(u64::MAX, 1),
            content.set_len(u64::MAX),
        ];
        for refusal in refusals {
            assert_eq!(refusal.unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
        assert_eq!(content.len_bytes(), 0);
        assert_eq!(content.read_at(&mut [0], u64::MAX), 0);
    }
}
