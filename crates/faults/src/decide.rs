//! Decisions: a hash of the seed, the ring, the request and the fault.

use alloc::vec;
use alloc::vec::Vec;

use crate::chance::Time;
use crate::fault::Fault;
use crate::filter::Kind;
use crate::replay::Replay;
use crate::spec::{Entry, Spec};

/// A request, as far as filters know it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Ordinal of the ring in its process.
    pub ring: u32,
    /// Ordinal of the request in its ring.
    pub request: u64,
    pub op: u8,
    pub kind: Option<Kind>,
    pub path: Option<&'a [u8]>,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Random number, of which the value of the fault is made.
    Drawn { random: u64, time: Option<Time> },
    /// Value from a log.
    Replayed(u64),
}

impl Decision {
    /// Returns the value from `least` to `most`, both possible; `None` if there is none.
    pub fn between(self, least: u64, most: u64) -> Option<u64> {
        if least > most {
            return None;
        }
        Some(match self {
            Decision::Drawn { random, .. } => match (most - least).checked_add(1) {
                Some(range) => least + random % range,
                None => random,
            },
            Decision::Replayed(value) => value.clamp(least, most),
        })
    }

    /// Returns the time of the fault, in ns; `other` if its entry has none.
    pub fn ns(self, other: Time) -> u64 {
        match self {
            Decision::Drawn { random, time } => time.unwrap_or(other).ns(random),
            Decision::Replayed(value) => value.min(Time::MOST),
        }
    }
}

/// Returns a random number that depends on its arguments alone.
pub fn draw(seed: u64, ring: u32, request: u64, fault: Fault) -> u64 {
    hash(seed, &[u64::from(ring), request, fault as u64])
}

/// Returns a random number that depends on a seed and some words.
pub fn hash(seed: u64, words: &[u64]) -> u64 {
    let mut state = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    for word in words {
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ word);
    }
    state
}

/// Mixes the bits of a word (splitmix64's finaliser).
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Source of the decisions for all rings of a process.
#[derive(Clone, Debug)]
pub enum Plan {
    Chance(Spec),
    Replay(Replay),
}

/// The state of one ring's decisions.
#[derive(Clone, Debug, Default)]
pub struct RingFaults {
    /// Number of matching requests so far, by entry.
    matched: Vec<u32>,
}

impl Plan {
    /// Decides whether a fault, which can happen to this request, is injected into it. To be asked
    /// once for each request and fault, in the order of the requests.
    pub fn decide(
        &self,
        state: &mut RingFaults,
        fault: Fault,
        subject: &Subject<'_>,
    ) -> Option<Decision> {
        let spec = match self {
            Plan::Chance(spec) => spec,
            Plan::Replay(replay) => {
                return replay.value(subject, fault).map(Decision::Replayed);
            }
        };
        let entry = last_match(spec, state, fault, subject)?;
        let random = draw(spec.seed, subject.ring, subject.request, fault);
        let hit = entry.chance.hit(random);
        // The bits that made it a hit are not used again.
        hit.then(|| Decision::Drawn { random: mix(random), time: entry.time })
    }

    /// Returns whether the plan goes by the paths of files.
    pub fn names_paths(&self) -> bool {
        matches!(self, Plan::Chance(spec) if spec.names_paths())
    }

    /// Returns whether the plan may inject a fault at all.
    pub fn injects(&self, fault: Fault) -> bool {
        match self {
            Plan::Chance(spec) => spec.entries.iter().any(|e| e.fault == fault),
            Plan::Replay(replay) => replay.has(fault),
        }
    }
}

/// Returns the last entry for a fault that matches a request, and counts the request in all that
/// match.
fn last_match<'a>(
    spec: &'a Spec,
    state: &mut RingFaults,
    fault: Fault,
    subject: &Subject<'_>,
) -> Option<&'a Entry> {
    if state.matched.len() != spec.entries.len() {
        state.matched = vec![0; spec.entries.len()];
    }
    let mut last = None;
    for (entry, count) in spec.entries.iter().zip(&mut state.matched) {
        if entry.fault != fault || !entry.filter.matches(subject) {
            continue;
        }
        *count = count.saturating_add(1);
        if entry.filter.nth.is_none_or(|nth| nth == *count) {
            last = Some(entry);
        }
    }
    last
}

#[cfg(test)]
mod tests;
