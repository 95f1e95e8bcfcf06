//! Pages of texts back into offsets and bytes.
//!
//! Invariants: as in the module above; nothing is taken memory for before it is known to fit.

use super::append::{BEYOND_OFFSETS, push_constant, push_offsets};
use super::dictionary_of_texts::DictionaryView;
use crate::alphabet::Alphabet;
use crate::chain::{ChunkKind, CodecChain};
use crate::error::{DecodeError, ensure};
use crate::fsst_codes::{Groups, Symbols};
use crate::inner;
use crate::input::Input;
use crate::mode::PageMode;
use crate::offset::Offset;
use crate::open_page::{DecodeScratch, Source, open_page};
use crate::packing::PageBuffer;
use crate::stage::expands_to;

/// Tables of the last chunk that was read.
#[derive(Debug, Default)]
pub(crate) struct TextReaders {
    prelude: Vec<u8>,
    table: Option<ReadTable>,
}

#[derive(Debug)]
enum ReadTable {
    Alphabet(Box<Alphabet>),
    Fsst(Box<Symbols>),
}

impl TextReaders {
    /// Makes the table of a prelude the one at hand.
    fn read(&mut self, kind: ChunkKind, prelude: &[u8]) -> Result<&ReadTable, DecodeError> {
        let is_known = match &self.table {
            Some(ReadTable::Alphabet(_)) => kind == ChunkKind::Alphabet,
            Some(ReadTable::Fsst(_)) => kind == ChunkKind::Fsst,
            None => false,
        };
        if !is_known || self.prelude != prelude {
            self.table = None;
            self.prelude.clear();
            self.prelude.extend_from_slice(prelude);
            self.table = Some(match kind {
                ChunkKind::Alphabet => ReadTable::Alphabet(Box::new(Alphabet::read(prelude)?)),
                _ => ReadTable::Fsst(Box::new(Symbols::read(prelude)?)),
            });
        }
        self.table.as_ref().ok_or(UNFIT)
    }
}

const UNFIT: DecodeError = DecodeError::new("page mode does not fit variable-length values");

/// Appends a page of `rows` values.
pub(crate) fn decode_page<O: Offset>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    rows: usize,
    (scratch, texts): (&mut DecodeScratch, &mut TextReaders),
    (offsets, data): (&mut Vec<O>, &mut Vec<u8>),
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers: [buffer, _],
        lanes,
        spans,
        ..
    } = scratch;
    let input_bytes = prelude.len() + page.len();
    let source = open_page(codec, prelude, page, decompressor)?;
    if offsets.is_empty() {
        offsets.push(O::from_index(data.len()).ok_or(BEYOND_OFFSETS)?);
    }
    let (mode, input) = match source {
        Source::Constant => {
            check_expansion(input_bytes, (prelude.len() * rows) as u64)?;
            return push_constant(prelude, rows, offsets, data);
        }
        Source::Page(PageMode::Codes, input) => {
            let codes = DictionaryView::read(prelude)?;
            let buffers = (buffer, lanes, spans);
            return codes.decode(input, input_bytes, rows, buffers, (offsets, data));
        }
        Source::Page(mode, input) => (mode, input),
    };
    let lengths = lanes.lanes::<u32>(rows);
    let (total_bytes, input) = read_lengths(input, buffer, lengths)?;
    let start = data.len();
    match mode {
        PageMode::Plain => push_plain(input, total_bytes, data)?,
        PageMode::Alphabet | PageMode::Fsst => {
            check_expansion(input_bytes, total_bytes)?;
            match texts.read(codec.kind, prelude)? {
                ReadTable::Alphabet(alphabet) => push_indices(alphabet, input, total_bytes, data)?,
                ReadTable::Fsst(symbols) => {
                    let groups = Groups::read(input, rows)?;
                    let total_bytes = check_codes(&groups, total_bytes)?;
                    groups.decode(symbols, lengths, total_bytes, data)?;
                }
            }
        }
        _ => return Err(UNFIT),
    }
    push_offsets(start, lengths, offsets)
}

fn check_expansion(input_bytes: usize, page_bytes: u64) -> Result<(), DecodeError> {
    ensure(
        expands_to(input_bytes, page_bytes),
        "a page would expand too far",
    )
}

/// Reads the lengths of a page; returns their sum and what follows.
fn read_lengths<'a>(
    mut input: Input<'a>,
    buffer: &mut PageBuffer,
    lengths: &mut [u32],
) -> Result<(u64, Input<'a>), DecodeError> {
    let lengths_bytes = input.read::<u32>()? as usize;
    inner::decode(input.take(lengths_bytes)?, buffer, lengths)?;
    let total_bytes = lengths.iter().map(|&length| u64::from(length)).sum();
    Ok((total_bytes, input))
}

fn push_plain(
    mut input: Input<'_>,
    total_bytes: u64,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let bytes = input.take_rest();
    ensure(
        total_bytes == bytes.len() as u64,
        "lengths do not add up to the bytes of a page",
    )?;
    data.extend_from_slice(bytes);
    Ok(())
}

fn push_indices(
    alphabet: &Alphabet,
    mut input: Input<'_>,
    total_bytes: u64,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let packed = input.take_rest();
    // An index takes a bit or more, so this is a number of bytes that exist.
    let fits = total_bytes <= packed.len() as u64 * 8;
    ensure(fits, "lengths do not add up to the bytes of a page")?;
    let start = data.len();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "eight times a length in memory"
    )]
    data.resize(start + total_bytes as usize, 0);
    alphabet.decode(packed, &mut data[start..])
}

/// The bytes that codes stand for, if they can stand for so many.
fn check_codes(groups: &Groups<'_>, total_bytes: u64) -> Result<usize, DecodeError> {
    let fits = total_bytes <= groups.codes_bytes() as u64 * 8;
    ensure(fits, "codes for another number of bytes")?;
    usize::try_from(total_bytes).map_err(|_| BEYOND_OFFSETS)
}

/// Appends the value at `index` of a page of `rows` values.
pub(crate) fn decode_value(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    (rows, index): (usize, usize),
    (scratch, texts): (&mut DecodeScratch, &mut TextReaders),
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
        lanes,
        ..
    } = scratch;
    let (mode, input) = match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            out.extend_from_slice(prelude);
            return Ok(());
        }
        Source::Page(PageMode::Codes, input) => {
            let codes = DictionaryView::read(prelude)?;
            return codes.decode_value(input, (rows, index), buffers, out);
        }
        Source::Page(mode, input) => (mode, input),
    };
    let lengths = lanes.lanes::<u32>(rows);
    let (total_bytes, mut input) = read_lengths(input, &mut buffers[0], lengths)?;
    let start: u64 = lengths[..index]
        .iter()
        .map(|&length| u64::from(length))
        .sum();
    let end = start + u64::from(lengths[index]);
    // Within what follows, or refused with it.
    let at = |bytes: u64| usize::try_from(bytes).map_err(|_| BEYOND_OFFSETS);
    let (start, end, total) = (at(start)?, at(end)?, at(total_bytes)?);
    match mode {
        PageMode::Plain => {
            let bytes = input.take_rest();
            let fits = bytes.len() == total;
            ensure(fits, "lengths do not add up to the bytes of a page")?;
            out.extend_from_slice(&bytes[start..end]);
            Ok(())
        }
        PageMode::Alphabet | PageMode::Fsst => match texts.read(codec.kind, prelude)? {
            ReadTable::Alphabet(alphabet) => {
                alphabet.decode_range(input.take_rest(), (start, end, total), out)
            }
            ReadTable::Fsst(symbols) => {
                let groups = Groups::read(input, rows)?;
                groups.decode_value(symbols, lengths, index, out)
            }
        },
        _ => Err(UNFIT),
    }
}
