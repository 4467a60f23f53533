//! Signal masks of waits that take no time, or find fewer completions than they ask for. A signal
//! that the mask lets in is handled all the same, and only a call that has to wait reads the mask,
//! so that an unreadable mask is no error before.

use super::prelude::*;
use super::wait::page_of_waits;

pub const CASES: &[Case] = &[
    case!("masks", expired_timeout, [Enter(IORING_ENTER_EXT_ARG)], "a wait with an expired time delivers the signals that its mask allows"),
    case!("masks", too_few_completions, [Enter(IORING_ENTER_EXT_ARG)], "a wait that finds fewer completions than asked for delivers signals, and returns 0"),
    any_order!("masks", min_wait, [Enter(IORING_ENTER_EXT_ARG)], "a minimal wait delivers the signals that its mask allows"),
    any_order!("masks", wait_region, [Enter(IORING_ENTER_EXT_ARG_REG)], "a wait from a registered region delivers the signals that its mask allows"),
    legal!("masks", unreadable, [Enter(IORING_ENTER_EXT_ARG)], "an unreadable mask is no error if enough completions are there"),
    case!("masks", enough_completions, [Enter(IORING_ENTER_EXT_ARG)], "no signal is delivered if enough completions are there, or come by the first poll"),
];

const EXT: u32 = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;

/// Rings whose waits take different paths.
const RINGS: [(&str, u32); 4] = [
    ("plain", 0),
    ("deferred", DEFER),
    ("flagged", IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG),
    ("SQ thread", IORING_SETUP_SQPOLL),
];

/// Timeouts that expire before anything is checked, or a moment later.
const TIMES: [(&str, i64, i64); 5] = [
    ("0", 0, 0),
    ("1 ns", 0, 1),
    ("-1 s", -1, 0),
    ("-1 ns", 0, -1),
    ("1 ms", 0, 1_000_000),
];

fn time(sec: i64, nsec: i64) -> kernel_timespec {
    kernel_timespec { tv_sec: sec, tv_nsec: nsec }
}

/// Raises a signal that only the mask of `wait` lets in, and records whether it was handled.
fn signalled(cx: &mut Cx, what: &str, wait: impl FnOnce() -> isize) {
    os::raise(libc::SIGUSR1);
    let before = os::caught();
    let answer = wait();
    cx.note_answer(what, answer);
    cx.note("handled", os::caught() - before);
    os::block(libc::SIGUSR1, false);
    os::block(libc::SIGUSR1, true);
}

/// Waits until one more completion is posted, even if the SQ thread had gone to sleep.
fn one_there(ring: &mut Ring) {
    let there = ring.cq_ready() + 1;
    ring.push(sqe::nop());
    ring.enter(1, there, IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP);
}

/// Returns an argument with a mask that lets all signals in.
fn under<'a>(mask: &'a u64, ts: &'a kernel_timespec) -> io_uring_getevents_arg {
    io_uring_getevents_arg {
        sigmask: addr(mask) as u64,
        sigmask_sz: 8,
        ts: addr(ts) as u64,
        ..Default::default()
    }
}

fn ready(cx: &mut Cx) {
    os::catch(libc::SIGUSR1, 0);
    os::block(libc::SIGUSR1, true);
    cx.note("handled", os::caught());
}

fn expired_timeout(cx: &mut Cx) -> Outcome {
    ready(cx);
    let mask = 0u64;
    for (name, flags) in RINGS {
        let ring = cx.ring(4, flags)?;
        for (of, sec, nsec) in TIMES {
            let ts = time(sec, nsec);
            signalled(cx, &format!("{name}, {of}"), || ring.enter_ext(0, 1, &under(&mask, &ts)));
            cx.note_answer("without a signal", ring.enter_ext(0, 1, &under(&mask, &ts)));
        }
        let past = time(1, 0);
        signalled(cx, &format!("{name}, a time that is past"), || {
            let arg = under(&mask, &past);
            ring.enter_raw(0, 1, EXT | IORING_ENTER_ABS_TIMER, addr(&arg), 24)
        });
        signalled(cx, &format!("{name}, for ever"), || {
            ring.enter_raw(0, 1, IORING_ENTER_GETEVENTS, addr(&mask), 8)
        });
        let (own, ts) = (os::mask_of(libc::SIGUSR1), time(0, 0));
        signalled(cx, &format!("{name}, blocked"), || ring.enter_ext(0, 1, &under(&own, &ts)));
        signalled(cx, &format!("{name}, without a mask"), || {
            let arg = io_uring_getevents_arg { ts: addr(&ts) as u64, ..Default::default() };
            ring.enter_ext(0, 1, &arg)
        });
    }
    Ok(())
}

fn too_few_completions(cx: &mut Cx) -> Outcome {
    ready(cx);
    let mask = 0u64;
    for (name, flags) in RINGS {
        let mut ring = cx.ring(4, flags)?;
        one_there(&mut ring);
        for (of, sec, nsec) in TIMES {
            let ts = time(sec, nsec);
            signalled(cx, &format!("{name}, {of}"), || ring.enter_ext(0, 2, &under(&mask, &ts)));
            cx.note_answer("without a signal", ring.enter_ext(0, 2, &under(&mask, &ts)));
        }
        signalled(cx, &format!("{name}, for ever"), || {
            ring.enter_raw(0, 2, IORING_ENTER_GETEVENTS, addr(&mask), 8)
        });
        ring.push(sqe::nop());
        let (arg, ts) = (EXT | IORING_ENTER_SQ_WAKEUP, time(0, 0));
        signalled(cx, &format!("{name}, submitted"), || {
            ring.enter_raw(1, 4, arg, addr(&under(&mask, &ts)), 24)
        });
        cx.spin(&ring, "there", 2);
    }
    Ok(())
}

fn min_wait(cx: &mut Cx) -> Outcome {
    ready(cx);
    let mask = 0u64;
    for (name, flags) in RINGS {
        let mut ring = cx.ring(4, flags)?;
        for there in 0..2 {
            for (of, sec, nsec) in TIMES {
                for min_wait_usec in [1, 2000] {
                    let ts = time(sec, nsec);
                    let arg = io_uring_getevents_arg { min_wait_usec, ..under(&mask, &ts) };
                    let what = format!("{name}, {there} there, {of}, at least {min_wait_usec} us");
                    signalled(cx, &what, || ring.enter_ext(0, 2, &arg));
                    cx.note_answer("without a signal", ring.enter_ext(0, 2, &arg));
                    let arg = io_uring_getevents_arg { ts: 0, ..arg };
                    signalled(cx, "without a time", || ring.enter_ext(0, 2, &arg));
                }
            }
            one_there(&mut ring);
        }
    }
    Ok(())
}

fn wait_region(cx: &mut Cx) -> Outcome {
    ready(cx);
    for (name, flags) in RINGS {
        let mut ring = cx.ring(4, flags | IORING_SETUP_R_DISABLED)?;
        let mut desc = io_uring_region_desc::default();
        let (base, region) = page_of_waits(&mut desc);
        cx.is("register", ring.register_slice(IORING_REGISTER_MEM_REGION, &[region]), 0);
        cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
        let mask = 0u64;
        let wait = |ts, sigmask, sigmask_sz| io_uring_reg_wait {
            ts,
            flags: IORING_REG_WAIT_TS,
            sigmask,
            sigmask_sz,
            ..Default::default()
        };
        let flags = EXT | IORING_ENTER_EXT_ARG_REG;
        for there in 0..2 {
            for (of, sec, nsec) in TIMES {
                os::store(base, &[wait(time(sec, nsec), addr(&mask) as u64, 8)]);
                let what = format!("{name}, {there} there, {of}");
                signalled(cx, &what, || ring.enter_raw(0, 2, flags, 0, 64));
                cx.note_answer("without a signal", ring.enter_raw(0, 2, flags, 0, 64));
            }
            os::store(base, &[wait(time(0, 0), BAD as u64, 8), wait(time(0, 0), 8, 4)]);
            for n in 0..3 {
                let what = format!("{name}, {there} there, unreadable, of {n}");
                signalled(cx, &what, || ring.enter_raw(0, n, flags, 0, 64));
                cx.note_answer("a size of 4", ring.enter_raw(0, n, flags, 64, 64));
            }
            one_there(&mut ring);
        }
    }
    Ok(())
}

/// Waits for `min` with unreadable masks.
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

fn enough_completions(cx: &mut Cx) -> Outcome {
    ready(cx);
    let (mask, now) = (0u64, time(0, 0));
    for (name, flags) in &RINGS[..3] {
        let mut ring = cx.ring(4, *flags)?;
        let (r, w) = cx.pipe()?;
        cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN)]);
        rustix::io::write(&w, b"x")?;
        signalled(cx, &format!("{name}, comes by the first poll"), || {
            ring.enter_ext(0, 1, &under(&mask, &now))
        });
        let unreadable = io_uring_getevents_arg { sigmask: BAD as u64, ..under(&mask, &now) };
        cx.note_answer("unreadable", ring.enter_ext(0, 1, &unreadable));
        cx.note("there", ring.cq_ready());
        let (r, w) = cx.pipe()?;
        cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN)]);
        rustix::io::write(&w, b"x")?;
        cx.note_answer("both come by the first poll", ring.enter_ext(0, 2, &unreadable));
        ring.pop_all();
        let (r, w) = cx.pipe()?;
        cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN)]);
        rustix::io::write(&w, b"x")?;
        let arg = io_uring_getevents_arg { ts: addr(&now) as u64, ..Default::default() };
        cx.note_answer("without a mask", ring.enter_ext(0, 1, &arg));
        ring.pop_all();
    }
    Ok(())
}
