//! The files of one import, one after the other, as chunks with the columns of the first one.

use super::chunk::{Chunk, ReadChunks};
use super::csv_lines::CsvLines;
use super::file_names::with_file_name;
use super::joined_times::joined;
use super::json_lines::{JsonLines, LateNames};
use super::source::Input;
use crate::arguments::{FileFormat, ImportOptions};
use crate::failure::Failure;
use indicatif::ProgressBar;
use thalweg::fold_name;

/// A file as it is found when it is opened.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) columns: usize,
    pub(super) delimiter: Option<u8>,
    pub(super) has_odd_header: bool,
    /// Lines of comment in front of the header.
    pub(super) comments: u64,
}

impl Opened {
    fn of(name: &str, reader: &dyn ReadChunks, options: &ImportOptions) -> Self {
        // That of the name of the file is none of the file.
        let added = usize::from(options.filename.is_some());
        Self {
            name: name.to_owned(),
            columns: reader.columns().len() - added,
            delimiter: reader.delimiter(),
            has_odd_header: reader.has_odd_header(),
            comments: reader.comments(),
        }
    }
}

pub(super) struct FileSet<'a> {
    inputs: &'a mut [Input],
    options: &'a ImportOptions,
    /// The text of the progress bar.
    doing: &'static str,
    /// The names of the columns of files without a header.
    names: Option<&'a [String]>,
    late: &'a LateNames,
    current: usize,
    reader: Box<dyn ReadChunks>,
    bar: ProgressBar,
    columns: Vec<String>,
    /// The files that were opened, as they were found.
    opened: Vec<Opened>,
    /// Where the columns of the first file are in the current one.
    places: Vec<usize>,
}

impl<'a> FileSet<'a> {
    /// Opens the first file. `names` are those of the columns of files without a header.
    pub(super) fn open(
        inputs: &'a mut [Input],
        options: &'a ImportOptions,
        doing: &'static str,
        names: Option<&'a [String]>,
        late: &'a LateNames,
    ) -> Result<Self, Failure> {
        let first = inputs
            .first_mut()
            .ok_or_else(|| Failure::usage("name a file to import"))?;
        let (reader, bar) = open_reader(first, options, doing, names, late)?;
        let columns = reader.columns().to_vec();
        let opened = vec![Opened::of(&first.name, &*reader, options)];
        Ok(Self {
            opened,
            inputs,
            options,
            doing,
            names,
            late,
            current: 0,
            reader,
            bar,
            places: (0..columns.len()).collect(),
            columns,
        })
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn delimiter(&self) -> Option<u8> {
        self.reader.delimiter()
    }

    pub(super) fn has_odd_header(&self) -> bool {
        self.reader.has_odd_header()
    }

    /// The files that were opened, as they were found, in their order.
    pub(super) fn opened(&self) -> &[Opened] {
        &self.opened
    }

    /// The next rows of any file; `None` at the end of the last one.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        loop {
            if let Some(chunk) = self.reader.next_chunk()? {
                return Ok(Some(self.in_order(chunk)));
            }
            if self.current + 1 == self.inputs.len() {
                return Ok(None);
            }
            self.open_next()?;
        }
    }

    fn open_next(&mut self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        self.current += 1;
        let input = &mut self.inputs[self.current];
        let (reader, bar) = open_reader(input, self.options, self.doing, self.names, self.late)?;
        let found = reader.columns();
        let place_of = |name: &String| {
            let is_it = |other: &String| fold_name(other) == fold_name(name);
            found.iter().position(is_it)
        };
        let places: Option<Vec<usize>> = self.columns.iter().map(place_of).collect();
        let places = places.filter(|places| places.len() == found.len());
        self.places = places.ok_or_else(|| {
            Failure::Other(format!(
                "{} has other columns ({}) than the first file ({}): import it by itself",
                input.name,
                found.join(", "),
                self.columns.join(", ")
            ))
        })?;
        let opened = Opened::of(&input.name, &*reader, self.options);
        self.opened.push(opened);
        (self.reader, self.bar) = (reader, bar);
        Ok(())
    }

    fn in_order(&self, mut chunk: Chunk) -> Chunk {
        if !self.places.iter().copied().eq(0..self.places.len()) {
            chunk.columns = self
                .places
                .iter()
                .map(|&place| chunk.columns[place].clone())
                .collect();
            chunk.is_text = self
                .places
                .iter()
                .map(|&place| chunk.is_text[place])
                .collect();
        }
        if self.inputs.len() > 1 {
            chunk.file = Some(self.inputs[self.current].name.clone());
        }
        chunk
    }
}

impl Drop for FileSet<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The names of columns that are in no first object of any file of JSON.
pub(super) fn late_names(
    inputs: &mut [Input],
    options: &ImportOptions,
    check: &dyn Fn() -> Result<(), Failure>,
) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for input in inputs {
        let source = input.read("columns", options)?;
        let bar = source.bar.clone();
        if source.format == FileFormat::Json {
            let reader = JsonLines::open(source, options, LateNames::End)?;
            for name in reader.late_names(check)? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        bar.finish_and_clear();
    }
    Ok(names)
}

fn open_reader(
    input: &mut Input,
    options: &ImportOptions,
    doing: &'static str,
    names: Option<&[String]>,
    late: &LateNames,
) -> Result<(Box<dyn ReadChunks>, ProgressBar), Failure> {
    let source = input.read(doing, options)?;
    let bar = source.bar.clone();
    let mut reader: Box<dyn ReadChunks> = match source.format {
        FileFormat::Json => Box::new(JsonLines::open(source, options, late.clone())?),
        _ => Box::new(CsvLines::open(source, options)?),
    };
    if let (Some(columns), Some(name)) = (options.date_and_clock(), options.joined_name())
        && options.time_place(reader.columns()).is_none()
    {
        reader = joined(reader, columns, &name);
    }
    if let Some(column) = &options.filename {
        reader = with_file_name(reader, column, input)?;
    }
    if let Some(names) = names {
        if reader.columns().len() != names.len() {
            return Err(Failure::Other(format!(
                "{} has {} columns and the table {} ({}): without a header they must be the same",
                input.name,
                reader.columns().len(),
                names.len(),
                names.join(", ")
            )));
        }
        reader.columns_mut().clone_from_slice(names);
    }
    Ok((reader, bar))
}
