//! What is remembered of the program's descriptors, by number, until they are closed: the kind of
//! file (`kinds`), how it has answered (`history`), and the protocol of a socket
//! (`io::socket`).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use crate::fd::history::History;

/// Numbers of which something is remembered.
pub const REMEMBERED: usize = 4096;

/// What stands for the first modelled device; what is below is a kind's.
pub const ON_MODEL: u8 = 8;

/// What is remembered of descriptors, by number.
struct Remembered {
    /// Kinds: 0 unknown, else the kind's code; above it the number of a modelled device, plus one.
    /// What is on one has no known kind, so that it comes upon no short cut.
    kinds: [AtomicU8; REMEMBERED],
    /// Reads in a row that the page cache answered (`ops::rw_cached`), and refusals.
    histories: [History; REMEMBERED],
    /// Protocols of sockets: 0 unknown, else a code of `io::socket`.
    sockets: [AtomicU8; REMEMBERED],
    /// How often a number that meant a modelled file was closed or given away.
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

/// The place of a number's kind.
#[inline]
pub fn kind(fd: i32) -> Option<&'static AtomicU8> {
    slot(&FILES.kinds, fd)
}

/// The place of a number's history.
#[inline]
pub fn history(fd: i32) -> Option<&'static History> {
    slot(&FILES.histories, fd)
}

/// The place of a socket's protocol.
#[inline]
pub fn socket(fd: i32) -> Option<&'static AtomicU8> {
    slot(&FILES.sockets, fd)
}

/// Moves when a number that means a modelled file may come to mean another.
#[inline]
pub fn generation() -> u32 {
    FILES.generation.load(Relaxed)
}

/// A number of a modelled file was closed or given away.
pub fn changed() {
    FILES.generation.fetch_add(1, Relaxed);
}

/// Forgets what kind of file `fd` is. For a number that the engine itself has just given to the
/// program or closed.
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

/// Forgets what socket `fd` is: it is closed, or about to be.
pub fn forget_socket(fd: i32) {
    if let Some(slot) = socket(fd) {
        slot.store(0, Relaxed);
    }
}
