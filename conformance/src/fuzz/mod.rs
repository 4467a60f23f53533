//! A differential fuzzer: seeded programs of submissions, register calls and outside events, run on
//! the kernel's io_uring and on softring in twin directories. The results on both sides must agree.
//!
//! ```text
//! make (seed -> program) -> driver (a fresh process per run) -> exec (program -> transcript)
//!   -> compare -> minimise -> report
//! ```
//!
//! The kernel is run twice: a program whose two kernel runs differ depends on timing, is counted as
//! unstable and says nothing. A divergence is seen again on quieter runs before it counts, and
//! counts apart if `docs/LIMITATIONS.md` explains it ([`known`]).

pub mod check;
pub mod command;
pub mod compare;
pub mod driver;
pub mod exec;
pub mod known;
mod known_eventfd;
mod known_files;
mod known_pipes;
mod known_races;
mod known_sockets;
mod known_workers;
pub mod make;
pub mod minimise;
pub mod program;
pub mod report;
pub mod retried;
mod seen;
pub mod transcript;
