//! The client: reads at a steady rate through a ring with an SQ thread. The client never waits: it
//! reads the clock and peeks at the completion queue, as a program does that uses SQPOLL for its
//! latency.

use crate::bench::buf::Slots;
use crate::bench::job::Job;
use crate::bench::load::Random;
use crate::bench::phase::{Counts, Phase, Stage};
use crate::bench::uring::Ring;
use anyhow::{Context, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use softring_uapi::{IORING_OP_READ, io_uring_sqe};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Delay after which the client leaves a request out: after a pause, late requests would only make
/// a burst.
const LATE: Duration = Duration::from_millis(2);

/// Binds this thread to its processor. Returns that processor and the SQ thread's; None if there is
/// only one.
fn bind_processors() -> Option<(usize, u32)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (first, second) = (cpus.next()?, cpus.next()?);
    let mut mine = CpuSet::new();
    mine.set(first);
    sched_setaffinity(None, &mine).ok()?;
    Some((first, second as u32))
}

/// Returns the `schedstat` of this process's SQ thread, which names itself when it first runs.
fn sq_thread() -> anyhow::Result<PathBuf> {
    let is_it = |task: &PathBuf| {
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.starts_with("iou-sqp")
    };
    for _ in 0..100 {
        let tasks = std::fs::read_dir("/proc/self/task").context("cannot read /proc")?;
        if let Some(task) = tasks.filter_map(|t| Some(t.ok()?.path())).find(is_it) {
            return Ok(task.join("schedstat"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("there is no SQ thread")
}

/// Returns the processor time of the SQ thread, in ns.
fn cpu(stat: &PathBuf) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(stat).context("the SQ thread has ended")?;
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.context("schedstat lacks this number")
}

struct Client<'a> {
    job: &'a Job,
    ring: Ring,
    fd: i32,
    slots: Slots,
    idle: Vec<u32>,
    /// Times at which requests were to be submitted, by slot.
    due: Vec<Instant>,
    random: Random,
    counts: Counts,
}

/// Reads at `job.rate`; if that is 0, as fast as `job.depth` allows.
pub fn run(job: &Job, fd: BorrowedFd<'_>, stage: &Stage) -> anyhow::Result<Counts> {
    let opened = bind_processors().map_or_else(
        || Ring::sqpoll(job.depth, job.setup_flags, None, job.sq_idle),
        |(_, cpu)| Ring::sqpoll(job.depth, job.setup_flags, Some(cpu), job.sq_idle),
    );
    stage.ready();
    let ring = opened.context("io_uring_setup")?;
    let mut client = Client {
        job,
        fd: fd.as_raw_fd(),
        slots: Slots::new(job.depth, job.bs).context("no memory for the buffers")?,
        idle: (0..job.depth).collect(),
        due: vec![Instant::now(); job.depth as usize],
        random: Random::new(job.seed),
        counts: Counts { ring: ring.kind(), ..Counts::new(false)? },
        ring,
    };
    client.run(stage)?;
    Ok(client.counts)
}

impl Client<'_> {
    fn run(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let stat = sq_thread()?;
        let (mut measured, mut before) = (None, 0);
        let mut next = Instant::now();
        loop {
            let phase = stage.phase();
            match phase {
                Phase::Measure if measured.is_none() => {
                    (before, measured) = (cpu(&stat)?, Some(Instant::now()));
                }
                Phase::Over => break,
                _ => {}
            }
            if self.job.rate == 0 { self.fill() } else { self.submit_due(&mut next) }?;
            self.reap(phase == Phase::Measure)?;
        }
        let since = measured.context("nothing was measured")?;
        let used = cpu(&stat)?.saturating_sub(before);
        self.counts.sq_cpu = Some(used as f64 / since.elapsed().as_nanos() as f64 * 100.0);
        while self.idle.len() < self.job.depth as usize {
            self.reap(false)?;
        }
        Ok(())
    }

    /// Fills the next entry with a read that was due at `due`. Returns false without a free entry
    /// or slot: an SQ thread releases the entries of a batch after it, when some may be complete
    /// already.
    fn submit(&mut self, due: Instant) -> bool {
        let Some(slot) = self.idle.pop() else { return false };
        let blocks = self.job.size / u64::from(self.job.bs);
        self.due[slot as usize] = due;
        let pushed = self.ring.push(io_uring_sqe {
            opcode: IORING_OP_READ,
            fd: self.fd,
            off: self.random.below(blocks) * u64::from(self.job.bs),
            addr: self.slots.addr(slot) as u64,
            len: self.job.bs,
            user_data: u64::from(slot),
            ..Default::default()
        });
        if !pushed {
            self.idle.push(slot);
        }
        pushed
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        while self.submit(now) {}
        self.ring.publish().context("io_uring_enter")
    }

    /// Submits the requests that are due.
    fn submit_due(&mut self, next: &mut Instant) -> anyhow::Result<()> {
        let gap = Duration::from_secs(1) / self.job.rate;
        let now = Instant::now();
        while now.saturating_duration_since(*next) > LATE {
            *next += gap;
        }
        while *next <= now && self.submit(*next) {
            *next += gap;
        }
        self.ring.publish().context("io_uring_enter")
    }

    fn reap(&mut self, counts: bool) -> anyhow::Result<()> {
        if self.ring.ready() == 0 {
            return Ok(());
        }
        let (now, mut bad) = (Instant::now(), 0);
        let Client { ring, due, idle, counts: c, job, .. } = self;
        ring.reap(|cqe| {
            let slot = cqe.user_data as u32;
            if cqe.res != job.bs.cast_signed() {
                bad = cqe.res;
            }
            if counts {
                let took = now.saturating_duration_since(due[slot as usize]);
                c.io(u64::from(job.bs), took.as_nanos() as u64);
            }
            idle.push(slot);
        });
        if bad == 0 { Ok(()) } else { bail!("a read returned {bad}") }
    }
}
