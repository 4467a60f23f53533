//! Facts about the program's descriptors, by number, remembered until the number is closed: the
//! kind of file (`io::kinds`), its earlier answers (`history`), and the protocol of a socket
//! (`io::socket`).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use crate::fd::history::History;

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
    /// Protocols of sockets: 0 unknown, else a code of `io::socket`.
    sockets: [AtomicU8; REMEMBERED],
    /// Count of closes and gifts of numbers of modelled files.
    generation: AtomicU32,
}

static FILES: Remembered = Remembered {
    kinds: [const { AtomicU8::new(0) }; REMEMBERED],
    histories: [const { History::new() }; REMEMBERED],
    sockets: [const { AtomicU8::new(0) }; REMEMBERED],
    generation: AtomicU32::new(0),
};

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
    }
    forget_socket(fd);
}

/// Forgets the protocol of socket `fd`, which is closed or about to be.
pub(crate) fn forget_socket(fd: i32) {
    if let Some(slot) = socket(fd) {
        slot.store(0, Relaxed);
    }
}
