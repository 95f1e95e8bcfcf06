//! Types: which Arrow types are stored, as what, and what they are called.
//!
//! Invariants: every stored type has exactly one name ([`type_name`]) that [`parse_type`] reads back to the same type;
//! [`stored_type`] of a stored type is that type; a value of a type converts to its stored type without loss.

use crate::error::schema;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::sync::Arc;
use thalweg_codec::ElementType;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Columns of one table.
pub const MAX_COLUMNS: usize = 65_536;
/// Bytes of the name of a table or a column.
pub const MAX_NAME_BYTES: usize = thalweg_kernel::NAME_LIMIT_BYTES;
/// Bytes of one string or binary value.
pub const MAX_VALUE_BYTES: usize = 16 << 20;
/// Bytes of the name of a time zone.
pub const MAX_ZONE_BYTES: usize = 64;

/// The type that a column given as `data_type` is stored and returned as; `None` when this version cannot store it.
///
/// Encodings that only concern how values lie in memory (views, large offsets, dictionaries) become the plain type.
///
/// ```
/// # use thalweg_table::schema::stored_type;
/// use arrow_schema::{DataType, TimeUnit};
///
/// let names = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
/// assert_eq!(stored_type(&names), Some(DataType::Utf8));
/// assert_eq!(stored_type(&DataType::Float16), Some(DataType::Float32));
/// assert_eq!(stored_type(&DataType::Time64(TimeUnit::Nanosecond)), None);
/// ```
pub fn stored_type(data_type: &DataType) -> Option<DataType> {
    use DataType as T;
    Some(match data_type {
        T::Float16 => T::Float32,
        T::Utf8 | T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Date32 | T::Date64 => T::Date32,
        T::Decimal32(precision, scale)
        | T::Decimal64(precision, scale)
        | T::Decimal128(precision, scale) => {
            let sound = (1..=38).contains(precision) && scale.unsigned_abs() <= *precision;
            return sound.then_some(T::Decimal128(*precision, *scale));
        }
        T::Dictionary(_, values) => return stored_type(values),
        T::Timestamp(_, Some(zone)) if !zone_is_sound(zone) => return None,
        other => return element_type(other).map(|_| other.clone()),
    })
}

/// How the values of a stored type lie in chunks and raw rows; `None` for every other type.
pub(crate) fn element_type(data_type: &DataType) -> Option<ElementType> {
    use DataType as T;
    Some(match data_type {
        T::Boolean => ElementType::Bits,
        T::Int8 => ElementType::I8,
        T::Int16 => ElementType::I16,
        T::Int32 | T::Date32 => ElementType::I32,
        T::Int64 | T::Timestamp(..) | T::Duration(_) => ElementType::I64,
        T::UInt8 => ElementType::U8,
        T::UInt16 => ElementType::U16,
        T::UInt32 => ElementType::U32,
        T::UInt64 => ElementType::U64,
        T::Float32 => ElementType::F32,
        T::Float64 => ElementType::F64,
        T::Decimal128(..) => ElementType::I128,
        T::Utf8 | T::Binary => ElementType::Bytes,
        _ => return None,
    })
}

/// Bytes of one value; `None` for strings and binary, and for booleans, which are bits.
pub(crate) const fn width_bytes(element: ElementType) -> Option<usize> {
    match element {
        ElementType::I8 | ElementType::U8 => Some(1),
        ElementType::I16 | ElementType::U16 => Some(2),
        ElementType::I32 | ElementType::U32 | ElementType::F32 => Some(4),
        ElementType::I64 | ElementType::U64 | ElementType::F64 => Some(8),
        ElementType::I128 => Some(16),
        ElementType::Bytes | ElementType::Bits => None,
    }
}

/// Whether values stored as `from` can be read as `to`: a column's type may have been widened since.
pub(crate) fn widens(from: ElementType, to: ElementType) -> bool {
    use ElementType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    from == to
        || matches!(
            (from, to),
            (I8, I16 | I32 | I64)
                | (I16, I32 | I64)
                | (I32, I64)
                | (U8, U16 | U32 | U64)
                | (U16, U32 | U64)
                | (U32, U64)
                | (F32, F64)
        )
}

/// The name of a type, as stored definitions have it.
pub fn type_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Boolean => "bool".into(),
        T::Int8 => "int8".into(),
        T::Int16 => "int16".into(),
        T::Int32 => "int32".into(),
        T::Int64 => "int64".into(),
        T::UInt8 => "uint8".into(),
        T::UInt16 => "uint16".into(),
        T::UInt32 => "uint32".into(),
        T::UInt64 => "uint64".into(),
        T::Float32 => "float32".into(),
        T::Float64 => "float64".into(),
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "string".into(),
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "binary".into(),
        T::Date32 => "date".into(),
        T::Dictionary(_, values) => type_name(values),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => {
            format!("list of {}", type_name(item.data_type()))
        }
        T::Struct(_) => "struct".into(),
        T::Map(..) => "map".into(),
        T::Null => "null".into(),
        T::Float16 => "float16".into(),
        T::Date64 => "date64".into(),
        T::Time32(unit) | T::Time64(unit) => format!("time({})", unit_name(*unit)),
        T::Interval(_) => "interval".into(),
        T::Decimal128(precision, scale) => format!("decimal({precision}, {scale})"),
        T::Timestamp(unit, None) => format!("timestamp({})", unit_name(*unit)),
        T::Timestamp(unit, Some(zone)) => format!("timestamp({}, {zone})", unit_name(*unit)),
        T::Duration(unit) => format!("duration({})", unit_name(*unit)),
        other => other.to_string(),
    }
}

/// The name of a type in messages: that of SQL, in small letters.
pub fn shown_type(data_type: &DataType) -> String {
    sql_type_name(data_type).to_lowercase()
}

/// The name of a type in SQL, as `typeof`, `DESCRIBE` and `CREATE TABLE` have it; [`parse_type`] reads the names of all stored types.
///
/// ```
/// # use thalweg_table::schema::{parse_type, sql_type_name};
/// use arrow_schema::{DataType, TimeUnit};
///
/// let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
/// assert_eq!(sql_type_name(&milliseconds), "TIMESTAMP(3)");
/// assert_eq!(parse_type("TIMESTAMP(3)").unwrap(), milliseconds);
/// ```
pub fn sql_type_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Boolean => "BOOLEAN".into(),
        T::Int8 => "TINYINT".into(),
        T::Int16 => "SMALLINT".into(),
        T::Int32 => "INTEGER".into(),
        T::Int64 => "BIGINT".into(),
        T::UInt8 => "UTINYINT".into(),
        T::UInt16 => "USMALLINT".into(),
        T::UInt32 => "UINTEGER".into(),
        T::UInt64 => "UBIGINT".into(),
        T::Float16 | T::Float32 => "REAL".into(),
        T::Float64 => "DOUBLE".into(),
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "VARCHAR".into(),
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "BLOB".into(),
        T::Date32 | T::Date64 => "DATE".into(),
        T::Time32(_) | T::Time64(_) => "TIME".into(),
        T::Interval(_) => "INTERVAL".into(),
        T::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "(6)",
                TimeUnit::Nanosecond => "",
            };
            let zone = zone.as_ref().map_or("", |_| " WITH TIME ZONE");
            format!("TIMESTAMP{digits}{zone}")
        }
        T::Dictionary(_, values) => sql_type_name(values),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => {
            format!("{}[]", sql_type_name(item.data_type()))
        }
        T::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                let data_type = sql_type_name(field.data_type());
                format!("{} {data_type}", field.name())
            });
            format!("STRUCT({})", fields.collect::<Vec<_>>().join(", "))
        }
        T::Null => "NULL".into(),
        T::Decimal128(..) | T::Duration(_) | T::Map(..) => type_name(data_type).to_uppercase(),
        other => type_name(other),
    }
}

/// The short name of a unit of time.
pub(crate) const fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// The stored type that `text` names, in the words of SQL, Arrow or numpy: `double`, `VARCHAR(20)`, `timestamp(ms)`,
/// `timestamp[us, tz=UTC]`, `datetime64[ns]`, `decimal(10, 2)`.
///
/// ```
/// # use thalweg_table::schema::parse_type;
/// use arrow_schema::{DataType, TimeUnit};
///
/// assert_eq!(parse_type("VARCHAR(20)").unwrap(), DataType::Utf8);
/// assert_eq!(parse_type("datetime64[us]").unwrap(), DataType::Timestamp(TimeUnit::Microsecond, None));
/// assert_eq!(parse_type("numeric(10, 2)").unwrap(), DataType::Decimal128(10, 2));
/// assert!(parse_type("point").is_err());
/// ```
///
/// # Errors
/// When it names none.
pub fn parse_type(text: &str) -> Result<DataType> {
    let (head, arguments, tail) = split_type(text).ok_or_else(|| unknown_type(text))?;
    let plain = arguments.is_empty() && tail.is_empty();
    let simple = match head.as_str() {
        "bool" | "boolean" => DataType::Boolean,
        "int8" | "i8" | "tinyint" => DataType::Int8,
        "int16" | "i16" | "smallint" | "int2" => DataType::Int16,
        "int32" | "i32" | "int" | "integer" | "int4" => DataType::Int32,
        "int64" | "i64" | "bigint" | "long" => DataType::Int64,
        "uint8" | "u8" | "utinyint" | "tinyint unsigned" => DataType::UInt8,
        "uint16" | "u16" | "usmallint" | "smallint unsigned" => DataType::UInt16,
        "uint32" | "u32" | "uinteger" | "int unsigned" | "integer unsigned" => DataType::UInt32,
        "uint64" | "u64" | "ubigint" | "bigint unsigned" => DataType::UInt64,
        "float32" | "f32" | "float" | "real" | "float4" => DataType::Float32,
        "float64" | "f64" | "double" | "double precision" | "float8" => DataType::Float64,
        "string" | "str" | "utf8" | "text" | "large_string" | "large_utf8" | "string_view" => {
            DataType::Utf8
        }
        "binary" | "bytes" | "bytea" | "blob" | "varbinary" | "large_binary" | "binary_view" => {
            DataType::Binary
        }
        "date" | "date32" | "date64" => DataType::Date32,
        "varchar" | "char" | "character varying" | "character" if tail.is_empty() => {
            return parse_length(&arguments)
                .ok_or_else(|| unknown_type(text))
                .map(|()| DataType::Utf8);
        }
        _ => return parse_parametric(&head, &arguments, &tail).ok_or_else(|| unknown_type(text)),
    };
    // Arrow prints 32 and 64 bit dates with their unit.
    let arrow_date = simple == DataType::Date32
        && matches!(arguments.as_slice(), ["day" | "ms"])
        && tail.is_empty();
    if plain || arrow_date {
        Ok(simple)
    } else {
        Err(unknown_type(text))
    }
}

/// A schema from pairs of column name and type name, all columns nullable.
///
/// ```
/// # use thalweg_table::schema::schema_of_names;
/// use arrow_schema::DataType;
///
/// let schema = schema_of_names([("ts", "timestamp"), ("host", "varchar"), ("load", "real")]).unwrap();
/// assert_eq!(schema.field(2).data_type(), &DataType::Float32);
/// let error = schema_of_names([("ts", "timestamp"), ("load", "reel")]).unwrap_err();
/// assert!(error.message().starts_with("column \"load\""));
/// ```
///
/// # Errors
/// When a type has no such name; the message names the column.
pub fn schema_of_names<N: AsRef<str>, T: AsRef<str>>(
    columns: impl IntoIterator<Item = (N, T)>,
) -> Result<Schema> {
    let field = |(name, type_text): (N, T)| {
        let data_type = parse_type(type_text.as_ref()).map_err(|e| {
            Error::new(
                e.kind(),
                format!("column \"{}\": {}", name.as_ref(), e.message()),
            )
        })?;
        Ok(Field::new(name.as_ref(), data_type, true))
    };
    Ok(Schema::new(
        columns.into_iter().map(field).collect::<Result<Vec<_>>>()?,
    ))
}

/// Cuts `head(argument, ...) tail`; head and tail in lower case with single spaces.
fn split_type(text: &str) -> Option<(String, Vec<&str>, String)> {
    let squeeze = |s: &str| {
        s.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .to_ascii_lowercase()
    };
    let Some(open) = text.find(['(', '[']) else {
        let mut head = squeeze(text);
        let mut tail = String::new();
        for phrase in ["with time zone", "without time zone"] {
            if let Some(front) = head
                .strip_suffix(phrase)
                .map(|front| front.trim_end().to_owned())
            {
                (head, tail) = (front, phrase.to_owned());
                break;
            }
        }
        return Some((head, Vec::new(), tail));
    };
    let closing = if text[open..].starts_with('(') {
        ')'
    } else {
        ']'
    };
    let close = text.rfind(closing).filter(|&close| close > open)?;
    let arguments = text[open + 1..close]
        .split(',')
        .map(str::trim)
        .collect::<Vec<_>>();
    let tail = squeeze(&text[close + 1..]);
    // `int(11) unsigned` and the like are not worth their ambiguity; only time zones may follow the bracket.
    (arguments.iter().all(|argument| !argument.is_empty()))
        .then(|| (squeeze(&text[..open]), arguments, tail))
}

/// `varchar`, `varchar(n)`: the length is not enforced, as in most columnar databases.
fn parse_length(arguments: &[&str]) -> Option<()> {
    match arguments {
        [] => Some(()),
        [length] => length.parse::<u32>().ok().map(|_| ()),
        _ => None,
    }
}

/// The types with a unit, a zone or a precision.
fn parse_parametric(head: &str, arguments: &[&str], tail: &str) -> Option<DataType> {
    let zone_of_tail = match tail {
        "" | "without time zone" => None,
        "with time zone" => Some("UTC"),
        _ => return None,
    };
    match head {
        "timestamp" | "datetime" | "datetime64" => parse_timestamp(arguments, zone_of_tail),
        // Names of DuckDB.
        "timestamp_s" if tail.is_empty() && arguments.is_empty() => parse_timestamp(&["0"], None),
        "timestamp_ms" if tail.is_empty() && arguments.is_empty() => parse_timestamp(&["3"], None),
        "timestamp_us" if tail.is_empty() && arguments.is_empty() => parse_timestamp(&["6"], None),
        "timestamp_ns" if tail.is_empty() && arguments.is_empty() => parse_timestamp(&["9"], None),
        "timestamptz" if tail.is_empty() => parse_timestamp(arguments, Some("UTC")),
        "duration" | "timedelta" | "timedelta64" if tail.is_empty() => match arguments {
            [] => Some(DataType::Duration(TimeUnit::Nanosecond)),
            [unit] => Some(DataType::Duration(parse_unit(unit)?)),
            _ => None,
        },
        "decimal" | "decimal128" | "numeric" | "decimal32" | "decimal64" if tail.is_empty() => {
            let (precision, scale) = match arguments {
                // As CAST has it.
                [] => (38, 10),
                [precision] => (precision.parse().ok()?, 0),
                [precision, scale] => (precision.parse().ok()?, scale.parse().ok()?),
                _ => return None,
            };
            stored_type(&DataType::Decimal128(precision, scale))
        }
        _ => None,
    }
}

/// `(unit)`, `(unit, zone)`, `(unit, tz=zone)` or nothing, which means nanoseconds as in the SQL dialect.
fn parse_timestamp(arguments: &[&str], zone: Option<&str>) -> Option<DataType> {
    // SQL counts fractional digits: timestamp(3) is in milliseconds.
    let unit_of = |text: &str| match text {
        "0" => Some(TimeUnit::Second),
        "3" => Some(TimeUnit::Millisecond),
        "6" => Some(TimeUnit::Microsecond),
        "9" => Some(TimeUnit::Nanosecond),
        name => parse_unit(name),
    };
    let (unit, given_zone) = match arguments {
        [] => (TimeUnit::Nanosecond, None),
        [unit] => (unit_of(unit)?, None),
        [unit, zone] => (
            unit_of(unit)?,
            Some(zone.strip_prefix("tz=").unwrap_or(zone)),
        ),
        _ => return None,
    };
    let zone = given_zone.or(zone);
    if zone.is_some_and(|zone| !zone_is_sound(zone)) {
        return None;
    }
    Some(DataType::Timestamp(unit, zone.map(Arc::from)))
}

/// Whether a type name can carry a zone. Whether the zone exists is checked when a table is made: lists of zones change.
fn zone_is_sound(zone: &str) -> bool {
    (1..=MAX_ZONE_BYTES).contains(&zone.len())
        && zone.bytes().all(|byte| {
            byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'[' | b']' | b',' | b'=')
        })
}

/// A unit of time by its short or long name.
pub(crate) fn parse_unit(text: &str) -> Option<TimeUnit> {
    Some(match text.to_ascii_lowercase().as_str() {
        "s" | "second" | "seconds" => TimeUnit::Second,
        "ms" | "millisecond" | "milliseconds" => TimeUnit::Millisecond,
        "us" | "microsecond" | "microseconds" => TimeUnit::Microsecond,
        "ns" | "nanosecond" | "nanoseconds" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

/// Refuses empty names, names over 255 bytes and names with NUL; `what` is "column" or "table".
///
/// ```
/// # use thalweg_table::schema::check_name;
/// assert!(check_name("column", "wind speed (m/s)").is_ok());
/// assert_eq!(check_name("column", "").unwrap_err().message(), "the column name \"\" is empty");
/// ```
///
/// # Errors
/// `Schema` with the reason.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let reason = match name.len() {
        0 => "is empty",
        bytes if bytes > MAX_NAME_BYTES => "is longer than 255 bytes",
        _ if name.contains('\0') => "contains a NUL character",
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Schema,
        format!("the {what} name \"{}\" {reason}", name.escape_debug()),
    ))
}

/// Names of tables that SQL answers from the state of the database begin with this; nobody else's do.
pub const SYSTEM_PREFIX: &str = "thalweg_";

/// The system tables that SQL offers.
pub const SYSTEM_TABLES: [&str; 6] = [
    "thalweg_tables",
    "thalweg_fragments",
    "thalweg_blocks",
    "thalweg_orders",
    "thalweg_jobs",
    "thalweg_settings",
];

/// # Errors
/// `AlreadyExists` for a name that is kept for system tables.
pub(crate) fn check_is_no_system_table(name: &str) -> Result<()> {
    if !fold_name(name).starts_with(SYSTEM_PREFIX) {
        return Ok(());
    }
    let message =
        format!("names of tables that begin with \"{SYSTEM_PREFIX}\" are kept for system tables");
    Err(Error::new(ErrorKind::AlreadyExists, message))
}

/// The form of a name in which two names that differ only in case are equal.
pub fn fold_name(name: &str) -> String {
    name.to_lowercase()
}

fn unknown_type(text: &str) -> Error {
    schema(format!(
        "\"{text}\" is not a type; types are bool, int8 to int64, uint8 to uint64, float32 (real), float64 (double), \
         decimal(precision, scale), string (varchar, text), binary, date, timestamp(s|ms|us|ns[, zone]) and \
         duration(s|ms|us|ns)"
    ))
}
