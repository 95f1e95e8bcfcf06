//! How deeply the parts of a statement lie inside one another.
//!
//! Invariant: plans are built and walked by recursion, so what a chain of operators or of queries makes is bounded before anything is
//! planned: in one text, and in a text with those of the views that it reads.

use crate::parse::MAX_NESTING;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_table::{Error, ErrorKind, Result};

/// Operators that may end up inside one another, as in `a OR b OR c`: what is built from a chain is as deep as the
/// chain is long, and is walked by recursion.
const MAX_CHAIN: usize = 3_000;
/// Operators of arithmetic among them. DataFusion derives the type of each from all those inside it: three times as many
/// take nine times as long, 1,000 about a second.
const MAX_ARITHMETIC: usize = 1_000;
/// Queries put together by UNION and its like, and tables by JOIN: each takes far more of the stack than an operator.
const MAX_COMBINED: usize = 1_000;

/// Depths of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depths {
    brackets: usize,
    chain: usize,
    arithmetic: usize,
    combined: usize,
}

impl Depths {
    pub(crate) fn of(tokens: &[TokenWithSpan]) -> Self {
        Self {
            brackets: depth_of_brackets(tokens),
            chain: chain_depth(tokens, role_in_chain),
            arithmetic: chain_depth(tokens, role_in_arithmetic),
            combined: chain_depth(tokens, role_in_combinations),
        }
    }

    /// Refuses what is too deep, but for brackets, which the parser counts in its own way.
    pub(crate) fn check(self) -> Result<()> {
        if self.chain > MAX_CHAIN {
            return limit(format!(
                "a statement chains at most {MAX_CHAIN} operators; write IN (...) for long lists, or join"
            ));
        }
        if self.arithmetic > MAX_ARITHMETIC {
            return limit(format!(
                "a statement chains at most {MAX_ARITHMETIC} operators of arithmetic; put parts of a long sum in brackets"
            ));
        }
        if self.combined > MAX_COMBINED {
            return limit(format!(
                "a statement combines at most {MAX_COMBINED} queries or tables by UNION, EXCEPT, INTERSECT and JOIN"
            ));
        }
        Ok(())
    }

    /// The depths of a query that reads views with such depths, each in the place of its name.
    pub(crate) fn around(self, views: Self) -> Result<Self> {
        let both = Self {
            brackets: self.brackets + views.brackets + 1,
            chain: self.chain + views.chain,
            arithmetic: self.arithmetic + views.arithmetic,
            combined: self.combined + views.combined,
        };
        both.check()?;
        if both.brackets > MAX_NESTING {
            return limit(format!(
                "queries and brackets are nested deeper than {MAX_NESTING} levels, with those of the views that are read"
            ));
        }
        Ok(both)
    }

    /// The larger ones of two queries side by side.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            brackets: self.brackets.max(other.brackets),
            chain: self.chain.max(other.chain),
            arithmetic: self.arithmetic.max(other.arithmetic),
            combined: self.combined.max(other.combined),
        }
    }
}

fn limit<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Limit, message))
}

fn depth_of_brackets(tokens: &[TokenWithSpan]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Operators of one level of brackets.
#[derive(Default)]
struct Level {
    /// Since the last end of a chain.
    operators: usize,
    /// The deepest pair of brackets since then.
    deepest_inside: usize,
    /// The deepest of what lies before it.
    deepest_before: usize,
}

impl Level {
    fn depth(&self) -> usize {
        self.deepest_before
            .max(self.operators + self.deepest_inside)
    }
}

/// The role of a token in chains of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// One more of them.
    Operator,
    /// The tokens before it and those after it do not end up inside one another.
    End,
    Other,
}

/// How deeply operators may lie inside one another, at most.
fn chain_depth(tokens: &[TokenWithSpan], role: impl Fn(&Token) -> Role) -> usize {
    let mut levels = vec![Level::default()];
    for token in tokens {
        let inside = levels.len() > 1;
        let Some(level) = levels.last_mut() else {
            return 0;
        };
        match &token.token {
            Token::LParen | Token::LBracket => levels.push(Level::default()),
            Token::RParen | Token::RBracket if inside => {
                let depth = level.depth();
                levels.pop();
                if let Some(outer) = levels.last_mut() {
                    outer.deepest_inside = outer.deepest_inside.max(depth);
                }
            }
            token => match role(token) {
                Role::Operator => level.operators += 1,
                Role::End => {
                    *level = Level {
                        deepest_before: level.depth(),
                        ..Level::default()
                    }
                }
                Role::Other => {}
            },
        }
    }
    // Brackets that never close are for the parser to find.
    levels.iter().map(Level::depth).sum()
}

fn role_in_chain(token: &Token) -> Role {
    match token {
        Token::Comma => Role::End,
        token if is_operator(token) => Role::Operator,
        _ => Role::Other,
    }
}

/// The role of a token in chains of arithmetic: conditions on both sides of AND and OR are chains of their own.
fn role_in_arithmetic(token: &Token) -> Role {
    match token {
        Token::Comma => Role::End,
        Token::Word(word) if matches!(word.keyword, Keyword::AND | Keyword::OR) => Role::End,
        Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::Mod => Role::Operator,
        _ => Role::Other,
    }
}

/// The role of a token in combinations of queries and tables. Commas separate columns here, not what is combined.
fn role_in_combinations(token: &Token) -> Role {
    match token {
        Token::Word(word) => match word.keyword {
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::JOIN => Role::Operator,
            _ => Role::Other,
        },
        _ => Role::Other,
    }
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::JOIN
                | Keyword::AT
                | Keyword::COLLATE
        ),
        Token::Whitespace(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::Period
        | Token::SemiColon
        | Token::EOF => false,
        _ => true,
    }
}
