//! What was acknowledged, in a file that outlives the process that wrote it.
//!
//! Each number is written by one thread with one small write, which the operating system has when the call returns.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where the process that holds the database notes its id.
const WRITER: u64 = 8;
/// Not zero once a process has seen something wrong.
const FAILED: u64 = 9;
/// Checks of the first reader, and so on.
const READERS: u64 = 16;

pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        if file.metadata().unwrap().len() == 0 {
            file.write_all_at(&[0; 8 * 64], 0).unwrap();
        }
        Self(file)
    }

    fn get(&self, place: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, place * 8).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set(&self, place: u64, value: u64) {
        self.0
            .write_all_at(&value.to_le_bytes(), place * 8)
            .unwrap();
    }

    /// The batches of a thread below `count` were acknowledged.
    pub(crate) fn acknowledge(&self, thread: usize, count: u64) {
        self.set(thread as u64, count);
    }

    /// How many batches of each thread were acknowledged.
    pub(crate) fn acknowledged(&self) -> [u64; super::rows::THREADS] {
        std::array::from_fn(|thread| self.get(thread as u64))
    }

    pub(crate) fn set_writer(&self, process: u32) {
        self.set(WRITER, process.into());
    }

    pub(crate) fn writer(&self) -> u64 {
        self.get(WRITER)
    }

    /// Stays, also if the process is killed before it can end by itself.
    pub(crate) fn note_failure(&self) {
        self.set(FAILED, 1);
    }

    pub(crate) fn assert_no_failure(&self) {
        assert_eq!(self.get(FAILED), 0, "a process has seen something wrong");
    }

    pub(crate) fn count_check(&self, reader: usize) {
        let place = READERS + reader as u64;
        self.set(place, self.get(place) + 1);
    }

    pub(crate) fn checks_of(&self, reader: usize) -> u64 {
        self.get(READERS + reader as u64)
    }

    pub(crate) fn checks(&self, readers: usize) -> u64 {
        (0..readers as u64)
            .map(|reader| self.get(READERS + reader))
            .sum()
    }
}
