//! What a ring has for other rings, until its own lock is free: no ring's lock is waited for while
//! another's is held.

use std::sync::Arc;

use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ring::ctx::Ring;
use crate::ring::request::Poll;
use softring_host::fd::InternalFd;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

/// Something that concerns another ring, done when our own lock is free.
#[derive(Debug)]
pub struct Pending {
    /// The request that waits for it, once it has its place.
    pub from: Option<ReqId>,
    pub what: What,
}

/// What is to be delivered.
#[derive(Debug)]
pub enum What {
    /// A message.
    Msg(Arc<Ring>, Msg),
    /// A POLL_ADD on the ring behind `fd`.
    Poll(i32, Poll),
    /// An EPOLL_CTL of a ring.
    Epoll(EpollChange),
}

/// A message.
#[derive(Debug, Default)]
pub struct Msg {
    pub cqe: Cqe,
    /// The file that goes with it.
    pub file: Option<SentFile>,
    /// A worker sends it.
    pub by_worker: bool,
}

/// A file that goes to another ring.
#[derive(Debug)]
pub struct SentFile {
    /// A ring that takes no messages says so first.
    pub fd: Result<Arc<InternalFd>>,
    /// `file_index` of the SQE: slot + 1, or `IORING_FILE_INDEX_ALLOC`.
    pub index: u32,
    pub quiet: bool,
}

/// A change of an epoll set.
#[derive(Clone, Copy, Debug)]
pub struct EpollChange {
    pub epoll: i32,
    pub op: u32,
    pub fd: i32,
    pub event: epoll_event,
}
