//! Durations of waits, and the signals that end them: on the kernel, and on softring.

use super::Case;
use super::sys::*;
use libc::{EFAULT, EINTR, EINVAL, SIGALRM, SIGCHLD, SIGHUP, SIGUSR1};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("negative_times", negative_times),
    ("signals_by_mask", signals_by_mask),
    ("too_few_events", too_few_events),
    ("refused_under_a_mask", refused_under_a_mask),
    ("no_handler_no_eintr", no_handler_no_eintr),
    ("masked_sleep", masked_sleep),
    ("mask_in_handler", mask_in_handler),
    ("blocked_by_the_wait", blocked_by_the_wait),
];

/// Cases that only hold where the kernel gives contexts.
pub const KERNELS: &[Case] = &[("unreported_submit", unreported_submit)];

static HANDLED: AtomicU32 = AtomicU32::new(0);
/// Signals that the last handler has found blocked.
static FOUND: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    HANDLED.fetch_add(1, SeqCst);
    FOUND.store(blocked(), SeqCst);
}

fn blocked() -> u64 {
    let mut set = 0u64;
    // SAFETY: room for a mask.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, null_mut::<u64>(), &raw mut set, 8) };
    set
}

fn handle(signal: i32) {
    // SAFETY: zero is a valid sigaction; the handler is one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(signal, &raw const action, null_mut());
    }
}

fn block(signals: &[i32]) {
    let set = mask(signals);
    // SAFETY: eight bytes of a mask.
    let done =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, &raw const set, null_mut::<u64>(), 8) };
    assert_eq!(done, 0);
}

fn mask(signals: &[i32]) -> u64 {
    signals.iter().map(|s| 1 << (s - 1)).sum()
}

fn raise(signal: i32) {
    // SAFETY: the calling thread, with a signal that is handled, ignored or blocked.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal) };
}

/// Returns the processor time of the calling thread.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Calls `what` after `ms`, in another thread.
fn later<T: Send + 'static>(ms: u64, what: impl FnOnce() -> T + Send + 'static) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(ms));
        what()
    });
}

/// Sends SIGUSR1 to the calling thread, after `ms`.
fn raise_later(ms: u64) {
    // SAFETY: no arguments.
    let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
    // SAFETY: a thread that lives as long as its case.
    later(ms, move || unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, SIGUSR1) });
}

/// A thread waits on a fresh context, and the first submission bypasses every entry point.
fn unreported_submit() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let read = rw(PREAD, &file, buffer(1, 0), 0, 3);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| aio.wait(1, &mut [Event::default()], Some(10_000)));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(aio.submit_unreported(&[&read]), 1);
        assert_eq!(waiter.join().unwrap(), 1);
        let waiter = s.spawn(|| aio.wait(1, &mut [Event::default()], None));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(aio.submit_unreported(&[&read]), 1);
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

/// A negative time is for ever; if only one part is negative, the sum counts.
fn negative_times() {
    handle(SIGUSR1);
    let (aio, file) = (Aio::new(8), file(true, 1));
    let mut e = [Event::default(); 2];
    for submits in [false, true] {
        for forever in [[-1, 0], [0, -1], [-1, 999_999_999], [-10, 0]] {
            raise_later(30);
            assert_eq!(aio.wait_for(1, &mut e, forever), err(EINTR), "{forever:?}");
        }
        let begun = Instant::now();
        assert_eq!(aio.wait_for(1, &mut e, [-1, 1_030_000_000]), 0);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        if !submits {
            let read = rw(PREAD, &file, buffer(1, 0), 0, 0);
            assert_eq!((aio.submit(&[&read]), aio.all(1).len()), (1, 1));
        }
    }
}

/// Makes `check` find two events and a pending signal, again and again; passes it the count.
fn with_a_signal_pending(check: impl Fn(&Aio, u32)) {
    handle(SIGUSR1);
    block(&[SIGUSR1]);
    let (aio, file) = (Aio::new(8), file(true, 1));
    let read = rw(PREAD, &file, buffer(1, 0), 0, 0);
    for n in 1..=20 {
        assert_eq!(aio.submit(&[&read, &read]), 2);
        std::thread::sleep(Duration::from_millis(2));
        raise(SIGUSR1);
        check(&aio, n);
    }
}

/// A signal that the mask lets in is handled in each call, though there always are events.
fn signals_by_mask() {
    with_a_signal_pending(|aio, n| {
        assert_eq!(aio.pwait_under(1, &mut [Event::default()], None, mask(&[SIGUSR1])), 1);
        assert_eq!(HANDLED.load(SeqCst), n - 1);
        assert_eq!(aio.pwait_under(1, &mut [Event::default()], None, 0), 1);
        assert_eq!(HANDLED.load(SeqCst), n);
        // Without events, the signal is the answer.
        raise(SIGUSR1);
        assert_eq!(aio.pwait_under(0, &mut [Event::default()], Some([0, 0]), 0), err(EINTR));
        assert_eq!(HANDLED.swap(n, SeqCst), n + 1);
    });
}

/// A signal ends a wait that has found fewer events than it asks for; they are the answer.
fn too_few_events() {
    with_a_signal_pending(|aio, n| {
        let time = [None, Some([10, 0]), Some([0, 0])][n as usize % 3];
        assert_eq!(aio.pwait_under(4, &mut [Event::default(); 8], time, 0), 2, "{n}");
        assert_eq!(HANDLED.load(SeqCst), n);
    });
}

/// A wait that is refused once its mask is in force handles signals; one refused before does not.
fn refused_under_a_mask() {
    handle(SIGUSR1);
    block(&[SIGUSR1]);
    let aio = Aio::new(8);
    let nobodys = std::mem::ManuallyDrop::new(Aio(0x1234_0000));
    let mut e = [Event::default(); 2];
    let mut handled = 0;
    let mut refused = |what: &str, answer: &mut dyn FnMut() -> i64, errno, runs| {
        raise(SIGUSR1);
        assert_eq!(answer(), err(errno), "{what}");
        handled += runs;
        assert_eq!(HANDLED.load(SeqCst), handled, "{what}");
    };
    for time in [None, Some([0, 0]), Some([10, 0])] {
        refused("no context", &mut || nobodys.pwait_under(1, &mut e, time, 0), EINVAL, 1);
        refused("more than room", &mut || aio.pwait_under(3, &mut e, time, 0), EINVAL, 1);
        refused("negative", &mut || aio.pwait_under(-1, &mut e, time, 0), EINVAL, 1);
    }
    let (mask, now) = (0u64, [0i64; 2]);
    let (mask, now) = ((&raw const mask).expose_provenance(), now.as_ptr().expose_provenance());
    let (good, short, unreadable) = ([mask, 8], [mask, 4], [8, 8]);
    let [good, short, unreadable] =
        [&good, &short, &unreadable].map(|set| set.as_ptr().expose_provenance());
    for aio in [&aio, &nobodys] {
        for min in [-1, 0, 1, 3] {
            refused("time", &mut || aio.pwait_at(min, &mut e, 8, good), EFAULT, 0);
            refused("sigset", &mut || aio.pwait_at(min, &mut e, now, 8), EFAULT, 0);
            refused("size", &mut || aio.pwait_at(min, &mut e, now, short), EINVAL, 0);
            refused("mask", &mut || aio.pwait_at(min, &mut e, now, unreadable), EFAULT, 0);
        }
    }
}

/// A signal that nobody handles ends no wait, blocked or not.
fn no_handler_no_eintr() {
    handle(SIGUSR1);
    handle(SIGALRM);
    let (aio, file) = (Aio::new(8), file(true, 1));
    let read = rw(PREAD, &file, buffer(1, 0), 0, 0);
    let mut e = [Event::default(); 3];
    assert_eq!((aio.submit(&[&read]), aio.all(1).len()), (1, 1));
    for blocked in [false, true] {
        if blocked {
            block(&[SIGUSR1, SIGCHLD]);
        }
        for _ in 0..10 {
            // One event comes; the wait for three goes on. A signal that was blocked does end the
            // wait on the kernel if there is an event.
            let there = i64::from(!blocked);
            assert_eq!(aio.submit(&[&read][..there as usize]), there);
            raise(SIGCHLD);
            let time = Some([0, 20_000_000]);
            let begun = Instant::now();
            assert_eq!(aio.pwait_under(3, &mut e, time, 0), there);
            assert!(begun.elapsed() >= Duration::from_millis(20));
        }
        for n in 1..=10 {
            let before = HANDLED.load(SeqCst);
            raise_later(5);
            let interrupted = aio.pwait_under(1, &mut e, Some([10, 0]), 0);
            assert_eq!((interrupted, HANDLED.load(SeqCst)), (err(EINTR), before + 1), "{n}");
        }
    }
}

/// The wait's mask holds in a handler, and the program's own mask after it.
fn mask_in_handler() {
    handle(SIGUSR1);
    block(&[SIGHUP]);
    let aio = Aio::new(8);
    let mut e = [Event::default()];
    for under in [0, mask(&[SIGALRM]), mask(&[SIGHUP])] {
        for _ in 0..3 {
            raise_later(10);
            assert_eq!(aio.pwait_under(1, &mut e, Some([10, 0]), under), err(EINTR));
            assert_eq!(FOUND.load(SeqCst), under | mask(&[SIGUSR1]));
            assert_eq!(blocked(), mask(&[SIGHUP]));
        }
    }
}

/// A signal that the wait's mask blocks does not end the wait, whenever it comes.
fn blocked_by_the_wait() {
    static DONE: AtomicBool = AtomicBool::new(false);
    handle(SIGUSR1);
    let aio = Aio::new(8);
    // SAFETY: no arguments.
    let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
    let sender = std::thread::spawn(move || {
        while !DONE.load(SeqCst) {
            // SAFETY: a thread that waits for this one.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, SIGUSR1) };
            std::thread::sleep(Duration::from_micros(70));
        }
    });
    for _ in 0..1000 {
        let time = Some([0, 300_000]);
        assert_eq!(aio.pwait_under(1, &mut [Event::default()], time, mask(&[SIGUSR1])), 0);
    }
    DONE.store(true, SeqCst);
    sender.join().unwrap();
    assert!(HANDLED.load(SeqCst) > 100);
}

/// A sleep under a mask costs no processor time, and ends with an event.
fn masked_sleep() {
    let aio = Aio::new(8);
    let (reader, writer) = std::io::pipe().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let cb = Iocb { opcode: POLL, fd, buf: 1, data: 5, ..Iocb::default() };
    assert_eq!(aio.submit(&[&cb]), 1);
    let mut e = [Event::default()];
    let spent = cpu_time();
    assert_eq!(aio.pwait_under(1, &mut e, Some([0, 300_000_000]), 0), 0);
    let spent = cpu_time() - spent;
    assert!(spent < Duration::from_millis(4), "{spent:?}");
    later(30, move || std::io::Write::write_all(&mut { writer }, b"x"));
    assert_eq!(aio.pwait_under(1, &mut e, None, 0), 1);
    assert_eq!(e[0].data, 5);
}
