//! One duplicate of each of the program's files that workers work on, cached from one request to
//! the next. A request that goes to a worker then checks only whether the program's number still
//! means the same open file, instead of making a duplicate and closing it.
//!
//! A cached duplicate must not outlive the program's own descriptor: the duplicate holds flock(2)
//! locks and the file's space. So the duplicate is closed when the program closes the number
//! ([`closing`]). If that close is not reported, the duplicate is closed when the number is used
//! again, or has not been used for a second or two ([`sweep`]). Duplicates of pipes, sockets and
//! the like are cached only while requests use them: a peer waits for their end.
//!
//! No lock guards the cache, because signal handlers may call close(2). Each duplicate has a count
//! of users, one of which is its slot; the last user closes the duplicate. A thread that finds a
//! duplicate in a slot first becomes a user, unless the count is 0, and only then compares the
//! duplicate with the program's number. So it does no harm if the slot, or the duplicate's number,
//! has come to mean another file.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::os::fd::AsRawFd;

use crate::fd::kind::Kind;
use crate::fd::moved;
use crate::fd::owned::InternalFd;
use crate::fork::{AtFork, Child};
use crate::sys;

/// Count of slots. A descriptor has the slot of its number modulo this.
const SLOTS: usize = 64;
/// Bound of the numbers that a duplicate may have.
const NUMBERS: usize = 64 * crate::fd::numbers::WORDS;

/// Cached entries ([`Entry`]); 0: none.
static CACHE: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Count of slots that are users of their duplicates themselves ([`Entry::stays`]).
static STAYING: AtomicU32 = AtomicU32::new(0);
/// User counts, by the duplicate's number.
static USERS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];

/// Content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: i32,
    dup: i32,
    kind: Kind,
    /// Flag, true if the duplicate was used since the last sweep.
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

    /// Returns whether the slot itself is a user of the duplicate.
    fn stays(self) -> bool {
        self.kind.is_file()
    }

    /// Ends the slot's own use of the duplicate, after the slot was emptied or overwritten.
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

/// Use of a cached duplicate.
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

/// Returns the cached duplicate of the program's `fd`, if `fd` still means the same open file.
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

/// Caches a fresh duplicate of the program's `fd`.
///
/// # Errors
/// The duplicate, if its number is too high for the cache.
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

/// Empties a slot that still has the value `word`.
fn give_up(slot: &AtomicU64, word: u64) {
    if let Some(entry) = Entry::of(word)
        && slot.compare_exchange(word, 0, AcqRel, Relaxed).is_ok()
    {
        entry.leave();
    }
}

/// Empties the slots of the entries that `which` selects.
fn give_up_if(which: impl Fn(Entry) -> bool) {
    for slot in &CACHE {
        let word = slot.load(Acquire);
        if Entry::of(word).is_some_and(&which) {
            give_up(slot, word);
        }
    }
}

/// Drops the cached duplicate of `fd`: the program is about to close `fd`, or `fd` means another
/// file or has other flags.
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

/// Drops the cached duplicates of all numbers from `first` to `last`; see [`closing`].
pub fn closing_range(first: u32, last: u32) {
    give_up_if(|e| (first..=last).contains(&e.number.cast_unsigned()));
}

/// Drops the duplicates that were not used since the last call, and those of pipes, sockets and the
/// like.
pub fn sweep() {
    give_up_if(|e| !e.used || !e.stays());
    for slot in &CACHE {
        slot.fetch_and(!USED, AcqRel);
    }
}

/// Drops all duplicates: numbers are short, or no ring is left.
pub fn give_up_all() {
    give_up_if(|_| true);
}

/// Fork step: drops the duplicates in the child. The parent goes on with the requests in flight.
pub const AT_FORK: AtFork = AtFork::new(in_child);

/// Closes the child's copies. A child has none of its parent's locks, but may have locks of its own
/// if the fork is noticed late.
fn in_child(child: &Child) {
    let close = if child.late { drop } else { InternalFd::close };
    for entry in CACHE.iter().filter_map(|slot| Entry::of(slot.swap(0, Relaxed))) {
        if USERS[entry.dup as usize].swap(0, Relaxed) > 0 {
            InternalFd::take_back(entry.dup).into_iter().for_each(close);
        }
    }
    STAYING.store(0, Relaxed);
}

/// Returns whether any duplicate is cached for later requests.
#[inline]
pub fn any() -> bool {
    STAYING.load(Relaxed) > 0
}

/// Returns whether the program's close of `fd` may end a duplicate: one of this number is cached,
/// or one of any file is retained.
pub fn has_any_of(fd: i32) -> bool {
    let cached = Entry::of(slot_of(fd).load(Acquire)).is_some_and(|entry| entry.number == fd);
    cached || crate::fd::locks::any_retained()
}

/// Closes the duplicates of the file of `fd` that no request uses, before the program closes `fd`.
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
        let of = |name| crate::substitute::memfd(name, false).unwrap();
        let (file, other) = (of("file"), of("other"));
        let fd = file.as_raw_fd();
        assert!(find(fd).is_none());
        let first = hold(fd);
        let dup = first.as_raw_fd();
        drop(first);
        let (again, kind) = find(fd).unwrap();
        assert_eq!((again.as_raw_fd(), kind), (dup, Kind::Buffered));
        crate::calls::files::dup2(other.as_raw_fd(), crate::os::fd::IntoRawFd::into_raw_fd(file))
            .unwrap();
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
