//! Contexts of our own, where the kernel gives none: a kernel built without aio, a filter that
//! denies io_setup(2).
//!
//! As in the kernel, what is buffered is done inside io_submit, in its order, and what is open with
//! O_DIRECT is done meanwhile: there by the device, here by workers, of which fsync and polls take
//! one each, too. Events lie in a ring that is the program's to read, as the kernel's is
//! ([`Mapped`]), but for those of polled contexts, whose ring stays empty.
//!
//! Locks: a context's own, a leaf but for the copying of events to the program.

use super::context::polled_rules;
use super::look::{Ended, Wait, only_in_sleep, sleep};
use super::mapped::Mapped;
use super::table::{self, Entry};
use crate::abi::aio::*;
use crate::errno::{Errno, Result, answer, check};
use crate::fds::{InternalFd, dup_internal};
use crate::limits::AIO_WAIT_BATCH;
use crate::sync::Mutex;
use crate::sys::{self, borrow, futex_wake, sys};
use crate::transport::kind::Kind;
use crate::transport::worker::{Pool, Work, default_limits};
use crate::user;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32};
use rustix::fd::AsRawFd;
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::sync::Arc;

/// `fs.aio-max-nr`, as it is by default.
const MAX_NR: u32 = 0x1_0000;
/// What ioctx_alloc takes for a mistake.
const ABSURD_NR: u32 = 0x1000_0000 / size_of::<io_event>() as u32;
/// `ANON_INODE_FS_MAGIC`: where eventfds live.
const ANON_INODES: i64 = 0x0904_1934;

/// There was an emulated context in this process or its parents.
static EVER: AtomicBool = AtomicBool::new(false);

pub(super) struct Context {
    id: usize,
    nr: u32,
    state: Mutex<State>,
    /// Bumped with each event; threads sleep on it.
    seq: AtomicU32,
    pool: Arc<Pool<Job>>,
}

#[derive(Default)]
struct State {
    in_flight: u32,
    /// Until the context ends.
    ring: Option<Mapped>,
    /// Events of a polled context.
    unseen: VecDeque<io_event>,
    /// Iocbs of polls that can be cancelled.
    polls: Vec<u64>,
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
    resfd: Option<InternalFd>,
}

enum File {
    /// While io_submit runs.
    Theirs(i32),
    Ours(InternalFd),
}

/// io_setup(2), for a kernel without.
///
/// # Errors
/// `EFAULT`, `EINVAL`, `EAGAIN`, `ENOMEM`.
pub(super) fn setup(nr: u32, at: u64) -> Result<usize> {
    if user::read::<u64>(at)? != 0 || nr == 0 || nr > ABSURD_NR {
        return Err(Errno::EINVAL);
    }
    if nr > MAX_NR {
        return Err(Errno::EAGAIN);
    }
    crate::fork::init();
    let ring = Mapped::new(nr)?;
    let id = ring.id();
    user::write(at, &(id as u64))?;
    let [bound, unbound] = default_limits(nr);
    let pool = Pool::new(crate::fork::pid(), bound, unbound);
    EVER.store(true, Relaxed);
    let state = Mutex::new(State { ring: Some(ring), ..State::default() });
    let seq = AtomicU32::new(0);
    table::insert(Entry::Ours(Arc::new(Context { id, nr, state, seq, pool })));
    Ok(0)
}

/// What the kernel answers about a context that it does not know: where its aio is denied, what it
/// would answer.
pub(super) fn unknown(ret: isize) -> isize {
    let denied = [Errno::ENOSYS, Errno::EPERM, Errno::EACCES].map(Errno::ret);
    if denied.contains(&ret) && EVER.load(Relaxed) { Errno::EINVAL.ret() } else { ret }
}

impl Context {
    pub(super) fn id(&self) -> usize {
        self.id
    }

    pub(super) fn submit(self: &Arc<Self>, nr: isize, list: u64) -> isize {
        if nr < 0 {
            return Errno::EINVAL.ret();
        }
        let nr = nr.min(self.nr as isize);
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
        let made = self.prepare(cb, obj);
        let Ok(job) = made else {
            self.state.lock().in_flight -= 1;
            return made.map(|_| ());
        };
        if job.key().is_some() {
            self.state.lock().polls.push(obj);
        }
        if let File::Theirs(_) = job.file {
            job.run();
        } else if let Err(job) = self.pool.queue(job) {
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
        if s.in_flight + s.there() >= self.nr {
            return Err(Errno::EAGAIN);
        }
        s.in_flight += 1;
        Ok(())
    }

    fn prepare(self: &Arc<Self>, cb: iocb, obj: u64) -> Result<Job> {
        let fd = cb.aio_fildes.cast_signed();
        let flags = rustix::fs::fcntl_getfl(borrow(fd).ok_or(Errno::EBADF)?)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let resfd = (cb.aio_flags & IOCB_FLAG_RESFD != 0).then(|| eventfd(cb.aio_resfd));
        let resfd = resfd.transpose()?;
        user::write(key_of(obj), &0u32)?;
        let polled = cb.aio_flags & IOCB_FLAG_HIPRI != 0;
        if polled {
            polled_rules(&cb, &mut None)?;
        }
        self.state.lock().decide(polled)?;
        check_command(&cb, flags)?;
        let at_once = match cb.aio_lio_opcode {
            IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC => false,
            IOCB_CMD_POLL => sys::poll_now(fd, cb.aio_buf as i16) != 0,
            _ => Kind::of(fd) != Kind::Direct,
        };
        let file = match dup_internal(fd) {
            Ok(own) if !at_once => File::Ours(own),
            _ => File::Theirs(fd),
        };
        Ok(Job { ctx: self.clone(), cb, obj, file, resfd })
    }

    /// The end of one iocb.
    fn post(&self, job: &Job, res: i64) {
        let mut s = self.state.lock();
        s.push(io_event { data: job.cb.aio_data, obj: job.obj, res, res2: 0 });
        s.in_flight -= 1;
        s.forget_poll(job.obj);
        self.seq.fetch_add(1, AcqRel);
        drop(s);
        futex_wake(&self.seq, i32::MAX.cast_unsigned());
        if let Some(e) = &job.resfd {
            let _ = rustix::io::write(e, &1u64.to_ne_bytes());
        }
    }

    /// io_cancel(2): only polls can be.
    ///
    /// # Errors
    /// `EINPROGRESS` if its event now comes early, `EINVAL` if it runs on, or is none of ours.
    pub(super) fn cancel(&self, obj: u64) -> Result<usize> {
        user::read::<u32>(key_of(obj))?;
        // A worker may not have noticed yet that its poll has ended.
        let armed = self.state.lock().forget_poll(obj);
        if armed && self.cancel_polls(|&poll| poll == Some(obj), false) > 0 {
            return Err(Errno::EINPROGRESS);
        }
        Err(Errno::EINVAL)
    }

    fn cancel_polls(&self, which: impl Fn(&Option<u64>) -> bool, all: bool) -> usize {
        let (queued, running) = self.pool.cancel(&which, all);
        if running > 0 {
            self.pool.interrupt(&which);
        }
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
            let _ = sleep(&self.seq, seen, None, None);
        }
        drop(self.pool.shutdown());
        self.seq.fetch_add(1, AcqRel);
        futex_wake(&self.seq, i32::MAX.cast_unsigned());
        drop(self.state.lock().ring.take());
        0
    }

    pub(super) fn getevents(&self, wait: &Wait) -> isize {
        if wait.min < 0 || wait.nr < wait.min {
            return Errno::EINVAL.ret();
        }
        let (deadline, mask) = match (wait.deadline(), wait.sigmask()) {
            (Ok(deadline), Ok(mask)) => (deadline, mask),
            (Err(e), _) | (_, Err(e)) => return e.ret(),
        };
        let _slices = only_in_sleep(mask);
        let mut taken = 0;
        loop {
            let seen = self.seq.load(Acquire);
            let stop = match self.hand_out(wait, &mut taken) {
                Err(e) => Some(Err(e)),
                Ok(()) if taken >= wait.min => Some(Ok(())),
                Ok(()) => match sleep(&self.seq, seen, deadline, mask) {
                    Ok(Ended::Woken) => None,
                    Ok(Ended::TimedOut) => Some(Ok(())),
                    Err(e) => Some(self.hand_out(wait, &mut taken).and(Err(e))),
                },
            };
            match stop {
                None => {}
                Some(Err(e)) if taken == 0 => return e.ret(),
                Some(_) => return taken,
            }
        }
    }

    /// Copies what is there to the program, as far as it has room.
    fn hand_out(&self, wait: &Wait, taken: &mut isize) -> Result<()> {
        let mut s = self.state.lock();
        if s.ended {
            return Err(Errno::EINVAL);
        }
        let mut some = [io_event::default(); AIO_WAIT_BATCH];
        loop {
            let room = (wait.nr - *taken).min(AIO_WAIT_BATCH as isize) as usize;
            let n = s.front(&mut some[..room]);
            let to = wait.events.wrapping_add(*taken as usize * size_of::<io_event>());
            user::write_slice(to as u64, &some[..n])?;
            s.drop_front(n);
            *taken += n as isize;
            if n == 0 {
                return Ok(());
            }
        }
    }
}

impl State {
    /// Was there such a poll?
    fn forget_poll(&mut self, obj: u64) -> bool {
        let at = self.polls.iter().position(|&p| p == obj);
        at.map(|at| self.polls.swap_remove(at)).is_some()
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
    let fd = fd.cast_signed();
    let stat = rustix::fs::fstatfs(borrow(fd).ok_or(Errno::EBADF)?)?;
    if stat.f_type != ANON_INODES {
        return Err(Errno::EINVAL);
    }
    dup_internal(fd)
}

/// What io_submit refuses.
fn check_command(cb: &iocb, flags: OFlags) -> Result<()> {
    let access = flags & OFlags::ACCMODE;
    let bare = cb.aio_offset == 0 && cb.aio_nbytes == 0 && cb.aio_rw_flags == 0;
    match cb.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PREADV if access == OFlags::WRONLY => Err(Errno::EBADF),
        IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV if access == OFlags::RDONLY => Err(Errno::EBADF),
        IOCB_CMD_PREAD | IOCB_CMD_PREADV | IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV => Ok(()),
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC if bare && cb.aio_buf == 0 => Ok(()),
        IOCB_CMD_POLL if bare && cb.aio_buf <= u64::from(u16::MAX) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

impl Work for Job {
    /// The iocb of a poll.
    type Key = Option<u64>;

    fn run(self) {
        let fd = match &self.file {
            File::Theirs(fd) => *fd,
            File::Ours(own) => own.as_raw_fd(),
        };
        let res = match self.cb.aio_lio_opcode {
            IOCB_CMD_FSYNC => sys!(__NR_fsync, fd),
            IOCB_CMD_FDSYNC => sys!(__NR_fdatasync, fd),
            // Cancelled, it answers that nothing is ready.
            IOCB_CMD_POLL if sys::poll_wait(fd, self.cb.aio_buf as i16) < 0 => 0,
            IOCB_CMD_POLL => sys::poll_now(fd, self.cb.aio_buf as i16) as isize,
            _ => answer(read_or_write(&self.cb, fd)),
        };
        self.ctx.post(&self, res as i64);
    }

    fn unbound(&self) -> bool {
        self.cb.aio_lio_opcode == IOCB_CMD_POLL
    }

    fn hash_key(&self) -> Option<u64> {
        None
    }

    fn key(&self) -> Option<u64> {
        (self.cb.aio_lio_opcode == IOCB_CMD_POLL).then_some(self.obj)
    }
}

fn read_or_write(cb: &iocb, fd: i32) -> Result<usize> {
    let (buf, len, at, flags) = (cb.aio_buf, cb.aio_nbytes, cb.aio_offset, cb.aio_rw_flags);
    let iov = user::iovec { base: buf, len };
    let vectored = [IOCB_CMD_PREADV, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let (iov, n) =
        if vectored { (buf as usize, len) } else { ((&raw const iov).expose_provenance(), 1) };
    let writes = [IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let call = |at: i64| match (writes, flags) {
        (false, 0) => sys!(__NR_preadv, fd, iov, n, at, 0),
        (true, 0) => sys!(__NR_pwritev, fd, iov, n, at, 0),
        (false, _) => sys!(__NR_preadv2, fd, iov, n, at, 0, flags),
        (true, _) => sys!(__NR_pwritev2, fd, iov, n, at, 0, flags),
    };
    if at < 0 && flags != 0 {
        // These would take -1 for the file's own position.
        return Err(Errno::EINVAL);
    }
    match check(call(at)) {
        // A stream, which has no position: the kernel's aio does not ask for one.
        Err(Errno::ESPIPE) if writes => check(sys!(__NR_writev, fd, iov, n)),
        Err(Errno::ESPIPE) => check(sys!(__NR_readv, fd, iov, n)),
        r => r,
    }
}
