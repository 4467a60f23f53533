//! A trace, read while it is written: for whoever has its memfd.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, fallocate};

use super::buffer::Buffer;
use super::writer::ticks;
use super::{CLOSED, DATA, Event, SIZE, Ticks};
use crate::errno::{Errno, Result};
use crate::limits::{TRACE_CHUNKS, TRACE_EVENTS};
use crate::stats::clean::printable;

/// Whose events they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub pid: u32,
    pub ring: u64,
    /// The ring's setup flags.
    pub flags: u32,
    /// The process's name.
    pub comm: String,
}

/// A trace that can be read, by one reader at a time.
#[derive(Debug)]
pub struct Reader {
    fd: OwnedFd,
    buffer: Buffer,
    /// Events read of each chunk, and looks since there was one.
    seen: Vec<(u32, u32)>,
    counter: bool,
    /// Ticks for which the writers are told to go on.
    lease: u64,
    /// Both clocks when it began, and now.
    anchors: [(u64, u64); 2],
    /// Refused before it began.
    dropped: u64,
}

/// After so many looks at a chunk that does not change, it may be a dead process's.
const STALE: u32 = 50;

fn anchor(counter: bool) -> (u64, u64) {
    // The shortest of a few: nothing came between the two.
    let pair = |_| {
        let (a, ns, b) = (ticks(counter), ticks(false), ticks(counter));
        (b - a, (a + (b - a) / 2, ns))
    };
    (0..5).map(pair).min().map_or((0, 0), |(_, at)| at)
}

impl Reader {
    /// A trace for processes that are told of its descriptor ([`super::attach`]).
    ///
    /// # Errors
    /// As memfd_create(2), mmap(2).
    pub fn make() -> Result<Reader> {
        Buffer::make(0).map(|(fd, buffer)| Reader::of(fd, buffer))
    }

    /// The trace that a descriptor leads to.
    ///
    /// # Errors
    /// `EINVAL` if it is none, or of another version.
    pub fn open(fd: OwnedFd) -> Result<Reader> {
        Buffer::map(&fd).map(|buffer| Reader::of(fd, buffer))
    }

    fn of(fd: OwnedFd, buffer: Buffer) -> Reader {
        let seen = vec![(0, 0); TRACE_CHUNKS];
        Reader { fd, buffer, seen, counter: false, lease: 0, anchors: [(0, 0); 2], dropped: 0 }
    }

    /// The process that made it; 0: a tracer.
    pub fn pid(&self) -> u32 {
        self.buffer.header().pid.load(Relaxed) as u32
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Turns it on. `counter`: the kernel trusts the processor's time stamp counter.
    ///
    /// # Errors
    /// `EBUSY` if another process reads it.
    pub fn start(&mut self, counter: bool) -> Result<()> {
        let me = u64::from(std::process::id());
        let header = self.buffer.header();
        let mut old = header.reader.load(Relaxed);
        while let Err(now) = self.buffer.take_reader(me, old) {
            old = now;
        }
        let wanted = header.until.load(Relaxed) != 0;
        if wanted && old != 0 && old != me && crate::sys::process_lives(old as u32) {
            let _ = self.buffer.take_reader(old, me);
            return Err(Errno::EBUSY);
        }
        self.discard();
        self.counter = counter;
        let clock = if counter { Ticks::Counter } else { Ticks::Monotonic };
        header.clock.store(clock as u64, Relaxed);
        self.dropped = header.dropped.load(Relaxed);
        let first = anchor(counter);
        // How fast the counter goes, roughly.
        std::thread::sleep(core::time::Duration::from_millis(2));
        let now = anchor(counter);
        self.anchors = [first, now];
        self.lease = 2_000_000_000 * (now.0 - first.0) / (now.1 - first.1).max(1);
        header.until.store(now.0 + self.lease, Release);
        Ok(())
    }

    /// Lets go of what an earlier reader has left.
    fn discard(&mut self) {
        for chunk in 0..TRACE_CHUNKS as u32 {
            let state = self.buffer.head(chunk).state.load(Acquire);
            let n = (state & !CLOSED).saturating_sub(1);
            self.seen[chunk as usize] = (n, 0);
            if state & CLOSED != 0 || n as usize >= TRACE_EVENTS {
                self.seen[chunk as usize] = (0, 0);
                self.buffer.free(chunk);
            }
        }
    }

    /// Hands on what has been written since the last call, by source and in its order there, and
    /// has the writers go on; answers how many events there were.
    pub fn poll(&mut self, mut f: impl FnMut(&Source, Event)) -> usize {
        self.anchors[1] = anchor(self.counter);
        // Also where it had run out, as we were stopped.
        if self.lease != 0 {
            self.buffer.header().until.store(self.anchors[1].0 + self.lease, Relaxed);
        }
        (0..TRACE_CHUNKS as u32).map(|chunk| self.take(chunk, &mut f)).sum()
    }

    fn take(&mut self, chunk: u32, f: &mut impl FnMut(&Source, Event)) -> usize {
        let head = self.buffer.head(chunk);
        let state = head.state.load(Acquire);
        if state == 0 {
            return 0;
        }
        let (seen, looks) = &mut self.seen[chunk as usize];
        let n = (state & !CLOSED).saturating_sub(1).min(TRACE_EVENTS as u32);
        let from = (*seen).min(n);
        if n > from {
            let bytes: Vec<u8> =
                head.comm.iter().flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
            let source = Source {
                pid: head.pid.load(Relaxed),
                ring: head.ring.load(Relaxed),
                flags: head.flags.load(Relaxed) as u32,
                comm: printable(&bytes),
            };
            for at in from..n {
                if let Some(event) = self.buffer.get(chunk, at) {
                    f(&source, event);
                }
            }
            (*seen, *looks) = (n, 0);
        }
        *looks += 1;
        let gone = *looks > STALE && {
            *looks = 0;
            !crate::sys::process_lives(head.pid.load(Relaxed))
        };
        if n as usize == TRACE_EVENTS || state & CLOSED != 0 || gone {
            (*seen, *looks) = (0, 0);
            self.buffer.free(chunk);
        }
        (n - from) as usize
    }

    /// Turns it off. What is written in that moment a last [`Self::poll`] finds.
    pub fn stop(&mut self) {
        self.lease = 0;
        self.buffer.header().until.store(0, Release);
    }

    /// Events refused since it began.
    pub fn dropped(&self) -> u64 {
        self.buffer.header().dropped.load(Relaxed).wrapping_sub(self.dropped)
    }

    /// A time in ns of CLOCK_MONOTONIC, as far as is known now.
    pub fn ns(&self, ticks: u64) -> u64 {
        let [(t0, n0), (t1, n1)] = self.anchors.map(|(t, n)| (i128::from(t), i128::from(n)));
        let ns = n0 + (i128::from(ticks) - t0) * (n1 - n0) / (t1 - t0).max(1);
        u64::try_from(ns).unwrap_or(0)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
        let (at, len) = (DATA as u64, (SIZE - DATA) as u64);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.fd, punch, at, len);
        let me = u64::from(std::process::id());
        let _ = self.buffer.take_reader(0, me);
        // SAFETY: the reader has the only copy of this mapping.
        unsafe { self.buffer.unmap() };
    }
}
