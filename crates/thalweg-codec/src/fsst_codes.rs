//! FSST: frequent pieces of up to eight bytes as codes of one byte, value by value.
//!
//! Invariants: no code reaches over the end of a value, so that a value can be read without those
//! before its group of 128; codes never stand for more than eight times their bytes.
//!
//! The crate `fsst-rs` trains the table and writes codes. Reading them is safe code of ours.

use fsst::Compressor;

use crate::error::{DecodeError, ensure};
use crate::input::Input;

/// Values of a group, at whose start a page has the place of its codes.
pub(crate) const GROUP_ROWS: usize = 128;
/// The code of a byte that has no symbol; it follows.
const ESCAPE: u8 = 255;
/// Texts that a table is trained with.
const TRAINED_VALUES: usize = 1_024;
/// Bytes of a text that a table is trained with.
const TRAINED_VALUE_BYTES: usize = 512;

/// A table of symbols to write with.
pub(crate) struct Table {
    compressor: Compressor,
    ends: Vec<u64>,
}

impl Table {
    /// A table for texts like these; `None` when nothing repeats.
    pub(crate) fn train<'a>(rows: usize, value: impl Fn(usize) -> &'a [u8]) -> Option<Self> {
        let looked = rows.min(TRAINED_VALUES);
        let texts = (0..looked).map(|index| {
            let text = value(index * rows / looked);
            &text[..text.len().min(TRAINED_VALUE_BYTES)]
        });
        let compressor = Compressor::train(&texts.collect());
        (compressor.n_symbols() > 0).then(|| Self {
            compressor,
            ends: Vec::new(),
        })
    }

    /// Appends the prelude.
    pub(crate) fn write_prelude(&self, out: &mut Vec<u8>) {
        let (symbols, lengths) = (
            self.compressor.symbol_table(),
            self.compressor.symbol_lengths(),
        );
        out.push(crate::integers::small(symbols.len()));
        out.extend_from_slice(lengths);
        for (symbol, &length) in symbols.iter().zip(lengths) {
            out.extend_from_slice(&symbol.to_u64().to_le_bytes()[..usize::from(length)]);
        }
    }

    /// Appends the offsets of groups and the codes of some texts.
    pub(crate) fn encode(&mut self, texts: &[&[u8]], out: &mut Vec<u8>) {
        let offsets = out.len();
        let groups = texts.len().div_ceil(GROUP_ROWS).saturating_sub(1);
        out.resize(offsets + groups * 4, 0);
        let start = out.len();
        self.ends.clear();
        self.compressor
            .compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(texts, out, &mut self.ends);
        for group in 0..groups {
            let codes = self.ends[(group + 1) * GROUP_ROWS - 1] - start as u64;
            // At most twice the bytes of a page that is short enough for codes.
            let codes: u32 = u32::try_from(codes).unwrap_or(u32::MAX);
            out[offsets + group * 4..][..4].copy_from_slice(&codes.to_le_bytes());
        }
    }
}

/// Symbols of a prelude, to read with.
#[derive(Debug)]
pub(crate) struct Symbols {
    symbols: [u64; 256],
    /// Zero for codes that stand for nothing.
    lengths: [u8; 256],
}

impl Symbols {
    /// Reads a prelude.
    pub(crate) fn read(prelude: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(prelude);
        let count = usize::from(input.read::<u8>()?);
        ensure(
            (1..=usize::from(ESCAPE)).contains(&count),
            "a table of 0 or 256 symbols",
        )?;
        let mut table = Self {
            symbols: [0; 256],
            lengths: [0; 256],
        };
        let lengths = input.take(count)?;
        for (code, &length) in lengths.iter().enumerate() {
            ensure((1..=8).contains(&length), "a symbol of 0 or over 8 bytes")?;
            let bytes = input.take(usize::from(length))?;
            table.symbols[code] = crate::packing::word_at(bytes, 0);
            table.lengths[code] = length;
        }
        input.finish()?;
        Ok(table)
    }

    /// Fills `out` from `start` to `end`, the whole of it and no more, with what `codes` stand for.
    /// Eight more bytes of `out` are overwritten.
    fn decode(
        &self,
        codes: &[u8],
        out: &mut [u8],
        mut start: usize,
        end: usize,
    ) -> Result<(), DecodeError> {
        const TOO_LONG: DecodeError = DecodeError::new("codes for another number of bytes");
        let mut codes = codes.iter();
        while let Some(&code) = codes.next() {
            let (word, length) = if code == ESCAPE {
                let byte = codes.next();
                (u64::from(*byte.ok_or(TOO_LONG)?), 1)
            } else {
                let code = usize::from(code);
                (self.symbols[code], usize::from(self.lengths[code]))
            };
            ensure(length > 0, "a code without a symbol")?;
            let target = out.get_mut(start..start + 8).ok_or(TOO_LONG)?;
            target.copy_from_slice(&word.to_le_bytes());
            start += length;
            ensure(start <= end, TOO_LONG.reason())?;
        }
        ensure(start == end, TOO_LONG.reason())
    }
}

/// Codes of a page, with where those of each group begin.
pub(crate) struct Groups<'a> {
    offsets: &'a [u8],
    codes: &'a [u8],
    rows: usize,
}

impl<'a> Groups<'a> {
    /// Reads the offsets and codes of a page of `rows` rows, which stand after its lengths.
    pub(crate) fn read(mut input: Input<'a>, rows: usize) -> Result<Self, DecodeError> {
        let groups = rows.div_ceil(GROUP_ROWS);
        Ok(Self {
            offsets: input.take(groups.saturating_sub(1) * 4)?,
            codes: input.take_rest(),
            rows,
        })
    }

    /// Bytes of all codes.
    pub(crate) fn codes_bytes(&self) -> usize {
        self.codes.len()
    }

    fn start(&self, group: usize) -> usize {
        let Some(before) = group.checked_sub(1) else {
            return 0;
        };
        match self.offsets.get(before * 4..before * 4 + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => self.codes.len(),
        }
    }

    fn codes(&self, group: usize) -> Result<&'a [u8], DecodeError> {
        let range = self.start(group)..self.start(group + 1);
        let codes = self.codes.get(range);
        codes.ok_or(DecodeError::new("offsets of codes do not rise"))
    }

    /// Appends the texts of these lengths, which add up to `total_bytes`.
    pub(crate) fn decode(
        &self,
        symbols: &Symbols,
        lengths: &[u32],
        total_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        assert!(lengths.len() == self.rows, "a length for each row");
        let mut start = out.len();
        let end = start + total_bytes;
        out.resize(end + 8, 0);
        for (group, lengths) in lengths.chunks(GROUP_ROWS).enumerate() {
            let bytes: usize = lengths.iter().map(|&length| length as usize).sum();
            symbols.decode(self.codes(group)?, out, start, start + bytes)?;
            start += bytes;
        }
        out.truncate(end);
        Ok(())
    }

    /// Appends the text at `index`, given the lengths up to it.
    pub(crate) fn decode_value(
        &self,
        symbols: &Symbols,
        lengths: &[u32],
        index: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let group = index / GROUP_ROWS;
        let first = group * GROUP_ROWS;
        let sum = |lengths: &[u32]| lengths.iter().map(|&length| length as usize).sum::<usize>();
        let all = &lengths[first..self.rows.min(first + GROUP_ROWS)];
        let (before, bytes) = (sum(&lengths[first..index]), sum(all));
        let codes = self.codes(group)?;
        let fits = bytes <= codes.len() * 8;
        ensure(fits, "codes for another number of bytes")?;
        let mut group = vec![0; bytes + 8];
        symbols.decode(codes, &mut group, 0, bytes)?;
        out.extend_from_slice(&group[before..before + lengths[index] as usize]);
        Ok(())
    }
}
