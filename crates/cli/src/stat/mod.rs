//! `softring stat`: reports what the rings of one program did, when it has ended.

mod interval;
mod report;
mod watch;

use crate::cli::{Engine, StatArgs, UnderArgs};
use crate::listener::Listener;
use crate::stats::pages;
use crate::{fail, signals, start, sys};
use anyhow::Context;
use interval::Intervals;
use report::Run;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use softring_engine::stats::watcher::Watcher;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Instant;
use watch::Watch;

/// Runs `softring stat -p PID` or `softring stat -- CMD`.
pub fn command(args: &StatArgs) -> anyhow::Result<()> {
    report::check(args)?;
    match args.pid {
        Some(pid) => attach(args, pid),
        None => run(args),
    }
}

fn attach(args: &StatArgs, pid: i32) -> anyhow::Result<()> {
    signals::catch_ends();
    sys::raise_descriptors();
    pages::one(pid)?;
    let start = Instant::now();
    let mut watch = Watch::new(pid);
    watch.begin_now();
    let mut intervals = Intervals::new(args, start);
    let over = |start: Instant| args.seconds.is_some_and(|s| start.elapsed().as_secs_f64() >= s);
    while watch.update() && signals::end().is_none() && !over(start) {
        intervals.tell(&watch)?;
        std::thread::sleep(Watch::EVERY.min(intervals.left()));
    }
    let elapsed = start.elapsed();
    let run = Run { summary: watch.finish(), elapsed, times: None };
    report::tell(args, &format!("process {pid}"), &[run])
}

/// Runs the program as `softring run` would, and ends as it does.
fn run(args: &StatArgs) -> anyhow::Result<()> {
    if args.under.no_stats {
        return Err(fail::usage("--no-stats leaves nothing to report", "leave --no-stats out"));
    }
    if args.under.engine == Some(Engine::Kernel) {
        let hint = "leave --engine out";
        return Err(fail::usage("softring cannot count the kernel's rings", hint));
    }
    // A signal that ends the program ends this command, once it has reported.
    signals::catch_for_program();
    // Every run gets the descriptor limit that was found here.
    let limit = sys::descriptor_limit();
    let (mut runs, mut status) = (Vec::new(), None);
    while runs.len() < args.repeat as usize {
        sys::set_descriptor_limit(limit);
        let (run, ended) = run_once(args)?;
        runs.push(run);
        if !status.insert(ended).success() {
            break;
        }
    }
    let name = args.command.first().map_or_else(String::new, |c| c.to_string_lossy().into_owned());
    report::tell(args, &format!("'{name}'"), &runs)?;
    let Some(status) = status else { return Ok(()) };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        (_, Some(signal)) => signals::die_of(signal),
        _ => Err(fail::work("the exit status of the program is unknown")),
    }
}

fn run_once(args: &StatArgs) -> anyhow::Result<(Run, ExitStatus)> {
    let listener = Listener::open(Watcher::Stat)?;
    // Command would lose doubled entries and entries without `=`.
    sys::set_env("SOFTRING_STAT", OsStr::new(listener.key()));
    // The kernel's rings would have nothing to report.
    let under = UnderArgs { engine: Some(Engine::User), ..args.under.clone() };
    let (start, before) = (Instant::now(), sys::children_times());
    let (mut child, failure) = start::start(&under, &args.command)?;
    // The limit is raised only now: the program has the limit that we found.
    sys::raise_descriptors();
    let pid = i32::try_from(child.id()).context("a process number")?;
    let intervals = Intervals::new(args, start);
    let (status, watch) = follow(&mut child, Watch::at(pid, listener), intervals)?;
    let elapsed = start.elapsed();
    if let (Some(code), true) = (status.code(), failure.happened()) {
        // `softring run` has said why, and there is nothing to report.
        std::process::exit(code);
    }
    let now = sys::children_times();
    let times = Some((now.0 - before.0, now.1 - before.1));
    Ok((Run { summary: watch.finish(), elapsed, times }, status))
}

/// Watches until the program has ended; passes on signals that ask us to end.
fn follow(
    child: &mut Child,
    mut watch: Watch,
    mut intervals: Intervals<'_>,
) -> anyhow::Result<(ExitStatus, Watch)> {
    let pid = Pid::from_child(child);
    // The pidfd says when the program has ended; without one, the loop checks now and then.
    let ends = pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut next = Instant::now();
    loop {
        // An update does not follow each page that comes: it searches /proc for all of the family.
        if next <= Instant::now() {
            watch.update();
            next = Instant::now() + Watch::EVERY;
        } else {
            watch.take();
        }
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok((status, watch));
        }
        signals::pass_on(child);
        intervals.tell(&watch)?;
        wait(&watch, ends.as_ref(), next.min(Instant::now() + intervals.left()));
    }
}

/// Waits until a page is brought, the program has ended, or it is time to check for children
/// (`next`).
fn wait(watch: &Watch, ends: Option<&OwnedFd>, next: Instant) {
    let fds = watch.listener().into_iter().flat_map(Listener::fds).chain(ends.map(AsFd::as_fd));
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let left = next.saturating_duration_since(Instant::now());
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
    // A signal ends the wait, as it should.
    let _ = poll(&mut fds, Some(&time));
}
