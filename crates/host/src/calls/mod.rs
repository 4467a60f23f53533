//! System calls as functions that safe code may call. Each takes numbers, slices and references of
//! the caller's, and addresses of the program's ([`UserPtr`]). A call that makes a descriptor
//! returns it as owned. The raw call below them is `unsafe`, and has no other users above this
//! crate.
//!
//! Each returns the answer or the error of the call of its name, and `ENOSYS` if a policy refuses
//! the call ([`crate::refused`]). None uses a name of the C library's, so no entry point sees it.
#![allow(unsafe_code)]

pub mod aio;
mod args;
pub mod epoll;
pub mod events;
pub mod files;
pub mod futex;
pub mod ids;
pub mod ioctl;
pub mod memory;
mod message;
pub mod paths;
pub mod process;
pub mod rings;
pub mod sockets;

pub use crate::user::{ReadPtr, UserPtr};
pub use args::{Part, Parts};
pub use message::{Incoming, Outgoing};

/// Calls whose arguments are numbers and addresses ([`args::Arg`]): their types are the only check
/// that is needed.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $t:ty),* $(,)?) = $nr:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($arg: $t),*) -> softring_uapi::errno::Result<usize> {
            // SAFETY: numbers, addresses that the kernel only reads at (`ReadPtr`), and memory that
            // the program has offered for this call (`UserPtr`).
            let answer = unsafe {
                crate::sys::sys!($nr $(, crate::calls::args::Arg::word($arg))*)
            };
            softring_uapi::errno::check(answer)
        }
    )*};
}
use calls;
