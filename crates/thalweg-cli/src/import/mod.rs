//! `thalweg import`: the rows of a file in one commit, all of them or none.
//!
//! Text becomes rows in steps: a [`source`] gives bytes, a reader cuts them into [`chunk`]s of text by column, types are
//! [`infer`]red from the first chunks where a table is to be made, and a [`convert`]er makes batches of the table's
//! types and sets bad rows apart.
//!
//! Invariants
//! - No row is lost in silence: it is stored, or it fails the import with its line named, or it is in the file of rejects.
//! - A failed import leaves nothing, not even the table it was to make.
//! - Memory is bounded: a file is read in chunks, and only those that types are inferred from are kept.

mod chunk;
mod convert;
mod csv_lines;
mod csv_records;
mod infer;
mod json_lines;
mod rejects;
mod source;

use crate::arguments::{FileFormat, ImportCall, ImportOptions};
use crate::failure::Failure;
use crate::files;
use crate::interrupt::Listening;
use crate::sql::counted;
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use chunk::{BadRow, Chunk, ReadChunks};
use convert::Converter;
use rejects::Rejects;
use source::Source;
use std::path::{Path, PathBuf};
use thalweg::{CreateOptions, Database, Error, ErrorKind, Table, fold_name};

/// Rows from which types are inferred, at most.
const SAMPLE_ROWS: usize = 100_000;
/// Bytes of text from which types are inferred, at most.
const SAMPLE_BYTES: usize = 64 << 20;

/// What an import did.
#[derive(Debug)]
pub(crate) struct Imported {
    table: String,
    pub(crate) rows: u64,
    rejected: u64,
    rejects: Option<PathBuf>,
}

impl Imported {
    /// Says so on standard error.
    pub(crate) fn tell(&self) {
        eprintln!("imported {} into {}", counted(self.rows, "row"), self.table);
        if let Some(path) = &self.rejects {
            eprintln!(
                "rejected {}: see {}",
                counted(self.rejected, "row"),
                path.display()
            );
        }
    }
}

/// `thalweg import`.
pub(crate) fn run(call: &ImportCall) -> Result<(), Failure> {
    // A wrong name of the file must not make a database.
    let source = Source::open(&call.file, &call.options)?;
    let was_there = files::exists(&call.database);
    let db = Database::builder()
        .must_exist(!call.options.create)
        .open(&call.database)?;
    let imported = import_source(&db, source, &call.table, &call.options);
    if imported.is_err() && !was_there && db.table_names().is_ok_and(|names| names.is_empty()) {
        // While it is open nobody else can have put anything there.
        files::remove_folder(&call.database);
    }
    let imported = imported?;
    db.close()?;
    imported.tell();
    Ok(())
}

/// Imports a file into an open database.
pub(crate) fn import(
    db: &Database,
    file: &Path,
    table: &str,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    import_source(db, Source::open(file, options)?, table, options)
}

/// Imports bytes that are at hand.
pub(crate) fn import_bytes(
    db: &Database,
    bytes: &'static [u8],
    table: &str,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    import_source(db, Source::of_bytes(bytes, options)?, table, options)
}

fn import_source(
    db: &Database,
    source: Source,
    name: &str,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let (bar, file) = (source.bar.clone(), source.name.clone());
    let mut reader: Box<dyn ReadChunks> = match source.format {
        FileFormat::Json => Box::new(json_lines::JsonLines::open(source, options)?),
        _ => Box::new(csv_lines::CsvLines::open(source, options)?),
    };
    let found = match db.table(name) {
        Err(error) if error.kind() == ErrorKind::NotFound && options.create => None,
        table => Some(table?),
    };
    let (table, sample, made) = match found {
        Some(table) => {
            check_options(&table, options)?;
            (table, Vec::new(), false)
        }
        None => {
            // Options that cannot be are told before a large file is read.
            let create = create_options(options)?;
            let sample = read_sample(&mut *reader)?;
            if sample.is_empty() {
                return Err(Failure::Other(format!(
                    "{file} has no rows to find the types of columns from: make the table first, with CREATE TABLE"
                )));
            }
            let schema = new_schema(options, reader.columns(), &sample)?;
            (db.create_table(name, &schema, &create)?, sample, true)
        }
    };
    let imported = append(&table, &mut *reader, sample, options);
    bar.finish_and_clear();
    if imported.is_err() && made {
        // Why it failed is of more interest than why it cannot be undone.
        let _ = db.drop_table(name);
    }
    imported
}

fn create_options(options: &ImportOptions) -> Result<CreateOptions, Failure> {
    let given = [
        ("layout", &options.layout),
        ("time", &options.time),
        ("key", &options.key),
        ("dimensions", &options.dimensions),
        ("split", &options.split),
    ];
    let given = given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    Ok(CreateOptions::from_pairs(given)?)
}

/// A table that is there already keeps its definition: what contradicts it is a mistake.
fn check_options(table: &Table, options: &ImportOptions) -> Result<(), Failure> {
    let definition = table.definition();
    let time = definition.time_column().map(|time| time.name.clone());
    if let Some(wanted) = &options.time
        && time.as_deref().map(fold_name) != Some(fold_name(wanted))
    {
        let is = time.map_or_else(|| "by arrival".to_owned(), |time| format!("by \"{time}\""));
        return Err(Failure::usage(format!(
            "table \"{}\" exists and is ordered {is}, not by \"{wanted}\"",
            table.name()
        )));
    }
    create_options(options)?;
    Ok(())
}

/// The columns of the table to make. The times that most rows have tell the type of the time column: rows that it does not
/// take are bad rows like others, whether they are set apart or fail the import.
fn new_schema(
    options: &ImportOptions,
    columns: &[String],
    sample: &[Chunk],
) -> Result<Schema, Failure> {
    let schema = infer::schema(columns, sample);
    let time = options.time.as_ref().and_then(|wanted| {
        let is_wanted = |name: &String| fold_name(name) == fold_name(wanted);
        columns.iter().position(is_wanted)
    });
    let Some(time) = time else {
        return Ok(schema);
    };
    let Some((line, first)) = infer::first_value(time, sample) else {
        // Without any time a bad row is the reason, where there is one.
        let bad = sample.iter().flat_map(|chunk| &chunk.bad);
        return bad
            .min_by_key(|row| row.line)
            .map_or(Ok(schema), |row| Err(first_bad(row)));
    };
    let Some(data_type) = infer::time_type(time, sample) else {
        return Err(Failure::Other(format!(
            "line {line}: column \"{}\": {} is no time, and no other value of the first lines is one; nothing was imported",
            columns[time],
            convert::shown(first)
        )));
    };
    let mut fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| (**field).clone())
        .collect();
    fields[time].set_data_type(data_type);
    Ok(Schema::new(fields))
}

fn read_sample(reader: &mut dyn ReadChunks) -> Result<Vec<Chunk>, Failure> {
    let (mut chunks, mut rows, mut bytes) = (Vec::new(), 0, 0);
    while rows < SAMPLE_ROWS && bytes < SAMPLE_BYTES {
        let Some(chunk) = reader.next_chunk()? else {
            break;
        };
        rows += chunk.rows();
        bytes += chunk.bytes();
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// Appends everything in one commit.
fn append(
    table: &Table,
    reader: &mut dyn ReadChunks,
    sample: Vec<Chunk>,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let mut rejects = options
        .rejects
        .as_deref()
        .map(Rejects::create)
        .transpose()?;
    let converter = Converter::new(&table.definition(), reader.columns())?;
    let listening = Listening::start();
    // The engine takes its own errors only; others wait here until it has given up.
    let mut failure = None;
    let mut sample = sample.into_iter();
    let mut next = || -> Result<Option<RecordBatch>, Failure> {
        listening.check()?;
        let Some(chunk) = sample
            .next()
            .map_or_else(|| reader.next_chunk(), |chunk| Ok(Some(chunk)))?
        else {
            if let Some(rejects) = &mut rejects {
                rejects.finish()?;
            }
            return Ok(None);
        };
        let (batch, bad) = converter.convert(&chunk)?;
        match &mut rejects {
            Some(rejects) => bad.iter().try_for_each(|row| rejects.write(row))?,
            None => bad
                .iter()
                .min_by_key(|row| row.line)
                .map_or(Ok(()), |row| Err(first_bad(row)))?,
        }
        Ok(Some(batch))
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
    let appended = table.append(batches, None);
    if let Some(failure) = failure {
        return Err(failure);
    }
    let rejected = rejects.as_ref().map_or(0, Rejects::count);
    Ok(Imported {
        table: table.name().to_owned(),
        rows: appended?,
        rejected,
        rejects: options.rejects.clone(),
    })
}

fn first_bad(row: &BadRow) -> Failure {
    Failure::Other(format!(
        "line {}: {}; nothing was imported (--rejects FILE sets bad rows apart and stores the others)",
        row.line, row.reason
    ))
}
