//! Verdict on one program.

use super::compare::{Difference, compare};
use super::driver::{Driver, Side, Waits};
use super::known::{self, Seen};
use super::minimise::minimise;
use super::program::Program;
use super::transcript::{End, Transcript};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Microseconds of quiet: for a run with no run to follow, for one that follows another, and for
/// certainty.
const FIRST: u64 = 8000;
const FIRST_ON_DISK: u64 = 15_000;
pub(super) const NEXT: u64 = 1500;
const SURE: u64 = 25_000;
/// Number of kernel runs that are tried for one that agrees with softring.
const VARIANTS: usize = 8;
/// Limits of minimising: programs tried, and time spent.
const BUDGET: usize = 400;
const TIME_LIMIT: Duration = Duration::from_secs(90);

/// A program whose two sides differ, each time.
#[derive(Debug)]
pub struct Divergence {
    pub program: Program,
    pub difference: Difference,
    pub kernel: Transcript,
    pub softring: Transcript,
}

/// Result of a program.
#[derive(Debug)]
pub enum Verdict {
    /// Agreement with the kernel.
    Agreed(Box<Transcript>),
    /// A race: the kernel's own runs differ, or one of many agrees with softring.
    Unstable(Option<Difference>),
    /// A difference that did not happen again: the first run's.
    Flaky(Box<Divergence>),
    /// A difference that `docs/LIMITATIONS.md` explains, in these words.
    Known(&'static str, Box<Divergence>),
    Diverged(Box<Divergence>),
}

/// Runs the kernel twice; returns the first run if both agree, else their difference.
fn kernel(
    d: &Driver,
    p: &Program,
    quiet: [u64; 2],
) -> Result<Result<Transcript, Option<Difference>>> {
    let a = d.run(p, Side::Kernel, Waits { quiet: quiet[0], ..Waits::default() })?;
    if a.end != End::Exit {
        return Ok(Err(None));
    }
    let b = d.run(p, Side::Kernel, Waits { quiet: quiet[1], follow: Some(&a), one_cpu: false })?;
    Ok(match compare(p, &a, &b).or_else(|| compare(p, &b, &a)) {
        None => Ok(a),
        differs => Err(differs),
    })
}

/// Runs `program` on both sides as often as needed.
///
/// # Errors
/// Returned if a run cannot be started.
pub fn check(d: &Driver, p: &Program) -> Result<Verdict> {
    let first = if p.tmpfs { FIRST } else { FIRST_ON_DISK };
    // On a busy machine a run may see idleness too early; a second pair waits longer.
    let k = match kernel(d, p, [first, NEXT])? {
        Ok(k) => k,
        Err(_) => match kernel(d, p, [SURE, NEXT])? {
            Ok(k) => k,
            Err(differs) => return Ok(Verdict::Unstable(differs)),
        },
    };
    let s = d.run(p, Side::Softring, Waits { quiet: NEXT, follow: Some(&k), one_cpu: false })?;
    let Some(difference) = compare(p, &k, &s) else {
        return Ok(Verdict::Agreed(Box::new(k)));
    };
    let crashed = matches!(s.end, End::Signal(_));
    let first = Box::new(Divergence { program: p.clone(), difference, kernel: k, softring: s });
    // No race excuses a crash, however rare.
    if crashed {
        return Ok(Verdict::Diverged(first));
    }
    // The second check is slow.
    let k = match kernel(d, p, [SURE, SURE])? {
        Ok(k) => k,
        Err(differs) => return Ok(Verdict::Unstable(differs)),
    };
    let waits = Waits { quiet: SURE, follow: Some(&k), one_cpu: false };
    let mut last = None;
    for _ in 0..2 {
        let s = d.run(p, Side::Softring, waits)?;
        match compare(p, &k, &s) {
            None => return seen_once(d, p, &k, first),
            Some(difference) => last = Some((difference, s)),
        }
    }
    let Some((mut difference, softring)) = last else { return seen_once(d, p, &k, first) };
    let seen = Seen { program: p, what: &difference, kernel: &k, softring: &softring };
    if let Some(words) = known::reason(&seen) {
        let program = p.clone();
        let found = Divergence { program, difference, kernel: k, softring };
        return Ok(Verdict::Known(words, Box::new(found)));
    }
    if softring.end == End::Exit && is_race(d, p, [&k, &softring])? {
        difference.about.push_str(" (as one run of the kernel)");
        return Ok(Verdict::Unstable(Some(difference)));
    }
    let program = p.clone();
    Ok(Verdict::Diverged(Box::new(Divergence { program, difference, kernel: k, softring })))
}

/// Judges a first run of softring whose repetition agrees with the kernel. The first run does not
/// count if a run of the kernel's, `k` or another, did the same.
fn seen_once(d: &Driver, p: &Program, k: &Transcript, first: Box<Divergence>) -> Result<Verdict> {
    if compare(p, k, &first.softring).is_none() || is_race(d, p, [k, &first.softring])? {
        return Ok(Verdict::Unstable(Some(first.difference)));
    }
    Ok(Verdict::Flaky(first))
}

/// Returns whether any run of the kernel does the same as softring. Effects of independent requests
/// on each other depend on whether a worker starts before its submitter goes on; on one processor
/// it does not, so the kernel is tried there too.
fn is_race(d: &Driver, p: &Program, [kernel, softring]: [&Transcript; 2]) -> Result<bool> {
    for i in 0..VARIANTS {
        let waits = Waits { quiet: NEXT, follow: Some(kernel), one_cpu: i % 2 == 0 };
        if compare(p, &d.run(p, Side::Kernel, waits)?, softring).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the smallest program found with the same difference.
///
/// # Errors
/// Returned if a run cannot be started.
pub fn shrink(d: &Driver, big: &Divergence) -> Result<Divergence> {
    let about = &big.difference.about;
    let differs = |p: &Program| -> Result<Option<Divergence>> {
        let Ok(k) = kernel(d, p, [FIRST, NEXT])? else { return Ok(None) };
        let s =
            d.run(p, Side::Softring, Waits { quiet: NEXT, follow: Some(&k), one_cpu: false })?;
        let told = |what: &Difference| {
            known::reason(&Seen { program: p, what, kernel: &k, softring: &s }).is_some()
        };
        let found = compare(p, &k, &s).filter(|diff| diff.about == *about && !told(diff));
        Ok(found.map(|difference| Divergence {
            program: p.clone(),
            difference,
            kernel: k,
            softring: s,
        }))
    };
    let start = Instant::now();
    let small = minimise(&big.program, BUDGET, &mut |p| {
        start.elapsed() < TIME_LIMIT && matches!(differs(p), Ok(Some(_)))
    });
    // The small program is checked once more, slowly.
    let again = check(d, &small)?;
    Ok(match again {
        Verdict::Diverged(small) => *small,
        _ => Divergence {
            program: big.program.clone(),
            difference: big.difference.clone(),
            kernel: big.kernel.clone(),
            softring: big.softring.clone(),
        },
    })
}
