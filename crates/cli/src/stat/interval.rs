//! Counts of each stretch of time, reported while the program runs, as `perf stat -I` does.

use super::report;
use super::watch::Watch;
use crate::cli::StatArgs;
use softring_engine::stats::read;
use std::time::{Duration, Instant};

/// A time far longer than a program is watched.
const NEVER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Intervals<'a> {
    args: &'a StatArgs,
    start: Instant,
    every: Option<Duration>,
    /// Times at which this stretch ends and (`began`) has begun.
    next: Duration,
    began: Duration,
    before: read::Ring,
}

impl Intervals<'_> {
    pub fn new(args: &StatArgs, start: Instant) -> Intervals<'_> {
        let every = args.interval.map(Duration::from_millis);
        let (next, began) = (every.unwrap_or(NEVER), Duration::ZERO);
        Intervals { args, start, every, next, began, before: read::Ring::default() }
    }

    /// Returns the time until the stretch is over.
    pub fn left(&self) -> Duration {
        self.next.saturating_sub(self.start.elapsed())
    }

    /// Reports the stretch, if it is over.
    pub fn tell(&mut self, watch: &Watch) -> anyhow::Result<()> {
        let Some(every) = self.every else { return Ok(()) };
        let now = self.start.elapsed();
        if now < self.next {
            return Ok(());
        }
        let total = watch.so_far();
        let mut done = total.clone();
        done.subtract(&self.before);
        let seconds = (now - self.began).as_secs_f64();
        let lines = report::interval(&done, now.as_secs_f64(), seconds);
        report::write(self.args, &lines)?;
        (self.before, self.began) = (total, now);
        // After a pause the next stretch ends at a multiple of `every`, too.
        while self.next <= now {
            self.next += every;
        }
        Ok(())
    }
}
