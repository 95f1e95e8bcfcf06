//! Messages of the library that plans statements, in the words of those who write statements.
//!
//! Invariant: a message that is not known here is left as it is, but for requests to report it elsewhere.

/// Names of types that the library uses, longer ones first, and those that statements use.
const TYPES: [(&str, &str); 14] = [
    ("LargeUtf8", "varchar"),
    ("Utf8View", "varchar"),
    ("Utf8", "varchar"),
    ("Float64", "double"),
    ("Float32", "real"),
    ("UInt64", "unsigned bigint"),
    ("Int64", "bigint"),
    ("Int32", "integer"),
    ("Boolean", "boolean"),
    ("Timestamp(ns)", "timestamp"),
    ("Timestamp(us)", "timestamp"),
    ("Timestamp(ms)", "timestamp"),
    ("Timestamp(s)", "timestamp"),
    ("Date32", "date"),
];

/// A message in plain words.
pub(crate) fn reworded(text: &str) -> String {
    let known = wrong_arguments(text)
        .or_else(|| unknown_function(text))
        .or_else(|| quoted_text(text))
        .or_else(|| equal_names(text))
        .or_else(|| unsupported_place(text));
    known.unwrap_or_else(|| without_request(text))
}

fn wrong_arguments(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("No function matches the given name and argument types '")?;
    let (call, rest) = rest.split_once("'. ")?;
    if call.starts_with("at_time_zone(") {
        return Some(
            "AT TIME ZONE takes a time and the name of a zone, as in ts AT TIME ZONE 'Europe/Berlin'"
                .to_owned(),
        );
    }
    let call = with_types(call);
    let candidates = rest
        .split_once("Candidate functions:")
        .map(|(_, list)| list);
    let mut candidates: Vec<String> = candidates
        .unwrap_or_default()
        .lines()
        .map(|line| with_types(line.trim()))
        .collect();
    candidates.retain(|candidate| !candidate.is_empty());
    candidates.dedup();
    let candidates = candidates.join(", ");
    Some(format!(
        "there is no {call}, but {candidates}: cast what is meant, as in CAST(x AS DOUBLE)"
    ))
}

fn with_types(text: &str) -> String {
    let replace = |text: String, (name, meant): &(&str, &str)| text.replace(name, meant);
    TYPES.iter().fold(text.to_owned(), replace)
}

/// What is suggested has to begin like what was written: else it is as far from it as any other name.
fn unknown_function(text: &str) -> Option<String> {
    let (name, rest) = text.strip_prefix("Invalid function '")?.split_once('\'')?;
    let meant = rest
        .split_once("Did you mean '")
        .and_then(|(_, meant)| meant.split_once('\''));
    let begins_alike = |meant: &&str| name.get(..3).is_some_and(|head| meant.starts_with(head));
    Some(match meant.map(|(meant, _)| meant).filter(begins_alike) {
        Some(meant) => format!("there is no function \"{name}\": did you mean {meant}?"),
        None => format!("there is no function \"{name}\""),
    })
}

/// A text in double quotes is a name.
fn quoted_text(text: &str) -> Option<String> {
    let (name, rest) = text.strip_prefix("No field named \"")?.split_once("\".")?;
    let fields = rest
        .split_once("Valid fields are ")
        .map_or("", |(_, fields)| fields);
    let fields = fields.trim_end_matches('.');
    Some(format!(
        "there is no column \"{name}\" (texts take single quotes: '{name}'); the columns are {fields}"
    ))
}

fn equal_names(text: &str) -> Option<String> {
    let rest =
        text.strip_prefix("Projections require unique expression names but the expression ")?;
    let (first, rest) = rest.split_once(" at position ")?;
    let (_, rest) = rest.split_once(" and ")?;
    let (second, _) = rest.split_once(" at position ")?;
    Some(format!(
        "two columns of the result have the same name, {first} and {second}: name one of them by AS"
    ))
}

fn unsupported_place(text: &str) -> Option<String> {
    let expr = text.strip_prefix("Physical plan does not support logical expression ")?;
    let kind = expr.split(['(', ' ']).next().unwrap_or_default();
    let what = match kind {
        "InSubquery" | "Exists" | "ScalarSubquery" | "SetComparison" => "a subquery",
        "WindowFunction" => "a window function",
        "AggregateFunction" => "an aggregate",
        _ => "this expression",
    };
    Some(format!(
        "{what} is not offered in this place: put it into a query of its own, in WITH or FROM"
    ))
}

fn without_request(text: &str) -> String {
    let begins = text.find("This issue was likely caused by a bug in DataFusion");
    let ends = text.find("issue tracker: https://github.com/apache/datafusion/issues");
    match (begins, ends) {
        (Some(begins), Some(ends)) if begins < ends => {
            let rest = &text[ends..];
            let rest = rest.split_once("issues").map_or("", |(_, rest)| rest);
            let rest = rest.split_once("issues").map_or(rest, |(_, rest)| rest);
            let rest = rest.trim_start_matches(['.', ' ', '\n']);
            format!("{}{rest}", &text[..begins]).trim().to_owned()
        }
        (Some(begins), _) => text[..begins].trim().to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_messages_are_in_plain_words() {
        for (text, words) in [
            (
                "Function 'avg' failed to match any signature, errors: x. This issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug report in our issue tracker: https://github.com/apache/datafusion/issues. No function matches the given name and argument types 'avg(Utf8)'. You might need to add explicit type casts.\n\tCandidate functions:\n\tavg(Decimal)\n\tavg(Float64)",
                "there is no avg(varchar), but avg(Decimal), avg(double): cast what is meant, as in CAST(x AS DOUBLE)",
            ),
            (
                "Invalid function 'mode'.\nDid you mean 'lower'?",
                "there is no function \"mode\"",
            ),
            (
                "Invalid function 'date_bim'.\nDid you mean 'date_bin'?",
                "there is no function \"date_bim\": did you mean date_bin?",
            ),
            (
                "No field named \"EWR\".\nValid fields are a.ts, a.v.",
                "there is no column \"EWR\" (texts take single quotes: 'EWR'); the columns are a.ts, a.v",
            ),
            (
                "Projections require unique expression names but the expression \"a.v\" at position 0 and \"a.v\" at position 1 have the same name. Consider aliasing (\"AS\") one of them.",
                "two columns of the result have the same name, \"a.v\" and \"a.v\": name one of them by AS",
            ),
            (
                "Physical plan does not support logical expression InSubquery(InSubquery { expr: Literal(Float64(5), None) })",
                "a subquery is not offered in this place: put it into a query of its own, in WITH or FROM",
            ),
            (
                "it broke. This issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug report in our issue tracker: https://github.com/apache/datafusion/issues",
                "it broke.",
            ),
            ("Divide by zero error", "Divide by zero error"),
        ] {
            assert_eq!(reworded(text), words);
        }
    }
}
