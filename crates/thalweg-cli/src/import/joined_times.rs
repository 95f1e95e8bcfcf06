//! A date and a clock in two columns as one column of times.

use super::chunk::{ChangedChunks, Chunk, ReadChunks};
use arrow_array::StringArray;
use thalweg::fold_name;

/// `inner` with its columns `date` and `clock` joined in the place of the first, if it has both.
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
    Box::new(ChangedChunks {
        inner,
        columns,
        change: move |chunk| join(chunk, date, clock),
    })
}

fn join(mut chunk: Chunk, date: usize, clock: usize) -> Chunk {
    let pairs = chunk.columns[date].iter().zip(&chunk.columns[clock]);
    let times: StringArray = pairs
        .map(|(date, clock)| Some(format!("{} {}", date?.trim(), clock?.trim())))
        .collect();
    chunk.columns[date] = times;
    chunk.columns.remove(clock);
    chunk.is_text[date] = true;
    chunk.is_text.remove(clock);
    chunk
}
