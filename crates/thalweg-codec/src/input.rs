//! Reading untrusted bytes from front to back.

use zerocopy::FromBytes;

use crate::error::{DecodeError, ensure};

/// The rest of some bytes. Every read checks that they suffice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `length_bytes` bytes.
    pub(crate) fn take(&mut self, length_bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length_bytes)
            .ok_or(DecodeError::new("page is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next value, at any alignment.
    pub(crate) fn read<T: FromBytes>(&mut self) -> Result<T, DecodeError> {
        let (value, rest) =
            T::read_from_prefix(self.rest).map_err(|_| DecodeError::new("page is cut short"))?;
        self.rest = rest;
        Ok(value)
    }

    /// All that is left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// An error unless everything was read.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        ensure(self.rest.is_empty(), "bytes behind the end of a page")
    }
}
