//! What a ring has for other rings, until its own lock is free: no ring's lock is waited for while
//! another's is held.

use std::sync::Arc;

use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ring::ctx::Ring;
use softring_host::fd::InternalFd;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

/// Something that concerns another ring, done when our own lock is free.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The request that waits for it, once it has its place.
    pub(crate) from: Option<ReqId>,
    pub(crate) what: What,
}

/// What is to be delivered.
#[derive(Debug)]
pub(crate) enum What {
    /// A message.
    Msg(Arc<Ring>, Msg),
    /// A POLL_ADD on the ring behind that number, for these `EPOLL*` events.
    Poll(i32, u32),
    /// An EPOLL_CTL of a ring.
    Epoll(EpollChange),
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Msg {
    pub(crate) cqe: Cqe,
    /// The file that goes with it.
    pub(crate) file: Option<SentFile>,
    /// A worker sends it.
    pub(crate) by_worker: bool,
}

/// A file that goes to another ring.
#[derive(Debug)]
pub(crate) struct SentFile {
    /// A ring that takes no messages says so first.
    pub(crate) fd: Result<Arc<InternalFd>>,
    /// `file_index` of the SQE: slot + 1, or `IORING_FILE_INDEX_ALLOC`.
    pub(crate) index: u32,
    pub(crate) quiet: bool,
}

/// A change of an epoll set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpollChange {
    pub(crate) epoll: i32,
    pub(crate) op: u32,
    pub(crate) fd: i32,
    pub(crate) event: epoll_event,
}
