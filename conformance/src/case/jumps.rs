//! Calls that never come back: a signal handler jumps out of them (siglongjmp), or their thread is
//! cancelled in them.
#![allow(unsafe_code)]

use super::prelude::*;
use crate::jump::{self, JUMPED};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("jumps", out_of_a_wait, [Trap("SIGSYS")], "a handler that jumps out of a wait leaves a ring that all can use"),
    case!("jumps", out_of_anything, [Trap("SIGSYS")], "so does one that jumps out of submissions, and nothing is lost"),
    case!("jumps", cancelled, [Trap("SIGSYS")], "so does a thread that is cancelled in enter at any time"),
];

const ROUNDS: u64 = 300;
/// Requests of a round: see [`push`].
const MANY: usize = 4;

static DOOR: AtomicU32 = AtomicU32::new(0);
/// A cancelled thread has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

fn keep_door(door: Door) {
    let at = Door::ALL.iter().position(|d| *d == door).unwrap_or(0);
    DOOR.store(at as u32, Ordering::Relaxed);
}

fn enter(fd: i32, submit: u32, min: u32) -> isize {
    let door = Door::ALL[DOOR.load(Ordering::Relaxed) as usize];
    door::enter(door, fd, submit, min, IORING_ENTER_GETEVENTS, 0, 0)
}

/// Waits for what never comes.
extern "C" fn wait(fd: i32) -> isize {
    jump::begin();
    let ret = enter(fd, 0, 1);
    jump::end();
    ret
}

/// Submits, waits for what comes, and then for more.
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

/// A thread is in `f` and is jumped in after a while; then it does `then`.
fn round<T: Send>(
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
                tid => os::signal_thread(tid, libc::SIGUSR2),
            }
        }
        thread.join().expect("no thread of a case panics")
    })
}

/// The next `n`, as user data and results; more than one signal may have been sent.
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

/// Is a NOP answered?
fn nop(ring: &mut Ring) -> bool {
    ring.push(sqe::nop().ud(9)).submit();
    take(ring, 1) == [(9, 0)]
}

fn out_of_a_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let mut byte = [0u8];
    keep_door(ring.door);
    os::handle(libc::SIGUSR2, jump::handler, libc::SA_NODEFER);
    let (mut jumped, mut here, mut there, mut read) = (0, 0, 0, 0);
    for n in 0..ROUNDS {
        let (fd, late) = (ring.fd, Duration::from_micros(7 * n % 400));
        // What waits makes the thread a driver; without it, it sleeps for others.
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

/// Submits nothing yet: what ends at once, what reads, and what a timer ends or a last NOP.
fn push(ring: &mut Ring, pipe: &OwnedFd, byte: &mut [u8], last: io_uring_sqe) {
    ring.push(sqe::nop().ud(1));
    ring.push(sqe::read(pipe.as_raw_fd(), byte, 0).ud(2));
    ring.push(sqe::nop().ud(3));
    ring.push(last.ud(4));
}

/// All of a round is there, once each, whoever submitted it.
fn all_there(ring: &mut Ring, last: i32) -> bool {
    while ring.sq_ready() > 0 {
        if ring.submit() < 0 {
            return false;
        }
    }
    take(ring, MANY) == [(1, 0), (2, 1), (3, 0), (4, last)] && ring.cq_ready() == 0
}

fn out_of_anything(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let (mut byte, soon) = ([0u8], kernel_timespec { tv_sec: 0, tv_nsec: 60_000 });
    keep_door(ring.door);
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

extern "C" fn cancellable(fd: *mut c_void) -> *mut c_void {
    let (fd, mut old) = (fd.addr() as i32, 0);
    // SAFETY: a live int. Nothing in this thread has anything to drop.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut old) };
    BEGUN.store(true, Ordering::Release);
    enter(fd, MANY as u32, MANY as u32);
    loop {
        enter(fd, 0, 2 * MANY as u32);
    }
}

/// Cancels a thread in enter after a while: was it?
fn cancel(fd: i32, late: Duration) -> bool {
    BEGUN.store(false, Ordering::Relaxed);
    // SAFETY: plain data; the thread takes a number, and is joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        let argument = std::ptr::without_provenance_mut(fd as usize);
        if libc::pthread_create(&raw mut thread, std::ptr::null(), cancellable, argument) != 0 {
            return false;
        }
        while !BEGUN.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        spin(late);
        let mut result = std::ptr::null_mut();
        libc::pthread_cancel(thread) == 0
            && libc::pthread_join(thread, &raw mut result) == 0
            && result.addr() == usize::MAX
    }
}

fn cancelled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (to_read, to_write) = cx.pipe()?;
    let mut byte = [0u8];
    keep_door(ring.door);
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
