//! What kind of file the program's descriptors are, remembered by number until they are closed.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::model;
use softring_host::fd::history::History;
use softring_host::fd::kind::Kind;
use softring_host::fd::numbers::{closes_reported, is_ring};
use softring_host::fd::owned::is_hidden;
use softring_host::fd::remembered::{self, ON_MODEL, forget_kind};

/// What kind of file the program's descriptor is.
///
/// Only files are remembered, because only there a number closed and reused behind our back (stdio,
/// another library's raw calls) shows: a positioned read of what is now a stream answers ESPIPE,
/// and then the kind is looked up anew (`ops::rw`). What says O_DIRECT is asked again each time.
pub(crate) fn kind(fd: i32) -> Kind {
    let Some(slot) = remembered::kind(fd) else {
        return Kind::of(fd);
    };
    match Kind::from_code(slot.load(Relaxed) & (ON_MODEL - 1)) {
        Some(Kind::Direct) if !is_direct(fd) => {}
        Some(kind) => return kind,
        None => {}
    }
    let code = Kind::probe(fd);
    let kind = Kind::from_code(code).unwrap_or_default();
    if closes_reported() && kind.is_file() && !is_ring(fd) {
        let model = model::of_fd(fd).map_or(0, |n| (n + 1) * ON_MODEL);
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

/// The number of the modelled device that the program's file is on.
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

/// What is remembered of `fd`, where that needs no second check.
#[inline]
pub(crate) fn known_kind(fd: i32) -> Option<Kind> {
    known(fd).filter(|&kind| kind != Kind::Direct)
}

/// Is `fd` remembered as O_DIRECT? Whether it still is only the kernel knows: a process that shares
/// the open file may have changed that, too.
pub(crate) fn was_direct(fd: i32) -> bool {
    known(fd) == Some(Kind::Direct)
}

/// Is `fd` remembered as O_DIRECT, and is it still? Of any other number the kernel is not asked.
pub(crate) fn known_direct(fd: i32) -> bool {
    was_direct(fd) && is_direct(fd)
}

/// Is `fd` open with O_DIRECT now?
pub(crate) fn is_direct(fd: i32) -> bool {
    softring_host::sys::file_flags(fd)
        .is_some_and(|flags| flags.contains(softring_host::os::fs::OFlags::DIRECT))
}

/// The counter of reads in a row from the cache, where the entry points report closes.
pub(crate) fn history(fd: i32) -> Option<&'static History> {
    remembered::history(fd).filter(|_| closes_reported())
}

/// As [`forget_kind`], before a close: a file on a modelled device leaves more behind.
pub(crate) fn forget_closing(fd: i32) {
    if remembered::kind(fd).is_some_and(|s| s.load(Relaxed) >= ON_MODEL) {
        model::files::closing(fd);
    }
    forget_kind(fd);
}
