//! A process and its children, as `/proc` shows them.

use crate::sys;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

/// The first process, and its children as far as they were seen.
#[derive(Debug)]
pub struct Family(BTreeSet<i32>);

impl Family {
    pub fn of(pid: i32) -> Family {
        Family(BTreeSet::from([pid]))
    }

    /// Adds new children; returns the processes of the family that live.
    pub fn update(&mut self) -> Vec<i32> {
        let mut ask: Vec<i32> = self.0.iter().copied().collect();
        let mut alive = Vec::new();
        while let Some(pid) = ask.pop() {
            let Some(children) = children(pid) else {
                self.0.remove(&pid);
                continue;
            };
            alive.push(pid);
            ask.extend(children.into_iter().filter(|&child| self.0.insert(child)));
        }
        alive
    }
}

/// Returns the children of a process, of all its threads; None if it has ended.
fn children(pid: i32) -> Option<Vec<i32>> {
    // A zombie has no children any more.
    if sys::has_ended(pid) {
        return None;
    }
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        // Another error, as for want of a descriptor: the process lives, and can be asked again.
        threads => threads.into_iter().flatten(),
    };
    let lists = threads.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
    let text = lists.collect::<Vec<String>>().join(" ");
    Some(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}
