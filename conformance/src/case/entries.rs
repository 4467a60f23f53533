//! Submission queues of mixed entries (SQE_MIXED), and queues that start anew each time
//! (SQ_REWIND).

use super::prelude::*;
use std::net::UdpSocket;

pub const CASES: &[Case] = &[
    newest!("entries", setups, [
        Setup(IORING_SETUP_SQE_MIXED), Setup(IORING_SETUP_SQ_REWIND),
    ], "set-up flags that SQE_MIXED and SQ_REWIND allow"),
    newest!("entries", mixed, [
        Setup(IORING_SETUP_SQE_MIXED), Op(IORING_OP_NOP128),
    ], "an SQE of 128 bytes takes two entries of a mixed ring"),
    newest!("entries", mixed_last, [
        Setup(IORING_SETUP_SQE_MIXED), Op(IORING_OP_NOP128),
    ], "a 128-byte SQE does not fit into the last slot, nor into the end of a submission"),
    newest!("entries", mixed_refused, [
        Op(IORING_OP_NOP128),
    ], "a 128-byte SQE that fails for another reason takes both entries"),
    newest!("entries", mixed_array, [
        Setup(IORING_SETUP_SQE_MIXED),
    ], "the index array names the first slot of a 128-byte SQE"),
    newest!("entries", mixed_linked, [
        Setup(IORING_SETUP_SQE_MIXED),
    ], "128-byte SQEs work in chains and with SQPOLL"),
    newest!("entries", sqe128_on_other_rings, [
        Op(IORING_OP_NOP128), Op(IORING_OP_URING_CMD128),
    ], "128-byte opcodes on rings with other SQE sizes"),
    newest!("entries", command, [Op(IORING_OP_URING_CMD128)], "commands in 128-byte SQEs"),
    newest!("entries", mixed_resized, [
        Setup(IORING_SETUP_SQE_MIXED), Reg(IORING_REGISTER_RESIZE_RINGS),
    ], "a mixed ring stays mixed after a resize"),
    newest!("entries", rewind, [
        Setup(IORING_SETUP_SQ_REWIND),
    ], "with SQ_REWIND each submission starts at slot 0, and head and tail stay"),
    newest!("entries", rewind_ends, [
        Setup(IORING_SETUP_SQ_REWIND),
    ], "a bad SQE ends a submission with SQ_REWIND, and a cut-off chain is closed"),
    newest!("entries", rewind_poll, [Setup(IORING_SETUP_SQ_REWIND)], "with SQ_REWIND poll(2) goes by the tail"),
    newest!("entries", rewind_mixed, [
        Setup(IORING_SETUP_SQ_REWIND), Setup(IORING_SETUP_SQE_MIXED),
    ], "SQ_REWIND and SQE_MIXED work together"),
    newest!("entries", rewind_resized, [
        Setup(IORING_SETUP_SQ_REWIND), Reg(IORING_REGISTER_RESIZE_RINGS),
    ], "a resized ring with SQ_REWIND starts at slot 0"),
];

const MIXED: u32 = IORING_SETUP_SQE_MIXED;
const NO_ARRAY: u32 = IORING_SETUP_NO_SQARRAY;
const REWIND: u32 = IORING_SETUP_SQ_REWIND | NO_ARRAY;

fn nop(ud: u64) -> io_uring_sqe {
    sqe::nop().ud(ud)
}

fn double(ud: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_NOP128, -1).ud(ud)
}

fn setups(cx: &mut Cx) -> Outcome {
    let rows = [
        ("mixed", 2, MIXED, 0),
        ("mixed, one entry", 1, MIXED, -EOVERFLOW),
        ("mixed, one entry, clamped", 1, MIXED | IORING_SETUP_CLAMP, -EOVERFLOW),
        ("mixed, no entry", 0, MIXED, -EINVAL),
        ("mixed, wide entries", 4, MIXED | IORING_SETUP_SQE128, -EINVAL),
        ("mixed, wide entries, one", 1, MIXED | IORING_SETUP_SQE128, -EINVAL),
        ("mixed, wide CQEs", 4, MIXED | IORING_SETUP_CQE32, 0),
        ("mixed both ways", 4, MIXED | IORING_SETUP_CQE_MIXED, 0),
        ("mixed, SQPOLL", 4, MIXED | IORING_SETUP_SQPOLL, 0),
        ("mixed, IOPOLL", 4, MIXED | IORING_SETUP_IOPOLL, 0),
        ("mixed, no array", 4, MIXED | NO_ARRAY, 0),
        ("mixed, deferred", 4, MIXED | DEFER, 0),
        ("rewind", 4, IORING_SETUP_SQ_REWIND, -EINVAL),
        ("rewind, no array", 4, REWIND, 0),
        ("rewind, SQPOLL", 4, REWIND | IORING_SETUP_SQPOLL, -EINVAL),
        ("rewind, IOPOLL", 4, REWIND | IORING_SETUP_IOPOLL, 0),
        ("rewind, deferred", 4, REWIND | DEFER, 0),
        ("rewind, disabled", 4, REWIND | IORING_SETUP_R_DISABLED, 0),
        ("rewind, wide entries", 4, REWIND | IORING_SETUP_SQE128, 0),
        ("rewind, mixed", 4, REWIND | MIXED, 0),
        ("rewind, mixed, one entry", 1, REWIND | MIXED, -EOVERFLOW),
        ("the next bit", 4, 1 << 21, -EINVAL),
        ("the last bit", 4, 1 << 31, -EINVAL),
    ];
    for (what, entries, flags, want) in rows {
        cx.setup_is(what, entries, io_uring_params { flags, ..Default::default() }, want);
    }
    Ok(())
}

/// Puts SQEs into slots, those of 128 bytes into two, and publishes the tail.
fn fill(ring: &Ring, sqes: &[io_uring_sqe]) {
    let mask = ring.sq_entries() - 1;
    let mut tail = ring.sq_tail();
    for s in sqes {
        ring.write_sqe(tail & mask, s);
        let two = matches!(s.opcode, IORING_OP_NOP128 | IORING_OP_URING_CMD128);
        for _ in 0..1 + u32::from(two) {
            if !ring.has(NO_ARRAY) {
                ring.set_array(tail & mask, tail & mask);
            }
            tail = tail.wrapping_add(1);
        }
    }
    ring.set_sq_tail(tail);
}

/// Submits `n` entries; records the result, the head, and the completions.
fn enter(cx: &mut Cx, ring: &mut Ring, what: &str, n: u32, took: isize, want: &[(u64, i32)]) {
    let got = ring.enter(n, 0, IORING_ENTER_GETEVENTS);
    cx.is(&format!("{what}: entered"), got, took);
    cx.note("head", ring.sq_head());
    cx.note("dropped", ring.sq_dropped());
    cx.reap(ring, what, want);
    cx.is("nothing else", ring.cq_ready(), 0);
}

fn mixed(cx: &mut Cx) -> Outcome {
    for flags in [MIXED, MIXED | NO_ARRAY, MIXED | DEFER] {
        let mut ring = cx.ring(8, flags)?;
        fill(&ring, &[nop(1), double(2), nop(3)]);
        enter(cx, &mut ring, "64, 128, 64", 4, 4, &[(1, 0), (2, 0), (3, 0)]);
        let inject = double(4).op_flags(IORING_NOP_INJECT_RESULT).set(|s| s.len = 42);
        fill(&ring, &[inject, double(5)]);
        enter(cx, &mut ring, "128, 128", 4, 4, &[(4, 42), (5, 0)]);
        fill(&ring, &[nop(6), double(7)]);
        enter(cx, &mut ring, "one of three", 1, 1, &[(6, 0)]);
        enter(cx, &mut ring, "the rest", 2, 2, &[(7, 0)]);
        fill(&ring, &[nop(8), double(9).with(IOSQE_ASYNC)]);
        enter(cx, &mut ring, "more than there is", 8, 3, &[(8, 0), (9, 0)]);
    }
    Ok(())
}

fn mixed_last(cx: &mut Cx) -> Outcome {
    for flags in [MIXED, MIXED | IORING_SETUP_SUBMIT_ALL] {
        let mut ring = cx.ring(4, flags)?;
        fill(&ring, &[nop(1), nop(2), nop(3)]);
        enter(cx, &mut ring, "three", 3, 3, &[(1, 0), (2, 0), (3, 0)]);
        // A 128-byte SQE in the last slot; the first slot is read as an SQE of its own.
        ring.write_sqe(0, &nop(5));
        fill(&ring, &[double(4)]);
        ring.write_sqe(0, &nop(5));
        let all = flags & IORING_SETUP_SUBMIT_ALL != 0;
        let (took, want): (isize, &[_]) =
            if all { (2, &[(4, -EINVAL), (5, 0)]) } else { (1, &[(4, -EINVAL)]) };
        enter(cx, &mut ring, "in the last slot", 2, took, want);
        if !all {
            enter(cx, &mut ring, "what came then", 1, 1, &[(5, 0)]);
        }
        fill(&ring, &[double(6)]);
        ring.write_sqe(2, &nop(7));
        enter(cx, &mut ring, "one entry is left to submit", 1, 1, &[(6, -EINVAL)]);
        enter(cx, &mut ring, "the other", 1, 1, &[(7, 0)]);
        ring.write_sqe(3, &double(8));
        ring.set_array(3, 3);
        ring.set_sq_tail(ring.sq_tail() + 1);
        enter(cx, &mut ring, "one entry is there", 2, 1, &[(8, -EINVAL)]);
    }
    Ok(())
}

fn mixed_refused(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, MIXED | IORING_SETUP_SUBMIT_ALL)?;
    let rows = [
        ("an unknown flag", double(1).with(0x80), -EINVAL),
        ("an ioprio", double(1).set(|s| s.ioprio = 1), -EINVAL),
        ("a bad NOP flag", double(1).op_flags(1 << 31), -EINVAL),
        ("a provided buffer", double(1).with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
        ("no such personality", double(1).set(|s| s.personality = 9), -EINVAL),
    ];
    for (what, s, want) in rows {
        fill(&ring, &[s, nop(2)]);
        enter(cx, &mut ring, what, 3, 3, &[(1, want), (2, 0)]);
        while ring.sq_head() % 8 != 0 {
            fill(&ring, &[nop(3)]);
            ring.submit();
            ring.take(1)?;
        }
    }
    let mut ring = cx.ring(8, MIXED)?;
    fill(&ring, &[double(1).with(0x80), nop(2)]);
    enter(cx, &mut ring, "the end of a batch", 3, 2, &[(1, -EINVAL)]);
    enter(cx, &mut ring, "what follows", 1, 1, &[(2, 0)]);
    Ok(())
}

fn mixed_array(cx: &mut Cx) -> Outcome {
    let rows: [(&str, [u32; 4], u32, i32, u32); 5] = [
        ("1, 0", [1, 0, 0, 0], 0, 0, 2),
        ("1, 99", [1, 99, 0, 0], 0, 0, 2),
        ("0, 1", [0, 1, 2, 3], 0, 0, 2),
        ("the last slot", [3, 0, 0, 0], 0, -EINVAL, 1),
        ("from the last index", [0, 0, 0, 1], 3, 0, 2),
    ];
    for (what, array, before, want, took) in rows {
        let mut ring = cx.ring(4, MIXED)?;
        for i in 0..before {
            ring.set_array(i, 0);
            ring.write_sqe(0, &nop(9));
            ring.set_sq_tail(i + 1);
            ring.submit();
            ring.take(1)?;
        }
        (0..4).for_each(|i| ring.set_array(i, array[i as usize]));
        (0..4).for_each(|slot| ring.write_sqe(slot, &double(u64::from(slot))));
        ring.set_sq_tail(before + 2);
        let got = ring.enter(2, 0, IORING_ENTER_GETEVENTS);
        cx.is(what, got, took as isize);
        let cqe = ring.pop().unwrap_or_default();
        cx.note("slot", cqe.user_data);
        cx.is("result", cqe.res, want);
        cx.is("head", ring.sq_head(), before + took);
        cx.is("dropped", ring.sq_dropped(), 0u32);
    }
    Ok(())
}

fn mixed_linked(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, MIXED)?;
    fill(&ring, &[double(1).link(), double(2).link(), nop(3)]);
    enter(cx, &mut ring, "a chain", 5, 5, &[(1, 0), (2, 0), (3, 0)]);
    let fails = |ud| double(ud).op_flags(IORING_NOP_INJECT_RESULT).set(|s| s.len = -5i32 as u32);
    let mut ring = cx.ring(8, MIXED)?;
    fill(&ring, &[fails(1).link(), double(2)]);
    enter(cx, &mut ring, "a broken one", 4, 4, &[(1, -5), (2, -ECANCELED)]);
    let mut ring = cx.ring(8, MIXED | IORING_SETUP_SQPOLL)?;
    fill(&ring, &[nop(1), double(2), nop(3)]);
    ring.enter(0, 0, IORING_ENTER_SQ_WAKEUP);
    cx.reap(&mut ring, "by a thread", &[(1, 0), (2, 0), (3, 0)]);
    Ok(())
}

fn sqe128_on_other_rings(cx: &mut Cx) -> Outcome {
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let command = sqe::op(IORING_OP_URING_CMD128, udp.as_raw_fd());
    let mut plain = cx.ring(4, 0)?;
    cx.one(&mut plain, "NOP128 on a plain ring", sqe::op(IORING_OP_NOP128, -1), -EINVAL);
    cx.one(&mut plain, "a command", command, -EINVAL);
    let mut wide = cx.ring(4, IORING_SETUP_SQE128)?;
    for i in 0..5 {
        let what = format!("NOP128 {i} on a ring of wide ones");
        cx.one(&mut wide, &what, sqe::op(IORING_OP_NOP128, -1), 0);
        cx.one(&mut wide, "a command", command, 0);
    }
    cx.is("head", wide.sq_head(), 10u32);
    Ok(())
}

fn command(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, MIXED)?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let file = cx.file("f", b"x")?;
    let on = |fd: i32| sqe::op(IORING_OP_URING_CMD128, fd).ud(1);
    fill(&ring, &[on(udp.as_raw_fd())]);
    enter(cx, &mut ring, "SIOCINQ", 2, 2, &[(1, 0)]);
    fill(&ring, &[on(file.as_raw_fd())]);
    enter(cx, &mut ring, "of a file", 2, 2, &[(1, -EOPNOTSUPP)]);
    fill(&ring, &[on(-1)]);
    enter(cx, &mut ring, "of none", 2, 2, &[(1, -EBADF)]);
    fill(&ring, &[on(udp.as_raw_fd()).with(IOSQE_ASYNC)]);
    enter(cx, &mut ring, "by a worker", 2, 2, &[(1, 0)]);
    Ok(())
}

/// Resizes a ring, whose flags are written back.
fn resize(cx: &mut Cx, ring: &mut Ring, what: &str, sq_entries: u32, want: i32) -> Outcome {
    let mut p = io_uring_params { sq_entries, ..Default::default() };
    let got = ring.register_struct(IORING_REGISTER_RESIZE_RINGS, &mut p, 1);
    cx.is(what, got, want);
    let p = *std::hint::black_box(&p);
    cx.note("flags", format_args!("{:#x}", p.flags));
    if want == 0 {
        // The resize does not report the array's offset.
        let p = io_uring_params { flags: p.flags | NO_ARRAY, ..p };
        ring.remap(p)?;
    }
    Ok(())
}

fn mixed_resized(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, MIXED | DEFER | NO_ARRAY)?;
    resize(cx, &mut ring, "to one", 1, -EOVERFLOW)?;
    resize(cx, &mut ring, "to sixteen", 16, 0)?;
    fill(&ring, &[nop(1), double(2), nop(3)]);
    enter(cx, &mut ring, "64, 128, 64", 4, 4, &[(1, 0), (2, 0), (3, 0)]);
    resize(cx, &mut ring, "to two", 2, 0)?;
    fill(&ring, &[double(4)]);
    enter(cx, &mut ring, "one that fits exactly", 2, 2, &[(4, 0)]);
    Ok(())
}

fn rewind(cx: &mut Cx) -> Outcome {
    for flags in [REWIND, REWIND | DEFER] {
        let mut ring = cx.ring(4, flags)?;
        (0..4).for_each(|i| ring.write_sqe(i, &nop(i.into())));
        enter(cx, &mut ring, "two", 2, 2, &[(0, 0), (1, 0)]);
        enter(cx, &mut ring, "two again", 2, 2, &[(0, 0), (1, 0)]);
        enter(cx, &mut ring, "more than there are", 7, 4, &[(0, 0), (1, 0), (2, 0), (3, 0)]);
        enter(cx, &mut ring, "none", 0, 0, &[]);
        let head = ring.ring_word(ring.params.sq_off.head);
        head.store(5, std::sync::atomic::Ordering::Relaxed);
        ring.set_sq_tail(9);
        enter(cx, &mut ring, "head and tail elsewhere", 3, 3, &[(0, 0), (1, 0), (2, 0)]);
        cx.is("head", ring.sq_head(), 5u32);
        cx.is("tail", ring.sq_tail(), 9u32);
    }
    Ok(())
}

fn rewind_ends(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, REWIND)?;
    ring.write_sqe(0, &nop(0));
    ring.write_sqe(1, &sqe::op(200, -1).ud(1));
    ring.write_sqe(2, &nop(2));
    enter(cx, &mut ring, "a bad one", 3, 2, &[(0, 0), (1, -EINVAL)]);
    enter(cx, &mut ring, "again", 3, 2, &[(0, 0), (1, -EINVAL)]);
    ring.write_sqe(1, &nop(1).link());
    enter(cx, &mut ring, "a chain that is cut off", 2, 2, &[(0, 0), (1, 0)]);
    let mut ring = cx.ring(4, REWIND | IORING_SETUP_R_DISABLED)?;
    ring.write_sqe(0, &nop(0));
    cx.is("disabled", ring.enter(1, 0, 0), -(EBADFD as isize));
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    enter(cx, &mut ring, "enabled", 1, 1, &[(0, 0)]);
    Ok(())
}

fn rewind_poll(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, REWIND)?;
    for (what, tail) in [("tail 0", 0), ("tail 3", 3), ("tail 4", 4)] {
        ring.set_sq_tail(tail);
        let events = os::poll(ring.fd, libc::POLLOUT, 0);
        cx.note(what, events);
    }
    ring.write_sqe(0, &nop(0));
    cx.is("submit", ring.enter(1, 0, 0), 1isize);
    cx.note("then", os::poll(ring.fd, libc::POLLOUT, 0));
    Ok(())
}

fn rewind_mixed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, REWIND | MIXED)?;
    ring.write_sqe(0, &double(0));
    ring.write_sqe(2, &double(2));
    enter(cx, &mut ring, "four", 4, 4, &[(0, 0), (2, 0)]);
    enter(cx, &mut ring, "three", 3, 3, &[(0, 0), (2, -EINVAL)]);
    enter(cx, &mut ring, "two", 2, 2, &[(0, 0)]);
    Ok(())
}

fn rewind_resized(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, REWIND | DEFER)?;
    resize(cx, &mut ring, "to eight", 8, 0)?;
    (0..8).for_each(|i| ring.write_sqe(i, &nop(i.into())));
    let all: Vec<_> = (0..8).map(|i| (i, 0)).collect();
    enter(cx, &mut ring, "nine", 9, 8, &all);
    enter(cx, &mut ring, "two", 2, 2, &[(0, 0), (1, 0)]);
    Ok(())
}
