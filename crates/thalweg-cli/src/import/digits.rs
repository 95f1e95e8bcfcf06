//! Whether digits with zeros in front are codes or numbers.
//!
//! Invariant: digits are codes only if some values have leading zeros, which numbers would lose: if more than one in 20 has them,
//! or nine of ten values are as wide as those that have.

/// Digits that an integer may have, zeros in front included; longer ones count as that long.
const MAX_DIGITS: usize = 24;

/// A value and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Example {
    pub(super) line: u64,
    pub(super) text: String,
}

/// How the whole numbers of a column are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Digits {
    /// Values by their number of digits.
    by_width: [u64; MAX_DIGITS + 1],
    /// Those with zeros in front.
    padded: [u64; MAX_DIGITS + 1],
    first: Option<Example>,
}

impl Digits {
    pub(super) fn look(&mut self, line: u64, text: &str) {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let width = digits.len().min(MAX_DIGITS);
        self.by_width[width] += 1;
        if width > 1 && digits.starts_with('0') {
            self.padded[width] += 1;
            self.first.get_or_insert_with(|| Example {
                line,
                text: text.to_owned(),
            });
        }
    }

    /// The first value with zeros in front.
    pub(super) fn padded(&self) -> Option<&Example> {
        self.first.as_ref()
    }

    /// Whether more than one of 20 values has zeros in front, or 9 of 10 values are as wide as those that have.
    pub(super) fn are_codes(&self) -> bool {
        let padded: u64 = self.padded.iter().sum();
        let all: u64 = self.by_width.iter().sum();
        let widths = self.by_width.iter().zip(&self.padded);
        let as_wide: u64 = widths
            .filter(|(_, padded)| **padded > 0)
            .map(|(all, _)| all)
            .sum();
        padded > 0 && (padded * 20 > all || as_wide * 10 >= all * 9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> bool {
        let mut digits = Digits::default();
        for text in texts {
            digits.look(1, text);
        }
        digits.are_codes()
    }

    #[test]
    fn codes_have_one_width_or_many_zeros() {
        let numbers: Vec<String> = (0..100).map(|value| (value * 37).to_string()).collect();
        let numbers = || numbers.iter().map(String::as_str);
        assert!(!are_codes(numbers()));
        assert!(!are_codes(numbers().chain(["007"])));
        assert!(are_codes(numbers().chain(["007"; 6])));
        assert!(are_codes(["007", "8"]));
        let zips: Vec<String> = (0..1_000)
            .map(|value| format!("{:05}", value * 97))
            .collect();
        assert!(are_codes(zips.iter().map(String::as_str)));
        assert!(are_codes(["10001"; 99].into_iter().chain(["02134"])));
    }
}
