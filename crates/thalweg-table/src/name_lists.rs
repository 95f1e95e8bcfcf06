//! Lists of names in one text, as options have them.
//!
//! Invariant: what is written is read back as it was.

/// The names of a list: `a, b`, or in double quotes where a name has commas, quotes or blanks at its ends.
pub(crate) fn names(text: &str) -> Vec<String> {
    let (mut names, mut name, mut quoted) = (Vec::new(), String::new(), String::new());
    let mut chars = text.chars().peekable();
    let (mut is_within, mut was_quoted) = (false, false);
    while let Some(char) = chars.next() {
        match char {
            '"' if is_within && chars.next_if_eq(&'"').is_some() => quoted.push('"'),
            '"' if is_within => is_within = false,
            '"' if name.trim().is_empty() && !was_quoted => (is_within, was_quoted) = (true, true),
            _ if is_within => quoted.push(char),
            ',' => {
                names.push(named(&name, &quoted, was_quoted));
                name.clear();
                quoted.clear();
                was_quoted = false;
            }
            _ => name.push(char),
        }
    }
    names.push(named(&name, &quoted, was_quoted));
    names
}

/// A name of a list, whose text outside of quotes is blank if it has quotes.
fn named(plain: &str, quoted: &str, was_quoted: bool) -> String {
    match was_quoted {
        true => format!("{quoted}{}", plain.trim()),
        false => plain.trim().to_owned(),
    }
}

/// Names as a list that [`names`] reads.
pub(crate) fn list_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let name = |name: &'a str| {
        let is_plain = !name.contains([',', '"']) && name.trim() == name;
        match is_plain {
            true => name.to_owned(),
            false => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    };
    names.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_are_read_back() {
        let plain = |text: &str| names(text);
        assert_eq!(plain("a, b c ,d"), ["a", "b c", "d"]);
        assert_eq!(plain("a"), ["a"]);
        assert_eq!(plain("\"a, b\", c"), ["a, b", "c"]);
        for list in [
            &["dev,v", "ts"][..],
            &[" d", "e ", "\"f\"", "g\"h"],
            &["", "x"],
            &["ü,ä"],
        ] {
            assert_eq!(names(&list_of(list.iter().copied())), list);
        }
    }
}
