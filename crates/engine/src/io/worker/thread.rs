//! Life of a worker: starts, runs items, parks, exits.

use super::{Account, Pool, Slot, State, Work};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use softring_host::sync::{self, Parker, Repeated};

/// Next action of a worker.
pub(super) enum Next<W> {
    Run(W),
    Park(Option<Duration>),
    Leave,
}

/// Starts a worker, which the caller has counted already; false if it cannot be started.
pub(super) fn spawn<W: Work>(pool: &Arc<Pool<W>>, acct: Account) -> bool {
    #[cfg(not(loom))]
    let _blocked = softring_host::signal::BlockAll::begin();
    let (mine, limits) = (pool.clone(), softring_host::creds::token());
    let life = move || {
        softring_host::creds::is_ours(limits);
        live(&mine, acct);
    };
    sync::spawn(&pool.name, pool.stack, life).is_ok()
}

fn live<W: Work>(pool: &Pool<W>, acct: Account) {
    let parker = Arc::new(Parker::default());
    let slot = pool.state.lock().take_slot(acct, parker.clone());
    let mut timed_out = false;
    loop {
        match pool.next(slot, timed_out) {
            Next::Run(w) => {
                timed_out = false;
                w.run();
            }
            Next::Park(limit) => {
                // An idle worker takes no signal at all: the program may come to use the signal's
                // number itself.
                #[cfg(not(loom))]
                softring_host::signal::block();
                timed_out = !parker.park(limit);
                #[cfg(not(loom))]
                softring_host::signal::unblock();
            }
            Next::Leave => return,
        }
    }
}

impl<W: Work> Pool<W> {
    /// Ends the worker's item, and chooses its next action; all in one critical section.
    pub(super) fn next(&self, slot: u32, timed_out: bool) -> Next<W> {
        let mut guard = self.state.lock();
        let next = guard.next(slot, timed_out, self.idle, self.stay.load(Relaxed));
        guard.count();
        next
    }
}

impl<W: Work> State<W> {
    fn next(&mut self, slot: u32, timed_out: bool, idle_limit: Duration, stay: u32) -> Next<W> {
        let s = self;
        s.finish(slot);
        let me = s.slots[slot as usize].as_mut().expect("a worker's slot is its own till it exits");
        let acct = &mut s.acct[me.acct as usize];
        let was_idle = acct.idle.iter().position(|&i| i == slot);
        if let Some((w, bucket)) = s.queue.pop(me.acct) {
            if let Some(at) = was_idle {
                acct.idle.remove(at);
            }
            me.running = Some(w.key());
            me.bucket = bucket;
            return Next::Run(w);
        }
        // A worker not in the idle list has a wake-up on its way: see the module's drawing.
        let old = timed_out && was_idle.is_some() && acct.workers > stay;
        if s.down || old || acct.workers > acct.max {
            if let Some(at) = was_idle {
                acct.idle.remove(at);
            }
            acct.workers -= 1;
            s.slots[slot as usize] = None;
            return Next::Leave;
        }
        if was_idle.is_none() {
            acct.idle.push(slot);
        }
        Next::Park((acct.workers > stay).then_some(idle_limit))
    }

    fn take_slot(&mut self, acct: Account, parker: Arc<Parker>) -> u32 {
        let at = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
        }
        let tid = own_tid();
        if let Some(mask) = self.affinity.as_deref() {
            confine(tid, mask);
        }
        self.slots[at] = Some(Slot {
            acct,
            parker,
            tid,
            running: None,
            bucket: None,
            signals: Repeated::default(),
        });
        #[cfg(not(loom))]
        softring_host::signal::unblock();
        at as u32
    }

    fn finish(&mut self, slot: u32) {
        let Some(me) = self.slots[slot as usize].as_mut() else { return };
        if me.running.take().is_none() {
            return;
        }
        me.signals.stop();
        if let Some(b) = me.bucket.take() {
            self.queue.done(b);
        }
    }
}

#[cfg(not(loom))]
fn own_tid() -> i32 {
    softring_host::calls::process::gettid()
}

#[cfg(loom)]
fn own_tid() -> i32 {
    0
}

/// Confines a thread to a CPU mask. Best effort, as for the kernel's own workers: a mask that the
/// cpuset does not allow changes nothing.
pub(super) fn confine(tid: i32, mask: &[u8]) {
    let _ = softring_host::calls::process::set_affinity(tid, mask);
}
