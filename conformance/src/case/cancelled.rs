//! Threads that are cancelled (pthread_cancel(3)) while they sleep in their own poll, with a ring
//! among the files: the sleep ends at once.
#![allow(unsafe_code)]

use super::prelude::*;
use rustix::event::EventfdFlags;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("cancelled", in_polls, [Op(IORING_OP_READ)], "pthread_cancel ends each wait of a thread for a ring, or for its eventfd"),
];

/// Time after which a wait ends by itself, in ms.
const LONG: i32 = 5000;
const WAITS: [&str; 5] = ["poll", "ppoll", "ppoll with a mask", "epoll_wait", "epoll_pwait"];

/// Descriptor to wait for, set to wait on, and number of the wait.
static WAIT: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];

extern "C-unwind" fn waits(_: *mut c_void) -> *mut c_void {
    let [fd, set, which] = [0, 1, 2].map(|at| WAIT[at].load(SeqCst));
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let long = libc::timespec { tv_sec: i64::from(LONG / 1000), tv_nsec: 0 };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: what the calls read and write lives in this frame, which has nothing to drop.
    unsafe {
        let mut mask = core::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        match which {
            0 => libc::poll(&raw mut entry, 1, LONG),
            1 => libc::ppoll(&raw mut entry, 1, &raw const long, std::ptr::null()),
            2 => libc::ppoll(&raw mut entry, 1, &raw const long, &raw const mask),
            3 => libc::epoll_wait(set, &raw mut event, 1, LONG),
            _ => libc::epoll_pwait(set, &raw mut event, 1, LONG, &raw const mask),
        };
    }
    std::ptr::null_mut()
}

/// Cancels a thread in its wait, `late` after it began; returns whether it was cancelled, and soon.
fn cancelled(late: Duration) -> (bool, bool) {
    let mut began = None;
    let done = os::cancel(waits, 0, || {
        std::thread::sleep(late);
        began = Some(Instant::now());
    });
    let soon = began.is_some_and(|at| at.elapsed() < Duration::from_millis(LONG as u64 / 2));
    (done, soon)
}

fn in_polls(cx: &mut Cx) -> Outcome {
    for by_eventfd in [false, true] {
        let mut ring = cx.ring(4, 0)?;
        let (r, w) = cx.pipe()?;
        let event = rustix::event::eventfd(0, EventfdFlags::empty())?;
        let fd = if by_eventfd { event.as_raw_fd() } else { ring.fd };
        if by_eventfd {
            let number = fd;
            cx.is("register", ring.register(IORING_REGISTER_EVENTFD, addr(&number), 1), 0);
        }
        let mut buf = [0; 1];
        for (which, name) in (0..).zip(WAITS) {
            for late in [0, 60] {
                let set = crate::poll_shapes::Set::with(crate::poll_shapes::Shape::Level, fd)?;
                let what = [fd, set.0.as_raw_fd(), which];
                WAIT.iter().zip(what).for_each(|(word, n)| word.store(n, SeqCst));
                cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
                let got = cancelled(Duration::from_millis(late));
                let label = format!("{name}, eventfd: {by_eventfd}, after {late} ms");
                cx.eq(&label, got, (true, true));
                rustix::io::write(&w, b"x")?;
                cx.reap(&mut ring, "the ring works", &[(1, 1)]);
                if by_eventfd {
                    rustix::io::read(&event, &mut [0; 8])?;
                }
            }
        }
    }
    Ok(())
}
