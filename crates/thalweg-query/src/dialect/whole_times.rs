//! Patterns of times that leave parts out: `%Y-%m-%d %H`, `%Y-%m`.
//!
//! DataFusion takes a pattern without minutes for one of a date, and gives midnight whatever the hour is; one without a day fits no text.
//! Invariant: parts that are left out are their first values, as in imports: the first day, minute 0.

/// The text to append to a pattern and the one to append to its texts, so that nothing is left out; empty where nothing is.
pub(super) fn missing_parts(pattern: &str) -> (String, String) {
    let parts = parts_of(pattern);
    let has = |any: &str| parts.chars().any(|part| any.contains(part));
    let mut missing = Vec::new();
    // Weeks, days of the year and what stands for several parts are left to the pattern.
    if has("Yy") && !has("GVUWuwjqscxDF+vaA") {
        if !has("mbBh") && !has("de") {
            missing.push(("%m", "01"));
        }
        if !has("de") {
            missing.push(("%d", "01"));
        }
    }
    if has("HIklMS") && !has("TRrcXs+") {
        if !has("HIkl") {
            missing.push(("%H", "00"));
        }
        if !has("M") {
            missing.push(("%M", "00"));
        }
    }
    let all = |part: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        missing
            .iter()
            .map(|pair| format!(" {}", part(pair)))
            .collect()
    };
    (all(|pair| pair.0), all(|pair| pair.1))
}

/// The letters after `%`, without what stands between.
fn parts_of(pattern: &str) -> String {
    let mut parts = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            parts.extend(chars.find(|c| !matches!(c, '-' | '_' | '.' | ':' | '#' | '0'..='9')));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_the_first_value() {
        for (pattern, missing) in [
            ("%Y-%m-%d", ""),
            ("%Y-%m-%d %H:%M", ""),
            ("%Y-%m-%d %H:%M:%S%.f", ""),
            ("%Y-%m-%dT%T", ""),
            ("%Y-%m-%d %H", " %M"),
            ("%d/%m/%Y %-I%p", " %M"),
            ("%Y-%m-%d %H %:z", " %M"),
            ("%Y-%m-%d %S", " %H %M"),
            ("%Y-%m-%d %M:%S", " %H"),
            ("%Y-%m", " %d"),
            ("%b %Y", " %d"),
            ("%Y", " %m %d"),
            ("%G-W%V-%u", ""),
            ("%Y-%j", ""),
            ("%s", ""),
            ("%H:%M", ""),
            ("100%% %Y", " %m %d"),
        ] {
            assert_eq!(missing_parts(pattern).0, missing, "{pattern}");
        }
        assert_eq!(missing_parts("%Y %H").1, " 01 01 00");
    }
}
