//! Contexts of our own, if the kernel gives none: a kernel built without aio, or a filter that
//! denies io_setup(2).
//!
//! As in the kernel, buffered I/O is done inside io_submit, in its order, and I/O with O_DIRECT is
//! done meanwhile: in the kernel by the device, here by workers. fsync and polls take one worker
//! each, too. Events lie in a ring that the program may read, like the kernel's ([`Mapped`]). The
//! ring of a polled context stays empty.
//!
//! What the kernel's io_submit refuses fails here, too ([`check`]); an event reports any other
//! error.
//!
//! Locks: a context's own lock is a leaf, except for copying events to the program.

mod check;
mod iocb;
mod poll;
mod room;
mod rw;
mod wait;

use super::context::polled_rules;
use super::mapped::Mapped;
use super::table::{self, Entry, PROCESS};
use crate::io::worker::{Pool, Work, default_limits};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use iocb::Iocb;
use poll::Poll;
use room::{processors, room};
use softring_host::calls::files;
use softring_host::fd::kind::Kind;
use softring_host::fd::probe::is_eventfd;
use softring_host::fd::{InternalFd, dup_internal, dup_visible, is_path_only, visible};
use softring_host::os::fd::AsRawFd;
use softring_host::os::fs::OFlags;
use softring_host::sync::Mutex;
use softring_host::sync::real::OnceLock;
use softring_host::sys::{self, borrow, futex_wake};
use softring_host::user::{self, UserPtr};
use softring_uapi::aio::*;
use softring_uapi::errno::{Errno, Result, answer};
pub(super) use wait::unknown_waits;

/// Default of `fs.aio-max-nr`.
const MAX_NR: u32 = 0x1_0000;
/// Number of events above which ioctx_alloc assumes a mistake.
const ABSURD_NR: u32 = 0x1000_0000 / size_of::<io_event>() as u32;

pub(super) struct Context {
    id: usize,
    /// Number of iocbs in flight and untaken events that there is room for.
    room: u32,
    state: Mutex<State>,
    /// Sequence bumped with each event, on which threads sleep.
    seq: AtomicU32,
    /// Number of threads that sleep under a signal mask: only a descriptor wakes them.
    masked: AtomicU32,
    wakes_masked: OnceLock<InternalFd>,
    pool: Arc<Pool<Job>>,
}

#[derive(Default)]
struct State {
    in_flight: u32,
    /// Memory of the ring, until the context ends.
    ring: Option<Mapped>,
    /// Events of a polled context.
    unseen: VecDeque<io_event>,
    /// Polls that can be cancelled, the oldest first, each with its iocb and its number. The
    /// program may use the iocb again before it has taken the event of its last poll.
    polls: Vec<(u64, u64)>,
    last_poll: u64,
    /// Set by the first iocb: true if iocbs are polled.
    polled: Option<bool>,
    ended: bool,
}

/// An iocb on its way through a worker.
pub(super) struct Job {
    ctx: Arc<Context>,
    cb: Iocb,
    obj: u64,
    file: File,
    /// State of a poll.
    poll: Option<Poll>,
    /// Number of the poll among the context's polls.
    number: u64,
    resfd: Option<InternalFd>,
}

enum File {
    /// Number of the program's descriptor, while io_submit runs.
    Theirs(i32),
    Ours(InternalFd),
}

/// Makes a context, as io_setup(2) does, for a kernel without aio.
///
/// # Errors
/// `EFAULT`, `EINVAL`, `EAGAIN`, `ENOMEM`.
pub(super) fn setup(nr: u32, at: UserPtr) -> Result<usize> {
    if user::read::<u64>(at.addr())? != 0 || nr == 0 {
        return Err(Errno::EINVAL);
    }
    // The kernel doubles a number of 32 bits before it checks for a mistake.
    if nr.max(4 * processors()).wrapping_mul(2) > ABSURD_NR {
        return Err(Errno::EINVAL);
    }
    if nr > MAX_NR {
        return Err(Errno::EAGAIN);
    }
    softring_host::fork::init();
    softring_host::handlers::need();
    let ring = Mapped::new(2 * nr.max(4 * processors()) + 1)?;
    let (id, room) = (ring.id(), room(ring.room(), processors()));
    user::write(at, &(id as u64))?;
    let [bound, unbound] = default_limits(nr);
    let pool = Pool::new(softring_host::fork::pid(), bound, unbound);
    PROCESS.emulated.store(true, Relaxed);
    let state = Mutex::new(State { ring: Some(ring), ..State::default() });
    let (seq, masked, wakes_masked) = (AtomicU32::new(0), AtomicU32::new(0), OnceLock::new());
    let ctx = Context { id, room, state, seq, masked, wakes_masked, pool };
    table::insert(Entry::Ours(Arc::new(ctx)));
    Ok(0)
}

/// Translates the kernel's answer about a context that it does not know. If the kernel's aio is
/// denied, returns what the kernel would answer without the denial.
pub(super) fn unknown(ret: isize) -> isize {
    let denied = [Errno::ENOSYS, Errno::EPERM, Errno::EACCES].map(Errno::ret);
    if denied.contains(&ret) && PROCESS.emulated.load(Relaxed) { Errno::EINVAL.ret() } else { ret }
}

impl Context {
    pub(super) fn id(&self) -> usize {
        self.id
    }

    pub(super) fn submit(self: &Arc<Self>, nr: isize, list: UserPtr) -> isize {
        if nr < 0 {
            return Errno::EINVAL.ret();
        }
        let nr = nr.min(self.room as isize);
        for done in 0..nr {
            let started = Iocb::named(list, done as u64).and_then(|at| self.start(at));
            match started {
                Ok(()) => {}
                Err(_) if done > 0 => return done,
                Err(e) => return e.ret(),
            }
        }
        nr
    }

    /// Starts one iocb (`io_submit_one`).
    fn start(self: &Arc<Self>, obj: UserPtr) -> Result<()> {
        let cb = Iocb::read(obj)?;
        if cb.aio_reserved2 != 0 || cb.aio_nbytes > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        self.reserve()?;
        let issued = self.prepare(cb, obj).and_then(|job| self.issue(job));
        issued.inspect_err(|_| self.state.lock().in_flight -= 1)
    }

    fn issue(&self, mut job: Job) -> Result<()> {
        if matches!(job.file, File::Theirs(_)) {
            let res = job.result();
            if let Some(e) = check::refusal(&job.cb, res) {
                return Err(e);
            }
            self.post(&job, res as i64);
            return Ok(());
        }
        if job.key().is_some() {
            job.number = self.state.lock().add_poll(job.obj);
        }
        if let Err(job) = self.pool.queue(job) {
            job.run();
        }
        Ok(())
    }

    /// Reserves room for one more event.
    fn reserve(&self) -> Result<()> {
        let mut s = self.state.lock();
        if s.ended {
            return Err(Errno::EINVAL);
        }
        if s.in_flight + s.there() >= self.room {
            return Err(Errno::EAGAIN);
        }
        s.in_flight += 1;
        Ok(())
    }

    fn prepare(self: &Arc<Self>, cb: Iocb, obj: UserPtr) -> Result<Job> {
        let fd = cb.aio_fildes.cast_signed();
        let open = borrow(visible(fd)).ok_or(Errno::EBADF)?;
        let flags = softring_host::os::fs::fcntl_getfl(open)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let resfd = (cb.aio_flags & IOCB_FLAG_RESFD != 0).then(|| eventfd(cb.aio_resfd));
        let resfd = resfd.transpose()?;
        user::write(Iocb::key(obj), &0u32)?;
        let polled = cb.aio_flags & IOCB_FLAG_HIPRI != 0;
        if polled {
            polled_rules(&cb, &mut None)?;
        }
        self.state.lock().decide(polled)?;
        check::command(&cb, fd, flags)?;
        let polls = cb.aio_lio_opcode == IOCB_CMD_POLL;
        let poll = polls.then(|| Poll::new(fd, cb.aio_buf as u16, flags)).transpose()?;
        let at_once = match (&poll, cb.aio_lio_opcode) {
            (Some(poll), _) => matches!(poll, Poll::Ready(_)),
            (_, IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC) => !check::syncs_later(fd),
            _ => Kind::of(fd) != Kind::Direct,
        };
        let file = match dup_internal(fd) {
            Ok(own) if !at_once => File::Ours(own),
            _ => File::Theirs(fd),
        };
        Ok(Job { ctx: self.clone(), cb, obj: obj.addr(), file, poll, number: 0, resfd })
    }

    /// Posts the event of one iocb.
    fn post(&self, job: &Job, res: i64) {
        let mut s = self.state.lock();
        s.push(io_event { data: job.cb.aio_data, obj: job.obj, res, res2: 0 });
        s.in_flight -= 1;
        s.polls.retain(|&(_, number)| job.key() != Some(number));
        self.seq.fetch_add(1, AcqRel);
        drop(s);
        self.wake();
        if let Some(e) = &job.resfd {
            signal(e);
        }
    }

    /// Wakes all who wait for events.
    fn wake(&self) {
        futex_wake(&self.seq, i32::MAX.cast_unsigned());
        if self.masked.load(SeqCst) > 0 {
            self.wakes_masked.get().map(signal);
        }
    }

    /// Cancels an iocb (io_cancel(2)); only polls can be cancelled.
    ///
    /// # Errors
    /// `EINPROGRESS` if the event now comes early, `EINVAL` if the iocb runs on or is none of ours.
    pub(super) fn cancel(&self, obj: UserPtr) -> Result<usize> {
        user::read::<u32>(Iocb::key(obj).addr())?;
        // A worker may not have noticed yet that its poll has ended.
        let number = self.state.lock().forget_poll(obj.addr()).ok_or(Errno::EINVAL)?;
        let found = self.cancel_polls(|&poll| poll == Some(number), false);
        Err(if found > 0 { Errno::EINPROGRESS } else { Errno::EINVAL })
    }

    fn cancel_polls(&self, which: impl Fn(&Option<u64>) -> bool, all: bool) -> usize {
        let (queued, running) = self.pool.cancel_and_interrupt(which, all);
        queued.iter().for_each(|job| self.post(job, 0));
        queued.len() + running
    }

    pub(super) fn destroy(&self) -> isize {
        self.state.lock().ended = true;
        self.cancel_polls(Option::is_some, true);
        loop {
            let seen = self.seq.load(Acquire);
            if self.state.lock().in_flight == 0 {
                break;
            }
            // As in the kernel, a signal does not end the wait.
            sys::futex_wait(&self.seq, seen, None);
        }
        drop(self.pool.shutdown());
        self.seq.fetch_add(1, AcqRel);
        self.wake();
        drop(self.state.lock().ring.take());
        0
    }
}

impl State {
    fn add_poll(&mut self, obj: u64) -> u64 {
        self.last_poll += 1;
        self.polls.push((obj, self.last_poll));
        self.last_poll
    }

    /// Takes the oldest poll of that iocb off the list of cancellable ones; returns its number.
    fn forget_poll(&mut self, obj: u64) -> Option<u64> {
        let at = self.polls.iter().position(|&(of, _)| of == obj)?;
        Some(self.polls.remove(at).1)
    }

    fn there(&self) -> u32 {
        self.unseen.len() as u32 + self.ring.as_ref().map_or(0, Mapped::len)
    }

    /// Checks that all iocbs are polled, or none: the first decides.
    fn decide(&mut self, polled: bool) -> Result<()> {
        if *self.polled.get_or_insert(polled) != polled {
            return Err(Errno::EINVAL);
        }
        if let (true, Some(ring)) = (polled, &self.ring) {
            ring.disown();
        }
        Ok(())
    }

    fn push(&mut self, e: io_event) {
        match &mut self.ring {
            Some(ring) if self.polled != Some(true) => ring.push(e),
            _ => self.unseen.push_back(e),
        }
    }

    fn front(&self, to: &mut [io_event]) -> usize {
        let n = to.len().min(self.unseen.len());
        to.iter_mut().zip(&self.unseen).for_each(|(to, e)| *to = *e);
        if n > 0 { n } else { self.ring.as_ref().map_or(0, |ring| ring.front(to)) }
    }

    fn drop_front(&mut self, n: usize) {
        if self.unseen.is_empty() {
            self.ring.iter_mut().for_each(|ring| ring.drop_front(n));
        } else {
            self.unseen.drain(..n);
        }
    }
}

/// Duplicates the program's eventfd.
fn eventfd(fd: u32) -> Result<InternalFd> {
    let own = dup_visible(fd.cast_signed())?;
    if is_path_only(own.as_raw_fd()) {
        return Err(Errno::EBADF);
    }
    if is_eventfd(own.as_raw_fd()) { Ok(own) } else { Err(Errno::EINVAL) }
}

/// Adds one to an eventfd, unless it can count no further: a write would wait for a reader.
fn signal(eventfd: &InternalFd) {
    if sys::poll_now(eventfd.as_raw_fd(), sys::POLLOUT) & sys::POLLOUT != 0 {
        let _ = softring_host::os::io::write(eventfd, &1u64.to_ne_bytes());
    }
}

impl Job {
    /// Does what the iocb asks for.
    fn result(&self) -> isize {
        let fd = match &self.file {
            File::Theirs(fd) => *fd,
            File::Ours(own) => own.as_raw_fd(),
        };
        if let Some(poll) = &self.poll {
            return poll.result(fd) as isize;
        }
        match self.cb.aio_lio_opcode {
            IOCB_CMD_FSYNC => answer(files::fsync(fd)),
            IOCB_CMD_FDSYNC => answer(files::fdatasync(fd)),
            _ => answer(rw::read_or_write(&self.cb, fd)),
        }
    }
}

impl Work for Job {
    /// Number of a poll.
    type Key = Option<u64>;

    fn run(self) {
        let res = self.result();
        self.ctx.post(&self, res as i64);
    }

    fn unbound(&self) -> bool {
        self.cb.aio_lio_opcode == IOCB_CMD_POLL
    }

    fn hash_key(&self) -> Option<u64> {
        None
    }

    fn key(&self) -> Option<u64> {
        (self.cb.aio_lio_opcode == IOCB_CMD_POLL).then_some(self.number)
    }
}
