//! `a ** b` and `a ^ b` as calls of `power`.
//!
//! The parser has no operator `**`, and gives `^` a lower precedence than `*`. Invariant: powers have a higher precedence than
//! all other operators but signs, `::` and brackets, from left to right, as in PostgreSQL and DuckDB.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens, with calls in the place of the operators.
pub(crate) fn as_calls(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut from = 0;
    while let Some((operator, width)) = operator_from(&tokens, from) {
        from = operator + width;
        let operands = start_of(&tokens[..operator]).zip(end_of(&tokens[from..]));
        let Some((start, end)) = operands else {
            // For the parser to refuse.
            continue;
        };
        let end = from + end;
        let call = |word: &str| Token::make_word(word, None);
        let mut with_call = Vec::with_capacity(tokens.len() + 16);
        with_call.extend_from_slice(&tokens[..start]);
        let mut push = |tokens: &[Token]| {
            with_call.extend(tokens.iter().cloned().map(TokenWithSpan::wrap));
        };
        push(&[call("power"), Token::LParen]);
        with_call.extend_from_slice(&double(&tokens[start..operator]));
        with_call.push(TokenWithSpan::wrap(Token::Comma));
        let right = with_call.len();
        with_call.extend_from_slice(&double(&tokens[from..end]));
        with_call.push(TokenWithSpan::wrap(Token::RParen));
        with_call.extend_from_slice(&tokens[end..]);
        tokens = with_call;
        // There may be others inside it, and the call may be an operand itself.
        from = right;
    }
    tokens
}

/// `(operand)::double`: the result is one, whatever the operands are.
fn double(operand: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut tokens = vec![TokenWithSpan::wrap(Token::LParen)];
    tokens.extend_from_slice(operand);
    let cast = [
        Token::RParen,
        Token::DoubleColon,
        Token::make_keyword("DOUBLE"),
    ];
    tokens.extend(cast.map(TokenWithSpan::wrap));
    tokens
}

/// Returns a call that [`as_calls`] has made as the operator `**` again; `None` for other expressions.
pub(crate) fn as_written(call: &Expr) -> Option<Expr> {
    let Expr::Function(function) = call else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
    ] = &*list.args
    else {
        return None;
    };
    let is_power =
        matches!(&*function.name.0, [ObjectNamePart::Identifier(name)] if name.value == "power");
    let (left, right) = is_power
        .then(|| Some((operand(left)?, operand(right)?)))
        .flatten()?;
    Some(Expr::BinaryOp {
        left,
        op: BinaryOperator::Custom("**".to_owned()),
        right,
    })
}

/// The operand of a cast to double that was made here.
fn operand(cast: &Expr) -> Option<Box<Expr>> {
    match cast {
        Expr::Cast {
            kind: CastKind::DoubleColon,
            expr,
            ..
        } => match &**expr {
            Expr::Nested(operand) => Some(operand.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The next operator and how many tokens it has.
fn operator_from(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize)> {
    let at = |place: usize| tokens.get(place).map(|token| &token.token);
    (from..tokens.len()).find_map(|place| match at(place) {
        Some(Token::Caret) => Some((place, 1)),
        Some(Token::Mul) if at(place + 1) == Some(&Token::Mul) => Some((place, 2)),
        _ => None,
    })
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// Whether a word is part of a value and no keyword between values.
fn is_value(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            word.quote_style.is_some()
                || !matches!(
                    word.keyword,
                    Keyword::AND
                        | Keyword::OR
                        | Keyword::NOT
                        | Keyword::SELECT
                        | Keyword::WHERE
                        | Keyword::ON
                        | Keyword::HAVING
                        | Keyword::BY
                        | Keyword::WHEN
                        | Keyword::THEN
                        | Keyword::ELSE
                        | Keyword::CASE
                        | Keyword::BETWEEN
                        | Keyword::IN
                        | Keyword::LIKE
                        | Keyword::DISTINCT
                        | Keyword::LIMIT
                        | Keyword::IS
                )
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::RParen
        | Token::RBracket => true,
        _ => false,
    }
}

/// Where the operand in front of an operator begins; `None` where there is none that is known here, as CASE.
fn start_of(tokens: &[TokenWithSpan]) -> Option<usize> {
    let before = |end: usize| (0..end).rev().find(|place| !is_blank(&tokens[*place]));
    let mut place = before(tokens.len())?;
    loop {
        // One part of the operand, which ends at `place`.
        match &tokens[place].token {
            Token::RParen | Token::RBracket => {
                place = opening(tokens, place)?;
                // Of a function, a type or an item of a list.
                if let Some(name) = place.checked_sub(1)
                    && (matches!(tokens[place].token, Token::LBracket)
                        || matches!(tokens[name].token, Token::Word(_)))
                    && is_value(&tokens[name].token)
                {
                    place = name;
                    continue;
                }
            }
            Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::END => {
                return None;
            }
            token if is_value(token) => {}
            _ => return None,
        }
        let Some(link) = before(place) else {
            return Some(place);
        };
        match tokens[link].token {
            // A part of a name, or a cast: the operand goes on in front of it.
            Token::Period | Token::DoubleColon => place = before(link)?,
            // A sign, where no value stands in front of it.
            Token::Minus | Token::Plus => {
                let is_sign = before(link).is_none_or(|value| !is_value(&tokens[value].token));
                return Some(if is_sign { link } else { place });
            }
            _ => return Some(place),
        }
    }
}

/// Where the bracket opens that closes at `close`.
fn opening(tokens: &[TokenWithSpan], close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for place in (0..=close).rev() {
        match tokens[place].token {
            Token::RParen | Token::RBracket => depth += 1,
            Token::LParen | Token::LBracket => {
                depth -= 1;
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

/// The number of tokens of the operand after an operator.
fn end_of(tokens: &[TokenWithSpan]) -> Option<usize> {
    let next = |from: usize| (from..tokens.len()).find(|place| !is_blank(&tokens[*place]));
    let mut place = next(0)?;
    while matches!(tokens[place].token, Token::Minus | Token::Plus) {
        place = next(place + 1)?;
    }
    if matches!(tokens[place].token, Token::LParen) {
        place = closing(tokens, place)?;
    } else if !is_value(&tokens[place].token) {
        return None;
    }
    // What goes on with the value.
    while let Some(link) = next(place + 1) {
        place = match tokens[link].token {
            Token::LParen if link == place + 1 => closing(tokens, link)?,
            Token::LBracket => closing(tokens, link)?,
            Token::Period | Token::DoubleColon => next(link + 1)?,
            _ => break,
        };
    }
    Some(place + 1)
}

/// Where the bracket closes that opens at `open`.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => {
                depth -= 1;
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_sql::sqlparser::dialect::GenericDialect;
    use datafusion_sql::sqlparser::tokenizer::Tokenizer;

    fn written(text: &str) -> String {
        let mut tokens = Vec::new();
        Tokenizer::new(&GenericDialect {}, text)
            .tokenize_with_location_into_buf(&mut tokens)
            .unwrap();
        let tokens = as_calls(tokens);
        let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
        // What makes the operands doubles is the same everywhere.
        text.replace("::DOUBLE", "").replace(' ', "")
    }

    #[test]
    fn powers_are_calls() {
        for (text, meant) in [
            ("2 ** 3", "power((2),(3))"),
            ("SELECT 2 * x ^ 2 + 1", "SELECT2*power((x),(2))+1"),
            ("2 ** 3 ** 2", "power((power((2),(3))),(2))"),
            ("-2 ** -x.y", "power((-2),(-x.y))"),
            ("a - 2 ** (b + 1)", "a-power((2),((b+1)))"),
            ("f(a, b) ** g(c)[1] * d", "power((f(a,b)),(g(c)[1]))*d"),
            ("x::double ** y::int", "power((x::double),(y::int))"),
            (
                "(2 ^ 3) ^ (1 ^ 2)",
                "power(((power((2),(3)))),((power((1),(2)))))",
            ),
            ("count(*) * 2", "count(*)*2"),
            ("t.* FROM t", "t.*FROMt"),
            ("SELECT **", "SELECT**"),
        ] {
            assert_eq!(written(text), meant, "{text}");
        }
    }
}
