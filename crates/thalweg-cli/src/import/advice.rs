//! Values in messages, and the option or the expression that makes something of them.
//!
//! Invariant: what is advised can be copied: into a shell, or into a statement.

use super::numbers::{
    is_float, is_int64, is_integer, loses_digits, with_decimal_point, without_thousands,
};
use super::times::TimeText;
use arrow_schema::DataType;
use std::borrow::Cow;

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

/// Signs between thousands and, with each, whether the one of decimals is a comma.
const WRITINGS: [(char, bool); 8] = [
    (',', false),
    ('.', true),
    ('\'', false),
    ('\'', true),
    ('_', false),
    ('_', true),
    (' ', false),
    (' ', true),
];

/// Whether it is a number with this sign between thousands.
fn has_thousands(text: &str, sign: char, has_decimal_comma: bool) -> bool {
    let Some(Cow::Owned(plain)) = without_thousands(text, sign, has_decimal_comma) else {
        return false;
    };
    match has_decimal_comma {
        true => with_decimal_point(&plain).is_some_and(|number| is_float(&number)),
        false => is_float(&plain),
    }
}

/// The sign of money or of a share without which a text would be a number.
fn decoration(text: &str) -> Option<char> {
    let sign = text.chars().find(|c| matches!(c, '$' | '€' | '£' | '%'))?;
    let plain: String = text.chars().filter(|c| *c != sign).collect();
    is_float(plain.trim()).then_some(sign)
}

/// The option or the SQL expression that makes a number of such a text, if there is one.
pub(super) fn number_advice(text: &str) -> Option<String> {
    let makes = "makes numbers of such texts";
    let writing = |(sign, has_comma): &&(char, bool)| has_thousands(text, *sign, *has_comma);
    if let Some((sign, has_comma)) = WRITINGS.iter().find(writing) {
        let sign = match sign {
            '\'' => "\"'\"".to_owned(),
            ' ' => "' '".to_owned(),
            sign => sign.to_string(),
        };
        let decimal = match *has_comma && text.contains(',') {
            true => " --decimal ,",
            false => "",
        };
        return Some(format!("--thousands {sign}{decimal} {makes}"));
    }
    if text.contains(',') && with_decimal_point(text).is_some_and(|number| is_float(&number)) {
        return Some(format!("--decimal , {makes}"));
    }
    let sign = decoration(text)?;
    Some(format!(
        "CAST(replace(x, '{sign}', '') AS DOUBLE) in SQL {makes}"
    ))
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
        for (text, wanted) in [
            ("1,049", Some("--thousands ,")),
            ("12,345,678.9", Some("--thousands ,")),
            ("-1,049", Some("--thousands ,")),
            ("1,04", Some("--decimal ,")),
            ("1.234,5", Some("--thousands . --decimal ,")),
            ("-2.000.000,25", Some("--thousands . --decimal ,")),
            ("1 234,5", Some("--thousands ' ' --decimal ,")),
            ("1'500.25", Some("--thousands \"'\"")),
            ("3.5%", Some("CAST(replace(x, '%', '') AS DOUBLE) in SQL")),
            ("1.23,5", None),
            ("1 2", None),
            ("$", None),
            ("a,b", None),
            ("12.5 mm", None),
        ] {
            let wanted = wanted.map(|way| format!("{way} makes numbers of such texts"));
            assert_eq!(number_advice(text), wanted, "{text}");
        }
    }
}
