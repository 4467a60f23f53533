//! Descriptors: which are rings, which are the engine's own, what kind of file the others are; and
//! what the doors tell the engine about them.
//!
//! The engine knows no C symbol. Whoever stands in front of it (the preload's wrappers of `close`,
//! `dup` …) reports what happens to descriptors through the calls here. A ring whose descriptor was
//! closed behind its back (a raw system call) is noticed by the sweep that each setup makes and the
//! reactor makes every second, by each `register`, and by an `enter` now and then
//! ([`checked_ring`]).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use crate::ctx::Ring;
use crate::errno::{Errno, Result};
use crate::ops::rw_hot::Streak;
use crate::sys::{EngineFd, borrow};
use crate::transport::kind::Kind;
use crate::transport::model;
use crate::transport::standing::{Closing, NUMBERS, stands_anywhere};

mod forked;
mod stand_in;

pub use forked::{fork_child, fork_parent, fork_prepare};
pub use stand_in::{poll_fd, readable, signal_poll_fd, sq_full};

/// What a table entry says about a number.
#[derive(Debug, Default)]
struct Table {
    /// Rings by descriptor, with what proves that the number still means that ring.
    rings: Vec<(i32, File, Arc<Ring>)>,
    /// A descriptor that polls readable while a ring has completions.
    poll: Vec<(u64, InternalFd)>,
    /// Rings without a descriptor that have not ended yet: somebody waits in them.
    closed: Vec<Weak<Ring>>,
}

static TABLE: RwLock<Table> =
    RwLock::new(Table { rings: Vec::new(), poll: Vec::new(), closed: Vec::new() });
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// The doors report every close: kinds of descriptors may be remembered.
static REPORTED: AtomicBool = AtomicBool::new(false);
/// They report every one, and before it happens.
static ALL_REPORTED: AtomicBool = AtomicBool::new(false);

/// Remembered kinds, by number: 0 unknown, else the kind's code; above it the number of a modelled
/// device, plus one. What is on one has no known kind, so that it comes upon no short cut.
const REMEMBERED: usize = 4096;
const ON_MODEL: u8 = 8;
static KINDS: [AtomicU8; REMEMBERED] = [const { AtomicU8::new(0) }; REMEMBERED];
/// Reads in a row that the page cache answered, by number (`ops::rw_hot`).
static STREAKS: [Streak; REMEMBERED] = [const { Streak::new() }; REMEMBERED];
/// The engine's own descriptors, one bit each.
static INTERNAL: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// A descriptor of the engine's own: out of the program's way, and marked, so that the doors can
/// refuse to close it.
#[derive(Debug)]
pub struct InternalFd(EngineFd);

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for InternalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        mark_internal(self.0.as_raw_fd(), false);
        crate::transport::socket::forget(self.0.as_raw_fd());
    }
}

fn read() -> std::sync::RwLockReadGuard<'static, Table> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> std::sync::RwLockWriteGuard<'static, Table> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The doors promise to report every close, dup and F_SETFL, so that the engine may remember what a
/// descriptor is.
pub fn closes_are_reported() {
    REPORTED.store(true, Relaxed);
}

/// Is every close of a descriptor of the program's heard of?
pub fn closes_reported() -> bool {
    REPORTED.load(Relaxed)
}

/// The doors promise more: to report every close before it happens, without exception.
pub fn closes_are_all_reported(all: bool) {
    ALL_REPORTED.store(all, Relaxed);
}

/// Does a number mean the same file until its close is heard of?
pub fn closes_all_reported() -> bool {
    ALL_REPORTED.load(Relaxed)
}

/// A fresh ring id.
pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Relaxed)
}

/// Which file a number means: device and inode; zeroes if it is not open.
type File = (u64, u64);

fn file(fd: i32) -> File {
    let Some(fd) = borrow(fd) else { return File::default() };
    rustix::fs::fstat(fd).map_or(File::default(), |s| (s.st_dev, s.st_ino))
}

/// Enters a new ring under its descriptor.
pub fn insert(fd: i32, ring: Arc<Ring>) {
    sweep();
    forget_kind(fd);
    let file = file(fd);
    write().rings.push((fd, file, ring));
}

/// The ring behind a descriptor.
///
/// # Errors
/// `EOPNOTSUPP` if the number is open but no ring, `EBADF` if it is not open.
pub fn ring(fd: i32) -> Result<Arc<Ring>> {
    if let Some(ring) = find(fd) {
        return Ok(ring);
    }
    match borrow(fd).map(rustix::io::fcntl_getfd) {
        Some(Ok(_)) => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EBADF),
    }
}

/// The ring behind a descriptor, if it is one of ours.
#[inline]
pub fn find(fd: i32) -> Option<Arc<Ring>> {
    read().rings.iter().find(|r| r.0 == fd).map(|r| r.2.clone())
}

/// As [`ring`], and makes sure that the number was not closed, or reused, behind our back. Costs a
/// system call.
///
/// # Errors
/// As [`ring`].
pub fn checked_ring(fd: i32) -> Result<Arc<Ring>> {
    if is_ring(fd) && !is_live_ring(fd) {
        sweep();
    }
    ring(fd)
}

/// A descriptor of the engine's own that keeps a ring open, as any of the program's does.
#[derive(Debug)]
pub struct RingFd {
    fd: InternalFd,
    ring: Arc<Ring>,
}

impl RingFd {
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for RingFd {
    fn drop(&mut self) {
        remove(self.fd());
    }
}

/// Takes a further descriptor of ring `fd`.
///
/// # Errors
/// As [`ring`]; `EMFILE`.
pub fn hold_ring(fd: i32) -> Result<RingFd> {
    let ring = ring(fd)?;
    Ok(enter_internal(dup_internal(fd)?, ring))
}

/// Takes a new ring's only descriptor.
pub fn adopt_ring(fd: OwnedFd, ring: Arc<Ring>) -> RingFd {
    sweep();
    enter_internal(adopt_internal(fd), ring)
}

fn enter_internal(fd: InternalFd, ring: Arc<Ring>) -> RingFd {
    let file = file(fd.as_raw_fd());
    write().rings.push((fd.as_raw_fd(), file, ring.clone()));
    RingFd { fd, ring }
}

/// Drops entries whose descriptor was closed or reused behind our back.
pub fn sweep() {
    let known: Vec<(i32, File)> = read().rings.iter().map(|r| (r.0, r.1)).collect();
    for (fd, was) in known.into_iter().filter(|k| file(k.0) != k.1) {
        remove_if(|r| (r.0, r.1) == (fd, was));
    }
}

/// Forgets a ring descriptor; with the last one the ring ends.
fn remove(fd: i32) {
    remove_if(|r| r.0 == fd);
}

/// As [`remove`], for the entry that is meant: its number may belong to another ring by now.
fn remove_if(meant: impl Fn(&(i32, File, Arc<Ring>)) -> bool) {
    let gone = {
        let mut table = write();
        let Some(at) = table.rings.iter().position(meant) else { return };
        let (_, _, ring) = table.rings.swap_remove(at);
        let last = !table.rings.iter().any(|r| r.2.id == ring.id);
        let poll = table.poll.iter().position(|p| last && p.0 == ring.id);
        let poll = poll.map(|i| table.poll.swap_remove(i));
        if last {
            table.closed.push(Arc::downgrade(&ring));
        }
        last.then_some((ring, poll))
    };
    if let Some((ring, poll)) = gone {
        drop(poll);
        crate::teardown::end(&ring);
    }
}

/// A closed ring has ended.
pub fn forget_ended() {
    // None of them ends under the table's lock.
    let mut held = Vec::new();
    write().closed.retain(|w| {
        let Some(ring) = w.upgrade() else { return false };
        let lives = !ring.dead.load(Relaxed);
        held.push(ring);
        lives
    });
}

/// Every ring there is, also those that are closed while somebody waits in them.
pub fn all() -> Vec<Arc<Ring>> {
    let table = read();
    let open = table.rings.iter().map(|r| r.2.clone());
    let mut rings: Vec<_> = open.chain(table.closed.iter().filter_map(Weak::upgrade)).collect();
    drop(table);
    rings.sort_by_key(|r| r.id);
    rings.dedup_by_key(|r| r.id);
    rings
}

/// The ring behind the `i`th ring descriptor: to look at them all from a signal handler, without
/// asking for memory, or for a lock that the interrupted thread may hold.
pub fn nth(i: usize) -> Option<Arc<Ring>> {
    const TRIES: u32 = 100;
    let table = (0..TRIES).find_map(|_| {
        let table = TABLE.try_read().ok();
        if table.is_none() {
            std::thread::yield_now();
        }
        table
    })?;
    table.rings.get(i).map(|r| r.2.clone())
}

/// Is `fd` a ring of ours?
pub fn is_ring(fd: i32) -> bool {
    read().rings.iter().any(|r| r.0 == fd)
}

/// Is `fd` a ring of ours right now, and not a number that was reused behind our back?
pub fn is_live_ring(fd: i32) -> bool {
    let known = read().rings.iter().find(|r| r.0 == fd).map(|r| r.1);
    known.is_some_and(|known| file(fd) == known)
}

/// Was `fd` opened with `O_PATH`, or is it not open? Such a number names no file to work on.
pub fn is_path_only(fd: i32) -> bool {
    let flags = borrow(fd).map(rustix::fs::fcntl_getfl);
    !matches!(flags, Some(Ok(fl)) if !fl.contains(rustix::fs::OFlags::PATH))
}

/// Is no ring of ours open? Never waits: `false` if the table is in use.
pub fn surely_no_ring() -> bool {
    TABLE.try_read().is_ok_and(|t| t.rings.is_empty())
}

/// Is `fd` one of the engine's own descriptors, which the program must not close?
pub fn is_internal(fd: i32) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    INTERNAL.get(fd / 64).is_some_and(|w| w.load(Relaxed) >> (fd % 64) & 1 == 1)
}

fn mark_internal(fd: i32, on: bool) {
    let Ok(fd) = usize::try_from(fd) else { return };
    let Some(word) = INTERNAL.get(fd / 64) else { return };
    if on {
        word.fetch_or(1 << (fd % 64), Relaxed);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
    }
}

/// Lowest number for the engine's own descriptors: out of the way of programs that count on small
/// numbers.
fn floor() -> i32 {
    static FLOOR: AtomicI32 = AtomicI32::new(0);
    let known = FLOOR.load(Relaxed);
    if known != 0 {
        return known;
    }
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let soft = soft.unwrap_or(1024).min(65_536) as i32;
    let floor = (soft / 2).clamp(3, 512);
    FLOOR.store(floor, Relaxed);
    floor
}

/// Takes a duplicate of the program's descriptor for a request that outlives `enter`.
///
/// # Errors
/// `EBADF` if it is not open, `EMFILE` if no number is free.
pub fn dup_internal(fd: i32) -> Result<InternalFd> {
    let fd = borrow(fd).ok_or(Errno::EBADF)?;
    match rustix::io::fcntl_dupfd_cloexec(fd, floor()) {
        Ok(dup) => {
            mark_internal(dup.as_raw_fd(), true);
            Ok(InternalFd(dup.into()))
        }
        Err(rustix::io::Errno::INVAL) => Err(Errno::EMFILE),
        Err(e) => Err(e.into()),
    }
}

/// Moves a descriptor of ours out of the program's way and marks it.
pub fn adopt_internal(fd: OwnedFd) -> InternalFd {
    let mut fd = EngineFd::from(fd);
    if let Ok(high) = rustix::io::fcntl_dupfd_cloexec(&fd, floor()) {
        fd = high.into();
    }
    mark_internal(fd.as_raw_fd(), true);
    InternalFd(fd)
}

/// What kind of file the program's descriptor is.
///
/// Only files are remembered, because only there a number closed and reused behind our back (stdio,
/// another library's raw calls) shows: a positioned read of what is now a stream answers ESPIPE,
/// and then the kind is looked up anew (`ops::rw`). What says O_DIRECT is asked again each time.
pub fn kind(fd: i32) -> Kind {
    let Some(slot) = usize::try_from(fd).ok().and_then(|i| KINDS.get(i)) else {
        return Kind::of(fd);
    };
    match Kind::from_code(slot.load(Relaxed) & (ON_MODEL - 1)) {
        Some(Kind::Direct) if !is_direct(fd) => {}
        Some(kind) => return kind,
        None => {}
    }
    let kind = Kind::of(fd);
    if REPORTED.load(Relaxed) && matches!(kind, Kind::Buffered | Kind::Memory | Kind::Direct) {
        let model = model::of_fd(fd).map_or(0, |n| (n + 1) * ON_MODEL);
        slot.store(kind.code() | model, Relaxed);
    }
    kind
}

/// The number of the modelled device that the program's file is on.
pub fn modelled(fd: i32) -> Option<u8> {
    if !model::any() {
        return None;
    }
    let slot = usize::try_from(fd).ok().and_then(|i| KINDS.get(i)).filter(|_| closes_reported());
    if let Some(slot) = slot {
        if slot.load(Relaxed) == 0 {
            kind(fd);
        }
        return (slot.load(Relaxed) / ON_MODEL).checked_sub(1);
    }
    let file = matches!(kind(fd), Kind::Buffered | Kind::Memory | Kind::Direct);
    if file { model::of_fd(fd) } else { None }
}

#[inline]
fn remembered(fd: i32) -> Option<Kind> {
    let slot = usize::try_from(fd).ok().and_then(|i| KINDS.get(i))?;
    Kind::from_code(slot.load(Relaxed))
}

/// What is remembered of `fd`, where that needs no second look.
#[inline]
pub fn known_kind(fd: i32) -> Option<Kind> {
    remembered(fd).filter(|&kind| kind != Kind::Direct)
}

/// Is `fd` remembered as O_DIRECT, and is it still? Of any other number the kernel is not asked.
pub fn known_direct(fd: i32) -> bool {
    remembered(fd) == Some(Kind::Direct) && is_direct(fd)
}

fn is_direct(fd: i32) -> bool {
    let flags = borrow(fd).map(rustix::fs::fcntl_getfl);
    matches!(flags, Some(Ok(fl)) if fl.contains(rustix::fs::OFlags::DIRECT))
}

/// The counter of reads in a row from the cache, where the doors report closes.
pub fn streak(fd: i32) -> Option<&'static Streak> {
    let slot = usize::try_from(fd).ok().and_then(|i| STREAKS.get(i));
    slot.filter(|_| REPORTED.load(Relaxed))
}

/// Forgets what kind of file `fd` is. For a number that the engine itself has just given to the
/// program or closed.
pub fn forget_kind(fd: i32) {
    if let Some(i) = usize::try_from(fd).ok().filter(|&i| i < REMEMBERED) {
        if KINDS[i].load(Relaxed) >= ON_MODEL {
            model::files::changed();
        }
        KINDS[i].store(0, Relaxed);
        STREAKS[i].forget();
    }
    crate::transport::socket::forget(fd);
}

/// As [`forget_kind`], before a close: a file on a modelled device leaves more behind.
fn forget_closing(fd: i32) {
    let slot = usize::try_from(fd).ok().and_then(|i| KINDS.get(i));
    if slot.is_some_and(|s| s.load(Relaxed) >= ON_MODEL) {
        model::files::closing(fd);
    }
    forget_kind(fd);
}

/// The program is about to close `fd`. Call before the real `close(2)`, whatever `fd` is, and keep
/// the answer until that is over.
pub fn before_close(fd: i32) -> Closing {
    let closing = Closing::new(fd);
    forget_closing(fd);
    number_closes(fd);
    if is_ring(fd) {
        remove(fd);
    }
    closing
}

/// As [`before_close`], for all numbers from `first` to `last`, none of them the engine's own.
pub fn before_close_range(first: u32, last: u32) -> Closing {
    let closing = Closing::range(first as usize, last as usize);
    let end = |numbers: usize| last.min(numbers as u32 - 1).cast_signed();
    for fd in first.cast_signed()..=end(REMEMBERED) {
        forget_closing(fd);
    }
    for fd in first.cast_signed()..=end(NUMBERS) {
        number_closes(fd);
    }
    let within = |fd: i32| u32::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd));
    while let Some(fd) = first_ring(within) {
        remove(fd);
    }
    closing
}

fn first_ring(within: impl Fn(i32) -> bool) -> Option<i32> {
    read().rings.iter().map(|r| r.0).find(|&fd| within(fd) && !is_internal(fd))
}

/// Who waits on `fd` in a poll set goes on under a number of the engine's. Called without any
/// ring's lock, and while the number is [`Closing`].
pub fn number_closes(fd: i32) {
    if stands_anywhere(fd) {
        for ring in all() {
            if let Some(mut ctx) = ring.lock_soon() {
                ctx.number_closes(fd);
                if !ctx.defers() {
                    ctx.flush();
                }
            }
        }
    }
}

/// `new` has just become a duplicate of `old` (dup, dup2, dup3, F_DUPFD, F_DUPFD_CLOEXEC).
pub fn after_dup(old: i32, new: i32) {
    forget_kind(new);
    if old == new {
        return;
    }
    if is_ring(new) {
        remove(new);
    }
    let mut table = write();
    if let Some((_, file, ring)) = table.rings.iter().find(|r| r.0 == old) {
        let entry = (new, *file, ring.clone());
        table.rings.push(entry);
    }
}

/// The file status flags of `fd` have changed (F_SETFL): O_DIRECT may be on or off now.
pub fn after_setfl(fd: i32) {
    forget_kind(fd);
}

/// Where a mapping of ring `fd` at `offset` really lies: the CQ ring shares the SQ ring's memory.
pub fn mmap_offset(fd: i32, offset: u64) -> u64 {
    if offset == crate::abi::IORING_OFF_CQ_RING && is_ring(fd) { 0 } else { offset }
}

/// The program is about to call exec: its requests end, as the kernel cancels those of a task that
/// goes. Another process may share the ring and wait for their CQEs.
pub fn before_exec() {
    for ring in all() {
        ring.lock().cancel_for_exec();
    }
}

/// Gives a descriptor to the program.
pub fn release(fd: OwnedFd) -> i32 {
    fd.into_raw_fd()
}

/// Is `fd` open?
///
/// # Errors
/// `EBADF` if not.
pub fn check_open(fd: i32) -> Result<()> {
    match borrow(fd).map(rustix::io::fcntl_getfd) {
        Some(Ok(_)) => Ok(()),
        _ => Err(Errno::EBADF),
    }
}
