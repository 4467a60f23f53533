//! One duplicate for each of the program's files that workers work on, kept from one request to
//! the next: a request that a worker gets then asks only whether the program's number still means
//! the same open file, instead of making a duplicate and closing it.
//!
//! A cached duplicate must not outlive the program's own descriptor: it holds a lock by flock(2),
//! and the file's space. So the duplicate goes when the program closes the number ([`closing`]).
//! Where that close was not reported, the duplicate goes when the number is used again, or was not
//! used for a second or two ([`sweep`]). Pipes, sockets and the like are kept only while requests
//! use them: a peer would wait for their end.
//!
//! No lock guards this, as close(2) may be called in signal handlers. A duplicate has a count of
//! users, one of which is its slot here; the last closes it. Whoever finds one in a slot becomes
//! a user, unless there is none any more, and only then compares it with the program's number: so
//! it does not matter if the slot, or the duplicate's number, has come to mean another file.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fd::AsRawFd;

use crate::fd::kind::Kind;
use crate::fd::moved;
use crate::fd::owned::InternalFd;
use crate::fork::{AtFork, Child};
use crate::sys;

/// Slots, each for the numbers of one remainder.
const SLOTS: usize = 64;
/// Numbers that a duplicate may have.
const NUMBERS: usize = 64 * crate::fd::numbers::WORDS;

/// What is kept: see [`Entry`]. 0: nothing.
static CACHE: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Slots with a duplicate that they use themselves.
static STAYING: AtomicU32 = AtomicU32::new(0);
/// Counts by duplicate: who uses it.
static USERS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: i32,
    dup: i32,
    kind: Kind,
    /// The duplicate was used since the last sweep.
    used: bool,
}

const USED: u64 = 1 << 56;

impl Entry {
    fn word(self) -> u64 {
        let used = if self.used { USED } else { 0 };
        used | u64::from(self.kind.code()) << 48
            | u64::from(self.dup.cast_unsigned()) << 32
            | u64::from(self.number.cast_unsigned())
    }

    fn of(word: u64) -> Option<Entry> {
        let dup = (word >> 32 & 0xffff) as i32;
        let kind = Kind::from_code((word >> 48) as u8)?;
        (dup != 0).then_some(Entry { number: word as i32, dup, kind, used: word & USED != 0 })
    }

    /// Does the slot itself use it?
    fn stays(self) -> bool {
        self.kind.is_file()
    }

    /// The slot was emptied, or given to another: it uses this no more.
    fn leave(self) {
        if self.stays() {
            STAYING.fetch_sub(1, Relaxed);
            drop(CachedDup(self.dup));
        }
    }
}

fn slot_of(fd: i32) -> &'static AtomicU64 {
    &CACHE[fd.cast_unsigned() as usize % SLOTS]
}

/// A use of a cached duplicate.
#[derive(Debug)]
pub struct CachedDup(i32);

impl CachedDup {
    fn of(dup: i32) -> Option<CachedDup> {
        let users = &USERS[dup as usize];
        let more = |n: u32| if n == 0 { None } else { n.checked_add(1) };
        users.fetch_update(AcqRel, Relaxed, more).is_ok().then_some(CachedDup(dup))
    }
}

impl AsRawFd for CachedDup {
    fn as_raw_fd(&self) -> i32 {
        moved::now(self.0)
    }
}

impl Drop for CachedDup {
    fn drop(&mut self) {
        if USERS[self.0 as usize].fetch_sub(1, AcqRel) == 1 {
            drop(InternalFd::take_back(self.0));
        }
    }
}

/// The duplicate that is kept of the program's `fd`, if that means the same open file still.
pub fn find(fd: i32) -> Option<(CachedDup, Kind)> {
    let slot = slot_of(fd);
    let word = slot.load(Acquire);
    let entry = Entry::of(word).filter(|e| e.number == fd)?;
    let cached = CachedDup::of(entry.dup)?;
    if sys::same_open_file(moved::now(entry.dup), fd) == Some(true) {
        if !entry.used {
            let used = Entry { used: true, ..entry }.word();
            let _ = slot.compare_exchange(word, used, AcqRel, Relaxed);
        }
        return Some((cached, entry.kind));
    }
    give_up(slot, word);
    None
}

/// Keeps a fresh duplicate of the program's `fd`; answers it again if it cannot be.
///
/// # Errors
/// The duplicate, if its number is too high to be known here.
pub fn keep(fd: i32, dup: InternalFd, kind: Kind) -> Result<CachedDup, InternalFd> {
    let number = dup.leave()?;
    let entry = Entry { number: fd, dup: number, kind, used: true };
    USERS[number as usize].store(1 + u32::from(entry.stays()), Relaxed);
    STAYING.fetch_add(u32::from(entry.stays()), Relaxed);
    if let Some(before) = Entry::of(slot_of(fd).swap(entry.word(), AcqRel)) {
        before.leave();
    }
    Ok(CachedDup(number))
}

/// Empties a slot that still says `word`.
fn give_up(slot: &AtomicU64, word: u64) {
    if let Some(entry) = Entry::of(word)
        && slot.compare_exchange(word, 0, AcqRel, Relaxed).is_ok()
    {
        entry.leave();
    }
}

/// Empties the slots of those that `which` says.
fn give_up_if(which: impl Fn(Entry) -> bool) {
    for slot in &CACHE {
        let word = slot.load(Acquire);
        if Entry::of(word).is_some_and(&which) {
            give_up(slot, word);
        }
    }
}

/// The program is about to close `fd`, or it means another file, or has other flags.
pub fn closing(fd: i32) {
    let slot = slot_of(fd);
    loop {
        let word = slot.load(Acquire);
        if Entry::of(word).is_none_or(|e| e.number != fd) {
            return;
        }
        give_up(slot, word);
    }
}

/// As [`closing`], for all numbers from `first` to `last`.
pub fn closing_range(first: u32, last: u32) {
    give_up_if(|e| (first..=last).contains(&e.number.cast_unsigned()));
}

/// Gives up what was not used since the last call.
pub fn sweep() {
    give_up_if(|e| !e.used || !e.stays());
    for slot in &CACHE {
        slot.fetch_and(!USED, AcqRel);
    }
}

/// Gives up all: numbers are short, or there is no ring any more.
pub fn give_up_all() {
    give_up_if(|_| true);
}

/// A child's parent goes on with what is in flight.
pub const AT_FORK: AtFork = AtFork::new(in_child);

/// A child has none of its parent's locks, but may have some of its own if the fork is noticed
/// late.
fn in_child(child: &Child) {
    let close = if child.late { drop } else { InternalFd::close };
    for entry in CACHE.iter().filter_map(|slot| Entry::of(slot.swap(0, Relaxed))) {
        if USERS[entry.dup as usize].swap(0, Relaxed) > 0 {
            InternalFd::take_back(entry.dup).into_iter().for_each(close);
        }
    }
    STAYING.store(0, Relaxed);
}

/// Is any duplicate kept for requests to come?
#[inline]
pub fn any() -> bool {
    STAYING.load(Relaxed) > 0
}

/// What is held of the file of `fd` for no request goes before the program closes the number.
pub fn file_closes(fd: i32) {
    closing(fd);
    crate::fd::locks::closing(fd);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(fd: i32) -> CachedDup {
        let dup = crate::fd::dup_internal(fd).unwrap();
        keep(fd, dup, Kind::Buffered).unwrap()
    }

    #[test]
    fn one_duplicate_serves_until_the_number_is_closed_or_means_another_file() {
        let of = |name| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (file, other) = (of(c"file"), of(c"other"));
        let fd = file.as_raw_fd();
        assert!(find(fd).is_none());
        let first = hold(fd);
        let dup = first.as_raw_fd();
        drop(first);
        let (again, kind) = find(fd).unwrap();
        assert_eq!((again.as_raw_fd(), kind), (dup, Kind::Buffered));
        rustix::io::dup2(&other, &mut core::mem::ManuallyDrop::new(file)).unwrap();
        assert!(find(fd).is_none(), "another file");
        assert!(crate::fd::is_internal(dup), "in use");
        drop(again);
        assert!(!crate::fd::is_internal(dup), "closed");

        drop(hold(fd));
        closing(fd);
        assert!(find(fd).is_none());
        drop(other);
    }
}
