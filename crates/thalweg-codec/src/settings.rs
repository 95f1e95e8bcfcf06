//! Settings of an encoder: a level, and for measurements a value codec and a last stage.
//!
//! Invariants: settings alone decide what is tried, and never depend on the values of a chunk.

use crate::chain::LastStage;
use crate::floats::ForcedWay;
use crate::integers::IntegerPlan;
use crate::mode::PageMode;
use crate::stage::StageRule;

/// How much work an encoder puts into a chunk.
///
/// ```
/// use thalweg_codec::{EncodedChunk, Encoder, Level};
///
/// let counter: Vec<i64> = (0..4_096).map(|n| n * n % 10_007).collect();
/// let bytes_at = |level| {
///     let mut chunk = EncodedChunk::new();
///     Encoder::new(level).encode(&counter, &mut chunk).unwrap();
///     chunk.bytes.len()
/// };
/// assert!(bytes_at(Level::Dense) <= bytes_at(Level::Fast));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// For the path of fresh rows: cheap codecs only.
    Fast,
    /// For background rewrites: slower codecs too.
    Dense,
}

/// A value codec to use instead of the one that sampling would choose, for measurements and tests.
/// Pages that it would make larger are stored plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueCodec {
    /// Values as they are.
    Plain,
    /// Differences from the page's smallest value, packed.
    FrameOfReference,
    /// Differences from the value before, packed.
    Delta,
    /// Runs of equal values.
    RunLength,
    /// Codes of distinct values.
    Dictionary,
    /// Floats: ALP, its integers by frame of reference. Integers: frame of reference.
    Alp,
    /// Floats: ALP, its integers by differences. Integers: differences.
    AlpDelta,
    /// Floats: ALP-RD. Integers: frame of reference.
    AlpRd,
    /// Numbers of up to 64 bits: pco. Others: as they are.
    Pco,
    /// Texts: codes of frequent pieces (FSST). Others: as they are.
    Fsst,
    /// Texts: the index of each byte among those that occur, where they are few. Others: as they are.
    Alphabet,
    /// Fixed-width values of up to 64 bits: as they are, shuffled before the last stage. Others: as they are.
    Shuffle,
}

impl ValueCodec {
    /// The mode of integer pages.
    pub(crate) fn page_mode(self) -> PageMode {
        match self {
            Self::Plain | Self::Pco | Self::Fsst | Self::Alphabet | Self::Shuffle => {
                PageMode::Plain
            }
            Self::FrameOfReference | Self::Dictionary | Self::Alp | Self::AlpRd => {
                PageMode::FrameOfReference
            }
            Self::Delta | Self::AlpDelta => PageMode::Delta,
            Self::RunLength => PageMode::RunLength,
        }
    }

    /// The way of float pages, and the mode of the integers it ends in.
    pub(crate) fn float_way(self) -> (ForcedWay, IntegerPlan) {
        let way = match self {
            Self::Alp | Self::AlpDelta => ForcedWay::Alp,
            Self::AlpRd => ForcedWay::Rd,
            _ => ForcedWay::Bits,
        };
        (way, IntegerPlan::forced(self.page_mode()))
    }
}

/// The settings of an encoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) level: Level,
    pub(crate) codec: Option<ValueCodec>,
    pub(crate) last_stage: Option<LastStage>,
}

impl Settings {
    /// How a chunk decides on its last stage, where LZ4 is tried above `percent` of the values.
    pub(crate) fn stage_rule(&self, percent: usize) -> StageRule {
        match (self.last_stage, self.level) {
            (Some(stage), _) => StageRule::Always(stage),
            (None, Level::Fast) if self.codec == Some(ValueCodec::Shuffle) => {
                StageRule::Always(LastStage::Lz4)
            }
            (None, Level::Dense) if self.codec == Some(ValueCodec::Shuffle) => {
                StageRule::Always(LastStage::Zstd)
            }
            // Measurements of a value codec are of that codec alone.
            (None, _) if self.codec.is_some() => StageRule::Always(LastStage::None),
            (None, Level::Fast) => StageRule::Lz4Above(percent),
            (None, Level::Dense) => StageRule::ZstdWherePaying,
        }
    }
}
