//! Opening a page of any kind: undoes the last stage and reads the mode.
//!
//! Invariants: kind of the chunk, prelude and mode of the page go together before a value is read.

use crate::chain::{ChunkKind, CodecChain};
use crate::error::{DecodeError, ensure};
use crate::input::Input;
use crate::mode::PageMode;
use crate::packing::{LongBuffer, PageBuffer};
use crate::pco_pages::PcoReader;
use crate::stage::Decompressor;

/// Buffers of decoding.
#[derive(Debug, Default)]
pub(crate) struct DecodeScratch {
    pub(crate) decompressor: Decompressor,
    pub(crate) buffers: [PageBuffer; 2],
    /// Lengths, codes or halves of a page.
    pub(crate) lanes: LongBuffer,
    /// Where the texts of a page lie in their dictionary.
    pub(crate) spans: LongBuffer,
    pub(crate) pco: PcoReader,
}

/// Where the rows of a page are to be found.
pub(crate) enum Source<'a> {
    /// All are the prelude.
    Constant,
    /// In the page, in this mode.
    Page(PageMode, Input<'a>),
}

/// Opens a page of any kind and checks that kind, prelude and mode go together.
pub(crate) fn open_page<'a>(
    codec: CodecChain,
    prelude: &[u8],
    page: &'a [u8],
    decompressor: &'a mut Decompressor,
) -> Result<Source<'a>, DecodeError> {
    if codec.kind == ChunkKind::Constant {
        ensure(page.is_empty(), "a constant chunk has bytes in its pages")?;
        return Ok(Source::Constant);
    }
    ensure(
        codec.kind != ChunkKind::Pages || prelude.is_empty(),
        "unexpected prelude",
    )?;
    let mut input = Input::new(decompressor.open(codec, page)?);
    let mode = PageMode::from_byte(input.read()?)?;
    let has_prelude = match mode {
        PageMode::Codes => codec.kind == ChunkKind::Dictionary,
        PageMode::Pco => codec.kind == ChunkKind::Pco,
        PageMode::Fsst => codec.kind == ChunkKind::Fsst,
        PageMode::Alphabet => codec.kind == ChunkKind::Alphabet,
        _ => true,
    };
    ensure(has_prelude, "a page mode without its prelude")?;
    Ok(Source::Page(mode, input))
}
