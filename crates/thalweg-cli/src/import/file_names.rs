//! The name of the file that rows are from, as one more column.

use super::chunk::{Chunk, ReadChunks};
use super::source::Input;
use crate::failure::Failure;
use arrow_array::StringArray;
use thalweg::fold_name;

/// A file with one more column, the last, which holds the name of the file in each row.
struct NamedFile {
    inner: Box<dyn ReadChunks>,
    columns: Vec<String>,
    name: String,
}

/// `inner` with the name of its file in the column `column`.
///
/// # Errors
/// When the file has a column of that name itself, or there is no file.
pub(super) fn with_file_name(
    inner: Box<dyn ReadChunks>,
    column: &str,
    input: &Input,
) -> Result<Box<dyn ReadChunks>, Failure> {
    let file = &input.name;
    let Some(name) = input.stem.clone() else {
        return Err(Failure::usage(format!("--filename: {file} has no name")));
    };
    let mut columns = inner.columns().to_vec();
    if columns
        .iter()
        .any(|own| fold_name(own) == fold_name(column))
    {
        return Err(Failure::usage(format!(
            "--filename: {file} has a column \"{column}\" itself: give another name"
        )));
    }
    columns.push(column.to_owned());
    Ok(Box::new(NamedFile {
        inner,
        columns,
        name,
    }))
}

impl ReadChunks for NamedFile {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_mut(&mut self) -> &mut [String] {
        &mut self.columns
    }

    fn delimiter(&self) -> Option<u8> {
        self.inner.delimiter()
    }

    fn has_odd_header(&self) -> bool {
        self.inner.has_odd_header()
    }

    fn comments(&self) -> u64 {
        self.inner.comments()
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let Some(mut chunk) = self.inner.next_chunk()? else {
            return Ok(None);
        };
        let names = std::iter::repeat_n(self.name.as_str(), chunk.rows());
        chunk.columns.push(StringArray::from_iter_values(names));
        chunk.is_text.push(true);
        Ok(Some(chunk))
    }
}
