//! Numbers as other databases write them: `1_000_000`, `0x1f`.

use crate::error::query;
use crate::token_places::TokenPlaces;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_table::Result;

/// Writes numbers in plain digits.
///
/// # Errors
/// For what begins with a digit and is no number.
pub(crate) fn in_plain_digits(
    tokens: Vec<TokenWithSpan>,
    text: &str,
) -> Result<Vec<TokenWithSpan>> {
    with_whole_numbers(with_decimal_digits(tokens, text)?)
}

/// `0x1f` as 31; the parser takes it for the bytes `X'1f'`.
fn with_decimal_digits(mut tokens: Vec<TokenWithSpan>, text: &str) -> Result<Vec<TokenWithSpan>> {
    let is_hexadecimal = |token: &Token| matches!(token, Token::HexStringLiteral(_));
    if !tokens.iter().any(|token| is_hexadecimal(&token.token)) {
        return Ok(tokens);
    }
    let places = TokenPlaces::of(text);
    for token in &mut tokens {
        let Token::HexStringLiteral(digits) = &token.token else {
            continue;
        };
        let written = places.byte_of(token).and_then(|at| text.get(at..));
        if written.is_some_and(|written| written.starts_with('0')) {
            let number = u64::from_str_radix(digits, 16)
                .map_err(|_| query(format!("0x{digits} is no number of 64 bits")))?;
            token.token = Token::Number(number.to_string(), false);
        }
    }
    Ok(tokens)
}

/// Puts numbers with separators, `1_000_000`, together, which the parser takes for a number and a name.
fn with_whole_numbers(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let follows = |pair: &[TokenWithSpan]| {
        matches!(
            (&pair[0].token, &pair[1].token),
            (Token::Number(..), Token::Word(_))
        )
    };
    if !tokens.windows(2).any(follows) {
        return Ok(tokens);
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let Token::Word(word) = &token.token
            && word.quote_style.is_none()
            && let Some(Token::Number(number, _)) = out.last_mut().map(|last| &mut last.token)
        {
            let digits = word.value.replace('_', "");
            let is_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            if word.value.starts_with('_') && !word.value.ends_with('_') && is_digits {
                number.push_str(&digits);
                continue;
            }
            let whole = format!("{number}{}", word.value);
            return Err(query(format!(
                "{whole} is no number, and a name does not begin with a digit"
            )));
        }
        out.push(token);
    }
    Ok(out)
}
