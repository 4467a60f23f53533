//! The kernel objects of a poll set: an epoll instance, and the eventfd that ends a wait on it.
//! Tests without descriptors use a list of registrations instead, and supply the events of its
//! tokens themselves.

use super::poll::WakeFd;
use softring_host::calls::epoll;
use softring_host::fd::InternalFd;
use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};
use softring_host::{substitute, sys};
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

#[derive(Debug)]
pub(super) enum Instance {
    Epoll {
        epoll: InternalFd,
        wake: WakeFd,
    },
    #[cfg(all(test, not(loom)))]
    List(list::List),
}

impl Instance {
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let epoll = softring_host::fd::make_internal(substitute::epoll_create()?);
        let wake = WakeFd::new()?;
        substitute::epoll_add(&epoll, wake.as_fd(), 0, sys::EPOLLIN)?;
        Ok(Instance::Epoll { epoll, wake })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Instance::Epoll { epoll, .. } => epoll.as_fd(),
            #[cfg(all(test, not(loom)))]
            Instance::List(_) => unreachable!("no test asks a list for its descriptor"),
        }
    }

    /// Returns the descriptor's number; -1 if there is none.
    pub(super) fn number(&self) -> i32 {
        match self {
            Instance::Epoll { epoll, .. } => epoll.as_raw_fd(),
            #[cfg(all(test, not(loom)))]
            Instance::List(_) => -1,
        }
    }

    pub(super) fn wake(&self) -> &WakeFd {
        match self {
            Instance::Epoll { wake, .. } => wake,
            #[cfg(all(test, not(loom)))]
            Instance::List(_) => unreachable!("nobody waits on a list"),
        }
    }

    /// Calls epoll_ctl(2).
    pub(super) fn ctl(&self, op: usize, fd: i32, ev: &epoll_event) -> Result<()> {
        match self {
            Instance::Epoll { epoll, .. } => epoll::epoll_ctl(epoll.as_raw_fd(), op, fd, ev),
            #[cfg(all(test, not(loom)))]
            Instance::List(list) => list.ctl(op, fd, ev),
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod list {
    use core::cell::RefCell;
    use softring_host::calls::epoll::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
    use softring_host::sys::nr::{EPOLLERR, EPOLLHUP, EPOLLONESHOT};
    use softring_uapi::epoll_event;
    use softring_uapi::errno::{Errno, Result};
    use std::collections::BTreeMap;

    /// Registrations by number, as epoll would have them.
    #[derive(Debug, Default)]
    pub(crate) struct List(RefCell<BTreeMap<i32, epoll_event>>);

    impl List {
        pub(super) fn ctl(&self, op: usize, fd: i32, ev: &epoll_event) -> Result<()> {
            let mut all = self.0.borrow_mut();
            match (op, all.contains_key(&fd)) {
                (EPOLL_CTL_ADD, true) => return Err(Errno::EEXIST),
                (EPOLL_CTL_ADD, false) | (EPOLL_CTL_MOD, true) => all.insert(fd, *ev),
                (EPOLL_CTL_DEL, true) => all.remove(&fd),
                _ => return Err(Errno::ENOENT),
            };
            Ok(())
        }

        /// Returns the event that epoll reports when the file is `ready`, or `None` if the
        /// registration does not wait for it. Disarms a one-shot registration.
        pub(crate) fn tell(&self, fd: i32, ready: u32) -> Option<epoll_event> {
            let mut all = self.0.borrow_mut();
            let ev = all.get_mut(&fd).filter(|ev| ev.events != 0)?;
            let events = ready & (ev.events | EPOLLERR | EPOLLHUP);
            if events == 0 {
                return None;
            }
            if ev.events & EPOLLONESHOT != 0 {
                ev.events = 0;
            }
            Some(epoll_event { events, data: ev.data })
        }

        /// Returns the events that a number waits for; 0 if there are none.
        pub(crate) fn events(&self, fd: i32) -> u32 {
            self.0.borrow().get(&fd).map_or(0, |ev| ev.events)
        }
    }
}
