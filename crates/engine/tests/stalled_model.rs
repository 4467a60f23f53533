//! Devices that stall for a second: whoever waits for one, or polls it, gives the processor up.
#![allow(unsafe_code)]

mod client;
mod direct;

use std::fs::File;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use client::Client;
use direct::{BLOCK, Block, file_in, read};
use softring_engine::abi::*;
use softring_engine::transport::model::{self, parse};
use softring_engine::{fds, syscall};

const STALL: Duration = Duration::from_millis(1000);
const HYBRID: u32 = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
const DEFER: u32 = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER;

/// One test at a time: each counts what the whole process uses.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file on a device that takes so long: `1s`, `1ms`.
fn file(time: &str) -> Option<File> {
    static ONCE: Once = Once::new();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("stalled_model");
    ONCE.call_once(|| {
        let made = ["1s", "1ms"].map(|time| {
            let folder = folder.join(time);
            std::fs::create_dir_all(&folder).unwrap();
            parse::model(format!("{}=latency:{time}", folder.display()).as_ref()).unwrap()
        });
        model::set(made.into());
        fds::closes_are_reported();
    });
    file_in(&folder.join(time), 4)
}

/// What the process has used so far.
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

    /// Since then a device has stalled, and nobody has used much.
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

fn ring(flags: u32) -> Client {
    Client::new(8, flags)
}

/// Submits one, and waits until its completion is there.
fn one(c: &Client, sqe: io_uring_sqe) {
    c.push(sqe);
    assert_eq!(c.enter(1, 1), 1);
    let cqe = c.pop().expect("it waits for one");
    assert_eq!((cqe.user_data, cqe.res), (sqe.user_data, BLOCK as i32));
}

#[test]
fn who_enters_a_polled_ring_sleeps_until_the_device_is_done() {
    let (_alone, Some(f)) = (alone(), file("1s")) else { return };
    for flags in [IORING_SETUP_IOPOLL, HYBRID, IORING_SETUP_IOPOLL | DEFER, HYBRID | DEFER] {
        let c = ring(flags);
        let mut to = Block([0xff; BLOCK]);
        let used = Used::now();
        one(&c, read(&f, &mut to, 1, 1));
        used.is_little(100, 100, &format!("{flags:#x}"));
    }
}

/// What another thread submits meanwhile, to a quick device, ends the sleep.
#[test]
fn a_sleep_for_a_slow_device_ends_for_a_quick_one() {
    let (_alone, Some(slow), Some(quick)) = (alone(), file("1s"), file("1ms")) else { return };
    let c = ring(IORING_SETUP_IOPOLL);
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
