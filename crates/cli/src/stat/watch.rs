//! The pages of a process and its children, held open so that they can be read when the processes
//! have ended.

use crate::family::Family;
use crate::listener::{Listener, Next, Received};
use crate::stats::pages::{self, Reading, Source, Trouble};
use crate::sys;
use crate::top::total;
use rustix::io::Errno;
use softring_engine::stats::read;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

/// Descriptors that are kept free for reads of `/proc`; pages could take them all.
const SPARE: usize = 4;
/// Most pages that are open before those of ended processes are summed up.
const OPEN: usize = 64;

#[derive(Debug)]
pub struct Watch {
    family: Family,
    /// Listener that processes bring their pages to, if they were told so.
    listener: Option<Listener>,
    /// Pages by process and page number. A process has another page for each program that it
    /// becomes.
    pages: BTreeMap<(i32, u64), Watched>,
    /// Most pages that may be open.
    most: usize,
    ended: Ended,
    /// Pages that are in `ended`: a page that was found in /proc is brought as well.
    summed: BTreeSet<(i32, u64)>,
    /// Processes whose page did not come, or could not be opened, for want of a descriptor.
    missed: BTreeSet<i32>,
    /// Processes that could not be read at the last try.
    unknown: BTreeSet<i32>,
    /// Processes that may not be read.
    forbidden: BTreeSet<i32>,
    /// Results that were read at the end, to have descriptors for more.
    done: Vec<Result>,
    spare: Vec<File>,
}

#[derive(Debug)]
struct Watched {
    source: Source,
    /// Counts of the process when it was first read.
    before: Option<read::Ring>,
}

/// Sum of the processes that have ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub processes: u64,
    pub total: read::Ring,
}

/// Counts of one process while it was watched.
#[derive(Debug)]
pub struct Result {
    pub reading: Reading,
    pub total: read::Ring,
}

/// Counts of all processes.
#[derive(Debug)]
pub struct Summary {
    pub each: Vec<Result>,
    /// Further processes, which were summed up on the way.
    pub ended: Ended,
    /// Number of processes that are not counted.
    pub missed: usize,
    /// Number of processes that may not be read, whether or not they have rings.
    pub forbidden: usize,
}

impl Watch {
    /// Time between two checks for children.
    pub const EVERY: Duration = Duration::from_millis(20);

    pub fn new(pid: i32) -> Watch {
        let family = Family::of(pid);
        let (pages, most) = (BTreeMap::new(), OPEN.min(sys::descriptors() / 4));
        let mut watch = Watch {
            family,
            listener: None,
            pages,
            most,
            ended: Ended::default(),
            summed: BTreeSet::new(),
            missed: BTreeSet::new(),
            unknown: BTreeSet::new(),
            forbidden: BTreeSet::new(),
            done: Vec::new(),
            spare: Vec::new(),
        };
        watch.keep_spare();
        watch
    }

    fn keep_spare(&mut self) {
        let more = SPARE.saturating_sub(self.spare.len());
        self.spare.extend((0..more).map_while(|_| File::open("/dev/null").ok()));
    }

    /// Watches processes that are to bring their pages to `listener`.
    pub fn at(pid: i32, listener: Listener) -> Watch {
        Watch { listener: Some(listener), ..Watch::new(pid) }
    }

    pub fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    /// Counts only what is done from now on.
    pub fn begin_now(&mut self) {
        self.update();
        for watched in self.pages.values_mut() {
            watched.before = watched.source.read().map(|r| total(&r.page));
        }
    }

    /// Takes the pages that were brought.
    pub fn take(&mut self) {
        if !self.receive_all() {
            // The processes wait on, so the listener would wake us at once.
            std::thread::sleep(Self::EVERY);
        }
    }

    /// Takes the pages that were brought; returns false if processes wait for whom no descriptor is
    /// free.
    fn receive_all(&mut self) -> bool {
        while let Some(listener) = &mut self.listener {
            let next = listener.next();
            let away = listener.turned_away();
            self.find_in_proc(away);
            match next {
                Next::File(Received { pid, command, file: Ok(file), .. }) => {
                    self.missed.remove(&pid);
                    self.unknown.remove(&pid);
                    self.add(Source::new(pid, command, file));
                }
                Next::File(received) if received.is_to_be_found() => {
                    self.find_in_proc(vec![received.pid]);
                    received.answer();
                }
                Next::File(Received { pid, .. }) => _ = self.missed.insert(pid),
                Next::Nobody => break,
                Next::NoDescriptor if self.sum_ended() => {}
                Next::NoDescriptor => return false,
            }
        }
        true
    }

    /// Opens the pages that are new; returns false if all processes have ended.
    pub fn update(&mut self) -> bool {
        self.take();
        self.spare.clear();
        let alive = self.family.update();
        for &pid in &alive {
            if self.pages.range((pid, 0)..=(pid, u64::MAX)).next().is_none() {
                self.open(pid);
            }
        }
        self.keep_spare();
        !alive.is_empty()
    }

    /// Opens a process's page, if it has one and a descriptor is free for it.
    fn open(&mut self, pid: i32) {
        self.spare.clear();
        let opened = pages::open(pid);
        self.keep_spare();
        match opened {
            Ok(Some(source)) if self.spare.len() == SPARE || self.sum_ended() => {
                self.missed.remove(&pid);
                self.add(source);
            }
            // The page may come yet, or there may be a descriptor next time.
            Ok(Some(_)) => _ = self.missed.insert(pid),
            Err(Trouble::Io(e)) if e.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                self.sum_ended();
                self.unknown.insert(pid);
                return;
            }
            Err(Trouble::Io(e)) if e.kind() == ErrorKind::PermissionDenied => {
                self.forbidden.insert(pid);
            }
            _ => {}
        }
        self.unknown.remove(&pid);
    }

    /// Searches /proc for processes that were disconnected before they sent their page.
    fn find_in_proc(&mut self, pids: Vec<i32>) {
        for pid in pids {
            let all = (pid, 0)..=(pid, u64::MAX);
            if self.pages.range(all.clone()).next().is_none()
                && self.summed.range(all).next().is_none()
            {
                self.missed.insert(pid);
                self.open(pid);
            }
        }
    }

    fn add(&mut self, source: Source) {
        let key = (source.pid, source.page_number());
        if self.summed.contains(&key) {
            return;
        }
        match self.pages.entry(key) {
            Entry::Vacant(entry) => _ = entry.insert(Watched { source, before: None }),
            // A process's own word is its name: it may have ended when `/proc` was asked.
            Entry::Occupied(entry) => entry.into_mut().source.command = source.command,
        }
        if self.pages.len() >= self.most {
            self.sum_ended();
            self.most = self.most.max(self.pages.len() + OPEN / 2);
        }
    }

    /// Sums up the pages of ended processes, and closes them. Returns true if there were any.
    fn sum_ended(&mut self) -> bool {
        self.spare.clear();
        let (ended, summed) = (&mut self.ended, &mut self.summed);
        let open = self.pages.len();
        self.pages.retain(|&key, watched| {
            // The end of a process of another pid namespace is not known.
            let pid = watched.source.pid;
            let over = pid != 0 && sys::has_ended(pid);
            let result = if over { watched.result() } else { None };
            if let Some(result) = &result {
                summed.insert(key);
                ended.processes += 1;
                ended.total.add(&result.total);
            }
            result.is_none()
        });
        let some = self.pages.len() < open;
        self.keep_spare();
        some
    }

    /// Returns what all processes did until now, as far as their pages are known.
    pub fn so_far(&self) -> read::Ring {
        let mut total = self.ended.total.clone();
        for result in self.pages.values().filter_map(Watched::result) {
            total.add(&result.total);
        }
        total
    }

    /// Returns what all processes did until now, also those whose pages have come and were not yet
    /// taken.
    pub fn finish(mut self) -> Summary {
        self.spare.clear();
        loop {
            let all = self.receive_all();
            self.spare.clear();
            let none = self.pages.is_empty();
            self.read_all();
            if all {
                break;
            }
            if none {
                // It is not known who waits there: at least one process does.
                self.missed.insert(0);
                break;
            }
        }
        let missed = self.missed.union(&self.unknown).count();
        let forbidden = self.forbidden.len();
        Summary { each: self.done, ended: self.ended, missed, forbidden }
    }

    /// Reads every page for the last time, and closes it.
    fn read_all(&mut self) {
        for (key, watched) in std::mem::take(&mut self.pages) {
            self.summed.insert(key);
            match watched.result() {
                Some(result) => self.done.push(result),
                None => _ = self.missed.insert(key.0),
            }
        }
    }
}

impl Watched {
    fn result(&self) -> Option<Result> {
        let reading = self.source.read()?;
        let mut total = total(&reading.page);
        if let Some(before) = &self.before {
            total.subtract(before);
        }
        Some(Result { reading, total })
    }
}
