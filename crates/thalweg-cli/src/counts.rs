//! Numbers formatted for people.

/// `1 row`, `2 rows`, `12,000 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        thousands(count),
        if count == 1 { "" } else { "s" }
    )
}

/// A number in groups of three digits.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let shown: Vec<String> = [0, 999, 1_000, 105_120, 1_234_567].map(thousands).into();
        assert_eq!(shown, ["0", "999", "1,000", "105,120", "1,234,567"]);
        assert_eq!(
            [counted(1, "row"), counted(0, "row"), counted(2_000, "row")],
            ["1 row", "0 rows", "2,000 rows"]
        );
    }
}
