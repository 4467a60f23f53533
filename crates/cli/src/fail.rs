//! Errors as a person gets them: what happened, why, and the next step; and the exit code.

use std::fmt;

/// Exit code if the work itself failed: a program, a measurement, a check.
pub const WORK: u8 = 1;
/// Exit code if the command line was wrong, or softring itself could not go on.
pub const USAGE: u8 = 2;

/// Exit code if the program to start is there and cannot be executed, as with env(1), nohup(1) and
/// timeout(1).
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit code if the program to start was not found, as with the same commands.
pub const NOT_FOUND: u8 = 127;

/// An error with its exit code and the next step to take.
#[derive(Debug)]
pub struct Fail {
    code: u8,
    what: String,
    hint: Option<String>,
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fail {}

/// Makes an error of usage, or of our own: exit code 2.
pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code: USAGE, what: what.into(), hint: Some(hint.into()) }.into()
}

/// Makes an error for a program that cannot be started: exit code [`NOT_FOUND`] or
/// [`NOT_EXECUTABLE`].
pub fn no_program(code: u8, what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code, what: what.into(), hint: Some(hint.into()) }.into()
}

/// Makes an error of the work: exit code 1.
pub fn work(what: impl Into<String>) -> anyhow::Error {
    Fail { code: WORK, what: what.into(), hint: None }.into()
}

/// Makes an error of the work, with what to do about it: exit code 1.
pub fn work_hint(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code: WORK, what: what.into(), hint: Some(hint.into()) }.into()
}

/// Makes an error for a process or a thread that cannot be started.
pub fn cannot_start(what: &str, e: &std::io::Error) -> anyhow::Error {
    let hint = match e.raw_os_error() {
        Some(libc::EAGAIN) => {
            "the limit of processes and threads is reached: raise it (ulimit -u; pids.max of the \
             container)"
        }
        _ => "softring doctor shows what is missing here",
    };
    usage(format!("cannot start {what}: {e}"), hint)
}

/// Returns whether the error is about the work, and not about how it was asked for, or about what
/// softring needs for it.
pub fn is_work(e: &anyhow::Error) -> bool {
    e.chain().any(|c| c.downcast_ref::<Fail>().is_some_and(|f| f.code == WORK))
}

/// Error if the reader of standard output has closed it, having seen enough.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints the error with its causes and its hint; returns the exit code.
pub fn report(e: &anyhow::Error) -> u8 {
    if e.is::<ReaderGone>() {
        return 0;
    }
    let causes: Vec<String> = e.chain().map(ToString::to_string).collect();
    crate::out::note(&format!("error: {}", causes.join(": ")));
    let known = e.chain().find_map(|c| c.downcast_ref::<Fail>());
    if let Some(hint) = known.and_then(|t| t.hint.as_deref()) {
        crate::out::note(&format!("hint: {hint}"));
    }
    known.map_or(USAGE, |t| t.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn code(e: &anyhow::Error) -> u8 {
        e.chain().find_map(|c| c.downcast_ref::<Fail>()).map_or(USAGE, |t| t.code)
    }

    #[test]
    fn context_keeps_the_code() {
        let e = Err::<(), _>(work("verify")).context("worker").unwrap_err();
        assert_eq!(code(&e), WORK);
        assert_eq!(code(&anyhow::anyhow!("plain")), USAGE);
    }
}
