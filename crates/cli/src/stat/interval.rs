//! What was done in each stretch of time, told while the program runs, as `perf stat -I` does.

use super::report;
use super::watch::Watch;
use crate::cli::StatArgs;
use softring_engine::stats::read;
use std::time::{Duration, Instant};

/// Far longer than a program is watched.
const NEVER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Intervals<'a> {
    args: &'a StatArgs,
    start: Instant,
    every: Option<Duration>,
    /// When the next one ends, and when this one has begun.
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

    /// The time until the stretch is over.
    pub fn left(&self) -> Duration {
        self.next.saturating_sub(self.start.elapsed())
    }

    /// Tells of the stretch, if it is over.
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
        // After a pause the next one is whole, too.
        while self.next <= now {
            self.next += every;
        }
        Ok(())
    }
}
