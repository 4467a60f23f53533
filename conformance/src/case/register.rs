//! `io_uring_register(2)`: everything but tables of files and buffers.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("register", bad_calls, [], "bad fds and unknown opcodes"),
    case!("register", probe, [Reg(IORING_REGISTER_PROBE)], "the probe names the supported operations"),
    case!("register", probe_refusals, [Reg(IORING_REGISTER_PROBE)], "bad counts, pointers and a probe that is not zeroed"),
    legal!("register", personality, [
        Reg(IORING_REGISTER_PERSONALITY), Reg(IORING_UNREGISTER_PERSONALITY),
    ], "registered credentials get an id for SQEs"),
    legal!("register", iowq_affinity, [
        Reg(IORING_REGISTER_IOWQ_AFF), Reg(IORING_UNREGISTER_IOWQ_AFF),
    ], "workers may be bound to CPUs"),
    case!("register", iowq_max_workers, [Reg(IORING_REGISTER_IOWQ_MAX_WORKERS)], "limits of workers are set and returned"),
    case!("register", ring_fds, [
        Reg(IORING_REGISTER_RING_FDS), Reg(IORING_UNREGISTER_RING_FDS),
    ], "ring fds are registered at chosen and at free indices"),
    case!("register", by_registered_ring, [Reg(IORING_REGISTER_RING_FDS)], "register calls may name a ring by its index"),
    case!("register", query, [Reg(IORING_REGISTER_QUERY)], "the query of opcodes, without and with a ring"),
];

fn bad_calls(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let call = |fd: i32, opcode: u32| entry::register(cx.entry, fd, opcode, 0, 0);
    let rows = [
        ("-1", call(-1, IORING_UNREGISTER_FILES), -EINVAL),
        ("not open", call(1234, IORING_UNREGISTER_FILES), -EBADF),
        ("a file", call(file.as_raw_fd(), IORING_UNREGISTER_FILES), -EOPNOTSUPP),
        ("unknown opcode", call(ring.fd, cx.abi().registers), -EINVAL),
        ("a BPF filter", call(ring.fd, 37), -EINVAL),
        ("unknown opcode of a bad fd", call(1234, cx.abi().registers), -EINVAL),
        ("all bits", call(ring.fd, u32::MAX), -EINVAL),
        ("unknown high bit", call(ring.fd, 1 << 30 | IORING_UNREGISTER_FILES), -EINVAL),
    ];
    rows.into_iter().for_each(|(what, got, want)| cx.is(what, got, want));
    Ok(())
}

/// A probe and the ops that follow it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Probe {
    head: io_uring_probe,
    ops: [io_uring_probe_op; 256],
}

impl Probe {
    fn zeroed() -> Self {
        Self { head: io_uring_probe::default(), ops: [io_uring_probe_op::default(); 256] }
    }
}

fn probe(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut p = Probe::zeroed();
    cx.is("256", ring.register_struct(IORING_REGISTER_PROBE, &mut p, 256), 0);
    let p = std::hint::black_box(&p);
    let known = cx.abi().ops;
    cx.is("last", u32::from(p.head.last_op), u32::from(known) - 1);
    cx.is("length", u32::from(p.head.ops_len), u32::from(known));
    for op in crate::coverage::ops().filter(|op| *op < known) {
        let row = p.ops[usize::from(op)];
        let name = OP_NAMES[usize::from(op)];
        cx.is(name, u32::from(row.op), u32::from(op));
        cx.is("supported", u32::from(row.flags), u32::from(IO_URING_OP_SUPPORTED));
    }
    let beyond = p.ops[usize::from(known)..].iter().all(|o| o.op == 0 && o.flags == 0);
    cx.holds("nothing beyond the last", beyond);
    let mut few = Probe::zeroed();
    cx.is("3", ring.register_struct(IORING_REGISTER_PROBE, &mut few, 3), 0);
    let few = std::hint::black_box(&few);
    cx.is("length", u32::from(few.head.ops_len), 3);
    cx.is("the third", u32::from(few.ops[2].op), 2);
    cx.is("not the fourth", u32::from(few.ops[3].op), 0);
    Ok(())
}

fn probe_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let zeroed = Probe::zeroed();
    let mut dirty = [Probe::zeroed(); 3];
    dirty[0].head.ops_len = 1;
    dirty[1].ops[0].op = 1;
    dirty[2].ops[9].op = 1;
    let op = IORING_REGISTER_PROBE;
    cx.registers(&ring, &[
        ("257", op, addr(&zeroed), 257, -EINVAL),
        ("null", op, 0, 8, -EINVAL),
        ("unmapped", op, BAD, 8, -EFAULT),
        ("head not zero", op, addr(&dirty[0]), 8, -EINVAL),
        ("first op not zero", op, addr(&dirty[1]), 8, -EINVAL),
        ("op beyond the asked not zero", op, addr(&dirty[2]), 8, 0),
        ("read-only", op, os::page(libc::PROT_READ), 8, -EFAULT),
    ]);
    let mut none = Probe::zeroed();
    cx.is("none", ring.register_struct(op, &mut none, 0), 0);
    cx.note("last", std::hint::black_box(&none).head.last_op);
    Ok(())
}

fn personality(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (reg, unreg) = (IORING_REGISTER_PERSONALITY, IORING_UNREGISTER_PERSONALITY);
    let first = ring.register(reg, 0, 0);
    cx.is("first", first, 1);
    cx.is("second", ring.register(reg, 0, 0), 2);
    let nop = |id| sqe::nop().set(|s| s.personality = id);
    let path = cx.path("f")?;
    cx.file("f", b"")?;
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    cx.each(&mut ring, &[
        ("nop with the first", nop(1), 0),
        ("nop with the second", nop(2), 0),
        ("nop with a third", nop(3), -EINVAL),
        ("in a worker", nop(1).with(IOSQE_ASYNC), 0),
    ]);
    let fd = cx.one_fd(&mut ring, "open with it", open.set(|s| s.personality = 1))?;
    drop(fd);
    cx.registers(&ring, &[
        ("with a pointer", reg, BAD, 0, -EINVAL),
        ("with a count", reg, 0, 1, -EINVAL),
        ("unregister with a pointer", unreg, BAD, 1, -EINVAL),
        ("unregister the first", unreg, 0, 1, 0),
        ("again", unreg, 0, 1, -EINVAL),
        ("unregister none", unreg, 0, 0, -EINVAL),
    ]);
    cx.one(&mut ring, "nop with the first", nop(1), -EINVAL);
    cx.note_answer("next id", ring.register(reg, 0, 0));
    Ok(())
}

fn iowq_affinity(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (reg, unreg) = (IORING_REGISTER_IOWQ_AFF, IORING_UNREGISTER_IOWQ_AFF);
    let (first, none) = (1u64, 0u64);
    let mut far = [0u64; 17];
    (far[0], far[16]) = (1, 1 << 63);
    cx.registers(&ring, &[
        ("the first CPU", reg, addr(&first), 8, 0),
        ("null", reg, 0, 8, -EINVAL),
        ("length 0", reg, addr(&first), 0, -EINVAL),
        ("unmapped", reg, BAD, 8, -EFAULT),
        ("no CPU", reg, addr(&none), 8, 0),
        ("one that no machine has", reg, addr(&far), 136, 0),
        ("unregister with a pointer", unreg, BAD, 0, -EINVAL),
        ("unregister with a count", unreg, 0, 1, -EINVAL),
    ]);
    cx.one(&mut ring, "work on it", sqe::nop().with(IOSQE_ASYNC), 0);
    cx.is("unregister", ring.register(unreg, 0, 0), 0);
    cx.is("again", ring.register(unreg, 0, 0), 0);
    Ok(())
}

fn iowq_max_workers(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let op = IORING_REGISTER_IOWQ_MAX_WORKERS;
    let mut set = |what: &str, mut v: [u32; 2]| {
        let got = ring.register_struct(op, &mut v, 2);
        cx.is(what, got, 0);
        *std::hint::black_box(&v)
    };
    let first = set("ask", [0, 0]);
    let told = set("set both", [3, 5]);
    let second = set("set one", [7, 0]);
    let third = set("ask", [0, 0]);
    cx.eq("asking changes nothing", told, first);
    cx.eq("told after both", second, [3, 5]);
    cx.eq("told after one", third, [7, 5]);
    let v = [1u32, 1];
    cx.registers(&ring, &[
        ("null", op, 0, 2, -EINVAL),
        ("count 1", op, addr(&v), 1, -EINVAL),
        ("count 3", op, addr(&v), 3, -EINVAL),
        ("unmapped", op, BAD, 2, -EFAULT),
    ]);
    // All rings of a thread share its workers.
    let mut v = [0, 9];
    let other = cx.ring(4, 0)?;
    cx.is("another ring", other.register_struct(op, &mut v, 2), 0);
    cx.eq("it tells the same", *std::hint::black_box(&v), [7, 5]);
    v = [0, 0];
    cx.is("the first ring", ring.register_struct(op, &mut v, 2), 0);
    cx.eq("it tells the same", *std::hint::black_box(&v), [7, 9]);
    let over = [i32::MAX.cast_unsigned() + 1, 0];
    cx.note_answer("more than an int holds", ring.register(op, addr(&over), 2));
    Ok(())
}

fn ring_row(offset: u32, fd: i32) -> io_uring_rsrc_update {
    io_uring_rsrc_update { offset, resv: 0, data: u64::from(fd.cast_unsigned()) }
}

fn ring_fds(cx: &mut Cx) -> Outcome {
    let (a, b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let file = cx.file("f", b"")?;
    let (reg, unreg) = (IORING_REGISTER_RING_FDS, IORING_UNREGISTER_RING_FDS);
    let mut call = |what: &str, op: u32, mut row: io_uring_rsrc_update, want: i32| {
        let got = a.register_struct(op, &mut row, 1);
        cx.is(what, got, want);
        std::hint::black_box(&row).offset
    };
    let index = call("at 5", reg, ring_row(5, a.fd), 1);
    call("at 5 again", reg, ring_row(5, b.fd), -EBUSY);
    let free = call("anywhere", reg, ring_row(u32::MAX, b.fd), 1);
    call("beyond the table", reg, ring_row(16, b.fd), -EINVAL);
    call("reserved", reg, io_uring_rsrc_update { resv: 1, ..ring_row(6, b.fd) }, -EINVAL);
    call("no fd", reg, ring_row(6, -1), -EBADF);
    call("a file", reg, ring_row(6, file.as_raw_fd()), -EOPNOTSUPP);
    call("unregister a free one", unreg, ring_row(9, 0), 1);
    call("unregister beyond", unreg, ring_row(16, 0), -EINVAL);
    call("unregister 5", unreg, ring_row(5, 0), 1);
    cx.eq("indices", (index, free), (5, 0));
    let row = [ring_row(1, b.fd)];
    cx.registers(&a, &[
        ("none", reg, addr(&row), 0, -EINVAL),
        ("too many", reg, addr(&row), 17, -EINVAL),
        ("unmapped", reg, BAD, 1, -EFAULT),
        ("unregister too many", unreg, addr(&row), 17, -EINVAL),
    ]);
    Ok(())
}

fn by_registered_ring(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut row = [ring_row(3, ring.fd)];
    cx.is("register", ring.register(IORING_REGISTER_RING_FDS, addr_mut(&mut row), 1), 1);
    let call = |index: i32, op: u32, arg: usize, nr: u32| {
        entry::register(cx.entry, index, op | IORING_REGISTER_USE_REGISTERED_RING, arg, nr)
    };
    let fds = [0];
    let rows = [
        ("files by index", call(3, IORING_REGISTER_FILES, addr(&fds), 1), 0),
        ("free index", call(4, IORING_UNREGISTER_FILES, 0, 0), -EBADF),
        ("beyond the table", call(16, IORING_UNREGISTER_FILES, 0, 0), -EINVAL),
        ("-1", call(-1, IORING_UNREGISTER_FILES, 0, 0), -EINVAL),
    ];
    rows.into_iter().for_each(|(what, got, want)| cx.is(what, got, want));
    cx.is("unregister by fd", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    Ok(())
}

fn query(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut op = io_uring_query_opcode::default();
    let hdr = io_uring_query_hdr {
        query_data: addr_mut(&mut op) as u64,
        query_op: IO_URING_QUERY_OPCODES,
        size: size_of_val(&op) as u32,
        ..Default::default()
    };
    for (what, fd) in [("without a ring", -1), ("with one", ring.fd)] {
        let mut h = hdr;
        let got = entry::register(cx.entry, fd, IORING_REGISTER_QUERY, addr_mut(&mut h), 0);
        cx.is(what, got, 0);
        let h = *std::hint::black_box(&h);
        cx.is("result", h.result, 0);
        cx.note("size", h.size);
    }
    let op = *std::hint::black_box(&op);
    let abi = cx.abi();
    cx.is("request opcodes", op.nr_request_opcodes, u32::from(abi.ops));
    cx.is("register opcodes", op.nr_register_opcodes, abi.registers);
    cx.note("features", format_args!("{:#x}", op.feature_flags));
    cx.note("setup flags", format_args!("{:#x}", op.ring_setup_flags));
    cx.note("enter flags", format_args!("{:#x}", op.enter_flags));
    cx.note("SQE flags", format_args!("{:#x}", op.sqe_flags));
    cx.note("queries", op.nr_query_opcodes);
    let mut unknown = io_uring_query_hdr { query_op: 1000, ..hdr };
    let got = ring.register_struct(IORING_REGISTER_QUERY, &mut unknown, 0);
    cx.is("unknown query", got, 0);
    cx.is("its result", std::hint::black_box(&unknown).result, -EOPNOTSUPP);
    let mut dirty = io_uring_query_hdr { resv: [1, 0, 0], ..hdr };
    let got = ring.register_struct(IORING_REGISTER_QUERY, &mut dirty, 0);
    cx.note_answer("reserved", got);
    cx.note_answer("its result", std::hint::black_box(&dirty).result);
    cx.registers(&ring, &[
        ("null", IORING_REGISTER_QUERY, 0, 0, 0),
        ("unmapped", IORING_REGISTER_QUERY, BAD, 0, -EFAULT),
        ("a count", IORING_REGISTER_QUERY, addr(&hdr), 1, -EINVAL),
    ]);
    Ok(())
}
