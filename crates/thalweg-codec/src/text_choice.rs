//! How the texts of a chunk should be written, decided by a sample.
//!
//! Invariants: what it costs does not grow with the chunk; it depends on nothing but the texts and
//! the level.

use crate::alphabet::{Alphabet, SeenBytes};
use crate::chain::LastStage;
use crate::fsst_codes::Table;
use crate::settings::{Level, Settings, ValueCodec};
use crate::stage::{Compressor, TRIED_BYTES};
use crate::variable_length::Values;

/// How the pages of a chunk are tried that have no codes of a dictionary.
pub(crate) enum TextForm {
    /// As they are.
    Plain,
    /// By the index of each byte.
    Alphabet(Box<Alphabet>),
    /// By codes of frequent pieces.
    Fsst(Box<Table>),
}

/// Texts that show which bytes occur.
const LOOKED_VALUES: usize = 64;
/// Bytes sampled of each of them.
const LOOKED_VALUE_BYTES: usize = 128;
/// At the fast level indices take at most four bits: those are unpacked as quickly as bytes are
/// copied, those of five and more at half the speed.
const FAST_SYMBOLS: usize = 16;
/// Stretches of neighbours that the dense level tries everything on.
const STRETCHES: usize = 3;
/// Bytes of a stretch.
const STRETCH_BYTES: usize = 16 << 10;
/// A chunk of fewer bytes is not worth a prelude.
const FEW_BYTES: usize = 256;

/// The form of the texts in `data`, whose first page has lengths of `header_bytes`.
pub(crate) fn choose(
    values: &Values,
    data: &[u8],
    first_page: (&[u8], &[u8]),
    settings: &Settings,
    compressor: &mut Compressor,
) -> TextForm {
    match settings.codec {
        Some(ValueCodec::Alphabet) => {
            let mut seen = SeenBytes::new();
            seen.add(data);
            return of_alphabet(seen.alphabet());
        }
        Some(ValueCodec::Fsst) => return of_table(train(values, data)),
        Some(_) => return TextForm::Plain,
        None if data.len() < FEW_BYTES => return TextForm::Plain,
        None => {}
    }
    match settings.level {
        Level::Fast => fast(values, data, first_page, compressor),
        Level::Dense => dense(values, data, settings, compressor),
    }
}

fn of_alphabet(alphabet: Option<Alphabet>) -> TextForm {
    alphabet.map_or(TextForm::Plain, |alphabet| {
        TextForm::Alphabet(Box::new(alphabet))
    })
}

fn of_table(table: Option<Table>) -> TextForm {
    table.map_or(TextForm::Plain, |table| TextForm::Fsst(Box::new(table)))
}

fn train(values: &Values, data: &[u8]) -> Option<Table> {
    Table::train(values.rows(), |row| values.value(data, row))
}

/// The alphabet of evenly spread texts, if it has at most `symbols`.
fn sampled_alphabet(values: &Values, data: &[u8], symbols: usize) -> Option<Alphabet> {
    let rows = values.rows();
    let looked = rows.min(LOOKED_VALUES);
    let mut seen = SeenBytes::new();
    for index in 0..looked {
        let text = values.value(data, index * rows / looked);
        seen.add(&text[..text.len().min(LOOKED_VALUE_BYTES)]);
        if seen.count() > symbols {
            return None;
        }
    }
    seen.alphabet()
}

/// An alphabet where it saves an eighth over LZ4, and the chunk is worth its prelude.
fn fast(
    values: &Values,
    data: &[u8],
    (header, first_data): (&[u8], &[u8]),
    compressor: &mut Compressor,
) -> TextForm {
    let Some(alphabet) = sampled_alphabet(values, data, FAST_SYMBOLS) else {
        return TextForm::Plain;
    };
    let saved_bytes = data.len() - alphabet.packed_bytes(data.len());
    if saved_bytes < 4 * alphabet.prelude_bytes() {
        return TextForm::Plain;
    }
    let plain_bytes = header.len() + first_data.len();
    let packed_bytes = header.len() + alphabet.packed_bytes(first_data.len());
    let mut start = Vec::with_capacity(TRIED_BYTES);
    start.extend_from_slice(&header[..header.len().min(TRIED_BYTES)]);
    let rest = TRIED_BYTES - start.len();
    start.extend_from_slice(&first_data[..first_data.len().min(rest)]);
    let compressed_bytes = compressor.compressed_bytes(LastStage::Lz4, &start);
    let compressed_bytes = compressed_bytes.unwrap_or(start.len()).min(start.len());
    let next_bytes = plain_bytes * compressed_bytes / start.len().max(1);
    if packed_bytes <= next_bytes - next_bytes / 8 {
        TextForm::Alphabet(Box::new(alphabet))
    } else {
        TextForm::Plain
    }
}

/// Chooses the form that comes out smallest on three stretches, after Zstandard.
fn dense(
    values: &Values,
    data: &[u8],
    settings: &Settings,
    compressor: &mut Compressor,
) -> TextForm {
    let stage = settings.last_stage.unwrap_or(LastStage::Zstd);
    let mut best = (TextForm::Plain, usize::MAX);
    let stretches = stretches(values, data);
    let mut try_form = |mut form: TextForm| {
        let mut bytes = match &form {
            TextForm::Plain => 0,
            TextForm::Alphabet(alphabet) => alphabet.prelude_bytes(),
            // On average; the chunk is longer than the stretches.
            TextForm::Fsst(_) => 255,
        };
        let mut buffer = Vec::new();
        for texts in &stretches {
            buffer.clear();
            match &mut form {
                TextForm::Plain => texts.iter().for_each(|text| buffer.extend_from_slice(text)),
                TextForm::Alphabet(alphabet) => {
                    if !alphabet.encode(&texts.concat(), &mut buffer) {
                        buffer = texts.concat();
                    }
                }
                TextForm::Fsst(table) => table.encode(texts, &mut buffer),
            }
            let compressed_bytes = compressor.compressed_bytes(stage, &buffer);
            bytes += compressed_bytes.unwrap_or(buffer.len()).min(buffer.len());
        }
        // Plain pages need no table, and come first.
        if bytes + bytes / 32 < best.1 {
            best = (form, bytes);
        }
        bytes
    };
    let bytes = try_form(TextForm::Plain);
    let alphabet = sampled_alphabet(values, data, 128);
    let alphabet_bytes = alphabet.map_or(usize::MAX, |alphabet| {
        try_form(TextForm::Alphabet(Box::new(alphabet)))
    });
    // To train a table takes long. Where Zstandard finds nothing, or only that bytes are few, there
    // are no pieces to find.
    let raw_bytes: usize = stretches.iter().flatten().map(|text| text.len()).sum();
    if bytes <= raw_bytes - raw_bytes / 8 && bytes < alphabet_bytes {
        try_form(of_table(train(values, data)));
    }
    best.0
}

/// Neighbours from the start, the middle and the end of a chunk.
fn stretches<'a>(values: &Values, data: &'a [u8]) -> Vec<Vec<&'a [u8]>> {
    let rows = values.rows();
    let stretch = |index: usize| {
        let first = index * rows / STRETCHES;
        let mut bytes = 0;
        let mut texts = Vec::new();
        for row in first..(index + 1) * rows / STRETCHES {
            let text = values.value(data, row);
            texts.push(&text[..text.len().min(STRETCH_BYTES)]);
            bytes += text.len();
            if bytes >= STRETCH_BYTES {
                break;
            }
        }
        texts
    };
    (0..STRETCHES).map(stretch).collect()
}
