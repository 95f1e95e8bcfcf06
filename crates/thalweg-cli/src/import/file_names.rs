//! Adds the name of the file that each row is from as a further column.

use super::chunk::{ChangedChunks, Chunk, ReadChunks};
use super::source::Input;
use crate::failure::Failure;
use arrow_array::StringArray;
use thalweg::fold_name;

/// `inner` with the name of its file in one more column, the last.
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
    let change = move |mut chunk: Chunk| {
        let names = std::iter::repeat_n(name.as_str(), chunk.rows());
        chunk.columns.push(StringArray::from_iter_values(names));
        chunk.is_text.push(true);
        chunk
    };
    Ok(Box::new(ChangedChunks {
        inner,
        columns,
        change,
    }))
}
