//! IOCB_CMD_POLL and the events that it reports. A poll that finds its file ready reports the
//! requested events that are ready. A poll that had to wait reports what woke it (`aio_poll_wake`
//! in `fs/aio.c`): all that pipes and sockets tell their waiters when data or room come, requested
//! or not.

use super::check::has_storage;
use softring_host::calls::ioctl::is_terminal;
use softring_host::os::fs::{FileType, OFlags};
use softring_host::substitute::{epoll_add, epoll_create};
use softring_host::sys::nr::{
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDBAND, EPOLLRDHUP, EPOLLRDNORM,
    EPOLLWRBAND, EPOLLWRNORM,
};
use softring_host::sys::{self, EngineFd, borrow};
use softring_uapi::errno::{Errno, Result};

/// Events that come with a wake-up without flags: the kernel then asks the file.
const ENDED: u16 = (EPOLLERR | EPOLLHUP | EPOLLRDHUP) as u16;
/// Wake-up flags of sockets: `sock_def_readable`, `sk_stream_write_space`.
const OF_SOCKETS: [u16; 2] = [
    (EPOLLIN | EPOLLPRI | EPOLLRDNORM | EPOLLRDBAND) as u16,
    (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND) as u16,
];
/// Wake-up flags of pipes: `pipe_write`, `pipe_read`.
const OF_PIPES: [u16; 2] = [(EPOLLIN | EPOLLRDNORM) as u16, (EPOLLOUT | EPOLLWRNORM) as u16];

/// State of a poll after its submission.
pub(super) enum Poll {
    /// Events that are ready.
    Ready(u16),
    Waits(Wait),
}

/// A poll of a file that was not ready.
pub(super) struct Wait {
    events: u16,
    /// Events that end the wait: `events`, and absent ones that come with a wake-up for those.
    awaited: u16,
    /// Events that such a file tells its waiters when data come, and when room does.
    wakes: [u16; 2],
}

impl Poll {
    /// # Errors
    /// `EINVAL` if the file is not ready, and nobody can wait for such a file.
    pub(super) fn new(fd: i32, events: u16, flags: OFlags) -> Result<Poll> {
        let now = ready(fd, events);
        if now != 0 {
            return Ok(Poll::Ready(now));
        }
        let kind = softring_host::substitute::file_type(fd);
        if !can_be_awaited(fd, kind, flags) {
            return Err(Errno::EINVAL);
        }
        let wakes = match kind {
            Some(FileType::Socket) => OF_SOCKETS,
            Some(FileType::Fifo) => OF_PIPES,
            _ => [0; 2],
        };
        let data = if events & wakes[0] != 0 { wakes[0] & !ready(fd, wakes[0]) } else { 0 };
        Ok(Poll::Waits(Wait { events, awaited: events | data, wakes }))
    }

    /// Returns the events to report, after the wait for them if there is one.
    pub(super) fn result(&self, fd: i32) -> u16 {
        match self {
            Poll::Ready(events) => *events,
            Poll::Waits(wait) => wait.result(fd),
        }
    }
}

impl Wait {
    /// Waits; returns the events, or 0 if a signal ends the wait.
    fn result(&self, fd: i32) -> u16 {
        let mut awaited = self.awaited;
        loop {
            let Ok(woken) = sys::poll_wait(fd, awaited.cast_signed()).map(i16::cast_unsigned)
            else {
                return 0;
            };
            if ready(fd, ENDED) & ENDED == 0 {
                let all = self.wakes.into_iter().find(|wake| woken & wake != 0);
                return all.unwrap_or(woken);
            }
            match ready(fd, self.events) {
                // The end came with none of the requested events.
                0 => awaited = self.events,
                ready => return ready,
            }
        }
    }
}

/// Returns which of `events` are ready, and which are reported in any case.
fn ready(fd: i32, events: u16) -> u16 {
    sys::poll_now(fd, events.cast_signed()).cast_unsigned()
}

/// Returns whether a poll that does not find such a file ready can wait for it. It cannot if the
/// file has no wait queue, or two of them: `aio_poll` takes one.
fn can_be_awaited(fd: i32, kind: Option<FileType>, flags: OFlags) -> bool {
    match kind {
        Some(FileType::Fifo) => flags & OFlags::ACCMODE != OFlags::RDWR,
        Some(FileType::CharacterDevice) => !is_terminal(fd) && knows_poll(fd),
        _ => !has_storage(fd),
    }
}

/// Returns whether a device knows poll(2). Only an epoll set tells.
fn knows_poll(fd: i32) -> bool {
    let Ok(set) = epoll_create().map(EngineFd::from) else {
        return true;
    };
    let added = borrow(fd).map(|fd| epoll_add(&set, fd, 0, sys::EPOLLIN));
    added != Some(Err(Errno::EPERM))
}
