//! Checks of the options of an import against its files and an existing table.

use super::advice::shown;
use super::chunk::BadRow;
use super::convert::check_reads;
use super::digits::Example;
use super::findings;
use super::infer::Inference;
use super::times::ORDERS;
use crate::arguments::{ColumnType, ImportOptions};
use crate::failure::Failure;
use arrow_schema::{DataType, Field};
use thalweg::{CreateOptions, Layouts, Table, fold_name};

/// Where the column is that orders the new table.
pub(super) fn time_place(
    options: &ImportOptions,
    names: &[String],
    has_odd_header: bool,
    is_csv: bool,
) -> Result<Option<usize>, Failure> {
    let Some(wanted) = &options.time else {
        return Ok(None);
    };
    options.time_place(names).map(Some).ok_or_else(|| {
        let is_remark = |name: &String| name.starts_with(['#', '%', '/']);
        let hint = if has_odd_header {
            "; the first line looks like a row: --no-header names the columns column0, column1 ..."
        } else if is_csv && (names.len() == 1 || names.first().is_some_and(is_remark)) {
            "; --skip LINES leaves out what stands in front of the header"
        } else {
            ""
        };
        Failure::Other(format!(
            "there is no column \"{wanted}\" to order the table by; there are {}{hint}",
            names.join(", ")
        ))
    })
}

/// The sign between thousands must be another one than that of decimals.
pub(super) fn check_numbers(options: &ImportOptions) -> Result<(), Failure> {
    match (options.thousands, options.decimal) {
        (Some(thousands), Some(decimal)) if thousands == decimal => Err(Failure::usage(format!(
            "--thousands and --decimal are both {decimal}"
        ))),
        _ => Ok(()),
    }
}

pub(super) fn create_options(options: &ImportOptions) -> Result<CreateOptions, Failure> {
    let given = [
        ("layout", &options.layout),
        ("time", &options.time),
        ("key", &options.key),
        ("dimensions", &options.dimensions),
        ("split", &options.split),
        ("unique", &options.unique),
        ("on_duplicate", &options.on_duplicate),
        ("retention", &options.retention),
    ];
    let given = given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let options = CreateOptions::from_pairs(given)?;
    options.layout_of(&Layouts::default())?;
    Ok(options)
}

/// A table that is there already keeps its definition: what contradicts it is a mistake.
pub(super) fn check_options(table: &Table, options: &ImportOptions) -> Result<(), Failure> {
    let definition = table.definition();
    let time = definition.order_column().map(|time| time.name.clone());
    if let Some(wanted) = &options.time
        && options.time_place(time.as_slice()).is_none()
    {
        let is = time.map_or_else(|| "by arrival".to_owned(), |time| format!("by \"{time}\""));
        return Err(Failure::usage(format!(
            "table \"{}\" exists and is ordered {is}, not by \"{wanted}\"",
            table.name()
        )));
    }
    let differs = |option: &str, is: &str, wanted: &str| {
        Err(Failure::usage(format!(
            "table \"{}\" exists and its {option} is {is}, not {wanted}",
            table.name()
        )))
    };
    let layout = definition.layout().name();
    if let Some(wanted) = &options.layout
        && !wanted.trim().eq_ignore_ascii_case(layout)
    {
        return differs("layout", layout, wanted);
    }
    create_options(options)?;
    let own = definition.layout_options();
    let split = own.iter().find(|(name, _)| *name == "split");
    let split = split.map(|(_, split)| split.as_str());
    if let Some(wanted) = &options.split
        && !same_span(wanted, split)
    {
        return differs("split", split.unwrap_or("none"), wanted);
    }
    let own = definition.options();
    let given = [
        ("unique", &options.unique),
        ("on_duplicate", &options.on_duplicate),
        ("retention", &options.retention),
    ];
    for (option, wanted) in given {
        let is = own.iter().find(|(name, _)| *name == option);
        let is = is.map(|(_, value)| value.as_str());
        if let Some(wanted) = wanted
            && !same_span(wanted, is)
        {
            return differs(option, is.unwrap_or("none"), wanted);
        }
    }
    Ok(())
}

/// Whether two spans, or lists of names, are written alike, but for case, blanks and the end of a plural.
fn same_span(wanted: &str, is: Option<&str>) -> bool {
    let plain = |span: &str| {
        let span: String = span.split_whitespace().collect();
        span.to_lowercase().trim_end_matches('s').to_owned()
    };
    is.is_some_and(|is| plain(wanted) == plain(is))
}

/// Returns the type that `--type` gives a column; the column of `--filename` is text unless it has one.
pub(super) fn told_type<'a>(options: &'a ImportOptions, name: &str) -> Option<&'a DataType> {
    let is_it = |told: &&ColumnType| fold_name(&told.column) == fold_name(name);
    let told = options.types.iter().find(is_it).map(|told| &told.data_type);
    let of_file = options.filename.as_ref();
    let is_of_file = of_file.is_some_and(|column| fold_name(column) == fold_name(name));
    told.or(is_of_file.then_some(&DataType::Utf8))
}

/// Types are given to columns of the file, and those of a table that is there stay.
pub(super) fn check_types(
    options: &ImportOptions,
    names: &[String],
    fields: Option<&[Field]>,
    table: &str,
) -> Result<(), Failure> {
    for (place, told) in options.types.iter().enumerate() {
        let mut before = options.types[..place].iter();
        if before.any(|other| fold_name(&other.column) == fold_name(&told.column)) {
            return Err(Failure::usage(format!(
                "--type: column \"{}\" is given twice",
                told.column
            )));
        }
        let is_it = |name: &String| fold_name(name) == fold_name(&told.column);
        let Some(place) = names.iter().position(is_it) else {
            return Err(Failure::usage(format!(
                "--type: there is no column \"{}\"; there are {}",
                told.column,
                names.join(", ")
            )));
        };
        check_reads(&told.column, &told.data_type)?;
        let is = fields.map(|fields| fields[place].data_type());
        if let Some(is) = is.filter(|is| **is != told.data_type) {
            return Err(Failure::usage(format!(
                "--type: table \"{table}\" exists and its column \"{}\" is {}, not {}",
                told.column,
                findings::type_words(is),
                findings::type_words(&told.data_type)
            )));
        }
    }
    Ok(())
}

/// An error for a type that orders no rows; a dry run makes no table that would report it.
pub(super) fn check_time_type(time: &Field) -> Result<(), Failure> {
    match time.data_type() {
        DataType::Timestamp(..) | DataType::Date32 => Ok(()),
        data_type if data_type.is_integer() => Ok(()),
        data_type => Err(Failure::usage(format!(
            "the time column \"{}\" is {}; it must be an integer, a date or a timestamp",
            time.name(),
            findings::type_words(data_type)
        ))),
    }
}

/// An error if the values of a column leave open whether the day or the month is first.
pub(super) fn check_order(
    inference: &Inference,
    place: usize,
    name: &str,
    reads_times: bool,
) -> Result<(), Failure> {
    match (
        inference.ambiguous(place, reads_times),
        inference.contradiction(place),
    ) {
        (None, _) => Ok(()),
        (Some(_), Some(both)) => Err(contradicting_dates(name, both)),
        (Some(example), None) => Err(ambiguous_date(name, example)),
    }
}

fn contradicting_dates(name: &str, [day_first, month_first]: [&Example; 2]) -> Failure {
    Failure::Other(format!(
        "column \"{name}\": the day is first in {} (line {}) and the month in {} (line {}); nothing was imported",
        shown(&day_first.text),
        day_first.line,
        shown(&month_first.text),
        month_first.line
    ))
}

fn ambiguous_date(name: &str, example: &Example) -> Failure {
    let [day_first, month_first] = ORDERS.map(|order| order.pattern(&example.text));
    Failure::Other(format!(
        "column \"{name}\": nothing says whether day or month is first in {} (line {}): --time-format \"{day_first}\" or \
         --time-format \"{month_first}\"; nothing was imported",
        shown(&example.text),
        example.line
    ))
}

/// The error for the first bad row; `advice` is what would make a good one of it.
pub(super) fn first_bad(row: &BadRow, advice: Option<&str>, options: &ImportOptions) -> Failure {
    let hint = match (options.rejects.is_some(), advice) {
        (true, _) => ": no row is a good one".to_owned(),
        (false, None) => " (--rejects FILE sets bad rows apart and stores the others)".to_owned(),
        (false, Some(advice)) => {
            format!(": {advice}; --rejects FILE sets bad rows apart and stores the others")
        }
    };
    let (line, reason) = (row.line, &row.reason);
    Failure::Other(format!("line {line}: {reason}; nothing was imported{hint}"))
}
