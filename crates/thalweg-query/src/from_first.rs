//! Queries that begin with FROM, as `FROM t WHERE v > 1` and `FROM t SELECT v`.
//!
//! Invariant: such a query without SELECT means all columns; what else a FROM stands in, as `extract(year FROM ts)`, is left alone.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// The state of the query in one level of brackets, as far as it was read.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Its first word can be followed by a query.
    leads_to_query: bool,
    is_begun: bool,
    has_select: bool,
}

/// Puts `SELECT *` before each FROM that begins a query without a SELECT, and moves FROM after a SELECT that WINDOW or QUALIFY
/// follows: the parser takes these for the name of its last column.
pub(crate) fn with_select(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut places = places(&tokens);
    while let Some((from, select, end)) = places.selected_later {
        let space = TokenWithSpan {
            token: Token::Whitespace(Whitespace::Space),
            span: tokens[from].span,
        };
        let mut columns = tokens[select..end].to_vec();
        columns.push(space);
        columns.extend_from_slice(&tokens[from..select]);
        tokens.splice(from..end, columns);
        places = self::places(&tokens);
    }
    with_wildcards(tokens, &places.unselected)
}

/// The queries that begin with FROM.
struct Places {
    /// Those without a SELECT.
    unselected: Vec<usize>,
    /// Of the first one whose SELECT is followed by WINDOW or QUALIFY: FROM, SELECT, and the word after its columns.
    selected_later: Option<(usize, usize, usize)>,
}

fn places(tokens: &[TokenWithSpan]) -> Places {
    let mut places = Places {
        unselected: Vec::new(),
        selected_later: None,
    };
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
                    // `WITH ... DELETE FROM t`, `WITH ... UPDATE t SET ... FROM other`: these are no queries.
                    Keyword::SELECT
                    | Keyword::VALUES
                    | Keyword::DELETE
                    | Keyword::UPDATE
                    | Keyword::MERGE => level.has_select = true,
                    // `* EXCEPT (v)` leaves columns out.
                    Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT
                        if before != Some(&Token::Mul) =>
                    {
                        (level.leads_to_query, level.has_select) = (true, false);
                    }
                    Keyword::FROM if level.leads_to_query && !level.has_select => {
                        level.has_select = true;
                        match selected_later(&tokens[at..]) {
                            None => places.unselected.push(at),
                            Some(select) if places.selected_later.is_none() => {
                                let end = end_of_columns(&tokens[at + select..]);
                                places.selected_later =
                                    end.map(|end| (at, at + select, at + select + end));
                            }
                            Some(_) => {}
                        }
                    }
                    _ => {}
                }
            }
            _ => level.is_begun = true,
        }
        before = Some(&token.token);
    }
    places
}

fn with_wildcards(tokens: Vec<TokenWithSpan>, places: &[usize]) -> Vec<TokenWithSpan> {
    if places.is_empty() {
        return tokens;
    }
    let mut places = places.iter().copied().peekable();
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

/// The place of the SELECT of the query that these tokens begin with, if it comes after the FROM.
fn selected_later(tokens: &[TokenWithSpan]) -> Option<usize> {
    words_of_query(tokens).find_map(|(place, keyword, _)| match keyword {
        Keyword::SELECT => Some(Some(place)),
        Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => Some(None),
        _ => None,
    })?
}

/// The place of WINDOW or QUALIFY, if one of them follows the columns of the SELECT that these tokens begin with.
fn end_of_columns(tokens: &[TokenWithSpan]) -> Option<usize> {
    let ends = words_of_query(tokens).find(|(_, keyword, before)| match keyword {
        // `percentile_cont(0.5) WITHIN GROUP (ORDER BY v)`.
        Keyword::GROUP => *before != Some(Keyword::WITHIN),
        Keyword::WHERE
        | Keyword::HAVING
        | Keyword::WINDOW
        | Keyword::QUALIFY
        | Keyword::ORDER
        | Keyword::LIMIT
        | Keyword::OFFSET
        | Keyword::FETCH
        | Keyword::UNION
        | Keyword::EXCEPT
        | Keyword::INTERSECT => true,
        _ => false,
    });
    let (place, keyword, _) = ends?;
    matches!(keyword, Keyword::WINDOW | Keyword::QUALIFY).then_some(place)
}

/// The words of the query that these tokens begin with, not of those in brackets: their places, and the word before each.
fn words_of_query(
    tokens: &[TokenWithSpan],
) -> impl Iterator<Item = (usize, Keyword, Option<Keyword>)> {
    let (mut depth, mut before) = (0_usize, None);
    let mut words = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => break,
            Token::RParen => depth -= 1,
            Token::SemiColon => break,
            Token::Word(word) if depth == 0 => {
                words.push((place, word.keyword, before));
                before = Some(word.keyword);
            }
            _ => {}
        }
    }
    words.into_iter()
}
