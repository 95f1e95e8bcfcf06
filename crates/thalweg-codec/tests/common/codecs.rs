//! The codecs that tests and fuzzing go through.

use thalweg_codec::ValueCodec;

/// The encoder's choice, and each codec.
pub(crate) const CODECS: [Option<ValueCodec>; 13] = [
    None,
    Some(ValueCodec::Plain),
    Some(ValueCodec::FrameOfReference),
    Some(ValueCodec::Delta),
    Some(ValueCodec::RunLength),
    Some(ValueCodec::Dictionary),
    Some(ValueCodec::Alp),
    Some(ValueCodec::AlpDelta),
    Some(ValueCodec::AlpRd),
    Some(ValueCodec::Pco),
    Some(ValueCodec::Fsst),
    Some(ValueCodec::Alphabet),
    Some(ValueCodec::Shuffle),
];
