//! Values in messages, and the option or the expression that makes something of them.
//!
//! Invariant: what is advised can be copied: into a shell, or into a statement.

use super::numbers::{is_float, is_int64, is_integer, loses_digits, with_decimal_point};
use super::times::TimeText;
use arrow_schema::DataType;

/// Text that a message shows of a value, at most.
const SHOWN_CHARACTERS: usize = 80;

/// A value in a message.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    let mut visible = String::with_capacity(cut.len());
    for c in cut.chars() {
        match c {
            // Quotes are easier to read, and to copy, as they are.
            '"' | '\'' => visible.push(c),
            c => visible.extend(c.escape_debug()),
        }
    }
    format!("\"{visible}{dots}\"")
}

/// The sign without which a text would be a number: of thousands, of money, of a share.
fn decorated_number(text: &str) -> Option<char> {
    let is_sign = |c: &char| matches!(c, ',' | '\'' | '_' | ' ' | '$' | '€' | '£' | '%');
    let mut signs = text.chars().filter(is_sign);
    let sign = signs.next()?;
    let plain: String = text.chars().filter(|c| *c != sign).collect();
    let is_money = matches!(sign, '$' | '€' | '£' | '%');
    (is_float(plain.trim()) && (is_money || has_thousands(text, sign, '.'))).then_some(sign)
}

/// Whether a sign divides the digits in front of the decimal sign into thousands.
fn has_thousands(text: &str, sign: char, decimal: char) -> bool {
    let whole = text.split(decimal).next().unwrap_or(text);
    let mut groups = whole.split(sign);
    let first = groups.next().unwrap_or("");
    (1..=4).contains(&first.len()) && groups.all(|group| group.len() == 3)
}

/// Whether it is a number with points between thousands and a decimal comma.
fn has_points_of_thousands(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| *c != '.').collect();
    let is_number = with_decimal_point(&plain).is_some_and(|number| is_float(&number));
    let comes_first = text.rfind('.') < text.find(',');
    text.contains('.') && comes_first && is_number && has_thousands(text, '.', ',')
}

/// The option or the SQL expression that makes a number of such a text, if there is one.
pub(super) fn number_advice(text: &str) -> Option<String> {
    let has_decimal_comma = !text.contains('.') && !has_thousands(text, ',', '.');
    if has_decimal_comma
        && text.contains(',')
        && with_decimal_point(text).is_some_and(|number| is_float(&number))
    {
        return Some(": --decimal , makes numbers of such texts".to_owned());
    }
    let expression = if has_points_of_thousands(text) {
        "CAST(replace(replace(x, '.', ''), ',', '.') AS DOUBLE)".to_owned()
    } else {
        let sign = decorated_number(text)?.to_string().replace('\'', "''");
        format!("CAST(replace(x, '{sign}', '') AS DOUBLE)")
    };
    Some(format!(": {expression} in SQL makes numbers of such texts"))
}

/// The reason why digits make a column text: as a number they would lose zeros in front, or digits that a DOUBLE does not hold.
pub(super) fn digits_advice(text: &str) -> Option<String> {
    if !is_integer(text) || is_int64(text) && !loses_digits(text) {
        return None;
    }
    let text_shown = quoted(text);
    if !text.starts_with('0') && text.parse::<u64>().is_ok() && !is_int64(text) {
        return Some(format!(
            ": {text_shown} is beyond BIGINT; --type COLUMN=ubigint holds it"
        ));
    }
    Some(if loses_digits(text) {
        format!(
            ": a DOUBLE does not hold all digits of {text_shown}; --type COLUMN=double cuts them"
        )
    } else {
        format!(
            ": a number would lose the zeros in front of {text_shown}; --type COLUMN=bigint drops them"
        )
    })
}

/// How a column of a table that is there gets a type that takes a value.
pub(super) fn wider_advice(
    table: &str,
    column: &str,
    data_type: &DataType,
    text: &str,
) -> Option<String> {
    let has_clock = || TimeText::parse(text).is_some_and(|time| time.has_clock());
    let has_letters = text.chars().any(char::is_alphabetic);
    let wider = match data_type {
        integer if integer.is_integer() && is_integer(text) => match text.parse::<u64>() {
            Ok(_) if is_int64(text) => "bigint",
            Ok(_) => "ubigint",
            // A DOUBLE would round it.
            Err(_) => "varchar",
        },
        integer if integer.is_integer() && is_float(text) => "double",
        DataType::Date32 if has_clock() => "timestamp",
        number if (number.is_numeric() || *number == DataType::Boolean) && has_letters => "varchar",
        _ => return None,
    };
    let [quoted, table] = [column, table].map(crate::schema::quoted);
    Some(format!(
        "--type {column}={wider} with --create makes a column that takes it, and of a table that is there CREATE TABLE wider AS \
         SELECT * REPLACE (CAST({quoted} AS {}) AS {quoted}) FROM {table}",
        wider.to_uppercase()
    ))
}

pub(super) fn quoted(text: &str) -> String {
    let shown = shown(text);
    format!("'{}'", &shown[1..shown.len() - 1])
}

/// The option that makes null of a text, quoted where a shell would make something else of it.
pub(super) fn null_option(text: &str) -> String {
    let is_plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    let word = if is_plain {
        text.to_owned()
    } else {
        format!("'{text}'")
    };
    let separator = if text.starts_with("--") { '=' } else { ' ' };
    format!("--null{separator}{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_other_signs_are_known() {
        for (text, sign) in [
            ("1,049", Some(',')),
            ("12,345,678.9", Some(',')),
            ("-1,049", Some(',')),
            ("3.5%", Some('%')),
            ("1,04", None),
            ("1 2", None),
            ("$", None),
            ("a,b", None),
            ("12.5 mm", None),
        ] {
            assert_eq!(decorated_number(text), sign, "{text}");
        }
        for (text, holds) in [
            ("1.234,5", true),
            ("-2.000.000,25", true),
            ("1,234.5", false),
            ("1.23,5", false),
            ("1.234", false),
        ] {
            assert_eq!(has_points_of_thousands(text), holds, "{text}");
        }
    }
}
