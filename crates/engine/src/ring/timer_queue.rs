//! Armed timeouts in their order: deadlines on three clocks, and completion counts. Every step
//! costs the logarithm of the number armed.

use alloc::collections::BTreeMap;

use super::phase::Timer;
use crate::io::token::ReqId;
use crate::memory::scratch::Timespecs;
use softring_host::time::Clock;

/// Armed timeouts.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    /// Timeouts per clock, by deadline; ties by arrival.
    pub(super) by_time: [BTreeMap<(u64, u64), ReqId>; 3],
    /// Timeouts that also end after a number of completions, by their target; ties by arrival.
    pub(super) by_count: BTreeMap<(u64, u64), ReqId>,
    next_seq: u64,
    /// Timespecs of the TIMEOUTs in the current batch.
    pub(crate) specs: Timespecs,
    /// Number of CQEs of timeouts themselves, which do not count.
    pub(crate) own: u32,
    /// The CQ tail of the last commit, from which a count starts.
    pub(crate) committed: u32,
    /// Completions counted so far; `seen` is the word (tail minus `own`) at that time.
    events: u64,
    seen: u32,
}

impl Timeouts {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.iter().all(BTreeMap::is_empty)
    }

    /// Returns the time until the earliest deadline, in ns; 0 if it has passed.
    pub(crate) fn next_in(&self) -> Option<u64> {
        let left = |c: &Clock| {
            let (&(deadline, _), _) = self.by_time[*c as usize].first_key_value()?;
            Some(deadline.saturating_sub(c.now()))
        };
        Clock::ALL.iter().filter_map(left).min()
    }

    /// Returns the completions that count, given the CQ tail. `own` may include a timeout whose CQE
    /// is still to come: the word may step back.
    pub(super) fn events(&mut self, tail: u32) -> u64 {
        let word = tail.wrapping_sub(self.own);
        let step = word.wrapping_sub(self.seen).cast_signed();
        self.events = self.events.wrapping_add_signed(i64::from(step));
        self.seen = word;
        self.events
    }

    /// Inserts a timeout; true if it is the earliest on its clock.
    pub(super) fn insert(&mut self, t: &mut Timer, id: ReqId) -> bool {
        t.seq = self.next_seq;
        self.next_seq += 1;
        if t.count != 0 {
            t.target = self.events(self.committed).wrapping_add(u64::from(t.count));
            self.by_count.insert((t.target, t.seq), id);
        }
        let by_time = &mut self.by_time[t.clock as usize];
        by_time.insert((t.deadline, t.seq), id);
        by_time.first_key_value().is_some_and(|(_, &first)| first == id)
    }

    /// Removes the earliest timeout of a clock, if it has expired.
    pub(super) fn pop_due(&mut self, clock: Clock, now: u64) -> Option<ReqId> {
        let first = self.by_time[clock as usize].first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn remove(&mut self, t: &Timer) {
        self.by_time[t.clock as usize].remove(&(t.deadline, t.seq));
        if t.count != 0 {
            self.by_count.remove(&(t.target, t.seq));
        }
    }
}
