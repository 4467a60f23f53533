//! Sleeps of a hybrid run: the time for which each was to last, and the time at which a completion
//! was really there. Both come from the steps of the run's requests (`softring trace`).

use crate::bench::summary::time;
use serde::Serialize;
use softring_engine::stats::trace::{Event, Step};
use std::collections::HashMap;

/// Time in ns past its due time after which a request counts as done, with its end missing.
const LOST: u64 = 10_000_000;

/// One sleep. Times in ns from its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleSleep {
    /// Time at which the sleep was to end.
    pub target: f64,
    /// Time at which the sleep ended.
    pub end: f64,
    /// Time at which the first completion was there: known on a modelled disk; on a real disk, the
    /// time at which the thread found the completion.
    pub there: f64,
    /// Flag, true if the first completion was not to end the sleep.
    pub coalesces: bool,
}

impl IdleSleep {
    /// Returns whether a completion came before the sleep's end, or ended the sleep.
    pub fn over(&self) -> bool {
        self.there <= self.end || self.end < self.target
    }
}

/// All sleeps of a run, for JSON output.
#[derive(Debug, Default, Serialize)]
pub struct IdleSleeps {
    pub idle_sleeps: usize,
    /// Sleeps that were to end before the first completion; `over` counts those of them that did
    /// not.
    pub aimed: usize,
    pub over: usize,
    /// Times from target to completion of the `aimed` sleeps: first decile, median and last decile.
    /// Above 0, the target came first.
    pub ahead_ns: [f64; 3],
    #[serde(skip)]
    pub all: Vec<IdleSleep>,
}

impl IdleSleeps {
    /// Collects the sleeps of a run from its events, which are in order.
    pub fn of(events: &[Event]) -> IdleSleeps {
        let all = collect(events);
        let aimed = || all.iter().filter(|n| !n.coalesces);
        let mut ahead: Vec<f64> = aimed().map(|n| n.there - n.target).collect();
        ahead.sort_by(f64::total_cmp);
        let at = |tenth: usize| ahead.get(ahead.len() * tenth / 10).copied().unwrap_or(0.0);
        IdleSleeps {
            idle_sleeps: all.len(),
            aimed: ahead.len(),
            over: aimed().filter(|n| n.over()).count(),
            ahead_ns: [at(1), at(5), at(9)],
            all,
        }
    }

    /// Formats the figures for reading.
    pub fn text(&self) -> String {
        let IdleSleeps { idle_sleeps, aimed, over, ahead_ns: [low, middle, high], .. } = self;
        if *idle_sleeps == 0 {
            return "no sleeps".to_owned();
        }
        let signed = |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "+" }, time(ns.abs()));
        let coalescing = idle_sleeps - aimed;
        let (low, middle, high) = (signed(*low), signed(*middle), signed(*high));
        format!(
            "{aimed} sleeps aimed at one completion, {over} of them too long; from target to \
             completion {middle} [{low}, {high}]; {coalescing} sleeps that coalesce several \
             completions"
        )
    }
}

fn collect(events: &[Event]) -> Vec<IdleSleep> {
    // Requests in flight, each with the time at which a modelled disk has it done.
    let mut flight: HashMap<u32, Option<u64>> = HashMap::new();
    // All sleeps, and those after which no completion was found so far.
    let (mut idle_sleeps, mut open): (Vec<IdleSleep>, Vec<(IdleSleep, u64)>) =
        (Vec::new(), Vec::new());
    for e in events {
        match e.step {
            Step::Model => {
                flight.insert(e.req, Some(e.time + u64::from(e.value.unsigned_abs())));
            }
            Step::Aio => {
                flight.insert(e.req, None);
            }
            Step::Done if flight.remove(&e.req).is_some() => {
                // The moment at which a completion is found stands for the moment at which it was
                // there.
                let found =
                    |(idle_sleep, began)| IdleSleep { there: since(e.time, began), ..idle_sleep };
                idle_sleeps.extend(open.drain(..).map(found));
            }
            Step::IdleSleep => {
                flight.retain(|_, due| due.is_none_or(|due| due + LOST > e.data));
                let there = flight.values().flatten().filter(|due| **due >= e.data).min();
                let idle_sleep = IdleSleep {
                    target: f64::from(e.value),
                    end: since(e.time, e.data),
                    there: there.map_or(0.0, |due| since(*due, e.data)),
                    // The thread never waits for more requests than are in flight.
                    coalesces: e.req > 1 && flight.len() > 1,
                };
                match there {
                    Some(_) => idle_sleeps.push(idle_sleep),
                    None if flight.is_empty() => {}
                    None => open.push((idle_sleep, e.data)),
                }
            }
            _ => {}
        }
    }
    idle_sleeps
}

fn since(time: u64, began: u64) -> f64 {
    time as f64 - began as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(step: Step, time: u64, req: u32, data: u64, value: i32) -> Event {
        Event { time, data, req, tid: 1, step, value, ..Event::default() }
    }

    #[test]
    fn completion_times_are_exact_on_a_model_and_observed_on_a_disk() {
        let model = [
            event(Step::Model, 1000, 1, 0, 90),
            event(Step::Model, 1000, 2, 0, 60),
            // A sleep until 1050 that ends at 1052: too short, by 8; the completion is found at
            // 1061.
            event(Step::IdleSleep, 1052, 1, 1010, 40),
            event(Step::Done, 1061, 2, 0, 0),
            // A sleep until 1100: too long, by 10.
            event(Step::IdleSleep, 1095, 1, 1062, 38),
            event(Step::Done, 1096, 1, 0, 0),
            // A sleep with nothing in flight.
            event(Step::IdleSleep, 1200, 1, 1100, 50),
        ];
        let idle_sleeps = IdleSleeps::of(&model);
        let idle_sleep = |target, end, there| IdleSleep { target, end, there, coalesces: false };
        assert_eq!(idle_sleeps.all, [idle_sleep(40.0, 42.0, 50.0), idle_sleep(38.0, 33.0, 28.0)]);
        assert_eq!(
            (idle_sleeps.aimed, idle_sleeps.over, idle_sleeps.ahead_ns),
            (2, 1, [-10.0, 10.0, 10.0])
        );
        assert!(
            idle_sleeps.text().contains("2 sleeps aimed at one completion, 1 of them too long")
        );
        let disk = [
            event(Step::Aio, 1000, 1, 0, 0),
            event(Step::Aio, 1000, 2, 0, 0),
            event(Step::IdleSleep, 1052, 1, 1010, 40),
            event(Step::IdleSleep, 1064, 8, 1060, 3),
            event(Step::Done, 1070, 1, 0, 0),
        ];
        let idle_sleeps = IdleSleeps::of(&disk);
        assert_eq!(idle_sleeps.all[0], idle_sleep(40.0, 42.0, 60.0));
        assert_eq!(idle_sleeps.all[1], IdleSleep { coalesces: true, ..idle_sleep(3.0, 4.0, 10.0) });
        assert_eq!((idle_sleeps.idle_sleeps, idle_sleeps.aimed, idle_sleeps.over), (2, 1, 0));
        assert!(IdleSleep { end: 39.0, ..idle_sleeps.all[0] }.over(), "ended by a completion");
    }
}
