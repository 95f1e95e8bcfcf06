//! Files, clock, randomness and threads behind one environment, so that a simulator can crash everything.
