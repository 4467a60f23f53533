//! Standard output and standard error.

use crate::child::{self, Isolated};
use crate::fail::{self, ReaderGone};
use crate::{signals, sys};
use comfy_table::{LineStyle, TableStyle};
use softring_host::refused;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;

/// Writes `text` and a newline to standard output; a reader that has gone is [`ReaderGone`].
pub fn line(text: &str) -> anyhow::Result<()> {
    raw(format!("{text}\n"))
}

/// Writes `text` to standard output.
pub fn raw(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    write(|out| out.write_all(text.as_ref()))
}

fn write(f: impl FnOnce(&mut BufWriter<StdoutLock<'_>>) -> io::Result<()>) -> anyhow::Result<()> {
    if sys::stdout_was_closed() {
        let hint = "keep standard output open; use `>/dev/null` to discard the output";
        return Err(fail::work_hint("standard output is closed", hint));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match f(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(e) => {
            let what = format!("cannot write to standard output: {e}");
            Err(fail::usage(what, "free some space there, or write elsewhere"))
        }
    }
}

/// Writes `value` as JSON with a newline to standard output.
pub fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    write(|out| {
        // The text is not made first: it may be long.
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Checks that `path` can be written later. Leaves nothing there, and an existing file as it is.
pub fn may_write(path: &Path) -> io::Result<()> {
    let opened = match File::options().append(true).open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let dir = path.parent().filter(|d| !d.as_os_str().is_empty());
            tempfile::tempfile_in(dir.unwrap_or(Path::new(".")))
        }
        opened => opened,
    };
    opened.map(drop)
}

/// Writes one line to standard error; a closed one is nobody's loss.
pub fn note(text: &str) {
    signals::ignore_sigpipe();
    note_by_write(text);
}

/// Writes one line to standard error by write(2) alone; if its reader is gone, SIGPIPE ends this
/// process.
pub fn note_by_write(text: &str) {
    let _ = writeln!(io::stderr().lock(), "softring: {text}");
}

/// Table style: one rule, below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Makes an empty table: one rule below the header, cells wrapped to the terminal's width.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut t = comfy_table::Table::new();
    t.load_style(STYLE);
    t.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    t.set_header(header);
    if refused::is_filtered() {
        t.force_no_tty();
        if let Some(columns) = columns_by_child() {
            t.set_width(columns);
        }
    }
    t
}

/// Returns the width of the terminal on standard output, if it is one. A child asks, as a policy
/// may kill for ioctl(2).
fn columns_by_child() -> Option<u16> {
    match child::isolated(|| terminal_columns().to_ne_bytes().to_vec()) {
        Ok(Isolated::Answer(bytes)) => Some(u16::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
    .filter(|&columns| columns > 0)
}

/// Returns the width of the terminal; 0 if standard output is no terminal.
fn terminal_columns() -> u16 {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col)
}

/// Returns the width of a text for people: the terminal's, between 60 and 100 columns; 80
/// elsewhere.
pub fn columns() -> usize {
    let asked = if refused::is_filtered() {
        columns_by_child()
    } else {
        Some(terminal_columns()).filter(|&columns| columns > 0)
    };
    asked.map_or(80, |columns| usize::from(columns).clamp(60, 100))
}

/// Joins `first` and the words of `text` in lines of `columns` at most. From the second on, lines
/// begin with `indent` blanks. A longer word stays whole, so that it can be copied.
pub fn wrapped(first: &str, text: &str, indent: usize, columns: usize) -> String {
    let mut lines = first.to_owned();
    let mut width = first.chars().count();
    let mut fresh = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !fresh && width + 1 + length > columns {
            lines.push_str(&format!("\n{:indent$}", ""));
            width = indent;
        } else if !fresh {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
        fresh = false;
    }
    lines
}

/// Formats a number in at most five characters: 7, 0.5, 950, 1.2K, 34M.
pub fn count_short(n: f64) -> String {
    scaled(n, 1000.0, &["", "K", "M", "G", "T"])
}

/// Formats bytes in at most five characters, by powers of 1024.
pub fn bytes_short(n: f64) -> String {
    scaled(n, 1024.0, &["", "K", "M", "G", "T"])
}

/// Formats a time in ns in at most five characters: 890n, 1.2u, 34m, 5.0s.
pub fn ns_short(ns: u64) -> String {
    scaled(ns as f64, 1000.0, &["n", "u", "m", "s"])
}

fn scaled(mut n: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // A number that rounds to a step counts as one.
    while n >= step - 0.5 && unit + 1 < units.len() {
        n /= step;
        unit += 1;
    }
    let whole = n >= 9.95 || n == n.trunc() && unit == 0;
    if whole { format!("{n:.0}{}", units[unit]) } else { format!("{n:.1}{}", units[unit]) }
}

/// Draws progress on standard error if it is a terminal, else nothing.
pub fn progress(steps: u64) -> indicatif::ProgressBar {
    if !io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(steps);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_words() {
        let text = "one two three /a/long/path four";
        assert_eq!(wrapped("a: ", text, 3, 11), "a: one two\n   three\n   /a/long/path\n   four");
        assert_eq!(wrapped("a: ", text, 3, 80), format!("a: {text}"));
        assert_eq!(wrapped("a:", "", 3, 80), "a:");
    }

    #[test]
    fn numbers_are_short() {
        let counts = [(0.0, "0"), (0.25, "0.2"), (7.0, "7"), (999.4, "999"), (999.6, "1.0K")];
        for (n, want) in counts {
            assert_eq!(count_short(n), want, "{n}");
        }
        assert_eq!((count_short(34_567.0), count_short(1.2e6)), ("35K".into(), "1.2M".into()));
        assert_eq!((bytes_short(1024.0), bytes_short(1.5e9)), ("1.0K".into(), "1.4G".into()));
        let times = [(0, "0n"), (890, "890n"), (1_240, "1.2u"), (34_000_000, "34m")];
        for (ns, want) in times {
            assert_eq!(ns_short(ns), want);
        }
        assert_eq!(ns_short(250_000_000_000), "250s");
    }
}
