//! Devices that stall for a second: a thread that waits for one, or polls it, gives the processor
//! up.
#![allow(unsafe_code)]

mod client;
mod direct;
mod modelled;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Client, sqe};
use direct::{BLOCK, Block, read};
use softring_engine::syscall;
use softring_uapi::*;

const STALL: Duration = Duration::from_millis(1000);
const SQ: u32 = IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL;
const HYBRID: u32 = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
const DEFER: u32 = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER;

/// Lets one test run at a time: each counts the time of the whole process.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a file on a device that takes so long: `1s`, `1ms`.
fn file(time: &str) -> Option<File> {
    modelled::file("stalled_model", &["1s", "1ms"], time, 4)
}

/// Time and sleeps that the process has used so far.
#[derive(Clone, Copy)]
struct Used {
    cpu: Duration,
    sleeps: i64,
    at: Instant,
}

impl Used {
    fn now() -> Used {
        // SAFETY: zero is a valid rusage, which is ours.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        let cpu = time(usage.ru_utime) + time(usage.ru_stime);
        Used { cpu, sleeps: usage.ru_nvcsw, at: Instant::now() }
    }

    /// Checks that a device has stalled since then, and that little time was used.
    fn is_little(self, cpu_ms: u64, sleeps: i64, what: &str) {
        let now = Used::now();
        let (cpu, slept) = (now.cpu - self.cpu, now.sleeps - self.sleeps);
        println!("{what}: {cpu:?}, {slept} sleeps");
        let took = self.at.elapsed();
        assert!(took >= STALL && took < STALL + Duration::from_millis(300), "{what}: {took:?}");
        assert!(cpu < Duration::from_millis(cpu_ms), "{what}: {cpu:?} of processor time");
        assert!(slept < sleeps, "{what}: {slept} sleeps");
    }
}

fn ring(flags: u32, attach: Option<&Client>) -> Client {
    let attaches = if attach.is_some() { IORING_SETUP_ATTACH_WQ } else { 0 };
    Client::with(io_uring_params {
        flags: flags | attaches,
        sq_entries: 8,
        sq_thread_idle: 20,
        wq_fd: attach.map_or(0, |c| c.fd).cast_unsigned(),
        ..Default::default()
    })
}

fn wakeup(flags: u32) -> u32 {
    if flags & IORING_SETUP_SQPOLL == 0 { 0 } else { IORING_ENTER_SQ_WAKEUP }
}

/// Submits one request, and waits until its completion is there.
fn one(c: &Client, flags: u32, sqe: io_uring_sqe) {
    c.push(sqe);
    let how = IORING_ENTER_GETEVENTS | wakeup(flags);
    assert_eq!(syscall::enter(c.fd, 1, 1, how, 0, 8), 1);
    let cqe = c.pop().expect("it waits for one");
    assert_eq!((cqe.user_data, cqe.res), (sqe.user_data, BLOCK as i32));
}

/// Reads one block of a slow device. Returns what was used before.
fn waits(c: &Client, flags: u32, f: &File) -> Used {
    let mut to = Block([0xff; BLOCK]);
    let used = Used::now();
    one(c, flags, read(f, &mut to, 1, 1));
    used
}

#[test]
fn a_waiter_of_a_polled_ring_sleeps_until_the_device_is_done() {
    let (_guard, Some(f)) = (one_at_a_time(), file("1s")) else { return };
    for flags in [IORING_SETUP_IOPOLL, HYBRID, IORING_SETUP_IOPOLL | DEFER, HYBRID | DEFER] {
        waits(&ring(flags, None), flags, &f).is_little(100, 100, &format!("{flags:#x}"));
    }
}

/// A request that another thread submits meanwhile to a quick device ends the sleep.
#[test]
fn a_sleep_for_a_slow_device_ends_for_a_quick_one() {
    let (_guard, Some(slow), Some(quick)) = (one_at_a_time(), file("1s"), file("1ms")) else {
        return;
    };
    let c = ring(IORING_SETUP_IOPOLL, None);
    let mut to = vec![Block([0xff; BLOCK]); 2];
    let [slow_to, quick_to] = &mut to[..] else { unreachable!() };
    let (first, second) = (read(&slow, slow_to, 1, 1), read(&quick, quick_to, 2, 2));
    c.push(first);
    assert_eq!(c.enter(1, 0), 1);
    let begun = Instant::now();
    let fd = c.fd;
    std::thread::scope(|s| {
        let waiter = s.spawn(move || {
            assert_eq!(syscall::enter(fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 8), 0);
            begun.elapsed()
        });
        std::thread::sleep(STALL / 4);
        c.push(second);
        assert_eq!(syscall::enter(c.fd, 1, 0, 0, 0, 8), 1);
        let waited = waiter.join().unwrap();
        assert!(waited >= STALL / 4 && waited < STALL / 2, "{waited:?}");
    });
    assert_eq!(c.pop().map(|cqe| cqe.user_data), Some(2));
    assert_eq!(c.enter(0, 1), 0);
    assert_eq!(c.pop().map(|cqe| cqe.user_data), Some(1));
}

#[test]
fn an_sq_thread_sleeps_until_the_device_is_done() {
    let (_guard, Some(f)) = (one_at_a_time(), file("1s")) else { return };
    for flags in [SQ, SQ | HYBRID] {
        // The thread spins, and pauses, for the 20 ms of its idle time.
        waits(&ring(flags, None), flags, &f).is_little(150, 150, &format!("{flags:#x}"));
    }
}

/// Within its idle time the thread polls less and less often.
#[test]
fn an_sq_thread_that_is_not_idle_for_long_enough_pauses() {
    let (_guard, Some(f)) = (one_at_a_time(), file("1s")) else { return };
    let c = Client::with(io_uring_params {
        flags: SQ,
        sq_entries: 8,
        sq_thread_idle: 10_000,
        ..Default::default()
    });
    waits(&c, SQ, &f).is_little(250, 1300, "pauses");
}

/// Submissions, closes and rings that come to it end the sleep of an SQ thread.
#[test]
fn an_sq_thread_that_sleeps_for_a_device_sees_other_events() {
    let (_guard, Some(slow), Some(quick)) = (one_at_a_time(), file("1s"), file("1ms")) else {
        return;
    };
    let (a, mut to) = (ring(SQ, None), vec![Block([0xff; BLOCK]); 2]);
    let [slow_to, quick_to] = &mut to[..] else { unreachable!() };
    let begun = Instant::now();
    a.push(read(&slow, slow_to, 1, 1));
    assert_eq!(syscall::enter(a.fd, 1, 0, IORING_ENTER_SQ_WAKEUP, 0, 8), 1);
    while a.sq_flags() & IORING_SQ_NEED_WAKEUP == 0 {
        assert!(begun.elapsed() < STALL / 2, "it asks to be woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    one(&a, SQ, read(&quick, quick_to, 2, 2));
    let b = ring(SQ, Some(&a));
    std::thread::sleep(Duration::from_millis(50));
    one(&b, SQ, read(&quick, quick_to, 3, 3));
    std::thread::sleep(Duration::from_millis(50));
    drop(b);
    assert!(begun.elapsed() < STALL, "{:?}", begun.elapsed());
    assert_eq!(a.watch(1).pop().map(|cqe| cqe.user_data), Some(1));
}

/// A pipe of a ring that is not polled, and shares the thread, is not forgotten.
#[test]
fn an_sq_thread_that_waits_for_a_device_and_a_pipe() {
    let (_guard, Some(slow)) = (one_at_a_time(), file("1s")) else { return };
    let a = ring(SQ, None);
    let b = ring(IORING_SETUP_SQPOLL, Some(&a));
    let (r, w) = rustix::pipe::pipe().unwrap();
    let (mut to, mut byte) = (vec![Block([0xff; BLOCK])], [0u8]);
    let at = byte.as_mut_ptr().expose_provenance() as u64;
    let fd = r.as_raw_fd();
    b.push(io_uring_sqe { fd, addr: at, len: 1, off: u64::MAX, ..sqe(IORING_OP_READ, 7) });
    a.push(read(&slow, &mut to[0], 1, 1));
    for c in [&a, &b] {
        assert_eq!(syscall::enter(c.fd, 1, 0, IORING_ENTER_SQ_WAKEUP, 0, 8), 1);
    }
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    rustix::io::write(&w, b"x").unwrap();
    assert_eq!(b.watch(1).pop().map(|cqe| (cqe.user_data, cqe.res)), Some((7, 1)));
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(a.watch(1).pop().map(|cqe| cqe.user_data), Some(1));
}
