//! Signals that come while a thread waits in `io_uring_enter(2)`: the mask that their handlers
//! find, and the end of a wait without a handler.
#![allow(unsafe_code)]

use super::prelude::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("signals", mask_in_handler, [], "the wait's mask holds in a handler, and the program's mask after it"),
    any_order!("signals", one_handler_per_wait, [], "of two signals that block each other a wait with a mask handles one"),
    case!("signals", blocked_by_wait_mask, [], "a signal that the wait's mask blocks does not end the wait, whenever it comes"),
    case!("signals", stopped, [], "a stop ends a wait when the process continues; ignored signals do not"),
];

/// Returns the signals that are blocked for this thread.
fn blocked() -> u64 {
    let mut set = 0u64;
    let at = addr_mut(&mut set);
    // SAFETY: `at` is a set to fill.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, at, 8) };
    set
}

fn set_mask(mask: u64) {
    let at = addr(&mask);
    // SAFETY: `at` is a live set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, at, 0, 8) };
}

/// Number of handlers that have run.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// Signals that the last handler found blocked, and signals that its return restores.
static FOUND: AtomicU64 = AtomicU64::new(0);
static RESTORED: AtomicU64 = AtomicU64::new(0);

extern "C" fn tell_masks(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    RUNS.fetch_add(1, Ordering::Relaxed);
    FOUND.store(blocked(), Ordering::Relaxed);
    // SAFETY: `context` is the kernel's structure; its set comes first in the C library's larger
    // one.
    let restored = unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast() };
    // SAFETY: as above.
    RESTORED.store(unsafe { std::ptr::read(restored) }, Ordering::Relaxed);
}

/// Handles `signal` with `masked` blocked meanwhile.
fn handle(signal: i32, masked: i32) {
    // SAFETY: zero is a valid action; a whole set; the handler stays.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = tell_masks as *const () as usize;
        act.sa_flags = libc::SA_SIGINFO;
        libc::sigaddset(&raw mut act.sa_mask, masked);
        libc::sigaction(signal, &raw const act, std::ptr::null_mut());
    }
}

/// Records the handlers' findings since the last call.
fn tell(cx: &mut Cx, what: &str) {
    let runs = RUNS.swap(0, Ordering::Relaxed);
    let (found, restored) =
        (FOUND.swap(0, Ordering::Relaxed), RESTORED.swap(0, Ordering::Relaxed));
    let of = format_args!("{runs} handled: {found:#x} in it, {restored:#x} to restore");
    cx.note(what, of);
    cx.note("after it", format_args!("{:#x}", blocked()));
}

/// Ways to wait under a mask: without a limit, with a time, after a submission, beside another
/// waiter.
type Way = (&'static str, fn(&mut Ring, &u64) -> isize);

const WAYS: [Way; 4] = [
    ("enter", |ring, mask| ring.enter_raw(0, 1, IORING_ENTER_GETEVENTS, addr(mask), 8)),
    ("enter with a time", |ring, mask| {
        let ts = sqe::millis(60_000);
        let arg = io_uring_getevents_arg {
            sigmask: addr(mask) as u64,
            sigmask_sz: 8,
            ts: addr(&ts) as u64,
            ..Default::default()
        };
        ring.enter_ext(0, 1, &arg)
    }),
    ("submit and wait", |ring, mask| {
        ring.push(sqe::nop());
        let ret = ring.enter_raw(1, 2, IORING_ENTER_GETEVENTS, addr(mask), 8);
        ring.pop_all();
        ret
    }),
    ("wait for another", |ring, mask| {
        let limit = sqe::millis(200);
        let arg = io_uring_getevents_arg { ts: addr(&limit) as u64, ..Default::default() };
        std::thread::scope(|s| {
            set_mask(ALL);
            s.spawn(|| ring.enter_ext(0, 1, &arg));
            std::thread::sleep(Duration::from_millis(5));
            set_mask(OWN);
            ring.enter_raw(0, 1, IORING_ENTER_GETEVENTS, addr(mask), 8)
        })
    }),
];

/// Signals that the program itself blocks.
const OWN: u64 = os::mask_of(libc::SIGHUP);
/// All signals but SIGSYS, which traps system calls.
const ALL: u64 = !os::mask_of(libc::SIGSYS);

fn mask_in_handler(cx: &mut Cx) -> Outcome {
    handle(libc::SIGUSR1, libc::SIGUSR2);
    let mut ring = cx.ring(4, 0)?;
    for (way, wait) in WAYS {
        for under in [0, os::mask_of(libc::SIGINT), OWN] {
            set_mask(OWN);
            let sender = os::signal_me_after(libc::SIGUSR1, 30);
            let ret = wait(&mut ring, &under);
            cx.note(way, format_args!("under {under:#x}: {ret}"));
            tell(cx, "let in by both");
            sender.join().ok();

            set_mask(OWN | os::mask_of(libc::SIGUSR1));
            if way == "wait for another" {
                continue;
            }
            os::raise(libc::SIGUSR1);
            let ret = wait(&mut ring, &under);
            cx.note(way, format_args!("under {under:#x}: {ret}"));
            tell(cx, "let in by the wait");
        }
    }
    set_mask(0);
    Ok(())
}

fn one_handler_per_wait(cx: &mut Cx) -> Outcome {
    let both = os::mask_of(libc::SIGUSR1) | os::mask_of(libc::SIGUSR2);
    handle(libc::SIGUSR1, libc::SIGUSR2);
    handle(libc::SIGUSR2, libc::SIGUSR1);
    let mut ring = cx.ring(4, 0)?;
    for (way, wait) in &WAYS[..3] {
        set_mask(both);
        os::raise(libc::SIGUSR1);
        os::raise(libc::SIGUSR2);
        for _ in 0..2 {
            let ret = wait(&mut ring, &0);
            cx.note(way, format_args!("{ret}"));
            tell(cx, "let in by the wait");
        }
    }
    set_mask(0);
    Ok(())
}

/// Waits under a mask that blocks signals which another thread sends all the time.
fn blocked_by_wait_mask(cx: &mut Cx) -> Outcome {
    const ROUNDS: u32 = 2000;
    let mut ring = cx.ring(64, 0)?;
    let soon = kernel_timespec { tv_sec: 0, tv_nsec: 200_000 };
    os::catch(libc::SIGUSR1, 0);
    static WAITER: AtomicI32 = AtomicI32::new(0);
    static DONE: AtomicBool = AtomicBool::new(false);
    WAITER.store(os::tid(), Ordering::Relaxed);
    let sender = std::thread::spawn(|| {
        while !DONE.load(Ordering::Relaxed) {
            os::signal_thread(WAITER.load(Ordering::Relaxed), libc::SIGUSR1);
            std::thread::sleep(Duration::from_micros(70));
        }
    });
    let (mut whole, mut ends) = (0, 0);
    for _ in 0..ROUNDS {
        for _ in 0..8 {
            ring.push(sqe::nop());
        }
        ring.push(sqe::timeout(&soon, 0, 0).ud(1));
        let ret = ring.enter_raw(9, 9, IORING_ENTER_GETEVENTS, addr(&ALL), 8);
        whole += u32::from(ret == 9);
        while ring.cq_ready() < 9 {
            ring.enter(0, 9, IORING_ENTER_GETEVENTS);
            ends += 1;
        }
        ring.pop_all();
    }
    DONE.store(true, Ordering::Relaxed);
    sender.join().ok();
    cx.eq("submitted", whole, ROUNDS);
    cx.eq("waits that ended too soon", ends, 0);
    Ok(())
}

/// Sends `signals` to a child that waits in `wait`; returns how the wait ended.
fn signalled(cx: &Cx, wait: Wait, signals: &[i32]) -> i32 {
    let entry = cx.entry;
    let child = os::spawn_child(|| match Ring::new(entry, 8, 0) {
        Ok(mut ring) => -wait(&mut ring) as i32,
        Err(_) => 100,
    });
    for &signal in signals {
        std::thread::sleep(Duration::from_millis(150));
        os::signal(child, signal);
    }
    os::wait_for(child)
}

/// Waits with a time limit much longer than the signals take.
fn for_a_while(ring: &Ring, mask: u64) -> isize {
    let time = sqe::millis(1500);
    let sigmask = if mask == 0 { 0 } else { addr(&mask) as u64 };
    let ts = addr(&time) as u64;
    let arg = io_uring_getevents_arg { sigmask, sigmask_sz: 8, ts, ..Default::default() };
    ring.enter_ext(0, 1, &arg)
}

/// A way to wait, which returns enter's result.
type Wait = fn(&mut Ring) -> isize;

fn stopped(cx: &mut Cx) -> Outcome {
    let ways: [(&str, Wait); 5] = [
        ("for ever", |ring| ring.enter(0, 1, IORING_ENTER_GETEVENTS)),
        ("for a while", |ring| for_a_while(ring, 0)),
        ("under a mask", |ring| for_a_while(ring, OWN)),
        ("with a timeout in flight", |ring| {
            let ts = sqe::millis(60_000);
            ring.push(sqe::timeout(&ts, 0, 0)).submit();
            for_a_while(ring, 0)
        }),
        ("beside another thread", |ring| {
            let ring = &*ring;
            let forever = || ring.enter(0, 1, IORING_ENTER_GETEVENTS);
            std::thread::scope(|s| {
                let other = s.spawn(forever);
                std::thread::sleep(Duration::from_millis(20));
                let ret = for_a_while(ring, 0);
                other.join().ok();
                ret
            })
        }),
    ];
    for (way, wait) in ways {
        let ended = signalled(cx, wait, &[libc::SIGSTOP, libc::SIGCONT]);
        cx.eq(&format!("{way}, stopped"), ended, EINTR);
        if !["for ever", "beside another thread"].contains(&way) {
            let ended = signalled(cx, wait, &[libc::SIGCHLD, libc::SIGWINCH, libc::SIGCONT]);
            cx.eq(&format!("{way}, ignored"), ended, ETIME);
        }
    }
    Ok(())
}
