//! Many timeouts: armed, cancelled, ended. Each run arms all of them once.

use super::job::Job;
use super::phase::{Counts, Measured};
use super::uring::Ring;
use crate::cli::Op;
use anyhow::{Context, bail};
use softring_host::time::Clock;
use softring_uapi::*;
use std::time::Duration;

/// Time to arm one timeout, generously: all are armed before those of `timeout-expire` end.
const ARM: Duration = Duration::from_micros(8);
/// Room for completions: as many as a ring can have.
const CQ: u32 = 65_536;
const ETIME: i32 = -libc::ETIME;
const ECANCELED: i32 = -libc::ECANCELED;

/// Returns the time of CLOCK_MONOTONIC.
fn now() -> Duration {
    Duration::from_nanos(Clock::Monotonic.now())
}

/// Timeouts of one ring.
struct Timers {
    ring: Ring,
    batch: u32,
    count: u32,
    /// Time at which they end; leaked, as the ring may read it at any time.
    at: &'static kernel_timespec,
    /// Completions taken that were as expected.
    taken: u32,
}

/// Runs the operation that `job` names.
pub fn run(job: &Job) -> anyhow::Result<(Counts, Measured)> {
    let ring = Ring::with_cq(job.batch, CQ, job.setup_flags).context("io_uring_setup")?;
    let counts = Counts { ring: ring.kind(), ..Counts::new(false)? };
    let far = if job.op == Op::TimeoutExpire { ARM * job.count } else { Duration::from_secs(3600) };
    let end = now() + far + Duration::from_millis(100);
    let at =
        kernel_timespec { tv_sec: end.as_secs() as i64, tv_nsec: i64::from(end.subsec_nanos()) };
    let at = &*Box::leak(Box::new(at));
    let mut t = Timers { ring, batch: job.batch.max(1), count: job.count, at, taken: 0 };
    let (armed, arming) = Measured::of(|| t.arm());
    armed?;
    let (done, measured) = match job.op {
        Op::TimeoutCancel => Measured::of(|| t.cancel()),
        Op::TimeoutExpire => {
            if now() >= end {
                bail!("arming took longer than {far:?}");
            }
            std::thread::sleep(end.saturating_sub(now()));
            let (done, measured) = Measured::of(|| t.expire());
            // The other side starts when the timeouts end, which may be before this thread is
            // awake.
            let seconds = (now() - end).as_secs_f64();
            (done, Measured { seconds, ..measured })
        }
        _ => (Ok(()), arming),
    };
    done?;
    Ok((Counts { ios: u64::from(job.count), ..counts }, measured))
}

impl Timers {
    /// Pushes `make(i)` for each timeout, a batch at a time; `each` judges the completions that
    /// come meanwhile.
    fn push_all(
        &mut self,
        make: impl Fn(u32) -> io_uring_sqe,
        each: fn(&io_uring_cqe) -> bool,
    ) -> anyhow::Result<()> {
        for i in 0..self.count {
            self.ring.push(make(i));
            if (i + 1) % self.batch == 0 || i + 1 == self.count {
                self.ring.enter(0).context("io_uring_enter")?;
                self.reap(each)?;
            }
        }
        Ok(())
    }

    fn reap(&mut self, each: fn(&io_uring_cqe) -> bool) -> anyhow::Result<()> {
        let mut bad = None;
        self.taken += self.ring.reap(|c| bad = if each(c) { bad } else { Some(*c) });
        bad.map_or(Ok(()), |c| bail!("timeout {} returned {}", c.user_data, c.res))
    }

    fn arm(&mut self) -> anyhow::Result<()> {
        let addr = std::ptr::from_ref(self.at).expose_provenance() as u64;
        let sqe = io_uring_sqe {
            opcode: IORING_OP_TIMEOUT,
            addr,
            len: 1,
            op_flags: IORING_TIMEOUT_ABS,
            ..Default::default()
        };
        self.push_all(|i| io_uring_sqe { user_data: u64::from(i) + 1, ..sqe }, |_| false)
    }

    /// Cancels in the order of arming, in which the kernel finds each timeout at once.
    fn cancel(&mut self) -> anyhow::Result<()> {
        let sqe = io_uring_sqe { opcode: IORING_OP_TIMEOUT_REMOVE, ..Default::default() };
        let ends =
            |c: &io_uring_cqe| if c.user_data == 0 { c.res == 0 } else { c.res == ECANCELED };
        self.push_all(|i| io_uring_sqe { addr: u64::from(i) + 1, ..sqe }, ends)?;
        self.take(2 * self.count, ends)
    }

    fn expire(&mut self) -> anyhow::Result<()> {
        self.take(self.count, |c| c.res == ETIME)
    }

    /// Waits until `all` have completed.
    fn take(&mut self, all: u32, each: fn(&io_uring_cqe) -> bool) -> anyhow::Result<()> {
        while self.taken < all {
            self.ring.enter((all - self.taken).min(CQ / 2)).context("io_uring_enter")?;
            self.reap(each)?;
        }
        Ok(())
    }
}
