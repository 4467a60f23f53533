//! A context of the kernel's, with the mode that its first iocb has chosen.
//!
//! A context is new until its first iocb, which decides for good whether the context is polled:
//! mixing is EINVAL. The ring of a polled context loses the mark by which libaio and others know
//! that they may read it instead of calling. Its iocbs and events stay the kernel's own, in that
//! ring: a thread that submits or waits past us does so as on any context.
//!
//! **Peeking and ending.** Completion memory is unmapped when its context ends, maybe by one thread
//! while another peeks at it. The thread that peeks holds `mapped` for reading and reads `ending`
//! before each peek. The thread that ends the context sets `ending`, then waits for `mapped`:
//!
//! ```text
//! peeks: hold; ending? no        ends: ending = true
//!        peek; ending? yes             wait for `mapped` ◀── released
//!        release                       io_destroy, which unmaps
//! ```
#![allow(unsafe_code)]

use super::idle_sleeps::IdleSleeps;
use super::peek::{Manners, Wait};
use super::table::{self, PROCESS};
use crate::io::aio::ring::Ring;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};
use core::time::Duration;
use softring_host::calls::UserPtr;
use softring_host::calls::aio::{self, Ending};
use softring_host::limits::{AIO_BATCH, AIO_INSPECTED, AIO_LEAVE};
use softring_host::os::fs::OFlags;
use softring_host::sync::Mutex;
use softring_host::sync::real::{OnceLock, RwLock, RwLockReadGuard};
use softring_host::sys::borrow;
use softring_host::time::Deadline;
use softring_host::user;
use softring_uapi::aio::*;
use softring_uapi::errno::{Errno, Result, answer};

const NEW: u32 = 0;
const PLAIN: u32 = 1;
const POLLED: u32 = 2;

/// Commands that can be polled.
const POLLABLE: [u16; 4] = [IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_CMD_PREADV, IOCB_CMD_PWRITEV];

#[derive(Debug)]
pub(super) struct Context {
    id: usize,
    /// Number of iocbs that the program asked for.
    nr: u32,
    /// Ring that is mapped for the program; `None` if it is not of the known form.
    own: Option<Ring>,
    /// Flag, true if the context is polled, whatever its iocbs say.
    forced: bool,
    /// One of the three modes above.
    mode: AtomicU32,
    deciding: Mutex<()>,
    inspected: AtomicU32,
    manners: Manners,
    /// Sleeps of a polled context whose waiters go by a policy.
    idle_sleeps: OnceLock<IdleSleeps>,
    mapped: RwLock<()>,
    ending: AtomicBool,
}

impl Context {
    pub(super) fn new(id: usize, nr: u32, forced: bool) -> Self {
        let idle_sleeps = forced.then(|| IdleSleeps::new(nr)).flatten();
        Self {
            id,
            nr,
            // SAFETY: the kernel has just made the context for the program, which gives it up by a
            // call that the entry points see, or breaks itself. `hold` keeps it mapped meanwhile.
            own: unsafe { Ring::at(id) },
            forced,
            mode: AtomicU32::new(NEW),
            deciding: Mutex::new(()),
            inspected: AtomicU32::new(0),
            manners: Manners::default(),
            idle_sleeps: idle_sleeps.map_or_else(OnceLock::new, OnceLock::from),
            mapped: RwLock::new(()),
            ending: AtomicBool::new(false),
        }
    }

    pub(super) fn id(&self) -> usize {
        self.id
    }

    /// Returns whether calls on the context must be inspected.
    pub(super) fn counts(&self) -> bool {
        self.forced || self.inspected.load(Relaxed) < AIO_INSPECTED
    }

    pub(super) fn idle_sleeps(&self) -> Option<&IdleSleeps> {
        self.idle_sleeps.get()
    }

    pub(super) fn manners(&self) -> &Manners {
        &self.manners
    }

    pub(super) fn ends(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// Keeps the completion memory mapped; `None` if the context ends.
    pub(super) fn hold(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let held = self.mapped.try_read()?;
        (!self.ends()).then_some(held)
    }

    pub(super) fn destroy(&self) -> isize {
        self.ending.store(true, SeqCst);
        let end = Deadline::after(AIO_LEAVE);
        while self.mapped.try_write().is_none() {
            if end.has_passed() {
                break;
            }
            softring_host::sys::pause(Duration::from_micros(20));
        }
        // SAFETY: the program's call ends its context. `ending` keeps threads from the ring, and
        // those that peeked have let go, but for one that did not run for as long as `AIO_LEAVE`.
        answer(aio::io_destroy(unsafe { Ending::of(self.id) }))
    }

    pub(super) fn getevents(&self, wait: &Wait) -> isize {
        let polled = self.forced || self.mode.load(Acquire) == POLLED;
        match self.own.as_ref().filter(|_| polled) {
            Some(ring) => wait.peek(self, ring),
            None => wait.kernel(),
        }
    }

    pub(super) fn submit(&self, nr: isize, list: UserPtr) -> isize {
        let known = self.mode.load(Acquire) == PLAIN && self.idle_sleeps().is_none();
        if nr <= 0 || known && self.seen_enough() {
            return answer(aio::io_submit(self.id, nr, list));
        }
        let mut done = 0;
        while done < nr {
            let rest = list.add(done as u64 * size_of::<u64>() as u64);
            let n = (nr - done).min(AIO_BATCH as isize) as usize;
            let (good, bad) = self.examine(rest.addr(), n);
            if good > 0 {
                let ret = answer(aio::io_submit(self.id, good.cast_signed(), rest));
                self.forget_refused(ret, good, rest);
                if ret < 0 {
                    return if done > 0 { done } else { ret };
                }
                done += ret;
                if ret < good as isize {
                    return done;
                }
            }
            if let Some(e) = bad {
                return if done > 0 { done } else { e.ret() };
            }
        }
        done
    }

    /// Forgets those of `good` iocbs at `list` that the kernel, by its answer `ret`, has not taken.
    fn forget_refused(&self, ret: isize, good: usize, list: UserPtr) {
        let taken = ret.max(0) as usize;
        if let Some(idle_sleeps) = self.idle_sleeps().filter(|_| taken < good) {
            idle_sleeps.refused(list.add(8 * taken as u64).addr(), good - taken);
        }
    }

    /// Counts an inspection; true if so many have found no polled iocb that none is expected any
    /// more.
    fn seen_enough(&self) -> bool {
        if self.inspected.load(Relaxed) >= AIO_INSPECTED {
            return true;
        }
        if self.inspected.fetch_add(1, Relaxed) == AIO_INSPECTED - 1 && !self.forced {
            table::stop_inspecting();
        }
        false
    }

    /// Returns how many of the `n` iocbs from the start may be submitted, and why the next may not.
    fn examine(&self, list: u64, n: usize) -> (usize, Option<Errno>) {
        let mut at = [0u64; AIO_BATCH];
        let mut cbs = [iocb::default(); AIO_BATCH];
        let mut readable = n;
        if user::read_slice(list, &mut at[..n]).is_err() {
            let each: [u64; AIO_BATCH] = core::array::from_fn(|i| list.wrapping_add(8 * i as u64));
            readable = user::read_each(&each[..n], &mut at);
        }
        let readable = user::read_each(&at[..readable], &mut cbs);
        let mut last_direct = None;
        for (i, cb) in cbs[..readable].iter().enumerate() {
            if let Err(e) = self.judge(cb, &mut last_direct) {
                return (i, Some(e));
            }
            if let Some(idle_sleeps) = self.idle_sleeps() {
                idle_sleeps.issued(at[i], cb);
            }
        }
        (readable, (readable < n).then_some(Errno::EFAULT))
    }

    fn judge(&self, cb: &iocb, last_direct: &mut Option<u32>) -> Result<()> {
        let flagged = cb.aio_flags & IOCB_FLAG_HIPRI != 0 && !PROCESS.misses_calls.load(Relaxed);
        let wanted = if flagged { POLLED } else { PLAIN };
        if wanted == POLLED {
            polled_rules(cb, last_direct)?;
        }
        let mode = match self.mode.load(Acquire) {
            NEW => self.decide(wanted),
            mode => mode,
        };
        if (mode == POLLED) == flagged { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Decides the mode by the context's first iocb. Returns the mode now: another thread may have
    /// been faster.
    fn decide(&self, wanted: u32) -> u32 {
        let _one = self.deciding.lock();
        let mode = self.mode.load(Acquire);
        if mode != NEW {
            return mode;
        }
        if wanted == POLLED {
            softring_host::handlers::need();
            if let Some(idle_sleeps) = IdleSleeps::new(self.nr) {
                let _ = self.idle_sleeps.set(idle_sleeps);
            }
            if let (Some(own), Some(_held)) = (&self.own, self.hold()) {
                own.disown();
            }
        }
        self.mode.store(wanted, Release);
        wanted
    }
}

/// Checks what is required of a polled iocb.
///
/// # Errors
/// `EBADF`; `EINVAL` if it is to signal an eventfd, or is no read or write; `EOPNOTSUPP` if its
/// file is not open with O_DIRECT.
pub(super) fn polled_rules(cb: &iocb, last_direct: &mut Option<u32>) -> Result<()> {
    let direct = *last_direct == Some(cb.aio_fildes) || {
        let fd = borrow(cb.aio_fildes.cast_signed()).ok_or(Errno::EBADF)?;
        softring_host::os::fs::fcntl_getfl(fd)?.contains(OFlags::DIRECT)
    };
    if cb.aio_flags & IOCB_FLAG_RESFD != 0 || !POLLABLE.contains(&cb.aio_lio_opcode) {
        return Err(Errno::EINVAL);
    }
    if !direct {
        return Err(Errno::EOPNOTSUPP);
    }
    *last_direct = Some(cb.aio_fildes);
    Ok(())
}
