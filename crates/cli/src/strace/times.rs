//! Time at which a request was taken, as strace(1) writes it.

use crate::sys;
use rustix::time::{ClockId, clock_gettime};

/// Format of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Hours, minutes, seconds.
    Seconds,
    /// Hours, minutes, seconds and microseconds.
    Micros,
    /// Seconds since 1970, with microseconds.
    Epoch,
    /// Seconds since the line before.
    Relative,
}

/// Writer of CLOCK_MONOTONIC times.
#[derive(Debug)]
pub struct Times {
    format: Format,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC, in ns.
    offset: u64,
    last: Option<u64>,
    /// The last whole second that was written, and its text.
    known: (u64, String),
}

fn now(clock: ClockId) -> u64 {
    let ts = clock_gettime(clock);
    ts.tv_sec.cast_unsigned() * 1_000_000_000 + ts.tv_nsec.cast_unsigned()
}

impl Times {
    pub fn new(format: Format) -> Times {
        let offset = now(ClockId::Realtime).saturating_sub(now(ClockId::Monotonic));
        Times { format, offset, last: None, known: (u64::MAX, String::new()) }
    }

    pub fn text(&mut self, monotonic: u64) -> String {
        let before = self.last.replace(monotonic).unwrap_or(monotonic);
        let ns = monotonic + self.offset;
        let (seconds, micros) = (ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
        match self.format {
            Format::Epoch => format!("{seconds}.{micros:06}"),
            Format::Seconds => self.clock(seconds).to_owned(),
            Format::Micros => format!("{}.{micros:06}", self.clock(seconds)),
            Format::Relative => {
                // A line that was finished later may be of a request that was taken earlier.
                let since = monotonic.saturating_sub(before) / 1000;
                format!("{:>6}.{:06}", since / 1_000_000, since % 1_000_000)
            }
        }
    }

    /// Returns the local time of day.
    fn clock(&mut self, seconds: u64) -> &str {
        if self.known.0 != seconds {
            let [h, m, s] = sys::local_time(seconds);
            self.known = (seconds, format!("{h:02}:{m:02}:{s:02}"));
        }
        &self.known.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format() {
        let mut t = Times { offset: 1_000_000_000, ..Times::new(Format::Epoch) };
        assert_eq!(t.text(2_000_001_500), "3.000001");
        t.format = Format::Relative;
        assert_eq!(t.text(3_000_002_500), "     1.000001");
        assert_eq!(t.text(3_000_000_000), "     0.000000");
        t.format = Format::Micros;
        let clock = t.text(2_000_001_500);
        assert!(clock.len() == 15 && clock.ends_with(":03.000001"), "{clock}");
        t.format = Format::Seconds;
        assert_eq!(t.text(2_000_001_500), clock[..8]);
    }
}
