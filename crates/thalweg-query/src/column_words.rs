//! Names that are words of the parser: columns `index` in CREATE TABLE, as pandas names one, columns `interval`, and names that a
//! query gives without AS.
//!
//! Invariant: `INTERVAL` in front of a text, a number or an expression with a unit behind it is a length of time, as it is where a
//! type stands; anywhere else it is a name.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words that begin a clause in other databases, which the parser therefore takes for no name.
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

/// Words that may follow the name of a table or a result.
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

/// Units of lengths of time, without the `s` of several.
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

/// The same tokens with quotes around such names, and with the WHERE of a FILTER where it was left out.
pub(crate) fn quoted(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = with_aliases(with_intervals(with_indexes(tokens)));
    without_hints(with_filters(tokens))
}

/// Words of clauses of other databases, where they are names of tables or results.
fn with_aliases(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_such = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if CLAUSES_OF_OTHERS.contains(&word.keyword));
    if !tokens.iter().any(is_such) {
        return tokens;
    }
    let places = words(&tokens);
    for (number, place) in places.iter().enumerate() {
        if !is_such(&tokens[*place]) {
            continue;
        }
        let token = |number: usize| places.get(number).map(|place| &tokens[*place].token);
        let before = number.checked_sub(1).and_then(token);
        let behind = token(number + 1);
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
        let is_keyword = |token: Option<&Token>, keyword| matches!(token, Some(Token::Word(word)) if word.keyword == keyword);
        let is_column = is_keyword(token(number), Keyword::TOP)
            && is_keyword(before, Keyword::SELECT)
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

/// `FILTER (x > 1)` with the WHERE that the parser asks for, as DuckDB takes it.
fn with_filters(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, keyword| matches!(&token.token, Token::Word(word) if word.keyword == keyword);
    if !tokens.iter().any(|token| is(token, Keyword::FILTER)) {
        return tokens;
    }
    let places = words(&tokens);
    let lacks_where = |four: &&[usize]| {
        let [call, filter, bracket, condition] = four else {
            return false;
        };
        tokens[*call].token == Token::RParen
            && is(&tokens[*filter], Keyword::FILTER)
            && tokens[*bracket].token == Token::LParen
            && !is(&tokens[*condition], Keyword::WHERE)
    };
    let conditions: Vec<usize> = places
        .windows(4)
        .filter(lacks_where)
        .map(|four| four[3])
        .collect();
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
fn without_hints(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, keyword| matches!(&token.token, Token::Word(word) if word.keyword == keyword);
    if !tokens.iter().any(|token| is(token, Keyword::MATERIALIZED)) {
        return tokens;
    }
    let places = words(&tokens);
    let mut hints = Vec::new();
    for three in places.windows(3) {
        let [before, hint, behind] = three else {
            continue;
        };
        let is_hint =
            is(&tokens[*hint], Keyword::MATERIALIZED) && tokens[*behind].token == Token::LParen;
        if is_hint && is(&tokens[*before], Keyword::AS) {
            hints.push(*hint);
        } else if is_hint && is(&tokens[*before], Keyword::NOT) {
            hints.extend([*before, *hint]);
        }
    }
    for hint in hints.into_iter().rev() {
        tokens.remove(hint);
    }
    tokens
}

/// The places of all tokens but blanks and comments.
fn words(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len())
        .filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
        .collect()
}

/// Columns `interval` of a query.
fn with_intervals(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_interval = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::INTERVAL);
    if !tokens.iter().any(is_interval) {
        return tokens;
    }
    let places = words(&tokens);
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
    without_brackets(tokens)
}

/// `INTERVAL (1) DAY` without the brackets, which the parser takes for those of a type with a precision.
fn without_brackets(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let places = words(&tokens);
    let mut brackets = Vec::new();
    for four in places.windows(4) {
        let [interval, open, number, close] = four else {
            continue;
        };
        let is_interval = matches!(&tokens[*interval].token, Token::Word(word) if word.keyword == Keyword::INTERVAL);
        if is_interval
            && tokens[*open].token == Token::LParen
            && matches!(tokens[*number].token, Token::Number(..))
            && tokens[*close].token == Token::RParen
        {
            brackets.extend([*open, *close]);
        }
    }
    for bracket in brackets.into_iter().rev() {
        tokens.remove(bracket);
    }
    tokens
}

/// Whether what stands in front of a word leaves it a column: no type, no name and no dot.
fn may_be_column(before: Option<&Token>) -> bool {
    match before {
        Some(Token::Word(word)) => {
            word.quote_style.is_none() && !matches!(word.keyword, Keyword::NoKeyword | Keyword::AS)
        }
        Some(Token::DoubleColon | Token::Period | Token::RParen | Token::RBracket) => false,
        _ => true,
    }
}

/// Whether tokens are what follows INTERVAL in a length of time.
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
        word.value = word.value.to_lowercase();
        word.quote_style = Some('"');
        word.keyword = Keyword::NoKeyword;
    }
}

/// Columns `index` and `key` of CREATE TABLE: the parser takes them for indexes of MySQL.
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
