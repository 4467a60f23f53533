//! The poll set: an epoll instance per ring. Runs on whoever drives the ring; only `wait` may
//! block.
//!
//! Each request stands in the set under a descriptor of its own (a duplicate), so one file may be
//! awaited by many requests. The ring's wake eventfd stands in it too, under data 0: a kick ends a
//! wait.

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::errno::{Errno, Result};
use crate::fds::InternalFd;
use crate::req::slab::ReqId;
use crate::sys;

/// Events taken from the set at once.
pub const BATCH: usize = 64;

/// One event, as epoll_wait(2) gives it.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    pub events: u32,
    pub data: u64,
}

/// The poll set of one ring.
#[derive(Debug)]
pub struct PollSet {
    epoll: InternalFd,
    wake: InternalFd,
    /// Signalled by aio completions; edge-triggered, so that nobody need read it.
    aio: Option<InternalFd>,
    armed: u32,
}

/// Event data of the aio eventfd; no request is named so.
pub const AIO_DATA: u64 = u64::MAX;

impl PollSet {
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self> {
        let set = crate::fds::adopt_internal(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = crate::fds::adopt_internal(wake);
        epoll::add(&set, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(PollSet { epoll: set, wake, aio: None, armed: 0 })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Requests in the set.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    fn ctl(&self, op: usize, fd: i32, events: u32, data: u64) -> Result<()> {
        let ev = Event { events, data };
        sys::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &ev)
    }

    /// # Errors
    /// `EPERM` for a file that cannot be polled; `ENOMEM`, `ENOSPC`.
    pub fn add(&mut self, fd: i32, events: u32, id: ReqId) -> Result<()> {
        self.ctl(sys::EPOLL_CTL_ADD, fd, events, id.to_u64())?;
        self.armed += 1;
        Ok(())
    }

    /// Waits again, under a new name.
    ///
    /// # Errors
    /// `ENOENT` if it is not in the set.
    pub fn modify(&mut self, fd: i32, events: u32, id: ReqId) -> Result<()> {
        self.ctl(sys::EPOLL_CTL_MOD, fd, events, id.to_u64())
    }

    pub fn del(&mut self, fd: i32) {
        if self.ctl(sys::EPOLL_CTL_DEL, fd, 0, 0).is_ok() {
            self.armed -= 1;
        }
    }

    /// The eventfd that aio completions signal, in the set from now on.
    pub fn aio_fd(&mut self) -> Option<i32> {
        if self.aio.is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let fd = crate::fds::adopt_internal(fd);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(AIO_DATA), flags).ok()?;
            self.aio = Some(fd);
        }
        self.aio.as_ref().map(|fd| fd.as_raw_fd())
    }

    /// Ends a wait in progress, or the next one.
    pub fn kick(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Forgets earlier kicks.
    pub fn clear_kick(&self) {
        let mut buf = [0u8; 8];
        let _ = rustix::io::read(&self.wake, &mut buf);
    }
}

/// Waits on a poll set without holding its ring's lock: for `timeout_ns` at most (`None`: for
/// ever), under `sigmask`.
///
/// # Errors
/// `EINTR` when a signal came.
pub fn wait(
    epoll: i32,
    buf: &mut [Event; BATCH],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    match sys::epoll_pwait2(epoll, buf, timeout_ns, sigmask) {
        Err(Errno::ENOSYS) => sys::epoll_pwait(epoll, buf, timeout_ns, sigmask),
        r => r,
    }
}
