//! Items that wait for a worker: one ready list per account, and behind them one chain per hash
//! bucket.
//!
//! At most one item of a bucket is ready or running; the others wait in the bucket's chain, so that
//! a busy inode holds up neither a worker nor other inodes' items. When the bucket's item is done,
//! the next of its chain goes to the end of the ready list. All lists are threaded through one
//! slab, which grows to the most items that ever waited and is then reused: no allocation in the
//! steady state. The pool's lock guards the queue.

use super::{Account, Work};
use alloc::vec::Vec;
use softring_host::limits::WORKER_HASH_BUCKETS;

const NIL: u32 = u32::MAX;

struct Slot<W> {
    item: Option<W>,
    next: u32,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: List = List { head: NIL, tail: NIL };
}

pub(super) struct Queue<W> {
    slab: Vec<Slot<W>>,
    free: u32,
    ready: [List; 2],
    chain: [List; WORKER_HASH_BUCKETS],
    /// Bit mask of buckets with a ready or running item.
    busy: u64,
    waiting: [u32; 2],
}

/// Returns the bucket of a key such as an inode (Fibonacci hashing; there are 2^6 buckets).
pub(super) fn bucket(key: u64) -> u32 {
    const { assert!(WORKER_HASH_BUCKETS == 64) };
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

/// Returns the account of an item. Hashed work is buffered writes of regular files, which end:
/// always bounded.
pub(super) fn account<W: Work>(w: &W) -> Account {
    if w.unbound() && w.hash_key().is_none() { Account::Unbound } else { Account::Bound }
}

impl<W: Work> Queue<W> {
    pub(super) fn new() -> Self {
        Self {
            slab: Vec::new(),
            free: NIL,
            ready: [List::EMPTY; 2],
            chain: [List::EMPTY; WORKER_HASH_BUCKETS],
            busy: 0,
            waiting: [0; 2],
        }
    }

    /// Returns whether `w` would wait behind another item of its bucket, so that it needs no
    /// worker.
    pub(super) fn must_wait(&self, w: &W) -> bool {
        w.hash_key().is_some_and(|k| self.is_busy(k))
    }

    /// Returns whether the key's bucket has a ready or running item.
    pub(super) fn is_busy(&self, key: u64) -> bool {
        self.busy & 1 << bucket(key) != 0
    }

    pub(super) fn push(&mut self, w: W) {
        let (acct, hash) = (account(&w) as usize, w.hash_key().map(bucket));
        let at = self.alloc(w);
        self.waiting[acct] += 1;
        let list = match hash {
            Some(b) if self.busy & 1 << b != 0 => &mut self.chain[b as usize],
            Some(b) => {
                self.busy |= 1 << b;
                &mut self.ready[acct]
            }
            None => &mut self.ready[acct],
        };
        append(&mut self.slab, list, at);
    }

    /// Takes the oldest ready item, with its bucket, which stays busy until [`Self::done`].
    pub(super) fn pop(&mut self, acct: Account) -> Option<(W, Option<u32>)> {
        let at = self.ready[acct as usize].head;
        if at == NIL {
            return None;
        }
        let w = self.unlink(Where::Ready(acct as usize), NIL, at);
        let b = w.hash_key().map(bucket);
        Some((w, b))
    }

    /// Makes the next item of the bucket's chain ready, after the bucket's item has run or is gone.
    pub(super) fn done(&mut self, bucket: u32) {
        let at = self.chain[bucket as usize].head;
        if at == NIL {
            self.busy &= !(1 << bucket);
            return;
        }
        let rest = self.slab[at as usize].next;
        let chain = &mut self.chain[bucket as usize];
        *chain = if rest == NIL { List::EMPTY } else { List { head: rest, tail: chain.tail } };
        self.slab[at as usize].next = NIL;
        append(&mut self.slab, &mut self.ready[Account::Bound as usize], at);
    }

    /// Removes the items that match: the first, or all. The first is a ready one before a chained
    /// one, the oldest first.
    pub(super) fn remove(&mut self, mut pred: impl FnMut(&W::Key) -> bool, all: bool) -> Vec<W> {
        let mut out = Vec::new();
        // Chains first: removing a ready item makes the next of its chain ready, which must have
        // been checked by then.
        if all {
            for b in 0..WORKER_HASH_BUCKETS {
                self.remove_from(Where::Chain(b), &mut pred, true, &mut out);
            }
        }
        for acct in 0..2 {
            self.remove_from(Where::Ready(acct), &mut pred, all, &mut out);
        }
        for b in 0..WORKER_HASH_BUCKETS {
            self.remove_from(Where::Chain(b), &mut pred, all, &mut out);
        }
        out
    }

    fn remove_from(
        &mut self,
        from: Where,
        pred: &mut impl FnMut(&W::Key) -> bool,
        all: bool,
        out: &mut Vec<W>,
    ) {
        let (mut before, mut at) = (NIL, self.list(from).head);
        while at != NIL && (all || out.is_empty()) {
            let next = self.slab[at as usize].next;
            if self.slab[at as usize].item.as_ref().is_some_and(|w| pred(&w.key())) {
                let w = self.unlink(from, before, at);
                if let (Where::Ready(_), Some(k)) = (from, w.hash_key()) {
                    self.done(bucket(k));
                }
                out.push(w);
            } else {
                before = at;
            }
            at = next;
        }
    }

    pub(super) fn waiting(&self, acct: Account) -> u32 {
        self.waiting[acct as usize]
    }

    fn list(&mut self, at: Where) -> &mut List {
        match at {
            Where::Ready(a) => &mut self.ready[a],
            Where::Chain(b) => &mut self.chain[b],
        }
    }

    fn alloc(&mut self, w: W) -> u32 {
        if self.free == NIL {
            self.slab.push(Slot { item: Some(w), next: NIL });
            return self.slab.len() as u32 - 1;
        }
        let at = self.free;
        let slot = &mut self.slab[at as usize];
        self.free = slot.next;
        *slot = Slot { item: Some(w), next: NIL };
        at
    }

    fn unlink(&mut self, from: Where, before: u32, at: u32) -> W {
        let next = self.slab[at as usize].next;
        if before != NIL {
            self.slab[before as usize].next = next;
        }
        let list = self.list(from);
        if before == NIL {
            list.head = next;
        }
        if list.tail == at {
            list.tail = before;
        }
        let free = self.free;
        let slot = &mut self.slab[at as usize];
        slot.next = free;
        let w = slot.item.take().expect("a linked slot holds an item");
        self.free = at;
        self.waiting[account(&w) as usize] -= 1;
        w
    }
}

#[derive(Clone, Copy)]
enum Where {
    Ready(usize),
    Chain(usize),
}

fn append<W>(slab: &mut [Slot<W>], list: &mut List, at: u32) {
    if list.tail == NIL {
        list.head = at;
    } else {
        slab[list.tail as usize].next = at;
    }
    list.tail = at;
}
