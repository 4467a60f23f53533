//! The soak: cancels against completions, a mix of everything, the same in a process that does what
//! processes do, and a million short connections, with checks at the end: every byte and every
//! request accounted for, nothing leaked. It runs on whatever answers its calls: the kernel, or
//! softring preloaded.

pub mod churn;
pub mod command;
pub mod futex;
pub mod health;
pub mod host;
pub mod hours;
pub mod ledger;
pub mod mix;
pub mod pbuf;
pub mod race;
mod sys;

/// What went wrong, in words.
pub type Fault = String;

/// A check's answer.
pub type Check<T = ()> = Result<T, Fault>;

/// Says what is wrong, unless it holds.
pub fn ensure(holds: bool, words: impl FnOnce() -> Fault) -> Check {
    if holds { Ok(()) } else { Err(words()) }
}
