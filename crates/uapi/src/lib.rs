//! The kernel's ABI of io_uring and aio: structs and constants of `linux/io_uring.h` (kernels 6.18
//! to 7.2), `linux/aio_abi.h` and `linux/socket.h` under their kernel names, error numbers and
//! bounds. The only logic is which kernel is played.
//!
//! Every offset is asserted in [`layout`].

#![no_std]
#![allow(non_camel_case_types, missing_docs)]

extern crate alloc;

pub mod aio;
pub mod cqe;
pub mod epoll;
pub mod errno;
pub mod flag_set;
pub mod flags;
pub mod layout;
pub mod limits;
pub mod nvme;
pub mod op;
pub mod params;
pub mod procmap;
pub mod register;
pub mod socket;
pub mod sqe;
pub mod version;

pub use cqe::*;
pub use epoll::*;
pub use flags::*;
pub use nvme::*;
pub use op::*;
pub use params::*;
pub use procmap::*;
pub use register::*;
pub use socket::*;
pub use sqe::*;
