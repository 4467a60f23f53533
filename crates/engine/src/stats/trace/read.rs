//! Reading of a trace while it is written, by whoever has its memfd.
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

/// Ring that the events are of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub pid: u32,
    pub ring: u64,
    /// Setup flags of the ring.
    pub flags: u32,
    /// Name of the process.
    pub comm: String,
}

/// Trace of a process that can be read, by one reader at a time.
#[derive(Debug)]
pub struct Reader {
    fd: OwnedFd,
    buffer: Buffer,
    /// Slots read of each chunk.
    seen: Vec<u32>,
    /// Process as its reader knows it, which may have another pid namespace.
    pid: Option<u32>,
    on: bool,
    /// Words of the event at hand.
    more: Vec<u64>,
    /// Flag, true if this reader has turned the trace on.
    started: bool,
    /// Events refused before the trace began.
    dropped: u64,
}

impl Reader {
    /// Opens the trace behind a descriptor. `pid`: the process's number for the reader, if the
    /// reader can see the process.
    ///
    /// # Errors
    /// `EINVAL` if it is no trace, or one of another version.
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

    /// Returns the process that made the trace, by its own pid.
    pub fn inner_pid(&self) -> u32 {
        self.buffer.header().pid.load(Relaxed) as u32
    }

    /// Returns the memory's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the number of the memory's file, which tells it from all others while it is open.
    pub fn file(&self) -> u64 {
        softring_host::os::fs::fstat(&self.fd).map_or(0, |file| file.st_ino)
    }

    /// Turns the trace on; `names`: descriptors are to be named.
    ///
    /// # Errors
    /// `EBUSY` if another process reads the trace.
    pub fn start(&mut self, clock: &Clock, names: bool) -> Result<()> {
        let me = u64::from(process::getpid());
        let header = self.buffer.header();
        let mut old = header.reader.load(Relaxed);
        while let Err(now) = self.buffer.take_reader(me, old) {
            old = now;
        }
        let wanted = header.until.load(Relaxed) != 0;
        if wanted && old != 0 && old != me && softring_host::substitute::process_lives(old as u32) {
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

    /// Skips what an earlier reader has left.
    fn discard(&mut self) {
        for chunk in 0..TRACE_CHUNKS as u32 {
            self.buffer.chunk(chunk).discard(&mut self.seen[chunk as usize]);
        }
    }

    /// Calls `f` for each event since the last call, with the words that belong to it, and has the
    /// writers go on; returns how many slots were read. A caller that comes often enough calls
    /// [`Clock::read`] before.
    ///
    /// Chunks are read in no order of time. But an event that this call does not read is younger
    /// than the call's beginning, or its ring has written only unread events since.
    pub fn poll(&mut self, clock: &Clock, mut f: impl FnMut(&Source, Event, &[u64])) -> usize {
        // This also helps if the time had run out, as we were stopped.
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

    /// Turns the trace off. A last [`Self::poll`] finds the events of that moment.
    pub fn stop(&mut self) {
        self.on = false;
        self.buffer.header().until.store(0, Release);
    }

    /// Returns the number of events refused since the trace began.
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
