//! Statements about tables themselves: CREATE, DROP, SHOW, DESCRIBE.

use crate::dialect::output_names::visible;
use crate::dialect::type_of;
use crate::error::{from_arrow, query, unsupported};
use crate::parse::table_name;
use crate::result::QueryResult;
use crate::system;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, Expr, Ident, IndexColumn,
    NullsDistinctOption, SqlOption, TableConstraint, UnaryOperator, UniqueConstraint, Value,
};
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;
use thalweg_table::{
    Constant, CreateOptions, DatabaseView, Engine, Error, ErrorKind, NewTable, Result,
};

/// The types of columns by their names in statements.
const TYPES: &str = "types are BOOLEAN, TINYINT to BIGINT, UTINYINT to UBIGINT, REAL, DOUBLE, DECIMAL(18, 3), VARCHAR, BLOB, DATE, \
                     TIMESTAMP, TIMESTAMPTZ and DURATION";

const ONE_KEY: &str = "a table has one unique key: PRIMARY KEY, UNIQUE or the option unique, of one column or several, as UNIQUE (device, ts)";

/// CREATE TABLE, with the values that columns have in rows that are stored without them.
pub(crate) fn create_table(
    engine: &Engine,
    create: &CreateTable,
    defaults: Vec<(String, Constant)>,
) -> Result<QueryResult> {
    let fields = create.columns.iter().map(|column| Ok(field(column)?.0));
    // Without a handle: others may drop it at once.
    add_table(
        create,
        fields.collect::<Result<_>>()?,
        |name, schema, options| {
            engine.add_table(
                name,
                schema,
                &CreateOptions {
                    defaults,
                    ..options
                },
            )
        },
    )?;
    Ok(QueryResult::count(0))
}

/// The table of CREATE TABLE AS, to be filled, for rows of these columns; `None` where there is such a table and that is fine.
pub(crate) fn create_table_for(
    engine: &Engine,
    create: &CreateTable,
    rows: &Schema,
) -> Result<Option<NewTable>> {
    if !create.columns.is_empty() {
        return Err(unsupported(
            "CREATE TABLE with columns and AS SELECT is not offered: the columns are those of the query",
        ));
    }
    let fields = rows.fields().iter().map(|field| {
        let data_type = stored_type(field.data_type());
        Field::new(field.name(), data_type, true)
    });
    add_table(create, fields.collect(), |name, schema, options| {
        engine.begin_table(name, schema, &options)
    })
}

/// The type that values of a query's column are stored as.
fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Dictionary(_, values) => stored_type(values),
        other => other.clone(),
    }
}

/// Adds the table of a CREATE TABLE statement by `add` and returns its result; `None` for IF NOT EXISTS and a table that exists.
fn add_table<T>(
    create: &CreateTable,
    mut fields: Vec<Field>,
    add: impl FnOnce(&str, &Schema, CreateOptions) -> Result<T>,
) -> Result<Option<T>> {
    refuse_extras(create)?;
    let name = table_name(&create.name)?;
    let mut options = CreateOptions::from_pairs(options(&create.table_options)?)?;
    let unique = unique_key(create, &mut fields)?;
    if !(unique.is_empty() || options.unique.is_empty()) {
        return Err(unsupported(ONE_KEY));
    }
    if !unique.is_empty() {
        options.unique = unique;
    }
    match add(&name, &Schema::new(fields), options) {
        Err(error) if create.if_not_exists && error.kind() == ErrorKind::AlreadyExists => Ok(None),
        done => done.map(Some),
    }
}

/// Refuses clauses that the parser reads for other databases.
fn refuse_extras(create: &CreateTable) -> Result<()> {
    let refused = [
        (
            create.or_replace,
            "OR REPLACE (write DROP TABLE IF EXISTS first)",
        ),
        (create.temporary, "TEMPORARY"),
        (create.external, "EXTERNAL"),
        (create.on_commit.is_some(), "ON COMMIT"),
        (
            create.like.is_some() || create.clone.is_some(),
            "LIKE and CLONE",
        ),
        (create.inherits.is_some(), "INHERITS"),
        (
            create.primary_key.is_some(),
            "PRIMARY KEY after the columns",
        ),
        (
            create.partition_by.is_some()
                || create.cluster_by.is_some()
                || create.order_by.is_some(),
            "PARTITION BY, CLUSTER BY and ORDER BY (see WITH (time = ..., split = ...))",
        ),
        (
            create.location.is_some() || create.file_format.is_some(),
            "LOCATION and STORED AS",
        ),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(unsupported(format!(
            "CREATE TABLE with {what} is not offered by this version"
        ))),
        None => Ok(()),
    }
}

/// The columns of the unique key that a statement declares, with its columns or after them. Those of a primary key are never null.
fn unique_key(create: &CreateTable, fields: &mut [Field]) -> Result<Vec<String>> {
    let mut keys: Vec<(Vec<String>, bool)> = Vec::new();
    for column in &create.columns {
        for option in &column.options {
            match &option.option {
                ColumnOption::PrimaryKey(_) => keys.push((vec![column.name.value.clone()], true)),
                ColumnOption::Unique(unique) => {
                    check_nulls(unique)?;
                    keys.push((vec![column.name.value.clone()], false));
                }
                _ => {}
            }
        }
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(key) => keys.push((names_of(&key.columns)?, true)),
            TableConstraint::Unique(unique) => {
                check_nulls(unique)?;
                keys.push((names_of(&unique.columns)?, false));
            }
            other => {
                return Err(unsupported(format!(
                    "CREATE TABLE with {other} is not offered by this version: a table has a PRIMARY KEY or a UNIQUE key"
                )));
            }
        }
    }
    keys.dedup_by(|a, b| a.0 == b.0);
    if keys.len() > 1 {
        return Err(unsupported(ONE_KEY));
    }
    let Some((names, is_primary)) = keys.pop() else {
        return Ok(Vec::new());
    };
    for field in fields.iter_mut().filter(|_| is_primary) {
        if names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(field.name()))
        {
            field.set_nullable(false);
        }
    }
    Ok(names)
}

/// Refuses a column that is to be a unique key of a table that is there.
pub(crate) fn refuse_key(column: &ColumnDef) -> Result<()> {
    let is_key = |option: &ColumnOption| {
        matches!(
            option,
            ColumnOption::PrimaryKey(_) | ColumnOption::Unique(_)
        )
    };
    match column.options.iter().any(|of| is_key(&of.option)) {
        false => Ok(()),
        true => Err(unsupported(format!(
            "column \"{}\": a table gets its unique key by CREATE TABLE alone",
            column.name.value
        ))),
    }
}

fn check_nulls(unique: &UniqueConstraint) -> Result<()> {
    match unique.nulls_distinct {
        NullsDistinctOption::NotDistinct => Err(unsupported(
            "UNIQUE NULLS NOT DISTINCT is not offered: rows with a null in their key are like no other",
        )),
        NullsDistinctOption::Distinct | NullsDistinctOption::None => Ok(()),
    }
}

fn names_of(columns: &[IndexColumn]) -> Result<Vec<String>> {
    let name = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(name) => Ok(name.value.clone()),
        other => Err(unsupported(format!(
            "{other} is no column: a key has columns alone"
        ))),
    };
    columns.iter().map(name).collect()
}

/// A column, and the expression of its default.
pub(crate) fn field(column: &ColumnDef) -> Result<(Field, Option<&Expr>)> {
    let name = &column.name.value;
    let named = |error: Error| {
        Error::new(
            error.kind(),
            format!("column \"{name}\": {}", error.message()),
        )
    };
    let data_type = type_of(&column.data_type).map_err(|error| {
        let written = &column.data_type;
        let message = format!("\"{written}\" is not a type; {TYPES}");
        named(Error::new(error.kind(), message))
    })?;
    let (mut nullable, mut default) = (true, None);
    for option in &column.options {
        match &option.option {
            ColumnOption::Null => nullable = true,
            ColumnOption::NotNull => nullable = false,
            ColumnOption::Default(value) => default = Some(value),
            ColumnOption::PrimaryKey(_) | ColumnOption::Unique(_) => {}
            other => {
                return Err(unsupported(format!(
                    "column \"{name}\": {other} is not offered by this version"
                )));
            }
        }
    }
    Ok((Field::new(name, data_type, nullable), default))
}

fn options(options: &CreateTableOptions) -> Result<Vec<(String, String)>> {
    match options {
        CreateTableOptions::None => Ok(Vec::new()),
        CreateTableOptions::With(options) | CreateTableOptions::Options(options) => {
            options.iter().map(option).collect()
        }
        CreateTableOptions::Plain(_) | CreateTableOptions::TableProperties(_) => Err(query(
            "options of a table are written WITH (name = 'value', ...)",
        )),
    }
}

fn option(option: &SqlOption) -> Result<(String, String)> {
    match option {
        SqlOption::KeyValue { key, value } => Ok((key.value.clone(), option_value(key, value)?)),
        other => Err(query(format!(
            "\"{other}\" is no option of a table: write name = 'value'"
        ))),
    }
}

pub(crate) fn option_value(key: &Ident, value: &Expr) -> Result<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                return Ok(text.clone());
            }
            Value::Number(number, _) => return Ok(number.clone()),
            Value::Boolean(value) => return Ok(value.to_string()),
            _ => {}
        },
        Expr::Identifier(ident) => return Ok(ident.value.clone()),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => return Ok(format!("-{expr}")),
        _ => {}
    }
    Err(query(format!(
        "the option \"{key}\" has the value {value}: write a text, a number or a name"
    )))
}

/// DROP TABLE.
pub(crate) fn drop_tables(
    engine: &Engine,
    names: &[String],
    if_exists: bool,
) -> Result<QueryResult> {
    let check = |view: &DatabaseView, name: &str| view.table(name).map(drop);
    drop_all(names, if_exists, engine, check, Engine::drop_tables)
}

/// DROP VIEW.
pub(crate) fn drop_views(
    engine: &Engine,
    names: &[String],
    if_exists: bool,
) -> Result<QueryResult> {
    drop_all(
        names,
        if_exists,
        engine,
        DatabaseView::check_view,
        Engine::drop_views,
    )
}

/// Drops all of them in one commit or, when one does not exist, none. One that others drop at the same time is an error without
/// IF EXISTS.
fn drop_all(
    names: &[String],
    if_exists: bool,
    engine: &Engine,
    check: impl Fn(&DatabaseView, &str) -> Result<()>,
    drop: impl Fn(&Engine, &[&str]) -> Result<()>,
) -> Result<QueryResult> {
    let forgiven = |error: &Error| if_exists && error.kind() == ErrorKind::NotFound;
    loop {
        let view = engine.snapshot()?;
        let mut seen = HashSet::new();
        let mut found: Vec<&str> = Vec::new();
        // Names are the same in any case.
        for name in names.iter().filter(|name| seen.insert(name.to_lowercase())) {
            match check(&view, name) {
                Err(error) if forgiven(&error) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
                // One that cannot be read can be dropped all the same.
                _ => found.push(name),
            }
        }
        match drop(engine, &found) {
            // Others have dropped one meanwhile.
            Err(error) if forgiven(&error) => {}
            done => return done.map(|()| QueryResult::count(0)),
        }
    }
}

/// SHOW TABLES: the names of views among those of tables.
pub(crate) fn show_tables(view: &DatabaseView) -> Result<QueryResult> {
    rows([("name", view.table_and_view_names())])
}

/// DESCRIBE of a table.
pub(crate) fn describe(view: &DatabaseView, name: &str) -> Result<QueryResult> {
    if let Some(table) = system::table(name, view) {
        return describe_rows(&table.schema());
    }
    let table = view.table(name)?;
    let columns = table.definition().columns().iter();
    described(columns.map(|column| (column.name.as_str(), &column.data_type, column.nullable)))
}

/// DESCRIBE of a query, whose rows have this schema.
pub(crate) fn describe_rows(rows: &Schema) -> Result<QueryResult> {
    let fields = rows.fields().iter();
    described(fields.map(|field| {
        (
            visible(field.name()),
            field.data_type(),
            field.is_nullable(),
        )
    }))
}

fn described<'a>(
    columns: impl Iterator<Item = (&'a str, &'a DataType, bool)>,
) -> Result<QueryResult> {
    let (mut names, mut types, mut nullable) = (Vec::new(), Vec::new(), Vec::new());
    for (name, data_type, is_nullable) in columns {
        names.push(name.to_owned());
        types.push(sql_type_name(data_type));
        nullable.push(if is_nullable { "YES" } else { "NO" }.to_owned());
    }
    rows([
        ("column_name", names),
        ("data_type", types),
        ("is_nullable", nullable),
    ])
}

fn rows<const N: usize>(columns: [(&str, Vec<String>); N]) -> Result<QueryResult> {
    let columns = columns.map(|(name, values)| {
        let array: ArrayRef = Arc::new(StringArray::from(values));
        (name, array, false)
    });
    let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(from_arrow)?;
    Ok(QueryResult::ready(batch.schema(), vec![batch]))
}
