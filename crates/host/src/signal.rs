//! The private signal that makes a worker's blocked system call fail with EINTR.
//!
//! The signal is the highest real-time one that has its default action and that the program's
//! thread does not block (a blocked one is likely to feed a signalfd or sigwait), or else the
//! highest with its default action. It is chosen when signals are first blocked for the engine's
//! sake: later, and on threads of the engine's, all are blocked. The handler is installed when the
//! first item is interrupted, and never over somebody else's. A worker leaves the signal unblocked
//! only while it has work. See sigaction(2), timer_create(2), signal(7).
#![allow(unsafe_code)]

use crate::handlers;
use crate::limits::{SIGNALLED_EACH_TIME, WORKER_SIGNAL_EVERY};
use crate::sys::{all_signals, set_sigmask, sys};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use core::time::Duration;
use softring_uapi::errno::check;

/// Signals to choose from. 63 and 64 are left to valgrind and to debuggers; those below 34 are the
/// C library's own, and programs take 34 first.
const CANDIDATES: core::ops::RangeInclusive<i32> = 35..=62;
const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
/// Flag of rt_sigaction(2): the action has a restorer.
pub const SA_RESTORER: u64 = 0x0400_0000;
const SIGEV_THREAD_ID: i32 = 4;
const CLOCK_MONOTONIC: usize = 1;

/// Chosen number; 0: none yet.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// `struct sigaction` as the kernel has it.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

#[repr(C)]
struct SigEvent {
    value: u64,
    signo: i32,
    notify: i32,
    tid: i32,
    pad: [i32; 11],
}

/// Chooses the number, unless that is done. `mask` is what a thread of the program's blocks.
fn choose(mask: u64) {
    if SIGNAL.load(Relaxed) != 0 {
        return;
    }
    if let Some(n) = candidate(mask, |n| action(n).handler == 0) {
        let _ = SIGNAL.compare_exchange(0, n, Relaxed, Relaxed);
    }
}

/// Returns the number for a program that blocks `mask`. One that blocks all candidates waits for
/// few of them, and without a signal nothing that a worker runs could be cancelled.
fn candidate(mask: u64, unused: impl Fn(i32) -> bool) -> Option<i32> {
    let all = || CANDIDATES.rev().filter(|&n| unused(n));
    all().find(|n| mask & 1 << (n - 1) == 0).or_else(|| all().next())
}

/// Block of every signal that may be blocked, for the thread, while this lives. Threads that it
/// makes inherit the block. `old` is the mask from before.
#[derive(Debug)]
pub struct BlockAll {
    old: u64,
    /// Program's own mask, which `old` is not while a signal is deferred.
    before: u64,
    outermost: bool,
}

impl BlockAll {
    pub fn begin() -> Self {
        let old = set_sigmask(all_signals());
        choose(old);
        let (before, outermost) = handlers::blocks(old);
        Self { old, before, outermost }
    }

    /// Returns whether a signal of `set` may have been pending before: it was blocked.
    pub fn may_pend(&self, set: u64) -> bool {
        self.old & set != 0
    }

    /// Returns the mask that the program had before.
    pub fn before(&self) -> u64 {
        self.before
    }
}

impl Drop for BlockAll {
    fn drop(&mut self) {
        set_sigmask(self.old);
        if self.outermost {
            handlers::unblocks();
        }
    }
}

pub fn block() {
    change_mask(SIG_BLOCK, own_bit());
}

pub fn unblock() {
    change_mask(SIG_UNBLOCK, own_bit());
}

fn own_bit() -> u64 {
    match SIGNAL.load(Relaxed) {
        0 => 0,
        n => 1 << (n - 1),
    }
}

fn change_mask(how: usize, set: u64) {
    // SAFETY: the kernel reads the mask, of eight bytes.
    unsafe { sys!(__NR_rt_sigprocmask, how, (&raw const set).expose_provenance(), 0, 8) };
}

fn action(n: i32) -> KernelAction {
    let mut now = KernelAction { handler: usize::MAX, ..KernelAction::default() };
    // SAFETY: the structure is the kernel's, and ours to write.
    unsafe { sys!(__NR_rt_sigaction, n, 0, (&raw mut now).expose_provenance(), 8) };
    now
}

extern "C" fn on_signal(_: i32) {}

/// Returns from a handler: rt_sigreturn(2).
#[unsafe(naked)]
pub extern "C" fn restorer() {
    core::arch::naked_asm!("mov eax, 15", "syscall")
}

/// Returns whether the handler is ours (now). Never takes a signal that somebody else has come to
/// use.
fn install(n: i32) -> bool {
    let ours = on_signal as extern "C" fn(i32) as usize;
    match action(n).handler {
        h if h == ours => true,
        0 => {
            let back = restorer as extern "C" fn() as usize;
            // All signals stay blocked in the handler. No SA_RESTART: the interrupted call must
            // end.
            let new =
                KernelAction { handler: ours, flags: SA_RESTORER, restorer: back, mask: u64::MAX };
            let new = (&raw const new).expose_provenance();
            // SAFETY: the handler does nothing, and returns by the restorer.
            check(unsafe { sys!(__NR_rt_sigaction, n, new, 0, 8) }).is_ok()
        }
        _ => false,
    }
}

/// Signals that are sent to one worker for its present item. Used only under the pool's lock.
#[derive(Default)]
pub struct Repeated {
    sent: bool,
    timer: Option<i32>,
}

impl Repeated {
    /// Signals the worker now, and again and again until [`Self::stop`]. `workers` is the number of
    /// workers that are signalled at the same time. The more there are, the less often each is
    /// signalled: otherwise the signals of some hundred would leave them no time to end.
    pub fn start(&mut self, tid: i32, workers: usize) {
        let n = SIGNAL.load(Relaxed);
        if self.sent || n == 0 || !install(n) {
            return;
        }
        self.sent = true;
        let pid = crate::os::process::getpid();
        // SAFETY: numbers; the signal has a handler, which does nothing.
        unsafe { sys!(__NR_tgkill, pid, tid, n) };
        self.timer =
            repeat(tid, n, WORKER_SIGNAL_EVERY * (1 + workers as u32 / SIGNALLED_EACH_TIME));
    }

    /// Ends the signals. None comes after this: deleting the timer, or the system call that
    /// unblocks the signal, delivers what is pending.
    pub fn stop(&mut self) {
        if let Some(timer) = self.timer.take() {
            // SAFETY: a number.
            unsafe { sys!(__NR_timer_delete, timer) };
        }
        if core::mem::take(&mut self.sent) {
            unblock();
        }
    }
}

/// Signals a thread of ours, once; returns false if there is no signal to do it with.
pub fn interrupt(tid: i32) -> bool {
    let n = SIGNAL.load(Relaxed);
    if n == 0 || !install(n) {
        return false;
    }
    let pid = crate::os::process::getpid();
    // SAFETY: as in `Repeated::start`.
    unsafe { sys!(__NR_tgkill, pid, tid, n) };
    true
}

/// Makes a timer that signals one thread. Without a timer (RLIMIT_SIGPENDING), the single signal
/// must do.
fn repeat(tid: i32, n: i32, every: Duration) -> Option<i32> {
    let event = SigEvent { value: 0, signo: n, notify: SIGEV_THREAD_ID, tid, pad: [0; 11] };
    let mut id = 0i32;
    let (ev, to) = ((&raw const event).expose_provenance(), (&raw mut id).expose_provenance());
    // SAFETY: the kernel reads the event, and writes the id, which is ours.
    check(unsafe { sys!(__NR_timer_create, CLOCK_MONOTONIC, ev, to) }).ok()?;
    let ns = every.as_nanos() as u64;
    let spec: [u64; 4] = [0, ns, 0, ns];
    // SAFETY: the kernel reads the times.
    unsafe { sys!(__NR_timer_settime, id, 0, (&raw const spec).expose_provenance(), 0) };
    Some(id)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::candidate;

    #[test]
    fn a_signal_that_is_blocked_serves_only_if_all_are() {
        let bit = |n: i32| 1 << (n - 1);
        assert_eq!(candidate(0, |_| true), Some(62));
        assert_eq!(candidate(bit(62) | bit(60), |n| n != 61), Some(59));
        assert_eq!(candidate(u64::MAX, |n| n < 50), Some(49));
        assert_eq!(candidate(0, |_| false), None);
    }
}
