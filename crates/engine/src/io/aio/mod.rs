//! Kernel aio in batches: one io_submit(2) for many reads, writes and fsyncs, completions read from
//! user memory.
//!
//! Runs on: the thread that submits and the one that reaps, one at a time (`&mut`, under the ring's
//! lock). May block in: [`DetachedReap::wait`]; `submit` only as long as the file system makes a
//! submission wait: buffered I/O, and other I/O that the file system cannot do asynchronously, runs
//! to its end inside the call unless the iocb has `RWF_NOWAIT` ([`nowait`]). Requests in flight
//! when a context is dropped go on ([`context_cache`]).
//!
//! The context's id is the address of a ring that the kernel maps into the process. The kernel
//! writes events and then moves `tail` (release). We load `tail` (acquire), copy events, and give
//! their room back by moving `head` (release). There is one consumer: we, or the kernel inside
//! io_getevents on behalf of the same `&mut` owner. The program can write the memory, too: indices
//! are reduced before use, and an event is matched to a slot that is really in flight.
//!
//! Kernel counterpart: `fs/aio.c`. See io_setup(2), io_submit(2), io_getevents(2), io_cancel(2),
//! io_destroy(2).
#![allow(unsafe_code)]

mod alarm;
mod build;
pub(crate) mod context_cache;
mod detached;
pub(crate) mod nowait;
pub(crate) mod ring;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use build::*;
pub(crate) use detached::DetachedReap;

use crate::io::completions::Completion;
use crate::policy::hybrid::Ticket;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use ring::Ring;
use softring_host::calls::aio::{self, IocbPtr};
use softring_host::limits::{AIO_DEPTH_MAX, AIO_WAIT_BATCH};
use softring_host::user;
use softring_uapi::aio::{io_event, iocb};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::iovec;

/// Name of one prepared or submitted iocb until it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u32);

/// An aio context with its prepared and submitted iocbs.
#[derive(Debug)]
pub(crate) struct AioCtx {
    id: usize,
    /// Iocbs that the kernel made the context for.
    depth: u32,
    /// Mapped ring; `None` if its form is not the known one: reaping then asks the kernel.
    ring: Option<Ring>,
    /// Iocbs at fixed addresses: the kernel names an iocb by its address, in events and in
    /// io_cancel.
    slots: Box<[iocb]>,
    state: Box<[Slot]>,
    /// Ticket of each iocb in flight, for the policy that tracks it.
    tickets: Box<[Ticket]>,
    free: Vec<u32>,
    /// Addresses of prepared iocbs, as io_submit takes them.
    batch: Vec<IocbPtr>,
    /// The prepared iocb whose vector only the kernel has checked, and that vector, once read.
    unread: Unread,
    /// Events that a wait has taken and [`Self::reap`] will return.
    taken: Vec<io_event>,
    /// The thread that sleeps in the kernel for events: no other thread may take events.
    detached: Option<detached::Sleeping>,
    /// Number of times that reaping was detached.
    detachments: u32,
    /// Buffer in which the kernel puts the events of a detached reap.
    events: Arc<detached::EventBuffer>,
    alarm: alarm::Alarm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Prepared,
    InFlight,
}

/// A vector of one part that the program's memory holds.
#[derive(Clone, Copy, Debug)]
enum Unread {
    None,
    /// Named by the iocb in the slot of this index.
    Prepared(usize),
    /// Read by the kernel, and then here; with the iocb's `aio_data`.
    Read(u64, iovec),
}

impl AioCtx {
    /// Creates an asynchronous I/O context for up to `depth` iocbs (at least 1, at most
    /// [`AIO_DEPTH_MAX`]).
    ///
    /// # Errors
    /// EAGAIN when `fs.aio-max-nr` is exhausted, ENOMEM, ENOSYS where there is no kernel aio, EPERM
    /// where it is denied.
    pub(crate) fn new(depth: u32) -> Result<AioCtx> {
        let depth = depth.clamp(1, AIO_DEPTH_MAX);
        let (id, made_for, ring) = match context_cache::take(depth) {
            Some(cached) => (cached.id, cached.depth, cached.ring),
            None => {
                let (id, ring) = setup(depth)?;
                (id, depth, ring)
            }
        };
        Ok(AioCtx {
            id,
            depth: made_for,
            ring,
            slots: vec![iocb::default(); depth as usize].into_boxed_slice(),
            state: vec![Slot::Free; depth as usize].into_boxed_slice(),
            tickets: vec![Ticket::NONE; depth as usize].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            batch: Vec::with_capacity(depth as usize),
            unread: Unread::None,
            taken: Vec::with_capacity(AIO_WAIT_BATCH),
            detached: None,
            detachments: 0,
            events: Arc::default(),
            alarm: alarm::Alarm::default(),
        })
    }

    /// Returns the number of iocbs that can still be prepared.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of iocbs that the kernel has, including those with an event not reaped
    /// yet.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len() - self.batch.len()) as u32
    }

    /// Returns whether completions are read from user memory, without a system call.
    pub(crate) fn user_mapped(&self) -> bool {
        self.ring.is_some()
    }

    /// Adds an iocb to the next batch. `None` if there is no room. Does not allocate.
    pub(crate) fn prep(&mut self, cb: Prepared) -> Option<Token> {
        let at = self.free.pop()?;
        self.state[at as usize] = Slot::Prepared;
        let slot = &mut self.slots[at as usize];
        *slot = cb.iocb();
        if cb.unread {
            self.unread = Unread::Prepared(at as usize);
        }
        // SAFETY: the slots are boxed, and this one is the iocb's until its event has come, or the
        // kernel has refused it; `Prepared` says what memory it names.
        self.batch.push(unsafe { IocbPtr::of(slot) });
        Some(Token(at))
    }

    /// Returns the `aio_data` and the vector of an iocb of the last batch whose vector only the
    /// kernel had read ([`rw_unread`]).
    pub(crate) fn take_vector(&mut self) -> Option<(u64, iovec)> {
        match core::mem::replace(&mut self.unread, Unread::None) {
            Unread::Read(data, vector) => Some((data, vector)),
            _ => None,
        }
    }

    /// Reads the vector that the iocb names which the kernel has just taken.
    #[inline]
    fn read_vector(&mut self, slot: usize) {
        if matches!(self.unread, Unread::Prepared(unread) if unread == slot) {
            let iocb { aio_buf, aio_data, .. } = self.slots[slot];
            // SAFETY: io_submit(2) has read it there, and has not failed.
            self.unread = Unread::Read(aio_data, unsafe { user::read_again(aio_buf) });
        }
    }

    /// Submits the batch by one io_submit, or more if the kernel refuses an iocb; returns the
    /// number of iocbs taken. A refused iocb (EINVAL, EAGAIN, EBADF, EFAULT …) is reported by its
    /// `aio_data`, and the rest of the batch goes on.
    pub(crate) fn submit(&mut self, on_fail: impl FnMut(u64, Errno)) -> usize {
        self.submit_tracked(on_fail, |_| Ticket::NONE)
    }

    /// Submits the batch as [`Self::submit`] does; `issued` returns the ticket of each iocb taken,
    /// for [`Self::reap`].
    pub(crate) fn submit_tracked(
        &mut self,
        mut on_fail: impl FnMut(u64, Errno),
        mut issued: impl FnMut(&iocb) -> Ticket,
    ) -> usize {
        let (mut at, mut taken) = (0, 0);
        while at < self.batch.len() {
            let rest = &self.batch[at..];
            match aio::submit(self.id, rest) {
                Ok(n) if n > 0 => {
                    for i in at..at + n.min(rest.len()) {
                        let slot = self.slot_of(self.batch[i].addr()).expect("our own address");
                        self.state[slot] = Slot::InFlight;
                        self.tickets[slot] = issued(&self.slots[slot]);
                        self.read_vector(slot);
                    }
                    at += n;
                    taken += n;
                }
                Err(Errno::EINTR) => {}
                r => {
                    let slot = self.slot_of(self.batch[at].addr()).expect("our own address");
                    let data = self.slots[slot].aio_data;
                    self.free_slot(slot);
                    at += 1;
                    on_fail(data, r.err().unwrap_or(Errno::EAGAIN));
                }
            }
        }
        self.batch.clear();
        taken
    }

    /// Returns whether there are events to reap, without a system call; false if the ring is not
    /// mapped.
    pub(crate) fn ready(&self) -> bool {
        !self.is_detached()
            && (!self.taken.is_empty() || self.ring.as_ref().is_some_and(Ring::ready))
    }

    /// Makes events that only a system call returns ready for [`Self::next`].
    #[inline]
    pub(crate) fn begin_reap(&mut self) {
        let asks = self.ring.is_none() && self.taken.is_empty() && self.in_flight() > 0;
        if asks && !self.is_detached() {
            let _ = self.take_events(0, Some(Duration::ZERO), None);
        }
    }

    /// Takes an event, under its `aio_data`. Does not block. Takes none while a thread sleeps for
    /// events ([`Self::detach_reap`]). Gives the room of events back when none is left.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        if self.is_detached() {
            return None;
        }
        while let Some(e) = self.taken.pop().or_else(|| self.ring.as_mut()?.pop()) {
            if let Some(done) = self.completion(e) {
                return Some(done);
            }
        }
        if let Some(r) = &mut self.ring {
            r.release();
        }
        None
    }

    /// Drops the context in a forked child. The context belongs to the parent's memory and is no
    /// context here (io_submit fails with EINVAL). Its ring is still mapped *shared with the
    /// parent*, so the ring is unmapped without being touched, and nothing is destroyed. Prepared
    /// iocbs are forgotten; the parent runs its own.
    pub(crate) fn fork_child(mut self) {
        if let Some(r) = self.ring.take() {
            r.unmap();
        }
        self.id = 0;
    }

    fn take_events(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        sigmask: Option<u64>,
    ) -> Result<usize> {
        let mut buf = [io_event::default(); AIO_WAIT_BATCH];
        let r = detached::events_to(&mut buf, self.id, min, timeout, sigmask);
        if let Some(ring) = &mut self.ring {
            ring.resync();
        }
        let n = r?;
        // Reaped from the end: keep the kernel's order.
        self.taken.extend(buf[..n].iter().rev());
        Ok(n)
    }

    /// Returns what an event says; `None` if it belongs to no iocb in flight.
    fn completion(&mut self, e: io_event) -> Option<Completion> {
        if self.alarm.goes_off(e.obj) {
            return None;
        }
        let at = self.slot_of(e.obj as usize).filter(|&at| self.state[at] == Slot::InFlight)?;
        let (token, ticket) = (self.slots[at].aio_data, core::mem::take(&mut self.tickets[at]));
        self.free_slot(at);
        Some(Completion { token, res: e.res, ticket })
    }

    fn free_slot(&mut self, at: usize) {
        self.state[at] = Slot::Free;
        self.free.push(at as u32);
    }

    fn slot_of(&self, addr: usize) -> Option<usize> {
        let off = addr.checked_sub(self.slots.as_ptr().addr())?;
        let at = off / size_of::<iocb>();
        (off % size_of::<iocb>() == 0 && at < self.slots.len()).then_some(at)
    }
}

/// Calls io_setup(2), after a second try with idle contexts of the cache destroyed.
fn setup(depth: u32) -> Result<(usize, Option<Ring>)> {
    match ring::setup(depth) {
        Err(Errno::EAGAIN) if context_cache::make_room() => ring::setup(depth),
        made => made,
    }
}

impl Drop for AioCtx {
    /// Keeps the context in the cache. The kernel has copied the iocbs, and writes into no memory
    /// of ours but the mapped ring. Transfers for the program go on.
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        self.begin_reap();
        while self.next().is_some() {}
        let in_flight = self.in_flight() + self.cancel_alarm();
        let awaited = self.is_detached();
        let Self { id, depth, .. } = *self;
        context_cache::keep(context_cache::CachedContext {
            id,
            depth,
            ring: self.ring.take(),
            in_flight,
            awaited,
        });
    }
}
