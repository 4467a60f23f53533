//! A context of the kernel's, and what its iocbs have made of it.
//!
//! A context is new until its first iocb, which decides for good whether it is polled: to mix is
//! EINVAL. A polled one has a second context of the kernel's, hidden, which takes its iocbs just as
//! the program made them; what the kernel maps for the program stays empty, and loses the mark by
//! which libaio and others know that they may read it instead of calling.
//!
//! A thread that asks for events of a new context waits for them in the kernel, which also hears of
//! iocbs that come past us. It could not be told there of a second context: once a thread has
//! waited so, iocbs that are polled stay in the context's own ring.
//!
//! **Looking and ending.** Completion memory is unmapped when its context ends, maybe by one thread
//! while another looks at it. Who looks holds `mapped` for reading and asks `ending` before each
//! look; who ends it sets `ending`, then waits for `mapped`:
//!
//! ```text
//! looks: hold; ending? no        ends: ending = true
//!        look; ending? yes             wait for `mapped` ◀── released
//!        release                       io_destroy, which unmaps
//! ```

use super::look::{Manners, Wait};
use super::naps::Naps;
use super::{HEARD, table};
use crate::abi::aio::*;
use crate::errno::{Errno, Result, check};
use crate::limits::{AIO_LEAVE, AIO_LOOK_BATCH, AIO_LOOKS};
use crate::sync::Mutex;
use crate::sys::{borrow, sys};
use crate::transport::aio::ring::Ring;
use crate::user;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};
use rustix::fs::OFlags;
use std::sync::{OnceLock, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

const NEW: u32 = 0;
/// New, and a thread has begun to wait for it in the kernel.
const AWAITED: u32 = 1;
const PLAIN: u32 = 2;
/// Polled, in the hidden context.
const POLLED: u32 = 3;
/// Polled, in its own ring: the first iocb found it awaited.
const POLLED_OPENLY: u32 = 4;

/// Commands that can be polled.
const POLLABLE: [u16; 4] = [IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_CMD_PREADV, IOCB_CMD_PWRITEV];

#[derive(Debug)]
pub(super) struct Context {
    id: usize,
    /// How many iocbs the program asked for.
    nr: u32,
    /// The ring that is mapped for the program; `None` where it is not of the known form.
    own: Option<Ring>,
    /// Polled, whatever its iocbs say.
    forced: bool,
    /// One of the five above.
    mode: AtomicU32,
    deciding: Mutex<()>,
    hidden: OnceLock<Hidden>,
    looked: AtomicU32,
    manners: Manners,
    /// Of a polled context whose waiters go by a policy.
    naps: OnceLock<Naps>,
    mapped: RwLock<()>,
    ending: AtomicBool,
}

/// The second context of a polled one.
#[derive(Debug)]
struct Hidden {
    id: usize,
    ring: Option<Ring>,
}

impl Context {
    pub(super) fn new(id: usize, nr: u32, forced: bool) -> Self {
        let naps = forced.then(|| Naps::new(nr)).flatten();
        Self {
            id,
            nr,
            own: Ring::at(id),
            forced,
            mode: AtomicU32::new(NEW),
            deciding: Mutex::new(()),
            hidden: OnceLock::new(),
            looked: AtomicU32::new(0),
            manners: Manners::default(),
            naps: naps.map_or_else(OnceLock::new, OnceLock::from),
            mapped: RwLock::new(()),
            ending: AtomicBool::new(false),
        }
    }

    pub(super) fn id(&self) -> usize {
        self.id
    }

    /// Do its calls need a look?
    pub(super) fn counts(&self) -> bool {
        self.forced || self.looked.load(Relaxed) < AIO_LOOKS
    }

    /// Which context of the kernel's has its iocbs.
    pub(super) fn target(&self) -> usize {
        self.hidden().map_or(self.id, |h| h.id)
    }

    /// Nothing that a lost race to decide has left.
    fn hidden(&self) -> Option<&Hidden> {
        self.hidden.get().filter(|_| self.mode.load(Acquire) == POLLED)
    }

    pub(super) fn naps(&self) -> Option<&Naps> {
        self.naps.get()
    }

    pub(super) fn manners(&self) -> &Manners {
        &self.manners
    }

    pub(super) fn ends(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// Keeps the completion memory mapped; `None` if the context ends.
    pub(super) fn hold(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let held = self.mapped.try_read().ok()?;
        (!self.ends()).then_some(held)
    }

    pub(super) fn destroy(&self) -> isize {
        self.ending.store(true, SeqCst);
        let started = Instant::now();
        while matches!(self.mapped.try_write(), Err(TryLockError::WouldBlock)) {
            if started.elapsed() > AIO_LEAVE {
                break;
            }
            crate::sys::pause(Duration::from_micros(20));
        }
        if let Some(hidden) = self.hidden.get() {
            sys!(__NR_io_destroy, hidden.id);
        }
        sys!(__NR_io_destroy, self.id)
    }

    pub(super) fn getevents(&self, wait: &Wait) -> isize {
        if wait.waits() {
            let _ = self.mode.compare_exchange(NEW, AWAITED, AcqRel, Acquire);
        }
        match self.hidden() {
            Some(Hidden { id, ring: Some(ring) }) => wait.look(self, ring, *id),
            Some(Hidden { id, ring: None }) => Wait { id: *id, ..*wait }.kernel(),
            None => match &self.own {
                Some(ring) if self.polls_openly() => wait.look(self, ring, self.id),
                _ => wait.kernel(),
            },
        }
    }

    fn polls_openly(&self) -> bool {
        self.forced || self.mode.load(Acquire) == POLLED_OPENLY
    }

    pub(super) fn submit(&self, nr: isize, list: usize) -> isize {
        let known = self.mode.load(Acquire) == PLAIN && self.naps().is_none();
        if nr <= 0 || known && self.seen_enough() {
            return sys!(__NR_io_submit, self.id, nr, list);
        }
        let mut done = 0;
        while done < nr {
            let rest = list.wrapping_add(done as usize * size_of::<usize>());
            let n = (nr - done).min(AIO_LOOK_BATCH as isize) as usize;
            let (good, bad) = self.examine(rest as u64, n);
            if good > 0 {
                let ret = sys!(__NR_io_submit, self.target(), good, rest);
                self.told(ret, good, rest);
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

    /// Of `good` iocbs at `list` the kernel has taken some.
    fn told(&self, ret: isize, good: usize, list: usize) {
        let taken = ret.max(0) as usize;
        if let Some(naps) = self.naps().filter(|_| taken < good) {
            naps.refused((list + taken * size_of::<usize>()) as u64, good - taken);
        }
    }

    /// Has it been looked at so often without a polled iocb that none is expected any more?
    fn seen_enough(&self) -> bool {
        if self.looked.load(Relaxed) >= AIO_LOOKS {
            return true;
        }
        if self.looked.fetch_add(1, Relaxed) == AIO_LOOKS - 1 && !self.forced {
            table::settled();
        }
        false
    }

    /// How many of the `n` iocbs from the start may be submitted, and why the next may not.
    fn examine(&self, list: u64, n: usize) -> (usize, Option<Errno>) {
        let mut at = [0u64; AIO_LOOK_BATCH];
        let mut cbs = [iocb::default(); AIO_LOOK_BATCH];
        let mut readable = n;
        if user::read_slice(list, &mut at[..n]).is_err() {
            let each: [u64; AIO_LOOK_BATCH] =
                core::array::from_fn(|i| list.wrapping_add(8 * i as u64));
            readable = user::read_each(&each[..n], &mut at);
        }
        let readable = user::read_each(&at[..readable], &mut cbs);
        let mut last_direct = None;
        for (i, cb) in cbs[..readable].iter().enumerate() {
            if let Err(e) = self.judge(cb, &mut last_direct) {
                return (i, Some(e));
            }
            if let Some(naps) = self.naps() {
                naps.issued(at[i], cb);
            }
        }
        (readable, (readable < n).then_some(Errno::EFAULT))
    }

    fn judge(&self, cb: &iocb, last_direct: &mut Option<u32>) -> Result<()> {
        let flagged = cb.aio_flags & IOCB_FLAG_HIPRI != 0 && HEARD.load(Relaxed);
        let wanted = if flagged { POLLED } else { PLAIN };
        if wanted == POLLED {
            polled_rules(cb, last_direct)?;
        }
        let mode = match self.mode.load(Acquire) {
            NEW | AWAITED => self.decide(wanted)?,
            mode => mode,
        };
        let polled = [POLLED, POLLED_OPENLY].contains(&mode);
        if polled == flagged { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Its first iocb is of this kind. Answers what the context is now: another thread may have
    /// been faster.
    ///
    /// # Errors
    /// Those of io_setup(2) for the hidden context.
    fn decide(&self, wanted: u32) -> Result<u32> {
        let _one = self.deciding.lock();
        let mode = self.mode.load(Acquire);
        if ![NEW, AWAITED].contains(&mode) {
            return Ok(mode);
        }
        if wanted == POLLED {
            if mode == NEW {
                let _ = self.hidden.set(Hidden::new(self.nr)?);
            }
            if let Some(naps) = Naps::new(self.nr) {
                let _ = self.naps.set(naps);
            }
            if let (Some(own), Some(_held)) = (&self.own, self.hold()) {
                own.disown();
            }
        }
        // A thread may have begun to wait meanwhile.
        let decided = self.mode.fetch_update(AcqRel, Acquire, |mode| match (mode, wanted) {
            (AWAITED, POLLED) => Some(POLLED_OPENLY),
            (NEW | AWAITED, _) => Some(wanted),
            _ => None,
        });
        debug_assert!(decided.is_ok(), "one thread at a time decides");
        Ok(self.mode.load(Acquire))
    }
}

impl Hidden {
    fn new(nr: u32) -> Result<Self> {
        crate::handlers::need();
        let mut id = 0usize;
        check(sys!(__NR_io_setup, nr, (&raw mut id).expose_provenance()))?;
        Ok(Self { id, ring: Ring::at(id) })
    }
}

/// What a polled iocb must be.
///
/// # Errors
/// `EBADF`; `EINVAL` if it is to signal an eventfd, or is no read or write; `EOPNOTSUPP` if its
/// file is not open with O_DIRECT.
pub(super) fn polled_rules(cb: &iocb, last_direct: &mut Option<u32>) -> Result<()> {
    let direct = *last_direct == Some(cb.aio_fildes) || {
        let fd = borrow(cb.aio_fildes.cast_signed()).ok_or(Errno::EBADF)?;
        rustix::fs::fcntl_getfl(fd)?.contains(OFlags::DIRECT)
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
