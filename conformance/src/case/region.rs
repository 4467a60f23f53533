//! Ring memory after setup: resized rings, and regions shared with the kernel.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("region", resize, [Reg(IORING_REGISTER_RESIZE_RINGS)], "rings grow and shrink, and keep their entries"),
    case!("region", resize_indexed, [Reg(IORING_REGISTER_RESIZE_RINGS)], "the index array of a resized ring follows the CQEs"),
    case!("region", resize_refusals, [Reg(IORING_REGISTER_RESIZE_RINGS)], "rings that cannot be resized, and bad sizes"),
    case!("region", mem_region_refusals, [Reg(IORING_REGISTER_MEM_REGION)], "bad regions"),
    case!("region", mem_region_mmap, [Reg(IORING_REGISTER_MEM_REGION)], "a region of the kernel is mapped from the ring"),
];

fn sizes(sq: u32, cq: u32) -> io_uring_params {
    let flags = if cq == 0 { 0 } else { IORING_SETUP_CQSIZE };
    io_uring_params { sq_entries: sq, cq_entries: cq, flags, ..Default::default() }
}

fn resize(cx: &mut Cx) -> Outcome {
    // The kernel does not report the offset of the new index array, so only a ring without one is
    // of use.
    let setup = DEFER | IORING_SETUP_NO_SQARRAY;
    let mut ring = cx.ring(4, setup)?;
    cx.start(&mut ring, &[sqe::nop().ud(1), sqe::nop().ud(2)]);
    ring.push(sqe::nop().ud(3)).push(sqe::nop().ud(4));
    for (sq, cq) in [(16, 0), (8, 64), (4, 8)] {
        let mut p = sizes(sq, cq);
        let got = ring.register_struct(IORING_REGISTER_RESIZE_RINGS, &mut p, 1);
        cx.is(&format!("to {sq} {cq}"), got, 0);
        let p = *std::hint::black_box(&p);
        cx.note("told", format_args!("{} {}", p.sq_entries, p.cq_entries));
        cx.is("array", p.sq_off.array, 0);
        ring.remap(io_uring_params { flags: p.flags | setup, ..p })?;
        cx.is("queued are kept", ring.sq_ready(), 2);
        cx.is("completions are kept", ring.cq_ready(), 2);
    }
    cx.is("submit the queued", ring.submit(), 2);
    cx.reap_in_order(&mut ring, "all four", &[(1, 0), (2, 0), (3, 0), (4, 0)]);
    Ok(())
}

fn resize_indexed(cx: &mut Cx) -> Outcome {
    for wide in [0, IORING_SETUP_CQE32] {
        let mut ring = cx.ring(4, DEFER | wide)?;
        let mut p = sizes(16, 0);
        cx.is("resize", ring.register_struct(IORING_REGISTER_RESIZE_RINGS, &mut p, 1), 0);
        let mut p = *std::hint::black_box(&p);
        // The array follows the CQEs, as the kernel's `rings_size` lays it out.
        let end = (p.cq_off.cqes + p.cq_entries * 16) << u32::from(wide != 0);
        p.sq_off.array = end.next_multiple_of(64);
        ring.remap(io_uring_params { flags: p.flags | DEFER | wide, ..p })?;
        ring.push(sqe::nop().ud(1)).push(sqe::nop().ud(2));
        cx.is("submit", ring.submit(), 2);
        cx.reap_in_order(&mut ring, "both", &[(1, 0), (2, 0)]);
    }
    Ok(())
}

fn resize_refusals(cx: &mut Cx) -> Outcome {
    let op = IORING_REGISTER_RESIZE_RINGS;
    let plain = cx.ring(4, 0)?;
    let mut ring = cx.ring(4, DEFER)?;
    let good = sizes(8, 0);
    cx.is("a ring without DEFER_TASKRUN", plain.register(op, addr(&good), 1), -EINVAL);
    for ud in 0..4 {
        ring.push(sqe::nop().ud(ud));
    }
    cx.is("submit", ring.submit(), 4);
    let mut call = |what: &str, p: io_uring_params, want: i32| {
        let got = ring.register(op, addr(&p), 1);
        cx.is(what, got, want);
    };
    call("no entries", sizes(0, 0), -EINVAL);
    call("too many entries", sizes(32769, 0), -EINVAL);
    call("another flag", io_uring_params { flags: IORING_SETUP_SQE128, ..good }, -EINVAL);
    call("a CQ too small for what is in it", sizes(2, 2), -EOVERFLOW);
    cx.registers(&ring, &[
        ("null", op, 0, 1, -EINVAL),
        ("unmapped", op, BAD, 1, -EFAULT),
        ("count 0", op, addr(&good), 0, -EINVAL),
        ("count 2", op, addr(&good), 2, -EINVAL),
    ]);
    cx.reap_in_order(&mut ring, "all is still there", &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    Ok(())
}

fn region(desc: &io_uring_region_desc, flags: u64) -> io_uring_mem_region_reg {
    io_uring_mem_region_reg { region_uptr: addr(desc) as u64, flags, ..Default::default() }
}

fn mem_region_refusals(cx: &mut Cx) -> Outcome {
    let op = IORING_REGISTER_MEM_REGION;
    let base = os::page(libc::PROT_READ | libc::PROT_WRITE) as u64;
    let good = io_uring_region_desc {
        user_addr: base,
        size: 4096,
        flags: IORING_MEM_REGION_TYPE_USER,
        ..Default::default()
    };
    let enabled = cx.ring(4, 0)?;
    let wait = IORING_MEM_REGION_REG_WAIT_ARG;
    let got = enabled.register(op, addr(&region(&good, wait)), 1);
    cx.is("wait region for an enabled ring", got, -EINVAL);
    let ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    let mut call = |what: &str, d: io_uring_region_desc, flags: u64, want: i32| {
        let got = ring.register(op, addr(&region(&d, flags)), 1);
        cx.is(what, got, want);
    };
    call("unknown flag", good, 2, -EINVAL);
    call("size 0", io_uring_region_desc { size: 0, ..good }, wait, -EINVAL);
    call("part of a page", io_uring_region_desc { size: 100, ..good }, wait, -EINVAL);
    call("not aligned", io_uring_region_desc { user_addr: base + 8, ..good }, wait, -EINVAL);
    call("no address", io_uring_region_desc { user_addr: 0, ..good }, wait, -EFAULT);
    call("address without type", io_uring_region_desc { flags: 0, ..good }, wait, -EFAULT);
    call("unknown type", io_uring_region_desc { flags: 3, ..good }, wait, -EINVAL);
    call("id", io_uring_region_desc { id: 1, ..good }, wait, -EINVAL);
    call("offset", io_uring_region_desc { mmap_offset: 4096, ..good }, wait, -EINVAL);
    call("reserved", io_uring_region_desc { resv: [0, 0, 0, 1], ..good }, wait, -EINVAL);
    let reg = region(&good, wait);
    let lost = io_uring_mem_region_reg { region_uptr: BAD as u64, ..reg };
    cx.registers(&ring, &[
        ("null", op, 0, 1, -EINVAL),
        ("unmapped", op, BAD, 1, -EFAULT),
        ("count 0", op, addr(&reg), 0, -EINVAL),
        ("unmapped region", op, addr(&lost), 1, -EFAULT),
        ("good", op, addr(&reg), 1, 0),
        ("again", op, addr(&reg), 1, -EBUSY),
    ]);
    Ok(())
}

fn mem_region_mmap(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let desc = io_uring_region_desc { size: 8192, ..Default::default() };
    let got = ring.register(IORING_REGISTER_MEM_REGION, addr(&region(&desc, 0)), 1);
    cx.is("register", got, 0);
    let offset = std::hint::black_box(&desc).mmap_offset;
    cx.eq("offset", offset, IORING_MAP_OFF_PARAM_REGION);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let got = os::mmap_fd(ring.fd, 8192, prot, libc::MAP_SHARED, offset.cast_signed());
    cx.holds("maps", got > 0);
    if got > 0 {
        cx.is("zeroed", os::load(got.cast_unsigned() + 4096), 0);
    }
    Ok(())
}
