//! `Database.executemany`: one statement for many rows of parameters.
//!
//! Invariant: an INSERT whose VALUES is one row stores all rows in one commit. It becomes an INSERT from a table that holds
//! the parameters as columns, so that values are converted by the same rules; or an INSERT with the VALUES of all rows, where
//! a column would have values of several types.

use crate::error::{OrRaise, raise};
use crate::finalize::Callback;
use crate::input::{self, Input};
use crate::once::name;
use crate::options::shown;
use crate::signals;
use crate::value::params;
use arrow_schema::Schema;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use thalweg::{Database, ErrorKind, Params, QueryResult};

/// The table of the parameters, in the rewritten statement.
const PARAMETERS: &str = "thalweg executemany";

/// Runs `text` for each of `rows`. The result is the count of all together.
pub(crate) fn run(
    py: Python<'_>,
    db: &Database,
    text: &str,
    rows: &Bound<'_, PyAny>,
) -> PyResult<QueryResult> {
    let rows = rows_of(rows)?;
    if let Some((text, given)) = as_one(py, text, &rows)? {
        let (params, extra) = match given {
            Given::Table(input) => {
                let extra = (PARAMETERS.to_owned(), input.into_extra(false)?);
                (Params::None, vec![extra])
            }
            Given::Params(params) => (params, Vec::new()),
        };
        let run = |go_on: &dyn Fn() -> bool| db.sql_while(&text, &params, &extra, go_on);
        return signals::run(py, run)?.or_raise();
    }
    one_by_one(py, db, text, &rows)
}

fn one_by_one(
    py: Python<'_>,
    db: &Database,
    text: &str,
    rows: &[Bound<'_, PyAny>],
) -> PyResult<QueryResult> {
    let prepared = py.detach(|| db.prepare(text)).or_raise()?;
    let mut count = 0_u64;
    for row in rows {
        let params = params(Some(row))?;
        let mut result =
            signals::run(py, |go_on| prepared.execute_while(&params, go_on))?.or_raise()?;
        if !result.is_count() {
            let message =
                "executemany is for statements that change something; run a query by sql()";
            return Err(raise(ErrorKind::Query, message));
        }
        count += py.detach(|| changed(&mut result)).or_raise()?;
    }
    py.detach(|| db.sql(&format!("SELECT arrow_cast({count}, 'UInt64') AS count")))
        .or_raise()
}

fn changed(result: &mut QueryResult) -> thalweg::Result<u64> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    let mut count = 0;
    while let Some(batch) = result.next_batch()? {
        let counts = batch.column(0).as_primitive_opt::<UInt64Type>();
        count += counts.map_or(0, |counts| counts.values().iter().sum());
    }
    Ok(count)
}

/// The rows as they are given, from any iterable but a text or a dict.
fn rows_of<'py>(given: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let is_one = given.is_instance_of::<PyString>() || given.is_instance_of::<PyDict>();
    let _running = Callback::begin()?;
    match given.try_iter() {
        Ok(rows) if !is_one => rows.collect(),
        _ => {
            let message = format!(
                "rows is {}; it must be a list of lists for ? and $1, or of dicts for $name",
                shown(given)
            );
            Err(raise(ErrorKind::Query, message))
        }
    }
}

/// The source of the values for an INSERT of all rows.
enum Given {
    /// A table that holds the parameters as columns.
    Table(Input),
    /// A parameter for each value, where those of a column are of several types.
    Params(Params),
}

/// An INSERT of all rows, if the statement is one of one row.
fn as_one(
    py: Python<'_>,
    text: &str,
    rows: &[Bound<'_, PyAny>],
) -> PyResult<Option<(String, Given)>> {
    let _running = Callback::begin()?;
    let made = py
        .import(name!(py, "thalweg._statements"))?
        .call_method1(name!(py, "insert_of_all"), (text, rows, PARAMETERS))?;
    if made.is_none() {
        return Ok(None);
    }
    type Made<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>);
    let (text, table, values): Made<'_> = made.extract()?;
    if !values.is_none() {
        return Ok(Some((text, Given::Params(params(Some(&values))?))));
    }
    let input = input::read(&table, &Schema::empty(), None)?;
    Ok(input.map(|input| (text, Given::Table(input))))
}
