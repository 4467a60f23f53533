//! The pages of a process and its children, held open so that they can be read when those have
//! ended.

use super::handed::Door;
use crate::stats::pages::{self, Reading, Source};
use crate::sys;
use crate::top::total;
use rustix::process::{Pid, test_kill_process};
use softring_engine::stats::read;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Pages that may be open before one looks which of them belong to processes that have ended.
const OPEN: usize = 64;

#[derive(Debug)]
pub struct Watch {
    /// The first, and its children as far as they were seen.
    family: BTreeSet<i32>,
    /// Where all of them bring their pages, if they were told so.
    door: Option<Door>,
    /// By process, which has another page for each program that it becomes, and by page.
    pages: BTreeMap<(i32, u64), Watched>,
    /// How many may be open.
    most: usize,
}

#[derive(Debug)]
struct Watched {
    page: Page,
    /// What it had done before we looked.
    before: Option<read::Ring>,
}

#[derive(Debug)]
enum Page {
    Open(Source),
    /// As it stood when its process had ended.
    Last(Box<Reading>),
}

/// What one process did while it was watched.
#[derive(Debug)]
pub struct Result {
    pub reading: Reading,
    pub total: read::Ring,
}

impl Watch {
    /// How often one looks for children.
    pub const EVERY: Duration = Duration::from_millis(20);

    pub fn new(pid: i32) -> Watch {
        let family = BTreeSet::from([pid]);
        Watch { family, door: None, pages: BTreeMap::new(), most: OPEN }
    }

    /// Those who are to bring their pages to `door`.
    pub fn at(pid: i32, door: Door) -> Watch {
        Watch { door: Some(door), ..Watch::new(pid) }
    }

    pub fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    /// Only what is done from now on counts.
    pub fn begin_now(&mut self) {
        self.look();
        for watched in self.pages.values_mut() {
            watched.before = watched.read().map(|r| total(&r.page));
        }
    }

    /// Takes the pages that were brought.
    pub fn take(&mut self) {
        while let Some(handed) = self.door.as_mut().and_then(Door::next) {
            self.add(Source::new(handed.pid, handed.command, handed.file));
        }
    }

    /// Opens the pages that are new; false if all processes have ended.
    pub fn look(&mut self) -> bool {
        self.take();
        let mut ask: Vec<i32> = self.family.iter().copied().collect();
        let mut alive = false;
        while let Some(pid) = ask.pop() {
            let Some(children) = children(pid) else {
                self.family.remove(&pid);
                continue;
            };
            alive = true;
            ask.extend(children.into_iter().filter(|&child| self.family.insert(child)));
            if self.pages.range((pid, 0)..=(pid, u64::MAX)).next().is_none()
                && let Ok(Some(source)) = pages::open(pid)
            {
                self.add(source);
            }
        }
        alive
    }

    fn add(&mut self, source: Source) {
        let key = (source.pid, source.page_number());
        self.pages.entry(key).or_insert(Watched { page: Page::Open(source), before: None });
        if self.pages.len() >= self.most && self.open() >= self.most {
            self.pages.values_mut().for_each(Watched::close);
            self.most = OPEN + self.open();
        }
    }

    fn open(&self) -> usize {
        self.pages.values().filter(|w| matches!(w.page, Page::Open(_))).count()
    }

    /// What all of them did.
    pub fn results(&self) -> Vec<Result> {
        let result = |w: &Watched| {
            let reading = w.read()?;
            let mut total = total(&reading.page);
            if let Some(before) = &w.before {
                total.subtract(before);
            }
            Some(Result { reading, total })
        };
        self.pages.values().filter_map(result).collect()
    }
}

impl Watched {
    fn read(&self) -> Option<Reading> {
        match &self.page {
            Page::Open(source) => source.read(),
            Page::Last(reading) => Some((**reading).clone()),
        }
    }

    /// Keeps what the page says, and not its memory, if its process is no more.
    fn close(&mut self) {
        let Page::Open(source) = &self.page else { return };
        let pid = Pid::from_raw(source.pid);
        let gone = pid.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
        if gone && let Some(reading) = source.read() {
            self.page = Page::Last(Box::new(reading));
        }
    }
}

/// The children of a process, of all its threads; none if it has ended.
fn children(pid: i32) -> Option<Vec<i32>> {
    // A zombie has nothing any more.
    if sys::has_ended(pid) {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let lists = threads.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
    let text = lists.collect::<Vec<String>>().join(" ");
    Some(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}
