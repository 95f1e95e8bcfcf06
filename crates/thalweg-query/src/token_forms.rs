//! Forms of other databases that the parser does not take: `FILTER (x > 1)`, `AS MATERIALIZED (...)`, `INTERVAL 3 QUARTERS`,
//! `INTERVAL (1) DAY` and `x IN ()`.
//!
//! Invariant: the tokens mean the same before and after.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Puts tokens into forms that the parser takes.
pub(crate) fn as_parsed(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    with_queries_for_empty_lists(without_brackets(with_one_unit(without_hints(
        with_filters(tokens),
    ))))
}

/// Whether a token is a keyword.
pub(crate) fn is_keyword(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword)
}

/// The places of all tokens but blanks and comments.
pub(crate) fn places_of_words(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len())
        .filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
        .collect()
}

fn has(tokens: &[TokenWithSpan], keyword: Keyword) -> bool {
    tokens.iter().any(|token| is_keyword(token, keyword))
}

/// Adds the WHERE to a FILTER without one, as DuckDB takes it.
fn with_filters(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !has(&tokens, Keyword::FILTER) {
        return tokens;
    }
    let places = places_of_words(&tokens);
    let conditions = places.windows(4).filter_map(|four| {
        let [call, filter, bracket, condition] = *four else {
            return None;
        };
        let lacks_where = tokens[call].token == Token::RParen
            && is_keyword(&tokens[filter], Keyword::FILTER)
            && tokens[bracket].token == Token::LParen
            && !is_keyword(&tokens[condition], Keyword::WHERE);
        lacks_where.then_some(condition)
    });
    let conditions: Vec<usize> = conditions.collect();
    for condition in conditions.into_iter().rev() {
        let token = TokenWithSpan {
            token: Token::make_keyword("WHERE"),
            span: tokens[condition].span,
        };
        tokens.insert(condition, token);
    }
    tokens
}

/// `WITH w AS MATERIALIZED (...)` without the word, which changes no answer.
fn without_hints(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !has(&tokens, Keyword::MATERIALIZED) {
        return tokens;
    }
    let mut hints = Vec::new();
    for three in places_of_words(&tokens).windows(3) {
        let [before, hint, behind] = *three else {
            continue;
        };
        let is_hint = is_keyword(&tokens[hint], Keyword::MATERIALIZED)
            && tokens[behind].token == Token::LParen;
        if is_hint && is_keyword(&tokens[before], Keyword::AS) {
            hints.push(hint);
        } else if is_hint && is_keyword(&tokens[before], Keyword::NOT) {
            hints.extend([before, hint]);
        }
    }
    without(tokens, hints)
}

/// Units of intervals whose plural the parser does not know, and takes for an alias.
const UNITS: [(&str, &str); 4] = [
    ("QUARTERS", "QUARTER"),
    ("DECADES", "DECADE"),
    ("CENTURIES", "CENTURY"),
    ("MILLENNIA", "MILLENNIUM"),
];

/// `INTERVAL 3 QUARTERS` as `INTERVAL 3 QUARTER`.
fn with_one_unit(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !has(&tokens, Keyword::INTERVAL) {
        return tokens;
    }
    let places = places_of_words(&tokens);
    for (at, &place) in places.iter().enumerate() {
        if !is_keyword(&tokens[place], Keyword::INTERVAL) {
            continue;
        }
        let Some(behind) = behind_number(&tokens, &places[at + 1..]) else {
            continue;
        };
        if let Token::Word(word) = &tokens[behind].token
            && word.quote_style.is_none()
            && let Some((_, one)) = UNITS
                .iter()
                .find(|(many, _)| word.value.eq_ignore_ascii_case(many))
        {
            tokens[behind].token = Token::make_keyword(one);
        }
    }
    tokens
}

/// The place after a number, a parameter, or whatever stands in brackets.
fn behind_number(tokens: &[TokenWithSpan], places: &[usize]) -> Option<usize> {
    let (first, rest) = places.split_first()?;
    match tokens[*first].token {
        Token::Number(..) | Token::Placeholder(_) => rest.first().copied(),
        Token::LParen => {
            let mut depth = 0_usize;
            for (at, &place) in places.iter().enumerate() {
                match tokens[place].token {
                    Token::LParen => depth += 1,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return places.get(at + 1).copied();
                }
            }
            None
        }
        _ => None,
    }
}

/// `INTERVAL (1) DAY` without the brackets, which the parser takes for those of a type with a precision.
fn without_brackets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !has(&tokens, Keyword::INTERVAL) {
        return tokens;
    }
    let mut brackets = Vec::new();
    for four in places_of_words(&tokens).windows(4) {
        let [interval, open, number, close] = *four else {
            continue;
        };
        if is_keyword(&tokens[interval], Keyword::INTERVAL)
            && tokens[open].token == Token::LParen
            && matches!(tokens[number].token, Token::Number(..))
            && tokens[close].token == Token::RParen
        {
            brackets.extend([open, close]);
        }
    }
    without(tokens, brackets)
}

/// `x IN ()`, which programs write from an empty list, as `x IN (SELECT NULL WHERE false)`.
fn with_queries_for_empty_lists(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !has(&tokens, Keyword::IN) {
        return tokens;
    }
    let places = places_of_words(&tokens);
    let ends = places.windows(3).filter_map(|three| {
        let [word, open, close] = *three else {
            return None;
        };
        let is_empty = is_keyword(&tokens[word], Keyword::IN)
            && tokens[open].token == Token::LParen
            && tokens[close].token == Token::RParen;
        is_empty.then_some(close)
    });
    let ends: Vec<usize> = ends.collect();
    for end in ends.into_iter().rev() {
        let span = tokens[end].span;
        let words = ["SELECT", "NULL", "WHERE", "FALSE"];
        let query = words.map(|word| TokenWithSpan {
            token: Token::make_keyword(word),
            span,
        });
        tokens.splice(end..end, query);
    }
    tokens
}

/// The tokens but those at these places, which ascend.
fn without(mut tokens: Vec<TokenWithSpan>, places: Vec<usize>) -> Vec<TokenWithSpan> {
    for place in places.into_iter().rev() {
        tokens.remove(place);
    }
    tokens
}
