//! The process that measures: a job on standard input, a report on standard output.
//!
//! The worker is a process of its own, so that CPU time and memory are those of the load alone, and
//! so that the same binary runs on the kernel's rings, or on softring's by a preload.

use super::job::{Job, Lat, Report};
use super::phase::{Counts, Measured, Stage, Usage};
use super::uring::Ring;
use super::{calls, echo, load, peer, rings, sqpoll, timers, wakes};
use crate::cli::{Driver, Op, Rw};
use crate::{fail, out, sys};
use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

/// Runs `softring worker`.
pub fn command() -> anyhow::Result<()> {
    // This comes before the job is read: a parent that is gone already has closed the pipe.
    sys::end_with_parent();
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("cannot read the job")?;
    let job: Job = serde_json::from_str(&text)
        .map_err(|e| fail::usage(format!("cannot parse the job: {e}"), "use softring bench"))?;
    let report = run(&job).map_err(|e| {
        let causes: Vec<String> = e.chain().map(ToString::to_string).collect();
        fail::work(causes.join(": "))
    })?;
    out::line(&serde_json::to_string(&report)?)
}

fn open(job: &Job) -> anyhow::Result<OwnedFd> {
    let access = match job.rw {
        Rw::Read | Rw::Randread => OFlags::RDONLY,
        Rw::Write | Rw::Randwrite => OFlags::WRONLY,
        Rw::Randrw => OFlags::RDWR,
    };
    let direct = if job.direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = access | direct | OFlags::CLOEXEC;
    rustix::fs::open(&job.path, flags, Mode::empty())
        .with_context(|| format!("cannot open {}", job.path))
}

fn run(job: &Job) -> anyhow::Result<Report> {
    match job.op {
        Op::Idle => {
            let (idle, ring) = rings::idle(job)?;
            let none = Measured { seconds: 0.0, usage: Usage::default() };
            let counts = Counts { ring, ..Counts::new(false)? };
            Ok(Report { idle: Some(idle), ..report(counts, &none) })
        }
        Op::IdleSockets => {
            let (waiting, ring) = echo::idle(job)?;
            let none = Measured { seconds: 0.0, usage: Usage::default() };
            let counts = Counts { ring, ..Counts::new(false)? };
            Ok(Report { waiting: Some(waiting), ..report(counts, &none) })
        }
        Op::Echo => measure(job, |_, stage| echo::serve(job, stage)),
        Op::EchoLoad => {
            let (counts, measured) = peer::load(job)?;
            Ok(report(counts, &measured))
        }
        Op::Poll => measure(job, by(job, calls::poll, wakes::poll)),
        Op::MsgRing => measure(job, by(job, calls::messages, wakes::msg_ring)),
        Op::Futex => measure(job, by(job, calls::futex, wakes::futex)),
        Op::TimeoutAdd | Op::TimeoutCancel | Op::TimeoutExpire => {
            let (counts, measured) = timers::run(job)?;
            Ok(report(counts, &measured))
        }
        Op::Nop => measure(job, |_, stage| rings::nop(job, stage)),
        Op::Setup => measure(job, by(job, calls::setup, rings::setup)),
        Op::Sqpoll => {
            let file = open(job)?;
            measure(job, |_, stage| sqpoll::client::run(job, file.as_fd(), stage))
        }
        Op::Rw => {
            let file = open(job)?;
            measure(job, |thread, stage| load::run(job, thread, file.as_fd(), stage))
        }
    }
}

/// Chooses between two clients of one operation: by plain calls, and by a ring.
fn by(
    job: &Job,
    calls: fn(&Job, &Stage) -> anyhow::Result<Counts>,
    ring: fn(&Job, &Stage) -> anyhow::Result<Counts>,
) -> impl Fn(u32, &Stage) -> anyhow::Result<Counts> + Sync {
    let run = if job.driver == Driver::Calls { calls } else { ring };
    move |_, stage| run(job, stage)
}

/// Runs `each` in every thread through warm-up and measurement, and sums up.
fn measure(
    job: &Job,
    each: impl Fn(u32, &Stage) -> anyhow::Result<Counts> + Sync,
) -> anyhow::Result<Report> {
    let on_ring = !matches!(job.driver, Driver::Epoll | Driver::Calls);
    if matches!(job.op, Op::Echo | Op::Poll) && on_ring {
        // If a program has no other threads yet when it makes its first ring, as most have not, the
        // preload sees all of its closes.
        drop(Ring::new(1, 0));
    }
    let stage = Stage::new(job.threads);
    let (stage, each) = (&stage, &each);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..job.threads).map(|n| scope.spawn(move || each(n, stage))).collect();
        let measured = stage.direct(job, || threads.iter().all(|t| t.is_finished()));
        let mut all = Counts::new(job.slat)?;
        for t in threads {
            let counts = t.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            all.add(counts?)?;
        }
        Ok(report(all, &measured))
    })
}

fn report(c: Counts, m: &Measured) -> Report {
    Report {
        ring: c.ring,
        ios: c.ios,
        bytes: c.bytes,
        verified: c.verified,
        seconds: m.seconds,
        user_us: m.usage.user,
        system_us: m.usage.system,
        machine_us: m.usage.machine,
        steal_us: m.usage.steal,
        lat: c.client.unwrap_or_else(|| Lat::of(&c.lat)),
        slat: c.slat.as_ref().map(Lat::of),
        clat: c.clat.as_ref().map(Lat::of),
        idle: None,
        waiting: None,
        sq_cpu: c.sq_cpu,
    }
}
