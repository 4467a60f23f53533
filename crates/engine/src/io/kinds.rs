//! Kinds of the program's descriptors, remembered by number until the number is closed.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::model;
use softring_host::fd::history::History;
use softring_host::fd::kind::{Kind, Probed};
use softring_host::fd::numbers::{closes_reported, is_ring};
use softring_host::fd::owned::is_hidden;
use softring_host::fd::remembered::{self, ON_MODEL, forget_kind};

/// Returns the kind of the program's descriptor.
///
/// Only regular files are remembered. If their number was closed and reused unseen (stdio, another
/// library's raw calls), a positioned read of what is now a stream fails with ESPIPE, and the kind
/// is looked up anew (`ops::rw`). Nothing would tell that a stream has become a file, and an entry
/// point misses closes (RTLD_DEEPBIND, another process with the same table). A kind remembered as
/// O_DIRECT is checked each time.
pub(crate) fn kind(fd: i32) -> Kind {
    let Some(slot) = remembered::kind(fd) else {
        return Kind::of(fd);
    };
    match Kind::from_code(slot.load(Relaxed) & (ON_MODEL - 1)) {
        Some(Kind::Direct) if !is_direct(fd) => {}
        Some(kind) => return kind,
        None => {}
    }
    let Probed { code, written_on } = Kind::probe(fd);
    let kind = Kind::from_code(code).unwrap_or_default();
    if closes_reported() && kind.is_file() && !is_ring(fd) {
        let model = model::of_fd(fd).map_or(0, |n| (n + 1) * ON_MODEL);
        if let (Some(device), Some(history)) = (written_on, remembered::history(fd)) {
            history.is_on(device);
        }
        slot.store(code | model, Relaxed);
    }
    kind
}

/// Returns whether the program's file is remembered as one whose status is in memory: on a disk of
/// this machine, and not on a modelled one.
pub(crate) fn is_local(fd: i32) -> bool {
    let Some(slot) = remembered::kind(fd).filter(|_| closes_reported() && !is_hidden(fd)) else {
        return false;
    };
    if slot.load(Relaxed) == 0 {
        kind(fd);
    }
    Kind::is_local(slot.load(Relaxed))
}

/// Returns the number of the modelled device that the program's file is on.
pub(crate) fn modelled(fd: i32) -> Option<u8> {
    if !model::any() || is_hidden(fd) {
        return None;
    }
    let slot = remembered::kind(fd).filter(|_| closes_reported());
    if let Some(slot) = slot {
        if slot.load(Relaxed) == 0 {
            kind(fd);
        }
        return (slot.load(Relaxed) / ON_MODEL).checked_sub(1);
    }
    let file = kind(fd).is_file();
    if file { model::of_fd(fd) } else { None }
}

#[inline]
fn known(fd: i32) -> Option<Kind> {
    Kind::from_code(remembered::kind(fd)?.load(Relaxed))
}

/// Returns the remembered kind of `fd`, unless it needs a second check.
#[inline]
pub(crate) fn known_kind(fd: i32) -> Option<Kind> {
    known(fd).filter(|&kind| kind != Kind::Direct)
}

/// Returns whether `fd` is remembered as a buffered file on a disk of this machine, not a modelled
/// one: reads may be told not to wait.
#[inline]
pub(crate) fn known_on_disk(fd: i32) -> bool {
    let code = remembered::kind(fd).map_or(0, |slot| slot.load(Relaxed));
    Kind::from_code(code) == Some(Kind::Buffered) && Kind::is_local(code)
}

/// Returns whether `fd` is remembered as O_DIRECT. Only the kernel knows if it still is: another
/// process that shares the open file may have changed the flag.
pub(crate) fn was_direct(fd: i32) -> bool {
    known(fd) == Some(Kind::Direct)
}

/// Returns whether `fd` is remembered as O_DIRECT and still is. Asks the kernel of no other number.
pub(crate) fn known_direct(fd: i32) -> bool {
    was_direct(fd) && is_direct(fd)
}

/// Returns whether `fd` is open with O_DIRECT now.
pub(crate) fn is_direct(fd: i32) -> bool {
    softring_host::sys::file_flags(fd)
        .is_some_and(|flags| flags.contains(softring_host::os::fs::OFlags::DIRECT))
}

/// Returns the counter of consecutive reads from the cache, if the entry points report closes.
pub(crate) fn history(fd: i32) -> Option<&'static History> {
    remembered::history(fd).filter(|_| closes_reported())
}

/// Returns whether the program's file is remembered as one on a modelled device.
pub(crate) fn is_modelled(fd: i32) -> bool {
    remembered::kind(fd).is_some_and(|slot| slot.load(Relaxed) >= ON_MODEL)
}

/// Forgets a number's kind before a close, and its file on a modelled device.
pub(crate) fn forget_closing(fd: i32) {
    if is_modelled(fd) {
        model::files::closing(fd);
    }
    forget_kind(fd);
}
