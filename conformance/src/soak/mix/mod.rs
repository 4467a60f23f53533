//! A mix of everything: threads, each with rings of every kind, which send, receive, read, write,
//! wait for children, futexes and times; peers reset, half-close and stop reading. Every stream
//! consists of bytes that encode their position, so that each byte is accounted for.

mod conn;
mod file;
mod small;
mod stage;
pub mod transfer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::health::Health;
use super::ledger::{END_LIMIT, Totals};
use super::{Check, ensure};
use crate::entry::EntryPoint;
use softring_uapi::{IORING_ASYNC_CANCEL_ALL, IORING_ASYNC_CANCEL_ANY};
use stage::{MOST, Pattern, RINGS, Scene, Stage, Tally};
use transfer::Ways;

const THREADS: u64 = 3;
/// Growth allowed to the allocators' free lists by threads that come and go.
const SLACK_KIB: u64 = 4096;
/// Time after which threads and rings are made anew, and the least and greatest number of times;
/// memory is checked in between.
const ACT: Duration = Duration::from_secs(2);
const ACTS: (u64, u64) = (6, 60);

/// Actions, totals of the books, and memory after a third and at the end.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub tally: Tally,
    pub totals: Totals,
    pub middle: Health,
    pub end: Health,
}

/// Runs for `time`, and checks that nothing is left behind.
pub fn run(entry: EntryPoint, sends: Ways, seed: u64, time: Duration) -> Check<Outcome> {
    let before = Health::now();
    let mut out = Outcome::default();
    let pattern = Arc::new(Pattern::new(&mut Rng::with_seed(seed))?);
    let acts = (time.as_secs() / ACT.as_secs()).clamp(ACTS.0, ACTS.1) as u32;
    for act in 0..acts {
        let until = Instant::now() + time / acts;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|i| {
                    let seed = seed ^ (u64::from(act) * THREADS + i + 1) << 32;
                    let pattern = pattern.clone();
                    scope.spawn(move || Worker::new(entry, sends, seed, pattern)?.run(until))
                })
                .collect();
            let mut faults = Vec::new();
            for worker in workers {
                match worker.join().unwrap_or_else(|_| Err("a thread fell".into())) {
                    Ok((tally, totals)) => {
                        tally.into_iter().for_each(|(k, n)| *out.tally.entry(k).or_default() += n);
                        out.totals += totals;
                    }
                    Err(fault) => faults.push(fault),
                }
            }
            ensure(faults.is_empty(), || faults.join("\n"))
        })?;
        out.end = Health::now();
        // By now the allocators have their memory.
        if act == acts / 3 {
            out.middle = out.end;
        }
    }
    Health::returned_to(before)?;
    Health::not_grown(out.middle, out.end, SLACK_KIB)?;
    Ok(out)
}

/// Runs one thread of the mix beside other activity.
pub fn beside(entry: EntryPoint, sends: Ways, seed: u64, until: Instant) -> Check<Outcome> {
    let pattern = Arc::new(Pattern::new(&mut Rng::with_seed(seed))?);
    let (tally, totals) = Worker::new(entry, sends, seed, pattern)?.run(until)?;
    Ok(Outcome { tally, totals, ..Outcome::default() })
}

impl Outcome {
    /// Adds the outcome of another thread.
    pub fn add(&mut self, other: Outcome) {
        other.tally.into_iter().for_each(|(k, n)| *self.tally.entry(k).or_default() += n);
        self.totals += other.totals;
    }
}

struct Worker {
    stage: Stage,
    scenes: Vec<Option<(Box<dyn Scene>, Instant)>>,
}

impl Worker {
    fn new(entry: EntryPoint, sends: Ways, seed: u64, pattern: Arc<Pattern>) -> Check<Self> {
        let scenes = (0..MOST).map(|_| None).collect();
        Ok(Worker { stage: Stage::new(entry, sends, seed, pattern)?, scenes })
    }

    fn run(mut self, until: Instant) -> Check<(Tally, Totals)> {
        let played = self.play(until);
        if played.is_err() {
            self.abort();
        }
        played
    }

    /// Cancels the requests in flight after a fault: they use memory of the scenes. Then closes
    /// descriptors: a SEND_ZC waits for its peer, and the kernel's SQ thread, which has the
    /// descriptors open as well, would wait for that for ever.
    fn abort(&mut self) {
        for round in 0..20 {
            for hand in &mut self.stage.hands {
                let all = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
                hand.ledger.cancel(crate::sqe::cancel(0, all));
                let _ = hand.ledger.submit(1, Duration::from_millis(10));
                let _ = hand.ledger.reap();
            }
            if round == 10 {
                self.scenes.iter_mut().flatten().for_each(|(scene, _)| scene.abort());
            }
        }
    }

    fn play(&mut self, until: Instant) -> Check<(Tally, Totals)> {
        let mut ticked = Instant::now();
        loop {
            let over = Instant::now() >= until;
            if over && self.scenes.iter().all(Option::is_none) {
                break;
            }
            if !over {
                self.begin()?;
            }
            let mut came = false;
            for ring in 0..RINGS.len() {
                came |= self.reap(ring, 0)?;
            }
            if !came {
                let ring = self.stage.any_ring();
                self.reap(ring, 1)?;
            }
            if ticked.elapsed() >= Duration::from_millis(1) {
                ticked = Instant::now();
                (0..MOST).try_for_each(|i| self.tick(i))?;
            }
        }
        let mut totals = Totals::default();
        for hand in &mut self.stage.hands {
            ensure(hand.ledger.open() == 0, || format!("{} requests left", hand.ledger.open()))?;
            hand.ledger.quiet()?;
            let lost = hand.whole.lost(&hand.ledger.ring)? + hand.bits.lost(&hand.ledger.ring)?;
            if lost > 0 {
                *self.stage.tally.entry("buffers lost").or_default() += u64::from(lost);
            }
            totals += hand.ledger.totals;
        }
        Ok((std::mem::take(&mut self.stage.tally), totals))
    }

    /// Starts a scene in an empty place, if there is one.
    fn begin(&mut self) -> Check {
        let Some(i) = self.scenes.iter().position(Option::is_none) else { return Ok(()) };
        let stage = &mut self.stage;
        let scene: Box<dyn Scene> = match stage.rng.u32(..100) {
            0..60 => Box::new(conn::Conn::new(stage, i)?),
            60..75 => Box::new(file::Job::new(stage, i)?),
            75..80 => Box::new(small::Child::new(stage, i)?),
            80..87 => Box::new(small::Futex::new(stage, i)?),
            87..94 => Box::new(small::Timer::new(stage, i)?),
            _ => Box::new(small::Message::new(stage, i)),
        };
        self.scenes[i] = Some((scene, Instant::now()));
        self.tick(i)
    }

    /// Submits to a ring, and passes on its completions.
    fn reap(&mut self, ring: usize, min: u32) -> Check<bool> {
        let ledger = &mut self.stage.hands[ring].ledger;
        ledger.submit(min, Duration::from_micros(500))?;
        let ends = ledger.reap()?;
        for end in &ends {
            let i = end.token.scene;
            let Some((scene, _)) = &mut self.scenes[i] else {
                return Err(format!("nobody's: {end:?}"));
            };
            let done = scene.on(&mut self.stage, end);
            done.map_err(|e| format!("ring {ring}, {end:?}: {e}; {scene:?}"))?;
            self.strike(i);
        }
        Ok(!ends.is_empty())
    }

    fn tick(&mut self, i: usize) -> Check {
        let Some((scene, since)) = &mut self.scenes[i] else { return Ok(()) };
        scene.tick(&mut self.stage).map_err(|e| format!("{e}; {scene:?}"))?;
        ensure(since.elapsed() < 2 * END_LIMIT, || format!("does not end: {scene:?}"))?;
        self.strike(i);
        Ok(())
    }

    fn strike(&mut self, i: usize) {
        self.scenes[i].take_if(|(scene, _)| scene.over());
    }
}
