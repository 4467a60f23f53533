//! The library in a program that has no dynamic loader: it is mapped as the program starts.

use super::options;
use super::target::Trouble;
use crate::cli::{Engine, UnderArgs};
use crate::{fail, out};
use softring_loader::{Error, Library, Otherwise};
use std::fs::File;
use std::path::Path;

/// Next step for a program that the library could not be mapped into.
const HINT: &str = "link the program dynamically, or run it where ptrace(2) is allowed";

/// Opens the library if a program without a loader needs it, and the library can be mapped. The
/// program's trouble is solved then.
pub fn library(troubles: &mut Vec<Trouble>, lib: &Path, under: &UnderArgs) -> Option<Library> {
    let is_static = |trouble: &Trouble| matches!(trouble, Trouble::Static { .. });
    let idle = options::engine(under) == Engine::Kernel && !options::aio_hipri(under);
    if idle || troubles.is_empty() || !troubles.iter().all(is_static) {
        return None;
    }
    let library = File::open(lib).map_err(Error::Unreadable).and_then(Library::read).ok()?;
    troubles.clear();
    Some(library)
}

/// Has the library mapped into the program that this process is about to become.
///
/// # Errors
/// It cannot be mapped, and the program would miss what it was started for.
pub fn arrange(
    program: &Path,
    library: &Library,
    under: &UnderArgs,
    needed: bool,
) -> anyhow::Result<()> {
    let what = |e: &Error| {
        format!("{} is statically linked, and the library is not in it: {e}", program.display())
    };
    let failed = |e: &Error| {
        if needed {
            return Otherwise::Exit(fail::report(&fail::usage(what(e), HINT)).into());
        }
        warn(under, &what(e));
        Otherwise::Untouched
    };
    match softring_loader::arrange(library, failed) {
        Ok(()) => Ok(()),
        Err(e) if needed => Err(fail::usage(what(&e), HINT)),
        Err(e) => {
            warn(under, &what(&e));
            Ok(())
        }
    }
}

fn warn(under: &UnderArgs, what: &str) {
    if !options::quiet(under) {
        out::note(&format!("warning: {what}; the program gets the kernel's rings"));
        out::note(&format!("hint: {HINT}"));
    }
}
