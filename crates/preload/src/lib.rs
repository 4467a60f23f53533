//! libsoftring.so: the entry points through which a program's io_uring calls reach the engine.
//! Translation only.
//!
//! ```text
//! program ── libc's syscall() ──────────── intercept::syscall ─┐
//!         ── inline `syscall`, patched ─── intercept::patch ───┼─ gate ── engine, or the kernel
//!         ── inline `syscall`, trapped ─── intercept::sigsys ──┤
//!         ── softring.h ────────────────── capi ───────────────┘
//!         ── close, dup, poll … ────────── wrap ───────────────── engine::fds
//! ```
//!
//! The constructor reads the environment ([`config`]), opens the entry points and returns: nothing
//! else happens until a program asks for a ring. `docs/INTERCEPTION.md` describes this to users.
#![deny(unsafe_code)]
// Tests may use the standard library.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("libsoftring knows only Linux on x86_64");

mod built_in;
mod capi;
mod children;
mod config;
mod copies;
mod dynamic;
mod gate;
mod heap;
mod intercept;
mod loaders;
mod notice;
mod old;
mod panic;
mod proc;
mod raw;
mod report;
mod start_static;
mod stderr;
pub mod symbols;
mod threads;
mod trial;
mod wrap;

/// Check of the panic strategy: unwinding out of an entry point would run through the program's
/// frames, which are not made for it.
const _: () = assert!(cfg!(panic = "abort") || cfg!(test), "build libsoftring with panic=abort");

#[allow(unsafe_code)]
mod start {
    /// Starts the library. The dynamic loader calls this once, before `main`.
    extern "C" fn constructor() {
        run();
    }

    pub fn run() {
        if crate::copies::find_out() {
            return crate::intercept::syscall::open();
        }
        begin(crate::children::start);
    }

    /// Starts the one copy that works. `children` prepares for programs that this one starts.
    pub fn begin(children: fn()) {
        crate::stderr::start();
        crate::config::read();
        crate::proc::start();
        children();
        if crate::config::engine() != crate::config::Engine::Kernel {
            softring_host::fd::reserve_numbers();
        }
        crate::wrap::exec::start();
        crate::intercept::open();
    }

    extern "C" fn destructor() {
        if crate::copies::stands_back() {
            return;
        }
        crate::old::at_exit();
        crate::report::at_exit();
    }

    // SAFETY: the loader calls each entry once, with libc ready, and `constructor` needs nothing
    // more.
    #[unsafe(link_section = ".init_array")]
    #[used]
    static INIT: extern "C" fn() = constructor;

    // SAFETY: as above; `destructor` only reads atomics and writes a line to stderr.
    #[unsafe(link_section = ".fini_array")]
    #[used]
    static FINI: extern "C" fn() = destructor;
}
