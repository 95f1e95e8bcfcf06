//! The right answers for the sample (samples/README.md), worked out without Thalweg.

/// The shipped file.
pub(super) const SAMPLE: &[u8] = include_bytes!("../../../../samples/beijing-air-2016.csv.gz");
/// Bytes of the file when it is unpacked.
pub(super) const SAMPLE_TEXT_BYTES: u64 = 7_726_114;

/// Rows of the sample.
pub(super) const ROWS: u64 = 105_120;

/// Figures of one month.
pub(super) struct Month {
    pub(super) month: &'static str,
    pub(super) rows: u64,
    pub(super) count: u64,
    pub(super) sum: i64,
    pub(super) max: i64,
    pub(super) coldest: f64,
    pub(super) warmest: f64,
}

const fn month(
    month: &'static str,
    rows: u64,
    count: u64,
    sum: i64,
    max: i64,
    coldest: f64,
    warmest: f64,
) -> Month {
    Month {
        month,
        rows,
        count,
        sum,
        max,
        coldest,
        warmest,
    }
}

/// `pm25` and `temp` by month.
pub(super) const MONTHS: [Month; 12] = [
    month("2016-03", 8928, 8736, 803_700, 474, -6.6, 24.0),
    month("2016-04", 8640, 8340, 558_972, 360, 4.2, 31.5),
    month("2016-05", 8928, 8708, 467_424, 408, 5.1, 34.0),
    month("2016-06", 8640, 8433, 493_499, 272, 14.2, 38.2),
    month("2016-07", 8928, 8619, 586_838, 284, 17.8, 37.5),
    month("2016-08", 8928, 8854, 405_760, 191, 14.5, 36.2),
    month("2016-09", 8640, 8209, 444_310, 262, 6.05, 32.6),
    month("2016-10", 8928, 8665, 729_427, 414, -2.6, 29.4),
    month("2016-11", 8640, 8609, 839_223, 452, -9.0, 20.9),
    month("2016-12", 8928, 8852, 1_143_608, 646, -11.5, 11.6),
    month("2017-01", 8928, 8886, 1_006_792, 835, -13.425, 9.8),
    month("2017-02", 8064, 7842, 543_492, 529, -11.3, 16.2),
];

/// Questions with one row of numbers as an answer.
pub(super) const QUESTIONS: [(&str, &str, &[f64]); 4] = [
    (
        "rows, readings, sum and maximum of pm25",
        "SELECT count(*), count(pm25), sum(pm25), max(pm25) FROM air",
        &[105_120.0, 102_753.0, 8_023_045.0, 835.0],
    ),
    (
        "mean and standard deviation of pm25, of temp",
        "SELECT avg(pm25), stddev(pm25), avg(temp), stddev(temp) FROM air",
        &[78.080_883, 82.733_787, 13.980_888, 11.391_545],
    ),
    (
        "hours of heavy smog (pm25 > 300)",
        "SELECT count(*) FROM air WHERE pm25 > 300",
        &[2_821.0],
    ),
    (
        "the first week of 2017",
        "SELECT count(*), count(pm25), sum(pm25), avg(pm25) FROM air WHERE ts >= '2017-01-01' AND ts < '2017-01-08'",
        &[2_016.0, 1_993.0, 527_018.0, 264.434_521],
    ),
];

/// January 2017 while the readings of Shunyi are held back: rows, readings of pm25 and their sum.
pub(super) const JANUARY_WITHOUT_SHUNYI: &[f64] = &[8_184.0, 8_143.0, 919_256.0];
/// Figures of January 2017 with all readings of Shunyi.
pub(super) const JANUARY: &[f64] = &[8_928.0, 8_886.0, 1_006_792.0];
