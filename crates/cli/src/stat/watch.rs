//! The pages of a process and its children, held open so that they can be read when those have
//! ended.

use crate::family::Family;
use crate::listener::{Listener, Next, Received};
use crate::stats::pages::{self, Reading, Source, Trouble};
use crate::sys;
use crate::top::total;
use rustix::io::Errno;
use softring_engine::stats::read;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pages that may be open before those of processes that have ended are summed up.
const OPEN: usize = 64;

#[derive(Debug)]
pub struct Watch {
    family: Family,
    /// Where all of them bring their pages, if they were told so.
    listener: Option<Listener>,
    /// By process, which has another page for each program that it becomes, and by page.
    pages: BTreeMap<(i32, u64), Watched>,
    /// How many may be open.
    most: usize,
    ended: Ended,
    /// Pages that are in that sum: one that was found in /proc is brought as well.
    summed: BTreeSet<(i32, u64)>,
    /// Whose page could not be opened for want of a descriptor.
    missed: BTreeSet<i32>,
}

#[derive(Debug)]
struct Watched {
    source: Source,
    /// What it had done before we looked.
    before: Option<read::Ring>,
}

/// Processes that have ended, as one.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub processes: u64,
    pub total: read::Ring,
}

/// What one process did while it was watched.
#[derive(Debug)]
pub struct Result {
    pub reading: Reading,
    pub total: read::Ring,
}

/// What all of them did.
#[derive(Debug)]
pub struct Summary {
    pub each: Vec<Result>,
    /// Those besides that were summed up on the way.
    pub ended: Ended,
    /// How many are not counted.
    pub missed: usize,
}

impl Watch {
    /// How often one looks for children.
    pub const EVERY: Duration = Duration::from_millis(20);

    pub fn new(pid: i32) -> Watch {
        let family = Family::of(pid);
        let (pages, most) = (BTreeMap::new(), OPEN.min(sys::descriptors() / 4));
        let (ended, summed, missed) = (Ended::default(), BTreeSet::new(), BTreeSet::new());
        Watch { family, listener: None, pages, most, ended, summed, missed }
    }

    /// Those who are to bring their pages to `listener`.
    pub fn at(pid: i32, listener: Listener) -> Watch {
        Watch { listener: Some(listener), ..Watch::new(pid) }
    }

    pub fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    /// Only what is done from now on counts.
    pub fn begin_now(&mut self) {
        self.look();
        for watched in self.pages.values_mut() {
            watched.before = watched.source.read().map(|r| total(&r.page));
        }
    }

    /// Takes the pages that were brought.
    pub fn take(&mut self) {
        while let Some(listener) = &mut self.listener {
            match listener.next() {
                Next::File(Received { pid, command, file: Ok(file), .. }) => {
                    self.missed.remove(&pid);
                    self.add(Source::new(pid, command, file));
                }
                Next::File(_) => {}
                Next::Nobody => break,
                Next::NoDescriptor if self.sum_ended() => {}
                Next::NoDescriptor => {
                    // They wait on, and so the listener would wake us at once.
                    std::thread::sleep(Self::EVERY);
                    break;
                }
            }
        }
    }

    /// Opens the pages that are new; false if all processes have ended.
    pub fn look(&mut self) -> bool {
        self.take();
        let alive = self.family.look();
        for &pid in &alive {
            if self.pages.range((pid, 0)..=(pid, u64::MAX)).next().is_none() {
                self.open(pid);
            }
        }
        !alive.is_empty()
    }

    fn open(&mut self, pid: i32) {
        match pages::open(pid) {
            Ok(Some(source)) => {
                self.missed.remove(&pid);
                self.add(source);
            }
            Err(Trouble::Io(e)) if e.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                // Next time there may be one.
                self.sum_ended();
                self.missed.insert(pid);
            }
            _ => {}
        }
    }

    fn add(&mut self, source: Source) {
        let key = (source.pid, source.page_number());
        if self.summed.contains(&key) {
            return;
        }
        match self.pages.entry(key) {
            Entry::Vacant(entry) => _ = entry.insert(Watched { source, before: None }),
            // What a process says itself is its name: when `/proc` was asked it may have ended.
            Entry::Occupied(entry) => entry.into_mut().source.command = source.command,
        }
        if self.pages.len() >= self.most {
            self.sum_ended();
            self.most = self.most.max(self.pages.len() + OPEN / 2);
        }
    }

    /// Keeps what the pages of processes that are no more say, as one, and not their memory. True
    /// if there were any.
    fn sum_ended(&mut self) -> bool {
        let (ended, summed) = (&mut self.ended, &mut self.summed);
        let open = self.pages.len();
        self.pages.retain(|&key, watched| {
            let result = if sys::has_ended(watched.source.pid) { watched.result() } else { None };
            if let Some(result) = &result {
                summed.insert(key);
                ended.processes += 1;
                ended.total.add(&result.total);
            }
            result.is_none()
        });
        self.pages.len() < open
    }

    /// What all of them did.
    pub fn summary(&self) -> Summary {
        Summary {
            each: self.pages.values().filter_map(Watched::result).collect(),
            ended: self.ended.clone(),
            missed: self.missed.len(),
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
