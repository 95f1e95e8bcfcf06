//! Names that were meant by a name that does not exist.

/// The name nearest to `wanted`, if few letters differ, without regard to case.
///
/// ```
/// # use thalweg_table::suggest::nearest;
/// let columns = ["ts", "station", "temp"];
/// assert_eq!(nearest("statoin", columns), Some("station"));
/// assert_eq!(nearest("TEMPERATURE", columns), Some("temp"));
/// assert_eq!(nearest("humidity", columns), None);
/// ```
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().collect();
    let measured = names.into_iter().filter_map(|name| {
        let letters: Vec<char> = name.to_lowercase().chars().collect();
        let longer = wanted.len().max(letters.len());
        // Comparing takes the product of both lengths; nobody mistypes a name as long as this.
        let changes = (longer <= LONGEST).then(|| changes(&wanted, &letters))?;
        let begins =
            wanted.len() >= 3 && (letters.starts_with(&wanted) || wanted.starts_with(&letters));
        let is_near = changes * 3 <= longer || (begins && letters.len() >= 3);
        (is_near && (begins || changes < wanted.len())).then_some((changes, name))
    });
    measured
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, name)| name)
}

/// The beginning of a message that lists `names`: the one that was meant, or nothing.
pub fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, names).map_or_else(String::new, |name| format!("did you mean \"{name}\"? "))
}

/// Letters of the longest name that is compared.
const LONGEST: usize = 64;

/// How many letters must be added, removed, exchanged or swapped with their neighbour to make one word of another.
fn changes(one: &[char], other: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let exchanged = last[j] + usize::from(letter != wanted);
            let mut least = exchanged.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_little_are_meant() {
        let names = ["ts", "station", "temp", "humidity", "Lat"];
        for (wanted, meant) in [
            ("tmp", Some("temp")),
            ("TEMP", Some("temp")),
            ("statoin", Some("station")),
            ("temperature", Some("temp")),
            ("hum", Some("humidity")),
            ("lta", Some("Lat")),
            ("EWR", None),
            ("x", None),
            ("t", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names), meant, "{wanted}");
        }
        assert_eq!(nearest(&"x".repeat(1000), names), None);
    }
}
