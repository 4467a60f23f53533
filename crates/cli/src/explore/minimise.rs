//! The smallest faults with which a seed still fails: entries of the SPEC are dropped, then single
//! decisions, for as long as the failure stays the same.

use super::campaign::of_seed;
use super::outcome::{Key, Outcome};
use super::plan::Plan;
use super::run::{Run, Setup};
use crate::signals;
use softring_crash::Spec as CrashSpec;
use softring_faults::log::Line;
use softring_faults::{Chance, Entry, Fault, Filter, Ops, Spec};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Most runs for one failure.
const RUNS: u32 = 150;
/// Attempts to see a failure once more.
const ATTEMPTS: u32 = 3;
/// Most decisions that are dropped one by one.
const DECISIONS: usize = 200;
/// Most decisions that a SPEC names one by one.
const NAMED: usize = 4;

/// Faults that are left of a failure's.
#[derive(Debug, Default)]
pub struct Smallest {
    pub spec: Option<String>,
    /// Flag, true if the program fails only if it finds the seed in its environment.
    pub variable: bool,
    /// The faults that were injected.
    pub faults: Vec<Line>,
    /// Flag, false if the failure did not come again.
    pub reproduced: bool,
}

struct Minimiser<'a> {
    setup: &'a Setup<'a>,
    seed: u64,
    key: &'a Key,
    limit: Duration,
    /// Runs that may still be made.
    left: u32,
    variable: bool,
}

/// Finds the smallest faults of a failure. `limit` is the time after which a run has hung.
pub fn minimise(
    setup: &Setup<'_>,
    plan: &Plan,
    seed: u64,
    key: &Key,
    limit: Duration,
) -> anyhow::Result<Smallest> {
    let mut m = Minimiser { setup, seed, key, limit, left: RUNS, variable: true };
    let whole = plan.spec(seed);
    let Some(mut faults) = m.again(whole.as_deref())? else {
        return Ok(Smallest {
            spec: whole,
            variable: false,
            faults: Vec::new(),
            reproduced: false,
        });
    };
    m.variable = false;
    if let Some(seen) = m.fails(whole.as_deref())? {
        faults = seen;
    } else {
        m.variable = true;
    }
    let spec = match plan {
        Plan::Faults(None) => None,
        Plan::Faults(Some(spec)) => Some(m.faults(of_seed(spec, seed), &mut faults)?.to_string()),
        Plan::Cuts(cuts) => Some(m.cut(cuts.of_seed(seed), &mut faults)?.to_string()),
    };
    let variable = m.variable || spec.is_none();
    Ok(Smallest { spec, variable, faults, reproduced: true })
}

impl Minimiser<'_> {
    /// Drops faults.
    fn faults(&mut self, mut spec: Spec, faults: &mut Vec<Line>) -> anyhow::Result<Spec> {
        // The order of the steps: kinds of faults are fewer than faults.
        let injected = |entry: &Entry| faults.iter().any(|line| line.fault == entry.fault.name());
        let of_log: Vec<Entry> = spec.entries.iter().filter(|e| injected(e)).cloned().collect();
        let all = std::mem::replace(&mut spec.entries, of_log);
        match self.fails(Some(&spec.to_string()))? {
            Some(seen) => *faults = seen,
            None => spec.entries = all,
        }
        spec.entries = self.drop_entries(spec.entries.clone(), faults)?;
        let mut left = faults.clone();
        if let Some(exact) = self.drop_decisions(&spec, &mut left)?
            && self.is_steady(&exact)?
        {
            (spec, *faults) = (exact, left);
        }
        Ok(spec)
    }

    /// Drops requests that are lost or torn.
    fn cut(&mut self, spec: CrashSpec, faults: &mut Vec<Line>) -> anyhow::Result<CrashSpec> {
        let with = |requests: &[u64]| {
            let only = match requests {
                [] => [0].into(),
                some => some.iter().copied().collect(),
            };
            CrashSpec { only: Some(only), ..spec.clone() }
        };
        let all: Vec<u64> = faults.iter().map(|line| line.request).collect();
        let mut seen = None;
        let left = reduced(all.clone(), |requests| {
            let fails = self.fails(Some(&with(requests).to_string()))?;
            let same = fails.is_some();
            seen = fails.or(seen.take());
            Ok(same)
        })?;
        match seen {
            Some(seen) => {
                *faults = seen;
                Ok(with(&left))
            }
            None => Ok(spec),
        }
    }

    /// Runs with a SPEC; returns the faults that were injected if the failure is the same.
    fn fails(&mut self, spec: Option<&str>) -> anyhow::Result<Option<Vec<Line>>> {
        if signals::end().is_some() {
            self.setup.stop.store(true, Relaxed);
        }
        if self.left == 0 || self.setup.stop.load(Relaxed) {
            return Ok(None);
        }
        self.left -= 1;
        let seed = self.variable.then_some(self.seed);
        let spec = spec.map(str::to_owned);
        let outcome = self.setup.run(&Run { seed, spec, limit: self.limit })?;
        let same = |outcome: &Outcome| outcome.key().as_ref() == Some(self.key);
        Ok(outcome.filter(same).map(|outcome| outcome.faults))
    }

    /// Returns whether these faults have the failure each time: with few of them, time may decide.
    fn is_steady(&mut self, spec: &Spec) -> anyhow::Result<bool> {
        for _ in 0..ATTEMPTS {
            if self.fails(Some(&spec.to_string()))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn again(&mut self, spec: Option<&str>) -> anyhow::Result<Option<Vec<Line>>> {
        for _ in 0..ATTEMPTS {
            if let Some(seen) = self.fails(spec)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    fn drop_entries(
        &mut self,
        entries: Vec<Entry>,
        faults: &mut Vec<Line>,
    ) -> anyhow::Result<Vec<Entry>> {
        let seed = self.seed;
        reduced(entries, |entries| {
            let seen = self.fails(Some(&Spec { seed, entries: entries.to_vec() }.to_string()))?;
            Ok(seen.map(|seen| *faults = seen).is_some())
        })
    }

    /// Returns a SPEC that names single requests, if that has the same failure, and is short.
    fn drop_decisions(
        &mut self,
        spec: &Spec,
        faults: &mut Vec<Line>,
    ) -> anyhow::Result<Option<Spec>> {
        if faults.is_empty() || faults.len() > DECISIONS {
            return Ok(None);
        }
        let entries: Option<Vec<Entry>> = faults.iter().map(|line| exact(line, spec)).collect();
        let Some(entries) = entries else { return Ok(None) };
        let seed = self.seed;
        let named = Spec { seed, entries: entries.clone() }.to_string();
        let Some(mut left) = self.fails(Some(&named))? else {
            return Ok(None);
        };
        let entries = self.drop_entries(entries, &mut left)?;
        if entries.len() > NAMED {
            return Ok(None);
        }
        *faults = left;
        Ok(Some(Spec { seed, entries }))
    }
}

/// Returns the entry that injects a fault of a log at its request alone. Its value is drawn as it
/// was: it depends on the seed and on the request.
fn exact(line: &Line, spec: &Spec) -> Option<Entry> {
    let fault = Fault::named(&line.fault)?;
    let time = spec.entries.iter().rev().find(|e| e.fault == fault).and_then(|e| e.time);
    let filter = Filter {
        ops: Ops::named(&line.op)?,
        ring: Some(line.ring),
        request: Some(line.request),
        ..Filter::default()
    };
    Some(Entry { fault, chance: Chance::ALWAYS, time, filter })
}

/// Returns a part of the items that still fails and from which no item can be dropped: pieces are
/// left out, first large ones.
fn reduced<T: Clone>(
    mut items: Vec<T>,
    mut fails: impl FnMut(&[T]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<T>> {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let (mut at, before) = (0, items.len());
        while at < items.len() {
            let end = (at + size).min(items.len());
            let without = [&items[..at], &items[end..]].concat();
            if without.len() < items.len() && fails(&without)? {
                items = without;
            } else {
                at = end;
            }
        }
        // Single items are tried until none of them can go.
        size = if size > 1 { size / 2 } else { usize::from(items.len() < before) };
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes() {
        let mut runs = 0;
        let mut left = |all: Vec<u32>, needed: &[u32]| {
            reduced(all, |items| {
                runs += 1;
                Ok(needed.iter().all(|n| items.contains(n)))
            })
            .unwrap()
        };
        assert_eq!(left((0..100).collect(), &[17, 80]), [17, 80]);
        assert_eq!(left(vec![1, 2, 3], &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(left(vec![1], &[]), [0u32; 0]);
        assert!(runs < 100, "{runs}");
    }

    #[test]
    fn a_decision_becomes_an_entry() {
        let spec = Spec::parse("seed=7,delay=0.1:p99:20ms,short-read=0.05").unwrap();
        let line = |fault: &str, op: &str| Line {
            ring: 1,
            request: 4,
            op: op.into(),
            fault: fault.into(),
            ..Line::default()
        };
        let text = |line: &Line| exact(line, &spec).unwrap().to_string();
        let short = text(&line("short-read", "READ"));
        assert_eq!(short, "short-read=1@op=READ,ring=1,request=4");
        let late = text(&line("delay", "WRITE"));
        assert_eq!(late, "delay=p99:20ms@op=WRITE,ring=1,request=4");
        assert!(Spec::parse(&format!("seed=7,{short},{late}")).is_ok());
        assert_eq!(exact(&line("no-such", "READ"), &spec), None);
    }
}
