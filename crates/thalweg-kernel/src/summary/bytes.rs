//! Bounds of strings and binaries. They lie beside the summaries of an entry, so that those stay small and of one size.
//!
//! Invariants
//! - The low bound is not larger than any value. Unless it is cut, a row has this value.
//! - The high bound is not smaller than any value. Unless it is cut, a row has this value; if it is, every value is smaller.
//! - Bounds are cut where values are summarised, and never again: merging is commutative and associative.

use super::{ColumnSummary, SummaryKind};

/// Most bytes of a bound.
pub const MAX_BOUND_BYTES: usize = 64;

/// Bytes of a bound after what all values begin with.
const TELLING_BYTES: usize = 16;

/// Bytes that are compared at once.
const WORD_BYTES: usize = 8;

/// Values that are compared at once.
const VALUES_AT_ONCE: usize = 64;

/// A bound without its meaning.
#[derive(Clone, Copy)]
struct Prefix {
    bytes: [u8; MAX_BOUND_BYTES],
    len: u8,
}

impl Prefix {
    const EMPTY: Self = Self {
        bytes: [0; MAX_BOUND_BYTES],
        len: 0,
    };

    /// A prefix of the bytes, at most [`MAX_BOUND_BYTES`] of them.
    fn new(bytes: &[u8]) -> Self {
        Self::joined(&[], bytes)
    }

    /// A prefix of bytes in two parts.
    fn joined(front: &[u8], rest: &[u8]) -> Self {
        let mut prefix = Self::EMPTY;
        let bytes = front.iter().chain(rest);
        for (place, byte) in prefix.bytes.iter_mut().zip(bytes) {
            *place = *byte;
            prefix.len += 1;
        }
        prefix
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Bounds of the values of a column of strings or binaries, of which there is at least one.
#[derive(Clone, Copy)]
pub struct ByteBounds {
    low: Prefix,
    high: Prefix,
    low_is_cut: bool,
    high_is_cut: bool,
    has_high: bool,
}

impl ByteBounds {
    /// Bounds of values of which nothing is known.
    pub const UNKNOWN: Self = Self {
        low: Prefix::EMPTY,
        high: Prefix::EMPTY,
        low_is_cut: true,
        high_is_cut: true,
        has_high: false,
    };

    /// Bounds of some values; `None` without any.
    pub fn of_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (smallest, largest) = extremes(values)?;
        let common = common_bytes(smallest, largest).min(MAX_BOUND_BYTES);
        let limit = MAX_BOUND_BYTES.min(common + TELLING_BYTES);
        let low = smallest.get(..limit).unwrap_or(smallest);
        let high_is_cut = largest.len() > limit;
        let high = if high_is_cut {
            successor(&largest[..limit])
        } else {
            Some(largest.to_vec())
        };
        Some(Self {
            low: Prefix::new(low),
            high: high.as_deref().map_or(Prefix::EMPTY, Prefix::new),
            low_is_cut: smallest.len() > limit,
            high_is_cut,
            has_high: high.is_some(),
        })
    }

    /// Bounds as they are stored: what both begin with, and what each goes on with, with whether it is cut.
    pub(crate) fn from_parts(
        common: &[u8],
        low: (&[u8], bool),
        high: (Option<&[u8]>, bool),
    ) -> Self {
        Self {
            low: Prefix::joined(common, low.0),
            high: { high.0 }.map_or(Prefix::EMPTY, |rest| Prefix::joined(common, rest)),
            low_is_cut: low.1,
            high_is_cut: high.1,
            has_high: high.0.is_some(),
        }
    }

    /// No value is smaller; if the second is true, a row has this value.
    #[must_use]
    pub fn low(&self) -> (&[u8], bool) {
        (self.low.as_slice(), !self.low_is_cut)
    }

    /// No value is larger, `None` if nothing is known above; if the second is true a row has this value, else all values
    /// are smaller.
    #[must_use]
    pub fn high(&self) -> (Option<&[u8]>, bool) {
        (
            self.has_high.then(|| self.high.as_slice()),
            !self.high_is_cut,
        )
    }

    /// Whether all values are the same one, which the bounds are.
    pub(crate) fn is_constant(&self) -> bool {
        !self.low_is_cut && !self.high_is_cut && self.low.as_slice() == self.high.as_slice()
    }

    /// Whether a value can lie between the bounds, as in every valid pair.
    pub(crate) fn has_room(&self) -> bool {
        let is_between = self.low.as_slice() < self.high.as_slice() || self.is_constant();
        is_between || !self.has_high
    }

    /// How many bytes both bounds begin with; 0 without a bound above.
    pub(crate) fn common_bytes(&self) -> usize {
        common_bytes(self.low.as_slice(), self.high.as_slice())
    }

    /// Bounds of the values of both.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let takes_low =
            (other.low.as_slice(), other.low_is_cut) < (self.low.as_slice(), self.low_is_cut);
        let rank = |bounds: &Self| (!bounds.has_high, bounds.high_is_cut);
        let takes_high = match (self.has_high, other.has_high) {
            (true, true) => {
                let above = other.high.as_slice().cmp(self.high.as_slice());
                above.is_gt() || above.is_eq() && rank(other) < rank(self)
            }
            _ => rank(other) > rank(self),
        };
        let (low, high) = (
            if takes_low { other } else { self },
            if takes_high { other } else { self },
        );
        Self {
            low: low.low,
            low_is_cut: low.low_is_cut,
            high: high.high,
            high_is_cut: high.high_is_cut,
            has_high: high.has_high,
        }
    }

    /// Whether no value lies between `first` and `last`; with `is_open` the last one is not accepted itself.
    #[must_use]
    pub fn misses(&self, first: Option<&[u8]>, last: Option<&[u8]>, is_open: bool) -> bool {
        let low = self.low.as_slice();
        let is_below = last.is_some_and(|last| last < low || is_open && last == low);
        let high = self.high.as_slice();
        let is_above = |first: &[u8]| first > high || self.high_is_cut && first == high;
        is_below || self.has_high && first.is_some_and(is_above)
    }
}

impl PartialEq for ByteBounds {
    fn eq(&self, other: &Self) -> bool {
        (self.low(), self.high()) == (other.low(), other.high())
    }
}

impl Eq for ByteBounds {}

impl std::fmt::Debug for ByteBounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |is_exact: bool| if is_exact { "" } else { " (cut)" };
        let (low, low_is_exact) = self.low();
        write!(f, "{}{}..=", low.escape_ascii(), end(low_is_exact))?;
        match self.high() {
            (Some(high), is_exact) => write!(f, "{}{}", high.escape_ascii(), end(is_exact)),
            (None, _) => Ok(()),
        }
    }
}

impl ColumnSummary {
    /// The summary of strings or binaries without their bounds: rows, nulls, and the bytes of all values together.
    ///
    /// # Panics
    /// When there are more nulls than rows.
    #[must_use]
    pub fn of_byte_counts(column_id: u32, rows: u64, null_rows: u64, value_bytes: u64) -> Self {
        Self {
            kind: SummaryKind::Bytes,
            sum: u128::from(value_bytes),
            ..Self::of_counts(column_id, rows, null_rows)
        }
    }

    /// The bytes of all values together of a column of strings or binaries.
    #[must_use]
    pub fn value_bytes(&self) -> Option<u128> {
        (self.kind == SummaryKind::Bytes).then_some(self.sum)
    }
}

/// The smallest sequence of bytes that is larger than all that begin with `prefix`; `None` if there is none.
#[must_use]
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut successor = prefix[..=kept].to_vec();
    successor[kept] += 1;
    Some(successor)
}

/// How many bytes both begin with.
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    { a.iter().zip(b) }.take_while(|(a, b)| a == b).count()
}

/// The smallest and the largest of the values; `None` without any.
///
/// All values between two of them begin with what these have in common. After that, eight bytes nearly always decide how a value
/// compares with both, so they are compared many at a time, without a branch for each.
fn extremes<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<(&'a [u8], &'a [u8])> {
    let first = values.next()?;
    let mut found = Extremes::new(first, first);
    let mut taken: [&[u8]; VALUES_AT_ONCE] = [&[]; VALUES_AT_ONCE];
    loop {
        let mut count = 0;
        for (place, value) in taken.iter_mut().zip(&mut values) {
            *place = value;
            count += 1;
        }
        if count == 0 {
            return Some((found.smallest, found.largest));
        }
        found.take(&taken[..count]);
    }
}

/// The extremes so far.
struct Extremes<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    /// Bytes that all begin with, or fewer of them.
    common: &'a [u8],
    /// The bytes after the common ones.
    words: (u64, u64),
}

impl<'a> Extremes<'a> {
    fn new(smallest: &'a [u8], largest: &'a [u8]) -> Self {
        let mut common = common_bytes(smallest, largest);
        if smallest != largest {
            // A whole word follows where there is one.
            let shorter = smallest.len().min(largest.len());
            common = common.min(shorter.saturating_sub(WORD_BYTES));
        }
        let (common, rest) = smallest.split_at(common);
        Self {
            smallest,
            largest,
            common,
            words: (word(rest), word(&largest[common.len()..])),
        }
    }

    /// Takes in at most [`VALUES_AT_ONCE`] values.
    fn take(&mut self, values: &[&'a [u8]]) {
        let mut buffer = [0; VALUES_AT_ONCE];
        let words = &mut buffer[..values.len()];
        let Some((smallest, largest)) = self.fill_words(values, words) else {
            return values.iter().for_each(|value| self.compare(value));
        };
        let (low, high) = self.words;
        if low < smallest && largest < high {
            return;
        }
        // All others lie between these.
        let is_outer =
            |word: u64| word == smallest && smallest <= low || word == largest && largest >= high;
        for (value, _) in { values.iter().zip(words) }.filter(|(_, word)| is_outer(**word)) {
            self.compare_rest(value);
        }
    }

    /// Fills `words` with what follows the common bytes and returns the extremes of these; `None` if a value does not begin
    /// with the common bytes.
    fn fill_words(&self, values: &[&[u8]], words: &mut [u64]) -> Option<(u64, u64)> {
        let (parts, end) = self.common.as_chunks::<WORD_BYTES>();
        let (end, bits) = (word(end), word(&[u8::MAX; WORD_BYTES][..end.len()]));
        let (mut smallest, mut largest) = (u64::MAX, 0);
        let mut begin = true;
        for (value, place) in values.iter().zip(words) {
            let (front, rest) = value.split_at_checked(self.common.len())?;
            let word_behind = word(rest);
            *place = word_behind;
            smallest = smallest.min(word_behind);
            largest = largest.max(word_behind);
            if !front.is_empty() {
                let (front_parts, _) = front.as_chunks::<WORD_BYTES>();
                let pairs = front_parts.iter().zip(parts);
                pairs.for_each(|(one, other)| begin &= one == other);
                begin &= (word(&value[WORD_BYTES * parts.len()..]) ^ end) & bits == 0;
            }
        }
        begin.then_some((smallest, largest))
    }

    /// Takes in a value that begins with the common bytes. They stay: with the new extreme, too, all begin with them.
    fn compare_rest(&mut self, value: &'a [u8]) {
        let from = self.common.len();
        if value < self.smallest {
            (self.smallest, self.words.0) = (value, word(&value[from..]));
        } else if value > self.largest {
            (self.largest, self.words.1) = (value, word(&value[from..]));
        }
    }

    /// Takes in a value.
    fn compare(&mut self, value: &'a [u8]) {
        if value < self.smallest {
            *self = Self::new(value, self.largest);
        } else if value > self.largest {
            *self = Self::new(self.smallest, value);
        }
    }
}

/// The first bytes as a number that orders as they do; what is missing counts as zeros.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<WORD_BYTES>() {
        return u64::from_be_bytes(*first);
    }
    // Where each byte belongs that is there; both reads may have some of them in common.
    let missing_bits = 8 * (WORD_BYTES - bytes.len());
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_be_bytes(*half)));
        return first << 32 | last << missing_bits;
    }
    { bytes.iter().zip((0..WORD_BYTES).rev()) }.fold(0, |word, (byte, place)| {
        word | u64::from(*byte) << (8 * place)
    })
}

#[cfg(test)]
mod tests;
