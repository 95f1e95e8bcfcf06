//! Order keys, bounds and regular cuts.

use arrow_array::{
    Array, ArrayRef, Int64Array, TimestampMillisecondArray, UInt64Array, cast::AsArray, types,
};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use thalweg_kernel::ErrorKind;
use thalweg_table::time::{key_box, key_to_scalar, key_to_text, orders_rows, parse_length};
use thalweg_table::{Split, TimeBound, key_range, order_keys};

fn timestamp(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

#[test]
fn sixty_four_bit_keys_are_the_column_itself() {
    let times = TimestampMillisecondArray::from(vec![3, 1, 2]).slice(1, 2);
    let keys = order_keys(&times).unwrap();
    assert_eq!(keys.as_ref(), [1, 2]);
    assert_eq!(keys.inner().as_ptr(), times.values().inner().as_ptr());
}

#[test]
fn unsigned_keys_keep_their_order() {
    let array = UInt64Array::from(vec![0, 1, i64::MAX as u64, 1 << 63, u64::MAX]);
    let keys = order_keys(&array).unwrap();
    assert!(keys.is_sorted());
    for (row, &key) in keys.iter().enumerate() {
        let scalar = key_to_scalar(&DataType::UInt64, key).unwrap();
        assert_eq!(
            scalar.as_primitive::<types::UInt64Type>().value(0),
            array.value(row)
        );
    }
}

#[test]
fn every_time_type_turns_into_keys_and_back() {
    for data_type in crate::random::all_types() {
        let probe: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 100]));
        let Ok(array) = arrow_cast::cast(&probe, &data_type) else {
            continue;
        };
        assert_eq!(
            order_keys(&array).is_ok(),
            orders_rows(&data_type),
            "{data_type}"
        );
        if let Ok(keys) = order_keys(&array) {
            let scalar = key_to_scalar(&data_type, keys[2]).unwrap();
            assert_eq!(scalar.to_data(), array.slice(2, 1).to_data(), "{data_type}");
        }
    }
    assert_eq!(
        key_to_scalar(&DataType::Int8, 128).unwrap_err().kind(),
        ErrorKind::OutOfDomain
    );
    let zoned = DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Berlin".into()));
    assert_eq!(key_to_text(&zoned, 1_500), "1970-01-01T00:00:01.500Z");
    assert_eq!(key_to_text(&DataType::Date32, 31), "1970-02-01");
    assert_eq!(key_to_text(&DataType::UInt64, i64::MIN), "0");
    // Beyond the calendar: the number in the unit of the column.
    for unit in [TimeUnit::Second, TimeUnit::Millisecond] {
        for zone in [None, Some("UTC".into())] {
            let time = DataType::Timestamp(unit, zone);
            for key in [i64::MIN, i64::MAX] {
                assert_eq!(key_to_text(&time, key), key.to_string());
            }
        }
    }
    for key in [i32::MIN, i32::MAX] {
        assert_eq!(key_to_text(&DataType::Date32, key.into()), key.to_string());
    }
}

#[test]
fn bounds_are_read_in_every_form() {
    let ms = timestamp(TimeUnit::Millisecond);
    let from = |bound| {
        key_range(&ms, Some(bound), None)
            .unwrap()
            .map(|range| *range.start())
    };
    let cases = [
        (TimeBound::Int(7), 7),
        (TimeBound::Date(1), 86_400_000),
        (
            TimeBound::Instant {
                value: 2,
                unit: TimeUnit::Second,
            },
            2_000,
        ),
        (
            TimeBound::Instant {
                value: 2_000_001,
                unit: TimeUnit::Nanosecond,
            },
            3,
        ),
        (TimeBound::Text("1970-01-02"), 86_400_000),
        (TimeBound::Text("1970-01-01T00:01"), 60_000),
        (TimeBound::Text("1970-01-01 00:01+00:30"), -1_740_000),
        (TimeBound::Text("1970-01-01T00:00:01"), 1_000),
        (TimeBound::Text("1970-01-01T00:00:01Z"), 1_000),
        (TimeBound::Text("1970-01-01 00:00:01.5+01:00"), -3_598_500),
        (TimeBound::Text("1970-01-01T00:00:00.0000001"), 1),
        (TimeBound::Text("1969-12-31T23:59:59.9990001"), 0),
    ];
    for (bound, key) in cases {
        assert_eq!(from(bound), Some(key), "{bound:?}");
    }
    for text in [
        "",
        "yesterday",
        "2026-13-01",
        "1970-01-01T25:00",
        "1970-01-01T00:00:00.0000000001",
        "1970-01-01T00:0ä",
        "12",
    ] {
        assert_eq!(
            key_range(&ms, Some(TimeBound::Text(text)), None)
                .unwrap_err()
                .kind(),
            ErrorKind::Invalid,
            "{text}"
        );
    }
}

#[test]
fn the_end_is_left_out_of_ranges_and_kept_in_boxes() {
    let seconds = timestamp(TimeUnit::Second);
    let at = |text| Some(TimeBound::Text(text));
    let half = "1970-01-01T00:00:01.5";
    // Rows at 0 s and 1 s lie before 1.5 s, rows from 2 s on lie behind.
    assert_eq!(
        key_range(&seconds, None, at(half)).unwrap(),
        Some(i64::MIN..=1)
    );
    assert_eq!(
        key_range(&seconds, at(half), None).unwrap(),
        Some(2..=i64::MAX)
    );
    assert_eq!(key_range(&seconds, at(half), at(half)).unwrap(), None);
    assert_eq!(
        key_range(&seconds, Some(TimeBound::Int(5)), Some(TimeBound::Int(5))).unwrap(),
        None
    );
    assert_eq!(
        key_box(&seconds, TimeBound::Int(5), TimeBound::Int(5)).unwrap(),
        Some(5..=5)
    );
    assert_eq!(
        key_box(&seconds, TimeBound::Text(half), TimeBound::Text(half)).unwrap(),
        None
    );
}

#[test]
fn bounds_beyond_a_type_are_open_or_empty() {
    let range = |data_type: &DataType, start: Option<i128>, end: Option<i128>| {
        key_range(
            data_type,
            start.map(TimeBound::Int),
            end.map(TimeBound::Int),
        )
        .unwrap()
    };
    assert_eq!(range(&DataType::UInt8, Some(-5), Some(1000)), Some(0..=255));
    assert_eq!(range(&DataType::UInt8, Some(256), None), None);
    assert_eq!(
        range(&DataType::UInt64, None, Some(1)),
        Some(i64::MIN..=i64::MIN)
    );
    assert_eq!(
        range(&DataType::Int64, Some(i128::MIN), Some(i128::MAX)),
        Some(i64::MIN..=i64::MAX)
    );
    assert_eq!(range(&DataType::Int64, Some(i128::MAX), None), None);
    let ns = timestamp(TimeUnit::Nanosecond);
    assert_eq!(
        key_range(&ns, None, Some(TimeBound::Text("9999-01-01"))).unwrap(),
        Some(i64::MIN..=i64::MAX)
    );
    assert!(key_range(&DataType::Utf8, None, None).is_err());
}

#[test]
fn lengths_of_time_are_read() {
    for (text, seconds) in [
        ("10 minutes", 600),
        ("1 day", 86_400),
        ("week", 604_800),
        ("2h", 7_200),
    ] {
        assert_eq!(
            parse_length(text).unwrap(),
            Duration::from_secs(seconds),
            "{text}"
        );
    }
    assert_eq!(parse_length("250 ms").unwrap(), Duration::from_millis(250));
    for text in ["", "soon", "-1 day", "0 s", "300 years", "1.5 s"] {
        assert_eq!(
            parse_length(text).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{text}"
        );
    }
}

#[test]
fn bounds_that_are_no_integers_are_shown_as_given() {
    let bounds = [
        (TimeBound::Text("2024-01-01"), "\"2024-01-01\""),
        (TimeBound::Date(1), "1970-01-02"),
        (
            TimeBound::Instant {
                value: 90,
                unit: TimeUnit::Second,
            },
            "1970-01-01T00:01:30",
        ),
    ];
    for (bound, shown) in bounds {
        let error = key_range(&DataType::Int64, Some(bound), None).unwrap_err();
        let wanted = format!("the time column is bigint: give an integer, not {shown}");
        assert_eq!(error.message(), wanted);
    }
}

#[test]
fn splits_are_read() {
    let ms = timestamp(TimeUnit::Millisecond);
    let day_ms = 86_400_000;
    let cases = [
        ("1 day", day_ms, 0),
        ("day", day_ms, 0),
        ("7 days", 7 * day_ms, 0),
        ("1 week", 7 * day_ms, -3 * day_ms),
        ("2 WEEKS", 14 * day_ms, -3 * day_ms),
        ("12 hours", day_ms / 2, 0),
        ("15min", 900_000, 0),
        ("90 s", 90_000, 0),
        ("500 ms", 500, 0),
    ];
    for (text, every, origin) in cases {
        let split = Split::parse(text, &ms).unwrap();
        assert_eq!((split.every(), split.origin()), (every, origin), "{text}");
    }
    assert_eq!(
        Split::parse("2 days", &DataType::Date32).unwrap().every(),
        2
    );
    assert_eq!(
        Split::parse("1000", &DataType::Int32).unwrap(),
        Split::new(1000, 0).unwrap()
    );
    assert_eq!(
        Split::parse("10", &DataType::UInt64).unwrap(),
        Split::new(10, i64::MIN).unwrap()
    );
    for text in [
        "",
        "0 days",
        "-1 day",
        "1 fortnight",
        "1 month",
        "5",
        "100 us",
        "99999999999999999999 days",
        "300 years",
    ] {
        assert_eq!(
            Split::parse(text, &ms).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{text}"
        );
    }
    assert!(Split::parse("12 hours", &DataType::Date32).is_err());
    assert!(Split::parse("1 day", &DataType::Int64).is_err());
}

#[test]
fn weeks_begin_on_monday() {
    let seconds = timestamp(TimeUnit::Second);
    let split = Split::parse("1 week", &seconds).unwrap();
    let key = |text| {
        *key_range(&seconds, Some(TimeBound::Text(text)), None)
            .unwrap()
            .unwrap()
            .start()
    };
    // 2026-01-05 was a Monday.
    assert_eq!(
        *split.range_of(key("2026-01-08")).start(),
        key("2026-01-05")
    );
    assert_eq!(
        split.range_of(key("2026-01-05")),
        key("2026-01-05")..=key("2026-01-12") - 1
    );
}

proptest! {
    #[test]
    fn cuts_hold_their_keys(every in 1..i64::MAX, origin: i64, mut keys in prop::collection::vec(any::<i64>(), 0..50)) {
        let split = Split::new(every, origin).unwrap();
        keys.sort_unstable();
        for &key in &keys {
            let range = split.range_of(key);
            prop_assert!(range.contains(&key));
            prop_assert_eq!(split.split_of(*range.start()), split.split_of(*range.end()));
            if let Some(next) = range.end().checked_add(1) {
                prop_assert!(split.split_of(next) > split.split_of(key) || split.split_of(key) == i64::MAX);
            }
        }
        let ends = split.ends(&keys).collect::<Vec<_>>();
        prop_assert_eq!(ends.last().copied(), (!keys.is_empty()).then_some(keys.len()));
        let mut start = 0;
        for end in ends {
            let run = &keys[start..end];
            prop_assert!(run.iter().all(|&key| split.split_of(key) == split.split_of(run[0])));
            prop_assert!(end == keys.len() || split.split_of(keys[end]) != split.split_of(run[0]));
            start = end;
        }
    }
}
