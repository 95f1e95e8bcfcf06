//! Texts of several statements.

use crate::token_places::TokenPlaces;
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::ops::Range;

/// A statement of a text, and where it begins there, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedStatement<'a> {
    /// Its own text.
    pub statement: &'a str,
    /// Lines before it.
    pub line: usize,
    /// Characters before it in its line.
    pub column: usize,
}

impl<'a> PlacedStatement<'a> {
    fn within(text: &'a str, bytes: Range<usize>) -> Self {
        let before = &text[..bytes.start];
        let last_line = before.rsplit_once('\n').map_or(before, |(_, last)| last);
        Self {
            statement: &text[bytes],
            line: before.matches('\n').count(),
            column: last_line.chars().count(),
        }
    }

    /// A message that begins with a place in the statement, as one that begins with the place in the whole text; `None` where
    /// it begins otherwise.
    #[must_use]
    pub fn in_text(&self, message: &str) -> Option<String> {
        let (line, rest) = message.strip_prefix("line ")?.split_once(", column ")?;
        let (column, rest) = rest.split_once(':')?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        let before = if line == 1 { self.column } else { 0 };
        let (line, column) = (self.line + line, before + column);
        Some(format!("line {line}, column {column}:{rest}"))
    }
}

/// The statements of a text that has several, between its semicolons; `None` where it has one.
pub fn several_statements(text: &str) -> Option<Vec<PlacedStatement<'_>>> {
    if !text.trim_end().trim_end_matches(';').contains(';') {
        return None;
    }
    let mut tokens = Vec::new();
    Tokenizer::new(&GenericDialect {}, text)
        .tokenize_with_location_into_buf(&mut tokens)
        // The parser reports the error.
        .ok()?;
    let places = TokenPlaces::of(text);
    let (mut parts, mut from, mut is_blank) = (Vec::new(), 0, true);
    for token in &tokens {
        match token.token {
            Token::SemiColon => {
                let end = places.byte_of(token)?;
                if !std::mem::replace(&mut is_blank, true) {
                    parts.push(PlacedStatement::within(text, from..end));
                }
                from = end + 1;
            }
            Token::Whitespace(_) => {}
            _ => is_blank = false,
        }
    }
    if !is_blank {
        parts.push(PlacedStatement::within(text, from..text.len()));
    }
    (parts.len() > 1).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        let text = "SELECT ';ä' AS \"a;b\";\n-- c;\n SELECT ö;; /* ; */ ";
        let statements = several_statements(text).unwrap().into_iter();
        let statements: Vec<&str> = statements.map(|placed| placed.statement).collect();
        assert_eq!(statements, ["SELECT ';ä' AS \"a;b\"", "\n-- c;\n SELECT ö"]);
        for text in [
            "SELECT 1",
            "SELECT 1;",
            " ; SELECT ';' ;",
            "SELECT 'open; x",
        ] {
            assert_eq!(several_statements(text), None, "{text}");
        }
    }

    #[test]
    fn places_are_those_of_the_whole_text() {
        let statements = several_statements("select 1; select\n2;\n  selec 3;").unwrap();
        let placed = |number: usize, message| statements[number].in_text(message);
        for (number, message, wanted) in [
            (0, "line 1, column 3: no", "line 1, column 3: no"),
            (1, "line 1, column 2: no", "line 1, column 11: no"),
            (1, "line 2, column 1: no", "line 2, column 1: no"),
            (2, "line 2, column 3: no", "line 3, column 3: no"),
        ] {
            assert_eq!(placed(number, message).as_deref(), Some(wanted));
        }
        assert_eq!(placed(1, "no place"), None);
    }
}
