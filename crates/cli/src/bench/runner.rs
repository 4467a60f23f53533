//! The runner: starts workers and collects their reports.

use super::job::{Job, Report};
use crate::cli::Driver;
use crate::doctor::kernel_ring_works;
use crate::fail;
use crate::run::lib_path;
use crate::trace::Readers;
use anyhow::Context;
use softring_engine::stats::trace::Event;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a worker gets, beyond its measured time, to start and to finish.
const GRACE: Duration = Duration::from_secs(60);
/// Time that a pass over a whole file may take.
const PASS: Duration = Duration::from_secs(600);

/// The time between two reads of the steps of a worker's requests.
const TAKE: Duration = Duration::from_millis(10);

/// Settings that workers are started with.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Flag, true if io_uring is denied to all workers but the kernel's.
    pub deny: bool,
    /// Further options for `softring run`.
    pub options: &'a [&'a str],
}

/// Returns the reason why an engine cannot be measured here; `None` if it can.
pub fn unavailable(driver: Driver) -> Option<String> {
    match driver {
        Driver::Kernel if !kernel_ring_works() => {
            Some("io_uring_setup is denied here (see softring doctor)".into())
        }
        Driver::Softring => lib_path::find().err().map(|e| e.to_string()),
        _ => None,
    }
}

impl Runner<'_> {
    /// Runs one job in a process of its own.
    pub fn run(&self, job: &Job) -> anyhow::Result<Report> {
        let name = crate::cli::name_of(job.driver);
        let command = self.command(job.driver)?;
        let report = report(command, job).with_context(|| format!("engine {name}"))?;
        check_ring(job, &report)?;
        Ok(report)
    }

    /// Runs one job as [`Self::run`] does, and returns the steps of its requests too: times in ns,
    /// in order.
    pub fn run_traced(&self, job: &Job) -> anyhow::Result<(Report, Vec<Event>)> {
        let mut readers = Readers::listen(false, false)?;
        let mut command = self.command(job.driver)?;
        command.env("SOFTRING_TRACE", readers.key());
        let over = AtomicBool::new(false);
        let (report, mut events) = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut events = Vec::new();
                loop {
                    let last = over.load(Acquire);
                    readers.take();
                    readers.poll(|_, _, event, _| events.push(event));
                    if last {
                        return events;
                    }
                    readers.wait(TAKE);
                }
            });
            let report = report(command, job);
            over.store(true, Release);
            (report, reading.join().unwrap_or_default())
        });
        events.sort_by_key(|e: &Event| e.time);
        Ok((report?, events))
    }

    fn command(&self, driver: Driver) -> anyhow::Result<Command> {
        let exe = own_executable()?;
        let mut c = Command::new(&exe);
        match driver {
            Driver::Softring => {
                c.args(["run", "--engine=user", "--quiet"]).args(self.options);
                if self.deny {
                    c.arg("--deny");
                }
                c.arg("--").arg(&exe);
            }
            Driver::Kernel => {}
            _ if self.deny => {
                c.args(["deny", "--"]).arg(&exe);
            }
            _ => {}
        }
        Ok(worker(c))
    }
}

/// Runs the plain io_uring client with io_uring denied and nothing under it.
pub fn run_denied(job: &Job) -> anyhow::Result<Report> {
    let exe = own_executable()?;
    let mut c = Command::new(&exe);
    c.args(["deny", "--"]).arg(&exe);
    report(worker(c), job)
}

fn own_executable() -> anyhow::Result<PathBuf> {
    crate::files::own_exe().context("cannot find our own executable")
}

/// Makes the command that `start` begins run a worker.
fn worker(mut start: Command) -> Command {
    start.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    start
}

fn report(mut command: Command, job: &Job) -> anyhow::Result<Report> {
    let mut child = command.spawn().map_err(|e| fail::cannot_start("a worker", &e))?;
    if let Some(mut to) = child.stdin.take() {
        // A worker that died before it read the job says why on its standard error.
        let _ = to.write_all(serde_json::to_string(job)?.as_bytes());
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let measured = Duration::from_secs_f64(job.warmup + job.seconds);
    let status = wait(&mut child, GRACE + if job.once { PASS } else { measured })?;
    let text = |t: thread::JoinHandle<String>| t.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    let Some(status) = status else {
        return Err(fail::work("the worker hung and was killed"));
    };
    if !status.success() {
        return Err(fail::work(died(status, &err)));
    }
    serde_json::from_str(out.trim()).map_err(|e| {
        fail::work(format!(
            "the worker's report cannot be read ({e}): {}{}",
            out.trim(),
            err.trim()
        ))
    })
}

/// Reads a pipe to its end, in a thread of its own.
fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut p) = pipe {
            // The bytes read before an error are worth showing too.
            let _ = p.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the child. Kills it after `limit` and returns `None` then.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Describes a worker's end, in the worker's own words if it had any.
fn died(status: ExitStatus, err: &str) -> String {
    let words: Vec<&str> = err.lines().map(|l| l.trim_start_matches("softring: ")).collect();
    let words = words.join("; ");
    let words = words.trim_start_matches("error: ");
    match (status.signal(), words) {
        (Some(n), "") => format!("the worker was killed by signal {n}"),
        (Some(n), w) => format!("the worker was killed by signal {n}: {w}"),
        (None, "") => format!("the worker ended with {status}"),
        (None, w) => w.to_owned(),
    }
}

/// Checks that the ring was the engine's own: otherwise the figures are worth nothing.
fn check_ring(job: &Job, report: &Report) -> anyhow::Result<()> {
    let Some(ring) = &report.ring else { return Ok(()) };
    let kernels = ring.starts_with("anon_inode:");
    let (wrong, whose) = match job.driver {
        Driver::Kernel => (!kernels, "kernel"),
        Driver::Softring => (kernels, "softring"),
        _ => return Ok(()),
    };
    if wrong {
        let hint = "softring run --engine=user must take over io_uring_setup; see softring doctor";
        return Err(fail::work_hint(format!("engine {whose} ran on the wrong ring: {ring}"), hint));
    }
    Ok(())
}
