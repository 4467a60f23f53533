//! `softring launch`: becomes a static program, with the library mapped into it. The library starts
//! this in the place of static programs that a program under softring starts (its module
//! `children::launch`); it is no command for people.

use super::mapped;
use crate::{fail, sys};
use softring_host::launch;
use softring_loader::{Error, Library, Otherwise};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns whether this is the word by which the library asks for this.
pub fn is_word(word: &OsStr) -> bool {
    word.as_bytes() == launch::WORD.to_bytes()
}

/// A program to become: the words behind [`launch::WORD`].
struct Launch<'a> {
    library: &'a Path,
    /// Flag, true if a line is to say so if the library cannot be mapped.
    tell: bool,
    dir: RawFd,
    flags: i32,
    path: &'a OsStr,
    args: Vec<CString>,
}

impl Launch<'_> {
    fn read(words: &[OsString]) -> Option<Launch<'_>> {
        let [library, tell, dir, flags, path, args @ ..] = words else { return None };
        let number = |word: &OsStr| word.to_str()?.parse::<i32>().ok();
        let dir = match dir.to_str()?.strip_prefix(launch::DUPLICATE) {
            Some(fd) => sys::inherited(fd.parse().ok()?).ok()?.into_raw_fd(),
            None => number(dir)?,
        };
        let args = args.iter().map(|arg| CString::new(arg.as_bytes()).ok());
        Some(Launch {
            library: Path::new(library),
            tell: tell == "1",
            dir,
            flags: number(flags)?,
            path,
            args: args.collect::<Option<_>>()?,
        })
    }
}

/// Becomes the program. Returns the exit code if that fails.
pub fn command(words: &[OsString]) -> u8 {
    let Some(asked) = Launch::read(words) else {
        let hint = "softring run -- CMD starts a program under softring";
        return fail::report(&fail::usage("softring launch is for libsoftring.so only", hint));
    };
    let shown = match asked.path.is_empty() {
        true => format!("the program of descriptor {}", asked.dir),
        false => asked.path.to_string_lossy().into_owned(),
    };
    let failed = |e: &Error| {
        mapped::warn(asked.tell, &mapped::what(&shown, e), "it runs without softring");
        Otherwise::Untouched
    };
    // The program inherits the library's file.
    let library = Library::open(asked.library);
    // Without it, the program runs all the same.
    let _ = match &library {
        Ok(library) => mapped::trace(library, failed).map_err(|e| failed(&e)),
        Err(e) => Err(failed(e)),
    };
    let Ok(path) = CString::new(asked.path.as_bytes()) else { return fail::NOT_FOUND };
    let env: Vec<CString> = sys::environ().into_iter().map(restored).collect();
    let e = sys::execveat(asked.dir, &path, &asked.args, &env, asked.flags);
    fail::report(&super::cannot_become(&shown, &e))
}

/// Returns a string of the environment as the program is to have it.
fn restored(string: CString) -> CString {
    let (first, rest) = launch::PRELOAD.as_bytes().split_at(1);
    if !string.as_bytes().starts_with(rest) {
        return string;
    }
    CString::new([first, string.as_bytes()].concat()).unwrap_or(string)
}
