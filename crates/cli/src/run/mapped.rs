//! The library in a program that has no dynamic loader: it is mapped as the program starts.

use super::target::Trouble;
use super::{options, rehearsal};
use crate::cli::{Engine, UnderArgs};
use crate::{fail, out};
use softring_loader::{Error, Library, Otherwise};
use std::fmt;
use std::path::Path;

/// Words of the reason why a static program has no library.
pub const NOT_IN_IT: &str = "is statically linked, and the library is not in it";
/// Outcome where the kernel gives rings.
const KERNELS: &str = "the program gets the kernel's rings";
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
    let library = Library::open(lib).ok()?;
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
    let what = |e: &Error| what(&program.display(), e);
    let tell = !options::quiet(under);
    let failed = |e: &Error| {
        if needed {
            return Otherwise::Exit(fail::report(&fail::usage(what(e), HINT)).into());
        }
        warn(tell, &what(e), KERNELS);
        Otherwise::Untouched
    };
    match trace(library, failed) {
        Ok(()) => Ok(()),
        Err(e) if needed => Err(fail::usage(what(&e), HINT)),
        Err(e) => {
            warn(tell, &what(&e), KERNELS);
            Ok(())
        }
    }
}

/// Has the library mapped into the program that this process becomes by its next execve(2), unless
/// a policy kills for the calls that takes.
///
/// # Errors
/// The policy, or as [`softring_loader::arrange`].
pub fn trace(library: &Library, failed: impl FnOnce(&Error) -> Otherwise) -> Result<(), Error> {
    match rehearsal::killing_static() {
        Some(call) => Err(Error::Kills(call)),
        None => softring_loader::arrange(library, failed),
    }
}

/// Returns the words for a program without the library.
pub fn what(program: &impl fmt::Display, e: &Error) -> String {
    format!("{program} {NOT_IN_IT}: {e}")
}

/// Warns of a program without the library, and tells the `outcome`, if this is to `tell`.
pub fn warn(tell: bool, what: &str, outcome: &str) {
    if tell {
        out::note(&format!("warning: {what}; {outcome}"));
        out::note(&format!("hint: {HINT}"));
    }
}
