//! Children that have not yet closed the registered files that they inherit (`resources::deposit`).
//! fork(2) returns before the child has run; until then the child holds, say, a port that the
//! parent gives up. So a thread that gives up such a file waits for the children
//! ([`wait_for_closes`]).
//!
//! Each child holds the write end of a pipe until it has closed the files, or ends. If the fork
//! failed, nobody holds the write end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::os::fd::AsFd;
use crate::os::pipe::{PipeFlags, pipe_with};

use crate::fd::owned::{InternalFd, make_internal};
use crate::lock::{Mutex, MutexGuard};
use crate::time::Deadline;

/// Longest wait: the child may be stopped.
const LIMIT: Duration = Duration::from_secs(1);

/// Read ends of the pipes of children that may still have files to close.
static CHILDREN: Mutex<Vec<Arc<InternalFd>>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<Arc<InternalFd>>> {
    CHILDREN.lock()
}

/// Returns whether the child of this pipe has closed the files, or has ended, by `until`.
fn is_through(end: &InternalFd, until: Deadline) -> bool {
    loop {
        let left = until.left();
        let timeout = Timespec::of(left);
        let mut fds = [PollFd::from_borrowed_fd(end.as_fd(), PollFlags::empty())];
        match poll(&mut fds, timeout.as_ref()) {
            Err(softring_uapi::errno::Errno::EINTR) if !left.is_zero() => {}
            Ok(0) => return false,
            _ => return true,
        }
    }
}

/// Waits until no child holds a registered file of this process only because it has not run yet.
pub fn wait_for_closes() {
    let waiting = children().clone();
    if waiting.is_empty() {
        return;
    }
    let until = Deadline::after(LIMIT);
    for end in &waiting {
        is_through(end, until);
    }
    children().retain(|end| !waiting.iter().any(|other| Arc::ptr_eq(end, other)));
}

/// Guard of the list during a fork, with the pipe of the new child.
#[derive(Debug)]
pub struct ListGuard {
    children: MutexGuard<'static, Vec<Arc<InternalFd>>>,
    pipe: Option<[InternalFd; 2]>,
}

/// Locks the list before a fork. `tell`: the child has something to close, so a pipe is made.
/// Without a free number there is no pipe, and nobody waits.
pub fn fork_prepare(tell: bool) -> ListGuard {
    let mut children = children();
    let now = Deadline::after(Duration::ZERO);
    children.retain(|end| !is_through(end, now));
    let made = if tell { pipe_with(PipeFlags::CLOEXEC).ok() } else { None };
    ListGuard { children, pipe: made.map(|(read, write)| [read, write].map(make_internal)) }
}

impl ListGuard {
    /// Adds the child's pipe to the list, in the parent.
    pub fn fork_parent(mut self) {
        if let Some([read, write]) = self.pipe {
            drop(write);
            self.children.push(Arc::new(read));
        }
    }

    /// Empties the list in the child, whose files are closed: the other children are its parent's.
    pub fn fork_child(mut self) {
        self.children.clear();
    }
}

/// Empties the list in a child whose fork was noticed late.
pub fn forget() {
    // A thread that the child does not have may hold the lock.
    if let Some(mut children) = CHILDREN.try_lock() {
        children.clear();
    }
}
