//! Calls that never return: a signal handler jumps out of them (siglongjmp), or their thread is
//! cancelled in them.
#![allow(unsafe_code)]

use super::prelude::*;
use crate::jump::{self, JUMPED};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("jumps", longjmp_from_wait, [Trap("SIGSYS")], "a handler that jumps out of a wait leaves a ring that all can use"),
    any_order!("jumps", longjmp_from_submit, [Trap("SIGSYS")], "so does one that jumps out of submissions, and nothing is lost"),
    any_order!("jumps", thread_cancelled, [Trap("SIGSYS")], "so does a thread that is cancelled in enter at any time"),
    case!("jumps", own_handlers_shown, [], "a program sees and runs its own signal handlers"),
];

const ROUNDS: u64 = 300;
/// Number of requests of a round: see [`push`].
const MANY: usize = 4;

static ENTRY: AtomicU32 = AtomicU32::new(0);
/// Flag, set once a cancelled thread has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

pub(super) fn keep_entry(entry: EntryPoint) {
    let at = EntryPoint::ALL.iter().position(|d| *d == entry).unwrap_or(0);
    ENTRY.store(at as u32, Ordering::Relaxed);
}

fn enter(fd: i32, submit: u32, min: u32) -> isize {
    let entry = EntryPoint::ALL[ENTRY.load(Ordering::Relaxed) as usize];
    entry::enter(entry, fd, submit, min, IORING_ENTER_GETEVENTS, 0, 0)
}

/// Waits for a CQE that never comes.
pub(super) extern "C" fn wait(fd: i32) -> isize {
    jump::begin();
    let ret = enter(fd, 0, 1);
    jump::end();
    ret
}

/// Submits, waits for the CQEs of the round, and then for more.
extern "C" fn work(fd: i32) -> isize {
    jump::begin();
    enter(fd, MANY as u32, MANY as u32);
    let ret = enter(fd, 0, 2 * MANY as u32);
    jump::end();
    ret
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Runs `f` in a thread, jumps out of it by a signal after `late`, and then runs `then` there.
pub(super) fn round<T: Send>(
    f: extern "C" fn(i32) -> isize,
    fd: i32,
    late: Duration,
    then: impl FnOnce() -> T + Send,
) -> (isize, T) {
    let back = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let got = jump::call(f, fd);
            back.store(true, Ordering::Release);
            (got, then())
        });
        while jump::jumper() == 0 && !back.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        spin(late);
        while !back.load(Ordering::Acquire) {
            match jump::jumper() {
                0 => std::thread::yield_now(),
                tid => {
                    os::signal_thread(tid, libc::SIGUSR2);
                    // Without a pause signal frames would pile up until the stack is full, because
                    // the handler is installed with SA_NODEFER.
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
        thread.join().expect("no thread of a case panics")
    })
}

/// Takes the next `n` CQEs as user_data and results; more than one signal may have been sent.
fn take(ring: &mut Ring, n: usize) -> Vec<(u64, i32)> {
    let mut all = Vec::new();
    while all.len() < n {
        match ring.take(1) {
            Ok(got) => all.extend(got.iter().map(|c| (c.user_data, c.res))),
            Err(EINTR) => {}
            Err(_) => break,
        }
    }
    all.sort_unstable();
    all
}

/// Returns whether a NOP completes.
pub(super) fn nop(ring: &mut Ring) -> bool {
    ring.push(sqe::nop().ud(9)).submit();
    take(ring, 1) == [(9, 0)]
}

fn longjmp_from_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let mut byte = [0u8];
    keep_entry(ring.calls);
    os::handle(libc::SIGUSR2, jump::handler, libc::SA_NODEFER);
    let (mut jumped, mut here, mut there, mut read) = (0, 0, 0, 0);
    for n in 0..ROUNDS {
        let (fd, late) = (ring.fd, Duration::from_micros(7 * n % 400));
        // A read in flight makes the thread a driver; without a read it sleeps for other drivers.
        if n % 2 == 0 {
            ring.push(sqe::read(to_read.as_raw_fd(), &mut byte, 0).ud(7)).submit();
        }
        let (got, works) = round(wait, fd, late, || nop(&mut ring));
        jumped += u64::from(got == JUMPED);
        here += u64::from(works);
        there += u64::from(nop(&mut ring));
        if n % 2 == 0 {
            rustix::io::write(&to_write, b"x")?;
            read += u64::from(take(&mut ring, 1) == [(7, 1)]);
        }
    }
    cx.eq("calls left by a jump", jumped, ROUNDS);
    cx.eq("the same thread goes on", here, ROUNDS);
    cx.eq("another one, too", there, ROUNDS);
    cx.eq("what was in flight completes", read, ROUNDS / 2);
    ends_soon(cx, ring);
    Ok(())
}

fn ends_soon(cx: &mut Cx, ring: Ring) {
    let began = Instant::now();
    drop(ring);
    cx.holds("the ring closes at once", began.elapsed() < Duration::from_secs(1));
}

/// Queues a round: a NOP, a read, a NOP, and `last` (a timeout or a NOP). Submits nothing.
fn push(ring: &mut Ring, pipe: &OwnedFd, byte: &mut [u8], last: io_uring_sqe) {
    ring.push(sqe::nop().ud(1));
    ring.push(sqe::read(pipe.as_raw_fd(), byte, 0).ud(2));
    ring.push(sqe::nop().ud(3));
    ring.push(last.ud(4));
}

/// Submits the rest and returns whether each CQE of a round is there once, whoever submitted it.
fn all_there(ring: &mut Ring, last: i32) -> bool {
    while ring.sq_ready() > 0 {
        if ring.submit() < 0 {
            return false;
        }
    }
    take(ring, MANY) == [(1, 0), (2, 1), (3, 0), (4, last)] && ring.cq_ready() == 0
}

fn longjmp_from_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let (mut byte, soon) = ([0u8], kernel_timespec { tv_sec: 0, tv_nsec: 60_000 });
    keep_entry(ring.calls);
    os::handle(libc::SIGUSR2, jump::handler, libc::SA_NODEFER);
    let (mut jumped, mut whole, mut there) = (0, 0, 0);
    for n in 0..ROUNDS {
        rustix::io::write(&to_write, b"x")?;
        push(&mut ring, &to_read, &mut byte, sqe::timeout(&soon, 0, 0));
        let (fd, late) = (ring.fd, Duration::from_nanos(1_013 * n % 130_000));
        let (got, works) = round(work, fd, late, || all_there(&mut ring, -ETIME));
        jumped += u64::from(got == JUMPED);
        whole += u64::from(works);
        there += u64::from(nop(&mut ring));
    }
    cx.eq("calls left by a jump", jumped, ROUNDS);
    cx.eq("nothing is lost or doubled", whole, ROUNDS);
    cx.eq("another thread uses the ring", there, ROUNDS);
    ends_soon(cx, ring);
    Ok(())
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}
const PTHREAD_CANCEL_ASYNCHRONOUS: i32 = 1;

extern "C-unwind" fn cancellable(fd: *mut c_void) -> *mut c_void {
    let (fd, mut old) = (fd.addr() as i32, 0);
    // SAFETY: `old` is a live int. This thread has nothing to drop.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut old) };
    BEGUN.store(true, Ordering::Release);
    enter(fd, MANY as u32, MANY as u32);
    loop {
        enter(fd, 0, 2 * MANY as u32);
    }
}

/// Cancels a thread in enter after `late`; returns whether it was cancelled.
fn cancel(fd: i32, late: Duration) -> bool {
    BEGUN.store(false, Ordering::Relaxed);
    os::cancel(cancellable, fd as usize, || {
        while !BEGUN.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        spin(late);
    })
}

fn thread_cancelled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let mut byte = [0u8];
    keep_entry(ring.calls);
    let (mut ended, mut whole) = (0, 0);
    for n in 0..ROUNDS {
        rustix::io::write(&to_write, b"x")?;
        push(&mut ring, &to_read, &mut byte, sqe::nop());
        ended += u64::from(cancel(ring.fd, Duration::from_nanos(317 * n % 70_000)));
        whole += u64::from(all_there(&mut ring, 0));
    }
    cx.eq("threads cancelled", ended, ROUNDS);
    cx.eq("nothing is lost or doubled", whole, ROUNDS);
    ends_soon(cx, ring);
    Ok(())
}

/// Arguments of a handler: signal, code, value, and the signals that are blocked in it.
static PASSED: [AtomicI32; 4] = [const { AtomicI32::new(0) }; 4];

extern "C" fn informed(signal: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    let mut blocked = 0u64;
    // SAFETY: `info` is the kernel's structure; `blocked` is this frame's own set.
    let (code, value) = unsafe {
        let set = std::ptr::null::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, set, &raw mut blocked, 8);
        ((*info).si_code, (*info).si_value().sival_ptr.addr() as i32)
    };
    // Signals 1 to 12 are enough.
    let all = [signal, code, value, (blocked & 0xfff) as i32];
    PASSED.iter().zip(all).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
}

fn action(signal: i32, new: Option<libc::sigaction>) -> libc::sigaction {
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: zero is a valid action; both are live.
    unsafe {
        let mut old = std::mem::zeroed();
        libc::sigaction(signal, new, &raw mut old);
        old
    }
}

/// Returns signals 1 to 12 of a set.
fn first_signals(set: &libc::sigset_t) -> i32 {
    // SAFETY: a whole set.
    let has = |n| unsafe { libc::sigismember(set, n) } == 1;
    (1..=12).filter(|&n| has(n)).map(|n| 1 << (n - 1)).sum()
}

fn tell(cx: &mut Cx, what: &str, act: &libc::sigaction, ours: usize) {
    let of = ["default", "ignore"].get(act.sa_sigaction).copied();
    let handler = of.unwrap_or(if act.sa_sigaction == ours { "ours" } else { "another" });
    // SA_RESTORER is left out: the C library adds it.
    let flags = act.sa_flags & !0x0400_0000;
    let mask = first_signals(&act.sa_mask);
    cx.note(what, format_args!("{handler}, flags {flags:#x}, mask {mask:#x}"));
}

/// Ends a wait by a signal with a value; records the handler's arguments.
fn value_in_a_wait(cx: &mut Cx, ring: &Ring, value: usize) {
    // SAFETY: no memory involved.
    let me = unsafe { libc::getpid() };
    let sender = std::thread::spawn(move || {
        os::block(libc::SIGUSR1, true);
        std::thread::sleep(Duration::from_millis(20));
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
        // SAFETY: no memory involved.
        unsafe { libc::sigqueue(me, libc::SIGUSR1, value) };
    });
    cx.is("a wait", ring.enter(0, 1, IORING_ENTER_GETEVENTS), -EINTR);
    sender.join().ok();
    let passed: Vec<_> = PASSED.iter().map(|p| p.swap(0, Ordering::Relaxed)).collect();
    cx.note("passed", format_args!("{passed:?}"));
}

fn own_handlers_shown(cx: &mut Cx) -> Outcome {
    let informed = informed as *const () as usize;
    // SAFETY: zero is a valid action; a whole set.
    let mut wanted: libc::sigaction = unsafe { std::mem::zeroed() };
    wanted.sa_sigaction = informed;
    wanted.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: as above.
    unsafe { libc::sigaddset(&raw mut wanted.sa_mask, libc::SIGHUP) };
    action(libc::SIGUSR1, Some(wanted));
    os::catch(libc::SIGUSR2, libc::SA_NODEFER);
    let ring = cx.ring(4, 0)?;
    tell(cx, "one from before the ring", &action(libc::SIGUSR1, None), informed);
    let counts = action(libc::SIGUSR2, None);
    tell(cx, "one without SA_SIGINFO", &counts, informed);
    value_in_a_wait(cx, &ring, 4711);
    wanted.sa_flags |= libc::SA_RESETHAND;
    tell(cx, "replaced by one for once", &action(libc::SIGUSR1, Some(wanted)), informed);
    value_in_a_wait(cx, &ring, 815);
    tell(cx, "and then", &action(libc::SIGUSR1, Some(counts)), informed);
    // SAFETY: the handler is the program's.
    let before = unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    cx.holds("signal(2) answers the handler", before == counts.sa_sigaction);
    // SAFETY: as above.
    let before = unsafe { libc::signal(libc::SIGUSR1, counts.sa_sigaction) };
    cx.holds("and that it is ignored", before == libc::SIG_IGN);
    tell(cx, "by signal(2)", &action(libc::SIGUSR1, Some(wanted)), counts.sa_sigaction);
    action(libc::SIGUSR1, Some(wanted));
    os::block(libc::SIGUSR1, true);
    under_a_mask(cx, &ring, 42);
    os::block(libc::SIGUSR1, false);
    Ok(())
}

/// Ends a wait by a signal that only the wait's own mask lets through.
fn under_a_mask(cx: &mut Cx, ring: &Ring, value: usize) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
    // SAFETY: no memory involved.
    unsafe { libc::sigqueue(libc::getpid(), libc::SIGUSR1, value) };
    let mask = os::mask_of(libc::SIGINT);
    let (flags, at) = (IORING_ENTER_GETEVENTS, addr(&mask));
    cx.is("a wait under a mask", ring.enter_raw(0, 1, flags, at, 8), -EINTR);
    let passed: Vec<_> = PASSED.iter().map(|p| p.swap(0, Ordering::Relaxed)).collect();
    cx.note("passed", format_args!("{passed:?}"));
}
