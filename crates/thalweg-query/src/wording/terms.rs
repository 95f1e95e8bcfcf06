//! Types and expressions as statements write them.

/// Types by the names that the library shows, and by those that statements use.
const TYPES: [(&str, &str); 28] = [
    ("Binary", "blob"),
    ("Boolean", "boolean"),
    ("Date32", "date"),
    ("Date64", "date"),
    ("Decimal128", "decimal"),
    ("Decimal256", "decimal"),
    ("Decimal", "decimal"),
    ("Duration", "duration"),
    ("Float", "real"),
    ("Float16", "real"),
    ("Float32", "real"),
    ("Float64", "double"),
    ("Int8", "tinyint"),
    ("Int16", "smallint"),
    ("Int32", "integer"),
    ("Int64", "bigint"),
    ("Integer", "integer"),
    ("Interval", "interval"),
    ("LargeUtf8", "varchar"),
    ("String", "varchar"),
    ("Time32", "time"),
    ("Time64", "time"),
    ("UInt8", "utinyint"),
    ("UInt16", "usmallint"),
    ("UInt32", "uinteger"),
    ("UInt64", "ubigint"),
    ("Utf8", "varchar"),
    ("Utf8View", "varchar"),
];

/// The text with its types, constants and columns as statements write them; what is in single quotes stays.
pub(crate) fn in_sql(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\'' => quoted(rest, &mut words),
            '"' => name_in_quotes(rest, &mut words),
            first if is_of_word(first) => word(rest, &mut words),
            first => {
                words.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    words.replace("count(1)", "count(*)")
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Copies a text in single quotes and returns its length.
fn quoted(rest: &str, words: &mut String) -> usize {
    let end = rest[1..].find('\'').map_or(rest.len(), |end| end + 2);
    words.push_str(&rest[..end]);
    end
}

/// Copies a name, without its quotes where names have none; a table before it is left out.
fn name_in_quotes(rest: &str, words: &mut String) -> usize {
    let Some(end) = rest[1..].find('"').map(|end| end + 1) else {
        words.push('"');
        return 1;
    };
    let name = &rest[1..end];
    let is_plain = !name.is_empty() && name.chars().all(is_of_word);
    if is_plain && rest[end + 1..].starts_with('.') {
        return end + 2;
    }
    match is_plain {
        true => words.push_str(name),
        false => words.push_str(&rest[..=end]),
    }
    end + 1
}

fn word(rest: &str, words: &mut String) -> usize {
    let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        // A number goes on after its point.
        words.push_str(name);
        return end;
    }
    if let Some(column) = behind.strip_prefix('.')
        && column.starts_with(|c: char| c == '"' || c.is_alphabetic() || c == '_')
    {
        return end + 1;
    }
    let arguments = behind.strip_prefix('(').and_then(|_| closed(behind));
    match (name, arguments) {
        ("Literal", Some(inside)) => {
            words.push_str(&in_sql(inside.trim_end_matches(", None")));
            end + inside.len() + 2
        }
        ("Timestamp", Some(inside)) => {
            words.push_str("timestamp");
            if let Some((_, zone)) = inside.split_once(", ")
                && zone != "None"
            {
                words.push_str(" with time zone");
            }
            end + inside.len() + 2
        }
        ("Interval" | "Duration" | "Time64" | "Time32", Some(inside)) => {
            words.push_str(sql_type(name).unwrap_or(name));
            end + inside.len() + 2
        }
        ("List" | "LargeList" | "FixedSizeList", Some(inside)) => {
            words.push_str("list of ");
            words.push_str(&in_sql(inside));
            end + inside.len() + 2
        }
        ("Decimal128" | "Decimal256", Some(inside)) if !inside.starts_with("Some") => {
            words.push_str(&format!("decimal({inside})"));
            end + inside.len() + 2
        }
        ("Utf8" | "LargeUtf8" | "Utf8View", Some(inside)) => {
            words.push_str(&format!("'{}'", inside.trim_matches('"')));
            end + inside.len() + 2
        }
        (name, Some(inside)) if is_type_of_constants(name) => {
            words.push_str(inside.trim_matches('"'));
            end + inside.len() + 2
        }
        _ => {
            words.push_str(sql_type(name).unwrap_or(name));
            end
        }
    }
}

fn is_type_of_constants(name: &str) -> bool {
    matches!(name, "Boolean" | "Date32")
        || name.contains("Int") && sql_type(name).is_some()
        || name.starts_with("Float")
}

fn sql_type(name: &str) -> Option<&'static str> {
    let found = TYPES.iter().find(|(known, _)| *known == name);
    found.map(|(_, meant)| *meant)
}

/// The text between the bracket that `text` begins with and the one that closes it.
fn closed(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[1..at]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_constants_and_columns_are_in_sql() {
        for (text, words) in [
            ("Float64 + Utf8", "double + varchar"),
            ("Timestamp(ns) - Int64", "timestamp - bigint"),
            ("Timestamp(ms, \"UTC\")", "timestamp with time zone"),
            ("Interval(MonthDayNano) * Utf8", "interval * varchar"),
            ("List(Int64)", "list of bigint"),
            ("Decimal128(38, 10)", "decimal(38, 10)"),
            ("w.temp > Int64(1)", "temp > 1"),
            ("stations.\"Lat\"", "Lat"),
            ("count(Int64(1))", "count(*)"),
            ("upper(Utf8(\"a\")) = w.b", "upper('a') = b"),
            ("x = 'Utf8 a.b'", "x = 'Utf8 a.b'"),
            ("Float64(1.5)", "1.5"),
            ("Literal(Utf8(\"x\"), None)", "'x'"),
            ("1.5 and (", "1.5 and ("),
            ("\"a b\".c", "\"a b\".c"),
        ] {
            assert_eq!(in_sql(text), words);
        }
    }
}
