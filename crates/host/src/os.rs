//! System calls on softring's own files, memory and sockets, with their types. They bypass the C
//! library, check their arguments, and are safe to call, or say what the caller must uphold. A call
//! on what the program names is one of [`crate::calls`]; a call that a policy may refuse is one of
//! [`crate::substitute`].
//!
//! The names are rustix's. That crate is not used here: whoever builds the command as well turns
//! its `std` on, and the library would be linked with the standard library.

pub mod event;
pub mod fd;
pub mod fs;
pub mod io;
pub mod mm;
pub mod net;
pub mod path;
pub mod pipe;
pub mod process;
pub mod thread;
pub mod time;

/// System call by the name of its number in [`crate::raw::nr`], with up to six arguments, which
/// `as` makes words; unsafe as [`crate::raw::syscall`] is.
macro_rules! kernel {
    ($n:ident $(, $a:expr)* $(,)?) => {
        softring_uapi::errno::check($crate::raw::syscall(
            $crate::raw::nr::$n as usize,
            &$crate::raw::args([$($a as usize),*]),
        ))
    };
}
use kernel;
