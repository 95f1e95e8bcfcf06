//! The damage that a check or a repair has found, as lines: one for each place, or ranges where there are many.
//!
//! Invariants
//! - Every place is counted in the line of one range, and so are its rows.
//! - Ranges are joined where no row of the table is left between them. Only where a table would still have more than
//!   [`MAX_RANGES`] are the nearest joined as well, and the line says that rows are left between its places.

use crate::counts::{counted, thousands};
use crate::stats::time_text;
use std::collections::BTreeMap;
use thalweg::{AggregateRequest, Damage, DatabaseView, KeyRange, TableView};

/// Places that are listed one by one.
const MAX_PLACES: usize = 20;
/// Lines of ranges for one table.
const MAX_RANGES: usize = 20;

/// Returns the lines of a list: one per place if `is_detailed` or if there are at most [`MAX_PLACES`], else one per range.
pub(crate) fn lines(list: &[Damage], view: &DatabaseView, is_detailed: bool) -> Vec<String> {
    if is_detailed || list.len() <= MAX_PLACES {
        return list.iter().map(|damage| described(damage, view)).collect();
    }
    summed_up(list, view)
}

/// One place: file, commits, table, rows and what is wrong there.
pub(crate) fn described(damage: &Damage, view: &DatabaseView) -> String {
    let place = format!("{}, offset {}", damage.file.display(), damage.offset);
    let commits = match damage.commits {
        None => String::new(),
        Some((first, last)) => format!(", {}", commits_text(first.0, last.0)),
    };
    let Some(name) = &damage.table else {
        return format!("{place}{commits}: {}", damage.what);
    };
    let count = match damage.rows {
        None | Some(0) => String::new(),
        Some(rows) => format!(", {}", counted(rows, "row")),
    };
    let table = view.table(name);
    let rows = match (&table, damage.keys) {
        (Ok(table), Some((first, last))) => format!("{count}{}", range_text(table, first, last)),
        _ => count,
    };
    let what = without_number(&damage.what);
    let what = match &table {
        Ok(table) => table.definition().with_column_names(&what),
        Err(_) => what,
    };
    format!("{place}{commits}, {}{rows}: {what}", table_text(name))
}

/// The table by its name, which a table has only once it is whole.
fn table_text(name: &str) -> String {
    match name.starts_with('\0') {
        true => "a table that was not finished".to_owned(),
        false => format!("table \"{name}\""),
    }
}

/// ` from A to B`; nothing for a table whose rows have no times.
fn range_text(table: &TableView, first: i64, last: i64) -> String {
    if table.definition().order_column().is_none() {
        return String::new();
    }
    format!(
        " from {} to {}",
        time_text(table, first),
        time_text(table, last)
    )
}

fn commits_text(first: u64, last: u64) -> String {
    match (first, last) {
        (first, u64::MAX) => format!("commits from {first} on"),
        (first, last) if first == last => format!("commit {first}"),
        (first, last) => format!("commits {first} to {last}"),
    }
}

/// The words without the number of the table, whose name stands before them.
fn without_number(what: &str) -> String {
    let Some((before, rest)) = what.split_once(" of table ") else {
        return what.to_owned();
    };
    let number = rest.bytes().take_while(u8::is_ascii_digit).count();
    match number {
        0 => what.to_owned(),
        number => format!("{before}{}", &rest[number..]),
    }
}

/// Neighbouring places of one table, or of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range<N> {
    first: N,
    last: N,
    /// The number of lost rows; `None` if it is unknown for any place.
    rows: Option<u64>,
    places: u64,
    /// Whether something is left between the places.
    has_gaps: bool,
}

impl<N: Copy + Ord> Range<N> {
    fn take(&mut self, next: &Self) {
        self.last = self.last.max(next.last);
        self.rows = self
            .rows
            .zip(next.rows)
            .map(|(one, other)| one.saturating_add(other));
        self.places += next.places;
        self.has_gaps |= next.has_gaps;
    }

    /// `1,000 rows`; nothing where no row is lost.
    fn rows_text(&self) -> String {
        match self.rows {
            None => ", an unknown number of rows".to_owned(),
            Some(0) => String::new(),
            Some(rows) => format!(", {}", counted(rows, "row")),
        }
    }

    /// Returns the number of places, and where the range has gaps a note that `what` is left between them.
    fn places_text(&self, what: &str) -> String {
        let between = match self.has_gaps {
            true => format!(", with {what} left between them"),
            false => String::new(),
        };
        format!("in {}{between}", counted(self.places, "place"))
    }
}

/// A list in few lines: first of the log, then of each table, then what has no range.
fn summed_up(list: &[Damage], view: &DatabaseView) -> Vec<String> {
    let mut commits = Vec::new();
    let mut keys: BTreeMap<&str, Vec<Range<i64>>> = BTreeMap::new();
    let mut others: BTreeMap<Option<&str>, Vec<&Damage>> = BTreeMap::new();
    for damage in list {
        let table = damage.table.as_deref();
        match (table, damage.keys, damage.commits) {
            (Some(table), Some((first, last)), _) => keys.entry(table).or_default().push(Range {
                first,
                last,
                rows: damage.rows,
                places: 1,
                has_gaps: false,
            }),
            (None, _, Some((first, last))) => commits.push(Range {
                first: first.0,
                last: last.0,
                rows: damage.rows,
                places: 1,
                has_gaps: false,
            }),
            _ => others.entry(table).or_default().push(damage),
        }
    }
    let mut lines = Vec::new();
    let is_next = |last: u64, first: u64| last.saturating_add(1) >= first;
    for range in joined(commits, is_next, u64::abs_diff) {
        let what = commits_text(range.first, range.last);
        let (rows, places) = (range.rows_text(), range.places_text("commits"));
        lines.push(format!("{what} of the log{rows}, {places}"));
    }
    for (name, ranges) in keys {
        let table = view.table(name).ok();
        let is_next = |last: i64, first: i64| {
            let has_none = |table: &TableView| rows_between(table, last, first) == 0;
            last >= first || table.as_ref().is_some_and(has_none)
        };
        let ranges = joined(ranges, is_next, i64::abs_diff);
        if let [first, others @ ..] = &*ranges
            && !others.is_empty()
        {
            let mut all = first.clone();
            others.iter().for_each(|range| all.take(range));
            let places = counted(all.places, "place");
            let rows = all.rows_text();
            lines.push(format!("{}{rows} in all, in {places}", table_text(name)));
        }
        for range in ranges {
            let times = match &table {
                Some(table) => range_text(table, range.first, range.last),
                None => String::new(),
            };
            let (rows, places) = (range.rows_text(), range.places_text("rows"));
            lines.push(format!("{}{rows}{times}, {places}", table_text(name)));
        }
    }
    for (table, places) in others {
        if places.len() <= MAX_PLACES {
            lines.extend(places.iter().map(|damage| described(damage, view)));
            continue;
        }
        let name = table.map_or_else(|| "of no table alone".to_owned(), table_text);
        let count = thousands(places.len() as u64);
        let first = places.first().map(|first| described(first, view));
        let first = first.unwrap_or_default();
        lines.push(format!("{name}, in {count} places, the first: {first}"));
    }
    lines
}

/// Rows of the table that lie between two keys; more than any where they cannot be counted.
fn rows_between(table: &TableView, after: i64, before: i64) -> u64 {
    let (Some(first), Some(last)) = (after.checked_add(1), before.checked_sub(1)) else {
        return 0;
    };
    if first > last {
        return 0;
    }
    let request = AggregateRequest {
        keys: KeyRange { first, last },
        ..AggregateRequest::default()
    };
    let counted = table.aggregate(&request);
    counted.map_or(u64::MAX, |result| {
        result.groups.iter().map(|group| group.rows).sum()
    })
}

/// The ranges in order, joined where `is_next` holds for the last of one and the first of the next, and the nearest
/// ones as well while they are too many.
fn joined<N: Copy + Ord>(
    mut ranges: Vec<Range<N>>,
    is_next: impl Fn(N, N) -> bool,
    distance: impl Fn(N, N) -> u64,
) -> Vec<Range<N>> {
    ranges.sort_by_key(|range| (range.first, range.last));
    let mut joined: Vec<Range<N>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(before) if is_next(before.last, range.first) => before.take(&range),
            _ => joined.push(range),
        }
    }
    let surplus = joined.len().saturating_sub(MAX_RANGES);
    if surplus == 0 {
        return joined;
    }
    // The gap before each range but the first; the smallest of them are closed.
    let gap = |pair: &[Range<N>]| distance(pair[0].last, pair[1].first);
    let mut gaps: Vec<(u64, usize)> = joined.windows(2).map(gap).zip(1..).collect();
    gaps.sort_unstable();
    let mut is_closed = vec![false; joined.len()];
    for (_, place) in gaps.iter().take(surplus) {
        is_closed[*place] = true;
    }
    let mut few: Vec<Range<N>> = Vec::with_capacity(MAX_RANGES);
    for (range, is_closed) in joined.into_iter().zip(is_closed) {
        match few.last_mut().filter(|_| is_closed) {
            Some(before) => {
                before.take(&range);
                before.has_gaps = true;
            }
            None => few.push(range),
        }
    }
    few
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, rows: u64) -> Range<i64> {
        Range {
            first,
            last,
            rows: Some(rows),
            places: 1,
            has_gaps: false,
        }
    }

    #[test]
    fn neighbours_are_joined() {
        let ranges = vec![
            range(20, 29, 5),
            range(0, 9, 1),
            range(10, 19, 2),
            range(40, 49, 3),
        ];
        let found = joined(ranges, |last, first| last + 1 >= first, i64::abs_diff);
        let all = Range {
            places: 3,
            ..range(0, 29, 8)
        };
        assert_eq!(found, [all, range(40, 49, 3)]);
        // One inside of another one, and an unknown number of rows.
        let unknown = Range {
            rows: None,
            ..range(5, 6, 0)
        };
        let found = joined(
            vec![range(0, 9, 1), unknown, range(8, 8, 1)],
            |last, first| last >= first,
            i64::abs_diff,
        );
        assert_eq!((found.len(), found[0].rows, found[0].last), (1, None, 9));
    }

    #[test]
    fn many_ranges_are_joined_across_the_smallest_gaps() {
        let most = i64::try_from(MAX_RANGES).unwrap_or(i64::MAX);
        // Pairs, each with a small gap inside and a large one before the next.
        let ranges = (0..most).flat_map(|pair| {
            [
                range(pair * 100, pair * 100 + 9, 1),
                range(pair * 100 + 20, pair * 100 + 29, 1),
            ]
        });
        let found = joined(ranges.collect(), |_, _| false, i64::abs_diff);
        assert_eq!(found.len(), MAX_RANGES);
        for (place, found) in (0..).zip(&found) {
            assert_eq!((found.first, found.last), (place * 100, place * 100 + 29));
            assert_eq!(
                (found.rows, found.places, found.has_gaps),
                (Some(2), 2, true)
            );
        }
        let extremes = joined(
            vec![range(i64::MIN, i64::MIN, 1), range(i64::MAX, i64::MAX, 1)],
            |_, _| false,
            i64::abs_diff,
        );
        assert_eq!(extremes.len(), 2);
    }

    #[test]
    fn numbers_of_tables_are_left_out() {
        for (what, shown) in [
            (
                "column 3 (values) of a block of table 1 is damaged: its checksum does not match",
                "column 3 (values) of a block is damaged: its checksum does not match",
            ),
            (
                "the index page of table 12 is damaged",
                "the index page is damaged",
            ),
            ("of table \"x\"", "of table \"x\""),
        ] {
            assert_eq!(without_number(what), shown);
        }
    }
}
