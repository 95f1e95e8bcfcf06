//! SUMMARIZE: what is in each column of a query, as DuckDB shows it.
//!
//! Invariants: all columns are of one snapshot; the result has a row for each, in their order. A query is run once, for all columns
//! together. Planning takes four times as long for twice as many aggregates, so the columns of a table are read in groups.

use crate::dialect::output_names::visible;
use crate::error::{from_arrow, unsupported};
use crate::parse::written;
use crate::result::QueryResult;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type, Schema};
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{SetExpr, Statement as SqlStatement, TableFactor};
use std::fmt::Write as _;
use std::sync::Arc;
use thalweg_table::Result;
use thalweg_table::schema::sql_type_name;

/// Aggregates of each column, after the number of all rows.
const OF_EACH: usize = 9;

/// Columns of a table that are read together.
const GROUP_COLUMNS: usize = 64;

/// The queries for the aggregates of all columns of `source`, whose columns are `schema`: one, or one for each group of the columns
/// of a table. `reads_again`: whether all that it reads can be read more than once.
pub(crate) fn aggregates(
    source: &DfStatement,
    schema: &Schema,
    reads_again: bool,
) -> Result<Vec<DfStatement>> {
    let fields = schema.fields();
    let is_wide = reads_again && fields.len() > GROUP_COLUMNS;
    let Some(table) = is_wide.then(|| whole_table(source)).flatten() else {
        return Ok(vec![of_all(source, schema)?]);
    };
    let groups = fields.chunks(GROUP_COLUMNS).map(|group| {
        let quoted = |field: &FieldRef| format!("\"{}\"", field.name().replace('"', "\"\""));
        let names: Vec<String> = group.iter().map(quoted).collect();
        let text = format!("SELECT {} FROM {table}", names.join(", "));
        of_all(&written(&text)?, &Schema::new(group.to_vec()))
    });
    groups.collect()
}

/// The table, if `source` is all of its rows and columns.
fn whole_table(source: &DfStatement) -> Option<String> {
    if let DfStatement::Statement(inner) = source
        && let SqlStatement::Query(query) = &**inner
        && let SetExpr::Select(select) = &*query.body
        && let [from] = &*select.from
        && let TableFactor::Table { name, .. } = &from.relation
    {
        let table = name.to_string();
        let whole = written(&format!("SELECT * FROM {table}")).ok()?;
        return (whole == *source).then_some(table);
    }
    None
}

fn of_all(source: &DfStatement, schema: &Schema) -> Result<DfStatement> {
    let DfStatement::Statement(inner) = source else {
        return Err(unsupported("SUMMARIZE is offered for tables and queries"));
    };
    let SqlStatement::Query(source) = &**inner else {
        return Err(unsupported("SUMMARIZE is offered for tables and queries"));
    };
    let mut text = "SELECT count(*)".to_owned();
    let mut names = Vec::new();
    for (place, field) in schema.fields().iter().enumerate() {
        let name = format!("\"c{place}\"");
        let of_column = aggregates_of(&name, field.data_type());
        for (which, aggregate) in of_column.iter().enumerate() {
            // Equal names would be refused.
            let _ = write!(text, ", {aggregate} AS a{place}_{which}");
        }
        names.push(name);
    }
    let _ = write!(text, " FROM (SELECT 1) AS s ({})", names.join(", "));
    let mut statement = written(&text)?;
    if let DfStatement::Statement(inner) = &mut statement
        && let SqlStatement::Query(outer) = &mut **inner
        && let SetExpr::Select(select) = &mut *outer.body
        && let [from] = &mut *select.from
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        subquery.clone_from(source);
    }
    Ok(statement)
}

fn aggregates_of(name: &str, data_type: &DataType) -> [String; OF_EACH] {
    let null = |as_type: &str| format!("CAST(NULL AS {as_type})");
    let is_nested = data_type.is_nested();
    let has_text = !is_nested
        && !matches!(
            data_type,
            DataType::Null
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        );
    let extreme = |function: &str| {
        if has_text {
            format!("CAST({function}({name}) AS VARCHAR)")
        } else {
            null("VARCHAR")
        }
    };
    let of_numbers = |function: &str, and: &str| {
        if data_type.is_numeric() {
            format!("{function}(CAST({name} AS DOUBLE){and})")
        } else {
            null("DOUBLE")
        }
    };
    let distinct = match data_type {
        DataType::Null => null("BIGINT UNSIGNED"),
        _ => format!("approx_distinct({name})"),
    };
    let quantile = |share: &str| of_numbers("approx_percentile_cont", &format!(", {share}"));
    [
        extreme("min"),
        extreme("max"),
        distinct,
        of_numbers("avg", ""),
        of_numbers("stddev", ""),
        quantile("0.25"),
        quantile("0.5"),
        quantile("0.75"),
        format!("count({name})"),
    ]
}

/// The result, from the one row of the aggregates of each group.
pub(crate) fn rows(schema: &Schema, groups: &[RecordBatch]) -> Result<QueryResult> {
    let names = schema.fields().iter().map(|field| visible(field.name()));
    let types = schema
        .fields()
        .iter()
        .map(|field| sql_type_name(field.data_type()));
    let columns = schema.fields().len();
    let group_columns = match groups {
        [_] => columns.max(1),
        _ => GROUP_COLUMNS,
    };
    let aggregate = |place: usize, which: usize| {
        groups[place / group_columns].column(1 + place % group_columns * OF_EACH + which)
    };
    let texts = |which: usize| -> ArrayRef {
        let text = |place| -> Option<String> {
            let array = aggregate(place, which);
            let text = cast(array, &DataType::Utf8).ok()?;
            let text = text.as_string_opt::<i32>()?;
            text.is_valid(0).then(|| text.value(0).to_owned())
        };
        Arc::new((0..columns).map(text).collect::<StringArray>())
    };
    let doubles = |which: usize| -> ArrayRef {
        let double = |place| {
            let array = aggregate(place, which).as_primitive_opt::<Float64Type>()?;
            array.is_valid(0).then(|| array.value(0))
        };
        Arc::new((0..columns).map(double).collect::<Float64Array>())
    };
    let counted = |place, which| -> i64 {
        let array = aggregate(place, which).as_primitive_opt::<Int64Type>();
        array.map_or(0, |array| array.value(0))
    };
    let all = groups[0].column(0).as_primitive::<Int64Type>().value(0);
    let distinct = |place| {
        let array = aggregate(place, 2).as_primitive_opt::<Int64Type>()?;
        array.is_valid(0).then(|| array.value(0))
    };
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let nulls = |place| (all > 0).then(|| 100.0 * (all - counted(place, 8)) as f64 / all as f64);
    let result: [(&str, ArrayRef); 12] = [
        (
            "column_name",
            Arc::new(StringArray::from_iter_values(names)),
        ),
        (
            "column_type",
            Arc::new(StringArray::from_iter_values(types)),
        ),
        ("min", texts(0)),
        ("max", texts(1)),
        (
            "approx_unique",
            Arc::new((0..columns).map(distinct).collect::<Int64Array>()),
        ),
        ("avg", doubles(3)),
        ("std", doubles(4)),
        ("q25", doubles(5)),
        ("q50", doubles(6)),
        ("q75", doubles(7)),
        ("count", Arc::new(Int64Array::from(vec![all; columns]))),
        (
            "null_percentage",
            Arc::new((0..columns).map(nulls).collect::<Float64Array>()),
        ),
    ];
    let batch = RecordBatch::try_from_iter(result).map_err(from_arrow)?;
    Ok(QueryResult::ready(batch.schema(), vec![batch]))
}
