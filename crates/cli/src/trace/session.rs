//! A program that is started and followed, or a process that is followed, until it ends: for
//! `softring trace` and `softring strace`.

use super::find;
use super::readers::Readers;
use crate::cli::{Engine, UnderArgs};
use crate::family::Family;
use crate::start::{self, Failure};
use crate::{fail, signals, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use softring_engine::stats::trace::Event;
use softring_engine::stats::trace::read::Source;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time between two reads of the program's memory, which has room for what a million requests a
/// second write within five times as long.
const PASS: Duration = Duration::from_millis(20);

/// Process that is followed.
enum Target {
    Child(Child, Failure),
    Process(Other),
}

/// A process that is not ours. Its number may come to be another process's; its pidfd does not.
struct Other {
    pid: i32,
    fd: Option<OwnedFd>,
}

impl Other {
    fn new(pid: i32) -> Other {
        let fd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Other { pid, fd }
    }

    /// Returns whether the process has ended. Whoever started it need not have waited for it.
    fn ended(&self) -> bool {
        let Some(fd) = &self.fd else {
            // The kernel has no pidfd_open(2).
            return sys::has_ended(self.pid);
        };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }
}

impl Target {
    /// Returns whether the process has ended; for a child, also how.
    fn ended(&mut self) -> Option<Option<ExitStatus>> {
        match self {
            Target::Child(child, _) => child.try_wait().ok()?.map(Some),
            Target::Process(other) => other.ended().then_some(None),
        }
    }
}

/// Returns whether the kernel makes its own clock of the processor's time stamp counter.
fn counter_is_trusted() -> bool {
    let at = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fs::read_to_string(at).is_ok_and(|name| name.trim() == "tsc")
}

/// Receiver of the events.
pub trait Sink {
    /// Takes one event of a process and the words that belong to it. `process` tells the process
    /// from others with its number.
    fn event(&mut self, process: u32, source: &Source, event: Event, more: &[u64]);

    /// Ends a pass: all that was there has been passed on; more may come.
    fn passed(&mut self, readers: &Readers);
}

/// A process that is known and not yet followed, so that errors are reported first.
pub struct Found(Other, softring_engine::stats::trace::read::Reader);

/// Finds a process that can be traced. From then on its number cannot mean another process.
pub fn find(pid: i32) -> anyhow::Result<Found> {
    // This comes before the search for its memory.
    let other = Other::new(pid);
    Ok(Found(other, find::open(pid)?))
}

/// The processes that are followed.
pub struct Session {
    pub readers: Readers,
    target: Target,
}

impl Session {
    /// Follows a process. `names`: descriptors are to be named.
    pub fn attach(Found(other, memory): Found, names: bool) -> anyhow::Result<Session> {
        signals::catch_ends();
        let readers = Readers::one(other.pid, memory, counter_is_trusted(), names);
        let hint = "wait until the other command ends";
        let busy = |_| fail::work_hint("another softring trace or strace reads this process", hint);
        Ok(Session { readers: readers.map_err(busy)?, target: Target::Process(other) })
    }

    /// Starts the program under `softring run`, which becomes it, and follows it and its children.
    pub fn start(under: &UnderArgs, command: &[OsString], names: bool) -> anyhow::Result<Session> {
        signals::catch_for_program();
        let readers = Readers::listen(counter_is_trusted(), names)?;
        // The kernel's rings would have nothing to see.
        let under = UnderArgs { engine: Some(Engine::User), ..under.clone() };
        // Command would lose doubled entries and entries without `=`.
        sys::set_env("SOFTRING_TRACE", readers.key().as_ref());
        let (child, failure) = start::start(&under, command)?;
        // The limit is raised only now: the program has the limit that we found.
        sys::raise_descriptors();
        Ok(Session { readers, target: Target::Child(child, failure) })
    }

    /// Returns the exit code of `softring run` if it could not become the program, and has said
    /// why.
    pub fn never_ran(&self, status: Option<ExitStatus>) -> Option<i32> {
        match &self.target {
            Target::Child(_, failure) => {
                status.and_then(|s| s.code()).filter(|_| failure.happened())
            }
            Target::Process(_) => None,
        }
    }

    /// Takes events until the program has ended, or the time is over; returns how a child ended.
    pub fn follow(
        &mut self,
        seconds: Option<f64>,
        sink: &mut impl Sink,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let Session { readers, target } = self;
        let limit = seconds.map(Duration::from_secs_f64);
        let start = Instant::now();
        let mut family = Family::of(match target {
            Target::Child(child, _) => i32::try_from(child.id())?,
            Target::Process(other) => other.pid,
        });
        let (mut on, mut next) = (true, start);
        loop {
            let ended = target.ended();
            let over = limit.is_some_and(|limit| start.elapsed() >= limit);
            let asked = match &*target {
                Target::Child(child, _) => {
                    signals::pass_on(child);
                    false
                }
                Target::Process(_) => signals::end().is_some(),
            };
            let stop = ended.is_some() || over || asked;
            readers.take();
            if on && stop {
                readers.stop();
                on = false;
            }
            let due = next <= Instant::now();
            if on && due {
                readers.update(&mut family);
            }
            // One more pass follows the stop, for what was written until then.
            if on && due || stop {
                readers.poll(|process, source, event, more| {
                    sink.event(process, source, event, more);
                });
                sink.passed(readers);
            }
            match (ended, &*target) {
                (Some(status), _) => return Ok(status),
                (None, Target::Process(_)) if stop => return Ok(None),
                _ => {}
            }
            if due {
                next = Instant::now() + PASS;
            }
            readers.wait(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Ends this process as the program has ended.
pub fn end_as(status: Option<ExitStatus>) -> anyhow::Result<()> {
    match status {
        Some(status) if !status.success() => match status.signal() {
            Some(signal) => signals::die_of(signal),
            None => std::process::exit(status.code().unwrap_or(1)),
        },
        _ => Ok(()),
    }
}
