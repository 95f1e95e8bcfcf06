//! Rust source with comments and literals blanked, so that searching it finds code only.
//!
//! A full parser was rejected: the rules look for single words, and a parser is a large dependency for that.

/// `source` with the content of comments, strings and character literals replaced by blanks. Lines stay lines.
pub(crate) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_or_comment_end(&chars, at);
        if end > at {
            code.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    code
}

/// What comes before the tests that stand in the file itself; `code` holds no comments and literals.
pub(crate) fn without_tests(code: &str) -> &str {
    let end = ["mod tests {", "pub(crate) mod tests {"]
        .iter()
        .filter_map(|head| code.find(&format!("#[cfg(test)]\n{head}")))
        .min();
    &code[..end.unwrap_or(code.len())]
}

/// Where the comment or literal that starts at `at` ends; `at` itself if none starts there.
fn literal_or_comment_end(chars: &[char], at: usize) -> usize {
    match (chars[at], chars.get(at + 1)) {
        ('/', Some('/')) => line_end(chars, at),
        ('/', Some('*')) => block_comment_end(chars, at),
        ('"', _) => string_end(chars, at),
        ('\'', _) => char_end(chars, at),
        ('r', Some('"' | '#')) if !continues_a_word(chars, at) => raw_string_end(chars, at),
        _ => at,
    }
}

/// Whether the character before `at` belongs to the same word, prefixes of raw strings aside.
fn continues_a_word(chars: &[char], at: usize) -> bool {
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    let Some(before) = at.checked_sub(1).map(|i| &chars[i]) else {
        return false;
    };
    let is_prefix = matches!(before, 'b' | 'c') && !(at >= 2 && is_word(&chars[at - 2]));
    is_word(before) && !is_prefix
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|&c| c == '\n')
        .map_or(chars.len(), |length| at + length)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0usize;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// A quote starts a character if the next one closes it or an escape follows; otherwise it is a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let rest = chars.get(at + 3..).unwrap_or_default();
            rest.iter()
                .position(|&c| c == '\'')
                .map_or(chars.len(), |length| at + 4 + length)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at; // A raw identifier such as r#type.
    }
    let mut i = at + 2 + hashes;
    while i < chars.len() {
        let closes = chars[i] == '"'
            && chars[i + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes;
        if closes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// The lines (from one) on which `word` stands as a whole word followed by `suffix`.
pub(crate) fn lines_with_word(code: &str, word: &str, suffix: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        let hit = line.match_indices(word).any(|(start, _)| {
            let (before, after) = (&line[..start], &line[start + word.len()..]);
            !before.ends_with(is_word) && !after.starts_with(is_word) && after.starts_with(suffix)
        });
        if hit {
            lines.push(number);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{code_only, lines_with_word};

    #[test]
    fn comments_and_literals_become_blanks() {
        let source = "let a = \"x // \\\" y\"; // unsafe\nlet b = 'u'; let c: &'static str = r#\"dbg!(\"1\")\"#;\n";
        let code = code_only(source);
        assert!(
            !code.contains("unsafe") && !code.contains("dbg") && !code.contains("//"),
            "{code}"
        );
        assert!(
            code.contains("let b =") && code.contains("&'static str"),
            "{code}"
        );
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn nested_comments_raw_identifiers_and_escaped_quotes_do_not_confuse() {
        let code =
            code_only("/* a /* b */ unsafe */ let r#type = '\\''; let x = b'\\\\'; unsafe { f() }");
        assert_eq!(code.matches("unsafe").count(), 1, "{code}");
        assert!(code.contains("r#type"), "{code}");
        let code = code_only("let p = br\"unsafe\"; let for_r = var\"unsafe\";");
        assert!(!code.contains("unsafe"), "{code}");
    }

    #[test]
    fn words_are_whole() {
        let code = "#![forbid(unsafe_code)]\nunsafe { }\nnot_todo!()\ntodo!()";
        assert_eq!(lines_with_word(code, "unsafe", ""), [2]);
        assert_eq!(lines_with_word(code, "todo", "!"), [4]);
    }
}
