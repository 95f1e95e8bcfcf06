//! Rows of keys, `GROUP BY (a, b)`, positions of results inside ROLLUP, CUBE and GROUPING SETS, `GROUP BY ROLLUP (1, 2)`, and keys that
//! stand there twice or are named constants.
//!
//! Invariants: a row of keys stands for these keys, as in PostgreSQL and DuckDB; a position stands for the expression of that result, as
//! it does in a plain GROUP BY, which DataFusion knows; each set has
//! a key once, and `ROLLUP (k, k)` the groups by `k` twice, as in PostgreSQL. DataFusion takes such a key for two columns of one name.

use super::output_names::without_brackets;
use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Expr, GroupByExpr, Ident, Select, SelectItem, UnaryOperator, Value,
};
use thalweg_table::schema::fold_name;

/// Replaces positions by the expressions of these results.
pub(super) fn written_out(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return;
    };
    if keys.iter().any(|key| matches!(key, Expr::Tuple(_))) {
        let all = std::mem::take(keys).into_iter();
        *keys = all.flat_map(keys_of).collect();
    }
    name_constants(&mut select.projection, keys);
    let sets = keys.iter_mut().filter_map(|key| match key {
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => Some(sets),
        _ => None,
    });
    for key in sets.flatten().flatten() {
        let Expr::Value(constant) = key else { continue };
        let Value::Number(digits, _) = &constant.value else {
            continue;
        };
        let place = digits.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let item = place.and_then(|place| select.projection.get(place));
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item {
            // A key in brackets is a set of one key there, and stands without them.
            *key = without_brackets(expr).clone();
        }
    }
    keys.iter_mut().for_each(with_keys_once);
}

/// Constants whose name is a key, `SELECT 2 AS k ... GROUP BY k`, as casts: DataFusion takes the value for a position.
fn name_constants(items: &mut [SelectItem], keys: &[Expr]) {
    let is_key = |alias: &Ident| {
        let is_it =
            |key: &Expr| matches!(key, Expr::Identifier(name) if folded(name) == folded(alias));
        keys.iter().any(is_it)
    };
    for item in items {
        if let SelectItem::ExprWithAlias { expr, alias } = item
            && is_whole_number(expr)
            && is_key(alias)
        {
            let constant = std::mem::replace(expr, Expr::value(Value::Null));
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(constant),
                data_type: DataType::BigInt(None),
                array: false,
                format: None,
            };
        }
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => fold_name(&name.value),
    }
}

fn is_whole_number(expr: &Expr) -> bool {
    match without_brackets(expr) {
        Expr::Value(constant) => {
            matches!(&constant.value, Value::Number(digits, _) if digits.parse::<i64>().is_ok())
        }
        Expr::UnaryOp {
            op: UnaryOperator::Plus | UnaryOperator::Minus,
            expr,
        } => is_whole_number(expr),
        _ => false,
    }
}

/// The keys of a row of them.
fn keys_of(key: Expr) -> Vec<Expr> {
    match key {
        Expr::Tuple(keys) => keys.into_iter().flat_map(keys_of).collect(),
        key => vec![key],
    }
}

/// Keys of CUBE whose sets are written out: there are as many sets as subsets.
const MAX_KEYS: usize = 10;

fn with_keys_once(key: &mut Expr) {
    let (keys, is_cube) = match key {
        Expr::Rollup(keys) => (&*keys, false),
        Expr::Cube(keys) if keys.len() <= MAX_KEYS => (&*keys, true),
        _ => return,
    };
    let repeats = |(place, key): (usize, &Vec<Expr>)| keys[..place].contains(key);
    if !keys.iter().enumerate().any(repeats) {
        return;
    }
    let chosen: Vec<Vec<&Vec<Expr>>> = match is_cube {
        false => (0..=keys.len())
            .rev()
            .map(|count| keys[..count].iter().collect())
            .collect(),
        true => (0..1_usize << keys.len())
            .rev()
            .map(|bits| {
                let places = keys.iter().enumerate();
                let chosen = places.filter(|(place, _)| bits >> place & 1 == 1);
                chosen.map(|(_, key)| key).collect()
            })
            .collect(),
    };
    let sets = chosen.into_iter().map(|chosen| {
        let mut set: Vec<Expr> = Vec::new();
        for key in chosen.into_iter().flatten() {
            if !set.contains(key) {
                set.push(key.clone());
            }
        }
        set
    });
    *key = Expr::GroupingSets(sets.collect());
}
