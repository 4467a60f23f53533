//! Shapes of waits for a ring among other files, and events meanwhile.

use crate::case::Stop;
use crate::os_poll;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::{scope, sleep};
use std::time::Duration;

pub const SOON: Duration = Duration::from_millis(20);
/// Limit in ms of a wait that should end earlier.
pub const LONG: i32 = 3000;

/// Call by which a thread waits for a ring.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Poll,
    Ppoll,
    Select,
    Level,
    Edge,
}

pub const SHAPES: [Shape; 5] =
    [Shape::Poll, Shape::Ppoll, Shape::Select, Shape::Level, Shape::Edge];

impl Shape {
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Poll => "poll",
            Shape::Ppoll => "ppoll",
            Shape::Select => "select",
            Shape::Level => "a set",
            Shape::Edge => "a set, by edges",
        }
    }
}

/// Waits for `ring`, or for its set, at most `ms`; returns the number of ready files.
pub fn wait(shape: Shape, ring: i32, set: &Set, ms: i32) -> i32 {
    match shape {
        Shape::Poll | Shape::Ppoll => polled(shape, &[ring], ms),
        Shape::Select => os_poll::select(ring, ms),
        Shape::Level | Shape::Edge => set.wait(ms).len() as i32,
    }
}

pub fn polled(shape: Shape, fds: &[i32], ms: i32) -> i32 {
    if shape == Shape::Ppoll { os_poll::ppoll(fds, ms) } else { os_poll::poll(fds, ms) }
}

/// An epoll set of the program's own.
pub struct Set(pub OwnedFd);

impl Set {
    pub fn new() -> Result<Set, Stop> {
        Ok(Set(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn with(shape: Shape, fd: i32) -> Result<Set, Stop> {
        let set = Set::new()?;
        let edge = if shape == Shape::Edge { libc::EPOLLET } else { 0 };
        set.ctl(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN | edge, 7);
        Ok(set)
    }

    pub fn ctl(&self, op: i32, fd: i32, events: i32, data: u64) -> i32 {
        os_poll::epoll_ctl(self.0.as_raw_fd(), op, fd, events, data)
    }

    /// Waits, and returns the data of the ready files.
    pub fn wait(&self, ms: i32) -> Vec<u64> {
        self.wait_for(8, ms)
    }

    pub fn wait_for(&self, max: i32, ms: i32) -> Vec<u64> {
        self.events(max, ms).into_iter().map(|(_, data)| data).collect()
    }

    /// Waits, and returns the events of the ready files.
    pub fn wait_events(&self, ms: i32) -> Vec<i32> {
        self.events(8, ms).into_iter().map(|(events, _)| events.cast_signed()).collect()
    }

    fn events(&self, max: i32, ms: i32) -> Vec<(u32, u64)> {
        loop {
            // The kernel's task work ends the wait (EINTR).
            match os_poll::epoll_wait(self.0.as_raw_fd(), max, ms) {
                (-1, _) => {}
                (_, events) => return events,
            }
        }
    }
}

/// Runs `act` in another thread, some time after this one has begun `wait`.
pub fn while_waiting<T>(wait: impl FnOnce() -> T, act: impl FnOnce() + Send) -> T {
    scope(|s| {
        s.spawn(|| {
            sleep(SOON);
            act();
        });
        wait()
    })
}

/// Sends the calling thread a signal, some time after it has begun `wait`.
pub fn signalled<T>(wait: impl FnOnce() -> T) -> T {
    let me = os_poll::thread();
    while_waiting(wait, move || os_poll::signal_thread(me))
}

/// Writes a byte into a pipe.
pub fn feed(w: &OwnedFd) {
    let _ = rustix::io::write(w, b"x");
}
