//! A program that is disturbed while its reads are in flight: by signals, whose handlers may enter
//! the same ring; by being stopped and continued; by cancels; by its own end. `disturbed CASE KIND
//! PATH` exits with 0 if every read completed once, with its data, and in time; KIND is `plain`,
//! `iopoll`, `sqpoll` or `sqpoll-iopoll`.
#![allow(unsafe_code)]

mod signal;
mod work;

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use io_uring::types::CancelBuilder;
use signal::{every, raise_in, ran};
use work::{Kind, Work};

type Outcome = Result<(), String>;
type Case = fn(&mut Work) -> Outcome;

/// Cases, with the number of reads that they want in flight.
const CASES: &[(&str, usize, Case)] = &[
    ("runs", 8, runs),
    ("signals", 4, signals),
    ("eintr", 1, eintr),
    ("handler_waits", 1, handler_waits),
    ("handler_peeks", 4, handler_peeks),
    ("many", 10_000, many),
    ("cancels", 8, cancels),
    ("closes", 32, closes),
    ("exits", 32, |w| left(w, || std::process::exit(0))),
    ("aborts", 32, |w| left(w, || kill_self(libc::SIGKILL))),
    ("execs", 32, |w| left(w, || panic!("{}", Command::new("true").exec()))),
    ("forks", 32, forks),
    ("stops", 4, stops),
];

fn holds(what: &str, is: bool) -> Outcome {
    if is { Ok(()) } else { Err(what.into()) }
}

fn cpu_time() -> Duration {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut ts) };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

fn kill_self(signal: i32) {
    // SAFETY: a call without pointers.
    unsafe { libc::raise(signal) };
}

/// Reads for a while, whatever comes meanwhile.
fn runs(w: &mut Work) -> Outcome {
    runs_until(w, || true)
}

/// Handlers that must run for a result; this takes longer on a busy machine.
const ENOUGH: usize = 50;

fn enough() -> bool {
    ran() > ENOUGH
}

fn runs_until(w: &mut Work, done: fn() -> bool) -> Outcome {
    let (start, at_least, at_most) =
        (Instant::now(), Duration::from_millis(300), Duration::from_secs(10));
    while start.elapsed() < at_least || !done() && start.elapsed() < at_most {
        w.fill();
        w.enter(1)?;
        w.take()?;
    }
    w.finish()?;
    holds("some were read", w.done > 100)
}

fn signals(w: &mut Work) -> Outcome {
    every(Duration::from_millis(1), signal::count);
    runs_until(w, enough)?;
    every(Duration::ZERO, signal::count);
    println!("{} read, {} signals, {} waits ended", w.done, ran(), w.interrupted);
    holds("handlers ran", enough())
}

/// A signal ends a wait at once while no read completes for long.
fn eintr(w: &mut Work) -> Outcome {
    w.fill();
    w.enter(0)?;
    for _ in 0..3 {
        let (start, before) = (Instant::now(), (ran(), w.interrupted));
        raise_in(Duration::from_millis(20), signal::count);
        w.enter(1)?;
        let took = start.elapsed();
        holds(&format!("a wait of {took:?}"), took < Duration::from_millis(70))?;
        holds("EINTR, its handler run", (before.0 + 1, before.1 + 1) == (ran(), w.interrupted))?;
        holds("nothing yet", w.take()? == 0)?;
    }
    w.finish()
}

/// A handler enters the ring that its thread waits on, and gets the read that the thread waits for.
fn handler_waits(w: &mut Work) -> Outcome {
    signal::enters(w.ring.as_raw_fd(), 1);
    for round in 1..=20 {
        w.fill();
        w.enter(0)?;
        raise_in(Duration::from_millis(5), signal::enter);
        let start = Instant::now();
        while ran() < round {
            w.enter(1)?;
        }
        let took = start.elapsed();
        holds(&format!("round {round} took {took:?}"), took < Duration::from_secs(2))?;
        holds("the read is there", w.take()? == 1)?;
    }
    // All but those that came at a bad moment of one of the thread's calls.
    holds("handlers were answered", signal::refused() < 10)
}

/// A handler peeks at the ring at any moment of its thread.
fn handler_peeks(w: &mut Work) -> Outcome {
    signal::enters(w.ring.as_raw_fd(), 0);
    every(Duration::from_micros(300), signal::enter);
    runs_until(w, enough)?;
    every(Duration::ZERO, signal::enter);
    println!("{} read, {} signals, {} answered EINTR", w.done, ran(), signal::refused());
    holds("handlers ran", enough())?;
    // All but those that came at a bad moment of one of the thread's calls.
    holds("handlers were answered", signal::refused() < 10)
}

fn many(w: &mut Work) -> Outcome {
    w.fill();
    w.finish()
}

/// Cancels reads that a device has, which are not taken back.
fn cancels(w: &mut Work) -> Outcome {
    for _ in 0..20 {
        w.fill();
        w.enter(0)?;
        let all = w.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        let e = all.map_or_else(|e| e.raw_os_error().unwrap_or(0), |()| 0);
        holds(&format!("SYNC_CANCEL answers {e}"), matches!(e, 0 | libc::ENOENT))?;
        w.finish()?;
    }
    Ok(())
}

/// Closes the ring; another one serves.
fn closes(w: &mut Work) -> Outcome {
    for _ in 0..10 {
        w.fill();
        w.enter(0)?;
        let again = w.again()?;
        let start = Instant::now();
        // The old ring ends first, then the memory that its reads go to.
        drop(std::mem::replace(w, again));
        let took = start.elapsed();
        holds(&format!("closing took {took:?}"), took < Duration::from_secs(2))?;
    }
    w.fill();
    w.finish()
}

/// Ends the process while reads are in flight.
fn left(w: &mut Work, end: fn()) -> Outcome {
    w.fill();
    w.enter(0)?;
    end();
    Err("it goes on".into())
}

/// Forks a child that ends; the reads that its parent waits for complete.
fn forks(w: &mut Work) -> Outcome {
    for _ in 0..5 {
        w.fill();
        w.enter(0)?;
        // SAFETY: one thread; the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::process::exit(0);
        }
        w.finish()?;
        let mut status = 0;
        // SAFETY: our child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        holds("the child ends well", status == 0)?;
    }
    Ok(())
}

/// Waits for a device that is stopped until a reader of our output lets it go on.
fn stops(w: &mut Work) -> Outcome {
    w.fill();
    w.enter(0)?;
    w.finish()?;
    w.write_all()?;
    println!("in flight");
    let (start, cpu) = (Instant::now(), cpu_time());
    raise_in(Duration::from_millis(100), signal::count);
    w.enter(1)?;
    holds("the signal came through", ran() == 1 && w.interrupted == 1)?;
    holds("nothing yet", w.ring.completion().next().is_none())?;
    w.finish()?;
    let (took, spent) = (start.elapsed(), cpu_time() - cpu);
    println!("after {took:?}, of which {spent:?} processor time");
    holds("it was stopped", took > Duration::from_millis(300))?;
    holds("the wait slept", spent < took / 4)
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [case, kind, path] = &args[..] else {
        CASES.iter().for_each(|c| println!("{}", c.0));
        return ExitCode::SUCCESS;
    };
    let Some((_, n, run)) = CASES.iter().find(|c| c.0 == case) else { return ExitCode::FAILURE };
    let Some(kind) = Kind::named(kind) else { return ExitCode::FAILURE };
    match Work::new(path, kind, *n).and_then(|mut w| run(&mut w)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{case}: {e}");
            ExitCode::FAILURE
        }
    }
}
