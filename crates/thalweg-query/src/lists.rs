//! Parameters that are lists: `x IN ?`.
//!
//! Invariant: a list stands for its values, as if each of them had been given for a placeholder of its own.

use crate::params::{BoundParams, items};
use arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{Expr, Value, VisitorMut};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;
use thalweg_planner::walk_mut;
use thalweg_table::{Error, Result};

/// Puts the brackets of `IN (?)` around placeholders that lack them.
pub(crate) fn with_brackets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_in = |token: &Token| matches!(token, Token::Word(word) if word.keyword == Keyword::IN);
    let is_placeholder = |token: &TokenWithSpan| matches!(token.token, Token::Placeholder(_));
    if !tokens.iter().any(is_placeholder) {
        return tokens;
    }
    let mut follows_in = false;
    let mut out = Vec::with_capacity(tokens.len());
    for token in tokens {
        if follows_in && matches!(token.token, Token::Placeholder(_)) {
            let bracket = |bracket| TokenWithSpan {
                token: bracket,
                span: token.span,
            };
            let (open, close) = (bracket(Token::LParen), bracket(Token::RParen));
            out.extend([open, token, close]);
            follows_in = false;
            continue;
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            follows_in = is_in(&token.token);
        }
        out.push(token);
    }
    out
}

/// The statement with a placeholder for each value of a list, and the values; `None` where no parameter is a list.
pub(crate) fn spread(
    statement: &DfStatement,
    params: &BoundParams,
) -> Result<Option<(DfStatement, BoundParams)>> {
    if !params.values.iter().any(|value| items(value).is_some()) {
        return Ok(None);
    }
    let (mut statement, mut params) = (statement.clone(), params.clone());
    let mut spreader = Spreader(&mut params);
    match visit(&mut statement, &mut spreader) {
        ControlFlow::Continue(()) => Ok(Some((statement, params))),
        ControlFlow::Break(error) => Err(error),
    }
}

fn visit(statement: &mut DfStatement, spreader: &mut Spreader<'_>) -> ControlFlow<Error> {
    match statement {
        DfStatement::Statement(inner) => walk_mut(&mut **inner, spreader),
        DfStatement::Explain(explain) => visit(&mut explain.statement, spreader),
        _ => ControlFlow::Continue(()),
    }
}

struct Spreader<'a>(&'a mut BoundParams);

impl VisitorMut for Spreader<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::InList { list, negated, .. } = expr else {
            return ControlFlow::Continue(());
        };
        let mut all = Vec::with_capacity(list.len());
        for item in list.drain(..) {
            let given = match &item {
                Expr::Value(value) => match &value.value {
                    Value::Placeholder(name) => self.0.named(name).and_then(items),
                    _ => None,
                },
                _ => None,
            };
            let Some(values) = given else {
                all.push(item);
                continue;
            };
            for row in 0..values.len() {
                match ScalarValue::try_from_array(&values, row) {
                    Ok(value) => {
                        let name = Value::Placeholder(self.0.push(value));
                        all.push(Expr::Value(name.into()));
                    }
                    Err(error) => {
                        return ControlFlow::Break(crate::error::from_datafusion(error));
                    }
                }
            }
        }
        if all.is_empty() {
            // In no list at all, null as little as any other value.
            *expr = Expr::Value(Value::Boolean(*negated).into());
        } else {
            *list = all;
        }
        ControlFlow::Continue(())
    }
}
