//! SUMMARIZE: what is in each column of a query, as DuckDB tells it.
//!
//! Invariants: the rows are read once, for all columns together; the result has a row for each column, in their order.

use crate::dialect::output_names::visible;
use crate::error::{from_arrow, from_datafusion, query, unsupported};
use crate::result::QueryResult;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, Schema, UInt64Type};
use datafusion::sql::parser::{DFParser, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{SetExpr, Statement as SqlStatement, TableFactor};
use std::fmt::Write as _;
use std::sync::Arc;
use thalweg_table::Result;
use thalweg_table::schema::sql_type_name;

/// Aggregates of each column, behind the number of all rows.
const OF_EACH: usize = 9;

/// The query for the aggregates of all columns of `source`, whose columns are `schema`.
pub(crate) fn aggregates(source: &DfStatement, schema: &Schema) -> Result<DfStatement> {
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
    let mut statements = DFParser::parse_sql(&text).map_err(from_datafusion)?;
    let Some(mut statement) = statements.pop_front() else {
        return Err(query("SUMMARIZE needs a table or a query"));
    };
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
        // Not counted as they are.
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            format!("approx_distinct(CAST({name} AS VARCHAR))")
        }
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

/// The result, from the one row of the aggregates.
pub(crate) fn rows(schema: &Schema, aggregates: &RecordBatch) -> Result<QueryResult> {
    let names = schema.fields().iter().map(|field| visible(field.name()));
    let types = schema
        .fields()
        .iter()
        .map(|field| sql_type_name(field.data_type()));
    let columns = schema.fields().len();
    let aggregate = |place: usize, which: usize| aggregates.column(1 + place * OF_EACH + which);
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
    let all = aggregates.column(0).as_primitive::<Int64Type>().value(0);
    let distinct = |place| {
        let array = aggregate(place, 2).as_primitive_opt::<UInt64Type>()?;
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
            Arc::new((0..columns).map(distinct).collect::<UInt64Array>()),
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
