//! Cuts a text into SQL statements, and finds those that only read.

use thalweg::PlacedStatement;

/// The place after the first semicolon that ends a statement; `None` when the statement goes on.
fn end_of_first(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let find = |from: usize, end: &str| text.get(from..)?.find(end).map(|at| from + at + end.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b';' => return Some(at + 1),
            // A doubled quote inside is an end and a new beginning, which comes to the same.
            b'\'' if is_escaped(&bytes[..at]) => end_of_escaped(bytes, at + 1)?,
            b'\'' => find(at + 1, "'")?,
            b'$' => match dollar_quote(text, at) {
                Some(quote) => find(at + quote.len(), quote)?,
                None => at + 1,
            },
            b'"' => find(at + 1, "\"")?,
            b'-' if bytes.get(at + 1) == Some(&b'-') => find(at + 2, "\n")?,
            b'/' if bytes.get(at + 1) == Some(&b'*') => find(at + 2, "*/")?,
            _ => at + 1,
        };
    }
    None
}

/// Whether a quote begins a text with escapes, `E'it\'s'`.
fn is_escaped(before: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    matches!(before, [.., b'e' | b'E']) && !before.iter().rev().nth(1).is_some_and(is_name)
}

/// The place after the quote that ends such a text.
fn end_of_escaped(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'\'' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The quote `$$` or `$name$` that begins here.
fn dollar_quote(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    let name = &rest[1..rest[1..].find('$')? + 1];
    let is_quote = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_quote.then(|| &rest[..name.len() + 2])
}

/// Takes the first whole statement off the front of a text, without its semicolon. Statements of nothing but
/// comments are left out.
pub(crate) fn take_first(text: &mut String) -> Option<String> {
    while let Some(end) = end_of_first(text) {
        let rest = text.split_off(end);
        let statement = std::mem::replace(text, rest);
        let statement = statement.trim_end_matches(';').trim();
        if !is_blank(statement) {
            return Some(statement.to_owned());
        }
    }
    None
}

/// The message of an error of a statement with its place in the whole text.
pub(crate) fn in_text(placed: &PlacedStatement<'_>, message: &str) -> String {
    let line = placed.line + 1;
    placed
        .in_text(message)
        .unwrap_or_else(|| format!("{message} (the statement of line {line})"))
}

/// All statements of a text; the last one needs no semicolon.
pub(crate) fn split(text: &str) -> Vec<PlacedStatement<'_>> {
    let (mut statements, mut from) = (Vec::new(), 0);
    let (mut line, mut column) = (0, 0);
    while from < text.len() {
        let end = end_of_first(&text[from..]).map_or(text.len(), |end| from + end);
        let piece = &text[from..end];
        let begins = piece.len() - piece.trim_start().len();
        let advance = |(line, column): (usize, usize), over: &str| match over.rsplit_once('\n') {
            Some((lines, last)) => (line + lines.matches('\n').count() + 1, last.chars().count()),
            None => (line, column + over.chars().count()),
        };
        let start = advance((line, column), &piece[..begins]);
        let statement = piece.trim().trim_end_matches(';').trim_end();
        if !is_blank(statement) {
            statements.push(PlacedStatement {
                statement,
                line: start.0,
                column: start.1,
            });
        }
        (line, column) = advance((line, column), piece);
        from = end;
    }
    statements
}

/// Whether a text is a statement that a semicolon would end: it is not inside of quotes or a comment.
pub(crate) fn could_end(text: &str) -> bool {
    !is_blank(text) && take_first(&mut format!("{text};")).is_some()
}

/// Whether there is nothing but space and comments.
pub(crate) fn is_blank(text: &str) -> bool {
    first_word(text).is_empty()
}

/// Whether a statement changes nothing, so that it can run beside a process that writes.
pub(crate) fn only_reads(statement: &str) -> bool {
    let reading = [
        "SELECT",
        "FROM",
        "WITH",
        "VALUES",
        "TABLE",
        "EXPLAIN",
        "SHOW",
        "DESCRIBE",
        "DESC",
        "SUMMARIZE",
        "(",
    ];
    reading
        .iter()
        .any(|word| first_word(statement).eq_ignore_ascii_case(word))
}

/// The first word or sign after comments.
fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let behind = match rest.as_bytes() {
            [b'-', b'-', ..] => rest.find('\n').map(|at| at + 1),
            [b'/', b'*', ..] => rest.find("*/").map(|at| at + 2),
            _ => break,
        };
        rest = behind.map_or("", |at| rest[at..].trim_start());
    }
    let letters = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    match (letters, rest.chars().next()) {
        (0, Some(sign)) => &rest[..sign.len_utf8()],
        _ => &rest[..letters],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        let statements = split(text).into_iter();
        statements.map(|placed| placed.statement).collect()
    }

    #[test]
    fn places_are_those_of_the_whole_text() {
        let statements = split("select 1; select\n2;\n  selec 3;");
        let messages = [
            in_text(&statements[1], "line 1, column 1: no"),
            in_text(&statements[1], "line 2, column 1: no"),
            in_text(&statements[2], "line 1, column 1: no"),
            in_text(&statements[2], "no"),
        ];
        assert_eq!(
            messages,
            [
                "line 1, column 11: no",
                "line 2, column 1: no",
                "line 3, column 3: no",
                "no (the statement of line 3)"
            ]
        );
    }

    #[test]
    fn semicolons_in_text_and_comments_end_nothing() {
        let text = "SELECT ';', \"a;b\" -- c;d\n, 'it''s;' /* e;f */; INSERT INTO t VALUES (1);;\n-- the end;\n SELECT 2";
        assert_eq!(
            texts(text),
            [
                "SELECT ';', \"a;b\" -- c;d\n, 'it''s;' /* e;f */",
                "INSERT INTO t VALUES (1)",
                "-- the end;\n SELECT 2"
            ]
        );
        assert_eq!(texts(" ; -- nothing\n ; /* at all */"), Vec::<&str>::new());
    }

    #[test]
    fn quotes_with_dollars_and_escapes() {
        for whole in [
            "SELECT $$a;b$$",
            "SELECT $x$a;$$;b$x$",
            "SELECT E'a\\';b', e'\\\\'",
            "SELECT $1 + $2",
            "SELECT name'a', 'b\\'",
        ] {
            assert_eq!(texts(&format!("{whole}; SELECT 2")), [whole, "SELECT 2"]);
        }
    }

    #[test]
    fn what_is_not_finished_waits() {
        for open in [
            "SELECT 1",
            "SELECT 'a;",
            "SELECT 1 -- ;",
            "SELECT /* ;",
            "SELECT \"a;",
        ] {
            let mut text = open.to_owned();
            assert_eq!(take_first(&mut text), None);
            assert_eq!(text, open);
        }
    }

    #[test]
    fn reading_statements() {
        for reads in [
            "select 1",
            "-- x\n/* y */ With a AS (SELECT 1) SELECT * FROM a",
            "(SELECT 1)",
            "EXPLAIN SELECT 1",
            "from t",
            "SUMMARIZE t",
        ] {
            assert!(only_reads(reads), "{reads}");
        }
        for writes in [
            "INSERT INTO t VALUES (1)",
            "selected",
            "",
            "-- SELECT",
            "CREATE TABLE t (a INT)",
            "é",
        ] {
            assert!(!only_reads(writes), "{writes}");
        }
    }
}
