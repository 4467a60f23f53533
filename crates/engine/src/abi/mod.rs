//! The uapi: structs and constants of `linux/io_uring.h` (kernels 6.18 to 7.2) under their kernel
//! names. No logic but which of them is played.
//!
//! Every offset is asserted in [`layout`].

#![allow(non_camel_case_types, missing_docs)]

pub mod aio;
pub mod cqe;
pub mod flags;
pub mod layout;
pub mod nvme;
pub mod op;
pub mod params;
pub mod register;
pub mod sqe;
pub mod version;

pub use cqe::*;
pub use flags::*;
pub use nvme::*;
pub use op::*;
pub use params::*;
pub use register::*;
pub use sqe::*;
