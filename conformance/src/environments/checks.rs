//! Checks, each of a few requests on rings of its own.

use super::fixture::Fixture;
use super::{Checked, checks_files, checks_rings, checks_waits, sys};
use crate::entry::EntryPoint;
use std::process::ExitCode;

/// A check.
pub struct Check {
    pub name: &'static str,
    /// System calls of its requests, or of its own: if a policy refuses one of them, the check does
    /// not apply.
    pub needs: &'static [&'static str],
    pub run: fn(&Fixture) -> Checked,
}

/// A row of a table of checks.
macro_rules! check {
    ($name:ident) => { check!($name,) };
    ($name:ident, $($needs:literal),*) => {
        Check { name: stringify!($name), needs: &[$($needs),*], run: $name }
    };
}
pub(super) use check;

/// Seconds that all checks together may take; each takes milliseconds.
const LIMIT: u32 = 20;

/// Exit code if the program gets no ring at all.
pub const NO_RING: u8 = 3;

/// Returns every check.
pub fn all() -> impl Iterator<Item = &'static Check> {
    [checks_files::CHECKS, checks_waits::CHECKS, checks_rings::CHECKS].into_iter().flatten()
}

/// Runs the checks that need none of the calls `refused`, and prints a line for each; code 1 if one
/// has failed.
pub fn run(entry: EntryPoint, refused: &[String], only: &[String]) -> ExitCode {
    sys::doing("start");
    sys::end_after(LIMIT);
    let fixture = match Fixture::new(entry) {
        Ok(fixture) => fixture,
        Err(why) => {
            println!("start: failed: {why}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = fixture.ring(8, 0) {
        println!("no ring: {why}");
        return ExitCode::from(NO_RING);
    }
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    for check in all().filter(|c| only.is_empty() || only.iter().any(|o| o == c.name)) {
        if let Some(call) = check.needs.iter().find(|call| refused.iter().any(|r| r == *call)) {
            println!("{}: left out: it is made of {call}", check.name);
            left += 1;
            continue;
        }
        sys::doing(check.name);
        match (check.run)(&fixture) {
            Ok(()) => {
                println!("{}: ok", check.name);
                passed += 1;
            }
            Err(why) => {
                println!("{}: failed: {why}", check.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {left} left out");
    ExitCode::from(u8::from(failed > 0))
}
