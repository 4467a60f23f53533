//! Memory for the counters of a ring, and for those of its workers.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

use super::page::{Base, hist_at, page, pool_at, ring_at};
use super::{Count, Hist, OPS, PoolStats, RingStats, Workers, row};

/// Memory for the counters of a ring.
#[derive(Debug)]
pub struct CounterSlot {
    at: NonNull<RingStats>,
    /// Slot on a page; none for memory of its own.
    on: Option<On>,
    /// Histograms by opcode, as the page names them, from 1 on; 0: none yet.
    hists: [u16; OPS],
    /// Flag, true for a forked child that is to get a slot on a page when it first submits.
    pub(crate) waits: bool,
}

/// A slot on a page.
#[derive(Clone, Copy, Debug)]
struct On {
    base: Base,
    slot: usize,
    /// Process that owns the page.
    owner: u32,
}

/// Mark of an opcode for which no histogram was left.
const REFUSED: u16 = u16::MAX;
const _: () = assert!(softring_host::limits::STATS_HISTS < REFUSED as usize);

// SAFETY: only addresses; what is there are atomic words.
unsafe impl Send for CounterSlot {}
// SAFETY: as above.
unsafe impl Sync for CounterSlot {}

impl Deref for CounterSlot {
    type Target = RingStats;

    #[inline]
    fn deref(&self) -> &RingStats {
        // SAFETY: on the page, which stays mapped for ever, or a box of our own, freed on drop.
        unsafe { self.at.as_ref() }
    }
}

impl Default for CounterSlot {
    /// Makes a slot in memory of its own.
    fn default() -> Self {
        let own = NonNull::from(Box::leak(Box::<RingStats>::default()));
        CounterSlot { at: own, on: None, hists: [0; OPS], waits: false }
    }
}

impl CounterSlot {
    /// Takes a slot on the page, which is made now if need be; memory of its own without a page.
    pub(crate) fn new() -> CounterSlot {
        let Some(mut guard) = page() else { return CounterSlot::default() };
        let Some(page) = guard.as_mut() else { return CounterSlot::default() };
        let (base, owner) = (page.base(), softring_host::fork::pid());
        let Some(slot) = page.take_ring() else { return CounterSlot::default() };
        let on = Some(On { base, slot, owner });
        CounterSlot { at: ring_at(base, slot), on, hists: [0; OPS], waits: false }
    }

    /// Returns whether anybody would see a latency.
    pub(crate) fn seen(&self) -> bool {
        self.on.is_some()
    }

    /// Moves the counters to memory of their own in a forked child: the page is the parent's.
    pub fn fork_child(&mut self) {
        let (waits, id) = (self.waits || self.on.is_some(), self.id.get());
        let words = [&self.flags, &self.sq_entries, &self.cq_entries].map(Count::get);
        // Nothing is given back on the parent's page.
        *self = CounterSlot::default();
        self.waits = waits;
        self.name(id, words);
    }

    /// Takes a slot for a forked child that submits.
    #[cold]
    pub(crate) fn attach(&mut self) {
        let new = CounterSlot::new();
        let words = [&self.flags, &self.sq_entries, &self.cq_entries].map(Count::get);
        new.name(self.id.get(), words);
        *self = new;
    }

    /// Describes the ring: its flags, and the entries of the SQ and of the CQ.
    pub(crate) fn name(&self, id: u64, [flags, sq, cq]: [u64; 3]) {
        self.flags.set(flags);
        self.sq_entries.set(sq);
        self.cq_entries.set(cq);
        self.id.set(id);
    }

    /// Counts `n` requests of one opcode that took `ns` each.
    pub(crate) fn latency(&mut self, opcode: u8, ns: u64, n: u64) {
        let op = row(opcode);
        if self.hists[op] == 0 {
            self.take_hist(op);
        }
        if let Some(hist) = self.hist(op) {
            hist.add(ns, n);
        }
    }

    fn hist(&self, op: usize) -> Option<&'static Hist> {
        let named = self.hists[op];
        if named == 0 || named == REFUSED {
            return None;
        }
        self.on.map(|on| hist_at(on.base, usize::from(named) - 1))
    }

    /// Takes a histogram for the opcode's first latency.
    #[cold]
    fn take_hist(&mut self, op: usize) {
        self.hists[op] = REFUSED;
        if self.on.is_none_or(|on| on.owner != softring_host::fork::pid()) {
            return;
        }
        let Some(mut guard) = page() else { return };
        if let Some(slot) = guard.as_mut().and_then(super::page::Page::take_hist) {
            self.hists[op] = slot as u16 + 1;
            self.op_hists[op].set(slot as u64 + 1);
        }
    }

    /// Moves the counters of a ring to the sums.
    fn end(&mut self, on: On) {
        let Some(mut guard) = page() else { return };
        let Some(page) = guard.as_mut() else { return };
        self.id.set(0);
        // SAFETY: the slot of the sums, written under the page's lock only.
        let sums = unsafe { ring_at(on.base, 0).as_ref() };
        let ((single, tables), (own, own_tables)) = (counters(sums), counters(self));
        single.into_iter().zip(own).for_each(|(sum, word)| word.move_to(sum));
        for (sums, words) in tables.into_iter().zip(own_tables) {
            sums.iter().zip(words).for_each(|(sum, word)| word.move_to(sum));
        }
        for gauge in [&self.sq_thread, &self.pool, &self.in_flight] {
            gauge.set(0);
        }
        for (op, &named) in self.hists.iter().enumerate().filter(|(_, named)| **named != 0) {
            let Some(hist) = self.hist(op) else { continue };
            self.op_hists[op].set(0);
            if page.sums[op] == 0 {
                // The first of its kind stays as it is.
                page.sums[op] = named;
                sums.op_hists[op].set(u64::from(named));
                continue;
            }
            let kept = hist_at(on.base, usize::from(page.sums[op]) - 1);
            for (sum, word) in kept.words().zip(hist.words()) {
                word.move_to(sum);
            }
            page.hists.give_back(usize::from(named) - 1);
        }
        page.rings.give_back(on.slot);
    }
}

impl Drop for CounterSlot {
    fn drop(&mut self) {
        match self.on {
            // A forked child's lock may be held by a thread that it does not have.
            Some(on) if on.owner != softring_host::fork::pid() => {}
            Some(on) => self.end(on),
            // SAFETY: made by `Box::leak`, and dropped once.
            None => drop(unsafe { Box::from_raw(self.at.as_ptr()) }),
        }
    }
}

/// Returns the words to be added up, all that only ever grow: single ones, and those by opcode. (In
/// arrays: a chain of iterators takes 40 instructions for each word.)
#[rustfmt::skip]
fn counters(stats: &RingStats) -> ([&Count; 24], [&[Count; OPS]; 2]) {
    let (r, i, n, late) = (&stats.routes, &stats.reissue, &stats.idle_sleeps, &stats.late);
    let single = [
        &stats.enters, &stats.errors, &stats.cqes, &stats.overflowed,
        &stats.read_bytes, &stats.written_bytes,
        &r.poll, &r.aio, &r.worker, &r.model, &r.queued,
        &i.at_once, &i.armed, &i.ready_at_arm, &i.reissued, &i.aborted, &i.capped,
        &n.idle_sleeps, &n.under, &n.over, &n.spared_ns, &n.spun_ns,
        &late.seen, &late.ns,
    ];
    (single, [&stats.ops, &stats.op_errors])
}

/// Memory for the counters of a pool's workers, by account; none by default.
#[derive(Debug, Default)]
pub(crate) struct PoolSlot {
    at: Option<(&'static PoolStats, usize)>,
    owner: u32,
}

impl PoolSlot {
    /// Takes a slot on the page, if there is one.
    pub(crate) fn new() -> PoolSlot {
        let Some(mut guard) = page() else { return PoolSlot::default() };
        let Some(page) = guard.as_mut() else { return PoolSlot::default() };
        let at = page.take_pool().map(|slot| (pool_at(page.base(), slot), slot));
        PoolSlot { at, owner: softring_host::fork::pid() }
    }

    /// Returns the pool's slot as a ring names it.
    pub(crate) fn name(&self) -> u64 {
        self.at.map_or(0, |(_, slot)| slot as u64 + 1)
    }

    /// Sets the counts of the bounded account and of the other: workers, idle ones, requests that
    /// wait, and most workers. Called under the pool's lock.
    pub(crate) fn set(&self, counts: impl FnOnce() -> [[u64; 4]; 2]) {
        let Some((words, _)) = self.at else { return };
        let [bound, unbound] = counts();
        for (words, counts) in [(&words.bound, bound), (&words.unbound, unbound)] {
            let Workers { workers, idle, queued, max } = words;
            for (word, n) in [workers, idle, queued, max].into_iter().zip(counts) {
                word.set(n);
            }
        }
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        let Some((_, slot)) = self.at.filter(|_| self.owner == softring_host::fork::pid()) else {
            return;
        };
        self.set(|| [[0; 4]; 2]);
        let Some(mut guard) = page() else { return };
        if let Some(page) = guard.as_mut() {
            page.pools.give_back(slot);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_their_sums_kept() {
        let base = || page().unwrap().as_ref().unwrap().base();
        // SAFETY: as in `CounterSlot::end`.
        let sums = || unsafe { ring_at(base(), 0).as_ref() };
        let count = |op: usize| {
            let named = sums().op_hists[op].get() as usize;
            if named == 0 {
                0
            } else {
                hist_at(base(), named - 1).words().skip(1).map(Count::get).sum()
            }
        };
        for round in 1..=2u64 {
            let mut a = CounterSlot::new();
            let before = sums().errors.get();
            a.name(u64::MAX, [0; 3]);
            a.count_error(44);
            a.count_ops(200, 2);
            a.latency(200, 5000, 3);
            a.in_flight.set(9);
            assert_eq!((a.errors.get(), a.ops[OPS - 1].get()), (1, 2));
            drop(a);
            assert!(sums().errors.get() > before);
            assert_eq!(count(OPS - 1), 3 * round);
        }
        let b = CounterSlot::new();
        assert_eq!((b.id.get(), b.errors.get(), b.in_flight.get()), (0, 0, 0));
        assert!(b.op_hists.iter().all(|h| h.get() == 0));
    }

    #[test]
    fn a_pool_is_counted_until_it_ends() {
        let pool = PoolSlot::new();
        let words = pool.at.unwrap().0;
        pool.set(|| [[3, 1, 0, 8], [1, 1, 0, 100]]);
        assert_eq!((words.bound.workers.get(), words.unbound.max.get()), (3, 100));
        drop(pool);
        assert_eq!((words.bound.workers.get(), words.unbound.max.get()), (0, 0));
        assert_eq!(PoolSlot::default().name(), 0);
    }
}
