//! The least that user space must do in place of a ring: plain system calls, as a program makes
//! them that is written for one kind of operation. No engine in user space needs less time.

use super::buf::Slots;
use super::client::{Client, Done, Io};
use super::job::Job;
use super::phase::{Counts, Stage, rounds};
use super::uring::Map;
use super::wakes::eventfds;
use anyhow::{Context, bail};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::thread::futex::{self, Flags};
use softring_uapi::{io_uring_cqe, io_uring_sqe};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::thread;

/// Bit of a count that ends the thread which waits for it.
const OVER: u32 = 1 << 31;

/// Client that reads and writes as soon as it is asked to: pread(2) and pwrite(2).
pub struct Calls<'a> {
    fd: BorrowedFd<'a>,
    slots: Slots,
    done: Vec<Done>,
}

impl<'a> Calls<'a> {
    pub fn new(fd: BorrowedFd<'a>, slots: Slots) -> Self {
        Calls { fd, slots, done: Vec::new() }
    }
}

impl Client for Calls<'_> {
    fn submit(&mut self, batch: &[Io]) -> io::Result<()> {
        let Calls { fd, slots, done } = self;
        done.extend(batch.iter().map(|io| Done {
            slot: io.slot,
            res: slots.transfer(*fd, io.slot, io.len, io.offset, io.write),
        }));
        Ok(())
    }

    fn wait(&mut self, _: u32, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.done);
        Ok(())
    }
}

/// Waits for each eventfd in an edge-triggered epoll set, which has them for good: one poll(2) for
/// all asks what is there already, as POLL_ADD does, and one wait takes all that is woken.
pub fn poll(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let set = epoll::create(CreateFlags::CLOEXEC).context("epoll_create");
    let made = set.and_then(|set| Ok((set, eventfds(job)?)));
    stage.ready();
    let (set, fds) = made?;
    for fd in &fds {
        epoll::add(&set, fd, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
    }
    let mut asked: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let mut events = Vec::with_capacity(fds.len());
    rounds(stage, Counts::new(false)?, job.depth, || {
        if rustix::event::poll(&mut asked, Some(&NOW))? != 0 {
            bail!("an eventfd has a value that nobody wrote");
        }
        for fd in &fds {
            rustix::io::write(fd, &1u64.to_ne_bytes())?;
        }
        let mut woken = 0;
        while woken < fds.len() {
            events.clear();
            woken += epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
        }
        for fd in &fds {
            rustix::io::read(fd, &mut [0u8; 8])?;
        }
        Ok(())
    })
}

/// A count that one thread raises and another waits for.
#[derive(Default)]
struct Count(AtomicU32);

impl Count {
    fn raise(&self, by: u32) -> rustix::io::Result<()> {
        self.0.fetch_add(by, AcqRel);
        futex::wake(&self.0, Flags::PRIVATE, 1).map(|_| ())
    }

    /// Waits until the count is no more `seen`; returns it.
    fn wait(&self, seen: u32) -> u32 {
        loop {
            let now = self.0.load(Acquire);
            if now != seen {
                return now;
            }
            // Woken, interrupted or too late: the count says which.
            let _ = futex::wait(&self.0, Flags::PRIVATE, seen, None);
        }
    }
}

/// Wakes a thread for each futex, and waits until all have run: a futex can be waited on by a
/// thread alone.
pub fn futex(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let words: Vec<Count> = (0..job.depth).map(|_| Count::default()).collect();
    let (ran, last) = (AtomicU32::new(0), Count::default());
    let sleep = |word: &Count| {
        let mut seen = 0;
        loop {
            seen = word.wait(seen);
            if seen & OVER != 0 {
                return;
            }
            if ran.fetch_add(1, AcqRel) + 1 == job.depth {
                let _ = last.raise(1);
            }
        }
    };
    thread::scope(|scope| {
        words.iter().for_each(|word| drop(scope.spawn(|| sleep(word))));
        stage.ready();
        let mut seen = 0;
        let done = rounds(stage, Counts::new(false)?, job.depth, || {
            ran.store(0, Release);
            words.iter().try_for_each(|word| word.raise(1))?;
            seen = last.wait(seen);
            Ok(())
        });
        words.iter().try_for_each(|word| word.raise(OVER))?;
        done
    })
}

/// Passes `depth` messages to another thread, and as many back: a count and a futex for each side.
pub fn messages(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let (there, back) = (Count::default(), Count::default());
    let answer = || {
        let mut seen = 0;
        while seen & OVER == 0 {
            let now = there.wait(seen);
            let _ = back.raise(now.wrapping_sub(seen) & !OVER);
            seen = now;
        }
    };
    thread::scope(|scope| {
        scope.spawn(answer);
        stage.ready();
        let mut seen = 0;
        let done = rounds(stage, Counts::new(false)?, job.depth, || {
            there.raise(job.depth)?;
            let all = (seen + job.depth) & !OVER;
            while seen != all {
                seen = back.wait(seen);
            }
            Ok(())
        });
        // The count of the other side is full after 2^31 messages: hours.
        there.raise(OVER)?;
        done
    })
}

/// Makes a file in memory as large as a ring of `depth` entries, maps its two parts as a program
/// does, and drops all.
pub fn setup(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    /// Bytes of the words of a ring, before its CQEs.
    const WORDS: usize = 64;
    const PAGE: usize = 4096;
    let sq = job.depth.next_power_of_two() as usize;
    let ring = WORDS + 2 * sq * size_of::<io_uring_cqe>() + sq * size_of::<u32>();
    let (ring, sqes) = (ring.next_multiple_of(PAGE), sq * size_of::<io_uring_sqe>());
    stage.ready();
    rounds(stage, Counts::new(false)?, 1, || {
        let file = rustix::fs::memfd_create(c"ring", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (ring + sqes.next_multiple_of(PAGE)) as u64)?;
        drop((Map::new(&file, ring, 0)?, Map::new(&file, sqes, ring as u64)?));
        Ok(())
    })
}
