//! ALTER TABLE ... SET (option = value, ...) and RESET (option, ...).
//!
//! Invariant: the parser knows SET alone, so `RESET (a, b)` is read as a SET of both to a value that nobody can write.

use crate::ddl::option_value;
use crate::error::query;
use datafusion_sql::sqlparser::ast::{Expr, SqlOption};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::collections::HashSet;
use thalweg_table::{Alteration, Result};

/// Stands for the value of an option that goes back to its default: names of users have no NUL.
const DEFAULT: &str = "\0default";

/// The tokens of an ALTER TABLE with SET in the place of RESET; others as they are.
pub(crate) fn with_set_for_reset(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = tokens.iter().map(|token| &token.token);
    let mut words = words.filter(|token| !matches!(token, Token::Whitespace(_)));
    let alters = [Keyword::ALTER, Keyword::TABLE]
        .iter()
        .all(|keyword| matches!(words.next(), Some(Token::Word(word)) if word.keyword == *keyword));
    if !alters {
        return tokens;
    }
    let mut written = Vec::with_capacity(tokens.len());
    let (mut depth, mut is_reset) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Word(word)
                if depth == 0 && word.keyword == Keyword::RESET && word.quote_style.is_none() =>
            {
                let mut rest = tokens[at + 1..].iter().map(|token| &token.token);
                let next = rest.find(|token| !matches!(token, Token::Whitespace(_)));
                is_reset = next == Some(&Token::LParen);
                if is_reset {
                    written.push(of_span(Token::make_keyword("SET"), token));
                    continue;
                }
            }
            Token::LParen => depth += 1,
            Token::Comma | Token::RParen if depth == 1 && is_reset => {
                written.push(of_span(Token::Eq, token));
                let default = Token::make_word(DEFAULT, Some('"'));
                written.push(of_span(default, token));
            }
            _ => {}
        }
        if token.token == Token::RParen {
            depth = depth.saturating_sub(1);
            is_reset &= depth > 0;
        }
        written.push(token.clone());
    }
    written
}

/// A token in the place of another.
fn of_span(token: Token, other: &TokenWithSpan) -> TokenWithSpan {
    TokenWithSpan::new(token, other.span)
}

/// The changes that a SET or RESET stands for.
pub(crate) fn alterations(options: &[SqlOption]) -> Result<Vec<Alteration>> {
    let mut seen = HashSet::new();
    options
        .iter()
        .map(|option| {
            let SqlOption::KeyValue { key, value } = option else {
                return Err(query(format!(
                    "\"{option}\" is no option of a table: write SET (name = 'value') or RESET (name)"
                )));
            };
            if !seen.insert(key.value.to_lowercase()) {
                return Err(query(format!(
                    "the option \"{}\" is given twice",
                    key.value
                )));
            }
            let value = match value {
                Expr::Identifier(name) if name.value == DEFAULT => None,
                // What stands between the name and the value that was put after it.
                value if value.to_string().contains(DEFAULT) => {
                    return Err(query(format!(
                        "RESET takes names of options alone, as in RESET ({}): SET gives them values",
                        key.value
                    )));
                }
                value => Some(option_value(key, value)?),
            };
            Ok(Alteration::SetOption {
                name: key.value.clone(),
                value,
            })
        })
        .collect()
}
