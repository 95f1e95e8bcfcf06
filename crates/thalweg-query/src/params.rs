//! Values for the placeholders of a statement.
//!
//! Invariants: a statement's placeholders have one order, that of their first appearance in the text; `?` counts
//! through, `$1` names its place, `$name` takes the place of its first appearance. Values are checked against
//! that order before anything is planned, so that planning only knows places.

use crate::error::query;
use crate::pushdown::time::steps_of;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::{ParamValues, metadata::ScalarAndMetadata};
use std::sync::Arc;
use thalweg_table::Result;
use thalweg_table::time_units::DAY_NS;

/// Values for the placeholders of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Params {
    /// There are no placeholders.
    #[default]
    None,
    /// For `?` in their order, and `$1`, `$2`.
    Positional(Vec<ScalarValue>),
    /// For `$name`.
    Named(Vec<(String, ScalarValue)>),
}

/// The names of the placeholders of one statement, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placeholders {
    /// Names without `$`; for places that are only known by number, the number.
    pub(crate) names: Vec<String>,
    pub(crate) named: bool,
}

/// The values of one execution, by place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BoundParams {
    pub(crate) values: Vec<ScalarValue>,
    names: Vec<String>,
}

/// The items of a list; `None` for what is no list.
pub(crate) fn items(value: &ScalarValue) -> Option<ArrayRef> {
    match value {
        ScalarValue::List(list) => (!list.is_null(0)).then(|| list.value(0)),
        ScalarValue::LargeList(list) => (!list.is_null(0)).then(|| list.value(0)),
        ScalarValue::FixedSizeList(list) => (!list.is_null(0)).then(|| list.value(0)),
        _ => None,
    }
}

/// The value with one NaN: DataFusion compares floats by their bits.
fn with_one_nan(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(x)) if x.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        ScalarValue::Float32(Some(x)) if x.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        other => other,
    }
}

fn is_beyond_nanoseconds(value: &ScalarValue) -> bool {
    let steps = match value {
        ScalarValue::Date32(days) => Some((days.map(i64::from), DAY_NS)),
        time => steps_of(time),
    };
    steps.is_some_and(|(steps, step_ns)| {
        steps.is_some_and(|steps| steps.checked_mul(step_ns).is_none())
    })
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

impl Placeholders {
    /// Puts values in their places.
    pub(crate) fn bind(&self, params: &Params) -> Result<BoundParams> {
        let values = match params {
            Params::None if self.names.is_empty() => Vec::new(),
            Params::None => {
                return Err(query(format!(
                    "the statement has parameters without values: {}",
                    self.list()
                )));
            }
            Params::Positional(values) => self.bind_positional(values)?,
            Params::Named(values) => self.bind_named(values)?,
        };
        Ok(BoundParams {
            values: values.into_iter().map(with_one_nan).collect(),
            names: self.names.clone(),
        })
    }

    fn bind_positional(&self, values: &[ScalarValue]) -> Result<Vec<ScalarValue>> {
        if self.named {
            return Err(query(format!(
                "the statement names its parameters ({}): give them by name",
                self.list()
            )));
        }
        if values.len() != self.names.len() {
            let (has, given) = (self.names.len(), values.len());
            return Err(query(format!(
                "the statement has {} and is given {}",
                counted(has, "parameter"),
                counted(given, "value")
            )));
        }
        Ok(values.to_vec())
    }

    fn bind_named(&self, values: &[(String, ScalarValue)]) -> Result<Vec<ScalarValue>> {
        if !self.named && !self.names.is_empty() {
            return Err(query(
                "the statement counts its parameters: give them as a list",
            ));
        }
        let strip = |name: &str| name.strip_prefix('$').unwrap_or(name).to_owned();
        if let Some((unknown, _)) = values
            .iter()
            .find(|(name, _)| !self.names.contains(&strip(name)))
        {
            return Err(query(format!(
                "the statement has no parameter \"{unknown}\"; it has: {}",
                self.list()
            )));
        }
        let value = |name: &String| {
            let found = values.iter().find(|(given, _)| strip(given) == *name);
            let missing = || query(format!("the parameter ${name} has no value"));
            found.map(|(_, value)| value.clone()).ok_or_else(missing)
        };
        self.names.iter().map(value).collect()
    }

    fn list(&self) -> String {
        if self.names.is_empty() {
            return "none".to_owned();
        }
        self.names
            .iter()
            .map(|name| format!("${name}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl BoundParams {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The types of the values. That of a list has its number of items: a plan has a place for each of them.
    pub(crate) fn types(&self) -> Vec<DataType> {
        let of = |value: &ScalarValue| {
            let data_type = value.data_type();
            let items = items(value).and_then(|items| i32::try_from(items.len()).ok());
            match (data_type, items) {
                (DataType::List(item) | DataType::LargeList(item), Some(items)) => {
                    DataType::FixedSizeList(item, items)
                }
                (data_type, _) => data_type,
            }
        };
        self.values.iter().map(of).collect()
    }

    /// The value of a placeholder as it stands in the statement: `$1` or `$name`.
    pub(crate) fn named(&self, placeholder: &str) -> Option<&ScalarValue> {
        let name = placeholder.strip_prefix('$')?;
        let place = self.names.iter().position(|known| known == name)?;
        self.values.get(place)
    }

    /// Whether some value is a time or a date that nanoseconds do not hold, so that comparisons of times hang on it.
    pub(crate) fn are_beyond_nanoseconds(&self) -> bool {
        self.values.iter().any(is_beyond_nanoseconds)
    }

    /// Adds a value after all others and returns its placeholder.
    pub(crate) fn push(&mut self, value: ScalarValue) -> String {
        self.values.push(with_one_nan(value));
        let name = self.values.len().to_string();
        let placeholder = format!("${name}");
        self.names.push(name);
        placeholder
    }

    /// The types of the values, as the planner of SQL takes them.
    pub(crate) fn fields(&self) -> Vec<Option<FieldRef>> {
        let field = |(name, value): (&String, &ScalarValue)| {
            Some(Arc::new(Field::new(name, value.data_type(), true)))
        };
        self.names.iter().zip(&self.values).map(field).collect()
    }

    pub(crate) fn values(&self) -> ParamValues {
        ParamValues::List(
            self.values
                .iter()
                .cloned()
                .map(ScalarAndMetadata::from)
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholders(names: &[&str], named: bool) -> Placeholders {
        Placeholders {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            named,
        }
    }

    fn int(value: i64) -> ScalarValue {
        ScalarValue::Int64(Some(value))
    }

    #[test]
    fn places_are_filled_in_order() {
        let bound = placeholders(&["1", "2"], false)
            .bind(&Params::Positional(vec![int(7), int(8)]))
            .unwrap();
        assert_eq!(bound.values, [int(7), int(8)]);
        let named = placeholders(&["b", "a"], true);
        let bound = named
            .bind(&Params::Named(vec![
                ("a".into(), int(1)),
                ("$b".into(), int(2)),
            ]))
            .unwrap();
        assert_eq!(bound.values, [int(2), int(1)]);
    }

    #[test]
    fn times_beyond_nanoseconds_are_known() {
        let beyond = |value: ScalarValue| is_beyond_nanoseconds(&value);
        assert!(beyond(ScalarValue::TimestampMicrosecond(
            Some(253_402_214_400_000_000),
            None
        )));
        assert!(beyond(ScalarValue::Date32(Some(-200_000))));
        assert!(!beyond(ScalarValue::Date32(Some(20_000))));
        assert!(!beyond(ScalarValue::TimestampSecond(None, None)));
        assert!(!beyond(ScalarValue::TimestampNanosecond(
            Some(i64::MAX),
            None
        )));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let two = placeholders(&["1", "2"], false);
        assert!(two.bind(&Params::None).is_err());
        assert!(two.bind(&Params::Positional(vec![int(1)])).is_err());
        assert!(two.bind(&Params::Positional(vec![int(1); 3])).is_err());
        assert!(
            two.bind(&Params::Named(vec![("x".into(), int(1))]))
                .is_err()
        );
        let named = placeholders(&["x"], true);
        assert!(
            named
                .bind(&Params::Named(vec![("y".into(), int(1))]))
                .is_err()
        );
        assert!(named.bind(&Params::Named(vec![])).is_err());
        assert!(named.bind(&Params::Positional(vec![int(1)])).is_err());
        assert!(
            placeholders(&[], false)
                .bind(&Params::Positional(vec![int(1)]))
                .is_err()
        );
    }
}
