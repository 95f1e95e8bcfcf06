//! Prints what was found in a file before its rows are stored.

use super::advice::{shown, word};
use super::file_set::Opened;
use super::infer::{Found, Reading};
use super::numbers::{epoch_ns, whole_number};
use super::times::Order;
use crate::arguments::EpochUnit;
use crate::counts::counted;
use crate::pattern::DAY_NS;
use crate::pattern::digits_pattern;
use crate::schema::quoted;
use arrow_schema::{DataType, Field, TimeUnit};
use thalweg::{key_to_text, sql_type_name};

/// Most columns that are printed one per line; of a wider table only those with a remark are.
const MAX_LINES: usize = 30;
/// Most names of columns that are printed for one type.
const MAX_NAMES: usize = 8;
/// Numbers between these nanoseconds since the epoch, of 1990 and 2100, are taken for times.
const LIKELY_NS: std::ops::Range<i128> = 631_152_000_000_000_000..4_102_444_800_000_000_000;
const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
const UNITS: [EpochUnit; 4] = [EpochUnit::S, EpochUnit::Ms, EpochUnit::Us, EpochUnit::Ns];

/// The name of a type in messages.
pub(super) fn type_words(data_type: &DataType) -> String {
    sql_type_name(data_type).to_lowercase()
}

/// The line about a file.
pub(super) fn file_line(file: &Opened) -> String {
    let Opened { name, columns, .. } = file;
    let separated = match file.delimiter {
        None => "",
        Some(b',') => ", separated by commas",
        Some(b';') => ", separated by semicolons",
        Some(b'\t') => ", separated by tabs",
        Some(b'|') => ", separated by |",
        Some(b' ') => ", separated by spaces",
        Some(_) => ", separated as told",
    };
    let plural = if *columns == 1 { "" } else { "s" };
    let comments = match file.comments {
        0 => String::new(),
        1 => ", after a line of comment".to_owned(),
        lines => format!(", after {lines} lines of comment"),
    };
    format!("{name}: {columns} column{plural}{separated}{comments}")
}

/// Details of how a column is read, for its line.
fn details(reading: &Reading) -> String {
    let mut details = String::new();
    if reading.decimal_comma {
        details.push_str(" with a decimal comma");
    }
    // A pattern shows the order of day and month by itself.
    match reading.order.filter(|_| reading.pattern.is_none()) {
        Some(Order::DayFirst) => details.push_str(", day first"),
        Some(Order::MonthFirst) => details.push_str(", month first"),
        None => {}
    }
    if let Some(pattern) = &reading.pattern {
        details.push_str(&format!(", as {}", pattern.text()));
    }
    if let Some(unit) = reading.unit {
        details.push_str(&format!(", in {} since 1970", unit.name()));
    }
    details
}

/// The lines about the columns of a table that is to be made.
pub(super) fn column_lines(names: &[String], found: &[Found]) -> Vec<String> {
    let line = |name: &String, found: &Found| {
        let reason = found.reason.as_ref();
        let named = format!("--type {}=", word(name));
        let reason = reason.map(|reason| reason.replace("--type COLUMN=", &named));
        let reason = reason.map_or_else(String::new, |reason| format!(" {reason}"));
        format!(
            "  {name} is {}{}{reason}",
            type_words(&found.data_type),
            details(&found.reading)
        )
    };
    let pairs = || names.iter().zip(found);
    if names.len() <= MAX_LINES {
        return pairs().map(|(name, found)| line(name, found)).collect();
    }
    let is_notable = |found: &Found| found.reason.is_some() || !details(&found.reading).is_empty();
    let mut lines = Vec::new();
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, found) in pairs() {
        if is_notable(found) {
            lines.push(line(name, found));
            continue;
        }
        let words = type_words(&found.data_type);
        match groups.iter_mut().find(|(group, _)| *group == words) {
            Some((_, names)) => names.push(name),
            None => groups.push((words, vec![name])),
        }
    }
    lines.extend(groups.iter().map(|(words, names)| {
        let shown = names[..names.len().min(MAX_NAMES)].join(", ");
        let dots = if names.len() > MAX_NAMES { ", ..." } else { "" };
        match names.len() {
            1 => format!("  {shown} is {words}"),
            count => format!("  {count} columns are {words}: {shown}{dots}"),
        }
    }));
    lines
}

/// The lines about columns of an existing table that are not read as they stand, such as with a decimal comma.
pub(super) fn reading_lines(
    names: &[String],
    types: &[DataType],
    readings: &[Reading],
) -> Vec<String> {
    let columns = names.iter().zip(types).zip(readings);
    let lines = columns.filter_map(|((name, data_type), reading)| {
        let details = details(reading);
        (!details.is_empty()).then(|| format!("  {name} is {}{details}", type_words(data_type)))
    });
    lines.collect()
}

/// The unit in which a number since the epoch is a time between 1990 and 2100.
fn likely_unit(text: &str) -> Option<(EpochUnit, i128)> {
    let times = UNITS.iter().map(|unit| (*unit, epoch_ns(text, unit.ns())));
    times
        .filter_map(|(unit, ns)| Some((unit, ns?)))
        .find(|(_, ns)| LIKELY_NS.contains(ns))
}

/// A column of numbers that all look like times between 1990 and 2100.
pub(super) struct NumberTimes {
    /// The first of them, and the time that it is likely meant to be.
    number: String,
    time: String,
    /// The option that reads them as times.
    option: String,
    /// `None` where their digits are those of a date.
    unit: Option<EpochUnit>,
}

/// The unit or pattern by which all of the numbers are times between 1990 and 2100, if there is one.
pub(super) fn number_times<'a>(mut values: impl Iterator<Item = &'a str>) -> Option<NumberTimes> {
    let first = values.next()?;
    let text = whole_number(first).unwrap_or(first);
    let (option, unit, ns, data_type) = match digits_pattern(text) {
        Some((pattern, ns)) => {
            let same = |text: &str| digits_pattern(text).is_some_and(|(other, _)| other == pattern);
            let data_type = match pattern {
                "%Y%m%d" => DataType::Date32,
                _ => TIME,
            };
            values
                .all(same)
                .then(|| (format!("--time-format {pattern}"), None, ns, data_type))?
        }
        None => {
            let (unit, ns) = likely_unit(text)?;
            let same = |text: &str| likely_unit(text).is_some_and(|(other, _)| other == unit);
            let option = format!("--time-unit {}", unit.name());
            values.all(same).then_some((option, Some(unit), ns, TIME))?
        }
    };
    let key = match data_type {
        DataType::Date32 => ns / DAY_NS,
        _ => ns,
    };
    let time = key_to_text(&data_type, i64::try_from(key).ok()?);
    Some(NumberTimes {
        number: text.to_owned(),
        time,
        option,
        unit,
    })
}

impl NumberTimes {
    /// The line about such a column before rows are stored; `names_time`: no column orders them yet. `clock`: the column with
    /// the clock of its dates, and a value of it.
    pub(super) fn line(&self, name: &str, names_time: bool, clock: Option<(&str, &str)>) -> String {
        if names_time
            && self.option == "--time-format %Y%m%d"
            && let Some((clock, text)) = clock
            && let Some(pattern) = clock_pattern(text)
        {
            return format!(
                "  {name} stays a number; --time {} --time-format '%Y%m%d {pattern}' reads {} {text} as {}T{text}",
                word(&format!("{name},{clock}")),
                self.number,
                self.time
            );
        }
        let Self {
            number,
            time,
            option,
            ..
        } = self;
        let named = if names_time {
            format!("--time {} ", word(name))
        } else {
            String::new()
        };
        format!("  {name} stays a number; {named}{option} reads {number} as {time}")
    }

    /// The line about such a column that orders the rows of a table, after they were stored.
    pub(super) fn stored_line(&self, name: &str, table: &str) -> String {
        let function = self.unit.map(|unit| match unit {
            EpochUnit::S => "to_timestamp",
            EpochUnit::Ms => "epoch_ms",
            EpochUnit::Us => "epoch_us",
            EpochUnit::Ns => "epoch_ns",
        });
        let [column, table] = [name, table].map(quoted);
        let in_sql = function.map_or_else(String::new, |function| {
            format!(
                ", and CREATE TABLE other WITH (time = '{}') AS SELECT * REPLACE ({function}({column}) AS {column}) FROM {table} makes \
                 a table of times of this one",
                name.replace('\'', "''")
            )
        });
        format!(
            "{name} is stored as a number: an import into a new table with {} stores times, {} as {}{in_sql}",
            self.option, self.number, self.time
        )
    }
}

/// A warning that times are so early that the unit is likely a wrong one.
pub(super) fn early_times(name: &str, first: &str, unit: EpochUnit) -> String {
    let likely = likely_unit(first)
        .filter(|(likely, _)| *likely != unit)
        .map_or_else(
            || "is the unit right?".to_owned(),
            |(likely, _)| format!("is --time-unit {} meant?", likely.name()),
        );
    format!(
        "warning: the times of {name} come out in 1970 when {} counts {}: {likely}",
        shown(first),
        unit.name()
    )
}

/// The column with the clock of a date: the next one of clocks.
pub(super) fn clock_of(
    fields: &[Field],
    date: usize,
    is_clock: impl Fn(usize) -> bool,
) -> Option<usize> {
    // `--time` divides the two by a comma.
    let has_comma = |place: usize| fields[place].name().contains(',');
    let is_text = |place: usize| *fields[place].data_type() == DataType::Utf8;
    let clocks =
        (0..fields.len()).filter(|place| is_text(*place) && is_clock(*place) && !has_comma(*place));
    clocks
        .min_by_key(|place| place.abs_diff(date))
        .filter(|_| !has_comma(date))
}

/// The pattern of a clock of digits and colons.
fn clock_pattern(clock: &str) -> Option<&'static str> {
    let is_plain = clock
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b':');
    match clock.matches(':').count() {
        1 if is_plain => Some("%H:%M"),
        2 if is_plain => Some("%H:%M:%S"),
        _ => None,
    }
}

/// The value of `--time` that names the column of times of a file, if there is one: a full time, a date and a clock that has
/// a column of its own, or a date. `is_clock`: whether the column at a place is one of clocks.
fn time_word(fields: &[Field], is_clock: impl Fn(usize) -> bool) -> Option<String> {
    let is_full = |field: &&Field| matches!(field.data_type(), DataType::Timestamp(..));
    if let Some(full) = fields.iter().find(is_full) {
        return Some(word(full.name()));
    }
    let is_date = |field: &Field| *field.data_type() == DataType::Date32;
    let date = fields.iter().position(is_date)?;
    let clock = clock_of(fields, date, is_clock);
    Some(match clock {
        Some(clock) => word(&format!("{},{}", fields[date].name(), fields[clock].name())),
        None => word(fields[date].name()),
    })
}

/// The line about a new table that is ordered by a date whose clock has a column of its own.
pub(super) fn date_alone(
    fields: &[Field],
    date: usize,
    is_clock: impl Fn(usize) -> bool,
) -> Option<String> {
    if *fields[date].data_type() != DataType::Date32 {
        return None;
    }
    let clock = fields[clock_of(fields, date, is_clock)?].name();
    let date = fields[date].name();
    let both = word(&format!("{date},{clock}"));
    Some(format!(
        "  rows of one {date} keep the order of the file: --time {both} orders them by {clock} too"
    ))
}

/// The line about a new table that is ordered by no column: which option orders it.
pub(super) fn no_time(
    names: &[String],
    fields: &[Field],
    is_clock: impl Fn(usize) -> bool,
) -> String {
    if let Some(time) = time_word(fields, is_clock) {
        return format!("  rows keep the order of the file: --time {time} orders them by time");
    }
    let of = |part: &str| names.iter().find(|name| name.eq_ignore_ascii_case(part));
    if let [Some(year), Some(month)] = [of("year"), of("month")] {
        let part = |name: &str, without: &str| {
            of(name).map_or_else(|| without.to_owned(), |name| quoted(name))
        };
        return format!(
            "  rows keep the order of the file; CREATE TABLE other WITH (time = 'ts') AS SELECT make_timestamp({}, {}, {}, {}, {}, {}) \
             AS ts, * FROM the table makes one that is ordered by time",
            quoted(year),
            quoted(month),
            part("day", "1"),
            part("hour", "0"),
            part("minute", "0"),
            part("second", "0")
        );
    }
    "  rows keep the order of the file, as no column is a time: --time COLUMN names the one that orders them".to_owned()
}

/// A warning that the first row may have been taken for the names of columns.
pub(super) fn odd_header(file: &str, names: &[String]) -> String {
    let some: Vec<String> = names.iter().take(3).map(|name| shown(name)).collect();
    format!(
        "warning: the first line of {file} looks like a row ({}), but names the columns: --no-header stores it as a row",
        some.join(", ")
    )
}

/// The line after an import that has named options which give columns of the new table other types.
pub(super) fn made_anew(table: &str) -> String {
    format!(
        "for other types: DROP TABLE {}, then import again with the options above",
        quoted(table)
    )
}

/// The line about a table that `--create` has found, with the columns whose types the file alone would not have given.
pub(super) fn was_there<'a>(
    table: &str,
    rows: u64,
    found: impl IntoIterator<Item = (&'a Field, DataType)>,
) -> String {
    let differs = |is: &DataType, found: &DataType| match (is, found) {
        // What the column takes as it is.
        (DataType::Decimal128(..), DataType::Int64)
        | (DataType::Timestamp(..), DataType::Timestamp(..) | DataType::Date32 | DataType::Int64) => {
            false
        }
        (is, found) if is.is_integer() => !found.is_integer(),
        (is, found) if is.is_floating() => !found.is_numeric(),
        (is, found) => is != found,
    };
    let difference = |(field, found): (&Field, DataType)| {
        let is = field.data_type();
        differs(is, &found).then(|| {
            format!(
                "; {} is {} there, and {} by the file",
                field.name(),
                type_words(is),
                type_words(&found)
            )
        })
    };
    let differences: String = found.into_iter().filter_map(difference).collect();
    format!(
        "table \"{table}\" was there, with {}{differences}",
        counted(rows, "row")
    )
}
