//! The least processor time that hybrid polling can need on this machine: that of submitting and
//! completing, and that of the sleeps which its bound allows.

use crate::bench::stats::median;
use crate::bench::summary::time;
use serde::Serialize;
use softring_engine::hybrid::COALESCE_SHARE;
use softring_engine::polling::try_idle_sleep;

/// Number of tries; each is a few sleeps.
const TRIES: usize = 9;
/// Longest sleep that is tried, in ns.
const LONGEST: f64 = 4e6;

/// The floor at the rate of spin, in a row with many in flight.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    /// CPU % of submitting and completing alone. For a modelled disk: measured on one that takes no
    /// time. For a real disk: measured on a plain ring that submits all that it may and sleeps once
    /// for all of it.
    pub submit_percent: f64,
    /// The longest sleep that may coalesce completions: a part of the time that spin's requests
    /// take.
    pub idle_sleep_ns: f64,
    /// Delay with which sleeps of that length end here, and the processor time of one.
    pub late_ns: f64,
    pub idle_sleep_cpu_ns: f64,
    /// CPU % of such sleeps, one after the other; None if they are too short to pay, so that the
    /// thread must spin.
    pub idle_sleeps_percent: Option<f64>,
    /// CPU % of the whole floor, at most 100.
    pub percent: f64,
}

impl Floor {
    /// Measures the floor now. `submit_us` is per I/O; `iops` and `mean_ns` are spin's.
    pub fn measure(submit_us: f64, iops: f64, mean_ns: f64) -> Floor {
        let idle_sleep_ns = mean_ns / COALESCE_SHARE as f64;
        let tried = [(); TRIES].map(|()| try_idle_sleep(idle_sleep_ns.min(LONGEST) as u64));
        let middle = |f: &dyn Fn(usize) -> f64| median(&(0..TRIES).map(f).collect::<Vec<_>>());
        let least = middle(&|i| tried[i].least() as f64);
        let idle_sleep_cpu_ns = middle(&|i| tried[i].cpu() as f64);
        let submit_percent = submit_us * iops / 1e4;
        let idle_sleeps_percent =
            (idle_sleep_ns > least).then_some(idle_sleep_cpu_ns / idle_sleep_ns * 100.0);
        Floor {
            submit_percent,
            idle_sleep_ns,
            late_ns: middle(&|i| tried[i].late() as f64),
            idle_sleep_cpu_ns,
            idle_sleeps_percent,
            percent: idle_sleeps_percent.map_or(100.0, |n| (submit_percent + n).min(100.0)),
        }
    }

    /// Formats the floor for reading.
    pub fn text(&self) -> String {
        let idle_sleeps = format!(
            "sleeps of {} (each ends {} late and takes {} of CPU)",
            time(self.idle_sleep_ns),
            time(self.late_ns),
            time(self.idle_sleep_cpu_ns),
        );
        let idle_sleeps = match self.idle_sleeps_percent {
            Some(percent) => format!("{idle_sleeps} {percent:.0} %"),
            None => format!("{idle_sleeps} cost more than they save"),
        };
        let Floor { submit_percent, percent, .. } = self;
        format!(
            "floor {percent:.0} %: submitting and completing {submit_percent:.0} %, {idle_sleeps}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_make_the_floor_spinning() {
        let short = Floor::measure(1.0, 10_000.0, 800.0);
        assert_eq!((short.idle_sleeps_percent, short.percent), (None, 100.0));
        let long = Floor::measure(1.0, 10_000.0, 1e9);
        assert!(long.idle_sleeps_percent.is_some_and(|n| n < 50.0), "{long:?}");
        assert!((long.submit_percent - 1.0).abs() < 1e-9 && long.percent < 51.0, "{long:?}");
        assert!(long.text().starts_with("floor "), "{}", long.text());
    }
}
