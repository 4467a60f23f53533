//! The load: keeps `depth` reads and writes in flight through any client, times each, and verifies
//! the data read.

use super::buf::Slots;
use super::client::{self, Client, Done, Io};
use super::job::Job;
use super::phase::{Counts, Phase, Stage};
use crate::cli::{Driver, Rw};
use anyhow::{Context, bail};
use softring_uapi::IORING_SETUP_IOPOLL;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// A small, fast generator (xorshift64*): the same seed gives every engine the same sequence.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let x = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(x) * u128::from(n)) >> 64) as u64
    }
}

/// Generator of the I/Os and their blocks.
struct Places {
    rw: Rw,
    mix: u8,
    bs: u32,
    blocks: u64,
    next: u64,
    left: Option<u64>,
    random: Random,
}

impl Places {
    fn new(job: &Job, thread: u32) -> Places {
        let blocks = job.size / u64::from(job.bs);
        let share = blocks / u64::from(job.threads);
        let first = share * u64::from(thread);
        let last = thread + 1 == job.threads;
        let mine = if last { blocks - first } else { share };
        Places {
            rw: job.rw,
            mix: job.rwmix,
            bs: job.bs,
            blocks,
            next: first,
            left: job.once.then_some(mine),
            random: Random::new(job.seed ^ (u64::from(thread) << 48)),
        }
    }

    /// Returns the next I/O, into `slot`; None after the last of a pass.
    fn next(&mut self, slot: u32) -> Option<Io> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let block = match self.rw {
            Rw::Read | Rw::Write => {
                let b = self.next;
                self.next = if b + 1 == self.blocks { 0 } else { b + 1 };
                b
            }
            Rw::Randread | Rw::Randwrite | Rw::Randrw => self.random.below(self.blocks),
        };
        let write = match self.rw {
            Rw::Read | Rw::Randread => false,
            Rw::Write | Rw::Randwrite => true,
            Rw::Randrw => self.random.below(100) >= u64::from(self.mix),
        };
        Some(Io { slot, len: self.bs, offset: block * u64::from(self.bs), write })
    }
}

/// Opens the client; on failure, the error's context names the call.
fn open<'a>(job: &Job, fd: BorrowedFd<'a>, slots: Slots) -> anyhow::Result<Box<dyn Client + 'a>> {
    client::open(job, fd, slots).context(match job.driver {
        Driver::Libaio => "io_setup",
        Driver::Pool | Driver::PosixAio | Driver::Calls => "starting threads",
        Driver::Kernel | Driver::Softring => "io_uring_setup",
        Driver::Epoll => "epoll cannot wait for files",
    })
}

/// Runs one thread's load, from the first I/O to the last completion.
pub fn run(job: &Job, thread: u32, fd: BorrowedFd<'_>, stage: &Stage) -> anyhow::Result<Counts> {
    let slots = Slots::new(job.depth, job.bs).context("no memory for the buffers");
    let opened = slots.and_then(|s| Ok((s, open(job, fd, s)?)));
    // The other threads wait for this one, also if it failed.
    stage.ready();
    let (slots, client) = opened?;
    let idle: Vec<u32> = (0..job.depth).rev().collect();
    let none = Io { slot: 0, len: 0, offset: 0, write: false };
    let mut load = Load {
        job,
        slots,
        places: Places::new(job, thread),
        started: vec![Instant::now(); job.depth as usize],
        submitted: vec![Instant::now(); job.depth as usize],
        flying: vec![none; job.depth as usize],
        idle,
        counts: Counts { ring: client.ring(), ..Counts::new(job.slat)? },
        client,
    };
    load.run(stage)?;
    Ok(load.counts)
}

struct Load<'a> {
    job: &'a Job,
    client: Box<dyn Client + 'a>,
    slots: Slots,
    places: Places,
    idle: Vec<u32>,
    flying: Vec<Io>,
    started: Vec<Instant>,
    submitted: Vec<Instant>,
    counts: Counts,
}

impl Load<'_> {
    fn run(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(self.job.batch as usize);
        let mut done = Vec::with_capacity(self.job.depth as usize);
        loop {
            let phase = stage.phase();
            batch.clear();
            if phase != Phase::Over {
                self.fill_batch(&mut batch);
            }
            let flying = self.job.depth - self.idle.len() as u32;
            if flying == 0 {
                return Ok(());
            }
            let start = Instant::now();
            for io in &batch {
                self.started[io.slot as usize] = start;
                self.flying[io.slot as usize] = *io;
            }
            let want = self.job.wait.min(flying);
            self.turn(&batch, want, &mut done, phase)?;
            let now = Instant::now();
            for d in done.drain(..) {
                self.finish(d, now, phase)?;
            }
        }
    }

    /// Fills `batch` with new I/Os for idle slots.
    fn fill_batch(&mut self, batch: &mut Vec<Io>) {
        while batch.len() < self.job.batch as usize
            && let Some(slot) = self.idle.pop()
        {
            let Some(io) = self.places.next(slot) else { return self.idle.push(slot) };
            if io.write {
                self.slots.fill(slot, io.len, io.offset, self.job.seed);
            }
            batch.push(io);
        }
    }

    fn turn(
        &mut self,
        batch: &[Io],
        want: u32,
        done: &mut Vec<Done>,
        phase: Phase,
    ) -> anyhow::Result<()> {
        if !self.job.slat {
            return self.client.turn(batch, want, done).context("submitting and waiting");
        }
        let start = Instant::now();
        if !batch.is_empty() {
            self.client.submit(batch).context("submitting")?;
        }
        let end = Instant::now();
        for io in batch {
            self.submitted[io.slot as usize] = end;
            if phase == Phase::Measure {
                self.counts.slat((end - start).as_nanos() as u64);
            }
        }
        self.client.wait(want, done).context("waiting")
    }

    fn finish(&mut self, d: Done, now: Instant, phase: Phase) -> anyhow::Result<()> {
        let io = self.flying[d.slot as usize];
        let verb = if io.write { "write" } else { "read" };
        if d.res < 0 {
            let e = std::io::Error::from_raw_os_error(-d.res);
            let polled = self.job.setup_flags & IORING_SETUP_IOPOLL != 0;
            let why = match -d.res {
                libc::EOPNOTSUPP if polled => {
                    "; the kernel polls only disks with poll queues (softring doctor shows them); \
                     --engines softring polls any disk"
                }
                _ => "",
            };
            bail!("{verb} of {} bytes at {}: {e}{why}", io.len, io.offset);
        }
        if d.res.cast_unsigned() != io.len {
            bail!("{verb} of {} bytes at {} moved {}", io.len, io.offset, d.res);
        }
        if self.job.verify && !io.write {
            if let Some(at) = self.slots.check(io.slot, io.len, io.offset, self.job.seed) {
                bail!("verify: wrong data at byte {at}");
            }
            self.counts.verified += 1;
        }
        if phase == Phase::Measure {
            let slot = d.slot as usize;
            self.counts.io(u64::from(io.len), (now - self.started[slot]).as_nanos() as u64);
            if self.job.slat {
                self.counts.clat((now - self.submitted[slot]).as_nanos() as u64);
            }
        }
        self.idle.push(d.slot);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_is_in_range_and_spread() {
        let mut r = Random::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[r.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
    }
}
