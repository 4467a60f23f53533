//! How an error reaches a person: what happened, why, and the next step; and which exit code it
//! has.

use std::fmt;

/// The work itself failed: a program, a measurement, a check.
pub const WORK: u8 = 1;
/// The command line was wrong, or softring itself could not go on.
pub const USAGE: u8 = 2;

/// The program to start is there, and cannot be executed; as env(1), nohup(1) and timeout(1) have
/// it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program to start was not found; as those have it.
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

/// Usage, or an error of our own: exit code 2.
pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code: USAGE, what: what.into(), hint: Some(hint.into()) }.into()
}

/// The program cannot be started: exit code [`NOT_FOUND`] or [`NOT_EXECUTABLE`].
pub fn no_program(code: u8, what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code, what: what.into(), hint: Some(hint.into()) }.into()
}

/// The work failed: exit code 1.
pub fn work(what: impl Into<String>) -> anyhow::Error {
    Fail { code: WORK, what: what.into(), hint: None }.into()
}

/// The work failed, and here is what to do about it: exit code 1.
pub fn work_hint(what: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Fail { code: WORK, what: what.into(), hint: Some(hint.into()) }.into()
}

/// A process or a thread cannot be started.
pub fn cannot_start(what: &str, e: &std::io::Error) -> anyhow::Error {
    let hint = match e.raw_os_error() {
        Some(libc::EAGAIN) => {
            "the limit of processes and threads is reached: raise it (ulimit -u; pids.max of the \
             container)"
        }
        _ => "softring doctor shows what is lacking here",
    };
    usage(format!("cannot start {what}: {e}"), hint)
}

/// Is this about the work, and not about how it was asked for, or what we need for it?
pub fn is_work(e: &anyhow::Error) -> bool {
    e.chain().any(|c| c.downcast_ref::<Fail>().is_some_and(|f| f.code == WORK))
}

/// Standard output was closed by its reader, who has seen enough.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints the error with its causes and its hint; answers the exit code.
pub fn report(e: &anyhow::Error) -> u8 {
    if e.is::<ReaderGone>() {
        return 0;
    }
    let causes: Vec<String> = e.chain().map(ToString::to_string).collect();
    crate::out::note(&format!("error: {}", causes.join(": ")));
    let told = e.chain().find_map(|c| c.downcast_ref::<Fail>());
    if let Some(hint) = told.and_then(|t| t.hint.as_deref()) {
        crate::out::note(&format!("hint: {hint}"));
    }
    told.map_or(USAGE, |t| t.code)
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
