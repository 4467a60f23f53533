//! Network queues: settings for busy polling, and receiving without a copy.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("napi", settings, [Reg(IORING_REGISTER_NAPI), Reg(IORING_UNREGISTER_NAPI)], "settings are kept, limited and returned"),
    case!("napi", queues, [Reg(IORING_REGISTER_NAPI)], "static tracking names network queues"),
    case!("napi", refusals, [Reg(IORING_REGISTER_NAPI), Reg(IORING_UNREGISTER_NAPI)], "bad pointers, counts and words"),
    case!("napi", zero_copy, [Op(IORING_OP_RECV_ZC), Reg(IORING_REGISTER_ZCRX_IFQ)], "zero-copy receive needs its own network queue"),
];

fn times(us: u32, prefer: u8, tracking: u32) -> io_uring_napi {
    let (busy_poll_to, prefer_busy_poll, op_param) = (us, prefer, tracking);
    io_uring_napi { busy_poll_to, prefer_busy_poll, op_param, ..Default::default() }
}

fn note_settings(cx: &mut Cx, n: &io_uring_napi) {
    cx.note("told", format_args!("{n:?}"));
}

fn register(cx: &mut Cx, ring: &Ring, what: &str, mut n: io_uring_napi, want: i32) {
    let got = ring.register_struct(IORING_REGISTER_NAPI, &mut n, 1);
    cx.is(what, got, want);
    note_settings(cx, &n);
}

fn unregister(cx: &mut Cx, ring: &Ring, what: &str) {
    let mut n = times(1, 2, 3);
    let got = ring.register_struct(IORING_UNREGISTER_NAPI, &mut n, 1);
    cx.is(what, got, 0);
    note_settings(cx, &n);
}

fn settings(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    register(cx, &ring, "first", times(50, 1, IO_URING_NAPI_TRACKING_DYNAMIC), 0);
    register(cx, &ring, "again", times(20_000, 7, IO_URING_NAPI_TRACKING_STATIC), 0);
    register(cx, &ring, "the limit", times(10, 0, IO_URING_NAPI_TRACKING_DYNAMIC), 0);
    cx.one(&mut ring, "the ring works", sqe::nop(), 0);
    unregister(cx, &ring, "off");
    unregister(cx, &ring, "still off");
    register(cx, &ring, "on again", times(5, 0, IO_URING_NAPI_TRACKING_STATIC), 0);
    cx.is("without a pointer", ring.register(IORING_UNREGISTER_NAPI, 0, 1), 0);
    Ok(())
}

fn queue(opcode: u8, id: u32) -> io_uring_napi {
    io_uring_napi { opcode, op_param: id, ..Default::default() }
}

fn queues(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let (add, del) = (IO_URING_NAPI_STATIC_ADD_ID, IO_URING_NAPI_STATIC_DEL_ID);
    register(cx, &ring, "inactive", queue(add, 100_000), -EINVAL);
    register(cx, &ring, "dynamic", times(50, 1, IO_URING_NAPI_TRACKING_DYNAMIC), 0);
    register(cx, &ring, "not there", queue(add, 100_000), -EINVAL);
    register(cx, &ring, "static", times(50, 1, IO_URING_NAPI_TRACKING_STATIC), 0);
    register(cx, &ring, "add", queue(add, 100_000), 0);
    register(cx, &ring, "again", queue(add, 100_000), -EEXIST);
    register(cx, &ring, "no queue", queue(add, 0), -EINVAL);
    register(cx, &ring, "a CPU", queue(add, 1), -EINVAL);
    register(cx, &ring, "remove", queue(del, 100_000), 0);
    register(cx, &ring, "gone", queue(del, 100_000), -ENOENT);
    register(cx, &ring, "never a queue", queue(del, 1), -EINVAL);
    let text = std::fs::read_to_string("/sys/devices/system/cpu/kernel_max")?;
    let last: u32 = text.trim().parse().unwrap_or(0);
    register(cx, &ring, "the last CPU", queue(add, last + 1), -EINVAL);
    register(cx, &ring, "the first queue", queue(add, last + 2), 0);
    register(cx, &ring, "static anew", times(50, 1, IO_URING_NAPI_TRACKING_STATIC), 0);
    register(cx, &ring, "forgets them", queue(del, last + 2), -ENOENT);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let good = times(50, 1, 0);
    let at = addr(&good);
    cx.registers(&ring, &[
        ("no pointer", IORING_REGISTER_NAPI, 0, 1, -EINVAL),
        ("no count", IORING_REGISTER_NAPI, at, 0, -EINVAL),
        ("two", IORING_REGISTER_NAPI, at, 2, -EINVAL),
        ("a bad pointer", IORING_REGISTER_NAPI, BAD, 1, -EFAULT),
        ("off: no count", IORING_UNREGISTER_NAPI, at, 0, -EINVAL),
        ("off: two", IORING_UNREGISTER_NAPI, at, 2, -EINVAL),
        ("off: a bad pointer", IORING_UNREGISTER_NAPI, BAD, 1, -EFAULT),
    ]);
    register(cx, &ring, "padding", io_uring_napi { pad: [0, 1], ..good }, -EINVAL);
    register(cx, &ring, "reserved", io_uring_napi { resv: 1, ..good }, -EINVAL);
    register(cx, &ring, "unknown tracking", times(50, 1, 2), -EINVAL);
    register(cx, &ring, "unknown operation", queue(3, 100_000), -EINVAL);
    unregister(cx, &ring, "nothing was set");
    Ok(())
}

fn zero_copy(cx: &mut Cx) -> Outcome {
    const WIDE: u32 = DEFER | IORING_SETUP_CQE32;
    let mut ring = cx.ring(4, 0)?;
    let receive = sqe::op(IORING_OP_RECV_ZC, 0).set(|s| s.ioprio = IORING_RECV_MULTISHOT);
    cx.one(&mut ring, "no queue", receive, -EINVAL);
    cx.one(&mut ring, "no queue, no file", receive.set(|s| s.fd = 999), -EINVAL);
    cx.one(&mut ring, "a buffer group", receive.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP);
    let queue = [0u64; 16];
    let at = addr(&queue);
    for (what, flags) in [("plain", 0), ("deferred", DEFER)] {
        let ring = cx.ring(4, flags)?;
        for (how, at, nr) in [("no pointer", 0, 1), ("bad", BAD, 1), ("empty", at, 1)] {
            let got = ring.register(IORING_REGISTER_ZCRX_IFQ, at, nr);
            cx.is(&format!("{what}, {how}"), got, -EINVAL);
        }
    }
    let ring = cx.ring(4, WIDE)?;
    let got = ring.register(IORING_REGISTER_ZCRX_IFQ, at, 0);
    cx.is("deferred and wide, none", got, -EINVAL);
    Ok(())
}
