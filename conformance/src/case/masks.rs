//! Signal masks of waits: one that cannot be read is looked at only by who has to wait.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("masks", unreadable, [Enter(IORING_ENTER_EXT_ARG)], "a mask that cannot be read is no error where enough is there"),
];

const EXT: u32 = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;

/// Rings whose waits go different ways.
const RINGS: [(&str, u32); 4] = [
    ("plain", 0),
    ("deferred", DEFER),
    ("flagged", IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG),
    ("SQ thread", IORING_SETUP_SQPOLL),
];

fn time(sec: i64, nsec: i64) -> kernel_timespec {
    kernel_timespec { tv_sec: sec, tv_nsec: nsec }
}

/// Has a signal wait that only `wait` lets in, and tells whether it came in.
fn signalled(cx: &mut Cx, what: &str, wait: impl FnOnce() -> isize) {
    os::raise(libc::SIGUSR1);
    let before = os::caught();
    let answer = wait();
    cx.note_answer(what, answer);
    cx.note("handled", os::caught() - before);
    os::block(libc::SIGUSR1, false);
    os::block(libc::SIGUSR1, true);
}

/// One more completion is there, also where the SQ thread had gone to sleep.
fn one_there(ring: &mut Ring) {
    let there = ring.cq_ready() + 1;
    ring.push(sqe::nop());
    ring.enter(1, there, IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP);
}

fn ready(cx: &mut Cx) {
    os::catch(libc::SIGUSR1, 0);
    os::block(libc::SIGUSR1, true);
    cx.note("handled", os::caught());
}

/// Waits for `min` with masks that cannot be read.
fn wait_unreadably(cx: &mut Cx, ring: &Ring, what: &str, min: u32) {
    for (of, at, size) in [("unmapped", BAD, 8), ("the kernel's", KERNEL, 8), ("short", 8, 4)] {
        let what = format!("{what}, for {min}, {of}");
        signalled(cx, &what, || ring.enter_raw(0, min, IORING_ENTER_GETEVENTS, at, size));
        let ts = time(0, 0);
        let arg = io_uring_getevents_arg {
            sigmask: at as u64,
            sigmask_sz: size as u32,
            ts: addr(&ts) as u64,
            ..Default::default()
        };
        signalled(cx, "as an argument", || ring.enter_ext(0, min, &arg));
        let bad_time = io_uring_getevents_arg { ts: BAD as u64, ..arg };
        signalled(cx, "and its time", || ring.enter_ext(0, min, &bad_time));
        cx.note_answer("of another size", ring.enter_raw(0, min, EXT, addr(&arg), 16));
    }
}

fn unreadable(cx: &mut Cx) -> Outcome {
    ready(cx);
    let polled = ("polled", IORING_SETUP_IOPOLL);
    for (name, flags) in RINGS.into_iter().chain([polled]) {
        let mut ring = cx.ring(4, flags)?;
        for there in 0..3 {
            for min in 0..3 {
                wait_unreadably(cx, &ring, &format!("{name}, {there} there"), min);
            }
            one_there(&mut ring);
        }
    }
    let ring = cx.ring(4, DEFER)?;
    let (fd, entry) = (ring.fd, cx.entry);
    let other = std::thread::spawn(move || {
        entry::enter(entry, fd, 0, 1, IORING_ENTER_GETEVENTS, BAD, 8)
    });
    cx.is("by another thread than the issuer", other.join().unwrap_or(0), -EEXIST);
    Ok(())
}
