//! Standard output and standard error.

use crate::fail::ReaderGone;
use comfy_table::{LineStyle, TableStyle};
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Writes `text` and a newline to standard output; a reader that has gone is [`ReaderGone`].
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(e) => Err(anyhow::Error::new(e).context("cannot write to standard output")),
    }
}

/// Writes `value` as JSON with a newline to standard output.
pub fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// One line on standard error; a closed one is nobody's loss.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "softring: {text}");
}

/// One rule, below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// An empty table: one rule below the header, cells wrapped to the terminal's width.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut t = comfy_table::Table::new();
    t.load_style(STYLE);
    t.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    t.set_header(header);
    t
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
