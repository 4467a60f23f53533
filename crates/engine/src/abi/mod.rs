//! The uapi: structs and constants of `linux/io_uring.h` (kernel 6.18) under their kernel names. No
//! logic.
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

pub use cqe::*;
pub use flags::*;
pub use nvme::*;
pub use op::*;
pub use params::*;
pub use register::*;
pub use sqe::*;
