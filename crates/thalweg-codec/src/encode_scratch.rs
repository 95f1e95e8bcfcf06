//! Buffers of encoding.
//!
//! Invariants: what a buffer holds from one chunk never changes the bytes of the next.

use crate::dictionary::ValueDictionary;
use crate::floats::FloatScratch;
use crate::integers::IntegerScratch;
use crate::memory::{capacity_bytes, trim};
use crate::packing::{LongBuffer, PageBuffer};
use crate::stage::Compressor;

/// Buffers of fixed-width values.
#[derive(Debug, Default)]
pub(crate) struct EncodeScratch {
    pub(crate) shared: SharedScratch,
    pub(crate) floats: FloatScratch,
}

/// Buffers that all types of values share.
#[derive(Debug, Default)]
pub(crate) struct SharedScratch {
    pub(crate) integers: IntegerScratch,
    pub(crate) compressor: Compressor,
    pub(crate) page: Vec<u8>,
    /// Another form of the page.
    pub(crate) plain: Vec<u8>,
    pub(crate) sample: PageBuffer,
    pub(crate) lanes: LongBuffer,
    pub(crate) dictionary: ValueDictionary<u64>,
    pub(crate) wide_dictionary: ValueDictionary<u128>,
}

impl SharedScratch {
    /// The memory of the buffers that grow.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.page)
            + capacity_bytes(&self.plain)
            + self.compressor.buffer_bytes()
            + self.lanes.buffer_bytes()
            + self.dictionary.buffer_bytes()
            + self.wide_dictionary.buffer_bytes()
    }

    /// Gives buffers of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        trim(&mut self.page, limit_bytes);
        trim(&mut self.plain, limit_bytes);
        self.compressor.trim(limit_bytes);
        self.dictionary.trim(limit_bytes);
        self.wide_dictionary.trim(limit_bytes);
    }
}
