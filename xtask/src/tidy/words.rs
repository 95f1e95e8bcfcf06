//! Words that belong to a workshop and not to the product: paths of one machine, tools of the trade.

use super::{Finding, SourceFile};

/// Starts of absolute paths that exist on one machine only. Spelt in halves so that this file passes its own rule.
const PATHS: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
    concat!("/", "Users/"),
];

/// Anywhere, in any case.
const WORDS: &[&str] = &[
    concat!("sub", "agent"),
    concat!("sub-", "agent"),
    concat!("language ", "model"),
    concat!("Chat", "GPT"),
    concat!("Clau", "de"),
    concat!("Anthro", "pic"),
];

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(file.text.iter().flat_map(|text| text.lines())) {
            if let Some(word) = banned_in(line) {
                let message = format!("{word} says where this was written, not what it is");
                findings.push(Finding::new(&file.path, Some(number), message));
            }
        }
    }
    findings
}

fn banned_in(line: &str) -> Option<&'static str> {
    let starts_path = |start: usize| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '}' | ')' | '*')
        })
    };
    let lower = line.to_lowercase();
    let path = PATHS.iter().find(|path| {
        line.match_indices(**path)
            .any(|(start, _)| starts_path(start))
    });
    path.or_else(|| {
        WORDS
            .iter()
            .find(|word| lower.contains(&word.to_lowercase()))
    })
    .copied()
}

#[cfg(test)]
mod tests {
    use super::{PATHS, WORDS, banned_in};

    #[test]
    fn absolute_paths_and_words_are_found() {
        for path in PATHS {
            assert_eq!(banned_in(&format!("see {path}x")), Some(*path));
            assert_eq!(
                banned_in(&format!("see https://example.org{path}x, a{path}b")),
                None
            );
        }
        for word in WORDS {
            assert_eq!(
                banned_in(&format!("a {}.", word.to_uppercase())),
                Some(*word)
            );
        }
        assert_eq!(banned_in("a session of work at home"), None);
    }
}
