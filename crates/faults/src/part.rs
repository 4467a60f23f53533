//! Parts of a SPEC's text. Errors name the column.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::chance::Time;

/// Units of time, the largest first.
pub(crate) const UNITS: [(&str, u64); 4] =
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// An error in a SPEC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Column of the first character that is wrong, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl core::error::Error for Error {}

impl Error {
    /// Returns the text with a caret below the column, on two lines.
    pub fn point(&self, text: &str) -> String {
        format!("{text}\n{:>1$}", "^", self.column)
    }
}

pub type Result<T> = core::result::Result<T, Error>;

/// A part of the text, which knows its place.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub(crate) whole: &'a str,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl<'a> Part<'a> {
    pub fn text(self) -> &'a str {
        &self.whole[self.from..self.to]
    }

    /// Splits at the first `byte`, which belongs to neither part.
    pub fn split(self, byte: char) -> Option<(Part<'a>, Part<'a>)> {
        let at = self.from + self.text().find(byte)?;
        Some((Part { to: at, ..self }, Part { from: at + 1, ..self }))
    }

    /// Returns an error at the beginning of the part.
    pub fn error(self, message: impl Into<String>) -> Error {
        let column = self.whole[..self.from].chars().count() + 1;
        Error { column, message: message.into() }
    }

    /// Parses a number.
    ///
    /// # Errors
    /// The part is none.
    pub fn number<N: core::str::FromStr>(self, what: &str) -> Result<N> {
        let digits = !self.text().is_empty() && self.text().bytes().all(|b| b.is_ascii_digit());
        let number = digits.then(|| self.text().parse().ok()).flatten();
        number.ok_or_else(|| self.error(format!("{what} must be a number, as 3")))
    }
}

/// Splits a text at its commas, but for those behind a backslash.
pub fn items(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut from = Some(0);
    core::iter::from_fn(move || {
        let start = from?;
        let mut escaped = false;
        let end = text[start..].find(|c| {
            let ends = c == ',' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let to = end.map_or(text.len(), |at| start + at);
        from = end.map(|_| to + 1);
        Some(Part { whole: text, from: start, to })
    })
}

/// Parses a time; returns it in ns.
///
/// # Errors
/// The part is no time, or one that is too long.
pub fn ns(part: Part<'_>) -> Result<u64> {
    let text = part.text();
    let wrong = || part.error("a time is a number with a unit (ns, us, ms, s), as 20ms");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let factor = UNITS.iter().find(|u| u.0 == unit).map(|u| u.1).ok_or_else(wrong)?;
    let time = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    if number.is_empty() {
        return Err(wrong());
    }
    time.filter(|&ns| ns <= Time::MOST)
        .ok_or_else(|| part.error("a time is at most 60s".to_string()))
}
