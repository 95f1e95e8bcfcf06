//! Brackets around IS DISTINCT FROM.
//!
//! The parser takes all that follows, AND and OR included, for its operand: `a IS DISTINCT FROM b AND c` would mean
//! `a IS DISTINCT FROM (b AND c)`. Invariant: brackets come only where an AND or OR ends the operand.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens, with these brackets.
pub(crate) fn with_brackets(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while let Some(right) = operand_from(&tokens, at) {
        at = right;
        let Some(end) = end_of(&tokens[right..]) else {
            continue;
        };
        let start = start_of(&tokens[..right]);
        tokens.insert(right + end, TokenWithSpan::wrap(Token::RParen));
        tokens.insert(start, TokenWithSpan::wrap(Token::LParen));
    }
    tokens
}

fn keyword(token: &Token) -> Option<Keyword> {
    match token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    }
}

/// Where the next operand begins.
fn operand_from(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let mut words = [None, None];
    for (place, token) in tokens.iter().enumerate().skip(at) {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        let word = keyword(&token.token);
        let is_after = |word: Option<Keyword>| matches!(word, Some(Keyword::IS | Keyword::NOT));
        if word == Some(Keyword::FROM) && words[1] == Some(Keyword::DISTINCT) && is_after(words[0])
        {
            return Some(place + 1);
        }
        words = [words[1], word];
    }
    None
}

/// Where the operand ends, if an AND or OR ends it.
fn end_of(tokens: &[TokenWithSpan]) -> Option<usize> {
    let (mut brackets, mut cases) = (0_usize, 0_usize);
    for (place, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen | Token::LBracket => brackets += 1,
            Token::RParen | Token::RBracket => brackets = brackets.checked_sub(1)?,
            Token::Comma | Token::SemiColon if brackets == 0 => return None,
            token => match keyword(token) {
                Some(Keyword::CASE) => cases += 1,
                Some(Keyword::END) => cases = cases.checked_sub(1)?,
                Some(Keyword::AND | Keyword::OR) if brackets == 0 && cases == 0 => {
                    return Some(place);
                }
                // Its AND is its own. All others end a condition.
                Some(
                    Keyword::BETWEEN
                    | Keyword::THEN
                    | Keyword::FROM
                    | Keyword::GROUP
                    | Keyword::ORDER
                    | Keyword::HAVING
                    | Keyword::LIMIT
                    | Keyword::WHERE
                    | Keyword::JOIN
                    | Keyword::UNION
                    | Keyword::EXCEPT
                    | Keyword::INTERSECT,
                ) if brackets == 0 && cases == 0 => return None,
                _ => {}
            },
        }
    }
    None
}

/// Where the condition begins whose last tokens are IS DISTINCT FROM.
fn start_of(tokens: &[TokenWithSpan]) -> usize {
    let (mut brackets, mut cases) = (0_usize, 0_usize);
    // Its own NOT and DISTINCT are no beginning.
    let is = |token: &TokenWithSpan| keyword(&token.token) == Some(Keyword::IS);
    let own = tokens.iter().rposition(is).unwrap_or(tokens.len());
    for (place, token) in tokens.iter().enumerate().take(own).rev() {
        let is_start = match &token.token {
            Token::RParen | Token::RBracket => {
                brackets += 1;
                false
            }
            Token::LParen | Token::LBracket if brackets > 0 => {
                brackets -= 1;
                false
            }
            Token::LParen | Token::LBracket => true,
            Token::Comma => brackets == 0,
            token => match keyword(token) {
                Some(Keyword::END) if brackets == 0 => {
                    cases += 1;
                    false
                }
                Some(Keyword::CASE) if brackets == 0 && cases > 0 => {
                    cases -= 1;
                    false
                }
                Some(
                    Keyword::AND
                    | Keyword::OR
                    | Keyword::NOT
                    | Keyword::WHERE
                    | Keyword::ON
                    | Keyword::HAVING
                    | Keyword::CASE
                    | Keyword::WHEN
                    | Keyword::THEN
                    | Keyword::ELSE
                    | Keyword::SELECT
                    | Keyword::DISTINCT
                    | Keyword::BY,
                ) => brackets == 0 && cases == 0,
                _ => false,
            },
        };
        if is_start {
            return place + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_sql::sqlparser::dialect::GenericDialect;
    use datafusion_sql::sqlparser::tokenizer::Tokenizer;

    fn bracketed(text: &str) -> String {
        let mut tokens = Vec::new();
        Tokenizer::new(&GenericDialect {}, text)
            .tokenize_with_location_into_buf(&mut tokens)
            .unwrap();
        let tokens = with_brackets(tokens);
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn brackets_stand_around_the_whole_comparison() {
        for (text, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b )AND c"),
            (
                "WHERE p AND a IS NOT DISTINCT FROM b OR c",
                "WHERE p AND( a IS NOT DISTINCT FROM b )OR c",
            ),
            (
                "SELECT f(x, a IS DISTINCT FROM (b AND c) AND d)",
                "SELECT f(x,( a IS DISTINCT FROM (b AND c) )AND d)",
            ),
            (
                "WHEN CASE WHEN x AND y THEN 1 END IS DISTINCT FROM CASE WHEN z OR w THEN 1 END OR v",
                "WHEN( CASE WHEN x AND y THEN 1 END IS DISTINCT FROM CASE WHEN z OR w THEN 1 END )OR v",
            ),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "(a IS DISTINCT FROM b )AND( c IS DISTINCT FROM d )OR e",
            ),
        ] {
            assert_eq!(bracketed(text), meant);
        }
    }

    #[test]
    fn what_ends_by_itself_is_left_alone() {
        for text in [
            "SELECT a IS DISTINCT FROM b FROM t WHERE c AND d",
            "SELECT DISTINCT FROM t WHERE a AND b",
            "(a IS DISTINCT FROM b) AND c",
            "SELECT a IS DISTINCT FROM b, c AND d",
            "WHERE a IS DISTINCT FROM b GROUP BY c AND d",
            "a IS DISTINCT FROM b BETWEEN c AND d",
        ] {
            assert_eq!(bracketed(text), text);
        }
    }
}
