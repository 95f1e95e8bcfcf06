//! Column encodings over slices, chosen by sampling.
