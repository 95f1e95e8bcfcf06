//! Units of time and the names of UTC: the one place that has them.

use arrow_schema::TimeUnit;

/// Nanoseconds of a second.
pub const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds of a day.
pub const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Nanoseconds of a unit.
///
/// ```
/// use arrow_schema::TimeUnit;
/// assert_eq!(thalweg_table::time_units::unit_ns(TimeUnit::Millisecond), 1_000_000);
/// ```
#[must_use]
pub const fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => SECOND_NS,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Whether a zone is UTC by one of its usual names. `false` for others whose clocks show the same, as `Africa/Abidjan`.
#[must_use]
pub fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "utc" | "Z" | "+00:00" | "Etc/UTC" | "GMT")
}
