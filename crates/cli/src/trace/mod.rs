//! `softring trace`: the steps of every request, as a Chrome trace (`softring_engine::stats::trace`
//! has where they come from).

mod find;
mod json;
mod record;
mod svg;

use crate::cli::{Engine, TraceArgs, UnderArgs};
use crate::{fail, out, signals, sys};
use anyhow::Context;
use record::Record;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};
use softring_engine::stats::trace::read::Reader;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Between two looks at the program's memory, which takes what a million requests a second write
/// within ten times as long.
const LOOK: Duration = Duration::from_millis(20);

/// Whom it is about.
enum Target {
    Child(Child),
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
            Target::Child(child) => child.try_wait().ok()?.map(Some),
            Target::Process(other) => other.ended().then_some(None),
        }
    }
}

/// `softring trace`
pub fn command(args: &TraceArgs) -> anyhow::Result<()> {
    if args.under.engine == Engine::Kernel {
        let hint = "leave --engine out";
        return Err(fail::usage("the kernel's rings cannot be traced", hint));
    }
    crate::bench::plot::check(args.svg.as_deref())?;
    // Before its memory is looked for: from here on the number cannot mean another process.
    let other = args.pid.map(Other::new);
    let mut reader = match args.pid {
        Some(pid) => find::open(pid)?,
        None => Reader::make().map_err(|e| no_memory(e.res()))?,
    };
    // An older trace may be in it, which stays until this one is written.
    let file = File::options().write(true).create(true).truncate(false).open(&args.output);
    let file = file.map_err(|e| {
        let hint = "name a file that you may write: softring trace -o FILE";
        fail::usage(format!("cannot write {}: {e}", args.output.display()), hint)
    })?;
    match args.pid {
        Some(_) => signals::catch_ends(),
        None => signals::catch_for_program(),
    }
    let busy =
        |_| fail::work_hint("another softring trace reads this process", "wait until it is done");
    reader.start(counter_is_trusted()).map_err(busy)?;
    let mut target = match other {
        Some(other) => Target::Process(other),
        None => Target::Child(start(args, reader.fd())?),
    };
    let mut record = Record::new(args.keep);
    let status = follow(args, &mut reader, &mut record, &mut target);
    record.dropped = reader.dropped();
    let events = record.by_time();
    let first = events.iter().map(|k| record::began(&k.event)).min().unwrap_or(0);
    let start = reader.ns(first);
    let at = |ticks| reader.ns(ticks).saturating_sub(start) as f64 / 1000.0;
    let about = serde_json::json!({
        "softring": env!("CARGO_PKG_VERSION"),
        "of": title(args),
        "clock": "CLOCK_MONOTONIC",
        "start_ns": start,
        "dropped": record.dropped,
        "left_out": record.left_out,
    });
    if file.metadata().is_ok_and(|m| m.is_file()) {
        file.set_len(0).with_context(|| format!("cannot write {}", args.output.display()))?;
    }
    let told = json::write(file, &events, &record, at, &about)?;
    if let Some(path) = &args.svg {
        let picture = svg::draw(&events, &record, at);
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    drop(reader);
    tell(args, &record, &told);
    match status {
        Some(status) if !status.success() => match status.signal() {
            Some(signal) => signals::die_of(signal),
            None => std::process::exit(status.code().unwrap_or(1)),
        },
        _ => Ok(()),
    }
}

fn no_memory(res: i32) -> anyhow::Error {
    let e = std::io::Error::from_raw_os_error(-res);
    let hint = match getrlimit(Resource::Fsize).maximum {
        Some(_) => "it is a file in memory, and RLIMIT_FSIZE is set: ulimit -f unlimited",
        None => "free some memory",
    };
    fail::usage(format!("cannot make the memory for events: {e}"), hint)
}

/// Does the kernel make its own clock of the processor's time stamp counter?
fn counter_is_trusted() -> bool {
    let at = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fs::read_to_string(at).is_ok_and(|name| name.trim() == "tsc")
}

/// Starts the program under `softring run`, which becomes it.
fn start(args: &TraceArgs, fd: i32) -> anyhow::Result<Child> {
    let me = sys::own_exe()?;
    let mut c = Command::new(me);
    // Of the kernel's rings there would be nothing to see.
    let under = UnderArgs { engine: Engine::User, ..args.under.clone() };
    c.arg("run").args(under.words()).arg("--").args(&args.command);
    // By Command it would lose doubled entries and those without `=`.
    let memory = format!("/proc/{}/fd/{fd}", std::process::id());
    sys::set_env("SOFTRING_TRACE", memory.as_ref());
    signals::spawn(&mut c).map_err(|e| fail::cannot_start("the program", &e))
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
    reader: &mut Reader,
    record: &mut Record,
    target: &mut Target,
) -> Option<ExitStatus> {
    let limit = args.seconds.map(Duration::from_secs_f64);
    let start = Instant::now();
    let mut on = true;
    loop {
        let ended = target.ended();
        let over = limit.is_some_and(|limit| start.elapsed() >= limit);
        let asked = match &*target {
            Target::Child(child) => {
                signals::pass_on(child);
                false
            }
            Target::Process(_) => signals::end().is_some(),
        };
        let stop = ended.is_some() || over || asked;
        if on && stop {
            reader.stop();
            on = false;
        }
        // Also once more after the stop: what was written until then.
        if on || stop {
            reader.poll(|source, event| record.add(source, event));
        }
        match (ended, &target) {
            (Some(status), _) => return status,
            (None, Target::Process(_)) if stop => return None,
            _ => {}
        }
        std::thread::sleep(LOOK);
    }
}

fn tell(args: &TraceArgs, record: &Record, told: &json::Told) {
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
    if told.events == 0 {
        out::note("hint: no ring of softring's did anything meanwhile");
    }
}
