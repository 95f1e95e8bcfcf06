//! Text to statements: what a text asks for, and what its placeholders are called.
//!
//! Invariants: exactly one statement; what this version does not offer is refused here, by name, so that nothing
//! after this module can reach files or other catalogs; nesting deeper than [`MAX_NESTING`] is an error of the parser.

use crate::column_words;
use crate::constant_params;
use crate::depths::Depths;
use crate::dialect;
use crate::error::{from_datafusion, query, unsupported};
use crate::from_first;
use crate::lists;
use crate::new_view::{self, NewView};
use crate::number_tokens;
use crate::offered;
use crate::params::Placeholders;
use crate::powers;
use crate::precedence;
use crate::table_options;
use crate::token_forms;
use crate::transactions::Step;
use crate::unsupported_statements;
use crate::wording::syntax;
use datafusion::error::DataFusionError;
use datafusion_sql::parser::{DFParser, DFParserBuilder, Statement as DfStatement};
use datafusion_sql::sqlparser::ast::{
    AlterTable, CreateTable, Delete, DescribeAlias, Expr, Insert, Merge, ObjectName, ObjectType,
    Query, SetExpr, ShowStatementOptions, Statement as SqlStatement, Truncate, Update, With,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use std::fmt::Display;
use thalweg_table::{Error, Result};

/// Levels of brackets and subqueries.
pub(crate) const MAX_NESTING: usize = 128;
/// The request that a statement makes.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Rows: SELECT, VALUES, and EXPLAIN of them.
    Query(Box<DfStatement>),
    /// INSERT INTO.
    Insert(Box<Insert>),
    /// DELETE FROM, perhaps after WITH.
    Delete(Box<Delete>, Option<With>),
    /// TRUNCATE.
    Truncate(Box<Truncate>),
    /// UPDATE, perhaps after WITH.
    Update(Box<Update>, Option<With>),
    /// MERGE INTO, perhaps after WITH.
    Merge(Box<Merge>, Option<With>),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// CREATE VIEW.
    CreateView(Box<NewView>),
    /// ALTER TABLE.
    AlterTable(Box<AlterTable>),
    /// DROP TABLE and DROP VIEW.
    Drop {
        /// Views, not tables.
        views: bool,
        /// Which.
        names: Vec<String>,
        /// Missing ones are fine.
        if_exists: bool,
    },
    /// SHOW TABLES.
    ShowTables,
    /// DESCRIBE of a table.
    Describe(String),
    /// DESCRIBE of a query.
    DescribeQuery(Box<DfStatement>),
    /// SUMMARIZE of the rows of a query.
    Summarize(Box<DfStatement>),
    /// BEGIN, COMMIT, ROLLBACK.
    Transaction(Step),
}

impl Request {
    /// Whether it changes something.
    pub(crate) fn writes(&self) -> bool {
        matches!(
            self,
            Self::Insert(_)
                | Self::Delete(..)
                | Self::Truncate(_)
                | Self::Update(..)
                | Self::Merge(..)
                | Self::CreateTable(_)
                | Self::CreateView(_)
                | Self::AlterTable(_)
                | Self::Drop { .. }
        )
    }
}

/// One statement.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub(crate) request: Request,
    pub(crate) placeholders: Placeholders,
    /// Names must be matched by hand: some quoted name has capitals, a wildcard replaces columns, or a join is NATURAL.
    pub(crate) wants_names: bool,
    /// Some parameters stand where the planner takes constants only.
    pub(crate) wants_constants: bool,
    /// How deeply its parts lie inside one another.
    pub(crate) depths: Depths,
}

/// Reads one statement.
pub(crate) fn parse(text: &str) -> Result<Parsed> {
    let mut tokens = tokens(text)?;
    let depths = Depths::of(&tokens);
    unsupported_statements::check(&tokens)?;
    refuse_colons(&tokens)?;
    let placeholders = number_placeholders(&mut tokens)?;
    let mut tokens = lists::with_brackets(tokens);
    let summarizes = take_summarize(&mut tokens);
    let tokens = in_forms_of_parser(tokens);
    let wants_names = tokens.iter().any(|token| {
        is_quoted_with_capitals(&token.token)
            || matches!(&token.token, Token::Word(word)
                if matches!(word.keyword, Keyword::REPLACE | Keyword::NATURAL))
    });
    let mut statements = parse_tokens(tokens).map_err(|error| {
        let inside = where_it_went_back(error.message(), text);
        let message = inside.as_deref().unwrap_or(error.message());
        let message = syntax::with_word_before(message, text);
        Error::new(error.kind(), message)
    })?;
    let Some(mut statement) = statements.pop() else {
        return Err(query("there is no statement in the text"));
    };
    if !statements.is_empty() {
        return Err(query("one statement at a time: the text has several"));
    }
    offered::check(&statement)?;
    dialect::translate(&mut statement)?;
    let wants_constants = !placeholders.names.is_empty() && constant_params::are_in(&mut statement);
    let request = match classify(statement)? {
        Request::Query(query) if summarizes => Request::Summarize(query),
        Request::CreateView(mut view) => {
            if !placeholders.names.is_empty() {
                return Err(query(
                    "a view has no parameters: write its values, or give the query that reads the view parameters",
                ));
            }
            view.query = new_view::text_of_query(text)?;
            Request::CreateView(view)
        }
        request => request,
    };
    Ok(Parsed {
        request,
        placeholders,
        wants_names,
        wants_constants,
        depths,
    })
}

/// Reads a condition, as it stands in WHERE.
pub(crate) fn parse_condition(text: &str) -> Result<Expr> {
    let mut tokens = tokens(text)?;
    if !number_placeholders(&mut tokens)?.names.is_empty() {
        return Err(query(
            "a filter has no parameters: write its values, or use SQL",
        ));
    }
    let parser = DFParserBuilder::new(tokens)
        .with_recursion_limit(MAX_NESTING)
        .build();
    let condition = parser.and_then(|mut parser| parser.parse_into_expr());
    let mut condition = condition.map_err(parse_error)?;
    dialect::translate_condition(&mut condition.expr)?;
    match condition.alias {
        None => Ok(condition.expr),
        Some(alias) => Err(query(format!("a filter has no name: \"{alias}\""))),
    }
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>> {
    let mut tokens = Vec::new();
    let tokenized =
        Tokenizer::new(&GenericDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
    tokenized.map_err(|e| query(syntax::reworded(&e.to_string())))?;
    // Names that statements are given inside begin with it.
    if let Some(name) = tokens.iter().find_map(|token| match &token.token {
        Token::Word(word) if word.value.contains('\0') => Some(&word.value),
        _ => None,
    }) {
        let shown = name.escape_debug();
        return Err(query(format!(
            "\"{shown}\" is no name: it contains a NUL character"
        )));
    }
    Depths::of(&tokens).check()?;
    let tokens = number_tokens::in_plain_digits(tokens, text)?;
    Ok(precedence::with_brackets(powers::as_calls(tokens)))
}

/// Refuses parameters as other databases write them, `:name`, and casts and times of day as they are mistyped, `ts:date`,
/// `TIME 10:00`. A colon stands between the ends of a slice and after names of fields only.
fn refuse_colons(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut before: Option<&Token> = None;
    let mut brackets: Vec<&Token> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => continue,
            opening @ (Token::LParen | Token::LBracket | Token::LBrace) => brackets.push(opening),
            Token::RParen | Token::RBracket | Token::RBrace => drop(brackets.pop()),
            Token::Colon => {
                let behind = tokens[at + 1..].iter().map(|next| &next.token);
                let next = { behind }.find(|next| !matches!(next, Token::Whitespace(_)));
                let has_own = matches!(brackets.last(), Some(Token::LBracket | Token::LBrace));
                match (before, next) {
                    (before, Some(Token::Word(name))) if begins_value(before) => {
                        let name = &name.value;
                        return Err(query(format!("write ${name} for a parameter, not :{name}")));
                    }
                    (Some(Token::Number(..)), Some(Token::Number(..))) if !has_own => {
                        return Err(query(
                            "a time of day takes quotes, as in TIME '10:00' or '2026-01-31 10:00'",
                        ));
                    }
                    (Some(_), Some(_)) if !has_own => {
                        return Err(query(
                            "a cast takes two colons, as in (ts)::date, and a result is named by AS: one colon stands in l[1:2] and {'a': 1} only",
                        ));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        before = Some(&token.token);
    }
    Ok(())
}

/// Whether a value can follow, and nothing that goes on with one.
fn begins_value(before: Option<&Token>) -> bool {
    match before {
        Some(
            Token::Eq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::LParen
            | Token::Comma,
        ) => true,
        Some(Token::Word(word)) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::BETWEEN
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::LIMIT
                | Keyword::SELECT
        ),
        _ => false,
    }
}

/// The tokens in forms that the parser knows.
fn in_forms_of_parser(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    begin_with_from(&mut tokens);
    let tokens = table_options::with_set_for_reset(tokens);
    token_forms::as_parsed(column_words::quoted(from_first::with_select(tokens)))
}

/// The message of what the parser goes back from, and then fails at another place: a CASE without END, and a query in brackets.
fn where_it_went_back(message: &str, text: &str) -> Option<String> {
    let mut tokens = tokens(text).ok()?;
    if let Some(message) = syntax::missing_end(&tokens) {
        return Some(message);
    }
    if !syntax::is_of_place(message) {
        return None;
    }
    number_placeholders(&mut tokens).ok()?;
    let tokens = in_forms_of_parser(lists::with_brackets(tokens));
    syntax::in_query_inside(message, &tokens)
}

/// Takes SUMMARIZE, which the parser does not know, from the front; a table after it becomes a query of all its rows.
fn take_summarize(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let Some(at) = tokens.iter().position(|token| !is_blank(token)) else {
        return false;
    };
    let summarizes = matches!(&tokens[at].token, Token::Word(word) if word.quote_style.is_none()
        && word.value.eq_ignore_ascii_case("summarize"));
    if !summarizes {
        return false;
    }
    tokens.drain(..=at);
    let next = tokens.iter().find(|token| !is_blank(token));
    let is_query = match next.map(|next| &next.token) {
        Some(Token::Word(word)) => matches!(
            word.keyword,
            Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::FROM
        ),
        Some(Token::LParen) => true,
        _ => false,
    };
    if !is_query {
        tokens.insert(0, TokenWithSpan::wrap(Token::make_keyword("FROM")));
        tokens.insert(1, TokenWithSpan::wrap(Token::Whitespace(Whitespace::Space)));
    }
    true
}

/// `TABLE t` as `FROM t`.
fn begin_with_from(tokens: &mut [TokenWithSpan]) {
    let first = tokens
        .iter_mut()
        .find(|token| !matches!(token.token, Token::Whitespace(_)));
    if let Some(first) = first
        && matches!(&first.token, Token::Word(word) if word.keyword == Keyword::TABLE)
    {
        first.token = Token::make_keyword("FROM");
    }
}

/// How deeply EXPLAIN of EXPLAIN and lists of lists in types are nested, which the parser does not count.
fn uncounted_depth(tokens: &[TokenWithSpan]) -> usize {
    let (mut explains, mut lists, mut max_lists) = (0, 0, 0);
    for token in tokens {
        match &token.token {
            Token::Word(word) if word.keyword == Keyword::EXPLAIN => explains += 1,
            Token::LBracket => lists += 1,
            Token::RBracket | Token::Whitespace(_) => {}
            _ => lists = 0,
        }
        max_lists = max_lists.max(lists);
    }
    explains.max(max_lists)
}

fn parse_tokens(tokens: Vec<TokenWithSpan>) -> Result<Vec<DfStatement>> {
    if uncounted_depth(&tokens) > MAX_NESTING {
        return Err(too_deep());
    }
    let parser = DFParserBuilder::new(tokens)
        .with_recursion_limit(MAX_NESTING)
        .build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    Ok(statements.map_err(parse_error)?.into())
}

fn too_deep() -> Error {
    query(format!(
        "the statement is nested deeper than {MAX_NESTING} levels"
    ))
}

fn parse_error(error: DataFusionError) -> Error {
    match &error {
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            if text.contains("recursion limit") {
                return too_deep();
            }
            query(syntax::reworded(text))
        }
        _ => from_datafusion(error),
    }
}

fn is_quoted_with_capitals(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_some() && word.value.chars().any(char::is_uppercase))
}

/// Gives every `?` its number and lists the placeholders by place.
fn number_placeholders(tokens: &mut [TokenWithSpan]) -> Result<Placeholders> {
    let mut found = Placeholders::default();
    let (mut counted, mut highest) = (0_usize, 0_usize);
    for token in tokens {
        let Token::Placeholder(name) = &mut token.token else {
            continue;
        };
        if name == "?" {
            counted += 1;
            *name = format!("${counted}");
        } else if let Some(number) = number_of(name) {
            if number == 0 || number > usize::from(u16::MAX) {
                return Err(query(format!(
                    "{name} is no parameter: they are numbered from $1 to $65535"
                )));
            }
            highest = highest.max(number);
        } else if let Some(name) = name.strip_prefix('$').filter(|name| !name.is_empty()) {
            if !found.names.iter().any(|known| known == name) {
                found.names.push(name.to_owned());
            }
            found.named = true;
        } else {
            return Err(query(format!(
                "{name} is no parameter: write ?, $1 or $name"
            )));
        }
    }
    if usize::from(counted > 0) + usize::from(highest > 0) + usize::from(found.named) > 1 {
        return Err(query(
            "a statement has parameters of one kind: ?, $1 or $name",
        ));
    }
    if !found.named {
        found.names = (1..=counted.max(highest))
            .map(|number| number.to_string())
            .collect();
    }
    Ok(found)
}

fn number_of(name: &str) -> Option<usize> {
    let digits = name.strip_prefix('$')?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

fn classify(statement: DfStatement) -> Result<Request> {
    match statement {
        DfStatement::Statement(inner) => classify_sql(*inner),
        DfStatement::Explain(explain) => {
            match classify((*explain.statement).clone())? {
                Request::Query(inner) if !is_explain(&inner) => {}
                _ => return Err(unsupported("EXPLAIN is offered for queries only")),
            }
            Ok(Request::Query(Box::new(DfStatement::Explain(explain))))
        }
        DfStatement::CopyTo(_) => Err(unsupported(unsupported_statements::COPY)),
        DfStatement::CreateExternalTable(_) => Err(unsupported(
            "external tables are not offered: SQL reads no files; import them instead",
        )),
        DfStatement::Reset(_) => Err(unsupported("SET and RESET are not offered")),
    }
}

/// Whether a statement asks for a plan.
pub(crate) fn is_explain(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Explain(_) => true,
        DfStatement::Statement(inner) => matches!(**inner, SqlStatement::Explain { .. }),
        _ => false,
    }
}

fn classify_sql(statement: SqlStatement) -> Result<Request> {
    if let Some(step) = Step::of(&statement)? {
        return Ok(Request::Transaction(step));
    }
    match statement {
        SqlStatement::Query(query) => classify_query(query),
        SqlStatement::Insert(insert) => Ok(Request::Insert(Box::new(insert))),
        SqlStatement::Delete(delete) => Ok(Request::Delete(Box::new(delete), None)),
        SqlStatement::Truncate(truncate) => Ok(Request::Truncate(Box::new(truncate))),
        SqlStatement::Update(update) => Ok(Request::Update(Box::new(update), None)),
        SqlStatement::Merge(merge) => Ok(Request::Merge(Box::new(merge), None)),
        SqlStatement::AlterTable(alter) => Ok(Request::AlterTable(Box::new(alter))),
        SqlStatement::CreateTable(create) => Ok(Request::CreateTable(Box::new(create))),
        SqlStatement::CreateView(view) => Ok(Request::CreateView(Box::new(NewView::of(view)?))),
        SqlStatement::Drop {
            object_type: object_type @ (ObjectType::Table | ObjectType::View),
            if_exists,
            names,
            ..
        } => Ok(Request::Drop {
            views: object_type == ObjectType::View,
            names: names.iter().map(table_name).collect::<Result<_>>()?,
            if_exists,
        }),
        SqlStatement::ShowTables { show_options, .. } => {
            if selects(&show_options) || show_options.show_in.is_some() {
                return Err(unsupported(
                    "SHOW TABLES shows all tables: it takes no LIKE, FROM and WHERE",
                ));
            }
            Ok(Request::ShowTables)
        }
        SqlStatement::ExplainTable {
            table_name: name,
            describe_alias,
            ..
        } => match describe_alias {
            DescribeAlias::Describe | DescribeAlias::Desc => {
                Ok(Request::Describe(table_name(&name)?))
            }
            DescribeAlias::Explain => Err(unsupported("EXPLAIN is offered for queries only")),
        },
        SqlStatement::ShowColumns { show_options, .. } => {
            if selects(&show_options) {
                return Err(unsupported(
                    "SHOW COLUMNS shows all columns: it takes no LIKE and WHERE",
                ));
            }
            let of = show_options.show_in.and_then(|of| of.parent_name);
            match of {
                Some(name) => Ok(Request::Describe(table_name(&name)?)),
                None => Err(query("SHOW COLUMNS needs a table: SHOW COLUMNS FROM t")),
            }
        }
        // DESCRIBE SELECT: the columns of the result.
        SqlStatement::Explain {
            describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
            statement,
            ..
        } if matches!(*statement, SqlStatement::Query(_)) => Ok(Request::DescribeQuery(Box::new(
            DfStatement::Statement(statement),
        ))),
        SqlStatement::Explain { .. } => Err(unsupported(
            "DESCRIBE and EXPLAIN are offered for tables and queries only",
        )),
        other => Err(refuse(&other)),
    }
}

/// The request of a query, which may hide a statement that writes.
fn classify_query(mut query: Box<Query>) -> Result<Request> {
    // WITH ... INSERT INTO t SELECT, as INSERT INTO t WITH ... SELECT.
    if let SetExpr::Insert(SqlStatement::Insert(insert)) = query.body.as_mut()
        && let Some(source) = &mut insert.source
        && source.with.is_none()
    {
        source.with = query.with.take();
        let insert = SqlStatement::Insert(insert.clone());
        return classify_sql(insert);
    }
    let with = query.with.take();
    match query.body.as_ref() {
        SetExpr::Update(SqlStatement::Update(update)) => {
            Ok(Request::Update(Box::new(update.clone()), with))
        }
        SetExpr::Delete(SqlStatement::Delete(delete)) => {
            Ok(Request::Delete(Box::new(delete.clone()), with))
        }
        SetExpr::Merge(SqlStatement::Merge(merge)) => {
            Ok(Request::Merge(Box::new(merge.clone()), with))
        }
        SetExpr::Insert(_) => Err(unsupported(
            "WITH stands once: before INSERT INTO or before its SELECT",
        )),
        _ => {
            query.with = with;
            let query = SqlStatement::Query(query);
            Ok(Request::Query(Box::new(DfStatement::Statement(Box::new(
                query,
            )))))
        }
    }
}

/// Words between CREATE and what is created.
const MODIFIERS: [&str; 6] = ["OR", "REPLACE", "TEMP", "TEMPORARY", "LOCAL", "GLOBAL"];

fn instead(word: &str) -> &'static str {
    match word {
        "SHOW" => ": write DESCRIBE t for the columns of a table, SHOW TABLES for the tables",
        "SET" => {
            ": AT TIME ZONE gives the clock of a zone; threads and memory_limit are options of opening a database"
        }
        _ => "",
    }
}

fn refuse(statement: &SqlStatement) -> Error {
    let what: &dyn Display = match statement {
        SqlStatement::Copy { .. } => &"COPY",
        SqlStatement::CreateIndex(_) => {
            return unsupported(
                "CREATE INDEX is not offered by this version: rows lie in the order of time, and blocks that the least and greatest \
                 values of their columns rule out are not read",
            );
        }
        other => {
            let text = other.to_string();
            let mut words = text.split_whitespace().map(str::to_uppercase);
            let word = words.next().unwrap_or_else(|| "this statement".to_owned());
            let of = match &*word {
                "CREATE" => words.find(|word| !MODIFIERS.contains(&&**word)),
                _ => None,
            };
            let of = of.map_or_else(String::new, |of| format!(" {of}"));
            return unsupported(format!(
                "{word}{of} is not offered by this version{}",
                instead(&word)
            ));
        }
    };
    unsupported(format!("{what} is not offered by this version"))
}

/// Whether SHOW is to leave something out.
fn selects(options: &ShowStatementOptions) -> bool {
    options.filter_position.is_some() || options.starts_with.is_some() || options.limit.is_some()
}

/// The name of a table, which may be qualified with the one schema there is.
pub(crate) fn table_name(name: &ObjectName) -> Result<String> {
    let parts = name
        .0
        .iter()
        .map(|part| part.as_ident().map(|ident| ident.value.as_str()));
    let parts = parts.collect::<Option<Vec<_>>>();
    match parts.as_deref() {
        Some([table]) => Ok((*table).to_owned()),
        Some([schema, table]) if is_schema(schema) => Ok((*table).to_owned()),
        _ => Err(query(format!(
            "{name} is no table name: there is one schema, \"main\""
        ))),
    }
}

/// Whether this is the name of the one schema that holds all tables.
pub(crate) fn is_schema(name: &str) -> bool {
    name.eq_ignore_ascii_case("main") || name.eq_ignore_ascii_case("public")
}

/// A statement that the engine writes itself.
pub(crate) fn written(text: &str) -> Result<DfStatement> {
    let mut statements = DFParser::parse_sql(text).map_err(from_datafusion)?;
    statements
        .pop_front()
        .ok_or_else(|| query("a statement without words"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_table::ErrorKind;

    fn refused(text: &str) -> (ErrorKind, String) {
        let error = parse(text).unwrap_err();
        (error.kind(), error.message().to_owned())
    }

    #[test]
    fn placeholders_are_numbered_by_their_place() {
        let names = |text: &str| parse(text).unwrap().placeholders.names;
        assert_eq!(names("SELECT ? + ? FROM t WHERE x = '?'"), ["1", "2"]);
        assert_eq!(names("SELECT $2 + $1"), ["1", "2"]);
        assert_eq!(names("SELECT $b, $a, $b"), ["b", "a"]);
        assert!(names("SELECT 1").is_empty());
        assert_eq!(refused("SELECT ?, $1").0, ErrorKind::Query);
        assert_eq!(refused("SELECT $0").0, ErrorKind::Query);
    }

    #[test]
    fn what_is_not_offered_is_named() {
        for (text, word) in [
            ("CREATE MATERIALIZED VIEW w AS SELECT 1", "MATERIALIZED"),
            ("COPY t TO 'x.csv'", "COPY"),
            ("COPY t FROM 'x.csv'", "COPY"),
            (
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
                "external",
            ),
            ("SET x = 1", "SET"),
            ("EXPLAIN INSERT INTO t VALUES (1)", "EXPLAIN"),
            ("EXPLAIN ANALYZE COPY t TO 'x.csv'", "COPY"),
            ("SAVEPOINT a", "savepoints"),
            ("BEGIN IMMEDIATE", "IMMEDIATE"),
            ("SELECT * FROM t TABLESAMPLE BERNOULLI (1)", "TABLESAMPLE"),
            ("SELECT * FROM t PREWHERE v = 3", "PREWHERE"),
            ("SELECT v FROM t GROUP BY v WITH ROLLUP", "rollup"),
            (
                "SELECT v FROM t START WITH v = 1 CONNECT BY PRIOR v = ts",
                "CONNECT BY",
            ),
            ("SELECT v FROM (SELECT * FROM t FOR UPDATE)", "FOR UPDATE"),
            (
                "EXPLAIN SELECT 1 UNION SELECT v FROM t PARTITION (p1)",
                "PARTITION",
            ),
            (
                "INSERT INTO t SELECT * FROM u TABLESAMPLE SYSTEM (5)",
                "TABLESAMPLE",
            ),
            ("SELECT v FROM t FORMAT CSV", "FORMAT"),
        ] {
            let (kind, message) = refused(text);
            assert_eq!(kind, ErrorKind::Unsupported, "{text}: {message}");
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    #[test]
    fn one_statement_at_a_time() {
        assert_eq!(refused("SELECT 1; SELECT 2").0, ErrorKind::Query);
        assert_eq!(refused("").0, ErrorKind::Query);
        assert_eq!(refused("SELEC 1").0, ErrorKind::Query);
        for own in ["SELECT * FROM \"\0t\"", "UPDATE t SET ts = \"\0place\""] {
            assert!(refused(own).1.contains("NUL character"), "{own:?}");
        }
        assert!(parse("SELECT 1;").is_ok());
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = format!("SELECT {}1{}", "(".repeat(2_000), ")".repeat(2_000));
        let (kind, message) = refused(&text);
        assert_eq!(kind, ErrorKind::Query);
        assert!(message.contains("nested"), "{message}");
    }

    #[test]
    fn long_chains_are_an_error() {
        let chain = |terms: usize| format!("SELECT {}", vec!["(a = 1)"; terms].join(" OR "));
        assert_eq!(refused(&chain(20_000)).0, ErrorKind::Limit);
        assert_eq!(
            refused(&format!("SELECT {}1", "1 - ".repeat(20_000))).0,
            ErrorKind::Limit
        );
        assert_eq!(
            refused(&vec!["SELECT 1"; 20_000].join(" UNION ALL ")).0,
            ErrorKind::Limit
        );
        assert!(parse(&chain(1_000)).is_ok());
        let sum = |terms: usize| vec!["a"; terms].join(" + ");
        let (kind, message) = refused(&format!("SELECT {}", sum(1_500)));
        assert_eq!(kind, ErrorKind::Limit);
        assert!(message.contains("brackets"), "{message}");
        assert!(parse(&format!("SELECT {}, {}", sum(900), sum(900))).is_ok());
        assert!(parse(&format!("SELECT ({}) + ({})", sum(900), sum(900))).is_ok());
        let conditions = vec!["a + 1 = 2 * b"; 600].join(" AND ");
        assert!(parse(&format!("SELECT {conditions}")).is_ok());
        assert!(
            parse(&format!(
                "INSERT INTO t VALUES {}",
                vec!["(-1, -2)"; 50_000].join(",")
            ))
            .is_ok()
        );
        assert!(parse(&format!("SELECT a IN ({}1)", "-1, ".repeat(50_000))).is_ok());
    }

    #[test]
    fn capitals_in_quotes_are_seen() {
        assert!(parse("SELECT \"PM25\" FROM t").unwrap().wants_names);
        assert!(
            !parse("SELECT PM25, \"pm25\", 'PM25' FROM t")
                .unwrap()
                .wants_names
        );
    }
}
