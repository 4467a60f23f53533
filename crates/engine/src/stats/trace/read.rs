//! A trace, read while it is written: for whoever has its memfd.
#![allow(unsafe_code)]

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, Release};

use softring_host::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::buffer::Buffer;
use super::clock::Clock;
use super::protocol::Chunk;
use super::{Event, WANT_NAMES};
use crate::stats::clean::printable;
use softring_host::calls::process;
use softring_host::limits::TRACE_CHUNKS;
use softring_uapi::errno::{Errno, Result};

/// The ring whose events they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub pid: u32,
    pub ring: u64,
    /// The ring's setup flags.
    pub flags: u32,
    /// The process's name.
    pub comm: String,
}

/// A process's trace that can be read, by one reader at a time.
#[derive(Debug)]
pub struct Reader {
    fd: OwnedFd,
    buffer: Buffer,
    /// Events read of each chunk.
    seen: Vec<u32>,
    /// The process as its reader knows it, which may have another pid namespace.
    pid: Option<u32>,
    on: bool,
    /// The words of the event at hand.
    more: Vec<u64>,
    /// The reader that turned the trace on is this one.
    started: bool,
    /// Refused before it began.
    dropped: u64,
}

impl Reader {
    /// The trace that a descriptor leads to. `pid`: what the reader knows the process by, if it
    /// can see it.
    ///
    /// # Errors
    /// `EINVAL` if it is none, or of another version.
    pub fn open(fd: OwnedFd, pid: Option<u32>) -> Result<Reader> {
        let buffer = Buffer::map(&fd)?;
        Ok(Reader {
            fd,
            buffer,
            seen: vec![0; TRACE_CHUNKS],
            pid,
            on: false,
            more: Vec::new(),
            started: false,
            dropped: 0,
        })
    }

    /// The process that made it, as that knows itself.
    pub fn inner_pid(&self) -> u32 {
        self.buffer.header().pid.load(Relaxed) as u32
    }

    /// The memory's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Turns it on; `names`: descriptors are to be named.
    ///
    /// # Errors
    /// `EBUSY` if another process reads it.
    pub fn start(&mut self, clock: &Clock, names: bool) -> Result<()> {
        let me = u64::from(process::getpid());
        let header = self.buffer.header();
        let mut old = header.reader.load(Relaxed);
        while let Err(now) = self.buffer.take_reader(me, old) {
            old = now;
        }
        let wanted = header.until.load(Relaxed) != 0;
        if wanted && old != 0 && old != me && softring_host::sys::process_lives(old as u32) {
            let _ = self.buffer.take_reader(old, me);
            return Err(Errno::EBUSY);
        }
        self.discard();
        header.clock.store(clock.kind as u64, Relaxed);
        header.wants.store(if names { WANT_NAMES } else { 0 }, Relaxed);
        self.dropped = header.dropped.load(Relaxed);
        (self.on, self.started) = (true, true);
        header.until.store(clock.lease_ends(), Release);
        Ok(())
    }

    /// Lets go of what an earlier reader has left.
    fn discard(&mut self) {
        for chunk in 0..TRACE_CHUNKS as u32 {
            self.buffer.chunk(chunk).discard(&mut self.seen[chunk as usize]);
        }
    }

    /// Hands on what has been written since the last call, each event with the words that belong to
    /// it, and has the writers go on; answers how many slots were read. Whoever calls it often
    /// enough calls [`Clock::read`] before.
    ///
    /// Chunks are read in no order of time. But what is not read by this call is younger than
    /// the call's beginning, or is all that its ring has written since.
    pub fn poll(&mut self, clock: &Clock, mut f: impl FnMut(&Source, Event, &[u64])) -> usize {
        // Also where it had run out, as we were stopped.
        if self.on {
            self.buffer.header().until.store(clock.lease_ends(), Relaxed);
        }
        (0..TRACE_CHUNKS as u32).map(|chunk| self.take(chunk, &mut f)).sum()
    }

    fn take(&mut self, at: u32, f: &mut impl FnMut(&Source, Event, &[u64])) -> usize {
        let (head, chunk) = (self.buffer.head(at), self.buffer.chunk(at));
        let taken = chunk.take(&mut self.seen[at as usize], |slots| {
            let bytes: Vec<u8> =
                head.comm.iter().flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
            let source = Source {
                pid: self.pid.unwrap_or_else(|| head.pid.load(Relaxed)),
                ring: head.ring.load(Relaxed),
                flags: head.flags.load(Relaxed) as u32,
                comm: printable(&bytes),
            };
            let (mut at, n) = (slots.start, slots.end);
            while at < n {
                let words = chunk.get(at);
                let end = (at + 1 + Event::slots(words)).min(n);
                self.more.clear();
                self.more.extend((at + 1..end).flat_map(|at| chunk.get(at)));
                if let Some(event) = Event::from_words(words) {
                    f(&source, event, &self.more);
                }
                at = end;
            }
        });
        taken as usize
    }

    /// Turns it off. What is written in that moment a last [`Self::poll`] finds.
    pub fn stop(&mut self) {
        self.on = false;
        self.buffer.header().until.store(0, Release);
    }

    /// Events refused since it began.
    pub fn dropped(&self) -> u64 {
        self.buffer.header().dropped.load(Relaxed).wrapping_sub(self.dropped)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.started {
            self.stop();
            self.buffer.give_back();
            let me = u64::from(process::getpid());
            let _ = self.buffer.take_reader(0, me);
        }
        // SAFETY: the reader has the only copy of this mapping.
        unsafe { self.buffer.unmap() };
    }
}
