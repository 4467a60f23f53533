//! SQPOLL: a thread submits, so the program need not enter.

use super::prelude::*;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    legal!("sqpoll", without_entering, [Setup(IORING_SETUP_SQPOLL)], "an SQ thread serves a program that only stores and polls"),
    any_order!("sqpoll", every_request_kind, [Setup(IORING_SETUP_SQPOLL)], "files, pipes, timeouts, links, drains and cancels work without entering"),
    legal!("sqpoll", sleeps, [Enter(IORING_ENTER_SQ_WAKEUP), Trap("NEED_WAKEUP")], "an idle thread asks to be woken, and is"),
    case!("sqpoll", enter_returns_at_once, [Enter(IORING_ENTER_SQ_WAIT)], "enter returns to_submit at once"),
    legal!("sqpoll", room_after_sq_wait, [Enter(IORING_ENTER_SQ_WAIT)], "after SQ_WAIT the program sees room, however long the thread's batch takes"),
    legal!("sqpoll", waits_for_room, [Enter(IORING_ENTER_SQ_WAIT)], "SQ_WAIT returns when there is room"),
    any_order!("sqpoll", waits_for_cqes, [Setup(IORING_SETUP_SQPOLL)], "GETEVENTS waits for completions of the SQ thread"),
    case!("sqpoll", affinity, [Setup(IORING_SETUP_SQ_AFF)], "the CPU of the SQ thread must exist"),
    legal!("sqpoll", attached, [Setup(IORING_SETUP_ATTACH_WQ)], "rings share one SQ thread"),
    legal!("sqpoll", flags, [Setup(IORING_SETUP_SQPOLL)], "set-up flags that SQPOLL allows"),
    legal!("sqpoll", disabled, [Setup(IORING_SETUP_R_DISABLED)], "the SQ thread serves a disabled ring once it is enabled"),
    case!("sqpoll", overflows, [Setup(IORING_SETUP_SQPOLL)], "overflow is reported and flushed"),
    case!("sqpoll", thread_name, [Setup(IORING_SETUP_SQPOLL)], "the SQ thread has the process's name, and ends with the ring"),
    legal!("sqpoll", closed_while_busy, [Setup(IORING_SETUP_SQPOLL)], "a ring may be closed while its SQ thread works"),
    legal!("sqpoll", forked_children, [Trap("fork")], "the parent's thread serves its forked children"),
    legal!("sqpoll", interrupted, [Setup(IORING_SETUP_SQPOLL)], "an SQ thread that sleeps in a request is interrupted, whoever made the request"),
    any_order!("sqpoll", register_while_running, [Setup(IORING_SETUP_SQPOLL)], "files and buffers are registered while the SQ thread runs"),
];

/// Milliseconds without work after which the thread sleeps.
const IDLE: u32 = 20;

fn interrupted(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 8, 0)?;
    let word = super::futex::Word::new(3);
    assert!(ring.try_push(super::futex::wait_on(&word, 3).ud(1)));
    go(&ring);
    cx.quiet(&ring, "it waits", 20);
    let mut all = io_uring_sync_cancel_reg {
        flags: IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL,
        timeout: kernel_timespec { tv_sec: -1, tv_nsec: -1 },
        ..Default::default()
    };
    let got = ring.register_struct(IORING_REGISTER_SYNC_CANCEL, &mut all, 1);
    cx.is("the call", got, 1);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED)]);
    Ok(())
}

fn params(flags: u32) -> io_uring_params {
    io_uring_params {
        flags: IORING_SETUP_SQPOLL | flags,
        sq_thread_idle: IDLE,
        ..Default::default()
    }
}

fn ring(cx: &mut Cx, entries: u32, flags: u32) -> Result<Ring, Stop> {
    cx.ring_with(entries, params(flags))
}

/// Checks until a condition holds, for five seconds at most.
pub(super) fn until(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Submits as a program with an SQ thread does: enters only for IORING_SQ_NEED_WAKEUP.
pub(super) fn go(ring: &Ring) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0 {
        ring.enter(0, 0, IORING_ENTER_SQ_WAKEUP);
    }
}

/// Waits for the next completion without entering, and checks it.
pub(super) fn spin(cx: &mut Cx, ring: &mut Ring, what: &str, want: (u64, i32)) {
    until(|| ring.cq_ready() > 0);
    match ring.pop() {
        Some(cqe) => {
            cx.cqe(what, cqe, want.1);
            cx.eq(&format!("{what}: whose"), cqe.user_data, want.0);
        }
        None => cx.eq(what, "nothing", "a CQE"),
    }
}

fn without_entering(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 4, 0)?;
    for i in 0..10 {
        ring.push(sqe::nop().ud(i));
        go(&ring);
        spin(cx, &mut ring, "nop", (i, 0));
    }
    ring.push(sqe::op(200, 0).ud(11));
    go(&ring);
    spin(cx, &mut ring, "unknown opcode", (11, -EINVAL));
    Ok(())
}

fn every_request_kind(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 16, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0u8; 16];
    ring.push(sqe::read(file.as_raw_fd(), &mut buf, 2).ud(1));
    go(&ring);
    spin(cx, &mut ring, "a file", (1, 8));
    cx.eq("bytes", &buf[..8], b"23456789");
    ring.push(sqe::write(file.as_raw_fd(), b"abc", 0).ud(2));
    go(&ring);
    spin(cx, &mut ring, "a write", (2, 3));
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(3));
    go(&ring);
    std::thread::sleep(Duration::from_millis(5));
    cx.eq("an empty pipe", ring.cq_ready(), 0);
    rustix::io::write(&w, b"late")?;
    spin(cx, &mut ring, "a pipe", (3, 4));
    // The read completes even while the thread sleeps.
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(4));
    go(&ring);
    let slept = until(|| ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0);
    cx.holds("sleeps with a read in flight", slept);
    rustix::io::write(&w, b"later")?;
    spin(cx, &mut ring, "a pipe, the thread asleep", (4, 5));
    let ts = kernel_timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    ring.push(sqe::timeout(&ts, 0, 0).ud(5));
    go(&ring);
    spin(cx, &mut ring, "a timeout", (5, -ETIME));
    // The thread must see the whole chain or nothing of it.
    ring.try_push_hidden(sqe::nop().ud(6).link());
    ring.try_push_hidden(sqe::nop().ud(7));
    ring.show();
    go(&ring);
    spin(cx, &mut ring, "a link", (6, 0));
    spin(cx, &mut ring, "its tail", (7, 0));
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(8));
    go(&ring);
    until(|| ring.sq_ready() == 0);
    ring.push(sqe::cancel(8, 0).ud(9));
    go(&ring);
    until(|| ring.cq_ready() == 2);
    cx.reap(&mut ring, "a cancel", &[(8, -ECANCELED), (9, 0)]);
    Ok(())
}

fn sleeps(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 4, 0)?;
    for i in 0..3 {
        let slept = until(|| ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0);
        cx.holds("asks to be woken", slept);
        ring.push(sqe::nop().ud(i));
        std::thread::sleep(Duration::from_millis(5));
        cx.eq("sleeps on", ring.cq_ready(), 0);
        cx.is("wake", ring.enter(1, 0, IORING_ENTER_SQ_WAKEUP), 1);
        spin(cx, &mut ring, "woken", (i, 0));
        cx.eq("flags", ring.sq_flags() & IORING_SQ_NEED_WAKEUP, 0);
    }
    Ok(())
}

fn enter_returns_at_once(cx: &mut Cx) -> Outcome {
    let ring = ring(cx, 4, 0)?;
    cx.is("nothing queued", ring.enter(3, 0, 0), 3);
    cx.is("more than there is room for", ring.enter(77, 0, 0), 77);
    cx.is("and waits for none", ring.enter(3, 0, IORING_ENTER_GETEVENTS), 3);
    cx.is("nothing", ring.enter(0, 0, 0), 0);
    cx.is("room", ring.enter(0, 0, IORING_ENTER_SQ_WAIT), 0);
    cx.is("room and more", ring.enter(5, 0, IORING_ENTER_SQ_WAIT | IORING_ENTER_SQ_WAKEUP), 5);
    cx.is("a bad flag", ring.enter(5, 0, 1 << 20), -EINVAL);
    Ok(())
}

fn waits_for_room(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 4, 0)?;
    until(|| ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0);
    for i in 0..4 {
        ring.push(sqe::nop().ud(i));
    }
    let flags = IORING_ENTER_SQ_WAIT | IORING_ENTER_SQ_WAKEUP;
    cx.is("wait for room", ring.enter(4, 0, flags), 4);
    cx.holds("there is room", ring.sq_ready() < 4);
    until(|| ring.cq_ready() == 4);
    cx.reap(&mut ring, "all", &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    Ok(())
}

fn room_after_sq_wait(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 64, 0)?;
    let full = std::fs::File::options().write(true).open("/dev/full")?;
    let flags = IORING_ENTER_SQ_WAIT | IORING_ENTER_SQ_WAKEUP;
    let mut unseen = 0;
    for i in 0..2000 {
        if ring.sq_ready() == 64 {
            ring.enter(0, 0, flags);
            unseen += u32::from(ring.sq_ready() == 64);
            while ring.sq_ready() == 64 {
                std::thread::yield_now();
            }
        }
        ring.push(sqe::write(full.as_raw_fd(), b"x", 0).ud(i));
        ring.pop_all();
    }
    cx.eq("waited, and saw no room", unseen, 0);
    Ok(())
}

fn waits_for_cqes(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0u8; 8];
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(1)).push(sqe::nop().ud(2));
    go(&ring);
    cx.is("one", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        rustix::io::write(&w, b"x")
    });
    cx.is("both", ring.enter(0, 2, IORING_ENTER_GETEVENTS), 0);
    let _ = late.join();
    cx.reap(&mut ring, "both", &[(1, 1), (2, 0)]);
    Ok(())
}

fn affinity(cx: &mut Cx) -> Outcome {
    let on = |cpu| io_uring_params { sq_thread_cpu: cpu, ..params(IORING_SETUP_SQ_AFF) };
    cx.setup_is("processor 0", 4, on(0), 0);
    cx.setup_is("one too many", 4, on(100_000), -EINVAL);
    cx.setup_is("the last number", 4, on(u32::MAX), -EINVAL);
    let alone = io_uring_params { flags: IORING_SETUP_SQ_AFF, ..Default::default() };
    cx.setup_is("without SQPOLL", 4, alone, -EINVAL);
    // Without the flag the field is not read.
    cx.setup_is("no flag", 4, io_uring_params { sq_thread_cpu: 100_000, ..params(0) }, 0);
    let all = processors(std::path::Path::new("/proc/self"));
    for last in [false, true] {
        cx.holds("no thread is left", until(|| threads() == 0));
        let one = if last { all.rsplit([',', '-']).next() } else { all.split([',', '-']).next() };
        let cpu = one.and_then(|n| n.parse().ok()).unwrap_or(0);
        let _ring = cx.ring_with(4, on(cpu))?;
        cx.holds("a thread", until(|| threads() == 1));
        let at = thread_folders().pop().unwrap_or_default();
        cx.holds("it stays where it was put", until(|| processors(&at) == cpu.to_string()));
    }
    cx.holds("no thread is left", until(|| threads() == 0));
    let _ring = ring(cx, 4, 0)?;
    cx.holds("a thread", until(|| threads() == 1));
    let at = thread_folders().pop().unwrap_or_default();
    cx.holds("without the flag it may go anywhere", processors(&at) == all);
    Ok(())
}

/// Returns the folders in `/proc` of this process's SQ threads.
fn thread_folders() -> Vec<std::path::PathBuf> {
    let name = format!("iou-sqp-{}", std::process::id());
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = |at: &std::path::PathBuf| {
        std::fs::read_to_string(at.join("comm")).is_ok_and(|c| c.trim() == name)
    };
    tasks.map(|e| e.path()).filter(named).collect()
}

/// Returns the number of this process's SQ threads.
pub(super) fn threads() -> usize {
    thread_folders().len()
}

/// Returns the processors that a thread may run on.
fn processors(of: &std::path::Path) -> String {
    let status = std::fs::read_to_string(of.join("status")).unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or_default().trim().into()
}

fn attached(cx: &mut Cx) -> Outcome {
    let mut first = ring(cx, 8, 0)?;
    let to = |fd: i32| io_uring_params {
        wq_fd: fd.cast_unsigned(),
        ..params(IORING_SETUP_ATTACH_WQ)
    };
    let plain = cx.ring(4, 0)?;
    cx.setup_is("to a ring without a thread", 4, to(plain.fd), -EINVAL);
    cx.setup_is("to nothing", 4, to(-1), -ENXIO);
    let file = cx.file("f", b"")?;
    cx.setup_is("to a file", 4, to(file.as_raw_fd()), -EINVAL);
    let mut second = cx.ring_with(32, to(first.fd))?;
    // The thread sets its name after its ring is set up.
    cx.holds("one thread", until(|| threads() == 1));
    for i in 0..20 {
        second.push(sqe::nop().ud(i));
    }
    first.push(sqe::nop().ud(1));
    go(&second);
    go(&first);
    spin(cx, &mut first, "the first", (1, 0));
    cx.holds("the second", until(|| second.cq_ready() == 20));
    drop(first);
    second.pop_all();
    second.push(sqe::nop().ud(30));
    go(&second);
    spin(cx, &mut second, "the first is gone", (30, 0));
    let mut plain = cx.ring_with(4, io_uring_params {
        flags: IORING_SETUP_ATTACH_WQ,
        wq_fd: second.fd.cast_unsigned(),
        ..Default::default()
    })?;
    cx.one(&mut plain, "a ring without a thread attached", sqe::nop(), 0);
    Ok(())
}

fn flags(cx: &mut Cx) -> Outcome {
    for bit in 0..19 {
        // Another case checks IOPOLL; a ring without a descriptor needs memory.
        let flag = 1 << bit;
        let skip = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL | IORING_SETUP_ATTACH_WQ;
        if flag & skip != 0 || flag == IORING_SETUP_SQPOLL {
            continue;
        }
        let p = io_uring_params { cq_entries: 16, ..params(flag) };
        match Ring::with(cx.entry, 8, p) {
            Err(e) => cx.note_answer(SETUP_NAMES[bit as usize], -e),
            Ok(ring) => {
                cx.note(SETUP_NAMES[bit as usize], format_args!("flags {:#x}", ring.params.flags));
            }
        }
    }
    let defer = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    cx.setup_is("deferred", 4, params(defer), -EINVAL);
    let both = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    cx.setup_is("cooperative", 4, params(both), -EINVAL);
    let mut single = ring(cx, 4, IORING_SETUP_SINGLE_ISSUER)?;
    single.push(sqe::nop().ud(1));
    go(&single);
    spin(cx, &mut single, "a single issuer", (1, 0));
    let other = std::thread::scope(|s| s.spawn(|| single.enter(1, 0, 0)).join());
    cx.is("another thread enters", other.unwrap_or(-1), 1);
    Ok(())
}

fn disabled(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 4, IORING_SETUP_R_DISABLED)?;
    ring.push(sqe::nop().ud(1));
    cx.is("enter", ring.enter(1, 0, IORING_ENTER_SQ_WAKEUP), -EBADFD);
    std::thread::sleep(Duration::from_millis(5));
    cx.eq("not served", ring.cq_ready(), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    go(&ring);
    spin(cx, &mut ring, "served", (1, 0));
    Ok(())
}

fn overflows(cx: &mut Cx) -> Outcome {
    let p = io_uring_params { cq_entries: 4, ..params(IORING_SETUP_CQSIZE) };
    let mut ring = cx.ring_with(4, p)?;
    for i in 0..6 {
        ring.push(sqe::nop().ud(i));
        go(&ring);
        until(|| ring.sq_ready() == 0);
    }
    let told = until(|| ring.sq_flags() & IORING_SQ_CQ_OVERFLOW != 0);
    cx.holds("overflow is told", told);
    cx.reap(&mut ring, "first", &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    cx.is("flush", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    cx.reap(&mut ring, "then", &[(4, 0), (5, 0)]);
    Ok(())
}

fn thread_name(cx: &mut Cx) -> Outcome {
    cx.eq("before", threads(), 0);
    let first = ring(cx, 4, 0)?;
    cx.holds("one ring", until(|| threads() == 1));
    let second = ring(cx, 4, 0)?;
    cx.holds("two rings", until(|| threads() == 2));
    drop(first);
    drop(second);
    cx.holds("none", until(|| threads() == 0));
    Ok(())
}

fn closed_while_busy(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    for _ in 0..20 {
        let mut ring = ring(cx, 64, 0)?;
        let mut buf = [0u8; 4];
        ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE));
        for i in 0..60 {
            ring.push(sqe::nop().ud(i));
        }
        go(&ring);
    }
    cx.holds("no thread is left", until(|| threads() == 0));
    Ok(())
}

fn forked_children(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 4, 0)?;
    for slept in [false, true] {
        if slept {
            until(|| ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0);
        }
        let in_child = os::in_child(|| {
            ring.push(sqe::nop().ud(5));
            go(&ring);
            let served = until(|| ring.cq_ready() == 1);
            i32::from(!served || ring.pop().is_none_or(|c| c.user_data != 5))
        });
        cx.is("a child", in_child, 0);
        ring.push(sqe::nop().ud(6));
        go(&ring);
        until(|| ring.cq_ready() > 0);
        let got: Vec<_> = ring.pop_all().iter().map(|c| c.user_data).collect();
        cx.eq("the parent", got, vec![6]);
    }
    Ok(())
}

fn register_while_running(cx: &mut Cx) -> Outcome {
    let mut ring = ring(cx, 8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0u8; 16];
    for i in 0..5 {
        let fds = [file.as_raw_fd()];
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
        ring.push(sqe::read(0, &mut buf, 4).fixed().ud(i));
        go(&ring);
        spin(cx, &mut ring, "a slot", (i, 6));
        cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    }
    Ok(())
}
