//! Test of whether the kernel reports the futex waiters that FUTEX_CMP_REQUEUE has moved. gVisor
//! moves them, and counts only those that it has woken.
//!
//! Runs on: the first thread that asks, which moves a thread created for this from one word to
//! another.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::futex_waiter::{ANY, on};
use super::of_process::PROCESS;
use softring_host::limits::WORKER_STACK;

const UNKNOWN: u32 = 0;
const TELLS: u32 = 1;
const SILENT: u32 = 2;

/// Returns whether the kernel reports moved waiters; tested once per process. Two concurrent tests
/// find the same.
pub(super) fn reports_moved() -> bool {
    let known = &PROCESS.kernel.requeue_tells;
    if known.load(Relaxed) == UNKNOWN {
        known.store(if try_it() { TELLS } else { SILENT }, Relaxed);
    }
    known.load(Relaxed) == TELLS
}

/// Runs the test. True also if no thread can be created.
fn try_it() -> bool {
    let words = Arc::new([const { AtomicU32::new(0) }; 2]);
    let theirs = words.clone();
    let life = move || {
        let [from, _] = theirs.each_ref().map(|word| on(word, 0, true));
        while theirs[1].load(SeqCst) == 0 && from.sleep(ANY).is_err() {}
    };
    let name = format!("iou-slp-{}", softring_host::fork::pid());
    let _blocked = softring_host::signal::BlockAll::begin();
    if softring_host::threads::start(&name, WORKER_STACK, life).is_err() {
        return true;
    }
    let [from, to] = words.each_ref().map(|word| on(word, 0, true));
    loop {
        let moved = from.requeue(&to).unwrap_or(1);
        let woken = to.wake();
        if moved > 0 || woken > 0 {
            words[1].store(1, SeqCst);
            return moved > 0;
        }
        softring_host::threads::yield_now();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_reports_requeues() {
        assert!(super::reports_moved());
    }
}
