//! The first byte of every page that is not empty.

use crate::chain::byte_enum;
use crate::error::DecodeError;

byte_enum! {
    /// How a page lies in its bytes. Pages choose alone, so that one which fits badly costs itself.
    pub(crate) enum PageMode ("unknown page mode") {
        /// Values as they are in memory.
        Plain = 1,
        /// One value for all rows.
        Constant = 2,
        /// Differences from a reference, packed; outliers apart.
        FrameOfReference = 3,
        /// Differences from the value before, packed; outliers apart.
        Delta = 4,
        /// Ends of runs, and their values.
        RunLength = 5,
        /// Indices into the prelude's distinct values.
        Codes = 6,
        /// Floats scaled to integers; exceptions apart.
        Alp = 7,
        /// Floats cut in two; front parts by code, exceptions apart.
        AlpRd = 8,
        /// Numbers of 128 bits as two pages of their halves.
        Halves = 9,
        /// A page of the pco chunk whose metadata is the prelude.
        Pco = 10,
        /// Codes of the symbols in the prelude.
        Fsst = 11,
        /// Runs of 1,024 rows, each with a mode of its own.
        Runs = 12,
        /// Bytes by their index in the alphabet of the prelude.
        Alphabet = 13,
    }
}
