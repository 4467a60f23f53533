//! What the doors tell the engine about file descriptors, and what they may ask.
//!
//! The engine knows no C symbol. Whoever stands in front of it (the preload's wrappers of `close`, `dup` …)
//! reports what happens to ring descriptors through these calls.

/// Is `fd` a ring of ours?
pub fn is_ring(_fd: i32) -> bool {
    false
}

/// Is `fd` one of the engine's own descriptors (epoll sets, eventfds, duplicates), which the program must not close?
pub fn is_internal(_fd: i32) -> bool {
    false
}

/// The program is about to close `fd`. Call before the real `close(2)`, whatever `fd` is.
pub fn before_close(_fd: i32) {}

/// `new` has just become a duplicate of `old` (dup, dup2, dup3, F_DUPFD, F_DUPFD_CLOEXEC).
pub fn after_dup(_old: i32, _new: i32) {}

/// A descriptor that polls readable while ring `fd` has completions, to stand for it in epoll, poll and select;
/// `None` if `fd` is not a ring of ours.
pub fn poll_fd(_fd: i32) -> Option<i32> {
    None
}

/// Before `fork`: takes every lock so that the child finds a consistent engine.
pub fn fork_prepare() {}

/// After `fork`, in the parent.
pub fn fork_parent() {}

/// After `fork`, in the child: threads, epoll sets and aio contexts are gone and are rebuilt when needed.
pub fn fork_child() {}
