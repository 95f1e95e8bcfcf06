//! The meanings of a name where it stands.

use crate::dialect::output_names::visible;
use crate::dialect::outside_queries;
use crate::error::query;
use datafusion_sql::sqlparser::ast::{Expr, Ident};
use thalweg_table::Result;
use thalweg_table::schema::fold_name;

/// Something that a FROM reads.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    /// The name that qualifies its columns, folded.
    pub(super) name: Option<String>,
    /// As they are spelled; `None` where only planning finds out, as of functions.
    pub(super) columns: Option<Vec<String>>,
    /// Columns that a NATURAL JOIN made one with those of what stands before.
    pub(super) shared: Vec<String>,
}

impl Factor {
    pub(super) fn new(name: Option<String>, columns: Option<Vec<String>>) -> Self {
        Self {
            name,
            columns,
            shared: Vec::new(),
        }
    }
}

/// Qualifies the columns of NATURAL JOINs in a condition of WHERE, where DataFusion takes each for two: they are those of the first
/// table that has them, as such joins are INNER or LEFT.
pub(super) fn qualify_shared(factors: &[Factor], condition: &mut Option<Expr>) {
    if factors.iter().all(|factor| factor.shared.is_empty()) {
        return;
    }
    let _ = outside_queries(condition, &mut |expr| {
        if let Expr::Identifier(ident) = expr
            && let Some(table) = table_of_shared(factors, ident)
        {
            *expr = Expr::CompoundIdentifier(vec![Ident::with_quote('"', table), ident.clone()]);
        }
        Ok(())
    });
}

/// The first table that has a column, if NATURAL JOINs made one of all those that have it.
fn table_of_shared<'a>(factors: &'a [Factor], ident: &Ident) -> Option<&'a String> {
    let written = normalized(ident);
    let has = |factor: &&Factor| {
        factor
            .columns
            .as_ref()
            .is_some_and(|all| all.contains(&written))
    };
    let mut found = factors.iter().filter(has);
    let first = found.next()?;
    let mut others = found.peekable();
    others.peek()?;
    { others.all(|factor| factor.shared.contains(&written)) }
        .then_some(first.name.as_ref())
        .flatten()
}

/// The columns that expressions of a SELECT can name, and those of the queries around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) factors: &'a [Factor],
    pub(super) outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// Spells a name as the column that it means; one that means none is left alone.
    ///
    /// # Errors
    /// `Query` where tables have columns of this name that differ in their letters: none of them is meant more than the others.
    pub(super) fn correct(&self, ident: &mut Ident) -> Result<bool> {
        let mut next = Some(self);
        while let Some(scope) = next {
            if let Some(spelled) = scope.spelled(ident)? {
                spell(ident, &spelled);
                return Ok(true);
            }
            next = scope.outer;
        }
        Ok(false)
    }

    fn spelled(&self, ident: &Ident) -> Result<Option<String>> {
        let mut found: Vec<(&Factor, &String)> = Vec::new();
        for factor in self.factors {
            if let Some(column) = column_of(factor, ident)
                && found.iter().all(|(_, other)| *other != column)
            {
                found.push((factor, column));
            }
        }
        match &found[..] {
            [] => Ok(None),
            [(_, column)] => Ok(Some((*column).clone())),
            // In double quotes a name is of the column that is spelled so.
            several if ident.quote_style.is_some() => {
                let exact = several.iter().find(|(_, column)| **column == ident.value);
                Ok(exact.map(|(_, column)| (*column).clone()))
            }
            several => {
                let qualified = |(factor, column): &(&Factor, &String)| match &factor.name {
                    Some(table) => format!("{table}.{column}"),
                    None => (*column).clone(),
                };
                let qualified: Vec<String> = several.iter().map(qualified).collect();
                Err(query(format!(
                    "the column \"{}\" is in several tables of the query: write {}",
                    ident.value,
                    qualified.join(" or ")
                )))
            }
        }
    }

    /// The factor that a name qualifies.
    pub(super) fn factor(&self, qualifier: &Ident) -> Option<&'a Factor> {
        let wanted = fold_name(&qualifier.value);
        let own = self
            .factors
            .iter()
            .find(|factor| factor.name.as_deref() == Some(&wanted));
        own.or_else(|| self.outer?.factor(qualifier))
    }
}

/// Spells the name of a column of one table.
pub(super) fn correct_of(factor: &Factor, ident: &mut Ident) {
    if let Some(column) = column_of(factor, ident) {
        let column = column.clone();
        spell(ident, &column);
    }
}

/// The column of a factor that a name means: one that is spelled so, or the only one in other letters.
pub(super) fn column_of<'a>(factor: &'a Factor, ident: &Ident) -> Option<&'a String> {
    let columns = factor.columns.as_ref()?;
    let written = normalized(ident);
    if let Some(exact) = columns.iter().find(|column| visible(column) == written) {
        return Some(exact);
    }
    let folded = fold_name(&written);
    let is_same = |column: &&String| fold_name(visible(column)) == folded;
    let mut same = columns.iter().filter(is_same);
    let first = same.next()?;
    same.all(|other| other == first).then_some(first)
}

fn spell(ident: &mut Ident, column: &str) {
    if normalized(ident) != column {
        *ident = Ident::with_quote('"', column);
    }
}

/// The name that SQL takes an identifier for.
pub(super) fn normalized(ident: &Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        fold_name(&ident.value)
    }
}
