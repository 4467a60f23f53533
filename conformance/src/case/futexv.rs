//! FUTEX_WAITV: a wait for any of several futexes; races of wakes and cancellations.

use super::futex::{ANY, PRIVATE, U32, Word, futex, sorted, wait_on};
use super::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub const CASES: &[Case] = &[
    legal!("futexv", any_of_several, [Op(IORING_OP_FUTEX_WAITV)], "a wait for any of several; the result says which"),
    legal!("futexv", max_futexes, [Op(IORING_OP_FUTEX_WAITV)], "a wait for 128 futexes"),
    legal!("futexv", cancel, [Op(IORING_OP_FUTEX_WAITV), Op(IORING_OP_ASYNC_CANCEL)], "the wait is cancelled"),
    any_order!("futexv", cancelled_in_batch, [Op(IORING_OP_FUTEX_WAITV), Op(IORING_OP_FUTEX_WAKE)], "a wait that its batch cancels still takes a wake of the same batch"),
    case!("futexv", nodes, [
        Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE), Op(IORING_OP_FUTEX_WAITV),
    ], "futexes with NUMA nodes"),
    legal!("futexv", refusals, [Op(IORING_OP_FUTEX_WAITV)], "bad counts, entries, flags and pointers"),
    case!("futexv", race, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_ASYNC_CANCEL)], "a wake races a cancel, and exactly one of them takes the wait"),
];

type Change = fn(&mut Entry);

/// `struct futex_waitv`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

pub(super) fn entry(word: &Word, val: u32, flags: i32) -> Entry {
    let (val, uaddr) = (val.into(), addr(word) as u64);
    Entry { val, uaddr, flags: (U32 | flags).cast_unsigned(), reserved: 0 }
}

pub(super) fn any_of(entries: &[Entry]) -> io_uring_sqe {
    sqe::rw(IORING_OP_FUTEX_WAITV, 0, addr(entries), entries.len(), 0)
}

fn any_of_several(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let words: [Word; 4] = std::array::from_fn(|i| Word::new(i as u32));
    let entries: Vec<_> = (0..4).map(|i| entry(&words[i as usize], i, 0)).collect();
    for i in [2, 0, 3] {
        cx.start(&mut ring, &[any_of(&entries).ud(1)]);
        cx.quiet(&ring, "waits", 5);
        cx.eq("wake", os::futex_wake(&words[i], 9, u32::MAX), 1);
        cx.reap(&mut ring, "woken", &[(1, i as i32)]);
        cx.eq("none of the others waits", os::futex_wake(&words[1], 9, u32::MAX), 0);
    }
    words[1].store(9, Ordering::SeqCst);
    cx.one(&mut ring, "one has changed", any_of(&entries), -EAGAIN);
    cx.eq("the first does not wait", os::futex_wake(&words[0], 9, u32::MAX), 0);
    let mut mixed = [entry(&words[0], 0, PRIVATE), entry(&words[2], 2, 0)];
    cx.start(&mut ring, &[any_of(&mixed).ud(1)]);
    mixed[0].uaddr = 0;
    cx.eq("shared, on a private one", os::futex_wake(&words[0], 9, u32::MAX), 0);
    let wake = futex(IORING_OP_FUTEX_WAKE, &words[0], 9, ANY, U32 | PRIVATE).ud(2);
    cx.batch(&mut ring, "private", &[wake], &[(1, 0), (2, 1)]);
    cx.eq("none", std::hint::black_box(mixed)[0].uaddr, 0);
    let twice = [entry(&words[0], 0, 0), entry(&words[0], 0, 0)];
    cx.start(&mut ring, &[any_of(&twice).ud(1)]);
    cx.eq("one word twice", os::futex_wake(&words[0], 1, u32::MAX), 1);
    cx.reap(&mut ring, "the first", &[(1, 0)]);
    cx.start(&mut ring, &[any_of(&twice).ud(1)]);
    cx.eq("both at once", os::futex_wake(&words[0], 9, u32::MAX), 2);
    cx.reap(&mut ring, "the first of both", &[(1, 0)]);
    Ok(())
}

fn max_futexes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let words: Vec<Word> = (0..128).map(Word::new).collect();
    let mut entries: Vec<_> = (0..128).map(|i| entry(&words[i as usize], i, 0)).collect();
    cx.start(&mut ring, &[any_of(&entries).ud(1)]);
    cx.eq("the last", os::futex_wake(&words[127], 9, u32::MAX), 1);
    cx.reap(&mut ring, "woken", &[(1, 127)]);
    entries.push(entries[0]);
    cx.one(&mut ring, "129", any_of(&entries), -EINVAL);
    Ok(())
}

fn cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let words = [Word::new(0), Word::new(1)];
    let entries = [entry(&words[0], 0, 0), entry(&words[1], 1, PRIVATE)];
    cx.start(&mut ring, &[any_of(&entries).ud(1)]);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
    sorted(cx, &mut ring, "cancelled", 2)?;
    cx.eq("nobody waits", os::futex_wake(&words[0], 9, u32::MAX), 0);
    let ts = sqe::millis(10);
    let timed = [any_of(&entries).link().ud(1), sqe::link_timeout(&ts, 0).ud(2)];
    cx.batch(&mut ring, "too late", &timed, &[(1, -ECANCELED), (2, 1)]);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let words = [Word::new(0), Word::new(1)];
    let base = [entry(&words[0], 7, 0), entry(&words[1], 1, 0)];
    let good = any_of(&base);
    cx.each(&mut ring, &[
        ("fine", good, -EAGAIN),
        ("none", good.set(|s| s.len = 0), -EINVAL),
        ("a flags word", good.set(|s| s.fd = U32), -EINVAL),
        ("a value", good.set(|s| s.off = 1), -EINVAL),
        ("a mask", good.set(|s| s.addr3 = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a slot", good.set(|s| s.file_index = 1), -EINVAL),
        ("a bad pointer", good.set(|s| s.addr = BAD as u64), -EFAULT),
    ]);
    let changes: [(&str, Change, i32); 9] = [
        ("reserved", |e| e.reserved = 1, -EINVAL),
        ("unknown flag", |e| e.flags |= 16, -EINVAL),
        ("8 bits", |e| e.flags = 0, -EINVAL),
        ("a wide value", |e| e.val = 1 << 32, -EINVAL),
        ("not aligned", |e| e.uaddr += 1, -EINVAL),
        ("no address, shared", |e| e.uaddr = 0, -EFAULT),
        ("no address, private", |e| (e.uaddr, e.flags) = (0, 130), -EFAULT),
        ("the kernel's", |e| e.uaddr = KERNEL as u64, -EFAULT),
        ("another value", |e| e.val = 5, -EAGAIN),
    ];
    for (what, change, want) in changes {
        let mut entries = [entry(&words[0], 0, 0), entry(&words[1], 1, 0)];
        change(&mut entries[1]);
        cx.one(&mut ring, what, any_of(&entries), want);
        cx.eq("nobody waits", os::futex_wake(&words[0], 9, u32::MAX), 0);
    }
    Ok(())
}

fn race(cx: &mut Cx) -> Outcome {
    const N: u64 = 500;
    let mut ring = cx.ring(8, 0)?;
    let word = Arc::new(Word::new(3));
    let (theirs, end) = (word.clone(), Arc::new(Word::new(0)));
    let stop = end.clone();
    let waker = std::thread::spawn(move || {
        let mut woken = 0;
        while stop.load(Ordering::SeqCst) == 0 {
            woken += os::futex_wake(&theirs, 1, u32::MAX);
        }
        woken
    });
    let (mut woken, mut cancelled, mut wrong) = (0, 0, 0);
    for i in 0..N {
        ring.push(wait_on(&word, 3).ud(2 * i)).push(sqe::cancel(2 * i, 0).ud(2 * i + 1)).submit();
        let mut got = ring.take(2)?;
        got.sort();
        match (got[0].res, got[1].res) {
            (0, e) if e == -ENOENT => woken += 1,
            (e, 1) if e == -ECANCELED => cancelled += 1,
            _ => wrong += 1,
        }
    }
    end.store(1, Ordering::SeqCst);
    let told = waker.join().unwrap_or(-1);
    cx.eq("woken or cancelled", (woken + cancelled, wrong), (N as i64, 0));
    cx.eq("as often as the waker says", told - woken, 0);
    cx.is("nothing else", ring.cq_ready(), 0);
    Ok(())
}

/// `FUTEX2_NUMA` and `FUTEX2_MPOL`.
const NODES: [(&str, i32); 3] = [("its node", 4), ("its memory's policy", 8), ("both", 12)];

/// A futex word, and its node: none yet.
#[repr(align(8))]
struct OfNode(Word, Word);

fn nodes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    for (what, flags) in NODES {
        let of_node = OfNode(Word::new(7), Word::new(u32::MAX));
        let word = &of_node.0;
        let wait = futex(IORING_OP_FUTEX_WAIT, word, 7, ANY, U32 | flags);
        let wake = futex(IORING_OP_FUTEX_WAKE, word, 1, ANY, U32 | flags);
        cx.start(&mut ring, &[wait.ud(1), wake.ud(2)]);
        sorted(cx, &mut ring, &format!("waits and is woken by {what}"), 2)?;
        let entries = [entry(word, 7, flags)];
        cx.start(&mut ring, &[any_of(&entries).ud(1), wake.ud(2)]);
        sorted(cx, &mut ring, "as one of several", 2)?;
        cx.note("a node is told", of_node.1.load(Ordering::SeqCst) != u32::MAX);
    }
    Ok(())
}

fn cancelled_in_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let words: [Word; 2] = std::array::from_fn(|_| Word::new(0));
    let entries = [entry(&words[0], 0, PRIVATE), entry(&words[1], 0, PRIVATE)];
    let wake = futex(IORING_OP_FUTEX_WAKE, &words[1], 9, ANY, U32 | PRIVATE).ud(3);
    cx.start(&mut ring, &[any_of(&entries).ud(1)]);
    cx.quiet(&ring, "waits", 5);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2), wake, wake.ud(4)]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.note_cqes("in one batch", &mut ring);
    cx.start(&mut ring, &[any_of(&entries).ud(1)]);
    cx.quiet(&ring, "waits", 5);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
    cx.start(&mut ring, &[wake]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.note_cqes("in two", &mut ring);
    let wait = wait_on(&words[1], 0).ud(1);
    cx.start(&mut ring, &[wait]);
    cx.quiet(&ring, "waits", 5);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2), wake]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.note_cqes("of one word", &mut ring);
    Ok(())
}
