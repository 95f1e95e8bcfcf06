//! Types of columns from their text, and how that text is read.
//!
//! Invariants
//! - The type of a column takes every value that was looked at, without loss, unless bad rows are expected.
//! - The order of day and month is decided by all values of a column together.

use super::advice::{digits_advice, null_option, number_advice, quoted};
use super::chunk::Chunk;
use super::column_names::is_of_codes;
use super::digits::{Digits, Example};
use super::kinds::{Kind, Rules, uses_orders};
use super::numbers::{is_int64, loses_digits, whole_number};
use super::times::{ORDERS, Order, TimeText, unread_time};
use crate::arguments::EpochUnit;
use crate::pattern::Pattern;
use arrow_schema::DataType;
use thalweg::sql_type_name;

/// Markers of missing values, compared without regard to case. They make a column text unless `--null` names them.
const MARKERS: [&str; 18] = [
    "na", "n/a", "#n/a", "#na", "null", "(null)", "\\n", "nil", "none", "nan", "nat", "-", "--",
    "?", ".", "*", "missing", "#value!",
];
/// After this many values of one type, a value of no type counts as a bad row.
const MANY_VALUES: u64 = 10;
/// Most different markers that are remembered per column.
const MAX_MARKERS: usize = 8;

/// How the text of a column becomes values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub(super) decimal_comma: bool,
    /// The separator of thousands.
    pub(super) thousands: Option<char>,
    /// Zeros in front of whole numbers are dropped.
    pub(super) is_padded: bool,
    /// Whether day or month comes first, in dates with the year last.
    pub(super) order: Option<Order>,
    pub(super) pattern: Option<Pattern>,
    pub(super) unit: Option<EpochUnit>,
    /// An integer in a column of floats must convert to a float without loss.
    pub(super) exact: bool,
    /// No time of the sample has an offset: a later one that has does not fit the column.
    pub(super) is_local: bool,
}

/// The findings about a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) data_type: DataType,
    pub(super) reading: Reading,
    /// Why it is text, or that some of its times have no offset.
    pub(super) reason: Option<String>,
}

/// The findings about a column so far, from its values.
#[derive(Clone, Debug)]
struct Column {
    /// The kinds that fit every value so far; markers are not counted.
    kinds: Vec<Kind>,
    /// The orders of day and month that fit every date so far.
    orders: Vec<Order>,
    /// Whether some date has its year last.
    needs_order: bool,
    /// A date that is one day in the one order and another day in the other.
    ambiguous: Option<Example>,
    /// A time without an offset.
    without_offset: Option<Example>,
    /// Markers that fit no kind, each where it comes first.
    markers: Vec<Example>,
    /// The *culprit*: the first value after which no kind fits all values, unless it is the very first value.
    culprit: Option<Example>,
    /// The kinds of the values before the culprit, if there were [`MANY_VALUES`], and of those after it that some of them take.
    before_culprit: Vec<Kind>,
    /// The culprit and the values after it that none of those kinds takes.
    others: u64,
    /// How whole numbers are written.
    digits: Digits,
    /// Its name is one that columns of codes have, so leading zeros are significant.
    has_name_of_codes: bool,
    /// The first value with a decimal point.
    with_point: Option<Example>,
    /// The first value.
    first: Option<Example>,
    /// The kinds that fit every value but the first, if that one is text; markers are not counted.
    behind_first: Vec<Kind>,
    /// Values, without markers.
    values: u64,
    /// Whether any row has a value, bad rows included.
    has_any: bool,
}

/// How many values each kind takes: the type of the time column is that of most values.
#[derive(Clone, Debug)]
struct TimeColumn {
    column: usize,
    counts: Vec<(Kind, u64)>,
    /// Year-last dates that fit each order.
    orders: [u64; 2],
    /// The first of them that fits only that order.
    only: [Option<Example>; 2],
}

/// Finds the types of all columns, chunk by chunk.
#[derive(Clone, Debug)]
pub(super) struct Inference {
    rules: Rules,
    columns: Vec<Column>,
    time: Option<TimeColumn>,
}

impl Inference {
    /// `time` is the column that orders the new table.
    pub(super) fn new(rules: Rules, columns: usize, time: Option<usize>) -> Self {
        let column = Column {
            kinds: rules.kinds(),
            orders: ORDERS.to_vec(),
            needs_order: false,
            ambiguous: None,
            without_offset: None,
            markers: Vec::new(),
            culprit: None,
            before_culprit: Vec::new(),
            others: 0,
            digits: Digits::default(),
            has_name_of_codes: false,
            with_point: None,
            first: None,
            behind_first: Vec::new(),
            values: 0,
            has_any: false,
        };
        let counts = rules.time_kinds().into_iter().map(|kind| (kind, 0));
        let time = time.map(|column| TimeColumn {
            column,
            counts: counts.collect(),
            orders: [0; 2],
            only: [None, None],
        });
        Self {
            columns: vec![column; columns],
            time,
            rules,
        }
    }

    /// Sets the names of the columns.
    pub(super) fn name(&mut self, names: &[String]) {
        for (column, name) in self.columns.iter_mut().zip(names) {
            column.has_name_of_codes = is_of_codes(name);
        }
    }

    /// From now on a value that fits no type makes a bad row.
    pub(super) fn expect_bad_rows(&mut self) {
        self.rules.expects_bad_rows = true;
    }

    pub(super) fn look(&mut self, chunk: &Chunk) {
        let time = self.time.as_ref().map(|time| time.column);
        // A row without a time is a bad row, and does not count for the other columns.
        let has_time = time.map(|place| self.look_at_times(chunk, place));
        for (place, texts) in chunk.columns.iter().enumerate() {
            if time == Some(place) {
                continue;
            }
            let column = &mut self.columns[place];
            if chunk.is_text[place] {
                column.kinds.retain(|kind| kind.is_time_text());
            }
            for (row, (line, text)) in chunk.lines.iter().zip(texts).enumerate() {
                let text = text.unwrap_or_default().trim();
                let is_bad = has_time.as_ref().is_some_and(|has_time| !has_time[row]);
                if text.is_empty() || column.is_settled() {
                    continue;
                }
                column.has_any = true;
                if !is_bad {
                    column.look(&self.rules, *line, text);
                }
            }
        }
    }

    /// Counts the kinds of values in the column of times; returns for each row whether it has a time.
    fn look_at_times(&mut self, chunk: &Chunk, place: usize) -> Vec<bool> {
        let mut has_time = vec![false; chunk.rows()];
        let Some(time) = &mut self.time else {
            return has_time;
        };
        let column = &mut self.columns[place];
        for (row, (line, text)) in chunk.lines.iter().zip(&chunk.columns[place]).enumerate() {
            let text = text.unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let example = || Example {
                line: *line,
                text: text.to_owned(),
            };
            column.first.get_or_insert_with(example);
            let read = TimeText::parse(text);
            if read.is_some_and(|read| !read.has_zone()) {
                column.without_offset.get_or_insert_with(example);
            }
            for (kind, count) in &mut time.counts {
                let takes = match kind {
                    // Texts of JSON are no numbers.
                    Kind::Int => {
                        !chunk.is_text[place] && (is_int64(text) || whole_number(text).is_some())
                    }
                    kind => self.rules.takes(*kind, text, read.as_ref()),
                };
                *count += u64::from(takes);
                has_time[row] |= takes;
            }
            if let Some(read) = read.filter(TimeText::needs_order) {
                for (order, count) in ORDERS.iter().zip(&mut time.orders) {
                    *count += u64::from(read.fits(*order));
                }
                if read.is_ambiguous() {
                    column.ambiguous.get_or_insert_with(example);
                }
                match ORDERS.map(|order| read.fits(order)) {
                    [true, false] => drop(time.only[0].get_or_insert_with(example)),
                    [false, true] => drop(time.only[1].get_or_insert_with(example)),
                    _ => {}
                }
            }
        }
        has_time
    }

    /// Two values of the column of times of which one has the day first and one the month.
    pub(super) fn contradiction(&self, place: usize) -> Option<[&Example; 2]> {
        let of_time = self.time.as_ref().filter(|time| time.column == place)?;
        let [day_first, month_first] = &of_time.only;
        Some([day_first.as_ref()?, month_first.as_ref()?])
    }

    /// Whether another look at all rows might find a type that takes this value.
    pub(super) fn could_take(&self, place: usize, text: &str) -> bool {
        let time = TimeText::parse(text);
        let takes = |kind: &Kind| self.rules.takes(*kind, text, time.as_ref());
        if let Some(of_time) = self.time.as_ref().filter(|time| time.column == place) {
            return of_time.counts.iter().any(|(kind, _)| takes(kind));
        }
        !self.rules.expects_bad_rows || self.columns[place].kinds.iter().any(takes)
    }

    /// Whether a column of which no value was seen could have another type than text for this one; `is_text`: it is a text in the
    /// file.
    pub(super) fn has_type_for(&self, place: usize, text: &str, is_text: bool) -> bool {
        let time = TimeText::parse(text);
        let mut kinds = self.columns[place].kinds.iter();
        kinds.any(|kind| {
            (!is_text || kind.is_time_text())
                && *kind != Kind::PaddedInt
                && self.rules.takes(*kind, text, time.as_ref())
        })
    }

    /// The first value of a column.
    pub(super) fn first_value(&self, place: usize) -> Option<&Example> {
        self.columns[place].first.as_ref()
    }

    /// Whether it is still open if day or month is first. `reads_times`: the column of the table is a time, whatever the
    /// values look like.
    pub(super) fn is_undecided(&self, place: usize, reads_times: bool) -> bool {
        let of_time = self.time.as_ref().filter(|time| time.column == place);
        if let Some(time) = of_time {
            let [day_first, month_first] = time.orders;
            return self.time_kind().is_some_and(uses_orders)
                && day_first > 0
                && day_first == month_first;
        }
        let column = &self.columns[place];
        let is_time = column.kind().is_some_and(uses_orders);
        let reads_times = reads_times && self.rules.patterns.is_empty();
        (is_time || reads_times) && column.needs_order && column.orders.len() == ORDERS.len()
    }

    /// A date of an undecided column of which the two orders make two days.
    pub(super) fn ambiguous(&self, place: usize, reads_times: bool) -> Option<&Example> {
        let example = self.columns[place].ambiguous.as_ref();
        example.filter(|_| self.is_undecided(place, reads_times))
    }

    fn time_kind(&self) -> Option<Kind> {
        let counts = &self.time.as_ref()?.counts;
        // The narrowest of those that take equally many values.
        let most = counts.iter().rev().max_by_key(|(_, count)| *count)?;
        (most.1 > 0).then_some(most.0)
    }

    /// The type of a column; `None` for a time column without any time.
    pub(super) fn found(&self, place: usize) -> Option<Found> {
        let column = &self.columns[place];
        let of_time = self.time.as_ref().filter(|time| time.column == place);
        if of_time.is_some() {
            let kind = self.time_kind()?;
            return Some(self.found_kind(kind, self.order(place), column));
        }
        match column.kind() {
            Some(Kind::Float) if self.has_commas_elsewhere() && column.with_point.is_some() => {
                Some(mixed_decimals(column))
            }
            Some(kind) => Some(self.found_kind(kind, column.order(), column)),
            None => Some(Found {
                data_type: DataType::Utf8,
                reading: Reading::default(),
                reason: column.why_text(&self.rules),
            }),
        }
    }

    /// Whether some column has decimal commas.
    fn has_commas_elsewhere(&self) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|column| column.kind() == Some(Kind::CommaFloat))
    }

    fn found_kind(&self, kind: Kind, order: Option<Order>, column: &Column) -> Found {
        let pattern = match kind {
            Kind::Pattern(number) => Some(self.rules.patterns[number].clone()),
            _ => None,
        };
        Found {
            data_type: self.rules.data_type(kind),
            reading: Reading {
                decimal_comma: kind == Kind::CommaFloat,
                thousands: self.rules.thousands.filter(|_| kind.is_number()),
                is_padded: kind == Kind::PaddedInt,
                order: order.filter(|_| uses_orders(kind)),
                pattern,
                unit: self.rules.unit.filter(|_| kind == Kind::Epoch),
                exact: true,
                is_local: matches!(kind, Kind::Time | Kind::FarTime),
            },
            reason: match kind {
                Kind::ZonedTime | Kind::FarZonedTime => column.offset_reason(),
                Kind::PaddedInt => column.zeros_reason(),
                _ => None,
            },
        }
    }

    /// A note about times without an offset in a column of times with a zone.
    pub(super) fn offset_reason(&self, place: usize, data_type: &DataType) -> Option<String> {
        let has_zone = matches!(data_type, DataType::Timestamp(_, Some(_)));
        has_zone.then(|| self.columns[place].offset_reason())?
    }

    /// Whether day or month is first in a column, where that matters.
    fn order(&self, place: usize) -> Option<Order> {
        match self.time.as_ref().filter(|time| time.column == place) {
            Some(time) => (time.orders != [0, 0])
                .then(|| ORDERS[usize::from(time.orders[1] > time.orders[0])]),
            None => self.columns[place].order(),
        }
    }

    /// How a column is read into one of this type that is there already.
    pub(super) fn reading(&self, place: usize, data_type: &DataType) -> Reading {
        let column = &self.columns[place];
        if !matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
            return Reading {
                decimal_comma: column.has_decimal_comma()
                    || self.rules.decimals == [Kind::CommaFloat],
                thousands: self.rules.thousands,
                ..Reading::default()
            };
        }
        let fits_pattern = column.kinds.iter().find_map(|kind| match kind {
            Kind::Pattern(number) => self.rules.patterns.get(*number),
            _ => None,
        });
        Reading {
            order: self.order(place),
            pattern: fits_pattern.or(self.rules.patterns.first()).cloned(),
            unit: self.rules.unit,
            ..Reading::default()
        }
    }
}

/// Text, of a column with decimal points where another one has decimal commas: one of the signs divides thousands.
fn mixed_decimals(column: &Column) -> Found {
    let reason = column.with_point.as_ref().map(|example| {
        format!(
            "because of {} (line {}), where another column has decimal commas: --decimal says which sign it is, and --thousands . that it divides thousands",
            quoted(&example.text),
            example.line
        )
    });
    Found {
        data_type: DataType::Utf8,
        reading: Reading::default(),
        reason,
    }
}

impl Column {
    /// Whether nothing can change any more.
    fn is_settled(&self) -> bool {
        self.kinds.is_empty() && self.behind_first.is_empty() && self.before_culprit.is_empty()
    }

    fn remember_marker(&mut self, marker: Example) {
        let is_new = !self.markers.iter().any(|known| known.text == marker.text);
        if is_new && self.markers.len() < MAX_MARKERS {
            self.markers.push(marker);
        }
    }

    /// Narrows the kinds of the values after a first value that is text.
    fn look_behind_first(&mut self, rules: &Rules, line: u64, text: &str) {
        if is_marker(text) {
            return self.remember_marker(Example {
                line,
                text: text.to_owned(),
            });
        }
        let time = TimeText::parse(text);
        self.behind_first
            .retain(|kind| rules.takes(*kind, text, time.as_ref()));
        self.values += 1;
    }

    /// Counts a value that comes after the culprit.
    fn look_after_culprit(&mut self, rules: &Rules, text: &str) {
        let may_be_time = self.before_culprit.iter().any(|kind| uses_orders(*kind));
        let time = may_be_time.then(|| TimeText::parse(text)).flatten();
        let takes = |kind: &Kind| rules.takes(*kind, text, time.as_ref());
        if self.before_culprit.iter().any(takes) {
            self.before_culprit.retain(takes);
            self.values += 1;
        } else if !is_marker(text) {
            self.others += 1;
        }
    }

    fn look(&mut self, rules: &Rules, line: u64, text: &str) {
        let example = || Example {
            line,
            text: text.to_owned(),
        };
        if !self.before_culprit.is_empty() {
            return self.look_after_culprit(rules, text);
        }
        if self.kinds.is_empty() {
            return self.look_behind_first(rules, line, text);
        }
        self.first.get_or_insert_with(example);
        let may_be_time = self.kinds.iter().any(|kind| uses_orders(*kind));
        let time = may_be_time.then(|| TimeText::parse(text)).flatten();
        let orders: Vec<Order> = time.map_or_else(
            || self.orders.clone(),
            |time| {
                self.orders
                    .iter()
                    .copied()
                    .filter(|order| time.fits(*order))
                    .collect()
            },
        );
        let takes = |kind: Kind| {
            rules.takes(kind, text, time.as_ref()) && (!uses_orders(kind) || !orders.is_empty())
        };
        if !self.kinds.iter().any(|kind| takes(*kind)) {
            if is_marker(text) {
                return self.remember_marker(example());
            }
            if rules.expects_bad_rows {
                return;
            }
            self.culprit = (self.values > 0).then(example);
            self.others = 1;
            if self.values >= MANY_VALUES {
                self.before_culprit.clone_from(&self.kinds);
            }
            if self.culprit.is_none() && self.markers.is_empty() {
                self.behind_first = std::mem::take(&mut self.kinds);
            }
            self.kinds.clear();
            return;
        }
        self.values += 1;
        let takes_comma = |kinds: &[Kind]| kinds.contains(&Kind::CommaFloat);
        let took_comma = takes_comma(&self.kinds);
        self.kinds.retain(|kind| takes(*kind));
        if self.kinds.contains(&Kind::PaddedInt) {
            self.digits.look(line, text);
        }
        if took_comma && !takes_comma(&self.kinds) && self.kinds.contains(&Kind::Float) {
            self.with_point.get_or_insert_with(example);
        }
        if let Some(time) = time {
            if !time.has_zone() {
                self.without_offset.get_or_insert_with(example);
            }
            self.orders = orders;
            self.needs_order |= time.needs_order();
            if time.is_ambiguous() {
                self.ambiguous.get_or_insert_with(example);
            }
        }
    }

    fn offset_reason(&self) -> Option<String> {
        let example = self.without_offset.as_ref()?;
        Some(format!(
            "where {} (line {}) has no offset and counts as UTC",
            quoted(&example.text),
            example.line
        ))
    }

    /// The kind of the column; `None` for text.
    fn kind(&self) -> Option<Kind> {
        let is_known = self.values > 0 && self.markers.is_empty() && !self.is_code();
        self.kinds.first().filter(|_| is_known).copied()
    }

    /// Whether its digits are codes, in which leading zeros are significant.
    fn is_code(&self) -> bool {
        self.kinds.first() == Some(&Kind::PaddedInt)
            && (self.has_name_of_codes || self.digits.are_codes())
    }

    /// A note that the zeros in front of some numbers are dropped.
    fn zeros_reason(&self) -> Option<String> {
        let example = self.digits.padded()?;
        Some(format!(
            "without the zeros in front of {} (line {}): --type COLUMN=varchar keeps them",
            quoted(&example.text),
            example.line
        ))
    }

    /// Which of day and month is first, where that matters.
    fn order(&self) -> Option<Order> {
        self.orders.first().filter(|_| self.needs_order).copied()
    }

    fn has_decimal_comma(&self) -> bool {
        let has = |kind: Kind| self.kinds.contains(&kind);
        has(Kind::CommaFloat) && !has(Kind::Float)
    }

    fn why_text(&self, rules: &Rules) -> Option<String> {
        if !self.has_any {
            return Some("as it has no values: --type COLUMN=double for numbers".to_owned());
        }
        if self.kinds.is_empty() {
            // A first value is a reason only where something can be done about it.
            let first = self.first.as_ref();
            let culprit = self.culprit.as_ref().or(first)?;
            let of_digits = || {
                // Zeros in front are no reason of it where another value is a text.
                let first = first.filter(|first| loses_digits(&first.text));
                let of_first = first.and_then(|first| digits_advice(&first.text));
                of_first.or_else(|| digits_advice(&culprit.text))
            };
            let number_advice = number_advice(&culprit.text).map(|advice| format!(": {advice}"));
            let advice = number_advice.or_else(of_digits);
            if self.culprit.is_none() && advice.is_none() {
                return self.why_the_first_is_text(rules).or_else(|| {
                    let hint = unread_time(&culprit.text)?;
                    let (text, line) = (quoted(&culprit.text), culprit.line);
                    Some(format!("because of {text} (line {line}): {hint}"))
                });
            }
            let advice = advice
                .or_else(|| self.few_others(rules))
                .unwrap_or_default();
            return Some(format!(
                "because of {} (line {}){advice}",
                quoted(&culprit.text),
                culprit.line
            ));
        }
        if self.is_code() {
            let example = self.digits.padded()?;
            return Some(format!(
                "because of {} (line {}){}",
                quoted(&example.text),
                example.line,
                digits_advice(&example.text)?
            ));
        }
        let marker = self.markers.first()?;
        Some(format!(
            "because of {} (line {}): {}",
            quoted(&marker.text),
            marker.line,
            self.null_options().trim_end()
        ))
    }

    /// The options that make NULL of the markers, each with a blank after it.
    fn null_options(&self) -> String {
        let options = self.markers.iter();
        options
            .map(|marker| format!("{} ", null_option(&marker.text)))
            .collect()
    }

    /// Returns a note on the few values that make a column text though all others have another type; `None` if there are many,
    /// as in a column of codes.
    fn few_others(&self, rules: &Rules) -> Option<String> {
        let kind = *self.before_culprit.first()?;
        if self.others * MANY_VALUES > self.values {
            return None;
        }
        let kind = sql_type_name(&rules.data_type(kind)).to_lowercase();
        let others = match self.others {
            1 => format!("the only one of {} values that is", self.values + 1),
            others => format!(
                "one of {others} values of {} that are",
                self.values + others
            ),
        };
        Some(format!(
            ", {others} no {kind}: --type COLUMN={kind} --rejects FILE stores the others and writes such rows to the file"
        ))
    }

    /// The reason why only the first value is text, as a row of units is, below the names.
    fn why_the_first_is_text(&self, rules: &Rules) -> Option<String> {
        let (first, kind) = (self.first.as_ref()?, self.behind_first.first()?);
        if *kind == Kind::PaddedInt {
            return None;
        }
        let kind = sql_type_name(&rules.data_type(*kind)).to_lowercase();
        let missing = self.markers.iter().map(|marker| quoted(&marker.text));
        let missing: Vec<String> = missing.collect();
        let but = match missing.is_empty() {
            true => String::new(),
            false => format!(" but {}", missing.join(", ")),
        };
        (self.values > 0).then(|| {
            format!(
                "because of {} (line {}), the only value{but} that is no {kind}: {}--type COLUMN={kind} --rejects FILE stores the others and writes such rows to the file",
                quoted(&first.text),
                first.line,
                self.null_options(),
            )
        })
    }
}

/// Whether it stands for a missing value in many files.
pub(super) fn is_marker(text: &str) -> bool {
    MARKERS
        .iter()
        .any(|marker| text.eq_ignore_ascii_case(marker))
}

#[cfg(test)]
mod tests {
    use super::super::chunk::ChunkBuilder;
    use super::*;
    use crate::arguments::ImportOptions;
    use arrow_schema::TimeUnit;

    fn chunk_of(texts: &[&str]) -> Chunk {
        let mut chunk = ChunkBuilder::new(1, false);
        for (line, text) in (2..).zip(texts) {
            chunk.push(line, text.as_bytes(), [Some(*text)].into_iter());
        }
        chunk.finish().unwrap()
    }

    fn inferred(texts: &[&str], time: Option<usize>, delimiter: u8) -> Inference {
        let rules = Rules::new(&ImportOptions::default(), Some(delimiter), false);
        let mut inference = Inference::new(rules, 1, time);
        inference.look(&chunk_of(texts));
        inference
    }

    fn of(texts: &[&str]) -> DataType {
        inferred(texts, None, b',').found(0).unwrap().data_type
    }

    fn why(texts: &[&str]) -> Option<String> {
        inferred(texts, None, b',').found(0).unwrap().reason
    }

    #[test]
    fn the_time_that_takes_most() {
        let of = |texts: &[&str]| {
            let found = inferred(texts, Some(0), b',').found(0);
            found.map(|found| found.data_type)
        };
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(
            of(&["never", "2016-03-01", "2016-03-02"]),
            Some(DataType::Date32)
        );
        assert_eq!(of(&["2016-03-01", "?", "2016-03-02T05:00:00"]), Some(time));
        assert_eq!(of(&["2016-03-01", "5", "6"]), Some(DataType::Int64));
        assert_eq!(of(&["1662858720.0"]), Some(DataType::Int64));
        assert_eq!(of(&["never", ""]), None);
    }

    #[test]
    fn the_most_particular_type_that_takes_all() {
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        for (texts, wanted) in [
            (&["1", "-20", " 3 ", "0"][..], DataType::Int64),
            (&["1", "2.5", "-1e-3", "NaN", "0", "0.5"], DataType::Float64),
            (&["true", "FALSE"], DataType::Boolean),
            (&["2016-03-01", "2016-12-31"], DataType::Date32),
            (&["2016/03/01", "1.4.2016"], DataType::Date32),
            (
                &[
                    "2016-03-01T05:00:00",
                    "2016-03-01 05:00:00.25",
                    "2016-03-01",
                ],
                time,
            ),
            (
                &["2016-03-01T05:00:00Z", "2016-03-01T05:00:00+02:00"],
                zoned.clone(),
            ),
            (&["2016-03-01T05:00:00Z", "2016-03-01T05:00:00"], zoned),
            (&["007", "8"], DataType::Utf8),
            (&["99999999999999999999"], DataType::Utf8),
            (&["9007199254740993", "0.5"], DataType::Utf8),
            (&["1", "one"], DataType::Utf8),
            (&["1", "true"], DataType::Utf8),
            (&["2016-02-30"], DataType::Utf8),
            (&["13.01.2016", "01.13.2016"], DataType::Utf8),
            (&["1,5"], DataType::Utf8),
            (&["-"], DataType::Utf8),
            (&["", " "], DataType::Utf8),
            (&["", "4"], DataType::Int64),
        ] {
            assert_eq!(of(texts), wanted, "{texts:?}");
        }
    }

    #[test]
    fn why_a_column_is_text() {
        assert_eq!(
            why(&["1", "NA", "2.5", "-"]).as_deref(),
            Some("because of 'NA' (line 3): --null NA --null -")
        );
        assert_eq!(
            why(&["NA", "1"]).as_deref(),
            Some("because of 'NA' (line 2): --null NA")
        );
        let many = [&["1"; 10][..], &["x"]].concat();
        assert_eq!(
            why(&many).as_deref(),
            Some(
                "because of 'x' (line 12), the only one of 11 values that is no bigint: --type COLUMN=bigint --rejects FILE stores the others and writes such rows to the file"
            )
        );
        assert_eq!(
            why(&["1'500", "2"]).as_deref(),
            Some("because of '1'500' (line 2): --thousands \"'\" makes numbers of such texts")
        );
        assert_eq!(
            why(&["1", "2", "x", "NA"]).as_deref(),
            Some("because of 'x' (line 4)")
        );
        let codes = [&["1"; 10][..], &["A1", "2", "A2"]].concat();
        assert_eq!(why(&codes).as_deref(), Some("because of 'A1' (line 12)"));
        assert_eq!(
            why(&["007", "A12"]).as_deref(),
            Some("because of 'A12' (line 3)")
        );
        assert_eq!(why(&["Shunyi", "NA"]), None);
        assert_eq!(why(&["Shunyi", "1", "Dongsi"]), None);
        assert_eq!(
            why(&["Deg C", "1", "NA", "2.5"]).as_deref(),
            Some(
                "because of 'Deg C' (line 2), the only value but 'NA' that is no double: --null NA --type COLUMN=double --rejects FILE stores the others and writes such rows to the file"
            )
        );
        assert_eq!(
            why(&["$1.50", "$2"]).as_deref(),
            Some(
                "because of '$1.50' (line 2): CAST(replace(x, '$', '') AS DOUBLE) in SQL makes numbers of such texts"
            )
        );
        assert_eq!(why(&["1", "NaN"]), None);
    }

    #[test]
    fn few_zeros_in_front_make_no_text() {
        let numbers: Vec<String> = (0..99).map(|value| (value * 37).to_string()).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let padded = inferred(&[&numbers[..], &["-007"]].concat(), None, b',');
        let padded = padded.found(0).unwrap();
        assert_eq!(padded.data_type, DataType::Int64);
        assert_eq!(
            padded.reason.as_deref(),
            Some(
                "without the zeros in front of '-007' (line 101): --type COLUMN=varchar keeps them"
            )
        );
        let fractions = [&numbers[..], &["007", "0.5"]].concat();
        assert_eq!(of(&fractions), DataType::Utf8);
        let rules = Rules::new(&ImportOptions::default(), Some(b','), false);
        let mut codes = Inference::new(rules, 1, None);
        codes.name(&["zip_code".to_owned()]);
        codes.look(&chunk_of(&[&numbers[..], &["007"]].concat()));
        assert_eq!(codes.found(0).unwrap().data_type, DataType::Utf8);
    }

    #[test]
    fn decimal_commas_need_another_separator() {
        let found = |texts: &[&str], delimiter| inferred(texts, None, delimiter).found(0).unwrap();
        let comma = found(&["1,5", "2", "-0,25"], b';');
        assert_eq!(comma.data_type, DataType::Float64);
        assert!(comma.reading.decimal_comma);
        assert!(!found(&["1.5", "2"], b';').reading.decimal_comma);
        for (texts, delimiter) in [(&["1,5", "2.5"], b';'), (&["1,5", "2,5"], b',')] {
            assert_eq!(found(texts, delimiter).data_type, DataType::Utf8);
        }
    }

    #[test]
    fn day_or_month_is_decided_by_all_values() {
        for time in [None, Some(0)] {
            let open = inferred(&["01/02/2012", "02/02/2012"], time, b',');
            assert_eq!(open.ambiguous(0, false).unwrap().text, "01/02/2012");
            for (text, order) in [
                ("13/02/2012", Order::DayFirst),
                ("02/13/2012", Order::MonthFirst),
            ] {
                let closed = inferred(&["01/02/2012", text], time, b',');
                assert_eq!(closed.ambiguous(0, false), None);
                assert_eq!(closed.found(0).unwrap().reading.order, Some(order));
            }
            let same = inferred(&["01/01/2012", "2/2/2012"], time, b',');
            assert_eq!(same.ambiguous(0, false), None);
        }
    }
}
