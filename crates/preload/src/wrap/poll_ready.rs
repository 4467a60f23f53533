//! poll(2) and ppoll(2) of a ring that has completions already: one system call.
//!
//! For the kernel a ring's memfd is always ready, as every file without a poll of its own. So where
//! the rings among the entries are ready for what they are polled for, the kernel's answer to the
//! program's own array is right, in all of its entries, and comes at once. The call also says
//! whether the array is good, which would cost another call otherwise; so it is made before the
//! array is read, if a ring was last left with completions.
#![allow(unsafe_code)]

use super::internal;
use super::poll::{FEW, READABLE, Theirs, WRITABLE};
use super::wait::Limit;
use crate::raw::raw;
use libc::timespec;
use softring_engine::fds::{self, Poller};
use softring_host::fd;
use softring_uapi::errno::Errno;

/// Result of a poll of the program's own array, without a wait.
pub(super) enum First {
    /// The answer to the program's call.
    Answer(isize),
    /// The array may be read and written, and is to be polled anew.
    Checked,
    /// Nothing: no poll was made.
    Unmade,
}

/// Polls the program's array without a wait, if a ring is likely to be ready.
pub(super) fn poll(theirs: Theirs, n: usize, limit: &Limit, cancelled: fn()) -> First {
    if n > FEW || !fds::left_ready() {
        return First::Unmade;
    }
    let cancels = fds::cancels();
    cancelled();
    let mut none = timespec { tv_sec: 0, tv_nsec: 0 };
    let mask = limit.mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let at = theirs.0.expose_provenance();
    // SAFETY: the program's own call, but for its time; time and mask are ours.
    let ret = unsafe {
        let (none, mask) = ((&raw mut none).expose_provenance(), mask.expose_provenance());
        raw!(libc::SYS_ppoll, at, n, none, mask, size_of::<u64>())
    };
    if ret == Errno::EINTR.ret() {
        return First::Answer(ret);
    }
    if ret < 0 {
        // The array may be bad only for what is written at the end, which is not yet.
        return First::Unmade;
    }
    let poller = Poller::begin(cancels);
    // Where nothing is ready, the program's call waits.
    let known = ret > 0 && (0..n).all(|i| is_answered(theirs.entry(i), &poller));
    if known { First::Answer(ret) } else { First::Checked }
}

/// Returns whether the kernel's answer for an entry is that of the file that the program means.
fn is_answered(entry: libc::pollfd, poller: &Poller) -> bool {
    let libc::pollfd { fd: number, events: asked, revents: found } = entry;
    fd::sets::share(number);
    if fd::is_ring(number) {
        return asked & WRITABLE == 0 && (asked & READABLE == 0 || poller.finds_ready(number));
    }
    // An eventfd that is not ready may be so once its ring is driven.
    let told = !fds::is_eventfd(number) || found & READABLE != 0;
    told && !internal(number) && !fd::sets::holds_ring(number)
}
