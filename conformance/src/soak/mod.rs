//! The soak: cancels against completions, a mix of everything, the same in a disturbed process, and
//! a million short connections, with checks at the end: every byte and every request accounted for,
//! nothing leaked. The soak runs on the kernel, or on softring preloaded.

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

/// Description of a fault.
pub type Fault = String;

/// Result of a check.
pub type Check<T = ()> = Result<T, Fault>;

/// Returns a fault in `words` unless `holds`.
pub fn ensure(holds: bool, words: impl FnOnce() -> Fault) -> Check {
    if holds { Ok(()) } else { Err(words()) }
}
