//! Contexts of our own, where the kernel gives none: a kernel built without aio, a filter that
//! denies io_setup(2).
//!
//! As in the kernel, what is buffered is done inside io_submit, in its order, and what is open with
//! O_DIRECT is done meanwhile: there by the device, here by workers, of which fsync and polls take
//! one each, too. Events lie in a ring that is the program's to read, as the kernel's is
//! ([`Mapped`]), but for those of polled contexts, whose ring stays empty.
//!
//! What the kernel's io_submit refuses fails here, too ([`check`]); any other error is an event's.
//!
//! Locks: a context's own, a leaf but for the copying of events to the program.

mod check;
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

/// `fs.aio-max-nr`, as it is by default.
const MAX_NR: u32 = 0x1_0000;
/// What ioctx_alloc takes for a mistake.
const ABSURD_NR: u32 = 0x1000_0000 / size_of::<io_event>() as u32;

pub(super) struct Context {
    id: usize,
    /// How many iocbs can be in flight, or events untaken.
    room: u32,
    state: Mutex<State>,
    /// Bumped with each event; threads sleep on it.
    seq: AtomicU32,
    /// Threads that sleep under a signal mask: only a descriptor wakes them.
    masked: AtomicU32,
    wakes_masked: OnceLock<InternalFd>,
    pool: Arc<Pool<Job>>,
}

#[derive(Default)]
struct State {
    in_flight: u32,
    /// The memory, until the context ends.
    ring: Option<Mapped>,
    /// Events of a polled context.
    unseen: VecDeque<io_event>,
    /// Polls that can be cancelled, the oldest first: their iocb, which the program may use again
    /// before it has taken the event of the last one, and their number.
    polls: Vec<(u64, u64)>,
    last_poll: u64,
    /// Are its iocbs polled? Decided by the first.
    polled: Option<bool>,
    ended: bool,
}

/// An iocb on its way through a worker.
pub(super) struct Job {
    ctx: Arc<Context>,
    cb: iocb,
    obj: u64,
    file: File,
    /// The state of a poll.
    poll: Option<Poll>,
    /// The poll's number among the context's polls.
    number: u64,
    resfd: Option<InternalFd>,
}

enum File {
    /// The program's number, while io_submit runs.
    Theirs(i32),
    Ours(InternalFd),
}

/// io_setup(2), for a kernel without.
///
/// # Errors
/// `EFAULT`, `EINVAL`, `EAGAIN`, `ENOMEM`.
pub(super) fn setup(nr: u32, at: u64) -> Result<usize> {
    if user::read::<u64>(at)? != 0 || nr == 0 {
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
    user::write(UserPtr::of_program(at), &(id as u64))?;
    let [bound, unbound] = default_limits(nr);
    let pool = Pool::new(softring_host::fork::pid(), bound, unbound);
    PROCESS.emulated.store(true, Relaxed);
    let state = Mutex::new(State { ring: Some(ring), ..State::default() });
    let (seq, masked, wakes_masked) = (AtomicU32::new(0), AtomicU32::new(0), OnceLock::new());
    let ctx = Context { id, room, state, seq, masked, wakes_masked, pool };
    table::insert(Entry::Ours(Arc::new(ctx)));
    Ok(0)
}

/// What the kernel answers about a context that it does not know: where its aio is denied, what it
/// would answer.
pub(super) fn unknown(ret: isize) -> isize {
    let denied = [Errno::ENOSYS, Errno::EPERM, Errno::EACCES].map(Errno::ret);
    if denied.contains(&ret) && PROCESS.emulated.load(Relaxed) { Errno::EINVAL.ret() } else { ret }
}

impl Context {
    pub(super) fn id(&self) -> usize {
        self.id
    }

    pub(super) fn submit(self: &Arc<Self>, nr: isize, list: u64) -> isize {
        if nr < 0 {
            return Errno::EINVAL.ret();
        }
        let nr = nr.min(self.room as isize);
        for done in 0..nr {
            let started =
                user::read(list.wrapping_add(8 * done as u64)).and_then(|cb| self.start(cb));
            match started {
                Ok(()) => {}
                Err(_) if done > 0 => return done,
                Err(e) => return e.ret(),
            }
        }
        nr
    }

    /// io_submit_one
    fn start(self: &Arc<Self>, obj: u64) -> Result<()> {
        let cb: iocb = user::read(obj)?;
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

    /// A place for one more event.
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

    fn prepare(self: &Arc<Self>, cb: iocb, obj: u64) -> Result<Job> {
        let fd = cb.aio_fildes.cast_signed();
        let open = borrow(visible(fd)).ok_or(Errno::EBADF)?;
        let flags = softring_host::os::fs::fcntl_getfl(open)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let resfd = (cb.aio_flags & IOCB_FLAG_RESFD != 0).then(|| eventfd(cb.aio_resfd));
        let resfd = resfd.transpose()?;
        user::write(UserPtr::of_program(key_of(obj)), &0u32)?;
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
        Ok(Job { ctx: self.clone(), cb, obj, file, poll, number: 0, resfd })
    }

    /// The end of one iocb.
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

    /// io_cancel(2): only polls can be.
    ///
    /// # Errors
    /// `EINPROGRESS` if its event now comes early, `EINVAL` if it runs on, or is none of ours.
    pub(super) fn cancel(&self, obj: u64) -> Result<usize> {
        user::read::<u32>(key_of(obj))?;
        // A worker may not have noticed yet that its poll has ended.
        let number = self.state.lock().forget_poll(obj).ok_or(Errno::EINVAL)?;
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
            // A signal does not end it, as it does not end the kernel's.
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

    /// The number of the oldest poll with that iocb, which can be cancelled no more.
    fn forget_poll(&mut self, obj: u64) -> Option<u64> {
        let at = self.polls.iter().position(|&(of, _)| of == obj)?;
        Some(self.polls.remove(at).1)
    }

    fn there(&self) -> u32 {
        self.unseen.len() as u32 + self.ring.as_ref().map_or(0, Mapped::len)
    }

    /// An iocb is polled, or not: the first decides for all.
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

/// Where the kernel marks an iocb as submitted.
fn key_of(obj: u64) -> u64 {
    obj.wrapping_add(core::mem::offset_of!(iocb, aio_key) as u64)
}

/// A duplicate of the program's eventfd.
fn eventfd(fd: u32) -> Result<InternalFd> {
    let own = dup_visible(fd.cast_signed())?;
    if is_path_only(own.as_raw_fd()) {
        return Err(Errno::EBADF);
    }
    if is_eventfd(own.as_raw_fd()) { Ok(own) } else { Err(Errno::EINVAL) }
}

/// Adds one to an eventfd; where it can count no further, a write would wait for somebody to read.
fn signal(eventfd: &InternalFd) {
    if sys::poll_now(eventfd.as_raw_fd(), sys::POLLOUT) & sys::POLLOUT != 0 {
        let _ = softring_host::os::io::write(eventfd, &1u64.to_ne_bytes());
    }
}

impl Job {
    /// Does what it asks for.
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
    /// The iocb of a poll.
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
