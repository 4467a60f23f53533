//! The registered eventfd. Kernel counterpart: `io_uring/eventfd.c`.

use crate::fds::InternalFd;

/// An eventfd that is signalled when CQEs are posted.
#[derive(Debug)]
pub struct EventFd {
    pub fd: InternalFd,
    /// Only for completions that did not happen inline (`IORING_REGISTER_EVENTFD_ASYNC`).
    pub only_async: bool,
}
