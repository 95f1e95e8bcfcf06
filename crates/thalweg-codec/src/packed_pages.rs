//! Chunks of fixed-width values without pco: codes of a dictionary, packed pages or shuffled ones.
//!
//! Invariants: a chunk has a dictionary only where codes take less than packed pages; only pages
//! without codes are shuffled.

use crate::chain::{ChunkKind, LastStage};
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, ValueDictionary};
use crate::encode_scratch::SharedScratch;
use crate::error::EncodeError;
use crate::integers;
use crate::page_coder::{LaneOf, PageCoder};
use crate::settings::{Settings, ValueCodec};
use crate::shuffle_choice;
use crate::stage::PageWriter;
use crate::wide::Lane;

/// Encodes values that are not all the same, without pco.
pub(crate) fn encode<C: PageCoder>(
    values: &[LaneOf<C>],
    coder: &mut C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let distinct = coder.plan(values, settings, &mut scratch.sample);
    let dictionary = &mut scratch.dictionary;
    let is_coded = match (settings.codec, distinct) {
        (Some(codec), _) => {
            codec == ValueCodec::Dictionary
                && dictionary.build(values, Lane::widen, out, dictionary::VALUES_MAX)
        }
        (None, Some(distinct)) => {
            build_dictionary(values, coder.run_bytes(), distinct, out, dictionary)
        }
        (None, None) => false,
    };
    if is_coded {
        dictionary.write_prelude(<LaneOf<C>>::truncate, out);
    }
    encode_pages(values, coder, settings, scratch, out)
}

/// Numbers the values where that makes the chunk smaller; returns whether it did. A sample has seen
/// `distinct` values, of which there may be more.
fn build_dictionary<L: Lane>(
    values: &[L],
    run_bytes: usize,
    distinct: usize,
    chunk: &EncodedChunk,
    dictionary: &mut ValueDictionary<u64>,
) -> bool {
    let pays = |distinct| dictionary::pays(values.len(), distinct, L::BYTES, run_bytes);
    let limit = (values.len() / 4).clamp(1, dictionary::VALUES_MAX);
    pays(distinct) && dictionary.build(values, Lane::widen, chunk, limit) && pays(dictionary.len())
}

fn encode_pages<C: PageCoder>(
    values: &[LaneOf<C>],
    coder: &mut C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let SharedScratch {
        integers,
        compressor,
        page,
        dictionary,
        plain,
        ..
    } = scratch;
    let is_coded = out.codec.kind == ChunkKind::Dictionary;
    let rule = settings.stage_rule(50);
    let mut writer = PageWriter::new(out);
    let shuffled = if is_coded {
        None
    } else {
        shuffle_choice::choose(values, coder.run_bytes(), settings, compressor)
    };
    for index in 0..out.planned_pages() {
        let rows = out.row_range(index);
        let page_values = &values[rows.clone()];
        let raw_bytes = size_of_val(page_values);
        if let Some(stage) = shuffled
            && writer.push_shuffled(stage, page_values, plain, compressor, out)?
        {
            continue;
        }
        page.clear();
        let codes = if is_coded {
            dictionary.codes_of(index, rows)
        } else {
            None
        };
        match codes {
            Some(codes) => dictionary::encode_codes(codes, integers, page),
            None => coder.encode(page_values, integers, page),
        }
        let stage = writer.stage(rule, page, raw_bytes, compressor);
        plain.clear();
        if stage == LastStage::Zstd && page.len() > raw_bytes / 16 {
            // Packing hides repeated patterns, so the values themselves are tried, too.
            integers::write_plain(page_values, plain);
        }
        writer.push(page, plain, compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}
