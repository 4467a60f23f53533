//! `softring trace`: the steps of every request, as a Chrome trace (`softring_engine::stats::trace`
//! has where they come from).

mod find;
mod json;
mod output;
mod readers;
mod record;
mod svg;

pub use readers::Readers;

use crate::cli::{Engine, TraceArgs, UnderArgs};
use crate::family::Family;
use crate::start::{self, Failure};
use crate::{fail, out, signals, sys};
use anyhow::Context;
use output::Output;
use record::Record;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Between two looks at the program's memory, which takes what a million requests a second write
/// within ten times as long.
const LOOK: Duration = Duration::from_millis(20);

const NOTHING_SEEN: &str = "hint: no ring of softring's was seen to do anything; a process that \
                            is short-lived and cannot reach softring (another network namespace, \
                            a sandbox) is not seen";

/// Whom it is about.
enum Target {
    Child(Child, Failure),
    Process(Other),
}

/// A process that is not ours. Its number may come to be another's; its pidfd does not.
struct Other {
    pid: i32,
    fd: Option<OwnedFd>,
}

impl Other {
    fn new(pid: i32) -> Other {
        let fd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Other { pid, fd }
    }

    /// Has it ended? Whoever started it need not have waited for it.
    fn ended(&self) -> bool {
        let Some(fd) = &self.fd else {
            // A kernel without pidfd_open(2).
            return sys::has_ended(self.pid);
        };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }
}

impl Target {
    /// Has it ended? How is known of a child.
    fn ended(&mut self) -> Option<Option<ExitStatus>> {
        match self {
            Target::Child(child, _) => child.try_wait().ok()?.map(Some),
            Target::Process(other) => other.ended().then_some(None),
        }
    }
}

/// `softring trace`
pub fn command(args: &TraceArgs) -> anyhow::Result<()> {
    if args.under.engine == Some(Engine::Kernel) {
        let hint = "leave --engine out";
        return Err(fail::usage("the kernel's rings cannot be traced", hint));
    }
    crate::bench::plot::check(args.svg.as_deref())?;
    // Before its memory is looked for: from here on the number cannot mean another process.
    let other = args.pid.map(Other::new);
    let memory = args.pid.map(find::open).transpose()?;
    let output = Output::open(&args.output)?;
    match args.pid {
        Some(_) => signals::catch_ends(),
        None => signals::catch_for_program(),
    }
    let (mut readers, mut target) = match (other, memory) {
        (Some(other), Some(memory)) => {
            let readers = Readers::one(other.pid, memory, counter_is_trusted());
            let hint = "wait until it is done";
            let busy = |_| fail::work_hint("another softring trace reads this process", hint);
            (readers.map_err(busy)?, Target::Process(other))
        }
        _ => {
            let readers = Readers::listen(counter_is_trusted())?;
            let (child, failure) = start(args, readers.key())?;
            // Only now: the program has the limit that we found.
            sys::raise_descriptors();
            (readers, Target::Child(child, failure))
        }
    };
    let mut record = Record::new(args.keep);
    let status = follow(args, &mut readers, &mut record, &mut target)?;
    if let (Target::Child(_, failure), Some(code)) = (&target, status.and_then(|s| s.code()))
        && failure.told()
    {
        // It has said why.
        output.discard();
        std::process::exit(code);
    }
    record.dropped = readers.dropped();
    let told = write(args, output, &readers, &mut record)?;
    tell(args, &record, &told, &readers.missing());
    match status {
        Some(status) if !status.success() => match status.signal() {
            Some(signal) => signals::die_of(signal),
            None => std::process::exit(status.code().unwrap_or(1)),
        },
        _ => Ok(()),
    }
}

/// Writes what was seen.
fn write(
    args: &TraceArgs,
    output: Output,
    readers: &Readers,
    record: &mut Record,
) -> anyhow::Result<json::Told> {
    let events = record.by_time();
    let first = events.iter().map(|k| record::began(&k.event)).min().unwrap_or(0);
    let start = readers.ns(first);
    let at = |ticks| readers.ns(ticks).saturating_sub(start) as f64 / 1000.0;
    let about = serde_json::json!({
        "softring": env!("CARGO_PKG_VERSION"),
        "of": title(args),
        "clock": "CLOCK_MONOTONIC",
        "start_ns": start,
        "dropped": record.dropped,
        "left_out": record.left_out,
    });
    let told = output.write(|file| json::write(file, &events, record, at, &about))?;
    if let Some(path) = &args.svg {
        let picture = svg::draw(&events, record, at);
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(told)
}

/// Does the kernel make its own clock of the processor's time stamp counter?
fn counter_is_trusted() -> bool {
    let at = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fs::read_to_string(at).is_ok_and(|name| name.trim() == "tsc")
}

/// Starts the program under `softring run`, which becomes it.
fn start(args: &TraceArgs, key: &str) -> anyhow::Result<(Child, Failure)> {
    // Of the kernel's rings there would be nothing to see.
    let under = UnderArgs { engine: Some(Engine::User), ..args.under.clone() };
    // By Command it would lose doubled entries and those without `=`.
    sys::set_env("SOFTRING_TRACE", key.as_ref());
    start::start(&under, &args.command)
}

fn title(args: &TraceArgs) -> String {
    match args.pid {
        Some(pid) => format!("process {pid}"),
        None => {
            let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
            words.join(" ")
        }
    }
}

/// Takes events until the program has ended, or the time is over; answers how a child ended.
fn follow(
    args: &TraceArgs,
    readers: &mut Readers,
    record: &mut Record,
    target: &mut Target,
) -> anyhow::Result<Option<ExitStatus>> {
    let limit = args.seconds.map(Duration::from_secs_f64);
    let start = Instant::now();
    let mut family = match target {
        Target::Child(child, _) => Some(Family::of(i32::try_from(child.id())?)),
        Target::Process(_) => None,
    };
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
        if let Some(family) = family.as_mut().filter(|_| on && due) {
            readers.look(family);
        }
        // Also once more after the stop: what was written until then.
        if on && due || stop {
            readers.poll(|process, source, event, _| record.add(process, source, event));
        }
        match (ended, &target) {
            (Some(status), _) => return Ok(status),
            (None, Target::Process(_)) if stop => return Ok(None),
            _ => {}
        }
        if due {
            next = Instant::now() + LOOK;
        }
        readers.wait(next.saturating_duration_since(Instant::now()));
    }
}

fn tell(args: &TraceArgs, record: &Record, told: &json::Told, missing: &[String]) {
    let at = args.output.display();
    let lost = match record.dropped {
        0 => String::new(),
        n => format!(", {n} dropped as they came too fast"),
    };
    let old = match record.left_out {
        0 => String::new(),
        n => format!(", the oldest {n} left out (--keep)"),
    };
    out::note(&format!(
        "trace: {} events, {} requests{lost}{old}: {at}",
        told.events, told.requests
    ));
    for who in missing {
        out::note(&format!("not traced: {who}"));
    }
    if told.events == 0 && record.dropped == 0 && missing.is_empty() {
        out::note(match args.pid {
            Some(_) => "hint: no ring of softring's did anything meanwhile",
            // Who cannot reach us is looked for in /proc, and may have ended before.
            None => NOTHING_SEEN,
        });
    }
}
