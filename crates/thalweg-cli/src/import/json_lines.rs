//! JSON: one object per line, or a list of objects. Columns are the names found in the first ones; where one comes up later the
//! file is read again from its start, once all names are known.

use super::chunk::{Chunk, ChunkBuilder, NOT_UTF8, ReadChunks};
use super::infer::is_marker;
use super::json_list::{Broken, Item, ListItems};
use super::nulls::Nulls;
use super::numbers::is_float;
use super::source::Source;
use crate::arguments::ImportOptions;
use crate::failure::Failure;
use arrow_schema::DataType;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, BufRead};
use thalweg::fold_name;

/// Lines in which columns are looked for.
const HEADER_LINES: usize = 10_000;

/// Names that come up after the first objects of a file: an error, or columns.
#[derive(Clone, Debug)]
pub(super) enum LateNames {
    /// They end the reading: [`Failure::LateColumn`].
    End,
    /// These are columns too; an object with any other is a bad row.
    Are(Vec<String>),
}

pub(super) struct JsonLines {
    reader: Box<dyn BufRead>,
    /// The file is one list.
    list: Option<ListItems>,
    /// Lines of the file that were read, or left out.
    lines_read: u64,
    /// Objects that were read to find the columns.
    ahead: VecDeque<Item>,
    columns: Vec<String>,
    places: HashMap<String, usize>,
    line: u64,
    keeps_raw: bool,
    /// Texts and numbers that mean null.
    nulls: Nulls,
    late: LateNames,
    /// Columns that are given the type text, in which lists and objects may stand.
    texts: Vec<String>,
    name: String,
}

impl JsonLines {
    pub(super) fn open(
        source: Source,
        options: &ImportOptions,
        late: LateNames,
    ) -> Result<Self, Failure> {
        let Source { reader, name, .. } = source;
        let (columns, places) = (Vec::new(), HashMap::new());
        let mut lines = Self {
            reader,
            list: None,
            lines_read: 0,
            ahead: VecDeque::new(),
            columns,
            places,
            line: 0,
            keeps_raw: options.rejects.is_some(),
            nulls: Nulls::new(&options.null),
            late,
            texts: options
                .types
                .iter()
                .filter(|told| told.data_type == DataType::Utf8)
                .map(|told| fold_name(&told.column))
                .collect(),
            name,
        };
        for _ in 0..options.skip {
            if lines.read_line()?.is_none() {
                break;
            }
        }
        if lines.starts_list()? {
            lines.list = Some(ListItems::new(lines.lines_read + 1));
        }
        while lines.ahead.len() < HEADER_LINES {
            let Some(item) = lines.read_item()? else {
                break;
            };
            lines.find_columns(&item.text);
            lines.ahead.push_back(item);
        }
        if lines.columns.is_empty() {
            let place = match lines.list {
                Some(_) => "in its list",
                None => "on any of its first lines",
            };
            let is_text = |item: &Item| std::str::from_utf8(&item.text).is_ok();
            if let Some(item) = lines.ahead.iter().find(|item| !is_text(item)) {
                let (name, line) = (&lines.name, item.line);
                return Err(Failure::Other(format!("line {line} of {name}: {NOT_UTF8}")));
            }
            let begun = lines
                .ahead
                .iter()
                .find(|item| item.text.trim_ascii_start().starts_with(b"{"));
            if let Some(item) = begun {
                return Err(lines.first_is_bad(item));
            }
            return Err(Failure::Other(format!(
                "{} has no JSON object {place}: it takes an object on each line, or a list of objects, [{{...}}, {{...}}]",
                lines.name
            )));
        }
        if let LateNames::Are(names) = &lines.late {
            let names = names.clone();
            names.into_iter().for_each(|name| lines.add_column(name));
        }
        Ok(lines)
    }

    /// Why none of the first lines is an object, though this one begins like one.
    fn first_is_bad(&self, item: &Item) -> Failure {
        let (name, line) = (&self.name, item.line);
        let text = String::from_utf8_lossy(&item.text);
        let reason = match serde_json::from_str::<Object>(&text) {
            Ok(_) => "it has no columns".to_owned(),
            Err(error) => {
                let behind = text.get(error.column().saturating_sub(1)..);
                let is_several = behind.is_some_and(|behind| behind.starts_with('{'));
                let hint = match (error.is_eof() || is_several) && self.list.is_none() {
                    true => "; jq -c . FILE writes each object on a line of its own",
                    false => "",
                };
                not_json(&error, &text) + hint
            }
        };
        Failure::Other(format!("line {line} of {name}: {reason}"))
    }

    fn find_columns(&mut self, line: &[u8]) {
        // A bad line is reported when its turn comes.
        let Ok(Object(fields)) = serde_json::from_slice(line) else {
            return;
        };
        fields
            .into_iter()
            .for_each(|(name, _)| self.add_column(name));
    }

    fn add_column(&mut self, name: String) {
        if !self.places.contains_key(&name) {
            self.places.insert(name.clone(), self.columns.len());
            self.columns.push(name);
        }
    }

    /// The names that objects after the first ones have in addition, in all the rest of the file.
    pub(super) fn late_names(
        mut self,
        check: &dyn Fn() -> Result<(), Failure>,
    ) -> Result<Vec<String>, Failure> {
        let known = self.columns.len();
        self.ahead.clear();
        let mut items = 0_usize;
        while let Some(item) = self.read_item()? {
            if items.is_multiple_of(HEADER_LINES) {
                check()?;
            }
            items += 1;
            self.find_columns(&item.text);
        }
        Ok(self.columns.split_off(known))
    }

    fn read_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) => Ok(None),
            Ok(_) => {
                self.lines_read += 1;
                Ok(Some(line))
            }
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        Failure::Other(format!("reading {}: {error}", self.name))
    }

    /// Whether the first character that is no blank opens a list.
    fn starts_list(&mut self) -> Result<bool, Failure> {
        let start = match self.reader.fill_buf() {
            Ok(start) => start,
            Err(error) => return Err(self.unreadable(&error)),
        };
        let start = start.strip_prefix(super::source::BOM).unwrap_or(start);
        Ok(start.trim_ascii_start().starts_with(b"["))
    }

    /// The next line, or the next object of the list.
    fn read_item(&mut self) -> Result<Option<Item>, Failure> {
        let Some(list) = &mut self.list else {
            let text = self.read_line()?;
            let line = self.lines_read;
            return Ok(text.map(|mut text| {
                if line == 1 && text.starts_with(super::source::BOM) {
                    text.drain(..super::source::BOM.len());
                }
                Item { line, text }
            }));
        };
        list.next(&mut *self.reader).map_err(|broken| match broken {
            Broken::Read(error) => self.unreadable(&error),
            Broken::List(what, line) => {
                Failure::Other(format!("{}: line {line}: {what}", self.name))
            }
        })
    }

    fn is_text(&self, column: &str) -> bool {
        let column = fold_name(column);
        self.texts.contains(&column)
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let item = match self.ahead.pop_front() {
            Some(item) => Some(item),
            None => self.read_item()?,
        };
        Ok(item.map(|item| {
            self.line = item.line;
            item.text
        }))
    }

    fn push_line(&self, line: &[u8], chunk: &mut ChunkBuilder) -> Result<(), Failure> {
        let text = std::str::from_utf8(line).map_err(|_| Unfit::Bad(NOT_UTF8.to_owned()));
        match text.and_then(|text| self.fields(text, chunk)) {
            Ok(fields) => chunk.push(self.line, line, fields.iter().map(Option::as_deref)),
            Err(Unfit::Bad(reason)) => chunk.push_bad(self.line, reason, line),
            Err(Unfit::Late(name)) => return Err(Failure::LateColumn(name)),
        }
        Ok(())
    }

    /// The values of a line by column, as text.
    fn fields(&self, text: &str, chunk: &mut ChunkBuilder) -> Result<Vec<Option<String>>, Unfit> {
        let Object(object) =
            serde_json::from_str(text).map_err(|error| Unfit::Bad(not_json(&error, text)))?;
        let mut fields = vec![None; self.columns.len()];
        for (name, value) in object {
            let Some(&place) = self.places.get(&name) else {
                return Err(match self.late {
                    LateNames::End => Unfit::Late(name),
                    LateNames::Are(_) => Unfit::Bad(format!("\"{name}\" is no column")),
                });
            };
            let is_null = |text: &str| self.nulls.has(text);
            let written = value.get();
            fields[place] = match written.as_bytes().first() {
                Some(b'n') => None,
                Some(b'"') => {
                    let text: String = serde_json::from_str(written)
                        .map_err(|error| Unfit::Bad(not_json(&error, text)))?;
                    let text = Some(text).filter(|text| !is_null(text));
                    // A marker of a missing value does not make its column one of texts: it is named later as the reason if
                    // the column cannot be numeric.
                    let is_value = |text: &String| !is_marker(text) || is_float(text);
                    if text.as_ref().is_some_and(is_value) {
                        chunk.mark_text(place);
                    }
                    text
                }
                Some(b'[' | b'{') if self.is_text(&name) => {
                    chunk.mark_text(place);
                    Some(written.to_owned())
                }
                Some(b'[' | b'{') => {
                    return Err(Unfit::Bad(format!(
                        "column \"{name}\" holds a list or an object: --type {name}=varchar stores it as text, and \
                         pandas.json_normalize makes columns of it"
                    )));
                }
                // Numbers as they are written, with all their digits, and booleans.
                _ => Some(written.to_owned()).filter(|written| !is_null(written)),
            };
        }
        Ok(fields)
    }
}

impl ReadChunks for JsonLines {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_mut(&mut self) -> &mut [String] {
        &mut self.columns
    }

    fn delimiter(&self) -> Option<u8> {
        None
    }

    fn has_odd_header(&self) -> bool {
        false
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let mut chunk = ChunkBuilder::new(self.columns.len(), self.keeps_raw);
        while !chunk.is_full() {
            let Some(line) = self.next_line()? else { break };
            let line = line.trim_ascii_end();
            if !line.is_empty() {
                self.push_line(line, &mut chunk)?;
            }
        }
        Ok(chunk.finish())
    }
}

/// Why an object is no row.
enum Unfit {
    Bad(String),
    /// It has a name that the first objects do not have.
    Late(String),
}

/// The fields of an object in the order of the text, which a map would lose, with their values as they are written.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
/// Why a line is no object of JSON: every line is read by itself, so the parser's number of it is always 1.
fn not_json(error: &serde_json::Error, line: &str) -> String {
    let text = error.to_string();
    let behind = line
        .get(error.column().saturating_sub(1)..)
        .unwrap_or_default();
    let hint = match behind.starts_with("NaN") || behind.contains("Infinity") {
        true => " (JSON has no NaN and Infinity: write null)",
        false => "",
    };
    let what = text.split(" at line ").next().unwrap_or(&text);
    let column = error.column();
    match error.is_eof() {
        true => format!("the JSON object is cut off in column {column}"),
        false => format!("it is no JSON object: {what} in column {column}{hint}"),
    }
}
