//! Restrictions of a ring before it is enabled.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("restrict", restrictions, [Reg(IORING_REGISTER_RESTRICTIONS)], "only allowed requests pass once the ring is enabled"),
    case!("restrict", restricted_registers, [Reg(IORING_REGISTER_RESTRICTIONS)], "register calls are restricted, too"),
    legal!("restrict", required_flags, [Reg(IORING_REGISTER_RESTRICTIONS)], "required SQE flags must be set"),
    case!("restrict", restriction_refusals, [Reg(IORING_REGISTER_RESTRICTIONS)], "bad rows, enabled rings, a second call"),
];

fn allow(kind: u16, arg: u8) -> io_uring_restriction {
    io_uring_restriction { opcode: kind, arg, ..Default::default() }
}

fn restrictions(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_R_DISABLED)?;
    let rows = [
        allow(IORING_RESTRICTION_SQE_OP, IORING_OP_NOP),
        allow(IORING_RESTRICTION_SQE_OP, IORING_OP_READ),
        allow(IORING_RESTRICTION_SQE_FLAGS_ALLOWED, IOSQE_IO_LINK),
        allow(IORING_RESTRICTION_REGISTER_OP, IORING_REGISTER_ENABLE_RINGS as u8),
    ];
    cx.is("register", ring.register_slice(IORING_REGISTER_RESTRICTIONS, &rows), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    let mut buf = [0u8; 4];
    let file = cx.file("f", b"data")?;
    let fd = file.as_raw_fd();
    cx.each(&mut ring, &[
        ("allowed", sqe::nop(), 0),
        ("allowed too", sqe::read(fd, &mut buf, 0), 4),
        ("not allowed", sqe::write(fd, b"data", 0), -EACCES),
        ("flag allowed", sqe::nop().link(), 0),
        ("flag not allowed", sqe::nop().with(IOSQE_ASYNC), -EACCES),
        ("unknown opcode", sqe::op(200, -1), -EINVAL),
    ]);
    Ok(())
}

fn restricted_registers(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, IORING_SETUP_R_DISABLED)?;
    let rows = [allow(IORING_RESTRICTION_REGISTER_OP, IORING_REGISTER_PROBE as u8)];
    let mut p = [0u64; 10];
    cx.is("register", ring.register_slice(IORING_REGISTER_RESTRICTIONS, &rows), 0);
    cx.is("before enabling", ring.register_slice(IORING_REGISTER_FILES, &[0]), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    cx.is("allowed", ring.register_struct(IORING_REGISTER_PROBE, &mut p, 8), 0);
    cx.is("not allowed", ring.register(IORING_UNREGISTER_FILES, 0, 0), -EACCES);
    cx.is("nor this", ring.register(IORING_REGISTER_PERSONALITY, 0, 0), -EACCES);
    Ok(())
}

fn required_flags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_R_DISABLED)?;
    let rows = [
        allow(IORING_RESTRICTION_SQE_OP, IORING_OP_NOP),
        allow(IORING_RESTRICTION_SQE_FLAGS_REQUIRED, IOSQE_ASYNC),
    ];
    cx.is("register", ring.register_slice(IORING_REGISTER_RESTRICTIONS, &rows), 0);
    cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    cx.each(&mut ring, &[
        ("with it", sqe::nop().with(IOSQE_ASYNC), 0),
        ("without it", sqe::nop(), -EACCES),
        ("with more", sqe::nop().with(IOSQE_ASYNC | IOSQE_IO_LINK), -EACCES),
    ]);
    Ok(())
}

fn restriction_refusals(cx: &mut Cx) -> Outcome {
    let op = IORING_REGISTER_RESTRICTIONS;
    let enabled = cx.ring(4, 0)?;
    let good = [allow(IORING_RESTRICTION_SQE_OP, IORING_OP_NOP)];
    cx.is("ring not disabled", enabled.register_slice(op, &good), -EBADFD);
    let bad_kind = [allow(IORING_RESTRICTION_LAST, 0)];
    let bad_reg = [allow(IORING_RESTRICTION_REGISTER_OP, cx.abi().registers as u8)];
    let bad_op = [allow(IORING_RESTRICTION_SQE_OP, cx.abi().ops)];
    let ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    cx.registers(&ring, &[
        ("null", op, 0, 1, -EINVAL),
        ("too many", op, addr(&good), 1000, -EINVAL),
        ("unmapped", op, BAD, 1, -EFAULT),
        ("unknown kind", op, addr(&bad_kind), 1, -EINVAL),
        ("unknown register opcode", op, addr(&bad_reg), 1, -EINVAL),
        ("unknown opcode", op, addr(&bad_op), 1, -EINVAL),
        ("good", op, addr(&good), 1, 0),
        ("again", op, addr(&good), 1, -EBUSY),
    ]);
    Ok(())
}
