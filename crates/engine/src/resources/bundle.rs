//! Several provided buffers for one transfer. Kernel counterpart: `io_ring_buffers_peek` in
//! `io_uring/kbuf.c`.

use super::kbuf::{Buf, Group, Groups, Pick};
use alloc::vec;
use alloc::vec::Vec;
use softring_host::calls::Part;
use softring_uapi::errno::{Errno, Result};

/// Maximum number of buffers that one step of a transfer takes (`PEEK_MAX_IMPORT`).
const STEP_MAX: usize = 256;
/// Steps of a transfer. One more buffer is read, which shows whether any is left.
const STEPS: usize = 2;
/// `INT_MAX`: no bound on the length.
pub(crate) const ALL: u64 = 0x7fff_ffff;

/// The buffers at a group's head.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) bufs: Vec<Buf>,
    /// Flag, true if buffers are consumed incrementally.
    pub(crate) inc: bool,
    /// Flag, true if each step takes one buffer.
    pub(crate) singly: bool,
    /// Slots of the ring: entries that far apart are the same buffer, if the tail is so far ahead.
    slots: usize,
}

/// Bytes laid out over buffers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) iov: Vec<Part>,
    pub(crate) len: u64,
    /// Flag, true if no buffer is left after these.
    pub(crate) empty: bool,
    /// Flag, true if the last buffer was larger than needed.
    pub(crate) cut: bool,
}

impl Layout {
    /// Returns the number of buffers that the first `len` bytes fill (`io_bundle_nbufs`).
    pub(crate) fn used(&self, mut len: u64) -> u16 {
        let mut n = 0;
        for v in &self.iov {
            if len == 0 {
                break;
            }
            len -= len.min(v.len);
            n += 1;
        }
        n
    }
}

impl Head {
    /// Lays out the whole first buffer, which may have no room at all.
    ///
    /// # Errors
    /// `ENOBUFS`.
    pub(crate) fn first(&self) -> Result<Layout> {
        match self.bufs[..] {
            [Buf { addr, len: 0, .. }, ref rest @ ..] => Ok(Layout {
                iov: vec![Part::new(addr, 0)],
                empty: rest.is_empty(),
                ..Layout::default()
            }),
            _ => self.lay_out(0, ALL, 1),
        }
    }

    /// Makes each step take one buffer.
    pub(crate) fn take_singly(&mut self) {
        self.singly = true;
        self.bufs.truncate(STEPS + 1);
    }

    /// Lays out one buffer for `want` bytes; for the whole buffer if `want` is 0.
    pub(crate) fn one(&self, want: u64) -> Layout {
        let Some(&Buf { addr, len, .. }) = self.bufs.first() else { return Layout::default() };
        let len = if want == 0 { u64::from(len) } else { u64::from(len).min(want) };
        let empty = self.bufs.len() == 1;
        Layout { iov: vec![Part::new(addr, len)], len, empty, cut: false }
    }

    /// Consumes `len` bytes in `count` buffers; of an incremental buffer the rest stays.
    pub(crate) fn advance(&mut self, mut len: u64, count: u16) {
        if !self.inc {
            self.bufs.drain(..self.bufs.len().min(count.into()));
            return;
        }
        while let Some(first) = self.bufs.first_mut()
            && len > 0
        {
            let used = u64::from(first.len).min(len) as u32;
            len -= u64::from(used);
            first.advance(used);
            let first = *first;
            self.bufs.iter_mut().step_by(self.slots).for_each(|again| *again = first);
            if first.len > 0 || used == 0 {
                break;
            }
            self.bufs.remove(0);
        }
    }

    /// Lays `want` bytes out over the buffers from the `skip`th on; at most over `most` of them. A
    /// buffer that is needed only in part is taken only if it is the first.
    ///
    /// # Errors
    /// `ENOBUFS`.
    pub(crate) fn lay_out(&self, skip: usize, want: u64, most: usize) -> Result<Layout> {
        let bufs = self.bufs.get(skip..).filter(|b| !b.is_empty()).ok_or(Errno::ENOBUFS)?;
        let first = u64::from(bufs[0].len);
        if first == 0 {
            return Err(Errno::ENOBUFS);
        }
        let needed = want.div_ceil(first).clamp(1, STEP_MAX as u64) as usize;
        let mut out = Layout::default();
        let mut left = want;
        let mut taken = 0;
        for buf in &bufs[..bufs.len().min(needed).min(most)] {
            let mut len = u64::from(buf.len);
            if len > left {
                len = left;
                out.cut = !self.inc;
                if out.cut && !out.iov.is_empty() {
                    break;
                }
            }
            out.iov.push(Part::new(buf.addr, len));
            out.len += len;
            left -= len;
            if left == 0 {
                break;
            }
            taken += 1;
        }
        out.empty = taken == bufs.len();
        if let [_, _, ..] = out.iov[..] {
            out.iov.iter_mut().for_each(|part| *part = part.nowhere_is_null());
        }
        Ok(out)
    }
}

impl Groups {
    /// Returns the buffers at the head of group `bgid`, and a pick of the first, to which more may
    /// be added.
    ///
    /// # Errors
    /// `ENOENT` if there is no such group, `ENOBUFS` if it is empty.
    pub(crate) fn head(&mut self, bgid: u16) -> Result<(Pick, Head)> {
        let head = match self.get(bgid).ok_or(Errno::ENOENT)? {
            // A list gives one buffer per step.
            Group::List(list) => {
                let bufs = list.iter().take(STEPS + 1).copied().collect();
                Head { bufs, inc: false, singly: true, slots: usize::MAX }
            }
            Group::Ring(ring) => {
                let n = ring.ready().min(2 * STEP_MAX as u16 + 1);
                let bufs = (0..n).map(|i| ring.peek(i)).collect();
                Head { bufs, inc: ring.inc, singly: false, slots: ring.entries().into() }
            }
        };
        Ok((self.pick(bgid)?, head))
    }

    /// Removes a list's second buffer, if it was used.
    pub(crate) fn drop_second(&mut self, bgid: u16, pick: Pick) {
        if !pick.in_ring
            && pick.count > 1
            && let Some(Group::List(list)) = self.get_mut(bgid)
        {
            list.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(n: usize) -> Head {
        let buf = |i: usize| Buf { len: 8, bid: i as u16, ..Buf::default() };
        Head { bufs: (0..n).map(buf).collect(), ..Head::default() }
    }

    #[test]
    fn an_exact_fit_leaves_the_head_on_the_last_buffer() {
        let out = head(4).lay_out(0, 32, usize::MAX).unwrap();
        assert_eq!((out.iov.len(), out.len, out.empty, out.cut), (4, 32, false, false));
        let out = head(4).lay_out(0, 33, usize::MAX).unwrap();
        assert_eq!((out.iov.len(), out.len, out.empty, out.cut), (4, 32, true, false));
    }

    #[test]
    fn a_part_of_a_buffer_is_taken_only_as_the_first() {
        let out = head(4).lay_out(0, 20, usize::MAX).unwrap();
        assert_eq!((out.iov.len(), out.len, out.cut), (2, 16, true));
        let out = head(4).lay_out(0, 3, usize::MAX).unwrap();
        assert_eq!((out.iov.len(), out.len, out.cut), (1, 3, true));
        assert_eq!(head(2).lay_out(2, 1, 1), Err(Errno::ENOBUFS));
    }

    #[test]
    fn bytes_count_as_buffers() {
        let out = head(3).lay_out(0, ALL, usize::MAX).unwrap();
        assert_eq!([0, 1, 8, 9, 24].map(|n| out.used(n)), [0, 1, 1, 2, 3]);
    }
}
