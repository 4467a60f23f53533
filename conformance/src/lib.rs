//! The same cases on the kernel's io_uring and on softring: the kernel is the oracle.
//!
//! [`ring`] is a raw client, [`door`] the ways in which it issues its calls, [`sqe`] names for submissions.

pub mod door;
pub mod ring;
pub mod sqe;

pub use door::Door;
pub use ring::{Cqe, Ring};
