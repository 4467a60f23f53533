//! Waiting in `io_uring_enter(2)`: minimum, time-outs, signal masks, registered wait regions.

use super::prelude::*;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    any_order!("wait", ring_closed_during_wait, [Enter(IORING_ENTER_GETEVENTS)], "a wait continues after the ring's descriptor is closed"),
    case!("wait", min_complete, [Enter(IORING_ENTER_GETEVENTS)], "enter returns when min_complete completions are there"),
    case!("wait", min_more_than_cq, [], "min_complete is limited to the size of the CQ"),
    legal!("wait", nothing_to_wait_for, [], "without GETEVENTS min_complete has no effect"),
    case!("wait", zero_to_submit, [Trap("to_submit 0")], "to_submit 0 only waits"),
    case!("wait", count_despite_failed_wait, [Trap("submitted count")], "the submitted count is returned even if the wait fails"),
    any_order!("wait", spin_without_entering, [Trap("spin")], "completions appear to a program that never enters"),
    any_order!("wait", other_thread_wakes, [], "requests of another thread wake a waiter"),
    case!("wait", ext_arg_errors, [Enter(IORING_ENTER_EXT_ARG)], "size, pointers and mask size of the argument are checked"),
    case!("wait", ext_arg_timeout, [Enter(IORING_ENTER_EXT_ARG)], "a wait that times out fails with ETIME"),
    legal!("wait", ext_arg_satisfied, [Enter(IORING_ENTER_EXT_ARG)], "a satisfied wait ignores its time-out"),
    case!("wait", abs_timer, [Enter(IORING_ENTER_ABS_TIMER)], "ABS_TIMER: the time-out is a point in time"),
    legal!("wait", min_wait, [Enter(IORING_ENTER_EXT_ARG)], "after the minimal wait one completion suffices"),
    legal!("wait", min_wait_without_timeout, [Enter(IORING_ENTER_EXT_ARG)], "without a timeout the minimal wait is the whole wait; a shorter timeout waits for it"),
    case!("wait", eintr, [], "a handled signal ends a wait with EINTR"),
    case!("wait", sigmask, [], "the mask in the argument holds only during the wait"),
    case!("wait", sigmask_ext_arg, [Enter(IORING_ENTER_EXT_ARG)], "the mask in the extended argument holds only during the wait"),
    legal!("wait", wait_region, [Enter(IORING_ENTER_EXT_ARG_REG), Reg(IORING_REGISTER_MEM_REGION)], "waits described in a registered region"),
    case!("wait", last_region_entry, [Reg(IORING_REGISTER_MEM_REGION)], "the last wait of a region is treated as the first"),
    case!("wait", clock, [Reg(IORING_REGISTER_CLOCK)], "the clock of waits can be chosen"),
    legal!("wait", pipe_closed_during_wait, [], "closing the other end of a pipe completes the awaited poll"),
];

const EXT: u32 = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;

fn arg(ts: &kernel_timespec) -> io_uring_getevents_arg {
    io_uring_getevents_arg { ts: addr(ts) as u64, ..Default::default() }
}

fn min_complete(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let times = [sqe::millis(5), sqe::millis(10), sqe::millis(60_000)];
    for (ud, ts) in times.iter().enumerate() {
        ring.push(sqe::timeout(ts, 0, 0).ud(ud as u64));
    }
    cx.is("submit and wait for 2", ring.submit_wait(2), 3);
    cx.reap_in_order(&mut ring, "completions", &[(0, -ETIME), (1, -ETIME)]);
    cx.start(&mut ring, &[sqe::nop().ud(7), sqe::nop().ud(8)]);
    cx.is("wait for what is there", ring.enter(0, 2, IORING_ENTER_GETEVENTS), 0);
    cx.is("wait for less", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    cx.is("wait for none", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    cx.reap_in_order(&mut ring, "nops", &[(7, 0), (8, 0)]);
    Ok(())
}

fn min_more_than_cq(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    for lap in 0..2 {
        cx.start(&mut ring, &[sqe::nop().ud(lap), sqe::nop().ud(lap + 10)]);
    }
    cx.is("wait for 1000 of a CQ of 4", ring.enter(0, 1000, IORING_ENTER_GETEVENTS), 0);
    cx.reap_in_order(&mut ring, "nops", &[(0, 0), (10, 0), (1, 0), (11, 0)]);
    Ok(())
}

fn nothing_to_wait_for(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    cx.is("5 without GETEVENTS", ring.enter(0, 5, 0), 0);
    ring.push(sqe::nop().ud(1));
    cx.is("submit 1", ring.enter(1, 5, 0), 1);
    cx.reap(&mut ring, "nop", &[(1, 0)]);
    Ok(())
}

fn zero_to_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(10);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(1)]);
    // The queued NOP stays: the wait consumes nothing.
    ring.push(sqe::nop().ud(2));
    cx.is("wait", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    cx.is("left", ring.sq_ready(), 1);
    cx.reap(&mut ring, "timeout", &[(1, -ETIME)]);
    Ok(())
}

fn count_despite_failed_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let short = sqe::millis(5);
    ring.push(sqe::nop().ud(1)).push(sqe::nop().ud(2));
    cx.is("2, and a wait for 3 that runs out", ring.enter_ext(2, 3, &arg(&short)), 2);
    // With completions to be reaped the kernel does not regard the wait as failed.
    cx.is("0, and a wait for 3 that runs out", ring.enter_ext(0, 3, &arg(&short)), 0);
    ring.push(sqe::nop().ud(3));
    cx.is("1, and a bad argument", ring.enter_raw(1, 4, EXT, BAD, 24), 1);
    ring.push(sqe::nop().ud(4));
    cx.is("1, and a bad size", ring.enter_raw(1, 5, EXT, addr(&arg(&short)), 7), 1);
    cx.reap_in_order(&mut ring, "nops", &[(1, 0), (2, 0), (3, 0), (4, 0)]);
    Ok(())
}

fn spin_without_entering(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(10);
    let mut buf = [0u8; 4];
    ring.push(sqe::timeout(&ts, 0, 0).ud(1));
    ring.push(sqe::poll_add(w.as_raw_fd(), libc::POLLOUT).ud(2));
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(3));
    cx.is("submit", ring.submit(), 3);
    cx.spin(&ring, "timeout and poll", 2);
    rustix::io::write(&w, b"data")?;
    cx.spin(&ring, "and the read", 3);
    let mut got = ring.pop_all();
    got.sort();
    cx.completions("completions", &got, &[(1, -ETIME), (2, libc::POLLOUT.into()), (3, 4)]);
    Ok(())
}

fn other_thread_wakes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    ring.push(sqe::nop().ud(9));
    let (entry, fd) = (cx.entry, ring.fd);
    let submitter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        entry::enter(entry, fd, 1, 0, 0, 0, 0)
    });
    cx.is("wait", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    cx.is("there", ring.cq_ready(), 1);
    cx.is("submitted elsewhere", submitter.join().unwrap_or(0), 1);
    cx.reap(&mut ring, "nop", &[(9, 0)]);
    Ok(())
}

fn ext_arg_errors(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let ts = sqe::millis(1);
    let good = arg(&ts);
    let mut enter = |what: &str, a: usize, size: usize, want: i32| {
        let got = ring.enter_raw(0, 1, EXT, a, size);
        cx.is(what, got, want);
    };
    enter("good", addr(&good), 24, -ETIME);
    enter("size 0", addr(&good), 0, -EINVAL);
    enter("size 16", addr(&good), 16, -EINVAL);
    enter("size 32", addr(&good), 32, -EINVAL);
    enter("null", 0, 24, -EFAULT);
    enter("unmapped", BAD, 24, -EFAULT);
    enter("kernel", KERNEL, 24, -EFAULT);
    let bad_ts = io_uring_getevents_arg { ts: BAD as u64, ..good };
    enter("bad time-out", addr(&bad_ts), 24, -EFAULT);
    let bad_mask = io_uring_getevents_arg { sigmask: BAD as u64, sigmask_sz: 8, ..good };
    enter("bad mask", addr(&bad_mask), 24, -EFAULT);
    let mask = 0u64;
    let short = io_uring_getevents_arg { sigmask: addr(&mask) as u64, sigmask_sz: 4, ..good };
    enter("mask of 4 bytes", addr(&short), 24, -EINVAL);
    for (sec, nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
        let odd = kernel_timespec { tv_sec: sec, tv_nsec: nsec };
        let got = ring.enter_ext(0, 1, &arg(&odd));
        cx.note_answer(&format!("time-out {sec} {nsec}"), got);
    }
    cx.is("ignored without GETEVENTS", ring.enter_raw(0, 1, IORING_ENTER_EXT_ARG, BAD, 3), 0);
    let none = io_uring_getevents_arg::default();
    cx.is("nothing to wait for", ring.enter_ext(0, 0, &none), 0);
    Ok(())
}

fn ext_arg_timeout(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let start = Instant::now();
    let ts = sqe::millis(30);
    cx.is("30 ms", ring.enter_ext(0, 1, &arg(&ts)), -ETIME);
    let took = start.elapsed();
    cx.holds("not early", took >= Duration::from_millis(30));
    cx.holds("not long after", took < Duration::from_secs(2));
    let zero = sqe::millis(0);
    cx.is("no time", ring.enter_ext(0, 1, &arg(&zero)), -ETIME);
    Ok(())
}

fn ext_arg_satisfied(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(60_000);
    ring.push(sqe::nop().ud(1)).push(sqe::nop().ud(2));
    cx.is("submit and wait", ring.enter_ext(2, 2, &arg(&ts)), 2);
    let zero = sqe::millis(0);
    cx.is("wait for what is there", ring.enter_ext(0, 2, &arg(&zero)), 0);
    cx.reap(&mut ring, "nops", &[(1, 0), (2, 0)]);
    Ok(())
}

fn abs_timer(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let flags = EXT | IORING_ENTER_ABS_TIMER;
    let enter = |ts: &kernel_timespec| ring.enter_raw(0, 1, flags, addr(&arg(ts)), 24);
    let past = kernel_timespec { tv_sec: 1, tv_nsec: 0 };
    cx.is("in the past", enter(&past), -ETIME);
    let soon = sqe::in_millis(rustix::time::ClockId::Monotonic, 20);
    let start = Instant::now();
    cx.is("in 20 ms", enter(&soon), -ETIME);
    cx.holds("waited", start.elapsed() >= Duration::from_millis(15));
    cx.holds("not for long", start.elapsed() < Duration::from_secs(2));
    let got = ring.enter_raw(0, 0, IORING_ENTER_GETEVENTS | IORING_ENTER_ABS_TIMER, 0, 0);
    cx.note_answer("without an argument", got);
    Ok(())
}

fn min_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, DEFER)?;
    let long = sqe::millis(5_000);
    let wait = io_uring_getevents_arg { min_wait_usec: 20_000, ..arg(&long) };
    ring.push(sqe::nop().ud(1));
    let start = Instant::now();
    cx.is("1 there, 4 asked", ring.enter_ext(1, 4, &wait), 1);
    let took = start.elapsed();
    cx.holds("the minimum", took >= Duration::from_millis(15));
    cx.holds("not the time-out", took < Duration::from_secs(3));
    cx.reap(&mut ring, "nop", &[(1, 0)]);
    let short = sqe::millis(30);
    let wait = io_uring_getevents_arg { min_wait_usec: 5_000, ..arg(&short) };
    cx.is("nothing comes", ring.enter_ext(0, 4, &wait), -ETIME);
    Ok(())
}

fn min_wait_without_timeout(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(4, flags)?;
        let wait = io_uring_getevents_arg { min_wait_usec: 5_000, ..Default::default() };
        cx.is("nothing comes", ring.enter_ext(0, 2, &wait), -ETIME);
        ring.push(sqe::nop().ud(1));
        cx.is("1 there, 2 asked", ring.enter_ext(1, 2, &wait), 1);
        cx.reap(&mut ring, "nop", &[(1, 0)]);
        let soon = sqe::millis(5);
        let wait = io_uring_getevents_arg { min_wait_usec: 40_000, ..arg(&soon) };
        let start = Instant::now();
        cx.is("a shorter time-out", ring.enter_ext(0, 2, &wait), -ETIME);
        cx.holds("waits for the minimum", start.elapsed() >= Duration::from_millis(35));
    }
    Ok(())
}

fn eintr(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    os::catch(libc::SIGUSR1, 0);
    let sender = os::signal_me_after(libc::SIGUSR1, 30);
    cx.is("wait", ring.enter(0, 1, IORING_ENTER_GETEVENTS), -EINTR);
    cx.is("caught", os::caught(), 1);
    sender.join().ok();
    // SA_RESTART does not restart the wait.
    os::catch(libc::SIGUSR1, libc::SA_RESTART);
    let sender = os::signal_me_after(libc::SIGUSR1, 30);
    cx.is("with SA_RESTART", ring.enter(0, 1, IORING_ENTER_GETEVENTS), -EINTR);
    cx.is("caught", os::caught(), 2);
    sender.join().ok();
    Ok(())
}

/// Checks a signal that the program blocks and the wait's mask lets in, then the other way round.
fn with_mask(cx: &mut Cx, enter: impl Fn(&Ring, &u64, u32) -> isize) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    os::catch(libc::SIGUSR1, 0);
    os::block(libc::SIGUSR1, true);
    os::raise(libc::SIGUSR1);
    cx.is("blocked", os::caught(), 0);
    let empty = 0u64;
    cx.is("let in by the wait", enter(&ring, &empty, 1), -EINTR);
    cx.is("caught", os::caught(), 1);
    os::raise(libc::SIGUSR1);
    cx.is("blocked again", os::caught(), 1);
    os::block(libc::SIGUSR1, false);
    cx.is("then caught", os::caught(), 2);

    let full = os::mask_of(libc::SIGUSR1);
    let ts = sqe::millis(60);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(1)]);
    let sender = os::signal_me_after(libc::SIGUSR1, 10);
    cx.is("kept out by the wait", enter(&ring, &full, 1), 0);
    sender.join().ok();
    cx.is("caught after it", os::caught(), 3);
    os::block(libc::SIGUSR1, true);
    os::raise(libc::SIGUSR1);
    cx.is("with a completion there", enter(&ring, &empty, 1), 0);
    cx.is("it lets nothing in", os::caught(), 3);
    os::block(libc::SIGUSR1, false);
    cx.is("caught in the end", os::caught(), 4);
    cx.reap(&mut ring, "timeout", &[(1, -ETIME)]);
    Ok(())
}

fn sigmask(cx: &mut Cx) -> Outcome {
    let flags = IORING_ENTER_GETEVENTS;
    with_mask(cx, |ring, mask, min| ring.enter_raw(0, min, flags, addr(mask), 8))?;
    let ring = cx.ring(4, 0)?;
    let mask = 0u64;
    cx.is("size 4", ring.enter_raw(0, 1, flags, addr(&mask), 4), -EINVAL);
    cx.is("unmapped", ring.enter_raw(0, 1, flags, BAD, 8), -EFAULT);
    Ok(())
}

fn sigmask_ext_arg(cx: &mut Cx) -> Outcome {
    with_mask(cx, |ring, mask, min| {
        let sigmask = addr(mask) as u64;
        let arg = io_uring_getevents_arg { sigmask, sigmask_sz: 8, ..Default::default() };
        ring.enter_ext(0, min, &arg)
    })
}

/// Maps a page for waits; returns its address and the registration, which names `desc`.
pub(super) fn page_of_waits(desc: &mut io_uring_region_desc) -> (usize, io_uring_mem_region_reg) {
    let base = os::page(libc::PROT_READ | libc::PROT_WRITE);
    *desc = io_uring_region_desc {
        user_addr: base as u64,
        size: 4096,
        flags: IORING_MEM_REGION_TYPE_USER,
        ..Default::default()
    };
    let region = io_uring_mem_region_reg {
        region_uptr: addr_mut(desc) as u64,
        flags: IORING_MEM_REGION_REG_WAIT_ARG,
        ..Default::default()
    };
    (base, region)
}

fn wait_region(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    let mut desc = io_uring_region_desc::default();
    let (base, region) = page_of_waits(&mut desc);
    cx.is("register", ring.register_slice(IORING_REGISTER_MEM_REGION, &[region]), 0);
    cx.is("again", ring.register_slice(IORING_REGISTER_MEM_REGION, &[region]), -EBUSY);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    let wait = |ms: i64| io_uring_reg_wait {
        ts: sqe::millis(ms),
        flags: IORING_REG_WAIT_TS,
        ..Default::default()
    };
    os::store(base, &[wait(5), wait(60_000), io_uring_reg_wait { flags: 2, ..wait(5) }]);
    let flags = EXT | IORING_ENTER_EXT_ARG_REG;
    cx.is("first, runs out", ring.enter_raw(0, 1, flags, 0, 64), -ETIME);
    ring.push(sqe::nop().ud(1));
    cx.is("second, satisfied", ring.enter_raw(1, 1, flags, 64, 64), 1);
    cx.reap(&mut ring, "nop", &[(1, 0)]);
    let mut refused = |what: &str, offset: usize, size: usize, want: i32| {
        let got = ring.enter_raw(0, 1, flags, offset, size);
        cx.is(what, got, want);
    };
    refused("unknown flag", 128, 64, -EINVAL);
    refused("wrong size", 0, 24, -EINVAL);
    refused("not aligned", 4, 64, -EFAULT);
    refused("beyond the end", 4096, 64, -EFAULT);
    refused("half beyond the end", 4096 - 32, 64, -EFAULT);
    refused("huge", usize::MAX - 63, 64, -EFAULT);
    Ok(())
}

fn last_region_entry(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    let mut desc = io_uring_region_desc::default();
    let (base, region) = page_of_waits(&mut desc);
    cx.is("register", ring.register_slice(IORING_REGISTER_MEM_REGION, &[region]), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    let wait = |flags| io_uring_reg_wait { ts: sqe::millis(5), flags, ..Default::default() };
    let mut all = vec![wait(IORING_REG_WAIT_TS); 64];
    all[0].flags = 2;
    os::store(base, &all);
    let flags = EXT | IORING_ENTER_EXT_ARG_REG;
    cx.is("the last but one", ring.enter_raw(0, 1, flags, 62 * 64, 64), -ETIME);
    cx.is("the last is the first", ring.enter_raw(0, 1, flags, 63 * 64, 64), -EINVAL);
    Ok(())
}

fn clock(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let clock = |clockid: i32| io_uring_clock_register {
        clockid: clockid.cast_unsigned(),
        ..Default::default()
    };
    let set = |c: io_uring_clock_register| ring.register(IORING_REGISTER_CLOCK, addr(&c), 0);
    cx.is("boottime", set(clock(libc::CLOCK_BOOTTIME)), 0);
    let ts = sqe::millis(5);
    cx.is("wait by it", ring.enter_ext(0, 1, &arg(&ts)), -ETIME);
    cx.is("monotonic", set(clock(libc::CLOCK_MONOTONIC)), 0);
    cx.is("wait by it", ring.enter_ext(0, 1, &arg(&ts)), -ETIME);
    cx.is("realtime", set(clock(libc::CLOCK_REALTIME)), -EINVAL);
    cx.is("no clock", set(clock(99)), -EINVAL);
    cx.is("reserved", set(io_uring_clock_register { clockid: 1, resv: [1, 0, 0] }), -EINVAL);
    cx.registers(&ring, &[
        ("null", IORING_REGISTER_CLOCK, 0, 0, -EINVAL),
        ("unmapped", IORING_REGISTER_CLOCK, BAD, 0, -EFAULT),
        ("a count", IORING_REGISTER_CLOCK, addr(&clock(1)), 1, -EINVAL),
    ]);
    Ok(())
}

fn pipe_closed_during_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    drop(w);
    cx.reap(&mut ring, "poll", &[(1, libc::POLLHUP.into())]);
    Ok(())
}

fn ring_closed_during_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0u8; 4];
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(1));
    cx.is("submit", ring.submit(), 1);
    let idle_sleep = || std::thread::sleep(std::time::Duration::from_millis(20));
    let waited = std::thread::scope(|s| {
        let waiter = s.spawn(|| ring.enter(0, 1, IORING_ENTER_GETEVENTS));
        idle_sleep();
        entry::close(ring.calls, ring.fd);
        idle_sleep();
        let _ = rustix::io::write(&w, b"late");
        waiter.join()
    });
    cx.is("the wait", waited.unwrap_or(-1), 0);
    let got = ring.pop().map(|c| (c.user_data, c.res));
    cx.eq("its completion", got, Some((1, 4)));
    cx.is("the descriptor", ring.enter(0, 0, 0), -EBADF);
    ring.keep_fd();
    Ok(())
}
