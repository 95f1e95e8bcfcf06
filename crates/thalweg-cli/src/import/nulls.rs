//! Texts and numbers that mean NULL in a file, as `--null` names them.
//!
//! Invariant: a number is missing however it is written where it was named: `--null -9999` is about `-9999.00` too.

use super::numbers::is_float;

/// The texts and numbers that were named.
#[derive(Clone, Debug)]
pub(super) struct Nulls {
    texts: Vec<String>,
    numbers: Vec<f64>,
}

impl Nulls {
    pub(super) fn new(named: &[String]) -> Self {
        let number = |text: &String| is_float(text).then(|| text.parse().ok()).flatten();
        Self {
            texts: named.iter().map(|text| text.trim().to_owned()).collect(),
            numbers: named.iter().filter_map(number).collect(),
        }
    }

    /// Whether a value was named, blanks around it aside.
    pub(super) fn has(&self, value: &str) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let value = value.trim();
        if self.texts.iter().any(|text| text == value) {
            return true;
        }
        if self.numbers.is_empty() || !is_float(value) {
            return false;
        }
        let value: Result<f64, _> = value.parse();
        value.is_ok_and(|value| self.numbers.contains(&value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_were_named() {
        let named = ["NA", "-9999", "", "1e3"].map(str::to_owned);
        let nulls = Nulls::new(&named);
        for value in ["NA", " NA ", "-9999", "-9999.00", "", "1000"] {
            assert!(nulls.has(value), "{value}");
        }
        for value in ["na", "-9999.5", "9999", "NA1"] {
            assert!(!nulls.has(value), "{value}");
        }
        assert!(!Nulls::new(&[]).has(""));
    }
}
