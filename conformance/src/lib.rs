//! The same cases on the kernel's io_uring and on softring: the kernel is the oracle.
//!
//! [`ring`] is the test client, [`entry`] the ways in which it issues its calls, [`sqe`] names for
//! submissions. A [`case`] states what a program may rely on; a [`target`] runs it in a process of
//! its own; the [`suite`] runs all cases on all targets and compares transcripts; [`known`] lists
//! the differences that the documentation admits; [`retries`] counts differences that do not show
//! again. [`environments`] tries rings under other people's policies.

pub mod case;
pub mod coverage;
pub mod entry;
pub mod environments;
pub mod fuzz;
pub mod jump;
pub mod known;
pub mod late;
pub mod os;
pub mod os_poll;
pub mod out;
pub mod poll_shapes;
pub mod record;
pub mod recorded;
pub mod report;
pub mod retries;
pub mod rights;
pub mod ring;
mod show;
pub mod soak;
pub mod sqe;
pub mod stack;
pub mod suite;
pub mod support;
pub mod target;
pub mod vectors;

pub use entry::EntryPoint;
pub use ring::{Cqe, Ring};
