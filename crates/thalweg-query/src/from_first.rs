//! Queries that begin with FROM, as `FROM t WHERE v > 1`.
//!
//! Invariant: such a query without SELECT means all columns; what else a FROM stands in, as `extract(year FROM ts)`, is left alone.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// What a level of brackets has shown of the query in it.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Its first word can be followed by a query.
    leads_to_query: bool,
    is_begun: bool,
    has_select: bool,
}

/// The same tokens with `SELECT *` before each FROM that begins a query and has no SELECT behind it.
pub(crate) fn with_select(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut places = Vec::new();
    let mut levels = vec![Level::default()];
    let mut before = None;
    for (at, token) in tokens.iter().enumerate() {
        let Some(level) = levels.last_mut() else {
            break;
        };
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                level.is_begun = true;
                levels.push(Level::default());
            }
            Token::RParen => {
                levels.pop();
            }
            Token::SemiColon => levels = vec![Level::default()],
            Token::Word(word) => {
                let keyword = word.keyword;
                if !level.is_begun {
                    level.is_begun = true;
                    level.leads_to_query = leads_to_query(keyword);
                }
                match keyword {
                    Keyword::SELECT | Keyword::VALUES => level.has_select = true,
                    // `* EXCEPT (v)` leaves columns out.
                    Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT
                        if before != Some(&Token::Mul) =>
                    {
                        (level.leads_to_query, level.has_select) = (true, false);
                    }
                    Keyword::FROM if level.leads_to_query && !level.has_select => {
                        level.has_select = true;
                        if !is_selected_later(&tokens[at..]) {
                            places.push(at);
                        }
                    }
                    _ => {}
                }
            }
            _ => level.is_begun = true,
        }
        before = Some(&token.token);
    }
    if places.is_empty() {
        return tokens;
    }
    let mut places = places.into_iter().peekable();
    let mut out = Vec::with_capacity(tokens.len() + 4 * places.len());
    for (at, token) in tokens.into_iter().enumerate() {
        if places.next_if_eq(&at).is_some() {
            let space = || Token::Whitespace(Whitespace::Space);
            let all = [Token::make_keyword("SELECT"), space(), Token::Mul, space()];
            let span = token.span;
            out.extend(all.map(|token| TokenWithSpan { token, span }));
        }
        out.push(token);
    }
    out
}

fn leads_to_query(first: Keyword) -> bool {
    matches!(
        first,
        Keyword::FROM
            | Keyword::WITH
            | Keyword::EXPLAIN
            | Keyword::DESCRIBE
            | Keyword::DESC
            | Keyword::CREATE
            | Keyword::INSERT
    )
}

/// Whether the query that these tokens begin with says later what it selects.
fn is_selected_later(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    for token in tokens {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::SemiColon => return false,
            Token::Word(word) if depth == 0 => match word.keyword {
                Keyword::SELECT => return true,
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => return false,
                _ => {}
            },
            _ => {}
        }
    }
    false
}
