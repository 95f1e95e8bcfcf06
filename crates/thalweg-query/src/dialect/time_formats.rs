//! Patterns of times in PostgreSQL's terms, `YYYY-MM-DD`, as those of `strftime`, `%Y-%m-%d`.
//!
//! Invariant: what is in double quotes stands for itself, and a name that is not known is an error, not a text.

use crate::error::query;
use thalweg_table::Result;

/// Patterns of PostgreSQL's `to_char`, longer ones first.
const PATTERNS: &[(&str, &str)] = &[
    ("YYYY", "%Y"),
    ("YY", "%y"),
    ("Month", "%B"),
    ("Mon", "%b"),
    ("MM", "%m"),
    ("DDD", "%j"),
    ("DD", "%d"),
    ("Day", "%A"),
    ("Dy", "%a"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("MS", "%3f"),
    ("US", "%6f"),
    ("SS", "%S"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("am", "%P"),
    ("pm", "%P"),
    ("IYYY", "%G"),
    ("IW", "%V"),
];

/// PostgreSQL's pattern as one of `strftime`.
pub(super) fn strftime(format: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (literal, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            out.push_str(literal);
            rest = behind;
            continue;
        }
        let found = PATTERNS
            .iter()
            .filter(|(name, _)| {
                let head = rest.get(..name.len());
                head == Some(*name) || head == Some(&*name.to_ascii_lowercase())
            })
            // Of equally long ones the one as it is written.
            .max_by_key(|(name, _)| (name.len(), rest.starts_with(name)));
        let is_other = ["TZ", "SSSS"].iter().any(|other| rest.starts_with(other));
        let found = found.filter(|_| !is_other);
        match found {
            Some((name, meaning)) => {
                out.push_str(meaning);
                rest = &rest[name.len()..];
            }
            None if is_other || next.is_ascii_alphabetic() && next != 'T' && next != 'Z' => {
                return Err(query(format!(
                    "to_char does not know the pattern \"{rest}\": write '%Y-%m-%d %H:%M:%S' or 'YYYY-MM-DD HH24:MI:SS'"
                )));
            }
            None => {
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    Ok(out)
}
