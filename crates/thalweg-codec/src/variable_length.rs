//! Variable-length values as the encoder gets them.
//!
//! Invariants: ends never fall, and the last one is the length of the bytes.

use crate::error::EncodeError;
use crate::memory::{capacity_bytes, trim};
use crate::offset::Offset;

/// Variable-length values: bytes without gaps, and where each value ends in them.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Where each value ends, relative to the first.
    ends: Vec<u32>,
}

impl Values {
    /// Checks the offsets and takes the ends; returns the bytes they span.
    pub(crate) fn read<'a, O: Offset>(
        &mut self,
        offsets: &[O],
        data: &'a [u8],
    ) -> Result<&'a [u8], EncodeError> {
        const LIMIT: EncodeError = EncodeError::TooManyBytes {
            limit_bytes: u32::MAX as usize,
        };
        self.ends.clear();
        let Some(first) = offsets.first() else {
            return Ok(&[]);
        };
        let start = first.to_index().filter(|&start| start <= data.len());
        let start = start.ok_or(EncodeError::BadOffsets { index: 0 })?;
        let mut end = start;
        self.ends.reserve(offsets.len() - 1);
        for (index, offset) in offsets.iter().enumerate().skip(1) {
            let next = offset
                .to_index()
                .filter(|&next| next >= end && next <= data.len());
            end = next.ok_or(EncodeError::BadOffsets { index })?;
            self.ends
                .push(u32::try_from(end - start).map_err(|_| LIMIT)?);
        }
        Ok(&data[start..end])
    }

    /// The number of values.
    pub(crate) fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Where each value ends.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Where the value of `row` begins; after the last one, where that ends.
    pub(crate) fn start(&self, row: usize) -> usize {
        if row == 0 {
            0
        } else {
            self.ends[row - 1] as usize
        }
    }

    /// The value of `row`.
    pub(crate) fn value<'a>(&self, data: &'a [u8], row: usize) -> &'a [u8] {
        &data[self.start(row)..self.ends[row] as usize]
    }

    /// The memory of the buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.ends)
    }

    /// Gives a buffer of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        trim(&mut self.ends, limit_bytes);
    }
}
