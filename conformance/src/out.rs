//! What the programs of this crate tell on standard output.

use std::io::{ErrorKind, Write};

/// Writes a line. A reader that closed the pipe has seen enough: that is no error, and what is
/// found after it still shows in the exit code.
pub fn line(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => panic!("cannot write: {e}"),
        _ => {}
    }
}

/// As `println!`, through [`line`].
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::out::line(format_args!($($arg)*)) };
}
