//! Seeded faults: which requests fail, and how.
//!
//! A [`Spec`] says how often each fault is injected and where. A [`Plan`] decides it for each
//! request. A decision depends on the seed, the ordinal of the ring in its process, the ordinal of
//! the request in its ring, and the fault; it depends neither on time nor on threads. So the same
//! program gets the same faults at the same requests in each run. A [`log::Line`] records one
//! decision; a [`Replay`] makes a plan of such records.
#![no_std]

extern crate alloc;

mod chance;
mod decide;
mod fault;
mod filter;
mod glob;
pub mod log;
mod parse;
pub mod part;
mod preset;
mod print;
mod replay;
mod spec;

pub use chance::{Chance, Time};
pub use decide::{Decision, Plan, RingFaults, Subject, draw, hash};
pub use fault::Fault;
pub use filter::{ENTER, ENTER_OP, Filter, Kind, Ops, op_name};
pub use glob::Glob;
pub use parse::GRAMMAR;
pub use part::Error;
pub use replay::Replay;
pub use spec::{Entry, Spec};
