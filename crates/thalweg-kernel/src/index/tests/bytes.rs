//! Entry lists and pages as bytes.
