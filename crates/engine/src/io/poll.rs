//! The poll set: an epoll instance per ring. Runs on the thread that drives the ring; only `wait`
//! may block.
//!
//! epoll knows a file by the number that it was added under. One of the requests that wait for a
//! file is registered under the file's own number: the program's, or that of its slot in the table
//! of registered files. An event disarms the registration (one-shot) and leaves it in the set, so
//! that the next request only changes it (EPOLL_CTL_MOD), at a fifth of the cost of adding and
//! removing. The registration keeps no file open: it goes with the last descriptor of its file. The
//! other requests, and those that stay armed after an event, are registered under a duplicate each.
//!
//! The program may close its number, and open another file under it. Then the kernel does not know
//! the registration, and a new one is made; the earlier request goes on under the old file. A
//! registration left armed that way names a request that no longer exists, and reports it once.
//!
//! The ring's wake eventfd is in the set, too, under data 0: signalling it ends a wait.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::epoll::Instance;
use crate::io::peers::Peers;
use crate::io::persistent::Registration;
use crate::io::token::ReqId;
use softring_host::calls::epoll;
use softring_host::fd::InternalFd;
use softring_host::limits::ONE_SHOTS_MAX;
use softring_host::substitute;
use softring_host::sys;
use softring_host::sys::nr::{EPOLLET, EPOLLNVAL, EPOLLONESHOT};
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Events taken from the set at once.
pub(crate) const BATCH: usize = 64;

/// Bits of a mask that mean events.
pub(crate) const EVENTS: u32 = 0x27ff;

/// Returns the epoll events of a request's events.
pub(crate) const fn epoll_events(events: u32) -> u32 {
    let how = if events & EPOLLONESHOT != 0 { EPOLLONESHOT } else { EPOLLET };
    events & (EVENTS & !EPOLLNVAL) | how
}

/// The one-shot registration of a file number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OneShot {
    /// The number is not in the set.
    #[default]
    Absent,
    /// A request waits for the number.
    Armed,
    /// An event has disarmed the registration; the number is still in the set.
    Disarmed,
}

/// The eventfd that ends a wait on a poll set; it may outlive the set.
#[derive(Clone, Debug)]
pub(crate) struct WakeFd(Arc<InternalFd>);

impl WakeFd {
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn new() -> Result<WakeFd> {
        let fd = substitute::eventfd()?;
        Ok(WakeFd(Arc::new(softring_host::fd::make_internal(fd))))
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears earlier signals.
    pub(crate) fn clear(&self) {
        let mut buf = [0u8; 8];
        let _ = softring_host::os::io::read(&*self.0, &mut buf);
    }

    /// Ends a wait in progress, or the next one.
    pub(crate) fn signal(&self) {
        softring_host::fd::check_now_and_then();
        let _ = softring_host::os::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The poll set of one ring.
#[derive(Debug)]
pub(crate) struct PollSet {
    instance: Instance,
    /// The eventfd that aio completions signal; edge-triggered, so that it need not be read.
    aio: Option<InternalFd>,
    /// The timer that reports steps of the clock; edge-triggered as well.
    pub(super) clock: Option<InternalFd>,
    pub(super) armed: u32,
    /// Registrations by number.
    pub(super) registrations: Vec<Registration>,
    /// Apart from the set, which is moved as a part of its ring.
    pub(crate) peers: Box<Peers>,
    /// Flag, set if a request began to wait on a registration since the last check.
    pub(super) unchecked: bool,
    /// One-shots by number; those from [`ONE_SHOTS_MAX`] on are only a request's own.
    one_shots: Vec<OneShot>,
    /// Flag, set if the kernel can tell whether two numbers mean the same open file.
    pub(crate) compares: bool,
    /// Memory for the events of a sleep, while no thread sleeps: to zero it takes as long as a
    /// small system call.
    events: Option<Events>,
}

/// Memory for the events that a sleep takes.
pub(crate) type Events = Box<[epoll_event; BATCH]>;

/// epoll_event data of the aio eventfd; no request has this name.
pub(crate) const AIO_DATA: u64 = u64::MAX;

impl PollSet {
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self::of(Instance::new()?))
    }

    /// Creates a set without a descriptor.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn of_tokens() -> Self {
        Self::of(Instance::List(super::epoll::list::List::default()))
    }

    fn of(instance: Instance) -> Self {
        let (registrations, one_shots) = (Vec::new(), Vec::new());
        let (armed, unchecked, compares) = (0, false, true);
        let (aio, clock) = (None, None);
        let (peers, events) = (Box::default(), None);
        PollSet {
            instance,
            aio,
            clock,
            armed,
            registrations,
            peers,
            unchecked,
            one_shots,
            compares,
            events,
        }
    }

    /// Takes the memory for the events of a sleep.
    pub(crate) fn take_buffer(&mut self) -> Events {
        self.events.take().unwrap_or_else(|| Box::new([epoll_event::default(); BATCH]))
    }

    /// Gives the memory back for the next sleep.
    pub(crate) fn give_buffer(&mut self, events: Events) {
        self.events = Some(events);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.instance.fd()
    }

    /// Returns the number of [`Self::fd`]; -1 if there is none.
    pub(crate) fn number(&self) -> i32 {
        self.instance.number()
    }

    /// Returns the list that tests use in place of epoll.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn list(&self) -> Option<&super::epoll::list::List> {
        match &self.instance {
            Instance::List(list) => Some(list),
            Instance::Epoll { .. } => None,
        }
    }

    /// Returns the number of requests in the set.
    pub(crate) fn armed(&self) -> u32 {
        self.armed
    }

    pub(super) fn ctl(&self, op: usize, fd: i32, events: u32, data: u64) -> Result<()> {
        let ev = epoll_event { events, data };
        self.instance.ctl(op, fd, &ev)
    }

    /// Returns whether `fd` can be polled.
    pub(crate) fn takes(&self, fd: i32) -> bool {
        let added = self.ctl(epoll::EPOLL_CTL_ADD, fd, 0, 0);
        if added.is_ok() {
            let _ = self.ctl(epoll::EPOLL_CTL_DEL, fd, 0, 0);
        }
        added != Err(Errno::EPERM)
    }

    fn one_shot(&self, fd: i32) -> OneShot {
        let one_shot = usize::try_from(fd).ok().and_then(|fd| self.one_shots.get(fd));
        one_shot.copied().unwrap_or_default()
    }

    fn set_one_shot(&mut self, fd: i32, one_shot: OneShot) {
        let Some(at) = usize::try_from(fd).ok().filter(|&at| at < ONE_SHOTS_MAX) else { return };
        if at >= self.one_shots.len() {
            self.one_shots.resize(at + 1, OneShot::Absent);
        }
        self.one_shots[at] = one_shot;
    }

    /// Forgets the one-shot registration of `fd`.
    pub(super) fn forget_one_shot(&mut self, fd: i32) {
        if self.one_shot(fd) != OneShot::Absent {
            self.set_one_shot(fd, OneShot::Absent);
        }
    }

    /// Returns whether a one-shot request may be registered under the file's own number.
    pub(crate) fn is_free(&self, fd: i32) -> bool {
        let known = usize::try_from(fd).is_ok_and(|fd| fd < ONE_SHOTS_MAX);
        known && self.one_shot(fd) != OneShot::Armed && !self.is_registered(fd)
    }

    /// Returns whether no one-shot request is armed under `fd`.
    pub(super) fn is_not_armed(&self, fd: i32) -> bool {
        self.one_shot(fd) != OneShot::Armed
    }

    /// Waits for `events` in the name of `id`: under the number `at`, if it is given, free, and
    /// still means the file of `own`; else under `own`. Returns the number used.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be polled; `EEXIST` if another request is registered under
    /// `own`; `ENOMEM`, `ENOSPC`.
    pub(crate) fn add(&mut self, at: Option<i32>, own: i32, events: u32, id: ReqId) -> Result<i32> {
        if let Some(at) = at
            && self.enter(at, events, id).is_ok()
        {
            if self.same(at, own) {
                return Ok(at);
            }
            self.del(at);
        }
        self.enter(own, events, id)?;
        Ok(own)
    }

    fn enter(&mut self, fd: i32, events: u32, id: ReqId) -> Result<()> {
        let data = id.to_u64();
        let one_shot = self.one_shot(fd);
        let done = match one_shot {
            OneShot::Armed => Err(Errno::EEXIST),
            OneShot::Disarmed => self.ctl(epoll::EPOLL_CTL_MOD, fd, events, data),
            OneShot::Absent => self.ctl(epoll::EPOLL_CTL_ADD, fd, events, data),
        };
        match done {
            // The number means another file by now.
            Err(Errno::ENOENT) if one_shot == OneShot::Disarmed => {
                self.ctl(epoll::EPOLL_CTL_ADD, fd, events, data)?;
            }
            // The number meant this file once, and another since.
            Err(Errno::EEXIST) if self.is_free(fd) => {
                self.ctl(epoll::EPOLL_CTL_MOD, fd, events, data)?;
            }
            done => done?,
        }
        self.set_one_shot(fd, OneShot::Armed);
        self.armed += 1;
        Ok(())
    }

    /// Returns whether both numbers mean the same open file.
    fn same(&mut self, at: i32, own: i32) -> bool {
        let same = if at == own { Some(true) } else { sys::same_open_file(at, own) };
        self.compares &= same.is_some();
        same == Some(true)
    }

    /// Waits again, for other events or under a new name; returns the number used.
    ///
    /// # Errors
    /// Those of [`Self::add`]; then the request is not registered any more.
    pub(crate) fn modify(&mut self, at: i32, own: i32, events: u32, id: ReqId) -> Result<i32> {
        let done = self.ctl(epoll::EPOLL_CTL_MOD, at, events, id.to_u64());
        if done.is_ok() && self.same(at, own) {
            return Ok(at);
        }
        self.del(at);
        if at == own {
            done?;
        }
        self.add(None, own, events, id)
    }

    /// Removes the registration of `fd`.
    pub(crate) fn del(&mut self, fd: i32) {
        let gone = self.ctl(epoll::EPOLL_CTL_DEL, fd, 0, 0).is_ok();
        let tracked = usize::try_from(fd).is_ok_and(|fd| fd < ONE_SHOTS_MAX);
        if if tracked { self.one_shot(fd) == OneShot::Armed } else { gone } {
            self.armed -= 1;
        }
        self.set_one_shot(fd, OneShot::Absent);
    }

    /// Leaves the registration of `fd`, disarmed by an event, for the next request.
    pub(crate) fn leave(&mut self, fd: i32) {
        if self.one_shot(fd) != OneShot::Armed {
            return self.del(fd);
        }
        self.set_one_shot(fd, OneShot::Disarmed);
        self.armed -= 1;
    }

    /// Returns the eventfd that aio completions signal, adding it to the set if needed.
    #[inline]
    pub(crate) fn aio_fd(&mut self) -> Option<i32> {
        if self.aio.is_none() {
            let fd = substitute::eventfd().ok()?;
            let fd = softring_host::fd::make_internal(fd);
            softring_host::substitute::epoll_add(
                self.instance.fd(),
                &fd,
                AIO_DATA,
                sys::EPOLLIN | sys::EPOLLET,
            )
            .ok()?;
            self.aio = Some(fd);
        }
        self.aio.as_ref().map(|fd| fd.as_raw_fd())
    }

    pub(crate) fn wake_fd(&self) -> &WakeFd {
        self.instance.wake()
    }

    /// Clears earlier signals.
    pub(crate) fn clear_wake(&self) {
        self.instance.wake().clear();
    }
}

/// Waits on a poll set without its ring's lock, for at most `timeout_ns` (`None`: for ever), under
/// `sigmask`.
///
/// # Errors
/// `EINTR` when a signal came.
pub(crate) fn wait(
    epoll: i32,
    buf: &mut [epoll_event; BATCH],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    if timeout_ns == Some(0) && sigmask.is_none() {
        return substitute::epoll_now(epoll, buf);
    }
    substitute::epoll_wait(epoll, buf, timeout_ns, sigmask)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use softring_host::os::fd::OwnedFd;

    const IN_ONCE: u32 = 1 | 1 << 30;

    fn pipe() -> Result<(OwnedFd, OwnedFd)> {
        softring_host::os::pipe::pipe_with(Default::default())
    }

    fn id(n: u64) -> ReqId {
        ReqId::from_u64(1 << 32 | n)
    }

    /// Makes number `n` mean the file of `other`.
    fn become_file(n: i32, other: i32) {
        assert_eq!(softring_host::calls::files::dup2(other, n), Ok(n as usize));
    }

    /// Returns the requests that have an event now.
    fn ready_ids(set: &PollSet) -> Vec<u64> {
        let mut buf = [epoll_event::default(); BATCH];
        let n = wait(set.fd().as_raw_fd(), &mut buf, Some(0), None).unwrap();
        let mut ids: Vec<_> = buf[..n].iter().map(|e| e.data & 0xffff_ffff).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn registrations_are_found_by_number() {
        let mut set = PollSet::new().unwrap();
        let ((r, w), (r2, w2)) = (pipe().unwrap(), pipe().unwrap());
        let n = r.as_raw_fd();
        let own = softring_host::fd::dup_internal(n).unwrap();
        let number = own.as_raw_fd();
        assert!(set.is_free(n));
        assert_eq!(set.add(Some(n), number, IN_ONCE, id(1)), Ok(n));
        assert!(!set.is_free(n));
        assert_eq!(set.add(None, number, IN_ONCE, id(2)), Ok(number));
        assert_eq!(set.add(None, n, IN_ONCE, id(3)), Err(Errno::EEXIST));
        assert_eq!(set.armed(), 2);
        softring_host::os::io::write(&w, b"x").unwrap();
        assert_eq!(ready_ids(&set), [1, 2]);
        set.leave(n);
        set.del(number);
        assert_eq!((set.armed(), ready_ids(&set).len()), (0, 0));

        // The number means another file than `own`, and is not used.
        become_file(n, r2.as_raw_fd());
        assert_eq!(set.add(Some(n), number, IN_ONCE, id(4)), Ok(number));
        assert_eq!(ready_ids(&set), [4]);
        set.del(number);
        assert_eq!(set.add(Some(n), n, IN_ONCE, id(5)), Ok(n));
        assert_eq!(ready_ids(&set), [] as [u64; 0]);
        softring_host::os::io::write(&w2, b"x").unwrap();
        assert_eq!(ready_ids(&set), [5]);
        assert_eq!(set.modify(n, n, IN_ONCE, id(6)), Ok(n));
        assert_eq!(ready_ids(&set), [6]);
        set.leave(n);

        // The number means the first file again, whose registration is still there.
        become_file(n, own.as_raw_fd());
        assert_eq!(set.add(Some(n), number, IN_ONCE, id(7)), Ok(n));
        assert_eq!(ready_ids(&set), [7]);
        // The number means another file by now, so the request goes on under its own.
        become_file(n, r2.as_raw_fd());
        assert_eq!(set.modify(n, number, IN_ONCE, id(8)), Ok(number));
        assert_eq!(ready_ids(&set), [8]);
        set.del(number);
        assert_eq!(set.armed(), 0);
    }
}
