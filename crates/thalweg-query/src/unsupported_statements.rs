//! Statements of other databases that the parser does not know, or would misread.
//!
//! Invariant: known by their words in front of the parser, and refused by what they are called, with what to write instead.

use crate::error::unsupported;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_table::Result;

pub(crate) const PIVOT: &str =
    "PIVOT is not offered: write sum(x) FILTER (WHERE kind = 'a') AS a for each column";
pub(crate) const UNPIVOT: &str = "UNPIVOT is not offered: SELECT ts, unnest(['x', 'y']) AS k, unnest([x, y]) AS n FROM t makes a row of each column";

/// The message for every form of COPY.
pub(crate) const COPY: &str = "COPY is not offered: thalweg import reads files into tables, and thalweg sql DATABASE \"SELECT * FROM t\" \
                               --format csv (or json, arrow) > FILE writes rows; in Python db.sql(...).to_parquet(FILE) and \
                               write_csv(FILE) do";

/// How statements begin, and the messages for them.
const BEGINNINGS: &[(&[&str], &str)] = &[
    (
        &["ATTACH"],
        "ATTACH is not offered: each connection has one database; append the rows of another one as a data frame",
    ),
    (&["COPY"], COPY),
    (
        &["VACUUM"],
        "VACUUM is not needed: space comes back by itself; thalweg maintain, or maintain() in Python, puts late rows in order",
    ),
    (
        &["ANALYZE"],
        "ANALYZE is not needed: the summaries that queries are planned by are always there",
    ),
    (
        &["OPTIMIZE"],
        "OPTIMIZE is not offered: thalweg maintain, or maintain() in Python, puts late rows in order and short blocks together",
    ),
    (
        &["PRAGMA"],
        "PRAGMA is not offered: DESCRIBE t shows the columns of a table, SHOW TABLES the tables, SELECT * FROM thalweg_tables facts about them",
    ),
    (&["CREATE", "TRIGGER"], TRIGGERS),
    (&["CREATE", "OR", "REPLACE", "TRIGGER"], TRIGGERS),
    (&["CREATE", "TEMP", "TRIGGER"], TRIGGERS),
    (&["CREATE", "TEMPORARY", "TRIGGER"], TRIGGERS),
    (&["DROP", "TRIGGER"], TRIGGERS),
    (&["DROP", "INDEX"], INDEXES),
    (
        &["REINDEX"],
        "REINDEX is not needed: there are no indexes, and the summaries that queries are planned by are always there",
    ),
    (&["DETACH"], "DETACH is not offered: close the connection"),
    (
        &["EXPORT", "DATABASE"],
        "EXPORT DATABASE is not offered: thalweg sql DATABASE \"SELECT * FROM t\" --format csv (or arrow) writes the rows of a table",
    ),
    (
        &["IMPORT", "DATABASE"],
        "IMPORT DATABASE is not offered: thalweg import reads files",
    ),
    (
        &["CHECKPOINT"],
        "CHECKPOINT is not needed: checkpoints are written as they fall due",
    ),
    (
        &["FORCE", "CHECKPOINT"],
        "CHECKPOINT is not needed: checkpoints are written as they fall due",
    ),
    (
        &["SET", "TIMEZONE"],
        "SET TIMEZONE is not offered: ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' is the clock of a zone",
    ),
    (
        &["SET", "THREADS"],
        "SET THREADS is not offered: threads is an option of opening a database",
    ),
    (
        &["SHOW", "TIMEZONE"],
        "SHOW TIMEZONE is not offered: times are in UTC, or in the zone that their column names",
    ),
    (&["PREPARE"], PREPARED),
    (&["EXECUTE"], PREPARED),
    (&["DEALLOCATE"], PREPARED),
    (&["PIVOT"], PIVOT),
    (&["UNPIVOT"], UNPIVOT),
    (
        &["ALTER", "VIEW"],
        "ALTER VIEW is not offered: CREATE OR REPLACE VIEW gives a view another query, DROP VIEW and CREATE VIEW another name",
    ),
    (
        &["SHOW", "VIEWS"],
        "SHOW VIEWS is not offered: write SHOW TABLES, or SELECT * FROM information_schema.views",
    ),
    (
        &["SHOW", "CREATE"],
        "SHOW CREATE is not offered: DESCRIBE t shows the columns of a table, .schema in the shell of the command line its statement",
    ),
    (
        &["SHOW", "ALL", "TABLES"],
        "SHOW ALL TABLES is not offered: write SHOW TABLES, or SELECT * FROM thalweg_tables",
    ),
    (
        &["SHOW", "DATABASES"],
        "SHOW DATABASES is not offered: a connection has one database",
    ),
];

const TRIGGERS: &str = "triggers are not offered: run what a trigger would run in one transaction with the change, between BEGIN and COMMIT";

const INDEXES: &str = "DROP INDEX is not offered: there are no indexes; the unique key of a table belongs to its definition, and stays";

const PREPARED: &str = "PREPARE, EXECUTE and DEALLOCATE are not offered in SQL: db.prepare(\"SELECT * FROM t WHERE v > ?\") makes a statement whose \
     execute takes values";

const FRAMES_EXCLUDE: &str = "EXCLUDE is not offered in the frame of a window: take away the row's own value, as in sum(x) OVER (...) - x";

const ROWS_OF_TIME: &str = "ROWS counts rows: write RANGE for a length of time, as in RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW";

const ASOF: &str = "ASOF JOIN is not offered: the latest reading at each event is last_value(v) IGNORE NULLS OVER (PARTITION BY g ORDER BY ts) of both tables by UNION ALL";

/// Words inside of statements, and the messages for them.
const INSIDE: &[(&[&str], &str)] = &[
    (&["ASOF", "JOIN"], ASOF),
    (&["ASOF", "INNER", "JOIN"], ASOF),
    (&["ASOF", "LEFT", "JOIN"], ASOF),
    (&["ASOF", "LEFT", "OUTER", "JOIN"], ASOF),
    (&["ASOF", "RIGHT"], ASOF),
    (&["ASOF", "FULL"], ASOF),
    (
        &["USING", "SAMPLE"],
        "USING SAMPLE is not offered: write WHERE random() < 0.1, or ORDER BY random() LIMIT 10",
    ),
    (&["ROWS", "BETWEEN", "INTERVAL"], ROWS_OF_TIME),
    (&["ROWS", "INTERVAL"], ROWS_OF_TIME),
    (&["ROW", "EXCLUDE"], FRAMES_EXCLUDE),
    (&["FOLLOWING", "EXCLUDE"], FRAMES_EXCLUDE),
    (&["PRECEDING", "EXCLUDE"], FRAMES_EXCLUDE),
    (
        &["TABLESAMPLE"],
        "TABLESAMPLE is not offered: write WHERE random() < 0.1, or ORDER BY random() LIMIT 10",
    ),
];

/// Statements whose rows other databases take as those of a query, and the messages for them.
const IN_BRACKETS: &[(&str, &str)] = &[
    (
        "SUMMARIZE",
        "SUMMARIZE is a statement of its own, and not offered inside of another one: write SUMMARIZE t, or the aggregates that are wanted, SELECT min(v), max(v), avg(v), median(v), count(v) FROM t",
    ),
    (
        "DESCRIBE",
        "DESCRIBE is a statement of its own, and not offered inside of another one: write SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 't'",
    ),
    (
        "SHOW",
        "SHOW is a statement of its own, and not offered inside of another one: write SELECT table_name FROM information_schema.tables, or SELECT * FROM thalweg_tables",
    ),
];

/// The message for such a statement in brackets after FROM, JOIN or AS, where a query may stand; a table that is called so may have
/// another name there, but not brackets around it alone.
fn in_brackets(words: &[&Token]) -> Option<&'static str> {
    words.windows(4).find_map(|four| {
        let [before, Token::LParen, statement, of] = four else {
            return None;
        };
        let takes_query = ["FROM", "JOIN", "AS", "MATERIALIZED"];
        let takes_query = takes_query.iter().any(|word| is(before, word));
        let (_, message) = IN_BRACKETS.iter().find(|(name, _)| is(statement, name))?;
        let is_statement = match of {
            Token::Word(word) => !matches!(
                word.keyword,
                Keyword::AS
                    | Keyword::JOIN
                    | Keyword::LEFT
                    | Keyword::RIGHT
                    | Keyword::FULL
                    | Keyword::INNER
                    | Keyword::CROSS
                    | Keyword::NATURAL
            ),
            Token::LParen => true,
            _ => false,
        };
        (takes_query && is_statement).then_some(*message)
    })
}

/// Refuses what is known here.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let words = tokens.iter().map(|token| &token.token);
    let words: Vec<&Token> = words
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let begins = |words: &[&Token], with: &[&str]| {
        words.len() >= with.len() && words.iter().zip(with).all(|(token, word)| is(token, word))
    };
    let found = BEGINNINGS
        .iter()
        .find(|(beginning, _)| begins(&words, beginning));
    if let Some((_, message)) = found {
        return Err(unsupported(*message));
    }
    if let Some(message) = in_brackets(&words) {
        return Err(unsupported(message));
    }
    if is_create_like(&words) {
        return Err(unsupported(
            "CREATE TABLE (LIKE ...) is not offered: write CREATE TABLE b AS SELECT * FROM a WHERE false",
        ));
    }
    if is_create_with_names(&words) {
        return Err(unsupported(
            "CREATE TABLE t (a, b) AS is not offered: name the columns in the query, as in SELECT x AS a, y AS b",
        ));
    }
    for place in 1..words.len() {
        let message = match words[place] {
            Token::CaretAt => "there is no operator ^@: write starts_with(s, 'a')",
            Token::Assignment => {
                "there is no operator :=: results are named by AS, and compared by ="
            }
            token if is(token, "OVERLAPS") && *words[place - 1] == Token::RParen => {
                "OVERLAPS is not offered: write a.begins < b.ends AND b.begins < a.ends"
            }
            _ => continue,
        };
        return Err(unsupported(message));
    }
    for place in 1..words.len() {
        let operators = [
            ("ISNULL", "IS NULL"),
            ("NOTNULL", "IS NOT NULL"),
            ("GLOB", "LIKE, with % and _ for * and ?"),
        ];
        let operator = operators.iter().find(|(word, _)| is(words[place], word));
        let Some((word, written)) = operator else {
            continue;
        };
        let follows_value = !matches!(
            words[place - 1],
            Token::Period | Token::Comma | Token::LParen
        ) && !["SELECT", "AS", "WHERE", "AND", "OR", "NOT", "BY"]
            .iter()
            .any(|word| is(words[place - 1], word));
        let after = words.get(place + 1);
        let is_name = match *word {
            "GLOB" => !matches!(after, Some(Token::SingleQuotedString(_))),
            _ => matches!(after, Some(Token::LParen)),
        };
        if follows_value && !is_name {
            return Err(unsupported(format!(
                "{word} is not offered as an operator: write {written}"
            )));
        }
    }
    let is_lambda = |four: &[&Token]| match four {
        [Token::LParen | Token::Comma, lambda, Token::Word(_), after] => {
            is(lambda, "LAMBDA") && **after == Token::Colon
        }
        _ => false,
    };
    if words.windows(4).any(is_lambda) {
        return Err(unsupported(
            "functions of elements, lambda x: ..., are not offered: unnest the list in a query of its own, and compute with its rows",
        ));
    }
    for place in 1..words.len() {
        for (word, message) in [("PIVOT", PIVOT), ("UNPIVOT", UNPIVOT)] {
            if is(words[place], word) && is_query_in_brackets(&words, place) {
                return Err(unsupported(message));
            }
        }
    }
    for place in 0..words.len() {
        let found = INSIDE
            .iter()
            .find(|(inside, _)| begins(&words[place..], inside));
        if let Some((inside, message)) = found
            && (inside.len() > 1 || follows_table(&words, place))
        {
            return Err(unsupported(*message));
        }
        // After the name of the table, which may have two parts.
        let is_insert = words.first().is_some_and(|token| is(token, "INSERT"));
        if is_insert
            && matches!(place, 3 | 5)
            && (begins(&words[place..], &["BY", "NAME"])
                || begins(&words[place..], &["BY", "POSITION"]))
        {
            return Err(unsupported(
                "INSERT BY NAME is not offered: name the columns, as in INSERT INTO t (ts, v) SELECT ts, v FROM ...",
            ));
        }
    }
    Ok(())
}

/// An unquoted word.
fn is(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Whether the word begins a query in brackets, `(PIVOT t ON`, and is no name.
fn is_query_in_brackets(words: &[&Token], place: usize) -> bool {
    let behind = |steps: usize| words.get(place + steps).copied();
    let is_on = |token: Option<&Token>| token.is_some_and(|token| is(token, "ON"));
    let of_table = match behind(1) {
        Some(Token::LParen) => true,
        Some(Token::Word(_)) => {
            is_on(behind(2)) || behind(2) == Some(&Token::Period) && is_on(behind(4))
        }
        _ => false,
    };
    *words[place - 1] == Token::LParen && of_table
}

/// Whether the word could be a clause of the table in front of it, and no name.
fn follows_table(words: &[&Token], place: usize) -> bool {
    let before = place.checked_sub(1).map(|before| words[before]);
    let is_name = matches!(before, Some(Token::Word(_) | Token::RParen));
    let is_kind = |token: &Token| {
        let kinds = ["BERNOULLI", "SYSTEM", "RESERVOIR"];
        matches!(token, Token::Number(..) | Token::LParen)
            || kinds.iter().any(|kind| is(token, kind))
    };
    is_name && words.get(place + 1).is_some_and(|token| is_kind(token))
}

/// `CREATE TABLE b (LIKE a`.
fn is_create_like(words: &[&Token]) -> bool {
    let is_at = |place: usize, wanted| words.get(place).is_some_and(|token| is(token, wanted));
    let Some(open) = words.iter().position(|token| **token == Token::LParen) else {
        return false;
    };
    is_at(0, "CREATE")
        && (is_at(1, "TABLE") || is_at(3, "TABLE"))
        && is_at(open + 1, "LIKE")
        && words.get(open + 3) == Some(&&Token::RParen)
}

/// `CREATE TABLE t (a, b) AS`, with names without types.
fn is_create_with_names(words: &[&Token]) -> bool {
    let opens = words.iter().position(|token| **token == Token::LParen);
    let Some(open) = opens.filter(|_| words.first().is_some_and(|first| is(first, "CREATE")))
    else {
        return false;
    };
    // After AS it is a function of the query.
    let has = |word| words[..open].iter().any(|token| is(token, word));
    if !has("TABLE") || has("AS") {
        return false;
    }
    let names = &words[open + 1..];
    let Some(close) = names.iter().position(|token| **token == Token::RParen) else {
        return false;
    };
    let is_part = |(place, token): (usize, &&Token)| match place % 2 {
        0 => matches!(token, Token::Word(_)),
        _ => **token == Token::Comma,
    };
    names[..close].iter().enumerate().all(is_part)
        && names.get(close + 1).is_some_and(|token| is(token, "AS"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_sql::sqlparser::dialect::GenericDialect;
    use datafusion_sql::sqlparser::tokenizer::Tokenizer;

    fn refused(text: &str) -> Option<String> {
        let mut tokens = Vec::new();
        Tokenizer::new(&GenericDialect {}, text)
            .tokenize_with_location_into_buf(&mut tokens)
            .unwrap();
        check(&tokens).err().map(|error| error.message().to_owned())
    }

    #[test]
    fn statements_of_others_are_called_by_their_names() {
        for (text, words) in [
            ("attach 'x.db'", "ATTACH"),
            ("EXPORT DATABASE 'x'", "thalweg sql"),
            ("checkpoint;", "CHECKPOINT"),
            ("COPY t TO 'x.csv'", "--format csv"),
            ("COPY t FROM 'x.csv'", "thalweg import"),
            ("vacuum analyze t", "not needed"),
            ("analyze", "not needed"),
            ("PRAGMA table_info(t)", "DESCRIBE"),
            ("SELECT * FROM t ASOF JOIN u ON t.ts >= u.ts", "ASOF JOIN"),
            (
                "SELECT * FROM t e asof left join u ON t.ts >= u.ts",
                "ASOF JOIN",
            ),
            (
                "SELECT * FROM t ASOF LEFT OUTER JOIN u ON t.ts >= u.ts",
                "ASOF JOIN",
            ),
            ("FROM t ASOF INNER JOIN u ON t.ts >= u.ts", "ASOF JOIN"),
            (
                "SELECT * FROM (SELECT * FROM t USING SAMPLE 10 ROWS)",
                "USING SAMPLE",
            ),
            ("SELECT * FROM t TABLESAMPLE 10%", "TABLESAMPLE"),
            ("SELECT * FROM t WHERE s GLOB 'a*'", "LIKE"),
            ("SELECT list_filter(l, lambda x: x > 1) FROM t", "unnest"),
            (
                "SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM t",
                "EXCLUDE",
            ),
            ("CREATE TABLE b (LIKE a)", "LIKE"),
            ("SELECT * FROM (PIVOT main.t ON k USING sum(v))", "PIVOT"),
            ("WITH p AS (UNPIVOT (SELECT 1) ON a, b) FROM p", "UNPIVOT"),
            ("INSERT INTO t BY NAME SELECT 1", "BY NAME"),
            ("SHOW CREATE TABLE t", "DESCRIBE"),
            ("CREATE TABLE t (a, b) AS SELECT 1, 2", "SELECT x AS a"),
            ("SELECT s ^@ 'a' FROM t", "starts_with"),
            ("SELECT (a, b) OVERLAPS (c, d) FROM t", "OVERLAPS"),
            (
                "SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) FROM t",
                "RANGE",
            ),
        ] {
            let message = refused(text).unwrap();
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn names_are_left_alone() {
        for text in [
            "SELECT tablesample FROM t",
            "SELECT v glob, glob FROM t",
            "SELECT f(lambda, x), (lambda), lambda x, y FROM t",
            "SELECT * EXCLUDE (row, following) FROM t",
            "SELECT \"ATTACH\" FROM checkpoint",
            "CREATE TABLE t (\"like\" INT)",
            "CREATE TABLE t (like INT, b INT)",
            "SELECT * FROM t JOIN u USING (sample)",
            "SELECT * FROM t ORDER BY name",
            "SELECT * FROM (pivot p JOIN u ON p.a = u.a), (pivot), (unpivot AS q)",
            "SELECT (pivot + 1), (pivot.a) FROM pivot",
            "INSERT INTO t SELECT * FROM u GROUP BY name ORDER BY position",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }
}
