//! A small io_uring client: raw rings through libc's `syscall()`, which both the kernel and
//! softring serve.
//!
//! The client is the program's side of the ABI, io_uring(7): it owns the SQ tail and the CQ head;
//! the other side owns the SQ head and the CQ tail. Each side publishes with release, and the other
//! reads with acquire.
#![allow(unsafe_code)]

use super::buf::Slots;
use super::client::{Client, Done, Io};
use super::job::Job;
use softring_uapi::{self as abi, io_uring_cqe, io_uring_params, io_uring_sqe};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A mapping of the ring's memory.
pub struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    /// Maps `len` bytes of a file from `offset` on, shared, and makes their pages.
    pub fn new(fd: &OwnedFd, len: usize, offset: u64) -> io::Result<Map> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let off = offset.cast_signed();
        // SAFETY: a fresh mapping at an address that the kernel picks.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd.as_raw_fd(), off) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map { at: at.cast(), len })
    }

    /// Returns a pointer to `count` values of T at `offset`.
    fn part<T>(&self, offset: u32, count: usize) -> *mut T {
        let offset = offset as usize;
        assert!(
            offset + count * size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.at.add(offset) }.cast()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made by `new`, used only through the Ring that owns it.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// One ring.
pub struct Ring {
    fd: OwnedFd,
    sq_tail: *mut AtomicU32,
    sq_head: *mut AtomicU32,
    sq_flags: *mut AtomicU32,
    cq_tail: *mut AtomicU32,
    cq_head: *mut AtomicU32,
    sqes: *mut io_uring_sqe,
    cqes: *mut io_uring_cqe,
    sq_entries: u32,
    cq_entries: u32,
    /// Slots of the base size per entry, as a shift: 1 with SQE128 or CQE32.
    sqe_shift: u32,
    cqe_shift: u32,
    /// SQ tail behind the SQEs written; the next enter publishes it.
    tail: u32,
    /// SQ tail behind the SQEs that enter has taken.
    taken: u32,
    /// Flag, true if the engine in this process serves the ring, called directly.
    linked: bool,
    /// Flag, true if a thread takes the SQEs (SQPOLL).
    thread: bool,
    /// Flag, true if [`Ring::push`] waits for that thread while the queue is full.
    waits: bool,
    _maps: [Option<Map>; 3],
}

impl Ring {
    /// Makes a ring of at least `entries` entries and maps it.
    pub fn new(entries: u32, flags: u32) -> io::Result<Ring> {
        let ring = Ring::open(entries, io_uring_params { flags, ..Default::default() }, false)?;
        Ok(Ring { waits: ring.thread, ..ring })
    }

    /// Makes a ring of the engine that this program is linked with, whoever else makes rings here.
    pub fn linked(entries: u32) -> io::Result<Ring> {
        Ring::open(entries, io_uring_params::default(), true)
    }

    /// Makes a ring with room for `cq_entries` completions.
    pub fn with_cq(entries: u32, cq_entries: u32, flags: u32) -> io::Result<Ring> {
        let flags = flags | abi::IORING_SETUP_CQSIZE;
        let p = io_uring_params { flags, cq_entries, ..Default::default() };
        let ring = Ring::open(entries, p, false)?;
        Ok(Ring { waits: ring.thread, ..ring })
    }

    /// Makes a ring with an SQ thread, for a client that never waits. The thread runs on processor
    /// `cpu`, if one is given, and sleeps after `idle` ms without work.
    pub fn sqpoll(entries: u32, flags: u32, cpu: Option<u32>, idle: u32) -> io::Result<Ring> {
        let pinned = if cpu.is_some() { abi::IORING_SETUP_SQ_AFF } else { 0 };
        let flags = flags | abi::IORING_SETUP_SQPOLL | pinned;
        let (sq_thread_cpu, sq_thread_idle) = (cpu.unwrap_or(0), idle);
        let p = io_uring_params { flags, sq_thread_cpu, sq_thread_idle, ..Default::default() };
        Ring::open(entries, p, false)
    }

    fn open(entries: u32, mut p: io_uring_params, linked: bool) -> io::Result<Ring> {
        let fd = match linked {
            true => crate::sys::engine_setup(entries, &mut p)?,
            false => crate::sys::io_uring_setup(entries, &mut p)?,
        };
        let sqe_shift = u32::from(p.flags & abi::IORING_SETUP_SQE128 != 0);
        let cqe_shift = u32::from(p.flags & abi::IORING_SETUP_CQE32 != 0);
        let (n_sq, n_cq) = (p.sq_entries as usize, p.cq_entries as usize);
        let array = p.flags & abi::IORING_SETUP_NO_SQARRAY == 0;
        let sq_len = if array { p.sq_off.array as usize + 4 * n_sq } else { 0 };
        let cq_len = p.cq_off.cqes as usize + (n_cq << cqe_shift) * size_of::<io_uring_cqe>();
        let single = p.features & abi::IORING_FEAT_SINGLE_MMAP != 0;
        let first = if single { sq_len.max(cq_len) } else { sq_len };
        let sq = Map::new(&fd, first, abi::IORING_OFF_SQ_RING)?;
        let cq = match single {
            true => None,
            false => Some(Map::new(&fd, cq_len, abi::IORING_OFF_CQ_RING)?),
        };
        let sqes_len = (n_sq << sqe_shift) * size_of::<io_uring_sqe>();
        let sqe_map = Map::new(&fd, sqes_len, abi::IORING_OFF_SQES)?;
        if array {
            let indices = sq.part::<u32>(p.sq_off.array, n_sq);
            for i in 0..p.sq_entries {
                // SAFETY: the array has n_sq words, as `part` asserted. Entry i is slot i, for
                // good.
                unsafe { indices.add(i as usize).write(i) };
            }
        }
        let c = cq.as_ref().unwrap_or(&sq);
        Ok(Ring {
            sq_tail: sq.part(p.sq_off.tail, 1),
            sq_head: sq.part(p.sq_off.head, 1),
            sq_flags: sq.part(p.sq_off.flags, 1),
            cq_tail: c.part(p.cq_off.tail, 1),
            cq_head: c.part(p.cq_off.head, 1),
            sqes: sqe_map.part(0, n_sq << sqe_shift),
            cqes: c.part(p.cq_off.cqes, n_cq << cqe_shift),
            sq_entries: p.sq_entries,
            cq_entries: p.cq_entries,
            sqe_shift,
            cqe_shift,
            tail: 0,
            taken: 0,
            linked,
            thread: p.flags & abi::IORING_SETUP_SQPOLL != 0,
            waits: false,
            fd,
            _maps: [Some(sq), cq, Some(sqe_map)],
        })
    }

    fn word(&self, at: *mut AtomicU32) -> &AtomicU32 {
        // SAFETY: `at` is one of this ring's words, which `open` placed inside a mapping that lives
        // as long as self.
        unsafe { &*at }
    }

    fn full(&self) -> bool {
        let head = self.word(self.sq_head).load(Ordering::Acquire);
        self.tail.wrapping_sub(head) >= self.sq_entries
    }

    /// Waits until the SQ thread has released an entry: it releases those of a batch after the
    /// batch, when some may be complete already.
    #[cold]
    fn make_room(&mut self) -> io::Result<()> {
        while self.full() {
            self.publish()?;
            self.call(0, 0, abi::IORING_ENTER_SQ_WAIT | self.wakeup())?;
        }
        Ok(())
    }

    /// Writes one SQE; returns false if the queue is full.
    #[inline]
    pub fn push(&mut self, sqe: io_uring_sqe) -> bool {
        if self.full() && !(self.waits && self.make_room().is_ok()) {
            return false;
        }
        let slot = ((self.tail & (self.sq_entries - 1)) << self.sqe_shift) as usize;
        // SAFETY: the slot is masked into the SQE array, and it is ours until the tail passes it.
        unsafe { self.sqes.add(slot).write(sqe) };
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Calls io_uring_enter(2): submits what was pushed and waits until at least `want` completions
    /// are there.
    #[inline]
    pub fn enter(&mut self, want: u32) -> io::Result<()> {
        if self.thread {
            return self.enter_thread(want);
        }
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        loop {
            let pending = self.tail.wrapping_sub(self.taken);
            if pending == 0 && self.ready() >= want {
                return Ok(());
            }
            let flags = if want > 0 { abi::IORING_ENTER_GETEVENTS } else { 0 };
            match self.call(pending, want, flags) {
                Ok(n) => self.taken = self.taken.wrapping_add(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if self.taken == self.tail {
                return Ok(());
            }
        }
    }

    /// Does the same on a ring with an SQ thread: calls only to wake the thread and to wait.
    fn enter_thread(&mut self, want: u32) -> io::Result<()> {
        self.publish()?;
        while self.ready() < want {
            match self.call(0, want, abi::IORING_ENTER_GETEVENTS | self.wakeup()) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the flag for enter that wakes the SQ thread, if it sleeps or is about to.
    #[inline]
    fn wakeup(&self) -> u32 {
        // The thread stores its flag before it reads the tail for the last time; without the fence
        // this read of the flag might come before the store of the tail.
        fence(Ordering::SeqCst);
        let sleeps = self.word(self.sq_flags).load(Ordering::Relaxed) & abi::IORING_SQ_NEED_WAKEUP;
        if sleeps == 0 { 0 } else { abi::IORING_ENTER_SQ_WAKEUP }
    }

    /// Publishes the SQEs pushed to the SQ thread, and wakes it if it sleeps.
    #[inline]
    pub fn publish(&mut self) -> io::Result<()> {
        if self.taken == self.tail {
            return Ok(());
        }
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        let pending = self.tail.wrapping_sub(self.taken);
        self.taken = self.tail;
        match self.wakeup() {
            0 => Ok(()),
            wakeup => self.call(pending, 0, wakeup).map(|_| ()),
        }
    }

    /// Has completions posted that wait for a call, without waiting for more.
    pub fn run_completions(&self) -> io::Result<()> {
        self.call(0, 0, abi::IORING_ENTER_GETEVENTS).map(|_| ())
    }

    /// Calls io_uring_enter(2) once; returns how many SQEs it took.
    fn call(&self, submit: u32, want: u32, flags: u32) -> io::Result<u32> {
        let fd = self.fd.as_raw_fd();
        if self.linked {
            let n = softring_engine::syscall::enter(fd, submit, want, flags, 0, 0);
            return u32::try_from(n).map_err(|_| io::Error::from_raw_os_error(-n as i32));
        }
        let none = std::ptr::null::<u8>();
        // SAFETY: no pointer is passed but null; the SQEs point at memory of Slots, which lives
        // for good.
        let n = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, fd, submit, want, flags, none, 0usize)
        };
        u32::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Registers a table of files, by io_uring_register(2), with `file` in slot 0.
    fn register_file(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let (fd, op) = (self.fd.as_raw_fd(), abi::IORING_REGISTER_FILES);
        let files = [file.as_raw_fd()];
        // SAFETY: reads one descriptor from `files`.
        let n = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, op, files.as_ptr(), 1) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the number of completions that can be reaped.
    pub fn ready(&self) -> u32 {
        let tail = self.word(self.cq_tail).load(Ordering::Acquire);
        tail.wrapping_sub(self.word(self.cq_head).load(Ordering::Relaxed))
    }

    /// Passes every completion that is there to `each`; returns their number.
    #[inline]
    pub fn reap(&mut self, mut each: impl FnMut(&io_uring_cqe)) -> u32 {
        let n = self.ready();
        let head = self.word(self.cq_head).load(Ordering::Relaxed);
        for i in 0..n {
            let slot = (head.wrapping_add(i) & (self.cq_entries - 1)) << self.cqe_shift;
            // SAFETY: masked into the CQE array; the other side left it to us by its release of the
            // tail.
            each(&unsafe { self.cqes.add(slot as usize).read() });
        }
        self.word(self.cq_head).store(head.wrapping_add(n), Ordering::Release);
        n
    }

    /// Returns the ring's descriptor, which is open for as long as the ring lives.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns the side whose ring this is, by what /proc calls its descriptor.
    pub fn kind(&self) -> Option<String> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        link.ok().map(|l| l.display().to_string())
    }
}

/// Client that reads and writes through a ring.
pub struct Uring<'a> {
    ring: Ring,
    fd: BorrowedFd<'a>,
    slots: Slots,
    /// Flag, true if the file is in slot 0 of the registered table.
    fixed: bool,
}

impl<'a> Uring<'a> {
    pub fn new(job: &Job, fd: BorrowedFd<'a>, slots: Slots) -> io::Result<Self> {
        let ring = Ring::new(job.depth, job.setup_flags)?;
        if job.fixed_files {
            ring.register_file(fd)?;
        }
        Ok(Uring { ring, fd, slots, fixed: job.fixed_files })
    }
}

impl Client for Uring<'_> {
    fn submit(&mut self, batch: &[Io]) -> io::Result<()> {
        self.turn(batch, 0, &mut Vec::new())
    }

    fn wait(&mut self, want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        self.turn(&[], want, done)
    }

    fn turn(&mut self, batch: &[Io], want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        for io in batch {
            let sqe = io_uring_sqe {
                opcode: if io.write { abi::IORING_OP_WRITE } else { abi::IORING_OP_READ },
                flags: if self.fixed { abi::IOSQE_FIXED_FILE } else { 0 },
                fd: if self.fixed { 0 } else { self.fd.as_raw_fd() },
                off: io.offset,
                addr: self.slots.addr(io.slot) as u64,
                len: io.len,
                user_data: u64::from(io.slot),
                ..Default::default()
            };
            if !self.ring.push(sqe) {
                return Err(io::Error::other("the submission queue is full below its depth"));
            }
        }
        self.ring.enter(want)?;
        if want > 0 {
            self.ring.reap(|c| done.push(Done { slot: c.user_data as u32, res: c.res }));
        }
        Ok(())
    }

    fn ring(&self) -> Option<String> {
        self.ring.kind()
    }
}
