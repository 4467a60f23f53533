//! Standard output of the programs of this crate.

use std::io::{ErrorKind, Write};

/// Writes a line. A reader that closed the pipe is no error, and later faults still show in the
/// exit code.
pub fn line(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => panic!("cannot write: {e}"),
        _ => {}
    }
}

/// Same as `println!`, through [`line`].
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::out::line(format_args!($($arg)*)) };
}
