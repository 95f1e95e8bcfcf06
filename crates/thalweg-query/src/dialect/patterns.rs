//! Patterns of SQL in the terms of those that DataFusion has: `SIMILAR TO` as a regular expression of the whole text, and `LIKE`
//! with an escape character of its own as one with a backslash.
//!
//! Invariants: a pattern matches the whole text; `%` and `_` stand for any text and any character, in brackets of
//! `SIMILAR TO` for themselves, as in the standard and PostgreSQL.
//!
//! Rejected: the regular expressions that DuckDB takes after `SIMILAR TO`. There `%` stands for itself, and a pattern that people
//! know from `LIKE` would match nothing.

use super::calls::{text, text_of};
use super::templates::filled;
use crate::error::{query, unsupported};
use datafusion_sql::sqlparser::ast::{Expr, UnaryOperator, Value, ValueWithSpan};
use thalweg_table::Result;

/// Translates `SIMILAR TO`, and patterns with an escape character other than the backslash.
pub(super) fn translated(expr: &mut Expr) -> Result<Option<Expr>> {
    match expr {
        // Databases that know it do not agree on whether letters in either case are the same.
        Expr::RLike {
            negated,
            expr,
            pattern,
            ..
        } => {
            let (sign, sign_for_both_cases) = match negated {
                false => ("~", "~*"),
                true => ("!~", "!~*"),
            };
            Err(unsupported(format!(
                "REGEXP and RLIKE are not offered: write {expr} {sign} {pattern}, or {sign_for_both_cases} for letters in either case"
            )))
        }
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => {
            let Some(pattern) = text_of(pattern) else {
                return Err(unsupported(
                    "SIMILAR TO takes a constant pattern: write regexp_like(text, pattern) for one that is computed"
                        .to_owned(),
                ));
            };
            let escape = escape_of(escape_char.as_ref())?.or(Some('\\'));
            let regex = text(&regex_of(&pattern, escape)?);
            let matches = filled("regexp_like(a1, a2)", &[expr, &regex])?;
            if !*negated {
                return Ok(Some(matches));
            }
            Ok(Some(Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(matches),
            }))
        }
        Expr::Like {
            pattern,
            escape_char: escape @ Some(_),
            ..
        }
        | Expr::ILike {
            pattern,
            escape_char: escape @ Some(_),
            ..
        } => {
            let escape_char = escape_of(escape.as_ref())?;
            match (text_of(pattern), escape_char) {
                (_, Some('\\')) => {}
                (Some(constant), _) => {
                    **pattern = text(&with_backslashes(&constant, escape_char)?);
                    *escape = None;
                }
                (None, Some(sign)) => {
                    return Err(unsupported(format!(
                        "ESCAPE '{sign}' takes a constant pattern: of one that is computed write replace(pattern, '{sign}', '\\'), without ESCAPE"
                    )));
                }
                (None, None) => {
                    return Err(unsupported(
                        "ESCAPE '' takes a constant pattern: of one that is computed write replace(pattern, '\\', '\\\\'), without ESCAPE",
                    ));
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The escape character; `None` where there is none, as after `ESCAPE ''`.
fn escape_of(escape: Option<&ValueWithSpan>) -> Result<Option<char>> {
    let Some(escape) = escape else {
        return Ok(None);
    };
    if let Value::SingleQuotedString(text) = &escape.value {
        let mut chars = text.chars();
        let first = chars.next();
        if chars.next().is_none() {
            return Ok(first);
        }
    }
    Err(query(format!("ESCAPE takes one character, not {escape}")))
}

fn ends_with_escape(pattern: &str) -> thalweg_table::Error {
    query(format!(
        "the pattern '{pattern}' ends with its escape character: write that twice"
    ))
}

/// A pattern of LIKE with another escape character as one with a backslash.
fn with_backslashes(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut written = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            _ if Some(c) == escape => chars.next().ok_or_else(|| ends_with_escape(pattern))?,
            '\\' => c,
            _ => {
                written.push(c);
                continue;
            }
        };
        if matches!(literal, '%' | '_' | '\\') {
            written.push('\\');
        }
        written.push(literal);
    }
    Ok(written)
}

/// The regular expression that a pattern of SIMILAR TO means.
fn regex_of(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regex = "(?s)^(?:".to_owned();
    let push_literal = |regex: &mut String, c: char| {
        if c.is_ascii_punctuation() {
            regex.push('\\');
        }
        regex.push(c);
    };
    let mut is_in_brackets = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            _ if Some(c) == escape => {
                let literal = chars.next().ok_or_else(|| ends_with_escape(pattern))?;
                push_literal(&mut regex, literal);
            }
            '[' if !is_in_brackets => {
                is_in_brackets = true;
                regex.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    regex.push('^');
                }
            }
            ']' if is_in_brackets => {
                is_in_brackets = false;
                regex.push(']');
            }
            '-' if is_in_brackets => regex.push('-'),
            // A class by its name, as `[:alpha:]`.
            '[' if chars.peek() == Some(&':') => {
                regex.push('[');
                while let Some(c) = chars.next_if(|c| *c != ']') {
                    regex.push(c);
                }
                regex.extend(chars.next());
            }
            _ if is_in_brackets => push_literal(&mut regex, c),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '{' => {
                // Numbers of times, with a comma.
                regex.push(c);
                while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || *c == ',') {
                    regex.push(c);
                }
            }
            ')' | '|' | '*' | '+' | '?' | '}' => regex.push(c),
            _ => push_literal(&mut regex, c),
        }
    }
    if is_in_brackets {
        return Err(query(format!(
            "the pattern '{pattern}' has a bracket that is not closed"
        )));
    }
    regex.push_str(")$");
    Ok(regex)
}
