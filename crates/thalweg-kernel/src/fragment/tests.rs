//! Fragments on a simulated disk.
