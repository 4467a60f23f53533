//! Runs of all seeds, some at the same time.

use super::outcome::{Key, Outcome};
use super::plan::Plan;
use super::run::{Run, Setup};
use super::seeds::Seeds;
use super::shard::Shard;
use crate::signals;
use indicatif::ProgressBar;
use softring_faults::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest time until a signal is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// The seeds of a campaign, or one share of them.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub seeds: Seeds,
    pub shard: Option<Shard>,
}

impl Share {
    /// Returns the seed number `n` of this share, from 0.
    fn seed(&self, n: u64) -> Option<u64> {
        let at = match self.shard {
            None => n,
            Some(shard) => n.checked_mul(shard.of)?.checked_add(shard.number - 1)?,
        };
        self.seeds.start.checked_add(at).filter(|&seed| seed < self.seeds.end)
    }

    pub fn count(&self) -> u64 {
        let all = self.seeds.count();
        match self.shard {
            None => all,
            Some(shard) => all / shard.of + u64::from(shard.has_rest(all)),
        }
    }
}

/// A failed run.
#[derive(Debug)]
pub struct Failed {
    pub seed: u64,
    pub outcome: Outcome,
    /// Faults of the run, by operation.
    pub sites: BTreeSet<String>,
}

/// Results of all runs.
#[derive(Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub failed: BTreeMap<Key, Vec<Failed>>,
    /// Time of the slowest run that did not fail.
    pub slowest: Duration,
    /// Flag, true if a signal ended the campaign.
    pub stopped: bool,
}

impl Tally {
    fn add(&mut self, seed: u64, mut outcome: Outcome) {
        self.runs += 1;
        let Some(key) = outcome.key() else {
            self.slowest = self.slowest.max(outcome.took);
            return;
        };
        let sites = outcome.sites();
        // The smallest seed is minimised, by runs of its own.
        outcome.faults = Vec::new();
        self.failed.entry(key).or_default().push(Failed { seed, outcome, sites });
    }

    pub fn failures(&self) -> usize {
        self.failed.values().map(Vec::len).sum()
    }
}

type Message = (u64, anyhow::Result<Option<Outcome>>);

/// Returns the faults of a seed.
pub fn of_seed(spec: &Spec, seed: u64) -> Spec {
    Spec { seed, ..spec.clone() }
}

/// Runs all seeds of the share.
pub fn run(
    setup: &Setup<'_>,
    plan: &Plan,
    share: &Share,
    jobs: u16,
    bar: &ProgressBar,
) -> anyhow::Result<Tally> {
    let next = AtomicU64::new(0);
    let (send, receive) = channel::<Message>();
    let mut tally = Tally::default();
    let mut error = None;
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || worker(setup, plan, share, next, &send));
        }
        drop(send);
        loop {
            match receive.recv_timeout(NOTICE) {
                Ok((seed, Ok(Some(outcome)))) => {
                    tally.add(seed, outcome);
                    bar.inc(1);
                    bar.set_message(format!("{} failed", tally.failures()));
                }
                Ok((_, Ok(None))) | Err(RecvTimeoutError::Timeout) => {}
                Ok((_, Err(e))) => {
                    setup.stop.store(true, Relaxed);
                    error.get_or_insert(e);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if signals::end().is_some() {
                setup.stop.store(true, Relaxed);
                tally.stopped = true;
            }
        }
    });
    match error {
        Some(e) => Err(e),
        None => Ok(tally),
    }
}

fn worker(setup: &Setup<'_>, plan: &Plan, share: &Share, next: &AtomicU64, send: &Sender<Message>) {
    while !setup.stop.load(Relaxed) {
        let Some(seed) = share.seed(next.fetch_add(1, Relaxed)) else { return };
        let spec = plan.spec(seed);
        let done = setup.run(&Run { seed: Some(seed), spec, limit: setup.timeout });
        if send.send((seed, done)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_all_seeds_once() {
        let seeds = Seeds { start: 5, end: 16 };
        let mut all = BTreeSet::new();
        for number in 1..=4 {
            let share = Share { seeds, shard: Some(Shard { number, of: 4 }) };
            let own: Vec<u64> = (0..).map_while(|n| share.seed(n)).collect();
            assert_eq!(own.len() as u64, share.count(), "{number}");
            assert!(own.iter().all(|&seed| all.insert(seed)), "{own:?}");
        }
        assert_eq!(all, (5..16).collect());
        assert_eq!(Share { seeds, shard: None }.count(), 11);
    }
}
