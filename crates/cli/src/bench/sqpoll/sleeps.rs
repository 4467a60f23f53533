//! Cost of a sleep on this machine, and so the least processor time of an SQ thread that sleeps
//! between submissions and is to be awake when they come.

use crate::bench::summary::time;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::ClockId;
use serde::Serialize;
use softring_host::time::{Clock, cpu_time};
use std::num::NonZeroU64;
use std::time::Duration;

/// Number of sleeps that are tried, and the longest of them.
const TRIES: u32 = 300;
const LONGEST: Duration = Duration::from_millis(5);

/// Sleeps of one gap between submissions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sleeps {
    pub rate: u32,
    pub late_p50_ns: f64,
    pub late_p99_ns: f64,
    /// Processor time of one sleep.
    pub cpu_ns: f64,
    /// Least share of one processor, in percent.
    pub floor_percent: f64,
}

impl Sleeps {
    /// Measures sleeps now, at the gap of `rate` submissions per second.
    pub fn measure(rate: u32) -> Sleeps {
        let gap = (Duration::from_secs(1) / rate.max(1)).min(LONGEST);
        // The timer slack of an SQ thread; 50 µs if the kernel refuses it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let before = cpu_time();
        let mut late: Vec<f64> = (0..TRIES)
            .map(|_| {
                let until = Duration::from_nanos(Clock::Monotonic.now()) + gap;
                if let Ok(at) = until.try_into() {
                    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
                }
                Clock::Monotonic.now().saturating_sub(until.as_nanos() as u64) as f64
            })
            .collect();
        let cpu = (cpu_time() - before) as f64 / f64::from(TRIES);
        late.sort_by(f64::total_cmp);
        let at = |percent: usize| late[late.len() * percent / 100];
        Sleeps::of(rate, at(50), at(99), cpu)
    }

    /// Computes the floor. To be awake in time 99 times of 100, a thread aims to wake early by the
    /// 99th percentile of the delay, and polls until the submission: half of the time, for the
    /// difference to the median or longer. If a gap is not as long, the thread polls all the time.
    fn of(rate: u32, late_p50_ns: f64, late_p99_ns: f64, cpu_ns: f64) -> Sleeps {
        let gap = 1e9 / f64::from(rate.max(1));
        let awake = cpu_ns + late_p99_ns - late_p50_ns;
        let floor_percent =
            if late_p99_ns < gap { (awake / gap * 100.0).min(100.0) } else { 100.0 };
        Sleeps { rate, late_p50_ns, late_p99_ns, cpu_ns, floor_percent }
    }

    /// Formats the figures for reading.
    pub fn text(&self) -> String {
        format!(
            "Sleeps as long as the gap at {}/s end {} late here (p99 {}) and take {} of processor \
             time. To be awake in time in 99 of 100 cases takes {:.0} % of a processor.",
            self.rate,
            time(self.late_p50_ns),
            time(self.late_p99_ns),
            time(self.cpu_ns),
            self.floor_percent,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_cpu_time_includes_the_lateness_of_sleeps() {
        let quick = Sleeps::of(10_000, 5_000.0, 15_000.0, 3_000.0);
        assert!((quick.floor_percent - 13.0).abs() < 1e-9, "{quick:?}");
        let late = Sleeps::of(10_000, 50_000.0, 160_000.0, 3_000.0);
        assert!((late.floor_percent - 100.0).abs() < 1e-9, "{late:?}");
        let measured = Sleeps::measure(50_000);
        assert!(measured.cpu_ns > 0.0 && measured.late_p99_ns >= measured.late_p50_ns);
    }
}
