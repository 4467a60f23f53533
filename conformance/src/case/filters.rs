//! BPF filters of a ring, and of a task for the rings that it makes.

use super::prelude::*;
use super::rules::{
    ALLOW, CALL, DENY, RESTRICT, add, allow, call, insn, lay, of, ret, task_of, word_is,
};
use crate::rights;
use crate::ring::Map;
use libc::EMSGSIZE;
use std::net::UdpSocket;

pub const CASES: &[Case] = &[
    newest!("filters", verdict, [Reg(IORING_REGISTER_BPF_FILTER)], "the verdict of a filter decides about the request"),
    newest!("filters", data, [Reg(IORING_REGISTER_BPF_FILTER)], "data that a filter may load"),
    newest!("filters", order, [Reg(IORING_REGISTER_BPF_FILTER)], "filters run after the other checks of an SQE"),
    newest!("filters", chains, [Reg(IORING_REGISTER_BPF_FILTER)], "a filter denies requests in chains and batches"),
    newest!("filters", stack, [Reg(IORING_REGISTER_BPF_FILTER)], "stacked filters, and a default that denies other requests"),
    newest!("filters", sizes, [Reg(IORING_REGISTER_BPF_FILTER)], "sizes of the data that a filter sees"),
    newest!("filters", refusals, [Reg(IORING_REGISTER_BPF_FILTER)], "bad filters and bad programs"),
    newest!("filters", task, [Reg(IORING_REGISTER_BPF_FILTER)], "filters of a task"),
];

fn verdict(cx: &mut Cx) -> Outcome {
    for (verdict, want) in [(0, -EACCES), (1, 0), (2, 0), (u32::MAX, 0), (1 << 31, 0)] {
        let mut ring = cx.ring(4, 0)?;
        let program = [ret(verdict)];
        cx.is("register", add(&ring, &of(IORING_OP_NOP, &program)), 0);
        cx.one(&mut ring, &format!("{verdict:#x}"), sqe::nop(), want);
        cx.one(&mut ring, "by a worker", sqe::nop().with(IOSQE_ASYNC), want);
        cx.one(&mut ring, "another opcode", sqe::cancel(77, 0), -ENOENT);
    }
    let rows: [(&str, &[sock_filter]); 13] = [
        ("the length", &[insn(0x80, 0, 0, 0), insn(0x15, 0, 1, 40), ret(1), ret(0)]),
        ("LDX of it", &[
            insn(0x81, 0, 0, 0), insn(0x87, 0, 0, 0), insn(0x15, 0, 1, 40), ret(1), ret(0),
        ]),
        ("A returned", &[insn(0, 0, 0, 5), insn(0x16, 0, 0, 0)]),
        ("zero returned", &[insn(0, 0, 0, 5), insn(0x14, 0, 0, 5), insn(0x16, 0, 0, 0)]),
        ("memory", &[
            insn(0, 0, 0, 9), insn(2, 0, 0, 15), insn(0, 0, 0, 0), insn(0x60, 0, 0, 15),
            insn(0x16, 0, 0, 0),
        ]),
        ("by X, which is 0", &[insn(0, 0, 0, 9), insn(1, 0, 0, 0), insn(0x3c, 0, 0, 0), ret(1)]),
        ("by X", &[insn(0, 0, 0, 9), insn(1, 0, 0, 10), insn(0x3c, 0, 0, 0), insn(0x16, 0, 0, 0)]),
        ("a far shift by X", &[
            insn(0, 0, 0, 1), insn(1, 0, 0, 33), insn(0x6c, 0, 0, 0), insn(0x15, 0, 1, 2),
            ret(1), ret(0),
        ]),
        ("negated", &[
            insn(0, 0, 0, 1), insn(0x84, 0, 0, 0), insn(0x15, 0, 1, u32::MAX), ret(1), ret(0),
        ]),
        ("xor", &[insn(0, 0, 0, 6), insn(0xa4, 0, 0, 3), insn(0x15, 0, 1, 5), ret(1), ret(0)]),
        ("a jump", &[insn(5, 0, 0, 1), ret(0), ret(1)]),
        ("unsigned", &[insn(0, 0, 0, 1 << 31), insn(0x25, 0, 1, 1), ret(1), ret(0)]),
        ("bits", &[insn(0, 0, 0, 6), insn(0x45, 0, 1, 1), ret(1), ret(0)]),
    ];
    for (what, program) in rows {
        let mut ring = cx.ring(4, 0)?;
        cx.is(what, add(&ring, &of(IORING_OP_NOP, program)), 0);
        let got = ring.push(sqe::nop()).submit_wait(1);
        cx.is("entered", got, 1);
        cx.note_answer("verdict", ring.take(1)?[0].res);
    }
    Ok(())
}

/// Records the ten words of a request that a filter reads, by one filter for each bit.
fn words(cx: &mut Cx, what: &str, s: io_uring_sqe) -> Outcome {
    let mut told = [0u32; 10];
    for (at, word) in (0..).step_by(4).zip(told.iter_mut()) {
        for bit in 0..32 {
            let mut ring = Ring::new(cx.entry, 2, 0)?;
            let program = [insn(0x20, 0, 0, at), insn(0x45, 0, 1, 1 << bit), ret(0), ret(1)];
            if add(&ring, &of(s.opcode, &program)) != 0 {
                return Err(Stop::Fail("no filter".into()));
            }
            ring.push(s).submit_wait(1);
            let res = ring.take(1)?[0].res;
            *word |= u32::from(res == -EACCES) << bit;
            let opens = [IORING_OP_OPENAT, IORING_OP_OPENAT2, IORING_OP_SOCKET];
            if res >= 0 && opens.contains(&s.opcode) {
                os::close(res);
            }
        }
    }
    cx.note(what, format_args!("{told:x?}"));
    Ok(())
}

fn data(cx: &mut Cx) -> Outcome {
    let path = cx.path("f")?;
    cx.file("f", b"x")?;
    let ud = 0x1234_5678_9abc_def0;
    words(cx, "NOP", sqe::nop().with(IOSQE_ASYNC).ud(ud))?;
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0o644, 0);
    let flags = |f: i32| f.cast_unsigned();
    words(cx, "OPENAT", open.op_flags(flags(libc::O_RDWR | libc::O_CLOEXEC)).ud(1))?;
    words(cx, "OPENAT, creating", open.op_flags(flags(libc::O_RDWR | libc::O_CREAT)).ud(1))?;
    words(cx, "OPENAT, path only", open.op_flags(flags(libc::O_PATH | libc::O_RDWR)).ud(1))?;
    let how = [flags(libc::O_RDONLY).into(), 0u64, 0x8];
    let open2 = sqe::rw(IORING_OP_OPENAT2, libc::AT_FDCWD, addr(&*path), 24, addr(&how) as u64);
    words(cx, "OPENAT2", open2.ud(1))?;
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
    let socket = sqe::rw(IORING_OP_SOCKET, libc::AF_INET, 0, 17, kind);
    words(cx, "SOCKET", socket.ud(1))
}

fn name_of(cx: &mut Cx, what: &str, name: &[u8], len: u64) -> Outcome {
    let s = UdpSocket::bind("127.0.0.1:0")?;
    let connect = sqe::rw(IORING_OP_CONNECT, s.as_raw_fd(), addr(name), 0, len).ud(1);
    words(cx, what, connect)
}

fn order(cx: &mut Cx) -> Outcome {
    let mut name4 = [0u8; 16];
    name4[..8].copy_from_slice(&[2, 0, 0x12, 0x34, 127, 0, 0, 9]);
    let mut name6 = [0u8; 28];
    name6[..4].copy_from_slice(&[10, 0, 0x12, 0x34]);
    name6[8..24].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    for len in [0, 1, 2, 4, 8, 15, 16] {
        name_of(cx, &format!("CONNECT, {len} bytes"), &name4, len)?;
    }
    for len in [8, 24, 27, 28] {
        name_of(cx, &format!("CONNECT, {len} bytes of another family"), &name6, len)?;
    }
    name_of(cx, "CONNECT to a path", &[1, 0, b'/', b'x', 0], 5)?;
    let mut ring = cx.ring(8, IORING_SETUP_R_DISABLED)?;
    cx.is("deny NOP", add(&ring, &of(IORING_OP_NOP, &DENY)), 0);
    cx.is("deny TIMEOUT", add(&ring, &of(IORING_OP_TIMEOUT, &DENY)), 0);
    cx.is("deny READ", add(&ring, &of(IORING_OP_READ, &DENY)), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    let none = sqe::rw(IORING_OP_TIMEOUT, -1, 0, 1, 0);
    let ts = sqe::millis(1);
    cx.each(&mut ring, &[
        ("a bad NOP flag", sqe::nop().op_flags(1 << 31), -EINVAL),
        ("no timespec", none, -EFAULT),
        ("a timespec", sqe::timeout(&ts, 0, 0), -EACCES),
        ("READ of nothing", sqe::op(IORING_OP_READ, -1), -EACCES),
        ("an unknown flag", sqe::nop().with(0x80), -EINVAL),
        ("a personality", sqe::nop().set(|s| s.personality = 3), -EINVAL),
        ("no CQE", sqe::nop().with(IOSQE_CQE_SKIP_SUCCESS), -EACCES),
    ]);
    let mut ring = cx.ring(8, IORING_SETUP_R_DISABLED)?;
    let rows = [allow(IORING_OP_READ), call(CALL), call(IORING_REGISTER_ENABLE_RINGS)];
    cx.is("restrict", ring.register_slice(RESTRICT, &rows), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    cx.is("allow NOP", add(&ring, &of(IORING_OP_NOP, &ALLOW)), 0);
    cx.one(&mut ring, "restricted all the same", sqe::nop(), -EACCES);
    Ok(())
}

fn chains(cx: &mut Cx) -> Outcome {
    for flags in [0, IORING_SETUP_SUBMIT_ALL] {
        let mut ring = cx.ring(8, flags)?;
        cx.is("register", add(&ring, &of(IORING_OP_NOP, &word_is(0, 1))), 0);
        let nop = |ud| sqe::nop().ud(ud);
        for s in [nop(1), nop(2), nop(1)] {
            ring.push(s);
        }
        let got = ring.submit();
        let all = flags != 0;
        cx.is("a batch", got, if all { 3 } else { 2 });
        let want = &[(1, 0), (1, 0), (2, -EACCES)][usize::from(!all)..];
        cx.reap(&mut ring, "what came", want);
        let mut ring = cx.ring(8, flags)?;
        cx.is("register", add(&ring, &of(IORING_OP_NOP, &word_is(0, 1))), 0);
        for s in [nop(1).link(), nop(2).link(), nop(1)] {
            ring.push(s);
        }
        cx.note_answer("a chain", ring.submit());
        let want = [(1, -ECANCELED), (1, -ECANCELED), (2, -EACCES)];
        cx.reap(&mut ring, "what came", &want);
    }
    let mut ring = cx.ring(8, IORING_SETUP_SQPOLL)?;
    cx.is("register", add(&ring, &of(IORING_OP_NOP, &DENY)), 0);
    ring.push(sqe::nop().ud(4)).enter(0, 0, IORING_ENTER_SQ_WAKEUP);
    cx.reap(&mut ring, "by a thread", &[(4, -EACCES)]);
    Ok(())
}

fn stack(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let one_of = |a: u32, b: u32| {
        [insn(0x20, 0, 0, 0), insn(0x15, 1, 0, a), insn(0x15, 0, 1, b), ret(1), ret(0)]
    };
    cx.is("low half is 1 or 2", add(&ring, &of(IORING_OP_NOP, &one_of(1, 2))), 0);
    cx.is("is 2 or 3", add(&ring, &of(IORING_OP_NOP, &one_of(2, 3))), 0);
    for (ud, want) in [(1, -EACCES), (2, 0), (3, -EACCES)] {
        cx.one(&mut ring, &format!("{ud}"), sqe::nop().ud(ud), want);
    }
    let mut ring = cx.ring(8, 0)?;
    let cancel = sqe::cancel(77, 0);
    let socket = sqe::rw(IORING_OP_SOCKET, 77, 0, 0, 1);
    cx.is("NOP", add(&ring, &of(IORING_OP_NOP, &ALLOW)), 0);
    let flags = IO_URING_BPF_FILTER_DENY_REST;
    let rest = io_uring_bpf { flags, ..of(IORING_OP_ASYNC_CANCEL, &ALLOW) };
    cx.is("a cancellation, and no other", add(&ring, &rest), 0);
    cx.one(&mut ring, "NOP", sqe::nop(), 0);
    cx.one(&mut ring, "cancel", cancel, -ENOENT);
    cx.one(&mut ring, "a socket", socket, -EACCES);
    cx.is("allow sockets", add(&ring, &of(IORING_OP_SOCKET, &ALLOW)), 0);
    cx.one(&mut ring, "a socket", socket, -EACCES);
    cx.is("deny NOP", add(&ring, &of(IORING_OP_NOP, &DENY)), 0);
    cx.one(&mut ring, "NOP", sqe::nop(), -EACCES);
    Ok(())
}

fn sizes(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let sizes = [
        (IORING_OP_NOP, 0),
        (IORING_OP_SOCKET, 12),
        (IORING_OP_OPENAT, 24),
        (IORING_OP_OPENAT2, 24),
        (IORING_OP_CONNECT, 24),
        (IORING_OP_BIND, 0),
        (IORING_OP_URING_CMD128, 0),
    ];
    for (opcode, size) in sizes {
        for asked in [0, 8, 12, 20, 24, 28, 255] {
            for flags in [0, IO_URING_BPF_FILTER_SZ_STRICT] {
                let mut f = io_uring_bpf { pdu_size: asked, flags, ..of(opcode, &ALLOW) };
                let bad = asked > size || (flags != 0 && asked != size);
                let got = ring.register_struct(CALL, &mut f, 1);
                cx.is(&format!("{opcode} {asked} {flags}"), got, if bad { -EMSGSIZE } else { 0 });
                cx.is("there", i32::from(std::hint::black_box(&f).pdu_size), i32::from(size));
            }
        }
    }
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let good = of(IORING_OP_NOP, &ALLOW);
    let bad = [insn(0x30, 0, 0, 8)];
    let much = io_uring_bpf { pdu_size: 9, ..good };
    let long = vec![insn(0, 0, 0, 1); 4095];
    let full: Vec<_> = long.iter().copied().chain(ALLOW).collect();
    let over: Vec<_> = long.iter().copied().chain([insn(0, 0, 0, 1), ret(1)]).collect();
    let memory = Map::anonymous(4096)?;
    let rows: Vec<(&str, io_uring_bpf, i32)> = vec![
        ("type 0", io_uring_bpf { cmd_type: 0, ..good }, -EINVAL),
        ("type 2", io_uring_bpf { cmd_type: 2, ..good }, -EINVAL),
        ("a flag of the call", io_uring_bpf { cmd_flags: 1, ..good }, -EINVAL),
        ("reserved", io_uring_bpf { resv: 1, ..good }, -EINVAL),
        ("reserved in the middle", io_uring_bpf { resv1: [0, 0, 1], ..good }, -EINVAL),
        ("reserved at the end", io_uring_bpf { resv2: [0, 0, 0, 0, 1], ..good }, -EINVAL),
        ("opcode 65", io_uring_bpf { opcode: 65, ..good }, -EINVAL),
        ("an unknown flag", io_uring_bpf { flags: 4, ..good }, -EINVAL),
        ("no length", io_uring_bpf { filter_len: 0, ..good }, -EINVAL),
        ("no program", io_uring_bpf { filter_ptr: 0, ..good }, -EINVAL),
        ("unmapped", io_uring_bpf { filter_ptr: BAD as u64, ..good }, -EFAULT),
        ("zeroes", of(IORING_OP_NOP, &[sock_filter::default()]), -EINVAL),
        ("4096 instructions", of(IORING_OP_NOP, &full), 0),
        ("4097 instructions", of(IORING_OP_NOP, &over), -EINVAL),
        ("unmapped and too much", io_uring_bpf { filter_ptr: BAD as u64, ..much }, -EMSGSIZE),
        ("bad and too much", io_uring_bpf { filter_ptr: addr(&bad) as u64, ..much }, -EMSGSIZE),
        ("no length and too much", io_uring_bpf { filter_len: 0, ..much }, -EINVAL),
    ];
    for (what, f, want) in &rows {
        cx.is(what, add(&ring, f), *want);
    }
    let programs: [(&str, &[sock_filter]); 14] = [
        ("no end", &[insn(0, 0, 0, 1)]),
        ("a byte", &[insn(0x30, 0, 0, 8), ret(1)]),
        ("half a word", &[insn(0x28, 0, 0, 8), ret(1)]),
        ("not aligned", &[insn(0x20, 0, 0, 2), ret(1)]),
        ("behind the end", &[insn(0x20, 0, 0, 40), ret(1)]),
        ("by X", &[insn(0x40, 0, 0, 0), ret(1)]),
        ("a remainder", &[insn(0x94, 0, 0, 3), ret(1)]),
        ("by zero", &[insn(0x34, 0, 0, 0), ret(1)]),
        ("a far shift", &[insn(0x64, 0, 0, 32), ret(1)]),
        ("a jump behind the end", &[insn(0x15, 1, 0, 0), ret(1)]),
        ("a cell not written", &[insn(0x60, 0, 0, 0), ret(1)]),
        ("the 17th cell", &[insn(2, 0, 0, 16), ret(1)]),
        ("X returned", &[insn(0x0e, 0, 0, 0)]),
        ("an unknown code", &[insn(0xffff, 0, 0, 0), ret(1)]),
    ];
    for (what, program) in programs {
        cx.is(what, add(&ring, &of(IORING_OP_NOP, program)), -(EINVAL as isize));
    }
    cx.registers(&ring, &[
        ("null", CALL, 0, 1, -EFAULT),
        ("unreadable", CALL, BAD, 1, -EFAULT),
        ("no count", CALL, addr(&good), 0, -EINVAL),
        ("two", CALL, addr(&good), 2, -EINVAL),
        ("zeroes", CALL, memory.addr, 1, -EINVAL),
    ]);
    Ok(())
}

fn task(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let task = |f: &io_uring_bpf, nr: u32| entry::register(cx.entry, -1, CALL, addr(f), nr);
    let program = word_is(0, 1);
    let one = of(IORING_OP_NOP, &program);
    let got = [task(&one, 0), task(&one, 1)];
    let null = entry::register(cx.entry, -1, CALL, 0, 1);
    cx.is("no count", got[0], -(EINVAL as isize));
    cx.is("a filter", got[1], 0);
    cx.is("null", null, -(EFAULT as isize));
    cx.is("restrictions after it", lay(cx, &task_of([allow(0)])), -EPERM);
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "1", sqe::nop().ud(1), 0);
    cx.one(&mut ring, "2", sqe::nop().ud(2), -EACCES);
    cx.is("a ring's own", add(&ring, &of(IORING_OP_NOP, &ALLOW)), 0);
    cx.one(&mut ring, "does not loosen", sqe::nop().ud(2), -EACCES);
    cx.is("and forbids", add(&ring, &of(IORING_OP_NOP, &DENY)), 0);
    cx.one(&mut ring, "1", sqe::nop().ud(1), -EACCES);
    let mut other = cx.ring(4, 0)?;
    cx.one(&mut other, "1 on another ring", sqe::nop().ud(1), 0);
    let entry = cx.entry;
    let child = os::in_child(|| {
        let denied = entry::register(entry, -1, CALL, addr(&of(IORING_OP_NOP, &DENY)), 1);
        let ring = Ring::new(entry, 4, 0);
        let res = ring.ok().and_then(|mut r| {
            r.push(sqe::nop().ud(1)).submit_wait(1);
            r.pop().map(|cqe| cqe.res)
        });
        i32::from((denied, res) != (0, Some(-EACCES)))
    });
    cx.is("a child adds its own", child, 0);
    let mut last = cx.ring(4, 0)?;
    cx.one(&mut last, "which the parent has not", sqe::nop().ud(1), 0);
    let more = task_of([allow(IORING_OP_NOP)]);
    cx.is("restrictions", lay(cx, &more), -EPERM);
    Ok(())
}

