//! epoll(7) with rings in a set. A ring's memfd cannot be polled, so the set holds the ring's
//! eventfd, its *stand-in*.
//!
//! | member | the set has | completions are found by |
//! |---|---|---|
//! | quiet | the stand-in without events | the thread that waits on the set and drives the ring |
//! | revealed | the stand-in with the program's events | all: each poster signals the stand-in |
//!
//! A member is quiet where each wait on the set comes through here: call sites that bypass us, and
//! other ways to wait for the set, reveal it ([`softring_host::fd::sets`]). A second thread that
//! waits on the set does, too, as a ring has one driver.
//!
//! A ring is readable while it holds completions; an eventfd stays readable until it is read. So
//! the engine updates the stand-ins of revealed members before each wait on the set, or on another
//! that may have the set as a member.
#![allow(unsafe_code)]

use super::wait::Limit;
use super::{epoll_wait, older, visible};
use crate::gate::watched;
use crate::raw::{self, raw};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use libc::epoll_event;
use libc::{EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDNORM, EPOLLWRNORM};
use softring_engine::fds::{self, MOST, Report};
use softring_host::fd::{self, numbers, sets};
use softring_host::handlers::Call;
use softring_host::sync::real::{Mutex, MutexGuard};
use softring_host::user;

const READABLE: u32 = (EPOLLIN | EPOLLRDNORM) as u32;
const WRITABLE: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
/// Times that a member is revealed for a second waiter before it stays so.
const PATIENCE: u32 = 3;

/// A ring in a set.
pub(super) struct Member {
    /// Id of the set, which may have several numbers.
    pub set: u32,
    pub ring: c_int,
    /// Descriptor that represents the ring in the set.
    stand_in: c_int,
    pub event: epoll_event,
    /// Flag, set in a forked child: the set is its parent's, too, where the ring stays open.
    inherited: bool,
    pub quiet: bool,
    /// False after the event of an EPOLLONESHOT member.
    pub enabled: bool,
    /// State of the ring when it was last reported.
    pub last: Option<Report>,
    reveals: u32,
}

struct Sets {
    /// Thread that uses the list, or forks; 0: none.
    taken: AtomicUsize,
    /// Thread that forks, for which the list is taken, and its forks: handlers may fork in a fork.
    forks: AtomicUsize,
    depth: AtomicU32,
    /// Used only by the thread that has set `taken`, so never waited for.
    members: Mutex<Vec<Member>>,
    /// Threads that wait on sets, by the set's id.
    waiters: [AtomicU32; 64],
    /// Threads that began to wait on a set before the process had a ring.
    early: AtomicU32,
    /// Flag, set once /proc has been searched for waits that nobody has counted.
    searched: AtomicBool,
}

static SETS: Sets = Sets {
    taken: AtomicUsize::new(0),
    forks: AtomicUsize::new(0),
    depth: AtomicU32::new(0),
    members: Mutex::new(Vec::new()),
    waiters: [const { AtomicU32::new(0) }; 64],
    early: AtomicU32::new(0),
    searched: AtomicBool::new(false),
};

/// The list of members. Handlers of the program run when this is dropped: one may use the list, or
/// never return.
pub(super) struct Members {
    list: Option<MutexGuard<'static, Vec<Member>>>,
    /// Flag, true if the list is to be given back: it was not taken for a fork of this thread.
    gives_back: bool,
    _call: Call,
}

pub(super) fn members() -> Members {
    let call = Call::begin();
    let gives_back = !forks_here();
    if gives_back {
        take_list();
    }
    let list = SETS.members.lock();
    Members { list: Some(list), gives_back, _call: call }
}

/// Returns whether the calling thread is in a fork, which has taken the list.
fn forks_here() -> bool {
    SETS.forks.load(Ordering::Relaxed) == softring_host::sys::thread()
}

fn take_list() {
    let me = softring_host::sys::thread();
    let take = || SETS.taken.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
    while take().is_err() {
        softring_host::threads::yield_now();
    }
}

/// Takes the list unless the calling thread has it: in a handler that softring does not know of.
/// A holder that has lost its processor is waited for: a set that is not revealed while another
/// thread waits on it would sleep for ever.
pub(super) fn members_soon() -> Option<Members> {
    let mine = SETS.taken.load(Ordering::Relaxed) == softring_host::sys::thread();
    (!mine || forks_here()).then(members)
}

impl Drop for Members {
    fn drop(&mut self) {
        self.list = None;
        if self.gives_back {
            SETS.taken.store(0, Ordering::Release);
        }
    }
}

impl Deref for Members {
    type Target = Vec<Member>;

    fn deref(&self) -> &Vec<Member> {
        self.list.as_ref().expect("the list is held until the end")
    }
}

impl DerefMut for Members {
    fn deref_mut(&mut self) -> &mut Vec<Member> {
        self.list.as_mut().expect("the list is held until the end")
    }
}

/// Keeps the list whole over a fork.
pub fn fork_prepare() {
    if !forks_here() {
        take_list();
        SETS.forks.store(softring_host::sys::thread(), Ordering::Relaxed);
    }
    SETS.depth.fetch_add(1, Ordering::Relaxed);
}

/// Ends what [`fork_prepare`] has begun, in the parent and in the child.
pub fn forked(child: bool) {
    if child {
        forget_parent();
    }
    if SETS.depth.fetch_sub(1, Ordering::Relaxed) == 1 {
        free_list();
    }
}

/// Frees the list in a child that was forked past the C library: no other thread is there.
pub fn forked_unseen() {
    forget_parent();
    SETS.depth.store(0, Ordering::Relaxed);
    free_list();
}

/// Forgets the threads of the parent, and notes that sets and rings are its own as well.
fn forget_parent() {
    if let Some(mut list) = SETS.members.try_lock() {
        list.iter_mut().for_each(|m| m.inherited = true);
    }
    SETS.waiters.iter().chain([&SETS.early]).for_each(|n| n.store(0, Ordering::SeqCst));
}

fn free_list() {
    SETS.forks.store(0, Ordering::Relaxed);
    SETS.taken.store(0, Ordering::Release);
}

fn waiters(set: u32) -> &'static AtomicU32 {
    &SETS.waiters[set as usize % 64]
}

/// `epoll_ctl(2)`: control interface for an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    raw::libc_answer(by_number(epfd, op, fd, event.expose_provenance())) as c_int
}

/// Handles epoll_ctl(2) by number.
pub fn by_number(epfd: c_int, op: c_int, fd: c_int, event: usize) -> isize {
    match watched() && fd::is_ring(fd) {
        true => control_ring(epfd, op, fd, event),
        false => control(epfd, op, fd, event),
    }
}

fn control(epfd: c_int, op: c_int, fd: c_int, at: usize) -> isize {
    if op == libc::EPOLL_CTL_ADD {
        sets::share(fd);
    }
    // SAFETY: the program's own call, with its own pointer.
    unsafe { raw!(libc::SYS_epoll_ctl, visible(epfd), op, visible(fd), at) }
}

/// Handles epoll_ctl(2) of ring `fd`.
fn control_ring(epfd: c_int, op: c_int, fd: c_int, at: usize) -> isize {
    let mut bytes = [0u8; size_of::<epoll_event>()];
    let read = user::read_slice(at as u64, &mut bytes).is_ok();
    // SAFETY: an event is plain bytes.
    let event: epoll_event = unsafe { core::mem::transmute(bytes) };
    let mut list = members();
    list.retain(|m| fd::is_ring(m.ring));
    let set = sets::id(epfd);
    let known = list.iter().position(|m| (m.set, m.ring) == (set, fd));
    let adds = op != libc::EPOLL_CTL_DEL;
    if SETS.early.load(Ordering::SeqCst) == 0 {
        share_waited_for();
    }
    let quiet =
        adds && read && sets::can_be_quiet(epfd) && may_be_quiet(&list, set, fd, event.events, 0);
    let stand_in = match known {
        Some(i) if !adds => Some(list[i].stand_in),
        _ if quiet || !adds => fds::stand_in(fd),
        _ => fds::set_fd(fd),
    };
    let Some(stand_in) = stand_in else { return control(epfd, op, fd, at) };
    let silent = epoll_event { events: 0, u64: event.u64 };
    let at = if quiet { (&raw const silent).expose_provenance() } else { at };
    // SAFETY: the program's own call, with its own pointer or an event of ours.
    let ret = unsafe { raw!(libc::SYS_epoll_ctl, visible(epfd), op, stand_in, at) };
    if ret == 0 {
        let reveals = known.map_or(0, |i| list.swap_remove(i).reveals);
        if adds {
            let (ring, enabled, last) = (fd, true, None);
            let inherited = false;
            list.push(Member {
                set,
                ring,
                stand_in,
                event,
                inherited,
                quiet,
                enabled,
                last,
                reveals,
            });
        }
        mark(&list, set);
    }
    ret
}

/// Has the sets shared that nobody has counted the waits of; false if that has been done before.
fn share_waited_for() -> bool {
    let first = !SETS.searched.swap(true, Ordering::SeqCst);
    if first {
        let counted = |set| waiters(sets::id(set)).load(Ordering::SeqCst) > 0;
        older::waited_for().into_iter().filter(|&set| !counted(set)).for_each(sets::share);
    }
    first
}

/// Returns whether the set may do without the ring's events: each wait comes through here, no more
/// than `waiting` threads wait now, and a waiting thread can drive the ring.
fn may_be_quiet(list: &[Member], set: u32, ring: c_int, events: u32, waiting: u32) -> bool {
    let others = |m: &&Member| m.set == set && m.ring != ring && m.quiet;
    let gave_up = |m: &Member| (m.set, m.ring) == (set, ring) && m.reveals >= PATIENCE;
    tells_of_wakes(events)
        && numbers::closes_all_reported()
        && SETS.early.load(Ordering::SeqCst) == 0
        && !share_waited_for()
        && waiters(set).load(Ordering::SeqCst) == waiting
        && list.iter().filter(others).count() < MOST
        && !list.iter().any(gave_up)
        && fds::can_drive(ring)
}

/// Returns whether a member that asks for these events is told of each wake-up of its ring, and of
/// nothing else. Without EPOLLIN it is told of none; EPOLLEXCLUSIVE has rules of its own.
fn tells_of_wakes(events: u32) -> bool {
    let room_alone = events & WRITABLE != 0 && events & READABLE == 0;
    !room_alone && events & EPOLLEXCLUSIVE as u32 == 0
}

/// Prepares for rings in sets. Called before the first ring.
pub fn first_ring() {
    sets::on_reveal(reveal);
}

fn mark(list: &[Member], set: u32) {
    let mut of_set = list.iter().filter(|m| m.set == set).peekable();
    let holds = of_set.peek().is_some();
    sets::mark(set, holds, of_set.any(|m| m.quiet));
}

/// Gives the set the events of its rings.
fn reveal(set: c_int) {
    let Some(mut list) = members_soon() else { return };
    let id = sets::id(set);
    list.iter_mut().filter(|m| m.set == id && m.quiet).for_each(|m| m.reveal(set));
    mark(&list, id);
}

/// Forgets the sets and rings from `first` to `last`, which the program is about to close.
pub fn closes(first: c_int, last: c_int) {
    for fd in (first.max(0)..=last).take_while(|&fd| sets::is_known(fd)) {
        if fd::is_known_ring(fd) {
            ring_closes(fd);
        }
        let set = if sets::holds_ring(fd) { sets::id(fd) } else { 0 };
        sets::closes(fd);
        if set != 0
            && sets::number(set).is_none()
            && let Some(mut list) = members_soon()
        {
            list.retain(|m| m.set != set);
        }
    }
}

/// Takes a ring from its sets, or has its stand-in stay there, if the ring has other descriptors.
fn ring_closes(ring: c_int) {
    let Some(mut list) = members_soon() else { return };
    let last = fds::is_last(ring);
    for m in list.iter_mut().filter(|m| m.ring == ring) {
        let Some(set) = sets::number(m.set) else { continue };
        match last {
            true if m.inherited => {}
            true => m.control(set, libc::EPOLL_CTL_DEL),
            false if m.quiet => m.reveal(set),
            false => {}
        }
    }
    let sets: Vec<u32> = list.extract_if(.., |m| m.ring == ring).map(|m| m.set).collect();
    sets.into_iter().for_each(|set| mark(&list, set));
}

/// Calls `go`, which may move the engine's `fd` to another number. If `fd` represents a ring, the
/// program's sets get the new number. In a signal handler that has interrupted the holder of the
/// list, [`refresh`] adds the number later; the set keeps the old entry as well, and reports the
/// ring twice.
pub fn moving<E>(fd: c_int, go: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
    let moved = go()?;
    let Some(mut list) = members_soon().filter(|_| moved) else { return Ok(moved) };
    for m in list.iter_mut().filter(|m| m.stand_in == fd) {
        let Some(set) = sets::number(m.set) else { continue };
        // SAFETY: numbers. The old one means the same file until the program's call replaces it.
        unsafe { raw!(libc::SYS_epoll_ctl, set, libc::EPOLL_CTL_DEL, fd, 0) };
        m.follow(set);
    }
    Ok(moved)
}

impl Member {
    /// Replaces the descriptor in the set by the one that represents the ring now.
    fn follow(&mut self, set: c_int) {
        // Both make the eventfd; `set_fd` also updates it.
        let new = if self.quiet { fds::stand_in(self.ring) } else { fds::set_fd(self.ring) };
        let Some(new) = new.filter(|new| *new != self.stand_in) else { return };
        self.stand_in = new;
        self.control(set, libc::EPOLL_CTL_ADD);
    }

    /// Gives the set the events of this ring.
    fn reveal(&mut self, set: c_int) {
        self.quiet = false;
        self.reveals += 1;
        self.control(set, libc::EPOLL_CTL_MOD);
        // Signals the stand-in if the ring is readable.
        let _ = fds::set_fd(self.ring);
    }

    /// Takes the events of this ring from the set.
    fn hide(&mut self, set: c_int) {
        self.quiet = true;
        self.last = None;
        self.control(set, libc::EPOLL_CTL_MOD);
    }

    fn control(&self, set: c_int, op: c_int) {
        let reports = !self.quiet && self.enabled;
        let event =
            epoll_event { events: if reports { self.event.events } else { 0 }, ..self.event };
        let at = (&raw const event).expose_provenance();
        // SAFETY: numbers, and an event of ours.
        unsafe { raw!(libc::SYS_epoll_ctl, set, op, self.stand_in, at) };
    }
}

/// Waits on a set: drives its quiet rings, or calls `call`. Answers as the kernel does.
pub(super) fn wait(
    set: c_int,
    room: (*mut epoll_event, c_int),
    limit: impl FnOnce() -> Limit,
    cancelled: fn(),
    mut call: impl FnMut() -> isize,
) -> isize {
    if !watched() {
        // Counted first, then asked once more: the first ring may be made at this moment.
        SETS.early.fetch_add(1, Ordering::SeqCst);
        let ret = (!watched()).then(&mut call);
        SETS.early.fetch_sub(1, Ordering::SeqCst);
        if let Some(ret) = ret {
            return ret;
        }
    }
    let id = sets::id(set);
    let others = waiters(id).fetch_add(1, Ordering::SeqCst);
    refresh(set, others == 0);
    if others > 0 {
        sets::reveal(set);
    }
    let ret =
        sets::is_quiet(set).then(|| epoll_wait::drive(set, room, limit(), cancelled)).flatten();
    let ret = ret.unwrap_or_else(call);
    waiters(id).fetch_sub(1, Ordering::SeqCst);
    ret
}

/// Updates the stand-ins of a set, and of those that it may hold. `alone`: no other thread waits on
/// it, so its rings may become quiet.
pub(super) fn refresh(set: c_int, alone: bool) {
    let inner = sets::any_shared();
    if sets::is_known(set) && !sets::holds_ring(set) && !inner {
        return;
    }
    let Some(mut list) = members_soon() else { return };
    let id = sets::id(set);
    for i in 0..list.len() {
        if list[i].set != id {
            if inner && let Some(held) = sets::number(list[i].set) {
                list[i].follow(held);
            }
            continue;
        }
        list[i].follow(set);
        let ring = list[i].ring;
        let others = |m: &Member| m.ring == ring && m.set != id && !m.quiet;
        if alone
            && sets::can_be_quiet(set)
            && may_hide(&list, &list[i])
            && !list.iter().any(others)
            && fds::silence(ring)
        {
            list[i].hide(set);
            mark(&list, id);
        }
    }
}

/// Returns whether a revealed member may become quiet while the calling thread alone waits on its
/// set.
fn may_hide(list: &[Member], m: &Member) -> bool {
    // The kernel does not tell whether a member of this kind has fired.
    let once = m.event.events & EPOLLONESHOT as u32 != 0;
    !m.quiet && !once && may_be_quiet(list, m.set, m.ring, m.event.events, 1)
}
