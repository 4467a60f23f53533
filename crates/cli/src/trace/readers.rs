//! The memories for events of all processes of a command, or of one process. They are read while
//! the processes live, and until what they have left is read.

use super::find;
use crate::family::Family;
use crate::listener::{Listener, Next, Received};
use crate::{container, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use softring_engine::stats::clean::printable;
use softring_engine::stats::trace::read::{Reader, Source};
use softring_engine::stats::trace::{Clock, Event};
use softring_engine::stats::watcher::Watcher;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// A process, more exactly: one program of a process.
#[derive(Debug)]
struct Traced {
    /// Number that tells it from others that have or had its process number.
    serial: u32,
    /// Process number; 0 if the process cannot be seen from here.
    pid: i32,
    /// Inode number of its memory's file.
    file: u64,
    reader: Reader,
    /// Flag, true if the process has ended, or become another program.
    over: bool,
}

/// Most processes that are named because they were not traced.
const MOST_NAMED: usize = 8;

/// All memories that are read.
#[derive(Debug)]
pub struct Readers {
    /// Clock of all memories, so that times compare.
    clock: Clock,
    listener: Option<Listener>,
    each: Vec<Traced>,
    on: bool,
    /// Flag, true if descriptors are to be named.
    names: bool,
    next: u32,
    /// Events refused in memories that are over.
    dropped: u64,
    /// Processes that were not traced, by number, with their names and containers, and the reason.
    untraced: BTreeMap<i32, (String, String)>,
    /// Flag, true if no descriptor was left for a process that had connected.
    starved: bool,
}

impl Readers {
    fn new(listener: Option<Listener>, counter: bool, names: bool) -> Readers {
        Readers {
            clock: Clock::new(counter),
            listener,
            each: Vec::new(),
            on: true,
            names,
            next: 0,
            dropped: 0,
            untraced: BTreeMap::new(),
            starved: false,
        }
    }

    /// Makes readers of the processes that are told the [key](Self::key). `counter`: the kernel
    /// trusts the processor's time stamp counter. `names`: descriptors are to be named.
    pub fn listen(counter: bool, names: bool) -> anyhow::Result<Readers> {
        Ok(Readers::new(Some(Listener::open(Watcher::Trace)?), counter, names))
    }

    /// Makes the reader of one process.
    ///
    /// # Errors
    /// `ResourceBusy` if another process reads it.
    pub fn one(pid: i32, reader: Reader, counter: bool, names: bool) -> io::Result<Readers> {
        let mut readers = Readers::new(None, counter, names);
        readers.add(pid, reader)?;
        Ok(readers)
    }

    /// Returns the value of SOFTRING_TRACE.
    pub fn key(&self) -> &str {
        self.listener.as_ref().map_or("", Listener::key)
    }

    /// Turns on the memories that were brought.
    pub fn take(&mut self) {
        while let Some(listener) = &mut self.listener {
            match listener.next() {
                Next::File(received) => self.receive(received),
                Next::Nobody => break,
                Next::NoDescriptor => {
                    self.starved = true;
                    break;
                }
            }
        }
    }

    fn receive(&mut self, mut received: Received) {
        let (pid, none) = (received.pid, Err(ErrorKind::NotFound.into()));
        let to_be_found = received.is_to_be_found();
        let file: io::Result<File> = std::mem::replace(&mut received.file, none);
        let known = (pid != 0).then(|| pid.cast_unsigned());
        let begun = match file {
            Ok(file) => Reader::open(sys::to_engine(file), known)
                .map_err(|e| io::Error::from_raw_os_error(-e.res()))
                .and_then(|reader| self.add(pid, reader)),
            Err(_) if to_be_found => self.find(pid),
            Err(e) => Err(e),
        };
        let in_time = received.answer();
        let why = match begun {
            Err(e) => e.to_string(),
            Ok(()) if in_time => {
                if pid != 0 {
                    self.untraced.remove(&pid);
                }
                return;
            }
            Ok(()) => "the beginning is missing, because tracing began too late".to_owned(),
        };
        self.untraced.insert(pid, (named(pid, &received.command), why));
    }

    /// Finds the memory of a process that may hand it to nobody that it does not know: one of
    /// another user namespace.
    fn find(&mut self, pid: i32) -> io::Result<()> {
        let found = if pid == 0 { Ok(None) } else { find::memory(pid) };
        let nowhere =
            || io::Error::other("the process is in another user namespace, and not in /proc");
        self.add(pid, found?.ok_or_else(nowhere)?)
    }

    fn add(&mut self, pid: i32, mut reader: Reader) -> io::Result<()> {
        let file = reader.file();
        // A memory that was found in /proc is brought as well.
        if self.each.iter().any(|t| t.file == file) {
            return Ok(());
        }
        if self.on {
            reader
                .start(&self.clock, self.names)
                .map_err(|e| io::Error::from_raw_os_error(-e.res()))?;
        }
        for before in self.each.iter_mut().filter(|t| pid != 0 && t.pid == pid) {
            before.over = true;
        }
        self.each.push(Traced { serial: self.next, pid, file, reader, over: false });
        self.next += 1;
        Ok(())
    }

    /// Searches `/proc` for the memories of processes that cannot reach us.
    pub fn update(&mut self, family: &mut Family) {
        for pid in family.update() {
            if self.each.iter().any(|t| t.pid == pid && !t.over) {
                continue;
            }
            let found = match find::memory(pid) {
                Ok(None) => continue,
                Ok(Some(reader)) => self.add(pid, reader),
                Err(e) => Err(e),
            };
            match found {
                Ok(()) => _ = self.untraced.remove(&pid),
                // The process has ended.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => {
                    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                    let name = printable(name.trim_ascii_end());
                    self.untraced.insert(pid, (named(pid, &name), e.to_string()));
                }
            }
        }
    }

    /// Passes on what has been written since the last call, with the serial number of the process,
    /// and has the process go on.
    pub fn poll(&mut self, mut f: impl FnMut(u32, &Source, Event, &[u64])) {
        self.clock.read();
        let (clock, dropped) = (&self.clock, &mut self.dropped);
        self.each.retain_mut(|t| {
            // This comes first: a process that has ended writes nothing after that.
            let over = t.over || t.pid != 0 && sys::has_ended(t.pid);
            let serial = t.serial;
            let n = t.reader.poll(clock, |source, event, more| f(serial, source, event, more));
            let done = over && n == 0;
            if done {
                *dropped += t.reader.dropped();
            }
            !done
        });
    }

    /// Turns all memories off. A last [`Self::poll`] finds what is written in that moment.
    pub fn stop(&mut self) {
        self.on = false;
        self.each.iter_mut().for_each(|t| t.reader.stop());
    }

    /// Waits until a process may have connected, or for `most`; a signal ends the wait.
    pub fn wait(&self, most: Duration) {
        let fds = self.listener.iter().flat_map(Listener::fds);
        let mut fds: Vec<PollFd> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = poll(&mut fds, Some(&time));
    }

    /// Returns the number of events refused, for want of room in the processes' memories.
    pub fn dropped(&self) -> u64 {
        self.dropped + self.each.iter().map(|t| t.reader.dropped()).sum::<u64>()
    }

    /// Returns the processes that may have done something that was not seen, and why, in lines to
    /// be read.
    pub fn missing(&self) -> Vec<String> {
        let named = self.untraced.iter().take(MOST_NAMED).map(|(pid, (name, why))| match pid {
            0 => format!("a process of another pid namespace {name}: {why}"),
            pid => format!("process {pid} {name}: {why}"),
        });
        let more = self.untraced.len().saturating_sub(MOST_NAMED);
        let more = (more > 0).then(|| format!("{more} more processes"));
        let starved = "softring had no free descriptor for a time: raise the limit (ulimit -n)";
        named.chain(more).chain(self.starved.then(|| starved.to_owned())).collect()
    }

    /// Returns the time at which the last [`Self::poll`] began, in ticks. What the program wrote
    /// before has been passed on. The end of a request that it wrote meanwhile may have come before
    /// its beginning.
    pub fn polled_at(&self) -> u64 {
        self.clock.read_at()
    }

    /// Converts ticks to ns of CLOCK_MONOTONIC, as far as is known now.
    pub fn ns(&self, ticks: u64) -> u64 {
        self.clock.ns(ticks)
    }
}

/// Formats a process's name: `(fio) in container ID`; 0 is a process that cannot be seen from here.
fn named(pid: i32, name: &str) -> String {
    let place = if pid == 0 { String::new() } else { container::words_of(pid) };
    format!("({name}){place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untraced_processes_are_named() {
        let mut readers = Readers::new(None, false, false);
        assert!(readers.missing().is_empty());
        for pid in 0..10 {
            readers.untraced.insert(pid, (named(0, "x"), "no memory".into()));
        }
        readers.starved = true;
        let said = readers.missing();
        assert_eq!(said.len(), MOST_NAMED + 2, "{said:?}");
        assert!(said[0].contains("pid namespace") && said[1] == "process 1 (x): no memory");
        assert!(said[8].starts_with("2 more") && said[9].contains("ulimit -n"), "{said:?}");
    }
}
