//! Texts that differ in a number only: one plan for all of them.
//!
//! Invariants: what is lifted out of a text are whole numbers on the right of a comparison, or of BETWEEN, in the WHERE of
//! a single SELECT, DELETE or UPDATE; the text with `?` in their place and these values mean the same. Whatever is not certain stays in the
//! text: a number that stays costs a plan, one that should have stayed could change an answer. [`is_plain`] looks once
//! more, at the plan: a number may only be compared with a column of its own type, where nothing depends on its value.
//!
//! Programs write the times of a range into their statement, so that its text is new each time and a plan that is kept by
//! text is never found again; planning is two thirds of reading a thousand rows. Rejected: taking the tokens of the parser
//! apart, which costs as much as what is saved on the shortest statements.

use crate::pushdown::aggregate::AggregateNode;
use crate::rules::{Shape, shape_of};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Placeholder};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

/// Longer texts have other things to do than to be short.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// Numbers of one text.
const MAX_NUMBERS: usize = 16;

/// A text without its numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lifted {
    pub(crate) text: String,
    pub(crate) values: Vec<ScalarValue>,
}

/// The kind of the word before a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// `<`, `<=`, `>`, `>=`, `=`, BETWEEN, or the AND of a BETWEEN.
    Comparison,
    Other,
}

/// Words after which no condition goes on.
const ENDS: [&str; 12] = [
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "WINDOW",
    "QUALIFY",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "FOR",
];

/// The text without the numbers that its conditions compare with; `None` if there are none.
pub(crate) fn lift(text: &str) -> Option<Lifted> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let mut words = Words { text, at: 0 };
    let first = words.next()?;
    if !["SELECT", "DELETE", "UPDATE"]
        .iter()
        .any(|word| first.is(word))
    {
        return None;
    }
    let mut lifted = Lifted {
        text: String::with_capacity(text.len()),
        values: Vec::new(),
    };
    let mut copied = 0;
    let (mut in_where, mut in_between, mut is_open) = (false, false, false);
    let mut before = Before::Other;
    let mut word = words.next()?;
    loop {
        let next = words.next()?;
        let mut now = Before::Other;
        match word {
            Word::End => break,
            Word::Name(name) => {
                let is = |other: &str| name.eq_ignore_ascii_case(other);
                // A FILTER has a WHERE of its own, which names the column; so has `EXISTS (FROM t WHERE`.
                if is("SELECT") || is("FILTER") || is("FROM") && is_open {
                    return None;
                } else if is("WHERE") {
                    in_where = true;
                } else if ENDS.iter().any(|end| is(end)) {
                    in_where = false;
                } else if is("BETWEEN") {
                    (in_between, now) = (true, Before::Comparison);
                } else if is("AND") && in_between {
                    (in_between, now) = (false, Before::Comparison);
                }
            }
            Word::Compare => now = Before::Comparison,
            Word::Number { start, end } => {
                let stands_alone = match next {
                    Word::End | Word::Close => true,
                    Word::Name(_) => {
                        next.is("AND") || next.is("OR") || ENDS.iter().any(|end| next.is(end))
                    }
                    _ => false,
                };
                if in_where
                    && before == Before::Comparison
                    && stands_alone
                    && let Ok(value) = text[start..end].parse::<i64>()
                {
                    lifted.text.push_str(&text[copied..start]);
                    lifted.text.push('?');
                    copied = end;
                    lifted.values.push(ScalarValue::Int64(Some(value)));
                }
            }
            Word::Open | Word::Close | Word::Other => {}
        }
        is_open = word == Word::Open;
        before = now;
        word = next;
    }
    if lifted.values.is_empty() || lifted.values.len() > MAX_NUMBERS {
        return None;
    }
    lifted.text.push_str(&text[copied..]);
    Some(lifted)
}

/// The words of SQL that [`lift`] distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word<'a> {
    Name(&'a str),
    /// Digits alone.
    Number {
        start: usize,
        end: usize,
    },
    Compare,
    Open,
    Close,
    Other,
    End,
}

impl Word<'_> {
    fn is(self, name: &str) -> bool {
        matches!(self, Self::Name(found) if found.eq_ignore_ascii_case(name))
    }
}

struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next word; `None` for what this module does not read: placeholders, comments, escapes, dialects.
    fn next(&mut self) -> Option<Word<'a>> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&first) = bytes.get(start) else {
            return Some(Word::End);
        };
        let rest = &bytes[start..];
        self.at += 1;
        match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                self.at += run(&rest[1..], is_name);
                // E'...', X'...' and their like have rules of their own.
                (bytes.get(self.at) != Some(&b'\'')).then(|| Word::Name(&self.text[start..self.at]))
            }
            b'0'..=b'9' => {
                let digits = 1 + run(&rest[1..], |byte| byte.is_ascii_digit());
                let all = 1 + run(&rest[1..], |byte| is_name(byte) || byte == b'.');
                self.at = start + all;
                Some(if digits == all {
                    Word::Number {
                        start,
                        end: self.at,
                    }
                } else {
                    Word::Other
                })
            }
            b'<' | b'>' | b'=' => {
                let operator = 1 + run(&rest[1..], |byte| b"<>=!~|&@-".contains(&byte));
                self.at = start + operator;
                let compares = matches!(&rest[..operator], b"<" | b">" | b"=" | b"<=" | b">=");
                Some(if compares { Word::Compare } else { Word::Other })
            }
            b'\'' | b'"' => {
                // Doubled, it is part of the text, which then begins again at once.
                self.at += 1 + run(&rest[1..], |byte| byte != first);
                (self.at <= bytes.len()).then_some(Word::Other)
            }
            b'(' => Some(Word::Open),
            b')' => Some(Word::Close),
            b'-' if rest.get(1) == Some(&b'-') => None,
            b'/' if rest.get(1) == Some(&b'*') => None,
            b',' | b'*' | b'+' | b'-' | b'/' | b'%' | b'.' => Some(Word::Other),
            _ => None,
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn run(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|byte| !is_part(*byte))
        .unwrap_or(bytes.len())
}

/// Whether every placeholder of an optimised plan stands in a condition where it is compared with a column and has its type: types
/// were made equal by casts, so where there is none they were equal from the start.
pub(crate) fn is_plain(plan: &LogicalPlan) -> bool {
    let (mut all, mut plain) = (0, 0);
    // The closures cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let Some(aggregate) = pushed_down(node) {
            // Its comparisons are not among its expressions.
            plain += aggregate
                .plain_constants()
                .filter(|it| is_placeholder(it))
                .count();
        }
        let has_conditions = has_conditions(node);
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                all += usize::from(is_placeholder(expr));
                if has_conditions {
                    plain += plain_placeholders(expr);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    all > 0 && all == plain
}

/// A plan for which [`is_plain`] holds, with its values. Neither types nor names of columns hang on them, so that no node gets a new
/// schema: DataFusion's `replace_params_with_values` takes longer for that than a short range takes to be read.
pub(crate) fn filled(plan: LogicalPlan, values: &ParamValues) -> Result<LogicalPlan> {
    let fill = |node: LogicalPlan| {
        if !has_placeholders(&node) {
            return Ok(Transformed::no(node));
        }
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::Placeholder(Placeholder { id, .. }) => {
                    let (value, metadata) = values.get_placeholders_with_values(&id)?.into_inner();
                    Ok(Transformed::yes(Expr::Literal(value, metadata)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    };
    let filled = match shape_of(&plan) {
        Shape::Plain | Shape::Chain => plan.transform_up(fill)?,
        Shape::Any => plan.transform_up_with_subqueries(fill)?,
    };
    Ok(filled.data)
}

fn pushed_down(node: &LogicalPlan) -> Option<&AggregateNode> {
    match node {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// Whether the comparisons among the expressions of a node are all conditions, which give no column a name.
fn has_conditions(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) | LogicalPlan::Join(_)
    )
}

fn has_placeholders(node: &LogicalPlan) -> bool {
    let mut found = false;
    // The closures cannot fail.
    let _ = node.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(is_placeholder(expr)))?;
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

fn is_placeholder(expr: &Expr) -> bool {
    matches!(expr, Expr::Placeholder(_))
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    matches!(op, Eq | Lt | LtEq | Gt | GtEq)
}

fn plain_placeholders(expr: &Expr) -> usize {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => usize::from(
            is_column(left) && is_placeholder(right) || is_placeholder(left) && is_column(right),
        ),
        Expr::Between(Between {
            expr, low, high, ..
        }) if is_column(expr) => {
            usize::from(is_placeholder(low)) + usize::from(is_placeholder(high))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(text: &str) -> Option<(String, Vec<i64>)> {
        lift(text).map(|lifted| {
            let value = |value: &ScalarValue| match value {
                ScalarValue::Int64(Some(value)) => *value,
                other => panic!("{other} is no whole number"),
            };
            (lifted.text, lifted.values.iter().map(value).collect())
        })
    }

    #[test]
    fn numbers_of_comparisons_are_lifted() {
        for (text, generic, values) in [
            (
                "SELECT * FROM t WHERE ts >= 10 AND ts<20",
                "SELECT * FROM t WHERE ts >= ? AND ts<?",
                vec![10, 20],
            ),
            (
                "select a, 7 from t where (ts between 1 and 2 or b = 3) limit 9",
                "select a, 7 from t where (ts between ? and ? or b = ?) limit 9",
                vec![1, 2, 3],
            ),
            (
                "SELECT 'WHERE x = 1', \"a\"\"1\" FROM t WHERE s = 'it''s 5' AND n <= 007 ORDER BY 1",
                "SELECT 'WHERE x = 1', \"a\"\"1\" FROM t WHERE s = 'it''s 5' AND n <= ? ORDER BY 1",
                vec![7],
            ),
            (
                "SELECT max(v) FROM t WHERE ts > 5 GROUP BY k HAVING count(*) > 6",
                "SELECT max(v) FROM t WHERE ts > ? GROUP BY k HAVING count(*) > 6",
                vec![5],
            ),
        ] {
            assert_eq!(lifted(text), Some((generic.to_owned(), values)), "{text}");
        }
    }

    #[test]
    fn what_is_not_certain_stays() {
        for text in [
            "SELECT 1",
            "SELECT a > 5 FROM t",
            "SELECT * FROM t LIMIT 5",
            "SELECT * FROM t WHERE a > 5 + 1",
            "SELECT * FROM t WHERE a > -5",
            "SELECT * FROM t WHERE a > 5.5 OR a > 5e1 OR a > 5_000 OR a > 1.",
            "SELECT * FROM t WHERE a > 5::int",
            "SELECT * FROM t WHERE a <> 5",
            "SELECT * FROM t WHERE a => 5",
            "SELECT * FROM t WHERE a IN (1, 2)",
            "SELECT * FROM t WHERE 5 < a",
            "SELECT * FROM t WHERE a > 99999999999999999999",
            "SELECT * FROM t WHERE a > ? AND b > 5",
            "SELECT * FROM t WHERE a > $1 AND b > 5",
            "SELECT * FROM t WHERE a > 5 -- AND b > 6",
            "SELECT * FROM t WHERE a > 5 /* */",
            "SELECT * FROM t WHERE s = E'\\'' AND a > 5",
            "SELECT * FROM t WHERE s = 'open AND a > 5",
            "SELECT * FROM t WHERE a = (SELECT max(a) FROM t WHERE b > 5)",
            "SELECT EXISTS (FROM t WHERE a > 5)",
            "SELECT a FROM t WHERE a > 5 UNION SELECT 1",
            "SELECT count(*) FILTER (WHERE a > 5) FROM t WHERE b < 6",
            "INSERT INTO t SELECT * FROM t WHERE a > 5",
            "EXPLAIN SELECT * FROM t WHERE a > 5",
            "WITH x AS (SELECT 1) SELECT * FROM x WHERE a > 5",
            "SELECT * FROM t WHERE a > 5 [1]",
            "SELECT * FROM t WHERE a AT TIME ZONE 5",
            "",
        ] {
            assert_eq!(lifted(text), None, "{text}");
        }
    }
}
