//! The pages of a process and its children, held open so that they can be read when those have
//! ended.

use crate::stats::pages::{self, Reading, Source};
use crate::top::total;
use softring_engine::stats::read;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

#[derive(Debug)]
pub struct Watch {
    /// The first, and its children as far as they were seen.
    family: BTreeSet<i32>,
    pages: BTreeMap<i32, Watched>,
}

#[derive(Debug)]
struct Watched {
    source: Source,
    /// What it had done before we looked.
    before: Option<read::Ring>,
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
    /// The same for the first moments.
    pub const AT_FIRST: Duration = Duration::from_millis(1);

    pub fn new(pid: i32) -> Watch {
        Watch { family: BTreeSet::from([pid]), pages: BTreeMap::new() }
    }

    /// Only what is done from now on counts.
    pub fn begin_now(&mut self) {
        self.look();
        for watched in self.pages.values_mut() {
            watched.before = watched.source.read().map(|r| total(&r.page));
        }
    }

    /// Opens the pages that are new; false if all processes have ended.
    pub fn look(&mut self) -> bool {
        let mut ask: Vec<i32> = self.family.iter().copied().collect();
        let mut alive = false;
        while let Some(pid) = ask.pop() {
            let Some(children) = children(pid) else {
                self.family.remove(&pid);
                continue;
            };
            alive = true;
            ask.extend(children.into_iter().filter(|&child| self.family.insert(child)));
            if !self.pages.contains_key(&pid)
                && let Ok(Some(source)) = pages::open(pid)
            {
                self.pages.insert(pid, Watched { source, before: None });
            }
        }
        alive
    }

    /// What all of them did.
    pub fn results(&self) -> Vec<Result> {
        let result = |w: &Watched| {
            let reading = w.source.read()?;
            let mut total = total(&reading.page);
            if let Some(before) = &w.before {
                total.subtract(before);
            }
            Some(Result { reading, total })
        };
        self.pages.values().filter_map(result).collect()
    }
}

/// The children of a process, of all its threads; none if it has ended.
fn children(pid: i32) -> Option<Vec<i32>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A zombie has nothing any more.
    let state = stat.rsplit(')').next()?.split_whitespace().next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let lists = threads.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
    let text = lists.collect::<Vec<String>>().join(" ");
    Some(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}
