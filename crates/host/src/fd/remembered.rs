//! Facts about the program's descriptors, by number, remembered until the number is closed: the
//! kind of file (`io::kinds`), its earlier answers (`history`), how it was opened, and the protocol
//! of a socket (`io::socket`).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use crate::fd::history::History;
use crate::os::fs::OFlags;

/// Count of numbers of which something is remembered.
pub const REMEMBERED: usize = 4096;

/// Code of the first modelled device; the bits below are the kind's code.
pub const ON_MODEL: u8 = 8;

/// Knowledge of descriptors, by number.
struct Remembered {
    /// Kinds: 0 unknown, else the kind's code, plus [`ON_MODEL`] times the modelled device's number
    /// plus one. A fast path finds no known kind for a file on such a device.
    kinds: [AtomicU8; REMEMBERED],
    /// Reads in a row that the page cache answered (`ops::rw_cached`), and refusals.
    histories: [History; REMEMBERED],
    /// Flags of files that requests have opened: 0 unknown, else [`OPENED`] and others.
    flags: [AtomicU8; REMEMBERED],
    /// Protocols of sockets: 0 unknown, else a code of `io::socket`.
    sockets: [AtomicU8; REMEMBERED],
    /// Count of closes and gifts of numbers of modelled files.
    generation: AtomicU32,
}

static FILES: Remembered = Remembered {
    kinds: [const { AtomicU8::new(0) }; REMEMBERED],
    histories: [const { History::new() }; REMEMBERED],
    flags: [const { AtomicU8::new(0) }; REMEMBERED],
    sockets: [const { AtomicU8::new(0) }; REMEMBERED],
    generation: AtomicU32::new(0),
};

/// Bits of remembered flags.
const OPENED: u8 = 1;
const DIRECT: u8 = 2;
const WRITES: u8 = 4;
const SYNC: u8 = 8;

#[inline]
fn slot<T>(of: &'static [T; REMEMBERED], fd: i32) -> Option<&'static T> {
    usize::try_from(fd).ok().and_then(|i| of.get(i))
}

/// Returns the slot of a number's kind.
#[inline]
pub fn kind(fd: i32) -> Option<&'static AtomicU8> {
    slot(&FILES.kinds, fd)
}

/// Returns the slot of a number's history.
#[inline]
pub fn history(fd: i32) -> Option<&'static History> {
    slot(&FILES.histories, fd)
}

/// Returns the slot of a socket's protocol.
#[inline]
pub fn socket(fd: i32) -> Option<&'static AtomicU8> {
    slot(&FILES.sockets, fd)
}

/// Notes with which flags a request has just opened `fd`, so that nobody has to ask (F_GETFL).
pub fn opened(fd: i32, flags: OFlags) {
    let Some(slot) = slot(&FILES.flags, fd).filter(|_| !flags.contains(OFlags::PATH)) else {
        return;
    };
    let bit = |bit, on| if on { bit } else { 0 };
    let known = OPENED
        | bit(DIRECT, flags.contains(OFlags::DIRECT))
        | bit(WRITES, flags & OFlags::RWMODE != OFlags::RDONLY)
        | bit(SYNC, flags.intersects(OFlags::SYNC | OFlags::DSYNC));
    slot.store(known, Relaxed);
}

/// Returns the flags with which a request has opened `fd`, of those that [`opened`] notes:
/// O_DIRECT, O_WRONLY (for O_RDWR as well) and O_DSYNC (for O_SYNC as well).
pub(crate) fn flags(fd: i32) -> Option<OFlags> {
    let known = slot(&FILES.flags, fd)?.load(Relaxed);
    let flag = |bit, flag| if known & bit != 0 { flag } else { OFlags::empty() };
    let flags =
        flag(DIRECT, OFlags::DIRECT) | flag(WRITES, OFlags::WRONLY) | flag(SYNC, OFlags::DSYNC);
    (known & OPENED != 0).then_some(flags)
}

/// Returns a count that moves when the number of a modelled file may come to mean another.
#[inline]
pub fn generation() -> u32 {
    FILES.generation.load(Relaxed)
}

/// Notes that a number of a modelled file was closed or given away.
pub fn changed() {
    FILES.generation.fetch_add(1, Relaxed);
}

/// Forgets all that is remembered of `fd`. For a number that the engine itself has just given to
/// the program or closed.
pub fn forget_kind(fd: i32) {
    if let Some(i) = usize::try_from(fd).ok().filter(|&i| i < REMEMBERED) {
        if FILES.kinds[i].load(Relaxed) >= ON_MODEL {
            changed();
        }
        FILES.kinds[i].store(0, Relaxed);
        FILES.histories[i].forget();
        FILES.flags[i].store(0, Relaxed);
    }
    forget_socket(fd);
}

/// Forgets the protocol of socket `fd`, which is closed or about to be.
pub(crate) fn forget_socket(fd: i32) {
    if let Some(slot) = socket(fd) {
        slot.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn flags_are_known_until_the_number_is_forgotten() {
        const FD: i32 = REMEMBERED as i32 - 1;
        assert_eq!(flags(FD), None);
        opened(FD, OFlags::RDWR | OFlags::SYNC | OFlags::CREATE);
        assert_eq!(flags(FD), Some(OFlags::WRONLY | OFlags::DSYNC));
        opened(FD, OFlags::RDONLY | OFlags::DIRECT);
        assert_eq!(flags(FD), Some(OFlags::DIRECT));
        forget_kind(FD);
        assert_eq!(flags(FD), None);
        opened(FD, OFlags::PATH);
        opened(FD + 1, OFlags::RDONLY);
        assert_eq!((flags(FD), flags(FD + 1), flags(-1)), (None, None, None));
    }
}
