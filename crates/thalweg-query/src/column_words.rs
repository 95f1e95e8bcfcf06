//! Names that the parser takes for keywords: columns `index` in CREATE TABLE, as pandas names one, columns `interval`,
//! and aliases without AS.
//!
//! Invariant: `INTERVAL` before a string, a number or an expression with a unit begins an interval, and is a type where
//! a type is expected; anywhere else it is a name.

use crate::token_forms::{is_keyword, places_of_words};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Keywords that begin a clause in other databases; the parser therefore takes none of them for an alias.
const CLAUSES_OF_OTHERS: [Keyword; 14] = [
    Keyword::CLUSTER,
    Keyword::CONNECT,
    Keyword::DISTRIBUTE,
    Keyword::FORMAT,
    Keyword::GLOBAL,
    Keyword::OPEN,
    Keyword::OUTPUT,
    Keyword::PARTITION,
    Keyword::SAMPLE,
    Keyword::SETTINGS,
    Keyword::SORT,
    Keyword::START,
    Keyword::TOP,
    Keyword::VIEW,
];

/// Keywords that may follow the alias of a table or a column.
const BEHIND_ALIASES: [Keyword; 24] = [
    Keyword::ANTI,
    Keyword::ASOF,
    Keyword::CROSS,
    Keyword::EXCEPT,
    Keyword::FETCH,
    Keyword::FROM,
    Keyword::FULL,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::INNER,
    Keyword::INTERSECT,
    Keyword::JOIN,
    Keyword::LEFT,
    Keyword::LIMIT,
    Keyword::NATURAL,
    Keyword::OFFSET,
    Keyword::ON,
    Keyword::ORDER,
    Keyword::QUALIFY,
    Keyword::RIGHT,
    Keyword::SEMI,
    Keyword::UNION,
    Keyword::USING,
    Keyword::WHERE,
];

/// Units of intervals, in the singular.
const UNITS: [&str; 14] = [
    "microsecond",
    "millisecond",
    "nanosecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
];

/// Quotes such names, so that they stay as they are written.
pub(crate) fn quoted(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    with_aliases(with_intervals(with_indexes(tokens)))
}

/// Quotes keywords of other databases that are used as aliases or columns.
fn with_aliases(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_such = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if CLAUSES_OF_OTHERS.contains(&word.keyword));
    if !tokens.iter().any(is_such) {
        return tokens;
    }
    let places = places_of_words(&tokens);
    for (number, place) in places.iter().enumerate() {
        if !is_such(&tokens[*place]) {
            continue;
        }
        let token = |number: usize| places.get(number).map(|place| &tokens[*place]);
        let is = |token: Option<&TokenWithSpan>, keyword| {
            token.is_some_and(|token| is_keyword(token, keyword))
        };
        let (before, behind) = (number.checked_sub(1).and_then(token), token(number + 1));
        let is_column = is(token(number), Keyword::TOP) && is(before, Keyword::SELECT);
        let (before, behind) = (
            before.map(|token| &token.token),
            behind.map(|token| &token.token),
        );
        let is_alias = match before {
            Some(Token::Word(word)) => word.keyword == Keyword::NoKeyword,
            Some(Token::RParen | Token::RBracket) => true,
            _ => false,
        } && match behind {
            Some(Token::Word(word)) => BEHIND_ALIASES.contains(&word.keyword),
            Some(token) => matches!(
                token,
                Token::Comma | Token::RParen | Token::SemiColon | Token::EOF
            ),
            None => true,
        };
        // `SELECT TOP 5 x` and `SELECT top FROM t`.
        let is_column = is_column
            && !matches!(
                behind,
                Some(Token::Number(..) | Token::LParen | Token::Placeholder(_))
            );
        if is_alias || is_column {
            quote(&mut tokens[*place].token);
        }
    }
    tokens
}

/// Quotes columns `interval` in queries.
fn with_intervals(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_interval = |token: &TokenWithSpan| is_keyword(token, Keyword::INTERVAL);
    if !tokens.iter().any(is_interval) {
        return tokens;
    }
    let places = places_of_words(&tokens);
    for (number, place) in places.iter().enumerate() {
        if !is_interval(&tokens[*place]) {
            continue;
        }
        let token = |number: usize| places.get(number).map(|place| &tokens[*place].token);
        let before = number.checked_sub(1).and_then(token);
        let mut behind = (number + 1..).map_while(token);
        if may_be_column(before) && !is_length(&mut behind) {
            quote(&mut tokens[*place].token);
        }
    }
    tokens
}

/// Whether a word after this token can be a column: not after a type, a name or a dot.
fn may_be_column(before: Option<&Token>) -> bool {
    match before {
        Some(Token::Word(word)) => {
            word.quote_style.is_none() && !matches!(word.keyword, Keyword::NoKeyword | Keyword::AS)
        }
        Some(Token::DoubleColon | Token::Period | Token::RParen | Token::RBracket) => false,
        _ => true,
    }
}

/// Whether these tokens continue an interval after INTERVAL.
fn is_length<'a>(behind: &mut impl Iterator<Item = &'a Token>) -> bool {
    let mut next = behind.next();
    let is_signed = matches!(next, Some(Token::Plus | Token::Minus));
    if is_signed {
        next = behind.next();
    }
    let is_unit = |token: Option<&Token>| matches!(token, Some(Token::Word(word)) if UNITS.contains(&word.value.to_lowercase().trim_end_matches('s')));
    match next {
        Some(Token::SingleQuotedString(_)) => true,
        Some(Token::Number(..)) => !is_signed || is_unit(behind.next()),
        Some(Token::LParen | Token::Placeholder(_)) => !is_signed,
        // `INTERVAL t.n DAY`
        Some(Token::Word(_)) => {
            let mut after = behind.next();
            while matches!(after, Some(Token::Period)) {
                behind.next();
                after = behind.next();
            }
            !is_signed && is_unit(after)
        }
        _ => false,
    }
}

fn quote(token: &mut Token) {
    if let Token::Word(word) = token {
        word.quote_style = Some('"');
        word.keyword = Keyword::NoKeyword;
    }
}

/// Quotes columns `index` and `key` in CREATE TABLE, which the parser would take for indexes as in MySQL.
fn with_indexes(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut words = tokens.iter().filter_map(|token| match &token.token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    });
    if words.next() != Some(Keyword::CREATE) {
        return tokens;
    }
    let (mut depth, mut begins_column) = (0_usize, false);
    for token in &mut tokens {
        match &mut token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                depth += 1;
                begins_column = depth == 1;
                continue;
            }
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Comma => {
                begins_column = depth == 1;
                continue;
            }
            Token::Word(word) if begins_column && word.quote_style.is_none() => {
                if matches!(word.keyword, Keyword::INDEX | Keyword::KEY) {
                    quote(&mut token.token);
                }
            }
            _ => {}
        }
        begins_column = false;
    }
    tokens
}
