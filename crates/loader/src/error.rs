//! Reasons why a library could not be mapped into a program.

use std::{fmt, io};

/// Reason why the library is not in the program.
#[derive(Debug)]
pub enum Error {
    /// The library's file cannot be read.
    Unreadable(io::Error),
    /// The library's file is not a whole library of this machine; the text says what is wrong.
    Damaged(&'static str),
    /// The library asks for another library.
    Needs(String),
    /// The library asks for a name that nobody defines.
    Undefined(String),
    /// The library has thread-local storage, which only a dynamic loader can give it.
    ThreadLocal,
    /// The library has a relocation of this type, which is not known here.
    Relocation(u32),
    /// The library has no function that a program without a loader could begin with.
    NoEntry,
    /// Lack of a process for the helper.
    NoHelper(io::Error),
    /// The helper may not trace this process.
    NotTraced(io::Error),
    /// A policy kills who makes this system call, which the helper or this process would make.
    Kills(&'static str),
    /// The program cannot be traced further, or its memory not be reached.
    Trace(&'static str, io::Error),
    /// The program may not make this system call.
    Refused(&'static str, io::Error),
    /// The program was killed for this system call, by this signal.
    Killed(&'static str, i32),
    /// The program runs in another mode than 64-bit code.
    OtherMode,
    /// The program's headers are in none of its segments, so its text cannot be found (`ld -N`).
    NoHeaders,
    /// The program's first instruction is in no memory that may be executed: SIGSEGV ends the
    /// program at once, with the library or without.
    Faults,
    /// The program has more rights than whoever starts it.
    Secure,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreadable(e) => write!(f, "the library cannot be read: {e}"),
            Error::Damaged(what) => write!(f, "the library is damaged: {what}"),
            Error::Needs(file) => write!(f, "the library needs {file}"),
            Error::Undefined(name) => write!(f, "the library asks for the name {name}"),
            Error::ThreadLocal => f.write_str("the library has thread-local storage"),
            Error::Relocation(kind) => write!(f, "the library has a relocation of type {kind}"),
            Error::NoEntry => write!(f, "the library has no function {}", crate::ENTRY),
            Error::NoHelper(e) => write!(f, "no process can be had: {e}"),
            Error::NotTraced(e) => write!(f, "ptrace(2) is not allowed here: {e}"),
            Error::Kills(call) => write!(f, "a policy here kills for {call}(2)"),
            Error::Trace(what, e) => write!(f, "ptrace(2) cannot {what}: {e}"),
            Error::Refused(call, e) => write!(f, "the program may not call {call}(2): {e}"),
            Error::Killed(call, signal) => {
                write!(f, "signal {signal} has killed the program for calling {call}(2)")
            }
            Error::OtherMode => f.write_str("the program is not 64-bit code of this machine"),
            Error::NoHeaders => f.write_str("no segment holds its program headers (ld -N)"),
            Error::Faults => f.write_str("its first instruction is in no memory of code"),
            Error::Secure => f.write_str("the program has more rights than who starts it"),
        }
    }
}

impl std::error::Error for Error {}
