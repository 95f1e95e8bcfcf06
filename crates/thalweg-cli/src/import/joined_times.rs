//! A date and a clock in two columns as one column of times.

use super::chunk::{Chunk, ReadChunks};
use crate::failure::Failure;
use arrow_array::StringArray;
use thalweg::fold_name;

/// A file whose columns `date` and `clock` are read as one, in the place of the first.
pub(super) struct JoinedTimes {
    inner: Box<dyn ReadChunks>,
    columns: Vec<String>,
    date: usize,
    clock: usize,
}

/// `inner` with two of its columns joined, if it has both.
pub(super) fn joined(
    inner: Box<dyn ReadChunks>,
    [date, clock]: [&str; 2],
    name: &str,
) -> Box<dyn ReadChunks> {
    let mut columns = inner.columns().to_vec();
    let place = |wanted: &str| {
        let is_it = |name: &String| fold_name(name) == fold_name(wanted);
        columns.iter().position(is_it)
    };
    let (Some(date), Some(clock)) = (place(date), place(clock)) else {
        return inner;
    };
    if date == clock {
        return inner;
    }
    name.clone_into(&mut columns[date]);
    columns.remove(clock);
    Box::new(JoinedTimes {
        inner,
        columns,
        date,
        clock,
    })
}

impl JoinedTimes {
    fn join(&self, mut chunk: Chunk) -> Chunk {
        let pairs = chunk.columns[self.date]
            .iter()
            .zip(&chunk.columns[self.clock]);
        let times: StringArray = pairs
            .map(|(date, clock)| Some(format!("{} {}", date?.trim(), clock?.trim())))
            .collect();
        chunk.columns[self.date] = times;
        chunk.columns.remove(self.clock);
        chunk.is_text[self.date] = true;
        chunk.is_text.remove(self.clock);
        chunk
    }
}

impl ReadChunks for JoinedTimes {
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
        let chunk = self.inner.next_chunk()?;
        Ok(chunk.map(|chunk| self.join(chunk)))
    }
}
