//! `softring stat`: what the rings of one program did, told when it has ended.

mod report;
mod watch;

use crate::cli::StatArgs;
use crate::stats::pages;
use crate::{fail, sys};
use anyhow::Context;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use watch::Watch;

/// `softring stat -p PID`, `softring stat -- CMD`
pub fn command(args: &StatArgs) -> anyhow::Result<()> {
    // Ctrl-C ends what is watched, and then there is something to tell.
    sys::note_end_signals();
    match args.pid {
        Some(pid) => attach(args, pid),
        None => start(args),
    }
}

fn attach(args: &StatArgs, pid: i32) -> anyhow::Result<()> {
    pages::one(pid)?;
    let start = Instant::now();
    let mut watch = Watch::new(pid);
    watch.begin_now();
    let over = |start: Instant| args.seconds.is_some_and(|s| start.elapsed().as_secs_f64() >= s);
    while watch.look() && sys::end_signal().is_none() && !over(start) {
        std::thread::sleep(Watch::EVERY);
    }
    let elapsed = start.elapsed();
    report::tell(args, &format!("process {pid}"), &watch.results(), elapsed, None)
}

/// Runs the program as `softring run` would, and ends as it does.
fn start(args: &StatArgs) -> anyhow::Result<()> {
    if args.under.no_stats {
        return Err(fail::usage("--no-stats leaves nothing to tell", "leave it out"));
    }
    let own = sys::own_exe().context("cannot find this program's own file")?;
    let mut c = Command::new(own);
    c.arg("run").args(args.under.words()).arg("--").args(&args.command);
    let start = Instant::now();
    let mut child = c.spawn().context("cannot start the program")?;
    let pid = i32::try_from(child.id()).context("a process number")?;
    let (status, watch) = follow(&mut child, Watch::new(pid), start)?;
    let elapsed = start.elapsed();
    let name = args.command.first().map_or_else(String::new, |c| c.to_string_lossy().into_owned());
    report::tell(
        args,
        &format!("'{name}'"),
        &watch.results(),
        elapsed,
        Some(sys::children_times()),
    )?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        (_, Some(signal)) => sys::die_of(signal),
        _ => Err(fail::work("the program ended in no known way")),
    }
}

/// Watches until the program has ended; passes on what asks us to end.
fn follow(
    child: &mut Child,
    mut watch: Watch,
    start: Instant,
) -> anyhow::Result<(ExitStatus, Watch)> {
    let mut told = false;
    loop {
        watch.look();
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok((status, watch));
        }
        // From a terminal SIGINT and SIGQUIT reach the program, too.
        let end = sys::end_signal().filter(|s| ![libc::SIGINT, libc::SIGQUIT].contains(s));
        if let Some(signal) = end.filter(|_| !std::mem::replace(&mut told, true)) {
            sys::kill(child.id(), signal);
        }
        // One that ends at once has its page only for a moment.
        let young = start.elapsed() < Duration::from_millis(500);
        std::thread::sleep(if young { Watch::AT_FIRST } else { Watch::EVERY });
    }
}
