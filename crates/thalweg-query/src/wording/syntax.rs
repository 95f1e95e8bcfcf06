//! Statements that cannot be parsed.

use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_table::suggest::nearest;

/// Keywords that are suggested for a mistyped word.
const KEYWORDS: [&str; 24] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "UNION",
    "WITH",
    "VALUES",
    "INSERT",
    "INTO",
    "CREATE",
    "TABLE",
    "DROP",
    "EXPLAIN",
    "DESCRIBE",
    "SUMMARIZE",
    "SHOW",
    "BETWEEN",
    "DISTINCT",
];

/// Clauses of a query, which have one order.
const CLAUSES: [&str; 9] = [
    "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", "OFFSET",
];

/// Words of the parser for what it expects.
const EXPECTED: [(&str, &str); 6] = [
    ("end of statement", "the end of the statement"),
    ("end of expression", "the end of the condition"),
    ("identifier", "a name"),
    ("a data type name", "a type"),
    ("an SQL statement", "a statement such as SELECT"),
    (
        "SELECT, VALUES, or a subquery in the query body",
        "SELECT or VALUES",
    ),
];

/// Messages of the parser that are only replaced by others, by how they begin.
const OTHERS: [(&str, &str); 4] = [
    (
        "Unterminated string literal",
        "the text that begins there is not closed; a quote inside a text is written twice, as in 'it''s'",
    ),
    (
        "Expected close delimiter",
        "the name in quotes that begins there is not closed",
    ),
    (
        "Unexpected EOF while in a multi-line comment",
        "a comment that begins with /* is not closed",
    ),
    ("No infix parser for token", "there is no such operator"),
];

/// The beginning of the message for a statement that ends too early.
const AT_END: &str = "the statement ends where";

/// The parser's message with the place in front and a guess at what was meant.
pub(crate) fn reworded(text: &str) -> String {
    let mut text = text.trim();
    for layer in ["SQL error: ", "sql parser error: ", "sql parser error: "] {
        text = text.strip_prefix(layer).unwrap_or(text);
    }
    let (text, place) = with_place(text);
    if let Some((_, words)) = OTHERS.iter().find(|(begins, _)| text.starts_with(begins)) {
        return format!("{place}{words}");
    }
    let Some((wanted, found)) = text
        .strip_prefix("Expected: ")
        .and_then(|rest| rest.split_once(", found: "))
    else {
        return format!("{place}{text}");
    };
    if found.starts_with('$') && wanted == "identifier" {
        return format!("{place}a parameter stands for a value, not for a name");
    }
    let known = EXPECTED.iter().find(|(name, _)| *name == wanted);
    // A list of all that other databases can drop.
    let words = match wanted.ends_with(" after DROP") {
        true => "TABLE",
        false => known.map_or(wanted, |(_, words)| *words),
    };
    match found {
        "EOF" => format!("{AT_END} {words} should follow"),
        found => format!(
            "{place}expected {words}, found {found}{}",
            guess(wanted, found)
        ),
    }
}

/// The message of a place in `text` with a guess at the word in front of it, where that was taken for a name: `FROM t WHER x > 1`.
pub(crate) fn with_word_before(message: &str, text: &str) -> String {
    let guess = || {
        let (place, rest) = message.strip_prefix("line ")?.split_once(": ")?;
        let (line, column) = place.split_once(", column ")?;
        let (_, found) = rest
            .split_once(", found ")
            .filter(|_| rest.starts_with("expected "))?;
        if rest.contains(';') {
            return None;
        }
        let (line, column) = (line.parse::<usize>().ok()?, column.parse::<usize>().ok()?);
        let line_text = text.lines().nth(line.checked_sub(1)?)?;
        let last: String = line_text.chars().take(column.checked_sub(1)?).collect();
        let before = text.lines().take(line - 1).chain([last.as_str()]);
        let before = before.collect::<Vec<_>>().join(" ");
        let word = before.split_whitespace().next_back()?;
        let is_of_name = |c: &char| c.is_alphanumeric() || *c == '_';
        let behind: String = { line_text.chars().skip(column) }
            .take_while(|c| is_of_name(c) || *c == '-')
            .collect();
        let rest_of_name = match found {
            found if is_fraction(found) => Some(found.to_owned()),
            "-" if !behind.is_empty() => Some(format!("-{behind}")),
            _ => None,
        };
        if let Some(rest_of_name) = rest_of_name
            && last.ends_with(word)
        {
            let name = word.rsplit(|c| !is_of_name(&c)).next().unwrap_or(word);
            return Some(format!(
                "{message}; a name with such a sign takes double quotes, as in \"{name}{rest_of_name}\""
            ));
        }
        if !rest.starts_with("expected the end of the statement") {
            return None;
        }
        let meant = nearest(word, KEYWORDS)?;
        let is_it = meant.eq_ignore_ascii_case(word)
            || meant.split(' ').any(|part| part.eq_ignore_ascii_case(word));
        (!is_it).then(|| format!("{message}; did you mean {meant} by {word}?"))
    };
    guess().unwrap_or_else(|| message.to_owned())
}

/// Queries in brackets that are parsed once more for a message.
const MAX_INSIDE: usize = 32;
/// Levels of brackets in them.
const MAX_LEVELS: usize = 64;

/// Whether a message names a place in the text. What is wrong may then be a query in brackets after that place: the parser
/// backtracks from such a query, takes it for tables in brackets, and fails there.
pub(crate) fn is_of_place(message: &str) -> bool {
    place_of(message).is_some()
}

/// The message of the query in brackets that fails furthest in the text, if that is after the place of `message`.
pub(crate) fn in_query_inside(message: &str, tokens: &[TokenWithSpan]) -> Option<String> {
    let mut furthest = place_of(message)?;
    let mut found = None;
    let begins = (1..tokens.len()).filter(|&begin| {
        let is_query = matches!(&tokens[begin].token, Token::Word(word)
            if matches!(word.keyword, Keyword::SELECT | Keyword::WITH));
        let mut before = tokens[..begin].iter().rev().map(|token| &token.token);
        let before = before.find(|token| !matches!(token, Token::Whitespace(_)));
        is_query && before == Some(&Token::LParen)
    });
    for begin in begins.take(MAX_INSIDE) {
        let mut parser = Parser::new(&GenericDialect {})
            .with_recursion_limit(MAX_LEVELS)
            .with_tokens_with_locations(tokens[begin..].to_vec());
        let parsed = parser.parse_query();
        let Err(error) = parsed.and_then(|_| parser.expect_token(&Token::RParen)) else {
            continue;
        };
        let words = reworded(&error.to_string());
        if words.starts_with(AT_END) {
            return Some(words);
        }
        if let Some(place) = place_of(&words).filter(|place| *place > furthest) {
            (furthest, found) = (place, Some(words));
        }
    }
    found
}

/// The message of a CASE without END. The parser goes back from it, and takes CASE for a name.
pub(crate) fn missing_end(tokens: &[TokenWithSpan]) -> Option<String> {
    const CLAUSES_BEHIND: [Keyword; 8] = [
        Keyword::FROM,
        Keyword::WHERE,
        Keyword::GROUP,
        Keyword::HAVING,
        Keyword::ORDER,
        Keyword::LIMIT,
        Keyword::UNION,
        Keyword::SELECT,
    ];
    // Of each level of brackets, whether each open CASE has a WHEN.
    let mut levels: Vec<Vec<bool>> = vec![Vec::new()];
    let mut before = None;
    for token in tokens {
        let cases = levels.last_mut()?;
        let is_open = cases.iter().any(|has_when| *has_when);
        let ends = match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket => {
                levels.push(Vec::new());
                false
            }
            Token::RParen | Token::RBracket if is_open => true,
            Token::RParen | Token::RBracket => {
                levels.pop();
                false
            }
            Token::SemiColon if is_open => return Some(format!("{AT_END} END should follow")),
            Token::Word(word) => {
                match word.keyword {
                    Keyword::CASE if before != Some(Keyword::END) => cases.push(false),
                    Keyword::WHEN => {
                        if let Some(has_when) = cases.last_mut() {
                            *has_when = true;
                        }
                    }
                    Keyword::END => {
                        cases.pop();
                    }
                    _ => {}
                }
                // `IS DISTINCT FROM`
                is_open
                    && CLAUSES_BEHIND.contains(&word.keyword)
                    && before != Some(Keyword::DISTINCT)
            }
            _ => false,
        };
        if ends {
            let (at, found) = (token.span.start, &token.token);
            let (line, column) = (at.line, at.column);
            return Some(format!(
                "line {line}, column {column}: expected END, found {found}"
            ));
        }
        before = match &token.token {
            Token::Word(word) => Some(word.keyword),
            _ => None,
        };
    }
    let is_open = levels.last()?.iter().any(|has_when| *has_when);
    is_open.then(|| format!("{AT_END} END should follow"))
}

/// The line and column that a message begins with.
fn place_of(message: &str) -> Option<(u64, u64)> {
    let (place, _) = message.strip_prefix("line ")?.split_once(": ")?;
    let (line, column) = place.split_once(", column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// Whether a word is the end of a name with a dot and digits that was read as a number: `.5` of `PM2.5`.
fn is_fraction(word: &str) -> bool {
    word.strip_prefix('.')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn with_place(text: &str) -> (&str, String) {
    let Some((before, place)) = text.rsplit_once(" at Line: ") else {
        return (text, String::new());
    };
    match place.split_once(", Column: ") {
        Some((line, column)) => (before, format!("line {line}, column {column}: ")),
        None => (text, String::new()),
    }
}

/// Guesses what was meant by a word in a place where it cannot stand.
fn guess(wanted: &str, found: &str) -> String {
    let upper = found.to_uppercase();
    if wanted == "end of statement" && CLAUSES.contains(&upper.as_str()) {
        let order = "SELECT, FROM, WHERE, GROUP BY, HAVING, QUALIFY, ORDER BY, LIMIT";
        return format!("; clauses come in the order {order}");
    }
    if upper == "BY" {
        return "; did you mean GROUP BY or ORDER BY?".to_owned();
    }
    if upper == "NULL" {
        return "; did you mean NULLS FIRST or NULLS LAST?".to_owned();
    }
    if found == "%" {
        return "; write ? or $name for a parameter".to_owned();
    }
    match nearest(found, KEYWORDS) {
        Some(meant) if meant != upper && meant != format!("{upper} BY") => {
            format!("; did you mean {meant}?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_that_were_taken_for_names_are_guessed() {
        let at = |column: usize, found: &str| {
            format!("line 1, column {column}: expected the end of the statement, found {found}")
        };
        for (text, column, found, guess) in [
            (
                "SELECT * FROM t WHER x > 1",
                22,
                "x",
                "; did you mean WHERE by WHER?",
            ),
            (
                "SELECT * FROM t limt 3",
                22,
                "3",
                "; did you mean LIMIT by limt?",
            ),
            ("SELECT a frm t", 14, "t", "; did you mean FROM by frm?"),
            ("SELECT * FROM t u v", 19, "v", ""),
            (
                "SELECT * FROM air-2024-x",
                18,
                "-",
                "; a name with such a sign takes double quotes, as in \"air-2024-x\"",
            ),
            ("SELECT * FROM t WHERE", 16, "y", ""),
        ] {
            let message = at(column, found);
            assert_eq!(
                with_word_before(&message, text),
                format!("{message}{guess}")
            );
        }
    }

    #[test]
    fn the_place_comes_first_and_keywords_are_guessed() {
        for (text, words) in [
            (
                "sql parser error: sql parser error: Expected: end of statement, found: FORM at Line: 1, Column: 10",
                "line 1, column 10: expected the end of the statement, found FORM; did you mean FROM?",
            ),
            (
                "Expected: an SQL statement, found: SELEC at Line: 1, Column: 1",
                "line 1, column 1: expected a statement such as SELECT, found SELEC; did you mean SELECT?",
            ),
            (
                "Expected: an expression, found: EOF",
                "the statement ends where an expression should follow",
            ),
            (
                "Expected: end of statement, found: WHERE at Line: 2, Column: 3",
                "line 2, column 3: expected the end of the statement, found WHERE; clauses come in the order SELECT, FROM, \
                 WHERE, GROUP BY, HAVING, QUALIFY, ORDER BY, LIMIT",
            ),
            (
                "Unterminated string literal at Line: 1, Column: 8",
                "line 1, column 8: the text that begins there is not closed; a quote inside a text is written twice, as in \
                 'it''s'",
            ),
            ("anything else", "anything else"),
        ] {
            assert_eq!(reworded(text), words);
        }
    }
}
