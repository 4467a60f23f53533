//! Record of what was seen, in bounded memory: the newest events, and as many names as tracks can
//! be told apart.

use crate::strace::file_name;
use crate::{container, sys};
use softring_engine::stats::clean::printable;
use softring_engine::stats::trace::read::Source;
use softring_engine::stats::trace::{Event, FIXED, Step};
use std::collections::{HashMap, VecDeque};
use std::fs;

/// Most rings, and most threads, that are told apart.
const MOST: usize = 65_536;

/// An event, and its source.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Index of the event's source.
    pub source: u32,
    pub event: Event,
    /// Words that belong to the event.
    pub more: Box<[u64]>,
}

impl Recorded {
    /// Returns the bytes that belong to the event.
    pub fn bytes(&self) -> Vec<u8> {
        let all = self.more.iter().flat_map(|word| word.to_ne_bytes());
        all.take(self.event.data as usize).collect()
    }
}

/// Returns the beginning of an event's stretch of time, in ticks.
pub fn began(e: &Event) -> u64 {
    match e.step {
        Step::Inline => e.time - u64::from(e.req).min(e.time),
        step if step.is_span() => e.data.min(e.time),
        _ => e.time,
    }
}

#[derive(Debug)]
pub struct Record {
    events: VecDeque<Recorded>,
    keep: usize,
    pub sources: Vec<Source>,
    /// Sources by process and ring.
    known: HashMap<(u32, u64), u32>,
    /// Meanings of descriptors when the first event that is kept came: by source, whether it is a
    /// slot, and number.
    pub names: HashMap<(u32, bool, i32), String>,
    local: Vec<u8>,
    /// Containers of processes: ` in container ID`, or nothing.
    pub containers: HashMap<u32, String>,
    /// Names of threads, by process and thread.
    pub threads: HashMap<(u32, u32), String>,
    /// Events that found no room in the program's memory.
    pub dropped: u64,
    /// Events that were seen and not kept.
    pub left_out: u64,
}

impl Record {
    pub fn new(keep: usize) -> Record {
        Record {
            events: VecDeque::new(),
            keep: keep.max(1),
            sources: Vec::new(),
            known: HashMap::new(),
            names: HashMap::new(),
            local: Vec::new(),
            containers: HashMap::new(),
            threads: HashMap::new(),
            dropped: 0,
            left_out: 0,
        }
    }

    /// Adds an event. `process` tells the process from others with the same number.
    pub fn add(&mut self, process: u32, source: &Source, event: Event, more: &[u64]) {
        let Some(index) = self.index((process, source.ring), source) else {
            self.left_out += 1;
            return;
        };
        let thread = (source.pid, event.tid);
        if self.threads.len() < MOST && !self.threads.contains_key(&thread) {
            self.threads.insert(thread, name_of(thread));
        }
        if self.events.len() == self.keep {
            self.leave_out();
            self.left_out += 1;
        }
        self.events.push_back(Recorded { source: index, event, more: more.into() });
    }

    /// Drops the oldest event. What it says of a descriptor is still good.
    fn leave_out(&mut self) {
        let Some(kept) = self.events.pop_front() else { return };
        if matches!(kept.event.step, Step::Name | Step::Address)
            && self.names.len() < MOST
            && let Some(name) = file_name(&kept.event, kept.bytes(), &mut self.local)
        {
            let e = &kept.event;
            self.names.insert((kept.source, e.flags & FIXED != 0, e.value), name);
        }
    }

    /// Takes the events, in the order of their times.
    pub fn by_time(&mut self) -> Vec<Recorded> {
        let mut events: Vec<Recorded> = self.events.drain(..).collect();
        events.sort_by_key(|k| k.event.time);
        events
    }

    fn index(&mut self, key: (u32, u64), source: &Source) -> Option<u32> {
        if let Some(&index) = self.known.get(&key) {
            return Some(index);
        }
        let index = self.sources.len();
        if index == MOST {
            return None;
        }
        // The container is found while the process lives.
        let pid = source.pid;
        self.containers.entry(pid).or_insert_with(|| container::words_of(pid.cast_signed()));
        self.sources.push(source.clone());
        self.known.insert(key, index as u32);
        Some(index as u32)
    }
}

/// Returns the thread's name; nothing if it has gone. The process has the number that we know, the
/// thread the number that it knows itself: another one in a pid namespace of its own.
fn name_of((pid, tid): (u32, u32)) -> String {
    let tasks = format!("/proc/{pid}/task");
    let is_it = |folder: &String| sys::inner_pid(folder) == Some(tid.cast_signed());
    let found = Some(format!("{tasks}/{tid}")).filter(is_it).or_else(|| {
        let all = fs::read_dir(&tasks).ok()?.filter_map(Result::ok);
        all.map(|task| task.path().display().to_string()).find(is_it)
    });
    let name = found.and_then(|folder| fs::read(format!("{folder}/comm")).ok());
    printable(name.unwrap_or_default().trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let source = |ring| Source { pid: 1, ring, flags: 0, comm: "x".into() };
        let event = |time| Event { time, req: 1, tid: 1, step: Step::Done, ..Event::default() };
        let mut r = Record::new(3);
        for time in 0..5 {
            r.add(0, &source(time % 2), event(time), &[]);
        }
        let times: Vec<u64> = r.by_time().iter().map(|k| k.event.time).collect();
        assert_eq!((times, r.left_out, r.sources.len()), (vec![2, 3, 4], 2, 2));
        for ring in 0..MOST as u64 + 9 {
            r.add(0, &source(ring), event(9), &[]);
        }
        assert_eq!(r.sources.len(), MOST);
    }
}
