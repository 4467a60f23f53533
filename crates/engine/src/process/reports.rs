//! Reports of the entry points on the program's descriptors: closes, duplicates, changed flags.

use crate::io::kinds::{forget_closing, is_modelled};
use crate::io::persistent::{Closing, NUMBERS, registered_anywhere};
use crate::process::closing::remove;
use crate::ring::table::{duplicated, first_ring, number_closes};
use softring_host::fd::dup_cache::file_closes;
use softring_host::fd::numbers::{is_known_ring, is_ring};
use softring_host::fd::remembered::{REMEMBERED, forget_kind};
use softring_host::fd::{dup_cache, locks, moved};
use softring_host::handlers::Call;

/// Does what [`before_close`] does for a number of which no more than facts is known: it is no
/// ring, nothing waits on it, and there is no duplicate of its file. Right also in a vfork child,
/// whose close leaves the number open in this process: what is forgotten here is found out again.
/// `None`: only `before_close` will do.
#[inline]
pub fn before_plain_close(fd: i32) -> Option<Closing> {
    let _call = Call::begin();
    let closing = Closing::new(fd);
    let plain = !is_known_ring(fd)
        && !registered_anywhere(fd)
        && !is_modelled(fd)
        && !dup_cache::has_any_of(fd);
    plain.then(|| {
        forget_kind(fd);
        closing
    })
}

/// Reports that the program is about to close `fd`. Call before the real `close(2)`, whatever `fd`
/// is, and keep the answer until that is over.
pub fn before_close(fd: i32) -> Closing {
    let _call = Call::begin();
    let closing = Closing::new(fd);
    forget_closing(fd);
    number_closes(fd);
    file_closes(fd);
    if is_known_ring(fd) {
        remove(fd);
    }
    closing
}

/// Does the same as [`before_close`] for the numbers `first` to `last`, none the engine's own.
pub fn before_close_range(first: u32, last: u32) -> Closing {
    let _call = Call::begin();
    let closing = Closing::range(first as usize, last as usize);
    let end = |numbers: usize| last.min(numbers as u32 - 1).cast_signed();
    for fd in first.cast_signed()..=end(REMEMBERED) {
        forget_closing(fd);
    }
    for fd in first.cast_signed()..=end(NUMBERS) {
        number_closes(fd);
    }
    dup_cache::closing_range(first, last);
    for fd in first.cast_signed()..=end(REMEMBERED) {
        locks::closing(fd);
    }
    let within = |fd: i32| u32::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd));
    while let Some(fd) = first_ring(within) {
        remove(fd);
    }
    closing
}

/// Reports that `new` has just become a duplicate of `old` (dup, dup2, dup3, F_DUPFD,
/// F_DUPFD_CLOEXEC).
pub fn after_dup(old: i32, new: i32) {
    let _call = Call::begin();
    forget_kind(new);
    if old == new {
        return;
    }
    // The kernel gave the number to the program: it was closed, and the close was not reported.
    moved::lose(new);
    if is_known_ring(new) {
        remove(new);
    }
    if is_ring(old) {
        duplicated(old, new);
    }
}

/// Reports a change of `fd`'s file status flags (F_SETFL): O_DIRECT may be on or off now.
pub fn after_setfl(fd: i32) {
    let _call = Call::begin();
    dup_cache::closing(fd);
    forget_kind(fd);
}

/// Returns where a mapping of ring `fd` at `offset` really lies: the CQ ring shares the SQ ring's
/// memory.
pub fn mmap_offset(fd: i32, offset: u64) -> u64 {
    let _call = Call::begin();
    if offset == softring_uapi::IORING_OFF_CQ_RING && is_ring(fd) { 0 } else { offset }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use softring_host::fd::kind::Kind;
    use softring_host::fd::{dup_internal, remembered};
    use softring_host::os::fd::AsRawFd;

    #[test]
    fn a_close_of_a_plain_number_only_forgets_it() {
        let file = softring_host::substitute::memfd("f", false).unwrap();
        let fd = file.as_raw_fd();
        let known = || remembered::kind(fd).unwrap().load(Relaxed);
        remembered::kind(fd).unwrap().store(Kind::Memory.code(), Relaxed);
        assert!(before_plain_close(fd).is_some());
        assert_eq!(known(), 0);
        remembered::kind(fd).unwrap().store(Kind::Memory.code(), Relaxed);
        let dup = dup_internal(fd).unwrap();
        let kept = dup_cache::keep(fd, dup, Kind::Memory).unwrap();
        assert!(before_plain_close(fd).is_none(), "it has a duplicate");
        assert_ne!(known(), 0);
        drop((before_close(fd), kept));
        assert_eq!(known(), 0);
        assert!(before_plain_close(fd).is_some());
    }
}
