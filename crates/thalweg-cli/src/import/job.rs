//! One import: infers types, then stores rows; starts again if a type turns out too narrow.

use super::Imported;
use super::advice::{number_advice, shown, wider_advice};
use super::checks::{
    check_numbers, check_options, check_order, check_time_type, check_types, create_options,
    first_bad, time_place, told_type,
};
use super::chunk::Chunk;
use super::column_names::{is_of_codes, is_of_times};
use super::contradictions::{check_types_of_table, check_unit};
use super::convert::{CANNOT_ORDER, Converter, Misfit, fields_of, is_clock, is_time, time_hint};
use super::file_set::{FileSet, Opened, late_names};
use super::findings::{self, NumberTimes};
use super::infer::{Found, Inference, Reading};
use super::json_lines::LateNames;
use super::kinds::Rules;
use super::numbers::is_float;
use super::rejects::{RejectedValues, Rejects};
use super::source::Input;
use crate::arguments::{ColumnType, ImportOptions};
use crate::failure::Failure;
use crate::interrupt::Listening;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use thalweg::time_units::DAY_NS;
use thalweg::{Database, Error, ErrorKind, NewTable, Table, fold_name};

/// Most rows that types are inferred from.
const SAMPLE_ROWS: usize = 100_000;
/// Most bytes of text that types are inferred from.
const SAMPLE_BYTES: usize = 64 << 20;
const YEAR_NS: i64 = 366 * DAY_NS;

/// An import that is to be run.
pub(super) struct Job<'a> {
    /// `None` for a dry run without a database.
    db: Option<&'a Database>,
    inputs: Vec<Input>,
    table: &'a str,
    options: &'a ImportOptions,
    late: LateNames,
    is_quiet: bool,
    /// A note about the time column of the new table, if it has numbers that look like times.
    time_note: Option<String>,
}

/// How the columns of the files become columns of the table.
struct Plan {
    names: Vec<String>,
    fields: Vec<Field>,
    readings: Vec<Reading>,
    /// The findings about the columns of a new table.
    found: Vec<Found>,
}

/// How an attempt to append ended.
enum Attempt {
    Done(Imported),
    /// A value does not fit its type, and inferring the type from all rows may give a wider one.
    TooNarrow(Misfit),
}

/// The rows that types were inferred from.
struct Sample {
    chunks: Vec<Chunk>,
    /// The number of its chunks, which are not looked at again.
    count: usize,
    is_whole: bool,
    /// How many files were opened for it; they were reported already.
    files: usize,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        db: Option<&'a Database>,
        inputs: Vec<Input>,
        table: &'a str,
        options: &'a ImportOptions,
    ) -> Self {
        Self {
            db,
            inputs,
            table,
            options,
            late: LateNames::End,
            is_quiet: false,
            time_note: None,
        }
    }

    /// Prints nothing.
    pub(super) fn quiet(mut self) -> Self {
        self.is_quiet = true;
        self
    }

    pub(super) fn run(mut self) -> Result<Imported, Failure> {
        let listening = Listening::start();
        match self.import(&listening) {
            Err(Failure::LateColumn(name)) => {
                let mut names = late_names(&mut self.inputs, self.options, &|| listening.check())?;
                if let Some(table) = self.existing()? {
                    let definition = table.definition();
                    let columns = definition.columns();
                    names.retain(|name| {
                        let folded = fold_name(name);
                        columns
                            .iter()
                            .any(|column| fold_name(&column.name) == folded)
                    });
                }
                if !self.is_quiet && names.contains(&name) {
                    report!(
                        "column \"{name}\" comes up behind the first objects: the import begins again"
                    );
                }
                self.late = LateNames::Are(names);
                self.import(&listening)
            }
            done => done,
        }
    }

    fn import(&mut self, listening: &Listening) -> Result<Imported, Failure> {
        check_numbers(self.options)?;
        let existing = self.existing()?;
        let create = match &existing {
            Some(table) => {
                check_options(table, self.options)?;
                None
            }
            // Options that make no sense are refused before a large file is read.
            None => Some(create_options(self.options)?),
        };
        let (mut plan, mut inference, mut sample) = self.plan(existing.as_ref(), listening)?;
        let time = self.options.time_place(&plan.names);
        let create = create.map(|create| match time {
            Some(time) => create.with("time", &plan.names[time]),
            None => create,
        });
        loop {
            // An attempt that fails drops the table; it is not visible before it has its rows.
            let new = match (&create, self.db) {
                (Some(create), Some(db)) if !self.options.dry_run => {
                    let schema = Schema::new(plan.nullable_fields());
                    Some(db.begin_table(self.table, &schema, create)?)
                }
                _ => None,
            };
            let table = existing.as_ref().or(new.as_ref().map(NewTable::table));
            let can_widen = existing.is_none() && !sample.is_whole;
            let widening = can_widen.then_some(&inference);
            let taken = sample.take();
            match self.append(table, &plan, taken, widening, listening)? {
                Attempt::Done(imported) => {
                    if let Some(new) = new {
                        new.publish()?;
                    }
                    return Ok(imported);
                }
                Attempt::TooNarrow(misfit) => {
                    self.look_at_the_rest(&mut inference, &plan.names, sample.count, listening)?;
                    sample.is_whole = true;
                    for (place, name) in plan.names.iter().enumerate() {
                        if told_type(self.options, name).is_none() {
                            check_order(&inference, place, name, false)?;
                        }
                    }
                    let wider = self.new_plan(&inference, plan.names.clone())?;
                    self.tell_widened(&misfit, &plan, &wider);
                    plan = wider;
                }
            }
        }
    }

    /// The table, if it exists; an error if it does not and `--create` was not given.
    fn existing(&self) -> Result<Option<Table>, Failure> {
        let Some(db) = self.db else { return Ok(None) };
        match db.table(self.table) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if self.options.create {
                    return Ok(None);
                }
                Err(Failure::Other(format!(
                    "{}; --create makes it",
                    error.message()
                )))
            }
            table => Ok(Some(table?)),
        }
    }

    /// Finds out how the files are read, and prints it.
    fn plan(
        &mut self,
        existing: Option<&Table>,
        listening: &Listening,
    ) -> Result<(Plan, Inference, Sample), Failure> {
        let options = self.options;
        let definition = existing.map(Table::definition);
        let table_names: Option<Vec<String>> = definition
            .as_ref()
            .filter(|_| options.no_header)
            .map(|definition| {
                let of_file = options.filename.as_deref().map(fold_name);
                let is_of_file = |name: &String| Some(fold_name(name)) == of_file;
                let columns = definition.columns().iter();
                let mut names: Vec<String> = columns.map(|column| column.name.clone()).collect();
                // The column with the name of the file comes after those of the file.
                names.sort_by_key(is_of_file);
                names
            });
        let file = self
            .inputs
            .first()
            .map_or_else(String::new, |input| input.name.clone());
        let mut set = FileSet::open(
            &mut self.inputs,
            options,
            "import",
            table_names.as_deref(),
            &self.late,
        )?;
        let names = set.columns().to_vec();
        let fields = definition
            .as_ref()
            .map(|definition| fields_of(definition, &names, self.table))
            .transpose()?;
        let time = match existing {
            Some(_) => None,
            None => {
                let is_csv = set.delimiter().is_some();
                time_place(options, &names, set.has_odd_header(), is_csv)?
            }
        };
        // In JSON a column that is given a type may come up after the first objects.
        let is_absent = |told: &&ColumnType| {
            let told = fold_name(&told.column);
            !names.iter().any(|name| fold_name(name) == told)
        };
        if matches!(self.late, LateNames::End)
            && set.delimiter().is_none()
            && let Some(told) = options.types.iter().find(is_absent)
        {
            return Err(Failure::LateColumn(told.column.clone()));
        }
        check_types(options, &names, fields.as_deref(), self.table)?;
        if existing.is_none() && options.time_unit.is_some() && time.is_none() {
            return Err(Failure::usage(
                "--time-unit needs --time, the column it is about",
            ));
        }
        // A column of text takes what a format says as it is.
        let is_unused = |option: &str, may_be_text: bool| {
            let takes = |field: &Field| {
                is_time(field.data_type()) || may_be_text && *field.data_type() == DataType::Utf8
            };
            match &fields {
                Some(fields) if !fields.iter().any(takes) => Err(Failure::usage(format!(
                    "{option}: table \"{}\" exists, and none of the columns that the file has is a time there",
                    self.table
                ))),
                _ => Ok(()),
            }
        };
        if options.time_unit.is_some() {
            is_unused("--time-unit", false)?;
        }
        if !options.time_format.is_empty() {
            is_unused("--time-format", true)?;
        }
        let rules = Rules::new(options, set.delimiter(), existing.is_some());
        let mut inference = Inference::new(rules, names.len(), time);
        inference.name(&names);
        let mut sample = read_sample(&mut set, &mut inference, listening)?;
        if sample.count == 0 && existing.is_none() {
            let hint = match set.has_odd_header() {
                true => {
                    "; the first line looks like a row, but names the columns: --no-header stores it"
                }
                false => "",
            };
            return Err(Failure::Other(format!(
                "{file} has no rows to find the types of columns from: make the table first, with CREATE TABLE{hint}"
            )));
        }
        if options.rejects.is_some() {
            inference.expect_bad_rows();
        }
        let given_type = |place: usize| match &fields {
            Some(fields) => Some(fields[place].data_type()),
            None => told_type(options, &names[place]),
        };
        let reads_times = |place: usize| given_type(place).is_some_and(is_time);
        // Columns of text take dates as they are.
        let is_text = |place: usize| given_type(place).is_some_and(|given| !is_time(given));
        let times = || (0..names.len()).filter(|place| !is_text(*place));
        // The order of day and month is decided by all rows.
        if times().any(|place| inference.is_undecided(place, reads_times(place))) {
            while let Some(chunk) = set.next_chunk()? {
                listening.check()?;
                inference.look(&chunk);
            }
            (sample.is_whole, sample.chunks) = (true, Vec::new());
        }
        for place in times() {
            check_order(&inference, place, &names[place], reads_times(place))?;
        }
        let (opened, delimiter) = (set.opened().to_vec(), set.delimiter());
        sample.files = opened.len();
        drop(set);
        let plan = match fields {
            None => {
                // A time column without any time is an error: of its first value, or, if it has none, of the first bad row.
                self.check_times(&inference, &names, time, &sample)?;
                self.new_plan(&inference, names)?
            }
            Some(fields) => Plan {
                readings: (0..names.len())
                    .map(|place| inference.reading(place, fields[place].data_type()))
                    .collect(),
                names,
                fields,
                found: Vec::new(),
            },
        };
        if existing.is_some() {
            check_unit(&plan.fields, &inference, options)?;
        }
        let found = |place: usize| {
            inference.first_value(place)?;
            let given = told_type(options, &plan.names[place]);
            let found = inference.found(place).filter(|_| given.is_none())?;
            Some((&plan.fields[place], found.data_type))
        };
        let of_file: Vec<_> = (0..plan.names.len()).filter_map(found).collect();
        if let (Some(db), Some(table)) = (self.db, existing.filter(|_| options.create)) {
            check_types_of_table(db, table, &of_file, options, delimiter)?;
        }
        if !self.is_quiet {
            opened.iter().for_each(|file| tell_file(file, &plan.names));
            if let Some(table) = existing.filter(|_| options.create) {
                let rows = table.stats()?.rows;
                report!("{}", findings::was_there(table.name(), rows, of_file));
            }
            plan.lines().iter().for_each(|line| report!("{line}"));
            let is_clock = |place: usize| {
                let first = inference.first_value(place);
                first.is_some_and(|first| is_clock(&first.text))
            };
            let numbers = self.number_times(&plan, time, &sample);
            for (place, times) in &numbers {
                let name = &plan.names[*place];
                let clock = findings::clock_of(&plan.fields, *place, is_clock).and_then(|clock| {
                    Some((&*plan.names[clock], &*inference.first_value(clock)?.text))
                });
                report!("{}", times.line(name, time.is_none(), clock));
                self.time_note = time.map(|_| times.stored_line(name, self.table));
            }
            match time {
                _ if existing.is_some() => {}
                Some(time) => findings::date_alone(&plan.fields, time, is_clock)
                    .iter()
                    .for_each(|line| report!("{line}")),
                None if numbers.is_empty() => {
                    report!("{}", findings::no_time(&plan.names, &plan.fields, is_clock));
                }
                None => {}
            }
        }
        Ok((plan, inference, sample))
    }

    /// The columns of a new table with numbers that look like times: the time column, or, if the table has no column of times,
    /// those of such columns that have names of times, else all but those with names of codes.
    fn number_times(
        &self,
        plan: &Plan,
        time: Option<usize>,
        sample: &Sample,
    ) -> Vec<(usize, NumberTimes)> {
        let has_time = || plan.fields.iter().any(|field| is_time(field.data_type()));
        if time.is_none() && has_time() {
            return Vec::new();
        }
        let is_number = |place: &usize| {
            let found = plan.found.get(*place);
            let types = [DataType::Int64, DataType::Float64];
            found.is_some_and(|found| types.contains(&found.data_type))
                && told_type(self.options, &plan.names[*place]).is_none()
        };
        let places = match time {
            Some(time) => time..time + 1,
            None => 0..plan.names.len(),
        };
        let note = |place: usize| {
            let chunks = sample.chunks.iter();
            let values = chunks.flat_map(|chunk| chunk.columns[place].iter().flatten());
            let values = values.map(str::trim).filter(|value| !value.is_empty());
            // In the time column one number is enough: bad rows beside it do not matter.
            let enough = time.map_or(usize::MAX, |_| 1);
            Some((place, findings::number_times(values.take(enough))?))
        };
        let mut notes: Vec<_> = places.filter(is_number).filter_map(note).collect();
        if time.is_none() {
            let is_called_so = |place: usize| is_of_times(&plan.names[place]);
            let some_are = notes.iter().any(|(place, _)| is_called_so(*place));
            notes.retain(|(place, _)| match some_are {
                true => is_called_so(*place),
                false => !is_of_codes(&plan.names[*place]),
            });
        }
        notes
    }

    /// An error if the time column has values and none is a time.
    fn check_times(
        &self,
        inference: &Inference,
        names: &[String],
        time: Option<usize>,
        sample: &Sample,
    ) -> Result<(), Failure> {
        let is_told = |time: &usize| told_type(self.options, &names[*time]).is_some();
        let Some(time) = time.filter(|time| inference.found(*time).is_none() && !is_told(time))
        else {
            return Ok(());
        };
        let Some(first) = inference.first_value(time) else {
            let bad = sample.chunks.iter().flat_map(|chunk| &chunk.bad);
            return bad
                .min_by_key(|row| row.line)
                .map_or(Ok(()), |row| Err(first_bad(row, None, self.options)));
        };
        let hinted;
        let (wanted, others, hint) =
            match (self.options.time_format.first(), self.options.time_unit) {
                (Some(pattern), _) => {
                    let pattern = shown(pattern.text());
                    (format!("does not match the pattern {pattern}"), "does", "")
                }
                (None, Some(unit)) => (format!("is no number of {}", unit.name()), "is one", ""),
                (None, None) if is_float(&first.text) => {
                    ("is no time".to_owned(), "is one", CANNOT_ORDER)
                }
                (None, None) => {
                    hinted = time_hint(&first.text).map_or_else(
                        || " (--time-format gives the pattern of other writings)".to_owned(),
                        |hint| format!(" ({hint})"),
                    );
                    ("is no time".to_owned(), "is one", hinted.as_str())
                }
            };
        Err(Failure::Other(format!(
            "line {}: column \"{}\": {} {wanted}, and no other value of the first lines {others}{hint}; nothing was imported",
            first.line,
            names[time],
            shown(&first.text),
        )))
    }

    /// The plan for a new table.
    fn new_plan(&self, inference: &Inference, names: Vec<String>) -> Result<Plan, Failure> {
        let found: Vec<Found> = (0..names.len())
            .map(|place| match told_type(self.options, &names[place]) {
                Some(data_type) => Found {
                    data_type: data_type.clone(),
                    reading: inference.reading(place, data_type),
                    reason: inference.offset_reason(place, data_type),
                },
                None => inference.found(place).unwrap_or(Found {
                    data_type: DataType::Utf8,
                    reading: Reading::default(),
                    reason: None,
                }),
            })
            .collect();
        let field =
            |(name, found): (&String, &Found)| Field::new(name, found.data_type.clone(), true);
        let mut plan = Plan {
            fields: names.iter().zip(&found).map(field).collect(),
            readings: found.iter().map(|found| found.reading.clone()).collect(),
            names,
            found,
        };
        if let Some(time) = time_place(self.options, &plan.names, false, false)? {
            // Rows without a time are bad rows of a dry run too.
            let field = plan.fields[time].clone().with_nullable(false);
            check_time_type(&field)?;
            plan.fields[time] = field;
        }
        Ok(plan)
    }

    /// Infers types from all rows but those that were looked at before.
    fn look_at_the_rest(
        &mut self,
        inference: &mut Inference,
        names: &[String],
        looked_at: usize,
        listening: &Listening,
    ) -> Result<(), Failure> {
        let mut set = FileSet::open(&mut self.inputs, self.options, "types", None, &self.late)?;
        debug_assert_eq!(set.columns().len(), names.len());
        let mut number = 0;
        while let Some(chunk) = set.next_chunk()? {
            listening.check()?;
            if number >= looked_at {
                inference.look(&chunk);
            }
            number += 1;
        }
        Ok(())
    }

    fn tell_widened(&self, misfit: &Misfit, before: &Plan, after: &Plan) {
        if self.is_quiet {
            return;
        }
        let [was, is] = [before, after].map(|plan| plan.fields[misfit.column].data_type());
        let (line, name, text) = (
            misfit.line,
            &before.names[misfit.column],
            shown(&misfit.text),
        );
        match was == is {
            true => report!("line {line}: column \"{name}\" has {text}: the import begins again"),
            false => report!(
                "line {line}: column \"{name}\" is no longer {} because of {text}: the import begins again",
                findings::type_words(was)
            ),
        }
        let changed: Vec<usize> = (0..before.names.len())
            .filter(|place| before.found[*place] != after.found[*place])
            .collect();
        let names: Vec<String> = changed
            .iter()
            .map(|place| after.names[*place].clone())
            .collect();
        let found: Vec<Found> = changed
            .iter()
            .map(|place| after.found[*place].clone())
            .collect();
        for line in findings::column_lines(&names, &found) {
            report!("{line}");
        }
    }

    /// Appends everything in one commit; without a table it only counts.
    fn append(
        &mut self,
        table: Option<&Table>,
        plan: &Plan,
        sample: Sample,
        widening: Option<&Inference>,
        listening: &Listening,
    ) -> Result<Attempt, Failure> {
        let options = self.options;
        let mut rejects = Rejects::create(options.rejects.as_deref().filter(|_| !options.dry_run))?;
        let converter = Converter::new(plan.fields.clone(), plan.readings.clone());
        let names = options.no_header.then_some(plan.names.as_slice());
        let files_told = sample.files;
        let mut set = FileSet::open(&mut self.inputs, options, "import", names, &self.late)?;
        let (skipped, is_whole) = (
            sample.chunks.len(),
            sample.is_whole && !sample.chunks.is_empty(),
        );
        let mut sample = sample.chunks.into_iter();
        let mut early = EarlyTimes::new(plan);
        let mut is_skipped = false;
        let (is_old, table_name) = (plan.found.is_empty(), self.table);
        // Columns of a new table that are text because no value was seen yet.
        let unknown: Vec<usize> = match widening {
            Some(inference) => (0..plan.names.len())
                .filter(|place| inference.first_value(*place).is_none())
                .filter(|place| told_type(options, &plan.names[*place]).is_none())
                .collect(),
            None => Vec::new(),
        };
        let definition = table.map(Table::definition);
        let time_column = definition
            .as_ref()
            .and_then(|definition| definition.order_column());
        let mut rejected = RejectedValues::default();
        // `append` takes errors of the engine only: any other is kept here, and reported once the append has failed.
        let (mut failure, mut misfit) = (None, None);
        let mut next = || -> Result<Option<RecordBatch>, Failure> {
            listening.check()?;
            let chunk = match sample.next() {
                Some(chunk) => Some(chunk),
                None if is_whole => None,
                None => {
                    if !std::mem::replace(&mut is_skipped, true) {
                        for _ in 0..skipped {
                            set.next_chunk()?;
                        }
                    }
                    set.next_chunk()?
                }
            };
            let Some(chunk) = chunk else {
                rejects.finish()?;
                return Ok(None);
            };
            let converted = converter.convert(&chunk)?;
            if let Some(inference) = widening {
                let curable = converted
                    .misfits
                    .iter()
                    .find(|misfit| inference.could_take(misfit.column, &misfit.text))
                    .cloned();
                let first_of = |place: &usize| first_with_type(inference, *place, &chunk);
                if let Some(found) = curable.or_else(|| unknown.iter().find_map(first_of)) {
                    misfit = Some(found);
                    return Err(Failure::Told);
                }
            }
            let bad = converted
                .bad
                .iter()
                .map(|row| row.in_file(chunk.file.as_deref()));
            if options.rejects.is_some() {
                bad.into_iter().try_for_each(|row| rejects.write(&row))?;
                rejected.look(&converted.misfits);
            } else if let Some(row) = bad.into_iter().min_by_key(|row| row.line) {
                let mut of_row = converted
                    .misfits
                    .iter()
                    .filter(|misfit| misfit.line == row.line);
                let advice = of_row.next().filter(|_| is_old).and_then(|misfit| {
                    let field = &plan.fields[misfit.column];
                    let (data_type, text) = (field.data_type(), &misfit.text);
                    let time = time_column.map(|time| time.name.as_str());
                    wider_advice((table_name, time), field.name(), data_type, text)
                        .or_else(|| number_advice(text).filter(|_| data_type.is_numeric()))
                });
                return Err(first_bad(&row, advice.as_deref(), options));
            }
            early.look(&converted.batch)?;
            Ok(Some(converted.batch))
        };
        let batches = std::iter::from_fn(|| match next() {
            Ok(batch) => batch.map(Ok),
            Err(error) => {
                failure = Some(error);
                Some(Err(Error::new(
                    ErrorKind::Invalid,
                    "the import was given up",
                )))
            }
        });
        let appended = match table.filter(|_| !options.dry_run) {
            Some(table) => table.append(batches, None),
            None => batches
                .map(|batch| batch.map(|batch| batch.num_rows() as u64))
                .sum(),
        };
        if let Some(misfit) = misfit {
            return Ok(Attempt::TooNarrow(misfit));
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        // The progress bar would be printed between these lines.
        let opened = set.opened().to_vec();
        drop(set);
        if !self.is_quiet {
            let later = opened.iter().skip(files_told);
            later.for_each(|file| tell_file(file, &plan.names));
            early.tell();
        }
        let rows = appended?;
        let is_new = |place: usize| !is_old && plan.fields[place].is_nullable();
        let mut notes = rejected.lines(&plan.names, rows + rejects.count(), is_new);
        if !options.dry_run && plan.names_an_option() {
            notes.push(findings::made_anew(self.table));
        }
        Ok(Attempt::Done(Imported {
            table: table.map_or(self.table, Table::name).to_owned(),
            rows,
            notes: notes.into_iter().chain(self.time_note.take()).collect(),
            rejected: rejects.count(),
            rejects: options.rejects.clone(),
            is_dry_run: options.dry_run,
        }))
    }
}

impl Plan {
    /// The columns of the table to make: the engine itself refuses rows without a time.
    fn nullable_fields(&self) -> Vec<Field> {
        let fields = self.fields.iter().cloned();
        fields.map(|field| field.with_nullable(true)).collect()
    }

    /// Whether the reason for the type of a column of a new table names the option that gives another one.
    fn names_an_option(&self) -> bool {
        let mut reasons = self.found.iter().filter_map(|found| found.reason.as_ref());
        reasons.any(|reason| reason.contains("--"))
    }

    fn lines(&self) -> Vec<String> {
        if self.found.is_empty() {
            let types: Vec<DataType> = self
                .fields
                .iter()
                .map(|field| field.data_type().clone())
                .collect();
            findings::reading_lines(&self.names, &types, &self.readings)
        } else {
            findings::column_lines(&self.names, &self.found)
        }
    }
}

impl Sample {
    /// The chunks, which are appended once; later attempts read them again.
    fn take(&mut self) -> Self {
        Self {
            chunks: std::mem::take(&mut self.chunks),
            count: self.count,
            is_whole: self.is_whole,
            files: self.files,
        }
    }
}

/// Times from numbers that all come out in the year 1970.
struct EarlyTimes {
    columns: Vec<Early>,
}

struct Early {
    place: usize,
    name: String,
    unit: crate::arguments::EpochUnit,
    /// The first time, if all are early so far.
    first_ns: Option<i64>,
    is_early: bool,
}

impl EarlyTimes {
    fn new(plan: &Plan) -> Self {
        let columns = plan.readings.iter().enumerate();
        let columns = columns.filter_map(|(place, reading)| {
            let is_time = matches!(plan.fields[place].data_type(), DataType::Timestamp(..));
            Some(Early {
                place,
                name: plan.names[place].clone(),
                unit: reading.unit.filter(|_| is_time)?,
                first_ns: None,
                is_early: true,
            })
        });
        Self {
            columns: columns.collect(),
        }
    }

    fn look(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        for column in self.columns.iter_mut().filter(|column| column.is_early) {
            let ns = cast(
                batch.column(column.place),
                &DataType::Timestamp(TimeUnit::Nanosecond, None),
            )?;
            for ns in ns
                .as_primitive::<TimestampNanosecondType>()
                .iter()
                .flatten()
            {
                column.first_ns.get_or_insert(ns);
                column.is_early &= (0..YEAR_NS).contains(&ns);
            }
        }
        Ok(())
    }

    fn tell(&self) {
        for column in &self.columns {
            if let Some(first_ns) = column.first_ns.filter(|_| column.is_early) {
                let text = (first_ns / column.unit.ns()).to_string();
                report!(
                    "{}",
                    findings::early_times(&column.name, &text, column.unit)
                );
            }
        }
    }
}

/// The first value in a column without values so far, if it has another type than text.
fn first_with_type(inference: &Inference, column: usize, chunk: &Chunk) -> Option<Misfit> {
    let rows = chunk.lines.iter().zip(&chunk.columns[column]);
    let mut values = rows.filter_map(|(line, text)| Some((*line, text?.trim())));
    let (line, text) = values.find(|(_, text)| !text.is_empty())?;
    let is_typed = inference.has_type_for(column, text, chunk.is_text[column]);
    is_typed.then(|| Misfit {
        column,
        line,
        text: text.to_owned(),
        is_reason: true,
    })
}

fn read_sample(
    set: &mut FileSet<'_>,
    inference: &mut Inference,
    listening: &Listening,
) -> Result<Sample, Failure> {
    let (mut chunks, mut rows, mut bytes) = (Vec::new(), 0, 0);
    let mut is_whole = false;
    while rows < SAMPLE_ROWS && bytes < SAMPLE_BYTES {
        listening.check()?;
        let Some(chunk) = set.next_chunk()? else {
            is_whole = true;
            break;
        };
        rows += chunk.rows();
        bytes += chunk.bytes();
        inference.look(&chunk);
        chunks.push(chunk);
    }
    Ok(Sample {
        count: chunks.len(),
        chunks,
        is_whole,
        files: 0,
    })
}

/// Prints what was found of a file.
fn tell_file(file: &Opened, names: &[String]) {
    report!("{}", findings::file_line(file));
    if file.has_odd_header {
        report!("{}", findings::odd_header(&file.name, names));
    }
}
