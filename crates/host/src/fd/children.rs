//! Children that have not closed yet what they inherit of the registered files
//! (`resources::deposit`). fork(2) returns before the child has run: until it has, it holds a port
//! that the parent gives up. So who gives up such a file waits for them ([`wait_for_closes`]).
//!
//! A pipe tells: a child has its end to write until it is through, and loses it also if it ends.
//! Where the fork failed nobody has it.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::fd::owned::{InternalFd, make_internal};

/// Nobody waits longer: the child may be stopped.
const LIMIT: Duration = Duration::from_secs(1);

/// The ends to read, of children that may not be through.
static CHILDREN: Mutex<Vec<Arc<InternalFd>>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<Arc<InternalFd>>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is the child of this pipe through, at `until` at the latest?
fn is_through(end: &InternalFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(end, PollFlags::empty())];
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            Ok(0) => return false,
            _ => return true,
        }
    }
}

/// Waits until no child has a registered file of this process's only because it has not run yet.
pub fn wait_for_closes() {
    let waiting = children().clone();
    if waiting.is_empty() {
        return;
    }
    let until = Instant::now() + LIMIT;
    for end in &waiting {
        is_through(end, until);
    }
    children().retain(|end| !waiting.iter().any(|other| Arc::ptr_eq(end, other)));
}

/// The list, held over a fork, and the pipe of the child that it makes.
#[derive(Debug)]
pub struct ListGuard {
    children: MutexGuard<'static, Vec<Arc<InternalFd>>>,
    pipe: Option<[InternalFd; 2]>,
}

/// Before a fork; `tell`: the child has something to close. Without a free number nobody waits.
pub fn fork_prepare(tell: bool) -> ListGuard {
    let mut children = children();
    let now = Instant::now();
    children.retain(|end| !is_through(end, now));
    let made = if tell { pipe_with(PipeFlags::CLOEXEC).ok() } else { None };
    ListGuard { children, pipe: made.map(|(read, write)| [read, write].map(make_internal)) }
}

impl ListGuard {
    /// After the fork, in the parent.
    pub fn fork_parent(mut self) {
        if let Some([read, write]) = self.pipe {
            drop(write);
            self.children.push(Arc::new(read));
        }
    }

    /// In the child, which is through: its siblings are its parent's.
    pub fn fork_child(mut self) {
        self.children.clear();
    }
}

/// In a child whose fork was noticed late.
pub fn forget() {
    // The lock may be held by a thread that is no more.
    if let Ok(mut children) = CHILDREN.try_lock() {
        children.clear();
    }
}
