//! io_getevents(2) and io_pgetevents(2) of a context of our own.
//!
//! A thread sleeps on a futex; under a signal mask on an eventfd, as no futex call takes a mask.
//! One eventfd serves all threads that sleep so: each clears it before it checks for events, and a
//! thread that leaves events behind signals it again.

use super::{Context, signal};
use crate::libaio::peek::{Wait, end_under};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use core::time::Duration;
use softring_host::fd::{InternalFd, make_internal};
use softring_host::limits::AIO_WAIT_BATCH;
use softring_host::os::fd::AsRawFd;
use softring_host::signal::BlockAll;
use softring_host::sys;
use softring_host::time::Clock;
use softring_host::user;
use softring_uapi::aio::io_event;
use softring_uapi::errno::{Errno, Result};

/// Longest sleep under a mask without an eventfd.
const SLICE: Duration = Duration::from_millis(1);

/// A thread that waits under a signal mask.
struct Masked<'a> {
    ctx: &'a Context,
    mask: u64,
    /// Block of all signals outside the sleep: a handler that ran between two sleeps would leave no
    /// trace.
    _blocked: BlockAll,
}

/// Waits on a context that only the kernel may know; see [`super::unknown`].
pub(in crate::libaio) fn unknown_waits(wait: &Wait) -> isize {
    let ret = wait.kernel();
    let e = super::unknown(ret);
    // The kernel has given an answer of its own under the mask.
    if e == ret { ret } else { wait.refused(Errno::EINVAL) }
}

impl Context {
    pub(in crate::libaio) fn getevents(&self, wait: &Wait) -> isize {
        if wait.min < 0 || wait.nr < wait.min {
            return wait.refused(Errno::EINVAL);
        }
        let (deadline, mask) = match (wait.deadline(), wait.sigmask()) {
            (Ok(deadline), Ok(mask)) => (deadline, mask),
            (Err(e), _) | (_, Err(e)) => return e.ret(),
        };
        let n = self.take_by(wait, deadline, mask);
        mask.map_or(n, |mask| end_under(mask, n))
    }

    fn take_by(&self, wait: &Wait, deadline: Option<u64>, mask: Option<u64>) -> isize {
        let masked = mask.map(|mask| Masked::new(self, mask));
        let mut taken = 0;
        loop {
            let seen = self.seq.load(Acquire);
            if let Some(masked) = &masked {
                masked.clear();
            }
            let stop = match self.copy_out(wait, &mut taken) {
                Err(e) => Some(Err(e)),
                Ok(()) if taken >= wait.min => Some(Ok(())),
                Ok(()) => match self.sleep(seen, deadline, masked.as_ref()) {
                    Ok(true) => None,
                    Ok(false) => Some(Ok(())),
                    Err(e) => Some(self.copy_out(wait, &mut taken).and(Err(e))),
                },
            };
            match stop {
                None => {}
                Some(Err(e)) if taken == 0 => return e.ret(),
                Some(_) => return taken,
            }
        }
    }

    /// Sleeps until there may be something new; false if the time was over before.
    ///
    /// # Errors
    /// `EINTR`.
    fn sleep(&self, seen: u32, deadline: Option<u64>, masked: Option<&Masked<'_>>) -> Result<bool> {
        let left = deadline.map(|at| at.saturating_sub(Clock::Monotonic.now()));
        if left == Some(0) {
            return Ok(false);
        }
        let left = left.map(Duration::from_nanos);
        let slept = match masked {
            Some(masked) => masked.sleep(left),
            None => {
                let forever = Duration::from_nanos(u64::MAX >> 2);
                sys::futex_wait_sig(&self.seq, seen, Some(left.unwrap_or(forever)))
            }
        };
        // Under a mask, a second sleep would not be told of the signal.
        if slept == Err(Errno::EINTR) && (masked.is_some() || self.seq.load(Acquire) == seen) {
            return Err(Errno::EINTR);
        }
        Ok(true)
    }

    /// Copies events to the program, as far as it has room.
    fn copy_out(&self, wait: &Wait, taken: &mut isize) -> Result<()> {
        let mut s = self.state.lock();
        if s.ended {
            return Err(Errno::EINVAL);
        }
        let mut some = [io_event::default(); AIO_WAIT_BATCH];
        loop {
            let room = (wait.nr - *taken).min(AIO_WAIT_BATCH as isize) as usize;
            let n = s.front(&mut some[..room]);
            let to = wait.events.add(*taken as u64 * size_of::<io_event>() as u64);
            user::write_slice(to, &some[..n])?;
            s.drop_front(n);
            *taken += n as isize;
            if n == 0 {
                return Ok(());
            }
        }
    }
}

impl<'a> Masked<'a> {
    fn new(ctx: &'a Context, mask: u64) -> Self {
        if ctx.wakes_masked.get().is_none()
            && let Ok(fd) = softring_host::substitute::eventfd()
        {
            let _ = ctx.wakes_masked.set(make_internal(fd));
        }
        ctx.masked.fetch_add(1, SeqCst);
        Masked { ctx, mask, _blocked: BlockAll::begin() }
    }

    fn fd(&self) -> Option<&InternalFd> {
        self.ctx.wakes_masked.get()
    }

    fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = self.fd().map(|fd| softring_host::os::io::read(fd, &mut count));
    }

    /// # Errors
    /// `EINTR` when a handler ran.
    fn sleep(&self, left: Option<Duration>) -> Result<()> {
        match self.fd() {
            Some(fd) => sys::poll_under(Some(self.mask), fd.as_raw_fd(), left),
            None => sys::sleep_under(self.mask, left.unwrap_or(SLICE).min(SLICE)),
        }
    }
}

impl Drop for Masked<'_> {
    fn drop(&mut self) {
        let others = self.ctx.masked.fetch_sub(1, SeqCst) > 1;
        let s = self.ctx.state.lock();
        let left = s.ended || s.there() > 0;
        drop(s);
        if others && left {
            self.fd().map(signal);
        }
    }
}
