//! Where tokens stand in their text.

use datafusion_sql::sqlparser::tokenizer::{Location, TokenWithSpan};

/// The lines of a text.
pub(crate) struct TokenPlaces<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> TokenPlaces<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            line_starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// The first byte of a token; `None` for one that is not of this text.
    pub(crate) fn byte_of(&self, token: &TokenWithSpan) -> Option<usize> {
        self.byte_at(token.span.start)
    }

    /// The byte after a token.
    pub(crate) fn end_of(&self, token: &TokenWithSpan) -> Option<usize> {
        self.byte_at(token.span.end)
    }

    fn byte_at(&self, place: Location) -> Option<usize> {
        // Lines and columns count from 1, columns in characters.
        let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
        let start = *self.line_starts.get(line)?;
        let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
        let line = &self.text[start..];
        let mut characters = line.char_indices();
        Some(start + characters.nth(column).map_or(line.len(), |(at, _)| at))
    }
}
