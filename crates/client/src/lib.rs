//! Test client: a raw io_uring client that does exactly what it is told, and nothing behind the
//! program's back. It can get everything wrong that a program can. [`Calls`] decides how its calls
//! are made: in the kernel, or in an engine.
//!
//! The caller keeps alive what an SQE points at until its completion is reaped.
#![allow(unsafe_code)]

use softring_uapi::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// System calls of a client. Each returns a value, or `-errno`.
pub trait Calls: Copy + Default {
    /// Calls `io_uring_setup(2)`; `params` is an address.
    fn setup(self, entries: u32, params: usize) -> isize;
    /// Calls `io_uring_enter(2)`.
    fn enter(self, fd: i32, submit: u32, min: u32, flags: u32, arg: usize, size: usize) -> isize;
    /// Calls `io_uring_register(2)`.
    fn register(self, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize;
    /// Maps `len` bytes of `fd` at `offset` by `mmap(2)`, shared and populated.
    fn mmap(self, fd: i32, len: usize, offset: u64) -> isize;
    /// Calls `munmap(2)`.
    ///
    /// # Safety
    /// Nothing may use the range afterwards.
    unsafe fn munmap(self, addr: usize, len: usize) -> isize;
    /// Calls `close(2)`.
    fn close(self, fd: i32) -> isize;
    /// Returns whether the client is one that expects EINTR and EAGAIN of `io_uring_enter(2)`, and
    /// calls again.
    fn calls_again(self) -> bool {
        false
    }
}

/// Most calls of `io_uring_enter(2)` of a client that calls again, where one would do.
const CALLS: u32 = 50;

/// A positive errno.
pub type Errno = i32;

/// A completion. `big` holds the second half of a 32-byte one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cqe {
    pub user_data: u64,
    pub res: i32,
    pub flags: u32,
    pub big: Option<[u64; 2]>,
}

/// Memory shared with the kernel's side; unmapped on drop.
#[derive(Debug)]
pub struct Map<C: Calls> {
    pub addr: usize,
    pub len: usize,
    calls: C,
}

impl<C: Calls> Map<C> {
    /// Maps `len` bytes of the ring at one of the `IORING_OFF_*` offsets.
    pub fn of_fd(calls: C, fd: i32, len: usize, offset: u64) -> Result<Self, Errno> {
        let addr = value(calls.mmap(fd, len, offset))?;
        Ok(Self { addr, len, calls })
    }

    /// Maps fresh zeroed memory, aligned to a page.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        let (prot, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANON);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, kind, -1, 0) };
        if addr == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(Self { addr: addr.expose_provenance(), len, calls: C::default() })
    }

    /// Takes over memory that the caller has mapped: a drop unmaps it.
    pub fn of_program(addr: usize, len: usize) -> Self {
        Self { addr, len, calls: C::default() }
    }

    /// Returns the word at byte `off`.
    pub fn word(&self, off: u32) -> &AtomicU32 {
        let off = off as usize;
        assert!(off + 4 <= self.len && off.is_multiple_of(4), "word {off} outside the ring");
        let p = std::ptr::with_exposed_provenance_mut::<u32>(self.addr + off);
        // SAFETY: in bounds and aligned by the assert; mapped until drop, which the borrow outlives
        // not; both sides of the ring use atomics only.
        unsafe { AtomicU32::from_ptr(p) }
    }

    fn read<T: Copy>(&self, off: usize) -> T {
        assert!(off + size_of::<T>() <= self.len);
        // SAFETY: in bounds; T is plain data of the uapi; volatile because the other side may write
        // at any time.
        unsafe { std::ptr::with_exposed_provenance::<T>(self.addr + off).read_volatile() }
    }

    fn write<T: Copy>(&self, off: usize, v: T) {
        assert!(off + size_of::<T>() <= self.len);
        // SAFETY: as in `read`.
        unsafe { std::ptr::with_exposed_provenance_mut::<T>(self.addr + off).write_volatile(v) }
    }
}

impl<C: Calls> Drop for Map<C> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its last user is being dropped.
        unsafe { self.calls.munmap(self.addr, self.len) };
    }
}

/// Converts a raw answer to a result.
pub fn value(ret: isize) -> Result<usize, Errno> {
    usize::try_from(ret).map_err(|_| -(ret as i32))
}

/// Calls `io_uring_setup(2)` and maps nothing; returns the fd.
pub fn setup(calls: impl Calls, entries: u32, p: &mut io_uring_params) -> Result<i32, Errno> {
    value(calls.setup(entries, std::ptr::from_mut(p).expose_provenance())).map(|fd| fd as i32)
}

/// One ring and its mappings.
#[derive(Debug)]
pub struct Ring<C: Calls> {
    /// The ring's fd, or its index if made with `IORING_SETUP_REGISTERED_FD_ONLY`.
    pub fd: i32,
    pub calls: C,
    pub params: io_uring_params,
    /// Flag, true if `fd` is an index into this task's registered rings.
    pub registered: bool,
    rings: Map<C>,
    sqes: Map<C>,
    keep_fd: bool,
    /// Count of SQEs written behind the tail, which nobody sees yet.
    hidden: u32,
}

impl<C: Calls> Ring<C> {
    /// Makes a ring of `entries` with setup `flags`.
    pub fn new(calls: C, entries: u32, flags: u32) -> Result<Self, Errno> {
        Self::with(calls, entries, io_uring_params { flags, ..Default::default() })
    }

    /// Makes a ring as `params` asks. With `NO_MMAP` and no address given, this provides the
    /// memory.
    pub fn with(calls: C, entries: u32, mut params: io_uring_params) -> Result<Self, Errno> {
        let own = if params.flags & IORING_SETUP_NO_MMAP != 0 && params.cq_off.user_addr == 0 {
            let (rings, sqes) = own_memory(entries, &params)?;
            params.cq_off.user_addr = rings.addr as u64;
            params.sq_off.user_addr = sqes.addr as u64;
            Some((rings, sqes))
        } else {
            None
        };
        let fd = setup(calls, entries, &mut params)?;
        Self::from_fd(calls, fd, params, own).inspect_err(|_| {
            calls.close(fd);
        })
    }

    /// Maps a ring that is already set up. `own` is its memory if it was made with `NO_MMAP`.
    pub fn from_fd(
        calls: C,
        fd: i32,
        params: io_uring_params,
        own: Option<(Map<C>, Map<C>)>,
    ) -> Result<Self, Errno> {
        let (rings, sqes) = match own {
            Some(maps) => maps,
            None => (
                Map::of_fd(calls, fd, ring_len(&params), IORING_OFF_SQ_RING)?,
                Map::of_fd(calls, fd, sqes_len(&params), IORING_OFF_SQES)?,
            ),
        };
        let registered = params.flags & IORING_SETUP_REGISTERED_FD_ONLY != 0;
        Ok(Self { fd, calls, params, registered, rings, sqes, keep_fd: false, hidden: 0 })
    }

    /// Maps the ring anew, as a program does after `IORING_REGISTER_RESIZE_RINGS`; `params` is the
    /// answer of that call.
    pub fn remap(&mut self, params: io_uring_params) -> Result<(), Errno> {
        self.rings = Map::of_fd(self.calls, self.fd, ring_len(&params), IORING_OFF_SQ_RING)?;
        self.sqes = Map::of_fd(self.calls, self.fd, sqes_len(&params), IORING_OFF_SQES)?;
        self.params = params;
        Ok(())
    }

    pub fn has(&self, setup_flag: u32) -> bool {
        self.params.flags & setup_flag != 0
    }

    pub fn sq_entries(&self) -> u32 {
        self.params.sq_entries
    }

    pub fn cq_entries(&self) -> u32 {
        self.params.cq_entries
    }

    // The shared words, by their names in `struct io_rings`.

    pub fn sq_head(&self) -> u32 {
        self.rings.word(self.params.sq_off.head).load(Ordering::Acquire)
    }

    pub fn sq_tail(&self) -> u32 {
        self.rings.word(self.params.sq_off.tail).load(Ordering::Relaxed)
    }

    pub fn set_sq_tail(&self, tail: u32) {
        self.rings.word(self.params.sq_off.tail).store(tail, Ordering::Release);
    }

    pub fn sq_flags(&self) -> u32 {
        self.rings.word(self.params.sq_off.flags).load(Ordering::Acquire)
    }

    pub fn sq_dropped(&self) -> u32 {
        self.rings.word(self.params.sq_off.dropped).load(Ordering::Acquire)
    }

    pub fn cq_head(&self) -> u32 {
        self.rings.word(self.params.cq_off.head).load(Ordering::Relaxed)
    }

    pub fn set_cq_head(&self, head: u32) {
        self.rings.word(self.params.cq_off.head).store(head, Ordering::Release);
    }

    pub fn cq_tail(&self) -> u32 {
        self.rings.word(self.params.cq_off.tail).load(Ordering::Acquire)
    }

    pub fn cq_overflow(&self) -> u32 {
        self.rings.word(self.params.cq_off.overflow).load(Ordering::Acquire)
    }

    pub fn cq_flags(&self) -> u32 {
        self.rings.word(self.params.cq_off.flags).load(Ordering::Acquire)
    }

    pub fn set_cq_flags(&self, flags: u32) {
        self.rings.word(self.params.cq_off.flags).store(flags, Ordering::Release);
    }

    /// Returns any word of the ring's mapping, by byte offset.
    pub fn ring_word(&self, off: u32) -> &AtomicU32 {
        self.rings.word(off)
    }

    /// Returns the number of SQEs queued and not yet consumed.
    pub fn sq_ready(&self) -> u32 {
        self.sq_tail().wrapping_sub(self.sq_head())
    }

    pub fn cq_ready(&self) -> u32 {
        self.cq_tail().wrapping_sub(self.cq_head())
    }

    // Submission.

    /// Writes `sqe` into slot `slot` of the SQE array, without queueing it.
    pub fn write_sqe(&self, slot: u32, sqe: &io_uring_sqe) {
        self.sqes.write(slot as usize * self.sqe_size(), *sqe);
    }

    /// Writes the second half of a 128-byte SQE.
    pub fn write_sqe_tail(&self, slot: u32, tail: [u64; 8]) {
        assert!(self.has(IORING_SETUP_SQE128));
        self.sqes.write(slot as usize * 128 + 64, tail);
    }

    /// Sets entry `i` of the SQ index array.
    pub fn set_array(&self, i: u32, slot: u32) {
        assert!(!self.has(IORING_SETUP_NO_SQARRAY));
        self.rings.word(self.params.sq_off.array + 4 * i).store(slot, Ordering::Relaxed);
    }

    /// Queues one SQE in the next slot, where it waits for [`Self::submit`]. Returns false if the
    /// queue is full.
    pub fn try_push(&mut self, sqe: io_uring_sqe) -> bool {
        let tail = self.sq_tail();
        if self.sq_ready() >= self.sq_entries() {
            return false;
        }
        let slot = tail & (self.sq_entries() - 1);
        self.write_sqe(slot, &sqe);
        if !self.has(IORING_SETUP_NO_SQARRAY) {
            self.set_array(slot, slot);
        }
        self.set_sq_tail(tail.wrapping_add(1));
        true
    }

    /// Queues one SQE that nobody sees before [`Self::show`]; see [`Self::try_push`]. An SQ thread
    /// (SQPOLL) would otherwise take each SQE for itself.
    pub fn try_push_hidden(&mut self, sqe: io_uring_sqe) -> bool {
        if self.sq_ready() + self.hidden >= self.sq_entries() {
            return false;
        }
        let slot = self.next_slot();
        self.write_sqe(slot, &sqe);
        if !self.has(IORING_SETUP_NO_SQARRAY) {
            self.set_array(slot, slot);
        }
        self.hidden += 1;
        true
    }

    /// Returns the slot of the SQE that is queued next.
    pub fn next_slot(&self) -> u32 {
        self.sq_tail().wrapping_add(self.hidden) & (self.sq_entries() - 1)
    }

    /// Shows the SQEs of [`Self::try_push_hidden`]; returns how many SQEs wait now.
    pub fn show(&mut self) -> u32 {
        let hidden = std::mem::take(&mut self.hidden);
        self.set_sq_tail(self.sq_tail().wrapping_add(hidden));
        self.sq_ready()
    }

    /// Queues one SQE; a full queue is a fault of the test.
    pub fn push(&mut self, sqe: io_uring_sqe) -> &mut Self {
        assert!(self.try_push(sqe), "the submission queue is full");
        self
    }

    /// Submits every queued SQE; returns the number consumed, or `-errno`.
    pub fn submit(&mut self) -> isize {
        self.enter(self.sq_ready(), 0, 0)
    }

    /// Submits all SQEs, and waits for `min_complete` completions.
    pub fn submit_wait(&mut self, min_complete: u32) -> isize {
        self.enter(self.sq_ready(), min_complete, IORING_ENTER_GETEVENTS)
    }

    /// Calls `io_uring_enter(2)` without an argument.
    pub fn enter(&self, to_submit: u32, min_complete: u32, flags: u32) -> isize {
        self.enter_raw(to_submit, min_complete, flags, 0, 0)
    }

    /// Calls `io_uring_enter(2)`; a registered-only ring adds `IORING_ENTER_REGISTERED_RING`.
    pub fn enter_raw(&self, submit: u32, min: u32, flags: u32, arg: usize, sz: usize) -> isize {
        let flags = flags | if self.registered { IORING_ENTER_REGISTERED_RING } else { 0 };
        let enter = |submit, min| self.calls.enter(self.fd, submit, min, flags, arg, sz);
        if !self.calls.calls_again() {
            return enter(submit, min);
        }
        let mut answer = enter(submit, min);
        for _ in 1..CALLS {
            match answer {
                n if n == -(libc::EINTR as isize) || n == -(libc::EAGAIN as isize) => {
                    answer = enter(submit, min);
                }
                // All was submitted, and the wait may have been interrupted.
                n if n >= 0 && n == submit as isize && self.cq_ready() < min => {
                    let waited = enter(0, min);
                    if waited < 0 && waited != -(libc::EINTR as isize) {
                        break;
                    }
                }
                _ => break,
            }
        }
        answer
    }

    /// Calls `io_uring_enter(2)` with `IORING_ENTER_EXT_ARG`.
    pub fn enter_ext(&self, submit: u32, min: u32, arg: &io_uring_getevents_arg) -> isize {
        let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
        self.enter_raw(
            submit,
            min,
            flags,
            std::ptr::from_ref(arg).expose_provenance(),
            size_of_val(arg),
        )
    }

    /// Calls `io_uring_register(2)` with a raw argument.
    pub fn register(&self, opcode: u32, arg: usize, nr_args: u32) -> isize {
        let opcode = opcode | if self.registered { IORING_REGISTER_USE_REGISTERED_RING } else { 0 };
        self.calls.register(self.fd, opcode, arg, nr_args)
    }

    /// Calls `io_uring_register(2)` with an array.
    pub fn register_slice<T>(&self, opcode: u32, args: &[T]) -> isize {
        self.register(opcode, args.as_ptr().expose_provenance(), args.len() as u32)
    }

    /// Calls `io_uring_register(2)` with a struct that the kernel may write to.
    pub fn register_struct<T>(&self, opcode: u32, arg: &mut T, nr_args: u32) -> isize {
        self.register(opcode, std::ptr::from_mut(arg).expose_provenance(), nr_args)
    }

    // Completion.

    /// Returns the completion at the head of the CQ, and leaves it there.
    pub fn peek(&self) -> Option<Cqe> {
        self.peek_sized().map(|(cqe, _)| cqe)
    }

    /// Takes one completion, without a system call.
    pub fn pop(&mut self) -> Option<Cqe> {
        let (cqe, slots) = self.peek_sized()?;
        self.set_cq_head(self.cq_head().wrapping_add(slots));
        Some(cqe)
    }

    /// Takes all completions that are there, without a system call.
    pub fn pop_all(&mut self) -> Vec<Cqe> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Takes exactly `n` completions; enters the kernel to wait for missing ones.
    pub fn take(&mut self, n: usize) -> Result<Vec<Cqe>, Errno> {
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            match self.pop() {
                Some(cqe) => out.push(cqe),
                None => drop(value(self.enter(0, 1, IORING_ENTER_GETEVENTS))?),
            }
        }
        Ok(out)
    }

    /// Returns all completions that are there, and leaves them there.
    pub fn peek_all(&self) -> Vec<Cqe> {
        let mut head = self.cq_head();
        let next = || {
            let (cqe, slots) = self.peek_at(head)?;
            head = head.wrapping_add(slots);
            Some(cqe)
        };
        std::iter::from_fn(next).collect()
    }

    fn peek_sized(&self) -> Option<(Cqe, u32)> {
        self.peek_at(self.cq_head())
    }

    fn peek_at(&self, head: u32) -> Option<(Cqe, u32)> {
        let skipped = self.skip_filler(head);
        let head = head.wrapping_add(skipped);
        if self.cq_tail() == head {
            return None;
        }
        let slot = (head & (self.cq_entries() - 1)) as usize;
        let size = if self.has(IORING_SETUP_CQE32) { 32 } else { 16 };
        let at = self.params.cq_off.cqes as usize + slot * size;
        let c: io_uring_cqe = self.rings.read(at);
        let mixed = self.has(IORING_SETUP_CQE_MIXED) && c.flags & IORING_CQE_F_32 != 0;
        let big = (size == 32 || mixed).then(|| self.rings.read::<[u64; 2]>(at + 16));
        let cqe = Cqe { user_data: c.user_data, res: c.res, flags: c.flags, big };
        Some((cqe, skipped + if mixed { 2 } else { 1 }))
    }

    /// Returns the slots to skip: on a mixed ring the kernel fills the last slot before a wrap with
    /// an entry to be skipped.
    fn skip_filler(&self, head: u32) -> u32 {
        if !self.has(IORING_SETUP_CQE_MIXED) || self.cq_tail() == head {
            return 0;
        }
        let slot = (head & (self.cq_entries() - 1)) as usize;
        let c: io_uring_cqe = self.rings.read(self.params.cq_off.cqes as usize + slot * 16);
        u32::from(c.flags & IORING_CQE_F_SKIP != 0)
    }

    fn sqe_size(&self) -> usize {
        sqe_size(&self.params)
    }

    /// Leaves the fd open when this is dropped: another owner closes it.
    pub fn keep_fd(&mut self) {
        self.keep_fd = true;
    }
}

impl<C: Calls> Drop for Ring<C> {
    fn drop(&mut self) {
        if self.keep_fd {
            return;
        }
        if self.registered {
            let up = io_uring_rsrc_update { offset: self.fd.cast_unsigned(), ..Default::default() };
            self.register_slice(IORING_UNREGISTER_RING_FDS, &[up]);
        } else {
            self.calls.close(self.fd);
        }
    }
}

const fn sqe_size(p: &io_uring_params) -> usize {
    if p.flags & IORING_SETUP_SQE128 != 0 { 128 } else { 64 }
}

const fn sqes_len(p: &io_uring_params) -> usize {
    p.sq_entries as usize * sqe_size(p)
}

/// Returns the bytes of the SQ and CQ mapping, computed from the offsets as in the manual.
const fn ring_len(p: &io_uring_params) -> usize {
    let cqe = if p.flags & IORING_SETUP_CQE32 != 0 { 32 } else { 16 };
    let cq = p.cq_off.cqes as usize + p.cq_entries as usize * cqe;
    let sq = p.sq_off.array as usize + p.sq_entries as usize * 4;
    if p.flags & IORING_SETUP_NO_SQARRAY != 0 || cq > sq { cq } else { sq }
}

/// Maps memory for a ring of `entries`, for `IORING_SETUP_NO_MMAP`.
fn own_memory<C: Calls>(entries: u32, p: &io_uring_params) -> Result<(Map<C>, Map<C>), Errno> {
    const PAGE: usize = 4096;
    let sq = (entries.next_power_of_two() as usize).clamp(1, 32768);
    let cq = if p.flags & IORING_SETUP_CQSIZE != 0 {
        (p.cq_entries.next_power_of_two() as usize).clamp(1, 65536)
    } else {
        sq * 2
    };
    let rings = (PAGE + cq * 32 + sq * 4).next_multiple_of(PAGE);
    Ok((Map::anonymous(rings)?, Map::anonymous((sq * 128).next_multiple_of(PAGE))?))
}
