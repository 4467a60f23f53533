//! Calls of the kernel's asynchronous I/O.
#![allow(unsafe_code)]

use super::{ReadPtr, UserPtr, calls};
use crate::os::time::Timespec;
use crate::sys::{sleeps, sys};
use core::time::Duration;
use softring_uapi::aio::{io_event, iocb};
use softring_uapi::errno::{Errno, Result, check};

calls! {
    /// Calls io_setup(2) for the program.
    fn io_setup(nr: u32, id: UserPtr) = __NR_io_setup;
    /// Calls io_submit(2) for the program.
    fn io_submit(id: usize, n: isize, list: UserPtr) = __NR_io_submit;
    /// Calls io_cancel(2) for the program.
    fn io_cancel(id: usize, cb: UserPtr, result: UserPtr) = __NR_io_cancel;
}

/// Context that its owner gives up, with the ring that is mapped for it.
#[derive(Debug)]
pub struct Ending(usize);

impl Ending {
    /// Wraps the id of a context.
    ///
    /// # Safety
    /// Whoever owns the context ends it, and nobody reads its ring from now on.
    pub const unsafe fn of(id: usize) -> Ending {
        Ending(id)
    }

    pub const fn id(&self) -> usize {
        self.0
    }
}

/// Calls io_destroy(2), which ends a context and the mapping of its ring.
///
/// # Errors
/// As the call.
pub fn io_destroy(ctx: Ending) -> Result<usize> {
    // SAFETY: the type says that nobody uses the mapping any more.
    check(unsafe { sys!(__NR_io_destroy, ctx.0) })
}

/// Calls io_getevents(2), or io_pgetevents(2) with a signal set; waits as the program asks.
///
/// # Errors
/// As the call.
pub fn io_getevents(
    id: usize,
    (min, nr): (isize, isize),
    to: UserPtr,
    timeout: ReadPtr,
    sigset: Option<ReadPtr>,
) -> Result<usize> {
    // SAFETY: the events are for the program; the kernel reads the others.
    check(unsafe {
        match sigset {
            None => sleeps!(__NR_io_getevents, id, min, nr, to.0, timeout.0),
            Some(set) => sleeps!(__NR_io_pgetevents, id, min, nr, to.0, timeout.0, set.0),
        }
    })
}

/// Calls io_getevents(2) for the program, without waiting.
///
/// # Errors
/// As the call.
pub fn io_getevents_now(id: usize, (min, nr): (isize, isize), to: UserPtr) -> Result<usize> {
    let now = [0u64; 2];
    let now = now.as_ptr().expose_provenance();
    // SAFETY: the events are for the program.
    check(unsafe { sys!(__NR_io_getevents, id, min, nr, to.0, now) })
}

/// Makes a context of ours.
///
/// # Errors
/// As io_setup(2).
pub fn setup(depth: u32) -> Result<usize> {
    let mut id = 0usize;
    // SAFETY: the word is ours.
    check(unsafe { sys!(__NR_io_setup, depth, (&raw mut id).expose_provenance()) }).map(|_| id)
}

/// Address of an iocb of ours, by which the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct IocbPtr(usize);

impl IocbPtr {
    /// Returns the address of an iocb.
    ///
    /// # Safety
    /// The iocb stays in place until the kernel has been given it ([`submit`]) or the address is
    /// dropped. Memory that the iocb has the kernel write to is the program's
    /// ([`UserPtr`]); a vector that it names stays as long as the iocb.
    pub unsafe fn of(iocb: &mut iocb) -> IocbPtr {
        IocbPtr(core::ptr::from_mut(iocb).expose_provenance())
    }

    pub fn addr(self) -> usize {
        self.0
    }
}

/// Calls io_submit(2) with iocbs of ours.
///
/// # Errors
/// As the call.
pub fn submit(id: usize, list: &[IocbPtr]) -> Result<usize> {
    // SAFETY: iocbs that are still there, of which the kernel writes the key; what they name is the
    // program's memory, says whoever made their `IocbPtr`s.
    check(unsafe { sys!(__NR_io_submit, id, list.len(), list.as_ptr().expose_provenance()) })
}

/// Calls io_cancel(2) for an iocb of ours; its event is dropped.
pub fn cancel(id: usize, iocb: IocbPtr) {
    let mut event = io_event::default();
    // SAFETY: the kernel compares the address, and writes the event, which is ours.
    unsafe { sys!(__NR_io_cancel, id, iocb.0, (&raw mut event).expose_provenance()) };
}

/// `struct __aio_sigset`
#[repr(C)]
#[derive(Debug)]
pub struct Sigset {
    mask: ReadPtr,
    size: usize,
}

impl Sigset {
    /// Wraps the address of a mask, which must live longer than the call.
    pub fn of(mask: &u64) -> Sigset {
        Sigset { mask: ReadPtr::of(mask), size: 8 }
    }
}

/// Calls io_pgetevents(2) on a context of ours, or io_getevents(2) if the former is missing and no
/// mask is given.
///
/// # Errors
/// `EINTR`; `ENOSYS` where io_pgetevents is missing and a mask is asked for.
///
/// # Safety
/// `to` is an array of N events that nobody else uses until this returns.
pub unsafe fn get_events<const N: usize>(
    id: usize,
    min: usize,
    timeout: Option<Duration>,
    sigmask: Option<u64>,
    to: *mut [io_event; N],
) -> Result<usize> {
    let ts = timeout.and_then(Timespec::of);
    let ts = ts.as_ref().map_or(0, |t| (&raw const *t).expose_provenance());
    let set = sigmask.as_ref().map(Sigset::of);
    let set = set.as_ref().map_or(0, |set| (&raw const *set).expose_provenance());
    let to = to.expose_provenance();
    // SAFETY: the kernel reads the time and the set, which are ours, and writes N events at most,
    // for which the caller has room.
    let mut r = check(unsafe {
        match min {
            0 => sys!(__NR_io_pgetevents, id, 0, N, to, ts, set),
            _ => sleeps!(__NR_io_pgetevents, id, min, N, to, ts, set),
        }
    });
    if r == Err(Errno::ENOSYS) && set == 0 {
        // SAFETY: as above.
        r = check(unsafe { sleeps!(__NR_io_getevents, id, min, N, to, ts) });
    }
    r.map(|n| n.min(N))
}
