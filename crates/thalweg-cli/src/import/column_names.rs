//! What the name of a column says of its values.
//!
//! Invariant: a name only chooses between readings that all values of the column allow.

/// Words of names of columns of times.
const TIMES: [&str; 12] = [
    "time",
    "timestamp",
    "ts",
    "t",
    "date",
    "datetime",
    "day",
    "dt",
    "epoch",
    "unix",
    "utc",
    "unixtime",
];
/// Last words of names of columns of codes.
const CODES: [&str; 22] = [
    "id", "ids", "uid", "code", "number", "no", "nr", "num", "zip", "zipcode", "plz", "postal",
    "postcode", "phone", "fips", "serial", "key", "station", "sensor", "device", "barcode", "imei",
];

/// Whether a column is called like one of times, as `ts`, `startTime` or `UNIX_TIME`.
pub(super) fn is_of_times(name: &str) -> bool {
    let is_time = |word: &String| {
        TIMES.contains(&word.as_str()) || word.ends_with("time") || word.ends_with("timestamp")
    };
    words(name).iter().any(is_time)
}

/// Whether a column is called like one of codes, as `id`, `taxiId` or `zip_code`.
pub(super) fn is_of_codes(name: &str) -> bool {
    let words = words(name);
    let last = words.last();
    last.is_some_and(|word| CODES.contains(&word.as_str()))
}

/// The words of a name in lower case: `tripId`, `TRIP_ID` and `trip id` have the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || was_lower && c.is_uppercase();
        was_lower = c.is_lowercase();
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_times_and_codes() {
        for name in ["ts", "startTime", "UNIX_TIME", "obs date", "t_unix"] {
            assert!(is_of_times(name) && !is_of_codes(name), "{name}");
        }
        for name in ["id", "taxiId", "TRIP_ID", "zip_code", "trajectory number"] {
            assert!(is_of_codes(name) && !is_of_times(name), "{name}");
        }
        for name in ["humid", "station_height", "value", "", "_"] {
            assert!(!is_of_codes(name) && !is_of_times(name), "{name}");
        }
    }
}
