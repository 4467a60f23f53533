//! The log: a JSON object on each line. The first says what was asked for, each other one what was
//! injected.

use alloc::string::String;
use core::fmt::{self, Display, Formatter, Write};

mod json;

/// First member of a log's first line, and the version of the format.
const HEAD: &str = "softring-faults";
const VERSION: u64 = 1;

/// The first line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The SPEC, as it parses.
    pub spec: String,
}

/// One injected fault. The path and the process are for people; a replay ignores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub ring: u32,
    pub request: u64,
    /// Name of the opcode.
    pub op: String,
    /// Name of the fault.
    pub fault: String,
    /// Bytes transferred, ns, completions, or the error number.
    pub value: u64,
    pub pid: u32,
    /// The path of the request's file, if it has one.
    pub path: Option<String>,
}

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' || c == '\u{7f}' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

impl Display for Head {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"{HEAD}\":{VERSION},\"spec\":{}}}", Quoted(&self.spec))
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Line { ring, request, value, pid, .. } = self;
        let (op, fault) = (Quoted(&self.op), Quoted(&self.fault));
        write!(f, "{{\"ring\":{ring},\"request\":{request},\"op\":{op},\"fault\":{fault},")?;
        write!(f, "\"value\":{value},\"pid\":{pid}")?;
        if let Some(path) = &self.path {
            write!(f, ",\"path\":{}", Quoted(path))?;
        }
        f.write_char('}')
    }
}

impl Head {
    /// Parses a log's first line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Head, &'static str> {
        let (mut version, mut spec) = (None, None);
        json::members(line, |name, value| match (name, value) {
            (HEAD, json::Value::Number(n)) => version = Some(n),
            ("spec", json::Value::Text(text)) => spec = Some(text),
            _ => {}
        })?;
        match version {
            Some(VERSION) => Ok(Head { spec: spec.unwrap_or_default() }),
            Some(_) => Err("the log is of another version of softring"),
            None => Err("the first line has no member softring-faults"),
        }
    }
}

impl Line {
    /// Parses a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Line, &'static str> {
        let mut line = Line::default();
        let mut seen = [false; 4];
        json::members(text, |name, value| match (name, value) {
            ("ring", json::Value::Number(n)) => {
                (line.ring, seen[0]) = (u32::try_from(n).unwrap_or(u32::MAX), true);
            }
            ("request", json::Value::Number(n)) => (line.request, seen[1]) = (n, true),
            ("fault", json::Value::Text(text)) => (line.fault, seen[2]) = (text, true),
            ("value", json::Value::Number(n)) => (line.value, seen[3]) = (n, true),
            ("op", json::Value::Text(text)) => line.op = text,
            ("pid", json::Value::Number(n)) => line.pid = u32::try_from(n).unwrap_or(0),
            ("path", json::Value::Text(text)) => line.path = Some(text),
            _ => {}
        })?;
        if seen == [true; 4] { Ok(line) } else { Err("ring, request, fault or value is missing") }
    }
}

#[cfg(test)]
mod tests;
