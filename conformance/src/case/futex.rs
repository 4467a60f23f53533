//! FUTEX_WAIT and FUTEX_WAKE.

use super::futexv;
use super::prelude::*;
use super::sqpoll::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("futex", wait, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "a wake ends a wait, from a request or from futex(2)"),
    legal!("futex", value_changed, [Op(IORING_OP_FUTEX_WAIT)], "a wait for another value fails with EAGAIN"),
    legal!("futex", wake_after_submit, [Op(IORING_OP_FUTEX_WAIT)], "a wake right after the submission wakes the wait"),
    legal!("futex", order, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "waiters wake in their order"),
    case!("futex", many, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "many waiters on one word"),
    legal!("futex", masks, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "a wake wakes only waiters with a common mask bit"),
    legal!("futex", private, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "a private wake does not wake a shared waiter, or the reverse"),
    legal!("futex", shared, [Op(IORING_OP_FUTEX_WAIT)], "a child wakes a waiter in shared memory"),
    legal!("futex", cancel, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_ASYNC_CANCEL)], "a wait is cancelled"),
    legal!("futex", cancel_many, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_ASYNC_CANCEL)], "many waits are cancelled, and the result counts them"),
    legal!("futex", cancel_by_call, [Op(IORING_OP_FUTEX_WAIT), Reg(IORING_REGISTER_SYNC_CANCEL)], "the register call cancels a wait"),
    legal!("futex", linked, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_LINK_TIMEOUT)], "waits in chains and with a linked timeout"),
    legal!("futex", modes, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "waits in a worker, behind a barrier, and with DEFER_TASKRUN"),
    legal!("futex", refusals, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "bad words, flags and pointers"),
    legal!("futex", wake_counts, [Op(IORING_OP_FUTEX_WAKE)], "wakes of no waiters, of zero waiters and of more than there are"),
    legal!("futex", thread_ends, [Op(IORING_OP_FUTEX_WAIT)], "waits of a thread that ends"),
    legal!("futex", ring_closed, [Op(IORING_OP_FUTEX_WAIT)], "a ring is closed while its requests wait"),
    case!("futex", no_lost_wake, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "no wake is lost between threads"),
    legal!("futex", stopped, [Op(IORING_OP_FUTEX_WAIT)], "a wait in a stopped process still gets its wake"),
];

/// `FUTEX2_SIZE_U32` and `FUTEX2_PRIVATE`.
pub(super) const U32: i32 = 2;
pub(super) const PRIVATE: i32 = 128;
pub(super) const ANY: u64 = u32::MAX as u64;

pub(super) type Word = AtomicU32;

pub(super) fn futex(op: u8, word: &Word, val: u64, mask: u64, flags: i32) -> io_uring_sqe {
    sqe::rw(op, flags, addr(word), 0, val).set(|s| s.addr3 = mask)
}

pub(super) fn wait_on(word: &Word, val: u32) -> io_uring_sqe {
    futex(IORING_OP_FUTEX_WAIT, word, val.into(), ANY, U32)
}

pub(super) fn wake_of(word: &Word, n: u64) -> io_uring_sqe {
    futex(IORING_OP_FUTEX_WAKE, word, n, ANY, U32)
}

fn wait(cx: &mut Cx) -> Outcome {
    let (mut ring, mut other) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
    let word = Word::new(7);
    cx.start(&mut ring, &[wait_on(&word, 7).ud(1)]);
    cx.quiet(&ring, "waits", 10);
    cx.eq("a wake by the system call", os::futex_wake(&word, 1, u32::MAX), 1);
    cx.reap(&mut ring, "woken", &[(1, 0)]);
    cx.start(&mut ring, &[wait_on(&word, 7).ud(2)]);
    cx.one(&mut other, "a wake by another ring", wake_of(&word, 1), 1);
    cx.reap(&mut ring, "woken", &[(2, 0)]);
    let both = [wait_on(&word, 7).ud(3), wake_of(&word, 1).ud(4)];
    cx.batch(&mut ring, "by the same ring", &both, &[(3, 0), (4, 1)]);
    cx.start(&mut ring, &[wait_on(&word, 7).ud(5)]);
    word.store(8, Ordering::SeqCst);
    cx.quiet(&ring, "another value alone wakes nobody", 20);
    cx.eq("its wake", os::futex_wake(&word, 1, u32::MAX), 1);
    cx.spin(&ring, "seen without entering", 1);
    cx.reap(&mut ring, "woken", &[(5, 0)]);
    Ok(())
}

fn value_changed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(7);
    cx.one(&mut ring, "another value", wait_on(&word, 8), -EAGAIN);
    let chain = [wait_on(&word, 8).link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "it breaks a chain", &chain, &[(1, -EAGAIN), (2, -ECANCELED)]);
    let hard = [wait_on(&word, 8).with(IOSQE_IO_HARDLINK).ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "but not a hard one", &hard, &[(1, -EAGAIN), (2, 0)]);
    cx.one(&mut ring, "in a worker", wait_on(&word, 8).with(IOSQE_ASYNC), -EAGAIN);
    cx.eq("nobody waits", os::futex_wake(&word, 9, u32::MAX), 0);
    Ok(())
}

fn wake_after_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(7);
    let mut counted = 0;
    for i in 0..200 {
        ring.push(wait_on(&word, 7).ud(i));
        if ring.submit() == 1 {
            counted += os::futex_wake(&word, 1, u32::MAX);
        }
        let got = ring.take(1)?[0];
        counted += i64::from(got.res == 0 && got.user_data == i);
    }
    cx.eq("wakes and completions", counted, 400);
    Ok(())
}

fn order(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let word = Word::new(0);
    let waits: Vec<_> = (1..=5).map(|i| wait_on(&word, 0).ud(i)).collect();
    cx.start(&mut ring, &waits);
    for i in 1..=3 {
        cx.eq("wake one", os::futex_wake(&word, 1, u32::MAX), 1);
        cx.reap(&mut ring, "the first", &[(i, 0)]);
    }
    cx.eq("wake the rest", os::futex_wake(&word, 9, u32::MAX), 2);
    cx.reap(&mut ring, "both", &[(4, 0), (5, 0)]);
    Ok(())
}

fn many(cx: &mut Cx) -> Outcome {
    const N: u32 = 100;
    let mut ring = cx.ring(N, 0)?;
    let word = Word::new(1);
    for _ in 0..2 {
        let waits: Vec<_> = (0..N).map(|i| wait_on(&word, 1).ud(i.into())).collect();
        cx.start(&mut ring, &waits);
        cx.one(&mut ring, "some", wake_of(&word, 30).ud(1000), 30);
        cx.eq("woken", ring.take(30)?.iter().all(|c| c.res == 0), true);
        cx.eq("the rest", os::futex_wake(&word, i32::MAX, u32::MAX), 70);
        cx.eq("woken", ring.take(70)?.iter().all(|c| c.res == 0), true);
    }
    Ok(())
}

fn masks(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let word = Word::new(3);
    let wait = |mask, ud| futex(IORING_OP_FUTEX_WAIT, &word, 3, mask, U32).ud(ud);
    let wake = |mask| futex(IORING_OP_FUTEX_WAKE, &word, 9, mask, U32);
    cx.start(&mut ring, &[wait(1, 1), wait(2, 2), wait(3, 3), wait(ANY, 4)]);
    cx.one(&mut ring, "none", wake(0), -EINVAL);
    cx.quiet(&ring, "nobody", 10);
    let woken = [(2, 0), (3, 0), (4, 0), (9, 3)];
    cx.batch(&mut ring, "three meet 2", &[wake(2).ud(9)], &woken);
    cx.one(&mut ring, "nobody meets 4", wake(4), 0);
    cx.batch(&mut ring, "one meets any", &[wake(ANY).ud(9)], &[(1, 0), (9, 1)]);
    Ok(())
}

fn private(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let word = Word::new(3);
    let op = |op, n, flags| futex(op, &word, n, ANY, U32 | flags);
    let (wait, wake) = (IORING_OP_FUTEX_WAIT, IORING_OP_FUTEX_WAKE);
    cx.start(&mut ring, &[op(wait, 3, PRIVATE).ud(1), op(wait, 3, 0).ud(2)]);
    cx.quiet(&ring, "both wait", 10);
    cx.batch(&mut ring, "shared", &[op(wake, 9, 0).ud(9)], &[(2, 0), (9, 1)]);
    cx.batch(&mut ring, "private", &[op(wake, 9, PRIVATE).ud(9)], &[(1, 0), (9, 1)]);
    cx.one(&mut ring, "nobody left", op(wake, 9, PRIVATE), 0);
    Ok(())
}

fn shared(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let memory = crate::ring::Map::anonymous(4096).map_err(Stop::from)?;
    let word = memory.word(8);
    cx.start(&mut ring, &[wait_on(word, 0).ud(1)]);
    let woken = os::in_child(|| os::futex_wake(word, 1, u32::MAX) as i32);
    cx.is("the child woke", woken, 1);
    cx.reap(&mut ring, "woken", &[(1, 0)]);
    Ok(())
}

/// Records the next `n` completions, in any order.
pub(super) fn sorted(cx: &mut Cx, ring: &mut Ring, what: &str, n: usize) -> Outcome {
    let mut got: Vec<_> = ring.take(n)?.iter().map(|c| (c.user_data, c.res)).collect();
    got.sort_unstable();
    cx.note(what, format_args!("{got:?}"));
    Ok(())
}

fn cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    let wait = wait_on(&word, 3);
    cx.start(&mut ring, &[wait.ud(1)]);
    cx.quiet(&ring, "waits", 10);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
    sorted(cx, &mut ring, "cancelled", 2)?;
    cx.eq("nobody waits", os::futex_wake(&word, 9, u32::MAX), 0);
    cx.one(&mut ring, "gone", sqe::cancel(1, 0).ud(2), -ENOENT);
    cx.start(&mut ring, &[wait.ud(1)]);
    let by_fd = sqe::cancel(0, IORING_ASYNC_CANCEL_FD).set(|s| s.fd = 0).ud(2);
    cx.one(&mut ring, "it has no file", by_fd, -ENOENT);
    cx.eq("it still waits", os::futex_wake(&word, 9, u32::MAX), 1);
    cx.reap(&mut ring, "woken", &[(1, 0)]);
    let chain = [wait.link().ud(1), sqe::nop().ud(2)];
    cx.start(&mut ring, &chain);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
    sorted(cx, &mut ring, "a chain", 3)?;
    cx.start(&mut ring, &[futex(IORING_OP_FUTEX_WAIT, &word, 3, 5, U32 | PRIVATE).ud(1)]);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3).with(IOSQE_ASYNC)]);
    sorted(cx, &mut ring, "with a mask, from a worker", 2)?;
    Ok(())
}

fn cancel_many(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let word = Word::new(3);
    let ways = [
        ("by name", IORING_ASYNC_CANCEL_ALL),
        ("any", IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY),
        ("by operation", IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_OP),
        ("one by operation", IORING_ASYNC_CANCEL_OP),
        ("one of any", IORING_ASYNC_CANCEL_ANY),
    ];
    for (what, flags) in ways {
        cx.start(&mut ring, &[wait_on(&word, 3).ud(1); 3]);
        cx.quiet(&ring, "wait", 5);
        let sqe = sqe::cancel(1, flags).set(|s| {
            let op = flags & IORING_ASYNC_CANCEL_OP != 0;
            s.len = if op { IORING_OP_FUTEX_WAIT.into() } else { 0 };
        });
        ring.push(sqe.ud(2)).submit();
        std::thread::sleep(Duration::from_millis(20));
        let n = ring.cq_ready() as usize;
        sorted(cx, &mut ring, what, n)?;
        let left = os::futex_wake(&word, 9, u32::MAX);
        cx.note("left", left);
        ring.take(left as usize)?;
    }
    Ok(())
}

fn cancel_by_call(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    cx.start(&mut ring, &[wait_on(&word, 3).ud(1)]);
    let timeout = kernel_timespec { tv_sec: -1, tv_nsec: -1 };
    let mut one = io_uring_sync_cancel_reg { addr: 1, timeout, ..Default::default() };
    let got = ring.register_struct(IORING_REGISTER_SYNC_CANCEL, &mut one, 1);
    cx.note_answer("the call", got);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED)]);
    let got = ring.register_struct(IORING_REGISTER_SYNC_CANCEL, &mut one, 1);
    cx.is("gone", got, -ENOENT);
    Ok(())
}

fn linked(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    let wait = wait_on(&word, 3);
    let ts = sqe::millis(10);
    let timed = [wait.link().ud(1), sqe::link_timeout(&ts, 0).ud(2)];
    cx.batch(&mut ring, "too late", &timed, &[(1, -ECANCELED), (2, 1)]);
    cx.eq("nobody waits", os::futex_wake(&word, 9, u32::MAX), 0);
    let far = sqe::millis(60_000);
    cx.start(&mut ring, &[wait.link().ud(1), sqe::link_timeout(&far, 0).ud(2)]);
    cx.eq("a wake", os::futex_wake(&word, 9, u32::MAX), 1);
    cx.reap(&mut ring, "in time", &[(1, 0), (2, -ECANCELED)]);
    let chain = [wait.link().ud(1), wait.link().ud(2), sqe::nop().ud(3)];
    cx.start(&mut ring, &chain);
    cx.eq("the first", os::futex_wake(&word, 9, u32::MAX), 1);
    cx.reap(&mut ring, "woken", &[(1, 0)]);
    cx.eq("then the second", os::futex_wake(&word, 9, u32::MAX), 1);
    cx.reap(&mut ring, "woken", &[(2, 0), (3, 0)]);
    Ok(())
}

fn modes(cx: &mut Cx) -> Outcome {
    let (mut ring, mut late) = (cx.ring(8, 0)?, cx.ring(8, DEFER)?);
    let word = Word::new(3);
    let wait = wait_on(&word, 3);
    cx.start(&mut ring, &[wait.with(IOSQE_ASYNC).ud(1)]);
    cx.quiet(&ring, "in a worker", 20);
    let wake = wake_of(&word, 1).with(IOSQE_ASYNC).ud(2);
    cx.batch(&mut ring, "woken by one", &[wake], &[(1, 0), (2, 1)]);
    cx.start(&mut ring, &[wait.ud(1), sqe::nop().with(IOSQE_IO_DRAIN).ud(2)]);
    cx.quiet(&ring, "a barrier", 10);
    cx.eq("a wake", os::futex_wake(&word, 1, u32::MAX), 1);
    cx.reap_in_order(&mut ring, "then what is behind", &[(1, 0), (2, 0)]);
    cx.start(&mut late, &[wait.ud(1)]);
    cx.eq("a wake", os::futex_wake(&word, 1, u32::MAX), 1);
    cx.quiet(&late, "deferred", 10);
    cx.reap(&mut late, "with GETEVENTS", &[(1, 0)]);
    let skip = [wait.with(IOSQE_CQE_SKIP_SUCCESS).ud(1), wake_of(&word, 1).ud(2)];
    let mut fresh = cx.ring(8, 0)?;
    cx.batch(&mut fresh, "without a CQE", &skip, &[(2, 1)]);
    cx.quiet(&fresh, "no other", 10);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    for (name, op) in [("wait", IORING_OP_FUTEX_WAIT), ("wake", IORING_OP_FUTEX_WAKE)] {
        cx.note("operation", name);
        let good = futex(op, &word, 4, ANY, U32);
        let bad_at = if op == IORING_OP_FUTEX_WAIT { -EFAULT } else { 0 };
        let fine = if op == IORING_OP_FUTEX_WAIT { -EAGAIN } else { 0 };
        let at = |a: usize| good.set(|s| s.addr = a as u64);
        let mine = good.set(|s| s.fd = U32 | PRIVATE);
        cx.each(&mut ring, &[
            ("fine", good, fine),
            ("a length", good.set(|s| s.len = 1), -EINVAL),
            ("flags", good.op_flags(1), -EINVAL),
            ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
            ("a slot", good.set(|s| s.file_index = 1), -EINVAL),
            ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
            ("a buffer group", good.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
            ("8 bits", good.set(|s| s.fd = 0), -EINVAL),
            ("16 bits", good.set(|s| s.fd = 1), -EINVAL),
            ("64 bits", good.set(|s| s.fd = 3), -EINVAL),
            ("unknown flag", good.set(|s| s.fd = U32 | 16), -EINVAL),
            ("a negative flags word", good.set(|s| s.fd = -1), -EINVAL),
            ("a wide value", good.set(|s| s.off = 1 << 32), -EINVAL),
            ("a wide mask", good.set(|s| s.addr3 = 1 << 32 | 1), -EINVAL),
            ("no mask", good.set(|s| s.addr3 = 0), -EINVAL),
            ("not aligned", at(addr(&word) + 1), -EINVAL),
            ("no address, private", mine.set(|s| s.addr = 0), bad_at),
            ("the kernel's", at(KERNEL), -EFAULT),
            ("no address, shared", at(0), -EFAULT),
            ("IOSQE_FIXED_FILE", good.fixed(), fine),
        ]);
    }
    Ok(())
}

fn wake_counts(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    let two = [wait_on(&word, 3).ud(1), wait_on(&word, 3).ud(2)];
    cx.one(&mut ring, "nobody there", wake_of(&word, 5), 0);
    cx.start(&mut ring, &two);
    cx.one(&mut ring, "none", wake_of(&word, 0), 0);
    cx.quiet(&ring, "still there", 10);
    cx.batch(&mut ring, "one", &[wake_of(&word, 1).ud(9)], &[(1, 0), (9, 1)]);
    cx.batch(&mut ring, "all", &[wake_of(&word, 0x7fff_ffff).ud(9)], &[(2, 0), (9, 1)]);
    cx.start(&mut ring, &two);
    cx.batch(&mut ring, "a negative number", &[wake_of(&word, ANY).ud(9)], &[(1, 0), (9, 1)]);
    cx.batch(&mut ring, "the other", &[wake_of(&word, 1).ud(9)], &[(2, 0), (9, 1)]);
    let bad = futex(IORING_OP_FUTEX_WAKE, &word, 0, 0, U32);
    cx.one(&mut ring, "none with no mask", bad, -EINVAL);
    let crooked = wake_of(&word, 0).set(|s| s.addr += 1);
    cx.one(&mut ring, "none at no address", crooked, -EINVAL);
    Ok(())
}

fn thread_ends(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let word = Word::new(3);
    let entries = [futexv::entry(&word, 3, 0)];
    ring.push(wait_on(&word, 3).ud(1)).push(futexv::any_of(&entries).ud(2));
    let n = std::thread::scope(|s| s.spawn(|| ring.submit()).join().unwrap_or(-1));
    cx.is("submitted", n, 2);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, -ECANCELED)]);
    cx.eq("nobody waits", os::futex_wake(&word, 9, u32::MAX), 0);
    Ok(())
}

fn ring_closed(cx: &mut Cx) -> Outcome {
    let word = Word::new(3);
    let before = os::threads();
    for _ in 0..3 {
        let mut ring = cx.ring(8, 0)?;
        cx.start(&mut ring, &[wait_on(&word, 3).ud(1), wait_on(&word, 3).ud(2)]);
        os::futex_wake(&word, 1, u32::MAX);
    }
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        os::futex_wake(&word, 9, u32::MAX) == 0
    });
    cx.holds("nobody waits any more", gone);
    // softring's reactor thread may have started meanwhile.
    let left = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        os::threads() <= before + 1
    });
    cx.holds("no thread is left", left);
    Ok(())
}

fn no_lost_wake(cx: &mut Cx) -> Outcome {
    const N: u32 = 2000;
    let mut ring = cx.ring(8, 0)?;
    let word = Arc::new(Word::new(0));
    let theirs = word.clone();
    // Each side waits for the other's step; the even numbers are this side's.
    let peer = std::thread::spawn(move || {
        for i in 0..N {
            while theirs.load(Ordering::SeqCst) != 2 * i + 1 {
                std::thread::yield_now();
            }
            theirs.store(2 * i + 2, Ordering::SeqCst);
            os::futex_wake(&theirs, 1, u32::MAX);
        }
    });
    let (mut woken, mut late, mut other) = (0, 0, 0);
    for i in 0..N {
        word.store(2 * i + 1, Ordering::SeqCst);
        ring.push(wait_on(&word, 2 * i + 1)).submit_wait(1);
        match ring.pop().map(|c| c.res) {
            Some(0) => woken += 1,
            Some(e) if e == -EAGAIN => late += 1,
            _ => other += 1,
        }
        while word.load(Ordering::SeqCst) != 2 * i + 2 {
            std::thread::yield_now();
        }
    }
    cx.eq("the peer ended", peer.join().is_ok(), true);
    cx.eq("woken, or too late to wait", (woken + late, other), (N, 0));
    Ok(())
}

fn stopped(cx: &mut Cx) -> Outcome {
    let memory = crate::ring::Map::anonymous(4096).map_err(Stop::from)?;
    let (word, told) = (memory.word(8), memory.word(12));
    let entry = cx.entry;
    let child = os::spawn_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 1 };
        ring.push(wait_on(word, 0).ud(1)).submit();
        told.store(1, Ordering::SeqCst);
        // SIGSTOP and SIGCONT may end a wait.
        let got = (0..9).find_map(|_| ring.take(1).ok());
        got.map_or(2, |got| 10 + got[0].res)
    });
    cx.holds("it waits", until(|| told.load(Ordering::SeqCst) == 1));
    std::thread::sleep(Duration::from_millis(10));
    for signal in [libc::SIGSTOP, libc::SIGCONT] {
        os::signal(child, signal);
        std::thread::sleep(Duration::from_millis(20));
    }
    // On a busy machine the child may wait again only later.
    cx.holds("one waits", until(|| os::futex_wake(word, 1, u32::MAX) == 1));
    cx.is("woken", os::wait_for(child), 10);
    Ok(())
}
