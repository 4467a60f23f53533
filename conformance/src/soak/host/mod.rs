//! Actions of a real process around its rings: it holds locks, gives up rights and takes them back,
//! closes numbers and reuses them, has signals, forks, jumps out of handlers, ends threads, and
//! waits for slow memory, all at random beside the checked load of [`mix`](super::mix). Each
//! disturbance checks its effects; at the end nothing is lost and nothing is left.

mod closes;
mod ends;
mod forks;
mod jumps;
mod locks;
mod rights;
mod signals;
mod stalls;
mod sys;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::health::Health;
use super::ledger::{END_LIMIT, End, Ledger, Totals};
use super::mix::transfer::Ways;
use super::{Check, Fault, ensure, mix};
use crate::entry::EntryPoint;
use softring_uapi::*;

/// Number of threads that disturb, and of threads of the load.
const DISTURBERS: u64 = 2;
const LOAD: u64 = 2;
/// Numbers that nobody is given unasked: the first, and the count for each thread. They are below
/// those that softring takes: a dup2(2) onto one of those ends the process's locks on the file that
/// it names.
const NUMBERS: (i32, i32) = (400, 16);

/// Action of a process. Returns false if it cannot be done here.
type Disturbance = fn(&mut Context) -> Check<bool>;

/// Disturbances by name, as `--without` takes them.
const DISTURBANCES: [(&str, Disturbance); 7] = [
    ("locks", locks::run),
    ("rights", rights::run),
    ("closes", closes::run),
    ("forks", forks::run),
    ("jumps", jumps::run),
    ("ends", ends::run),
    ("stalls", stalls::run),
];
/// Name of a disturbance that has no turns: signals come all the time.
const SIGNALS: &str = "signals";

/// Returns the names that `--without` knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    DISTURBANCES.iter().map(|(name, _)| *name).chain([SIGNALS])
}

/// Surroundings of a disturbance.
struct Context<'a> {
    entry: EntryPoint,
    rng: Rng,
    dir: &'a Path,
    /// The first of [`NUMBERS`] that are this thread's.
    numbers: i32,
    totals: Totals,
}

/// A ring for one disturbance; the token is the request's index.
type Book = Ledger<u32>;

/// Counts of actions by name.
pub type Tally = BTreeMap<&'static str, u64>;

/// Actions, and totals of the books.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub tally: Tally,
    pub totals: Totals,
    /// Outcome of the load.
    pub load: mix::Outcome,
}

impl Context<'_> {
    fn ring(&mut self) -> Check<Book> {
        const KINDS: [u32; 3] =
            [0, IORING_SETUP_COOP_TASKRUN, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN];
        let kind = KINDS[self.rng.usize(..KINDS.len())];
        self.ring_with(kind)
    }

    fn ring_with(&self, flags: u32) -> Check<Book> {
        Ledger::new(self.entry, 64, io_uring_params { flags, ..Default::default() })
    }

    /// Creates a file of `len` bytes that encode their position.
    fn file(&mut self, len: usize) -> Check<std::path::PathBuf> {
        let path = self.dir.join(super::sys::new_name());
        std::fs::write(&path, content(len)).map_err(wrong)?;
        Ok(path)
    }

    /// Checks that nothing is left of a ring's requests, and closes the ring.
    fn close(&mut self, mut book: Book) -> Check {
        ensure(book.open() == 0, || format!("{} requests without an end", book.open()))?;
        book.quiet()?;
        self.totals += book.totals;
        Ok(())
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8) as u8).collect()
}

fn wrong(e: impl std::fmt::Display) -> Fault {
    e.to_string()
}

/// Submits, and waits until all due requests have ended.
fn finish(book: &mut Book) -> Check<Vec<End<u32>>> {
    let (began, mut ends) = (Instant::now(), Vec::new());
    loop {
        book.submit(1, Duration::from_millis(100))?;
        ends.extend(book.reap()?);
        if book.open() == 0 {
            ends.sort_by_key(|e| e.token);
            return Ok(ends);
        }
        ensure(began.elapsed() < END_LIMIT, || {
            format!("{} requests without an end; there were {ends:?}", book.open())
        })?;
    }
}

/// Runs one request to its end.
fn one(book: &mut Book, sqe: io_uring_sqe) -> Check<i32> {
    book.push(&[(sqe, 0)])?;
    Ok(finish(book)?[0].cqe.res)
}

/// Disturbs for `time`, and checks that nothing is left behind.
pub fn run(
    entry: EntryPoint,
    sends: Ways,
    seed: u64,
    time: Duration,
    without: &[String],
) -> Check<Outcome> {
    let left_out = |name: &str| without.iter().any(|w| w == name);
    let chosen: Vec<_> = DISTURBANCES.into_iter().filter(|(name, _)| !left_out(name)).collect();
    let before = Health::now();
    let mut out = Outcome::default();
    let dir = tempfile::tempdir().map_err(wrong)?;
    let (until, over) = (Instant::now() + time, AtomicBool::new(false));
    let bell = signals::Bell::new()?;
    std::thread::scope(|scope| {
        if !left_out(SIGNALS) {
            let rng = Rng::with_seed(seed ^ 1);
            scope.spawn(|| bell.ring(rng, &over));
        }
        let (bell, chosen, dir) = (&bell, &chosen, dir.path());
        let load = (0..LOAD).map(|i| seed ^ (i + 2) << 32).map(|seed| {
            scope.spawn(move || {
                let load = bell.hears(|| mix::beside(entry, sends, seed, until));
                let load = load.map_err(|fault| format!("the load: {fault}"))?;
                Ok(Outcome { load, ..Outcome::default() })
            })
        });
        let load: Vec<_> = load.collect();
        let disturbers = (0..DISTURBERS).map(|i| {
            let mut context = Context {
                entry,
                rng: Rng::with_seed(seed ^ (i + 100) << 32),
                dir,
                numbers: NUMBERS.0 + i as i32 * NUMBERS.1,
                totals: Totals::default(),
            };
            scope.spawn(move || {
                let tally = bell.hears(|| disturb(&mut context, chosen, until))?;
                Ok(Outcome { tally, totals: context.totals, ..Outcome::default() })
            })
        });
        let disturbers: Vec<_> = disturbers.collect();
        let mut faults: Vec<Fault> = Vec::new();
        for thread in disturbers.into_iter().chain(load) {
            match thread.join().unwrap_or_else(|_| Err("a thread fell".to_owned())) {
                Ok(part) => out.add(part),
                Err(fault) => faults.push(fault),
            }
        }
        over.store(true, Ordering::Relaxed);
        ensure(faults.is_empty(), || faults.join("\n"))
    })?;
    out.tally.insert(SIGNALS, bell.answered());
    drop((bell, dir));
    Health::returned_to(before)?;
    Ok(out)
}

impl Outcome {
    /// Adds the outcome of another thread.
    fn add(&mut self, other: Outcome) {
        other.tally.into_iter().for_each(|(k, n)| *self.tally.entry(k).or_default() += n);
        self.totals += other.totals;
        self.totals += other.load.totals;
        self.load.add(other.load);
    }
}

fn disturb(
    context: &mut Context,
    chosen: &[(&'static str, Disturbance)],
    until: Instant,
) -> Check<Tally> {
    let mut tally = Tally::new();
    while Instant::now() < until {
        let Some((name, run)) = context.rng.choice(chosen) else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if run(context).map_err(|e| format!("{name}: {e}"))? {
            *tally.entry(name).or_default() += 1;
        }
    }
    Ok(tally)
}
