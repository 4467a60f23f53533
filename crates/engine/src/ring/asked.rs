//! Answers of one poll(2) for POLL_ADDs that follow each other in a batch. The first asks for all:
//! the next SQEs are read as a hint, and an answer counts only for the SQE in its position, if that
//! asks for the same then. Nothing runs between such SQEs, so the answers are as new as if each had
//! asked.

use alloc::vec::Vec;

use crate::io::poll::EVENTS;
use softring_host::sys::{self, PollEntry};

/// Number of SQEs that one poll(2) asks for.
pub(crate) const MOST: usize = 64;

/// The answers for the SQEs to come.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    entries: Vec<PollEntry>,
    /// The entry of the next SQE.
    next: u32,
    /// SQEs of the batch from that of the first entry on, without that.
    left: u32,
}

/// Returns the events to ask poll(2) for.
const fn of_poll(events: u32) -> i16 {
    (events as u16 & EVENTS as u16).cast_signed()
}

impl Asked {
    /// Drops what is left of the answers: they are of an earlier batch.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.next = u32::MAX;
    }

    /// Returns whether there may be an answer for the next SQE.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.next != u32::MAX
    }

    /// Returns which events are ready by an earlier poll(2), for the SQE behind which `left` are.
    #[inline]
    pub(crate) fn answer(&mut self, left: u32, fd: i32, events: u32) -> Option<u32> {
        let entry = self.entries.get(self.next as usize)?;
        let here = self.left.wrapping_sub(left) == self.next;
        if !here || entry.fd != fd || entry.events != of_poll(events) {
            self.clear();
            return None;
        }
        self.next += 1;
        Some(u32::from(entry.revents.cast_unsigned()))
    }

    /// Returns which events are ready, for one SQE alone.
    pub(crate) fn ask_one(&mut self, fd: i32, events: u32) -> u32 {
        self.clear();
        u32::from(sys::poll_now(fd, of_poll(events)).cast_unsigned())
    }

    /// Begins to ask: for the SQE behind which `left` are.
    pub(crate) fn begin(&mut self, left: u32, fd: i32, events: u32) {
        self.entries.clear();
        (self.next, self.left) = (1, left);
        self.add(fd, events);
    }

    /// Asks for the next SQE, too; false if there is no room for another.
    pub(crate) fn add(&mut self, fd: i32, events: u32) -> bool {
        let room = self.entries.len() < MOST && self.entries.try_reserve(1).is_ok();
        if room {
            self.entries.push(sys::poll_entry(fd, of_poll(events)));
        }
        room
    }

    /// Asks; returns which events are ready for the first SQE.
    pub(crate) fn ask(&mut self) -> u32 {
        // A limit of descriptors is one of the entries, too.
        let Some(first) = self.entries.first() else { return 0 };
        let (fd, events) = (first.fd, first.events);
        if self.entries.len() == 1 || !sys::poll_all_now(&mut self.entries) {
            self.clear();
            return u32::from(sys::poll_now(fd, events).cast_unsigned());
        }
        u32::from(self.entries[0].revents.cast_unsigned())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use softring_host::os::fd::AsRawFd;

    const IN: u32 = 1;

    #[test]
    fn an_answer_counts_in_its_position_only() {
        let (full, write) = softring_host::os::pipe::pipe_with(Default::default()).unwrap();
        let (empty, _write) = softring_host::os::pipe::pipe_with(Default::default()).unwrap();
        softring_host::os::io::write(&write, b"x").unwrap();
        let (full, empty) = (full.as_raw_fd(), empty.as_raw_fd());
        let ask = |asked: &mut Asked| {
            asked.begin(9, full, IN);
            assert!(asked.add(empty, IN) && asked.add(full, IN));
            assert_eq!(asked.ask(), IN);
        };
        let mut asked = Asked::default();
        assert_eq!(asked.answer(9, full, IN), None);
        ask(&mut asked);
        assert_eq!(asked.answer(8, empty, IN), Some(0));
        assert_eq!(asked.answer(7, full, IN), Some(IN));
        assert_eq!(asked.answer(6, full, IN), None);
        for (left, fd, events) in [(7, full, IN), (8, full, IN), (8, empty, 4)] {
            ask(&mut asked);
            assert_eq!(asked.answer(left, fd, events), None);
            assert_eq!(asked.answer(8, empty, IN), None);
        }
        ask(&mut asked);
        asked.clear();
        assert_eq!(asked.answer(8, empty, IN), None);
    }

    #[test]
    fn as_many_are_asked_for_as_there_is_room() {
        let mut asked = Asked::default();
        asked.begin(100, -1, IN);
        assert_eq!((1..100).filter(|_| asked.add(-1, IN)).count(), MOST - 1);
        assert_eq!(asked.ask(), 0);
    }
}
