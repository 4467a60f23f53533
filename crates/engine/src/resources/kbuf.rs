//! Provided buffers: groups of buffers that the program provides beforehand, and that requests with
//! `IOSQE_BUFFER_SELECT` pick from when they have data. A group is a list, filled by
//! PROVIDE_BUFFERS, or a ring in memory that both sides map (`IORING_REGISTER_PBUF_RING`).
//!
//! The program may write the ring at any time. So head and mask are ours, the tail is read once
//! with acquire, an entry is copied word by word, and a buffer's address only ever goes to a system
//! call. Kernel counterpart: `io_uring/kbuf.c`.
#![allow(unsafe_code)]

use alloc::collections::{BTreeMap, VecDeque};
use core::sync::atomic::Ordering::Acquire;

use crate::memory::region::Region;
use softring_host::calls::{Part, UserPtr};
use softring_host::user::in_user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

/// Number of buffer ids, which are 16 bits wide.
pub(crate) const MAX_BIDS: u32 = 1 << 16;

/// One buffer, as the program gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buf {
    pub(crate) addr: UserPtr,
    pub(crate) len: u32,
    pub(crate) bid: u16,
}

impl Buf {
    /// Returns the buffer as a part of a vector.
    pub(crate) fn part(&self) -> Part {
        Part::new(self.addr, self.len.into())
    }

    /// Drops the first bytes of the buffer, `used` at most.
    pub(crate) fn advance(&mut self, used: u32) {
        let rest = self.part().skip(used.into());
        (self.addr, self.len) = (rest.base(), rest.len as u32);
    }
}

/// A group's ring.
#[derive(Debug)]
pub(crate) struct BufRing {
    mem: Region,
    mask: u16,
    /// Index of the next buffer to use: ours alone.
    pub(crate) head: u16,
    /// Flag, true if buffers are consumed incrementally (`IOU_PBUF_RING_INC`).
    pub(crate) inc: bool,
    /// Minimum rest of a buffer: with less left, the buffer is used up.
    pub(crate) min_left: u32,
}

/// The buffers of one group.
#[derive(Debug)]
pub(crate) enum Group {
    List(VecDeque<Buf>),
    Ring(BufRing),
}

/// A ring's groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<u16, Group>);

/// Buffer that a request has picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) buf: Buf,
    /// Number of buffers taken: 1, or more in a bundle.
    pub(crate) count: u16,
    /// Bytes of a bundle's first step, if a second followed: each step is committed by itself.
    pub(crate) first: u32,
    /// Buffers of a bundle's second step, and the bytes for which they were taken: not yet
    /// committed when the first step is.
    pub(crate) second: (u16, u32),
    /// Flag, set if the buffer lies in a group's ring, whose head has not moved yet.
    pub(crate) in_ring: bool,
    /// Flag, set once the buffer is committed: the request's result does not change the group any
    /// more.
    pub(crate) committed: bool,
    /// Bytes that the buffer was committed with.
    pub(crate) paid: u32,
    /// Flag, set if the buffer had room left when it was committed.
    pub(crate) more: bool,
    /// Flag, set if a bundle's second step found no buffer: `more` is then that step's, not the
    /// first's.
    pub(crate) found_none: bool,
}

impl Pick {
    /// Returns the flags of a CQE that names the buffer.
    pub(crate) fn cqe_flags(&self) -> u32 {
        let more = if self.more { IORING_CQE_F_BUF_MORE } else { 0 };
        IORING_CQE_F_BUFFER | more | u32::from(self.buf.bid) << IORING_CQE_BUFFER_SHIFT
    }
}

impl BufRing {
    const TAIL: usize = 14;

    /// Creates a ring in `mem`, with the entries that `reg` says.
    pub(crate) fn new(mem: Region, reg: &io_uring_buf_reg) -> Self {
        let mask = (reg.ring_entries - 1) as u16;
        let min_left = reg.min_left;
        let inc = reg.flags & IOU_PBUF_RING_INC != 0;
        BufRing { mem, mask, head: 0, inc, min_left }
    }

    fn tail(&self) -> u16 {
        // The tail shares a word with the first entry's id.
        (self.mem.word(Self::TAIL - 2).load(Acquire) >> 16) as u16
    }

    fn at(&self, index: u16) -> usize {
        usize::from(index & self.mask) * size_of::<io_uring_buf>()
    }

    /// Returns the number of slots, a power of two.
    pub(crate) fn entries(&self) -> u16 {
        self.mask + 1
    }

    /// Returns the number of buffers between head and tail.
    pub(crate) fn ready(&self) -> u16 {
        self.tail().wrapping_sub(self.head)
    }

    /// Returns the `i`th buffer after the head. Call with `i` below [`ready`](Self::ready).
    pub(crate) fn peek(&self, i: u16) -> Buf {
        let b: io_uring_buf = self.mem.load(self.at(self.head.wrapping_add(i)));
        // SAFETY: the program has put the buffer into the ring.
        let addr = unsafe { UserPtr::of_program(b.addr) };
        Buf { addr, len: b.len, bid: b.bid }
    }

    /// Uses up `count` buffers, or `len` bytes of an incremental ring's; false if the last one has
    /// room left (`io_kbuf_commit`).
    fn commit(&mut self, count: u16, mut len: u32) -> bool {
        if !self.inc {
            self.head = self.head.wrapping_add(count);
            return true;
        }
        // A transfer of no bytes uses nothing up.
        if len == 0 {
            return false;
        }
        while len > 0 {
            let at = self.at(self.head);
            let buf = self.peek(0);
            let used = len.min(buf.len);
            let left = buf.len - used;
            if left > 0 && left >= self.min_left || used == 0 {
                self.mem.store(at, buf.addr.addr().wrapping_add(u64::from(used)));
                self.mem.store(at + 8, left);
                return false;
            }
            self.mem.store(at + 8, 0u32);
            self.head = self.head.wrapping_add(1);
            len -= used;
        }
        true
    }
}

impl BufRing {
    /// Commits a pick of which `len` bytes were filled; false if the last buffer has room left.
    fn pay(&mut self, pick: Pick, len: u32) -> bool {
        let first = pick.first.min(len);
        if self.inc && first > 0 && first < len {
            self.commit(pick.count, first);
            return self.commit(pick.count, len - first);
        }
        self.commit(pick.count, len)
    }
}

impl Group {
    fn is_empty_list(&self) -> bool {
        matches!(self, Group::List(list) if list.is_empty())
    }
}

impl Groups {
    /// Picks a buffer of group `bgid` (`io_buffer_select`).
    ///
    /// # Errors
    /// `ENOBUFS` if the group is missing or empty, or its first buffer is outside the program's
    /// memory.
    pub(crate) fn select(&mut self, bgid: u16) -> Result<Pick> {
        let pick = self.pick(bgid)?;
        let Buf { addr, len, .. } = pick.buf;
        if pick.in_ring && has(Change::BufferPlaces) && in_user(addr.addr(), len.into()).is_err() {
            return Err(Errno::ENOBUFS);
        }
        Ok(pick)
    }

    /// Picks a buffer of group `bgid`, wherever it lies.
    ///
    /// # Errors
    /// `ENOBUFS` if the group is missing or empty.
    pub(crate) fn pick(&mut self, bgid: u16) -> Result<Pick> {
        match self.0.get_mut(&bgid).ok_or(Errno::ENOBUFS)? {
            Group::List(list) => {
                let buf = list.pop_front().ok_or(Errno::ENOBUFS)?;
                Ok(Pick { buf, count: 1, committed: true, ..Pick::default() })
            }
            Group::Ring(ring) if ring.ready() == 0 => Err(Errno::ENOBUFS),
            Group::Ring(ring) => {
                Ok(Pick { buf: ring.peek(0), count: 1, in_ring: true, ..Pick::default() })
            }
        }
    }

    /// Returns an unused pick to its group (`io_kbuf_recycle`).
    pub(crate) fn recycle(&mut self, bgid: u16, pick: Pick) {
        if pick.in_ring {
            return;
        }
        if let Group::List(list) = self.0.entry(bgid).or_insert(Group::List(VecDeque::new())) {
            list.push_front(pick.buf);
        }
    }

    /// Uses up a pick of which `len` bytes were filled; returns the CQE's flags (`__io_put_kbufs`).
    pub(crate) fn put(&mut self, bgid: u16, mut pick: Pick, len: u32) -> u32 {
        if pick.in_ring
            && let Some(Group::Ring(ring)) = self.0.get_mut(&bgid)
        {
            if !pick.committed {
                pick.more |= !ring.pay(pick, len) && !pick.found_none;
            } else if let (count @ 1.., len) = pick.second {
                pick.more = !ring.commit(count, len);
            }
        }
        pick.cqe_flags()
    }

    /// Commits a pick before the request's result is known, because the ring's lock will not be
    /// held then.
    pub(crate) fn commit(&mut self, bgid: u16, pick: &mut Pick, len: u32) {
        if pick.in_ring
            && !pick.committed
            && let Some(Group::Ring(ring)) = self.0.get_mut(&bgid)
        {
            pick.more = !ring.pay(*pick, len);
            pick.paid = len;
        }
        pick.committed = true;
    }

    /// Adds `nbufs` buffers of `len` bytes each, adjacent from `addr` on (PROVIDE_BUFFERS).
    ///
    /// # Errors
    /// `EINVAL` if the group is a ring, `EOVERFLOW` if no id is left.
    pub(crate) fn provide(&mut self, bgid: u16, first: Buf, nbufs: u32) -> Result<()> {
        let Group::List(list) = self.0.entry(bgid).or_insert(Group::List(VecDeque::new())) else {
            return Err(Errno::EINVAL);
        };
        for i in 0..nbufs {
            if list.len() as u32 >= MAX_BIDS - 1 {
                return if i > 0 { Ok(()) } else { Err(Errno::EOVERFLOW) };
            }
            let behind = u64::from(i) * u64::from(first.len);
            // SAFETY: the program has provided `nbufs` adjacent buffers.
            let addr = unsafe { UserPtr::of_program(first.addr.addr() + behind) };
            list.push_back(Buf { addr, bid: first.bid.wrapping_add(i as u16), ..first });
        }
        Ok(())
    }

    /// Removes up to `nbufs` buffers; returns how many (REMOVE_BUFFERS).
    ///
    /// # Errors
    /// `ENOENT` if there is no such group, `EINVAL` if it is a ring.
    pub(crate) fn remove(&mut self, bgid: u16, nbufs: u32) -> Result<u32> {
        match self.0.get_mut(&bgid).ok_or(Errno::ENOENT)? {
            Group::Ring(_) => Err(Errno::EINVAL),
            Group::List(list) => {
                let n = list.len().min(nbufs as usize);
                list.drain(..n);
                Ok(n as u32)
            }
        }
    }

    /// Returns the group, if there is one.
    pub(super) fn get(&self, bgid: u16) -> Option<&Group> {
        self.0.get(&bgid)
    }

    pub(super) fn get_mut(&mut self, bgid: u16) -> Option<&mut Group> {
        self.0.get_mut(&bgid)
    }

    /// Removes an empty list, to make room for a ring.
    ///
    /// # Errors
    /// `EEXIST` for a group that has buffers.
    pub(crate) fn make_room(&mut self, bgid: u16) -> Result<()> {
        if self.0.get(&bgid).is_some_and(|group| !group.is_empty_list()) {
            return Err(Errno::EEXIST);
        }
        self.0.remove(&bgid);
        Ok(())
    }

    /// Adds a ring as a group.
    pub(crate) fn add_ring(&mut self, bgid: u16, ring: BufRing) {
        self.0.insert(bgid, Group::Ring(ring));
    }

    /// Returns the group's ring.
    ///
    /// # Errors
    /// `ENOENT` if there is no such group, `EINVAL` if it is a list.
    pub(crate) fn ring(&self, bgid: u16) -> Result<&BufRing> {
        match self.0.get(&bgid).ok_or(Errno::ENOENT)? {
            Group::Ring(ring) => Ok(ring),
            Group::List(_) => Err(Errno::EINVAL),
        }
    }

    /// Removes a group that is a ring.
    ///
    /// # Errors
    /// Those of [`Self::ring`].
    pub(crate) fn remove_ring(&mut self, bgid: u16) -> Result<()> {
        self.ring(bgid)?;
        self.0.remove(&bgid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addr: u64) -> UserPtr {
        // SAFETY: nobody uses the memory.
        unsafe { UserPtr::of_program(addr) }
    }

    fn list(n: u32) -> Groups {
        let mut groups = Groups::default();
        let first = Buf { addr: at(0x1000), len: 16, bid: 5 };
        assert_eq!(groups.provide(1, first, n), Ok(()));
        groups
    }

    #[test]
    fn provided_buffers_lie_one_behind_the_other() {
        let Some(Group::List(bufs)) = list(3).0.remove(&1) else { panic!("a list") };
        let want = |i: u16| Buf { addr: at(0x1000 + u64::from(i) * 16), len: 16, bid: 5 + i };
        assert_eq!(bufs, [want(0), want(1), want(2)]);
    }

    #[test]
    fn ids_run_out() {
        let mut groups = list(MAX_BIDS - 1);
        assert_eq!(groups.provide(1, Buf::default(), 1), Err(Errno::EOVERFLOW));
        assert_eq!(groups.remove(1, u32::MAX), Ok(MAX_BIDS - 1));
        assert_eq!(groups.remove(2, 1), Err(Errno::ENOENT));
    }
}
