//! Columns of CREATE TABLE whose names are words of the parser: `index`, as pandas names one.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The same tokens with quotes around such names; the parser takes them for indexes of MySQL.
pub(crate) fn quoted(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
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
                    word.value = word.value.to_lowercase();
                    word.quote_style = Some('"');
                    word.keyword = Keyword::NoKeyword;
                }
            }
            _ => {}
        }
        begins_column = false;
    }
    tokens
}
