//! CREATE VIEW: what a statement asks for, and the text of its query.
//!
//! Invariant: the query is stored as it was written, since the parser sees a text only after short forms were spelled out in it.

use crate::error::{query, unsupported};
use crate::parse::table_name;
use crate::token_places::TokenPlaces;
use datafusion_sql::sqlparser::ast::{CreateTableOptions, CreateView};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use thalweg_table::Result;

/// A view that a statement is to make.
#[derive(Clone, Debug)]
pub(crate) struct NewView {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    /// The text of its query.
    pub(crate) query: String,
}

impl NewView {
    /// The view of a statement, without the text of its query.
    pub(crate) fn of(view: CreateView) -> Result<Self> {
        refuse_extras(&view)?;
        let mut columns = Vec::new();
        for column in &view.columns {
            if column.data_type.is_some() || column.options.is_some() {
                return Err(unsupported(format!(
                    "column \"{}\": the columns of a view have names only: cast them in its query",
                    column.name.value
                )));
            }
            columns.push(column.name.value.clone());
        }
        Ok(Self {
            name: table_name(&view.name)?,
            columns,
            or_replace: view.or_replace,
            if_not_exists: view.if_not_exists,
            query: String::new(),
        })
    }
}

/// Refuses clauses that the parser reads for other databases.
fn refuse_extras(view: &CreateView) -> Result<()> {
    let refused = [
        (
            view.materialized,
            "MATERIALIZED (write CREATE TABLE ... AS, and fill it again when the rows change)",
        ),
        (view.temporary, "TEMPORARY"),
        (view.or_alter, "OR ALTER (write OR REPLACE)"),
        (view.secure, "SECURE"),
        (
            view.or_replace && view.if_not_exists,
            "both OR REPLACE and IF NOT EXISTS",
        ),
        (
            view.options != CreateTableOptions::None,
            "options before its query",
        ),
        (!view.cluster_by.is_empty(), "CLUSTER BY"),
        (view.comment.is_some(), "COMMENT"),
        (view.with_no_schema_binding, "WITH NO SCHEMA BINDING"),
        (view.copy_grants, "COPY GRANTS"),
        (view.to.is_some(), "TO"),
        (view.params.is_some(), "ALGORITHM, DEFINER and SQL SECURITY"),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(unsupported(format!(
            "CREATE VIEW with {what} is not offered by this version"
        ))),
        None => Ok(()),
    }
}

/// The text after the first AS outside of brackets that follows the name, without a semicolon and comments at its end.
pub(crate) fn text_of_query(text: &str) -> Result<String> {
    let mut tokens = Vec::new();
    let tokenized =
        Tokenizer::new(&GenericDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
    tokenized.map_err(|error| query(error.to_string()))?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    while tokens
        .last()
        .is_some_and(|last| matches!(last.token, Token::SemiColon))
    {
        tokens.pop();
    }
    let mut depth = 0_usize;
    let after_name = after_name(&tokens);
    let begins = tokens.iter().enumerate().skip(after_name);
    let begins = { begins }.find_map(|(at, token)| {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0 && is(token, "AS")).then_some(at)
    });
    let places = TokenPlaces::of(text);
    let of_query = begins.and_then(|begins| {
        let (first, last) = (tokens.get(begins + 1)?, tokens.last()?);
        let end = places.end_of(last)?;
        text.get(places.byte_of(first)?..end)
    });
    of_query
        .map(str::to_owned)
        .ok_or_else(|| query("CREATE VIEW needs a query, after AS"))
}

/// The place after the name of the view, which may be any word.
fn after_name(tokens: &[TokenWithSpan]) -> usize {
    let view = tokens.iter().position(|token| is(token, "VIEW"));
    let mut at = view.map_or(0, |view| view + 1);
    let is_next = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is(token, word));
    if is_next(at, "IF") && is_next(at + 1, "NOT") && is_next(at + 2, "EXISTS") {
        at += 3;
    }
    while tokens
        .get(at + 1)
        .is_some_and(|token| token.token == Token::Period)
    {
        at += 2;
    }
    at + 1
}

/// Whether a token is this word, without quotes.
fn is(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::text_of_query;

    #[test]
    fn queries_are_stored_as_they_were_written() {
        for (text, wanted) in [
            ("CREATE VIEW v AS SELECT 1", "SELECT 1"),
            (
                "create view \"as\" as\n  SELECT 'ü;' AS \"é\" -- why\n FROM t ; -- end\n;",
                "SELECT 'ü;' AS \"é\" -- why\n FROM t",
            ),
            (
                "CREATE VIEW v (\"as\", b) AS (SELECT a AS b FROM t)",
                "(SELECT a AS b FROM t)",
            ),
            (
                "CREATE VIEW v AS FROM t WHERE s = 'a''b'",
                "FROM t WHERE s = 'a''b'",
            ),
            ("CREATE VIEW v AS VALUES (1), (2)", "VALUES (1), (2)"),
            (
                "CREATE VIEW as (as, b) AS SELECT 1 AS a, 2",
                "SELECT 1 AS a, 2",
            ),
            (
                "CREATE OR REPLACE VIEW main.as AS SELECT 1 AS a",
                "SELECT 1 AS a",
            ),
            ("CREATE VIEW view AS SELECT 1 AS a", "SELECT 1 AS a"),
            (
                "CREATE VIEW IF NOT EXISTS as AS SELECT 1 AS a",
                "SELECT 1 AS a",
            ),
            (
                "CREATE VIEW exists IF NOT EXISTS AS SELECT 1 AS a",
                "SELECT 1 AS a",
            ),
            (
                "/* AS SELECT 0 */ CREATE VIEW v\nAS\nWITH a AS (SELECT 1) SELECT * FROM a",
                "WITH a AS (SELECT 1) SELECT * FROM a",
            ),
        ] {
            assert_eq!(text_of_query(text).unwrap(), wanted, "{text}");
        }
        assert!(text_of_query("CREATE VIEW v AS").is_err());
    }
}
