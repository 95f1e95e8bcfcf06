//! Cuts a text into SQL statements, and tells those that only read.

/// The place behind the first semicolon that ends a statement; `None` when the statement goes on.
fn end_of_first(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let find = |from: usize, end: &str| text.get(from..)?.find(end).map(|at| from + at + end.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b';' => return Some(at + 1),
            // A doubled quote inside is an end and a new beginning, which comes to the same.
            b'\'' => find(at + 1, "'")?,
            b'"' => find(at + 1, "\"")?,
            b'-' if bytes.get(at + 1) == Some(&b'-') => find(at + 2, "\n")?,
            b'/' if bytes.get(at + 1) == Some(&b'*') => find(at + 2, "*/")?,
            _ => at + 1,
        };
    }
    None
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

/// All statements of a text; the last one needs no semicolon.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut rest = text.to_owned();
    let mut statements: Vec<String> = std::iter::from_fn(|| take_first(&mut rest)).collect();
    if !is_blank(&rest) {
        statements.push(rest.trim().to_owned());
    }
    statements
}

/// Whether there is nothing but space and comments.
pub(crate) fn is_blank(text: &str) -> bool {
    first_word(text).is_empty()
}

/// Whether a statement changes nothing, so that it can run beside a process that writes.
pub(crate) fn only_reads(statement: &str) -> bool {
    let reading = [
        "SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN", "SHOW", "DESCRIBE", "DESC", "(",
    ];
    reading
        .iter()
        .any(|word| first_word(statement).eq_ignore_ascii_case(word))
}

/// The first word or sign behind comments.
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

    #[test]
    fn semicolons_in_text_and_comments_end_nothing() {
        let text = "SELECT ';', \"a;b\" -- c;d\n, 'it''s;' /* e;f */; INSERT INTO t VALUES (1);;\n-- the end;\n SELECT 2";
        assert_eq!(
            split(text),
            [
                "SELECT ';', \"a;b\" -- c;d\n, 'it''s;' /* e;f */",
                "INSERT INTO t VALUES (1)",
                "-- the end;\n SELECT 2"
            ]
        );
        assert_eq!(
            split(" ; -- nothing\n ; /* at all */"),
            Vec::<String>::new()
        );
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
