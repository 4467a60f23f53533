//! Power cuts, and the states of a directory that they may leave.
//!
//! A [`Record`] is told of every change of files and names, and of what makes them durable. For a
//! [`Spec`]'s seed and model, [`Record::cut`] says what is there after the power has failed: each
//! change that was not durable is kept, lost or torn. There is no I/O here; `docs/CRASH.md` names
//! the source of each rule.
#![no_std]

extern crate alloc;

mod dice;
mod file;
mod names;
mod print;
mod record;
mod spec;
#[cfg(test)]
mod tests;

pub use dice::{Dice, Fate};
pub use file::{Left, SECTOR};
pub use names::{Change, Inode, Place, Sync};
pub use record::{Cut, Record};
pub use spec::{At, GRAMMAR, Model, Spec};
